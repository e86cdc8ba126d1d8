//! A cluster as an object: who leads what, who coordinates what, and the requests the mirror makes.
//!
//! Leaves decisions about copying to `mirror`. Error codes of brokers are judged in one place, [`recovery`].
//! Start reading at [`Cluster`]; the hot path uses [`fetch_session`].

mod admin;
mod cluster;
mod error;
pub mod fetch_session;
mod groups;
mod offsets;
pub mod recovery;
mod snapshot;

pub use admin::{NewTopic, TopicConfigs};
pub(crate) use cluster::wire_topic;
pub use cluster::{Cluster, ClusterConfig};
pub use error::ClientError;
pub use groups::{GroupConnection, GroupMember, JoinAnswer, JoinRequest, OffsetToCommit, SyncAnswer};
pub use offsets::{EpochEnd, ListedOffset, OffsetQuery, ProducerState, describe_producers, epoch_end, list_offsets};
pub use snapshot::{ClusterSnapshot, Endpoint, PartitionLeader, TopicInfo};
