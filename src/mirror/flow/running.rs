//! A flow while it runs: ownership, topics, reports, and an end in order.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until},
};
use tracing::{error, info, warn};

use super::{
    Flow, FlowContext, FlowEnd, FlowError,
    anchors::committed_anchors,
    decisions::Desk,
    discovery::{Discovered, Discovery, Refusal, Renewed},
    leaders::Leaders,
    losses::log_losses,
    missing::{Missing, MissingOnes},
};
use crate::{
    mirror::{
        anchor::AnchorError,
        identity::{IdentityOf, identity},
        lease::{RevokeReason, SlotSet, slot_of},
        lease_driver::{LeaseCommand, LeaseEvent},
        partition::{PartitionSpec, PartitionState, StopReason},
        report::{AnchorOffer, AnchorOutcome, Command, CopyId, Report},
        runs::RunsTopic,
    },
    protocol::{TopicId, TopicName, TopicPartition},
};

/// How long revoked or stopping partitions may take to settle. The rest of the ten seconds a stop may take is for the
/// last anchors.
const DRAIN_PATIENCE: Duration = Duration::from_secs(6);

/// Topics being looked for.
type Looking<'a> = Pin<Box<dyn Future<Output = Result<Renewed, FlowError>> + 'a>>;

pub(super) struct Copy {
    source: TopicPartition,
    pub(super) target: TopicPartition,
    /// As it was when this began.
    pub(super) target_topic_id: TopicId,
    slot: u8,
    pub(super) worker: usize,
}

pub(super) struct Running<'a> {
    pub(super) flow: &'a Flow,
    context: &'a FlowContext,
    discovery: Discovery<'a>,
    pub(super) runs: RunsTopic,
    group: Arc<str>,
    pub(super) shards: Vec<mpsc::Sender<Command>>,
    lease_commands: mpsc::Sender<LeaseCommand>,
    pub(super) anchor_offers: mpsc::Sender<Vec<AnchorOffer>>,
    pub(super) copies: BTreeMap<CopyId, Copy>,
    next_id: u32,
    /// Slots of the lease that are ours.
    pub(super) owned: SlotSet,
    assigned_once: bool,
    /// Topics at the start; others begin at their beginning even under `latest`.
    first_topics: BTreeSet<TopicName>,
    topics: Vec<Discovered>,
    /// What the target refuses to create or grow, by remote topic.
    pub(super) refusals: BTreeMap<TopicName, Refusal>,
    /// Remote topics that are gone: their partitions stand.
    gone: BTreeSet<TopicName>,
    /// Partitions of ours that have no place on the target, and are looked for again soon.
    pub(super) missing: MissingOnes,
    pub(super) source_leaders: Leaders,
    pub(super) target_leaders: Leaders,
    /// What was decided about partitions that stand.
    pub(super) desk: Desk,
    /// Topics are to be looked for at once.
    discover_now: bool,
    /// Set once a stop was seen: everything in flight must have settled by then.
    settle_by: Option<Instant>,
}

/// Where a running flow sends things.
pub(super) struct Links {
    pub(super) shards: Vec<mpsc::Sender<Command>>,
    pub(super) lease_commands: mpsc::Sender<LeaseCommand>,
    pub(super) anchor_offers: mpsc::Sender<Vec<AnchorOffer>>,
    pub(super) source_leaders: Leaders,
    pub(super) target_leaders: Leaders,
}

impl<'a> Running<'a> {
    /// A flow that owns nothing yet; `topics` is what was found at its start, `refusals` what the target refused then.
    pub(super) fn new(
        flow: &'a Flow,
        context: &'a FlowContext,
        discovery: Discovery<'a>,
        runs: RunsTopic,
        group: Arc<str>,
        links: Links,
        found: Renewed,
    ) -> Self {
        let Renewed { topics, refusals, gone } = found;
        let running = Self {
            flow,
            context,
            discovery,
            runs,
            group,
            shards: links.shards,
            lease_commands: links.lease_commands,
            anchor_offers: links.anchor_offers,
            copies: BTreeMap::new(),
            next_id: 0,
            owned: SlotSet::EMPTY,
            assigned_once: false,
            first_topics: topics.iter().map(|topic| topic.source.clone()).collect(),
            topics,
            refusals,
            gone,
            missing: MissingOnes::default(),
            source_leaders: links.source_leaders,
            target_leaders: links.target_leaders,
            desk: Desk::default(),
            discover_now: false,
            settle_by: None,
        };
        running.follow_leaders();
        running
    }

    fn follow_leaders(&self) {
        let names = |name: fn(&Discovered) -> &TopicName| self.topics.iter().map(name).cloned().collect();
        self.source_leaders.set_topics(names(|topic| &topic.source));
        let mut remotes: BTreeSet<TopicName> = names(|topic| &topic.target);
        remotes.insert(self.runs.topic().clone());
        self.target_leaders.set_topics(remotes);
    }

    pub(super) async fn follow(
        &mut self,
        mut lease_events: mpsc::Receiver<LeaseEvent>,
        reports: &mut mpsc::Receiver<Report>,
    ) -> Result<(), FlowError> {
        let interval = self.flow.settings.refresh_topics;
        let mut next_discovery = interval.map(|interval| Instant::now() + interval);
        // Beside the loop: a broker that does not answer must not hold up the lease or anchors.
        let mut looking: Option<Looking<'a>> = None;
        loop {
            if std::mem::take(&mut self.discover_now) {
                next_discovery = Some(Instant::now());
            }
            if let Some(pause) = self.missing_pause() {
                let soon = Instant::now() + pause;
                next_discovery = Some(next_discovery.map_or(soon, |next| next.min(soon)));
            }
            tokio::select! {
                biased;
                () = self.context.stop.cancelled() => return Ok(()),
                event = lease_events.recv() => match event {
                    Some(LeaseEvent::Own(slots)) => self.own(slots).await,
                    Some(LeaseEvent::Revoke(slots, why)) => self.revoke(slots, why, reports).await,
                    Some(LeaseEvent::Lost(why)) => {
                        error!(flow = %self.flow.name, reason = %why, "the lease is lost for good");
                        return Err(FlowError::Lease(why));
                    }
                    None => return Ok(()),
                },
                report = reports.recv() => match report {
                    Some(report) => self.report(report).await,
                    None => return Ok(()),
                },
                found = async { looking.as_mut().expect("guarded below").await }, if looking.is_some() => {
                    looking = None;
                    self.discovered(found).await;
                }
                done = self.desk.work() => self.desk_done(done, reports).await,
                () = sleep_until(next_discovery.unwrap_or_else(Instant::now)),
                    if next_discovery.is_some() && looking.is_none() =>
                {
                    next_discovery = interval.map(|interval| Instant::now() + interval);
                    looking = Some(Box::pin(self.discovery.renew(self.refusals.clone())));
                }
            }
            if self.context.until_caught_up && self.is_caught_up() {
                return Ok(());
            }
        }
    }

    fn is_caught_up(&self) -> bool {
        let status = self.flow.status.borrow();
        self.assigned_once
            && self.desk.is_settled()
            && self.missing.partitions.values().all(|missing| self.refusals.contains_key(&missing.target))
            && self.copies.keys().all(|id| {
                status
                    .partitions
                    .get(id)
                    .is_some_and(|(_, row)| row.reached_goal || matches!(row.state, PartitionState::Stopped(_)))
            })
    }

    pub(super) fn not_copied(&self) -> Vec<(String, String)> {
        let status = self.flow.status.borrow();
        let rows = status.partitions.values().map(|(name, row)| (name, &row.state));
        rows.chain(&status.missing)
            .filter_map(|(name, state)| match state {
                PartitionState::Stopped(reason) => {
                    let topic = name.rsplit_once('-').map_or(name.as_str(), |(topic, _)| topic);
                    Some((name.clone(), format!("{reason}; {}", reason.remedy_for(topic))))
                }
                _ => None,
            })
            .collect()
    }

    /// Partitions that a stop kept from what `--until-caught-up` asks for.
    pub(super) fn interrupted(&self) -> Vec<(String, String)> {
        if !self.assigned_once {
            return FlowEnd::unstarted(true, "stopped before anything was copied").not_copied;
        }
        let status = self.flow.status.borrow();
        let mut behind = Vec::new();
        for (id, copy) in &self.copies {
            let why = match status.partitions.get(id) {
                Some((_, row)) if row.reached_goal || matches!(row.state, PartitionState::Stopped(_)) => continue,
                Some((_, row)) if row.lag > 0 => format!("stopped by a signal, {} records behind", row.lag),
                _ => "stopped by a signal before it was located".to_owned(),
            };
            behind.push((copy.source.to_string(), why));
        }
        behind
    }

    async fn report(&mut self, report: Report) {
        match report {
            Report::Partitions(rows) => {
                self.context.sum_up(&self.flow.name);
                let mut status = self.flow.status.borrow_mut();
                for (id, row) in rows {
                    if let Some(copy) = self.copies.get(&id) {
                        let before = status.partitions.get(&id).map(|(_, row)| row);
                        log_losses(&self.context.rare, &self.flow.name, &copy.source, before, &row);
                        self.desk.note(id, &row.state);
                        status.note(id, copy.source.to_string(), row);
                    }
                }
            }
            Report::Anchors(offers) => {
                // The committer takes one lot after the other; while it waits for the coordinator, offers wait in
                // the shards, which count their tails.
                if let Err(error) = self.anchor_offers.try_send(offers) {
                    let offers = match error {
                        mpsc::error::TrySendError::Full(offers) | mpsc::error::TrySendError::Closed(offers) => offers,
                    };
                    self.refuse_anchors(offers).await;
                }
            }
            Report::RefreshSource => self.source_leaders.ask(),
            Report::RefreshTarget => self.target_leaders.ask(),
        }
    }

    async fn refuse_anchors(&self, offers: Vec<AnchorOffer>) {
        for shard in &self.shards {
            let outcomes = offers.iter().map(|offer| AnchorOutcome { copy: offer.copy, durable: None }).collect();
            let _ = shard.send(Command::Anchored(outcomes)).await;
        }
    }

    async fn discovered(&mut self, found: Result<Renewed, FlowError>) {
        match found {
            Ok(found) => {
                let former = std::mem::replace(&mut self.topics, found.topics);
                if self.topics.is_empty() && !former.is_empty() {
                    self.flow.warn_no_topics(false);
                }
                self.tell_limits(&former).await;
                self.refusals = found.refusals;
                self.gone = found.gone;
                self.follow_leaders();
                let owned = self.owned;
                self.assign(owned, true).await;
                if self.assigned_once {
                    self.show_state();
                }
            }
            Err(error) if self.context.may_say("topics could not be looked for", 1) => {
                warn!(flow = %self.flow.name, %error, "topics could not be looked for");
            }
            Err(_) => {}
        }
    }

    /// Tells the workers where the target takes larger or smaller batches than when its partitions were assigned.
    async fn tell_limits(&self, former: &[Discovered]) {
        let before: BTreeMap<&TopicName, Option<usize>> =
            former.iter().map(|topic| (&topic.source, topic.target_batch_bytes_max)).collect();
        let changed: BTreeMap<&TopicName, Option<usize>> = self
            .topics
            .iter()
            .filter(|topic| before.get(&topic.source).is_some_and(|limit| *limit != topic.target_batch_bytes_max))
            .map(|topic| (&topic.source, topic.target_batch_bytes_max))
            .collect();
        let mut lots: BTreeMap<usize, Vec<_>> = BTreeMap::new();
        for (id, copy) in &self.copies {
            if let Some(limit) = changed.get(&copy.source.topic) {
                lots.entry(copy.worker).or_default().push((*id, *limit));
            }
        }
        for (worker, lot) in lots {
            if let Some(shard) = self.shards.get(worker) {
                let _ = shard.send(Command::Limits(lot)).await;
            }
        }
    }

    async fn own(&mut self, slots: SlotSet) {
        self.owned = self.owned.union(&slots);
        self.show_state();
        self.flow.status.borrow_mut().began = true;
        self.assign(slots, false).await;
        self.assigned_once = true;
    }

    fn show_state(&self) {
        self.flow.status.borrow_mut().matches_nothing = self.topics.is_empty();
        let state = if self.topics.is_empty() { "no topics to copy" } else { "copying" };
        self.flow.status.borrow_mut().set_state(state);
    }

    /// Has topics looked for at once.
    pub(super) fn discover_soon(&mut self) {
        self.discover_now = true;
    }

    /// Gives every partition of these slots that nobody copies yet to a worker.
    pub(super) async fn assign(&mut self, slots: SlotSet, appeared: bool) {
        let known: BTreeSet<TopicPartition> = self.copies.values().map(|copy| copy.source.clone()).collect();
        let mut fresh = Vec::new();
        let remotes = self.flow.target.snapshot();
        for topic in &self.topics {
            for partition in 0..topic.partitions {
                let source = TopicPartition::new(topic.source.clone(), partition);
                let slot = slot_of(topic.target.as_str(), partition);
                if !slots.contains(slot) || known.contains(&source) {
                    continue;
                }
                let target = TopicPartition::new(topic.target.clone(), partition);
                let missing = self.missing.partitions.remove(&source);
                let appeared = missing.map_or(appeared, |missing| missing.appeared);
                let is_gone = self.gone.contains(&topic.target);
                if topic.refused.is_none() && remotes.leader(&target).is_none() && !is_gone {
                    self.missing.partitions.insert(source, Missing { target: topic.target.clone(), appeared });
                } else {
                    fresh.push((topic.clone(), source, slot, appeared));
                }
            }
        }
        self.show_missing();
        if fresh.is_empty() {
            return;
        }
        let targets: BTreeSet<TopicPartition> = fresh
            .iter()
            .map(|(topic, source, ..)| TopicPartition::new(topic.target.clone(), source.partition))
            .collect();
        let anchors = committed_anchors(&self.flow.target, &self.group, &self.runs, &targets, &self.context.stop).await;
        let Some(anchors) = anchors else { return };
        let sources = self.flow.source.snapshot();
        let mut lots: BTreeMap<usize, Vec<_>> = BTreeMap::new();
        for (topic, source, slot, appeared) in fresh {
            let target = TopicPartition::new(topic.target.clone(), source.partition);
            let source_topic_id = sources.topic_id(&source.topic).unwrap_or_default();
            let (mut anchor, mut trouble) = match anchors.get(&target) {
                Some(Ok(anchor)) => (Some(anchor.clone()), None),
                Some(Err(error)) => (None, Some(unreadable(error))),
                None => (None, None),
            };
            let anew = (anchor.is_some() || trouble.is_some()) && self.begins_anew(anchor.as_ref(), &target);
            if anew {
                warn!(flow = %self.flow.name, partition = %target, "the target topic is another one; the copy begins anew");
                (anchor, trouble) = (None, None);
            }
            let is_gone = self.gone.contains(&topic.target) && remotes.topic_id(&topic.target).is_none();
            let reason = topic.refused.clone().map(|why| StopReason::TwoWriters { why }).or(trouble);
            let reason = reason.or_else(|| is_gone.then_some(StopReason::TargetGone));
            let fresh_identity = identity(IdentityOf {
                source_cluster: &self.flow.source_cluster_id,
                target_cluster: &self.flow.target_cluster_id,
                flow: &self.flow.name,
                partition: &source,
                topic_id: source_topic_id,
            });
            let former = anchor.as_ref().filter(|_| is_gone).map(|anchor| anchor.target_topic_id);
            let target_topic_id = remotes.topic_id(&target.topic).or(former).unwrap_or_default();
            let spec = PartitionSpec {
                target_topic_id,
                source: source.clone(),
                target: target.clone(),
                source_cluster: self.flow.source_cluster_id.clone(),
                source_topic_id,
                fresh_identity,
                anchor,
                target_batch_bytes_max: topic.target_batch_bytes_max,
                appeared_later: appeared || anew || !self.first_topics.contains(&source.topic),
            };
            let id = CopyId(self.next_id);
            self.next_id = self.next_id.wrapping_add(1);
            let worker = usize::try_from(id.0).unwrap_or(0) % self.shards.len().max(1);
            self.copies.insert(id, Copy { source, target, target_topic_id, slot, worker });
            lots.entry(worker).or_default().push((id, spec, reason));
        }
        info!(
            flow = %self.flow.name,
            partitions = lots.values().map(Vec::len).sum::<usize>(),
            anchors = anchors.len(),
            "partitions assigned"
        );
        for (worker, lot) in lots {
            if let Some(shard) = self.shards.get(worker) {
                let _ = shard.send(Command::Assign(lot)).await;
            }
        }
    }

    /// Names partitions that are caught up only as far as an open transaction lets them.
    pub(super) fn log_held(&self) {
        for (name, row) in self.flow.status.borrow().partitions.values() {
            if matches!(row.state, PartitionState::HeldByTransaction { .. }) {
                info!(flow = %self.flow.name, partition = %name, state = %row.state, "caught up");
            }
        }
    }

    async fn revoke(&mut self, slots: SlotSet, why: RevokeReason, reports: &mut mpsc::Receiver<Report>) {
        self.owned = self.owned.minus(&slots);
        let missing = &mut self.missing.partitions;
        missing.retain(|source, missing| !slots.contains(slot_of(missing.target.as_str(), source.partition.0)));
        self.show_missing();
        let going: Vec<CopyId> =
            self.copies.iter().filter(|(_, copy)| slots.contains(copy.slot)).map(|(id, _)| *id).collect();
        warn!(flow = %self.flow.name, partitions = going.len(), %why, "partitions given up");
        let patience = if why == RevokeReason::Lost { Duration::from_millis(200) } else { DRAIN_PATIENCE };
        self.give_up(&going, patience, reports).await;
        let _ = self.lease_commands.send(LeaseCommand::Revoked(slots)).await;
    }

    /// Lets workers stop these; true if all of them settled in time.
    pub(super) async fn give_up(
        &mut self,
        going: &[CopyId],
        patience: Duration,
        reports: &mut mpsc::Receiver<Report>,
    ) -> bool {
        let mut waiting = Vec::new();
        for (worker, shard) in self.shards.iter().enumerate() {
            let copies: Vec<CopyId> = going
                .iter()
                .copied()
                .filter(|id| self.copies.get(id).is_some_and(|copy| copy.worker == worker))
                .collect();
            if copies.is_empty() {
                continue;
            }
            let (done, settled) = oneshot::channel();
            let _ = shard.send(Command::Revoke { copies, done }).await;
            waiting.push(settled);
        }
        let stop = &self.context.stop;
        let mut deadline = Instant::now() + patience;
        if let Some(by) = self.settle_by {
            deadline = deadline.min(by);
        }
        let mut all = true;
        for mut settled in waiting {
            loop {
                tokio::select! {
                    biased;
                    result = &mut settled => {
                        all &= result.is_ok();
                        break;
                    }
                    // Last anchors come as reports.
                    report = reports.recv() => match report {
                        Some(report) => self.report(report).await,
                        None => break,
                    },
                    // A stop in the middle of a revocation: both together have the time of one.
                    () = stop.cancelled(), if self.settle_by.is_none() => {
                        let by = Instant::now() + DRAIN_PATIENCE;
                        self.settle_by = Some(by);
                        deadline = deadline.min(by);
                    }
                    () = sleep_until(deadline) => {
                        all = false;
                        break;
                    }
                }
            }
        }
        for id in going {
            self.copies.remove(id);
            self.desk.forget(*id);
            self.flow.status.borrow_mut().forget(*id);
        }
        all
    }

    /// Ends in order: stop fetching, let what is in flight settle, make last anchors durable.
    pub(super) async fn drain(&mut self, reports: &mut mpsc::Receiver<Report>) -> bool {
        self.flow.status.borrow_mut().end("stopping");
        let all: Vec<CopyId> = self.copies.keys().copied().collect();
        let settled = self.give_up(&all, DRAIN_PATIENCE, reports).await;
        info!(flow = %self.flow.name, partitions = all.len(), settled, "drained");
        settled
    }
}

fn unreadable(error: &AnchorError) -> StopReason {
    StopReason::PositionUnknown { why: format!("its anchor cannot be read: {error}") }
}
