//! The way out: lanes, each one produce connection to one target broker with the partitions pinned to it.

mod lane;
mod outbox;
mod waiting;

pub(crate) use lane::{Lane, LaneKey, run};
