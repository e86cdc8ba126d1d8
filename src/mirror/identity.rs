//! The producer id a partition writes under, on the target, for ever.

use sha2::{Digest, Sha256};

use crate::{
    batch::ProducerIdentity,
    protocol::{TopicId, TopicPartition},
};

/// What the identity is a function of.
#[derive(Debug, Clone, Copy)]
pub(super) struct IdentityOf<'a> {
    /// Cluster id of the source, empty if it has none.
    pub(super) source_cluster: &'a str,
    /// Cluster id of the target, empty if it has none.
    pub(super) target_cluster: &'a str,
    /// `source->target`.
    pub(super) flow: &'a str,
    /// On the source.
    pub(super) partition: &'a TopicPartition,
    /// Of the source topic; zero where there is none.
    pub(super) topic_id: TopicId,
}

/// Computes the identity of a partition that has no anchor yet (`design.md` 4): a hash above 2^62, where the ids that
/// brokers hand out, counted up from 0, never get. An anchor's identity wins over this one for ever after.
#[must_use]
pub(super) fn identity(of: IdentityOf<'_>) -> ProducerIdentity {
    let mut hash = Sha256::new();
    // Lengths keep neighbours apart: ("a", "bc") is not ("ab", "c").
    for part in [of.source_cluster, of.target_cluster, of.flow, of.partition.topic.as_str()] {
        hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.update(of.topic_id.as_bytes());
    hash.update(of.partition.partition.0.to_be_bytes());
    let digest = hash.finalize();
    let mut first = [0; 8];
    for (to, from) in first.iter_mut().zip(digest.iter()) {
        *to = *from;
    }
    let low = i64::from_be_bytes(first) & ((1 << 62) - 1);
    ProducerIdentity { producer_id: low | (1 << 62), producer_epoch: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{PartitionId, TopicName};

    #[test]
    fn an_identity_is_above_two_to_the_62_and_differs_by_every_part() {
        let partition = TopicPartition { topic: TopicName::new("orders"), partition: PartitionId(3) };
        let neighbour = TopicPartition { topic: TopicName::new("orders"), partition: PartitionId(4) };
        let base = IdentityOf {
            source_cluster: "aa",
            target_cluster: "bb",
            flow: "a->b",
            partition: &partition,
            topic_id: TopicId::ZERO,
        };
        let all = [
            identity(base),
            identity(IdentityOf { source_cluster: "a", target_cluster: "abb", ..base }),
            identity(IdentityOf { flow: "a->c", ..base }),
            identity(IdentityOf { partition: &neighbour, ..base }),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(one.producer_id >= 1 << 62);
            assert_eq!(one.producer_epoch, 0);
            assert!(all.iter().skip(index + 1).all(|other| other.producer_id != one.producer_id));
        }
        assert_eq!(identity(base), identity(base), "a restart must find the same identity");
    }
}
