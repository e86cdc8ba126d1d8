//! What operators decided, and what the settings say, about partitions that stand.
//!
//! While partitions of ours stand, the runs topic is looked at every two seconds for what was written since; with none
//! there is nothing to do. A decision about an incident goes to the partition's worker, whose machine knows whether it
//! still stands for that. Where the copy begins anew in another target topic, the partition is given up and assigned again.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};
use tracing::{info, warn};

use super::running::Running;
use crate::{
    backoff,
    client::{ClientError, Cluster},
    mirror::{
        anchor::{Anchor, DecisionId},
        decision::{Action, Decision, copy_anew_key},
        partition::{PartitionState, StopReason},
        report::{Command, CopyId, Report},
        runs::{Row, Rows, RunsTopic},
        settings::{OnSourceRecreated, OnTargetRecreated},
    },
    protocol::{TopicId, TopicName, TopicPartition},
    wall_clock,
};

/// Between looks while partitions stand, and the first one after one began to.
const PAUSE: Duration = Duration::from_secs(2);
const SOON: Duration = Duration::from_millis(100);
/// A partition that goes on is told of several times in this.
const SEEN_WITHIN: Duration = Duration::from_secs(3);
/// About thirty seconds.
const LOOKS_PER_REFRESH: u32 = 15;
/// Looks that fail before nobody waits for them any more.
const FAILURES_MAX: u32 = 5;
/// A remote topic that could not be deleted is tried again after this.
const LEAVE_AGAIN: Duration = Duration::from_secs(30);
/// A remote topic that is to be left is gone by then.
const DELETED_WITHIN_MS: i64 = 60_000;
/// Partitions that stand have nothing in flight; only their last record is awaited.
const GIVE_UP_PATIENCE: Duration = Duration::from_secs(3);

type Reading = Pin<Box<dyn Future<Output = Result<Rows, ClientError>>>>;
type Leaving = Pin<Box<dyn Future<Output = (TopicName, TopicId, Result<(), ClientError>)>>>;

/// What is known of decisions.
#[derive(Default)]
pub(super) struct Desk {
    decisions: BTreeMap<TopicPartition, Decision>,
    /// Where to read on.
    next: i64,
    look_at: Option<Instant>,
    looks: u32,
    failures: u32,
    reading: Option<Reading>,
    leaving: Option<Leaving>,
    left: BTreeSet<TopicId>,
    leave_after: Option<Instant>,
    /// Why copies stand.
    standing: BTreeMap<CopyId, StopReason>,
    /// Of these it is not known yet whether something was decided.
    unseen: BTreeSet<CopyId>,
    /// Those that took a decision, which is not seen yet, and when.
    taken: BTreeMap<CopyId, (DecisionId, Instant)>,
    /// The decision that was not about what these stand for.
    refused: BTreeMap<CopyId, DecisionId>,
}

/// What the desk was busy with.
pub(super) enum Done {
    Look,
    Read(Result<Rows, ClientError>),
    Left(TopicName, TopicId, Result<(), ClientError>),
}

impl Desk {
    /// Whether nothing stands of which a decision may still be found.
    pub(super) fn is_settled(&self) -> bool {
        self.unseen.is_empty()
    }

    pub(super) fn note(&mut self, copy: CopyId, state: &PartitionState) {
        let PartitionState::Stopped(reason) = state else {
            self.forget(copy);
            return;
        };
        let before = self.standing.insert(copy, reason.clone());
        if before.as_ref() != Some(reason) {
            self.unseen.insert(copy);
            self.refused.remove(&copy);
            self.taken.remove(&copy);
            let soon = Instant::now() + SOON;
            self.look_at = Some(self.look_at.map_or(soon, |at| at.min(soon)));
        }
    }

    pub(super) fn forget(&mut self, copy: CopyId) {
        self.standing.remove(&copy);
        self.unseen.remove(&copy);
        self.refused.remove(&copy);
        self.taken.remove(&copy);
    }

    fn is_taken(&self, copy: CopyId, decision: DecisionId) -> bool {
        self.taken.get(&copy).is_some_and(|(taken, at)| *taken == decision && at.elapsed() < SEEN_WITHIN)
    }

    /// The next thing that is done. Cancel-safe: what is on its way stays here.
    pub(super) async fn work(&mut self) -> Done {
        let look_at = self.look_at.filter(|_| self.reading.is_none());
        let look = async {
            match look_at {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            (name, id, left) = on_its_way(&mut self.leaving) => {
                self.leaving = None;
                Done::Left(name, id, left)
            }
            read = on_its_way(&mut self.reading) => {
                self.reading = None;
                Done::Read(read)
            }
            () = look => Done::Look,
        }
    }
}

async fn on_its_way<T>(task: &mut Option<Pin<Box<dyn Future<Output = T>>>>) -> T {
    match task {
        Some(task) => task.await,
        None => std::future::pending().await,
    }
}

/// Writes for all these partitions that they are to leave their target topic, then deletes it. The order matters: who sees
/// that it is gone finds out why.
pub(crate) async fn leave_topic(
    cluster: Cluster,
    runs: RunsTopic,
    topic: TopicName,
    partitions: Vec<(TopicPartition, Vec<TopicId>)>,
    delete: Option<TopicId>,
) -> Result<(), ClientError> {
    let decisions: Vec<_> = partitions.into_iter().map(|(partition, ids)| (partition, leave(&ids))).collect();
    let rows: Vec<_> = decisions.iter().map(|(partition, decision)| Row::Decision(partition, decision)).collect();
    runs.write(&rows).await?;
    match delete {
        Some(id) => cluster.delete_topic(&topic, id).await,
        None => Ok(()),
    }
}

/// The decision to leave target topics.
pub(crate) fn leave(topics: &[TopicId]) -> Decision {
    decision(Action::CopyAnew, copy_anew_key(topics))
}

/// A decision made now.
pub(crate) fn decision(action: Action, answers: String) -> Decision {
    Decision { id: DecisionId(backoff::entropy()), action, answers, decided_ms: wall_clock::now_ms() }
}

impl Running<'_> {
    pub(super) async fn desk_done(&mut self, done: Done, reports: &mut mpsc::Receiver<Report>) {
        match done {
            Done::Look => {
                self.desk.look_at = None;
                if self.desk.standing.is_empty() {
                    return;
                }
                if self.desk.looks.is_multiple_of(LOOKS_PER_REFRESH) {
                    self.look_for_gone();
                }
                self.desk.looks = self.desk.looks.wrapping_add(1);
                let (runs, next) = (self.runs.clone(), self.desk.next);
                self.desk.reading = Some(Box::pin(async move { runs.read(next).await }));
            }
            Done::Read(read) => {
                self.desk.look_at = (!self.desk.standing.is_empty()).then(|| Instant::now() + PAUSE);
                match read {
                    Ok(rows) => {
                        self.desk.failures = 0;
                        self.desk.next = rows.next;
                        self.desk.decisions.extend(rows.decisions);
                        self.carry_out(reports).await;
                    }
                    Err(error) => {
                        self.desk.failures += 1;
                        if self.desk.failures == FAILURES_MAX {
                            warn!(flow = %self.flow.name, %error, "decisions cannot be looked for; it is tried again");
                            self.desk.unseen.clear();
                        }
                    }
                }
            }
            Done::Left(topic, id, left) => match left {
                Ok(()) => {
                    info!(flow = %self.flow.name, topic = topic.as_str(), "the remote topic was deleted, to be copied anew");
                    self.desk.left.insert(id);
                    self.target_leaders.ask();
                    self.discover_soon();
                }
                Err(error) => {
                    warn!(flow = %self.flow.name, topic = topic.as_str(), %error, "the remote topic cannot be left");
                    self.desk.leave_after = Some(Instant::now() + LEAVE_AGAIN);
                    self.desk.unseen.clear();
                }
            },
        }
    }

    /// Topics that are gone may come back, and nothing else asks for them.
    fn look_for_gone(&self) {
        let stands = |code: &str| self.desk.standing.values().any(|reason| reason.code() == code);
        if stands(StopReason::SourceGone.code()) {
            self.source_leaders.ask();
        }
        if stands(StopReason::TargetGone.code()) {
            self.target_leaders.ask();
        }
    }

    /// Looks at each copy that stands: what was decided about it, and what the settings say.
    async fn carry_out(&mut self, reports: &mut mpsc::Receiver<Report>) {
        let settings = &self.flow.settings;
        let begins = settings.on_target_recreated == OnTargetRecreated::Begin;
        let recreates = settings.on_source_recreated == OnSourceRecreated::RecreateTarget;
        let remotes = self.flow.target.snapshot();
        let mut lots: BTreeMap<usize, Vec<_>> = BTreeMap::new();
        let (mut anew, mut gone, mut leave) = (Vec::new(), false, None);
        for (id, reason) in &self.desk.standing {
            let Some(copy) = self.copies.get(id) else {
                continue;
            };
            let decision = self.desk.decisions.get(&copy.target);
            let decided = |topic: TopicId| decision.is_some_and(|decision| decision.leaves(topic));
            let leaves = |topic: TopicId| begins || decided(topic);
            let now = remotes.topic_id(&copy.target.topic);
            match (reason, decision) {
                (StopReason::TargetRecreated { anchored, found, .. }, _) if leaves(*anchored) && !decided(*found) => {
                    anew.push(*id);
                }
                // It is to be created, or was, and the worker is about to learn that.
                _ if leaves(copy.target_topic_id)
                    && (now.is_none() || reason.code() == StopReason::TargetGone.code()) =>
                {
                    gone |= now.is_none();
                    if self.refusals.contains_key(&copy.target.topic) {
                        self.desk.unseen.remove(id);
                    }
                }
                // Only the topic that holds the former copy: another worker may have left it already.
                (StopReason::SourceRecreated { .. }, _) if recreates => {
                    if now == Some(copy.target_topic_id) && !self.desk.left.contains(&copy.target_topic_id) {
                        leave = Some((copy.target.topic.clone(), copy.target_topic_id));
                    }
                }
                // Its anchor cannot be read, so that it does not know its former topic itself.
                (StopReason::PositionUnknown { .. }, Some(decision))
                    if decision.leaves(copy.target_topic_id) && now.is_some_and(|now| now != copy.target_topic_id) =>
                {
                    anew.push(*id);
                }
                // The worker is about to learn that its topic is another one.
                _ if decided(copy.target_topic_id) && now.is_some_and(|now| now != copy.target_topic_id) => {}
                (_, Some(decision)) if self.desk.is_taken(*id, decision.id) => {}
                (_, Some(decision))
                    if decision.action == Action::GoOn && self.desk.refused.get(id) != Some(&decision.id) =>
                {
                    lots.entry(copy.worker).or_default().push((*id, decision.clone()));
                }
                // It is about to be deleted, which nobody else may notice; or whoever decided could not do it.
                (_, Some(decision)) if now.is_some_and(decided) => {
                    self.target_leaders.ask();
                    if wall_clock::now_ms().saturating_sub(decision.decided_ms) > DELETED_WITHIN_MS {
                        self.desk.unseen.remove(id);
                    }
                }
                _ => {
                    self.desk.unseen.remove(id);
                }
            }
        }
        for (worker, lot) in lots {
            let handed: Vec<(CopyId, DecisionId)> = lot.iter().map(|(id, decision)| (*id, decision.id)).collect();
            let (done, taken) = oneshot::channel();
            if let Some(shard) = self.shards.get(worker) {
                let _ = shard.send(Command::Decide { decisions: lot, done }).await;
            }
            let taken = taken.await.unwrap_or_default();
            for (id, decision) in handed {
                if taken.contains(&id) {
                    // It is seen to go on by its next report.
                    self.desk.taken.insert(id, (decision, Instant::now()));
                } else {
                    self.desk.refused.insert(id, decision);
                    self.desk.unseen.remove(&id);
                }
            }
        }
        if gone {
            self.discover_soon();
        }
        let rested = self.desk.leave_after.is_none_or(|at| at <= Instant::now());
        if let Some((topic, id)) = leave
            && self.desk.leaving.is_none()
            && rested
        {
            let (cluster, runs) = (self.flow.target.clone(), self.runs.clone());
            let partitions = remotes.partitions_of(&topic).map(|partition| (partition, vec![id])).collect();
            self.desk.leaving = Some(Box::pin(async move {
                let left = leave_topic(cluster, runs, topic.clone(), partitions, Some(id)).await;
                (topic, id, left)
            }));
        }
        if !anew.is_empty() {
            self.give_up(&anew, GIVE_UP_PATIENCE, reports).await;
            self.assign(self.owned, true).await;
        }
    }

    /// Whether the copy begins anew because this anchor belongs to a target topic that was left.
    pub(super) fn begins_anew(&self, anchor: Option<&Anchor>, target: &TopicPartition) -> bool {
        let found = self.flow.target.snapshot().topic_id(&target.topic).unwrap_or_default();
        let decision = self.desk.decisions.get(target);
        match anchor {
            Some(anchor) => {
                let left = anchor.target_topic_id;
                !found.is_zero()
                    && !left.is_zero()
                    && found != left
                    && !decision.is_some_and(|decision| decision.leaves(found))
                    && (self.flow.settings.on_target_recreated == OnTargetRecreated::Begin
                        || decision.is_some_and(|decision| decision.leaves(left)))
            }
            // It cannot be read; somebody decided to leave the topic that it belonged to.
            None => decision.is_some_and(|decision| decision.action == Action::CopyAnew && !decision.leaves(found)),
        }
    }
}
