//! Topics, partitions, and who leads them.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::protocol::ErrorCode;
use crate::testkit::TopicLookup;
use crate::testkit::log::Log;

/// One partition. Its log is shared by all of its replicas: followers are always up to date.
#[derive(Debug)]
pub(super) struct Partition {
    pub(super) log: Log,
    pub(super) replicas: Vec<i32>,
    pub(super) leader: Option<i32>,
    pub(super) leader_epoch: i32,
    /// Where a test holds the high watermark.
    pub(super) held_at: Option<i64>,
}

impl Partition {
    fn new(replicas: Vec<i32>, live: &BTreeSet<i32>) -> Self {
        let leader = replicas.iter().copied().find(|node| live.contains(node));
        let mut log = Log::default();
        log.begin_epoch(0);
        Self { log, replicas, leader, leader_epoch: 0, held_at: None }
    }

    pub(super) fn high_watermark(&self) -> i64 {
        let end = self.log.end_offset();
        self.held_at.map_or(end, |held| held.min(end))
    }

    pub(super) fn last_stable_offset(&self) -> i64 {
        self.log.last_stable_offset(self.high_watermark())
    }

    /// Another leader, or the same one anew.
    pub(super) fn lead(&mut self, leader: Option<i32>) {
        self.leader = leader;
        self.leader_epoch = self.leader_epoch.saturating_add(1);
        if leader.is_some() {
            self.log.begin_epoch(self.leader_epoch);
        }
    }

    pub(super) fn in_sync(&self, live: &BTreeSet<i32>) -> Vec<i32> {
        self.replicas.iter().copied().filter(|node| live.contains(node)).collect()
    }
}

/// One topic.
#[derive(Debug)]
pub(super) struct Topic {
    pub(super) id: Uuid,
    pub(super) partitions: Vec<Partition>,
    /// Settings of its own.
    pub(super) configs: BTreeMap<String, String>,
}

impl Topic {
    pub(super) fn partition(&self, index: i32) -> Option<&Partition> {
        self.partitions.get(usize::try_from(index).ok()?)
    }

    pub(super) fn partition_mut(&mut self, index: i32) -> Option<&mut Partition> {
        self.partitions.get_mut(usize::try_from(index).ok()?)
    }

    pub(super) fn replication_factor(&self) -> i16 {
        self.partitions.first().map_or(0, |partition| i16::try_from(partition.replicas.len()).unwrap_or(i16::MAX))
    }
}

/// All topics by name.
#[derive(Debug)]
pub(super) struct Topics {
    by_name: BTreeMap<String, Topic>,
    cluster_id: String,
    created: u64,
}

impl Topics {
    pub(super) fn new(cluster_id: &str) -> Self {
        Self { by_name: BTreeMap::new(), cluster_id: cluster_id.to_owned(), created: 0 }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Topic)> {
        self.by_name.iter().map(|(name, topic)| (name.as_str(), topic))
    }

    pub(super) fn get(&self, name: &str) -> Option<&Topic> {
        self.by_name.get(name)
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Topic> {
        self.by_name.get_mut(name)
    }

    pub(super) fn partition(&self, topic: &str, index: i32) -> Option<&Partition> {
        self.get(topic)?.partition(index)
    }

    pub(super) fn partition_mut(&mut self, topic: &str, index: i32) -> Option<&mut Partition> {
        self.get_mut(topic)?.partition_mut(index)
    }

    pub(super) fn name_of(&self, id: Uuid) -> Option<&str> {
        self.iter().find(|(_, topic)| topic.id == id).map(|(name, _)| name)
    }

    pub(super) fn partitions_mut(&mut self) -> impl Iterator<Item = &mut Partition> {
        self.by_name.values_mut().flat_map(|topic| &mut topic.partitions)
    }

    pub(super) fn bytes(&self) -> usize {
        self.by_name.values().flat_map(|topic| &topic.partitions).map(|partition| partition.log.size()).sum()
    }

    /// Creates a topic with one replica list for each partition.
    pub(super) fn create(
        &mut self,
        name: &str,
        replicas: Vec<Vec<i32>>,
        configs: BTreeMap<String, String>,
        live: &BTreeSet<i32>,
    ) -> Result<&Topic, ErrorCode> {
        if self.by_name.contains_key(name) {
            return Err(ErrorCode::TOPIC_ALREADY_EXISTS);
        }
        self.created = self.created.saturating_add(1);
        let id = self.fresh_id(name);
        let partitions = replicas.into_iter().map(|replicas| Partition::new(replicas, live)).collect();
        Ok(self.by_name.entry(name.to_owned()).or_insert(Topic { id, partitions, configs }))
    }

    /// Looks random, and is the same in every run.
    fn fresh_id(&self, name: &str) -> Uuid {
        let digest = Sha256::new()
            .chain_update(&self.cluster_id)
            .chain_update(self.created.to_be_bytes())
            .chain_update(name)
            .finalize();
        Uuid::from_bytes(digest.first_chunk().copied().unwrap_or([1; 16]))
    }

    pub(super) fn add_partitions(&mut self, name: &str, replicas: Vec<Vec<i32>>, live: &BTreeSet<i32>) {
        if let Some(topic) = self.get_mut(name) {
            topic.partitions.extend(replicas.into_iter().map(|replicas| Partition::new(replicas, live)));
        }
    }

    pub(super) fn delete(&mut self, name: &str) -> Option<Topic> {
        self.by_name.remove(name)
    }
}

impl TopicLookup for Topics {
    fn partitions(&self, topic: &str) -> Option<i32> {
        self.get(topic).map(|topic| i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX))
    }
}

/// Replicas of partition `index` on nodes 1 to `nodes`: each starts one further round.
pub(super) fn place(index: usize, factor: usize, nodes: i32) -> Vec<i32> {
    let nodes = usize::try_from(nodes).unwrap_or(1).max(1);
    (0..factor.min(nodes))
        .map(|replica| i32::try_from((index + replica) % nodes).unwrap_or(0).saturating_add(1))
        .collect()
}

/// Whether a name is one Kafka takes.
pub(super) fn is_valid_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 249
        && name != "."
        && name != ".."
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}
