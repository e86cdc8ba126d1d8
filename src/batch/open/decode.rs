//! Opens a batch of format 2.

use bytes::Bytes;

use super::{Contents, OpenError};
use crate::batch::{Batch, compression::decompress, fate::is_control, header::Codec};

/// Opens `batch`, whose checksum the caller has verified. `limit` bounds the decompressed payload in bytes; with
/// `visible_time` the records of a batch with log append time get the time that consumers saw, else their producers'.
///
/// # Errors
/// [`OpenError`]; nothing of a batch with one bad record is given out.
pub fn decode(batch: &Batch, limit: usize, visible_time: bool) -> Result<Contents, OpenError> {
    let header = &batch.header;
    let base_offset = header.base_offset;
    // As in `seal`: with its control bit gone a marker would be a record that consumers read.
    if is_control(header) {
        return Err(OpenError::Control { base_offset });
    }
    let codec = header.codec();
    let payload = if header.is_empty() {
        Bytes::new()
    } else if codec == Codec::None {
        batch.bytes.slice_ref(batch.payload())
    } else {
        decompress(codec, batch.payload(), limit).map_err(|error| OpenError::Decompress { base_offset, error })?.into()
    };
    Contents {
        codec,
        next_offset: header.next_offset(),
        leader_epoch: header.partition_leader_epoch,
        base_offset,
        // With a delete horizon it is that horizon, and the deltas were counted anew from it.
        base_timestamp: header.base_timestamp,
        append_time: (header.is_log_append_time() && visible_time).then_some(header.max_timestamp),
        count: header.records_count,
        payload,
    }
    .checked()
}
