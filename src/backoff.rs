//! Exponential backoff with a cap and jitter, seeded so that a simulation repeats.

use std::time::Duration;

use crate::simulation;

/// Delays that double from `first` to `cap`, each drawn from the upper half of its step.
///
/// Jitter keeps many partitions that failed together from coming back together; the lower bound of half a step keeps
/// a failing peer from being asked at once.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    cap: Duration,
    attempt: u32,
    random: u64,
}

impl Backoff {
    /// Starts at `first` (before jitter), never exceeds `cap`.
    #[must_use]
    pub fn new(first: Duration, cap: Duration, seed: u64) -> Self {
        Self { first, cap, attempt: 0, random: seed | 1 }
    }

    /// How many delays were handed out since the last [`Self::reset`].
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The next delay to wait.
    pub fn next_delay(&mut self) -> Duration {
        let step = self.first.saturating_mul(1_u32.checked_shl(self.attempt.min(20)).unwrap_or(u32::MAX)).min(self.cap);
        self.attempt = self.attempt.saturating_add(1);
        // xorshift64: any full-period generator does; the seed comes from the caller.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let half = step / 2;
        let share = u32::try_from(self.random % 1000).unwrap_or(0);
        half + half * share / 1000
    }

    /// Success: the next failure starts small again.
    pub fn reset(&mut self) {
        self.attempt = 0;
    }
}

/// A seed from the operating system, or from the simulation.
#[must_use]
pub fn entropy() -> u64 {
    simulation::entropy().or_else(|| getrandom::u64().ok()).unwrap_or(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_within_half_a_step_and_stop_at_the_cap() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1), 7);
        for step_ms in [100_u64, 200, 400, 800, 1000, 1000] {
            let delay = backoff.next_delay();
            assert!(delay >= Duration::from_millis(step_ms / 2), "{delay:?} below {step_ms}/2");
            assert!(delay <= Duration::from_millis(step_ms), "{delay:?} above {step_ms}");
        }
        backoff.reset();
        assert!(backoff.next_delay() <= Duration::from_millis(100));
    }
}
