//! Zstandard frames, perhaps several.
//!
//! A frame names the window its decoder needs. The library takes no more than 128 MiB for it, and such memory is only
//! reserved: what is really used follows the bytes decoded.

use std::io;

use super::{DecompressError, damaged, read_bounded};
use crate::batch::header::Codec;

/// What Java's producers use unless told otherwise.
const LEVEL: i32 = 3;

pub(super) fn decompress(compressed: &[u8], limit: usize) -> Result<Vec<u8>, DecompressError> {
    let mut plain = Vec::new();
    let decoder =
        ::zstd::stream::read::Decoder::with_buffer(compressed).map_err(|error| damaged(Codec::Zstd, error))?;
    read_bounded(Codec::Zstd, compressed.len(), decoder, &mut plain, limit)?;
    Ok(plain)
}

pub(super) fn compress(plain: &[u8]) -> io::Result<Vec<u8>> {
    ::zstd::bulk::compress(plain, LEVEL)
}
