//! S7, S11: moving offsets without data, and what DescribeProducers tells.

use std::time::Duration;

use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::write_txn_markers_request::{WritableTxnMarker, WritableTxnMarkerTopic};
use kafka_protocol::messages::{DeleteRecordsRequest, DescribeProducersRequest, WriteTxnMarkersRequest};

use super::super::batches::{Batch, Record};
use super::super::run::{Run, Version, name_of};

pub(super) fn markers(
    topic: &str,
    pid: i64,
    epoch: i16,
    commit: bool,
    partition: i32,
    coordinator_epoch: i32,
) -> WriteTxnMarkersRequest {
    let topic = WritableTxnMarkerTopic::default().with_name(name_of(topic)).with_partition_indexes(vec![partition]);
    let marker = WritableTxnMarker::default()
        .with_producer_id(pid.into())
        .with_producer_epoch(epoch)
        .with_transaction_result(commit)
        .with_coordinator_epoch(coordinator_epoch)
        .with_topics(vec![topic]);
    WriteTxnMarkersRequest::default().with_markers(vec![marker])
}

pub(super) fn describe_producers(topic: &str) -> DescribeProducersRequest {
    let topic = TopicRequest::default().with_name(name_of(topic)).with_partition_indexes(vec![0]);
    DescribeProducersRequest::default().with_topics(vec![topic])
}

fn delete_records(topic: &str, offset: i64) -> DeleteRecordsRequest {
    let partition = DeleteRecordsPartition::default().with_partition_index(0).with_offset(offset);
    let topic = DeleteRecordsTopic::default().with_name(name_of(topic)).with_partitions(vec![partition]);
    DeleteRecordsRequest::default().with_topics(vec![topic]).with_timeout_ms(10_000)
}

pub(super) fn filler_and_markers(run: &mut Run<'_>) {
    let time = run.base;
    run.title("filler up to an offset, then DeleteRecords");
    run.topic("s7-filler", 1, &[]);
    let nulls: Vec<Record> = (0..1000).map(Record::null).collect();
    let filler = Batch::holding(&nulls, time);
    run.produce("a thousand nulls", "s7-filler", &filler);
    run.produce("the same again: no producer, no duplicate", "s7-filler", &filler);
    run.call("below 1500", 2, &delete_records("s7-filler", 1500));
    run.ends("after it", "s7-filler");
    run.produce("the next record", "s7-filler", &Batch::of(1, time));
    run.log("at the start: the batch that holds it", "s7-filler", 1500);
    run.log("below the start", "s7-filler", 1499);
    run.log("past the end", "s7-filler", 2002);
    run.log("at the end", "s7-filler", 2001);
    run.call("beyond the high watermark", 2, &delete_records("s7-filler", 5000));
    run.call("-1: up to it", 2, &delete_records("s7-filler", -1));
    run.ends("after it", "s7-filler");
    run.call("-2", 2, &delete_records("s7-filler", -2));
    run.call("unknown topic", 2, &delete_records("s7-nowhere", 1));
    run.topic("s7-compact", 1, &[("cleanup.policy", "compact")]);
    run.call("compacted topic", 2, &delete_records("s7-compact", 0));
    run.produce("filler has no keys", "s7-compact", &filler);

    run.title("markers from outside");
    run.topic("s7-markers", 2, &[]);
    run.produce("two records", "s7-markers", &Batch::of(2, time));
    run.call("commit", 1, &markers("s7-markers", 7001, 0, true, 0, 0));
    run.call("commit again", 1, &markers("s7-markers", 7001, 0, true, 0, 0));
    run.call("abort", 1, &markers("s7-markers", 7001, 0, false, 0, 0));
    run.call("later coordinator epoch", 1, &markers("s7-markers", 7001, 0, true, 0, 5));
    run.call("earlier coordinator epoch", 1, &markers("s7-markers", 7001, 0, true, 0, 4));
    run.call("later epoch", 1, &markers("s7-markers", 7001, 3, true, 0, 5));
    run.call("earlier epoch", 1, &markers("s7-markers", 7001, 2, true, 0, 5));
    run.call("unknown partition", 1, &markers("s7-markers", 7001, 3, true, 9, 5));
    let one = markers("s7-markers", 7002, 0, true, 0, 0);
    let three = WriteTxnMarkersRequest::default()
        .with_markers([one.markers.clone(), one.markers.clone(), one.markers].concat());
    run.call("three entries of one producer: one answer", 1, &three);
    run.log("stored", "s7-markers", 0);
    run.ends("ends", "s7-markers");
}

pub(super) fn producers(run: &mut Run<'_>) {
    let time = run.base;
    run.title("last sequence, epoch and timestamp of each producer");
    run.topic("s11-producers", 1, &[]);
    run.call("nobody yet", 0, &describe_producers("s11-producers"));
    run.produce("three records of 1100", "s11-producers", &Batch::of(3, time).by(1100, 2, 10));
    run.call("at once", 0, &describe_producers("s11-producers"));
    run.produce("the next", "s11-producers", &Batch::of(3, time + 50).by(1100, 2, 13));
    run.produce("another producer", "s11-producers", &Batch::of(1, time + 60).by(1101, 0, 0));
    run.produce("no producer", "s11-producers", &Batch::of(1, time + 70));
    run.call("both", 0, &describe_producers("s11-producers"));
    run.call("all records deleted", 2, &delete_records("s11-producers", -1));
    run.call("still there", 0, &describe_producers("s11-producers"));
    run.call("marker", 1, &markers("s11-producers", 1100, 2, true, 0, 7));
    run.call("with a coordinator epoch", 0, &describe_producers("s11-producers"));
    run.call("unknown topic", 0, &describe_producers("s11-nowhere"));
    if run.version > Version::V2_8_2 {
        run.produce("dated 2019", "s11-producers", &Batch::of(1, 1_546_300_800_000).by(1102, 0, 0));
        run.pause(Duration::from_millis(1100));
        run.call("the one of 2019 expired", 0, &describe_producers("s11-producers"));
    }
}
