//! One lane: full requests of what its partitions hand over, a few in flight, answers handed back in order.
//!
//! A broker serves one request of a connection at a time, the wait for replicas included, so several requests in
//! flight only hide the round trip; parallelism comes from several lanes. A partition stays on its lane while anything
//! of it is in flight.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeSet, VecDeque},
    pin::pin,
    rc::Rc,
    time::Duration,
};

use kafka_protocol::messages::{ApiKey, ProduceRequest};
use tokio::{sync::Notify, time::Instant};
use tracing::{debug, info, warn};

use super::{
    outbox::Outbox,
    patience::Patience,
    quota::Quota,
    waiting::{Batches, Waiting},
};
use crate::{
    backoff::{self, Backoff},
    client::recovery::{ProduceStep, produce_step},
    mirror::{
        budget::Account,
        partition::{ProduceOutcome, Ticket},
        reach::{Reach, Side},
        report::CopyId,
        shard::{Moment, Shard, WARM},
    },
    net::Connection,
    protocol::{
        BrokerId, FrameSlice, ProduceResponse, ProduceWriter, ProducedPartition, SEALED_HEAD_LEN, TopicName,
        TopicPartition,
    },
    simulation::{self, Planted},
};

/// An answer names each partition once, with at most a few error texts.
const ANSWER_MAX: usize = 16 << 20;
/// Requests in flight on one lane. Bounded by the window of each partition too; this keeps a lane of thousands of
/// partitions from queueing without end in a broker.
const REQUESTS_MAX: usize = 16;
/// With so many in flight, another request waits until it is worth its cost.
const EAGER_REQUESTS: usize = 2;
/// The broker answers within the request's own timeout; the answer may take a little longer to arrive.
const ANSWER_SLACK: Duration = Duration::from_secs(5);
/// How often a lane that waits for an answer looks how long it has waited.
const WATCH_PAUSE: Duration = Duration::from_millis(500);
/// Refusals of one broker that are logged one by one in half a minute.
const REFUSALS_MAX: u32 = 20;
/// How often a lane whose lease has lapsed looks again.
const LAPSED_PAUSE: Duration = Duration::from_millis(20);

/// Which lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct LaneKey {
    pub(crate) broker: BrokerId,
    pub(crate) index: u8,
}

/// The queue of one lane.
pub(crate) struct Lane {
    pub(crate) key: LaneKey,
    /// Memory of frames that its partitions hold.
    pub(crate) account: Rc<Account>,
    /// Partitions that had something to send while nothing could be handed over.
    ready: RefCell<VecDeque<CopyId>>,
    /// What was handed over and is to be sent with the next requests.
    outbox: RefCell<Outbox>,
    /// There is a connection and a lease: whatever is handed over now goes out soon.
    accepting: Cell<bool>,
    /// Some of it may be of partitions that failed meanwhile.
    spoiled: Cell<bool>,
    /// Bytes for which a request is made although others are in flight.
    worth: usize,
    pinned: RefCell<BTreeSet<CopyId>>,
    gated: RefCell<BTreeSet<CopyId>>,
    notify: Notify,
}

impl Lane {
    pub(crate) fn new(key: LaneKey, account: Rc<Account>, request_bytes_max: u32) -> Self {
        let request_bytes_max = usize::try_from(request_bytes_max).unwrap_or(usize::MAX);
        Self {
            key,
            account,
            ready: RefCell::default(),
            outbox: RefCell::new(Outbox::new(request_bytes_max)),
            accepting: Cell::new(false),
            spoiled: Cell::new(false),
            worth: request_bytes_max / 2,
            pinned: RefCell::default(),
            gated: RefCell::default(),
            notify: Notify::new(),
        }
    }

    /// Whether batches can be handed over; if not, a partition that has any says so by [`Self::push`].
    pub(crate) fn is_accepting(&self) -> bool {
        self.accepting.get()
    }

    /// Takes a batch into a request to come, the first one from number `from` on that has room; returns its number.
    pub(crate) fn hand_over(
        &self,
        from: u64,
        target: &TopicPartition,
        copy: CopyId,
        ticket: Ticket,
        head: &[u8; SEALED_HEAD_LEN],
        batch: FrameSlice<'_>,
    ) -> u64 {
        let (number, is_new) = self.outbox.borrow_mut().push(from, target, (copy, ticket), head, batch);
        if is_new {
            self.notify.notify_one();
        }
        number
    }

    /// Whether a request from number `number` on was not sent yet.
    pub(crate) fn is_to_be_sent(&self, number: u64) -> bool {
        number >= self.outbox.borrow().first()
    }

    /// Something that was handed over must not be sent any more: it is looked for before anything else is.
    pub(crate) fn hold_back(&self) {
        self.spoiled.set(true);
        self.notify.notify_one();
    }

    /// A partition has something to send once the lane accepts it.
    pub(crate) fn push(&self, copy: CopyId) {
        self.ready.borrow_mut().push_back(copy);
        self.notify.notify_one();
    }

    pub(crate) fn pin(&self, copy: CopyId) {
        self.pinned.borrow_mut().insert(copy);
    }

    pub(crate) fn remove(&self, copy: CopyId) {
        self.pinned.borrow_mut().remove(&copy);
        self.gated.borrow_mut().remove(&copy);
        self.ready.borrow_mut().retain(|ready| *ready != copy);
        self.hold_back();
    }

    pub(crate) fn wake(&self) {
        self.notify.notify_one();
    }

    /// Whether the lane's share of memory is spent, so that this partition must not fetch. It is remembered and
    /// named by [`Self::ungated`] once there is room.
    pub(crate) fn gate(&self, copy: CopyId) -> bool {
        let spent = self.account.is_spent();
        if spent {
            self.gated.borrow_mut().insert(copy);
        }
        spent
    }

    /// Whether there are partitions that may fetch again.
    pub(crate) fn can_ungate(&self) -> bool {
        !self.account.is_spent() && !self.gated.borrow().is_empty()
    }

    /// Partitions that may fetch again.
    pub(crate) fn ungated(&self) -> BTreeSet<CopyId> {
        if self.account.is_spent() { BTreeSet::new() } else { std::mem::take(&mut *self.gated.borrow_mut()) }
    }
}

struct InFlight {
    answer: crate::net::Answer,
    batches: Batches,
}

/// Sends until the shard stops and nothing is in flight.
pub(crate) async fn run(shard: Rc<Shard>, lane: Rc<Lane>) {
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1), backoff::entropy());
    let mut link: Option<(Connection, i16)> = None;
    let mut in_flight: VecDeque<InFlight> = VecDeque::new();
    let mut patience = Patience::new(Instant::now());
    let mut quota = Quota::default();
    let mut watch = pin!(tokio::time::sleep(WATCH_PAUSE));
    let reach = shard.reach(Side::Target, lane.key.broker);
    loop {
        if shard.stop.is_cancelled() && in_flight.is_empty() {
            close(&shard, &lane);
            return;
        }
        if lane.can_ungate() {
            shard.memory_returned(&lane);
        }
        if let Some((connection, _)) = &link
            && connection.is_ended()
            && in_flight.is_empty()
        {
            link = None;
            lost(&shard, &lane);
        }
        if link.is_none() && !lane.ready.borrow().is_empty() {
            match dial(&shard, &lane).await {
                Ok(open) => {
                    backoff.reset();
                    link = Some(open);
                }
                Err(error) => {
                    let delay = backoff.next_delay();
                    debug!(broker_id = lane.key.broker.0, error, "target broker cannot be reached");
                    shard.refresh_target();
                    tokio::select! {
                        biased;
                        () = shard.stop.cancelled() => return,
                        () = tokio::time::sleep(delay) => {}
                    }
                    continue;
                }
            }
        }
        let open = link.as_ref().filter(|_| !shard.stop.is_cancelled());
        let lapsed = open.is_some() && !shard.lease.allows(Instant::now());
        let now = Instant::now();
        let muted = quota.muted_until(now);
        match open.filter(|_| !lapsed) {
            Some(_) if muted.is_some() => {
                lane.accepting.set(false);
                if lane.spoiled.replace(false) {
                    purge(&shard, &lane);
                }
            }
            Some(link) => {
                let requests_max = if quota.is_near(now) { 1 } else { REQUESTS_MAX };
                send(&shard, &lane, link, requests_max, &mut in_flight, &mut patience, &reach);
            }
            None => close(&shard, &lane),
        }
        let muted_until = muted.unwrap_or(now);
        match in_flight.front_mut() {
            Some(first) => tokio::select! {
                biased;
                result = &mut first.answer => {
                    let batches = in_flight.pop_front().map(|first| first.batches).unwrap_or_default();
                    let failed = match result {
                        Ok(reply) => match ProduceResponse::decode(reply.body, reply.version) {
                            Ok(answer) => {
                                let now = Instant::now();
                                patience.answered(now);
                                reach.answered();
                                let muted = quota.used_up(now, answer.throttle_time_ms);
                                if let (Some(until), Some((connection, _))) = (muted, &link) {
                                    debug!(
                                        broker_id = lane.key.broker.0,
                                        ms = answer.throttle_time_ms,
                                        "throttled by a quota of the target"
                                    );
                                    reach.throttled(now, until);
                                    connection.postpone(until.duration_since(now));
                                    patience.since = until;
                                }
                                if !in_flight.is_empty() {
                                    reach.asked(muted.unwrap_or(now));
                                }
                                handle(&shard, &lane, answer, batches);
                                None
                            }
                            Err(error) => Some((error.to_string(), batches)),
                        },
                        Err(error) => {
                            if !error.is_silence() {
                                reach.hung_up();
                            }
                            Some((error.to_string(), batches))
                        }
                    };
                    if let Some((error, batches)) = failed {
                        shard.count_unanswered(Side::Target);
                        if shard.may_say("produce request without an answer", lane.key.broker.0) {
                            info!(broker_id = lane.key.broker.0, error, "produce request without an answer");
                        }
                        settle_unknown(&shard, batches);
                        // What was behind it on this connection has no answer either.
                        link = None;
                        hang_up(&shard, &lane, &mut in_flight);
                    }
                    shard.memory_returned(&lane);
                }
                () = lane.notify.notified() => {}
                () = tokio::time::sleep_until(muted_until), if muted.is_some() => {}
                () = &mut watch => {
                    let now = Instant::now();
                    watch.as_mut().reset(now + WATCH_PAUSE);
                    let shared = lane.pinned.borrow().len() > 1;
                    if shared && patience.is_over(now, shard.produce.request_timeout) {
                        shard.count_unanswered(Side::Target);
                        if shard.may_say("produce requests wait too long", lane.key.broker.0) {
                            info!(broker_id = lane.key.broker.0, lane = lane.key.index, "produce requests wait too long");
                        }
                        link = None;
                        hang_up(&shard, &lane, &mut in_flight);
                        shard.memory_returned(&lane);
                    }
                }
            },
            None => tokio::select! {
                biased;
                () = shard.stop.cancelled() => {}
                () = lane.notify.notified() => {}
                () = tokio::time::sleep(LAPSED_PAUSE), if lapsed => {}
                () = tokio::time::sleep_until(muted_until), if muted.is_some() => {}
                () = tokio::time::sleep(shard.idle_max), if link.is_some() => {
                    link = None;
                    // The next connection begins with a window of one.
                    lost(&shard, &lane);
                }
            },
        }
    }
}

async fn dial(shard: &Shard, lane: &Lane) -> Result<(Connection, i16), String> {
    let broker = lane.key.broker;
    let (connection, _) = shard.dial(Side::Target, broker).await?;
    let version = connection.negotiate::<ProduceRequest>(ProduceWriter::VERSION_MAX).map_err(|error| {
        let why = error.to_string();
        shard.reach(Side::Target, broker).unknown(&why);
        why
    })?;
    let lease = shard.lease.clone();
    connection.write_while(move |now| lease.allows(now) || simulation::has(Planted::LapsedWrite));
    debug!(broker_id = broker.0, lane = lane.key.index, version, "produce connection open");
    Ok((connection, version))
}

/// Gives up what is in flight on a connection that was dropped.
fn hang_up(shard: &Rc<Shard>, lane: &Lane, in_flight: &mut VecDeque<InFlight>) {
    close(shard, lane);
    for behind in in_flight.drain(..) {
        settle_unknown(shard, behind.batches);
    }
    lost(shard, lane);
    shard.refresh_target();
}

/// The connection is gone: every partition of the lane begins anew with a window of one.
fn lost(shard: &Rc<Shard>, lane: &Lane) {
    close(shard, lane);
    let pinned: Vec<CopyId> = lane.pinned.borrow().iter().copied().collect();
    for copy in pinned {
        shard.with(copy, |entry, now| entry.machine.handle_lane_lost(now));
    }
}

/// Lets those hand over that waited for it, and sends what is worth a request.
fn send(
    shard: &Rc<Shard>,
    lane: &Lane,
    (connection, version): &(Connection, i16),
    requests_max: usize,
    in_flight: &mut VecDeque<InFlight>,
    patience: &mut Patience,
    reach: &Reach,
) {
    lane.accepting.set(true);
    lane.outbox.borrow_mut().speak(*version);
    if lane.spoiled.replace(false) {
        purge(shard, lane);
    }
    let waited = std::mem::take(&mut *lane.ready.borrow_mut());
    if !waited.is_empty() {
        let at = Moment::read();
        for copy in waited {
            shard.with_at(at, copy, |entry, _| entry.ready = false);
        }
    }
    while in_flight.len() < requests_max {
        if in_flight.len() >= EAGER_REQUESTS && !lane.outbox.borrow().is_worth(lane.worth) {
            return;
        }
        // The caller asked before the first of them.
        if !shard.lease.allows(Instant::now()) {
            lane.wake();
            return;
        }
        let Some(filling) = lane.outbox.borrow_mut().pop() else {
            return;
        };
        let wait = shard.produce.request_timeout;
        let wait_ms = i32::try_from(wait.as_millis()).unwrap_or(i32::MAX);
        let encode = |id, client_id: &str| filling.writer.finish(id, client_id, wait_ms);
        match connection.begin_encoded(ApiKey::Produce, *version, ANSWER_MAX, wait + ANSWER_SLACK, encode) {
            Ok(answer) => {
                if in_flight.is_empty() {
                    patience.since = Instant::now();
                    reach.asked(patience.since);
                }
                shard.gauges.requests.of(Side::Target).count();
                in_flight.push_back(InFlight { answer, batches: filling.batches });
            }
            Err(error) => {
                if shard.may_say("produce request was not sent", lane.key.broker.0) {
                    info!(broker_id = lane.key.broker.0, %error, "produce request was not sent");
                }
                settle_unknown(shard, filling.batches);
                // Whether the connection is at its end is seen in the next turn.
                lane.wake();
                return;
            }
        }
    }
}

/// (D) What was handed over behind a batch that failed must not be sent before the target was asked.
fn purge(shard: &Rc<Shard>, lane: &Lane) {
    let is_due = |copy, ticket| shard.look(copy, |entry| entry.machine.is_to_send(ticket)).unwrap_or(false);
    let removed = lane.outbox.borrow_mut().purge(is_due);
    for (copy, ticket) in removed {
        shard.with(copy, |entry, now| entry.machine.handle_produced(now, ticket, ProduceOutcome::Unknown));
    }
}

/// Accepts nothing until further notice. What was handed over is not sent any more, as far as anybody knows.
fn close(shard: &Rc<Shard>, lane: &Lane) {
    lane.accepting.set(false);
    let unsent: Vec<Batches> = lane.outbox.borrow_mut().clear().map(|filling| filling.batches).collect();
    for batches in unsent {
        settle_unknown(shard, batches);
    }
}

fn settle_unknown(shard: &Rc<Shard>, batches: Batches) {
    for (copy, ticket) in batches.iter() {
        shard.with(copy, |entry, now| entry.machine.handle_produced(now, ticket, ProduceOutcome::Unknown));
    }
}

fn handle(shard: &Rc<Shard>, lane: &Lane, answer: ProduceResponse, batches: Batches) {
    let mut refresh = false;
    let at = Moment::read();
    let mut waiting = Waiting::new(batches);
    for topic in answer.topics {
        let Some(name) = topic.name else { continue };
        for (index, partition) in topic.partitions.into_iter().enumerate() {
            if index % WARM == 0 {
                shard.warm(waiting.next(WARM));
            }
            let Some((copy, ticket)) = waiting.take(&name, partition.partition) else { continue };
            let outcome = if partition.error_code.is_none() {
                ProduceOutcome::Stored {
                    base_offset: partition.base_offset,
                    already: partition.log_append_time_ms >= 0,
                }
            } else {
                refused(shard, lane, &name, partition)
            };
            let step = shard.with_at(at, copy, |entry, now| entry.machine.handle_produced(now, ticket, outcome));
            refresh |= step.unwrap_or(false);
        }
    }
    // A partition that the answer does not name: nobody knows.
    settle_unknown(shard, waiting.rest());
    if refresh {
        shard.refresh_target();
    }
}

fn refused(shard: &Shard, lane: &Lane, topic: &TopicName, partition: ProducedPartition) -> ProduceOutcome {
    let message = partition.error_message.as_deref().unwrap_or_default();
    let (name, number, error) = (topic.as_str(), partition.partition.0, partition.error_code);
    shard.gauges.refused_batches.count();
    let (now, broker_id) = (Instant::now(), lane.key.broker.0);
    if produce_step(error) == ProduceStep::SendAgain {
        if shard.rare.allows_some(now, "a batch arrived damaged on the target", broker_id, REFUSALS_MAX) {
            warn!(topic = name, partition = number, broker_id, %error, message, "a batch arrived damaged on the target");
        }
    } else if shard.rare.allows_some(now, "target refused a batch", broker_id, REFUSALS_MAX) {
        info!(topic = name, partition = number, lane = lane.key.index, %error, message, "target refused a batch");
    }
    let detail = partition.record_errors.iter().find_map(|(_, message)| message.clone());
    let message = match (partition.error_message, detail) {
        (Some(message), Some(detail)) => Some(format!("{message}; {detail}")),
        (message, detail) => message.or(detail),
    };
    ProduceOutcome::Failed { code: partition.error_code, message }
}
