//! S1, S5, S12: what a broker keeps of a batch, and which it refuses.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::ProduceRequest;
use kafka_protocol::messages::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::{FetchResponse, IncrementalAlterConfigsRequest};

use super::super::batches::{Batch, CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, Record, TRANSACTIONAL};
use super::super::run::{Run, Version, fetch, produce, text};

/// Of our own choice, above anything a broker gives out soon.
const PID: i64 = (1 << 62) + 1000;

pub(super) fn target_keeps(run: &mut Run<'_>) {
    let time = run.base;
    run.title("topics that keep the batch");
    run.topic("s1-plain", 1, &[]);
    run.topic("s1-append", 1, &[("message.timestamp.type", "LogAppendTime")]);
    run.topic("s1-gzip", 1, &[("compression.type", "gzip")]);
    let batch = |pid: i64| Batch::of(3, time).by(PID + pid, 0, 0);
    for topic in ["s1-plain", "s1-append"] {
        run.produce("uncompressed", topic, &batch(0));
        run.produce("gzip", topic, &batch(1).gzip());
        run.produce("zstd", topic, &batch(2).zstd());
        run.log("stored", topic, 0);
    }
    run.produce("gzip to a gzip topic", "s1-gzip", &batch(1).gzip());
    run.log("stored", "s1-gzip", 0);

    run.title("fields that are corrected");
    run.topic("s1-fields", 1, &[]);
    let mut pid = 100;
    let mut next = || {
        pid += 1;
        Batch::of(5, time).by(PID + pid, 0, 0)
    };
    let accepted: Vec<(&str, Batch)> = vec![
        ("leader epoch 77", next().with(|batch| batch.leader_epoch = 77)),
        ("attribute bits 7 to 15", next().with(|batch| batch.attributes |= -128)),
        ("delete horizon bit", next().with(|batch| batch.attributes |= DELETE_HORIZON)),
        ("largest timestamp too big", next().with(|batch| batch.max_timestamp += 1000)),
        ("largest timestamp too small", next().with(|batch| batch.max_timestamp -= 2)),
        ("largest timestamp -1", next().with(|batch| batch.max_timestamp = -1)),
        ("log append time bit", next().with(|batch| batch.attributes |= LOG_APPEND_TIME)),
        ("timestamps of 2019", Batch::of(5, 1_546_300_800_000).by(PID + 90, 0, 0)),
        ("two hours in the future", Batch::of(5, time + 2 * 3_600_000 + 600_000).by(PID + 91, 0, 0)),
        ("producer id -2, epoch 0, sequence 0", Batch::of(5, time).by(-2, 0, 0)),
    ];
    for (label, batch) in accepted {
        run.produce(label, "s1-fields", &batch);
    }
    let no_time: Vec<Record> =
        (0..5).map(|at| Record { timestamp_delta: 0, ..Record::new(at, &format!("k{at}"), "v") }).collect();
    run.produce("timestamps all -1", "s1-fields", &Batch::holding(&no_time, -1).by(PID + 92, 0, 0));
    run.log("stored", "s1-fields", 0);

    run.title("batches that are refused");
    run.topic("s1-refused", 1, &[]);
    run.topic("s1-compact", 1, &[("cleanup.policy", "compact")]);
    let refused: Vec<(&str, Batch)> = vec![
        ("base offset 5", next().with(|batch| batch.base_offset = 5)),
        ("control bit", next().with(|batch| batch.attributes |= CONTROL)),
        ("count 4 of 5", next().with(|batch| batch.count = 4)),
        ("count 6 of 5", next().with(|batch| batch.count = 6)),
        ("sequence -1 with a producer", next().with(|batch| batch.sequence = -1)),
        ("wrong checksum", next().with(|batch| batch.crc = Some(1))),
        ("codec 5", next().with(|batch| batch.attributes |= 5)),
        ("transactional without transactional id", next().with(|batch| batch.attributes |= TRANSACTIONAL)),
    ];
    for (label, batch) in refused {
        run.produce(label, "s1-refused", &batch);
    }
    let two = [next().encode(), next().encode()].concat();
    run.produce_at(8, "two batches in one entry", "s1-refused", None, &Bytes::from(two));
    run.produce(
        "log append time bit to such a topic",
        "s1-append",
        &next().with(|batch| batch.attributes |= LOG_APPEND_TIME),
    );
    let keyless = vec![Record { key: None, ..Record::new(0, "", "v") }, Record::new(1, "k", "v")];
    run.produce("a record without key to a compacted topic", "s1-compact", &Batch::holding(&keyless, time));
    run.ends("nothing was stored", "s1-refused");

    run.title("the same partition twice in one request");
    run.topic("s1-twice", 1, &[]);
    let mut request: ProduceRequest = produce("s1-twice", None, &Batch::of(1, time).encode());
    let second = produce("s1-twice", None, &Batch::of(2, time).encode());
    request.topic_data[0].partition_data.extend(second.topic_data[0].partition_data.clone());
    run.call("one record, then two", 8, &request);
    run.log("stored", "s1-twice", 0);

    run.title("other faults of a request");
    run.produce("unknown topic", "s1-nowhere", &Batch::of(1, time));
    let mut request = produce("s1-plain", None, &Batch::of(1, time).encode());
    request.topic_data[0].partition_data[0].index = 7;
    run.call("unknown partition", 8, &request);
    request.topic_data[0].partition_data[0].index = 0;
    request.acks = 2;
    run.call("acks 2", 8, &request);
    run.topic("s1-small", 1, &[("max.message.bytes", "200")]);
    run.produce("larger than max.message.bytes", "s1-small", &Batch::of(50, time));
    run.produce("not larger", "s1-small", &Batch::of(5, time));
}

/// S1: what takes a codec: topics of another one, and payloads that cannot be opened.
pub(super) fn recompressed(run: &mut Run<'_>) {
    let time = run.base;
    run.title("a topic of another codec");
    run.topic("s1-uncompressed", 1, &[("compression.type", "uncompressed")]);
    let batch = |pid: i64| Batch::of(3, time).by(PID + pid, 0, 0);
    run.produce("gzip", "s1-uncompressed", &batch(1).gzip());
    run.produce("zstd", "s1-uncompressed", &batch(2).zstd());
    run.log("stored", "s1-uncompressed", 0);
    run.title("codec bits say gzip, the payload does not");
    run.topic("s1-garbled", 1, &[]);
    run.produce("refused", "s1-garbled", &batch(3).with(|batch| batch.attributes |= 1));
    run.title("thinned batches whose delta is patched");
    run.topic("s5-uncompressed", 1, &[("compression.type", "uncompressed")]);
    run.produce("zstd", "s1-garbled", &patched(4, time).zstd());
    run.produce("zstd, to a topic of another codec", "s5-uncompressed", &patched(6, time).zstd());
    run.log("rebuilt without holes", "s5-uncompressed", 0);
}

/// Offsets 0, 2 and 4 of a batch of five.
fn thin(pid: i64, time: i64) -> Batch {
    let records: Vec<Record> = [0, 2, 4].map(|at| Record::new(at, &format!("k{at}"), "v")).to_vec();
    Batch::holding(&records, time).by(PID + pid, 0, 0).with(|batch| batch.last_offset_delta = 4)
}

fn patched(pid: i64, time: i64) -> Batch {
    thin(pid, time).with(|batch| batch.last_offset_delta = 2)
}

/// S5: batches as a cleaned log holds them, sent to a target.
pub(super) fn thinned(run: &mut Run<'_>) {
    let time = run.base;
    run.title("a batch that lost records, as it is and with its delta patched");
    run.topic("s5-plain", 1, &[]);
    run.topic("s5-other", 1, &[("compression.type", "uncompressed")]);
    run.produce("as it is", "s5-plain", &thin(1, time));
    run.produce("as it is, zstd", "s5-plain", &thin(2, time).zstd());
    run.produce("patched: wrong inner offsets are kept", "s5-plain", &patched(3, time));
    run.produce("as it is, to a topic of another codec", "s5-other", &thin(5, time).zstd());
    run.title("an empty batch");
    let empty = Batch::holding(&[], -1).by(PID + 7, 0, 0).with(|batch| batch.last_offset_delta = 0);
    run.produce("count 0", "s5-plain", &empty);
    run.title("a tombstone whose delete horizon bit is cleared");
    let tombstone = vec![Record { value: None, ..Record::new(0, "k", "") }];
    run.produce("accepted", "s5-plain", &Batch::holding(&tombstone, time).by(PID + 8, 0, 0));
    run.log("stored", "s5-plain", 0);
}

/// S5: what the cleaner leaves.
pub(super) fn cleaned(run: &mut Run<'_>) {
    let time = run.base;
    run.title("a cleaned log");
    let configs = [
        ("cleanup.policy", "compact"),
        ("min.cleanable.dirty.ratio", "0.01"),
        ("segment.bytes", if run.version == Version::V4_3_1 { "1048576" } else { "1000" }),
        ("segment.ms", "1"),
    ];
    run.topic("s5-cleaned", 1, &configs);
    let keys =
        |keys: &[&str]| -> Vec<Record> { keys.iter().zip(0..).map(|(key, at)| Record::new(at, key, "v")).collect() };
    let send = |run: &mut Run<'_>, names: &[&str], pid: i64, sequence: i32, later: i64| {
        let batch = Batch::holding(&keys(names), time + later).by(PID + pid, 0, sequence);
        run.produce(&format!("keys {}", names.join(" ")), "s5-cleaned", &batch);
    };
    send(run, &["a", "b", "c", "d", "e"], 20, 0, 0);
    send(run, &["x"], 21, 0, 0);
    send(run, &["a", "c", "x"], 20, 5, 0);
    // These are so much later that the log rolls before each; all but the newest segment can be cleaned.
    send(run, &["y"], 20, 8, 1000);
    send(run, &["z"], 20, 9, 2000);
    run.clean("s5-cleaned");
    let holes = |answer: &FetchResponse| {
        let records = answer.responses[0].partitions[0].records.clone().unwrap_or_default();
        records.get(57..61).is_some_and(|count| count == 3_i32.to_be_bytes())
    };
    run.wait_until("the first batch lost two records", 11, &fetch("s5-cleaned", 0), holes);
    run.log_below("from the beginning", "s5-cleaned", 0, 9);
    run.log_below("from an offset that is gone", "s5-cleaned", 2, 9);
    run.ends("ends", "s5-cleaned");
}

/// S12: an old format cannot carry an identity.
pub(super) fn no_identity(run: &mut Run<'_>) {
    let time = run.base;
    for (topic, format) in [("s12-v1-id", "0.10.2"), ("s12-v0-id", "0.9.0")] {
        run.title(&format!("message.format.version {format}"));
        run.topic(topic, 1, &[("message.format.version", format)]);
        run.produce("with a producer", topic, &Batch::of(2, time).by(PID, 0, 0));
        run.produce("without", topic, &Batch::of(2, time));
    }
}

/// S12: topics of old message formats.
pub(super) fn formats(run: &mut Run<'_>) {
    let time = run.base;
    for (topic, format) in [("s12-v1", "0.10.2"), ("s12-v0", "0.9.0")] {
        run.title(&format!("message.format.version {format}"));
        run.topic(topic, 1, &[("message.format.version", format)]);
        run.produce("two records", topic, &Batch::of(2, time));
        run.produce("two records, gzip", topic, &Batch::of(2, time).gzip());
        for version in [4, 11, 12] {
            run.fetch_records("stored", version, &fetch(topic, 0));
        }
        run.log("from inside the wrapper", topic, 3);
    }
    run.title("the format is raised");
    let config = AlterableConfig::default().with_name(text("message.format.version")).with_value(Some(text("2.8")));
    let resource = AlterConfigsResource::default().with_resource_type(2).with_resource_name(text("s12-v1"));
    let resource = resource.with_configs(vec![config]);
    run.call("alter", 1, &IncrementalAlterConfigsRequest::default().with_resources(vec![resource]));
    run.pause(Duration::from_millis(500));
    run.produce("with a producer", "s12-v1", &Batch::of(2, time).by(PID, 0, 0));
    run.log("old and new in one answer", "s12-v1", 0);
}
