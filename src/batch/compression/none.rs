//! No compression.

use super::DecompressError;
use crate::batch::header::Codec;

pub(super) fn decompress(plain: &[u8], limit: usize) -> Result<Vec<u8>, DecompressError> {
    if plain.len() > limit {
        return Err(DecompressError::TooLarge { codec: Codec::None, compressed: plain.len(), limit });
    }
    Ok(plain.to_vec())
}
