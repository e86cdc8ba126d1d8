//! An embedded Kafka cluster without sockets, clock and randomness: the same events give the same effects.
//!
//! Feed it with [`Cluster::handle_opened`], [`Cluster::handle_request`], [`Cluster::handle_closed`] and
//! [`Cluster::handle_timeout`]; after each take all of [`Cluster::poll_effect`], and call `handle_timeout` no later than
//! [`Cluster::poll_timeout`] says. The controls in `control` change the cluster under its clients' feet.
//!
//! Invariants: one request of a connection is worked on at a time (A); the answers of a connection come in the order of
//! its requests (B); offsets of a partition are dense but for what cleaning and raw appends leave out (C).
//!
//! Not played: replication between nodes (followers are always up to date, a log is lost with no node), authorizers,
//! quotas by themselves (only what a test says is throttled), tiered storage, offsets within transactions (AddOffsetsToTxn, TxnOffsetCommit), KIP-848 groups, segments (a fetch never stops at a segment's end), retention by time or
//! size.

mod api;
mod control;
mod hooks;
mod sessions;
mod settings;
mod topics;
mod transactions;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use self::api::{Answer, Asked, Outcome, WaitingAcks, WaitingFetch};
pub use self::control::{PartitionView, TopicView};
pub use self::hooks::{Intercept, InterceptAction};
use self::sessions::FetchSessions;
use self::settings::BrokerConfigs;
pub use self::settings::ClusterSettings;
use self::topics::Topics;
use self::transactions::Transactions;
use super::groups::{GroupCoordinator, GroupSettings};
use super::{BrokerVersion, Ticket};

/// Names a connection; chosen by the driver, never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// What the driver has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Write these bytes, length prefix included.
    Send {
        /// On which connection.
        connection: ConnectionId,
        /// The frame.
        frame: Bytes,
    },
    /// Close the connection, after what was sent before. No event about it is expected.
    Close {
        /// Which.
        connection: ConnectionId,
    },
}

/// Requests of one connection that wait for the one before; a driver should stop reading at this number.
pub const QUEUE_MAX: usize = 64;

/// Largest request in bytes: `socket.request.max.bytes`.
pub const REQUEST_BYTES_MAX: usize = 100 << 20;

#[derive(Debug)]
struct Connection {
    node: i32,
    queue: VecDeque<Bytes>,
    waiting: Option<Waiting>,
    /// The client is gone; what it sent lies in the socket still.
    gone: bool,
    /// Its node hung, and has not come to this socket again.
    held: bool,
}

/// How a node hangs. It takes connections and what is sent on them, as its system does for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hang {
    /// It works on nothing.
    ReadsNothing,
    /// It works on what comes, and its answers stay with it: of each connection on one request, then it waits.
    AnswersNothing,
}

/// Why a connection's request has no answer yet.
#[derive(Debug)]
enum Waiting {
    Fetch(WaitingFetch),
    Acks(WaitingAcks),
    Group(Asked, Ticket),
    /// Held back by a test.
    Delay(Instant, Bytes),
    /// The answer of a node that hangs.
    Held(Answer),
    /// Nothing is read until then: a quota was used up (KIP-219).
    Muted(Instant),
}

#[derive(Debug)]
struct Node {
    host: String,
    port: u16,
    is_up: bool,
    hangs: Option<Hang>,
    sessions: FetchSessions,
}

/// The time of an event.
#[derive(Debug, Clone, Copy)]
struct Clock {
    now: Instant,
    wall_ms: i64,
}

/// The cluster.
#[derive(Debug)]
pub struct Cluster {
    version: BrokerVersion,
    cluster_id: String,
    log_bytes_max: usize,
    configs: BrokerConfigs,
    nodes: BTreeMap<i32, Node>,
    connections: BTreeMap<ConnectionId, Connection>,
    /// Connections with a request that can be worked on.
    ready: BTreeSet<ConnectionId>,
    topics: Topics,
    transactions: Transactions,
    groups: GroupCoordinator,
    tickets: BTreeMap<Ticket, ConnectionId>,
    next_ticket: u64,
    intercepts: Vec<Intercept>,
    /// What Metadata names as the leader of everything.
    leader_lie: Option<i32>,
    effects: VecDeque<Effect>,
    clock: Clock,
    started: Instant,
    started_wall_ms: i64,
    next_sweep: Instant,
    /// A log, a high watermark or a leader changed since waiting requests were looked at.
    is_dirty: bool,
}

impl Cluster {
    /// A cluster whose nodes are up but have no addresses yet.
    #[must_use]
    pub fn new(settings: ClusterSettings, now: Instant) -> Self {
        let configs = BrokerConfigs::new(settings.version, settings.broker_configs);
        let nodes = (1..=settings.nodes.max(1))
            .map(|id| {
                let slots = configs.number("max.incremental.fetch.session.cache.slots", 1000);
                let sessions = FetchSessions::new(id, usize::try_from(slots).unwrap_or(0));
                (id, Node { host: "127.0.0.1".to_owned(), port: 0, is_up: true, hangs: None, sessions })
            })
            .collect();
        let groups = GroupCoordinator::new(group_settings(&configs), settings.version);
        let next_sweep = now + sweep_interval(&configs);
        Self {
            version: settings.version,
            topics: Topics::new(&settings.cluster_id),
            cluster_id: settings.cluster_id,
            log_bytes_max: settings.log_bytes_max,
            configs,
            nodes,
            connections: BTreeMap::new(),
            ready: BTreeSet::new(),
            transactions: Transactions::default(),
            groups,
            tickets: BTreeMap::new(),
            next_ticket: 0,
            intercepts: Vec::new(),
            leader_lie: None,
            effects: VecDeque::new(),
            clock: Clock { now, wall_ms: settings.wall_ms },
            started: now,
            started_wall_ms: settings.wall_ms,
            next_sweep,
            is_dirty: false,
        }
    }

    /// A client connected to a node.
    pub fn handle_opened(&mut self, now: Instant, node: i32, connection: ConnectionId) {
        self.tick(now);
        if self.nodes.get(&node).is_some_and(|node| node.is_up) {
            let open = Connection { node, queue: VecDeque::new(), waiting: None, gone: false, held: false };
            self.connections.insert(connection, open);
        } else {
            self.effects.push_back(Effect::Close { connection });
        }
    }

    /// A client closed its connection, or it broke.
    pub fn handle_closed(&mut self, now: Instant, connection: ConnectionId) {
        self.tick(now);
        if !self.linger(connection) {
            self.forget(connection);
        }
        self.settle();
    }

    /// Whether a closed connection's requests lie unread in its socket: they are worked on once the node reads again.
    fn linger(&mut self, connection: ConnectionId) -> bool {
        let Some(open) = self.connections.get_mut(&connection) else {
            return false;
        };
        let hangs = self.nodes.get(&open.node).is_some_and(|node| node.hangs.is_some());
        let unread = hangs || open.held || matches!(open.waiting, Some(Waiting::Muted(_)));
        if open.queue.is_empty() || !unread {
            return false;
        }
        open.gone = true;
        match open.waiting.take() {
            Some(Waiting::Muted(until)) => open.waiting = Some(Waiting::Muted(until)),
            Some(Waiting::Group(_, ticket)) => {
                self.tickets.remove(&ticket);
                self.groups.forget(ticket);
            }
            _ => {}
        }
        true
    }

    /// A request frame without its length. Frames of a connection that is not open are dropped.
    pub fn handle_request(&mut self, now: Instant, connection: ConnectionId, frame: Bytes) {
        self.tick(now);
        if let Some(open) = self.connections.get_mut(&connection).filter(|open| !open.gone) {
            open.queue.push_back(frame);
            self.enqueue(connection);
        }
        self.settle();
    }

    /// Time passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.tick(now);
        self.groups.handle_timeout(now, self.clock.wall_ms);
        if self.next_sweep <= now {
            self.next_sweep = now + sweep_interval(&self.configs);
            self.sweep();
        }
        self.abort_overdue_transactions();
        self.wake();
        self.settle();
    }

    /// The next thing to do.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When something happens even if nobody asks.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let waiting = self.connections.values().filter_map(|connection| match connection.waiting.as_ref()? {
            Waiting::Fetch(waiting) => Some(waiting.deadline),
            Waiting::Acks(waiting) => Some(waiting.deadline),
            Waiting::Group(..) | Waiting::Held(_) => None,
            Waiting::Delay(until, _) | Waiting::Muted(until) => Some(*until),
        });
        waiting.chain(self.groups.poll_timeout()).chain(self.transactions.poll_timeout()).chain([self.next_sweep]).min()
    }

    /// Requests of a connection that have not been answered.
    #[must_use]
    pub fn queued(&self, connection: ConnectionId) -> usize {
        self.connections
            .get(&connection)
            .map_or(0, |connection| connection.queue.len() + usize::from(connection.waiting.is_some()))
    }

    fn tick(&mut self, now: Instant) {
        let since = now.saturating_duration_since(self.started);
        let wall_ms = self.started_wall_ms.saturating_add(i64::try_from(since.as_millis()).unwrap_or(i64::MAX));
        self.clock = Clock { now: now.max(self.clock.now), wall_ms };
    }

    fn forget(&mut self, connection: ConnectionId) {
        self.ready.remove(&connection);
        if let Some(Connection { waiting: Some(Waiting::Group(_, ticket)), .. }) = self.connections.remove(&connection)
        {
            self.tickets.remove(&ticket);
            self.groups.forget(ticket);
        }
    }

    fn close(&mut self, connection: ConnectionId) {
        self.forget(connection);
        self.effects.push_back(Effect::Close { connection });
    }

    /// Works until nothing more can be answered now.
    fn settle(&mut self) {
        loop {
            while let Some((ticket, response)) = self.groups.poll_answer() {
                self.answer_group(ticket, response);
            }
            if std::mem::take(&mut self.is_dirty) {
                self.review_waiting();
            }
            let Some(connection) = self.ready.pop_first() else {
                if self.is_dirty {
                    continue;
                }
                return;
            };
            let Some(frame) = self.connections.get_mut(&connection).and_then(|open| open.queue.pop_front()) else {
                continue;
            };
            self.work_on(connection, frame, true);
        }
    }

    fn work_on(&mut self, connection: ConnectionId, frame: Bytes, may_intercept: bool) {
        let Some(open) = self.connections.get(&connection) else {
            return;
        };
        let node = open.node;
        match self.dispatch(connection, node, frame, may_intercept) {
            Outcome::Answer(answer) => self.send(connection, answer),
            Outcome::Nothing => self.next(connection),
            Outcome::Hangup => self.close(connection),
            Outcome::WaitFetch(waiting) => self.wait(connection, Waiting::Fetch(waiting)),
            Outcome::WaitAcks(waiting) => self.wait(connection, Waiting::Acks(waiting)),
            Outcome::WaitGroup(asked, ticket) => self.wait(connection, Waiting::Group(asked, ticket)),
            Outcome::Delay(until, frame) => self.wait(connection, Waiting::Delay(until, frame)),
        }
    }

    fn wait(&mut self, connection: ConnectionId, waiting: Waiting) {
        if let Some(open) = self.connections.get_mut(&connection) {
            open.waiting = Some(waiting);
        }
    }

    /// The answer goes out; the connection's next request may begin.
    fn send(&mut self, connection: ConnectionId, answer: Answer) {
        let node = self.connections.get(&connection).map(|open| open.node);
        if node.and_then(|node| self.nodes.get(&node)).is_some_and(|node| node.hangs.is_some()) {
            self.wait(connection, Waiting::Held(answer));
            return;
        }
        let mute = answer.mute;
        match answer.into_frame() {
            Some(frame) => {
                self.effects.push_back(Effect::Send { connection, frame });
                if mute.is_zero() {
                    self.next(connection);
                } else {
                    self.wait(connection, Waiting::Muted(self.clock.now + mute));
                }
            }
            // A field that the asked version lacks: a fault of this program, seen as one of the broker's.
            None => self.close(connection),
        }
    }

    fn next(&mut self, connection: ConnectionId) {
        if let Some(open) = self.connections.get_mut(&connection) {
            open.waiting = None;
            if open.gone && open.queue.is_empty() {
                self.connections.remove(&connection);
            } else {
                self.enqueue(connection);
            }
        }
    }

    /// The connection's next request may begin, if there is one and the node reads it.
    fn enqueue(&mut self, connection: ConnectionId) {
        let Some(open) = self.connections.get(&connection) else {
            return;
        };
        let hangs = self.nodes.get(&open.node).is_some_and(|node| node.hangs == Some(Hang::ReadsNothing));
        if open.waiting.is_none() && !open.queue.is_empty() && !open.held && !hangs {
            self.ready.insert(connection);
        }
    }

    /// Looks whether waiting fetches and produces can be answered.
    fn review_waiting(&mut self) {
        let waiting: Vec<ConnectionId> = self
            .connections
            .iter()
            .filter(|(_, open)| matches!(open.waiting, Some(Waiting::Fetch(_) | Waiting::Acks(_))))
            .map(|(connection, _)| *connection)
            .collect();
        for connection in waiting {
            let Some(open) = self.connections.get_mut(&connection) else {
                continue;
            };
            match open.waiting.take() {
                Some(Waiting::Fetch(waiting)) => match self.finish_fetch(waiting, false) {
                    Ok(answer) => self.send(connection, answer),
                    Err(waiting) => self.wait(connection, Waiting::Fetch(waiting)),
                },
                Some(Waiting::Acks(waiting)) => match self.finish_acks(waiting, false) {
                    Ok(answer) => self.send(connection, answer),
                    Err(waiting) => self.wait(connection, Waiting::Acks(waiting)),
                },
                other => open.waiting = other,
            }
        }
    }

    /// Answers those whose time is over.
    fn wake(&mut self) {
        let now = self.clock.now;
        let due: Vec<ConnectionId> = self
            .connections
            .iter()
            .filter(|(_, open)| match &open.waiting {
                Some(Waiting::Fetch(waiting)) => waiting.deadline <= now,
                Some(Waiting::Acks(waiting)) => waiting.deadline <= now,
                Some(Waiting::Delay(until, _) | Waiting::Muted(until)) => *until <= now,
                Some(Waiting::Group(..) | Waiting::Held(_)) | None => false,
            })
            .map(|(connection, _)| *connection)
            .collect();
        for connection in due {
            let taken = self.connections.get_mut(&connection).and_then(|open| open.waiting.take());
            match taken {
                Some(Waiting::Fetch(waiting)) => {
                    if let Ok(answer) = self.finish_fetch(waiting, true) {
                        self.send(connection, answer);
                    }
                }
                Some(Waiting::Acks(waiting)) => {
                    if let Ok(answer) = self.finish_acks(waiting, true) {
                        self.send(connection, answer);
                    }
                }
                Some(Waiting::Delay(_, frame)) => self.work_on(connection, frame, false),
                Some(Waiting::Muted(_)) => self.next(connection),
                Some(Waiting::Group(..) | Waiting::Held(_)) | None => {}
            }
        }
    }

    /// Producers that wrote long ago are forgotten.
    fn sweep(&mut self) {
        let (wall_ms, expiration_ms) = (self.clock.wall_ms, self.producer_expiration_ms());
        for partition in self.topics.partitions_mut() {
            partition.log.expire_producers(wall_ms, expiration_ms);
        }
    }

    fn producer_expiration_ms(&self) -> i64 {
        // 2.8.2 uses the expiration of transactional ids for it.
        let fallback = self.configs.number("transactional.id.expiration.ms", 604_800_000);
        self.configs.number("producer.id.expiration.ms", fallback)
    }

    fn live(&self) -> BTreeSet<i32> {
        self.nodes.iter().filter(|(_, node)| node.is_up).map(|(id, _)| *id).collect()
    }

    fn controller(&self) -> i32 {
        self.live().first().copied().unwrap_or(-1)
    }

    /// The node that coordinates a group or a transactional id.
    /// The node that coordinates a group or a transactional id.
    #[must_use]
    pub fn coordinator_of(&self, key: &str) -> Option<i32> {
        let live: Vec<i32> = self.live().into_iter().collect();
        let partitions = self.configs.number("offsets.topic.num.partitions", 50).clamp(1, 1000);
        // Java's String.hashCode, as brokers use it.
        let hash = key.encode_utf16().fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
        let partition = i64::from(hash & i32::MAX) % partitions;
        let nodes = i64::try_from(self.nodes.len()).unwrap_or(1).max(1);
        let preferred = i32::try_from(partition % nodes).unwrap_or(0).saturating_add(1);
        live.iter().copied().find(|node| *node >= preferred).or_else(|| live.first().copied())
    }
}

fn sweep_interval(configs: &BrokerConfigs) -> Duration {
    let ms = configs.number("producer.id.expiration.check.interval.ms", 600_000);
    Duration::from_millis(u64::try_from(ms).unwrap_or(0).max(1))
}

fn group_settings(configs: &BrokerConfigs) -> GroupSettings {
    let ms = |name: &str, otherwise| Duration::from_millis(u64::try_from(configs.number(name, otherwise)).unwrap_or(0));
    let characters = configs.number("offset.metadata.max.bytes", 4096);
    GroupSettings {
        initial_rebalance_delay: ms("group.initial.rebalance.delay.ms", 3000),
        session_timeout_min: ms("group.min.session.timeout.ms", 6000),
        session_timeout_max: ms("group.max.session.timeout.ms", 1_800_000),
        metadata_characters_max: usize::try_from(characters).unwrap_or(0),
        offsets_retention: ms("offsets.retention.minutes", 10_080).saturating_mul(60_000),
        retention_check_interval: ms("offsets.retention.check.interval.ms", 600_000),
        ..GroupSettings::default()
    }
}

#[cfg(test)]
mod tests;
