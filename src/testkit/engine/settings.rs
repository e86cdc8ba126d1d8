//! What an embedded cluster is made of, and the settings of brokers and topics that have an effect on it.

use std::collections::BTreeMap;

use crate::batch::Codec;
use crate::testkit::BrokerVersion;
use crate::testkit::log::AppendRules;

/// How a cluster starts.
#[derive(Debug, Clone)]
pub struct ClusterSettings {
    /// Which Kafka it is.
    pub version: BrokerVersion,
    /// Its id; also the seed of its topic ids.
    pub cluster_id: String,
    /// Number of brokers; their ids count from 1.
    pub nodes: i32,
    /// Broker settings that differ from the defaults, for all brokers alike.
    pub broker_configs: BTreeMap<String, String>,
    /// The time of day at the first event, in milliseconds since 1970.
    pub wall_ms: i64,
    /// Bytes of all logs together; beyond them produce is answered with `KAFKA_STORAGE_ERROR`.
    pub log_bytes_max: usize,
}

impl ClusterSettings {
    /// One broker of the newest version.
    #[must_use]
    pub fn new(cluster_id: &str, wall_ms: i64) -> Self {
        Self {
            version: BrokerVersion::default(),
            cluster_id: cluster_id.to_owned(),
            nodes: 1,
            broker_configs: BTreeMap::new(),
            wall_ms,
            log_bytes_max: LOG_BYTES_MAX,
        }
    }

    /// Another version.
    #[must_use]
    pub fn with_version(mut self, version: BrokerVersion) -> Self {
        self.version = version;
        self
    }

    /// Another number of brokers.
    #[must_use]
    pub fn with_nodes(mut self, nodes: i32) -> Self {
        self.nodes = nodes.max(1);
        self
    }

    /// A broker setting.
    #[must_use]
    pub fn with_config(mut self, name: &str, value: &str) -> Self {
        self.broker_configs.insert(name.to_owned(), value.to_owned());
        self
    }
}

/// Enough for a demo, and far from exhausting a machine.
const LOG_BYTES_MAX: usize = 1 << 30;

/// How a value is typed in DescribeConfigs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConfigType {
    Boolean = 1,
    Text = 2,
    Int = 3,
    Long = 5,
    Double = 6,
    List = 7,
}

/// A setting the cluster knows.
#[derive(Debug)]
pub(super) struct ConfigKey {
    pub(super) name: &'static str,
    pub(super) kind: ConfigType,
    default: &'static str,
    /// For topics: the broker setting whose value is the default.
    synonym: Option<&'static str>,
    since: BrokerVersion,
    until: BrokerVersion,
}

const fn key(name: &'static str, kind: ConfigType, default: &'static str, synonym: Option<&'static str>) -> ConfigKey {
    ConfigKey { name, kind, default, synonym, since: BrokerVersion::V2_8_2, until: BrokerVersion::V4_3_1 }
}

const fn versions(key: ConfigKey, since: BrokerVersion, until: BrokerVersion) -> ConfigKey {
    ConfigKey { since, until, ..key }
}

const FOR_EVER: &str = "9223372036854775807";

/// Topic settings, in the order in which they are listed.
const TOPIC_KEYS: &[ConfigKey] = &[
    key("cleanup.policy", ConfigType::List, "delete", Some("log.cleanup.policy")),
    key("compression.type", ConfigType::Text, "producer", Some("compression.type")),
    key("delete.retention.ms", ConfigType::Long, "86400000", Some("log.cleaner.delete.retention.ms")),
    key("file.delete.delay.ms", ConfigType::Long, "60000", None),
    key("flush.messages", ConfigType::Long, FOR_EVER, None),
    key("flush.ms", ConfigType::Long, FOR_EVER, None),
    key("follower.replication.throttled.replicas", ConfigType::List, "", None),
    key("index.interval.bytes", ConfigType::Int, "4096", None),
    key("leader.replication.throttled.replicas", ConfigType::List, "", None),
    key("max.compaction.lag.ms", ConfigType::Long, FOR_EVER, None),
    key("max.message.bytes", ConfigType::Int, "1048588", Some("message.max.bytes")),
    versions(
        key("message.downconversion.enable", ConfigType::Boolean, "true", None),
        BrokerVersion::V2_8_2,
        BrokerVersion::V3_9_2,
    ),
    versions(
        key("message.format.version", ConfigType::Text, "2.8-IV1", None),
        BrokerVersion::V2_8_2,
        BrokerVersion::V2_8_2,
    ),
    versions(
        key("message.format.version", ConfigType::Text, "3.0-IV1", None),
        BrokerVersion::V3_9_2,
        BrokerVersion::V3_9_2,
    ),
    // One hour from 4.0 on (KIP-1030).
    versions(
        key("message.timestamp.after.max.ms", ConfigType::Long, "3600000", Some("log.message.timestamp.after.max.ms")),
        BrokerVersion::V4_3_1,
        BrokerVersion::V4_3_1,
    ),
    versions(
        key("message.timestamp.after.max.ms", ConfigType::Long, FOR_EVER, Some("log.message.timestamp.after.max.ms")),
        BrokerVersion::V3_9_2,
        BrokerVersion::V3_9_2,
    ),
    versions(
        key("message.timestamp.before.max.ms", ConfigType::Long, FOR_EVER, Some("log.message.timestamp.before.max.ms")),
        BrokerVersion::V3_9_2,
        BrokerVersion::V4_3_1,
    ),
    versions(
        key(
            "message.timestamp.difference.max.ms",
            ConfigType::Long,
            FOR_EVER,
            Some("log.message.timestamp.difference.max.ms"),
        ),
        BrokerVersion::V2_8_2,
        BrokerVersion::V3_9_2,
    ),
    key("message.timestamp.type", ConfigType::Text, "CreateTime", Some("log.message.timestamp.type")),
    key("min.cleanable.dirty.ratio", ConfigType::Double, "0.5", None),
    key("min.compaction.lag.ms", ConfigType::Long, "0", None),
    key("min.insync.replicas", ConfigType::Int, "1", Some("min.insync.replicas")),
    key("preallocate", ConfigType::Boolean, "false", None),
    key("retention.bytes", ConfigType::Long, "-1", Some("log.retention.bytes")),
    key("retention.ms", ConfigType::Long, "604800000", Some("log.retention.ms")),
    key("segment.bytes", ConfigType::Int, "1073741824", Some("log.segment.bytes")),
    key("segment.index.bytes", ConfigType::Int, "10485760", None),
    key("segment.jitter.ms", ConfigType::Long, "0", None),
    key("segment.ms", ConfigType::Long, "604800000", None),
    key("unclean.leader.election.enable", ConfigType::Boolean, "false", None),
];

/// Broker settings that somebody asks for or that have an effect here.
const BROKER_KEYS: &[ConfigKey] = &[
    key("auto.create.topics.enable", ConfigType::Boolean, "false", None),
    key("compression.type", ConfigType::Text, "producer", None),
    key("default.replication.factor", ConfigType::Int, "1", None),
    key("fetch.max.bytes", ConfigType::Int, "57671680", None),
    key("group.initial.rebalance.delay.ms", ConfigType::Int, "3000", None),
    key("group.max.session.timeout.ms", ConfigType::Int, "1800000", None),
    key("group.max.size", ConfigType::Int, "2147483647", None),
    key("group.min.session.timeout.ms", ConfigType::Int, "6000", None),
    key("log.cleaner.delete.retention.ms", ConfigType::Long, "86400000", None),
    key("log.cleanup.policy", ConfigType::List, "delete", None),
    versions(
        key("log.message.timestamp.after.max.ms", ConfigType::Long, "3600000", None),
        BrokerVersion::V4_3_1,
        BrokerVersion::V4_3_1,
    ),
    versions(
        key("log.message.timestamp.after.max.ms", ConfigType::Long, FOR_EVER, None),
        BrokerVersion::V3_9_2,
        BrokerVersion::V3_9_2,
    ),
    versions(
        key("log.message.timestamp.before.max.ms", ConfigType::Long, FOR_EVER, None),
        BrokerVersion::V3_9_2,
        BrokerVersion::V4_3_1,
    ),
    versions(
        key("log.message.timestamp.difference.max.ms", ConfigType::Long, FOR_EVER, None),
        BrokerVersion::V2_8_2,
        BrokerVersion::V3_9_2,
    ),
    key("log.message.timestamp.type", ConfigType::Text, "CreateTime", None),
    key("log.retention.bytes", ConfigType::Long, "-1", None),
    key("log.segment.bytes", ConfigType::Int, "1073741824", None),
    key("max.incremental.fetch.session.cache.slots", ConfigType::Int, "1000", None),
    key("message.max.bytes", ConfigType::Int, "1048588", None),
    key("min.insync.replicas", ConfigType::Int, "1", None),
    key("num.partitions", ConfigType::Int, "1", None),
    key("offset.metadata.max.bytes", ConfigType::Int, "4096", None),
    key("offsets.retention.check.interval.ms", ConfigType::Long, "600000", None),
    key("offsets.retention.minutes", ConfigType::Int, "10080", None),
    key("offsets.topic.num.partitions", ConfigType::Int, "50", None),
    versions(
        key("producer.id.expiration.check.interval.ms", ConfigType::Int, "600000", None),
        BrokerVersion::V3_9_2,
        BrokerVersion::V4_3_1,
    ),
    versions(
        key("producer.id.expiration.ms", ConfigType::Int, "86400000", None),
        BrokerVersion::V3_9_2,
        BrokerVersion::V4_3_1,
    ),
    key("transaction.max.timeout.ms", ConfigType::Int, "900000", None),
    versions(
        key("transaction.partition.verification.enable", ConfigType::Boolean, "true", None),
        BrokerVersion::V3_9_2,
        BrokerVersion::V4_3_1,
    ),
    key("transactional.id.expiration.ms", ConfigType::Int, "604800000", None),
];

fn known(keys: &'static [ConfigKey], version: BrokerVersion) -> impl Iterator<Item = &'static ConfigKey> {
    keys.iter().filter(move |key| (key.since..=key.until).contains(&version))
}

/// A setting with its value in force and where that comes from.
#[derive(Debug)]
pub(super) struct Effective {
    pub(super) key: &'static ConfigKey,
    pub(super) value: String,
    /// Kafka's number of the source: 1 topic, 3 all brokers, 4 a broker's file, 5 default.
    pub(super) source: i8,
}

/// The settings of all brokers.
#[derive(Debug, Clone)]
pub(super) struct BrokerConfigs {
    pub(super) version: BrokerVersion,
    /// From the start.
    file: BTreeMap<String, String>,
    /// Changed while running.
    pub(super) dynamic: BTreeMap<String, String>,
}

impl BrokerConfigs {
    pub(super) fn new(version: BrokerVersion, file: BTreeMap<String, String>) -> Self {
        Self { version, file, dynamic: BTreeMap::new() }
    }

    pub(super) fn is_known(&self, name: &str) -> bool {
        known(BROKER_KEYS, self.version).any(|key| key.name == name)
    }

    fn lookup(&self, name: &str) -> Option<(String, i8)> {
        let set = |map: &BTreeMap<String, String>, source| map.get(name).map(|value| (value.clone(), source));
        let default =
            || known(BROKER_KEYS, self.version).find(|key| key.name == name).map(|key| (key.default.to_owned(), 5));
        set(&self.dynamic, 3).or_else(|| set(&self.file, 4)).or_else(default)
    }

    pub(super) fn describe(&self) -> Vec<Effective> {
        let effective = |key: &'static ConfigKey| {
            let (value, source) = self.lookup(key.name)?;
            Some(Effective { key, value, source })
        };
        known(BROKER_KEYS, self.version).filter_map(effective).collect()
    }

    /// A number in force; `otherwise` for a setting this version lacks or that is no number.
    pub(super) fn number(&self, name: &str, otherwise: i64) -> i64 {
        self.lookup(name).and_then(|(value, _)| value.trim().parse().ok()).unwrap_or(otherwise)
    }

    pub(super) fn is_on(&self, name: &str) -> bool {
        self.lookup(name).is_some_and(|(value, _)| value == "true")
    }

    /// All settings of a topic.
    pub(super) fn describe_topic(&self, topic: &BTreeMap<String, String>) -> Vec<Effective> {
        known(TOPIC_KEYS, self.version).map(|key| self.topic_key(topic, key)).collect()
    }

    fn topic_key(&self, topic: &BTreeMap<String, String>, key: &'static ConfigKey) -> Effective {
        if let Some(value) = topic.get(key.name) {
            return Effective { key, value: value.clone(), source: 1 };
        }
        let inherited = key.synonym.and_then(|synonym| self.lookup(synonym)).filter(|(_, source)| *source != 5);
        let (value, source) = inherited.unwrap_or_else(|| (key.default.to_owned(), 5));
        Effective { key, value, source }
    }

    pub(super) fn is_topic_key(&self, name: &str) -> bool {
        known(TOPIC_KEYS, self.version).any(|key| key.name == name)
    }

    /// Why a topic cannot have this value.
    pub(super) fn fault_of_topic_value(&self, name: &str, value: &str) -> Option<String> {
        let Some(key) = known(TOPIC_KEYS, self.version).find(|key| key.name == name) else {
            return Some(format!("Unknown topic config name: {name}"));
        };
        let is_valid = match key.kind {
            ConfigType::Boolean => matches!(value, "true" | "false"),
            ConfigType::Int => value.trim().parse::<i32>().is_ok(),
            ConfigType::Long => value.trim().parse::<i64>().is_ok(),
            ConfigType::Double => value.trim().parse::<f64>().is_ok(),
            ConfigType::List if name == "cleanup.policy" => {
                value.split(',').all(|policy| matches!(policy.trim(), "compact" | "delete"))
            }
            ConfigType::Text if name == "compression.type" => value == "producer" || codec(value).is_some(),
            ConfigType::Text if name == "message.timestamp.type" => matches!(value, "CreateTime" | "LogAppendTime"),
            ConfigType::Text | ConfigType::List => true,
        };
        (!is_valid).then(|| format!("Invalid value {value} for configuration {name}"))
    }

    /// What an append to a topic obeys.
    pub(super) fn rules(&self, topic: &BTreeMap<String, String>) -> TopicRules {
        let value = |name: &str| {
            known(TOPIC_KEYS, self.version).find(|key| key.name == name).map(|key| self.topic_key(topic, key).value)
        };
        let number =
            |name: &str, otherwise: i64| value(name).and_then(|value| value.trim().parse().ok()).unwrap_or(otherwise);
        let difference = number("message.timestamp.difference.max.ms", i64::MAX);
        let policy = value("cleanup.policy").unwrap_or_default();
        let policies: Vec<&str> = policy.split(',').map(str::trim).collect();
        let format = value("message.format.version").filter(|_| self.version == BrokerVersion::V2_8_2);
        TopicRules {
            append: AppendRules {
                version: self.version,
                log_append_time: value("message.timestamp.type").as_deref() == Some("LogAppendTime"),
                message_bytes_max: usize::try_from(number("max.message.bytes", 0)).unwrap_or(0),
                segment_bytes: usize::try_from(number("segment.bytes", 0)).unwrap_or(0),
                compacted: policies.contains(&"compact"),
                timestamp_before_max_ms: number("message.timestamp.before.max.ms", i64::MAX).min(difference),
                compression: value("compression.type").as_deref().and_then(codec),
                timestamp_after_max_ms: number("message.timestamp.after.max.ms", i64::MAX).min(difference),
                old_format: format.as_deref().and_then(old_format),
            },
            deletes: policies.contains(&"delete"),
            min_insync_replicas: usize::try_from(number("min.insync.replicas", 1)).unwrap_or(1),
            delete_retention_ms: number("delete.retention.ms", 86_400_000),
        }
    }
}

/// What follows from a topic's settings.
#[derive(Debug, Clone, Copy)]
pub(super) struct TopicRules {
    pub(super) append: AppendRules,
    /// `cleanup.policy` contains `delete`.
    pub(super) deletes: bool,
    pub(super) min_insync_replicas: usize,
    pub(super) delete_retention_ms: i64,
}

fn codec(name: &str) -> Option<Codec> {
    Some(match name {
        "uncompressed" => Codec::None,
        "gzip" => Codec::Gzip,
        "snappy" => Codec::Snappy,
        "lz4" => Codec::Lz4,
        "zstd" => Codec::Zstd,
        _ => return None,
    })
}

/// The magic byte that a `message.format.version` below 0.11 stands for.
fn old_format(version: &str) -> Option<i8> {
    let mut parts = version.split(['.', '-']);
    let (major, minor) = (parts.next()?.parse::<i32>().ok()?, parts.next()?.parse::<i32>().ok()?);
    match (major, minor) {
        (0, ..=9) => Some(0),
        (0, 10) => Some(1),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_differ_by_version_and_inherit_from_the_broker() {
        let empty = BTreeMap::new();
        let after = |version| BrokerConfigs::new(version, BTreeMap::new()).rules(&empty).append.timestamp_after_max_ms;
        // broker-experiments S1.
        assert_eq!(after(BrokerVersion::V4_3_1), 3_600_000);
        assert_eq!(after(BrokerVersion::V3_9_2), i64::MAX);
        assert_eq!(after(BrokerVersion::V2_8_2), i64::MAX);
        let file = BTreeMap::from([("message.max.bytes".to_owned(), "2000".to_owned())]);
        let brokers = BrokerConfigs::new(BrokerVersion::V4_3_1, file);
        assert_eq!(brokers.rules(&empty).append.message_bytes_max, 2000);
        let topic = BTreeMap::from([("max.message.bytes".to_owned(), "3000".to_owned())]);
        assert_eq!(brokers.rules(&topic).append.message_bytes_max, 3000);
    }

    #[test]
    fn wrong_values_are_named() {
        let brokers = BrokerConfigs::new(BrokerVersion::V4_3_1, BTreeMap::new());
        assert!(brokers.fault_of_topic_value("cleanup.policy", "compact,delete").is_none());
        assert!(brokers.fault_of_topic_value("cleanup.policy", "compacted").is_some());
        assert!(brokers.fault_of_topic_value("no.such.key", "1").is_some());
        assert!(brokers.fault_of_topic_value("max.message.bytes", "many").is_some());
        assert_eq!((old_format("0.9.0"), old_format("0.10.2-IV0"), old_format("2.8-IV1")), (Some(0), Some(1), None));
    }
}
