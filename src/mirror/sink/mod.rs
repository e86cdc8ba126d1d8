//! The way out: lanes, each one produce connection to one target broker with the partitions pinned to it.

mod lane;
mod outbox;
mod patience;
mod quota;
mod waiting;

pub(crate) use lane::{Lane, LaneKey, run};
pub(crate) use quota::throttled_for;
