//! The same records under another codec: for batches that are written or read here, not for those that are forwarded.

use super::assemble::assemble;
use super::compression::{self, CompressError, DecompressError};
use super::header::{CODEC_BITS, Codec};
use super::walk::Batch;

/// A batch cannot be brought under another codec.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecodeError {
    /// Its payload cannot be opened.
    #[error(transparent)]
    Decompress(#[from] DecompressError),
    /// Its payload cannot be packed.
    #[error(transparent)]
    Compress(#[from] CompressError),
    /// It would be longer than its length field can say.
    #[error("the batch would be longer than 2 GiB")]
    TooLong,
}

/// `batch` with its payload under `codec`, everything else as it was; the CRC is computed anew. `limit` bounds the
/// opened payload in bytes.
///
/// # Errors
/// [`RecodeError`].
pub fn recoded(batch: &Batch, codec: Codec, limit: usize) -> Result<Batch, RecodeError> {
    let plain = compression::decompress(batch.header.codec(), batch.payload(), limit)?;
    let payload = compression::compress(codec, &plain)?;
    let mut header = batch.header;
    header.attributes = header.attributes & !CODEC_BITS | codec.bits();
    assemble(header, &payload).ok_or(RecodeError::TooLong)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::batch::{BatchBuilder, Entry, records, walk};

    fn plain() -> Batch {
        let mut builder = BatchBuilder::new();
        for number in 0..100 {
            let value = format!("value {number}");
            builder.push(1_000 + number, Some(b"key"), Some(value.as_bytes()), &[("h", None)]).unwrap();
        }
        batch(builder.build().unwrap())
    }

    fn batch(bytes: Bytes) -> Batch {
        match walk(bytes).next() {
            Some(Ok(Entry::Batch(batch))) => batch,
            other => panic!("no batch: {other:?}"),
        }
    }

    #[test]
    fn every_codec_and_back_is_the_same_batch() {
        for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            let packed = batch(recoded(&plain(), codec, 1 << 20).unwrap().bytes);
            assert_eq!(packed.header.codec(), codec);
            packed.verify_crc().unwrap();
            let opened = recoded(&packed, Codec::None, 1 << 20).unwrap();
            assert_eq!(opened.bytes, plain().bytes, "{codec:?}");
            assert_eq!(records(&opened).unwrap().filter_map(Result::ok).count(), 100);
        }
    }

    #[test]
    fn what_becomes_too_large_is_refused() {
        let packed = recoded(&plain(), Codec::Zstd, 1 << 20).unwrap();
        assert!(matches!(
            recoded(&packed, Codec::None, 1000),
            Err(RecodeError::Decompress(DecompressError::TooLarge { .. }))
        ));
    }
}
