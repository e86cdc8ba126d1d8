//! Nodes that hang, and clients over their quota.

use std::time::Duration;

use kafka_protocol::messages::ApiVersionsRequest;
use kafka_protocol::messages::{ApiKey, FetchRequest, ProduceRequest};

use super::kit::{Kit, by, fetch_request, plain, produce_request};
use crate::testkit::BrokerVersion;
use crate::testkit::engine::{Hang, Intercept, InterceptAction};

fn send_produce(kit: &mut Kit, sequence: i32) {
    let records = by(&plain(1), 7, 0, sequence);
    kit.send(9, &produce_request(vec![(0, records)]));
}

#[test]
fn what_lies_in_the_sockets_of_a_node_that_hung_is_worked_on_later_newest_connection_first_if_told_so() {
    let mut kit = Kit::new(BrokerVersion::V4_3_1);
    kit.topic("t", &[]);
    kit.cluster.hang_node(1, Hang::ReadsNothing);
    let first = kit.connect(1);
    (0..3).for_each(|sequence| send_produce(&mut kit, sequence));
    kit.cluster.handle_closed(kit.now, first);
    let second = kit.connect(1);
    send_produce(&mut kit, 0);
    kit.pass(Duration::from_secs(60));
    assert_eq!((kit.end(), kit.cluster.poll_effect()), (0, None));

    assert_eq!(kit.cluster.thaw_node(kit.now, 1), [(first, 3), (second, 1)]);
    assert_eq!(kit.end(), 0, "not before it is told");
    let third = kit.connect(1);
    assert_eq!(kit.ask(0, &ApiVersionsRequest::default()).error_code, 0, "new ones are served");
    kit.cluster.serve(kit.now, second, 9);
    assert!(kit.answer::<ProduceRequest>(9).is_some());
    assert_eq!(kit.end(), 1);
    // Of the closed one two requests came whole; the first of them is a duplicate.
    kit.cluster.serve(kit.now, first, 2);
    assert_eq!(kit.end(), 2);
    kit.cluster.handle_closed(kit.now, third);
}

#[test]
fn a_node_that_hangs_with_its_answers_has_done_one_request_of_each_connection() {
    let mut kit = Kit::new(BrokerVersion::V4_3_1);
    kit.topic("t", &[]);
    let open = kit.connect(1);
    kit.cluster.hang_node(1, Hang::AnswersNothing);
    (0..3).for_each(|sequence| send_produce(&mut kit, sequence));
    assert_eq!((kit.end(), kit.cluster.poll_effect()), (1, None));
    assert_eq!(kit.cluster.thaw_node(kit.now, 1), [(open, 2)]);
    kit.cluster.serve(kit.now, open, 0);
    for _ in 0..3 {
        assert!(kit.answer::<ProduceRequest>(9).is_some());
    }
    assert_eq!(kit.end(), 3, "of a connection that is open all is found");
}

#[test]
fn a_node_that_hung_and_is_killed_has_read_nothing() {
    let mut kit = Kit::new(BrokerVersion::V4_3_1);
    kit.topic("t", &[]);
    kit.cluster.hang_node(1, Hang::ReadsNothing);
    let open = kit.connect(1);
    send_produce(&mut kit, 0);
    kit.cluster.handle_closed(kit.now, open);
    kit.cluster.stop_node(kit.now, 1);
    kit.cluster.start_node(kit.now, 1);
    assert_eq!(kit.cluster.thaw_node(kit.now, 1), []);
    assert_eq!(kit.end(), 0);
}

#[test]
fn a_client_over_its_quota_is_answered_at_once_and_then_not_read() {
    let mut kit = Kit::new(BrokerVersion::V4_3_1);
    kit.topic("t", &[]);
    let open = kit.connect(1);
    let throttled = InterceptAction::Throttle(Duration::from_secs(3));
    kit.cluster.intercept(Intercept::next(ApiKey::Produce, throttled));
    (0..2).for_each(|sequence| send_produce(&mut kit, sequence));
    assert_eq!(kit.answer::<ProduceRequest>(9).unwrap().throttle_time_ms, 3000);
    assert_eq!((kit.end(), kit.cluster.poll_effect()), (1, None));
    // What a client leaves unread there is found when the time is over.
    kit.cluster.handle_closed(kit.now, open);
    kit.pass(Duration::from_secs(2));
    assert_eq!(kit.end(), 1);
    kit.pass(Duration::from_secs(1));
    assert_eq!(kit.end(), 2);
}

#[test]
fn a_throttled_fetch_reads_nothing_and_makes_no_session() {
    // `FetchContext.getThrottledResponse` of Kafka: the id of a session that exists, else none.
    let mut kit = Kit::new(BrokerVersion::V4_3_1);
    kit.topic("t", &[]);
    kit.produce(plain(3));
    let mut request = fetch_request(&[(0, 0)], 0);
    (request.session_id, request.session_epoch) = (0, 0);
    let throttled = InterceptAction::Throttle(Duration::from_millis(200));
    kit.cluster.intercept(Intercept::next(ApiKey::Fetch, throttled));
    let answer = kit.ask(12, &request);
    assert_eq!((answer.session_id, answer.responses.len(), answer.throttle_time_ms), (0, 0, 200));
    kit.send(12, &request);
    assert!(kit.cluster.poll_effect().is_none());
    kit.pass(Duration::from_millis(200));
    let answer = kit.answer::<FetchRequest>(12).unwrap();
    assert!(answer.session_id > 0);
    let records = answer.responses[0].partitions[0].records.clone();
    assert!(records.is_some_and(|records| !records.is_empty()));
}
