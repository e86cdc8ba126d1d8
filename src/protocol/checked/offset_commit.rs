//! OffsetCommitResponse, versions 2 to 9.

use bytes::Bytes;
use kafka_protocol::messages::ApiKey;

use crate::protocol::decode::{DecodeError, RESERVE_MAX, Reader};
use crate::protocol::{ErrorCode, TopicPartition};

/// What became of each committed offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffsetCommitResponse {
    /// How long the broker delayed us, or will, for our quota, in milliseconds. 0 below version 3.
    pub throttle_time_ms: i32,
    /// One result for each partition of the request.
    pub partitions: Vec<(TopicPartition, ErrorCode)>,
}

const VERSIONS: std::ops::RangeInclusive<i16> = 2..=9;
const FLEXIBLE_FROM: i16 = 8;

/// Topic name (empty), partition count.
const TOPIC_MIN: usize = 1 + 1;

/// partition, error_code.
const PARTITION_MIN: usize = 4 + 2;

impl OffsetCommitResponse {
    /// Decodes a response body; all of it must be consumed.
    ///
    /// # Errors
    /// [`DecodeError`]; nothing was allocated beyond a small multiple of the body's size.
    pub fn decode(body: Bytes, version: i16) -> Result<Self, DecodeError> {
        let mut reader = Reader::for_versions(ApiKey::OffsetCommit, version, VERSIONS, FLEXIBLE_FROM, body)?;
        let throttle_time_ms = if version >= 3 { reader.i32()? } else { 0 };
        let mut partitions = Vec::new();
        for _ in 0..reader.array(TOPIC_MIN)? {
            let topic = reader.topic_name()?;
            let count = reader.array(PARTITION_MIN)?;
            partitions.reserve(count.min(RESERVE_MAX));
            for _ in 0..count {
                let partition = reader.partition()?;
                partitions.push((TopicPartition { topic: topic.clone(), partition }, reader.error_code()?));
                reader.skip_tagged_fields()?;
            }
            reader.skip_tagged_fields()?;
        }
        reader.skip_tagged_fields()?;
        reader.finish()?;
        Ok(Self { throttle_time_ms, partitions })
    }
}
