//! What answers do to the lease: S13's error codes, one by one.

use std::time::Duration;

use tokio::time::Instant;

use super::super::events::{
    Action, CommitAnswer, CoordinatorAnswer, JoinAnswer, JoinedMember, LEASE_PROTOCOL_NAME, LeaseLost, Link, Ticket,
};
use super::super::plan::{Member, plan};
use super::super::slots::SlotSet;
use super::super::wire::{Assignment, MemberMetadata, WireError};
use super::{Beat, Coordinator, IdStanding, Lease, Membership};

/// Between tries of what a person has to mend first (rights, group size).
const SLOW_RETRY: Duration = Duration::from_secs(10);

// Kafka's error codes, as the protocol guide numbers them.
const NONE: i16 = 0;
const COORDINATOR_LOAD_IN_PROGRESS: i16 = 14;
const COORDINATOR_NOT_AVAILABLE: i16 = 15;
const NOT_COORDINATOR: i16 = 16;
const ILLEGAL_GENERATION: i16 = 22;
const INCONSISTENT_GROUP_PROTOCOL: i16 = 23;
const INVALID_GROUP_ID: i16 = 24;
const UNKNOWN_MEMBER_ID: i16 = 25;
const INVALID_SESSION_TIMEOUT: i16 = 26;
const REBALANCE_IN_PROGRESS: i16 = 27;
pub(super) const GROUP_AUTHORIZATION_FAILED: i16 = 30;
const UNSUPPORTED_VERSION: i16 = 35;
const MEMBER_ID_REQUIRED: i16 = 79;
pub(super) const GROUP_MAX_SIZE_REACHED: i16 = 81;
const FENCED_INSTANCE_ID: i16 = 82;

impl Lease {
    /// FindCoordinator answered or failed.
    pub fn handle_coordinator(&mut self, now: Instant, answer: CoordinatorAnswer) {
        self.proof.note_time(now);
        if !matches!(self.coordinator, Coordinator::Asked { ticket, .. } if ticket == answer.ticket) {
            return;
        }
        match answer.result {
            Ok(node) => {
                let moved = self.node.replace(node).is_some_and(|former| former != node);
                self.coordinator = Coordinator::Known;
                self.beat = Beat::Due { at: now };
                if moved {
                    self.actions.extend([Action::Disconnect(Link::Join), Action::Disconnect(Link::Work)]);
                    self.rejoin_if_asking(now);
                }
            }
            Err(code) => self.coordinator_failed(now, code),
        }
        self.advance(now);
    }

    /// JoinGroup answered. `sent_at` is when the request was written, not when it was answered.
    pub fn handle_join(&mut self, now: Instant, ticket: Ticket, sent_at: Instant, answer: JoinAnswer) {
        self.proof.note_time(now);
        if !matches!(self.membership, Membership::Joining { ticket: pending, .. } if pending == ticket) {
            return;
        }
        match answer.error_code {
            NONE => self.joined(now, sent_at, answer),
            COORDINATOR_LOAD_IN_PROGRESS | COORDINATOR_NOT_AVAILABLE | NOT_COORDINATOR => {
                self.membership = Membership::Apart { join_at: now };
                self.want_coordinator(now, Some(answer.error_code));
            }
            UNKNOWN_MEMBER_ID if !self.member_id.is_empty() => {
                self.forget_membership(now);
                self.membership = Membership::Clearing;
                self.joining_since = now;
                // Also what is being revoked is told again, for there is nothing left to wait for.
                self.revoking = SlotSet::EMPTY;
            }
            MEMBER_ID_REQUIRED if !answer.member_id.is_empty() => {
                self.member_id = answer.member_id;
                self.membership = Membership::Apart { join_at: now };
            }
            FENCED_INSTANCE_ID => self.taken_over(now),
            INVALID_SESSION_TIMEOUT => {
                let (group, session_timeout) = (self.config.group.clone(), self.config.session_timeout);
                self.stop(LeaseLost::SessionTimeoutRefused { group, session_timeout });
            }
            INCONSISTENT_GROUP_PROTOCOL => self.foreign("its members speak another protocol, error 23".to_owned()),
            code @ (INVALID_GROUP_ID | UNSUPPORTED_VERSION) => {
                self.stop(LeaseLost::Refused { group: self.config.group.clone(), error_code: code });
            }
            code @ (GROUP_AUTHORIZATION_FAILED | GROUP_MAX_SIZE_REACHED) => {
                self.refused = Some(code);
                self.membership = Membership::Apart { join_at: now + self.retry.jitter(SLOW_RETRY) };
            }
            code => {
                if !matches!(code, UNKNOWN_MEMBER_ID | ILLEGAL_GENERATION | REBALANCE_IN_PROGRESS) {
                    self.refused = Some(code);
                }
                self.membership = Membership::Apart { join_at: now + self.retry.next_wait() };
            }
        }
        self.advance(now);
    }

    /// SyncGroup answered: error code and assignment bytes.
    pub fn handle_sync(&mut self, now: Instant, ticket: Ticket, sent_at: Instant, error_code: i16, assignment: &[u8]) {
        self.proof.note_time(now);
        if !matches!(self.membership, Membership::Syncing { ticket: pending, .. } if pending == ticket) {
            return;
        }
        match error_code {
            NONE => self.synced(now, sent_at, assignment),
            COORDINATOR_LOAD_IN_PROGRESS | COORDINATOR_NOT_AVAILABLE | NOT_COORDINATOR => {
                self.membership = Membership::Apart { join_at: now };
                self.want_coordinator(now, Some(error_code));
            }
            FENCED_INSTANCE_ID => self.taken_over(now),
            UNKNOWN_MEMBER_ID | ILLEGAL_GENERATION => {
                self.forget_membership(now);
                self.membership = Membership::Apart { join_at: now };
            }
            REBALANCE_IN_PROGRESS => self.membership = Membership::Apart { join_at: now },
            code => {
                self.refused = Some(code);
                let wait = if code == GROUP_AUTHORIZATION_FAILED {
                    self.retry.jitter(SLOW_RETRY)
                } else {
                    self.retry.next_wait()
                };
                self.membership = Membership::Apart { join_at: now + wait };
            }
        }
        self.advance(now);
    }

    /// Heartbeat answered.
    pub fn handle_heartbeat(&mut self, now: Instant, ticket: Ticket, sent_at: Instant, error_code: i16) {
        self.proof.note_time(now);
        if !matches!(self.beat, Beat::Pending { ticket: pending, .. } if pending == ticket) {
            return;
        }
        self.beat = Beat::Due { at: now + self.config.heartbeat_interval() };
        match error_code {
            NONE => {
                if self.proof.heartbeat(sent_at) {
                    self.succeeded();
                } else if self.proof.trusted() {
                    self.beat = Beat::Due { at: now };
                }
            }
            GROUP_AUTHORIZATION_FAILED => {
                self.refused = Some(error_code);
                self.beat = Beat::Due { at: now + self.retry.jitter(SLOW_RETRY) };
            }
            code => self.membership_answered(now, code),
        }
        self.advance(now);
    }

    /// An OffsetCommit of anchors answered, whoever asked for it. Every one counts: it proves membership.
    pub fn handle_commit(&mut self, now: Instant, sent_at: Instant, answer: CommitAnswer) {
        self.proof.note_time(now);
        // A commit from before a rejoin says nothing about us now; its 82 may be of our own making.
        if self.commit_credentials().is_none_or(|ours| ours != answer.credentials) {
            return;
        }
        match answer.error_code {
            NONE => {
                self.proof.commit(now, sent_at);
                self.succeeded();
                // The commit may have been the second of the two proofs missing; the other is a heartbeat's.
                if !self.proof.runs(now) && matches!(self.beat, Beat::Due { .. }) {
                    self.beat = Beat::Due { at: now };
                }
            }
            code => self.membership_answered(now, code),
        }
        self.advance(now);
    }

    /// [`Action::ProveByCommit`] cannot be done: there is no anchor to commit.
    pub fn handle_nothing_to_commit(&mut self, now: Instant) {
        self.proof.note_time(now);
        // JoinGroup with the known id proves as much, at the price of a rebalance if we lead.
        if matches!(self.membership, Membership::Settled) && !self.proof.trusted() && !self.leaving {
            self.membership = Membership::Apart { join_at: now + self.retry.next_wait() };
        }
        self.advance(now);
    }

    pub(super) fn joined(&mut self, now: Instant, sent_at: Instant, answer: JoinAnswer) {
        if answer.protocol_name != LEASE_PROTOCOL_NAME {
            return self.foreign(format!("its protocol is {:?}", answer.protocol_name));
        }
        let same_generation = answer.generation == self.synced && answer.member_id == self.member_id;
        self.proof.joined(now, sent_at, same_generation);
        if self.member_id.is_empty() {
            self.id = IdStanding::Unwritten { coordinator_lost: false };
        }
        let leads = answer.leader == answer.member_id && !answer.skip_assignment;
        self.member_id = answer.member_id;
        self.generation = Some(answer.generation);
        self.succeeded();
        // A heartbeat on its way claims the former generation.
        self.beat = Beat::Due { at: now + self.config.heartbeat_interval() };
        let assignments = if leads {
            match assign(&answer.members) {
                Ok(assignments) => assignments,
                Err((instance_id, found @ WireError::Newer { .. })) => {
                    let group = self.config.group.clone();
                    return self.stop(LeaseLost::NewerWorker { group, instance_id, found });
                }
                Err((instance_id, found)) => {
                    return self.foreign(format!("member {instance_id:?}: {found}"));
                }
            }
        } else {
            Vec::new()
        };
        let ticket = self.ticket();
        self.membership = Membership::Syncing { ticket, give_up_at: now + self.join_patience() };
        let (generation, member_id) = (answer.generation, self.member_id.clone());
        self.actions.push_back(Action::Sync { ticket, generation, member_id, assignments });
    }

    pub(super) fn synced(&mut self, now: Instant, sent_at: Instant, assignment: &[u8]) {
        let assignment = match Assignment::decode(assignment) {
            Ok(assignment) => assignment,
            // The leader did not know of us; the next one will.
            Err(_) if assignment.is_empty() => Assignment { slots: SlotSet::EMPTY, planned_for: 0 },
            Err(found @ WireError::Newer { .. }) => {
                let (group, instance_id) = (self.config.group.clone(), "that leads".to_owned());
                return self.stop(LeaseLost::NewerWorker { group, instance_id, found });
            }
            Err(found) => return self.foreign(format!("the leader: {found}")),
        };
        self.proof.synced(now, sent_at);
        self.id = IdStanding::Written;
        self.assigned = assignment.slots;
        self.planned_for_us = assignment.is_for(&self.member_id);
        self.synced = self.generation.unwrap_or(-1);
        if !self.proof.covered() {
            // Told again, those included that we were giving up in our own time.
            self.lost = self.held.minus(&self.assigned);
            self.revoking = self.revoking.minus(&self.lost);
        }
        self.membership = Membership::Settled;
        self.beat = Beat::Due { at: now };
    }

    /// An error of Heartbeat or OffsetCommit that says something about our membership.
    pub(super) fn membership_answered(&mut self, now: Instant, code: i16) {
        let settled = matches!(self.membership, Membership::Settled);
        match code {
            FENCED_INSTANCE_ID => self.taken_over(now),
            REBALANCE_IN_PROGRESS if settled && !self.leaving => self.membership = Membership::Apart { join_at: now },
            // With a JoinGroup or SyncGroup on its way its answer will say it; the generation may have just moved on.
            ILLEGAL_GENERATION if settled || matches!(self.membership, Membership::Apart { .. }) => {
                self.forget_membership(now);
                self.membership = Membership::Apart { join_at: now };
            }
            UNKNOWN_MEMBER_ID => {
                self.forget_membership(now);
                match self.membership {
                    Membership::Settled => self.membership = Membership::Apart { join_at: now },
                    // Its answer may be on the way still, from before: an assignment of a membership that has ended.
                    Membership::Syncing { .. } => self.hang_up_and_rejoin(now),
                    _ => {}
                }
            }
            COORDINATOR_LOAD_IN_PROGRESS | COORDINATOR_NOT_AVAILABLE | NOT_COORDINATOR => {
                self.want_coordinator(now, Some(code));
            }
            _ => {}
        }
    }

    /// 22 or 25: nothing is proven, no heartbeat makes sense until JoinGroup was answered.
    pub(super) fn forget_membership(&mut self, now: Instant) {
        self.proof.clear();
        self.generation = None;
        // A heartbeat on its way with this id would meet our own next join there, and be answered 82.
        self.beat = Beat::Due { at: now };
        if self.leaving {
            self.revoking = SlotSet::EMPTY; // told again, as lost
        }
    }

    pub(super) fn succeeded(&mut self) {
        self.retry.succeeded();
        self.unavailable = None;
        self.refused = None;
    }

    /// Gives up a JoinGroup or SyncGroup that waits for its answer; says whether there was one.
    pub(super) fn rejoin_if_asking(&mut self, now: Instant) -> bool {
        let asking = matches!(self.membership, Membership::Joining { .. } | Membership::Syncing { .. });
        if asking {
            self.membership = Membership::Apart { join_at: now };
        }
        asking
    }

    /// The same, and closes the connection: a broker answers nothing else on it before that request.
    fn hang_up_and_rejoin(&mut self, now: Instant) {
        if self.rejoin_if_asking(now) {
            self.actions.push_back(Action::Disconnect(Link::Join));
        }
        self.membership = Membership::Apart { join_at: now };
    }

    pub(super) fn want_coordinator(&mut self, now: Instant, code: Option<i16>) {
        self.proof.distrust(now);
        if let IdStanding::Unwritten { coordinator_lost } = &mut self.id {
            *coordinator_lost = true;
        }
        if matches!(self.coordinator, Coordinator::Known) {
            self.coordinator_failed(now, code);
        }
    }

    pub(super) fn coordinator_failed(&mut self, now: Instant, code: Option<i16>) {
        let since = self.unavailable.map_or(now, |(since, _)| since);
        self.unavailable = Some((since, code));
        let wait = if code == Some(GROUP_AUTHORIZATION_FAILED) {
            self.refused = code;
            self.retry.jitter(SLOW_RETRY)
        } else {
            self.retry.next_wait()
        };
        self.coordinator = Coordinator::Wanted { at: now + wait };
    }

    /// 82: another member id goes with our instance id.
    pub(super) fn taken_over(&mut self, now: Instant) {
        if let IdStanding::Unwritten { coordinator_lost: true } = self.id {
            // Not taken over but taken back: a coordinator that dies before the leader's SyncGroup comes back with the
            // generation before, and with our former id. This still is the start under the lock: nothing is held yet.
            self.forget_membership(now);
            self.member_id.clear();
            self.hang_up_and_rejoin(now);
            return;
        }
        let (group, instance_id) = (self.config.group.clone(), self.config.instance_id.clone());
        self.stop(LeaseLost::TakenOver { group, instance_id });
    }

    pub(super) fn foreign(&mut self, what: String) {
        self.stop(LeaseLost::ForeignMember { group: self.config.group.clone(), what });
    }

    pub(super) fn stop(&mut self, reason: LeaseLost) {
        self.proof.clear();
        (self.held, self.revoking, self.lost) = (SlotSet::EMPTY, SlotSet::EMPTY, SlotSet::EMPTY);
        // What was not polled yet is not to be done any more, except to leave.
        self.actions.retain(|action| matches!(action, Action::Leave { .. }));
        self.actions.push_back(Action::Stop(reason.clone()));
        self.membership = Membership::Over(reason);
    }
}

/// The leader's part: reads the members, plans, writes the assignments. The error names the instance it could not read.
fn assign(members: &[JoinedMember]) -> Result<Vec<(String, bytes::Bytes)>, (String, WireError)> {
    let mut known = Vec::with_capacity(members.len());
    for JoinedMember { member_id, instance_id, metadata } in members {
        let said = MemberMetadata::decode(metadata).map_err(|error| (instance_id.clone(), error))?;
        let (member_id, instance_id) = (member_id.clone(), instance_id.clone());
        known.push(Member { member_id, instance_id, owned: said.owned, generation: said.generation });
    }
    let write = |(id, slots): (String, SlotSet)| {
        let bytes = Assignment::new(&id, slots).encode();
        (id, bytes)
    };
    Ok(plan(&known).into_iter().map(write).collect())
}
