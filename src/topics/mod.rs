//! Which topics a flow copies, what they are called on the target, and which topics have to be made there.
//!
//! Everything here is a pure function of names and settings: no clock, no socket, no logging. Start at
//! [`ReplicationPolicy`] for names, [`TopicFilter`] and [`should_copy`] for the choice, [`plan_topics`] for what
//! has to be created, [`conflicts`] for flows that must not run side by side.

mod conflict;
mod filter;
mod pattern;
mod plan;
mod policy;
mod selection;

pub use conflict::{Conflict, ConflictKind, Copy, FlowRules, conflicts};
pub use filter::{DEFAULT_TOPICS, DEFAULT_TOPICS_EXCLUDE, FilterVerdict, TopicFilter};
pub use pattern::{JavaPattern, PatternError, PatternWarning};
pub use plan::{PlanRules, SourceTopic, TopicChange, plan_topics};
pub use policy::{ReplicationPolicy, Separators, UnknownPolicy};
pub use selection::{CopyDecision, SkipReason, should_copy};
