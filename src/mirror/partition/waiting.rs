//! What a partition waits for, and what it is told while it does: shown only, nothing is decided by it.

use super::{
    machine::{PartitionMachine, Phase},
    state::{PartitionState, StopReason},
};

/// So many look-ups in a row fail before that is worth a word: the first ones meet leaders that just move.
const FAILURES_SHOWN: u32 = 3;

/// Look-ups that failed in a row.
#[derive(Debug)]
pub(super) struct LocateTrouble {
    failures: u32,
    source: bool,
    why: String,
}

impl PartitionMachine {
    /// Whether the target has to answer before this partition gets on.
    #[must_use]
    pub fn needs_target(&self) -> bool {
        !self.draining
            && match self.phase {
                Phase::Locating { .. } | Phase::ReadingTail { .. } | Phase::Settling { .. } => true,
                Phase::Copying => !self.is_empty(),
                Phase::Matching { .. } | Phase::Anchoring | Phase::Stopped { .. } => false,
            }
    }

    /// Whether the source has to answer before this partition gets on, although nothing is fetched just now.
    #[must_use]
    pub fn needs_source(&self) -> bool {
        let flowing = matches!(self.phase, Phase::Matching { .. } | Phase::Anchoring | Phase::Copying);
        let begins = matches!(self.phase, Phase::Locating { .. }) && self.goal.is_none();
        !self.draining && (begins || flowing && (self.hold.is_some() || self.ask_source))
    }

    /// Whether a source that goes on unseen puts it further behind.
    #[must_use]
    pub fn is_behind_unseen(&self) -> bool {
        let other_history = matches!(
            &self.phase,
            Phase::Stopped {
                reason: StopReason::SourceGone
                    | StopReason::SourceCluster { .. }
                    | StopReason::SourceRecreated { .. }
                    | StopReason::SourceTruncated { .. }
                    | StopReason::TwoWriters { .. },
                ..
            }
        );
        self.located && !self.draining && !other_history
    }

    /// Where the source ends, while nothing is fetched.
    pub fn handle_source_seen(&mut self, high_watermark: i64, readable_end: i64) {
        if self.is_behind_unseen() {
            self.high_watermark = high_watermark.max(readable_end);
            self.last_stable_offset = readable_end;
        }
    }

    /// Why a look-up failed; to be called before [`Self::handle_locate_failed`].
    pub fn note_locate_trouble(&mut self, source: bool, why: &str) {
        let failures = self.locate_trouble.as_ref().map_or(0, |trouble| trouble.failures).saturating_add(1);
        self.locate_trouble = Some(Box::new(LocateTrouble { failures, source, why: why.to_owned() }));
    }

    /// What keeps a partition from being located, once that is plain.
    pub(super) fn locating_state(&self) -> Option<PartitionState> {
        let trouble = self.locate_trouble.as_ref().filter(|trouble| trouble.failures >= FAILURES_SHOWN)?;
        let why = trouble.why.clone();
        Some(if trouble.source {
            PartitionState::AwaitingSource { why }
        } else {
            PartitionState::AwaitingTarget { why }
        })
    }
}
