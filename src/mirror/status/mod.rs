//! `towpath status`: what the partitions of flows recorded on their targets, beside where the sources end now. Any machine
//! can ask, whether a mirror runs or not.
//!
//! `read` asks the clusters, [`judge()`] makes one partition's row of what they said, this file holds the words and what is
//! concluded from them.

mod judge;
mod read;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;

pub use judge::{Found, SourceSays, TargetSays, judge};
pub use read::status;

/// A position that was not confirmed for so long, although something waits to be copied and a mirror runs, does not move.
/// Anchors follow records within seconds; the rest is for clocks that differ.
pub const CONFIRMED_WITHIN: Duration = Duration::from_secs(90);

/// One flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FlowView {
    /// `source->target`.
    pub flow: String,
    /// What is concluded.
    pub verdict: Verdict,
    /// What kept something from being known, or the flow as a whole from copying; a line each.
    pub problems: Vec<String>,
    /// Processes that are members of the flow's group; `None` if they could not be asked for.
    pub mirrors: Option<Vec<MirrorView>>,
    /// How many partitions are in each state.
    pub counts: BTreeMap<String, usize>,
    /// Sum of the partitions whose lag is known.
    pub lag_records: i64,
    /// Partitions whose lag is not known.
    pub lag_unknown: usize,
    /// Offsets lost at the source before they were copied, since the copies began.
    pub lost_records: u64,
    /// Offsets that the source lost after they were copied.
    pub truncated_records: u64,
    /// Records of other writers on the target, passed over.
    pub foreign_records: u64,
    /// All partitions, by topic and number.
    pub partitions: Vec<PartitionView>,
}

/// What is concluded of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every partition is copied or caught up.
    Copying,
    /// Some partition is not, or no mirror runs while there is something to copy, or nothing matches `topics`.
    NotCopying,
    /// A cluster could not be asked.
    Unknown,
}

/// One process of a flow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MirrorView {
    /// Names its state directory; brokers before 2.4 do not tell it.
    pub instance_id: Option<String>,
    /// As brokers see it.
    pub client_id: String,
    /// Where it connected from.
    pub host: String,
}

/// One partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PartitionView {
    /// At the source.
    pub topic: String,
    /// Its number.
    pub partition: i32,
    /// Name of the copy.
    pub remote_topic: String,
    /// A code of `docs/states.md`.
    pub state: String,
    /// Whether it is copied or caught up.
    pub copying: bool,
    /// Why it is in that state, with numbers.
    pub reason: Option<String>,
    /// What to do about it.
    pub remedy: Option<String>,
    /// Whether `towpath resume` can answer it, which waits for somebody to decide.
    pub awaits_decision: bool,
    /// Since when it is in that state, in milliseconds, as the mirror recorded it.
    pub since_ms: Option<i64>,
    /// Next source offset to copy: everything before it is on the target.
    pub source_offset: Option<i64>,
    /// Next target offset.
    pub target_offset: Option<i64>,
    /// When a mirror confirmed these two last, in milliseconds.
    pub confirmed_ms: Option<i64>,
    /// Where the source's log ends now.
    pub source_end: Option<i64>,
    /// Offsets between the two.
    pub lag_records: Option<i64>,
    /// Offsets lost at the source before they were copied, since the copy began.
    pub lost_records: u64,
    /// Offsets that the source lost after they were copied.
    pub truncated_records: u64,
    /// Records of other writers on the target, passed over.
    pub foreign_records: u64,
    /// The last losses, oldest first.
    pub losses: Vec<RangeView>,
}

/// Source offsets that were lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RangeView {
    /// The first.
    pub first: i64,
    /// The last.
    pub last: i64,
    /// How many.
    pub records: i64,
}

impl FlowView {
    /// Of a flow of which nothing is known yet.
    fn new(flow: String) -> Self {
        Self {
            flow,
            verdict: Verdict::Unknown,
            problems: Vec::new(),
            mirrors: None,
            counts: BTreeMap::new(),
            lag_records: 0,
            lag_unknown: 0,
            lost_records: 0,
            truncated_records: 0,
            foreign_records: 0,
            partitions: Vec::new(),
        }
    }

    /// Counts the partitions, and concludes. `complete` says that both clusters were asked.
    fn conclude(&mut self, complete: bool) {
        for row in &self.partitions {
            *self.counts.entry(row.state.clone()).or_default() += 1;
            match row.lag_records {
                Some(lag) => self.lag_records += lag,
                None => self.lag_unknown += 1,
            }
            self.lost_records += row.lost_records;
            self.truncated_records += row.truncated_records;
            self.foreign_records += row.foreign_records;
        }
        let stands = self.partitions.iter().any(|row| !row.copying);
        let nobody = self.mirrors.as_ref().is_some_and(Vec::is_empty);
        if complete && nobody {
            self.problems.push("no mirror runs: the flow's group has no member".to_owned());
        }
        self.verdict = match () {
            () if !complete => Verdict::Unknown,
            // A copy that was made to its end, and nobody needs to run.
            () if stands || self.partitions.is_empty() || nobody && self.lag_records + self.lag_unknown_i64() > 0 => {
                Verdict::NotCopying
            }
            () => Verdict::Copying,
        };
    }

    fn lag_unknown_i64(&self) -> i64 {
        i64::try_from(self.lag_unknown).unwrap_or(i64::MAX)
    }
}
