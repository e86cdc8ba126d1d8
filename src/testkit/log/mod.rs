//! The log of one partition: what a broker stores, checks and forgets.
//!
//! Appending is in `append`, the memory of producers in `producers`, leader epochs in `epochs`, cleaning in `compact`.
//! Everything is in memory; offsets, time and rules come in as parameters.

mod append;
mod compact;
mod contents;
mod epochs;
mod legacy;
mod producers;

use bytes::{Bytes, BytesMut};

pub(crate) use self::append::single_batch;
pub use self::append::{AppendRules, Appended, Refused};
pub use self::compact::{Cleaned, Cleaning};
use self::epochs::LeaderEpochs;
use self::producers::Producers;
pub use self::producers::{ProducerState, Remembered};
use crate::batch::{Batch, BatchHeader, ControlType, Entry, assemble, records, walk};
use crate::protocol::ErrorCode;

/// One batch, or one entry of the formats before, as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// First offset it covers.
    pub base_offset: i64,
    /// Last offset it covers.
    pub last_offset: i64,
    /// Largest timestamp of its records, -1 if there is none.
    pub max_timestamp: i64,
    /// Format: 0, 1 or 2.
    pub magic: i8,
    /// All of it, as Fetch returns it.
    pub bytes: Bytes,
}

impl Stored {
    /// The batch; `None` for an entry of an old format.
    #[must_use]
    pub fn batch(&self) -> Option<Batch> {
        match walk(self.bytes.clone()).next() {
            Some(Ok(Entry::Batch(batch))) => Some(batch),
            _ => None,
        }
    }
}

/// A transaction that was aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aborted {
    /// Its producer.
    pub producer_id: i64,
    /// Offset of its first record.
    pub first_offset: i64,
    /// Offset of its marker.
    pub last_offset: i64,
}

/// What a read returned.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Read {
    /// Whole batches, the last one perhaps cut off.
    pub records: Bytes,
    /// Aborted transactions that overlap what was read.
    pub aborted: Vec<Aborted>,
}

/// The log of one partition.
#[derive(Debug, Clone, Default)]
pub struct Log {
    entries: Vec<Stored>,
    start_offset: i64,
    end_offset: i64,
    bytes: usize,
    epochs: LeaderEpochs,
    producers: Producers,
    aborted: Vec<Aborted>,
}

impl Log {
    /// Everything stored, in order.
    #[must_use]
    pub fn entries(&self) -> &[Stored] {
        &self.entries
    }

    /// First offset that can be read.
    #[must_use]
    pub fn start_offset(&self) -> i64 {
        self.start_offset
    }

    /// The next offset to be written.
    #[must_use]
    pub fn end_offset(&self) -> i64 {
        self.end_offset
    }

    /// Bytes stored.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes
    }

    /// State of every producer that is still remembered, by id.
    pub fn producers(&self) -> impl Iterator<Item = (i64, &ProducerState)> {
        self.producers.iter()
    }

    /// State of one producer.
    #[must_use]
    pub fn producer(&self, producer_id: i64) -> Option<&ProducerState> {
        self.producers.get(producer_id)
    }

    /// A leader begins to write.
    pub fn begin_epoch(&mut self, epoch: i32) {
        self.epochs.begin(epoch, self.end_offset);
    }

    /// The epoch under which an offset was written, -1 if unknown.
    #[must_use]
    pub fn epoch_at(&self, offset: i64) -> i32 {
        self.epochs.at(offset).unwrap_or(-1)
    }

    /// Epoch and end offset for a client that read under `epoch`; (-1, -1) if that is not known.
    #[must_use]
    pub fn end_of_epoch(&self, epoch: i32) -> (i32, i64) {
        self.epochs.end_of(epoch, self.end_offset)
    }

    /// Up to where every transaction has ended, at most `high_watermark`.
    #[must_use]
    pub fn last_stable_offset(&self, high_watermark: i64) -> i64 {
        let open = self.producers.first_open();
        let ending = if high_watermark < self.end_offset { self.first_ending(high_watermark) } else { None };
        [open, ending].into_iter().flatten().fold(high_watermark, i64::min)
    }

    /// The first record of the transactions whose marker is not replicated yet: for readers they are still open.
    fn first_ending(&self, high_watermark: i64) -> Option<i64> {
        let headers = || self.entries.iter().filter_map(|entry| BatchHeader::parse(&entry.bytes));
        let markers = headers().filter(|header| header.is_control() && header.base_offset >= high_watermark);
        let first = |marker: BatchHeader| {
            let of_its_producer =
                headers().filter(|header| header.is_transactional() && header.producer_id == marker.producer_id);
            let mut first = None;
            for header in of_its_producer.take_while(|header| header.base_offset < marker.base_offset) {
                // An earlier marker ends an earlier transaction.
                first = if header.is_control() { None } else { first.or(Some(header.base_offset)) };
            }
            first
        };
        markers.filter_map(first).min()
    }

    /// Forgets producers by the age of their newest timestamp.
    pub fn expire_producers(&mut self, wall_ms: i64, expiration_ms: i64) {
        self.producers.expire(wall_ms, expiration_ms);
    }

    /// The leader starts anew: one batch for each producer is remembered, old ones not at all (broker-experiments, S2).
    pub fn restart(&mut self, wall_ms: i64, expiration_ms: i64) {
        self.producers.restart();
        self.producers.expire(wall_ms, expiration_ms);
    }

    /// Bytes from `fetch_offset`, all below `upper_bound`.
    ///
    /// A slice as a broker takes it from its file: it starts with the batch that holds the offset, and may end in the
    /// middle of one. With `whole_first` that first batch is returned whole even if it is larger than `bytes_max`;
    /// without, nothing is returned then.
    #[must_use]
    pub fn read(&self, fetch_offset: i64, upper_bound: i64, bytes_max: usize, whole_first: bool) -> Read {
        let first = self.entries.partition_point(|entry| entry.last_offset < fetch_offset);
        let readable = self.entries.get(first..).unwrap_or_default();
        let mut room = bytes_max;
        let mut parts: Vec<Bytes> = Vec::new();
        let mut next_offset = fetch_offset;
        for entry in readable.iter().take_while(|entry| entry.base_offset < upper_bound) {
            let size = entry.bytes.len();
            if size > room {
                match (parts.is_empty(), whole_first) {
                    (true, true) => parts.push(entry.bytes.clone()),
                    (true, false) => return Read::default(),
                    (false, _) => parts.push(entry.bytes.slice(..room)),
                }
                next_offset = entry.last_offset.saturating_add(1);
                break;
            }
            room -= size;
            parts.push(entry.bytes.clone());
            next_offset = entry.last_offset.saturating_add(1);
        }
        let aborted = self
            .aborted
            .iter()
            .filter(|aborted| aborted.last_offset >= fetch_offset && aborted.first_offset < next_offset)
            .copied()
            .collect();
        Read { records: join(parts), aborted }
    }

    /// Bytes that a read from `fetch_offset` could return, counted up to `enough`.
    #[must_use]
    pub fn readable_bytes(&self, fetch_offset: i64, upper_bound: i64, enough: usize) -> usize {
        let first = self.entries.partition_point(|entry| entry.last_offset < fetch_offset);
        let mut sum: usize = 0;
        for entry in self.entries.get(first..).unwrap_or_default() {
            if sum >= enough || entry.base_offset >= upper_bound {
                break;
            }
            sum = sum.saturating_add(entry.bytes.len());
        }
        sum.min(enough)
    }

    /// First record whose timestamp is at least `timestamp`, below `upper_bound`: its timestamp and offset.
    #[must_use]
    pub fn first_since(&self, timestamp: i64, upper_bound: i64) -> Option<(i64, i64)> {
        let candidates = self.entries.iter().filter(|entry| entry.max_timestamp >= timestamp);
        for entry in candidates.take_while(|entry| entry.base_offset < upper_bound) {
            let found = timestamps(entry)
                .into_iter()
                .find(|(record, offset)| *record >= timestamp && *offset >= self.start_offset && *offset < upper_bound);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// The record with the largest timestamp below `upper_bound`, the first of several.
    #[must_use]
    pub fn newest(&self, upper_bound: i64) -> Option<(i64, i64)> {
        let readable = self.entries.iter().take_while(|entry| entry.base_offset < upper_bound);
        let newest = readable.map(|entry| entry.max_timestamp).max()?;
        self.first_since(newest, upper_bound)
    }

    /// Moves the start of the log, as DeleteRecords does; batches wholly before it are dropped.
    pub fn delete_before(&mut self, offset: i64) {
        self.start_offset = self.start_offset.max(offset.min(self.end_offset));
        let kept = self.entries.partition_point(|entry| entry.last_offset < self.start_offset);
        for entry in self.entries.drain(..kept) {
            self.bytes = self.bytes.saturating_sub(entry.bytes.len());
        }
        self.epochs.trim(self.start_offset);
        let start = self.start_offset;
        self.aborted.retain(|aborted| aborted.last_offset >= start);
    }

    /// Cuts the log off, as an unclean election does. A batch that reaches over `offset` goes with all of its records.
    pub fn truncate(&mut self, offset: i64) {
        let kept = self.entries.partition_point(|entry| entry.last_offset < offset);
        self.entries.truncate(kept);
        self.bytes = self.entries.iter().map(|entry| entry.bytes.len()).sum();
        self.end_offset = self.entries.last().map_or(self.start_offset, |entry| entry.last_offset.saturating_add(1));
        let end = self.end_offset;
        self.epochs.truncate(end);
        self.producers.truncate(end);
        self.aborted.retain(|aborted| aborted.last_offset < end);
    }

    /// Writes a transaction marker.
    ///
    /// # Errors
    /// 47 or 52 if a newer epoch of the producer or of the coordinator has written.
    pub fn append_marker(&mut self, marker: &Marker, wall_ms: i64, leader_epoch: i32) -> Result<i64, ErrorCode> {
        self.producers.check_marker(marker.producer_id, marker.producer_epoch, marker.coordinator_epoch)?;
        let offset = self.end_offset;
        let bytes = marker.encode(offset, wall_ms, leader_epoch);
        self.push(Stored { base_offset: offset, last_offset: offset, max_timestamp: wall_ms, magic: 2, bytes });
        let began = self.producers.ended(marker.producer_id, marker.producer_epoch, marker.coordinator_epoch, wall_ms);
        if let Some(first_offset) = began
            && marker.kind == ControlType::Abort
        {
            self.aborted.push(Aborted { producer_id: marker.producer_id, first_offset, last_offset: offset });
        }
        Ok(offset)
    }

    /// Appends bytes as they are, with the offsets they carry: for logs of old brokers and for holes.
    ///
    /// Producers and transactions are not followed. Entries below the end of the log are left out.
    pub fn append_raw(&mut self, bytes: Bytes) {
        for entry in walk(bytes).map_while(Result::ok) {
            let stored = match entry {
                Entry::Batch(batch) => Stored {
                    base_offset: batch.header.base_offset,
                    last_offset: batch.header.last_offset(),
                    max_timestamp: batch.header.max_timestamp,
                    magic: 2,
                    bytes: batch.bytes,
                },
                Entry::Legacy { base_offset, magic, bytes: entry } => {
                    // The offset of a compressed entry is that of its last record.
                    let max_timestamp = entry.get(LEGACY_TIMESTAMP).filter(|_| magic == 1).map_or(-1, big_endian);
                    Stored {
                        base_offset: self.end_offset.min(base_offset),
                        last_offset: base_offset,
                        max_timestamp,
                        magic,
                        bytes: entry,
                    }
                }
            };
            if stored.last_offset >= self.end_offset {
                self.push(stored);
            }
        }
    }

    fn push(&mut self, entry: Stored) {
        if self.entries.is_empty() && self.end_offset == 0 && entry.base_offset > 0 {
            self.start_offset = entry.base_offset;
        }
        self.end_offset = entry.last_offset.saturating_add(1);
        self.bytes = self.bytes.saturating_add(entry.bytes.len());
        self.entries.push(entry);
    }
}

/// Timestamp field of an entry of format 1.
const LEGACY_TIMESTAMP: std::ops::Range<usize> = 18..26;

fn big_endian(bytes: &[u8]) -> i64 {
    bytes.first_chunk().map_or(-1, |bytes| i64::from_be_bytes(*bytes))
}

fn join(mut parts: Vec<Bytes>) -> Bytes {
    if parts.len() == 1 {
        return parts.pop().unwrap_or_default();
    }
    let mut joined = BytesMut::with_capacity(parts.iter().map(Bytes::len).sum());
    for part in parts {
        joined.extend_from_slice(&part);
    }
    joined.freeze()
}

/// Timestamp and offset of each record; of the whole entry where its records cannot be read.
fn timestamps(entry: &Stored) -> Vec<(i64, i64)> {
    let opened = entry.batch().and_then(|batch| {
        let payload = contents::plain(&batch)?;
        records(&compact::uncompressed(&batch, &payload)).ok()
    });
    match opened {
        Some(records) => records.flatten().map(|record| (record.timestamp, record.offset)).collect(),
        None => vec![(entry.max_timestamp, entry.base_offset)],
    }
}

/// A transaction marker to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker {
    /// Whose transaction ends.
    pub producer_id: i64,
    /// Under which epoch.
    pub producer_epoch: i16,
    /// Epoch of the coordinator.
    pub coordinator_epoch: i32,
    /// Commit or abort.
    pub kind: ControlType,
}

impl Marker {
    /// The 78 bytes of batch-forwarding 1.3.
    fn encode(&self, offset: i64, wall_ms: i64, leader_epoch: i32) -> Bytes {
        let kind: i16 = match self.kind {
            ControlType::Abort => 0,
            ControlType::Commit => 1,
            ControlType::Other(kind) => kind,
        };
        // Length 16, no attributes, deltas 0, a key of 4 bytes (version 0, kind), a value of 6 (version 0, coordinator
        // epoch), no headers; lengths are zigzag varints.
        let mut record = vec![0x20, 0, 0, 0, 0x08, 0, 0];
        record.extend(kind.to_be_bytes());
        record.extend([0x0c, 0, 0]);
        record.extend(self.coordinator_epoch.to_be_bytes());
        record.push(0);
        let header = BatchHeader {
            base_offset: offset,
            batch_length: 66,
            partition_leader_epoch: leader_epoch,
            magic: 2,
            crc: 0,
            attributes: 0x30,
            last_offset_delta: 0,
            base_timestamp: wall_ms,
            max_timestamp: wall_ms,
            producer_id: self.producer_id,
            producer_epoch: self.producer_epoch,
            base_sequence: -1,
            records_count: 1,
        };
        with_crc(header, &record)
    }
}

/// A whole batch with its CRC.
fn with_crc(header: BatchHeader, payload: &[u8]) -> Bytes {
    // Logs are bounded far below the length that a batch cannot have.
    assemble(header, payload).map(|batch| batch.bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests;
