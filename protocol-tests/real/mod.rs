//! Tests against real Apache Kafka, started by `dev/kafka`.
//!
//! Every test here is marked `#[ignore]` and its name starts with `real_`: a plain `cargo test` lists it as ignored
//! with the reason, so nothing passes without having run. `dev/test` runs them with a release binary; by hand:
//! `cargo test --test protocol -- --ignored real_`.
//!
//! [`kafka`] has the clusters and the comparing tools, [`program`] the binary under test, [`pair`] two clusters with it
//! between them.

// Both watch other processes: the real clock is the only one there is, and polling with a deadline the only wait.
#[allow(clippy::disallowed_methods, reason = "see above")]
mod faults;
#[allow(clippy::disallowed_methods, dead_code, reason = "see above; and the harness offers more than each test needs")]
pub(crate) mod kafka;
#[allow(clippy::disallowed_methods, dead_code, reason = "see above; and the harness offers more than each test needs")]
pub(crate) mod program;

#[allow(clippy::disallowed_methods, reason = "see above")]
mod copies;
#[allow(clippy::disallowed_methods, reason = "see above")]
mod losses;
#[allow(clippy::disallowed_methods, reason = "see above")]
mod open;
#[allow(clippy::disallowed_methods, dead_code, reason = "see above")]
pub(crate) mod pair;
#[allow(clippy::disallowed_methods, reason = "see above")]
mod refusals;
#[allow(clippy::disallowed_methods, reason = "see above")]
mod seen;
mod transactions;

use kafka::Cluster;

#[test]
#[ignore = "needs real Kafka: run dev/test"]
fn real_cluster_starts_and_loads() {
    let cluster = Cluster::start("4.3.1", 1);
    cluster.load("numbered", 10_000, &["--partitions", "4"]);

    let digest = cluster.digest_numbered("numbered");

    assert_eq!(digest.violation, None);
    assert_eq!(digest.records, 10_000);
    assert_eq!(digest.partitions.iter().map(|one| one.records).collect::<Vec<_>>(), [2_500; 4]);
    assert_eq!(cluster.digest_kcat("numbered").records, 10_000);
}

#[test]
#[ignore = "needs real Kafka: run dev/test"]
fn real_digest_reports_a_repeated_record() {
    let cluster = Cluster::start("4.3.1", 1);
    cluster.load("twice", 100, &["--partitions", "1"]);
    cluster.load("twice", 100, &["--partitions", "1", "--first", "99"]);

    let violation = cluster.digest_numbered("twice").violation.expect("number 99 is there twice");

    assert!(violation.contains("number 100 expected, 99 found"), "{violation}");
}
