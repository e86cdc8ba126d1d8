//! Metadata and DescribeCluster.

use kafka_protocol::messages::describe_cluster_response::{DescribeClusterBroker, DescribeClusterResponse};
use kafka_protocol::messages::metadata_request::MetadataRequest;
use kafka_protocol::messages::metadata_response::{
    MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{BrokerId, DescribeClusterRequest};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::Asked;
use crate::protocol::ErrorCode;
use crate::testkit::BrokerVersion;
use crate::testkit::engine::Cluster;
use crate::testkit::engine::topics::{Partition, Topic};

/// "Operations were not asked for."
const NO_OPERATIONS: i32 = i32::MIN;

impl Cluster {
    pub(super) fn metadata(&mut self, asked: &Asked, request: MetadataRequest) -> MetadataResponse {
        let brokers = self.nodes.iter().filter(|(_, node)| node.is_up).map(|(id, node)| {
            MetadataResponseBroker::default()
                .with_node_id((*id).into())
                .with_host(StrBytes::from_string(node.host.clone()))
                .with_port(node.port.into())
        });
        let mut response = MetadataResponse::default()
            .with_brokers(brokers.collect())
            .with_controller_id(self.controller().into())
            .with_cluster_authorized_operations(NO_OPERATIONS);
        if asked.version >= 2 {
            response.cluster_id = Some(StrBytes::from_string(self.cluster_id.clone()));
        }
        // An empty list means all in version 0, and none afterwards.
        let listed = request.topics.filter(|topics| asked.version > 0 || !topics.is_empty());
        response.topics = match listed {
            None => self.topics.iter().map(|(name, topic)| self.described(asked, name, topic)).collect(),
            Some(topics) => topics
                .into_iter()
                .map(|topic| match topic.name {
                    Some(name) => self.topic_by_name(asked, &name.0, request.allow_auto_topic_creation),
                    None => self.topic_by_id(asked, topic.topic_id),
                })
                .collect(),
        };
        response
    }

    fn topic_by_name(&mut self, asked: &Asked, name: &str, may_create: bool) -> MetadataResponseTopic {
        if self.topics.get(name).is_none() && may_create && self.configs.is_on("auto.create.topics.enable") {
            let partitions = usize::try_from(self.configs.number("num.partitions", 1)).unwrap_or(1);
            let factor = usize::try_from(self.configs.number("default.replication.factor", 1)).unwrap_or(1);
            // A name that cannot be is reported below as unknown.
            let _ = self.create_topic(name, partitions, factor, &[]);
        }
        match self.topics.get(name) {
            Some(topic) => self.described(asked, name, topic),
            None => {
                let code = if super::super::topics::is_valid_name(name) {
                    ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
                } else {
                    ErrorCode::INVALID_TOPIC_EXCEPTION
                };
                missing(code).with_name(Some(StrBytes::from_string(name.to_owned()).into()))
            }
        }
    }

    fn topic_by_id(&self, asked: &Asked, id: Uuid) -> MetadataResponseTopic {
        let found = self.topics.name_of(id).and_then(|name| Some((name, self.topics.get(name)?)));
        match found {
            Some((name, topic)) => self.described(asked, name, topic),
            None => missing(ErrorCode::UNKNOWN_TOPIC_ID).with_topic_id(id).with_name(None),
        }
    }

    fn described(&self, asked: &Asked, name: &str, topic: &Topic) -> MetadataResponseTopic {
        let live = self.live();
        let partition = |(index, partition): (usize, &Partition)| {
            let nodes = |ids: Vec<i32>| ids.into_iter().map(BrokerId).collect::<Vec<_>>();
            let in_sync = partition.in_sync(&live);
            let offline = partition.replicas.iter().copied().filter(|node| !live.contains(node)).collect();
            let mut answer = MetadataResponsePartition::default()
                .with_partition_index(i32::try_from(index).unwrap_or(i32::MAX))
                .with_leader_id(self.leader_lie.or(partition.leader).unwrap_or(-1).into())
                .with_replica_nodes(nodes(partition.replicas.clone()))
                .with_isr_nodes(nodes(in_sync));
            if partition.leader.is_none() {
                answer.error_code = ErrorCode::LEADER_NOT_AVAILABLE.0;
            }
            if asked.version >= 7 {
                answer.leader_epoch = partition.leader_epoch;
            }
            if asked.version >= 5 {
                answer.offline_replicas = nodes(offline);
            }
            answer
        };
        let mut answer = missing(ErrorCode::NONE)
            .with_name(Some(StrBytes::from_string(name.to_owned()).into()))
            .with_is_internal(name.starts_with("__consumer_offsets") || name == "__transaction_state")
            .with_partitions(topic.partitions.iter().enumerate().map(partition).collect());
        if asked.version >= 10 {
            answer.topic_id = topic.id;
        }
        answer
    }

    pub(super) fn describe_cluster(
        &self,
        _asked: &Asked,
        _request: &DescribeClusterRequest,
    ) -> DescribeClusterResponse {
        let brokers = self.nodes.iter().filter(|(_, node)| node.is_up).map(|(id, node)| {
            DescribeClusterBroker::default()
                .with_broker_id((*id).into())
                .with_host(StrBytes::from_string(node.host.clone()))
                .with_port(node.port.into())
        });
        DescribeClusterResponse::default()
            .with_cluster_id(StrBytes::from_string(self.cluster_id.clone()))
            .with_controller_id(self.controller().into())
            .with_brokers(brokers.collect())
            .with_cluster_authorized_operations(NO_OPERATIONS)
    }

    /// Only the ZooKeeper broker sends clients to the controller; KRaft brokers forward.
    pub(super) fn is_controller_for(&self, asked: &Asked) -> bool {
        self.version != BrokerVersion::V2_8_2 || asked.node == self.controller()
    }
}

fn missing(code: ErrorCode) -> MetadataResponseTopic {
    MetadataResponseTopic::default().with_error_code(code.0).with_topic_authorized_operations(NO_OPERATIONS)
}
