//! SyncGroup, Heartbeat and LeaveGroup: what a member does between two rebalances.

use bytes::Bytes;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::leave_group_response::MemberResponse;
use kafka_protocol::messages::{
    HeartbeatRequest, HeartbeatResponse, LeaveGroupRequest, LeaveGroupResponse, SyncGroupRequest, SyncGroupResponse,
};
use tokio::time::Instant;

use super::super::{BrokerVersion, Ticket};
use super::group::{Answers, Group, Phase};
use super::member::Waiting;
use super::{
    COORDINATOR_LOAD_IN_PROGRESS, GroupCoordinator, GroupResponse, INCONSISTENT_GROUP_PROTOCOL, NONE,
    REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID,
};

/// From here on SyncGroup says, and is told, the protocol's type and name.
const SYNC_NAMES_VERSION: i16 = 5;
/// Up to here LeaveGroup is about one member, and its error is that of the whole answer.
const LEAVE_ONE_VERSION: i16 = 2;

pub(super) fn sync_refusal(code: i16) -> GroupResponse {
    GroupResponse::SyncGroup(SyncGroupResponse::default().with_error_code(code))
}

impl GroupCoordinator {
    pub(super) fn sync_group(&mut self, now: Instant, ticket: Ticket, api_version: i16, request: &SyncGroupRequest) {
        if let Err(code) = self.sync(now, ticket, api_version, request) {
            self.answers.push_back((ticket, sync_refusal(code)));
        }
    }

    fn sync(&mut self, now: Instant, ticket: Ticket, api_version: i16, request: &SyncGroupRequest) -> Result<(), i16> {
        let named = request.protocol_type.is_some() && request.protocol_name.is_some();
        if api_version >= SYNC_NAMES_VERSION && !named {
            return Err(INCONSISTENT_GROUP_PROTOCOL);
        }
        self.refuse_group(&request.group_id, false).map_err(|code| match code {
            // Kafka wants the member to join again rather than to ask again.
            COORDINATOR_LOAD_IN_PROGRESS => REBALANCE_IN_PROGRESS,
            code => code,
        })?;
        let group = self.groups.get_mut(&request.group_id.0).ok_or(UNKNOWN_MEMBER_ID)?;
        group.check_member(&request.member_id, request.group_instance_id.as_ref())?;
        group.check_generation(request.generation_id)?;
        let other_type = request.protocol_type.is_some() && request.protocol_type != group.roster.protocol_type;
        let other_name = request.protocol_name.is_some() && request.protocol_name != group.roster.protocol_name;
        if other_type || other_name {
            return Err(INCONSISTENT_GROUP_PROTOCOL);
        }
        match group.phase() {
            Phase::Empty => Err(UNKNOWN_MEMBER_ID),
            Phase::Preparing { .. } => Err(REBALANCE_IN_PROGRESS),
            Phase::Completing | Phase::Stable => {
                group.take_sync(now, Waiting { ticket: Some(ticket), api_version }, request, &mut self.answers);
                Ok(())
            }
        }
    }

    pub(super) fn heartbeat(&mut self, now: Instant, request: &HeartbeatRequest) -> HeartbeatResponse {
        let code = match self.refuse_group(&request.group_id, false) {
            // Zero for anybody while the coordinator loads: it proves nothing (S13).
            Err(COORDINATOR_LOAD_IN_PROGRESS) => NONE,
            Err(code) => code,
            Ok(()) => self
                .groups
                .get_mut(&request.group_id.0)
                .ok_or(UNKNOWN_MEMBER_ID)
                .and_then(|group| group.heartbeat(now, request))
                .err()
                .unwrap_or(NONE),
        };
        HeartbeatResponse::default().with_error_code(code)
    }

    pub(super) fn leave_group(
        &mut self,
        now: Instant,
        wall_ms: i64,
        api_version: i16,
        request: &LeaveGroupRequest,
    ) -> LeaveGroupResponse {
        if let Err(code) = self.refuse_group(&request.group_id, false) {
            return LeaveGroupResponse::default().with_error_code(code);
        }
        let one = [MemberIdentity::default().with_member_id(request.member_id.clone())];
        let leaving = if api_version <= LEAVE_ONE_VERSION { &one[..] } else { &request.members };
        let mut answers = Vec::with_capacity(leaving.len());
        for member in leaving {
            let code = match self.groups.get_mut(&request.group_id.0) {
                Some(group) => group.leave(now, wall_ms, self.version, member, &mut self.answers),
                None => UNKNOWN_MEMBER_ID,
            };
            answers.push(
                MemberResponse::default()
                    .with_member_id(member.member_id.clone())
                    .with_group_instance_id(member.group_instance_id.clone())
                    .with_error_code(code),
            );
        }
        if api_version <= LEAVE_ONE_VERSION {
            return LeaveGroupResponse::default().with_error_code(answers.first().map_or(NONE, |one| one.error_code));
        }
        LeaveGroupResponse::default().with_members(answers)
    }
}

impl Group {
    fn heartbeat(&mut self, now: Instant, request: &HeartbeatRequest) -> Result<(), i16> {
        self.check_member(&request.member_id, request.group_instance_id.as_ref())?;
        self.check_generation(request.generation_id)?;
        // Also when the answer is 27: it keeps the session alive (S13).
        if let Some(member) = self.member_mut(&request.member_id) {
            member.hear(now);
        }
        if self.is_preparing() { Err(REBALANCE_IN_PROGRESS) } else { Ok(()) }
    }

    fn take_sync(&mut self, now: Instant, waiting: Waiting, request: &SyncGroupRequest, answers: &mut Answers) {
        self.pending_sync.remove(&request.member_id);
        let completing = self.roster.phase == Phase::Completing;
        let leads = self.leads(&request.member_id);
        if let Some(member) = self.member_mut(&request.member_id) {
            member.sync = Some(waiting);
            if completing {
                member.expiry = None;
            }
        }
        if completing && leads {
            for member in &mut self.roster.members {
                let given = request.assignments.iter().find(|given| given.member_id == member.id);
                member.assignment = given.map(|given| given.assignment.clone()).unwrap_or_default();
            }
            self.roster.phase = Phase::Stable;
            self.write();
        }
        if self.roster.phase == Phase::Stable {
            self.answer_syncs(now, answers);
        }
    }

    fn answer_syncs(&mut self, now: Instant, answers: &mut Answers) {
        let (protocol_type, protocol_name) = (self.roster.protocol_type.clone(), self.roster.protocol_name.clone());
        for member in &mut self.roster.members {
            let Some(waiting) = member.sync.take() else {
                continue;
            };
            member.hear(now);
            let named = waiting.api_version >= SYNC_NAMES_VERSION;
            if let Some(ticket) = waiting.ticket {
                let answer = SyncGroupResponse::default()
                    .with_assignment(Bytes::clone(&member.assignment))
                    .with_protocol_type(protocol_type.clone().filter(|_| named))
                    .with_protocol_name(protocol_name.clone().filter(|_| named));
                answers.push_back((ticket, GroupResponse::SyncGroup(answer)));
            }
        }
    }

    /// By member id, by both, or by instance id alone, as an administrator does.
    fn leave(
        &mut self,
        now: Instant,
        wall_ms: i64,
        version: BrokerVersion,
        leaving: &MemberIdentity,
        answers: &mut Answers,
    ) -> i16 {
        let id = if leaving.member_id.is_empty() {
            let owner = leaving.group_instance_id.as_ref().and_then(|instance| self.static_member(instance));
            match owner {
                Some(owner) => owner.id.clone(),
                None => return UNKNOWN_MEMBER_ID,
            }
        } else if self.pending.remove(&leaving.member_id).is_some() {
            self.complete_if_joined(now, wall_ms, version, answers);
            return NONE;
        } else if let Err(code) = self.check_member(&leaving.member_id, leaving.group_instance_id.as_ref()) {
            return code;
        } else {
            leaving.member_id.clone()
        };
        self.remove_member(now, wall_ms, version, &id, answers);
        NONE
    }
}
