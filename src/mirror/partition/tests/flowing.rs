//! Batches on their way: windows, refusals, what is left out, what stops, anchors, drain.

use std::time::Duration;

use super::kit::*;
use crate::{
    client::EpochEnd,
    mirror::{
        anchor::Shape,
        partition::{
            Break, LocateAsk, Lost, PartitionSettings, PartitionState, ProduceOutcome, SourceEnds, SourceHistory,
            StopReason,
        },
    },
    protocol::{AbortedTransaction, ErrorCode, LeaderEpoch},
};

fn row(count: i64) -> Vec<bytes::Bytes> {
    (0..count).map(|index| Make::plain(100 + index, 1).bytes()).collect()
}

#[test]
fn the_window_is_one_until_the_first_acknowledgement_and_five_afterwards() {
    let mut bench = Bench::copying(100, 50);
    bench.fetch(&row(12));
    let first = bench.send();
    assert_eq!(first.len(), 1);
    bench.produced(first[0].ticket, 50);
    assert_eq!(bench.send().len(), 5);
    bench.machine.handle_lane_lost(bench.now);
    bench.locate(target(51), known(101));
    bench.fetch(&row(12)[1..]);
    assert_eq!(bench.send().len(), 1, "a new connection begins with one");
}

#[test]
fn data_older_than_the_brokers_memory_goes_one_by_one() {
    let mut bench = Bench::copying(100, 50);
    let make = |base, at| Make::plain(base, 1).at(at).bytes();
    bench.fetch(&[make(100, YOUNG), make(101, YOUNG), make(102, OLD), make(103, YOUNG), make(104, YOUNG)]);
    for target in 50..54 {
        let sent = bench.send();
        assert_eq!(sent.len(), 1);
        bench.produced(sent[0].ticket, target);
    }
}

#[test]
fn a_window_opens_only_over_a_young_acknowledgement() {
    // The broker may have forgotten the producer of the old batch: the young ones behind it are its first again.
    let mut bench = Bench::copying(100, 50);
    let make = |base, at| Make::plain(base, 1).at(at).bytes();
    bench.fetch(&[make(100, OLD), make(101, YOUNG), make(102, YOUNG), make(103, YOUNG)]);
    let sent = bench.send();
    bench.produced(sent[0].ticket, 50);
    let sent = bench.send();
    assert_eq!(sent.len(), 1, "two in flight: the first refused and the second taken would be out of order");
    bench.produced(sent[0].ticket, 51);
    assert_eq!(bench.send().len(), 2);
}

#[test]
fn a_window_closes_over_a_long_silence() {
    let mut bench = Bench::copying(100, 50);
    bench.fetch(&row(1));
    let sent = bench.send();
    bench.produced(sent[0].ticket, 50);
    let later = WALL_MS + 2 * 3_600_000;
    bench.fetch(&[101, 102].map(|base| Make::plain(base, 1).at(later).bytes()));
    assert!(bench.machine.take_batch(later).is_some());
    assert!(bench.machine.take_batch(later).is_none());
}

#[test]
fn the_age_of_a_sealed_append_time_batch_is_its_producers() {
    let shape = Shape { read_committed: true, sealed_append_time: true };
    let mut bench = Bench::copying_with(PartitionSettings { shape, ..settings() }, 100, 50);
    let stamped = |base| {
        let old = patched(&Make::plain(base, 1).at(OLD).bytes(), 21, &LOG_APPEND_TIME.to_be_bytes());
        patched(&old, 35, &YOUNG.to_be_bytes())
    };
    bench.fetch(&[100, 101, 102].map(stamped));
    let sent = bench.send();
    bench.produced(sent[0].ticket, 50);
    assert_eq!(bench.send().len(), 1, "the target goes by the payload's times");
}

#[test]
fn refusals_stop_and_are_tried_again() {
    for code in [ErrorCode::INVALID_TIMESTAMP, ErrorCode::INVALID_RECORD] {
        let mut bench = Bench::copying(100, 50);
        bench.fetch(&row(3));
        let sent = bench.send();
        bench.failed(sent[0].ticket, code);
        assert_eq!(bench.reason(), StopReason::Refused { offset: 100, code, message: None });
        assert!(bench.send().is_empty());
        bench.locate(target(50), known(100));
        bench.fetch(&row(3));
        assert_eq!(bench.send().len(), 1, "{code} is tried again");
    }
}

#[test]
fn failures_without_a_plain_outcome_ask_the_target() {
    for code in [
        ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode::NOT_LEADER_OR_FOLLOWER,
        ErrorCode::NOT_ENOUGH_REPLICAS,
        ErrorCode::REQUEST_TIMED_OUT,
    ] {
        let mut bench = Bench::copying(100, 50);
        bench.fetch(&row(3));
        let sent = bench.send();
        let refresh =
            bench.machine.handle_produced(bench.now, sent[0].ticket, ProduceOutcome::Failed { code, message: None });
        assert_eq!(refresh, code == ErrorCode::NOT_LEADER_OR_FOLLOWER);
        assert_eq!(bench.machine.state(), PartitionState::Locating, "{code}");
        assert!(bench.send().is_empty());
        bench.locate(target(51), known(101));
        assert_eq!(bench.position(), (101, 51));
    }
}

#[test]
fn a_later_refusal_does_not_stop_what_an_earlier_failure_began() {
    let mut bench = Bench::copying(100, 50);
    bench.fetch(&row(4));
    let sent = bench.send();
    bench.produced(sent[0].ticket, 50);
    let sent = bench.send();
    bench.failed(sent[0].ticket, ErrorCode::NOT_ENOUGH_REPLICAS);
    bench.failed(sent[1].ticket, ErrorCode::MESSAGE_TOO_LARGE);
    assert_eq!(bench.machine.state(), PartitionState::Settling);
    bench.failed(sent[2].ticket, ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
    bench.locate(target(51), known(101));
    assert_eq!((bench.machine.state(), bench.position()), (PartitionState::Copying, (101, 51)));
}

#[test]
fn an_unexpected_base_offset_is_no_acknowledgement() {
    let mut bench = Bench::copying(100, 50);
    bench.fetch(&row(1));
    let sent = bench.send();
    bench.produced(sent[0].ticket, 57);
    assert_eq!((bench.machine.state(), bench.position()), (PartitionState::Locating, (100, 50)));
}

#[test]
fn an_append_time_batch_goes_sealed_where_that_is_wanted() {
    let shape = Shape { read_committed: true, sealed_append_time: true };
    let mut bench = Bench::copying_with(PartitionSettings { shape, ..settings() }, 100, 50);
    bench.fetch(&[patched(&Make::plain(100, 1).bytes(), 21, &LOG_APPEND_TIME.to_be_bytes())]);
    assert_eq!(header(&bench.send()[0].head).attributes, 0);
}

#[test]
fn control_and_aborted_batches_are_passed_over_with_what_came_before_them() {
    let mut bench = Bench::copying(100, 50);
    let batches = [
        Make::plain(100, 2).transactional(7).bytes(),
        marker(102, 7, true),
        Make::plain(103, 4).transactional(8).bytes(),
        marker(107, 8, false),
    ];
    let aborted = vec![AbortedTransaction { producer_id: 8, first_offset: 103 }];
    bench.fetch_aborted(&batches, aborted.clone());
    let sent = bench.send();
    assert_eq!(sent.len(), 1);
    assert_eq!(bench.position(), (100, 50), "nothing is acknowledged yet");
    // The rest comes while the batch is in flight.
    bench.fetch_aborted(&[marker(108, 9, true)], aborted);
    bench.produced(sent[0].ticket, 50);
    assert_eq!(bench.position(), (109, 52));
    let progress = bench.machine.progress();
    assert_eq!((progress.records, progress.control_batches, progress.aborted_records), (2, 3, 4));
    bench.fetch(&[marker(109, 9, true)]);
    assert_eq!(bench.position(), (110, 52), "with nothing before it, it counts at once");
    assert!(bench.machine.wants_anchor());
}

#[test]
fn uncommitted_copies_hold_aborted_records_and_never_markers() {
    let shape = Shape { read_committed: false, sealed_append_time: false };
    let mut bench = Bench::copying_with(PartitionSettings { shape, ..settings() }, 100, 50);
    let mut uncommitted = anchor(100, 50);
    uncommitted.shape = shape;
    let aborted = vec![AbortedTransaction { producer_id: 8, first_offset: 100 }];
    bench.fetch_aborted(&[Make::plain(100, 2).transactional(8).bytes(), marker(102, 8, false)], aborted);
    assert_eq!(bench.send().len(), 1);
}

#[test]
fn a_damaged_batch_is_fetched_again_and_stops_at_the_third_time() {
    let mut damaged = Make::plain(101, 3).bytes().to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    let mut bench = Bench::copying(100, 50);
    bench.fetch(&[Make::plain(100, 1).bytes(), damaged.clone().into()]);
    for _ in 0..2 {
        assert_eq!(bench.machine.fetch_want(bench.now, 1 << 20), None, "not at once again");
        bench.wait();
        bench.fetch(&[damaged.clone().into()]);
    }
    let sent = bench.send();
    bench.produced(sent[0].ticket, 50);
    assert!(matches!(bench.reason(), StopReason::SourceCorrupt { offset: 101, .. }));
    bench.locate(target(51), known(101));
    bench.fetch(&[Make::plain(101, 3).bytes()]);
    assert_eq!(bench.send().len(), 1);
}

#[test]
fn damage_never_turns_data_into_a_marker_or_into_nothing() {
    // One bit of the attributes makes a record with a key of four bytes a marker; the count field makes it empty.
    let marker_like = marker(100, 7, true);
    let data = patched(&marker_like, 21, &[0, 0]);
    for (at, patch) in [(22, vec![0x20]), (57, vec![0; 4])] {
        let mut damaged = data.to_vec();
        damaged[at..at + patch.len()].copy_from_slice(&patch);
        let mut bench = Bench::copying(100, 50);
        bench.fetch(&[damaged.into()]);
        assert_eq!(bench.position(), (100, 50), "a damaged batch was passed over");
        bench.wait();
        bench.fetch(std::slice::from_ref(&data));
        assert_eq!(bench.send().len(), 1);
    }
}

fn out_of_range(bench: &mut Bench, ends: SourceEnds) {
    bench.machine.handle_fetch_error(bench.now, ErrorCode::OFFSET_OUT_OF_RANGE);
    assert_eq!(bench.machine.locate_want(bench.now), Some(LocateAsk::Source));
    bench.machine.locate_begun(bench.now);
    bench.machine.handle_source_ends(bench.now, ends);
    bench.machine.handle_quiet(bench.now);
}

#[test]
fn what_retention_took_is_a_loss_with_its_exact_range() {
    let mut bench = Bench::copying(100, 50);
    out_of_range(&mut bench, source(130, 900));
    assert_eq!(bench.machine.losses(), [Lost { from: 100, to: 130 }]);
    assert_eq!(bench.machine.fetch_want(bench.now, 1), Some((130, LeaderEpoch::NONE, 1 << 20)));
    assert_eq!((bench.position(), bench.machine.progress().lost_records), ((130, 50), 30));
}

#[test]
fn a_loss_is_counted_once_though_what_was_queued_is_dropped() {
    let ends = source(130, 900);
    let mut bench = Bench::copying(100, 50);
    bench.fetch(&row(3));
    let sent = bench.send();
    out_of_range(&mut bench, ends);
    assert_eq!(bench.machine.losses(), []);
    bench.failed(sent[0].ticket, ErrorCode::NOT_ENOUGH_REPLICAS);
    bench.locate(target(50), known(100));
    out_of_range(&mut bench, ends);
    assert_eq!(bench.machine.losses(), [Lost { from: 100, to: 130 }]);
    assert_eq!(bench.machine.progress().lost_records, 30);
}

#[test]
fn a_source_that_ends_before_the_position_was_truncated() {
    let mut bench = Bench::copying(100, 50);
    out_of_range(&mut bench, source(0, 90));
    assert_eq!(bench.machine.locate_want(bench.now), Some(LocateAsk::History { epoch: LeaderEpoch(3), mark: None }));
    assert_eq!(bench.machine.fetch_want(bench.now, 1), None);
    bench.machine.locate_begun(bench.now);
    let epoch_end = Some(EpochEnd { epoch: LeaderEpoch(3), end_offset: 90 });
    bench.machine.handle_history(bench.now, SourceHistory { ends: source(0, 90), epoch_end, at_mark: None });
    assert_eq!(bench.reason(), StopReason::SourceTruncated { position: 100, end: 90 });
}

#[test]
fn a_diverging_epoch_stops_behind_what_is_queued() {
    let mut bench = Bench::copying(100, 50);
    bench.fetch(&row(1));
    bench.machine.handle_diverged(bench.now, EpochEnd { epoch: LeaderEpoch(3), end_offset: 95 });
    let sent = bench.send();
    bench.produced(sent[0].ticket, 50);
    assert_eq!(bench.reason(), StopReason::SourceTruncated { position: 101, end: 95 });
}

#[test]
fn a_stale_or_empty_or_cut_off_answer_changes_nothing() {
    let mut bench = Bench::copying(100, 50);
    bench.answer(90, &[Make::plain(90, 3).bytes()], Vec::new());
    bench.fetch(&[]);
    let whole = Make::plain(100, 3).bytes();
    bench.fetch(&[whole.slice(..whole.len() - 1)]);
    assert!(bench.machine.is_empty());
    assert_eq!(bench.machine.fetch_want(bench.now, 1), Some((100, LeaderEpoch(3), 2 << 20)), "a larger limit");
    bench.fetch(&[whole]);
    assert_eq!(bench.machine.fetch_want(bench.now, 1 << 20), Some((103, LeaderEpoch(3), 1 << 20)));
}

#[test]
fn a_drain_settles_what_is_in_flight_and_takes_nothing_more() {
    let mut bench = Bench::copying(100, 50);
    bench.fetch(&row(3));
    let sent = bench.send();
    bench.machine.drain();
    assert!(!bench.machine.is_drained());
    assert_eq!((bench.machine.state(), bench.machine.fetch_want(bench.now, 1)), (PartitionState::Draining, None));
    bench.answer(101, &[Make::plain(101, 1).bytes()], Vec::new());
    bench.produced(sent[0].ticket, 50);
    assert!(bench.machine.is_drained() && bench.machine.is_empty(), "an answer after a drain is not queued");
    assert!(bench.machine.wants_anchor() && bench.position() == (101, 51));
}

#[test]
fn a_refused_or_unreachable_partition_drains_all_the_same() {
    let refused = |code| {
        let mut bench = Bench::copying(100, 50);
        bench.fetch(&row(1));
        let sent = bench.send();
        bench.failed(sent[0].ticket, code);
        bench.machine.drain();
        bench.machine.is_drained()
    };
    assert!(refused(ErrorCode::MESSAGE_TOO_LARGE));
    assert!(refused(ErrorCode::REQUEST_TIMED_OUT), "the target need not answer a look-up for it");
}

#[test]
fn breaks_are_handed_out_until_an_anchor_that_covers_them_is_durable() {
    let mut bench = Bench::copying(100, 50);
    bench.fetch(&[Make::plain(100, 2).bytes(), marker(102, 7, true), Make::plain(103, 1).bytes()]);
    let first = Break { source_start: 100, target_start: 50 };
    let second = Break { source_start: 103, target_start: 52 };
    let sent = bench.send();
    bench.produced(sent[0].ticket, 50);
    let (anchor, breaks) = bench.machine.anchor().unwrap();
    assert_eq!((breaks, anchor.position.source_next), ([first].as_slice(), 103));
    let (taken, bytes) = (bench.machine.anchor_taken(), bench.machine.tail_bytes());
    assert!(!bench.machine.wants_anchor());
    // Another break before the outcome is known.
    let sent = bench.send();
    bench.produced(sent[0].ticket, 52);
    bench.machine.handle_anchor_failed();
    assert!(bench.machine.wants_anchor());
    assert_eq!(bench.machine.anchor().unwrap().1, [first, second]);
    bench.machine.handle_anchored(taken, bytes);
    assert_eq!(bench.machine.anchor().unwrap().1, [second]);
}

#[test]
fn a_tail_without_a_durable_anchor_pauses_at_its_bound() {
    let mut bench = Bench::copying_with(PartitionSettings { tail_bytes_max: 100, ..settings() }, 100, 50);
    bench.fetch(&row(4));
    for target in [50, 51] {
        let sent = bench.send();
        sent.iter().zip(target..).for_each(|(sent, base)| bench.produced(sent.ticket, base));
        if bench.machine.wants_anchor_now() {
            break;
        }
    }
    assert_eq!(bench.machine.state(), PartitionState::AwaitingAnchor);
    assert!(bench.send().is_empty());
    let (breaks, bytes) = (bench.machine.anchor_taken(), bench.machine.tail_bytes());
    bench.machine.handle_anchored(breaks, bytes);
    assert_ne!(bench.machine.state(), PartitionState::AwaitingAnchor);
}

#[test]
fn an_anchor_while_settling_covers_only_what_is_acknowledged() {
    let mut bench = Bench::copying(100, 50);
    bench.fetch(&row(4));
    let sent = bench.send();
    bench.produced(sent[0].ticket, 50);
    let sent = bench.send();
    bench.produced(sent[0].ticket, 51);
    bench.machine.handle_produced(bench.now, sent[1].ticket, ProduceOutcome::Unknown);
    bench.produced(sent[2].ticket, 53);
    let (anchor, _) = bench.machine.anchor().unwrap();
    assert_eq!((anchor.position.source_next, anchor.position.target_next), (102, 52));
}

#[test]
fn a_topic_that_vanishes_lets_what_is_in_flight_settle() {
    let mut bench = Bench::copying(100, 50);
    bench.fetch(&row(3));
    let sent = bench.send();
    bench.machine.handle_topics(bench.now, None, Some(topic_id(2)));
    bench.produced(sent[0].ticket, 50);
    assert_eq!(bench.machine.state(), PartitionState::Copying, "what was read before it went is still copied");
    assert_eq!(bench.machine.fetch_want(bench.now, 1 << 20), None);
    for (at, sent) in (51..).zip(bench.send()) {
        bench.produced(sent.ticket, at);
    }
    assert_eq!((bench.reason(), bench.position()), (StopReason::SourceGone, (103, 53)));
    // A broker that has just started may not know its topics yet.
    bench.now += Duration::from_secs(3600);
    bench.machine.handle_timeout(bench.now);
    assert_eq!((bench.reason(), bench.position()), (StopReason::SourceGone, (103, 53)));
    bench.machine.handle_topics(bench.now, Some(topic_id(1)), Some(topic_id(2)));
    assert_eq!(bench.machine.state(), PartitionState::Locating);
}

#[test]
fn a_batch_that_arrives_damaged_is_sent_again_and_stands_the_third_time() {
    let mut bench = Bench::copying(100, 50);
    for times in 1..=4 {
        bench.fetch(&row(2));
        let sent = bench.send();
        bench.failed(sent[0].ticket, ErrorCode::CORRUPT_MESSAGE);
        if times >= 3 {
            let reason = bench.reason();
            let code = ErrorCode::CORRUPT_MESSAGE;
            assert_eq!(reason, StopReason::Refused { offset: 100, code, message: None });
            assert!(reason.is_retried() && reason.remedy().contains("proxies"), "{}", reason.remedy());
        } else {
            assert_eq!(bench.machine.state(), PartitionState::Locating);
        }
        bench.locate(target(50), known(100));
    }
    // Another batch has its own three.
    bench.fetch(&row(2));
    let sent = bench.send();
    bench.produced(sent[0].ticket, 50);
    let sent = bench.send();
    bench.failed(sent[0].ticket, ErrorCode::CORRUPT_MESSAGE);
    assert_eq!(bench.machine.state(), PartitionState::Locating);
}

#[test]
fn what_keeps_a_partition_from_being_located_is_told_once_it_lasts() {
    let mut bench = Bench::new(settings(), spec(Some(anchor(100, 50))));
    for times in 1..=3 {
        bench.wait();
        bench.machine.locate_begun(bench.now);
        bench.machine.note_locate_trouble(false, "its leader answers NOT_LEADER_OR_FOLLOWER (6)");
        bench.machine.handle_locate_failed(bench.now);
        let told = matches!(bench.machine.state(), PartitionState::AwaitingTarget { .. });
        assert_eq!(told, times == 3, "{}", bench.machine.state());
    }
    bench.locate(target(50), known(100));
    assert_eq!(bench.machine.state(), PartitionState::Copying);
}

#[test]
fn a_partition_says_whom_it_waits_for_and_learns_how_far_it_is_behind() {
    let mut bench = Bench::copying(100, 50);
    assert!(!bench.machine.needs_target(), "there is nothing to send");
    bench.fetch(&row(1));
    assert!(bench.machine.needs_target());
    let sent = bench.send();
    assert!(bench.machine.needs_target(), "an answer is due");
    bench.machine.handle_source_seen(5000, 4000);
    assert_eq!(bench.machine.lag(), 4900);
    bench.produced(sent[0].ticket, 50);
    assert!(!bench.machine.needs_target() && !bench.machine.needs_source());
    bench.machine.delay_fetch(bench.now, "gone");
    assert!(bench.machine.needs_source());
    bench.machine.drain();
    assert!(!bench.machine.needs_source());
}
