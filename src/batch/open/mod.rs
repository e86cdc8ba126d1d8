//! The open path: batches that the target would refuse as they are, decoded and encoded again (`design.md` 2).
//!
//! [`decode()`] opens a batch of format 2, [`LegacyRun`] what formats 0 and 1 left; both yield [`Contents`]. [`encode()`]
//! makes one batch of format 2 from as many of its records as fit. Records keep their timestamp, key, value, headers
//! and order byte for byte: only the deltas in front of the key are written anew. A batch that is rebuilt keeps its
//! codec.
//!
//! What [`encode()`] makes is a function of the record it begins at and of [`Cut`]; it does not depend on where the batch
//! before it ended. So a copy that goes on inside a source batch makes the same bytes as one that came from its start.
//!
//! Only here records that came from elsewhere get a computed checksum: the bytes are new, so there is none to derive it from. The source's own is verified before anything is opened.

mod contents;
mod decode;
mod encode;
mod legacy;
#[cfg(test)]
mod tests;

pub use contents::{Contents, OpenRecord, OpenRecords, RecordDigest};
pub use decode::decode;
pub use encode::{Cut, Encoded, encode};
pub use legacy::LegacyRun;

use super::compression::{CompressError, DecompressError};

/// A batch that cannot be opened, or not be built again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Markers are never forwarded, opened or not.
    #[error("the batch at offset {base_offset} is a control batch, which is never forwarded")]
    Control {
        /// Base offset of the batch.
        base_offset: i64,
    },
    /// Its payload cannot be decompressed.
    #[error("the batch at offset {base_offset} cannot be decompressed: {error}")]
    Decompress {
        /// Base offset of the batch.
        base_offset: i64,
        /// Why.
        error: DecompressError,
    },
    /// A record does not follow the format, or its offset lies outside the batch or before the one in front of it.
    #[error("record {index} of the batch at offset {base_offset} is malformed")]
    Malformed {
        /// Base offset of the batch.
        base_offset: i64,
        /// Number of the record within the batch, from 0.
        index: i32,
    },
    /// Bytes are left behind the last record.
    #[error("the batch at offset {base_offset} has {bytes} bytes too many")]
    TrailingBytes {
        /// Base offset of the batch.
        base_offset: i64,
        /// Bytes left over.
        bytes: usize,
    },
    /// Bytes and checksum of an entry of format 0 or 1 disagree.
    #[error(
        "the message at offset {offset} has the CRC {stored:08x} and its bytes give {computed:08x}: it was damaged"
    )]
    LegacyCrc {
        /// Offset of the entry.
        offset: i64,
        /// What it says.
        stored: u32,
        /// What its bytes give.
        computed: u32,
    },
    /// An entry of format 0 or 1 does not follow its format.
    #[error("the message at offset {offset} is malformed")]
    LegacyMalformed {
        /// Offset of the entry.
        offset: i64,
    },
    /// The codec did not compress.
    #[error("the records from offset {offset} on cannot be compressed: {error}")]
    Compress {
        /// Offset of the first record.
        offset: i64,
        /// Why.
        error: CompressError,
    },
    /// The records make a batch whose length does not fit its field.
    #[error("the records from offset {offset} on make a batch above 2 GiB")]
    TooLong {
        /// Offset of the first record.
        offset: i64,
    },
}

impl OpenError {
    /// Whether it is the limit given to [`decode()`] that was too low.
    #[must_use]
    pub fn is_limit(&self) -> bool {
        matches!(self, Self::Decompress { error: DecompressError::TooLarge { .. }, .. })
    }
}
