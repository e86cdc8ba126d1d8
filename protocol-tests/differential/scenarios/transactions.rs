//! S6, S7 (d): transactions as a source shows them, and transactions that a client coordinates itself.

use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, EndTxnRequest, FetchRequest, IncrementalAlterConfigsRequest,
    InitProducerIdRequest,
};

use super::super::NO_VERIFICATION;
use super::super::batches::{Batch, CONTROL, TRANSACTIONAL};
use super::super::run::{Run, Version, fetch, list_offsets, name_of, text};
use super::offsets::{describe_producers, markers};

fn add_partition(id: &str, pid: i64, epoch: i16, topic: &str) -> AddPartitionsToTxnRequest {
    let topic = AddPartitionsToTxnTopic::default().with_name(name_of(topic)).with_partitions(vec![0]);
    AddPartitionsToTxnRequest::default()
        .with_v3_and_below_transactional_id(text(id).into())
        .with_v3_and_below_producer_id(pid.into())
        .with_v3_and_below_producer_epoch(epoch)
        .with_v3_and_below_topics(vec![topic])
}

fn end(id: &str, pid: i64, epoch: i16, commit: bool) -> EndTxnRequest {
    EndTxnRequest::default()
        .with_transactional_id(text(id).into())
        .with_producer_id(pid.into())
        .with_producer_epoch(epoch)
        .with_committed(commit)
}

fn committed_only(topic: &str) -> FetchRequest {
    fetch(topic, 0).with_isolation_level(1)
}

fn transactional(pid: i64, epoch: i16, sequence: i32, count: i32, time: i64) -> Batch {
    Batch::of(count, time).by(pid, epoch, sequence).with(|batch| batch.attributes |= TRANSACTIONAL)
}

pub(super) fn of_a_source(run: &mut Run<'_>) {
    let time = run.base;
    let (topic, id) = ("s6-source", "s6-id");
    run.topic(topic, 1, &[]);
    run.topic("s6-target", 1, &[]);
    run.await_coordinator(id, 1);
    run.title("a transactional producer");
    let init = InitProducerIdRequest::default()
        .with_transactional_id(Some(text(id).into()))
        .with_transaction_timeout_ms(60_000);
    run.wait_until("the coordinator loaded", 1, &init, |answer| answer.error_code == 0);
    let answer = run.quiet(1, &init);
    let (pid, epoch) = (answer.producer_id.0, answer.producer_epoch);
    run.name(pid, "pid");
    let after_end = |run: &mut Run<'_>, offset: i64| {
        // EndTxn is answered before its markers are written.
        run.wait_until("the marker is there", 5, &list_offsets(topic, 0..1, -1), |answer| {
            answer.topics[0].partitions[0].offset == offset
        });
    };
    // The transaction before it may still be completing (51).
    let add = |run: &mut Run<'_>| {
        let request = add_partition(id, pid, epoch, topic);
        let code = |answer: &AddPartitionsToTxnResponse| {
            answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        };
        run.wait_until("a transaction can begin", 3, &request, |answer| code(answer) != 51);
        run.call("partition added", 3, &request);
    };
    let produce = |run: &mut Run<'_>, label: &str, sequence: i32, count: i32| {
        let batch = transactional(pid, epoch, sequence, count, time);
        run.produce_at(8, label, topic, Some(id), &batch.encode());
    };
    run.say("committed:");
    add(run);
    produce(run, "three records", 0, 3);
    run.call("end", 3, &end(id, pid, epoch, true));
    after_end(run, 4);
    run.say("aborted:");
    add(run);
    produce(run, "two records", 3, 2);
    run.call("end", 3, &end(id, pid, epoch, false));
    after_end(run, 7);
    run.say("empty:");
    add(run);
    run.call("end", 3, &end(id, pid, epoch, true));
    after_end(run, 8);
    run.say("outside of any transaction:");
    run.produce("one record", topic, &Batch::of(1, time));
    run.say("open:");
    add(run);
    produce(run, "two records", 5, 2);
    run.produce("one record of somebody else behind it", topic, &Batch::of(1, time));
    run.title("what readers see");
    run.log("everything", topic, 0);
    run.fetch_records("committed only", 11, &committed_only(topic));
    run.call("the end", 5, &list_offsets(topic, 0..1, -1));
    run.call("the last stable offset", 5, &list_offsets(topic, 0..1, -1).with_isolation_level(1));
    run.call("producers", 0, &describe_producers(topic));
    run.call("end", 3, &end(id, pid, epoch, true));
    after_end(run, 13);
    run.fetch_records("committed only, nothing open", 11, &committed_only(topic));
    run.call("the last stable offset", 5, &list_offsets(topic, 0..1, -1).with_isolation_level(1));

    run.title("forwarded as it is, and with bits cleared");
    run.produce("data", "s6-target", &transactional(4000, 0, 0, 3, time));
    let marker = |attributes: i16| {
        let mut batch = Batch::of(1, time).by(4001, 0, -1);
        batch.attributes = attributes;
        // Length 16, then attributes, deltas, a key of version and type, a value of version and coordinator epoch, headers.
        batch.payload = bytes::Bytes::from_static(b"\x20\0\0\0\x08\0\0\0\x01\x0c\0\0\0\0\0\0\0");
        batch
    };
    run.produce("marker", "s6-target", &marker(TRANSACTIONAL | CONTROL));
    run.produce("marker without the transactional bit", "s6-target", &marker(CONTROL));
    run.produce("data without the transactional bit", "s6-target", &Batch::of(3, time).by(4000, 0, 0));
    run.produce("marker as a record", "s6-target", &marker(0).with(|batch| batch.sequence = 0));
    run.log("stored", "s6-target", 0);

    run.title("transactional data without AddPartitionsToTxn");
    run.topic("s6-unknown", 1, &[]);
    let lonely = transactional(pid, epoch, 0, 1, time).encode();
    run.produce_at(9, "version 9", "s6-unknown", Some(id), &lonely);
    if run.version == Version::V3_9_2 {
        run.produce_at(11, "version 11", "s6-unknown", Some(id), &lonely);
    }
    run.title("faults of the coordinator's requests");
    run.call("end of nothing", 3, &end("s6-stranger", pid, epoch, true));
    run.call("end with another epoch", 3, &end(id, pid, epoch + 1, true));
    run.call("end with another producer", 3, &end(id, pid + 1000, epoch, true));
    run.call("unknown partition", 3, &add_partition(id, pid, epoch, "s6-nowhere"));
}

/// 0.8: with the verification off, anybody may write transactional batches and close them by markers.
pub(super) fn coordinated_from_outside(run: &mut Run<'_>) {
    let time = run.base;
    let topic = "s7-own";
    run.topic(topic, 1, &[]);
    if run.version > Version::V2_8_2 {
        let (key, value) = NO_VERIFICATION.split_once('=').expect("a setting");
        let config = AlterableConfig::default().with_name(text(key)).with_value(Some(text(value)));
        // Broker defaults of the whole cluster.
        let resource = AlterConfigsResource::default().with_resource_type(4).with_configs(vec![config]);
        run.call("verification off", 1, &IncrementalAlterConfigsRequest::default().with_resources(vec![resource]));
        run.pause(std::time::Duration::from_millis(500));
    }
    run.title("data and markers of producers that this cluster never gave out");
    let produce = |run: &mut Run<'_>, label: &str, pid: i64, epoch: i16, sequence: i32| {
        let batch = transactional(pid, epoch, sequence, 2, time);
        run.produce_at(9, label, topic, Some("anything"), &batch.encode());
    };
    produce(run, "8000/3 begins at 17", 8000, 3, 17);
    produce(run, "8001/0", 8001, 0, 0);
    run.call("8000 commits", 1, &markers(topic, 8000, 3, true, 0, 0));
    run.fetch_records("committed only, 8001 open", 11, &committed_only(topic));
    run.call("8001 aborts", 1, &markers(topic, 8001, 0, false, 0, 0));
    produce(run, "8000/4 begins at 0", 8000, 4, 0);
    run.call("8000 commits", 1, &markers(topic, 8000, 4, true, 0, 0));
    if run.version == Version::V4_3_1 {
        let batch = transactional(8002, 0, 0, 1, time).encode();
        run.produce_at(12, "version 12 asks the coordinator all the same", topic, Some("anything"), &batch);
    }
    run.log("everything", topic, 0);
    run.fetch_records("committed only", 11, &committed_only(topic));
}
