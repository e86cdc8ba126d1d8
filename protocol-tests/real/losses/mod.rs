//! Logs that are not what they were, on either side, while the mirror runs and while it does not: the right state with the
//! right numbers, other topics unaffected, and the documented remedy works: what a consumer finds then is exactly what was
//! written, in order.

mod source;
mod target;

use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::kafka::Cluster;
use super::pair::Pair;
use super::program::{Outcome, Running, run};

/// A state, on a busy machine: a refresh of metadata and a look-up or two.
const SOON: Duration = Duration::from_secs(40);

/// Records whose values name them, written by a client that is not ours; the topic is created when missing.
fn load(cluster: &Cluster, topic: &str, records: u64, seed: u64) {
    if !cluster.topics().contains(&topic.to_owned()) {
        cluster.create_topic(topic, 1, &[]);
    }
    let mut file = tempfile::NamedTempFile::new().expect("room for a file");
    for value in values(records, seed) {
        writeln!(file, "key {}:{value}", value.len()).expect("the file is ours");
    }
    let mut command = Command::new("kcat");
    command.args(["-P", "-b", &cluster.bootstrap, "-t", topic, "-p", "0", "-K", ":", "-z", "lz4"]);
    command.args(["-X", "linger.ms=5", "-l"]).arg(file.path());
    run(command, SOON).expect_success();
}

fn values(records: u64, seed: u64) -> impl Iterator<Item = String> {
    (0..records).map(move |number| format!("record {number} of load {seed}"))
}

/// Waits until the copy of a topic holds so many records, then compares what a consumer finds with these loads.
fn assert_holds(pair: &Pair, topic: &str, loads: &[(u64, u64)]) {
    let records: u64 = loads.iter().map(|(records, _)| records).sum();
    let remote = format!("A.{topic}");
    let end = Instant::now() + SOON;
    while pair.target.ends(&remote).1 < records && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(200));
    }
    let mut command = Command::new("kcat");
    command.args(["-C", "-b", &pair.target.bootstrap, "-t", &remote, "-p", "0", "-o", "beginning", "-e", "-q"]);
    let found = run(command, SOON).expect_success().stdout;
    let found: Vec<&str> = found.lines().collect();
    let expected: Vec<String> = loads.iter().flat_map(|(records, seed)| values(*records, *seed)).collect();
    let differs = found.iter().zip(&expected).position(|(found, expected)| found != expected);
    if let Some(at) = differs {
        panic!("{topic}: record {at} is {:?}, not {:?}", found[at], expected[at]);
    }
    assert_eq!(found.len(), expected.len(), "{topic}");
}

/// Another topic goes on being copied meanwhile.
fn assert_good_goes_on(pair: &Pair, expected: &[(u64, u64)]) {
    let (records, seed) = expected.last().expect("at least one load");
    load(&pair.source, "good", *records, *seed);
    assert_holds(pair, "good", expected);
}

/// The mirror says that the partition stands, for this.
fn wait_for_stop(running: &mut Running, topic: &str, words: &str) -> String {
    let topic = format!("topic=\"{topic}\"");
    running.wait_until(&format!("stop of {topic}: {words}"), SOON, |process| {
        let said = process.stderr();
        let mut lines = said.lines().filter(|line| line.contains("partition stopped") && line.contains(&topic));
        lines.find(|line| line.contains(words)).map(str::to_owned)
    })
}

/// What `towpath resume --dry-run` reads from the target, once it is there.
fn assert_recorded(pair: &Pair, topic: &str, state: &str, words: &str) {
    let end = Instant::now() + SOON;
    loop {
        let shown = pair.resume(&["--topic", topic, "--dry-run"]);
        let line = format!("{topic}-0 {state}: ");
        if shown.stdout.lines().any(|found| found.starts_with(&line) && found.contains(words)) {
            return;
        }
        assert!(Instant::now() < end, "{line}… {words} expected: {shown}");
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// The remedy for a mirror that does not run: answered, then copied.
fn resume(pair: &Pair, arguments: &[&str]) {
    let answered = pair.resume(arguments).expect_success();
    assert!(answered.stdout.contains("  decided: "), "{answered}");
}

/// The line of the result about a topic's only partition.
fn assert_not_copied(outcome: &Outcome, topic: &str, words: &str) {
    assert_eq!(outcome.code, Some(4), "{outcome}");
    let start = format!("not copied: A->B {topic}-0: ");
    let found = outcome.stdout.lines().find_map(|line| line.strip_prefix(&start));
    let found = found.unwrap_or_else(|| panic!("{topic} is not named: {outcome}"));
    assert!(found.contains(words), "{words:?} expected in: {found}");
}

/// What an unclean election leaves of a log: only what had been replicated. The broker reads the rest of what it knows of
/// the partition from the log itself.
fn keep_log(data: &Path, topic: &str, kept: &Path) {
    let kept = kept.join(topic);
    std::fs::create_dir_all(&kept).expect("the directory is ours");
    for entry in std::fs::read_dir(data.join(format!("{topic}-0"))).expect("the log is there") {
        let path = entry.expect("it can be listed").path();
        std::fs::copy(&path, kept.join(path.file_name().expect("it has a name"))).expect("it can be copied");
    }
}

fn bring_back_log(data: &Path, topic: &str, kept: &Path) {
    let log = data.join(format!("{topic}-0"));
    std::fs::remove_dir_all(&log).expect("the log is there");
    std::fs::create_dir(&log).expect("the directory is ours");
    for entry in std::fs::read_dir(kept.join(topic)).expect("it was kept") {
        let path = entry.expect("it can be listed").path();
        std::fs::copy(&path, log.join(path.file_name().expect("it has a name"))).expect("it can be copied");
    }
    for checkpoint in ["recovery-point-offset-checkpoint", ".kafka_cleanshutdown"] {
        // Absent after a kill.
        let _ = std::fs::remove_file(data.join(checkpoint));
    }
}
