//! The null target: takes batches, checks length, format and sequence, counts, answers at once.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use serde_json::{Value, json};
use towpath::batch::{BatchHeader, crc32c, sequence};

use crate::{
    Options, cold,
    cold::{Cluster, Log, Shared},
    fields::{Fields, put_varint},
    server::{self, Reply, Request, Session},
};

const PRODUCE: i16 = 0;
const FIRST_VERSION: i16 = 9;
const CORRUPT_MESSAGE: i16 = 2;
const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const OUT_OF_ORDER_SEQUENCE_NUMBER: i16 = 45;
/// Where the part of a batch begins that the checksum covers.
const COVERED_FROM: usize = 21;

pub(crate) fn start(options: &Options) -> Result<Box<dyn Fn() -> Value>, String> {
    let verify = options.flag("verify");
    let cluster = Cluster::named("null-target");
    let shared: Shared = Arc::new(cluster.into());
    let counters = Arc::new(Counters::default());
    let port = {
        let (shared, counters) = (shared.clone(), counters.clone());
        server::listen(move || Produces { shared: shared.clone(), counters: counters.clone(), verify })?
    };
    cold::lock(&shared).port = port;
    println!("{}", json!({"port": port}));
    Ok(Box::new(move || {
        let (first, last) = *counters.span.lock().unwrap_or_else(PoisonError::into_inner);
        let seconds = first.zip(last).map_or(0.0, |(first, last)| last.duration_since(first).as_secs_f64());
        json!({
            "requests": counters.requests.load(Ordering::Relaxed),
            "batches": counters.batches.load(Ordering::Relaxed),
            "bytes": counters.bytes.load(Ordering::Relaxed),
            "refused": counters.refused.load(Ordering::Relaxed),
            "seconds": seconds,
        })
    }))
}

/// Batches without a producer, which are the product's own records, are not counted.
#[derive(Default)]
struct Counters {
    requests: AtomicU64,
    batches: AtomicU64,
    bytes: AtomicU64,
    refused: AtomicU64,
    /// The first and the last request.
    span: Mutex<(Option<Instant>, Option<Instant>)>,
}

struct Produces {
    shared: Shared,
    counters: Arc<Counters>,
    verify: bool,
}

impl Session for Produces {
    fn answer<'a>(&'a mut self, request: &Request<'_>, reply: &mut Reply<'a>) -> Result<(), String> {
        if request.api_key != PRODUCE {
            return cold::answer(&self.shared, request, reply);
        }
        if request.version < FIRST_VERSION {
            return Err(format!("Produce v{}: only flexible versions are read here", request.version));
        }
        self.produce(request, reply).ok_or_else(|| "a Produce request that is too short".to_owned())
    }
}

impl Produces {
    fn produce(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Option<()> {
        let mut fields = Fields(request.body);
        fields.compact()?;
        // acks and timeout.
        fields.take(2 + 4)?;
        let head = &mut reply.head;
        head.extend_from_slice(&request.correlation_id.to_be_bytes());
        head.push(0);
        let topics = fields.length()?;
        put_varint(head, topics + 1);
        let (mut batches, mut bytes) = (0, 0);
        let mut cluster = cold::lock(&self.shared);
        for _ in 0..topics {
            let name = fields.compact()?;
            put_varint(head, name.len() + 1);
            head.extend_from_slice(name);
            let mut topic = std::str::from_utf8(name).ok().and_then(|name| cluster.topics.get_mut(name));
            let partitions = fields.length()?;
            put_varint(head, partitions + 1);
            for _ in 0..partitions {
                let index = fields.i32()?;
                let records = fields.compact()?;
                fields.tags()?;
                let log = topic.as_mut().and_then(|topic| topic.logs.get_mut(usize::try_from(index).ok()?));
                let (code, base) = match log {
                    Some(log) => append(log, records, self.verify),
                    None => (UNKNOWN_TOPIC_OR_PARTITION, -1),
                };
                if code != 0 {
                    self.counters.refused.fetch_add(1, Ordering::Relaxed);
                }
                if BatchHeader::parse(records).is_some_and(|header| header.producer_id >= 0) {
                    batches += 1;
                    bytes += records.len() as u64;
                }
                head.extend_from_slice(&index.to_be_bytes());
                head.extend_from_slice(&code.to_be_bytes());
                head.extend_from_slice(&base.to_be_bytes());
                // No append time; the log starts at 0; no record errors, no text, no tags.
                head.extend_from_slice(&(-1_i64).to_be_bytes());
                head.extend_from_slice(&0_i64.to_be_bytes());
                head.extend_from_slice(&[1, 0, 0]);
            }
            fields.tags()?;
            head.push(0);
        }
        // No throttling, no tags.
        head.extend_from_slice(&[0; 4 + 1]);
        if batches > 0 {
            self.counters.requests.fetch_add(1, Ordering::Relaxed);
            self.counters.batches.fetch_add(batches, Ordering::Relaxed);
            self.counters.bytes.fetch_add(bytes, Ordering::Relaxed);
            let now = now();
            let mut span = self.counters.span.lock().unwrap_or_else(PoisonError::into_inner);
            span.0.get_or_insert(now);
            span.1 = Some(now);
        }
        Some(())
    }
}

#[expect(clippy::disallowed_methods, reason = "a measuring peer has no time given to it")]
fn now() -> Instant {
    Instant::now()
}

/// Takes one batch if it follows the one before.
fn append(log: &mut Log, records: &[u8], verify: bool) -> (i16, i64) {
    let Some(header) = BatchHeader::parse(records) else {
        return (CORRUPT_MESSAGE, -1);
    };
    let dense = header.records_count == header.last_offset_delta.saturating_add(1);
    if header.magic != 2 || header.total_size() != records.len() || !dense {
        return (CORRUPT_MESSAGE, -1);
    }
    if verify && crc32c(&records[COVERED_FROM..]) != header.crc {
        return (CORRUPT_MESSAGE, -1);
    }
    if header.producer_id >= 0 {
        if let Some((id, _, last)) = log.producer
            && (id != header.producer_id || sequence::advance(last, 1) != header.base_sequence)
        {
            return (OUT_OF_ORDER_SEQUENCE_NUMBER, -1);
        }
        let last = sequence::advance(header.base_sequence, header.last_offset_delta);
        log.producer = Some((header.producer_id, header.producer_epoch, last));
    }
    let base = log.end;
    log.end += i64::from(header.records_count);
    (0, base)
}
