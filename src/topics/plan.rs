//! Which topics have to be created or grown on the target so that every copied partition has a place.
//!
//! Plan, then apply: planning again after the changes were applied yields nothing.

use std::collections::BTreeMap;
use std::fmt;

use super::ReplicationPolicy;

/// A topic of the source that the flow copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceTopic {
    /// Its name on the source.
    pub name: String,
    /// Its number of partitions there; at least 1.
    pub partitions: i32,
    /// The *effective* `max.message.bytes` (topic, broker or default), in bytes; `None` where it may not be read.
    pub max_message_bytes: Option<i32>,
    /// The effective `message.timestamp.after.max.ms`; `None` where the source has no such setting (before 3.6) or
    /// it may not be read.
    pub timestamp_after_max_ms: Option<i64>,
    /// Further topic settings to carry over, already filtered by the caller.
    pub other_configs: BTreeMap<String, String>,
}

/// What a flow's settings say about new topics.
#[derive(Clone, Debug)]
pub struct PlanRules<'a> {
    /// Names the remote topics.
    pub policy: &'a ReplicationPolicy,
    /// The flow's source.
    pub source_alias: &'a str,
    /// `replication.factor`; -1 leaves it to the target's brokers.
    pub replication_factor: i16,
    /// Whether the target's brokers know `message.timestamp.after.max.ms` (Kafka 3.6, KIP-937); an older broker
    /// refuses the whole creation for an unknown setting.
    pub target_knows_timestamp_limits: bool,
}

/// One thing to do on the target; its `Display` is the line that `--dry-run` prints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopicChange {
    /// The remote topic is missing.
    Create {
        /// The remote topic.
        topic: String,
        /// As many as the source has.
        partitions: i32,
        /// -1: the broker's default.
        replication_factor: i16,
        /// Topic settings to create it with.
        configs: BTreeMap<String, String>,
    },
    /// The remote topic has fewer partitions than the source.
    Grow {
        /// The remote topic.
        topic: String,
        /// Partitions now.
        from: i32,
        /// Partitions wanted.
        to: i32,
    },
}

impl TopicChange {
    /// The remote topic this change is about.
    pub fn topic(&self) -> &str {
        match self {
            Self::Create { topic, .. } | Self::Grow { topic, .. } => topic,
        }
    }
}

impl fmt::Display for TopicChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create { topic, partitions, replication_factor, configs } => {
                write!(f, "create topic {topic} partitions={partitions} ")?;
                match replication_factor {
                    -1 => write!(f, "replication.factor=broker default")?,
                    factor => write!(f, "replication.factor={factor}")?,
                }
                configs.iter().try_for_each(|(key, value)| write!(f, " {key}={value}"))
            }
            Self::Grow { topic, from, to } => {
                write!(f, "grow topic {topic} from {from} to {to} partitions")
            }
        }
    }
}

/// The changes that give every partition of `source` a partition on the target, in the order of remote names.
///
/// `target` maps the names of the target's topics to their partition counts. A target with more partitions than the
/// source is left as it is: partitions cannot be taken away.
pub fn plan_topics(rules: &PlanRules<'_>, source: &[SourceTopic], target: &BTreeMap<String, i32>) -> Vec<TopicChange> {
    let wanted: BTreeMap<String, &SourceTopic> =
        source.iter().map(|topic| (rules.policy.remote_topic(rules.source_alias, &topic.name), topic)).collect();
    wanted
        .into_iter()
        .filter_map(|(topic, wanted)| match target.get(&topic) {
            None => Some(TopicChange::Create {
                configs: creation_configs(rules, wanted),
                partitions: wanted.partitions,
                replication_factor: rules.replication_factor,
                topic,
            }),
            Some(&from) if from < wanted.partitions => Some(TopicChange::Grow { topic, from, to: wanted.partitions }),
            Some(_) => None,
        })
        .collect()
}

/// A batch the source took must fit on the target, and a record dated in the future must not be refused there, so
/// these two are always given. Without a value from the source the timestamp limit is lifted: its default of one
/// hour (Kafka 3.6 and later) would refuse what an older source has accepted.
fn creation_configs(rules: &PlanRules<'_>, source: &SourceTopic) -> BTreeMap<String, String> {
    let mut configs = source.other_configs.clone();
    if let Some(bytes) = source.max_message_bytes {
        configs.insert("max.message.bytes".to_owned(), bytes.to_string());
    }
    if rules.target_knows_timestamp_limits {
        let limit = source.timestamp_after_max_ms.unwrap_or(i64::MAX);
        configs.insert("message.timestamp.after.max.ms".to_owned(), limit.to_string());
    }
    configs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topics::Separators;

    fn topic(name: &str, partitions: i32) -> SourceTopic {
        SourceTopic {
            name: name.to_owned(),
            partitions,
            max_message_bytes: Some(2_000_000),
            timestamp_after_max_ms: None,
            other_configs: BTreeMap::new(),
        }
    }

    fn lines(changes: &[TopicChange]) -> Vec<String> {
        changes.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn missing_topics_are_created_and_small_ones_grown() {
        let policy = ReplicationPolicy::Default { separators: Separators::default() };
        let mut rules = PlanRules {
            policy: &policy,
            source_alias: "A",
            replication_factor: 2,
            target_knows_timestamp_limits: true,
        };
        let source = [topic("new", 8), topic("grown", 6), topic("same", 3), topic("fewer", 1)];
        let target = BTreeMap::from([
            ("A.grown".to_owned(), 4),
            ("A.same".to_owned(), 3),
            ("A.fewer".to_owned(), 2),
            ("new".to_owned(), 1),
        ]);
        assert_eq!(
            lines(&plan_topics(&rules, &source, &target)),
            [
                "grow topic A.grown from 4 to 6 partitions",
                "create topic A.new partitions=8 replication.factor=2 max.message.bytes=2000000 \
                 message.timestamp.after.max.ms=9223372036854775807",
            ]
        );
        rules.replication_factor = -1;
        rules.target_knows_timestamp_limits = false;
        assert_eq!(
            lines(&plan_topics(&rules, &source[..1], &target)),
            ["create topic A.new partitions=8 replication.factor=broker default max.message.bytes=2000000"]
        );
    }

    #[test]
    fn planning_again_after_applying_yields_nothing() {
        let policy = ReplicationPolicy::Identity { separators: Separators::default(), source_alias: "A".to_owned() };
        let rules = PlanRules {
            policy: &policy,
            source_alias: "A",
            replication_factor: 3,
            target_knows_timestamp_limits: true,
        };
        let source = [topic("a", 2), topic("b", 5), topic("heartbeats", 1)];
        let mut target = BTreeMap::from([("b".to_owned(), 1)]);
        for change in plan_topics(&rules, &source, &target) {
            match change {
                TopicChange::Create { topic, partitions, .. } => assert_eq!(target.insert(topic, partitions), None),
                TopicChange::Grow { topic, from, to } => {
                    assert_eq!(target.insert(topic, to), Some(from));
                }
            }
        }
        assert_eq!(target.keys().collect::<Vec<_>>(), ["A.heartbeats", "a", "b"]);
        assert_eq!(plan_topics(&rules, &source, &target), []);
    }
}
