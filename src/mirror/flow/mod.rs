//! One flow on the control thread: clusters, topics, ownership, anchors, and what people see of it.
//!
//! The path of a batch is in `shard`; this module only says which partitions are copied from where and makes their
//! positions durable. Start reading at [`Flow::run`].

mod anchors;
mod discovery;

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use self::{
    anchors::{Committer, committed_anchors},
    discovery::{Discovered, Discovery},
};
use super::{
    anchor::{Anchor, AnchorError, Shape},
    identity::{IdentityOf, identity},
    lease::{Lease, LeaseConfig, LeaseLost, RevokeReason, SlotSet, lease_group, slot_of},
    lease_driver::{self, LeaseCommand, LeaseEvent},
    partition::{
        PartitionSettings, PartitionSpec, PartitionState, StartAt, StopReason, TargetNotEmpty,
    },
    report::{Command, CopyId, FlowReport, LeaseClock, PartitionReport, Report, Totals},
    runs::RunsTopic,
    settings::{
        ClusterSettings, FlowSettings, Isolation, LogAppendTime, OnTargetNotEmpty, StartOffset,
    },
    shard::ShardConfig,
};
use crate::{
    backoff,
    client::{ClientError, Cluster, ClusterConfig},
    net::{Dialer, TcpConnector},
    protocol::{TopicName, TopicPartition},
    topics::TopicChange,
    wall_clock,
};

/// How long a flow tries to reach its clusters before it gives up starting.
const START_PATIENCE: Duration = Duration::from_secs(30);
/// How long revoked or stopping partitions may take to settle. The rest of the ten seconds a stop may take is for the
/// last anchors.
const DRAIN_PATIENCE: Duration = Duration::from_secs(7);
/// Leaders are not learnt anew more often than this, however many partitions ask.
const REFRESH_PAUSE: Duration = Duration::from_millis(100);
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
    #[error("the topic {topic}, where this flow keeps its runs, cannot be created: {error}")]
    RunsTopic {
        /// Its name.
        topic: String,
        /// Why.
        error: ClientError,
    },
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
    pub(crate) stop: CancellationToken,
}

/// A flow whose clusters are known.
pub(crate) struct Flow {
    settings: FlowSettings,
    name: Arc<str>,
    source: Cluster,
    target: Cluster,
    source_cluster_id: String,
    target_cluster_id: String,
    status: Rc<RefCell<FlowStatus>>,
}

/// What people see.
#[derive(Debug, Default)]
pub(crate) struct FlowStatus {
    name: String,
    state: String,
    partitions: BTreeMap<CopyId, (String, PartitionReport)>,
}

impl FlowStatus {
    /// Sums and the notable partitions. `wall_ms` is the time of day in milliseconds.
    pub(crate) fn report(&self, wall_ms: i64) -> FlowReport {
        let mut totals = Totals {
            partitions: self.partitions.len(),
            ..Totals::default()
        };
        let mut notable = Vec::new();
        for (name, row) in self.partitions.values() {
            match &row.state {
                PartitionState::Stopped(_) => totals.stopped += 1,
                state if !state.is_ordinary() => totals.other += 1,
                _ => {}
            }
            if !row.state.is_ordinary() && notable.len() < 5 {
                notable.push((name.clone(), row.state.clone()));
            }
            totals.lag += row.lag;
            if row.lag > 0 && row.newest_timestamp >= 0 {
                totals.lag_ms = totals.lag_ms.max(wall_ms - row.newest_timestamp);
            }
            add(&mut totals.progress, &row.progress);
        }
        FlowReport {
            name: self.name.clone(),
            state: self.state.clone(),
            totals,
            notable,
        }
    }
}

fn add(sum: &mut super::partition::Progress, one: &super::partition::Progress) {
    sum.records += one.records;
    sum.bytes_in += one.bytes_in;
    sum.bytes_out += one.bytes_out;
    sum.batches += one.batches;
    sum.control_batches += one.control_batches;
    sum.aborted_records += one.aborted_records;
    sum.lost_records += one.lost_records;
    sum.already_there += one.already_there;
    sum.bytes_in_vain += one.bytes_in_vain;
}

impl Flow {
    /// Connects to both clusters and checks that they are two.
    pub(crate) async fn connect(
        settings: FlowSettings,
        directory: &Directory,
    ) -> Result<Self, FlowError> {
        let name: Arc<str> = settings.name().into();
        let source = cluster(&settings.source);
        let target = cluster(&settings.target);
        let deadline = Instant::now() + START_PATIENCE;
        let (from, to) = tokio::join!(source.bootstrap(deadline), target.bootstrap(deadline));
        let (from, to) = (from?, to?);
        if let (Some(a), Some(b)) = (&from.cluster_id, &to.cluster_id)
            && a == b
        {
            return Err(FlowError::SameCluster {
                source_alias: settings.source.alias.to_string(),
                target_alias: settings.target.alias.to_string(),
                cluster_id: a.clone(),
            });
        }
        for (alias, snapshot) in [
            (&settings.source.alias, &from),
            (&settings.target.alias, &to),
        ] {
            discovery::publish(directory, alias.as_str(), snapshot);
        }
        let status = FlowStatus {
            name: name.to_string(),
            state: "connected".into(),
            ..FlowStatus::default()
        };
        Ok(Self {
            name,
            source_cluster_id: from.cluster_id.clone().unwrap_or_default(),
            target_cluster_id: to.cluster_id.clone().unwrap_or_default(),
            source,
            target,
            settings,
            status: Rc::new(RefCell::new(status)),
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn status(&self) -> Rc<RefCell<FlowStatus>> {
        self.status.clone()
    }

    /// What a run would create and copy, without doing it.
    pub(crate) async fn dry_run(&self, context: &FlowContext) -> Result<Vec<String>, FlowError> {
        let discovery = Discovery::new(&self.settings, &self.source, &self.target, context);
        let (found, changes) = discovery.look().await?;
        let runs = RunsTopic::new(self.target.clone(), self.settings.source.alias.as_str());
        let mut lines = Vec::new();
        if self.target.snapshot().topic_id(runs.topic()).is_none() {
            lines.push(format!(
                "create topic {} partitions=1 cleanup.policy=compact",
                runs.topic().as_str()
            ));
        }
        lines.extend(changes.iter().map(TopicChange::to_string));
        for topic in &found {
            match &topic.refused {
                Some(why) => lines.push(format!("refuse topic {}: {why}", topic.source.as_str())),
                None => lines.push(format!(
                    "copy topic {} to {} ({} partitions)",
                    topic.source.as_str(),
                    topic.target.as_str(),
                    topic.partitions
                )),
            }
        }
        Ok(lines)
    }

    /// Runs until `context.stop`, until caught up if asked for, or until the lease is lost for good.
    pub(crate) async fn run(self, context: FlowContext) -> Result<FlowEnd, FlowError> {
        let discovery = Discovery::new(&self.settings, &self.source, &self.target, &context);
        let runs = RunsTopic::new(self.target.clone(), self.settings.source.alias.as_str());
        self.ensure_runs_topic(&runs).await?;
        let (found, changes) = discovery.look().await?;
        discovery.apply(changes).await;
        let lease_config = LeaseConfig::new(
            &lease_group(
                self.settings.source.alias.as_str(),
                self.settings.target.alias.as_str(),
            ),
            &context.instance_id,
            self.settings.lease.session_timeout,
        )?;
        let group: Arc<str> = lease_config.group().into();
        let base = Instant::now();
        let clock = LeaseClock::new(base);
        let (lease_commands, commands) = mpsc::channel(64);
        let (events, lease_events) = mpsc::channel(64);
        let lease_stop = CancellationToken::new();
        let lease = Lease::new(lease_config, backoff::entropy(), Instant::now());
        let driver = tokio::task::spawn_local(lease_driver::run(
            lease,
            self.target.clone(),
            clock.clone(),
            commands,
            events,
            lease_stop.clone(),
        ));
        let (reports, mut incoming) = mpsc::channel(256);
        let (anchor_offers, offers) = mpsc::channel(64);
        let settings = self.partition_settings().await;
        let mut shards = Vec::new();
        for worker in 0..context.workers {
            let (commands, received) = mpsc::channel(256);
            (context.spawn_shard)(
                worker,
                self.shard_config(
                    &settings,
                    &context,
                    clock.clone(),
                    received,
                    reports.clone(),
                ),
            );
            shards.push(commands);
        }
        let committer = tokio::task::spawn_local(
            Committer::new(&self, runs.clone(), lease_commands.clone()).run(offers, shards.clone()),
        );
        let mut running = Running {
            flow: &self,
            context: &context,
            discovery,
            runs,
            group,
            shards,
            lease_commands,
            anchor_offers,
            copies: BTreeMap::new(),
            next_id: 0,
            owned: SlotSet::EMPTY,
            assigned_once: false,
            first_topics: found.iter().map(|topic| topic.source.clone()).collect(),
            topics: found,
            refresh: Refresh::default(),
        };
        let ended = running.follow(lease_events, &mut incoming).await;
        let not_copied = running.not_copied();
        let deadline_missed = match &ended {
            // Somebody else may own everything already: nothing more is written.
            Err(FlowError::Lease(_)) => false,
            _ => !running.drain(&mut incoming).await,
        };
        drop(running);
        // The committer ends when its offers do; its last commits go out before the lease's connections close.
        let _ = tokio::time::timeout(Duration::from_secs(2), committer).await;
        lease_stop.cancel();
        let _ = driver.await;
        ended?;
        Ok(FlowEnd {
            not_copied,
            deadline_missed,
        })
    }

    async fn ensure_runs_topic(&self, runs: &RunsTopic) -> Result<(), FlowError> {
        if self.target.snapshot().topic_id(runs.topic()).is_some() {
            return Ok(());
        }
        let failed = |error| FlowError::RunsTopic {
            topic: runs.topic().as_str().to_owned(),
            error,
        };
        let created = self
            .target
            .create_topics(&[runs.new_topic(self.settings.replication_factor)])
            .await
            .map_err(failed)?;
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
        let old_age = expiration
            .saturating_sub(EXPIRATION_SLACK)
            .max(expiration / 4);
        debug!(flow = %self.name, expiration_s = expiration.as_secs(), "producer.id.expiration.ms of the target");
        PartitionSettings {
            start: match self.settings.start {
                StartOffset::Earliest => StartAt::Earliest,
                StartOffset::Latest => StartAt::Latest,
            },
            target_not_empty: match self.settings.on_target_not_empty {
                OnTargetNotEmpty::Stop => TargetNotEmpty::Stop,
                OnTargetNotEmpty::Append => TargetNotEmpty::Append,
            },
            shape: self.shape(),
            window_max: usize::from(self.settings.produce.in_flight_per_partition_max),
            old_age,
            tail_bytes_max: self.settings.anchor.bytes.saturating_mul(TAIL_BYTES_FACTOR),
            stopped_retry: Duration::from_secs(30),
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
            if let Ok(configs) = self
                .target
                .broker_configs(broker, &["transactional.id.expiration.ms"])
                .await
                && let Some(ms) = configs
                    .get("transactional.id.expiration.ms")
                    .and_then(|value| value.parse().ok())
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
            // Ends with the commands' channel, after the flow has drained.
            stop: CancellationToken::new(),
        }
    }
}

fn cluster(settings: &ClusterSettings) -> Cluster {
    let connector = Arc::new(TcpConnector {
        connect_timeout: settings.connect_timeout,
    });
    let dialer = Dialer::new(connector, &settings.client_id, settings.connect_timeout);
    let config = ClusterConfig {
        alias: settings.alias.as_str().into(),
        bootstrap: settings
            .bootstrap_servers
            .iter()
            .map(|at| (at.host.clone(), at.port))
            .collect(),
        request_timeout: settings.request_timeout,
        idle_max: settings.connections_max_idle,
    };
    Cluster::new(config, dialer)
}

/// Leaders that partitions asked to learn anew.
#[derive(Default)]
struct Refresh {
    source: bool,
    target: bool,
    at: Option<Instant>,
}

impl Refresh {
    fn ask(&mut self, source: bool) {
        if source {
            self.source = true;
        } else {
            self.target = true;
        }
        self.at.get_or_insert(Instant::now() + REFRESH_PAUSE);
    }
}

struct Copy {
    source: TopicPartition,
    slot: u8,
    worker: usize,
}

struct Running<'a> {
    flow: &'a Flow,
    context: &'a FlowContext,
    discovery: Discovery<'a>,
    runs: RunsTopic,
    group: Arc<str>,
    shards: Vec<mpsc::Sender<Command>>,
    lease_commands: mpsc::Sender<LeaseCommand>,
    anchor_offers: mpsc::Sender<Vec<super::report::AnchorOffer>>,
    copies: BTreeMap<CopyId, Copy>,
    next_id: u32,
    /// Slots of the lease that are ours.
    owned: SlotSet,
    assigned_once: bool,
    /// Topics at the start; others begin at their beginning even under `latest`.
    first_topics: BTreeSet<TopicName>,
    topics: Vec<Discovered>,
    refresh: Refresh,
}

impl Running<'_> {
    async fn follow(
        &mut self,
        mut lease_events: mpsc::Receiver<LeaseEvent>,
        reports: &mut mpsc::Receiver<Report>,
    ) -> Result<(), FlowError> {
        let interval = self.flow.settings.refresh_topics;
        let mut next_discovery = interval.map(|interval| Instant::now() + interval);
        let max_age = self.flow.settings.source.metadata_max_age;
        let mut next_metadata = Instant::now() + max_age;
        loop {
            let refresh_at = self.refresh.at;
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
                () = sleep_until(refresh_at.unwrap_or_else(Instant::now)), if refresh_at.is_some() => {
                    self.refresh_leaders().await;
                }
                () = sleep_until(next_discovery.unwrap_or_else(Instant::now)), if next_discovery.is_some() => {
                    next_discovery = interval.map(|interval| Instant::now() + interval);
                    self.discover().await;
                }
                () = sleep_until(next_metadata) => {
                    next_metadata = Instant::now() + max_age;
                    self.refresh.ask(true);
                    self.refresh.ask(false);
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
            && self.copies.keys().all(|id| {
                status.partitions.get(id).is_some_and(|(_, row)| {
                    row.reached_goal || matches!(row.state, PartitionState::Stopped(_))
                })
            })
    }

    fn not_copied(&self) -> Vec<(String, String)> {
        let status = self.flow.status.borrow();
        status
            .partitions
            .values()
            .filter_map(|(name, row)| match &row.state {
                PartitionState::Stopped(reason) => {
                    Some((name.clone(), format!("{reason}; {}", reason.remedy())))
                }
                _ => None,
            })
            .collect()
    }

    async fn report(&mut self, report: Report) {
        match report {
            Report::Partitions(rows) => {
                let mut status = self.flow.status.borrow_mut();
                for (id, row) in rows {
                    if let Some(copy) = self.copies.get(&id) {
                        status.partitions.insert(id, (copy.source.to_string(), row));
                    }
                }
            }
            Report::Anchors(offers) => {
                // The committer takes one lot after the other; while it waits for the coordinator, offers wait in
                // the shards, which count their tails.
                if let Err(error) = self.anchor_offers.try_send(offers) {
                    let offers = match error {
                        mpsc::error::TrySendError::Full(offers)
                        | mpsc::error::TrySendError::Closed(offers) => offers,
                    };
                    self.refuse_anchors(offers).await;
                }
            }
            Report::RefreshSource => self.refresh.ask(true),
            Report::RefreshTarget => self.refresh.ask(false),
        }
    }

    async fn refuse_anchors(&self, offers: Vec<super::report::AnchorOffer>) {
        for shard in &self.shards {
            let outcomes = offers
                .iter()
                .map(|offer| super::report::AnchorOutcome {
                    copy: offer.copy,
                    durable: None,
                })
                .collect();
            let _ = shard.send(Command::Anchored(outcomes)).await;
        }
    }

    async fn refresh_leaders(&mut self) {
        let refresh = std::mem::take(&mut self.refresh);
        let topics = |remote: bool| -> BTreeSet<TopicName> {
            self.topics
                .iter()
                .map(|topic| {
                    if remote {
                        topic.target.clone()
                    } else {
                        topic.source.clone()
                    }
                })
                .collect()
        };
        for (wanted, cluster, names) in [
            (refresh.source, &self.flow.source, topics(false)),
            (refresh.target, &self.flow.target, topics(true)),
        ] {
            if !wanted || names.is_empty() {
                continue;
            }
            // Bounded, so that one cluster that hangs does not keep the other's leaders from being learnt.
            match tokio::time::timeout(Duration::from_secs(5), cluster.refresh(&names)).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => {
                    debug!(flow = %self.flow.name, %error, "leaders could not be learnt");
                    tokio::time::sleep(REFRESH_PAUSE).await;
                }
                Err(_) => {
                    debug!(flow = %self.flow.name, cluster = %cluster.alias(), "leaders could not be learnt in time")
                }
            }
        }
    }

    async fn discover(&mut self) {
        match self.discovery.look().await {
            Ok((found, changes)) => {
                self.discovery.apply(changes).await;
                self.topics = found;
                let owned = self.owned;
                self.assign(owned, true).await;
            }
            Err(error) => warn!(flow = %self.flow.name, %error, "topics could not be looked for"),
        }
    }

    async fn own(&mut self, slots: SlotSet) {
        self.owned = self.owned.union(&slots);
        "copying".clone_into(&mut self.flow.status.borrow_mut().state);
        self.assign(slots, false).await;
        self.assigned_once = true;
    }

    /// Gives every partition of these slots that nobody copies yet to a worker.
    async fn assign(&mut self, slots: SlotSet, appeared: bool) {
        let known: BTreeSet<TopicPartition> = self
            .copies
            .values()
            .map(|copy| copy.source.clone())
            .collect();
        let mut fresh = Vec::new();
        for topic in &self.topics {
            for partition in 0..topic.partitions {
                let source = TopicPartition::new(topic.source.clone(), partition);
                let slot = slot_of(topic.target.as_str(), partition);
                if slots.contains(slot) && !known.contains(&source) {
                    fresh.push((topic.clone(), source, slot));
                }
            }
        }
        if fresh.is_empty() {
            return;
        }
        let targets: BTreeSet<TopicPartition> = fresh
            .iter()
            .map(|(topic, source, _)| TopicPartition::new(topic.target.clone(), source.partition))
            .collect();
        let anchors = committed_anchors(
            &self.flow.target,
            &self.group,
            &self.runs,
            &targets,
            &self.context.stop,
        )
        .await;
        let Some(anchors) = anchors else { return };
        let (sources, remotes) = (self.flow.source.snapshot(), self.flow.target.snapshot());
        let mut lots: BTreeMap<usize, Vec<_>> = BTreeMap::new();
        for (topic, source, slot) in fresh {
            let target = TopicPartition::new(topic.target.clone(), source.partition);
            let source_topic_id = sources.topic_id(&source.topic).unwrap_or_default();
            let (anchor, trouble) = match anchors.get(&target) {
                Some(Ok(anchor)) => (Some(anchor.clone()), None),
                Some(Err(error)) => (None, Some(unreadable(error))),
                None => (None, None),
            };
            let reason = topic
                .refused
                .clone()
                .map(|why| StopReason::TwoWriters { why })
                .or(trouble);
            let fresh_identity = identity(IdentityOf {
                source_cluster: &self.flow.source_cluster_id,
                target_cluster: &self.flow.target_cluster_id,
                flow: &self.flow.name,
                partition: &source,
                topic_id: source_topic_id,
            });
            let spec = PartitionSpec {
                target_topic_id: remotes.topic_id(&target.topic).unwrap_or_default(),
                source: source.clone(),
                target,
                source_topic_id,
                fresh_identity,
                anchor,
                target_batch_bytes_max: topic.target_batch_bytes_max,
                appeared_later: appeared || !self.first_topics.contains(&source.topic),
            };
            let id = CopyId(self.next_id);
            self.next_id = self.next_id.wrapping_add(1);
            let worker = usize::try_from(id.0).unwrap_or(0) % self.shards.len().max(1);
            self.copies.insert(
                id,
                Copy {
                    source,
                    slot,
                    worker,
                },
            );
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

    async fn revoke(
        &mut self,
        slots: SlotSet,
        why: RevokeReason,
        reports: &mut mpsc::Receiver<Report>,
    ) {
        self.owned = self.owned.minus(&slots);
        let going: Vec<CopyId> = self
            .copies
            .iter()
            .filter(|(_, copy)| slots.contains(copy.slot))
            .map(|(id, _)| *id)
            .collect();
        warn!(flow = %self.flow.name, partitions = going.len(), ?why, "partitions given up");
        let patience = if why == RevokeReason::Lost {
            Duration::from_millis(200)
        } else {
            DRAIN_PATIENCE
        };
        self.give_up(&going, patience, reports).await;
        let _ = self.lease_commands.send(LeaseCommand::Revoked(slots)).await;
    }

    /// Lets workers stop these; true if all of them settled in time.
    async fn give_up(
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
                .filter(|id| {
                    self.copies
                        .get(id)
                        .is_some_and(|copy| copy.worker == worker)
                })
                .collect();
            if copies.is_empty() {
                continue;
            }
            let (done, settled) = oneshot::channel();
            let _ = shard.send(Command::Revoke { copies, done }).await;
            waiting.push(settled);
        }
        let deadline = Instant::now() + patience;
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
                    () = sleep_until(deadline) => {
                        all = false;
                        break;
                    }
                }
            }
        }
        for id in going {
            self.copies.remove(id);
            self.flow.status.borrow_mut().partitions.remove(id);
        }
        all
    }

    /// Ends in order: stop fetching, let what is in flight settle, make last anchors durable.
    async fn drain(&mut self, reports: &mut mpsc::Receiver<Report>) -> bool {
        "stopping".clone_into(&mut self.flow.status.borrow_mut().state);
        let all: Vec<CopyId> = self.copies.keys().copied().collect();
        let settled = self.give_up(&all, DRAIN_PATIENCE, reports).await;
        info!(flow = %self.flow.name, partitions = all.len(), settled, "drained");
        settled
    }
}

fn unreadable(error: &AnchorError) -> StopReason {
    StopReason::PositionUnknown {
        why: format!("its anchor cannot be read: {error}"),
    }
}

/// The time of day, for callers that report.
pub(crate) fn wall_ms() -> i64 {
    wall_clock::now_ms()
}

/// What is known of the position of a partition from the target.
pub(crate) type Anchors = BTreeMap<TopicPartition, Result<Anchor, AnchorError>>;
