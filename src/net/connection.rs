//! One connection to a broker: correlation ids, pipelining, a deadline per request.
//!
//! A driver task owns the stream. Handles put encoded requests into a bounded outbox and get a future of the answer.
//! Brokers answer in the order of requests, so answers are matched from the front; anything else is a protocol error
//! that ends the connection. A request whose deadline passes ends the connection too: its answer would block all
//! later ones, and whether it took effect is unknown either way.
//!
//! Invariants: (a) every request handed in gets exactly one answer or error; (b) bytes of a request are written whole
//! or the connection ends, also where the right to write lapses meanwhile; (c) no frame is longer than the request it answers allows; (d) the payload of a request is written from the segments given, never copied.

use std::{
    collections::VecDeque,
    future::poll_fn,
    io::{self, IoSlice},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::{Buf, Bytes};
use kafka_protocol::{
    messages::ApiKey,
    protocol::{Decodable, Encodable, HeaderVersion, Request},
};
use tokio::io::AsyncWrite;
use tokio::{
    sync::oneshot,
    time::{Instant, Sleep, sleep_until},
};
use tracing::debug;

use super::{
    frame_reader::{Expected, FrameReader, ReadFault},
    request_error::{ApiName, ConnectionError, RequestError},
    transport::BoxTransport,
};
use crate::protocol::{ApiVersions, EncodeError, decode_response, encode_request, split_response};

/// Requests waiting or in flight on one connection; a caller that exceeds it has lost its own bound.
const REQUESTS_MAX: usize = 256;
/// Largest answer to a request that did not ask for records. Metadata of 100,000 partitions is about 10 MB.
const PLAIN_ANSWER_MAX: usize = 64 << 20;
/// Segments of one vectored write: what the system takes at most. Most writes have a few, and need not prepare room for all.
const SEGMENTS_PER_WRITE: usize = 1024;
const FEW_SEGMENTS: usize = 32;

/// An answer whose body is still encoded.
#[derive(Debug)]
pub struct Reply {
    /// The body, after the response header.
    pub body: Bytes,
    /// The version it is encoded in.
    pub version: i16,
    /// Size of the whole frame, which `body` and slices of it keep alive, in bytes.
    pub frame_bytes: usize,
}

struct Outgoing {
    segments: Vec<Bytes>,
    pending: Pending,
}

struct Pending {
    correlation_id: i32,
    api: ApiKey,
    version: i16,
    answer_max: usize,
    sent_at: Instant,
    deadline: Instant,
    reply: oneshot::Sender<Result<Reply, ConnectionError>>,
}

struct State {
    next_correlation_id: i32,
    outbox: VecDeque<Outgoing>,
    waiting: usize,
    waker: Option<Waker>,
    /// What all deadlines are to be put off by.
    postponed: Duration,
    ended: Option<ConnectionError>,
}

/// Says whether bytes may still be written now.
type MayWrite = Box<dyn Fn(Instant) -> bool + Send + Sync>;

struct Shared {
    peer: Arc<str>,
    client_id: Arc<str>,
    state: Mutex<State>,
    may_write: OnceLock<MayWrite>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A poisoned lock means a panic between two plain assignments; the state is whole in every case.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, error: ConnectionError) {
        let mut state = self.lock();
        state.ended.get_or_insert(error);
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
    }
}

/// Ends the driver when the last handle is gone.
struct LastHandle(Arc<Shared>);

impl Drop for LastHandle {
    fn drop(&mut self) {
        self.0.end(ConnectionError::Dropped { peer: self.0.peer.clone() });
    }
}

/// A handle to an open connection. Clones share it; the connection closes when the last one is dropped.
#[derive(Clone)]
pub struct Connection {
    shared: Arc<Shared>,
    versions: Arc<ApiVersions>,
    _last: Arc<LastHandle>,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("peer", &self.shared.peer).finish_non_exhaustive()
    }
}

impl Connection {
    /// Takes a connected stream and starts its driver on the current runtime. `versions` is what the handshake learnt.
    pub(super) fn start(transport: BoxTransport, peer: Arc<str>, client_id: Arc<str>, versions: ApiVersions) -> Self {
        let shared = Arc::new(Shared {
            peer,
            client_id,
            state: Mutex::new(State {
                next_correlation_id: 1,
                outbox: VecDeque::new(),
                waiting: 0,
                waker: None,
                postponed: Duration::ZERO,
                ended: None,
            }),
            may_write: OnceLock::new(),
        });
        tokio::spawn(drive(Driver::new(transport, shared.clone())));
        Self { _last: Arc::new(LastHandle(shared.clone())), shared, versions: Arc::new(versions) }
    }

    /// The same connection, with what the handshake learnt.
    pub(super) fn with_versions(self, versions: ApiVersions) -> Self {
        Self { versions: Arc::new(versions), ..self }
    }

    /// `host:port` as dialled.
    #[must_use]
    pub fn peer(&self) -> &str {
        &self.shared.peer
    }

    /// What the broker speaks.
    #[must_use]
    pub fn versions(&self) -> &ApiVersions {
        &self.versions
    }

    /// From now on nothing is written where `may_write` says no: the connection ends instead. A process may be held for
    /// long with a request half written, and what it lacks must not follow once it goes on. Said once.
    pub fn write_while(&self, may_write: impl Fn(Instant) -> bool + Send + Sync + 'static) {
        let said = self.shared.may_write.set(Box::new(may_write));
        debug_assert!(said.is_ok(), "it was said before");
    }

    /// The peer will read nothing for so long: requests in flight may take as much longer.
    pub fn postpone(&self, by: Duration) {
        self.shared.lock().postponed += by;
    }

    /// Whether the connection has ended; requests would fail at once.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.shared.lock().ended.is_some()
    }

    /// Sends a request and decodes the answer behind the length walk (`protocol::guard`).
    ///
    /// # Errors
    /// See [`RequestError`]. With `Connection` the outcome is unknown.
    pub async fn request<R>(&self, request: &R, timeout: Duration) -> Result<R::Response, RequestError>
    where
        R: Request + Encodable + HeaderVersion,
        R::Response: Decodable + HeaderVersion,
    {
        let version = self.negotiate::<R>(i16::MAX)?;
        self.request_at(version, request, timeout).await
    }

    /// As [`Self::request`], with a version the caller chose (within what was negotiated).
    ///
    /// # Errors
    /// As [`Self::request`].
    pub async fn request_at<R>(&self, version: i16, request: &R, timeout: Duration) -> Result<R::Response, RequestError>
    where
        R: Request + Encodable + HeaderVersion,
        R::Response: Decodable + HeaderVersion,
    {
        let reply = self.begin(version, request, PLAIN_ANSWER_MAX, timeout)?.await?;
        let api = api_key::<R>();
        decode_response::<R::Response>(api, reply.version, reply.body)
            .map_err(|error| RequestError::Decode { peer: self.shared.peer.clone(), error: Arc::new(error) })
    }

    /// The highest version both sides speak, at most `max`.
    ///
    /// # Errors
    /// [`RequestError::Unsupported`] with both ranges and the remedy.
    pub fn negotiate<R: Request>(&self, max: i16) -> Result<i16, RequestError> {
        self.versions.negotiate_up_to::<R>(max).map_err(|error| RequestError::Unsupported(Arc::new(error)))
    }

    /// Queues a request; the returned future is its answer, still encoded. Requests are written in the order of calls.
    ///
    /// `answer_max` bounds the answer's frame in bytes.
    ///
    /// # Errors
    /// Fails at once when the request cannot be encoded, the outbox is full, or the connection has ended.
    pub fn begin<R>(
        &self,
        version: i16,
        request: &R,
        answer_max: usize,
        timeout: Duration,
    ) -> Result<Answer, RequestError>
    where
        R: Request + Encodable + HeaderVersion,
    {
        self.begin_encoded(api_key::<R>(), version, answer_max, timeout, |correlation_id, client_id| {
            Ok(vec![encode_request(correlation_id, client_id, version, request)?])
        })
    }

    /// As [`Self::begin`], for a request that encodes itself: told correlation id and client id, `encode` gives the
    /// buffers of the frame.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub fn begin_encoded(
        &self,
        api: ApiKey,
        version: i16,
        answer_max: usize,
        timeout: Duration,
        encode: impl FnOnce(i32, &str) -> Result<Vec<Bytes>, EncodeError>,
    ) -> Result<Answer, RequestError> {
        let (reply, answer) = oneshot::channel();
        let mut state = self.shared.lock();
        if let Some(error) = &state.ended {
            return Err(error.clone().into());
        }
        if state.waiting >= REQUESTS_MAX {
            return Err(RequestError::Full { peer: self.shared.peer.clone() });
        }
        let correlation_id = state.next_correlation_id;
        state.next_correlation_id = correlation_id.checked_add(1).unwrap_or(1);
        let segments =
            encode(correlation_id, &self.shared.client_id).map_err(|error| RequestError::Encode(Arc::new(error)))?;
        let sent_at = Instant::now();
        let pending = Pending { correlation_id, api, version, answer_max, sent_at, deadline: sent_at + timeout, reply };
        state.outbox.push_back(Outgoing { segments, pending });
        state.waiting += 1;
        if let Some(waker) = state.waker.take() {
            waker.wake();
        }
        Ok(Answer { peer: self.shared.peer.clone(), answer })
    }
}

fn api_key<R: Request>() -> ApiKey {
    ApiKey::try_from(R::KEY).expect("the crate lists the key of each of its own requests")
}

/// The answer to come. Dropping it leaves the request in flight; its answer is then read and forgotten.
pub struct Answer {
    peer: Arc<str>,
    answer: oneshot::Receiver<Result<Reply, ConnectionError>>,
}

impl Future for Answer {
    type Output = Result<Reply, RequestError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.answer).poll(cx).map(|result| match result {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(error)) => Err(error.into()),
            // The driver answers everything before it ends; only a runtime that is shut down drops it.
            Err(_) => Err(ConnectionError::Dropped { peer: self.peer.clone() }.into()),
        })
    }
}

struct Driver {
    transport: BoxTransport,
    shared: Arc<Shared>,
    writing: VecDeque<Bytes>,
    in_flight: VecDeque<Pending>,
    reader: FrameReader,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Driver {
    fn new(transport: BoxTransport, shared: Arc<Shared>) -> Self {
        Self {
            transport,
            shared,
            writing: VecDeque::new(),
            in_flight: VecDeque::new(),
            reader: FrameReader::default(),
            timer: None,
        }
    }

    fn peer(&self) -> Arc<str> {
        self.shared.peer.clone()
    }

    fn io_error(&self, error: io::Error) -> ConnectionError {
        ConnectionError::Io { peer: self.peer(), error: Arc::new(error) }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<ConnectionError> {
        {
            let mut state = self.shared.lock();
            if let Some(error) = &state.ended {
                return Poll::Ready(error.clone());
            }
            for outgoing in state.outbox.drain(..) {
                self.writing.extend(outgoing.segments);
                self.in_flight.push_back(outgoing.pending);
            }
            let postponed = std::mem::take(&mut state.postponed);
            if !postponed.is_zero() {
                self.in_flight.iter_mut().for_each(|pending| pending.deadline += postponed);
            }
            if !state.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                state.waker = Some(cx.waker().clone());
            }
        }
        if let Poll::Ready(error) = self.poll_write(cx) {
            return Poll::Ready(error);
        }
        if let Poll::Ready(error) = self.poll_read(cx) {
            return Poll::Ready(error);
        }
        self.poll_deadline(cx)
    }

    /// Writes until everything is out or the socket is full; ready only with an error.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<ConnectionError> {
        while !self.writing.is_empty() {
            if self.shared.may_write.get().is_some_and(|may_write| !may_write(Instant::now())) {
                return Poll::Ready(ConnectionError::Lapsed { peer: self.peer() });
            }
            let written = if self.writing.len() <= FEW_SEGMENTS {
                self.poll_segments::<FEW_SEGMENTS>(cx)
            } else {
                self.poll_segments::<SEGMENTS_PER_WRITE>(cx)
            };
            match written {
                Poll::Ready(Ok(0)) => {
                    return Poll::Ready(ConnectionError::Closed { peer: self.peer() });
                }
                Poll::Ready(Ok(written)) => self.advance(written),
                Poll::Ready(Err(error)) => return Poll::Ready(self.io_error(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        match Pin::new(&mut self.transport).poll_flush(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(self.io_error(error)),
            _ => Poll::Pending,
        }
    }

    /// One write of at most so many segments.
    fn poll_segments<const COUNT: usize>(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut slices = [IoSlice::new(&[]); COUNT];
        let mut count = 0;
        for (slice, segment) in slices.iter_mut().zip(&self.writing) {
            *slice = IoSlice::new(segment);
            count += 1;
        }
        let filled = slices.get(..count).unwrap_or_default();
        Pin::new(&mut self.transport).poll_write_vectored(cx, filled)
    }

    fn advance(&mut self, mut written: usize) {
        while let Some(front) = self.writing.front_mut() {
            if front.len() > written {
                front.advance(written);
                return;
            }
            written -= front.len();
            self.writing.pop_front();
        }
    }

    /// Reads until the socket is empty; ready only with an error.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<ConnectionError> {
        loop {
            // The limit is that of the request the frame must answer.
            let expected =
                self.in_flight.front().map_or(Expected { bytes_max: PLAIN_ANSWER_MAX, records: false }, |pending| {
                    Expected { bytes_max: pending.answer_max, records: pending.api == ApiKey::Fetch }
                });
            let frame = match self.reader.poll_frame(&mut self.transport, cx, expected) {
                Poll::Ready(Ok(frame)) => frame,
                Poll::Ready(Err(fault)) => return Poll::Ready(self.read_fault(fault)),
                Poll::Pending => return Poll::Pending,
            };
            if let Err(error) = self.answer(frame) {
                return Poll::Ready(error);
            }
        }
    }

    fn read_fault(&self, fault: ReadFault) -> ConnectionError {
        match fault {
            ReadFault::Closed => ConnectionError::Closed { peer: self.peer() },
            ReadFault::Io(error) => self.io_error(error),
            ReadFault::Frame(error) => ConnectionError::Frame { peer: self.peer(), error },
        }
    }

    fn answer(&mut self, frame: Bytes) -> Result<(), ConnectionError> {
        let frame_bytes = frame.len();
        let Some(pending) = self.in_flight.front() else {
            return Err(self.protocol("an answer that nobody asked for"));
        };
        let (correlation_id, body) =
            split_response(pending.api, pending.version, frame).map_err(|error| self.protocol(&error.to_string()))?;
        if correlation_id != pending.correlation_id {
            return Err(self.protocol(&format!(
                "an answer with correlation id {correlation_id} where {} was due",
                pending.correlation_id
            )));
        }
        if let Some(pending) = self.in_flight.pop_front() {
            self.shared.lock().waiting -= 1;
            // The asker may have gone; then nobody waits for this.
            let _ = pending.reply.send(Ok(Reply { body, version: pending.version, frame_bytes }));
        }
        Ok(())
    }

    fn protocol(&self, what: &str) -> ConnectionError {
        ConnectionError::Protocol { peer: self.peer(), what: what.into() }
    }

    /// Ready when the earliest deadline of the requests in flight has passed. Answers come in order, so a later
    /// request with an earlier deadline still waits for all before it.
    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<ConnectionError> {
        let Some(earliest) = self.in_flight.iter().map(|pending| pending.deadline).min() else {
            self.timer = None;
            return Poll::Pending;
        };
        let timer = match &mut self.timer {
            Some(timer) => {
                // A timer that fires too early is armed anew then; one that was moved on every answer would cost
                // more than the answer.
                if timer.deadline() > earliest {
                    timer.as_mut().reset(earliest);
                }
                timer
            }
            none => none.insert(Box::pin(sleep_until(earliest))),
        };
        while timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            if now < earliest {
                timer.as_mut().reset(earliest);
                continue;
            }
            let Some(late) = self.in_flight.iter().min_by_key(|pending| pending.deadline) else {
                break;
            };
            return Poll::Ready(ConnectionError::Deadline {
                peer: self.shared.peer.clone(),
                api: ApiName(late.api),
                waited_ms: u64::try_from(now.duration_since(late.sent_at).as_millis()).unwrap_or(u64::MAX),
            });
        }
        Poll::Pending
    }
}

async fn drive(mut driver: Driver) {
    let error = poll_fn(|cx| driver.poll(cx)).await;
    debug!(%error, "connection ended");
    driver.shared.end(error);
    let mut state = driver.shared.lock();
    let error = state.ended.clone().unwrap_or_else(|| ConnectionError::Dropped { peer: driver.shared.peer.clone() });
    let never_sent = std::mem::take(&mut state.outbox);
    state.waiting = 0;
    drop(state);
    for pending in driver.in_flight.drain(..).chain(never_sent.into_iter().map(|outgoing| outgoing.pending)) {
        let _ = pending.reply.send(Err(error.clone()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use kafka_protocol::messages::MetadataRequest;
    use tokio::{io::AsyncReadExt, runtime, time::sleep};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);

    fn run<F: Future<Output = ()>>(test: F) {
        runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(test);
    }

    fn open(room: usize) -> (Connection, tokio::io::DuplexStream) {
        let (ours, theirs) = tokio::io::duplex(room);
        (Connection::start(Box::new(ours), "b1:9092".into(), "test".into(), ApiVersions::default()), theirs)
    }

    #[test]
    fn a_request_that_is_half_written_when_the_right_to_lapses_stays_half_written() {
        run(async {
            let (connection, mut broker) = open(10);
            let allowed = Arc::new(AtomicBool::new(true));
            let asked = allowed.clone();
            connection.write_while(move |_| asked.load(Ordering::Relaxed));
            let answer = connection.begin(1, &MetadataRequest::default(), 1000, TIMEOUT).unwrap();
            sleep(Duration::from_millis(1)).await;
            allowed.store(false, Ordering::Relaxed);
            let mut arrived = Vec::new();
            broker.read_to_end(&mut arrived).await.unwrap();
            assert_eq!(arrived.len(), 10, "what the socket took at first");
            let lapsed = RequestError::Connection(ConnectionError::Lapsed { peer: "b1:9092".into() });
            assert_eq!(answer.await.unwrap_err().to_string(), lapsed.to_string());
            assert!(connection.is_ended());
        });
    }

    #[test]
    fn requests_in_flight_may_take_as_much_longer_as_the_peer_reads_nothing() {
        run(async {
            let (connection, _broker) = open(1000);
            let began = Instant::now();
            let answer = connection.begin(1, &MetadataRequest::default(), 1000, TIMEOUT).unwrap();
            sleep(Duration::from_secs(1)).await;
            connection.postpone(Duration::from_secs(60));
            assert!(answer.await.unwrap_err().is_silence());
            assert_eq!(began.elapsed().as_secs(), 65);
        });
    }
}
