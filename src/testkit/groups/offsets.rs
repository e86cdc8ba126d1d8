//! Committed offsets: commit, fetch, delete, expiry.

use kafka_protocol::messages::offset_commit_request::OffsetCommitRequestPartition;
use kafka_protocol::messages::offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
use kafka_protocol::messages::offset_delete_response::{OffsetDeleteResponsePartition, OffsetDeleteResponseTopic};
use kafka_protocol::messages::offset_fetch_request::{OffsetFetchRequestTopic, OffsetFetchRequestTopics};
use kafka_protocol::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions, OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
};
use kafka_protocol::messages::{
    ConsumerProtocolSubscription, OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest, OffsetDeleteResponse,
    OffsetFetchRequest, OffsetFetchResponse, TopicName,
};
use kafka_protocol::protocol::{Decodable, StrBytes};
use tokio::time::Instant;

use super::super::{BrokerVersion, TopicLookup};
use super::group::{Group, Phase};
use super::{
    GROUP_ID_NOT_FOUND, GROUP_SUBSCRIBED_TO_TOPIC, GroupCoordinator, ILLEGAL_GENERATION, NON_EMPTY_GROUP, NONE,
    OFFSET_METADATA_TOO_LARGE, REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID, UNKNOWN_TOPIC_OR_PARTITION,
};

/// From here on OffsetFetch asks for several groups.
const FETCH_GROUPS_VERSION: i16 = 8;
const FETCH_LEADER_EPOCH_VERSION: i16 = 5;
/// From here on the answer has an error of its own, not only one per partition.
const FETCH_TOP_ERROR_VERSION: i16 = 2;
/// From here on a group that does not exist is told apart from one that moved on.
const COMMIT_GROUP_NOT_FOUND_VERSION: i16 = 9;
const CONSUMER: &str = "consumer";

/// One committed offset.
#[derive(Clone, Debug)]
pub(super) struct Committed {
    pub(super) offset: i64,
    pub(super) leader_epoch: i32,
    pub(super) metadata: StrBytes,
    /// Wall clock of the commit.
    pub(super) committed_ms: i64,
    /// Set by the retention time of OffsetCommit v2-4.
    pub(super) expires_ms: Option<i64>,
}

impl GroupCoordinator {
    pub(super) fn offset_commit(
        &mut self,
        now: Instant,
        wall_ms: i64,
        topics: &dyn TopicLookup,
        api_version: i16,
        request: &OffsetCommitRequest,
    ) -> OffsetCommitResponse {
        let exists =
            |topic: &str, index: i32| topics.partitions(topic).is_some_and(|count| (0..count).contains(&index));
        let any = request
            .topics
            .iter()
            .any(|topic| topic.partitions.iter().any(|one| exists(&topic.name, one.partition_index)));
        // A request without any partition that exists is answered before the group is looked at, or made.
        let allowed = if any { self.may_commit(now, api_version, request) } else { Ok(()) };
        let expires_ms = (request.retention_time_ms >= 0).then(|| wall_ms.saturating_add(request.retention_time_ms));
        let mut answer = OffsetCommitResponse::default();
        for topic in &request.topics {
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for partition in &topic.partitions {
                let code = if !exists(&topic.name, partition.partition_index) {
                    UNKNOWN_TOPIC_OR_PARTITION
                } else if let Err(code) = allowed {
                    code
                } else if characters(partition.committed_metadata.as_ref()) > self.settings.metadata_characters_max {
                    OFFSET_METADATA_TOO_LARGE
                } else {
                    if let Some(group) = self.groups.get_mut(&request.group_id.0) {
                        group.commit(&topic.name, partition, wall_ms, expires_ms);
                    }
                    NONE
                };
                partitions.push(
                    OffsetCommitResponsePartition::default()
                        .with_partition_index(partition.partition_index)
                        .with_error_code(code),
                );
            }
            // A topic that is listed twice is answered once.
            match answer.topics.iter_mut().find(|known| known.name == topic.name) {
                Some(known) => known.partitions.append(&mut partitions),
                None => {
                    let one = OffsetCommitResponseTopic::default().with_name(topic.name.clone());
                    answer.topics.push(one.with_partitions(partitions));
                }
            }
        }
        answer
    }

    fn may_commit(&mut self, now: Instant, api_version: i16, request: &OffsetCommitRequest) -> Result<(), i16> {
        self.refuse_group(&request.group_id, true)?;
        let simple = request.generation_id_or_member_epoch < 0;
        if simple {
            self.groups.entry(request.group_id.0.clone()).or_insert_with(Group::new);
        }
        match self.groups.get_mut(&request.group_id.0) {
            Some(group) => group.may_commit(now, request),
            None if self.version >= BrokerVersion::V4_3_1 && api_version >= COMMIT_GROUP_NOT_FOUND_VERSION => {
                Err(GROUP_ID_NOT_FOUND)
            }
            None => Err(ILLEGAL_GENERATION),
        }
    }

    /// A group's commits, for tests: topic, partition, offset and metadata.
    pub(in crate::testkit) fn committed(&self, group: &str) -> Vec<(String, i32, i64, String)> {
        let offsets = self.groups.get(group.as_bytes()).into_iter().flat_map(|group| &group.offsets);
        offsets
            .map(|((topic, partition), one)| (topic.to_string(), *partition, one.offset, one.metadata.to_string()))
            .collect()
    }

    /// Drops a group's commits.
    pub(in crate::testkit) fn expire_commits(&mut self, group: &str) {
        if let Some(group) = self.groups.get_mut(group.as_bytes()) {
            group.offsets.clear();
        }
    }

    pub(super) fn offset_fetch(&self, api_version: i16, request: &OffsetFetchRequest) -> OffsetFetchResponse {
        if api_version >= FETCH_GROUPS_VERSION {
            let groups =
                request.groups.iter().map(|group| self.fetch_group(&group.group_id.0, group.topics.as_deref()));
            return OffsetFetchResponse::default().with_groups(groups.collect());
        }
        let group = self.groups.get(&request.group_id.0);
        let mut answer = OffsetFetchResponse::default();
        let refused = self.refuse_group(&request.group_id, true).err();
        let code = refused.unwrap_or(NONE);
        if api_version >= FETCH_TOP_ERROR_VERSION {
            answer.error_code = code;
            if refused.is_some() {
                return answer;
            }
        }
        let listed =
            request.topics.as_deref().map(|topics| topics.iter().map(OffsetFetchRequestTopic::listed).collect());
        for (name, partitions) in asked(group, listed) {
            let partitions = partitions.into_iter().map(|index| {
                let committed = group.filter(|_| refused.is_none()).and_then(|group| group.committed(&name, index));
                let answer = OffsetFetchResponsePartition::default().with_partition_index(index).with_error_code(code);
                let epoch =
                    |one: &Committed| if api_version >= FETCH_LEADER_EPOCH_VERSION { one.leader_epoch } else { -1 };
                match committed {
                    None => answer.with_committed_offset(-1).with_committed_leader_epoch(-1),
                    Some(one) => answer
                        .with_committed_offset(one.offset)
                        .with_committed_leader_epoch(epoch(one))
                        .with_metadata(Some(one.metadata.clone())),
                }
            });
            let partitions = partitions.collect();
            answer
                .topics
                .push(OffsetFetchResponseTopic::default().with_name(TopicName(name)).with_partitions(partitions));
        }
        answer
    }

    fn fetch_group(
        &self,
        group_id: &StrBytes,
        topics: Option<&[OffsetFetchRequestTopics]>,
    ) -> OffsetFetchResponseGroup {
        let mut answer = OffsetFetchResponseGroup::default().with_group_id(group_id.clone().into());
        if let Err(code) = self.refuse_group(group_id, true) {
            return answer.with_error_code(code);
        }
        let group = self.groups.get(group_id);
        let listed = topics.map(|topics| topics.iter().map(OffsetFetchRequestTopics::listed).collect());
        for (name, partitions) in asked(group, listed) {
            let partitions = partitions.into_iter().map(|index| {
                let answer = OffsetFetchResponsePartitions::default().with_partition_index(index);
                match group.and_then(|group| group.committed(&name, index)) {
                    None => answer.with_committed_offset(-1).with_committed_leader_epoch(-1),
                    Some(one) => answer
                        .with_committed_offset(one.offset)
                        .with_committed_leader_epoch(one.leader_epoch)
                        .with_metadata(Some(one.metadata.clone())),
                }
            });
            let partitions = partitions.collect();
            answer
                .topics
                .push(OffsetFetchResponseTopics::default().with_name(TopicName(name)).with_partitions(partitions));
        }
        answer
    }

    pub(super) fn offset_delete(
        &mut self,
        topics: &dyn TopicLookup,
        request: &OffsetDeleteRequest,
    ) -> OffsetDeleteResponse {
        let refused = self.refuse_group(&request.group_id, false).and_then(|()| {
            match self.groups.get(&request.group_id.0) {
                None => Err(GROUP_ID_NOT_FOUND),
                // Consumers are asked which topics they read; of others nobody knows.
                Some(group) if group.is_empty() || group.is_of_consumers() => Ok(()),
                Some(_) => Err(NON_EMPTY_GROUP),
            }
        });
        if let Err(code) = refused {
            return OffsetDeleteResponse::default().with_error_code(code);
        }
        let mut answer = OffsetDeleteResponse::default();
        for topic in &request.topics {
            let count = topics.partitions(&topic.name).unwrap_or(0);
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for partition in &topic.partitions {
                let index = partition.partition_index;
                let code = match self.groups.get_mut(&request.group_id.0) {
                    _ if !(0..count).contains(&index) => UNKNOWN_TOPIC_OR_PARTITION,
                    Some(group) if !group.is_empty() && group.reads(&topic.name) => GROUP_SUBSCRIBED_TO_TOPIC,
                    Some(group) => {
                        group.offsets.remove(&(topic.name.0.clone(), index));
                        NONE
                    }
                    None => GROUP_ID_NOT_FOUND,
                };
                partitions
                    .push(OffsetDeleteResponsePartition::default().with_partition_index(index).with_error_code(code));
            }
            answer
                .topics
                .push(OffsetDeleteResponseTopic::default().with_name(topic.name.clone()).with_partitions(partitions));
        }
        self.drop_bare_groups();
        answer
    }

    /// Offsets nobody needs any more, and then groups without members and offsets.
    pub(super) fn expire_offsets(&mut self, wall_ms: i64) {
        let retention = i64::try_from(self.settings.offsets_retention.as_millis()).unwrap_or(i64::MAX);
        for group in self.groups.values_mut() {
            group.expire_offsets(wall_ms, retention);
        }
        self.groups.retain(|_, group| !group.is_bare());
    }
}

impl Group {
    fn committed(&self, topic: &StrBytes, index: i32) -> Option<&Committed> {
        self.offsets.get(&(topic.clone(), index))
    }

    fn may_commit(&mut self, now: Instant, request: &OffsetCommitRequest) -> Result<(), i16> {
        let (generation, member_id) = (request.generation_id_or_member_epoch, &request.member_id);
        if generation < 0 && self.is_empty() {
            // Whoever it is, also one that was a member once (S13).
            return Ok(());
        }
        if generation < 0 && member_id.is_empty() && request.group_instance_id.is_none() {
            return Err(UNKNOWN_MEMBER_ID);
        }
        self.check_member(member_id, request.group_instance_id.as_ref())?;
        self.check_generation(generation)?;
        if self.roster.phase == Phase::Completing {
            return Err(REBALANCE_IN_PROGRESS);
        }
        // A commit counts as a heartbeat, and goes on through a rebalance.
        if let Some(member) = self.member_mut(member_id) {
            member.hear(now);
        }
        Ok(())
    }

    fn commit(
        &mut self,
        topic: &TopicName,
        partition: &OffsetCommitRequestPartition,
        wall_ms: i64,
        expires_ms: Option<i64>,
    ) {
        let committed = Committed {
            // Nothing is checked: neither the end of the log nor the sign (S8).
            offset: partition.committed_offset,
            leader_epoch: partition.committed_leader_epoch,
            metadata: partition.committed_metadata.clone().unwrap_or_default(),
            committed_ms: wall_ms,
            expires_ms,
        };
        self.offsets.insert((topic.0.clone(), partition.partition_index), committed);
    }

    fn is_of_consumers(&self) -> bool {
        self.roster.protocol_type.as_ref().is_some_and(|name| name.as_str() == CONSUMER)
    }

    /// Whether a consumer group subscribes to a topic; if that cannot be told, it does.
    fn reads(&self, topic: &str) -> bool {
        let Some(protocol) = self.roster.protocol_name.as_ref().filter(|_| self.is_of_consumers()) else {
            return true;
        };
        let subscribed = self.roster.members.iter().map(|member| {
            let mut bytes = member.metadata(protocol);
            let version = bytes.split_to(bytes.len().min(2));
            let version = version.first_chunk().map(|bytes| i16::from_be_bytes(*bytes));
            let version = version.filter(|version| *version >= 0)?.min(3);
            ConsumerProtocolSubscription::decode(&mut bytes, version).ok().map(|decoded| decoded.topics)
        });
        let subscribed: Option<Vec<_>> = subscribed.collect();
        subscribed.is_none_or(|members| members.iter().flatten().any(|name| name.as_str() == topic))
    }

    fn expire_offsets(&mut self, wall_ms: i64, retention: i64) {
        let empty_since = self.roster.since_ms.filter(|_| self.roster.protocol_type.is_some());
        let simple = self.roster.protocol_type.is_none();
        let of_consumers = self.is_of_consumers() && self.roster.phase == Phase::Stable;
        if !simple && !self.is_empty() && !of_consumers {
            // Members of another protocol type keep all of their group's offsets (S8).
            return;
        }
        let mut offsets = std::mem::take(&mut self.offsets);
        offsets.retain(|(topic, _), one| {
            let since = if of_consumers { one.committed_ms } else { empty_since.unwrap_or(one.committed_ms) };
            let old = one.expires_ms.map_or_else(|| wall_ms.saturating_sub(since) >= retention, |at| wall_ms >= at);
            !old || (of_consumers && self.reads(topic))
        });
        self.offsets = offsets;
    }
}

/// What to answer: the partitions asked for, or all that have an offset.
fn asked(group: Option<&Group>, listed: Option<Vec<(StrBytes, Vec<i32>)>>) -> Vec<(StrBytes, Vec<i32>)> {
    listed.unwrap_or_else(|| {
        let mut all: Vec<(StrBytes, Vec<i32>)> = Vec::new();
        for (topic, index) in group.iter().flat_map(|group| group.offsets.keys()) {
            match all.last_mut() {
                Some((last, partitions)) if last == topic => partitions.push(*index),
                _ => all.push((topic.clone(), vec![*index])),
            }
        }
        all
    })
}

/// Both shapes of a topic in an OffsetFetch request.
trait Listed {
    fn listed(&self) -> (StrBytes, Vec<i32>);
}

impl Listed for OffsetFetchRequestTopic {
    fn listed(&self) -> (StrBytes, Vec<i32>) {
        (self.name.0.clone(), self.partition_indexes.clone())
    }
}

impl Listed for OffsetFetchRequestTopics {
    fn listed(&self) -> (StrBytes, Vec<i32>) {
        (self.name.0.clone(), self.partition_indexes.clone())
    }
}

/// Java counts UTF-16 units.
fn characters(metadata: Option<&StrBytes>) -> usize {
    metadata.map_or(0, |text| text.encode_utf16().count())
}
