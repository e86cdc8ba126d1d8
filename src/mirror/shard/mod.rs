//! One flow's partitions on one worker thread, and what they want of fetchers, lanes and look-ups.
//!
//! Everything here lives on one thread; nothing is locked or shared on the path of a batch. After every event the
//! partition's getters are read in one place, [`Shard::touch`], which queues it where it wants something. No borrow is
//! held over an await.

mod entry;
mod place;
mod reach;
mod tasks;
mod watching;

use std::{
    cell::RefCell,
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, BinaryHeap},
    hint::black_box,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{Notify, mpsc, watch},
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, info_span};

pub(crate) use self::entry::Entry;
use super::{
    budget::Account,
    decision::Decision,
    gauges::Gauges,
    lookup::Lookups,
    partition::{PartitionMachine, PartitionSettings, StopReason},
    reach::{Reach, Side},
    report::{Command, CopyId, CopyMap, LeaseClock, Report},
    settings::{FetchSettings, ProduceSettings},
    sink::{Lane, LaneKey},
    source::Fetcher,
    watchdog::Watch,
};
use crate::{
    backoff,
    client::{ClusterSnapshot, fetch_session::Want},
    net::Dialer,
    protocol::{BrokerId, LeaderEpoch, PartitionMap, TopicPartition},
    rare::Rare,
    wall_clock,
};

/// What a shard is told when it is made.
pub(crate) struct ShardConfig {
    pub(crate) flow: Arc<str>,
    pub(crate) partition: PartitionSettings,
    pub(crate) fetch: FetchSettings,
    pub(crate) produce: ProduceSettings,
    pub(crate) client_rack: Option<String>,
    pub(crate) anchor_interval: Duration,
    pub(crate) anchor_bytes: u64,
    pub(crate) memory_bytes: usize,
    pub(crate) request_timeout: Duration,
    pub(crate) idle_max: Duration,
    pub(crate) source_dialer: Dialer,
    pub(crate) target_dialer: Dialer,
    pub(crate) source: watch::Receiver<Arc<ClusterSnapshot>>,
    pub(crate) target: watch::Receiver<Arc<ClusterSnapshot>>,
    pub(crate) lease: LeaseClock,
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) reports: mpsc::Sender<Report>,
    /// See [`Shard::not_moving`].
    pub(crate) not_moving: Duration,
    pub(crate) gauges: Arc<Gauges>,
    pub(crate) stop: CancellationToken,
}

/// When something happens, by both clocks. Read once for all that one answer brings: the clocks would cost as much as
/// the rest of a small batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) now: Instant,
    /// The time of day in milliseconds.
    pub(crate) wall_ms: i64,
}

impl Moment {
    pub(crate) fn read() -> Self {
        Self { now: Instant::now(), wall_ms: wall_clock::now_ms() }
    }
}

/// Partitions that are warmed together: so many lines stay in the first cache until their turn comes.
pub(crate) const WARM: usize = 16;

pub(crate) struct Shard {
    pub(crate) fetch: FetchSettings,
    pub(crate) produce: ProduceSettings,
    pub(crate) client_rack: Option<String>,
    pub(crate) read_committed: bool,
    pub(crate) request_timeout: Duration,
    pub(crate) idle_max: Duration,
    pub(crate) source_dialer: Dialer,
    pub(crate) target_dialer: Dialer,
    pub(crate) budget: Rc<Account>,
    pub(crate) lease: LeaseClock,
    /// Fetchers that wait for memory.
    pub(crate) memory: Notify,
    pub(crate) lookups: Lookups,
    pub(crate) stop: CancellationToken,
    pub(crate) gauges: Arc<Gauges>,
    /// Log lines that may come by the thousand.
    pub(crate) rare: Rare,
    /// After so long without a step, a partition that should copy is named.
    not_moving: Duration,
    /// Partitions that the watchdog looks at.
    watched: RefCell<BTreeSet<CopyId>>,
    settings: Rc<PartitionSettings>,
    lane_share: usize,
    anchor_interval: Duration,
    anchor_bytes: u64,
    source: RefCell<Arc<ClusterSnapshot>>,
    target: RefCell<Arc<ClusterSnapshot>>,
    /// Boxed, so that a look-up passes over keys only.
    entries: RefCell<CopyMap<Box<Entry>>>,
    by_source: RefCell<PartitionMap<CopyId>>,
    fetchers: RefCell<BTreeMap<BrokerId, Rc<Fetcher>>>,
    lanes: RefCell<BTreeMap<LaneKey, Rc<Lane>>>,
    reaches: RefCell<BTreeMap<(Side, BrokerId), Rc<Reach>>>,
    timers: RefCell<BinaryHeap<Reverse<(Instant, CopyId)>>>,
    timer_moved: Notify,
    anchor_due: RefCell<BTreeSet<CopyId>>,
    anchor_now: Notify,
    changed: RefCell<BTreeSet<CopyId>>,
    reports: mpsc::Sender<Report>,
    tasks: RefCell<JoinSet<()>>,
    /// Look-ups or answers changed the set of revoked partitions.
    drained: Notify,
}

impl Shard {
    /// Runs until `stop` is cancelled and everything in flight has settled. Must run inside a `LocalSet`.
    pub(crate) async fn run(config: ShardConfig) {
        let span = info_span!("shard", flow = %config.flow);
        Self::run_inner(config).instrument(span).await;
    }

    async fn run_inner(mut config: ShardConfig) {
        let shard = Rc::new(Self {
            read_committed: config.partition.shape.read_committed,
            settings: Rc::new(config.partition),
            fetch: config.fetch,
            produce: config.produce,
            client_rack: config.client_rack,
            request_timeout: config.request_timeout,
            idle_max: config.idle_max,
            source_dialer: config.source_dialer,
            target_dialer: config.target_dialer,
            budget: Account::of_worker(config.memory_bytes),
            lease: config.lease,
            memory: Notify::new(),
            lookups: Lookups::default(),
            stop: config.stop,
            gauges: config.gauges,
            rare: Rare::default(),
            not_moving: config.not_moving,
            watched: RefCell::default(),
            // A broker that does not answer must not hold more than half, whatever the number of its lanes.
            lane_share: config.memory_bytes / (2 * usize::from(config.produce.lanes_per_broker.max(1))),
            anchor_interval: config.anchor_interval,
            anchor_bytes: config.anchor_bytes,
            source: RefCell::new(config.source.borrow_and_update().clone()),
            target: RefCell::new(config.target.borrow_and_update().clone()),
            entries: RefCell::default(),
            by_source: RefCell::default(),
            fetchers: RefCell::default(),
            lanes: RefCell::default(),
            reaches: RefCell::default(),
            timers: RefCell::default(),
            timer_moved: Notify::new(),
            anchor_due: RefCell::default(),
            anchor_now: Notify::new(),
            changed: RefCell::default(),
            reports: config.reports,
            tasks: RefCell::default(),
            drained: Notify::new(),
        });
        shard.spawn(shard.clone().timers());
        shard.spawn(shard.clone().reporting());
        shard.spawn(shard.clone().anchoring());
        shard.spawn(super::lookup::run(shard.clone()));
        shard.spawn(super::lookup::watch_ends(shard.clone()));
        loop {
            tokio::select! {
                biased;
                command = config.commands.recv() => match command {
                    Some(command) => shard.command(command),
                    // The control thread is gone; it has seen to the draining before.
                    None => break,
                },
                changed = config.source.changed() => {
                    if changed.is_err() { break; }
                    *shard.source.borrow_mut() = config.source.borrow_and_update().clone();
                    shard.clusters_changed();
                }
                changed = config.target.changed() => {
                    if changed.is_err() { break; }
                    *shard.target.borrow_mut() = config.target.borrow_and_update().clone();
                    shard.clusters_changed();
                }
            }
        }
        shard.stop.cancel();
        let mut tasks = std::mem::take(&mut *shard.tasks.borrow_mut());
        while tasks.join_next().await.is_some() {}
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let span = tracing::Span::current();
        let mut tasks = self.tasks.borrow_mut();
        // Finished fetchers and lanes of brokers that are gone.
        while tasks.try_join_next().is_some() {}
        tasks.spawn_local(task.instrument(span));
    }

    fn command(self: &Rc<Self>, command: Command) {
        let now = Instant::now();
        match command {
            Command::Assign(partitions) => {
                let first_bytes = i32::try_from(self.fetch.partition_bytes_max).unwrap_or(i32::MAX);
                let mut added = Vec::new();
                for (copy, spec, reason) in partitions {
                    let source = spec.source.clone();
                    // A former life that is still settling must not share the session with this one.
                    if let Some(former) = self.copy_of(&source) {
                        self.forget(former);
                    }
                    let seed = backoff::entropy();
                    let machine = match reason {
                        Some(StopReason::TargetGone) => {
                            // As if it had gone under our eyes: there is a position to be recorded with it.
                            let source_id = Some(spec.source_topic_id);
                            let mut machine =
                                PartitionMachine::new(self.settings.clone(), spec, first_bytes, seed, now);
                            machine.handle_topics(now, source_id, None);
                            machine
                        }
                        Some(reason) => PartitionMachine::stopped(self.settings.clone(), spec, reason, now),
                        None => PartitionMachine::new(self.settings.clone(), spec, first_bytes, seed, now),
                    };
                    let watch = Watch::new(now, wall_clock::now_ms(), machine.stood_for());
                    let entry = Entry {
                        watch,
                        record_due: false,
                        machine,
                        source_epoch: LeaderEpoch::NONE,
                        target_epoch: LeaderEpoch::NONE,
                        fetcher: None,
                        replica: None,
                        lane: None,
                        misplaced: true,
                        ready: false,
                        next_request: 0,
                        anchor_pending: false,
                        anchor_listed: false,
                        change_listed: false,
                        told: (None, false),
                        backlogged: false,
                        batch_bytes: 0,
                        timer: None,
                        shown: None,
                    };
                    self.entries.borrow_mut().insert(copy, Box::new(entry));
                    self.by_source.borrow_mut().insert(source, copy);
                    added.push(copy);
                }
                for copy in added {
                    self.touch(copy);
                }
            }
            Command::Revoke { copies, done } => {
                for copy in &copies {
                    self.with(*copy, |entry, _| entry.machine.drain());
                }
                self.spawn(self.clone().revoke(copies, done));
            }
            Command::Decide { decisions, done } => {
                let decide = |(copy, decision): (CopyId, Decision)| {
                    let taken = self.with(copy, |entry, now| entry.machine.decide(now, &decision));
                    (taken == Some(true)).then_some(copy)
                };
                let _ = done.send(decisions.into_iter().filter_map(decide).collect());
            }
            Command::Limits(limits) => {
                for (copy, limit) in limits {
                    self.with(copy, |entry, _| entry.machine.handle_limit(limit));
                }
            }
            Command::Anchored(outcomes) => {
                for outcome in outcomes {
                    self.with(outcome.copy, |entry, _| {
                        entry.anchor_pending = false;
                        match outcome.durable {
                            Some((breaks, tail_bytes)) => entry.machine.handle_anchored(breaks, tail_bytes),
                            None => {
                                entry.watch.not_recorded();
                                entry.machine.handle_anchor_failed();
                            }
                        }
                    });
                }
                self.drained.notify_waiters();
            }
        }
    }

    /// Waits until nothing of these is in flight and their last anchors are offered, then forgets them.
    async fn revoke(self: Rc<Self>, copies: Vec<CopyId>, done: tokio::sync::oneshot::Sender<()>) {
        loop {
            let drained = self.drained.notified();
            let left = {
                let entries = self.entries.borrow();
                copies.iter().any(|copy| {
                    entries.get(copy).is_some_and(|entry| {
                        !entry.machine.is_drained() || entry.machine.wants_anchor() || entry.anchor_pending
                    })
                })
            };
            if !left {
                break;
            }
            // Anchors that cannot be committed any more must not hold a revocation up for ever: the flow gives up
            // the wait by its own deadline, drops the answer, and the task ends with the shard.
            if done.is_closed() {
                break;
            }
            self.anchor_now.notify_one();
            tokio::select! {
                biased;
                () = drained => {}
                () = tokio::time::sleep(Duration::from_millis(20)) => {}
            }
        }
        for copy in &copies {
            self.forget(*copy);
        }
        // The flow may have given up waiting.
        let _ = done.send(());
    }

    fn forget(&self, copy: CopyId) {
        let Some(entry) = self.entries.borrow_mut().remove(&copy) else {
            return;
        };
        let spec = entry.machine.spec();
        if let Some(fetcher) = &entry.fetcher {
            fetcher.forget(copy, &spec.source, spec.source_topic_id, entry.backlogged);
        }
        if let Some(lane) = &entry.lane {
            lane.remove(copy);
        }
        self.by_source.borrow_mut().remove(&spec.source);
        self.changed.borrow_mut().remove(&copy);
        self.anchor_due.borrow_mut().remove(&copy);
        self.watched.borrow_mut().remove(&copy);
        let lane = entry.lane.clone();
        drop(entry);
        self.memory_freed(lane.as_deref());
    }

    /// Runs `event` on a partition, then does what it wants. `None` if the partition is gone.
    pub(crate) fn with<T>(self: &Rc<Self>, copy: CopyId, event: impl FnOnce(&mut Entry, Instant) -> T) -> Option<T> {
        self.with_at(Moment::read(), copy, event)
    }

    /// As [`Self::with`], at a moment that was read for several partitions.
    pub(crate) fn with_at<T>(
        self: &Rc<Self>,
        at: Moment,
        copy: CopyId,
        event: impl FnOnce(&mut Entry, Instant) -> T,
    ) -> Option<T> {
        let mut entries = self.entries.borrow_mut();
        let entry = entries.get_mut(&copy)?;
        let result = event(entry, at.now);
        self.settle(copy, entry, at);
        Some(result)
    }

    /// Brings partitions that are about to be visited into the cache, all together: the processor waits for memory once
    /// where it would wait for each in turn.
    pub(crate) fn warm(&self, copies: impl Iterator<Item = CopyId> + Clone) {
        let entries = self.entries.borrow();
        let near = copies.clone().filter_map(|copy| entries.get(&copy)).map(|entry| entry.warm()).max();
        // What hangs on them is only found once they are there.
        let far = copies.filter_map(|copy| entries.get(&copy)).map(|entry| entry.machine.warm_in_flight()).max();
        black_box((near, far));
    }

    /// Looks at a partition without changing it.
    pub(crate) fn look<T>(&self, copy: CopyId, look: impl FnOnce(&mut Entry) -> T) -> Option<T> {
        self.entries.borrow_mut().get_mut(&copy).map(|entry| look(entry))
    }

    pub(crate) fn copy_of(&self, source: &TopicPartition) -> Option<CopyId> {
        self.by_source.borrow().get(source).copied()
    }

    /// Reads what a partition wants and queues it there.
    pub(crate) fn touch(self: &Rc<Self>, copy: CopyId) {
        self.with(copy, |_, _| ());
    }

    /// What [`Self::touch`] says; done after every event.
    fn settle(self: &Rc<Self>, copy: CopyId, entry: &mut Entry, at: Moment) {
        let Moment { now, wall_ms } = at;
        let ordinary = entry.is_ordinary();
        if !ordinary {
            self.see_to(copy, entry, now);
        }
        let next = entry.machine.next_batch_bytes();
        if next > 0 {
            entry.batch_bytes = next;
            Self::hand_over(copy, entry, wall_ms);
            if entry.machine.awaits_stragglers() {
                // Only now is it known that the batch is an old one, and when to ask again.
                self.see_to(copy, entry, now);
            }
        }
        self.want_fetch(copy, entry, now);
        if entry.machine.wants_anchor() && !entry.anchor_pending {
            if !entry.anchor_listed {
                entry.anchor_listed = true;
                self.anchor_due.borrow_mut().insert(copy);
            }
            if entry.machine.wants_anchor_now() || entry.machine.tail_bytes() >= self.anchor_bytes {
                self.anchor_now.notify_one();
            }
        }
        if !entry.change_listed {
            entry.change_listed = true;
            self.changed.borrow_mut().insert(copy);
        }
        if !ordinary && entry.machine.is_drained() {
            self.drained.notify_waiters();
        }
        self.memory_freed(entry.lane.as_deref());
    }

    /// Deadlines, places and look-ups of a partition that does not simply copy.
    fn see_to(self: &Rc<Self>, copy: CopyId, entry: &mut Entry, now: Instant) {
        if entry.machine.poll_timeout().is_some_and(|at| at <= now) {
            entry.machine.handle_timeout(now);
        }
        entry.machine.handle_quiet(now);
        if entry.misplaced || entry.replica.is_some() {
            self.place(copy, entry, now);
        }
        if !entry.machine.is_copying()
            && let Some(lane) = &entry.lane
            && let Some(last) = std::mem::take(&mut entry.next_request).checked_sub(1)
            && lane.is_to_be_sent(last)
        {
            lane.hold_back();
        }
        if entry.machine.locate_want(now).is_some() {
            self.lookups.push(copy);
        }
        // A deadline that has passed was dealt with above; one that stays in the past (a look-up that is due) is waited
        // for elsewhere, and arming it would make the timer task spin.
        if let Some(at) = entry.machine.poll_timeout()
            && at > now
            && entry.timer != Some(at)
        {
            entry.timer = Some(at);
            self.timers.borrow_mut().push(Reverse((at, copy)));
            self.timer_moved.notify_one();
        }
    }

    /// Gives what may be sent to the partition's lane.
    fn hand_over(copy: CopyId, entry: &mut Entry, wall_ms: i64) {
        let Some(lane) = &entry.lane else {
            return;
        };
        if lane.is_accepting() {
            let mut from = entry.next_request;
            while let Some(number) = entry.machine.send_next(wall_ms, |target, ticket, head, batch| {
                lane.hand_over(from, target, copy, ticket, head, batch)
            }) {
                from = number + 1;
            }
            entry.next_request = from;
        } else if !entry.ready && entry.machine.can_send(wall_ms) {
            entry.ready = true;
            lane.push(copy);
        }
    }

    /// After something may have let go of frames by other ways than an answer: a queue that was dropped, a partition
    /// that was stopped or forgotten.
    fn memory_freed(&self, lane: Option<&Lane>) {
        if self.budget.take_returned() {
            self.memory.notify_waiters();
        }
        if let Some(lane) = lane.filter(|lane| lane.can_ungate()) {
            // It looks after those that it keeps from fetching.
            lane.wake();
        }
    }

    /// Tells the partition's session what is wanted.
    fn want_fetch(&self, copy: CopyId, entry: &mut Entry, now: Instant) {
        let Some(fetcher) = &entry.fetcher else {
            return;
        };
        let fair = fetcher.fair(&self.fetch, entry.batch_bytes);
        let spec = entry.machine.spec();
        let gated = entry.lane.as_ref().is_some_and(|lane| lane.gate(copy))
            || entry.machine.is_queue_full(fair.queue_bytes_max);
        let want = entry.machine.fetch_want(now, fair.queue_bytes_max);
        let backlogged = (want.is_some() || gated) && entry.machine.has_backlog();
        if backlogged != entry.backlogged {
            entry.backlogged = backlogged;
            fetcher.count_backlogged(backlogged);
        }
        let told = entry.told.0;
        let want = want.filter(|_| !gated).map(|(fetch_offset, last_fetched_epoch, limit)| Want {
            fetch_offset,
            partition_bytes_max: match told {
                // A share that moved is no reason to tell an idle partition anew.
                Some(told) if told.fetch_offset == fetch_offset && fair.allows(limit) => told.partition_bytes_max,
                _ => fair.limit(limit),
            },
            // A follower may know a newer epoch than ours, or an older one: only the leader is asked to check. Nor is a
            // topic without id, which may be created anew with epochs from 0 on.
            current_leader_epoch: if entry.replica.is_some() || entry.machine.is_nameless() {
                LeaderEpoch::NONE
            } else {
                entry.source_epoch
            },
            last_fetched_epoch,
        });
        // An answer changes what the session believes of a partition, but then its offset has moved too, or the
        // partition is held; so what was told last is told again only after a change.
        if entry.told != (want, gated) {
            fetcher.want(copy, &spec.source, spec.source_topic_id, want, gated, now);
            entry.told = (want, gated);
        }
    }
}
