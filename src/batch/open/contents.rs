//! The records of an opened batch, whatever format it had.

use bytes::Bytes;
use twox_hash::XxHash32;

use super::OpenError;
use crate::batch::{
    crc::crc32c,
    header::{Codec, take},
    varint::{take_int, take_long},
};

/// An opened batch: its records in the encoding of format 2, uncompressed and checked.
#[derive(Debug, Clone)]
pub struct Contents {
    /// How the batch was compressed, and will be again.
    pub codec: Codec,
    /// The offset to go on from after it.
    pub next_offset: i64,
    /// Leader epoch of the source batch; -1 for the old formats, which have none.
    pub leader_epoch: i32,
    pub(super) base_offset: i64,
    pub(super) base_timestamp: i64,
    /// The timestamp of all records, if consumers saw the broker's.
    pub(super) append_time: Option<i64>,
    pub(super) count: i32,
    pub(super) payload: Bytes,
}

/// A record as a slice of its batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenRecord<'a> {
    /// Offset in the source partition.
    pub offset: i64,
    /// Milliseconds since 1970, or -1: what consumers of the source see.
    pub timestamp: i64,
    pub(super) attributes: u8,
    /// Key, value and headers with their lengths, as they stand in the batch. Two records with the same body and
    /// timestamp are the same to every consumer.
    pub body: &'a [u8],
}

/// What tells records apart: timestamp, and length and two checksums of key, value and headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordDigest {
    timestamp: i64,
    length: usize,
    crc: u32,
    hash: u32,
}

impl OpenRecord<'_> {
    /// See [`RecordDigest`].
    #[must_use]
    pub fn digest(&self) -> RecordDigest {
        RecordDigest {
            timestamp: self.timestamp,
            length: self.body.len(),
            crc: crc32c(self.body),
            hash: XxHash32::oneshot(0, self.body),
        }
    }
}

/// The records of [`Contents`] from some point on.
#[derive(Debug, Clone)]
pub struct OpenRecords<'a> {
    contents: &'a Contents,
    rest: &'a [u8],
    /// Records before `rest`.
    index: i32,
}

impl Contents {
    /// Offset of the first record; of the batch if there is none.
    #[must_use]
    pub fn base_offset(&self) -> i64 {
        self.records().peek().map_or(self.base_offset, |record| record.offset)
    }

    /// Number of records.
    #[must_use]
    pub fn count(&self) -> i32 {
        self.count
    }

    /// All records.
    #[must_use]
    pub fn records(&self) -> OpenRecords<'_> {
        OpenRecords { contents: self, rest: &self.payload, index: 0 }
    }

    /// The records from an offset on.
    #[must_use]
    pub fn records_from(&self, offset: i64) -> OpenRecords<'_> {
        let mut records = self.records();
        while records.peek().is_some_and(|record| record.offset < offset) {
            records.next();
        }
        records
    }

    /// Reads everything once, so that later readers meet no fault.
    pub(super) fn checked(self) -> Result<Self, OpenError> {
        let base_offset = self.base_offset;
        let mut records = self.records();
        let mut least = base_offset;
        for index in 0..self.count {
            let malformed = OpenError::Malformed { base_offset, index };
            let Some((record, rest)) = records.read() else { return Err(malformed) };
            if record.offset < least || record.offset >= self.next_offset || !is_body(record.body) {
                return Err(malformed);
            }
            least = record.offset.saturating_add(1);
            records = OpenRecords { contents: &self, rest, index: index.saturating_add(1) };
        }
        match records.rest.len() {
            0 => Ok(self),
            bytes => Err(OpenError::TrailingBytes { base_offset, bytes }),
        }
    }
}

impl<'a> OpenRecords<'a> {
    /// Records not read yet.
    #[must_use]
    pub fn left(&self) -> i32 {
        self.contents.count.saturating_sub(self.index)
    }

    /// Bytes of their encoding in the source batch, and a little more.
    pub(super) fn left_bytes(&self) -> usize {
        self.rest.len().saturating_add(64)
    }

    /// The next record, without going past it.
    #[must_use]
    pub fn peek(&self) -> Option<OpenRecord<'a>> {
        self.read().map(|(record, _)| record)
    }

    /// The batch they belong to.
    #[must_use]
    pub fn contents(&self) -> &'a Contents {
        self.contents
    }

    fn read(&self) -> Option<(OpenRecord<'a>, &'a [u8])> {
        if self.left() <= 0 {
            return None;
        }
        let contents = self.contents;
        let mut rest = self.rest;
        let length = usize::try_from(take_int(&mut rest)?).ok()?;
        let (mut record, after) = rest.split_at_checked(length)?;
        let [attributes] = take::<1>(&mut record)?;
        let timestamp_delta = take_long(&mut record)?;
        let offset_delta = take_int(&mut record)?;
        let record = OpenRecord {
            offset: contents.base_offset.checked_add(i64::from(offset_delta))?,
            // Java adds without a check; a batch with such timestamps is shown as it shows it.
            timestamp: match contents.append_time {
                Some(time) => time,
                None => contents.base_timestamp.wrapping_add(timestamp_delta),
            },
            attributes,
            body: record,
        };
        Some((record, after))
    }
}

impl<'a> Iterator for OpenRecords<'a> {
    type Item = OpenRecord<'a>;

    fn next(&mut self) -> Option<OpenRecord<'a>> {
        let (record, rest) = self.read()?;
        self.rest = rest;
        self.index = self.index.saturating_add(1);
        Some(record)
    }
}

/// Whether the lengths of key, value and headers add up.
fn is_body(body: &[u8]) -> bool {
    let mut rest = body;
    skip_body(&mut rest).is_some() && rest.is_empty()
}

fn skip_body(rest: &mut &[u8]) -> Option<()> {
    skip_field(rest, true)?;
    skip_field(rest, true)?;
    let headers = usize::try_from(take_int(rest)?).ok()?;
    for _ in 0..headers {
        skip_field(rest, false)?;
        skip_field(rest, true)?;
    }
    Some(())
}

fn skip_field(rest: &mut &[u8], nullable: bool) -> Option<()> {
    match take_int(rest)? {
        -1 if nullable => Some(()),
        length => {
            *rest = rest.get(usize::try_from(length).ok()?..)?;
            Some(())
        }
    }
}
