//! A network in memory: delays, cuts in the middle of a frame, hosts that refuse or fall silent.
//!
//! A stream is a pair of pipes. What is written arrives after the link's delay, in order, in pieces of any size; what a
//! process that ended has written still arrives. All choices follow from one seed, and all that was written is
//! condensed into a number ([`Network::trace`]): equal seeds must give equal numbers.

use std::{
    collections::{BTreeMap, VecDeque},
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::{Buf, Bytes};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::mpsc,
    time::{Instant, Sleep, sleep, sleep_until},
};
use towpath::{
    batch::crc32c,
    net::{BoxTransport, Connecting, Connector, UNACKNOWLEDGED_MAX},
};

use super::random::Random;

/// Bytes of a stream that may be on the way in one direction.
const ON_THE_WAY_MAX: usize = 256 << 10;
/// A host that is silent is given up after this time, as a system does.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// Who opened a stream: a process of the mirror, or somebody whom faults of the network spare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    Mirror(usize),
    Spared,
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    ToBroker,
    ToClient,
}

/// Holds a process still: its streams neither read nor write.
#[derive(Debug, Default)]
pub(super) struct Gate {
    closed: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

impl Gate {
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    pub(super) fn open(&self) {
        self.closed.store(false, Ordering::SeqCst);
        self.waiting.lock().expect("no panic while locked").drain(..).for_each(Waker::wake);
    }

    /// Whether it is closed; then the task is woken once it opens.
    pub(super) fn holds(&self, context: &Context<'_>) -> bool {
        let closed = self.closed.load(Ordering::SeqCst);
        if closed {
            self.waiting.lock().expect("no panic while locked").push(context.waker().clone());
        }
        closed
    }
}

/// A stream's broker end and the node it is for.
pub(super) type Arrival = (i32, BoxTransport);

#[derive(Clone)]
pub(super) struct Network(Arc<Mutex<Inner>>);

struct Inner {
    random: Random,
    trace: u64,
    /// A line for each piece written, for whoever looks for what does not follow from the seed.
    log: Option<Vec<String>>,
    began: Instant,
    hosts: BTreeMap<String, Host>,
    wires: Vec<Weak<Mutex<Wire>>>,
    next_wire: u64,
    /// Pieces that processes of the mirror wrote since somebody asked.
    writes: u64,
}

struct Host {
    node: i32,
    arrivals: mpsc::UnboundedSender<Arrival>,
    is_up: bool,
    silent_until: Option<Instant>,
    slow: Option<(Instant, Duration)>,
}

struct Wire {
    number: u64,
    owner: Owner,
    host: String,
    /// By [`Way`].
    pipes: [Pipe; 2],
}

struct Pipe {
    segments: VecDeque<(Instant, Bytes)>,
    held: usize,
    last_due: Instant,
    /// The writer is gone; what it wrote arrives.
    ended: bool,
    /// The reader is gone, or the stream was cut.
    broken: bool,
    /// Breaks after so many bytes more.
    cut_after: Option<usize>,
    /// The writing process is held after so many bytes more.
    pause_after: Option<usize>,
    /// The writer is gone: what has not arrived by then never does.
    given_up_at: Option<Instant>,
    /// Nothing arrives before.
    silent_until: Option<Instant>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Pipe {
    fn new(now: Instant) -> Self {
        Self {
            segments: VecDeque::new(),
            held: 0,
            last_due: now,
            ended: false,
            broken: false,
            cut_after: None,
            pause_after: None,
            given_up_at: None,
            silent_until: None,
            reader: None,
            writer: None,
        }
    }

    fn wake(&mut self) {
        [self.reader.take(), self.writer.take()].into_iter().flatten().for_each(Waker::wake);
    }
}

impl Wire {
    fn cut(&mut self) {
        for pipe in &mut self.pipes {
            pipe.broken = true;
            pipe.wake();
        }
    }
}

impl Network {
    pub(super) fn new(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(Inner {
            random: Random::new(seed),
            trace: 0,
            log: std::env::var_os("TOWPATH_SIM_TRACE").map(|_| Vec::new()),
            began: Instant::now(),
            hosts: BTreeMap::new(),
            wires: Vec::new(),
            next_wire: 0,
            writes: 0,
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("no panic while locked")
    }

    /// A name that leads to a node.
    pub(super) fn add_host(&self, name: &str, node: i32, arrivals: mpsc::UnboundedSender<Arrival>) {
        let host = Host { node, arrivals, is_up: true, silent_until: None, slow: None };
        self.lock().hosts.insert(name.to_owned(), host);
    }

    /// How many pieces the mirror wrote since the last call.
    pub(super) fn take_writes(&self) -> u64 {
        std::mem::take(&mut self.lock().writes)
    }

    /// Everything written so far, condensed.
    pub(super) fn trace(&self) -> u64 {
        self.lock().trace
    }

    /// What was written, piece by piece, if `TOWPATH_SIM_TRACE` is set.
    pub(super) fn log(&self) -> Vec<String> {
        self.lock().log.take().unwrap_or_default()
    }

    /// The way of one process to all hosts.
    pub(super) fn connector(&self, owner: Owner, gate: Arc<Gate>) -> Arc<dyn Connector> {
        Arc::new(Client { network: self.clone(), owner, gate })
    }

    /// Whether somebody listens there.
    pub(super) fn set_up(&self, host: &str, is_up: bool) {
        if let Some(host) = self.lock().hosts.get_mut(host) {
            host.is_up = is_up;
        }
    }

    /// Nothing arrives at a host or from it for a while, for the mirror.
    pub(super) fn silence(&self, host: &str, duration: Duration) {
        let until = Instant::now() + duration;
        if let Some(host) = self.lock().hosts.get_mut(host) {
            host.silent_until = Some(until);
        }
        self.stall(host, duration);
    }

    /// What is open now carries nothing for a while; new streams work.
    pub(super) fn stall(&self, host: &str, duration: Duration) {
        let until = Instant::now() + duration;
        self.each(host, |wire, _| wire.pipes.iter_mut().for_each(|pipe| pipe.silent_until = Some(until)));
    }

    /// Delays everything that is written from now on.
    pub(super) fn slow(&self, host: &str, by: Duration, duration: Duration) {
        if let Some(host) = self.lock().hosts.get_mut(host) {
            host.slow = Some((Instant::now() + duration, by));
        }
    }

    /// Cuts the mirror's streams to a host.
    pub(super) fn cut(&self, host: &str) {
        self.each(host, |wire, _| wire.cut());
    }

    /// Cuts each of the mirror's streams to a host in the midst of what is written next.
    pub(super) fn cut_after(&self, host: &str, way: Way, bytes_max: u64) {
        self.each(host, |wire, random| {
            wire.pipes[way as usize].cut_after = Some(random.below(bytes_max) as usize);
        });
    }

    /// Holds a process in the midst of what it writes to a host next.
    pub(super) fn pause_after(&self, host: &str, process: usize, bytes_max: u64) {
        self.each(host, |wire, random| {
            if wire.owner == Owner::Mirror(process) {
                wire.pipes[Way::ToBroker as usize].pause_after = Some(random.below(bytes_max) as usize);
            }
        });
    }

    /// Ends that.
    pub(super) fn clear_pauses(&self) {
        for wire in self.lock().wires.iter().filter_map(Weak::upgrade) {
            wire.lock().expect("no panic while locked").pipes[Way::ToBroker as usize].pause_after = None;
        }
    }

    /// Ends all faults but hosts that are down.
    pub(super) fn heal(&self) {
        let mut inner = self.lock();
        for host in inner.hosts.values_mut() {
            (host.silent_until, host.slow) = (None, None);
        }
        let wires: Vec<_> = inner.wires.iter().filter_map(Weak::upgrade).collect();
        drop(inner);
        for wire in wires {
            for pipe in &mut wire.lock().expect("no panic while locked").pipes {
                (pipe.silent_until, pipe.cut_after, pipe.pause_after) = (None, None, None);
                pipe.wake();
            }
        }
    }

    fn each(&self, host: &str, mut act: impl FnMut(&mut Wire, &mut Random)) {
        let mut inner = self.lock();
        inner.wires.retain(|wire| wire.strong_count() > 0);
        let wires: Vec<_> = inner.wires.iter().filter_map(Weak::upgrade).collect();
        for wire in wires {
            let mut wire = wire.lock().expect("no panic while locked");
            if wire.host == host && wire.owner != Owner::Spared {
                act(&mut wire, &mut inner.random);
            }
        }
    }

    /// How long a piece takes that is written now.
    fn delay(&self, wire: &Wire, data: &[u8], way: Way) -> Duration {
        let mut inner = self.lock();
        let now = Instant::now();
        let passed = now.duration_since(inner.began).as_micros() as u64;
        let said = passed ^ (wire.number << 40) ^ ((way as u64) << 63) ^ u64::from(crc32c(data));
        if let Some(log) = &mut inner.log {
            log.push(format!(
                "{passed} wire {} {} {way:?} {} bytes {:08x}",
                wire.number,
                wire.host,
                data.len(),
                crc32c(data)
            ));
        }
        inner.trace = (inner.trace.rotate_left(5) ^ said).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        if wire.owner == Owner::Spared {
            return Duration::from_millis(1);
        }
        inner.writes += u64::from(way == Way::ToBroker);
        let slow = inner.hosts.get(&wire.host).and_then(|host| host.slow);
        let usual = Duration::from_micros(200 + inner.random.below(2_000));
        match slow {
            Some((until, by)) if until > now => usual + by.mul_f64(inner.random.below(1_000) as f64 / 500.0),
            _ => usual,
        }
    }
}

struct Client {
    network: Network,
    owner: Owner,
    gate: Arc<Gate>,
}

impl Connector for Client {
    fn connect<'a>(&'a self, host: &'a str, _: u16) -> Connecting<'a> {
        Box::pin(async move {
            sleep(Duration::from_millis(1)).await;
            let silent = {
                let mut inner = self.network.lock();
                let host = inner.hosts.get_mut(host).ok_or(io::ErrorKind::NotFound)?;
                host.silent_until.filter(|until| self.owner != Owner::Spared && *until > Instant::now())
            };
            if let Some(until) = silent {
                if until.duration_since(Instant::now()) > CONNECT_PATIENCE {
                    sleep(CONNECT_PATIENCE).await;
                    return Err(io::ErrorKind::TimedOut.into());
                }
                sleep_until(until).await;
            }
            let mut inner = self.network.lock();
            let number = inner.next_wire;
            inner.next_wire += 1;
            let now = Instant::now();
            let found = inner.hosts.get(host).ok_or(io::ErrorKind::NotFound)?;
            if !found.is_up {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let (node, arrivals) = (found.node, found.arrivals.clone());
            let pipes = [Pipe::new(now), Pipe::new(now)];
            let wire = Arc::new(Mutex::new(Wire { number, owner: self.owner, host: host.to_owned(), pipes }));
            inner.wires.push(Arc::downgrade(&wire));
            drop(inner);
            let end = |way: Way, gate: Option<Arc<Gate>>| End {
                network: self.network.clone(),
                wire: wire.clone(),
                writes: way,
                gate,
                timer: None,
            };
            arrivals.send((node, Box::new(end(Way::ToClient, None)))).map_err(|_| io::ErrorKind::ConnectionRefused)?;
            Ok(Box::new(end(Way::ToBroker, Some(self.gate.clone()))) as BoxTransport)
        })
    }
}

/// One end of a stream.
struct End {
    network: Network,
    wire: Arc<Mutex<Wire>>,
    writes: Way,
    gate: Option<Arc<Gate>>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl End {
    fn reads(&self) -> usize {
        1 - self.writes as usize
    }

    fn is_held(&self, context: &Context<'_>) -> bool {
        self.gate.as_ref().is_some_and(|gate| gate.holds(context))
    }

    fn write(&self, context: &Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_held(context) {
            return Poll::Pending;
        }
        let wire = &mut *self.wire.lock().expect("no panic while locked");
        let way = self.writes as usize;
        if wire.pipes[way].broken {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let room = ON_THE_WAY_MAX.saturating_sub(wire.pipes[way].held);
        if room == 0 {
            wire.pipes[way].writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        let mut taken = &data[..data.len().min(room)];
        if let (Some(left), Some(gate)) = (wire.pipes[way].pause_after, &self.gate) {
            wire.pipes[way].pause_after = left.checked_sub(taken.len());
            if left < taken.len() {
                gate.close();
                taken = &taken[..left];
                if taken.is_empty() {
                    gate.holds(context);
                    return Poll::Pending;
                }
            }
        }
        if let Some(left) = wire.pipes[way].cut_after {
            if left < taken.len() {
                taken = &taken[..left];
                let delay = self.network.delay(wire, taken, self.writes);
                wire.pipes[way].push(delay, taken);
                // What was on the way before the cut still arrives on this side; the other side is told at once.
                wire.pipes[way].ended = true;
                wire.pipes[1 - way].broken = true;
                wire.pipes.iter_mut().for_each(Pipe::wake);
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            wire.pipes[way].cut_after = Some(left - taken.len());
        }
        let delay = self.network.delay(wire, taken, self.writes);
        wire.pipes[way].push(delay, taken);
        Poll::Ready(Ok(taken.len()))
    }
}

impl Pipe {
    fn push(&mut self, delay: Duration, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        self.last_due = self.last_due.max(Instant::now() + delay);
        self.segments.push_back((self.last_due, Bytes::copy_from_slice(data)));
        self.held += data.len();
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl AsyncRead for End {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.is_held(context) {
            return Poll::Pending;
        }
        loop {
            let wire = &mut *this.wire.lock().expect("no panic while locked");
            let pipe = &mut wire.pipes[1 - this.writes as usize];
            if pipe.broken {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            pipe.reader = Some(context.waker().clone());
            let Some((due, first)) = pipe.segments.front_mut() else {
                return if pipe.ended { Poll::Ready(Ok(())) } else { Poll::Pending };
            };
            let due = pipe.silent_until.map_or(*due, |until| until.max(*due));
            if pipe.given_up_at.is_some_and(|at| due > at) {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            if due > Instant::now() {
                let timer = this.timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
                timer.as_mut().reset(due);
                if timer.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                continue;
            }
            let most = first.len().min(into.remaining());
            // Often in pieces, as a network delivers.
            let length = if most > 1 && this.network.lock().random.one_in(4) {
                1 + this.network.lock().random.below(most as u64 - 1) as usize
            } else {
                most
            };
            into.put_slice(&first[..length]);
            first.advance(length);
            if first.is_empty() {
                pipe.segments.pop_front();
            }
            pipe.held -= length;
            if let Some(writer) = pipe.writer.take() {
                writer.wake();
            }
            return Poll::Ready(Ok(()));
        }
    }
}

impl AsyncWrite for End {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        self.write(context, data)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        segments: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let all: Vec<u8> = segments.iter().flat_map(|segment| segment.iter().copied()).collect();
        self.write(context, &all)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut wire = self.wire.lock().expect("no panic while locked");
        let pipe = &mut wire.pipes[self.writes as usize];
        pipe.ended = true;
        pipe.wake();
        Poll::Ready(Ok(()))
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let reads = self.reads();
        let mut wire = self.wire.lock().expect("no panic while locked");
        let written = &mut wire.pipes[self.writes as usize];
        written.ended = true;
        written.given_up_at = Some(Instant::now() + UNACKNOWLEDGED_MAX);
        wire.pipes[reads].broken = true;
        wire.pipes.iter_mut().for_each(Pipe::wake);
    }
}
