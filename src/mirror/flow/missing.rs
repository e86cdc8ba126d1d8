//! Partitions of ours that have no place on the target: looked for again soon, shown, and written to the runs topic, since
//! what does not exist takes no commit.

use std::{collections::BTreeMap, time::Duration};

use super::{discovery::Refusal, running::Running};
use crate::{
    mirror::{
        anchor::{Incident, Record, Standing},
        partition::{PartitionState, StopReason},
        report::{AnchorOffer, CopyId},
    },
    protocol::{TopicId, TopicName, TopicPartition},
    wall_clock,
};

/// Between looks for partitions that the target refused to create, and for those it merely does not know yet.
const REFUSED_PAUSE: Duration = Duration::from_secs(30);
const MISSING_PAUSE: Duration = Duration::from_secs(1);
/// The number of no copy: shards pass over what became of its offers.
const NOBODY: CopyId = CopyId(u32::MAX);

/// One of them.
pub(super) struct Missing {
    pub(super) target: TopicName,
    /// It appeared while the flow ran.
    pub(super) appeared: bool,
}

/// What is known of them.
#[derive(Default)]
pub(super) struct MissingOnes {
    pub(super) partitions: BTreeMap<TopicPartition, Missing>,
    /// Why, as recorded last, by remote partition.
    recorded: BTreeMap<TopicPartition, String>,
}

impl Running<'_> {
    /// How long to wait before partitions without a place are looked for again, if there are any.
    pub(super) fn missing_pause(&self) -> Option<Duration> {
        let missing = &self.missing.partitions;
        let refused = |missing: &Missing| self.refusals.contains_key(&missing.target);
        let pause = if missing.values().all(refused) { REFUSED_PAUSE } else { MISSING_PAUSE };
        (!missing.is_empty()).then_some(pause)
    }

    pub(super) fn show_missing(&mut self) {
        let reason = |missing: &Missing| {
            let refusal = self.refusals.get(&missing.target).cloned();
            let Refusal { why, remedy } = refusal.unwrap_or_else(|| Refusal {
                why: "the target does not know it yet".into(),
                remedy: "it is looked for again by itself".into(),
            });
            StopReason::TargetMissing { why, remedy }
        };
        let rows: Vec<_> =
            self.missing.partitions.iter().map(|(source, missing)| (source, missing, reason(missing))).collect();
        self.flow.status.borrow_mut().missing = rows
            .iter()
            .map(|(source, _, reason)| (source.to_string(), PartitionState::Stopped(reason.clone())))
            .collect();
        let mut recorded = BTreeMap::new();
        let mut offers = Vec::new();
        // One that was created a moment ago is known soon, and nothing to write home about.
        for (source, missing, reason) in
            rows.iter().filter(|(_, missing, _)| self.refusals.contains_key(&missing.target))
        {
            let target = TopicPartition { topic: missing.target.clone(), partition: source.partition };
            let why = reason.to_string();
            if self.missing.recorded.get(&target) != Some(&why) {
                offers.push(offer(source, &target, reason));
            }
            recorded.insert(target, why);
        }
        // Full: it is offered again with the next look.
        if offers.is_empty() || self.anchor_offers.try_send(offers).is_ok() {
            self.missing.recorded = recorded;
        }
    }
}

fn offer(source: &TopicPartition, target: &TopicPartition, reason: &StopReason) -> AnchorOffer {
    let incident = Incident {
        key: reason.code().to_owned(),
        reason: reason.to_string(),
        remedy: reason.remedy_for(source.topic.as_str()),
    };
    let record = Record::Standing(Standing {
        state: reason.code().to_owned(),
        target_topic_id: TopicId::ZERO,
        decision: None,
        incident: Some(incident),
        waits: None,
        since_ms: Some(wall_clock::now_ms()),
    });
    let (source, target) = (source.clone(), target.clone());
    AnchorOffer { copy: NOBODY, source, target, record, breaks: Vec::new(), tail_bytes: 0 }
}
