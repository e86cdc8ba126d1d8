//! Arithmetic of producer sequences: 31 bits, and after the largest comes 0.

const MASK: i64 = i32::MAX as i64;

fn wrap(sequence: i64) -> i32 {
    (sequence & MASK) as i32
}

/// The sequence `count` records after `sequence`.
pub fn advance(sequence: i32, count: i32) -> i32 {
    wrap(i64::from(sequence).saturating_add(i64::from(count)))
}

/// The sequence of the last of `count` records of which `base` is the first; `count` must be positive.
pub fn last(base: i32, count: i32) -> i32 {
    wrap(i64::from(base).saturating_add(i64::from(count)).saturating_sub(1))
}

/// How many records `to` is ahead of `from`, 0 to 2^31 - 1.
pub fn distance(from: i32, to: i32) -> i32 {
    wrap(i64::from(to).saturating_sub(i64::from(from)))
}

/// The sequence that a source offset stands for where sequences are the offsets modulo 2^31.
pub fn of_offset(source_offset: i64) -> i32 {
    wrap(source_offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_follows_the_largest_sequence() {
        assert_eq!(advance(0, 1), 1);
        assert_eq!(advance(i32::MAX, 1), 0);
        assert_eq!(advance(i32::MAX - 3, 10), 6);
        assert_eq!(last(i32::MAX, 1), i32::MAX);
        assert_eq!(last(i32::MAX, 2), 0);
        assert_eq!(last(7, 1), 7);
    }

    #[test]
    fn distance_undoes_advance() {
        for (from, count) in [(0, 0), (5, 1), (i32::MAX, 1), (i32::MAX - 4, 100), (1, i32::MAX)] {
            assert_eq!(distance(from, advance(from, count)), count);
        }
        assert_eq!(distance(5, 4), i32::MAX);
    }

    #[test]
    fn offsets_wrap_where_sequences_do() {
        assert_eq!(of_offset(0), 0);
        assert_eq!(of_offset((1 << 31) - 1), i32::MAX);
        assert_eq!(of_offset(1 << 31), 0);
        assert_eq!(of_offset((5 << 31) + 17), 17);
        assert_eq!(advance(of_offset((1 << 31) - 2), 5), of_offset((1 << 31) + 3));
    }
}
