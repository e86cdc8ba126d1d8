//! One member of a group, and its waiting requests.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::protocol::StrBytes;
use tokio::time::Instant;

use super::super::Ticket;

/// A JoinGroup or SyncGroup that is not answered yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    /// `None`: its connection closed. The member counts as waiting all the same.
    pub(super) ticket: Option<Ticket>,
    pub(super) api_version: i16,
}

#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) id: StrBytes,
    pub(super) instance_id: Option<StrBytes>,
    pub(super) client_id: String,
    pub(super) client_host: String,
    pub(super) session_timeout: Duration,
    pub(super) rebalance_timeout: Duration,
    pub(super) protocols: Vec<JoinGroupRequestProtocol>,
    pub(super) assignment: Bytes,
    /// When it is thrown out if nothing is heard; unset while it waits, except for a new member.
    pub(super) expiry: Option<Instant>,
    /// Its first JoinGroup is unanswered: it does not know its id and cannot send heartbeats.
    pub(super) is_new: bool,
    pub(super) join: Option<Waiting>,
    pub(super) sync: Option<Waiting>,
}

impl Member {
    pub(super) fn metadata(&self, protocol: &str) -> Bytes {
        self.protocols
            .iter()
            .find(|known| known.name.as_str() == protocol)
            .map(|known| known.metadata.clone())
            .unwrap_or_default()
    }

    pub(super) fn supports(&self, protocol: &str) -> bool {
        self.protocols.iter().any(|known| known.name.as_str() == protocol)
    }

    /// Same names in the same order with the same bytes.
    pub(super) fn matches(&self, protocols: &[JoinGroupRequestProtocol]) -> bool {
        self.protocols.len() == protocols.len()
            && self
                .protocols
                .iter()
                .zip(protocols)
                .all(|(own, other)| own.name == other.name && own.metadata == other.metadata)
    }

    pub(super) fn hear(&mut self, now: Instant) {
        self.expiry = Some(now + self.session_timeout);
    }

    pub(super) fn forget(&mut self, ticket: Ticket) {
        for waiting in [&mut self.join, &mut self.sync].into_iter().flatten() {
            if waiting.ticket == Some(ticket) {
                waiting.ticket = None;
            }
        }
    }
}
