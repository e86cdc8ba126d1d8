//! What a mirror shows to whoever asks from another thread: one look at everything, gathered when it is asked for.

use std::{cell::RefCell, collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

use super::{
    flow::{FlowStatus, wall_ms},
    partition::{PartitionState, Progress},
    report::{FlowReport, PartitionReport},
};

/// Askers that wait at a time; more are told to come again.
const ASKERS_MAX: usize = 4;

/// Everything at one moment.
#[derive(Debug, Clone)]
pub struct Observed {
    /// In milliseconds of the time of day.
    pub at_ms: i64,
    /// In the order of the configuration.
    pub flows: Vec<FlowObserved>,
}

/// One flow.
#[derive(Debug, Clone)]
pub struct FlowObserved {
    /// Sums, and what the flow itself is doing.
    pub report: FlowReport,
    /// It has reached its clusters and owned something, and is not ended.
    pub runs: bool,
    /// It is a member of its group that may write.
    pub lease_held: bool,
    /// No topic matches.
    pub matches_nothing: bool,
    /// Topic, partition, and what its worker says.
    pub partitions: Vec<(String, i32, PartitionReport)>,
    /// Those that have no place on the target.
    pub missing: Vec<(String, PartitionState)>,
    /// Counters of partitions that were given up, by topic.
    pub gone: BTreeMap<String, Progress>,
    /// How often partitions came to stand or wait, by topic and state code.
    pub incidents: BTreeMap<(String, &'static str), u64>,
    /// Sums over the flow's workers.
    pub work: Work,
    /// Commits of positions.
    pub anchors: Anchored,
    /// When its workers showed a sign of life last, in milliseconds; 0 before the first.
    pub alive_ms: Vec<u64>,
}

/// Numbers of a flow's workers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Of the source and the target, as all pairs here.
    pub requests: [u64; 2],
    /// Requests without an answer.
    pub unanswered: [u64; 2],
    /// Connections opened.
    pub connections: [u64; 2],
    /// Connections that could not be.
    pub connections_failed: [u64; 2],
    /// Answers with an error for one partition.
    pub refused: [u64; 2],
    /// Bytes held.
    pub memory_used: u64,
    /// And how many there may be.
    pub memory_limit: u64,
}

/// Commits of positions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Anchored {
    /// When the last one was made, in milliseconds; 0 before the first.
    pub last_ms: i64,
    /// So many partitions, in all.
    pub committed: u64,
    /// So many could not be.
    pub failed: u64,
}

type Question = oneshot::Sender<Observed>;

/// Asks the control thread. Cheap to clone; for any thread.
#[derive(Debug, Clone)]
pub struct Observer(mpsc::Sender<Question>);

impl Observer {
    /// Everything as it is now; `None` if the control thread does not answer in time, or is gone.
    pub async fn observe(&self, patience: Duration) -> Option<Observed> {
        let (question, answer) = oneshot::channel();
        self.0.try_send(question).ok()?;
        timeout(patience, answer).await.ok()?.ok()
    }
}

/// The control thread's end.
#[derive(Debug)]
pub(super) struct Questions(mpsc::Receiver<Question>);

pub(super) fn channel() -> (Observer, Questions) {
    let (questions, asked) = mpsc::channel(ASKERS_MAX);
    (Observer(questions), Questions(asked))
}

impl Questions {
    /// Answers until nobody can ask any more.
    pub(super) async fn answer(mut self, statuses: Vec<Rc<RefCell<FlowStatus>>>) {
        while let Some(question) = self.0.recv().await {
            let at_ms = wall_ms();
            let flows = statuses.iter().map(|status| status.borrow().observe(at_ms)).collect();
            // Who asked may have gone.
            let _ = question.send(Observed { at_ms, flows });
        }
    }
}

impl Work {
    pub(super) fn sum(gauges: &[Arc<super::gauges::Gauges>]) -> Self {
        use super::reach::Side;
        let mut work = Self::default();
        for one in gauges {
            for (index, side) in [Side::Source, Side::Target].into_iter().enumerate() {
                work.requests[index] += one.requests.of(side).get();
                work.unanswered[index] += one.unanswered.of(side).get();
                work.connections[index] += one.connections.of(side).get();
                work.connections_failed[index] += one.connections_failed.of(side).get();
            }
            work.refused[0] += one.refused_fetches.get();
            work.refused[1] += one.refused_batches.get();
            work.memory_used += one.memory_used.get();
            work.memory_limit += one.memory_limit.get();
        }
        work
    }
}
