//! One file for each family of requests; this one tells them apart.

mod admin;
mod configs;
mod coordinators;
mod errors;
mod fetch;
mod metadata;
mod offsets;
mod produce;
mod txn;

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey, ApiVersionsResponse, ResponseHeader, api_versions_response::ApiVersion};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, StrBytes};
use tokio::time::Instant;

pub(super) use self::fetch::WaitingFetch;
pub(super) use self::produce::WaitingAcks;
use super::{Cluster, ConnectionId, InterceptAction};
use crate::protocol::{DecodeError, ErrorCode, RequestHead, decode_request, split_request};
use crate::testkit::Ticket;

/// Who asked, and how the answer has to look.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) node: i32,
    pub(super) connection: ConnectionId,
    pub(super) api: ApiKey,
    pub(super) version: i16,
    pub(super) correlation_id: i32,
    pub(super) client_id: Option<String>,
    /// Groups of the request that another node coordinates.
    pub(super) foreign: Vec<StrBytes>,
    /// The client is told to wait so long, and is made to.
    pub(super) throttle: Duration,
}

/// An encoded answer.
#[derive(Debug)]
pub(super) struct Answer {
    frame: Option<Bytes>,
    /// Nothing more is read of the connection for so long.
    pub(super) mute: Duration,
}

impl Answer {
    /// `None` if it cannot be written in the version that was asked for.
    pub(super) fn into_frame(self) -> Option<Bytes> {
        self.frame
    }
}

impl Asked {
    /// As answers say it.
    fn throttle_ms(&self) -> i32 {
        i32::try_from(self.throttle.as_millis()).unwrap_or(i32::MAX)
    }

    /// Encodes the answer with its header and length.
    pub(super) fn answer<R: Encodable + HeaderVersion>(&self, response: &R) -> Answer {
        self.answer_in(self.version, response)
    }

    fn answer_in<R: Encodable + HeaderVersion>(&self, version: i16, response: &R) -> Answer {
        let mut frame = BytesMut::new();
        frame.put_i32(0);
        let header = ResponseHeader::default().with_correlation_id(self.correlation_id);
        if header.encode(&mut frame, R::header_version(version)).is_err()
            || response.encode(&mut frame, version).is_err()
        {
            return Answer { frame: None, mute: Duration::ZERO };
        }
        let length = frame.len().saturating_sub(size_of::<i32>());
        let Ok(length) = i32::try_from(length) else {
            return Answer { frame: None, mute: Duration::ZERO };
        };
        if let Some(prefix) = frame.first_chunk_mut() {
            *prefix = length.to_be_bytes();
        }
        Answer { frame: Some(frame.freeze()), mute: self.throttle }
    }
}

/// What became of a request.
#[derive(Debug)]
pub(super) enum Outcome {
    Answer(Answer),
    /// `acks=0`.
    Nothing,
    /// The connection has to go.
    Hangup,
    WaitFetch(WaitingFetch),
    WaitAcks(WaitingAcks),
    WaitGroup(Asked, Ticket),
    Delay(Instant, Bytes),
}

impl Cluster {
    pub(super) fn dispatch(
        &mut self,
        connection: ConnectionId,
        node: i32,
        frame: Bytes,
        may_intercept: bool,
    ) -> Outcome {
        // Whatever cannot be read ends the connection, as in a real broker.
        let Ok(Some((head, body))) = split_request(frame.clone()) else {
            return Outcome::Hangup;
        };
        let RequestHead { api, version, correlation_id, client_id } = head;
        let mut asked = Asked {
            node,
            connection,
            api,
            version,
            correlation_id,
            client_id,
            foreign: Vec::new(),
            throttle: Duration::ZERO,
        };
        let action = if may_intercept {
            self.intercepts.iter_mut().find_map(|intercept| intercept.meets(api, node))
        } else {
            None
        };
        self.intercepts.retain(|intercept| intercept.times > 0);
        match action {
            None => self.route(&asked, body),
            Some(InterceptAction::DropBefore) => Outcome::Hangup,
            Some(InterceptAction::DropAfter) => {
                self.route_and_forget(&asked, body);
                Outcome::Hangup
            }
            Some(InterceptAction::AnswerAfter(code)) => {
                self.route_and_forget(&asked, body.clone());
                errors::answer(&asked, body, code)
            }
            Some(InterceptAction::Delay(duration)) => Outcome::Delay(self.clock.now + duration, frame),
            Some(InterceptAction::Answer(code)) => errors::answer(&asked, body, code),
            Some(InterceptAction::Throttle(duration)) => {
                asked.throttle = duration;
                self.route(&asked, body)
            }
        }
    }

    /// Works on a request whose answer nobody gets.
    fn route_and_forget(&mut self, asked: &Asked, body: Bytes) {
        if let Outcome::WaitGroup(_, ticket) = self.route(asked, body) {
            self.tickets.remove(&ticket);
            self.groups.forget(ticket);
        }
    }

    fn route(&mut self, asked: &Asked, body: Bytes) -> Outcome {
        let is_offered =
            self.version.api_range(asked.api).is_some_and(|(min, max)| (min..=max).contains(&asked.version));
        if !is_offered {
            return match asked.api {
                // A client that asks in a version we lack learns ours in the oldest one.
                ApiKey::ApiVersions => {
                    let response = self.api_versions(0).with_error_code(ErrorCode::UNSUPPORTED_VERSION.0);
                    Outcome::Answer(asked.answer_in(0, &response))
                }
                _ => Outcome::Hangup,
            };
        }
        self.decoded(asked, body).unwrap_or(Outcome::Hangup)
    }

    fn decoded(&mut self, asked: &Asked, body: Bytes) -> Result<Outcome, DecodeError> {
        let version = asked.version;
        Ok(match asked.api {
            ApiKey::ApiVersions => Outcome::Answer(asked.answer(&self.api_versions(version))),
            ApiKey::Metadata => plain(asked, &self.metadata(asked, read(asked, body)?)),
            ApiKey::DescribeCluster => plain(asked, &self.describe_cluster(asked, &read(asked, body)?)),
            ApiKey::Produce => self.produce(asked, read(asked, body)?),
            ApiKey::Fetch => self.fetch(asked, read(asked, body)?),
            ApiKey::ListOffsets => plain(asked, &self.list_offsets(asked, read(asked, body)?)),
            ApiKey::OffsetForLeaderEpoch => plain(asked, &self.offset_for_leader_epoch(asked, read(asked, body)?)),
            ApiKey::DescribeProducers => plain(asked, &self.describe_producers(asked, read(asked, body)?)),
            ApiKey::DeleteRecords => plain(asked, &self.delete_records_request(asked, read(asked, body)?)),
            ApiKey::CreateTopics => plain(asked, &self.create_topics(asked, read(asked, body)?)),
            ApiKey::DeleteTopics => plain(asked, &self.delete_topics(asked, read(asked, body)?)),
            ApiKey::CreatePartitions => plain(asked, &self.create_partitions(asked, read(asked, body)?)),
            ApiKey::DescribeConfigs => plain(asked, &self.describe_configs(read(asked, body)?)),
            ApiKey::IncrementalAlterConfigs => plain(asked, &self.alter_configs(read(asked, body)?)),
            ApiKey::FindCoordinator => plain(asked, &self.find_coordinator(asked, &read(asked, body)?)),
            ApiKey::InitProducerId => plain(asked, &self.init_producer_id(asked, &read(asked, body)?)),
            ApiKey::AddPartitionsToTxn => plain(asked, &self.add_partitions_to_txn(asked, read(asked, body)?)),
            ApiKey::EndTxn => plain(asked, &self.end_txn(asked, &read(asked, body)?)),
            ApiKey::WriteTxnMarkers => plain(asked, &self.write_txn_markers(asked, read(asked, body)?)),
            ApiKey::DescribeAcls | ApiKey::CreateAcls => errors::answer(asked, body, ErrorCode::SECURITY_DISABLED),
            _ => self.group_request(asked, body)?,
        })
    }

    fn api_versions(&self, version: i16) -> ApiVersionsResponse {
        let api_keys = self
            .version
            .apis()
            .into_iter()
            .map(|(api, min, max)| {
                ApiVersion::default().with_api_key(api as i16).with_min_version(min).with_max_version(max)
            })
            .collect();
        let response = ApiVersionsResponse::default().with_api_keys(api_keys);
        if version >= 3 { response.with_finalized_features_epoch(0) } else { response }
    }
}

/// The refusal of a group request that waited; only JoinGroup and SyncGroup do, whose refusals name nothing.
pub(super) fn refuse(asked: &Asked, code: ErrorCode) -> Option<Answer> {
    match errors::answer(asked, Bytes::new(), code) {
        Outcome::Answer(answer) => Some(answer),
        _ => None,
    }
}

fn read<R: Decodable + HeaderVersion>(asked: &Asked, body: Bytes) -> Result<R, DecodeError> {
    decode_request(asked.api, asked.version, body)
}

fn plain<R: Encodable + HeaderVersion>(asked: &Asked, response: &R) -> Outcome {
    Outcome::Answer(asked.answer(response))
}
