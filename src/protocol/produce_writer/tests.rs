//! Requests written batch by batch against the crate's own encoding, byte for byte.

use kafka_protocol::{
    messages::{
        ProduceRequest, RequestHeader,
        produce_request::{PartitionProduceData, TopicProduceData},
    },
    protocol::{Encodable, HeaderVersion, StrBytes},
};

use super::*;
use crate::protocol::random::Random;

/// Sizes around the header length and the limit below which batches are copied.
const SIZES: [usize; 9] = [61, 62, 100, 4095, 4096, 4097, 9000, 61, 70_000];

struct Sample {
    partition: TopicPartition,
    head: [u8; SEALED_HEAD_LEN],
    batch: Bytes,
}

/// Runs of two partitions of one topic each.
fn samples(random: &mut Random, sizes: impl IntoIterator<Item = usize>) -> Vec<Sample> {
    let sample = |(at, size): (usize, usize)| Sample {
        partition: TopicPartition::new(format!("topic-{}", at / 2), (at % 2) as i32),
        head: std::array::from_fn(|_| random.next() as u8),
        batch: (0..size).map(|_| random.next() as u8).collect(),
    };
    sizes.into_iter().enumerate().map(sample).collect()
}

fn writer<'a>(version: i16, samples: impl IntoIterator<Item = &'a Sample>) -> ProduceWriter {
    let mut writer = ProduceWriter::new(version, 0, 0);
    for sample in samples {
        writer.push(&sample.partition, &sample.head, (&sample.batch).into());
    }
    writer
}

/// What the crate makes of it, all copied into one buffer.
fn plain<'a>(version: i16, client_id: &str, samples: impl IntoIterator<Item = &'a Sample>) -> Bytes {
    let mut topics: Vec<TopicProduceData> = Vec::new();
    for Sample { partition, head, batch } in samples {
        let sent: Bytes = [head.as_slice(), &batch[SEALED_HEAD_LEN..]].concat().into();
        let data = PartitionProduceData::default().with_index(partition.partition.0).with_records(Some(sent));
        match topics.last_mut() {
            Some(topic) if topic.name.as_str() == partition.topic.as_str() => topic.partition_data.push(data),
            _ => {
                let name = StrBytes::from_string(partition.topic.as_str().to_owned());
                topics.push(TopicProduceData::default().with_name(name.into()).with_partition_data(vec![data]));
            }
        }
    }
    let request = ProduceRequest::default().with_acks(-1).with_timeout_ms(30_000).with_topic_data(topics);
    let header = RequestHeader::default()
        .with_request_api_key(ApiKey::Produce as i16)
        .with_request_api_version(version)
        .with_correlation_id(77)
        .with_client_id(Some(StrBytes::from_string(client_id.to_owned())));
    let mut frame = BytesMut::new();
    frame.put_i32(0);
    header.encode(&mut frame, ProduceRequest::header_version(version)).unwrap();
    request.encode(&mut frame, version).unwrap();
    let length = frame.len() as i32 - 4;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    frame.freeze()
}

#[test]
fn what_is_written_is_what_the_crate_would_write() {
    let mut random = Random::new(1);
    for version in VERSIONS {
        let samples = samples(&mut random, SIZES);
        let segments = writer(version, &samples).finish(77, "towpath", 30_000).unwrap();
        assert_eq!(segments.concat(), plain(version, "towpath", &samples), "v{version}");
        for batch in samples.iter().map(|sample| &sample.batch).filter(|batch| batch.len() >= 4096) {
            let payload = batch[SEALED_HEAD_LEN..].as_ptr();
            assert!(segments.iter().any(|segment| segment.as_ptr() == payload), "the payload is not copied");
        }
    }
}

#[test]
fn a_thousand_small_batches_are_a_few_buffers() {
    let samples: Vec<Sample> = samples(&mut Random::new(2), (0..1000).map(|at| 61 + at % 900))
        .into_iter()
        .enumerate()
        .map(|(at, sample)| Sample { partition: TopicPartition::new("one", at as i32), ..sample })
        .collect();
    for version in [3, 8, 9, 12] {
        let segments = writer(version, &samples).finish(77, "", 30_000).unwrap();
        assert_eq!(segments.len(), 3, "front, batches, end");
        assert_eq!(segments.concat(), plain(version, "", &samples));
    }
}

#[test]
fn what_is_taken_out_leaves_no_trace() {
    let mut random = Random::new(3);
    for version in VERSIONS {
        for _ in 0..50 {
            let sizes: Vec<usize> = (0..12).map(|_| SIZES[random.next() as usize % SIZES.len()]).collect();
            let samples = samples(&mut random, sizes);
            let kept: Vec<bool> = samples.iter().map(|_| !random.next().is_multiple_of(3)).collect();
            let mut written = writer(version, &samples);
            let mut answers = kept.iter();
            written.retain(|| *answers.next().unwrap());
            let left: Vec<&Sample> = samples.iter().zip(&kept).filter(|(_, kept)| **kept).map(|(s, _)| s).collect();
            assert_eq!(written.batch_bytes(), left.iter().map(|sample| sample.batch.len()).sum::<usize>());
            // What comes behind what was taken out.
            let last = &samples[samples.len() - 1];
            written.push(&last.partition, &last.head, (&last.batch).into());
            let expected = plain(version, "towpath", left.into_iter().chain([last]));
            assert_eq!(written.finish(77, "towpath", 30_000).unwrap().concat(), expected, "v{version}");
        }
    }
}

#[test]
fn what_cannot_be_written_is_an_error() {
    for version in [2, 13] {
        let error = writer(version, []).finish(1, "", 1).unwrap_err();
        assert!(error.to_string().starts_with(&format!("cannot encode the Produce v{version} request: ")), "{error}");
    }
    let long = "t".repeat(40_000);
    assert!(writer(9, []).finish(1, &long, 1).is_err(), "the client id");
    let mut topic = ProduceWriter::new(9, 0, 0);
    topic.push(&TopicPartition::new(long.as_str(), 0), &[0; SEALED_HEAD_LEN], (&Bytes::from_static(&[0; 61])).into());
    assert!(topic.finish(1, "", 1).is_err(), "the topic's name");
}
