//! Puts an embedded cluster on a network: one task for each node, one for each connection, one for time.
//!
//! The engine is shared by reference within one thread; no borrow is held over an await. A node whose address is taken
//! away by a stop comes back on the same port.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::rc::Rc;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::{Instant, sleep_until};

use super::engine::{Cluster, ClusterSettings, ConnectionId, Effect, QUEUE_MAX, REQUEST_BYTES_MAX};
use crate::net::BoxTransport;

/// A running cluster on loopback ports. It ends when the handle is dropped.
///
/// Lives in a `LocalSet`: the handle and everything behind it stay on one thread.
#[derive(Debug)]
pub struct EmbeddedCluster {
    shared: Rc<Shared>,
    timer: JoinHandle<()>,
    listeners: RefCell<BTreeMap<i32, Listener>>,
}

#[derive(Debug)]
struct Listener {
    port: u16,
    task: Option<JoinHandle<()>>,
    /// Told to end; the port is free once it did.
    ending: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    cluster: RefCell<Cluster>,
    /// What to write, by connection; `None` closes.
    outboxes: RefCell<BTreeMap<ConnectionId, Outbox>>,
    next_connection: RefCell<u64>,
    /// The next timeout may have changed.
    rearm: Notify,
}

#[derive(Debug)]
struct Outbox {
    // Unbounded in form only: a connection has one answer for each of at most QUEUE_MAX requests under way.
    frames: mpsc::UnboundedSender<Option<Bytes>>,
    /// Tells the reader how many requests are under way.
    queued: watch::Sender<usize>,
}

impl EmbeddedCluster {
    /// Starts a cluster; each node listens on a free port of 127.0.0.1. Must be called inside a `LocalSet`.
    ///
    /// # Errors
    /// If a port cannot be opened.
    pub async fn start(settings: ClusterSettings) -> io::Result<Self> {
        let started = Self::detached(settings);
        for node in started.with(|cluster, _| cluster.node_ids()) {
            started.listen(node, 0).await?;
        }
        Ok(started)
    }

    /// Starts a cluster without ports: for a network of another kind, which brings connections by [`Self::attach`] and
    /// says by [`Cluster::set_address`] where clients find the nodes. Must be called inside a `LocalSet`.
    #[must_use]
    pub fn detached(settings: ClusterSettings) -> Self {
        let cluster = Cluster::new(settings, Instant::now());
        let shared = Rc::new(Shared {
            cluster: RefCell::new(cluster),
            outboxes: RefCell::new(BTreeMap::new()),
            next_connection: RefCell::new(0),
            rearm: Notify::new(),
        });
        let timer = tokio::task::spawn_local(keep_time(shared.clone()));
        Self { shared, timer, listeners: RefCell::new(BTreeMap::new()) }
    }

    /// A client's stream to a node; closed at once if the node is down.
    pub fn attach(&self, node: i32, transport: BoxTransport) {
        attach(&self.shared, node, transport);
    }

    async fn listen(&self, node: i32, port: u16) -> io::Result<()> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let port = listener.local_addr()?.port();
        self.shared.cluster.borrow_mut().set_address(node, "127.0.0.1", port);
        let task = tokio::task::spawn_local(accept(self.shared.clone(), node, listener));
        self.listeners.borrow_mut().insert(node, Listener { port, task: Some(task), ending: None });
        Ok(())
    }

    /// `host:port` of every node that is up, separated by commas.
    #[must_use]
    pub fn bootstrap_servers(&self) -> String {
        let listeners = self.listeners.borrow();
        let up = listeners.values().filter(|listener| listener.task.is_some());
        up.map(|listener| format!("127.0.0.1:{}", listener.port)).collect::<Vec<_>>().join(",")
    }

    /// The port of a node, up or not.
    #[must_use]
    pub fn port(&self, node: i32) -> Option<u16> {
        self.listeners.borrow().get(&node).map(|listener| listener.port)
    }

    /// Changes the cluster or looks at it; whatever follows for its clients is sent.
    pub fn with<T>(&self, act: impl FnOnce(&mut Cluster, Instant) -> T) -> T {
        let result = act(&mut self.shared.cluster.borrow_mut(), Instant::now());
        self.shared.deliver();
        result
    }

    /// Stops a node hard: its port and all of its connections close, the logs stay.
    pub fn stop_node(&self, node: i32) {
        if let Some(listener) = self.listeners.borrow_mut().get_mut(&node)
            && let Some(task) = listener.task.take()
        {
            task.abort();
            listener.ending = Some(task);
        }
        self.with(|cluster, now| cluster.stop_node(now, node));
    }

    /// Starts a stopped node, on the port it had if it had one.
    ///
    /// # Errors
    /// If the port is taken meanwhile.
    pub async fn start_node(&self, node: i32) -> io::Result<()> {
        let ending = self.listeners.borrow_mut().get_mut(&node).and_then(|listener| listener.ending.take());
        if let Some(task) = ending {
            // Being aborted is an error to whoever waits; that it ended is all we want to know.
            let _aborted = task.await;
        }
        self.with(|cluster, now| cluster.start_node(now, node));
        match self.port(node) {
            Some(port) => self.listen(node, port).await,
            None => Ok(()),
        }
    }
}

impl Drop for EmbeddedCluster {
    fn drop(&mut self) {
        self.timer.abort();
        for listener in self.listeners.borrow_mut().values_mut() {
            if let Some(task) = listener.task.take() {
                task.abort();
            }
        }
        // Connections end when their outboxes do.
        self.shared.outboxes.borrow_mut().clear();
    }
}

impl Shared {
    /// Hands effects to the connections they are for.
    fn deliver(&self) {
        let mut cluster = self.cluster.borrow_mut();
        let mut outboxes = self.outboxes.borrow_mut();
        while let Some(effect) = cluster.poll_effect() {
            match effect {
                Effect::Send { connection, frame } => {
                    if let Some(outbox) = outboxes.get(&connection) {
                        // A writer that is gone has said so, or will.
                        let _ = outbox.frames.send(Some(frame));
                    }
                }
                Effect::Close { connection } => {
                    if let Some(outbox) = outboxes.remove(&connection) {
                        let _ = outbox.frames.send(None);
                    }
                }
            }
        }
        // Requests may also end without an answer (`acks=0`).
        for (connection, outbox) in outboxes.iter() {
            let queued = cluster.queued(*connection);
            outbox.queued.send_if_modified(|known| std::mem::replace(known, queued) != queued);
        }
        drop(outboxes);
        drop(cluster);
        self.rearm.notify_one();
    }
}

/// Calls the engine when it wants to be called.
async fn keep_time(shared: Rc<Shared>) {
    loop {
        let deadline = shared.cluster.borrow().poll_timeout();
        let wait = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = shared.rearm.notified() => {}
            () = wait => {
                shared.cluster.borrow_mut().handle_timeout(Instant::now());
                shared.deliver();
            }
        }
    }
}

async fn accept(shared: Rc<Shared>, node: i32, listener: TcpListener) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Refused only for a socket that is already closed; reading will find that out.
                let _ = stream.set_nodelay(true);
                serve(&shared, node, stream);
            }
            // Out of descriptors, or a client that went away while it was accepted.
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// After a failed accept.
const ACCEPT_PAUSE: std::time::Duration = std::time::Duration::from_millis(50);

fn serve(shared: &Rc<Shared>, node: i32, stream: TcpStream) {
    let transport: BoxTransport = Box::new(stream);
    attach(shared, node, transport);
}

/// A new connection to a node over any kind of stream.
fn attach(shared: &Rc<Shared>, node: i32, transport: BoxTransport) {
    let connection = {
        let mut next = shared.next_connection.borrow_mut();
        *next += 1;
        ConnectionId(*next)
    };
    let (frames, outgoing) = mpsc::unbounded_channel();
    let (queued, under_way) = watch::channel(0);
    shared.outboxes.borrow_mut().insert(connection, Outbox { frames, queued });
    shared.cluster.borrow_mut().handle_opened(Instant::now(), node, connection);
    shared.deliver();
    let (reader, writer) = tokio::io::split(transport);
    let reading = tokio::task::spawn_local(read(shared.clone(), connection, reader, under_way)).abort_handle();
    tokio::task::spawn_local(write(shared.clone(), connection, writer, outgoing, reading));
}

/// Reads requests until the client is gone.
async fn read(
    shared: Rc<Shared>,
    connection: ConnectionId,
    mut reader: tokio::io::ReadHalf<BoxTransport>,
    mut under_way: watch::Receiver<usize>,
) {
    let mut ahead = BytesMut::new();
    loop {
        match take_frame(&mut ahead) {
            Ok(Some(frame)) => {
                // A client that writes faster than it is answered fills its socket, not our memory.
                if under_way.wait_for(|queued| *queued < QUEUE_MAX).await.is_err() {
                    return;
                }
                shared.cluster.borrow_mut().handle_request(Instant::now(), connection, frame);
                shared.deliver();
            }
            Ok(None) => match reader.read_buf(&mut ahead).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => break,
            },
            // A length no request has.
            Err(()) => break,
        }
    }
    shared.cluster.borrow_mut().handle_closed(Instant::now(), connection);
    // The writer ends with its outbox.
    shared.outboxes.borrow_mut().remove(&connection);
    shared.deliver();
}

/// The next whole frame, without its length; nothing is reserved by what a length says before it was checked.
fn take_frame(ahead: &mut BytesMut) -> Result<Option<Bytes>, ()> {
    let Some(prefix) = ahead.first_chunk::<4>() else {
        ahead.reserve(READ_BYTES);
        return Ok(None);
    };
    let length = usize::try_from(i32::from_be_bytes(*prefix)).map_err(|_| ())?;
    if length > REQUEST_BYTES_MAX {
        return Err(());
    }
    let missing = length.saturating_add(4).saturating_sub(ahead.len());
    if missing > 0 {
        ahead.reserve(missing.clamp(READ_BYTES, RESERVE_MAX));
        return Ok(None);
    }
    ahead.advance(4);
    Ok(Some(ahead.split_to(length).freeze()))
}

/// Bytes asked for at once.
const READ_BYTES: usize = 8 << 10;
/// Most bytes reserved before they have come.
const RESERVE_MAX: usize = 1 << 20;

async fn write(
    shared: Rc<Shared>,
    connection: ConnectionId,
    mut writer: tokio::io::WriteHalf<BoxTransport>,
    mut outgoing: mpsc::UnboundedReceiver<Option<Bytes>>,
    reading: AbortHandle,
) {
    while let Some(Some(frame)) = outgoing.recv().await {
        if writer.write_all(&frame).await.is_err() {
            break;
        }
    }
    // Whoever closed it, nothing more is read, and the engine knows.
    reading.abort();
    shared.outboxes.borrow_mut().remove(&connection);
    shared.cluster.borrow_mut().handle_closed(Instant::now(), connection);
    shared.deliver();
    let _ = writer.shutdown().await;
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::ApiVersionsRequest;
    use tokio::io::{DuplexStream, duplex};
    use tokio::runtime;
    use tokio::task::LocalSet;

    use super::*;
    use crate::protocol::encode_request;

    fn run<F: Future<Output = ()>>(test: F) {
        let runtime = runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        LocalSet::new().block_on(&runtime, test);
    }

    async fn ask(client: &mut DuplexStream, correlation_id: i32) -> Option<i32> {
        let request = encode_request(correlation_id, "test", 0, &ApiVersionsRequest::default()).unwrap();
        client.write_all(&request).await.ok()?;
        let length = client.read_i32().await.ok()?;
        let mut frame = vec![0; length as usize];
        client.read_exact(&mut frame).await.ok()?;
        Some(i32::from_be_bytes(*frame.first_chunk()?))
    }

    fn dial(cluster: &EmbeddedCluster) -> DuplexStream {
        let (client, server) = duplex(1 << 16);
        cluster.attach(1, Box::new(server));
        client
    }

    #[test]
    fn a_stopped_node_closes_its_connections_and_refuses_new_ones() {
        run(async {
            let cluster = EmbeddedCluster::detached(ClusterSettings::new("detached", 0));
            let mut client = dial(&cluster);
            assert_eq!(ask(&mut client, 7).await, Some(7));
            cluster.stop_node(1);
            assert_eq!(ask(&mut client, 8).await, None);
            assert_eq!(ask(&mut dial(&cluster), 9).await, None);
            cluster.start_node(1).await.unwrap();
            assert_eq!(ask(&mut dial(&cluster), 10).await, Some(10));
        });
    }

    #[test]
    fn a_length_no_request_has_ends_the_connection() {
        run(async {
            let cluster = EmbeddedCluster::detached(ClusterSettings::new("detached", 0));
            for length in [-1, i32::MAX, 100 << 20 | 1] {
                let mut client = dial(&cluster);
                client.write_i32(length).await.unwrap();
                assert!(client.read_i32().await.is_err(), "{length}");
            }
        });
    }

    #[test]
    fn requests_under_way_are_bounded_and_all_answered() {
        run(async {
            let cluster = EmbeddedCluster::detached(ClusterSettings::new("detached", 0));
            let (client, server) = duplex(1 << 20);
            cluster.attach(1, Box::new(server));
            let (mut reader, mut writer) = tokio::io::split(client);
            let sending = tokio::task::spawn_local(async move {
                for at in 0..500 {
                    let request = encode_request(at, "test", 0, &ApiVersionsRequest::default()).unwrap();
                    writer.write_all(&request).await.unwrap();
                }
                writer
            });
            for at in 0..500 {
                let length = reader.read_i32().await.unwrap();
                let mut frame = vec![0; length as usize];
                reader.read_exact(&mut frame).await.unwrap();
                assert_eq!(i32::from_be_bytes(*frame.first_chunk().unwrap()), at);
            }
            sending.await.unwrap();
        });
    }
}
