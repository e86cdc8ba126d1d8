//! One classic group: its members, its phase, its committed offsets, and what of it is written.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::protocol::StrBytes;
use tokio::time::Instant;

use super::super::{BrokerVersion, Ticket};
use super::member::Member;
use super::offsets::Committed;
use super::{FENCED_INSTANCE_ID, GroupResponse, ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID};

pub(super) type Answers = VecDeque<(Ticket, GroupResponse)>;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Phase {
    Empty,
    Preparing {
        deadline: Instant,
        /// Set when the group was empty before: it then waits for a while even if everybody has joined.
        initial: Option<InitialDelay>,
    },
    Completing,
    Stable,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct InitialDelay {
    /// One step of the delay.
    pub(super) delay: Duration,
    /// How much longer it may become altogether.
    pub(super) remaining: Duration,
    /// Somebody joined during this step: one more follows.
    pub(super) newcomer: bool,
}

/// The part of a group that `__consumer_offsets` keeps in one record.
#[derive(Clone, Debug)]
pub(super) struct Roster {
    pub(super) phase: Phase,
    pub(super) generation: i32,
    pub(super) protocol_type: Option<StrBytes>,
    pub(super) protocol_name: Option<StrBytes>,
    pub(super) leader: Option<StrBytes>,
    /// In the order in which they joined. Kafka's order is that of a hash table.
    pub(super) members: Vec<Member>,
    /// When it became empty or stable, for retention.
    pub(super) since_ms: Option<i64>,
}

#[derive(Debug)]
pub(super) struct Group {
    /// Live; [`Self::reload`] replaces it by what was written.
    pub(super) roster: Roster,
    written: Option<Roster>,
    /// Written as they come.
    pub(super) offsets: BTreeMap<(StrBytes, i32), Committed>,
    /// Ids given out with 79 whose owner has not come back with them, and until when it may.
    pub(super) pending: BTreeMap<StrBytes, Instant>,
    /// Members of this generation that have not asked for their assignment; they are thrown out at the deadline (not 2.8).
    pub(super) pending_sync: BTreeSet<StrBytes>,
    pub(super) sync_deadline: Option<Instant>,
}

impl Group {
    pub(super) fn new() -> Self {
        Self {
            roster: Roster {
                phase: Phase::Empty,
                generation: 0,
                protocol_type: None,
                protocol_name: None,
                leader: None,
                members: Vec::new(),
                since_ms: None,
            },
            written: None,
            offsets: BTreeMap::new(),
            pending: BTreeMap::new(),
            pending_sync: BTreeSet::new(),
            sync_deadline: None,
        }
    }

    pub(super) fn phase(&self) -> &Phase {
        &self.roster.phase
    }

    pub(super) fn is_empty(&self) -> bool {
        self.roster.phase == Phase::Empty
    }

    pub(super) fn is_preparing(&self) -> bool {
        matches!(self.roster.phase, Phase::Preparing { .. })
    }

    /// Nothing worth keeping: neither members nor offsets.
    pub(super) fn is_bare(&self) -> bool {
        self.is_empty() && self.pending.is_empty() && self.offsets.is_empty()
    }

    pub(super) fn state_name(&self) -> &'static str {
        match self.roster.phase {
            Phase::Empty => "Empty",
            Phase::Preparing { .. } => "PreparingRebalance",
            Phase::Completing => "CompletingRebalance",
            Phase::Stable => "Stable",
        }
    }

    pub(super) fn member(&self, id: &str) -> Option<&Member> {
        self.roster.members.iter().find(|member| member.id.as_str() == id)
    }

    pub(super) fn member_mut(&mut self, id: &str) -> Option<&mut Member> {
        self.roster.members.iter_mut().find(|member| member.id.as_str() == id)
    }

    pub(super) fn static_member(&self, instance_id: &str) -> Option<&Member> {
        self.roster
            .members
            .iter()
            .find(|member| member.instance_id.as_ref().is_some_and(|id| id.as_str() == instance_id))
    }

    pub(super) fn leads(&self, id: &str) -> bool {
        self.roster.leader.as_ref().is_some_and(|leader| leader.as_str() == id)
    }

    pub(super) fn leader(&self) -> StrBytes {
        self.roster.leader.clone().unwrap_or_default()
    }

    /// 82 only for a request that names its instance; without it a former owner is simply unknown (S13).
    pub(super) fn check_member(&self, id: &str, instance_id: Option<&StrBytes>) -> Result<(), i16> {
        if let Some(instance_id) = instance_id {
            match self.static_member(instance_id) {
                None => return Err(UNKNOWN_MEMBER_ID),
                Some(owner) if owner.id.as_str() != id => return Err(FENCED_INSTANCE_ID),
                Some(_) => {}
            }
        }
        if self.member(id).is_some() { Ok(()) } else { Err(UNKNOWN_MEMBER_ID) }
    }

    pub(super) fn check_generation(&self, generation: i32) -> Result<(), i16> {
        if generation == self.roster.generation { Ok(()) } else { Err(ILLEGAL_GENERATION) }
    }

    pub(super) fn rebalance_timeout(&self) -> Duration {
        self.roster.members.iter().map(|member| member.rebalance_timeout).max().unwrap_or_default()
    }

    /// Whether a newcomer with these protocols fits in.
    pub(super) fn supports(&self, protocol_type: &str, protocols: &[JoinGroupRequestProtocol]) -> bool {
        if self.is_empty() {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        self.roster.protocol_type.as_ref().is_some_and(|known| known.as_str() == protocol_type)
            && protocols.iter().any(|protocol| self.roster.members.iter().all(|member| member.supports(&protocol.name)))
    }

    /// The protocol that most members like best among those that all know.
    pub(super) fn choose_protocol(&self) -> Option<StrBytes> {
        let common = |name: &str| self.roster.members.iter().all(|member| member.supports(name));
        let mut votes: BTreeMap<&StrBytes, usize> = BTreeMap::new();
        for member in &self.roster.members {
            if let Some(best) = member.protocols.iter().find(|protocol| common(&protocol.name)) {
                *votes.entry(&best.name).or_default() += 1;
            }
        }
        votes.into_iter().max_by_key(|(_, votes)| *votes).map(|(name, _)| name.clone())
    }

    /// Keeps what a real coordinator appends to its log here.
    pub(super) fn write(&mut self) {
        self.written = Some(self.roster.clone());
    }

    /// Back to what was written; `false` if nothing was.
    pub(super) fn reload(&mut self, loaded: Instant) -> bool {
        let bare = Self::new().roster;
        let known = self.written.is_some() || !self.offsets.is_empty();
        self.roster = self.written.clone().unwrap_or(bare);
        self.pending.clear();
        self.pending_sync.clear();
        self.sync_deadline = None;
        for member in &mut self.roster.members {
            (member.join, member.sync, member.is_new) = (None, None, false);
            member.hear(loaded);
        }
        known
    }

    pub(super) fn forget(&mut self, ticket: Ticket) {
        for member in &mut self.roster.members {
            member.forget(ticket);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let rebalance = match self.roster.phase {
            Phase::Preparing { deadline, .. } => Some(deadline),
            Phase::Empty | Phase::Completing | Phase::Stable => None,
        };
        let members = self.roster.members.iter().filter_map(|member| member.expiry);
        members.chain(self.pending.values().copied()).chain(rebalance).chain(self.sync_deadline).min()
    }

    pub(super) fn due(&self, now: Instant) -> bool {
        self.poll_timeout().is_some_and(|at| now >= at)
    }

    /// Handles one due timer, the earliest kind first; the caller repeats.
    pub(super) fn handle_timeout(&mut self, now: Instant, wall_ms: i64, version: BrokerVersion, answers: &mut Answers) {
        let pending = self.pending.iter().find(|(_, at)| now >= **at).map(|(id, _)| id.clone());
        let expired = self.roster.members.iter().position(|member| member.expiry.is_some_and(|at| now >= at));
        if let Some(id) = pending {
            self.pending.remove(&id);
            self.complete_if_joined(now, wall_ms, version, answers);
        } else if let Some(at) = expired {
            let member = &mut self.roster.members[at];
            if !member.is_new && (member.join.is_some() || member.sync.is_some()) {
                // Waiting for us is a sign of life; the answer starts its session time anew.
                member.expiry = None;
            } else {
                let id = member.id.clone();
                self.remove_member(now, wall_ms, version, &id, answers);
            }
        } else if let Phase::Preparing { deadline, .. } = self.roster.phase
            && now >= deadline
        {
            self.end_of_joining(now, wall_ms, version, answers);
        } else if self.sync_deadline.is_some_and(|at| now >= at) {
            self.expel_unsynced(now, wall_ms, version, answers);
        }
    }
}
