//! Starts flows and workers, ends them in order.
//!
//! The control thread runs the flows; each worker is a thread with a current-thread runtime of its own, to which flows
//! hand their shards. Nothing is shared between workers on the path of a batch.

use std::{cell::RefCell, rc::Rc, sync::Arc, thread, time::Duration};

use tokio::{
    runtime,
    sync::{mpsc, oneshot, watch},
    task::LocalSet,
};
use tokio_util::{either::Either, sync::CancellationToken};
use tracing::{error, info, warn};

use super::{
    flow::{Directory, Flow, FlowContext, FlowEnd, FlowError, FlowStatus, Network, wall_ms},
    lease::{LockError, StateLock, instance_id},
    observe::{self, Observer, Questions},
    partition::PartitionState,
    report::{FlowReport, Sealed, Totals, Watcher},
    settings::{FlowSettings, ProcessSettings},
    shard::{Shard, ShardConfig},
};
use crate::{net::Connector, os_error::Reason};

/// A stop may take this long (a second one ends at once).
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// How long a flow that shall end by itself tries to reach its clusters.
const START_PATIENCE: Duration = Duration::from_secs(30);
/// A flow that could not run is tried again after this time.
const FLOW_AGAIN: Duration = Duration::from_secs(30);

/// How a run ended; the exit code is made from it.
#[derive(Debug)]
pub enum Outcome {
    /// Stopped, or caught up as asked for.
    Done,
    /// Some partitions were not copied: each with its reason and remedy.
    NotCopied(Vec<(String, String)>),
    /// No flow could start or go on; each with its reason.
    CannotRun(Vec<(String, String)>),
    /// Something in flight did not settle in time.
    DeadlineMissed,
}

/// Why the process cannot start at all.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The state directory.
    #[error("{0}")]
    State(#[from] LockError),
    /// Threads or runtimes.
    #[error("a worker thread could not be started: {}", Reason(.0))]
    Thread(#[from] std::io::Error),
}

/// Runs the flows of one process.
pub struct Supervisor {
    settings: ProcessSettings,
    until_caught_up: bool,
    stop: CancellationToken,
    watcher: Option<Watcher>,
    questions: Option<Questions>,
    simulated: Option<Arc<dyn Connector>>,
}

impl Supervisor {
    /// `stop` ends the run; with `until_caught_up` it ends by itself.
    #[must_use]
    pub fn new(settings: ProcessSettings, until_caught_up: bool, stop: CancellationToken) -> Self {
        Self { settings, until_caught_up, stop, watcher: None, questions: None, simulated: None }
    }

    /// Somebody who shows the progress; without one it is a line in the log every `towpath.progress.interval.seconds`.
    #[must_use]
    pub fn watched_by(mut self, watcher: Watcher) -> Self {
        self.watcher = Some(watcher);
        self
    }

    /// A way to ask what it does, from any thread, while it runs.
    pub fn observer(&mut self) -> Observer {
        let (observer, questions) = observe::channel();
        self.questions = Some(questions);
        observer
    }

    /// Speaks over `connector` instead of TCP, and runs its workers on the calling thread: one process of a simulation.
    #[must_use]
    pub fn simulated(mut self, connector: Arc<dyn Connector>) -> Self {
        self.simulated = Some(connector);
        self
    }

    /// Prints what would be created and copied.
    ///
    /// # Errors
    /// The first flow that cannot be looked at.
    pub async fn dry_run(self) -> Result<Vec<(String, Vec<String>)>, FlowError> {
        let directory = Directory::default();
        let all = Rc::new(self.settings.flows.clone());
        let mut flows = Vec::new();
        for settings in &self.settings.flows {
            let status = Rc::new(RefCell::new(FlowStatus::new(&settings.name())));
            let (_, tried) = watch::channel(());
            let network = Network { connector: self.simulated.clone(), give_up: Some(START_PATIENCE), tried };
            flows.push(Flow::connect(settings.clone(), &directory, status, network).await?);
        }
        let mut plans = Vec::new();
        for flow in flows {
            let context = FlowContext {
                instance_id: String::new(),
                directory: directory.clone(),
                all_flows: all.clone(),
                until_caught_up: false,
                shard_memory: 0,
                spawn_shard: Box::new(|_, _| {}),
                workers: 0,
                rare: Rc::default(),
                stop: self.stop.clone(),
            };
            let lines = flow.dry_run(&context).await?;
            plans.push((flow.name().to_owned(), lines));
        }
        Ok(plans)
    }

    /// Runs until stopped. Must be called inside a `LocalSet` on a current-thread runtime.
    ///
    /// # Errors
    /// [`StartError`] if nothing could be begun.
    pub async fn run(mut self) -> Result<Outcome, StartError> {
        let started = u64::try_from(wall_ms() / 1000).unwrap_or(0);
        // One lock for each flow: processes may share a state directory as long as their flows differ.
        let mut locks = Vec::new();
        for flow in &self.settings.flows {
            let name = lock_name(flow);
            locks.push(StateLock::acquire(&self.settings.state_dir, &name, started)?);
        }
        let instance = instance_id(&self.settings.state_dir)?;
        let (workers, threads) = match &self.simulated {
            Some(_) => (Workers::Here, Vec::new()),
            None => start_workers(self.settings.worker_threads)?,
        };
        let flows = self.settings.flows.clone();
        let statuses: Vec<_> = flows.iter().map(|flow| Rc::new(RefCell::new(FlowStatus::new(&flow.name())))).collect();
        let progress = tokio::task::spawn_local(match self.watcher.take() {
            Some(watcher) => Either::Left(tell(statuses.clone(), watcher)),
            None => Either::Right(report_progress(statuses.clone(), self.settings.progress_interval)),
        });
        let answering =
            self.questions.take().map(|questions| tokio::task::spawn_local(questions.answer(statuses.clone())));
        let memory = usize::try_from(self.settings.memory_bytes).unwrap_or(usize::MAX);
        let ground = Rc::new(Ground {
            instance_id: instance,
            directory: Directory::default(),
            all_flows: Rc::new(flows.clone()),
            until_caught_up: self.until_caught_up,
            shard_memory: memory / (flows.len().max(1) * self.settings.worker_threads.max(1)),
            spawn: workers.clone(),
            workers: self.settings.worker_threads.max(1),
            stop: self.stop.clone(),
            all_tried: watch::channel(()).0,
            connector: self.simulated.take(),
        });
        let mut failed = Vec::new();
        let mut running = Vec::new();
        for (flow, status) in flows.into_iter().zip(&statuses) {
            let (ground, status, tried) = (ground.clone(), status.clone(), ground.all_tried.subscribe());
            running.push((flow.name(), tokio::task::spawn_local(ground.run_flow(flow, status, tried))));
        }
        let mut ends = FlowEnd::default();
        let mut finished = 0;
        for (name, mut task) in running {
            let end = tokio::select! {
                biased;
                end = &mut task => end,
                () = overdue(&self.stop) => {
                    task.abort();
                    ends.deadline_missed = true;
                    continue;
                }
            };
            match end {
                Ok(Ok(end)) => {
                    finished += 1;
                    ends.deadline_missed |= end.deadline_missed;
                    ends.not_copied.extend(
                        end.not_copied.into_iter().map(|(partition, why)| (format!("{name} {partition}"), why)),
                    );
                }
                // It was logged when it happened.
                Ok(Err(error)) => failed.push((name, error.to_string())),
                Err(error) => failed.push(broken(name, &error)),
            }
        }
        progress.abort();
        if let Some(answering) = answering {
            answering.abort();
        }
        for status in statuses.iter().filter(|status| status.borrow().began()) {
            let status = status.borrow();
            let report = status.report(wall_ms());
            if status.matches_nothing() && report.totals.progress.batches == 0 {
                warn!(flow = %report.name, "nothing was copied: no topic of the source matches");
            } else {
                log_sum(&report);
            }
        }
        drop(workers);
        for thread in threads {
            // Shards end with their flows' channels; a thread that does not is left to the end of the process.
            let _ = tokio::time::timeout(Duration::from_secs(1), thread).await;
        }
        drop(locks);
        Ok(outcome(failed, finished, ends))
    }
}

/// What all flows of the process stand on.
struct Ground {
    instance_id: String,
    directory: Directory,
    all_flows: Rc<Vec<FlowSettings>>,
    until_caught_up: bool,
    shard_memory: usize,
    spawn: Workers,
    workers: usize,
    stop: CancellationToken,
    /// Closed once every flow has tried to reach its clusters.
    all_tried: watch::Sender<()>,
    /// In a simulation.
    connector: Option<Arc<dyn Connector>>,
}

impl Ground {
    fn context(&self) -> FlowContext {
        let spawn = self.spawn.clone();
        FlowContext {
            instance_id: self.instance_id.clone(),
            directory: self.directory.clone(),
            all_flows: self.all_flows.clone(),
            until_caught_up: self.until_caught_up,
            shard_memory: self.shard_memory,
            spawn_shard: Box::new(move |worker, config| spawn.start(worker, config)),
            workers: self.workers,
            rare: Rc::default(),
            stop: self.stop.clone(),
        }
    }

    /// One flow, to its end. What may pass is tried again, unless the process is to end once it has caught up.
    async fn run_flow(
        self: Rc<Self>,
        settings: FlowSettings,
        status: Rc<RefCell<FlowStatus>>,
        tried: watch::Receiver<()>,
    ) -> Result<FlowEnd, FlowError> {
        let give_up = self.until_caught_up.then_some(START_PATIENCE);
        let mut tried = Some(tried);
        loop {
            let tried = tried.take().unwrap_or_else(|| watch::channel(()).1);
            let attempt = async {
                let network = Network { connector: self.connector.clone(), give_up, tried };
                let flow = Flow::connect(settings.clone(), &self.directory, status.clone(), network).await?;
                // Flows that would write the same topics see each other only when all have been asked for theirs.
                self.all_tried.closed().await;
                Ok(flow)
            };
            let connected = tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(self.unstarted()),
                connected = attempt => connected,
            };
            let error = match connected {
                Ok(flow) => match flow.run(self.context()).await {
                    Err(error) => error,
                    done => return done,
                },
                Err(error) => error,
            };
            if self.until_caught_up || !error.may_pass() {
                error!(flow = %settings.name(), %error, "flow cannot run");
                status.borrow_mut().end(&format!("cannot run: {error}"));
                return Err(error);
            }
            error!(flow = %settings.name(), %error, again_s = FLOW_AGAIN.as_secs(), "flow cannot run, tried again");
            status.borrow_mut().end(&format!("cannot run: {error}; tried again"));
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Ok(self.unstarted()),
                () = tokio::time::sleep(FLOW_AGAIN) => {}
            }
        }
    }

    /// The end of a flow that was stopped before it began.
    fn unstarted(&self) -> FlowEnd {
        FlowEnd::unstarted(self.until_caught_up, "stopped before its clusters were reached")
    }
}

fn outcome(failed: Vec<(String, String)>, finished: usize, ends: FlowEnd) -> Outcome {
    if !failed.is_empty() && finished == 0 {
        return Outcome::CannotRun(failed);
    }
    let mut not_copied = ends.not_copied;
    not_copied.extend(failed);
    if !not_copied.is_empty() {
        Outcome::NotCopied(not_copied)
    } else if ends.deadline_missed {
        Outcome::DeadlineMissed
    } else {
        Outcome::Done
    }
}

fn lock_name(flow: &FlowSettings) -> String {
    format!("{}-{}", flow.source.alias, flow.target.alias)
}

/// Ready once a stop has taken too long.
async fn overdue(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(STOP_PATIENCE).await;
}

/// Where shards run.
#[derive(Clone)]
enum Workers {
    /// On the calling thread.
    Here,
    /// On threads of their own.
    Threads(Rc<Vec<mpsc::UnboundedSender<ShardConfig>>>),
}

impl Workers {
    fn start(&self, worker: usize, config: ShardConfig) {
        match self {
            Self::Here => {
                // Ends with its flow's channels, as a worker's does.
                tokio::task::spawn_local(Shard::run(config));
            }
            Self::Threads(threads) => {
                if let Some(worker) = threads.get(worker) {
                    // Unbounded in form only: one message per flow.
                    let _ = worker.send(config);
                }
            }
        }
    }
}

/// Starts worker threads; each ends when its sender and all its shards are gone.
fn start_workers(count: usize) -> Result<(Workers, Vec<oneshot::Receiver<()>>), StartError> {
    let mut senders = Vec::new();
    let mut ends = Vec::new();
    for number in 0..count.max(1) {
        let (sender, mut shards) = mpsc::unbounded_channel::<ShardConfig>();
        let (ended, end) = oneshot::channel();
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
            let local = LocalSet::new();
            local.block_on(&runtime, async move {
                let mut running = tokio::task::JoinSet::new();
                while let Some(config) = shards.recv().await {
                    running.spawn_local(Shard::run(config));
                }
                while running.join_next().await.is_some() {}
            });
            let _ = ended.send(());
        })?;
        senders.push(sender);
        ends.push(end);
    }
    Ok((Workers::Threads(Rc::new(senders)), ends))
}

/// Tells the watcher of all flows, from the first moment on.
async fn tell(statuses: Vec<Rc<RefCell<FlowStatus>>>, mut watcher: Watcher) {
    loop {
        let now = wall_ms();
        let reports: Vec<_> = statuses.iter().map(|status| status.borrow().report(now)).collect();
        (watcher.tell)(&reports);
        tokio::time::sleep(watcher.interval).await;
    }
}

/// Logs a line for each flow once an interval.
async fn report_progress(statuses: Vec<Rc<RefCell<FlowStatus>>>, interval: Duration) {
    let mut before: Vec<Totals> = statuses.iter().map(|_| Totals::default()).collect();
    loop {
        tokio::time::sleep(interval).await;
        for (status, before) in statuses.iter().zip(&mut before) {
            let report = status.borrow().report(wall_ms());
            print_progress(&report, before, interval);
            *before = report.totals;
        }
    }
}

fn print_progress(report: &FlowReport, before: &Totals, interval: Duration) {
    let (now, seconds) = (&report.totals, interval.as_secs_f64());
    #[expect(clippy::cast_precision_loss, reason = "rates for people")]
    let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
    let progress = &now.progress;
    info!(
        flow = %report.name,
        state = %report.state,
        partitions = now.partitions,
        records_per_s = rate(progress.records, before.progress.records).round(),
        mb_per_s_in = tenths(rate(progress.bytes_in, before.progress.bytes_in) / 1e6),
        mb_per_s_out = tenths(rate(progress.bytes_out, before.progress.bytes_out) / 1e6),
        behind_records = now.lag,
        behind_s = tenths(millis_as_seconds(now.lag_ms)),
        sealed = Sealed(progress).to_string(),
        stopped = now.stopped,
        waiting = now.other,
        "progress"
    );
    let mut named = 0;
    for (partition, state) in &report.notable {
        if *state != PartitionState::Draining {
            info!(flow = %report.name, partition = %partition, state = %state, "not copying");
        }
        named += 1;
    }
    let others = (now.stopped + now.other).saturating_sub(named);
    if others > 0 && named > 0 {
        info!(flow = %report.name, others, "not copying either");
    }
}

/// What a flow did from start to end.
fn log_sum(report: &FlowReport) {
    let progress = &report.totals.progress;
    info!(
        flow = %report.name,
        records = progress.records,
        batches = progress.batches,
        bytes_in = progress.bytes_in,
        bytes_out = progress.bytes_out,
        sealed = Sealed(progress).to_string(),
        opened_batches = progress.opened.total().batches,
        opened_bytes = progress.opened.total().bytes,
        empty_batches = progress.empty_batches,
        aborted_records = progress.aborted_records,
        lost_records = progress.lost_records,
        truncated_records = progress.truncated_records,
        foreign_records = progress.foreign_records,
        "copied in all"
    );
}

/// A flow whose task broke off.
fn broken(name: String, error: &tokio::task::JoinError) -> (String, String) {
    error!(flow = %name, %error, "flow broke off, a fault of towpath");
    let why = format!("internal error: {error}");
    (name, why)
}

fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

#[expect(clippy::cast_precision_loss, reason = "seconds for people")]
fn millis_as_seconds(millis: i64) -> f64 {
    millis as f64 / 1000.0
}
