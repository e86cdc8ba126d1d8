//! LZ4 frames, and those of format 0, whose header checksum is computed wrongly.

use std::io::{self, Read, Write};

use lz4_flex::frame::{BlockMode, BlockSize, FrameDecoder, FrameEncoder, FrameInfo};
use twox_hash::XxHash32;

use super::{DecompressError, damaged, read_bounded};
use crate::batch::header::Codec;

/// First bytes of a frame.
const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
/// A descriptor begins with its flags.
const FLAGS_AT: usize = 4;
const HAS_CONTENT_SIZE: u8 = 0x08;
const HAS_DICTIONARY: u8 = 0x01;

pub(super) fn decompress(compressed: &[u8], limit: usize) -> Result<Vec<u8>, DecompressError> {
    frames(compressed, compressed.len(), limit)
}

/// Producers of format 0 hashed the descriptor together with the magic number before it. The checksum is put right in
/// a copy of the header, and the frame read as any other.
pub(super) fn decompress_format_0(compressed: &[u8], limit: usize) -> Result<Vec<u8>, DecompressError> {
    let Some((header, body)) = descriptor(compressed) else {
        return frames(compressed, compressed.len(), limit);
    };
    let mut repaired = header.to_vec();
    if let Some((checksum, described)) = repaired.split_last_mut()
        && *checksum == second_byte(described)
    {
        *checksum = second_byte(described.get(FLAGS_AT..).unwrap_or_default());
    }
    let mut plain = Vec::new();
    let mut decoder = FrameDecoder::new(repaired.as_slice().chain(body));
    read_bounded(Codec::Lz4, compressed.len(), &mut decoder, &mut plain, limit)?;
    if body.is_empty() || !decoder.into_inner().into_inner().1.is_empty() {
        return Err(damaged(Codec::Lz4, "bytes follow the frame, or it is cut off"));
    }
    Ok(plain)
}

/// The header up to its checksum, and what follows it.
fn descriptor(frame: &[u8]) -> Option<(&[u8], &[u8])> {
    let flags = *frame.strip_prefix(&MAGIC)?.first()?;
    let sizes = if flags & HAS_CONTENT_SIZE != 0 { 8 } else { 0 } + if flags & HAS_DICTIONARY != 0 { 4 } else { 0 };
    // Magic, flags, block descriptor, what the flags announce, checksum.
    frame.split_at_checked(FLAGS_AT + 2 + sizes + 1)
}

fn second_byte(described: &[u8]) -> u8 {
    (XxHash32::oneshot(0, described) >> 8) as u8
}

/// Frames one after the other.
fn frames(compressed: &[u8], whole: usize, limit: usize) -> Result<Vec<u8>, DecompressError> {
    let mut plain = Vec::new();
    let mut rest = compressed;
    loop {
        let mut decoder = FrameDecoder::new(rest);
        read_bounded(Codec::Lz4, whole, &mut decoder, &mut plain, limit)?;
        let after = decoder.into_inner();
        if after.len() >= rest.len() {
            return Err(damaged(Codec::Lz4, "there is no frame"));
        }
        rest = after;
        if rest.is_empty() {
            return Ok(plain);
        }
    }
}

pub(super) fn compress(plain: &[u8]) -> io::Result<Vec<u8>> {
    // Java's older readers refuse blocks that depend on each other.
    let info = FrameInfo::new().block_size(BlockSize::Max64KB).block_mode(BlockMode::Independent);
    let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(plain)?;
    encoder.finish().map_err(io::Error::other)
}
