//! DescribeGroups, ListGroups and DeleteGroups.

use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use kafka_protocol::messages::list_groups_response::ListedGroup;
use kafka_protocol::messages::{
    DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse, ListGroupsRequest,
    ListGroupsResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::super::BrokerVersion;
use super::group::{Group, Phase};
use super::{GROUP_ID_NOT_FOUND, GroupCoordinator, NON_EMPTY_GROUP, NONE};

const DESCRIBE_INSTANCE_VERSION: i16 = 4;
/// From here on a group that does not exist is an error, not a group in state Dead.
const DESCRIBE_NOT_FOUND_VERSION: i16 = 6;
const LIST_STATE_VERSION: i16 = 4;
const LIST_TYPE_VERSION: i16 = 5;
/// Everything, as a broker without an authorizer says: read, delete, describe, and later the two for configs.
const GROUP_OPERATIONS: i32 = 1 << 3 | 1 << 6 | 1 << 8;
const CONFIG_OPERATIONS: i32 = 1 << 10 | 1 << 11;

impl GroupCoordinator {
    pub(super) fn describe_groups(&self, api_version: i16, request: &DescribeGroupsRequest) -> DescribeGroupsResponse {
        let groups = request.groups.iter().map(|group_id| {
            let mut answer = DescribedGroup::default().with_group_id(group_id.clone());
            if let Err(code) = self.refuse_group(group_id, true) {
                return answer.with_error_code(code);
            }
            if request.include_authorized_operations {
                let configs = if self.version >= BrokerVersion::V3_9_2 { CONFIG_OPERATIONS } else { 0 };
                answer.authorized_operations = GROUP_OPERATIONS | configs;
            }
            match self.groups.get(&group_id.0) {
                Some(group) => group.describe(self.version, api_version, answer),
                None if api_version >= DESCRIBE_NOT_FOUND_VERSION => {
                    let message = format!("Group {} not found.", group_id.0);
                    answer
                        .with_group_state(StrBytes::from_static_str("Dead"))
                        .with_error_code(GROUP_ID_NOT_FOUND)
                        .with_error_message(Some(StrBytes::from_string(message)))
                }
                None => answer.with_group_state(StrBytes::from_static_str("Dead")),
            }
        });
        DescribeGroupsResponse::default().with_groups(groups.collect())
    }

    pub(super) fn list_groups(&self, api_version: i16, request: &ListGroupsRequest) -> ListGroupsResponse {
        if let Err(code) = self.refuse_group("", true) {
            return ListGroupsResponse::default().with_error_code(code);
        }
        let wanted = |filter: &[StrBytes], word: &str| {
            filter.is_empty() || filter.iter().any(|one| one.as_str().eq_ignore_ascii_case(word))
        };
        let groups = self.groups.iter().filter(|(_, group)| {
            wanted(&request.states_filter, group.state_name()) && wanted(&request.types_filter, "classic")
        });
        let listed = groups.map(|(id, group)| {
            let mut answer = ListedGroup::default()
                .with_group_id(id.clone().into())
                .with_protocol_type(group.roster.protocol_type.clone().unwrap_or_default());
            if api_version >= LIST_STATE_VERSION {
                answer.group_state = StrBytes::from_static_str(group.state_name());
            }
            if api_version >= LIST_TYPE_VERSION {
                answer.group_type = StrBytes::from_static_str("classic");
            }
            answer
        });
        ListGroupsResponse::default().with_groups(listed.collect())
    }

    pub(super) fn delete_groups(&mut self, request: &DeleteGroupsRequest) -> DeleteGroupsResponse {
        let mut answer = DeleteGroupsResponse::default();
        for group_id in &request.groups_names {
            let code = match self.refuse_group(group_id, true) {
                Err(code) => code,
                Ok(()) => match self.groups.get(&group_id.0) {
                    None => GROUP_ID_NOT_FOUND,
                    Some(group) if !group.is_empty() => NON_EMPTY_GROUP,
                    Some(_) => {
                        self.groups.remove(&group_id.0);
                        NONE
                    }
                },
            };
            let one = DeletableGroupResult::default().with_group_id(group_id.clone()).with_error_code(code);
            answer.results.push(one);
        }
        answer
    }
}

impl Group {
    /// The protocol and its bytes are only shown of a stable group; the last assignment always in 4.x.
    fn describe(&self, version: BrokerVersion, api_version: i16, answer: DescribedGroup) -> DescribedGroup {
        let stable = self.roster.phase == Phase::Stable;
        let protocol = self.roster.protocol_name.clone().filter(|_| stable).unwrap_or_default();
        let members = self.roster.members.iter().map(|member| {
            let shown = DescribedGroupMember::default()
                .with_member_id(member.id.clone())
                .with_group_instance_id(member.instance_id.clone().filter(|_| api_version >= DESCRIBE_INSTANCE_VERSION))
                .with_client_id(StrBytes::from_string(member.client_id.clone()))
                .with_client_host(StrBytes::from_string(member.client_host.clone()));
            let assignment = member.assignment.clone();
            match (stable, version) {
                (true, _) => shown.with_member_metadata(member.metadata(&protocol)).with_member_assignment(assignment),
                (false, BrokerVersion::V4_3_1) => shown.with_member_assignment(assignment),
                (false, _) => shown,
            }
        });
        answer
            .with_group_state(StrBytes::from_static_str(self.state_name()))
            .with_protocol_type(self.roster.protocol_type.clone().unwrap_or_default())
            .with_members(members.collect())
            .with_protocol_data(protocol)
    }
}
