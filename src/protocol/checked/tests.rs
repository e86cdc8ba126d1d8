//! The checked decoders against the crate: random messages, written by the crate's encoder in every version, must read
//! the same with both.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages as wire;
use kafka_protocol::messages::{fetch_response as f, metadata_response as m, produce_response as p};
use kafka_protocol::protocol::{Decodable, Encodable};
use uuid::Uuid;

use super::*;
use crate::protocol::random::Random;
use crate::protocol::{ErrorCode, Fault, PartitionId, TopicId, TopicName};

mod offsets;

const ROUNDS: usize = 25;

fn encode(message: &impl Encodable, version: i16) -> Bytes {
    let mut bytes = BytesMut::new();
    message.encode(&mut bytes, version).expect("the generator sets only what the version has");
    bytes.freeze()
}

/// What the crate reads from its own bytes: fields that a version lacks have their defaults then.
fn reread<R: Decodable>(bytes: &Bytes, version: i16) -> R {
    R::decode(&mut bytes.clone(), version).unwrap()
}

/// Small numbers around -1 and large ones.
fn number(random: &mut Random) -> i32 {
    if random.chance(2) { random.below(4) as i32 - 1 } else { random.next() as i32 }
}

fn long(random: &mut Random) -> i64 {
    if random.chance(2) { random.below(4) as i64 - 1 } else { random.next() as i64 }
}

fn code(random: &mut Random) -> i16 {
    random.below(140) as i16 - 1
}

fn name(random: &mut Random) -> wire::TopicName {
    random.str_bytes().into()
}

fn uuid(random: &mut Random) -> Uuid {
    Uuid::from_u128(u128::from(random.next()) << 64 | u128::from(random.next()))
}

fn broker(id: i32) -> Option<BrokerId> {
    (id >= 0).then_some(BrokerId(id))
}

fn topic_name(name: &wire::TopicName) -> TopicName {
    TopicName::from(name)
}

/// Runs a decoder over mutations and all truncations: only errors are allowed to come of it, no panic and no abort.
fn torture<T: std::fmt::Debug>(random: &mut Random, body: &Bytes, decode: impl Fn(Bytes) -> Result<T, DecodeError>) {
    for length in 0..body.len() {
        decode(body.slice(..length)).unwrap_err();
    }
    for _ in 0..50 {
        drop(decode(random.mutate(body)));
    }
    let mut longer = BytesMut::from(body.as_ref());
    longer.extend_from_slice(&[0]);
    assert_eq!(decode(longer.freeze()).unwrap_err().fault, Fault::TrailingBytes(1));
}

fn fetch_message(random: &mut Random, version: i16) -> wire::FetchResponse {
    let mut message = wire::FetchResponse::default().with_throttle_time_ms(number(random));
    if version >= 7 {
        message = message.with_error_code(code(random)).with_session_id(number(random));
    }
    if version >= 16 {
        message.node_endpoints = random.vec(2, |random| {
            f::NodeEndpoint::default()
                .with_node_id(number(random).into())
                .with_host(random.str_bytes())
                .with_port(number(random))
                .with_rack(random.optional(Random::str_bytes))
        });
    }
    if version >= 12 && random.chance(3) {
        message = message.with_unknown_tagged_field(77, random.bytes(9));
    }
    message.with_responses(random.vec(3, |random| {
        let mut topic = f::FetchableTopicResponse::default();
        topic = if version >= 13 { topic.with_topic_id(uuid(random)) } else { topic.with_topic(name(random)) };
        topic.with_partitions(random.vec(3, |random| {
            let mut partition = f::PartitionData::default()
                .with_partition_index(number(random))
                .with_error_code(code(random))
                .with_high_watermark(long(random))
                .with_last_stable_offset(long(random))
                .with_aborted_transactions(random.optional(|random| {
                    random.vec(3, |random| {
                        f::AbortedTransaction::default()
                            .with_producer_id(long(random).into())
                            .with_first_offset(long(random))
                    })
                }))
                .with_records(random.optional(|random| random.bytes(90)));
            if version >= 5 {
                partition = partition.with_log_start_offset(long(random));
            }
            if version >= 11 {
                partition = partition.with_preferred_read_replica(number(random).into());
            }
            if version >= 12 {
                let leader = f::LeaderIdAndEpoch::default().with_leader_id(number(random).into());
                let diverging = f::EpochEndOffset::default().with_epoch(number(random)).with_end_offset(long(random));
                let snapshot = f::SnapshotId::default().with_epoch(number(random)).with_end_offset(long(random));
                partition = partition
                    .with_current_leader(leader.with_leader_epoch(number(random)))
                    .with_diverging_epoch(diverging)
                    .with_snapshot_id(snapshot)
                    .with_unknown_tagged_field(9, random.bytes(5));
            }
            partition
        }))
    }))
}

#[test]
fn fetch_responses_read_as_the_crate_reads_them() {
    for version in 4..=18 {
        let mut random = Random::new(version as u64);
        for _ in 0..ROUNDS {
            let body = encode(&fetch_message(&mut random, version), version);
            let ours = FetchResponse::decode(body.clone(), version).unwrap();
            let theirs: wire::FetchResponse = reread(&body, version);
            assert_eq!(ours.throttle_time_ms, theirs.throttle_time_ms);
            assert_eq!((ours.error_code, ours.session_id), (ErrorCode(theirs.error_code), theirs.session_id));
            let endpoint = |theirs: &f::NodeEndpoint| NodeEndpoint {
                id: theirs.node_id.into(),
                host: theirs.host.to_string(),
                port: theirs.port,
                rack: theirs.rack.as_ref().map(ToString::to_string),
            };
            assert_eq!(ours.node_endpoints, theirs.node_endpoints.iter().map(endpoint).collect::<Vec<_>>());
            assert_eq!(ours.topics.len(), theirs.responses.len());
            for (ours, theirs) in ours.topics.iter().zip(&theirs.responses) {
                assert_eq!(ours.name, (version <= 12).then(|| topic_name(&theirs.topic)));
                assert_eq!(ours.id, TopicId::from(theirs.topic_id));
                assert_eq!(ours.partitions.len(), theirs.partitions.len());
                for (ours, theirs) in ours.partitions.iter().zip(&theirs.partitions) {
                    let leader = &theirs.current_leader;
                    let diverging = &theirs.diverging_epoch;
                    let aborted = |theirs: &f::AbortedTransaction| AbortedTransaction {
                        producer_id: theirs.producer_id.0,
                        first_offset: theirs.first_offset,
                    };
                    let expected = FetchedPartition {
                        partition: PartitionId(theirs.partition_index),
                        error_code: ErrorCode(theirs.error_code),
                        high_watermark: theirs.high_watermark,
                        last_stable_offset: theirs.last_stable_offset,
                        log_start_offset: theirs.log_start_offset,
                        diverging_epoch: (diverging.epoch != -1 || diverging.end_offset >= 0)
                            .then_some((LeaderEpoch(diverging.epoch), diverging.end_offset)),
                        current_leader: broker(leader.leader_id.0).map(|id| (id, LeaderEpoch(leader.leader_epoch))),
                        aborted_transactions: theirs.aborted_transactions.iter().flatten().map(aborted).collect(),
                        preferred_read_replica: broker(theirs.preferred_read_replica.0),
                        records: theirs.records.clone().unwrap_or_default(),
                    };
                    assert_eq!(*ours, expected, "v{version}");
                    if !ours.records.is_empty() {
                        assert!(body.as_ptr_range().contains(&ours.records.as_ptr()), "records alias the frame");
                    }
                }
            }
            torture(&mut random, &body, |body| FetchResponse::decode(body, version));
        }
    }
}

fn produce_message(random: &mut Random, version: i16) -> wire::ProduceResponse {
    let mut message = wire::ProduceResponse::default().with_throttle_time_ms(number(random));
    if version >= 10 {
        message.node_endpoints = random.vec(2, |random| {
            p::NodeEndpoint::default()
                .with_node_id(number(random).into())
                .with_host(random.str_bytes())
                .with_port(number(random))
                .with_rack(random.optional(Random::str_bytes))
        });
    }
    message.with_responses(random.vec(3, |random| {
        let mut topic = p::TopicProduceResponse::default();
        topic = if version >= 13 { topic.with_topic_id(uuid(random)) } else { topic.with_name(name(random)) };
        topic.with_partition_responses(random.vec(3, |random| {
            let mut partition = p::PartitionProduceResponse::default()
                .with_index(number(random))
                .with_error_code(code(random))
                .with_base_offset(long(random))
                .with_log_append_time_ms(long(random));
            if version >= 5 {
                partition = partition.with_log_start_offset(long(random));
            }
            if version >= 8 {
                partition = partition.with_error_message(random.optional(Random::str_bytes)).with_record_errors(
                    random.vec(2, |random| {
                        p::BatchIndexAndErrorMessage::default()
                            .with_batch_index(number(random))
                            .with_batch_index_error_message(random.optional(Random::str_bytes))
                    }),
                );
            }
            if version >= 10 {
                let leader = p::LeaderIdAndEpoch::default().with_leader_id(number(random).into());
                partition = partition.with_current_leader(leader.with_leader_epoch(number(random)));
            }
            if version >= 9 && random.chance(3) {
                partition = partition.with_unknown_tagged_field(3, random.bytes(9));
            }
            partition
        }))
    }))
}

#[test]
fn produce_responses_read_as_the_crate_reads_them() {
    for version in 3..=13 {
        let mut random = Random::new(100 + version as u64);
        for _ in 0..ROUNDS {
            let body = encode(&produce_message(&mut random, version), version);
            let ours = ProduceResponse::decode(body.clone(), version).unwrap();
            let theirs: wire::ProduceResponse = reread(&body, version);
            assert_eq!(ours.throttle_time_ms, theirs.throttle_time_ms);
            assert_eq!(ours.node_endpoints.len(), theirs.node_endpoints.len());
            assert_eq!(ours.topics.len(), theirs.responses.len());
            for (ours, theirs) in ours.topics.iter().zip(&theirs.responses) {
                assert_eq!(ours.name, (version <= 12).then(|| topic_name(&theirs.name)));
                assert_eq!(ours.id, TopicId::from(theirs.topic_id));
                assert_eq!(ours.partitions.len(), theirs.partition_responses.len());
                for (ours, theirs) in ours.partitions.iter().zip(&theirs.partition_responses) {
                    let leader = &theirs.current_leader;
                    let record_error = |error: &p::BatchIndexAndErrorMessage| {
                        (error.batch_index, error.batch_index_error_message.as_ref().map(ToString::to_string))
                    };
                    let expected = ProducedPartition {
                        partition: PartitionId(theirs.index),
                        error_code: ErrorCode(theirs.error_code),
                        base_offset: theirs.base_offset,
                        log_append_time_ms: theirs.log_append_time_ms,
                        log_start_offset: theirs.log_start_offset,
                        record_errors: theirs.record_errors.iter().map(record_error).collect(),
                        error_message: theirs.error_message.as_ref().map(ToString::to_string),
                        current_leader: broker(leader.leader_id.0).map(|id| (id, LeaderEpoch(leader.leader_epoch))),
                    };
                    assert_eq!(*ours, expected, "v{version}");
                }
            }
            torture(&mut random, &body, |body| ProduceResponse::decode(body, version));
        }
    }
}

fn metadata_message(random: &mut Random, version: i16) -> wire::MetadataResponse {
    let mut message = wire::MetadataResponse::default().with_brokers(random.vec(3, |random| {
        let broker = m::MetadataResponseBroker::default()
            .with_node_id(number(random).into())
            .with_host(random.str_bytes())
            .with_port(number(random));
        if version >= 1 { broker.with_rack(random.optional(Random::str_bytes)) } else { broker }
    }));
    if version >= 1 {
        message = message.with_controller_id(number(random).into());
    }
    if version >= 2 {
        message = message.with_cluster_id(random.optional(Random::str_bytes));
    }
    if version >= 3 {
        message = message.with_throttle_time_ms(number(random));
    }
    if (8..=10).contains(&version) {
        message = message.with_cluster_authorized_operations(number(random));
    }
    if version >= 13 {
        message = message.with_error_code(code(random));
    }
    let replicas = |random: &mut Random| random.vec(3, |random| number(random).into());
    message.with_topics(random.vec(3, |random| {
        let topic_name = if version >= 12 { random.optional(name) } else { Some(name(random)) };
        let mut topic = m::MetadataResponseTopic::default()
            .with_error_code(code(random))
            .with_name(topic_name)
            .with_partitions(random.vec(3, |random| {
                let mut partition = m::MetadataResponsePartition::default()
                    .with_error_code(code(random))
                    .with_partition_index(number(random))
                    .with_leader_id(number(random).into())
                    .with_replica_nodes(replicas(random))
                    .with_isr_nodes(replicas(random));
                if version >= 5 {
                    partition = partition.with_offline_replicas(replicas(random));
                }
                if version >= 7 {
                    partition = partition.with_leader_epoch(number(random));
                }
                partition
            }));
        if version >= 1 {
            topic = topic.with_is_internal(random.chance(2));
        }
        if version >= 8 {
            topic = topic.with_topic_authorized_operations(number(random));
        }
        if version >= 10 {
            topic = topic.with_topic_id(uuid(random));
        }
        topic
    }))
}

#[test]
fn metadata_responses_read_as_the_crate_reads_them() {
    for version in 0..=13 {
        let mut random = Random::new(200 + version as u64);
        for _ in 0..ROUNDS {
            let body = encode(&metadata_message(&mut random, version), version);
            let ours = MetadataResponse::decode(body.clone(), version).unwrap();
            let theirs: wire::MetadataResponse = reread(&body, version);
            let ids = |ids: &[wire::BrokerId]| ids.iter().copied().map(BrokerId::from).collect::<Vec<_>>();
            let expected = MetadataResponse {
                throttle_time_ms: theirs.throttle_time_ms,
                brokers: theirs
                    .brokers
                    .iter()
                    .map(|broker| BrokerEndpoint {
                        id: broker.node_id.into(),
                        host: broker.host.to_string(),
                        port: broker.port,
                        rack: broker.rack.as_ref().map(ToString::to_string),
                    })
                    .collect(),
                cluster_id: theirs.cluster_id.as_ref().map(ToString::to_string),
                controller_id: broker(theirs.controller_id.0),
                topics: theirs
                    .topics
                    .iter()
                    .map(|topic| TopicMetadata {
                        error_code: ErrorCode(topic.error_code),
                        name: topic.name.as_ref().map(topic_name),
                        id: topic.topic_id.into(),
                        is_internal: topic.is_internal,
                        partitions: topic
                            .partitions
                            .iter()
                            .map(|partition| PartitionMetadata {
                                error_code: ErrorCode(partition.error_code),
                                partition: PartitionId(partition.partition_index),
                                leader: broker(partition.leader_id.0),
                                leader_epoch: LeaderEpoch(partition.leader_epoch),
                                replicas: ids(&partition.replica_nodes),
                                isr: ids(&partition.isr_nodes),
                                offline: ids(&partition.offline_replicas),
                            })
                            .collect(),
                    })
                    .collect(),
                error_code: ErrorCode(theirs.error_code),
            };
            assert_eq!(ours, expected, "v{version}");
            torture(&mut random, &body, |body| MetadataResponse::decode(body, version));
        }
    }
}

#[test]
fn the_eight_bytes_that_ask_the_crate_for_25_gigabytes_are_refused() {
    let error = ProduceResponse::decode(Bytes::from_static(&[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]), 3).unwrap_err();
    assert_eq!((error.at, error.fault), (0, Fault::CountTooLarge { count: 0x7fff_ffff, remaining: 4 }));
}

#[test]
fn versions_outside_the_range_are_refused() {
    let body = Bytes::from_static(&[0; 64]);
    for version in [-1, 3, 19] {
        assert_eq!(FetchResponse::decode(body.clone(), version).unwrap_err().fault, Fault::UnsupportedVersion);
    }
    for version in [2, 14] {
        assert_eq!(ProduceResponse::decode(body.clone(), version).unwrap_err().fault, Fault::UnsupportedVersion);
    }
    assert_eq!(MetadataResponse::decode(body.clone(), 14).unwrap_err().fault, Fault::UnsupportedVersion);
    assert_eq!(OffsetCommitResponse::decode(body.clone(), 10).unwrap_err().fault, Fault::UnsupportedVersion);
    assert_eq!(OffsetFetchResponse::decode(body, 10).unwrap_err().fault, Fault::UnsupportedVersion);
}
