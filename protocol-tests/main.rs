//! Tests across modules and against real brokers; one binary so that it links once.

mod cli;
#[allow(clippy::disallowed_methods, reason = "real brokers have only the real clock")]
mod differential;
mod embedded;
mod loud;
mod outside;
mod real;
mod sim;
mod tidy;
