//! What goes into the lease machine and what comes out of it, and what it says about itself.
//!
//! The actions map one to one to Kafka requests on two connections to the group's coordinator, see [`Link`]. Every
//! request carries a [`Ticket`] which its answer brings back; an answer with an outdated ticket is dropped, so that a late
//! word about a given-up request (its 82 above all) cannot do harm.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::slots::SlotSet;
use super::wire::WireError;

/// Protocol type of the lease group in JoinGroup and SyncGroup.
pub const LEASE_PROTOCOL_TYPE: &str = "towpath";

/// Protocol name of the lease group. The number rises with [`SLOTS`](super::SLOTS) or the hash, never with the bytes.
pub const LEASE_PROTOCOL_NAME: &str = "slots-1";

/// The group id of a flow's lease on the target cluster: `__towpath.<source>.<target>`.
pub fn lease_group(source: &str, target: &str) -> String {
    format!("__towpath.{source}.{target}")
}

/// Settings of a lease, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseConfig {
    pub(super) group: String,
    pub(super) instance_id: String,
    pub(super) session_timeout: Duration,
    pub(super) rebalance_timeout: Duration,
    pub(super) heartbeat_interval: Duration,
}

/// Why lease settings were refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseConfigError {
    /// Outside of what this machine can work with (the broker has its own limits, by default 6 s to 30 min).
    #[error("the session timeout must lie between 2 s and 30 min, but is {0:?}")]
    SessionTimeout(Duration),
    /// A rebalance must not go on without a worker whose proof still runs (S13).
    #[error("the rebalance timeout must lie between the session timeout ({session:?}) and 1 h, but is {rebalance:?}")]
    RebalanceTimeout {
        /// The session timeout.
        session: Duration,
        /// The rebalance timeout asked for.
        rebalance: Duration,
    },
    /// Without an instance id a restart costs the session timeout, and a takeover is not noticed.
    #[error("the instance id of a worker must not be empty")]
    NoInstanceId,
}

impl LeaseConfig {
    /// Default session timeout: a dead worker's partitions move after 10 s; hiccups of the target below 9 s go unnoticed.
    pub const SESSION_TIMEOUT: Duration = Duration::from_secs(10);

    /// Settings with the given session timeout and a rebalance timeout of three times as much. A longer rebalance timeout
    /// does not delay anything: dead workers are dropped after the session timeout, live ones rejoin within a heartbeat.
    ///
    /// `group` is [`lease_group`]; `instance_id` comes from [`instance_id`](super::instance_id).
    ///
    /// # Errors
    /// A session timeout outside of 2 s..=30 min, or an empty instance id.
    pub fn new(group: &str, instance_id: &str, session_timeout: Duration) -> Result<Self, LeaseConfigError> {
        if !(Duration::from_secs(2)..=Duration::from_secs(1800)).contains(&session_timeout) {
            return Err(LeaseConfigError::SessionTimeout(session_timeout));
        }
        if instance_id.is_empty() {
            return Err(LeaseConfigError::NoInstanceId);
        }
        let rebalance_timeout = (session_timeout * 3).min(Duration::from_secs(3600));
        let (group, instance_id) = (group.to_owned(), instance_id.to_owned());
        let heartbeat_interval = (session_timeout / 10).clamp(Duration::from_millis(300), Duration::from_secs(3));
        Ok(Self { group, instance_id, session_timeout, rebalance_timeout, heartbeat_interval })
    }

    /// The same with another time between heartbeats, at most a third of the session timeout.
    #[must_use]
    pub fn with_heartbeat_interval(mut self, interval: Duration) -> Self {
        self.heartbeat_interval = interval.min(self.session_timeout / 3);
        self
    }

    /// The same with another rebalance timeout.
    ///
    /// # Errors
    /// If it is shorter than the session timeout or longer than an hour.
    pub fn with_rebalance_timeout(mut self, rebalance: Duration) -> Result<Self, LeaseConfigError> {
        let session = self.session_timeout;
        if rebalance < session || rebalance > Duration::from_secs(3600) {
            return Err(LeaseConfigError::RebalanceTimeout { session, rebalance });
        }
        self.rebalance_timeout = rebalance;
        Ok(self)
    }

    /// The group id, for every request.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The group instance id, for every request (OffsetCommit included: without it the broker says 25 instead of 82).
    pub fn instance_id(&self) -> &str {
        &self.instance_id
    }

    /// After this silence the coordinator drops a member.
    pub fn session_timeout(&self) -> Duration {
        self.session_timeout
    }

    /// How long a rebalance waits for members that do not rejoin.
    pub fn rebalance_timeout(&self) -> Duration {
        self.rebalance_timeout
    }

    /// How long before the end of the session timeout produce requests stop: a tenth of it, at least 500 ms. It covers
    /// clocks that run at different speeds and the time between asking [`Lease::proof_until`](super::Lease::proof_until)
    /// and writing to the socket.
    pub fn margin(&self) -> Duration {
        (self.session_timeout / 10).max(Duration::from_millis(500))
    }

    /// Time between heartbeats; unless set, a tenth of the session timeout, 300 ms to 3 s. It bounds how fast a rebalance
    /// is noticed.
    pub fn heartbeat_interval(&self) -> Duration {
        self.heartbeat_interval
    }
}

/// Names a request of the machine; its answer brings it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub(super) u64);

/// The two connections to the coordinator. JoinGroup blocks the one it is on, heartbeats must go on meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Link {
    /// For JoinGroup, SyncGroup and LeaveGroup.
    Join,
    /// For Heartbeat and for OffsetCommit of the anchors.
    Work,
}

/// With what an OffsetCommit identifies itself; the instance id goes along.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Generation id, never -1.
    pub generation: i32,
    /// Member id, never empty.
    pub member_id: String,
}

/// What the driver has to do. Requests of one [`Link`] go out in the order of the actions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// FindCoordinator for the group, at any broker. Answer: [`Lease::handle_coordinator`](super::Lease::handle_coordinator).
    FindCoordinator {
        /// Goes back with the answer.
        ticket: Ticket,
    },
    /// JoinGroup (v5 or later, v9 preferred) on [`Link::Join`], with [`LEASE_PROTOCOL_TYPE`] and [`LEASE_PROTOCOL_NAME`].
    /// May stay unanswered for the rebalance timeout and longer: the machine minds the time itself.
    Join {
        /// Goes back with the answer.
        ticket: Ticket,
        /// Empty only at the start of the process or after a join with the known id said 25 (invariant C).
        member_id: String,
        /// For `group.instance.id`.
        instance_id: String,
        /// Metadata of the one protocol.
        metadata: Bytes,
        /// For `session.timeout.ms`.
        session_timeout: Duration,
        /// For `rebalance.timeout.ms`.
        rebalance_timeout: Duration,
    },
    /// SyncGroup (v3 or later) on [`Link::Join`].
    Sync {
        /// Goes back with the answer.
        ticket: Ticket,
        /// Generation of the join answer.
        generation: i32,
        /// Our member id.
        member_id: String,
        /// Member id and bytes of each member; empty unless we lead.
        assignments: Vec<(String, Bytes)>,
    },
    /// Heartbeat (v3 or later) on [`Link::Work`].
    Heartbeat {
        /// Goes back with the answer.
        ticket: Ticket,
        /// Generation to claim.
        generation: i32,
        /// Our member id.
        member_id: String,
    },
    /// Commit some anchor again, at once, on [`Link::Work`]: heartbeats do not prove anything just now, a commit does. Its
    /// answer goes the way of every commit: [`Lease::handle_commit`](super::Lease::handle_commit). If there is no anchor
    /// to commit: [`Lease::handle_nothing_to_commit`](super::Lease::handle_nothing_to_commit).
    ProveByCommit {
        /// The same as [`Lease::commit_credentials`](super::Lease::commit_credentials).
        credentials: Credentials,
    },
    /// Close this connection; nothing more is expected on it. The next request for it opens a new one, to the
    /// coordinator last found. No [`Lease::handle_connection_lost`](super::Lease::handle_connection_lost) for it.
    Disconnect(Link),
    /// Start working on these slots: read their anchors, reconcile, produce while the proof runs.
    Own(SlotSet),
    /// Stop working on these slots, then call [`Lease::handle_revoked`](super::Lease::handle_revoked).
    Revoke {
        /// The slots to give up; all of them are held.
        slots: SlotSet,
        /// Whether there is time to finish and anchor.
        why: RevokeReason,
    },
    /// LeaveGroup (v3 or later) on [`Link::Join`]; best effort, the answer does not matter. Last action of a lease.
    Leave {
        /// Our member id.
        member_id: String,
        /// Our instance id.
        instance_id: String,
    },
    /// The lease is lost for good: stop producing at once, commit nothing. Last action of a lease.
    Stop(LeaseLost),
}

/// Why slots are revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevokeReason {
    /// They move to another worker, or we leave: let what is in flight settle, commit the anchors, then confirm. The proof
    /// keeps running meanwhile.
    Moved,
    /// Membership was lost: they may be somebody else's already. Drop what is in flight, commit nothing, confirm at once.
    Lost,
}

impl std::fmt::Display for RevokeReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Moved => "another process takes them over",
            Self::Lost => "the membership was lost, another process may have them already",
        })
    }
}

/// Answer to [`Action::FindCoordinator`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoordinatorAnswer {
    /// From the action.
    pub ticket: Ticket,
    /// Node id of the coordinator, or what went wrong (`None`: no broker answered).
    pub result: Result<i32, Option<i16>>,
}

/// Answer to [`Action::Join`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JoinAnswer {
    /// Kafka's error code; 0 is none. The other fields count only then (with 79 also `member_id`).
    pub error_code: i16,
    /// Generation id.
    pub generation: i32,
    /// Protocol chosen by the broker.
    pub protocol_name: String,
    /// Member id of the leader.
    pub leader: String,
    /// Our member id.
    pub member_id: String,
    /// All members, if we lead.
    pub members: Vec<JoinedMember>,
    /// v9: we lead, but the group goes on with its assignment.
    pub skip_assignment: bool,
}

/// A member in the answer to the leader's JoinGroup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JoinedMember {
    /// Its member id.
    pub member_id: String,
    /// Its instance id, empty if dynamic.
    pub instance_id: String,
    /// Its metadata bytes.
    pub metadata: Bytes,
}

/// Answer to an OffsetCommit of anchors, for all of its partitions together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitAnswer {
    /// With what the commit identified itself.
    pub credentials: Credentials,
    /// 0 if *any* partition answered 0 (the membership was right then), else the first error code.
    pub error_code: i16,
}

/// Why the lease is lost for good. The text says the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseLost {
    /// 82: the same instance id joined elsewhere.
    #[error(
        "another process took over the lease {group} under this worker's instance id {instance_id}: most likely a second \
         towpath runs with a copy of this state directory. Give each worker its own state directory, then restart this one"
    )]
    TakenOver {
        /// The lease group.
        group: String,
        /// Our instance id.
        instance_id: String,
    },
    /// 26.
    #[error(
        "the target refuses a session timeout of {session_timeout:?} for {group}: choose one between the brokers' \
         group.min.session.timeout.ms and group.max.session.timeout.ms"
    )]
    SessionTimeoutRefused {
        /// The lease group.
        group: String,
        /// What we asked for.
        session_timeout: Duration,
    },
    /// 23, or a member whose bytes are not ours.
    #[error(
        "the group {group} on the target is used by something that is not towpath ({what}): stop it, or rename the flow"
    )]
    ForeignMember {
        /// The lease group.
        group: String,
        /// What was seen.
        what: String,
    },
    /// A worker of a later version is in the group.
    #[error("worker {instance_id} in {group} is newer: {found}. Upgrade this worker")]
    NewerWorker {
        /// The lease group.
        group: String,
        /// Whose bytes.
        instance_id: String,
        /// What was seen.
        found: WireError,
    },
    /// An error code that retrying cannot mend: 24 and 35 (the target is too old for static membership).
    #[error("the target refuses the lease {group} with error {error_code}: a cluster of Kafka 2.3 or later is needed")]
    Refused {
        /// The lease group.
        group: String,
        /// Kafka's error code.
        error_code: i16,
    },
    /// [`Lease::leave`](super::Lease::leave) was asked for and is done.
    #[error("this worker left the lease {group}")]
    Left {
        /// The lease group.
        group: String,
    },
}

/// What the lease is doing, for status pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// Not a member yet, or not any more.
    Joining {
        /// When this began.
        since: Instant,
    },
    /// The target does not let us in; tried again slowly.
    Refused {
        /// Kafka's error code: 30, 81, or one not known here.
        error_code: i16,
        /// What to do about it.
        remedy: &'static str,
    },
    /// A member; the usual state.
    Held {
        /// Slots held.
        slots: SlotSet,
        /// Of them, those being given up.
        revoking: SlotSet,
    },
    /// The group deals anew; work on the slots goes on.
    Rebalancing {
        /// Slots held.
        slots: SlotSet,
    },
    /// Slots are held, but the proof of it is too old to produce; goes on if the membership proves to have lasted.
    Lapsed {
        /// Slots held.
        slots: SlotSet,
        /// When the proof ran out.
        since: Instant,
    },
    /// No coordinator answers. The proof may still run for a while.
    CoordinatorUnavailable {
        /// When this began.
        since: Instant,
        /// Last error code, if one was answered.
        error_code: Option<i16>,
        /// Whether the proof has run out already.
        lapsed: bool,
    },
    /// Over.
    Stopped {
        /// Why.
        reason: LeaseLost,
    },
}
