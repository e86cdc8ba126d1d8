//! Batches made by hand, and a machine with the few calls a driver makes of it.

use std::{rc::Rc, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;

use crate::{
    batch::{
        Batch, BatchBuilder, BatchHeader, HEADER_LEN, ProducerIdentity, crc32c, open::decode, records, sequence,
        varint::put_long,
    },
    mirror::{
        anchor::{Anchor, Notes, Position, Shape},
        partition::{
            Fetched, LocateAsk, Located, Outbound, PartitionMachine, PartitionSettings, PartitionSpec, PartitionState,
            Policies, ProduceOutcome, ProducerAnswer, SourceEnds, StartAt, StopReason, TailBatch, TargetEnds,
            TargetNotEmpty, Ticket,
        },
    },
    protocol::{AbortedTransaction, ErrorCode, LeaderEpoch, PartitionId, TopicId, TopicName, TopicPartition},
};

/// The time of day in all tests.
pub(super) const WALL_MS: i64 = 1_700_000_000_000;
pub(super) const YOUNG: i64 = WALL_MS - 1_000;
/// 2019.
pub(super) const OLD: i64 = 1_550_000_000_000;
pub(super) const ID: ProducerIdentity = ProducerIdentity { producer_id: (1 << 62) + 7, producer_epoch: 0 };
pub(super) const LOG_APPEND_TIME: i16 = 0x08;
const TRANSACTIONAL: i16 = 0x10;
const CONTROL: i16 = 0x20;

/// A source batch.
#[derive(Debug, Clone)]
pub(super) struct Make {
    pub(super) base: i64,
    pub(super) epoch: i32,
    /// One record each, whose value is the number.
    pub(super) numbers: Vec<u64>,
    pub(super) timestamp: i64,
    pub(super) producer: i64,
    pub(super) attributes: i16,
    /// Bytes that make the batch longer.
    pub(super) pad: usize,
}

impl Make {
    /// A plain batch whose numbers are its offsets.
    pub(super) fn plain(base: i64, count: i64) -> Self {
        let numbers = (base..base + count).map(|number| number as u64).collect();
        Self { base, epoch: 3, numbers, timestamp: YOUNG, producer: -1, attributes: 0, pad: 0 }
    }

    pub(super) fn transactional(self, producer: i64) -> Self {
        Self { producer, attributes: TRANSACTIONAL, ..self }
    }

    pub(super) fn at(self, timestamp: i64) -> Self {
        Self { timestamp, ..self }
    }

    pub(super) fn bytes(&self) -> Bytes {
        let mut builder = BatchBuilder::new();
        for number in &self.numbers {
            let mut value = vec![b'N'];
            value.extend(number.to_be_bytes());
            value.resize(9 + self.pad, 0xAB);
            builder.push(self.timestamp, None, Some(&value), &[]).unwrap();
        }
        self.finish(builder)
    }

    fn finish(&self, builder: BatchBuilder) -> Bytes {
        let mut bytes = builder.build().unwrap().to_vec();
        bytes[0..8].copy_from_slice(&self.base.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.epoch.to_be_bytes());
        bytes[21..23].copy_from_slice(&self.attributes.to_be_bytes());
        bytes[43..51].copy_from_slice(&self.producer.to_be_bytes());
        sealed(bytes)
    }
}

/// Makes the checksum fit again after a patch.
pub(super) fn sealed(mut bytes: Vec<u8>) -> Bytes {
    let crc = crc32c(&bytes[21..]);
    bytes[17..21].copy_from_slice(&crc.to_be_bytes());
    bytes.into()
}

pub(super) fn patched(bytes: &Bytes, at: usize, patch: &[u8]) -> Bytes {
    let mut bytes = bytes.to_vec();
    bytes[at..at + patch.len()].copy_from_slice(patch);
    sealed(bytes)
}

/// A transaction's end.
pub(super) fn marker(base: i64, producer: i64, commit: bool) -> Bytes {
    let mut builder = BatchBuilder::new();
    builder.push(YOUNG, Some(&[0, 0, 0, u8::from(commit)]), Some(&[0; 6]), &[]).unwrap();
    Make { attributes: TRANSACTIONAL | CONTROL, producer, ..Make::plain(base, 1) }.finish(builder)
}

/// What a cleaner makes of a batch whose tombstones may go at `horizon`: the same records, their times counted from there
/// (KIP-534).
pub(super) fn with_horizon(make: &Make, horizon: i64) -> Bytes {
    let mut bytes = make.bytes()[..HEADER_LEN].to_vec();
    for (index, number) in make.numbers.iter().enumerate() {
        let mut record = vec![0];
        put_long(&mut record, make.timestamp - horizon);
        put_long(&mut record, index as i64);
        put_long(&mut record, -1);
        put_long(&mut record, 9);
        record.push(b'N');
        record.extend(number.to_be_bytes());
        put_long(&mut record, 0);
        put_long(&mut bytes, record.len() as i64);
        bytes.append(&mut record);
    }
    let length = i32::try_from(bytes.len() - 12).unwrap();
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    bytes[21..23].copy_from_slice(&(make.attributes | 0x40).to_be_bytes());
    bytes[27..35].copy_from_slice(&horizon.to_be_bytes());
    sealed(bytes)
}

/// What compaction leaves of a batch whose records are all gone.
pub(super) fn emptied(base: i64, count: i32) -> Bytes {
    let mut bytes = Make::plain(base, 1).bytes()[..HEADER_LEN].to_vec();
    bytes[8..12].copy_from_slice(&49_i32.to_be_bytes());
    bytes[23..27].copy_from_slice(&(count - 1).to_be_bytes());
    bytes[57..61].copy_from_slice(&0_i32.to_be_bytes());
    sealed(bytes)
}

/// What compaction leaves of an uncompressed batch: the records with these numbers within it.
pub(super) fn thinned(bytes: &Bytes, keep: impl Fn(usize) -> bool) -> Bytes {
    let mut rest = &bytes[HEADER_LEN..];
    let mut kept = bytes[..HEADER_LEN].to_vec();
    let (mut index, mut count) = (0, 0_i32);
    while !rest.is_empty() {
        // Records of these tests are shorter than 8 KB: a length of one or two bytes.
        let (length, prefix) = match rest[0] {
            low if low < 0x80 => (usize::from(low) / 2, 1),
            low => ((usize::from(low & 0x7f) | usize::from(rest[1]) << 7) / 2, 2),
        };
        let (record, after) = rest.split_at(prefix + length);
        if keep(index) {
            kept.extend(record);
            count += 1;
        }
        (rest, index) = (after, index + 1);
    }
    let length = i32::try_from(kept.len()).unwrap() - 12;
    kept[8..12].copy_from_slice(&length.to_be_bytes());
    kept[57..61].copy_from_slice(&count.to_be_bytes());
    sealed(kept)
}

/// A record of message format 1 as a broker before 0.11 keeps it.
pub(super) fn message(offset: i64, timestamp: i64) -> Bytes {
    let mut rest = vec![1, 0];
    rest.extend(timestamp.to_be_bytes());
    rest.extend((-1_i32).to_be_bytes());
    rest.extend(9_i32.to_be_bytes());
    rest.push(b'N');
    rest.extend(offset.to_be_bytes());
    let mut entry = offset.to_be_bytes().to_vec();
    entry.extend((i32::try_from(rest.len()).unwrap() + 4).to_be_bytes());
    entry.extend(crc32fast::hash(&rest).to_be_bytes());
    entry.extend(rest);
    entry.into()
}

/// The numbers of the records of an uncompressed batch as it goes out.
pub(super) fn numbers(head: &[u8; HEADER_LEN], batch: &Bytes) -> Vec<u64> {
    let bytes: Bytes = [head, &batch[HEADER_LEN..]].concat().into();
    let batch = Batch { header: header(head), bytes };
    batch.verify_crc().expect("the checksum fits");
    records(&batch)
        .unwrap()
        .map(|record| {
            let value = record.unwrap().value.unwrap();
            assert!(value[0] == b'N', "E: a control record was sent");
            u64::from_be_bytes(value[1..9].try_into().unwrap())
        })
        .collect()
}

/// What a look-up makes of a batch of the target's log.
pub(super) fn tail_batch(header: BatchHeader, bytes: &Bytes) -> TailBatch {
    let batch = Batch { header, bytes: bytes.clone() };
    let contents = decode(&batch, 1 << 20, false).unwrap();
    TailBatch { header, records: contents.records().map(|record| record.digest()).collect() }
}

pub(super) fn header(bytes: &[u8]) -> BatchHeader {
    BatchHeader::parse(bytes).unwrap()
}

/// The header the target would store of what was sent.
pub(super) fn stored(sent: &Outbound, base_offset: i64) -> BatchHeader {
    BatchHeader { base_offset, partition_leader_epoch: 1, ..header(&sent.head) }
}

pub(super) fn settings() -> PartitionSettings {
    PartitionSettings {
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
        tail_bytes_max: 1 << 20,
        stopped_retry: Duration::from_secs(60),
        open_bytes_max: 1 << 20,
    }
}

pub(super) fn topic_id(byte: u8) -> TopicId {
    TopicId::new([byte; 16])
}

/// Cluster id of the source.
pub(super) const CLUSTER: &str = "kB8dXCqUQNOO_6YiXaUl8w";

pub(super) fn spec(anchor: Option<Anchor>) -> PartitionSpec {
    let partition = |name: &str| TopicPartition { topic: TopicName::new(name), partition: PartitionId(0) };
    PartitionSpec {
        source: partition("orders"),
        target: partition("a.orders"),
        source_cluster: CLUSTER.into(),
        source_topic_id: topic_id(1),
        target_topic_id: topic_id(2),
        fresh_identity: ID,
        anchor,
        target_batch_bytes_max: None,
        appeared_later: false,
    }
}

pub(super) fn anchor(source_next: i64, target_next: i64) -> Anchor {
    Anchor {
        position: Position { source_next, target_next, next_sequence: sequence::of_offset(source_next) },
        source_topic_id: topic_id(1),
        target_topic_id: topic_id(2),
        leader_epoch: LeaderEpoch(3),
        identity: ID,
        shape: settings().shape,
        state: "copying".to_owned(),
        notes: Notes::default(),
    }
}

/// Where the source begins and ends, with a leader of the epoch that batches have.
pub(super) fn source(start: i64, end: i64) -> SourceEnds {
    SourceEnds { start, readable_end: end, high_watermark: end, leader_epoch: LeaderEpoch(3) }
}

/// What the target holds of a source batch sent at this position.
pub(super) fn held(bytes: &[u8], base_offset: i64, sequence: i64) -> BatchHeader {
    let mut bench = Bench::copying(sequence, base_offset);
    let source = header(bytes);
    bench.answer(sequence, &[bytes.to_vec().into()], Vec::new());
    let sent = bench.send().pop().unwrap_or_else(|| panic!("the batch at {} was not sent", source.base_offset));
    stored(&sent, base_offset)
}

/// A machine and its clock.
pub(super) struct Bench {
    pub(super) machine: PartitionMachine,
    pub(super) now: Instant,
}

impl Bench {
    pub(super) fn new(settings: PartitionSettings, spec: PartitionSpec) -> Self {
        let now = Instant::now();
        Self { machine: PartitionMachine::new(Rc::new(settings), spec, 1 << 20, 11, now), now }
    }

    /// Anchored at a source and a target offset, and located there.
    pub(super) fn copying(source_next: i64, target_next: i64) -> Self {
        Self::copying_with(settings(), source_next, target_next)
    }

    pub(super) fn copying_with(settings: PartitionSettings, source_next: i64, target_next: i64) -> Self {
        let mut bench = Self::new(settings, spec(Some(anchor(source_next, target_next))));
        bench.locate(target(target_next), ProducerAnswer::Unknown);
        bench.end_limbo();
        bench
    }

    /// As if the wait for stragglers of an earlier incarnation were over.
    pub(super) fn end_limbo(&mut self) {
        (self.machine.limbo, self.machine.unproven) = (None, None);
    }

    /// Answers the look-up for ends, with a source that begins at 0 and ends at 1000, or where the position is.
    pub(super) fn locate(&mut self, target: TargetEnds, producer: ProducerAnswer) {
        let end = self.machine.acked().source_next.max(1000);
        self.locate_in(source(0, end), target, producer);
    }

    pub(super) fn locate_in(&mut self, source: SourceEnds, target: TargetEnds, producer: ProducerAnswer) {
        self.wait();
        if self.machine.locate_want(self.now).is_none() {
            // It stood, and asks after a pause.
            self.wait();
        }
        let ask = self.machine.locate_want(self.now);
        let Some(LocateAsk::Ends { source: wanted, .. }) = ask else { panic!("{ask:?}, {:?}", self.machine.state()) };
        self.machine.locate_begun(self.now);
        let source = wanted.then_some(source);
        self.machine.handle_located(self.now, Located { source, target, producer });
        self.machine.handle_quiet(self.now);
    }

    pub(super) fn tail(&mut self, headers: Vec<BatchHeader>) {
        self.wait();
        let ask = self.machine.locate_want(self.now);
        assert!(matches!(ask, Some(LocateAsk::Tail { records: false, .. })), "{ask:?}, {:?}", self.machine.state());
        self.machine.locate_begun(self.now);
        self.machine.handle_tail(self.now, headers);
    }

    pub(super) fn tail_records(&mut self, tail: Vec<TailBatch>) {
        self.wait();
        let ask = self.machine.locate_want(self.now);
        assert!(matches!(ask, Some(LocateAsk::Tail { records: true, .. })), "{ask:?}, {:?}", self.machine.state());
        self.machine.locate_begun(self.now);
        self.machine.handle_tail_records(self.now, tail);
    }

    /// Lets time pass up to the machine's next deadline.
    pub(super) fn wait(&mut self) {
        if let Some(at) = self.machine.poll_timeout() {
            self.now = self.now.max(at);
            self.machine.handle_timeout(self.now);
        }
    }

    pub(super) fn fetch(&mut self, batches: &[Bytes]) {
        self.fetch_aborted(batches, Vec::new());
    }

    pub(super) fn fetch_aborted(&mut self, batches: &[Bytes], aborted: Vec<AbortedTransaction>) {
        let fetch_offset = self.machine.fetch_want(self.now, 1 << 20).expect("a fetch is wanted").0;
        self.answer(fetch_offset, batches, aborted);
    }

    pub(super) fn answer(&mut self, fetch_offset: i64, batches: &[Bytes], aborted: Vec<AbortedTransaction>) {
        let records: Vec<u8> = batches.concat();
        self.machine.handle_fetched(
            self.now,
            Fetched {
                fetch_offset,
                records: records.into(),
                aborted,
                high_watermark: 1000,
                last_stable_offset: 1000,
                hold: None,
            },
        );
        self.machine.handle_quiet(self.now);
    }

    /// Sends whatever may be sent.
    pub(super) fn send(&mut self) -> Vec<Outbound> {
        std::iter::from_fn(|| self.machine.take_batch(WALL_MS)).collect()
    }

    pub(super) fn produced(&mut self, ticket: Ticket, base_offset: i64) {
        let outcome = ProduceOutcome::Stored { base_offset, already: false };
        self.machine.handle_produced(self.now, ticket, outcome);
        self.machine.handle_quiet(self.now);
    }

    pub(super) fn failed(&mut self, ticket: Ticket, code: ErrorCode) {
        self.machine.handle_produced(self.now, ticket, ProduceOutcome::Failed { code, message: None });
        self.machine.handle_quiet(self.now);
    }

    pub(super) fn reason(&self) -> StopReason {
        match self.machine.state() {
            PartitionState::Stopped(reason) => reason,
            other => panic!("not stopped but {other}"),
        }
    }

    pub(super) fn position(&self) -> (i64, i64) {
        (self.machine.acked().source_next, self.machine.acked().target_next)
    }
}

/// A target log from 0 to `end`, all of it replicated.
pub(super) fn target(end: i64) -> TargetEnds {
    TargetEnds { start: 0, high_watermark: end, end }
}

/// Our producer is known there; its last record has the sequence before `next`.
pub(super) fn known(next: i64) -> ProducerAnswer {
    ProducerAnswer::Known { producer_epoch: 0, last_sequence: sequence::of_offset(next - 1) }
}
