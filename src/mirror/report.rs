//! What workers and the control thread tell each other about partitions.

use std::{
    collections::HashMap,
    hash::BuildHasherDefault,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::oneshot, time::Instant};

use super::{
    anchor::Record,
    decision::Decision,
    partition::{Break, Lost, OpenReason, PartitionSpec, PartitionState, Progress, StopReason},
};
use crate::{
    protocol::{NumberHasher, TopicPartition},
    simulation::{self, Planted},
};

/// One copied partition of a flow, numbered by the control thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct CopyId(pub(crate) u32);

/// A map by [`CopyId`], asked twice for each batch. The ids are ours and count up: a product spreads them well enough.
/// Its order means nothing.
pub(crate) type CopyMap<T> = HashMap<CopyId, T, BuildHasherDefault<NumberHasher>>;

/// From the control thread to a worker's shard of a flow.
#[derive(Debug)]
pub(crate) enum Command {
    /// Copy these from now on. With a reason, only show it.
    Assign(Vec<(CopyId, PartitionSpec, Option<StopReason>)>),
    /// Stop these: settle what is in flight, offer last anchors, then say so.
    Revoke { copies: Vec<CopyId>, done: oneshot::Sender<()> },
    /// What was decided about partitions that stand. The answer names those that stood for that, and go on now.
    Decide { decisions: Vec<(CopyId, Decision)>, done: oneshot::Sender<Vec<CopyId>> },
    /// The target topics' `max.message.bytes` as they are now, where they changed.
    Limits(Vec<(CopyId, Option<usize>)>),
    /// What became of offered anchors.
    Anchored(Vec<AnchorOutcome>),
}

/// An anchor to be committed, with the breaks that must be written first.
#[derive(Debug, Clone)]
pub(crate) struct AnchorOffer {
    pub(crate) copy: CopyId,
    pub(crate) source: TopicPartition,
    pub(crate) target: TopicPartition,
    pub(crate) record: Record,
    pub(crate) breaks: Vec<Break>,
    pub(crate) tail_bytes: u64,
}

/// What became of an offer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnchorOutcome {
    pub(crate) copy: CopyId,
    /// As offered, if it is durable.
    pub(crate) durable: Option<(usize, u64)>,
}

/// From a worker's shard to the control thread.
#[derive(Debug)]
pub(crate) enum Report {
    /// Please commit.
    Anchors(Vec<AnchorOffer>),
    /// Partitions whose state or counters changed.
    Partitions(Vec<(CopyId, PartitionReport)>),
    /// Leaders should be learnt anew.
    RefreshSource,
    /// Leaders should be learnt anew.
    RefreshTarget,
}

/// One partition as seen from outside.
#[derive(Debug, Clone)]
pub struct PartitionReport {
    /// What it is doing.
    pub state: PartitionState,
    /// Since when, in milliseconds of the time of day.
    pub since_ms: i64,
    /// Since when it has not moved although it should have, if that was long enough to be told.
    pub not_moving_since_ms: Option<i64>,
    /// Both clusters were asked, so that offsets and lag are known.
    pub located: bool,
    /// Next source offset to copy.
    pub source_next: i64,
    /// Offsets between it and the source's end.
    pub lag: i64,
    /// Timestamp in milliseconds of the newest record copied; -1 if none.
    pub newest_timestamp: i64,
    /// Counters.
    pub progress: Progress,
    /// Losses at the source, oldest first, the first few.
    pub losses: Vec<Lost>,
    /// The end of the source as seen at the start is copied.
    pub reached_goal: bool,
}

/// Sums over the partitions of a flow.
#[derive(Debug, Clone, Copy, Default)]
pub struct Totals {
    /// Partitions of this worker.
    pub partitions: usize,
    /// Those that stand for a reason.
    pub stopped: usize,
    /// Those that have everything up to the last stable offset.
    pub caught_up: usize,
    /// Those with another state than copying or caught up.
    pub other: usize,
    /// Sum of lags in records.
    pub lag: i64,
    /// Age in milliseconds of the newest record of the partition that is furthest behind, among those with lag.
    pub lag_ms: i64,
    /// Sums of counters.
    pub progress: Progress,
}

/// A flow as seen from outside.
#[derive(Debug, Clone)]
pub struct FlowReport {
    /// `source->target`.
    pub name: String,
    /// What the flow itself is doing.
    pub state: String,
    /// Sums.
    pub totals: Totals,
    /// Up to a handful of partitions whose state is not ordinary.
    pub notable: Vec<(String, PartitionState)>,
    /// Up to a handful of partitions that are copying, the one that lags most first.
    pub furthest: Vec<Behind>,
}

impl FlowReport {
    /// The share of bytes that were forwarded without opening their batches, in words.
    #[must_use]
    pub fn sealed_share(&self) -> String {
        let progress = &self.totals.progress;
        let opened = progress.opened.total();
        share(progress.bytes_out.saturating_sub(opened.bytes), progress.bytes_out, opened.batches > 0)
    }
}

/// How far a partition is behind its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Behind {
    /// Topic and partition at the source.
    pub partition: String,
    /// Offsets between it and the source's end.
    pub lag: i64,
    /// Age in milliseconds of the newest record copied; `None` before the first.
    pub lag_ms: Option<i64>,
}

/// What a [`Watcher`] does with a report for each flow, in the order of the configuration.
pub type Tell = Box<dyn FnMut(&[FlowReport])>;

/// Is told of all flows once in a while, on the control thread: a screen, a line in the log.
pub struct Watcher {
    /// The time between two calls.
    pub interval: Duration,
    /// Called each time.
    pub tell: Tell,
}

/// A share of bytes in per cent, to a tenth. If there is a rest, however small, it does not read as all.
fn share(part: u64, all: u64, has_rest: bool) -> String {
    if all == 0 && !has_rest {
        return "-".to_owned();
    }
    if !has_rest {
        return "100 %".to_owned();
    }
    #[expect(clippy::cast_precision_loss, reason = "a share for people")]
    let share = 100.0 * part as f64 / all.max(1) as f64;
    format!("{} %", ((share * 10.0).round() / 10.0).min(99.9))
}

/// What part of the copied bytes went sealed, and why the rest did not.
pub(crate) struct Sealed<'a>(pub(crate) &'a Progress);

impl std::fmt::Display for Sealed<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let progress = self.0;
        let opened = progress.opened.total();
        f.write_str(&share(progress.bytes_out.saturating_sub(opened.bytes), progress.bytes_out, opened.batches > 0))?;
        for reason in OpenReason::ALL {
            let one = progress.opened.of(reason);
            if one.batches > 0 {
                write!(f, ", {} opened ({} batches)", reason.word(), one.batches)?;
            }
        }
        let stamped = progress.sealed_append_time;
        if stamped.batches > 0 {
            let share = share(stamped.bytes, progress.bytes_out, stamped.bytes < progress.bytes_out);
            write!(f, ", {share} with producers' times")?;
        }
        Ok(())
    }
}

/// Until when produce requests may be sent: the one value that the control thread and workers share while batches
/// move. Read once per produce request.
#[derive(Debug, Clone)]
pub(crate) struct LeaseClock {
    base: Instant,
    until_micros: Arc<AtomicU64>,
}

impl LeaseClock {
    /// A clock that allows nothing yet.
    pub(crate) fn new(base: Instant) -> Self {
        Self { base, until_micros: Arc::new(AtomicU64::new(0)) }
    }

    /// Sets the instant; `None` allows nothing from now on.
    pub(crate) fn set(&self, until: Option<Instant>) {
        let micros = until.map_or(0, |until| {
            let since = until.saturating_duration_since(self.base);
            u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
        });
        self.until_micros.store(micros, Ordering::Release);
    }

    /// Whether a request may be sent at `now`.
    pub(crate) fn allows(&self, now: Instant) -> bool {
        if simulation::has(Planted::LeaseIgnored) {
            return true;
        }
        let until = Duration::from_micros(self.until_micros.load(Ordering::Acquire));
        now.saturating_duration_since(self.base) < until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(bytes_out: u64, count: impl FnOnce(&mut Progress)) -> String {
        let mut progress = Progress { bytes_out, ..Progress::default() };
        count(&mut progress);
        Sealed(&progress).to_string()
    }

    #[test]
    fn the_sealed_share_names_what_was_opened_and_why() {
        assert_eq!(said(0, |_| {}), "-", "nothing was copied, which is no share");
        assert_eq!(said(1000, |_| {}), "100 %");
        assert_eq!(
            said(1000, |progress| progress.opened.of_mut(OpenReason::Thinned).add(3, 255)),
            "74.5 %, thinned opened (3 batches)"
        );
        assert_eq!(
            said(1_000_000, |progress| progress.opened.of_mut(OpenReason::TooLarge).add(1, 1)),
            "99.9 %, too large opened (1 batches)",
            "a little is not nothing"
        );
        assert_eq!(said(1000, |progress| progress.sealed_append_time.add(2, 500)), "100 %, 50 % with producers' times");
    }
}
