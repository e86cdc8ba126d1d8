//! What is not copied has a named state with its remedy, and holds nothing else up.

use std::time::{Duration, Instant};

use super::pair::{Pair, stop};
use super::program::Outcome;

const IDENTITY: &str = "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy";
/// A stopped partition is tried again every thirty seconds.
const AFTER_A_RETRY: Duration = Duration::from_secs(50);
const SOON: Duration = Duration::from_secs(30);

/// The line of the result about a partition or flow.
fn not_copied<'a>(outcome: &'a Outcome, what: &str) -> &'a str {
    let start = format!("not copied: {what}: ");
    let found = outcome.stdout.lines().find_map(|line| line.strip_prefix(&start));
    found.unwrap_or_else(|| panic!("{what} is not named: {outcome}"))
}

fn assert_says(text: &str, wanted: &[&str]) {
    for words in wanted {
        assert!(text.contains(words), "{words:?} expected in: {text}");
    }
}

#[test]
#[ignore = "needs real Kafka: run dev/test"]
fn real_partitions_that_stand_are_named_and_go_on_once_they_can() {
    let pair = Pair::start("4.3.1", "4.3.1");
    let (source, target) = (&pair.source, &pair.target);
    let (one, plain) = (&["--partitions", "1"], &["--partitions", "1", "--codec", "none"]);
    target.create_topic("A.narrow", 1, &["max.message.bytes=200"]);
    source.load("narrow", 1_000, plain);
    target.create_topic("A.dated", 1, &["message.timestamp.before.max.ms=1000"]);
    source.load("dated", 1_000, &["--partitions", "1", "--start-ms", "1600000000000"]);
    target.load("A.full", 10, one);
    source.load("full", 1_000, one);
    source.load("good", 1_000, one);
    let long = "l".repeat(248);
    source.load(&long, 10, one);
    let topics = format!("A->B.topics = narrow, dated, full, good, {long}");

    let outcome = pair.copy(&[&topics]);

    assert_eq!(outcome.code, Some(4), "{outcome}");
    let said = not_copied(&outcome, "A->B narrow-0");
    assert_says(said, &["record too large: the one at source offset 0", "takes 200", "raise max.message.bytes"]);
    let said = not_copied(&outcome, "A->B dated-0");
    assert_says(said, &["target refuses the batch at source offset 0", "INVALID_TIMESTAMP", "before.max.ms"]);
    let said = not_copied(&outcome, "A->B full-0");
    assert_says(said, &["target not empty: offsets 0 to 10", "towpath.on.target.not.empty=append"]);
    let said = not_copied(&outcome, &format!("A->B {long}-0"));
    assert_says(said, &["the remote partition does not exist", "249", "topics.exclude"]);
    assert_eq!(outcome.stdout.lines().count(), 4, "{outcome}");
    assert_eq!(target.digest("A.good"), source.digest("good"));

    // Two of them need only the target's limits raised; the others stay as they are.
    let mut running = pair.follow(&[&topics]);
    running.wait_for_line("stopped=4", SOON);
    target.alter_topic("A.narrow", "max.message.bytes=1048588");
    target.alter_topic("A.dated", "message.timestamp.before.max.ms=9223372036854775807");
    running.wait_for_line("stopped=2", AFTER_A_RETRY);
    for topic in ["narrow", "dated"] {
        let copied = target.digest_with(&format!("A.{topic}"), &["--expect", "1000"]);
        assert_eq!(copied, source.digest(topic), "{topic}");
    }
    // The limit is lowered while records flow: the target's own answer makes the state.
    target.alter_topic("A.narrow", "max.message.bytes=200");
    source.load("narrow", 1_000, &["--partitions", "1", "--codec", "none", "--first", "1000"]);
    let said = running.wait_for_line("the one at source offset 1000 makes a batch", SOON);
    assert_says(&said, &["narrow", "record too large", "raise max.message.bytes"]);
    let stopping = Instant::now();
    let stopped = stop(running);
    assert_eq!(stopped.code, Some(4), "{stopped}");
    assert!(stopping.elapsed() < Duration::from_secs(5), "a partition that stands holds no stop up: {stopped}");
    let goes_on: Vec<_> = stopped.stderr.lines().filter(|line| line.contains("goes on")).collect();
    assert_eq!(goes_on.len(), 2, "only those that moved say so: {goes_on:?}");

    pair.copy(&["A->B.topics = full", "towpath.on.target.not.empty = append"]).expect_success();
    assert_eq!(target.digest("A.full").records, 1_010);
}

#[test]
#[ignore = "needs real Kafka: run dev/test"]
fn real_flows_that_exclude_each_other_are_refused_by_name() {
    let pair = Pair::start("4.3.1", "4.3.1");
    let (source, target) = (&pair.source, &pair.target);
    let one = &["--partitions", "1"];
    for topic in ["shared", "both", "east"] {
        source.load(topic, 100, one);
    }
    target.load("west", 100, one);
    let also_a = format!("A2.bootstrap.servers = {}", source.bootstrap);

    // Two aliases of one cluster stand for two sources with a topic of the same name.
    let merge = [
        "clusters = A, A2, B",
        &also_a,
        "A2->B.enabled = true",
        IDENTITY,
        "A->B.topics = shared, east",
        "A2->B.topics = shared",
    ];
    let outcome = pair.copy(&merge);
    assert_eq!(outcome.code, Some(4), "{outcome}");
    for flow in ["A->B", "A2->B"] {
        let said = not_copied(&outcome, &format!("{flow} shared-0"));
        assert_says(
            said,
            &["shared on B would have 2 writers (A->B topic shared, A2->B topic shared)", "topics.exclude"],
        );
    }
    assert_eq!(target.digest("east"), source.digest("east"));
    assert!(!target.topics().contains(&"shared".to_owned()), "nothing is created for refused copies");

    let two_way = ["B->A.enabled = true", IDENTITY, "A->B.topics = both, east", "B->A.topics = both, west"];
    let outcome = pair.copy(&two_way);
    assert_eq!(outcome.code, Some(4), "{outcome}");
    let said = not_copied(&outcome, "A->B both-0");
    assert_says(said, &["come back", "A->B topic both, B->A topic both", "DefaultReplicationPolicy"]);
    assert_eq!(source.digest("west"), target.digest("west"));
    assert!(!target.topics().contains(&"both".to_owned()));

    let itself = ["clusters = A, A2, B", &also_a, "A->A2.enabled = true", "topics = east"];
    let outcome = pair.copy(&itself);
    assert_eq!(outcome.code, Some(4), "the other flow was copied: {outcome}");
    assert_says(not_copied(&outcome, "A->A2"), &["A and A2 are the same cluster", "bootstrap.servers"]);
    assert_eq!(target.digest("A.east"), source.digest("east"));
    let outcome = pair.copy(&[itself.as_slice(), &["A->B.enabled = false"]].concat());
    assert_eq!(outcome.code, Some(3), "{outcome}");
    assert_says(&outcome.stderr, &["A and A2 are the same cluster"]);

    let outcome = pair.copy(&["A->B.topics = east", "A->B.replication.factor = 3", "clusters = A, B"]);
    assert_eq!(outcome.code, Some(0), "the topics are there already: {outcome}");
    let outcome = pair.copy(&["A->B.topics = shared", "replication.factor = 3"]);
    assert_eq!(outcome.code, Some(4), "{outcome}");
    let said = not_copied(&outcome, "A->B shared-0");
    assert_says(
        said,
        &["INVALID_REPLICATION_FACTOR", "set replication.factor to at most 1, the number of brokers of B"],
    );
}
