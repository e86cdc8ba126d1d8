//! Opening a connection: connect, then learn what the broker speaks.

use std::{io, sync::Arc, time::Duration};

use kafka_protocol::{
    messages::{ApiKey, ApiVersionsRequest, ApiVersionsResponse},
    protocol::StrBytes,
};
use tokio::time::Instant;

use super::{
    connection::Connection,
    request_error::{ConnectionError, RequestError},
    transport::Connector,
};
use crate::{
    os_error::Reason,
    protocol::{ApiVersions, DecodeError, ErrorCode, FrameError, decode_response},
};

/// Opens connections to brokers of one cluster in one client's name.
#[derive(Clone)]
pub struct Dialer {
    connector: Arc<dyn Connector>,
    client_id: Arc<str>,
    handshake_timeout: Duration,
}

impl std::fmt::Debug for Dialer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Dialer").field("client_id", &self.client_id).finish_non_exhaustive()
    }
}

/// Why no connection was opened.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DialError {
    /// The stream could not be opened.
    #[error("cannot connect to {peer}: {}", Reason(error))]
    Connect {
        /// `host:port`.
        peer: Arc<str>,
        /// The operating system's reason.
        error: Arc<io::Error>,
    },
    /// The stream opened, but the peer did not get through the handshake.
    #[error("{peer} {}", met(error))]
    Handshake {
        /// `host:port`.
        peer: Arc<str>,
        /// What happened.
        error: RequestError,
    },
    /// The broker refused to say what it speaks.
    #[error("{peer} does not say which API versions it speaks: {code}")]
    Refused {
        /// `host:port`.
        peer: Arc<str>,
        /// Its answer.
        code: ErrorCode,
    },
}

impl DialError {
    /// Whether the peer took the connection and then said nothing.
    #[must_use]
    pub fn is_silence(&self) -> bool {
        matches!(self, Self::Handshake { error, .. } if error.is_silence())
    }

    /// Whether trying again cannot help: the peer is something else than a Kafka broker on this listener.
    #[must_use]
    pub fn is_wrong_peer(&self) -> bool {
        matches!(
            self,
            Self::Handshake {
                error: RequestError::Connection(ConnectionError::Frame { .. } | ConnectionError::Protocol { .. })
                    | RequestError::Decode { .. },
                ..
            }
        )
    }
}

/// The version every broker since 2.4 speaks; older ones answer error 35 in version 0, with their ranges.
const FIRST_ASKED: i16 = 3;

impl Dialer {
    /// `client_id` appears in the brokers' logs, metrics and quotas.
    pub fn new(connector: Arc<dyn Connector>, client_id: &str, handshake_timeout: Duration) -> Self {
        Self { connector, client_id: client_id.into(), handshake_timeout }
    }

    /// The same way to the same cluster under another client id.
    #[must_use]
    pub fn with_client_id(&self, client_id: &str) -> Self {
        Self { client_id: client_id.into(), ..self.clone() }
    }

    /// Opens a connection and negotiates versions. The second value is an upper bound of the link's round
    /// trip, as measured.
    ///
    /// # Errors
    /// See [`DialError`].
    pub async fn dial(&self, host: &str, port: u16) -> Result<(Connection, Duration), DialError> {
        let peer: Arc<str> = format!("{host}:{port}").into();
        let opening = Instant::now();
        let transport = self
            .connector
            .connect(host, port)
            .await
            .map_err(|error| DialError::Connect { peer: peer.clone(), error: Arc::new(error) })?;
        let opened = opening.elapsed();
        let bare = Connection::start(transport, peer.clone(), self.client_id.clone(), ApiVersions::default());
        let asked = Instant::now();
        let versions = self.ask(&bare).await.map_err(|failure| match failure {
            Failure::Request(error) => DialError::Handshake { error, peer: peer.clone() },
            Failure::Code(code) => DialError::Refused { peer: peer.clone(), code },
        })?;
        // Opening takes a round trip and perhaps a name look-up, the handshake one and the broker's time: the smaller is
        // closer to the link's.
        let round_trip = asked.elapsed().min(opened);
        Ok((bare.with_versions(versions), round_trip))
    }

    async fn ask(&self, connection: &Connection) -> Result<ApiVersions, Failure> {
        let request = ApiVersionsRequest::default()
            .with_client_software_name(StrBytes::from_static_str("towpath"))
            .with_client_software_version(StrBytes::from_static_str(env!("CARGO_PKG_VERSION")));
        let reply = connection
            .begin(FIRST_ASKED, &request, 1 << 20, self.handshake_timeout)
            .map_err(Failure::Request)?
            .await
            .map_err(Failure::Request)?;
        let decode = |version, body| {
            decode_response::<ApiVersionsResponse>(ApiKey::ApiVersions, version, body).map_err(|error: DecodeError| {
                Failure::Request(RequestError::Decode { peer: connection.peer().into(), error: Arc::new(error) })
            })
        };
        // A broker that does not know version 3 answers in version 0, whatever was asked.
        let code = reply.body.get(..2).map_or(0, |two| i16::from_be_bytes([two[0], two[1]]));
        let answer = if ErrorCode(code) == ErrorCode::UNSUPPORTED_VERSION {
            let ranges = decode(0, reply.body)?;
            if ranges.api_keys.is_empty() {
                connection
                    .request_at(0, &ApiVersionsRequest::default(), self.handshake_timeout)
                    .await
                    .map_err(Failure::Request)?
            } else {
                return Ok(versions_of(&ranges));
            }
        } else {
            decode(FIRST_ASKED, reply.body)?
        };
        let code = ErrorCode(answer.error_code);
        if code.is_none() { Ok(versions_of(&answer)) } else { Err(Failure::Code(code)) }
    }
}

enum Failure {
    Request(RequestError),
    Code(ErrorCode),
}

fn versions_of(answer: &ApiVersionsResponse) -> ApiVersions {
    ApiVersions::from_iter(answer.api_keys.iter().map(|api| (api.api_key, api.min_version, api.max_version)))
}

/// What the first question to a peer met, in words for the one who wrote down its address; follows the peer's name.
fn met(error: &RequestError) -> String {
    match error {
        RequestError::Connection(ConnectionError::Frame { error: FrameError::Http, .. }) => {
            "speaks HTTP, not Kafka: check host and port".into()
        }
        RequestError::Connection(ConnectionError::Frame { error: FrameError::Tls, .. }) => {
            "expects TLS, which this version does not speak: use the port of a PLAINTEXT listener".into()
        }
        RequestError::Connection(ConnectionError::Frame { .. }) => {
            "is not a Kafka broker, its first bytes begin no answer: check host and port".into()
        }
        RequestError::Connection(ConnectionError::Protocol { what, .. }) => {
            format!("does not answer as a Kafka broker does ({what}): check host and port")
        }
        RequestError::Decode { error, .. } => {
            format!("does not answer as a Kafka broker does ({error}): check host and port")
        }
        RequestError::Connection(ConnectionError::Closed { .. } | ConnectionError::Io { .. }) => {
            "closes connections without an answer, as a listener does that expects TLS or SASL: check host and port, \
             and use a PLAINTEXT listener"
                .into()
        }
        RequestError::Connection(ConnectionError::Deadline { waited_ms, .. }) => format!(
            "accepts connections but gave no answer within {:.0} s: check host and port; something else than a Kafka \
             broker may listen there (TLS, HTTP), or the broker hangs",
            Duration::from_millis(*waited_ms).as_secs_f64()
        ),
        other => format!("cannot be asked which API versions it speaks: {other}"),
    }
}
