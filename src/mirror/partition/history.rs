//! Whether the source's log is still the one that was copied: where the common history ends, and, where topics have no
//! ids, whether it is the same topic at all.
//!
//! A log that lost records in an unclean election has a newer leader epoch from there on. Its leader says where an older
//! epoch ends (OffsetForLeaderEpoch); the least of that and of where the epoch ended in what was copied is the end of the
//! common history. An epoch of which the log has nothing is answered with an older one, and is asked for again as that.
//!
//! Sources before 2.8 have no topic ids. There a re-created topic is known by a leader epoch below that of what was copied
//! (within a topic's life it only grows), by an end below the position without an election since, or by a batch that was
//! copied and is another one now (the mark). What compaction or retention took proves nothing.

use tokio::time::Instant;

use super::{
    locate::{LocateAsk, SourceEnds},
    machine::{PartitionMachine, Phase},
    state::StopReason,
};
use crate::{
    batch::BatchHeader,
    client::EpochEnd,
    mirror::anchor::{EpochStart, HISTORY_MAX, Mark, Notes},
    protocol::{LeaderEpoch, TopicId},
};

/// The code of [`StopReason::SourceTruncated`].
const TRUNCATED: &str = "source-truncated";
/// Questions about older and older epochs.
const ROUNDS_MAX: u8 = 4;

/// The answer to [`LocateAsk::History`].
#[derive(Debug, Clone, Copy)]
pub struct SourceHistory {
    /// Where the log begins and ends.
    pub ends: SourceEnds,
    /// Where the asked epoch ends; `None` where the log or its broker cannot tell.
    pub epoch_end: Option<EpochEnd>,
    /// The first batch that reaches beyond the mark's offset, if it was asked for and there is one.
    pub at_mark: Option<BatchHeader>,
}

/// What is remembered of the source's log.
#[derive(Debug, Default)]
pub(super) struct Past {
    /// Where epochs begin, oldest first.
    epochs: Vec<EpochStart>,
    /// A batch before the acknowledged position, and a newer one that waits to be.
    confirmed: Option<Mark>,
    pending: Option<Mark>,
    /// To be asked, or being asked; nothing is fetched meanwhile.
    check: Option<Check>,
    /// A position and an end before it that were recorded: where nothing tells epochs, a log that grows again would hide
    /// what it lost.
    recorded: Option<(i64, i64)>,
}

#[derive(Debug, Clone, Copy)]
struct Check {
    asked: bool,
    not_before: Option<Instant>,
    /// `None`: that of the last batch taken.
    epoch: Option<LeaderEpoch>,
    /// The common history ends here at the latest.
    bound: i64,
    rounds: u8,
}

impl Check {
    fn new() -> Self {
        Self { asked: false, not_before: None, epoch: None, bound: i64::MAX, rounds: 0 }
    }
}

impl Past {
    pub(super) fn new(notes: Option<&Notes>) -> Self {
        let (epochs, confirmed) = notes.map_or((Vec::new(), None), |notes| (notes.history.clone(), notes.mark));
        let recorded = notes.and_then(|notes| notes.incident.as_ref()).and_then(|incident| {
            let (code, numbers) = incident.key.split_once(':')?;
            let (position, end) = numbers.split_once(',').filter(|_| code == TRUNCATED)?;
            Some((position.parse().ok()?, end.parse().ok()?))
        });
        Self { epochs, confirmed, recorded, ..Self::default() }
    }

    /// A batch of another epoch than the one before was taken.
    pub(super) fn note_epoch(&mut self, epoch: i32, start: i64) {
        if epoch < 0 || self.epochs.last().is_some_and(|last| last.epoch.0 >= epoch) {
            return;
        }
        // Twice as many as go into an anchor: some may not be acknowledged yet.
        if self.epochs.len() >= 2 * HISTORY_MAX {
            self.epochs.remove(0);
        }
        self.epochs.push(EpochStart { epoch: LeaderEpoch(epoch), start });
    }

    /// A batch was taken from a source without topic ids.
    pub(super) fn note_mark(&mut self, mark: Mark, acked: i64) {
        match self.pending {
            Some(pending) if pending.base_offset >= acked => {}
            pending => {
                self.confirmed = pending.or(self.confirmed);
                self.pending = Some(mark);
            }
        }
    }

    pub(super) fn notes(&self, acked: i64) -> (Vec<EpochStart>, Option<Mark>) {
        let known = self.epochs.partition_point(|one| one.start < acked);
        let history = self.epochs[known.saturating_sub(HISTORY_MAX)..known].to_vec();
        (history, self.pending.filter(|mark| mark.base_offset < acked).or(self.confirmed))
    }

    fn mark(&self) -> Option<Mark> {
        self.confirmed.or(self.pending)
    }

    /// Another log begins, or the same from this offset on.
    pub(super) fn cut(&mut self, from: Option<i64>) {
        self.epochs.retain(|one| from.is_some_and(|from| one.start < from));
        let kept = |mark: &Mark| from.is_some_and(|from| mark.base_offset < from);
        self.confirmed = self.confirmed.filter(kept);
        self.pending = self.pending.filter(kept);
        self.check = None;
        self.recorded = None;
    }

    /// The log may be another one: ask before anything more is fetched.
    pub(super) fn doubt(&mut self) {
        self.check.get_or_insert_with(Check::new);
    }

    /// What was asked must be asked anew.
    pub(super) fn rewind(&mut self) {
        if let Some(check) = &mut self.check {
            *check = Check::new();
        }
    }

    pub(super) fn ask(&self, now: Instant, taken: LeaderEpoch) -> Option<LocateAsk> {
        let check = self.check.filter(|check| !check.asked && check.not_before.is_none_or(|at| at <= now))?;
        Some(LocateAsk::History {
            epoch: check.epoch.unwrap_or(taken),
            mark: self.mark().filter(|_| check.rounds == 0).map(|mark| mark.base_offset),
        })
    }

    /// Whether a question was due, which counts as asked now.
    pub(super) fn asked(&mut self) -> bool {
        match &mut self.check {
            Some(check) if !check.asked => {
                check.asked = true;
                true
            }
            _ => false,
        }
    }

    pub(super) fn failed(&mut self, not_before: Instant) {
        if let Some(check) = &mut self.check {
            check.asked = false;
            check.not_before = Some(not_before);
        }
    }

    pub(super) fn timeout(&self) -> Option<Instant> {
        self.check.filter(|check| !check.asked).and_then(|check| check.not_before)
    }

    /// Where an epoch ends in what was copied up to `position`.
    fn end_of(&self, epoch: LeaderEpoch, position: i64) -> i64 {
        self.epochs.iter().find(|one| one.epoch > epoch).map_or(position, |one| one.start.min(position))
    }

    /// The newest epoch of what was copied that is not newer than this one.
    fn newest_until(&self, epoch: LeaderEpoch) -> Option<LeaderEpoch> {
        self.epochs.iter().rev().map(|one| one.epoch).find(|one| *one <= epoch)
    }
}

impl Mark {
    /// Whether what stands there now may be the batch that was copied.
    fn fits(&self, found: &BatchHeader) -> bool {
        // Compaction may have taken it, or records of it.
        found.base_offset > self.base_offset
            || (found.base_offset == self.base_offset
                && (found.crc == self.crc || found.is_thinned() || found.is_empty()))
    }
}

impl PartitionMachine {
    /// The source's log may be another one: it is asked before anything more is fetched.
    pub(super) fn doubt(&mut self) {
        self.past.doubt();
        self.doubted = true;
    }

    /// Something happened to the source after which a topic without id may be another one.
    pub(super) fn doubt_nameless(&mut self) {
        if self.nameless && self.located {
            self.doubt();
        }
    }

    /// The log begins to be another one, or the same from this offset on.
    pub(super) fn cut_past(&mut self, from: Option<i64>) {
        self.past.cut(from);
        self.doubted = false;
    }

    /// A fetch answer said that the history is another one: this epoch is the newest common one, and ends there.
    pub fn handle_diverged(&mut self, now: Instant, found: EpochEnd) {
        if !matches!(self.phase, Phase::Matching { .. } | Phase::Anchoring | Phase::Copying) || self.doubted {
            return;
        }
        if self.nameless {
            // It may be another topic altogether.
            self.doubt();
            return;
        }
        self.past.check = Some(Check { asked: true, ..Check::new() });
        self.history_step(now, Some(found), None);
    }

    /// The answer to [`LocateAsk::History`].
    pub fn handle_history(&mut self, now: Instant, answer: SourceHistory) {
        if !matches!(self.phase, Phase::Matching { .. } | Phase::Anchoring | Phase::Copying)
            || !self.past.check.is_some_and(|check| check.asked)
        {
            return;
        }
        let ends = answer.ends;
        self.high_watermark = ends.high_watermark;
        self.last_stable_offset = ends.readable_end;
        if self.nameless && self.is_another_topic(&answer) {
            self.past.check = None;
            self.doubted = false;
            let position = self.prepared.source_next;
            let reason = StopReason::SourceRecreated { anchored: TopicId::ZERO, found: TopicId::ZERO, position };
            self.stop_behind_queue(now, reason);
            return;
        }
        self.history_step(now, answer.epoch_end, Some(ends));
    }

    fn is_another_topic(&self, answer: &SourceHistory) -> bool {
        let known = |epoch: LeaderEpoch| epoch != LeaderEpoch::NONE;
        let (leader, taken) = (answer.ends.leader_epoch, self.taken_epoch);
        if known(leader) && known(taken) {
            if leader < taken {
                return true;
            }
            // Records vanish from the end of a log only by an election, which would have made a newer epoch.
            if leader == taken && answer.ends.high_watermark < self.prepared.source_next {
                return answer.epoch_end.is_none_or(|found| found.end_offset < self.prepared.source_next);
            }
        }
        matches!((self.past.mark(), answer.at_mark), (Some(mark), Some(found)) if !mark.fits(&found))
    }

    /// Takes an answer about an epoch; asks again, or concludes.
    fn history_step(&mut self, now: Instant, found: Option<EpochEnd>, ends: Option<SourceEnds>) {
        let Some(mut check) = self.past.check.take() else {
            return;
        };
        self.doubted = false;
        let position = self.prepared.source_next;
        match found {
            Some(found) => {
                let ours = self.past.end_of(found.epoch, position);
                check.bound = check.bound.min(found.end_offset).min(ours);
                let asked = check.epoch.unwrap_or(self.taken_epoch);
                let older = self.past.newest_until(found.epoch).filter(|older| *older < asked && *older != found.epoch);
                if let Some(older) = older
                    && check.rounds < ROUNDS_MAX
                {
                    self.past.check = Some(Check {
                        asked: false,
                        not_before: None,
                        epoch: Some(older),
                        rounds: check.rounds + 1,
                        ..check
                    });
                    self.doubted = true;
                    return;
                }
            }
            None => {
                if let Some(ends) = ends {
                    check.bound = check.bound.min(ends.high_watermark);
                }
                if let Some((_, end)) = self.past.recorded.filter(|(recorded, _)| *recorded == position) {
                    check.bound = check.bound.min(end);
                }
            }
        }
        if check.bound < position {
            self.stop_behind_queue(now, StopReason::SourceTruncated { position, end: check.bound });
        }
        // Else it is the log that was copied; a high watermark that lags behind an election catches up.
    }
}
