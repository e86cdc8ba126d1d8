//! What others see of a mirror: `towpath status`, metrics, readiness, against embedded clusters over TCP.

use std::path::Path;
use std::time::Duration;

use kafka_protocol::messages::ApiKey;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;

use towpath::api::{ServeError, Server};
use towpath::config;
use towpath::mirror::status::{FlowView, PartitionView, Verdict, status};
use towpath::protocol::ErrorCode;
use towpath::testkit::engine::{Intercept, InterceptAction};
use towpath::testkit::server::EmbeddedCluster;

use crate::loud::{Mirror, SOON, append, caught_up, cluster, run, settings, topic};

const PATIENCE: Duration = Duration::from_secs(5);

/// What a process without a state directory of its own reads.
async fn look(loaded: &config::Loaded) -> Vec<FlowView> {
    status(&loaded.settings.flows, &loaded.settings.flows, PATIENCE).await
}

async fn look_until(loaded: &config::Loaded, what: &str, wanted: impl Fn(&FlowView) -> bool) -> FlowView {
    let deadline = Instant::now() + SOON;
    loop {
        let views = look(loaded).await;
        if let Some(view) = views.iter().find(|view| wanted(view)) {
            return view.clone();
        }
        assert!(Instant::now() < deadline, "not {what}: {views:#?}");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

fn row<'a>(view: &'a FlowView, topic: &str) -> &'a PartitionView {
    view.partitions.iter().find(|row| row.topic == topic).expect("it is among the topics")
}

fn state_is(view: &FlowView, topic: &str, state: &str) -> bool {
    view.partitions.iter().any(|row| row.topic == topic && row.state == state)
}

#[test]
fn status_tells_positions_lag_and_what_stands_while_a_mirror_runs_and_without_one() {
    run(async {
        let dir = tempfile::tempdir().expect("room for a directory");
        let (source, target) = (cluster("source").await, cluster("target").await);
        for name in ["t", "u"] {
            topic(&source, name, 1);
            append(&source, name, 3, 100);
        }
        topic(&target, "A.u", 1);
        append(&target, "A.u", 5, 100);
        let lines = "towpath.session.timeout.ms = 6000";
        let loaded = || settings(dir.path(), "one", &[("A", &source), ("B", &target)], lines);
        let other = settings(dir.path(), "elsewhere", &[("A", &source), ("B", &target)], lines);

        let view = look(&other).await.remove(0);
        assert_eq!((view.verdict, row(&view, "t").state.as_str()), (Verdict::NotCopying, "target-missing"));
        assert_eq!(row(&view, "u").state, "never-seen");

        let mirror = Mirror::start(loaded(), false);
        let recorded = |view: &FlowView| state_is(view, "u", "target-not-empty") && state_is(view, "t", "caught-up");
        let view = look_until(&other, "recorded", recorded).await;
        assert_eq!((view.verdict, view.mirrors.as_ref().map(Vec::len)), (Verdict::NotCopying, Some(1)));
        let (t, u) = (row(&view, "t"), row(&view, "u"));
        assert_eq!(
            (t.source_offset, t.target_offset, t.source_end, t.lag_records),
            (Some(3), Some(3), Some(3), Some(0))
        );
        assert!(t.copying && t.confirmed_ms.is_some() && t.remote_topic == "A.t", "{t:?}");
        assert!(u.awaits_decision && !u.copying, "{u:?}");
        let reason = "target not empty: offsets 0 to 5 exist there, and nothing says that Towpath wrote them";
        assert_eq!(u.reason.as_deref(), Some(reason));
        assert!(u.remedy.as_deref().is_some_and(|remedy| remedy.contains("towpath resume FILE --topic u")), "{u:?}");

        mirror.stop().await;
        append(&source, "t", 7, 100);
        let view = look_until(&other, "without a mirror", |view| state_is(view, "t", "not-running")).await;
        let t = row(&view, "t");
        assert_eq!((t.source_offset, t.source_end, t.lag_records), (Some(3), Some(10), Some(7)));
        assert_eq!((view.lag_records, row(&view, "u").state.as_str()), (7, "target-not-empty"));
        assert!(view.problems.iter().any(|line| line.starts_with("no mirror runs")), "{view:?}");
    });
}

#[test]
fn a_cluster_that_cannot_be_reached_is_one_line_and_hides_no_other_flow() {
    run(async {
        let dir = tempfile::tempdir().expect("room for a directory");
        let (source, target) = (cluster("source").await, cluster("target").await);
        topic(&source, "t", 1);
        append(&source, "t", 3, 100);
        let mirror = Mirror::start(settings(dir.path(), "one", &[("A", &source), ("B", &target)], ""), false);
        mirror.until("caught up", caught_up).await;
        let lines = "clusters = A, B, C\nC.bootstrap.servers = 127.0.0.1:1\nC->B.enabled = true\nA->C.enabled = true";
        let loaded = settings(dir.path(), "elsewhere", &[("A", &source), ("B", &target)], lines);
        let began = Instant::now();
        let views = look(&loaded).await;
        assert!(began.elapsed() < 3 * PATIENCE, "{:?}", began.elapsed());
        for view in &views {
            let reached = view.flow == "A->B";
            assert_eq!(view.verdict, if reached { Verdict::Copying } else { Verdict::Unknown }, "{view:?}");
            let unreachable = |line: &String| line.starts_with("no broker of cluster C can be reached");
            assert_eq!(
                view.problems.iter().filter(|line| unreachable(line)).count(),
                usize::from(!reached),
                "{view:?}"
            );
        }
        assert_eq!(views.len(), 3);
        mirror.stop().await;
    });
}

#[test]
fn an_idle_partition_is_not_recorded_again() {
    run(async {
        let dir = tempfile::tempdir().expect("room for a directory");
        let (source, target) = (cluster("source").await, cluster("target").await);
        topic(&source, "t", 1);
        topic(&source, "idle", 30);
        append(&source, "t", 3, 100);
        let mirror = Mirror::start(settings(dir.path(), "one", &[("A", &source), ("B", &target)], ""), false);
        mirror.until("caught up", |report| report.totals.caught_up == 31).await;
        let committed = async || {
            let observed = mirror.observer.observe(PATIENCE).await.expect("it answers");
            observed.flows[0].anchors.committed
        };
        // By then each of them is recorded as caught up.
        tokio::time::sleep(Duration::from_secs(10)).await;
        let before = committed().await;
        assert!((31..=70).contains(&before), "{before}");
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert_eq!(committed().await, before, "nothing happened");
        mirror.stop().await;
    });
}

#[test]
fn a_wait_that_lasts_is_recorded_with_its_reason() {
    run(async {
        let dir = tempfile::tempdir().expect("room for a directory");
        let (source, target) = (cluster("source").await, cluster("target").await);
        topic(&source, "t", 1);
        append(&source, "t", 3, 100);
        let loaded = || settings(dir.path(), "one", &[("A", &source), ("B", &target)], "");
        let mirror = Mirror::start(loaded(), false);
        mirror.until("caught up", caught_up).await;
        let delay = InterceptAction::Delay(Duration::from_secs(25));
        target.with(|cluster, _| cluster.intercept(Intercept::next(ApiKey::Produce, delay)));
        append(&source, "t", 1, 100);
        let view = look_until(&loaded(), "told", |view| state_is(view, "t", "awaiting-target")).await;
        let t = row(&view, "t");
        assert!(t.reason.as_deref().is_some_and(|why| why.starts_with("no answer for")), "{t:?}");
        assert!(!t.copying && t.lag_records == Some(1) && t.since_ms.is_some(), "{t:?}");
        let goes_on = |view: &FlowView| view.verdict == Verdict::Copying && view.lag_records == 0;
        let view = look_until(&loaded(), "going on", goes_on).await;
        assert_eq!(row(&view, "t").target_offset, Some(4));
        mirror.stop().await;
    });
}

#[test]
fn what_does_not_move_is_named_with_what_it_waits_for() {
    run(async {
        let dir = tempfile::tempdir().expect("room for a directory");
        let (source, target) = (cluster("source").await, cluster("target").await);
        topic(&source, "t", 1);
        append(&source, "t", 3, 100);
        let lines = "towpath.session.timeout.ms = 6000\ntowpath.not.moving.seconds = 2";
        let mirror = Mirror::start(settings(dir.path(), "one", &[("A", &source), ("B", &target)], lines), false);
        mirror.until("caught up", caught_up).await;
        for api in [ApiKey::Heartbeat, ApiKey::OffsetCommit, ApiKey::JoinGroup] {
            let refuse = InterceptAction::Answer(ErrorCode::COORDINATOR_NOT_AVAILABLE);
            target.with(|cluster, _| cluster.intercept(Intercept::next(api, refuse).times(100_000)));
        }
        mirror.until("lapsed", |report| report.state.starts_with("lease lapsed")).await;
        append(&source, "t", 5, 100);
        let said = mirror.until("named", |report| {
            report.notable.iter().any(|(_, state)| state.to_string().starts_with("not moving: waits for the lease"))
        });
        let report = said.await;
        assert_eq!((report.totals.lag, report.totals.other), (5, 1));
        let observed = mirror.observer.observe(PATIENCE).await.expect("it answers");
        assert!(observed.flows[0].partitions[0].2.not_moving_since_ms.is_some());
        assert!(!observed.flows[0].lease_held);
        mirror.stop().await;
    });
}

async fn ask(server: &Server, request: &str) -> String {
    let mut stream = TcpStream::connect(server.at).await.expect("it listens");
    stream.write_all(request.as_bytes()).await.expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("text");
    answer
}

async fn get(server: &Server, path: &str, more: &str) -> String {
    ask(server, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{more}\r\n")).await
}

/// The value of one series, if it is there.
fn value(text: &str, series: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '))?;
    Some(line.parse().expect("a number"))
}

#[test]
fn metrics_and_readiness_tell_the_truth() {
    run(async {
        let dir = tempfile::tempdir().expect("room for a directory");
        let (source, target) = (cluster("source").await, cluster("target").await);
        for name in ["t", "u"] {
            topic(&source, name, 1);
            append(&source, name, 3, 100);
        }
        topic(&target, "A.u", 1);
        append(&target, "A.u", 5, 100);
        let mirror = Mirror::start(settings(dir.path(), "one", &[("A", &source), ("B", &target)], ""), false);
        let server =
            Server::start("127.0.0.1:0".parse().expect("an address"), mirror.observer.clone()).expect("a port");
        mirror.until("stopped", |report| report.totals.stopped == 1 && report.totals.caught_up == 1).await;
        assert!(get(&server, "/health", "").await.starts_with("HTTP/1.1 200"));
        let answer = get(&server, "/ready", "").await;
        assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("A->B u-0: target not empty:"), "{answer}");
        let answer = get(&server, "/ready", "Accept: application/json\r\n").await;
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        let json: serde_json::Value = serde_json::from_str(body).expect("JSON");
        assert_eq!((&json["ready"], &json["reasons"][0]["state"]), (&false.into(), &"target-not-empty".into()));

        let text = get(&server, "/metrics", "").await;
        let has = |series: &str, wanted: f64| assert_eq!(value(&text, series), Some(wanted), "{series}\n{text}");
        has(r#"towpath_records_total{flow="A->B",topic="t"}"#, 3.0);
        has(r#"towpath_batches_total{flow="A->B",topic="t"}"#, 3.0);
        has(r#"towpath_partition_lag_records{flow="A->B",topic="t",partition="0"}"#, 0.0);
        has(r#"towpath_partition_lag_seconds{flow="A->B",topic="t",partition="0"}"#, 0.0);
        has(r#"towpath_partitions{flow="A->B",state="target-not-empty"}"#, 1.0);
        has(r#"towpath_incidents_total{flow="A->B",topic="u",cause="target-not-empty"}"#, 1.0);
        has(r#"towpath_lease_held{flow="A->B"}"#, 1.0);
        has(r#"towpath_flow_copying{flow="A->B"}"#, 1.0);
        assert!(value(&text, r#"towpath_requests_total{flow="A->B",side="target"}"#) >= Some(1.0), "{text}");
        assert!(value(&text, r#"towpath_anchors_committed_total{flow="A->B"}"#) >= Some(1.0), "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
        let every: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
        assert!(every.len() > 20, "{every:?}");
        let short = get(&server, "/metrics?partitions=no", "").await;
        assert!(!short.contains("partition=") && short.contains("towpath_topic_lag_records"), "{short}");
        // Nothing can be written while more comes: the lag is told.
        let refuse = InterceptAction::Answer(ErrorCode::NOT_ENOUGH_REPLICAS);
        target.with(|cluster, _| cluster.intercept(Intercept::next(ApiKey::Produce, refuse).times(100_000)));
        append(&source, "t", 700, 100);
        mirror.until("behind", |report| report.totals.lag >= 700).await;
        // What was observed is shown for a moment.
        let deadline = Instant::now() + SOON;
        let mut text = String::new();
        while value(&text, r#"towpath_topic_lag_records{flow="A->B",topic="t"}"#) != Some(700.0) {
            assert!(Instant::now() < deadline, "{text}");
            text = get(&server, "/metrics", "").await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        mirror.stop().await;
        let answer = get(&server, "/health", "").await;
        assert!(answer.starts_with("HTTP/1.1 503"), "its mirror is gone: {answer}");
    });
}

/// The mirror copies, and the server still answers.
async fn unharmed(server: &Server, mirror: &Mirror, source: &EmbeddedCluster, records: i64) {
    append(source, "t", 1, 100);
    let wanted = u64::try_from(records).expect("small");
    mirror.until("copying", |report| caught_up(report) && report.totals.progress.records == wanted).await;
    let deadline = Instant::now() + SOON;
    while !get_or_nothing(server, "/ready").await.starts_with("HTTP/1.1 200") {
        assert!(Instant::now() < deadline, "it does not answer any more");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn get_or_nothing(server: &Server, path: &str) -> String {
    let Ok(mut stream) = TcpStream::connect(server.at).await else { return String::new() };
    let request = format!("GET {path} HTTP/1.1\r\nHost: [::1]:80\r\nConnection: close\r\n\r\n");
    let mut answer = Vec::new();
    let _ = stream.write_all(request.as_bytes()).await;
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn bytes_of_strangers_on_the_port_do_no_harm_and_a_taken_port_is_no_reason_to_fail() {
    run(async {
        let dir: &Path = &tempfile::tempdir().expect("room for a directory").keep();
        let (source, target) = (cluster("source").await, cluster("target").await);
        topic(&source, "t", 1);
        let mirror = Mirror::start(settings(dir, "one", &[("A", &source), ("B", &target)], ""), false);
        let server =
            Server::start("127.0.0.1:0".parse().expect("an address"), mirror.observer.clone()).expect("a port");
        unharmed(&server, &mirror, &source, 1).await;
        let taken = Server::start(server.at, mirror.observer.clone()).expect_err("it is taken");
        assert!(matches!(taken, ServeError::Listen { .. }) && taken.to_string().contains("in use"), "{taken}");

        for request in [
            "\u{0}\u{1}\u{2} what\r\n\r\n".to_owned(),
            format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(1 << 20)),
            format!("GET / HTTP/1.1\r\n{}\r\n", "x: y\r\n".repeat(10_000)),
            "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999\r\nConnection: close\r\n\r\n"
                .to_owned(),
        ] {
            let mut stream = TcpStream::connect(server.at).await.expect("it listens");
            // It may hang up before all of it is written.
            let _ = stream.write_all(request.as_bytes()).await;
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            let answer = String::from_utf8_lossy(&answer);
            assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
        }
        let foreign = ask(&server, "GET /ready HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n").await;
        assert!(foreign.starts_with("HTTP/1.1 403"), "{foreign}");
        unharmed(&server, &mirror, &source, 2).await;

        // More than there is room for, saying nothing: they are gone when their time is over.
        let mut silent = Vec::new();
        for _ in 0..100 {
            silent.extend(TcpStream::connect(server.at).await.ok());
        }
        unharmed(&server, &mirror, &source, 3).await;
        drop(silent);
        mirror.stop().await;
        let _ = std::fs::remove_dir_all(dir);
    });
}
