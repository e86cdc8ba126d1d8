//! Splits the records of a fetched partition into batches.
//!
//! Fetch returns a slice of a log segment as it is stored: batches of format 2, possibly entries of the formats
//! before, and at the end often a batch that was cut off by a size limit. Everything that would make a later step
//! misread the data is an error here, among it a transaction marker whose kind cannot be read.

use bytes::Bytes;

use super::crc::crc32c;
use super::header::{BatchHeader, Codec, HEADER_LEN, LENGTH_OVERHEAD, take};
use super::varint::{take_int, take_long};

/// One batch of format 2, whose bytes are counted or only looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch<B = Bytes> {
    /// The header's fields.
    pub header: BatchHeader,
    /// The whole batch, header included: a slice of the frame it came in.
    pub bytes: B,
}

/// What a partition's records consist of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry<B = Bytes> {
    /// A batch of format 2.
    Batch(Batch<B>),
    /// An entry of format 0 or 1, written by a broker before 0.11.
    Legacy {
        /// Offset of the entry; of its last record if the entry is compressed.
        base_offset: i64,
        /// 0 or 1.
        magic: i8,
        /// The whole entry, offset and size fields included: a slice of the frame it came in.
        bytes: B,
    },
}

impl Entry<&[u8]> {
    /// The same, counting a reference to `frame`, which it is a slice of.
    fn counted(self, frame: &Bytes) -> Entry {
        match self {
            Self::Batch(Batch { header, bytes }) => Entry::Batch(Batch { header, bytes: frame.slice_ref(bytes) }),
            Self::Legacy { base_offset, magic, bytes } => {
                Entry::Legacy { base_offset, magic, bytes: frame.slice_ref(bytes) }
            }
        }
    }
}

/// Bytes that are no record batch: damaged at the source or on the way. The walk ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the batch at offset {base_offset} is malformed ({fault}, at byte {at} of the partition's records); \
         fetch it again, and check the source broker's log if it stays so"
)]
pub struct WalkError {
    /// What stands in the offset field.
    pub base_offset: i64,
    /// Position of the batch in the records of the response.
    pub at: usize,
    /// What is wrong.
    pub fault: WalkFault,
}

/// What is wrong with a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WalkFault {
    /// Shorter than its format allows, or negative.
    #[error("its length is {0}")]
    Length(i32),
    /// A format that does not exist.
    #[error("its format is {0}")]
    Magic(i8),
    /// A negative offset, or a range that goes past the largest one.
    #[error("its offsets are out of range")]
    Offsets,
    /// A negative record count.
    #[error("its record count is {0}")]
    RecordsCount(i32),
    /// A control batch with a record that is none; whether it ends a transaction cannot be told.
    #[error("it is a control batch whose type cannot be read")]
    ControlType,
}

/// A batch's bytes and its CRC disagree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the batch at offset {base_offset} has the CRC {stored:08x} and its bytes give {computed:08x}: it was damaged; \
         fetch it again, and check the source broker's log if it stays so"
)]
pub struct CrcMismatch {
    /// Base offset of the batch.
    pub base_offset: i64,
    /// What the header says.
    pub stored: u32,
    /// What the bytes give.
    pub computed: u32,
}

/// What a control batch says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ControlType {
    /// The producer's transaction was aborted.
    Abort,
    /// The producer's transaction was committed.
    Commit,
    /// Anything else, such as the KRaft log's own records.
    Other(i16),
}

/// Bytes of the CRC-covered part that lie before it.
const COVERED_FROM: usize = 21;

/// Where every format has its magic byte.
const MAGIC_AT: usize = 16;

/// Walks through the `records` of one partition response.
pub fn walk(records: Bytes) -> Walk {
    Walk { records, at: 0, ended: false }
}

/// As [`walk`], over bytes that are only looked at: counting references costs as much as the rest of a small batch.
pub fn walk_slices(records: &[u8]) -> Slices<'_> {
    Slices { records, at: 0, ended: false }
}

/// The iterator that [`walk`] returns. It ends at a cut-off last entry and after an error.
#[derive(Debug, Clone)]
pub struct Walk {
    records: Bytes,
    at: usize,
    ended: bool,
}

impl Walk {
    /// Bytes of the cut-off entry at the end, 0 if there is none; meaningful once the walk has ended without an error.
    pub fn cut_off(&self) -> usize {
        self.records.len().saturating_sub(self.at)
    }
}

/// The iterator that [`walk_slices`] returns. It ends as [`Walk`] does.
#[derive(Debug, Clone)]
pub struct Slices<'a> {
    records: &'a [u8],
    at: usize,
    ended: bool,
}

impl Slices<'_> {
    /// As [`Walk::cut_off`].
    pub fn cut_off(&self) -> usize {
        self.records.len().saturating_sub(self.at)
    }
}

/// The entry at `at`, which moves behind it; `None` if it is cut off.
#[inline]
fn step<'a>(records: &'a [u8], at: &mut usize) -> Result<Option<Entry<&'a [u8]>>, WalkError> {
    let rest = records.get(*at..).unwrap_or_default();
    // Offset, length and magic have to be there before anything can be said.
    let Some((base_offset, length, magic)) = prefix(rest) else {
        return Ok(None);
    };
    let fault = |fault| WalkError { base_offset, at: *at, fault };
    let length_min = match magic {
        0 => LEGACY_0_MIN,
        1 => LEGACY_1_MIN,
        2 => HEADER_LEN.saturating_sub(LENGTH_OVERHEAD),
        _ => return Err(fault(WalkFault::Magic(magic))),
    };
    let body = usize::try_from(length).map_err(|_| fault(WalkFault::Length(length)))?;
    if body < length_min {
        return Err(fault(WalkFault::Length(length)));
    }
    let size = body.saturating_add(LENGTH_OVERHEAD);
    let Some(bytes) = rest.get(..size) else {
        return Ok(None);
    };
    let entry = match BatchHeader::parse(bytes) {
        Some(header) if magic == 2 => {
            let batch = Batch { header, bytes };
            batch.check().map_err(fault)?;
            Entry::Batch(batch)
        }
        _ => Entry::Legacy { base_offset, magic, bytes },
    };
    *at = at.saturating_add(size);
    Ok(Some(entry))
}

/// CRC, magic, attributes, key and value lengths: what follows the size field of an empty message of format 0.
const LEGACY_0_MIN: usize = 4 + 1 + 1 + 4 + 4;

/// Format 1 adds a timestamp.
const LEGACY_1_MIN: usize = LEGACY_0_MIN + 8;

fn prefix(rest: &[u8]) -> Option<(i64, i32, i8)> {
    let magic = i8::from_be_bytes([*rest.get(MAGIC_AT)?]);
    let mut rest = rest;
    Some((i64::from_be_bytes(take(&mut rest)?), i32::from_be_bytes(take(&mut rest)?), magic))
}

impl Iterator for Walk {
    type Item = Result<Entry, WalkError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let step = step(&self.records, &mut self.at).transpose();
        self.ended = !matches!(step, Some(Ok(_)));
        step.map(|step| step.map(|entry| entry.counted(&self.records)))
    }
}

impl std::iter::FusedIterator for Walk {}

impl<'a> Iterator for Slices<'a> {
    type Item = Result<Entry<&'a [u8]>, WalkError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let step = step(self.records, &mut self.at).transpose();
        self.ended = !matches!(step, Some(Ok(_)));
        step
    }
}

impl std::iter::FusedIterator for Slices<'_> {}

impl<B: AsRef<[u8]>> Batch<B> {
    fn check(&self) -> Result<(), WalkFault> {
        let header = &self.header;
        if header.records_count < 0 {
            return Err(WalkFault::RecordsCount(header.records_count));
        }
        let last = header.base_offset.checked_add(i64::from(header.last_offset_delta));
        if header.base_offset < 0 || header.last_offset_delta < 0 || last.is_none_or(|last| last == i64::MAX) {
            return Err(WalkFault::Offsets);
        }
        if header.is_control() && !header.is_empty() && self.control_type().is_none() {
            return Err(WalkFault::ControlType);
        }
        Ok(())
    }

    /// Bytes after the header: the records, or one compressed stream of them.
    pub fn payload(&self) -> &[u8] {
        self.bytes.as_ref().get(HEADER_LEN..).unwrap_or_default()
    }

    /// Compares the CRC with the bytes, in one pass over them.
    ///
    /// # Errors
    /// [`CrcMismatch`].
    pub fn verify_crc(&self) -> Result<(), CrcMismatch> {
        let computed = crc32c(self.bytes.as_ref().get(COVERED_FROM..).unwrap_or_default());
        if computed == self.header.crc {
            return Ok(());
        }
        Err(CrcMismatch { base_offset: self.header.base_offset, stored: self.header.crc, computed })
    }

    /// What a control batch says. `None` if this is none, or if compaction left only its header: the type is lost
    /// then, and nothing hangs on it any more.
    pub fn control_type(&self) -> Option<ControlType> {
        if !self.header.is_control() || self.header.is_empty() || self.header.codec() != Codec::None {
            return None;
        }
        let mut rest = self.payload();
        let length = usize::try_from(take_int(&mut rest)?).ok()?;
        let mut record = rest.get(..length)?;
        let [_attributes] = take::<1>(&mut record)?;
        // The deltas are longer than a byte after a cleaner re-based the timestamps.
        let _timestamp_delta = take_long(&mut record)?;
        let _offset_delta = take_int(&mut record)?;
        let key_length = usize::try_from(take_int(&mut record)?).ok()?;
        let mut key = record.get(..key_length)?;
        let _version = i16::from_be_bytes(take(&mut key)?);
        Some(match i16::from_be_bytes(take(&mut key)?) {
            0 => ControlType::Abort,
            1 => ControlType::Commit,
            other => ControlType::Other(other),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::vectors;

    fn batch(bytes: &Bytes) -> Batch {
        match walk(bytes.clone()).next() {
            Some(Ok(Entry::Batch(batch))) => batch,
            other => panic!("{other:?}"),
        }
    }

    fn fault_of(bytes: Vec<u8>) -> WalkFault {
        let mut walk = walk(bytes.into());
        let error = walk.next().unwrap().unwrap_err();
        assert!(walk.next().is_none(), "the walk ends after an error");
        error.fault
    }

    fn joined(parts: &[&str]) -> Bytes {
        parts.iter().flat_map(|part| vectors::hex(part)).collect()
    }

    #[test]
    fn batches_are_split_without_copying() {
        let records = joined(&[vectors::EXAMPLE_1_OLD, vectors::EMPTY_RETAINED, vectors::COMMIT]);
        let mut walk = walk(records.clone());
        let sizes: Vec<usize> = walk
            .by_ref()
            .map(|entry| match entry.unwrap() {
                Entry::Batch(batch) => {
                    batch.verify_crc().unwrap();
                    assert!(records.as_ptr_range().contains(&batch.bytes.as_ptr()));
                    batch.bytes.len()
                }
                legacy => panic!("{legacy:?}"),
            })
            .collect();
        assert_eq!((sizes, walk.cut_off()), (vec![70, 61, 78], 0));
    }

    #[test]
    fn a_cut_off_last_batch_ends_the_walk_silently_at_every_byte() {
        let whole = joined(&[vectors::EXAMPLE_1_OLD, vectors::COMMIT]);
        for cut in 70..whole.len() {
            let mut walk = walk(whole.slice(..cut));
            assert_eq!(walk.by_ref().filter(|entry| entry.is_ok()).count(), 1, "cut at {cut}");
            assert!(walk.next().is_none());
            assert_eq!(walk.cut_off(), cut - 70);
        }
    }

    #[test]
    fn control_types_are_read_and_damage_is_found() {
        assert_eq!(batch(&vectors::hex(vectors::COMMIT)).control_type(), Some(ControlType::Commit));
        assert_eq!(batch(&vectors::hex(vectors::ABORT)).control_type(), Some(ControlType::Abort));
        assert_eq!(batch(&vectors::hex(vectors::EXAMPLE_1_OLD)).control_type(), None);
        assert_eq!(batch(&vectors::hex(vectors::EMPTY_RETAINED)).control_type(), None);
        let mut damaged = vectors::hex(vectors::EXAMPLE_1_OLD).to_vec();
        *damaged.last_mut().unwrap() ^= 1;
        let error = batch(&damaged.into()).verify_crc().unwrap_err();
        assert_eq!((error.base_offset, error.stored), (1000, 0xe99b_8dd8));
    }

    #[test]
    fn a_control_type_is_found_behind_longer_varints() {
        // The same COMMIT record with a three-byte timestamp delta, as a delete-horizon rewrite leaves it.
        let mut bytes = vectors::hex(vectors::COMMIT).to_vec();
        bytes.splice(61..64, [0x24, 0, 0x80, 0x80, 0x01]);
        let length = bytes.len() as i32 - 12;
        bytes[8..12].copy_from_slice(&length.to_be_bytes());
        assert_eq!(batch(&bytes.into()).control_type(), Some(ControlType::Commit));
    }

    #[test]
    fn an_empty_control_batch_has_no_type_and_is_no_error() {
        let mut bytes = vectors::hex(vectors::EMPTY_RETAINED).to_vec();
        bytes[22] = 0x30;
        let batch = batch(&bytes.into());
        assert!(batch.header.is_control());
        assert_eq!(batch.control_type(), None);
    }

    #[test]
    fn a_control_batch_that_cannot_be_read_is_corruption() {
        let whole = vectors::hex(vectors::COMMIT).to_vec();
        let mut cut_key = whole.clone();
        cut_key[65] = 0x02;
        assert_eq!(fault_of(cut_key), WalkFault::ControlType);
        let mut compressed = whole;
        compressed[22] |= 1;
        assert_eq!(fault_of(compressed), WalkFault::ControlType);
    }

    #[test]
    fn impossible_headers_are_corruption() {
        let good = vectors::hex(vectors::EXAMPLE_1_OLD).to_vec();
        let with = |at: usize, bytes: &[u8]| {
            let mut changed = good.clone();
            changed[at..at + bytes.len()].copy_from_slice(bytes);
            fault_of(changed)
        };
        assert_eq!(with(8, &[0, 0, 0, 48]), WalkFault::Length(48));
        assert_eq!(with(8, &[0xff; 4]), WalkFault::Length(-1));
        assert_eq!(with(8, &[0x80, 0, 0, 0]), WalkFault::Length(i32::MIN));
        assert_eq!(with(16, &[3]), WalkFault::Magic(3));
        assert_eq!(with(16, &[0xff]), WalkFault::Magic(-1));
        assert_eq!(with(0, &[0xff; 8]), WalkFault::Offsets);
        assert_eq!(with(0, &i64::MAX.to_be_bytes()), WalkFault::Offsets);
        assert_eq!(with(23, &[0xff; 4]), WalkFault::Offsets);
        assert_eq!(with(57, &[0xff; 4]), WalkFault::RecordsCount(-1));
    }

    #[test]
    fn entries_of_the_old_formats_are_passed_on_with_their_size() {
        let legacy = |magic: u8, length: usize| {
            let mut entry = vec![0; 12 + length];
            entry[7] = 42;
            entry[11] = length as u8;
            entry[16] = magic;
            entry
        };
        let mut mixed = legacy(0, 14);
        mixed.extend(legacy(1, 80));
        mixed.extend(vectors::hex(vectors::EXAMPLE_1_OLD));
        let mixed = Bytes::from(mixed);
        let entries: Vec<Entry> = walk(mixed.clone()).map(Result::unwrap).collect();
        assert_eq!(entries[0], Entry::Legacy { base_offset: 42, magic: 0, bytes: mixed.slice(..26) });
        assert_eq!(entries[1], Entry::Legacy { base_offset: 42, magic: 1, bytes: mixed.slice(26..118) });
        assert!(matches!(entries[2], Entry::Batch(_)));
        assert_eq!(fault_of(legacy(0, 13)), WalkFault::Length(13));
        assert_eq!(fault_of(legacy(1, 21)), WalkFault::Length(21));
    }
}
