//! The log lines about records that were gone from the source before they were copied.

use tokio::time::Instant;
use tracing::warn;

use crate::{mirror::report::PartitionReport, protocol::TopicPartition, rare::Rare};

/// Lines in half a minute; the anchors of the partitions hold them all (`towpath status`).
const LINES_MAX: u32 = 100;

/// Names what retention took before it was copied.
pub(super) fn log_losses(
    rare: &Rare,
    flow: &str,
    source: &TopicPartition,
    before: Option<&PartitionReport>,
    row: &PartitionReport,
) {
    let may_say = || rare.allows_some(Instant::now(), "records were gone at the source", -1, LINES_MAX);
    let (known, counted) = before.map_or((0, 0), |row| (row.losses.len(), row.progress.lost_records));
    let (topic, partition) = (source.topic.as_str(), source.partition.0);
    let text = "records were gone at the source before they were copied";
    for lost in row.losses.iter().skip(known) {
        let (from, to) = (lost.from, lost.to - 1);
        if !may_say() {
            continue;
        }
        warn!(flow, topic, partition, from, to, records = lost.to - lost.from, "{text}");
    }
    // Only the first ones are remembered one by one.
    if row.losses.len() == known && row.progress.lost_records > counted && may_say() {
        warn!(flow, topic, partition, records = row.progress.lost_records - counted, "more {text}");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::mirror::partition::{Lost, PartitionState, Progress};

    /// What is logged, as text.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn row(losses: &[(i64, i64)], lost_records: u64) -> PartitionReport {
        PartitionReport {
            state: PartitionState::Copying,
            since_ms: 0,
            not_moving_since_ms: None,
            located: true,
            source_next: 0,
            lag: 0,
            newest_timestamp: -1,
            progress: Progress { lost_records, ..Progress::default() },
            losses: losses.iter().map(|(from, to)| Lost { from: *from, to: *to }).collect(),
            reached_goal: false,
        }
    }

    fn said(before: Option<&PartitionReport>, now: &PartitionReport) -> String {
        let log = Log::default();
        let writer = log.clone();
        let subscriber =
            tracing_subscriber::fmt().without_time().with_ansi(false).with_writer(move || writer.clone()).finish();
        let source = TopicPartition::new("orders", 3);
        tracing::subscriber::with_default(subscriber, || log_losses(&Rare::default(), "A->B", &source, before, now));
        let bytes = log.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn each_loss_is_named_once_with_its_partition_and_offsets() {
        let first = row(&[(10, 15)], 5);
        let text = said(None, &first);
        for part in ["WARN", "topic=\"orders\"", "partition=3", "from=10", "to=14", "records=5"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(said(Some(&first), &first), "");
        let second = said(Some(&first), &row(&[(10, 15), (20, 30)], 15));
        assert!(second.contains("from=20") && !second.contains("from=10"), "{second}");
        let uncounted = said(Some(&first), &row(&[(10, 15)], 105));
        assert!(uncounted.contains("records=100") && uncounted.contains("more records"), "{uncounted}");
    }
}
