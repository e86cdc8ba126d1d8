//! Batches that the target would refuse as they are: opened, and made anew (`batch-forwarding.md` 2.3).
//!
//! Opening and encoding is work of the worker's thread: milliseconds for a megabyte of Zstandard, during which the other
//! partitions of the worker wait. What a batch becomes is bounded by `towpath.open.max.bytes` and freed before the next
//! one is opened; what it is made into is charged to the memory budget until it is acknowledged.

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    machine::{PartitionMachine, Phase},
    matching::Expected,
    pipeline::Way,
    state::StopReason,
    take::Next,
    types::OpenReason,
};
use crate::{
    batch::{
        Batch, BatchHeader, Codec,
        open::{Contents, Cut, LegacyRun, OpenError, OpenRecords, decode, encode},
    },
    mirror::budget::FrameHold,
    protocol::LeaderEpoch,
};

impl PartitionMachine {
    /// Why a batch cannot go as it is; the order is that of `batch-forwarding.md` 2.4. From its header alone.
    pub(super) fn open_reason(&self, header: &BatchHeader, bytes: usize) -> Option<OpenReason> {
        let reason = if header.is_thinned() {
            Some(OpenReason::Thinned)
        } else if header.base_offset < self.prepared.source_next {
            Some(OpenReason::StartsBefore)
        } else if matches!(header.codec(), Codec::Unknown(_)) || self.batch_bytes_max.is_some_and(|limit| bytes > limit)
        {
            // No broker takes an unknown codec; opening says so.
            Some(OpenReason::TooLarge)
        } else if header.is_log_append_time() && !self.shape().sealed_append_time {
            Some(OpenReason::LogAppendTime)
        } else {
            None
        };
        if let Phase::Matching { .. } = self.phase { self.open_reason_in_match(header, reason) } else { reason }
    }

    /// Takes a batch whose checksum was verified.
    pub(super) fn open_batch(
        &mut self,
        now: Instant,
        batch: &Batch,
        reason: OpenReason,
        hold: Option<&FrameHold>,
    ) -> Next {
        match decode(batch, self.settings.open_bytes_max, !self.shape().sealed_append_time) {
            Ok(contents) => self.take_contents(now, &contents, reason, hold),
            Err(error) => self.cannot_open(now, batch.header.base_offset, &error),
        }
    }

    /// Takes an entry of format 0 or 1 into `run`, after what `run` held if both do not go together.
    pub(super) fn take_legacy(
        &mut self,
        now: Instant,
        offset: i64,
        entry: &Bytes,
        run: &mut LegacyRun,
        hold: Option<&FrameHold>,
    ) -> Next {
        if run.is_full_for(entry) && self.take_run(now, run, hold) == Next::End {
            return Next::End;
        }
        // The offset of a wrapper is that of its last record.
        if offset < self.prepared.source_next {
            return Next::Go;
        }
        self.progress.bytes_in += entry.len() as u64;
        match run.push(entry, self.settings.open_bytes_max) {
            Ok(()) => {
                self.corrupt_attempts = 0;
                Next::Go
            }
            Err(error) => {
                // What came before it is good.
                if self.take_run(now, run, hold) == Next::Go {
                    if let OpenError::LegacyCrc { .. } = error {
                        self.corrupt(now, offset, &error.to_string());
                    } else {
                        self.cannot_open(now, offset, &error);
                    }
                }
                Next::End
            }
        }
    }

    /// Takes what is in `run`, if anything.
    pub(super) fn take_run(&mut self, now: Instant, run: &mut LegacyRun, hold: Option<&FrameHold>) -> Next {
        match run.finish() {
            Ok(None) => Next::Go,
            Ok(Some(contents)) => {
                let span = contents.next_offset - contents.base_offset();
                let hole = contents.base_offset() > self.prepared.source_next || i64::from(contents.count()) < span;
                if hole && self.waits_before_hole() {
                    return Next::End;
                }
                self.note_hole(contents.base_offset());
                self.take_contents(now, &contents, OpenReason::OldFormat, hold)
            }
            Err(error) => self.cannot_open(now, self.prepared.source_next, &error),
        }
    }

    fn take_contents(
        &mut self,
        now: Instant,
        contents: &Contents,
        reason: OpenReason,
        hold: Option<&FrameHold>,
    ) -> Next {
        let mut records = contents.records_from(self.prepared.source_next);
        while records.left() > 0 {
            let next = match &self.phase {
                // What was sent cannot be told from numbers: compaction works on such batches.
                Phase::Matching { expected: Expected::Count { .. } } => {
                    self.doubt_count(now);
                    Next::End
                }
                Phase::Matching { expected: Expected::Headers { .. } } => {
                    self.match_encoded(now, &mut records, reason == OpenReason::OldFormat)
                }
                Phase::Matching { expected: Expected::Records { .. } } => self.match_record(now, &mut records),
                _ => self.queue_encoded(now, &mut records, reason, hold),
            };
            if next == Next::End {
                return Next::End;
            }
        }
        if contents.next_offset > self.prepared.source_next {
            self.note_hole(contents.next_offset);
            self.pass_over(contents.next_offset, contents.leader_epoch);
        }
        Next::Go
    }

    fn queue_encoded(
        &mut self,
        now: Instant,
        records: &mut OpenRecords<'_>,
        reason: OpenReason,
        hold: Option<&FrameHold>,
    ) -> Next {
        let limit = self.batch_bytes_max;
        let encoded = match encode(records, Cut::Limit(limit), self.identity, self.prepared.next_sequence) {
            Ok(Some(encoded)) => encoded,
            Ok(None) => return Next::End,
            Err(error) => return self.cannot_open(now, self.prepared.source_next, &error),
        };
        let bytes = encoded.bytes.len();
        if encoded.records == 1 && !self.limit_is_guess && limit.is_some_and(|limit| bytes > limit) {
            let offset = encoded.first_offset;
            self.stop_behind_queue(now, StopReason::RecordTooLarge { offset, bytes, limit });
            return Next::End;
        }
        let before = self.prepared;
        let after = self.after(encoded.next_offset, encoded.records);
        let leader_epoch = LeaderEpoch(records.contents().leader_epoch);
        self.prepared = after;
        self.taken_epoch = leader_epoch;
        self.queue_bytes += bytes;
        let place = self.pipeline.add();
        place.source_base = encoded.first_offset;
        place.before = before;
        place.after = after;
        place.gaps = encoded.gaps;
        place.hold = hold.map(|hold| hold.of_copy(bytes));
        place.bytes = bytes;
        place.max_timestamp = encoded.max_timestamp;
        place.records = encoded.records;
        place.leader_epoch = leader_epoch;
        place.way = Way::Opened(reason);
        place.head = encoded.head;
        place.batch = encoded.bytes;
        Next::Go
    }

    fn cannot_open(&mut self, now: Instant, offset: i64, error: &OpenError) -> Next {
        let reason = StopReason::CannotOpen { offset, why: error.to_string(), too_large: error.is_limit() };
        self.stop_behind_queue(now, reason);
        Next::End
    }

    /// The target refused a batch of so many bytes for its size: batches are made smaller from now on.
    pub(super) fn learn_limit(&mut self, refused: usize) {
        let half = (refused / 2).max(1);
        self.batch_bytes_max = Some(self.batch_bytes_max.map_or(half, |known| known.min(half)));
        self.limit_is_guess = true;
    }
}
