//! DescribeConfigs and IncrementalAlterConfigs.

use std::collections::BTreeMap;

use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResponse, DescribeConfigsResult,
};
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::incremental_alter_configs_response::{
    AlterConfigsResourceResponse, IncrementalAlterConfigsResponse,
};
use kafka_protocol::messages::{DescribeConfigsRequest, IncrementalAlterConfigsRequest};
use kafka_protocol::protocol::StrBytes;

use crate::protocol::ErrorCode;
use crate::testkit::engine::Cluster;
use crate::testkit::engine::settings::Effective;

const TOPIC: i8 = 2;
const BROKER: i8 = 4;

/// Operations of IncrementalAlterConfigs.
const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

impl Cluster {
    pub(super) fn describe_configs(&self, request: DescribeConfigsRequest) -> DescribeConfigsResponse {
        let results = request.resources.into_iter().map(|resource| {
            let answer = DescribeConfigsResult::default()
                .with_resource_type(resource.resource_type)
                .with_resource_name(resource.resource_name.clone());
            match self.effective(&resource) {
                Ok(configs) => {
                    let is_wanted = |effective: &Effective| {
                        resource
                            .configuration_keys
                            .as_ref()
                            .is_none_or(|keys| keys.iter().any(|key| key.as_str() == effective.key.name))
                    };
                    answer.with_configs(configs.into_iter().filter(is_wanted).map(described).collect())
                }
                Err((code, text)) => {
                    answer.with_error_code(code.0).with_error_message(Some(StrBytes::from_static_str(text)))
                }
            }
        });
        DescribeConfigsResponse::default().with_results(results.collect())
    }

    fn effective(&self, resource: &DescribeConfigsResource) -> Result<Vec<Effective>, (ErrorCode, &'static str)> {
        match resource.resource_type {
            TOPIC => match self.topics.get(&resource.resource_name) {
                Some(topic) => Ok(self.configs.describe_topic(&topic.configs)),
                None => Err((ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")),
            },
            // The empty name is the default of all brokers.
            BROKER => Ok(self.configs.describe()),
            _ => Err((ErrorCode::INVALID_REQUEST, "Unsupported resource type.")),
        }
    }

    pub(super) fn alter_configs(&mut self, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse {
        let mut responses = Vec::new();
        for resource in request.resources {
            let answer = AlterConfigsResourceResponse::default()
                .with_resource_type(resource.resource_type)
                .with_resource_name(resource.resource_name.clone());
            responses.push(match self.altered(&resource) {
                Ok(changed) => {
                    if !request.validate_only {
                        match self.topics.get_mut(&resource.resource_name).filter(|_| resource.resource_type == TOPIC) {
                            Some(topic) => topic.configs = changed,
                            None => self.configs.dynamic = changed,
                        }
                    }
                    answer
                }
                Err((code, text)) => {
                    answer.with_error_code(code.0).with_error_message(Some(StrBytes::from_string(text)))
                }
            });
        }
        IncrementalAlterConfigsResponse::default().with_responses(responses)
    }

    /// The resource's own settings as they would be.
    fn altered(&self, resource: &AlterConfigsResource) -> Result<BTreeMap<String, String>, (ErrorCode, String)> {
        let mut own = match resource.resource_type {
            TOPIC => match self.topics.get(&resource.resource_name) {
                Some(topic) => topic.configs.clone(),
                None => {
                    let text = "This server does not host this topic-partition.";
                    return Err((ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, text.to_owned()));
                }
            },
            BROKER => self.configs.dynamic.clone(),
            _ => return Err((ErrorCode::INVALID_REQUEST, "Unsupported resource type.".to_owned())),
        };
        for change in &resource.configs {
            let name = change.name.as_str();
            let is_known = if resource.resource_type == TOPIC {
                self.configs.is_topic_key(name)
            } else {
                self.configs.is_known(name)
            };
            if !is_known {
                return Err((ErrorCode::INVALID_CONFIG, format!("Unknown config name: {name}")));
            }
            let now = self.list_value(resource, &own, name);
            let Some(value) = changed_value(change, &now)? else {
                own.remove(name);
                continue;
            };
            if resource.resource_type == TOPIC
                && let Some(text) = self.configs.fault_of_topic_value(name, &value)
            {
                return Err((ErrorCode::INVALID_CONFIG, text));
            }
            own.insert(name.to_owned(), value);
        }
        Ok(own)
    }

    /// The value that an append or subtract starts from.
    fn list_value(&self, resource: &AlterConfigsResource, own: &BTreeMap<String, String>, name: &str) -> String {
        let all =
            if resource.resource_type == TOPIC { self.configs.describe_topic(own) } else { self.configs.describe() };
        all.into_iter()
            .find(|effective| effective.key.name == name)
            .map(|effective| effective.value)
            .unwrap_or_default()
    }
}

fn changed_value(change: &AlterableConfig, now: &str) -> Result<Option<String>, (ErrorCode, String)> {
    let value = change.value.as_ref().map(|value| value.to_string());
    let listed = || now.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned);
    let items = |value: &str| value.split(',').map(|item| item.trim().to_owned()).collect::<Vec<_>>();
    match (change.config_operation, value) {
        (DELETE, _) => Ok(None),
        (SET, Some(value)) => Ok(Some(value)),
        (APPEND, Some(value)) => {
            let mut list: Vec<String> = listed().collect();
            list.extend(items(&value).into_iter().filter(|item| !listed().any(|known| known == *item)));
            Ok(Some(list.join(",")))
        }
        (SUBTRACT, Some(value)) => {
            let gone = items(&value);
            Ok(Some(listed().filter(|item| !gone.contains(item)).collect::<Vec<_>>().join(",")))
        }
        _ => Err((ErrorCode::INVALID_REQUEST, format!("Invalid operation for {}", change.name.as_str()))),
    }
}

fn described(effective: Effective) -> DescribeConfigsResourceResult {
    DescribeConfigsResourceResult::default()
        .with_name(StrBytes::from_static_str(effective.key.name))
        .with_value(Some(StrBytes::from_string(effective.value)))
        .with_config_source(effective.source)
        .with_config_type(effective.key.kind as i8)
}
