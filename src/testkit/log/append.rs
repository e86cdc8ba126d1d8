//! What a leader does with a batch that a client sends: check, stamp, remember, store.
//!
//! Order and codes of the checks: batch-forwarding 1.4 and 2.2, broker-experiments S1 and S2.

use bytes::Bytes;

use super::compact::uncompressed;
use super::contents::{RawRecord, packed, plain};
use super::legacy::converted;
use super::producers::Candidate;
use super::{Log, Stored, with_crc};
use crate::batch::{Batch, BatchHeader, Codec, Entry, HEADER_LEN, Record, WalkFault, assemble, records, walk};
use crate::protocol::ErrorCode;
use crate::testkit::BrokerVersion;

/// The settings of a topic that an append obeys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendRules {
    /// Whose rules.
    pub version: BrokerVersion,
    /// `message.timestamp.type=LogAppendTime`.
    pub log_append_time: bool,
    /// `max.message.bytes`: the largest batch.
    pub message_bytes_max: usize,
    /// `segment.bytes`.
    pub segment_bytes: usize,
    /// `cleanup.policy` contains `compact`.
    pub compacted: bool,
    /// How old a record may be, in milliseconds.
    pub timestamp_before_max_ms: i64,
    /// How far in the future it may be, in milliseconds.
    pub timestamp_after_max_ms: i64,
    /// `compression.type`; `None` keeps the producer's.
    pub compression: Option<Codec>,
    /// `message.format.version` of 2.8.2 below 0.11: 0 or 1.
    pub old_format: Option<i8>,
}

/// What became of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Offset of its first record.
    pub base_offset: i64,
    /// The time the answer carries: -1 for a fresh batch of a CreateTime topic.
    pub log_append_time: i64,
    /// It was in the log already; nothing was written.
    pub is_duplicate: bool,
}

/// Why a batch was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The code of the answer.
    pub code: ErrorCode,
    /// The records at fault by their number in the batch (Produce 8 and newer).
    pub records: Vec<(i32, &'static str)>,
    /// What is wrong. Brokers say it (Produce 8 and newer) only beside [`Self::records`].
    pub message: Option<&'static str>,
    /// Refused as late as at the log: the answer then names the log's start.
    pub by_log: bool,
}

impl From<ErrorCode> for Refused {
    fn from(code: ErrorCode) -> Self {
        Self { code, records: Vec::new(), message: None, by_log: false }
    }
}

fn refuse(code: ErrorCode, message: &'static str) -> Refused {
    Refused { code, records: Vec::new(), message: Some(message), by_log: false }
}

/// The one batch of a partition's entry in a produce request.
///
/// # Errors
/// 87 if there is none, more than one, or one of an old format; 2 if its length is impossible.
pub(crate) fn single_batch(bytes: Bytes) -> Result<Batch, Refused> {
    let mut entries = walk(bytes.clone());
    let first = match entries.next() {
        None => return Err(refuse(ErrorCode::INVALID_RECORD, "the entry holds no complete batch")),
        Some(Err(error)) => match error.fault {
            WalkFault::Length(_) | WalkFault::Magic(_) => return Err(ErrorCode::CORRUPT_MESSAGE.into()),
            // The walk is stricter than the length checks: these headers are for the validator to judge.
            WalkFault::Offsets | WalkFault::RecordsCount(_) | WalkFault::ControlType => return lenient(&bytes),
        },
        Some(Ok(Entry::Legacy { .. })) => {
            return Err(refuse(ErrorCode::INVALID_RECORD, "only batches of format 2 are accepted"));
        }
        Some(Ok(Entry::Batch(batch))) => batch,
    };
    match entries.next() {
        None => Ok(first),
        Some(_) => Err(refuse(ErrorCode::INVALID_RECORD, "exactly one batch is accepted in an entry")),
    }
}

/// A batch whose header the walk does not accept.
fn lenient(bytes: &Bytes) -> Result<Batch, Refused> {
    let header = BatchHeader::parse(bytes).ok_or(ErrorCode::CORRUPT_MESSAGE)?;
    let size = header.total_size().min(bytes.len());
    Ok(Batch { header, bytes: bytes.slice(..size) })
}

impl Log {
    /// Appends the batch of a client.
    ///
    /// # Errors
    /// [`Refused`]; nothing was changed.
    pub(crate) fn append(
        &mut self,
        batch: &Batch,
        rules: &AppendRules,
        wall_ms: i64,
        leader_epoch: i32,
    ) -> Result<Appended, Refused> {
        self.try_append(batch, rules, wall_ms, leader_epoch).map_err(|refused| {
            // Kafka takes these three for the client's own fault and does not look at the log any more.
            let early = [ErrorCode::CORRUPT_MESSAGE, ErrorCode::MESSAGE_TOO_LARGE, ErrorCode::RECORD_LIST_TOO_LARGE];
            Refused { by_log: !early.contains(&refused.code), ..refused }
        })
    }

    fn try_append(
        &mut self,
        batch: &Batch,
        rules: &AppendRules,
        wall_ms: i64,
        leader_epoch: i32,
    ) -> Result<Appended, Refused> {
        check_header(batch, rules)?;
        let opened = Opened::new(batch)?;
        let max_timestamp = check_records(batch, &opened, rules, wall_ms)?;
        let codec = rules.compression.unwrap_or_else(|| batch.header.codec());
        let in_place = codec == batch.header.codec();
        // The broker cannot rebuild what it would have to read again (batch-forwarding 2.3a).
        if in_place && codec != Codec::None && !opened.is_dense() {
            return Err(ErrorCode::UNKNOWN_SERVER_ERROR.into());
        }
        let rebuilt = if in_place { None } else { Some(rebuild(batch, &opened, codec)?) };
        let batch = rebuilt.as_ref().unwrap_or(batch);
        if batch.bytes.len() > rules.message_bytes_max {
            return Err(ErrorCode::MESSAGE_TOO_LARGE.into());
        }
        if batch.bytes.len() > rules.segment_bytes {
            return Err(ErrorCode::RECORD_LIST_TOO_LARGE.into());
        }
        let header = &batch.header;
        let candidate = Candidate {
            producer_id: header.producer_id,
            epoch: header.producer_epoch,
            first_sequence: header.base_sequence,
            records: header.records_count,
            is_transactional: header.is_transactional(),
        };
        // -1 and below are "no producer id" (broker-experiments, S1).
        let has_producer = header.producer_id >= 0;
        if has_producer && let Some(known) = self.producers.check(&candidate)? {
            let log_append_time = known.timestamp;
            return Ok(Appended { base_offset: known.base_offset, log_append_time, is_duplicate: true });
        }
        let base_offset = self.end_offset;
        if let Some(magic) = rules.old_format {
            let entries =
                converted(magic, codec, &opened.records, base_offset).ok_or(ErrorCode::UNKNOWN_SERVER_ERROR)?;
            entries.into_iter().for_each(|entry| self.push(entry));
            return Ok(Appended { base_offset, log_append_time: -1, is_duplicate: false });
        }
        let stored = stamp(batch, rules, max_timestamp, base_offset, wall_ms, leader_epoch);
        let timestamp = stored.max_timestamp;
        self.push(stored);
        if self.epochs.latest().is_none_or(|latest| latest < leader_epoch) {
            self.epochs.begin(leader_epoch, base_offset);
        }
        if has_producer {
            self.producers.appended(&candidate, base_offset, timestamp);
        }
        let log_append_time = if rules.log_append_time { wall_ms } else { -1 };
        Ok(Appended { base_offset, log_append_time, is_duplicate: false })
    }
}

fn check_header(batch: &Batch, rules: &AppendRules) -> Result<(), Refused> {
    let header = &batch.header;
    if header.base_offset != 0 {
        return Err(refuse(ErrorCode::INVALID_RECORD, "the base offset of a client's batch must be 0"));
    }
    if batch.bytes.len() > rules.message_bytes_max {
        return Err(ErrorCode::MESSAGE_TOO_LARGE.into());
    }
    if batch.verify_crc().is_err() {
        return Err(ErrorCode::CORRUPT_MESSAGE.into());
    }
    if matches!(header.codec(), Codec::Unknown(_)) {
        return Err(ErrorCode::UNKNOWN_SERVER_ERROR.into());
    }
    if header.last_offset_delta < 0 {
        return Err(refuse(ErrorCode::INVALID_RECORD, "the range of offsets is negative"));
    }
    if header.records_count <= 0 {
        return Err(refuse(ErrorCode::INVALID_RECORD, "the batch holds no records"));
    }
    if header.is_thinned() {
        return Err(refuse(ErrorCode::INVALID_RECORD, "the batch has another number of records than of offsets"));
    }
    if header.is_control() {
        return Err(refuse(ErrorCode::INVALID_RECORD, "clients must not write control batches"));
    }
    if header.producer_id >= 0 && header.base_sequence < 0 {
        return Err(refuse(ErrorCode::INVALID_RECORD, "a batch with a producer id needs a sequence"));
    }
    if rules.old_format.is_some() && header.producer_id >= 0 {
        return Err(ErrorCode::UNSUPPORTED_FOR_MESSAGE_FORMAT.into());
    }
    Ok(())
}

/// The records of a batch, read.
struct Opened {
    payload: Bytes,
    records: Vec<Record>,
}

impl Opened {
    fn new(batch: &Batch) -> Result<Self, Refused> {
        // A decoder's fault is a fault of the broker's, as far as the answer tells.
        let payload = plain(batch).ok_or(ErrorCode::UNKNOWN_SERVER_ERROR)?;
        let malformed = || refuse(ErrorCode::INVALID_RECORD, "a record does not follow the format");
        let read = records(&uncompressed(batch, &payload)).map_err(|_| malformed())?;
        let records = read.collect::<Result<Vec<_>, _>>().map_err(|_| malformed())?;
        Ok(Self { payload, records })
    }

    /// The records' offsets count 0, 1, 2 …
    fn is_dense(&self) -> bool {
        (0..).zip(RawRecord::all(&self.payload)).all(|(expected, record)| record.offset_delta() == expected)
    }
}

/// The batch in the topic's codec: times and offsets count from its first record.
fn rebuild(batch: &Batch, opened: &Opened, codec: Codec) -> Result<Batch, Refused> {
    let first = RawRecord::all(&opened.payload).next().map_or(0, |record| record.timestamp_delta());
    let mut payload = Vec::with_capacity(opened.payload.len());
    for (offset_delta, record) in (0..).zip(RawRecord::all(&opened.payload)) {
        record.write_at(&mut payload, first.wrapping_neg(), offset_delta);
    }
    let payload = packed(codec, payload).ok_or(ErrorCode::UNKNOWN_SERVER_ERROR)?;
    let header = BatchHeader {
        attributes: (batch.header.attributes & KEPT_BITS) | codec.bits(),
        base_timestamp: batch.header.base_timestamp.wrapping_add(first),
        ..batch.header
    };
    Ok(assemble(header, &payload).ok_or(ErrorCode::MESSAGE_TOO_LARGE)?)
}

/// Looks at every record; returns the largest timestamp they have.
fn check_records(batch: &Batch, opened: &Opened, rules: &AppendRules, wall_ms: i64) -> Result<i64, Refused> {
    let header = &batch.header;
    // The bit is the broker's to set. Brokers of 3.x and 4.x let it pass where they would not set it themselves.
    let refuses_bit = rules.log_append_time || rules.version == BrokerVersion::V2_8_2;
    if header.is_log_append_time() && refuses_bit {
        let records = (0..header.records_count).map(|index| (index, "log append time must not be set")).collect();
        let message = Some("one or more records have a timestamp type that clients must not set");
        return Err(Refused { code: ErrorCode::INVALID_TIMESTAMP, records, message, by_log: true });
    }
    let mut times = Vec::new();
    let mut without_key = Vec::new();
    for (index, record) in (0..).zip(&opened.records) {
        if rules.compacted && record.key.is_none() {
            without_key.push((index, "a compacted topic cannot hold records without a key"));
        }
        times.push((index, record.timestamp));
    }
    if !without_key.is_empty() {
        let message = Some("one or more records have been rejected");
        return Err(Refused { code: ErrorCode::INVALID_RECORD, records: without_key, message, by_log: true });
    }
    check_timestamps(times.iter().copied(), rules, wall_ms)?;
    if header.is_log_append_time() {
        // Kept as the client wrote it, although no record has it (batch-forwarding 2.3c).
        return Ok(header.max_timestamp);
    }
    Ok(times.iter().map(|(_, timestamp)| *timestamp).max().unwrap_or(-1))
}

fn check_timestamps(
    times: impl IntoIterator<Item = (i32, i64)>,
    rules: &AppendRules,
    wall_ms: i64,
) -> Result<(), Refused> {
    if rules.log_append_time {
        return Ok(());
    }
    let earliest = wall_ms.saturating_sub(rules.timestamp_before_max_ms);
    let latest = wall_ms.saturating_add(rules.timestamp_after_max_ms);
    let records: Vec<_> = times
        .into_iter()
        .filter(|(_, timestamp)| *timestamp != -1 && !(earliest..=latest).contains(timestamp))
        .map(|(index, _)| (index, "the timestamp is too far from the broker's clock"))
        .collect();
    if records.is_empty() {
        return Ok(());
    }
    let message = Some("one or more records have been rejected due to invalid timestamp");
    Err(Refused { code: ErrorCode::INVALID_TIMESTAMP, records, message, by_log: true })
}

/// The batch as it is stored: offsets, leader epoch and time are the broker's; the CRC changes only with a byte that
/// it covers.
fn stamp(
    batch: &Batch,
    rules: &AppendRules,
    max_timestamp: i64,
    base_offset: i64,
    wall_ms: i64,
    leader_epoch: i32,
) -> Stored {
    let sent = batch.header;
    let mut header = BatchHeader { base_offset, partition_leader_epoch: leader_epoch, ..sent };
    header.max_timestamp = if rules.log_append_time { wall_ms } else { max_timestamp };
    if rules.log_append_time != sent.is_log_append_time() {
        // Rewritten from their meaning: bits without one vanish.
        header.attributes =
            (sent.attributes & MEANT_BITS) | if rules.log_append_time { LOG_APPEND_TIME_BIT } else { 0 };
    }
    let bytes = if (header.attributes, header.max_timestamp) == (sent.attributes, sent.max_timestamp) {
        let mut bytes = Vec::with_capacity(batch.bytes.len());
        bytes.extend_from_slice(&header.to_bytes());
        bytes.extend_from_slice(batch.bytes.get(HEADER_LEN..).unwrap_or_default());
        bytes.into()
    } else {
        with_crc(header, batch.bytes.get(HEADER_LEN..).unwrap_or_default())
    };
    Stored { base_offset, last_offset: header.last_offset(), max_timestamp: header.max_timestamp, magic: 2, bytes }
}

const LOG_APPEND_TIME_BIT: i16 = 0x08;
/// Log append time and transactional: what a rebuilt batch takes over.
const KEPT_BITS: i16 = 0x18;
/// Codec, transactional, control, delete horizon.
const MEANT_BITS: i16 = 0x77;
