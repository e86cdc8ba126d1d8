//! Whether a partition gets on: since when it has not moved although there is something to copy, since when it is in its
//! state, and when that state has lasted long enough to be recorded on the target.
//!
//! A machine without clock; `shard::watching` shows it each partition that is not calm every other second, and every
//! partition when something happened to it. A calm one (caught up and recorded as such, or stopped) costs nothing.

use std::time::Duration;

use tokio::time::Instant;

use super::partition::PartitionState;

/// A state that lasts so long is recorded. Shorter ones are the ordinary course of things.
pub(crate) const LASTING: Duration = Duration::from_secs(5);
/// A partition whose state changes all the time is not recorded for that alone more often than this.
const RECORD_PAUSE: Duration = Duration::from_secs(30);
/// By default no producer's transaction may stay open for longer (`transaction.max.timeout.ms`).
pub(crate) const HELD_BOUND: Duration = Duration::from_secs(900);

/// What is known of one partition.
#[derive(Debug)]
pub(crate) struct Watch {
    position: (i64, i64),
    /// When the position moved last, or nothing was left to copy.
    moved_at: Instant,
    moved_ms: i64,
    code: &'static str,
    since: Instant,
    since_ms: i64,
    /// The code recorded last, and when one was recorded for its own sake.
    recorded: &'static str,
    recorded_at: Option<Instant>,
    /// It was told that it does not get on.
    stuck: bool,
    /// What an earlier incarnation stood for, and since when.
    former: Option<(String, i64)>,
}

/// What there is to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Nothing is to be done, or somebody has to decide.
    Settled,
    /// Caught up, and held back by a transaction.
    Held,
    /// It should get on.
    Busy,
}

fn kind(state: &PartitionState) -> Kind {
    match state {
        PartitionState::CaughtUp | PartitionState::Stopped(_) | PartitionState::Draining => Kind::Settled,
        PartitionState::HeldByTransaction { .. } => Kind::Held,
        _ => Kind::Busy,
    }
}

/// That a partition does not get on any more, or does again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Turn {
    Stuck,
    Free,
}

impl Watch {
    /// `former` is what an earlier incarnation recorded that it stands for, and since when.
    pub(crate) fn new(now: Instant, wall_ms: i64, former: Option<(String, i64)>) -> Self {
        Self {
            position: (0, 0),
            moved_at: now,
            moved_ms: wall_ms,
            code: "",
            since: now,
            since_ms: wall_ms,
            recorded: "",
            recorded_at: None,
            stuck: false,
            former,
        }
    }

    /// Shows it the partition as it is. `position` is how far both sides are; `bound` after how long it is stuck.
    pub(crate) fn see(
        &mut self,
        (now, wall_ms): (Instant, i64),
        position: (i64, i64),
        state: &PartitionState,
        bound: Duration,
    ) -> Option<Turn> {
        // That it is stuck is our own word.
        let code = match state {
            PartitionState::NotMoving { .. } => PartitionState::Copying.code(),
            state => state.code(),
        };
        if code != self.code {
            // It found again what it stood for before the restart.
            let former = self.former.as_ref().filter(|(former, _)| former == code).map(|(_, since_ms)| *since_ms);
            (self.code, self.since, self.since_ms) = (code, now, former.unwrap_or(wall_ms));
        }
        let kind = kind(state);
        if kind != Kind::Settled && position != self.position {
            self.former = None;
        }
        if position != self.position || kind != Kind::Busy {
            (self.position, self.moved_at, self.moved_ms) = (position, now, wall_ms);
        }
        let stuck = match kind {
            Kind::Settled => false,
            Kind::Held => now.saturating_duration_since(self.since) >= HELD_BOUND,
            Kind::Busy => now.saturating_duration_since(self.moved_at) >= bound,
        };
        if stuck == std::mem::replace(&mut self.stuck, stuck) {
            return None;
        }
        Some(if stuck { Turn::Stuck } else { Turn::Free })
    }

    /// Whether it was told that it does not get on.
    pub(crate) fn is_stuck(&self) -> bool {
        self.stuck
    }

    /// Since when it has not moved, in milliseconds, if it should have.
    pub(crate) fn stuck_since_ms(&self) -> Option<i64> {
        let held = self.code == "held-by-transaction";
        self.stuck.then_some(if held { self.since_ms } else { self.moved_ms })
    }

    /// Since when it has been in its state, in milliseconds.
    pub(crate) fn since_ms(&self) -> i64 {
        self.since_ms
    }

    /// What is to be recorded of it, apart from reasons.
    fn word(&self) -> &'static str {
        if self.stuck && self.code == PartitionState::Copying.code() { NOT_MOVING } else { self.code }
    }

    /// Whether its state is to be recorded now.
    pub(crate) fn wants_record(&self, now: Instant) -> bool {
        self.word() != self.recorded
            && now.saturating_duration_since(self.since) >= LASTING
            && self.recorded_at.is_none_or(|at| now.saturating_duration_since(at) >= RECORD_PAUSE)
    }

    /// A record with this code was offered; `for_state` says that nothing else was the reason.
    pub(crate) fn offered(&mut self, now: Instant, code: &'static str, for_state: bool) {
        self.recorded = code;
        if for_state {
            self.recorded_at = Some(now);
        }
    }

    /// What is recorded now of a partition in this state: what is over in a moment is passed over.
    pub(crate) fn to_record(&self, state: &PartitionState, wall_ms: i64) -> &'static str {
        let lasts = self.since_ms.saturating_add(LASTING.as_millis().try_into().unwrap_or(i64::MAX)) <= wall_ms;
        match state {
            state if lasts || kind(state) != Kind::Busy => state.code(),
            _ => PartitionState::Copying.code(),
        }
    }

    /// What was offered did not become durable.
    pub(crate) fn not_recorded(&mut self) {
        self.recorded = "";
    }

    /// Whether nothing is to be looked at before something happens to it. What stands is recorded by its machine.
    pub(crate) fn is_calm(&self, state: &PartitionState) -> bool {
        let recorded = self.word() == self.recorded || !matches!(state, PartitionState::CaughtUp);
        kind(state) == Kind::Settled && recorded
    }
}

/// The code of a partition that should copy and does not.
pub(crate) const NOT_MOVING: &str = "not-moving";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::partition::StopReason;

    const BOUND: Duration = Duration::from_secs(60);

    struct Clock(Instant);

    impl Clock {
        fn at(&self, seconds: u64) -> (Instant, i64) {
            (self.0 + Duration::from_secs(seconds), i64::try_from(seconds).unwrap() * 1000)
        }
    }

    fn watch() -> (Clock, Watch) {
        let clock = Clock(Instant::now());
        let watch = Watch::new(clock.0, 0, None);
        (clock, watch)
    }

    #[test]
    fn what_has_something_to_copy_and_does_not_move_is_stuck_until_it_does() {
        let (clock, mut watch) = watch();
        let copying = PartitionState::Copying;
        assert_eq!(watch.see(clock.at(0), (10, 10), &copying, BOUND), None);
        assert_eq!(watch.see(clock.at(50), (11, 11), &copying, BOUND), None);
        assert_eq!(watch.see(clock.at(109), (11, 11), &copying, BOUND), None);
        assert_eq!(watch.see(clock.at(110), (11, 11), &copying, BOUND), Some(Turn::Stuck));
        let told = PartitionState::NotMoving { why: "x".into() };
        assert_eq!(watch.see(clock.at(120), (11, 11), &told, BOUND), None);
        assert_eq!(watch.stuck_since_ms(), Some(50_000));
        assert!(watch.wants_record(clock.at(120).0));
        assert_eq!(watch.see(clock.at(121), (12, 12), &told, BOUND), Some(Turn::Free));
        assert_eq!(watch.stuck_since_ms(), None);
    }

    #[test]
    fn nothing_to_copy_is_never_stuck_and_time_begins_with_the_first_record() {
        let (clock, mut watch) = watch();
        watch.see(clock.at(0), (10, 10), &PartitionState::CaughtUp, BOUND);
        assert_eq!(watch.see(clock.at(9000), (10, 10), &PartitionState::CaughtUp, BOUND), None);
        assert_eq!(watch.see(clock.at(9001), (10, 10), &PartitionState::Copying, BOUND), None);
        assert_eq!(watch.see(clock.at(9059), (10, 10), &PartitionState::Copying, BOUND), None);
        assert_eq!(watch.see(clock.at(9060), (10, 10), &PartitionState::Copying, BOUND), Some(Turn::Stuck));
        let stopped = PartitionState::Stopped(StopReason::SourceGone);
        assert_eq!(watch.see(clock.at(9061), (10, 10), &stopped, BOUND), Some(Turn::Free));
        assert!(watch.is_calm(&stopped));
    }

    #[test]
    fn any_wait_that_lasts_is_told_and_a_transaction_has_a_quarter_of_an_hour() {
        let (clock, mut watch) = watch();
        watch.see(clock.at(0), (0, 0), &PartitionState::Locating, BOUND);
        assert_eq!(watch.see(clock.at(60), (0, 0), &PartitionState::AwaitingAnchor, BOUND), Some(Turn::Stuck));
        let held = PartitionState::HeldByTransaction { last_stable_offset: 1, high_watermark: 2 };
        assert_eq!(watch.see(clock.at(61), (1, 1), &held, BOUND), Some(Turn::Free));
        assert_eq!(watch.see(clock.at(960), (1, 1), &held, BOUND), None);
        assert_eq!(watch.see(clock.at(961), (1, 1), &held, BOUND), Some(Turn::Stuck));
    }

    #[test]
    fn a_state_is_recorded_when_it_lasts_and_no_oftener_than_twice_a_minute() {
        let (clock, mut watch) = watch();
        let mut records = 0;
        for second in 0..600 {
            // Back and forth, every ten seconds.
            let state = match second / 10 % 2 {
                0 => PartitionState::AwaitingTarget { why: "x".into() },
                _ => PartitionState::CaughtUp,
            };
            let at = clock.at(second);
            watch.see(at, (0, 0), &state, BOUND);
            if watch.wants_record(at.0) {
                assert!(second % 10 >= 5, "it had not lasted");
                watch.offered(at.0, state.code(), true);
                records += 1;
            }
        }
        assert!((15..=20).contains(&records), "{records}");
        let caught_up = PartitionState::CaughtUp;
        for second in 600..10_000 {
            let at = clock.at(second);
            watch.see(at, (0, 0), &caught_up, BOUND);
            if watch.wants_record(at.0) {
                watch.offered(at.0, caught_up.code(), true);
                records += 1;
            }
        }
        assert!(records <= 21 && watch.is_calm(&caught_up), "an idle one is not written again");
        watch.not_recorded();
        assert!(!watch.is_calm(&caught_up) && watch.wants_record(clock.at(10_001).0));
    }

    #[test]
    fn what_stands_for_the_same_after_a_restart_has_stood_since_before() {
        let clock = Clock(Instant::now());
        let mut watch = Watch::new(clock.0, 0, Some(("source-gone".into(), -5)));
        watch.see(clock.at(0), (0, 0), &PartitionState::Locating, BOUND);
        watch.see(clock.at(1), (0, 0), &PartitionState::Stopped(StopReason::SourceGone), BOUND);
        assert_eq!(watch.since_ms(), -5);
        watch.see(clock.at(2), (1, 1), &PartitionState::Copying, BOUND);
        watch.see(clock.at(3), (1, 1), &PartitionState::Stopped(StopReason::SourceGone), BOUND);
        assert_eq!(watch.since_ms(), 3000);
    }
}
