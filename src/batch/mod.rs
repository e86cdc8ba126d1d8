//! Record batches: read their headers, judge them, give them a new identity, as a rule without opening them.
//!
//! [`walk()`] splits what a Fetch returned into batches; [`AbortFilter`] says which of them are data; [`seal()`] makes
//! the header with which a data batch goes out. The payload is never touched: the new CRC is derived from the old one
//! ([`derive()`]), so a damaged batch stays recognisable as damaged.
//!
//! What the target would refuse as it is goes through [`open`] instead, with the codecs in [`compression`].
//!
//! [`BatchBuilder`] and [`records()`] write and read the small uncompressed topics that are our own.
// Tests may index and unwrap: a panic there is a failed test.
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

mod assemble;
mod builder;
pub mod compression;
mod crc;
mod fate;
mod header;
pub mod open;
mod recode;
mod records;
mod seal;
pub mod sequence;
pub(crate) mod varint;
#[cfg(test)]
mod vectors;
mod walk;

pub(crate) use assemble::assemble;
pub use builder::{BatchBuilder, BuildError};
pub use crc::{crc32c, derive};
pub use fate::{AbortFilter, Fate};
pub use header::{BatchHeader, Codec, HEADER_LEN};
pub use recode::{RecodeError, recoded};
pub use records::{Record, RecordError, RecordHeader, Records, records};
pub use seal::{ProducerIdentity, SealRefused, seal, stamped_crc};
pub use walk::{Batch, ControlType, CrcMismatch, Entry, Slices, Walk, WalkError, WalkFault, walk, walk_slices};
