//! Requests of one lane that are being filled.
//!
//! A batch is handed over in the very visit of its partition that made it sendable: right after it was fetched, while
//! it is still in the cache, or with the acknowledgement that opened the window. Partitions by the thousand do not
//! fit into the cache, so a visit of its own for each batch would cost more than all the rest of a small one.
//!
//! Each request holds at most one batch of a partition, and those of one partition stand in requests that follow each
//! other: the broker keeps only the last of two (`batch-forwarding.md` 0.1).

use std::collections::VecDeque;

use super::waiting::Batches;
use crate::{
    mirror::{partition::Ticket, report::CopyId},
    protocol::{FrameSlice, ProduceWriter, SEALED_HEAD_LEN, TopicPartition},
};

/// What the largest of the last requests took is set aside for the next ones, and a part of it more: growing would copy
/// them again and again. What was seen once is forgotten by and by, a part with each request.
const ROOM_SLACK: usize = 8;
const ROOM_FORGOTTEN: usize = 64;

/// A request that is being filled.
#[derive(Debug)]
pub(super) struct Filling {
    pub(super) writer: ProduceWriter,
    pub(super) batches: Batches,
    /// A batch did not fit in: it waits for no other.
    full: bool,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Outbox {
    request_bytes_max: usize,
    /// Number of the first request; they are counted for as long as the lane exists.
    first: u64,
    fillings: VecDeque<Filling>,
    /// So many at the front are full.
    full: usize,
    /// Version of the requests to come.
    version: i16,
    /// What is set aside for one: bytes, and batches.
    room: usize,
    batches: usize,
}

impl Outbox {
    pub(super) fn new(request_bytes_max: usize) -> Self {
        Self { request_bytes_max, first: 0, fillings: VecDeque::new(), full: 0, version: 0, room: 0, batches: 0 }
    }

    /// Sets the version of the requests to come. Those that are being filled keep theirs: the connection they were meant
    /// for is the same, or they were emptied with it.
    pub(super) fn speak(&mut self, version: i16) {
        self.version = version;
    }

    /// Number of the first request that was not taken out yet.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Adds a batch to the first request from `from` on that has room; a larger one than any has room for goes alone.
    /// Returns the number of the request, and whether it is a new one.
    pub(super) fn push(
        &mut self,
        from: u64,
        target: &TopicPartition,
        (copy, ticket): (CopyId, Ticket),
        head: &[u8; SEALED_HEAD_LEN],
        batch: FrameSlice<'_>,
    ) -> (u64, bool) {
        let bytes = batch.len();
        let mut index = usize::try_from(from.saturating_sub(self.first)).unwrap_or(usize::MAX).max(self.full);
        while let Some(filling) = self.fillings.get_mut(index) {
            if filling.batches.is_empty() || filling.writer.batch_bytes() + bytes <= self.request_bytes_max {
                break;
            }
            filling.full = true;
            if index == self.full {
                self.full += 1;
            }
            index += 1;
        }
        let index = index.min(self.fillings.len());
        let is_new = index == self.fillings.len();
        if is_new {
            let writer = ProduceWriter::new(self.version, self.room, self.batches);
            let batches = Batches::with_capacity(self.batches);
            self.fillings.push_back(Filling { writer, batches, full: false });
        }
        if let Some(filling) = self.fillings.get_mut(index) {
            filling.writer.push(target, head, batch);
            filling.batches.push(target, copy, ticket);
        }
        (self.first + index as u64, is_new)
    }

    /// Whether the first request is full or holds so many bytes.
    pub(super) fn is_worth(&self, bytes: usize) -> bool {
        self.fillings.front().is_some_and(|first| first.full || first.writer.batch_bytes() >= bytes)
    }

    /// The first request that holds anything.
    pub(super) fn pop(&mut self) -> Option<Filling> {
        while let Some(filling) = self.fillings.pop_front() {
            self.first += 1;
            self.full = self.full.saturating_sub(1);
            if !filling.batches.is_empty() {
                self.room = room(self.room, filling.writer.written());
                self.batches = room(self.batches, filling.batches.len());
                return Some(filling);
            }
        }
        None
    }

    /// Takes back what `keep` does not name, and returns it.
    pub(super) fn purge(&mut self, mut keep: impl FnMut(CopyId, Ticket) -> bool) -> Vec<(CopyId, Ticket)> {
        let mut removed = Vec::new();
        for filling in &mut self.fillings {
            let kept: Vec<bool> = filling.batches.iter().map(|(copy, ticket)| keep(copy, ticket)).collect();
            if kept.iter().all(|kept| *kept) {
                continue;
            }
            let mut answers = kept.iter();
            filling.writer.retain(|| answers.next().is_some_and(|kept| *kept));
            let mut answers = kept.iter();
            filling.batches.retain(|copy, ticket| {
                let kept = answers.next().is_some_and(|kept| *kept);
                if !kept {
                    removed.push((copy, ticket));
                }
                kept
            });
        }
        removed
    }

    /// Empties all requests.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = Filling> {
        self.first += self.fillings.len() as u64;
        self.full = 0;
        std::mem::take(&mut self.fillings).into_iter()
    }
}

/// What to set aside after so much was, and so much taken.
fn room(former: usize, taken: usize) -> usize {
    (taken + taken / ROOM_SLACK).max(former - former.div_ceil(ROOM_FORGOTTEN))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const LIMIT: usize = 1000;

    fn push(outbox: &mut Outbox, from: u64, copy: u32, ticket: u64, bytes: usize) -> u64 {
        let target = TopicPartition::new("t", i32::try_from(copy).expect("small"));
        let batch = Bytes::from(vec![0; bytes]);
        outbox.push(from, &target, (CopyId(copy), Ticket(ticket)), &[0; SEALED_HEAD_LEN], (&batch).into()).0
    }

    fn tickets(outbox: &mut Outbox) -> Vec<Vec<u64>> {
        std::iter::from_fn(|| outbox.pop())
            .map(|filling| filling.batches.iter().map(|(_, ticket)| ticket.0).collect())
            .collect()
    }

    #[test]
    fn batches_of_one_partition_stand_in_requests_that_follow_each_other() {
        let mut outbox = Outbox::new(LIMIT);
        for copy in 0..3 {
            let mut from = 0;
            for number in 0..2 {
                from = push(&mut outbox, from, copy, u64::from(copy) * 10 + number, 100) + 1;
            }
        }
        assert_eq!(tickets(&mut outbox), [[0, 10, 20], [1, 11, 21]]);
        assert_eq!(push(&mut outbox, 1, 0, 30, 100), 2, "requests are counted on");
        assert_eq!(push(&mut outbox, 3, 0, 31, 100), 3);
    }

    #[test]
    fn a_request_is_never_larger_than_the_limit_but_for_a_single_batch() {
        let mut outbox = Outbox::new(LIMIT);
        assert_eq!(push(&mut outbox, 0, 0, 0, 700), 0);
        assert!(!outbox.is_worth(701) && outbox.is_worth(700));
        assert_eq!(push(&mut outbox, 0, 1, 1, 5000), 1, "larger than the limit: alone");
        assert!(outbox.is_worth(701), "full: it waits for nothing");
        assert_eq!(push(&mut outbox, 0, 2, 2, 301), 2);
        assert_eq!(push(&mut outbox, 0, 3, 3, 1), 2, "a full one is not filled up: what is behind it is as near");
        assert_eq!(tickets(&mut outbox), [vec![0], vec![1], vec![2, 3]]);
    }

    #[test]
    fn what_is_taken_back_is_not_sent_and_the_rest_is() {
        let mut outbox = Outbox::new(LIMIT);
        for number in 0..3 {
            for copy in 0..2 {
                if number < 2 || copy == 0 {
                    push(&mut outbox, number, copy, u64::from(copy) * 10 + number, 100);
                }
            }
        }
        let others = |copy: CopyId, _| copy != CopyId(0);
        assert_eq!(outbox.purge(others), [0, 1, 2].map(|ticket| (CopyId(0), Ticket(ticket))));
        assert_eq!(outbox.purge(others), []);
        let sent: Vec<Filling> = std::iter::from_fn(|| outbox.pop()).collect();
        assert_eq!(sent.len(), 2, "an empty request is not sent");
        for (filling, ticket) in sent.iter().zip([10, 11]) {
            assert_eq!(filling.writer.batch_bytes(), 100);
            assert_eq!(filling.batches.iter().collect::<Vec<_>>(), [(CopyId(1), Ticket(ticket))]);
        }
        assert_eq!(outbox.first(), 3);
    }

    #[test]
    fn what_is_cleared_is_behind_the_requests_to_come() {
        let mut outbox = Outbox::new(LIMIT);
        push(&mut outbox, 0, 0, 0, 600);
        push(&mut outbox, 0, 1, 1, 600);
        assert_eq!(outbox.clear().count(), 2);
        assert_eq!(push(&mut outbox, 0, 2, 2, 100), 2);
        assert!(!outbox.is_worth(101));
    }
}
