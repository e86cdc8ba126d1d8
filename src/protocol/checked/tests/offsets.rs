//! OffsetCommit and OffsetFetch against the crate.

use kafka_protocol::messages::{offset_commit_response as oc, offset_fetch_response as of};

use super::*;
use crate::protocol::TopicPartition;

#[test]
fn offset_commit_responses_read_as_the_crate_reads_them() {
    for version in 2..=9 {
        let mut random = Random::new(300 + version as u64);
        for _ in 0..ROUNDS {
            let mut message = wire::OffsetCommitResponse::default().with_topics(random.vec(3, |random| {
                oc::OffsetCommitResponseTopic::default().with_name(name(random)).with_partitions(random.vec(
                    3,
                    |random| {
                        oc::OffsetCommitResponsePartition::default()
                            .with_partition_index(number(random))
                            .with_error_code(code(random))
                    },
                ))
            }));
            if version >= 3 {
                message = message.with_throttle_time_ms(number(&mut random));
            }
            let body = encode(&message, version);
            let ours = OffsetCommitResponse::decode(body.clone(), version).unwrap();
            assert_eq!(ours.throttle_time_ms, message.throttle_time_ms);
            let mut expected = Vec::new();
            for topic in &message.topics {
                for partition in &topic.partitions {
                    let tp = TopicPartition::new(topic_name(&topic.name), partition.partition_index);
                    expected.push((tp, ErrorCode(partition.error_code)));
                }
            }
            assert_eq!(ours.partitions, expected, "v{version}");
            torture(&mut random, &body, |body| OffsetCommitResponse::decode(body, version));
        }
    }
}

#[test]
fn offset_fetch_responses_read_as_the_crate_reads_them() {
    for version in 1..=9 {
        let mut random = Random::new(400 + version as u64);
        for _ in 0..ROUNDS {
            let group_error = if version >= 2 { code(&mut random) } else { 0 };
            let mut expected = Vec::new();
            let topics = random.vec(3, |random| {
                (
                    name(random),
                    random.vec(3, |random| {
                        let epoch = if version >= 5 { number(random) } else { -1 };
                        (number(random), long(random), epoch, random.optional(Random::str_bytes), code(random))
                    }),
                )
            });
            for (topic, partitions) in &topics {
                for (partition, offset, epoch, metadata, error) in partitions {
                    expected.push(FetchedOffset {
                        tp: TopicPartition::new(topic_name(topic), *partition),
                        committed_offset: *offset,
                        leader_epoch: LeaderEpoch(*epoch),
                        metadata: metadata.as_ref().map(ToString::to_string),
                        error_code: ErrorCode(*error),
                    });
                }
            }
            let mut message = wire::OffsetFetchResponse::default();
            if version >= 3 {
                message = message.with_throttle_time_ms(number(&mut random));
            }
            message = if version >= 8 {
                let topics = topics.into_iter().map(|(topic, partitions)| {
                    of::OffsetFetchResponseTopics::default().with_name(topic).with_partitions(
                        partitions
                            .into_iter()
                            .map(|(partition, offset, epoch, metadata, error)| {
                                of::OffsetFetchResponsePartitions::default()
                                    .with_partition_index(partition)
                                    .with_committed_offset(offset)
                                    .with_committed_leader_epoch(epoch)
                                    .with_metadata(metadata)
                                    .with_error_code(error)
                            })
                            .collect(),
                    )
                });
                message.with_groups(vec![
                    of::OffsetFetchResponseGroup::default()
                        .with_group_id(random.str_bytes().into())
                        .with_error_code(group_error)
                        .with_topics(topics.collect()),
                ])
            } else {
                let topics = topics.into_iter().map(|(topic, partitions)| {
                    of::OffsetFetchResponseTopic::default().with_name(topic).with_partitions(
                        partitions
                            .into_iter()
                            .map(|(partition, offset, epoch, metadata, error)| {
                                of::OffsetFetchResponsePartition::default()
                                    .with_partition_index(partition)
                                    .with_committed_offset(offset)
                                    .with_committed_leader_epoch(epoch)
                                    .with_metadata(metadata)
                                    .with_error_code(error)
                            })
                            .collect(),
                    )
                });
                message.with_topics(topics.collect()).with_error_code(group_error)
            };
            let body = encode(&message, version);
            let ours = OffsetFetchResponse::decode(body.clone(), version).unwrap();
            assert_eq!(ours.throttle_time_ms, message.throttle_time_ms);
            assert_eq!(ours.group_error, ErrorCode(group_error));
            assert_eq!(ours.partitions, expected, "v{version}");
            torture(&mut random, &body, |body| OffsetFetchResponse::decode(body, version));
        }
    }
}

#[test]
fn an_answer_for_another_number_of_groups_is_refused() {
    let group = of::OffsetFetchResponseGroup::default();
    for count in [0, 2] {
        let message = wire::OffsetFetchResponse::default().with_groups(vec![group.clone(); count]);
        let error = OffsetFetchResponse::decode(encode(&message, 8), 8).unwrap_err();
        assert_eq!(error.fault, Fault::GroupCount(count));
    }
}
