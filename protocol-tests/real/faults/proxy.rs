//! A TCP proxy on loopback that delays, goes silent, and cuts connections in the middle of anything.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::bench::Moments;

/// A silent connection says nothing for so long, then it is cut.
const SILENCE: Duration = Duration::from_secs(12);
const POLL: Duration = Duration::from_millis(50);

/// What happens to a connection, once so many bytes have passed in one direction.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Cut,
    Silence,
}

#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Each direction has its own count of bytes.
    up_bytes: u64,
    down_bytes: u64,
    fate: Fate,
    /// Before each piece is passed on.
    delay: Duration,
}

struct Shared {
    moments: Mutex<Moments>,
    /// Otherwise everything passes.
    lossy: AtomicBool,
    stopped: AtomicBool,
    cuts: AtomicU64,
    silences: AtomicU64,
}

pub(super) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

impl Proxy {
    /// Listens, and passes connections on to `backend`.
    pub(super) fn start(backend: u16, moments: Moments) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let shared = Arc::new(Shared {
            moments: Mutex::new(moments),
            lossy: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            cuts: AtomicU64::new(0),
            silences: AtomicU64::new(0),
        });
        let served = Arc::clone(&shared);
        thread::spawn(move || serve(&listener, backend, &served));
        Self { port, shared }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// From now on, connections opened before and after are cut, delayed and silenced; or none are.
    pub(super) fn set_lossy(&self, lossy: bool) {
        self.shared.lossy.store(lossy, Ordering::SeqCst);
    }

    /// How many connections were cut, and how many went silent.
    pub(super) fn faults(&self) -> (u64, u64) {
        (self.shared.cuts.load(Ordering::SeqCst), self.shared.silences.load(Ordering::SeqCst))
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        // Wakes the listener.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

fn serve(listener: &TcpListener, backend: u16, shared: &Arc<Shared>) {
    for accepted in listener.incoming() {
        if shared.stopped.load(Ordering::SeqCst) {
            return;
        }
        let Ok(client) = accepted else { continue };
        let Ok(broker) = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, backend))) else {
            continue;
        };
        let plan = plan(shared);
        for (from, to, bytes) in [(&client, &broker, plan.up_bytes), (&broker, &client, plan.down_bytes)] {
            let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { continue };
            let shared = Arc::clone(shared);
            thread::spawn(move || pass(&from, &to, bytes, plan, &shared));
        }
    }
}

fn plan(shared: &Shared) -> Plan {
    let mut moments = shared.moments.lock().unwrap_or_else(PoisonError::into_inner);
    // Some in the handshake, some in the middle of batches, some after megabytes.
    let mut bytes = || {
        let scale = [200, 5_000, 300_000, 6_000_000][usize::try_from(moments.below(4)).unwrap_or(0)];
        moments.below(scale)
    };
    let (up_bytes, down_bytes) = (bytes(), bytes());
    let fate = if moments.below(6) == 0 { Fate::Silence } else { Fate::Cut };
    let delay = if moments.below(3) == 0 { moments.between(1, 30) } else { Duration::ZERO };
    Plan { up_bytes, down_bytes, fate, delay }
}

fn pass(from: &TcpStream, to: &TcpStream, mut left: u64, plan: Plan, shared: &Shared) {
    let mut buffer = vec![0; 32 << 10];
    let _ = from.set_read_timeout(Some(POLL));
    let (mut reader, mut writer) = (from, to);
    while !shared.stopped.load(Ordering::SeqCst) {
        let read = match reader.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(_) => break,
        };
        let lossy = shared.lossy.load(Ordering::SeqCst);
        if lossy && !plan.delay.is_zero() {
            thread::sleep(plan.delay);
        }
        let read_bytes = u64::try_from(read).unwrap_or(u64::MAX);
        let passed = if lossy { left.min(read_bytes) } else { read_bytes };
        left = left.saturating_sub(read_bytes);
        if writer.write_all(&buffer[..usize::try_from(passed).unwrap_or(0)]).is_err() {
            break;
        }
        if lossy && passed < read_bytes {
            match plan.fate {
                Fate::Cut => {
                    shared.cuts.fetch_add(1, Ordering::SeqCst);
                }
                Fate::Silence => {
                    shared.silences.fetch_add(1, Ordering::SeqCst);
                    thread::sleep(SILENCE);
                }
            }
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
