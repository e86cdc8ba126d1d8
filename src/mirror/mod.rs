//! (being built)

pub mod lease;
