//! Encodes a request with its header into buffers for one vectored write.

use bytes::Bytes;
use kafka_protocol::messages::{ApiKey, RequestHeader};
use kafka_protocol::protocol::{Encodable, HeaderVersion, Request, StrBytes};

use super::gather::{GatherSink, SEALED_HEAD_LEN};

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

/// Room in the head buffer for a request without batches, in bytes.
const HEAD_CAPACITY: usize = 512;

/// Room in the head buffer for each batch beside what of it is copied: the partition around it, and part of a topic name.
const HEAD_CAPACITY_PER_BATCH: usize = 67;

/// Encodes one request as a list of buffers for one vectored write; the first begins with the frame length.
///
/// `sealed` lists, in the order of the message, each batch that the message holds by reference and the 61 bytes that
/// replace its header on the way out (see [`GatherSink`]). It is empty for everything but Produce.
///
/// # Errors
/// [`EncodeError`] if `version` is not one the crate can write, if a field is set that this version lacks, or if the
/// batches in the message are not those of `sealed` in the same order.
pub fn encode_request<R: Request + Encodable + HeaderVersion>(
    correlation_id: i32,
    client_id: &str,
    version: i16,
    request: &R,
    sealed: Vec<(Bytes, [u8; SEALED_HEAD_LEN])>,
) -> Result<Vec<Bytes>, EncodeError> {
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
    // Growing would copy the small batches again and again.
    let room = |batch: &Bytes| GatherSink::copied(batch.len()).saturating_add(HEAD_CAPACITY_PER_BATCH);
    let rooms = sealed.iter().map(|(batch, _)| room(batch));
    let mut sink = GatherSink::with_capacity(rooms.fold(HEAD_CAPACITY, usize::saturating_add));
    sink.register_all(sealed);
    header.encode(&mut sink, R::header_version(version)).map_err(|error| refused(&error))?;
    request.encode(&mut sink, version).map_err(|error| refused(&error))?;
    sink.finish().map_err(|error| refused(&error))
}

#[cfg(test)]
mod tests;
