//! The demo's producer: numbered orders as JSON, compressed, over a connection of its own.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use kafka_protocol::{
    messages::{
        ProduceRequest, TopicName as WireTopicName,
        produce_request::{PartitionProduceData, TopicProduceData},
    },
    protocol::StrBytes,
};
use tokio::time::{Instant, sleep_until};

use crate::{
    batch::{BatchBuilder, Codec, Entry, RecodeError, recoded, walk},
    net::{Connection, DialError, Dialer, RequestError, TcpConnector},
    protocol::{DecodeError, ErrorCode, ProduceResponse, ProduceWriter},
    wall_clock,
};

/// Records of one batch.
const BATCH: u64 = 500;
const TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_MAX: usize = 1 << 20;
/// A batch of the demo is far smaller.
const PLAIN_MAX: usize = 16 << 20;

/// Why records could not be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum WriteError {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error(transparent)]
    Answer(#[from] DecodeError),
    #[error(transparent)]
    Compress(#[from] RecodeError),
    #[error("a batch was refused: {0}")]
    Refused(ErrorCode),
}

/// What was written.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Written {
    pub(super) batches: u64,
    /// Keys, values and headers as a batch holds them.
    pub(super) plain_bytes: u64,
    /// The same compressed.
    pub(super) packed_bytes: u64,
}

/// The producer.
pub(super) struct Orders {
    connection: Connection,
    version: i16,
    topic: &'static str,
    partitions: u64,
}

impl Orders {
    /// Connects to the only broker of a cluster.
    ///
    /// # Errors
    /// If it does not answer.
    pub(super) async fn connect(address: &str, topic: &'static str, partitions: usize) -> Result<Self, WriteError> {
        let connector = Arc::new(TcpConnector { connect_timeout: TIMEOUT });
        let (host, port) = address.rsplit_once(':').unwrap_or((address, ""));
        let dialer = Dialer::new(connector, "demo-producer", TIMEOUT);
        let (connection, _) = dialer.dial(host, port.parse().unwrap_or_default()).await?;
        let version = connection.negotiate::<ProduceRequest>(ProduceWriter::VERSION_MAX)?;
        Ok(Self { connection, version, topic, partitions: u64::try_from(partitions).unwrap_or(1) })
    }

    /// Writes the orders `first..first + count`, `rate` per second, batch by batch around the partitions.
    ///
    /// # Errors
    /// The first batch that is not acknowledged.
    pub(super) async fn write(self, first: u64, count: u64, rate: u64) -> Result<(Self, Written), WriteError> {
        let began = Instant::now();
        let mut written = Written::default();
        let mut at = first;
        // A slow trickle goes in small batches.
        let batch = BATCH.min((rate / 2).max(1));
        while at < first + count {
            let end = (at + batch).min(first + count);
            let due = Duration::from_millis((at - first) * 1000 / rate.max(1));
            sleep_until(began + due).await;
            let records = build(at, end)?;
            written.batches += 1;
            written.plain_bytes += records.plain_bytes;
            written.packed_bytes += u64::try_from(records.batch.len()).unwrap_or(0);
            self.send((at / batch) % self.partitions, records.batch).await?;
            at = end;
        }
        Ok((self, written))
    }

    async fn send(&self, partition: u64, batch: Bytes) -> Result<(), WriteError> {
        let data =
            PartitionProduceData::default().with_index(i32::try_from(partition).unwrap_or(0)).with_records(Some(batch));
        let topic = TopicProduceData::default()
            .with_name(WireTopicName(StrBytes::from_static_str(self.topic)))
            .with_partition_data(vec![data]);
        let request = ProduceRequest::default().with_acks(-1).with_timeout_ms(10_000).with_topic_data(vec![topic]);
        let reply = self.connection.begin(self.version, &request, ANSWER_MAX, TIMEOUT)?.await?;
        let answer = ProduceResponse::decode(reply.body, self.version)?;
        let codes = answer.topics.iter().flat_map(|topic| &topic.partitions).map(|partition| partition.error_code);
        match codes.into_iter().find(|code| !code.is_none()) {
            Some(code) => Err(WriteError::Refused(code)),
            None => Ok(()),
        }
    }
}

struct Packed {
    batch: Bytes,
    plain_bytes: u64,
}

fn build(first: u64, end: u64) -> Result<Packed, RecodeError> {
    let now = wall_clock::now_ms();
    let mut builder = BatchBuilder::new();
    for number in first..end {
        let (key, value) = (format!("order-{number:07}"), order(number, now));
        // A batch of a few hundred short records is far below any limit.
        let _ = builder.push(now, Some(key.as_bytes()), Some(value.as_bytes()), &[("from", Some(b"demo"))]);
    }
    let plain_bytes = u64::try_from(builder.total_size()).unwrap_or(0);
    let plain = builder.build().unwrap_or_default();
    match walk(plain).next() {
        Some(Ok(Entry::Batch(plain))) => {
            Ok(Packed { batch: recoded(&plain, Codec::Zstd, PLAIN_MAX)?.bytes, plain_bytes })
        }
        // Only if no record fitted.
        _ => Err(RecodeError::TooLong),
    }
}

/// One order; what it contains follows from its number.
fn order(number: u64, now_ms: i64) -> String {
    const CITIES: [&str; 8] = ["Utrecht", "Gent", "Bath", "Narbonne", "Lübeck", "Suzhou", "Birmingham", "Ottawa"];
    const GOODS: [&str; 6] = ["coal", "grain", "timber", "tea", "salt", "slate"];
    // Neighbouring numbers shall not look alike.
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let pick = |list: &'static [&'static str], shift: u32| {
        let at = usize::try_from((mixed >> shift) & 0xffff).unwrap_or(0) % list.len();
        list.get(at).copied().unwrap_or_default()
    };
    let (city, good) = (pick(&CITIES, 0), pick(&GOODS, 16));
    let (tons, cents) = ((mixed >> 32) % 500, (mixed >> 40) % 1_000_000);
    format!(
        "{{\"order\":{number},\"at\":{now_ms},\"customer\":\"c-{:05}\",\"city\":\"{city}\",\"good\":\"{good}\",\
         \"tons\":{tons},\"price\":{}.{:02},\"barge\":\"{:016x}\"}}",
        mixed % 20_000,
        cents / 100,
        cents % 100,
        mixed
    )
}
