//! FetchResponse, versions 4 to 18.

use bytes::Bytes;
use kafka_protocol::messages::ApiKey;

use super::{NodeEndpoint, current_leader, node_endpoints};
use crate::protocol::decode::{DecodeError, RESERVE_MAX, Reader};
use crate::protocol::{BrokerId, ErrorCode, LeaderEpoch, PartitionId, TopicId, TopicName};

/// A broker's answer to a Fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchResponse {
    /// How long the broker delayed us, or will, for our quota, in milliseconds.
    pub throttle_time_ms: i32,
    /// Error of the whole request: session errors above all. `NONE` below version 7.
    pub error_code: ErrorCode,
    /// The session in use, 0 for none (KIP-227). 0 below version 7.
    pub session_id: i32,
    /// In a session: only the topics with something new.
    pub topics: Vec<FetchedTopic>,
    /// Where the leaders named in `current_leader` listen; from version 16 (KIP-951).
    pub node_endpoints: Vec<NodeEndpoint>,
}

/// One topic of a [`FetchResponse`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedTopic {
    /// Set up to version 12.
    pub name: Option<TopicName>,
    /// Set from version 13 on (KIP-516), zero before.
    pub id: TopicId,
    /// The partitions.
    pub partitions: Vec<FetchedPartition>,
}

/// One partition of a [`FetchResponse`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedPartition {
    /// The partition.
    pub partition: PartitionId,
    /// Error of this partition alone.
    pub error_code: ErrorCode,
    /// First offset that consumers cannot see yet; -1 if unknown.
    pub high_watermark: i64,
    /// First offset of the oldest undecided transaction, or the high watermark; -1 if unknown.
    pub last_stable_offset: i64,
    /// First offset still in the log; -1 below version 5.
    pub log_start_offset: i64,
    /// The epoch and its end offset where our log and the broker's part; only if they do (KIP-595).
    pub diverging_epoch: Option<(LeaderEpoch, i64)>,
    /// The leader as the broker knows it, given along with an error (KIP-951).
    pub current_leader: Option<(BrokerId, LeaderEpoch)>,
    /// Aborted transactions that overlap the data, in no particular order.
    pub aborted_transactions: Vec<AbortedTransaction>,
    /// A replica nearer to us that we should fetch from (KIP-392).
    pub preferred_read_replica: Option<BrokerId>,
    /// Record batches as stored, the last one perhaps cut off: a slice of the frame. Empty for null.
    pub records: Bytes,
}

/// A transaction that was aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AbortedTransaction {
    /// The producer whose transaction it was.
    pub producer_id: i64,
    /// First offset of the transaction in this partition.
    pub first_offset: i64,
}

const VERSIONS: std::ops::RangeInclusive<i16> = 4..=18;
const FLEXIBLE_FROM: i16 = 12;

/// Topic as name (null or empty), partition count.
const TOPIC_MIN: usize = 1 + 1;

/// partition, error_code, high_watermark, last_stable_offset, aborted_transactions, records.
const PARTITION_MIN: usize = 4 + 2 + 8 + 8 + 1 + 1;

/// producer_id, first_offset.
const ABORTED_MIN: usize = 8 + 8;

impl FetchResponse {
    /// Decodes a response body; all of it must be consumed.
    ///
    /// # Errors
    /// [`DecodeError`]; nothing was allocated beyond a small multiple of the body's size.
    pub fn decode(body: Bytes, version: i16) -> Result<Self, DecodeError> {
        let mut reader = Reader::for_versions(ApiKey::Fetch, version, VERSIONS, FLEXIBLE_FROM, body)?;
        let throttle_time_ms = reader.i32()?;
        let (error_code, session_id) =
            if version >= 7 { (reader.error_code()?, reader.i32()?) } else { (ErrorCode::NONE, 0) };
        let topics = reader.vec(TOPIC_MIN, topic)?;
        let mut endpoints = Vec::new();
        reader.tagged_fields(|reader, tag| {
            if tag != 0 || version < 16 {
                return Ok(false);
            }
            endpoints = node_endpoints(reader)?;
            Ok(true)
        })?;
        reader.finish()?;
        Ok(Self { throttle_time_ms, error_code, session_id, topics, node_endpoints: endpoints })
    }
}

fn topic(reader: &mut Reader) -> Result<FetchedTopic, DecodeError> {
    let (name, id) =
        if reader.version() >= 13 { (None, reader.topic_id()?) } else { (Some(reader.topic_name()?), TopicId::ZERO) };
    let partitions = reader.vec(PARTITION_MIN, partition)?;
    reader.skip_tagged_fields()?;
    Ok(FetchedTopic { name, id, partitions })
}

fn partition(reader: &mut Reader) -> Result<FetchedPartition, DecodeError> {
    let version = reader.version();
    let mut fetched = FetchedPartition {
        partition: reader.partition()?,
        error_code: reader.error_code()?,
        high_watermark: reader.i64()?,
        last_stable_offset: reader.i64()?,
        log_start_offset: if version >= 5 { reader.i64()? } else { -1 },
        diverging_epoch: None,
        current_leader: None,
        aborted_transactions: aborted_transactions(reader)?,
        preferred_read_replica: if version >= 11 { reader.broker_or_none()? } else { None },
        records: reader.nullable_bytes()?.unwrap_or_default(),
    };
    reader.tagged_fields(|reader, tag| {
        match tag {
            0 => fetched.diverging_epoch = diverging_epoch(reader)?,
            1 => fetched.current_leader = current_leader(reader)?,
            // 2 is the snapshot id of the KRaft metadata log, which no client fetches.
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(fetched)
}

fn aborted_transactions(reader: &mut Reader) -> Result<Vec<AbortedTransaction>, DecodeError> {
    // Null where the request read uncommitted data.
    let count = reader.nullable_array(ABORTED_MIN)?.unwrap_or(0);
    let mut aborted = Vec::with_capacity(count.min(RESERVE_MAX));
    for _ in 0..count {
        aborted.push(AbortedTransaction { producer_id: reader.i64()?, first_offset: reader.i64()? });
        reader.skip_tagged_fields()?;
    }
    Ok(aborted)
}

fn diverging_epoch(reader: &mut Reader) -> Result<Option<(LeaderEpoch, i64)>, DecodeError> {
    let epoch = reader.leader_epoch()?;
    let end_offset = reader.i64()?;
    reader.skip_tagged_fields()?;
    // Both are -1 where the logs do not diverge.
    Ok((epoch != LeaderEpoch::NONE || end_offset >= 0).then_some((epoch, end_offset)))
}
