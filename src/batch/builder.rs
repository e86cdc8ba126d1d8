//! Builds a small uncompressed batch: for the topics that are our own.

use bytes::Bytes;

use super::assemble::assemble;
use super::header::{BatchHeader, HEADER_LEN};
use super::varint::put_long;

/// A record cannot be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// A key, value, header or the whole batch is longer than its length field can say (2^31 - 1 bytes).
    #[error("the batch would be longer than 2 GiB; split it")]
    TooLong,
}

/// Collects records for one batch without producer identity.
#[derive(Debug, Clone, Default)]
pub struct BatchBuilder {
    records: Vec<u8>,
    count: i32,
    base_timestamp: i64,
    max_timestamp: i64,
}

impl BatchBuilder {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a record. `timestamp` is in milliseconds since 1970; headers keep their order and may repeat a key.
    ///
    /// # Errors
    /// [`BuildError::TooLong`]; the batch stays as it was.
    pub fn push(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[(&str, Option<&[u8]>)],
    ) -> Result<(), BuildError> {
        let base_timestamp = if self.count == 0 { timestamp } else { self.base_timestamp };
        // Attributes, of which a record has none.
        let mut record = vec![0];
        put_long(&mut record, timestamp.wrapping_sub(base_timestamp));
        put_long(&mut record, i64::from(self.count));
        put_field(&mut record, key)?;
        put_field(&mut record, value)?;
        put_long(&mut record, i32::try_from(headers.len()).map_err(|_| BuildError::TooLong)?.into());
        for (key, value) in headers {
            put_field(&mut record, Some(key.as_bytes()))?;
            put_field(&mut record, *value)?;
        }
        let mut length = Vec::new();
        put_long(&mut length, i32::try_from(record.len()).map_err(|_| BuildError::TooLong)?.into());
        let total = self.total_size().saturating_add(length.len()).saturating_add(record.len());
        let count = self.count.checked_add(1).ok_or(BuildError::TooLong)?;
        i32::try_from(total).map_err(|_| BuildError::TooLong)?;
        self.records.append(&mut length);
        self.records.append(&mut record);
        self.max_timestamp = if self.count == 0 { timestamp } else { self.max_timestamp.max(timestamp) };
        self.base_timestamp = base_timestamp;
        self.count = count;
        Ok(())
    }

    /// Records so far.
    pub fn count(&self) -> i32 {
        self.count
    }

    /// True if there is no record yet.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Size of the batch in bytes as it would be built now.
    pub fn total_size(&self) -> usize {
        HEADER_LEN.saturating_add(self.records.len())
    }

    /// The batch with base offset 0; `None` if there is no record, since no broker accepts an empty batch.
    pub fn build(self) -> Option<Bytes> {
        let last_offset_delta = self.count.checked_sub(1).filter(|delta| *delta >= 0)?;
        let header = BatchHeader {
            base_offset: 0,
            batch_length: 0,
            partition_leader_epoch: -1,
            magic: 2,
            crc: 0,
            attributes: 0,
            last_offset_delta,
            base_timestamp: self.base_timestamp,
            max_timestamp: self.max_timestamp,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            records_count: self.count,
        };
        assemble(header, &self.records).map(|batch| batch.bytes)
    }
}

fn put_field(record: &mut Vec<u8>, field: Option<&[u8]>) -> Result<(), BuildError> {
    match field {
        None => put_long(record, -1),
        Some(bytes) => {
            put_long(record, i32::try_from(bytes.len()).map_err(|_| BuildError::TooLong)?.into());
            record.extend_from_slice(bytes);
        }
    }
    Ok(())
}
