//! Reads the records of an uncompressed batch: for the topics that are our own.

use std::ops::ControlFlow;

use bytes::Bytes;

use super::header::{Codec, take};
use super::varint::{take_int, take_long};
use super::walk::Batch;

/// One record; keys, values and headers are slices of the batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Offset in the partition.
    pub offset: i64,
    /// Milliseconds since 1970, or -1; in a batch with log append time the broker's.
    pub timestamp: i64,
    /// The key.
    pub key: Option<Bytes>,
    /// The value.
    pub value: Option<Bytes>,
    /// The headers in their order; keys may repeat.
    pub headers: Vec<RecordHeader>,
}

/// One header of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordHeader {
    /// The key, which Kafka wants to be UTF-8 but does not check.
    pub key: Bytes,
    /// The value.
    pub value: Option<Bytes>,
}

/// The records of a batch cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// This program opens no compressed batch; its own topics must not be recompressed by the broker.
    #[error(
        "the batch at offset {base_offset} is compressed with {codec:?}; set compression.type=producer (or uncompressed) on the topic"
    )]
    Compressed {
        /// Base offset of the batch.
        base_offset: i64,
        /// The codec.
        codec: Codec,
    },
    /// A record does not follow the format, or ends early.
    #[error("record {index} of the batch at offset {base_offset} is malformed")]
    Malformed {
        /// Base offset of the batch.
        base_offset: i64,
        /// Number of the record within the batch, from 0.
        index: i32,
    },
    /// The batch goes on after its last record.
    #[error("the batch at offset {base_offset} has {bytes} bytes too many")]
    TrailingBytes {
        /// Base offset of the batch.
        base_offset: i64,
        /// Bytes left over.
        bytes: usize,
    },
}

/// The iterator that [`records`] returns. It ends after an error.
#[derive(Debug, Clone)]
pub struct Records {
    batch: Batch,
    /// What is left of the batch.
    rest: Bytes,
    /// Records read.
    index: i32,
    ended: bool,
}

/// Reads the records of `batch`, which has been checked by [`walk`](super::walk()).
///
/// The last item is an error if the batch does not end with its last record.
///
/// # Errors
/// [`RecordError::Compressed`].
pub fn records(batch: &Batch) -> Result<Records, RecordError> {
    // An emptied batch has no codec left to care about.
    if batch.header.codec() != Codec::None && !batch.header.is_empty() {
        return Err(RecordError::Compressed { base_offset: batch.header.base_offset, codec: batch.header.codec() });
    }
    let rest = batch.bytes.slice_ref(batch.payload());
    Ok(Records { batch: batch.clone(), rest, index: 0, ended: false })
}

impl Records {
    fn step(&mut self) -> ControlFlow<Option<RecordError>, Record> {
        let base_offset = self.batch.header.base_offset;
        if self.index >= self.batch.header.records_count {
            return ControlFlow::Break(match self.rest.len() {
                0 => None,
                bytes => Some(RecordError::TrailingBytes { base_offset, bytes }),
            });
        }
        match self.read() {
            Some(record) => {
                self.index = self.index.saturating_add(1);
                ControlFlow::Continue(record)
            }
            None => ControlFlow::Break(Some(RecordError::Malformed { base_offset, index: self.index })),
        }
    }

    fn read(&mut self) -> Option<Record> {
        let header = &self.batch.header;
        let mut rest = self.rest.as_ref();
        let length = usize::try_from(take_int(&mut rest)?).ok()?;
        let (mut record, after) = rest.split_at_checked(length)?;
        let [_attributes] = take::<1>(&mut record)?;
        let timestamp_delta = take_long(&mut record)?;
        let offset_delta = take_int(&mut record)?;
        let offset = header.base_offset.checked_add(i64::from(offset_delta)).filter(|offset| *offset >= 0)?;
        let timestamp = if header.is_log_append_time() {
            header.max_timestamp
        } else {
            header.base_timestamp.checked_add(timestamp_delta)?
        };
        let key = self.field(&mut record)?;
        let value = self.field(&mut record)?;
        let header_count = usize::try_from(take_int(&mut record)?).ok()?;
        // A header takes a byte for each of its two lengths at least.
        if header_count > record.len() / 2 {
            return None;
        }
        let mut headers = Vec::with_capacity(header_count);
        for _ in 0..header_count {
            headers.push(RecordHeader { key: self.field(&mut record)??, value: self.field(&mut record)? });
        }
        if !record.is_empty() {
            return None;
        }
        self.rest = self.rest.slice_ref(after);
        Some(Record { offset, timestamp, key, value, headers })
    }

    /// A length and as many bytes; the inner `None` is null.
    fn field(&self, record: &mut &[u8]) -> Option<Option<Bytes>> {
        match take_int(record)? {
            -1 => Some(None),
            length => {
                let (field, after) = record.split_at_checked(usize::try_from(length).ok()?)?;
                *record = after;
                Some(Some(self.rest.slice_ref(field)))
            }
        }
    }
}

impl Iterator for Records {
    type Item = Result<Record, RecordError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        match self.step() {
            ControlFlow::Continue(record) => Some(Ok(record)),
            ControlFlow::Break(end) => {
                self.ended = true;
                end.map(Err)
            }
        }
    }
}

impl std::iter::FusedIterator for Records {}

#[cfg(test)]
mod tests;
