//! A client in a line: encodes a request, feeds the engine, decodes the answer.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{ApiKey, FetchRequest, ListOffsetsRequest, ProduceRequest};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use tokio::time::Instant;

use crate::batch::{BatchBuilder, BatchHeader, crc32c};
use crate::protocol::{encode_request, split_response};
use crate::testkit::BrokerVersion;
use crate::testkit::engine::{Cluster, ClusterSettings, ConnectionId, Effect};

/// The time of day in tests.
pub(super) const WALL_MS: i64 = 1_700_000_000_000;

pub(super) struct Kit {
    pub(super) cluster: Cluster,
    pub(super) now: Instant,
    pub(super) version: BrokerVersion,
    connection: ConnectionId,
    connections: u64,
}

impl Kit {
    pub(super) fn new(version: BrokerVersion) -> Self {
        Self::with(ClusterSettings::new("kit", WALL_MS).with_version(version))
    }

    pub(super) fn with(settings: ClusterSettings) -> Self {
        let now = Instant::now();
        let version = settings.version;
        let mut kit =
            Self { cluster: Cluster::new(settings, now), now, version, connection: ConnectionId(0), connections: 0 };
        kit.connect(1);
        kit
    }

    /// Another connection; requests go over it from now on.
    pub(super) fn connect(&mut self, node: i32) -> ConnectionId {
        self.connections += 1;
        self.connection = ConnectionId(self.connections);
        self.cluster.handle_opened(self.now, node, self.connection);
        self.connection
    }

    pub(super) fn over(&mut self, connection: ConnectionId) {
        self.connection = connection;
    }

    pub(super) fn newest(&self, api: ApiKey) -> i16 {
        self.version.api_range(api).unwrap().1
    }

    /// Sends without waiting.
    pub(super) fn send<R: Request + Encodable + HeaderVersion>(&mut self, version: i16, request: &R) {
        let frame = encode_request(7, "kit", version, request).unwrap().slice(4..);
        self.cluster.handle_request(self.now, self.connection, frame);
    }

    /// The next answer on any connection; `None` if the engine waits or closed the connection.
    pub(super) fn answer<R: Request>(&mut self, version: i16) -> Option<R::Response> {
        match self.cluster.poll_effect()? {
            Effect::Send { frame, .. } => {
                let length = i32::from_be_bytes(*frame.first_chunk().unwrap());
                assert_eq!(length as usize, frame.len() - 4);
                let api = ApiKey::try_from(R::KEY).unwrap();
                let (correlation, mut body) = split_response(api, version, frame.slice(4..)).unwrap();
                assert_eq!(correlation, 7);
                let response = R::Response::decode(&mut body, version).unwrap();
                assert!(body.is_empty());
                Some(response)
            }
            Effect::Close { .. } => None,
        }
    }

    pub(super) fn ask<R: Request + Encodable + HeaderVersion>(&mut self, version: i16, request: &R) -> R::Response {
        self.send(version, request);
        self.answer::<R>(version).expect("an answer at once")
    }

    pub(super) fn newest_ask<R: Request + Encodable + HeaderVersion>(&mut self, request: &R) -> R::Response {
        let version = self.newest(ApiKey::try_from(R::KEY).unwrap());
        self.ask(version, request)
    }

    pub(super) fn pass(&mut self, duration: Duration) {
        self.now += duration;
        self.cluster.handle_timeout(self.now);
    }

    pub(super) fn topic(&mut self, name: &str, configs: &[(&str, &str)]) {
        self.cluster.create_topic(name, 2, 1, configs).unwrap();
    }

    /// Produces one entry to partition 0 of `t`.
    pub(super) fn produce(&mut self, records: Bytes) -> PartitionProduceResponse {
        let version = self.newest(ApiKey::Produce).min(12);
        self.produce_at(version, None, records)
    }

    pub(super) fn produce_at(
        &mut self,
        version: i16,
        transactional_id: Option<&str>,
        records: Bytes,
    ) -> PartitionProduceResponse {
        let mut request = produce_request(vec![(0, records)]);
        request.transactional_id = transactional_id.map(|id| StrBytes::from_string(id.to_owned()).into());
        let mut response = self.ask(version, &request);
        response.responses.remove(0).partition_responses.remove(0)
    }

    /// Code and base offset.
    pub(super) fn outcome(&mut self, records: Bytes) -> (i16, i64) {
        let answer = self.produce(records);
        (answer.error_code, answer.base_offset)
    }

    pub(super) fn fetch(&mut self, offset: i64) -> PartitionData {
        let mut response = self.ask(12, &fetch_request(&[(0, offset)], 0));
        response.responses.remove(0).partitions.remove(0)
    }

    pub(super) fn list(&mut self, timestamp: i64, replica: i32, isolation: i8) -> (i16, i64) {
        let partition = ListOffsetsPartition::default().with_timestamp(timestamp).with_current_leader_epoch(-1);
        let topic = ListOffsetsTopic::default().with_name(text("t").into()).with_partitions(vec![partition]);
        let request = ListOffsetsRequest::default()
            .with_replica_id(replica.into())
            .with_isolation_level(isolation)
            .with_topics(vec![topic]);
        let mut response = self.ask(6, &request);
        let partition = response.topics.remove(0).partitions.remove(0);
        (partition.error_code, partition.offset)
    }

    pub(super) fn end(&self) -> i64 {
        self.cluster.topic("t").unwrap().partitions[0].end_offset
    }
}

pub(super) fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

pub(super) fn produce_request(entries: Vec<(i32, Bytes)>) -> ProduceRequest {
    let partitions = entries
        .into_iter()
        .map(|(index, records)| PartitionProduceData::default().with_index(index).with_records(Some(records)))
        .collect();
    ProduceRequest::default()
        .with_acks(-1)
        .with_timeout_ms(1000)
        .with_topic_data(vec![TopicProduceData::default().with_name(text("t").into()).with_partition_data(partitions)])
}

/// A sessionless fetch of partitions of `t`.
pub(super) fn fetch_request(partitions: &[(i32, i64)], max_wait_ms: i32) -> FetchRequest {
    let partitions = partitions
        .iter()
        .map(|(index, offset)| {
            FetchPartition::default()
                .with_partition(*index)
                .with_fetch_offset(*offset)
                .with_partition_max_bytes(1 << 20)
                .with_current_leader_epoch(-1)
                .with_last_fetched_epoch(-1)
        })
        .collect();
    FetchRequest::default()
        .with_max_wait_ms(max_wait_ms)
        .with_min_bytes(1)
        .with_max_bytes(1 << 24)
        .with_session_epoch(-1)
        .with_topics(vec![FetchTopic::default().with_topic(text("t").into()).with_partitions(partitions)])
}

/// A batch of `count` small records with keys, now.
pub(super) fn plain(count: usize) -> Bytes {
    dated(count, WALL_MS)
}

pub(super) fn dated(count: usize, timestamp: i64) -> Bytes {
    let mut builder = BatchBuilder::new();
    for at in 0..count {
        builder.push(timestamp, Some(format!("k{at}").as_bytes()), Some(b"value"), &[]).unwrap();
    }
    builder.build().unwrap()
}

pub(super) fn without_key() -> Bytes {
    let mut builder = BatchBuilder::new();
    builder.push(WALL_MS, None, Some(b"value"), &[]).unwrap();
    builder.build().unwrap()
}

/// The batch with another header and a right CRC.
pub(super) fn changed(batch: &Bytes, change: impl FnOnce(&mut BatchHeader)) -> Bytes {
    let mut header = BatchHeader::parse(batch).unwrap();
    change(&mut header);
    let mut bytes = batch.to_vec();
    bytes[..61].copy_from_slice(&header.to_bytes());
    header.crc = crc32c(&bytes[21..]);
    bytes[..61].copy_from_slice(&header.to_bytes());
    bytes.into()
}

/// The batch as written by a producer.
pub(super) fn by(batch: &Bytes, producer_id: i64, epoch: i16, sequence: i32) -> Bytes {
    changed(batch, |header| {
        header.producer_id = producer_id;
        header.producer_epoch = epoch;
        header.base_sequence = sequence;
    })
}
