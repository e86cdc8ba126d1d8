//! What a test does to a cluster from the outside, and what it can see of it.

use std::collections::BTreeMap;

use bytes::Bytes;
use tokio::time::Instant;

use super::api::refuse;
use super::topics::{is_valid_name, place};
use super::{Cluster, ConnectionId, Hang, Intercept, Waiting};
use crate::protocol::{ErrorCode, TopicId};
use crate::testkit::BrokerVersion;
use crate::testkit::log::{Cleaned, Cleaning, Stored};

/// A topic as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicView {
    /// Its id.
    pub id: TopicId,
    /// Settings of its own.
    pub configs: BTreeMap<String, String>,
    /// Its partitions by number.
    pub partitions: Vec<PartitionView>,
}

/// A partition as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionView {
    /// Who leads it.
    pub leader: Option<i32>,
    /// How often the leader changed.
    pub leader_epoch: i32,
    /// First readable offset.
    pub log_start_offset: i64,
    /// Up to where consumers read.
    pub high_watermark: i64,
    /// Up to where every transaction has ended.
    pub last_stable_offset: i64,
    /// The next offset.
    pub end_offset: i64,
    /// What is stored; the bytes are shared, not copied.
    pub entries: Vec<Stored>,
}

impl Cluster {
    /// Where clients reach a node.
    pub fn set_address(&mut self, node: i32, host: &str, port: u16) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.host = host.to_owned();
            node.port = port;
        }
    }

    /// Ids of all nodes, up or not.
    #[must_use]
    pub fn node_ids(&self) -> Vec<i32> {
        self.nodes.keys().copied().collect()
    }

    /// Creates a topic, with as many replicas as there are nodes but at most `replication_factor`.
    ///
    /// # Errors
    /// 17, 36 or 37, as CreateTopics answers.
    pub fn create_topic(
        &mut self,
        name: &str,
        partitions: usize,
        replication_factor: usize,
        configs: &[(&str, &str)],
    ) -> Result<TopicId, ErrorCode> {
        if !is_valid_name(name) {
            return Err(ErrorCode::INVALID_TOPIC_EXCEPTION);
        }
        if partitions == 0 {
            return Err(ErrorCode::INVALID_PARTITIONS);
        }
        let nodes = i32::try_from(self.nodes.len()).unwrap_or(1);
        let replicas = (0..partitions).map(|index| place(index, replication_factor.max(1), nodes)).collect();
        let configs = configs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let live = self.live();
        self.is_dirty = true;
        let topic = self.topics.create(name, replicas, configs, &live)?;
        Ok(topic.id.into())
    }

    /// Deletes a topic with its data and committed offsets; false if there was none.
    pub fn delete_topic(&mut self, name: &str) -> bool {
        let deleted = self.topics.delete(name).is_some();
        if deleted {
            self.groups.topic_deleted(name);
            self.is_dirty = true;
            self.settle();
        }
        deleted
    }

    /// Sets, or with `None` resets, a setting of a topic.
    pub fn set_topic_config(&mut self, name: &str, key: &str, value: Option<&str>) {
        if let Some(topic) = self.topics.get_mut(name) {
            match value {
                Some(value) => topic.configs.insert(key.to_owned(), value.to_owned()),
                None => topic.configs.remove(key),
            };
        }
    }

    /// Sets a broker setting, as a dynamic one of all brokers.
    pub fn set_broker_config(&mut self, key: &str, value: &str) {
        self.configs.dynamic.insert(key.to_owned(), value.to_owned());
    }

    /// A topic as it is.
    #[must_use]
    pub fn topic(&self, name: &str) -> Option<TopicView> {
        let topic = self.topics.get(name)?;
        let view = |partition: &super::topics::Partition| PartitionView {
            leader: partition.leader,
            leader_epoch: partition.leader_epoch,
            log_start_offset: partition.log.start_offset(),
            high_watermark: partition.high_watermark(),
            last_stable_offset: partition.last_stable_offset(),
            end_offset: partition.log.end_offset(),
            entries: partition.log.entries().to_vec(),
        };
        Some(TopicView {
            id: topic.id.into(),
            configs: topic.configs.clone(),
            partitions: topic.partitions.iter().map(view).collect(),
        })
    }

    /// The leader of a partition.
    #[must_use]
    pub fn leader(&self, topic: &str, partition: i32) -> Option<i32> {
        self.topics.partition(topic, partition)?.leader
    }

    /// Names of all topics.
    #[must_use]
    pub fn topic_names(&self) -> Vec<String> {
        self.topics.iter().map(|(name, _)| name.to_owned()).collect()
    }

    /// Kills a node: its connections close, its sessions are gone, others lead what they hold replicas of.
    pub fn stop_node(&mut self, now: Instant, node: i32) {
        self.tick(now);
        let Some(stopped) = self.nodes.get_mut(&node) else {
            return;
        };
        stopped.is_up = false;
        stopped.hangs = None;
        stopped.sessions.clear();
        let connections: Vec<ConnectionId> =
            self.connections.iter().filter(|(_, open)| open.node == node).map(|(connection, _)| *connection).collect();
        for connection in connections {
            self.close(connection);
        }
        let live = self.live();
        for partition in self.topics.partitions_mut().filter(|partition| partition.leader == Some(node)) {
            let next = partition.in_sync(&live).first().copied();
            if next.is_some() {
                partition.lead(next);
            } else {
                partition.leader = None;
                // A quorum of controllers writes down that nobody leads; the controller of ZooKeeper does not.
                partition.leader_epoch =
                    partition.leader_epoch.saturating_add(i32::from(self.version > BrokerVersion::V2_8_2));
            }
        }
        self.restart_coordinators(now);
        self.is_dirty = true;
        self.settle();
    }

    /// Starts a stopped node. It leads again what nobody else could, with what its snapshots remember of producers: one
    /// batch each, and none whose timestamps are old (broker-experiments, S2).
    pub fn start_node(&mut self, now: Instant, node: i32) {
        self.tick(now);
        let Some(started) = self.nodes.get_mut(&node).filter(|started| !started.is_up) else {
            return;
        };
        started.is_up = true;
        let (wall_ms, expiration_ms) = (self.clock.wall_ms, self.producer_expiration_ms());
        // The controller of ZooKeeper gives a leader that was never replaced its epoch back; with one node nobody replaces it.
        let same_epoch = self.version == BrokerVersion::V2_8_2 && self.nodes.len() == 1;
        let orphans = |partition: &&mut super::topics::Partition| {
            partition.leader.is_none() && partition.replicas.contains(&node)
        };
        for partition in self.topics.partitions_mut().filter(orphans) {
            partition.log.restart(wall_ms, expiration_ms);
            if same_epoch {
                partition.leader = Some(node);
            } else {
                partition.lead(Some(node));
            }
        }
        self.restart_coordinators(now);
        self.is_dirty = true;
        self.settle();
    }

    /// A node hangs until [`Self::thaw_node`]: it takes connections, and is not stopped.
    pub fn hang_node(&mut self, node: i32, hang: Hang) {
        if let Some(node) = self.nodes.get_mut(&node).filter(|node| node.is_up) {
            node.hangs = Some(hang);
        }
    }

    /// A node that hung goes on: what is new is worked on at once, and what gathered in its sockets when
    /// [`Self::serve`] says so, in any order. Returns those connections, oldest first, and how many requests each has;
    /// clients may have left some of them.
    pub fn thaw_node(&mut self, now: Instant, node: i32) -> Vec<(ConnectionId, usize)> {
        self.tick(now);
        let Some(thawed) = self.nodes.get_mut(&node) else {
            return Vec::new();
        };
        thawed.hangs = None;
        let mut gathered = Vec::new();
        for (connection, open) in self.connections.iter_mut().filter(|(_, open)| open.node == node) {
            if !open.queue.is_empty() || matches!(open.waiting, Some(Waiting::Held(_))) {
                open.held = true;
                gathered.push((*connection, open.queue.len()));
            }
        }
        self.settle();
        gathered
    }

    /// A node that hung comes to a socket again. Of one that its client left at most so many requests are found whole.
    pub fn serve(&mut self, now: Instant, connection: ConnectionId, requests_max: usize) {
        self.tick(now);
        let Some(open) = self.connections.get_mut(&connection) else {
            return;
        };
        open.held = false;
        if open.gone {
            open.queue.truncate(requests_max);
        }
        match open.waiting.take() {
            Some(Waiting::Held(answer)) => self.send(connection, answer),
            None => self.next(connection),
            waiting => open.waiting = waiting,
        }
        self.settle();
    }

    /// Others lead what a node leads, as the controller has it for a node that hangs for long.
    pub fn depose_node(&mut self, node: i32) {
        let live = self.live();
        for partition in self.topics.partitions_mut().filter(|partition| partition.leader == Some(node)) {
            let next = partition.in_sync(&live).into_iter().find(|other| *other != node);
            if next.is_some() {
                partition.lead(next);
            }
        }
        self.is_dirty = true;
        self.settle();
    }

    /// A node forgets its fetch sessions, as one does whose cache is full.
    pub fn evict_sessions(&mut self, node: i32) {
        if let Some(node) = self.nodes.get_mut(&node) {
            node.sessions.clear();
        }
    }

    /// All groups get another coordinator that has to read them first, whether or not it is another node.
    pub fn move_coordinators(&mut self, now: Instant) {
        self.tick(now);
        self.restart_coordinators(now);
        self.settle();
    }

    /// A group's commits: topic, partition, offset and metadata.
    #[must_use]
    pub fn committed(&self, group: &str) -> Vec<(String, i32, i64, String)> {
        self.groups.committed(group)
    }

    /// Drops a group's commits, as their expiry does.
    pub fn expire_commits(&mut self, group: &str) {
        self.groups.expire_commits(group);
    }

    /// Metadata names this node as the leader of everything, until `None` is said: what a broker does that was cut off
    /// from its controller.
    pub fn lie_about_leaders(&mut self, leader: Option<i32>) {
        self.leader_lie = leader;
    }

    /// Groups move with their coordinator: members have to find the new one. All groups are treated alike, whichever
    /// node it was.
    fn restart_coordinators(&mut self, now: Instant) {
        self.groups.handle_restart(now);
        let waiting: Vec<ConnectionId> = std::mem::take(&mut self.tickets).into_values().collect();
        for connection in waiting {
            let taken = self.connections.get_mut(&connection).and_then(|open| open.waiting.take());
            if let Some(Waiting::Group(asked, _)) = taken {
                match refuse(&asked, ErrorCode::NOT_COORDINATOR) {
                    Some(answer) => self.send(connection, answer),
                    None => self.close(connection),
                }
            }
        }
    }

    /// Makes another node the leader of a partition; its window of producers' batches stays whole.
    pub fn move_leader(&mut self, topic: &str, partition: i32, node: i32) {
        if let Some(partition) = self.topics.partition_mut(topic, partition) {
            if !partition.replicas.contains(&node) {
                partition.replicas.push(node);
            }
            partition.lead(Some(node));
            self.is_dirty = true;
            self.settle();
        }
    }

    /// Cleans a partition up to its last stable offset, as if all of it lay in old segments; `None` if there is none.
    pub fn compact(&mut self, now: Instant, topic: &str, partition: i32) -> Option<Cleaned> {
        self.tick(now);
        let found = self.topics.get_mut(topic)?;
        let retention = self.configs.rules(&found.configs).delete_retention_ms;
        let partition = found.partition_mut(partition)?;
        Some(partition.log.compact(Cleaning {
            dirty_end: partition.last_stable_offset(),
            wall_ms: self.clock.wall_ms,
            // KIP-534 came with 3.1.
            delete_retention_ms: (self.version > BrokerVersion::V2_8_2).then_some(retention),
        }))
    }

    /// Deletes records as DeleteRecords does, whatever the topic's policy.
    pub fn delete_records(&mut self, topic: &str, partition: i32, before: i64) {
        if let Some(partition) = self.topics.partition_mut(topic, partition) {
            partition.log.delete_before(before);
            self.is_dirty = true;
            self.settle();
        }
    }

    /// Cuts a log off, as an unclean election does: a new leader epoch begins at `offset`.
    pub fn truncate(&mut self, topic: &str, partition: i32, offset: i64) {
        if let Some(partition) = self.topics.partition_mut(topic, partition) {
            partition.log.truncate(offset);
            let leader = partition.leader;
            partition.lead(leader);
            self.is_dirty = true;
            self.settle();
        }
    }

    /// Holds the high watermark where it is; `acks=all` waits and consumers see nothing new.
    pub fn hold_high_watermark(&mut self, topic: &str, partition: i32) {
        if let Some(partition) = self.topics.partition_mut(topic, partition) {
            partition.held_at = Some(partition.high_watermark());
        }
    }

    /// Lets it follow the end of the log again.
    pub fn release_high_watermark(&mut self, now: Instant, topic: &str, partition: i32) {
        self.tick(now);
        if let Some(partition) = self.topics.partition_mut(topic, partition) {
            partition.held_at = None;
            self.is_dirty = true;
            self.settle();
        }
    }

    /// Appends bytes as they are: batches with holes between them, entries of old formats.
    pub fn append_raw(&mut self, topic: &str, partition: i32, bytes: Bytes) {
        if let Some(partition) = self.topics.partition_mut(topic, partition) {
            partition.log.append_raw(bytes);
            self.is_dirty = true;
            self.settle();
        }
    }

    /// The time of day jumps; timers do not. What expires by timestamps is looked at once.
    pub fn jump(&mut self, now: Instant, forward_ms: i64) {
        self.started_wall_ms = self.started_wall_ms.saturating_add(forward_ms);
        self.tick(now);
        self.sweep();
    }

    /// Catches requests to come.
    pub fn intercept(&mut self, intercept: Intercept) {
        self.intercepts.push(intercept);
    }

    /// Catches nothing any more.
    pub fn clear_intercepts(&mut self) {
        self.intercepts.clear();
    }
}
