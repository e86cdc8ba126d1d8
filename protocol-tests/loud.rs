//! What the mirror says of itself while something does not work, against embedded clusters over TCP.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use kafka_protocol::messages::ApiKey;
use tokio::runtime;
use tokio::task::{JoinHandle, LocalSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use towpath::batch::BatchBuilder;
use towpath::config;
use towpath::mirror::{FlowReport, Observer, Outcome, Supervisor, Watcher};
use towpath::protocol::ErrorCode;
use towpath::testkit::engine::{ClusterSettings, Intercept, InterceptAction};
use towpath::testkit::server::EmbeddedCluster;
use towpath::wall_clock;

/// Far more than any of these tests takes.
const DEADLINE: Duration = Duration::from_secs(150);
/// For what takes a few seconds on an idle machine.
pub(crate) const SOON: Duration = Duration::from_secs(45);

pub(crate) fn run<F: Future<Output = ()>>(test: F) {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    LocalSet::new().block_on(&runtime, async {
        tokio::time::timeout(DEADLINE, test).await.expect("done in time");
    });
}

pub(crate) async fn cluster(name: &str) -> EmbeddedCluster {
    let settings =
        ClusterSettings::new(name, wall_clock::now_ms()).with_config("group.initial.rebalance.delay.ms", "0");
    EmbeddedCluster::start(settings).await.expect("a free port")
}

pub(crate) fn topic(cluster: &EmbeddedCluster, name: &str, partitions: usize) {
    cluster.with(|cluster, _| cluster.create_topic(name, partitions, 1, &[])).expect("the topic is new");
}

/// Batches of one record each, as a producer without idempotence leaves them.
pub(crate) fn append(cluster: &EmbeddedCluster, topic: &str, batches: i64, bytes: usize) {
    cluster.with(|cluster, _| {
        let end = cluster.topic(topic).expect("it is there").partitions[0].end_offset;
        for offset in end..end + batches {
            let mut builder = BatchBuilder::new();
            builder.push(wall_clock::now_ms(), None, Some(&vec![b'x'; bytes]), &[]).expect("it is small");
            let mut bytes = builder.build().expect("there is a record").to_vec();
            bytes[..8].copy_from_slice(&offset.to_be_bytes());
            cluster.append_raw(topic, 0, bytes.into());
        }
    });
}

pub(crate) fn end_of(cluster: &EmbeddedCluster, topic: &str) -> i64 {
    cluster.with(|cluster, _| cluster.topic(topic)).map_or(0, |view| view.partitions[0].end_offset)
}

/// A mirror that runs, and what it says.
pub(crate) struct Mirror {
    stop: CancellationToken,
    reports: Rc<RefCell<Vec<FlowReport>>>,
    pub(crate) observer: Observer,
    task: JoinHandle<Outcome>,
}

pub(crate) fn settings(dir: &Path, state: &str, clusters: &[(&str, &EmbeddedCluster)], lines: &str) -> config::Loaded {
    let aliases: Vec<&str> = clusters.iter().map(|(alias, _)| *alias).collect();
    let mut text = format!("clusters = {}\n", aliases.join(", "));
    for (alias, cluster) in clusters {
        text += &format!("{alias}.bootstrap.servers = {}\n", cluster.bootstrap_servers());
    }
    text += "A->B.enabled = true\nreplication.factor = 1\nrefresh.topics.interval.seconds = 1\n";
    text += &format!("towpath.state.dir = {}\n{lines}\n", dir.join(state).display());
    let path = dir.join(format!("{state}.properties"));
    std::fs::write(&path, text).expect("the directory is ours");
    config::load(&path).expect("a good file")
}

impl Mirror {
    pub(crate) fn start(loaded: config::Loaded, until_caught_up: bool) -> Self {
        let (stop, reports) = (CancellationToken::new(), Rc::new(RefCell::new(Vec::new())));
        let told = reports.clone();
        let tell = Box::new(move |now: &[FlowReport]| *told.borrow_mut() = now.to_vec());
        let supervisor = Supervisor::new(loaded.settings, until_caught_up, stop.clone());
        let mut supervisor = supervisor.watched_by(Watcher { interval: Duration::from_millis(50), tell });
        let observer = supervisor.observer();
        let task = tokio::task::spawn_local(async move { supervisor.run().await.expect("it starts") });
        Self { stop, reports, observer, task }
    }

    /// Waits until some flow is as wanted.
    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&FlowReport) -> bool) -> FlowReport {
        let deadline = Instant::now() + SOON;
        loop {
            if let Some(report) = self.reports.borrow().iter().find(|report| wanted(report)) {
                return report.clone();
            }
            assert!(Instant::now() < deadline, "not {what}: {:?}", self.reports.borrow());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub(crate) async fn stop(self) -> Outcome {
        self.stop.cancel();
        self.task.await.expect("it ends")
    }
}

pub(crate) fn caught_up(report: &FlowReport) -> bool {
    report.totals.partitions > 0 && report.totals.caught_up == report.totals.partitions
}

pub(crate) fn notable(report: &FlowReport, words: &str) -> bool {
    report.totals.other > 0 && report.notable.iter().any(|(_, state)| state.to_string().starts_with(words))
}

#[test]
fn a_dead_target_is_named_and_the_lag_stays_right_and_the_lapse_is_said_when_it_comes() {
    run(async {
        let dir = tempfile::tempdir().expect("room for a directory");
        let (source, target) = (cluster("source").await, cluster("target").await);
        topic(&source, "t", 1);
        append(&source, "t", 3, 100);
        let lines = "towpath.session.timeout.ms = 6000";
        let mirror = Mirror::start(settings(dir.path(), "one", &[("A", &source), ("B", &target)], lines), false);
        mirror.until("caught up", caught_up).await;
        let port = target.port(1).expect("it has one");

        target.stop_node(1);
        append(&source, "t", 1, 100);
        let why = format!("awaiting the target: cannot connect to 127.0.0.1:{port}: Connection refused");
        mirror.until("told why", |report| notable(report, &why)).await;
        // More than may wait for sending, so that nothing is fetched any more.
        append(&source, "t", 200, 40_000);
        let lapsed = "lease lapsed: nothing is sent until membership is proven again";
        mirror.until("lapsed", |report| report.state.starts_with(lapsed)).await;
        append(&source, "t", 100, 40_000);
        let report = mirror.until("behind by all", |report| report.totals.lag == 301).await;
        assert!(notable(&report, &why), "{report:?}");

        target.start_node(1).await.expect("its port is free");
        mirror.until("caught up again", |report| caught_up(report) && report.totals.lag == 0).await;
        let report = mirror.until("copying", |report| report.state == "copying").await;
        assert_eq!((report.totals.other, end_of(&target, "A.t")), (0, 304));
        assert!(matches!(mirror.stop().await, Outcome::Done));
    });
}

#[test]
fn brokers_that_take_requests_and_do_not_answer_are_named() {
    run(async {
        let dir = tempfile::tempdir().expect("room for a directory");
        let (source, target) = (cluster("source").await, cluster("target").await);
        topic(&source, "t", 1);
        append(&source, "t", 3, 100);
        let mirror = Mirror::start(settings(dir.path(), "one", &[("A", &source), ("B", &target)], ""), false);
        mirror.until("caught up", caught_up).await;
        for (api, side, cluster) in [(ApiKey::Fetch, "source", &source), (ApiKey::Produce, "target", &target)] {
            let delay = InterceptAction::Delay(Duration::from_secs(9));
            cluster.with(|cluster, _| cluster.intercept(Intercept::next(api, delay)));
            append(&source, "t", 1, 100);
            let why = format!("awaiting the {side}: no answer for 5 s");
            mirror.until(&why, |report| notable(report, &why)).await;
            mirror.until("caught up", |report| caught_up(report) && report.totals.lag == 0).await;
        }
        assert_eq!(end_of(&target, "A.t"), 5);
        mirror.stop().await;
    });
}

#[test]
fn a_flow_that_cannot_run_says_why_while_others_go_on() {
    run(async {
        let dir = tempfile::tempdir().expect("room for a directory");
        let (source, target) = (cluster("source").await, cluster("target").await);
        topic(&source, "t", 1);
        append(&source, "t", 3, 100);
        let clusters = [("A", &source), ("B", &target), ("C", &target)];
        let mirror = Mirror::start(settings(dir.path(), "one", &clusters, "B->C.enabled = true"), false);
        mirror.until("caught up", |report| report.name == "A->B" && caught_up(report)).await;
        let why = "cannot run: B and C are the same cluster";
        mirror.until("told why", |report| report.name == "B->C" && report.state.starts_with(why)).await;
        mirror.stop().await;
    });
}

#[test]
fn a_member_that_stops_hands_over_at_once_and_one_that_is_alone_keeps_its_place() {
    run(async {
        let dir = tempfile::tempdir().expect("room for a directory");
        let (source, target) = (cluster("source").await, cluster("target").await);
        topic(&source, "t", 12);
        let clusters = [("A", &source), ("B", &target)];
        let first = Mirror::start(settings(dir.path(), "one", &clusters, ""), false);
        first.until("owner of all", |report| report.totals.caught_up == 12).await;
        let second = Mirror::start(settings(dir.path(), "two", &clusters, ""), false);
        let shares = |report: &FlowReport| report.totals.caught_up > 0 && report.totals.partitions < 12;
        second.until("sharing", shares).await;
        first.until("sharing", shares).await;

        assert!(matches!(first.stop().await, Outcome::Done));
        let stopped = Instant::now();
        second.until("owner of all", |report| report.totals.caught_up == 12).await;
        // A heartbeat may take three seconds, a session thirty.
        assert!(stopped.elapsed() < Duration::from_secs(10), "{:?}", stopped.elapsed());

        second.stop().await;
        let again = Mirror::start(settings(dir.path(), "two", &clusters, ""), false);
        again.until("owner of all", |report| report.totals.caught_up == 12).await;
        assert!(stopped.elapsed() < Duration::from_secs(20), "{:?}", stopped.elapsed());
        again.stop().await;
        let instance = std::fs::read_to_string(dir.path().join("two/instance-id")).expect("it is there");

        let other = Mirror::start(settings(dir.path(), "three", &clusters, ""), false);
        let why = format!(
            "lease joining: waits for the former member (instance {}) until its session ends, at most 30 s",
            instance.trim()
        );
        other.until("told for whom it waits", |report| report.state.starts_with(&why)).await;
        other.stop().await;
    });
}

#[test]
fn topics_that_match_nothing_are_told() {
    run(async {
        let dir = tempfile::tempdir().expect("room for a directory");
        let (source, target) = (cluster("source").await, cluster("target").await);
        topic(&source, "t", 1);
        let loaded = || settings(dir.path(), "one", &[("A", &source), ("B", &target)], "topics = order, invoices.*");
        let mirror = Mirror::start(loaded(), false);
        mirror.until("told", |report| report.state == "no topics to copy").await;
        // It is looked for them again.
        topic(&source, "order", 1);
        mirror.until("copying", |report| report.state == "copying" && caught_up(report)).await;
        mirror.stop().await;
        source.with(|cluster, _| cluster.delete_topic("order"));
        let outcome = Mirror::start(loaded(), true).task.await.expect("it ends");
        assert!(matches!(outcome, Outcome::Done), "{outcome:?}");
    });
}

#[test]
fn a_dry_run_names_what_will_not_go() {
    run(async {
        let dir = tempfile::tempdir().expect("room for a directory");
        let (source, target) = (cluster("source").await, cluster("target").await);
        topic(&source, "t", 1);
        let lines = "topics = order, invoices.*\nA->B.replication.factor = 3";
        let loaded = settings(dir.path(), "one", &[("A", &source), ("B", &target)], lines);
        let supervisor = Supervisor::new(loaded.settings, false, CancellationToken::new());
        let plans = supervisor.dry_run().await.expect("both clusters answer");
        let [(_, lines)] = &plans[..] else { panic!("{plans:?}") };
        assert!(lines[0].starts_with("warning: replication.factor = 3, but B has 1 broker"), "{lines:?}");
        let last = lines.last().expect("there are lines");
        assert!(last.starts_with("nothing to copy: no topic of A matches topics = order, invoices.*"), "{lines:?}");
    });
}

#[test]
fn a_copy_that_shall_end_and_is_interrupted_names_what_it_is_behind() {
    run(async {
        let dir = tempfile::tempdir().expect("room for a directory");
        let (source, target) = (cluster("source").await, cluster("target").await);
        topic(&source, "t", 1);
        append(&source, "t", 7, 100);
        let delay = InterceptAction::Delay(Duration::from_secs(60));
        source.with(|cluster, _| cluster.intercept(Intercept::next(ApiKey::Fetch, delay)));
        let mirror = Mirror::start(settings(dir.path(), "one", &[("A", &source), ("B", &target)], ""), true);
        mirror.until("located", |report| report.totals.lag == 7).await;
        let outcome = mirror.stop().await;
        let Outcome::NotCopied(rows) = outcome else { panic!("{outcome:?}") };
        assert_eq!(rows, [("A->B t-0".to_owned(), "stopped by a signal, 7 records behind".to_owned())]);
    });
}

#[test]
fn a_batch_that_arrives_damaged_is_sent_again() {
    run(async {
        let dir = tempfile::tempdir().expect("room for a directory");
        let (source, target) = (cluster("source").await, cluster("target").await);
        topic(&source, "t", 1);
        append(&source, "t", 7, 100);
        let damaged = InterceptAction::Answer(ErrorCode::CORRUPT_MESSAGE);
        target.with(|cluster, _| cluster.intercept(Intercept::next(ApiKey::Produce, damaged).times(2)));
        let mirror = Mirror::start(settings(dir.path(), "one", &[("A", &source), ("B", &target)], ""), true);
        let outcome = mirror.task.await.expect("it ends");
        assert!(matches!(outcome, Outcome::Done), "{outcome:?}");
        assert_eq!(end_of(&target, "A.t"), 7);
    });
}
