//! One partition's copy as a machine without I/O and clock.
//!
//! The driver (`mirror::shard`) brings what was fetched, acknowledged and looked up, and asks what is wanted: an
//! offset to fetch, a batch to send, a look-up. After *every* event it reads the getters anew.
//!
//! ```text
//!              ┌────────────── any failure whose outcome is not plain ───────────────┐
//!              ▼                                                                     │
//!  Locating ──► ReadingTail ──► Matching ──► Anchoring ──► Copying ──► Settling ─────┘
//!     │             │              │      (no anchor yet)     │   (outcomes of what is in flight)
//!     └─────────────┴──────────────┴──────────────────────────┴──► Stopped(reason)
//! ```
//!
//! Invariants, named in the tests:
//! * (A) batches are sent in source order, each with the sequence that follows the one before;
//! * (B) no batch is sent before an anchor with this identity is durable;
//! * (C) a position is acknowledged only when every batch before it was acknowledged at the offset that was expected,
//!   or was found on the target by reconciling;
//! * (D) after any failure nothing is sent before the target was asked what it holds;
//! * (E) a control batch or an aborted one is never sent;
//! * (F) at most the window's number of batches is in flight: one until the first acknowledgement after (re)locating,
//!   and for batches so old that the broker may forget their producer (`design.md` 4 "In flight");
//! * (G) such an old batch is sent only when nothing that was sent earlier can still arrive (`stragglers`).
//!
//! A source batch that the target would refuse becomes one or several others in `open`. Where such a batch ended may hang
//! on what an answer happened to hold and on the target's limit at that time; so whoever finds it again on the target
//! (`matching`) cuts the source where the target's batches are cut, and compares what comes out.
//!
//! A position may stand inside a source batch: before a record that is the first of an outgoing batch, and every outgoing
//! batch depends on the record it begins at alone.
//!
//! What makes a partition stand because a log is not what it was (lost, truncated, another topic, another writer) can be
//! answered by the settings or by an operator; `resolve` is how the copy goes on then: the target is asked first, as
//! always, and the new position with its break is durable before anything is sent.
//!
//! Start reading at [`PartitionMachine`]; the walk over fetched batches is in `take`, reconciling in `locate`.

mod anchoring;
mod history;
mod locate;
mod machine;
mod matching;
mod open;
mod pipeline;
mod remedy;
mod resolve;
mod send;
mod state;
mod stragglers;
mod take;
#[cfg(test)]
mod tests;
mod types;
mod waiting;

pub use history::SourceHistory;
pub use locate::{LocateAsk, Located, ProducerAnswer, SourceEnds, TargetEnds};
pub use machine::PartitionMachine;
pub use remedy::go_on;
pub use state::{PartitionState, StopReason};
pub use take::Fetched;
pub use types::{
    Break, Lost, OpenReason, Opened, Outbound, PartitionSettings, PartitionSpec, Policies, ProduceOutcome, Progress,
    Share, StartAt, TailBatch, TargetNotEmpty, Ticket,
};
