//! What may happen in the storm.

#[derive(Debug, Clone, Copy)]
pub(super) enum Op {
    /// Rounds without faults.
    Drive(u8),
    Send,
    /// The broker takes the next request; it may append without answering so, or refuse.
    Broker(Fault),
    Replicate,
    Answer,
    Fetch {
        batches: u8,
        cut: bool,
    },
    FetchError(i16),
    /// An answer to a fetch of long ago.
    StaleFetch {
        pick: u8,
        batches: u8,
    },
    BeginFetch,
    BeginLookup,
    /// Reads the first part (the producer), then the next (the end), then the last (high watermark or the tail).
    ReadLookup,
    AnswerLookup,
    FailLookup,
    TakeAnchor,
    Commit(Commit),
    Wait(u16),
    LoseLane {
        answer_each: bool,
    },
    /// A request whose connection is gone reaches the log after all.
    Zombie,
    Elect {
        lost: u8,
    },
    /// The new leader becomes known.
    Notice,
    RestartBroker,
    /// The source's cleaner works on a batch.
    Compact {
        pick: u8,
        keep: u8,
    },
    Sweep,
    /// Somebody else writes to the remote partition.
    Foreign(u8),
    Kill {
        commit_lands: bool,
    },
    Drain,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Fault {
    None,
    BeforeAppend(i16),
    AfterAppend(i16),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Commit {
    Good,
    Refused,
    /// It is durable, and nobody is told.
    Unanswered,
    /// The runs were written, the anchor was not.
    OnlyRuns,
}
