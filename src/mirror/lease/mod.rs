//! The lease: which worker owns which partitions of a flow.
//!
//! Workers of a flow are static members of the group `__towpath.<source>.<target>` on the target cluster. [`Lease`] is
//! the membership of one worker as a machine without I/O (start reading there); [`plan()`] is what the group's leader decides;
//! [`slot_of`] maps partitions to the 240 slots that are dealt; [`StateLock`] proves that the former process is dead.
//! The requests themselves, the anchors and the work on the slots are the driver's.
//!
//! Facts about brokers are cited as S13: `broker-experiments.md`, section S13.

mod events;
mod lock;
mod machine;
#[cfg(test)]
mod model;
mod plan;
mod proof;
mod retry;
#[cfg(test)]
mod simulation;
mod slots;
#[cfg(test)]
mod tests;
mod wire;

pub use events::{
    Action, CommitAnswer, CoordinatorAnswer, Credentials, JoinAnswer, JoinedMember, LEASE_PROTOCOL_NAME,
    LEASE_PROTOCOL_TYPE, LeaseConfig, LeaseConfigError, LeaseLost, LeaseState, Link, RevokeReason, Ticket, lease_group,
};
pub use lock::{LockError, StateLock, instance_id};
pub use machine::Lease;
pub use plan::{Member, plan};
pub use slots::{SLOTS, SlotSet, slot_of};
pub use wire::{Assignment, LEASE_VERSION, MemberMetadata, WireError};
