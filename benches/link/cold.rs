//! What is asked at the start, once a second, and at the end: a cluster of one broker and a group of one member, answered
//! through `kafka-protocol`.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use bytes::{Bytes, BytesMut};
use kafka_protocol::{
    messages::{
        ApiKey, ApiVersionsRequest, ApiVersionsResponse, BrokerId, CreatePartitionsRequest, CreateTopicsRequest,
        CreateTopicsResponse, DescribeConfigsRequest, DescribeConfigsResponse, DescribeProducersRequest,
        DescribeProducersResponse, FindCoordinatorRequest, FindCoordinatorResponse, HeartbeatRequest, JoinGroupRequest,
        JoinGroupResponse, LeaveGroupRequest, ListOffsetsRequest, ListOffsetsResponse, MetadataRequest,
        MetadataResponse, OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse,
        ProducerId, RequestHeader, ResponseHeader, SyncGroupRequest, SyncGroupResponse, TopicName,
        api_versions_response::ApiVersion,
        create_topics_response::CreatableTopicResult,
        describe_configs_response::{DescribeConfigsResourceResult, DescribeConfigsResult},
        describe_producers_response::{PartitionResponse, ProducerState, TopicResponse},
        find_coordinator_response::Coordinator,
        join_group_response::JoinGroupResponseMember,
        list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse},
        metadata_response::{MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic},
        offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic},
        offset_fetch_response::{OffsetFetchResponseGroup, OffsetFetchResponsePartitions, OffsetFetchResponseTopics},
    },
    protocol::{Decodable, Encodable, HeaderVersion, Request as Speaks, StrBytes},
};
use uuid::Uuid;

use crate::server::{Reply, Request};

/// First and last version of each API. Produce and Fetch are the forms that the hot paths read by hand.
const VERSIONS: &[(ApiKey, i16, i16)] = &[
    (ApiKey::Produce, 9, 12),
    (ApiKey::Fetch, 12, 17),
    (ApiKey::ListOffsets, 1, 7),
    (ApiKey::Metadata, 0, 12),
    (ApiKey::OffsetCommit, 2, 8),
    (ApiKey::OffsetFetch, 8, 8),
    (ApiKey::FindCoordinator, 4, 4),
    (ApiKey::JoinGroup, 5, 9),
    (ApiKey::Heartbeat, 0, 4),
    (ApiKey::LeaveGroup, 0, 5),
    (ApiKey::SyncGroup, 0, 5),
    (ApiKey::ApiVersions, 0, 3),
    (ApiKey::CreateTopics, 2, 7),
    (ApiKey::DescribeConfigs, 1, 4),
    (ApiKey::CreatePartitions, 0, 3),
    (ApiKey::DescribeProducers, 0, 0),
];

/// One partition's log: no data, only where it ends and who wrote last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Log {
    pub(crate) end: i64,
    pub(crate) producer: Option<(i64, i16, i32)>,
}

/// A topic and its logs.
pub(crate) struct Topic {
    pub(crate) id: Uuid,
    pub(crate) logs: Vec<Log>,
}

/// A cluster of one broker.
#[derive(Default)]
pub(crate) struct Cluster {
    name: &'static str,
    pub(crate) port: u16,
    pub(crate) topics: BTreeMap<String, Topic>,
    /// By group.
    commits: BTreeMap<String, Commits>,
}

/// Offset and text, by topic and partition.
type Commits = BTreeMap<(String, i32), (i64, Option<StrBytes>)>;

impl Cluster {
    /// A cluster without topics.
    pub(crate) fn named(name: &'static str) -> Self {
        Self { name, ..Self::default() }
    }

    pub(crate) fn create(&mut self, name: &str, partitions: usize, end: i64) -> Uuid {
        let number = self.topics.len() as u128 + 1;
        let id = Uuid::from_u128(number << 64 | self.name.len() as u128);
        let logs = vec![Log { end, producer: None }; partitions];
        self.topics.insert(name.to_owned(), Topic { id, logs });
        id
    }
}

/// Shared by the connections of a peer.
pub(crate) type Shared = Arc<Mutex<Cluster>>;

pub(crate) fn lock(shared: &Shared) -> MutexGuard<'_, Cluster> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers everything but Produce and Fetch.
pub(crate) fn answer(shared: &Shared, request: &Request<'_>, reply: &mut Reply<'_>) -> Result<(), String> {
    let api = ApiKey::try_from(request.api_key).map_err(|()| format!("an unknown API, {}", request.api_key))?;
    let mut cluster = lock(shared);
    let cluster = &mut *cluster;
    let mut call = Call { request, reply };
    match api {
        ApiKey::ApiVersions => call.with(|_: ApiVersionsRequest| versions()),
        ApiKey::Metadata => call.with(|asked| metadata(cluster, asked)),
        ApiKey::ListOffsets => call.with(|asked| list_offsets(cluster, asked)),
        ApiKey::FindCoordinator => call.with(|asked: FindCoordinatorRequest| {
            let host = || StrBytes::from_static_str("127.0.0.1");
            let port = i32::from(cluster.port);
            let named = |key: StrBytes| Coordinator::default().with_key(key).with_host(host()).with_port(port);
            FindCoordinatorResponse::default()
                .with_coordinators(asked.coordinator_keys.into_iter().map(named).collect())
        }),
        ApiKey::JoinGroup => call.with(join),
        ApiKey::SyncGroup => call.with(|asked: SyncGroupRequest| {
            let given = asked.assignments.into_iter().find(|one| one.member_id == asked.member_id);
            SyncGroupResponse::default()
                .with_protocol_type(asked.protocol_type)
                .with_protocol_name(asked.protocol_name)
                .with_assignment(given.map(|one| one.assignment).unwrap_or_default())
        }),
        ApiKey::Heartbeat => call.with(|_: HeartbeatRequest| Default::default()),
        ApiKey::LeaveGroup => call.with(|_: LeaveGroupRequest| Default::default()),
        ApiKey::OffsetCommit => call.with(|asked| commit(cluster, asked)),
        ApiKey::OffsetFetch => call.with(|asked| committed(cluster, asked)),
        ApiKey::CreateTopics => call.with(|asked| create_topics(cluster, asked)),
        ApiKey::CreatePartitions => call.with(|_: CreatePartitionsRequest| Default::default()),
        ApiKey::DescribeConfigs => call.with(describe_configs),
        ApiKey::DescribeProducers => call.with(|asked| describe_producers(cluster, asked)),
        other => Err(format!("{other:?} v{} is not spoken here", request.version)),
    }
}

struct Call<'a, 'b, 'c> {
    request: &'a Request<'a>,
    reply: &'b mut Reply<'c>,
}

impl Call<'_, '_, '_> {
    fn with<R>(&mut self, answer: impl FnOnce(R) -> R::Response) -> Result<(), String>
    where
        R: Speaks + Decodable + HeaderVersion,
        R::Response: Encodable + HeaderVersion,
    {
        let version = self.request.version;
        let broken = |error: &dyn std::fmt::Display| format!("API {} v{version}: {error}", R::KEY);
        let mut frame = Bytes::copy_from_slice(self.request.frame);
        RequestHeader::decode(&mut frame, R::header_version(version)).map_err(|error| broken(&error))?;
        let asked = R::decode(&mut frame, version).map_err(|error| broken(&error))?;
        let mut out = BytesMut::new();
        ResponseHeader::default()
            .with_correlation_id(self.request.correlation_id)
            .encode(&mut out, R::Response::header_version(version))
            .map_err(|error| broken(&error))?;
        answer(asked).encode(&mut out, version).map_err(|error| broken(&error))?;
        self.reply.head.extend_from_slice(&out);
        Ok(())
    }
}

fn versions() -> ApiVersionsResponse {
    let range = |&(key, min, max): &(ApiKey, i16, i16)| {
        ApiVersion::default().with_api_key(key as i16).with_min_version(min).with_max_version(max)
    };
    ApiVersionsResponse::default().with_api_keys(VERSIONS.iter().map(range).collect())
}

fn metadata(cluster: &Cluster, asked: MetadataRequest) -> MetadataResponse {
    let wanted: Vec<String> = match asked.topics {
        Some(topics) => topics.into_iter().filter_map(|topic| topic.name).map(|name| name.0.to_string()).collect(),
        None => cluster.topics.keys().cloned().collect(),
    };
    let topics = wanted.into_iter().map(|name| {
        let topic = MetadataResponseTopic::default().with_name(Some(TopicName(StrBytes::from_string(name.clone()))));
        let Some(known) = cluster.topics.get(&name) else {
            return topic.with_error_code(3);
        };
        let partition = |index| {
            MetadataResponsePartition::default()
                .with_partition_index(number(index))
                .with_leader_id(BrokerId(0))
                .with_replica_nodes(vec![BrokerId(0)])
                .with_isr_nodes(vec![BrokerId(0)])
        };
        topic.with_topic_id(known.id).with_partitions((0..known.logs.len()).map(partition).collect())
    });
    let broker = MetadataResponseBroker::default()
        .with_node_id(BrokerId(0))
        .with_host(StrBytes::from_static_str("127.0.0.1"))
        .with_port(i32::from(cluster.port));
    MetadataResponse::default()
        .with_brokers(vec![broker])
        .with_cluster_id(Some(StrBytes::from_static_str(cluster.name)))
        .with_controller_id(BrokerId(0))
        .with_topics(topics.collect())
}

fn list_offsets(cluster: &Cluster, asked: ListOffsetsRequest) -> ListOffsetsResponse {
    const EARLIEST: i64 = -2;
    let topics = asked.topics.into_iter().map(|topic| {
        let known = cluster.topics.get(topic.name.0.as_str());
        let partitions = topic.partitions.into_iter().map(|one| {
            let log = known.and_then(|known| known.logs.get(usize::try_from(one.partition_index).ok()?));
            let answer = ListOffsetsPartitionResponse::default().with_partition_index(one.partition_index);
            match log {
                Some(log) => answer.with_offset(if one.timestamp == EARLIEST { 0 } else { log.end }),
                None => answer.with_error_code(3),
            }
        });
        ListOffsetsTopicResponse::default().with_partitions(partitions.collect()).with_name(topic.name)
    });
    ListOffsetsResponse::default().with_topics(topics.collect())
}

/// A group of one: who joins leads.
fn join(asked: JoinGroupRequest) -> JoinGroupResponse {
    let member = if asked.member_id.is_empty() { StrBytes::from_static_str("the-one") } else { asked.member_id };
    let protocol = asked.protocols.into_iter().next().unwrap_or_default();
    let one = JoinGroupResponseMember::default()
        .with_member_id(member.clone())
        .with_group_instance_id(asked.group_instance_id)
        .with_metadata(protocol.metadata);
    JoinGroupResponse::default()
        .with_generation_id(1)
        .with_protocol_type(Some(asked.protocol_type))
        .with_protocol_name(Some(protocol.name))
        .with_leader(member.clone())
        .with_member_id(member)
        .with_members(vec![one])
}

fn commit(cluster: &mut Cluster, asked: OffsetCommitRequest) -> OffsetCommitResponse {
    let group = cluster.commits.entry(asked.group_id.0.to_string()).or_default();
    let mut topics = Vec::new();
    for topic in asked.topics {
        let mut partitions = Vec::new();
        for one in topic.partitions {
            let key = (topic.name.0.to_string(), one.partition_index);
            group.insert(key, (one.committed_offset, one.committed_metadata));
            partitions.push(OffsetCommitResponsePartition::default().with_partition_index(one.partition_index));
        }
        topics.push(OffsetCommitResponseTopic::default().with_name(topic.name).with_partitions(partitions));
    }
    OffsetCommitResponse::default().with_topics(topics)
}

fn committed(cluster: &Cluster, asked: OffsetFetchRequest) -> OffsetFetchResponse {
    let groups = asked.groups.into_iter().map(|group| {
        let mut topics: BTreeMap<&String, Vec<OffsetFetchResponsePartitions>> = BTreeMap::new();
        for ((topic, partition), (offset, metadata)) in
            cluster.commits.get(group.group_id.0.as_str()).into_iter().flatten()
        {
            let row = OffsetFetchResponsePartitions::default()
                .with_partition_index(*partition)
                .with_committed_offset(*offset)
                .with_metadata(metadata.clone());
            topics.entry(topic).or_default().push(row);
        }
        let named = |(name, rows): (&String, Vec<_>)| {
            let name = TopicName(StrBytes::from_string(name.clone()));
            OffsetFetchResponseTopics::default().with_name(name).with_partitions(rows)
        };
        OffsetFetchResponseGroup::default()
            .with_group_id(group.group_id)
            .with_topics(topics.into_iter().map(named).collect())
    });
    OffsetFetchResponse::default().with_groups(groups.collect())
}

fn create_topics(cluster: &mut Cluster, asked: CreateTopicsRequest) -> CreateTopicsResponse {
    let mut topics = Vec::new();
    for topic in asked.topics {
        let id = cluster.create(topic.name.0.as_str(), usize::try_from(topic.num_partitions).unwrap_or(1), 0);
        topics.push(
            CreatableTopicResult::default()
                .with_name(topic.name)
                .with_topic_id(id)
                .with_num_partitions(topic.num_partitions)
                .with_replication_factor(1),
        );
    }
    CreateTopicsResponse::default().with_topics(topics)
}

fn describe_configs(asked: DescribeConfigsRequest) -> DescribeConfigsResponse {
    let results = asked.resources.into_iter().map(|resource| {
        let keys = resource.configuration_keys.unwrap_or_default().into_iter();
        let configs = keys.filter_map(|key| {
            let value = match key.as_str() {
                "max.message.bytes" => "10485760",
                "producer.id.expiration.ms" => "86400000",
                _ => return None,
            };
            let value = Some(StrBytes::from_static_str(value));
            Some(DescribeConfigsResourceResult::default().with_name(key).with_value(value).with_config_source(5))
        });
        DescribeConfigsResult::default()
            .with_resource_type(resource.resource_type)
            .with_configs(configs.collect())
            .with_resource_name(resource.resource_name)
    });
    DescribeConfigsResponse::default().with_results(results.collect())
}

fn describe_producers(cluster: &Cluster, asked: DescribeProducersRequest) -> DescribeProducersResponse {
    let topics = asked.topics.into_iter().map(|topic| {
        let known = cluster.topics.get(topic.name.0.as_str());
        let partitions = topic.partition_indexes.into_iter().map(|index| {
            let log = known.and_then(|known| known.logs.get(usize::try_from(index).ok()?));
            let states = log.and_then(|log| log.producer).map(|(id, epoch, sequence)| {
                ProducerState::default()
                    .with_producer_id(ProducerId(id))
                    .with_producer_epoch(i32::from(epoch))
                    .with_last_sequence(sequence)
            });
            PartitionResponse::default().with_partition_index(index).with_active_producers(states.into_iter().collect())
        });
        TopicResponse::default().with_partitions(partitions.collect()).with_name(topic.name)
    });
    DescribeProducersResponse::default().with_topics(topics.collect())
}

fn number(index: usize) -> i32 {
    i32::try_from(index).expect("partitions are counted in 32 bits")
}
