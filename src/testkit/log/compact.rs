//! Log cleaning: holes, thinned batches, emptied batches.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{Log, Stored, with_crc};
use crate::batch::{Batch, BatchHeader, Record, records};

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

impl Log {
    /// Keeps the newest record of each key among those before `dirty_end`, as a broker's cleaner does.
    ///
    /// Thinned batches keep their range, sequence and producer. The header of an emptied batch stays if it is the last
    /// of its producer or the last one cleaned (broker-experiments, S5). Compressed batches are left alone.
    pub fn compact(&mut self, dirty_end: i64) -> Cleaned {
        let mut newest: BTreeMap<Bytes, i64> = BTreeMap::new();
        let mut opened: Vec<Option<Vec<Record>>> = Vec::with_capacity(self.entries.len());
        for entry in &self.entries {
            let contents = entry.batch().filter(|batch| !batch.header.is_control()).and_then(|batch| open(&batch));
            for record in contents.iter().flatten() {
                if let Some(key) = &record.key {
                    newest.insert(key.clone(), record.offset);
                }
            }
            opened.push(contents);
        }
        let last_cleaned = self.entries.iter().rposition(|entry| entry.last_offset < dirty_end);
        let mut cleaned = Cleaned::default();
        let mut kept = Vec::with_capacity(self.entries.len());
        for (at, (entry, contents)) in self.entries.drain(..).zip(opened).enumerate() {
            let (Some(records), true) = (contents, entry.last_offset < dirty_end) else {
                kept.push(entry);
                continue;
            };
            let survives =
                |record: &Record| record.key.as_ref().is_some_and(|key| newest.get(key) == Some(&record.offset));
            let left: Vec<bool> = records.iter().map(survives).collect();
            let count = left.iter().filter(|left| **left).count();
            if count == records.len() && count > 0 {
                kept.push(entry);
                continue;
            }
            let Some(batch) = entry.batch() else {
                continue;
            };
            if count > 0 {
                cleaned.thinned += usize::from(count < records.len());
                kept.push(thin(&batch, &left, &records));
                continue;
            }
            let is_last_of_producer = batch.header.producer_id >= 0
                && self.producers.get(batch.header.producer_id).is_some_and(|state| {
                    state.epoch == batch.header.producer_epoch
                        && state.window.back().is_some_and(|last| last.base_offset == batch.header.base_offset)
                });
            if is_last_of_producer || Some(at) == last_cleaned {
                cleaned.emptied += usize::from(!batch.header.is_empty());
                kept.push(empty(&batch));
            } else {
                cleaned.removed += 1;
            }
        }
        self.entries = kept;
        self.bytes = self.entries.iter().map(|entry| entry.bytes.len()).sum();
        cleaned
    }
}

fn open(batch: &Batch) -> Option<Vec<Record>> {
    records(batch).ok()?.collect::<Result<Vec<_>, _>>().ok()
}

/// The records that stay, byte for byte, behind a header that keeps everything but the count.
fn thin(batch: &Batch, left: &[bool], records: &[Record]) -> Stored {
    let mut payload = Vec::with_capacity(batch.bytes.len());
    let mut rest = batch.payload();
    for stays in left {
        let Some((record, after)) = split_record(rest) else {
            break;
        };
        if *stays {
            payload.extend_from_slice(record);
        }
        rest = after;
    }
    let stay = |(record, stays): (&Record, &bool)| stays.then_some(record.timestamp);
    let max_timestamp = records.iter().zip(left).filter_map(stay).max().unwrap_or(-1);
    let header = BatchHeader {
        batch_length: i32::try_from(payload.len()).unwrap_or(i32::MAX).saturating_add(EMPTY_LENGTH),
        max_timestamp,
        records_count: i32::try_from(left.iter().filter(|stays| **stays).count()).unwrap_or(i32::MAX),
        ..batch.header
    };
    stored(header, &payload)
}

/// A record with its length, and what follows it.
fn split_record(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut length: usize = 0;
    let mut prefix = 0;
    for (at, byte) in rest.iter().enumerate().take(5) {
        length |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            prefix = at + 1;
            break;
        }
    }
    // Zigzag of a length that is not negative.
    rest.split_at_checked(prefix.checked_add(length >> 1)?)
}

/// The header alone.
fn empty(batch: &Batch) -> Stored {
    let header = BatchHeader {
        batch_length: EMPTY_LENGTH,
        attributes: batch.header.attributes & !CODEC_BITS,
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
/// Batch length of a header alone.
const EMPTY_LENGTH: i32 = 49;
