//! One simulated world: two embedded clusters, a network, producers, one or two processes of the mirror, and a script of
//! faults; everything on one thread, with a clock that jumps to the next event.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    future::Future,
    path::Path,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    runtime,
    sync::mpsc,
    task::{JoinHandle, LocalSet},
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use towpath::{
    config::{self, Environment},
    mirror::{FlowReport, Outcome, Supervisor, Watcher, anchor::Anchor, lease::lease_group},
    simulation::{self, Planted},
    testkit::{
        engine::{ClusterSettings, ConnectionId},
        server::EmbeddedCluster,
    },
};

use super::{
    measure::{Most, count_lines},
    network::{Arrival, Gate, Network, Owner},
    oracle::{self, Copied, Ledger},
    random::Random,
    schedule::{Order, Schedule, Side},
    traffic,
};

/// The time of day at which worlds begin.
pub(super) const WALL_MS: i64 = 1_760_000_000_000;
/// After the last fault is over everything must be copied within this time.
const CATCH_UP: Duration = Duration::from_secs(300);
/// What an answer holds beside a batch: headers of partitions, and aborted transactions.
const FRAME_EXTRA: usize = 16 << 10;
/// How often somebody decides about what stands, in the end.
const OPERATES: Duration = Duration::from_secs(8);
/// How often the oracle looks.
const LOOK: Duration = Duration::from_millis(1_500);

/// A cluster with its place in the network.
pub(super) struct Site {
    pub(super) cluster: EmbeddedCluster,
    pub(super) network: Network,
    pub(super) began: Instant,
    name: &'static str,
    pub(super) nodes: i32,
    /// Nodes that are down until then.
    pub(super) down: RefCell<BTreeMap<i32, Instant>>,
}

impl Site {
    fn start(network: &Network, name: &'static str, settings: ClusterSettings) -> Rc<Self> {
        let nodes = settings.nodes;
        let cluster = EmbeddedCluster::detached(settings);
        let site = Rc::new(Self {
            cluster,
            network: network.clone(),
            began: Instant::now(),
            name,
            nodes,
            down: RefCell::default(),
        });
        let (arrivals, mut arriving) = mpsc::unbounded_channel::<Arrival>();
        for node in 1..=nodes {
            network.add_host(&site.host(node), node, arrivals.clone());
            site.cluster.with(|cluster, _| cluster.set_address(node, &site.host(node), 9092));
        }
        let host = Rc::downgrade(&site);
        tokio::task::spawn_local(async move {
            while let Some((node, stream)) = arriving.recv().await {
                let Some(site) = host.upgrade() else { return };
                site.cluster.attach(node, stream);
            }
        });
        site
    }

    pub(super) fn host(&self, node: i32) -> String {
        format!("{}-{node}", self.name)
    }

    fn bootstrap(&self) -> String {
        (1..=self.nodes).map(|node| format!("{}:9092", self.host(node))).collect::<Vec<_>>().join(",")
    }

    pub(super) fn leader(&self, topic: &str, partition: i32) -> Option<i32> {
        self.cluster.with(|cluster, _| cluster.leader(topic, partition))
    }

    pub(super) fn coordinator(&self, key: &str) -> Option<i32> {
        self.cluster.with(|cluster, _| cluster.coordinator_of(key))
    }

    pub(super) fn any_node(&self) -> Option<i32> {
        (1..=self.nodes).find(|node| !self.down.borrow().contains_key(node))
    }

    pub(super) fn stop(&self, node: i32, duration: Duration) {
        self.network.set_up(&self.host(node), false);
        self.down.borrow_mut().insert(node, Instant::now() + duration);
        self.cluster.stop_node(node);
    }

    pub(super) async fn start_node(&self, node: i32) {
        self.down.borrow_mut().remove(&node);
        self.network.set_up(&self.host(node), true);
        self.cluster.start_node(node).await.expect("there is no port to be taken");
    }
}

/// Polls what is inside only while the gate is open.
struct Gated<F> {
    gate: Arc<Gate>,
    inside: Pin<Box<F>>,
}

impl<F: Future> Future for Gated<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        if self.gate.holds(context) { Poll::Pending } else { self.inside.as_mut().poll(context) }
    }
}

type Ended = Rc<RefCell<Option<Result<Outcome, String>>>>;

/// A process of the mirror.
pub(super) struct Process {
    pub(super) number: usize,
    pub(super) task: JoinHandle<()>,
    pub(super) gate: Arc<Gate>,
    pub(super) stop: CancellationToken,
    pub(super) ended: Ended,
}

/// What went wrong in a world.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) at: Duration,
    pub(super) what: String,
}

/// What a world was like.
#[derive(Debug, Clone, Default)]
pub(super) struct Told {
    /// Condensed from everything that was written to a stream.
    pub(super) trace: u64,
    pub(super) log: Vec<String>,
    pub(super) records: u64,
    pub(super) most: Most,
    /// How long the catching up took after the last fault.
    pub(super) caught_up_after: Duration,
}

pub(super) struct World {
    pub(super) schedule: Schedule,
    pub(super) network: Network,
    pub(super) sites: [Rc<Site>; 2],
    directory: tempfile::TempDir,
    pub(super) processes: BTreeMap<usize, Process>,
    next_process: usize,
    pub(super) reports: Rc<RefCell<Vec<FlowReport>>>,
    pub(super) ledgers: BTreeMap<(usize, usize), Ledger>,
    /// For what happens only while faults are undone.
    pub(super) random: Random,
    pub(super) pending: Vec<(Instant, Undo)>,
    most: Most,
    /// Size of the largest batch that the source ever held.
    giant: usize,
    /// Topics that something happened to for which partitions may stand.
    pub(super) hurt: BTreeSet<usize>,
    /// Those whose remote topic was made by somebody else while batches may have been on their way to it.
    pub(super) strayed: BTreeSet<usize>,
}

/// What ends a fault.
pub(super) enum Undo {
    StartNode(Side, i32),
    StopNode(Side, i32, Duration),
    Release(Side, String),
    Truth(Side),
    ClearDisk(Side),
    Thaw(Side, i32, Order, Duration),
    Serve(Side, ConnectionId, usize),
    Depose(Side, i32),
    Start(usize),
    Open(usize),
    Retire(usize),
}

/// Runs a schedule to its end.
pub(super) fn run(schedule: &Schedule, planted: Option<Planted>) -> Result<Told, Failure> {
    let runtime = runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    let local = LocalSet::new();
    let result = local.block_on(&runtime, async {
        simulation::begin(WALL_MS, schedule.seed ^ 0x5eed);
        simulation::plant(planted);
        let _counting = count_lines();
        let began = Instant::now();
        let mut world = World::new(schedule.clone());
        let result = world.live().await;
        let (trace, log) = (world.network.trace(), world.network.log());
        world.end().await;
        result.map(|told| Told { trace, log, ..told }).map_err(|what| Failure { at: began.elapsed(), what })
    });
    drop(local);
    simulation::end();
    result
}

impl World {
    fn new(schedule: Schedule) -> Self {
        let network = Network::new(schedule.seed ^ 0xbead);
        let random = Random::new(schedule.seed ^ 0xfa17);
        let settings = |name: &str, side: Side| {
            ClusterSettings::new(name, WALL_MS)
                .with_version(schedule.versions[side as usize])
                .with_nodes(schedule.nodes[side as usize])
                .with_config("group.initial.rebalance.delay.ms", "0")
        };
        let mut target = settings("sim-target", Side::Target);
        for (key, value) in &schedule.target_configs {
            target = target.with_config(key, value);
        }
        let sites = [
            Site::start(&network, "source", settings("sim-source", Side::Source)),
            Site::start(&network, "target", target),
        ];
        let mut ledgers = BTreeMap::new();
        for (number, topic) in schedule.topics.iter().enumerate() {
            let mut configs = Vec::new();
            if topic.compacted {
                configs.push(("cleanup.policy", "compact"));
            }
            if topic.append_time {
                configs.push(("message.timestamp.type", "LogAppendTime"));
            }
            let nodes = schedule.nodes[0] as usize;
            let made = sites[0]
                .cluster
                .with(|cluster, _| cluster.create_topic(&topic.name, topic.partitions, nodes, &configs));
            made.expect("a new topic");
            for partition in 0..topic.partitions {
                ledgers.insert((number, partition), Ledger::default());
            }
        }
        let in_memory = Path::new("/dev/shm");
        let directory = if in_memory.is_dir() { tempfile::tempdir_in(in_memory) } else { tempfile::tempdir() };
        Self {
            schedule,
            network,
            sites,
            directory: directory.expect("room for a directory"),
            processes: BTreeMap::new(),
            next_process: 0,
            reports: Rc::default(),
            ledgers,
            pending: Vec::new(),
            random,
            most: Most::default(),
            giant: 0,
            hurt: BTreeSet::new(),
            strayed: BTreeSet::new(),
        }
    }

    pub(super) fn site(&self, side: Side) -> &Rc<Site> {
        &self.sites[side as usize]
    }

    fn read_committed(&self) -> bool {
        !self.schedule.settings.iter().any(|line| line.ends_with("read_uncommitted"))
    }

    /// Starts a process on a host; each host has a state directory.
    pub(super) fn start(&mut self, host: usize) {
        let number = self.next_process;
        self.next_process += 1;
        let state = self.directory.path().join(format!("host-{host}"));
        std::fs::create_dir_all(&state).expect("the directory is ours");
        std::fs::write(state.join("instance-id"), format!("{host:016x}\n")).expect("the directory is ours");
        let text = self.file(host);
        let loaded = config::parse(text.as_bytes(), "simulated.properties", &Environment::default());
        let mut settings = loaded.expect("a good file").settings;
        if let Some(memory) = self.schedule.memory {
            // Less than a file may say: the traffic of a world is small.
            settings.memory_bytes = memory;
        }
        if let Some(window) = self.schedule.window {
            // More than a file may say, and small requests, so that as many are really on their way.
            for flow in &mut settings.flows {
                (flow.produce.in_flight_per_partition_max, flow.produce.request_bytes_max) = (window, 500);
            }
        }
        let stop = CancellationToken::new();
        let gate = Arc::new(Gate::default());
        let reports = self.reports.clone();
        let watcher = Watcher {
            interval: Duration::from_secs(1),
            tell: Box::new(move |flows| *reports.borrow_mut() = flows.to_vec()),
        };
        let connector = self.network.connector(Owner::Mirror(number), gate.clone());
        let supervisor = Supervisor::new(settings, false, stop.clone()).watched_by(watcher).simulated(connector);
        let ended = Ended::default();
        let end = ended.clone();
        let inside = async move {
            // All tasks of the process live and die with this set.
            let tasks = LocalSet::new();
            let outcome = tasks.run_until(supervisor.run()).await;
            *end.borrow_mut() = Some(outcome.map_err(|error| error.to_string()));
        };
        let task = tokio::task::spawn_local(Gated { gate: gate.clone(), inside: Box::pin(inside) });
        self.processes.insert(host, Process { number, task, gate, stop, ended });
    }

    /// The mirror's file on a host.
    pub(super) fn file(&self, host: usize) -> String {
        let state = self.directory.path().join(format!("host-{host}"));
        format!(
            "clusters = A, B\nA.bootstrap.servers = {}\nB.bootstrap.servers = {}\nA->B.enabled = true\nA->B.topics = t.*\n\
             replication.factor = {}\ntowpath.state.dir = {}\n{}\n",
            self.sites[0].bootstrap(),
            self.sites[1].bootstrap(),
            self.schedule.nodes[1],
            state.display(),
            self.schedule.settings.join("\n")
        )
    }

    /// As kill -9 does: nothing more is done, what was written to a stream arrives.
    pub(super) async fn kill(&mut self, host: usize) {
        if let Some(process) = self.processes.remove(&host) {
            process.task.abort();
            let _ = process.task.await;
        }
    }

    pub(super) async fn terminate(&mut self, host: usize) -> Result<(), String> {
        let Some(process) = self.processes.remove(&host) else { return Ok(()) };
        self.network.clear_pauses();
        process.gate.open();
        process.stop.cancel();
        let mut task = process.task;
        if timeout(Duration::from_secs(60), &mut task).await.is_err() {
            task.abort();
            let _ = task.await;
            return Err("the mirror did not stop within 60 s of being asked to".to_owned());
        }
        Ok(())
    }

    async fn live(&mut self) -> Result<Told, String> {
        let began = Instant::now();
        let mut writers = Vec::new();
        for (number, plan) in self.schedule.topics.clone().into_iter().enumerate() {
            let seed = self.schedule.seed ^ (number as u64 + 1).wrapping_mul(0x1234_5677);
            writers.push(tokio::task::spawn_local(traffic::write(self.sites[0].clone(), plan, seed)));
        }
        self.start(0);
        let mut faults = self.schedule.faults.clone().into_iter().peekable();
        let mut next_look = began + LOOK;
        loop {
            let now = Instant::now();
            let due: Vec<Undo> = {
                let (due, later) = std::mem::take(&mut self.pending).into_iter().partition(|(at, _)| *at <= now);
                self.pending = later;
                let mut due: Vec<(Instant, Undo)> = due;
                due.sort_by_key(|(at, _)| *at);
                due.into_iter().map(|(_, undo)| undo).collect()
            };
            for undo in due {
                self.undo(undo).await?;
            }
            while faults.peek().is_some_and(|(at, _)| began + *at <= now) {
                let (_, fault) = faults.next().expect("it was peeked at");
                self.act(fault).await?;
            }
            if next_look <= now {
                self.look()?;
                next_look = now + LOOK;
            }
            if faults.peek().is_none() && now >= began + self.schedule.duration {
                break;
            }
            let mut wake = next_look.min(began + self.schedule.duration);
            if let Some((at, _)) = faults.peek() {
                wake = wake.min(began + *at);
            }
            wake = self.pending.iter().fold(wake, |wake, (at, _)| wake.min(*at));
            sleep_until(wake.max(now + Duration::from_millis(1))).await;
        }
        self.heal().await?;
        for writer in writers {
            writer.await.map_err(|error| format!("a producer failed: {error}"))?;
        }
        let healed = Instant::now();
        let mut next_operation = OPERATES;
        let mut told = Told::default();
        loop {
            if self.look()? {
                break;
            }
            if !self.hurt.is_empty() && healed.elapsed() > next_operation {
                next_operation = healed.elapsed() + OPERATES;
                self.operate().await?;
            }
            if healed.elapsed() > CATCH_UP {
                self.dump();
                return Err(format!("not caught up {} s after the last fault: {}", CATCH_UP.as_secs(), self.shown()));
            }
            sleep(Duration::from_millis(500)).await;
        }
        told.caught_up_after = healed.elapsed();
        let hosts: Vec<usize> = self.processes.keys().copied().collect();
        for host in hosts {
            self.terminate(host).await?;
        }
        if !self.look()? {
            return Err("a stop in order took records away".to_owned());
        }
        // What the last anchors say must be enough to go on without writing anything.
        let before = self.ends();
        self.start(0);
        sleep(Duration::from_secs(5)).await;
        self.look()?;
        if self.ends() != before {
            return Err("a start with nothing to copy wrote something".to_owned());
        }
        told.most = self.most;
        told.records = before.values().map(|end| *end as u64).sum();
        Ok(told)
    }

    fn ends(&self) -> BTreeMap<(usize, usize), i64> {
        let mut ends = BTreeMap::new();
        for (number, plan) in self.schedule.topics.iter().enumerate() {
            let view = self.sites[1].cluster.with(|cluster, _| cluster.topic(&format!("A.{}", plan.name)));
            for (partition, view) in view.into_iter().flat_map(|topic| topic.partitions).enumerate() {
                ends.insert((number, partition), view.end_offset);
            }
        }
        ends
    }

    /// What the mirror says of itself.
    fn shown(&self) -> String {
        let flows = self.reports.borrow();
        let flows = flows.iter().map(|flow| {
            let notable: Vec<_> = flow.notable.iter().map(|(name, state)| format!("{name}: {state}")).collect();
            format!(
                "{} {}, lag {}, caught up {}/{}; {}",
                flow.name,
                flow.state,
                flow.totals.lag,
                flow.totals.caught_up,
                flow.totals.partitions,
                notable.join("; ")
            )
        });
        let ended = self
            .processes
            .values()
            .filter_map(|process| process.ended.borrow().as_ref().map(|end| format!(" ended: {end:?}")));
        let mut missing = Vec::new();
        for ((topic, partition), ledger) in &self.ledgers {
            let Some(copy) = self.copy(*topic, *partition) else { continue };
            if let Ok(Copied::Partly { missing: count }) = oracle::compare(ledger, &copy, self.read_committed(), None) {
                missing.push(format!("{}-{partition}: {count} missing", self.schedule.topics[*topic].name));
            }
        }
        format!("{}{} [{}]", flows.collect::<Vec<_>>().join(" | "), ended.collect::<String>(), missing.join(", "))
    }

    /// Both logs of what is not whole, if somebody wants to see them.
    fn dump(&self) {
        if std::env::var_os("TOWPATH_SIM_DUMP").is_none() {
            return;
        }
        let anchors = self.anchors();
        for ((topic, partition), ledger) in &self.ledgers {
            let Some(copy) = self.copy(*topic, *partition) else { continue };
            if matches!(oracle::compare(ledger, &copy, self.read_committed(), None), Ok(Copied::Whole)) {
                continue;
            }
            let name = &self.schedule.topics[*topic].name;
            let source = self.sites[0].cluster.with(|cluster, _| cluster.topic(name));
            let source = source.and_then(|topic| topic.partitions.into_iter().nth(*partition));
            println!("source of {name}-{partition}:\n{}", source.map(|view| oracle::dump(&view)).unwrap_or_default());
            println!("copy:\n{}{:?}", oracle::dump(&copy), anchors.get(&(format!("A.{name}"), *partition as i32)));
        }
    }

    pub(super) fn copy(&self, topic: usize, partition: usize) -> Option<towpath::testkit::engine::PartitionView> {
        let name = format!("A.{}", self.schedule.topics[topic].name);
        let view = self.sites[1].cluster.with(|cluster, _| cluster.topic(&name))?;
        view.partitions.into_iter().nth(partition)
    }

    pub(super) fn anchors(&self) -> BTreeMap<(String, i32), Anchor> {
        let commits = self.sites[1].cluster.with(|cluster, _| cluster.committed(&lease_group("A", "B")));
        commits
            .into_iter()
            .filter_map(|(topic, partition, offset, metadata)| {
                Some(((topic, partition), Anchor::from_commit(offset, &metadata).ok()?))
            })
            .collect()
    }

    /// The oracle's look at everything. True if all is copied.
    pub(super) fn look(&mut self) -> Result<bool, String> {
        self.hear_losses();
        let writes = self.network.take_writes();
        let fetchers = self.schedule.nodes[0] as usize;
        let look = self.most.look(writes, self.giant + FRAME_EXTRA, fetchers);
        let read_committed = self.read_committed();
        let anchors = self.anchors();
        let mut whole = true;
        for number in 0..self.schedule.topics.len() {
            let name = self.schedule.topics[number].name.clone();
            let remote = format!("A.{name}");
            let source =
                self.sites[0].cluster.with(|cluster, _| cluster.topic(&name)).ok_or("the source topic is gone")?;
            let target = self.sites[1].cluster.with(|cluster, _| cluster.topic(&remote));
            for (partition, view) in source.partitions.iter().enumerate() {
                let ledger = self.ledgers.get_mut(&(number, partition)).ok_or("no ledger")?;
                let wrong = |what: String| format!("{name}-{partition}: {what}");
                ledger.note(view).map_err(wrong)?;
                let largest = view.entries.iter().map(|stored| stored.bytes.len()).max();
                self.giant = self.giant.max(largest.unwrap_or(0));
                let Some(copy) = target.as_ref().and_then(|topic| topic.partitions.get(partition)) else {
                    whole = false;
                    continue;
                };
                let anchor = anchors.get(&(remote.clone(), partition as i32));
                let compared = oracle::compare(ledger, copy, read_committed, anchor);
                if compared.is_err() && std::env::var_os("TOWPATH_SIM_DUMP").is_some() {
                    println!("source of {name}-{partition}:\n{}copy:\n{}", oracle::dump(view), oracle::dump(copy));
                    println!("{anchor:?}");
                }
                if compared.is_err() && self.strayed.contains(&number) {
                    // A batch that was on its way went into a topic that somebody else made; that must be seen later.
                    whole = false;
                    continue;
                }
                match compared.map_err(wrong)? {
                    Copied::Whole => {}
                    Copied::Partly { .. } => whole = false,
                }
            }
        }
        look?;
        Ok(whole)
    }

    async fn end(&mut self) {
        let hosts: Vec<usize> = self.processes.keys().copied().collect();
        for host in hosts {
            self.kill(host).await;
        }
    }
}
