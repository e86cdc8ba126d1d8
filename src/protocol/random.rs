//! A small seeded generator for property tests, so that a failure repeats.

use bytes::Bytes;
use kafka_protocol::protocol::StrBytes;

/// xorshift64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.next() >> 33) as usize % bound.max(1)
    }

    pub(crate) fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }

    pub(crate) fn bytes(&mut self, max: usize) -> Bytes {
        (0..self.below(max + 1)).map(|_| self.next() as u8).collect()
    }

    pub(crate) fn text(&mut self) -> String {
        (0..self.below(12)).map(|_| char::from(b'a' + self.below(26) as u8)).collect()
    }

    pub(crate) fn str_bytes(&mut self) -> StrBytes {
        StrBytes::from_string(self.text())
    }

    pub(crate) fn optional<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.chance(3) { None } else { Some(make(self)) }
    }

    pub(crate) fn vec<T>(&mut self, max: usize, mut make: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(max + 1)).map(|_| make(self)).collect()
    }

    /// Changes a few bytes: flips, overwrites with extreme values, cuts, and inserts.
    pub(crate) fn mutate(&mut self, original: &[u8]) -> Bytes {
        let mut bytes = original.to_vec();
        for _ in 0..=self.below(3) {
            if bytes.is_empty() {
                break;
            }
            let at = self.below(bytes.len());
            match self.below(5) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes[at] = [0, 0x7f, 0x80, 0xff][self.below(4)],
                2 => bytes.truncate(at),
                3 => bytes.insert(at, self.next() as u8),
                _ => {
                    let end = bytes.len().min(at + 4);
                    bytes[at..end].fill(0xff);
                    bytes[at] = 0x7f;
                }
            }
        }
        bytes.into()
    }
}
