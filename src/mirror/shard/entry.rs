//! A partition as its shard keeps it.

use std::rc::Rc;

use tokio::time::Instant;

use super::Moment;
use crate::{
    client::fetch_session::Want,
    mirror::{
        partition::{Fetched, PartitionMachine, PartitionState},
        report::CopyId,
        sink::Lane,
        source::Fetcher,
        watchdog::Watch,
    },
    protocol::{BrokerId, LeaderEpoch},
};

/// A partition with its places. Laid out as written, for the reason that [`PartitionMachine`] gives.
#[repr(C)]
pub(crate) struct Entry {
    pub(crate) lane: Option<Rc<Lane>>,
    /// Whose fetch session it belongs to.
    pub(super) fetcher: Option<Rc<Fetcher>>,
    /// What its session was told last, and whether it was held back for want of room.
    pub(super) told: (Option<Want>, bool),
    /// Size of a batch of it seen last.
    pub(super) batch_bytes: usize,
    /// Number of the lane's first request that its next batch may be in: the one behind that of its last batch.
    pub(super) next_request: u64,
    /// The leader's epoch on the source, as last known.
    pub(super) source_epoch: LeaderEpoch,
    pub(super) target_epoch: LeaderEpoch,
    /// Leaders may have changed since it was placed.
    pub(super) misplaced: bool,
    /// It is in its lane's queue.
    pub(crate) ready: bool,
    pub(super) anchor_pending: bool,
    /// It is in the list of anchors that are due.
    pub(super) anchor_listed: bool,
    /// It is in the list of what is told to the control thread.
    pub(super) change_listed: bool,
    /// It is among those of its fetcher that have more to read.
    pub(super) backlogged: bool,
    /// Read from this follower until then (KIP-392).
    pub(crate) replica: Option<(BrokerId, Instant)>,
    pub(crate) machine: PartitionMachine,
    pub(super) timer: Option<Instant>,
    pub(super) shown: Option<PartitionState>,
    pub(super) watch: Watch,
    /// Its state is to be recorded, whether or not its position moved.
    pub(super) record_due: bool,
}

impl Entry {
    /// Whether nothing is to be seen to: the partition copies, and nothing is amiss.
    pub(super) fn is_ordinary(&self) -> bool {
        self.machine.is_ordinary() && !self.misplaced && self.replica.is_none()
    }

    /// Gives what was fetched to the machine, and what may be sent at once to the lane.
    pub(crate) fn handle_fetched(&mut self, copy: CopyId, at: Moment, fetched: Fetched) {
        let ordinary = self.is_ordinary();
        let Self { machine, lane, next_request, batch_bytes, .. } = self;
        // Otherwise its place has to be looked at first.
        let Some(lane) = lane.as_ref().filter(|lane| ordinary && lane.is_accepting()) else {
            machine.handle_fetched(at.now, fetched);
            return;
        };
        machine.handle_fetched_and_send(at.now, fetched, at.wall_ms, &mut |target, ticket, head, batch| {
            *batch_bytes = batch.len();
            *next_request = lane.hand_over(*next_request, target, copy, ticket, head, batch) + 1;
        });
    }

    /// Reads a little of each cache line that a batch needs.
    pub(super) fn warm(&self) -> u64 {
        u64::from(self.lane.is_some()) ^ self.next_request ^ self.machine.warm()
    }
}
