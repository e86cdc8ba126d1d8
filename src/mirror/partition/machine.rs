//! The machine's data, what the source side and time do to it, and what it shows.

use std::{cell::Cell, rc::Rc, time::Duration};

use tokio::time::Instant;

use super::{
    history::Past,
    matching::Expected,
    pipeline::Pipeline,
    resolve::Course,
    state::{PartitionState, StopReason},
    stragglers::Limbo,
    types::{Break, Lost, PartitionSettings, PartitionSpec, Progress, Ticket},
    waiting::LocateTrouble,
};
use crate::{
    backoff::Backoff,
    batch::ProducerIdentity,
    client::recovery::{FetchStep, fetch_step},
    mirror::anchor::{Position, Shape},
    protocol::{ErrorCode, LeaderEpoch},
};

/// Losses that are remembered one by one; the counter goes on.
pub(super) const LOSSES_MAX: usize = 16;

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
        /// What the records say is needed, not only the headers.
        records: bool,
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
///
/// Laid out as written: what every batch needs comes first, on as few cache lines as can be. A thousand partitions do not
/// fit into the cache, and where batches are small, waiting for memory is most of what one costs.
#[derive(Debug)]
#[repr(C)]
pub struct PartitionMachine {
    /// Everything before it is on the target. Meaningful once `located`.
    pub(super) acked: Position,
    /// Behind the last queued batch.
    pub(super) prepared: Position,
    /// Leader epochs of the last batch acknowledged and the last one taken.
    pub(super) acked_epoch: LeaderEpoch,
    pub(super) taken_epoch: LeaderEpoch,
    pub(super) settings: Rc<PartitionSettings>,
    pub(super) pipeline: Pipeline,
    /// Bytes of the batches in it that wait.
    pub(super) queue_bytes: usize,
    pub(super) next_ticket: u64,
    /// Newest record of the batch that `confirmed` speaks of: what the age of the broker's producer state is counted from.
    pub(super) confirmed_timestamp: i64,
    pub(super) tail_bytes: u64,
    pub(super) high_watermark: i64,
    pub(super) last_stable_offset: i64,
    pub(super) newest_timestamp: i64,
    /// `target - source` of the current run, once a batch was acknowledged.
    pub(super) run: Option<i64>,
    pub(super) breaks: Vec<Break>,
    pub(super) partition_bytes_max: i32,
    pub(super) partition_bytes_first: i32,
    pub(super) corrupt_attempts: u32,
    /// `acked` was established in this incarnation: it is a better base than the anchor.
    pub(super) located: bool,
    /// An anchor with this identity is durable.
    pub(super) anchored: bool,
    /// A batch was acknowledged since the last look-up: the broker has our producer state.
    pub(super) confirmed: bool,
    /// (G) Something sent earlier may still arrive.
    pub(super) limbo: Option<Limbo>,
    /// The same, until the target was asked late enough, whatever it acknowledged meanwhile.
    pub(super) unproven: Option<Limbo>,
    /// The source has a hole at the position, and a straggler may have what was there.
    pub(super) holed: bool,
    /// The next batch is an old one that waits for it, as seen when it was last asked for.
    pub(super) straggling: Cell<bool>,
    pub(super) ask_source: bool,
    pub(super) anchor_dirty: bool,
    pub(super) draining: bool,
    /// The source's topic has no id.
    pub(super) nameless: bool,
    /// The source's log may be another one; see `past`.
    pub(super) doubted: bool,
    /// The topics are not those that are copied; see `course`.
    pub(super) troubled: bool,
    /// Nothing is recorded: the partition was never looked at, or its position is not proven.
    pub(super) mute: bool,
    /// The source must not be asked before.
    pub(super) hold: Option<Box<(Instant, String)>>,
    /// Something that cannot be copied stands here; what comes before it is still copied.
    pub(super) blocked: Option<Box<StopReason>>,
    pub(super) source_gone: Option<Box<str>>,
    pub(super) target_gone: Option<Box<str>>,
    /// While matching: when to look whether the source has anything left to match.
    pub(super) match_until: Option<Instant>,
    pub(super) phase: Phase,
    pub(super) identity: ProducerIdentity,
    /// The target topic's `max.message.bytes` as far as it is known.
    pub(super) batch_bytes_max: Option<usize>,
    pub(super) progress: Progress,
    /// From here on, what batches that simply go through have no part in.
    pub(super) spec: PartitionSpec,
    pub(super) backoff: Backoff,
    fetch_backoff: Backoff,
    /// The last stable offset as seen when the partition was first located.
    pub(super) goal: Option<i64>,
    /// The patience is over: the next fresh word of the source's end decides.
    pub(super) match_overdue: bool,
    /// It was concluded from a refusal, so only the target itself knows whether a single record above it is too large.
    pub(super) limit_is_guess: bool,
    /// While matching: source offsets without a record since the last one that was found. So many records of the
    /// target may have no counterpart in the source.
    pub(super) missing: i64,
    /// While matching: answers in a row that held too few old entries for the target's next batch.
    pub(super) short_answers: u32,
    /// Counting the source's records proved unreliable since the last look-up: headers have to be read.
    pub(super) count_doubted: bool,
    /// What is remembered of the source's log.
    pub(super) past: Past,
    /// What was decided, and how far that is.
    pub(super) course: Course,
    pub(super) losses: Vec<Lost>,
    pub(super) locate_trouble: Option<Box<LocateTrouble>>,
    /// The batch that last arrived damaged on the target, and how often in a row.
    pub(super) damaged: Option<(i64, u32)>,
}

impl PartitionMachine {
    /// A partition that knows nothing yet but its anchor. `seed` is for jitter; `partition_bytes` the first limit of
    /// one fetch in bytes.
    #[must_use]
    pub fn new(
        settings: Rc<PartitionSettings>,
        spec: PartitionSpec,
        partition_bytes: i32,
        seed: u64,
        now: Instant,
    ) -> Self {
        let start = Position { source_next: 0, target_next: 0, next_sequence: 0 };
        let (identity, position, epoch) = match &spec.anchor {
            Some(anchor) => (anchor.identity, anchor.position, anchor.leader_epoch),
            None => (spec.fresh_identity, start, LeaderEpoch::NONE),
        };
        let anchored = spec.anchor.is_some();
        let notes = spec.anchor.as_ref().map(|anchor| &anchor.notes);
        let (past, course) = (Past::new(notes), Course::new(notes));
        let nameless = spec.source_topic_id.is_zero();
        let mut machine = Self {
            batch_bytes_max: spec.target_batch_bytes_max,
            limit_is_guess: false,
            missing: 0,
            short_answers: 0,
            settings,
            spec,
            identity,
            phase: Phase::Locating { not_before: now, asked: false, awaiting_high_watermark: false },
            acked: position,
            prepared: position,
            acked_epoch: epoch,
            taken_epoch: epoch,
            located: false,
            anchored,
            pipeline: Pipeline::default(),
            queue_bytes: 0,
            next_ticket: 0,
            confirmed: false,
            // An earlier incarnation wrote under this anchor.
            limbo: anchored.then(|| Limbo::new(now)),
            unproven: anchored.then(|| Limbo::new(now)),
            holed: false,
            straggling: Cell::new(false),
            confirmed_timestamp: -1,
            backoff: Backoff::new(Duration::from_millis(50), Duration::from_secs(5), seed),
            hold: None,
            fetch_backoff: Backoff::new(Duration::from_millis(50), Duration::from_secs(5), seed.rotate_left(17)),
            ask_source: false,
            blocked: None,
            corrupt_attempts: 0,
            run: None,
            breaks: Vec::new(),
            tail_bytes: 0,
            anchor_dirty: false,
            draining: false,
            nameless,
            doubted: false,
            troubled: false,
            mute: false,
            source_gone: None,
            target_gone: None,
            high_watermark: -1,
            last_stable_offset: -1,
            newest_timestamp: -1,
            goal: None,
            match_until: None,
            match_overdue: false,
            count_doubted: false,
            past,
            course,
            progress: Progress::default(),
            losses: Vec::new(),
            locate_trouble: None,
            damaged: None,
            partition_bytes_max: partition_bytes,
            partition_bytes_first: partition_bytes,
        };
        machine.begin(now);
        machine
    }

    /// A partition that stands from the beginning, for a reason known before it was looked at.
    #[must_use]
    pub fn stopped(settings: Rc<PartitionSettings>, spec: PartitionSpec, reason: StopReason, now: Instant) -> Self {
        let mut machine = Self::new(settings, spec, 1, 1, now);
        machine.mute = true;
        machine.phase = Phase::Stopped { reason, retry_at: None };
        machine
    }

    /// The source answered a fetch of this partition with an error. Returns whether the leaders should be learnt
    /// anew.
    pub fn handle_fetch_error(&mut self, now: Instant, code: ErrorCode) -> bool {
        if !matches!(self.phase, Phase::Matching { .. } | Phase::Anchoring | Phase::Copying) {
            return false;
        }
        self.doubt_nameless();
        match fetch_step(code) {
            FetchStep::AskEnds => {
                self.ask_source = true;
                self.delay_fetch(now, "its offset is out of range there");
                false
            }
            FetchStep::GiveUp => {
                if code == ErrorCode::CORRUPT_MESSAGE {
                    let why = "the broker says its log is corrupt".to_owned();
                    self.stop_behind_queue(now, StopReason::SourceCorrupt { offset: self.prepared.source_next, why });
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
        self.hold = Some(Box::new((now + delay, why.to_owned())));
        self.doubt_nameless();
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
            self.blocked = Some(Box::new(reason));
        }
    }

    /// Turns a block into a stop once everything before it is copied. Called by the driver after each event.
    pub fn handle_quiet(&mut self, now: Instant) {
        if self.troubled {
            self.notice_topics(now);
        }
        if self.is_empty()
            && matches!(self.phase, Phase::Copying | Phase::Anchoring)
            && let Some(reason) = self.blocked.take()
        {
            self.stop(now, *reason);
        }
    }

    /// The target topic's `max.message.bytes` was read anew.
    pub fn handle_limit(&mut self, limit: Option<usize>) {
        if limit.is_some() {
            self.batch_bytes_max = limit;
            self.spec.target_batch_bytes_max = limit;
            self.limit_is_guess = false;
        }
    }

    /// Who can be reached: `None` for a side that can, else why not. Only shown; retries go on elsewhere.
    pub fn handle_reach(&mut self, source: Option<String>, target: Option<String>) {
        self.source_gone = source.map(Into::into);
        self.target_gone = target.map(Into::into);
    }

    /// Takes no more: what is in flight settles, what is queued is dropped.
    pub fn drain(&mut self) {
        self.draining = true;
        self.drop_queue();
        // A rewind to what was acknowledged; the incarnation after this one begins there.
        self.prepared = self.pipeline.in_flight().next_back().map_or(self.acked, |last| last.after);
    }

    /// Whether batches go through, and neither time nor anything else but them is waited for: then
    /// [`Self::poll_timeout`] is `None`, [`Self::handle_quiet`] does nothing, no look-up is wanted, and nothing is
    /// drained.
    #[must_use]
    pub fn is_ordinary(&self) -> bool {
        matches!(self.phase, Phase::Copying)
            && !self.draining
            && !self.ask_source
            && self.hold.is_none()
            && self.match_until.is_none()
            && self.limbo.is_none()
            && !self.holed
            && self.blocked.is_none()
    }

    /// Whether batches may be sent as long as nothing fails: once they may not, none that was not sent yet may be
    /// before the target was asked.
    #[must_use]
    pub fn is_copying(&self) -> bool {
        matches!(self.phase, Phase::Copying)
    }

    /// The source's topic has no id.
    #[must_use]
    pub fn is_nameless(&self) -> bool {
        self.nameless
    }

    /// A batch was acknowledged since the last look-up.
    #[must_use]
    pub fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// Whether a drain is over: no answer is awaited. What became of batches without an answer is for whoever comes
    /// next to ask the target.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.draining && !self.has_in_flight()
    }

    /// Located, and (B) either anchored already or about to be.
    pub(super) fn begin_copying(&mut self, position: Position, epoch: LeaderEpoch) {
        self.drop_queue();
        self.pipeline.drop_in_flight();
        self.acked = position;
        self.prepared = position;
        self.acked_epoch = epoch;
        self.taken_epoch = epoch;
        // What an earlier incarnation committed is committed anew, and copied with it: an idle partition would otherwise
        // live on a commit that expires.
        self.anchor_dirty |= !self.located && self.anchored;
        self.located = true;
        self.confirmed = false;
        self.count_doubted = false;
        self.match_until = None;
        self.phase = if self.anchored { Phase::Copying } else { Phase::Anchoring };
        self.note_course_over();
    }

    /// Reads a little of each cache line that a batch needs; see `Shard::warm`.
    #[must_use]
    pub fn warm(&self) -> u64 {
        self.acked.source_next.cast_unsigned()
            ^ self.pipeline.waiting() as u64
            ^ self.tail_bytes
            ^ self.newest_timestamp.cast_unsigned()
            ^ u64::from(self.located)
            ^ u64::from(self.target_gone.is_some())
            ^ u64::from(self.is_copying())
            ^ self.progress.bytes_out
            ^ self.progress.batches
    }

    /// As [`Self::warm`], for the batch that is acknowledged next.
    #[must_use]
    pub fn warm_in_flight(&self) -> u64 {
        let first = self.pipeline.in_flight().next();
        first.map_or(0, |batch| batch.before.target_next.cast_unsigned() ^ batch.bytes as u64)
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
            return PartitionState::AwaitingTarget { why: why.to_string() };
        }
        match &self.phase {
            Phase::Locating { awaiting_high_watermark: true, .. } => PartitionState::AwaitingHighWatermark,
            Phase::Locating { .. } => self.locating_state().unwrap_or(PartitionState::Locating),
            Phase::ReadingTail { .. } => PartitionState::ReadingTail,
            Phase::Settling { .. } => PartitionState::Settling,
            Phase::Matching { .. } => self.source_trouble().unwrap_or(PartitionState::Matching),
            Phase::Anchoring => PartitionState::Anchoring,
            Phase::Copying if self.tail_is_full() => PartitionState::AwaitingAnchor,
            Phase::Copying if self.awaits_stragglers() => PartitionState::AwaitingStragglers,
            Phase::Copying => self.source_trouble().unwrap_or_else(|| self.copying_state()),
            Phase::Stopped { reason, .. } => PartitionState::Stopped(reason.clone()),
        }
    }

    fn source_trouble(&self) -> Option<PartitionState> {
        let why = self.source_gone.as_deref().or_else(|| self.hold.as_ref().map(|hold| hold.1.as_str()))?;
        Some(PartitionState::AwaitingSource { why: why.to_owned() })
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

    /// What shapes the bytes now: a tail that an earlier incarnation wrote is matched as that one wrote it.
    pub(super) fn shape(&self) -> Shape {
        match &self.spec.anchor {
            Some(anchor) if !self.located => anchor.shape,
            _ => self.settings.shape,
        }
    }

    /// The end of what may be copied, as last seen; -1 before the first answer.
    pub(super) fn readable_end(&self) -> i64 {
        if self.settings.shape.read_committed { self.last_stable_offset } else { self.high_watermark }
    }

    /// The end seen when the partition was first located has been reached.
    #[must_use]
    pub fn reached_goal(&self) -> bool {
        self.located && !self.doubted && self.goal.is_some_and(|goal| self.acked.source_next >= goal)
    }

    /// Whether both clusters were asked, so that the position is known to be the one of their logs.
    #[must_use]
    pub fn is_located(&self) -> bool {
        self.located
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
        if self.located { (end - self.acked.source_next).max(0) } else { 0 }
    }

    /// Whether the source holds records, as last heard, that were not fetched yet.
    #[must_use]
    pub fn has_backlog(&self) -> bool {
        self.prepared.source_next < self.readable_end()
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
