//! Listens, reads frames into one buffer per connection, hands each to the peer, writes what it answers.

use std::{
    io::{self, IoSlice, Read, Write},
    net::{TcpListener, TcpStream},
    sync::Arc,
    thread,
};

use crate::{buffer::Buffer, fields::Fields};

/// What a read may bring at once, and the longest request: more than twice what the product sends by default.
const READ_BYTES: usize = 4 << 20;

/// A request's header and body.
pub(crate) struct Request<'a> {
    pub(crate) api_key: i16,
    pub(crate) version: i16,
    pub(crate) correlation_id: i32,
    /// The whole frame, for decoders that read the header themselves.
    pub(crate) frame: &'a [u8],
    /// What follows the header; right for flexible versions only.
    pub(crate) body: &'a [u8],
}

/// An answer: bytes of our own with payloads between them.
#[derive(Default)]
pub(crate) struct Reply<'a> {
    pub(crate) head: Vec<u8>,
    /// Payloads and how much of `head` comes before each.
    pub(crate) payloads: Vec<(usize, &'a [u8])>,
}

impl Reply<'_> {
    /// Puts the length in front, which the first four bytes are kept for.
    fn close(&mut self) {
        let payloads: usize = self.payloads.iter().map(|(_, payload)| payload.len()).sum();
        let length = u32::try_from(self.head.len() - 4 + payloads).expect("answers are a few megabytes");
        self.head[..4].copy_from_slice(&length.to_be_bytes());
    }

    fn write(&self, stream: &mut TcpStream) -> io::Result<()> {
        let mut slices = Vec::with_capacity(2 * self.payloads.len() + 1);
        let mut from = 0;
        for (at, payload) in &self.payloads {
            slices.push(IoSlice::new(&self.head[from..*at]));
            slices.push(IoSlice::new(payload));
            from = *at;
        }
        slices.push(IoSlice::new(&self.head[from..]));
        let mut rest = slices.as_mut_slice();
        while !rest.is_empty() {
            let written = stream.write_vectored(&rest[..rest.len().min(1024)])?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            IoSlice::advance_slices(&mut rest, written);
        }
        Ok(())
    }
}

/// What one connection needs.
pub(crate) trait Session {
    /// Answers a request; an error closes the connection and is printed.
    fn answer<'a>(&'a mut self, request: &Request<'_>, reply: &mut Reply<'a>) -> Result<(), String>;
}

/// Binds a port of the loopback and serves every connection on a thread of its own.
pub(crate) fn listen<S: Session + 'static>(make: impl Fn() -> S + Send + Sync + 'static) -> Result<u16, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let port = listener.local_addr().map_err(|error| error.to_string())?.port();
    let make = Arc::new(make);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let make = make.clone();
            thread::spawn(move || {
                let mut session = make();
                if let Err(error) = serve(stream, &mut session) {
                    eprintln!("towpath-link: {error}");
                }
            });
        }
    });
    Ok(port)
}

fn serve(mut stream: TcpStream, session: &mut impl Session) -> Result<(), String> {
    let _ = stream.set_nodelay(true);
    let mut room = Buffer::new(READ_BYTES);
    let (mut from, mut to) = (0, 0);
    loop {
        let buffer = room.all();
        while let Some(length) = buffer[from..to].first_chunk::<4>() {
            let length = usize::try_from(u32::from_be_bytes(*length)).expect("32 bits fit");
            let whole = length + 4;
            if to - from < whole {
                if from + whole > buffer.len() {
                    buffer.copy_within(from..to, 0);
                    (from, to) = (0, to - from);
                    if whole > buffer.len() {
                        return Err(format!("a frame of {length} bytes"));
                    }
                }
                break;
            }
            let frame = &buffer[from + 4..from + whole];
            let request = header(frame).ok_or("a request too short for its header")?;
            let mut reply = Reply { head: vec![0; 4], payloads: Vec::new() };
            session.answer(&request, &mut reply)?;
            reply.close();
            // A peer that hangs up is the end of a run.
            if reply.write(&mut stream).is_err() {
                return Ok(());
            }
            from += whole;
        }
        if from == to {
            (from, to) = (0, 0);
        }
        if to == buffer.len() {
            buffer.copy_within(from..to, 0);
            (from, to) = (0, to - from);
        }
        match stream.read(&mut buffer[to..]) {
            Ok(0) | Err(_) => return Ok(()),
            Ok(count) => to += count,
        }
    }
}

fn header(frame: &[u8]) -> Option<Request<'_>> {
    let mut fields = Fields(frame);
    let (api_key, version, correlation_id) = (fields.i16()?, fields.i16()?, fields.i32()?);
    let client = fields.i16()?;
    fields.take(usize::try_from(client).unwrap_or(0))?;
    // The one tag byte of flexible headers; others do not look at the body.
    let body = fields.0.get(1..).unwrap_or_default();
    Some(Request { api_key, version, correlation_id, frame, body })
}
