//! The one place that reads the wall clock.
//!
//! Deadlines and intervals use `tokio::time::Instant`; only what is compared with record timestamps (age of a batch,
//! lag in seconds) needs the time of day, and gets it as a parameter.

use std::{fmt, time::UNIX_EPOCH};

use crate::simulation;

/// Milliseconds since 1970, as Kafka's record timestamps count; 0 if the clock stands before 1970.
#[must_use]
pub fn now_ms() -> i64 {
    if let Some(simulated) = simulation::wall_ms() {
        return simulated;
    }
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    let now = std::time::SystemTime::now();
    now.duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
}

/// A time of day as people read it: `2023-11-14 22:13:20 UTC`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Utc {
    /// Seconds since 1970.
    pub unix_s: u64,
}

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, second) = (self.unix_s / 86_400, self.unix_s % 86_400);
        let (year, month, day) = date(days);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
    }
}

/// Year, month and day, by counting off what is whole: 400 years first, whose length is always the same.
fn date(days_since_1970: u64) -> (u64, u64, u64) {
    const FOUR_CENTURIES: u64 = 146_097;
    // 1600 begins a round of 400 years; 1970 came 135 140 days later.
    let days = days_since_1970.saturating_add(135_140);
    let mut year = 1600 + days / FOUR_CENTURIES * 400;
    let mut left = days % FOUR_CENTURIES;
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    loop {
        let length = 365 + u64::from(leap(year));
        if left < length {
            break;
        }
        left -= length;
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    (year, month, left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_as_date_says_them() {
        // As `date -u -d @N` prints them.
        for (unix_s, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_700_000_000, "2023-11-14 22:13:20 UTC"),
            (1_735_689_599, "2024-12-31 23:59:59 UTC"),
            (4_107_542_399, "2100-02-28 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(Utc { unix_s }.to_string(), text);
        }
    }
}
