//! Whether a flow copies one topic, and if not, why.

use std::fmt;

use super::{FilterVerdict, ReplicationPolicy, TopicFilter};

/// Names that are ours on every cluster. They are working state of one pair of clusters, so a copy would be wrong
/// even where a user's patterns ask for it.
const OWN_PREFIXES: [&str; 2] = ["__towpath", "towpath-runs."];

/// The answer of [`should_copy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyDecision {
    /// The flow copies this topic.
    Copy,
    /// It does not.
    Skip(SkipReason),
}

/// Why a topic is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SkipReason {
    /// Towpath's own working state.
    Own,
    /// The broker marks it internal, or its name does.
    Internal,
    /// Its records come from the target already.
    Cycle,
    /// No pattern of `topics` matches.
    NotIncluded,
    /// A pattern of `topics.exclude` matches.
    Excluded,
    /// A pattern gave up on this name; the pattern has to be made simpler.
    PatternTooCostly,
}

impl CopyDecision {
    /// Whether the topic is copied.
    pub fn is_copy(self) -> bool {
        self == Self::Copy
    }
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Own => "Towpath's own working topic",
            Self::Internal => "an internal topic",
            Self::Cycle => "its records come from the target",
            Self::NotIncluded => "not matched by topics",
            Self::Excluded => "matched by topics.exclude",
            Self::PatternTooCostly => {
                "a pattern of topics or topics.exclude took too many steps on this name; make it simpler"
            }
        })
    }
}

/// Whether a flow to `target_alias` copies `topic` (`shouldReplicateTopic` of MirrorMaker's source connector).
///
/// `is_internal` is the flag from the broker's metadata. `copy_heartbeats` (`heartbeats.replication.enabled`) lets
/// heartbeats topics through whatever the filter says.
pub fn should_copy(
    policy: &ReplicationPolicy,
    filter: &TopicFilter,
    copy_heartbeats: bool,
    target_alias: &str,
    topic: &str,
    is_internal: bool,
) -> CopyDecision {
    let skip = CopyDecision::Skip;
    if OWN_PREFIXES.iter().any(|prefix| topic.starts_with(prefix)) {
        return skip(SkipReason::Own);
    }
    if is_internal || policy.is_internal_topic(topic) {
        return skip(SkipReason::Internal);
    }
    if policy.is_cycle(target_alias, topic) {
        return skip(SkipReason::Cycle);
    }
    if copy_heartbeats && policy.is_heartbeats_topic(topic) {
        return CopyDecision::Copy;
    }
    match filter.judge(topic) {
        FilterVerdict::Included => CopyDecision::Copy,
        FilterVerdict::NotIncluded => skip(SkipReason::NotIncluded),
        FilterVerdict::Excluded => skip(SkipReason::Excluded),
        FilterVerdict::TooCostly => skip(SkipReason::PatternTooCostly),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topics::Separators;

    fn decide(filter: &TopicFilter, topic: &str) -> CopyDecision {
        let policy = ReplicationPolicy::Default { separators: Separators::default() };
        should_copy(&policy, filter, true, "B", topic, false)
    }

    #[test]
    fn every_refusal_has_its_reason() {
        let all = TopicFilter::new(&[".*"], &["no.*"]).unwrap();
        for (topic, reason) in [
            ("__towpath-lease", SkipReason::Own),
            ("towpath-runs.A.internal", SkipReason::Own),
            ("towpath-runs.A", SkipReason::Own),
            ("__consumer_offsets", SkipReason::Internal),
            ("mm2-offsets.A.internal", SkipReason::Internal),
            ("B.orders", SkipReason::Cycle),
            ("nothing", SkipReason::Excluded),
        ] {
            assert_eq!(decide(&all, topic), CopyDecision::Skip(reason), "{topic}");
        }
        let orders = TopicFilter::new(&["orders"], &[]).unwrap();
        assert!(decide(&orders, "orders").is_copy());
        assert_eq!(decide(&orders, "x"), CopyDecision::Skip(SkipReason::NotIncluded));
    }

    #[test]
    fn heartbeats_pass_the_filter_unless_switched_off() {
        let none = TopicFilter::new(&["orders"], &[".*"]).unwrap();
        assert!(decide(&none, "heartbeats").is_copy());
        assert!(decide(&none, "C.heartbeats").is_copy());
        assert_eq!(decide(&none, "B.heartbeats"), CopyDecision::Skip(SkipReason::Cycle));
        let policy = ReplicationPolicy::Default { separators: Separators::default() };
        assert!(!should_copy(&policy, &none, false, "B", "heartbeats", false).is_copy());
    }
}
