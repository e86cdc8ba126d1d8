//! SIGTERM: what is in flight settles, the last anchors are durable, ten seconds are enough.

use std::time::{Duration, Instant};

use super::bench::{Frozen, Logs, Mirror, Moments, assert_copied, wait_for_growth};
use crate::real::kafka::Cluster;
use crate::real::program::{Outcome, Running};

const PATIENCE: Duration = Duration::from_secs(40);
const STOP_MAX: Duration = Duration::from_secs(10);

fn terminate(worker: Running) -> (Outcome, Duration) {
    let began = Instant::now();
    worker.terminate();
    let outcome = worker.wait(STOP_MAX + Duration::from_secs(5));
    (outcome, began.elapsed())
}

/// Every partition's anchor is the end of its log: the next start has nothing to match.
fn assert_anchored(target: &Cluster, topic: &str) {
    let rows = target.committed("__towpath.A.B", topic);
    assert_eq!(rows.len(), 6, "{rows:?}");
    assert!(rows.iter().all(|(anchor, end)| anchor == end), "anchors and ends: {rows:?}");
}

#[test]
#[ignore = "needs real Kafka: run dev/test"]
fn real_sigterm_leaves_nothing_to_match() {
    let mut moments = Moments::new();
    let (source, target) = (Cluster::start("4.3.1", 1), Cluster::start("4.3.1", 1));
    source.create_topic("load", 6, &[]);
    let loading = source.keep_loading("load", 6, 6000, &[]);
    let mirror = Mirror::new(&source.bootstrap, &target.bootstrap, &[]);
    let copies = Logs::of(&target, "A.load");
    for _ in 0..3 {
        let worker = mirror.start("state");
        wait_for_growth(&copies, PATIENCE);
        std::thread::sleep(moments.between(0, 1500));
        let (outcome, took) = terminate(worker);
        println!("a stop under load took {took:?}");
        assert_eq!(outcome.code, Some(0), "{outcome}");
        assert!(took < STOP_MAX, "{took:?}");
        assert_anchored(&target, "A.load");
    }
    // At any moment of a start.
    for _ in 0..5 {
        let worker = mirror.start("state");
        std::thread::sleep(moments.between(10, 250));
        let (outcome, took) = terminate(worker);
        println!("a stop in the middle of a start took {took:?}");
        // A signal that comes before it is listened for ends the process.
        assert!(matches!(outcome.code, Some(0) | None), "{outcome}");
        assert!(took < STOP_MAX, "{took:?}");
    }
    drop(loading);
    let outcome = mirror.start_with("state", &["--until-caught-up"]).wait(PATIENCE);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    assert_copied(&source, &target, "load");
}

#[test]
#[ignore = "needs real Kafka: run dev/test"]
fn real_sigterm_while_the_target_is_away() {
    let (source, target) = (Cluster::start("4.3.1", 1), Cluster::start("4.3.1", 1));
    source.create_topic("load", 6, &[]);
    let loading = source.keep_loading("load", 6, 6000, &[]);
    let mirror = Mirror::new(&source.bootstrap, &target.bootstrap, &[]);
    let copies = Logs::of(&target, "A.load");
    let worker = mirror.start("state");
    wait_for_growth(&copies, PATIENCE);

    // Silent: it accepts, and says nothing.
    let frozen = Frozen::new(target.pid(1));
    std::thread::sleep(Duration::from_secs(1));
    let (outcome, took) = terminate(worker);
    drop(frozen);
    println!("a stop while the target is silent took {took:?}, code {:?}", outcome.code);
    assert!(matches!(outcome.code, Some(0 | 5)), "{outcome}");
    assert!(took < STOP_MAX, "{took:?}");

    // Gone, and an operator without patience.
    let mut worker = mirror.start("state");
    wait_for_growth(&copies, PATIENCE);
    target.kill_broker(1);
    worker.terminate();
    worker.wait_for_line("stopping", Duration::from_secs(20));
    let began = Instant::now();
    let (outcome, _) = terminate(worker);
    let took = began.elapsed();
    println!("a second signal took {took:?}, code {:?}", outcome.code);
    assert!(took < Duration::from_secs(2), "{took:?}");

    target.start_broker(1);
    let worker = mirror.start("state");
    wait_for_growth(&copies, PATIENCE);
    target.kill_broker(1);
    std::thread::sleep(Duration::from_secs(2));
    let (outcome, took) = terminate(worker);
    println!("a stop while the target is gone took {took:?}, code {:?}", outcome.code);
    assert!(matches!(outcome.code, Some(0 | 5)), "{outcome}");
    assert!(took < STOP_MAX, "{took:?}");

    target.start_broker(1);
    let worker = mirror.start("state");
    wait_for_growth(&copies, PATIENCE);
    drop(loading);
    assert_copied(&source, &target, "load");
    drop(worker);
}
