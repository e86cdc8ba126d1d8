//! The length in front of every frame, and the header in front of every response body.

use bytes::Bytes;
use kafka_protocol::messages::ApiKey;

use super::decode::{DecodeError, Reader};

/// The four bytes before a frame do not announce a Kafka response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The bytes read `HTTP`.
    #[error("the peer speaks HTTP, not Kafka; check the port in bootstrap.servers")]
    Http,
    /// The bytes are the start of a TLS alert or handshake record.
    #[error("the peer speaks TLS, which this version does not; use the port of a PLAINTEXT listener")]
    Tls,
    /// The length is negative.
    #[error("the peer announced a frame of {0} bytes; it is not a Kafka broker, check host and port")]
    Negative(i32),
    /// The frame could not even hold a correlation id.
    #[error(
        "the peer announced a frame of {0} bytes, too short for a response; it is not a Kafka broker, check host and port"
    )]
    TooShort(usize),
    /// The frame is longer than the connection accepts.
    #[error(
        "the peer announced a frame of {length} bytes and at most {limit} are accepted; \
         ask for less (fetch.max.bytes), raise the limit, or check that the peer is a Kafka broker"
    )]
    AboveLimit {
        /// Announced length in bytes.
        length: usize,
        /// Accepted length in bytes.
        limit: usize,
    },
}

/// Length in bytes of the frame that follows `prefix`; at most `limit`.
///
/// Peers that are no Kafka brokers are recognised by what they send first. A real frame that begins like a TLS record
/// would be 336 MiB or longer, which no limit in use allows.
///
/// # Errors
/// See [`FrameError`]; the connection cannot be used any more.
pub fn frame_length(prefix: [u8; 4], limit: usize) -> Result<usize, FrameError> {
    match prefix {
        [b'H', b'T', b'T', b'P'] => return Err(FrameError::Http),
        // Record type alert (21) or handshake (22), then the major version of SSL 3.0 and every TLS.
        [0x15 | 0x16, 0x03, ..] => return Err(FrameError::Tls),
        _ => {}
    }
    let announced = i32::from_be_bytes(prefix);
    let length = usize::try_from(announced).map_err(|_| FrameError::Negative(announced))?;
    if length < size_of::<i32>() {
        return Err(FrameError::TooShort(length));
    }
    if length > limit {
        return Err(FrameError::AboveLimit { length, limit });
    }
    Ok(length)
}

/// Splits a response frame (without its length) into correlation id and body.
///
/// Flexible versions have tagged fields in the header, which are passed over; an ApiVersions response never has them,
/// so that a client can read it before it knows what the broker speaks (KIP-511).
///
/// # Errors
/// [`DecodeError`] with the position counted from the start of the frame.
pub fn split_response(api_key: ApiKey, version: i16, frame: Bytes) -> Result<(i32, Bytes), DecodeError> {
    let flexible = api_key.response_header_version(version) >= 1;
    let mut reader = Reader::new(api_key, version, flexible, frame);
    let correlation_id = reader.i32()?;
    reader.skip_tagged_fields()?;
    Ok((correlation_id, reader.into_rest()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Fault;

    #[test]
    fn peers_that_do_not_speak_kafka_are_named() {
        assert_eq!(frame_length(*b"HTTP", 1 << 30), Err(FrameError::Http));
        assert_eq!(frame_length([0x15, 3, 3, 0], usize::MAX), Err(FrameError::Tls));
        assert_eq!(frame_length([0x16, 3, 1, 2], 100), Err(FrameError::Tls));
        assert!(FrameError::Http.to_string().starts_with("the peer speaks HTTP"));
        assert!(FrameError::Tls.to_string().starts_with("the peer speaks TLS, which this version does not"));
    }

    #[test]
    fn lengths_outside_four_to_the_limit_are_refused() {
        assert_eq!(frame_length([0, 0, 1, 0], 256), Ok(256));
        assert_eq!(frame_length([0, 0, 1, 1], 256), Err(FrameError::AboveLimit { length: 257, limit: 256 }));
        assert_eq!(frame_length([0, 0, 0, 3], 256), Err(FrameError::TooShort(3)));
        assert_eq!(frame_length([0xff; 4], 256), Err(FrameError::Negative(-1)));
        assert_eq!(frame_length([0x80, 0, 0, 0], 256), Err(FrameError::Negative(i32::MIN)));
    }

    #[test]
    fn a_classic_header_is_the_correlation_id_alone() {
        let frame = Bytes::from_static(&[0, 0, 0, 7, 1, 2, 3]);
        let (correlation_id, body) = split_response(ApiKey::Fetch, 11, frame).unwrap();
        assert_eq!((correlation_id, body.as_ref()), (7, &[1, 2, 3][..]));
    }

    #[test]
    fn a_flexible_header_may_carry_unknown_tagged_fields() {
        let frame = Bytes::from_static(&[0, 0, 0, 7, 1, 9, 2, 0xaa, 0xbb, 5]);
        let (correlation_id, body) = split_response(ApiKey::Fetch, 12, frame).unwrap();
        assert_eq!((correlation_id, body.as_ref()), (7, &[5][..]));
    }

    #[test]
    fn the_api_versions_header_has_no_tagged_fields_in_any_version() {
        for version in 0..=4 {
            let frame = Bytes::from_static(&[0, 0, 0, 1, 9, 9]);
            let (_, body) = split_response(ApiKey::ApiVersions, version, frame).unwrap();
            assert_eq!(body.as_ref(), [9, 9]);
        }
    }

    #[test]
    fn a_cut_header_is_an_error() {
        let error = split_response(ApiKey::Fetch, 12, Bytes::from_static(&[0, 0, 0, 7, 1, 9, 2, 0xaa])).unwrap_err();
        assert_eq!(error.fault, Fault::Truncated { needed: 2, remaining: 1 });
        assert!(split_response(ApiKey::Fetch, 11, Bytes::from_static(&[0, 0, 0])).is_err());
    }
}
