//! Message sets of formats 0 and 1 (`batch-forwarding.md` 1.5).
//!
//! An entry is one record, or a wrapper whose value is a compressed set of entries. Uncompressed entries that follow each
//! other become one batch together, since a batch for each of them would cost a request each. How many of them an answer
//! holds is chance, so where such a batch ends is too: whoever finds it again on the target has to go by the cuts that
//! are there.

use bytes::Bytes;

use super::{Contents, OpenError};
use crate::batch::{
    compression::{decompress, decompress_format_0},
    header::{Codec, LENGTH_OVERHEAD, take},
    varint::put_long,
};

/// Uncompressed bytes of single entries that are put into one batch.
const RUN_BYTES_MAX: usize = 128 << 10;
/// Attribute bit 3 of format 1: the timestamp is the broker's.
const LOG_APPEND_TIME: i16 = 0x08;

/// Entries that will be one batch: any number of single records, or one wrapper.
#[derive(Debug, Clone, Default)]
pub struct LegacyRun {
    codec: Option<Codec>,
    first: Option<(i64, i64)>,
    next_offset: i64,
    count: i32,
    payload: Vec<u8>,
}

/// The fields of one entry.
struct Message<'a> {
    offset: i64,
    magic: i8,
    attributes: i16,
    timestamp: i64,
    key: Option<&'a [u8]>,
    value: Option<&'a [u8]>,
}

impl LegacyRun {
    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.codec.is_none()
    }

    /// Whether `entry` has to begin a batch of its own. `entry` is a whole one as [`walk`](crate::batch::walk()) gives
    /// it.
    #[must_use]
    pub fn is_full_for(&self, entry: &Bytes) -> bool {
        if self.is_empty() {
            return false;
        }
        let single = Message::read(&mut entry.as_ref()).is_some_and(|entry| entry.codec() == Codec::None);
        let near = self.first.is_none_or(|(first, _)| {
            offset_of(entry).checked_sub(first).is_some_and(|delta| i32::try_from(delta).is_ok())
        });
        !single
            || !near
            || self.codec != Some(Codec::None)
            || self.payload.len().saturating_add(entry.len()) > RUN_BYTES_MAX
    }

    /// Adds an entry for which [`is_full_for`](Self::is_full_for) is false; after its checksum was verified. `limit`
    /// bounds the decompressed bytes of a wrapper.
    ///
    /// # Errors
    /// [`OpenError`]; the run is as it was before.
    pub fn push(&mut self, entry: &Bytes, limit: usize) -> Result<(), OpenError> {
        let was_empty = self.is_empty();
        let pushed = self.try_push(entry, limit);
        if pushed.is_err() && was_empty {
            // Some records of a wrapper may have been added.
            *self = Self::default();
        }
        pushed
    }

    fn try_push(&mut self, entry: &Bytes, limit: usize) -> Result<(), OpenError> {
        let offset = offset_of(entry);
        verify(entry, offset)?;
        let malformed = OpenError::LegacyMalformed { offset };
        let mut rest = entry.as_ref();
        let message = Message::read(&mut rest).filter(|_| rest.is_empty()).ok_or_else(|| malformed.clone())?;
        self.codec = Some(message.codec());
        if message.codec() == Codec::None {
            return self.add(&message, message.offset, message.timestamp).ok_or(malformed);
        }
        self.unwrap(&message, limit)
    }

    /// What was added, and an empty run in its place; `None` if nothing was.
    ///
    /// # Errors
    /// None that can be met; what was added was checked.
    pub fn finish(&mut self) -> Result<Option<Contents>, OpenError> {
        let run = std::mem::take(self);
        let (Some(codec), Some((base_offset, base_timestamp))) = (run.codec, run.first) else {
            return Ok(None);
        };
        let contents = Contents {
            codec,
            next_offset: run.next_offset,
            leader_epoch: -1,
            base_offset,
            base_timestamp,
            append_time: None,
            count: run.count,
            payload: run.payload.into(),
        };
        contents.checked().map(Some)
    }

    fn unwrap(&mut self, wrapper: &Message<'_>, limit: usize) -> Result<(), OpenError> {
        let offset = wrapper.offset;
        let malformed = || OpenError::LegacyMalformed { offset };
        let compressed = wrapper.value.ok_or_else(malformed)?;
        let opened = if wrapper.magic == 0 {
            decompress_format_0(wrapper.codec(), compressed, limit)
        } else {
            decompress(wrapper.codec(), compressed, limit)
        };
        let inner = opened.map_err(|error| OpenError::Decompress { base_offset: offset, error })?;
        // Offsets of format 1 count from the first record, of which only the last one's place is known.
        let mut last = None;
        for_each(&inner, |message| last = Some(message.offset)).ok_or_else(malformed)?;
        let base = match last {
            None => return Err(malformed()),
            Some(_) if wrapper.magic == 0 || offset == 0 => 0,
            Some(last) => offset.checked_sub(last).ok_or_else(malformed)?,
        };
        let append_time =
            (wrapper.magic == 1 && wrapper.attributes & LOG_APPEND_TIME != 0).then_some(wrapper.timestamp);
        let mut good = true;
        for_each(&inner, |message| {
            let placed = (message.codec() == Codec::None && message.magic == wrapper.magic)
                .then(|| message.offset.checked_add(base))
                .flatten()
                .filter(|placed| *placed <= offset || offset == 0);
            good &=
                placed.and_then(|placed| self.add(message, placed, append_time.unwrap_or(message.timestamp))).is_some();
        })
        .filter(|()| good)
        .ok_or_else(malformed)?;
        // The wrapper's own offset is that of its last record, also where compaction took that one.
        self.next_offset = self.next_offset.max(offset.saturating_add(1));
        Ok(())
    }

    fn add(&mut self, message: &Message<'_>, offset: i64, timestamp: i64) -> Option<()> {
        let (base_offset, base_timestamp) = *self.first.get_or_insert((offset, timestamp));
        if offset < self.next_offset || offset < 0 || offset == i64::MAX {
            return None;
        }
        let delta = i32::try_from(offset.checked_sub(base_offset)?).ok()?;
        let mut record = vec![0];
        put_long(&mut record, timestamp.wrapping_sub(base_timestamp));
        put_long(&mut record, i64::from(delta));
        for field in [message.key, message.value] {
            put_long(&mut record, field.map_or(Some(-1), |field| i64::try_from(field.len()).ok())?);
            record.extend_from_slice(field.unwrap_or_default());
        }
        // These formats have no headers.
        put_long(&mut record, 0);
        put_long(&mut self.payload, i64::try_from(record.len()).ok()?);
        self.payload.extend_from_slice(&record);
        self.count = self.count.checked_add(1)?;
        self.next_offset = offset.checked_add(1)?;
        Some(())
    }
}

impl<'a> Message<'a> {
    /// Reads one entry, which `rest` moves past.
    fn read(rest: &mut &'a [u8]) -> Option<Self> {
        let offset = i64::from_be_bytes(take(rest)?);
        let size = usize::try_from(i32::from_be_bytes(take(rest)?)).ok()?;
        let (mut entry, after) = rest.split_at_checked(size)?;
        let _crc = take::<4>(&mut entry)?;
        let [magic, attributes] = take::<2>(&mut entry)?.map(|byte| byte as i8);
        let timestamp = match magic {
            0 => -1,
            1 => i64::from_be_bytes(take(&mut entry)?),
            _ => return None,
        };
        let key = field(&mut entry)?;
        let value = field(&mut entry)?;
        if !entry.is_empty() {
            return None;
        }
        *rest = after;
        Some(Self { offset, magic, attributes: i16::from(attributes), timestamp, key, value })
    }

    fn codec(&self) -> Codec {
        Codec::of_bits(self.attributes)
    }
}

/// A length and as many bytes; the inner `None` is null.
fn field<'a>(rest: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    match i32::from_be_bytes(take(rest)?) {
        -1 => Some(None),
        length => {
            let (field, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            *rest = after;
            Some(Some(field))
        }
    }
}

/// Goes through an inner set; `None` if it is malformed. The checksum of an inner entry adds nothing: the wrapper's
/// covers its bytes.
fn for_each<'a>(set: &'a [u8], mut each: impl FnMut(&Message<'a>)) -> Option<()> {
    let mut rest = set;
    while !rest.is_empty() {
        each(&Message::read(&mut rest)?);
    }
    Some(())
}

fn offset_of(entry: &Bytes) -> i64 {
    entry.first_chunk::<8>().map_or(-1, |bytes| i64::from_be_bytes(*bytes))
}

/// CRC-32 (not Castagnoli's) over everything from the magic byte on.
fn verify(entry: &Bytes, offset: i64) -> Result<(), OpenError> {
    let mut rest = entry.get(LENGTH_OVERHEAD..).unwrap_or_default();
    let Some(stored) = take(&mut rest).map(u32::from_be_bytes) else {
        return Err(OpenError::LegacyMalformed { offset });
    };
    let computed = crc32fast::hash(rest);
    if stored == computed { Ok(()) } else { Err(OpenError::LegacyCrc { offset, stored, computed }) }
}
