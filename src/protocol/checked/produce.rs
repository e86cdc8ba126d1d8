//! ProduceResponse, versions 3 to 13.

use bytes::Bytes;
use kafka_protocol::messages::ApiKey;

use super::{NodeEndpoint, current_leader, node_endpoints};
use crate::protocol::decode::{DecodeError, Reader, take};
use crate::protocol::{BrokerId, ErrorCode, LeaderEpoch, PartitionId, TopicId, TopicName};

/// A broker's answer to a Produce with acks 1 or -1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProduceResponse {
    /// How long the broker delayed us, or will, for our quota, in milliseconds.
    pub throttle_time_ms: i32,
    /// The topics of the request.
    pub topics: Vec<ProducedTopic>,
    /// Where the leaders named in `current_leader` listen; from version 10 (KIP-951).
    pub node_endpoints: Vec<NodeEndpoint>,
}

/// One topic of a [`ProduceResponse`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducedTopic {
    /// Set up to version 12.
    pub name: Option<TopicName>,
    /// Set from version 13 on (KIP-516), zero before.
    pub id: TopicId,
    /// The partitions.
    pub partitions: Vec<ProducedPartition>,
}

/// One partition of a [`ProduceResponse`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducedPartition {
    /// The partition.
    pub partition: PartitionId,
    /// Error of this partition alone.
    pub error_code: ErrorCode,
    /// Offset given to the first record; -1 with an error, or for a duplicate whose place is no longer known.
    pub base_offset: i64,
    /// Append time in milliseconds since 1970 if the topic uses it, otherwise -1.
    ///
    /// Brokers also set it on a CreateTime topic when they recognised a duplicate (broker-experiments, S2).
    pub log_append_time_ms: i64,
    /// First offset in the log; -1 below version 5.
    pub log_start_offset: i64,
    /// Index and complaint of each refused record; from version 8 (KIP-467).
    pub record_errors: Vec<(i32, Option<String>)>,
    /// What the broker says about the batch; from version 8.
    pub error_message: Option<String>,
    /// The leader as the broker knows it, given along with an error (KIP-951).
    pub current_leader: Option<(BrokerId, LeaderEpoch)>,
}

const VERSIONS: std::ops::RangeInclusive<i16> = 3..=13;
const FLEXIBLE_FROM: i16 = 9;

/// Topic name (empty), partition count.
const TOPIC_MIN: usize = 1 + 1;

/// index, error_code, base_offset, log_append_time_ms.
const PARTITION_MIN: usize = 4 + 2 + 8 + 8;

/// batch_index, message (null).
const RECORD_ERROR_MIN: usize = 4 + 1;

impl ProduceResponse {
    /// Decodes a response body; all of it must be consumed.
    ///
    /// # Errors
    /// [`DecodeError`]; nothing was allocated beyond a small multiple of the body's size.
    pub fn decode(body: Bytes, version: i16) -> Result<Self, DecodeError> {
        let mut reader = Reader::for_versions(ApiKey::Produce, version, VERSIONS, FLEXIBLE_FROM, body)?;
        let topics = reader.vec(TOPIC_MIN, topic)?;
        let throttle_time_ms = reader.i32()?;
        let mut endpoints = Vec::new();
        reader.tagged_fields(|reader, tag| {
            if tag != 0 || version < 10 {
                return Ok(false);
            }
            endpoints = node_endpoints(reader)?;
            Ok(true)
        })?;
        reader.finish()?;
        Ok(Self { throttle_time_ms, topics, node_endpoints: endpoints })
    }
}

fn topic(reader: &mut Reader) -> Result<ProducedTopic, DecodeError> {
    let (name, id) =
        if reader.version() >= 13 { (None, reader.topic_id()?) } else { (Some(reader.topic_name()?), TopicId::ZERO) };
    let partitions = reader.vec(PARTITION_MIN, partition)?;
    reader.skip_tagged_fields()?;
    Ok(ProducedTopic { name, id, partitions })
}

/// A partition of a flexible version of which nothing is to be said: no errors of records, no message, no tags.
const PLAIN_LEN: usize = 4 + 2 + 8 + 8 + 8 + PLAIN_END.len();
const PLAIN_END: [u8; 3] = [1, 0, 0];

/// Nearly all of them, read at once: their share in the cost of a small batch is larger than it looks.
fn plain(bytes: &[u8; PLAIN_LEN]) -> Option<ProducedPartition> {
    let (mut rest, end) = bytes.split_last_chunk()?;
    if *end != PLAIN_END {
        return None;
    }
    Some(ProducedPartition {
        partition: PartitionId(i32::from_be_bytes(take(&mut rest)?)),
        error_code: ErrorCode(i16::from_be_bytes(take(&mut rest)?)),
        base_offset: i64::from_be_bytes(take(&mut rest)?),
        log_append_time_ms: i64::from_be_bytes(take(&mut rest)?),
        log_start_offset: i64::from_be_bytes(take(&mut rest)?),
        record_errors: Vec::new(),
        error_message: None,
        current_leader: None,
    })
}

fn partition(reader: &mut Reader) -> Result<ProducedPartition, DecodeError> {
    if reader.is_flexible()
        && let Some(produced) = reader.take_if(plain)
    {
        return Ok(produced);
    }
    let version = reader.version();
    let mut produced = ProducedPartition {
        partition: reader.partition()?,
        error_code: reader.error_code()?,
        base_offset: reader.i64()?,
        log_append_time_ms: reader.i64()?,
        log_start_offset: if version >= 5 { reader.i64()? } else { -1 },
        record_errors: if version >= 8 { reader.vec(RECORD_ERROR_MIN, record_error)? } else { Vec::new() },
        error_message: if version >= 8 { reader.nullable_string()? } else { None },
        current_leader: None,
    };
    reader.tagged_fields(|reader, tag| {
        if tag != 0 || version < 10 {
            return Ok(false);
        }
        produced.current_leader = current_leader(reader)?;
        Ok(true)
    })?;
    Ok(produced)
}

fn record_error(reader: &mut Reader) -> Result<(i32, Option<String>), DecodeError> {
    let error = (reader.i32()?, reader.nullable_string()?);
    reader.skip_tagged_fields()?;
    Ok(error)
}
