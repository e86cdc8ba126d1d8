//! The header in front of every request body: for the embedded broker.

use bytes::Bytes;
use kafka_protocol::messages::ApiKey;

use super::decode::{DecodeError, Fault, Reader};

/// Who asks what, in which version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHead {
    /// The API.
    pub api: ApiKey,
    /// The version the body is written in; not checked.
    pub version: i16,
    /// Comes back in front of the answer.
    pub correlation_id: i32,
    /// What the client calls itself.
    pub client_id: Option<String>,
}

/// Splits a request frame (without its length) into header and body. `Ok(None)` for an API that does not exist.
///
/// The client id keeps its fixed-size length in every version: a broker must read it before it knows the dialect.
///
/// # Errors
/// [`DecodeError`] with the position counted from the start of the frame.
pub fn split_request(frame: Bytes) -> Result<Option<(RequestHead, Bytes)>, DecodeError> {
    // Only the texts of errors name the API; it is not known before the first two bytes are read.
    let mut reader = Reader::new(ApiKey::ApiVersions, 0, false, frame);
    let Ok(api) = ApiKey::try_from(reader.i16()?) else {
        return Ok(None);
    };
    let version = reader.i16()?;
    let correlation_id = reader.i32()?;
    let client_id = reader.nullable_string()?;
    let rest = reader.into_rest();
    if version < 0 {
        return Err(Reader::new(api, version, false, rest).fault(Fault::UnsupportedVersion));
    }
    let flexible = api.request_header_version(version) >= 2;
    let mut reader = Reader::new(api, version, flexible, rest);
    reader.skip_tagged_fields()?;
    Ok(Some((RequestHead { api, version, correlation_id, client_id }, reader.into_rest())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_of_both_dialects_is_read() {
        // Fetch 11 and 12, correlation id 7, client "ab".
        let classic = [0, 1, 0, 11, 0, 0, 0, 7, 0, 2, b'a', b'b', 9];
        let (head, body) = split_request(Bytes::copy_from_slice(&classic)).unwrap().unwrap();
        let expected =
            RequestHead { api: ApiKey::Fetch, version: 11, correlation_id: 7, client_id: Some("ab".to_owned()) };
        assert_eq!((head, body.as_ref()), (expected, &[9][..]));
        let flexible = [0, 1, 0, 12, 0, 0, 0, 7, 0xff, 0xff, 1, 5, 1, 0xaa, 9];
        let (head, body) = split_request(Bytes::copy_from_slice(&flexible)).unwrap().unwrap();
        assert_eq!((head.version, head.client_id, body.as_ref()), (12, None, &[9][..]));
    }

    #[test]
    fn hostile_headers_are_refused() {
        for bytes in
            [&[][..], &[0], &[0, 1, 0, 11, 0, 0, 0, 7, 0x7f, 0xff], &[0, 1, 0xff, 0xff, 0, 0, 0, 7, 0xff, 0xff]]
        {
            assert!(split_request(Bytes::copy_from_slice(bytes)).is_err(), "{bytes:?}");
        }
        assert_eq!(split_request(Bytes::from_static(&[0x7f, 0, 0, 0])), Ok(None));
    }
}
