//! What an error code means and what is done about it: the one place that decides.
//!
//! From the tables of `batch-forwarding.md` 7 and the measurements of `broker-experiments.md`. Call sites ask here and
//! follow; they never compare codes themselves. Retries always have a backoff, and a state that others can see.

use crate::protocol::ErrorCode;

/// What to do about an error of one partition in a fetch answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FetchStep {
    /// Wait, learn the leaders anew, try again.
    RefreshMetadata,
    /// Wait and try again; the leaders are as known.
    Retry,
    /// The offset does not exist: ask where the log begins and ends.
    AskEnds,
    /// The topic of this id may be gone or another one: learn the topics anew and compare.
    CheckTopic,
    /// Whatever is asked, the source will not serve this partition until somebody changes something.
    GiveUp,
}

/// Judges a partition's error in a fetch answer.
#[must_use]
pub fn fetch_step(code: ErrorCode) -> FetchStep {
    match code {
        ErrorCode::OFFSET_OUT_OF_RANGE => FetchStep::AskEnds,
        // 103 in a session repeats for ever after a re-creation (`broker-experiments.md` S10); 3 and 100 are also
        // what a topic looks like that was just created, or deleted.
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION | ErrorCode::UNKNOWN_TOPIC_ID | ErrorCode::INCONSISTENT_TOPIC_ID => {
            FetchStep::CheckTopic
        }
        // Rights, a codec the version cannot carry, a format that cannot be served: asking again changes nothing.
        ErrorCode::TOPIC_AUTHORIZATION_FAILED
        | ErrorCode::UNSUPPORTED_COMPRESSION_TYPE
        | ErrorCode::UNSUPPORTED_VERSION
        | ErrorCode::CORRUPT_MESSAGE => FetchStep::GiveUp,
        // The leader moved, or our idea of its epoch is older than the broker's.
        ErrorCode::NOT_LEADER_OR_FOLLOWER
        | ErrorCode::LEADER_NOT_AVAILABLE
        | ErrorCode::FENCED_LEADER_EPOCH
        | ErrorCode::REPLICA_NOT_AVAILABLE
        | ErrorCode::KAFKA_STORAGE_ERROR
        | ErrorCode::OFFSET_NOT_AVAILABLE
        | ErrorCode::OFFSET_MOVED_TO_TIERED_STORAGE => FetchStep::RefreshMetadata,
        // The broker is behind us (75), or something inside it failed.
        _ => FetchStep::Retry,
    }
}

/// Whether a fetch answer's own error only ends the session: nothing is lost, and the next request is a full one
/// (`batch-forwarding.md` 5.2). Anything else is treated like a lost connection.
#[must_use]
pub fn ends_session_only(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::FETCH_SESSION_ID_NOT_FOUND
            | ErrorCode::INVALID_FETCH_SESSION_EPOCH
            | ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR
    )
}

/// What to do about an error of one partition in a produce answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProduceStep {
    /// Ask the target what it holds and go on from there. Never resend before.
    Reconcile {
        /// The leader may have moved: learn the leaders anew.
        refresh: bool,
    },
    /// The batch was damaged on the way and nothing was appended: as above, and the next time it most likely arrives
    /// whole. If it never does: [`Self::Refuse`].
    SendAgain,
    /// This batch will be refused again: stop the partition, with the reason.
    Refuse,
}

/// Judges a partition's error in a produce answer. Everything whose outcome is not plain leads to asking the target:
/// resending several batches in order loops for ever once more than the broker's window are undecided
/// (`broker-experiments.md` S4).
#[must_use]
pub fn produce_step(code: ErrorCode) -> ProduceStep {
    match code {
        // Nothing was appended, and the same bytes will meet the same answer.
        ErrorCode::MESSAGE_TOO_LARGE
        | ErrorCode::RECORD_LIST_TOO_LARGE
        | ErrorCode::INVALID_TIMESTAMP
        | ErrorCode::INVALID_RECORD
        | ErrorCode::UNSUPPORTED_COMPRESSION_TYPE
        | ErrorCode::UNSUPPORTED_FOR_MESSAGE_FORMAT
        | ErrorCode::INVALID_TOPIC_EXCEPTION
        | ErrorCode::INVALID_REQUIRED_ACKS
        | ErrorCode::UNSUPPORTED_VERSION
        | ErrorCode::TOPIC_AUTHORIZATION_FAILED
        | ErrorCode::CLUSTER_AUTHORIZATION_FAILED
        | ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        // Somebody writes under a newer epoch of our id.
        | ErrorCode::INVALID_PRODUCER_EPOCH
        | ErrorCode::PRODUCER_FENCED => ProduceStep::Refuse,
        // The bytes arrived damaged although their checksum was verified here: a proxy, a network card, the broker's
        // memory. The batch is fetched anew.
        ErrorCode::CORRUPT_MESSAGE => ProduceStep::SendAgain,
        // 19: not enough replicas, nothing appended; the leader is as known.
        ErrorCode::NOT_ENOUGH_REPLICAS
        // 45: what is asked next decides whether it was stored already (S4) or lost.
        | ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER
        | ErrorCode::NOT_ENOUGH_REPLICAS_AFTER_APPEND
        | ErrorCode::REQUEST_TIMED_OUT
        | ErrorCode::THROTTLING_QUOTA_EXCEEDED => ProduceStep::Reconcile { refresh: false },
        _ => ProduceStep::Reconcile { refresh: true },
    }
}

/// What to do about an error in an answer about offsets and producers (ListOffsets, DescribeProducers, tail reads).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookupStep {
    /// Wait and ask again, with the leaders learnt anew.
    RefreshMetadata,
    /// Wait for a right to be granted.
    AwaitRights,
}

/// Judges an error of one partition in a look-up.
#[must_use]
pub fn lookup_step(code: ErrorCode) -> LookupStep {
    match code {
        ErrorCode::TOPIC_AUTHORIZATION_FAILED
        | ErrorCode::CLUSTER_AUTHORIZATION_FAILED
        | ErrorCode::GROUP_AUTHORIZATION_FAILED => LookupStep::AwaitRights,
        _ => LookupStep::RefreshMetadata,
    }
}

/// What to do about an error of a coordinator in an answer to an offset commit or fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoordinatorStep {
    /// Ask who coordinates now, then try again.
    FindCoordinator,
    /// Membership has to be proven anew; the lease decides.
    Rejoin,
    /// Wait and try again.
    Retry,
    /// This item will be refused again.
    GiveUp,
}

/// Judges a code in an answer of a group's coordinator.
#[must_use]
pub fn coordinator_step(code: ErrorCode) -> CoordinatorStep {
    match code {
        ErrorCode::COORDINATOR_LOAD_IN_PROGRESS => CoordinatorStep::Retry,
        ErrorCode::COORDINATOR_NOT_AVAILABLE | ErrorCode::NOT_COORDINATOR => CoordinatorStep::FindCoordinator,
        ErrorCode::ILLEGAL_GENERATION
        | ErrorCode::UNKNOWN_MEMBER_ID
        | ErrorCode::REBALANCE_IN_PROGRESS
        | ErrorCode::FENCED_INSTANCE_ID => CoordinatorStep::Rejoin,
        ErrorCode::OFFSET_METADATA_TOO_LARGE
        | ErrorCode::INVALID_COMMIT_OFFSET_SIZE
        | ErrorCode::GROUP_AUTHORIZATION_FAILED
        | ErrorCode::TOPIC_AUTHORIZATION_FAILED
        | ErrorCode::INVALID_GROUP_ID => CoordinatorStep::GiveUp,
        _ => CoordinatorStep::Retry,
    }
}
