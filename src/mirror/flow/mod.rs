//! One flow on the control thread: clusters, topics, ownership, anchors, and what people see of it.
//!
//! The path of a batch is in `shard`; this module only says which partitions are copied from where and makes their
//! positions durable. Start reading at [`Flow::run`].

mod anchors;
mod decisions;
mod discovery;
mod leaders;
mod losses;
mod missing;
mod running;
mod status;

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    pin::pin,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use self::{
    anchors::Committer,
    discovery::{Discovery, Renewed},
    leaders::Leaders,
    running::Running,
};
pub(crate) use self::{
    decisions::{decision, leave, leave_topic},
    discovery::{refused_topics, selected_topics, topic_names},
};
use super::{
    anchor::{Anchor, AnchorError, Shape},
    gauges::Gauges,
    lease::{Lease, LeaseConfig, LeaseLost, lease_group},
    lease_driver::{self, LEAVE_PATIENCE, LeaseCommand},
    partition::{PartitionSettings, Policies, StartAt, StopReason, TargetNotEmpty},
    report::{Command, LeaseClock, Report},
    runs::RunsTopic,
    settings::{
        ClusterSettings, FlowSettings, Isolation, LogAppendTime, OnSourceRecreated, OnTargetNotEmpty, OnTrouble,
        StartOffset,
    },
    shard::ShardConfig,
};
use crate::{
    backoff,
    client::{ClientError, Cluster, ClusterConfig},
    net::{Connector, Dialer, TcpConnector},
    protocol::{TopicName, TopicPartition},
    rare::Rare,
    topics::TopicChange,
    wall_clock,
};
pub(crate) use status::{FlowStatus, add};

/// After one cluster could not be reached, the other one may fail within this time to be named too.
const SECOND_FAILURE: Duration = Duration::from_secs(1);
/// `producer.id.expiration.ms` where the broker does not tell us (`design.md` 4).
const EXPIRATION_ASSUMED: Duration = Duration::from_secs(3600);
/// Slack for clocks that differ and for the sweep of the broker.
const EXPIRATION_SLACK: Duration = Duration::from_secs(900);
/// Acknowledged bytes without a durable anchor after which a partition pauses.
const TAIL_BYTES_FACTOR: u64 = 4;

/// Why a flow cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum FlowError {
    /// A cluster cannot be reached or spoken to.
    #[error("{0}")]
    Cluster(#[from] ClientError),
    /// Neither cluster can.
    #[error("{0}; {1}")]
    Clusters(ClientError, ClientError),
    /// Both ends are the same cluster.
    #[error(
        "{source_alias} and {target_alias} are the same cluster (cluster id {cluster_id}); a copy of a cluster to itself \
         never ends: check the bootstrap.servers of both"
    )]
    SameCluster {
        /// Alias of the source.
        source_alias: String,
        /// Alias of the target.
        target_alias: String,
        /// What both say.
        cluster_id: String,
    },
    /// The lease is gone for good.
    #[error("{0}")]
    Lease(LeaseLost),
    /// The lease cannot be asked for.
    #[error("{0}")]
    LeaseSettings(#[from] super::lease::LeaseConfigError),
    /// The runs topic is missing and cannot be created.
    #[error("the topic {topic}, where this flow keeps its runs, cannot be created: {why}; {remedy}")]
    RunsTopic {
        /// Its name.
        topic: String,
        /// Why.
        why: String,
        /// What to do.
        remedy: String,
    },
}

impl FlowError {
    /// Whether trying again later may help.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Cluster(error) => !error.is_wrong_peer(),
            Self::Clusters(one, other) => !(one.is_wrong_peer() || other.is_wrong_peer()),
            Self::RunsTopic { .. } => true,
            Self::SameCluster { .. } | Self::Lease(_) | Self::LeaseSettings(_) => false,
        }
    }
}

/// Topics of each cluster of the process, for conflicts between flows.
pub(crate) type Directory = Rc<RefCell<BTreeMap<String, BTreeSet<String>>>>;

/// How a flow ended.
#[derive(Debug, Default)]
pub(crate) struct FlowEnd {
    /// Partitions that were not copied to their goal, with the reason.
    pub(crate) not_copied: Vec<(String, String)>,
    /// Something did not settle in time.
    pub(crate) deadline_missed: bool,
}

impl FlowEnd {
    /// Of a flow that was stopped before it began.
    pub(crate) fn unstarted(until_caught_up: bool, why: &str) -> Self {
        let mut end = Self::default();
        if until_caught_up {
            end.not_copied.push(("all partitions".to_owned(), why.to_owned()));
        }
        end
    }
}

/// What a flow needs of its process.
pub(crate) struct FlowContext {
    pub(crate) instance_id: String,
    pub(crate) directory: Directory,
    /// Settings of all flows, for conflicts.
    pub(crate) all_flows: Rc<Vec<FlowSettings>>,
    pub(crate) until_caught_up: bool,
    /// Memory of each of this flow's shards, in bytes.
    pub(crate) shard_memory: usize,
    /// Starts a shard on a worker.
    pub(crate) spawn_shard: Box<dyn Fn(usize, ShardConfig)>,
    pub(crate) workers: usize,
    /// Log lines that may come by the thousand.
    pub(crate) rare: Rc<Rare>,
    pub(crate) stop: CancellationToken,
}

/// Lines of one kind in half a minute: enough to see which topics or partitions they are about, if those are few.
const LINES_MAX: u32 = 20;

impl FlowContext {
    /// Whether a line of this kind is to be written, one of the first `lines` in half a minute.
    fn may_say(&self, what: &'static str, lines: u32) -> bool {
        self.rare.allows_some(Instant::now(), what, -1, lines)
    }

    /// Says how many lines were left out.
    fn sum_up(&self, flow: &str) {
        for (what, _, lines) in self.rare.left_out(Instant::now()) {
            info!(flow, what, lines, "more lines of a kind were left out");
        }
    }
}

/// A flow whose clusters are known.
pub(crate) struct Flow {
    settings: FlowSettings,
    name: Arc<str>,
    source: Cluster,
    target: Cluster,
    source_cluster_id: Arc<str>,
    target_cluster_id: String,
    status: Rc<RefCell<FlowStatus>>,
}

/// How a flow comes to its clusters.
pub(crate) struct Network {
    /// Another way than TCP, in a simulation.
    pub(crate) connector: Option<Arc<dyn Connector>>,
    /// Without it the flow tries for ever.
    pub(crate) give_up: Option<Duration>,
    /// Dropped after the first attempt at both clusters.
    pub(crate) tried: watch::Receiver<()>,
}

impl Flow {
    /// Connects to both clusters and checks that they are two.
    pub(crate) async fn connect(
        settings: FlowSettings,
        directory: &Directory,
        status: Rc<RefCell<FlowStatus>>,
        network: Network,
    ) -> Result<Self, FlowError> {
        let Network { connector, give_up, tried } = network;
        let name: Arc<str> = settings.name().into();
        let source = cluster(&settings.source, connector.clone());
        let target = cluster(&settings.target, connector);
        let deadline = give_up.map(|patience| Instant::now() + patience);
        let other = tried.clone();
        let reached =
            both(source.bootstrap(deadline, move || drop(tried)), target.bootstrap(deadline, move || drop(other)));
        let (from, to) = reached.await?;
        if let (Some(a), Some(b)) = (&from.cluster_id, &to.cluster_id)
            && a == b
        {
            return Err(FlowError::SameCluster {
                source_alias: settings.source.alias.to_string(),
                target_alias: settings.target.alias.to_string(),
                cluster_id: a.clone(),
            });
        }
        for (alias, snapshot) in [(&settings.source.alias, &from), (&settings.target.alias, &to)] {
            discovery::publish(directory, alias.as_str(), snapshot);
        }
        status.borrow_mut().set_state("connected");
        Ok(Self {
            name,
            source_cluster_id: from.cluster_id.clone().unwrap_or_default().into(),
            target_cluster_id: to.cluster_id.clone().unwrap_or_default(),
            source,
            target,
            settings,
            status,
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What a run would create and copy, without doing it.
    pub(crate) async fn dry_run(&self, context: &FlowContext) -> Result<Vec<String>, FlowError> {
        let discovery = Discovery::new(&self.settings, &self.source, &self.target, context);
        let (found, changes) = discovery.look().await?;
        let runs = RunsTopic::new(self.target.clone(), self.settings.source.alias.as_str());
        let mut lines = Vec::new();
        let creates_runs = self.target.snapshot().topic_id(runs.topic()).is_none();
        let creates = creates_runs || changes.iter().any(|change| matches!(change, TopicChange::Create { .. }));
        if let Some(warning) = discovery.too_many_replicas().filter(|_| creates) {
            lines.push(warning);
        }
        if creates_runs {
            lines.push(format!("create topic {} partitions=1 cleanup.policy=compact", runs.topic().as_str()));
        }
        let gone = discovery.gone(&changes).await?;
        let is_gone = |topic: &str| gone.contains(&TopicName::new(topic));
        lines.extend(changes.iter().filter(|change| !is_gone(change.topic())).map(TopicChange::to_string));
        for topic in &found {
            let refused = topic.refused.clone().or_else(|| {
                let reason = StopReason::TargetGone;
                is_gone(topic.target.as_str()).then(|| {
                    format!("{reason}: {}; {}", topic.target.as_str(), reason.remedy_for(topic.source.as_str()))
                })
            });
            match &refused {
                Some(why) => lines.push(format!("refuse topic {}: {why}", topic.source.as_str())),
                None => lines.push(format!(
                    "copy topic {} to {} ({} partitions)",
                    topic.source.as_str(),
                    topic.target.as_str(),
                    topic.partitions
                )),
            }
        }
        if found.is_empty() {
            lines.push(format!("nothing to copy: {}", self.no_topics()));
        }
        Ok(lines)
    }

    /// Why there is nothing to copy.
    fn no_topics(&self) -> String {
        let (topics, source) = (&self.settings.topics, &self.settings.source.alias);
        let list = |items: &[String]| items.join(", ");
        format!(
            "no topic of {source} matches topics = {} (topics.exclude = {})",
            list(topics.include().items()),
            list(topics.exclude().items())
        )
    }

    /// Says so where there is nothing to copy.
    fn warn_no_topics(&self, until_caught_up: bool) {
        let why = self.no_topics();
        let again = match self.settings.refresh_topics {
            _ if until_caught_up => "it ends, nothing was copied".to_owned(),
            Some(interval) => format!("they are looked for again every {} s", interval.as_secs()),
            None => "they are looked for again at the next start (refresh.topics.enabled = false)".to_owned(),
        };
        warn!(flow = %self.name, "{why}; {again}");
    }

    /// Runs until `context.stop`, until caught up if asked for, or until the lease is lost for good.
    pub(crate) async fn run(self, context: FlowContext) -> Result<FlowEnd, FlowError> {
        let discovery = Discovery::new(&self.settings, &self.source, &self.target, &context);
        let runs = RunsTopic::new(self.target.clone(), self.settings.source.alias.as_str());
        let prepared = tokio::select! {
            biased;
            // Nothing is copied yet, so there is nothing to settle.
            () = context.stop.cancelled() => {
                return Ok(FlowEnd::unstarted(context.until_caught_up, "stopped before anything was copied"));
            }
            prepared = self.prepare(discovery, &runs) => prepared,
        };
        let (found, settings) = prepared?;
        if found.topics.is_empty() {
            self.warn_no_topics(context.until_caught_up);
        }
        let lease_config = LeaseConfig::new(
            &lease_group(self.settings.source.alias.as_str(), self.settings.target.alias.as_str()),
            &context.instance_id,
            self.settings.lease.session_timeout,
        )?
        .with_heartbeat_interval(self.settings.lease.heartbeat_interval);
        let group: Arc<str> = lease_config.group().into();
        let base = Instant::now();
        let clock = LeaseClock::new(base);
        let (lease_commands, commands) = mpsc::channel(64);
        let (events, lease_events) = mpsc::channel(64);
        let lease_stop = CancellationToken::new();
        let lease = Lease::new(lease_config, backoff::entropy(), Instant::now());
        let status = self.status.clone();
        let driver = tokio::task::spawn_local(lease_driver::run(
            lease,
            self.target.clone(),
            clock.clone(),
            commands,
            events,
            Box::new(move |lease| status.borrow_mut().set_lease(lease)),
            lease_stop.clone(),
        ));
        let (reports, mut incoming) = mpsc::channel(256);
        let (anchor_offers, offers) = mpsc::channel(64);
        let mut shards = Vec::new();
        // Of a former attempt.
        self.status.borrow_mut().gauges.clear();
        for worker in 0..context.workers {
            let (commands, received) = mpsc::channel(256);
            let gauges = Arc::new(Gauges::default());
            self.status.borrow_mut().gauges.push(gauges.clone());
            let config = self.shard_config(&settings, &context, clock.clone(), received, reports.clone(), gauges);
            (context.spawn_shard)(worker, config);
            shards.push(commands);
        }
        let committer = tokio::task::spawn_local(
            Committer::new(&self, runs.clone(), lease_commands.clone(), shards.clone(), context.rare.clone())
                .run(offers),
        );
        let (source_leaders, target_leaders) = (Leaders::default(), Leaders::default());
        // Ended by dropping it.
        let mut learning = JoinSet::new();
        for (leaders, cluster, settings) in [
            (&source_leaders, &self.source, &self.settings.source),
            (&target_leaders, &self.target, &self.settings.target),
        ] {
            learning.spawn_local(leaders.clone().learn(cluster.clone(), settings.metadata_max_age));
        }
        let leave = lease_commands.clone();
        let links = running::Links { shards, lease_commands, anchor_offers, source_leaders, target_leaders };
        let mut running = Running::new(&self, &context, discovery, runs, group, links, found);
        let ended = running.follow(lease_events, &mut incoming).await;
        if context.until_caught_up {
            running.log_held();
        }
        let mut not_copied = running.not_copied();
        if context.until_caught_up && context.stop.is_cancelled() {
            not_copied.extend(running.interrupted());
        }
        let deadline_missed = match &ended {
            // Somebody else may own everything already: nothing more is written.
            Err(FlowError::Lease(_)) => false,
            _ => !running.drain(&mut incoming).await,
        };
        drop(running);
        // The committer ends when its offers do; its last commits go out before the lease's connections close.
        let committed = timeout(Duration::from_secs(2), committer).await.is_ok();
        // With something in flight or not committed, others must wait for the end of the session, as after a crash.
        if committed && !deadline_missed && ended.is_ok() {
            let (done, left) = oneshot::channel();
            if leave.send(LeaseCommand::Leave(done)).await.is_ok() {
                let _ = timeout(LEAVE_PATIENCE, left).await;
            }
        }
        lease_stop.cancel();
        let _ = driver.await;
        ended?;
        Ok(FlowEnd { not_copied, deadline_missed })
    }

    /// Topics, and what the target's brokers say about themselves.
    async fn prepare(
        &self,
        discovery: Discovery<'_>,
        runs: &RunsTopic,
    ) -> Result<(Renewed, PartitionSettings), FlowError> {
        self.ensure_runs_topic(runs, &discovery).await?;
        let found = discovery.renew(BTreeMap::new()).await?;
        Ok((found, self.partition_settings().await))
    }

    async fn ensure_runs_topic(&self, runs: &RunsTopic, discovery: &Discovery<'_>) -> Result<(), FlowError> {
        if self.target.snapshot().topic_id(runs.topic()).is_some() {
            return Ok(());
        }
        let failed = |error: ClientError| {
            let discovery::Refusal { why, remedy } = discovery.refusal(&error);
            FlowError::RunsTopic { topic: runs.topic().as_str().to_owned(), why, remedy }
        };
        let created =
            self.target.create_topics(&[runs.new_topic(self.settings.replication_factor)]).await.map_err(failed)?;
        for (_, outcome) in created {
            outcome.map_err(failed)?;
        }
        info!(flow = %self.name, topic = runs.topic().as_str(), "created the runs topic");
        discovery::await_topics(&self.target, &[runs.topic().clone()].into()).await;
        Ok(())
    }

    fn shape(&self) -> Shape {
        Shape {
            read_committed: self.settings.isolation == Isolation::ReadCommitted,
            sealed_append_time: self.settings.log_append_time == LogAppendTime::Sealed,
        }
    }

    async fn partition_settings(&self) -> PartitionSettings {
        let expiration = self.producer_expiration().await;
        let old_age = expiration.saturating_sub(EXPIRATION_SLACK).max(expiration / 4);
        debug!(flow = %self.name, expiration_s = expiration.as_secs(), "producer.id.expiration.ms of the target");
        PartitionSettings {
            start: match self.settings.start {
                StartOffset::Earliest => StartAt::Earliest,
                StartOffset::Latest => StartAt::Latest,
            },
            policies: self.policies(),
            shape: self.shape(),
            window_max: usize::from(self.settings.produce.in_flight_per_partition_max),
            old_age,
            tail_bytes_max: self.settings.anchor.bytes.saturating_mul(TAIL_BYTES_FACTOR),
            open_bytes_max: self.settings.open_bytes_max,
            stopped_retry: Duration::from_secs(30),
        }
    }

    fn policies(&self) -> Policies {
        let settings = &self.settings;
        Policies {
            target_not_empty: match settings.on_target_not_empty {
                OnTargetNotEmpty::Stop => TargetNotEmpty::Stop,
                OnTargetNotEmpty::Append => TargetNotEmpty::Append,
            },
            loss_continues: settings.on_source_loss == OnTrouble::Continue,
            truncated_continues: settings.on_source_truncated == OnTrouble::Continue,
            recreated_appends: settings.on_source_recreated == OnSourceRecreated::Append,
            foreign_continues: settings.on_foreign_write == OnTrouble::Continue,
        }
    }

    async fn producer_expiration(&self) -> Duration {
        const KEY: &str = "producer.id.expiration.ms";
        let brokers: Vec<_> = self.target.snapshot().brokers.keys().copied().collect();
        for broker in brokers {
            if let Ok(configs) = self.target.broker_configs(broker, &[KEY]).await
                && let Some(ms) = configs.get(KEY).and_then(|value| value.parse().ok())
            {
                return Duration::from_millis(ms);
            }
            // Brokers before 2.8.1 (and those that forbid the question) do not tell.
            if let Ok(configs) = self.target.broker_configs(broker, &["transactional.id.expiration.ms"]).await
                && let Some(ms) = configs.get("transactional.id.expiration.ms").and_then(|value| value.parse().ok())
            {
                // Before KIP-854 (3.4) this one also decided about producer ids; a day is then the safe reading.
                return Duration::from_millis(ms).min(Duration::from_secs(86_400));
            }
        }
        EXPIRATION_ASSUMED
    }

    fn shard_config(
        &self,
        partition: &PartitionSettings,
        context: &FlowContext,
        lease: LeaseClock,
        commands: mpsc::Receiver<Command>,
        reports: mpsc::Sender<Report>,
        gauges: Arc<Gauges>,
    ) -> ShardConfig {
        ShardConfig {
            flow: self.name.clone(),
            partition: partition.clone(),
            fetch: self.settings.fetch,
            produce: self.settings.produce,
            client_rack: self.settings.client_rack.clone(),
            anchor_interval: self.settings.anchor.interval,
            anchor_bytes: self.settings.anchor.bytes,
            memory_bytes: context.shard_memory,
            request_timeout: self.settings.source.request_timeout,
            idle_max: self.settings.source.connections_max_idle,
            source_dialer: self.source.dialer().clone(),
            target_dialer: self.target.dialer().clone(),
            source: self.source.watch(),
            target: self.target.watch(),
            lease,
            commands,
            reports,
            not_moving: self.settings.not_moving,
            gauges,
            // Ends with the commands' channel, after the flow has drained.
            stop: CancellationToken::new(),
        }
    }
}

/// What both clusters say. Once one cannot be reached, the other has a second to fail too, so that both are named.
async fn both<T>(
    source: impl Future<Output = Result<T, ClientError>>,
    target: impl Future<Output = Result<T, ClientError>>,
) -> Result<(T, T), FlowError> {
    let (mut source, mut target) = (pin!(source), pin!(target));
    let (from, to) = tokio::select! {
        biased;
        from = &mut source => match from {
            Ok(from) => (Ok(from), target.await),
            Err(error) => match timeout(SECOND_FAILURE, target).await {
                Ok(Err(other)) => return Err(FlowError::Clusters(error, other)),
                _ => return Err(error.into()),
            },
        },
        to = &mut target => match to {
            Ok(to) => (source.await, Ok(to)),
            Err(error) => match timeout(SECOND_FAILURE, source).await {
                Ok(Err(other)) => return Err(FlowError::Clusters(other, error)),
                _ => return Err(error.into()),
            },
        },
    };
    Ok((from?, to?))
}

/// A cluster to be asked on its own, by another command than the mirror.
pub(crate) fn lone_cluster(settings: &ClusterSettings, connector: Option<Arc<dyn Connector>>) -> Cluster {
    cluster(settings, connector)
}

fn cluster(settings: &ClusterSettings, connector: Option<Arc<dyn Connector>>) -> Cluster {
    let tcp = || Arc::new(TcpConnector { connect_timeout: settings.connect_timeout }) as Arc<dyn Connector>;
    let connector = connector.unwrap_or_else(tcp);
    let dialer = Dialer::new(connector, &settings.client_id, settings.connect_timeout);
    let config = ClusterConfig {
        alias: settings.alias.as_str().into(),
        bootstrap: settings.bootstrap_servers.iter().map(|at| (at.host.clone(), at.port)).collect(),
        request_timeout: settings.request_timeout,
        idle_max: settings.connections_max_idle,
    };
    Cluster::new(config, dialer)
}

/// The time of day, for callers that report.
pub(crate) fn wall_ms() -> i64 {
    wall_clock::now_ms()
}

/// What is known of the position of a partition from the target.
pub(crate) type Anchors = BTreeMap<TopicPartition, Result<Anchor, AnchorError>>;
