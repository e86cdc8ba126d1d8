//! A bounded, seeded run of every target over mutations of valid inputs.

use bytes::{BufMut, BytesMut};
use kafka_protocol::messages::fetch_response::{
    AbortedTransaction as WireAborted, FetchableTopicResponse, PartitionData,
};
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::protocol::{Encodable, StrBytes};
use towpath::batch::BatchBuilder;

use super::*;

/// Mutations of each input.
const ROUNDS: usize = 3_000;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % bound.max(1)
    }

    fn mutate(&mut self, input: &[u8]) -> Vec<u8> {
        let mut bytes = input.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            if bytes.is_empty() {
                break;
            }
            match self.below(6) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][self.below(5)],
                2 => bytes.truncate(at),
                3 => bytes.insert(at, self.below(256) as u8),
                4 => {
                    bytes.remove(at);
                }
                _ => {
                    let end = bytes.len().min(at + 4);
                    bytes[at..end].fill([0, 0xff][self.below(2)]);
                }
            }
        }
        bytes
    }
}

fn run(target: fn(&[u8]), inputs: &[Vec<u8>]) {
    let mut random = Random(0x5eed_0f70_3a11_ced1);
    for input in inputs {
        target(input);
        (0..input.len()).for_each(|length| target(&input[..length]));
        (0..ROUNDS).for_each(|_| target(&random.mutate(input)));
    }
    for length in 0..300 {
        let noise: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
        target(&noise);
    }
}

fn records() -> Bytes {
    let mut builder = BatchBuilder::new();
    builder.push(1_700_000_000_000, Some(b"key"), Some(b"value"), &[("header", Some(b"x")), ("none", None)]).unwrap();
    builder.push(1_700_000_000_007, None, Some(b"another value"), &[]).unwrap();
    let batch = builder.build().unwrap();
    let marker = {
        let mut marker = batch.to_vec();
        marker[22] = 0x30;
        marker
    };
    [&batch[..], &batch, &marker, &batch[..40]].concat().into()
}

fn text(text: &'static str) -> StrBytes {
    StrBytes::from_static_str(text)
}

/// The choice bytes, then the message.
fn encoded(choice: &[u8], message: &impl Encodable, version: i16) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    bytes.put_slice(choice);
    message.encode(&mut bytes, version).unwrap();
    bytes.to_vec()
}

#[test]
fn frames() {
    let inputs = [
        &b"\0\0\0\x0c\0\0\0\x07\x01\x09\x02\xaa\xbbbody"[..],
        b"HTTP/1.1 400 Bad Request\r\n",
        &[0x15, 3, 3, 0, 2, 2, 40],
    ];
    run(fuzz_frame, &inputs.map(<[u8]>::to_vec));
}

#[test]
fn fetch_responses() {
    let inputs: Vec<_> = (4..=18_u8)
        .map(|version| {
            let partition = PartitionData::default()
                .with_high_watermark(9)
                .with_aborted_transactions(Some(vec![WireAborted::default().with_producer_id(7.into())]))
                .with_records(Some(records()));
            let topic = FetchableTopicResponse::default().with_partitions(vec![partition.clone(), partition]);
            let topic = if version < 13 { topic.with_topic(text("topic").into()) } else { topic };
            let message = wire::FetchResponse::default().with_responses(vec![topic]);
            encoded(&[version], &message, version.into())
        })
        .collect();
    run(fuzz_fetch_response, &inputs);
}

#[test]
fn produce_responses() {
    let inputs: Vec<_> = (3..=13_u8)
        .map(|version| {
            let partition = PartitionProduceResponse::default().with_base_offset(5);
            let topic = TopicProduceResponse::default().with_partition_responses(vec![partition.clone(), partition]);
            let topic = if version < 13 { topic.with_name(text("topic").into()) } else { topic };
            encoded(&[version], &wire::ProduceResponse::default().with_responses(vec![topic]), version.into())
        })
        .collect();
    run(fuzz_produce_response, &inputs);
}

#[test]
fn metadata() {
    let inputs: Vec<_> = (0..=13_u8)
        .map(|version| {
            let partition = MetadataResponsePartition::default()
                .with_replica_nodes(vec![1.into(), 2.into()])
                .with_isr_nodes(vec![1.into()]);
            let topic = MetadataResponseTopic::default()
                .with_name(Some(text("topic").into()))
                .with_partitions(vec![partition.clone(), partition]);
            let broker = MetadataResponseBroker::default().with_host(text("broker.example"));
            let message = wire::MetadataResponse::default().with_brokers(vec![broker]).with_topics(vec![topic]);
            encoded(&[version], &message, version.into())
        })
        .collect();
    run(fuzz_metadata, &inputs);
}

#[test]
fn offsets() {
    use kafka_protocol::messages::offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
    let inputs: Vec<_> = (2..=9_u8)
        .map(|version| {
            let topic = OffsetCommitResponseTopic::default()
                .with_name(text("topic").into())
                .with_partitions(vec![OffsetCommitResponsePartition::default(); 3]);
            let message = wire::OffsetCommitResponse::default().with_topics(vec![topic]);
            encoded(&[version], &message, version.into())
        })
        .collect();
    run(fuzz_offsets, &inputs);
}

#[test]
fn guarded_responses() {
    use kafka_protocol::messages::{
        api_versions_response as a, describe_groups_response as g, list_offsets_response as l,
    };
    let place = |api: ApiKey| GUARDED.iter().position(|known| *known == api).unwrap() as u8;
    let mut inputs = Vec::new();
    for version in 0..=4_u8 {
        let mut message = wire::ApiVersionsResponse::default().with_api_keys(vec![a::ApiVersion::default(); 5]);
        if version >= 3 {
            message = message.with_finalized_features_epoch(4).with_supported_features(vec![
                    a::SupportedFeatureKey::default()
                        .with_name(text("feature"));
                    2
                ]);
        }
        inputs.push(encoded(&[place(ApiKey::ApiVersions), version], &message, version.into()));
    }
    for version in 1..=10_u8 {
        let topic = l::ListOffsetsTopicResponse::default()
            .with_name(text("topic").into())
            .with_partitions(vec![l::ListOffsetsPartitionResponse::default(); 3]);
        let message = wire::ListOffsetsResponse::default().with_topics(vec![topic; 2]);
        inputs.push(encoded(&[place(ApiKey::ListOffsets), version], &message, version.into()));
    }
    for version in 0..=6_u8 {
        let group = g::DescribedGroup::default()
            .with_group_id(text("group").into())
            .with_members(vec![g::DescribedGroupMember::default(); 3]);
        let message = wire::DescribeGroupsResponse::default().with_groups(vec![group; 2]);
        inputs.push(encoded(&[place(ApiKey::DescribeGroups), version], &message, version.into()));
    }
    // Every other API starts from bytes that announce little and bytes that announce much.
    for api in 0..GUARDED.len() as u8 {
        for version in 0..=9 {
            inputs.push([vec![api, version], vec![0; 40]].concat());
            inputs.push([vec![api, version], vec![2; 40]].concat());
        }
    }
    run(fuzz_guard, &inputs);
}

#[test]
fn opened_batches() {
    let golden = |kind: &str| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../src/batch/open/tests/golden/");
        std::fs::read(format!("{folder}{kind}.bin")).unwrap()
    };
    let mut inputs = vec![[&[0][..], &records()].concat()];
    for kind in ["thinned-none", "thinned-gzip", "thinned-snappy", "thinned-lz4", "thinned-zstd", "append-time"] {
        inputs.push([vec![0], golden(kind)].concat());
    }
    run(fuzz_open, &inputs);
}

#[test]
fn old_messages() {
    // Two records as they lie in a wrapper: offset, size, checksum (which is not looked at), format, no key, no value.
    let inner = |magic: u8| -> Vec<u8> {
        let one = |offset: u8| {
            let size = 14 + magic * 8;
            let head = [0, 0, 0, 0, 0, 0, 0, offset, 0, 0, 0, size, 0, 0, 0, 0, magic, 0];
            [&head[..], &[0; 8][..usize::from(magic) * 8], &[0xff; 8]].concat()
        };
        [one(0), one(1)].concat()
    };
    let mut inputs = Vec::new();
    for magic in 0..2_u8 {
        for codec in 0..4_u8 {
            inputs.push([vec![codec << 1 | magic, 0], inner(magic)].concat());
        }
    }
    run(fuzz_legacy, &inputs);
}

#[test]
fn records_walks_and_abort_lists() {
    run(fuzz_walk, &[records().to_vec()]);
    let with_list = [&[3, 7, 0, 7, 1, 9, 200][..], &records()].concat();
    run(fuzz_abort_filter, &[with_list]);
}
