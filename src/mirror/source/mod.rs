//! The way in: one fetch session per source broker.

mod fetcher;

pub(crate) use fetcher::{Fetcher, run};
