//! A whole batch from a header and a payload: the one place that computes a checksum.
//!
//! For batches whose payload was made here. What is forwarded keeps the checksum it came with, or one derived from it
//! ([`derive`](super::derive())).

use super::crc::crc32c;
use super::header::{BatchHeader, HEADER_LEN, LENGTH_OVERHEAD};
use super::walk::Batch;

/// The checksum covers a batch from its attributes on (`batch-forwarding.md` 1.1).
const CRC_FROM: usize = 21;

/// `header` with length and checksum of `payload`, and both as one batch. `None` if it would be longer than its length
/// field can say, 2 GiB.
pub(crate) fn assemble(header: BatchHeader, payload: &[u8]) -> Option<Batch> {
    let size = HEADER_LEN.checked_add(payload.len())?;
    let batch_length = i32::try_from(size.checked_sub(LENGTH_OVERHEAD)?).ok()?;
    let mut header = BatchHeader { batch_length, ..header };
    let mut bytes = Vec::with_capacity(size);
    bytes.extend_from_slice(&header.to_bytes());
    bytes.extend_from_slice(payload);
    header.crc = crc32c(bytes.get(CRC_FROM..)?);
    *bytes.first_chunk_mut()? = header.to_bytes();
    Some(Batch { header, bytes: bytes.into() })
}
