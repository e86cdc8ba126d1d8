//! Makes a failing schedule smaller while it still fails.

use super::{
    schedule::Schedule,
    world::{Failure, run},
};

/// Leaves out faults, then topics, one by one, as long as the rest still fails; returns that rest and how it fails.
pub(super) fn shrink(mut schedule: Schedule) -> (Schedule, Failure) {
    let Err(mut failure) = run(&schedule, None) else {
        panic!("seed {} fails only sometimes: something in it does not follow from the seed", schedule.seed);
    };
    let mut at = 0;
    while at < schedule.faults.len() {
        let mut less = schedule.clone();
        less.faults.remove(at);
        match run(&less, None) {
            Err(still) => (schedule, failure) = (less, still),
            Ok(_) => at += 1,
        }
    }
    (schedule, failure)
}
