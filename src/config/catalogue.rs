//! Names that MirrorMaker 2, Connect and Kafka's clients know, for the notes about keys without effect.
//!
//! From the tables of `mirrormaker2.md` section 2 and Kafka's documentation of client settings, 2.4 to 4.x.

/// Settings of the three connectors, MirrorMaker's driver and the Connect worker.
const MIRROR: &[&str] = &[
    "access.control.allow.methods",
    "access.control.allow.origin",
    "add.source.alias.to.metrics",
    "admin.listeners",
    "admin.timeout.ms",
    "auto.include.jmx.reporter",
    "checkpoints.topic.replication.factor",
    "client.id",
    "config.action.reload",
    "config.properties.blacklist",
    "config.properties.exclude",
    "config.property.filter.class",
    "config.providers",
    "config.storage.replication.factor",
    "config.storage.topic",
    "connect.protocol",
    "connector.class",
    "connector.client.config.override.policy",
    "consumer.poll.timeout.ms",
    "dedicated.mode.enable.internal.rest",
    "emit.checkpoints.enabled",
    "emit.checkpoints.interval.seconds",
    "emit.heartbeats.enabled",
    "emit.heartbeats.interval.seconds",
    "emit.offset-syncs.enabled",
    "errors.log.enable",
    "errors.log.include.messages",
    "errors.retry.delay.max.ms",
    "errors.retry.timeout",
    "errors.tolerance",
    "exactly.once.source.support",
    "exactly.once.support",
    "forwarding.admin.class",
    "group.filter.class",
    "group.id",
    "groups",
    "groups.blacklist",
    "groups.exclude",
    "header.converter",
    "heartbeats.topic.replication.factor",
    "heartbeat.interval.ms",
    "inter.worker.key.generation.algorithm",
    "inter.worker.key.size",
    "inter.worker.key.ttl.ms",
    "inter.worker.signature.algorithm",
    "inter.worker.verification.algorithms",
    "key.converter",
    "listeners",
    "metadata.max.age.ms",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "name",
    "offset.flush.interval.ms",
    "offset.flush.timeout.ms",
    "offset.lag.max",
    "offset.storage.partitions",
    "offset.storage.replication.factor",
    "offset.storage.topic",
    "offset-syncs.topic.location",
    "offset-syncs.topic.replication.factor",
    "offsets.storage.topic",
    "plugin.discovery",
    "plugin.path",
    "predicates",
    "rebalance.timeout.ms",
    "refresh.groups.enabled",
    "refresh.groups.interval.seconds",
    "request.timeout.ms",
    "response.http.headers.config",
    "rest.advertised.host.name",
    "rest.advertised.listener",
    "rest.advertised.port",
    "rest.extension.classes",
    "retry.backoff.ms",
    "scheduled.rebalance.max.delay.ms",
    "session.timeout.ms",
    "source.cluster.alias",
    "status.storage.partitions",
    "status.storage.replication.factor",
    "status.storage.topic",
    "sync.group.offsets.enabled",
    "sync.group.offsets.interval.seconds",
    "sync.topic.acls.enabled",
    "sync.topic.acls.interval.seconds",
    "sync.topic.configs.enabled",
    "sync.topic.configs.interval.seconds",
    "target.cluster.alias",
    "task.shutdown.graceful.timeout.ms",
    "tasks.max",
    "tasks.max.enforce",
    "topic.creation.enable",
    "topic.filter.class",
    "topic.tracking.allow.reset",
    "topic.tracking.enable",
    "transaction.boundary",
    "transaction.boundary.interval.ms",
    "transforms",
    "use.defaults.from",
    "use.incremental.alter.configs",
    "value.converter",
    "worker.sync.timeout.ms",
    "worker.unsync.backoff.ms",
];

/// Families of such settings whose names go on freely.
const MIRROR_PREFIXES: &[&str] = &[
    "config.providers.",
    "config.storage.",
    "errors.deadletterqueue.",
    "header.converter.",
    "key.converter.",
    "listeners.https.",
    "metrics.context.",
    "offset.storage.",
    "predicates.",
    "source.cluster.",
    "status.storage.",
    "target.cluster.",
    "topic.creation.",
    "transforms.",
    "value.converter.",
];

/// Settings that all of Kafka's clients have.
const CLIENT: &[&str] = &[
    "auto.include.jmx.reporter",
    "bootstrap.servers",
    "client.dns.lookup",
    "client.id",
    "connections.max.idle.ms",
    "default.api.timeout.ms",
    "enable.metrics.push",
    "metadata.max.age.ms",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "receive.buffer.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "request.timeout.ms",
    "retries",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "security.protocol",
    "security.providers",
    "send.buffer.bytes",
    "socket.connection.setup.timeout.max.ms",
    "socket.connection.setup.timeout.ms",
];

/// The consumer's own.
const CONSUMER: &[&str] = &[
    "allow.auto.create.topics",
    "auto.commit.interval.ms",
    "auto.offset.reset",
    "check.crcs",
    "client.rack",
    "enable.auto.commit",
    "exclude.internal.topics",
    "fetch.max.bytes",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "group.id",
    "group.instance.id",
    "group.protocol",
    "group.remote.assignor",
    "heartbeat.interval.ms",
    "interceptor.classes",
    "isolation.level",
    "key.deserializer",
    "max.partition.fetch.bytes",
    "max.poll.interval.ms",
    "max.poll.records",
    "partition.assignment.strategy",
    "session.timeout.ms",
    "share.acknowledgement.mode",
    "value.deserializer",
];

/// The producer's own.
const PRODUCER: &[&str] = &[
    "acks",
    "batch.size",
    "buffer.memory",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "delivery.timeout.ms",
    "enable.idempotence",
    "interceptor.classes",
    "key.serializer",
    "linger.ms",
    "max.block.ms",
    "max.in.flight.requests.per.connection",
    "max.request.size",
    "metadata.max.idle.ms",
    "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms",
    "partitioner.class",
    "partitioner.ignore.keys",
    "transaction.timeout.ms",
    "transaction.two.phase.commit.enable",
    "transactional.id",
    "value.serializer",
];

/// The admin client's own.
const ADMIN: &[&str] = &["bootstrap.controllers"];

/// What a key's last part is a setting of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    Mirror,
    Consumer,
    Producer,
    Admin,
}

impl Group {
    /// All names of the group, common client settings included.
    pub(super) fn names(self) -> impl Iterator<Item = &'static str> {
        let own = match self {
            Self::Mirror => MIRROR,
            Self::Consumer => CONSUMER,
            Self::Producer => PRODUCER,
            Self::Admin => ADMIN,
        };
        own.iter().chain(CLIENT).copied()
    }

    /// Whether MirrorMaker, or the client in question, has such a setting.
    pub(super) fn knows(self, name: &str) -> bool {
        self.names().any(|known| known == name)
            || name.starts_with("ssl.")
            || name.starts_with("sasl.")
            || (self == Self::Mirror && MIRROR_PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
    }
}

/// Settings of a flow that end in `.enabled`, besides the switch of the flow itself.
pub(super) fn switches() -> impl Iterator<Item = &'static str> {
    let used = super::keys::USED.iter().map(|key| key.name);
    let own = MIRROR.iter().copied().chain(used);
    own.filter(|name| name.ends_with(".enabled"))
}

/// What people who set this key should know.
pub(super) fn remark(name: &str) -> Option<&'static str> {
    Some(match name {
        "tasks.max" | "tasks.max.enforce" => "one process copies all partitions; see towpath.worker.threads",
        "compression.type" | "batch.size" | "linger.ms" => {
            "batches are forwarded as the source holds them, not built anew"
        }
        "exactly.once.source.support" | "exactly.once.support" | "enable.idempotence" => {
            "each record is copied once in any case, without transactions"
        }
        "sync.topic.configs.enabled" | "config.properties.exclude" => "topic settings are not kept in step yet",
        "sync.topic.acls.enabled" => "ACLs are not copied yet",
        "sync.group.offsets.enabled" | "groups" | "groups.exclude" => "consumer group offsets are not copied yet",
        "emit.checkpoints.enabled" => "checkpoints are not written yet",
        "emit.heartbeats.enabled" => "heartbeats are not written yet",
        "offset.lag.max" | "emit.offset-syncs.enabled" => "offset syncs are not written yet",
        "offset.flush.interval.ms" => "see towpath.anchor.interval.ms",
        "topic.filter.class" | "group.filter.class" | "config.property.filter.class" | "forwarding.admin.class" => {
            "Java classes cannot be loaded"
        }
        "transforms" | "predicates" => "records are copied as they are",
        "config.providers" => "references such as ${env:X} are not resolved yet",
        _ if name.starts_with("ssl.") => "TLS is not in this version yet",
        _ if name.starts_with("sasl.") => "SASL is not in this version yet",
        _ => return None,
    })
}
