//! Valid inputs of each target, as a broker, another process or a person would write them.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages as wire;
use kafka_protocol::messages::ApiKey;
use kafka_protocol::messages::fetch_response::{
    AbortedTransaction as WireAborted, FetchableTopicResponse, PartitionData,
};
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::protocol::{Encodable, StrBytes};
use towpath::batch::BatchBuilder;

use super::GUARDED;

/// Those of the target with this name; none for another name.
pub fn of(target: &str) -> Vec<Vec<u8>> {
    match target {
        "frame" => frames(),
        "fetch_response" => fetch_responses(),
        "produce_response" => produce_responses(),
        "metadata" => metadata(),
        "offsets" => offsets(),
        "guard" => guarded_responses(),
        "walk" => vec![records().to_vec()],
        "abort_filter" => vec![[&[3, 7, 0, 7, 1, 9, 200][..], &records()].concat()],
        "open" => opened_batches(),
        "legacy" => old_messages(),
        "anchor" => anchors(),
        "lease" => leases(),
        "properties" => properties(),
        _ => Vec::new(),
    }
}

fn records() -> Bytes {
    let mut builder = BatchBuilder::new();
    builder
        .push(1_700_000_000_000, Some(b"key"), Some(b"value"), &[("header", Some(b"x")), ("none", None)])
        .expect("small");
    builder.push(1_700_000_000_007, None, Some(b"another value"), &[]).expect("small");
    let batch = builder.build().expect("it has records");
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
    message.encode(&mut bytes, version).expect("the version has these fields");
    bytes.to_vec()
}

fn frames() -> Vec<Vec<u8>> {
    let inputs = [
        &b"\0\0\0\x0c\0\0\0\x07\x01\x09\x02\xaa\xbbbody"[..],
        b"HTTP/1.1 400 Bad Request\r\n",
        &[0x15, 3, 3, 0, 2, 2, 40],
    ];
    inputs.map(<[u8]>::to_vec).to_vec()
}

fn fetch_responses() -> Vec<Vec<u8>> {
    let inputs: Vec<Vec<u8>> = (4..=18_u8)
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
    inputs
}

fn produce_responses() -> Vec<Vec<u8>> {
    let inputs: Vec<Vec<u8>> = (3..=13_u8)
        .map(|version| {
            let partition = PartitionProduceResponse::default().with_base_offset(5);
            let topic = TopicProduceResponse::default().with_partition_responses(vec![partition.clone(), partition]);
            let topic = if version < 13 { topic.with_name(text("topic").into()) } else { topic };
            encoded(&[version], &wire::ProduceResponse::default().with_responses(vec![topic]), version.into())
        })
        .collect();
    inputs
}

fn metadata() -> Vec<Vec<u8>> {
    let inputs: Vec<Vec<u8>> = (0..=13_u8)
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
    inputs
}

fn offsets() -> Vec<Vec<u8>> {
    use kafka_protocol::messages::offset_commit_response::{OffsetCommitResponsePartition, OffsetCommitResponseTopic};
    let inputs: Vec<Vec<u8>> = (2..=9_u8)
        .map(|version| {
            let topic = OffsetCommitResponseTopic::default()
                .with_name(text("topic").into())
                .with_partitions(vec![OffsetCommitResponsePartition::default(); 3]);
            let message = wire::OffsetCommitResponse::default().with_topics(vec![topic]);
            encoded(&[version], &message, version.into())
        })
        .collect();
    inputs
}

fn guarded_responses() -> Vec<Vec<u8>> {
    use kafka_protocol::messages::{
        api_versions_response as a, describe_groups_response as g, list_offsets_response as l,
    };
    let place = |api: ApiKey| GUARDED.iter().position(|known| *known == api).expect("it is one of them") as u8;
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
    inputs
}

fn opened_batches() -> Vec<Vec<u8>> {
    let golden = |kind: &str| {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../src/batch/open/tests/golden/");
        std::fs::read(format!("{folder}{kind}.bin")).expect("a file of the repository")
    };
    let mut inputs = vec![[&[0][..], &records()].concat()];
    for kind in ["thinned-none", "thinned-gzip", "thinned-snappy", "thinned-lz4", "thinned-zstd", "append-time"] {
        inputs.push([vec![0], golden(kind)].concat());
    }
    inputs
}

fn old_messages() -> Vec<Vec<u8>> {
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
    inputs
}

fn anchors() -> Vec<Vec<u8>> {
    let anchor = "towpath-anchor-1 s=1500 i=AAAAAAAAAAAAAAAAAAAAAA t=AAAAAAAAAAAAAAAAAAAAAA e=3 p=4611686018427387911 \
                  pe=0 q=1500 m=co st=";
    let texts = [
        format!("{anchor}copying"),
        format!("{anchor}source-records-lost d=00000000000000a7 ik=records%20lost:5 why=offsets%205%20to%209"),
        "towpath-state-1 t=AAAAAAAAAAAAAAAAAAAAAA st=target-not-empty ik=target-not-empty:x why=full".to_owned(),
    ];
    texts.iter().map(|text| [&[100], text.as_bytes()].concat()).collect()
}

fn leases() -> Vec<Vec<u8>> {
    let head = |length: usize| [&[0, 1][..], &vec![7; length]].concat();
    vec![head(34), head(38), vec![0, 2]]
}

fn properties() -> Vec<Vec<u8>> {
    let files = [
        "clusters = A, B\nA.bootstrap.servers = a:9092, b:9092\nB.bootstrap.servers=[::1]:9092\nA->B.enabled = true\n\
         A->B.topics = orders.*, \\\n  [a-z]+\\u0041\nreplication.factor = 3\n",
        "clusters: A,B\nA.bootstrap.servers A:1\n# comment\n! too\nB.bootstrap.servers = b:1\nA.security.protocol = PLAINTEXT\n\
         A->B.topics.exclude = .*internal\ntowpath.memory.bytes = 33554432\nA->B.towpath.on.source.loss = stop\n",
        "a\\=b=c\n\\u12=\nx\\",
    ];
    files.iter().map(|file| file.as_bytes().to_vec()).collect()
}
