//! What an operator decided about a partition that stands (`towpath resume`), and what it answers.
//!
//! A decision names the incident it answers by a key: state code, offsets, topic ids. A partition carries it out only
//! while it stands for exactly that reason, and its next anchor names the decision, so that it is never carried out a
//! second time. The same holds for the decision to copy anew: it names the target topic that is to be left.

use serde::{Deserialize, Serialize};

use super::anchor::DecisionId;
use crate::protocol::TopicId;

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// What [`StopReason::go_on`](super::partition::StopReason::go_on) says of the incident.
    GoOn,
    /// Leave this target topic and copy from the beginning into the one that takes its name.
    CopyAnew,
}

/// One decision about one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Its name.
    pub id: DecisionId,
    /// What to do.
    pub action: Action,
    /// The incident's key, or [`copy_anew_key`].
    pub answers: String,
    /// The time of day in milliseconds when it was made.
    pub decided_ms: i64,
}

const COPY_ANEW: &str = "copy-anew:";

/// The key of a decision to leave these target topics.
#[must_use]
pub fn copy_anew_key(left: &[TopicId]) -> String {
    let ids: Vec<String> = left.iter().map(ToString::to_string).collect();
    format!("{COPY_ANEW}{}", ids.join(","))
}

impl Decision {
    /// Whether the target topic of this id is to be left. Nothing is copied into it any more.
    #[must_use]
    pub fn leaves(&self, topic: TopicId) -> bool {
        let left = self.answers.strip_prefix(COPY_ANEW).filter(|_| self.action == Action::CopyAnew);
        !topic.is_zero() && left.is_some_and(|left| left.split(',').any(|id| id == topic.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_to_leave_topics_names_them() {
        let (one, two, three) = (TopicId::new([1; 16]), TopicId::new([2; 16]), TopicId::new([3; 16]));
        let decision = |action, answers| Decision { id: DecisionId(1), action, answers, decided_ms: 0 };
        let leave = decision(Action::CopyAnew, copy_anew_key(&[one, two]));
        assert!(leave.leaves(one) && leave.leaves(two) && !leave.leaves(three));
        assert!(!decision(Action::CopyAnew, copy_anew_key(&[TopicId::ZERO])).leaves(TopicId::ZERO), "names none");
        assert!(!decision(Action::GoOn, copy_anew_key(&[one])).leaves(one));
    }
}
