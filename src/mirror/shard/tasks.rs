//! What a shard does by the clock: timers of partitions, reports, anchors.

use std::{cmp::Reverse, collections::BTreeSet, rc::Rc, time::Duration};

use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};

use super::{
    Shard,
    watching::{LINES_MAX, LOOK_PAUSE},
};
use crate::{
    mirror::{
        partition::{PartitionMachine, PartitionState},
        report::{AnchorOffer, PartitionReport, Report},
    },
    wall_clock,
};

/// How often changed partitions are told to the control thread.
const REPORT_INTERVAL: Duration = Duration::from_millis(250);

/// Between two offers of anchors.
const OFFER_PAUSE: Duration = Duration::from_millis(10);

impl Shard {
    pub(super) async fn timers(self: Rc<Self>) {
        loop {
            let next = self.timers.borrow().peek().map(|Reverse((at, _))| *at);
            let moved = self.timer_moved.notified();
            match next {
                Some(at) => tokio::select! {
                    biased;
                    () = self.stop.cancelled() => return,
                    () = moved => continue,
                    () = sleep_until(at) => {}
                },
                None => tokio::select! {
                    biased;
                    () = self.stop.cancelled() => return,
                    () = moved => continue,
                },
            }
            let now = Instant::now();
            loop {
                let due = {
                    let mut timers = self.timers.borrow_mut();
                    match timers.peek() {
                        Some(Reverse((at, copy))) if *at <= now => {
                            let due = (*at, *copy);
                            timers.pop();
                            due
                        }
                        _ => break,
                    }
                };
                self.with(due.1, |entry, now| {
                    if entry.timer == Some(due.0) {
                        entry.timer = None;
                    }
                    entry.machine.handle_timeout(now);
                });
            }
        }
    }

    /// Tells the control thread what changed, a few times a second, and logs changes of state.
    pub(super) async fn reporting(self: Rc<Self>) {
        let mut next_look = Instant::now() + LOOK_PAUSE;
        loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = tokio::time::sleep(REPORT_INTERVAL) => {}
            }
            let now = Instant::now();
            self.note_reaches(now);
            self.pulse();
            if now >= next_look {
                next_look = now + LOOK_PAUSE;
                self.watch(now);
            }
            let wall_ms = wall_clock::now_ms();
            let changed = std::mem::take(&mut *self.changed.borrow_mut());
            if changed.is_empty() {
                continue;
            }
            let mut rows = Vec::with_capacity(changed.len());
            for copy in &changed {
                let mut entries = self.entries.borrow_mut();
                let Some(entry) = entries.get_mut(copy) else {
                    continue;
                };
                entry.change_listed = false;
                for notice in entry.machine.take_notices() {
                    let spec = entry.machine.spec();
                    if self.rare.allows_some(now, "went on behind an incident", -1, LINES_MAX) {
                        warn!(topic = spec.source.topic.as_str(), partition = spec.source.partition.0, "{notice}");
                    }
                }
                let (state, of_broker) = self.shown_state(entry, now);
                let retrying = entry.shown.as_ref().is_some_and(is_stopped) && !moves_on(&state, &entry.machine);
                if entry.shown.as_ref().map(PartitionState::code) != Some(state.code()) && !retrying {
                    // What a broker does to all of its partitions is said once.
                    let allowed = || self.rare.allows_some(now, state.code(), -1, LINES_MAX);
                    if !of_broker && (!is_worth_a_line(entry.shown.as_ref(), &state) || allowed()) {
                        log_state(entry.shown.as_ref(), &state, &entry.machine);
                    }
                    entry.shown = Some(state.clone());
                }
                let seen = if retrying { entry.shown.clone().unwrap_or_else(|| state.clone()) } else { state.clone() };
                self.see(entry, (now, wall_ms), &seen);
                if !entry.watch.is_calm(&seen) {
                    self.watched.borrow_mut().insert(*copy);
                }
                let watch = &entry.watch;
                let (since_ms, not_moving_since_ms) = (watch.since_ms(), watch.stuck_since_ms());
                let machine = &entry.machine;
                rows.push((
                    *copy,
                    PartitionReport {
                        state,
                        since_ms,
                        not_moving_since_ms,
                        located: machine.is_located(),
                        source_next: machine.acked().source_next,
                        lag: machine.lag(),
                        newest_timestamp: machine.newest_timestamp(),
                        progress: *machine.progress(),
                        losses: machine.losses().to_vec(),
                        reached_goal: machine.reached_goal(),
                    },
                ));
            }
            if self.reports.try_send(Report::Partitions(rows)).is_err() {
                for copy in changed {
                    self.look(copy, |entry| entry.change_listed = true);
                    self.changed.borrow_mut().insert(copy);
                }
            }
        }
    }

    /// Offers anchors for committing: those that something waits for at once, the others once an interval.
    pub(super) async fn anchoring(self: Rc<Self>) {
        let mut next = Instant::now() + self.anchor_interval;
        loop {
            let urgent = tokio::select! {
                biased;
                () = self.stop.cancelled() => return,
                () = self.anchor_now.notified() => true,
                () = sleep_until(next) => false,
            };
            if !urgent {
                next = Instant::now() + self.anchor_interval;
            }
            let (now, wall_ms) = (Instant::now(), wall_clock::now_ms());
            let mut offers = Vec::new();
            let due = std::mem::take(&mut *self.anchor_due.borrow_mut());
            let mut later = BTreeSet::new();
            for copy in due {
                let mut entries = self.entries.borrow_mut();
                let Some(entry) = entries.get_mut(&copy) else {
                    continue;
                };
                entry.anchor_listed = false;
                let wanted = entry.machine.wants_anchor();
                if entry.anchor_pending || !wanted && !entry.record_due {
                    continue;
                }
                let now_due = entry.machine.wants_anchor_now()
                    || entry.machine.tail_bytes() >= self.anchor_bytes
                    || entry.machine.is_drained();
                if urgent && !now_due {
                    entry.anchor_listed = true;
                    later.insert(copy);
                    continue;
                }
                let found = if wanted { entry.machine.record() } else { entry.machine.state_record() };
                let Some((mut record, breaks)) = found else {
                    entry.record_due = false;
                    continue;
                };
                let breaks = breaks.to_vec();
                self.stamp(entry, &mut record, now, wall_ms);
                let spec = entry.machine.spec();
                let offer = AnchorOffer {
                    copy,
                    source: spec.source.clone(),
                    target: spec.target.clone(),
                    record,
                    breaks,
                    tail_bytes: entry.machine.tail_bytes(),
                };
                entry.machine.anchor_taken();
                entry.anchor_pending = true;
                offers.push(offer);
            }
            self.anchor_due.borrow_mut().extend(later);
            if offers.is_empty() {
                continue;
            }
            debug!(partitions = offers.len(), "anchors offered");
            if self.reports.send(Report::Anchors(offers)).await.is_err() {
                return;
            }
            // Where anchors are refused at once (the lease is over, the queue is full), what cannot wait would be offered
            // again at once, for ever.
            tokio::time::sleep(OFFER_PAUSE).await;
        }
    }
}

fn is_stopped(state: &PartitionState) -> bool {
    matches!(state, PartitionState::Stopped(_))
}

/// Whether a partition that stood does so no longer, rather than being tried again.
fn moves_on(state: &PartitionState, machine: &PartitionMachine) -> bool {
    match state {
        PartitionState::CaughtUp | PartitionState::HeldByTransaction { .. } | PartitionState::Stopped(_) => true,
        // The first acknowledgement after a look-up.
        PartitionState::Copying => machine.is_confirmed(),
        _ => false,
    }
}

/// Whether a change of state is told above the level of `debug`.
fn is_worth_a_line(before: Option<&PartitionState>, state: &PartitionState) -> bool {
    is_stopped(state)
        || before.is_some_and(is_stopped)
        || matches!(
            state,
            PartitionState::AwaitingSource { .. }
                | PartitionState::AwaitingTarget { .. }
                | PartitionState::AwaitingAnchor
        )
}

fn log_state(before: Option<&PartitionState>, state: &PartitionState, machine: &PartitionMachine) {
    let spec = machine.spec();
    let (topic, partition) = (spec.source.topic.as_str(), spec.source.partition.0);
    match state {
        PartitionState::Stopped(reason) => {
            warn!(topic, partition, reason = %reason, remedy = %reason.remedy_for(topic), "partition stopped");
        }
        // Held by a transaction is what every busy transactional topic is for moments; status and progress show it.
        PartitionState::AwaitingSource { .. }
        | PartitionState::AwaitingTarget { .. }
        | PartitionState::AwaitingAnchor => {
            warn!(topic, partition, state = %state, "partition waits")
        }
        _ if before.is_some_and(is_stopped) => {
            info!(topic, partition, state = %state, "partition goes on");
        }
        _ => debug!(topic, partition, state = %state, "partition state"),
    }
}
