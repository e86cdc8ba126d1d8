//! Connections to brokers: transports, the request/response driver, and the opening handshake.
//!
//! Leaves what to ask and what an answer means to `client`. Start reading at [`Connection`].

mod connection;
mod dial;
mod frame_reader;
mod request_error;
mod transport;

pub use connection::{Answer, Connection, Reply};
pub use dial::{DialError, Dialer};
pub use request_error::{ConnectionError, RequestError};
pub use transport::{BoxTransport, Connecting, Connector, TcpConnector, Transport, UNACKNOWLEDGED_MAX};
