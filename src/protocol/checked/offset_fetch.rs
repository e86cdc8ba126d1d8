//! OffsetFetchResponse for one group, versions 1 to 9.

use bytes::Bytes;
use kafka_protocol::messages::ApiKey;

use crate::protocol::decode::{DecodeError, Fault, RESERVE_MAX, Reader};
use crate::protocol::{ErrorCode, LeaderEpoch, TopicPartition};

/// The committed offsets of one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffsetFetchResponse {
    /// How long the broker delayed us, or will, for our quota, in milliseconds. 0 below version 3.
    pub throttle_time_ms: i32,
    /// Error of the whole group. Version 1 has no such field: every partition then carries the group's error.
    pub group_error: ErrorCode,
    /// The offsets, flattened.
    pub partitions: Vec<FetchedOffset>,
}

/// The committed offset of one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchedOffset {
    /// The partition.
    pub tp: TopicPartition,
    /// The committed offset; -1 if the group has none here.
    pub committed_offset: i64,
    /// Leader epoch stored with it; from version 5, `NONE` before.
    pub leader_epoch: LeaderEpoch,
    /// Free text stored with it.
    pub metadata: Option<String>,
    /// Error of this partition alone.
    pub error_code: ErrorCode,
}

const VERSIONS: std::ops::RangeInclusive<i16> = 1..=9;
const FLEXIBLE_FROM: i16 = 6;

/// Group name (empty), topic count, error_code, tagged fields.
const GROUP_MIN: usize = 1 + 1 + 2 + 1;

/// Topic name (empty), partition count.
const TOPIC_MIN: usize = 1 + 1;

/// partition, committed_offset, metadata (null), error_code.
const PARTITION_MIN: usize = 4 + 8 + 1 + 2;

impl OffsetFetchResponse {
    /// Decodes a response body; all of it must be consumed. The request must have asked for one group.
    ///
    /// # Errors [`DecodeError`], among them [`Fault::GroupCount`]; nothing was allocated beyond a small multiple of
    /// the body's size.
    pub fn decode(body: Bytes, version: i16) -> Result<Self, DecodeError> {
        let mut reader = Reader::for_versions(ApiKey::OffsetFetch, version, VERSIONS, FLEXIBLE_FROM, body)?;
        let throttle_time_ms = if version >= 3 { reader.i32()? } else { 0 };
        let many_groups = version >= 8;
        if many_groups {
            let count = reader.array(GROUP_MIN)?;
            if count != 1 {
                return Err(reader.fault(Fault::GroupCount(count)));
            }
            // The group's name; we know whom we asked for.
            reader.nullable_str()?;
        }
        let partitions = topics(&mut reader)?;
        let group_error = if version >= 2 { reader.error_code()? } else { ErrorCode::NONE };
        if many_groups {
            reader.skip_tagged_fields()?;
        }
        reader.skip_tagged_fields()?;
        reader.finish()?;
        Ok(Self { throttle_time_ms, group_error, partitions })
    }
}

fn topics(reader: &mut Reader) -> Result<Vec<FetchedOffset>, DecodeError> {
    let with_epoch = reader.version() >= 5;
    let mut offsets = Vec::new();
    for _ in 0..reader.array(TOPIC_MIN)? {
        let topic = reader.topic_name()?;
        let count = reader.array(PARTITION_MIN)?;
        offsets.reserve(count.min(RESERVE_MAX));
        for _ in 0..count {
            offsets.push(FetchedOffset {
                tp: TopicPartition { topic: topic.clone(), partition: reader.partition()? },
                committed_offset: reader.i64()?,
                leader_epoch: if with_epoch { reader.leader_epoch()? } else { LeaderEpoch::NONE },
                metadata: reader.nullable_string()?,
                error_code: reader.error_code()?,
            });
            reader.skip_tagged_fields()?;
        }
        reader.skip_tagged_fields()?;
    }
    Ok(offsets)
}
