//! Logs that are not what they were: what is named, and how the copy goes on by a decision or by the settings. After each,
//! the break and the anchor come before the first batch, under the same identity and with the next sequence.

use super::kit::*;
use crate::{
    batch::BatchHeader,
    client::EpochEnd,
    mirror::{
        anchor::{DecisionId, EpochStart, Record},
        decision::{Action, Decision},
        partition::{
            Break, LocateAsk, Lost, PartitionSettings, PartitionState, Policies, ProducerAnswer, SourceEnds,
            SourceHistory, StopReason,
        },
    },
    protocol::{ErrorCode, LeaderEpoch},
};

fn with(change: impl FnOnce(&mut Policies)) -> PartitionSettings {
    let mut settings = settings();
    change(&mut settings.policies);
    settings
}

/// What `towpath resume` would write now.
fn answer(bench: &Bench) -> Decision {
    let Some((record, _)) = bench.machine.record() else { panic!("nothing is recorded") };
    let incident = record.incident().expect("it stands").clone();
    Decision { id: DecisionId(77), action: Action::GoOn, answers: incident.key, decided_ms: 1 }
}

pub(super) fn decide(bench: &mut Bench) {
    let decision = answer(bench);
    assert!(bench.machine.decide(bench.now, &decision), "{}", bench.machine.state());
}

fn out_of_range(bench: &mut Bench, ends: SourceEnds) {
    bench.machine.handle_fetch_error(bench.now, ErrorCode::OFFSET_OUT_OF_RANGE);
    assert_eq!(bench.machine.locate_want(bench.now), Some(LocateAsk::Source));
    bench.machine.locate_begun(bench.now);
    bench.machine.handle_source_ends(bench.now, ends);
    bench.machine.handle_quiet(bench.now);
}

pub(super) fn history(
    bench: &mut Bench,
    ends: SourceEnds,
    epoch_end: Option<(i32, i64)>,
    at_mark: Option<BatchHeader>,
) {
    let asked = bench.machine.locate_want(bench.now);
    assert!(matches!(asked, Some(LocateAsk::History { .. })), "{asked:?}");
    bench.machine.locate_begun(bench.now);
    let epoch_end = epoch_end.map(|(epoch, end_offset)| EpochEnd { epoch: LeaderEpoch(epoch), end_offset });
    bench.machine.handle_history(bench.now, SourceHistory { ends, epoch_end, at_mark });
    bench.machine.handle_quiet(bench.now);
}

/// It goes on at this position; nothing is sent before an anchor with its break is durable.
pub(super) fn goes_on_at(bench: &mut Bench, source_next: i64, target_next: i64, sequence: i32, first: &Make) {
    assert_eq!((bench.machine.state(), bench.position()), (PartitionState::Anchoring, (source_next, target_next)));
    bench.fetch(&[first.bytes()]);
    assert!(bench.machine.wants_anchor_now() && bench.send().is_empty(), "B: sent before the anchor");
    let (anchor, breaks) = bench.machine.anchor().unwrap();
    assert_eq!(breaks.last(), Some(&Break { source_start: source_next, target_start: target_next }));
    assert_eq!((anchor.identity, anchor.position.next_sequence), (ID, sequence));
    assert_eq!(anchor.notes.incident, None);
    let taken = bench.machine.anchor_taken();
    bench.machine.handle_anchored(taken, 0);
    let sent = bench.send();
    assert_eq!(header(&sent[0].head).base_sequence, sequence);
    assert_eq!(numbers(&sent[0].head, &sent[0].batch)[0], source_next as u64);
}

#[test]
fn lost_records_stop_the_partition_where_it_is_set_so_until_somebody_decides() {
    let mut bench = Bench::copying_with(with(|policies| policies.loss_continues = false), 100, 50);
    out_of_range(&mut bench, source(130, 900));
    assert_eq!(bench.reason(), StopReason::RecordsLost { from: 100, to: 130 });
    assert_eq!(
        bench.reason().to_string(),
        "records lost: source offsets 100 to 129 (30 of them) were gone before they were copied"
    );
    assert_eq!((bench.position(), bench.machine.progress().lost_records), ((100, 50), 0));
    decide(&mut bench);
    bench.locate(target(50), known(100));
    // Retention took more meanwhile: it is the same loss.
    out_of_range(&mut bench, source(140, 900));
    assert_eq!(
        (bench.machine.losses(), bench.machine.progress().lost_records),
        ([Lost { from: 100, to: 140 }].as_slice(), 40)
    );
    goes_on_at(&mut bench, 140, 50, 100, &Make::plain(140, 2));
}

#[test]
fn a_loss_behind_which_the_copy_goes_on_is_anchored_before_anything_is_sent() {
    let mut bench = Bench::copying(100, 50);
    out_of_range(&mut bench, source(130, 900));
    assert_eq!(bench.machine.losses(), [Lost { from: 100, to: 130 }]);
    goes_on_at(&mut bench, 130, 50, 100, &Make::plain(130, 2));
}

#[test]
fn compaction_is_no_loss() {
    let mut bench = Bench::copying(100, 50);
    bench.fetch(&[Make::plain(130, 1).bytes(), emptied(131, 5), Make::plain(140, 1).bytes()]);
    assert_eq!((bench.machine.losses(), bench.machine.progress().lost_records), ([].as_slice(), 0));
    assert_eq!(bench.machine.state(), PartitionState::Copying);
}

#[test]
fn a_truncated_source_goes_on_behind_the_common_history_and_the_target_keeps_the_rest() {
    let by_policy = with(|policies| policies.truncated_continues = true);
    for settings in [settings(), by_policy.clone()] {
        let asks = settings.policies == by_policy.policies;
        let mut bench = Bench::copying_with(settings, 100, 50);
        bench.machine.handle_diverged(bench.now, EpochEnd { epoch: LeaderEpoch(3), end_offset: 95 });
        if !asks {
            let reason = bench.reason();
            assert_eq!(reason, StopReason::SourceTruncated { position: 100, end: 95 });
            assert_eq!(
                reason.to_string(),
                "source truncated: it lost offsets 95 to 99 (5 of them), which were copied before"
            );
            decide(&mut bench);
        }
        bench.locate(target(50), known(100));
        assert_eq!(bench.machine.progress().truncated_records, 5);
        // The same identity and its next sequence, at an earlier source offset.
        goes_on_at(&mut bench, 95, 50, 100, &Make { epoch: 4, ..Make::plain(95, 2) });
    }
}

#[test]
fn the_common_history_ends_where_the_epoch_ended_in_what_was_copied() {
    // The former leader comes back with records of epoch 3 that were never replicated: 100 to 109. What was copied of
    // epoch 3 ends at 100, where epoch 4 began.
    let mut bench = Bench::copying(90, 50);
    bench.fetch(&[Make::plain(90, 10).bytes(), Make { epoch: 4, ..Make::plain(100, 10) }.bytes()]);
    for (at, base) in [(50, 0), (60, 1)] {
        let sent = bench.send();
        assert_eq!(sent.len(), 1, "{base}");
        bench.produced(sent[0].ticket, at);
    }
    bench.machine.handle_diverged(bench.now, EpochEnd { epoch: LeaderEpoch(3), end_offset: 110 });
    assert_eq!(bench.reason(), StopReason::SourceTruncated { position: 110, end: 100 });
    let (anchor, _) = bench.machine.anchor().unwrap();
    let start = |epoch, start| EpochStart { epoch: LeaderEpoch(epoch), start };
    assert_eq!(anchor.notes.history, [start(4, 100)], "so that a restart knows it too");
}

#[test]
fn an_epoch_that_the_source_does_not_have_is_asked_for_as_an_older_one() {
    let mut anchored = anchor(300, 50);
    let start = |epoch, start| EpochStart { epoch: LeaderEpoch(epoch), start };
    anchored.leader_epoch = LeaderEpoch(9);
    anchored.notes.history = vec![start(2, 0), start(5, 200), start(9, 290)];
    let mut bench = Bench::new(settings(), spec(Some(anchored)));
    bench.locate(target(50), ProducerAnswer::Absent);
    // It has an epoch 7 of its own, which we never saw, and of 5 fewer records than we copied.
    bench.machine.handle_diverged(bench.now, EpochEnd { epoch: LeaderEpoch(7), end_offset: 280 });
    let asked = bench.machine.locate_want(bench.now);
    assert_eq!(asked, Some(LocateAsk::History { epoch: LeaderEpoch(5), mark: None }));
    history(&mut bench, source(0, 500), Some((5, 250)), None);
    assert_eq!(bench.reason(), StopReason::SourceTruncated { position: 300, end: 250 });
}

#[test]
fn a_high_watermark_that_lags_behind_an_election_is_no_truncation() {
    let mut bench = Bench::copying(100, 50);
    out_of_range(&mut bench, source(0, 90));
    history(&mut bench, source(0, 90), Some((3, 100)), None);
    assert_eq!(bench.machine.losses(), []);
    bench.wait();
    assert!(bench.machine.fetch_want(bench.now, 1).is_some());
}

#[test]
fn a_source_that_ends_before_the_position_at_a_start_is_asked_before_it_counts_as_caught_up() {
    let mut bench = Bench::new(settings(), spec(Some(anchor(1200, 50))));
    bench.locate_in(source(0, 1000), target(50), known(1200));
    assert!(!bench.machine.reached_goal());
    history(&mut bench, source(0, 1000), Some((3, 1000)), None);
    assert_eq!(bench.reason(), StopReason::SourceTruncated { position: 1200, end: 1000 });
}

#[test]
fn a_truncation_that_no_epoch_shows_is_remembered_while_the_source_grows_again() {
    let mut anchored = anchor(100, 50);
    anchored.leader_epoch = LeaderEpoch::NONE;
    let mut bench = Bench::new(settings(), spec(Some(anchored)));
    bench.locate_in(source(0, 80), target(50), known(100));
    history(&mut bench, source(0, 80), None, None);
    assert_eq!(bench.reason(), StopReason::SourceTruncated { position: 100, end: 80 });
    let decision = answer(&bench);
    let Some((Record::Anchor(recorded), _)) = bench.machine.record() else { panic!("an anchor") };
    let mut bench = Bench::new(settings(), spec(Some(recorded)));
    bench.locate_in(source(0, 95), target(50), known(100));
    history(&mut bench, source(0, 95), None, None);
    assert_eq!(bench.reason(), StopReason::SourceTruncated { position: 100, end: 80 });
    assert!(bench.machine.decide(bench.now, &decision));
}

#[test]
fn a_source_topic_created_anew_is_copied_behind_the_former_one_by_decision_or_policy() {
    for appends in [false, true] {
        let mut bench = Bench::copying_with(with(|policies| policies.recreated_appends = appends), 100, 50);
        bench.fetch(&[Make::plain(100, 3).bytes()]);
        bench.machine.handle_topics(bench.now, Some(topic_id(9)), Some(topic_id(2)));
        assert_eq!(bench.machine.state(), PartitionState::Copying, "what was taken before is copied first");
        let sent = bench.send();
        bench.produced(sent[0].ticket, 50);
        if !appends {
            let reason = StopReason::SourceRecreated { anchored: topic_id(1), found: topic_id(9), position: 103 };
            assert_eq!(bench.reason().code(), reason.code());
            decide(&mut bench);
        }
        bench.locate(target(53), known(103));
        goes_on_at(&mut bench, 0, 53, 103, &Make::plain(0, 2));
        assert_eq!(bench.machine.spec().source_topic_id, topic_id(9));
        bench.machine.handle_topics(bench.now, Some(topic_id(9)), Some(topic_id(2)));
        assert_eq!(bench.machine.state(), PartitionState::Copying);
    }
}

#[test]
fn another_source_cluster_is_named_before_its_topics_are_and_no_setting_goes_on_with_it() {
    for (former, id_now) in [("lkc-7yzab", topic_id(9)), ("lkc-7yzab", topic_id(1)), (CLUSTER, topic_id(1))] {
        let mut before = anchor(100, 50);
        before.notes.source_cluster = Some(former.to_owned());
        let mut spec = spec(Some(before));
        spec.source_topic_id = id_now;
        let mut bench = Bench::new(with(|policies| policies.recreated_appends = true), spec);
        if former == CLUSTER {
            assert_eq!(bench.machine.state(), PartitionState::Locating);
            continue;
        }
        let (anchored, found) = (former.to_owned(), CLUSTER.to_owned());
        let reason = StopReason::SourceCluster { anchored, found, topic: id_now, position: 100 };
        assert_eq!(bench.reason(), reason);
        assert!(reason.remedy().starts_with("check bootstrap.servers of the source; "), "{}", reason.remedy());
        bench.machine.handle_topics(bench.now, Some(id_now), Some(topic_id(2)));
        assert_eq!(bench.reason(), reason);
        decide(&mut bench);
        bench.locate(target(53), known(103));
        goes_on_at(&mut bench, 0, 53, 103, &Make::plain(0, 2));
        let (anchor, _) = bench.machine.anchor().unwrap();
        assert_eq!(anchor.notes.source_cluster.as_deref(), Some(CLUSTER));
    }
}

#[test]
fn what_the_former_source_left_on_the_target_is_kept_though_nothing_can_explain_it() {
    // Killed with a tail behind its anchor; meanwhile the source topic was created anew.
    for producer in [known(108), ProducerAnswer::Absent] {
        let mut spec = spec(Some(anchor(100, 50)));
        spec.source_topic_id = topic_id(9);
        let mut bench = Bench::new(settings(), spec);
        let reason = StopReason::SourceRecreated { anchored: topic_id(1), found: topic_id(9), position: 100 };
        assert_eq!(bench.reason(), reason);
        decide(&mut bench);
        bench.locate(target(58), producer);
        if producer == ProducerAnswer::Absent {
            bench.tail(vec![held(&Make::plain(100, 8).bytes(), 50, 100)]);
        }
        goes_on_at(&mut bench, 0, 58, 108, &Make::plain(0, 2));
    }
}

#[test]
fn a_crash_right_after_the_decision_finds_what_was_sent_since() {
    let mut anchored = anchor(100, 50);
    let mut spec_now = spec(None);
    spec_now.source_topic_id = topic_id(9);
    spec_now.anchor = Some(anchored.clone());
    let mut bench = Bench::new(settings(), spec_now.clone());
    decide(&mut bench);
    bench.locate(target(50), known(100));
    let (durable, _) = bench.machine.anchor().unwrap();
    assert_eq!(durable.notes.decision, Some(DecisionId(77)));
    // The anchor is durable, two batches went out, and the process died.
    anchored = durable;
    let batches = [Make::plain(0, 5).bytes(), Make::plain(5, 3).bytes(), Make::plain(8, 2).bytes()];
    // Without an epoch nothing is counted.
    anchored.leader_epoch = LeaderEpoch(3);
    spec_now.anchor = Some(anchored);
    let mut bench = Bench::new(settings(), spec_now);
    bench.locate(target(58), known(108));
    bench.fetch(&batches);
    assert_eq!((bench.machine.state(), bench.position()), (PartitionState::Copying, (8, 58)));
}

#[test]
fn a_foreign_write_is_named_with_its_range_and_passed_over_by_decision_or_policy() {
    let (one, two, next) = (Make::plain(100, 5).bytes(), Make::plain(105, 3).bytes(), Make::plain(108, 2));
    for continues in [false, true] {
        let mut bench =
            Bench::new(with(|policies| policies.foreign_continues = continues), spec(Some(anchor(100, 50))));
        let ours = held(&one, 50, 100);
        let theirs = BatchHeader { producer_id: -1, producer_epoch: -1, base_offset: 55, ..ours };
        let ours_again = held(&two, 60, 105);
        let more = BatchHeader { base_offset: 63, ..theirs };
        let tail = vec![ours, theirs, ours_again, more];
        bench.locate(target(68), known(108));
        bench.tail(tail.clone());
        if !continues {
            assert_eq!(bench.reason(), StopReason::ForeignWrite { from: 55, to: 68, records: 10 });
            assert_eq!(bench.position(), (100, 50));
            decide(&mut bench);
        }
        bench.locate(target(68), known(108));
        bench.tail(tail);
        bench.fetch(&[one.clone(), two.clone()]);
        assert_eq!(bench.machine.progress().foreign_records, 10);
        let (_, breaks) = bench.machine.anchor().unwrap();
        let at = |source_start, target_start| Break { source_start, target_start };
        assert_eq!(breaks, [at(100, 50), at(105, 60), at(108, 68)]);
        goes_on_at(&mut bench, 108, 68, 108, &next);
    }
}

#[test]
fn records_of_another_history_are_not_counted_as_copied_where_the_first_anchor_knows_no_epoch() {
    // The simulation's seed 2027: killed with a tail behind the first anchor, and the source lost all of it meanwhile.
    let mut anchored = anchor(100, 50);
    anchored.leader_epoch = LeaderEpoch::NONE;
    let mut bench = Bench::new(settings(), spec(Some(anchored)));
    bench.locate(target(58), known(108));
    let others = Make { epoch: 4, ..Make::plain(100, 8).at(77) }.bytes();
    bench.fetch(std::slice::from_ref(&others));
    assert_eq!(bench.machine.state(), PartitionState::ReadingTail);
    bench.tail(vec![held(&Make::plain(100, 8).bytes(), 50, 100)]);
    bench.fetch(&[others]);
    assert_eq!(bench.reason().code(), "position-unknown");
}

#[test]
fn two_incidents_of_one_partition_are_answered_one_after_the_other() {
    // The simulation found that each answer was forgotten when the other incident was seen again.
    for by_policy in [false, true] {
        let allow = |policies: &mut Policies| {
            (policies.foreign_continues, policies.recreated_appends) = (by_policy, by_policy);
        };
        let mut bench = Bench::copying_with(with(allow), 100, 50);
        let mut id = 100;
        let mut answered = |bench: &mut Bench, code: &str| {
            bench.machine.handle_quiet(bench.now);
            if !by_policy {
                assert_eq!(bench.reason().code(), code);
                id += 1;
                let decision = Decision { id: DecisionId(id), ..answer(bench) };
                assert!(bench.machine.decide(bench.now, &decision));
            }
        };
        let mut foreign = held(&Make::plain(0, 4).bytes(), 52, 0);
        foreign.producer_id = 1;
        let tail = vec![held(&Make::plain(100, 2).bytes(), 50, 100), foreign];
        bench.machine.handle_topics(bench.now, Some(topic_id(9)), Some(topic_id(2)));
        answered(&mut bench, "source-recreated");
        bench.locate(target(56), known(102));
        bench.tail(tail.clone());
        answered(&mut bench, "foreign-write");
        answered(&mut bench, "source-recreated");
        bench.locate(target(56), known(102));
        bench.tail(tail);
        assert_eq!(bench.machine.progress().foreign_records, 4);
        goes_on_at(&mut bench, 0, 56, 102, &Make::plain(0, 2));
    }
}

#[test]
fn a_foreign_write_alone_is_a_break() {
    let mut bench = Bench::copying_with(with(|policies| policies.foreign_continues = true), 100, 50);
    bench.fetch(&[Make::plain(100, 2).bytes()]);
    let sent = bench.send();
    bench.produced(sent[0].ticket, 53);
    let ours = stored(&sent[0], 53);
    let theirs = BatchHeader { producer_id: 5, base_offset: 50, records_count: 3, last_offset_delta: 2, ..ours };
    for _ in 0..2 {
        bench.locate(target(55), known(102));
        bench.tail(vec![theirs, ours]);
    }
    bench.fetch(&[Make::plain(100, 2).bytes()]);
    goes_on_at(&mut bench, 102, 55, 102, &Make::plain(102, 1));
}

#[test]
fn what_the_target_lost_is_copied_again_by_decision() {
    let mut bench = Bench::new(settings(), spec(Some(anchor(100, 50))));
    bench.locate(target(40), known(90));
    assert_eq!(bench.reason(), StopReason::TargetTruncated { expected: 50, end: 40 });
    decide(&mut bench);
    bench.locate(target(40), known(90));
    assert_eq!(bench.machine.locate_want(bench.now), Some(LocateAsk::Tail { from: 39, to: 40, records: false }));
    bench.tail(vec![held(&Make::plain(85, 5).bytes(), 35, 85)]);
    assert_eq!(bench.machine.state(), PartitionState::Matching);
    assert!(!bench.machine.wants_anchor(), "not proven yet");
    bench.fetch(&[Make::plain(85, 5).bytes()]);
    goes_on_at(&mut bench, 90, 40, 90, &Make::plain(90, 10));
}

#[test]
fn a_target_that_does_not_say_what_it_lost_leaves_the_former_position() {
    let mut bench = Bench::new(settings(), spec(Some(anchor(100, 50))));
    bench.locate(target(40), known(90));
    decide(&mut bench);
    bench.locate(target(40), known(90));
    bench.tail(vec![held(&Make::plain(85, 5).bytes(), 35, 85)]);
    bench.fetch(&[Make { numbers: vec![1; 5], ..Make::plain(85, 5) }.bytes()]);
    assert!(matches!(bench.reason(), StopReason::PositionUnknown { .. }));
    assert_eq!(bench.position(), (100, 50));
}

#[test]
fn an_emptied_target_of_the_same_id_is_copied_from_the_beginning_by_decision() {
    let mut bench = Bench::new(settings(), spec(Some(anchor(100, 50))));
    bench.locate(target(0), ProducerAnswer::Absent);
    decide(&mut bench);
    bench.locate(target(0), ProducerAnswer::Absent);
    goes_on_at(&mut bench, 0, 0, 0, &Make::plain(0, 2));
}

#[test]
fn a_target_that_is_not_empty_is_appended_to_by_decision() {
    let mut bench = Bench::new(settings(), spec(None));
    bench.locate(target(9), ProducerAnswer::Absent);
    assert_eq!(bench.reason(), StopReason::TargetNotEmpty { start: 0, end: 9 });
    let Some((Record::Standing(standing), _)) = bench.machine.record() else { panic!("it has no position") };
    assert_eq!((standing.state.as_str(), standing.target_topic_id), ("target-not-empty", topic_id(2)));
    assert!(bench.machine.wants_anchor());
    // Its record is on the way while it goes on: that is no anchor.
    bench.machine.anchor_taken();
    decide(&mut bench);
    bench.locate(target(9), ProducerAnswer::Absent);
    assert_eq!((bench.machine.state(), bench.position()), (PartitionState::Anchoring, (0, 9)));
    bench.machine.handle_anchored(0, 0);
    assert_eq!(bench.machine.state(), PartitionState::Anchoring);
    bench.machine.anchor_taken();
    bench.machine.handle_anchored(0, 0);
    assert_eq!(bench.machine.state(), PartitionState::Copying);
}

#[test]
fn a_decision_answers_its_own_incident_and_no_other_and_only_once() {
    let mut bench = Bench::copying(100, 50);
    bench.machine.handle_diverged(bench.now, EpochEnd { epoch: LeaderEpoch(3), end_offset: 95 });
    let decision = answer(&bench);
    let other = Decision { answers: decision.answers.replace("95", "94"), ..decision.clone() };
    assert!(!bench.machine.decide(bench.now, &other));
    assert!(!bench.machine.decide(bench.now, &Decision { action: Action::CopyAnew, ..decision.clone() }));
    assert!(bench.machine.decide(bench.now, &decision));
    bench.locate(target(50), known(100));
    let taken = bench.machine.anchor_taken();
    bench.machine.handle_anchored(taken, 0);
    // The same once more: position, end and key are those of before.
    bench.fetch(&[Make { epoch: 4, ..Make::plain(95, 5) }.bytes()]);
    let sent = bench.send();
    bench.produced(sent[0].ticket, 50);
    bench.machine.handle_diverged(bench.now, EpochEnd { epoch: LeaderEpoch(4), end_offset: 95 });
    assert_eq!(answer(&bench).answers, decision.answers);
    assert!(!bench.machine.decide(bench.now, &decision), "it was carried out");
    // Nor after a restart.
    let (anchor, _) = bench.machine.anchor().unwrap();
    let mut bench = Bench::new(settings(), spec(Some(anchor)));
    bench.locate(target(55), known(105));
    bench.machine.handle_diverged(bench.now, EpochEnd { epoch: LeaderEpoch(4), end_offset: 95 });
    assert!(!bench.machine.decide(bench.now, &decision));
}

#[test]
fn an_anchor_from_before_a_decision_opens_nothing() {
    let mut bench = Bench::copying(100, 50);
    bench.machine.handle_diverged(bench.now, EpochEnd { epoch: LeaderEpoch(3), end_offset: 95 });
    // The record of the stop is being committed when the decision comes.
    let taken = bench.machine.anchor_taken();
    decide(&mut bench);
    bench.locate(target(50), known(100));
    bench.machine.handle_anchored(taken, 0);
    assert_eq!(bench.machine.state(), PartitionState::Anchoring);
    goes_on_at(&mut bench, 95, 50, 100, &Make::plain(95, 1));
}

#[test]
fn a_partition_that_stands_before_it_was_located_keeps_its_position_in_the_record() {
    let mut other = spec(Some(anchor(100, 50)));
    other.source_topic_id = topic_id(9);
    let bench = Bench::new(settings(), other);
    assert!(bench.machine.wants_anchor());
    let Some((Record::Anchor(recorded), [])) = bench.machine.record() else { panic!("an anchor") };
    assert_eq!(recorded.position, anchor(100, 50).position);
    assert_eq!((recorded.source_topic_id, recorded.state.as_str()), (topic_id(1), "source-recreated"));
    assert!(recorded.notes.incident.unwrap().reason.contains("copied up to offset 100"));
}

#[test]
fn a_topic_that_is_gone_goes_on_when_it_is_back_and_is_another_one_if_it_has_another_id() {
    let mut bench = Bench::copying(100, 50);
    bench.machine.handle_topics(bench.now, Some(topic_id(1)), None);
    assert_eq!(bench.reason(), StopReason::TargetGone);
    bench.wait();
    assert_eq!(bench.reason(), StopReason::TargetGone, "nothing to ask while it is gone");
    bench.machine.handle_topics(bench.now, Some(topic_id(1)), Some(topic_id(2)));
    bench.locate(target(50), known(100));
    assert_eq!(bench.machine.state(), PartitionState::Copying);
    bench.machine.handle_topics(bench.now, Some(topic_id(1)), None);
    bench.machine.handle_topics(bench.now, Some(topic_id(1)), Some(topic_id(8)));
    let reason = StopReason::TargetRecreated { anchored: topic_id(2), found: topic_id(8), expected: 50 };
    assert_eq!(bench.reason(), reason);
    let mut bench = Bench::copying(100, 50);
    bench.machine.handle_topics(bench.now, None, Some(topic_id(2)));
    assert_eq!(bench.reason(), StopReason::SourceGone);
    bench.machine.handle_topics(bench.now, Some(topic_id(9)), Some(topic_id(2)));
    assert_eq!(bench.reason().code(), "source-recreated");
}

/// A source without topic ids, copied up to 100, of which the batch at 95 is remembered.

#[test]
fn a_count_does_not_go_on_over_an_election_of_the_source() {
    // Behind the election another history may have the same numbers of records.
    let mut bench = Bench::new(settings(), spec(Some(anchor(100, 50))));
    bench.locate(target(58), known(108));
    bench.fetch(&[Make::plain(100, 5).bytes(), Make { epoch: 4, ..Make::plain(105, 3) }.bytes()]);
    assert_eq!(bench.machine.state(), PartitionState::ReadingTail);
}
