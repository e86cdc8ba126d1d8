//! Builder and reader against the specification's example, the crate's own record code, and hostile payloads.

use bytes::BytesMut;
use kafka_protocol::records::RecordBatchDecoder;

use super::*;
use crate::batch::{BatchBuilder, Entry, HEADER_LEN, crc32c, vectors, walk};

fn batch(bytes: &Bytes) -> Batch {
    match walk(bytes.clone()).next() {
        Some(Ok(Entry::Batch(batch))) => batch,
        other => panic!("{other:?}"),
    }
}

fn read(batch: &Batch) -> Result<Vec<Record>, RecordError> {
    records(batch)?.collect()
}

/// The example batch with another payload and count.
fn with_payload(payload: &[u8], count: i32) -> Batch {
    let mut bytes = vectors::hex(vectors::EXAMPLE_1_OLD).to_vec();
    bytes.truncate(HEADER_LEN);
    bytes.extend_from_slice(payload);
    let length = bytes.len() as i32 - 12;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    bytes[23..27].copy_from_slice(&(count - 1).to_be_bytes());
    bytes[57..61].copy_from_slice(&count.to_be_bytes());
    batch(&bytes.into())
}

#[test]
fn the_record_of_the_spec_example() {
    let record = Record {
        offset: 1000,
        timestamp: 1_700_000_000_000,
        key: Some(Bytes::from_static(b"k")),
        value: Some(Bytes::from_static(b"v")),
        headers: Vec::new(),
    };
    assert_eq!(read(&batch(&vectors::hex(vectors::EXAMPLE_1_OLD))), Ok(vec![record]));
    assert_eq!(read(&batch(&vectors::hex(vectors::EMPTY_RETAINED))), Ok(Vec::new()));
}

#[test]
fn the_builder_makes_the_batch_of_the_spec_example() {
    let mut builder = BatchBuilder::new();
    builder.push(1_700_000_000_000, Some(b"k"), Some(b"v"), &[]).unwrap();
    let built = builder.build().unwrap();
    // The same batch as in the example, but for base offset and leader epoch, which the CRC does not cover.
    let mut expected = vectors::hex(vectors::EXAMPLE_1_OLD).to_vec();
    expected[..8].fill(0);
    expected[12..16].fill(0xff);
    // Its base sequence, producer id and epoch are -1 already, and so is its CRC unchanged.
    assert_eq!(built, expected);
}

#[test]
fn what_the_builder_writes_the_crate_and_we_read() {
    let mut builder = BatchBuilder::new();
    assert!(builder.is_empty() && builder.clone().build().is_none());
    let long = vec![b'x'; 300];
    let headers: &[(&str, Option<&[u8]>)] = &[("a", Some(b"1")), ("b", None), ("", Some(b""))];
    builder.push(1_000, Some(b"key"), Some(&long), headers).unwrap();
    builder.push(-1, None, Some(b""), &[]).unwrap();
    builder.push(5_000_000_000_000, Some(b""), None, &[]).unwrap();
    assert_eq!(builder.count(), 3);
    let size = builder.total_size();
    let bytes = builder.build().unwrap();
    assert_eq!(bytes.len(), size);

    let batch = batch(&bytes);
    batch.verify_crc().unwrap();
    assert_eq!(crc32c(&bytes[21..]), crc32c::crc32c(&bytes[21..]));
    assert_eq!((batch.header.base_timestamp, batch.header.max_timestamp), (1_000, 5_000_000_000_000));
    assert_eq!((batch.header.producer_id, batch.header.producer_epoch, batch.header.base_sequence), (-1, -1, -1));
    assert!(!batch.header.is_thinned());

    let ours = read(&batch).unwrap();
    let theirs = RecordBatchDecoder::decode(&mut BytesMut::from(bytes.as_ref())).unwrap().records;
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!((ours.offset, ours.timestamp), (theirs.offset, theirs.timestamp));
        assert_eq!((&ours.key, &ours.value), (&theirs.key, &theirs.value));
        assert_eq!(ours.headers.len(), theirs.headers.len());
    }
    let keys: Vec<&[u8]> = ours[0].headers.iter().map(|header| header.key.as_ref()).collect();
    assert_eq!(keys, [&b"a"[..], b"b", b""]);
    assert_eq!(ours[0].headers[1].value, None);
}

#[test]
fn with_log_append_time_every_record_has_the_batchs_time() {
    let mut batch = batch(&vectors::hex(vectors::EXAMPLE_1_OLD));
    batch.header.attributes = 0x08;
    batch.header.max_timestamp = 99;
    assert_eq!(read(&batch).unwrap()[0].timestamp, 99);
}

#[test]
fn malformed_records_are_refused() {
    // length 16 (zigzag 8), attributes, timestamp delta, offset delta, key 1 "k", value 1 "v", no headers
    let good = [0x10, 0, 0, 0, 2, b'k', 2, b'v', 0];
    assert_eq!(read(&with_payload(&good, 1)).map(|records| records.len()), Ok(1));
    let with = |at: usize, byte: u8| {
        let mut payload = good;
        payload[at] = byte;
        read(&with_payload(&payload, 1))
    };
    let malformed = Err(RecordError::Malformed { base_offset: 1000, index: 0 });
    assert_eq!(with(0, 0x0e), malformed, "a record shorter than its content");
    assert_eq!(with(0, 0x12), malformed, "a record that ends early");
    assert_eq!(with(0, 0x01), malformed, "a negative record length");
    assert_eq!(with(4, 0x03), malformed, "a key length of -2");
    assert_eq!(with(4, 0x7e), malformed, "a key longer than the record");
    assert_eq!(with(8, 0x01), malformed, "a negative header count");
    assert_eq!(with(8, 0x7e), malformed, "more headers than bytes");
    // One header with a null key.
    assert_eq!(read(&with_payload(&[0x14, 0, 0, 0, 2, b'k', 2, b'v', 2, 1, 1], 1)), malformed);
    let trailing = Err(RecordError::TrailingBytes { base_offset: 1000, bytes: 9 });
    assert_eq!(read(&with_payload(&[good, good].concat(), 1)), trailing);
    assert_eq!(read(&with_payload(&good, 2)), Err(RecordError::Malformed { base_offset: 1000, index: 1 }));
}

#[test]
fn compressed_batches_are_not_opened() {
    let mut batch = batch(&vectors::hex(vectors::EXAMPLE_1_OLD));
    batch.header.attributes = 3;
    let error = read(&batch).unwrap_err();
    assert_eq!(error, RecordError::Compressed { base_offset: 1000, codec: Codec::Lz4 });
    assert!(error.to_string().contains("set compression.type=producer"), "{error}");
}
