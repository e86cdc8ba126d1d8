//! The transaction coordinator: producer ids, open transactions, and their markers.
//!
//! Markers are written at once when a transaction ends, so nobody meets the moment between decision and marker.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::Cluster;
use crate::batch::ControlType;
use crate::protocol::ErrorCode;
use crate::testkit::log::Marker;

/// Epoch that coordinators write into markers.
const COORDINATOR_EPOCH: i32 = 0;

/// One transactional id.
#[derive(Debug, Clone)]
pub(super) struct Transaction {
    pub(super) producer_id: i64,
    pub(super) epoch: i16,
    timeout: Duration,
    /// Partitions of the open transaction.
    pub(super) partitions: BTreeSet<(String, i32)>,
    /// When it is aborted, if it is open.
    deadline: Option<Instant>,
}

impl Transaction {
    fn is_open(&self) -> bool {
        self.deadline.is_some()
    }

    fn begin(&mut self, now: Instant) {
        if self.deadline.is_none() {
            self.deadline = Some(now + self.timeout);
        }
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Transactions {
    by_id: BTreeMap<String, Transaction>,
    next_producer_id: i64,
}

impl Transactions {
    pub(super) fn fresh_producer_id(&mut self) -> i64 {
        let id = self.next_producer_id;
        self.next_producer_id = self.next_producer_id.saturating_add(1);
        id
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.by_id.values().filter_map(|transaction| transaction.deadline).min()
    }

    /// The transaction, if producer id and epoch are its own.
    pub(super) fn owned(
        &mut self,
        transactional_id: &str,
        producer_id: i64,
        epoch: i16,
    ) -> Result<&mut Transaction, ErrorCode> {
        let transaction = self
            .by_id
            .get_mut(transactional_id)
            .filter(|transaction| transaction.producer_id == producer_id)
            .ok_or(ErrorCode::INVALID_PRODUCER_ID_MAPPING)?;
        if transaction.epoch == epoch { Ok(transaction) } else { Err(ErrorCode::PRODUCER_FENCED) }
    }

    /// Whether a partition belongs to the open transaction of this producer.
    pub(super) fn contains(&self, id: &str, producer_id: i64, epoch: i16, topic: &str, partition: i32) -> bool {
        self.by_id.get(id).is_some_and(|transaction| {
            transaction.producer_id == producer_id
                && transaction.epoch == epoch
                && transaction.partitions.contains(&(topic.to_owned(), partition))
        })
    }
}

impl Cluster {
    /// InitProducerId with a transactional id: fences whoever used it before and aborts what that left open.
    pub(super) fn initialize_transactional(
        &mut self,
        id: &str,
        timeout_ms: i32,
        known: Option<(i64, i16)>,
    ) -> Result<(i64, i16), ErrorCode> {
        let timeout_max = self.configs.number("transaction.max.timeout.ms", 900_000);
        if timeout_ms <= 0 || i64::from(timeout_ms) > timeout_max {
            return Err(ErrorCode::INVALID_TRANSACTION_TIMEOUT);
        }
        let timeout = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
        let Some(old) = self.transactions.by_id.get(id).cloned() else {
            let producer_id = self.transactions.fresh_producer_id();
            let transaction =
                Transaction { producer_id, epoch: 0, timeout, partitions: BTreeSet::new(), deadline: None };
            self.transactions.by_id.insert(id.to_owned(), transaction);
            return Ok((producer_id, 0));
        };
        if known.is_some_and(|(producer_id, epoch)| {
            producer_id >= 0 && (producer_id, epoch) != (old.producer_id, old.epoch)
        }) {
            return Err(ErrorCode::PRODUCER_FENCED);
        }
        if old.is_open() {
            // The abort itself carries the raised epoch, so that the old producer is fenced on every partition.
            self.raise_epoch(id);
            self.end_transaction(id, false);
        }
        self.raise_epoch(id);
        let transaction = self.transactions.by_id.get_mut(id).ok_or(ErrorCode::UNKNOWN_SERVER_ERROR)?;
        transaction.timeout = timeout;
        Ok((transaction.producer_id, transaction.epoch))
    }

    fn raise_epoch(&mut self, id: &str) {
        let fresh = self.transactions.next_producer_id;
        let mut used = false;
        if let Some(transaction) = self.transactions.by_id.get_mut(id) {
            if transaction.epoch >= i16::MAX - 1 {
                transaction.producer_id = fresh;
                transaction.epoch = 0;
                used = true;
            } else {
                transaction.epoch += 1;
            }
        }
        if used {
            self.transactions.next_producer_id += 1;
        }
    }

    /// Adds partitions to the transaction, which begins if it is not open.
    pub(super) fn add_to_transaction(
        &mut self,
        id: &str,
        producer_id: i64,
        epoch: i16,
        partitions: impl IntoIterator<Item = (String, i32)>,
    ) -> Result<(), ErrorCode> {
        let now = self.clock.now;
        let transaction = self.transactions.owned(id, producer_id, epoch)?;
        transaction.begin(now);
        transaction.partitions.extend(partitions);
        Ok(())
    }

    /// EndTxn; with `bump` (version 5, KIP-890) the epoch is raised by every end.
    pub(super) fn finish_transaction(
        &mut self,
        id: &str,
        producer_id: i64,
        epoch: i16,
        commit: bool,
        bump: bool,
    ) -> Result<(i64, i16), ErrorCode> {
        let transaction = self.transactions.owned(id, producer_id, epoch)?;
        if !transaction.is_open() && !bump {
            return Err(ErrorCode::INVALID_TXN_STATE);
        }
        if bump {
            self.raise_epoch(id);
        }
        self.end_transaction(id, commit);
        let transaction = self.transactions.by_id.get(id).ok_or(ErrorCode::UNKNOWN_SERVER_ERROR)?;
        Ok((transaction.producer_id, transaction.epoch))
    }

    fn end_transaction(&mut self, id: &str, commit: bool) {
        let Some(transaction) = self.transactions.by_id.get_mut(id) else {
            return;
        };
        let marker = Marker {
            producer_id: transaction.producer_id,
            producer_epoch: transaction.epoch,
            coordinator_epoch: COORDINATOR_EPOCH,
            kind: if commit { ControlType::Commit } else { ControlType::Abort },
        };
        transaction.deadline = None;
        for (topic, index) in std::mem::take(&mut transaction.partitions) {
            // A topic that was deleted meanwhile needs no marker.
            let _ = self.write_marker(&topic, index, &marker);
        }
    }

    pub(super) fn write_marker(&mut self, topic: &str, index: i32, marker: &Marker) -> Result<i64, ErrorCode> {
        let wall_ms = self.clock.wall_ms;
        let partition = self.topics.partition_mut(topic, index).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        let offset = partition.log.append_marker(marker, wall_ms, partition.leader_epoch)?;
        self.is_dirty = true;
        Ok(offset)
    }

    pub(super) fn abort_overdue_transactions(&mut self) {
        let now = self.clock.now;
        let overdue = |(id, transaction): (&String, &Transaction)| {
            transaction.deadline.is_some_and(|deadline| deadline <= now).then(|| id.clone())
        };
        let overdue: Vec<String> = self.transactions.by_id.iter().filter_map(overdue).collect();
        for id in overdue {
            self.raise_epoch(&id);
            self.end_transaction(&id, false);
        }
    }
}
