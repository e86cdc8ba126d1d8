//! Writes the formats 0 and 1, as brokers of 2.8 do for topics with an old `message.format.version`.
//!
//! Measured in broker-experiments, S12: what came uncompressed becomes an entry for each record, what came compressed a
//! wrapper. Headers and producer ids do not exist in these formats.

use bytes::Bytes;

use super::Stored;
use crate::batch::compression::compress;
use crate::batch::{Codec, Record};

/// Bytes before the ones that an entry's size counts.
const OVERHEAD: usize = 12;

/// The records of a client's batch in an old format, from `base_offset` on; `None` for what cannot be expressed there.
pub(super) fn converted(magic: i8, codec: Codec, records: &[Record], base_offset: i64) -> Option<Vec<Stored>> {
    let mut entries = Vec::with_capacity(records.len());
    for (offset, record) in (base_offset..).zip(records) {
        if !record.headers.is_empty() {
            return None;
        }
        // Offsets within a wrapper of format 1 count from its first record.
        let written = if magic == 1 && codec != Codec::None { offset.checked_sub(base_offset)? } else { offset };
        let bytes = entry(magic, written, 0, record.timestamp, record.key.as_deref(), record.value.as_deref())?;
        let max_timestamp = if magic == 1 { record.timestamp } else { -1 };
        entries.push(Stored { base_offset: offset, last_offset: offset, max_timestamp, magic, bytes });
    }
    if codec == Codec::None {
        return Some(entries);
    }
    let inner: Vec<u8> = entries.iter().flat_map(|entry| entry.bytes.iter().copied()).collect();
    let last_offset = entries.last()?.last_offset;
    let max_timestamp = entries.iter().map(|entry| entry.max_timestamp).max()?;
    let value = compress(codec, &inner).ok()?;
    let bytes = entry(magic, last_offset, code(codec)?, max_timestamp, None, Some(&value))?;
    Some(vec![Stored { base_offset, last_offset, max_timestamp, magic, bytes }])
}

fn code(codec: Codec) -> Option<u8> {
    match codec {
        Codec::None => Some(0),
        Codec::Gzip => Some(1),
        Codec::Snappy => Some(2),
        Codec::Lz4 => Some(3),
        // zstd needs format 2.
        Codec::Zstd | Codec::Unknown(_) => None,
    }
}

fn entry(
    magic: i8,
    offset: i64,
    attributes: u8,
    timestamp: i64,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
) -> Option<Bytes> {
    let mut covered = vec![magic.to_be_bytes()[0], attributes];
    if magic == 1 {
        covered.extend(timestamp.to_be_bytes());
    }
    for field in [key, value] {
        match field {
            None => covered.extend((-1_i32).to_be_bytes()),
            Some(bytes) => {
                covered.extend(i32::try_from(bytes.len()).ok()?.to_be_bytes());
                covered.extend_from_slice(bytes);
            }
        }
    }
    let size = i32::try_from(covered.len().checked_add(size_of::<u32>())?).ok()?;
    let mut bytes = Vec::with_capacity(covered.len() + size_of::<u32>() + OVERHEAD);
    bytes.extend(offset.to_be_bytes());
    bytes.extend(size.to_be_bytes());
    bytes.extend(crc32fast::hash(&covered).to_be_bytes());
    bytes.extend(covered);
    Some(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(timestamp: i64) -> Record {
        Record {
            offset: 0,
            timestamp,
            key: Some(Bytes::from_static(b"k")),
            value: Some(Bytes::from_static(b"v")),
            headers: Vec::new(),
        }
    }

    #[test]
    fn uncompressed_records_become_entries_and_compressed_ones_a_wrapper() {
        let records = [record(5), record(9)];
        let entries = converted(1, Codec::None, &records, 100).unwrap();
        let shape: Vec<_> = entries.iter().map(|e| (e.base_offset, e.last_offset, e.bytes.len())).collect();
        // 12 bytes, then 22 of format 1, then key and value.
        assert_eq!(shape, [(100, 100, 36), (101, 101, 36)]);
        let wrapper = converted(1, Codec::Gzip, &records, 100).unwrap();
        assert_eq!((wrapper.len(), wrapper[0].base_offset, wrapper[0].last_offset), (1, 100, 101));
        assert_eq!((wrapper[0].max_timestamp, wrapper[0].bytes[17]), (9, 1));
        let oldest = converted(0, Codec::None, &records, 0).unwrap();
        assert_eq!((oldest[1].bytes.len(), oldest[1].max_timestamp), (28, -1));
        // The check value of CRC-32.
        assert_eq!(crc32fast::hash(b"123456789"), 0xcbf4_3926);
    }
}
