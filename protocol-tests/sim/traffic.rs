//! Producers of a simulated source: plain, idempotent and transactional ones, over streams that faults spare.

use std::{rc::Rc, sync::Arc, time::Duration};

use bytes::Bytes;
use kafka_protocol::{
    messages::{
        AddPartitionsToTxnRequest, EndTxnRequest, InitProducerIdRequest, ProduceRequest,
        add_partitions_to_txn_request::AddPartitionsToTxnTopic,
        produce_request::{PartitionProduceData, TopicProduceData},
    },
    protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes},
};
use tokio::time::{Instant, sleep};
use towpath::{
    batch::{BatchBuilder, BatchHeader, Codec, Entry, HEADER_LEN, crc32c, recoded, walk},
    net::{Connection, Dialer},
    protocol::ErrorCode,
};

use super::{
    network::{Gate, Owner},
    random::Random,
    schedule::{Style, TopicPlan},
    world::{Site, WALL_MS},
};

const TIMEOUT: Duration = Duration::from_secs(5);
/// A source that is down comes back long before.
const ATTEMPTS: usize = 4000;
const PAUSE: Duration = Duration::from_millis(50);
const OLD_WALL_MS: i64 = 1_550_000_000_000;

/// Writes all that a plan says.
pub(super) async fn write(site: Rc<Site>, plan: TopicPlan, seed: u64) {
    let dialer = Dialer::new(site.network.connector(Owner::Spared, Arc::new(Gate::default())), "producer", TIMEOUT);
    let random = Random::new(seed);
    let mut producer = Producer {
        site,
        plan,
        dialer,
        random,
        identity: None,
        sequences: Vec::new(),
        number: 0,
        link: None,
        trouble: String::new(),
    };
    producer.run().await;
}

struct Producer {
    site: Rc<Site>,
    plan: TopicPlan,
    dialer: Dialer,
    random: Random,
    identity: Option<(i64, i16)>,
    /// Next sequence of each partition.
    sequences: Vec<i32>,
    number: u64,
    link: Option<(i32, Connection)>,
    /// Why the last dial failed.
    trouble: String,
}

impl Producer {
    async fn run(&mut self) {
        self.sequences = vec![0; self.plan.partitions];
        if self.plan.style != Style::Plain {
            self.initialize().await;
        }
        let mut left = self.plan.batches;
        while left > 0 {
            let transactional = self.plan.style == Style::Transactional;
            let count = if transactional { self.random.within(1, 6).min(left) } else { 1 };
            left -= count;
            let mut joined = Vec::new();
            let mut alive = true;
            for _ in 0..count {
                if !self.plan.pause.is_zero() {
                    let pause = self.plan.pause.as_micros() as u64;
                    sleep(Duration::from_micros(pause / 2 + self.random.below(pause))).await;
                }
                let partition = self.random.below(self.plan.partitions as u64) as i32;
                if transactional && !joined.contains(&partition) {
                    joined.push(partition);
                    alive = alive && self.join(partition).await;
                }
                // A transaction that its coordinator gave up is over; what it wrote is aborted.
                alive = alive && self.produce(partition).await;
            }
            if transactional {
                if self.random.one_in(6) {
                    // Open for a while: the last stable offset stands.
                    sleep(Duration::from_millis(self.random.below(4_000))).await;
                }
                let commit = !self.random.one_in(4);
                if !alive || !self.end(commit).await {
                    self.initialize().await;
                }
            }
        }
    }

    fn transactional_id(&self) -> StrBytes {
        StrBytes::from_string(format!("{}-writer", self.plan.name))
    }

    /// A connection to a node, kept.
    async fn connection(&mut self, node: i32) -> Option<Connection> {
        if let Some((at, link)) = &self.link
            && *at == node
            && !link.is_ended()
        {
            return Some(link.clone());
        }
        self.link = None;
        match self.dialer.dial(&self.site.host(node), 9092).await {
            Ok((connection, _)) => {
                self.link = Some((node, connection.clone()));
                Some(connection)
            }
            Err(error) => {
                self.trouble = error.to_string();
                None
            }
        }
    }

    async fn initialize(&mut self) {
        let mut last = String::new();
        for _ in 0..ATTEMPTS {
            let mut request =
                InitProducerIdRequest::default().with_transactional_id(None).with_transaction_timeout_ms(60_000);
            let node = if self.plan.style == Style::Transactional {
                request.transactional_id = Some(self.transactional_id().into());
                self.site.coordinator(&self.transactional_id())
            } else {
                self.site.any_node()
            };
            if let Some(node) = node
                && let Some(connection) = self.connection(node).await
            {
                match ask(&connection, 3, &request).await {
                    Ok(answer) if answer.error_code == 0 => {
                        self.identity = Some((answer.producer_id.0, answer.producer_epoch));
                        self.sequences.fill(0);
                        return;
                    }
                    Ok(answer) => last = ErrorCode(answer.error_code).to_string(),
                    Err(error) => last = error,
                }
            }
            sleep(PAUSE).await;
        }
        panic!("the source gave no producer id: {last}");
    }

    /// Adds a partition to the transaction; false if it is over.
    async fn join(&mut self, partition: i32) -> bool {
        let Some((id, epoch)) = self.identity else { return false };
        let mut last = String::new();
        for _ in 0..ATTEMPTS {
            let topic = AddPartitionsToTxnTopic::default()
                .with_name(StrBytes::from_string(self.plan.name.clone()).into())
                .with_partitions(vec![partition]);
            let request = AddPartitionsToTxnRequest::default()
                .with_v3_and_below_transactional_id(self.transactional_id().into())
                .with_v3_and_below_producer_id(id.into())
                .with_v3_and_below_producer_epoch(epoch)
                .with_v3_and_below_topics(vec![topic]);
            if let Some(node) = self.site.coordinator(&self.transactional_id())
                && let Some(connection) = self.connection(node).await
                && let Ok(answer) = ask(&connection, 3, &request).await
            {
                let results = answer.results_by_topic_v3_and_below.iter();
                let code =
                    results.flat_map(|topic| &topic.results_by_partition).map(|one| one.partition_error_code).next();
                match ErrorCode(code.unwrap_or(-1)) {
                    ErrorCode::NONE => return true,
                    ErrorCode::PRODUCER_FENCED
                    | ErrorCode::INVALID_PRODUCER_EPOCH
                    | ErrorCode::INVALID_PRODUCER_ID_MAPPING => {
                        return false;
                    }
                    code => last = code.to_string(),
                }
            }
            sleep(PAUSE).await;
        }
        panic!("a partition could not be added to a transaction: {last}; {}", self.trouble);
    }

    /// Ends the transaction; false if it was ended by somebody else.
    async fn end(&mut self, commit: bool) -> bool {
        let Some((id, epoch)) = self.identity else { return false };
        for _ in 0..ATTEMPTS {
            let request = EndTxnRequest::default()
                .with_transactional_id(self.transactional_id().into())
                .with_producer_id(id.into())
                .with_producer_epoch(epoch)
                .with_committed(commit);
            if let Some(node) = self.site.coordinator(&self.transactional_id())
                && let Some(connection) = self.connection(node).await
                && let Ok(answer) = ask(&connection, 3, &request).await
            {
                match ErrorCode(answer.error_code) {
                    ErrorCode::NONE => return true,
                    ErrorCode::CONCURRENT_TRANSACTIONS | ErrorCode::NOT_COORDINATOR => {}
                    _ => return false,
                }
            }
            sleep(PAUSE).await;
        }
        panic!("a transaction could not be ended");
    }

    /// Writes one batch; false if the transaction is over.
    async fn produce(&mut self, partition: i32) -> bool {
        let mut last = String::new();
        let count = self.random.within(1, self.plan.records_max);
        let mut batch = self.batch(partition, count);
        for attempt in 0..ATTEMPTS {
            if attempt > 0 && self.plan.style == Style::Plain {
                // The first one may be in the log: equal records could not be told apart.
                batch = self.batch(partition, count);
            }
            let data = PartitionProduceData::default().with_index(partition).with_records(Some(batch.clone()));
            let topic = TopicProduceData::default()
                .with_name(StrBytes::from_string(self.plan.name.clone()).into())
                .with_partition_data(vec![data]);
            let mut request =
                ProduceRequest::default().with_acks(-1).with_timeout_ms(5_000).with_topic_data(vec![topic]);
            if self.plan.style == Style::Transactional {
                request.transactional_id = Some(self.transactional_id().into());
            }
            if let Some(node) = self.site.leader(&self.plan.name, partition)
                && let Some(connection) = self.connection(node).await
            {
                let answer = match ask(&connection, 9, &request).await {
                    Ok(answer) => answer,
                    Err(error) => {
                        last = error;
                        sleep(PAUSE).await;
                        continue;
                    }
                };
                let code = answer
                    .responses
                    .iter()
                    .flat_map(|topic| &topic.partition_responses)
                    .map(|one| one.error_code)
                    .next();
                match ErrorCode(code.unwrap_or(-1)) {
                    ErrorCode::NONE | ErrorCode::DUPLICATE_SEQUENCE_NUMBER => {
                        self.sequences[partition as usize] += count as i32;
                        return true;
                    }
                    ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER
                    | ErrorCode::UNKNOWN_PRODUCER_ID
                    | ErrorCode::INVALID_PRODUCER_EPOCH
                    | ErrorCode::INVALID_TXN_STATE
                    | ErrorCode::PRODUCER_FENCED => {
                        // The broker forgot us, or gave the transaction up.
                        if self.plan.style != Style::Transactional {
                            self.initialize().await;
                        }
                        return false;
                    }
                    code => last = code.to_string(),
                }
            }
            sleep(PAUSE).await;
        }
        panic!("a batch could not be written: {last}; {}", self.trouble);
    }

    fn batch(&mut self, partition: i32, count: u64) -> Bytes {
        let passed = Instant::now().duration_since(self.site.began).as_millis() as i64;
        let time = if self.plan.old { OLD_WALL_MS } else { WALL_MS } + passed;
        let mut builder = BatchBuilder::new();
        for _ in 0..count {
            self.number += 1;
            let key = if self.plan.compacted {
                Some(format!("k{}", self.random.below(12)))
            } else if self.random.one_in(5) {
                None
            } else {
                Some(format!("k{}", self.number))
            };
            let length = self.random.below(self.plan.value_max) as usize;
            let value = format!("{}-{partition}-{}-{}", self.plan.name, self.number, "x".repeat(length));
            let null = self.plan.compacted && self.random.one_in(15);
            let value = (!null).then_some(value.as_bytes());
            let headers: &[(&str, Option<&[u8]>)] =
                if self.random.one_in(4) { &[("h", Some(b"1")), ("h", None)] } else { &[] };
            builder
                .push(time - self.random.below(50) as i64, key.as_deref().map(str::as_bytes), value, headers)
                .expect("it is small");
        }
        let plain = builder.build().expect("there are records");
        let Some(Ok(Entry::Batch(plain))) = walk(plain).next() else { panic!("our own batch cannot be read") };
        let packed = if self.plan.codec == Codec::None {
            plain
        } else {
            recoded(&plain, self.plan.codec, 1 << 20).expect("it is small")
        };
        let mut header = packed.header;
        if let Some((id, epoch)) = self.identity {
            (header.producer_id, header.producer_epoch) = (id, epoch);
            header.base_sequence = self.sequences[partition as usize];
        }
        if self.plan.style == Style::Transactional {
            header.attributes |= 0x10;
        }
        stamped(header, &packed.bytes)
    }
}

/// One request, decoded without the mirror's own checks: it knows no answers of producers' requests.
async fn ask<R>(connection: &Connection, version: i16, request: &R) -> Result<R::Response, String>
where
    R: Request + Encodable + HeaderVersion,
    R::Response: Decodable,
{
    let answer = connection.begin(version, request, 1 << 20, TIMEOUT).map_err(|error| error.to_string())?;
    let mut reply = answer.await.map_err(|error| error.to_string())?;
    R::Response::decode(&mut reply.body, version).map_err(|error| error.to_string())
}

/// The batch under another header, with the checksum that belongs to it.
pub(super) fn stamped(mut header: BatchHeader, batch: &[u8]) -> Bytes {
    let mut bytes = batch.to_vec();
    bytes[..HEADER_LEN].copy_from_slice(&header.to_bytes());
    header.crc = crc32c(&bytes[21..]);
    bytes[..HEADER_LEN].copy_from_slice(&header.to_bytes());
    bytes.into()
}
