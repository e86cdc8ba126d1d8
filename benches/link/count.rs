//! The path of a batch without sockets, for counting instructions: an answer is decoded, its batches are walked,
//! verified, sealed and queued, requests are built and encoded, answers are decoded and acknowledged, all through the
//! product's own functions.
//!
//! `towpath-count full SIZE` does all of it, `towpath-count base SIZE` only what this program needs itself and one pass
//! of the checksum over the same bytes. The difference is what our code costs: it does not move with the processor,
//! whose instruction sets decide how the checksum is computed. `dev/lib/instructions.py` counts both under valgrind.

use std::{hint::black_box, process::ExitCode, rc::Rc, time::Duration};

use bytes::{Bytes, BytesMut};
use kafka_protocol::{
    messages::{
        FetchResponse as WireFetchResponse, ProduceResponse as WireProduceResponse, TopicName as WireTopicName,
        fetch_response::{FetchableTopicResponse, PartitionData},
        produce_response::{PartitionProduceResponse, TopicProduceResponse},
    },
    protocol::{Encodable, StrBytes},
};
use tokio::time::Instant;
use towpath::{
    batch::{BatchBuilder, ProducerIdentity, crc32c},
    mirror::{
        anchor::{Anchor, Notes, Position, Shape},
        partition::{
            Fetched, Located, PartitionMachine, PartitionSettings, PartitionSpec, Policies, ProduceOutcome,
            ProducerAnswer, SourceEnds, StartAt, TargetEnds, TargetNotEmpty,
        },
    },
    protocol::{FetchResponse, LeaderEpoch, ProduceResponse, ProduceWriter, TopicId, TopicName, TopicPartition},
};
use uuid::Uuid;

const FETCH_VERSION: i16 = 17;
const PRODUCE_VERSION: i16 = 12;
const QUEUE_BYTES_MAX: usize = 16 << 20;
const RECORDS: i64 = 8;
/// The time of the records and of the day.
const WALL_MS: i64 = 1_700_000_000_000;
const WITHOUT_END: i64 = i64::MAX / 2;
const COVERED_FROM: usize = 21;
const TOPIC: u128 = 7;

/// What one answer holds, and how many answers there are.
struct Shape3 {
    batch: usize,
    partitions: i32,
    batches: i64,
    rounds: i64,
}

const SHAPES: &[(&str, Shape3)] = &[
    ("1k", Shape3 { batch: 1 << 10, partitions: 100, batches: 5, rounds: 20 }),
    ("16k", Shape3 { batch: 16 << 10, partitions: 8, batches: 8, rounds: 20 }),
    ("1m", Shape3 { batch: 1_000_000, partitions: 1, batches: 1, rounds: 40 }),
];

/// Everything that is made before the path begins.
struct Prepared {
    /// Bodies of Fetch answers.
    fetched: Vec<Bytes>,
    /// Bodies of Produce answers, in the order of the requests.
    produced: Vec<Bytes>,
    batch: Bytes,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let shape = |name: &str| SHAPES.iter().find(|(known, _)| *known == name).map(|(_, shape)| shape);
    let (Some(mode), Some(shape)) = (words.first(), words.get(1).and_then(|name| shape(name))) else {
        eprintln!("usage: towpath-count full|base 1k|16k|1m");
        return ExitCode::FAILURE;
    };
    let prepared = prepare(shape);
    let batches = shape.rounds * shape.batches * i64::from(shape.partitions);
    let done = if mode == "full" { path(shape, prepared) } else { base(&prepared, batches) };
    // The number of batches, by which the difference is divided.
    println!("{batches} {}", black_box(done));
    ExitCode::SUCCESS
}

/// The checksums alone.
fn base(prepared: &Prepared, batches: i64) -> u64 {
    (0..batches).fold(0, |sum: u64, _| {
        let covered = black_box(&prepared.batch).get(COVERED_FROM..).unwrap_or_default();
        sum.wrapping_add(u64::from(crc32c(covered)))
    })
}

/// The whole path.
fn path(shape: &Shape3, prepared: Prepared) -> u64 {
    let now = Instant::now();
    let mut machines: Vec<PartitionMachine> = (0..shape.partitions).map(|number| machine(number, now)).collect();
    let mut answers = prepared.produced.into_iter();
    let (mut correlation_id, mut room, mut sum) = (0, 0, 0_u64);
    for body in prepared.fetched {
        let answer = FetchResponse::decode(body, FETCH_VERSION).expect("it was encoded by the book");
        for partition in answer.topics.into_iter().flat_map(|topic| topic.partitions) {
            let machine = machines
                .get_mut(usize::try_from(partition.partition.0).unwrap_or(usize::MAX))
                .expect("only these were asked for");
            let (fetch_offset, ..) = machine.fetch_want(now, QUEUE_BYTES_MAX).expect("it has room");
            machine.handle_fetched(
                now,
                Fetched {
                    fetch_offset,
                    records: partition.records,
                    aborted: partition.aborted_transactions,
                    high_watermark: partition.high_watermark,
                    last_stable_offset: partition.last_stable_offset,
                    hold: None,
                },
            );
            sum = sum.wrapping_add(look(machine, now));
        }
        for _ in 0..shape.batches {
            let mut writer = ProduceWriter::new(PRODUCE_VERSION, room, machines.len());
            let mut tickets = Vec::new();
            for machine in &mut machines {
                let outbound = machine.take_batch(WALL_MS).expect("it was fetched");
                writer.push(&machine.spec().target, &outbound.head, (&outbound.batch).into());
                tickets.push(outbound.ticket);
                sum = sum.wrapping_add(look(machine, now));
            }
            correlation_id += 1;
            room = writer.written();
            let segments = writer.finish(correlation_id, "towpath", 30_000).expect("a request of our own");
            sum = sum.wrapping_add(segments.len() as u64);
            let body = answers.next().expect("one for each request");
            let answer = ProduceResponse::decode(body, PRODUCE_VERSION).expect("it was encoded by the book");
            let partitions = answer.topics.into_iter().flat_map(|topic| topic.partitions);
            for ((machine, ticket), stored) in machines.iter_mut().zip(tickets).zip(partitions) {
                let outcome = ProduceOutcome::Stored { base_offset: stored.base_offset, already: false };
                machine.handle_produced(now, ticket, outcome);
                sum = sum.wrapping_add(look(machine, now));
            }
        }
    }
    let copied: u64 = machines.iter().map(|machine| machine.progress().batches).sum();
    assert_eq!(copied, (shape.rounds * shape.batches) as u64 * machines.len() as u64, "every batch went through");
    sum
}

/// What the shard asks after every event.
fn look(machine: &mut PartitionMachine, now: Instant) -> u64 {
    machine.handle_quiet(now);
    let asked = machine.poll_timeout().is_some() || machine.locate_want(now).is_some();
    let sends = machine.can_send(WALL_MS);
    let next = machine.next_batch_bytes();
    let wants = machine.fetch_want(now, QUEUE_BYTES_MAX).is_some();
    u64::from(asked) + u64::from(sends) + next as u64 + u64::from(wants) + u64::from(machine.wants_anchor())
}

/// A partition that copies: anchored at 0, and found so on the target.
fn machine(number: i32, now: Instant) -> PartitionMachine {
    let settings = PartitionSettings {
        start: StartAt::Earliest,
        policies: Policies {
            target_not_empty: TargetNotEmpty::Stop,
            loss_continues: true,
            truncated_continues: false,
            recreated_appends: false,
            foreign_continues: false,
        },
        shape: Shape { read_committed: true, sealed_append_time: false },
        window_max: 5,
        old_age: Duration::from_secs(3600),
        tail_bytes_max: u64::MAX,
        open_bytes_max: 64 << 20,
        stopped_retry: Duration::from_secs(60),
    };
    let identity = ProducerIdentity { producer_id: (1 << 62) + i64::from(number), producer_epoch: 0 };
    let anchor = Anchor {
        position: Position { source_next: 0, target_next: 0, next_sequence: 0 },
        source_topic_id: TopicId::new([1; 16]),
        target_topic_id: TopicId::new([2; 16]),
        leader_epoch: LeaderEpoch(0),
        identity,
        shape: settings.shape,
        state: "copying".to_owned(),
        notes: Notes::default(),
    };
    let spec = PartitionSpec {
        source: TopicPartition::new(TopicName::new("bench"), number),
        target: TopicPartition::new(TopicName::new("source.bench"), number),
        source_cluster: "source".into(),
        source_topic_id: TopicId::new([1; 16]),
        target_topic_id: TopicId::new([2; 16]),
        fresh_identity: identity,
        anchor: Some(anchor),
        target_batch_bytes_max: Some(10 << 20),
        appeared_later: false,
    };
    let mut machine = PartitionMachine::new(Rc::new(settings), spec, 128 << 10, 1, now);
    machine.locate_begun(now);
    let ends = SourceEnds {
        start: 0,
        readable_end: WITHOUT_END,
        high_watermark: WITHOUT_END,
        leader_epoch: LeaderEpoch::NONE,
    };
    let target = TargetEnds { start: 0, high_watermark: 0, end: 0 };
    machine.handle_located(now, Located { source: Some(ends), target, producer: ProducerAnswer::Unknown });
    machine
}

fn prepare(shape: &Shape3) -> Prepared {
    let batch = batch(shape.batch);
    let (mut fetched, mut produced) = (Vec::new(), Vec::new());
    for round in 0..shape.rounds {
        let first = round * shape.batches;
        let mut records = BytesMut::new();
        for number in first..first + shape.batches {
            let at = records.len();
            records.extend_from_slice(&batch);
            records[at..at + 8].copy_from_slice(&(number * RECORDS).to_be_bytes());
        }
        let records = records.freeze();
        let partition = |index| {
            PartitionData::default()
                .with_partition_index(index)
                .with_high_watermark(WITHOUT_END)
                .with_last_stable_offset(WITHOUT_END)
                .with_log_start_offset(0)
                .with_aborted_transactions(Some(Vec::new()))
                .with_records(Some(records.clone()))
        };
        let topic = FetchableTopicResponse::default()
            .with_topic_id(Uuid::from_u128(TOPIC))
            .with_partitions((0..shape.partitions).map(partition).collect());
        let answer = WireFetchResponse::default().with_session_id(1).with_responses(vec![topic]);
        fetched.push(body(&answer, FETCH_VERSION));
        for number in first..first + shape.batches {
            let stored = |index| {
                PartitionProduceResponse::default()
                    .with_index(index)
                    .with_base_offset(number * RECORDS)
                    .with_log_append_time_ms(-1)
                    .with_log_start_offset(0)
            };
            let topic = TopicProduceResponse::default()
                .with_name(WireTopicName(StrBytes::from_static_str("source.bench")))
                .with_partition_responses((0..shape.partitions).map(stored).collect());
            produced.push(body(&WireProduceResponse::default().with_responses(vec![topic]), PRODUCE_VERSION));
        }
    }
    Prepared { fetched, produced, batch }
}

fn body(answer: &impl Encodable, version: i16) -> Bytes {
    let mut out = BytesMut::new();
    answer.encode(&mut out, version).expect("a complete message");
    out.freeze()
}

fn batch(size: usize) -> Bytes {
    let value = vec![b'v'; size / 8 - 24];
    let mut builder = BatchBuilder::new();
    for _ in 0..RECORDS {
        builder.push(WALL_MS, None, Some(&value), &[]).expect("small");
    }
    builder.build().expect("it holds records")
}
