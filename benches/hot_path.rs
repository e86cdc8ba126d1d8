//! What our own code costs on the path of a batch: walk, verify, seal, beside one pass of the checksum and one copy of the
//! same bytes. Ratios of one run travel between machines; seconds do not.
//!
//! `cargo bench --bench hot_path`

use std::hint::black_box;

use bytes::{Bytes, BytesMut};
use tokio::time::Instant;
use towpath::batch::{BatchBuilder, Entry, ProducerIdentity, crc32c, seal, sequence, walk};

const TOTAL: usize = 8 << 20;
const ROUNDS: usize = 21;

fn main() {
    println!("{:>12} {:>10} {:>22} {:>22}", "batch bytes", "batches", "times one checksum", "times one copy");
    for size in [1 << 10, 16 << 10, 128 << 10, 1 << 20] {
        let records = records(size);
        let batches = walk(records.clone()).count();
        let ours = median(|| hot_path(&records));
        let checksum = median(|| u64::from(crc32c(&records)));
        let mut copy = BytesMut::zeroed(records.len());
        let copying = median(|| {
            copy.copy_from_slice(&records);
            u64::from(black_box(&copy)[0])
        });
        println!("{size:>12} {batches:>10} {:>22.2} {:>22.2}", ours / checksum, ours / copying);
    }
}

/// What happens to every batch between socket and socket, without the sockets.
fn hot_path(records: &Bytes) -> u64 {
    let identity = ProducerIdentity { producer_id: 1 << 62, producer_epoch: 0 };
    let (mut next, mut sum) = (0, 0_u64);
    for entry in walk(records.clone()) {
        let Ok(Entry::Batch(batch)) = entry else { panic!("only whole batches were built") };
        batch.verify_crc().expect("the batches were built whole");
        let head = seal(&batch, identity, next).expect("the batches are plain data");
        next = sequence::advance(next, batch.header.records_count);
        sum = sum.wrapping_add(u64::from(head[20]));
    }
    sum
}

/// Batches of about `size` bytes, together about [`TOTAL`].
fn records(size: usize) -> Bytes {
    let value = vec![b'v'; (size / 8).clamp(100, 1000)];
    let mut all = BytesMut::new();
    while all.len() < TOTAL {
        let mut batch = BatchBuilder::new();
        while batch.total_size() < size {
            batch.push(1_700_000_000_000, None, Some(&value), &[]).expect("it stays below the limits of a batch");
        }
        all.extend_from_slice(&batch.build().expect("it holds records"));
    }
    all.freeze()
}

fn median(mut round: impl FnMut() -> u64) -> f64 {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            black_box(round());
            start.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[ROUNDS / 2]
}
