//! `towpath demo`: two embedded Kafka clusters, traffic, the mirror, a kill -9 in the middle, and a comparison.
//!
//! The clusters live in this process, on real sockets, so that any Kafka client can look at them. The mirror is this
//! same program in a process of its own, so that killing it hard means what it says. Everything on disk is in one
//! temporary directory that is removed at the end.

mod compare;
mod mirror;
mod orders;
mod site;

use std::{fmt::Write as _, io, io::Write as _, time::Duration};

use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
    task::LocalSet,
    time::{Instant, sleep},
};
use tracing::error;

use self::{
    compare::Comparison,
    mirror::MirrorProcess,
    orders::{Orders, Written},
    site::Site,
};
use super::Exit;
use crate::os_error::Reason;

/// The topic on the source, and its copy as MirrorMaker names it.
const TOPIC: &str = "orders";
const COPY: &str = "east.orders";
const PARTITIONS: usize = 4;
/// Both clusters hold them in memory.
const RECORDS_MAX: u64 = 1_000_000;
/// The writer takes about this long, so that there is something to interrupt.
const WRITING: Duration = Duration::from_secs(6);
/// The mirror is killed when this share of the records is copied, in percent.
const KILL_AT: u64 = 40;
/// Nothing in the demo takes this long on any machine it is meant for.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);
/// With `--keep`: records per second, and for how long.
const TRICKLE: u64 = 100;
const TRICKLE_RECORDS: u64 = 360_000;

#[derive(Debug, clap::Args)]
pub(super) struct DemoArguments {
    /// Go on afterwards: the clusters, a trickle of records and the mirror stay until Ctrl-C, for a look with kcat or
    /// any other client.
    #[arg(long)]
    keep: bool,
    /// Records to write.
    #[arg(long, default_value_t = 300_000, value_parser = clap::value_parser!(u64).range(1_000..=RECORDS_MAX))]
    records: u64,
}

/// Why the demo did not get to its end.
#[derive(Debug, thiserror::Error)]
enum DemoError {
    #[error("an embedded cluster cannot be started: {}", Reason(.0))]
    Site(#[from] io::Error),
    #[error("the source cannot be written: {0}")]
    Write(#[from] orders::WriteError),
    #[error("{0}")]
    Mirror(#[from] mirror::MirrorError),
    #[error("after {} s the mirror has copied {copied} of {wanted} records; what it said last:\n{said}", PATIENCE.as_secs())]
    Slow { copied: u64, wanted: u64, said: String },
    #[error("stopped")]
    Stopped,
}

/// Runs the demo. Exit code 0 only if every record was found.
pub(super) fn run(arguments: &DemoArguments) -> Exit {
    let runtime = match runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            error!(%error, "no runtime");
            return Exit::Internal;
        }
    };
    let outcome = LocalSet::new().block_on(&runtime, async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            outcome = show(arguments) => outcome,
            _ = interrupt.recv() => Err(DemoError::Stopped),
            _ = terminate.recv() => Err(DemoError::Stopped),
        }
    });
    match outcome {
        Ok(true) | Err(DemoError::Stopped) => Exit::Done,
        Ok(false) => Exit::NotCopied,
        Err(error) => {
            error!(%error, "the demo broke off");
            Exit::CannotStart
        }
    }
}

async fn show(arguments: &DemoArguments) -> Result<bool, DemoError> {
    let began = Instant::now();
    let records = arguments.records;
    let (east, west) = (Site::start("east").await?, Site::start("west").await?);
    east.create_topic(TOPIC, PARTITIONS).await;
    say(format_args!("Two Kafka clusters in this process, on real sockets:"));
    say(format_args!("  east  {:<16} the source, with the topic {TOPIC} ({PARTITIONS} partitions)", east.address()));
    say(format_args!("  west  {:<16} the target, empty", west.address()));
    say(format_args!(""));

    let mut mirror = MirrorProcess::prepare(east.address(), west.address())?;
    say(format_args!("1. A producer writes {} orders (JSON, zstd) to east.", grouped(records)));
    let orders = Orders::connect(east.address(), TOPIC, PARTITIONS).await?;
    let rate = records / WRITING.as_secs();
    let writing = tokio::task::spawn_local(orders.write(0, records, rate));
    mirror.start()?;
    say(format_args!("2. `towpath run` copies east to west with MirrorMaker's kind of file:"));
    for line in mirror.file().lines() {
        say(format_args!("     {line}"));
    }

    let at_kill = copied(&west, &mut mirror, records * KILL_AT / 100).await?;
    mirror.kill()?;
    say(format_args!("3. kill -9: the mirror dies with {} records copied; the producer goes on.", grouped(at_kill)));
    sleep(Duration::from_millis(700)).await;

    let again = Instant::now();
    mirror.start()?;
    copied(&west, &mut mirror, at_kill + 1).await?;
    let resumed_ms = again.elapsed().as_millis();
    say(format_args!("4. Started again: {resumed_ms} ms later the next records are on west."));

    let (orders, written) = writing.await.map_err(|_| DemoError::Stopped)??;
    copied(&west, &mut mirror, records).await?;
    say(format_args!("5. Everything is copied; comparing what both clusters hold, record by record."));
    let comparison = compare::compare(east.contents(TOPIC).await, west.contents(COPY).await);
    let usage = mirror.usage();
    let is_equal = comparison.is_equal(records);
    say(format_args!(""));
    summary(&written, &comparison, usage, records);
    say(format_args!(""));
    if is_equal {
        say(format_args!(
            "Every record is on west once, in order, unchanged. ({:.1} s)",
            began.elapsed().as_secs_f64()
        ));
    } else {
        say(format_args!("THE COPY IS NOT EQUAL: please report this with the figures above."));
    }
    if arguments.keep {
        keep(&east, &west, orders, records, &mut mirror).await?;
    }
    mirror.stop().await;
    Ok(is_equal)
}

/// Waits until west holds `wanted` records of the copy, and says how many it holds.
async fn copied(west: &Site, mirror: &mut MirrorProcess, wanted: u64) -> Result<u64, DemoError> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let copied = west.records(COPY).await;
        if copied >= wanted {
            return Ok(copied);
        }
        mirror.check()?;
        if Instant::now() >= deadline {
            return Err(DemoError::Slow { copied, wanted, said: mirror.said() });
        }
        sleep(LOOK).await;
    }
}

fn summary(written: &Written, seen: &Comparison, usage: Option<mirror::Usage>, records: u64) {
    let megabytes = |bytes: u64| {
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let bytes = bytes as f64;
        format!("{:.1} MB", bytes / 1e6)
    };
    let row = |label: &str, value: String| say(format_args!("  {label:<45} {value}"));
    say(format_args!("What was seen"));
    row("records written to east", grouped(records));
    row("  as JSON, and compressed in batches", {
        let (plain, packed) = (megabytes(written.plain_bytes), megabytes(written.packed_bytes));
        format!("{plain}, {packed} in {} batches", grouped(written.batches))
    });
    row("records found on west", grouped(seen.found));
    row("lost, twice, out of order, changed", {
        format!("{}, {}, {}, {}", seen.lost, seen.twice, seen.out_of_order, seen.changed)
    });
    row("batches that arrived as they were compressed", {
        format!("{} of {}", grouped(seen.identical_batches), grouped(seen.batches))
    });
    if let Some(usage) = usage {
        row("processor time of the mirror, both runs", format!("{:.2} s", usage.cpu.as_secs_f64()));
        row("memory of the mirror at most", megabytes(usage.peak_bytes));
    }
}

async fn keep(
    east: &Site,
    west: &Site,
    orders: Orders,
    records: u64,
    mirror: &mut MirrorProcess,
) -> Result<(), DemoError> {
    say(format_args!(""));
    say(format_args!("Kept running, with {TRICKLE} records a second. Look at it from another terminal:"));
    say(format_args!("  kcat -b {} -L", west.address()));
    say(format_args!("  kcat -b {} -C -t {COPY} -o end -q", west.address()));
    say(format_args!("  kcat -b {} -C -t {TOPIC} -o -5 -e -q", east.address()));
    say(format_args!("Ctrl-C ends everything and leaves nothing behind."));
    let writing = tokio::task::spawn_local(orders.write(records, TRICKLE_RECORDS, TRICKLE));
    let mut writing = Some(writing);
    loop {
        mirror.check()?;
        if writing.as_ref().is_some_and(tokio::task::JoinHandle::is_finished)
            && let Some(done) = writing.take()
        {
            done.await.map_err(|_| DemoError::Stopped)??;
            say(format_args!("The trickle has ended after {} records; the clusters stay.", grouped(TRICKLE_RECORDS)));
        }
        sleep(Duration::from_secs(1)).await;
    }
}

/// A line of the result. Whoever reads it may have gone.
fn say(line: std::fmt::Arguments<'_>) {
    let mut text = String::new();
    let _ = writeln!(text, "{line}");
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes());
    let _ = stdout.flush();
}

fn grouped(number: u64) -> String {
    super::panel::grouped(number)
}
