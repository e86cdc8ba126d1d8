//! Building a produce request from sealed batches: one batch per partition, many partitions per request, acks=all.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::{
    ProduceRequest,
    produce_request::{PartitionProduceData, TopicProduceData},
};

use super::{admin::millis, cluster::wire_topic};
use crate::protocol::{SEALED_HEAD_LEN, TopicPartition};

/// Topics go by name: a re-created target topic then shows as an unexpected base offset, which is checked anyway.
pub const VERSION_MAX: i16 = 12;

/// A batch and the header it travels under.
#[derive(Debug, Clone)]
pub struct SealedBatch {
    /// Header as the target shall see it.
    pub head: [u8; SEALED_HEAD_LEN],
    /// The whole batch as fetched, header included.
    pub batch: Bytes,
}

/// Collects batches of distinct partitions.
#[derive(Debug, Default)]
pub struct ProduceBuilder {
    request: ProduceRequest,
    sealed: Vec<(Bytes, [u8; SEALED_HEAD_LEN])>,
    bytes: usize,
}

impl ProduceBuilder {
    /// Adds a partition's batch. A partition must be added at most once: the broker would keep only the last
    /// (`batch-forwarding.md` 0.1).
    pub fn push(&mut self, partition: &TopicPartition, batch: SealedBatch) {
        let data =
            PartitionProduceData::default().with_index(partition.partition.0).with_records(Some(batch.batch.clone()));
        self.bytes += batch.batch.len();
        self.sealed.push((batch.batch, batch.head));
        match self.request.topic_data.last_mut() {
            Some(last) if last.name.0.as_str() == partition.topic.as_str() => last.partition_data.push(data),
            _ => self.request.topic_data.push(
                TopicProduceData::default().with_name(wire_topic(&partition.topic)).with_partition_data(vec![data]),
            ),
        }
    }

    /// Bytes of batches so far.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether nothing was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sealed.is_empty()
    }

    /// Gives the batches back, in the order in which they were added.
    pub fn into_batches(self) -> impl Iterator<Item = SealedBatch> {
        self.sealed.into_iter().map(|(batch, head)| SealedBatch { head, batch })
    }

    /// The request and its batches in the order the encoder meets them. `timeout` bounds the brokers' wait for
    /// replicas.
    #[must_use]
    pub fn finish(mut self, timeout: Duration) -> (ProduceRequest, Vec<(Bytes, [u8; SEALED_HEAD_LEN])>) {
        self.request.acks = -1;
        self.request.timeout_ms = millis(timeout);
        (self.request, self.sealed)
    }
}
