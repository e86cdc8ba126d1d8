//! `towpath resume`: reads from the target why partitions stand, and writes down what is decided about them.
//!
//! A mirror that runs takes it up within seconds, another one at its next start. Nothing here needs the source.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    anchor::{AnchorError, Record},
    decision::{Action, Decision},
    flow::{decision, leave, leave_topic, lone_cluster},
    lease::lease_group,
    partition::go_on,
    records::read_records,
    runs::{Row, RunsTopic},
    settings::FlowSettings,
};
use crate::{
    client::{ClientError, Cluster},
    net::Connector,
    protocol::{TopicId, TopicName, TopicPartition},
};

/// How long the target is tried.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is to be decided.
#[derive(Debug)]
pub struct Resume {
    /// The flow.
    pub flow: FlowSettings,
    /// The topic at the source.
    pub topic: String,
    /// Only these; empty: all that stand.
    pub partitions: Vec<i32>,
    /// Only those that stand for this.
    pub accept: Option<String>,
    /// Delete the remote topic and copy from the beginning.
    pub recreate_target: bool,
    /// Decide nothing.
    pub dry_run: bool,
}

/// One partition and what becomes of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// At the source.
    pub partition: TopicPartition,
    /// State code as recorded.
    pub state: String,
    /// Why it stands, as recorded.
    pub reason: String,
    /// What it does next; `None`: nothing was decided about it.
    pub decided: Option<String>,
}

/// Why nothing was decided.
#[derive(Debug, thiserror::Error)]
pub enum ResumeError {
    /// The target cannot be asked.
    #[error("{0}")]
    Target(#[from] ClientError),
}

/// Shows why partitions stand, and decides.
///
/// # Errors
/// See [`ResumeError`]. That nothing stands is no error: the list then has no decision in it.
pub async fn resume(asked: &Resume) -> Result<Vec<Answered>, ResumeError> {
    resume_over(asked, None).await
}

/// As [`resume`], over another way than TCP: in a simulation.
///
/// # Errors
/// As [`resume`].
pub async fn resume_over(
    asked: &Resume,
    connector: Option<std::sync::Arc<dyn Connector>>,
) -> Result<Vec<Answered>, ResumeError> {
    let cluster = lone_cluster(&asked.flow.target, connector);
    cluster.bootstrap(Some(Instant::now() + PATIENCE), || ()).await?;
    cluster.refresh_all().await?;
    let source = asked.flow.source.alias.as_str();
    let runs = RunsTopic::new(cluster.clone(), source);
    let remote = TopicName::new(asked.flow.policy.remote_topic(source, &asked.topic));
    let group = lease_group(source, asked.flow.target.alias.as_str());
    if cluster.snapshot().topic_id(runs.topic()).is_none() {
        // No flow ever ran.
        return Ok(Vec::new());
    }
    let records = read_records(&cluster, &group, &runs, |_| true).await?;
    let mut plan = Plan::default();
    let current = cluster.snapshot().topic_id(&remote);
    for (partition, record) in records.into_iter().filter(|(partition, _)| partition.topic == remote) {
        plan.consider(asked, partition, record, current);
    }
    if !asked.dry_run {
        plan.apply(asked, cluster, runs, remote, current).await?;
    }
    Ok(plan.answered)
}

#[derive(Default)]
struct Plan {
    answered: Vec<Answered>,
    decisions: Vec<(TopicPartition, Decision)>,
    /// Partitions and the target topics that they leave; all of the topic, whether they stand or not.
    leaving: Vec<(TopicPartition, Vec<TopicId>)>,
    stands: bool,
}

impl Plan {
    fn consider(
        &mut self,
        asked: &Resume,
        target: TopicPartition,
        record: Result<Record, AnchorError>,
        current: Option<TopicId>,
    ) {
        let partition = TopicPartition::new(TopicName::new(asked.topic.clone()), target.partition);
        let known = |record: &Record| Some(record.target_topic_id()).filter(|id| !id.is_zero());
        let belongs = record.as_ref().ok().and_then(known).or(current);
        if asked.recreate_target {
            // Also a topic that took the name of theirs meanwhile.
            let mut ids: Vec<TopicId> = belongs.into_iter().chain(current).filter(|id| !id.is_zero()).collect();
            ids.dedup();
            self.leaving.push((target.clone(), ids));
        }
        let (state, reason, key) = match &record {
            Ok(record) => match record.incident() {
                Some(incident) => (record.state().to_owned(), incident.reason.clone(), incident.key.clone()),
                None => return,
            },
            Err(error) => ("position-unknown".to_owned(), error.to_string(), String::new()),
        };
        let chosen = asked.partitions.is_empty() || asked.partitions.contains(&target.partition.0);
        if !chosen {
            return;
        }
        let accepted = asked.accept.as_ref().is_none_or(|code| *code == state);
        let mut decided = None;
        if accepted && asked.recreate_target {
            self.stands |= belongs.is_some_and(|id| !id.is_zero());
            decided = Some("the remote topic is deleted, and it is copied from the beginning".to_owned());
        } else if let Some(how) = go_on(&state).filter(|_| accepted) {
            let made = match state.as_str() {
                "target-recreated" | "target-gone" => belongs.filter(|id| !id.is_zero()).map(|id| leave(&[id])),
                _ => Some(decision(Action::GoOn, key)),
            };
            if let Some(made) = made {
                self.decisions.push((target, made));
                decided = Some(how.to_owned());
            }
        }
        self.answered.push(Answered { partition, state, reason, decided });
    }

    async fn apply(
        &self,
        asked: &Resume,
        cluster: Cluster,
        runs: RunsTopic,
        remote: TopicName,
        current: Option<TopicId>,
    ) -> Result<(), ClientError> {
        if asked.recreate_target {
            if self.stands {
                leave_topic(cluster, runs, remote, self.leaving.clone(), current).await?;
            }
            return Ok(());
        }
        let rows: Vec<_> = self.decisions.iter().map(|(partition, made)| Row::Decision(partition, made)).collect();
        runs.write(&rows).await
    }
}
