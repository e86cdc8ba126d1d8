//! What people see of a flow.

use std::{cell::Cell, collections::BTreeMap, rc::Rc, sync::Arc};

use crate::mirror::{
    gauges::Gauges,
    observe::{Anchored, FlowObserved, Work},
    partition::{PartitionState, Progress},
    report::{Behind, CopyId, FlowReport, PartitionReport, Totals},
};

/// Partitions that a progress report names.
const NOTABLE_MAX: usize = 5;

/// What people see.
#[derive(Debug, Default)]
pub(crate) struct FlowStatus {
    name: String,
    state: String,
    /// What the lease keeps it waiting for.
    lease: Option<String>,
    /// It owned partitions, or would have.
    pub(super) began: bool,
    pub(super) partitions: BTreeMap<CopyId, (String, PartitionReport)>,
    /// Partitions that have no place on the target.
    pub(super) missing: BTreeMap<String, PartitionState>,
    /// Counters of partitions that were given up.
    pub(super) gone: Progress,
    /// No topic of the source matches `topics`.
    pub(super) matches_nothing: bool,
    /// The same by topic.
    gone_by_topic: BTreeMap<String, Progress>,
    /// How often partitions came to stand or wait, by topic and state code.
    incidents: BTreeMap<(String, &'static str), u64>,
    /// Commits of positions, counted by who makes them.
    pub(super) anchors: Rc<Cell<Anchored>>,
    ended: bool,
    /// One for each shard.
    pub(super) gauges: Vec<Arc<Gauges>>,
}

impl FlowStatus {
    /// Of a flow that has not reached its clusters yet.
    pub(crate) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), state: "reaching its clusters".into(), ..Self::default() }
    }

    /// What the flow itself is doing.
    pub(crate) fn set_state(&mut self, state: &str) {
        self.ended = false;
        state.clone_into(&mut self.state);
    }

    /// Why the lease keeps it from copying, if it does.
    pub(crate) fn set_lease(&mut self, lease: Option<String>) {
        self.lease = lease;
    }

    /// It does not run any more, for this reason.
    pub(crate) fn end(&mut self, why: &str) {
        self.lease = None;
        self.set_state(why);
        self.ended = true;
        // Their threads may be gone.
        self.gauges.clear();
    }

    /// Whether it ever came to copying.
    pub(crate) fn began(&self) -> bool {
        self.began
    }

    /// A partition as its worker shows it now.
    pub(super) fn note(&mut self, id: CopyId, name: String, row: PartitionReport) {
        let before = self.partitions.get(&id).map(|(_, row)| row.state.code());
        let code = row.state.code();
        let wrong = !row.state.is_ordinary() && !matches!(row.state, PartitionState::Draining);
        if wrong && before != Some(code) {
            *self.incidents.entry((topic_of(&name).0, code)).or_default() += 1;
        }
        self.partitions.insert(id, (name, row));
    }

    /// A partition is not copied here any more.
    pub(super) fn forget(&mut self, id: CopyId) {
        if let Some((name, row)) = self.partitions.remove(&id) {
            add(&mut self.gone, &row.progress);
            add(self.gone_by_topic.entry(topic_of(&name).0).or_default(), &row.progress);
        }
    }

    /// Everything, for whoever asks.
    pub(crate) fn observe(&self, wall_ms: i64) -> FlowObserved {
        let partition = |(name, row): &(String, PartitionReport)| {
            let (topic, number) = topic_of(name);
            (topic, number, row.clone())
        };
        FlowObserved {
            report: self.report(wall_ms),
            runs: self.began && !self.ended,
            lease_held: self.began && !self.ended && self.lease.is_none(),
            matches_nothing: self.matches_nothing,
            partitions: self.partitions.values().map(partition).collect(),
            missing: self.missing.iter().map(|(name, state)| (name.clone(), state.clone())).collect(),
            gone: self.gone_by_topic.clone(),
            incidents: self.incidents.clone(),
            work: Work::sum(&self.gauges),
            anchors: self.anchors.get(),
            alive_ms: self.gauges.iter().map(|gauges| gauges.alive_ms.get()).collect(),
        }
    }

    /// Whether no topic of the source matches `topics`.
    pub(crate) fn matches_nothing(&self) -> bool {
        self.matches_nothing
    }

    /// Sums and the notable partitions. `wall_ms` is the time of day in milliseconds.
    pub(crate) fn report(&self, wall_ms: i64) -> FlowReport {
        let partitions = self.partitions.len() + self.missing.len();
        let mut totals = Totals { partitions, progress: self.gone, ..Totals::default() };
        // Those that stand first: somebody must act.
        let (mut notable, mut waiting) = (Vec::new(), Vec::new());
        let rows = self.partitions.values().map(|(name, row)| (name, &row.state)).chain(&self.missing);
        for (name, state) in rows {
            let (count, list) = match state {
                PartitionState::Stopped(_) => (&mut totals.stopped, &mut notable),
                state if !state.is_ordinary() => (&mut totals.other, &mut waiting),
                PartitionState::CaughtUp => {
                    totals.caught_up += 1;
                    continue;
                }
                _ => continue,
            };
            *count += 1;
            if list.len() < NOTABLE_MAX {
                list.push((name.clone(), state.clone()));
            }
        }
        notable.extend(waiting);
        notable.truncate(NOTABLE_MAX);
        let mut furthest: Vec<(&str, &PartitionReport)> = Vec::with_capacity(NOTABLE_MAX + 1);
        for (name, row) in self.partitions.values() {
            totals.lag += row.lag;
            if row.lag > 0 && row.newest_timestamp >= 0 {
                totals.lag_ms = totals.lag_ms.max(wall_ms - row.newest_timestamp);
            }
            add(&mut totals.progress, &row.progress);
            if row.lag > 0 && row.state == PartitionState::Copying {
                let at = furthest.partition_point(|(_, before)| before.lag >= row.lag);
                if at < NOTABLE_MAX {
                    furthest.insert(at, (name, row));
                    furthest.truncate(NOTABLE_MAX);
                }
            }
        }
        let behind = |(name, row): (&str, &PartitionReport)| Behind {
            partition: name.to_owned(),
            lag: row.lag,
            lag_ms: (row.newest_timestamp >= 0).then(|| wall_ms - row.newest_timestamp),
        };
        let furthest = furthest.into_iter().map(behind).collect();
        let state = self.lease.as_ref().unwrap_or(&self.state).clone();
        FlowReport { name: self.name.clone(), state, totals, notable, furthest }
    }
}

/// Topic and number of a partition's name.
fn topic_of(name: &str) -> (String, i32) {
    let (topic, number) = name.rsplit_once('-').unwrap_or((name, ""));
    (topic.to_owned(), number.parse().unwrap_or(-1))
}

/// Adds counters up.
pub(crate) fn add(sum: &mut Progress, one: &Progress) {
    sum.records += one.records;
    sum.bytes_in += one.bytes_in;
    sum.bytes_out += one.bytes_out;
    sum.batches += one.batches;
    sum.opened.merge(&one.opened);
    sum.sealed_append_time.add(one.sealed_append_time.batches, one.sealed_append_time.bytes);
    sum.empty_batches += one.empty_batches;
    sum.control_batches += one.control_batches;
    sum.aborted_records += one.aborted_records;
    sum.lost_records += one.lost_records;
    sum.truncated_records += one.truncated_records;
    sum.foreign_records += one.foreign_records;
    sum.already_there += one.already_there;
    sum.bytes_in_vain += one.bytes_in_vain;
}
