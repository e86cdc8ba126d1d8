//! The states of a partition as people see them, each with its reason and its remedy.

use crate::protocol::{ErrorCode, TopicId};

/// Why a partition stands still until somebody decides or repairs something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopReason {
    /// The batch at this source offset must be opened, and cannot.
    CannotOpen {
        /// Base offset of the batch on the source.
        offset: i64,
        /// What was found.
        why: String,
        /// It would become larger than `towpath.open.max.bytes` allows.
        too_large: bool,
    },
    /// A single record is larger than the target topic takes.
    RecordTooLarge {
        /// Its offset on the source.
        offset: i64,
        /// Size in bytes of a batch with this record alone.
        bytes: usize,
        /// The target topic's `max.message.bytes`, if known.
        limit: Option<usize>,
    },
    /// There is no anchor, and the target partition has records.
    TargetNotEmpty {
        /// First offset there.
        start: i64,
        /// End there.
        end: i64,
    },
    /// The target log is shorter than what was acknowledged.
    TargetTruncated {
        /// Where our records ended.
        expected: i64,
        /// Where the log ends now.
        end: i64,
    },
    /// The target topic is another one than the anchor belongs to.
    TargetRecreated {
        /// Id in the anchor.
        anchored: TopicId,
        /// Id now.
        found: TopicId,
        /// Where our records ended in the former one.
        expected: i64,
    },
    /// The target topic is gone.
    TargetGone,
    /// The remote partition could not be created.
    TargetMissing {
        /// The target's words.
        why: String,
        /// What to do.
        remedy: String,
    },
    /// Somebody else wrote to the remote partition.
    ForeignWrite {
        /// Target offset of the first record that is not ours.
        from: i64,
        /// Offset after the last one.
        to: i64,
        /// How many of the records in between are not ours.
        records: i64,
    },
    /// What the target holds cannot be matched with the source.
    PositionUnknown {
        /// What was found.
        why: String,
    },
    /// The source is another cluster than the one that was copied.
    SourceCluster {
        /// Cluster id in the anchor.
        anchored: String,
        /// Cluster id now.
        found: String,
        /// The source topic's id now.
        topic: TopicId,
        /// How far the former one was copied.
        position: i64,
    },
    /// The source topic is another one than the anchor belongs to.
    SourceRecreated {
        /// Id in the anchor or at the start; zero where topics have no ids.
        anchored: TopicId,
        /// Id now.
        found: TopicId,
        /// How far the former one was copied.
        position: i64,
    },
    /// The source topic is gone.
    SourceGone,
    /// The source log ends before the position of the copy, or has another history there.
    SourceTruncated {
        /// Where the copy stands.
        position: i64,
        /// Where the common history ends.
        end: i64,
    },
    /// Records were gone from the source before they were copied.
    RecordsLost {
        /// The first of them.
        from: i64,
        /// Offset after the last.
        to: i64,
    },
    /// The payload of a batch does not fit its checksum, repeatedly.
    SourceCorrupt {
        /// Base offset of the batch.
        offset: i64,
        /// What was found.
        why: String,
    },
    /// The target refuses the batch at this source offset.
    Refused {
        /// Base offset of the batch on the source.
        offset: i64,
        /// The target's code.
        code: ErrorCode,
        /// The target's own words.
        message: Option<String>,
    },
    /// The source refuses to let us read.
    SourceRefused {
        /// The source's code.
        code: ErrorCode,
    },
    /// Two flows would write the same remote topic.
    TwoWriters {
        /// Which, and what to do.
        why: String,
    },
}

impl StopReason {
    /// The code of [`Self::TargetMissing`].
    pub const TARGET_MISSING: &str = "target-missing";

    /// A short constant name, for metrics and anchors.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::CannotOpen { .. } => "cannot-open",
            Self::RecordTooLarge { .. } => "record-too-large",
            Self::TargetNotEmpty { .. } => "target-not-empty",
            Self::TargetTruncated { .. } => "target-truncated",
            Self::TargetRecreated { .. } => "target-recreated",
            Self::TargetGone => "target-gone",
            Self::TargetMissing { .. } => Self::TARGET_MISSING,
            Self::ForeignWrite { .. } => "foreign-write",
            Self::PositionUnknown { .. } => "position-unknown",
            Self::SourceCluster { .. } => "source-cluster",
            Self::SourceRecreated { .. } => "source-recreated",
            Self::SourceGone => "source-gone",
            Self::SourceTruncated { .. } => "source-truncated",
            Self::RecordsLost { .. } => "records-lost",
            Self::SourceCorrupt { .. } => "source-corrupt",
            Self::Refused { .. } => "refused",
            Self::SourceRefused { .. } => "source-refused",
            Self::TwoWriters { .. } => "two-writers",
        }
    }

    /// Whether the cause may go away by itself or by the operator's hand on a cluster, so that trying again, slowly,
    /// is right. The others wait for a decision.
    #[must_use]
    pub fn is_retried(&self) -> bool {
        matches!(
            self,
            Self::Refused { .. }
                | Self::SourceRefused { .. }
                | Self::SourceCorrupt { .. }
                // A broker that has just started may not know its topics yet.
                | Self::SourceGone
                | Self::TargetGone
                | Self::RecordTooLarge { .. }
        )
    }
}

impl std::fmt::Display for StopReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::CannotOpen { offset, why, .. } => {
                write!(f, "cannot open the batch at source offset {offset}: {why}")
            }
            Self::RecordTooLarge { offset, bytes, limit } => {
                write!(f, "record too large: the one at source offset {offset} makes a batch of {bytes} bytes")?;
                limit.map_or(Ok(()), |limit| write!(f, ", the target topic takes {limit}"))
            }
            Self::TargetNotEmpty { start, end } => write!(
                f,
                "target not empty: offsets {start} to {end} exist there, and nothing says that Towpath wrote them"
            ),
            Self::TargetTruncated { expected, end } => {
                write!(f, "target truncated: it ends at {end}, our records ended at {expected}")
            }
            Self::TargetRecreated { anchored, found, expected } => write!(
                f,
                "target topic re-created: its id is {found}, the copy belongs to {anchored}, which ended at {expected}"
            ),
            Self::TargetGone => f.write_str("target topic gone"),
            Self::TargetMissing { why, .. } => write!(f, "the remote partition does not exist: {why}"),
            Self::ForeignWrite { from, to, records } => {
                let last = to - 1;
                write!(f, "foreign write: {records} records of somebody else at target offsets {from} to {last}")
            }
            Self::PositionUnknown { why } => write!(f, "position unknown: {why}"),
            Self::SourceCluster { anchored, found, position, .. } => write!(
                f,
                "another source cluster: its id is {found}, the copy was made from {anchored}, up to offset {position}"
            ),
            Self::SourceRecreated { anchored, position, .. } if anchored.is_zero() => {
                write!(f, "source topic re-created: what it holds is not what was copied up to offset {position}")
            }
            Self::SourceRecreated { anchored, found, position } => write!(
                f,
                "source topic re-created: its id is {found}, the copy belongs to {anchored}, copied up to offset {position}"
            ),
            Self::SourceGone => f.write_str("source topic gone"),
            Self::SourceTruncated { position, end } => write!(
                f,
                "source truncated: it lost offsets {end} to {} ({} of them), which were copied before",
                position - 1,
                position - end
            ),
            Self::RecordsLost { from, to } => write!(
                f,
                "records lost: source offsets {from} to {} ({} of them) were gone before they were copied",
                to - 1,
                to - from
            ),
            Self::SourceCorrupt { offset, why } => {
                write!(f, "source corrupt at offset {offset}: {why}")
            }
            Self::Refused { offset, code, message } => {
                write!(f, "target refuses the batch at source offset {offset}: {code}")?;
                message.as_ref().map_or(Ok(()), |message| write!(f, " ({message})"))
            }
            Self::SourceRefused { code } => write!(f, "source refuses to be read: {code}"),
            Self::TwoWriters { .. } => f.write_str("two flows would write this remote topic"),
        }
    }
}

/// What a partition is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PartitionState {
    /// Asking both clusters where the copy stands.
    Locating,
    /// The target's log has an end that is not replicated yet.
    AwaitingHighWatermark,
    /// Reading the headers of what the target holds behind the anchor.
    ReadingTail,
    /// Finding the source batches that the target already holds.
    Matching,
    /// The first anchor is being made durable.
    Anchoring,
    /// Records flow.
    Copying,
    /// Records should flow, and have not for a while.
    NotMoving {
        /// What it waits for.
        why: String,
    },
    /// Everything up to the last stable offset is on the target.
    CaughtUp,
    /// Caught up, and an open transaction holds the rest back.
    HeldByTransaction {
        /// The last stable offset of the source.
        last_stable_offset: i64,
        /// The high watermark of the source.
        high_watermark: i64,
    },
    /// The source partition cannot be read just now.
    AwaitingSource {
        /// Why, in words.
        why: String,
    },
    /// The target partition cannot be written just now.
    AwaitingTarget {
        /// Why, in words.
        why: String,
    },
    /// Anchors cannot be committed, and the tail behind the last one has reached its bound.
    AwaitingAnchor,
    /// Old records wait until nothing that was sent before a failure or a restart can still arrive.
    AwaitingStragglers,
    /// Outcomes of requests in flight are awaited before asking the target what it holds.
    Settling,
    /// Handing over to another worker, or stopping.
    Draining,
    /// Stands until somebody decides or repairs something.
    Stopped(StopReason),
}

impl PartitionState {
    /// A short constant name, for metrics, anchors and status.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Locating => "locating",
            Self::AwaitingHighWatermark => "awaiting-high-watermark",
            Self::ReadingTail => "reading-tail",
            Self::Matching => "matching",
            Self::Anchoring => "anchoring",
            Self::Copying => "copying",
            Self::NotMoving { .. } => "not-moving",
            Self::CaughtUp => "caught-up",
            Self::HeldByTransaction { .. } => "held-by-transaction",
            Self::AwaitingSource { .. } => "awaiting-source",
            Self::AwaitingTarget { .. } => "awaiting-target",
            Self::AwaitingAnchor => "awaiting-anchor",
            Self::AwaitingStragglers => "awaiting-stragglers",
            Self::Settling => "settling",
            Self::Draining => "draining",
            Self::Stopped(reason) => reason.code(),
        }
    }

    /// What it waits for, in words, where the code alone does not tell.
    #[must_use]
    pub fn waits(&self) -> Option<String> {
        match self {
            Self::AwaitingSource { why } | Self::AwaitingTarget { why } | Self::NotMoving { why } => Some(why.clone()),
            Self::HeldByTransaction { .. } => Some(self.to_string()),
            _ => None,
        }
    }

    /// Whether it belongs to the ordinary course of copying, which status need not single out.
    #[must_use]
    pub fn is_ordinary(&self) -> bool {
        matches!(self, Self::Copying | Self::CaughtUp)
    }
}

impl std::fmt::Display for PartitionState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::HeldByTransaction { last_stable_offset, high_watermark } => write!(
                f,
                "held by an open transaction: stands at the last stable offset {last_stable_offset}, \
                 the source's high watermark is {high_watermark}"
            ),
            Self::AwaitingSource { why } => write!(f, "awaiting the source: {why}"),
            Self::AwaitingTarget { why } => write!(f, "awaiting the target: {why}"),
            Self::NotMoving { why } => write!(f, "not moving: waits for {why}"),
            Self::Stopped(reason) => reason.fmt(f),
            other => f.write_str(&other.code().replace('-', " ")),
        }
    }
}
