//! Numbers of one shard that the control thread reads while the shard works: plain atomics, written once per request or
//! connection and never per batch.

use std::sync::atomic::{AtomicU64, Ordering};

use super::reach::Side;

/// One number. Written by one thread, read by others who need no more than a recent value.
#[derive(Debug, Default)]
pub(crate) struct Number(AtomicU64);

impl Number {
    /// Counts one more.
    pub(crate) fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The same for the source and for the target.
#[derive(Debug, Default)]
pub(crate) struct PerSide {
    source: Number,
    target: Number,
}

impl PerSide {
    pub(crate) fn of(&self, side: Side) -> &Number {
        match side {
            Side::Source => &self.source,
            Side::Target => &self.target,
        }
    }
}

/// What is counted of one shard, and how much memory it holds.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    /// Fetch requests to the source, produce requests to the target.
    pub(crate) requests: PerSide,
    /// Requests that were not answered: the connection broke, or the answer took too long.
    pub(crate) unanswered: PerSide,
    /// Connections opened.
    pub(crate) connections: PerSide,
    /// Connections that could not be opened.
    pub(crate) connections_failed: PerSide,
    /// Batches that the target answered with an error.
    pub(crate) refused_batches: Number,
    /// Partitions that the source answered with an error.
    pub(crate) refused_fetches: Number,
    /// Bytes of fetched frames held, and the most there may be.
    pub(crate) memory_used: Number,
    pub(crate) memory_limit: Number,
    /// Milliseconds of the time of day at which the shard last looked up; 0 before the first time.
    pub(crate) alive_ms: Number,
}
