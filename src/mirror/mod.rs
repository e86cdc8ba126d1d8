//! The mirror: flows, their partitions, and the way of a batch.
//!
//! A batch comes in through `source`, is judged by its [`partition`] machine, goes out through `sink`; `shard` is
//! what ties these together on one worker thread. `flow` runs on the control thread: topics, [`lease`], [`anchor`]s,
//! the `runs` topic. `supervisor` starts flows and workers and ends them in order.

pub mod anchor;
mod budget;
pub mod decision;
mod flow;
mod identity;
pub mod lease;
mod lease_driver;
mod lease_words;
mod lookup;
pub mod partition;
mod reach;
mod report;
pub mod resume;
mod runs;
pub mod settings;
mod shard;
mod sink;
mod source;
mod supervisor;

pub use report::{Behind, FlowReport, PartitionReport, Tell, Totals, Watcher};
pub use supervisor::{Outcome, StartError, Supervisor};
