//! Stand-in until the group coordinator is merged: every group request is answered "no coordinator".

use std::time::Duration;

use kafka_protocol::messages as wire;
use tokio::time::Instant;

use super::{BrokerVersion, Ticket, TopicLookup};

macro_rules! group_apis {
    ($($name:ident: $request:ident, $response:ident;)*) => {
        /// A request to the coordinator.
        #[derive(Debug, Clone, PartialEq)]
        #[allow(missing_docs)]
        pub enum GroupRequest { $($name(wire::$request),)* }

        /// Its answer.
        #[derive(Debug, Clone, PartialEq)]
        #[allow(missing_docs)]
        pub enum GroupResponse { $($name(wire::$response),)* }
    };
}

group_apis! {
    JoinGroup: JoinGroupRequest, JoinGroupResponse;
    SyncGroup: SyncGroupRequest, SyncGroupResponse;
    Heartbeat: HeartbeatRequest, HeartbeatResponse;
    LeaveGroup: LeaveGroupRequest, LeaveGroupResponse;
    OffsetCommit: OffsetCommitRequest, OffsetCommitResponse;
    OffsetFetch: OffsetFetchRequest, OffsetFetchResponse;
    OffsetDelete: OffsetDeleteRequest, OffsetDeleteResponse;
    DescribeGroups: DescribeGroupsRequest, DescribeGroupsResponse;
    ListGroups: ListGroupsRequest, ListGroupsResponse;
    DeleteGroups: DeleteGroupsRequest, DeleteGroupsResponse;
}

/// Settings.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)]
pub struct GroupSettings {
    pub initial_rebalance_delay: Duration,
    pub session_timeout_min: Duration,
    pub session_timeout_max: Duration,
    pub metadata_characters_max: usize,
    pub offsets_retention: Duration,
    pub retention_check_interval: Duration,
    pub load_time: Duration,
}

/// Who asks.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct Caller {
    pub ticket: Ticket,
    pub client_id: String,
    pub client_host: String,
}

/// The coordinator.
#[derive(Debug)]
pub struct GroupCoordinator {}

impl GroupCoordinator {
    /// New.
    #[must_use]
    pub fn new(_settings: GroupSettings, _version: BrokerVersion) -> Self {
        Self {}
    }

    /// A request.
    pub fn handle(
        &mut self,
        _now: Instant,
        _wall_ms: i64,
        _caller: Caller,
        _api_version: i16,
        _request: GroupRequest,
        _topics: &dyn TopicLookup,
    ) {
    }

    /// Time passed.
    pub fn handle_timeout(&mut self, _now: Instant, _wall_ms: i64) {}

    /// Moved or restarted.
    pub fn handle_restart(&mut self, _now: Instant) {}

    /// The asker is gone.
    pub fn forget(&mut self, _ticket: Ticket) {}

    /// The next answer.
    pub fn poll_answer(&mut self) -> Option<(Ticket, GroupResponse)> {
        None
    }

    /// When something happens.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// A topic is gone.
    pub fn topic_deleted(&mut self, _topic: &str) {}
}
