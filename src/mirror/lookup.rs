//! Look-ups for reconciling: ends of logs and producer states, many partitions per request; tails one by one.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    rc::Rc,
    time::Duration,
};

use bytes::Bytes;
use kafka_protocol::messages::FetchRequest;
use tokio::{sync::Notify, time::Instant};
use tracing::{debug, warn};

use super::{
    partition::{LocateAsk, Located, ProducerAnswer, SourceEnds, SourceHistory, TailBatch, TargetEnds},
    reach::Side,
    report::CopyId,
    shard::Shard,
};
use crate::{
    batch::{Batch, BatchHeader, Entry as WalkEntry, ProducerIdentity, open::decode, walk},
    client::{
        ListedOffset, OffsetQuery, ProducerState, describe_producers, epoch_end,
        fetch_session::{FIRST_VERSION_WITH_IDS, FetchLimits, FetchSession, Want},
        list_offsets,
        recovery::{LookupStep, lookup_step},
    },
    net::{Connection, RequestError},
    protocol::{BrokerId, ErrorCode, FetchResponse, LeaderEpoch, TopicId, TopicPartition},
};

/// Partitions per request of a look-up.
const PARTITIONS_PER_REQUEST: usize = 1000;
/// A look-up that takes longer has met a broker that hangs: by then another one may lead.
const ENDS_PATIENCE: Duration = Duration::from_secs(8);
/// Bytes of one answer of a tail read.
const TAIL_RESPONSE_BYTES: i32 = 1 << 20;
/// Headers held of one tail; anchors every 64 MB leave far fewer.
const TAIL_BATCHES_MAX: usize = 1 << 20;
/// Records compared of one tail, 32 bytes each.
const TAIL_RECORDS_MAX: usize = 1 << 23;
const TAIL_ANSWER_MAX: usize = 160 << 20;

/// An answer that leaves a partition out.
const UNNAMED: ErrorCode = ErrorCode::UNKNOWN_SERVER_ERROR;
/// How often partitions that do not fetch learn where their source ends.
const ENDS_INTERVAL: Duration = Duration::from_secs(10);

/// Partitions that want a look-up.
#[derive(Default)]
pub(crate) struct Lookups {
    waiting: RefCell<BTreeSet<CopyId>>,
    notify: Notify,
}

impl Lookups {
    pub(crate) fn push(&self, copy: CopyId) {
        self.waiting.borrow_mut().insert(copy);
        self.notify.notify_one();
    }
}

/// Connections for look-ups, one per broker and side.
#[derive(Default)]
struct Connections(BTreeMap<BrokerId, Connection>);

impl Connections {
    async fn to(&mut self, shard: &Shard, broker: BrokerId, side: Side) -> Result<Connection, String> {
        if let Some(connection) = self.0.get(&broker)
            && !connection.is_ended()
        {
            return Ok(connection.clone());
        }
        let (connection, _) = shard.dial(side, broker).await?;
        self.0.insert(broker, connection.clone());
        Ok(connection)
    }
}

struct Ask {
    copy: CopyId,
    source: TopicPartition,
    target: TopicPartition,
    source_leader: Option<BrokerId>,
    target_leader: Option<BrokerId>,
    what: LocateAsk,
}

/// Answers look-ups until the shard stops.
pub(crate) async fn run(shard: Rc<Shard>) {
    // Partitions of different brokers must not wait for each other, so each round is a task; a broker that hangs
    // holds up only those it leads.
    loop {
        tokio::select! {
            biased;
            () = shard.stop.cancelled() => return,
            () = shard.lookups.notify.notified() => {}
        }
        let waiting = std::mem::take(&mut *shard.lookups.waiting.borrow_mut());
        let mut rounds: BTreeMap<(Option<BrokerId>, Option<BrokerId>), Vec<Ask>> = BTreeMap::new();
        for copy in waiting {
            let (sources, targets) = (shard.source(), shard.target());
            let ask = shard.look(copy, |entry| {
                let now = Instant::now();
                let what = entry.machine.locate_want(now)?;
                entry.machine.locate_begun(now);
                let spec = entry.machine.spec();
                Some(Ask {
                    copy,
                    source: spec.source.clone(),
                    target: spec.target.clone(),
                    source_leader: sources.leader(&spec.source).and_then(|leader| leader.leader),
                    target_leader: targets.leader(&spec.target).and_then(|leader| leader.leader),
                    what,
                })
            });
            let Some(Some(ask)) = ask else { continue };
            let source = match ask.what {
                LocateAsk::Ends { source: true, .. } | LocateAsk::Source | LocateAsk::History { .. } => {
                    ask.source_leader
                }
                _ => None,
            };
            rounds.entry((source, ask.target_leader)).or_default().push(ask);
        }
        for (_, mut asks) in rounds {
            while !asks.is_empty() {
                let rest = asks.split_off(asks.len().min(PARTITIONS_PER_REQUEST));
                let shard = shard.clone();
                let some = std::mem::replace(&mut asks, rest);
                shard.clone().spawn(async move {
                    let stop = shard.stop.clone();
                    tokio::select! {
                        biased;
                        () = stop.cancelled() => {}
                        () = round(&shard, some) => {}
                    }
                });
            }
        }
    }
}

/// Keeps the lag of partitions right that do not fetch: their queue is full, or they wait for something.
pub(crate) async fn watch_ends(shard: Rc<Shard>) {
    let mut before = BTreeSet::new();
    loop {
        tokio::select! {
            biased;
            () = shard.stop.cancelled() => return,
            () = tokio::time::sleep(ENDS_INTERVAL) => {}
        }
        let blind = shard.blind();
        // Those that just were between two fetches will learn it with the next.
        let known: BTreeSet<CopyId> = blind.values().flatten().map(|(copy, _)| *copy).collect();
        let still = std::mem::replace(&mut before, known);
        for (leader, partitions) in blind {
            let partitions: Vec<_> = partitions.into_iter().filter(|(copy, _)| still.contains(copy)).collect();
            for some in partitions.chunks(PARTITIONS_PER_REQUEST) {
                tokio::select! {
                    biased;
                    () = shard.stop.cancelled() => return,
                    () = see_ends(&shard, leader, some) => {}
                }
            }
        }
    }
}

async fn see_ends(shard: &Rc<Shard>, leader: BrokerId, some: &[(CopyId, TopicPartition)]) {
    let partitions: Vec<_> = some.iter().map(|(_, partition)| partition.clone()).collect();
    let found = in_time(source_ends(shard, &mut Connections::default(), Some(leader), &partitions)).await;
    match found {
        Ok(found) => {
            for (copy, partition) in some {
                if let Some(Ok(ends)) = found.get(partition) {
                    shard.with(*copy, |entry, _| {
                        entry.machine.handle_source_seen(ends.high_watermark, ends.readable_end);
                    });
                }
            }
        }
        Err(error) => debug!(%error, "the source's ends could not be learnt"),
    }
}

async fn round(shard: &Rc<Shard>, asks: Vec<Ask>) {
    let mut sources = Connections::default();
    let mut targets = Connections::default();
    let mut ends = Vec::new();
    let mut source_only = Vec::new();
    for ask in asks {
        match ask.what {
            LocateAsk::Ends { .. } => ends.push(ask),
            LocateAsk::Source => source_only.push(ask),
            LocateAsk::Tail { from, to, records } => tail(shard, &mut targets, &ask, from..to, records).await,
            LocateAsk::History { epoch, mark } => history(shard, &mut sources, &ask, epoch, mark).await,
        }
    }
    if !source_only.is_empty() {
        let partitions: Vec<_> = source_only.iter().map(|ask| ask.source.clone()).collect();
        let leader = source_only.first().and_then(|ask| ask.source_leader);
        let found = in_time(source_ends(shard, &mut sources, leader, &partitions)).await;
        for ask in &source_only {
            match found.as_ref().map(|found| found.get(&ask.source)) {
                Ok(Some(Ok(ends))) => {
                    shard.with(ask.copy, |entry, now| entry.machine.handle_source_ends(now, *ends));
                }
                // The fetch is on hold; its next failure asks again.
                Ok(Some(Err(_)) | None) => shard.refresh_source(),
                Err(error) => {
                    debug!(%error, "the source's ends could not be learnt");
                    shard.refresh_source();
                }
            }
        }
    }
    if !ends.is_empty() {
        locate(shard, &mut sources, &mut targets, &ends).await;
    }
}

/// What the source's log says of its past: seldom asked, so one partition at a time.
async fn history(shard: &Rc<Shard>, connections: &mut Connections, ask: &Ask, epoch: LeaderEpoch, mark: Option<i64>) {
    match in_time(try_history(shard, connections, ask, epoch, mark)).await {
        Ok(found) => {
            shard.with(ask.copy, |entry, now| entry.machine.handle_history(now, found));
        }
        Err(error) => {
            debug!(topic = ask.source.topic.as_str(), error, "the source's history could not be learnt");
            shard.refresh_source();
            shard.with(ask.copy, |entry, now| entry.machine.handle_locate_failed(now));
        }
    }
}

async fn try_history(
    shard: &Rc<Shard>,
    connections: &mut Connections,
    ask: &Ask,
    epoch: LeaderEpoch,
    mark: Option<i64>,
) -> Result<SourceHistory, String> {
    let only = [ask.source.clone()];
    let ends = source_ends(shard, connections, ask.source_leader, &only).await?;
    let ends = ends.get(&ask.source).copied().ok_or("the source does not say where its log ends")?;
    let ends = ends.map_err(|code| code.to_string())?;
    let leader = ask.source_leader.ok_or("the source partition has no leader")?;
    let connection = connections.to(shard, leader, Side::Source).await?;
    let epoch_end = if epoch == LeaderEpoch::NONE {
        None
    } else {
        match epoch_end(&connection, &ask.source, epoch, shard.request_timeout).await {
            Ok(Ok(found)) => found,
            Ok(Err(code)) => return Err(code.to_string()),
            // Too old to be asked: what the ends say has to do.
            Err(RequestError::Unsupported(_)) => None,
            Err(error) => return Err(error.to_string()),
        }
    };
    let at_mark = match mark.filter(|mark| ends.start <= *mark && *mark < ends.high_watermark) {
        Some(mark) => batch_at(shard, &connection, &ask.source, mark).await?,
        None => None,
    };
    Ok(SourceHistory { ends, epoch_end, at_mark })
}

/// The first batch that reaches beyond an offset, if there is one in the present format.
async fn batch_at(
    shard: &Shard,
    connection: &Connection,
    partition: &TopicPartition,
    offset: i64,
) -> Result<Option<BatchHeader>, String> {
    let records = fetch_once(shard, connection, partition, offset).await?;
    for entry in walk(records) {
        match entry.map_err(|error| error.to_string())? {
            WalkEntry::Batch(batch) if batch.header.next_offset() > offset => return Ok(Some(batch.header)),
            WalkEntry::Batch(_) => {}
            WalkEntry::Legacy { .. } => return Ok(None),
        }
    }
    Ok(None)
}

async fn in_time<T>(look_up: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    tokio::time::timeout(ENDS_PATIENCE, look_up)
        .await
        .unwrap_or_else(|_| Err(format!("no answer within {} s", ENDS_PATIENCE.as_secs())))
}

async fn locate(shard: &Rc<Shard>, sources: &mut Connections, targets: &mut Connections, asks: &[Ask]) {
    let failed = |copy: CopyId, side: Side, why: &str| {
        shard.with(copy, |entry, now| {
            entry.machine.note_locate_trouble(side == Side::Source, why);
            entry.machine.handle_locate_failed(now);
        });
    };
    let partitions: Vec<_> = asks.iter().map(|ask| ask.target.clone()).collect();
    let leader = asks.first().and_then(|ask| ask.target_leader);
    let target = in_time(target_ends(shard, targets, leader, &partitions)).await;
    let (ends, producers) = match target {
        Ok(found) => found,
        Err(error) => {
            debug!(%error, "the target's ends could not be learnt");
            shard.refresh_target();
            asks.iter().for_each(|ask| failed(ask.copy, Side::Target, &error));
            return;
        }
    };
    let wanted: Vec<_> = asks
        .iter()
        .filter(|ask| matches!(ask.what, LocateAsk::Ends { source: true, .. }))
        .map(|ask| ask.source.clone())
        .collect();
    let source = if wanted.is_empty() {
        Ok(BTreeMap::new())
    } else {
        in_time(source_ends(shard, sources, asks.first().and_then(|ask| ask.source_leader), &wanted)).await
    };
    let source = match source {
        Ok(found) => found,
        Err(error) => {
            debug!(%error, "the source's ends could not be learnt");
            shard.refresh_source();
            asks.iter().for_each(|ask| failed(ask.copy, Side::Source, &error));
            return;
        }
    };
    for ask in asks {
        let LocateAsk::Ends { source: needs_source, identity } = ask.what else {
            continue;
        };
        let found = source.get(&ask.source).copied().unwrap_or(Err(UNNAMED));
        match (ends.get(&ask.target).copied().unwrap_or(Err(UNNAMED)), found) {
            (Err(code), _) => failed(ask.copy, Side::Target, &refusal(code)),
            (Ok(_), Err(code)) if needs_source => failed(ask.copy, Side::Source, &refusal(code)),
            (Ok(target), found) => {
                let producer = producers.as_ref().map_or(ProducerAnswer::Unknown, |producers| {
                    producers.get(&ask.target).map_or(ProducerAnswer::Unknown, |states| answer_of(states, identity))
                });
                let located = Located { source: found.ok(), target, producer };
                shard.with(ask.copy, |entry, now| entry.machine.handle_located(now, located));
            }
        }
    }
}

fn answer_of(states: &[ProducerState], identity: ProducerIdentity) -> ProducerAnswer {
    states.iter().find(|state| state.producer_id == identity.producer_id).map_or(ProducerAnswer::Absent, |state| {
        ProducerAnswer::Known { producer_epoch: state.producer_epoch, last_sequence: state.last_sequence }
    })
}

async fn source_ends(
    shard: &Rc<Shard>,
    connections: &mut Connections,
    leader: Option<BrokerId>,
    partitions: &[TopicPartition],
) -> Result<BTreeMap<TopicPartition, Result<SourceEnds, ErrorCode>>, String> {
    let leader = leader.ok_or("the source partition has no leader")?;
    let connection = connections.to(shard, leader, Side::Source).await?;
    shard.reach(Side::Source, leader).asked(Instant::now());
    let ask = |query| {
        let connection = connection.clone();
        async move {
            list_offsets(&connection, query, partitions, shard.request_timeout).await.map_err(|error| error.to_string())
        }
    };
    let start = ask(OffsetQuery::Start).await?;
    let high_answers = ask(OffsetQuery::HighWatermark).await?;
    let stable = if shard.read_committed { ask(OffsetQuery::LastStable).await? } else { high_answers.clone() };
    let mut found = BTreeMap::new();
    for partition in partitions {
        let offset = |answers| good(shard, answers, partition, Side::Source);
        let ends = || -> Result<SourceEnds, ErrorCode> {
            let (start, high, stable) = (offset(&start)?, offset(&high_answers)?, offset(&stable)?);
            let leader_epoch = high_answers.get(partition).map_or(LeaderEpoch::NONE, |listed| listed.leader_epoch);
            Ok(SourceEnds { start, readable_end: stable, high_watermark: high.max(stable), leader_epoch })
        };
        found.insert(partition.clone(), ends());
    }
    shard.reach(Side::Source, leader).answered();
    Ok(found)
}

type TargetAnswers =
    (BTreeMap<TopicPartition, Result<TargetEnds, ErrorCode>>, Option<BTreeMap<TopicPartition, Vec<ProducerState>>>);

async fn target_ends(
    shard: &Rc<Shard>,
    connections: &mut Connections,
    leader: Option<BrokerId>,
    partitions: &[TopicPartition],
) -> Result<TargetAnswers, String> {
    let leader = leader.ok_or("the target partition has no leader")?;
    let connection = connections.to(shard, leader, Side::Target).await?;
    shard.reach(Side::Target, leader).asked(Instant::now());
    let ask = |query| {
        let connection = connection.clone();
        async move {
            list_offsets(&connection, query, partitions, shard.request_timeout).await.map_err(|error| error.to_string())
        }
    };
    // Brokers before 2.8 do not know it, others may forbid it: then the tail's headers are read instead. Before the end:
    // what we wrote until then and the end can only agree if nobody else wrote. Asked the other way round, a late request
    // of ours could make up for a foreign write.
    let producers = describe_producers(&connection, partitions, shard.request_timeout).await.ok();
    let start = ask(OffsetQuery::Start).await?;
    // The end first, then what is replicated of it: asked the other way round, a log that moves could look as if all
    // of it were replicated.
    let end = ask(OffsetQuery::End).await?;
    let high = ask(OffsetQuery::HighWatermark).await?;
    let mut found = BTreeMap::new();
    for partition in partitions {
        let offset = |answers| good(shard, answers, partition, Side::Target);
        let ends = || -> Result<TargetEnds, ErrorCode> {
            let (start, end, high_watermark) = (offset(&start)?, offset(&end)?, offset(&high)?);
            Ok(TargetEnds { start, high_watermark, end })
        };
        found.insert(partition.clone(), ends());
    }
    shard.reach(Side::Target, leader).answered();
    Ok((found, producers))
}

fn good(
    shard: &Shard,
    answers: &BTreeMap<TopicPartition, ListedOffset>,
    partition: &TopicPartition,
    side: Side,
) -> Result<i64, ErrorCode> {
    let listed = answers.get(partition).ok_or(UNNAMED)?;
    if listed.error_code.is_none() {
        return Ok(listed.offset);
    }
    match lookup_step(listed.error_code) {
        LookupStep::RefreshMetadata if side == Side::Source => shard.refresh_source(),
        LookupStep::RefreshMetadata => shard.refresh_target(),
        LookupStep::AwaitRights => {}
    }
    debug!(topic = partition.topic.as_str(), partition = partition.partition.0, code = %listed.error_code, "look-up refused");
    Err(listed.error_code)
}

/// What to show of a code.
fn refusal(code: ErrorCode) -> String {
    format!("its leader answers {code}")
}

async fn tail(shard: &Rc<Shard>, connections: &mut Connections, ask: &Ask, range: Range<i64>, records: bool) {
    let found = if records {
        let (limit, count) = (shard.open_bytes_max(), Cell::new(0));
        let keep = |batch: &Batch| {
            count.set(count.get() + usize::try_from(batch.header.records_count).unwrap_or(0));
            if count.get() > TAIL_RECORDS_MAX {
                return Err(format!("more than {TAIL_RECORDS_MAX} records lie behind the anchor"));
            }
            opened(batch, limit)
        };
        let found = read_tail(shard, connections, ask, &range, keep).await;
        found.map(|tail| {
            shard.with(ask.copy, |entry, now| entry.machine.handle_tail_records(now, tail));
        })
    } else {
        read_tail(shard, connections, ask, &range, |batch| Ok(batch.header)).await.map(|headers| {
            shard.with(ask.copy, |entry, now| entry.machine.handle_tail(now, headers));
        })
    };
    match found {
        Ok(()) => {}
        Err(error) => {
            if shard.may_say("the target's tail could not be read", -1) {
                let (topic, partition) = (ask.target.topic.as_str(), ask.target.partition.0);
                warn!(
                    topic,
                    partition,
                    from = range.start,
                    to = range.end,
                    error,
                    "the target's tail could not be read"
                );
            }
            shard.refresh_target();
            shard.with(ask.copy, |entry, now| {
                entry.machine.note_locate_trouble(false, &error);
                entry.machine.handle_locate_failed(now);
            });
        }
    }
}

/// What the records of a batch say. With the time that is in the payload: a target that stamps its own keeps it there.
fn opened(batch: &Batch, limit: usize) -> Result<TailBatch, String> {
    batch.verify_crc().map_err(|error| error.to_string())?;
    let contents = decode(batch, limit, false).map_err(|error| error.to_string())?;
    Ok(TailBatch { header: batch.header, records: contents.records().map(|record| record.digest()).collect() })
}

/// Reads the target's batches in a range, of which `keep` says what is kept: a fetch brings payloads too.
async fn read_tail<T>(
    shard: &Rc<Shard>,
    connections: &mut Connections,
    ask: &Ask,
    range: &Range<i64>,
    keep: impl Fn(&Batch) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    let leader = ask.target_leader.ok_or("the target partition has no leader")?;
    let connection = connections.to(shard, leader, Side::Target).await?;
    let mut found = Vec::new();
    let mut next = range.start;
    let mut empty = 0;
    while next < range.end {
        let records = fetch_once(shard, &connection, &ask.target, next).await?;
        let before = next;
        next = collect(records, next, range.end, &keep, &mut found)?;
        if next == before {
            empty += 1;
            if empty > 10 {
                return Err(format!("the log gives nothing at offset {next}"));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(found)
}

/// What a log holds from an offset on, about a megabyte of it.
async fn fetch_once(
    shard: &Shard,
    connection: &Connection,
    partition: &TopicPartition,
    offset: i64,
) -> Result<Bytes, String> {
    let version =
        connection.negotiate::<FetchRequest>(FIRST_VERSION_WITH_IDS - 1).map_err(|error| error.to_string())?;
    let limits = FetchLimits {
        wait_ms: 500,
        bytes_min: 1,
        bytes_max: TAIL_RESPONSE_BYTES,
        read_committed: false,
        rack: String::new(),
    };
    let mut session = FetchSession::default();
    let want = Want {
        fetch_offset: offset,
        partition_bytes_max: TAIL_RESPONSE_BYTES,
        current_leader_epoch: LeaderEpoch::NONE,
        last_fetched_epoch: LeaderEpoch::NONE,
    };
    session.want(partition, TopicId::ZERO, Some(want));
    let mut request = session.next_request(version, &limits);
    // No session: the broker should keep nothing for a read this short.
    request.session_epoch = -1;
    let reply = connection
        .begin(version, &request, TAIL_ANSWER_MAX, shard.request_timeout)
        .map_err(|error| error.to_string())?
        .await
        .map_err(|error| error.to_string())?;
    let answer = FetchResponse::decode(reply.body, version).map_err(|error| error.to_string())?;
    let found = answer.topics.into_iter().flat_map(|topic| topic.partitions).next();
    let found = found.ok_or("the answer names no partition")?;
    if !found.error_code.is_none() {
        return Err(found.error_code.to_string());
    }
    Ok(found.records)
}

fn collect<T>(
    records: Bytes,
    from: i64,
    to: i64,
    keep: impl Fn(&Batch) -> Result<T, String>,
    found: &mut Vec<T>,
) -> Result<i64, String> {
    let mut next = from;
    for entry in walk(records) {
        match entry.map_err(|error| error.to_string())? {
            WalkEntry::Batch(batch) => {
                if batch.header.next_offset() <= next {
                    continue;
                }
                if next >= to {
                    break;
                }
                if found.len() >= TAIL_BATCHES_MAX {
                    return Err(format!("more than {TAIL_BATCHES_MAX} batches lie behind the anchor"));
                }
                next = batch.header.next_offset();
                found.push(keep(&batch)?);
            }
            WalkEntry::Legacy { base_offset, magic, .. } => {
                return Err(format!("the batch at offset {base_offset} is in the old format {magic}"));
            }
        }
    }
    Ok(next)
}
