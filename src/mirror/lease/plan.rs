//! The leader's plan: which member gets which slots in this generation.
//!
//! Pure. Even (sizes differ by at most one), sticky (a member keeps what it owns up to its share), spread (consecutive
//! slots, which are the partitions of one topic, go to different members).

use super::slots::SlotSet;

/// A member as the leader knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Member id, unique in the generation.
    pub member_id: String,
    /// Instance id; orders the members, so that the plan does not change with each restart.
    pub instance_id: String,
    /// What it says it holds.
    pub owned: SlotSet,
    /// Generation of that; the higher one wins where two claim a slot.
    pub generation: i32,
}

/// Gives each member its slots; the result is in the order of `members`.
pub fn plan(members: &[Member]) -> Vec<(String, SlotSet)> {
    let _ = members;
    Vec::new()
}
