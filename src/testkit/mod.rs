//! Peers that live in this process: an embedded Kafka cluster, as strict as a real one where batch forwarding is
//! concerned.
//!
//! [`engine`] is the cluster itself, without sockets, clock or randomness; [`server`] puts it on a network; [`groups`]
//! is its group coordinator. `towpath demo` runs two of them, so all of it is part of the released program.
//!
//! What it does not play is listed in [`engine`].

pub mod engine;
pub mod groups;
pub mod log;
pub mod server;
mod version;

pub use version::BrokerVersion;

/// Names a waiting request; opaque to whoever keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Which topics exist.
pub trait TopicLookup {
    /// Number of partitions of a topic; `None` if it does not exist.
    fn partitions(&self, topic: &str) -> Option<i32>;
}
