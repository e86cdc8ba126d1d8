//! What a world costs the mirror: memory of frames, lines of its log, pieces it writes. Bounded, so that a livelock or a
//! frame that nobody accounts for is seen though every record arrives.

use std::cell::Cell;

use towpath::simulation;
use tracing::{
    Event, Level, Metadata, Subscriber,
    span::{Attributes, Id, Record},
    subscriber::DefaultGuard,
};

thread_local! {
    static LINES: Cell<u64> = const { Cell::new(0) };
}

/// The most of it in a world.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Most {
    /// Bytes that frames held.
    pub(super) memory: usize,
    /// And by how much that was more than the budget.
    pub(super) over: usize,
    /// Lines of the log between two looks.
    pub(super) lines: u64,
    /// Pieces written between two looks.
    pub(super) writes: u64,
}

/// Most lines and pieces between two looks, a second and a half apart: several times what the worst of 10,000 schedules
/// needed.
const LINES_MAX: u64 = 300;
const WRITES_MAX: u64 = 8_000;

impl Most {
    /// Takes what came since the last call. `giant` is the size of the largest frame that a single batch makes, and
    /// `fetchers` how many may bring one at once.
    pub(super) fn look(&mut self, writes: u64, giant: usize, fetchers: usize) -> Result<(), String> {
        let (memory, over) = simulation::take_peaks();
        let lines = LINES.take();
        self.memory = self.memory.max(memory);
        self.over = self.over.max(over);
        self.lines = self.lines.max(lines);
        self.writes = self.writes.max(writes);
        // Each fetcher may have asked while there was room, and hold what came before.
        if over > 2 * giant * fetchers {
            return Err(format!("frames held {over} bytes more than the budget; the largest batch has {giant}"));
        }
        if lines > LINES_MAX || writes > WRITES_MAX {
            return Err(format!("{lines} lines were logged and {writes} pieces written between two looks"));
        }
        Ok(())
    }

    pub(super) fn join(&mut self, other: Self) {
        self.memory = self.memory.max(other.memory);
        self.over = self.over.max(other.over);
        self.lines = self.lines.max(other.lines);
        self.writes = self.writes.max(other.writes);
    }
}

/// Counts the lines that a mirror on this thread logs, until it is dropped; `None` where somebody reads them.
pub(super) fn count_lines() -> Option<DefaultGuard> {
    LINES.take();
    std::env::var_os("TOWPATH_LOG").is_none().then(|| tracing::subscriber::set_default(Counter))
}

struct Counter;

impl Subscriber for Counter {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::INFO
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        LINES.set(LINES.get() + 1);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
