//! The machine's data, its getters, and the way of a batch from queue to acknowledgement.

use std::{collections::VecDeque, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    locate::Expected,
    state::{PartitionState, StopReason},
};
use crate::{
    backoff::Backoff,
    batch::{HEADER_LEN, ProducerIdentity},
    client::recovery::{FetchStep, ProduceStep, fetch_step, produce_step},
    mirror::{
        anchor::{Anchor, Position, Shape},
        budget::FrameHold,
    },
    protocol::{ErrorCode, LeaderEpoch, TopicId, TopicPartition},
};

/// Breaks that wait for an anchor; a topic of tiny transactions makes one in every transaction.
const BREAKS_MAX: usize = 10_000;
/// Losses that are remembered one by one; the counter goes on.
pub(super) const LOSSES_MAX: usize = 16;

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

/// What all partitions of a flow share.
#[derive(Debug, Clone)]
pub struct PartitionSettings {
    /// See [`StartAt`].
    pub start: StartAt,
    /// See [`TargetNotEmpty`].
    pub target_not_empty: TargetNotEmpty,
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
}

/// Which partition this is.
#[derive(Debug, Clone)]
pub struct PartitionSpec {
    /// On the source.
    pub source: TopicPartition,
    /// On the target.
    pub target: TopicPartition,
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
    /// The whole batch as fetched.
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

/// Records that were gone from the source before they were copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// First offset.
    pub from: i64,
    /// Offset after the last.
    pub to: i64,
}

/// Counters since the machine was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Records acknowledged.
    pub records: u64,
    /// Bytes of batches fetched.
    pub bytes_in: u64,
    /// Bytes of batches acknowledged.
    pub bytes_out: u64,
    /// Batches acknowledged, all of them forwarded sealed.
    pub batches: u64,
    /// Control batches, not copied.
    pub control_batches: u64,
    /// Records of aborted transactions, not copied.
    pub aborted_records: u64,
    /// Records lost at the source before they were copied.
    pub lost_records: u64,
    /// Batches that the target said it had already.
    pub already_there: u64,
    /// Bytes fetched in vain: cut off at the end of an answer, or dropped by a rewind.
    pub bytes_in_vain: u64,
}

#[derive(Debug)]
pub(super) struct Queued {
    pub(super) source_base: i64,
    pub(super) before: Position,
    pub(super) after: Position,
    pub(super) records: i32,
    pub(super) head: [u8; HEADER_LEN],
    pub(super) batch: Bytes,
    pub(super) max_timestamp: i64,
    pub(super) leader_epoch: LeaderEpoch,
    pub(super) hold: Option<FrameHold>,
}

#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) ticket: Ticket,
    pub(super) source_base: i64,
    pub(super) before: Position,
    pub(super) after: Position,
    pub(super) records: i32,
    pub(super) bytes: usize,
    pub(super) crc: u32,
    pub(super) max_timestamp: i64,
    pub(super) leader_epoch: LeaderEpoch,
    /// The answer came and was not a plain success.
    pub(super) settled: bool,
    pub(super) _hold: Option<FrameHold>,
}

#[derive(Debug)]
pub(super) enum Phase {
    /// Waits until `not_before`, then for the answer to a look-up.
    Locating {
        not_before: Instant,
        asked: bool,
        awaiting_high_watermark: bool,
    },
    /// The target holds something behind the position that sums do not explain.
    ReadingTail {
        from: i64,
        to: i64,
        asked: bool,
        not_before: Instant,
    },
    /// Source batches are compared with what the target holds.
    Matching {
        expected: Expected,
    },
    /// Waits for the first anchor.
    Anchoring,
    Copying,
    /// Waits for the outcomes of what is in flight.
    Settling {
        refused: Option<(Ticket, ErrorCode, Option<String>)>,
    },
    Stopped {
        reason: StopReason,
        retry_at: Option<Instant>,
    },
}

/// Replicates one partition. Owns no socket and no timer.
#[derive(Debug)]
pub struct PartitionMachine {
    pub(super) settings: std::rc::Rc<PartitionSettings>,
    pub(super) spec: PartitionSpec,
    pub(super) identity: ProducerIdentity,
    pub(super) phase: Phase,
    /// Everything before it is on the target. Meaningful once `located`.
    pub(super) acked: Position,
    /// Behind the last queued batch.
    pub(super) prepared: Position,
    /// Leader epochs of the last batch acknowledged and the last one taken.
    pub(super) acked_epoch: LeaderEpoch,
    pub(super) taken_epoch: LeaderEpoch,
    /// `acked` was established in this incarnation: it is a better base than the anchor.
    pub(super) located: bool,
    /// An anchor with this identity is durable.
    anchored: bool,
    pub(super) queue: VecDeque<Queued>,
    pub(super) queue_bytes: usize,
    pub(super) in_flight: VecDeque<InFlight>,
    next_ticket: u64,
    /// A batch was acknowledged since the last look-up: the broker has our producer state.
    pub(super) confirmed: bool,
    pub(super) backoff: Backoff,
    /// The source must not be asked before.
    hold: Option<(Instant, String)>,
    fetch_backoff: Backoff,
    pub(super) ask_source: bool,
    /// A batch that needs the open path stands here; what comes before it is still copied.
    pub(super) blocked: Option<StopReason>,
    pub(super) corrupt_attempts: u32,
    /// `target - source` of the current run, once a batch was acknowledged.
    run: Option<i64>,
    breaks: Vec<Break>,
    tail_bytes: u64,
    anchor_dirty: bool,
    draining: bool,
    source_gone: Option<String>,
    target_gone: Option<String>,
    pub(super) high_watermark: i64,
    pub(super) last_stable_offset: i64,
    pub(super) newest_timestamp: i64,
    /// The last stable offset as seen when the partition was first located.
    pub(super) goal: Option<i64>,
    /// While matching: when to look whether the source has anything left to match.
    pub(super) match_until: Option<Instant>,
    pub(super) progress: Progress,
    pub(super) losses: Vec<Lost>,
    pub(super) partition_bytes_max: i32,
    pub(super) partition_bytes_first: i32,
}

impl PartitionMachine {
    /// A partition that knows nothing yet but its anchor. `seed` is for jitter; `partition_bytes` the first limit of
    /// one fetch in bytes.
    #[must_use]
    pub fn new(
        settings: std::rc::Rc<PartitionSettings>,
        spec: PartitionSpec,
        partition_bytes: i32,
        seed: u64,
        now: Instant,
    ) -> Self {
        let start = Position {
            source_next: 0,
            target_next: 0,
            next_sequence: 0,
        };
        let (identity, position, epoch) = match &spec.anchor {
            Some(anchor) => (anchor.identity, anchor.position, anchor.leader_epoch),
            None => (spec.fresh_identity, start, LeaderEpoch::NONE),
        };
        let anchored = spec.anchor.is_some();
        let phase = match recreated(&spec) {
            Some(reason) => Phase::Stopped {
                reason,
                retry_at: None,
            },
            None => Phase::Locating {
                not_before: now,
                asked: false,
                awaiting_high_watermark: false,
            },
        };
        Self {
            settings,
            spec,
            identity,
            phase,
            acked: position,
            prepared: position,
            acked_epoch: epoch,
            taken_epoch: epoch,
            located: false,
            anchored,
            queue: VecDeque::new(),
            queue_bytes: 0,
            in_flight: VecDeque::new(),
            next_ticket: 0,
            confirmed: false,
            backoff: Backoff::new(Duration::from_millis(50), Duration::from_secs(5), seed),
            hold: None,
            fetch_backoff: Backoff::new(
                Duration::from_millis(50),
                Duration::from_secs(5),
                seed.rotate_left(17),
            ),
            ask_source: false,
            blocked: None,
            corrupt_attempts: 0,
            run: None,
            breaks: Vec::new(),
            tail_bytes: 0,
            anchor_dirty: false,
            draining: false,
            source_gone: None,
            target_gone: None,
            high_watermark: -1,
            last_stable_offset: -1,
            newest_timestamp: -1,
            goal: None,
            match_until: None,
            progress: Progress::default(),
            losses: Vec::new(),
            partition_bytes_max: partition_bytes,
            partition_bytes_first: partition_bytes,
        }
    }

    /// A partition that stands from the beginning, for a reason known before it was looked at.
    #[must_use]
    pub fn stopped(
        settings: std::rc::Rc<PartitionSettings>,
        spec: PartitionSpec,
        reason: StopReason,
        now: Instant,
    ) -> Self {
        let mut machine = Self::new(settings, spec, 1, 1, now);
        machine.phase = Phase::Stopped {
            reason,
            retry_at: None,
        };
        machine
    }

    // ---- what is wanted -------------------------------------------------------------------------------------------

    /// The next source offset to fetch, the leader epoch of the batch before it and the limit in bytes; `None` while
    /// the partition must not be in a fetch session. `queue_bytes_max` bounds what may wait for sending.
    #[must_use]
    pub fn fetch_want(
        &self,
        now: Instant,
        queue_bytes_max: usize,
    ) -> Option<(i64, LeaderEpoch, i32)> {
        let flowing = matches!(
            self.phase,
            Phase::Matching { .. } | Phase::Anchoring | Phase::Copying
        );
        let held = self.hold.as_ref().is_some_and(|(until, _)| *until > now);
        if !flowing
            || held
            || self.ask_source
            || self.blocked.is_some()
            || self.draining
            || self.source_gone.is_some()
        {
            return None;
        }
        if self.is_queue_full(queue_bytes_max) {
            return None;
        }
        Some((
            self.prepared.source_next,
            self.taken_epoch,
            self.partition_bytes_max,
        ))
    }

    /// Whether so much waits for sending that nothing more should be fetched. Two batches always may wait, whatever
    /// their size: one that is being fetched while the other one is being sent.
    #[must_use]
    pub fn is_queue_full(&self, queue_bytes_max: usize) -> bool {
        self.queue_bytes >= queue_bytes_max && self.queue.len() >= 2
    }

    /// Whether a batch may be sent now. `wall_ms` is the time of day in milliseconds.
    #[must_use]
    pub fn can_send(&self, wall_ms: i64) -> bool {
        if !matches!(self.phase, Phase::Copying)
            || self.draining
            || self.target_gone.is_some()
            || self.tail_is_full()
        {
            return false;
        }
        let Some(next) = self.queue.front() else {
            return false;
        };
        let old =
            |timestamp: i64| wall_ms.saturating_sub(timestamp) > age_ms(self.settings.old_age);
        // (F) The broker orders a window only while it has our producer state, which it drops by the age of the
        // newest record (`broker-experiments.md` section 0.2).
        let window = if !self.confirmed
            || old(next.max_timestamp)
            || self
                .in_flight
                .back()
                .is_some_and(|last| old(last.max_timestamp))
        {
            1
        } else {
            self.settings.window_max
        };
        self.in_flight.len() < window
    }

    fn tail_is_full(&self) -> bool {
        self.tail_bytes >= self.settings.tail_bytes_max || self.breaks.len() >= BREAKS_MAX
    }

    /// Moves the next batch into flight; `None` if [`Self::can_send`] says no. The outcome must come back through
    /// [`Self::handle_produced`] or [`Self::handle_lane_lost`].
    pub fn take_batch(&mut self, wall_ms: i64) -> Option<Outbound> {
        if !self.can_send(wall_ms) {
            return None;
        }
        let next = self.queue.pop_front()?;
        self.queue_bytes = self.queue_bytes.saturating_sub(next.batch.len());
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let crc = crc_of(&next.head);
        self.in_flight.push_back(InFlight {
            ticket,
            source_base: next.source_base,
            before: next.before,
            after: next.after,
            records: next.records,
            bytes: next.batch.len(),
            crc,
            max_timestamp: next.max_timestamp,
            leader_epoch: next.leader_epoch,
            settled: false,
            _hold: next.hold,
        });
        Some(Outbound {
            ticket,
            head: next.head,
            batch: next.batch,
        })
    }

    /// Size in bytes of the batch that [`Self::take_batch`] would give.
    #[must_use]
    pub fn next_batch_bytes(&self) -> usize {
        self.queue.front().map_or(0, |next| next.batch.len())
    }

    /// Whether batches are queued or in flight.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.in_flight.is_empty()
    }

    /// Whether outcomes are awaited: the partition must stay on its lane.
    #[must_use]
    pub fn has_in_flight(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// When [`Self::handle_timeout`] wants to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let phase = match &self.phase {
            Phase::Locating {
                not_before,
                asked: false,
                ..
            }
            | Phase::ReadingTail {
                not_before,
                asked: false,
                ..
            } => Some(*not_before),
            Phase::Stopped { retry_at, .. } => *retry_at,
            _ => None,
        };
        let hold = self.hold.as_ref().map(|(until, _)| *until);
        [phase, hold, self.match_until].into_iter().flatten().min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.hold.as_ref().is_some_and(|(until, _)| *until <= now) {
            self.hold = None;
        }
        if self.match_until.is_some_and(|until| until <= now) {
            self.handle_match_timeout(now);
        }
        if let Phase::Stopped {
            retry_at: Some(at), ..
        } = &self.phase
            && *at <= now
        {
            self.blocked = None;
            self.corrupt_attempts = 0;
            self.relocate(now);
        }
    }

    // ---- acknowledgements -----------------------------------------------------------------------------------------

    /// The outcome of a batch in flight. Returns whether the leaders should be learnt anew.
    pub fn handle_produced(
        &mut self,
        now: Instant,
        ticket: Ticket,
        outcome: ProduceOutcome,
    ) -> bool {
        let Some(index) = self
            .in_flight
            .iter()
            .position(|batch| batch.ticket == ticket)
        else {
            // Forgotten by a reconcile that came before this answer; what it says was learnt there.
            return false;
        };
        let mut refresh = false;
        match outcome {
            ProduceOutcome::Stored {
                base_offset,
                already,
            } if index == 0
                && self
                    .in_flight
                    .front()
                    .is_some_and(|batch| batch.before.target_next == base_offset) =>
            {
                self.acknowledge_first(already);
                self.backoff.reset();
            }
            ProduceOutcome::Stored { .. } | ProduceOutcome::Unknown => self.unsettle(index, None),
            ProduceOutcome::Failed { code, message } => match produce_step(code) {
                ProduceStep::Reconcile { refresh: wanted } => {
                    refresh = wanted;
                    self.unsettle(index, None);
                }
                ProduceStep::Refuse => self.unsettle(index, Some((ticket, code, message))),
            },
        }
        self.settle_if_complete(now);
        refresh
    }

    /// The connection that carried what is in flight is gone.
    pub fn handle_lane_lost(&mut self, now: Instant) {
        // A new connection begins with a window of one, whatever was confirmed on the old one.
        self.confirmed = false;
        if self.in_flight.is_empty() {
            return;
        }
        for batch in &mut self.in_flight {
            batch.settled = true;
        }
        self.unsettle(0, None);
        self.settle_if_complete(now);
    }

    /// Another broker leads the target partition now, or the same one anew.
    pub fn handle_target_leader_changed(&mut self, now: Instant) {
        match self.phase {
            // Answers of the former leader still come, or its connection breaks; both end the settling.
            Phase::Copying if !self.in_flight.is_empty() => {
                self.phase = Phase::Settling { refused: None }
            }
            Phase::Copying | Phase::Matching { .. } => self.relocate(now),
            _ => {}
        }
    }

    /// (C) The oldest batch in flight is stored where it was expected.
    pub(super) fn acknowledge_first(&mut self, already: bool) {
        let Some(batch) = self.in_flight.pop_front() else {
            return;
        };
        self.count_run(batch.source_base, batch.before.target_next);
        self.acked = batch.after;
        self.acked_epoch = batch.leader_epoch;
        self.confirmed = true;
        self.tail_bytes = self.tail_bytes.saturating_add(batch.bytes as u64);
        self.anchor_dirty = true;
        self.progress.records += u64::try_from(batch.records).unwrap_or(0);
        self.progress.bytes_out += batch.bytes as u64;
        self.progress.batches += 1;
        self.progress.already_there += u64::from(already);
        self.newest_timestamp = self.newest_timestamp.max(batch.max_timestamp);
    }

    /// Notes a break where the distance between both logs changes (`design.md` 5).
    pub(super) fn count_run(&mut self, source_base: i64, target_base: i64) {
        let distance = target_base.wrapping_sub(source_base);
        if self.run != Some(distance) {
            self.run = Some(distance);
            self.breaks.push(Break {
                source_start: source_base,
                target_start: target_base,
            });
        }
    }

    fn unsettle(&mut self, index: usize, refusal: Option<(Ticket, ErrorCode, Option<String>)>) {
        if let Some(batch) = self.in_flight.get_mut(index) {
            batch.settled = true;
        }
        match &mut self.phase {
            Phase::Settling { refused } => {
                if refused.is_none() {
                    *refused = refusal;
                }
            }
            Phase::Stopped { .. } => {}
            phase => *phase = Phase::Settling { refused: refusal },
        }
    }

    fn settle_if_complete(&mut self, now: Instant) {
        let Phase::Settling { refused } = &mut self.phase else {
            return;
        };
        if self.in_flight.iter().any(|batch| !batch.settled) {
            return;
        }
        // A refusal counts only if it is the first thing that went wrong: a later batch is refused for many reasons
        // once one before it failed.
        let first = self
            .in_flight
            .front()
            .map(|batch| (batch.ticket, batch.source_base));
        if let (Some((ticket, code, message)), Some((first, offset))) = (refused.take(), first)
            && ticket == first
        {
            let message = message.filter(|text| !text.is_empty());
            self.stop(
                now,
                StopReason::Refused {
                    offset,
                    code,
                    message,
                },
            );
            return;
        }
        self.relocate(now);
    }

    /// (D) Everything queued is dropped and the target is asked; what is in flight is kept as a list of what may be
    /// found there.
    pub(super) fn relocate(&mut self, now: Instant) {
        self.drop_queue();
        self.confirmed = false;
        self.blocked = None;
        // The first failure asks at once, since most are over by then; a failure after it waits.
        let first = self.backoff.attempt() == 0;
        let delay = self.backoff.next_delay();
        let not_before = if first { now } else { now + delay };
        self.phase = Phase::Locating {
            not_before,
            asked: false,
            awaiting_high_watermark: false,
        };
    }

    pub(super) fn drop_queue(&mut self) {
        self.progress.bytes_in_vain += self.queue_bytes as u64;
        self.queue.clear();
        self.queue_bytes = 0;
    }

    /// Stands still, visibly. What was queued is dropped; the position stays.
    pub(super) fn stop(&mut self, now: Instant, reason: StopReason) {
        self.drop_queue();
        let retry_at = reason
            .is_retried()
            .then(|| now + self.settings.stopped_retry);
        self.phase = Phase::Stopped { reason, retry_at };
        self.anchor_dirty = true;
    }

    // ---- the source -----------------------------------------------------------------------------------------------

    /// The source answered a fetch of this partition with an error. Returns whether the leaders should be learnt
    /// anew.
    pub fn handle_fetch_error(&mut self, now: Instant, code: ErrorCode) -> bool {
        if !matches!(
            self.phase,
            Phase::Matching { .. } | Phase::Anchoring | Phase::Copying
        ) {
            return false;
        }
        match fetch_step(code) {
            FetchStep::AskEnds => {
                self.ask_source = true;
                self.delay_fetch(now, "its offset is out of range there");
                false
            }
            FetchStep::GiveUp => {
                if code == ErrorCode::CORRUPT_MESSAGE {
                    let why = "the broker says its log is corrupt".to_owned();
                    self.stop_behind_queue(
                        now,
                        StopReason::SourceCorrupt {
                            offset: self.prepared.source_next,
                            why,
                        },
                    );
                } else {
                    self.stop_behind_queue(now, StopReason::SourceRefused { code });
                }
                false
            }
            FetchStep::Retry => {
                self.delay_fetch(now, &code.to_string());
                false
            }
            FetchStep::RefreshMetadata | FetchStep::CheckTopic => {
                self.delay_fetch(now, &code.to_string());
                true
            }
        }
    }

    /// The source could not be asked for this partition for a while (its broker is gone).
    pub fn delay_fetch(&mut self, now: Instant, why: &str) {
        let delay = self.fetch_backoff.next_delay();
        self.hold = Some((now + delay, why.to_owned()));
    }

    pub(super) fn fetch_succeeded(&mut self) {
        self.fetch_backoff.reset();
        self.hold = None;
    }

    /// What is queued is still copied, then the partition stands.
    pub(super) fn stop_behind_queue(&mut self, now: Instant, reason: StopReason) {
        if self.is_empty() {
            self.stop(now, reason);
        } else {
            self.blocked = Some(reason);
        }
    }

    /// Turns a block into a stop once everything before it is copied. Called by the driver after each event.
    pub fn handle_quiet(&mut self, now: Instant) {
        if self.is_empty()
            && matches!(self.phase, Phase::Copying | Phase::Anchoring)
            && let Some(reason) = self.blocked.take()
        {
            self.stop(now, reason);
        }
    }

    /// The topics as now known: an id that changed means another topic of the same name.
    pub fn handle_topics(
        &mut self,
        now: Instant,
        source: Option<TopicId>,
        target: Option<TopicId>,
    ) {
        if matches!(self.phase, Phase::Stopped { .. }) {
            return;
        }
        match source {
            None => self.stop(now, StopReason::SourceGone),
            Some(id) if differs(self.spec.source_topic_id, id) => {
                let reason = StopReason::SourceRecreated {
                    anchored: self.spec.source_topic_id,
                    found: Some(id),
                };
                self.stop(now, reason);
            }
            Some(_) => {}
        }
        match target {
            None => self.stop(now, StopReason::TargetGone),
            Some(id) if differs(self.spec.target_topic_id, id) => {
                let reason = StopReason::TargetRecreated {
                    anchored: self.spec.target_topic_id,
                    found: id,
                };
                self.stop(now, reason);
            }
            Some(_) => {}
        }
    }

    /// Who can be reached: `None` for a side that can, else why not. Only shown; retries go on elsewhere.
    pub fn handle_reach(&mut self, source: Option<String>, target: Option<String>) {
        self.source_gone = source;
        self.target_gone = target;
    }

    // ---- anchors --------------------------------------------------------------------------------------------------

    /// The anchor that describes everything acknowledged, and the breaks before it, which must be written first.
    /// `None` before the partition is located.
    #[must_use]
    pub fn anchor(&self) -> Option<(Anchor, &[Break])> {
        if !self.located {
            return None;
        }
        let anchor = Anchor {
            position: self.acked,
            source_topic_id: self.spec.source_topic_id,
            target_topic_id: self.spec.target_topic_id,
            leader_epoch: self.acked_epoch,
            identity: self.identity,
            shape: self.settings.shape,
            state: self.state().code().to_owned(),
        };
        Some((anchor, &self.breaks))
    }

    /// Whether an anchor should be committed: something was acknowledged since the last one, or the first is due.
    #[must_use]
    pub fn wants_anchor(&self) -> bool {
        self.located && (self.anchor_dirty || matches!(self.phase, Phase::Anchoring))
    }

    /// Whether nothing moves before an anchor is durable.
    #[must_use]
    pub fn wants_anchor_now(&self) -> bool {
        matches!(self.phase, Phase::Anchoring) || self.tail_is_full()
    }

    pub(super) fn mark_anchor(&mut self) {
        self.anchor_dirty = true;
    }

    /// Bytes acknowledged since the last durable anchor.
    #[must_use]
    pub fn tail_bytes(&self) -> u64 {
        self.tail_bytes
    }

    /// Handed out for committing: what is acknowledged from here on makes another one due. `breaks` of it were taken
    /// along.
    pub fn anchor_taken(&mut self) -> usize {
        self.anchor_dirty = false;
        self.breaks.len()
    }

    /// An anchor handed out is durable; `breaks` and `tail_bytes` as they were when it was taken.
    pub fn handle_anchored(&mut self, breaks: usize, tail_bytes: u64) {
        self.breaks.drain(..breaks.min(self.breaks.len()));
        self.tail_bytes = self.tail_bytes.saturating_sub(tail_bytes);
        self.anchored = true;
        if matches!(self.phase, Phase::Anchoring) {
            self.phase = Phase::Copying;
        }
    }

    /// An anchor handed out could not be committed.
    pub fn handle_anchor_failed(&mut self) {
        self.anchor_dirty = true;
    }

    // ---- the rest -------------------------------------------------------------------------------------------------

    /// Takes no more: what is in flight settles, what is queued is dropped.
    pub fn drain(&mut self) {
        self.draining = true;
        self.drop_queue();
        // A rewind to what was acknowledged; the incarnation after this one begins there.
        self.prepared = self.in_flight.back().map_or(self.acked, |last| last.after);
    }

    /// Whether a drain is over.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.draining && self.in_flight.is_empty()
    }

    /// Located, and (B) either anchored already or about to be.
    pub(super) fn begin_copying(&mut self, position: Position, epoch: LeaderEpoch) {
        self.drop_queue();
        self.in_flight.clear();
        self.acked = position;
        self.prepared = position;
        self.acked_epoch = epoch;
        self.taken_epoch = epoch;
        self.located = true;
        self.confirmed = false;
        self.phase = if self.anchored {
            Phase::Copying
        } else {
            Phase::Anchoring
        };
    }

    /// What to show.
    #[must_use]
    pub fn state(&self) -> PartitionState {
        if let Phase::Stopped { reason, .. } = &self.phase {
            return PartitionState::Stopped(reason.clone());
        }
        if self.draining {
            return PartitionState::Draining;
        }
        if let Some(why) = &self.target_gone {
            return PartitionState::AwaitingTarget { why: why.clone() };
        }
        match &self.phase {
            Phase::Locating {
                awaiting_high_watermark: true,
                ..
            } => PartitionState::AwaitingHighWatermark,
            Phase::Locating { .. } => PartitionState::Locating,
            Phase::ReadingTail { .. } => PartitionState::ReadingTail,
            Phase::Settling { .. } => PartitionState::Settling,
            Phase::Matching { .. } => self.source_trouble().unwrap_or(PartitionState::Matching),
            Phase::Anchoring => PartitionState::Anchoring,
            Phase::Copying if self.tail_is_full() => PartitionState::AwaitingAnchor,
            Phase::Copying => self
                .source_trouble()
                .unwrap_or_else(|| self.copying_state()),
            Phase::Stopped { reason, .. } => PartitionState::Stopped(reason.clone()),
        }
    }

    fn source_trouble(&self) -> Option<PartitionState> {
        let why = self
            .source_gone
            .as_ref()
            .or(self.hold.as_ref().map(|(_, why)| why))?;
        Some(PartitionState::AwaitingSource { why: why.clone() })
    }

    fn copying_state(&self) -> PartitionState {
        let end = self.readable_end();
        if end < 0 || self.acked.source_next < end {
            return PartitionState::Copying;
        }
        if self.settings.shape.read_committed && self.last_stable_offset < self.high_watermark {
            return PartitionState::HeldByTransaction {
                last_stable_offset: self.last_stable_offset,
                high_watermark: self.high_watermark,
            };
        }
        PartitionState::CaughtUp
    }

    /// The end of what may be copied, as last seen; -1 before the first answer.
    pub(super) fn readable_end(&self) -> i64 {
        if self.settings.shape.read_committed {
            self.last_stable_offset
        } else {
            self.high_watermark
        }
    }

    /// The end seen when the partition was first located has been reached.
    #[must_use]
    pub fn reached_goal(&self) -> bool {
        self.located && self.goal.is_some_and(|goal| self.acked.source_next >= goal)
    }

    /// Which partition this is.
    #[must_use]
    pub fn spec(&self) -> &PartitionSpec {
        &self.spec
    }

    /// Everything before it is on the target.
    #[must_use]
    pub fn acked(&self) -> Position {
        self.acked
    }

    /// Offsets between the position and the source's end (an upper bound of records).
    #[must_use]
    pub fn lag(&self) -> i64 {
        let end = self.high_watermark.max(self.last_stable_offset);
        if self.located {
            (end - self.acked.source_next).max(0)
        } else {
            0
        }
    }

    /// Timestamp of the newest record acknowledged; -1 if none.
    #[must_use]
    pub fn newest_timestamp(&self) -> i64 {
        self.newest_timestamp
    }

    /// Counters.
    #[must_use]
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Losses seen, oldest first.
    #[must_use]
    pub fn losses(&self) -> &[Lost] {
        &self.losses
    }
}

fn recreated(spec: &PartitionSpec) -> Option<StopReason> {
    let anchor = spec.anchor.as_ref()?;
    if differs(anchor.source_topic_id, spec.source_topic_id) {
        return Some(StopReason::SourceRecreated {
            anchored: anchor.source_topic_id,
            found: Some(spec.source_topic_id),
        });
    }
    if differs(anchor.target_topic_id, spec.target_topic_id) {
        return Some(StopReason::TargetRecreated {
            anchored: anchor.target_topic_id,
            found: spec.target_topic_id,
        });
    }
    None
}

/// Two ids that are known and not the same. Brokers before 2.8 have none, which proves nothing.
fn differs(one: TopicId, other: TopicId) -> bool {
    !one.is_zero() && !other.is_zero() && one != other
}

fn age_ms(age: Duration) -> i64 {
    i64::try_from(age.as_millis()).unwrap_or(i64::MAX)
}

/// The checksum field of a header (`batch-forwarding.md` 1.1).
fn crc_of(head: &[u8; HEADER_LEN]) -> u32 {
    match head.get(17..21) {
        Some(&[a, b, c, d]) => u32::from_be_bytes([a, b, c, d]),
        _ => 0,
    }
}
