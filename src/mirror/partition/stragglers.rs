//! Requests whose answer nobody awaits any more may still arrive at the target: in the buffers of a connection that was
//! given up, of a process that was killed, of a broker that hung.
//!
//! Records of now are safe from that, since the broker remembers our sequences and refuses what comes twice. Of old
//! records it soon forgets them (`broker-experiments.md` section 0.2), and would append a straggler behind what was sent
//! in its place. So (G): after an outcome that nobody knows, and after a start that follows an anchor, an old batch is sent
//! only once nothing earlier can arrive any more, and the target was asked since.
//!
//! Compaction makes it a matter of young records too: of a batch that the cleaner has taken since it was sent, the straggler
//! has the sequence of what is sent in its place, and the broker would call that a duplicate. So nothing is passed over
//! where the source has a hole, before the same.
//!
//! What bounds the arrival: the system gives unacknowledged bytes up after [`UNACKNOWLEDGED_MAX`], also for sockets of a
//! process that is dead. What was acknowledged lies with a broker that hangs; it reads that when it wakes up, about when it
//! answers our question, so that a second question counts.

use std::time::Duration;

use tokio::time::Instant;

use super::machine::{PartitionMachine, Phase};
use crate::{
    net::UNACKNOWLEDGED_MAX,
    simulation::{self, Planted},
};

/// Between the first answer of a broker that may have hung, and the question that counts.
const SECOND_QUESTION: Duration = Duration::from_secs(2);
/// Beyond what the system bounds: the way itself.
const SLACK: Duration = Duration::from_secs(1);

/// Something sent earlier may still arrive.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limbo {
    /// Nothing was sent since.
    since: Instant,
    /// The first answer of the target after that.
    answered: Option<Instant>,
    asked: Instant,
}

impl Limbo {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, answered: None, asked: now }
    }

    /// From when on a question counts.
    fn over_at(&self) -> Option<Instant> {
        Some((self.since + UNACKNOWLEDGED_MAX + SLACK).max(self.answered? + SECOND_QUESTION))
    }
}

impl PartitionMachine {
    /// The outcome of something sent is unknown.
    pub(super) fn enter_limbo(&mut self, now: Instant) {
        self.limbo = Some(Limbo::new(now));
        self.unproven = self.limbo;
    }

    /// Compaction took something from here on. Returns whether that must wait, since a straggler may have it.
    pub(super) fn waits_before_hole(&mut self) -> bool {
        self.holed = self.unproven.is_some()
            && matches!(self.phase, Phase::Copying | Phase::Anchoring)
            && !simulation::has(Planted::StragglersIgnored);
        self.holed
    }

    /// The target is asked what it holds.
    pub(super) fn note_question(&mut self, now: Instant) {
        for limbo in [&mut self.limbo, &mut self.unproven].into_iter().flatten() {
            limbo.asked = now;
        }
    }

    /// It answered.
    pub(super) fn note_answer(&mut self, now: Instant) {
        for place in [&mut self.limbo, &mut self.unproven] {
            let Some(limbo) = place else { continue };
            if limbo.over_at().is_some_and(|over| limbo.asked >= over) {
                *place = None;
            } else {
                limbo.answered.get_or_insert(now);
            }
        }
    }

    /// Whether an old batch, or one behind a hole, waits for stragglers.
    #[must_use]
    pub fn awaits_stragglers(&self) -> bool {
        let waits =
            if self.pipeline.waiting() > 0 { self.limbo.is_some() && self.straggling.get() } else { self.holed };
        waits && matches!(self.phase, Phase::Copying) && self.pipeline.sent() == 0
    }

    /// When the target should be asked again.
    pub(super) fn next_question(&self) -> Option<Instant> {
        if !self.awaits_stragglers() {
            return None;
        }
        let limbo = if self.pipeline.waiting() > 0 { &self.limbo } else { &self.unproven };
        limbo.as_ref()?.over_at()
    }
}
