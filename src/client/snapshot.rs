//! What is known of a cluster at one moment: brokers, topics, leaders. Immutable; shared by reference count.

use std::{collections::BTreeMap, sync::Arc};

use crate::protocol::{
    BrokerId, ErrorCode, LeaderEpoch, MetadataResponse, PartitionId, TopicId, TopicName, TopicPartition,
};

/// Where a broker listens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// Its id.
    pub id: BrokerId,
    /// Advertised host.
    pub host: Arc<str>,
    /// Advertised port.
    pub port: u16,
}

/// Who leads a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionLeader {
    /// `None` while there is no leader.
    pub leader: Option<BrokerId>,
    /// The leader's epoch; `NONE` from brokers that do not say.
    pub epoch: LeaderEpoch,
}

/// One topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicInfo {
    /// Zero from brokers before 2.8.
    pub id: TopicId,
    /// Kafka's own internal topics.
    pub internal: bool,
    /// Indexed by partition number.
    pub partitions: Vec<PartitionLeader>,
}

/// A cluster as last seen.
#[derive(Debug, Clone, Default)]
pub struct ClusterSnapshot {
    /// As the brokers report it; `None` from very old ones.
    pub cluster_id: Option<String>,
    /// Where admin requests go.
    pub controller: Option<BrokerId>,
    /// All live brokers.
    pub brokers: BTreeMap<BrokerId, Endpoint>,
    /// Every topic seen. A topic that was not asked for keeps its last state.
    pub topics: BTreeMap<TopicName, Arc<TopicInfo>>,
    /// Topics that the last answer named with an error other than "unknown".
    pub refused: BTreeMap<TopicName, ErrorCode>,
}

impl ClusterSnapshot {
    /// The leader of a partition, if the topic is known.
    #[must_use]
    pub fn leader(&self, partition: &TopicPartition) -> Option<PartitionLeader> {
        let index = usize::try_from(partition.partition.0).ok()?;
        self.topics.get(&partition.topic)?.partitions.get(index).copied()
    }

    /// The id of a topic; zero where there is none, `None` if the topic is unknown.
    #[must_use]
    pub fn topic_id(&self, topic: &TopicName) -> Option<TopicId> {
        self.topics.get(topic).map(|info| info.id)
    }

    /// Where a broker listens.
    #[must_use]
    pub fn endpoint(&self, broker: BrokerId) -> Option<&Endpoint> {
        self.brokers.get(&broker)
    }

    /// This snapshot brought up to date by an answer. With `complete`, topics that the answer lacks are gone;
    /// otherwise only topics it names as unknown are.
    ///
    /// A leader with an older epoch than the known one of the same topic id (not zero) is not believed: answers of brokers that
    /// lag behind would send requests to the former leader (`batch-forwarding.md` 5.3).
    #[must_use]
    pub fn updated(&self, answer: MetadataResponse, complete: bool) -> Self {
        if answer.brokers.is_empty() {
            // A broker that is just starting knows nothing: not that topics are gone either.
            return self.clone();
        }
        let mut topics = if complete { BTreeMap::new() } else { self.topics.clone() };
        let mut refused = BTreeMap::new();
        for topic in answer.topics {
            let Some(name) = topic.name else { continue };
            if topic.error_code == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION {
                topics.remove(&name);
                continue;
            }
            if !topic.error_code.is_none() && topic.partitions.is_empty() {
                refused.insert(name.clone(), topic.error_code);
                // A leader election in progress says nothing about the topic's existence.
                if let Some(known) = self.topics.get(&name) {
                    topics.insert(name, known.clone());
                }
                continue;
            }
            let known = self.topics.get(&name).filter(|known| known.id == topic.id);
            let mut partitions = Vec::new();
            for partition in &topic.partitions {
                // Partition numbers are dense; anything else is a lie that must not size a vector.
                let Ok(index) = usize::try_from(partition.partition.0) else {
                    continue;
                };
                if index >= topic.partitions.len() {
                    continue;
                }
                if partitions.len() <= index {
                    partitions.resize(index + 1, PartitionLeader { leader: None, epoch: LeaderEpoch::NONE });
                }
                let seen = PartitionLeader { leader: partition.leader, epoch: partition.leader_epoch };
                let believed = known
                    .and_then(|known| known.partitions.get(index))
                    // Without an id the topic may be another one, whose epochs begin anew.
                    .filter(|known| !topic.id.is_zero() && seen.epoch != LeaderEpoch::NONE && known.epoch > seen.epoch)
                    .copied()
                    .unwrap_or(seen);
                if let Some(slot) = partitions.get_mut(index) {
                    *slot = believed;
                }
            }
            let info = TopicInfo { id: topic.id, internal: topic.is_internal, partitions };
            let info = match self.topics.get(&name) {
                Some(known) if **known == info => known.clone(),
                _ => Arc::new(info),
            };
            topics.insert(name, info);
        }
        let brokers: BTreeMap<_, _> = answer
            .brokers
            .into_iter()
            .filter_map(|broker| {
                let port = u16::try_from(broker.port).ok()?;
                Some((broker.id, Endpoint { id: broker.id, host: broker.host.into(), port }))
            })
            .collect();
        Self {
            cluster_id: answer.cluster_id.or_else(|| self.cluster_id.clone()),
            controller: answer.controller_id,
            brokers,
            topics,
            refused,
        }
    }

    /// Whether an answer is one of another cluster.
    pub(super) fn is_another(&self, answer: &MetadataResponse) -> bool {
        matches!((&self.cluster_id, &answer.cluster_id), (Some(known), Some(found)) if known != found)
    }

    /// All partitions of a topic.
    pub fn partitions_of(&self, topic: &TopicName) -> impl Iterator<Item = TopicPartition> + use<> {
        let count = self.topics.get(topic).map_or(0, |info| info.partitions.len());
        let topic = topic.clone();
        (0..i32::try_from(count).unwrap_or(i32::MAX))
            .map(move |partition| TopicPartition { topic: topic.clone(), partition: PartitionId(partition) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{BrokerEndpoint, PartitionMetadata, TopicMetadata};

    fn answer(brokers: &[i32], topic: ErrorCode) -> MetadataResponse {
        let broker = |id: &i32| BrokerEndpoint { id: BrokerId(*id), host: "broker".into(), port: 9092, rack: None };
        let partition = PartitionMetadata {
            error_code: ErrorCode::NONE,
            partition: PartitionId(0),
            leader: Some(BrokerId(1)),
            leader_epoch: LeaderEpoch(0),
            replicas: Vec::new(),
            isr: Vec::new(),
            offline: Vec::new(),
        };
        MetadataResponse {
            throttle_time_ms: 0,
            brokers: brokers.iter().map(broker).collect(),
            cluster_id: Some("cluster".into()),
            controller_id: None,
            topics: vec![TopicMetadata {
                error_code: topic,
                name: Some(TopicName::new("orders")),
                id: TopicId::ZERO,
                is_internal: false,
                partitions: if topic.is_none() { vec![partition] } else { Vec::new() },
            }],
            error_code: ErrorCode::NONE,
        }
    }

    #[test]
    fn a_broker_that_knows_no_brokers_makes_no_topic_vanish() {
        let known = ClusterSnapshot::default().updated(answer(&[1], ErrorCode::NONE), true);
        let orders = TopicName::new("orders");
        for complete in [true, false] {
            let starting = known.updated(answer(&[], ErrorCode::UNKNOWN_TOPIC_OR_PARTITION), complete);
            assert!(starting.topics.contains_key(&orders));
            assert!(starting.endpoint(BrokerId(1)).is_some());
            let gone = known.updated(answer(&[1], ErrorCode::UNKNOWN_TOPIC_OR_PARTITION), complete);
            assert!(!gone.topics.contains_key(&orders));
        }
    }

    #[test]
    fn an_answer_of_another_cluster_is_told_from_one_of_ours() {
        let known = ClusterSnapshot::default().updated(answer(&[1], ErrorCode::NONE), true);
        assert!(!known.is_another(&answer(&[1], ErrorCode::NONE)));
        let with =
            |id: Option<&str>| MetadataResponse { cluster_id: id.map(str::to_owned), ..answer(&[1], ErrorCode::NONE) };
        assert!(known.is_another(&with(Some("other"))));
        assert!(!known.is_another(&with(None)), "old brokers have none");
        assert!(!ClusterSnapshot::default().is_another(&with(Some("other"))), "the first one");
    }
}
