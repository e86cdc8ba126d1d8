//! Fetch: what is read, how long it waits, and what a session leaves out.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::fetch_request::FetchRequest;
use kafka_protocol::messages::fetch_response::{
    AbortedTransaction, EpochEndOffset, FetchResponse, FetchableTopicResponse, LeaderIdAndEpoch, NodeEndpoint,
    PartitionData,
};
use kafka_protocol::protocol::StrBytes;
use tokio::time::Instant;

use super::{Answer, Asked, Outcome};
use crate::batch::Codec;
use crate::protocol::ErrorCode;
use crate::testkit::engine::Cluster;
use crate::testkit::engine::sessions::{Context, Key, Opening, Wanted};
use crate::testkit::engine::topics::Partition;

/// First version that names topics by id.
const BY_ID: i16 = 13;

/// A fetch that waits for data.
#[derive(Debug)]
pub(in crate::testkit::engine) struct WaitingFetch {
    asked: Asked,
    context: Context,
    wanted: Vec<Wanted>,
    /// Whether each of them was there when the request came: one that was not is told of, but hurries nothing.
    known: Vec<bool>,
    limits: Limits,
    pub(in crate::testkit::engine) deadline: Instant,
}

#[derive(Debug, Clone, Copy)]
struct Limits {
    bytes_min: usize,
    bytes_max: usize,
    read_committed: bool,
}

impl Cluster {
    pub(super) fn fetch(&mut self, asked: &Asked, request: FetchRequest) -> Outcome {
        let now = self.clock.now;
        let opening = self.opening(asked, &request);
        let opened = self.nodes.get_mut(&asked.node).map(|node| node.sessions.open(now, opening));
        let (context, wanted) = match opened {
            Some(Ok(opened)) => opened,
            Some(Err(code)) => return Outcome::Answer(asked.answer(&FetchResponse::default().with_error_code(code.0))),
            None => return Outcome::Hangup,
        };
        if !asked.throttle.is_zero() {
            return Outcome::Answer(self.throttled_fetch(asked, context));
        }
        let cap = usize::try_from(self.configs.number("fetch.max.bytes", 57_671_680)).unwrap_or(0);
        let bytes_max = usize::try_from(request.max_bytes).unwrap_or(0).min(cap);
        let limits = Limits {
            bytes_min: usize::try_from(request.min_bytes).unwrap_or(0).min(bytes_max),
            bytes_max,
            read_committed: request.isolation_level == 1,
        };
        let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
        let exists = |wanted: &Wanted| {
            wanted.topic.as_deref().is_some_and(|topic| self.topics.partition(topic, wanted.key.partition).is_some())
        };
        let known: Vec<bool> = wanted.iter().map(exists).collect();
        let is_overdue = wait.is_zero() || !known.contains(&true);
        let waiting = WaitingFetch { asked: asked.clone(), context, wanted, known, limits, deadline: now + wait };
        match self.finish_fetch(waiting, is_overdue) {
            Ok(answer) => Outcome::Answer(answer),
            Err(waiting) => Outcome::WaitFetch(waiting),
        }
    }

    /// A reader over its quota gets nothing, and a session it asked for is not made.
    fn throttled_fetch(&mut self, asked: &Asked, context: Context) -> Answer {
        let session_id = match context {
            Context::Sessionless => 0,
            Context::Incremental(id) => id,
            Context::Full(id) => {
                if let Some(node) = self.nodes.get_mut(&asked.node) {
                    node.sessions.remove(id);
                }
                0
            }
        };
        let response = FetchResponse::default().with_session_id(session_id);
        asked.answer(&response.with_throttle_time_ms(asked.throttle_ms()))
    }

    fn opening(&self, asked: &Asked, request: &FetchRequest) -> Opening {
        let uses_ids = asked.version >= BY_ID;
        let mut listed: Vec<Wanted> = Vec::new();
        for topic in &request.topics {
            let name = topic.topic.0.to_string();
            let known =
                if uses_ids { self.topics.name_of(topic.topic_id).map(str::to_owned) } else { Some(name.clone()) };
            for partition in &topic.partitions {
                listed.push(Wanted {
                    key: Key { name: name.clone(), id: topic.topic_id, partition: partition.partition },
                    topic: known.clone(),
                    fetch_offset: partition.fetch_offset,
                    bytes_max: partition.partition_max_bytes,
                    current_leader_epoch: partition.current_leader_epoch,
                    last_fetched_epoch: partition.last_fetched_epoch,
                });
            }
        }
        let forgotten = request
            .forgotten_topics_data
            .iter()
            .flat_map(|topic| {
                let key = |partition: &i32| Key {
                    name: topic.topic.0.to_string(),
                    id: topic.topic_id,
                    partition: *partition,
                };
                topic.partitions.iter().map(key).collect::<Vec<_>>()
            })
            .collect();
        // Before version 7 there are no sessions.
        let (session_id, session_epoch) =
            if asked.version >= 7 { (request.session_id, request.session_epoch) } else { (0, -1) };
        Opening { session_id, session_epoch, uses_ids, listed, forgotten }
    }

    /// Answers if there is enough to tell, or if time is over.
    #[expect(clippy::result_large_err, reason = "the error is the waiting request, given back")]
    pub(in crate::testkit::engine) fn finish_fetch(
        &mut self,
        waiting: WaitingFetch,
        is_overdue: bool,
    ) -> Result<Answer, WaitingFetch> {
        let mut room = waiting.limits.bytes_max;
        let mut bytes: usize = 0;
        let mut is_urgent = is_overdue;
        let mut read = Vec::with_capacity(waiting.wanted.len());
        for (wanted, known) in waiting.wanted.iter().zip(&waiting.known) {
            let data = self.read_partition(&waiting.asked, wanted, waiting.limits, room, bytes == 0);
            let size = data.records.as_ref().map_or(0, Bytes::len);
            bytes = bytes.saturating_add(size);
            room = room.saturating_sub(size);
            is_urgent |= (data.error_code != 0 && *known) || data.diverging_epoch.epoch >= 0;
            read.push(data);
        }
        if !is_urgent && bytes < waiting.limits.bytes_min {
            return Err(waiting);
        }
        let WaitingFetch { asked, context, wanted, .. } = waiting;
        let session_id = match context {
            Context::Sessionless => 0,
            Context::Full(id) | Context::Incremental(id) => id,
        };
        let mut response = FetchResponse::default().with_session_id(session_id);
        let mut leaders = BTreeSet::new();
        for (wanted, data) in wanted.into_iter().zip(read) {
            let sessions = self.nodes.get_mut(&asked.node).map(|node| &mut node.sessions);
            if sessions.is_some_and(|sessions| !sessions.must_answer(context, &wanted.key, &data)) {
                continue;
            }
            leaders.insert(data.current_leader.leader_id.0);
            let same = |last: &&mut FetchableTopicResponse| {
                last.topic_id == wanted.key.id && last.topic.0.as_str() == wanted.key.name
            };
            match response.responses.last_mut().filter(same) {
                Some(last) => last.partitions.push(data),
                None => response.responses.push(
                    FetchableTopicResponse::default()
                        .with_topic(StrBytes::from_string(wanted.key.name).into())
                        .with_topic_id(wanted.key.id)
                        .with_partitions(vec![data]),
                ),
            }
        }
        if asked.version >= 16 {
            response.node_endpoints = leaders
                .into_iter()
                .filter_map(|id| {
                    let node = self.nodes.get(&id)?;
                    Some(
                        NodeEndpoint::default()
                            .with_node_id(id.into())
                            .with_host(StrBytes::from_string(node.host.clone()))
                            .with_port(node.port.into()),
                    )
                })
                .collect();
        }
        Ok(asked.answer(&response))
    }

    fn read_partition(
        &self,
        asked: &Asked,
        wanted: &Wanted,
        limits: Limits,
        room: usize,
        is_first: bool,
    ) -> PartitionData {
        let index = wanted.key.partition;
        let failed = |code: ErrorCode| {
            PartitionData::default()
                .with_partition_index(index)
                .with_error_code(code.0)
                .with_high_watermark(-1)
                .with_last_stable_offset(-1)
                .with_log_start_offset(-1)
                .with_aborted_transactions(None)
                .with_records(Some(Bytes::new()))
        };
        let Some(name) = wanted.topic.as_deref() else {
            return failed(ErrorCode::UNKNOWN_TOPIC_ID);
        };
        let Some(topic) = self.topics.get(name) else {
            return failed(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        };
        if asked.version >= BY_ID && topic.id != wanted.key.id {
            return failed(ErrorCode::INCONSISTENT_TOPIC_ID);
        }
        let Some(partition) = topic.partition(index) else {
            return failed(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        };
        // Clients of that time cannot read it; looked at by the topic's setting alone, as brokers do.
        if asked.version < 10 && self.configs.rules(&topic.configs).append.compression == Some(Codec::Zstd) {
            return failed(ErrorCode::UNSUPPORTED_COMPRESSION_TYPE);
        }
        match read(asked, wanted, partition, limits, room, is_first) {
            Ok(data) => data.with_partition_index(index),
            Err(code) => {
                let data = failed(code);
                let hints = [ErrorCode::NOT_LEADER_OR_FOLLOWER, ErrorCode::FENCED_LEADER_EPOCH].contains(&code);
                match partition.leader.filter(|_| hints && asked.version >= 16) {
                    Some(leader) => data.with_current_leader(
                        LeaderIdAndEpoch::default()
                            .with_leader_id(leader.into())
                            .with_leader_epoch(partition.leader_epoch),
                    ),
                    None => data,
                }
            }
        }
    }
}

fn read(
    asked: &Asked,
    wanted: &Wanted,
    partition: &Partition,
    limits: Limits,
    room: usize,
    is_first: bool,
) -> Result<PartitionData, ErrorCode> {
    // From version 11 on any replica serves consumers (KIP-392).
    let serves = partition.leader == Some(asked.node)
        || (asked.version >= 11 && partition.leader.is_some() && partition.replicas.contains(&asked.node));
    if !serves {
        return Err(ErrorCode::NOT_LEADER_OR_FOLLOWER);
    }
    check_epoch(wanted.current_leader_epoch, partition.leader_epoch)?;
    let log = &partition.log;
    let high_watermark = partition.high_watermark();
    let last_stable_offset = partition.last_stable_offset();
    let data = PartitionData::default()
        .with_high_watermark(high_watermark)
        .with_last_stable_offset(last_stable_offset)
        .with_log_start_offset(log.start_offset())
        .with_aborted_transactions(limits.read_committed.then(Vec::new))
        .with_records(Some(Bytes::new()));
    if wanted.last_fetched_epoch >= 0 {
        let (epoch, end_offset) = log.end_of_epoch(wanted.last_fetched_epoch);
        if epoch < 0 {
            return Err(ErrorCode::OFFSET_OUT_OF_RANGE);
        }
        if epoch < wanted.last_fetched_epoch || end_offset < wanted.fetch_offset {
            let diverging = EpochEndOffset::default().with_epoch(epoch).with_end_offset(end_offset);
            return Ok(data.with_diverging_epoch(diverging));
        }
    }
    if !(log.start_offset()..=log.end_offset()).contains(&wanted.fetch_offset) {
        return Err(ErrorCode::OFFSET_OUT_OF_RANGE);
    }
    let upper_bound = if limits.read_committed { last_stable_offset } else { high_watermark };
    if wanted.fetch_offset >= upper_bound {
        return Ok(data);
    }
    let bytes_max = usize::try_from(wanted.bytes_max).unwrap_or(0).min(room);
    let read = log.read(wanted.fetch_offset, upper_bound, bytes_max, is_first);
    let data = data.with_records(Some(read.records));
    if !limits.read_committed {
        return Ok(data);
    }
    let aborted = read.aborted.into_iter().map(|aborted| {
        AbortedTransaction::default()
            .with_producer_id(aborted.producer_id.into())
            .with_first_offset(aborted.first_offset)
    });
    Ok(data.with_aborted_transactions(Some(aborted.collect())))
}

/// Compares the leader epoch a client knows with the partition's; -1 is not compared.
pub(super) fn check_epoch(known: i32, current: i32) -> Result<(), ErrorCode> {
    match known {
        ..0 => Ok(()),
        _ if known < current => Err(ErrorCode::FENCED_LEADER_EPOCH),
        _ if known > current => Err(ErrorCode::UNKNOWN_LEADER_EPOCH),
        _ => Ok(()),
    }
}
