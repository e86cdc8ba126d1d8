//! Requests and answers, with what real brokers answered (broker-experiments; the section is named at each test).

mod codecs;
mod fetching;
mod hanging;
mod kit;
mod producing;
mod topics;
mod transactions;
