//! FindCoordinator, and group requests on their way to the group coordinator and back.

use bytes::Bytes;
use kafka_protocol::messages::describe_groups_response::DescribedGroup;
use kafka_protocol::messages::find_coordinator_response::{Coordinator, FindCoordinatorResponse};
use kafka_protocol::messages::offset_fetch_response::OffsetFetchResponseGroup;
use kafka_protocol::messages::{
    ApiKey, DeleteGroupsRequest, DescribeGroupsRequest, FindCoordinatorRequest, GroupId, OffsetFetchRequest,
    delete_groups_response::DeletableGroupResult,
};
use kafka_protocol::protocol::StrBytes;

use super::{Answer, Asked, Outcome, errors, read};
use crate::protocol::{DecodeError, ErrorCode};
use crate::testkit::Ticket;
use crate::testkit::engine::{Cluster, Waiting};
use crate::testkit::groups::{Caller, GroupRequest, GroupResponse};

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;

impl Cluster {
    pub(super) fn find_coordinator(&self, asked: &Asked, request: &FindCoordinatorRequest) -> FindCoordinatorResponse {
        let keys = if asked.version >= 4 { request.coordinator_keys.clone() } else { vec![request.key.clone()] };
        let found = keys.into_iter().map(|key| self.coordinator(request.key_type, key));
        if asked.version >= 4 {
            return FindCoordinatorResponse::default().with_coordinators(found.collect());
        }
        let mut response = FindCoordinatorResponse::default();
        for coordinator in found {
            response.error_code = coordinator.error_code;
            response.node_id = coordinator.node_id;
            response.host = coordinator.host;
            response.port = coordinator.port;
            if asked.version >= 1 {
                response.error_message = coordinator.error_message;
            }
        }
        response
    }

    fn coordinator(&self, key_type: i8, key: StrBytes) -> Coordinator {
        let node = match key_type {
            GROUP | TRANSACTION => self.coordinator_of(&key).ok_or(ErrorCode::COORDINATOR_NOT_AVAILABLE),
            _ => Err(ErrorCode::INVALID_REQUEST),
        };
        let found =
            node.and_then(|id| self.nodes.get(&id).map(|node| (id, node)).ok_or(ErrorCode::COORDINATOR_NOT_AVAILABLE));
        let answer = Coordinator::default().with_key(key);
        match found {
            Ok((id, node)) => answer
                .with_node_id(id.into())
                .with_host(StrBytes::from_string(node.host.clone()))
                .with_port(node.port.into()),
            Err(code) => answer.with_node_id((-1).into()).with_port(-1).with_error_code(code.0),
        }
    }

    /// Group requests; other APIs are not offered and do not come here.
    pub(super) fn group_request(&mut self, asked: &Asked, body: Bytes) -> Result<Outcome, DecodeError> {
        let mut asked = asked.clone();
        let whole = body.clone();
        let (group, request) = match asked.api {
            ApiKey::JoinGroup => single(read(&asked, body)?, |r: &Join| &r.group_id, GroupRequest::JoinGroup),
            ApiKey::SyncGroup => single(read(&asked, body)?, |r: &Sync| &r.group_id, GroupRequest::SyncGroup),
            ApiKey::Heartbeat => single(read(&asked, body)?, |r: &Beat| &r.group_id, GroupRequest::Heartbeat),
            ApiKey::LeaveGroup => single(read(&asked, body)?, |r: &Leave| &r.group_id, GroupRequest::LeaveGroup),
            ApiKey::OffsetCommit => single(read(&asked, body)?, |r: &Commit| &r.group_id, GroupRequest::OffsetCommit),
            ApiKey::OffsetDelete => single(read(&asked, body)?, |r: &Delete| &r.group_id, GroupRequest::OffsetDelete),
            ApiKey::ListGroups => (None, GroupRequest::ListGroups(read(&asked, body)?)),
            ApiKey::OffsetFetch if asked.version < 8 => {
                single(read(&asked, body)?, |r: &OffsetFetchRequest| &r.group_id, GroupRequest::OffsetFetch)
            }
            ApiKey::OffsetFetch => {
                let mut request: OffsetFetchRequest = read(&asked, body)?;
                self.keep_ours(&mut asked, &mut request.groups, |group| &group.group_id.0);
                (None, GroupRequest::OffsetFetch(request))
            }
            ApiKey::DescribeGroups => {
                let mut request: DescribeGroupsRequest = read(&asked, body)?;
                self.keep_ours(&mut asked, &mut request.groups, |group| &group.0);
                (None, GroupRequest::DescribeGroups(request))
            }
            ApiKey::DeleteGroups => {
                let mut request: DeleteGroupsRequest = read(&asked, body)?;
                self.keep_ours(&mut asked, &mut request.groups_names, |group| &group.0);
                (None, GroupRequest::DeleteGroups(request))
            }
            _ => return Ok(Outcome::Hangup),
        };
        if group.is_some_and(|group| self.coordinator_of(&group) != Some(asked.node)) {
            return Ok(errors::answer(&asked, whole, ErrorCode::NOT_COORDINATOR));
        }
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.tickets.insert(ticket, asked.connection);
        let caller = Caller {
            ticket,
            client_id: asked.client_id.clone().unwrap_or_default(),
            client_host: "/127.0.0.1".to_owned(),
        };
        let (now, wall_ms) = (self.clock.now, self.clock.wall_ms);
        self.groups.handle(now, wall_ms, &self.topics, caller, asked.version, request);
        Ok(Outcome::WaitGroup(asked, ticket))
    }

    /// Takes out the groups of other coordinators; they are answered for at the end.
    fn keep_ours<T>(&self, asked: &mut Asked, groups: &mut Vec<T>, id: impl Fn(&T) -> &StrBytes) {
        groups.retain(|group| {
            let is_ours = self.coordinator_of(id(group)) == Some(asked.node);
            if !is_ours {
                asked.foreign.push(id(group).clone());
            }
            is_ours
        });
    }

    pub(in crate::testkit::engine) fn answer_group(&mut self, ticket: Ticket, response: GroupResponse) {
        let Some(connection) = self.tickets.remove(&ticket) else {
            return;
        };
        let Some(open) = self.connections.get_mut(&connection) else {
            return;
        };
        match open.waiting.take() {
            Some(Waiting::Group(asked, waited)) if waited == ticket => {
                let answer = self.group_answer(&asked, response);
                self.send(connection, answer);
            }
            other => open.waiting = other,
        }
    }

    fn group_answer(&self, asked: &Asked, response: GroupResponse) -> Answer {
        let code = ErrorCode::NOT_COORDINATOR.0;
        let foreign = asked.foreign.iter().cloned().map(GroupId);
        match response {
            GroupResponse::JoinGroup(response) => asked.answer(&response),
            GroupResponse::SyncGroup(response) => asked.answer(&response),
            GroupResponse::Heartbeat(response) => asked.answer(&response),
            GroupResponse::LeaveGroup(response) => asked.answer(&response),
            GroupResponse::OffsetCommit(response) => asked.answer(&response),
            GroupResponse::OffsetDelete(response) => asked.answer(&response),
            GroupResponse::OffsetFetch(mut response) => {
                response.groups.extend(
                    foreign.map(|group| OffsetFetchResponseGroup::default().with_group_id(group).with_error_code(code)),
                );
                asked.answer(&response)
            }
            GroupResponse::DescribeGroups(mut response) => {
                response
                    .groups
                    .extend(foreign.map(|group| DescribedGroup::default().with_group_id(group).with_error_code(code)));
                asked.answer(&response)
            }
            GroupResponse::DeleteGroups(mut response) => {
                response.results.extend(
                    foreign.map(|group| DeletableGroupResult::default().with_group_id(group).with_error_code(code)),
                );
                asked.answer(&response)
            }
            GroupResponse::ListGroups(mut response) => {
                response.groups.retain(|group| self.coordinator_of(&group.group_id.0) == Some(asked.node));
                asked.answer(&response)
            }
        }
    }
}

type Join = kafka_protocol::messages::JoinGroupRequest;
type Sync = kafka_protocol::messages::SyncGroupRequest;
type Beat = kafka_protocol::messages::HeartbeatRequest;
type Leave = kafka_protocol::messages::LeaveGroupRequest;
type Commit = kafka_protocol::messages::OffsetCommitRequest;
type Delete = kafka_protocol::messages::OffsetDeleteRequest;

fn single<R>(
    request: R,
    group: impl Fn(&R) -> &GroupId,
    wrap: impl Fn(R) -> GroupRequest,
) -> (Option<StrBytes>, GroupRequest) {
    (Some(group(&request).0.clone()), wrap(request))
}
