//! Anchors: where the copy of a partition stood, durable on the target (`design.md` 4).
//!
//! An anchor is an offset commit under the lease's group: the committed offset is the next target offset, the metadata
//! text holds the rest. The text is versioned and made of `key=value` words; unknown words are kept out of the way, so
//! that a later version may add some, and a missing required one is an error that names it.
//!
//! A partition that stands says so here too, so that any process can read it from the target: [`Record`] is what a commit
//! may hold, and [`Record::from_commit`] reads it. A partition that stands before it ever had a position has a
//! [`Standing`] only, which is no position: whoever looks for one must find none.

use super::partition::{Lost, PartitionState};
use crate::{
    batch::ProducerIdentity,
    protocol::{LeaderEpoch, TopicId},
};

/// A point both logs agree on: everything of the source before `source_next` that is to be copied lies on the target
/// before `target_next`, and the next batch carries `next_sequence`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Next source offset to copy.
    pub source_next: i64,
    /// Next target offset to write.
    pub target_next: i64,
    /// Next sequence of the identity, modulo 2^31.
    pub next_sequence: i32,
}

/// The settings that shape the bytes written. A tail is matched under the settings in its anchor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Whether aborted records were left out.
    pub read_committed: bool,
    /// Whether batches of LogAppendTime topics went sealed.
    pub sealed_append_time: bool,
}

/// A durable pair of positions with all that is needed to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anchor {
    /// Where both logs agree.
    pub position: Position,
    /// Of the source topic; zero where there is none.
    pub source_topic_id: TopicId,
    /// Of the target topic; zero where there is none.
    pub target_topic_id: TopicId,
    /// Leader epoch of the last source batch taken, for truncation detection.
    pub leader_epoch: LeaderEpoch,
    /// What the partition writes under.
    pub identity: ProducerIdentity,
    /// How the bytes were made.
    pub shape: Shape,
    /// `PartitionState::code` when it was written.
    pub state: String,
    /// What is known beside the position; anchors of earlier versions have none of it.
    pub notes: Notes,
}

/// What an anchor says beside the position.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Notes {
    /// Where the last leader epochs of what was copied begin on the source, oldest first; at most [`HISTORY_MAX`].
    pub history: Vec<EpochStart>,
    /// A batch of the source that was copied; only where the source has no topic ids.
    pub mark: Option<Mark>,
    /// Cluster id of the source; none where it has none, and in anchors of earlier versions.
    pub source_cluster: Option<String>,
    /// The last decision that was carried out.
    pub decision: Option<DecisionId>,
    /// Why the partition stands, if it does.
    pub incident: Option<Incident>,
    /// The last losses at the source, oldest first; at most [`RECORDED_LOSSES_MAX`].
    pub losses: Vec<Lost>,
    /// What was lost and passed over since the copy began.
    pub passed: Passed,
    /// What the partition waits for, if that lasts.
    pub waits: Option<String>,
    /// When the position was seen to be this one, in milliseconds.
    pub at_ms: Option<i64>,
    /// Since when the state is this one, in milliseconds.
    pub since_ms: Option<i64>,
}

/// Losses that an anchor names one by one.
pub const RECORDED_LOSSES_MAX: usize = 8;

/// Counts over the life of a copy, all incarnations together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Passed {
    /// Offsets lost at the source before they were copied.
    pub lost: u64,
    /// Offsets that the source lost after they were copied.
    pub truncated: u64,
    /// Records of other writers on the target.
    pub foreign: u64,
}

/// How a partition looks from outside, beside what its machine knows.
#[derive(Debug, Clone)]
pub struct Seen {
    /// `PartitionState::code`.
    pub state: &'static str,
    /// What it waits for.
    pub waits: Option<String>,
    /// Since when, in milliseconds.
    pub since_ms: i64,
    /// Now, in milliseconds, if the position is known to be the one recorded.
    pub at_ms: Option<i64>,
}

/// Epochs kept in an anchor: elections between two that matter for one truncation.
pub const HISTORY_MAX: usize = 4;

/// From this source offset on, batches carry this leader epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochStart {
    /// The epoch.
    pub epoch: LeaderEpoch,
    /// First offset.
    pub start: i64,
}

/// A source batch by which a topic is known again where it has no id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark {
    /// Its base offset.
    pub base_offset: i64,
    /// Its checksum.
    pub crc: u32,
}

/// Names a decision of an operator; random.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DecisionId(pub u64);

/// Why a partition stands, as recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incident {
    /// Names this incident and no other one: state code, offsets, topic ids. What a decision answers.
    pub key: String,
    /// For people.
    pub reason: String,
    /// What to do about it, for people; empty in records of earlier versions.
    pub remedy: String,
}

/// What a commit under the lease's group says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// A position.
    Anchor(Anchor),
    /// The partition stands and never had a position.
    Standing(Standing),
}

/// The record of a partition that stands and never had a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// `PartitionState::code`.
    pub state: String,
    /// Of the target topic; zero where there is none.
    pub target_topic_id: TopicId,
    /// The last decision that was carried out.
    pub decision: Option<DecisionId>,
    /// Why it stands; `None` while it only waits.
    pub incident: Option<Incident>,
    /// What it waits for.
    pub waits: Option<String>,
    /// Since when, in milliseconds.
    pub since_ms: Option<i64>,
}

/// The version this code writes and the only one it reads.
const VERSION: &str = "towpath-anchor-1";
/// Of a [`Standing`].
const STANDING_VERSION: &str = "towpath-state-1";
/// Of what a partition waits for.
const WAITS_BYTES_MAX: usize = 240;
/// Reasons hold words of brokers; the limit of a commit's metadata (`offset.metadata.max.bytes`) is 4096 by default.
const REASON_BYTES_MAX: usize = 600;
/// Kafka's own cluster ids have 22 characters.
const CLUSTER_BYTES_MAX: usize = 100;

/// A metadata text that is not an anchor of ours.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnchorError {
    /// Another program's commit, or a later version of ours.
    #[error(
        "the committed metadata starts with {found:?}, not {VERSION:?}: a later version of Towpath, or another program, \
         wrote it"
    )]
    Version {
        /// The first word.
        found: String,
    },
    /// A word is missing or unreadable.
    #[error("the committed metadata lacks a readable {word:?}")]
    Word {
        /// Its key.
        word: &'static str,
    },
    /// The committed offset itself makes no sense.
    #[error("the committed offset {0} is negative")]
    Offset(i64),
}

impl Anchor {
    /// The metadata text: 150 to 400 characters, with losses up to 300 more, of a partition that stands less than 2500.
    #[must_use]
    pub fn to_metadata(&self) -> String {
        let mut text = format!(
            "{VERSION} s={} i={} t={} e={} p={} pe={} q={} m={}{} st={}",
            self.position.source_next,
            self.source_topic_id,
            self.target_topic_id,
            self.leader_epoch.0,
            self.identity.producer_id,
            self.identity.producer_epoch,
            self.position.next_sequence,
            if self.shape.read_committed { 'c' } else { 'u' },
            if self.shape.sealed_append_time { 's' } else { 'o' },
            self.state,
        );
        self.notes.write(&mut text);
        text
    }

    /// Reads a commit back.
    ///
    /// # Errors
    /// See [`AnchorError`]; such a commit must not be taken for "no anchor".
    pub fn from_commit(target_next: i64, metadata: &str) -> Result<Self, AnchorError> {
        let (version, words) = Words::split(metadata);
        if version != VERSION {
            return Err(AnchorError::Version { found: version.chars().take(40).collect() });
        }
        if target_next < 0 {
            return Err(AnchorError::Offset(target_next));
        }
        let word = |key| words.required(key);
        let source_next: i64 = parse("s", word("s")?)?;
        let next_sequence: i32 = parse("q", word("q")?)?;
        let identity =
            ProducerIdentity { producer_id: parse("p", word("p")?)?, producer_epoch: parse("pe", word("pe")?)? };
        if source_next < 0 {
            return Err(AnchorError::Word { word: "s" });
        }
        if next_sequence < 0 {
            return Err(AnchorError::Word { word: "q" });
        }
        if identity.producer_id < 0 || identity.producer_epoch < 0 {
            return Err(AnchorError::Word { word: "p" });
        }
        let shape = match word("m")? {
            "co" => Shape { read_committed: true, sealed_append_time: false },
            "cs" => Shape { read_committed: true, sealed_append_time: true },
            "uo" => Shape { read_committed: false, sealed_append_time: false },
            "us" => Shape { read_committed: false, sealed_append_time: true },
            _ => return Err(AnchorError::Word { word: "m" }),
        };
        Ok(Self {
            position: Position { source_next, target_next, next_sequence },
            source_topic_id: parse("i", word("i")?)?,
            target_topic_id: parse("t", word("t")?)?,
            leader_epoch: LeaderEpoch(parse("e", word("e")?)?),
            identity,
            shape,
            state: word("st")?.to_owned(),
            notes: Notes::read(&words)?,
        })
    }
}

impl Notes {
    fn write(&self, text: &mut String) {
        if !self.history.is_empty() {
            let starts: Vec<String> = self.history.iter().map(|one| format!("{}@{}", one.epoch.0, one.start)).collect();
            text.push_str(&format!(" h={}", starts.join(",")));
        }
        if let Some(mark) = self.mark {
            text.push_str(&format!(" k={}:{:08x}", mark.base_offset, mark.crc));
        }
        if let Some(cluster) = &self.source_cluster {
            text.push_str(" c=");
            escape(cluster, CLUSTER_BYTES_MAX, text);
        }
        if let Some(DecisionId(id)) = self.decision {
            text.push_str(&format!(" d={id:016x}"));
        }
        if !self.losses.is_empty() {
            let ranges: Vec<String> = self.losses.iter().map(|lost| format!("{}-{}", lost.from, lost.to)).collect();
            text.push_str(&format!(" l={}", ranges.join(",")));
        }
        if self.passed != Passed::default() {
            let Passed { lost, truncated, foreign } = self.passed;
            text.push_str(&format!(" x={lost},{truncated},{foreign}"));
        }
        write_times(text, self.at_ms, self.since_ms, self.waits.as_deref());
        if let Some(incident) = &self.incident {
            incident.write(text);
        }
    }

    fn read(words: &Words<'_>) -> Result<Self, AnchorError> {
        let history = match words.get("h") {
            None => Vec::new(),
            Some(text) => {
                let start = |one: &str| {
                    let (epoch, start) = one.split_once('@')?;
                    Some(EpochStart { epoch: LeaderEpoch(epoch.parse().ok()?), start: start.parse().ok()? })
                };
                let starts = text.split(',').take(HISTORY_MAX).map(start);
                starts.collect::<Option<_>>().ok_or(AnchorError::Word { word: "h" })?
            }
        };
        let mark = words.get("k").map(|text| {
            let (base, crc) = text.split_once(':')?;
            Some(Mark { base_offset: base.parse().ok()?, crc: u32::from_str_radix(crc, 16).ok()? })
        });
        let mark = mark.map(|mark| mark.ok_or(AnchorError::Word { word: "k" })).transpose()?;
        let source_cluster = words.get("c").map(unescape);
        Ok(Self {
            history,
            mark,
            source_cluster,
            decision: words.decision()?,
            incident: Incident::read(words),
            losses: words.losses()?,
            passed: words.passed()?,
            waits: words.get("w").map(unescape),
            at_ms: words.time("at")?,
            since_ms: words.time("sn")?,
        })
    }
}

fn write_times(text: &mut String, at_ms: Option<i64>, since_ms: Option<i64>, waits: Option<&str>) {
    for (key, ms) in [("at", at_ms), ("sn", since_ms)] {
        if let Some(ms) = ms {
            text.push_str(&format!(" {key}={ms}"));
        }
    }
    if let Some(waits) = waits {
        text.push_str(" w=");
        escape(waits, WAITS_BYTES_MAX, text);
    }
}

impl Incident {
    fn write(&self, text: &mut String) {
        text.push_str(" ik=");
        escape(&self.key, REASON_BYTES_MAX, text);
        text.push_str(" why=");
        escape(&self.reason, REASON_BYTES_MAX, text);
        if !self.remedy.is_empty() {
            text.push_str(" do=");
            escape(&self.remedy, REASON_BYTES_MAX, text);
        }
    }

    fn read(words: &Words<'_>) -> Option<Self> {
        let text = |key| unescape(words.get(key).unwrap_or_default());
        Some(Self { key: unescape(words.get("ik")?), reason: text("why"), remedy: text("do") })
    }
}

impl Standing {
    fn to_metadata(&self) -> String {
        let mut text = format!("{STANDING_VERSION} t={} st={}", self.target_topic_id, self.state);
        if let Some(DecisionId(id)) = self.decision {
            text.push_str(&format!(" d={id:016x}"));
        }
        write_times(&mut text, None, self.since_ms, self.waits.as_deref());
        if let Some(incident) = &self.incident {
            incident.write(&mut text);
        }
        text
    }
}

impl Record {
    /// The metadata text.
    #[must_use]
    pub fn to_metadata(&self) -> String {
        match self {
            Self::Anchor(anchor) => anchor.to_metadata(),
            Self::Standing(standing) => standing.to_metadata(),
        }
    }

    /// The offset to commit. Of a partition without a position it says nothing.
    #[must_use]
    pub fn offset(&self) -> i64 {
        match self {
            Self::Anchor(anchor) => anchor.position.target_next,
            Self::Standing(_) => 0,
        }
    }

    /// Reads what a commit says, of a position or of a partition without one.
    ///
    /// # Errors
    /// As [`Anchor::from_commit`].
    pub fn from_commit(offset: i64, metadata: &str) -> Result<Self, AnchorError> {
        let (version, words) = Words::split(metadata);
        if version != STANDING_VERSION {
            return Anchor::from_commit(offset, metadata).map(Self::Anchor);
        }
        Ok(Self::Standing(Standing {
            state: words.required("st")?.to_owned(),
            target_topic_id: parse("t", words.required("t")?)?,
            decision: words.decision()?,
            incident: Incident::read(&words),
            waits: words.get("w").map(unescape),
            since_ms: words.time("sn")?,
        }))
    }

    /// `PartitionState::code` when it was written.
    #[must_use]
    pub fn state(&self) -> &str {
        match self {
            Self::Anchor(anchor) => &anchor.state,
            Self::Standing(standing) => &standing.state,
        }
    }

    /// Why the partition stands, if it does.
    #[must_use]
    pub fn incident(&self) -> Option<&Incident> {
        match self {
            Self::Anchor(anchor) => anchor.notes.incident.as_ref(),
            Self::Standing(standing) => standing.incident.as_ref(),
        }
    }

    /// What it waits for, if that lasts.
    #[must_use]
    pub fn waits(&self) -> Option<&str> {
        match self {
            Self::Anchor(anchor) => anchor.notes.waits.as_deref(),
            Self::Standing(standing) => standing.waits.as_deref(),
        }
    }

    /// Since when the state is this one, in milliseconds.
    #[must_use]
    pub fn since_ms(&self) -> Option<i64> {
        match self {
            Self::Anchor(anchor) => anchor.notes.since_ms,
            Self::Standing(standing) => standing.since_ms,
        }
    }

    /// Adds how the partition looks from outside: brokers that keep it waiting are not known to its machine.
    pub fn stamp(&mut self, seen: Seen) {
        let stands = self.incident().is_some();
        match self {
            Self::Anchor(anchor) => {
                // The first anchor is known by its state.
                if !stands && anchor.state != PartitionState::Anchoring.code() {
                    seen.state.clone_into(&mut anchor.state);
                }
                anchor.notes.waits = seen.waits.filter(|_| !stands);
                anchor.notes.since_ms = Some(seen.since_ms);
                anchor.notes.at_ms = seen.at_ms.or(anchor.notes.at_ms);
            }
            Self::Standing(standing) => {
                if !stands {
                    seen.state.clone_into(&mut standing.state);
                }
                standing.waits = seen.waits.filter(|_| !stands);
                standing.since_ms = Some(seen.since_ms);
            }
        }
    }

    /// The target topic it belongs to; zero where topics have no ids.
    #[must_use]
    pub fn target_topic_id(&self) -> TopicId {
        match self {
            Self::Anchor(anchor) => anchor.target_topic_id,
            Self::Standing(standing) => standing.target_topic_id,
        }
    }

    /// The last decision that was carried out.
    #[must_use]
    pub fn decision(&self) -> Option<DecisionId> {
        match self {
            Self::Anchor(anchor) => anchor.notes.decision,
            Self::Standing(standing) => standing.decision,
        }
    }
}

/// The words of a metadata text behind its version.
struct Words<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Words<'a> {
    fn split(metadata: &'a str) -> (&'a str, Self) {
        let mut words = metadata.split_ascii_whitespace();
        let version = words.next().unwrap_or_default();
        (version, Self(words.filter_map(|word| word.split_once('=')).collect()))
    }

    fn get(&self, key: &str) -> Option<&'a str> {
        self.0.iter().find(|(found, _)| *found == key).map(|(_, value)| *value)
    }

    fn required(&self, key: &'static str) -> Result<&'a str, AnchorError> {
        self.get(key).ok_or(AnchorError::Word { word: key })
    }

    fn decision(&self) -> Result<Option<DecisionId>, AnchorError> {
        let id = self.get("d").map(|text| u64::from_str_radix(text, 16).map(DecisionId));
        id.transpose().map_err(|_| AnchorError::Word { word: "d" })
    }

    fn time(&self, key: &'static str) -> Result<Option<i64>, AnchorError> {
        self.get(key).map(|text| parse(key, text)).transpose()
    }

    fn losses(&self) -> Result<Vec<Lost>, AnchorError> {
        let range = |one: &str| {
            let (from, to) = one.split_once('-')?;
            Some(Lost { from: from.parse().ok()?, to: to.parse().ok()? })
        };
        let ranges = self.get("l").map(|text| text.split(',').take(RECORDED_LOSSES_MAX).map(range).collect());
        ranges.unwrap_or(Some(Vec::new())).ok_or(AnchorError::Word { word: "l" })
    }

    fn passed(&self) -> Result<Passed, AnchorError> {
        let Some(text) = self.get("x") else { return Ok(Passed::default()) };
        let counts: Option<Vec<u64>> = text.split(',').take(4).map(|count| count.parse().ok()).collect();
        match counts.as_deref() {
            Some(&[lost, truncated, foreign]) => Ok(Passed { lost, truncated, foreign }),
            _ => Err(AnchorError::Word { word: "x" }),
        }
    }
}

fn parse<T: std::str::FromStr>(key: &'static str, value: &str) -> Result<T, AnchorError> {
    value.parse().map_err(|_| AnchorError::Word { word: key })
}

/// One word of visible ASCII, cut off at a limit; `unescape` gives the text back.
fn escape(text: &str, bytes_max: usize, out: &mut String) {
    let limit = out.len() + bytes_max;
    for byte in text.bytes() {
        if out.len() + 3 > limit {
            return;
        }
        match byte {
            // The blank is by far the most frequent one.
            b' ' => out.push('+'),
            b'+' | b'%' => out.push_str(&format!("%{byte:02x}")),
            byte if byte.is_ascii_graphic() => out.push(char::from(byte)),
            byte => out.push_str(&format!("%{byte:02x}")),
        }
    }
}

fn unescape(word: &str) -> String {
    let mut bytes = Vec::with_capacity(word.len());
    let mut rest = word.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16));
                match (digit(), digit()) {
                    (Some(high), Some(low)) => u8::try_from(high * 16 + low).unwrap_or(b'?'),
                    _ => b'?',
                }
            }
            byte => byte,
        });
    }
    // A character that was cut off at the limit shows as such.
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests;
