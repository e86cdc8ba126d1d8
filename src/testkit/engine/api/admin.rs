//! CreateTopics, DeleteTopics, CreatePartitions.

use std::collections::BTreeMap;

use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_partitions_response::{CreatePartitionsResponse, CreatePartitionsTopicResult};
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::create_topics_response::{
    CreatableTopicConfigs, CreatableTopicResult, CreateTopicsResponse,
};
use kafka_protocol::messages::delete_topics_response::{DeletableTopicResult, DeleteTopicsResponse};
use kafka_protocol::messages::{CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::Asked;
use crate::protocol::ErrorCode;
use crate::testkit::engine::Cluster;
use crate::testkit::engine::topics::{is_valid_name, place};

/// A code with the text of the answer.
type Fault = (ErrorCode, String);

fn fault<T>(code: ErrorCode, text: &str) -> Result<T, Fault> {
    Err((code, text.to_owned()))
}

/// Most partitions of a topic; a real cluster's limit is its memory.
const PARTITIONS_MAX: usize = 100_000;

impl Cluster {
    pub(super) fn create_topics(&mut self, asked: &Asked, request: CreateTopicsRequest) -> CreateTopicsResponse {
        let is_controller = self.is_controller_for(asked);
        let topics = request.topics.into_iter().map(|topic| {
            let result = if is_controller {
                self.create_one(&topic, request.validate_only)
            } else {
                fault(ErrorCode::NOT_CONTROLLER, "This is not the correct controller for this cluster.")
            };
            let answer = CreatableTopicResult::default().with_name(topic.name.clone());
            match result {
                Ok((id, partitions, factor)) => self.created(asked, answer, &topic, id, partitions, factor),
                Err((code, text)) => answer
                    .with_error_code(code.0)
                    .with_error_message(Some(StrBytes::from_string(text)))
                    .with_num_partitions(-1)
                    .with_replication_factor(-1)
                    .with_configs(Some(Vec::new())),
            }
        });
        let response = CreateTopicsResponse::default().with_topics(topics.collect());
        self.is_dirty = true;
        response
    }

    fn created(
        &self,
        asked: &Asked,
        answer: CreatableTopicResult,
        topic: &CreatableTopic,
        id: Uuid,
        partitions: usize,
        factor: usize,
    ) -> CreatableTopicResult {
        let mut answer = answer.with_error_message(None);
        if asked.version >= 7 {
            answer.topic_id = id;
        }
        if asked.version >= 5 {
            let configs = self.configs.describe_topic(&overrides(topic)).into_iter().map(|effective| {
                CreatableTopicConfigs::default()
                    .with_name(StrBytes::from_static_str(effective.key.name))
                    .with_value(Some(StrBytes::from_string(effective.value)))
                    .with_config_source(effective.source)
            });
            answer.configs = Some(configs.collect());
            answer.num_partitions = i32::try_from(partitions).unwrap_or(i32::MAX);
            answer.replication_factor = i16::try_from(factor).unwrap_or(i16::MAX);
        }
        answer
    }

    fn create_one(&mut self, topic: &CreatableTopic, validate_only: bool) -> Result<(Uuid, usize, usize), Fault> {
        let name = topic.name.0.as_str();
        if !is_valid_name(name) {
            return fault(ErrorCode::INVALID_TOPIC_EXCEPTION, "The topic name is not valid.");
        }
        if self.topics.get(name).is_some() {
            return fault(ErrorCode::TOPIC_ALREADY_EXISTS, &format!("Topic '{name}' already exists."));
        }
        let overrides = overrides(topic);
        for (key, value) in &overrides {
            if let Some(text) = self.configs.fault_of_topic_value(key, value) {
                return fault(ErrorCode::INVALID_CONFIG, &text);
            }
        }
        let replicas = self.placement(topic)?;
        let (partitions, factor) = (replicas.len(), replicas.first().map_or(0, Vec::len));
        if validate_only {
            return Ok((Uuid::nil(), partitions, factor));
        }
        let live = self.live();
        let created = self.topics.create(name, replicas, overrides, &live);
        let created = created.map_err(|code| (code, format!("Topic '{name}' already exists.")))?;
        Ok((created.id, partitions, factor))
    }

    fn placement(&self, topic: &CreatableTopic) -> Result<Vec<Vec<i32>>, Fault> {
        let nodes = i32::try_from(self.nodes.len()).unwrap_or(1);
        if !topic.assignments.is_empty() {
            let mut assigned: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
            for assignment in &topic.assignments {
                let brokers: Vec<i32> = assignment.broker_ids.iter().map(|broker| broker.0).collect();
                if brokers.is_empty() || brokers.iter().any(|broker| !self.nodes.contains_key(broker)) {
                    return fault(ErrorCode::INVALID_REPLICA_ASSIGNMENT, "The assignment names an unknown broker.");
                }
                assigned.insert(assignment.partition_index, brokers);
            }
            let is_dense = (0..).zip(assigned.keys()).all(|(expected, index)| expected == *index);
            return if is_dense {
                Ok(assigned.into_values().collect())
            } else {
                fault(ErrorCode::INVALID_REPLICA_ASSIGNMENT, "Partitions must be a consecutive 0-based sequence.")
            };
        }
        let default = |name, given: i64| if given == -1 { self.configs.number(name, 1) } else { given };
        let partitions = usize::try_from(default("num.partitions", topic.num_partitions.into())).unwrap_or(0);
        if !(1..=PARTITIONS_MAX).contains(&partitions) {
            return fault(
                ErrorCode::INVALID_PARTITIONS,
                "Number of partitions was set to an invalid non-positive value.",
            );
        }
        let factor = default("default.replication.factor", topic.replication_factor.into());
        if factor < 1 || factor > i64::from(nodes) {
            return fault(
                ErrorCode::INVALID_REPLICATION_FACTOR,
                &format!("Unable to replicate the partition {factor} time(s): only {nodes} broker(s) are registered."),
            );
        }
        let factor = usize::try_from(factor).unwrap_or(1);
        Ok((0..partitions).map(|index| place(index, factor, nodes)).collect())
    }

    pub(super) fn delete_topics(&mut self, asked: &Asked, request: DeleteTopicsRequest) -> DeleteTopicsResponse {
        let named = request.topic_names.into_iter().map(|name| (Some(name), Uuid::nil()));
        let wanted: Vec<(Option<TopicName>, Uuid)> =
            request.topics.into_iter().map(|topic| (topic.name, topic.topic_id)).chain(named).collect();
        let mut responses = Vec::new();
        for (name, id) in wanted {
            let answer = DeletableTopicResult::default();
            let known = match &name {
                Some(name) => self.topics.get(&name.0).map(|topic| (name.0.to_string(), topic.id)),
                None => self.topics.name_of(id).map(|name| (name.to_owned(), id)),
            };
            responses.push(match known {
                _ if !self.is_controller_for(asked) => {
                    answer.with_name(name).with_topic_id(id).with_error_code(ErrorCode::NOT_CONTROLLER.0)
                }
                Some((known, id)) => {
                    self.topics.delete(&known);
                    self.groups.topic_deleted(&known);
                    let answer = answer.with_name(Some(StrBytes::from_string(known).into()));
                    if asked.version >= 6 { answer.with_topic_id(id) } else { answer }
                }
                None => {
                    let code = match name {
                        Some(_) => ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                        None => ErrorCode::UNKNOWN_TOPIC_ID,
                    };
                    answer.with_name(name).with_topic_id(id).with_error_code(code.0)
                }
            });
        }
        self.is_dirty = true;
        DeleteTopicsResponse::default().with_responses(responses)
    }

    pub(super) fn create_partitions(
        &mut self,
        asked: &Asked,
        request: CreatePartitionsRequest,
    ) -> CreatePartitionsResponse {
        let is_controller = self.is_controller_for(asked);
        let results = request.topics.into_iter().map(|topic| {
            let result = if is_controller {
                self.grow(&topic, request.validate_only)
            } else {
                fault(ErrorCode::NOT_CONTROLLER, "This is not the correct controller for this cluster.")
            };
            let answer = CreatePartitionsTopicResult::default().with_name(topic.name);
            match result {
                Ok(()) => answer,
                Err((code, text)) => {
                    answer.with_error_code(code.0).with_error_message(Some(StrBytes::from_string(text)))
                }
            }
        });
        let response = CreatePartitionsResponse::default().with_results(results.collect());
        self.is_dirty = true;
        response
    }

    fn grow(&mut self, wanted: &CreatePartitionsTopic, validate_only: bool) -> Result<(), Fault> {
        let name = wanted.name.0.as_str();
        let Some(topic) = self.topics.get(name) else {
            return fault(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.");
        };
        let present = topic.partitions.len();
        let count = usize::try_from(wanted.count).unwrap_or(0);
        if count <= present || count > PARTITIONS_MAX {
            return fault(
                ErrorCode::INVALID_PARTITIONS,
                &format!("The topic {name} currently has {present} partition(s); {count} would not be an increase."),
            );
        }
        let nodes = i32::try_from(self.nodes.len()).unwrap_or(1);
        let factor = usize::try_from(topic.replication_factor()).unwrap_or(1);
        let added = match &wanted.assignments {
            None => (present..count).map(|index| place(index, factor, nodes)).collect(),
            Some(assignments) => assignments
                .iter()
                .map(|a| a.broker_ids.iter().map(|broker| broker.0).collect())
                .collect::<Vec<Vec<i32>>>(),
        };
        if added.len() != count - present {
            return fault(ErrorCode::INVALID_REPLICA_ASSIGNMENT, "The assignments do not match the new partitions.");
        }
        if !validate_only {
            let live = self.live();
            self.topics.add_partitions(name, added, &live);
        }
        Ok(())
    }
}

fn overrides(topic: &CreatableTopic) -> BTreeMap<String, String> {
    let entry = |config: &kafka_protocol::messages::create_topics_request::CreatableTopicConfig| {
        Some((config.name.to_string(), config.value.as_ref()?.to_string()))
    };
    topic.configs.iter().filter_map(entry).collect()
}
