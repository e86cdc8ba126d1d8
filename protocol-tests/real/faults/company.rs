//! A second process beside the first.

use std::fs;
use std::time::Duration;

use super::bench::{Logs, Mirror, assert_copied, wait_for, wait_for_growth, watch};
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
fn real_second_process_on_one_state_directory_is_refused() {
    let scene = Scene::new();
    let mut first = scene.start_first();

    let second = scene.mirror.start("first").wait(Duration::from_secs(10));

    assert_eq!(second.code, Some(3), "{second}");
    let first_pid = format!("pid {}", first.id());
    assert!(second.stderr.contains("locked by another towpath process"), "{second}");
    assert!(second.stderr.contains(&first_pid), "{second}");
    wait_for_growth(&scene.copies, PATIENCE);
    assert!(first.is_running());
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
    assert!(second.is_running());
    scene.finish();
}

#[test]
#[ignore = "needs real Kafka: run dev/test"]
fn real_copied_state_directory_stops_one_process_for_good() {
    let scene = Scene::new();
    let mut first = scene.start_first();
    fs::create_dir(scene.mirror.state("copy")).expect("the folder is ours");
    let id = |state| scene.mirror.state(state).join("instance-id");
    fs::copy(id("first"), id("copy")).expect("it is there");

    let mut second = scene.mirror.start("copy");
    wait_for("one of both ends", PATIENCE, || !first.is_running() || !second.is_running());

    // Last comer wins (`broker-experiments.md` S13).
    assert!(second.is_running(), "the second one ended: {}", second.stderr());
    let first = first.wait(PATIENCE);
    assert_eq!(first.code, Some(3), "{first}");
    assert!(first.stderr.contains("taken over") || first.stderr.contains("another process"), "{first}");
    wait_for_growth(&scene.copies, PATIENCE);
    scene.finish();
}

#[test]
#[ignore = "needs real Kafka: run dev/test"]
fn real_suspended_worker_comes_back_and_doubles_nothing() {
    let scene = Scene::new();
    let mut first = scene.start_first();
    let mut second = scene.mirror.start("second");
    second.wait_for_line("partitions assigned", PATIENCE);
    for _ in 0..2 {
        wait_for_growth(&scene.copies, PATIENCE);
        first.pause();
        // Long enough that the second one has taken over and copied on.
        std::thread::sleep(SESSION_TIMEOUT);
        wait_for_growth(&scene.copies, PATIENCE);
        first.resume();
        wait_for_growth(&scene.copies, PATIENCE);
        std::thread::sleep(Duration::from_secs(3));
    }
    assert!(first.is_running(), "{}", first.stderr());
    assert!(second.is_running(), "{}", second.stderr());
    scene.finish();
}
