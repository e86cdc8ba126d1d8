//! The embedded broker against real Kafka: the same raw requests, the same answers.
//!
//! A scenario sends requests at stated API versions over a plain socket and writes a transcript in which ids, times and
//! ports have names. What real brokers of three versions answered is committed in `golden/<version>/<scenario>.txt`:
//! - `real_broker_…` compares the real brokers with the files (part of `dev/test`), so the files cannot go stale;
//! - `embedded_broker_…` compares the embedded broker with the same files, without Java.
//!
//! `TOWPATH_RECORD=1` makes the real tests write the files instead: look at the diff before you commit it.
//! `TOWPATH_SCENARIO=s4` runs those whose names contain the word.
//!
//! Which fact of `broker-experiments.md` is where (sections 0 and S1-S13):
//!
//! | fact | scenario |
//! |---|---|
//! | 0.1 a sealed marker becomes a record; S6 markers, LSO, aborted list, refusals | `s6_transactions` |
//! | 0.2 old timestamps cost the producer state: at the sweep | `s2_expiry` (not 2.8.2: its sweep is fixed at ten minutes) |
//! | 0.2 the same at a restart; 0.3 the window is one after a restart; S11 survives it; S8, S13 groups survive it | `z_restart` |
//! | 0.3 five after a failover to a follower | not here: one broker |
//! | 0.4, S4 pipelining, resending more than five in order, order over connections | `s4_order` |
//! | 0.5, S10 fetch sessions, partitions in error, wrong epochs | `s10_sessions` |
//! | 0.6, S8 retention of offsets | not here: the shortest retention is a minute; `src/testkit/groups/tests` has it on a virtual clock |
//! | 0.7 `log_append_time` of a duplicate, S2 identity and sequences | `s2_identity` |
//! | 0.8 S7 (d) self-coordinated transactions | `s7_own_transactions` |
//! | S1 what is kept of a batch, refusals, timestamps | `s1_target_keeps` |
//! | S1 topics of another codec, S5 patched batches | `s1_recompressed` |
//! | S1 sizes by codec | not here: codecs differ in bytes between implementations |
//! | S3 epochs | `s3_epochs` |
//! | S4 throughput of lanes, S7 (a) speed | measurements, not answers |
//! | S5 thinned and empty batches refused | `s5_thinned` |
//! | S5 what a cleaned log looks like | `s5_cleaned` |
//! | S7 filler, DeleteRecords, markers from outside | `s7_offsets` |
//! | S8 anchors | `s8_anchors` |
//! | S8 KIP-848 groups | not yet: the embedded broker has none |
//! | S9 API versions | `s9_versions` |
//! | S10 re-created topics, truncation by `last_fetched_epoch` | `s10_recreated` |
//! | S11 DescribeProducers | `s11_producers` |
//! | S12 no identity in old formats | `s12_no_identity` (2.8.2) |
//! | S12 formats 0 and 1 as they are stored and read | `s12_formats` (2.8.2) |
//! | S13 lease: takeover, fencing, rebalances | `s13_lease` |
//! | S13 times longer than a few seconds, coordinator loading | `src/testkit/groups/tests/lease.rs` on a virtual clock |

mod batches;
mod embedded;
mod run;
mod scenarios;
mod shown;
mod wire;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use super::real::kafka::Cluster;
use embedded::EmbeddedBroker;
use run::{Broker, Run, Version};

/// Settings of the real brokers, beside those of `dev/kafka`; the embedded ones get the same.
const SETTINGS: &[&str] = &[
    "group.initial.rebalance.delay.ms=100",
    "offsets.topic.num.partitions=1",
    "transaction.state.log.num.partitions=1",
    "log.cleaner.backoff.ms=100",
    "log.initial.task.delay.ms=100",
];
/// Only some versions know these.
const SWEEP: &str = "producer.id.expiration.check.interval.ms=500";
const NO_VERIFICATION: &str = "transaction.partition.verification.enable=false";

struct RealBroker(Cluster);

fn settings(version: Version) -> Vec<&'static str> {
    let sweep = (version > Version::V2_8_2).then_some(SWEEP);
    SETTINGS.iter().copied().chain(sweep).collect()
}

impl Broker for RealBroker {
    fn address(&self) -> String {
        self.0.bootstrap.clone()
    }

    fn restart(&mut self) {
        self.0.stop_broker(1);
        self.0.start_broker(1);
    }
}

#[test]
#[ignore = "needs real Kafka: run dev/test"]
fn real_broker_4_3_1_answers_as_recorded() {
    real(Version::V4_3_1);
}

#[test]
#[ignore = "needs real Kafka: run dev/test"]
fn real_broker_3_9_2_answers_as_recorded() {
    real(Version::V3_9_2);
}

#[test]
#[ignore = "needs real Kafka: run dev/test"]
fn real_broker_2_8_2_answers_as_recorded() {
    real(Version::V2_8_2);
}

fn real(version: Version) {
    let record = std::env::var_os("TOWPATH_RECORD").is_some_and(|value| value == "1");
    let mut broker = RealBroker(Cluster::start_with(version.name(), 1, &settings(version)));
    let faults = play(&mut broker, version, record);
    assert!(faults.is_empty(), "\nKafka {} does not answer as recorded:\n{}", version.name(), faults.join("\n"));
}

#[test]
fn embedded_broker_4_3_1_answers_as_recorded() {
    embedded(Version::V4_3_1);
}

#[test]
fn embedded_broker_3_9_2_answers_as_recorded() {
    embedded(Version::V3_9_2);
}

#[test]
fn embedded_broker_2_8_2_answers_as_recorded() {
    embedded(Version::V2_8_2);
}

fn embedded(version: Version) {
    let mut broker = EmbeddedBroker::start(version, &settings(version));
    let faults = play(&mut broker, version, false);
    assert!(faults.is_empty(), "\nThe embedded {} does not answer as Kafka:\n{}", version.name(), faults.join("\n"));
}

/// Plays all scenarios of a version; returns what differs from the recorded transcripts.
fn play(broker: &mut dyn Broker, version: Version, record: bool) -> Vec<String> {
    let wanted = std::env::var("TOWPATH_SCENARIO").unwrap_or_default();
    let mut faults = Vec::new();
    for scenario in scenarios::of(version).filter(|scenario| scenario.name.contains(&wanted)) {
        let path = golden(version, scenario.name);
        let mut run = Run::new(broker, version);
        let began = std::time::Instant::now();
        let ended = catch_unwind(AssertUnwindSafe(|| (scenario.play)(&mut run)));
        let transcript = run.transcript();
        println!("{} {}: {} ms", version.name(), scenario.name, began.elapsed().as_millis());
        if ended.is_err() {
            faults.push(format!("{}: did not come to its end; so far:\n{transcript}", scenario.name));
        } else if record {
            std::fs::create_dir_all(path.parent().expect("in a folder")).expect("the folder can be made");
            std::fs::write(&path, transcript).expect("the transcript can be written");
        } else {
            let recorded = std::fs::read_to_string(&path).unwrap_or_default();
            if recorded != transcript {
                faults.push(format!("{}:\n{}", scenario.name, difference(&recorded, &transcript)));
            }
        }
    }
    faults
}

fn golden(version: Version, scenario: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("protocol-tests/differential/golden");
    folder.join(version.name()).join(format!("{scenario}.txt"))
}

/// Lines that were recorded and not said (`-`), and said but not recorded (`+`), with what stands before them.
fn difference(recorded: &str, said: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (recorded.lines().collect(), said.lines().collect());
    // Longest common subsequence, from the back.
    let mut longest = vec![vec![0_usize; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            longest[i][j] =
                if old[i] == new[j] { longest[i + 1][j + 1] + 1 } else { longest[i + 1][j].max(longest[i][j + 1]) };
        }
    }
    let (mut i, mut j, mut shown, mut before) = (0, 0, String::new(), Vec::new());
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            before.push(old[i]);
            (i, j) = (i + 1, j + 1);
            continue;
        }
        for line in before.drain(..).rev().take(2).collect::<Vec<_>>().into_iter().rev() {
            shown.push_str(&format!("    {line}\n"));
        }
        if j == new.len() || (i < old.len() && longest[i + 1][j] >= longest[i][j + 1]) {
            shown.push_str(&format!("  - {}\n", old[i]));
            i += 1;
        } else {
            shown.push_str(&format!("  + {}\n", new[j]));
            j += 1;
        }
    }
    shown
}

#[test]
fn a_difference_shows_both_sides_and_what_stands_before() {
    let shown = difference("a\nb\nc\nd\n", "a\nb\nx\nd\n");
    assert_eq!(shown, "    a\n    b\n  - c\n  + x\n");
    assert_eq!(difference("a\n", "a\n"), "");
}
