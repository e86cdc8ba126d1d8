//! The codecs of record batches, one file each: whole payloads in, whole payloads out.
//!
//! Who opens a batch says how many bytes it may become ([`decompress`]). The result grows with the bytes that were
//! really decoded, never by a length that stands in the data, so a small batch that claims or becomes gigabytes costs no
//! more than the limit. Decoders read to the end of the stream, through several frames or members if there are such, and
//! bytes that are none of these are an error.
//!
//! What [`compress`] makes is the same for the same bytes: levels and block sizes are fixed here. Another version of a
//! codec's library may make other bytes, so nothing may hang on two builds agreeing: where bytes that were written
//! before are met again and differ, records are compared.

mod gzip;
mod lz4;
mod none;
mod snappy;
#[cfg(test)]
mod tests;
mod zstd;

use std::io::{self, Read};

use super::header::Codec;

/// A payload that cannot be opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecompressError {
    /// It would become larger than the caller allows.
    #[error("{codec:?} data of {compressed} bytes becomes more than the limit of {limit} bytes")]
    TooLarge {
        /// The codec.
        codec: Codec,
        /// Bytes at hand.
        compressed: usize,
        /// The caller's limit.
        limit: usize,
    },
    /// It is not what the codec writes, or cut off.
    #[error("the {codec:?} data is damaged: {why}")]
    Damaged {
        /// The codec.
        codec: Codec,
        /// The decoder's words.
        why: String,
    },
    /// Codec 5 to 7, which does not exist.
    #[error("there is no codec {0}")]
    UnknownCodec(u8),
}

/// A payload that cannot be compressed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompressError {
    /// The library refused; none does so for data in memory.
    #[error("{codec:?} did not compress: {why}")]
    Failed {
        /// The codec.
        codec: Codec,
        /// The library's words.
        why: String,
    },
    /// Codec 5 to 7, which does not exist.
    #[error("there is no codec {0}")]
    UnknownCodec(u8),
}

/// The payload of a batch of format 2 or of a wrapper of format 1 as its producer had it, at most `limit` bytes.
///
/// # Errors
/// [`DecompressError`].
pub fn decompress(codec: Codec, compressed: &[u8], limit: usize) -> Result<Vec<u8>, DecompressError> {
    match codec {
        Codec::None => none::decompress(compressed, limit),
        Codec::Gzip => gzip::decompress(compressed, limit),
        Codec::Snappy => snappy::decompress(compressed, limit),
        Codec::Lz4 => lz4::decompress(compressed, limit),
        Codec::Zstd => zstd::decompress(compressed, limit),
        Codec::Unknown(code) => Err(DecompressError::UnknownCodec(code)),
    }
}

/// As [`decompress`], for a wrapper of format 0: its producers computed the header checksum of LZ4 frames over too many
/// bytes. Right ones are accepted as well.
///
/// # Errors
/// [`DecompressError`].
pub fn decompress_format_0(codec: Codec, compressed: &[u8], limit: usize) -> Result<Vec<u8>, DecompressError> {
    match codec {
        Codec::Lz4 => lz4::decompress_format_0(compressed, limit),
        codec => decompress(codec, compressed, limit),
    }
}

/// Compresses the payload of a batch of format 2; the same bytes give the same result.
///
/// # Errors
/// [`CompressError`].
pub fn compress(codec: Codec, plain: &[u8]) -> Result<Vec<u8>, CompressError> {
    let done = match codec {
        Codec::None => return Ok(plain.to_vec()),
        Codec::Gzip => gzip::compress(plain),
        Codec::Snappy => snappy::compress(plain),
        Codec::Lz4 => lz4::compress(plain),
        Codec::Zstd => zstd::compress(plain),
        Codec::Unknown(code) => return Err(CompressError::UnknownCodec(code)),
    };
    done.map_err(|error| CompressError::Failed { codec, why: error.to_string() })
}

fn damaged(codec: Codec, why: impl std::fmt::Display) -> DecompressError {
    DecompressError::Damaged { codec, why: why.to_string() }
}

/// Reads a decoder to its end. `read_to_end` grows its buffer by what it was given, never by what is promised.
fn read_bounded(
    codec: Codec,
    compressed: usize,
    decoder: impl Read,
    plain: &mut Vec<u8>,
    limit: usize,
) -> Result<(), DecompressError> {
    let room = limit.saturating_sub(plain.len());
    // One byte more tells a payload that is too long from one that just fits.
    let most = u64::try_from(room).unwrap_or(u64::MAX).saturating_add(1);
    let read = decoder.take(most).read_to_end(plain).map_err(|error: io::Error| damaged(codec, error))?;
    if read > room { Err(DecompressError::TooLarge { codec, compressed, limit }) } else { Ok(()) }
}
