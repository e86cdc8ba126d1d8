//! The encode sink that keeps record bytes by reference.
//!
//! The `kafka-protocol` crate writes a message through the trait [`ByteBufMut`]. [`GatherSink`] collects the small
//! writes in one head buffer; when the crate writes the records of a registered batch, recognised by address and
//! length, the sink puts the new 61-byte batch header into the head buffer and keeps the rest of the batch as a slice.
//! The result is a list of buffers for one vectored write. No message is framed by hand, and no payload byte is
//! touched.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::protocol::buf::ByteBufMut;

/// Bytes at the start of a record batch that are replaced: the whole batch header (`batch::HEADER_LEN`).
pub const SEALED_HEAD_LEN: usize = 61;

/// Below this size in bytes a batch is copied into the head buffer: measured, a copy costs less there than one more
/// segment in the vectored write.
const COPY_BELOW: usize = 4096;

/// Bytes of the length in front of a frame.
const LENGTH_PREFIX: usize = size_of::<i32>();

/// Why a frame cannot be finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GatherError {
    /// Registered batches were not met in the message, or in another order. Sending the frame would send unsealed
    /// batches.
    #[error("{0} registered batches were not written in the order of their registration")]
    Unwritten(usize),
    /// The frame is longer than its length field can say.
    #[error("the frame is {0} bytes long, more than its length field can say")]
    TooLong(usize),
}

/// A batch kept by reference, and where in the head buffer it belongs.
#[derive(Debug)]
struct Cut {
    /// Length of the head buffer when the batch was written.
    head_len: usize,
    payload: Bytes,
}

/// A writer for one frame; see the module's text.
#[derive(Debug)]
pub struct GatherSink {
    /// The frame length, then all small writes, without gaps for the payloads.
    head: BytesMut,
    cuts: Vec<Cut>,
    /// Sum of the payload lengths in `cuts`.
    payload_len: usize,
    /// Registered batches not met yet, in the order in which the message holds them.
    expected: VecDeque<(Bytes, [u8; SEALED_HEAD_LEN])>,
}

impl Default for GatherSink {
    fn default() -> Self {
        Self::with_capacity(0)
    }
}

impl GatherSink {
    /// An empty frame whose head buffer has room for `head_capacity` bytes of small writes.
    pub fn with_capacity(head_capacity: usize) -> Self {
        let mut head = BytesMut::with_capacity(head_capacity.saturating_add(LENGTH_PREFIX));
        head.put_bytes(0, LENGTH_PREFIX);
        Self { head, cuts: Vec::new(), payload_len: 0, expected: VecDeque::new() }
    }

    /// Announces that the message holds `original`, a whole batch, and that it goes out with `head` as its header.
    ///
    /// Register in the order of the message. `original` must be the very buffer that the message holds (a clone of the
    /// `Bytes`): it is recognised by address and length. Anything shorter than a batch header is never recognised, so
    /// that [`GatherSink::finish`] will refuse.
    pub fn register(&mut self, original: Bytes, head: [u8; SEALED_HEAD_LEN]) {
        self.expected.push_back((original, head));
    }

    /// As [`Self::register`] for each; nothing may have been registered before.
    pub(super) fn register_all(&mut self, batches: Vec<(Bytes, [u8; SEALED_HEAD_LEN])>) {
        self.expected = batches.into();
    }

    /// Bytes of a batch of `length` bytes that go through the head buffer.
    pub(super) fn copied(length: usize) -> usize {
        if length < COPY_BELOW { length } else { SEALED_HEAD_LEN }
    }

    /// The frame as buffers for one vectored write; the first begins with the frame length.
    ///
    /// # Errors
    /// See [`GatherError`].
    pub fn finish(mut self) -> Result<Vec<Bytes>, GatherError> {
        if !self.expected.is_empty() {
            return Err(GatherError::Unwritten(self.expected.len()));
        }
        let frame_len = self.head.len().saturating_sub(LENGTH_PREFIX).saturating_add(self.payload_len);
        let announced = i32::try_from(frame_len).map_err(|_| GatherError::TooLong(frame_len))?;
        if let Some(prefix) = self.head.first_chunk_mut::<LENGTH_PREFIX>() {
            *prefix = announced.to_be_bytes();
        }
        let mut head = self.head.freeze();
        let mut segments = Vec::with_capacity(self.cuts.len().saturating_mul(2).saturating_add(1));
        let mut written = 0_usize;
        for cut in self.cuts {
            // `head_len` never shrinks from cut to cut, nor exceeds the head: `seek` does not go behind a cut.
            let before = head.split_to(cut.head_len.saturating_sub(written).min(head.len()));
            written = cut.head_len;
            segments.push(before);
            segments.push(cut.payload);
        }
        if !head.is_empty() {
            segments.push(head);
        }
        Ok(segments)
    }

    /// Takes the next registered batch if `source` is it.
    fn take_registered(&mut self, source: &[u8]) -> Option<(Bytes, [u8; SEALED_HEAD_LEN])> {
        if source.len() < SEALED_HEAD_LEN {
            return None;
        }
        self.expected
            .pop_front_if(|(original, _)| original.as_ptr() == source.as_ptr() && original.len() == source.len())
    }

    /// Where a logical position (payloads included) lies in the head buffer.
    fn head_position(&self, logical: usize) -> usize {
        let mut before = self.payload_len;
        for cut in self.cuts.iter().rev() {
            if cut.head_len.saturating_add(before) <= logical {
                break;
            }
            before = before.saturating_sub(cut.payload.len());
        }
        logical.saturating_sub(before)
    }
}

mod sink {
    //! The one `unsafe impl` of this layer.
    #![allow(unsafe_code)]
    // The trait is unsafe because `advance_mut` and `chunk_mut` expose uninitialised memory. Both go straight to
    // `BytesMut`, which upholds the contract. There is no safe way to implement the trait, and the crate's encoder
    // takes nothing else.

    use bytes::buf::UninitSlice;

    use super::{BufMut, COPY_BELOW, Cut, GatherSink, SEALED_HEAD_LEN};

    unsafe impl BufMut for GatherSink {
        fn remaining_mut(&self) -> usize {
            self.head.remaining_mut()
        }

        unsafe fn advance_mut(&mut self, count: usize) {
            // SAFETY: the caller wrote `count` bytes into the slice that `chunk_mut` took from the same buffer.
            unsafe { self.head.advance_mut(count) }
        }

        fn chunk_mut(&mut self) -> &mut UninitSlice {
            self.head.chunk_mut()
        }

        fn put_slice(&mut self, source: &[u8]) {
            let Some((original, head)) = self.take_registered(source) else {
                self.head.extend_from_slice(source);
                return;
            };
            self.head.extend_from_slice(&head);
            if original.len() < COPY_BELOW {
                self.head.extend_from_slice(original.get(SEALED_HEAD_LEN..).unwrap_or_default());
                return;
            }
            let payload = original.slice(SEALED_HEAD_LEN..);
            self.payload_len = self.payload_len.saturating_add(payload.len());
            self.cuts.push(Cut { head_len: self.head.len(), payload });
        }
    }
}

/// Positions count the payloads kept by reference as if they had been copied. The messages themselves use none of
/// these; they exist for gaps, which never reach into a payload.
impl ByteBufMut for GatherSink {
    fn offset(&self) -> usize {
        self.head.len().saturating_add(self.payload_len)
    }

    fn seek(&mut self, offset: usize) {
        let earliest = self.cuts.last().map_or(LENGTH_PREFIX, |cut| cut.head_len);
        self.head.resize(offset.saturating_sub(self.payload_len).max(earliest), 0);
    }

    fn range(&mut self, range: Range<usize>) -> &mut [u8] {
        let start = self.head_position(range.start);
        let end = start.saturating_add(range.len());
        self.head.get_mut(start..end).unwrap_or_default()
    }
}
