//! The source lost records, or is another topic.

use std::time::{Duration, Instant};

use super::*;
use crate::real::pair::stop;

#[test]
#[ignore = "needs real Kafka: run dev/test"]
fn real_deleted_records_are_a_loss_with_exact_numbers() {
    let pair = Pair::start("4.3.1", "4.3.1");
    let source = &pair.source;
    for topic in ["goes-on", "stands", "good"] {
        load(source, topic, 1_000, 1);
    }
    let topics = "A->B.topics = goes-on, stands, good";
    let stands = [topics, "towpath.on.source.loss = stop"];
    pair.copy(&[topics]).expect_success();
    // While it does not run.
    for topic in ["goes-on", "stands"] {
        load(source, topic, 300, 2);
        load(source, topic, 200, 3);
        source.delete_records(topic, 1_300);
    }
    let outcome = pair.copy(&["A->B.topics = goes-on"]).expect_success();
    let lost = "records lost: source offsets 1000 to 1299 (300 of them) were gone before they were copied";
    assert!(outcome.stderr.contains("from=1000 to=1299 records=300"), "{outcome}");
    assert!(outcome.stderr.contains("lost_records=300"), "{outcome}");
    assert_holds(&pair, "goes-on", &[(1_000, 1), (200, 3)]);

    let outcome = pair.copy(&stands);
    assert_not_copied(&outcome, "stands", lost);
    assert_recorded(&pair, "stands", "records-lost", lost);
    let nothing = pair.resume(&["--topic", "good"]);
    assert_eq!((nothing.code, nothing.stdout.as_str()), (Some(4), ""), "{nothing}");
    let other = pair.resume(&["--topic", "stands", "--accept", "source-truncated"]);
    assert_eq!(other.code, Some(4), "{other}");
    resume(&pair, &["--topic", "stands", "--accept", "records-lost"]);
    pair.copy(&stands).expect_success();
    assert_holds(&pair, "stands", &[(1_000, 1), (200, 3)]);

    // While it runs, but cannot keep up.
    let mut running = pair.follow(&stands);
    running.wait_for_line("partitions assigned", SOON);
    assert_good_goes_on(&pair, &[(1_000, 1), (100, 9)]);
    running.pause();
    load(source, "stands", 300, 4);
    load(source, "stands", 100, 5);
    source.delete_records("stands", 1_800);
    running.resume();
    let said = "records lost: source offsets 1500 to 1799 (300 of them)";
    wait_for_stop(&mut running, "stands", said);
    assert_good_goes_on(&pair, &[(1_000, 1), (100, 9), (100, 8)]);
    assert_recorded(&pair, "stands", "records-lost", said);
    resume(&pair, &["--topic", "stands"]);
    assert_holds(&pair, "stands", &[(1_000, 1), (200, 3), (100, 5)]);
    stop(running).expect_success();
}

#[test]
#[ignore = "needs real Kafka, and long: run dev/test --long"]
fn real_retention_that_overtakes_is_a_loss_and_compaction_is_none() {
    let config = ["log.retention.check.interval.ms=500", "log.cleaner.backoff.ms=200", "log.initial.task.delay.ms=500"];
    let pair = Pair::start_with("4.3.1", "4.3.1", &config);
    let source = &pair.source;
    source.create_topic("kept-short", 1, &["segment.bytes=1048576"]);
    load(source, "kept-short", 1_000, 1);
    source.create_topic(
        "compacted",
        1,
        &["cleanup.policy=compact", "segment.ms=1000", "min.cleanable.dirty.ratio=0.01"],
    );
    let topics = "A->B.topics = kept-short, compacted";
    pair.copy(&[topics]).expect_success();
    source.load("kept-short", 20_000, &["--partitions", "1", "--codec", "none"]);
    source.alter_topic("kept-short", "retention.bytes=1048576");
    let end = Instant::now() + Duration::from_secs(60);
    while source.ends("kept-short").0 <= 1_000 {
        assert!(Instant::now() < end, "retention takes nothing");
        std::thread::sleep(Duration::from_millis(500));
    }
    // It may take more than one round.
    std::thread::sleep(Duration::from_secs(3));
    let (start, end) = source.ends("kept-short");
    load(source, "compacted", 3_000, 1);
    let outcome = pair.copy(&[topics]).expect_success();
    let said = format!("from=1000 to={} records={}", start - 1, start - 1_000);
    assert!(outcome.stderr.contains(&said), "{said}: {outcome}");
    assert!(outcome.stderr.contains(&format!("lost_records={}", start - 1_000)), "{outcome}");
    assert_eq!(pair.target.ends("A.kept-short"), (0, 1_000 + end - start));
}

/// Three brokers, so that a controller is there when both replicas of the topic are not.
#[test]
#[ignore = "needs real Kafka, and long: run dev/test --long"]
fn real_an_unclean_election_at_the_source_is_named_with_its_exact_range() {
    let pair = Pair::of(Cluster::start("4.3.1", 3), Cluster::start("4.3.1", 1));
    let source = &pair.source;
    source.create_replicated("elected", 1, 2);
    source.alter_topic("elected", "unclean.leader.election.enable=true");
    source.create_replicated("good", 1, 3);
    load(source, "elected", 1_000, 1);
    load(source, "good", 1_000, 1);
    let (leader, replicas) = source.placed("elected");
    let follower = *replicas.iter().find(|id| **id != leader).expect("two replicas");
    source.stop_broker(follower);
    load(source, "elected", 500, 2);
    let mut running = pair.follow(&["A->B.topics = elected, good"]);
    assert_holds_in(&pair, "elected", 1_500);
    source.kill_broker(leader);
    source.start_broker(follower);
    let said = "source truncated: it lost offsets 1000 to 1499 (500 of them), which were copied before";
    wait_for_stop(&mut running, "elected", said);
    load(source, "elected", 700, 3);
    assert_recorded(&pair, "elected", "source-truncated", said);
    resume(&pair, &["--topic", "elected"]);
    assert_holds_in(&pair, "elected", 2_200);
    source.start_broker(leader);
    assert_good_goes_on(&pair, &[(1_000, 1), (100, 9)]);
    assert_holds(&pair, "elected", &[(1_000, 1), (500, 2), (700, 3)]);
    stop(running).expect_success();
}

fn assert_holds_in(pair: &Pair, topic: &str, records: u64) {
    let end = Instant::now() + 2 * SOON;
    while pair.target.ends(&format!("A.{topic}")).1 < records {
        assert!(Instant::now() < end, "{topic} is not copied");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// The source's log as an unclean election would leave it: the broker is stopped and gets the log back that it had before
/// the last records, so that its next leadership begins behind them with a newer epoch, as the former follower's would.
#[test]
#[ignore = "needs real Kafka, and long: run dev/test --long"]
fn real_a_truncated_source_is_named_and_goes_on_behind_the_common_history() {
    let pair = Pair::start("4.3.1", "4.3.1");
    let source = &pair.source;
    let kept = tempfile::tempdir().expect("room for a directory");
    for topic in ["running", "stopped", "by-policy", "good"] {
        load(source, topic, 1_000, 1);
    }
    source.with_files(|data| {
        ["running", "stopped", "by-policy"].iter().for_each(|topic| keep_log(data, topic, kept.path()));
    });
    for topic in ["running", "stopped", "by-policy"] {
        load(source, topic, 500, 2);
    }
    let two = "A->B.topics = stopped, by-policy";
    pair.copy(&[two]).expect_success();
    let lines = ["A->B.topics = running, good"];
    let mut running = pair.follow(&lines);
    assert_holds(&pair, "running", &[(1_000, 1), (500, 2)]);
    assert_good_goes_on(&pair, &[(1_000, 1), (100, 9)]);
    source.with_files(|data| {
        ["running", "stopped", "by-policy"].iter().for_each(|topic| bring_back_log(data, topic, kept.path()));
    });
    let said = "source truncated: it lost offsets 1000 to 1499 (500 of them), which were copied before";
    wait_for_stop(&mut running, "running", said);
    assert_good_goes_on(&pair, &[(1_000, 1), (100, 9), (100, 8)]);
    for topic in ["running", "stopped", "by-policy"] {
        load(source, topic, 700, 3);
    }
    assert_recorded(&pair, "running", "source-truncated", said);
    resume(&pair, &["--topic", "running"]);
    assert_holds(&pair, "running", &[(1_000, 1), (500, 2), (700, 3)]);
    stop(running).expect_success();

    let outcome = pair.copy(&[two]);
    assert_not_copied(&outcome, "stopped", said);
    assert_not_copied(&outcome, "by-policy", said);
    resume(&pair, &["--topic", "stopped"]);
    let outcome = pair.copy(&[two, "towpath.on.source.truncated = continue"]).expect_success();
    assert!(outcome.stderr.contains(said), "never silent: {outcome}");
    assert_holds(&pair, "stopped", &[(1_000, 1), (500, 2), (700, 3)]);
    assert_holds(&pair, "by-policy", &[(1_000, 1), (500, 2), (700, 3)]);
    // A restart finds nothing to do.
    pair.copy(&[two]).expect_success();
}

fn recreate(cluster: &Cluster, topic: &str, records: u64, seed: u64) {
    cluster.delete_topic(topic);
    let end = Instant::now() + SOON;
    while cluster.topics().contains(&topic.to_owned()) {
        assert!(Instant::now() < end, "{topic} does not go");
        std::thread::sleep(Duration::from_millis(100));
    }
    load(cluster, topic, records, seed);
}

const BY_ID: &str = "source topic re-created: its id is";
const BY_CONTENT: &str = "source topic re-created: what it holds is not what was copied up to offset";

/// Kafka 2.8 gives topics no ids as long as the brokers speak 2.7 among themselves.
fn nameless() -> Pair {
    Pair::start_with("2.8.2", "4.3.1", &["inter.broker.protocol.version=2.7"])
}

#[test]
#[ignore = "needs real Kafka, and long: run dev/test --long"]
fn real_a_source_topic_created_anew_is_named_while_the_mirror_runs() {
    recreated_while_running(&Pair::start("4.3.1", "4.3.1"), BY_ID);
}

#[test]
#[ignore = "needs real Kafka, and long: run dev/test --long"]
fn real_a_source_topic_created_anew_is_named_while_the_mirror_runs_without_topic_ids() {
    recreated_while_running(&nameless(), BY_CONTENT);
}

#[test]
#[ignore = "needs real Kafka, and long: run dev/test --long"]
fn real_a_source_topic_created_anew_is_named_at_the_next_start() {
    recreated_while_stopped(&Pair::start("4.3.1", "4.3.1"), BY_ID);
}

#[test]
#[ignore = "needs real Kafka, and long: run dev/test --long"]
fn real_a_source_topic_created_anew_is_named_at_the_next_start_without_topic_ids() {
    recreated_while_stopped(&nameless(), BY_CONTENT);
}

fn recreated_while_running(pair: &Pair, words: &str) {
    let source = &pair.source;
    for topic in ["smaller", "larger", "good"] {
        load(source, topic, 1_000, 1);
    }
    let mut running = pair.follow(&["A->B.topics = smaller, larger, good"]);
    assert_holds(pair, "smaller", &[(1_000, 1)]);
    assert_holds(pair, "larger", &[(1_000, 1)]);
    assert_good_goes_on(pair, &[(1_000, 1), (100, 9)]);
    recreate(source, "smaller", 300, 2);
    recreate(source, "larger", 1_700, 2);
    for topic in ["smaller", "larger"] {
        let said = wait_for_stop(&mut running, topic, words);
        assert!(said.contains("copied up to offset 1000"), "{said}");
        assert_recorded(pair, topic, "source-recreated", words);
    }
    assert_good_goes_on(pair, &[(1_000, 1), (100, 9), (100, 8)]);
    resume(pair, &["--topic", "smaller"]);
    assert_holds(pair, "smaller", &[(1_000, 1), (300, 2)]);
    resume(pair, &["--topic", "larger", "--recreate-target"]);
    assert_holds_exactly(pair, "larger", &[(1_700, 2)]);
    stop(running).expect_success();
}

fn recreated_while_stopped(pair: &Pair, words: &str) {
    let source = &pair.source;
    let topics = [("smaller", 300), ("larger", 1_700), ("anew", 300), ("set-anew", 1_700)];
    for (topic, _) in topics {
        load(source, topic, 1_000, 1);
    }
    let four = "A->B.topics = smaller, larger, anew, set-anew";
    pair.copy(&[four]).expect_success();
    for (topic, records) in topics {
        recreate(source, topic, records, 2);
    }
    let outcome = pair.copy(&[four]);
    for (topic, _) in topics {
        assert_not_copied(&outcome, topic, words);
        assert_not_copied(&outcome, topic, "copied up to offset 1000");
    }
    resume(pair, &["--topic", "smaller"]);
    resume(pair, &["--topic", "anew", "--recreate-target"]);
    pair.copy(&["A->B.topics = smaller, anew"]).expect_success();
    let appended = pair.copy(&["A->B.topics = larger", "towpath.on.source.recreated = append"]).expect_success();
    assert!(appended.stderr.contains(words), "never silent: {appended}");
    pair.copy(&["A->B.topics = set-anew", "towpath.on.source.recreated = recreate-target"]).expect_success();
    assert_holds(pair, "smaller", &[(1_000, 1), (300, 2)]);
    assert_holds(pair, "larger", &[(1_000, 1), (1_700, 2)]);
    assert_holds(pair, "anew", &[(300, 2)]);
    assert_holds(pair, "set-anew", &[(1_700, 2)]);
    pair.copy(&[four]).expect_success();
}

/// The remote topic is created anew on the way, and may be missing for a moment.
fn assert_holds_exactly(pair: &Pair, topic: &str, expected: &[(u64, u64)]) {
    let records: u64 = expected.iter().map(|(records, _)| records).sum();
    let remote = format!("A.{topic}");
    let end = Instant::now() + SOON;
    loop {
        let there = pair.target.topics().contains(&remote);
        if there && pair.target.ends(&remote) == (0, records) {
            break;
        }
        assert!(Instant::now() < end, "{topic} is not copied anew");
        std::thread::sleep(Duration::from_millis(300));
    }
    assert_holds(pair, topic, expected);
}
