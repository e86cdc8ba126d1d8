//! What a mirror is told to do, as values that are already checked.
//!
//! `config` fills these from MirrorMaker's file; nothing here knows a key name's spelling or reads a file. Every
//! number has its default beside it, as a constant with the reason for it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::topics::{FlowRules, ReplicationPolicy, TopicFilter};

/// Everything one process does.
#[derive(Clone, Debug)]
pub struct ProcessSettings {
    /// The flows to run, at least one, in the order of their aliases; no two with the same pair of aliases.
    pub flows: Vec<FlowSettings>,
    /// Ceiling of what is held in fetched frames, in bytes, over all flows; at least [`MEMORY_BYTES_MIN`].
    pub memory_bytes: u64,
    /// Threads with a runtime of their own; at least 1.
    pub worker_threads: usize,
    /// Holds the lock file and the instance id that survive a restart. Absolute where the environment allows.
    pub state_dir: PathBuf,
    /// How often the progress line is printed.
    pub progress_interval: Duration,
    /// Where metrics and readiness are shown, an address of this host; `None`: nowhere.
    pub http_listen: Option<SocketAddr>,
}

/// Only this host can ask: there is no authentication yet. The port is nobody's by convention.
pub const HTTP_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9877);

/// 64 MiB: 64 frames of the default size, enough for a link of 100 ms at 5 Gbit/s, and the process stays under 100 MB.
pub const MEMORY_BYTES: u64 = 64 << 20;
/// 8 MiB: below this two lanes with a batch of a megabyte each cannot move side by side.
pub const MEMORY_BYTES_MIN: u64 = 8 << 20;
/// A gigabyte costs 0.3 to 0.7 CPU seconds (`performance-notes.md`), so one thread outruns most links.
pub const WORKER_THREADS: usize = 1;
/// Often enough to watch, seldom enough to read a day of it.
pub const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

/// One direction between two clusters.
#[derive(Clone, Debug)]
pub struct FlowSettings {
    /// Where records come from; its alias differs from the target's.
    pub source: ClusterSettings,
    /// Where they go.
    pub target: ClusterSettings,
    /// Names the copies.
    pub policy: ReplicationPolicy,
    /// Chooses the topics.
    pub topics: TopicFilter,
    /// Whether heartbeats topics are copied whatever [`Self::topics`] says (`heartbeats.replication.enabled`).
    pub copy_heartbeats: bool,
    /// Replicas of created topics; at least 1, or -1 for the broker's default.
    pub replication_factor: i16,
    /// How often topics and partitions are looked for; `None`: only at the start.
    pub refresh_topics: Option<Duration>,
    /// Where a partition without a position starts. Partitions added later always start at their beginning.
    pub start: StartOffset,
    /// Which records of transactional topics are copied.
    pub isolation: Isolation,
    /// Rack of this process, for reads from a follower nearby (`client.rack`, KIP-392).
    pub client_rack: Option<String>,
    /// Reading.
    pub fetch: FetchSettings,
    /// Writing.
    pub produce: ProduceSettings,
    /// Ownership of partitions.
    pub lease: LeaseSettings,
    /// Durable positions.
    pub anchor: AnchorSettings,
    /// What to do with a target partition that holds records, but none of our positions.
    pub on_target_not_empty: OnTargetNotEmpty,
    /// What to do when the target topic is another one than our position belongs to.
    pub on_target_recreated: OnTargetRecreated,
    /// What to do when records are gone from the source before they were copied.
    pub on_source_loss: OnTrouble,
    /// What to do when the source lost records that were copied already.
    pub on_source_truncated: OnTrouble,
    /// What to do when the source topic is another one than was copied.
    pub on_source_recreated: OnSourceRecreated,
    /// What to do when somebody else wrote to the remote partition.
    pub on_foreign_write: OnTrouble,
    /// Which time records of a LogAppendTime source show on the target.
    pub log_append_time: LogAppendTime,
    /// What one batch may become, in bytes, when it has to be decompressed.
    pub open_bytes_max: usize,
    /// Whether progress is also committed on the source, for people's lag tools.
    pub commit_source_offsets: bool,
    /// The group of those commits; `None`: `towpath.<source>.<target>`.
    pub source_group_id: Option<String>,
    /// A partition that has something to copy and did not move for so long is named.
    pub not_moving: Duration,
}

/// Twice the usual timeout of a request: by then whatever failed was tried again.
pub const NOT_MOVING: Duration = Duration::from_secs(60);

/// What a batch may become when it is decompressed: a hundred times the broker's default limit of a batch, more than JSON
/// compresses to. Java's consumers have no such limit; it is here so that a batch made to fill memory does not.
pub const OPEN_BYTES_MAX: usize = 128 << 20;

/// MirrorMaker's default for new topics.
pub const REPLICATION_FACTOR: i16 = 2;
/// MirrorMaker's default, ten minutes.
pub const REFRESH_TOPICS: Duration = Duration::from_secs(600);

impl FlowSettings {
    /// The flow's name, `source->target`.
    pub fn name(&self) -> String {
        format!("{}->{}", self.source.alias, self.target.alias)
    }

    /// The consumer group on the source that shows the flow's progress.
    pub fn source_group_id(&self) -> String {
        self.source_group_id.clone().unwrap_or_else(|| format!("towpath.{}.{}", self.source.alias, self.target.alias))
    }

    /// The part that decides where copies go, for [`crate::topics::conflicts`].
    pub fn rules(&self) -> FlowRules<'_> {
        FlowRules {
            source: self.source.alias.as_str(),
            target: self.target.alias.as_str(),
            policy: &self.policy,
            filter: &self.topics,
            copy_heartbeats: self.copy_heartbeats,
        }
    }
}

/// How one flow speaks to one of its clusters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterSettings {
    /// The name the file gives the cluster.
    pub alias: ClusterAlias,
    /// At least one; tried in turn.
    pub bootstrap_servers: Vec<HostPort>,
    /// What brokers see in logs and quotas.
    pub client_id: String,
    /// How long an answer may take once the request is sent (`request.timeout.ms`).
    pub request_timeout: Duration,
    /// How long a connection may take to open (`socket.connection.setup.timeout.ms`).
    pub connect_timeout: Duration,
    /// An unused connection is closed after this (`connections.max.idle.ms`).
    pub connections_max_idle: Duration,
    /// First pause before connecting again (`reconnect.backoff.ms`), with jitter.
    pub reconnect_backoff: Duration,
    /// Longest such pause (`reconnect.backoff.max.ms`); not below the first.
    pub reconnect_backoff_max: Duration,
    /// Metadata older than this is asked for again (`metadata.max.age.ms`).
    pub metadata_max_age: Duration,
}

/// Kafka's client default.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Kafka's client default.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Kafka's client default: just below the broker's ten minutes, so that we close first.
pub const CONNECTIONS_MAX_IDLE: Duration = Duration::from_secs(9 * 60);
/// Kafka's client default.
pub const RECONNECT_BACKOFF: Duration = Duration::from_millis(50);
/// Kafka's client default.
pub const RECONNECT_BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Kafka's client default.
pub const METADATA_MAX_AGE: Duration = Duration::from_secs(5 * 60);

impl ClusterSettings {
    /// A cluster with Kafka's defaults for everything but its name and addresses.
    pub fn new(alias: ClusterAlias, bootstrap_servers: Vec<HostPort>, client_id: impl Into<String>) -> Self {
        Self {
            alias,
            bootstrap_servers,
            client_id: client_id.into(),
            request_timeout: REQUEST_TIMEOUT,
            connect_timeout: CONNECT_TIMEOUT,
            connections_max_idle: CONNECTIONS_MAX_IDLE,
            reconnect_backoff: RECONNECT_BACKOFF,
            reconnect_backoff_max: RECONNECT_BACKOFF_MAX,
            metadata_max_age: METADATA_MAX_AGE,
        }
    }
}

/// A cluster's name in the file; it becomes part of topic and group names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterAlias(String);

/// An alias that cannot be part of a topic name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cluster alias {alias:?} cannot be part of a topic name; use only letters, digits, '.', '_' and '-'")]
pub struct InvalidAlias {
    /// The alias as written.
    pub alias: String,
}

impl ClusterAlias {
    /// Checks an alias.
    ///
    /// # Errors
    /// [`InvalidAlias`] unless it is made of the characters Kafka allows in topic names. (Java takes any text, and
    /// then fails to create `mm2-offsets.<alias>.internal`.)
    pub fn new(alias: impl Into<String>) -> Result<Self, InvalidAlias> {
        let alias = alias.into();
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if !alias.is_empty() && alias.len() <= 200 && alias.chars().all(legal) {
            Ok(Self(alias))
        } else {
            Err(InvalidAlias { alias })
        }
    }

    /// The alias as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClusterAlias {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where a broker listens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPort {
    /// A name or an address; IPv6 without brackets.
    pub host: String,
    /// Its port; never 0.
    pub port: u16,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// `auto.offset.reset`, for partitions that were never copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartOffset {
    /// MirrorMaker's default: everything the source holds.
    #[default]
    Earliest,
    /// Only what comes after the start.
    Latest,
}

/// `isolation.level`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Committed records only. An intended difference: MirrorMaker's default copies aborted records as if they had
    /// been committed.
    #[default]
    ReadCommitted,
    /// Everything, also what was aborted or is still open.
    ReadUncommitted,
}

/// Reading from the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchSettings {
    /// Most bytes of one answer (`fetch.max.bytes`); a single larger batch still comes whole.
    pub response_bytes_max: u32,
    /// Whether the user set [`Self::response_bytes_max`], so that it is not adapted.
    pub response_bytes_explicit: bool,
    /// Most bytes of one partition in an answer (`max.partition.fetch.bytes`).
    pub partition_bytes_max: u32,
    /// Whether the user set [`Self::partition_bytes_max`].
    pub partition_bytes_explicit: bool,
    /// How long a broker may wait for [`Self::min_bytes`] (`fetch.max.wait.ms`).
    pub max_wait: Duration,
    /// What is worth an answer before [`Self::max_wait`] is over (`fetch.min.bytes`).
    pub min_bytes: u32,
}

impl FetchSettings {
    /// 1 MiB: bytes leave for the target while still in the cache (`performance-notes.md`).
    pub const RESPONSE_BYTES_MAX: u32 = 1 << 20;
    /// 128 KiB: a share for eight active partitions; eight times the usual batch of 16 KiB, so that little is paid
    /// twice for a batch cut off.
    pub const PARTITION_BYTES_MAX: u32 = 128 << 10;
    /// Kafka's client default.
    pub const MAX_WAIT: Duration = Duration::from_millis(500);
    /// Kafka's client default: answer as soon as there is anything.
    pub const MIN_BYTES: u32 = 1;
}

impl Default for FetchSettings {
    fn default() -> Self {
        Self {
            response_bytes_max: Self::RESPONSE_BYTES_MAX,
            response_bytes_explicit: false,
            partition_bytes_max: Self::PARTITION_BYTES_MAX,
            partition_bytes_explicit: false,
            max_wait: Self::MAX_WAIT,
            min_bytes: Self::MIN_BYTES,
        }
    }
}

/// Writing to the target; always with acks=all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProduceSettings {
    /// Most bytes of one request (`max.request.size`); a single larger batch still goes alone.
    pub request_bytes_max: u32,
    /// How long the broker may wait for its followers, and we for its answer (`request.timeout.ms`).
    pub request_timeout: Duration,
    /// Requests on the way per partition, 1 to 5 (`max.in.flight.requests.per.connection`).
    pub in_flight_per_partition_max: u8,
    /// Connections to one target broker that carry batches; at least 1.
    pub lanes_per_broker: u8,
}

impl ProduceSettings {
    /// Kafka's producer default, 1 MiB, and the default limit of the broker for one batch.
    pub const REQUEST_BYTES_MAX: u32 = 1 << 20;
    /// Brokers remember the last five batches of an idempotent producer; more cannot be told apart after an error.
    pub const IN_FLIGHT_PER_PARTITION_MAX: u8 = 5;
    /// A broker serves one request of a connection at a time, ack wait included; the second one fills the wait.
    pub const LANES_PER_BROKER: u8 = 2;
}

impl Default for ProduceSettings {
    fn default() -> Self {
        Self {
            request_bytes_max: Self::REQUEST_BYTES_MAX,
            request_timeout: REQUEST_TIMEOUT,
            in_flight_per_partition_max: Self::IN_FLIGHT_PER_PARTITION_MAX,
            lanes_per_broker: Self::LANES_PER_BROKER,
        }
    }
}

/// Membership in the group that owns the flow's partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseSettings {
    /// After this long without a proof of membership an owner is silent (`towpath.session.timeout.ms`). Must lie
    /// within the target's `group.min.session.timeout.ms` and `group.max.session.timeout.ms`.
    pub session_timeout: Duration,
    /// How often membership is proven; at most a third of the session timeout.
    pub heartbeat_interval: Duration,
}

impl LeaseSettings {
    /// Long enough to outlive a broker's restart; a restart of ours does not wait for it (lock file).
    pub const SESSION_TIMEOUT: Duration = Duration::from_secs(30);
    /// A tenth of the session: several may be lost.
    pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(3);
}

impl Default for LeaseSettings {
    fn default() -> Self {
        Self { session_timeout: Self::SESSION_TIMEOUT, heartbeat_interval: Self::HEARTBEAT_INTERVAL }
    }
}

/// How often positions are made durable while records move: whichever comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnchorSettings {
    /// `towpath.anchor.interval.ms`.
    pub interval: Duration,
    /// Bytes of one partition.
    pub bytes: u64,
}

impl AnchorSettings {
    /// A commit of a few hundred bytes a second; a crash leaves at most a second to be matched.
    pub const INTERVAL: Duration = Duration::from_secs(1);
    /// Bounds what a restart may have to read back.
    pub const BYTES: u64 = 64_000_000;
}

impl Default for AnchorSettings {
    fn default() -> Self {
        Self { interval: Self::INTERVAL, bytes: Self::BYTES }
    }
}

/// `towpath.on.target.recreated`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnTargetRecreated {
    /// The partition stands still in a named state: what was copied is gone, and somebody should know.
    #[default]
    Stop,
    /// Forget the position and copy from the start into the new topic.
    Begin,
}

/// `towpath.on.source.loss`, `towpath.on.source.truncated`, `towpath.on.foreign.write`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnTrouble {
    /// The partition stands still in a named state until somebody decides.
    Stop,
    /// The copy goes on behind it; a warning and a counter tell.
    Continue,
}

/// `towpath.on.source.recreated`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnSourceRecreated {
    /// The partition stands still in a named state until somebody decides.
    #[default]
    Stop,
    /// The new topic is copied from its beginning, behind the records of the former one.
    Append,
    /// The remote topic is deleted and created anew, and the new topic is copied from its beginning.
    RecreateTarget,
}

/// `towpath.on.target.not.empty`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnTargetNotEmpty {
    /// The partition stands still in a named state: somebody else's records may be there, or an older copy.
    #[default]
    Stop,
    /// Copy behind what is there.
    Append,
}

/// `towpath.log.append.time`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogAppendTime {
    /// Keep the time the source's broker gave; such batches take the open path.
    #[default]
    Open,
    /// Keep batches sealed; records show their producer's time instead.
    Sealed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_are_parts_of_topic_names() {
        for alias in ["A", "us-west", "dc_1", "a.b"] {
            assert_eq!(ClusterAlias::new(alias).unwrap().as_str(), alias);
        }
        for alias in ["", "us west", "a#b", "ä", "a->b"] {
            assert!(ClusterAlias::new(alias).is_err(), "{alias:?}");
        }
        assert!(ClusterAlias::new("a".repeat(201)).is_err());
    }

    #[test]
    fn addresses_print_as_kafka_reads_them() {
        let address = |host: &str| HostPort { host: host.to_owned(), port: 9092 };
        assert_eq!(address("kafka-1.example").to_string(), "kafka-1.example:9092");
        assert_eq!(address("::1").to_string(), "[::1]:9092");
    }
}
