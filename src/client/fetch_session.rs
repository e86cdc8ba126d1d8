//! The fetch session with one broker (KIP-227): which partitions it holds, and what the next request must say.
//!
//! Pure. The caller says what it wants of each partition; [`FetchSession::next_request`] lists only what changed. A
//! partition whose want is withdrawn is forgotten in the next request: left in, one in error would make every fetch
//! return at once (`broker-experiments.md` S10).
//!
//! Invariants: (a) after a request was answered without a session error, the broker's idea of the session equals
//! `told`; (b) after any session error or lost connection the next request is a full one; (c) topic ids and names are
//! never mixed in a session.

use std::collections::HashMap;

use kafka_protocol::{
    messages::{
        FetchRequest,
        fetch_request::{FetchPartition, FetchTopic, ForgottenTopic},
    },
    protocol::StrBytes,
};
use uuid::Uuid;

use super::cluster::wire_topic;
use crate::protocol::{ErrorCode, LeaderEpoch, PartitionMap, TopicId, TopicName, TopicPartition};

/// First version that names topics by id.
pub const FIRST_VERSION_WITH_IDS: i16 = 13;
/// First version with sessions.
const FIRST_VERSION_WITH_SESSIONS: i16 = 7;

/// What is wanted of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Want {
    /// The next offset.
    pub fetch_offset: i64,
    /// At most so many bytes of it in one answer; a larger first batch comes whole.
    pub partition_bytes_max: i32,
    /// Who we believe leads; `NONE` skips the check.
    pub current_leader_epoch: LeaderEpoch,
    /// Epoch of the last batch taken, for truncation detection; `NONE` skips the check.
    pub last_fetched_epoch: LeaderEpoch,
}

/// Limits of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchLimits {
    /// Broker waits at most this long for `bytes_min`.
    pub wait_ms: i32,
    /// Bytes worth waking up for.
    pub bytes_min: i32,
    /// Bytes of one answer; a larger first batch comes whole.
    pub bytes_max: i32,
    /// Only committed data.
    pub read_committed: bool,
    /// Rack of this client; empty asks the leader.
    pub rack: String,
}

#[derive(Debug, Clone)]
struct Entry {
    topic_id: TopicId,
    wanted: Option<Want>,
    told: Option<Want>,
}

/// One session.
#[derive(Debug, Default)]
pub struct FetchSession {
    id: i32,
    epoch: i32,
    /// The next request has to be a full one, whatever the answer on its way says.
    restart: bool,
    /// Topics are named by id in this session.
    with_ids: bool,
    entries: PartitionMap<Entry>,
    /// Partitions whose `wanted` differs from `told`, each once.
    changed: Vec<TopicPartition>,
    wanted_count: usize,
    /// Of them, those whose topic has no id.
    nameless_count: usize,
    /// Topic of each id ever wanted here.
    names: HashMap<TopicId, TopicName>,
}

impl FetchSession {
    /// Says what is wanted of a partition, or that nothing is (`None`).
    pub fn want(&mut self, partition: &TopicPartition, topic_id: TopicId, want: Option<Want>) {
        match self.entries.get_mut(partition) {
            Some(entry) => {
                if entry.wanted.is_some() {
                    self.wanted_count -= 1;
                    self.nameless_count -= usize::from(entry.topic_id.is_zero());
                }
                if entry.topic_id != topic_id {
                    // Another topic of the same name: the broker must forget the old id, which a full request does.
                    // An answer on its way is the old topic's, and none of it was asked of this one.
                    entry.topic_id = topic_id;
                    self.names.insert(topic_id, partition.topic.clone());
                    entry.told = None;
                    self.restart = true;
                }
                if entry.wanted == entry.told && entry.wanted != want {
                    self.changed.push(partition.clone());
                }
                entry.wanted = want;
            }
            None if want.is_some() => {
                self.entries.insert(partition.clone(), Entry { topic_id, wanted: want, told: None });
                self.names.insert(topic_id, partition.topic.clone());
                self.changed.push(partition.clone());
            }
            None => {}
        }
        if want.is_some() {
            self.wanted_count += 1;
            self.nameless_count += usize::from(topic_id.is_zero());
        }
    }

    /// How many partitions are wanted; with none there is nothing to ask for.
    #[must_use]
    pub fn wanted(&self) -> usize {
        self.wanted_count
    }

    /// Whether topic ids can name everything that is wanted.
    #[must_use]
    pub fn ids_known(&self) -> bool {
        self.nameless_count == 0
    }

    /// The next request, in `version`. Counts as sent: call [`Self::handle_answer`] or [`Self::reset`] afterwards.
    pub fn next_request(&mut self, version: i16, limits: &FetchLimits) -> FetchRequest {
        let with_ids = version >= FIRST_VERSION_WITH_IDS;
        let mut request = FetchRequest::default();
        request.max_wait_ms = limits.wait_ms;
        request.min_bytes = limits.bytes_min;
        request.max_bytes = limits.bytes_max;
        request.isolation_level = i8::from(limits.read_committed);
        if version >= 11 {
            request.rack_id = StrBytes::from_string(limits.rack.clone());
        }
        if self.restart || with_ids != self.with_ids || version < FIRST_VERSION_WITH_SESSIONS {
            self.reset();
        }
        self.with_ids = with_ids;
        let full = self.id == 0;
        let mut topics: Vec<FetchTopic> = Vec::new();
        let mut forgotten: Vec<ForgottenTopic> = Vec::new();
        if full {
            self.changed.clear();
            self.entries.retain(|entry| entry.wanted.is_some());
            for partition in self.entries.keys_in_order() {
                let Some(entry) = self.entries.get_mut(&partition) else {
                    continue;
                };
                entry.told = entry.wanted;
                if let Some(want) = entry.wanted {
                    push(&mut topics, &partition, entry.topic_id, want, with_ids);
                }
            }
            request.session_id = 0;
            request.session_epoch = if version < FIRST_VERSION_WITH_SESSIONS { -1 } else { 0 };
        } else {
            for partition in std::mem::take(&mut self.changed) {
                let Some(entry) = self.entries.get_mut(&partition) else {
                    continue;
                };
                match entry.wanted {
                    Some(want) if entry.told != entry.wanted => {
                        push(&mut topics, &partition, entry.topic_id, want, with_ids);
                        entry.told = entry.wanted;
                    }
                    Some(_) => {}
                    None => {
                        if entry.told.is_some() {
                            forget(&mut forgotten, &partition, entry.topic_id, with_ids);
                        }
                        self.entries.remove(&partition);
                    }
                }
            }
            request.session_id = self.id;
            request.session_epoch = self.epoch;
        }
        request.topics = topics;
        request.forgotten_topics_data = forgotten;
        request
    }

    /// An answer came: `session_id` and the top-level code as it says. Returns whether its partitions may be used.
    pub fn handle_answer(&mut self, code: ErrorCode, session_id: i32) -> bool {
        if !code.is_none() {
            self.reset();
            return false;
        }
        if self.restart {
            return true;
        }
        if session_id == 0 {
            // The broker keeps no session for us (none free, or version before 7): every request is a full one.
            self.id = 0;
            self.epoch = 0;
        } else {
            self.id = session_id;
            // Epochs count up from 1 and wrap to 1; 0 and -1 have meanings of their own.
            self.epoch = self.epoch.checked_add(1).unwrap_or(1);
        }
        true
    }

    /// The partition sent data or an error: what the broker believes of it must be told anew even if the same offset
    /// is wanted again. Without this, the same data would come at once, again and again. Returns the offset that was
    /// asked for, which tells an answer that a rewind has made stale; `None` if the partition was not asked for.
    pub fn handle_partition(&mut self, partition: &TopicPartition) -> Option<i64> {
        if let Some(entry) = self.entries.get_mut(partition) {
            let asked = entry.told?.fetch_offset;
            if entry.wanted == entry.told && entry.wanted.is_some() {
                self.changed.push(partition.clone());
            }
            entry.told = Some(Want {
                fetch_offset: -1,
                partition_bytes_max: 0,
                current_leader_epoch: LeaderEpoch::NONE,
                last_fetched_epoch: LeaderEpoch::NONE,
            });
            return Some(asked);
        }
        None
    }

    /// The connection or the session is lost: the next request is a full one.
    pub fn reset(&mut self) {
        self.id = 0;
        self.epoch = 0;
        self.restart = false;
    }

    /// Every partition of which something is wanted.
    pub fn wanted_partitions(&self) -> impl Iterator<Item = TopicPartition> {
        self.entries.iter().filter(|(_, entry)| entry.wanted.is_some()).map(|(partition, _)| partition)
    }

    /// The topic that an id stands for in this session.
    #[must_use]
    pub fn topic_of(&self, id: TopicId) -> Option<TopicName> {
        self.names.get(&id).cloned()
    }
}

fn push(topics: &mut Vec<FetchTopic>, partition: &TopicPartition, id: TopicId, want: Want, with_ids: bool) {
    let entry = FetchPartition::default()
        .with_partition(partition.partition.0)
        .with_fetch_offset(want.fetch_offset)
        .with_current_leader_epoch(want.current_leader_epoch.0)
        .with_last_fetched_epoch(want.last_fetched_epoch.0)
        .with_log_start_offset(-1)
        .with_partition_max_bytes(want.partition_bytes_max);
    let wire = Uuid::from(id);
    match topics.last_mut() {
        Some(last) if same(last.topic.0.as_str(), last.topic_id, partition, wire, with_ids) => {
            last.partitions.push(entry);
        }
        _ => {
            let mut topic = FetchTopic::default();
            if with_ids {
                topic.topic_id = wire;
            } else {
                topic.topic = wire_topic(&partition.topic);
            }
            topic.partitions = vec![entry];
            topics.push(topic);
        }
    }
}

fn forget(topics: &mut Vec<ForgottenTopic>, partition: &TopicPartition, id: TopicId, with_ids: bool) {
    let wire = Uuid::from(id);
    match topics.last_mut() {
        Some(last) if same(last.topic.0.as_str(), last.topic_id, partition, wire, with_ids) => {
            last.partitions.push(partition.partition.0);
        }
        _ => {
            let mut topic = ForgottenTopic::default();
            if with_ids {
                topic.topic_id = wire;
            } else {
                topic.topic = wire_topic(&partition.topic);
            }
            topic.partitions = vec![partition.partition.0];
            topics.push(topic);
        }
    }
}

fn same(name: &str, id: Uuid, partition: &TopicPartition, wire: Uuid, with_ids: bool) -> bool {
    if with_ids { id == wire } else { name == partition.topic.as_str() }
}

#[cfg(test)]
mod tests;
