//! Reads from one source broker: a session, one request at a time, its answer handed to the partitions.
//!
//! A fetch that waits for data occupies its connection, so it has one of its own. Nothing is decided here that a
//! machine could decide: what is wanted stands in the session, what an answer means is the partition's business.

use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    rc::Rc,
    time::Duration,
};

use kafka_protocol::messages::FetchRequest;
use tokio::{sync::Notify, time::Instant};
use tracing::{debug, info};

use super::fair::Fair;
use crate::{
    backoff::{self, Backoff},
    client::{
        EpochEnd,
        fetch_session::{FIRST_VERSION_WITH_IDS, FetchLimits, FetchSession, Want},
        recovery::ends_session_only,
    },
    mirror::{
        budget::{Charge, FrameHold},
        partition::Fetched,
        reach::Side,
        report::CopyId,
        settings::FetchSettings,
        shard::{Moment, Shard, WARM},
        sink::{Lane, LaneKey, throttled_for},
    },
    net::Connection,
    protocol::{
        BrokerId, FetchResponse, FetchedPartition, FetchedTopic, PartitionId, TopicId, TopicName, TopicPartition,
    },
};

/// Version 18 adds nothing that concerns a consumer.
const VERSION_MAX: i16 = 17;
/// A batch that is larger than every limit still comes whole; nothing above this is believed.
const ANSWER_MAX: usize = 160 << 20;
/// On a long link an answer must hold what the link carries in a round trip, or the link stays empty
/// (`performance-notes.md` 5). Above 16 MiB the working set costs more than it brings.
const RESPONSE_BYTES_CEILING: u32 = 16 << 20;
/// Round trip for which the configured answer size suffices; longer ones get proportionally more.
const SHORT_ROUND_TRIP: Duration = Duration::from_millis(2);
/// An answer that takes this much longer than the broker was allowed to wait makes us ask who leads now.
const OVERDUE: Duration = Duration::from_secs(2);
/// While a partition was taken out because too much of it waits for sending, a fetch that waits for others must come
/// back soon, or the partition would stand after its queue is empty.
const GATED_WAIT_MS_MIN: u128 = 2;

/// The session with one broker.
pub(crate) struct Fetcher {
    pub(crate) broker: BrokerId,
    pub(crate) session: RefCell<FetchSession>,
    notify: Notify,
    /// Partitions that are left out because too much of them waits, since when the oldest is.
    gated: RefCell<BTreeMap<CopyId, Instant>>,
    /// Partitions with more to read, which share each answer.
    backlogged: Cell<usize>,
    /// Bytes of an answer on the link as it is.
    response_bytes_max: Cell<u32>,
    /// Size of a batch seen last, of whatever partition: what to expect of one that was never seen.
    batch_bytes: Cell<usize>,
    /// What was reckoned last, and from what; it is asked for after every event.
    fair: Cell<Option<(u32, usize, usize, Fair)>>,
}

impl Fetcher {
    pub(crate) fn new(broker: BrokerId, response_bytes_max: u32) -> Self {
        Self {
            broker,
            session: RefCell::default(),
            notify: Notify::new(),
            gated: RefCell::default(),
            backlogged: Cell::new(0),
            response_bytes_max: Cell::new(response_bytes_max),
            batch_bytes: Cell::new(0),
            fair: Cell::new(None),
        }
    }

    pub(crate) fn count_backlogged(&self, one_more: bool) {
        let count = self.backlogged.get();
        self.backlogged.set(if one_more { count + 1 } else { count.saturating_sub(1) });
    }

    /// What one partition may take of an answer, and of the room for what waits to be sent, now. `batch_bytes` is the
    /// size of one of its batches, 0 if none was seen.
    pub(crate) fn fair(&self, settings: &FetchSettings, batch_bytes: usize) -> Fair {
        if batch_bytes > 0 {
            self.batch_bytes.set(batch_bytes);
        }
        let (response, sharers, batch) = (self.response_bytes_max.get(), self.backlogged.get(), self.batch_bytes.get());
        match self.fair.get() {
            Some((known_response, known_sharers, known_batch, fair))
                if (known_response, known_sharers, known_batch) == (response, sharers, batch) =>
            {
                fair
            }
            _ => {
                let fair = Fair::new(settings, response, sharers, batch);
                self.fair.set(Some((response, sharers, batch, fair)));
                fair
            }
        }
    }

    /// A partition is not read by this one any more.
    pub(crate) fn forget(&self, copy: CopyId, partition: &TopicPartition, topic_id: TopicId, backlogged: bool) {
        self.gated.borrow_mut().remove(&copy);
        if backlogged {
            self.count_backlogged(false);
        }
        self.session.borrow_mut().want(partition, topic_id, None);
    }

    /// What is wanted of a partition; `gated` says that nothing is because too much of it waits for sending.
    pub(crate) fn want(
        &self,
        copy: CopyId,
        partition: &TopicPartition,
        topic_id: TopicId,
        want: Option<Want>,
        gated: bool,
        now: Instant,
    ) {
        if gated {
            self.gated.borrow_mut().entry(copy).or_insert(now);
        } else if !self.gated.borrow().is_empty() {
            self.gated.borrow_mut().remove(&copy);
        }
        let mut session = self.session.borrow_mut();
        let idle = session.wanted() == 0;
        session.want(partition, topic_id, want);
        if idle && want.is_some() {
            self.notify.notify_one();
        }
    }

    pub(crate) fn wake(&self) {
        self.notify.notify_one();
    }

    /// How long a fetch may wait for data. The longer a partition has been gated, the less it hurries.
    fn wait_ms(&self, max: Duration, now: Instant) -> i32 {
        let max = max.as_millis();
        let gated = self.gated.borrow();
        let wait = gated.values().map(|since| now.duration_since(*since).as_millis() / 2).min();
        let wait = wait.map_or(max, |wait| wait.clamp(GATED_WAIT_MS_MIN.min(max), max));
        i32::try_from(wait).unwrap_or(i32::MAX)
    }
}

struct Link {
    connection: Connection,
    version: i16,
    response_bytes_max: u32,
}

/// Fetches until the shard stops or the broker is gone and nothing is wanted of it.
pub(crate) async fn run(shard: Rc<Shard>, fetcher: Rc<Fetcher>) {
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1), backoff::entropy());
    let mut link: Option<Link> = None;
    loop {
        if shard.stop.is_cancelled() {
            return;
        }
        if fetcher.session.borrow().wanted() == 0 {
            // A session without a fetch for two minutes may be evicted; the next answer would say so.
            tokio::select! {
                biased;
                () = shard.stop.cancelled() => return,
                () = fetcher.notify.notified() => {}
                () = tokio::time::sleep(shard.idle_max) => link = None,
            }
            continue;
        }
        let open = match link.take().filter(|link| !link.connection.is_ended()) {
            Some(link) => link,
            None => {
                fetcher.session.borrow_mut().reset();
                match dial(&shard, &fetcher).await {
                    Ok(link) => link,
                    Err(error) => {
                        let delay = backoff.next_delay();
                        debug!(broker_id = fetcher.broker.0, %error, "source broker cannot be reached");
                        unreachable(&shard, &fetcher, &error);
                        tokio::select! {
                            biased;
                            () = shard.stop.cancelled() => return,
                            () = tokio::time::sleep(delay) => {}
                        }
                        continue;
                    }
                }
            }
        };
        tokio::select! {
            biased;
            () = shard.stop.cancelled() => return,
            result = round(&shard, &fetcher, &open) => match result {
                Ok(()) => {
                    backoff.reset();
                    link = Some(open);
                }
                Err(error) => {
                    shard.count_unanswered(Side::Source);
                    if shard.may_say("fetch failed", fetcher.broker.0) {
                        info!(broker_id = fetcher.broker.0, error, "fetch failed");
                    }
                    fetcher.session.borrow_mut().reset();
                    unreachable(&shard, &fetcher, &error);
                }
            },
        }
    }
}

async fn dial(shard: &Shard, fetcher: &Fetcher) -> Result<Link, String> {
    let (connection, round_trip) = shard.dial(Side::Source, fetcher.broker).await?;
    let version = connection.negotiate::<FetchRequest>(VERSION_MAX).map_err(|error| {
        let why = error.to_string();
        shard.reach(Side::Source, fetcher.broker).unknown(&why);
        why
    })?;
    let response_bytes_max = response_bytes(&shard.fetch, round_trip);
    fetcher.response_bytes_max.set(response_bytes_max);
    debug!(
        broker_id = fetcher.broker.0,
        version,
        response_bytes_max,
        round_trip_us = round_trip.as_micros(),
        "fetch connection open"
    );
    Ok(Link { connection, version, response_bytes_max })
}

fn response_bytes(settings: &FetchSettings, round_trip: Duration) -> u32 {
    if settings.response_bytes_explicit || round_trip <= SHORT_ROUND_TRIP {
        return settings.response_bytes_max;
    }
    let factor = round_trip.as_micros() / SHORT_ROUND_TRIP.as_micros().max(1);
    let wanted = u128::from(settings.response_bytes_max) * factor.max(1);
    u32::try_from(wanted).unwrap_or(u32::MAX).min(RESPONSE_BYTES_CEILING.max(settings.response_bytes_max))
}

/// The broker cannot be asked: every partition of the session pauses and says why.
fn unreachable(shard: &Rc<Shard>, fetcher: &Fetcher, why: &str) {
    for copy in copies(shard, fetcher) {
        shard.with(copy, |entry, now| {
            entry.replica = None;
            entry.machine.delay_fetch(now, why);
        });
    }
    shard.refresh_source();
}

fn copies(shard: &Shard, fetcher: &Fetcher) -> Vec<CopyId> {
    fetcher.session.borrow().wanted_partitions().filter_map(|partition| shard.copy_of(&partition)).collect()
}

/// Most bytes of the next answer. They are set aside while the broker waits for data, so the fetchers together must
/// leave room: one that finds none would wait for as long as the others are idle.
fn answer_bytes(link: &Link, shard: &Shard) -> usize {
    let wanted = usize::try_from(link.response_bytes_max).unwrap_or(usize::MAX);
    wanted.min(share(shard.budget.limit(), shard.fetchers()))
}

/// Half of the memory is for answers to come, the other half for what waits to be sent.
fn share(memory: usize, fetchers: usize) -> usize {
    memory / 2 / fetchers.max(1)
}

/// One request and its answer.
async fn round(shard: &Rc<Shard>, fetcher: &Fetcher, link: &Link) -> Result<(), String> {
    let mut bytes = answer_bytes(link, shard);
    while !shard.budget.fits(bytes) {
        shard.memory.notified().await;
        bytes = answer_bytes(link, shard);
    }
    let mut charge = Charge::new(&shard.budget, bytes);
    let limits = FetchLimits {
        wait_ms: fetcher.wait_ms(shard.fetch.max_wait, Instant::now()),
        bytes_min: i32::try_from(shard.fetch.min_bytes).unwrap_or(1),
        bytes_max: i32::try_from(bytes).unwrap_or(i32::MAX),
        read_committed: shard.read_committed,
        rack: shard.client_rack.clone().unwrap_or_default(),
    };
    let (version, request) = {
        let mut session = fetcher.session.borrow_mut();
        let by_id = link.version >= FIRST_VERSION_WITH_IDS && session.ids_known();
        let version = if by_id { link.version } else { link.version.min(FIRST_VERSION_WITH_IDS - 1) };
        (version, session.next_request(version, &limits))
    };
    let timeout = shard.request_timeout + shard.fetch.max_wait;
    let reach = shard.reach(Side::Source, fetcher.broker);
    let mut answer =
        link.connection.begin(version, &request, ANSWER_MAX, timeout).map_err(|error| error.to_string())?;
    shard.gauges.requests.of(Side::Source).count();
    reach.asked(Instant::now());
    let reply = loop {
        match tokio::time::timeout(shard.fetch.max_wait + OVERDUE, &mut answer).await {
            Ok(Ok(reply)) => break reply,
            Ok(Err(error)) => {
                if !error.is_silence() {
                    reach.hung_up();
                }
                return Err(error.to_string());
            }
            // It may hang. Partitions that another broker leads by now move there.
            Err(_) => {
                reach.asked(Instant::now());
                shard.refresh_source();
            }
        }
    };
    reach.answered();
    charge.resize(reply.frame_bytes);
    let frame = Rc::new(charge);
    let answer = FetchResponse::decode(reply.body, reply.version).map_err(|error| error.to_string())?;
    if !fetcher.session.borrow_mut().handle_answer(answer.error_code, answer.session_id) {
        debug!(broker_id = fetcher.broker.0, code = %answer.error_code, "fetch session ended by the broker");
        if ends_session_only(answer.error_code) {
            return Ok(());
        }
        return Err(format!("the broker refused the fetch: {}", answer.error_code));
    }
    let mut arrived = Arrived { at: Moment::read(), frame, holds: BTreeMap::new() };
    for topic in answer.topics {
        let name = topic_name(fetcher, &topic);
        let Some(name) = name else { continue };
        let mut key = TopicPartition { topic: name, partition: PartitionId(0) };
        let whose = |partition: &FetchedPartition| {
            key.partition = partition.partition;
            shard.copy_of(&key)
        };
        let copies: Vec<Option<CopyId>> = topic.partitions.iter().map(whose).collect();
        for (index, (partition, copy)) in topic.partitions.into_iter().zip(&copies).enumerate() {
            if index % WARM == 0 {
                shard.warm(copies.iter().skip(index).take(WARM).filter_map(|copy| *copy));
            }
            key.partition = partition.partition;
            take(shard, fetcher, &key, *copy, partition, &mut arrived);
        }
    }
    drop(arrived);
    if shard.budget.take_returned() {
        shard.memory.notify_waiters();
    }
    if let Some(throttled) = throttled_for(answer.throttle_time_ms) {
        // The broker reads nothing of this connection meanwhile (KIP-219): what is asked would seem to have no answer.
        debug!(broker_id = fetcher.broker.0, ms = answer.throttle_time_ms, "throttled by a quota of the source");
        let now = Instant::now();
        reach.throttled(now, now + throttled);
        tokio::time::sleep(throttled).await;
    }
    Ok(())
}

fn topic_name(fetcher: &Fetcher, topic: &FetchedTopic) -> Option<TopicName> {
    match &topic.name {
        Some(name) if !name.as_str().is_empty() => Some(name.clone()),
        _ => fetcher.session.borrow().topic_of(topic.id),
    }
}

/// What the partitions of one answer share.
struct Arrived {
    at: Moment,
    frame: Rc<Charge>,
    /// One for each lane that gets something of it.
    holds: BTreeMap<LaneKey, FrameHold>,
}

impl Arrived {
    fn hold(&mut self, lane: Option<&Rc<Lane>>) -> Option<FrameHold> {
        let lane = lane?;
        Some(self.holds.entry(lane.key).or_insert_with(|| FrameHold::new(&lane.account, &self.frame)).clone())
    }
}

fn take(
    shard: &Rc<Shard>,
    fetcher: &Fetcher,
    key: &TopicPartition,
    copy: Option<CopyId>,
    partition: FetchedPartition,
    arrived: &mut Arrived,
) {
    let Some(fetch_offset) = fetcher.session.borrow_mut().handle_partition(key) else {
        return;
    };
    let Some(copy) = copy else {
        return;
    };
    if !partition.error_code.is_none() {
        shard.gauges.refused_fetches.count();
        debug!(topic = key.topic.as_str(), partition = key.partition.0, code = %partition.error_code, "fetch refused");
        let refresh = shard.with(copy, |entry, now| {
            if entry.replica.take().is_some() {
                // The follower may lag or be gone; the leader decides.
                return true;
            }
            entry.machine.handle_fetch_error(now, partition.error_code)
        });
        if refresh == Some(true) {
            shard.refresh_source();
        }
        return;
    }
    if let Some((epoch, end_offset)) = partition.diverging_epoch {
        shard.with(copy, |entry, now| entry.machine.handle_diverged(now, EpochEnd { epoch, end_offset }));
        return;
    }
    if let Some(broker) = partition.preferred_read_replica
        && broker != fetcher.broker
    {
        // As long as Kafka's consumer keeps one: the metadata's age.
        shard.with(copy, |entry, now| entry.replica = Some((broker, now + Duration::from_secs(300))));
        return;
    }
    shard.with_at(arrived.at, copy, |entry, _| {
        let hold = if partition.records.is_empty() { None } else { arrived.hold(entry.lane.as_ref()) };
        let fetched = Fetched {
            fetch_offset,
            records: partition.records,
            aborted: partition.aborted_transactions,
            high_watermark: partition.high_watermark,
            last_stable_offset: partition.last_stable_offset,
            hold,
        };
        entry.handle_fetched(copy, arrived.at, fetched);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_fetchers_leave_room_for_what_must_be_sent() {
        for fetchers in 0..100 {
            assert!(share(64 << 20, fetchers) * fetchers <= 32 << 20, "{fetchers} fetchers");
        }
    }
}
