//! The answer to a request of which every part is refused with one code.

use bytes::Bytes;
use kafka_protocol::messages as wire;
use kafka_protocol::messages::ApiKey;
use wire::{
    add_partitions_to_txn_response::{AddPartitionsToTxnPartitionResult, AddPartitionsToTxnTopicResult},
    create_partitions_response::CreatePartitionsTopicResult,
    create_topics_response::CreatableTopicResult,
    delete_groups_response::DeletableGroupResult,
    describe_configs_response::DescribeConfigsResult,
    describe_groups_response::DescribedGroup,
    describe_producers_response::{PartitionResponse, TopicResponse},
    fetch_response::{FetchableTopicResponse, PartitionData},
    find_coordinator_response::Coordinator,
    list_offsets_response::{ListOffsetsPartitionResponse, ListOffsetsTopicResponse},
    metadata_response::MetadataResponseTopic,
    offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic},
    offset_fetch_response::{
        OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
        OffsetFetchResponseTopic, OffsetFetchResponseTopics,
    },
    offset_for_leader_epoch_response::{EpochEndOffset, OffsetForLeaderTopicResult},
    produce_response::{PartitionProduceResponse, TopicProduceResponse},
};

use super::{Asked, Outcome, plain, read};
use crate::protocol::{DecodeError, ErrorCode};

/// Answers with the code; the connection is closed where the API has no place for one.
pub(super) fn answer(asked: &Asked, body: Bytes, code: ErrorCode) -> Outcome {
    refused(asked, body, code.0).unwrap_or(Outcome::Hangup)
}

fn refused(asked: &Asked, body: Bytes, code: i16) -> Result<Outcome, DecodeError> {
    Ok(match asked.api {
        ApiKey::Produce => {
            let request: wire::ProduceRequest = read(asked, body)?;
            let acks = request.acks;
            let topics = request.topic_data.into_iter().map(|topic| {
                let partition = |partition: &wire::produce_request::PartitionProduceData| {
                    PartitionProduceResponse::default()
                        .with_index(partition.index)
                        .with_error_code(code)
                        .with_base_offset(-1)
                        .with_log_append_time_ms(-1)
                        .with_log_start_offset(-1)
                };
                TopicProduceResponse::default()
                    .with_partition_responses(topic.partition_data.iter().map(partition).collect())
                    .with_name(topic.name)
                    .with_topic_id(topic.topic_id)
            });
            let response = wire::ProduceResponse::default().with_responses(topics.collect());
            if acks == 0 { Outcome::Hangup } else { plain(asked, &response) }
        }
        ApiKey::Fetch => {
            let request: wire::FetchRequest = read(asked, body)?;
            let topics = request.topics.into_iter().map(|topic| {
                let partition = |partition: &wire::fetch_request::FetchPartition| {
                    PartitionData::default()
                        .with_partition_index(partition.partition)
                        .with_error_code(code)
                        .with_high_watermark(-1)
                        .with_last_stable_offset(-1)
                        .with_log_start_offset(-1)
                        .with_records(Some(Bytes::new()))
                };
                FetchableTopicResponse::default()
                    .with_partitions(topic.partitions.iter().map(partition).collect())
                    .with_topic(topic.topic)
                    .with_topic_id(topic.topic_id)
            });
            let response = wire::FetchResponse::default().with_responses(topics.collect());
            // The whole request is refused where the code is about the session.
            let is_of_session = [70, 71, 106].contains(&code);
            if is_of_session {
                plain(asked, &wire::FetchResponse::default().with_error_code(code))
            } else {
                plain(asked, &response)
            }
        }
        ApiKey::ListOffsets => {
            let request: wire::ListOffsetsRequest = read(asked, body)?;
            let topics = request.topics.into_iter().map(|topic| {
                let partition = |partition: &wire::list_offsets_request::ListOffsetsPartition| {
                    ListOffsetsPartitionResponse::default()
                        .with_partition_index(partition.partition_index)
                        .with_error_code(code)
                        .with_timestamp(-1)
                        .with_offset(-1)
                };
                ListOffsetsTopicResponse::default()
                    .with_partitions(topic.partitions.iter().map(partition).collect())
                    .with_name(topic.name)
            });
            plain(asked, &wire::ListOffsetsResponse::default().with_topics(topics.collect()))
        }
        ApiKey::Metadata => {
            let request: wire::MetadataRequest = read(asked, body)?;
            let topics = request.topics.unwrap_or_default().into_iter().map(|topic| {
                let answer = MetadataResponseTopic::default().with_error_code(code).with_name(topic.name);
                if asked.version >= 10 { answer.with_topic_id(topic.topic_id) } else { answer }
            });
            plain(asked, &wire::MetadataResponse::default().with_topics(topics.collect()))
        }
        ApiKey::OffsetForLeaderEpoch => {
            let request: wire::OffsetForLeaderEpochRequest = read(asked, body)?;
            let topics = request.topics.into_iter().map(|topic| {
                let partition = |partition: &wire::offset_for_leader_epoch_request::OffsetForLeaderPartition| {
                    EpochEndOffset::default().with_partition(partition.partition).with_error_code(code)
                };
                OffsetForLeaderTopicResult::default()
                    .with_partitions(topic.partitions.iter().map(partition).collect())
                    .with_topic(topic.topic)
            });
            plain(asked, &wire::OffsetForLeaderEpochResponse::default().with_topics(topics.collect()))
        }
        ApiKey::DescribeProducers => {
            let request: wire::DescribeProducersRequest = read(asked, body)?;
            let topics = request.topics.into_iter().map(|topic| {
                let partition =
                    |index: &i32| PartitionResponse::default().with_partition_index(*index).with_error_code(code);
                TopicResponse::default()
                    .with_partitions(topic.partition_indexes.iter().map(partition).collect())
                    .with_name(topic.name)
            });
            plain(asked, &wire::DescribeProducersResponse::default().with_topics(topics.collect()))
        }
        ApiKey::CreateTopics => {
            let request: wire::CreateTopicsRequest = read(asked, body)?;
            let topics = request
                .topics
                .into_iter()
                .map(|topic| CreatableTopicResult::default().with_name(topic.name).with_error_code(code));
            plain(asked, &wire::CreateTopicsResponse::default().with_topics(topics.collect()))
        }
        ApiKey::CreatePartitions => {
            let request: wire::CreatePartitionsRequest = read(asked, body)?;
            let results = request
                .topics
                .into_iter()
                .map(|topic| CreatePartitionsTopicResult::default().with_name(topic.name).with_error_code(code));
            plain(asked, &wire::CreatePartitionsResponse::default().with_results(results.collect()))
        }
        ApiKey::DescribeConfigs => {
            let request: wire::DescribeConfigsRequest = read(asked, body)?;
            let results = request.resources.into_iter().map(|resource| {
                DescribeConfigsResult::default()
                    .with_resource_type(resource.resource_type)
                    .with_resource_name(resource.resource_name)
                    .with_error_code(code)
            });
            plain(asked, &wire::DescribeConfigsResponse::default().with_results(results.collect()))
        }
        ApiKey::FindCoordinator => {
            let request: wire::FindCoordinatorRequest = read(asked, body)?;
            if asked.version < 4 {
                let response = wire::FindCoordinatorResponse::default().with_error_code(code).with_node_id((-1).into());
                return Ok(plain(asked, &response));
            }
            let coordinators = request
                .coordinator_keys
                .into_iter()
                .map(|key| Coordinator::default().with_key(key).with_error_code(code).with_node_id((-1).into()));
            plain(asked, &wire::FindCoordinatorResponse::default().with_coordinators(coordinators.collect()))
        }
        ApiKey::OffsetCommit => {
            let request: wire::OffsetCommitRequest = read(asked, body)?;
            let topics = request.topics.into_iter().map(|topic| {
                let partition = |partition: &wire::offset_commit_request::OffsetCommitRequestPartition| {
                    OffsetCommitResponsePartition::default()
                        .with_partition_index(partition.partition_index)
                        .with_error_code(code)
                };
                OffsetCommitResponseTopic::default()
                    .with_partitions(topic.partitions.iter().map(partition).collect())
                    .with_name(topic.name)
            });
            plain(asked, &wire::OffsetCommitResponse::default().with_topics(topics.collect()))
        }
        ApiKey::OffsetFetch => plain(asked, &offset_fetch(asked, read(asked, body)?, code)),
        ApiKey::DescribeGroups => {
            let request: wire::DescribeGroupsRequest = read(asked, body)?;
            let groups = request
                .groups
                .into_iter()
                .map(|group| DescribedGroup::default().with_group_id(group).with_error_code(code));
            plain(asked, &wire::DescribeGroupsResponse::default().with_groups(groups.collect()))
        }
        ApiKey::DeleteGroups => {
            let request: wire::DeleteGroupsRequest = read(asked, body)?;
            let results = request
                .groups_names
                .into_iter()
                .map(|group| DeletableGroupResult::default().with_group_id(group).with_error_code(code));
            plain(asked, &wire::DeleteGroupsResponse::default().with_results(results.collect()))
        }
        ApiKey::AddPartitionsToTxn if asked.version <= 3 => {
            let request: wire::AddPartitionsToTxnRequest = read(asked, body)?;
            let topics = request.v3_and_below_topics.into_iter().map(|topic| {
                let partition = |index: &i32| {
                    AddPartitionsToTxnPartitionResult::default()
                        .with_partition_index(*index)
                        .with_partition_error_code(code)
                };
                AddPartitionsToTxnTopicResult::default()
                    .with_results_by_partition(topic.partitions.iter().map(partition).collect())
                    .with_name(topic.name)
            });
            let response = wire::AddPartitionsToTxnResponse::default();
            plain(asked, &response.with_results_by_topic_v3_and_below(topics.collect()))
        }
        ApiKey::CreateAcls => {
            let request: wire::CreateAclsRequest = read(asked, body)?;
            let result = wire::create_acls_response::AclCreationResult::default().with_error_code(code);
            let results = vec![result; request.creations.len()];
            plain(asked, &wire::CreateAclsResponse::default().with_results(results))
        }
        ApiKey::InitProducerId => plain(
            asked,
            &wire::InitProducerIdResponse::default()
                .with_error_code(code)
                .with_producer_id((-1).into())
                .with_producer_epoch(-1),
        ),
        ApiKey::ApiVersions => plain(asked, &wire::ApiVersionsResponse::default().with_error_code(code)),
        ApiKey::JoinGroup => plain(asked, &wire::JoinGroupResponse::default().with_error_code(code)),
        ApiKey::SyncGroup => plain(asked, &wire::SyncGroupResponse::default().with_error_code(code)),
        ApiKey::Heartbeat => plain(asked, &wire::HeartbeatResponse::default().with_error_code(code)),
        ApiKey::LeaveGroup => plain(asked, &wire::LeaveGroupResponse::default().with_error_code(code)),
        ApiKey::ListGroups => plain(asked, &wire::ListGroupsResponse::default().with_error_code(code)),
        ApiKey::OffsetDelete => plain(asked, &wire::OffsetDeleteResponse::default().with_error_code(code)),
        ApiKey::AddPartitionsToTxn => plain(asked, &wire::AddPartitionsToTxnResponse::default().with_error_code(code)),
        ApiKey::EndTxn => plain(asked, &wire::EndTxnResponse::default().with_error_code(code)),
        ApiKey::DescribeCluster => plain(asked, &wire::DescribeClusterResponse::default().with_error_code(code)),
        ApiKey::DescribeAcls => plain(asked, &wire::DescribeAclsResponse::default().with_error_code(code)),
        _ => Outcome::Hangup,
    })
}

/// The code stands per partition in versions 0 and 1, for the group afterwards.
fn offset_fetch(asked: &Asked, request: wire::OffsetFetchRequest, code: i16) -> wire::OffsetFetchResponse {
    let response = wire::OffsetFetchResponse::default();
    if asked.version >= 8 {
        let groups = request.groups.into_iter().map(|group| {
            let topics = group.topics.unwrap_or_default().into_iter().map(|topic| {
                let partition = |index: &i32| {
                    OffsetFetchResponsePartitions::default()
                        .with_partition_index(*index)
                        .with_committed_offset(-1)
                        .with_error_code(code)
                };
                OffsetFetchResponseTopics::default()
                    .with_partitions(topic.partition_indexes.iter().map(partition).collect())
                    .with_name(topic.name)
            });
            OffsetFetchResponseGroup::default()
                .with_topics(topics.collect())
                .with_group_id(group.group_id)
                .with_error_code(code)
        });
        return response.with_groups(groups.collect());
    }
    let topics = request.topics.unwrap_or_default().into_iter().map(|topic| {
        let partition = |index: &i32| {
            OffsetFetchResponsePartition::default()
                .with_partition_index(*index)
                .with_committed_offset(-1)
                .with_error_code(code)
        };
        OffsetFetchResponseTopic::default()
            .with_partitions(topic.partition_indexes.iter().map(partition).collect())
            .with_name(topic.name)
    });
    let response = response.with_topics(topics.collect());
    if asked.version >= 2 { response.with_error_code(code) } else { response }
}
