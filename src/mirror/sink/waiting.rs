//! The batches of one request, until its answer has named each.

use crate::{
    mirror::{partition::Ticket, report::CopyId},
    protocol::{PartitionId, TopicName, TopicPartition},
};

/// The batches of one request: where each goes, whose it is, and its name in flight.
pub(super) type Batches = Vec<(TopicPartition, CopyId, Ticket)>;

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
        Self { taken: vec![false; batches.len()], batches, next: 0, sorted: Vec::new() }
    }

    /// The batch of a partition, once.
    pub(super) fn take(&mut self, topic: &TopicName, partition: PartitionId) -> Option<(CopyId, Ticket)> {
        let is_next =
            |(target, ..): &(TopicPartition, CopyId, Ticket)| target.partition == partition && target.topic == *topic;
        let at =
            if self.batches.get(self.next).is_some_and(is_next) { self.next } else { self.find(topic, partition)? };
        self.next = at + 1;
        let taken = self.taken.get_mut(at)?;
        if std::mem::replace(taken, true) {
            return None;
        }
        self.batches.get(at).map(|(_, copy, ticket)| (*copy, *ticket))
    }

    /// Whose batches come next, if the answer goes on in order.
    pub(super) fn next(&self, count: usize) -> impl Iterator<Item = CopyId> + Clone {
        self.batches.iter().skip(self.next).take(count).map(|(_, copy, _)| *copy)
    }

    fn find(&mut self, topic: &TopicName, partition: PartitionId) -> Option<usize> {
        let Self { batches, sorted, .. } = self;
        let target = |at: &usize| batches.get(*at).map(|(target, ..)| (&target.topic, target.partition));
        if sorted.is_empty() {
            sorted.extend(0..batches.len());
            sorted.sort_unstable_by(|one, other| target(one).cmp(&target(other)));
        }
        let found = sorted.binary_search_by(|at| target(at).cmp(&Some((topic, partition)))).ok()?;
        sorted.get(found).copied()
    }

    /// Those that no answer named.
    pub(super) fn rest(self) -> Batches {
        let left = self.batches.into_iter().zip(self.taken).filter(|(_, taken)| !taken);
        left.map(|(batch, _)| batch).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Batches {
        let names = [("b", 1), ("b", 0), ("a", 7), ("c", 3)];
        names
            .iter()
            .zip(0..)
            .map(|((topic, partition), number)| {
                (TopicPartition::new(*topic, *partition), CopyId(number), Ticket(u64::from(number) + 10))
            })
            .collect()
    }

    #[test]
    fn batches_are_found_in_any_order_and_each_once() {
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
            let mut waiting = Waiting::new(request());
            for at in order {
                let (target, copy, ticket) = request()[at].clone();
                // A name that came over the wire is no clone of ours.
                let topic = TopicName::new(target.topic.as_str());
                assert_eq!(waiting.take(&topic, target.partition), Some((copy, ticket)));
                assert_eq!(waiting.take(&topic, target.partition), None, "answered twice");
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
        let left: Vec<u32> = waiting.rest().iter().map(|(_, copy, _)| copy.0).collect();
        assert_eq!(left, [0, 2, 3]);
    }
}
