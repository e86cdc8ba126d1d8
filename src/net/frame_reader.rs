//! Cuts a stream into frames.
//!
//! A frame that may hold records is read into a buffer of its own, which nothing copies afterwards. Other answers are
//! small and often come several at once; they are read together and cut, which saves a system call each.
//!
//! Invariant: a frame's buffer is allocated only after its announced length passed the limit.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio_util::io::poll_read_buf;

use super::transport::BoxTransport;
use crate::protocol::{FrameError, frame_length};

const PREFIX: usize = 4;
/// Small answers read together, in bytes.
const AHEAD: usize = 4096;

/// What the next frame may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected {
    /// Largest length that is believed.
    pub(super) bytes_max: usize,
    /// It may hold records, which must not be copied.
    pub(super) records: bool,
}

/// Why there is no next frame.
#[derive(Debug)]
pub(super) enum ReadFault {
    Closed,
    Io(io::Error),
    Frame(FrameError),
}

/// The state between two reads.
#[derive(Debug, Default)]
pub(super) struct FrameReader {
    /// Bytes before the current frame's body: a prefix, or small frames.
    ahead: BytesMut,
    body: Option<(BytesMut, usize)>,
}

impl FrameReader {
    /// The next frame, without its length prefix. `expected` is for the frame that begins next; one that is under way
    /// keeps what was said when it began.
    pub(super) fn poll_frame(
        &mut self,
        transport: &mut BoxTransport,
        cx: &mut Context<'_>,
        expected: Expected,
    ) -> Poll<Result<Bytes, ReadFault>> {
        loop {
            if let Some((body, length)) = &mut self.body {
                if body.len() >= *length {
                    // The slack below may have brought the beginning of the frame behind this one.
                    self.ahead.extend_from_slice(body.get(*length..).unwrap_or_default());
                    body.truncate(*length);
                    let frame = std::mem::take(body).freeze();
                    self.body = None;
                    return Poll::Ready(Ok(frame));
                }
                // Asking for a little more than the frame: a read that comes back short tells the runtime that the
                // socket is empty, which saves the read that would find out.
                let room = (*length - body.len()).saturating_add(PREFIX);
                match read(transport, cx, &mut body.limit(room)) {
                    Poll::Ready(Ok(())) => continue,
                    Poll::Ready(Err(fault)) => return Poll::Ready(Err(fault)),
                    Poll::Pending => return Poll::Pending,
                }
            }
            if let Some(&[a, b, c, d]) = self.ahead.get(..PREFIX) {
                let length = match frame_length([a, b, c, d], expected.bytes_max) {
                    Ok(length) => length,
                    Err(error) => return Poll::Ready(Err(ReadFault::Frame(error))),
                };
                self.ahead.advance(PREFIX);
                let mut body = BytesMut::with_capacity(length.saturating_add(PREFIX));
                let here = self.ahead.len().min(length);
                body.extend_from_slice(&self.ahead.split_to(here));
                self.body = Some((body, length));
                continue;
            }
            let wanted = if expected.records { PREFIX } else { AHEAD };
            let room = wanted.saturating_sub(self.ahead.len());
            self.ahead.reserve(room);
            match read(transport, cx, &mut (&mut self.ahead).limit(room)) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(fault)) => return Poll::Ready(Err(fault)),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

fn read(
    transport: &mut BoxTransport,
    cx: &mut Context<'_>,
    into: &mut bytes::buf::Limit<&mut BytesMut>,
) -> Poll<Result<(), ReadFault>> {
    poll_read_buf(Pin::new(transport), cx, into).map(|result| match result {
        Ok(0) => Err(ReadFault::Closed),
        Ok(_) => Ok(()),
        Err(error) => Err(ReadFault::Io(error)),
    })
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncWriteExt;

    use super::*;

    const PLAIN: Expected = Expected { bytes_max: 1 << 20, records: false };
    const RECORDS: Expected = Expected { bytes_max: 1 << 20, records: true };

    async fn next(reader: &mut FrameReader, from: &mut BoxTransport, expected: Expected) -> Result<Bytes, ReadFault> {
        poll_fn(|cx| reader.poll_frame(from, cx, expected)).await
    }

    fn framed(body: &[u8]) -> Vec<u8> {
        let mut frame = u32::try_from(body.len()).expect("small").to_be_bytes().to_vec();
        frame.extend_from_slice(body);
        frame
    }

    #[tokio::test]
    async fn frames_come_out_as_they_went_in_however_they_are_cut() {
        let bodies: Vec<Vec<u8>> =
            [4, 5, 7, 100, 4091, 4092, 4096, 5000, 70_000].iter().map(|size| vec![b'x'; *size]).collect();
        let stream: Vec<u8> = bodies.iter().flat_map(|body| framed(body)).collect();
        for piece in [1, 3, 7, 4096, 100_000] {
            for expected in [PLAIN, RECORDS] {
                let (mut writer, end) = tokio::io::duplex(200_000);
                let mut transport: BoxTransport = Box::new(end);
                for part in stream.chunks(piece) {
                    writer.write_all(part).await.expect("the duplex takes it all");
                }
                let mut reader = FrameReader::default();
                for body in &bodies {
                    let frame = next(&mut reader, &mut transport, expected).await.expect("a frame");
                    assert_eq!(frame.len(), body.len(), "pieces of {piece}");
                }
                drop(writer);
                assert!(matches!(next(&mut reader, &mut transport, expected).await, Err(ReadFault::Closed)));
            }
        }
    }

    #[tokio::test]
    async fn a_length_above_the_limit_is_refused_before_anything_is_allocated() {
        let (mut writer, end) = tokio::io::duplex(100);
        let mut transport: BoxTransport = Box::new(end);
        writer.write_all(&0x7fff_ffff_u32.to_be_bytes()).await.expect("four bytes");
        let fault = next(&mut FrameReader::default(), &mut transport, PLAIN).await;
        assert!(matches!(fault, Err(ReadFault::Frame(_))), "{fault:?}");
    }
}
