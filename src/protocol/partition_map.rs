//! A map by partition that is asked several times for each batch.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{BuildHasherDefault, Hasher},
};

use super::ids::{PartitionId, TopicName, TopicPartition};

/// Hashes one number of our own or of a broker we trust with our data: a product spreads what counts up well enough.
#[derive(Debug, Default, Clone, Copy)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_i32(&mut self, number: i32) {
        self.write_u32(number.cast_unsigned());
    }

    fn write_u32(&mut self, number: u32) {
        // 2^64 divided by the golden ratio.
        self.0 = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// Values by partition: topics in order, since clones of a name compare at once and hashing one does not; the partitions
/// of a topic hashed, since their numbers hash at once and finding them in a tree passes over many cache lines.
#[derive(Debug)]
pub struct PartitionMap<V> {
    topics: BTreeMap<TopicName, HashMap<PartitionId, V, BuildHasherDefault<NumberHasher>>>,
}

impl<V> Default for PartitionMap<V> {
    fn default() -> Self {
        Self { topics: BTreeMap::new() }
    }
}

impl<V> PartitionMap<V> {
    /// The value of a partition.
    #[must_use]
    pub fn get(&self, key: &TopicPartition) -> Option<&V> {
        self.topics.get(&key.topic)?.get(&key.partition)
    }

    /// The value of a partition, to change it.
    #[must_use]
    pub fn get_mut(&mut self, key: &TopicPartition) -> Option<&mut V> {
        self.topics.get_mut(&key.topic)?.get_mut(&key.partition)
    }

    /// Sets a value; returns the former one.
    pub fn insert(&mut self, key: TopicPartition, value: V) -> Option<V> {
        self.topics.entry(key.topic).or_default().insert(key.partition, value)
    }

    /// Takes a value out. The topic's place stays, for partitions come and go.
    pub fn remove(&mut self, key: &TopicPartition) -> Option<V> {
        self.topics.get_mut(&key.topic)?.remove(&key.partition)
    }

    /// Keeps only what `keep` says, and forgets topics of which nothing is left.
    pub fn retain(&mut self, mut keep: impl FnMut(&V) -> bool) {
        self.topics.retain(|_, partitions| {
            partitions.retain(|_, value| keep(value));
            !partitions.is_empty()
        });
    }

    /// All partitions, those of a topic together, in no other order.
    pub fn iter(&self) -> impl Iterator<Item = (TopicPartition, &V)> {
        self.topics.iter().flat_map(|(topic, partitions)| {
            partitions
                .iter()
                .map(|(partition, value)| (TopicPartition { topic: topic.clone(), partition: *partition }, value))
        })
    }

    /// All partitions in order.
    #[must_use]
    pub fn keys_in_order(&self) -> Vec<TopicPartition> {
        let mut keys: Vec<TopicPartition> = self.iter().map(|(key, _)| key).collect();
        keys.sort_unstable();
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_told_apart_by_topic_and_number() {
        let mut map = PartitionMap::default();
        let key = TopicPartition::new;
        for (topic, partition, value) in [("b", 1, 10), ("a", 1, 20), ("a", 0, 30), ("a", 2000, 40)] {
            assert_eq!(map.insert(key(topic, partition), value), None);
        }
        assert_eq!(map.insert(key("a", 1), 21), Some(20));
        assert_eq!(map.get(&key("a", 1)), Some(&21));
        assert_eq!(map.get(&key("a", 3)), None);
        assert_eq!(map.get(&key("c", 1)), None);
        if let Some(value) = map.get_mut(&key("b", 1)) {
            *value += 1;
        }
        assert_eq!(map.keys_in_order(), [key("a", 0), key("a", 1), key("a", 2000), key("b", 1)]);
        map.retain(|value| *value != 30);
        assert_eq!(map.remove(&key("a", 2000)), Some(40));
        assert_eq!(map.remove(&key("a", 2000)), None);
        assert_eq!(
            map.iter().map(|(key, value)| (key.to_string(), *value)).collect::<Vec<_>>(),
            [("a-1".to_owned(), 21), ("b-1".to_owned(), 11)]
        );
    }
}
