//! The records of a batch as bytes: opened, walked through, packed again.

use bytes::Bytes;

use crate::batch::compression::{compress, decompress};
use crate::batch::varint::{put_long, take_long};
use crate::batch::{Batch, Codec};

/// Bytes that the records of one batch may become; a client's batch of a few kilobytes could claim any number.
const PLAIN_BYTES_MAX: usize = 256 << 20;

/// The records of a batch as its producer had them; `None` if they cannot be opened.
pub(super) fn plain(batch: &Batch) -> Option<Bytes> {
    match batch.header.codec() {
        Codec::None => Some(batch.bytes.slice_ref(batch.payload())),
        codec => decompress(codec, batch.payload(), PLAIN_BYTES_MAX).ok().map(Bytes::from),
    }
}

/// What [`plain`] opened, compressed again.
pub(super) fn packed(codec: Codec, payload: Vec<u8>) -> Option<Bytes> {
    match codec {
        Codec::None => Some(payload.into()),
        codec => compress(codec, &payload).ok().map(Bytes::from),
    }
}

/// One record as it is written.
#[derive(Debug, Clone, Copy)]
pub(super) struct RawRecord<'a> {
    /// Its length and all of it.
    whole: &'a [u8],
    attributes: u8,
    timestamp_delta: i64,
    offset_delta: i64,
    /// From the key's length on.
    rest: &'a [u8],
}

impl<'a> RawRecord<'a> {
    /// The records of a payload, up to the first that cannot be read.
    pub(super) fn all(payload: &'a [u8]) -> impl Iterator<Item = Self> {
        let mut rest = payload;
        std::iter::from_fn(move || Self::take(&mut rest))
    }

    fn take(rest: &mut &'a [u8]) -> Option<Self> {
        let before = *rest;
        let length = usize::try_from(take_long(rest)?).ok()?;
        let (mut record, after) = rest.split_at_checked(length)?;
        *rest = after;
        let whole = before.get(..before.len().checked_sub(after.len())?)?;
        let (attributes, fields) = record.split_first()?;
        record = fields;
        let timestamp_delta = take_long(&mut record)?;
        let offset_delta = take_long(&mut record)?;
        Some(Self { whole, attributes: *attributes, timestamp_delta, offset_delta, rest: record })
    }

    /// What its timestamp counts from the batch's base.
    pub(super) fn timestamp_delta(&self) -> i64 {
        self.timestamp_delta
    }

    /// What its offset counts from the batch's base.
    pub(super) fn offset_delta(&self) -> i64 {
        self.offset_delta
    }

    /// Appends the record with its timestamp counted from another base, `earlier_by` milliseconds before the old one.
    pub(super) fn write(&self, into: &mut Vec<u8>, earlier_by: i64) {
        self.write_at(into, earlier_by, self.offset_delta);
    }

    /// As [`RawRecord::write`], at another offset.
    pub(super) fn write_at(&self, into: &mut Vec<u8>, earlier_by: i64, offset_delta: i64) {
        if earlier_by == 0 && offset_delta == self.offset_delta {
            into.extend_from_slice(self.whole);
            return;
        }
        let mut record = vec![self.attributes];
        put_long(&mut record, self.timestamp_delta.wrapping_add(earlier_by));
        put_long(&mut record, offset_delta);
        record.extend_from_slice(self.rest);
        put_long(into, i64::try_from(record.len()).unwrap_or(i64::MAX));
        into.extend_from_slice(&record);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{BatchBuilder, Entry, records, walk};

    #[test]
    fn a_record_on_another_base_keeps_its_time() {
        let mut builder = BatchBuilder::new();
        for (at, time) in [(0, 1000), (1, 70_000), (2, 900)] {
            builder.push(time, Some(&[at]), None, &[]).unwrap();
        }
        let bytes = builder.build().unwrap();
        let Some(Ok(Entry::Batch(batch))) = walk(bytes).next() else { panic!("one batch") };
        let payload = plain(&batch).unwrap();
        let (mut same, mut moved) = (Vec::new(), Vec::new());
        for record in RawRecord::all(&payload) {
            record.write(&mut same, 0);
            record.write(&mut moved, -500_000);
        }
        assert_eq!(same, payload);
        let mut rebased = batch.clone();
        rebased.header.base_timestamp += 500_000;
        rebased.bytes = [&batch.bytes[..61], &moved].concat().into();
        let times: Vec<i64> = records(&rebased).unwrap().map(|record| record.unwrap().timestamp).collect();
        assert_eq!(times, [1000, 70_000, 900]);
    }
}
