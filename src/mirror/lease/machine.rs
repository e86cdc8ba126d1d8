//! The lease machine: one worker's membership, see [`Lease`].

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::events::{
    Action, CommitAnswer, CoordinatorAnswer, Credentials, JoinAnswer, JoinedMember,
    LEASE_PROTOCOL_NAME, LeaseConfig, LeaseLost, LeaseState, Link, RevokeReason, Ticket,
};
use super::plan::{Member, plan};
use super::proof::Proof;
use super::retry::Retry;
use super::slots::SlotSet;
use super::wire::{Assignment, MemberMetadata, WireError};

/// Between tries of what a person has to mend first (rights, group size).
const SLOW_RETRY: Duration = Duration::from_secs(10);

/// What the broker may take beyond the timeouts to answer JoinGroup: network, the initial delay of 3 s, a slow disk.
const JOIN_SLACK: Duration = Duration::from_secs(5);

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
const GROUP_AUTHORIZATION_FAILED: i16 = 30;
const UNSUPPORTED_VERSION: i16 = 35;
const MEMBER_ID_REQUIRED: i16 = 79;
const GROUP_MAX_SIZE_REACHED: i16 = 81;
const FENCED_INSTANCE_ID: i16 = 82;

/// Membership of one worker in the lease group of one flow. Owns no socket, no clock.
///
/// Make it, then: `poll_action` until `None` after every `handle_*`, do what it says, hand in the answers, call
/// [`handle_timeout`](Self::handle_timeout) at [`poll_timeout`](Self::poll_timeout). Before every produce request ask
/// [`proof_until`](Self::proof_until); commit anchors with [`commit_credentials`](Self::commit_credentials) on
/// [`Link::Work`] and hand in each answer.
///
/// ```text
///            JoinGroup          answered           SyncGroup answered
///   Apart ──────────────► Joining ───────► Syncing ───────────────────► Settled: Own, Revoke
///     ▲ ▲                    │ 25 to the known id                          │ 27, 22, 25; slots revoked; took over
///     │ └──── Clearing ◄─────┘ (Revoke all, forget the id)                 │
///     └────────────────────────────────────────────────────────────────────┘        any: 82 ──► Over
/// ```
///
/// Invariants, by which the tests are named:
/// - **A** No slot is sent for by two workers at once, where *sent for* is: held, and now < `proof_until`. The exception
///   is a second process with the same instance id, which the [`StateLock`](super::StateLock) prevents.
/// - **B** Once faults stop, each slot is held by exactly one worker, and their numbers of slots differ by at most one.
/// - **C** An empty member id is sent only before the first id was learned, or after JoinGroup with the known id said 25.
/// - **D** After [`Action::Stop`] there is no action, no proof, no slot.
/// - **E** At rest there are no actions but heartbeats.
#[derive(Debug)]
pub struct Lease {
    config: LeaseConfig,
    actions: VecDeque<Action>,
    tickets: u64,
    retry: Retry,

    coordinator: Coordinator,
    node: Option<i32>,
    /// Since when no request succeeded, and the last error code.
    unavailable: Option<(Instant, Option<i16>)>,
    /// What JoinGroup, FindCoordinator or Heartbeat was refused with; cleared by the next success.
    refused: Option<i16>,

    membership: Membership,
    joining_since: Instant,
    /// Empty while not known.
    member_id: String,
    /// The generation to claim in heartbeats; none after 22 and 25.
    generation: Option<i32>,
    /// The generation whose assignment we have; -1 before the first.
    synced: i32,
    assigned: SlotSet,
    /// Whether the leader made that assignment for this process.
    planned_for_us: bool,
    /// What we said to hold in the last JoinGroup.
    declared: SlotSet,

    held: SlotSet,
    revoking: SlotSet,
    leaving: bool,

    proof: Proof,
    beat: Beat,
    prove_asked_at: Option<Instant>,
}

#[derive(Debug)]
enum Coordinator {
    Wanted { at: Instant },
    Asked { ticket: Ticket, give_up_at: Instant },
    Known,
}

#[derive(Debug)]
enum Membership {
    /// JoinGroup is to be sent.
    Apart {
        join_at: Instant,
    },
    Joining {
        ticket: Ticket,
        give_up_at: Instant,
    },
    Syncing {
        ticket: Ticket,
        give_up_at: Instant,
    },
    /// The assignment of `generation` is known.
    Settled,
    /// JoinGroup with the known id said 25: all slots are given up before we join anew.
    Clearing,
    Over(LeaseLost),
}

#[derive(Debug)]
enum Beat {
    Due { at: Instant },
    Pending { ticket: Ticket, give_up_at: Instant },
}

impl Lease {
    /// A lease at the start of the process. The caller holds the [`StateLock`](super::StateLock) of this instance id.
    /// `seed` jitters the waits between retries; workers should differ in it.
    pub fn new(config: LeaseConfig, seed: u64, now: Instant) -> Self {
        let proof = Proof::new(
            config.session_timeout,
            config.rebalance_timeout,
            config.margin(),
            now,
        );
        let mut lease = Self {
            actions: VecDeque::new(),
            tickets: 0,
            retry: Retry::new(seed, config.session_timeout / 4),
            coordinator: Coordinator::Wanted { at: now },
            node: None,
            unavailable: None,
            refused: None,
            membership: Membership::Apart { join_at: now },
            joining_since: now,
            member_id: String::new(),
            generation: None,
            synced: -1,
            assigned: SlotSet::EMPTY,
            planned_for_us: true,
            declared: SlotSet::EMPTY,
            held: SlotSet::EMPTY,
            revoking: SlotSet::EMPTY,
            leaving: false,
            proof,
            beat: Beat::Due { at: now },
            prove_asked_at: None,
            config,
        };
        lease.advance(now);
        lease
    }

    /// FindCoordinator answered or failed.
    pub fn handle_coordinator(&mut self, now: Instant, answer: CoordinatorAnswer) {
        self.proof.note_time(now);
        if !matches!(self.coordinator, Coordinator::Asked { ticket, .. } if ticket == answer.ticket)
        {
            return;
        }
        match answer.result {
            Ok(node) => {
                let moved = self.node.replace(node).is_some_and(|former| former != node);
                self.coordinator = Coordinator::Known;
                self.beat = Beat::Due { at: now };
                if moved {
                    self.actions.extend([
                        Action::Disconnect(Link::Join),
                        Action::Disconnect(Link::Work),
                    ]);
                    self.rejoin_if_asking(now);
                }
            }
            Err(code) => self.coordinator_failed(now, code),
        }
        self.advance(now);
    }

    /// JoinGroup answered. `sent_at` is when the request was written, not when it was answered.
    pub fn handle_join(
        &mut self,
        now: Instant,
        ticket: Ticket,
        sent_at: Instant,
        answer: JoinAnswer,
    ) {
        self.proof.note_time(now);
        if !matches!(self.membership, Membership::Joining { ticket: pending, .. } if pending == ticket)
        {
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
            FENCED_INSTANCE_ID => self.taken_over(),
            INVALID_SESSION_TIMEOUT => {
                let (group, session_timeout) =
                    (self.config.group.clone(), self.config.session_timeout);
                self.stop(LeaseLost::SessionTimeoutRefused {
                    group,
                    session_timeout,
                });
            }
            INCONSISTENT_GROUP_PROTOCOL => {
                self.foreign("its members speak another protocol, error 23".to_owned())
            }
            code @ (INVALID_GROUP_ID | UNSUPPORTED_VERSION) => {
                self.stop(LeaseLost::Refused {
                    group: self.config.group.clone(),
                    error_code: code,
                });
            }
            code @ (GROUP_AUTHORIZATION_FAILED | GROUP_MAX_SIZE_REACHED) => {
                self.refused = Some(code);
                self.membership = Membership::Apart {
                    join_at: now + self.retry.jitter(SLOW_RETRY),
                };
            }
            code => {
                if !matches!(
                    code,
                    UNKNOWN_MEMBER_ID | ILLEGAL_GENERATION | REBALANCE_IN_PROGRESS
                ) {
                    self.refused = Some(code);
                }
                self.membership = Membership::Apart {
                    join_at: now + self.retry.next_wait(),
                };
            }
        }
        self.advance(now);
    }

    /// SyncGroup answered: error code and assignment bytes.
    pub fn handle_sync(
        &mut self,
        now: Instant,
        ticket: Ticket,
        sent_at: Instant,
        error_code: i16,
        assignment: &[u8],
    ) {
        self.proof.note_time(now);
        if !matches!(self.membership, Membership::Syncing { ticket: pending, .. } if pending == ticket)
        {
            return;
        }
        match error_code {
            NONE => self.synced(now, sent_at, assignment),
            COORDINATOR_LOAD_IN_PROGRESS | COORDINATOR_NOT_AVAILABLE | NOT_COORDINATOR => {
                self.membership = Membership::Apart { join_at: now };
                self.want_coordinator(now, Some(error_code));
            }
            FENCED_INSTANCE_ID => self.taken_over(),
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
                self.membership = Membership::Apart {
                    join_at: now + wait,
                };
            }
        }
        self.advance(now);
    }

    /// Heartbeat answered.
    pub fn handle_heartbeat(
        &mut self,
        now: Instant,
        ticket: Ticket,
        sent_at: Instant,
        error_code: i16,
    ) {
        self.proof.note_time(now);
        if !matches!(self.beat, Beat::Pending { ticket: pending, .. } if pending == ticket) {
            return;
        }
        self.beat = Beat::Due {
            at: now + self.config.heartbeat_interval(),
        };
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
                self.beat = Beat::Due {
                    at: now + self.retry.jitter(SLOW_RETRY),
                };
            }
            code => self.membership_answered(now, code),
        }
        self.advance(now);
    }

    /// An OffsetCommit of anchors answered, whoever asked for it. Every one counts: it proves membership.
    pub fn handle_commit(&mut self, now: Instant, sent_at: Instant, answer: CommitAnswer) {
        self.proof.note_time(now);
        // A commit from before a rejoin says nothing about us now; its 82 may be of our own making.
        if self
            .commit_credentials()
            .is_none_or(|ours| ours != answer.credentials)
        {
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
        if matches!(self.membership, Membership::Settled) && !self.proof.trusted() && !self.leaving
        {
            self.membership = Membership::Apart {
                join_at: now + self.retry.next_wait(),
            };
        }
        self.advance(now);
    }

    /// A connection closed or could not be opened. Answers to requests on it must not be handed in after this.
    pub fn handle_connection_lost(&mut self, now: Instant, link: Link) {
        self.proof.note_time(now);
        match link {
            // At rest nothing is asked on this one, and brokers close idle connections.
            Link::Join => {
                if self.rejoin_if_asking(now) {
                    self.want_coordinator(now, None);
                }
            }
            Link::Work => {
                self.beat = Beat::Due { at: now };
                self.want_coordinator(now, None);
            }
        }
        self.advance(now);
    }

    /// The caller does not work on these slots any more (an answer to [`Action::Revoke`]; parts of it are fine). Confirm
    /// each slot once, however often it was named.
    pub fn handle_revoked(&mut self, now: Instant, slots: SlotSet) {
        self.proof.note_time(now);
        let given_up = slots.intersect(&self.revoking);
        self.held = self.held.minus(&given_up);
        self.revoking = self.revoking.minus(&given_up);
        self.advance(now);
    }

    /// The time of [`poll_timeout`](Self::poll_timeout) has come (calling it early is harmless).
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
    }

    /// Leaves for good: revokes all slots, sends LeaveGroup, ends with [`LeaseLost::Left`]. For a worker that is removed;
    /// at an ordinary stop just drop the machine, so that a restart takes over in milliseconds.
    pub fn leave(&mut self, now: Instant) {
        self.leaving = true;
        self.advance(now);
    }

    /// The next thing to do; call until `None` after every `handle_*`.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) at the latest.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let known = matches!(self.coordinator, Coordinator::Known);
        let coordinator = match self.coordinator {
            Coordinator::Wanted { at } | Coordinator::Asked { give_up_at: at, .. } => Some(at),
            Coordinator::Known => None,
        };
        let membership = match self.membership {
            Membership::Over(_) => return None,
            Membership::Apart { join_at } => Some(join_at).filter(|_| known && !self.leaving),
            Membership::Joining { give_up_at, .. } | Membership::Syncing { give_up_at, .. } => {
                Some(give_up_at)
            }
            Membership::Settled | Membership::Clearing => None,
        };
        let beat = match self.beat {
            Beat::Due { at } => Some(at).filter(|_| known && self.can_beat()),
            Beat::Pending { give_up_at, .. } => Some(give_up_at),
        };
        let lapse = self
            .proof
            .until()
            .filter(|_| self.proof.lapsed_since().is_none());
        let prove = self.prove_at().filter(|_| known);
        [coordinator, membership, beat, lapse, prove]
            .into_iter()
            .flatten()
            .min()
    }

    /// Until when produce requests for [`slots`](Self::slots) may be *sent*; `None`: not at all. Ask before each request.
    pub fn proof_until(&self) -> Option<Instant> {
        self.proof.until()
    }

    /// With what to commit anchors; `None` when a commit would only be refused.
    pub fn commit_credentials(&self) -> Option<Credentials> {
        let ready = matches!(
            self.membership,
            Membership::Settled | Membership::Apart { .. } | Membership::Joining { .. }
        );
        let generation = self
            .generation
            .filter(|generation| ready && *generation == self.synced)?;
        Some(Credentials {
            generation,
            member_id: self.member_id.clone(),
        })
    }

    /// Slots held: owned and not yet confirmed as revoked.
    pub fn slots(&self) -> SlotSet {
        self.held
    }

    /// What the lease is doing.
    pub fn state(&self, now: Instant) -> LeaseState {
        let slots = self.held;
        if let Membership::Over(reason) = &self.membership {
            return LeaseState::Stopped {
                reason: reason.clone(),
            };
        }
        if let Some(error_code) = self.refused {
            let remedy = match error_code {
                GROUP_AUTHORIZATION_FAILED => {
                    "grant READ on the lease group to towpath's principal on the target"
                }
                GROUP_MAX_SIZE_REACHED => "run fewer workers, or raise the brokers' group.max.size",
                _ => "look the code up in Kafka's protocol guide and into the coordinator's log",
            };
            return LeaseState::Refused { error_code, remedy };
        }
        if let Some((since, error_code)) = self.unavailable {
            return LeaseState::CoordinatorUnavailable {
                since,
                error_code,
                lapsed: !self.proof.runs(now),
            };
        }
        match self.membership {
            _ if !slots.is_empty() && !self.proof.runs(now) => {
                let ended = self.proof.until().unwrap_or(now).min(now);
                LeaseState::Lapsed {
                    slots,
                    since: self.proof.lapsed_since().unwrap_or(ended),
                }
            }
            Membership::Settled => LeaseState::Held {
                slots,
                revoking: self.revoking,
            },
            _ if self.generation.is_some() && self.synced >= 0 => LeaseState::Rebalancing { slots },
            _ => LeaseState::Joining {
                since: self.joining_since,
            },
        }
    }

    /// The settings given.
    pub fn config(&self) -> &LeaseConfig {
        &self.config
    }

    fn joined(&mut self, now: Instant, sent_at: Instant, answer: JoinAnswer) {
        if answer.protocol_name != LEASE_PROTOCOL_NAME {
            return self.foreign(format!("its protocol is {:?}", answer.protocol_name));
        }
        let same_generation =
            answer.generation == self.synced && answer.member_id == self.member_id;
        self.proof.joined(now, sent_at, same_generation);
        let leads = answer.leader == answer.member_id && !answer.skip_assignment;
        self.member_id = answer.member_id;
        self.generation = Some(answer.generation);
        self.succeeded();
        // A heartbeat on its way claims the former generation.
        self.beat = Beat::Due {
            at: now + self.config.heartbeat_interval(),
        };
        let assignments = if leads {
            match assign(&answer.members) {
                Ok(assignments) => assignments,
                Err((instance_id, found @ WireError::Newer { .. })) => {
                    let group = self.config.group.clone();
                    return self.stop(LeaseLost::NewerWorker {
                        group,
                        instance_id,
                        found,
                    });
                }
                Err((instance_id, found)) => {
                    return self.foreign(format!("member {instance_id:?}: {found}"));
                }
            }
        } else {
            Vec::new()
        };
        let ticket = self.ticket();
        self.membership = Membership::Syncing {
            ticket,
            give_up_at: now + self.join_patience(),
        };
        let (generation, member_id) = (answer.generation, self.member_id.clone());
        self.actions.push_back(Action::Sync {
            ticket,
            generation,
            member_id,
            assignments,
        });
    }

    fn synced(&mut self, now: Instant, sent_at: Instant, assignment: &[u8]) {
        let assignment = match Assignment::decode(assignment) {
            Ok(assignment) => assignment,
            // The leader did not know of us; the next one will.
            Err(_) if assignment.is_empty() => Assignment {
                slots: SlotSet::EMPTY,
                planned_for: 0,
            },
            Err(found @ WireError::Newer { .. }) => {
                let (group, instance_id) = (self.config.group.clone(), "that leads".to_owned());
                return self.stop(LeaseLost::NewerWorker {
                    group,
                    instance_id,
                    found,
                });
            }
            Err(found) => return self.foreign(format!("the leader: {found}")),
        };
        self.proof.synced(now, sent_at);
        self.assigned = assignment.slots;
        self.planned_for_us = assignment.is_for(&self.member_id);
        self.synced = self.generation.unwrap_or(-1);
        self.membership = Membership::Settled;
        self.beat = Beat::Due { at: now };
    }

    /// An error of Heartbeat or OffsetCommit that says something about our membership.
    fn membership_answered(&mut self, now: Instant, code: i16) {
        let settled = matches!(self.membership, Membership::Settled);
        match code {
            FENCED_INSTANCE_ID => self.taken_over(),
            REBALANCE_IN_PROGRESS if settled && !self.leaving => {
                self.membership = Membership::Apart { join_at: now }
            }
            // With a JoinGroup or SyncGroup on its way its answer will say it; the generation may have just moved on.
            ILLEGAL_GENERATION
                if settled || matches!(self.membership, Membership::Apart { .. }) =>
            {
                self.forget_membership(now);
                self.membership = Membership::Apart { join_at: now };
            }
            UNKNOWN_MEMBER_ID => {
                self.forget_membership(now);
                if settled {
                    self.membership = Membership::Apart { join_at: now };
                }
            }
            COORDINATOR_LOAD_IN_PROGRESS | COORDINATOR_NOT_AVAILABLE | NOT_COORDINATOR => {
                self.want_coordinator(now, Some(code));
            }
            _ => {}
        }
    }

    /// 22 or 25: nothing is proven, no heartbeat makes sense until JoinGroup was answered.
    fn forget_membership(&mut self, now: Instant) {
        self.proof.clear();
        self.generation = None;
        // A heartbeat on its way with this id would meet our own next join there, and be answered 82.
        self.beat = Beat::Due { at: now };
        if self.leaving {
            self.revoking = SlotSet::EMPTY; // told again, as lost
        }
    }

    fn succeeded(&mut self) {
        self.retry.succeeded();
        self.unavailable = None;
        self.refused = None;
    }

    /// Gives up a JoinGroup or SyncGroup that waits for its answer; says whether there was one.
    fn rejoin_if_asking(&mut self, now: Instant) -> bool {
        let asking = matches!(
            self.membership,
            Membership::Joining { .. } | Membership::Syncing { .. }
        );
        if asking {
            self.membership = Membership::Apart { join_at: now };
        }
        asking
    }

    fn want_coordinator(&mut self, now: Instant, code: Option<i16>) {
        self.proof.distrust(now);
        if matches!(self.coordinator, Coordinator::Known) {
            self.coordinator_failed(now, code);
        }
    }

    fn coordinator_failed(&mut self, now: Instant, code: Option<i16>) {
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

    fn taken_over(&mut self) {
        let (group, instance_id) = (self.config.group.clone(), self.config.instance_id.clone());
        self.stop(LeaseLost::TakenOver { group, instance_id });
    }

    fn foreign(&mut self, what: String) {
        self.stop(LeaseLost::ForeignMember {
            group: self.config.group.clone(),
            what,
        });
    }

    fn stop(&mut self, reason: LeaseLost) {
        self.proof.clear();
        (self.held, self.revoking) = (SlotSet::EMPTY, SlotSet::EMPTY);
        // What was not polled yet is not to be done any more, except to leave.
        self.actions
            .retain(|action| matches!(action, Action::Leave { .. }));
        self.actions.push_back(Action::Stop(reason.clone()));
        self.membership = Membership::Over(reason);
    }

    /// Emits everything that is due in the present state.
    fn advance(&mut self, now: Instant) {
        self.proof.note_time(now);
        self.give_up_on_silence(now);
        self.settle_slots(now);
        if matches!(self.membership, Membership::Over(_)) {
            return;
        }
        if matches!(self.coordinator, Coordinator::Wanted { at } if at <= now) {
            let ticket = self.ticket();
            self.coordinator = Coordinator::Asked {
                ticket,
                give_up_at: now + self.patience(),
            };
            self.actions.push_back(Action::FindCoordinator { ticket });
        }
        if !matches!(self.coordinator, Coordinator::Known) {
            return;
        }
        if matches!(self.membership, Membership::Apart { join_at } if join_at <= now)
            && !self.leaving
        {
            self.send_join(now);
        }
        if self.prove_at().is_some_and(|at| at <= now)
            && let Some(credentials) = self.commit_credentials()
        {
            self.prove_asked_at = Some(now);
            self.actions
                .push_back(Action::ProveByCommit { credentials });
        }
        if let Beat::Due { at } = self.beat
            && at <= now
            && self.can_beat()
            && let Some(generation) = self.generation
        {
            let (ticket, member_id) = (self.ticket(), self.member_id.clone());
            self.beat = Beat::Pending {
                ticket,
                give_up_at: now + self.patience(),
            };
            self.actions.push_back(Action::Heartbeat {
                ticket,
                generation,
                member_id,
            });
        }
    }

    /// A request unanswered for too long: its connection is as good as lost.
    fn give_up_on_silence(&mut self, now: Instant) {
        if matches!(self.membership, Membership::Over(_)) {
            return;
        }
        if matches!(self.coordinator, Coordinator::Asked { give_up_at, .. } if give_up_at <= now) {
            self.coordinator_failed(now, None);
        }
        let join_silent = matches!(
            self.membership,
            Membership::Joining { give_up_at, .. } | Membership::Syncing { give_up_at, .. } if give_up_at <= now
        );
        if join_silent {
            self.membership = Membership::Apart { join_at: now };
            self.actions.push_back(Action::Disconnect(Link::Join));
            self.want_coordinator(now, None);
        }
        if matches!(self.beat, Beat::Pending { give_up_at, .. } if give_up_at <= now) {
            self.beat = Beat::Due { at: now };
            self.actions.push_back(Action::Disconnect(Link::Work));
            self.want_coordinator(now, None);
        }
    }

    /// Moves what is held towards what is assigned.
    fn settle_slots(&mut self, now: Instant) {
        let settled = matches!(self.membership, Membership::Settled);
        let clearing = matches!(self.membership, Membership::Clearing);
        if matches!(self.membership, Membership::Over(_)) || !(settled || clearing || self.leaving)
        {
            return;
        }
        let wanted = if clearing || self.leaving {
            SlotSet::EMPTY
        } else {
            self.assigned
        };
        let surplus = self.held.minus(&wanted).minus(&self.revoking);
        if !surplus.is_empty() {
            self.revoking = self.revoking.union(&surplus);
            let why = if self.generation.is_some() {
                RevokeReason::Moved
            } else {
                RevokeReason::Lost
            };
            self.actions.push_back(Action::Revoke {
                slots: surplus,
                why,
            });
        }
        let gained = wanted.minus(&self.held);
        if !gained.is_empty() {
            self.held = self.held.union(&gained);
            self.actions.push_back(Action::Own(gained));
        }
        if !self.revoking.is_empty() {
            return;
        }
        if self.leaving {
            if !self.member_id.is_empty() {
                let (member_id, instance_id) =
                    (self.member_id.clone(), self.config.instance_id.clone());
                self.actions.push_back(Action::Leave {
                    member_id,
                    instance_id,
                });
            }
            self.stop(LeaseLost::Left {
                group: self.config.group.clone(),
            });
        } else if clearing {
            self.member_id.clear();
            self.synced = -1;
            self.assigned = SlotSet::EMPTY;
            self.membership = Membership::Apart { join_at: now };
        } else if !self.declared.is_subset(&self.assigned) || !self.planned_for_us {
            // Others wait for what we gave up, or the leader has not heard of this process: rejoin, which plans anew.
            self.membership = Membership::Apart { join_at: now };
        }
    }

    fn send_join(&mut self, now: Instant) {
        let ticket = self.ticket();
        self.membership = Membership::Joining {
            ticket,
            give_up_at: now + self.join_patience(),
        };
        self.declared = self.held;
        self.actions.push_back(Action::Join {
            ticket,
            member_id: self.member_id.clone(),
            instance_id: self.config.instance_id.clone(),
            metadata: MemberMetadata {
                owned: self.held,
                generation: self.synced,
            }
            .encode(),
            session_timeout: self.config.session_timeout,
            rebalance_timeout: self.config.rebalance_timeout,
        });
    }

    /// When to ask for a commit, if heartbeats do not prove what must be proven.
    fn prove_at(&self) -> Option<Instant> {
        let generation = self
            .generation
            .filter(|generation| *generation == self.synced);
        let session = self
            .proof
            .session()
            .filter(|_| generation.is_some() && !self.held.is_empty())?;
        let due = match self.membership {
            Membership::Settled if !self.proof.trusted() => session,
            // Heartbeats say 27 now, which proves nothing; work goes on as long as commits do.
            Membership::Joining { .. } | Membership::Apart { .. } => {
                session + self.config.session_timeout / 2
            }
            _ => return None,
        };
        let again = self
            .prove_asked_at
            .map(|asked| asked + self.config.session_timeout / 6);
        Some(again.map_or(due, |again| due.max(again)))
    }

    fn can_beat(&self) -> bool {
        self.generation.is_some()
            && !matches!(self.membership, Membership::Clearing | Membership::Over(_))
    }

    /// How long a request may stay unanswered that the broker answers at once.
    fn patience(&self) -> Duration {
        self.config.session_timeout / 3
    }

    /// The same for JoinGroup and SyncGroup, which wait for other members.
    fn join_patience(&self) -> Duration {
        self.config.rebalance_timeout + self.config.session_timeout + JOIN_SLACK
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }
}

/// The leader's part: reads the members, plans, writes the assignments. The error names the instance it could not read.
fn assign(members: &[JoinedMember]) -> Result<Vec<(String, bytes::Bytes)>, (String, WireError)> {
    let mut known = Vec::with_capacity(members.len());
    for JoinedMember {
        member_id,
        instance_id,
        metadata,
    } in members
    {
        let said =
            MemberMetadata::decode(metadata).map_err(|error| (instance_id.clone(), error))?;
        let (member_id, instance_id) = (member_id.clone(), instance_id.clone());
        known.push(Member {
            member_id,
            instance_id,
            owned: said.owned,
            generation: said.generation,
        });
    }
    let write = |(id, slots): (String, SlotSet)| {
        let bytes = Assignment::new(&id, slots).encode();
        (id, bytes)
    };
    Ok(plan(&known).into_iter().map(write).collect())
}
