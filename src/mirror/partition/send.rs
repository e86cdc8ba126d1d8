//! The way of a batch from the queue through the window to its acknowledgement.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    machine::{PartitionMachine, Phase},
    pipeline::Way,
    state::StopReason,
    types::{Break, Outbound, ProduceOutcome, Ticket},
};
use crate::{
    batch::HEADER_LEN,
    client::recovery::{ProduceStep, produce_step},
    protocol::{ErrorCode, FrameSlice, LeaderEpoch, TopicPartition},
    simulation::{self, Planted},
};

/// So often a batch is sent again that arrives damaged; then it is no accident.
const DAMAGED_MAX: u32 = 3;

impl PartitionMachine {
    /// The next source offset to fetch, the leader epoch of the batch before it and the limit in bytes; `None` while
    /// the partition must not be in a fetch session. `queue_bytes_max` bounds what may wait for sending.
    #[must_use]
    pub fn fetch_want(&self, now: Instant, queue_bytes_max: usize) -> Option<(i64, LeaderEpoch, i32)> {
        let flowing = matches!(self.phase, Phase::Matching { .. } | Phase::Anchoring | Phase::Copying);
        let held = self.hold.as_ref().is_some_and(|hold| hold.0 > now);
        if !flowing || held || self.ask_source || self.blocked.is_some() || self.draining || self.source_gone.is_some()
        {
            return None;
        }
        if self.doubted || self.holed {
            return None;
        }
        if self.is_queue_full(queue_bytes_max) {
            return None;
        }
        Some((self.prepared.source_next, self.taken_epoch, self.partition_bytes_max))
    }

    /// Whether so much waits for sending that nothing more should be fetched. Two batches always may wait, whatever
    /// their size: one that is being fetched while the other one is being sent.
    #[must_use]
    pub fn is_queue_full(&self, queue_bytes_max: usize) -> bool {
        self.queue_bytes >= queue_bytes_max && self.pipeline.waiting() >= 2
    }

    /// Whether a batch may be sent now. `wall_ms` is the time of day in milliseconds.
    #[must_use]
    pub fn can_send(&self, wall_ms: i64) -> bool {
        if !matches!(self.phase, Phase::Copying) || self.draining || self.target_gone.is_some() || self.tail_is_full() {
            return false;
        }
        let Some(next) = self.pipeline.next() else {
            return false;
        };
        let old = |timestamp: i64| wall_ms.saturating_sub(timestamp) > age_ms(self.settings.old_age);
        if self.limbo.is_some() {
            let straggling = old(next.max_timestamp) && !simulation::has(Planted::StragglersIgnored);
            self.straggling.set(straggling);
            if straggling {
                return false;
            }
        }
        // (F) The broker orders a window only while it has our producer state, which it drops by the age of the
        // newest record (`broker-experiments.md` section 0.2): that of the batch before the window as well, which may
        // have been acknowledged long ago.
        let window = if simulation::has(Planted::WindowFromTheStart) {
            self.settings.window_max
        } else if !self.confirmed
            || old(self.confirmed_timestamp)
            || old(next.max_timestamp)
            || self.pipeline.newest_in_flight().is_some_and(|last| old(last.max_timestamp))
        {
            1
        } else {
            self.settings.window_max
        };
        self.pipeline.sent() < window
    }

    /// The next batch, in flight from now on; `None` if [`Self::can_send`] says no. The outcome must come back through
    /// [`Self::handle_produced`] or [`Self::handle_lane_lost`].
    pub fn take_batch(&mut self, wall_ms: i64) -> Option<Outbound> {
        self.send_next(wall_ms, |_, ticket, head, batch| Outbound { ticket, head: *head, batch: batch.to_bytes() })
    }

    /// As [`Self::take_batch`], without a copy of the header: `send` is given target, ticket, header and batch.
    pub fn send_next<T>(
        &mut self,
        wall_ms: i64,
        send: impl FnOnce(&TopicPartition, Ticket, &[u8; HEADER_LEN], FrameSlice<'_>) -> T,
    ) -> Option<T> {
        if !self.can_send(wall_ms) {
            return None;
        }
        let next = self.pipeline.send()?;
        self.queue_bytes = self.queue_bytes.saturating_sub(next.bytes);
        next.ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let batch = std::mem::take(&mut next.batch);
        Some(send(&self.spec.target, next.ticket, &next.head, (&batch).into()))
    }

    /// Size in bytes of the batch that [`Self::take_batch`] would give.
    #[must_use]
    pub fn next_batch_bytes(&self) -> usize {
        self.pipeline.next().map_or(0, |next| next.bytes)
    }

    /// Whether batches are queued or in flight.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pipeline.is_empty()
    }

    /// Whether outcomes are awaited: the partition must stay on its lane.
    #[must_use]
    pub fn has_in_flight(&self) -> bool {
        self.pipeline.in_flight().any(|batch| !batch.settled)
    }

    /// Whether a batch that was taken, but not sent yet, may still be: nothing before it failed.
    #[must_use]
    pub fn is_to_send(&self, ticket: Ticket) -> bool {
        self.is_copying() && self.pipeline.in_flight().any(|batch| batch.ticket == ticket && !batch.settled)
    }

    /// When [`Self::handle_timeout`] wants to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let phase = match &self.phase {
            Phase::Locating { not_before, asked: false, .. } | Phase::ReadingTail { not_before, asked: false, .. } => {
                Some(*not_before)
            }
            Phase::Stopped { retry_at, .. } => *retry_at,
            _ => None,
        };
        let hold = self.hold.as_ref().map(|hold| hold.0);
        let history = if self.doubted { self.past.timeout() } else { None };
        [phase, hold, self.match_until, history, self.next_question()].into_iter().flatten().min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.hold.as_ref().is_some_and(|hold| hold.0 <= now) {
            self.hold = None;
        }
        if self.match_until.is_some_and(|until| until <= now) {
            self.handle_match_timeout(now);
        }
        if self.next_question().is_some_and(|at| at <= now) {
            self.relocate(now);
        }
        if let Phase::Stopped { retry_at: Some(at), reason } = &self.phase
            && *at <= now
        {
            if self.is_still_gone() {
                self.phase =
                    Phase::Stopped { reason: reason.clone(), retry_at: Some(now + self.settings.stopped_retry) };
                return;
            }
            if matches!(reason, StopReason::RecordTooLarge { .. }) {
                // The limit may have been raised meanwhile: from now on the target's answer decides.
                self.limit_is_guess = true;
            }
            self.blocked = None;
            self.corrupt_attempts = 0;
            self.relocate(now);
        }
    }

    /// The outcome of a batch in flight. Returns whether the leaders should be learnt anew.
    pub fn handle_produced(&mut self, now: Instant, ticket: Ticket, outcome: ProduceOutcome) -> bool {
        let Some(index) = self.pipeline.in_flight().position(|batch| batch.ticket == ticket) else {
            // Forgotten by a reconcile that came before this answer; what it says was learnt there.
            return false;
        };
        let mut refresh = false;
        match outcome {
            ProduceOutcome::Stored { base_offset, already }
                if index == 0
                    && self.pipeline.in_flight().next().is_some_and(|batch| {
                        batch.before.target_next == base_offset || simulation::has(Planted::AnyOffsetAcknowledges)
                    }) =>
            {
                if !self.confirmed {
                    // Failures end the confirmation, so there is nothing to forget while it lasts.
                    self.backoff.reset();
                }
                self.acknowledge_first(already);
            }
            ProduceOutcome::Stored { .. } => {
                // The topic may be another one of the same name.
                refresh = true;
                self.unsettle(index, None);
            }
            ProduceOutcome::Unknown => {
                self.enter_limbo(now);
                self.unsettle(index, None);
            }
            ProduceOutcome::Failed { code, message } => match produce_step(code) {
                ProduceStep::Reconcile { refresh: wanted } => {
                    refresh = wanted;
                    self.unsettle(index, None);
                }
                ProduceStep::SendAgain | ProduceStep::Refuse => self.unsettle(index, Some((ticket, code, message))),
            },
        }
        self.settle_if_complete(now);
        refresh
    }

    /// The connection that carried what is in flight is gone.
    pub fn handle_lane_lost(&mut self, now: Instant) {
        // A new connection begins with a window of one, whatever was confirmed on the old one.
        self.confirmed = false;
        if self.pipeline.sent() == 0 {
            return;
        }
        if self.has_in_flight() {
            self.enter_limbo(now);
        }
        for batch in self.pipeline.in_flight_mut() {
            batch.settle();
        }
        self.unsettle(0, None);
        self.settle_if_complete(now);
    }

    /// Another broker leads the target partition now, or the same one anew.
    pub fn handle_target_leader_changed(&mut self, now: Instant) {
        match self.phase {
            // Answers of the former leader still come, or its connection breaks; both end the settling.
            Phase::Copying if self.pipeline.sent() > 0 => self.phase = Phase::Settling { refused: None },
            Phase::ReadingTail { .. } | Phase::Matching { .. } | Phase::Anchoring | Phase::Copying => {
                self.relocate(now)
            }
            // The target is about to be asked, or is not wanted.
            Phase::Locating { .. } | Phase::Settling { .. } | Phase::Stopped { .. } => {}
        }
    }

    /// (C) The oldest batch in flight is stored where it was expected.
    pub(super) fn acknowledge_first(&mut self, already: bool) {
        let Some(batch) = self.pipeline.first_in_flight_mut() else {
            return;
        };
        let (source_base, target_base, gaps) =
            (batch.source_base, batch.before.target_next, std::mem::take(&mut batch.gaps));
        self.acked = batch.after;
        self.acked_epoch = batch.leader_epoch;
        self.confirmed = true;
        // The broker remembers it, or it was old and nothing was left to wait for.
        self.limbo = None;
        self.confirmed_timestamp = batch.max_timestamp;
        self.tail_bytes = self.tail_bytes.saturating_add(batch.bytes as u64);
        self.anchor_dirty = true;
        self.progress.records += u64::try_from(batch.records).unwrap_or(0);
        self.progress.bytes_out += batch.bytes as u64;
        self.progress.batches += 1;
        match batch.way {
            Way::Sealed => {}
            Way::SealedAppendTime => self.progress.sealed_append_time.add(1, batch.bytes as u64),
            Way::Opened(reason) => self.progress.opened.of_mut(reason).add(1, batch.bytes as u64),
        }
        self.progress.already_there += u64::from(already);
        self.newest_timestamp = self.newest_timestamp.max(batch.max_timestamp);
        self.pipeline.forget_first();
        self.count_runs(source_base, target_base, &gaps);
    }

    /// Notes the breaks of a batch whose records have missing offsets between them: before each the distance changes.
    pub(super) fn count_runs(&mut self, source_base: i64, target_base: i64, gaps: &[(i32, i64)]) {
        self.count_run(source_base, target_base);
        for (index, offset) in gaps {
            self.count_run(*offset, target_base.saturating_add(i64::from(*index)));
        }
    }

    /// Notes a break where the distance between both logs changes (`design.md` 5).
    pub(super) fn count_run(&mut self, source_base: i64, target_base: i64) {
        let distance = target_base.wrapping_sub(source_base);
        if self.run != Some(distance) {
            self.run = Some(distance);
            self.breaks.push(Break { source_start: source_base, target_start: target_base });
        }
    }

    fn unsettle(&mut self, index: usize, refusal: Option<(Ticket, ErrorCode, Option<String>)>) {
        if let Some(batch) = self.pipeline.in_flight_mut().nth(index) {
            batch.settle();
        }
        match &mut self.phase {
            Phase::Settling { refused } if refused.is_none() => *refused = refusal,
            Phase::Copying => self.phase = Phase::Settling { refused: refusal },
            // Another refusal came first; or it is stopped; or the target is being asked already, and another look-up
            // would only race with the first.
            _ => {}
        }
    }

    fn settle_if_complete(&mut self, now: Instant) {
        let Phase::Settling { refused } = &mut self.phase else {
            return;
        };
        if self.pipeline.in_flight().any(|batch| !batch.settled) {
            return;
        }
        // A refusal counts only if it is the first thing that went wrong: a later batch is refused for many reasons
        // once one before it failed.
        let first =
            self.pipeline.in_flight().next().map(|batch| (batch.ticket, batch.source_base, batch.records, batch.bytes));
        if let (Some((ticket, code, message)), Some((first, offset, records, bytes))) = (refused.take(), first)
            && ticket == first
        {
            if matches!(code, ErrorCode::MESSAGE_TOO_LARGE | ErrorCode::RECORD_LIST_TOO_LARGE) {
                // Nothing was appended and no sequence used: the same records go again in smaller batches.
                if records > 1 {
                    self.learn_limit(bytes);
                    self.relocate(now);
                } else {
                    // As the topic says it: one that was concluded from refusals would be no more than a hint.
                    let limit = self.spec.target_batch_bytes_max.filter(|limit| *limit < bytes);
                    self.stop(now, StopReason::RecordTooLarge { offset, bytes, limit });
                }
                return;
            }
            if produce_step(code) == ProduceStep::SendAgain && self.count_damaged(offset) < DAMAGED_MAX {
                self.relocate(now);
                return;
            }
            let message = message.filter(|text| !text.is_empty());
            self.stop(now, StopReason::Refused { offset, code, message });
            return;
        }
        self.relocate(now);
    }

    /// How often in a row the batch at this source offset arrived damaged, this time included.
    fn count_damaged(&mut self, offset: i64) -> u32 {
        let times = self.damaged.filter(|(at, _)| *at == offset).map_or(0, |(_, times)| times);
        let times = times.saturating_add(1);
        self.damaged = Some((offset, times));
        times
    }

    /// (D) Everything queued is dropped and the target is asked; what is in flight is kept as a list of what may be
    /// found there.
    pub(super) fn relocate(&mut self, now: Instant) {
        self.drop_queue();
        self.undo_rewind();
        self.past.rewind();
        self.confirmed = false;
        self.blocked = None;
        self.holed = false;
        if simulation::has(Planted::ResendWithoutReconcile) && self.located {
            self.limbo = None;
            self.begin_copying(self.acked, self.acked_epoch);
            return;
        }
        // The first failure asks at once, since most are over by then; a failure after it waits.
        let first = self.backoff.attempt() == 0;
        let delay = self.backoff.next_delay();
        let not_before = if first { now } else { now + delay };
        self.phase = Phase::Locating { not_before, asked: false, awaiting_high_watermark: false };
    }

    pub(super) fn drop_queue(&mut self) {
        self.progress.bytes_in_vain += self.queue_bytes as u64;
        self.pipeline.drop_waiting();
        self.queue_bytes = 0;
    }

    /// Stands still, visibly, unless the settings say how to go on. What was queued is dropped; the position stays.
    pub(super) fn stop(&mut self, now: Instant, reason: StopReason) {
        self.drop_queue();
        self.undo_rewind();
        if self.goes_on_by_policy(now, &reason) {
            return;
        }
        let retry_at = reason.is_retried().then(|| now + self.settings.stopped_retry);
        self.phase = Phase::Stopped { reason, retry_at };
        self.note_stopped();
    }
}

fn age_ms(age: Duration) -> i64 {
    i64::try_from(age.as_millis()).unwrap_or(i64::MAX)
}
