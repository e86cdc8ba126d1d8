//! What brokers do, written down from `broker-experiments.md` and not from the machine's code: a source log with
//! transactions and holes, and one target partition with its leader, producer state and replication.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
};

use bytes::Bytes;

use super::kit::{Make, OLD, YOUNG, header, marker};
use crate::{
    batch::{Batch, BatchHeader, HEADER_LEN, records},
    protocol::{AbortedTransaction, ErrorCode},
};

/// What one entry of the source's log is made of.
#[derive(Debug, Clone, Copy)]
pub(super) enum Item {
    /// Records, old or young.
    Data { count: u8, old: bool },
    /// A transaction of some batches with its marker; nothing else lies between.
    Transaction { batches: u8, commit: bool },
    /// Offsets that compaction took before anybody read them.
    Hole(u8),
    /// A new leader epoch.
    Election,
}

struct SourceBatch {
    range: Range<i64>,
    epoch: i32,
    bytes: Bytes,
}

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
                Item::Transaction { batches, commit } => {
                    let first_offset = source.end;
                    for count in 0..batches {
                        source.data(i64::from(count % 3) + 1, epoch, false, Some(producer), commit);
                    }
                    let bytes = marker(source.end, producer, commit);
                    source.push(1, epoch, bytes);
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
        }
        self.push(count, epoch, make.bytes());
    }

    fn push(&mut self, count: i64, epoch: i32, bytes: Bytes) {
        let mut bytes = bytes.to_vec();
        bytes[12..16].copy_from_slice(&epoch.to_be_bytes());
        self.batches.push(SourceBatch { range: self.end..self.end + count, epoch, bytes: bytes.into() });
        self.end += count;
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

    pub(super) fn is_old(&self, base: i64) -> bool {
        self.old.get(&base).copied().unwrap_or(false)
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
    /// What lay there before.
    pub(super) prefix: i64,
    /// A request without a connection was appended a second time because its old producer state was gone.
    pub(super) doubled: bool,
}

impl Target {
    pub(super) fn new(prefix: i64) -> Self {
        Self { end: prefix, high_watermark: prefix, prefix, ..Self::default() }
    }

    /// `broker-experiments.md` S2 to S4. `Ok` is the base offset, and whether it was there already.
    pub(super) fn append(&mut self, sent: &Sent) -> Result<(i64, bool), ErrorCode> {
        let header = header(&sent.head);
        let bytes: Bytes = [&sent.head, &sent.batch[HEADER_LEN..]].concat().into();
        let batch = Batch { header, bytes };
        batch.verify_crc().expect("the derived checksum fits");
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
        let numbers = records(&batch).unwrap().map(|record| {
            let value = record.unwrap().value.unwrap();
            assert!(value[0] == b'N', "E: a control record was sent");
            u64::from_be_bytes(value[1..9].try_into().unwrap())
        });
        let base = self.end;
        let stored = TargetBatch {
            header: BatchHeader { base_offset: base, ..header },
            numbers: numbers.collect(),
            old: sent.old,
        };
        self.doubled |= self.batches.iter().any(|batch| batch.numbers.first() == stored.numbers.first());
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
        let newest = self.batches.iter().rev().take(5).rev();
        let window: VecDeque<Kept> = newest
            .map(|batch| Kept {
                first: batch.header.base_sequence,
                last: ((i64::from(batch.header.base_sequence) + i64::from(batch.header.last_offset_delta)) & mask)
                    as i32,
                base: batch.header.base_offset,
            })
            .collect();
        let known = self.producer.is_some();
        self.producer = self.batches.last().filter(|_| known).map(|last| Producer {
            epoch: last.header.producer_epoch,
            window,
            old: last.old,
        });
    }

    /// DescribeProducers: epoch and last sequence.
    pub(super) fn described(&self) -> Option<(i16, i32)> {
        let producer = self.producer.as_ref()?;
        Some((producer.epoch, producer.window.back()?.last))
    }

    pub(super) fn headers(&self, range: Range<i64>) -> Vec<BatchHeader> {
        let within = |header: &BatchHeader| header.next_offset() > range.start && header.base_offset < range.end;
        self.batches.iter().map(|batch| batch.header).filter(within).collect()
    }
}
