//! Transactions and markers: broker-experiments S3, S6, S7.

use bytes::Bytes;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic};
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, ApiKey, DescribeProducersRequest, EndTxnRequest, InitProducerIdRequest,
    WriteTxnMarkersRequest,
};

use super::kit::{Kit, by, changed, fetch_request, plain, text};
use crate::testkit::BrokerVersion;

fn init(kit: &mut Kit) -> (i64, i16) {
    let request = InitProducerIdRequest::default()
        .with_transactional_id(Some(text("tx").into()))
        .with_transaction_timeout_ms(60_000)
        .with_producer_id((-1).into())
        .with_producer_epoch(-1);
    let answer = kit.newest_ask(&request);
    assert_eq!(answer.error_code, 0);
    (answer.producer_id.0, answer.producer_epoch)
}

fn add(kit: &mut Kit, (producer_id, epoch): (i64, i16)) -> i16 {
    let topic = AddPartitionsToTxnTopic::default().with_name(text("t").into()).with_partitions(vec![0]);
    let request = AddPartitionsToTxnRequest::default()
        .with_v3_and_below_transactional_id(text("tx").into())
        .with_v3_and_below_producer_id(producer_id.into())
        .with_v3_and_below_producer_epoch(epoch)
        .with_v3_and_below_topics(vec![topic]);
    kit.ask(3, &request).results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
}

fn end(kit: &mut Kit, (producer_id, epoch): (i64, i16), committed: bool) -> i16 {
    let request = EndTxnRequest::default()
        .with_transactional_id(text("tx").into())
        .with_producer_id(producer_id.into())
        .with_producer_epoch(epoch)
        .with_committed(committed);
    kit.ask(3, &request).error_code
}

fn data((producer_id, epoch): (i64, i16), sequence: i32) -> Bytes {
    changed(&by(&plain(2), producer_id, epoch, sequence), |header| header.attributes |= 0x10)
}

#[test]
fn read_committed_stops_before_open_transactions_and_lists_aborted_ones() {
    // S6.
    for version in BrokerVersion::ALL {
        let mut kit = Kit::new(version);
        kit.topic("t", &[]);
        let producer = init(&mut kit);
        let newest = kit.newest(ApiKey::Produce).min(9);
        assert_eq!(add(&mut kit, producer), 0);
        assert_eq!(kit.produce_at(newest, Some("tx"), data(producer, 0)).error_code, 0);
        kit.produce(plain(1));
        let committed = |kit: &mut Kit, offset: i64| {
            let request = fetch_request(&[(0, offset)], 0).with_isolation_level(1);
            kit.ask(12, &request).responses.remove(0).partitions.remove(0)
        };
        let open = committed(&mut kit, 0);
        assert_eq!((open.last_stable_offset, open.high_watermark, open.records.unwrap().len()), (0, 3, 0));
        assert_eq!((kit.list(-1, -1, 1), kit.list(-1, -1, 0)), ((0, 0), (0, 3)));
        assert_eq!(end(&mut kit, producer, false), 0);
        let closed = committed(&mut kit, 0);
        assert_eq!(closed.last_stable_offset, 4);
        let aborted = closed.aborted_transactions.unwrap();
        assert_eq!((aborted.len(), aborted[0].producer_id.0, aborted[0].first_offset), (1, producer.0, 0));
        assert_eq!(closed.records.unwrap(), kit.fetch(0).records.unwrap(), "the same batches");
        // Past it, nothing is listed.
        assert_eq!(committed(&mut kit, 4).aborted_transactions.unwrap().len(), 0);
        let marker = kit.cluster.topic("t").unwrap().partitions[0].entries[2].clone();
        assert_eq!((marker.bytes.len(), marker.bytes[22]), (78, 0x30));
        marker.batch().unwrap().verify_crc().unwrap();
        // The sequence goes on in the next transaction.
        assert_eq!(add(&mut kit, producer), 0);
        assert_eq!(kit.produce_at(newest, Some("tx"), data(producer, 2)).error_code, 0);
        assert_eq!(end(&mut kit, producer, true), 0);
        assert_eq!(kit.end(), 7);
        assert_eq!(end(&mut kit, producer, true), 48, "none is open");
        // A new instance fences the old one.
        let next = init(&mut kit);
        assert_eq!(next, (producer.0, producer.1 + 1));
        assert_eq!(add(&mut kit, producer), 90);
    }
}

#[test]
fn partitions_must_be_added_first_except_on_2_8() {
    // S6, last but one line.
    for (version, asked, code) in [
        (BrokerVersion::V2_8_2, 9, 0),
        (BrokerVersion::V3_9_2, 9, 48),
        (BrokerVersion::V3_9_2, 11, 120),
        (BrokerVersion::V4_3_1, 9, 48),
        (BrokerVersion::V4_3_1, 11, 120),
    ] {
        let mut kit = Kit::new(version);
        kit.topic("t", &[]);
        let producer = init(&mut kit);
        assert_eq!(kit.produce_at(asked, Some("tx"), data(producer, 0)).error_code, code, "{version:?} v{asked}");
    }
    // S7d: any producer where verification is off.
    let mut kit = Kit::new(BrokerVersion::V4_3_1);
    kit.topic("t", &[]);
    kit.cluster.set_broker_config("transaction.partition.verification.enable", "false");
    assert_eq!(kit.produce_at(11, Some("any"), data((4711, 3), 90)).error_code, 0);
    assert_eq!(kit.produce_at(12, Some("any"), data((4711, 3), 92)).error_code, 49);
}

fn markers(kit: &mut Kit, entries: &[(i64, i16, i32)]) -> Vec<(i64, i16)> {
    let entries = entries
        .iter()
        .map(|(producer_id, epoch, coordinator_epoch)| {
            let topic = WritableTxnMarkerTopic::default().with_name(text("t").into()).with_partition_indexes(vec![0]);
            WritableTxnMarker::default()
                .with_producer_id((*producer_id).into())
                .with_producer_epoch(*epoch)
                .with_coordinator_epoch(*coordinator_epoch)
                .with_topics(vec![topic])
        })
        .collect();
    let answer = kit.ask(1, &WriteTxnMarkersRequest::default().with_markers(entries));
    answer.markers.iter().map(|m| (m.producer_id.0, m.topics[0].partitions[0].error_code)).collect()
}

#[test]
fn markers_fill_offsets_and_their_answers_are_merged() {
    // S7b.
    for version in BrokerVersion::ALL {
        let mut kit = Kit::new(version);
        kit.topic("t", &[]);
        assert_eq!(markers(&mut kit, &[(5, 0, 3); 1000]), [(5, 0)]);
        assert_eq!(kit.end(), 1000);
        assert_eq!(kit.list(-1, -1, 1), (0, 1000));
        assert_eq!(markers(&mut kit, &[(5, 0, 2)]), [(5, 52)]);
        assert_eq!(markers(&mut kit, &[(-1, 0, 3), (6, 0, 0)]), [(-1, -1), (6, 0)]);
    }
}

#[test]
fn producers_are_described_with_their_last_sequence() {
    // S11.
    let mut kit = Kit::new(BrokerVersion::V2_8_2);
    kit.topic("t", &[]);
    kit.produce(by(&plain(10), 9, 4, 100));
    let topic = TopicRequest::default().with_name(text("t").into()).with_partition_indexes(vec![0, 9]);
    let answer = kit.ask(0, &DescribeProducersRequest::default().with_topics(vec![topic]));
    let partitions = &answer.topics[0].partitions;
    let state = &partitions[0].active_producers[0];
    assert_eq!((state.producer_id.0, state.producer_epoch, state.last_sequence), (9, 4, 109));
    assert_eq!((state.coordinator_epoch, state.current_txn_start_offset), (-1, -1));
    assert_eq!(partitions[1].error_code, 3);
}

#[test]
fn a_transaction_is_open_for_readers_until_its_marker_is_replicated() {
    // Kafka keeps ended transactions as "unreplicated" until the high watermark has passed their marker.
    for version in BrokerVersion::ALL {
        let mut kit = Kit::new(version);
        kit.topic("t", &[]);
        let producer = init(&mut kit);
        let newest = kit.newest(ApiKey::Produce).min(9);
        kit.produce(plain(1));
        assert_eq!(add(&mut kit, producer), 0);
        assert_eq!(kit.produce_at(newest, Some("tx"), data(producer, 0)).error_code, 0);
        kit.cluster.hold_high_watermark("t", 0);
        assert_eq!(end(&mut kit, producer, true), 0);
        assert_eq!((kit.end(), kit.list(-1, -1, 1), kit.list(-1, -1, 0)), (4, (0, 1), (0, 3)));
        kit.cluster.release_high_watermark(kit.now, "t", 0);
        assert_eq!((kit.list(-1, -1, 1), kit.list(-1, -1, 0)), ((0, 4), (0, 4)));
    }
}
