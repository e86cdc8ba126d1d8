//! Record batches written by hand, so that any field can be wrong, and a line about each entry of an answer.

use bytes::{BufMut, Bytes, BytesMut};

use super::shown::Rename;

const HEADER: usize = 61;

#[derive(Debug, Clone)]
pub(super) struct Batch {
    pub(super) base_offset: i64,
    pub(super) leader_epoch: i32,
    pub(super) attributes: i16,
    pub(super) last_offset_delta: i32,
    pub(super) base_timestamp: i64,
    pub(super) max_timestamp: i64,
    pub(super) producer_id: i64,
    pub(super) producer_epoch: i16,
    pub(super) sequence: i32,
    pub(super) count: i32,
    pub(super) payload: Bytes,
    /// Written in place of the right one.
    pub(super) crc: Option<u32>,
}

/// A record of a batch; `None` is null.
#[derive(Debug, Clone)]
pub(super) struct Record {
    pub(super) offset_delta: i64,
    pub(super) timestamp_delta: i64,
    pub(super) key: Option<Bytes>,
    pub(super) value: Option<Bytes>,
}

pub(super) const GZIP: i16 = 1;
pub(super) const ZSTD: i16 = 4;
pub(super) const LOG_APPEND_TIME: i16 = 8;
pub(super) const TRANSACTIONAL: i16 = 16;
pub(super) const CONTROL: i16 = 32;
pub(super) const DELETE_HORIZON: i16 = 64;

impl Batch {
    /// Records `k0`/`v0`, `k1`/`v1`, a millisecond apart, without a producer.
    pub(super) fn of(count: i32, time: i64) -> Self {
        let records = (0..i64::from(count)).map(|at| Record::new(at, &format!("k{at}"), &format!("v{at}")));
        Self::holding(&records.collect::<Vec<_>>(), time)
    }

    pub(super) fn holding(records: &[Record], time: i64) -> Self {
        let mut payload = BytesMut::new();
        for record in records {
            record.write(&mut payload);
        }
        let count = i32::try_from(records.len()).expect("small batches");
        Self {
            base_offset: 0,
            leader_epoch: -1,
            attributes: 0,
            last_offset_delta: count - 1,
            base_timestamp: time,
            max_timestamp: time + records.iter().map(|record| record.timestamp_delta).max().unwrap_or(0),
            producer_id: -1,
            producer_epoch: -1,
            sequence: -1,
            count,
            payload: payload.freeze(),
            crc: None,
        }
    }

    pub(super) fn by(mut self, producer_id: i64, epoch: i16, sequence: i32) -> Self {
        (self.producer_id, self.producer_epoch, self.sequence) = (producer_id, epoch, sequence);
        self
    }

    pub(super) fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// The same bytes in a gzip frame that stores them.
    pub(super) fn gzip(mut self) -> Self {
        let length = u16::try_from(self.payload.len()).expect("small batches");
        let mut frame = BytesMut::from(&b"\x1f\x8b\x08\0\0\0\0\0\0\0\x01"[..]);
        frame.put_u16_le(length);
        frame.put_u16_le(!length);
        frame.put_slice(&self.payload);
        let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, &self.payload);
        frame.put_u32_le(u32::try_from(crc).expect("32 bits"));
        frame.put_u32_le(u32::from(length));
        self.payload = frame.freeze();
        self.attributes |= GZIP;
        self
    }

    /// The same bytes in a zstd frame with one raw block.
    pub(super) fn zstd(mut self) -> Self {
        let length = u32::try_from(self.payload.len()).expect("small batches");
        let mut frame = BytesMut::from(&b"\x28\xb5\x2f\xfd\xa0"[..]);
        frame.put_u32_le(length);
        frame.put_slice(&((length << 3) | 1).to_le_bytes()[..3]);
        frame.put_slice(&self.payload);
        self.payload = frame.freeze();
        self.attributes |= ZSTD;
        self
    }

    pub(super) fn encode(&self) -> Bytes {
        let mut checked = BytesMut::new();
        checked.put_i16(self.attributes);
        checked.put_i32(self.last_offset_delta);
        checked.put_i64(self.base_timestamp);
        checked.put_i64(self.max_timestamp);
        checked.put_i64(self.producer_id);
        checked.put_i16(self.producer_epoch);
        checked.put_i32(self.sequence);
        checked.put_i32(self.count);
        checked.put_slice(&self.payload);
        let mut batch = BytesMut::new();
        batch.put_i64(self.base_offset);
        batch.put_i32(i32::try_from(checked.len() + 9).expect("small batches"));
        batch.put_i32(self.leader_epoch);
        batch.put_i8(2);
        batch.put_u32(self.crc.unwrap_or_else(|| crc32c::crc32c(&checked)));
        batch.put_slice(&checked);
        batch.freeze()
    }
}

impl Record {
    pub(super) fn new(offset_delta: i64, key: &str, value: &str) -> Self {
        let bytes = |text: &str| Some(Bytes::copy_from_slice(text.as_bytes()));
        Self { offset_delta, timestamp_delta: offset_delta, key: bytes(key), value: bytes(value) }
    }

    /// Neither key nor value.
    pub(super) fn null(offset_delta: i64) -> Self {
        Self { offset_delta, timestamp_delta: 0, key: None, value: None }
    }

    fn write(&self, out: &mut BytesMut) {
        let mut body = BytesMut::new();
        body.put_i8(0);
        varint(&mut body, self.timestamp_delta);
        varint(&mut body, self.offset_delta);
        for part in [&self.key, &self.value] {
            varint(&mut body, part.as_ref().map_or(-1, |part| i64::try_from(part.len()).expect("small")));
            body.put_slice(part.as_deref().unwrap_or_default());
        }
        varint(&mut body, 0);
        varint(out, i64::try_from(body.len()).expect("small"));
        out.put_slice(&body);
    }
}

fn varint(out: &mut BytesMut, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest >= 0x80 {
        out.put_u8(u8::try_from(rest & 0x7f).expect("seven bits") | 0x80);
        rest >>= 7;
    }
    out.put_u8(u8::try_from(rest).expect("seven bits"));
}

/// One line for each entry of a fetched set; `rename` as for answers.
pub(super) fn describe(records: &[u8], rename: Rename<'_>) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = records;
    while let Some(length) = rest.get(8..12).map(|bytes| i32::from_be_bytes(bytes.try_into().expect("four"))) {
        let size = usize::try_from(length).expect("lengths are positive") + 12;
        let Some(entry) = rest.get(..size) else {
            lines.push(format!("cut: {} of {size} bytes", rest.len()));
            return lines;
        };
        rest = &rest[size..];
        lines.push(describe_entry(entry, rename));
    }
    lines
}

fn describe_entry(entry: &[u8], rename: Rename<'_>) -> String {
    let int = |at: usize, width: usize| {
        let negative = if entry[at] >= 0x80 { -1 } else { 0 };
        entry[at..at + width].iter().fold(negative, |value: i64, byte| (value << 8) | i64::from(*byte))
    };
    let magic = entry[16];
    if magic < 2 {
        // The header is offset, size, crc, magic, attributes, and a timestamp in magic 1.
        let time =
            if magic == 1 { format!(" time {}", rename("time", &int(18, 8).to_string())) } else { String::new() };
        // How well a codec compresses is its own affair.
        let size = if entry[17] & 7 == 0 { format!(" bytes {}", entry.len()) } else { String::new() };
        return format!("offset {} magic {magic} attributes {:#x}{time}{size}", int(0, 8), entry[17]);
    }
    let payload = &entry[HEADER..];
    let crc = u32::from_be_bytes(entry[17..21].try_into().expect("four bytes"));
    let crc = if crc32c::crc32c(&entry[21..]) == crc { "ok" } else { "WRONG" };
    let time = |at: usize| rename("time", &int(at, 8).to_string());
    let producer = rename("producer_id", &int(43, 8).to_string());
    format!(
        "offsets {}+{} count {} leader epoch {} attributes {:#x} times {}..{} producer {producer}/{} sequence {} payload {} bytes {:08x} crc {crc}",
        int(0, 8),
        int(23, 4),
        int(57, 4),
        int(12, 4),
        int(21, 2) & 0xffff,
        time(27),
        time(35),
        int(51, 2),
        int(53, 4),
        payload.len(),
        crc32c::crc32c(payload),
    )
}
