//! What the fault simulation sets from outside: the time of day, seeds, and faults planted in the mirror.
//!
//! Only with the feature `simulation`, which tests switch on; in the released program everything here is a constant
//! that the compiler takes away. Values belong to one thread: a simulated world runs on one, several worlds side by side.

/// A fault that the simulation plants in the mirror, to show that its oracle sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Planted {
    /// After an unknown outcome the batches are sent again without asking the target what it holds.
    ResendWithoutReconcile,
    /// Anchors name what was sent, not what was acknowledged.
    AnchorBeforeAck,
    /// The window is open from the start, for old records too.
    WindowFromTheStart,
    /// A base offset that is not the expected one is taken for an acknowledgement.
    AnyOffsetAcknowledges,
    /// Records of aborted transactions are copied.
    AbortedCopied,
    /// Requests are sent after the lease has lapsed.
    LeaseIgnored,
    /// What the target holds behind the anchor is taken for nothing.
    TailIgnored,
    /// Old records do not wait for what was sent earlier.
    StragglersIgnored,
    /// Where an anchor knows no leader epoch, records of another history are counted as copied.
    CountedAcrossElections,
    /// The copy goes on behind a loss that begins later than what it said.
    LossMisnamed,
    /// A request that was half written when the lease lapsed is written whole later.
    LapsedWrite,
}

impl Planted {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::ResendWithoutReconcile,
        Self::AnchorBeforeAck,
        Self::WindowFromTheStart,
        Self::AnyOffsetAcknowledges,
        Self::AbortedCopied,
        Self::LeaseIgnored,
        Self::TailIgnored,
        Self::StragglersIgnored,
        Self::CountedAcrossElections,
        Self::LossMisnamed,
        Self::LapsedWrite,
    ];
}

#[cfg(feature = "simulation")]
mod set {
    use std::cell::{Cell, RefCell};

    use tokio::time::Instant;

    use super::Planted;

    thread_local! {
        static CLOCK: Cell<Option<(Instant, i64)>> = const { Cell::new(None) };
        static SEED: Cell<Option<u64>> = const { Cell::new(None) };
        static PLANTED: Cell<Option<Planted>> = const { Cell::new(None) };
        static LOSSES: RefCell<Vec<(String, i32, i64, i64)>> = const { RefCell::new(Vec::new()) };
        static PEAKS: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    }

    /// From now on the time of day on this thread is `wall_ms` plus what passes by tokio's clock, and what asks the
    /// operating system for a seed gets the next number that follows from `seed`.
    pub fn begin(wall_ms: i64, seed: u64) {
        CLOCK.set(Some((Instant::now(), wall_ms)));
        SEED.set(Some(seed));
    }

    /// The time of day of this thread jumps.
    pub fn jump(forward_ms: i64) {
        CLOCK.set(CLOCK.get().map(|(since, wall_ms)| (since, wall_ms.saturating_add(forward_ms))));
    }

    /// Back to the machine's clock and random numbers, and nothing planted.
    pub fn end() {
        CLOCK.set(None);
        SEED.set(None);
        PLANTED.set(None);
        LOSSES.take();
        PEAKS.take();
    }

    /// Plants a fault on this thread.
    pub fn plant(fault: Option<Planted>) {
        PLANTED.set(fault);
    }

    /// What the mirror said on this thread that it passed over at the source since the last call: topic, partition, first
    /// offset, offset after the last.
    pub fn take_losses() -> Vec<(String, i32, i64, i64)> {
        LOSSES.take()
    }

    pub(crate) fn note_loss(topic: &str, partition: i32, from: i64, to: i64) {
        LOSSES.with_borrow_mut(|losses| losses.push((topic.to_owned(), partition, from, to)));
    }

    /// The most that a worker's frames held on this thread since the last call, and by how much that was more than its
    /// budget; in bytes.
    pub fn take_peaks() -> (usize, usize) {
        PEAKS.take()
    }

    pub(crate) fn note_memory(used: usize, limit: usize) {
        let (peak, over) = PEAKS.get();
        PEAKS.set((peak.max(used), over.max(used.saturating_sub(limit))));
    }

    pub(crate) fn wall_ms() -> Option<i64> {
        let (since, wall_ms) = CLOCK.get()?;
        let passed = i64::try_from(since.elapsed().as_millis()).unwrap_or(i64::MAX);
        Some(wall_ms.saturating_add(passed))
    }

    pub(crate) fn entropy() -> Option<u64> {
        // Splitmix64: neighbouring states give unrelated numbers.
        let seed = SEED.get()?.wrapping_add(0x9e37_79b9_7f4a_7c15);
        SEED.set(Some(seed));
        let mixed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some(mixed ^ (mixed >> 31))
    }

    pub(crate) fn has(fault: Planted) -> bool {
        PLANTED.get() == Some(fault)
    }
}

#[cfg(feature = "simulation")]
pub use set::{begin, end, jump, plant, take_losses, take_peaks};
#[cfg(feature = "simulation")]
pub(crate) use set::{entropy, has, note_loss, note_memory, wall_ms};

#[cfg(not(feature = "simulation"))]
mod unset {
    use super::Planted;

    pub(crate) const fn note_loss(_: &str, _: i32, _: i64, _: i64) {}

    pub(crate) const fn note_memory(_: usize, _: usize) {}

    pub(crate) const fn wall_ms() -> Option<i64> {
        None
    }

    pub(crate) const fn entropy() -> Option<u64> {
        None
    }

    pub(crate) const fn has(_: Planted) -> bool {
        false
    }
}

#[cfg(not(feature = "simulation"))]
pub(crate) use unset::{entropy, has, note_loss, note_memory, wall_ms};
