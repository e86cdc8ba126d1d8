//! S2, S3, S4: producer ids, sequences, epochs, order; and what of it survives a restart.

use std::time::Duration;

use kafka_protocol::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use kafka_protocol::messages::{DeleteRecordsRequest, ProduceRequest};

use super::super::batches::Batch;
use super::super::run::{Run, Version, name_of, produce};
use super::{groups, offsets};

const OLD: i64 = 1_546_300_800_000;

pub(super) fn identity(run: &mut Run<'_>) {
    let time = run.base;
    let topic = "s2-window";
    run.topic(topic, 1, &[]);
    let pid = run.producer_id("pid");
    let batch = |at: i32| Batch::of(3, time + i64::from(at) * 10).by(pid, 0, at * 3);
    run.title("eight batches, then each again");
    for at in 0..8 {
        run.produce(&format!("batch {at}"), topic, &batch(at));
    }
    for at in [7, 3, 5, 4, 6, 2, 0, 1] {
        run.produce(&format!("batch {at} again"), topic, &batch(at));
    }
    run.title("a new connection goes on");
    run.close("");
    run.produce("batch 8", topic, &batch(8));
    run.title("the same range with other bytes");
    let other = Batch::holding(&(0..3).map(super::super::batches::Record::null).collect::<Vec<_>>(), time);
    run.produce("nulls for batch 8", topic, &other.by(pid, 0, 24));
    run.title("ranges that are not the next and not an old one");
    run.produce("same first, shorter", topic, &Batch::of(2, time).by(pid, 0, 24));
    run.produce("same first, longer", topic, &Batch::of(4, time).by(pid, 0, 24));
    run.produce("two old ones joined", topic, &Batch::of(6, time).by(pid, 0, 21));
    run.produce("a gap ahead", topic, &Batch::of(3, time).by(pid, 0, 40));
    run.log("stored", topic, 0);

    run.title("first sequences");
    run.topic("s2-first", 1, &[]);
    let fresh = run.producer_id("pid2");
    run.produce("fresh, first sequence 777", "s2-first", &Batch::of(1, time).by(fresh, 0, 777));
    run.produce("then 0", "s2-first", &Batch::of(1, time).by(fresh, 0, 0));
    let cases = [(987_654_321, 0, 0), (987_654_322, 7, 1000), (i64::MAX, 32_767, 0), (987_654_323, -1, 5)];
    for (pid, epoch, sequence) in cases {
        let batch = Batch::of(2, time).by(pid, epoch, sequence);
        run.produce(&format!("never issued {pid}/{epoch}, sequence {sequence}"), "s2-first", &batch);
        run.produce("again", "s2-first", &batch);
    }
    if run.version == Version::V4_3_1 {
        let batch = Batch::of(2, time).by(987_654_324, 3, 9).encode();
        run.produce_at(12, "never issued, version 12", "s2-first", None, &batch);
    }
    run.title("the sequence wraps");
    let last = Batch::of(4, time).by(555, 0, i32::MAX - 1);
    run.produce("from 2147483646", "s2-first", &last);
    run.produce("2 is next", "s2-first", &Batch::of(1, time).by(555, 0, 2));
    run.produce("the wrapping one again", "s2-first", &last);
    run.log("stored", "s2-first", 0);

    run.title("partitions do not know of each other");
    run.topic("s2-two", 2, &[]);
    for (index, sequence) in [(0, 0), (1, 50), (0, 1), (1, 51)] {
        let mut request: ProduceRequest = produce("s2-two", None, &Batch::of(1, time).by(556, 0, sequence).encode());
        request.topic_data[0].partition_data[0].index = index;
        run.call(&format!("partition {index}, sequence {sequence}"), 8, &request);
    }

    run.title("after DeleteRecords up to the end, and on a topic that recompresses");
    run.topic("s2-deleted", 1, &[]);
    run.produce("three records", "s2-deleted", &Batch::of(3, time).by(557, 0, 0));
    let partition = DeleteRecordsPartition::default().with_partition_index(0).with_offset(3);
    let wanted = DeleteRecordsTopic::default().with_name(name_of("s2-deleted")).with_partitions(vec![partition]);
    let request = DeleteRecordsRequest::default().with_topics(vec![wanted]).with_timeout_ms(10_000);
    run.call("all of them deleted", 2, &request);
    run.produce("again", "s2-deleted", &Batch::of(3, time).by(557, 0, 0));
    run.topic("s2-recompressed", 1, &[("compression.type", "uncompressed")]);
    run.produce("zstd", "s2-recompressed", &Batch::of(3, time).by(557, 0, 0).zstd());
    run.produce("again", "s2-recompressed", &Batch::of(3, time).by(557, 0, 0).zstd());

    run.title("on a topic with LogAppendTime");
    run.topic("s2-append", 1, &[("message.timestamp.type", "LogAppendTime")]);
    run.produce("three records", "s2-append", &Batch::of(3, time).by(558, 0, 0));
    run.produce("again", "s2-append", &Batch::of(3, time).by(558, 0, 0));

    run.title("the topic is deleted and made again: the producer goes on at offset 0");
    run.topic("s2-again", 1, &[]);
    run.produce("sequence 0", "s2-again", &Batch::of(3, time).by(559, 0, 0));
    run.delete_topic("s2-again");
    run.produce("while it is gone", "s2-again", &Batch::of(3, time).by(559, 0, 3));
    run.topic("s2-again", 1, &[]);
    run.produce("sequence 3", "s2-again", &Batch::of(3, time).by(559, 0, 3));
}

pub(super) fn expiry(run: &mut Run<'_>) {
    let time = run.base;
    run.title("batches of 2019 lose their producer at the next sweep");
    run.topic("s2-old", 1, &[]);
    let old = Batch::of(3, OLD).by(600, 0, 0);
    let young = Batch::of(3, time).by(601, 0, 0);
    run.produce("dated 2019", "s2-old", &old);
    run.produce("dated today", "s2-old", &young);
    run.pause(Duration::from_millis(1100));
    run.produce("dated 2019, again after the sweep", "s2-old", &old);
    run.produce("dated today, again", "s2-old", &young);
    run.topic("s2-old-append", 1, &[("message.timestamp.type", "LogAppendTime")]);
    run.produce("dated 2019, LogAppendTime", "s2-old-append", &old);
    run.pause(Duration::from_millis(1100));
    run.produce("again", "s2-old-append", &old);
    run.ends("the resent batch was appended again", "s2-old");
}

pub(super) fn epochs(run: &mut Run<'_>) {
    let time = run.base;
    let topic = "s3-epochs";
    run.topic(topic, 2, &[]);
    let pid = 700;
    let batch = |epoch: i16, sequence: i32| Batch::of(2, time).by(pid, epoch, sequence);
    run.title("a new epoch begins at sequence 0 and fences the old one where it has written");
    run.produce("epoch 0", topic, &batch(0, 0));
    run.produce("epoch 1, sequence goes on", topic, &batch(1, 2));
    run.produce("epoch 0 goes on", topic, &batch(0, 2));
    run.produce("epoch 1, sequence 0", topic, &batch(1, 0));
    run.produce("epoch 0 goes on", topic, &batch(0, 4));
    run.produce("epoch 0, an old batch again", topic, &batch(0, 2));
    run.produce("epoch 5, sequence 0", topic, &batch(5, 0));
    run.produce("epoch 1 goes on", topic, &batch(1, 2));
    let mut elsewhere = produce(topic, None, &batch(0, 0).encode());
    elsewhere.topic_data[0].partition_data[0].index = 1;
    run.call("epoch 0 on the other partition", 8, &elsewhere);
    run.title("a marker with the next epoch fences without data");
    run.topic("s3-marker", 1, &[]);
    run.produce("epoch 0", "s3-marker", &batch(0, 0));
    run.call("marker with epoch 1", 1, &offsets::markers("s3-marker", pid, 1, true, 0, 1));
    run.produce("epoch 0 goes on", "s3-marker", &batch(0, 2));
    run.produce("epoch 1, sequence 2", "s3-marker", &batch(1, 2));
    run.produce("epoch 1, sequence 0", "s3-marker", &batch(1, 0));
    run.log("stored", "s3-marker", 0);
}

pub(super) fn order(run: &mut Run<'_>) {
    let time = run.base;
    let topic = "s4-order";
    run.topic(topic, 1, &[]);
    let request = |at: i32| produce(topic, None, &Batch::of(1, time + i64::from(at)).by(800, 0, at).encode());
    run.title("twenty requests on one connection without waiting");
    for at in 0..20 {
        run.send_on("", 8, &request(at));
    }
    for at in 0..20 {
        run.receive_on::<ProduceRequest>("", &format!("batch {at}"), 8);
    }
    run.title("all of them again, in order");
    for at in 0..20 {
        run.send_on("", 8, &request(at));
    }
    for at in 0..20 {
        run.receive_on::<ProduceRequest>("", &format!("batch {at} again"), 8);
    }
    run.ends("nothing was added", topic);
    run.title("two connections overtake each other");
    for (on, at) in [("a", 21), ("b", 20), ("a", 22), ("b", 21), ("a", 22), ("b", 23)] {
        run.call_on(on, &format!("batch {at} on {on}"), 8, &request(at));
    }
    run.title("one connection: 25, 24, 25");
    for at in [25, 24, 25] {
        run.call(&format!("batch {at}"), 8, &request(at));
    }
    run.title("a fresh producer whose second batch comes first");
    run.topic("s4-fresh", 1, &[]);
    for at in [1, 0, 0, 2] {
        run.produce(&format!("batch {at}"), "s4-fresh", &Batch::of(1, time).by(801, 0, at));
    }
    run.title("a socket that is closed unread: what lands is a prefix");
    run.topic("s4-closed", 1, &[]);
    let request = |at: i32| produce("s4-closed", None, &Batch::of(1, time).by(802, 0, at).encode());
    for at in 0..5 {
        run.send_on("closed", 8, &request(at));
    }
    run.receive_on::<ProduceRequest>("closed", "batch 0", 8);
    run.close("closed");
}

/// 0.2, 0.3, S8, S11, S13: the same broker again with its data.
pub(super) fn restart(run: &mut Run<'_>) {
    let time = run.base;
    let topic = "z-window";
    run.topic(topic, 1, &[]);
    run.topic("z-old", 1, &[]);
    let batch = |at: i32| Batch::of(3, time).by(900, 0, at * 3);
    let old = Batch::of(3, OLD).by(901, 0, 0);
    run.title("eight batches, and one of 2019");
    for at in 0..8 {
        run.produce(&format!("batch {at}"), topic, &batch(at));
    }
    run.produce("dated 2019", "z-old", &old);
    run.produce("dated today", "z-old", &Batch::of(3, time).by(902, 0, 0));
    groups::before_restart(run);
    run.restart();
    run.await_leader(topic);
    run.await_leader("z-old");
    run.title("only the newest is recognised");
    for at in [7, 6, 3, 0] {
        run.produce(&format!("batch {at} again"), topic, &batch(at));
    }
    run.produce("batch 8", topic, &batch(8));
    run.produce("batch 7 again: the window fills", topic, &batch(7));
    run.title("the producer of 2019 is gone");
    run.call("producers", 0, &offsets::describe_producers("z-old"));
    run.produce("dated 2019, again", "z-old", &old);
    run.produce("dated today, again", "z-old", &Batch::of(3, time).by(902, 0, 0));
    run.ends("the one of 2019 was appended again", "z-old");
    groups::after_restart(run);
}
