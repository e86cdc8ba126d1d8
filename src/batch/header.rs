//! The 61 bytes in front of every record batch of format 2.

/// Length of the batch header in bytes; a batch without records is exactly this long.
pub const HEADER_LEN: usize = 61;

/// Bytes of base offset and batch length, which the batch length does not count.
pub(super) const LENGTH_OVERHEAD: usize = 12;

/// Fields of a batch header as they stand on the wire. Offsets of the fields: batch-forwarding, 1.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record the batch had when it was written.
    pub base_offset: i64,
    /// Bytes after this field, at least 49.
    pub batch_length: i32,
    /// Epoch of the leader that appended the batch.
    pub partition_leader_epoch: i32,
    /// Format, 2.
    pub magic: i8,
    /// CRC-32C over everything from the attributes on.
    pub crc: u32,
    /// See [`BatchHeader::codec`] and its neighbours.
    pub attributes: i16,
    /// Offset of the last record the batch had when it was written, counted from the base offset.
    pub last_offset_delta: i32,
    /// What the records' timestamps count from, in milliseconds since 1970; with a delete horizon that horizon.
    pub base_timestamp: i64,
    /// Largest timestamp, in milliseconds since 1970; with log append time the time of every record.
    pub max_timestamp: i64,
    /// Producer with idempotence, otherwise -1.
    pub producer_id: i64,
    /// Epoch of that producer, otherwise -1.
    pub producer_epoch: i16,
    /// Sequence of the first record, otherwise -1.
    pub base_sequence: i32,
    /// Records that are really there; fewer than the range says once a compaction removed some.
    pub records_count: i32,
}

/// How the records of a batch are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Codec {
    /// Not at all.
    None,
    /// gzip.
    Gzip,
    /// Snappy in the framing of the Java library.
    Snappy,
    /// LZ4 frames.
    Lz4,
    /// Zstandard; needs Produce 7 and Fetch 10.
    Zstd,
    /// 5 to 7, which no broker accepts.
    Unknown(u8),
}

impl Codec {
    /// What `attributes & 7` says of a batch or message of any format.
    pub(super) fn of_bits(attributes: i16) -> Self {
        match attributes & CODEC_BITS {
            0 => Self::None,
            1 => Self::Gzip,
            2 => Self::Snappy,
            3 => Self::Lz4,
            4 => Self::Zstd,
            other => Self::Unknown(other as u8),
        }
    }

    /// The attribute bits that say so.
    pub(crate) fn bits(self) -> i16 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Snappy => 2,
            Self::Lz4 => 3,
            Self::Zstd => 4,
            Self::Unknown(code) => i16::from(code) & CODEC_BITS,
        }
    }
}

/// Attribute bits 0 to 2.
pub(super) const CODEC_BITS: i16 = 0x07;
const LOG_APPEND_TIME_BIT: i16 = 0x08;
const TRANSACTIONAL_BIT: i16 = 0x10;
const CONTROL_BIT: i16 = 0x20;
const DELETE_HORIZON_BIT: i16 = 0x40;

impl BatchHeader {
    /// Reads the header at the start of `bytes`; `None` if there are fewer than 61. Nothing else is checked: that is
    /// for [`walk`](super::walk()).
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.first_chunk::<HEADER_LEN>()?.as_slice();
        Some(Self {
            base_offset: i64::from_be_bytes(take(&mut rest)?),
            batch_length: i32::from_be_bytes(take(&mut rest)?),
            partition_leader_epoch: i32::from_be_bytes(take(&mut rest)?),
            magic: i8::from_be_bytes(take(&mut rest)?),
            crc: u32::from_be_bytes(take(&mut rest)?),
            attributes: i16::from_be_bytes(take(&mut rest)?),
            last_offset_delta: i32::from_be_bytes(take(&mut rest)?),
            base_timestamp: i64::from_be_bytes(take(&mut rest)?),
            max_timestamp: i64::from_be_bytes(take(&mut rest)?),
            producer_id: i64::from_be_bytes(take(&mut rest)?),
            producer_epoch: i16::from_be_bytes(take(&mut rest)?),
            base_sequence: i32::from_be_bytes(take(&mut rest)?),
            records_count: i32::from_be_bytes(take(&mut rest)?),
        })
    }

    /// The header as it stands on the wire.
    pub fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        let mut rest = bytes.as_mut_slice();
        put(&mut rest, self.base_offset.to_be_bytes());
        put(&mut rest, self.batch_length.to_be_bytes());
        put(&mut rest, self.partition_leader_epoch.to_be_bytes());
        put(&mut rest, self.magic.to_be_bytes());
        put(&mut rest, self.crc.to_be_bytes());
        put(&mut rest, self.attributes.to_be_bytes());
        put(&mut rest, self.last_offset_delta.to_be_bytes());
        put(&mut rest, self.base_timestamp.to_be_bytes());
        put(&mut rest, self.max_timestamp.to_be_bytes());
        put(&mut rest, self.producer_id.to_be_bytes());
        put(&mut rest, self.producer_epoch.to_be_bytes());
        put(&mut rest, self.base_sequence.to_be_bytes());
        put(&mut rest, self.records_count.to_be_bytes());
        bytes
    }

    /// Size of the whole batch in bytes, header included: what `max.message.bytes` is compared with. 0 for a length
    /// that no batch can have.
    pub fn total_size(&self) -> usize {
        usize::try_from(self.batch_length).map_or(0, |length| length.saturating_add(LENGTH_OVERHEAD))
    }

    /// Last offset the batch covers, whether or not its record is still there.
    pub fn last_offset(&self) -> i64 {
        self.base_offset.saturating_add(i64::from(self.last_offset_delta))
    }

    /// The offset to go on from after this batch.
    pub fn next_offset(&self) -> i64 {
        self.last_offset().saturating_add(1)
    }

    /// The compression of the records.
    pub fn codec(&self) -> Codec {
        Codec::of_bits(self.attributes)
    }

    /// Part of a transaction: data, or its marker.
    pub fn is_transactional(&self) -> bool {
        self.attributes & TRANSACTIONAL_BIT != 0
    }

    /// Written by the broker itself, such as a transaction marker: never data. Ask [`AbortFilter`](super::AbortFilter)
    /// rather than this bit when deciding what to forward.
    pub fn is_control(&self) -> bool {
        self.attributes & CONTROL_BIT != 0
    }

    /// Every record's timestamp is [`max_timestamp`](Self::max_timestamp), set by the broker.
    pub fn is_log_append_time(&self) -> bool {
        self.attributes & LOG_APPEND_TIME_BIT != 0
    }

    /// A cleaner noted in the base timestamp when the batch's tombstones may go (KIP-534).
    pub fn has_delete_horizon(&self) -> bool {
        self.attributes & DELETE_HORIZON_BIT != 0
    }

    /// Compaction removed some of the records, but not all: no broker accepts such a batch as it is.
    pub fn is_thinned(&self) -> bool {
        self.records_count > 0 && i64::from(self.records_count) != i64::from(self.last_offset_delta).saturating_add(1)
    }

    /// Compaction removed every record and kept the header for the sake of the offset or the producer's sequence.
    pub fn is_empty(&self) -> bool {
        self.records_count == 0
    }
}

/// The next `N` bytes of `rest`, which moves past them.
pub(super) fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

/// Writes to the start of `rest`, which moves past what was written.
fn put<const N: usize>(rest: &mut &mut [u8], bytes: [u8; N]) {
    if let Some((head, tail)) = std::mem::take(rest).split_first_chunk_mut::<N>() {
        *head = bytes;
        *rest = tail;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::vectors;

    #[test]
    fn the_spec_example_reads_as_the_spec_says() {
        let bytes = vectors::hex(vectors::EXAMPLE_1_OLD);
        let header = BatchHeader::parse(&bytes).unwrap();
        assert_eq!(
            header,
            BatchHeader {
                base_offset: 1000,
                batch_length: 58,
                partition_leader_epoch: 7,
                magic: 2,
                crc: 0xe99b_8dd8,
                attributes: 0,
                last_offset_delta: 0,
                base_timestamp: 1_700_000_000_000,
                max_timestamp: 1_700_000_000_000,
                producer_id: -1,
                producer_epoch: -1,
                base_sequence: -1,
                records_count: 1,
            }
        );
        assert_eq!((header.total_size(), header.last_offset(), header.next_offset()), (70, 1000, 1001));
        assert_eq!(header.codec(), Codec::None);
        assert!(!header.is_thinned() && !header.is_empty() && !header.is_control() && !header.is_transactional());
        assert_eq!(header.to_bytes().as_slice(), bytes.get(..HEADER_LEN).unwrap());
    }

    #[test]
    fn attribute_bits_are_told_apart() {
        let bytes = vectors::hex(vectors::EXAMPLE_2_OLD_HEADER);
        let header = BatchHeader::parse(&bytes).unwrap();
        assert_eq!(header.codec(), Codec::Gzip);
        assert!(header.is_transactional() && header.is_log_append_time());
        assert!(!header.is_control() && !header.has_delete_horizon());
        let header = BatchHeader::parse(&vectors::hex(vectors::EXAMPLE_3_OLD_HEADER)).unwrap();
        assert_eq!(header.codec(), Codec::Zstd);
        assert!(header.has_delete_horizon() && !header.is_log_append_time());
        assert_eq!(header.total_size(), 1_048_576 + HEADER_LEN);
    }

    #[test]
    fn an_empty_retained_batch_is_empty_and_not_thinned() {
        let header = BatchHeader::parse(&vectors::hex(vectors::EMPTY_RETAINED)).unwrap();
        assert!(header.is_empty() && !header.is_thinned());
        assert_eq!((header.base_offset, header.last_offset(), header.total_size()), (100, 109, HEADER_LEN));
    }

    #[test]
    fn a_thinned_batch_has_fewer_records_than_its_range() {
        let mut header = BatchHeader::parse(&vectors::hex(vectors::EXAMPLE_2_OLD_HEADER)).unwrap();
        assert_eq!((header.last_offset_delta, header.records_count), (9, 10));
        assert!(!header.is_thinned());
        header.records_count = 7;
        assert!(header.is_thinned());
    }

    #[test]
    fn extreme_fields_do_not_overflow() {
        let header = BatchHeader::parse(&[0x7f; HEADER_LEN]).unwrap();
        assert_eq!(header.next_offset(), i64::from(0x7f7f_7f7f_i32) + 0x7f7f_7f7f_7f7f_7f7f + 1);
        let header = BatchHeader { base_offset: i64::MAX, last_offset_delta: i32::MAX, batch_length: -5, ..header };
        assert_eq!((header.next_offset(), header.total_size()), (i64::MAX, 0));
        assert_eq!(BatchHeader::parse(&[0; HEADER_LEN - 1]), None);
    }
}
