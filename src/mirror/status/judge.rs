//! Makes one partition's row of what its record, the source and the target say. No I/O, no clock.

use super::{CONFIRMED_WITHIN, PartitionView, RangeView};
use crate::{
    mirror::{
        anchor::{Anchor, AnchorError, Record},
        partition::{Lost, go_on},
        watchdog::HELD_BOUND,
    },
    protocol::TopicId,
};

/// What is known of a partition.
#[derive(Debug, Clone)]
pub struct Found {
    /// Topic at the source.
    pub topic: String,
    /// Its number.
    pub partition: i32,
    /// Name of the copy.
    pub remote_topic: String,
    /// What it recorded last; `None`: nothing.
    pub record: Option<Result<Record, AnchorError>>,
    /// The source's word.
    pub source: SourceSays,
    /// The source's cluster id, where it is known.
    pub source_cluster: Option<String>,
    /// The target's word.
    pub target: TargetSays,
    /// Two flows would write it: why it is not copied.
    pub refused: Option<String>,
    /// Whether a mirror of the flow runs; `None`: not known.
    pub mirror_runs: Option<bool>,
}

/// What the source says of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceSays {
    /// It could not be asked.
    Nothing,
    /// The flow does not copy it any more: it is gone, or not among `topics`.
    NotCopied,
    /// It could not say where its log ends.
    Exists(TopicId),
    /// Where its log ends, and how far readers may read.
    Ends {
        /// Of the topic; zero where there is none.
        topic_id: TopicId,
        /// The high watermark.
        end: i64,
        /// The last stable offset, or the end where all is read.
        readable: i64,
    },
}

/// What the target says of the remote topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetSays {
    /// It is not there.
    Missing,
    /// Its id; zero where there is none.
    Exists(TopicId),
}

/// States that say how a mirror was busy, which only one that runs still is.
const COPIES: [&str; 4] = ["copying", "caught-up", "held-by-transaction", "anchoring"];
const LEFT: &str = "draining";

/// One partition as it is at `now_ms`.
#[must_use]
pub fn judge(found: &Found, now_ms: i64) -> PartitionView {
    let mut row = PartitionView {
        topic: found.topic.clone(),
        partition: found.partition,
        remote_topic: found.remote_topic.clone(),
        state: String::new(),
        copying: false,
        reason: None,
        remedy: None,
        awaits_decision: false,
        since_ms: None,
        source_offset: None,
        target_offset: None,
        confirmed_ms: None,
        source_end: None,
        lag_records: None,
        lost_records: 0,
        truncated_records: 0,
        foreign_records: 0,
        losses: Vec::new(),
    };
    let anchor = match &found.record {
        Some(Ok(Record::Anchor(anchor))) => Some(anchor),
        _ => None,
    };
    if let Some(anchor) = anchor {
        fill(&mut row, anchor);
    }
    if let SourceSays::Ends { end, .. } = found.source {
        row.source_end = Some(end);
    }
    let (state, reason) = state(found, anchor, &mut row, now_ms);
    row.copying = matches!(state.as_str(), "copying" | "caught-up" | "left-out")
        || state == "held-by-transaction" && row.since_ms.is_none_or(|since| now_ms - since < held_bound_ms());
    row.reason = reason;
    row.state = state;
    row
}

fn held_bound_ms() -> i64 {
    i64::try_from(HELD_BOUND.as_millis()).unwrap_or(i64::MAX)
}

fn fill(row: &mut PartitionView, anchor: &Anchor) {
    row.source_offset = Some(anchor.position.source_next);
    row.target_offset = Some(anchor.position.target_next);
    row.confirmed_ms = anchor.notes.at_ms;
    let passed = anchor.notes.passed;
    (row.lost_records, row.truncated_records, row.foreign_records) = (passed.lost, passed.truncated, passed.foreign);
    let range = |lost: &Lost| RangeView { first: lost.from, last: lost.to - 1, records: lost.to - lost.from };
    row.losses = anchor.notes.losses.iter().map(range).collect();
}

/// The state and its reason; the rest goes into the row.
fn state(found: &Found, anchor: Option<&Anchor>, row: &mut PartitionView, now_ms: i64) -> (String, Option<String>) {
    let said = |state: &str, reason: String| (state.to_owned(), Some(reason));
    if let Some(why) = &found.refused {
        row.remedy = Some("give each flow its own topics, or use DefaultReplicationPolicy".to_owned());
        return said("two-writers", why.clone());
    }
    let record = match &found.record {
        Some(Ok(record)) => record,
        Some(Err(error)) => {
            resume_anew(row);
            return said("position-unknown", format!("its record cannot be read: {error}"));
        }
        None => return unseen(found, row),
    };
    row.since_ms = record.since_ms();
    if let Some(incident) = record.incident() {
        row.lag_records = lag(found, anchor);
        row.awaits_decision = go_on(record.state()).is_some() || record.state() == "position-unknown";
        row.remedy = Some(incident.remedy.clone()).filter(|remedy| !remedy.is_empty());
        return said(record.state(), incident.reason.clone());
    }
    if found.source == SourceSays::NotCopied {
        return said("left-out", "the source topic is gone, or not among topics any more".to_owned());
    }
    if let Some(changed) = anchor.and_then(|anchor| changed(found, anchor)) {
        row.since_ms = None;
        return changed;
    }
    row.lag_records = lag(found, anchor);
    if found.mirror_runs != Some(false) && !COPIES.contains(&record.state()) && record.state() != LEFT {
        return (record.state().to_owned(), record.waits().map(str::to_owned));
    }
    let Some(anchor) = anchor else {
        return said("not-running", "it waited before it was ever copied, and no mirror runs now".to_owned());
    };
    by_lag(found, anchor, row, now_ms)
}

/// A partition that nothing waits for: what the distance to the source's end says.
fn by_lag(found: &Found, anchor: &Anchor, row: &mut PartitionView, now_ms: i64) -> (String, Option<String>) {
    let since = row.since_ms.take();
    let Some(lag) = row.lag_records else {
        let known = found.mirror_runs != Some(false);
        let reason = "where the source ends is not known".to_owned();
        return (if known { anchor.state.clone() } else { "not-running".to_owned() }, Some(reason));
    };
    if let SourceSays::Ends { readable, end, .. } = found.source
        && anchor.position.source_next >= readable
        && readable < end
    {
        row.since_ms = since.filter(|_| anchor.state == "held-by-transaction");
        let reason = format!("a producer's transaction is open at source offset {readable}; the source ends at {end}");
        return ("held-by-transaction".to_owned(), Some(reason));
    }
    if lag == 0 {
        row.since_ms = since.filter(|_| anchor.state == "caught-up");
        return ("caught-up".to_owned(), None);
    }
    if found.mirror_runs == Some(false) {
        row.remedy = Some("start a mirror: towpath run".to_owned());
        return ("not-running".to_owned(), Some("there is something to copy, and no mirror runs".to_owned()));
    }
    let silent_ms = anchor.notes.at_ms.map(|at| now_ms - at);
    let bound_ms = i64::try_from(CONFIRMED_WITHIN.as_millis()).unwrap_or(i64::MAX);
    // Caught up, and something came just now: how long it has waited cannot be told from here.
    let was_busy = anchor.state != "caught-up" && anchor.state != "held-by-transaction";
    if let Some(silent_ms) = silent_ms.filter(|silent_ms| was_busy && *silent_ms > bound_ms) {
        let reason = format!("a mirror runs, but confirmed no position for {} s; see its log", silent_ms / 1000);
        return ("not-moving".to_owned(), Some(reason));
    }
    row.since_ms = since.filter(|_| anchor.state == "copying");
    ("copying".to_owned(), None)
}

/// A partition that never recorded anything.
fn unseen(found: &Found, row: &mut PartitionView) -> (String, Option<String>) {
    let said = |state: &str, reason: &str| (state.to_owned(), Some(reason.to_owned()));
    let remedy = if found.mirror_runs == Some(true) { "see the mirror's log" } else { "start a mirror: towpath run" };
    row.remedy = Some(remedy.to_owned());
    match found.target {
        TargetSays::Missing => said("target-missing", "the remote partition does not exist"),
        TargetSays::Exists(_) => said("never-seen", "no mirror of this flow recorded anything about it"),
    }
}

/// What is plain from both clusters although no mirror has recorded it yet.
fn changed(found: &Found, anchor: &Anchor) -> Option<(String, Option<String>)> {
    let differs = |one: TopicId, other: TopicId| !one.is_zero() && !other.is_zero() && one != other;
    let seen = "as it looks from here; a mirror that runs records it with its remedy";
    let said = |state: &str, what: String| Some((state.to_owned(), Some(format!("{what} ({seen})"))));
    match found.target {
        TargetSays::Missing => return said("target-gone", "the remote topic is gone".to_owned()),
        TargetSays::Exists(id) if differs(id, anchor.target_topic_id) => {
            return said("target-recreated", format!("the remote topic's id is {id}, not {}", anchor.target_topic_id));
        }
        TargetSays::Exists(_) => {}
    }
    let (SourceSays::Exists(id) | SourceSays::Ends { topic_id: id, .. }) = found.source else { return None };
    if let (Some(now), Some(former)) = (&found.source_cluster, &anchor.notes.source_cluster)
        && now != former
    {
        return said("source-cluster", format!("the source's cluster id is {now}, the copy was made from {former}"));
    }
    if differs(id, anchor.source_topic_id) {
        return said("source-recreated", format!("the source topic's id is {id}, not {}", anchor.source_topic_id));
    }
    let SourceSays::Ends { end, .. } = found.source else { return None };
    let position = anchor.position.source_next;
    (end < position).then(|| {
        let what = format!("the source ends at {end}, and was copied up to {position}");
        ("source-truncated".to_owned(), Some(format!("{what} ({seen})")))
    })
}

fn lag(found: &Found, anchor: Option<&Anchor>) -> Option<i64> {
    let SourceSays::Ends { topic_id, end, .. } = found.source else { return None };
    // Of another topic it would be a number without meaning.
    let anchor = anchor.filter(|anchor| anchor.source_topic_id == topic_id)?;
    Some((end - anchor.position.source_next).max(0))
}

fn resume_anew(row: &mut PartitionView) {
    row.awaits_decision = true;
    row.remedy = Some(format!(
        "towpath resume FILE --topic {} --recreate-target: deletes the remote topic and copies from the beginning",
        row.topic
    ));
}
