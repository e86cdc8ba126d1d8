//! Anchors: where the copy of a partition stood, durable on the target (`design.md` 4).
//!
//! An anchor is an offset commit under the lease's group: the committed offset is the next target offset, the metadata
//! text holds the rest. The text is versioned and made of `key=value` words; unknown words are kept out of the way, so
//! that a later version may add some, and a missing required one is an error that names it.

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
}

/// The version this code writes and the only one it reads.
const VERSION: &str = "towpath-anchor-1";

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
    /// The metadata text, 120 to 190 characters.
    #[must_use]
    pub fn to_metadata(&self) -> String {
        format!(
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
        )
    }

    /// Reads a commit back.
    ///
    /// # Errors
    /// See [`AnchorError`]; such a commit must not be taken for "no anchor".
    pub fn from_commit(target_next: i64, metadata: &str) -> Result<Self, AnchorError> {
        let mut words = metadata.split_ascii_whitespace();
        let version = words.next().unwrap_or_default();
        if version != VERSION {
            return Err(AnchorError::Version { found: version.chars().take(40).collect() });
        }
        if target_next < 0 {
            return Err(AnchorError::Offset(target_next));
        }
        let words: Vec<(&str, &str)> = words.filter_map(|word| word.split_once('=')).collect();
        let word = |key: &'static str| {
            words
                .iter()
                .find(|(found, _)| *found == key)
                .map(|(_, value)| *value)
                .ok_or(AnchorError::Word { word: key })
        };
        fn parse<T: std::str::FromStr>(key: &'static str, value: &str) -> Result<T, AnchorError> {
            value.parse().map_err(|_| AnchorError::Word { word: key })
        }
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
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn anchors() -> impl Strategy<Value = Anchor> {
        (
            (0..=i64::MAX, 0..=i64::MAX, 0..=i32::MAX),
            (any::<[u8; 16]>(), any::<[u8; 16]>(), -1..=i32::MAX),
            (0..=i64::MAX, 0..=i16::MAX),
            any::<(bool, bool)>(),
        )
            .prop_map(|(position, topic, identity, shape)| Anchor {
                position: Position { source_next: position.0, target_next: position.1, next_sequence: position.2 },
                source_topic_id: TopicId::new(topic.0),
                target_topic_id: TopicId::new(topic.1),
                leader_epoch: LeaderEpoch(topic.2),
                identity: ProducerIdentity { producer_id: identity.0, producer_epoch: identity.1 },
                shape: Shape { read_committed: shape.0, sealed_append_time: shape.1 },
                state: "held-by-transaction".into(),
            })
    }

    proptest! {
        #[test]
        fn an_anchor_survives_its_commit(anchor in anchors()) {
            let metadata = anchor.to_metadata();
            // The broker's default limit is 4096 characters; a commit of many partitions should stay small.
            prop_assert!(metadata.len() <= 240, "{} characters", metadata.len());
            prop_assert_eq!(Anchor::from_commit(anchor.position.target_next, &metadata), Ok(anchor));
        }

        #[test]
        fn no_metadata_panics(text in ".{0,200}", offset in any::<i64>()) {
            let _ = Anchor::from_commit(offset, &text);
        }

        #[test]
        fn a_damaged_anchor_is_an_error_or_another_anchor_never_a_panic(anchor in anchors(), cut in 0_usize..240) {
            let metadata = anchor.to_metadata();
            let cut = cut.min(metadata.len());
            let _ = Anchor::from_commit(anchor.position.target_next, metadata.get(..cut).unwrap_or_default());
        }
    }

    #[test]
    fn another_programs_commit_is_named_not_ignored() {
        assert_eq!(Anchor::from_commit(5, ""), Err(AnchorError::Version { found: String::new() }));
        assert_eq!(
            Anchor::from_commit(5, "towpath-anchor-2 s=1"),
            Err(AnchorError::Version { found: "towpath-anchor-2".into() })
        );
        assert_eq!(Anchor::from_commit(5, "towpath-anchor-1 s=1 q=1 p=5"), Err(AnchorError::Word { word: "pe" }));
    }
}
