//! How much of an answer one partition may take, so that requests to the target come out full.
//!
//! A request holds one batch of a partition. An answer filled by a few partitions alone would be sent in tiny requests,
//! or wait in long queues until others had their turn, and leave the cache meanwhile. So partitions with more to read
//! share each answer; none is asked for less than a few of its batches, since the last one is cut off and paid twice
//! (`performance-notes.md` 8).

use crate::mirror::settings::FetchSettings;

/// Batches of a partition that are worth asking for at once. Of small ones it is their number that costs, not the bytes
/// that are cut off, and the longer a thousand queues are, the less of them is in the cache.
const BATCHES_MIN: usize = 8;
const SMALL_BATCHES_MIN: usize = 4;
const SMALL: usize = 4 << 10;
/// Below this a limit saves nothing.
const BYTES_MIN: usize = 4 << 10;
/// As long as no batch was seen, one of a producer's usual size comes whole. Larger ones come one an answer, once.
const UNSEEN_BYTES_MIN: usize = 16 << 10;
/// Answers whose batches may wait for sending: one that is sent while the next one arrives.
const ANSWERS_WAITING: usize = 2;

/// One partition's share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fair {
    configured: i32,
    partition_bytes_max: i32,
    /// What may wait for sending.
    pub(crate) queue_bytes_max: usize,
}

impl Fair {
    pub(super) fn new(settings: &FetchSettings, response_bytes: u32, backlogged: usize, batch_bytes: usize) -> Self {
        let response = usize::try_from(response_bytes).unwrap_or(usize::MAX);
        let configured = usize::try_from(settings.partition_bytes_max).unwrap_or(usize::MAX);
        let sharers = backlogged.max(1);
        let wanted = if settings.partition_bytes_explicit {
            configured
        } else {
            let count = if batch_bytes < SMALL { SMALL_BATCHES_MIN } else { BATCHES_MIN };
            let batches = batch_bytes.saturating_mul(count);
            let least = if batches == 0 { UNSEEN_BYTES_MIN } else { batches.max(BYTES_MIN) };
            (response / sharers).max(least).min(configured)
        };
        let waiting = response.saturating_mul(ANSWERS_WAITING) / sharers;
        Self {
            configured: i32::try_from(configured).unwrap_or(i32::MAX),
            partition_bytes_max: i32::try_from(wanted).unwrap_or(i32::MAX),
            queue_bytes_max: waiting.max(wanted / 2),
        }
    }

    /// Whether `wanted`, a partition's own limit, is not one that had to grow for a single large batch.
    pub(crate) fn allows(&self, wanted: i32) -> bool {
        wanted <= self.configured
    }

    /// The limit to ask with.
    pub(crate) fn limit(&self, wanted: i32) -> i32 {
        if self.allows(wanted) { wanted.min(self.partition_bytes_max) } else { wanted }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fair(backlogged: usize, batch_bytes: usize) -> Fair {
        Fair::new(&FetchSettings::default(), 1 << 20, backlogged, batch_bytes)
    }

    #[test]
    fn few_partitions_are_asked_for_what_is_configured() {
        for (backlogged, batch) in [(0, 0), (1, 1000), (8, 0), (8, 16_000), (8, 1_000_000)] {
            assert_eq!(fair(backlogged, batch).limit(128 << 10), 128 << 10, "{backlogged} with {batch}");
        }
    }

    #[test]
    fn many_share_an_answer_but_not_below_a_few_batches() {
        assert_eq!(fair(100, 1000).limit(128 << 10), (1 << 20) / 100);
        assert_eq!(fair(1000, 1200).limit(128 << 10), 4800);
        assert_eq!(fair(1000, 6000).limit(128 << 10), 48_000);
        assert_eq!(fair(1000, 100).limit(128 << 10), 4096);
        assert_eq!(fair(1000, 16_000).limit(128 << 10), 128_000);
        assert_eq!(fair(1000, 0).limit(128 << 10), 16 << 10, "what its batches are like is not known yet");
        let explicit = FetchSettings { partition_bytes_explicit: true, ..FetchSettings::default() };
        assert_eq!(Fair::new(&explicit, 1 << 20, 1000, 1000).limit(128 << 10), 128 << 10);
    }

    #[test]
    fn a_limit_that_grew_for_a_large_batch_stays() {
        assert_eq!(fair(1000, 1000).limit(256 << 10), 256 << 10);
    }

    #[test]
    fn what_waits_is_two_answers_shared() {
        assert_eq!(fair(1, 1000).queue_bytes_max, 2 << 20);
        assert_eq!(fair(8, 16_000).queue_bytes_max, 256 << 10);
        assert_eq!(fair(1000, 1200).queue_bytes_max, 2400);
    }
}
