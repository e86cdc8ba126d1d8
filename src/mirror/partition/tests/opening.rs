//! The open path: what goes out for each kind of batch, what stands, and how a restart finds it again.

use super::kit::*;
use crate::{
    batch::BatchHeader,
    mirror::partition::{Break, OpenReason, Outbound, PartitionState, ProducerAnswer, Share, StopReason, TailBatch},
    protocol::ErrorCode,
};

const LIMIT: usize = 500;

/// A target that takes 500 bytes, copied up to source offset 100 and target offset 50.
fn limited() -> Bench {
    let mut spec = spec(Some(anchor(100, 50)));
    spec.target_batch_bytes_max = Some(LIMIT);
    let mut bench = Bench::new(settings(), spec);
    bench.locate(target(50), known(100));
    bench.end_limbo();
    bench
}

fn sent_numbers(sent: &Outbound) -> Vec<u64> {
    numbers(&sent.head, &sent.batch)
}

/// Sends and acknowledges everything; what went out.
fn drain(bench: &mut Bench, from: i64) -> Vec<Vec<u64>> {
    let mut all = Vec::new();
    let mut next = from;
    loop {
        let sent = bench.send();
        if sent.is_empty() {
            return all;
        }
        for sent in sent {
            let numbers = sent_numbers(&sent);
            bench.produced(sent.ticket, next);
            next += numbers.len() as i64;
            all.push(numbers);
        }
    }
}

/// The header of a batch of ours that a former incarnation left on the target.
fn left(sent: &Outbound, base_offset: i64) -> BatchHeader {
    stored(sent, base_offset)
}

fn one_share(bench: &Bench, reason: OpenReason) -> u64 {
    bench.machine.progress().opened.of(reason).batches
}

#[test]
fn a_thinned_batch_goes_out_renumbered_with_a_break_at_each_gap() {
    let mut bench = limited();
    bench.fetch(&[thinned(&Make::plain(100, 8).bytes(), |at| [1, 2, 5, 7].contains(&at))]);
    assert_eq!(drain(&mut bench, 50), [[101, 102, 105, 107]]);
    assert_eq!(bench.position(), (108, 54));
    let at = |source_start, target_start| Break { source_start, target_start };
    assert_eq!(bench.machine.anchor().unwrap().1, [at(101, 50), at(105, 52), at(107, 53)]);
    assert_eq!(one_share(&bench, OpenReason::Thinned), 1);
}

#[test]
fn a_batch_above_the_limit_is_split_and_the_position_may_stand_inside() {
    let large = Make { pad: 130, ..Make::plain(100, 7) }.bytes();
    let mut bench = limited();
    bench.fetch(&[large.clone(), Make::plain(107, 1).bytes()]);
    let first = bench.send();
    assert_eq!(sent_numbers(&first[0]), [100, 101]);
    assert!(first[0].batch.len() <= LIMIT);
    bench.produced(first[0].ticket, 50);
    assert_eq!(bench.position(), (102, 52));
    let second = bench.send();
    assert_eq!(header(&second[0].head).base_sequence, 102);
    // A failure in the middle: the rest of the batch is cut where it was cut before.
    bench.failed(second[0].ticket, ErrorCode::NOT_ENOUGH_REPLICAS);
    for sent in &second[1..] {
        bench.failed(sent.ticket, ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
    }
    bench.locate(target(52), known(102));
    bench.end_limbo();
    bench.fetch(&[large, Make::plain(107, 1).bytes()]);
    let again = bench.send();
    assert_eq!((again[0].head, &again[0].batch), (second[0].head, &second[0].batch));
    bench.produced(again[0].ticket, 52);
    assert_eq!(drain(&mut bench, 54), [vec![104, 105], vec![106], vec![107]]);
    assert_eq!(bench.position(), (108, 58));
}

#[test]
fn a_record_above_the_limit_stands_behind_what_comes_before_it_and_is_tried_again() {
    let large = Make { pad: 600, ..Make::plain(101, 1) }.bytes();
    let mut bench = limited();
    bench.fetch(&[Make::plain(100, 1).bytes(), large.clone()]);
    assert_eq!(bench.machine.state(), PartitionState::Copying, "what comes before is still copied");
    assert_eq!(drain(&mut bench, 50), [[100]]);
    let bytes = large.len();
    assert_eq!(bench.reason(), StopReason::RecordTooLarge { offset: 101, bytes, limit: Some(LIMIT) });
    assert!(bench.reason().remedy().contains(&bytes.to_string()));
    // The limit may have been raised: the target says.
    bench.locate(target(51), known(101));
    bench.end_limbo();
    bench.fetch(std::slice::from_ref(&large));
    let sent = bench.send();
    bench.failed(sent[0].ticket, ErrorCode::MESSAGE_TOO_LARGE);
    assert_eq!(bench.reason(), StopReason::RecordTooLarge { offset: 101, bytes, limit: Some(LIMIT) });
    bench.locate(target(51), known(101));
    bench.end_limbo();
    bench.fetch(&[large]);
    assert_eq!(drain(&mut bench, 51), [[101]]);
}

#[test]
fn a_limit_that_nobody_knew_is_learnt_from_refusals() {
    let mut bench = Bench::copying(100, 50);
    let large = Make { pad: 130, ..Make::plain(100, 7) }.bytes();
    for _ in 0..2 {
        bench.fetch(std::slice::from_ref(&large));
        let sent = bench.send();
        assert!(sent[0].batch.len() > LIMIT);
        bench.failed(sent[0].ticket, ErrorCode::MESSAGE_TOO_LARGE);
        bench.locate(target(50), known(100));
        bench.end_limbo();
    }
    bench.fetch(&[large]);
    assert_eq!(drain(&mut bench, 50).concat(), (100..107).collect::<Vec<u64>>());
    bench.machine.handle_limit(Some(10_000));
    let plain = Make { pad: 130, ..Make::plain(107, 7) }.bytes();
    bench.fetch(std::slice::from_ref(&plain));
    assert_eq!(drain(&mut bench, 57).len(), 1, "sealed again once the limit is known");
}

#[test]
fn a_batch_that_begins_before_the_position_gives_what_is_left_of_it() {
    let mut bench = Bench::copying(102, 50);
    bench.fetch(&[Make::plain(100, 4).bytes()]);
    assert_eq!(drain(&mut bench, 50), [[102, 103]]);
    assert_eq!(one_share(&bench, OpenReason::StartsBefore), 1);
}

#[test]
fn a_broker_s_time_is_what_the_records_show() {
    let stamped = patched(&Make::plain(100, 2).at(OLD).bytes(), 21, &LOG_APPEND_TIME.to_be_bytes());
    let stamped = patched(&stamped, 35, &YOUNG.to_be_bytes());
    let mut bench = limited();
    bench.fetch(&[stamped]);
    let sent = bench.send();
    let head = header(&sent[0].head);
    assert_eq!((head.base_timestamp, head.max_timestamp, head.attributes), (YOUNG, YOUNG, 0));
    bench.produced(sent[0].ticket, 50);
    assert_eq!(one_share(&bench, OpenReason::LogAppendTime), 1);
}

#[test]
fn old_messages_go_together_and_their_gaps_are_breaks() {
    let mut bench = limited();
    bench.fetch(&[message(100, 5), message(101, 6), message(105, 7), Make::plain(106, 2).bytes(), message(108, 8)]);
    assert_eq!(drain(&mut bench, 50), [vec![100, 101, 105], vec![106, 107], vec![108]]);
    assert_eq!(bench.position(), (109, 56));
    assert_eq!(one_share(&bench, OpenReason::OldFormat), 2);
    assert_eq!(bench.machine.progress().opened.total().batches, 2);
}

#[test]
fn what_cannot_be_opened_stands_behind_what_comes_before() {
    let plain = Make::plain(101, 4);
    // Its payload has one record more than the header says; a codec nobody knows.
    let counted = patched(&plain.bytes(), 57, &3_i32.to_be_bytes());
    let unknown = patched(&plain.bytes(), 21, &5_i16.to_be_bytes());
    // A record of format 1 whose value is longer than the entry.
    let mut cut = message(101, 5).to_vec();
    cut[33] = 200;
    let crc = crc32fast::hash(&cut[16..]);
    cut[12..16].copy_from_slice(&crc.to_be_bytes());
    let (before, offset) = (message(100, 5), 101);
    let mut bench = limited();
    bench.fetch(&[before, cut.into()]);
    assert_eq!(drain(&mut bench, 50), [[100]]);
    assert!(matches!(bench.reason(), StopReason::CannotOpen { offset: at, .. } if at == offset));
    for batch in [counted, unknown] {
        let mut bench = limited();
        bench.fetch(&[Make::plain(100, 1).bytes(), batch]);
        assert_eq!(bench.machine.state(), PartitionState::Copying);
        assert_eq!(bench.machine.fetch_want(bench.now, 1), None);
        assert_eq!(drain(&mut bench, 50), [[100]]);
        assert!(matches!(bench.reason(), StopReason::CannotOpen { offset: 101, too_large: false, .. }));
        assert_eq!(bench.position(), (101, 51));
    }
}

#[test]
fn a_damaged_old_message_is_fetched_again_a_few_times() {
    let mut damaged = message(101, 5).to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    let mut bench = limited();
    bench.fetch(&[message(100, 5), damaged.clone().into()]);
    assert_eq!(drain(&mut bench, 50), [[100]], "what came before it is good");
    for _ in 0..2 {
        bench.wait();
        bench.fetch(&[damaged.clone().into()]);
    }
    assert!(matches!(bench.reason(), StopReason::SourceCorrupt { offset: 101, .. }));
}

#[test]
fn an_emptied_batch_is_passed_and_counted() {
    let mut bench = limited();
    bench.fetch(&[emptied(100, 5), Make::plain(105, 1).bytes()]);
    assert_eq!(drain(&mut bench, 50), [[105]]);
    assert_eq!(bench.machine.progress().empty_batches, 1);
    assert_eq!(bench.machine.progress().opened.total(), Share::default());
}

/// What a former incarnation sent for `source`, and a machine that begins at its anchor with a target that holds it.
fn found_again(source: &[bytes::Bytes], limit: Option<usize>) -> (Vec<Outbound>, Bench) {
    let mut former = limited();
    former.fetch(source);
    let mut sent: Vec<Outbound> = Vec::new();
    let mut next = 50;
    loop {
        let some = former.send();
        if some.is_empty() {
            break;
        }
        for sent in &some {
            former.produced(sent.ticket, next);
            next += sent_numbers(sent).len() as i64;
        }
        sent.extend(some);
    }
    let mut spec = spec(Some(anchor(100, 50)));
    spec.target_batch_bytes_max = limit;
    let mut bench = Bench::new(settings(), spec);
    bench.locate(target(next), ProducerAnswer::Absent);
    bench.end_limbo();
    (sent, bench)
}

fn headers_of(sent: &[Outbound]) -> Vec<BatchHeader> {
    let mut next = 50;
    let mut headers = Vec::new();
    for sent in sent {
        headers.push(left(sent, next));
        next += sent_numbers(sent).len() as i64;
    }
    headers
}

#[test]
fn opened_batches_are_found_again_whatever_the_limit_is_now() {
    let source = [
        thinned(&Make::plain(100, 8).bytes(), |at| at % 3 == 1),
        Make { pad: 130, ..Make::plain(108, 7) }.bytes(),
        message(115, 5),
        message(116, 6),
        Make::plain(117, 1).bytes(),
    ];
    for limit in [Some(LIMIT), None, Some(250), Some(5000)] {
        let (sent, mut bench) = found_again(&source, limit);
        bench.tail(headers_of(&sent));
        bench.fetch(&source);
        assert_eq!((bench.machine.state(), bench.position()), (PartitionState::Copying, (118, 63)), "{limit:?}");
        // A crash after half of the large batch: the rest is cut by the limit of now.
        let (sent, mut bench) = found_again(&source, limit);
        let half = headers_of(&sent[..3]);
        let end = half[2].next_offset();
        bench.machine.locate_begun(bench.now);
        bench.machine.handle_locate_failed(bench.now);
        bench.locate(target(end), ProducerAnswer::Absent);
        bench.end_limbo();
        bench.tail(half);
        bench.fetch(&source);
        assert_eq!((bench.machine.state(), bench.position()), (PartitionState::Copying, (112, end)), "{limit:?}");
        let rest = drain(&mut bench, end).concat();
        assert_eq!(rest, (112..=117).collect::<Vec<u64>>());
    }
}

#[test]
fn old_messages_of_which_an_answer_holds_too_few_are_fetched_again_with_more_room() {
    let source: Vec<bytes::Bytes> = (100..106).map(|at| message(at, at)).collect();
    let (sent, mut bench) = found_again(&source, None);
    bench.tail(headers_of(&sent));
    bench.fetch(&source[..2]);
    let want = bench.machine.fetch_want(bench.now, 1 << 20).unwrap();
    assert_eq!((want.0, want.2), (100, 2 << 20));
    bench.fetch(&source);
    assert_eq!((bench.machine.state(), bench.position()), (PartitionState::Copying, (106, 56)));
}

#[test]
fn a_batch_in_which_the_cleaner_only_noted_a_horizon_is_found_by_its_records() {
    let before = [Make::plain(100, 3), Make::plain(103, 2)];
    let whole: Vec<_> = before.iter().map(Make::bytes).collect();
    let (sent, mut bench) = found_again(&whole, None);
    let headers = headers_of(&sent);
    bench.tail(headers.clone());
    let since = [with_horizon(&before[0], YOUNG + 86_400_000), whole[1].clone()];
    bench.fetch(&since);
    bench.tail_records(headers.into_iter().zip(&whole).map(|(header, bytes)| tail_batch(header, bytes)).collect());
    bench.fetch(&since);
    assert_eq!((bench.machine.state(), bench.position()), (PartitionState::Copying, (105, 55)));
}

#[test]
fn compaction_since_the_crash_is_told_from_another_history() {
    let whole = [Make::plain(100, 4).bytes(), Make::plain(104, 4).bytes(), Make::plain(108, 1).bytes()];
    let (sent, _) = found_again(&whole, None);
    let tail = || {
        let headers = headers_of(&sent);
        headers.into_iter().zip(&whole).map(|(header, bytes)| tail_batch(header, bytes)).collect::<Vec<_>>()
    };
    let keep = |bytes: &bytes::Bytes, keep: &[usize]| thinned(bytes, |at| keep.contains(&at));
    let begin = || {
        let (sent, mut bench) = found_again(&whole, None);
        bench.tail(headers_of(&sent));
        bench
    };
    // Some of both batches, all of the first, all but what comes after them.
    for source in [
        vec![keep(&whole[0], &[1, 3]), keep(&whole[1], &[0]), whole[2].clone(), Make::plain(109, 1).bytes()],
        vec![emptied(100, 4), keep(&whole[1], &[3]), whole[2].clone(), Make::plain(109, 1).bytes()],
        vec![Make::plain(109, 1).bytes()],
    ] {
        let mut bench = begin();
        bench.fetch(&source);
        bench.tail_records(tail());
        bench.fetch(&source);
        assert_eq!(bench.machine.state(), PartitionState::Copying);
        assert_eq!(bench.position(), (109, 59));
        let sent = bench.send();
        assert_eq!((sent_numbers(&sent[0]), header(&sent[0].head).base_sequence), (vec![109], 109));
    }
    // A batch that is there twice is no record that compaction took, whatever the holes.
    let mut bench = begin();
    bench.fetch(&[keep(&whole[0], &[1, 3]), whole[2].clone()]);
    let mut twice = tail();
    twice[2] = TailBatch { header: BatchHeader { base_offset: 58, ..twice[0].header }, ..twice[0].clone() };
    twice[2].header.last_offset_delta = 0;
    bench.tail_records(twice);
    assert!(matches!(bench.reason(), StopReason::PositionUnknown { .. }), "{}", bench.reason());
    // A hole that is too small for what the target has more.
    let mut bench = begin();
    let source = [keep(&whole[0], &[0, 1, 2]), Make::plain(200, 1).bytes()];
    bench.fetch(&source);
    bench.tail_records(tail());
    let other = [keep(&whole[0], &[0, 1, 2]), Make { numbers: vec![77], ..Make::plain(104, 1) }.bytes()];
    bench.fetch(&other);
    assert!(matches!(bench.reason(), StopReason::PositionUnknown { .. }), "{}", bench.reason());
}
