//! Snappy in the framing of the Java library: a header, then blocks with a length each. Some producers that are not
//! Java send one raw block without a frame, which is accepted too.

use std::io;

use super::{DecompressError, damaged};
use crate::batch::header::{Codec, take};

/// First 8 bytes of a framed stream; two version numbers follow.
const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
/// What the Java library writes as version and lowest compatible version.
const VERSIONS: [u8; 8] = [0, 0, 0, 1, 0, 0, 0, 1];
/// What the Java library puts into one block.
const BLOCK: usize = 32 << 10;
/// A copy of three bytes yields 64 at most, so a block that claims more than this times its size lies.
const EXPANSION_MAX: usize = 32;

pub(super) fn decompress(compressed: &[u8], limit: usize) -> Result<Vec<u8>, DecompressError> {
    let mut plain = Vec::new();
    let mut decoder = snap::raw::Decoder::new();
    let too_large = || DecompressError::TooLarge { codec: Codec::Snappy, compressed: compressed.len(), limit };
    let mut block = |block: &[u8], plain: &mut Vec<u8>| {
        let claimed = snap::raw::decompress_len(block).map_err(|error| damaged(Codec::Snappy, error))?;
        if claimed > block.len().saturating_mul(EXPANSION_MAX) {
            return Err(damaged(Codec::Snappy, "a block claims more bytes than it can hold"));
        }
        let start = plain.len();
        let end = start.checked_add(claimed).filter(|end| *end <= limit).ok_or_else(too_large)?;
        plain.resize(end, 0);
        let room = plain.get_mut(start..).unwrap_or_default();
        let written = decoder.decompress(block, room).map_err(|error| damaged(Codec::Snappy, error))?;
        if written == claimed { Ok(()) } else { Err(damaged(Codec::Snappy, "a block is shorter than it says")) }
    };
    if !compressed.starts_with(&MAGIC) {
        block(compressed, &mut plain)?;
        return Ok(plain);
    }
    let cut_off = || damaged(Codec::Snappy, "it is cut off");
    let mut rest = compressed;
    while !rest.is_empty() {
        // Streams may follow each other.
        if rest.starts_with(&MAGIC) {
            let header: [u8; 16] = take(&mut rest).ok_or_else(cut_off)?;
            if !header.ends_with(&VERSIONS) {
                return Err(damaged(Codec::Snappy, "a later version of the Java library's framing"));
            }
            continue;
        }
        let length = u32::from_be_bytes(take(&mut rest).ok_or_else(cut_off)?);
        let (next, after) = rest.split_at_checked(length as usize).ok_or_else(cut_off)?;
        block(next, &mut plain)?;
        rest = after;
    }
    Ok(plain)
}

pub(super) fn compress(plain: &[u8]) -> io::Result<Vec<u8>> {
    let mut compressed = Vec::with_capacity(plain.len() / 2 + 64);
    compressed.extend_from_slice(&MAGIC);
    compressed.extend_from_slice(&VERSIONS);
    let mut encoder = snap::raw::Encoder::new();
    for block in plain.chunks(BLOCK) {
        let block = encoder.compress_vec(block)?;
        let length = u32::try_from(block.len()).map_err(io::Error::other)?;
        compressed.extend_from_slice(&length.to_be_bytes());
        compressed.extend_from_slice(&block);
    }
    Ok(compressed)
}
