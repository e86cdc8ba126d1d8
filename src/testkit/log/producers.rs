//! What a partition remembers of the producers that wrote to it: the window of five batches, fences, transactions.
//!
//! Rules and codes: batch-forwarding 3.2 to 3.5, broker-experiments S2 to S4.

use std::collections::{BTreeMap, VecDeque};

use crate::batch::sequence;
use crate::protocol::ErrorCode;

/// Batches of a producer that are recognised when they come again.
const WINDOW: usize = 5;
/// "No epoch yet".
const NO_EPOCH: i16 = -1;
const NO_SEQUENCE: i32 = -1;

/// A batch that was appended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remembered {
    /// Sequence of its first record.
    pub first_sequence: i32,
    /// Sequence of its last record.
    pub last_sequence: i32,
    /// Offset of its first record.
    pub base_offset: i64,
    /// Its largest timestamp as stored.
    pub timestamp: i64,
}

/// State of one producer id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProducerState {
    /// The newest epoch that wrote.
    pub epoch: i16,
    /// The last batches of that epoch, oldest first.
    pub window: VecDeque<Remembered>,
    /// Largest timestamp of the newest batch or marker; the state expires by it.
    pub last_timestamp: i64,
    /// Epoch of the coordinator that wrote the last marker; -1 if none did.
    pub coordinator_epoch: i32,
    /// First offset of the open transaction.
    pub transaction_start: Option<i64>,
}

impl Default for ProducerState {
    fn default() -> Self {
        Self {
            epoch: NO_EPOCH,
            window: VecDeque::new(),
            last_timestamp: -1,
            coordinator_epoch: -1,
            transaction_start: None,
        }
    }
}

impl ProducerState {
    /// Sequence of the last record; -1 if the epoch has written none.
    #[must_use]
    pub fn last_sequence(&self) -> i32 {
        self.window.back().map_or(NO_SEQUENCE, |batch| batch.last_sequence)
    }
}

/// A batch as far as its producer's state is concerned.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) producer_id: i64,
    pub(super) epoch: i16,
    pub(super) first_sequence: i32,
    pub(super) records: i32,
    pub(super) is_transactional: bool,
}

impl Candidate {
    fn last_sequence(&self) -> i32 {
        sequence::last(self.first_sequence, self.records)
    }
}

/// All producers of a partition.
#[derive(Debug, Clone, Default)]
pub(super) struct Producers {
    states: BTreeMap<i64, ProducerState>,
}

impl Producers {
    pub(super) fn iter(&self) -> impl Iterator<Item = (i64, &ProducerState)> {
        self.states.iter().map(|(id, state)| (*id, state))
    }

    pub(super) fn get(&self, producer_id: i64) -> Option<&ProducerState> {
        self.states.get(&producer_id)
    }

    /// Whether the batch may be appended; `Ok(Some)` if it is there already.
    pub(super) fn check(&self, batch: &Candidate) -> Result<Option<Remembered>, ErrorCode> {
        let Some(state) = self.states.get(&batch.producer_id) else {
            // Any first sequence of an unknown producer is taken (KIP-360).
            return Ok(None);
        };
        if batch.epoch == state.epoch {
            let same = |known: &&Remembered| {
                (known.first_sequence, known.last_sequence) == (batch.first_sequence, batch.last_sequence())
            };
            if let Some(known) = state.window.iter().find(same) {
                return Ok(Some(*known));
            }
        }
        if batch.epoch < state.epoch {
            return Err(ErrorCode::INVALID_PRODUCER_EPOCH);
        }
        let in_order = if state.epoch == NO_EPOCH {
            true
        } else if batch.epoch > state.epoch {
            batch.first_sequence == 0
        } else {
            follows(state.last_sequence(), batch.first_sequence)
        };
        if !in_order {
            return Err(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
        }
        if state.transaction_start.is_some() && !batch.is_transactional {
            return Err(ErrorCode::INVALID_TXN_STATE);
        }
        Ok(None)
    }

    /// The batch was appended.
    pub(super) fn appended(&mut self, batch: &Candidate, base_offset: i64, timestamp: i64) {
        let state = self.states.entry(batch.producer_id).or_default();
        if batch.epoch != state.epoch {
            state.epoch = batch.epoch;
            state.window.clear();
        }
        if state.window.len() == WINDOW {
            state.window.pop_front();
        }
        state.window.push_back(Remembered {
            first_sequence: batch.first_sequence,
            last_sequence: batch.last_sequence(),
            base_offset,
            timestamp,
        });
        state.last_timestamp = timestamp;
        if batch.is_transactional && state.transaction_start.is_none() {
            state.transaction_start = Some(base_offset);
        }
    }

    /// Whether a marker may be written.
    pub(super) fn check_marker(&self, producer_id: i64, epoch: i16, coordinator_epoch: i32) -> Result<(), ErrorCode> {
        match self.states.get(&producer_id) {
            Some(state) if epoch < state.epoch => Err(ErrorCode::INVALID_PRODUCER_EPOCH),
            Some(state) if coordinator_epoch < state.coordinator_epoch => {
                Err(ErrorCode::TRANSACTION_COORDINATOR_FENCED)
            }
            _ => Ok(()),
        }
    }

    /// A marker was written; returns where the transaction began that it ended, if one was open.
    pub(super) fn ended(
        &mut self,
        producer_id: i64,
        epoch: i16,
        coordinator_epoch: i32,
        timestamp: i64,
    ) -> Option<i64> {
        let state = self.states.entry(producer_id).or_default();
        if epoch != state.epoch {
            state.epoch = epoch;
            state.window.clear();
        }
        state.last_timestamp = timestamp;
        state.coordinator_epoch = coordinator_epoch;
        state.transaction_start.take()
    }

    /// First offset of the oldest open transaction.
    pub(super) fn first_open(&self) -> Option<i64> {
        self.states.values().filter_map(|state| state.transaction_start).min()
    }

    /// Forgets producers whose last timestamp is too old and that have no open transaction.
    pub(super) fn expire(&mut self, wall_ms: i64, expiration_ms: i64) {
        self.states.retain(|_, state| {
            state.transaction_start.is_some() || wall_ms.saturating_sub(state.last_timestamp) < expiration_ms
        });
    }

    /// What is left after the leader started anew: a snapshot keeps each producer's newest batch alone.
    pub(super) fn restart(&mut self) {
        for state in self.states.values_mut() {
            let surplus = state.window.len().saturating_sub(1);
            state.window.drain(..surplus);
        }
    }

    /// The log was cut off at `end`: what lies behind is forgotten.
    pub(super) fn truncate(&mut self, end: i64) {
        self.states.retain(|_, state| {
            state.window.retain(|batch| batch.base_offset < end);
            state.transaction_start = state.transaction_start.filter(|start| *start < end);
            !state.window.is_empty()
        });
    }
}

fn follows(last: i32, next: i32) -> bool {
    next == last.wrapping_add(1) || (last == i32::MAX && next == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(epoch: i16, first_sequence: i32, records: i32) -> Candidate {
        Candidate { producer_id: 7, epoch, first_sequence, records, is_transactional: false }
    }

    fn write(producers: &mut Producers, batch: Candidate, offset: i64) -> Result<Option<i64>, ErrorCode> {
        let known = producers.check(&batch)?;
        if known.is_none() {
            producers.appended(&batch, offset, 1000 + offset);
        }
        Ok(known.map(|batch| batch.base_offset))
    }

    #[test]
    fn the_window_is_five_batches_and_one_after_a_restart() {
        // broker-experiments S2, first table and "Restart".
        let mut producers = Producers::default();
        for at in 0..8 {
            assert_eq!(write(&mut producers, batch(0, at * 10, 10), i64::from(at) * 10), Ok(None));
        }
        for at in 3..8 {
            assert_eq!(write(&mut producers, batch(0, at * 10, 10), 99), Ok(Some(i64::from(at) * 10)));
        }
        assert_eq!(write(&mut producers, batch(0, 20, 10), 99), Err(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER));
        // Same first sequence, other length.
        assert_eq!(write(&mut producers, batch(0, 70, 9), 99), Err(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER));
        producers.restart();
        for at in 0..7 {
            assert!(write(&mut producers, batch(0, at * 10, 10), 99).is_err());
        }
        assert_eq!(write(&mut producers, batch(0, 70, 10), 99), Ok(Some(70)));
        assert_eq!(write(&mut producers, batch(0, 80, 10), 80), Ok(None));
    }

    #[test]
    fn an_unknown_producer_may_begin_anywhere() {
        let mut producers = Producers::default();
        assert_eq!(write(&mut producers, batch(7, 777, 1), 0), Ok(None));
        assert_eq!(write(&mut producers, batch(7, 0, 1), 1), Err(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER));
    }

    #[test]
    fn sequences_wrap() {
        let mut producers = Producers::default();
        assert_eq!(write(&mut producers, batch(0, 2_147_483_646, 4), 0), Ok(None));
        assert_eq!(write(&mut producers, batch(0, 2_147_483_646, 4), 9), Ok(Some(0)));
        assert_eq!(write(&mut producers, batch(0, 2, 1), 4), Ok(None));
    }

    #[test]
    fn a_newer_epoch_starts_at_zero_and_fences() {
        // broker-experiments S3.
        let mut producers = Producers::default();
        assert_eq!(write(&mut producers, batch(0, 0, 5), 0), Ok(None));
        assert_eq!(write(&mut producers, batch(1, 5, 5), 5), Err(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER));
        assert_eq!(write(&mut producers, batch(0, 5, 5), 5), Ok(None));
        assert_eq!(write(&mut producers, batch(5, 0, 5), 10), Ok(None));
        assert_eq!(write(&mut producers, batch(0, 5, 5), 15), Err(ErrorCode::INVALID_PRODUCER_EPOCH));
        // A marker fences without data.
        assert_eq!(producers.check_marker(7, 6, 0), Ok(()));
        assert_eq!(producers.ended(7, 6, 0, 1), None);
        assert_eq!(write(&mut producers, batch(5, 5, 5), 16), Err(ErrorCode::INVALID_PRODUCER_EPOCH));
        assert_eq!(write(&mut producers, batch(6, 5, 5), 16), Err(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER));
        assert_eq!(write(&mut producers, batch(6, 0, 5), 16), Ok(None));
        assert_eq!(producers.check_marker(7, 6, -1), Err(ErrorCode::TRANSACTION_COORDINATOR_FENCED));
        assert_eq!(producers.check_marker(7, 5, 0), Err(ErrorCode::INVALID_PRODUCER_EPOCH));
    }

    #[test]
    fn old_timestamps_expire_at_the_next_sweep() {
        let mut producers = Producers::default();
        write(&mut producers, batch(0, 0, 5), 0).unwrap();
        producers.expire(1000 + 86_399_999, 86_400_000);
        assert!(producers.get(7).is_some());
        producers.expire(1000 + 86_400_000, 86_400_000);
        assert!(producers.get(7).is_none());
        assert_eq!(write(&mut producers, batch(0, 0, 5), 5), Ok(None));
    }
}
