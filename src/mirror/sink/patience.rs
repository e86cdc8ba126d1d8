//! How long a lane waits for the next answer.

use std::time::Duration;

use tokio::time::Instant;

/// An answer that takes longer holds up partitions that have no part in it: the broker waits for the replicas of one of
/// them, or does not answer at all. The connection is then given up. What was in flight is asked for; whatever waits for
/// replicas waits there, alone, and the others go on. Doubled each time, up to the request timeout, for where everything
/// is slow it helps nobody; back to the first after [`CALM`].
const MUTED_PATIENCE: Duration = Duration::from_secs(2);
const CALM: Duration = Duration::from_secs(60);

/// When a lane has waited long enough for the next answer.
pub(super) struct Patience {
    /// The last answer, or the request that nothing was in flight before.
    pub(super) since: Instant,
    /// About the longest wait of late that ended with an answer: a slow link is not a broker that hangs.
    usual: Duration,
    given_up: u32,
    given_up_at: Option<Instant>,
}

impl Patience {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, usual: Duration::ZERO, given_up: 0, given_up_at: None }
    }

    pub(super) fn answered(&mut self, now: Instant) {
        self.usual = now.duration_since(self.since).max(self.usual - self.usual / 64);
        self.since = now;
    }

    /// Whether to give up now; then the next time takes longer.
    pub(super) fn is_over(&mut self, now: Instant, max: Duration) -> bool {
        if self.given_up_at.is_some_and(|at| now.duration_since(at) > CALM) {
            self.given_up = 0;
        }
        let patience = (MUTED_PATIENCE * (1 << self.given_up.min(8))).max(self.usual * 4);
        let over = patience < max && now.duration_since(self.since) >= patience;
        if over {
            self.given_up += 1;
            self.given_up_at = Some(now);
        }
        over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Duration = Duration::from_secs(30);

    #[test]
    fn a_lane_gives_up_later_each_time_until_it_was_calm() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut patience = Patience::new(start);
        let mut waited = Vec::new();
        for _ in 0..3 {
            let given_up = (1..).find(|seconds| patience.is_over(at(*seconds), MAX)).unwrap();
            waited.push(given_up);
        }
        assert_eq!(waited, [2, 4, 8]);
        assert!(patience.is_over(at(16), MAX));
        assert!(!patience.is_over(at(46), MAX), "the requests' own timeout decides from here on");
        patience.since = at(100);
        assert!(patience.is_over(at(102), MAX), "calm since");
    }

    #[test]
    fn a_slow_link_is_not_given_up() {
        let start = Instant::now();
        let mut patience = Patience::new(start);
        patience.answered(start + Duration::from_secs(3));
        assert!(!patience.is_over(start + Duration::from_secs(3 + 11), MAX));
        assert!(patience.is_over(start + Duration::from_secs(3 + 12), MAX));
    }
}
