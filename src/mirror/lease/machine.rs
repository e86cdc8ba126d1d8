//! The lease machine.

use std::collections::VecDeque;

use tokio::time::Instant;

use super::events::{
    Action, CommitAnswer, CoordinatorAnswer, Credentials, JoinAnswer, LeaseConfig, LeaseState,
    Link, Ticket,
};
use super::slots::SlotSet;

/// Membership of one worker in the lease group of one flow.
#[derive(Debug)]
pub struct Lease {
    config: LeaseConfig,
    actions: VecDeque<Action>,
    started: Instant,
}

impl Lease {
    /// A lease at the start of the process. The caller holds the [`StateLock`](super::StateLock) of this instance id.
    /// `seed` jitters the waits between retries; workers should differ in it.
    pub fn new(config: LeaseConfig, seed: u64, now: Instant) -> Self {
        let _ = seed;
        Self {
            config,
            actions: VecDeque::new(),
            started: now,
        }
    }

    /// FindCoordinator answered or failed.
    pub fn handle_coordinator(&mut self, now: Instant, answer: CoordinatorAnswer) {
        let _ = (now, answer);
    }

    /// JoinGroup answered. `sent_at` is when the request was written, not when it was answered.
    pub fn handle_join(
        &mut self,
        now: Instant,
        ticket: Ticket,
        sent_at: Instant,
        answer: JoinAnswer,
    ) {
        let _ = (now, ticket, sent_at, answer);
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
        let _ = (now, ticket, sent_at, error_code, assignment);
    }

    /// Heartbeat answered.
    pub fn handle_heartbeat(
        &mut self,
        now: Instant,
        ticket: Ticket,
        sent_at: Instant,
        error_code: i16,
    ) {
        let _ = (now, ticket, sent_at, error_code);
    }

    /// An OffsetCommit of anchors answered, whoever asked for it. Every one counts: it proves membership.
    pub fn handle_commit(&mut self, now: Instant, sent_at: Instant, answer: CommitAnswer) {
        let _ = (now, sent_at, answer);
    }

    /// [`Action::ProveByCommit`] cannot be done: there is no anchor to commit.
    pub fn handle_nothing_to_commit(&mut self, now: Instant) {
        let _ = now;
    }

    /// A connection closed or could not be opened. Answers to requests on it must not be handed in after this.
    pub fn handle_connection_lost(&mut self, now: Instant, link: Link) {
        let _ = (now, link);
    }

    /// The caller does not work on these slots any more (an answer to [`Action::Revoke`]; parts of it are fine).
    pub fn handle_revoked(&mut self, now: Instant, slots: SlotSet) {
        let _ = (now, slots);
    }

    /// The time of [`poll_timeout`](Self::poll_timeout) has come (calling it early is harmless).
    pub fn handle_timeout(&mut self, now: Instant) {
        let _ = now;
    }

    /// Leaves for good: revokes all slots, sends LeaveGroup, ends with [`LeaseLost::Left`](super::LeaseLost::Left). For
    /// a worker that is removed; at an ordinary stop just drop the machine, so that a restart takes over in milliseconds.
    pub fn leave(&mut self, now: Instant) {
        let _ = now;
    }

    /// The next thing to do; call until `None` after every `handle_*`.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) at the latest.
    pub fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Until when produce requests for [`slots`](Self::slots) may be *sent*; `None`: not at all. Ask before each request.
    pub fn proof_until(&self) -> Option<Instant> {
        None
    }

    /// With what to commit anchors; `None` when a commit would only be refused.
    pub fn commit_credentials(&self) -> Option<Credentials> {
        None
    }

    /// Slots held: owned and not yet confirmed as revoked.
    pub fn slots(&self) -> SlotSet {
        SlotSet::EMPTY
    }

    /// What the lease is doing.
    pub fn state(&self, now: Instant) -> LeaseState {
        let _ = now;
        LeaseState::Joining {
            since: self.started,
        }
    }

    /// The settings given.
    pub fn config(&self) -> &LeaseConfig {
        &self.config
    }
}
