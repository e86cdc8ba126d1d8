//! One broker of three goes and comes back: its partitions wait, the others do not.

use std::collections::BTreeSet;
use std::time::Duration;

use super::bench::{Frozen, Logs, Mirror, assert_copied, wait_for_growth, watch};
use crate::real::kafka::Cluster;
use crate::real::program::Running;

const PATIENCE: Duration = Duration::from_secs(60);
/// An election after a clean stop, and everything around it on a busy machine.
const SHORT: Duration = Duration::from_secs(4);
/// The memory of a small process: nothing that a dead broker holds may starve the others.
const SETTINGS: &[&str] = &["towpath.memory.bytes = 8388608"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Stop,
    Kill,
    Freeze,
}

#[test]
#[ignore = "needs real Kafka: run dev/test"]
fn real_target_brokers_go_one_after_the_other() {
    let source = Cluster::start("4.3.1", 1);
    let target = Cluster::start("4.3.1", 3);
    outages(&source, &target, &target);
}

#[test]
#[ignore = "needs real Kafka: run dev/test"]
fn real_source_brokers_go_one_after_the_other() {
    let source = Cluster::start("4.3.1", 3);
    let target = Cluster::start("4.3.1", 1);
    outages(&source, &target, &source);
}

fn outages(source: &Cluster, target: &Cluster, failing: &Cluster) {
    let most = |cluster: &Cluster| i32::try_from(cluster.brokers.len()).expect("a handful");
    for (topic, replicas) in [("single", 1), ("triple", 3)] {
        source.create_replicated(topic, 6, replicas.min(most(source)));
        target.create_replicated(&format!("A.{topic}"), 6, replicas.min(most(target)));
    }
    let loads: Vec<Running> =
        ["single", "triple"].map(|topic| source.keep_loading(topic, 6, 900, &["--linger", "50"])).into();
    let (single, triple) = (Logs::of(target, "A.single"), Logs::of(target, "A.triple"));
    let mirror = Mirror::new(&source.bootstrap, &target.bootstrap, SETTINGS);
    let mut worker = mirror.start("state");
    wait_for_growth(&single, PATIENCE);
    wait_for_growth(&triple, PATIENCE);
    // Every broker once, so that whoever coordinates the lease and leads the runs topic is among them.
    for (broker, way) in [(1, Way::Stop), (2, Way::Kill), (3, Way::Freeze)] {
        outage(failing, target, broker, way, &single, &triple);
        wait_for_growth(&single, PATIENCE);
        wait_for_growth(&triple, PATIENCE);
        assert!(worker.is_running(), "{}", worker.stderr());
    }
    drop(loads);
    assert_copied(source, target, "single");
    assert_copied(source, target, "triple");
    assert!(worker.is_running());
}

fn outage(failing: &Cluster, target: &Cluster, broker: i32, way: Way, single: &Logs, triple: &Logs) {
    let topic = if std::ptr::eq(failing, target) { "A.single" } else { "single" };
    let concerned: BTreeSet<i32> = Logs::on(failing, broker, topic);
    assert!(!concerned.is_empty(), "the broker holds nothing");
    let mut frozen = None;
    match way {
        Way::Stop => failing.stop_broker(broker),
        Way::Kill => failing.kill_broker(broker),
        Way::Freeze => {
            frozen = Some(Frozen::new(failing.pid(broker)));
            assert!(frozen.is_some(), "no such broker");
        }
    }
    // Longer than the controller needs to notice a broker that said nothing (nine seconds).
    let pauses = watch(&[single, triple], Duration::from_secs(if way == Way::Stop { 6 } else { 15 }));
    drop(frozen);
    if way != Way::Freeze {
        failing.start_broker(broker);
    }
    let (single, triple) = (pauses[0].longest(), pauses[1].longest());
    println!("broker {broker} {way:?}, holds {concerned:?}: pauses of single {single:?}, triple {triple:?}");
    for (partition, pause) in single {
        if concerned.contains(&partition) {
            assert!(pause > Duration::from_secs(4), "partition {partition} cannot have been copied: {pause:?}");
        } else {
            assert!(pause < SHORT, "partition {partition} of {topic} stood still for {pause:?} without a need");
        }
    }
}
