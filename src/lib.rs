//! Towpath copies Kafka topics between clusters without opening the record batches.
//!
//! Start reading at `docs/ARCHITECTURE.md`; the way of a batch begins in [`mirror`].

pub mod api;
pub mod backoff;
pub mod batch;
pub mod cli;
pub mod client;
pub mod config;
pub mod metrics;
pub mod mirror;
pub mod net;
pub mod os_error;
pub mod protocol;
pub mod rare;
pub mod simulation;
pub mod testkit;
pub mod topics;
pub mod wall_clock;
