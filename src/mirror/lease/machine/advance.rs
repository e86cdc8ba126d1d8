//! What the lease does in the state it is in: whatever is due now, and moving slots towards the assignment.

use std::time::Duration;

use tokio::time::Instant;

use super::super::events::{Action, LeaseLost, Link, RevokeReason, Ticket};
use super::super::slots::SlotSet;
use super::super::wire::MemberMetadata;
use super::{Beat, Coordinator, Lease, Membership};

/// What the broker may take beyond the timeouts to answer JoinGroup: network, the initial delay of 3 s, a slow disk.
const JOIN_SLACK: Duration = Duration::from_secs(5);

impl Lease {
    /// Emits everything that is due in the present state.
    pub(super) fn advance(&mut self, now: Instant) {
        self.proof.note_time(now);
        self.give_up_on_silence(now);
        self.settle_slots(now);
        if matches!(self.membership, Membership::Over(_)) {
            return;
        }
        if matches!(self.coordinator, Coordinator::Wanted { at } if at <= now) {
            let ticket = self.ticket();
            self.coordinator = Coordinator::Asked { ticket, give_up_at: now + self.patience() };
            self.actions.push_back(Action::FindCoordinator { ticket });
        }
        if !matches!(self.coordinator, Coordinator::Known) {
            return;
        }
        if matches!(self.membership, Membership::Apart { join_at } if join_at <= now) && !self.leaving {
            self.send_join(now);
        }
        if self.prove_at().is_some_and(|at| at <= now)
            && let Some(credentials) = self.commit_credentials()
        {
            self.prove_asked_at = Some(now);
            self.actions.push_back(Action::ProveByCommit { credentials });
        }
        if let Beat::Due { at } = self.beat
            && at <= now
            && self.can_beat()
            && let Some(generation) = self.generation
        {
            let (ticket, member_id) = (self.ticket(), self.member_id.clone());
            self.beat = Beat::Pending { ticket, give_up_at: now + self.patience() };
            self.actions.push_back(Action::Heartbeat { ticket, generation, member_id });
        }
    }

    /// A request unanswered for too long: its connection is as good as lost.
    pub(super) fn give_up_on_silence(&mut self, now: Instant) {
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
    pub(super) fn settle_slots(&mut self, now: Instant) {
        let settled = matches!(self.membership, Membership::Settled);
        let clearing = matches!(self.membership, Membership::Clearing);
        if matches!(self.membership, Membership::Over(_)) || !(settled || clearing || self.leaving) {
            return;
        }
        let wanted = if clearing || self.leaving { SlotSet::EMPTY } else { self.assigned };
        let surplus = self.held.minus(&wanted).minus(&self.revoking);
        self.revoking = self.revoking.union(&surplus);
        let lost = if self.generation.is_some() { surplus.intersect(&self.lost) } else { surplus };
        for (slots, why) in [(lost, RevokeReason::Lost), (surplus.minus(&lost), RevokeReason::Moved)] {
            if !slots.is_empty() {
                self.actions.push_back(Action::Revoke { slots, why });
            }
        }
        if settled && self.lost.is_empty() {
            self.proof.cover(now);
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
                let (member_id, instance_id) = (self.member_id.clone(), self.config.instance_id.clone());
                self.actions.push_back(Action::Leave { member_id, instance_id });
            }
            self.stop(LeaseLost::Left { group: self.config.group.clone() });
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

    pub(super) fn send_join(&mut self, now: Instant) {
        let ticket = self.ticket();
        self.membership = Membership::Joining { ticket, give_up_at: now + self.join_patience() };
        self.declared = self.held.minus(&self.lost);
        self.actions.push_back(Action::Join {
            ticket,
            member_id: self.member_id.clone(),
            instance_id: self.config.instance_id.clone(),
            metadata: MemberMetadata { owned: self.declared, generation: self.synced }.encode(),
            session_timeout: self.config.session_timeout,
            rebalance_timeout: self.config.rebalance_timeout,
        });
    }

    /// When to ask for a commit, if heartbeats do not prove what must be proven.
    pub(super) fn prove_at(&self) -> Option<Instant> {
        let generation = self.generation.filter(|generation| *generation == self.synced);
        let session = self.proof.session().filter(|_| generation.is_some() && !self.held.is_empty())?;
        let due = match self.membership {
            Membership::Settled if !self.proof.trusted() => session,
            // Heartbeats say 27 now, which proves nothing; work goes on as long as commits do.
            Membership::Joining { .. } | Membership::Apart { .. } => session + self.config.session_timeout / 2,
            _ => return None,
        };
        let again = self.prove_asked_at.map(|asked| asked + self.config.session_timeout / 6);
        Some(again.map_or(due, |again| due.max(again)))
    }

    pub(super) fn can_beat(&self) -> bool {
        self.generation.is_some() && !matches!(self.membership, Membership::Clearing | Membership::Over(_))
    }

    /// How long a request may stay unanswered that the broker answers at once.
    pub(super) fn patience(&self) -> Duration {
        self.config.session_timeout / 3
    }

    /// The same for JoinGroup and SyncGroup, which wait for other members.
    pub(super) fn join_patience(&self) -> Duration {
        self.config.rebalance_timeout + self.config.session_timeout + JOIN_SLACK
    }

    pub(super) fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }
}
