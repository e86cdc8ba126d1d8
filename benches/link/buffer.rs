//! Buffers at a fixed place within a page.
//!
//! Some processors copy several times slower when the destination lies a few bytes behind the source, counted within a
//! page (seen on AMD Zen 3, in the kernel's copies). Large allocations begin 16 bytes behind a page's start, and what a
//! socket holds often begins at one: a peer that always met this would be the dearest part of a run, a relay no floor.

const PAGE: usize = 4096;
/// Half a page away from where most sources begin.
const PLACE: usize = PAGE / 2;

/// Bytes whose first one lies in the middle of a page.
pub(crate) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
}

impl Buffer {
    pub(crate) fn new(length: usize) -> Self {
        let bytes = vec![0; length + PAGE];
        let start = (PAGE + PLACE - bytes.as_ptr().addr() % PAGE) % PAGE;
        Self { bytes, start }
    }

    pub(crate) fn all(&mut self) -> &mut [u8] {
        let end = self.bytes.len() - PAGE + self.start;
        &mut self.bytes[self.start..end]
    }
}
