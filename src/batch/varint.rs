//! Zigzag varints as records use them.

/// Reads a zigzag varint of at most 64 bits from the start of `rest`, which moves past it. `None` if it is cut off or
/// longer.
pub(crate) fn take_long(rest: &mut &[u8]) -> Option<i64> {
    let mut raw: u64 = 0;
    let mut bytes = *rest;
    for shift in (0..70_u32).step_by(7) {
        let (&byte, tail) = bytes.split_first()?;
        bytes = tail;
        // The tenth byte has room for one bit.
        if shift == 63 && byte > 1 {
            return None;
        }
        raw |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            *rest = bytes;
            return Some((raw >> 1) as i64 ^ -((raw & 1) as i64));
        }
    }
    None
}

/// As [`take_long`], for values that must fit into 32 bits.
pub(crate) fn take_int(rest: &mut &[u8]) -> Option<i32> {
    let mut ahead = *rest;
    let value = i32::try_from(take_long(&mut ahead)?).ok()?;
    *rest = ahead;
    Some(value)
}

/// Bytes of a zigzag varint.
pub(crate) fn length_of(value: i64) -> usize {
    let raw = ((value << 1) ^ (value >> 63)) as u64;
    let bits = u64::BITS - (raw | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

/// Appends a zigzag varint.
pub(crate) fn put_long(buffer: &mut Vec<u8>, value: i64) {
    let mut raw = ((value << 1) ^ (value >> 63)) as u64;
    while raw >= 0x80 {
        buffer.push(raw as u8 | 0x80);
        raw >>= 7;
    }
    buffer.push(raw as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_protocol_buffers_documentation() {
        // Zigzag: 0, -1, 1, -2 become 0, 1, 2, 3; 150 in plain form is 96 01.
        for (value, bytes) in [
            (0, &[0_u8][..]),
            (-1, &[1]),
            (1, &[2]),
            (-2, &[3]),
            (75, &[0x96, 0x01]),
            (i64::from(i32::MAX), &[0xfe, 0xff, 0xff, 0xff, 0x0f]),
            (i64::from(i32::MIN), &[0xff, 0xff, 0xff, 0xff, 0x0f]),
            (i64::MAX, &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]),
            (i64::MIN, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]),
        ] {
            let mut written = Vec::new();
            put_long(&mut written, value);
            assert_eq!(written, bytes);
            assert_eq!(length_of(value), bytes.len());
            let mut rest = bytes;
            assert_eq!((take_long(&mut rest), rest.len()), (Some(value), 0));
        }
    }

    #[test]
    fn cut_off_and_overlong_varints_are_refused() {
        for bytes in [&[][..], &[0x80], &[0xff; 10], &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]] {
            let mut rest = bytes;
            assert_eq!((take_long(&mut rest), rest), (None, bytes));
        }
        let mut rest = &[0x80, 0x80, 0x80, 0x80, 0x10][..];
        assert_eq!((take_int(&mut rest), rest.len()), (None, 5));
    }
}
