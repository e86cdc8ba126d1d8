//! What brokers do, written down from `broker-experiments.md` and not from the machine's code: a source log with
//! transactions and holes, and one target partition with its leader, producer state and replication.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
};

use bytes::Bytes;

use super::kit::{Make, OLD, YOUNG, header, marker, message, numbers, tail_batch, thinned};
use crate::{
    batch::{BatchHeader, HEADER_LEN},
    mirror::partition::TailBatch,
    protocol::{AbortedTransaction, ErrorCode},
};

/// What one entry of the source's log is made of.
#[derive(Debug, Clone, Copy)]
pub(super) enum Item {
    /// Records, old or young.
    Data { count: u8, old: bool },
    /// A transaction of some batches with its marker; nothing else lies between.
    Transaction { batches: u8, commit: bool },
    /// Records of which compaction took some, perhaps all, before anybody read them.
    Thin { count: u8, keep: u8, old: bool },
    /// A batch larger than the target takes.
    Large { count: u8 },
    /// Records in message format 1, one entry each.
    Legacy { count: u8 },
    /// Offsets that compaction took before anybody read them.
    Hole(u8),
    /// A new leader epoch.
    Election,
}

struct SourceBatch {
    range: Range<i64>,
    epoch: i32,
    bytes: Bytes,
    /// The cleaner may take records of it.
    data: bool,
    legacy: bool,
}

/// What the target takes in one batch.
pub(super) const LIMIT: usize = 400;

/// A source partition; all of it is readable.
pub(super) struct Source {
    batches: Vec<SourceBatch>,
    aborted: Vec<(AbortedTransaction, i64)>,
    pub(super) start: i64,
    pub(super) end: i64,
    /// Offset and number of each record that is to be copied, and whether it is old.
    pub(super) committed: Vec<(i64, u64)>,
    old: BTreeMap<i64, bool>,
}

impl Source {
    pub(super) fn new(start: i64, items: &[Item]) -> Self {
        let mut source = Self {
            batches: Vec::new(),
            aborted: Vec::new(),
            start,
            end: start,
            committed: Vec::new(),
            old: BTreeMap::new(),
        };
        let mut epoch = 3;
        for (item, producer) in items.iter().zip(100..) {
            match *item {
                Item::Data { count, old } => source.data(i64::from(count), epoch, old, None, true),
                Item::Thin { count, keep, old } => {
                    source.data(i64::from(count), epoch, old, None, true);
                    source.compact(source.batches.len() - 1, keep);
                }
                Item::Large { count } => {
                    let make = Make { epoch, pad: 100, ..Make::plain(source.end, i64::from(count)) };
                    source.committed.extend((source.end..).zip(make.numbers.iter().copied()));
                    source.push(i64::from(count), epoch, make.bytes(), true);
                }
                Item::Legacy { count } => {
                    for _ in 0..count {
                        let at = source.end;
                        source.committed.push((at, at as u64));
                        // No leader epoch stands in such an entry.
                        source.batches.push(SourceBatch {
                            range: at..at + 1,
                            epoch: -1,
                            bytes: message(at, YOUNG),
                            data: true,
                            legacy: true,
                        });
                        source.end += 1;
                    }
                }
                Item::Transaction { batches, commit } => {
                    let first_offset = source.end;
                    for count in 0..batches {
                        source.data(i64::from(count % 3) + 1, epoch, false, Some(producer), commit);
                    }
                    let bytes = marker(source.end, producer, commit);
                    source.push(1, epoch, bytes, false);
                    if !commit && batches > 0 {
                        let aborted = AbortedTransaction { producer_id: producer, first_offset };
                        source.aborted.push((aborted, source.end));
                    }
                }
                Item::Hole(count) => source.end += i64::from(count),
                Item::Election => epoch += 1,
            }
        }
        // The cleaner never takes the end of a log.
        source.end = source.batches.last().map_or(start, |last| last.range.end);
        source
    }

    fn data(&mut self, count: i64, epoch: i32, old: bool, producer: Option<i64>, copied: bool) {
        // The pad makes neighbours of one length differ in bytes.
        let pad = usize::try_from(self.end % 5).unwrap();
        let make = Make { epoch, pad, ..Make::plain(self.end, count) }.at(if old { OLD } else { YOUNG });
        let make = match producer {
            Some(producer) => make.transactional(producer),
            None => make,
        };
        if copied {
            self.committed.extend((self.end..).zip(make.numbers.iter().copied()));
            self.old.insert(self.end, old);
            self.old.insert(self.end + count, false);
        }
        self.push(count, epoch, make.bytes(), producer.is_none());
    }

    fn push(&mut self, count: i64, epoch: i32, bytes: Bytes, data: bool) {
        let mut bytes = bytes.to_vec();
        bytes[12..16].copy_from_slice(&epoch.to_be_bytes());
        let range = self.end..self.end + count;
        self.batches.push(SourceBatch { range, epoch, bytes: bytes.into(), data, legacy: false });
        self.end += count;
    }

    /// The cleaner takes records of one batch; bit n of `keep` spares its n-th record. Never those of the last batch.
    pub(super) fn compact(&mut self, index: usize, keep: u8) {
        let Some(batch) = self.batches.get_mut(index).filter(|batch| batch.data) else { return };
        let spared = |number: usize| keep >> (number % 8) & 1 == 1;
        if batch.legacy {
            if !spared(0) {
                let gone = self.batches.remove(index).range.start;
                self.committed.retain(|(offset, _)| *offset != gone);
            }
            return;
        }
        let before: Vec<u64> = numbers(batch.bytes.first_chunk().unwrap(), &batch.bytes);
        batch.bytes = thinned(&batch.bytes, spared);
        let left = (0..before.len()).filter(|number| spared(*number)).map(|number| before[number]);
        let left: Vec<u64> = left.collect();
        self.committed.retain(|(_, number)| !before.contains(number) || left.contains(number));
        // An empty batch is kept for its producer's sake, or goes.
        if left.is_empty() && keep & 0x80 != 0 {
            self.batches.remove(index);
        }
    }

    /// Batches the cleaner may work on.
    pub(super) fn cleanable(&self) -> usize {
        self.batches.len().saturating_sub(1)
    }

    /// Some whole batches from an offset on, perhaps a cut-off one behind them, and the aborted transactions.
    pub(super) fn fetch(&self, offset: i64, batches: usize, cut: bool) -> (Bytes, Vec<AbortedTransaction>) {
        let from = self.batches.partition_point(|batch| batch.range.end <= offset);
        let to = (from + batches).min(self.batches.len());
        let mut bytes: Vec<u8> = self.batches[from..to].iter().flat_map(|batch| batch.bytes.to_vec()).collect();
        if cut && let Some(next) = self.batches.get(to) {
            bytes.extend(&next.bytes[..next.bytes.len() / 2]);
        }
        let aborted = self.aborted.iter().filter(|(_, end)| *end > offset).map(|(aborted, _)| *aborted);
        (bytes.into(), aborted.collect())
    }

    /// Leader epoch of what lies right before an offset.
    pub(super) fn epoch_before(&self, offset: i64) -> Option<i32> {
        self.batches.iter().rev().find(|batch| batch.range.start < offset).map(|batch| batch.epoch)
    }

    /// How many records before an offset are to be copied.
    pub(super) fn copied_before(&self, offset: i64) -> usize {
        self.committed.partition_point(|(at, _)| *at < offset)
    }

    /// Whether the record at an offset is old.
    pub(super) fn is_old(&self, offset: i64) -> bool {
        self.old.range(..=offset).next_back().is_some_and(|(_, old)| *old)
    }
}

#[derive(Debug, Clone)]
struct Kept {
    first: i32,
    last: i32,
    base: i64,
}

#[derive(Debug, Clone)]
struct Producer {
    epoch: i16,
    window: VecDeque<Kept>,
    old: bool,
}

/// A request's batch on its way.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    pub(super) head: [u8; HEADER_LEN],
    pub(super) batch: Bytes,
    pub(super) old: bool,
}

struct TargetBatch {
    header: BatchHeader,
    bytes: Bytes,
    numbers: Vec<u64>,
    old: bool,
}

/// The target partition as its leader sees it.
#[derive(Default)]
pub(super) struct Target {
    batches: Vec<TargetBatch>,
    pub(super) end: i64,
    pub(super) high_watermark: i64,
    producer: Option<Producer>,
    /// A request without a connection was appended a second time because its old producer state was gone; or behind
    /// later ones, if compaction took its records from the source meanwhile.
    pub(super) doubled: bool,
}

impl Target {
    pub(super) fn new(prefix: i64) -> Self {
        Self { end: prefix, high_watermark: prefix, ..Self::default() }
    }

    /// Somebody else writes.
    pub(super) fn append_foreign(&mut self, count: i64) {
        let bytes = Make::plain(0, count).bytes();
        let header = BatchHeader { base_offset: self.end, ..header(&bytes) };
        self.batches.push(TargetBatch { header, bytes, numbers: Vec::new(), old: false });
        self.end += count;
    }

    fn ours(&self) -> impl DoubleEndedIterator<Item = &TargetBatch> {
        self.batches.iter().filter(|batch| !batch.numbers.is_empty())
    }

    /// Offsets and numbers of our records before an offset.
    pub(super) fn ours_before(&self, offset: i64) -> Vec<(i64, u64)> {
        let placed = self.ours().flat_map(|batch| (batch.header.base_offset..).zip(batch.numbers.iter().copied()));
        placed.take_while(|(at, _)| *at < offset).collect()
    }

    /// `broker-experiments.md` S2 to S4. `Ok` is the base offset, and whether it was there already.
    pub(super) fn append(&mut self, sent: &Sent) -> Result<(i64, bool), ErrorCode> {
        let header = header(&sent.head);
        let bytes: Bytes = [&sent.head, &sent.batch[HEADER_LEN..]].concat().into();
        assert_eq!(header.records_count, header.last_offset_delta + 1);
        if bytes.len() > LIMIT {
            return Err(ErrorCode::MESSAGE_TOO_LARGE);
        }
        let mask = i64::from(i32::MAX);
        let last = ((i64::from(header.base_sequence) + i64::from(header.last_offset_delta)) & mask) as i32;
        match &mut self.producer {
            None => {}
            Some(producer) => {
                assert_eq!(producer.epoch, header.producer_epoch);
                let same = |kept: &&Kept| (kept.first, kept.last) == (header.base_sequence, last);
                if let Some(kept) = producer.window.iter().find(same) {
                    return Ok((kept.base, true));
                }
                let newest = producer.window.back().expect("never empty").last;
                if (i64::from(newest) + 1) & mask != i64::from(header.base_sequence) {
                    return Err(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
                }
            }
        }
        let base = self.end;
        let stored = TargetBatch {
            header: BatchHeader { base_offset: base, ..header },
            numbers: numbers(&sent.head, &sent.batch),
            bytes,
            old: sent.old,
        };
        let known = |number: &u64| self.batches.iter().any(|batch| batch.numbers.contains(number));
        let newest = self.ours().next_back().and_then(|batch| batch.numbers.last());
        let overtaken = self.producer.is_none() && newest > stored.numbers.first();
        self.doubled |= overtaken || stored.numbers.iter().any(known);
        self.end += i64::from(header.records_count);
        self.batches.push(stored);
        let kept = Kept { first: header.base_sequence, last, base };
        let producer =
            self.producer.get_or_insert(Producer { epoch: header.producer_epoch, window: VecDeque::new(), old: false });
        producer.window.push_back(kept);
        producer.old = sent.old;
        while producer.window.len() > 5 {
            producer.window.pop_front();
        }
        Ok((base, false))
    }

    /// What consumers find, in order.
    pub(super) fn numbers(&self) -> Vec<u64> {
        self.batches.iter().flat_map(|batch| batch.numbers.iter().copied()).collect()
    }

    /// The leader restarts: of the window only the newest batch is known, and of an old producer nothing.
    pub(super) fn restart(&mut self) {
        self.sweep();
        if let Some(producer) = &mut self.producer {
            producer.window.drain(..producer.window.len() - 1);
        }
    }

    /// Producers whose newest record is too old are forgotten.
    pub(super) fn sweep(&mut self) {
        self.producer.take_if(|producer| producer.old);
    }

    /// Another replica leads, which has only what was replicated to it, some of it above the high watermark.
    pub(super) fn elect(&mut self, lost_batches: usize) {
        for _ in 0..lost_batches {
            if self.batches.last().is_some_and(|last| last.header.base_offset >= self.high_watermark) {
                let lost = self.batches.pop().unwrap();
                self.end = lost.header.base_offset;
            }
        }
        // Followers build the same state from the log.
        let mask = i64::from(i32::MAX);
        let newest: Vec<_> = self.ours().rev().take(5).collect();
        let window: VecDeque<Kept> = newest
            .into_iter()
            .rev()
            .map(|batch| Kept {
                first: batch.header.base_sequence,
                last: ((i64::from(batch.header.base_sequence) + i64::from(batch.header.last_offset_delta)) & mask)
                    as i32,
                base: batch.header.base_offset,
            })
            .collect();
        let known = self.producer.is_some();
        let last = self.ours().next_back().filter(|_| known);
        let found = last.map(|last| Producer { epoch: last.header.producer_epoch, window, old: last.old });
        self.producer = found;
    }

    /// DescribeProducers: epoch and last sequence.
    pub(super) fn described(&self) -> Option<(i16, i32)> {
        let producer = self.producer.as_ref()?;
        Some((producer.epoch, producer.window.back()?.last))
    }

    pub(super) fn tail(&self, range: Range<i64>) -> Vec<TailBatch> {
        let within = |header: &BatchHeader| header.next_offset() > range.start && header.base_offset < range.end;
        let found = self.batches.iter().filter(|batch| within(&batch.header));
        found.map(|batch| tail_batch(batch.header, &batch.bytes)).collect()
    }
}
