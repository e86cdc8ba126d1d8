//! Quotas of brokers, as their answers tell them.
//!
//! A broker whose quota is used up answers at once, says for how long it will read nothing of the connection, and reads
//! nothing (KIP-219). What is sent all the same lies in its socket, where it outlives us: so nothing is sent, and for some
//! time after it one request at a time.

use std::time::Duration;

use tokio::time::Instant;

/// A quota that was used up is respected for so long at most at a time.
const THROTTLED_MAX: Duration = Duration::from_secs(300);
/// After this time it is forgotten.
const CALM: Duration = Duration::from_secs(60);

/// What one connection's answers said.
#[derive(Default)]
pub(super) struct Quota {
    until: Option<Instant>,
}

impl Quota {
    /// The broker said that it reads nothing for so many milliseconds; returns until when that is.
    pub(super) fn used_up(&mut self, now: Instant, throttle_ms: i32) -> Option<Instant> {
        let throttle = throttled_for(throttle_ms)?;
        self.until = Some(now + throttle);
        self.until
    }

    /// Until when nothing is sent.
    pub(super) fn muted_until(&self, now: Instant) -> Option<Instant> {
        self.until.filter(|until| *until > now)
    }

    /// Whether it is used up, or was a short while ago.
    pub(super) fn is_near(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now.saturating_duration_since(until) < CALM)
    }
}

/// What `throttle_time_ms` of an answer means for whoever got it; `None` for nothing.
pub(crate) fn throttled_for(throttle_ms: i32) -> Option<Duration> {
    let throttle = Duration::from_millis(u64::try_from(throttle_ms).ok()?).min(THROTTLED_MAX);
    (!throttle.is_zero()).then_some(throttle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_used_up_quota_is_respected_and_then_approached_by_single_requests() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut quota = Quota::default();
        assert_eq!(quota.used_up(start, 0), None);
        assert_eq!(quota.used_up(start, -1), None);
        assert!(!quota.is_near(start));
        assert_eq!(quota.used_up(start, 7_000), Some(at(7)));
        assert_eq!(quota.muted_until(at(6)), Some(at(7)));
        assert_eq!(quota.muted_until(at(7)), None);
        assert!(quota.is_near(at(66)));
        assert!(!quota.is_near(at(67)));
        assert_eq!(quota.used_up(start, i32::MAX), Some(at(300)), "not for weeks at the word of a broker");
    }
}
