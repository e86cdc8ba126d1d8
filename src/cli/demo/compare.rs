//! Compares every record that two topics hold, partition by partition.

use std::collections::HashMap;

use bytes::Bytes;

use crate::{
    batch::{Codec, Record, recoded, records},
    testkit::{engine::PartitionView, log::Stored},
};

/// Most bytes that one batch of the demo opens to.
const BATCH_BYTES_MAX: usize = 16 << 20;

/// What the comparison found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Comparison {
    /// Records on the target.
    pub(super) found: u64,
    /// Not on the target.
    pub(super) lost: u64,
    /// On the target more than once, counted beyond the first.
    pub(super) twice: u64,
    /// Behind a record that was written after it.
    pub(super) out_of_order: u64,
    /// With another value, time or headers, or that nobody wrote.
    pub(super) changed: u64,
    /// Batches on the source.
    pub(super) batches: u64,
    /// Batches on the target whose compressed bytes are those of the source's.
    pub(super) identical_batches: u64,
    /// Batches of either side that cannot be read.
    pub(super) unreadable: u64,
}

impl Comparison {
    /// Whether exactly the `wanted` records are there, once, in order, unchanged.
    pub(super) fn is_equal(&self, wanted: u64) -> bool {
        let faults = [self.lost, self.twice, self.out_of_order, self.changed, self.unreadable];
        self.found == wanted && faults.iter().all(|count| *count == 0)
    }
}

/// Compares what a source and a target hold of one topic.
pub(super) fn compare(source: Vec<PartitionView>, mut target: Vec<PartitionView>) -> Comparison {
    let mut seen = Comparison::default();
    let nothing = || PartitionView { entries: Vec::new(), ..empty() };
    target.resize_with(target.len().max(source.len()), nothing);
    for (number, copy) in target.iter().enumerate() {
        let original = source.get(number);
        let none = Vec::new();
        let entries = original.map_or(&none, |partition| &partition.entries);
        seen.batches += count(entries.len());
        let pairs = entries.iter().zip(&copy.entries);
        let identical =
            |(a, b): &(&Stored, &Stored)| a.batch().zip(b.batch()).is_some_and(|(a, b)| a.payload() == b.payload());
        seen.identical_batches += count(pairs.filter(identical).count());
        let written = opened(entries, &mut seen.unreadable);
        let arrived = opened(&copy.entries, &mut seen.unreadable);
        compare_records(&written, &arrived, &mut seen);
    }
    seen
}

fn empty() -> PartitionView {
    PartitionView {
        leader: None,
        leader_epoch: 0,
        log_start_offset: 0,
        high_watermark: 0,
        last_stable_offset: 0,
        end_offset: 0,
        entries: Vec::new(),
    }
}

fn compare_records(written: &[Record], arrived: &[Record], seen: &mut Comparison) {
    seen.found += count(arrived.len());
    // Keys are unique: each carries the order's number.
    let places: HashMap<&Option<Bytes>, usize> =
        written.iter().enumerate().map(|(place, record)| (&record.key, place)).collect();
    let mut times = vec![0_u64; written.len()];
    let mut furthest = 0;
    for record in arrived {
        let Some((place, original)) = places.get(&record.key).and_then(|at| Some((*at, written.get(*at)?))) else {
            seen.changed += 1;
            continue;
        };
        if let Some(times) = times.get_mut(place) {
            *times += 1;
        }
        seen.out_of_order += u64::from(place < furthest);
        furthest = furthest.max(place);
        let is_same = (record.timestamp, &record.value, &record.headers)
            == (original.timestamp, &original.value, &original.headers);
        seen.changed += u64::from(!is_same);
    }
    for times in times {
        seen.lost += u64::from(times == 0);
        seen.twice += times.saturating_sub(1);
    }
}

/// The records of these batches; those that cannot be read are counted.
fn opened(entries: &[Stored], unreadable: &mut u64) -> Vec<Record> {
    let mut all = Vec::new();
    for entry in entries {
        let plain = entry.batch().and_then(|batch| recoded(&batch, Codec::None, BATCH_BYTES_MAX).ok());
        match plain.and_then(|batch| records(&batch).ok()?.collect::<Result<Vec<_>, _>>().ok()) {
            Some(records) => all.extend(records),
            None => *unreadable += 1,
        }
    }
    all
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(key: &'static str, value: &'static str) -> Record {
        Record {
            offset: 0,
            timestamp: 1,
            key: Some(Bytes::from_static(key.as_bytes())),
            value: Some(Bytes::from_static(value.as_bytes())),
            headers: Vec::new(),
        }
    }

    fn compared(written: &[Record], arrived: &[Record]) -> Comparison {
        let mut seen = Comparison::default();
        compare_records(written, arrived, &mut seen);
        seen
    }

    #[test]
    fn each_kind_of_damage_is_seen_as_what_it_is() {
        let [a, b, c] = [record("1", "a"), record("2", "b"), record("3", "c")];
        let written = [a.clone(), b.clone(), c.clone()];
        let damage = |arrived: &[Record]| {
            let seen = compared(&written, arrived);
            (seen.lost, seen.twice, seen.out_of_order, seen.changed, seen.is_equal(3))
        };

        assert_eq!(damage(&written), (0, 0, 0, 0, true));
        assert_eq!(damage(&[a.clone(), c.clone()]), (1, 0, 0, 0, false));
        assert_eq!(damage(&[a.clone(), b.clone(), b.clone(), c.clone()]), (0, 1, 0, 0, false));
        assert_eq!(damage(&[a.clone(), c.clone(), b.clone()]), (0, 0, 1, 0, false));
        assert_eq!(damage(&[a.clone(), record("2", "x"), c.clone()]), (0, 0, 0, 1, false));
        assert_eq!(damage(&[a, b, c, record("9", "?")]), (0, 0, 0, 1, false));
    }
}
