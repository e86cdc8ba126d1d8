//! A small model of Kafka's classic group coordinator, as S13 measured it, for tests of the lease machine.
//!
//! One group, static members, all with the same timeouts. Knows: takeover by instance id (same generation, the leader below
//! v9 told it does not lead), 22/25/27/82, rebalances with and without the slow, session expiry, the initial delay, a
//! coordinator that restarts from what it had written, and Heartbeat 0 for anybody while it loads. Does not know: dynamic
//! members, KIP-848, retention, LeaveGroup.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use super::{JoinAnswer, JoinedMember, LEASE_PROTOCOL_NAME};

/// Where an answer goes; the model does not look inside.
pub(super) type Handle = usize;

#[derive(Clone, Debug)]
pub(super) enum Request {
    Join { member_id: String, instance_id: String, metadata: Bytes },
    Sync { generation: i32, member_id: String, instance_id: String, assignments: Vec<(String, Bytes)> },
    Heartbeat { generation: i32, member_id: String, instance_id: String },
    Commit { generation: i32, member_id: String, instance_id: String },
}

#[derive(Clone, Debug)]
pub(super) enum Response {
    Join(JoinAnswer),
    Sync(i16, Bytes),
    Code(i16),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Empty,
    Preparing { deadline: Duration, initial: bool },
    Completing,
    Stable,
}

#[derive(Clone, Debug)]
struct GroupMember {
    instance_id: String,
    metadata: Bytes,
    assignment: Bytes,
    heard: Duration,
    join: Option<Handle>,
    sync: Option<Handle>,
}

#[derive(Clone, Debug)]
pub(super) struct Coordinator {
    pub(super) session_timeout: Duration,
    pub(super) rebalance_timeout: Duration,
    /// JoinGroup v9 answers the leader who took over with `skip_assignment`.
    pub(super) v9: bool,
    state: State,
    pub(super) generation: i32,
    leader: String,
    members: BTreeMap<String, GroupMember>,
    loading_until: Duration,
    next_id: u64,
    written: Option<Box<Self>>,
    pub(super) out: Vec<(Handle, Response)>,
}

impl Coordinator {
    pub(super) fn new(session_timeout: Duration, rebalance_timeout: Duration, v9: bool) -> Self {
        Self {
            session_timeout,
            rebalance_timeout,
            v9,
            state: State::Empty,
            generation: 0,
            leader: String::new(),
            members: BTreeMap::new(),
            loading_until: Duration::ZERO,
            next_id: 0,
            written: None,
            out: Vec::new(),
        }
    }

    pub(super) fn handle(&mut self, now: Duration, handle: Handle, request: Request) {
        self.tick(now);
        let loading = now < self.loading_until;
        match request {
            Request::Join { .. } if loading => self.refuse_join(handle, 14),
            Request::Join { member_id, instance_id, metadata } => {
                self.join(now, handle, member_id, instance_id, metadata)
            }
            Request::Sync { .. } if loading => self.out.push((handle, Response::Sync(27, Bytes::new()))),
            Request::Sync { generation, member_id, instance_id, assignments } => {
                self.sync(now, handle, generation, &member_id, &instance_id, assignments);
            }
            Request::Heartbeat { .. } if loading => self.out.push((handle, Response::Code(0))),
            Request::Heartbeat { generation, member_id, instance_id } => {
                let code = match self.check(&member_id, &instance_id, Some(generation)) {
                    0 if matches!(self.state, State::Preparing { .. }) => 27,
                    code => code,
                };
                self.hear(now, &member_id, code);
                self.out.push((handle, Response::Code(code)));
            }
            Request::Commit { .. } if loading => self.out.push((handle, Response::Code(14))),
            Request::Commit { generation, member_id, instance_id } => {
                let code = match self.check(&member_id, &instance_id, Some(generation)) {
                    0 if self.state == State::Completing => 27,
                    code => code,
                };
                self.hear(now, &member_id, code);
                self.out.push((handle, Response::Code(code)));
            }
        }
    }

    /// Lets time pass: expiry and the end of a rebalance. Call at least every few milliseconds of virtual time.
    pub(super) fn tick(&mut self, now: Duration) {
        if now < self.loading_until {
            return;
        }
        // A member that waits in JoinGroup or SyncGroup does not expire.
        let expired = |member: &GroupMember| {
            member.join.is_none() && member.sync.is_none() && now >= member.heard + self.session_timeout
        };
        let gone: Vec<String> =
            self.members.iter().filter(|(_, member)| expired(member)).map(|(id, _)| id.clone()).collect();
        for id in gone {
            self.members.remove(&id);
            self.after_removal(now);
        }
        if let State::Preparing { deadline, .. } = self.state
            && now >= deadline
        {
            self.complete(now);
        }
    }

    /// The coordinator dies and another (or the same, restarted) loads what was written; waiting requests get no answer.
    pub(super) fn restart(&mut self, now: Duration, loading: Duration) -> Vec<Handle> {
        let waiting = self.members.values().flat_map(|member| [member.join, member.sync]).flatten().collect();
        let (next_id, written) = (self.next_id, self.written.clone());
        match written {
            Some(written) => *self = Self { written: self.written.take(), ..*written },
            None => *self = Self::new(self.session_timeout, self.rebalance_timeout, self.v9),
        }
        self.next_id = next_id;
        self.loading_until = now + loading;
        for member in self.members.values_mut() {
            (member.join, member.sync, member.heard) = (None, None, self.loading_until);
        }
        waiting
    }

    fn write(&mut self) {
        let mut copy = self.clone();
        (copy.written, copy.out) = (None, Vec::new());
        self.written = Some(Box::new(copy));
    }

    fn check(&self, member_id: &str, instance_id: &str, generation: Option<i32>) -> i16 {
        match self.members.iter().find(|(_, member)| member.instance_id == instance_id) {
            Some((id, _)) if id != member_id => 82,
            None => 25,
            Some(_) if generation.is_some_and(|generation| generation != self.generation) => 22,
            Some(_) => 0,
        }
    }

    fn hear(&mut self, now: Duration, member_id: &str, code: i16) {
        if matches!(code, 0 | 27)
            && let Some(member) = self.members.get_mut(member_id)
        {
            member.heard = now;
        }
    }

    fn refuse_join(&mut self, handle: Handle, error_code: i16) {
        self.out.push((handle, Response::Join(JoinAnswer { error_code, ..JoinAnswer::default() })));
    }

    fn join(&mut self, now: Duration, handle: Handle, member_id: String, instance_id: String, metadata: Bytes) {
        if !member_id.is_empty() {
            match self.check(&member_id, &instance_id, None) {
                0 => self.rejoin(now, handle, &member_id, metadata),
                code => self.refuse_join(handle, code),
            }
            return;
        }
        self.next_id += 1;
        let id = format!("{instance_id}-{}", self.next_id);
        let former =
            self.members.iter().find(|(_, member)| member.instance_id == instance_id).map(|(id, _)| id.clone());
        let Some(former) = former else {
            let member = GroupMember {
                instance_id,
                metadata,
                assignment: Bytes::new(),
                heard: now,
                join: Some(handle),
                sync: None,
            };
            self.members.insert(id, member);
            return self.prepare(now);
        };
        let Some(mut member) = self.members.remove(&former) else {
            return;
        };
        if let Some(waiting) = member.join.take() {
            self.refuse_join(waiting, 82);
        }
        if let Some(waiting) = member.sync.take() {
            self.out.push((waiting, Response::Sync(82, Bytes::new())));
        }
        (member.metadata, member.heard) = (metadata, now);
        let led = self.leader == former;
        if led {
            self.leader.clone_from(&id);
        }
        match self.state {
            State::Stable => {
                self.members.insert(id.clone(), member);
                let leader = if led && !self.v9 { former } else { self.leader.clone() };
                self.answer_join(handle, &id, leader, led && self.v9);
                self.write();
            }
            State::Preparing { .. } | State::Completing | State::Empty => {
                member.join = Some(handle);
                self.members.insert(id, member);
                self.prepare(now);
            }
        }
    }

    fn rejoin(&mut self, now: Duration, handle: Handle, id: &str, metadata: Bytes) {
        let Some(member) = self.members.get_mut(id) else {
            return;
        };
        let same = member.metadata == metadata;
        (member.metadata, member.heard) = (metadata, now);
        let leads = self.leader == id;
        let at_once = match self.state {
            State::Stable => same && !leads,
            State::Completing => same,
            State::Preparing { .. } | State::Empty => false,
        };
        if at_once {
            let leader = self.leader.clone();
            self.answer_join(handle, id, leader, false);
        } else {
            member.join = Some(handle);
            self.prepare(now);
        }
    }

    fn prepare(&mut self, now: Duration) {
        match self.state {
            State::Empty => {
                self.state = State::Preparing { deadline: now + Duration::from_secs(3), initial: true };
            }
            State::Completing | State::Stable => {
                for member in self.members.values_mut() {
                    if let Some(waiting) = member.sync.take() {
                        member.heard = now;
                        self.out.push((waiting, Response::Sync(27, Bytes::new())));
                    }
                }
                self.state = State::Preparing { deadline: now + self.rebalance_timeout, initial: false };
            }
            State::Preparing { .. } => {}
        }
        let all = self.members.values().all(|member| member.join.is_some());
        if all && matches!(self.state, State::Preparing { initial: false, .. }) {
            self.complete(now);
        }
    }

    fn complete(&mut self, now: Duration) {
        let Some(first) = self.members.iter().find(|(_, member)| member.join.is_some()).map(|(id, _)| id.clone())
        else {
            // Nobody rejoined: postponed until they do or expire.
            self.state = State::Preparing { deadline: now + self.rebalance_timeout, initial: false };
            return;
        };
        if self.members.get(&self.leader).is_none_or(|leader| leader.join.is_none()) {
            self.leader = first;
        }
        self.generation += 1;
        self.state = State::Completing;
        let ids: Vec<String> = self.members.keys().cloned().collect();
        for id in ids {
            let Some(member) = self.members.get_mut(&id) else {
                continue;
            };
            member.assignment = Bytes::new();
            if let Some(handle) = member.join.take() {
                member.heard = now;
                let leader = self.leader.clone();
                self.answer_join(handle, &id, leader, false);
            }
        }
    }

    fn answer_join(&mut self, handle: Handle, id: &str, leader: String, skip_assignment: bool) {
        let mut members = Vec::new();
        if leader == id {
            for (member_id, member) in &self.members {
                let (member_id, instance_id) = (member_id.clone(), member.instance_id.clone());
                members.push(JoinedMember { member_id, instance_id, metadata: member.metadata.clone() });
            }
        }
        let answer = JoinAnswer {
            error_code: 0,
            generation: self.generation,
            protocol_name: LEASE_PROTOCOL_NAME.to_owned(),
            leader,
            member_id: id.to_owned(),
            members,
            skip_assignment,
        };
        self.out.push((handle, Response::Join(answer)));
    }

    fn sync(
        &mut self,
        now: Duration,
        handle: Handle,
        generation: i32,
        id: &str,
        instance: &str,
        given: Vec<(String, Bytes)>,
    ) {
        let code = match self.check(id, instance, Some(generation)) {
            0 if matches!(self.state, State::Preparing { .. }) => 27,
            code => code,
        };
        let Some(member) = self.members.get_mut(id).filter(|_| code == 0) else {
            self.out.push((handle, Response::Sync(code, Bytes::new())));
            return;
        };
        member.heard = now;
        if self.state == State::Stable {
            self.out.push((handle, Response::Sync(0, member.assignment.clone())));
            return;
        }
        member.sync = Some(handle);
        if self.leader != id {
            return;
        }
        for (id, bytes) in given {
            if let Some(member) = self.members.get_mut(&id) {
                member.assignment = bytes;
            }
        }
        self.state = State::Stable;
        for member in self.members.values_mut() {
            member.heard = now.max(member.heard);
            if let Some(waiting) = member.sync.take() {
                self.out.push((waiting, Response::Sync(0, member.assignment.clone())));
            }
        }
        self.write();
    }

    fn after_removal(&mut self, now: Duration) {
        if self.members.is_empty() {
            self.state = State::Empty;
            self.generation += 1;
            self.write();
        } else {
            self.prepare(now);
        }
    }
}
