//! InitProducerId and the transaction APIs.

use kafka_protocol::messages::add_partitions_to_txn_request::{AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction};
use kafka_protocol::messages::add_partitions_to_txn_response::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnResponse, AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
};
use kafka_protocol::messages::write_txn_markers_response::{
    WritableTxnMarkerPartitionResult, WritableTxnMarkerResult, WritableTxnMarkerTopicResult, WriteTxnMarkersResponse,
};
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, EndTxnRequest, EndTxnResponse, InitProducerIdRequest, InitProducerIdResponse,
    WriteTxnMarkersRequest,
};

use super::Asked;
use crate::batch::ControlType;
use crate::protocol::ErrorCode;
use crate::testkit::engine::Cluster;
use crate::testkit::log::Marker;

/// Older versions know 47 where newer ones say 90.
fn fenced_code(asked: &Asked, code: ErrorCode, first_with_fenced: i16) -> ErrorCode {
    if code == ErrorCode::PRODUCER_FENCED && asked.version < first_with_fenced {
        ErrorCode::INVALID_PRODUCER_EPOCH
    } else {
        code
    }
}

impl Cluster {
    fn coordinates(&self, asked: &Asked, transactional_id: &str) -> Result<(), ErrorCode> {
        if self.coordinator_of(transactional_id) == Some(asked.node) { Ok(()) } else { Err(ErrorCode::NOT_COORDINATOR) }
    }

    pub(super) fn init_producer_id(
        &mut self,
        asked: &Asked,
        request: &InitProducerIdRequest,
    ) -> InitProducerIdResponse {
        let result = match &request.transactional_id {
            // The timeout means nothing here, and every call gives a fresh id.
            None => Ok((self.transactions.fresh_producer_id(), 0)),
            Some(id) if id.0.is_empty() => Err(ErrorCode::INVALID_REQUEST),
            Some(id) => self.coordinates(asked, &id.0).and_then(|()| {
                let known = (asked.version >= 3).then_some((request.producer_id.0, request.producer_epoch));
                self.initialize_transactional(&id.0, request.transaction_timeout_ms, known)
            }),
        };
        self.is_dirty = true;
        match result {
            Ok((producer_id, epoch)) => {
                InitProducerIdResponse::default().with_producer_id(producer_id.into()).with_producer_epoch(epoch)
            }
            Err(code) => InitProducerIdResponse::default()
                .with_error_code(fenced_code(asked, code, 4).0)
                .with_producer_id((-1).into())
                .with_producer_epoch(-1),
        }
    }

    pub(super) fn add_partitions_to_txn(
        &mut self,
        asked: &Asked,
        request: AddPartitionsToTxnRequest,
    ) -> AddPartitionsToTxnResponse {
        if asked.version <= 3 {
            let transaction = AddPartitionsToTxnTransaction::default()
                .with_transactional_id(request.v3_and_below_transactional_id)
                .with_producer_id(request.v3_and_below_producer_id)
                .with_producer_epoch(request.v3_and_below_producer_epoch)
                .with_topics(request.v3_and_below_topics);
            let results = self.add_partitions(asked, &transaction);
            return AddPartitionsToTxnResponse::default().with_results_by_topic_v3_and_below(results);
        }
        let results = request.transactions.into_iter().map(|transaction| {
            let results = self.add_partitions(asked, &transaction);
            AddPartitionsToTxnResult::default()
                .with_transactional_id(transaction.transactional_id)
                .with_topic_results(results)
        });
        AddPartitionsToTxnResponse::default().with_results_by_transaction(results.collect())
    }

    fn add_partitions(
        &mut self,
        asked: &Asked,
        transaction: &AddPartitionsToTxnTransaction,
    ) -> Vec<AddPartitionsToTxnTopicResult> {
        let all = || {
            let pairs = |topic: &AddPartitionsToTxnTopic| {
                let name = topic.name.0.to_string();
                topic.partitions.iter().map(move |index| (name.clone(), *index)).collect::<Vec<_>>()
            };
            transaction.topics.iter().flat_map(pairs)
        };
        let is_unknown = |(topic, index): &(String, i32)| self.topics.partition(topic, *index).is_none();
        let has_unknown = all().any(|pair| is_unknown(&pair));
        let unknown: Vec<bool> = all().map(|pair| is_unknown(&pair)).collect();
        let whole = if has_unknown {
            // One unknown partition fails them all; the others were not attempted.
            Err(ErrorCode::OPERATION_NOT_ATTEMPTED)
        } else {
            self.coordinates(asked, &transaction.transactional_id.0).and_then(|()| {
                let id = transaction.transactional_id.0.as_str();
                let (producer_id, epoch) = (transaction.producer_id.0, transaction.producer_epoch);
                if transaction.verify_only {
                    let is_in = all().all(|(t, p)| self.transactions.contains(id, producer_id, epoch, &t, p));
                    return if is_in { Ok(()) } else { Err(ErrorCode::TRANSACTION_ABORTABLE) };
                }
                self.add_to_transaction(id, producer_id, epoch, all())
            })
        };
        let mut unknown = unknown.into_iter();
        let topic = |topic: &AddPartitionsToTxnTopic| {
            let partition = |index: &i32| {
                let code = match (unknown.next(), whole) {
                    (Some(true), _) => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                    (_, Err(code)) => fenced_code(asked, code, 2),
                    (_, Ok(())) => ErrorCode::NONE,
                };
                AddPartitionsToTxnPartitionResult::default()
                    .with_partition_index(*index)
                    .with_partition_error_code(code.0)
            };
            AddPartitionsToTxnTopicResult::default()
                .with_name(topic.name.clone())
                .with_results_by_partition(topic.partitions.iter().map(partition).collect())
        };
        transaction.topics.iter().map(topic).collect()
    }

    pub(super) fn end_txn(&mut self, asked: &Asked, request: &EndTxnRequest) -> EndTxnResponse {
        let id = request.transactional_id.0.as_str();
        let result = self.coordinates(asked, id).and_then(|()| {
            let (producer_id, epoch) = (request.producer_id.0, request.producer_epoch);
            self.finish_transaction(id, producer_id, epoch, request.committed, asked.version >= 5)
        });
        match result {
            Ok((producer_id, epoch)) if asked.version >= 5 => {
                EndTxnResponse::default().with_producer_id(producer_id.into()).with_producer_epoch(epoch)
            }
            Ok(_) => EndTxnResponse::default(),
            Err(code) => EndTxnResponse::default().with_error_code(fenced_code(asked, code, 2).0),
        }
    }

    /// Entries are written in their order; the answers of one producer are merged (broker-experiments, S7b).
    pub(super) fn write_txn_markers(
        &mut self,
        asked: &Asked,
        request: WriteTxnMarkersRequest,
    ) -> WriteTxnMarkersResponse {
        let mut results: Vec<WritableTxnMarkerResult> = Vec::new();
        for entry in request.markers {
            let marker = Marker {
                producer_id: entry.producer_id.0,
                producer_epoch: entry.producer_epoch,
                coordinator_epoch: entry.coordinator_epoch,
                kind: if entry.transaction_result { ControlType::Commit } else { ControlType::Abort },
            };
            let topics: Vec<WritableTxnMarkerTopicResult> = entry
                .topics
                .into_iter()
                .map(|topic| {
                    let partitions = topic.partition_indexes.iter().map(|index| {
                        let code = self.marker_code(asked, &topic.name.0, *index, &marker);
                        WritableTxnMarkerPartitionResult::default().with_partition_index(*index).with_error_code(code.0)
                    });
                    WritableTxnMarkerTopicResult::default().with_partitions(partitions.collect()).with_name(topic.name)
                })
                .collect();
            match results.iter_mut().find(|known| known.producer_id == entry.producer_id) {
                Some(known) => merge(&mut known.topics, topics),
                None => results
                    .push(WritableTxnMarkerResult::default().with_producer_id(entry.producer_id).with_topics(topics)),
            }
        }
        WriteTxnMarkersResponse::default().with_markers(results)
    }

    fn marker_code(&mut self, asked: &Asked, topic: &str, index: i32, marker: &Marker) -> ErrorCode {
        let Some(partition) = self.topics.partition(topic, index) else {
            return ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
        };
        if partition.leader != Some(asked.node) {
            return ErrorCode::NOT_LEADER_OR_FOLLOWER;
        }
        if marker.producer_id < 0 {
            return ErrorCode::UNKNOWN_SERVER_ERROR;
        }
        self.write_marker(topic, index, marker).err().unwrap_or(ErrorCode::NONE)
    }
}

/// The later answer about a partition counts.
fn merge(known: &mut Vec<WritableTxnMarkerTopicResult>, later: Vec<WritableTxnMarkerTopicResult>) {
    for topic in later {
        let Some(same) = known.iter_mut().find(|known| known.name == topic.name) else {
            known.push(topic);
            continue;
        };
        for partition in topic.partitions {
            match same.partitions.iter_mut().find(|known| known.partition_index == partition.partition_index) {
                Some(known) => known.error_code = partition.error_code,
                None => same.partitions.push(partition),
            }
        }
    }
}
