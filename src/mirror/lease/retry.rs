//! Waits between retries: doubling, capped, jittered by a seed.

use std::time::Duration;

/// First wait; the coordinator is back after 0.1-0.3 s in most failovers (S13).
const FIRST: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Retry {
    seed: u64,
    tries: u32,
    longest: Duration,
}

impl Retry {
    pub(super) fn new(seed: u64, longest: Duration) -> Self {
        Self { seed, tries: 0, longest }
    }

    /// The next wait: half to all of 100 ms, 200 ms, 400 ms ... the longest.
    pub(super) fn next_wait(&mut self) -> Duration {
        let wait = (FIRST * (1 << self.tries.min(10))).min(self.longest);
        self.tries = self.tries.saturating_add(1);
        self.jitter(wait)
    }

    /// Half to all of the given wait.
    pub(super) fn jitter(&mut self, wait: Duration) -> Duration {
        // splitmix64 (Steele, Lea, Flood 2014): good enough to keep workers apart.
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = (self.seed ^ (self.seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let part = u32::try_from((bits >> 48) & 0x3ff).unwrap_or(0);
        wait / 2 + wait / 2 * part / 1023
    }

    pub(super) fn succeeded(&mut self) {
        self.tries = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_start_anew_after_a_success() {
        let longest = Duration::from_secs(2);
        let mut retry = Retry::new(7, longest);
        for expected in [100, 200, 400, 800, 1600, 2000, 2000, 2000] {
            let wait = retry.next_wait().as_millis();
            assert!((expected / 2..=expected).contains(&wait), "{wait} for {expected}");
        }
        retry.succeeded();
        assert!(retry.next_wait() <= FIRST);
        assert_ne!(Retry::new(1, longest).next_wait(), Retry::new(2, longest).next_wait());
    }
}
