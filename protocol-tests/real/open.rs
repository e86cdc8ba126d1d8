//! The open path: what the target would refuse as it is arrives all the same, record by record for Java's consumer.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::kafka::Cluster;
use super::pair::{Pair, stop};
use super::program::{Outcome, run};

const SOON: Duration = Duration::from_secs(30);
/// A stopped partition is tried again every thirty seconds.
const AFTER_A_RETRY: Duration = Duration::from_secs(50);
const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];

/// The numbers and everything else but whose clock a time is of: records of format 0 have none, and what the source's
/// broker stamped is a record's own time on the target.
const WITHOUT_TIME_TYPE: &[&str] = &["--numbered", "--any-time-type"];

/// The value of a `key=value` word in the line that sums a flow up.
fn summed(outcome: &Outcome, key: &str) -> u64 {
    let line = outcome.stderr.lines().rfind(|line| line.contains("copied in all"));
    let start = format!("{key}=");
    let word = line.and_then(|line| line.split_whitespace().find_map(|word| word.strip_prefix(&start)));
    word.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no {key} in the sum: {outcome}"))
}

fn not_copied<'a>(outcome: &'a Outcome, what: &str) -> &'a str {
    let start = format!("not copied: {what}: ");
    let found = outcome.stdout.lines().find_map(|line| line.strip_prefix(&start));
    found.unwrap_or_else(|| panic!("{what} is not named: {outcome}"))
}

/// One record per file, by librdkafka.
fn produce_files(cluster: &Cluster, topic: &str, codec: &str, records: &[Vec<u8>]) {
    let dir = tempfile::tempdir().expect("the system has room for a directory");
    let mut command = Command::new("kcat");
    command.args(["-P", "-b", &cluster.bootstrap, "-t", topic, "-p", "0", "-z", codec]);
    command.args(["-X", "message.max.bytes=20000000", "-X", "linger.ms=200"]).stdin(Stdio::null());
    for (number, record) in records.iter().enumerate() {
        let path = dir.path().join(number.to_string());
        std::fs::write(&path, record).expect("the directory is ours");
        command.arg(path);
    }
    run(command, SOON).expect_success();
}

/// Bytes that no codec makes smaller.
fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    std::iter::repeat_with(step).take(length).collect()
}

#[test]
#[ignore = "needs real Kafka: run dev/test"]
fn real_topics_that_were_cleaned_many_times_arrive_exactly() {
    let pair = Pair::start_with("4.3.1", "4.3.1", &["log.cleaner.backoff.ms=100", "log.cleaner.threads=2"]);
    let compacted = ["cleanup.policy=compact", "segment.bytes=1048576", "min.cleanable.dirty.ratio=0.01"];
    pair.source.create_topic("thin", 1, &compacted);
    // One codec after the other; each load makes a few segments, and the cleaner goes over all that lie before.
    for (round, codec) in (0_u64..).zip(CODECS) {
        let first = (round * 30_000).to_string();
        pair.source.load(
            "thin",
            30_000,
            &["--partitions", "1", "--codec", codec, "--first", &first, "--batch", "8000"],
        );
    }
    let end = Instant::now() + Duration::from_secs(60);
    while !pair.source.is_thinned("thin") {
        assert!(Instant::now() < end, "it was not compacted");
        std::thread::sleep(Duration::from_millis(300));
    }
    // Nothing may change between the copy and the comparison.
    pair.source.alter_topic("thin", "cleanup.policy=delete");
    std::thread::sleep(Duration::from_secs(2));

    let said = pair.copy(&["A->B.topics = thin"]).expect_success();

    let opened = summed(&said, "opened_batches");
    assert!(opened > 100 && opened < summed(&said, "batches"), "{said}");
    assert!(said.stderr.contains("thinned opened ("), "{said}");
    let source = pair.source.digest("thin");
    assert!(source.records < 150_000);
    assert_eq!(pair.target.digest("A.thin"), source);
    assert_eq!(pair.target.digest_kcat("A.thin"), pair.source.digest_kcat("thin"));
}

#[test]
#[ignore = "needs real Kafka: run dev/test"]
fn real_records_of_ten_megabytes_arrive() {
    let pair = Pair::start("4.3.1", "4.3.1");
    pair.source.create_topic("big", 1, &["max.message.bytes=11000000"]);
    let even: Vec<u8> = b"an even text, ".iter().copied().cycle().take(10_000_000).collect();
    let records = [noise(10_000_000, 1), even, noise(5_000_000, 2), b"small".to_vec(), noise(10_000_000, 3)];
    produce_files(&pair.source, "big", "lz4", &records);

    pair.copy(&["A->B.topics = big"]).expect_success();

    let copied = pair.target.digest("A.big");
    assert_eq!(copied.records, 5);
    assert_eq!(copied, pair.source.digest("big"));
    assert_eq!(pair.target.digest_kcat("A.big"), pair.source.digest_kcat("big"));
}

#[test]
#[ignore = "needs real Kafka: run dev/test"]
fn real_messages_of_formats_0_and_1_arrive_beside_those_of_format_2() {
    let pair = Pair::start("2.8.2", "4.3.1");
    let mut topics = Vec::new();
    for (version, codec) in [("0.9.0", "none"), ("0.9.0", "lz4"), ("0.10.2", "none"), ("0.10.2", "snappy")] {
        let topic = format!("old-{version}-{codec}");
        pair.source.create_topic(&topic, 1, &[&format!("message.format.version={version}")]);
        // An idempotent producer is refused there.
        let options = ["--partitions", "1", "--codec", codec, "--set", "enable.idempotence=false"];
        pair.source.load(&topic, 3_000, &options);
        topics.push((topic, codec));
    }
    for (topic, codec) in &topics {
        pair.source.alter_topic(topic, "message.format.version=2.8");
        pair.source.load(topic, 2_000, &["--partitions", "1", "--codec", codec, "--first", "3000"]);
    }

    let said = pair.copy(&["A->B.topics = old-.*"]).expect_success();

    assert!(said.stderr.contains("old format opened ("), "{said}");
    assert_eq!(summed(&said, "records"), 4 * 5_000);
    // Thousands of single messages do not become thousands of requests.
    assert!(summed(&said, "opened_batches") < 2_000, "{said}");
    for (topic, _) in &topics {
        let copied = pair.target.digest_with(&format!("A.{topic}"), WITHOUT_TIME_TYPE);
        assert_eq!((copied.records, &copied.violation), (5_000, &None), "{topic}");
        assert_eq!(copied, pair.source.digest_with(topic, WITHOUT_TIME_TYPE), "{topic}");
    }
}

#[test]
#[ignore = "needs real Kafka: run dev/test"]
fn real_append_times_are_kept_or_batches_stay_sealed() {
    let pair = Pair::start("4.3.1", "4.3.1");
    pair.source.create_topic("stamped", 2, &["message.timestamp.type=LogAppendTime"]);
    // What the producers wrote lies years before what the broker made of it.
    for codec in ["zstd", "gzip"] {
        let options = ["--partitions", "2", "--codec", codec, "--start-ms", "1546300800000"];
        let first = if codec == "zstd" { "0" } else { "10000" };
        pair.source.load("stamped", 20_000, &[options.as_slice(), &["--first", first]].concat());
    }

    let said = pair.copy(&["A->B.topics = stamped"]).expect_success();
    assert!(said.stderr.contains(r#"sealed="0 %, log append time opened ("#), "{said}");
    let shown = pair.source.digest_with("stamped", WITHOUT_TIME_TYPE);
    assert_eq!(pair.target.digest_with("A.stamped", WITHOUT_TIME_TYPE), shown);

    let sealed = ["A->B.topics = stamped", "towpath.log.append.time = sealed", "replication.policy.separator = -of-"];
    let said = pair.copy(&sealed).expect_success();
    assert!(said.stderr.contains(r#"sealed="100 %, 100 % with producers' times""#), "{said}");
    let copied = pair.target.digest_with("A-of-stamped", WITHOUT_TIME_TYPE);
    assert_eq!((copied.records, &copied.violation), (40_000, &None));
    assert_ne!(copied, shown, "the times are the producers'");
}

#[test]
#[ignore = "needs real Kafka: run dev/test"]
fn real_batches_above_the_targets_limit_are_split_and_a_record_above_it_stands() {
    let pair = Pair::start("4.3.1", "4.3.1");
    let (source, target) = (&pair.source, &pair.target);
    let large = ["--partitions", "1", "--batch", "200000", "--linger", "100"];
    let codecs = ["none", "zstd"];
    for codec in codecs {
        source.load(&format!("wide-{codec}"), 20_000, &[large.as_slice(), &["--codec", codec]].concat());
        target.create_topic(&format!("A.wide-{codec}"), 1, &["max.message.bytes=10000"]);
    }
    source.create_topic("one", 1, &[]);
    produce_files(source, "one", "none", &[b"before".to_vec(), noise(50_000, 1), b"after".to_vec()]);
    target.create_topic("A.one", 1, &["max.message.bytes=10000"]);
    let topics = "A->B.topics = wide-.*, one";

    let outcome = pair.copy(&[topics]);

    assert_eq!(outcome.code, Some(4), "{outcome}");
    let said = not_copied(&outcome, "A->B one-0");
    for words in ["record too large: the one at source offset 1 ", "takes 10000", "raise max.message.bytes"] {
        assert!(said.contains(words), "{said}");
    }
    assert_eq!(target.digest("A.one").records, 1, "what lies before it");
    assert!(outcome.stderr.contains("too large opened ("), "{outcome}");
    for codec in codecs {
        let copied = target.digest_numbered(&format!("A.wide-{codec}"));
        assert_eq!(copied.violation, None);
        assert_eq!(copied, source.digest_numbered(&format!("wide-{codec}")), "{codec}");
    }

    // It goes on by itself once it may; and a limit that is lowered on the way is learnt from the target's refusals.
    let mut running = pair.follow(&[topics]);
    running.wait_for_line("record too large", SOON);
    target.alter_topic("A.one", "max.message.bytes=60000");
    running.wait_for_line("partition goes on", AFTER_A_RETRY);
    target.alter_topic("A.wide-zstd", "max.message.bytes=3000");
    source.load("wide-zstd", 5_000, &[large.as_slice(), &["--codec", "zstd", "--first", "20000"]].concat());
    let copied = target.digest_with("A.wide-zstd", &["--expect", "25000"]);
    assert_eq!(copied, source.digest("wide-zstd"));
    assert_eq!(target.digest("A.one"), source.digest("one"));
    let stopped = stop(running);
    assert_eq!(stopped.code, Some(0), "{stopped}");
}

#[test]
#[ignore = "needs real Kafka: run dev/test"]
fn real_kills_in_an_open_backfill_lose_and_double_nothing() {
    let pair = Pair::start("4.3.1", "4.3.1");
    let (source, target) = (&pair.source, &pair.target);
    // Old records, of which the target forgets who wrote them, and young ones; each batch becomes several.
    let mut expected = BTreeMap::new();
    for (topic, start) in [("old", &["--start-ms", "1546300800000"][..]), ("young", &[])] {
        let options = ["--partitions", "2", "--batch", "100000", "--linger", "50", "--codec", "zstd"];
        source.load(topic, 120_000, &[options.as_slice(), start].concat());
        target.create_topic(&format!("A.{topic}"), 2, &["max.message.bytes=8000"]);
        expected.insert(topic, source.digest_numbered(topic));
    }
    let flow = ["A->B.topics = old, young", "towpath.anchor.interval.ms = 300"];
    for round in 0..8_u64 {
        let mut running = pair.follow(&flow);
        if round == 0 {
            running.wait_for_line("partitions assigned", SOON);
        }
        // Dropping it is SIGKILL.
        std::thread::sleep(Duration::from_millis(300 + 150 * (round % 5)));
    }
    let copied_when_killed = target.digest("A.old").records;

    pair.copy(&flow).expect_success();

    for (topic, source) in expected {
        let copied = target.digest_numbered(&format!("A.{topic}"));
        assert_eq!((copied.records, &copied.violation), (120_000, &None), "{topic}");
        assert_eq!(copied, source, "{topic}");
    }
    assert!(copied_when_killed < 120_000, "the kills came in the middle");
}
