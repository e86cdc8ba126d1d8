//! Where logs begin and end, and what a leader knows of a producer: one request per broker for many partitions.

use std::{collections::BTreeMap, time::Duration};

use kafka_protocol::messages::{
    BrokerId as WireBrokerId, DescribeProducersRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest,
    describe_producers_request::TopicRequest,
    list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic},
    offset_for_leader_epoch_request::{OffsetForLeaderPartition, OffsetForLeaderTopic},
};

use super::cluster::wire_topic;
use crate::{
    net::{Connection, RequestError},
    protocol::{ErrorCode, LeaderEpoch, PartitionId, TopicName, TopicPartition},
};

/// Which end of a log to ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffsetQuery {
    /// The first offset that still exists.
    Start,
    /// The high watermark: what every reader may see.
    HighWatermark,
    /// The last stable offset: what read-committed readers may see.
    LastStable,
    /// The log end, including what is not yet replicated. Asked as a replica-debug client (`broker-experiments.md`
    /// S11: works for outside clients on all brokers).
    End,
}

/// An answer for one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedOffset {
    /// The broker's verdict.
    pub error_code: ErrorCode,
    /// Meaningful without an error.
    pub offset: i64,
    /// The leader's epoch, asked for an end; `NONE` from brokers before 2.1.
    pub leader_epoch: LeaderEpoch,
}

/// Replica ids with a meaning of their own (Kafka's `ListOffsetsRequest`).
const CONSUMER_REPLICA: i32 = -1;
const DEBUG_REPLICA: i32 = -2;
const EARLIEST: i64 = -2;
const LATEST: i64 = -1;
const READ_COMMITTED: i8 = 1;

/// Asks one broker, the leader of all `partitions`, for one end of each log.
///
/// # Errors
/// If the request was not answered; errors of single partitions are in the answer.
pub async fn list_offsets(
    connection: &Connection,
    query: OffsetQuery,
    partitions: &[TopicPartition],
    timeout: Duration,
) -> Result<BTreeMap<TopicPartition, ListedOffset>, RequestError> {
    let timestamp = if query == OffsetQuery::Start { EARLIEST } else { LATEST };
    let mut request = ListOffsetsRequest::default();
    request.replica_id = WireBrokerId(if query == OffsetQuery::End { DEBUG_REPLICA } else { CONSUMER_REPLICA });
    request.isolation_level = if query == OffsetQuery::LastStable { READ_COMMITTED } else { 0 };
    request.topics = by_topic(partitions)
        .into_iter()
        .map(|(topic, numbers)| {
            let partitions = numbers
                .into_iter()
                .map(|number| {
                    ListOffsetsPartition::default()
                        .with_partition_index(number)
                        .with_current_leader_epoch(-1)
                        .with_timestamp(timestamp)
                })
                .collect();
            ListOffsetsTopic::default().with_name(wire_topic(topic)).with_partitions(partitions)
        })
        .collect();
    let answer = connection.request(&request, timeout).await?;
    let mut found = BTreeMap::new();
    for topic in answer.topics {
        let name = TopicName::new(topic.name.0.as_str());
        for partition in topic.partitions {
            let key = TopicPartition { topic: name.clone(), partition: PartitionId(partition.partition_index) };
            let listed = ListedOffset {
                error_code: ErrorCode(partition.error_code),
                offset: partition.offset,
                leader_epoch: LeaderEpoch(partition.leader_epoch),
            };
            found.insert(key, listed);
        }
    }
    Ok(found)
}

/// Where an epoch of leadership ends in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochEnd {
    /// The asked epoch, or the largest one below it that the log has.
    pub epoch: LeaderEpoch,
    /// Offset after its last record.
    pub end_offset: i64,
}

/// Asks a partition's leader where an epoch ends (OffsetForLeaderEpoch, KIP-320). `None` where the log does not know: no
/// epochs in an old message format, or no epoch that old.
///
/// # Errors
/// If the request was not answered, or the broker does not speak it to clients; an error of the partition is in the answer.
pub async fn epoch_end(
    connection: &Connection,
    partition: &TopicPartition,
    epoch: LeaderEpoch,
    timeout: Duration,
) -> Result<Result<Option<EpochEnd>, ErrorCode>, RequestError> {
    let mut request = OffsetForLeaderEpochRequest::default();
    request.replica_id = WireBrokerId(CONSUMER_REPLICA);
    request.topics =
        vec![OffsetForLeaderTopic::default().with_topic(wire_topic(&partition.topic)).with_partitions(vec![
            OffsetForLeaderPartition::default()
                .with_partition(partition.partition.0)
                .with_current_leader_epoch(-1)
                .with_leader_epoch(epoch.0),
        ])];
    let answer = connection.request(&request, timeout).await?;
    let Some(found) = answer.topics.into_iter().flat_map(|topic| topic.partitions).next() else {
        return Ok(Err(ErrorCode::UNKNOWN_SERVER_ERROR));
    };
    let code = ErrorCode(found.error_code);
    if !code.is_none() {
        return Ok(Err(code));
    }
    let known = found.leader_epoch >= 0 && found.end_offset >= 0;
    Ok(Ok(known.then_some(EpochEnd { epoch: LeaderEpoch(found.leader_epoch), end_offset: found.end_offset })))
}

/// What a leader knows of one producer id on one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerState {
    /// The id.
    pub producer_id: i64,
    /// Its newest epoch there.
    pub producer_epoch: i16,
    /// The sequence of the last record it appended.
    pub last_sequence: i32,
}

/// Asks one broker, the leader of all `partitions`, which producers it knows. `None` for a partition whose answer was
/// an error; an absent producer says nothing (`broker-experiments.md` S11).
///
/// # Errors
/// If the request was not answered, or the broker does not speak DescribeProducers (before 2.8).
pub async fn describe_producers(
    connection: &Connection,
    partitions: &[TopicPartition],
    timeout: Duration,
) -> Result<BTreeMap<TopicPartition, Vec<ProducerState>>, RequestError> {
    let mut request = DescribeProducersRequest::default();
    request.topics = by_topic(partitions)
        .into_iter()
        .map(|(topic, numbers)| TopicRequest::default().with_name(wire_topic(topic)).with_partition_indexes(numbers))
        .collect();
    let answer = connection.request(&request, timeout).await?;
    let mut found = BTreeMap::new();
    for topic in answer.topics {
        let name = TopicName::new(topic.name.0.as_str());
        for partition in topic.partitions {
            if !ErrorCode(partition.error_code).is_none() {
                continue;
            }
            let key = TopicPartition { topic: name.clone(), partition: PartitionId(partition.partition_index) };
            let producers = partition
                .active_producers
                .into_iter()
                .filter_map(|state| {
                    Some(ProducerState {
                        producer_id: state.producer_id.0,
                        producer_epoch: i16::try_from(state.producer_epoch).ok()?,
                        last_sequence: state.last_sequence,
                    })
                })
                .collect();
            found.insert(key, producers);
        }
    }
    Ok(found)
}

fn by_topic(partitions: &[TopicPartition]) -> BTreeMap<&TopicName, Vec<i32>> {
    let mut topics: BTreeMap<_, Vec<i32>> = BTreeMap::new();
    for partition in partitions {
        topics.entry(&partition.topic).or_default().push(partition.partition.0);
    }
    topics
}
