//! JoinGroup and the rebalance: who may join, when a generation is complete, who is thrown out.

use std::time::Duration;

use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::{JoinGroupRequest, JoinGroupResponse};
use kafka_protocol::protocol::StrBytes;
use tokio::time::Instant;

use super::super::BrokerVersion;
use super::group::{Answers, Group, InitialDelay, Phase};
use super::member::{Member, Waiting};
use super::{
    Caller, FENCED_INSTANCE_ID, GroupCoordinator, GroupResponse, INCONSISTENT_GROUP_PROTOCOL, INVALID_SESSION_TIMEOUT,
    MEMBER_ID_REQUIRED, NONE, REBALANCE_IN_PROGRESS, UNKNOWN_MEMBER_ID,
};

/// A member whose first JoinGroup is unanswered cannot send heartbeats, so it gets this long.
const NEW_MEMBER_TIMEOUT: Duration = Duration::from_secs(300);
/// From here on the answer can tell a leader to leave the assignment alone (KIP-345's gap, closed by KIP-814).
const SKIP_ASSIGNMENT_VERSION: i16 = 9;
/// From here on a dynamic member has to come twice, the second time with the id it was given (KIP-394).
const KNOWN_MEMBER_ID_VERSION: i16 = 4;

/// What a join brings about; all of its effects but the answers are in the group by then.
enum Joined {
    /// The answer comes with the end of the rebalance.
    Waits,
    At(Box<JoinGroupResponse>),
}

impl GroupCoordinator {
    pub(super) fn join_group(
        &mut self,
        now: Instant,
        wall_ms: i64,
        caller: Caller,
        api_version: i16,
        request: JoinGroupRequest,
    ) {
        let (ticket, asked_id) = (caller.ticket, request.member_id.clone());
        let answer = match self.join(now, wall_ms, caller, api_version, request) {
            Ok(Joined::Waits) => return,
            Ok(Joined::At(answer)) => *answer,
            Err(code) => refusal(self.version, api_version, asked_id, code),
        };
        self.answers.push_back((ticket, GroupResponse::JoinGroup(answer)));
    }

    fn join(
        &mut self,
        now: Instant,
        wall_ms: i64,
        caller: Caller,
        api_version: i16,
        request: JoinGroupRequest,
    ) -> Result<Joined, i16> {
        self.refuse_group(&request.group_id, false)?;
        let session_timeout = millis(request.session_timeout_ms);
        if request.session_timeout_ms < 0
            || session_timeout < self.settings.session_timeout_min
            || session_timeout > self.settings.session_timeout_max
        {
            return Err(INVALID_SESSION_TIMEOUT);
        }
        let newcomer = request.member_id.is_empty();
        let version = self.version;
        if newcomer && !self.groups.contains_key(&request.group_id.0) {
            let mut group = Group::new();
            if version >= BrokerVersion::V4_3_1 {
                // A new group is written before anybody is in it, so it exists after a restart.
                group.write();
            }
            self.groups.insert(request.group_id.0.clone(), group);
        }
        self.member_ids += u64::from(newcomer);
        let new_id = self.new_member_id(&caller.client_id, request.group_instance_id.as_ref());
        let group = self.groups.get_mut(&request.group_id.0).ok_or(UNKNOWN_MEMBER_ID)?;
        if !group.supports(&request.protocol_type, &request.protocols) {
            return Err(INCONSISTENT_GROUP_PROTOCOL);
        }
        // In version 0 one timeout was both.
        let rebalance_timeout = if api_version == 0 { session_timeout } else { millis(request.rebalance_timeout_ms) };
        let protocol_type = request.protocol_type.clone();
        let mut member = Member {
            id: if newcomer { new_id } else { request.member_id.clone() },
            instance_id: request.group_instance_id.clone(),
            client_id: caller.client_id,
            client_host: caller.client_host,
            session_timeout,
            rebalance_timeout,
            protocols: request.protocols,
            assignment: bytes::Bytes::new(),
            expiry: Some(now + NEW_MEMBER_TIMEOUT),
            is_new: true,
            join: Some(Waiting { ticket: Some(caller.ticket), api_version }),
            sync: None,
        };
        if newcomer {
            let former = member.instance_id.as_ref().and_then(|id| group.static_member(id)).map(|one| one.id.clone());
            if let Some(former) = former {
                return Ok(group.take_over(now, wall_ms, version, &former, member, &mut self.answers));
            }
            if member.instance_id.is_none() && api_version >= KNOWN_MEMBER_ID_VERSION {
                group.pending.insert(member.id.clone(), now + session_timeout);
                let answer = refusal(version, api_version, member.id, MEMBER_ID_REQUIRED);
                return Ok(Joined::At(Box::new(answer)));
            }
        } else if group.pending.remove(&member.id).is_none() {
            group.check_member(&member.id, member.instance_id.as_ref())?;
            return group.rejoin(now, wall_ms, version, member, &mut self.answers);
        } else {
            // The second step of a dynamic member: known, but not a member yet.
            member.instance_id = None;
        }
        if group.roster.members.is_empty() {
            group.roster.protocol_type = Some(protocol_type);
        }
        group.add_member(now, wall_ms, version, member, &self.settings, &mut self.answers);
        Ok(Joined::Waits)
    }

    /// Shaped like Kafka's, with a running number in place of randomness.
    fn new_member_id(&self, client_id: &str, instance_id: Option<&StrBytes>) -> StrBytes {
        let prefix = instance_id.map_or(client_id, StrBytes::as_str);
        StrBytes::from_string(format!("{prefix}-00000000-0000-4000-8000-{:012x}", self.member_ids))
    }
}

impl Group {
    fn add_member(
        &mut self,
        now: Instant,
        wall_ms: i64,
        version: BrokerVersion,
        member: Member,
        settings: &super::GroupSettings,
        answers: &mut Answers,
    ) {
        // The Scala coordinator prolongs the initial delay only for a group that never had a generation.
        let prolongs = version >= BrokerVersion::V4_3_1 || self.roster.generation == 0;
        if let Phase::Preparing { initial: Some(initial), .. } = &mut self.roster.phase {
            initial.newcomer |= prolongs;
        }
        if self.roster.members.is_empty() {
            self.roster.leader = Some(member.id.clone());
        }
        self.roster.members.push(member);
        if self.is_empty() {
            let delay = settings.initial_rebalance_delay;
            let remaining = self.rebalance_timeout().saturating_sub(delay);
            let initial = Some(InitialDelay { delay, remaining, newcomer: false });
            self.roster.phase = Phase::Preparing { deadline: now + delay, initial };
        } else {
            self.prepare(now, wall_ms, version, answers);
        }
    }

    /// A member that we know asks for its next generation.
    fn rejoin(
        &mut self,
        now: Instant,
        wall_ms: i64,
        version: BrokerVersion,
        request: Member,
        answers: &mut Answers,
    ) -> Result<Joined, i16> {
        let (id, leads) = (request.id.clone(), self.leads(&request.id));
        let Some(member) = self.member_mut(&id) else {
            return Err(UNKNOWN_MEMBER_ID);
        };
        let same = member.matches(&request.protocols);
        let api_version = request.join.map_or(0, |waiting| waiting.api_version);
        let answers_now = match self.roster.phase {
            Phase::Preparing { .. } => false,
            // It did not get the answer, and asks again.
            Phase::Completing => same,
            Phase::Stable => same && !leads,
            Phase::Empty => return Err(UNKNOWN_MEMBER_ID),
        };
        if answers_now {
            if let Some(member) = self.member_mut(&id) {
                member.hear(now);
            }
            let with_members = leads && self.roster.phase == Phase::Completing;
            let answer = self.joined(api_version, &id, self.leader(), with_members, false);
            return Ok(Joined::At(Box::new(answer)));
        }
        self.update_member(&id, request);
        self.prepare(now, wall_ms, version, answers);
        Ok(Joined::Waits)
    }

    fn update_member(&mut self, id: &str, request: Member) {
        if let Some(member) = self.member_mut(id) {
            member.protocols = request.protocols;
            member.session_timeout = request.session_timeout;
            member.rebalance_timeout = request.rebalance_timeout;
            // A JoinGroup that waited before, on another connection, is never answered.
            member.join = request.join;
        }
    }

    /// An empty member id with an instance id that has an owner: the last comer wins (S13).
    fn take_over(
        &mut self,
        now: Instant,
        wall_ms: i64,
        version: BrokerVersion,
        former: &StrBytes,
        request: Member,
        answers: &mut Answers,
    ) -> Joined {
        let leader_before = self.leader();
        let led = self.leads(former);
        let (id, waiting) = (request.id.clone(), request.join);
        let choice_before = self.roster.protocol_name.clone();
        if let Some(member) = self.member_mut(former) {
            member.id = id.clone();
            if let Some(waiting) = member.join.take()
                && let Some(ticket) = waiting.ticket
            {
                let answer = refusal(version, waiting.api_version, former.clone(), FENCED_INSTANCE_ID);
                answers.push_back((ticket, GroupResponse::JoinGroup(answer)));
            }
            if let Some(ticket) = member.sync.take().and_then(|waiting| waiting.ticket) {
                answers.push_back((ticket, super::session::sync_refusal(FENCED_INSTANCE_ID)));
            }
            member.hear(now);
        }
        if self.pending_sync.remove(former) {
            self.pending_sync.insert(id.clone());
        }
        if led {
            self.roster.leader = Some(id.clone());
        }
        self.update_member(&id, request);
        let api_version = waiting.map_or(0, |waiting| waiting.api_version);
        match self.roster.phase {
            Phase::Stable if self.choose_protocol() == choice_before => {
                if let Some(member) = self.member_mut(&id) {
                    member.join = None;
                }
                self.write();
                // Below version 9 the newcomer must not believe that it leads: it would assign anew, and nobody asked.
                let (leader, skip) =
                    if api_version >= SKIP_ASSIGNMENT_VERSION { (self.leader(), led) } else { (leader_before, false) };
                Joined::At(Box::new(self.joined(api_version, &id, leader, skip, skip)))
            }
            // The leader may have computed an assignment for the former id.
            Phase::Stable | Phase::Completing => {
                self.prepare(now, wall_ms, version, answers);
                Joined::Waits
            }
            Phase::Preparing { .. } | Phase::Empty => {
                self.complete_if_joined(now, wall_ms, version, answers);
                Joined::Waits
            }
        }
    }

    /// Everybody has to join again. Members that wait for their assignment are told at once.
    pub(super) fn prepare(&mut self, now: Instant, wall_ms: i64, version: BrokerVersion, answers: &mut Answers) {
        if matches!(self.roster.phase, Phase::Completing | Phase::Stable) {
            if self.roster.phase == Phase::Completing {
                for member in &mut self.roster.members {
                    member.assignment = bytes::Bytes::new();
                    if let Some(waiting) = member.sync.take() {
                        member.hear(now);
                        if let Some(ticket) = waiting.ticket {
                            answers.push_back((ticket, super::session::sync_refusal(REBALANCE_IN_PROGRESS)));
                        }
                    }
                }
            }
            self.sync_deadline = None;
            self.pending_sync.clear();
            let deadline = now + self.rebalance_timeout();
            self.roster.phase = Phase::Preparing { deadline, initial: None };
        }
        self.complete_if_joined(now, wall_ms, version, answers);
    }

    pub(super) fn complete_if_joined(
        &mut self,
        now: Instant,
        wall_ms: i64,
        version: BrokerVersion,
        answers: &mut Answers,
    ) {
        let everybody = self.pending.is_empty() && self.roster.members.iter().all(|member| member.join.is_some());
        if everybody && matches!(self.roster.phase, Phase::Preparing { initial: None, .. }) {
            self.complete(now, wall_ms, version, answers);
        }
    }

    /// The time for joining is over.
    pub(super) fn end_of_joining(&mut self, now: Instant, wall_ms: i64, version: BrokerVersion, answers: &mut Answers) {
        if let Phase::Preparing { deadline, initial: Some(initial) } = &mut self.roster.phase
            && initial.newcomer
            && !initial.remaining.is_zero()
        {
            let delay = initial.delay.min(initial.remaining);
            initial.newcomer = false;
            initial.remaining -= delay;
            *deadline = now + delay;
            return;
        }
        self.complete(now, wall_ms, version, answers);
    }

    /// Begins the next generation with those who have joined. Static members that did not are kept: their owner may only
    /// be restarting. Dynamic ones go.
    fn complete(&mut self, now: Instant, wall_ms: i64, version: BrokerVersion, answers: &mut Answers) {
        self.roster.members.retain(|member| member.join.is_some() || member.instance_id.is_some());
        if self.roster.members.is_empty() {
            return self.become_empty(wall_ms);
        }
        let Some(first) = self.roster.members.iter().find(|member| member.join.is_some()).map(|one| one.id.clone())
        else {
            // Nobody came. Wait until they do or expire.
            let deadline = now + self.rebalance_timeout().max(Duration::from_millis(1));
            self.roster.phase = Phase::Preparing { deadline, initial: None };
            return;
        };
        if self.member(&self.leader()).is_none_or(|leader| leader.join.is_none()) {
            self.roster.leader = Some(first);
        }
        self.roster.generation += 1;
        self.roster.protocol_name = self.choose_protocol();
        self.roster.phase = Phase::Completing;
        self.roster.since_ms = Some(wall_ms);
        let leader = self.leader();
        let ids: Vec<StrBytes> = self.roster.members.iter().map(|member| member.id.clone()).collect();
        for id in &ids {
            let Some(waiting) = self.member_mut(id).and_then(|member| {
                member.is_new = false;
                member.hear(now);
                member.join.take()
            }) else {
                continue;
            };
            if let Some(ticket) = waiting.ticket {
                let answer = self.joined(waiting.api_version, id, leader.clone(), self.leads(id), false);
                answers.push_back((ticket, GroupResponse::JoinGroup(answer)));
            }
        }
        if version > BrokerVersion::V2_8_2 {
            self.pending_sync = ids.into_iter().collect();
            self.sync_deadline = Some(now + self.rebalance_timeout());
        }
    }

    fn become_empty(&mut self, wall_ms: i64) {
        self.roster.generation += 1;
        self.roster.protocol_name = None;
        self.roster.leader = None;
        self.roster.phase = Phase::Empty;
        self.roster.since_ms = Some(wall_ms);
        self.pending_sync.clear();
        self.sync_deadline = None;
        self.write();
    }

    pub(super) fn remove_member(
        &mut self,
        now: Instant,
        wall_ms: i64,
        version: BrokerVersion,
        id: &str,
        answers: &mut Answers,
    ) {
        let Some(at) = self.roster.members.iter().position(|member| member.id.as_str() == id) else {
            return;
        };
        let member = self.roster.members.remove(at);
        if let Some(waiting) = member.join
            && let Some(ticket) = waiting.ticket
        {
            let answer = refusal(version, waiting.api_version, member.id.clone(), UNKNOWN_MEMBER_ID);
            answers.push_back((ticket, GroupResponse::JoinGroup(answer)));
        }
        if let Some(ticket) = member.sync.and_then(|waiting| waiting.ticket) {
            answers.push_back((ticket, super::session::sync_refusal(UNKNOWN_MEMBER_ID)));
        }
        self.pending_sync.remove(&member.id);
        if self.leads(id) {
            self.roster.leader = self.roster.members.first().map(|member| member.id.clone());
        }
        self.prepare(now, wall_ms, version, answers);
    }

    /// Members that took their generation and never asked for an assignment would block the group for ever.
    pub(super) fn expel_unsynced(&mut self, now: Instant, wall_ms: i64, version: BrokerVersion, answers: &mut Answers) {
        self.sync_deadline = None;
        let silent = std::mem::take(&mut self.pending_sync);
        if silent.is_empty() || !matches!(self.roster.phase, Phase::Completing | Phase::Stable) {
            return;
        }
        self.roster.members.retain(|member| !silent.contains(&member.id));
        if !self.roster.members.iter().any(|member| self.roster.leader.as_ref() == Some(&member.id)) {
            self.roster.leader = self.roster.members.first().map(|member| member.id.clone());
        }
        self.prepare(now, wall_ms, version, answers);
    }

    fn joined(
        &self,
        api_version: i16,
        id: &StrBytes,
        leader: StrBytes,
        with_members: bool,
        skip_assignment: bool,
    ) -> JoinGroupResponse {
        let protocol = self.roster.protocol_name.clone().unwrap_or_default();
        let mut answer = JoinGroupResponse::default()
            .with_error_code(NONE)
            .with_generation_id(self.roster.generation)
            .with_leader(leader)
            .with_member_id(id.clone())
            .with_skip_assignment(skip_assignment)
            .with_protocol_type(self.roster.protocol_type.clone().filter(|_| api_version >= 7))
            .with_protocol_name(Some(protocol.clone()));
        if with_members {
            let listed = |member: &Member| {
                JoinGroupResponseMember::default()
                    .with_member_id(member.id.clone())
                    .with_group_instance_id(member.instance_id.clone().filter(|_| api_version >= 5))
                    .with_metadata(member.metadata(&protocol))
            };
            answer.members = self.roster.members.iter().map(listed).collect();
        }
        answer
    }
}

fn refusal(version: BrokerVersion, api_version: i16, member_id: StrBytes, code: i16) -> JoinGroupResponse {
    // The name may be null from version 7 on; the coordinator of 4.x leaves it at its default instead.
    let null = api_version >= 7 && version < BrokerVersion::V4_3_1;
    JoinGroupResponse::default()
        .with_error_code(code)
        .with_generation_id(-1)
        .with_member_id(member_id)
        .with_protocol_name((!null).then(StrBytes::default))
}

/// Negative means none.
fn millis(count: i32) -> Duration {
    Duration::from_millis(u64::try_from(count).unwrap_or(0))
}
