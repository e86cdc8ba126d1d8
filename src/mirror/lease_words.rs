//! What is said of a lease, in the log and on the progress line.

use std::time::Duration;

use tokio::time::Instant;

use super::lease::{LeaseConfig, LeaseLost, LeaseState};
use crate::protocol::ErrorCode;

const LAPSED: &str = "lapsed: nothing is sent until membership is proven again";
/// A coordinator that is being found or made, as at the first start on a new cluster, is no reason for alarm.
const COORDINATOR_PATIENCE: Duration = Duration::from_secs(10);
/// A JoinGroup that is not answered at once waits for somebody.
pub(super) const JOIN_PATIENCE: Duration = Duration::from_secs(1);
/// By then the coordinator has said for whom, or will not.
const MEMBERS_PATIENCE: Duration = Duration::from_secs(2);

/// A JoinGroup without an answer.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) since: Instant,
    /// Who else is in the group was asked.
    pub(super) asked: bool,
    /// Instance ids of the others, if they are known.
    pub(super) others: Vec<String>,
}

/// What is said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Words {
    pub(super) text: String,
    /// Somebody should know.
    pub(super) alarming: bool,
    /// It keeps the flow from copying, so the progress line says it too.
    pub(super) stands: bool,
}

/// What to say of a state; `holds` says whether there are slots that would be worked on.
pub(super) fn words(
    state: &LeaseState,
    holds: bool,
    pending: Option<&Pending>,
    config: &LeaseConfig,
    now: Instant,
) -> Words {
    let said = |text: String, alarming, stands| Words { text, alarming, stands };
    match state {
        LeaseState::Joining { .. } => {
            let waits = pending.filter(|pending| {
                let patience = if pending.others.is_empty() { MEMBERS_PATIENCE } else { JOIN_PATIENCE };
                now.duration_since(pending.since) >= patience
            });
            let text = waits.map_or_else(|| "joining".to_owned(), |pending| waits_for(&pending.others, config));
            said(text, false, true)
        }
        LeaseState::Refused { error_code, remedy } => {
            said(format!("refused with {}: {remedy}", ErrorCode(*error_code)), true, true)
        }
        LeaseState::Held { slots, .. } => said(format!("held ({} of 240 slots)", slots.len()), false, false),
        LeaseState::Rebalancing { .. } => said("rebalancing".to_owned(), false, false),
        LeaseState::Lapsed { .. } => said(LAPSED.to_owned(), true, true),
        LeaseState::CoordinatorUnavailable { lapsed: true, .. } if holds => {
            said(format!("{LAPSED}; the group's coordinator is unavailable"), true, true)
        }
        LeaseState::CoordinatorUnavailable { since, .. } => {
            let lasts = now.duration_since(*since) >= COORDINATOR_PATIENCE;
            said("the group's coordinator is unavailable".to_owned(), lasts, !holds)
        }
        LeaseState::Stopped { reason } => said(reason.to_string(), !matches!(reason, LeaseLost::Left { .. }), false),
    }
}

/// When the words may change although nothing happens to the lease.
pub(super) fn next_change(state: &LeaseState, pending: Option<&Pending>) -> Option<Instant> {
    let joins = pending.map(|pending| pending.since + if pending.asked { MEMBERS_PATIENCE } else { JOIN_PATIENCE });
    let lasts = match state {
        LeaseState::CoordinatorUnavailable { since, .. } => Some(*since + COORDINATOR_PATIENCE),
        _ => None,
    };
    [joins, lasts].into_iter().flatten().min()
}

fn waits_for(others: &[String], config: &LeaseConfig) -> String {
    match others {
        [] => format!(
            "joining: waits for other members, at most {} s",
            config.rebalance_timeout().as_secs().max(config.session_timeout().as_secs())
        ),
        [one] => format!(
            "joining: waits for the former member (instance {one}) until its session ends, at most {} s; a member that \
             lives answers sooner",
            config.session_timeout().as_secs()
        ),
        several => format!(
            "joining: waits for {} other members (instances {}) until they answer or their sessions end, at most {} s",
            several.len(),
            several.iter().take(5).cloned().collect::<Vec<_>>().join(", "),
            config.session_timeout().as_secs()
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mirror::lease::SlotSet;

    fn config() -> LeaseConfig {
        LeaseConfig::new("__towpath.A.B", "0123456789abcdef", Duration::from_secs(30)).unwrap()
    }

    fn said(state: &LeaseState, holds: bool, pending: Option<&Pending>, now: Instant) -> Words {
        words(state, holds, pending, &config(), now)
    }

    #[test]
    fn a_lapse_is_said_although_the_coordinator_is_unavailable() {
        let now = Instant::now();
        let state = |lapsed| LeaseState::CoordinatorUnavailable { since: now, error_code: None, lapsed };
        let lapsed = said(&state(true), true, None, now);
        assert!(lapsed.text.starts_with(LAPSED) && lapsed.alarming && lapsed.stands, "{lapsed:?}");
        let proven = said(&state(false), true, None, now);
        assert!(proven.text == "the group's coordinator is unavailable" && !proven.stands, "{proven:?}");
        // Nothing is held: there is nothing that could lapse.
        let starting = said(&state(true), false, None, now);
        assert!(starting.text == proven.text && starting.stands, "{starting:?}");
        let held = LeaseState::Lapsed { slots: SlotSet::ALL, since: now };
        assert_eq!(said(&held, true, None, now), Words { text: LAPSED.to_owned(), alarming: true, stands: true });
    }

    #[test]
    fn a_coordinator_alarms_once_it_is_unavailable_for_long() {
        let now = Instant::now();
        let state = LeaseState::CoordinatorUnavailable { since: now, error_code: None, lapsed: true };
        assert!(!said(&state, false, None, now).alarming);
        let later = next_change(&state, None).unwrap();
        assert_eq!(later, now + Duration::from_secs(10));
        assert!(said(&state, false, None, later).alarming);
    }

    #[test]
    fn a_join_that_waits_says_for_whom_and_how_long() {
        let now = Instant::now();
        let state = LeaseState::Joining { since: now };
        let mut pending = Pending { since: now, asked: false, others: Vec::new() };
        assert_eq!(said(&state, false, Some(&pending), now).text, "joining");
        let asks = next_change(&state, Some(&pending)).unwrap();
        pending.asked = true;
        assert_eq!((asks, said(&state, false, Some(&pending), asks).text.as_str()), (now + JOIN_PATIENCE, "joining"));
        let later = next_change(&state, Some(&pending)).unwrap();
        let text = |pending: &Pending| said(&state, false, Some(pending), later).text;
        assert_eq!(text(&pending), "joining: waits for other members, at most 90 s");
        pending.others.push("feed".to_owned());
        assert!(
            text(&pending).starts_with(
                "joining: waits for the former member (instance feed) until its session ends, at most 30 s"
            )
        );
        pending.others.push("beef".to_owned());
        assert!(text(&pending).contains("2 other members (instances feed, beef)"));
    }
}
