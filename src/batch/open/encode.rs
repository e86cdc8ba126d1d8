//! Builds batches of format 2 from opened records.

use bytes::Bytes;

use super::{OpenError, OpenRecord, OpenRecords};
use crate::batch::{
    ProducerIdentity, assemble,
    compression::compress,
    header::{BatchHeader, Codec, HEADER_LEN},
    varint::{length_of, put_long},
};

/// Where a batch ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Before it would become larger than so many bytes, but behind its first record at the earliest; behind the last
    /// record if there is no limit.
    Limit(Option<usize>),
    /// Behind so many records, at least 1.
    Records(i32),
}

/// A batch made of opened records.
#[derive(Debug, Clone)]
pub struct Encoded {
    /// The whole batch, header included.
    pub bytes: Bytes,
    /// Its header once more.
    pub head: [u8; HEADER_LEN],
    /// Records in it.
    pub records: i32,
    /// Source offset of its first record.
    pub first_offset: i64,
    /// Source offset behind its last record: what the rest of the source batch goes on from.
    pub next_offset: i64,
    /// Largest timestamp of its records.
    pub max_timestamp: i64,
    /// Records before which source offsets are missing: number within this batch, and source offset.
    pub gaps: Vec<(i32, i64)>,
}

/// The next batch from `records`, which move past what it holds; `None` if there are none left.
///
/// With a limit the *uncompressed* records are counted, since what a codec makes of them is known only afterwards: a
/// batch is then small enough whatever the codec does, and where it ends does not hang on the codec's version. Should it
/// come out too large all the same, it is made anew of half as many records.
///
/// # Errors
/// [`OpenError::Compress`], [`OpenError::TooLong`].
pub fn encode(
    records: &mut OpenRecords<'_>,
    cut: Cut,
    identity: ProducerIdentity,
    base_sequence: i32,
) -> Result<Option<Encoded>, OpenError> {
    let mut cut = cut;
    let limit = match cut {
        Cut::Limit(limit) => limit,
        Cut::Records(_) => None,
    };
    loop {
        let mut ahead = records.clone();
        let Some(encoded) = encode_once(&mut ahead, cut, identity, base_sequence)? else {
            return Ok(None);
        };
        if encoded.records > 1 && limit.is_some_and(|limit| encoded.bytes.len() > limit) {
            cut = Cut::Records(encoded.records / 2);
            continue;
        }
        *records = ahead;
        return Ok(Some(encoded));
    }
}

/// What a codec adds at most to data it cannot compress is far below a hundredth; the rest is frames and headers.
fn room_for_records(codec: Codec, limit: usize) -> usize {
    let room = limit.saturating_sub(HEADER_LEN);
    if codec == Codec::None { room } else { room.saturating_sub(room / 64).saturating_sub(64) }
}

fn encode_once(
    records: &mut OpenRecords<'_>,
    cut: Cut,
    identity: ProducerIdentity,
    base_sequence: i32,
) -> Result<Option<Encoded>, OpenError> {
    let Some(first) = records.peek() else {
        return Ok(None);
    };
    let codec = records.contents().codec;
    let offset = first.offset;
    let (room, count_max) = match cut {
        Cut::Limit(None) => (usize::MAX, i32::MAX),
        Cut::Limit(Some(limit)) => (room_for_records(codec, limit), i32::MAX),
        Cut::Records(count) => (usize::MAX, count.max(1)),
    };
    let mut plain = Vec::with_capacity(room.min(records.left_bytes()));
    let mut gaps = Vec::new();
    let mut count = 0_i32;
    let mut max_timestamp = i64::MIN;
    let mut expected = offset;
    while count < count_max
        && let Some(record) = records.peek()
    {
        if count > 0 && plain.len().saturating_add(length_with(&record, &first, count)) > room {
            break;
        }
        if record.offset != expected {
            gaps.push((count, record.offset));
        }
        put_record(&mut plain, &record, &first, count);
        max_timestamp = max_timestamp.max(record.timestamp);
        expected = record.offset.saturating_add(1);
        count = count.saturating_add(1);
        records.next();
    }
    let payload = match codec {
        Codec::None => plain,
        codec => compress(codec, &plain).map_err(|error| OpenError::Compress { offset, error })?,
    };
    let header = BatchHeader {
        base_offset: 0,
        batch_length: 0,
        partition_leader_epoch: -1,
        magic: 2,
        crc: 0,
        attributes: codec.bits(),
        last_offset_delta: count.saturating_sub(1),
        base_timestamp: first.timestamp,
        max_timestamp,
        producer_id: identity.producer_id,
        producer_epoch: identity.producer_epoch,
        base_sequence,
        records_count: count,
    };
    let batch = assemble(header, &payload).ok_or(OpenError::TooLong { offset })?;
    Ok(Some(Encoded {
        head: batch.header.to_bytes(),
        bytes: batch.bytes,
        records: count,
        first_offset: offset,
        next_offset: expected,
        max_timestamp,
        gaps,
    }))
}

/// Bytes of a record's content at its new place.
fn content_length(record: &OpenRecord<'_>, first: &OpenRecord<'_>, index: i32) -> usize {
    1_usize
        .saturating_add(length_of(record.timestamp.wrapping_sub(first.timestamp)))
        .saturating_add(length_of(i64::from(index)))
        .saturating_add(record.body.len())
}

fn length_with(record: &OpenRecord<'_>, first: &OpenRecord<'_>, index: i32) -> usize {
    let content = content_length(record, first, index);
    content.saturating_add(length_of(i64::try_from(content).unwrap_or(i64::MAX)))
}

fn put_record(plain: &mut Vec<u8>, record: &OpenRecord<'_>, first: &OpenRecord<'_>, index: i32) {
    // A record was shorter than 2 GiB where it came from; the batch's own length is checked at the end.
    put_long(plain, i64::try_from(content_length(record, first, index)).unwrap_or(i64::MAX));
    plain.push(record.attributes);
    put_long(plain, record.timestamp.wrapping_sub(first.timestamp));
    put_long(plain, i64::from(index));
    plain.extend_from_slice(record.body);
}
