//! The one place that reads the wall clock.
//!
//! Deadlines and intervals use `tokio::time::Instant`; only what is compared with record timestamps (age of a batch,
//! lag in seconds) needs the time of day, and gets it as a parameter.

use std::time::UNIX_EPOCH;

/// Milliseconds since 1970, as Kafka's record timestamps count; 0 if the clock stands before 1970.
#[must_use]
pub fn now_ms() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "this is the one place")]
    let now = std::time::SystemTime::now();
    now.duration_since(UNIX_EPOCH).map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
}
