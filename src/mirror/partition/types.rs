//! What a partition is told, and the small things it hands out and takes back.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{
    batch::{BatchHeader, HEADER_LEN, ProducerIdentity, open::RecordDigest},
    mirror::anchor::{Anchor, Shape},
    protocol::{ErrorCode, TopicId, TopicPartition},
};

/// Where a partition without an anchor begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartAt {
    /// At the first record that exists.
    Earliest,
    /// Behind the last one; only for partitions that existed when the flow first started.
    Latest,
}

/// What to do when a partition has no anchor and its target is not empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetNotEmpty {
    /// Stop, with the remedy.
    Stop,
    /// Copy behind what is there.
    Append,
}

/// What to do without asking anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policies {
    /// See [`TargetNotEmpty`].
    pub target_not_empty: TargetNotEmpty,
    /// Records gone before they were copied: go on behind them.
    pub loss_continues: bool,
    /// The source lost what was copied: go on behind the common history.
    pub truncated_continues: bool,
    /// The source topic is another one: copy it behind the records of the former one.
    pub recreated_appends: bool,
    /// Somebody else wrote to the remote partition: go on behind that.
    pub foreign_continues: bool,
}

/// What all partitions of a flow share.
#[derive(Debug, Clone)]
pub struct PartitionSettings {
    /// See [`StartAt`].
    pub start: StartAt,
    /// See [`Policies`].
    pub policies: Policies,
    /// What shapes the bytes.
    pub shape: Shape,
    /// Batches in flight once the window is open; 1 to 5.
    pub window_max: usize,
    /// Batches whose newest record is older than this get a window of one: the target may forget their producer.
    pub old_age: Duration,
    /// Bytes acknowledged since the last durable anchor after which sending pauses.
    pub tail_bytes_max: u64,
    /// Between attempts of a stopped partition whose cause may go away.
    pub stopped_retry: Duration,
    /// What a batch may become when it is decompressed, in bytes.
    pub open_bytes_max: usize,
}

/// Which partition this is.
#[derive(Debug, Clone)]
pub struct PartitionSpec {
    /// On the source.
    pub source: TopicPartition,
    /// On the target.
    pub target: TopicPartition,
    /// Cluster id of the source; empty where it has none.
    pub source_cluster: Arc<str>,
    /// Zero where there is none.
    pub source_topic_id: TopicId,
    /// Zero where there is none.
    pub target_topic_id: TopicId,
    /// For a partition that has no anchor.
    pub fresh_identity: ProducerIdentity,
    /// The durable anchor, if there is one.
    pub anchor: Option<Anchor>,
    /// The target topic's `max.message.bytes`, if known.
    pub target_batch_bytes_max: Option<usize>,
    /// The topic appeared after the flow's first start: it begins at its beginning even under `latest`.
    pub appeared_later: bool,
}

/// Names a batch in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// A batch to send now.
#[derive(Debug)]
pub struct Outbound {
    /// To be given back with the outcome.
    pub ticket: Ticket,
    /// The header to send.
    pub head: [u8; HEADER_LEN],
    /// The whole batch: as fetched, or as encoded anew.
    pub batch: Bytes,
}

/// What became of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProduceOutcome {
    /// The target has it at this offset; `already` if it says that it had it before.
    Stored {
        /// As answered.
        base_offset: i64,
        /// `log_append_time` was set although the topic keeps the producers' times.
        already: bool,
    },
    /// The target answered with an error.
    Failed {
        /// Its code.
        code: ErrorCode,
        /// Its words.
        message: Option<String>,
    },
    /// Nobody knows.
    Unknown,
}

/// From `source_start` on, target offset = source offset + (target_start - source_start).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Break {
    /// First source offset of the run.
    pub source_start: i64,
    /// Its offset on the target.
    pub target_start: i64,
}

/// Why a batch could not go as it was (`batch-forwarding.md` 2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenReason {
    /// Compaction took records out of it.
    Thinned,
    /// It begins before the offset the copy goes on at.
    StartsBefore,
    /// Message format 0 or 1.
    OldFormat,
    /// Consumers see the broker's append time, which is not in the payload.
    LogAppendTime,
    /// It is larger than the target topic takes.
    TooLarge,
}

impl OpenReason {
    /// All of them, in the order of [`Opened`].
    pub const ALL: [Self; 5] =
        [Self::Thinned, Self::StartsBefore, Self::OldFormat, Self::LogAppendTime, Self::TooLarge];

    /// For people.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Thinned => "thinned",
            Self::StartsBefore => "cut at the start",
            Self::OldFormat => "old format",
            Self::LogAppendTime => "log append time",
            Self::TooLarge => "too large",
        }
    }
}

/// Batches and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    /// Batches acknowledged.
    pub batches: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Share {
    /// Adds batches.
    pub fn add(&mut self, batches: u64, bytes: u64) {
        self.batches += batches;
        self.bytes += bytes;
    }
}

/// What went through the open path, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Opened([Share; OpenReason::ALL.len()]);

impl Opened {
    /// The share of one reason.
    #[must_use]
    pub fn of(&self, reason: OpenReason) -> Share {
        self.0[reason as usize]
    }

    /// The share of one reason, to count in.
    pub fn of_mut(&mut self, reason: OpenReason) -> &mut Share {
        &mut self.0[reason as usize]
    }

    /// All of it.
    #[must_use]
    pub fn total(&self) -> Share {
        let mut total = Share::default();
        self.0.iter().for_each(|share| total.add(share.batches, share.bytes));
        total
    }

    /// Adds another count.
    pub fn merge(&mut self, other: &Self) {
        for (share, other) in self.0.iter_mut().zip(&other.0) {
            share.add(other.batches, other.bytes);
        }
    }
}

/// A batch of the target's log and what its records say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TailBatch {
    /// As stored.
    pub header: BatchHeader,
    /// Its records in order.
    pub records: Vec<RecordDigest>,
}

/// Records that were gone from the source before they were copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// First offset.
    pub from: i64,
    /// Offset after the last.
    pub to: i64,
}

/// Counters since the machine was made.
///
/// Laid out as written: what every batch counts comes first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Progress {
    /// Records acknowledged.
    pub records: u64,
    /// Bytes of batches fetched.
    pub bytes_in: u64,
    /// Bytes of batches acknowledged.
    pub bytes_out: u64,
    /// Batches acknowledged, sealed and opened ones.
    pub batches: u64,
    /// Those that were decoded and encoded again.
    pub opened: Opened,
    /// Sealed ones that show the producers' times where the source showed its own (`towpath.log.append.time`).
    pub sealed_append_time: Share,
    /// Batches that compaction had emptied: nothing to copy.
    pub empty_batches: u64,
    /// Control batches, not copied.
    pub control_batches: u64,
    /// Records of aborted transactions, not copied.
    pub aborted_records: u64,
    /// Offsets lost at the source before they were copied.
    pub lost_records: u64,
    /// Offsets that the source lost after they were copied, behind which the copy went on.
    pub truncated_records: u64,
    /// Records of other writers on the target, behind which the copy went on.
    pub foreign_records: u64,
    /// Batches that the target said it had already.
    pub already_there: u64,
    /// Bytes fetched in vain: cut off at the end of an answer, or dropped by a rewind.
    pub bytes_in_vain: u64,
}
