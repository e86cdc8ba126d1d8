//! Requests to the coordinator of one group: membership and committed offsets.
//!
//! Codes are passed through as they came: the lease machine (`mirror::lease`) decides what they mean.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use kafka_protocol::{
    messages::{
        DescribeGroupsRequest, GroupId as WireGroupId, HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest,
        OffsetCommitRequest, OffsetFetchRequest, SyncGroupRequest,
        join_group_request::JoinGroupRequestProtocol,
        leave_group_request::MemberIdentity,
        offset_commit_request::{OffsetCommitRequestPartition, OffsetCommitRequestTopic},
        offset_fetch_request::OffsetFetchRequestGroup,
        sync_group_request::SyncGroupRequestAssignment,
    },
    protocol::StrBytes,
};

use super::{admin::millis, cluster::wire_topic};
use crate::{
    net::{Connection, RequestError},
    protocol::{ErrorCode, OffsetCommitResponse, OffsetFetchResponse, TopicPartition},
};

/// Answers to commits and fetches of 100,000 partitions stay below this.
const OFFSETS_ANSWER_MAX: usize = 64 << 20;

/// What a member says when it joins.
#[derive(Debug, Clone)]
pub struct JoinRequest {
    /// Empty only where the lease machine allows it.
    pub member_id: String,
    /// The static name of this process.
    pub instance_id: String,
    /// Of our own kind, so that no consumer joins by accident.
    pub protocol_type: &'static str,
    /// Version of the assignment rules.
    pub protocol_name: &'static str,
    /// What the leader must know of us.
    pub metadata: Bytes,
    /// After this silence the coordinator expels the member.
    pub session_timeout: Duration,
    /// How long the coordinator waits for members to rejoin.
    pub rebalance_timeout: Duration,
}

/// The coordinator's answer.
#[derive(Debug, Clone)]
pub struct JoinAnswer {
    /// 0, or why not.
    pub error_code: ErrorCode,
    /// Of the group.
    pub generation: i32,
    /// The one chosen by all.
    pub protocol_name: Option<String>,
    /// Member id of the leader.
    pub leader: String,
    /// Ours.
    pub member_id: String,
    /// The leader must not assign anew (KIP-814).
    pub skip_assignment: bool,
    /// To the leader only: member id, instance id, metadata.
    pub members: Vec<(String, Option<String>, Bytes)>,
}

/// The coordinator's answer to SyncGroup.
#[derive(Debug, Clone)]
pub struct SyncAnswer {
    /// 0, or why not.
    pub error_code: ErrorCode,
    /// What the leader gave us.
    pub assignment: Bytes,
}

/// One member of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupMember {
    /// Its static name; brokers before 2.4 do not tell it.
    pub instance_id: Option<String>,
    /// As it called itself when it connected.
    pub client_id: String,
    /// Where it connected from.
    pub host: String,
}

/// One committed offset with its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OffsetToCommit {
    /// Must exist on the cluster of the group.
    pub partition: TopicPartition,
    /// The committed offset.
    pub offset: i64,
    /// At most 4096 characters by default (`broker-experiments.md` S8).
    pub metadata: String,
}

/// A connection to the coordinator of one group.
#[derive(Debug, Clone)]
pub struct GroupConnection {
    connection: Connection,
    group: Arc<str>,
    timeout: Duration,
}

impl GroupConnection {
    /// `timeout` is for each request but JoinGroup, which waits for the other members.
    #[must_use]
    pub fn new(connection: Connection, group: Arc<str>, timeout: Duration) -> Self {
        Self { connection, group, timeout }
    }

    /// Whether requests would fail at once.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.connection.is_ended()
    }

    fn group_id(&self) -> WireGroupId {
        WireGroupId(text(&self.group))
    }

    /// Joins; blocks its connection until the group is complete.
    ///
    /// # Errors
    /// If it was not answered.
    pub async fn join(&self, join: JoinRequest) -> Result<JoinAnswer, RequestError> {
        let mut request = JoinGroupRequest::default();
        request.group_id = self.group_id();
        request.member_id = text(&join.member_id);
        request.session_timeout_ms = millis(join.session_timeout);
        request.rebalance_timeout_ms = millis(join.rebalance_timeout);
        request.protocol_type = StrBytes::from_static_str(join.protocol_type);
        request.protocols = vec![
            JoinGroupRequestProtocol::default()
                .with_name(StrBytes::from_static_str(join.protocol_name))
                .with_metadata(join.metadata),
        ];
        let version = self.connection.negotiate::<JoinGroupRequest>(i16::MAX)?;
        // Before version 5 (Kafka 2.3) there are no static members.
        request.group_instance_id = (version >= 5).then(|| text(&join.instance_id));
        let answer = self.connection.request_at(version, &request, join.rebalance_timeout + self.timeout).await?;
        Ok(JoinAnswer {
            error_code: ErrorCode(answer.error_code),
            generation: answer.generation_id,
            protocol_name: answer.protocol_name.map(|name| name.to_string()),
            leader: answer.leader.to_string(),
            member_id: answer.member_id.to_string(),
            skip_assignment: answer.skip_assignment,
            members: answer
                .members
                .into_iter()
                .map(|member| {
                    let instance = member.group_instance_id.map(|id| id.to_string());
                    (member.member_id.to_string(), instance, member.metadata)
                })
                .collect(),
        })
    }

    /// Gets, and as leader gives, the assignment.
    ///
    /// # Errors
    /// If it was not answered.
    pub async fn sync(
        &self,
        (protocol_type, protocol_name): (&'static str, &'static str),
        generation: i32,
        member_id: &str,
        instance_id: &str,
        assignments: Vec<(String, Bytes)>,
    ) -> Result<SyncAnswer, RequestError> {
        let mut request = SyncGroupRequest::default();
        request.group_id = self.group_id();
        request.generation_id = generation;
        request.member_id = text(member_id);
        let version = self.connection.negotiate::<SyncGroupRequest>(i16::MAX)?;
        request.group_instance_id = (version >= 3).then(|| text(instance_id));
        if version >= 5 {
            request.protocol_type = Some(StrBytes::from_static_str(protocol_type));
            request.protocol_name = Some(StrBytes::from_static_str(protocol_name));
        }
        request.assignments = assignments
            .into_iter()
            .map(|(member, assignment)| {
                SyncGroupRequestAssignment::default().with_member_id(text(&member)).with_assignment(assignment)
            })
            .collect();
        let answer = self.connection.request_at(version, &request, self.timeout).await?;
        Ok(SyncAnswer { error_code: ErrorCode(answer.error_code), assignment: answer.assignment })
    }

    /// Says that we live.
    ///
    /// # Errors
    /// If it was not answered.
    pub async fn heartbeat(
        &self,
        generation: i32,
        member_id: &str,
        instance_id: &str,
    ) -> Result<ErrorCode, RequestError> {
        let mut request = HeartbeatRequest::default();
        request.group_id = self.group_id();
        request.generation_id = generation;
        request.member_id = text(member_id);
        let version = self.connection.negotiate::<HeartbeatRequest>(i16::MAX)?;
        request.group_instance_id = (version >= 3).then(|| text(instance_id));
        let answer = self.connection.request_at(version, &request, self.timeout).await?;
        Ok(ErrorCode(answer.error_code))
    }

    /// Gives up membership.
    ///
    /// # Errors
    /// If it was not answered.
    pub async fn leave(&self, member_id: &str, instance_id: &str) -> Result<ErrorCode, RequestError> {
        let mut request = LeaveGroupRequest::default();
        request.group_id = self.group_id();
        let version = self.connection.negotiate::<LeaveGroupRequest>(i16::MAX)?;
        if version >= 3 {
            request.members = vec![
                MemberIdentity::default()
                    .with_member_id(text(member_id))
                    .with_group_instance_id(Some(text(instance_id))),
            ];
        } else {
            request.member_id = text(member_id);
        }
        let answer = self.connection.request_at(version, &request, self.timeout).await?;
        let of_member = answer.members.first().map_or(0, |member| member.error_code);
        Ok(ErrorCode(if answer.error_code == 0 { of_member } else { answer.error_code }))
    }

    /// Instance ids of the static members. Brokers before 2.4 do not tell them.
    ///
    /// # Errors
    /// If it was not answered.
    pub async fn members(&self) -> Result<Vec<String>, RequestError> {
        let request = DescribeGroupsRequest::default().with_groups(vec![self.group_id()]);
        let answer = self.connection.request(&request, self.timeout).await?;
        let members = answer.groups.into_iter().flat_map(|group| group.members);
        Ok(members.filter_map(|member| Some(member.group_instance_id?.to_string())).collect())
    }

    /// The members as the coordinator knows them; one that was killed stays among them until its session ends.
    ///
    /// # Errors
    /// If it was not answered. A group that does not exist has no members.
    pub async fn describe(&self) -> Result<Result<Vec<GroupMember>, ErrorCode>, RequestError> {
        let request = DescribeGroupsRequest::default().with_groups(vec![self.group_id()]);
        let answer = self.connection.request(&request, self.timeout).await?;
        let Some(group) = answer.groups.into_iter().next() else { return Ok(Ok(Vec::new())) };
        let code = ErrorCode(group.error_code);
        if !code.is_none() && code != ErrorCode::GROUP_ID_NOT_FOUND {
            return Ok(Err(code));
        }
        let member = |member: kafka_protocol::messages::describe_groups_response::DescribedGroupMember| GroupMember {
            instance_id: member.group_instance_id.map(|id| id.to_string()),
            client_id: member.client_id.to_string(),
            host: member.client_host.to_string(),
        };
        Ok(Ok(group.members.into_iter().map(member).collect()))
    }

    /// Commits offsets in the name of a member, or of nobody (`generation` -1, empty member id).
    ///
    /// # Errors
    /// If it was not answered; codes of single partitions are in the answer.
    pub async fn commit(
        &self,
        generation: i32,
        member_id: &str,
        instance_id: Option<&str>,
        offsets: &[OffsetToCommit],
    ) -> Result<BTreeMap<TopicPartition, ErrorCode>, RequestError> {
        let mut request = OffsetCommitRequest::default();
        request.group_id = self.group_id();
        request.generation_id_or_member_epoch = generation;
        request.member_id = text(member_id);
        let version = self.connection.negotiate::<OffsetCommitRequest>(i16::MAX)?;
        request.group_instance_id = instance_id.filter(|_| version >= 7).map(text);
        let mut topics: BTreeMap<_, Vec<OffsetCommitRequestPartition>> = BTreeMap::new();
        for offset in offsets {
            topics.entry(&offset.partition.topic).or_default().push(
                OffsetCommitRequestPartition::default()
                    .with_partition_index(offset.partition.partition.0)
                    .with_committed_offset(offset.offset)
                    .with_committed_leader_epoch(-1)
                    .with_committed_metadata(Some(text(&offset.metadata))),
            );
        }
        request.topics = topics
            .into_iter()
            .map(|(name, partitions)| {
                OffsetCommitRequestTopic::default().with_name(wire_topic(name)).with_partitions(partitions)
            })
            .collect();
        let reply = self.connection.begin(version, &request, OFFSETS_ANSWER_MAX, self.timeout)?.await?;
        let answer = OffsetCommitResponse::decode(reply.body, reply.version).map_err(|error| self.decode(error))?;
        Ok(answer.partitions.into_iter().collect())
    }

    /// All committed offsets of the group.
    ///
    /// # Errors
    /// If it was not answered; the group's and the partitions' codes are in the answer.
    pub async fn fetch_offsets(&self) -> Result<OffsetFetchResponse, RequestError> {
        let version = self.connection.negotiate::<OffsetFetchRequest>(i16::MAX)?;
        let mut request = OffsetFetchRequest::default();
        // A member's own pending transaction commits do not exist here, so there is nothing to wait for.
        request.require_stable = false;
        if version >= 8 {
            request.groups = vec![
                OffsetFetchRequestGroup::default()
                    .with_group_id(self.group_id())
                    .with_member_epoch(-1)
                    .with_topics(None),
            ];
        } else {
            request.group_id = self.group_id();
            request.topics = None;
        }
        let reply = self.connection.begin(version, &request, OFFSETS_ANSWER_MAX, self.timeout)?.await?;
        OffsetFetchResponse::decode(reply.body, reply.version).map_err(|error| self.decode(error))
    }

    fn decode(&self, error: crate::protocol::DecodeError) -> RequestError {
        RequestError::Decode { peer: self.connection.peer().into(), error: Arc::new(error) }
    }
}

fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}
