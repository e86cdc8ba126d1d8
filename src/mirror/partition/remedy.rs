//! What can be done about a partition that stands: the words for people, and what `towpath resume` may answer.

use super::state::StopReason;
use crate::protocol::ErrorCode;

const RESUME: &str = "towpath resume FILE --topic TOPIC";
const TOPIC: &str = "--topic TOPIC";

impl StopReason {
    /// What to do about it. `TOPIC` stands for the source topic's name.
    #[must_use]
    pub fn remedy(&self) -> String {
        match self {
            Self::CannotOpen { too_large: true, .. } => {
                "raise towpath.open.max.bytes and restart, or leave the topic out with topics.exclude".into()
            }
            Self::CannotOpen { .. } => {
                "read the source topic there with Kafka's console consumer: if it fails too, the data is damaged; leave \
                 the topic out with topics.exclude"
                    .into()
            }
            Self::RecordTooLarge { bytes, .. } => {
                format!("raise max.message.bytes of the target topic to {bytes} or more; it is tried again by itself")
            }
            Self::TargetNotEmpty { .. } => go_on_or_anew("towpath.on.target.not.empty=append", self.go_on()),
            Self::TargetRecreated { .. } | Self::TargetGone => {
                format!(
                    "{RESUME} (or towpath.on.target.recreated=begin): {}",
                    self.go_on().unwrap_or("copies it from the beginning")
                )
            }
            Self::TargetTruncated { .. } => {
                format!(
                    "{RESUME}: {}; with --recreate-target: {ANEW}",
                    self.go_on().unwrap_or("copies again what it lost")
                )
            }
            Self::PositionUnknown { .. } => format!("{RESUME} --recreate-target: {ANEW}"),
            Self::ForeignWrite { .. } => format!(
                "find the other writer and take its right to write; then {}",
                go_on_or_anew("towpath.on.foreign.write=continue", self.go_on())
            ),
            Self::SourceCluster { .. } => format!(
                "check bootstrap.servers of the source; if it is meant to be another cluster from now on, {RESUME}: {}; \
                 with --recreate-target: {ANEW}",
                self.go_on().unwrap_or("goes on")
            ),
            Self::SourceRecreated { .. } => go_on_or_anew("towpath.on.source.recreated=append", self.go_on()),
            Self::SourceGone => "nothing if it was deleted on purpose; exclude it with topics.exclude".into(),
            Self::SourceTruncated { .. } => go_on_or_anew("towpath.on.source.truncated=continue", self.go_on()),
            Self::RecordsLost { .. } => go_on_or_anew("towpath.on.source.loss=continue", self.go_on()),
            Self::SourceCorrupt { .. } => {
                "check the disks of the source's leader, or move leadership to another replica; it is tried again by \
                 itself"
                    .into()
            }
            Self::Refused { code, .. } => refused(*code).into(),
            Self::SourceRefused { code } => {
                if *code == ErrorCode::TOPIC_AUTHORIZATION_FAILED {
                    "allow READ and DESCRIBE on the source topic to Towpath's user; it is tried again by itself".into()
                } else {
                    "see the source broker's log; it is tried again by itself".into()
                }
            }
            Self::TwoWriters { why } => why.clone(),
            Self::TargetMissing { remedy, .. } => remedy.clone(),
        }
    }

    /// [`Self::remedy`] with the source topic's name in its place.
    #[must_use]
    pub fn remedy_for(&self, topic: &str) -> String {
        self.remedy().replace(TOPIC, &format!("--topic {topic}"))
    }

    /// What `towpath resume` without `--recreate-target` makes the partition do; `None` where there is nothing to decide.
    #[must_use]
    pub fn go_on(&self) -> Option<&'static str> {
        go_on(self.code())
    }
}

/// As [`StopReason::go_on`], of a state code as recorded.
#[must_use]
pub fn go_on(code: &str) -> Option<&'static str> {
    Some(match code {
        "target-not-empty" => "copies behind what is there",
        "target-recreated" | "target-gone" => "copies it from the beginning into the new topic",
        "target-truncated" => "copies again what it lost",
        "foreign-write" => "goes on behind the records of the other writer",
        "source-cluster" | "source-recreated" => {
            "copies the new topic from its beginning, behind the records of the former one"
        }
        "source-truncated" => "goes on behind the common history; the target keeps what the source lost",
        "records-lost" => "goes on behind the lost records",
        _ => return None,
    })
}

const ANEW: &str = "deletes the remote topic and copies from the beginning";

fn go_on_or_anew(setting: &str, go_on: Option<&str>) -> String {
    format!("{RESUME} (or {setting}): {}; with --recreate-target: {ANEW}", go_on.unwrap_or("goes on"))
}

fn refused(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::MESSAGE_TOO_LARGE | ErrorCode::RECORD_LIST_TOO_LARGE => {
            "raise max.message.bytes (and segment.bytes) of the target topic; it is tried again by itself"
        }
        ErrorCode::INVALID_TIMESTAMP => {
            "raise message.timestamp.after.max.ms (or message.timestamp.before.max.ms) of the target topic; it is tried \
             again by itself"
        }
        ErrorCode::TOPIC_AUTHORIZATION_FAILED | ErrorCode::CLUSTER_AUTHORIZATION_FAILED => {
            "allow WRITE on the remote topic to Towpath's user; it is tried again by itself"
        }
        ErrorCode::INVALID_RECORD => {
            "a compacted target topic takes no records without key: make it cleanup.policy=delete; else see the \
             broker's words"
        }
        ErrorCode::UNSUPPORTED_FOR_MESSAGE_FORMAT => {
            "raise message.format.version of the target topic to 0.11 or later"
        }
        ErrorCode::CORRUPT_MESSAGE => {
            "it was whole when it left and arrived damaged, three times in a row: check the path to the broker (proxies, \
             network cards) and the broker's memory and disks; it is tried again by itself"
        }
        ErrorCode::UNSUPPORTED_COMPRESSION_TYPE => "the target is too old for zstd; exclude the topic or upgrade it",
        _ => "see the target broker's log; it is tried again by itself",
    }
}
