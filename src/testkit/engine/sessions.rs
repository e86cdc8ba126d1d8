//! Incremental fetch sessions of one node (KIP-227); behaviour measured in broker-experiments, S10.

use std::collections::BTreeMap;

use kafka_protocol::messages::fetch_response::PartitionData;
use tokio::time::Instant;
use uuid::Uuid;

use crate::protocol::ErrorCode;

/// A topic as a fetch names it, and a partition of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// Empty below Fetch 13.
    pub(super) name: String,
    /// Nil from Fetch 13 on.
    pub(super) id: Uuid,
    pub(super) partition: i32,
}

/// What a client wants of one partition.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) key: Key,
    /// The topic's name when the partition was added; `None` for an id that was unknown then.
    pub(super) topic: Option<String>,
    pub(super) fetch_offset: i64,
    pub(super) bytes_max: i32,
    pub(super) current_leader_epoch: i32,
    pub(super) last_fetched_epoch: i32,
}

#[derive(Debug)]
struct Member {
    wanted: Wanted,
    /// Position in the order in which partitions are read.
    turn: u64,
    told_high_watermark: i64,
    told_log_start: i64,
}

#[derive(Debug)]
struct Session {
    members: BTreeMap<Key, Member>,
    by_turn: BTreeMap<u64, Key>,
    next_turn: u64,
    next_epoch: i32,
    uses_ids: bool,
    last_used: Instant,
}

/// How a fetch stands to sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Context {
    /// None was asked for, or none is free.
    Sessionless,
    /// A new one: everything is answered.
    Full(i32),
    /// Only what changed is answered.
    Incremental(i32),
}

/// A session that rested this long may be thrown out for a new one.
const IDLE: std::time::Duration = std::time::Duration::from_secs(120);

#[derive(Debug)]
pub(super) struct FetchSessions {
    sessions: BTreeMap<i32, Session>,
    slots: usize,
    next_id: i32,
}

/// The session fields of a request, with what it lists.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) session_id: i32,
    pub(super) session_epoch: i32,
    pub(super) uses_ids: bool,
    pub(super) listed: Vec<Wanted>,
    pub(super) forgotten: Vec<Key>,
}

impl FetchSessions {
    pub(super) fn new(node: i32, slots: usize) -> Self {
        // Real ids are random; these only have to differ between nodes and from 0.
        Self { sessions: BTreeMap::new(), slots, next_id: node.saturating_mul(1_000_003) }
    }

    /// A restarted node remembers none.
    pub(super) fn clear(&mut self) {
        self.sessions.clear();
    }

    /// One is not made after all.
    pub(super) fn remove(&mut self, id: i32) {
        self.sessions.remove(&id);
    }

    /// What has to be read, in order.
    pub(super) fn open(&mut self, now: Instant, opening: Opening) -> Result<(Context, Vec<Wanted>), ErrorCode> {
        let Opening { session_id, session_epoch, uses_ids, listed, forgotten } = opening;
        if session_epoch <= 0 {
            if session_id != 0 {
                self.sessions.remove(&session_id);
            }
            let context = if session_epoch == 0 { self.create(now, uses_ids, &listed) } else { Context::Sessionless };
            return Ok((context, listed));
        }
        let session = self.sessions.get_mut(&session_id).ok_or(ErrorCode::FETCH_SESSION_ID_NOT_FOUND)?;
        if session.next_epoch != session_epoch {
            return Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH);
        }
        if session.uses_ids != uses_ids {
            return Err(ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR);
        }
        session.last_used = now;
        session.next_epoch = if session_epoch == i32::MAX { 1 } else { session_epoch + 1 };
        for wanted in listed {
            session.list(wanted);
        }
        for key in forgotten {
            if let Some(member) = session.members.remove(&key) {
                session.by_turn.remove(&member.turn);
            }
        }
        if session.members.is_empty() {
            self.sessions.remove(&session_id);
            return Ok((Context::Sessionless, Vec::new()));
        }
        let wanted = session.by_turn.values().filter_map(|key| session.members.get(key)).map(|m| m.wanted.clone());
        Ok((Context::Incremental(session_id), wanted.collect()))
    }

    fn create(&mut self, now: Instant, uses_ids: bool, listed: &[Wanted]) -> Context {
        if listed.is_empty() {
            return Context::Sessionless;
        }
        if self.sessions.len() >= self.slots {
            let idle = self.sessions.iter().min_by_key(|(_, session)| session.last_used);
            match idle.map(|(id, session)| (*id, session.last_used)) {
                Some((id, last_used)) if now.saturating_duration_since(last_used) > IDLE => {
                    self.sessions.remove(&id);
                }
                _ => return Context::Sessionless,
            }
        }
        self.next_id = self.next_id.wrapping_add(1).max(1);
        let mut session = Session {
            members: BTreeMap::new(),
            by_turn: BTreeMap::new(),
            next_turn: 0,
            next_epoch: 1,
            uses_ids,
            last_used: now,
        };
        for wanted in listed {
            session.list(wanted.clone());
        }
        self.sessions.insert(self.next_id, session);
        Context::Full(self.next_id)
    }

    /// Whether a partition's data belongs into the answer; remembers what the client knows then.
    pub(super) fn must_answer(&mut self, context: Context, key: &Key, data: &PartitionData) -> bool {
        let (id, is_full) = match context {
            Context::Sessionless => return true,
            Context::Full(id) => (id, true),
            Context::Incremental(id) => (id, false),
        };
        let Some(session) = self.sessions.get_mut(&id) else {
            return true;
        };
        let Some(member) = session.members.get_mut(key) else {
            return true;
        };
        let has_records = data.records.as_ref().is_some_and(|records| !records.is_empty());
        let is_odd = data.error_code != 0 || data.diverging_epoch.epoch >= 0 || data.preferred_read_replica.0 >= 0;
        let changed =
            (member.told_high_watermark, member.told_log_start) != (data.high_watermark, data.log_start_offset);
        member.told_log_start = data.log_start_offset;
        // After an error the partition is told again in any case.
        member.told_high_watermark = if is_odd { -1 } else { data.high_watermark };
        if has_records && !is_full {
            // Whoever was served goes to the end of the queue.
            session.by_turn.remove(&member.turn);
            member.turn = session.next_turn;
            session.next_turn += 1;
            session.by_turn.insert(member.turn, key.clone());
        }
        is_full || has_records || is_odd || changed
    }
}

impl Session {
    fn list(&mut self, wanted: Wanted) {
        if let Some(member) = self.members.get_mut(&wanted.key) {
            // The topic stays the one it was when the partition came in.
            let topic = member.wanted.topic.clone().or_else(|| wanted.topic.clone());
            member.wanted = Wanted { topic, ..wanted };
            return;
        }
        let turn = self.next_turn;
        self.next_turn += 1;
        self.by_turn.insert(turn, wanted.key.clone());
        let member = Member { turn, told_high_watermark: -1, told_log_start: -1, wanted };
        self.members.insert(member.wanted.key.clone(), member);
    }
}
