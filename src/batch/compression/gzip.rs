//! gzip (RFC 1952). Java's reader goes through several members; so does this one.

use std::io::{self, Read};

use flate2::{Compression, bufread::MultiGzDecoder, read::GzEncoder};

use super::{DecompressError, read_bounded};
use crate::batch::header::Codec;

/// What Java's producers use unless told otherwise.
const LEVEL: u32 = 6;

pub(super) fn decompress(compressed: &[u8], limit: usize) -> Result<Vec<u8>, DecompressError> {
    let mut plain = Vec::new();
    read_bounded(Codec::Gzip, compressed.len(), MultiGzDecoder::new(compressed), &mut plain, limit)?;
    Ok(plain)
}

pub(super) fn compress(plain: &[u8]) -> io::Result<Vec<u8>> {
    let mut compressed = Vec::new();
    // The header says no time and no name, so the same bytes give the same stream.
    GzEncoder::new(plain, Compression::new(LEVEL)).read_to_end(&mut compressed)?;
    Ok(compressed)
}
