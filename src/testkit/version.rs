//! Which Kafka the embedded broker behaves like.

/// The versions whose answers were measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BrokerVersion {
    V2_8_2,
    V3_9_2,
    V4_3_1,
}
