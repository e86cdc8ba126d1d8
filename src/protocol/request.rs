//! Encodes a request with its header into one buffer.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, RequestHeader};
use kafka_protocol::protocol::{Encodable, HeaderVersion, Request, StrBytes};

/// A request that cannot be encoded: our own mistake, never the peer's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot encode the {api} v{version} request: {reason}")]
pub struct EncodeError {
    /// Name of the API.
    pub api: String,
    /// The version that was asked for.
    pub version: i16,
    /// What the encoder said.
    pub reason: String,
}

/// Room for a request of the usual size, in bytes.
const CAPACITY: usize = 512;

/// Encodes one request; the buffer begins with the frame's length. Requests with batches are written by
/// [`ProduceWriter`](super::ProduceWriter).
///
/// # Errors
/// [`EncodeError`] if `version` is not one the crate can write, if a field is set that this version lacks, or if the
/// frame is longer than its length field can say.
pub fn encode_request<R: Request + Encodable + HeaderVersion>(
    correlation_id: i32,
    client_id: &str,
    version: i16,
    request: &R,
) -> Result<Bytes, EncodeError> {
    let refused = |reason: &dyn std::fmt::Display| EncodeError {
        api: ApiKey::try_from(R::KEY).map_or_else(|()| R::KEY.to_string(), |api| format!("{api:?}")),
        version,
        reason: reason.to_string(),
    };
    let header = RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(correlation_id)
        .with_client_id(Some(StrBytes::from_string(client_id.to_owned())));
    let mut frame = BytesMut::with_capacity(CAPACITY);
    // The length, known at the end.
    frame.put_i32(0);
    header.encode(&mut frame, R::header_version(version)).map_err(|error| refused(&error))?;
    request.encode(&mut frame, version).map_err(|error| refused(&error))?;
    let length = frame.len().saturating_sub(size_of::<i32>());
    let announced = i32::try_from(length)
        .map_err(|_| refused(&format_args!("the frame is {length} bytes long, more than its length field can say")))?;
    if let Some(prefix) = frame.first_chunk_mut() {
        *prefix = announced.to_be_bytes();
    }
    Ok(frame.freeze())
}

#[cfg(test)]
mod tests;
