//! The null source: one topic whose batches are prepared once and sent again and again with other base offsets.
//!
//! It keeps a fetch session as a broker does: what is asked for stays asked for until it is told anew or forgotten, and
//! partitions that sent data go to the end of the order. Only whole batches are sent, at least one an answer.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use towpath::batch::{BatchBuilder, HEADER_LEN};
use uuid::Uuid;

use crate::{
    Options, cold,
    cold::{Cluster, Shared},
    fields::{Fields, put_varint},
    server::{self, Reply, Request, Session},
};

const FETCH: i16 = 1;
/// The form of the message that is read and written here: topics by id.
const FIRST_VERSION: i16 = 13;
const SESSION_ID: i32 = 1;
const RECORDS: usize = 8;
/// Below this a batch is copied into the answer; above it is a slice of its own in the vectored write.
const COPY_BELOW: usize = 4096;
/// The time of the records. Far in the future of any run, so that no batch counts as old (the window would be one).
const TIMESTAMP: i64 = 4_000_000_000_000;

pub(crate) fn start(options: &Options) -> Result<Box<dyn Fn() -> Value>, String> {
    let size = usize::try_from(options.number("batch", 16 << 10)?).map_err(|error| error.to_string())?;
    let partitions = usize::try_from(options.number("partitions", 8)?).map_err(|error| error.to_string())?;
    let batch = prepared(size)?;
    let total = options.number("bytes", 1_000_000_000)?;
    let each = (total / batch.len() as u64 / partitions.max(1) as u64).max(1);
    let end = i64::try_from(each * RECORDS as u64).map_err(|error| error.to_string())?;
    let mut cluster = Cluster::named("null-source");
    let topic = cluster.create("bench", partitions, end);
    let shared: Shared = Arc::new(cluster.into());
    let counters = Arc::new(Counters::default());
    let plan = Arc::new(Plan { batch, topic, end, partitions });
    let make = {
        let (shared, counters, plan) = (shared.clone(), counters.clone(), plan.clone());
        move || Fetches {
            shared: shared.clone(),
            counters: counters.clone(),
            plan: plan.clone(),
            wanted: vec![None; plan.partitions],
            order: VecDeque::new(),
        }
    };
    let port = server::listen(make)?;
    cold::lock(&shared).port = port;
    let (batch_bytes, batches) = (plan.batch.len(), each * partitions as u64);
    println!("{}", json!({"port": port, "batch_bytes": batch_bytes, "batches": batches, "records": RECORDS}));
    Ok(Box::new(move || {
        json!({
            "responses": counters.responses.load(Ordering::Relaxed),
            "empty": counters.empty.load(Ordering::Relaxed),
            "batches": counters.batches.load(Ordering::Relaxed),
        })
    }))
}

#[derive(Default)]
struct Counters {
    responses: AtomicU64,
    empty: AtomicU64,
    batches: AtomicU64,
}

struct Plan {
    batch: Vec<u8>,
    topic: Uuid,
    /// The end of each partition's log.
    end: i64,
    partitions: usize,
}

/// A whole valid batch of about so many bytes, and not more.
fn prepared(size: usize) -> Result<Vec<u8>, String> {
    // Lengths and deltas of a record take less than 16 bytes.
    let value = (size.saturating_sub(HEADER_LEN) / RECORDS).saturating_sub(16);
    let mut builder = BatchBuilder::new();
    for record in 0..RECORDS {
        let byte = |at: usize| (at + record).wrapping_mul(2_654_435_761).to_le_bytes()[2];
        let bytes: Vec<u8> = (0..value).map(byte).collect();
        builder.push(TIMESTAMP, None, Some(&bytes), &[]).map_err(|error| error.to_string())?;
    }
    Ok(builder.build().ok_or("an empty batch")?.to_vec())
}

/// The session of one connection.
struct Fetches {
    shared: Shared,
    counters: Arc<Counters>,
    plan: Arc<Plan>,
    /// Offset and limit in bytes, by partition.
    wanted: Vec<Option<(i64, usize)>>,
    order: VecDeque<usize>,
}

struct Limits {
    wait: Duration,
    bytes: usize,
    /// A new session, or none: every partition is answered.
    full: bool,
}

impl Session for Fetches {
    fn answer<'a>(&'a mut self, request: &Request<'_>, reply: &mut Reply<'a>) -> Result<(), String> {
        if request.api_key != FETCH {
            return cold::answer(&self.shared, request, reply);
        }
        if request.version < FIRST_VERSION {
            return Err(format!("Fetch v{}: the source is read by topic id", request.version));
        }
        let limits = self.take_wants(request.body).ok_or("a Fetch request that is too short")?;
        if !self.has_data() && !limits.full {
            // Nothing will come: the log is complete from the start.
            thread::park_timeout(limits.wait);
        }
        self.write(request.correlation_id, &limits, reply);
        Ok(())
    }
}

impl Fetches {
    fn take_wants(&mut self, body: &[u8]) -> Option<Limits> {
        let mut fields = Fields(body);
        let wait = fields.i32()?;
        let _min_bytes = fields.i32()?;
        let bytes = fields.i32()?;
        fields.take(1)?;
        let (session, epoch) = (fields.i32()?, fields.i32()?);
        let full = session == 0 || epoch <= 0;
        if full {
            self.wanted.fill(None);
            self.order.clear();
        }
        for _ in 0..fields.length()? {
            fields.take(16)?;
            for _ in 0..fields.length()? {
                let index = usize::try_from(fields.i32()?).ok()?;
                fields.i32()?;
                let offset = fields.i64()?;
                fields.take(4 + 8)?;
                let limit = usize::try_from(fields.i32()?).ok()?;
                fields.tags()?;
                let slot = self.wanted.get_mut(index)?;
                if slot.replace((offset, limit)).is_none() {
                    self.order.push_back(index);
                }
            }
            fields.tags()?;
        }
        for _ in 0..fields.length()? {
            fields.take(16)?;
            for _ in 0..fields.length()? {
                let index = usize::try_from(fields.i32()?).ok()?;
                *self.wanted.get_mut(index)? = None;
                self.order.retain(|one| *one != index);
            }
            fields.tags()?;
        }
        let wait = Duration::from_millis(u64::try_from(wait).ok()?);
        Some(Limits { wait, bytes: usize::try_from(bytes).ok()?, full })
    }

    fn has_data(&self) -> bool {
        self.wanted.iter().flatten().any(|(offset, _)| *offset < self.plan.end)
    }

    fn write<'a>(&'a mut self, correlation_id: i32, limits: &Limits, reply: &mut Reply<'a>) {
        let mut chosen: Vec<(usize, i64, usize)> = Vec::new();
        let mut left = limits.bytes;
        let size = self.plan.batch.len();
        let records = i64::try_from(RECORDS).expect("a small constant");
        for _ in 0..self.order.len() {
            let Some(index) = self.order.pop_front() else { break };
            self.order.push_back(index);
            let Some((offset, limit)) = self.wanted.get(index).copied().flatten() else { continue };
            let there = usize::try_from((self.plan.end - offset).max(0) / records).unwrap_or(0);
            // The first batch of an answer comes whole whatever the limits, as a broker has it; of the others only what
            // fits, where a broker may add a cut one.
            let room = limit.min(left) / size;
            let first = usize::from(chosen.iter().all(|(_, _, count)| *count == 0));
            let count = room.max(first).min(there);
            if count > 0 || limits.full {
                chosen.push((index, offset, count));
                left = left.saturating_sub(count * size);
            }
            if left < size && !limits.full {
                break;
            }
        }
        let batches: usize = chosen.iter().map(|(_, _, count)| count).sum();
        self.counters.responses.fetch_add(1, Ordering::Relaxed);
        self.counters.empty.fetch_add(u64::from(batches == 0), Ordering::Relaxed);
        self.counters.batches.fetch_add(batches as u64, Ordering::Relaxed);
        let head = &mut reply.head;
        head.extend_from_slice(&correlation_id.to_be_bytes());
        // No tags in the header, no throttling, no error.
        head.extend_from_slice(&[0; 1 + 4 + 2]);
        head.extend_from_slice(&SESSION_ID.to_be_bytes());
        if chosen.is_empty() {
            head.extend_from_slice(&[1, 0]);
            return;
        }
        put_varint(head, 2);
        head.extend_from_slice(self.plan.topic.as_bytes());
        put_varint(head, chosen.len() + 1);
        for (index, offset, count) in chosen {
            let index = i32::try_from(index).expect("partitions are counted in 32 bits");
            head.extend_from_slice(&index.to_be_bytes());
            head.extend_from_slice(&0_i16.to_be_bytes());
            head.extend_from_slice(&self.plan.end.to_be_bytes());
            head.extend_from_slice(&self.plan.end.to_be_bytes());
            head.extend_from_slice(&0_i64.to_be_bytes());
            // No aborted transactions, no other replica.
            head.push(1);
            head.extend_from_slice(&(-1_i32).to_be_bytes());
            put_varint(head, count * size + 1);
            for number in 0..count {
                let base = offset + records * i64::try_from(number).expect("a few batches");
                head.extend_from_slice(&base.to_be_bytes());
                let rest = &self.plan.batch[8..];
                if size < COPY_BELOW {
                    head.extend_from_slice(rest);
                } else {
                    reply.payloads.push((head.len(), rest));
                }
            }
            head.push(0);
        }
        head.extend_from_slice(&[0, 0]);
    }
}
