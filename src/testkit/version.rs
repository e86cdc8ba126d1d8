//! Which broker is played: the differences between versions that were measured.
//!
//! Source of the ranges: broker-experiments, S9, and batch-forwarding, section 6; capped by what the messages of the
//! `kafka-protocol` crate can carry.

use kafka_protocol::messages::ApiKey;

/// A released broker whose answers were recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum BrokerVersion {
    /// Kafka 2.8.2 with ZooKeeper.
    V2_8_2,
    /// Kafka 3.9.2, KRaft.
    V3_9_2,
    /// Kafka 4.3.1, KRaft.
    #[default]
    V4_3_1,
}

type Range = Option<(i16, i16)>;

const fn to(min: i16, max: i16) -> Range {
    Some((min, max))
}

/// API, then its range in 2.8.2, 3.9.2 and 4.3.1.
const RANGES: &[(ApiKey, [Range; 3])] = &[
    (ApiKey::Produce, [to(0, 9), to(0, 11), to(0, 13)]),
    (ApiKey::Fetch, [to(0, 12), to(0, 17), to(4, 18)]),
    (ApiKey::ListOffsets, [to(0, 6), to(0, 9), to(1, 10)]),
    (ApiKey::Metadata, [to(0, 11), to(0, 12), to(0, 13)]),
    (ApiKey::OffsetCommit, [to(0, 8), to(0, 9), to(2, 9)]),
    (ApiKey::OffsetFetch, [to(0, 7), to(0, 9), to(1, 9)]),
    (ApiKey::FindCoordinator, [to(0, 3), to(0, 6), to(0, 6)]),
    (ApiKey::JoinGroup, [to(0, 7), to(0, 9), to(0, 9)]),
    (ApiKey::Heartbeat, [to(0, 4), to(0, 4), to(0, 4)]),
    (ApiKey::LeaveGroup, [to(0, 4), to(0, 5), to(0, 5)]),
    (ApiKey::SyncGroup, [to(0, 5), to(0, 5), to(0, 5)]),
    (ApiKey::DescribeGroups, [to(0, 5), to(0, 5), to(0, 6)]),
    (ApiKey::ListGroups, [to(0, 4), to(0, 5), to(0, 5)]),
    (ApiKey::ApiVersions, [to(0, 3), to(0, 4), to(0, 4)]),
    (ApiKey::CreateTopics, [to(0, 7), to(0, 7), to(2, 7)]),
    (ApiKey::DeleteTopics, [to(0, 6), to(0, 6), to(1, 6)]),
    (ApiKey::DeleteRecords, [to(0, 2), to(0, 2), to(0, 2)]),
    (ApiKey::InitProducerId, [to(0, 4), to(0, 5), to(0, 5)]),
    (ApiKey::OffsetForLeaderEpoch, [to(0, 4), to(0, 4), to(2, 4)]),
    (ApiKey::AddPartitionsToTxn, [to(0, 3), to(0, 5), to(0, 5)]),
    (ApiKey::EndTxn, [to(0, 3), to(0, 4), to(0, 5)]),
    (ApiKey::WriteTxnMarkers, [to(0, 1), to(0, 1), to(1, 1)]),
    (ApiKey::DescribeAcls, [to(0, 2), to(0, 3), to(1, 3)]),
    (ApiKey::CreateAcls, [to(0, 2), to(0, 3), to(1, 3)]),
    (ApiKey::DescribeConfigs, [to(0, 4), to(0, 4), to(1, 4)]),
    (ApiKey::CreatePartitions, [to(0, 3), to(0, 3), to(0, 3)]),
    (ApiKey::DeleteGroups, [to(0, 2), to(0, 2), to(0, 2)]),
    (ApiKey::IncrementalAlterConfigs, [to(0, 1), to(0, 1), to(0, 1)]),
    (ApiKey::OffsetDelete, [to(0, 0), to(0, 0), to(0, 0)]),
    (ApiKey::DescribeCluster, [to(0, 0), to(0, 1), to(0, 2)]),
    (ApiKey::DescribeProducers, [to(0, 0), to(0, 0), to(0, 0)]),
];

impl BrokerVersion {
    /// Every version that is played, oldest first.
    pub const ALL: [Self; 3] = [Self::V2_8_2, Self::V3_9_2, Self::V4_3_1];

    /// As Kafka's downloads name it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::V2_8_2 => "2.8.2",
            Self::V3_9_2 => "3.9.2",
            Self::V4_3_1 => "4.3.1",
        }
    }

    fn column(self) -> usize {
        match self {
            Self::V2_8_2 => 0,
            Self::V3_9_2 => 1,
            Self::V4_3_1 => 2,
        }
    }

    /// The versions it advertises for an API; `None` if it does not have it, or the embedded broker does not.
    #[must_use]
    pub fn api_range(self, api: ApiKey) -> Option<(i16, i16)> {
        let (_, ranges) = RANGES.iter().find(|(known, _)| *known == api)?;
        ranges.get(self.column()).copied().flatten()
    }

    /// What it advertises, in the order of API keys.
    #[must_use]
    pub fn apis(self) -> Vec<(ApiKey, i16, i16)> {
        let mut apis: Vec<_> = RANGES
            .iter()
            .filter_map(|(api, ranges)| {
                let (min, max) = ranges.get(self.column()).copied().flatten()?;
                Some((*api, min, max))
            })
            .collect();
        apis.sort_by_key(|(api, ..)| *api as i16);
        apis
    }

    /// Topic ids as addresses (KIP-516): Fetch 13.
    #[must_use]
    pub fn fetches_by_topic_id(self) -> bool {
        self >= Self::V3_9_2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_measured() {
        // broker-experiments S9; OffsetCommit 10 of 4.3.1 is beyond the crate.
        assert_eq!(BrokerVersion::V2_8_2.api_range(ApiKey::Fetch), Some((0, 12)));
        assert_eq!(BrokerVersion::V3_9_2.api_range(ApiKey::Produce), Some((0, 11)));
        assert_eq!(BrokerVersion::V4_3_1.api_range(ApiKey::Produce), Some((0, 13)));
        assert_eq!(BrokerVersion::V4_3_1.api_range(ApiKey::OffsetCommit), Some((2, 9)));
        assert_eq!(BrokerVersion::V4_3_1.api_range(ApiKey::Vote), None);
        assert_eq!(BrokerVersion::V4_3_1.apis().first(), Some(&(ApiKey::Produce, 0, 13)));
    }
}
