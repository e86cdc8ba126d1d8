//! Where the copy stands: the rows of the reconcile table of `design.md` 4, first starts, topics that are others.

use std::time::Duration;

use super::kit::*;
use crate::{
    batch::{BatchHeader, sequence},
    mirror::{
        anchor::Shape,
        partition::{
            LocateAsk, PartitionSettings, PartitionState, Policies, ProduceOutcome, ProducerAnswer, StartAt,
            StopReason, TargetEnds, TargetNotEmpty,
        },
    },
    protocol::{ErrorCode, LeaderEpoch},
};

fn restarted(end: i64, producer: ProducerAnswer) -> Bench {
    let mut bench = Bench::new(settings(), spec(Some(anchor(100, 50))));
    bench.locate(target(end), producer);
    bench
}

#[test]
fn an_end_at_the_anchor_goes_on_without_reading() {
    for producer in [ProducerAnswer::Absent, ProducerAnswer::Unknown, known(100)] {
        let bench = restarted(50, producer);
        assert_eq!((bench.machine.state(), bench.position()), (PartitionState::Copying, (100, 50)));
        assert_eq!(bench.machine.fetch_want(bench.now, 1), Some((100, LeaderEpoch(3), 1 << 20)));
    }
}

#[test]
fn an_end_before_the_anchor_is_a_truncated_target() {
    assert_eq!(restarted(49, known(100)).reason(), StopReason::TargetTruncated { expected: 50, end: 49 });
}

#[test]
fn sums_that_agree_are_replayed_from_the_source() {
    let mut bench = restarted(58, known(108));
    assert_eq!(bench.machine.state(), PartitionState::Matching);
    let batches = [Make::plain(100, 5), Make::plain(105, 3), Make::plain(108, 2)].map(|make| make.bytes());
    bench.fetch(&batches);
    assert_eq!((bench.machine.state(), bench.position()), (PartitionState::Copying, (108, 58)));
    let sent = bench.send();
    assert_eq!(sent.len(), 1, "only what the target lacks, and a window of one");
    assert_eq!(header(&sent[0].head).base_sequence, 108);
}

#[test]
fn sums_across_the_wrap_of_sequences_agree() {
    let at = (1 << 31) - 3;
    let mut bench = Bench::new(settings(), spec(Some(anchor(at, 50))));
    bench.locate(target(58), known(at + 8));
    bench.answer(at, &[Make::plain(at, 8).bytes(), Make::plain(at + 8, 1).bytes()], Vec::new());
    assert_eq!((bench.machine.acked().next_sequence, bench.position()), (5, (at + 8, 58)));
    assert_eq!(header(&bench.send()[0].head).base_sequence, 5);
}

#[test]
fn a_batch_that_compaction_emptied_is_not_counted_away() {
    // X went out and X alone is on the target; then compaction took all of it. Y has as many records.
    for left in [Some(emptied(100, 5)), None] {
        let x = Make::plain(100, 5).bytes();
        let y = Make::plain(105, 5).bytes();
        let mut bench = restarted(55, known(105));
        let source: Vec<_> = left.into_iter().chain([y.clone()]).collect();
        bench.fetch(&source);
        assert_eq!(bench.machine.state(), PartitionState::ReadingTail, "counting cannot tell X from Y");
        bench.tail(vec![held(&x, 50, 100)]);
        bench.fetch(&source);
        assert_eq!(bench.machine.state(), PartitionState::ReadingTail, "nor can headers, once there is a hole");
        bench.tail_records(vec![tail_batch(held(&x, 50, 100), &x)]);
        bench.fetch(&source);
        assert_eq!((bench.machine.state(), bench.position()), (PartitionState::Copying, (105, 55)));
        assert_eq!(bench.send().len(), 1, "Y is still to be sent");
    }
}

#[test]
fn a_count_that_ends_inside_a_batch_is_settled_by_headers() {
    let mut bench = restarted(53, known(103));
    bench.fetch(&[Make::plain(100, 5).bytes()]);
    assert_eq!(bench.machine.state(), PartitionState::ReadingTail);
    bench.tail(vec![held(&Make::plain(100, 3).bytes(), 50, 100)]);
    bench.fetch(&[Make::plain(100, 5).bytes()]);
    assert_eq!((bench.machine.state(), bench.position()), (PartitionState::Copying, (103, 53)));
    let sent = bench.send();
    assert_eq!(numbers(&sent[0].head, &sent[0].batch), [103, 104]);
}

#[test]
fn an_absent_producer_is_matched_by_headers() {
    let batches = [Make::plain(100, 5).bytes(), Make::plain(105, 3).bytes(), Make::plain(108, 2).bytes()];
    let mut bench = restarted(58, ProducerAnswer::Absent);
    assert_eq!(bench.machine.locate_want(bench.now), Some(LocateAsk::Tail { from: 50, to: 58, records: false }));
    bench.tail(vec![held(&batches[0], 50, 100), held(&batches[1], 55, 105)]);
    bench.fetch(&batches);
    assert_eq!((bench.machine.state(), bench.position()), (PartitionState::Copying, (108, 58)));
}

#[test]
fn another_identity_in_the_tail_is_a_foreign_write() {
    let ours = held(&Make::plain(100, 5).bytes(), 50, 100);
    for theirs in [
        BatchHeader { producer_id: -1, producer_epoch: -1, base_offset: 55, ..ours },
        BatchHeader { producer_epoch: 1, base_offset: 55, ..ours },
    ] {
        let mut bench = restarted(60, known(105));
        bench.tail(vec![ours, theirs]);
        assert_eq!(bench.reason(), StopReason::ForeignWrite { from: 55, to: 60, records: 5 });
    }
}

#[test]
fn a_tail_that_is_gone_leaves_the_position_unknown() {
    let mut bench = Bench::new(settings(), spec(Some(anchor(100, 50))));
    bench.locate(TargetEnds { start: 60, high_watermark: 60, end: 60 }, ProducerAnswer::Absent);
    assert!(matches!(bench.reason(), StopReason::PositionUnknown { .. }));
}

#[test]
fn a_tail_that_vanishes_while_it_is_read_is_noticed() {
    let mut bench = restarted(60, ProducerAnswer::Absent);
    bench.machine.locate_begun(bench.now);
    bench.machine.handle_locate_failed(bench.now);
    bench.locate(TargetEnds { start: 60, high_watermark: 60, end: 60 }, ProducerAnswer::Absent);
    assert!(matches!(bench.reason(), StopReason::PositionUnknown { .. }));
}

#[test]
fn a_tail_batch_that_straddles_the_anchor_leaves_the_position_unknown() {
    let mut bench = restarted(53, ProducerAnswer::Absent);
    bench.tail(vec![held(&Make::plain(100, 5).bytes(), 48, 100)]);
    assert!(matches!(bench.reason(), StopReason::PositionUnknown { .. }));
}

#[test]
fn a_stored_batch_with_other_bytes_is_not_ours() {
    let ours = Make::plain(100, 5);
    // Same count, identity and sequence; once with the same length, once with another.
    for other in [Make { numbers: vec![9; 5], ..ours.clone() }, Make { pad: 3, ..ours.clone() }] {
        let mut bench = restarted(55, ProducerAnswer::Absent);
        bench.tail(vec![held(&other.bytes(), 50, 100)]);
        bench.fetch(&[ours.bytes()]);
        assert!(matches!(bench.reason(), StopReason::PositionUnknown { .. }));
    }
}

/// As the target stamps a batch in place under LogAppendTime.
fn stamped(make: &Make, base_offset: i64) -> BatchHeader {
    let bytes = patched(&make.bytes(), 21, &LOG_APPEND_TIME.to_be_bytes());
    let bytes = patched(&bytes, 35, &WALL_MS.to_be_bytes());
    let bytes = patched(&bytes, 43, &ID.producer_id.to_be_bytes());
    let bytes = patched(&bytes, 51, &[0, 0]);
    let bytes = patched(&bytes, 53, &sequence::of_offset(make.base).to_be_bytes());
    BatchHeader { base_offset, ..header(&bytes) }
}

#[test]
fn a_target_with_append_time_or_another_codec_matches() {
    let make = Make::plain(100, 5);
    let recompressed = BatchHeader { attributes: 4, batch_length: 90, crc: 1, ..held(&make.bytes(), 50, 100) };
    for stored in [stamped(&make, 50), recompressed] {
        let mut bench = restarted(55, ProducerAnswer::Absent);
        bench.tail(vec![stored]);
        bench.fetch(&[make.bytes()]);
        assert_eq!((bench.machine.state(), bench.position()), (PartitionState::Copying, (105, 55)));
    }
}

#[test]
fn a_batch_stamped_with_append_time_must_have_our_payload_all_the_same() {
    let make = Make::plain(100, 5);
    let mut bench = restarted(55, ProducerAnswer::Absent);
    bench.tail(vec![stamped(&Make { numbers: vec![9; 5], ..make.clone() }, 50)]);
    bench.fetch(&[make.bytes()]);
    assert!(matches!(bench.reason(), StopReason::PositionUnknown { .. }));
}

#[test]
fn a_recompressed_batch_of_another_time_is_not_ours() {
    let make = Make::plain(100, 5);
    let other = held(&make.clone().at(YOUNG - 5).bytes(), 50, 100);
    let mut bench = restarted(55, ProducerAnswer::Absent);
    bench.tail(vec![BatchHeader { attributes: 4, ..other }]);
    bench.fetch(&[make.bytes()]);
    assert!(matches!(bench.reason(), StopReason::PositionUnknown { .. }));
}

/// Three batches in flight of which no outcome is known.
fn undecided() -> (Bench, Vec<BatchHeader>) {
    let mut bench = Bench::copying(100, 50);
    let batches: Vec<_> = (0..5).map(|index| Make::plain(100 + 5 * index, 5).bytes()).collect();
    bench.fetch(&batches);
    let first = bench.send().pop().unwrap();
    bench.produced(first.ticket, 50);
    let sent = bench.send();
    assert_eq!(sent.len(), 4);
    let headers = sent.iter().zip(0..).map(|(sent, index)| stored(sent, 55 + 5 * index)).collect();
    bench.machine.handle_lane_lost(bench.now);
    assert!(bench.send().is_empty() && bench.machine.state() == PartitionState::Locating);
    (bench, headers)
}

#[test]
fn a_prefix_of_what_was_in_flight_is_adopted_by_sums() {
    let (mut bench, _) = undecided();
    bench.locate(target(65), known(115));
    assert_eq!((bench.machine.state(), bench.position()), (PartitionState::Copying, (115, 65)));
    assert_eq!(bench.machine.progress().records, 15);
}

#[test]
fn a_prefix_of_what_was_in_flight_is_adopted_by_headers() {
    let (mut bench, headers) = undecided();
    bench.locate(target(65), ProducerAnswer::Unknown);
    bench.tail(headers[..2].to_vec());
    assert_eq!((bench.machine.state(), bench.position()), (PartitionState::Copying, (115, 65)));
}

#[test]
fn more_than_was_in_flight_is_matched_with_the_source() {
    // An earlier incarnation's requests landed late, beyond what this one had sent.
    for producer in [known(130), ProducerAnswer::Unknown] {
        let mut bench = Bench::copying(100, 50);
        let batches: Vec<_> = (0..6).map(|index| Make::plain(100 + 5 * index, 5).bytes()).collect();
        bench.fetch(&batches);
        assert_eq!(bench.send().len(), 1);
        bench.machine.handle_lane_lost(bench.now);
        bench.locate(target(80), producer);
        if producer == ProducerAnswer::Unknown {
            bench.tail((0..6).map(|index| held(&batches[index as usize], 50 + 5 * index, 100 + 5 * index)).collect());
        }
        bench.fetch(&batches);
        assert_eq!((bench.machine.state(), bench.position()), (PartitionState::Copying, (130, 80)));
    }
}

#[test]
fn an_end_that_is_not_replicated_is_waited_for() {
    let mut bench = Bench::new(settings(), spec(Some(anchor(100, 50))));
    bench.locate(TargetEnds { start: 0, high_watermark: 50, end: 55 }, known(105));
    assert_eq!(bench.machine.state(), PartitionState::AwaitingHighWatermark);
    assert_eq!(bench.machine.locate_want(bench.now), None, "not at once again");
    bench.locate(target(50), known(100));
    assert_eq!(bench.machine.state(), PartitionState::Copying);
}

#[test]
fn a_source_that_has_nothing_to_match_stops_only_by_a_fresh_word_of_its_end() {
    let mut bench = Bench::new(settings(), spec(Some(anchor(1000, 50))));
    bench.locate(target(55), ProducerAnswer::Absent);
    bench.tail(vec![held(&Make::plain(1000, 5).bytes(), 50, 1000)]);
    assert_eq!(bench.machine.fetch_want(bench.now, 1).map(|want| want.0), Some(1000));
    bench.fetch(&[]);
    bench.now += Duration::from_secs(31);
    bench.machine.handle_timeout(bench.now);
    assert_eq!(bench.machine.state(), PartitionState::Matching, "the source may only be unreachable");
    assert_eq!(bench.machine.locate_want(bench.now), Some(LocateAsk::Source));
    bench.machine.locate_begun(bench.now);
    let ends = source(0, 1000);
    bench.machine.handle_source_ends(bench.now, ends);
    assert!(matches!(bench.reason(), StopReason::PositionUnknown { .. }));
}

#[test]
fn a_tail_is_matched_under_the_settings_of_its_anchor() {
    // What was written uncommitted holds an aborted batch; from here on only committed data goes.
    let mut uncommitted = anchor(100, 50);
    uncommitted.shape = Shape { read_committed: false, sealed_append_time: false };
    let aborted = Make::plain(100, 5).transactional(7).bytes();
    let also_aborted = Make::plain(105, 5).transactional(7).bytes();
    let list = vec![crate::protocol::AbortedTransaction { producer_id: 7, first_offset: 100 }];
    let mut bench = Bench::new(settings(), spec(Some(uncommitted)));
    bench.locate(target(55), known(105));
    bench.tail(vec![held(&Make::plain(100, 5).bytes(), 50, 100)]);
    bench.fetch_aborted(&[aborted, also_aborted.clone()], list.clone());
    assert_eq!(bench.position(), (105, 55));
    bench.fetch_aborted(&[also_aborted, marker(110, 7, false), Make::plain(111, 1).bytes()], list);
    let sent = bench.send();
    assert_eq!((sent.len(), header(&sent[0].batch).base_offset), (1, 111));
}

fn first_start(settings: PartitionSettings, appeared_later: bool, end: i64, producer: ProducerAnswer) -> Bench {
    let mut spec = spec(None);
    spec.appeared_later = appeared_later;
    let mut bench = Bench::new(settings, spec);
    bench.locate(target(end), producer);
    bench
}

#[test]
fn a_first_start_is_anchored_before_anything_is_sent() {
    let mut bench = first_start(settings(), false, 0, ProducerAnswer::Absent);
    assert_eq!((bench.machine.state(), bench.position()), (PartitionState::Anchoring, (0, 0)));
    bench.fetch(&[Make::plain(0, 3).bytes()]);
    assert!(bench.machine.wants_anchor_now() && bench.send().is_empty());
    bench.machine.anchor_taken();
    bench.machine.handle_anchor_failed();
    assert!(bench.send().is_empty());
    bench.machine.handle_anchored(0, 0);
    assert_eq!(bench.send().len(), 1);
}

#[test]
fn a_first_start_on_a_target_that_is_not_empty_stops_or_appends() {
    let stopped = first_start(settings(), false, 9, ProducerAnswer::Absent);
    assert_eq!(stopped.reason(), StopReason::TargetNotEmpty { start: 0, end: 9 });
    let policies = Policies { target_not_empty: TargetNotEmpty::Append, ..settings().policies };
    let append = PartitionSettings { policies, ..settings() };
    let bench = first_start(append, false, 9, ProducerAnswer::Absent);
    assert_eq!(bench.position(), (0, 9));
}

#[test]
fn a_first_start_over_an_earlier_life_takes_the_next_epoch_from_sequence_0() {
    for (found, id, epoch) in [(4, ID.producer_id, 5), (i16::MAX, ID.producer_id ^ 1, 0)] {
        let latest = PartitionSettings { start: StartAt::Latest, ..settings() };
        let producer = ProducerAnswer::Known { producer_epoch: found, last_sequence: 77 };
        let bench = first_start(latest, false, 0, producer);
        let (anchor, _) = bench.machine.anchor().unwrap();
        assert_eq!((anchor.identity.producer_id, anchor.identity.producer_epoch), (id, epoch));
        assert_eq!((anchor.position.source_next, anchor.position.next_sequence), (1000, 0));
    }
}

#[test]
fn latest_begins_at_the_end_unless_the_topic_appeared_later() {
    let latest = || PartitionSettings { start: StartAt::Latest, ..settings() };
    assert_eq!(first_start(latest(), false, 0, ProducerAnswer::Absent).position(), (1000, 0));
    assert_eq!(first_start(latest(), true, 0, ProducerAnswer::Absent).position(), (0, 0));
}

#[test]
fn topics_that_were_created_anew_stop_the_partition() {
    let fresh = || Bench::copying(100, 50);
    let mut bench = fresh();
    bench.machine.handle_topics(bench.now, Some(topic_id(9)), Some(topic_id(2)));
    assert!(matches!(bench.reason(), StopReason::SourceRecreated { .. }));
    let mut bench = fresh();
    bench.machine.handle_topics(bench.now, Some(topic_id(1)), Some(topic_id(9)));
    assert!(matches!(bench.reason(), StopReason::TargetRecreated { .. }));
    let mut bench = fresh();
    bench.machine.handle_topics(bench.now, None, Some(topic_id(2)));
    assert_eq!(bench.reason(), StopReason::SourceGone);
    let mut bench = fresh();
    bench.machine.handle_topics(bench.now, Some(topic_id(0)), None);
    assert_eq!(bench.reason(), StopReason::TargetGone);
    let mut bench = fresh();
    bench.machine.handle_topics(bench.now, Some(topic_id(0)), Some(topic_id(0)));
    assert_eq!(bench.machine.state(), PartitionState::Copying, "no id proves nothing");
    let mut other = anchor(100, 50);
    other.target_topic_id = topic_id(8);
    let bench = Bench::new(settings(), spec(Some(other)));
    assert!(matches!(bench.reason(), StopReason::TargetRecreated { .. }));
    let mut other = anchor(100, 50);
    other.source_topic_id = topic_id(8);
    let bench = Bench::new(settings(), spec(Some(other)));
    assert!(matches!(bench.reason(), StopReason::SourceRecreated { .. }));
}

#[test]
fn a_moved_target_leader_is_asked_before_anything_is_sent() {
    let mut bench = Bench::copying(100, 50);
    bench.fetch(&[Make::plain(100, 5).bytes(), Make::plain(105, 5).bytes()]);
    let sent = bench.send();
    bench.machine.handle_target_leader_changed(bench.now);
    assert_eq!(bench.machine.state(), PartitionState::Settling);
    bench.produced(sent[0].ticket, 50);
    assert_eq!(bench.position(), (105, 55), "a good answer counts while settling");
    assert!(bench.send().is_empty());
    bench.locate(target(55), known(105));
    assert_eq!(bench.machine.state(), PartitionState::Copying);
}

#[test]
fn an_answer_after_the_target_was_asked_starts_no_second_look_up() {
    let (mut bench, _) = undecided();
    bench.machine.locate_begun(bench.now);
    bench.machine.handle_lane_lost(bench.now);
    bench.machine.handle_produced(bench.now, crate::mirror::partition::Ticket(1), ProduceOutcome::Unknown);
    assert_eq!(bench.machine.locate_want(bench.now + Duration::from_secs(60)), None);
    bench.failed(crate::mirror::partition::Ticket(2), ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
    assert_eq!(bench.machine.state(), PartitionState::Locating);
}

#[test]
fn old_batches_wait_until_nothing_sent_earlier_can_arrive() {
    // (G) The former incarnation's batch is on its way; the target forgets the producer of old records at once.
    let mut bench = restarted(50, ProducerAnswer::Absent);
    let old = Make::plain(100, 5).at(OLD);
    bench.fetch(&[old.bytes()]);
    assert!(bench.send().is_empty());
    assert_eq!(bench.machine.state(), PartitionState::AwaitingStragglers);
    let began = bench.now;
    bench.wait();
    assert_eq!(bench.now.duration_since(began), Duration::from_secs(16), "what the system gives up, and the way");
    // It came meanwhile: it is found, not sent again.
    bench.locate(target(55), ProducerAnswer::Absent);
    bench.tail(vec![held(&old.bytes(), 50, 100)]);
    bench.fetch(&[old.bytes(), Make::plain(105, 1).at(OLD).bytes()]);
    let sent = bench.send();
    assert_eq!(sent.iter().map(|batch| header(&batch.head).base_sequence).collect::<Vec<_>>(), vec![105]);
    // Nothing is waited for once the outcome of everything is known.
    bench.produced(sent[0].ticket, 55);
    bench.fetch(&[Make::plain(106, 1).at(OLD).bytes()]);
    assert_eq!(bench.send().len(), 1);
}

#[test]
fn young_batches_wait_for_nothing() {
    let mut bench = restarted(50, ProducerAnswer::Absent);
    bench.fetch(&[Make::plain(100, 5).bytes()]);
    assert_eq!(bench.send().len(), 1);
}

#[test]
fn the_answer_of_a_broker_that_just_woke_up_is_not_the_last_word() {
    let mut bench = Bench::copying(100, 50);
    bench.fetch(&[Make::plain(100, 5).at(OLD).bytes()]);
    let sent = bench.send();
    assert_eq!(sent.len(), 1, "the wait after the start is over");
    bench.machine.handle_lane_lost(bench.now);
    // It hung for a minute and answers now, with the batch still unread in its other socket.
    bench.now += Duration::from_secs(60);
    bench.locate(target(50), ProducerAnswer::Absent);
    bench.fetch(&[Make::plain(100, 5).at(OLD).bytes()]);
    assert!(bench.send().is_empty());
    let answered = bench.now;
    bench.wait();
    assert_eq!(bench.now.duration_since(answered), Duration::from_secs(2));
    bench.locate(target(50), ProducerAnswer::Absent);
    bench.fetch(&[Make::plain(100, 5).at(OLD).bytes()]);
    assert_eq!(bench.send().len(), 1);
}
