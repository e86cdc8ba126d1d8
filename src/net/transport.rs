//! What bytes travel on: a trait for streams, a trait for opening them, and TCP.
//!
//! TLS and a simulated network implement the same two traits; nothing above this file knows the difference.

use std::{future::Future, io, pin::Pin, time::Duration};

use socket2::{SockRef, TcpKeepalive};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, lookup_host},
    time::timeout,
};

/// A connected byte stream. Vectored writes are used where the stream has them.
pub trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// A stream whose kind is decided by the connector.
pub type BoxTransport = Box<dyn Transport>;

/// A future of an opened stream.
pub type Connecting<'a> = Pin<Box<dyn Future<Output = io::Result<BoxTransport>> + Send + 'a>>;

/// Opens streams to a host and port.
pub trait Connector: Send + Sync + 'static {
    /// Opens a stream. Bounded in time by the connector itself.
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> Connecting<'a>;
}

/// Plain TCP.
#[derive(Debug, Clone)]
pub struct TcpConnector {
    /// For one address; a host name with several addresses takes as many attempts.
    pub connect_timeout: Duration,
}

/// A peer that acknowledges nothing for this long is gone, although no packet said so (a pulled cable). The system then
/// gives up what was not acknowledged, also for a process that is dead: nothing of it arrives later.
pub const UNACKNOWLEDGED_MAX: Duration = Duration::from_secs(15);
/// Idle connections are probed, so that a firewall that forgot them is noticed before the next request.
const KEEPALIVE: Duration = Duration::from_secs(30);

impl Connector for TcpConnector {
    fn connect<'a>(&'a self, host: &'a str, port: u16) -> Connecting<'a> {
        Box::pin(async move {
            // Resolved anew for every connection: brokers move, and a cached address would outlive them.
            let addresses = timeout(self.connect_timeout, lookup_host((host, port)))
                .await
                .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "name resolution timed out"))??;
            let mut last = io::Error::new(io::ErrorKind::NotFound, "the host name has no address");
            for address in addresses {
                match timeout(self.connect_timeout, TcpStream::connect(address)).await {
                    Ok(Ok(stream)) => {
                        prepare(&stream)?;
                        return Ok(Box::new(stream) as BoxTransport);
                    }
                    Ok(Err(error)) => last = error,
                    Err(_) => last = io::Error::new(io::ErrorKind::TimedOut, "connect timed out"),
                }
            }
            Err(last)
        })
    }
}

/// Socket options. Buffer sizes stay with the kernel's autotuning: setting them was measured to hurt
/// (`performance-notes.md` section 4).
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE / 3))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED_MAX))?;
    Ok(())
}
