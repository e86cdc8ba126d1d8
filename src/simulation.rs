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
    /// A request that was half written when the lease lapsed is written whole later.
    LapsedWrite,
}

impl Planted {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::ResendWithoutReconcile,
        Self::AnchorBeforeAck,
        Self::WindowFromTheStart,
        Self::AnyOffsetAcknowledges,
        Self::AbortedCopied,
        Self::LeaseIgnored,
        Self::TailIgnored,
        Self::StragglersIgnored,
        Self::LapsedWrite,
    ];
}

#[cfg(feature = "simulation")]
mod set {
    use std::cell::Cell;

    use tokio::time::Instant;

    use super::Planted;

    thread_local! {
        static CLOCK: Cell<Option<(Instant, i64)>> = const { Cell::new(None) };
        static SEED: Cell<Option<u64>> = const { Cell::new(None) };
        static PLANTED: Cell<Option<Planted>> = const { Cell::new(None) };
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
    }

    /// Plants a fault on this thread.
    pub fn plant(fault: Option<Planted>) {
        PLANTED.set(fault);
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
pub use set::{begin, end, jump, plant};
#[cfg(feature = "simulation")]
pub(crate) use set::{entropy, has, wall_ms};

#[cfg(not(feature = "simulation"))]
mod unset {
    use super::Planted;

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
pub(crate) use unset::{entropy, has, wall_ms};
