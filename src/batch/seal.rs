//! The header with which a batch goes to the target.

use super::crc::derive;
use super::fate::is_control;
use super::header::{BatchHeader, CODEC_BITS, HEADER_LEN};
use super::walk::Batch;

/// The writer of Produce requests replaces exactly what is made here.
const _: () = assert!(HEADER_LEN == crate::protocol::SEALED_HEAD_LEN);

/// The identity under which this program writes to a target partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ProducerIdentity {
    /// The producer id; -1 to write without idempotence.
    pub producer_id: i64,
    /// Its epoch; -1 without idempotence.
    pub producer_epoch: i16,
}

/// A batch that must not be written to another cluster as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealRefused {
    /// With its control bit cleared, a marker would be stored as a record that consumers read, by every broker.
    #[error("the batch at offset {base_offset} is a control batch, which is never forwarded")]
    Control {
        /// Base offset of the batch.
        base_offset: i64,
    },
    /// Fewer records than offsets: brokers refuse it, or store offsets that overlap if the header is patched.
    #[error("the batch at offset {base_offset} has {records_count} records for {offsets} offsets and must be rebuilt")]
    Gaps {
        /// Base offset of the batch.
        base_offset: i64,
        /// Records in the batch.
        records_count: i32,
        /// Offsets it covers.
        offsets: i64,
    },
}

/// The 61 bytes that replace the batch's header; the payload stays as it is (batch-forwarding, 2.4).
///
/// Base offset 0, leader epoch -1, attributes reduced to the codec (so without log append time, delete horizon and the
/// source's transaction), the given identity and sequence, and the CRC derived from the old one. Timestamps, offset
/// delta and count stay. Decide with [`AbortFilter`](super::AbortFilter) first: an aborted batch cannot be recognised
/// from its header.
///
/// # Errors
/// [`SealRefused`] for a control batch and for one that compaction emptied or thinned.
pub fn seal<B: AsRef<[u8]>>(
    batch: &Batch<B>,
    identity: ProducerIdentity,
    base_sequence: i32,
) -> Result<[u8; HEADER_LEN], SealRefused> {
    let old = batch.header;
    let base_offset = old.base_offset;
    if is_control(&old) {
        return Err(SealRefused::Control { base_offset });
    }
    if old.is_empty() || old.is_thinned() {
        let offsets = i64::from(old.last_offset_delta).saturating_add(1);
        return Err(SealRefused::Gaps { base_offset, records_count: old.records_count, offsets });
    }
    let new = BatchHeader {
        base_offset: 0,
        partition_leader_epoch: -1,
        attributes: old.attributes & CODEC_BITS,
        producer_id: identity.producer_id,
        producer_epoch: identity.producer_epoch,
        base_sequence,
        ..old
    };
    let bytes = batch.bytes.as_ref();
    let payload_len = bytes.len().saturating_sub(HEADER_LEN);
    let mut head = new.to_bytes();
    // The whole batch is there, so its header is.
    let before = bytes.first_chunk().map_or([0; 40], covered);
    let crc = derive(old.crc, &before, &covered(&head), payload_len);
    set_crc(&mut head, crc);
    Ok(head)
}

/// The CRC a sealed batch has once the target stamped it in place: with the attributes and the largest timestamp that
/// `stored` shows, and our payload. Equal to `stored.crc` only if the payload there is ours.
pub fn stamped_crc(sent: &BatchHeader, stored: &BatchHeader) -> u32 {
    let stamped = BatchHeader { attributes: stored.attributes, max_timestamp: stored.max_timestamp, ..*sent };
    derive(
        sent.crc,
        &covered(&sent.to_bytes()),
        &covered(&stamped.to_bytes()),
        sent.total_size().saturating_sub(HEADER_LEN),
    )
}

/// The part of a header that the CRC covers.
fn covered(head: &[u8; HEADER_LEN]) -> [u8; 40] {
    // The covered part is the last 40 of 61 bytes, so it is always there.
    head.last_chunk::<40>().copied().unwrap_or([0; 40])
}

/// Writes the CRC, which stands right before what it covers.
fn set_crc(head: &mut [u8; HEADER_LEN], crc: u32) {
    if let Some((before, _)) = head.split_last_chunk_mut::<40>()
        && let Some(field) = before.last_chunk_mut::<4>()
    {
        *field = crc.to_be_bytes();
    }
}

#[cfg(test)]
mod tests;
