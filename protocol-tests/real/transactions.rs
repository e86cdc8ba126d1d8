//! Transactional topics: committed, aborted and open transactions, and plain records between them.

use std::time::Duration;

use super::kafka::Digest;
use super::pair::{Pair, stop};

const SOON: Duration = Duration::from_secs(60);

#[test]
#[ignore = "needs real Kafka: run dev/test"]
fn real_open_transaction_holds_the_copy_at_the_last_stable_offset_and_says_so() {
    let pair = Pair::start("4.3.1", "4.3.1");
    let expected = Digest::expected(&pair.source.java("Txn", &["txn", "--codec", "lz4", "--open"]));
    assert_eq!(pair.source.digest("txn"), expected, "what Java's consumer sees is what was written");

    let caught_up = pair.copy(&["A->B.topics = txn"]).expect_success();

    assert_eq!(pair.target.digest("A.txn"), expected);
    let equal = pair.source.segments("txn", &pair.target, "A.txn", &["--committed"]);
    assert!(equal.is_ok(), "{equal:?}");
    let held = "held by an open transaction: stands at the last stable offset";
    assert!(caught_up.stderr.contains(held), "{caught_up}");
    assert!(!caught_up.stderr.contains("aborted_records=0"), "{caught_up}");

    // Partition 0 has no open transaction and goes on meanwhile.
    let mut running = pair.follow(&["A->B.topics = txn"]);
    let said = running.wait_for_line(held, SOON);
    assert!(said.contains("txn-1"), "{said}");
    assert!(!running.stderr().contains("partition=txn-0"), "{}", running.stderr());

    pair.source.java("Txn", &["txn", "--end-open"]);
    let committed = pair.source.digest("txn");
    assert!(committed.records > expected.records, "what waited behind the open transaction is visible now");
    let copied = pair.target.digest_with("A.txn", &["--expect", &committed.records.to_string()]);
    let stopped = stop(running);
    assert_eq!(stopped.code, Some(0), "{stopped}");
    assert_eq!(copied, committed);
}

#[test]
#[ignore = "needs real Kafka: run dev/test"]
fn real_read_uncommitted_copies_whatever_is_visible() {
    let pair = Pair::start("4.3.1", "4.3.1");
    let committed = Digest::expected(&pair.source.java("Txn", &["txn", "--open"]));

    let said = pair.copy(&["A->B.topics = txn", "A.consumer.isolation.level = read_uncommitted"]).expect_success();

    let everything = pair.source.digest_with("txn", &["--isolation", "read_uncommitted"]);
    assert!(everything.records > committed.records);
    assert_eq!(pair.target.digest("A.txn"), everything);
    assert!(pair.source.segments("txn", &pair.target, "A.txn", &[]).is_ok());
    assert!(!said.stderr.contains("held by"), "{said}");
}
