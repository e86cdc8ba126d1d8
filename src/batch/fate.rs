//! Which batches are data: the one place where control batches and aborted transactions are told apart from it.
//!
//! A marker whose control bit is cleared on the way is accepted by every broker and shows up as a record with a 4-byte
//! key (broker-experiments, S6). So the bit is tested here and nowhere else, and [`seal`](super::seal()) asks here as
//! well.

use std::cmp::Reverse;
use std::collections::HashSet;

use crate::protocol::AbortedTransaction;

use super::header::BatchHeader;
use super::walk::{Batch, ControlType};

/// What to do with a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// A marker, for the broker only: go past it.
    Control,
    /// Data of an aborted transaction: go past it.
    Aborted,
    /// Data that consumers see.
    Data,
}

/// True for a batch that must never be written to another cluster.
pub(super) fn is_control(header: &BatchHeader) -> bool {
    header.is_control()
}

/// Follows the transactions in the batches of one partition response (batch-forwarding, 4.5).
///
/// Make one for each partition of each response, then [`judge`](Self::judge) every batch in order: the list of a
/// response also names the transactions that began before its first batch, so nothing is carried over.
#[derive(Debug, Clone)]
pub struct AbortFilter {
    /// Aborted transactions that the batches have not reached, the next one last.
    ahead: Vec<AbortedTransaction>,
    /// Producers inside an aborted transaction.
    aborting: HashSet<i64>,
}

impl AbortFilter {
    /// Takes the list of the partition response, in any order; empty if the request read uncommitted data.
    pub fn new(aborted: Vec<AbortedTransaction>) -> Self {
        let mut ahead = aborted;
        ahead.sort_unstable_by_key(|transaction| Reverse(transaction.first_offset));
        Self { ahead, aborting: HashSet::new() }
    }

    /// Says what the next batch is.
    pub fn judge<B: AsRef<[u8]>>(&mut self, batch: &Batch<B>) -> Fate {
        let header = &batch.header;
        let producer_id = header.producer_id;
        if producer_id >= 0 {
            let last_offset = header.last_offset();
            while let Some(begun) = self.ahead.pop_if(|transaction| transaction.first_offset <= last_offset) {
                self.aborting.insert(begun.producer_id);
            }
        }
        if is_control(header) {
            // A commit does not end an aborted transaction, and an empty control batch says nothing.
            if batch.control_type() == Some(ControlType::Abort) {
                self.aborting.remove(&producer_id);
            }
            return Fate::Control;
        }
        // A producer inside a transaction can also write batches outside of it only if it breaks the rules; those were
        // never aborted.
        if producer_id >= 0 && header.is_transactional() && self.aborting.contains(&producer_id) {
            return Fate::Aborted;
        }
        Fate::Data
    }
}

#[cfg(test)]
mod tests;
