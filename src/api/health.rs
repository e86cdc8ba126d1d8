//! Whether the process works, and whether everything is copied.

use serde::Serialize;

use crate::mirror::{FlowObserved, Observed, PartitionState, StopReason};

/// A worker that showed no sign of life for so long hangs; it shows one four times a second.
const ALIVE_WITHIN_MS: i64 = 10_000;
/// Reasons that are named one by one.
pub(super) const REASONS_MAX: usize = 50;

/// Why something is not copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// The flow.
    pub flow: String,
    /// The partition at the source, if it is about one.
    pub partition: Option<String>,
    /// A state code, or `flow`.
    pub state: String,
    /// In words.
    pub reason: String,
}

/// `Err` names the thread that does not work.
///
/// # Errors
/// See above.
pub fn is_healthy(observed: Option<&Observed>) -> Result<(), String> {
    let Some(observed) = observed else {
        return Err("the control thread does not answer".to_owned());
    };
    for flow in &observed.flows {
        for (worker, alive_ms) in flow.alive_ms.iter().enumerate() {
            let silent_ms = observed.at_ms - i64::try_from(*alive_ms).unwrap_or(i64::MAX);
            if *alive_ms > 0 && silent_ms > ALIVE_WITHIN_MS {
                let seconds = silent_ms / 1000;
                return Err(format!(
                    "worker {worker} of {} has shown no sign of life for {seconds} s",
                    flow.report.name
                ));
            }
        }
    }
    Ok(())
}

/// Why not everything that should be is copied: none if it is. The second value is how many more there are.
#[must_use]
pub fn reasons(observed: &Observed) -> (Vec<Reason>, usize) {
    let mut all = observed.flows.iter().flat_map(of_flow);
    let named = all.by_ref().take(REASONS_MAX).collect();
    (named, all.count())
}

fn of_flow(flow: &FlowObserved) -> Vec<Reason> {
    let report = &flow.report;
    let about_flow =
        |reason: String| Reason { flow: report.name.clone(), partition: None, state: "flow".into(), reason };
    if !flow.lease_held {
        return vec![about_flow(report.state.clone())];
    }
    let mut reasons = Vec::new();
    if flow.matches_nothing {
        reasons.push(about_flow("no topic of the source matches topics".into()));
    }
    let rows =
        flow.partitions.iter().map(|(topic, number, row)| (format!("{topic}-{number}"), &row.state, row.located));
    let missing = flow.missing.iter().map(|(name, state)| (name.clone(), state, false));
    for (partition, state, located) in rows.chain(missing) {
        if !keeps_from_ready(state, located) {
            continue;
        }
        let (flow, code) = (report.name.clone(), state.code().to_owned());
        let reason = match state {
            PartitionState::Stopped(reason) => format!("{reason}; {}", remedy(reason, &partition)),
            state if !located => format!("not located yet: {state}"),
            state => state.to_string(),
        };
        reasons.push(Reason { flow, partition: Some(partition), state: code, reason });
    }
    reasons
}

fn remedy(reason: &StopReason, partition: &str) -> String {
    reason.remedy_for(partition.rsplit_once('-').map_or(partition, |(topic, _)| topic))
}

fn keeps_from_ready(state: &PartitionState, located: bool) -> bool {
    match state {
        PartitionState::Stopped(_)
        | PartitionState::AwaitingSource { .. }
        | PartitionState::AwaitingTarget { .. }
        | PartitionState::AwaitingAnchor
        | PartitionState::NotMoving { .. } => true,
        // After a failure a partition looks where it stands, and goes on a moment later.
        _ => !located,
    }
}
