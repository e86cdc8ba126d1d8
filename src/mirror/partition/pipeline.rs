//! The batches of a partition on their way, oldest first: those in flight, then those that wait for it.
//!
//! A batch stays where it was put until it is acknowledged; being sent moves a mark only.

use bytes::Bytes;

use super::types::{OpenReason, Ticket};
use crate::{
    batch::HEADER_LEN,
    mirror::{anchor::Position, budget::FrameHold},
    protocol::LeaderEpoch,
};

/// Places at first; a partition of small batches has about so many in flight.
const PLACES_MIN: usize = 4;

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

const NOWHERE: Position = Position { source_next: 0, target_next: 0, next_sequence: 0 };

impl Outgoing {
    /// What an unused place holds.
    const NONE: Self = Self {
        ticket: Ticket(0),
        source_base: 0,
        before: NOWHERE,
        after: NOWHERE,
        gaps: Vec::new(),
        hold: None,
        bytes: 0,
        max_timestamp: 0,
        records: 0,
        leader_epoch: LeaderEpoch::NONE,
        way: Way::Sealed,
        settled: false,
        head: [0; HEADER_LEN],
        batch: Bytes::new(),
    };

    pub(super) fn settle(&mut self) {
        self.settled = true;
        self.hold = None;
    }

    /// Lets go of what it holds; its place is used again.
    fn release(&mut self) {
        self.gaps = Vec::new();
        self.hold = None;
        self.batch = Bytes::new();
    }
}

/// See the module's text. A ring whose places are filled and read where they are: an entry is larger than what is to be
/// done with a small batch, and moving it in and out cost more than the rest of an acknowledgement.
#[derive(Debug, Default)]
pub(super) struct Pipeline {
    /// Their number is a power of two, or there are none.
    places: Vec<Outgoing>,
    /// Place of the oldest one.
    first: usize,
    /// How many there are, and how many of them, the oldest, are in flight.
    all: usize,
    sent: usize,
}

impl Pipeline {
    /// Adds a batch that waits: what is returned is to be filled, all of it but the ticket. It holds nothing, and is not
    /// settled.
    pub(super) fn add(&mut self) -> &mut Outgoing {
        if self.all == 0 {
            // Begins at the front of its memory again, which is in the cache: it would otherwise wander through all of it.
            self.first = 0;
        }
        if self.all == self.places.len() {
            // What stood before the first one comes behind the last one, and the new places behind that.
            self.places.rotate_left(self.first);
            self.first = 0;
            let room = (self.all * 2).max(PLACES_MIN);
            self.places.resize_with(room, || Outgoing::NONE);
        }
        let at = self.place(self.all);
        self.all += 1;
        let place = self.places.get_mut(at).expect("a number modulo their count");
        place.settled = false;
        place
    }

    fn place(&self, number: usize) -> usize {
        (self.first + number) & (self.places.len().wrapping_sub(1))
    }

    fn get(&self, number: usize) -> Option<&Outgoing> {
        if number < self.all { self.places.get(self.place(number)) } else { None }
    }

    fn get_mut(&mut self, number: usize) -> Option<&mut Outgoing> {
        let at = self.place(number);
        if number < self.all { self.places.get_mut(at) } else { None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all == 0
    }

    /// The newest of all.
    pub(super) fn last_mut(&mut self) -> Option<&mut Outgoing> {
        self.get_mut(self.all.checked_sub(1)?)
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.all - self.sent
    }

    /// The oldest one that waits.
    pub(super) fn next(&self) -> Option<&Outgoing> {
        self.get(self.sent)
    }

    /// Marks the oldest one that waits as sent.
    pub(super) fn send(&mut self) -> Option<&mut Outgoing> {
        if self.sent == self.all {
            return None;
        }
        self.sent += 1;
        self.get_mut(self.sent - 1)
    }

    /// Forgets those that wait.
    pub(super) fn drop_waiting(&mut self) {
        for number in self.sent..self.all {
            if let Some(batch) = self.get_mut(number) {
                batch.release();
            }
        }
        self.all = self.sent;
    }

    /// How many are in flight.
    pub(super) fn sent(&self) -> usize {
        self.sent
    }

    /// Those in flight, oldest first.
    pub(super) fn in_flight(&self) -> impl DoubleEndedIterator<Item = &Outgoing> {
        (0..self.sent).filter_map(|number| self.get(number))
    }

    pub(super) fn in_flight_mut(&mut self) -> impl Iterator<Item = &mut Outgoing> {
        let first = self.first.min(self.places.len());
        let (behind, from) = self.places.split_at_mut(first);
        from.iter_mut().chain(behind).take(self.sent)
    }

    pub(super) fn newest_in_flight(&self) -> Option<&Outgoing> {
        self.get(self.sent.checked_sub(1)?)
    }

    /// The oldest one in flight, to take from it what is needed before [`Self::forget_first`].
    pub(super) fn first_in_flight_mut(&mut self) -> Option<&mut Outgoing> {
        if self.sent == 0 { None } else { self.get_mut(0) }
    }

    /// Takes out the oldest one in flight.
    pub(super) fn forget_first(&mut self) {
        if let Some(first) = self.first_in_flight_mut() {
            first.release();
            self.first = self.place(1);
            self.sent -= 1;
            self.all -= 1;
        }
    }

    /// Forgets those in flight.
    pub(super) fn drop_in_flight(&mut self) {
        while self.sent > 0 {
            self.forget_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(pipeline: &mut Pipeline, number: i64) {
        pipeline.add().source_base = number;
    }

    fn waiting(pipeline: &mut Pipeline) -> Vec<i64> {
        std::iter::from_fn(|| pipeline.send().map(|batch| batch.source_base)).collect()
    }

    #[test]
    fn batches_keep_their_order_on_both_sides_of_the_mark() {
        let mut pipeline = Pipeline::default();
        (0..5).for_each(|number| add(&mut pipeline, number));
        assert_eq!(pipeline.send().map(|batch| batch.source_base), Some(0));
        assert_eq!(pipeline.send().map(|batch| batch.source_base), Some(1));
        assert_eq!((pipeline.waiting(), pipeline.next().map(|batch| batch.source_base)), (3, Some(2)));
        assert_eq!(pipeline.first_in_flight_mut().map(|batch| batch.source_base), Some(0));
        pipeline.forget_first();
        let in_flight: Vec<i64> = pipeline.in_flight().map(|batch| batch.source_base).collect();
        assert_eq!((in_flight, pipeline.waiting()), (vec![1], 3));
        pipeline.drop_waiting();
        assert_eq!((pipeline.sent(), pipeline.waiting()), (1, 0));
        assert!(pipeline.send().is_none());
        add(&mut pipeline, 9);
        assert_eq!(pipeline.last_mut().map(|batch| batch.source_base), Some(9));
        pipeline.drop_in_flight();
        assert!(pipeline.first_in_flight_mut().is_none());
        assert_eq!(pipeline.next().map(|batch| batch.source_base), Some(9));
    }

    #[test]
    fn the_ring_grows_wherever_it_begins() {
        for begin in 0..9 {
            let mut pipeline = Pipeline::default();
            add(&mut pipeline, -1);
            for number in 0..begin {
                add(&mut pipeline, number);
                pipeline.send();
                pipeline.forget_first();
            }
            for number in begin..begin + 20 {
                add(&mut pipeline, number);
            }
            let from = begin - 1;
            assert_eq!(pipeline.next().map(|batch| batch.source_base), Some(from));
            pipeline.send();
            pipeline.send();
            let numbers: Vec<i64> = pipeline.in_flight_mut().map(|batch| batch.source_base).collect();
            assert_eq!(numbers, [from, from + 1]);
            assert_eq!(pipeline.in_flight().next_back().map(|batch| batch.source_base), Some(from + 1));
            assert_eq!(waiting(&mut pipeline), Vec::from_iter(from + 2..begin + 20), "begun at {begin}");
        }
    }

    #[test]
    fn what_is_forgotten_holds_nothing() {
        let mut pipeline = Pipeline::default();
        let bytes = Bytes::from(vec![0; 100]);
        for _ in 0..3 {
            pipeline.add().batch = bytes.clone();
        }
        pipeline.send();
        pipeline.drop_waiting();
        assert!(!bytes.is_unique());
        pipeline.drop_in_flight();
        assert!(bytes.is_unique() && pipeline.is_empty());
    }
}
