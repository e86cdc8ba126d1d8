//! Makes anchors durable: runs first, then the commit, in the member's name; and reads them back.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{Notify, mpsc, oneshot},
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{Anchors, Flow, LINES_MAX};
use crate::{
    backoff::{self, Backoff},
    client::{
        Cluster, GroupConnection, OffsetToCommit,
        recovery::{CoordinatorStep, coordinator_step},
    },
    mirror::{
        anchor::{Anchor, AnchorError, Record},
        lease_driver::LeaseCommand,
        observe::Anchored,
        partition::{PartitionState, StopReason},
        report::{AnchorOffer, AnchorOutcome, Command, CopyId},
        runs::{Row, RunsTopic},
    },
    protocol::{ErrorCode, TopicPartition},
    rare::Rare,
    wall_clock,
};

/// Offsets of one commit, and their metadata in bytes: it must stay well below a megabyte (`design.md` 4).
const OFFSETS_PER_COMMIT: usize = 1000;
const METADATA_PER_COMMIT: usize = 400_000;
/// Metadata of a partition that copies, of one that waits or lost something, and of one that stands, at most.
const METADATA_BYTES: usize = 450;
const METADATA_BYTES_WAITING: usize = 1000;
const METADATA_BYTES_STANDING: usize = 2500;
/// How often last anchors are copied to the runs topic, where they do not expire.
const COPY_INTERVAL: Duration = Duration::from_secs(3600);
/// At a start they are written once what was found has been committed anew.
const FIRST_COPY: Duration = Duration::from_secs(5);
/// A commit that has no answer in this time counts as failed; it is offered again.
const COMMIT_PATIENCE: Duration = Duration::from_secs(35);
/// Copies of anchors that are written at a stop must not hold it up.
const LAST_COPIES_PATIENCE: Duration = Duration::from_millis(1500);
/// Between commits of the position on the source, which people's lag tools read.
const SOURCE_COMMIT_INTERVAL: Duration = Duration::from_secs(5);

/// A write to the runs topic that takes longer is given up, and tried again with the next offers.
const RUNS_PATIENCE: Duration = Duration::from_secs(10);
/// Lots whose breaks wait to be written.
const BREAKS_QUEUE: usize = 16;

/// Showing the last position on the source must not hold a stop up either.
const LAST_SHOWN_PATIENCE: Duration = Duration::from_secs(1);
/// Failed attempts to show the position after which people are told.
const FAILURES_WORTH_A_WARNING: u32 = 3;

/// Commits the offers of one flow.
///
/// Three things can hang each for itself, so each has a loop of its own: commits of anchors, which every partition needs;
/// writes to the runs topic, which anchors with breaks wait for; the position shown on the source, which nothing waits for.
pub(super) struct Committer {
    flow: Arc<str>,
    runs: RunsTopic,
    lease: mpsc::Sender<LeaseCommand>,
    shards: Vec<mpsc::Sender<Command>>,
    /// The last durable record of each partition that the runs topic does not have yet.
    uncopied: RefCell<BTreeMap<TopicPartition, Record>>,
    /// Some of them must not wait for the hour to be over.
    copy_now: Notify,
    source: Option<SourceCommits>,
    rare: Rc<Rare>,
    tally: Rc<Cell<Anchored>>,
}

struct SourceCommits {
    cluster: Cluster,
    group: Arc<str>,
    due: RefCell<BTreeMap<TopicPartition, i64>>,
    failures: Cell<u32>,
}

impl Committer {
    pub(super) fn new(
        flow: &Flow,
        runs: RunsTopic,
        lease: mpsc::Sender<LeaseCommand>,
        shards: Vec<mpsc::Sender<Command>>,
        rare: Rc<Rare>,
    ) -> Self {
        let source = flow.settings.commit_source_offsets.then(|| SourceCommits {
            cluster: flow.source.clone(),
            group: flow.settings.source_group_id().into(),
            due: RefCell::default(),
            failures: Cell::new(0),
        });
        Self {
            flow: flow.name.clone(),
            runs,
            lease,
            shards,
            uncopied: RefCell::default(),
            copy_now: Notify::new(),
            source,
            rare,
            tally: flow.status.borrow().anchors.clone(),
        }
    }

    /// Runs until the offers end, then writes the last copies.
    pub(super) async fn run(self, offers: mpsc::Receiver<Vec<AnchorOffer>>) {
        let (with_breaks, breaks) = mpsc::channel(BREAKS_QUEUE);
        let over = CancellationToken::new();
        let anchors = async {
            tokio::join!(self.commit_plain(offers, with_breaks), self.commit_with_breaks(breaks));
            over.cancel();
        };
        tokio::join!(anchors, self.copy(&over), self.show_on_source(&over));
        let last = async {
            self.write_copies().await;
        };
        if timeout(LAST_COPIES_PATIENCE, last).await.is_err() {
            info!(flow = %self.flow, "copies of the last anchors were not written in time; the anchors themselves are durable");
        }
        if let Some(source) = &self.source {
            let _ = timeout(LAST_SHOWN_PATIENCE, source.commit_last()).await;
        }
    }

    async fn commit_plain(
        &self,
        mut offers: mpsc::Receiver<Vec<AnchorOffer>>,
        with_breaks: mpsc::Sender<Vec<AnchorOffer>>,
    ) {
        while let Some(lot) = offers.recv().await {
            let (broken, plain): (Vec<_>, Vec<_>) = lot.into_iter().partition(|offer| !offer.breaks.is_empty());
            if !broken.is_empty()
                && let Err(error) = with_breaks.try_send(broken)
            {
                let (mpsc::error::TrySendError::Full(broken) | mpsc::error::TrySendError::Closed(broken)) = error;
                self.answer(&broken, &BTreeSet::new()).await;
            }
            self.commit(plain).await;
        }
    }

    /// Runs, then anchor, always (`design.md` 4).
    async fn commit_with_breaks(&self, mut offers: mpsc::Receiver<Vec<AnchorOffer>>) {
        while let Some(mut lot) = offers.recv().await {
            while let Ok(more) = offers.try_recv() {
                lot.extend(more);
            }
            let rows: Vec<Row<'_>> = lot
                .iter()
                .filter_map(|offer| match &offer.record {
                    Record::Anchor(anchor) => Some((offer, anchor)),
                    Record::Standing(_) => None,
                })
                .flat_map(|(offer, anchor)| offer.breaks.iter().map(|run| Row::Break(&offer.target, anchor, *run)))
                .collect();
            let written = match timeout(RUNS_PATIENCE, self.runs.write(&rows)).await {
                Ok(Ok(())) => Ok(()),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err(format!("no answer within {} s", RUNS_PATIENCE.as_secs())),
            };
            if let Err(error) = written {
                if self.rare.allows(Instant::now(), "runs could not be written", -1) {
                    warn!(flow = %self.flow, error, "runs could not be written; anchors wait");
                }
                // Offered again at once otherwise.
                tokio::time::sleep(Duration::from_millis(200)).await;
                self.answer(&lot, &BTreeSet::new()).await;
            } else {
                self.commit(lot).await;
            }
        }
    }

    async fn commit(&self, lot: Vec<AnchorOffer>) {
        // Brokers drop the offsets of a topic with it, and take none for one that never was: only a copy can say that.
        let has_no_place = |state: &str| state == StopReason::TargetGone.code() || state == StopReason::TARGET_MISSING;
        let (gone, lot): (Vec<_>, Vec<_>) = lot.into_iter().partition(|offer| has_no_place(offer.record.state()));
        gone.iter().for_each(|offer| self.note(offer));
        self.answer(&gone, &gone.iter().map(|offer| offer.copy).collect()).await;
        let mut durable = BTreeSet::new();
        let mut rest = lot.as_slice();
        while !rest.is_empty() {
            let (chunk, after) = rest.split_at(chunk_len(rest));
            durable.append(&mut self.commit_chunk(chunk).await);
            rest = after;
        }
        for offer in lot.iter().filter(|offer| durable.contains(&offer.copy)) {
            self.note(offer);
        }
        let mut tally = self.tally.get();
        tally.committed += durable.len() as u64;
        tally.failed += lot.len().saturating_sub(durable.len()) as u64;
        if !durable.is_empty() {
            tally.last_ms = wall_clock::now_ms();
        }
        self.tally.set(tally);
        self.answer(&lot, &durable).await;
    }

    /// Tells the shards what became of offers. Each knows its own copies and skips the others'.
    async fn answer(&self, lot: &[AnchorOffer], durable: &BTreeSet<CopyId>) {
        if lot.is_empty() {
            return;
        }
        let outcome = |offer: &AnchorOffer| {
            let durable = durable.contains(&offer.copy).then_some((offer.breaks.len(), offer.tail_bytes));
            AnchorOutcome { copy: offer.copy, durable }
        };
        let outcomes: Vec<_> = lot.iter().map(outcome).collect();
        for shard in &self.shards {
            let _ = shard.send(Command::Anchored(outcomes.clone())).await;
        }
    }

    fn note(&self, offer: &AnchorOffer) {
        self.uncopied.borrow_mut().insert(offer.target.clone(), offer.record.clone());
        if offer.record.state() == PartitionState::Anchoring.code() || offer.record.incident().is_some() {
            // The first anchor of a partition: its commit may expire before the hour is over. And what a partition that
            // stands says may be needed when its topic, and the commits with it, are gone.
            self.copy_now.notify_one();
        }
        if let (Some(source), Record::Anchor(anchor)) = (&self.source, &offer.record) {
            source.due.borrow_mut().insert(offer.source.clone(), anchor.position.source_next);
        }
    }

    async fn copy(&self, over: &CancellationToken) {
        let mut next = Instant::now() + FIRST_COPY;
        loop {
            tokio::select! {
                biased;
                () = over.cancelled() => return,
                () = self.copy_now.notified() => {}
                () = tokio::time::sleep_until(next) => next = Instant::now() + COPY_INTERVAL,
            }
            tokio::select! {
                biased;
                () = over.cancelled() => return,
                () = self.write_copies() => {}
            }
        }
    }

    async fn write_copies(&self) {
        let due = self.uncopied.borrow().clone();
        if due.is_empty() {
            return;
        }
        let rows: Vec<Row<'_>> = due.iter().map(|(target, record)| Row::Record(target, record)).collect();
        let written = match timeout(RUNS_PATIENCE, self.runs.write(&rows)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no answer within {} s", RUNS_PATIENCE.as_secs())),
        };
        match written {
            // What was anchored anew meanwhile is still to be copied.
            Ok(()) => self.uncopied.borrow_mut().retain(|target, record| due.get(target) != Some(record)),
            Err(error) => {
                if self.rare.allows(Instant::now(), "copies of anchors could not be written", -1) {
                    warn!(flow = %self.flow, error, "copies of anchors could not be written; tried again later");
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
                self.copy_now.notify_one();
            }
        }
    }

    async fn show_on_source(&self, over: &CancellationToken) {
        let Some(source) = &self.source else { return };
        loop {
            tokio::select! {
                biased;
                () = over.cancelled() => return,
                () = tokio::time::sleep(SOURCE_COMMIT_INTERVAL) => {}
            }
            tokio::select! {
                biased;
                () = over.cancelled() => return,
                () = source.commit() => {}
            }
        }
    }

    /// Commits; returns which are durable.
    async fn commit_chunk(&self, chunk: &[AnchorOffer]) -> BTreeSet<CopyId> {
        let offsets = chunk
            .iter()
            .map(|offer| OffsetToCommit {
                partition: offer.target.clone(),
                offset: offer.record.offset(),
                metadata: offer.record.to_metadata(),
            })
            .collect();
        let (reply, answer) = oneshot::channel();
        if self.lease.send(LeaseCommand::Commit { offsets, reply }).await.is_err() {
            return BTreeSet::new();
        }
        let codes = match timeout(COMMIT_PATIENCE, answer).await {
            Ok(Ok(Ok(codes))) => codes,
            Ok(Ok(Err(error))) => {
                debug!(flow = %self.flow, error, "anchors were not committed");
                tokio::time::sleep(Duration::from_millis(50)).await;
                return BTreeSet::new();
            }
            Ok(Err(_)) | Err(_) => {
                debug!(flow = %self.flow, "the commit of anchors has no answer");
                tokio::time::sleep(Duration::from_millis(50)).await;
                return BTreeSet::new();
            }
        };
        let mut durable = BTreeSet::new();
        for offer in chunk {
            match codes.get(&offer.target) {
                Some(code) if code.is_none() => {
                    durable.insert(offer.copy);
                }
                Some(code) => self.refused(offer, *code),
                None => {
                    debug!(partition = %offer.target, "the commit's answer does not name this partition")
                }
            }
        }
        if durable.is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        durable
    }

    fn refused(&self, offer: &AnchorOffer, code: ErrorCode) {
        let gives_up = coordinator_step(code) == CoordinatorStep::GiveUp;
        if gives_up && self.rare.allows_some(Instant::now(), "the target refuses the anchor", -1, LINES_MAX) {
            warn!(flow = %self.flow, partition = %offer.target, error = %code, "the target refuses the anchor");
        } else {
            debug!(flow = %self.flow, partition = %offer.target, error = %code, "anchor not committed yet");
        }
    }
}

/// How many of these go into one commit.
fn chunk_len(offers: &[AnchorOffer]) -> usize {
    let mut room = METADATA_PER_COMMIT;
    let fits = offers.iter().take(OFFSETS_PER_COMMIT).take_while(|offer| {
        let bytes = match &offer.record {
            record if record.incident().is_some() => METADATA_BYTES_STANDING,
            Record::Anchor(anchor) if anchor.notes.waits.is_none() && anchor.notes.losses.is_empty() => METADATA_BYTES,
            _ => METADATA_BYTES_WAITING,
        };
        let fits = room >= bytes;
        room = room.saturating_sub(bytes);
        fits
    });
    fits.count().max(1)
}

impl SourceCommits {
    /// Shows the position on the source. For people; nothing depends on it.
    async fn commit(&self) {
        let due = self.due.borrow().clone();
        if due.is_empty() {
            return;
        }
        let offset = |(partition, offset): (&TopicPartition, &i64)| OffsetToCommit {
            partition: partition.clone(),
            offset: *offset,
            metadata: String::new(),
        };
        let offsets: Vec<OffsetToCommit> = due.iter().map(offset).collect();
        if let Err(error) = self.try_commit(&offsets).await {
            // What is due stays due, and is shown at the next attempt unless something newer is.
            self.failures.set(self.failures.get().saturating_add(1));
            // The first look-up on a fresh cluster makes its offsets topic, and fails until that has leaders.
            if self.failures.get() != FAILURES_WORTH_A_WARNING {
                debug!(group = %self.group, error, "the position could not be shown on the source");
            } else {
                warn!(
                    group = %self.group,
                    error,
                    "the position could not be shown on the source; copying goes on \
                     (towpath.commit.source.offsets=false turns this off)"
                );
            }
            return;
        }
        self.failures.set(0);
        self.due.borrow_mut().retain(|partition, offset| due.get(partition) != Some(offset));
    }

    /// The position at the end, for which no later attempt will come.
    async fn commit_last(&self) {
        while !self.due.borrow().is_empty() {
            self.commit().await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn try_commit(&self, offsets: &[OffsetToCommit]) -> Result<(), String> {
        let coordinator = self.cluster.coordinator(&self.group).await.map_err(|error| error.to_string())?;
        let connection = self.cluster.broker(coordinator).await.map_err(|error| error.to_string())?;
        let group = GroupConnection::new(connection, self.group.clone(), self.cluster.request_timeout());
        for chunk in offsets.chunks(OFFSETS_PER_COMMIT) {
            let codes = group.commit(-1, "", None, chunk).await.map_err(|error| error.to_string())?;
            if let Some((partition, code)) = codes.iter().find(|(_, code)| !code.is_none()) {
                return Err(format!("{partition}: {code}"));
            }
        }
        Ok(())
    }
}

/// Reads the anchors of `targets`: the group's commits, and where one is missing, its last copy in the runs topic.
/// Tries until it has an answer or `stop`; going on without would take an anchored partition for a fresh one.
pub(super) async fn committed_anchors(
    target: &Cluster,
    group: &Arc<str>,
    runs: &RunsTopic,
    targets: &BTreeSet<TopicPartition>,
    stop: &CancellationToken,
) -> Option<Anchors> {
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(2), backoff::entropy());
    loop {
        let tried = tokio::select! {
            biased;
            () = stop.cancelled() => return None,
            tried = try_read(target, group, runs, targets) => tried,
        };
        match tried {
            Ok(anchors) => return Some(anchors),
            Err(error) => {
                let delay = backoff.next_delay();
                // From then on two seconds lie between them.
                if backoff.attempt() >= 4 && backoff.attempt().is_multiple_of(16) || backoff.attempt() == 4 {
                    warn!(group = %group, error, "anchors cannot be read yet");
                } else {
                    debug!(group = %group, error, "anchors cannot be read yet");
                }
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return None,
                    () = tokio::time::sleep(delay) => {}
                }
            }
        }
    }
}

async fn try_read(
    target: &Cluster,
    group: &Arc<str>,
    runs: &RunsTopic,
    targets: &BTreeSet<TopicPartition>,
) -> Result<Anchors, String> {
    let coordinator = target.coordinator(group).await.map_err(|error| error.to_string())?;
    let connection = target.broker(coordinator).await.map_err(|error| error.to_string())?;
    let coordinator = GroupConnection::new(connection, group.clone(), target.request_timeout());
    let answer = coordinator.fetch_offsets().await.map_err(|error| error.to_string())?;
    if !answer.group_error.is_none() {
        return Err(format!("{}", answer.group_error));
    }
    let mut anchors = Anchors::new();
    for offset in answer.partitions {
        if !targets.contains(&offset.tp) {
            continue;
        }
        if !offset.error_code.is_none() {
            return Err(format!("{}: {}", offset.tp, offset.error_code));
        }
        if offset.committed_offset < 0 {
            continue;
        }
        let metadata = offset.metadata.unwrap_or_default();
        if let Some(anchor) = position(offset.committed_offset, &metadata) {
            anchors.insert(offset.tp, anchor);
        }
    }
    // The copies are asked only if something may be found there: partitions that hold records, but have no commit.
    if targets.iter().any(|partition| !anchors.contains_key(partition)) {
        let copies = runs.read(0).await.map_err(|error| error.to_string())?;
        let mut expired = 0_usize;
        for (partition, (target_next, metadata)) in copies.anchors {
            if targets.contains(&partition)
                && !anchors.contains_key(&partition)
                && let Some(anchor) = position(target_next, &metadata)
            {
                debug!(partition = %partition, "the group has no anchor any more; its last copy is used");
                expired += 1;
                anchors.insert(partition, anchor);
            }
        }
        if expired > 0 {
            info!(partitions = expired, "the group has no anchor of these any more; their last copies are used");
        }
    }
    Ok(anchors)
}

/// The anchor that a record holds; `None` if it says only that the partition stands.
fn position(offset: i64, metadata: &str) -> Option<Result<Anchor, AnchorError>> {
    match Record::from_commit(offset, metadata) {
        Ok(Record::Anchor(anchor)) => Some(Ok(anchor)),
        Ok(Record::Standing(_)) => None,
        Err(error) => Some(Err(error)),
    }
}
