//! The tables of requests against the crate.

use bytes::{BufMut, BytesMut};
use kafka_protocol::messages as wire;
use kafka_protocol::protocol::Encodable;

use super::tests::{generate, versions_of};
use super::*;
use crate::protocol::random::Random;
use crate::protocol::request_schema::REQUESTS;

/// Runs a generic function with the request type of an API.
macro_rules! with_request {
    ($api:expr, $function:ident($($argument:expr),*)) => {
        match $api {
            ApiKey::Produce => $function::<wire::ProduceRequest>($($argument),*),
            ApiKey::Fetch => $function::<wire::FetchRequest>($($argument),*),
            ApiKey::ListOffsets => $function::<wire::ListOffsetsRequest>($($argument),*),
            ApiKey::Metadata => $function::<wire::MetadataRequest>($($argument),*),
            ApiKey::OffsetCommit => $function::<wire::OffsetCommitRequest>($($argument),*),
            ApiKey::OffsetFetch => $function::<wire::OffsetFetchRequest>($($argument),*),
            ApiKey::FindCoordinator => $function::<wire::FindCoordinatorRequest>($($argument),*),
            ApiKey::JoinGroup => $function::<wire::JoinGroupRequest>($($argument),*),
            ApiKey::Heartbeat => $function::<wire::HeartbeatRequest>($($argument),*),
            ApiKey::LeaveGroup => $function::<wire::LeaveGroupRequest>($($argument),*),
            ApiKey::SyncGroup => $function::<wire::SyncGroupRequest>($($argument),*),
            ApiKey::DescribeGroups => $function::<wire::DescribeGroupsRequest>($($argument),*),
            ApiKey::ListGroups => $function::<wire::ListGroupsRequest>($($argument),*),
            ApiKey::ApiVersions => $function::<wire::ApiVersionsRequest>($($argument),*),
            ApiKey::CreateTopics => $function::<wire::CreateTopicsRequest>($($argument),*),
            ApiKey::DeleteTopics => $function::<wire::DeleteTopicsRequest>($($argument),*),
            ApiKey::DeleteRecords => $function::<wire::DeleteRecordsRequest>($($argument),*),
            ApiKey::InitProducerId => $function::<wire::InitProducerIdRequest>($($argument),*),
            ApiKey::OffsetForLeaderEpoch => $function::<wire::OffsetForLeaderEpochRequest>($($argument),*),
            ApiKey::AddPartitionsToTxn => $function::<wire::AddPartitionsToTxnRequest>($($argument),*),
            ApiKey::AddOffsetsToTxn => $function::<wire::AddOffsetsToTxnRequest>($($argument),*),
            ApiKey::EndTxn => $function::<wire::EndTxnRequest>($($argument),*),
            ApiKey::WriteTxnMarkers => $function::<wire::WriteTxnMarkersRequest>($($argument),*),
            ApiKey::TxnOffsetCommit => $function::<wire::TxnOffsetCommitRequest>($($argument),*),
            ApiKey::DescribeAcls => $function::<wire::DescribeAclsRequest>($($argument),*),
            ApiKey::CreateAcls => $function::<wire::CreateAclsRequest>($($argument),*),
            ApiKey::DescribeConfigs => $function::<wire::DescribeConfigsRequest>($($argument),*),
            ApiKey::CreatePartitions => $function::<wire::CreatePartitionsRequest>($($argument),*),
            ApiKey::DeleteGroups => $function::<wire::DeleteGroupsRequest>($($argument),*),
            ApiKey::IncrementalAlterConfigs => $function::<wire::IncrementalAlterConfigsRequest>($($argument),*),
            ApiKey::OffsetDelete => $function::<wire::OffsetDeleteRequest>($($argument),*),
            ApiKey::DescribeCluster => $function::<wire::DescribeClusterRequest>($($argument),*),
            ApiKey::DescribeProducers => $function::<wire::DescribeProducersRequest>($($argument),*),
            other => panic!("{other:?} has a table and no line here"),
        }
    };
}

fn round_trip<R: Decodable + Encodable + HeaderVersion>(
    api: ApiKey,
    version: i16,
    body: Bytes,
) -> Result<Bytes, DecodeError> {
    let request: R = decode_request(api, version, body)?;
    let mut again = BytesMut::new();
    match request.encode(&mut again, version) {
        Ok(()) => Ok(again.freeze()),
        Err(error) => panic!("{api:?} v{version}: what was decoded cannot be encoded: {error}"),
    }
}

fn for_each_table(mut test: impl FnMut(&Message, i16, &mut Random)) {
    for message in REQUESTS {
        for version in message.versions.clone() {
            let mut random = Random::new(message.api as u64 * 100 + version as u64 + 7);
            test(message, version, &mut random);
        }
    }
}

#[test]
fn the_crate_reads_and_writes_the_requests_that_the_tables_describe() {
    for_each_table(|message, version, random| {
        for _ in 0..40 {
            let body = generate(random, message, version, false);
            let again = with_request!(message.api, round_trip(message.api, version, body.clone()));
            assert_eq!(again, Ok(body), "{:?} v{version}", message.api);
        }
    });
}

#[test]
fn truncated_requests_are_errors() {
    for_each_table(|message, version, random| {
        let body = generate(random, message, version, false);
        for length in 0..body.len() {
            let result = with_request!(message.api, round_trip(message.api, version, body.slice(..length)));
            assert!(result.is_err(), "{:?} v{version} cut to {length} of {}", message.api, body.len());
        }
        let mut longer = BytesMut::from(body.as_ref());
        longer.put_u8(0);
        assert!(with_request!(message.api, round_trip(message.api, version, longer.freeze())).is_err());
    });
}

#[test]
fn damaged_requests_neither_panic_nor_abort() {
    fn decode<R: Decodable + HeaderVersion>(api: ApiKey, version: i16, body: Bytes) -> bool {
        decode_request::<R>(api, version, body).is_ok()
    }
    for_each_table(|message, version, random| {
        for _ in 0..20 {
            let body = generate(random, message, version, true);
            for _ in 0..20 {
                let damaged = random.mutate(&body);
                with_request!(message.api, decode(message.api, version, damaged.clone()));
            }
        }
    });
}

#[test]
fn the_tables_of_requests_cover_what_the_crate_can_read() {
    for message in REQUESTS {
        let known = with_request!(message.api, versions_of());
        assert_eq!(message.versions, known, "{:?}", message.api);
        let flexible = (0..=*known.end()).find(|version| message.api.request_header_version(*version) == 2);
        assert_eq!(flexible.unwrap_or(i16::MAX), message.flexible_from, "{:?}", message.api);
    }
}
