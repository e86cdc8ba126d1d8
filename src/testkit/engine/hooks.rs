//! What tests put between a client's request and its answer.

use std::time::Duration;

use kafka_protocol::messages::ApiKey;

use crate::protocol::ErrorCode;

/// What happens to a request that was caught.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InterceptAction {
    /// It is not worked on; every part of it is answered with this code.
    Answer(ErrorCode),
    /// It is not worked on, and its connection is closed.
    DropBefore,
    /// It is worked on, and its connection is closed instead of answering.
    DropAfter,
    /// It is worked on, and every part of it is answered with this code all the same.
    AnswerAfter(ErrorCode),
    /// It is worked on later.
    Delay(Duration),
    /// It is worked on, but a fetch reads nothing; the answer says that a quota was used up, and nothing more is read
    /// of the connection for so long (KIP-219). Only of Produce and Fetch the answer says so.
    Throttle(Duration),
}

/// Catches requests of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Intercept {
    /// The kind.
    pub api: ApiKey,
    /// Only on this node.
    pub node: Option<i32>,
    /// How many requests pass first.
    pub skip: usize,
    /// How many are caught then.
    pub times: usize,
    /// What happens to those.
    pub action: InterceptAction,
}

impl Intercept {
    /// Catches the next request of a kind.
    #[must_use]
    pub fn next(api: ApiKey, action: InterceptAction) -> Self {
        Self { api, node: None, skip: 0, times: 1, action }
    }

    /// Lets some pass first.
    #[must_use]
    pub fn after(mut self, skip: usize) -> Self {
        self.skip = skip;
        self
    }

    /// Catches several.
    #[must_use]
    pub fn times(mut self, times: usize) -> Self {
        self.times = times;
        self
    }

    /// Only on one node.
    #[must_use]
    pub fn on(mut self, node: i32) -> Self {
        self.node = Some(node);
        self
    }

    /// Counts a request; the action if it is caught.
    pub(super) fn meets(&mut self, api: ApiKey, node: i32) -> Option<InterceptAction> {
        if self.api != api || self.node.is_some_and(|only| only != node) || self.times == 0 {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        self.times -= 1;
        Some(self.action)
    }
}
