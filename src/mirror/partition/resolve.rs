//! How a partition goes on after something that makes it stand: by the settings, or by an operator's decision.
//!
//! Whatever was decided, the target is asked first, as after any failure. Then the new position and its break are made
//! durable before anything is sent, so that a crash right after the decision finds them: what is on the target under our
//! identity stays matchable, and the sequences go on.

use tokio::time::Instant;

use super::{
    locate::{Located, ProducerAnswer, SourceEnds},
    machine::{LOSSES_MAX, PartitionMachine, Phase},
    matching::Expected,
    state::StopReason,
    types::{Lost, PartitionSpec, TargetNotEmpty},
};
use crate::{
    batch::{BatchHeader, sequence},
    mirror::{
        anchor::{DecisionId, Incident, Notes, Position},
        decision::{Action, Decision},
    },
    protocol::{LeaderEpoch, TopicId, TopicPartition},
    simulation::{self, Planted},
};

/// What was decided, while it is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resolve {
    /// Copy behind what the target holds.
    Append,
    /// Copy again what the target lost.
    Rewind,
    /// Pass over what others wrote.
    Foreign,
    /// Go on at this source offset, where the common history ends.
    SourceAt(i64),
    /// Copy the source topic of this id from its beginning.
    SourceNew(TopicId),
}

/// Notices kept for the log until they are taken.
const NOTICES_MAX: usize = 16;
/// Attempts to record why a partition stands.
const RECORD_ATTEMPTS_MAX: u32 = 5;

/// Decisions of one partition, and what is known of its topics.
#[derive(Debug, Default)]
pub(super) struct Course {
    pub(super) resolving: Option<Resolve>,
    /// The source's ends as seen for it.
    ends: Option<SourceEnds>,
    /// Where the target's log ended when records of others were found in it, and how many they are.
    pub(super) foreign: Option<(i64, i64)>,
    /// Records of others before this target offset were accepted. It outlives another stop before the position is found.
    foreign_accepted: i64,
    /// The position before a rewind that is not proven yet.
    rewound: Option<Position>,
    /// The next loss is accepted.
    loss_accepted: bool,
    /// The last decision that was carried out.
    pub(super) decision: Option<DecisionId>,
    /// Counts positions that must be durable before anything is sent; the last one, and the one that was offered.
    position: u32,
    offered: u32,
    /// Something is recorded that is over once the partition goes on.
    recorded: bool,
    record_attempts: u32,
    /// The ids of both topics as last heard, if anything was.
    topics: Option<(Option<TopicId>, Option<TopicId>)>,
    notices: Vec<String>,
}

impl Course {
    pub(super) fn new(notes: Option<&Notes>) -> Self {
        Self {
            decision: notes.and_then(|notes| notes.decision),
            recorded: notes.is_some_and(|notes| notes.incident.is_some()),
            ..Self::default()
        }
    }

    pub(super) fn note_offered(&mut self) {
        self.offered = self.position;
    }

    pub(super) fn was_offered(&self) -> bool {
        self.offered == self.position
    }

    pub(super) fn may_offer_again(&mut self) -> bool {
        self.record_attempts += 1;
        self.record_attempts < RECORD_ATTEMPTS_MAX
    }

    fn notice(&mut self, notice: String) {
        if self.notices.len() < NOTICES_MAX {
            self.notices.push(notice);
        }
    }
}

impl PartitionMachine {
    /// Begins its life: looks whether its topics are still those of its anchor.
    pub(super) fn begin(&mut self, now: Instant) {
        if self.nameless && self.spec.anchor.is_some() {
            self.doubt();
        }
        if let Some(reason) = recreated(&self.spec) {
            self.stop(now, reason);
        }
    }

    /// The topics as now known: an id that changed means another topic of the same name.
    pub fn handle_topics(&mut self, now: Instant, source: Option<TopicId>, target: Option<TopicId>) {
        self.course.topics = Some((source, target));
        self.troubled = true;
        self.notice_topics(now);
        if let Phase::Stopped { reason, .. } = &self.phase
            && matches!(reason, StopReason::SourceGone | StopReason::TargetGone)
            && self.topic_trouble().is_none()
        {
            // It is back, and the same, or cannot be told from it yet.
            self.doubt_nameless();
            self.relocate(now);
        }
    }

    /// Acts on what is known of the topics. What was taken from the source before is still copied.
    pub(super) fn notice_topics(&mut self, now: Instant) {
        let Some(trouble) = self.topic_trouble() else {
            self.troubled = false;
            return;
        };
        match &self.phase {
            Phase::Stopped { reason, .. } if reason.code() == trouble.code() => {}
            // Stands for another reason; the target topic it is about is gone.
            Phase::Stopped { reason, .. } if !self.mute && supersedes(&trouble, reason) => {
                self.stop(now, trouble);
            }
            Phase::Stopped { .. } => {}
            _ if matches!(trouble, StopReason::SourceGone | StopReason::SourceRecreated { .. }) => {
                let copying = matches!(self.phase, Phase::Anchoring | Phase::Copying | Phase::Settling { .. });
                if !copying || self.is_empty() {
                    self.stop(now, trouble);
                } else {
                    self.blocked.get_or_insert_with(|| Box::new(trouble));
                }
            }
            _ => self.stop(now, trouble),
        }
    }

    /// Whether the reason of a stop that is tried again is still there for sure.
    pub(super) fn is_still_gone(&self) -> bool {
        matches!(self.topic_trouble(), Some(StopReason::SourceGone | StopReason::TargetGone))
    }

    fn topic_trouble(&self) -> Option<StopReason> {
        let (source, target) = self.course.topics?;
        let Some(target) = target else {
            return Some(StopReason::TargetGone);
        };
        let known = self.spec.anchor.as_ref().filter(|_| !self.located);
        let anchored = known.map_or(self.spec.target_topic_id, |anchor| anchor.target_topic_id);
        if differs(anchored, target) {
            let expected = self.acked.target_next;
            return Some(StopReason::TargetRecreated { anchored, found: target, expected });
        }
        let Some(source) = source else {
            return Some(StopReason::SourceGone);
        };
        let anchored = known.map_or(self.spec.source_topic_id, |anchor| anchor.source_topic_id);
        if differs(anchored, source) && self.course.resolving != Some(Resolve::SourceNew(source)) {
            let position = self.pipeline.in_flight().next_back().map_or(self.acked, |last| last.after).source_next;
            return Some(StopReason::SourceRecreated { anchored, found: source, position });
        }
        None
    }

    /// Why the partition stands, to be recorded; `None` if it does not.
    #[must_use]
    pub fn incident(&self) -> Option<Incident> {
        let Phase::Stopped { reason, .. } = &self.phase else {
            return None;
        };
        let remedy = reason.remedy_for(self.spec.source.topic.as_str());
        Some(Incident { key: self.incident_key(reason), reason: reason.to_string(), remedy })
    }

    /// Names this incident and no other one. Found again after a restart, it has the same key.
    fn incident_key(&self, reason: &StopReason) -> String {
        let code = reason.code();
        let target = self.spec.anchor.as_ref().map_or(self.spec.target_topic_id, |anchor| anchor.target_topic_id);
        match reason {
            StopReason::RecordsLost { from, .. } => format!("{code}:{from}"),
            StopReason::SourceTruncated { position, end } => format!("{code}:{position},{end}"),
            StopReason::SourceCluster { anchored, found, .. } => format!("{code}:{anchored},{found}"),
            StopReason::SourceRecreated { anchored, position, .. } if anchored.is_zero() => {
                format!("{code}:{position}")
            }
            StopReason::SourceRecreated { anchored, found, .. } => format!("{code}:{anchored},{found}"),
            StopReason::ForeignWrite { from, .. } => format!("{code}:{target},{from}"),
            StopReason::TargetTruncated { expected, end } => format!("{code}:{target},{expected},{end}"),
            StopReason::TargetRecreated { anchored, found, .. } => format!("{code}:{anchored},{found}"),
            StopReason::TargetGone => format!("{code}:{target}"),
            StopReason::TargetNotEmpty { .. } => format!("{code}:{}", self.spec.target_topic_id),
            _ => format!("{code}:{},{}", self.acked.source_next, self.acked.target_next),
        }
    }

    /// An operator decided. Returns whether this partition stands for what was decided about, and goes on now.
    pub fn decide(&mut self, now: Instant, decision: &Decision) -> bool {
        let Phase::Stopped { reason, .. } = &self.phase else {
            return false;
        };
        if decision.action != Action::GoOn
            || self.course.decision == Some(decision.id)
            || self.incident_key(reason) != decision.answers
        {
            return false;
        }
        let reason = reason.clone();
        let resolve = match &reason {
            StopReason::RecordsLost { .. } => {
                self.course.loss_accepted = true;
                None
            }
            StopReason::TargetNotEmpty { .. } => Some(Resolve::Append),
            StopReason::TargetTruncated { .. } => Some(Resolve::Rewind),
            other => match resolution(other) {
                Some(resolve) => Some(resolve),
                None => return false,
            },
        };
        self.course.decision = Some(decision.id);
        self.go_on_with(now, resolve, &reason, "decided");
        true
    }

    /// Whether the settings say how to go on.
    pub(super) fn goes_on_by_policy(&mut self, now: Instant, reason: &StopReason) -> bool {
        let policies = self.settings.policies;
        let allowed = match reason {
            StopReason::ForeignWrite { .. } => policies.foreign_continues,
            StopReason::SourceTruncated { .. } => policies.truncated_continues,
            StopReason::SourceRecreated { .. } => policies.recreated_appends,
            _ => false,
        };
        match resolution(reason).filter(|_| allowed) {
            Some(resolve) => {
                self.go_on_with(now, Some(resolve), reason, "set so");
                true
            }
            None => false,
        }
    }

    fn go_on_with(&mut self, now: Instant, resolve: Option<Resolve>, reason: &StopReason, why: &str) {
        let how = reason.go_on().unwrap_or("goes on");
        self.course.notice(format!("{reason}; {why}: it {how}"));
        if let StopReason::SourceTruncated { position, end } = reason {
            self.progress.truncated_records += u64::try_from(position - end).unwrap_or(0);
        }
        if let StopReason::ForeignWrite { to, .. } = reason {
            self.course.foreign_accepted = *to;
        }
        // What was decided about another topic of the same name is forgotten with this: it is noticed again.
        self.troubled = true;
        self.course.resolving = resolve;
        self.course.foreign = None;
        self.corrupt_attempts = 0;
        self.relocate(now);
    }

    pub(super) fn note_stopped(&mut self) {
        self.troubled = true;
        self.anchor_dirty = true;
        self.course.resolving = None;
        self.course.foreign = None;
        self.course.recorded = true;
        self.course.record_attempts = 0;
    }

    /// A position is found; what was recorded and decided is over.
    pub(super) fn note_course_over(&mut self) {
        self.course.foreign_accepted = 0;
        self.course.resolving = None;
        self.course.foreign = None;
        if self.course.rewound.take().is_some() {
            self.mute = false;
        }
        self.anchor_dirty |= std::mem::take(&mut self.course.recorded);
        if matches!(self.phase, Phase::Anchoring) {
            self.course.position += 1;
        }
    }

    /// For the log: what the partition went on behind.
    pub fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.course.notices)
    }

    /// A new position that does not follow from the former one: its break and its anchor become durable first.
    fn go_on_at(&mut self, position: Position, epoch: LeaderEpoch) {
        self.anchored = false;
        self.anchor_dirty = true;
        self.run = None;
        self.count_run(position.source_next, position.target_next);
        self.begin_copying(position, epoch);
    }

    /// Records were gone from the source before they were copied. Called when nothing waits to be copied.
    pub(super) fn lose(&mut self, now: Instant, lost: Lost) {
        let reason = StopReason::RecordsLost { from: lost.from, to: lost.to };
        // Stopping would lose more (`design.md` 6), so it is not the default.
        if !self.settings.policies.loss_continues && !std::mem::take(&mut self.course.loss_accepted) {
            self.stop(now, reason);
            return;
        }
        self.note_lost(lost);
        self.go_on_at(Position { source_next: lost.to, ..self.acked }, LeaderEpoch::NONE);
        self.fetch_succeeded();
    }

    fn note_lost(&mut self, lost: Lost) {
        let misnamed = i64::from(simulation::has(Planted::LossMisnamed));
        let TopicPartition { topic, partition } = &self.spec.source;
        simulation::note_loss(topic.as_str(), partition.0, lost.from + misnamed, lost.to);
        self.progress.lost_records += u64::try_from(lost.to - lost.from).unwrap_or(0);
        if self.losses.len() < LOSSES_MAX {
            self.losses.push(lost);
        }
    }

    /// Carries a decision out with what both logs' ends say. False if the usual way leads on.
    pub(super) fn resolve_located(&mut self, now: Instant, located: &Located) -> bool {
        let Some(resolve) = self.course.resolving else {
            return false;
        };
        self.course.ends = located.source;
        let (base, target) = (self.acked, located.target);
        match resolve {
            Resolve::Foreign => return false,
            Resolve::Append => {
                self.course.resolving = None;
                self.first_start(now, located, TargetNotEmpty::Append);
            }
            // It has them again.
            Resolve::Rewind if target.end >= base.target_next => {
                self.course.resolving = None;
                return false;
            }
            Resolve::Rewind if target.end > target.start => self.read_tail(now, target.end - 1, target.end),
            Resolve::Rewind if target.end == 0 => self.begin_again(now, located),
            Resolve::Rewind => {
                let why =
                    format!("the target holds nothing before offset {} that says where the copy stood", target.end);
                self.stop(now, StopReason::PositionUnknown { why });
            }
            Resolve::SourceAt(_) | Resolve::SourceNew(_) => {
                if target.end < base.target_next {
                    self.stop(now, StopReason::TargetTruncated { expected: base.target_next, end: target.end });
                } else if target.end == base.target_next {
                    self.behind_former_source(now, base);
                } else if let Some(next_sequence) = only_ours(base, located, self.identity.producer_epoch) {
                    self.behind_former_source(now, Position { target_next: target.end, next_sequence, ..base });
                } else if target.start > base.target_next {
                    let why = format!(
                        "the target holds offsets {} to {}; what was written from {} on is gone there",
                        target.start, target.end, base.target_next
                    );
                    self.stop(now, StopReason::PositionUnknown { why });
                } else {
                    self.read_tail(now, base.target_next, target.end);
                }
            }
        }
        true
    }

    /// Whether records of others up to this target offset were accepted before.
    pub(super) fn accepts_foreign(&self, to: i64) -> bool {
        to <= self.course.foreign_accepted
    }

    fn read_tail(&mut self, now: Instant, from: i64, to: i64) {
        self.phase = Phase::ReadingTail { from, to, asked: false, not_before: now, records: false };
    }

    /// Carries a decision out with the headers of the target's tail.
    pub(super) fn resolve_tail(&mut self, now: Instant, tail: Vec<BatchHeader>) {
        match self.course.resolving {
            // All of it is ours, and came from the source as it was.
            Some(Resolve::SourceAt(_) | Resolve::SourceNew(_)) => {
                let target_next = tail.last().map_or(self.acked.target_next, BatchHeader::next_offset);
                let ours = tail.iter().rev().find(|header| self.is_ours(header));
                let next_sequence = ours
                    .map_or(self.acked.next_sequence, |last| sequence::advance(last.base_sequence, last.records_count));
                let position = Position { target_next, next_sequence, ..self.acked };
                if let Some((_, records)) = self.course.foreign.take() {
                    self.progress.foreign_records += u64::try_from(records).unwrap_or(0);
                }
                self.behind_former_source(now, position);
            }
            _ => {
                let ours =
                    tail.into_iter().filter(|header| self.is_ours(header)).collect::<std::collections::VecDeque<_>>();
                if ours.is_empty() {
                    let (position, epoch) = (self.acked, self.acked_epoch);
                    if !self.matched_by_decision(position, epoch) {
                        self.begin_copying(position, epoch);
                    }
                } else {
                    self.begin_matching(now, Expected::Headers { batches: ours });
                }
            }
        }
    }

    /// Everything of ours was found: the position behind it, where a decision moves it.
    pub(super) fn matched_by_decision(&mut self, mut position: Position, epoch: LeaderEpoch) -> bool {
        if let Some((end, records)) = self.course.foreign.take() {
            position.target_next = end;
            self.progress.foreign_records += u64::try_from(records).unwrap_or(0);
        } else if self.course.rewound.is_none() {
            return false;
        }
        self.go_on_at(position, epoch);
        true
    }

    /// The target ends where its log does; the source is read from where the decision says.
    fn behind_former_source(&mut self, now: Instant, end: Position) {
        let (Some(ends), Some(resolve)) = (self.course.ends, self.course.resolving) else {
            // Not asked for; ask again rather than guess.
            self.relocate(now);
            return;
        };
        let source_next = match resolve {
            Resolve::SourceNew(id) => {
                self.spec.source_topic_id = id;
                self.nameless = id.is_zero();
                self.cut_past(None);
                ends.start
            }
            Resolve::SourceAt(offset) => {
                self.cut_past(Some(offset));
                if ends.start > offset {
                    self.note_lost(Lost { from: offset, to: ends.start });
                }
                offset.max(ends.start)
            }
            _ => end.source_next,
        };
        self.goal = Some(ends.readable_end);
        self.go_on_at(Position { source_next, ..end }, LeaderEpoch::NONE);
    }

    /// Nothing of the copy is left, and it can be told from nothing else: it begins anew.
    fn begin_again(&mut self, now: Instant, located: &Located) {
        let Some(source) = located.source else {
            self.relocate(now);
            return;
        };
        let next_sequence = match located.producer {
            ProducerAnswer::Known { last_sequence, .. } => sequence::advance(last_sequence, 1),
            _ => sequence::of_offset(source.start),
        };
        let position = Position { source_next: source.start, target_next: 0, next_sequence };
        self.go_on_at(position, LeaderEpoch::NONE);
    }

    /// The last batch that the target still has: the source holds it at an offset that is as far back, if the copy is a
    /// plain one, and matching proves that. The former position is kept until then.
    pub(super) fn rewind(&mut self, now: Instant, tail: &[BatchHeader]) {
        let Phase::ReadingTail { to, .. } = self.phase else {
            return;
        };
        let former = self.acked;
        let back = tail.last().filter(|last| last.next_offset() == to && self.is_ours(last)).and_then(|last| {
            let distance = former.target_next - last.base_offset;
            let by_sequence = i64::from(sequence::distance(last.base_sequence, former.next_sequence));
            (distance <= former.source_next && by_sequence == distance % (1 << 31)).then_some((last, distance))
        });
        let Some((last, distance)) = back else {
            let why = format!("the target's last batch before offset {to} does not say where it came from");
            self.stop(now, StopReason::PositionUnknown { why });
            return;
        };
        self.acked = Position {
            source_next: former.source_next - distance,
            target_next: last.base_offset,
            next_sequence: last.base_sequence,
        };
        self.acked_epoch = LeaderEpoch::NONE;
        self.course.rewound = Some(former);
        self.mute = true;
        self.begin_matching(now, Expected::Headers { batches: [*last].into() });
    }

    /// A rewind that was not proven did not happen.
    pub(super) fn undo_rewind(&mut self) {
        if let Some(former) = self.course.rewound.take() {
            self.mute = false;
            self.acked = former;
            self.prepared = former;
        }
    }
}

/// How a partition that stands for this reason goes on, where the reason alone tells.
fn resolution(reason: &StopReason) -> Option<Resolve> {
    match reason {
        StopReason::ForeignWrite { .. } => Some(Resolve::Foreign),
        StopReason::SourceTruncated { end, .. } => Some(Resolve::SourceAt(*end)),
        StopReason::SourceCluster { topic: found, .. } | StopReason::SourceRecreated { found, .. } => {
            Some(Resolve::SourceNew(*found))
        }
        _ => None,
    }
}

/// The next sequence, if only we wrote behind the base.
fn only_ours(base: Position, located: &Located, epoch: i16) -> Option<i32> {
    let ProducerAnswer::Known { producer_epoch, last_sequence } = located.producer else {
        return None;
    };
    let next = sequence::advance(last_sequence, 1);
    let wrote = i64::from(sequence::distance(base.next_sequence, next));
    (producer_epoch == epoch && wrote == located.target.end - base.target_next).then_some(next)
}

/// Whether what happened to a topic makes what the partition stands for moot.
fn supersedes(trouble: &StopReason, reason: &StopReason) -> bool {
    match trouble {
        StopReason::TargetGone | StopReason::TargetRecreated { .. } => true,
        // Any other reason comes first: what it needs is decided about the former source.
        StopReason::SourceRecreated { .. } => matches!(reason, StopReason::SourceGone),
        _ => false,
    }
}

fn recreated(spec: &PartitionSpec) -> Option<StopReason> {
    let anchor = spec.anchor.as_ref()?;
    let Position { source_next: position, target_next: expected, .. } = anchor.position;
    if differs(anchor.target_topic_id, spec.target_topic_id) {
        let (anchored, found) = (anchor.target_topic_id, spec.target_topic_id);
        return Some(StopReason::TargetRecreated { anchored, found, expected });
    }
    if let Some(anchored) = anchor.notes.source_cluster.clone()
        && !spec.source_cluster.is_empty()
        && *anchored != *spec.source_cluster
    {
        let (found, topic) = (spec.source_cluster.to_string(), spec.source_topic_id);
        return Some(StopReason::SourceCluster { anchored, found, topic, position });
    }
    if differs(anchor.source_topic_id, spec.source_topic_id) {
        let (anchored, found) = (anchor.source_topic_id, spec.source_topic_id);
        return Some(StopReason::SourceRecreated { anchored, found, position });
    }
    None
}

/// Two ids that are known and not the same. Brokers before 2.8 have none, which proves nothing.
fn differs(one: TopicId, other: TopicId) -> bool {
    !one.is_zero() && !other.is_zero() && one != other
}
