//! Writes a Produce request while its batches come in, each under a new header.
//!
//! A request of a thousand small batches costs more in the encoding than in the sending if every batch is first noted
//! and later encoded, when it has left the cache. So this one message is framed by hand: what stands around a batch is
//! written at once, a small batch is copied behind it, and a large one is kept by reference. No payload byte of a large
//! batch is touched. The tests hold every version against the crate's own encoding.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::ApiKey;

use super::ids::{TopicName, TopicPartition};
use super::request::EncodeError;

/// Bytes at the start of a record batch that are replaced: the whole batch header (`batch::HEADER_LEN`).
pub const SEALED_HEAD_LEN: usize = 61;

/// Below this size in bytes a batch is copied: measured, a copy costs less there than one more segment in the vectored
/// write.
const COPY_BELOW: usize = 4096;

/// The versions whose layout is known here.
const VERSIONS: std::ops::RangeInclusive<i16> = 3..=ProduceWriter::VERSION_MAX;
/// First version with varint lengths and tagged fields.
const FLEXIBLE_FROM: i16 = 9;

/// The answer comes when all replicas in sync have the batches.
const ACKS_ALL: i16 = -1;

/// Room for what stands before the partitions of one topic, and for a partition and the header in front of each payload
/// that is kept by reference, in bytes.
const FRONT_CAPACITY: usize = 256;
const FRONT_CAPACITY_PER_CUT: usize = 80;

/// A batch in the frame it came in.
#[derive(Debug, Clone, Copy)]
pub struct FrameSlice<'a> {
    frame: &'a Bytes,
    bytes: &'a [u8],
}

impl<'a> FrameSlice<'a> {
    /// `bytes` are part of `frame`.
    #[must_use]
    pub fn new(frame: &'a Bytes, bytes: &'a [u8]) -> Self {
        Self { frame, bytes }
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The same, counted as a reference to the frame.
    #[must_use]
    pub fn to_bytes(self) -> Bytes {
        self.frame.slice_ref(self.bytes)
    }
}

impl<'a> From<&'a Bytes> for FrameSlice<'a> {
    fn from(bytes: &'a Bytes) -> Self {
        Self { frame: bytes, bytes }
    }
}

/// A batch kept by reference, and where in the written bytes it belongs.
#[derive(Debug)]
struct Cut {
    at: usize,
    payload: Bytes,
}

/// Partitions of one topic that follow each other.
#[derive(Debug)]
struct Run {
    topic: TopicName,
    partitions: usize,
    /// Where the first of them is written.
    from: usize,
}

/// A request that is being written.
#[derive(Debug)]
pub struct ProduceWriter {
    version: i16,
    /// The partitions, one behind the other, without the payloads of `cuts`.
    body: BytesMut,
    cuts: Vec<Cut>,
    runs: Vec<Run>,
    /// Where each partition begins in `body`.
    starts: Vec<usize>,
    batch_bytes: usize,
}

impl ProduceWriter {
    /// Topics go by name: a re-created target topic then shows as an unexpected base offset, which is checked anyway.
    pub const VERSION_MAX: i16 = 12;

    /// An empty request in `version`, with room for `capacity` bytes of what is copied and so many `batches`.
    #[must_use]
    pub fn new(version: i16, capacity: usize, batches: usize) -> Self {
        Self {
            version,
            body: BytesMut::with_capacity(capacity),
            cuts: Vec::new(),
            runs: Vec::new(),
            starts: Vec::with_capacity(batches),
            batch_bytes: 0,
        }
    }

    /// Adds a partition's batch, which goes out with `head` as its header. A partition must be added at most once: the
    /// broker would keep only the last (`batch-forwarding.md` 0.1).
    pub fn push(&mut self, partition: &TopicPartition, head: &[u8; SEALED_HEAD_LEN], batch: FrameSlice<'_>) {
        let from = self.body.len();
        match self.runs.last_mut() {
            Some(run) if run.topic == partition.topic => run.partitions += 1,
            _ => self.runs.push(Run { topic: partition.topic.clone(), partitions: 1, from }),
        }
        self.starts.push(from);
        self.batch_bytes = self.batch_bytes.saturating_add(batch.len());
        let flexible = self.is_flexible();
        let payload = batch.bytes.get(SEALED_HEAD_LEN..).unwrap_or_default();
        self.body.put_i32(partition.partition.0);
        put_length(&mut self.body, flexible, batch.len());
        self.body.extend_from_slice(head);
        if batch.len() < COPY_BELOW {
            self.body.extend_from_slice(payload);
        } else {
            self.cuts.push(Cut { at: self.body.len(), payload: batch.frame.slice_ref(payload) });
        }
        put_no_tags(&mut self.body, flexible);
    }

    /// Bytes of the batches so far.
    #[must_use]
    pub fn batch_bytes(&self) -> usize {
        self.batch_bytes
    }

    /// Bytes written so far, those kept by reference not counted.
    #[must_use]
    pub fn written(&self) -> usize {
        self.body.len()
    }

    /// Takes out the partitions for which `keep`, asked in the order in which they were added, says no.
    pub fn retain(&mut self, mut keep: impl FnMut() -> bool) {
        let old = std::mem::replace(self, Self::new(self.version, self.body.len(), self.starts.len()));
        let mut body = old.body;
        let mut cuts = old.cuts.into_iter().peekable();
        let mut ends = old.starts.iter().skip(1).copied().chain([body.len()]);
        let mut begun = 0;
        for run in old.runs {
            let mut partitions = 0;
            let from = self.body.len();
            for _ in 0..run.partitions {
                let end = ends.next().unwrap_or(begun);
                let entry = body.split_to(end.saturating_sub(begun).min(body.len()));
                let cut = cuts.next_if(|cut| cut.at <= end);
                if keep() {
                    let at = self.body.len();
                    partitions += 1;
                    self.starts.push(at);
                    self.batch_bytes = self.batch_bytes.saturating_add(self.batch_len(&entry));
                    self.body.extend_from_slice(&entry);
                    if let Some(Cut { at: within, payload }) = cut {
                        self.cuts.push(Cut { at: at + within.saturating_sub(begun), payload });
                    }
                }
                begun = end;
            }
            if partitions > 0 {
                self.runs.push(Run { topic: run.topic, partitions, from });
            }
        }
    }

    /// Length of a batch as it stands in front of it.
    fn batch_len(&self, entry: &[u8]) -> usize {
        let mut rest = entry.iter().skip(size_of::<i32>());
        if !self.is_flexible() {
            return rest.take(size_of::<i32>()).fold(0, |length, byte| length << 8 | usize::from(*byte));
        }
        let mut length = 0;
        for shift in [0, 7, 14, 21, 28] {
            let Some(byte) = rest.next() else { break };
            length |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                break;
            }
        }
        length.saturating_sub(1)
    }

    fn is_flexible(&self) -> bool {
        self.version >= FLEXIBLE_FROM
    }

    /// The frame as buffers for one vectored write; the first begins with the frame's length. `timeout_ms` bounds the
    /// brokers' wait for replicas.
    ///
    /// # Errors
    /// [`EncodeError`] for a version that is not known here, and for what does not fit into a frame.
    pub fn finish(self, correlation_id: i32, client_id: &str, timeout_ms: i32) -> Result<Vec<Bytes>, EncodeError> {
        let version = self.version;
        let refused = |reason: &str| EncodeError { api: "Produce".to_owned(), version, reason: reason.to_owned() };
        if !VERSIONS.contains(&version) {
            return Err(refused("it is not one whose layout is known"));
        }
        let client_id_len = i16::try_from(client_id.len()).map_err(|_| refused("the client id is too long"))?;
        let flexible = self.is_flexible();
        let mut front = BytesMut::with_capacity(FRONT_CAPACITY + self.cuts.len() * FRONT_CAPACITY_PER_CUT);
        // The frame's length, known at the end.
        front.put_i32(0);
        front.put_i16(ApiKey::Produce as i16);
        front.put_i16(version);
        front.put_i32(correlation_id);
        front.put_i16(client_id_len);
        front.extend_from_slice(client_id.as_bytes());
        put_no_tags(&mut front, flexible);
        // No transaction.
        if flexible {
            front.put_u8(0)
        } else {
            front.put_i16(-1)
        }
        front.put_i16(ACKS_ALL);
        front.put_i32(timeout_ms);
        put_length(&mut front, flexible, self.runs.len());
        let mut body = self.body.freeze();
        let mut written = 0;
        let mut cuts = self.cuts.into_iter().peekable();
        let mut inserts: Vec<(usize, Bytes)> = Vec::new();
        let ends: Vec<usize> = self.runs.iter().skip(1).map(|run| run.from).chain([body.len()]).collect();
        for (run, end) in self.runs.iter().zip(ends) {
            put_name(&mut front, flexible, run.topic.as_str()).ok_or_else(|| refused("a topic's name is too long"))?;
            put_length(&mut front, flexible, run.partitions);
            loop {
                let cut = cuts.next_if(|cut| cut.at <= end);
                let to = cut.as_ref().map_or(end, |cut| cut.at);
                // Never shrinks, nor exceeds the body.
                let piece = body.split_to(to.saturating_sub(written).min(body.len()));
                written = to;
                if piece.len() < COPY_BELOW {
                    front.extend_from_slice(&piece);
                } else {
                    inserts.push((front.len(), piece));
                }
                let Some(cut) = cut else { break };
                inserts.push((front.len(), cut.payload));
            }
            put_no_tags(&mut front, flexible);
        }
        put_no_tags(&mut front, flexible);
        let inserted = inserts.iter().map(|(_, piece)| piece.len()).fold(0, usize::saturating_add);
        let length = front.len().saturating_sub(size_of::<i32>()).saturating_add(inserted);
        let announced = i32::try_from(length).map_err(|_| refused("the frame is too long"))?;
        if let Some(prefix) = front.first_chunk_mut() {
            *prefix = announced.to_be_bytes();
        }
        let mut front = front.freeze();
        let mut segments = Vec::with_capacity(inserts.len().saturating_mul(2).saturating_add(1));
        let mut written = 0;
        for (at, piece) in inserts {
            let before = front.split_to(at.saturating_sub(written).min(front.len()));
            written = at;
            if !before.is_empty() {
                segments.push(before);
            }
            segments.push(piece);
        }
        segments.push(front);
        Ok(segments)
    }
}

/// A length or a count.
fn put_length(to: &mut BytesMut, flexible: bool, length: usize) {
    // What is too long for the field is too long for the frame as well, which is refused.
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    if !flexible {
        to.put_u32(length);
        return;
    }
    let mut rest = length.saturating_add(1);
    while rest >= 0x80 {
        to.put_u8((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    to.put_u8(rest as u8);
}

fn put_name(to: &mut BytesMut, flexible: bool, name: &str) -> Option<()> {
    let length = i16::try_from(name.len()).ok()?;
    if flexible {
        put_length(to, true, name.len())
    } else {
        to.put_i16(length)
    }
    to.extend_from_slice(name.as_bytes());
    Some(())
}

fn put_no_tags(to: &mut BytesMut, flexible: bool) {
    if flexible {
        to.put_u8(0);
    }
}

#[cfg(test)]
mod tests;
