//! Slots: the unit of ownership, and sets of them.
//!
//! A flow may have tens of thousands of partitions, and a group assignment should not. So partitions fall into
//! [`SLOTS`] slots by a hash that is the same in every worker and every version, and the lease deals in slots.
//! 240 divides evenly by 1-6, 8, 10, 12, 15, 16, 20: the usual numbers of workers get equal shares.

use std::fmt;

/// Number of slots of a flow. Part of the group's protocol: changing it means a new protocol name.
pub const SLOTS: u8 = 240;

const WORDS: usize = 4;

/// FNV-1a, 64 bits: offset basis 0xcbf29ce484222325, prime 0x100000001b3, over the bytes in order.
///
/// Written out because it must never change: workers of different versions have to agree on it.
/// Source: <http://www.isthe.com/chongo/tech/comp/fnv/>.
pub(super) fn fnv1a_64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// The slot of a source partition: `(fnv1a_64(topic) + partition) mod 240`.
///
/// Neighbouring partitions of a topic lie in neighbouring slots, which the plan spreads over the workers.
/// `topic` is the topic's name on the *source*. A negative partition (which Kafka never has) is taken modulo too.
pub fn slot_of(topic: &str, partition: i32) -> u8 {
    let slots = u64::from(SLOTS);
    let partition = i64::from(partition).rem_euclid(i64::from(SLOTS)).unsigned_abs();
    let slot = (fnv1a_64(topic.as_bytes()) % slots + partition) % slots;
    u8::try_from(slot).unwrap_or(0) // < 240 by the line above
}

/// A set of slots, as a bitset of fixed size (32 bytes, `Copy`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SlotSet([u64; WORDS]);

impl SlotSet {
    /// Bytes of the encoded form: one bit per slot, slot 0 is the lowest bit of the first byte.
    pub const ENCODED_LEN: usize = SLOTS as usize / 8;

    /// No slot.
    pub const EMPTY: Self = Self([0; WORDS]);

    /// All 240 slots.
    pub const ALL: Self = Self([u64::MAX, u64::MAX, u64::MAX, (1 << 48) - 1]);

    /// Adds a slot; says whether it was new. Slots of 240 and more do not exist and are ignored.
    pub fn insert(&mut self, slot: u8) -> bool {
        let new = slot < SLOTS && !self.contains(slot);
        if new {
            self.0[usize::from(slot / 64)] |= 1 << (slot % 64);
        }
        new
    }

    /// Takes a slot out; says whether it was there.
    pub fn remove(&mut self, slot: u8) -> bool {
        let there = self.contains(slot);
        if there {
            self.0[usize::from(slot / 64)] &= !(1 << (slot % 64));
        }
        there
    }

    /// Whether the slot is in the set; false for slots that do not exist.
    pub fn contains(&self, slot: u8) -> bool {
        slot < SLOTS && self.0[usize::from(slot / 64)] & (1 << (slot % 64)) != 0
    }

    /// How many slots are in the set, 0 to 240.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether no slot is in the set.
    pub fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }

    /// The slots in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u8> + use<> {
        let set = *self;
        (0..SLOTS).filter(move |slot| set.contains(*slot))
    }

    /// Slots in either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a | b)
    }

    /// Slots in both sets.
    #[must_use]
    pub fn intersect(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a & b)
    }

    /// Slots in this set and not in the other.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        self.zip(other, |a, b| a & !b)
    }

    /// Whether every slot of this set is in the other.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.minus(other).is_empty()
    }

    /// The 30 bytes of the wire form.
    pub fn to_bytes(&self) -> [u8; Self::ENCODED_LEN] {
        let mut bytes = [0; Self::ENCODED_LEN];
        for (byte, index) in bytes.iter_mut().zip(0u8..) {
            *byte = (0..8).filter(|bit| self.contains(index * 8 + bit)).fold(0, |sum, bit| sum | (1 << bit));
        }
        bytes
    }

    /// Reads the wire form. Every 30 bytes are a valid set.
    pub fn from_bytes(bytes: &[u8; Self::ENCODED_LEN]) -> Self {
        let mut set = Self::EMPTY;
        for (byte, index) in bytes.iter().zip(0u8..) {
            for bit in (0..8).filter(|bit| byte & (1 << bit) != 0) {
                set.insert(index * 8 + bit);
            }
        }
        set
    }

    fn zip(&self, other: &Self, op: impl Fn(u64, u64) -> u64) -> Self {
        let mut words = [0; WORDS];
        for (word, (a, b)) in words.iter_mut().zip(self.0.iter().zip(other.0)) {
            *word = op(*a, b);
        }
        Self(words)
    }
}

impl FromIterator<u8> for SlotSet {
    fn from_iter<I: IntoIterator<Item = u8>>(slots: I) -> Self {
        let mut set = Self::EMPTY;
        for slot in slots {
            set.insert(slot);
        }
        set
    }
}

/// Ranges for people: `0-3,7,12-14 (8 of 240)`.
impl fmt::Display for SlotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return write!(f, "none");
        }
        let mut separator = "";
        let mut slots = self.iter().peekable();
        while let Some(first) = slots.next() {
            let mut last = first;
            while let Some(next) = slots.next_if(|next| *next == last + 1) {
                last = next;
            }
            if first == last {
                write!(f, "{separator}{first}")?;
            } else {
                write!(f, "{separator}{first}-{last}")?;
            }
            separator = ",";
        }
        write!(f, " ({} of {SLOTS})", self.len())
    }
}

impl fmt::Debug for SlotSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        // Test vectors of the FNV authors.
        assert_eq!(fnv1a_64(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a_64(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a_64(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn partitions_of_a_topic_lie_in_neighbouring_slots_and_the_place_never_changes() {
        assert_eq!(slot_of("foobar", 0), u8::try_from(0x8594_4171_f739_67e8_u64 % 240).unwrap());
        for partition in 0..1000 {
            assert_eq!(slot_of("orders", partition + 1), (slot_of("orders", partition) + 1) % SLOTS);
        }
        for partition in [i32::MIN, -1, i32::MAX] {
            assert!(slot_of("x", partition) < SLOTS);
        }
    }

    #[test]
    fn sets_behave_like_sets() {
        let a: SlotSet = [0, 1, 2, 63, 64, 239].into_iter().collect();
        let b: SlotSet = [2, 3, 64].into_iter().collect();
        assert_eq!(a.intersect(&b).iter().collect::<Vec<_>>(), [2, 64]);
        assert_eq!(a.minus(&b).iter().collect::<Vec<_>>(), [0, 1, 63, 239]);
        assert_eq!(a.union(&b).len(), 7);
        assert_eq!(SlotSet::ALL.len(), 240);
        assert_eq!(SlotSet::ALL.iter().count(), 240);
        assert_eq!(SlotSet::from_bytes(&a.to_bytes()), a);
        assert_eq!(SlotSet::from_bytes(&[0xff; 30]), SlotSet::ALL);
        assert_eq!(SlotSet::from_bytes(&SlotSet::ALL.to_bytes()), SlotSet::ALL);
        let mut c = a;
        assert!(!c.insert(240) && !c.insert(255) && !c.contains(240) && c.insert(5) && c.remove(5) && !c.remove(5));
        assert_eq!(c, a);
    }

    #[test]
    fn a_set_shows_ranges() {
        assert_eq!(SlotSet::EMPTY.to_string(), "none");
        assert_eq!(SlotSet::ALL.to_string(), "0-239 (240 of 240)");
        let set: SlotSet = [0, 1, 2, 7, 238, 239].into_iter().collect();
        assert_eq!(set.to_string(), "0-2,7,238-239 (6 of 240)");
    }
}
