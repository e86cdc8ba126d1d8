//! Questions about a partition's log: ListOffsets, OffsetForLeaderEpoch, DescribeProducers; and DeleteRecords.

use kafka_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsResponse, DeleteRecordsTopicResult,
};
use kafka_protocol::messages::describe_producers_response::{
    DescribeProducersResponse, PartitionResponse, ProducerState, TopicResponse,
};
use kafka_protocol::messages::list_offsets_request::ListOffsetsPartition;
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderEpochResponse, OffsetForLeaderTopicResult,
};
use kafka_protocol::messages::{
    DeleteRecordsRequest, DescribeProducersRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest,
};
use kafka_protocol::protocol::StrBytes;

use super::Asked;
use super::fetch::check_epoch;
use crate::protocol::ErrorCode;
use crate::testkit::BrokerVersion;
use crate::testkit::engine::Cluster;
use crate::testkit::engine::topics::Partition;

/// Special timestamps of ListOffsets.
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;

/// "Debug": any replica answers, and with the end of its log.
const DEBUG_REPLICA: i32 = -2;

impl Cluster {
    fn led_here(&self, asked: &Asked, topic: &str, index: i32) -> Result<&Partition, ErrorCode> {
        let partition = self.topics.partition(topic, index).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        if partition.leader == Some(asked.node) { Ok(partition) } else { Err(ErrorCode::NOT_LEADER_OR_FOLLOWER) }
    }

    pub(super) fn list_offsets(&self, asked: &Asked, request: ListOffsetsRequest) -> ListOffsetsResponse {
        let (replica, committed) = (request.replica_id.0, request.isolation_level == 1);
        let topics = request.topics.into_iter().map(|topic| {
            let partition = |wanted: &ListOffsetsPartition| {
                let answer = ListOffsetsPartitionResponse::default().with_partition_index(wanted.partition_index);
                match self.list_offset(asked, &topic.name.0, replica, committed, wanted) {
                    Ok((timestamp, offset, epoch)) => {
                        let answer = answer.with_timestamp(timestamp).with_offset(offset);
                        if asked.version >= 4 { answer.with_leader_epoch(epoch) } else { answer }
                    }
                    Err(code) => answer.with_error_code(code.0).with_timestamp(-1).with_offset(-1),
                }
            };
            ListOffsetsTopicResponse::default()
                .with_partitions(topic.partitions.iter().map(partition).collect())
                .with_name(topic.name)
        });
        ListOffsetsResponse::default().with_topics(topics.collect())
    }

    /// Timestamp, offset and leader epoch.
    fn list_offset(
        &self,
        asked: &Asked,
        topic: &str,
        replica: i32,
        committed: bool,
        wanted: &ListOffsetsPartition,
    ) -> Result<(i64, i64, i32), ErrorCode> {
        let partition = if replica == DEBUG_REPLICA {
            self.topics.partition(topic, wanted.partition_index).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION).and_then(
                |found| {
                    let is_here = found.replicas.contains(&asked.node);
                    if is_here { Ok(found) } else { Err(ErrorCode::NOT_LEADER_OR_FOLLOWER) }
                },
            )?
        } else {
            self.led_here(asked, topic, wanted.partition_index)?
        };
        if asked.version >= 4 {
            check_epoch(wanted.current_leader_epoch, partition.leader_epoch)?;
        }
        let log = &partition.log;
        let bound = if replica == DEBUG_REPLICA {
            log.end_offset()
        } else if committed {
            partition.last_stable_offset()
        } else {
            partition.high_watermark()
        };
        let unknown = (-1, -1, -1);
        let record = |found: Option<(i64, i64)>| {
            found.map_or(unknown, |(timestamp, offset)| (timestamp, offset, log.epoch_at(offset)))
        };
        Ok(match wanted.timestamp {
            LATEST => (-1, bound, partition.leader_epoch),
            EARLIEST | EARLIEST_LOCAL => (-1, log.start_offset(), log.epoch_at(log.start_offset())),
            MAX_TIMESTAMP => record(log.newest(bound)),
            LATEST_TIERED => unknown,
            ..0 => return Err(ErrorCode::UNSUPPORTED_VERSION),
            timestamp => record(log.first_since(timestamp, bound)),
        })
    }

    pub(super) fn offset_for_leader_epoch(
        &self,
        asked: &Asked,
        request: OffsetForLeaderEpochRequest,
    ) -> OffsetForLeaderEpochResponse {
        let topics = request.topics.into_iter().map(|topic| {
            let partitions = topic.partitions.iter().map(|wanted| {
                let answer = EpochEndOffset::default().with_partition(wanted.partition);
                let found = self.led_here(asked, &topic.topic.0, wanted.partition).and_then(|partition| {
                    check_epoch(wanted.current_leader_epoch, partition.leader_epoch)?;
                    Ok(partition.log.end_of_epoch(wanted.leader_epoch))
                });
                match found {
                    Ok((epoch, end_offset)) => answer.with_leader_epoch(epoch).with_end_offset(end_offset),
                    Err(code) => answer.with_error_code(code.0).with_leader_epoch(-1).with_end_offset(-1),
                }
            });
            OffsetForLeaderTopicResult::default().with_partitions(partitions.collect()).with_topic(topic.topic)
        });
        OffsetForLeaderEpochResponse::default().with_topics(topics.collect())
    }

    pub(super) fn describe_producers(
        &self,
        asked: &Asked,
        request: DescribeProducersRequest,
    ) -> DescribeProducersResponse {
        let topics = request.topics.into_iter().map(|topic| {
            let partitions = topic.partition_indexes.iter().map(|index| {
                let answer = PartitionResponse::default().with_partition_index(*index);
                match self.led_here(asked, &topic.name.0, *index) {
                    Ok(partition) => {
                        let producers = partition.log.producers().map(|(id, state)| {
                            ProducerState::default()
                                .with_producer_id(id.into())
                                .with_producer_epoch(state.epoch.into())
                                .with_last_sequence(state.last_sequence())
                                .with_last_timestamp(state.last_timestamp)
                                .with_coordinator_epoch(state.coordinator_epoch)
                                .with_current_txn_start_offset(state.transaction_start.unwrap_or(-1))
                        });
                        answer.with_active_producers(producers.collect())
                    }
                    Err(code) => {
                        let speaks = self.version > BrokerVersion::V2_8_2;
                        let message =
                            speaks.then(|| StrBytes::from_static_str("this broker does not lead the partition"));
                        answer.with_error_code(code.0).with_error_message(message)
                    }
                }
            });
            TopicResponse::default().with_partitions(partitions.collect()).with_name(topic.name)
        });
        DescribeProducersResponse::default().with_topics(topics.collect())
    }

    pub(super) fn delete_records_request(
        &mut self,
        asked: &Asked,
        request: DeleteRecordsRequest,
    ) -> DeleteRecordsResponse {
        let mut topics = Vec::new();
        for topic in request.topics {
            let mut partitions = Vec::new();
            for wanted in &topic.partitions {
                let answer = DeleteRecordsPartitionResult::default().with_partition_index(wanted.partition_index);
                partitions.push(match self.delete_to(asked, &topic.name.0, wanted.partition_index, wanted.offset) {
                    Ok(low_watermark) => answer.with_low_watermark(low_watermark),
                    Err(code) => answer.with_low_watermark(-1).with_error_code(code.0),
                });
            }
            topics.push(DeleteRecordsTopicResult::default().with_name(topic.name).with_partitions(partitions));
        }
        self.is_dirty = true;
        DeleteRecordsResponse::default().with_topics(topics)
    }

    fn delete_to(&mut self, asked: &Asked, topic: &str, index: i32, offset: i64) -> Result<i64, ErrorCode> {
        self.led_here(asked, topic, index)?;
        let found = self.topics.get_mut(topic).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        if !self.configs.rules(&found.configs).deletes {
            return Err(ErrorCode::POLICY_VIOLATION);
        }
        let partition = found.partition_mut(index).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        let high_watermark = partition.high_watermark();
        let before = if offset == -1 { high_watermark } else { offset };
        if !(0..=high_watermark).contains(&before) {
            return Err(ErrorCode::OFFSET_OUT_OF_RANGE);
        }
        partition.log.delete_before(before);
        Ok(partition.log.start_offset())
    }
}
