//! Vectors of other programs, round trips, limits and damage, for every codec.

use std::io::Write;

use proptest::prelude::*;
use twox_hash::XxHash32 as XxHash;

use super::*;

const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

fn hex(text: &str) -> Vec<u8> {
    crate::batch::vectors::hex(text).to_vec()
}

/// Put together by hand from the format: header, one block of 26 letters as one literal.
const XERIAL: &str = "82534e41505059000000000100000001\
     0000001c1a646162636465666768696a6b6c6d6e6f707172737475767778797a";

#[test]
fn what_is_compressed_comes_back_and_is_the_same_each_time() {
    let text: Vec<u8> = (0..200_000_u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
    for codec in CODECS {
        for plain in [&b""[..], b"a", b"aaaaaaaaaaaaaaaaaaaaaaaaaaaa", &text] {
            let compressed = compress(codec, plain).unwrap();
            assert_eq!(compressed, compress(codec, plain).unwrap(), "{codec:?}");
            assert_eq!(decompress(codec, &compressed, plain.len()).unwrap(), plain, "{codec:?}");
        }
    }
}

#[test]
fn the_limit_is_exact() {
    let plain = [7_u8; 100_000];
    for codec in CODECS {
        let compressed = compress(codec, &plain).unwrap();
        assert!(decompress(codec, &compressed, plain.len()).is_ok());
        let error = decompress(codec, &compressed, plain.len() - 1).unwrap_err();
        assert_eq!(error, DecompressError::TooLarge { codec, compressed: compressed.len(), limit: plain.len() - 1 });
    }
}

/// A reader of zeroes.
fn zeroes(bytes: u64) -> impl Read {
    io::repeat(0).take(bytes)
}

#[test]
fn a_gigabyte_in_a_megabyte_is_refused_at_the_limit() {
    const GIGABYTE: u64 = 1 << 30;
    let mut gzip = Vec::new();
    flate2::read::GzEncoder::new(zeroes(GIGABYTE / 8), flate2::Compression::new(1)).read_to_end(&mut gzip).unwrap();
    let zstd = ::zstd::stream::encode_all(zeroes(GIGABYTE), 1).unwrap();
    let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
    io::copy(&mut zeroes(GIGABYTE / 16), &mut lz4).unwrap();
    let lz4 = lz4.finish().unwrap();
    let snappy = compress(Codec::Snappy, &vec![0; 64 << 20]).unwrap();
    for (codec, bomb) in [(Codec::Gzip, gzip), (Codec::Zstd, zstd), (Codec::Lz4, lz4), (Codec::Snappy, snappy)] {
        let error = decompress(codec, &bomb, 1 << 20).unwrap_err();
        assert!(matches!(error, DecompressError::TooLarge { limit: 0x10_0000, .. }), "{codec:?}: {error}");
    }
}

#[test]
fn lengths_in_the_data_are_not_believed() {
    // A raw Snappy block that claims 4 GiB - 1; a framed one that claims 2 GiB for its block.
    for bytes in
        ["ffffffff0f00", "82534e415050590000000001000000017fffffff00", "82534e41505059000000000100000001ffffffff"]
    {
        assert!(matches!(
            decompress(Codec::Snappy, &hex(bytes), usize::MAX),
            Err(DecompressError::Damaged { codec: Codec::Snappy, .. })
        ));
    }
}

#[test]
fn framed_and_raw_snappy_are_read() {
    let plain = b"abcdefghijklmnopqrstuvwxyz";
    assert_eq!(decompress(Codec::Snappy, &hex(XERIAL), 100).unwrap(), plain);
    let raw = snap::raw::Encoder::new().compress_vec(plain).unwrap();
    assert_eq!(decompress(Codec::Snappy, &raw, 100).unwrap(), plain);
    let twice = [hex(XERIAL), hex(XERIAL)].concat();
    assert_eq!(decompress(Codec::Snappy, &twice, 100).unwrap(), [*plain, *plain].concat());
}

#[test]
fn streams_of_several_frames_are_read_to_the_end() {
    for codec in [Codec::Gzip, Codec::Lz4, Codec::Zstd] {
        let twice = [compress(codec, b"one").unwrap(), compress(codec, b"two").unwrap()].concat();
        assert_eq!(decompress(codec, &twice, 100).unwrap(), b"onetwo", "{codec:?}");
        let trailing = [compress(codec, b"one").unwrap(), vec![0x55; 9]].concat();
        assert!(matches!(decompress(codec, &trailing, 100), Err(DecompressError::Damaged { .. })), "{codec:?}");
    }
}

#[test]
fn the_broken_lz4_header_of_format_0_is_read_there_and_only_there() {
    let mut right = compress(Codec::Lz4, b"some records of old times").unwrap();
    assert!(decompress_format_0(Codec::Lz4, &right, 100).is_ok());
    // Magic number 4 bytes, flags and block descriptor 2 bytes, then the checksum.
    right[6] = (XxHash::oneshot(0, &right[..6]) >> 8) as u8;
    assert_eq!(decompress_format_0(Codec::Lz4, &right, 100).unwrap(), b"some records of old times");
    assert!(matches!(decompress(Codec::Lz4, &right, 100), Err(DecompressError::Damaged { .. })));
    right[6] ^= 0x40;
    assert!(decompress_format_0(Codec::Lz4, &right, 100).is_err());
}

#[test]
fn blocks_that_depend_on_each_other_are_read() {
    let info = lz4_flex::frame::FrameInfo::new()
        .block_size(lz4_flex::frame::BlockSize::Max64KB)
        .block_mode(lz4_flex::frame::BlockMode::Linked)
        .content_checksum(true)
        .block_checksums(true);
    let plain: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(&plain).unwrap();
    assert_eq!(decompress(Codec::Lz4, &encoder.finish().unwrap(), plain.len()).unwrap(), plain);
}

#[test]
fn a_cut_off_stream_is_damaged_at_every_byte() {
    let plain: Vec<u8> = (0..3000_u32).map(|n| (n * n) as u8).collect();
    for codec in [Codec::Gzip, Codec::Lz4, Codec::Zstd] {
        let compressed = compress(codec, &plain).unwrap();
        for cut in 0..compressed.len() {
            match decompress(codec, &compressed[..cut], plain.len()) {
                Err(DecompressError::Damaged { .. }) => {}
                // An empty stream is an empty Zstandard or gzip stream, and the LZ4 library does not miss a frame's end
                // mark: the record count tells then.
                Ok(read) => assert!(plain.starts_with(&read) && (cut == 0 || codec == Codec::Lz4), "{codec:?} {cut}"),
                Err(other) => panic!("{codec:?} cut at {cut}: {other}"),
            }
        }
    }
    let compressed = compress(Codec::Snappy, &plain).unwrap();
    for cut in 17..compressed.len() {
        assert!(decompress(Codec::Snappy, &compressed[..cut], plain.len()).is_err(), "cut at {cut}");
    }
}

proptest! {
    #[test]
    fn any_bytes_survive(plain in prop::collection::vec(prop_oneof![3 => Just(9_u8), 1 => any::<u8>()], 0..5_000)) {
        for codec in CODECS {
            let compressed = compress(codec, &plain).unwrap();
            prop_assert_eq!(&decompress(codec, &compressed, plain.len()).unwrap(), &plain);
        }
    }

    #[test]
    fn hostile_bytes_end_in_an_error_or_below_the_limit(
        plain in prop::collection::vec(any::<u8>(), 0..500),
        at in any::<prop::sample::Index>(),
        flip in 1_u8..,
    ) {
        for codec in CODECS {
            let mut bytes = compress(codec, &plain).unwrap();
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] ^= flip;
            }
            for bytes in [&bytes, &plain] {
                for result in [decompress(codec, bytes, 2000), decompress_format_0(codec, bytes, 2000)] {
                    prop_assert!(result.is_err() || result.is_ok_and(|plain| plain.len() <= 2000));
                }
            }
        }
    }
}
