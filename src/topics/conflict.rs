//! Flows that must not copy a topic side by side: two writers on one remote topic, and records that come home.
//!
//! One producer identity per remote partition is what makes a copy exact, so both are refused by name. The check
//! looks at topics that *will* exist too: what one flow creates, another may pick up at its next refresh.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{ReplicationPolicy, TopicFilter, should_copy};

/// What has to be known of a flow to say where its copies go.
#[derive(Clone, Copy, Debug)]
pub struct FlowRules<'a> {
    /// Alias of the source.
    pub source: &'a str,
    /// Alias of the target.
    pub target: &'a str,
    /// Names the copies.
    pub policy: &'a ReplicationPolicy,
    /// Chooses the topics.
    pub filter: &'a TopicFilter,
    /// Whether heartbeats topics pass the filter in any case.
    pub copy_heartbeats: bool,
}

/// One topic on one flow's way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Copy {
    /// Alias of the source.
    pub source: String,
    /// Alias of the target.
    pub target: String,
    /// Name on the source.
    pub topic: String,
    /// Name on the target.
    pub remote_topic: String,
}

/// Which rule is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConflictKind {
    /// Several copies have the same name on the same target.
    TwoWriters,
    /// The copies lead back to a cluster the records were on before.
    Loop,
}

/// Copies that exclude each other; its `Display` names them and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// The rule.
    pub kind: ConflictKind,
    /// At least two copies: all writers of the topic, or the steps of the loop.
    pub copies: Vec<Copy>,
}

impl Conflict {
    /// Whether this flow may not copy this topic.
    pub fn refuses(&self, source: &str, target: &str, topic: &str) -> bool {
        self.copies.iter().any(|copy| copy.source == source && copy.target == target && copy.topic == topic)
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ways: Vec<String> = self.copies.iter().map(ToString::to_string).collect();
        match self.kind {
            ConflictKind::TwoWriters => {
                let (topic, target) = self.copies.first().map_or(("", ""), |copy| (&copy.remote_topic, &copy.target));
                write!(f, "topic {topic} on {target} would have {} writers ({})", ways.len(), ways.join(", "))?;
            }
            ConflictKind::Loop => write!(f, "records would come back to where they were ({})", ways.join(", "))?,
        }
        f.write_str(
            "; none of these copies is started. Give each flow its own topics (A->B.topics, A->B.topics.exclude), or use \
             replication.policy.class = org.apache.kafka.connect.mirror.DefaultReplicationPolicy",
        )
    }
}

impl fmt::Display for Copy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}->{} topic {}", self.source, self.target, self.topic)
    }
}

/// The conflicts among `flows`, given the topics that exist on each cluster (by alias, without internal ones).
///
/// The answer is sorted and holds each conflict once.
pub fn conflicts(flows: &[FlowRules<'_>], topics: &BTreeMap<String, BTreeSet<String>>) -> Vec<Conflict> {
    let mut found = BTreeSet::new();
    let mut writers: BTreeMap<(String, String), BTreeSet<Copy>> = BTreeMap::new();
    for (cluster, names) in topics {
        for name in names {
            follow(flows, cluster, name, &mut Vec::new(), &mut writers, &mut found);
        }
    }
    found.extend(
        writers
            .into_values()
            .filter(|copies| copies.len() > 1)
            .map(|copies| Conflict { kind: ConflictKind::TwoWriters, copies: copies.into_iter().collect() }),
    );
    found.into_iter().collect()
}

/// Follows one topic from cluster to cluster. Ends because a way never enters a cluster twice.
fn follow(
    flows: &[FlowRules<'_>],
    cluster: &str,
    topic: &str,
    way: &mut Vec<Copy>,
    writers: &mut BTreeMap<(String, String), BTreeSet<Copy>>,
    found: &mut BTreeSet<Conflict>,
) {
    for flow in flows.iter().filter(|flow| flow.source == cluster) {
        let decision = should_copy(flow.policy, flow.filter, flow.copy_heartbeats, flow.target, topic, false);
        if !decision.is_copy() {
            continue;
        }
        let copy = Copy {
            source: flow.source.to_owned(),
            target: flow.target.to_owned(),
            topic: topic.to_owned(),
            remote_topic: flow.policy.remote_topic(flow.source, topic),
        };
        let (remote_topic, been_there) =
            (copy.remote_topic.clone(), way.iter().position(|step| step.source == flow.target));
        way.push(copy.clone());
        if let Some(start) = been_there {
            let mut copies = way.split_at(start).1.to_vec();
            // The same loop is found from each of its clusters; sorted it is the same value.
            copies.sort();
            found.insert(Conflict { kind: ConflictKind::Loop, copies });
        } else {
            let place = (flow.target.to_owned(), remote_topic.clone());
            writers.entry(place).or_default().insert(copy);
            follow(flows, flow.target, &remote_topic, way, writers, found);
        }
        way.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topics::Separators;

    fn default_policy() -> ReplicationPolicy {
        ReplicationPolicy::Default { separators: Separators::default() }
    }

    fn identity(alias: &str) -> ReplicationPolicy {
        ReplicationPolicy::Identity { separators: Separators::default(), source_alias: alias.to_owned() }
    }

    fn existing(topics: &[(&str, &[&str])]) -> BTreeMap<String, BTreeSet<String>> {
        topics
            .iter()
            .map(|(cluster, names)| {
                let names = names.iter().map(|name| (*name).to_owned()).collect();
                ((*cluster).to_owned(), names)
            })
            .collect()
    }

    fn check(flows: &[(&str, &str, &ReplicationPolicy, &TopicFilter)], topics: &[(&str, &[&str])]) -> Vec<Conflict> {
        let flows: Vec<FlowRules<'_>> = flows
            .iter()
            .map(|(source, target, policy, filter)| FlowRules { source, target, policy, filter, copy_heartbeats: true })
            .collect();
        conflicts(&flows, &existing(topics))
    }

    #[test]
    fn two_flows_that_merge_into_one_topic_are_refused() {
        let (a, b, all) = (identity("A"), identity("B"), TopicFilter::default());
        let found = check(&[("A", "C", &a, &all), ("B", "C", &b, &all)], &[("A", &["t", "only-a"]), ("B", &["t"])]);
        let [conflict] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(conflict.kind, ConflictKind::TwoWriters);
        assert!(conflict.refuses("A", "C", "t") && conflict.refuses("B", "C", "t"));
        assert!(!conflict.refuses("A", "C", "only-a"));
        let text = conflict.to_string();
        assert!(text.starts_with("topic t on C would have 2 writers (A->C topic t, B->C topic t)"), "{text}");
        assert!(text.contains("DefaultReplicationPolicy"), "{text}");
    }

    #[test]
    fn two_way_identity_is_refused_before_the_copy_exists() {
        let (a, b, all) = (identity("A"), identity("B"), TopicFilter::default());
        let found = check(&[("A", "B", &a, &all), ("B", "A", &b, &all)], &[("A", &["t", "heartbeats"])]);
        let [conflict] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(conflict.kind, ConflictKind::Loop);
        assert!(conflict.refuses("A", "B", "t") && conflict.refuses("B", "A", "t"));
        let both = check(&[("A", "B", &a, &all), ("B", "A", &b, &all)], &[("A", &["t"]), ("B", &["t"])]);
        assert_eq!(both, found);
    }

    #[test]
    fn two_way_identity_with_separate_topics_is_fine() {
        let (a, b) = (identity("A"), identity("B"));
        let (ours, theirs) = (TopicFilter::new(&["east.*"], &[]).unwrap(), TopicFilter::new(&["west.*"], &[]).unwrap());
        let found = check(
            &[("A", "B", &a, &ours), ("B", "A", &b, &theirs)],
            &[("A", &["east-t", "west-t"]), ("B", &["west-t", "east-t"])],
        );
        assert_eq!(found, []);
    }

    #[test]
    fn the_default_policy_never_conflicts_in_a_ring() {
        let (policy, all) = (default_policy(), TopicFilter::default());
        let ring = [
            ("A", "B", &policy, &all),
            ("B", "C", &policy, &all),
            ("C", "A", &policy, &all),
            ("B", "A", &policy, &all),
        ];
        assert_eq!(check(&ring, &[("A", &["t"]), ("B", &["t", "A.t"]), ("C", &["t"])]), []);
    }

    #[test]
    fn two_ways_to_one_target_are_two_writers() {
        let (a, b, all) = (identity("A"), identity("B"), TopicFilter::default());
        let found = check(&[("A", "B", &a, &all), ("B", "C", &b, &all), ("A", "C", &a, &all)], &[("A", &["t"])]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].refuses("B", "C", "t") && found[0].refuses("A", "C", "t"));
    }

    #[test]
    fn mixed_policies_that_grow_names_for_ever_are_a_loop() {
        let (a, b, all) = (default_policy(), identity("B"), TopicFilter::default());
        let found = check(&[("A", "B", &a, &all), ("B", "A", &b, &all)], &[("A", &["t"])]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].refuses("A", "B", "t") && found[0].refuses("B", "A", "A.t"));
    }
}
