//! Tests across modules and against real brokers; one binary so that it links once.

mod cli;
mod embedded;
mod real;
mod tidy;
