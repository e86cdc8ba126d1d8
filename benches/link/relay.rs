//! A bare relay: the same bytes from socket to socket through one buffer, and the two ends for it.
//!
//! It is the floor that a copying program can reach on this machine in this hour; everything is told as a multiple of it.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use serde_json::{Value, json};

use crate::{Options, buffer::Buffer};

const BUFFER: usize = 1 << 20;

/// Sends so many bytes to whoever connects, a buffer's worth for each byte that comes, then closes.
pub(crate) fn start_source(options: &Options) -> Result<Box<dyn Fn() -> Value>, String> {
    let total = options.number("bytes", 1_000_000_000)?;
    serve(move |mut stream, counted| {
        let buffer: Vec<u8> = (0..BUFFER).map(|at| at.wrapping_mul(167).to_le_bytes()[0]).collect();
        let mut left = total;
        while left > 0 {
            if stream.read_exact(&mut [0]).is_err() {
                return;
            }
            let some = buffer.get(..usize::try_from(left).unwrap_or(BUFFER)).unwrap_or(&buffer);
            if stream.write_all(some).is_err() {
                return;
            }
            left -= some.len() as u64;
            counted.fetch_add(some.len() as u64, Ordering::Relaxed);
        }
    })
}

/// Reads until the end.
pub(crate) fn start_sink() -> Result<Box<dyn Fn() -> Value>, String> {
    serve(|mut stream, counted| {
        let mut buffer = Buffer::new(BUFFER);
        let buffer = buffer.all();
        while let Ok(count) = stream.read(buffer) {
            if count == 0 {
                return;
            }
            counted.fetch_add(count as u64, Ordering::Relaxed);
        }
    })
}

fn serve(work: impl Fn(TcpStream, &AtomicU64) + Send + Sync + 'static) -> Result<Box<dyn Fn() -> Value>, String> {
    let listener = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let port = listener.local_addr().map_err(|error| error.to_string())?.port();
    let counted = Arc::new(AtomicU64::new(0));
    let counter = counted.clone();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = stream.set_nodelay(true);
            work(stream, &counter);
        }
    });
    println!("{}", json!({"port": port}));
    Ok(Box::new(move || json!({"bytes": counted.load(Ordering::Relaxed)})))
}

/// The relay itself: one thread, blocking, one buffer. It asks for the next bufferful when it has one, as a fetching
/// client does; `--ahead` lets more of them be on the way.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let open = |key| {
        let stream = TcpStream::connect(options.text(key)?).map_err(|error| error.to_string())?;
        let _ = stream.set_nodelay(true);
        Ok::<_, String>(stream)
    };
    let broken = |error: std::io::Error| error.to_string();
    let (mut from, mut to) = (open("from")?, open("to")?);
    let ahead = options.number("ahead", 1)?;
    let mut buffer = Buffer::new(BUFFER);
    let buffer = buffer.all();
    for _ in 0..ahead {
        from.write_all(&[1]).map_err(broken)?;
    }
    loop {
        let mut filled = 0;
        while filled < BUFFER {
            let count = from.read(&mut buffer[filled..]).map_err(broken)?;
            if count == 0 {
                return to.write_all(&buffer[..filled]).map_err(broken);
            }
            filled += count;
        }
        // The source is gone once it has sent everything.
        let _ = from.write_all(&[1]);
        to.write_all(&buffer[..filled]).map_err(broken)?;
    }
}
