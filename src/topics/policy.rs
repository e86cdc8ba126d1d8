//! What a copied topic is called on the target: MirrorMaker 2's two replication policies.
//!
//! The rules are those of `DefaultReplicationPolicy` and `IdentityReplicationPolicy` in Apache Kafka 3.5 to 4.x,
//! including their quirks, because topic names are what other programs depend on.

/// The name of the topic MirrorMaker writes its heartbeats to; no separator setting changes it.
const HEARTBEATS: &str = "heartbeats";

/// The class names users write for the policy that prefixes the source alias.
const DEFAULT_CLASSES: [&str; 2] =
    ["org.apache.kafka.connect.mirror.DefaultReplicationPolicy", "DefaultReplicationPolicy"];

/// The class names users write for the policy that keeps names; the second is Strimzi's older one.
const IDENTITY_CLASSES: [&str; 3] = [
    "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
    "io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy",
    "IdentityReplicationPolicy",
];

/// How remote topics are named, and how the origin of a topic is read back from its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicationPolicy {
    /// `source alias + separator + topic`.
    Default {
        /// What stands between alias and topic.
        separators: Separators,
    },
    /// The topic keeps its name, except that names ending in `heartbeats` follow the default rule.
    Identity {
        /// What stands between alias and topic where the default rule applies.
        separators: Separators,
        /// The flow's source: the answer of [`ReplicationPolicy::topic_source`] for every ordinary topic.
        source_alias: String,
    },
}

/// The two separators of MirrorMaker's names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Separators {
    /// `replication.policy.separator`; never empty.
    pub topic: String,
    /// The separator inside `checkpoints` and `offset-syncs` names: the same one, or `.` where
    /// `replication.policy.internal.topic.separator.enabled` is false (KIP-949). Never empty.
    pub internal: String,
}

/// `replication.policy.class` names a class that this program does not contain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "replication policy class {class:?} is not built in, and Java classes cannot be loaded; use {} or {}",
    DEFAULT_CLASSES[0],
    IDENTITY_CLASSES[0]
)]
pub struct UnknownPolicy {
    /// The class as it was written.
    pub class: String,
}

impl Separators {
    /// The same separator for topics and for MirrorMaker's internal topics.
    pub fn same(separator: &str) -> Self {
        Self { topic: separator.to_owned(), internal: separator.to_owned() }
    }
}

impl Default for Separators {
    /// MirrorMaker's default for both: a dot.
    fn default() -> Self {
        Self::same(".")
    }
}

impl ReplicationPolicy {
    /// The policy for a Java class name, for a flow that reads from `source_alias`.
    ///
    /// # Errors
    /// [`UnknownPolicy`] for every class but Kafka's two and Strimzi's identity policy.
    pub fn from_class(class: &str, separators: Separators, source_alias: &str) -> Result<Self, UnknownPolicy> {
        if DEFAULT_CLASSES.contains(&class) {
            Ok(Self::Default { separators })
        } else if IDENTITY_CLASSES.contains(&class) {
            Ok(Self::Identity { separators, source_alias: source_alias.to_owned() })
        } else {
            Err(UnknownPolicy { class: class.to_owned() })
        }
    }

    /// The full Java class name, as it is printed and written back to files.
    pub fn class_name(&self) -> &'static str {
        match self {
            Self::Default { .. } => DEFAULT_CLASSES[0],
            Self::Identity { .. } => IDENTITY_CLASSES[0],
        }
    }

    /// The separators in use.
    pub fn separators(&self) -> &Separators {
        match self {
            Self::Default { separators } | Self::Identity { separators, .. } => separators,
        }
    }

    /// What `topic` of cluster `source_alias` is called on the target (`formatRemoteTopic`).
    pub fn remote_topic(&self, source_alias: &str, topic: &str) -> String {
        if self.keeps_name(topic) {
            topic.to_owned()
        } else {
            format!("{source_alias}{}{topic}", self.separators().topic)
        }
    }

    /// The alias of the cluster a topic was copied from, as far as its name tells (`topicSource`).
    ///
    /// A local topic that happens to contain the separator looks remote (`my.topic` seems to come from `my`), as in
    /// MirrorMaker.
    pub fn topic_source<'a>(&'a self, topic: &'a str) -> Option<&'a str> {
        match self {
            Self::Identity { source_alias, .. } if self.keeps_name(topic) => Some(source_alias),
            _ => self.split(topic).map(|(source, _)| source),
        }
    }

    /// The name of the topic on the cluster it was copied from (`upstreamTopic`); the topic itself under Identity.
    pub fn upstream_topic<'a>(&self, topic: &'a str) -> Option<&'a str> {
        if self.keeps_name(topic) {
            return Some(topic);
        }
        self.split(topic).map(|(_, upstream)| upstream)
    }

    /// The name of the topic where its records were first written (`originalTopic`).
    pub fn original_topic<'a>(&self, topic: &'a str) -> &'a str {
        let mut name = topic;
        while let Some(upstream) = self.upstream_topic(name) {
            if upstream == name {
                break;
            }
            name = upstream;
        }
        name
    }

    /// Whether this is a heartbeats topic, local or copied (`isHeartbeatsTopic`).
    pub fn is_heartbeats_topic(&self, topic: &str) -> bool {
        self.original_topic(topic) == HEARTBEATS
    }

    /// Whether this is a checkpoints topic of any flow (`isCheckpointsTopic`).
    pub fn is_checkpoints_topic(&self, topic: &str) -> bool {
        let separator = &self.separators().internal;
        topic.ends_with(&format!("{separator}checkpoints{separator}internal"))
    }

    /// Whether the topic belongs to Kafka, Connect or MirrorMaker itself and is never copied (`isInternalTopic`).
    pub fn is_internal_topic(&self, topic: &str) -> bool {
        topic.ends_with(&format!("{}internal", self.separators().internal))
            || topic.starts_with("__")
            || topic.starts_with('.')
            || topic.ends_with("-internal")
            || topic.ends_with(".internal")
    }

    /// Whether copying `topic` to `target_alias` would bring records back to a cluster they came from.
    ///
    /// Identity cannot see this from a name, except for heartbeats; [`crate::topics::conflicts`] refuses such flows.
    pub fn is_cycle(&self, target_alias: &str, topic: &str) -> bool {
        let mut name = topic;
        while let Some(source) = self.topic_source(name) {
            if source == target_alias {
                return true;
            }
            match self.upstream_topic(name) {
                Some(upstream) if upstream != name => name = upstream,
                _ => return false,
            }
        }
        false
    }

    /// Identity leaves the name alone, except for names that look like heartbeats. A plain suffix test in Java too:
    /// a user's `my-heartbeats` is renamed.
    fn keeps_name(&self, topic: &str) -> bool {
        matches!(self, Self::Identity { .. }) && !topic.ends_with(HEARTBEATS)
    }

    /// Splits at the first separator. Java's `split` drops trailing empty parts, so `a.` and `..` have no source,
    /// while `.t` comes from the cluster with the empty name.
    fn split<'a>(&self, topic: &'a str) -> Option<(&'a str, &'a str)> {
        let separator = self.separators().topic.as_str();
        let (source, upstream) = topic.split_once(separator)?;
        upstream.split(separator).any(|part| !part.is_empty()).then_some((source, upstream))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn default_policy() -> ReplicationPolicy {
        ReplicationPolicy::Default { separators: Separators::default() }
    }

    fn identity() -> ReplicationPolicy {
        ReplicationPolicy::Identity { separators: Separators::default(), source_alias: "A".to_owned() }
    }

    // The expected values of these tables are the examples of `mirrormaker2.md` section 4, taken there from Kafka's
    // own tests.

    #[test]
    fn default_names_carry_the_alias() {
        let policy = default_policy();
        assert_eq!(policy.remote_topic("us-west", "orders"), "us-west.orders");
        for (topic, source, upstream, original) in [
            ("orders", None, None, "orders"),
            ("a.orders", Some("a"), Some("orders"), "orders"),
            ("c.b.orders", Some("c"), Some("b.orders"), "orders"),
            ("a.", None, None, "a."),
            (".t", Some(""), Some("t"), "t"),
            ("..", None, None, ".."),
            ("my.topic", Some("my"), Some("topic"), "topic"),
        ] {
            assert_eq!(policy.topic_source(topic), source, "{topic}");
            assert_eq!(policy.upstream_topic(topic), upstream, "{topic}");
            assert_eq!(policy.original_topic(topic), original, "{topic}");
        }
    }

    #[test]
    fn identity_keeps_names_except_heartbeats() {
        let policy = identity();
        assert_eq!(policy.remote_topic("A", "orders"), "orders");
        assert_eq!(policy.remote_topic("A", "heartbeats"), "A.heartbeats");
        assert_eq!(policy.remote_topic("A", "my-heartbeats"), "A.my-heartbeats");
        assert_eq!(policy.topic_source("orders"), Some("A"));
        assert_eq!(policy.topic_source("B.heartbeats"), Some("B"));
        assert_eq!(policy.topic_source("heartbeats"), None);
        assert_eq!(policy.upstream_topic("x.orders"), Some("x.orders"));
        assert_eq!(policy.original_topic("C.B.heartbeats"), "heartbeats");
    }

    #[test]
    fn heartbeats_and_checkpoints_are_recognised() {
        let policy = default_policy();
        assert!(policy.is_heartbeats_topic("heartbeats"));
        assert!(policy.is_heartbeats_topic("us-west.heartbeats"));
        assert!(!policy.is_heartbeats_topic("source1-heartbeats"));
        assert!(!policy.is_heartbeats_topic("heartbeats!"));
        assert!(!policy.is_checkpoints_topic("checkpoints.internal"));
        assert!(policy.is_checkpoints_topic("s2.s1.checkpoints.internal"));
        let underscore = ReplicationPolicy::Default { separators: Separators::same("_") };
        assert!(!underscore.is_heartbeats_topic("us-west.heartbeats"));
        assert!(underscore.is_heartbeats_topic("us-west_heartbeats"));
        assert!(underscore.is_internal_topic("mm2-offset-syncs_B_internal"));
    }

    #[test]
    fn internal_topics_are_recognised() {
        for policy in [default_policy(), identity()] {
            for topic in ["__consumer_offsets", ".hidden", "mm2-offsets.A.internal", "x-internal", "x.internal"] {
                assert!(policy.is_internal_topic(topic), "{topic}");
            }
            for topic in ["orders", "_schemas", "internal", "internal.orders"] {
                assert!(!policy.is_internal_topic(topic), "{topic}");
            }
        }
    }

    #[test]
    fn cycles_are_seen_through_several_hops() {
        let policy = default_policy();
        for (topic, cycle) in
            [("B.x", true), ("C.B.x", true), ("B.A.x", true), ("A.x", false), ("C.x", false), ("x", false)]
        {
            assert_eq!(policy.is_cycle("B", topic), cycle, "{topic}");
        }
        assert!(!identity().is_cycle("B", "B.x"));
        assert!(identity().is_cycle("B", "B.heartbeats"));
    }

    #[test]
    fn a_class_of_ones_own_is_refused_with_the_remedy() {
        let text = ReplicationPolicy::from_class("com.acme.Names", Separators::default(), "A").unwrap_err().to_string();
        assert!(text.contains("com.acme.Names") && text.contains("IdentityReplicationPolicy"), "{text}");
        let strimzi = "io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy";
        assert_eq!(ReplicationPolicy::from_class(strimzi, Separators::default(), "A"), Ok(identity()));
    }
}
