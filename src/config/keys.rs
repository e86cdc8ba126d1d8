//! The keys this version uses, and where each may stand.
//!
//! `docs/configuration.md` holds the same table (a test compares them); a test of the module sets every key and
//! checks that none is called unused.

/// Where a key may stand, the strongest place first. `S` is the flow's source, `T` its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Alone.
    Top,
    /// Per cluster, or alone for all that have none.
    Cluster,
    /// Only with a flow.
    FlowOnly,
    /// With a flow, or alone for all flows.
    Flow,
    /// Reading from the source.
    Consumer,
    /// Writing records to the target.
    Producer,
    /// Every connection of a side.
    Connection,
}

/// One key in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub(super) name: &'static str,
    pub(super) place: Place,
    pub(super) default: &'static str,
    pub(super) effect: &'static str,
}

const fn key(name: &'static str, place: Place, default: &'static str, effect: &'static str) -> Key {
    Key { name, place, default, effect }
}

/// In the order a person meets them.
pub(super) const USED: &[Key] = &[
    key("clusters", Place::Top, "required", "The aliases of all clusters, a list."),
    key("bootstrap.servers", Place::Cluster, "required", "Addresses to begin with: `host:port, host:port`."),
    key("security.protocol", Place::Cluster, "`PLAINTEXT`", "`PLAINTEXT` only; TLS and SASL are not in this version."),
    key("enabled", Place::FlowOnly, "`false`", "Runs the flow."),
    key("topics", Place::Flow, "`.*`", "Java patterns of topics to copy, a list; each matches the whole name."),
    key(
        "topics.exclude",
        Place::Flow,
        r"`.*[\\-\\.]internal, .*\\.replica, __.*`",
        "Java patterns of topics not to copy; wins over `topics`. A value replaces the default.",
    ),
    key(
        "topics.blacklist",
        Place::Flow,
        "none",
        "The name of `topics.exclude` up to Kafka 3.9; used where that is not set.",
    ),
    key("heartbeats.replication.enabled", Place::Flow, "`true`", "Copies heartbeats topics whatever `topics` says."),
    key(
        "replication.policy.class",
        Place::Flow,
        "`org.apache.kafka.connect.mirror.DefaultReplicationPolicy`",
        "How copies are named: `…DefaultReplicationPolicy` (`S.topic`) or `…IdentityReplicationPolicy` (`topic`).",
    ),
    key("replication.policy.separator", Place::Flow, "`.`", "What stands between alias and topic."),
    key(
        "replication.policy.internal.topic.separator.enabled",
        Place::Flow,
        "`true`",
        "Whether MirrorMaker's internal topics use that separator too (to recognise them).",
    ),
    key(
        "replication.factor",
        Place::Flow,
        "`2`",
        "Replicas of created topics; `-1` leaves it to the target's brokers.",
    ),
    key("refresh.topics.enabled", Place::Flow, "`true`", "Looks for new topics and partitions while running."),
    key("refresh.topics.interval.seconds", Place::Flow, "`600`", "How often, in seconds."),
    key(
        "auto.offset.reset",
        Place::Consumer,
        "`earliest`",
        "Where a partition without a position starts: `earliest` or `latest`.",
    ),
    key(
        "isolation.level",
        Place::Consumer,
        "`read_committed`",
        "`read_committed` or `read_uncommitted`. MirrorMaker's default is the latter.",
    ),
    key("client.rack", Place::Consumer, "none", "Rack of this process; reads from a follower nearby."),
    key(
        "fetch.max.bytes",
        Place::Consumer,
        "`1048576`, adapted",
        "Most bytes of one fetch response; capped at 32 MiB and a quarter of `towpath.memory.bytes`.",
    ),
    key(
        "max.partition.fetch.bytes",
        Place::Consumer,
        "`131072`, adapted",
        "Most bytes of one partition in a response; capped at `fetch.max.bytes`.",
    ),
    key("fetch.min.bytes", Place::Consumer, "`1`", "Bytes worth a response before the wait is over."),
    key("fetch.max.wait.ms", Place::Consumer, "`500`", "How long the broker may wait for them, in ms."),
    key("acks", Place::Producer, "`all`", "`all` or `-1`; a copy is never acknowledged with less."),
    key(
        "max.request.size",
        Place::Producer,
        "`1048576`",
        "Most bytes of one produce request; capped at 32 MiB. A larger single batch goes alone.",
    ),
    key(
        "max.in.flight.requests.per.connection",
        Place::Producer,
        "`5`",
        "Produce requests on the way per partition, 1 to 5.",
    ),
    key(
        "client.id",
        Place::Connection,
        r"`S->T\|towpath`",
        "What brokers see in logs and quotas, used exactly as given.",
    ),
    key(
        "request.timeout.ms",
        Place::Connection,
        "`30000`",
        "How long an answer may take, in ms. On the target `producer.` is for produce requests, `admin.` for all others.",
    ),
    key(
        "socket.connection.setup.timeout.ms",
        Place::Connection,
        "`10000`",
        "How long opening a connection may take, in ms.",
    ),
    key(
        "connections.max.idle.ms",
        Place::Connection,
        "`540000`",
        "Closes unused connections after, in ms; `-1` never.",
    ),
    key("reconnect.backoff.ms", Place::Connection, "`50`", "First pause before connecting again, in ms."),
    key("reconnect.backoff.max.ms", Place::Connection, "`1000`", "Longest such pause, in ms; not below the first."),
    key("metadata.max.age.ms", Place::Connection, "`300000`", "Metadata is refreshed at least this often, in ms."),
    key(
        "towpath.memory.bytes",
        Place::Top,
        "`67108864`",
        "Ceiling of fetched data held in memory, in bytes, at least 8388608.",
    ),
    key("towpath.worker.threads", Place::Top, "`1`", "Threads that copy, 1 to 256."),
    key("towpath.state.dir", Place::Top, "see below", "Holds the lock file and the instance id."),
    key("towpath.progress.interval.seconds", Place::Top, "`10`", "How often the progress line is printed, in seconds."),
    key(
        "towpath.http.listen",
        Place::Top,
        "`127.0.0.1:9877`",
        "Where `/metrics`, `/health` and `/ready` are shown: an address of this host, or `off`. If another process has the port, that is said once, and the mirror goes on.",
    ),
    key(
        "towpath.on.target.not.empty",
        Place::Flow,
        "`stop`",
        "A target partition with records but no position of ours: `stop` it or `append`.",
    ),
    key(
        "towpath.on.target.recreated",
        Place::Flow,
        "`stop`",
        "A target topic that is another one than our position belongs to: `stop`, or `begin` the copy anew.",
    ),
    key(
        "towpath.on.source.loss",
        Place::Flow,
        "`continue`",
        "Records gone from the source before they were copied: `continue` behind them, or `stop`.",
    ),
    key(
        "towpath.on.source.truncated",
        Place::Flow,
        "`stop`",
        "A source that lost records already copied: `stop`, or `continue` behind the common history.",
    ),
    key(
        "towpath.on.source.recreated",
        Place::Flow,
        "`stop`",
        "A source topic that is another one: `stop`; `append` copies it behind the former one's records; `recreate-target` *deletes* the remote topic and copies anew.",
    ),
    key(
        "towpath.on.foreign.write",
        Place::Flow,
        "`stop`",
        "Records of somebody else in the remote partition: `stop`, or `continue` behind them.",
    ),
    key(
        "towpath.log.append.time",
        Place::Flow,
        "`open`",
        "LogAppendTime sources: `open` keeps the broker's times, `sealed` keeps batches sealed with the producers' times.",
    ),
    key(
        "towpath.open.max.bytes",
        Place::Flow,
        "`134217728`",
        "What one batch may become when it has to be decompressed, in bytes, at least 1048576.",
    ),
    key("towpath.commit.source.offsets", Place::Flow, "`true`", "Commits progress on the source too, for lag tools."),
    key("towpath.group.id", Place::Flow, "`towpath.S.T`", "The group of those commits."),
    key(
        "towpath.session.timeout.ms",
        Place::Flow,
        "`30000`",
        "An owner that cannot prove its membership for this long falls silent, in ms; at least 6000.",
    ),
    key(
        "towpath.heartbeat.interval.ms",
        Place::Flow,
        "`3000`, or less",
        "How often it proves it, in ms; at most a third of the session timeout. Without a value at most a tenth.",
    ),
    key(
        "towpath.anchor.interval.ms",
        Place::Flow,
        "`1000`",
        "How often positions are made durable while records move, in ms; at least 100.",
    ),
    key(
        "towpath.not.moving.seconds",
        Place::Flow,
        "`60`",
        "A partition that has something to copy and did not move for so long is named, with what it waits for.",
    ),
    key("towpath.lanes.per.broker", Place::Flow, "`2`", "Produce connections per target broker, 1 to 16."),
];

/// Whether a name is in the table.
pub(super) fn is_used(name: &str) -> bool {
    USED.iter().any(|key| key.name == name)
}

impl Place {
    /// As the documentation shows it.
    fn describe(self) -> &'static str {
        match self {
            Self::Top => "`key`",
            Self::Cluster => "`A.key`, `key`",
            Self::FlowOnly => "`S->T.key`",
            Self::Flow => "`S->T.key`, `key`",
            Self::Consumer => "consumer",
            Self::Producer => "producer",
            Self::Connection => "connection",
        }
    }
}

/// The table as Markdown.
pub(super) fn markdown() -> String {
    let mut out = String::from("| key | where | default | effect |\n|---|---|---|---|\n");
    for key in USED {
        let place = key.place.describe();
        out.push_str(&format!("| `{}` | {place} | {} | {} |\n", key.name, key.default, key.effect));
    }
    out
}
