//! The remote topic is gone, another one, shorter, or written by somebody else.

use super::*;
use crate::real::pair::stop;

#[test]
#[ignore = "needs real Kafka: run dev/test"]
fn real_a_remote_topic_that_is_gone_or_another_one_is_copied_anew_by_decision() {
    let pair = Pair::start("4.3.1", "4.3.1");
    let (source, target) = (&pair.source, &pair.target);
    let topics = ["deleted", "replaced", "good", "deleted-stopped", "replaced-stopped", "begins"];
    for topic in topics {
        load(source, topic, 1_000, 1);
    }
    let three = "A->B.topics = deleted-stopped, replaced-stopped, begins";
    pair.copy(&[three]).expect_success();
    // Topics are looked for often: what is deleted stays so all the same.
    let lines = ["A->B.topics = deleted, replaced, good", "refresh.topics.interval.seconds = 1"];
    let mut running = pair.follow(&lines);
    assert_holds(&pair, "deleted", &[(1_000, 1)]);
    assert_holds(&pair, "replaced", &[(1_000, 1)]);
    target.delete_topic("A.deleted");
    target.delete_topic("A.replaced");
    target.create_topic("A.replaced", 1, &[]);
    for topic in ["deleted", "replaced"] {
        load(source, topic, 200, 2);
    }
    wait_for_stop(&mut running, "deleted", "target topic gone");
    let said = wait_for_stop(&mut running, "replaced", "target topic re-created: its id is");
    assert!(said.contains("which ended at 1000"), "{said}");
    assert_good_goes_on(&pair, &[(1_000, 1), (100, 9)]);
    assert_recorded(&pair, "deleted", "target-gone", "target topic gone");
    assert_recorded(&pair, "replaced", "target-recreated", "which ended at 1000");
    resume(&pair, &["--topic", "deleted"]);
    // A batch went into the new topic before anybody could know that it is another one, so that it is not empty.
    resume(&pair, &["--topic", "replaced", "--recreate-target"]);
    running.wait_until("both copied anew", SOON, |_| {
        let names = target.topics();
        let done = |topic: &str| names.contains(&topic.to_owned()) && target.ends(topic) == (0, 1_200);
        (done("A.deleted") && done("A.replaced")).then_some(())
    });
    assert_holds(&pair, "deleted", &[(1_000, 1), (200, 2)]);
    assert_holds(&pair, "replaced", &[(1_000, 1), (200, 2)]);
    stop(running).expect_success();

    for topic in ["A.deleted-stopped", "A.replaced-stopped", "A.begins"] {
        target.delete_topic(topic);
    }
    target.create_topic("A.replaced-stopped", 1, &[]);
    let outcome = pair.copy(&[three]);
    for (topic, words) in [
        ("deleted-stopped", "target topic gone"),
        ("replaced-stopped", "target topic re-created: its id is"),
        ("begins", "target topic gone"),
    ] {
        assert_not_copied(&outcome, topic, words);
    }
    assert!(!target.topics().contains(&"A.begins".to_owned()), "not made anew before somebody decides so");
    resume(&pair, &["--topic", "deleted-stopped"]);
    resume(&pair, &["--topic", "replaced-stopped", "--accept", "target-recreated"]);
    let outcome = pair.copy(&["A->B.topics = deleted-stopped, replaced-stopped"]);
    assert_eq!(outcome.code, Some(0), "{outcome}");
    pair.copy(&[three, "towpath.on.target.recreated = begin"]).expect_success();
    for topic in ["deleted-stopped", "replaced-stopped", "begins"] {
        assert_holds(&pair, topic, &[(1_000, 1)]);
    }
    pair.copy(&[three]).expect_success();
}

#[test]
#[ignore = "needs real Kafka: run dev/test"]
fn real_a_foreign_write_is_named_and_passed_over_by_decision_or_setting() {
    let pair = Pair::start("4.3.1", "4.3.1");
    let (source, target) = (&pair.source, &pair.target);
    for topic in ["running", "stopped", "continues", "anew", "good", "full"] {
        load(source, topic, 1_000, 1);
    }
    load(target, "A.full", 10, 7);
    let more = "A->B.topics = stopped, continues, anew";
    pair.copy(&[more]).expect_success();
    let mut running = pair.follow(&["A->B.topics = running, good, full"]);
    assert_holds(&pair, "running", &[(1_000, 1)]);
    load(target, "A.running", 10, 5);
    load(source, "running", 200, 2);
    // One record of ours may land behind the others before it is seen that they are there.
    let said = wait_for_stop(
        &mut running,
        "running",
        "foreign write: 10 records of somebody else at target offsets 1000 to 1009",
    );
    assert!(said.contains("towpath resume FILE --topic running"), "{said}");
    assert_recorded(&pair, "running", "foreign-write", "10 records of somebody else at target offsets 1000 to 1009");
    wait_for_stop(&mut running, "full", "target not empty: offsets 0 to 10");
    assert_recorded(&pair, "full", "target-not-empty", "offsets 0 to 10");
    assert_good_goes_on(&pair, &[(1_000, 1), (100, 9)]);
    resume(&pair, &["--topic", "running"]);
    resume(&pair, &["--topic", "full"]);
    assert_holds(&pair, "running", &[(1_000, 1), (10, 5), (200, 2)]);
    assert_holds(&pair, "full", &[(10, 7), (1_000, 1)]);
    stop(running).expect_success();

    for topic in ["stopped", "continues", "anew"] {
        load(target, &format!("A.{topic}"), 10, 5);
        load(source, topic, 200, 2);
    }
    let outcome = pair.copy(&["A->B.topics = stopped, anew"]);
    for topic in ["stopped", "anew"] {
        assert_not_copied(&outcome, topic, "foreign write: 10 records of somebody else at target offsets 1000 to 1009");
    }
    resume(&pair, &["--topic", "stopped"]);
    resume(&pair, &["--topic", "anew", "--recreate-target"]);
    pair.copy(&["A->B.topics = stopped, anew"]).expect_success();
    let outcome = pair.copy(&["A->B.topics = continues", "towpath.on.foreign.write = continue"]).expect_success();
    assert!(outcome.stderr.contains("foreign write: 10 records"), "never silent: {outcome}");
    assert_holds(&pair, "stopped", &[(1_000, 1), (10, 5), (200, 2)]);
    assert_holds(&pair, "continues", &[(1_000, 1), (10, 5), (200, 2)]);
    assert_holds(&pair, "anew", &[(1_000, 1), (200, 2)]);
    pair.copy(&[more]).expect_success();
}

#[test]
#[ignore = "needs real Kafka, and long: run dev/test --long"]
fn real_a_truncated_target_gets_again_what_it_lost() {
    let pair = Pair::start("4.3.1", "4.3.1");
    let (source, target) = (&pair.source, &pair.target);
    let kept = tempfile::tempdir().expect("room for a directory");
    for topic in ["running", "stopped", "good"] {
        load(source, topic, 1_000, 1);
    }
    let (one, all) = (["A->B.topics = running, good"], ["A->B.topics = running, stopped, good"]);
    pair.copy(&all).expect_success();
    target.with_files(|data| ["A.running", "A.stopped"].iter().for_each(|topic| keep_log(data, topic, kept.path())));
    for topic in ["running", "stopped"] {
        load(source, topic, 500, 2);
    }
    pair.copy(&all).expect_success();
    let mut running = pair.follow(&one);
    assert_good_goes_on(&pair, &[(1_000, 1), (100, 9)]);
    target.with_files(|data| {
        ["A.running", "A.stopped"].iter().for_each(|topic| bring_back_log(data, topic, kept.path()))
    });
    load(source, "running", 100, 3);
    let said = "target truncated: it ends at 1000, our records ended at 1500";
    wait_for_stop(&mut running, "running", said);
    assert_good_goes_on(&pair, &[(1_000, 1), (100, 9), (100, 8)]);
    assert_recorded(&pair, "running", "target-truncated", said);
    resume(&pair, &["--topic", "running"]);
    assert_holds(&pair, "running", &[(1_000, 1), (500, 2), (100, 3)]);
    stop(running).expect_success();
    let outcome = pair.copy(&["A->B.topics = stopped"]);
    assert_not_copied(&outcome, "stopped", said);
    resume(&pair, &["--topic", "stopped"]);
    pair.copy(&["A->B.topics = stopped"]).expect_success();
    assert_holds(&pair, "stopped", &[(1_000, 1), (500, 2)]);
}
