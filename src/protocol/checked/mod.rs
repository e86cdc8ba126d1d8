//! Decoders of our own for the responses that come by the thousand, with every length checked.
//!
//! The crate's decoders reserve whatever count the wire announces; a corrupt four-byte count makes them ask for
//! gigabytes, and a failed allocation ends the process. These decoders reserve only what the bytes at hand could hold.
//! Records are slices of the frame.
//!
//! Numbers named `…_MIN` are the fewest bytes that an element takes in any version, which is what makes the check
//! sound.

mod fetch;
mod metadata;
mod offset_commit;
mod offset_fetch;
mod produce;

pub use fetch::{AbortedTransaction, FetchResponse, FetchedPartition, FetchedTopic};
pub use metadata::{BrokerEndpoint, MetadataResponse, PartitionMetadata, TopicMetadata};
pub use offset_commit::OffsetCommitResponse;
pub use offset_fetch::{FetchedOffset, OffsetFetchResponse};
pub use produce::{ProduceResponse, ProducedPartition, ProducedTopic};

use super::decode::{DecodeError, Reader};
use super::ids::{BrokerId, LeaderEpoch};

/// Where a broker listens, told along with a NOT_LEADER_OR_FOLLOWER answer (KIP-951).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeEndpoint {
    /// The broker.
    pub id: BrokerId,
    /// Host name or address on the listener that was asked.
    pub host: String,
    /// Port on that listener.
    pub port: i32,
    /// Rack, if the broker has one.
    pub rack: Option<String>,
}

/// node_id, host (empty), port, rack (null), tagged fields; only flexible versions have it.
const NODE_ENDPOINT_MIN: usize = 4 + 1 + 4 + 1 + 1;

fn node_endpoints(reader: &mut Reader) -> Result<Vec<NodeEndpoint>, DecodeError> {
    reader.vec(NODE_ENDPOINT_MIN, |reader| {
        let endpoint = NodeEndpoint {
            id: reader.broker()?,
            host: reader.string()?,
            port: reader.i32()?,
            rack: reader.nullable_string()?,
        };
        reader.skip_tagged_fields()?;
        Ok(endpoint)
    })
}

/// A LeaderIdAndEpoch structure. Brokers that know no leader write -1.
fn current_leader(reader: &mut Reader) -> Result<Option<(BrokerId, LeaderEpoch)>, DecodeError> {
    let leader = reader.broker_or_none()?;
    let epoch = reader.leader_epoch()?;
    reader.skip_tagged_fields()?;
    Ok(leader.map(|leader| (leader, epoch)))
}

#[cfg(test)]
mod tests;
