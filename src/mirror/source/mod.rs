//! The way in: one fetch session per source broker.

mod fair;
mod fetcher;

pub(crate) use fetcher::{Fetcher, run};
