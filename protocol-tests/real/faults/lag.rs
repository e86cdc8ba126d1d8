//! The target is away while the source takes gigabytes.
//!
//! `TOWPATH_LAG_GB` makes it less or more.

use std::time::{Duration, Instant};

use super::bench::{Logs, Mirror, peak, wait_for, wait_for_growth};
use crate::real::kafka::Cluster;

const PATIENCE: Duration = Duration::from_secs(60);
const AWAY: Duration = Duration::from_secs(120);
const CATCH_UP: Duration = Duration::from_secs(400);
const GIB: u64 = 1 << 30;
/// A record of `dev/java/Load.java` in a log without compression, a little less than it takes.
const RECORD_BYTES: u64 = 290;
const BUDGET: u64 = 64 << 20;
const BESIDE: u64 = 64 << 20;

#[test]
#[ignore = "needs real Kafka and ten minutes: run dev/test --long"]
fn real_memory_stays_bounded_while_the_target_is_away_and_gigabytes_arrive() {
    let gigabytes: u64 = std::env::var("TOWPATH_LAG_GB").ok().and_then(|text| text.parse().ok()).unwrap_or(5);
    let (source, target) = (Cluster::start("4.3.1", 1), Cluster::start("4.3.1", 1));
    source.load("load", 16_000, &["--partitions", "16", "--codec", "none"]);
    let budget = format!("towpath.memory.bytes = {BUDGET}");
    let mirror = Mirror::new(&source.bootstrap, &target.bootstrap, &[&budget]);
    let mut worker = mirror.start("state");
    let copies = Logs::of(&target, "A.load");
    wait_for("the first records", PATIENCE, || copies.sizes().len() == 16 && copies.bytes() > 16_000 * RECORD_BYTES);

    target.stop_broker(1);
    let stopped = Instant::now();
    let before = copies.bytes();
    let logs = Logs::of(&source, "load");
    let records = gigabytes * GIB / RECORD_BYTES / 4;
    for part in 0..4 {
        let first = (1_000 + part * (records / 16)).to_string();
        let options = ["--partitions", "16", "--codec", "none", "--batch", "262144", "--first", &first];
        source.load("load", records / 16 * 16, &options);
    }
    std::thread::sleep(AWAY.saturating_sub(stopped.elapsed()));
    let (taken, away) = (logs.bytes(), stopped.elapsed());
    let peak_away = peak(worker.id());
    target.start_broker(1);
    let began = Instant::now();
    wait_for_growth(&copies, PATIENCE);
    let resumed = began.elapsed();
    wait_for("everything on the target", CATCH_UP, || copies.bytes() >= taken);
    let caught_up = began.elapsed();
    let peak_in_all = peak(worker.id());

    println!(
        "target away {away:?}, source took {:.2} GB meanwhile; peak memory {} MB by then, {} MB in the end; first growth \
         after {resumed:?}, {:.2} GB caught up after {caught_up:?}",
        gigabytes_of(taken),
        peak_away >> 20,
        peak_in_all >> 20,
        gigabytes_of(taken - before),
    );
    assert!(taken >= gigabytes * GIB, "the source took {taken} bytes");
    assert!(peak_in_all < BUDGET + BESIDE, "{peak_in_all} bytes");
    assert!(worker.is_running(), "{}", worker.stderr());
    let wanted = source.digest_with("load", &["--numbered", "--timeout", "280"]);
    assert_eq!(wanted.violation, None, "the load itself has gaps");
    assert_eq!(target.digest_with("A.load", &["--numbered", "--timeout", "280"]), wanted);
}

fn gigabytes_of(bytes: u64) -> f64 {
    f64::from(u32::try_from(bytes >> 20).expect("less than a petabyte")) / 1024.0
}
