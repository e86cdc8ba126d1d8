//! A second process beside the first.

use std::fs;
use std::time::Duration;

use super::bench::{Logs, Mirror, assert_copied, wait_for_growth, watch};
use crate::real::kafka::Cluster;
use crate::real::program::Running;

const PATIENCE: Duration = Duration::from_secs(40);
const SESSION_TIMEOUT: Duration = Duration::from_secs(6);
const SHORT_SESSION: &str = "towpath.session.timeout.ms = 6000";

struct Scene {
    source: Cluster,
    target: Cluster,
    mirror: Mirror,
    copies: Logs,
    loading: Running,
}

impl Scene {
    fn new() -> Self {
        let (source, target) = (Cluster::start("4.3.1", 1), Cluster::start("4.3.1", 1));
        source.create_topic("load", 8, &[]);
        let loading = source.keep_loading("load", 8, 4000, &[]);
        wait_for_growth(&Logs::of(&source, "load"), PATIENCE);
        let mirror = Mirror::new(&source.bootstrap, &target.bootstrap, &[SHORT_SESSION]);
        let copies = Logs::of(&target, "A.load");
        Self { source, target, mirror, copies, loading }
    }

    fn start_first(&self) -> Running {
        let first = self.mirror.start("first");
        wait_for_growth(&self.copies, PATIENCE);
        first
    }

    fn finish(self) {
        drop(self.loading);
        assert_copied(&self.source, &self.target, "load");
    }
}

#[test]
#[ignore = "needs real Kafka: run dev/test"]
fn real_second_process_on_the_same_or_a_copied_state_directory() {
    let scene = Scene::new();
    let mut first = scene.start_first();

    let refused = scene.mirror.start("first").wait(Duration::from_secs(10));

    assert_eq!(refused.code, Some(3), "{refused}");
    assert!(refused.stderr.contains("locked by another towpath process"), "{refused}");
    assert!(refused.stderr.contains(&format!("pid {}", first.id())), "{refused}");
    wait_for_growth(&scene.copies, PATIENCE);
    assert!(first.is_running());

    // A copy holds the instance id, but not the lock. The last comer wins (`broker-experiments.md` S13).
    fs::create_dir(scene.mirror.state("copy")).expect("the folder is ours");
    let id = |state| scene.mirror.state(state).join("instance-id");
    fs::copy(id("first"), id("copy")).expect("it is there");
    let mut second = scene.mirror.start("copy");
    let first = first.wait(PATIENCE);

    assert_eq!(first.code, Some(3), "{first}");
    assert!(first.stderr.contains("another process took over the lease"), "{first}");
    wait_for_growth(&scene.copies, PATIENCE);
    assert!(second.is_running(), "{}", second.stderr());
    scene.finish();
}

#[test]
#[ignore = "needs real Kafka: run dev/test"]
fn real_second_worker_shares_the_partitions_and_takes_them_over() {
    let scene = Scene::new();
    let mut first = scene.start_first();
    let mut second = scene.mirror.start("second");
    first.wait_for_line("partitions given up", PATIENCE);
    second.wait_for_line("partitions assigned", PATIENCE);
    wait_for_growth(&scene.copies, PATIENCE);

    first.kill();
    let pauses = watch(&[&scene.copies], SESSION_TIMEOUT + Duration::from_secs(6));

    let longest = pauses[0].longest();
    println!("longest pauses by partition: {longest:?}");
    let (short, long): (Vec<&Duration>, Vec<&Duration>) =
        longest.values().partition(|pause| **pause < Duration::from_secs(3));
    assert!(!short.is_empty(), "the survivor's own partitions paused too: {longest:?}");
    assert!(!long.is_empty(), "the killed worker had no partitions: {longest:?}");
    let latest = SESSION_TIMEOUT + Duration::from_secs(5);
    assert!(long.iter().all(|pause| **pause < latest), "partitions moved late: {longest:?}");

    // A worker that is suspended until the other one has taken over and copied on, and then comes back.
    let mut first = scene.mirror.start("first");
    first.wait_for_line("partitions assigned", PATIENCE);
    for suspended in [&first, &second] {
        wait_for_growth(&scene.copies, PATIENCE);
        suspended.pause();
        std::thread::sleep(SESSION_TIMEOUT);
        wait_for_growth(&scene.copies, PATIENCE);
        suspended.resume();
        wait_for_growth(&scene.copies, PATIENCE);
        std::thread::sleep(Duration::from_secs(2));
    }
    assert!(first.is_running(), "{}", first.stderr());
    assert!(second.is_running(), "{}", second.stderr());

    // One that stops in order hands over at once: the other one need not wait for the end of its session.
    first.terminate();
    let pauses = watch(&[&scene.copies], SESSION_TIMEOUT);
    let stopped = first.wait(PATIENCE);
    assert!(stopped.stderr.contains("left the group"), "{stopped}");
    let longest = pauses[0].longest();
    println!("longest pauses by partition at an orderly stop: {longest:?}");
    assert!(longest.values().all(|pause| *pause < Duration::from_secs(4)), "partitions moved late: {longest:?}");
    scene.finish();
}
