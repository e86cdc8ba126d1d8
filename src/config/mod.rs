//! x
pub mod properties;
