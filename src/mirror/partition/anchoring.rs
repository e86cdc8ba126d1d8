//! What of the copy is durable: anchors and the breaks before them, and why a partition stands.

use super::{
    machine::{PartitionMachine, Phase},
    types::{Break, Lost},
};
use crate::{
    mirror::anchor::{Anchor, Incident, Notes, Passed, RECORDED_LOSSES_MAX, Record, Standing},
    simulation::{self, Planted},
};

/// Breaks that wait for an anchor; a topic of tiny transactions makes one in every transaction.
const BREAKS_MAX: usize = 10_000;

impl PartitionMachine {
    /// The anchor that describes everything acknowledged, and the breaks before it, which must be written first.
    /// `None` before the partition is located.
    #[must_use]
    pub fn anchor(&self) -> Option<(Anchor, &[Break])> {
        if !self.located {
            return None;
        }
        let (history, mark) = self.past.notes(self.acked.source_next);
        let mark = mark.filter(|_| self.nameless);
        let source_cluster = Some(&*self.spec.source_cluster).filter(|id| !id.is_empty()).map(str::to_owned);
        let (losses, passed) = self.recorded_losses();
        let (decision, incident) = (self.course.decision, self.incident());
        let notes = Notes { history, mark, source_cluster, decision, incident, losses, passed, ..Notes::default() };
        let anchor = Anchor {
            position: if simulation::has(Planted::AnchorBeforeAck) { self.prepared } else { self.acked },
            source_topic_id: self.spec.source_topic_id,
            target_topic_id: self.spec.target_topic_id,
            leader_epoch: self.acked_epoch,
            identity: self.identity,
            shape: self.settings.shape,
            state: self.state().code().to_owned(),
            notes,
        };
        Some((anchor, &self.breaks))
    }

    /// What is to be recorded now: the anchor, or that the partition stands before it was located. The former position,
    /// if there is one, stays then.
    #[must_use]
    pub fn record(&self) -> Option<(Record, &[Break])> {
        if let Some((anchor, breaks)) = self.anchor() {
            return Some((Record::Anchor(anchor), breaks));
        }
        let incident = self.incident()?;
        let record = match &self.spec.anchor {
            Some(anchor) => {
                let (state, decision) = (self.state().code().to_owned(), self.course.decision);
                let notes = Notes { incident: Some(incident), decision, ..anchor.notes.clone() };
                Record::Anchor(Anchor { state, notes, ..anchor.clone() })
            }
            None => Record::Standing(self.standing(Some(incident))),
        };
        Some((record, &[]))
    }

    /// What an earlier incarnation recorded that it stands for, and since when.
    #[must_use]
    pub fn stood_for(&self) -> Option<(String, i64)> {
        let anchor = self.spec.anchor.as_ref().filter(|anchor| anchor.notes.incident.is_some())?;
        Some((anchor.state.clone(), anchor.notes.since_ms?))
    }

    /// As [`Self::record`], of a partition that may not have been located yet: the former position stays. `None` where
    /// nothing must be recorded.
    #[must_use]
    pub fn state_record(&self) -> Option<(Record, &[Break])> {
        if self.mute {
            return None;
        }
        self.record().or_else(|| {
            let record = match &self.spec.anchor {
                Some(anchor) => Record::Anchor(anchor.clone()),
                None => Record::Standing(self.standing(None)),
            };
            Some((record, [].as_slice()))
        })
    }

    fn standing(&self, incident: Option<Incident>) -> Standing {
        Standing {
            state: self.state().code().to_owned(),
            target_topic_id: self.spec.target_topic_id,
            decision: self.course.decision,
            incident,
            waits: None,
            since_ms: None,
        }
    }

    /// The last losses one by one, and all of them as numbers, with those of earlier incarnations.
    fn recorded_losses(&self) -> (Vec<Lost>, Passed) {
        let former = self.spec.anchor.as_ref().map(|anchor| &anchor.notes);
        let before = former.map_or_else(Passed::default, |notes| notes.passed);
        let passed = Passed {
            lost: before.lost.saturating_add(self.progress.lost_records),
            truncated: before.truncated.saturating_add(self.progress.truncated_records),
            foreign: before.foreign.saturating_add(self.progress.foreign_records),
        };
        let all = former.map_or([].as_slice(), |notes| &notes.losses).iter().chain(&self.losses);
        let count = all.clone().count();
        (all.skip(count.saturating_sub(RECORDED_LOSSES_MAX)).copied().collect(), passed)
    }

    /// Whether an anchor should be committed: something was acknowledged since the last one, or the first is due.
    #[must_use]
    pub fn wants_anchor(&self) -> bool {
        let due = self.anchor_dirty || matches!(self.phase, Phase::Anchoring);
        due && !self.mute && (self.located || matches!(self.phase, Phase::Stopped { .. }))
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
        self.course.note_offered();
        self.breaks.len()
    }

    /// An anchor handed out is durable; `breaks` and `tail_bytes` as they were when it was taken.
    pub fn handle_anchored(&mut self, breaks: usize, tail_bytes: u64) {
        self.breaks.drain(..breaks.min(self.breaks.len()));
        self.tail_bytes = self.tail_bytes.saturating_sub(tail_bytes);
        if !self.course.was_offered() {
            // A position from before a decision; the one that counts is still due.
            self.anchor_dirty = true;
            return;
        }
        if !self.located && self.spec.anchor.is_none() {
            // It says that the partition stands, and is no position.
            return;
        }
        self.anchored = true;
        if matches!(self.phase, Phase::Anchoring) {
            self.phase = Phase::Copying;
        }
    }

    /// An anchor handed out could not be committed.
    pub fn handle_anchor_failed(&mut self) {
        // What a partition that stands has to say may have no place (its topic is gone): that is not tried for ever.
        let stands = matches!(self.phase, Phase::Stopped { .. });
        self.anchor_dirty = !stands || self.course.may_offer_again();
    }

    /// Whether so much is acknowledged without a durable anchor that nothing more is sent.
    pub(super) fn tail_is_full(&self) -> bool {
        self.tail_bytes >= self.settings.tail_bytes_max || self.breaks.len() >= BREAKS_MAX
    }
}
