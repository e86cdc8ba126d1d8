//! What a broker speaks, and which version of an API to use with it.

use std::collections::BTreeMap;

use kafka_protocol::messages::ApiKey;
use kafka_protocol::protocol::{Message, Request, VersionRange};

/// The version ranges that one broker advertised in its ApiVersions response.
///
/// They belong to a connection, not to a cluster: during a rolling upgrade brokers differ.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApiVersions {
    /// First and last version by API key; keys unknown to us are kept.
    ranges: BTreeMap<i16, (i16, i16)>,
}

/// The broker and this program have no version of an API in common.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnsupportedApi {
    /// Number of the API.
    pub api_key: i16,
    /// First and last version this program can use here.
    pub ours: (i16, i16),
    /// First and last version the broker advertised; `None` if it does not have the API.
    pub broker: Option<(i16, i16)>,
}

impl std::error::Error for UnsupportedApi {}

impl std::fmt::Display for UnsupportedApi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (our_min, our_max) = self.ours;
        match ApiKey::try_from(self.api_key) {
            Ok(api) => write!(f, "{api:?} is needed in versions {our_min} to {our_max}")?,
            Err(()) => write!(f, "API {} is needed in versions {our_min} to {our_max}", self.api_key)?,
        }
        match self.broker {
            None => f.write_str(
                ", and the broker does not offer it; upgrade the broker (Kafka 2.1 is the oldest supported), or check that no \
                 proxy hides the API",
            ),
            Some((min, max)) if min > our_max => {
                write!(f, ", and the broker offers {min} to {max}; the broker is newer than this program: upgrade this program")
            }
            Some((min, max)) => {
                write!(f, ", and the broker offers {min} to {max}; upgrade the broker (Kafka 2.1 is the oldest supported)")
            }
        }
    }
}

impl ApiVersions {
    /// Takes (API key, first version, last version) as the broker listed them; the last entry of a key counts.
    pub fn new(ranges: impl IntoIterator<Item = (i16, i16, i16)>) -> Self {
        Self { ranges: ranges.into_iter().map(|(api_key, min, max)| (api_key, (min, max))).collect() }
    }

    /// First and last version the broker advertised for an API.
    pub fn range(&self, api_key: i16) -> Option<(i16, i16)> {
        self.ranges.get(&api_key).copied()
    }

    /// The newest version of `R` that both sides can use.
    ///
    /// # Errors
    /// [`UnsupportedApi`] if there is none.
    pub fn negotiate<R: Request>(&self) -> Result<i16, UnsupportedApi> {
        self.negotiate_up_to::<R>(i16::MAX)
    }

    /// As [`ApiVersions::negotiate`], but nothing newer than `max`: for versions that change a meaning we do not want.
    ///
    /// # Errors
    /// [`UnsupportedApi`] if there is none.
    pub fn negotiate_up_to<R: Request>(&self, max: i16) -> Result<i16, UnsupportedApi> {
        let known = usable::<R>();
        let ours = (known.min, known.max.min(max));
        let broker = self.range(R::KEY);
        let common = broker.map(|(min, max)| (ours.0.max(min), ours.1.min(max)));
        match common {
            Some((min, max)) if min <= max => Ok(max),
            _ => Err(UnsupportedApi { api_key: R::KEY, ours, broker }),
        }
    }
}

impl FromIterator<(i16, i16, i16)> for ApiVersions {
    fn from_iter<I: IntoIterator<Item = (i16, i16, i16)>>(ranges: I) -> Self {
        Self::new(ranges)
    }
}

/// What the crate can really encode and decode of an API: request and response have to agree, and each message's own
/// `VERSIONS` is the truth (`ApiKey::valid_versions` overstates OffsetCommit, OffsetFetch and InitProducerId).
fn usable<R: Request>() -> VersionRange {
    let known = R::VERSIONS.intersect(&<R::Response as Message>::VERSIONS);
    let floor = match ApiKey::try_from(R::KEY) {
        // Kafka 4 advertises Produce 0 to 2 for the sake of old librdkafka clients and then closes the connection
        // (KIP-896); only from 3 on does a request carry v2 batches.
        Ok(ApiKey::Produce) => 3,
        // Below 4 a broker converts batches to the old format instead of returning them as stored.
        Ok(ApiKey::Fetch) => 4,
        _ => known.min,
    };
    VersionRange { min: known.min.max(floor), max: known.max }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::{
        FetchRequest, InitProducerIdRequest, MetadataRequest, OffsetCommitRequest, OffsetFetchRequest, ProduceRequest,
    };

    use super::*;

    #[test]
    fn the_newest_common_version_is_used() {
        // Ranges of Kafka 2.8.2 (broker-experiments, S9).
        let broker = ApiVersions::new([(0, 0, 9), (1, 0, 12), (3, 0, 11), (8, 0, 8), (9, 0, 7), (22, 0, 4)]);
        assert_eq!(broker.negotiate::<ProduceRequest>(), Ok(9));
        assert_eq!(broker.negotiate::<FetchRequest>(), Ok(12));
        assert_eq!(broker.negotiate::<MetadataRequest>(), Ok(11));
        assert_eq!(broker.negotiate_up_to::<FetchRequest>(11), Ok(11));
    }

    #[test]
    fn versions_the_crate_only_claims_are_not_used() {
        // Ranges of Kafka 4.3.1; the crate encodes OffsetCommit and OffsetFetch to 9 and InitProducerId to 5.
        let broker: ApiVersions = [(8, 2, 10), (9, 1, 10), (22, 0, 6)].into_iter().collect();
        assert_eq!(broker.negotiate::<OffsetCommitRequest>(), Ok(9));
        assert_eq!(broker.negotiate::<OffsetFetchRequest>(), Ok(9));
        assert_eq!(broker.negotiate::<InitProducerIdRequest>(), Ok(5));
    }

    #[test]
    fn produce_below_3_and_fetch_below_4_are_never_used() {
        let broker = ApiVersions::new([(0, 0, 2), (1, 0, 3)]);
        let error = broker.negotiate::<ProduceRequest>().unwrap_err();
        assert_eq!((error.ours, error.broker), ((3, 13), Some((0, 2))));
        assert_eq!(
            error.to_string(),
            "Produce is needed in versions 3 to 13, and the broker offers 0 to 2; \
             upgrade the broker (Kafka 2.1 is the oldest supported)"
        );
        assert!(broker.negotiate::<FetchRequest>().is_err());
    }

    #[test]
    fn a_missing_or_newer_api_says_what_to_do() {
        let missing = ApiVersions::new([]).negotiate::<FetchRequest>().unwrap_err();
        assert!(missing.to_string().contains("does not offer it"), "{missing}");
        let newer = ApiVersions::new([(1, 30, 40)]).negotiate::<FetchRequest>().unwrap_err();
        assert!(newer.to_string().contains("upgrade this program"), "{newer}");
    }
}
