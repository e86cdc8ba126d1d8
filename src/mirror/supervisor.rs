//! Starts flows and workers, ends them in order.
//!
//! The control thread runs the flows; each worker is a thread with a current-thread runtime of its own, to which flows
//! hand their shards. Nothing is shared between workers on the path of a batch.

use std::{cell::RefCell, rc::Rc, thread, time::Duration};

use tokio::{
    runtime,
    sync::{mpsc, oneshot},
    task::LocalSet,
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{
    flow::{Directory, Flow, FlowContext, FlowEnd, FlowError, FlowStatus, wall_ms},
    lease::{LockError, StateLock, instance_id},
    partition::PartitionState,
    report::{FlowReport, Totals},
    settings::{FlowSettings, ProcessSettings},
    shard::{Shard, ShardConfig},
};
use crate::os_error::Reason;

/// A stop may take this long (a second one ends at once).
const STOP_PATIENCE: Duration = Duration::from_secs(10);

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

type ShardStart = (ShardConfig, oneshot::Sender<()>);

/// Runs the flows of one process.
pub struct Supervisor {
    settings: ProcessSettings,
    until_caught_up: bool,
    stop: CancellationToken,
}

impl Supervisor {
    /// `stop` ends the run; with `until_caught_up` it ends by itself.
    #[must_use]
    pub fn new(settings: ProcessSettings, until_caught_up: bool, stop: CancellationToken) -> Self {
        Self { settings, until_caught_up, stop }
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
            flows.push(Flow::connect(settings.clone(), &directory).await?);
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
    pub async fn run(self) -> Result<Outcome, StartError> {
        let started = u64::try_from(wall_ms() / 1000).unwrap_or(0);
        // One lock for each flow: processes may share a state directory as long as their flows differ.
        let mut locks = Vec::new();
        for flow in &self.settings.flows {
            let name = lock_name(flow);
            locks.push(StateLock::acquire(&self.settings.state_dir, &name, started)?);
        }
        let instance = instance_id(&self.settings.state_dir)?;
        let (workers, threads) = start_workers(self.settings.worker_threads)?;
        let flows = self.connect_all().await;
        let mut failed = flows.failed;
        let count = flows.ready.len();
        let statuses: Vec<_> = flows.ready.iter().map(Flow::status).collect();
        let ended = statuses.clone();
        let progress = tokio::task::spawn_local(report_progress(statuses, self.settings.progress_interval));
        let memory = usize::try_from(self.settings.memory_bytes).unwrap_or(usize::MAX);
        let shard_memory = memory / (count.max(1) * self.settings.worker_threads.max(1));
        let mut running = Vec::new();
        for flow in flows.ready {
            let spawn = workers.clone();
            let context = FlowContext {
                instance_id: instance.clone(),
                directory: flows.directory.clone(),
                all_flows: Rc::new(self.settings.flows.clone()),
                until_caught_up: self.until_caught_up,
                shard_memory,
                spawn_shard: Box::new(move |worker, config| {
                    let (done, _) = oneshot::channel();
                    if let Some(worker) = spawn.get(worker) {
                        // Unbounded in form only: one message per flow.
                        let _ = worker.send((config, done));
                    }
                }),
                workers: self.settings.worker_threads.max(1),
                stop: self.stop.clone(),
            };
            let name = flow.name().to_owned();
            running.push((name, tokio::task::spawn_local(flow.run(context))));
        }
        let mut ends = FlowEnd::default();
        let mut finished = 0;
        for (name, mut task) in running {
            let end = tokio::select! {
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
                Ok(Err(error)) => {
                    error!(flow = %name, %error, "flow cannot run");
                    failed.push((name, error.to_string()));
                }
                Err(error) => failed.push(broken(name, &error)),
            }
        }
        progress.abort();
        for status in &ended {
            log_sum(&status.borrow().report(wall_ms()));
        }
        drop(workers);
        for thread in threads {
            // Shards end with their flows' channels; a thread that does not is left to the end of the process.
            let _ = tokio::time::timeout(Duration::from_secs(1), thread).await;
        }
        drop(locks);
        Ok(outcome(failed, finished, ends))
    }

    async fn connect_all(&self) -> Connected {
        let directory = Directory::default();
        let mut tasks = Vec::new();
        for settings in &self.settings.flows {
            let (settings, directory) = (settings.clone(), directory.clone());
            let name = settings.name();
            tasks.push((name, tokio::task::spawn_local(async move { Flow::connect(settings, &directory).await })));
        }
        let mut connected = Connected { ready: Vec::new(), failed: Vec::new(), directory };
        for (name, mut task) in tasks {
            let result = tokio::select! {
                biased;
                () = self.stop.cancelled() => {
                    task.abort();
                    continue;
                }
                result = &mut task => result,
            };
            match result {
                Ok(Ok(flow)) => connected.ready.push(flow),
                Ok(Err(error)) => {
                    error!(flow = %name, %error, "flow cannot start");
                    connected.failed.push((name, error.to_string()));
                }
                Err(error) => connected.failed.push(broken(name, &error)),
            }
        }
        connected
    }
}

struct Connected {
    ready: Vec<Flow>,
    failed: Vec<(String, String)>,
    directory: Directory,
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

type Workers = Rc<Vec<mpsc::UnboundedSender<ShardStart>>>;

/// Starts worker threads; each ends when its sender and all its shards are gone.
fn start_workers(count: usize) -> Result<(Workers, Vec<oneshot::Receiver<()>>), StartError> {
    let mut senders = Vec::new();
    let mut ends = Vec::new();
    for number in 0..count.max(1) {
        let (sender, mut shards) = mpsc::unbounded_channel::<ShardStart>();
        let (ended, end) = oneshot::channel();
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
            let local = LocalSet::new();
            local.block_on(&runtime, async move {
                let mut running = tokio::task::JoinSet::new();
                while let Some((config, done)) = shards.recv().await {
                    running.spawn_local(async move {
                        Shard::run(config).await;
                        let _ = done.send(());
                    });
                }
                while running.join_next().await.is_some() {}
            });
            let _ = ended.send(());
        })?;
        senders.push(sender);
        ends.push(end);
    }
    Ok((Rc::new(senders), ends))
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
        sealed = "100 %",
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
    if progress.lost_records > before.progress.lost_records {
        warn!(
            flow = %report.name,
            records = progress.lost_records,
            "records were gone at the source before they were copied"
        );
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
        sealed = "100 %",
        aborted_records = progress.aborted_records,
        lost_records = progress.lost_records,
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
