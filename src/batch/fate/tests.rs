//! The abort filter: the edge cases that batch-forwarding 4.5 names, and a model that knows the truth.

use bytes::Bytes;

use super::*;
use crate::batch::vectors;

const DATA: i16 = 0;
const TRANSACTIONAL: i16 = 0x10;

fn data(producer_id: i64, base_offset: i64, count: i32, attributes: i16) -> Batch {
    let bytes = vectors::hex(vectors::EXAMPLE_1_OLD);
    let header = BatchHeader {
        base_offset,
        last_offset_delta: count - 1,
        records_count: count,
        producer_id,
        attributes,
        ..BatchHeader::parse(&bytes).unwrap()
    };
    Batch { header, bytes }
}

fn marker(text: &str, producer_id: i64, base_offset: i64) -> Batch {
    let bytes = vectors::hex(text);
    let header = BatchHeader { base_offset, producer_id, ..BatchHeader::parse(&bytes).unwrap() };
    Batch { header, bytes }
}

fn abort(producer_id: i64, base_offset: i64) -> Batch {
    marker(vectors::ABORT, producer_id, base_offset)
}

fn commit(producer_id: i64, base_offset: i64) -> Batch {
    marker(vectors::COMMIT, producer_id, base_offset)
}

fn aborted(producer_id: i64, first_offset: i64) -> AbortedTransaction {
    AbortedTransaction { producer_id, first_offset }
}

fn judge_all(list: Vec<AbortedTransaction>, batches: &[Batch]) -> Vec<Fate> {
    let mut filter = AbortFilter::new(list);
    batches.iter().map(|batch| filter.judge(batch)).collect()
}

#[test]
fn without_a_list_everything_but_markers_is_data() {
    let batches = [data(-1, 0, 2, DATA), data(7, 2, 2, TRANSACTIONAL), abort(7, 4), commit(7, 5)];
    assert_eq!(judge_all(Vec::new(), &batches), [Fate::Data, Fate::Data, Fate::Control, Fate::Control]);
}

#[test]
fn an_aborted_transaction_ends_at_its_marker() {
    let batches = [
        data(7, 0, 10, TRANSACTIONAL),
        data(8, 10, 10, TRANSACTIONAL),
        data(7, 20, 10, TRANSACTIONAL),
        abort(7, 30),
        data(7, 31, 10, TRANSACTIONAL),
        commit(7, 41),
        commit(8, 42),
    ];
    use Fate::{Aborted, Control, Data};
    assert_eq!(judge_all(vec![aborted(7, 0)], &batches), [Aborted, Data, Aborted, Control, Data, Control, Control]);
}

#[test]
fn a_producer_can_abort_twice_in_a_row_and_the_list_has_no_order() {
    let batches = [
        data(7, 0, 1, TRANSACTIONAL),
        abort(7, 1),
        data(7, 2, 1, TRANSACTIONAL),
        abort(7, 3),
        data(7, 4, 1, TRANSACTIONAL),
    ];
    use Fate::{Aborted, Control, Data};
    for list in [vec![aborted(7, 2), aborted(7, 0)], vec![aborted(7, 0), aborted(7, 2)]] {
        assert_eq!(judge_all(list, &batches), [Aborted, Control, Aborted, Control, Data]);
    }
}

#[test]
fn a_transaction_may_have_begun_before_the_first_batch() {
    assert_eq!(judge_all(vec![aborted(7, 5)], &[data(7, 900, 3, TRANSACTIONAL)]), [Fate::Aborted]);
}

#[test]
fn a_transaction_may_begin_inside_the_range_of_a_batch() {
    // Compaction may have merged nothing, but the first offset counts up to the batch's last one.
    let batches = [data(7, 10, 5, TRANSACTIONAL)];
    assert_eq!(judge_all(vec![aborted(7, 14)], &batches), [Fate::Aborted]);
    assert_eq!(judge_all(vec![aborted(7, 15)], &batches), [Fate::Data]);
}

#[test]
fn plain_batches_of_an_aborting_producer_and_of_no_producer_are_data() {
    let batches = [data(7, 0, 1, DATA), data(-1, 1, 1, DATA), data(-1, 2, 1, TRANSACTIONAL)];
    assert_eq!(judge_all(vec![aborted(7, 0), aborted(-1, 0)], &batches), [Fate::Data; 3]);
}

#[test]
fn an_emptied_marker_is_control_and_ends_nothing() {
    let bytes = vectors::hex(vectors::EMPTY_RETAINED);
    let header = BatchHeader { producer_id: 7, attributes: 0x30, ..BatchHeader::parse(&bytes).unwrap() };
    let emptied = Batch { header, bytes: Bytes::new() };
    let batches = [data(7, 99, 1, TRANSACTIONAL), emptied, data(7, 110, 1, TRANSACTIONAL)];
    assert_eq!(judge_all(vec![aborted(7, 99)], &batches), [Fate::Aborted, Fate::Control, Fate::Aborted]);
}

#[test]
fn a_model_that_knows_each_transactions_end_agrees() {
    let mut state = 0x1234_5678_9abc_def1_u64;
    let mut below = move |bound: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 20) % bound
    };
    for _ in 0..500 {
        // Each producer's open transaction: its first offset and the indices of its batches.
        let mut open: Vec<Option<(i64, Vec<usize>)>> = vec![None; 4];
        let (mut batches, mut truth, mut list, mut offset) = (Vec::new(), Vec::new(), Vec::new(), 0_i64);
        for step in 0..60 {
            let producer = below(4) as usize;
            let end = below(3) == 0 || step >= 56;
            let producer = if step >= 56 { step - 56 } else { producer };
            if end {
                if let Some((first_offset, members)) = open[producer].take() {
                    let fails = below(2) == 0;
                    if fails {
                        list.push(aborted(producer as i64, first_offset));
                        members.into_iter().for_each(|member| truth[member] = Fate::Aborted);
                    }
                    batches.push(if fails { abort(producer as i64, offset) } else { commit(producer as i64, offset) });
                    truth.push(Fate::Control);
                    offset += 1;
                }
            } else {
                let count = 1 + below(5) as i32;
                open[producer].get_or_insert((offset, Vec::new())).1.push(batches.len());
                batches.push(data(producer as i64, offset, count, TRANSACTIONAL));
                truth.push(Fate::Data);
                offset += i64::from(count);
            }
        }
        // The broker gives no order and may name transactions past the data.
        let turn = below(list.len() as u64 + 1) as usize;
        list.rotate_left(turn);
        list.push(aborted(2, offset + 10));
        // Any fetch that starts at a batch sees the same truth from there on, for what the list still covers.
        let from = below(batches.len() as u64) as usize;
        assert_eq!(judge_all(list.clone(), &batches), truth);
        let start = batches[from].header.base_offset;
        let ends: Vec<i64> = list
            .iter()
            .map(|aborted| {
                let end = batches.iter().find(|batch| {
                    batch.header.producer_id == aborted.producer_id
                        && batch.header.is_control()
                        && batch.header.base_offset > aborted.first_offset
                });
                end.map_or(i64::MAX, |batch| batch.header.base_offset)
            })
            .collect();
        let overlapping = list.iter().zip(ends).filter(|(_, end)| *end >= start).map(|(aborted, _)| *aborted).collect();
        assert_eq!(judge_all(overlapping, &batches[from..]), truth[from..]);
    }
}
