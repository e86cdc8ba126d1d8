//! Opened and encoded again: against the crate's own record code, by properties, with hostile bytes.
//! Batches captured from real brokers are in `tests/golden`.

mod golden;

use bytes::{Bytes, BytesMut};
use kafka_protocol::records::RecordBatchDecoder;
use proptest::prelude::*;

use super::*;
use crate::batch::{
    Batch, BatchHeader, Codec, Entry, HEADER_LEN, ProducerIdentity,
    compression::{compress, decompress},
    crc32c, sequence,
    varint::put_long,
    vectors, walk,
};

const ID: ProducerIdentity = ProducerIdentity { producer_id: (1 << 62) + 7, producer_epoch: 2 };
const CODECS: [Codec; 5] = [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
const MAX: usize = 1 << 24;

/// A record as a test wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Plain {
    offset_delta: i32,
    timestamp: i64,
    key: Option<Vec<u8>>,
    value: Option<Vec<u8>>,
    headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

fn plain(offset_delta: i32, value: &str) -> Plain {
    Plain {
        offset_delta,
        timestamp: 1_700_000_000_000 + i64::from(offset_delta) * 10,
        key: Some(format!("key {offset_delta}").into_bytes()),
        value: Some(value.as_bytes().to_vec()),
        headers: Vec::new(),
    }
}

fn put_field(record: &mut Vec<u8>, field: Option<&[u8]>) {
    put_long(record, field.map_or(-1, |field| field.len() as i64));
    record.extend_from_slice(field.unwrap_or_default());
}

fn body(record: &Plain) -> Vec<u8> {
    let mut body = Vec::new();
    put_field(&mut body, record.key.as_deref());
    put_field(&mut body, record.value.as_deref());
    put_long(&mut body, record.headers.len() as i64);
    for (key, value) in &record.headers {
        put_field(&mut body, Some(key));
        put_field(&mut body, value.as_deref());
    }
    body
}

/// A batch as a broker would hold it.
fn source(base_offset: i64, last_offset_delta: i32, codec: Codec, records: &[Plain]) -> Batch {
    let base_timestamp = 1_700_000_000_000;
    let mut payload = Vec::new();
    for record in records {
        let mut content = vec![0];
        put_long(&mut content, record.timestamp.wrapping_sub(base_timestamp));
        put_long(&mut content, i64::from(record.offset_delta));
        content.extend(body(record));
        put_long(&mut payload, content.len() as i64);
        payload.extend(content);
    }
    raw(base_offset, last_offset_delta, codec, records.len() as i32, &compress(codec, &payload).unwrap())
}

fn raw(base_offset: i64, last_offset_delta: i32, codec: Codec, count: i32, payload: &[u8]) -> Batch {
    let header = BatchHeader {
        base_offset,
        batch_length: (payload.len() + HEADER_LEN - 12) as i32,
        partition_leader_epoch: 5,
        magic: 2,
        crc: 0,
        attributes: codec.bits(),
        last_offset_delta,
        base_timestamp: 1_700_000_000_000,
        max_timestamp: 1_700_000_900_000,
        producer_id: 9,
        producer_epoch: 1,
        base_sequence: 77,
        records_count: count,
    };
    patched(header, payload)
}

fn patched(header: BatchHeader, payload: &[u8]) -> Batch {
    let mut bytes = header.to_bytes().to_vec();
    bytes.extend_from_slice(payload);
    let crc = crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    one(&bytes.into())
}

fn one(bytes: &Bytes) -> Batch {
    match walk(bytes.clone()).next() {
        Some(Ok(Entry::Batch(batch))) => batch,
        other => panic!("{other:?}"),
    }
}

/// All batches of `contents` from an offset on.
fn encode_all(contents: &Contents, from: i64, limit: Option<usize>) -> Vec<Encoded> {
    let mut records = contents.records_from(from);
    let mut next_sequence = sequence::of_offset(from);
    let mut all = Vec::new();
    while let Some(encoded) = encode(&mut records, Cut::Limit(limit), ID, next_sequence).unwrap() {
        next_sequence = sequence::advance(next_sequence, encoded.records);
        all.push(encoded);
    }
    all
}

/// What every broker demands of a batch it is sent, and its payload as the producer had it.
fn accepted(encoded: &Encoded) -> Batch {
    let batch = one(&encoded.bytes);
    batch.verify_crc().unwrap();
    let header = batch.header;
    assert_eq!(encoded.head, *encoded.bytes.first_chunk().unwrap());
    assert_eq!((header.base_offset, header.partition_leader_epoch), (0, -1));
    assert_eq!(header.last_offset_delta + 1, header.records_count);
    assert_eq!(header.records_count, encoded.records);
    assert_eq!((header.producer_id, header.producer_epoch), (ID.producer_id, ID.producer_epoch));
    assert!(!header.is_log_append_time() && !header.is_transactional() && !header.has_delete_horizon());
    batch
}

/// Offset, timestamp, key, value.
type Seen = (i64, i64, Option<Vec<u8>>, Option<Vec<u8>>);

/// Keys, values, timestamps as the crate's decoder reads them. It keeps no repeated header keys, so headers are compared
/// elsewhere.
fn by_the_crate(batch: &Batch) -> Vec<Seen> {
    let codec = batch.header.codec();
    let mut bytes = Bytes::copy_from_slice(&batch.bytes);
    let open = |payload: &mut Bytes, _| Ok(Bytes::from(decompress(codec, payload, MAX).unwrap()));
    let set = RecordBatchDecoder::decode_with_custom_compression(&mut bytes, Some(open)).unwrap();
    set.records
        .into_iter()
        .map(|record| {
            let bytes = |field: Option<Bytes>| field.map(|field| field.to_vec());
            (record.offset, record.timestamp, bytes(record.key), bytes(record.value))
        })
        .collect()
}

#[test]
fn a_thinned_batch_is_renumbered_and_nothing_else() {
    let records = [plain(1, "b"), plain(4, "e"), plain(5, "f")];
    for codec in CODECS {
        let batch = source(100, 9, codec, &records);
        let contents = decode(&batch, MAX, true).unwrap();
        assert_eq!((contents.codec, contents.base_offset(), contents.next_offset), (codec, 101, 110));
        let all = encode_all(&contents, 100, None);
        let [encoded] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!(encoded.gaps, [(1, 104)]);
        assert_eq!((encoded.first_offset, encoded.next_offset), (101, 106));
        let batch = accepted(encoded);
        assert_eq!(batch.header.codec(), codec);
        assert_eq!(batch.header.base_sequence, 100);
        assert_eq!(batch.header.base_timestamp, 1_700_000_000_010);
        assert_eq!(batch.header.max_timestamp, 1_700_000_000_050);
        let expected: Vec<_> =
            (0..).zip(&records).map(|(at, r)| (at, r.timestamp, r.key.clone(), r.value.clone())).collect();
        assert_eq!(by_the_crate(&batch), expected, "{codec:?}");
        assert_eq!(encode_all(&contents, 100, None)[0].bytes, encoded.bytes, "the same bytes each time");
    }
}

#[test]
fn headers_that_repeat_and_are_no_text_and_nulls_are_kept_byte_for_byte() {
    let odd = Plain {
        headers: vec![
            (b"h".to_vec(), None),
            (b"h".to_vec(), Some(vec![])),
            (vec![0xff, 0xfe], Some(vec![1])),
            (vec![], Some(vec![2; 300])),
        ],
        key: None,
        value: None,
        ..plain(3, "")
    };
    let batch = source(0, 9, Codec::Zstd, &[odd.clone(), Plain { key: Some(vec![]), ..plain(7, "") }]);
    let contents = decode(&batch, MAX, true).unwrap();
    let encoded = &encode_all(&contents, 0, None)[0];
    let again = decode(&accepted(encoded), MAX, true).unwrap();
    let bodies: Vec<Vec<u8>> = again.records().map(|record| record.body.to_vec()).collect();
    assert_eq!(bodies, [body(&odd), body(&Plain { key: Some(vec![]), ..plain(7, "") })]);
}

#[test]
fn log_append_time_shows_what_consumers_saw_or_what_producers_wrote() {
    let batch = source(50, 2, Codec::Gzip, &[plain(0, "a"), plain(1, "b"), plain(2, "c")]);
    let header = BatchHeader { attributes: batch.header.attributes | 0x08, ..batch.header };
    let batch = patched(header, batch.payload());
    for (visible, expected) in
        [(true, vec![1_700_000_900_000; 3]), (false, vec![1_700_000_000_000, 1_700_000_000_010, 1_700_000_000_020])]
    {
        let contents = decode(&batch, MAX, visible).unwrap();
        let encoded = accepted(&encode_all(&contents, 50, None)[0]);
        let shown: Vec<i64> = by_the_crate(&encoded).into_iter().map(|(_, timestamp, ..)| timestamp).collect();
        assert_eq!(shown, expected);
        assert_eq!(encoded.header.max_timestamp, *expected.last().unwrap());
    }
}

#[test]
fn a_batch_with_a_delete_horizon_keeps_its_records_times() {
    // The cleaner re-bases the deltas on the horizon, which lies in the future.
    let batch = source(0, 1, Codec::None, &[plain(0, "a"), plain(1, "b")]);
    let mut header = BatchHeader { attributes: batch.header.attributes | 0x40, ..batch.header };
    header.base_timestamp = 1_800_000_000_000;
    let mut payload = Vec::new();
    for (delta, at) in [(0_i64, 1_700_000_000_000_i64), (1, 1_700_000_000_010)] {
        let mut content = vec![0];
        put_long(&mut content, at - header.base_timestamp);
        put_long(&mut content, delta);
        content.extend(body(&plain(delta as i32, "x")));
        put_long(&mut payload, content.len() as i64);
        payload.extend(content);
    }
    header.batch_length = (payload.len() + HEADER_LEN - 12) as i32;
    let contents = decode(&patched(header, &payload), MAX, true).unwrap();
    let encoded = accepted(&encode_all(&contents, 1, None)[0]);
    assert_eq!(by_the_crate(&encoded).len(), 1);
    assert_eq!(encoded.header.base_timestamp, 1_700_000_000_010);
}

#[test]
fn splits_stay_below_the_limit_and_do_not_hang_on_where_one_begins() {
    let records: Vec<Plain> =
        (0..200).map(|delta| plain(delta, &"a fairly long value, ".repeat(1 + delta as usize % 9))).collect();
    for codec in CODECS {
        let batch = source(1000, 199, codec, &records);
        let contents = decode(&batch, MAX, true).unwrap();
        let all = encode_all(&contents, 1000, Some(2000));
        assert!(all.len() > 5, "{codec:?}: {}", all.len());
        let mut seen = Vec::new();
        for encoded in &all {
            assert!(encoded.bytes.len() <= 2000);
            seen.extend(by_the_crate(&accepted(encoded)).into_iter().map(|(_, _, key, _)| key));
            // Whoever begins at this batch's first record makes this very batch.
            let mut rest = contents.records_from(encoded.first_offset);
            let base_sequence = one(&encoded.bytes).header.base_sequence;
            let again = encode(&mut rest, Cut::Limit(Some(2000)), ID, base_sequence).unwrap().unwrap();
            assert_eq!(again.bytes, encoded.bytes);
        }
        let expected: Vec<_> = records.iter().map(|record| record.key.clone()).collect();
        assert_eq!(seen, expected);
    }
}

#[test]
fn a_record_above_the_limit_gets_a_batch_of_its_own() {
    // Noise does not compress.
    let mut state = 1_u32;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
    .take(5000)
    .collect();
    let large = Plain { value: Some(noise), ..plain(1, "") };
    for codec in CODECS {
        let batch = source(0, 2, codec, &[plain(0, "a"), large.clone(), plain(2, "c")]);
        let contents = decode(&batch, MAX, true).unwrap();
        let sizes: Vec<(i32, bool)> = encode_all(&contents, 0, Some(1000))
            .iter()
            .map(|encoded| (encoded.records, encoded.bytes.len() > 1000))
            .collect();
        assert_eq!(sizes, [(1, false), (1, true), (1, false)], "{codec:?}");
    }
}

#[test]
fn markers_are_never_opened_and_empty_batches_hold_nothing() {
    let marker = one(&vectors::hex(vectors::COMMIT));
    assert_eq!(decode(&marker, MAX, true).unwrap_err(), OpenError::Control { base_offset: 101 });
    let empty = decode(&one(&vectors::hex(vectors::EMPTY_RETAINED)), MAX, true).unwrap();
    assert_eq!((empty.count(), empty.next_offset, encode_all(&empty, 0, None).len()), (0, 110, 0));
}

#[test]
fn payloads_that_break_the_format_are_refused_whole() {
    let good = source(10, 3, Codec::None, &[plain(0, "a"), plain(3, "d")]);
    let with = |at: usize, byte: u8| {
        let mut payload = good.payload().to_vec();
        payload[at] = byte;
        decode(&raw(10, 3, Codec::None, 2, &payload), MAX, true).unwrap_err()
    };
    // Byte 0 is the first length, 3 the offset delta, 4 the key's length.
    assert_eq!(with(0, 0x7e), OpenError::Malformed { base_offset: 10, index: 0 });
    assert_eq!(with(3, 0x08), OpenError::Malformed { base_offset: 10, index: 0 });
    assert_eq!(with(3, 0x01), OpenError::Malformed { base_offset: 10, index: 0 });
    assert_eq!(with(3, 0x06), OpenError::Malformed { base_offset: 10, index: 1 });
    assert_eq!(with(4, 0x03), OpenError::Malformed { base_offset: 10, index: 0 });
    let count = |count| decode(&raw(10, 3, Codec::None, count, good.payload()), MAX, true).unwrap_err();
    assert!(matches!(count(1), OpenError::TrailingBytes { .. }));
    assert_eq!(count(3), OpenError::Malformed { base_offset: 10, index: 2 });
    assert_eq!(count(i32::MAX), OpenError::Malformed { base_offset: 10, index: 2 });
    let bomb = source(10, 0, Codec::Zstd, &[plain(0, &"x".repeat(100_000))]);
    let error = decode(&bomb, 50_000, true).unwrap_err();
    assert!(error.is_limit(), "{error}");
    assert!(error.to_string().contains("limit of 50000 bytes"), "{error}");
}

/// An entry of format 0 or 1 whose checksum fits.
fn message(magic: i8, attributes: i8, offset: i64, timestamp: i64, key: Option<&[u8]>, value: Option<&[u8]>) -> Bytes {
    let mut rest = vec![magic as u8, attributes as u8];
    if magic == 1 {
        rest.extend(timestamp.to_be_bytes());
    }
    for field in [key, value] {
        rest.extend(field.map_or(-1, |field| field.len() as i32).to_be_bytes());
        rest.extend(field.unwrap_or_default());
    }
    let mut entry = offset.to_be_bytes().to_vec();
    entry.extend((rest.len() as i32 + 4).to_be_bytes());
    entry.extend(crc32fast::hash(&rest).to_be_bytes());
    entry.extend(rest);
    entry.into()
}

fn offsets_and_times(contents: &Contents) -> Vec<(i64, i64)> {
    contents.records().map(|record| (record.offset, record.timestamp)).collect()
}

fn run_of(entries: &[Bytes]) -> Contents {
    let mut run = LegacyRun::default();
    for entry in entries {
        assert!(!run.is_full_for(entry));
        run.push(entry, MAX).unwrap();
    }
    run.finish().unwrap().unwrap()
}

#[test]
fn single_messages_of_both_formats_become_one_batch() {
    for magic in [0, 1] {
        let entries: Vec<Bytes> =
            [20, 21, 25].map(|offset| message(magic, 0, offset, 1000 + offset, None, Some(b"v"))).into();
        let contents = run_of(&entries);
        let time = |offset: i64| if magic == 0 { -1 } else { 1000 + offset };
        assert_eq!(offsets_and_times(&contents), [(20, time(20)), (21, time(21)), (25, time(25))]);
        assert_eq!((contents.codec, contents.next_offset), (Codec::None, 26));
        let batch = accepted(&encode_all(&contents, 20, None)[0]);
        assert_eq!(batch.header.base_timestamp, time(20));
        assert_eq!(batch.header.max_timestamp, time(25));
        assert_eq!(by_the_crate(&batch)[2], (2, time(25), None, Some(b"v".to_vec())));
    }
}

#[test]
fn wrappers_place_their_records_by_their_format() {
    let inner = |magic, offsets: [i64; 3]| -> Vec<u8> {
        let messages = offsets.map(|at| message(magic, 0, at, 500 + at, Some(b"k"), None));
        messages.concat()
    };
    // Format 0 says absolute offsets, format 1 relative ones, of which compaction may have taken some.
    let absolute = compress(Codec::Gzip, &inner(0, [40, 41, 44])).unwrap();
    let contents = run_of(&[message(0, 1, 44, 0, None, Some(&absolute))]);
    assert_eq!(offsets_and_times(&contents), [(40, -1), (41, -1), (44, -1)]);
    assert_eq!((contents.codec, contents.next_offset), (Codec::Gzip, 45));
    let relative = compress(Codec::Snappy, &inner(1, [0, 1, 4])).unwrap();
    let contents = run_of(&[message(1, 2, 44, 7, None, Some(&relative))]);
    assert_eq!(offsets_and_times(&contents), [(40, 500), (41, 501), (44, 504)]);
    // Entered in the middle.
    assert_eq!(contents.records_from(41).map(|record| record.offset).collect::<Vec<_>>(), [41, 44]);
    assert_eq!(contents.records_from(45).left(), 0);
    // The broker's time, which stands on the wrapper only.
    let contents = run_of(&[message(1, 2 | 8, 44, 7, None, Some(&relative))]);
    assert_eq!(offsets_and_times(&contents), [(40, 7), (41, 7), (44, 7)]);
}

#[test]
fn the_old_lz4_checksum_is_accepted_in_format_0_only() {
    let inner = |magic| message(magic, 0, 0, 0, None, Some(b"some value")).to_vec();
    let broken = |magic| {
        let mut frame = compress(Codec::Lz4, &inner(magic)).unwrap();
        frame[6] = (twox_hash::XxHash32::oneshot(0, &frame[..6]) >> 8) as u8;
        frame
    };
    assert_eq!(run_of(&[message(0, 3, 0, 0, None, Some(&broken(0)))]).count(), 1);
    let mut run = LegacyRun::default();
    let error = run.push(&message(1, 3, 0, 0, None, Some(&broken(1))), MAX).unwrap_err();
    assert!(matches!(error, OpenError::Decompress { base_offset: 0, .. }), "{error}");
}

#[test]
fn a_run_ends_where_something_else_begins() {
    let single = message(1, 0, 5, 0, None, Some(b"v"));
    let mut run = LegacyRun::default();
    assert!(run.is_empty() && !run.is_full_for(&single));
    run.push(&single, MAX).unwrap();
    let wrapper = message(1, 1, 9, 0, None, Some(&compress(Codec::Gzip, &single).unwrap()));
    assert!(run.is_full_for(&wrapper));
    assert!(!run.is_full_for(&message(0, 0, 6, 0, None, None)));
    assert!(run.is_full_for(&message(1, 0, 6 + i64::from(i32::MAX), 0, None, None)));
    assert!(run.is_full_for(&message(1, 0, 6, 0, None, Some(&[0; 200_000]))));
    assert_eq!(run.finish().unwrap().unwrap().count(), 1);
    run.push(&wrapper, MAX).unwrap();
    assert!(run.is_full_for(&message(1, 0, 10, 0, None, None)));
}

#[test]
fn damaged_and_impossible_messages_are_refused() {
    let push = |entry: Bytes| LegacyRun::default().push(&entry, MAX).unwrap_err();
    let mut flipped = message(1, 0, 5, 0, None, Some(b"v")).to_vec();
    *flipped.last_mut().unwrap() ^= 1;
    assert!(matches!(push(flipped.into()), OpenError::LegacyCrc { offset: 5, .. }));
    let wrap = |inner: &[u8]| message(1, 1, 5, 0, None, Some(&compress(Codec::Gzip, inner).unwrap()));
    // Nothing inside; a wrapper inside; formats mixed; offsets that do not grow; a cut-off record; no value.
    let nested = wrap(&wrap(&message(1, 0, 0, 0, None, None)));
    let twice = [message(1, 0, 1, 0, None, None), message(1, 0, 1, 0, None, None)].concat();
    let cut = message(1, 0, 0, 0, None, Some(b"value"));
    for entry in [
        wrap(b""),
        nested,
        wrap(&message(0, 0, 0, 0, None, None)),
        wrap(&twice),
        wrap(&cut[..cut.len() - 1]),
        message(1, 1, 5, 0, None, None),
    ] {
        assert_eq!(push(entry), OpenError::LegacyMalformed { offset: 5 });
    }
}

fn plains() -> impl Strategy<Value = Vec<Plain>> {
    let bytes = || prop::option::of(prop::collection::vec(any::<u8>(), 0..60));
    let header = (prop::collection::vec(any::<u8>(), 0..4), bytes());
    let record = (1..4_i32, any::<i64>(), any::<bool>(), bytes(), bytes(), prop::collection::vec(header, 0..3));
    prop::collection::vec(record, 1..40).prop_map(|records| {
        let mut offset_delta = -1;
        records
            .into_iter()
            .map(|(step, timestamp, tame, key, value, headers)| {
                offset_delta += step;
                let timestamp = if tame { timestamp.rem_euclid(1 << 42) } else { timestamp };
                Plain { offset_delta, timestamp, key, value, headers }
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn what_goes_in_comes_out_whatever_the_limit(
        records in plains(),
        codec in prop::sample::select(CODECS.to_vec()),
        limit in prop::option::of(100_usize..3000),
        trailing in 0..5_i32,
        from in 0..60_i64,
    ) {
        let last = records.last().unwrap().offset_delta + trailing;
        let batch = source(500, last, codec, &records);
        let contents = decode(&batch, MAX, true).unwrap();
        let all = encode_all(&contents, 500 + from, limit);
        let mut seen = Vec::new();
        let mut offsets = Vec::new();
        for encoded in &all {
            let again = decode(&accepted(encoded), MAX, true).unwrap();
            seen.extend(again.records().map(|record| (record.timestamp, record.body.to_vec())));
            let mut offset = encoded.first_offset;
            let mut gaps = encoded.gaps.iter().peekable();
            for index in 0..encoded.records {
                if let Some((_, at)) = gaps.next_if(|(at, _)| *at == index) {
                    offset = *at;
                }
                offsets.push(offset);
                offset += 1;
            }
            prop_assert_eq!(offset, encoded.next_offset);
            prop_assert!(encoded.records == 1 || limit.is_none_or(|limit| encoded.bytes.len() <= limit));
        }
        let wanted: Vec<&Plain> = records.iter().filter(|record| i64::from(record.offset_delta) >= from).collect();
        let expected: Vec<_> = wanted.iter().map(|record| (record.timestamp, body(record))).collect();
        prop_assert_eq!(seen, expected);
        let expected: Vec<_> = wanted.iter().map(|record| 500 + i64::from(record.offset_delta)).collect();
        prop_assert_eq!(offsets, expected);
    }

    #[test]
    fn cut_off_and_flipped_payloads_end_in_an_error_or_in_other_records(
        records in plains(),
        codec in prop::sample::select(CODECS.to_vec()),
        at in any::<prop::sample::Index>(),
        flip in 0_u8..,
    ) {
        let last = records.last().unwrap().offset_delta;
        let batch = source(0, last, codec, &records);
        let mut payload = batch.payload().to_vec();
        let at = at.index(payload.len());
        if flip == 0 {
            payload.truncate(at);
        } else {
            payload[at] ^= flip;
        }
        let count = batch.header.records_count;
        if let Ok(contents) = decode(&raw(0, last, codec, count, &payload), 1 << 20, true) {
            let again: i32 = encode_all(&contents, 0, Some(500)).iter().map(|encoded| encoded.records).sum();
            prop_assert_eq!(again, count);
        }
    }

    #[test]
    fn hostile_messages_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), magic in 0_i8..2, codec in 0_i8..5) {
        let wrapper = message(magic, codec, 3, 0, None, Some(&compress(Codec::of_bits(i16::from(codec)), &bytes).unwrap()));
        for entry in [wrapper, Bytes::from(bytes)] {
            let mut run = LegacyRun::default();
            let _ = run.is_full_for(&entry);
            if run.push(&entry, 1 << 16).is_ok() {
                let _ = run.finish();
            }
        }
    }
}

#[test]
fn the_crate_reads_a_batch_that_the_spec_vectors_made() {
    // The oracle of this file, checked itself.
    let batch = one(&vectors::hex(vectors::EXAMPLE_1_OLD));
    let mut bytes = BytesMut::from(batch.bytes.as_ref());
    assert_eq!(RecordBatchDecoder::decode(&mut bytes).unwrap().records.len(), 1);
    assert_eq!(by_the_crate(&batch)[0].2, Some(b"k".to_vec()));
}
