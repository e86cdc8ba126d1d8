//! Newtypes for the identifiers that must not be mixed up.
//!
//! Offsets stay plain `i64` with telling field names: they are added and compared all the time.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use kafka_protocol::messages as wire;
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

/// The name of a topic; cheap to clone, and cheap to compare with its clones.
#[derive(Clone)]
pub struct TopicName(Arc<str>);

/// The name of a consumer group; cheap to clone.
#[derive(Clone)]
pub struct GroupId(Arc<str>);

macro_rules! text_id {
    ($name:ident) => {
        impl $name {
            /// Takes the text as it is; whether Kafka allows it is for the broker to say.
            pub fn new(text: impl Into<Arc<str>>) -> Self {
                Self(text.into())
            }

            /// The text as Kafka spells it.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        // Comparisons are those of the text. Clones of one name are told by their address: maps by partition are asked
        // several times for each batch, and nearly always about names that are clones of their keys.
        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
            }
        }

        impl Eq for $name {}

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }

        impl Ord for $name {
            fn cmp(&self, other: &Self) -> Ordering {
                if Arc::ptr_eq(&self.0, &other.0) { Ordering::Equal } else { self.0.cmp(&other.0) }
            }
        }

        impl Hash for $name {
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.0.hash(state);
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl From<&$name> for StrBytes {
            fn from(id: &$name) -> Self {
                Self::from_string(id.as_str().to_owned())
            }
        }

        impl From<&$name> for wire::$name {
            fn from(id: &$name) -> Self {
                Self(id.into())
            }
        }

        impl From<&wire::$name> for $name {
            fn from(id: &wire::$name) -> Self {
                Self::from(id.as_str())
            }
        }
    };
}

text_id!(TopicName);
text_id!(GroupId);

/// The 16 bytes that identify a topic across deletion and re-creation (KIP-516).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TopicId([u8; 16]);

/// Url-safe base64 (RFC 4648 section 5), the alphabet in which Kafka prints ids.
const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// 128 bits in groups of six, without padding.
const TOPIC_ID_CHARS: usize = 22;

impl TopicId {
    /// "No id": what brokers before 2.8 and messages below their first id version mean.
    pub const ZERO: Self = Self([0; 16]);

    /// Wraps the bytes as they stand on the wire.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// True for [`TopicId::ZERO`].
    pub fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }

    /// The bytes as they stand on the wire.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = u128::from_be_bytes(self.0);
        let mut text = String::with_capacity(TOPIC_ID_CHARS);
        for group in 0..TOPIC_ID_CHARS {
            // The last group holds the two bits that are left, followed by four zero bits.
            let shift = 122_i32.saturating_sub_unsigned(6 * group as u32);
            let six = if shift >= 0 { bits >> shift } else { bits << 4 } & 0x3f;
            text.push(char::from(BASE64.get(six as usize).copied().unwrap_or(b'?')));
        }
        f.pad(&text)
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is no topic id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a topic id is 22 characters of A-Z a-z 0-9 - and _, as `kafka-topics.sh --describe` prints it")]
pub struct ParseTopicIdError;

impl FromStr for TopicId {
    type Err = ParseTopicIdError;

    /// Reads what `Display` writes. Bits that do not fit into 16 bytes are refused, so that each id has one spelling.
    fn from_str(text: &str) -> Result<Self, ParseTopicIdError> {
        if text.len() != TOPIC_ID_CHARS {
            return Err(ParseTopicIdError);
        }
        let mut bits: u128 = 0;
        for (at, symbol) in text.bytes().enumerate() {
            let six = BASE64.iter().position(|&known| known == symbol).ok_or(ParseTopicIdError)? as u128;
            if at + 1 < TOPIC_ID_CHARS {
                bits = (bits << 6) | six;
            } else if six & 0x0f == 0 {
                bits = (bits << 2) | (six >> 4);
            } else {
                return Err(ParseTopicIdError);
            }
        }
        Ok(Self(bits.to_be_bytes()))
    }
}

impl From<Uuid> for TopicId {
    fn from(id: Uuid) -> Self {
        Self(id.into_bytes())
    }
}

impl From<TopicId> for Uuid {
    fn from(id: TopicId) -> Self {
        Self::from_bytes(id.0)
    }
}

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub i32);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl From<i32> for $name {
            fn from(number: i32) -> Self {
                Self(number)
            }
        }
    };
}

number_id! {
    /// The number of a partition within its topic, from 0.
    PartitionId
}
number_id! {
    /// `node.id` of a broker. Kafka writes -1 for "no broker"; our decoded types say `None` instead.
    BrokerId
}
number_id! {
    /// How often the leadership of a partition changed hands (KIP-101, KIP-320).
    LeaderEpoch
}

impl LeaderEpoch {
    /// "Unknown", and in requests "do not check".
    pub const NONE: Self = Self(-1);
}

impl From<BrokerId> for wire::BrokerId {
    fn from(id: BrokerId) -> Self {
        Self(id.0)
    }
}

impl From<wire::BrokerId> for BrokerId {
    fn from(id: wire::BrokerId) -> Self {
        Self(id.0)
    }
}

/// One partition of one topic.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TopicPartition {
    /// The topic.
    pub topic: TopicName,
    /// The partition within it.
    pub partition: PartitionId,
}

impl TopicPartition {
    /// Puts the two together.
    pub fn new(topic: impl Into<TopicName>, partition: impl Into<PartitionId>) -> Self {
        Self { topic: topic.into(), partition: partition.into() }
    }
}

impl fmt::Display for TopicPartition {
    /// `topic-0`, as Kafka's logs and directories write it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_id_prints_as_url_safe_base64_without_padding() {
        // The reference values come from Python's base64.urlsafe_b64encode.
        let counting: [u8; 16] = std::array::from_fn(|at| at as u8);
        for (bytes, text) in [
            ([0; 16], "AAAAAAAAAAAAAAAAAAAAAA"),
            (counting, "AAECAwQFBgcICQoLDA0ODw"),
            ([0xff; 16], "_____________________w"),
            ([0xfb; 16], "-_v7-_v7-_v7-_v7-_v7-w"),
        ] {
            assert_eq!(TopicId::new(bytes).to_string(), text);
            assert_eq!(text.parse::<TopicId>(), Ok(TopicId::new(bytes)));
        }
    }

    #[test]
    fn a_topic_id_has_one_spelling() {
        for text in [
            "",
            "AAECAwQFBgcICQoLDA0OD",
            "AAECAwQFBgcICQoLDA0ODx",
            "AAECAwQFBgcICQoLDA0O+w",
            "AAECAwQFBgcICQoLDA0ODw==",
        ] {
            assert_eq!(text.parse::<TopicId>(), Err(ParseTopicIdError), "{text}");
        }
    }

    #[test]
    fn a_topic_id_survives_the_crates_uuid() {
        let id = TopicId::new(std::array::from_fn(|at| at as u8 * 7));
        assert_eq!(TopicId::from(Uuid::from(id)), id);
        assert!(TopicId::from(Uuid::nil()).is_zero());
    }

    #[test]
    fn names_compare_by_their_text_wherever_it_stands() {
        let name = TopicName::new("orders");
        let twin = TopicName::new("orders");
        assert_eq!((&name, name.cmp(&twin)), (&twin, Ordering::Equal));
        assert_eq!((&name, name.cmp(&name.clone())), (&name.clone(), Ordering::Equal));
        assert!(TopicName::new("a") < name && name < TopicName::new("orders2"));
        let found = std::collections::HashMap::from([(name, 1)]);
        assert_eq!(found.get(&twin), Some(&1));
    }

    #[test]
    fn a_partition_prints_as_kafka_prints_it() {
        assert_eq!(TopicPartition::new("orders.v1", 7).to_string(), "orders.v1-7");
    }
}
