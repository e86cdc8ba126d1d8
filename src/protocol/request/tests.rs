//! Gathered requests against the plain encoding, byte for byte.

use bytes::{BufMut, BytesMut};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{FetchRequest, MetadataRequest, ProduceRequest};
use kafka_protocol::protocol::buf::ByteBufMut;
use uuid::Uuid;

use super::*;
use crate::protocol::random::Random;

/// Sizes around the header length and the limit below which batches are copied.
const SIZES: [usize; 9] = [61, 62, 100, 4095, 4096, 4097, 9000, 61, 70_000];

fn batch(random: &mut Random, size: usize) -> Bytes {
    (0..size).map(|_| random.next() as u8).collect()
}

fn produce(version: i16, batches: &[Bytes]) -> ProduceRequest {
    let topics = batches.chunks(2).enumerate().map(|(at, batches)| {
        let partitions = batches.iter().enumerate().map(|(index, batch)| {
            PartitionProduceData::default().with_index(index as i32).with_records(Some(batch.clone()))
        });
        let topic = TopicProduceData::default().with_partition_data(partitions.collect());
        if version >= 13 {
            topic.with_topic_id(Uuid::from_u128(at as u128))
        } else {
            topic.with_name(StrBytes::from_string(format!("topic-{at}")).into())
        }
    });
    ProduceRequest::default().with_acks(-1).with_timeout_ms(30_000).with_topic_data(topics.collect())
}

/// Length, header and message as the crate writes them into one buffer.
fn plain<R: Request>(correlation_id: i32, client_id: &str, version: i16, request: &R) -> Bytes {
    let header = RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(correlation_id)
        .with_client_id(Some(StrBytes::from_string(client_id.to_owned())));
    let mut frame = BytesMut::new();
    frame.put_i32(0);
    header.encode(&mut frame, R::header_version(version)).unwrap();
    request.encode(&mut frame, version).unwrap();
    let length = frame.len() as i32 - 4;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    frame.freeze()
}

/// The batch as it is to go out.
fn with_head(batch: &Bytes, head: &[u8; SEALED_HEAD_LEN]) -> Bytes {
    [head.as_slice(), &batch[SEALED_HEAD_LEN..]].concat().into()
}

#[test]
fn sealed_batches_come_out_as_if_they_had_been_copied() {
    let mut random = Random::new(1);
    for version in 3..=13 {
        let batches: Vec<Bytes> = SIZES.iter().map(|size| batch(&mut random, *size)).collect();
        let heads: Vec<[u8; SEALED_HEAD_LEN]> =
            batches.iter().map(|_| std::array::from_fn(|_| random.next() as u8)).collect();
        let sealed = batches.iter().cloned().zip(heads.iter().copied()).collect();
        let segments = encode_request(77, "towpath", version, &produce(version, &batches), sealed).unwrap();
        let copied: Vec<Bytes> = batches.iter().zip(&heads).map(|(batch, head)| with_head(batch, head)).collect();
        let expected = plain(77, "towpath", version, &produce(version, &copied));
        assert_eq!(segments.concat(), expected, "v{version}");
        // Four batches are 4096 bytes or longer: head, payload, head, payload, ... and what follows the last payload,
        // if anything does.
        assert!(segments.len() == 8 || segments.len() == 9, "{}", segments.len());
        for (batch, segment) in
            batches.iter().filter(|batch| batch.len() >= 4096).zip(segments.iter().skip(1).step_by(2))
        {
            assert_eq!(segment.as_ptr(), batch[SEALED_HEAD_LEN..].as_ptr(), "the payload is not copied");
        }
    }
}

#[test]
fn a_thousand_batches_in_order() {
    let mut random = Random::new(2);
    let batches: Vec<Bytes> = (0..1000).map(|at| batch(&mut random, 61 + at * 9)).collect();
    let sealed = batches.iter().map(|batch| (batch.clone(), [7; SEALED_HEAD_LEN])).collect();
    let segments = encode_request(1, "", 9, &produce(9, &batches), sealed).unwrap();
    let copied: Vec<Bytes> = batches.iter().map(|batch| with_head(batch, &[7; SEALED_HEAD_LEN])).collect();
    assert_eq!(segments.concat(), plain(1, "", 9, &produce(9, &copied)));
}

#[test]
fn one_batch_for_two_partitions_gets_two_heads() {
    let batch = batch(&mut Random::new(3), 5000);
    let sealed = vec![(batch.clone(), [1; SEALED_HEAD_LEN]), (batch.clone(), [2; SEALED_HEAD_LEN])];
    let segments = encode_request(1, "", 7, &produce(7, &[batch.clone(), batch.clone()]), sealed).unwrap();
    let copied = [with_head(&batch, &[1; SEALED_HEAD_LEN]), with_head(&batch, &[2; SEALED_HEAD_LEN])];
    assert_eq!(segments.concat(), plain(1, "", 7, &produce(7, &copied)));
}

#[test]
fn requests_without_batches_are_one_buffer() {
    let request = MetadataRequest::default().with_topics(None);
    for version in 1..=13 {
        let segments = encode_request(5, "towpath", version, &request, Vec::new()).unwrap();
        assert_eq!(segments, [plain(5, "towpath", version, &request)], "v{version}");
    }
    let request = FetchRequest::default().with_max_wait_ms(500);
    for version in 4..=18 {
        let segments = encode_request(5, "towpath", version, &request, Vec::new()).unwrap();
        assert_eq!(segments, [plain(5, "towpath", version, &request)], "v{version}");
    }
}

#[test]
fn unsealed_batches_never_leave_unnoticed() {
    let mut random = Random::new(4);
    let batches = [batch(&mut random, 5000), batch(&mut random, 5000)];
    let request = produce(9, &batches);
    let head = [0; SEALED_HEAD_LEN];
    let swapped = vec![(batches[1].clone(), head), (batches[0].clone(), head)];
    // Equal bytes at another address are another batch.
    let copied = vec![(Bytes::copy_from_slice(&batches[0]), head), (batches[1].clone(), head)];
    let foreign = vec![(batches[0].clone(), head), (batches[1].clone(), head), (Bytes::from_static(&[0; 80]), head)];
    let too_short = vec![(Bytes::from_static(&[0; 10]), head)];
    for sealed in [swapped, copied, foreign, too_short] {
        let error = encode_request(1, "", 9, &request, sealed).unwrap_err();
        assert_eq!(error.api, "Produce");
        assert!(error.reason.contains("not written in the order of their registration"), "{error}");
    }
}

#[test]
fn a_version_that_cannot_be_written_is_an_error() {
    let error = encode_request(1, "", 2, &produce(3, &[]), Vec::new()).unwrap_err();
    assert!(error.to_string().starts_with("cannot encode the Produce v2 request: "), "{error}");
}

#[test]
fn gaps_are_filled_where_they_were_left() {
    // The messages use no gaps; the trait has them, so they must work across payloads kept by reference.
    let batch = batch(&mut Random::new(5), 5000);
    let mut sink = GatherSink::with_capacity(0);
    sink.register(batch.clone(), [9; SEALED_HEAD_LEN]);
    sink.put_u8(1);
    let before = sink.put_gap(2);
    sink.put_slice(&batch);
    let after = sink.put_gap(3);
    sink.put_u8(2);
    assert_eq!(sink.offset(), 4 + 1 + 2 + 5000 + 3 + 1);
    sink.gap_buf(before).copy_from_slice(&[3, 4]);
    sink.gap_buf(after).copy_from_slice(&[5, 6, 7]);
    let frame = sink.finish().unwrap().concat();
    let expected = [&[0, 0, 0x13, 0x8f, 1, 3, 4][..], &[9; SEALED_HEAD_LEN], &batch[SEALED_HEAD_LEN..], &[5, 6, 7, 2]];
    assert_eq!(frame, expected.concat());
}
