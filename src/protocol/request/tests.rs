//! Requests against the plain encoding, byte for byte.

use kafka_protocol::messages::{FetchRequest, MetadataRequest, ProduceRequest};

use super::*;

/// Length, header and message as the crate writes them into one buffer.
fn plain<R: Request>(correlation_id: i32, client_id: &str, version: i16, request: &R) -> Bytes {
    let header = RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(correlation_id)
        .with_client_id(Some(StrBytes::from_string(client_id.to_owned())));
    let mut frame = BytesMut::new();
    frame.put_i32(0);
    header.encode(&mut frame, R::header_version(version)).unwrap();
    request.encode(&mut frame, version).unwrap();
    let length = frame.len() as i32 - 4;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    frame.freeze()
}

#[test]
fn a_request_is_its_header_and_its_message_behind_their_length() {
    let request = MetadataRequest::default().with_topics(None);
    for version in 1..=13 {
        let frame = encode_request(5, "towpath", version, &request).unwrap();
        assert_eq!(frame, plain(5, "towpath", version, &request), "v{version}");
    }
    let request = FetchRequest::default().with_max_wait_ms(500);
    for version in 4..=18 {
        let frame = encode_request(5, "towpath", version, &request).unwrap();
        assert_eq!(frame, plain(5, "towpath", version, &request), "v{version}");
    }
}

#[test]
fn a_version_that_cannot_be_written_is_an_error() {
    let error = encode_request(1, "", 2, &ProduceRequest::default()).unwrap_err();
    assert!(error.to_string().starts_with("cannot encode the Produce v2 request: "), "{error}");
}
