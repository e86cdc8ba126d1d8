//! What of the copy is durable: anchors and the breaks before them, and why a partition stands.

use super::{
    machine::{PartitionMachine, Phase},
    types::Break,
};
use crate::{
    mirror::anchor::{Anchor, Notes, Record, Standing},
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
        let decision = self.course.decision;
        let notes = Notes { history, mark, source_cluster, decision, incident: self.incident() };
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
        let state = self.state().code().to_owned();
        let decision = self.course.decision;
        let record = match &self.spec.anchor {
            Some(anchor) => {
                let notes = Notes { incident: Some(incident), decision, ..anchor.notes.clone() };
                Record::Anchor(Anchor { state, notes, ..anchor.clone() })
            }
            None => {
                Record::Standing(Standing { state, target_topic_id: self.spec.target_topic_id, decision, incident })
            }
        };
        Some((record, &[]))
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
