//! Reconciling: learn what the target holds, then send only what it lacks (`design.md` 4).
//!
//! Whatever the cause (start, takeover, unknown outcome, another leader, error 45, an unexpected base offset), the way is
//! the same. The base is the last position known for sure: what was acknowledged in this incarnation, else the anchor.

use tokio::time::Instant;

use super::{
    machine::{PartitionMachine, Phase},
    matching::{Expected, MATCH_PATIENCE, sent_equals_stored},
    resolve::Resolve,
    state::StopReason,
    types::{Lost, StartAt, TailBatch, TargetNotEmpty},
};
use crate::{
    batch::{BatchHeader, ProducerIdentity, sequence},
    mirror::anchor::Position,
    protocol::LeaderEpoch,
    simulation::{self, Planted},
};

/// What a look-up must find out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocateAsk {
    /// Where the target's log begins and ends, and what its leader knows of our producer; with `source`, also where
    /// the source's log begins and ends.
    Ends {
        /// Whether the source's ends are needed.
        source: bool,
        /// Whose state to look for.
        identity: ProducerIdentity,
    },
    /// The headers of the target's batches in a range of offsets.
    Tail {
        /// First offset.
        from: i64,
        /// Offset after the last.
        to: i64,
        /// Whether what the records say is needed too: the answer is for `handle_tail_records` then.
        records: bool,
    },
    /// Where the source's log begins and ends.
    Source,
    /// The same, where a leader epoch ends in it, and what stands at an offset.
    History {
        /// `NONE`: not to be asked for.
        epoch: LeaderEpoch,
        /// Which offset to look at.
        mark: Option<i64>,
    },
}

/// Where the source's log begins and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceEnds {
    /// First offset that exists.
    pub start: i64,
    /// End of what may be copied: last stable offset or high watermark, as the isolation level says.
    pub readable_end: i64,
    /// High watermark.
    pub high_watermark: i64,
    /// The leader's epoch; `NONE` if it does not say.
    pub leader_epoch: LeaderEpoch,
}

/// Where the target's log begins and ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TargetEnds {
    /// First offset that exists.
    pub start: i64,
    /// What is replicated.
    pub high_watermark: i64,
    /// What the leader holds.
    pub end: i64,
}

/// What the target's leader says of a producer id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProducerAnswer {
    /// It could not be asked (too old, or no right).
    Unknown,
    /// It does not know the id: expired, never written, or another log.
    Absent,
    /// It knows it.
    Known {
        /// The newest epoch that wrote.
        producer_epoch: i16,
        /// Sequence of the last record.
        last_sequence: i32,
    },
}

/// The answer to [`LocateAsk::Ends`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Located {
    /// If it was asked for.
    pub source: Option<SourceEnds>,
    /// Always.
    pub target: TargetEnds,
    /// Always.
    pub producer: ProducerAnswer,
}

impl PartitionMachine {
    /// What should be looked up now; `None` while nothing is, or the answer is awaited.
    #[must_use]
    pub fn locate_want(&self, now: Instant) -> Option<LocateAsk> {
        match &self.phase {
            Phase::Locating { not_before, asked: false, .. } if *not_before <= now => Some(LocateAsk::Ends {
                source: self.goal.is_none()
                    || (!self.located && self.spec.anchor.is_none())
                    || self.course.resolving.is_some(),
                identity: self.identity,
            }),
            Phase::ReadingTail { from, to, asked: false, not_before, records } if *not_before <= now => {
                Some(LocateAsk::Tail { from: *from, to: *to, records: *records })
            }
            Phase::Matching { .. } | Phase::Anchoring | Phase::Copying if self.doubted => {
                self.past.ask(now, self.taken_epoch)
            }
            Phase::Matching { .. } | Phase::Anchoring | Phase::Copying if self.ask_source => Some(LocateAsk::Source),
            _ => None,
        }
    }

    /// The look-up was begun; until its answer comes none is wanted.
    pub fn locate_begun(&mut self, now: Instant) {
        self.note_question(now);
        match &mut self.phase {
            Phase::Locating { asked, .. } | Phase::ReadingTail { asked, .. } => *asked = true,
            _ if self.past.asked() => {}
            // The fetch is on hold while the source is asked; another failure asks again.
            _ => self.ask_source = false,
        }
    }

    /// A look-up failed; it is tried again after a pause.
    pub fn handle_locate_failed(&mut self, now: Instant) {
        let delay = self.backoff.next_delay();
        match &mut self.phase {
            Phase::Locating { not_before, asked, .. } => {
                *asked = false;
                *not_before = now + delay;
            }
            // Another broker may lead, or retention may have taken the tail: the ends tell.
            Phase::ReadingTail { .. } => {
                self.phase = Phase::Locating { not_before: now + delay, asked: false, awaiting_high_watermark: false };
            }
            _ => self.past.failed(now + delay),
        }
    }

    /// The answer to [`LocateAsk::Ends`].
    pub fn handle_located(&mut self, now: Instant, located: Located) {
        if !matches!(self.phase, Phase::Locating { asked: true, .. }) {
            return;
        }
        self.locate_trouble = None;
        if let Some(source) = located.source {
            self.high_watermark = source.high_watermark;
            self.last_stable_offset = source.readable_end;
            self.goal.get_or_insert(source.readable_end);
        }
        self.note_answer(now);
        let target = located.target;
        if target.high_watermark != target.end {
            // What is above the high watermark may still vanish, or be joined by requests of ours on their way.
            let delay = self.backoff.next_delay();
            self.phase = Phase::Locating { not_before: now + delay, asked: false, awaiting_high_watermark: true };
            return;
        }
        if self.resolve_located(now, &located) {
            return;
        }
        if !self.located && self.spec.anchor.is_none() {
            self.first_start(now, &located, self.settings.policies.target_not_empty);
            return;
        }
        let base = self.acked;
        if located.source.is_some_and(|source| source.high_watermark < base.source_next) {
            // Not merely caught up.
            self.doubt();
        }
        if target.end < base.target_next {
            self.stop(now, StopReason::TargetTruncated { expected: base.target_next, end: target.end });
            return;
        }
        let mut base = base;
        if simulation::has(Planted::TailIgnored) {
            base.target_next = target.end;
        }
        let landed = target.end - base.target_next;
        if landed == 0 {
            self.begin_copying(base, self.acked_epoch);
            return;
        }
        let only_us = matches!(located.producer, ProducerAnswer::Known { producer_epoch, last_sequence }
            if producer_epoch == self.identity.producer_epoch
                && i64::from(sequence::distance(base.next_sequence, sequence::advance(last_sequence, 1))) == landed);
        if only_us {
            if self.pipeline.sent() > 0 && self.adopt_in_flight(landed) {
                return;
            }
            // More than is in flight, or other batches: requests of an earlier incarnation landed late. The source
            // explains them. Counting needs the settings they were made with.
            if !self.count_doubted && self.shape() == self.settings.shape {
                self.begin_matching(now, Expected::Count { remaining: landed });
                return;
            }
        }
        if target.start > base.target_next {
            let why = format!(
                "the target holds offsets {} to {}; what was written from {} on is gone there",
                target.start, target.end, base.target_next
            );
            self.stop(now, StopReason::PositionUnknown { why });
            return;
        }
        self.phase = Phase::ReadingTail {
            from: base.target_next,
            to: target.end,
            asked: false,
            not_before: now,
            records: false,
        };
    }

    /// No anchor: an empty target begins at the source's start; another one is somebody's decision.
    pub(super) fn first_start(&mut self, now: Instant, located: &Located, not_empty: TargetNotEmpty) {
        let Some(source) = located.source else {
            // The driver always asks for it here; ask again rather than guess.
            self.handle_locate_failed(now);
            return;
        };
        let target = located.target;
        if target.end > target.start && not_empty == TargetNotEmpty::Stop {
            self.stop(now, StopReason::TargetNotEmpty { start: target.start, end: target.end });
            return;
        }
        let source_next = match self.settings.start {
            StartAt::Latest if !self.spec.appeared_later => source.readable_end,
            StartAt::Latest | StartAt::Earliest => source.start,
        };
        let mut next_sequence = sequence::of_offset(source_next);
        if let ProducerAnswer::Known { producer_epoch, .. } = located.producer {
            // An earlier life of this copy, whose anchor is lost. A new epoch starts its own sequences, at 0.
            match producer_epoch.checked_add(1) {
                Some(epoch) => self.identity.producer_epoch = epoch,
                None => {
                    self.identity.producer_id ^= 1;
                    self.identity.producer_epoch = 0;
                }
            }
            next_sequence = 0;
        }
        let position = Position { source_next, target_next: target.end, next_sequence };
        self.begin_copying(position, LeaderEpoch::NONE);
    }

    /// Only we wrote since the base, so many records: if that is a whole number of the batches in flight, they are
    /// what landed.
    fn adopt_in_flight(&mut self, landed: i64) -> bool {
        let Some(count) = self.landed_prefix(landed) else {
            return false;
        };
        self.adopt(count);
        true
    }

    fn landed_prefix(&self, landed: i64) -> Option<usize> {
        let mut sum = 0_i64;
        for (index, batch) in self.pipeline.in_flight().enumerate() {
            sum += i64::from(batch.records);
            if sum == landed {
                return Some(index + 1);
            }
            if sum > landed {
                return None;
            }
        }
        None
    }

    fn adopt(&mut self, count: usize) {
        for _ in 0..count {
            self.acknowledge_first(false);
        }
        self.begin_copying(self.acked, self.acked_epoch);
    }

    /// The answer to [`LocateAsk::Tail`]: the headers of all batches in the range, in order.
    pub fn handle_tail(&mut self, now: Instant, tail: Vec<BatchHeader>) {
        if !matches!(self.phase, Phase::ReadingTail { asked: true, records: false, .. }) {
            return;
        }
        if let Some(Resolve::Rewind) = self.course.resolving {
            self.rewind(now, &tail);
            return;
        }
        if !self.is_whole_tail(now, tail.iter()) {
            return;
        }
        if self.course.resolving.is_some() {
            self.resolve_tail(now, tail);
            return;
        }
        let shape = self.settings.shape;
        let fits = tail.len() <= self.pipeline.sent()
            && tail
                .iter()
                .zip(self.pipeline.in_flight())
                .all(|(stored, sent)| sent_equals_stored(&sent.head, &sent.before, stored, shape).is_ok());
        if fits {
            self.adopt(tail.len());
        } else {
            // Nothing is in flight, or not all of it is of this incarnation: the source explains it, or nothing does.
            self.begin_matching(now, Expected::Headers { batches: tail.into() });
        }
    }

    /// The answer to [`LocateAsk::Tail`] with records: all batches in the range, in order.
    pub fn handle_tail_records(&mut self, now: Instant, tail: Vec<TailBatch>) {
        if !matches!(self.phase, Phase::ReadingTail { asked: true, records: true, .. })
            || !self.is_whole_tail(now, tail.iter().map(|batch| &batch.header))
        {
            return;
        }
        // A request that came late may have been appended a second time, where the broker had forgotten its producer;
        // beside a hole in the source that could look like a record that compaction took.
        let mut next = self.acked.next_sequence;
        for TailBatch { header, .. } in &tail {
            if header.base_sequence != next {
                let why = format!(
                    "the target's batch at offset {} has the sequence {} where {next} is due: it was written twice, or out \
                     of order",
                    header.base_offset, header.base_sequence
                );
                self.stop(now, StopReason::PositionUnknown { why });
                return;
            }
            next = sequence::advance(next, header.records_count);
        }
        let ends = tail.iter().map(|batch| batch.header.next_offset()).collect();
        let records = tail.into_iter().flat_map(|batch| batch.records).collect();
        self.begin_matching(now, Expected::Records { records, ends });
    }

    /// Whether these are all the batches that were asked for, and ours, unless others are expected among them; else says
    /// what follows from it.
    fn is_whole_tail<'a>(&mut self, now: Instant, tail: impl Iterator<Item = &'a BatchHeader>) -> bool {
        let Phase::ReadingTail { from, to, records, .. } = self.phase else {
            return false;
        };
        let mut next = from;
        let mut foreign: Option<(i64, i64, i64)> = None;
        for header in tail {
            if header.base_offset != next {
                let why = format!("the target's log has no batch that begins at offset {next}");
                self.stop(now, StopReason::PositionUnknown { why });
                return false;
            }
            next = header.next_offset();
            if !self.is_ours(header) {
                let (first, _, count) = foreign.unwrap_or((header.base_offset, 0, 0));
                foreign = Some((first, next, count + i64::from(header.records_count)));
            }
        }
        if next != to {
            // The log moved while it was read: look again.
            self.handle_locate_failed(now);
            self.phase = Phase::Locating { not_before: now, asked: false, awaiting_high_watermark: false };
            return false;
        }
        match (foreign, self.course.resolving) {
            (None, _) => true,
            (Some((_, end, count)), Some(Resolve::SourceAt(_) | Resolve::SourceNew(_)))
                if self.accepts_foreign(end) =>
            {
                self.course.foreign = Some((to, count));
                true
            }
            (Some((_, _, count)), Some(Resolve::Foreign)) if !records => {
                self.course.foreign = Some((to, count));
                true
            }
            (Some(_), Some(Resolve::Foreign)) => {
                let why = "records of another writer lie among ours, and compaction took some of ours from the source";
                self.stop(now, StopReason::PositionUnknown { why: why.to_owned() });
                false
            }
            (Some((from, to, records)), _) => {
                self.stop(now, StopReason::ForeignWrite { from, to, records });
                false
            }
        }
    }

    pub(super) fn is_ours(&self, header: &BatchHeader) -> bool {
        (header.producer_id, header.producer_epoch) == (self.identity.producer_id, self.identity.producer_epoch)
    }

    /// Nothing was matched for a while. What the source said last may be old (it may be unreachable since), so it is
    /// asked where it ends.
    pub(super) fn handle_match_timeout(&mut self, now: Instant) {
        if !matches!(self.phase, Phase::Matching { .. }) {
            self.match_until = None;
            return;
        }
        self.match_overdue = true;
        self.ask_source = true;
        self.match_until = Some(now + MATCH_PATIENCE);
    }

    /// The answer to [`LocateAsk::Source`]: why an offset was out of range.
    pub fn handle_source_ends(&mut self, now: Instant, ends: SourceEnds) {
        if !matches!(self.phase, Phase::Matching { .. } | Phase::Anchoring | Phase::Copying) {
            return;
        }
        let position = self.prepared.source_next;
        self.high_watermark = ends.high_watermark;
        self.last_stable_offset = ends.readable_end;
        if position < ends.start {
            if let Phase::Matching { .. } = self.phase {
                let why = format!(
                    "the source begins at offset {}; what the target holds was written from {position} on",
                    ends.start
                );
                self.stop(now, StopReason::PositionUnknown { why });
                return;
            }
            if !self.is_empty() {
                // What waits is copied first: if it were dropped by a rewind, it would be lost as well. The fetch is on
                // hold and asks again.
                return;
            }
            self.lose(now, Lost { from: position, to: ends.start });
        } else if position > ends.high_watermark {
            self.doubt();
        } else if position >= ends.readable_end && self.match_overdue {
            self.match_at_end(now);
        }
    }
}
