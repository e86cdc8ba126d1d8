//! The walk over what was fetched: decide for each batch, from its header alone (`batch-forwarding.md` 2.4).

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    machine::{PartitionMachine, Phase},
    pipeline::Way,
    state::StopReason,
    types::Ticket,
};
use crate::{
    batch::{AbortFilter, Batch, Entry, Fate, HEADER_LEN, open::LegacyRun, seal, sequence, walk_slices},
    mirror::{
        anchor::{Mark, Position},
        budget::FrameHold,
    },
    protocol::{AbortedTransaction, FrameSlice, LeaderEpoch, TopicPartition},
    simulation::{self, Planted},
};

/// Attempts at a damaged batch before the partition stops: damage on the way differs from try to try, damage on the
/// disk does not.
const CORRUPT_ATTEMPTS_MAX: u32 = 3;
/// No batch is larger than this on any broker with sane settings (`message.max.bytes`); the limit of one fetch stops
/// growing here.
const PARTITION_BYTES_CEILING: i32 = 128 << 20;

/// One partition's share of a fetch answer.
#[derive(Debug)]
pub struct Fetched {
    /// The offset the answer is for.
    pub fetch_offset: i64,
    /// Batches as the broker stores them; the last may be cut off.
    pub records: Bytes,
    /// Aborted transactions that overlap them; empty unless read committed was asked for.
    pub aborted: Vec<AbortedTransaction>,
    /// Of the source.
    pub high_watermark: i64,
    /// Of the source; -1 where the broker does not say.
    pub last_stable_offset: i64,
    /// Keeps the frame counted while batches of it are held.
    pub hold: Option<FrameHold>,
}

/// Is given a batch's target, ticket and header, and the batch.
type Send<'a> = dyn FnMut(&TopicPartition, Ticket, &[u8; HEADER_LEN], FrameSlice<'_>) + 'a;

/// Takes what may be sent at once.
struct Sender<'a> {
    wall_ms: i64,
    send: &'a mut Send<'a>,
}

/// What the walk does after a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Go,
    End,
}

impl PartitionMachine {
    /// Takes what was fetched. An answer to a question that a rewind has made stale is dropped.
    pub fn handle_fetched(&mut self, now: Instant, fetched: Fetched) {
        self.walk_fetched(now, fetched, None);
    }

    /// As [`Self::handle_fetched`]; a batch that may be sent is, while it is in the cache, before the next one is looked
    /// at. `wall_ms` and `send` are those of [`Self::send_next`].
    pub fn handle_fetched_and_send<'a>(
        &mut self,
        now: Instant,
        fetched: Fetched,
        wall_ms: i64,
        send: &'a mut Send<'a>,
    ) {
        self.walk_fetched(now, fetched, Some(Sender { wall_ms, send }));
    }

    fn walk_fetched(&mut self, now: Instant, fetched: Fetched, mut sender: Option<Sender<'_>>) {
        let flowing = matches!(self.phase, Phase::Matching { .. } | Phase::Anchoring | Phase::Copying);
        let stale = fetched.fetch_offset != self.prepared.source_next || self.doubted;
        if !flowing || self.draining || self.blocked.is_some() || stale {
            self.progress.bytes_in_vain += fetched.records.len() as u64;
            return;
        }
        self.fetch_succeeded();
        self.high_watermark = fetched.high_watermark;
        self.last_stable_offset =
            if fetched.last_stable_offset < 0 { fetched.high_watermark } else { fetched.last_stable_offset };
        let aborted = if self.shape().read_committed { fetched.aborted } else { Vec::new() };
        let mut filter = AbortFilter::new(aborted);
        let records = fetched.records;
        let mut entries = walk_slices(&records);
        let mut run = LegacyRun::default();
        let hold = fetched.hold.as_ref();
        let mut whole = 0_usize;
        for entry in entries.by_ref() {
            whole += 1;
            let next = match entry {
                Ok(Entry::Legacy { base_offset, bytes, .. }) => {
                    self.take_legacy(now, base_offset, &records.slice_ref(bytes), &mut run, hold)
                }
                Ok(Entry::Batch(batch)) => {
                    if !run.is_empty() && self.take_run(now, &mut run, hold) == Next::End {
                        Next::End
                    } else {
                        self.take(now, &batch, &records, &mut filter, hold, sender.as_mut())
                    }
                }
                Err(error) => {
                    if self.take_run(now, &mut run, hold) == Next::Go {
                        self.corrupt(now, error.base_offset, &error.to_string());
                    }
                    Next::End
                }
            };
            if next == Next::End {
                return;
            }
        }
        if self.take_run(now, &mut run, hold) == Next::End {
            return;
        }
        let cut_off = entries.cut_off();
        self.progress.bytes_in_vain += cut_off as u64;
        if whole > 0 {
            self.partition_bytes_max = self.partition_bytes_first;
        } else if cut_off > 0 {
            // Brokers give the first batch whole; those that do not need to be asked for more.
            self.grow_fetch();
        }
    }

    /// Asks for more at once.
    pub(super) fn grow_fetch(&mut self) {
        self.partition_bytes_max = self.partition_bytes_max.saturating_mul(2).min(PARTITION_BYTES_CEILING);
    }

    #[inline]
    fn take(
        &mut self,
        now: Instant,
        batch: &Batch<&[u8]>,
        records: &Bytes,
        filter: &mut AbortFilter,
        hold: Option<&FrameHold>,
        sender: Option<&mut Sender<'_>>,
    ) -> Next {
        let header = &batch.header;
        let bytes = batch.bytes.len();
        // Judged even if skipped: a transaction may begin in a batch that was taken before.
        let fate = filter.judge(batch);
        if header.last_offset() < self.prepared.source_next {
            return Next::Go;
        }
        self.progress.bytes_in += bytes as u64;
        // Before anything is believed: a damaged header could make a data batch look like a marker, or empty.
        if let Err(error) = batch.verify_crc() {
            self.corrupt(now, header.base_offset, &error.to_string());
            return Next::End;
        }
        self.corrupt_attempts = 0;
        if self.is_counting()
            && (header.base_offset > self.prepared.source_next || header.is_empty() || header.is_thinned())
        {
            // Compaction took something here, before the earlier incarnation sent it or since.
            self.doubt_count(now);
            return Next::End;
        }
        let hole = header.base_offset > self.prepared.source_next || header.is_empty() || header.is_thinned();
        if hole && fate != Fate::Control && self.waits_before_hole() {
            return Next::End;
        }
        self.note_hole(header.base_offset);
        if header.partition_leader_epoch != self.taken_epoch.0 {
            self.past.note_epoch(header.partition_leader_epoch, header.base_offset.max(self.prepared.source_next));
        }
        if self.nameless && !header.is_thinned() {
            self.past.note_mark(Mark { base_offset: header.base_offset, crc: header.crc }, self.acked.source_next);
        }
        // (E) The control bit comes before everything else: sealing a marker would hide it from the target
        // (`broker-experiments.md` section 0.1).
        match fate {
            Fate::Control => {
                self.progress.control_batches += 1;
                self.pass_over(header.next_offset(), header.partition_leader_epoch);
                return Next::Go;
            }
            Fate::Aborted if simulation::has(Planted::AbortedCopied) => {}
            Fate::Aborted => {
                self.progress.aborted_records += u64::try_from(header.records_count).unwrap_or(0);
                self.pass_over(header.next_offset(), header.partition_leader_epoch);
                return Next::Go;
            }
            Fate::Data if header.is_empty() => {
                self.progress.empty_batches += 1;
                self.note_hole(header.next_offset());
                self.pass_over(header.next_offset(), header.partition_leader_epoch);
                return Next::Go;
            }
            Fate::Data => {}
        }
        if self.is_counting() {
            return self.match_count(now, header);
        }
        if let Some(reason) = self.open_reason(header, bytes) {
            let batch = Batch { header: *header, bytes: records.slice_ref(batch.bytes) };
            return self.open_batch(now, &batch, reason, hold);
        }
        let head = match seal(batch, self.identity, self.prepared.next_sequence) {
            Ok(head) => head,
            Err(refused) => {
                // Unreachable after the checks above; a stop is safer than a guess.
                self.stop_behind_queue(now, StopReason::PositionUnknown { why: refused.to_string() });
                return Next::End;
            }
        };
        let before = self.prepared;
        let after = self.after(header.next_offset(), header.records_count);
        let leader_epoch = LeaderEpoch(header.partition_leader_epoch);
        if let Phase::Matching { .. } = self.phase {
            return self.match_sealed(now, header, &head, after);
        }
        // Under LogAppendTime the header shows when the source got it; the target goes by the payload, whose first
        // record's time is the base.
        let max_timestamp = if header.is_log_append_time() {
            header.base_timestamp.min(header.max_timestamp)
        } else {
            header.max_timestamp
        };
        self.prepared = after;
        self.taken_epoch = leader_epoch;
        let place = self.pipeline.add();
        place.source_base = header.base_offset;
        place.before = before;
        place.after = after;
        place.hold = hold.cloned();
        place.bytes = bytes;
        place.max_timestamp = max_timestamp;
        place.records = header.records_count;
        place.leader_epoch = leader_epoch;
        place.way = if header.is_log_append_time() { Way::SealedAppendTime } else { Way::Sealed };
        place.head = head;
        let slice = FrameSlice::new(records, batch.bytes);
        match sender {
            // None before it waits, or it is not its turn.
            Some(sender) if self.pipeline.waiting() == 1 && self.can_send(sender.wall_ms) => {
                if let Some(next) = self.pipeline.send() {
                    next.ticket = Ticket(self.next_ticket);
                    self.next_ticket += 1;
                    (sender.send)(&self.spec.target, next.ticket, &next.head, slice);
                }
            }
            _ => {
                self.queue_bytes += bytes;
                if let Some(last) = self.pipeline.last_mut() {
                    last.batch = slice.to_bytes();
                }
            }
        }
        Next::Go
    }

    /// The position behind `records` records more, at a source offset.
    pub(super) fn after(&self, source_next: i64, records: i32) -> Position {
        Position {
            source_next,
            target_next: self.prepared.target_next.saturating_add(i64::from(records)),
            next_sequence: sequence::advance(self.prepared.next_sequence, records),
        }
    }

    /// The source position moves over something that is not copied; it counts as acknowledged with what came before.
    pub(super) fn pass_over(&mut self, next_offset: i64, epoch: i32) {
        let epoch = LeaderEpoch(epoch);
        self.prepared.source_next = next_offset;
        self.taken_epoch = epoch;
        if self.is_comparing() {
            // Not acknowledged: what compaction took here may be on the target, and the way to the next record that is
            // found has to be looked at again should another incarnation begin here.
        } else if let Some(last) = self.pipeline.last_mut() {
            last.after.source_next = next_offset;
            last.leader_epoch = epoch;
        } else {
            self.acked.source_next = next_offset;
            self.acked_epoch = epoch;
            self.mark_anchor();
        }
    }

    /// The bytes of a batch do not fit its checksum, or are no batch: fetch it again, a few times.
    pub(super) fn corrupt(&mut self, now: Instant, offset: i64, why: &str) {
        self.corrupt_attempts += 1;
        if self.corrupt_attempts >= CORRUPT_ATTEMPTS_MAX {
            self.stop_behind_queue(now, StopReason::SourceCorrupt { offset, why: why.to_owned() });
        } else {
            self.delay_fetch(now, why);
        }
    }
}
