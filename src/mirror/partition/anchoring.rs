//! What of the copy is durable: anchors and the breaks before them.

use super::{
    machine::{PartitionMachine, Phase},
    types::Break,
};
use crate::mirror::anchor::Anchor;

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

    /// Whether so much is acknowledged without a durable anchor that nothing more is sent.
    pub(super) fn tail_is_full(&self) -> bool {
        self.tail_bytes >= self.settings.tail_bytes_max || self.breaks.len() >= BREAKS_MAX
    }
}
