//! Produce: broker-experiments S1 to S4.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::ProduceRequest;

use super::kit::{Kit, WALL_MS, by, changed, dated, plain, produce_request, without_key};
use crate::batch::BatchHeader;
use crate::testkit::BrokerVersion;
use crate::testkit::engine::{Intercept, InterceptAction};

fn all(test: impl Fn(Kit)) {
    for version in BrokerVersion::ALL {
        let mut kit = Kit::new(version);
        kit.topic("t", &[]);
        test(kit);
    }
}

fn stored(kit: &Kit, at: usize) -> Bytes {
    kit.cluster.topic("t").unwrap().partitions[0].entries[at].bytes.clone()
}

#[test]
fn a_sealed_batch_is_kept_but_for_offset_and_leader_epoch() {
    // S1, first table.
    all(|mut kit| {
        let sent = by(&plain(3), 77, 2, 40);
        assert_eq!(kit.outcome(sent.clone()), (0, 0));
        assert_eq!(kit.outcome(by(&plain(2), 77, 2, 43)), (0, 3));
        let kept = stored(&kit, 0);
        assert_eq!(kept[16..], sent[16..]);
        assert_eq!(kept[8..12], sent[8..12]);
        let header = BatchHeader::parse(&stored(&kit, 1)).unwrap();
        assert_eq!((header.base_offset, header.partition_leader_epoch), (3, 0));
        let fetched = kit.fetch(0).records.unwrap();
        assert_eq!(fetched, [kept, stored(&kit, 1)].concat());
    });
}

#[test]
fn log_append_time_sets_bit_time_and_crc() {
    for version in BrokerVersion::ALL {
        let mut kit = Kit::new(version);
        kit.topic("t", &[("message.timestamp.type", "LogAppendTime")]);
        let answer = kit.produce(dated(2, 1_500_000_000_000));
        assert_eq!((answer.error_code, answer.log_append_time_ms), (0, WALL_MS));
        let header = BatchHeader::parse(&stored(&kit, 0)).unwrap();
        assert!(header.is_log_append_time());
        assert_eq!((header.max_timestamp, header.base_timestamp), (WALL_MS, 1_500_000_000_000));
        let set = changed(&plain(2), |header| header.attributes |= 8);
        let answer = kit.produce(set);
        assert_eq!(answer.error_code, 32);
        assert_eq!(answer.record_errors.len(), 2, "one record error per record");
    }
}

#[test]
fn header_variations_are_judged_as_measured() {
    // S1, second table.
    all(|mut kit| {
        let odd = changed(&plain(5), |header| {
            header.partition_leader_epoch = 77;
            header.attributes = 0x7fc0;
        });
        assert_eq!(kit.produce(odd).error_code, 0);
        assert_eq!(BatchHeader::parse(&stored(&kit, 0)).unwrap().attributes, 0x7fc0);
        for wrong in [i64::MAX, 0, -1] {
            assert_eq!(kit.produce(changed(&plain(5), |header| header.max_timestamp = wrong)).error_code, 0);
        }
        assert_eq!(BatchHeader::parse(&stored(&kit, 1)).unwrap().max_timestamp, WALL_MS);
        let end = kit.end();

        let refused = |kit: &mut Kit, code: i16, records: Bytes| {
            assert_eq!(kit.outcome(records), (code, -1), "{:?}", kit.version);
        };
        refused(&mut kit, 87, changed(&plain(5), |header| header.base_offset = 5));
        refused(&mut kit, 87, changed(&plain(5), |header| header.attributes |= 0x20));
        refused(&mut kit, 87, changed(&plain(5), |header| header.records_count = 4));
        refused(&mut kit, 87, changed(&plain(5), |header| header.records_count = 6));
        refused(&mut kit, 87, changed(&plain(5), |header| header.last_offset_delta = 9));
        refused(&mut kit, 87, by(&plain(5), 3, 0, -1));
        refused(&mut kit, 87, [plain(1), plain(1)].concat().into());
        refused(&mut kit, 87, Bytes::new());
        refused(&mut kit, -1, changed(&plain(5), |header| header.attributes |= 5));
        refused(&mut kit, 53, changed(&plain(5), |header| header.attributes |= 0x10));
        let mut damaged = plain(5).to_vec();
        *damaged.last_mut().unwrap() ^= 1;
        refused(&mut kit, 2, damaged.into());
        assert_eq!(kit.end(), end, "nothing was appended");

        for old in [1_550_000_000_000, -1] {
            assert_eq!(kit.produce(dated(2, old)).error_code, 0);
        }
        assert_eq!(kit.produce(by(&plain(1), -2, 0, 0)).error_code, 0);
        assert_eq!(kit.produce(by(&plain(1), -2, 0, 0)).log_append_time_ms, -1, "no producer id, no duplicates");
    });
}

#[test]
fn what_differs_between_versions() {
    // S1: bit 3 on a CreateTime topic, and two hours in the future.
    for (version, bit, future) in
        [(BrokerVersion::V2_8_2, 32, 0), (BrokerVersion::V3_9_2, 0, 0), (BrokerVersion::V4_3_1, 0, 32)]
    {
        let mut kit = Kit::new(version);
        kit.topic("t", &[]);
        assert_eq!(kit.produce(changed(&plain(2), |header| header.attributes |= 8)).error_code, bit, "{version:?}");
        if bit == 0 {
            let header = BatchHeader::parse(&stored(&kit, 0)).unwrap();
            assert!(!header.is_log_append_time());
        }
        assert_eq!(kit.produce(dated(2, WALL_MS + 7_200_000)).error_code, future, "{version:?}");
    }
}

#[test]
fn a_compacted_topic_needs_keys() {
    let mut kit = Kit::new(BrokerVersion::V4_3_1);
    kit.topic("t", &[("cleanup.policy", "compact")]);
    let answer = kit.produce(without_key());
    assert_eq!((answer.error_code, answer.record_errors.len()), (87, 1));
}

#[test]
fn a_partition_listed_twice_keeps_the_second_entry() {
    // S1, last but one line.
    all(|mut kit| {
        let request = produce_request(vec![(0, plain(1)), (0, plain(4))]);
        let response = kit.ask(9, &request);
        let answers: Vec<_> = response.responses.iter().flat_map(|topic| &topic.partition_responses).collect();
        assert_eq!(answers.len(), 1);
        assert_eq!(kit.end(), 4);
    });
}

#[test]
fn limits_and_unknown_partitions() {
    let mut kit = Kit::new(BrokerVersion::V4_3_1);
    kit.topic("t", &[("max.message.bytes", "100")]);
    assert_eq!(kit.outcome(plain(10)), (10, -1));
    assert_eq!(kit.outcome(plain(1)), (0, 0));
    let response = kit.ask(9, &produce_request(vec![(5, plain(1)), (1, plain(1))]));
    let codes: Vec<_> = response.responses[0].partition_responses.iter().map(|p| p.error_code).collect();
    assert_eq!(codes, [3, 0]);
    let request = produce_request(vec![(0, plain(1))]).with_acks(2);
    assert_eq!(kit.ask(9, &request).responses[0].partition_responses[0].error_code, 21);
}

#[test]
fn duplicates_are_told_by_their_time() {
    // S2, first table.
    all(|mut kit| {
        let batch = |at: i32| by(&dated(10, WALL_MS + i64::from(at)), 9, 0, at * 10);
        for at in 0..8 {
            let answer = kit.produce(batch(at));
            assert_eq!((answer.error_code, answer.log_append_time_ms), (0, -1));
        }
        for at in [7, 3, 5] {
            let answer = kit.produce(batch(at));
            assert_eq!(answer.base_offset, i64::from(at) * 10);
            assert_eq!(answer.log_append_time_ms, WALL_MS + i64::from(at));
        }
        assert_eq!(kit.outcome(batch(2)), (45, -1));
        // Same range, other bytes: discarded unseen.
        assert_eq!(kit.outcome(by(&dated(10, WALL_MS + 99), 9, 0, 70)), (0, 70));
        assert_eq!(kit.outcome(by(&plain(5), 9, 0, 70)), (45, -1));
        assert_eq!(kit.outcome(by(&plain(5), 9, 0, 90)), (45, -1));
        assert_eq!(kit.end(), 80);

        // Restart: the newest alone is recognised, the next one is taken.
        kit.cluster.stop_node(kit.now, 1);
        while kit.cluster.poll_effect().is_some() {}
        kit.cluster.start_node(kit.now, 1);
        kit.connect(1);
        assert_eq!(kit.outcome(batch(6)), (45, -1));
        assert_eq!(kit.outcome(batch(7)), (0, 70));
        assert_eq!(kit.outcome(batch(8)), (0, 80));
    });
}

#[test]
fn old_timestamps_lose_their_producer_at_a_restart() {
    // S2, "Expiry": appended again.
    let mut kit = Kit::new(BrokerVersion::V4_3_1);
    kit.topic("t", &[]);
    let old = by(&dated(5, 1_550_000_000_000), 9, 0, 0);
    assert_eq!(kit.outcome(old.clone()), (0, 0));
    assert_eq!(kit.outcome(old.clone()), (0, 0));
    kit.cluster.stop_node(kit.now, 1);
    while kit.cluster.poll_effect().is_some() {}
    kit.cluster.start_node(kit.now, 1);
    kit.connect(1);
    assert_eq!(kit.outcome(old.clone()), (0, 5));
    // And at a sweep.
    kit.pass(Duration::from_secs(601));
    assert_eq!(kit.outcome(old), (0, 10));
}

#[test]
fn a_recreated_topic_shows_as_offset_zero() {
    let mut kit = Kit::new(BrokerVersion::V4_3_1);
    kit.topic("t", &[]);
    assert_eq!(kit.outcome(by(&plain(3), 9, 0, 0)), (0, 0));
    kit.cluster.delete_topic("t");
    kit.topic("t", &[]);
    assert_eq!(kit.outcome(by(&plain(3), 9, 0, 3)), (0, 0));
}

#[test]
fn twenty_resent_in_order_are_fifteen_refusals_and_five_duplicates() {
    // S4.
    all(|mut kit| {
        let batch = |at: i32| by(&plain(1), 9, 0, at);
        let codes = |kit: &mut Kit| -> Vec<i16> {
            for at in 0..20 {
                kit.send(9, &produce_request(vec![(0, batch(at))]));
            }
            (0..20)
                .map(|_| kit.answer::<ProduceRequest>(9).unwrap().responses[0].partition_responses[0].error_code)
                .collect()
        };
        assert_eq!(codes(&mut kit), [0; 20]);
        assert_eq!(codes(&mut kit), [[45; 15].as_slice(), &[0; 5]].concat());
        assert_eq!(kit.end(), 20);
    });
}

#[test]
fn acks_all_waits_for_the_high_watermark() {
    let mut kit = Kit::new(BrokerVersion::V4_3_1);
    kit.topic("t", &[]);
    kit.outcome(plain(2));
    kit.cluster.hold_high_watermark("t", 0);
    kit.send(9, &produce_request(vec![(0, plain(3))]));
    // The next request of the connection waits behind it.
    kit.send(9, &produce_request(vec![(1, plain(1))]));
    assert!(kit.cluster.poll_effect().is_none());
    assert_eq!((kit.end(), kit.cluster.topic("t").unwrap().partitions[1].end_offset), (5, 0));
    kit.cluster.release_high_watermark(kit.now, "t", 0);
    for base in [2, 0] {
        let answer = kit.answer::<ProduceRequest>(9).unwrap();
        assert_eq!(answer.responses[0].partition_responses[0].base_offset, base);
    }
    // And no longer than the client says.
    kit.cluster.hold_high_watermark("t", 0);
    kit.send(9, &produce_request(vec![(0, plain(1))]));
    kit.pass(Duration::from_millis(1000));
    let answer = kit.answer::<ProduceRequest>(9).unwrap();
    assert_eq!(answer.responses[0].partition_responses[0].error_code, 7);
}

#[test]
fn acks_zero_is_not_answered() {
    let mut kit = Kit::new(BrokerVersion::V4_3_1);
    kit.topic("t", &[]);
    kit.send(9, &produce_request(vec![(0, plain(1))]).with_acks(0));
    assert!(kit.cluster.poll_effect().is_none());
    assert_eq!(kit.outcome(plain(1)), (0, 1));
    kit.send(9, &produce_request(vec![(7, plain(1))]).with_acks(0));
    assert!(kit.answer::<ProduceRequest>(9).is_none(), "an error closes the connection");
}

#[test]
fn caught_requests_are_answered_dropped_or_delayed() {
    let mut kit = Kit::new(BrokerVersion::V4_3_1);
    kit.topic("t", &[]);
    use crate::protocol::ErrorCode;
    use kafka_protocol::messages::ApiKey;
    kit.cluster.intercept(Intercept::next(ApiKey::Produce, InterceptAction::Answer(ErrorCode::NOT_ENOUGH_REPLICAS)));
    assert_eq!(kit.outcome(plain(1)), (19, -1));
    kit.cluster.intercept(Intercept::next(ApiKey::Produce, InterceptAction::DropAfter).after(1));
    assert_eq!(kit.outcome(plain(1)), (0, 0));
    kit.send(9, &produce_request(vec![(0, plain(1))]));
    assert!(kit.answer::<ProduceRequest>(9).is_none());
    assert_eq!(kit.end(), 2);
    kit.connect(1);
    kit.cluster.intercept(Intercept::next(ApiKey::Produce, InterceptAction::DropBefore));
    kit.send(9, &produce_request(vec![(0, plain(1))]));
    assert!(kit.answer::<ProduceRequest>(9).is_none());
    assert_eq!(kit.end(), 2);
    kit.connect(1);
    kit.cluster.intercept(Intercept::next(ApiKey::Produce, InterceptAction::Delay(Duration::from_secs(1))));
    kit.send(9, &produce_request(vec![(0, plain(1))]));
    assert_eq!(kit.end(), 2);
    kit.pass(Duration::from_secs(1));
    assert_eq!(kit.answer::<ProduceRequest>(9).unwrap().responses[0].partition_responses[0].base_offset, 2);
}

#[test]
fn a_damaged_frame_closes_the_connection() {
    let mut kit = Kit::new(BrokerVersion::V4_3_1);
    kit.topic("t", &[]);
    let connection = kit.connect(1);
    let mut frame = BytesMut::from(&[0, 0, 0, 9, 0, 0, 0, 1, 0xff, 0xff, 0][..]);
    frame.extend_from_slice(&[0x7f; 9]);
    kit.cluster.handle_request(kit.now, connection, frame.freeze());
    assert!(kit.answer::<ProduceRequest>(9).is_none());
}
