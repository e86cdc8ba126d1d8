//! Why a request to a cluster did not give what was asked.

use std::sync::Arc;

use crate::{
    net::{DialError, RequestError},
    protocol::{BrokerId, ErrorCode},
};

/// A failure of a cluster-level request.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ClientError {
    /// None of the addresses led to a broker. The last failure of each is listed.
    #[error("no broker of cluster {cluster} can be reached: {}", failures.join("; "))]
    Unreachable {
        /// Its alias.
        cluster: Arc<str>,
        /// `address: reason`, one for each.
        failures: Vec<String>,
        /// Some address led to something that is not a Kafka broker on this security protocol; waiting does not help.
        wrong_peer: bool,
    },
    /// The metadata names a broker that it gives no address for.
    #[error("cluster {cluster} has no address for broker {}", broker.0)]
    NoEndpoint {
        /// The cluster's alias.
        cluster: Arc<str>,
        /// The broker.
        broker: BrokerId,
    },
    /// The cluster has no controller or coordinator just now.
    #[error("cluster {cluster} has no {what} just now")]
    Nobody {
        /// The cluster's alias.
        cluster: Arc<str>,
        /// `controller`, or `coordinator of group …`.
        what: Arc<str>,
    },
    /// A connection could not be opened.
    #[error("cluster {cluster}: {error}")]
    Dial {
        /// The cluster's alias.
        cluster: Arc<str>,
        /// Why.
        error: DialError,
    },
    /// The request was not answered.
    #[error("cluster {cluster}: {error}")]
    Request {
        /// The cluster's alias.
        cluster: Arc<str>,
        /// Why.
        error: RequestError,
    },
    /// The broker answered with an error.
    #[error("cluster {cluster} refused {what}: {code}{}", message.as_deref().map(|m| format!(" ({m})")).unwrap_or_default())]
    Code {
        /// The cluster's alias.
        cluster: Arc<str>,
        /// The request, in words.
        what: Arc<str>,
        /// The code.
        code: ErrorCode,
        /// The broker's own words.
        message: Option<String>,
    },
}

impl ClientError {
    /// Whether the peer is not a Kafka broker on this security protocol: trying again does not help.
    #[must_use]
    pub fn is_wrong_peer(&self) -> bool {
        match self {
            Self::Unreachable { wrong_peer, .. } => *wrong_peer,
            Self::Dial { error, .. } => error.is_wrong_peer(),
            _ => false,
        }
    }

    /// The broker's code, if it answered with one.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Code { code, .. } => Some(*code),
            _ => None,
        }
    }
}
