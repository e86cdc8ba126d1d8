//! A lease with a scripted peer: each call answers the last request of its kind.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::super::{
    Action, CommitAnswer, CoordinatorAnswer, JoinAnswer, JoinedMember, LEASE_PROTOCOL_NAME, Lease, LeaseConfig,
    LeaseLost, LeaseState, MemberMetadata, SlotSet, Ticket,
};
use super::S;

/// A lease with a scripted peer.
pub(super) struct Bench {
    pub(super) now: Instant,
    pub(super) lease: Lease,
    pub(super) done: Vec<Action>,
}

impl Bench {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        let config = LeaseConfig::new("__towpath.a.b", "w", S).unwrap();
        let mut bench = Self { now, lease: Lease::new(config, 1, now), done: Vec::new() };
        bench.poll();
        bench
    }

    /// Joined as the only member, all slots owned, the first heartbeat answered.
    pub(super) fn settled() -> Self {
        let mut bench = Self::new();
        bench.find(1);
        bench.answer_join(Self::joined(1, "m1", true));
        bench.answer_sync(0, None);
        bench.answer_heartbeat(0);
        assert_eq!(bench.lease.slots(), SlotSet::ALL);
        bench.done.clear();
        bench
    }

    pub(super) fn joined(generation: i32, member_id: &str, leads: bool) -> JoinAnswer {
        let leader = if leads { member_id } else { "other" }.to_owned();
        let (member_id, protocol_name) = (member_id.to_owned(), LEASE_PROTOCOL_NAME.to_owned());
        JoinAnswer { generation, protocol_name, leader, member_id, ..JoinAnswer::default() }
    }

    pub(super) fn poll(&mut self) -> Vec<Action> {
        let actions: Vec<Action> = std::iter::from_fn(|| self.lease.poll_action()).collect();
        self.done.extend(actions.clone());
        actions
    }

    pub(super) fn pass(&mut self, time: Duration) -> Vec<Action> {
        self.now += time;
        self.lease.handle_timeout(self.now);
        self.poll()
    }

    pub(super) fn last<T>(&self, pick: impl Fn(&Action) -> Option<T>) -> T {
        self.done.iter().rev().find_map(pick).expect("such an action came")
    }

    pub(super) fn find(&mut self, node: i32) -> Vec<Action> {
        let ticket = self.last(|action| match action {
            Action::FindCoordinator { ticket } => Some(*ticket),
            _ => None,
        });
        self.lease.handle_coordinator(self.now, CoordinatorAnswer { ticket, result: Ok(node) });
        self.poll()
    }

    pub(super) fn last_join(&self) -> (Ticket, String, MemberMetadata) {
        self.last(|action| match action {
            Action::Join { ticket, member_id, metadata, instance_id, session_timeout, rebalance_timeout } => {
                assert_eq!((instance_id.as_str(), *session_timeout), ("w", S));
                assert!(rebalance_timeout >= session_timeout);
                Some((*ticket, member_id.clone(), MemberMetadata::decode(metadata).unwrap()))
            }
            _ => None,
        })
    }

    /// Answers the join, with ourselves as the only member where we lead.
    pub(super) fn answer_join(&mut self, mut answer: JoinAnswer) -> Vec<Action> {
        let (ticket, _, metadata) = self.last_join();
        if answer.leader == answer.member_id && answer.members.is_empty() && answer.error_code == 0 {
            let (member_id, instance_id) = (answer.member_id.clone(), "w".to_owned());
            answer.members.push(JoinedMember { member_id, instance_id, metadata: metadata.encode() });
        }
        self.lease.handle_join(self.now, ticket, self.now, answer);
        self.poll()
    }

    pub(super) fn refuse_join(&mut self, error_code: i16) -> Vec<Action> {
        self.answer_join(JoinAnswer { error_code, ..JoinAnswer::default() })
    }

    /// Answers the sync with what the leader (ourselves) gave, or with the assignment stated.
    pub(super) fn answer_sync(&mut self, code: i16, assignment: Option<Bytes>) -> Vec<Action> {
        let (ticket, given) = self.last(|action| match action {
            Action::Sync { ticket, assignments, .. } => {
                Some((*ticket, assignments.first().map(|(_, bytes)| bytes.clone())))
            }
            _ => None,
        });
        let bytes = assignment.or(given).unwrap_or_default();
        self.lease.handle_sync(self.now, ticket, self.now, code, &bytes);
        self.poll()
    }

    pub(super) fn answer_heartbeat(&mut self, code: i16) -> Vec<Action> {
        let ticket = self.last(|action| match action {
            Action::Heartbeat { ticket, .. } => Some(*ticket),
            _ => None,
        });
        self.lease.handle_heartbeat(self.now, ticket, self.now, code);
        self.poll()
    }

    pub(super) fn beat(&mut self, code: i16) -> Vec<Action> {
        let interval = self.lease.config().heartbeat_interval();
        assert!(matches!(self.pass(interval)[..], [Action::Heartbeat { .. }]), "{:?}", self.done.last());
        self.answer_heartbeat(code)
    }

    pub(super) fn commit(&mut self, error_code: i16) -> Vec<Action> {
        let credentials = self.lease.commit_credentials().expect("commits make sense");
        self.lease.handle_commit(self.now, self.now, CommitAnswer { credentials, error_code });
        self.poll()
    }

    pub(super) fn stopped(&self) -> Option<LeaseLost> {
        match self.lease.state(self.now) {
            LeaseState::Stopped { reason } => Some(reason),
            _ => None,
        }
    }
}
