//! The few fields that the hot messages consist of, read and written in place.

/// Reads from the front of a slice. `None` means the message is shorter than it says.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    pub(crate) fn i16(&mut self) -> Option<i16> {
        self.take(2)?.try_into().ok().map(i16::from_be_bytes)
    }

    pub(crate) fn i32(&mut self) -> Option<i32> {
        self.take(4)?.try_into().ok().map(i32::from_be_bytes)
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.take(8)?.try_into().ok().map(i64::from_be_bytes)
    }

    pub(crate) fn varint(&mut self) -> Option<usize> {
        let mut value = 0_u32;
        for shift in [0, 7, 14, 21, 28] {
            let byte = *self.take(1)?.first()?;
            value |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return usize::try_from(value).ok();
            }
        }
        None
    }

    /// Length of a compact array, string or byte field; null counts as empty.
    pub(crate) fn length(&mut self) -> Option<usize> {
        self.varint().map(|length| length.saturating_sub(1))
    }

    pub(crate) fn compact(&mut self) -> Option<&'a [u8]> {
        let length = self.length()?;
        self.take(length)
    }

    pub(crate) fn tags(&mut self) -> Option<()> {
        for _ in 0..self.varint()? {
            self.varint()?;
            let length = self.varint()?;
            self.take(length)?;
        }
        Some(())
    }
}

/// Appends an unsigned varint.
pub(crate) fn put_varint(out: &mut Vec<u8>, value: usize) {
    let mut rest = value;
    while rest >= 0x80 {
        #[expect(clippy::cast_possible_truncation, reason = "the low seven bits are meant")]
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    #[expect(clippy::cast_possible_truncation, reason = "less than 128")]
    out.push(rest as u8);
}
