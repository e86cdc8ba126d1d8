//! The batches of a partition on their way, oldest first: those in flight, then those that wait for it.
//!
//! A batch stays where it was put until it is acknowledged; being sent moves a mark only.

use std::collections::VecDeque;

use bytes::Bytes;

use super::types::{OpenReason, Ticket};
use crate::{
    batch::HEADER_LEN,
    mirror::{anchor::Position, budget::FrameHold},
    protocol::LeaderEpoch,
};

/// How a batch goes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// As it was fetched, behind a new header.
    Sealed,
    /// So too, although the source showed another time than the payload holds.
    SealedAppendTime,
    /// Encoded anew.
    Opened(OpenReason),
}

/// One batch. Laid out as written: an acknowledgement needs all but the header and what is behind it.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Outgoing {
    /// Given when it is sent.
    pub(super) ticket: Ticket,
    pub(super) source_base: i64,
    pub(super) before: Position,
    pub(super) after: Position,
    /// Records before which source offsets are missing: number within the batch, and source offset.
    pub(super) gaps: Vec<(i32, i64)>,
    /// Given back once settled: a refused partition must not hold memory until somebody repairs it.
    pub(super) hold: Option<FrameHold>,
    pub(super) bytes: usize,
    pub(super) max_timestamp: i64,
    pub(super) records: i32,
    pub(super) leader_epoch: LeaderEpoch,
    pub(super) way: Way,
    /// The answer came and was not a plain success.
    pub(super) settled: bool,
    pub(super) head: [u8; HEADER_LEN],
    /// Empty once it is sent.
    pub(super) batch: Bytes,
}

impl Outgoing {
    pub(super) fn settle(&mut self) {
        self.settled = true;
        self.hold = None;
    }
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Pipeline {
    all: VecDeque<Outgoing>,
    sent: usize,
}

impl Pipeline {
    /// Adds a batch that waits.
    pub(super) fn push(&mut self, batch: Outgoing) {
        if self.all.is_empty() {
            // Begins at the front of its memory again, which is in the cache: it would otherwise wander through all of it.
            self.all.clear();
        }
        self.all.push_back(batch);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The newest of all.
    pub(super) fn last_mut(&mut self) -> Option<&mut Outgoing> {
        self.all.back_mut()
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.all.len() - self.sent
    }

    /// The oldest one that waits.
    pub(super) fn next(&self) -> Option<&Outgoing> {
        self.all.get(self.sent)
    }

    /// Marks the oldest one that waits as sent.
    pub(super) fn send(&mut self) -> Option<&mut Outgoing> {
        let next = self.all.get_mut(self.sent)?;
        self.sent += 1;
        Some(next)
    }

    /// Forgets those that wait.
    pub(super) fn drop_waiting(&mut self) {
        self.all.truncate(self.sent);
    }

    /// Those in flight, oldest first.
    pub(super) fn in_flight(&self) -> std::collections::vec_deque::Iter<'_, Outgoing> {
        self.all.range(..self.sent)
    }

    pub(super) fn in_flight_mut(&mut self) -> std::collections::vec_deque::IterMut<'_, Outgoing> {
        self.all.range_mut(..self.sent)
    }

    /// Takes out the oldest one in flight.
    pub(super) fn pop_in_flight(&mut self) -> Option<Outgoing> {
        self.sent = self.sent.checked_sub(1)?;
        self.all.pop_front()
    }

    /// Forgets those in flight.
    pub(super) fn drop_in_flight(&mut self) {
        self.all.drain(..self.sent);
        self.sent = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(number: i64) -> Outgoing {
        let position = Position { source_next: number, target_next: number, next_sequence: 0 };
        Outgoing {
            ticket: Ticket(0),
            source_base: number,
            before: position,
            after: position,
            gaps: Vec::new(),
            hold: None,
            bytes: 0,
            max_timestamp: 0,
            records: 1,
            leader_epoch: LeaderEpoch::NONE,
            way: Way::Sealed,
            settled: false,
            head: [0; HEADER_LEN],
            batch: Bytes::new(),
        }
    }

    #[test]
    fn batches_keep_their_order_on_both_sides_of_the_mark() {
        let mut pipeline = Pipeline::default();
        (0..5).for_each(|number| pipeline.push(batch(number)));
        assert_eq!(pipeline.send().map(|batch| batch.source_base), Some(0));
        assert_eq!(pipeline.send().map(|batch| batch.source_base), Some(1));
        assert_eq!((pipeline.waiting(), pipeline.next().map(|batch| batch.source_base)), (3, Some(2)));
        assert_eq!(pipeline.pop_in_flight().map(|batch| batch.source_base), Some(0));
        let in_flight: Vec<i64> = pipeline.in_flight().map(|batch| batch.source_base).collect();
        assert_eq!((in_flight, pipeline.waiting()), (vec![1], 3));
        pipeline.drop_waiting();
        assert_eq!((pipeline.in_flight().len(), pipeline.waiting()), (1, 0));
        assert!(pipeline.send().is_none());
        pipeline.push(batch(9));
        pipeline.drop_in_flight();
        assert!(pipeline.pop_in_flight().is_none());
        assert_eq!(pipeline.next().map(|batch| batch.source_base), Some(9));
    }
}
