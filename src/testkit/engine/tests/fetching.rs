//! Fetch and questions about offsets: broker-experiments S10, batch-forwarding 5.

use std::time::Duration;

use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use kafka_protocol::messages::{FetchRequest, FetchResponse};
use uuid::Uuid;

use super::kit::{Kit, WALL_MS, dated, fetch_request, plain, text};
use crate::testkit::BrokerVersion;
use crate::testkit::engine::ClusterSettings;

fn partition_fields(response: &FetchResponse) -> Vec<(i32, i16, usize)> {
    response
        .responses
        .iter()
        .flat_map(|topic| &topic.partitions)
        .map(|p| (p.partition_index, p.error_code, p.records.as_ref().map_or(0, |records| records.len())))
        .collect()
}

#[test]
fn the_first_batch_is_whole_and_the_last_may_be_cut() {
    let mut kit = Kit::new(BrokerVersion::V4_3_1);
    kit.topic("t", &[]);
    for _ in 0..3 {
        kit.produce(plain(10));
    }
    let size = plain(10).len();
    let fetch = |kit: &mut Kit, partition_max: usize, max: usize| {
        let mut request = fetch_request(&[(0, 0)], 0).with_max_bytes(max as i32);
        request.topics[0].partitions[0].partition_max_bytes = partition_max as i32;
        partition_fields(&kit.ask(12, &request))[0].2
    };
    assert_eq!(fetch(&mut kit, 1, 1 << 20), size);
    assert_eq!(fetch(&mut kit, size + 10, 1 << 20), size + 10);
    assert_eq!(fetch(&mut kit, 1 << 20, size + 20), size + 20);
    // A later partition whose first batch does not fit stays empty.
    kit.ask(9, &super::kit::produce_request(vec![(1, plain(10))]));
    let request = fetch_request(&[(0, 20), (1, 0)], 0).with_max_bytes(size as i32 + 5);
    assert_eq!(partition_fields(&kit.ask(12, &request)), [(0, 0, size), (1, 0, 0)]);
    // In the middle of a batch: the whole batch.
    assert_eq!(kit.fetch(15).records.unwrap().len(), 2 * size);
}

#[test]
fn offsets_outside_the_log_are_an_error_with_minus_one() {
    let mut kit = Kit::new(BrokerVersion::V4_3_1);
    kit.topic("t", &[]);
    kit.produce(plain(10));
    let data = kit.fetch(11);
    assert_eq!((data.error_code, data.high_watermark, data.log_start_offset), (1, -1, -1));
    assert_eq!(kit.fetch(10).error_code, 0);
    kit.cluster.delete_records("t", 0, 4);
    assert_eq!(kit.fetch(3).error_code, 1);
    assert_eq!(kit.fetch(4).log_start_offset, 4);
}

#[test]
fn the_high_watermark_hides_what_is_behind_it() {
    let mut kit = Kit::new(BrokerVersion::V4_3_1);
    kit.topic("t", &[]);
    kit.produce(plain(2));
    kit.cluster.hold_high_watermark("t", 0);
    kit.ask(9, &super::kit::produce_request(vec![(0, plain(3))]).with_acks(1));
    assert_eq!((kit.list(-1, -1, 0), kit.list(-1, -2, 0)), ((0, 2), (0, 5)));
    let data = kit.fetch(2);
    assert_eq!((data.error_code, data.records.unwrap().len(), data.high_watermark), (0, 0, 2));
}

#[test]
fn a_fetch_waits_for_data_and_no_longer_than_it_says() {
    let mut kit = Kit::new(BrokerVersion::V4_3_1);
    kit.topic("t", &[]);
    let consumer = kit.connect(1);
    kit.send(12, &fetch_request(&[(0, 0)], 300));
    assert!(kit.cluster.poll_effect().is_none());
    assert_eq!(kit.cluster.poll_timeout(), Some(kit.now + Duration::from_millis(300)));
    kit.pass(Duration::from_millis(300));
    assert_eq!(partition_fields(&kit.answer::<FetchRequest>(12).unwrap()), [(0, 0, 0)]);
    kit.send(12, &fetch_request(&[(0, 0)], 300));
    kit.connect(1);
    kit.send(9, &super::kit::produce_request(vec![(0, plain(1))]));
    let mut connections = Vec::new();
    while let Some(effect) = kit.cluster.poll_effect() {
        if let crate::testkit::engine::Effect::Send { connection, .. } = effect {
            connections.push(connection);
        }
    }
    assert_eq!(connections.len(), 2);
    assert!(connections.contains(&consumer));
}

fn session_request(id: i32, epoch: i32, wanted: &[(i32, i64)]) -> FetchRequest {
    let mut request = fetch_request(wanted, 300).with_session_id(id).with_session_epoch(epoch);
    if wanted.is_empty() {
        request.topics.clear();
    }
    request
}

#[test]
fn sessions_answer_only_what_changed() {
    // S10, first list.
    let mut kit = Kit::new(BrokerVersion::V2_8_2);
    kit.topic("t", &[]);
    let consumer = kit.connect(1);
    kit.send(12, &session_request(0, 0, &[(0, 0), (1, 0)]));
    kit.pass(Duration::from_millis(300));
    let first = kit.answer::<FetchRequest>(12).unwrap();
    assert_eq!(partition_fields(&first), [(0, 0, 0), (1, 0, 0)]);
    let id = first.session_id;
    assert_ne!(id, 0);
    kit.send(12, &session_request(id, 1, &[]));
    assert!(kit.cluster.poll_effect().is_none(), "nothing new: it waits");
    kit.pass(Duration::from_millis(300));
    assert_eq!(partition_fields(&kit.answer::<FetchRequest>(12).unwrap()), []);
    kit.connect(1);
    kit.produce(plain(1));
    kit.over(consumer);
    let size = plain(1).len();
    assert_eq!(partition_fields(&kit.ask(12, &session_request(id, 2, &[]))), [(0, 0, size)]);
    // Not listed anew: the same again.
    assert_eq!(partition_fields(&kit.ask(12, &session_request(id, 3, &[]))), [(0, 0, size)]);
    kit.send(12, &session_request(id, 4, &[(0, 1)]));
    assert!(kit.cluster.poll_effect().is_none());
    kit.pass(Duration::from_millis(300));
    kit.answer::<FetchRequest>(12).unwrap();
    // A partition in error is in every answer, at once.
    assert_eq!(partition_fields(&kit.ask(12, &session_request(id, 5, &[(1, 99)]))), [(1, 1, 0)]);
    assert_eq!(partition_fields(&kit.ask(12, &session_request(id, 6, &[]))), [(1, 1, 0)]);
    let forget = ForgottenTopic::default().with_topic(text("t").into()).with_partitions(vec![1]);
    kit.send(12, &session_request(id, 7, &[]).with_forgotten_topics_data(vec![forget]));
    assert!(kit.cluster.poll_effect().is_none(), "forgotten: it waits again");
    kit.pass(Duration::from_millis(300));
    kit.answer::<FetchRequest>(12).unwrap();
    assert_eq!(kit.ask(12, &session_request(id, 7, &[])).error_code, 71);
    assert_eq!(kit.ask(12, &session_request(id + 1, 1, &[])).error_code, 70);
}

fn by_id(id: Uuid, session: i32, epoch: i32) -> FetchRequest {
    let partition = FetchPartition::default()
        .with_partition_max_bytes(1 << 20)
        .with_current_leader_epoch(-1)
        .with_last_fetched_epoch(-1);
    let topic = FetchTopic::default().with_topic_id(id).with_partitions(vec![partition]);
    FetchRequest::default()
        .with_min_bytes(1)
        .with_max_bytes(1 << 20)
        .with_session_id(session)
        .with_session_epoch(epoch)
        .with_topics(if epoch > 0 { vec![] } else { vec![topic] })
}

#[test]
fn a_recreated_topic_is_told_by_its_id() {
    // S10, the table.
    let mut kit = Kit::new(BrokerVersion::V4_3_1);
    let id: Uuid = kit.cluster.create_topic("t", 1, 1, &[]).unwrap().into();
    let session = kit.ask(13, &by_id(id, 0, 0)).session_id;
    kit.cluster.delete_topic("t");
    assert_eq!(partition_fields(&kit.ask(13, &by_id(id, session, 1))), [(0, 3, 0)]);
    let new: Uuid = kit.cluster.create_topic("t", 1, 1, &[]).unwrap().into();
    assert_ne!(new, id);
    for epoch in [2, 3] {
        assert_eq!(partition_fields(&kit.ask(13, &by_id(id, session, epoch))), [(0, 103, 0)]);
    }
    assert_eq!(partition_fields(&kit.ask(13, &by_id(id, 0, -1))), [(0, 100, 0)]);
    // By name: the new topic without a sign.
    kit.produce(plain(2));
    assert_eq!(kit.fetch(1).error_code, 0);
    // Names in a session of ids.
    let mixed = session_request(session, 4, &[]);
    assert_eq!(kit.ask(12, &mixed).error_code, 106);
}

#[test]
fn truncation_shows_as_diverging_epoch() {
    let mut kit = Kit::new(BrokerVersion::V4_3_1);
    kit.topic("t", &[]);
    kit.produce(plain(5));
    kit.produce(plain(5));
    kit.cluster.truncate("t", 0, 5);
    kit.produce(plain(2));
    let mut request = fetch_request(&[(0, 10)], 0);
    request.topics[0].partitions[0].last_fetched_epoch = 0;
    let response = kit.ask(12, &request);
    let diverging = &response.responses[0].partitions[0].diverging_epoch;
    assert_eq!((diverging.epoch, diverging.end_offset), (0, 5));
    request.topics[0].partitions[0].last_fetched_epoch = 9;
    assert_eq!(kit.ask(12, &request).responses[0].partitions[0].error_code, 1);
    request.topics[0].partitions[0].last_fetched_epoch = -1;
    for (known, code) in [(0, 74), (2, 75)] {
        request.topics[0].partitions[0].current_leader_epoch = known;
        assert_eq!(kit.ask(12, &request).responses[0].partitions[0].error_code, code);
    }
}

#[test]
fn offsets_are_found_by_time() {
    let mut kit = Kit::new(BrokerVersion::V4_3_1);
    kit.topic("t", &[]);
    for (count, at) in [(3, 100), (3, 300), (3, 200)] {
        kit.produce(dated(count, WALL_MS + at));
    }
    for (timestamp, offset) in [(WALL_MS, 0), (WALL_MS + 101, 3), (WALL_MS + 300, 3), (WALL_MS + 301, -1)] {
        assert_eq!(kit.list(timestamp, -1, 0), (0, offset));
    }
    assert_eq!((kit.list(-2, -1, 0), kit.list(-1, -1, 0)), ((0, 0), (0, 9)));
}

#[test]
fn other_nodes_say_that_they_do_not_lead() {
    let mut kit = Kit::with(ClusterSettings::new("kit", WALL_MS).with_nodes(2));
    kit.cluster.create_topic("t", 2, 2, &[]).unwrap();
    let (one, two) = (kit.connect(1), kit.connect(2));
    kit.over(one);
    let codes = |kit: &mut Kit| -> Vec<i16> {
        let request = super::kit::produce_request(vec![(0, plain(1)), (1, plain(1))]);
        let response = kit.ask(10, &request);
        response.responses[0].partition_responses.iter().map(|p| p.error_code).collect()
    };
    assert_eq!(codes(&mut kit), [0, 6]);
    kit.over(two);
    assert_eq!(codes(&mut kit), [6, 0]);
    // The other takes over, with its window whole.
    kit.cluster.stop_node(kit.now, 1);
    while kit.cluster.poll_effect().is_some() {}
    assert_eq!(codes(&mut kit), [0, 0]);
    assert_eq!(kit.cluster.topic("t").unwrap().partitions[0].leader_epoch, 1);
}
