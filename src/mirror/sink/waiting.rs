//! The batches of one request, until its answer has named each.

use crate::{
    mirror::{partition::Ticket, report::CopyId},
    protocol::{PartitionId, TopicName, TopicPartition},
};

/// The batches of one request, in its order: where each goes, whose it is, and its name in flight.
#[derive(Debug, Default)]
pub(super) struct Batches {
    /// A name for each run of batches of one topic: counting references for each batch would cost more than the rest of it.
    topics: Vec<TopicName>,
    list: Vec<Batch>,
}

#[derive(Debug)]
struct Batch {
    /// Place in `topics`.
    topic: usize,
    partition: PartitionId,
    copy: CopyId,
    ticket: Ticket,
}

impl Batches {
    pub(super) fn push(&mut self, target: &TopicPartition, copy: CopyId, ticket: Ticket) {
        if self.topics.last() != Some(&target.topic) {
            self.topics.push(target.topic.clone());
        }
        self.list.push(Batch { topic: self.topics.len() - 1, partition: target.partition, copy, ticket });
    }

    /// None yet, with room for so many.
    pub(super) fn with_capacity(count: usize) -> Self {
        Self { topics: Vec::new(), list: Vec::with_capacity(count) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Whose they are, and their names in flight.
    pub(super) fn iter(&self) -> impl Iterator<Item = (CopyId, Ticket)> {
        self.list.iter().map(|batch| (batch.copy, batch.ticket))
    }

    /// Takes out those for which `keep`, asked in order, says no.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(CopyId, Ticket) -> bool) {
        self.list.retain(|batch| keep(batch.copy, batch.ticket));
    }

    fn target(&self, at: usize) -> Option<(&TopicName, PartitionId)> {
        let batch = self.list.get(at)?;
        Some((self.topics.get(batch.topic)?, batch.partition))
    }
}

/// Finds batches by name. Brokers answer in the order of a map of their own (`broker-experiments.md` S8), which may be
/// that of the request: the next one is tried before a search.
pub(super) struct Waiting {
    batches: Batches,
    taken: Vec<bool>,
    next: usize,
    /// Places in `batches`, ordered by partition. Made with the first answer that is out of order.
    sorted: Vec<usize>,
}

impl Waiting {
    pub(super) fn new(batches: Batches) -> Self {
        Self { taken: vec![false; batches.list.len()], batches, next: 0, sorted: Vec::new() }
    }

    /// The batch of a partition, once.
    pub(super) fn take(&mut self, topic: &TopicName, partition: PartitionId) -> Option<(CopyId, Ticket)> {
        let is_next = self.batches.target(self.next) == Some((topic, partition));
        let at = if is_next { self.next } else { self.find(topic, partition)? };
        self.next = at + 1;
        let taken = self.taken.get_mut(at)?;
        if std::mem::replace(taken, true) {
            return None;
        }
        self.batches.list.get(at).map(|batch| (batch.copy, batch.ticket))
    }

    /// Whose batches come next, if the answer goes on in order.
    pub(super) fn next(&self, count: usize) -> impl Iterator<Item = CopyId> + Clone {
        self.batches.list.iter().skip(self.next).take(count).map(|batch| batch.copy)
    }

    fn find(&mut self, topic: &TopicName, partition: PartitionId) -> Option<usize> {
        let Self { batches, sorted, .. } = self;
        if sorted.is_empty() {
            sorted.extend(0..batches.list.len());
            sorted.sort_unstable_by(|one, other| batches.target(*one).cmp(&batches.target(*other)));
        }
        let found = sorted.binary_search_by(|at| batches.target(*at).cmp(&Some((topic, partition)))).ok()?;
        sorted.get(found).copied()
    }

    /// Those that no answer named.
    pub(super) fn rest(mut self) -> Batches {
        let mut taken = self.taken.iter();
        self.batches.retain(|_, _| taken.next() == Some(&false));
        self.batches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [(&str, i32); 4] = [("b", 1), ("b", 0), ("a", 7), ("c", 3)];

    fn request() -> Batches {
        let mut batches = Batches::default();
        for ((topic, partition), number) in NAMES.into_iter().zip(0..) {
            batches.push(&TopicPartition::new(topic, partition), CopyId(number), Ticket(u64::from(number) + 10));
        }
        batches
    }

    #[test]
    fn batches_are_found_in_any_order_and_each_once() {
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
            let mut waiting = Waiting::new(request());
            for at in order {
                let (copy, ticket) = request().iter().nth(at).unwrap();
                // A name that came over the wire is no clone of ours.
                let (topic, partition) = (TopicName::new(NAMES[at].0), PartitionId(NAMES[at].1));
                assert_eq!(waiting.take(&topic, partition), Some((copy, ticket)));
                assert_eq!(waiting.take(&topic, partition), None, "answered twice");
            }
            assert!(waiting.rest().is_empty());
        }
    }

    #[test]
    fn what_no_answer_names_is_left() {
        let mut waiting = Waiting::new(request());
        assert_eq!(waiting.take(&TopicName::new("b"), PartitionId(0)), Some((CopyId(1), Ticket(11))));
        assert_eq!(waiting.take(&TopicName::new("d"), PartitionId(0)), None);
        assert_eq!(waiting.take(&TopicName::new("a"), PartitionId(8)), None);
        let left: Vec<u32> = waiting.rest().iter().map(|(copy, _)| copy.0).collect();
        assert_eq!(left, [0, 2, 3]);
    }
}
