//! Produce.

use bytes::Bytes;
use kafka_protocol::messages::produce_request::ProduceRequest;
use kafka_protocol::messages::produce_response::{
    BatchIndexAndErrorMessage, LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse, ProduceResponse,
    TopicProduceResponse,
};
use kafka_protocol::protocol::StrBytes;
use tokio::time::Instant;
use uuid::Uuid;

use super::{Answer, Asked, Outcome};
use crate::batch::{Batch, Codec};
use crate::protocol::ErrorCode;
use crate::testkit::BrokerVersion;
use crate::testkit::engine::Cluster;
use crate::testkit::log::{Appended, Refused, single_batch};

/// A produce that waits until its records are replicated.
#[derive(Debug)]
pub(in crate::testkit::engine) struct WaitingAcks {
    asked: Asked,
    response: ProduceResponse,
    /// Topic, partition, and the high watermark that answers it.
    needed: Vec<(String, i32, i64)>,
    pub(in crate::testkit::engine) deadline: Instant,
}

/// One partition's entry.
struct Entry {
    /// As the request names the topic.
    name: String,
    id: Uuid,
    /// The topic's name, if it exists.
    topic: Option<String>,
    index: i32,
    records: Bytes,
}

/// Topics that are a broker's own.
const INTERNAL: &[&str] = &["__consumer_offsets", "__transaction_state", "__share_group_state"];

impl Cluster {
    pub(super) fn produce(&mut self, asked: &Asked, request: ProduceRequest) -> Outcome {
        let entries = self.entries(asked, &request);
        let batches: Vec<Result<Batch, Refused>> =
            entries.iter().map(|entry| single_batch(entry.records.clone())).collect();
        let transactional = batches.iter().flatten().find(|batch| batch.header.is_transactional());
        let whole = if !matches!(request.acks, -1..=1) {
            Some(ErrorCode::INVALID_REQUIRED_ACKS)
        } else if transactional.is_some() && request.transactional_id.is_none() {
            Some(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        } else if mixes_producers(&batches) {
            Some(ErrorCode::INVALID_PRODUCER_ID_MAPPING)
        } else {
            None
        };
        let transactional_id = request.transactional_id.as_ref().map(|id| id.as_str().to_owned());
        let mut response = ProduceResponse::default().with_throttle_time_ms(asked.throttle_ms());
        let mut needed = Vec::new();
        let mut failed = false;
        for (entry, batch) in entries.into_iter().zip(batches) {
            let result = match whole {
                Some(code) => Err(code.into()),
                None => self.produce_one(asked, request.acks, transactional_id.as_deref(), &entry, batch),
            };
            failed |= result.is_err();
            if let (Ok(_), Some(topic)) = (&result, &entry.topic)
                && let Some(partition) = self.topics.partition(topic, entry.index)
            {
                needed.push((topic.clone(), entry.index, partition.log.end_offset()));
            }
            let answer = self.partition_answer(asked, &entry, result);
            match response
                .responses
                .last_mut()
                .filter(|last| last.name.0.as_str() == entry.name && last.topic_id == entry.id)
            {
                Some(last) => last.partition_responses.push(answer),
                None => response.responses.push(
                    TopicProduceResponse::default()
                        .with_name(StrBytes::from_string(entry.name).into())
                        .with_topic_id(entry.id)
                        .with_partition_responses(vec![answer]),
                ),
            }
        }
        self.is_dirty = true;
        if request.acks == 0 {
            return if failed { Outcome::Hangup } else { Outcome::Nothing };
        }
        self.add_endpoints(asked, &mut response);
        let deadline =
            self.clock.now + std::time::Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
        let waiting = WaitingAcks { asked: asked.clone(), response, needed, deadline };
        if request.acks != -1 {
            return Outcome::Answer(asked.answer(&waiting.response));
        }
        match self.finish_acks(waiting, false) {
            Ok(answer) => Outcome::Answer(answer),
            Err(waiting) => Outcome::WaitAcks(waiting),
        }
    }

    /// Answers if everything is replicated, or if time is over.
    #[expect(clippy::result_large_err, reason = "the error is the waiting request, given back")]
    pub(in crate::testkit::engine) fn finish_acks(
        &self,
        mut waiting: WaitingAcks,
        is_overdue: bool,
    ) -> Result<Answer, WaitingAcks> {
        let mut late = Vec::new();
        for (topic, index, end) in &waiting.needed {
            let reached =
                self.topics.partition(topic, *index).is_none_or(|partition| partition.high_watermark() >= *end);
            if !reached {
                late.push((topic.clone(), *index));
            }
        }
        if !late.is_empty() && !is_overdue {
            return Err(waiting);
        }
        for (topic, index) in late {
            let id = self.topics.get(&topic).map(|topic| topic.id).unwrap_or_default();
            for answered in &mut waiting.response.responses {
                if answered.name.0.as_str() != topic && answered.topic_id != id {
                    continue;
                }
                for partition in answered.partition_responses.iter_mut().filter(|partition| partition.index == index) {
                    partition.error_code = ErrorCode::REQUEST_TIMED_OUT.0;
                }
            }
        }
        Ok(waiting.asked.answer(&waiting.response))
    }

    /// The entries of a request. Of a partition that is listed twice only the last counts (broker-experiments, S1).
    fn entries(&self, asked: &Asked, request: &ProduceRequest) -> Vec<Entry> {
        let mut entries: Vec<Entry> = Vec::new();
        for topic in &request.topic_data {
            let by_id = asked.version >= 13;
            let name = topic.name.0.to_string();
            let known = if by_id {
                self.topics.name_of(topic.topic_id).map(str::to_owned)
            } else {
                self.topics.get(&name).map(|_| name.clone())
            };
            for partition in &topic.partition_data {
                let entry = Entry {
                    name: name.clone(),
                    id: topic.topic_id,
                    topic: known.clone(),
                    index: partition.index,
                    records: partition.records.clone().unwrap_or_default(),
                };
                let same =
                    |other: &&mut Entry| (&other.name, other.id, other.index) == (&entry.name, entry.id, entry.index);
                match entries.iter_mut().find(same) {
                    Some(earlier) => *earlier = entry,
                    None => entries.push(entry),
                }
            }
        }
        entries
    }

    fn produce_one(
        &mut self,
        asked: &Asked,
        acks: i16,
        transactional_id: Option<&str>,
        entry: &Entry,
        batch: Result<Batch, Refused>,
    ) -> Result<Appended, Refused> {
        let Some(topic_name) = entry.topic.as_deref() else {
            let by_id = asked.version >= 13;
            return Err(if by_id { ErrorCode::UNKNOWN_TOPIC_ID } else { ErrorCode::UNKNOWN_TOPIC_OR_PARTITION }.into());
        };
        if self.topics.partition(topic_name, entry.index).is_none() {
            return Err(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.into());
        }
        let batch = batch?;
        if asked.version < 7 && batch.header.codec() == Codec::Zstd {
            return Err(ErrorCode::UNSUPPORTED_COMPRESSION_TYPE.into());
        }
        if INTERNAL.contains(&topic_name) && asked.client_id.as_deref() != Some("__admin_client") {
            return Err(ErrorCode::INVALID_TOPIC_EXCEPTION.into());
        }
        let live = self.live();
        let is_full = self.topics.bytes().saturating_add(batch.bytes.len()) > self.log_bytes_max;
        let leader_here = self.topics.partition(topic_name, entry.index).and_then(|p| p.leader) == Some(asked.node);
        if !leader_here {
            return Err(ErrorCode::NOT_LEADER_OR_FOLLOWER.into());
        }
        if is_full {
            return Err(ErrorCode::KAFKA_STORAGE_ERROR.into());
        }
        if batch.header.is_transactional() {
            self.verify_transaction(asked, transactional_id.unwrap_or_default(), topic_name, entry.index, &batch)?;
        }
        let wall_ms = self.clock.wall_ms;
        let topic = self.topics.get_mut(topic_name).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        let rules = self.configs.rules(&topic.configs);
        let partition = topic.partition_mut(entry.index).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        if acks == -1 && partition.in_sync(&live).len() < rules.min_insync_replicas {
            return Err(ErrorCode::NOT_ENOUGH_REPLICAS.into());
        }
        let leader_epoch = partition.leader_epoch;
        partition.log.append(&batch, &rules.append, wall_ms, leader_epoch)
    }

    /// Whether the partition belongs to the producer's open transaction (KIP-890); 2.8.2 does not look.
    fn verify_transaction(
        &mut self,
        asked: &Asked,
        transactional_id: &str,
        topic: &str,
        index: i32,
        batch: &Batch,
    ) -> Result<(), ErrorCode> {
        let (producer_id, epoch) = (batch.header.producer_id, batch.header.producer_epoch);
        if self.version == BrokerVersion::V2_8_2 {
            return Ok(());
        }
        if asked.version >= 12 {
            // The newest producers leave it to the leader to add the partition.
            return self.add_to_transaction(transactional_id, producer_id, epoch, [(topic.to_owned(), index)]);
        }
        let is_ongoing = self
            .topics
            .partition(topic, index)
            .and_then(|partition| partition.log.producer(producer_id))
            .is_some_and(|state| state.epoch == epoch && state.transaction_start.is_some());
        if is_ongoing
            || !self.configs.is_on("transaction.partition.verification.enable")
            || self.transactions.contains(transactional_id, producer_id, epoch, topic, index)
        {
            return Ok(());
        }
        Err(if asked.version >= 11 { ErrorCode::TRANSACTION_ABORTABLE } else { ErrorCode::INVALID_TXN_STATE })
    }

    fn partition_answer(
        &self,
        asked: &Asked,
        entry: &Entry,
        result: Result<Appended, Refused>,
    ) -> PartitionProduceResponse {
        let answer = PartitionProduceResponse::default().with_index(entry.index);
        let partition = entry.topic.as_deref().and_then(|topic| self.topics.partition(topic, entry.index));
        match result {
            Ok(appended) => answer
                .with_base_offset(appended.base_offset)
                .with_log_append_time_ms(appended.log_append_time)
                .with_log_start_offset(partition.map_or(-1, |partition| partition.log.start_offset())),
            Err(refused) => {
                let start = partition.filter(|_| refused.by_log).map_or(-1, |partition| partition.log.start_offset());
                let mut answer = answer
                    .with_error_code(refused.code.0)
                    .with_base_offset(-1)
                    .with_log_append_time_ms(-1)
                    .with_log_start_offset(start);
                if asked.version >= 8 {
                    let message = match refused.code {
                        ErrorCode::INVALID_TXN_STATE => Some("the partition is not part of the transaction"),
                        _ => refused.message.filter(|_| !refused.records.is_empty()),
                    };
                    answer.error_message = message.map(StrBytes::from_static_str);
                    answer.record_errors = refused
                        .records
                        .into_iter()
                        .map(|(index, message)| {
                            BatchIndexAndErrorMessage::default()
                                .with_batch_index(index)
                                .with_batch_index_error_message(Some(StrBytes::from_static_str(message)))
                        })
                        .collect();
                }
                if asked.version >= 10
                    && refused.code == ErrorCode::NOT_LEADER_OR_FOLLOWER
                    && let Some((leader, epoch)) = partition.and_then(|p| Some((p.leader?, p.leader_epoch)))
                {
                    answer.current_leader =
                        LeaderIdAndEpoch::default().with_leader_id(leader.into()).with_leader_epoch(epoch);
                }
                answer
            }
        }
    }

    /// Addresses of the leaders that the answer names (KIP-951).
    fn add_endpoints(&self, asked: &Asked, response: &mut ProduceResponse) {
        if asked.version < 10 {
            return;
        }
        let named: std::collections::BTreeSet<i32> = response
            .responses
            .iter()
            .flat_map(|topic| &topic.partition_responses)
            .map(|partition| partition.current_leader.leader_id.0)
            .filter(|leader| *leader >= 0)
            .collect();
        response.node_endpoints = named
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
}

/// All transactional batches of a request are one producer's.
fn mixes_producers(batches: &[Result<Batch, Refused>]) -> bool {
    let mut producers = batches
        .iter()
        .flatten()
        .filter(|batch| batch.header.is_transactional())
        .map(|batch| (batch.header.producer_id, batch.header.producer_epoch));
    let first = producers.next();
    producers.any(|producer| Some(producer) != first)
}
