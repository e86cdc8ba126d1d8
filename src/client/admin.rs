//! Creating and growing topics, reading configurations.

use std::collections::BTreeMap;

use kafka_protocol::{
    messages::{
        CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest, DescribeConfigsRequest,
        create_partitions_request::CreatePartitionsTopic,
        create_topics_request::{CreatableTopic, CreatableTopicConfig},
        delete_topics_request::DeleteTopicState,
        describe_configs_request::DescribeConfigsResource,
    },
    protocol::StrBytes,
};

use super::{
    cluster::{Cluster, wire_topic},
    error::ClientError,
};
use crate::protocol::{BrokerId, ErrorCode, TopicId, TopicName};

/// A topic to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTopic {
    /// Its name on the cluster it is created on.
    pub name: TopicName,
    /// Number of partitions.
    pub partitions: i32,
    /// Copies of each; -1 for the broker's default.
    pub replication_factor: i16,
    /// Settings that differ from the broker's defaults.
    pub configs: BTreeMap<String, String>,
}

/// Effective settings of one topic or broker, by name. Sensitive and unset ones are left out.
pub type TopicConfigs = BTreeMap<String, String>;

/// Kafka's numbers for what has a configuration (`ConfigResource.Type`).
const RESOURCE_TOPIC: i8 = 2;
const RESOURCE_BROKER: i8 = 4;
/// Topics per request, so that an answer stays well below the frame limit.
const TOPICS_PER_REQUEST: usize = 200;

impl Cluster {
    /// Creates topics. "Already exists" counts as done. One answer per topic; a failed one does not stop the others.
    ///
    /// # Errors
    /// The outer error if the controller could not be asked at all.
    pub async fn create_topics(
        &self,
        topics: &[NewTopic],
    ) -> Result<Vec<(TopicName, Result<(), ClientError>)>, ClientError> {
        let mut outcomes = Vec::new();
        for chunk in topics.chunks(TOPICS_PER_REQUEST) {
            let connection = self.controller().await?;
            let mut request = CreateTopicsRequest::default();
            request.timeout_ms = millis(self.request_timeout());
            request.topics = chunk
                .iter()
                .map(|topic| {
                    let configs = topic
                        .configs
                        .iter()
                        .map(|(name, value)| {
                            CreatableTopicConfig::default()
                                .with_name(StrBytes::from_string(name.clone()))
                                .with_value(Some(StrBytes::from_string(value.clone())))
                        })
                        .collect();
                    CreatableTopic::default()
                        .with_name(wire_topic(&topic.name))
                        .with_num_partitions(topic.partitions)
                        .with_replication_factor(topic.replication_factor)
                        .with_configs(configs)
                })
                .collect();
            let answer = connection.request(&request, self.request_timeout()).await.map_err(|error| {
                self.forget(&connection);
                ClientError::Request { cluster: self.alias().clone(), error }
            })?;
            for topic in answer.topics {
                let name = TopicName::new(topic.name.0.as_str());
                let code = ErrorCode(topic.error_code);
                let outcome = if code.is_none() || code == ErrorCode::TOPIC_ALREADY_EXISTS {
                    Ok(())
                } else {
                    let message = topic.error_message.map(|message| message.to_string());
                    Err(self.refused(&format!("to create topic {}", name.as_str()), code, message))
                };
                outcomes.push((name, outcome));
            }
        }
        Ok(outcomes)
    }

    /// Grows topics to the given numbers of partitions.
    ///
    /// # Errors
    /// As [`Self::create_topics`].
    pub async fn create_partitions(
        &self,
        topics: &[(TopicName, i32)],
    ) -> Result<Vec<(TopicName, Result<(), ClientError>)>, ClientError> {
        let mut outcomes = Vec::new();
        for chunk in topics.chunks(TOPICS_PER_REQUEST) {
            let connection = self.controller().await?;
            let mut request = CreatePartitionsRequest::default();
            request.timeout_ms = millis(self.request_timeout());
            request.topics = chunk
                .iter()
                .map(|(name, count)| {
                    CreatePartitionsTopic::default()
                        .with_name(wire_topic(name))
                        .with_count(*count)
                        .with_assignments(None)
                })
                .collect();
            let answer = connection.request(&request, self.request_timeout()).await.map_err(|error| {
                self.forget(&connection);
                ClientError::Request { cluster: self.alias().clone(), error }
            })?;
            for result in answer.results {
                let name = TopicName::new(result.name.0.as_str());
                let code = ErrorCode(result.error_code);
                let outcome = if code.is_none() {
                    Ok(())
                } else {
                    let message = result.error_message.map(|message| message.to_string());
                    Err(self.refused(&format!("to add partitions to topic {}", name.as_str()), code, message))
                };
                outcomes.push((name, outcome));
            }
        }
        Ok(outcomes)
    }

    /// Deletes the topic that has this id, and no other one that took its name meanwhile. "Is not there" counts as done.
    ///
    /// # Errors
    /// If the controller could not be asked, refuses, or does not know topic ids (before 2.8).
    pub async fn delete_topic(&self, name: &TopicName, id: TopicId) -> Result<(), ClientError> {
        /// The first version that takes ids.
        const VERSION_MIN: i16 = 6;
        let failed = |error| ClientError::Request { cluster: self.alias().clone(), error };
        let connection = self.controller().await?;
        let version = connection.negotiate::<DeleteTopicsRequest>(i16::MAX).map_err(failed)?;
        let what = format!("to delete topic {}", name.as_str());
        if version < VERSION_MIN || id.is_zero() {
            let message = "the cluster has no topic ids, so another topic of this name could be hit".to_owned();
            return Err(self.refused(&what, ErrorCode::UNSUPPORTED_VERSION, Some(message)));
        }
        let mut request = DeleteTopicsRequest::default();
        request.timeout_ms = millis(self.request_timeout());
        request.topics = vec![DeleteTopicState::default().with_name(None).with_topic_id(id.into())];
        let answer = connection.request_at(version, &request, self.request_timeout()).await.map_err(|error| {
            self.forget(&connection);
            failed(error)
        })?;
        let result = answer.responses.into_iter().next();
        let code = result.as_ref().map_or(ErrorCode::UNKNOWN_SERVER_ERROR, |result| ErrorCode(result.error_code));
        if code.is_none() || code == ErrorCode::UNKNOWN_TOPIC_ID || code == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION {
            return Ok(());
        }
        let message = result.and_then(|result| result.error_message).map(|message| message.to_string());
        Err(self.refused(&what, code, message))
    }

    /// The named settings of topics, as in force. A topic that refuses is left out.
    ///
    /// # Errors
    /// If no broker could be asked.
    pub async fn topic_configs(
        &self,
        topics: &[TopicName],
        keys: &[&'static str],
    ) -> Result<BTreeMap<TopicName, TopicConfigs>, ClientError> {
        let mut found = BTreeMap::new();
        for chunk in topics.chunks(TOPICS_PER_REQUEST) {
            let resources = chunk.iter().map(|topic| resource(RESOURCE_TOPIC, topic.as_str(), keys)).collect();
            let connection = self.any().await?;
            let mut request = DescribeConfigsRequest::default();
            request.resources = resources;
            let answer = connection.request(&request, self.answer_patience()).await.map_err(|error| {
                self.forget(&connection);
                ClientError::Request { cluster: self.alias().clone(), error }
            })?;
            for result in answer.results {
                if ErrorCode(result.error_code).is_none() {
                    found.insert(TopicName::new(result.resource_name.as_str()), values(result.configs));
                }
            }
        }
        Ok(found)
    }

    /// The named settings of one broker, as in force; empty if it refuses (it asks for rights we may not have).
    ///
    /// # Errors
    /// If the broker could not be asked.
    pub async fn broker_configs(&self, broker: BrokerId, keys: &[&'static str]) -> Result<TopicConfigs, ClientError> {
        let connection = self.broker(broker).await?;
        let mut request = DescribeConfigsRequest::default();
        request.resources = vec![resource(RESOURCE_BROKER, &broker.0.to_string(), keys)];
        let answer = connection.request(&request, self.answer_patience()).await.map_err(|error| {
            self.forget(&connection);
            ClientError::Request { cluster: self.alias().clone(), error }
        })?;
        Ok(answer
            .results
            .into_iter()
            .filter(|result| ErrorCode(result.error_code).is_none())
            .flat_map(|result| values(result.configs))
            .collect())
    }
}

fn resource(kind: i8, name: &str, keys: &[&'static str]) -> DescribeConfigsResource {
    DescribeConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(StrBytes::from_string(name.to_owned()))
        .with_configuration_keys(Some(keys.iter().map(|key| StrBytes::from_static_str(key)).collect()))
}

fn values(
    configs: Vec<kafka_protocol::messages::describe_configs_response::DescribeConfigsResourceResult>,
) -> TopicConfigs {
    configs.into_iter().filter_map(|config| Some((config.name.to_string(), config.value?.to_string()))).collect()
}

/// A duration as Kafka's millisecond fields take it.
pub(super) fn millis(duration: std::time::Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}
