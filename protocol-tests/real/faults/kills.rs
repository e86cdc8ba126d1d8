//! kill -9 at random moments, and at once a new process.

use std::time::{Duration, Instant};

use super::bench::{LOOK, Logs, Mirror, Moments, assert_copied, wait_for, wait_for_growth};
use crate::real::kafka::Cluster;

/// What old records wait for after each restart, in milliseconds (`partition/stragglers.rs`).
const STRAGGLERS_MS: u64 = 16_000;

/// What differs between young and old records.
struct Pace {
    kills: usize,
    /// How long a process lives, from and to, in milliseconds.
    lives: (u64, u64),
    /// Restarts that are left alone until they copy, to measure them.
    measured: usize,
    /// What is promised is a second, and the wait for stragglers; the machine that runs this is busy with other tests.
    restart_median_max: Duration,
    patience: Duration,
}

const YOUNG: Pace = Pace {
    kills: 20,
    lives: (100, 1500),
    measured: 5,
    restart_median_max: Duration::from_secs(4),
    patience: Duration::from_secs(20),
};

/// Most are killed about when the first batch goes out.
const OLD: Pace = Pace {
    kills: 8,
    lives: (STRAGGLERS_MS, STRAGGLERS_MS + 2_500),
    measured: 1,
    restart_median_max: Duration::from_secs(22),
    patience: Duration::from_secs(60),
};

#[test]
#[ignore = "needs real Kafka: run dev/test"]
fn real_kills_at_random_moments_lose_and_double_nothing() {
    let mut moments = Moments::new();
    let (source, target) = (Cluster::start("4.3.1", 1), Cluster::start("4.3.1", 1));
    kills(&source, &target, &mut moments, &YOUNG, &["--codec", "lz4"], |_, _| {});
}

/// The target forgets the producers of old records when it starts, so that the log itself must be compared.
#[test]
#[ignore = "needs real Kafka: run dev/test"]
fn real_kills_with_records_of_2019_lose_and_double_nothing() {
    let mut moments = Moments::new();
    let (source, target) = (Cluster::start("4.3.1", 1), Cluster::start("4.3.1", 1));
    let options = ["--codec", "zstd", "--start-ms", "1546300800000"];
    kills(&source, &target, &mut moments, &OLD, &options, |target, round| match round {
        // Both with a mirror that was killed just before, and (below) with one that goes on meanwhile.
        3 | 7 => {
            target.kill_broker(1);
            target.start_broker(1);
        }
        5 => {
            target.stop_broker(1);
            target.start_broker(1);
        }
        _ => {}
    });
}

/// `between` runs after the kill of each round.
fn kills(
    source: &Cluster,
    target: &Cluster,
    moments: &mut Moments,
    pace: &Pace,
    load: &[&str],
    mut between: impl FnMut(&Cluster, usize),
) {
    source.create_topic("load", 6, &[]);
    let loading = source.keep_loading("load", 6, 6000, load);
    wait_for_growth(&Logs::of(source, "load"), Duration::from_secs(60));
    let mirror = Mirror::new(&source.bootstrap, &target.bootstrap, &[]);
    let copies = Logs::of(target, "A.load");
    for round in 0..pace.kills {
        // A quarter of them within the first 100 ms, when nothing or everything may have begun.
        let (from, to) = if round % 4 == 0 { (0, 100) } else { pace.lives };
        let life = moments.between(from, to);
        let worker = mirror.start("state");
        std::thread::sleep(life);
        worker.kill();
        between(target, round);
    }
    let mut restarts = Vec::new();
    for _ in 0..pace.measured {
        let before = at_rest(&copies);
        let worker = mirror.start("state");
        restarts.push(wait_for("a record after the restart", pace.patience, || copies.bytes() > before));
        std::thread::sleep(moments.between(0, 300));
        worker.kill();
    }
    restarts.sort_unstable();
    println!("from process start to the first new record on the target: {restarts:?}");
    // A broker that restarts under a running mirror.
    let worker = mirror.start("state");
    wait_for_growth(&copies, pace.patience);
    target.kill_broker(1);
    target.start_broker(1);
    wait_for_growth(&copies, pace.patience + Duration::from_secs(20));
    drop(loading);
    assert_copied(source, target, "load");
    drop(worker);
    assert!(restarts[pace.measured / 2] < pace.restart_median_max, "restarts took {restarts:?}");
}

/// Bytes of the logs once what a killed process had sent is in them.
fn at_rest(logs: &Logs) -> u64 {
    let mut bytes = logs.bytes();
    let mut since = Instant::now();
    while since.elapsed() < 10 * LOOK {
        std::thread::sleep(LOOK / 2);
        let now = logs.bytes();
        if now != bytes {
            (bytes, since) = (now, Instant::now());
        }
    }
    bytes
}
