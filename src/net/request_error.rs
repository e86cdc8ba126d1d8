//! Why a connection ended, and why a request has no answer.

use std::{io, sync::Arc, time::Duration};

use kafka_protocol::messages::ApiKey;

use crate::{
    os_error::Reason,
    protocol::{DecodeError, EncodeError, FrameError, UnsupportedApi},
};

/// Why a connection ended. Shared by every request that was in flight on it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ConnectionError {
    /// The peer closed the stream.
    #[error("{peer} closed the connection")]
    Closed {
        /// `host:port`.
        peer: Arc<str>,
    },
    /// Reading or writing failed.
    #[error("connection to {peer} failed: {}", Reason(error))]
    Io {
        /// `host:port`.
        peer: Arc<str>,
        /// The operating system's reason.
        error: Arc<io::Error>,
    },
    /// No answer in time.
    #[error("{peer} did not answer {api} within {:.1} s", Duration::from_millis(*waited_ms).as_secs_f64())]
    Deadline {
        /// `host:port`.
        peer: Arc<str>,
        /// The request that waited.
        api: ApiName,
        /// Its whole allowance.
        waited_ms: u64,
    },
    /// The peer sent something that is no Kafka frame, or more than was asked for.
    #[error("{peer}: {error}")]
    Frame {
        /// `host:port`.
        peer: Arc<str>,
        /// What was seen.
        error: FrameError,
    },
    /// The peer sent an answer nobody asked for, or in the wrong order.
    #[error("{peer} broke the protocol: {what}")]
    Protocol {
        /// `host:port`.
        peer: Arc<str>,
        /// What was seen.
        what: Arc<str>,
    },
    /// We ended it, with a request not written whole, for we had no right to write any more.
    #[error("the right to write to {peer} lapsed while a request was being written")]
    Lapsed {
        /// `host:port`.
        peer: Arc<str>,
    },
    /// We ended it.
    #[error("the connection to {peer} was dropped by us")]
    Dropped {
        /// `host:port`.
        peer: Arc<str>,
    },
}

/// An API key that prints its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiName(pub ApiKey);

impl std::fmt::Display for ApiName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// Why a request has no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum RequestError {
    /// The broker does not speak this API in a version we can encode.
    #[error(transparent)]
    Unsupported(Arc<UnsupportedApi>),
    /// The request could not be encoded: a fault of ours.
    #[error("{0}")]
    Encode(Arc<EncodeError>),
    /// The connection ended first. Whether the request took effect is unknown.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The answer did not follow the protocol.
    #[error("{peer}: {error}")]
    Decode {
        /// `host:port`.
        peer: Arc<str>,
        /// What was wrong and where.
        error: Arc<DecodeError>,
    },
    /// Too many requests wait on this connection.
    #[error("too many requests wait for {peer}")]
    Full {
        /// `host:port`.
        peer: Arc<str>,
    },
}

impl RequestError {
    /// Whether the peer owes the answer still, on a connection that is whole as far as anybody knows.
    #[must_use]
    pub fn is_silence(&self) -> bool {
        matches!(self, Self::Connection(ConnectionError::Deadline { .. }))
    }
}
