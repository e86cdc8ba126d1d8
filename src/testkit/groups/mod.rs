//! The group coordinator of the embedded broker: the classic group protocol and committed offsets.
//!
//! A pure machine, as strict as the coordinators of Kafka 4.3.1, 3.9.2 and 2.8.2 (`broker-experiments.md` S8 and S13): time
//! comes in as a parameter, answers come out of [`GroupCoordinator::poll_answer`], and no call blocks. A JoinGroup or
//! SyncGroup that has to wait is answered by a later call. Call [`GroupCoordinator::handle_timeout`] when
//! [`GroupCoordinator::poll_timeout`] has come.
//!
//! ```text
//!            first join                 everybody joined, or time is up            leader's SyncGroup
//!  Empty ───────────────▶ Preparing ────────────────────────────────▶ Completing ───────────────────▶ Stable
//!    ▲                     ▲  │ nobody is left            a member joins, leaves, expires │              │
//!    └─────────────────────┼──┘                                                          ▼              ▼
//!                          └─────────────────────────────────────────────────────────────┴──────────────┘
//! ```
//!
//! What is written to `__consumer_offsets` on a real broker, and so survives a restart, is kept beside the live state:
//! `group::Group` says which is which. Groups of KIP-848 would stand beside `group::Group` in the coordinator's map;
//! transactional offset commits do not exist.
//!
//! Start reading at [`GroupCoordinator::handle`]; `join.rs` has the rebalance.

mod describe;
mod group;
mod join;
mod member;
mod offsets;
mod session;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use kafka_protocol::messages::{
    DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse, HeartbeatRequest,
    HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse, ListGroupsRequest,
    ListGroupsResponse, OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest, OffsetDeleteResponse,
    OffsetFetchRequest, OffsetFetchResponse, SyncGroupRequest, SyncGroupResponse,
};
use kafka_protocol::protocol::StrBytes;
use tokio::time::Instant;

use super::{BrokerVersion, Ticket, TopicLookup};
use group::Group;

/// Broker settings under their Kafka names, with their defaults.
#[derive(Clone, Debug)]
pub struct GroupSettings {
    /// `group.initial.rebalance.delay.ms`
    pub initial_rebalance_delay: Duration,
    /// `group.min.session.timeout.ms`
    pub session_timeout_min: Duration,
    /// `group.max.session.timeout.ms`
    pub session_timeout_max: Duration,
    /// `offset.metadata.max.bytes`, which counts characters whatever its name says.
    pub metadata_characters_max: usize,
    /// `offsets.retention.minutes`
    pub offsets_retention: Duration,
    /// `offsets.retention.check.interval.ms`
    pub retention_check_interval: Duration,
    /// How long the coordinator loads after [`GroupCoordinator::handle_restart`]: not a setting of Kafka, there it depends
    /// on the size of the log.
    pub load_time: Duration,
}

impl Default for GroupSettings {
    fn default() -> Self {
        Self {
            initial_rebalance_delay: Duration::from_secs(3),
            session_timeout_min: Duration::from_secs(6),
            session_timeout_max: Duration::from_secs(1800),
            metadata_characters_max: 4096,
            offsets_retention: Duration::from_secs(7 * 24 * 3600),
            retention_check_interval: Duration::from_secs(600),
            load_time: Duration::ZERO,
        }
    }
}

/// Who asks. A [`Ticket`] alone will do where nobody looks at a member's client id and host.
#[derive(Clone, Debug)]
pub struct Caller {
    pub ticket: Ticket,
    pub client_id: String,
    /// As DescribeGroups shows it: `/127.0.0.1`.
    pub client_host: String,
}

impl From<Ticket> for Caller {
    fn from(ticket: Ticket) -> Self {
        Self { ticket, client_id: String::new(), client_host: String::new() }
    }
}

/// A request to the coordinator, decoded.
#[derive(Clone, Debug)]
pub enum GroupRequest {
    JoinGroup(JoinGroupRequest),
    SyncGroup(SyncGroupRequest),
    Heartbeat(HeartbeatRequest),
    LeaveGroup(LeaveGroupRequest),
    OffsetCommit(OffsetCommitRequest),
    OffsetFetch(OffsetFetchRequest),
    OffsetDelete(OffsetDeleteRequest),
    DescribeGroups(DescribeGroupsRequest),
    ListGroups(ListGroupsRequest),
    DeleteGroups(DeleteGroupsRequest),
}

/// An answer that can be encoded at the version of its request.
#[derive(Clone, Debug)]
pub enum GroupResponse {
    JoinGroup(JoinGroupResponse),
    SyncGroup(SyncGroupResponse),
    Heartbeat(HeartbeatResponse),
    LeaveGroup(LeaveGroupResponse),
    OffsetCommit(OffsetCommitResponse),
    OffsetFetch(OffsetFetchResponse),
    OffsetDelete(OffsetDeleteResponse),
    DescribeGroups(DescribeGroupsResponse),
    ListGroups(ListGroupsResponse),
    DeleteGroups(DeleteGroupsResponse),
}

/// All groups of one coordinator.
#[derive(Debug)]
pub struct GroupCoordinator {
    settings: GroupSettings,
    version: BrokerVersion,
    groups: BTreeMap<StrBytes, Group>,
    answers: VecDeque<(Ticket, GroupResponse)>,
    /// Requests are refused until then.
    loading_until: Option<Instant>,
    /// Unset until the first request: nothing can expire before.
    retention_check: Option<Instant>,
    member_ids: u64,
}

impl GroupCoordinator {
    pub fn new(settings: GroupSettings, version: BrokerVersion) -> Self {
        Self {
            settings,
            version,
            groups: BTreeMap::new(),
            answers: VecDeque::new(),
            loading_until: None,
            retention_check: None,
            member_ids: 0,
        }
    }

    /// Takes one request; its answer comes now or later from [`Self::poll_answer`].
    pub fn handle(
        &mut self,
        now: Instant,
        wall_ms: i64,
        topics: &dyn TopicLookup,
        caller: impl Into<Caller>,
        api_version: i16,
        request: GroupRequest,
    ) {
        self.handle_timeout(now, wall_ms);
        self.retention_check.get_or_insert(now + self.settings.retention_check_interval);
        let caller = caller.into();
        let ticket = caller.ticket;
        let answer = match request {
            GroupRequest::JoinGroup(request) => return self.join_group(now, wall_ms, caller, api_version, request),
            GroupRequest::SyncGroup(request) => return self.sync_group(now, ticket, api_version, &request),
            GroupRequest::Heartbeat(request) => GroupResponse::Heartbeat(self.heartbeat(now, &request)),
            GroupRequest::LeaveGroup(request) => {
                GroupResponse::LeaveGroup(self.leave_group(now, wall_ms, api_version, &request))
            }
            GroupRequest::OffsetCommit(request) => {
                GroupResponse::OffsetCommit(self.offset_commit(now, wall_ms, topics, api_version, &request))
            }
            GroupRequest::OffsetFetch(request) => GroupResponse::OffsetFetch(self.offset_fetch(api_version, &request)),
            GroupRequest::OffsetDelete(request) => GroupResponse::OffsetDelete(self.offset_delete(topics, &request)),
            GroupRequest::DescribeGroups(request) => {
                GroupResponse::DescribeGroups(self.describe_groups(api_version, &request))
            }
            GroupRequest::ListGroups(request) => GroupResponse::ListGroups(self.list_groups(api_version, &request)),
            GroupRequest::DeleteGroups(request) => GroupResponse::DeleteGroups(self.delete_groups(&request)),
        };
        self.answers.push_back((ticket, answer));
    }

    /// Lets everything happen whose time has come: the end of a rebalance, members that expire, offsets that expire.
    pub fn handle_timeout(&mut self, now: Instant, wall_ms: i64) {
        if self.loading_until.is_some_and(|until| now >= until) {
            self.loading_until = None;
        }
        if self.loading_until.is_some() {
            return;
        }
        // One event can make another one due, but each removes a timer or moves it into the future.
        while let Some(id) = self.groups.iter().find(|(_, group)| group.due(now)).map(|(id, _)| id.clone()) {
            if let Some(group) = self.groups.get_mut(&id) {
                group.handle_timeout(now, wall_ms, self.version, &mut self.answers);
            }
        }
        if self.retention_check.is_some_and(|at| now >= at) {
            self.retention_check = Some(now + self.settings.retention_check_interval);
            self.expire_offsets(wall_ms);
        }
    }

    /// The coordinator moved or restarted: it loads what was written. Waiting requests get no answer, because their
    /// connections are gone; the session time of every member starts anew.
    pub fn handle_restart(&mut self, now: Instant) {
        let loaded = now + self.settings.load_time;
        self.loading_until = (loaded > now).then_some(loaded);
        self.answers.clear();
        self.groups.retain(|_, group| group.reload(loaded));
    }

    /// The connection of a waiting request closed. Kafka does not notice: the member goes on waiting, only the answer has
    /// nowhere to go.
    pub fn forget(&mut self, ticket: Ticket) {
        self.answers.retain(|(waiting, _)| *waiting != ticket);
        for group in self.groups.values_mut() {
            group.forget(ticket);
        }
    }

    pub fn poll_answer(&mut self) -> Option<(Ticket, GroupResponse)> {
        self.answers.pop_front()
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.loading_until.is_some() {
            return self.loading_until;
        }
        self.groups.values().filter_map(Group::poll_timeout).chain(self.retention_check).min()
    }

    /// The topic's committed offsets go at once, whoever holds the group (S8).
    pub fn topic_deleted(&mut self, topic: &str) {
        for group in self.groups.values_mut() {
            group.offsets.retain(|(name, _), _| name.as_str() != topic);
        }
        self.drop_bare_groups();
    }

    /// The Scala coordinator removes a group with its last offset; the one of 4.x waits for the next retention check.
    fn drop_bare_groups(&mut self) {
        if self.version < BrokerVersion::V4_3_1 {
            self.groups.retain(|_, group| !group.is_bare());
        }
    }

    fn is_loading(&self) -> bool {
        self.loading_until.is_some()
    }

    /// What every request is checked for. OffsetCommit, OffsetFetch, DescribeGroups and DeleteGroups take the empty name.
    fn refuse_group(&self, group_id: &str, empty_allowed: bool) -> Result<(), i16> {
        if group_id.is_empty() && !empty_allowed {
            return Err(INVALID_GROUP_ID);
        }
        if self.is_loading() { Err(COORDINATOR_LOAD_IN_PROGRESS) } else { Ok(()) }
    }
}

const NONE: i16 = 0;
const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const OFFSET_METADATA_TOO_LARGE: i16 = 12;
const COORDINATOR_LOAD_IN_PROGRESS: i16 = 14;
const ILLEGAL_GENERATION: i16 = 22;
const INCONSISTENT_GROUP_PROTOCOL: i16 = 23;
const INVALID_GROUP_ID: i16 = 24;
const UNKNOWN_MEMBER_ID: i16 = 25;
const INVALID_SESSION_TIMEOUT: i16 = 26;
const REBALANCE_IN_PROGRESS: i16 = 27;
const NON_EMPTY_GROUP: i16 = 68;
const GROUP_ID_NOT_FOUND: i16 = 69;
const MEMBER_ID_REQUIRED: i16 = 79;
const FENCED_INSTANCE_ID: i16 = 82;
const GROUP_SUBSCRIBED_TO_TOPIC: i16 = 86;

#[cfg(test)]
mod tests;
