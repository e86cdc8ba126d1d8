//! What surrounds the messages of the `kafka-protocol` crate: frames, checked decoding, encoding without copies.
//!
//! Everything here is a pure function of bytes and a version. Nothing in this module opens a socket, reads a clock or
//! logs. Bytes from a peer never panic and never decide an allocation before they were checked against what is at hand.
//!
//! Start at [`encode_request`] and [`ProduceWriter`] for the way out and at [`split_response`] for the way in; the body that the latter
//! returns goes to one of the checked decoders ([`FetchResponse`] and its neighbours) or to [`decode_response`].
// Tests may index and unwrap: a panic there is a failed test.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

mod api_version;
mod checked;
mod decode;
mod error_code;
mod frame;
mod guard;
mod ids;
mod partition_map;
mod produce_writer;
#[cfg(test)]
mod random;
mod request;
mod request_header;
mod request_schema;
mod schema;

pub use api_version::{ApiVersions, UnsupportedApi};
pub use checked::{
    AbortedTransaction, BrokerEndpoint, FetchResponse, FetchedOffset, FetchedPartition, FetchedTopic, MetadataResponse,
    NodeEndpoint, OffsetCommitResponse, OffsetFetchResponse, PartitionMetadata, ProduceResponse, ProducedPartition,
    ProducedTopic, TopicMetadata,
};
pub use decode::{DecodeError, Fault, Reader};
pub use error_code::ErrorCode;
pub use frame::{FrameError, frame_length, split_response};
pub use guard::{decode_request, decode_response};
pub use ids::{BrokerId, GroupId, LeaderEpoch, ParseTopicIdError, PartitionId, TopicId, TopicName, TopicPartition};
pub use partition_map::{NumberHasher, PartitionMap};
pub use produce_writer::{FrameSlice, ProduceWriter, SEALED_HEAD_LEN};
pub use request::{EncodeError, encode_request};
pub use request_header::{RequestHead, split_request};
