//! One lane: full requests from the queues of its partitions, a few in flight, answers handed back in order.
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

use kafka_protocol::messages::ProduceRequest;
use tokio::{sync::Notify, time::Instant};
use tracing::{debug, info};

use super::waiting::{Batches, Waiting};
use crate::{
    backoff::{self, Backoff},
    client::produce::{ProduceBuilder, SealedBatch, VERSION_MAX},
    mirror::{
        budget::Account,
        partition::ProduceOutcome,
        report::CopyId,
        shard::{Moment, Shard},
    },
    net::Connection,
    protocol::{BrokerId, ProduceResponse, ProducedPartition, TopicName},
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
/// An answer that takes longer holds up partitions that have no part in it: the broker waits for the replicas of one of
/// them, or does not answer at all. The connection is then given up. What was in flight is asked for; whatever waits for
/// replicas waits there, alone, and the others go on. Doubled each time, up to the request timeout, for where everything
/// is slow it helps nobody; back to the first after [`CALM`].
const MUTED_PATIENCE: Duration = Duration::from_secs(2);
const CALM: Duration = Duration::from_secs(60);
/// How often a lane that waits for an answer looks how long it has waited.
const WATCH_PAUSE: Duration = Duration::from_millis(500);
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
    /// Partitions with something to send, and the size of what each has next.
    ready: RefCell<VecDeque<(CopyId, usize)>>,
    /// Sum of these sizes.
    ready_bytes: Cell<usize>,
    pinned: RefCell<BTreeSet<CopyId>>,
    gated: RefCell<BTreeSet<CopyId>>,
    notify: Notify,
}

impl Lane {
    pub(crate) fn new(key: LaneKey, account: Rc<Account>) -> Self {
        Self {
            key,
            account,
            ready: RefCell::default(),
            ready_bytes: Cell::new(0),
            pinned: RefCell::default(),
            gated: RefCell::default(),
            notify: Notify::new(),
        }
    }

    /// A partition has something to send.
    pub(crate) fn push(&self, copy: CopyId, bytes: usize) {
        self.ready.borrow_mut().push_back((copy, bytes));
        self.ready_bytes.set(self.ready_bytes.get() + bytes);
        self.notify.notify_one();
    }

    pub(crate) fn pin(&self, copy: CopyId) {
        self.pinned.borrow_mut().insert(copy);
    }

    pub(crate) fn remove(&self, copy: CopyId) {
        self.pinned.borrow_mut().remove(&copy);
        self.gated.borrow_mut().remove(&copy);
        let mut ready = self.ready.borrow_mut();
        ready.retain(|(ready, _)| *ready != copy);
        self.ready_bytes.set(ready.iter().map(|(_, bytes)| bytes).sum());
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

/// When a lane has waited long enough for the next answer.
struct Patience {
    /// The last answer, or the request that nothing was in flight before.
    since: Instant,
    /// About the longest wait of late that ended with an answer: a slow link is not a broker that hangs.
    usual: Duration,
    given_up: u32,
    given_up_at: Option<Instant>,
}

impl Patience {
    fn new(now: Instant) -> Self {
        Self { since: now, usual: Duration::ZERO, given_up: 0, given_up_at: None }
    }

    fn answered(&mut self, now: Instant) {
        self.usual = now.duration_since(self.since).max(self.usual - self.usual / 64);
        self.since = now;
    }

    /// Whether to give up now; then the next time takes longer.
    fn is_over(&mut self, now: Instant, max: Duration) -> bool {
        if self.given_up_at.is_some_and(|at| now.duration_since(at) > CALM) {
            self.given_up = 0;
        }
        let patience = (MUTED_PATIENCE * (1 << self.given_up.min(8))).max(self.usual * 4);
        let over = patience < max && now.duration_since(self.since) >= patience;
        if over {
            self.given_up += 1;
            self.given_up_at = Some(now);
        }
        over
    }
}

/// Sends until the shard stops and nothing is in flight.
pub(crate) async fn run(shard: Rc<Shard>, lane: Rc<Lane>) {
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1), backoff::entropy());
    let mut link: Option<(Connection, i16)> = None;
    let mut in_flight: VecDeque<InFlight> = VecDeque::new();
    let mut patience = Patience::new(Instant::now());
    let mut watch = pin!(tokio::time::sleep(WATCH_PAUSE));
    loop {
        if shard.stop.is_cancelled() && in_flight.is_empty() {
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
        let mut lapsed = false;
        if let Some((connection, version)) = &link {
            while in_flight.len() < REQUESTS_MAX && !shard.stop.is_cancelled() {
                if !shard.lease.allows(Instant::now()) {
                    lapsed = true;
                    break;
                }
                let worth = usize::try_from(shard.produce.request_bytes_max / 2).unwrap_or(usize::MAX);
                if in_flight.len() >= EAGER_REQUESTS && lane.ready_bytes.get() < worth {
                    break;
                }
                let Some((builder, batches)) = collect(&shard, &lane) else {
                    break;
                };
                let (request, sealed) = builder.finish(shard.produce.request_timeout);
                let timeout = shard.produce.request_timeout + ANSWER_SLACK;
                match connection.begin(*version, &request, sealed, ANSWER_MAX, timeout) {
                    Ok(answer) => {
                        if in_flight.is_empty() {
                            patience.since = Instant::now();
                        }
                        in_flight.push_back(InFlight { answer, batches });
                    }
                    Err(error) => {
                        info!(broker_id = lane.key.broker.0, %error, "produce request was not sent");
                        settle_unknown(&shard, batches);
                        break;
                    }
                }
            }
        }
        match in_flight.front_mut() {
            Some(first) => tokio::select! {
                biased;
                result = &mut first.answer => {
                    let batches = in_flight.pop_front().map(|first| first.batches).unwrap_or_default();
                    let failed = match result {
                        Ok(reply) => match ProduceResponse::decode(reply.body, reply.version) {
                            Ok(answer) => {
                                patience.answered(Instant::now());
                                handle(&shard, &lane, answer, batches);
                                None
                            }
                            Err(error) => Some((error.to_string(), batches)),
                        },
                        Err(error) => Some((error.to_string(), batches)),
                    };
                    if let Some((error, batches)) = failed {
                        info!(broker_id = lane.key.broker.0, error, "produce request without an answer");
                        settle_unknown(&shard, batches);
                        // What was behind it on this connection has no answer either.
                        link = None;
                        hang_up(&shard, &lane, &mut in_flight);
                    }
                    shard.memory_returned(&lane);
                }
                () = lane.notify.notified() => {}
                () = &mut watch => {
                    let now = Instant::now();
                    watch.as_mut().reset(now + WATCH_PAUSE);
                    let shared = lane.pinned.borrow().len() > 1;
                    if shared && patience.is_over(now, shard.produce.request_timeout) {
                        info!(broker_id = lane.key.broker.0, lane = lane.key.index, "produce requests wait too long");
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
    let endpoint = shard
        .target()
        .endpoint(broker)
        .cloned()
        .ok_or_else(|| format!("target broker {} is not part of the cluster just now", broker.0))?;
    let (connection, _) =
        shard.target_dialer.dial(&endpoint.host, endpoint.port).await.map_err(|error| error.to_string())?;
    let version = connection.negotiate::<ProduceRequest>(VERSION_MAX).map_err(|error| error.to_string())?;
    debug!(broker_id = broker.0, lane = lane.key.index, version, "produce connection open");
    Ok((connection, version))
}

/// Gives up what is in flight on a connection that was dropped.
fn hang_up(shard: &Rc<Shard>, lane: &Lane, in_flight: &mut VecDeque<InFlight>) {
    for behind in in_flight.drain(..) {
        settle_unknown(shard, behind.batches);
    }
    lost(shard, lane);
    shard.refresh_target();
}

/// The connection is gone: every partition of the lane begins anew with a window of one.
fn lost(shard: &Rc<Shard>, lane: &Lane) {
    let pinned: Vec<CopyId> = lane.pinned.borrow().iter().copied().collect();
    for copy in pinned {
        shard.with(copy, |entry, now| entry.machine.handle_lane_lost(now));
    }
}

/// Fills a request: one batch of each ready partition, in turn, up to the limit; a larger batch goes alone.
fn collect(shard: &Rc<Shard>, lane: &Lane) -> Option<(ProduceBuilder, Batches)> {
    let limit = usize::try_from(shard.produce.request_bytes_max).unwrap_or(usize::MAX);
    let at = Moment::read();
    let mut builder = ProduceBuilder::default();
    let mut batches = Vec::new();
    // Each partition at most once: the broker keeps only the last of two (`batch-forwarding.md` 0.1).
    let ready = lane.ready.borrow().len();
    for _ in 0..ready {
        let Some((copy, bytes)) = lane.ready.borrow_mut().pop_front() else { break };
        lane.ready_bytes.set(lane.ready_bytes.get().saturating_sub(bytes));
        // What it wants afterwards: another place in the queue behind this request, or more to fetch.
        let full = shard.with_at(at, copy, |entry, _| {
            entry.ready = false;
            if entry.lane.as_ref().map(|own| own.key) != Some(lane.key) {
                return false;
            }
            if !builder.is_empty() && builder.bytes() + entry.machine.next_batch_bytes() > limit {
                entry.ready = true;
                lane.ready.borrow_mut().push_front((copy, bytes));
                lane.ready_bytes.set(lane.ready_bytes.get() + bytes);
                return true;
            }
            if let Some(outbound) = entry.machine.take_batch(at.wall_ms) {
                let target = &entry.machine.spec().target;
                builder.push(target, SealedBatch { head: outbound.head, batch: outbound.batch });
                batches.push((target.clone(), copy, outbound.ticket));
            }
            false
        });
        if full == Some(true) {
            break;
        }
    }
    if builder.is_empty() { None } else { Some((builder, batches)) }
}

fn settle_unknown(shard: &Rc<Shard>, batches: Batches) {
    for (_, copy, ticket) in batches {
        shard.with(copy, |entry, now| entry.machine.handle_produced(now, ticket, ProduceOutcome::Unknown));
    }
}

fn handle(shard: &Rc<Shard>, lane: &Lane, answer: ProduceResponse, batches: Batches) {
    let mut refresh = false;
    let at = Moment::read();
    let mut waiting = Waiting::new(batches);
    for topic in answer.topics {
        let Some(name) = topic.name else { continue };
        for partition in topic.partitions {
            let Some((copy, ticket)) = waiting.take(&name, partition.partition) else { continue };
            let outcome = if partition.error_code.is_none() {
                ProduceOutcome::Stored {
                    base_offset: partition.base_offset,
                    already: partition.log_append_time_ms >= 0,
                }
            } else {
                refused(lane, &name, partition)
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

fn refused(lane: &Lane, topic: &TopicName, partition: ProducedPartition) -> ProduceOutcome {
    info!(
        topic = topic.as_str(),
        partition = partition.partition.0,
        lane = lane.key.index,
        error = %partition.error_code,
        message = partition.error_message.as_deref().unwrap_or_default(),
        "target refused a batch"
    );
    let detail = partition.record_errors.iter().find_map(|(_, message)| message.clone());
    let message = match (partition.error_message, detail) {
        (Some(message), Some(detail)) => Some(format!("{message}; {detail}")),
        (message, detail) => message.or(detail),
    };
    ProduceOutcome::Failed { code: partition.error_code, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Duration = Duration::from_secs(30);

    #[test]
    fn a_lane_gives_up_later_each_time_until_it_was_calm() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut patience = Patience::new(start);
        let mut waited = Vec::new();
        for _ in 0..3 {
            let given_up = (1..).find(|seconds| patience.is_over(at(*seconds), MAX)).unwrap();
            waited.push(given_up);
        }
        assert_eq!(waited, [2, 4, 8]);
        assert!(patience.is_over(at(16), MAX));
        assert!(!patience.is_over(at(46), MAX), "the requests' own timeout decides from here on");
        patience.since = at(100);
        assert!(patience.is_over(at(102), MAX), "calm since");
    }

    #[test]
    fn a_slow_link_is_not_given_up() {
        let start = Instant::now();
        let mut patience = Patience::new(start);
        patience.answered(start + Duration::from_secs(3));
        assert!(!patience.is_over(start + Duration::from_secs(3 + 11), MAX));
        assert!(patience.is_over(start + Duration::from_secs(3 + 12), MAX));
    }
}
