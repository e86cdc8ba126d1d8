//! MetadataResponse, versions 0 to 13.

use bytes::Bytes;
use kafka_protocol::messages::ApiKey;

use crate::protocol::decode::{DecodeError, Reader};
use crate::protocol::{BrokerId, ErrorCode, LeaderEpoch, PartitionId, TopicId, TopicName};

/// What a broker knows of its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetadataResponse {
    /// How long the broker delayed us, or will, for our quota, in milliseconds. 0 below version 3.
    pub throttle_time_ms: i32,
    /// Every live broker, on the listener that was asked.
    pub brokers: Vec<BrokerEndpoint>,
    /// The cluster's id; from version 2.
    pub cluster_id: Option<String>,
    /// A broker that takes controller requests; from version 1.
    pub controller_id: Option<BrokerId>,
    /// The topics asked for.
    pub topics: Vec<TopicMetadata>,
    /// Error of the whole request; from version 13 (KIP-1102), `NONE` before.
    pub error_code: ErrorCode,
}

/// Where a broker listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerEndpoint {
    /// The broker.
    pub id: BrokerId,
    /// Host name or address.
    pub host: String,
    /// Port.
    pub port: i32,
    /// Rack, if the broker has one; from version 1.
    pub rack: Option<String>,
}

/// One topic of a [`MetadataResponse`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicMetadata {
    /// Error of this topic alone.
    pub error_code: ErrorCode,
    /// `None` if it was asked for by an id that the broker does not know (version 12 on).
    pub name: Option<TopicName>,
    /// From version 10 (KIP-516), zero before and on clusters without topic ids.
    pub id: TopicId,
    /// True for Kafka's own topics; from version 1.
    pub is_internal: bool,
    /// The partitions, in no particular order.
    pub partitions: Vec<PartitionMetadata>,
}

/// One partition of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionMetadata {
    /// Error of this partition alone.
    pub error_code: ErrorCode,
    /// The partition.
    pub partition: PartitionId,
    /// The leader, if there is one.
    pub leader: Option<BrokerId>,
    /// The leader's epoch; from version 7, `NONE` before.
    pub leader_epoch: LeaderEpoch,
    /// Brokers that hold the partition.
    pub replicas: Vec<BrokerId>,
    /// Those of them in sync with the leader.
    pub isr: Vec<BrokerId>,
    /// Those of them that are not alive; from version 5.
    pub offline: Vec<BrokerId>,
}

const VERSIONS: std::ops::RangeInclusive<i16> = 0..=13;
const FLEXIBLE_FROM: i16 = 9;

/// node_id, host (empty), port.
const BROKER_MIN: usize = 4 + 1 + 4;

/// error_code, name (null), partition count.
const TOPIC_MIN: usize = 2 + 1 + 1;

/// error_code, partition, leader, replica count, isr count.
const PARTITION_MIN: usize = 2 + 4 + 4 + 1 + 1;

/// A broker id.
const REPLICA_MIN: usize = 4;

impl MetadataResponse {
    /// Decodes a response body; all of it must be consumed.
    ///
    /// # Errors
    /// [`DecodeError`]; nothing was allocated beyond a small multiple of the body's size.
    pub fn decode(body: Bytes, version: i16) -> Result<Self, DecodeError> {
        let mut reader = Reader::for_versions(ApiKey::Metadata, version, VERSIONS, FLEXIBLE_FROM, body)?;
        let throttle_time_ms = if version >= 3 { reader.i32()? } else { 0 };
        let brokers = reader.vec(BROKER_MIN, broker)?;
        let cluster_id = if version >= 2 { reader.nullable_string()? } else { None };
        let controller_id = if version >= 1 { reader.broker_or_none()? } else { None };
        let topics = reader.vec(TOPIC_MIN, topic)?;
        if (8..=10).contains(&version) {
            // cluster_authorized_operations, which moved to DescribeCluster (KIP-700).
            reader.skip(4)?;
        }
        let error_code = if version >= 13 { reader.error_code()? } else { ErrorCode::NONE };
        reader.skip_tagged_fields()?;
        reader.finish()?;
        Ok(Self { throttle_time_ms, brokers, cluster_id, controller_id, topics, error_code })
    }
}

fn broker(reader: &mut Reader) -> Result<BrokerEndpoint, DecodeError> {
    let endpoint = BrokerEndpoint {
        id: reader.broker()?,
        host: reader.string()?,
        port: reader.i32()?,
        rack: if reader.version() >= 1 { reader.nullable_string()? } else { None },
    };
    reader.skip_tagged_fields()?;
    Ok(endpoint)
}

fn topic(reader: &mut Reader) -> Result<TopicMetadata, DecodeError> {
    let version = reader.version();
    let topic = TopicMetadata {
        error_code: reader.error_code()?,
        name: if version >= 12 { reader.nullable_topic_name()? } else { Some(reader.topic_name()?) },
        id: if version >= 10 { reader.topic_id()? } else { TopicId::ZERO },
        is_internal: if version >= 1 { reader.bool()? } else { false },
        partitions: reader.vec(PARTITION_MIN, partition)?,
    };
    if version >= 8 {
        // topic_authorized_operations: a hint for tools; the broker's answer to the real request counts.
        reader.skip(4)?;
    }
    reader.skip_tagged_fields()?;
    Ok(topic)
}

fn partition(reader: &mut Reader) -> Result<PartitionMetadata, DecodeError> {
    let version = reader.version();
    let partition = PartitionMetadata {
        error_code: reader.error_code()?,
        partition: reader.partition()?,
        leader: reader.broker_or_none()?,
        leader_epoch: if version >= 7 { reader.leader_epoch()? } else { LeaderEpoch::NONE },
        replicas: reader.vec(REPLICA_MIN, Reader::broker)?,
        isr: reader.vec(REPLICA_MIN, Reader::broker)?,
        offline: if version >= 5 { reader.vec(REPLICA_MIN, Reader::broker)? } else { Vec::new() },
    };
    reader.skip_tagged_fields()?;
    Ok(partition)
}
