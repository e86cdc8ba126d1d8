//! Twenty minutes in which brokers of both sides, connections and the mirror itself go at any moment.
//!
//! `TOWPATH_CHAOS_MINUTES` makes it shorter or longer.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::bench::{Frozen, Logs, Mirror, Moments, wait_for};
use crate::real::kafka::Cluster;
use crate::real::program::{Outcome, Running};

/// Of each topic; sixteen in all.
const PARTITIONS: i32 = 4;
/// Name, kind of producer, and further options of `dev/java/Churn.java`.
const TOPICS: &[(&str, &str, &[&str])] = &[
    ("idempotent", "idempotent", &[]),
    ("plain", "plain", &["--codec", "none"]),
    ("transactional", "transactional", &["--codec", "zstd"]),
    ("dated", "idempotent", &["--start-ms", "1546300800000"]),
];
/// Old records wait for stragglers after the last fault, and transactions of killed producers end.
const CATCH_UP: Duration = Duration::from_secs(180);
const KILLS_A_MINUTE_MIN: f64 = 2.5;

#[test]
#[ignore = "needs real Kafka and twenty minutes: run dev/test --long"]
fn real_chaos_on_both_sides_loses_and_doubles_nothing() {
    chaos(&[]);
}

/// As above, with a target that forgets producers ten seconds after their last write.
#[test]
#[ignore = "needs real Kafka and twenty minutes: run dev/test --long"]
fn real_chaos_with_a_forgetful_target_loses_and_doubles_nothing() {
    chaos(&["producer.id.expiration.ms=10000", "producer.id.expiration.check.interval.ms=1000"]);
}

fn chaos(target_config: &[&str]) {
    let minutes = std::env::var("TOWPATH_CHAOS_MINUTES").ok().and_then(|text| text.parse().ok()).unwrap_or(20_u64);
    let mut moments = Moments::new();
    let source = Cluster::start("4.3.1", 3);
    let target = Cluster::start_with("4.3.1", 3, target_config);
    for (topic, ..) in TOPICS {
        source.create_topic(topic, PARTITIONS, &["min.insync.replicas=2"]);
        target.create_topic(&format!("A.{topic}"), PARTITIONS, &["min.insync.replicas=2"]);
    }
    let loads: Vec<Running> =
        TOPICS.iter().map(|(topic, kind, options)| churn(&source, topic, kind, options)).collect();
    let mirror = Mirror::new(&source.bootstrap, &target.bootstrap, &[]);
    let over = AtomicBool::new(false);
    let happened = Mutex::new(BTreeMap::<String, u32>::new());
    let count =
        |what: &str| *happened.lock().expect("nobody panics while counting").entry(what.to_owned()).or_default() += 1;
    let seeds = [moments.below(u64::MAX), moments.below(u64::MAX)];

    let worker = thread::scope(|scope| {
        for ((name, cluster), seed) in [("source", &source), ("target", &target)].into_iter().zip(seeds) {
            let (over, count) = (&over, &count);
            scope.spawn(move || {
                let mut moments = Moments::from(seed);
                while !over.load(Ordering::SeqCst) {
                    broker_goes(cluster, &mut moments, &|what| count(&format!("{name} broker {what}")));
                }
            });
        }
        // A panic in here must end the other two as well.
        let ending = Over(&over);
        let end = Instant::now() + Duration::from_secs(minutes * 60);
        let mut worker = mirror.start("state");
        while Instant::now() < end {
            thread::sleep(moments.between(100, 15_000));
            match moments.below(3) {
                0 => (0..cut_connections(worker.id(), &mut moments)).for_each(|_| count("connection cut")),
                _ => {
                    assert!(worker.is_running(), "it ended by itself: {}", worker.stderr());
                    worker.kill();
                    count("mirror killed");
                    worker = mirror.start("state");
                }
            }
        }
        drop(ending);
        worker
    });
    drop(loads);
    let happened = happened.into_inner().expect("nobody panicked while counting");
    println!("{minutes} minutes: {happened:?}");
    for (topic, ..) in TOPICS {
        assert_equal(&source, &target, topic);
    }
    let outcome: Outcome = worker.kill();
    assert!(!outcome.stderr.contains("panicked"), "{outcome}");
    let kills = happened.get("mirror killed").copied().unwrap_or(0);
    #[expect(clippy::cast_precision_loss, reason = "a handful of minutes")]
    let wanted = minutes as f64 * KILLS_A_MINUTE_MIN;
    assert!(f64::from(kills) >= wanted, "too few kills: {kills}, not {wanted}");
    assert!(happened.contains_key("connection cut"), "`ss -K` cuts nothing here: it needs root and INET_DIAG_DESTROY");
}

struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn churn(source: &Cluster, topic: &str, kind: &str, options: &[&str]) -> Running {
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/dev/kafka"));
    command.args(["java", "Churn", &source.bootstrap, topic, "--kind", kind, "--rate", "300"]);
    command.args(["--partitions", &PARTITIONS.to_string()]).args(options);
    Running::spawn(command)
}

/// One broker goes in some way and comes back, and its replicas have time to follow.
fn broker_goes(cluster: &Cluster, moments: &mut Moments, count: &dyn Fn(&str)) {
    thread::sleep(moments.between(1_000, 10_000));
    let broker = 1 + i32::try_from(moments.below(3)).expect("a handful");
    let away = moments.between(100, 8_000);
    match moments.below(4) {
        0 => {
            let frozen = Frozen::new(cluster.pid(broker));
            thread::sleep(away);
            drop(frozen);
            count("frozen");
            return;
        }
        1 => {
            cluster.stop_broker(broker);
            count("stopped");
        }
        _ => {
            cluster.kill_broker(broker);
            count("killed");
        }
    }
    thread::sleep(away);
    cluster.start_broker(broker);
}

/// Cuts some of a process's connections as a firewall does that lost its table: both ends are told.
fn cut_connections(pid: u32, moments: &mut Moments) -> u32 {
    let listed = ss(&["-Htnp", "state", "established"]);
    let own = format!("pid={pid},");
    let ports = listed.lines().filter(|line| line.contains(&own)).filter_map(|line| {
        let local = line.split_whitespace().nth(2)?;
        local.rsplit_once(':').map(|(_, port)| port.to_owned())
    });
    let some: Vec<String> = ports.filter(|_| moments.below(2) == 0).collect();
    let cut = some.iter().filter(|port| ss(&["-HKtn", "sport", "=", &format!(":{port}")]).contains(port.as_str()));
    u32::try_from(cut.count()).expect("a handful")
}

fn ss(arguments: &[&str]) -> String {
    let output = Command::new("ss").args(arguments).output().expect("ss of iproute2 is there");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// What a read-committed consumer of Java sees on both sides, once everything has arrived.
fn assert_equal(source: &Cluster, target: &Cluster, topic: &str) {
    let remote = format!("A.{topic}");
    // A transaction that was left open ends by itself first.
    let mut wanted = source.digest(topic);
    wait_for("the source at rest", CATCH_UP, || {
        thread::sleep(Duration::from_secs(2));
        let now = source.digest(topic);
        std::mem::replace(&mut wanted, now.clone()) == now
    });
    assert!(wanted.records > 0, "nothing was written to {topic}");
    let expect = wanted.records.to_string();
    let seconds = CATCH_UP.as_secs().to_string();
    let found = target.digest_with(&remote, &["--expect", &expect, "--timeout", &seconds]);
    assert_eq!(found, wanted, "{topic} differs; logs {:?}", Logs::of(target, &remote).sizes());
    println!("{topic}: {} records, once and in order", found.records);
}
