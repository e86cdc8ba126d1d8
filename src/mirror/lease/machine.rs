//! The lease machine: one worker's membership, see [`Lease`].

mod advance;
mod answers;

use std::collections::VecDeque;

use tokio::time::Instant;

use super::events::{Action, Credentials, LeaseConfig, LeaseLost, LeaseState, Link, Ticket};
use super::proof::Proof;
use super::retry::Retry;
use super::slots::SlotSet;
use answers::{GROUP_AUTHORIZATION_FAILED, GROUP_MAX_SIZE_REACHED};

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
/// - **C** An empty member id is sent only at the start, or after JoinGroup with the known id said 25. The start lasts until
///   the first SyncGroup was answered: if the coordinator is lost before that, it may forget our id and say 82.
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
    id: IdStanding,
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
    /// Of those being revoked, the ones that a generation we missed may have given to others: not ours to claim.
    lost: SlotSet,
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

/// Whether the coordinator has written down our member id, which it does with the leader's SyncGroup.
#[derive(Debug)]
enum IdStanding {
    Written,
    Unwritten { coordinator_lost: bool },
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
        let proof = Proof::new(config.session_timeout, config.rebalance_timeout, config.margin(), now);
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
            id: IdStanding::Written,
            generation: None,
            synced: -1,
            assigned: SlotSet::EMPTY,
            planned_for_us: true,
            declared: SlotSet::EMPTY,
            held: SlotSet::EMPTY,
            revoking: SlotSet::EMPTY,
            lost: SlotSet::EMPTY,
            leaving: false,
            proof,
            beat: Beat::Due { at: now },
            prove_asked_at: None,
            config,
        };
        lease.advance(now);
        lease
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
    /// each slot once, however often it was named: what was `Moved` may be named again as `Lost`, and once confirmed it may
    /// come back by [`Action::Own`], when a second confirmation would give up the new hold.
    pub fn handle_revoked(&mut self, now: Instant, slots: SlotSet) {
        self.proof.note_time(now);
        let given_up = slots.intersect(&self.revoking);
        self.held = self.held.minus(&given_up);
        self.revoking = self.revoking.minus(&given_up);
        self.lost = self.lost.minus(&given_up);
        self.advance(now);
    }

    /// The time of [`poll_timeout`](Self::poll_timeout) has come (calling it early is harmless).
    pub fn handle_timeout(&mut self, now: Instant) {
        self.advance(now);
    }

    /// Leaves for good: revokes all slots, sends LeaveGroup, ends with [`LeaseLost::Left`]. For a worker that is removed, or
    /// stops where [others](Self::has_company) can take over; else just drop the machine, so that a restart takes over in
    /// milliseconds.
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
            Membership::Joining { give_up_at, .. } | Membership::Syncing { give_up_at, .. } => Some(give_up_at),
            Membership::Settled | Membership::Clearing => None,
        };
        let beat = match self.beat {
            Beat::Due { at } => Some(at).filter(|_| known && self.can_beat()),
            Beat::Pending { give_up_at, .. } => Some(give_up_at),
        };
        let lapse = self.proof.until().filter(|_| self.proof.lapsed_since().is_none());
        let prove = self.prove_at().filter(|_| known);
        [coordinator, membership, beat, lapse, prove].into_iter().flatten().min()
    }

    /// Until when produce requests for [`slots`](Self::slots) may be *sent*; `None`: not at all. Ask before each request.
    pub fn proof_until(&self) -> Option<Instant> {
        self.proof.until()
    }

    /// With what to commit anchors; `None` when a commit would only be refused.
    pub fn commit_credentials(&self) -> Option<Credentials> {
        let ready =
            matches!(self.membership, Membership::Settled | Membership::Apart { .. } | Membership::Joining { .. });
        let generation = self.generation.filter(|generation| ready && *generation == self.synced)?;
        Some(Credentials { generation, member_id: self.member_id.clone() })
    }

    /// Slots held: owned and not yet confirmed as revoked.
    pub fn slots(&self) -> SlotSet {
        self.held
    }

    /// Whether others are in the group, as far as is known, who would go on at once if we left: part of the slots is not
    /// ours, or the group is dealing anew.
    pub fn has_company(&self) -> bool {
        let alone = matches!(self.membership, Membership::Settled) && self.assigned == SlotSet::ALL;
        self.generation.is_some() && !alone && !matches!(self.membership, Membership::Over(_))
    }

    /// What the lease is doing.
    pub fn state(&self, now: Instant) -> LeaseState {
        let slots = self.held;
        if let Membership::Over(reason) = &self.membership {
            return LeaseState::Stopped { reason: reason.clone() };
        }
        if let Some(error_code) = self.refused {
            let remedy = match error_code {
                GROUP_AUTHORIZATION_FAILED => "grant READ on the lease group to towpath's principal on the target",
                GROUP_MAX_SIZE_REACHED => "run fewer workers, or raise the brokers' group.max.size",
                _ => "look the code up in Kafka's protocol guide and into the coordinator's log",
            };
            return LeaseState::Refused { error_code, remedy };
        }
        if let Some((since, error_code)) = self.unavailable {
            return LeaseState::CoordinatorUnavailable { since, error_code, lapsed: !self.proof.runs(now) };
        }
        match self.membership {
            _ if !slots.is_empty() && !self.proof.runs(now) => {
                let ended = self.proof.until().unwrap_or(now).min(now);
                LeaseState::Lapsed { slots, since: self.proof.lapsed_since().unwrap_or(ended) }
            }
            Membership::Settled => LeaseState::Held { slots, revoking: self.revoking },
            _ if self.generation.is_some() && self.synced >= 0 => LeaseState::Rebalancing { slots },
            _ => LeaseState::Joining { since: self.joining_since },
        }
    }

    /// The settings given.
    pub fn config(&self) -> &LeaseConfig {
        &self.config
    }
}
