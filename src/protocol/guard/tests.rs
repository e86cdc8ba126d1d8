//! The tables against the crate: bytes generated from a table must be what the crate reads and writes.

use bytes::{BufMut, BytesMut};
use kafka_protocol::messages as wire;
use kafka_protocol::protocol::{Encodable, Message as WireMessage};

use super::*;
use crate::protocol::random::Random;
use crate::protocol::schema::MESSAGES;

/// Runs a generic function with the response type of an API.
macro_rules! with_response {
    ($api:expr, $function:ident($($argument:expr),*)) => {
        match $api {
            ApiKey::ApiVersions => $function::<wire::ApiVersionsResponse>($($argument),*),
            ApiKey::FindCoordinator => $function::<wire::FindCoordinatorResponse>($($argument),*),
            ApiKey::JoinGroup => $function::<wire::JoinGroupResponse>($($argument),*),
            ApiKey::SyncGroup => $function::<wire::SyncGroupResponse>($($argument),*),
            ApiKey::Heartbeat => $function::<wire::HeartbeatResponse>($($argument),*),
            ApiKey::LeaveGroup => $function::<wire::LeaveGroupResponse>($($argument),*),
            ApiKey::ListOffsets => $function::<wire::ListOffsetsResponse>($($argument),*),
            ApiKey::DescribeProducers => $function::<wire::DescribeProducersResponse>($($argument),*),
            ApiKey::DescribeConfigs => $function::<wire::DescribeConfigsResponse>($($argument),*),
            ApiKey::CreateTopics => $function::<wire::CreateTopicsResponse>($($argument),*),
            ApiKey::CreatePartitions => $function::<wire::CreatePartitionsResponse>($($argument),*),
            ApiKey::InitProducerId => $function::<wire::InitProducerIdResponse>($($argument),*),
            ApiKey::OffsetForLeaderEpoch => $function::<wire::OffsetForLeaderEpochResponse>($($argument),*),
            ApiKey::DescribeCluster => $function::<wire::DescribeClusterResponse>($($argument),*),
            ApiKey::DescribeGroups => $function::<wire::DescribeGroupsResponse>($($argument),*),
            ApiKey::ListGroups => $function::<wire::ListGroupsResponse>($($argument),*),
            ApiKey::SaslHandshake => $function::<wire::SaslHandshakeResponse>($($argument),*),
            ApiKey::SaslAuthenticate => $function::<wire::SaslAuthenticateResponse>($($argument),*),
            ApiKey::IncrementalAlterConfigs => $function::<wire::IncrementalAlterConfigsResponse>($($argument),*),
            ApiKey::DeleteTopics => $function::<wire::DeleteTopicsResponse>($($argument),*),
            ApiKey::DeleteRecords => $function::<wire::DeleteRecordsResponse>($($argument),*),
            ApiKey::DeleteGroups => $function::<wire::DeleteGroupsResponse>($($argument),*),
            other => panic!("{other:?} has a table and no line here"),
        }
    };
}

fn round_trip<R: Decodable + Encodable + HeaderVersion>(
    api: ApiKey,
    version: i16,
    body: Bytes,
) -> Result<BytesMut, DecodeError> {
    let response: R = decode_response(api, version, body)?;
    let mut again = BytesMut::new();
    response.encode(&mut again, version).expect("what was decoded can be encoded");
    Ok(again)
}

pub(super) fn versions_of<R: WireMessage>() -> std::ops::RangeInclusive<i16> {
    R::VERSIONS.min..=R::VERSIONS.max
}

/// Writes a random message that follows a table.
struct Generator<'a> {
    random: &'a mut Random,
    version: i16,
    flexible: bool,
    nulls: bool,
    bytes: BytesMut,
}

impl Generator<'_> {
    fn varint(&mut self, mut value: usize) {
        while value >= 0x80 {
            self.bytes.put_u8(value as u8 | 0x80);
            value >>= 7;
        }
        self.bytes.put_u8(value as u8);
    }

    fn structure(&mut self, structure: &Structure) {
        for field in structure.fields {
            if field.versions.contains(&self.version) {
                self.field(&field.kind, 0);
            }
        }
        if !self.flexible {
            return;
        }
        let tagged: Vec<_> =
            structure.tagged.iter().filter(|(_, field)| field.versions.contains(&self.version)).collect();
        let unknown = self.random.chance(4);
        self.varint(tagged.len() + usize::from(unknown));
        for (tag, field) in tagged {
            let outer = std::mem::take(&mut self.bytes);
            // The crate leaves out a tagged field that has its default value, so nothing empty or zero here.
            self.field(&field.kind, 1);
            let content = std::mem::replace(&mut self.bytes, outer);
            self.varint(*tag as usize);
            self.varint(content.len());
            self.bytes.put_slice(&content);
        }
        if unknown {
            let content = self.random.bytes(20);
            self.varint(1000);
            self.varint(content.len());
            self.bytes.put_slice(&content);
        }
    }

    fn field(&mut self, kind: &Kind, min: usize) {
        let null = self.nulls && self.random.chance(6);
        match kind {
            // May be a boolean, which the crate writes as 0 or 1.
            Kind::Fixed(1) => {
                let value = if min > 0 { 1 } else { self.random.below(2) };
                self.bytes.put_u8(value as u8);
            }
            Kind::Fixed(size) => (0..*size).for_each(|_| {
                let byte = self.random.below(0xff) as u8 + u8::from(min > 0);
                self.bytes.put_u8(byte & 0x7f | u8::from(min > 0));
            }),
            Kind::Text => {
                let text = self.random.text();
                self.sized(2, (!null).then_some(text.len()));
                if !null {
                    self.bytes.put_slice(text.as_bytes());
                }
            }
            Kind::Blob => {
                let blob = self.random.bytes(40);
                self.sized(4, (!null).then_some(blob.len()));
                if !null {
                    self.bytes.put_slice(&blob);
                }
            }
            Kind::Array(element) => {
                let count = self.random.below(4).max(min);
                self.sized(4, (!null).then_some(count));
                for _ in 0..if null { 0 } else { count } {
                    self.structure(element);
                }
            }
            Kind::List(element) => {
                let count = self.random.below(4).max(min);
                self.sized(4, (!null).then_some(count));
                for _ in 0..if null { 0 } else { count } {
                    self.field(element, min);
                }
            }
            Kind::Struct(structure) => self.structure(structure),
        }
    }

    fn sized(&mut self, classic: usize, length: Option<usize>) {
        match (self.flexible, length) {
            (true, length) => self.varint(length.map_or(0, |length| length + 1)),
            (false, None) => self.bytes.put_bytes(0xff, classic),
            (false, Some(length)) => self.bytes.put_uint(length as u64, classic),
        }
    }
}

pub(super) fn generate(random: &mut Random, message: &Message, version: i16, nulls: bool) -> Bytes {
    let flexible = version >= message.flexible_from;
    let mut generator = Generator { random, version, flexible, nulls, bytes: BytesMut::new() };
    generator.structure(&message.body);
    generator.bytes.freeze()
}

fn for_each_table(mut test: impl FnMut(&Message, i16, &mut Random)) {
    for message in MESSAGES {
        for version in message.versions.clone() {
            let mut random = Random::new(message.api as u64 * 100 + version as u64);
            test(message, version, &mut random);
        }
    }
}

#[test]
fn the_crate_reads_and_writes_what_the_tables_describe() {
    for_each_table(|message, version, random| {
        for _ in 0..60 {
            let body = generate(random, message, version, false);
            let again = with_response!(message.api, round_trip(message.api, version, body.clone()));
            assert_eq!(again.map(BytesMut::freeze), Ok(body), "{:?} v{version}", message.api);
        }
    });
}

#[test]
fn nulls_pass_the_walk_and_are_judged_by_the_crate() {
    let mut read = 0;
    for_each_table(|message, version, random| {
        for _ in 0..60 {
            let body = generate(random, message, version, true);
            match with_response!(message.api, round_trip(message.api, version, body.clone())) {
                Ok(again) => {
                    assert_eq!(again, body, "{:?} v{version}", message.api);
                    read += 1;
                }
                Err(error) => assert!(matches!(error.fault, Fault::Crate(_)), "{error}"),
            }
        }
    });
    assert!(read > 1000, "{read}");
}

#[test]
fn every_truncation_is_an_error() {
    for_each_table(|message, version, random| {
        let body = generate(random, message, version, false);
        for length in 0..body.len() {
            let cut = body.slice(..length);
            let result = with_response!(message.api, round_trip(message.api, version, cut));
            assert!(result.is_err(), "{:?} v{version} cut to {length} of {}", message.api, body.len());
        }
        let mut longer = BytesMut::from(body.as_ref());
        longer.put_u8(0);
        let error = with_response!(message.api, round_trip(message.api, version, longer.freeze())).unwrap_err();
        assert_eq!(error.fault, Fault::TrailingBytes(1));
    });
}

#[test]
fn damaged_bytes_neither_panic_nor_abort() {
    for_each_table(|message, version, random| {
        for _ in 0..40 {
            let body = generate(random, message, version, true);
            for _ in 0..20 {
                let damaged = random.mutate(&body);
                if let Ok(again) = with_response!(message.api, round_trip(message.api, version, damaged.clone())) {
                    // Overlong varints and repeated tags may shrink; nothing may grow.
                    assert!(again.len() <= damaged.len());
                }
            }
        }
    });
}

#[test]
fn a_count_that_cannot_fit_is_refused_before_anything_is_reserved() {
    // ListOffsets v1: two billion topics in four bytes.
    let error = decode_response::<wire::ListOffsetsResponse>(
        ApiKey::ListOffsets,
        1,
        Bytes::from_static(&[0x7f, 0xff, 0xff, 0xff]),
    )
    .unwrap_err();
    assert_eq!((error.at, error.fault), (0, Fault::CountTooLarge { count: 0x7fff_ffff, remaining: 0 }));
}

#[test]
fn a_tagged_field_must_use_up_its_size() {
    // ApiVersions v3: error 0, no keys, throttle 0, one tagged field: the epoch (8 bytes) in 9.
    let mut body = vec![0, 0, 1, 0, 0, 0, 0, 1, 1, 9];
    body.extend([0; 9]);
    body.push(0);
    let error = decode_response::<wire::ApiVersionsResponse>(ApiKey::ApiVersions, 3, body.into()).unwrap_err();
    assert_eq!(error.fault, Fault::TaggedFieldSize { size: 9, unread: 1 });
}

#[test]
fn an_error_says_api_version_and_place() {
    let error =
        decode_response::<wire::HeartbeatResponse>(ApiKey::Heartbeat, 1, Bytes::from_static(&[0; 5])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the Heartbeat v1 response is malformed at byte 4: 2 bytes are needed and 1 are left"
    );
}

#[test]
fn an_api_or_version_without_a_table_is_never_decoded() {
    let error = decode_response::<wire::FetchResponse>(ApiKey::Fetch, 4, Bytes::from_static(&[0; 8])).unwrap_err();
    assert_eq!(error.fault, Fault::NoTable);
    let error =
        decode_response::<wire::HeartbeatResponse>(ApiKey::Heartbeat, 5, Bytes::from_static(&[0; 8])).unwrap_err();
    assert_eq!(error.fault, Fault::UnsupportedVersion);
}

#[test]
fn the_tables_cover_what_the_crate_can_read() {
    for message in MESSAGES {
        let known = with_response!(message.api, versions_of());
        let last = match message.api {
            // The crate reads version 6 and cannot write the request for it.
            ApiKey::InitProducerId => 5,
            _ => *known.end(),
        };
        assert_eq!(message.versions, *known.start()..=last, "{:?}", message.api);
        let flexible = (0..=last).find(|version| message.api.request_header_version(*version) == 2);
        assert_eq!(flexible.unwrap_or(i16::MAX), message.flexible_from, "{:?}", message.api);
    }
}
