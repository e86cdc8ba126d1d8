//! The mirror: flows, their partitions, and the way of a batch.
//!
//! A batch comes in through `source`, is judged by its [`partition`] machine, goes out through `sink`; `shard` is
//! what ties these together on one worker thread. `flow` runs on the control thread: topics, [`lease`], [`anchor`]s,
//! the `runs` topic. `supervisor` starts flows and workers and ends them in order.

pub mod anchor;
mod budget;
pub mod decision;
mod flow;
mod gauges;
mod identity;
pub mod lease;
mod lease_driver;
mod lease_words;
mod lookup;
mod observe;
pub mod partition;
mod reach;
mod records;
mod report;
pub mod resume;
mod runs;
pub mod settings;
mod shard;
mod sink;
mod source;
pub mod status;
mod supervisor;
mod watchdog;

pub(crate) use flow::add as add_progress;
pub use observe::{Anchored, FlowObserved, Observed, Observer, Work};
pub use partition::{OpenReason, PartitionState, Progress, StopReason};
pub use report::{Behind, FlowReport, PartitionReport, Tell, Totals, Watcher};
pub use supervisor::{Outcome, StartError, Supervisor};
