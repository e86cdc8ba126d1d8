//! Watches that partitions get on, and has states that last recorded on the target.
//!
//! Only partitions that are not calm are looked at, so that idle ones cost nothing.

use std::{rc::Rc, time::Duration};

use tokio::time::Instant;
use tracing::{info, warn};

use super::{Entry, Shard};
use crate::{
    mirror::{
        anchor::{Record, Seen},
        partition::PartitionState,
        reach::Side,
        report::CopyId,
        watchdog::Turn,
    },
    wall_clock,
};

/// Between two looks at those that are not calm.
pub(super) const LOOK_PAUSE: Duration = Duration::from_secs(2);
/// Lines of one kind about partitions in half a minute: enough to see which they are, if they are few.
pub(super) const LINES_MAX: u32 = 20;

impl Shard {
    /// Shows the watchdog a partition; true if it began or ceased to be stuck, which is said.
    pub(super) fn see(&self, entry: &mut Entry, at: (Instant, i64), state: &PartitionState) -> bool {
        let position = entry.machine.acked();
        let turn = entry.watch.see(at, (position.source_next, position.target_next), state, self.not_moving);
        if let Some(turn) = turn {
            self.tell_turn(entry, turn, state, at);
        }
        turn.is_some()
    }

    /// Looks at all partitions that are not calm.
    pub(super) fn watch(&self, now: Instant) {
        let watched: Vec<CopyId> = self.watched.borrow().iter().copied().collect();
        let wall_ms = wall_clock::now_ms();
        for copy in watched {
            let mut entries = self.entries.borrow_mut();
            let Some(entry) = entries.get_mut(&copy) else {
                self.watched.borrow_mut().remove(&copy);
                continue;
            };
            // Retried ones are still what they stand for.
            let (state, _) = self.shown_state(entry, now);
            let code = entry.shown.as_ref().map(PartitionState::code);
            let seen = if code == Some(state.code()) { None } else { entry.shown.clone() };
            let seen = seen.unwrap_or(state);
            if self.see(entry, (now, wall_ms), &seen) {
                entry.change_listed = true;
                self.changed.borrow_mut().insert(copy);
            }
            if entry.watch.wants_record(now) && !entry.anchor_pending && !entry.record_due {
                entry.record_due = true;
                entry.anchor_listed = true;
                self.anchor_due.borrow_mut().insert(copy);
            }
            if entry.watch.is_calm(&seen) {
                self.watched.borrow_mut().remove(&copy);
            }
        }
        for (what, about, lines) in self.rare.left_out(now) {
            let broker_id = (about >= 0).then_some(about);
            info!(what, broker_id, lines, "more lines of a kind were left out");
        }
    }

    fn tell_turn(&self, entry: &Entry, turn: Turn, state: &PartitionState, (now, wall_ms): (Instant, i64)) {
        let spec = entry.machine.spec();
        let (topic, partition) = (spec.source.topic.as_str(), spec.source.partition.0);
        match turn {
            Turn::Stuck if self.rare.allows_some(now, "partition does not get on", -1, LINES_MAX) => {
                let waits_for = self.waits_on(entry, now);
                let seconds = (wall_ms - entry.watch.stuck_since_ms().unwrap_or(wall_ms)) / 1000;
                warn!(topic, partition, state = %state, waits_for, seconds, "partition does not get on");
            }
            Turn::Free if self.rare.allows_some(now, "partition gets on again", -1, LINES_MAX) => {
                info!(topic, partition, state = %state, "partition gets on again");
            }
            _ => {}
        }
    }

    /// What a partition that should get on waits for.
    pub(super) fn waits_on(&self, entry: &Entry, now: Instant) -> String {
        let machine = &entry.machine;
        let Some(lane) = &entry.lane else {
            return "a leader of the remote partition".into();
        };
        let Some(fetcher) = &entry.fetcher else {
            return "a leader of the source partition".into();
        };
        let (target, source) = (lane.key.broker.0, fetcher.broker.0);
        let sends = machine.next_batch_bytes() > 0 || machine.has_in_flight();
        if let Some(waits) = machine.state().waits() {
            waits
        } else if machine.has_in_flight() {
            format!("an answer of target broker {target} to what was sent")
        } else if sends && !self.lease.allows(now) {
            "the lease: membership of the flow's group is not proven".into()
        } else if machine.locate_want(now).is_some() || machine.needs_target() && !sends {
            format!("answers of target broker {target} and source broker {source} to where the copy stands")
        } else if sends && !lane.is_accepting() {
            format!("a connection to target broker {target}")
        } else if sends {
            format!("its turn on the way to target broker {target}")
        } else if entry.told.1 && lane.account.is_spent() {
            format!("memory: what waits for target broker {target} holds its share")
        } else if entry.told.0.is_some() && self.budget.used() >= self.budget.limit() / 2 {
            "memory: towpath.memory.bytes is spent".into()
        } else if entry.told.0.is_some() {
            format!("an answer of source broker {source} to a fetch")
        } else {
            "nothing that is known: a fault of towpath".into()
        }
    }

    /// Adds to a record how the partition looks from outside.
    pub(super) fn stamp(&self, entry: &mut Entry, record: &mut Record, now: Instant, wall_ms: i64) {
        let (state, _) = self.shown_state(entry, now);
        let at_ms = entry.machine.is_located().then_some(wall_ms);
        let code = entry.watch.to_record(&state, wall_ms);
        let waits = state.waits().filter(|_| code == state.code());
        record.stamp(Seen { state: code, waits, since_ms: entry.watch.since_ms(), at_ms });
        let for_state = std::mem::take(&mut entry.record_due);
        entry.watch.offered(now, code, for_state);
    }

    /// Which broker a partition needs on one side is looked at when it is shown: one that is stuck is named.
    pub(super) fn stuck_state(&self, entry: &Entry, state: PartitionState, now: Instant) -> PartitionState {
        if entry.watch.is_stuck() && state == PartitionState::Copying {
            return PartitionState::NotMoving { why: self.waits_on(entry, now) };
        }
        state
    }

    /// A broker that cannot be reached, once in half a minute.
    pub(crate) fn may_say(&self, what: &'static str, broker: i32) -> bool {
        self.rare.allows(Instant::now(), what, broker)
    }

    /// Notes that a request was not answered.
    pub(crate) fn count_unanswered(&self, side: Side) {
        self.gauges.unanswered.of(side).count();
    }

    /// A sign of life, and how much memory is held.
    pub(super) fn pulse(self: &Rc<Self>) {
        let bytes = |bytes: usize| u64::try_from(bytes).unwrap_or(u64::MAX);
        self.gauges.memory_used.set(bytes(self.budget.used()));
        self.gauges.memory_limit.set(bytes(self.budget.limit()));
        self.gauges.alive_ms.set(u64::try_from(wall_clock::now_ms()).unwrap_or(0));
    }
}
