//! Makes anchors durable: runs first, then the commit, in the member's name; and reads them back.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{Anchors, Flow};
use crate::{
    backoff::{self, Backoff},
    client::{
        Cluster, GroupConnection, OffsetToCommit,
        recovery::{CoordinatorStep, coordinator_step},
    },
    mirror::{
        anchor::Anchor,
        lease_driver::LeaseCommand,
        partition::PartitionState,
        report::{AnchorOffer, AnchorOutcome, Command, CopyId},
        runs::{Row, RunsTopic},
    },
    protocol::{ErrorCode, TopicPartition},
};

/// Offsets of one commit: about 250 bytes each, and a commit must stay well below a megabyte (`design.md` 4).
const OFFSETS_PER_COMMIT: usize = 1000;
/// How often last anchors are copied to the runs topic, where they do not expire.
const COPY_INTERVAL: Duration = Duration::from_secs(3600);
/// A commit that has no answer in this time counts as failed; it is offered again.
const COMMIT_PATIENCE: Duration = Duration::from_secs(35);
/// Copies of anchors that are written at a stop must not hold it up.
const LAST_COPIES_PATIENCE: Duration = Duration::from_millis(1500);
/// Between commits of the position on the source, which people's lag tools read.
const SOURCE_COMMIT_INTERVAL: Duration = Duration::from_secs(5);

/// Showing the last position on the source must not hold a stop up either.
const LAST_SHOWN_PATIENCE: Duration = Duration::from_secs(1);
/// Failed attempts to show the position after which people are told.
const FAILURES_WORTH_A_WARNING: u32 = 3;

/// Commits the offers of one flow, one lot after the other.
pub(super) struct Committer {
    flow: Arc<str>,
    runs: RunsTopic,
    lease: mpsc::Sender<LeaseCommand>,
    /// The last durable anchor of each partition that the runs topic does not have yet.
    uncopied: BTreeMap<TopicPartition, Anchor>,
    source: Option<SourceCommits>,
}

struct SourceCommits {
    cluster: Cluster,
    group: Arc<str>,
    due: BTreeMap<TopicPartition, i64>,
    next: Instant,
    failures: u32,
}

impl Committer {
    pub(super) fn new(flow: &Flow, runs: RunsTopic, lease: mpsc::Sender<LeaseCommand>) -> Self {
        let source = flow.settings.commit_source_offsets.then(|| SourceCommits {
            cluster: flow.source.clone(),
            group: flow.settings.source_group_id().into(),
            due: BTreeMap::new(),
            next: Instant::now() + SOURCE_COMMIT_INTERVAL,
            failures: 0,
        });
        Self { flow: flow.name.clone(), runs, lease, uncopied: BTreeMap::new(), source }
    }

    /// Runs until the offers end, then writes the last copies.
    pub(super) async fn run(
        mut self,
        mut offers: mpsc::Receiver<Vec<AnchorOffer>>,
        shards: Vec<mpsc::Sender<Command>>,
    ) {
        let mut next_copies = Instant::now() + COPY_INTERVAL;
        loop {
            let source_due = self.source.as_ref().filter(|source| !source.due.is_empty()).map(|source| source.next);
            tokio::select! {
                biased;
                lot = offers.recv() => match lot {
                    Some(lot) => self.commit(lot, &shards).await,
                    None => break,
                },
                () = tokio::time::sleep_until(next_copies) => {
                    next_copies = Instant::now() + COPY_INTERVAL;
                    self.write_copies().await;
                }
                () = tokio::time::sleep_until(source_due.unwrap_or_else(Instant::now)), if source_due.is_some() => {
                    if let Some(source) = &mut self.source {
                        source.commit().await;
                    }
                }
            }
        }
        let last = async {
            self.write_copies().await;
        };
        if timeout(LAST_COPIES_PATIENCE, last).await.is_err() {
            info!(flow = %self.flow, "copies of the last anchors were not written in time; the anchors themselves are durable");
        }
        if let Some(source) = &mut self.source {
            let _ = timeout(LAST_SHOWN_PATIENCE, source.commit_last()).await;
        }
    }

    async fn commit(&mut self, lot: Vec<AnchorOffer>, shards: &[mpsc::Sender<Command>]) {
        let mut outcomes: Vec<AnchorOutcome> = Vec::with_capacity(lot.len());
        if let Err(error) = self.write_breaks(&lot).await {
            warn!(flow = %self.flow, %error, "runs could not be written; anchors wait");
            outcomes.extend(lot.iter().map(|offer| AnchorOutcome { copy: offer.copy, durable: None }));
            // Offered again at once otherwise.
            tokio::time::sleep(Duration::from_millis(200)).await;
        } else {
            for chunk in lot.chunks(OFFSETS_PER_COMMIT) {
                let durable = self.commit_chunk(chunk).await;
                for offer in chunk {
                    let good = durable.contains(&offer.copy);
                    let durable = good.then_some((offer.breaks.len(), offer.tail_bytes));
                    outcomes.push(AnchorOutcome { copy: offer.copy, durable });
                    if good {
                        self.note(offer);
                    }
                }
            }
        }
        for shard in shards {
            // Each shard knows its own copies and skips the others'.
            let _ = shard.send(Command::Anchored(outcomes.clone())).await;
        }
        // The first anchor of a partition is copied at once: its group commit may expire before the hour is over.
        let first = lot.iter().any(|offer| offer.anchor.state == PartitionState::Anchoring.code());
        if first {
            self.write_copies().await;
        }
    }

    fn note(&mut self, offer: &AnchorOffer) {
        self.uncopied.insert(offer.target.clone(), offer.anchor.clone());
        if let Some(source) = &mut self.source {
            source.due.insert(offer.source.clone(), offer.anchor.position.source_next);
        }
    }

    async fn write_breaks(&self, lot: &[AnchorOffer]) -> Result<(), crate::client::ClientError> {
        let rows: Vec<Row<'_>> = lot
            .iter()
            .flat_map(|offer| offer.breaks.iter().map(|run| Row::Break(&offer.target, &offer.anchor, *run)))
            .collect();
        if rows.is_empty() { Ok(()) } else { self.runs.write(&rows).await }
    }

    async fn write_copies(&mut self) {
        if self.uncopied.is_empty() {
            return;
        }
        let rows: Vec<Row<'_>> = self.uncopied.iter().map(|(target, anchor)| Row::Anchor(target, anchor)).collect();
        match self.runs.write(&rows).await {
            Ok(()) => self.uncopied.clear(),
            Err(error) => {
                warn!(flow = %self.flow, %error, "copies of anchors could not be written; tried again later")
            }
        }
    }

    /// Commits; returns which are durable.
    async fn commit_chunk(&self, chunk: &[AnchorOffer]) -> BTreeSet<CopyId> {
        let offsets = chunk
            .iter()
            .map(|offer| OffsetToCommit {
                partition: offer.target.clone(),
                offset: offer.anchor.position.target_next,
                metadata: offer.anchor.to_metadata(),
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
        if coordinator_step(code) == CoordinatorStep::GiveUp {
            warn!(flow = %self.flow, partition = %offer.target, error = %code, "the target refuses the anchor");
        } else {
            debug!(flow = %self.flow, partition = %offer.target, error = %code, "anchor not committed yet");
        }
    }
}

impl SourceCommits {
    /// Shows the position on the source. For people; nothing depends on it.
    async fn commit(&mut self) {
        self.next = Instant::now() + SOURCE_COMMIT_INTERVAL;
        let due = std::mem::take(&mut self.due);
        if due.is_empty() {
            return;
        }
        let offsets: Vec<OffsetToCommit> = due
            .into_iter()
            .map(|(partition, offset)| OffsetToCommit { partition, offset, metadata: String::new() })
            .collect();
        if let Err(error) = self.try_commit(&offsets).await {
            // Shown at the next attempt, unless something newer is.
            for offset in offsets {
                self.due.entry(offset.partition).or_insert(offset.offset);
            }
            self.failures += 1;
            // The first look-up on a fresh cluster makes its offsets topic, and fails until that has leaders.
            if self.failures != FAILURES_WORTH_A_WARNING {
                debug!(group = %self.group, error, "the position could not be shown on the source");
            } else {
                warn!(
                    group = %self.group,
                    error,
                    "the position could not be shown on the source; copying goes on \
                     (towpath.commit.source.offsets=false turns this off)"
                );
            }
        }
    }

    /// The position at the end, for which no later attempt will come.
    async fn commit_last(&mut self) {
        while !self.due.is_empty() {
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
                if backoff.attempt() >= 4 {
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
        anchors.insert(offset.tp, Anchor::from_commit(offset.committed_offset, &metadata));
    }
    // The copies are asked only if something may be found there: partitions that hold records, but have no commit.
    if targets.iter().any(|partition| !anchors.contains_key(partition)) {
        let copies = runs.read_anchors().await.map_err(|error| error.to_string())?;
        for (partition, (target_next, metadata)) in copies {
            if targets.contains(&partition) && !anchors.contains_key(&partition) {
                info!(partition = %partition, "the group has no anchor any more; its last copy is used");
                anchors.insert(partition, Anchor::from_commit(target_next, &metadata));
            }
        }
    }
    Ok(anchors)
}
