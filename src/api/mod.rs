//! What a mirror tells over HTTP on its own host: `/metrics`, `/health`, `/ready` (`docs/metrics.md`).
//!
//! The server has a thread of its own, so that nothing that happens on its port touches a thread that copies: bytes of
//! strangers, slow readers, or a scrape of ten thousand partitions. What it shows it asks of the control thread, a few times
//! a second at most. It translates and decides nothing.

mod exposition;
mod health;
mod server;
#[cfg(test)]
mod tests;

pub use exposition::exposition;
pub use health::{Reason, is_healthy, reasons};
pub use server::{ServeError, Server};
