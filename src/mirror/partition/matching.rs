//! Finding in the source what the target holds behind the position (`design.md` 4, "match, don't count").
//!
//! Three ways, each begun only where the one before cannot tell: numbers of records, headers, records. By headers, a
//! source batch that goes sealed is sealed again and its derived checksum compared; one that has to be opened is cut
//! where the target's batches are cut, encoded again, and compared by its checksum. Bytes can differ although the records
//! do not (another build's codec), and compaction may have gone on since: then records are compared. What survives in the
//! source is an ordered part of what was sent, and a record of the target without a counterpart needs a source offset
//! without a record, so both logs can be walked side by side exactly.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use super::{
    machine::{PartitionMachine, Phase},
    state::StopReason,
    take::Next,
    types::OpenReason,
};
use crate::{
    batch::{
        BatchHeader, HEADER_LEN,
        open::{Cut, OpenRecords, RecordDigest, encode},
        stamped_crc,
    },
    mirror::anchor::{Position, Shape},
    protocol::LeaderEpoch,
    simulation::{self, Planted},
};

/// What the target holds behind the position, to be found again in the source.
#[derive(Debug)]
pub(super) enum Expected {
    /// Only we wrote, so many records.
    Count { remaining: i64 },
    /// These batches.
    Headers { batches: VecDeque<BatchHeader> },
    /// These records, in batches that end at these target offsets.
    Records { records: VecDeque<RecordDigest>, ends: Vec<i64> },
}

/// How long the source may have nothing more while the target still holds unmatched batches: its high watermark may
/// lag after an election.
pub(super) const MATCH_PATIENCE: Duration = Duration::from_secs(30);

/// Answers in a row that may hold fewer old entries than the target's next batch was made of. Each asks for twice as
/// much.
const SHORT_ANSWERS_MAX: u32 = 6;

impl Expected {
    fn describe(&self) -> String {
        match self {
            Self::Count { remaining } => format!("{remaining} records"),
            Self::Headers { batches } => format!("{} batches", batches.len()),
            Self::Records { records, .. } => format!("{} records", records.len()),
        }
    }
}

/// Whether a stored batch is the one we would send at this position. The checksum covers everything the broker keeps.
/// A topic with LogAppendTime, or a wrong largest timestamp, makes the broker stamp the header in place
/// (`broker-experiments.md` S1): the checksum of that follows from ours. Only a topic that recompresses has another
/// payload; then identity, sequence, count and time must do.
pub(super) fn sent_equals_stored(
    head: &[u8; HEADER_LEN],
    before: &Position,
    stored: &BatchHeader,
    shape: Shape,
) -> Result<(), &'static str> {
    let Some(sent) = BatchHeader::parse(head) else {
        return Err("the header cannot be read");
    };
    if stored.base_offset != before.target_next {
        return Err("it stands at another offset");
    }
    if (stored.producer_id, stored.producer_epoch, stored.base_sequence)
        != (sent.producer_id, sent.producer_epoch, sent.base_sequence)
    {
        return Err("another identity or sequence wrote it");
    }
    if stored.records_count != sent.records_count || stored.last_offset_delta != sent.last_offset_delta {
        return Err("it has another number of records");
    }
    if stored.codec() == sent.codec() {
        // Another length with the same codec is another batch, never the broker's work.
        let ours = stored.batch_length == sent.batch_length && stored.crc == stamped_crc(&sent, stored);
        return if ours { Ok(()) } else { Err("its bytes differ") };
    }
    // The header of a sealed LogAppendTime batch shows the source's time, its payload the producers'.
    if stored.max_timestamp != sent.max_timestamp && !stored.is_log_append_time() && !shape.sealed_append_time {
        return Err("its newest record is of another time");
    }
    Ok(())
}

impl PartitionMachine {
    pub(super) fn begin_matching(&mut self, now: Instant, expected: Expected) {
        // Every outcome is settled here, and what landed is about to be found in the source.
        self.pipeline.drop_in_flight();
        self.prepared = self.acked;
        self.taken_epoch = self.acked_epoch;
        self.match_overdue = false;
        self.match_until = Some(now + MATCH_PATIENCE);
        self.missing = 0;
        self.short_answers = 0;
        self.phase = Phase::Matching { expected };
        self.pass_foreign();
    }

    /// The records that were counted may not be those that were sent: read the headers of what is left.
    pub(super) fn doubt_count(&mut self, now: Instant) {
        self.count_doubted = true;
        if let Phase::Matching { expected: Expected::Count { remaining } } = self.phase {
            let from = self.acked.target_next;
            self.match_until = None;
            let to = from + remaining;
            self.phase = Phase::ReadingTail { from, to, asked: false, not_before: now, records: false };
        }
    }

    /// The next batch there cannot be made again from the source: compare records.
    fn compare_records(&mut self, now: Instant) -> Next {
        if let Phase::Matching { expected: Expected::Headers { batches } } = &self.phase
            && let Some(last) = batches.back()
        {
            let (from, to) = (self.acked.target_next, last.next_offset());
            self.match_until = None;
            self.phase = Phase::ReadingTail { from, to, asked: false, not_before: now, records: true };
        }
        Next::End
    }

    /// Whether only numbers of records are compared.
    pub(super) fn is_counting(&self) -> bool {
        matches!(self.phase, Phase::Matching { expected: Expected::Count { .. } })
    }

    /// Whether headers or records are compared.
    pub(super) fn is_comparing(&self) -> bool {
        matches!(self.phase, Phase::Matching { expected: Expected::Headers { .. } | Expected::Records { .. } })
    }

    /// Everything the target holds was found in the source.
    pub(super) fn matched(&mut self) {
        self.mark_anchor();
        let (position, epoch) = (self.acked, self.acked_epoch);
        if !self.matched_by_decision(position, epoch) {
            self.begin_copying(position, epoch);
        }
    }

    /// Where records of another writer are expected, the next batch of ours may stand behind some of them.
    fn pass_foreign(&mut self) {
        if self.course.foreign.is_some()
            && let Phase::Matching { expected: Expected::Headers { batches } } = &self.phase
            && let Some(next) = batches.front()
        {
            self.prepared.target_next = self.prepared.target_next.max(next.base_offset);
        }
    }

    /// Up to this source offset no record is left.
    pub(super) fn note_hole(&mut self, until: i64) {
        if self.is_comparing() && until > self.prepared.source_next {
            self.missing += until - self.prepared.source_next;
            self.prepared.source_next = until;
        }
    }

    /// How a batch that would go sealed has to be compared: whole, or cut as the target's batches are.
    pub(super) fn open_reason_in_match(&self, header: &BatchHeader, reason: Option<OpenReason>) -> Option<OpenReason> {
        match &self.phase {
            Phase::Matching { expected: Expected::Records { .. } } => Some(reason.unwrap_or(OpenReason::TooLarge)),
            Phase::Matching { expected: Expected::Headers { batches } } => match (reason, batches.front()) {
                // The limit may have been another one.
                (None | Some(OpenReason::TooLarge), Some(stored)) => {
                    (stored.records_count < header.records_count).then_some(OpenReason::TooLarge)
                }
                _ => reason,
            },
            _ => reason,
        }
    }

    /// Passes the records of a batch by their number alone.
    pub(super) fn match_count(&mut self, now: Instant, header: &BatchHeader) -> Next {
        let Phase::Matching { expected: Expected::Count { remaining } } = &mut self.phase else {
            return Next::End;
        };
        let count = i64::from(header.records_count);
        // Of a batch that begins before the position, or that was split, only the headers there can tell. And behind an
        // election the source may have another history than the one that was copied; also where the anchor knows no epoch,
        // as the first one of a partition.
        let elected = header.partition_leader_epoch != self.taken_epoch.0
            && !(simulation::has(Planted::CountedAcrossElections) && self.taken_epoch == LeaderEpoch::NONE);
        if *remaining < count || header.base_offset != self.prepared.source_next || elected {
            self.doubt_count(now);
            return Next::End;
        }
        *remaining -= count;
        let complete = *remaining == 0;
        let after = self.after(header.next_offset(), header.records_count);
        self.count_run(header.base_offset, self.prepared.target_next);
        self.found(now, after, LeaderEpoch(header.partition_leader_epoch), complete)
    }

    /// Compares a batch that goes sealed with what the target holds next.
    pub(super) fn match_sealed(
        &mut self,
        now: Instant,
        header: &BatchHeader,
        head: &[u8; HEADER_LEN],
        after: Position,
    ) -> Next {
        let shape = self.shape();
        let before = self.prepared;
        let Phase::Matching { expected: Expected::Headers { batches } } = &mut self.phase else {
            return Next::End;
        };
        let Some(stored) = batches.front().copied() else {
            self.stop(now, StopReason::PositionUnknown { why: "nothing was left to match".to_owned() });
            return Next::End;
        };
        match sent_equals_stored(head, &before, &stored, shape) {
            Ok(()) => {
                batches.pop_front();
                let complete = batches.is_empty();
                self.count_run(header.base_offset, before.target_next);
                self.found(now, after, LeaderEpoch(header.partition_leader_epoch), complete)
            }
            // Compaction took something in front of it: what the target holds next may be that. Or it took nothing, and
            // noted in the batch since when its tombstones are the last word (KIP-534), which changes its bytes.
            Err(_) if self.missing > 0 || header.has_delete_horizon() => self.compare_records(now),
            Err(why) => {
                let why = format!(
                    "the target's batch at offset {} is not the source's batch at offset {}: {why}",
                    stored.base_offset, header.base_offset
                );
                self.stop(now, StopReason::PositionUnknown { why });
                Next::End
            }
        }
    }

    /// Compares as many opened records as the target's next batch has with that batch.
    pub(super) fn match_encoded(&mut self, now: Instant, records: &mut OpenRecords<'_>, old_format: bool) -> Next {
        let shape = self.shape();
        let Phase::Matching { expected: Expected::Headers { batches } } = &mut self.phase else {
            return Next::End;
        };
        let Some(stored) = batches.front().copied() else {
            self.stop(now, StopReason::PositionUnknown { why: "nothing was left to match".to_owned() });
            return Next::End;
        };
        if records.left() < stored.records_count {
            if old_format && self.short_answers < SHORT_ANSWERS_MAX {
                self.short_answers += 1;
                self.grow_fetch();
                return Next::End;
            }
            return self.compare_records(now);
        }
        let mut ahead = records.clone();
        let cut = Cut::Records(stored.records_count);
        let Ok(Some(encoded)) = encode(&mut ahead, cut, self.identity, self.prepared.next_sequence) else {
            return self.compare_records(now);
        };
        if sent_equals_stored(&encoded.head, &self.prepared, &stored, shape).is_err() {
            return self.compare_records(now);
        }
        batches.pop_front();
        let complete = batches.is_empty();
        *records = ahead;
        self.count_runs(encoded.first_offset, self.prepared.target_next, &encoded.gaps);
        let after = self.after(encoded.next_offset, encoded.records);
        self.found(now, after, LeaderEpoch(records.contents().leader_epoch), complete)
    }

    /// Finds one opened record among the next ones of the target.
    pub(super) fn match_record(&mut self, now: Instant, records: &mut OpenRecords<'_>) -> Next {
        let Some(record) = records.peek() else {
            return Next::End;
        };
        self.note_hole(record.offset);
        let reach = usize::try_from(self.missing).unwrap_or(usize::MAX);
        let Phase::Matching { expected: Expected::Records { records: tail, .. } } = &mut self.phase else {
            return Next::End;
        };
        let digest = record.digest();
        let epoch = LeaderEpoch(records.contents().leader_epoch);
        let step = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
        if let Some(skipped) = tail.iter().take(reach.saturating_add(1)).position(|stored| *stored == digest) {
            tail.drain(..=skipped);
            let complete = tail.is_empty();
            let after = self.after(record.offset.saturating_add(1), step(skipped).saturating_add(1));
            self.count_run(record.offset, after.target_next - 1);
            records.next();
            return self.found(now, after, epoch, complete);
        }
        if tail.len() <= reach {
            // Compaction took all that was left to find, and this record has not been sent yet.
            let taken = step(tail.len());
            let after = self.after(record.offset, taken);
            return self.found(now, after, epoch, true);
        }
        let why = format!(
            "the record at source offset {} is not among those the target holds from offset {} on",
            record.offset, self.prepared.target_next
        );
        self.stop(now, StopReason::PositionUnknown { why });
        Next::End
    }

    /// The source has had nothing more for a while, and the target still holds something that was not found.
    pub(super) fn match_at_end(&mut self, now: Instant) {
        let Phase::Matching { expected } = &self.phase else {
            return;
        };
        let reach = usize::try_from(self.missing).unwrap_or(usize::MAX);
        match expected {
            // Compaction took it, if there is room for it: to be looked at record by record, and then concluded.
            Expected::Headers { .. } if self.missing > 0 => {
                self.compare_records(now);
            }
            Expected::Records { records, .. } if records.len() <= reach => {
                let after = self.after(self.prepared.source_next, i32::try_from(records.len()).unwrap_or(i32::MAX));
                self.found(now, after, self.taken_epoch, true);
            }
            _ => {
                let why = format!(
                    "the source ends at offset {}, but the target holds {} that it does not have",
                    self.prepared.source_next,
                    expected.describe()
                );
                self.stop(now, StopReason::PositionUnknown { why });
            }
        }
    }

    /// The target holds everything before this position.
    fn found(&mut self, now: Instant, after: Position, epoch: LeaderEpoch, complete: bool) -> Next {
        let shape = self.shape();
        self.prepared = after;
        // Whoever looks at the target again from here on looks for a batch that begins here.
        let ends_batch = match &self.phase {
            Phase::Matching { expected: Expected::Records { ends, .. } } => {
                complete || ends.binary_search(&after.target_next).is_ok()
            }
            _ => true,
        };
        if ends_batch {
            self.acked = after;
            self.acked_epoch = epoch;
        }
        self.taken_epoch = epoch;
        self.match_overdue = false;
        self.match_until = Some(now + MATCH_PATIENCE);
        self.missing = 0;
        self.short_answers = 0;
        if complete {
            self.matched();
            // The rest of the answer was judged under the anchor's settings; these are the new ones.
            if shape != self.settings.shape {
                return Next::End;
            }
        } else {
            self.pass_foreign();
        }
        Next::Go
    }
}
