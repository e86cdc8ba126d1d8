//! Test peers: an in-process Kafka broker and what it is made of. Behind the feature `testkit`, never in a release.

pub mod groups;
mod version;

pub use version::BrokerVersion;

/// Which request an answer belongs to, chosen by the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What the group coordinator needs to know of the cluster's topics.
pub trait TopicLookup {
    /// `None`: there is no such topic.
    fn partitions(&self, topic: &str) -> Option<i32>;
}
