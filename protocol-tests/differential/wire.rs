//! A socket, one request after the other, and nothing that could hide what a broker says.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{Decodable, HeaderVersion, Request, StrBytes, encode_request_header_into_buffer};

const DEADLINE: Duration = Duration::from_secs(20);
const FRAME_MAX: usize = 64 << 20;

#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    correlation_id: i32,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gone {
    Closed,
    Silent,
}

impl Connection {
    pub(super) fn open(address: &str) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(DEADLINE))?;
        Ok(Self { stream, correlation_id: 0 })
    }

    pub(super) fn call<R: Request>(&mut self, version: i16, request: &R) -> Result<R::Response, Gone> {
        self.send(version, request)?;
        self.receive::<R>(version)
    }

    /// The version may be one that the crate cannot know is wrong: the broker judges it.
    pub(super) fn send<R: Request>(&mut self, version: i16, request: &R) -> Result<(), Gone> {
        self.correlation_id += 1;
        let header = RequestHeader::default()
            .with_request_api_key(R::KEY)
            .with_request_api_version(version)
            .with_correlation_id(self.correlation_id)
            .with_client_id(Some(StrBytes::from_static_str("differential")));
        let mut body = BytesMut::new();
        encode_request_header_into_buffer(&mut body, &header).expect("headers can be encoded");
        request.encode(&mut body, version).expect("the scenario asks for a version that the crate can encode");
        self.send_frame(&body)
    }

    pub(super) fn send_frame(&mut self, body: &[u8]) -> Result<(), Gone> {
        let length = u32::try_from(body.len()).expect("frames are small");
        let frame = [&length.to_be_bytes()[..], body].concat();
        self.stream.write_all(&frame).map_err(|_| Gone::Closed)
    }

    pub(super) fn receive<R: Request>(&mut self, version: i16) -> Result<R::Response, Gone> {
        let mut body = self.receive_frame()?;
        let header_version = R::Response::header_version(version);
        ResponseHeader::decode(&mut body, header_version).expect("a response begins with its header");
        let answer = R::Response::decode(&mut body, version).expect("the answer has the asked version");
        assert!(body.is_empty(), "{:?} v{version}: {} bytes too many", ApiKey::try_from(R::KEY), body.len());
        Ok(answer)
    }

    pub(super) fn receive_frame(&mut self) -> Result<Bytes, Gone> {
        let mut length = [0; 4];
        self.read(&mut length)?;
        let length = usize::try_from(u32::from_be_bytes(length)).expect("32 bits fit");
        assert!(length <= FRAME_MAX, "a frame of {length} bytes");
        let mut body = vec![0; length];
        self.read(&mut body)?;
        Ok(body.into())
    }

    fn read(&mut self, bytes: &mut [u8]) -> Result<(), Gone> {
        self.stream.read_exact(bytes).map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => Gone::Silent,
            _ => Gone::Closed,
        })
    }
}
