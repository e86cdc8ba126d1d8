//! Makes metrics of what was observed.

use std::collections::BTreeMap;

use crate::{
    metrics::{Metric, Samples, catalogue as names},
    mirror::{FlowObserved, Observed, OpenReason, PartitionReport, PartitionState, Progress, StopReason, add_progress},
};

const SIDES: [&str; 2] = ["source", "target"];

/// The metrics of a process that started at `started_ms`. Without `partitions`, what has a label for each is left out.
#[must_use]
pub fn exposition(observed: &Observed, started_ms: i64, partitions: bool) -> Samples {
    let mut samples = Samples::default();
    samples.add(&names::UP, &[env!("CARGO_PKG_VERSION")], seconds(started_ms));
    for flow in &observed.flows {
        of_flow(&mut samples, flow, observed.at_ms);
        of_topics(&mut samples, flow);
        of_lag(&mut samples, flow, observed.at_ms, partitions);
    }
    samples
}

fn of_flow(samples: &mut Samples, flow: &FlowObserved, at_ms: i64) {
    let name = flow.report.name.as_str();
    samples.count(&names::FLOW_RUNNING, &[name], u64::from(flow.runs));
    samples.count(&names::LEASE_HELD, &[name], u64::from(flow.lease_held));
    let mut states: BTreeMap<&str, u64> = BTreeMap::new();
    let rows = flow.partitions.iter().map(|(.., row)| &row.state);
    for state in rows.chain(flow.missing.iter().map(|(_, state)| state)) {
        *states.entry(state.code()).or_default() += 1;
    }
    for (state, count) in states {
        samples.count(&names::PARTITIONS, &[name, state], count);
    }
    let stuck = flow.partitions.iter().filter(|(.., row)| row.not_moving_since_ms.is_some()).count();
    samples.count(&names::NOT_MOVING, &[name], stuck as u64);
    for ((topic, cause), count) in &flow.incidents {
        samples.count(&names::INCIDENTS, &[name, topic, cause], *count);
    }
    let work = &flow.work;
    samples.count(&names::MEMORY_USED, &[name], work.memory_used);
    samples.count(&names::MEMORY_LIMIT, &[name], work.memory_limit);
    let both: [(&'static Metric, [u64; 2]); 5] = [
        (&names::REQUESTS, work.requests),
        (&names::UNANSWERED, work.unanswered),
        (&names::CONNECTIONS, work.connections),
        (&names::CONNECTIONS_FAILED, work.connections_failed),
        (&names::REFUSED, work.refused),
    ];
    for (metric, counts) in both {
        for (side, count) in SIDES.iter().zip(counts) {
            samples.count(metric, &[name, side], count);
        }
    }
    samples.count(&names::ANCHORS, &[name], flow.anchors.committed);
    samples.count(&names::ANCHORS_FAILED, &[name], flow.anchors.failed);
    if flow.anchors.last_ms > 0 {
        samples.add(&names::ANCHOR_AGE, &[name], seconds(at_ms - flow.anchors.last_ms));
    }
}

fn of_topics(samples: &mut Samples, flow: &FlowObserved) {
    let name = flow.report.name.as_str();
    let mut topics: BTreeMap<&str, Progress> = flow.gone.iter().map(|(topic, sum)| (topic.as_str(), *sum)).collect();
    for (topic, _, row) in &flow.partitions {
        add_progress(topics.entry(topic).or_default(), &row.progress);
    }
    for (topic, sum) in topics {
        let counts: [(&'static Metric, u64); 9] = [
            (&names::RECORDS, sum.records),
            (&names::BYTES_IN, sum.bytes_in),
            (&names::BYTES_OUT, sum.bytes_out),
            (&names::BYTES_IN_VAIN, sum.bytes_in_vain),
            (&names::BATCHES, sum.batches),
            (&names::ABORTED, sum.aborted_records),
            (&names::LOST, sum.lost_records),
            (&names::TRUNCATED, sum.truncated_records),
            (&names::FOREIGN, sum.foreign_records),
        ];
        for (metric, count) in counts {
            samples.count(metric, &[name, topic], count);
        }
        for reason in OpenReason::ALL {
            let batches = sum.opened.of(reason).batches;
            if batches > 0 {
                samples.count(&names::OPENED, &[name, topic, &reason.word().replace(' ', "-")], batches);
            }
        }
    }
}

fn of_lag(samples: &mut Samples, flow: &FlowObserved, at_ms: i64, partitions: bool) {
    let name = flow.report.name.as_str();
    let mut topics: BTreeMap<&str, (Option<i64>, Option<f64>, u64)> = BTreeMap::new();
    for (topic, number, row) in &flow.partitions {
        let sum = topics.entry(topic).or_default();
        if !is_lag_known(row) {
            sum.2 += 1;
            continue;
        }
        let late = lag_seconds(row, at_ms);
        sum.0 = Some(sum.0.unwrap_or(0) + row.lag);
        sum.1 = late.into_iter().chain(sum.1).reduce(f64::max);
        if partitions {
            let labels = [name, topic.as_str(), &number.to_string()];
            samples.count(&names::PARTITION_LAG, &labels, u64::try_from(row.lag).unwrap_or(0));
            if let Some(late) = late {
                samples.add(&names::PARTITION_LAG_SECONDS, &labels, late);
            }
        }
    }
    for (topic, (lag, late, unknown)) in topics {
        if let Some(lag) = lag {
            samples.count(&names::TOPIC_LAG, &[name, topic], u64::try_from(lag).unwrap_or(0));
        }
        if let Some(late) = late {
            samples.add(&names::TOPIC_LAG_SECONDS, &[name, topic], late);
        }
        samples.count(&names::TOPIC_LAG_UNKNOWN, &[name, topic], unknown);
    }
}

/// A source that cannot be read says nothing: no lag at all, rather than the one of an hour ago.
fn is_lag_known(row: &PartitionReport) -> bool {
    let silent = matches!(
        row.state,
        PartitionState::AwaitingSource { .. }
            | PartitionState::Stopped(
                StopReason::SourceRefused { .. }
                    | StopReason::SourceGone
                    | StopReason::SourceRecreated { .. }
                    | StopReason::SourceCluster { .. }
                    | StopReason::SourceTruncated { .. }
                    | StopReason::TwoWriters { .. }
            )
    );
    row.located && !silent
}

fn lag_seconds(row: &PartitionReport, at_ms: i64) -> Option<f64> {
    if row.lag == 0 {
        return Some(0.0);
    }
    (row.newest_timestamp >= 0).then(|| seconds((at_ms - row.newest_timestamp).max(0)))
}

#[expect(clippy::cast_precision_loss, reason = "seconds to a thousandth")]
fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}
