//! What arrives is what was sent: record by record for two foreign consumers, batch by batch in the segment files.

use std::time::Duration;

use super::kafka::Cluster;
use super::pair::{Pair, stop};

const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];
/// Of each codec; enough for thousands of batches and several segments' worth of positions.
const RECORDS: u64 = 300_000;
const SOON: Duration = Duration::from_secs(30);

/// Equal for Java's consumer, and batch by batch.
fn assert_equal(pair: &Pair, topic: &str, remote: &str) {
    let (source, target) = (pair.source.digest(topic), pair.target.digest(remote));
    assert!(source.records > 0, "{topic} is empty");
    assert_eq!(source, target, "{topic} and {remote}");
    assert_batches_equal(pair, topic, remote);
}

fn assert_batches_equal(pair: &Pair, topic: &str, remote: &str) {
    let equal = pair.source.segments(topic, &pair.target, remote, &[]);
    assert!(equal.as_ref().is_ok_and(|equal| equal.batches > 0), "{topic} and {remote}: {equal:?}");
}

/// Everything that a replicator may get wrong, also what only kcat shows.
fn write_tricky(cluster: &Cluster, codec: &str) -> String {
    let topic = format!("tricky-{codec}");
    cluster.java("Tricky", &[&topic, "--codec", codec]);
    cluster.odd_records(&topic);
    topic
}

#[test]
#[ignore = "needs real Kafka: run dev/test"]
fn real_every_codec_arrives_sealed() {
    let pair = Pair::start("4.3.1", "4.3.1");
    for codec in CODECS {
        pair.source.load(&format!("json-{codec}"), RECORDS, &["--codec", codec]);
    }
    let tricky = ["none", "zstd"].map(|codec| write_tricky(&pair.source, codec));

    let said = pair.copy(&["A->B.topics = json-.*, tricky-.*"]).expect_success();

    assert!(said.stderr.contains(r#"sealed="100 %""#), "{said}");
    assert!(said.stderr.contains(&format!("records={}", 5 * RECORDS + 2 * 852)), "{said}");
    for codec in CODECS {
        let topic = format!("json-{codec}");
        let remote = format!("A.{topic}");
        let numbered = pair.target.digest_numbered(&remote);
        assert_eq!((numbered.records, &numbered.violation), (RECORDS, &None), "{topic}");
        assert_eq!(numbered.partitions.len(), 8);
        assert_eq!(numbered, pair.source.digest_numbered(&topic), "{topic}");
        assert_batches_equal(&pair, &topic, &remote);
    }
    for topic in &tricky {
        let remote = format!("A.{topic}");
        assert_equal(&pair, topic, &remote);
        assert_eq!(pair.source.digest_kcat(topic), pair.target.digest_kcat(&remote), "{topic}");
    }

    let policy = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy";
    pair.copy(&["A->B.topics = tricky-none", &format!("replication.policy.class = {policy}")]).expect_success();
    assert_batches_equal(&pair, "tricky-none", "tricky-none");
    pair.copy(&["A->B.topics = tricky-none", "replication.policy.separator = _of_"]).expect_success();
    assert_batches_equal(&pair, "tricky-none", "A_of_tricky-none");
    assert_eq!(pair.source.digest_kcat("tricky-none"), pair.target.digest_kcat("A_of_tricky-none"));
}

#[test]
#[ignore = "needs real Kafka: run dev/test"]
fn real_kafka_3_9_is_source_and_target() {
    both_ways("3.9.2");
}

#[test]
#[ignore = "needs real Kafka: run dev/test"]
fn real_kafka_2_8_is_source_and_target() {
    both_ways("2.8.2");
}

/// One process copies both ways between an old cluster and a new one.
fn both_ways(version: &str) {
    let pair = Pair::start(version, "4.3.1");
    for cluster in [&pair.source, &pair.target] {
        cluster.load("json-lz4", 50_000, &["--codec", "lz4"]);
        write_tricky(cluster, "zstd");
    }

    pair.copy(&["topics = json-.*, tricky-.*", "B->A.enabled = true"]).expect_success();

    let back = |topic: &str, remote: &str| {
        assert_eq!(pair.target.digest(topic), pair.source.digest(remote), "{topic} and {remote}");
        let equal = pair.target.segments(topic, &pair.source, remote, &[]);
        assert!(equal.as_ref().is_ok_and(|equal| equal.batches > 0), "{topic} and {remote}: {equal:?}");
    };
    for topic in ["json-lz4", "tricky-zstd"] {
        assert_equal(&pair, topic, &format!("A.{topic}"));
        back(topic, &format!("B.{topic}"));
    }
    assert_eq!(pair.source.digest_kcat("tricky-zstd"), pair.target.digest_kcat("A.tricky-zstd"));
    // The second start goes on where the first one stood.
    pair.source.load("json-lz4", 8_000, &["--codec", "lz4", "--first", "6250"]);
    pair.copy(&["topics = json-.*, tricky-.*", "B->A.enabled = true"]).expect_success();
    assert_equal(&pair, "json-lz4", "A.json-lz4");
    assert_eq!(pair.target.digest_numbered("A.json-lz4").violation, None);
}

#[test]
#[ignore = "needs real Kafka: run dev/test"]
fn real_new_topics_and_partitions_are_copied_from_their_beginning_under_latest() {
    let pair = Pair::start("4.3.1", "4.3.1");
    pair.source.load("old", 1_000, &["--partitions", "1"]);
    let mut running = pair.follow(&["A->B.topics = old, new", "A.consumer.auto.offset.reset = latest"]);
    running.wait_for_line("partitions=1 records_per_s", SOON);

    pair.source.load("old", 500, &["--partitions", "1", "--first", "1000"]);
    assert_eq!(pair.target.digest_with("A.old", &["--expect", "500"]).records, 500);

    pair.source.grow_topic("old", 3);
    pair.source.load("old", 300, &["--partitions", "3"]);
    pair.source.load("new", 400, &["--partitions", "2"]);
    let old = pair.target.digest_with("A.old", &["--expect", "800"]);
    let new = pair.target.digest_with("A.new", &["--expect", "400"]);
    let stopped = stop(running);

    assert_eq!(stopped.code, Some(0), "{stopped}");
    assert_eq!(old.partitions.iter().map(|one| one.records).collect::<Vec<_>>(), [600, 100, 100]);
    assert_eq!(old.partitions[1..], pair.source.digest("old").partitions[1..]);
    assert_eq!(new, pair.source.digest("new"));
}

#[test]
#[ignore = "needs real Kafka: run dev/test"]
fn real_the_static_binary_copies_from_an_empty_root() {
    let pair = Pair::start("4.3.1", "4.3.1");
    pair.source.load("orders", 100_000, &["--codec", "zstd"]);

    pair.copy_from_an_empty_root(&["A->B.topics = orders"]).expect_success();

    let numbered = pair.target.digest_numbered("A.orders");
    assert_eq!((numbered.records, &numbered.violation), (100_000, &None));
    assert_equal(&pair, "orders", "A.orders");
}
