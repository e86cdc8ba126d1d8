//! Log cleaning: holes, thinned batches, emptied batches, tombstones.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::contents::{RawRecord, packed, plain};
use super::{Log, Stored, with_crc};
use crate::batch::{Batch, BatchHeader, Codec, HEADER_LEN, Record, records};

/// How a partition is cleaned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cleaning {
    /// Batches that reach up to here or beyond are left alone.
    pub dirty_end: i64,
    /// The time of day.
    pub wall_ms: i64,
    /// How long tombstones stay, in milliseconds; `None` for brokers before 3.1, which note no horizon in batches: here
    /// they keep tombstones for ever.
    pub delete_retention_ms: Option<i64>,
}

/// What a cleaning did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Batches that went completely.
    pub removed: usize,
    /// Batches that lost some of their records.
    pub thinned: usize,
    /// Batches of which the header stayed.
    pub emptied: usize,
}

/// What becomes of one batch.
enum Fate {
    Keep,
    Rewrite(Stored),
    Empty,
}

impl Log {
    /// Keeps the newest record of each key among those before the dirty end, as a broker's cleaner does, and nothing
    /// of aborted transactions.
    ///
    /// Thinned batches keep their range, sequence and producer. The header of an emptied batch stays if it is the last
    /// of its producer or the last one cleaned; batches with tombstones get a delete horizon (broker-experiments, S5).
    /// Markers, entries of old formats and batches that cannot be opened are left alone.
    pub fn compact(&mut self, cleaning: Cleaning) -> Cleaned {
        let opened: Vec<Option<(Batch, Bytes, Vec<Record>)>> = self.entries.iter().map(open).collect();
        let mut newest: BTreeMap<Bytes, i64> = BTreeMap::new();
        for (batch, _, records) in opened.iter().flatten().filter(|(batch, ..)| !self.is_aborted(batch)) {
            debug_assert!(batch.header.base_offset <= batch.header.last_offset());
            for record in records {
                if let Some(key) = &record.key {
                    newest.insert(key.clone(), record.offset);
                }
            }
        }
        let last_cleaned = self.entries.iter().rposition(|entry| entry.last_offset < cleaning.dirty_end);
        let mut cleaned = Cleaned::default();
        let mut kept = Vec::with_capacity(self.entries.len());
        let entries = std::mem::take(&mut self.entries);
        for (at, (entry, contents)) in entries.into_iter().zip(opened).enumerate() {
            let (Some((batch, payload, records)), true) = (contents, entry.last_offset < cleaning.dirty_end) else {
                kept.push(entry);
                continue;
            };
            let is_aborted = self.is_aborted(&batch);
            let is_newest = |record: &Record| {
                !is_aborted && record.key.as_ref().is_some_and(|key| newest.get(key) == Some(&record.offset))
            };
            match fate(&batch, &payload, &records, is_newest, cleaning) {
                Fate::Keep => kept.push(entry),
                Fate::Rewrite(stored) => {
                    let left = BatchHeader::parse(&stored.bytes).map_or(0, |header| header.records_count);
                    cleaned.thinned += usize::from(left < batch.header.records_count);
                    kept.push(stored);
                }
                Fate::Empty if self.is_last_of_producer(&batch) || Some(at) == last_cleaned => {
                    cleaned.emptied += usize::from(!batch.header.is_empty());
                    kept.push(empty(&batch));
                }
                Fate::Empty => cleaned.removed += 1,
            }
        }
        self.entries = kept;
        self.bytes = self.entries.iter().map(|entry| entry.bytes.len()).sum();
        cleaned
    }

    fn is_aborted(&self, batch: &Batch) -> bool {
        let header = &batch.header;
        header.is_transactional()
            && self.aborted.iter().any(|aborted| {
                aborted.producer_id == header.producer_id
                    && (aborted.first_offset..aborted.last_offset).contains(&header.base_offset)
            })
    }

    fn is_last_of_producer(&self, batch: &Batch) -> bool {
        let header = &batch.header;
        header.producer_id >= 0
            && self.producers.get(header.producer_id).is_some_and(|state| {
                state.epoch == header.producer_epoch
                    && state.window.back().is_some_and(|last| last.base_offset == header.base_offset)
            })
    }
}

fn open(entry: &Stored) -> Option<(Batch, Bytes, Vec<Record>)> {
    let batch = entry.batch().filter(|batch| !batch.header.is_control())?;
    let payload = plain(&batch)?;
    let opened = records(&uncompressed(&batch, &payload)).ok()?.collect::<Result<Vec<_>, _>>().ok()?;
    Some((batch, payload, opened))
}

/// The same batch as if it had never been compressed; its CRC is wrong.
pub(super) fn uncompressed(batch: &Batch, payload: &Bytes) -> Batch {
    if batch.header.codec() == Codec::None {
        return batch.clone();
    }
    let header = BatchHeader { attributes: batch.header.attributes & !CODEC_BITS, ..batch.header };
    let mut bytes = batch.bytes.get(..HEADER_LEN).unwrap_or_default().to_vec();
    bytes.extend_from_slice(payload);
    Batch { header, bytes: bytes.into() }
}

fn fate(
    batch: &Batch,
    payload: &[u8],
    records: &[Record],
    is_newest: impl Fn(&Record) -> bool,
    cleaning: Cleaning,
) -> Fate {
    let header = batch.header;
    let horizon = header.has_delete_horizon().then_some(header.base_timestamp);
    let is_over = horizon.is_some_and(|horizon| cleaning.wall_ms > horizon);
    let stays = |record: &Record| is_newest(record) && !(is_over && record.value.is_none());
    let left: Vec<bool> = records.iter().map(stays).collect();
    let count = left.iter().filter(|left| **left).count();
    if count == 0 {
        return Fate::Empty;
    }
    let has_tombstone = records.iter().zip(&left).any(|(record, left)| *left && record.value.is_none());
    let new_horizon = match (horizon, cleaning.delete_retention_ms) {
        (None, Some(retention)) if has_tombstone => Some(cleaning.wall_ms.saturating_add(retention)),
        _ => None,
    };
    if count == records.len() && new_horizon.is_none() {
        return Fate::Keep;
    }
    // Without a horizon the base becomes the time of the first record left.
    let first_left = records.iter().zip(&left).find(|(_, left)| **left).map(|(record, _)| record.timestamp);
    let base_timestamp = new_horizon.or(horizon).or(first_left).unwrap_or(header.base_timestamp);
    let mut rewritten = Vec::with_capacity(payload.len());
    for (record, _) in RawRecord::all(payload).zip(&left).filter(|(_, left)| **left) {
        record.write(&mut rewritten, header.base_timestamp.wrapping_sub(base_timestamp));
    }
    let Some(payload) = packed(header.codec(), rewritten) else {
        return Fate::Keep;
    };
    let left = records.iter().zip(&left).filter(|(_, left)| **left);
    let max_timestamp = left.map(|(record, _)| record.timestamp).max().unwrap_or(-1);
    let header = BatchHeader {
        batch_length: i32::try_from(payload.len()).unwrap_or(i32::MAX).saturating_add(EMPTY_LENGTH),
        attributes: header.attributes | if new_horizon.is_some() { DELETE_HORIZON_BIT } else { 0 },
        base_timestamp,
        max_timestamp,
        records_count: i32::try_from(count).unwrap_or(i32::MAX),
        ..header
    };
    Fate::Rewrite(stored(header, &payload))
}

/// The header alone.
fn empty(batch: &Batch) -> Stored {
    let header = BatchHeader {
        batch_length: EMPTY_LENGTH,
        attributes: batch.header.attributes & !(CODEC_BITS | DELETE_HORIZON_BIT),
        base_timestamp: -1,
        records_count: 0,
        ..batch.header
    };
    stored(header, &[])
}

fn stored(header: BatchHeader, payload: &[u8]) -> Stored {
    Stored {
        base_offset: header.base_offset,
        last_offset: header.last_offset(),
        max_timestamp: header.max_timestamp,
        magic: 2,
        bytes: with_crc(header, payload),
    }
}

const CODEC_BITS: i16 = 0x07;
const DELETE_HORIZON_BIT: i16 = 0x40;
/// Batch length of a header alone.
const EMPTY_LENGTH: i32 = 49;
