//! Topics, settings, what a broker says of itself.

use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, CreateTopicsRequest, DeleteRecordsRequest, DescribeConfigsRequest, MetadataRequest,
    ProduceRequest,
};

use super::kit::{Kit, by, dated, plain, produce_request, text};
use crate::batch::{BatchHeader, HEADER_LEN};
use crate::testkit::BrokerVersion;

#[test]
fn versions_are_told_in_the_oldest_form_to_whom_asks_for_a_newer_one() {
    for version in BrokerVersion::ALL {
        let mut kit = Kit::new(version);
        let answer = kit.newest_ask(
            &ApiVersionsRequest::default()
                .with_client_software_name(text("kit"))
                .with_client_software_version(text("1")),
        );
        let produce = answer.api_keys.iter().find(|api| api.api_key == 0).unwrap();
        assert_eq!(Some((produce.min_version, produce.max_version)), version.api_range(ApiKey::Produce));
    }
    let mut kit = Kit::new(BrokerVersion::V2_8_2);
    kit.send(
        4,
        &ApiVersionsRequest::default().with_client_software_name(text("kit")).with_client_software_version(text("1")),
    );
    let answer = kit.answer::<ApiVersionsRequest>(0).unwrap();
    assert_eq!(answer.error_code, 35);
    assert!(!answer.api_keys.is_empty());
}

#[test]
fn a_version_that_is_not_offered_closes_the_connection() {
    // S9: 4.3.1 advertises Produce 0 and closes the connection on 2.
    let mut kit = Kit::new(BrokerVersion::V2_8_2);
    kit.topic("t", &[]);
    kit.send(10, &produce_request(vec![(0, plain(1))]));
    assert!(kit.answer::<ProduceRequest>(10).is_none());
    assert_eq!(kit.end(), 0);
}

#[test]
fn topics_are_created_described_and_refused() {
    for version in BrokerVersion::ALL {
        let mut kit = Kit::new(version);
        let topic = |name: &str, partitions: i32, factor: i16, configs: &[(&str, &str)]| {
            let configs = configs
                .iter()
                .map(|(k, v)| CreatableTopicConfig::default().with_name(text(k)).with_value(Some(text(v))))
                .collect();
            CreatableTopic::default()
                .with_name(text(name).into())
                .with_num_partitions(partitions)
                .with_replication_factor(factor)
                .with_configs(configs)
        };
        let request = CreateTopicsRequest::default().with_topics(vec![
            topic("good", 3, 1, &[("cleanup.policy", "compact")]),
            topic("good", 3, 1, &[]),
            topic("bad name", 1, 1, &[]),
            topic("none", 0, 1, &[]),
            topic("wide", 1, 2, &[]),
            topic("odd", 1, 1, &[("no.such.key", "1")]),
            topic("default", -1, -1, &[]),
        ]);
        let answer = kit.newest_ask(&request);
        let codes: Vec<i16> = answer.topics.iter().map(|topic| topic.error_code).collect();
        assert_eq!(codes, [0, 36, 17, 37, 38, 40, 0], "{version:?}");
        assert!(!answer.topics[0].topic_id.is_nil());
        let wanted = MetadataRequestTopic::default().with_name(Some(text("good").into()));
        let missing = MetadataRequestTopic::default().with_name(Some(text("missing").into()));
        let request = MetadataRequest::default().with_topics(Some(vec![wanted, missing]));
        let metadata = kit.newest_ask(&request);
        assert_eq!(metadata.topics[0].partitions.len(), 3);
        assert_eq!(metadata.topics[0].topic_id, answer.topics[0].topic_id);
        assert_eq!(metadata.topics[1].error_code, 3);
        let resource = DescribeConfigsResource::default()
            .with_resource_type(2)
            .with_resource_name(text("good"))
            .with_configuration_keys(Some(vec![text("cleanup.policy"), text("max.message.bytes")]));
        let configs = kit.newest_ask(&DescribeConfigsRequest::default().with_resources(vec![resource]));
        let values: Vec<_> = configs.results[0]
            .configs
            .iter()
            .map(|config| (config.name.as_str(), config.value.as_deref().unwrap(), config.config_source))
            .collect();
        assert_eq!(values, [("cleanup.policy", "compact", 1), ("max.message.bytes", "1048588", 5)]);
    }
}

#[test]
fn records_are_deleted_where_the_policy_deletes() {
    // S7a.
    let mut kit = Kit::new(BrokerVersion::V4_3_1);
    kit.topic("t", &[]);
    kit.produce(by(&plain(10), 9, 0, 0));
    let delete = |kit: &mut Kit, offset: i64| {
        let partition = DeleteRecordsPartition::default().with_offset(offset);
        let topic = DeleteRecordsTopic::default().with_name(text("t").into()).with_partitions(vec![partition]);
        let answer = kit.newest_ask(&DeleteRecordsRequest::default().with_topics(vec![topic]));
        (answer.topics[0].partitions[0].error_code, answer.topics[0].partitions[0].low_watermark)
    };
    assert_eq!(delete(&mut kit, 4), (0, 4));
    assert_eq!(kit.fetch(4).records.unwrap().len(), plain(10).len(), "the batch that holds the offset is whole");
    assert_eq!(delete(&mut kit, 11), (1, -1));
    assert_eq!(delete(&mut kit, -1), (0, 10));
    assert_eq!(kit.outcome(by(&plain(10), 9, 0, 0)), (0, 0), "still recognised");
    assert_eq!(kit.outcome(by(&plain(1), 9, 0, 10)), (0, 10));
    kit.cluster.set_topic_config("t", "cleanup.policy", Some("compact"));
    assert_eq!(delete(&mut kit, -1), (44, -1));
}

#[test]
fn cleaning_leaves_thinned_and_empty_batches() {
    // S5.
    let mut kit = Kit::new(BrokerVersion::V4_3_1);
    kit.topic("t", &[("cleanup.policy", "compact")]);
    // Keys k0..k9, then k0..k4, then k0..k9 without the last: the second is superseded wholly.
    kit.produce(by(&plain(10), 9, 0, 0));
    kit.produce(by(&plain(5), 8, 0, 0));
    kit.produce(dated(5, super::kit::WALL_MS));
    let cleaned = kit.cluster.compact(kit.now, "t", 0).unwrap();
    assert_eq!((cleaned.removed, cleaned.thinned, cleaned.emptied), (0, 1, 1));
    let entries = kit.cluster.topic("t").unwrap().partitions[0].entries.clone();
    let thinned = entries[0].batch().unwrap();
    thinned.verify_crc().unwrap();
    assert!(thinned.header.is_thinned());
    assert_eq!(
        (thinned.header.base_sequence, thinned.header.last_offset_delta, thinned.header.records_count),
        (0, 9, 5)
    );
    let offsets: Vec<i64> = crate::batch::records(&thinned).unwrap().map(|record| record.unwrap().offset).collect();
    assert_eq!(offsets, [5, 6, 7, 8, 9]);
    let empty = BatchHeader::parse(&entries[1].bytes).unwrap();
    assert_eq!((entries[1].bytes.len(), empty.records_count, empty.base_timestamp), (HEADER_LEN, 0, -1));
    assert_eq!((empty.base_offset, empty.last_offset()), (10, 14));
    // What is not a producer's last batch goes.
    kit.produce(by(&dated(5, super::kit::WALL_MS), 8, 0, 5));
    let cleaned = kit.cluster.compact(kit.now, "t", 0).unwrap();
    assert_eq!(cleaned.removed, 2);
    assert_eq!(kit.end(), 25);
}

#[test]
fn tombstones_get_a_horizon_and_go_when_it_has_passed() {
    // S5: a complete tombstone batch got bit 6, and its base timestamp is the horizon.
    let mut kit = Kit::new(BrokerVersion::V4_3_1);
    kit.topic("t", &[("cleanup.policy", "compact"), ("delete.retention.ms", "1000")]);
    let mut builder = crate::batch::BatchBuilder::new();
    for key in [b"a", b"b"] {
        builder.push(super::kit::WALL_MS - 5, Some(key), None, &[]).unwrap();
    }
    kit.produce(builder.build().unwrap());
    kit.produce(plain(1));
    kit.cluster.compact(kit.now, "t", 0).unwrap();
    let tombstones = kit.cluster.topic("t").unwrap().partitions[0].entries[0].batch().unwrap();
    assert!(tombstones.header.has_delete_horizon() && !tombstones.header.is_thinned());
    assert_eq!(tombstones.header.base_timestamp, super::kit::WALL_MS + 1000);
    let times: Vec<i64> = crate::batch::records(&tombstones).unwrap().map(|record| record.unwrap().timestamp).collect();
    assert_eq!(times, [super::kit::WALL_MS - 5; 2]);
    kit.cluster.jump(kit.now, 1001);
    assert_eq!(kit.cluster.compact(kit.now, "t", 0).unwrap().removed, 1);
    assert_eq!(kit.cluster.topic("t").unwrap().partitions[0].entries.len(), 1);
}
