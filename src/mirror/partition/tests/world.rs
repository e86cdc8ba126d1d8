//! The machine's driver in the storm: what each event does to the machine and to the model of both clusters, and the
//! machine's invariants A to F, checked after each.

use std::{
    collections::{BTreeMap, VecDeque},
    rc::Rc,
    time::Duration,
};

use tokio::time::Instant;

use super::{
    kit::{WALL_MS, header, numbers, settings, source, spec},
    model::{Item, LIMIT, Sent, Source, Target},
    ops::{Commit, Fault, Op},
};
use crate::{
    batch::{HEADER_LEN, sequence},
    mirror::{
        anchor::{Anchor, Position},
        partition::{
            Break, Fetched, LocateAsk, Located, PartitionMachine, PartitionSettings, PartitionSpec, PartitionState,
            Policies, ProduceOutcome, ProducerAnswer, StopReason, TailBatch, TargetEnds, TargetNotEmpty, Ticket,
        },
    },
    net::UNACKNOWLEDGED_MAX,
    protocol::{ErrorCode, LeaderEpoch},
};

struct Lookup {
    ask: LocateAsk,
    begun: usize,
    /// Read in this order.
    producer: Option<ProducerAnswer>,
    end: Option<i64>,
    rest: Option<(i64, Vec<TailBatch>)>,
}

struct Offer {
    anchor: Anchor,
    breaks: Vec<Break>,
    taken: usize,
    bytes: u64,
}

pub(super) struct World {
    settings: Rc<PartitionSettings>,
    source: Source,
    target: Target,
    machine: PartitionMachine,
    now: Instant,
    step: usize,
    /// On the present connection: not yet taken by the broker, and its answers with the end they wait for.
    requests: VecDeque<(Ticket, Sent)>,
    answers: VecDeque<(Ticket, ProduceOutcome, i64)>,
    /// On connections that are gone.
    zombies: VecDeque<(Instant, Sent)>,
    /// The connection leads to a former leader, and whether that is known.
    moved: bool,
    noticed: bool,
    lookup: Option<Lookup>,
    fetch: Option<i64>,
    fetches: Vec<i64>,
    offer: Option<Offer>,
    durable: Option<Anchor>,
    runs: BTreeMap<i64, i64>,
    /// What went out sealed for each source batch, by whatever incarnation.
    heads: BTreeMap<i64, Vec<u8>>,
    /// Numbers of all records that were ever to be copied, and whether compaction took some since.
    original: Vec<u64>,
    compacted: bool,
    limit: Option<usize>,
    /// (D) Since when the target has to be asked.
    failed: Option<usize>,
    /// (F) Whether a batch was acknowledged since, and was old.
    confirmed: Option<bool>,
    flight: Vec<(Ticket, bool)>,
    draining: bool,
    /// Below the high watermark nothing changes: a position is compared once.
    checked: Option<Position>,
}

impl World {
    /// `limit_known`: whether the target's `max.message.bytes` could be read.
    pub(super) fn new(start: i64, prefix: i64, limit_known: bool, items: &[Item]) -> Self {
        let policies =
            Policies { target_not_empty: TargetNotEmpty::Append, foreign_continues: true, ..settings().policies };
        let settings = Rc::new(PartitionSettings { policies, ..settings() });
        let now = Instant::now();
        let limit = limit_known.then_some(LIMIT);
        let source = Source::new(start, items);
        let spec = PartitionSpec { target_batch_bytes_max: limit, ..spec(None) };
        Self {
            machine: PartitionMachine::new(settings.clone(), spec, 1 << 20, 5, now),
            settings,
            original: source.committed.iter().map(|(_, number)| *number).collect(),
            compacted: false,
            limit,
            source,
            target: Target::new(prefix),
            now,
            step: 0,
            requests: VecDeque::new(),
            answers: VecDeque::new(),
            zombies: VecDeque::new(),
            moved: false,
            noticed: false,
            lookup: None,
            fetch: None,
            fetches: Vec::new(),
            offer: None,
            durable: None,
            runs: BTreeMap::new(),
            heads: BTreeMap::new(),
            failed: Some(0),
            confirmed: None,
            flight: Vec::new(),
            draining: false,
            checked: None,
        }
    }

    pub(super) fn apply(&mut self, op: Op) {
        match op {
            Op::Drive(rounds) => (0..rounds % 4).for_each(|_| self.round()),
            Op::Send => self.send(),
            Op::Broker(fault) => self.broker(fault),
            Op::Replicate => self.target.high_watermark = self.target.end,
            Op::Answer => self.answer(),
            Op::BeginFetch => self.begin_fetch(),
            Op::Fetch { batches, cut } => {
                self.begin_fetch();
                if let Some(offset) = self.fetch.take() {
                    self.fetched(offset, usize::from(batches), cut);
                }
            }
            Op::StaleFetch { pick, batches } => {
                if let Some(offset) = self.fetches.get(usize::from(pick) % self.fetches.len().max(1)) {
                    self.fetched(*offset, usize::from(batches), false);
                }
            }
            Op::FetchError(code) => {
                self.machine.handle_fetch_error(self.now, ErrorCode(code));
            }
            Op::BeginLookup => self.begin_lookup(),
            Op::ReadLookup => self.read_lookup(),
            Op::AnswerLookup => self.answer_lookup(),
            Op::FailLookup => {
                if self.lookup.take().is_some_and(|lookup| lookup.ask != LocateAsk::Source) {
                    self.machine.handle_locate_failed(self.now);
                }
            }
            Op::TakeAnchor => self.take_anchor(),
            Op::Commit(commit) => self.commit(commit),
            Op::Wait(ms) => {
                self.now += Duration::from_millis(u64::from(ms));
                self.machine.handle_timeout(self.now);
            }
            Op::LoseLane { answer_each } => self.lose_lane(answer_each),
            Op::Zombie => {
                // The system gives up what is on its way for too long.
                while let Some((lost_at, sent)) = self.zombies.pop_front() {
                    if self.now < lost_at + UNACKNOWLEDGED_MAX {
                        let _ = self.target.append(&sent);
                        break;
                    }
                }
            }
            Op::Elect { lost } => self.elect(usize::from(lost)),
            Op::Notice => {
                self.noticed = self.moved;
                if self.moved {
                    self.leader_changed();
                    self.machine.handle_target_leader_changed(self.now);
                }
            }
            Op::RestartBroker => {
                self.target.restart();
                self.lose_lane(true);
                self.zombies.clear();
            }
            Op::Compact { pick, keep } => {
                if let Some(index) = usize::from(pick).checked_rem(self.source.cleanable()) {
                    self.source.compact(index, keep);
                    self.compacted = true;
                    self.checked = None;
                }
            }
            Op::Sweep => self.target.sweep(),
            Op::Foreign(count) => self.target.append_foreign(i64::from(count)),
            Op::Kill { commit_lands } => self.kill(commit_lands),
            Op::Drain => {
                self.draining = true;
                self.machine.drain();
            }
        }
        self.after();
    }

    fn fail(&mut self) {
        self.failed = Some(self.step);
        self.confirmed = None;
    }

    /// What was replicated under the former leader is there under the next one: where nothing is sent yet, what the
    /// former one said of its log still counts.
    fn leader_changed(&mut self) {
        let asking = self.lookup.as_ref().is_some_and(|lookup| matches!(lookup.ask, LocateAsk::Ends { .. }));
        if self.failed.is_none() && !asking {
            self.fail();
        }
        self.confirmed = None;
    }

    fn send(&mut self) {
        if !self.machine.can_send(WALL_MS) {
            return;
        }
        let outbound = self.machine.take_batch(WALL_MS).unwrap();
        let sealed = header(&outbound.head);
        let first = numbers(&outbound.head, &outbound.batch)[0] as i64;
        if !self.compacted {
            let copied = self.source.copied_before(first);
            let expected = sequence::advance(sequence::of_offset(self.source.start), i32::try_from(copied).unwrap());
            assert_eq!(sealed.base_sequence, expected, "A: not the sequence of the batch at {first}");
            if outbound.head != outbound.batch[..HEADER_LEN] {
                let before = self.heads.insert(first, outbound.head.to_vec());
                assert!(before.is_none_or(|before| before == outbound.head), "A: a resend differs");
            }
        }
        let durable = self.durable.as_ref().expect("B: nothing is sent before an anchor is durable");
        assert_eq!(
            (durable.identity.producer_id, durable.identity.producer_epoch),
            (sealed.producer_id, sealed.producer_epoch),
            "B: an identity without an anchor"
        );
        assert_eq!(self.failed, None, "D: sent before the target was asked");
        let old = self.source.is_old(first);
        if !self.flight.is_empty() {
            assert_eq!(self.confirmed, Some(false), "F: a window before a young acknowledgement");
            assert!(!old && self.flight.iter().all(|(_, old)| !old), "F: a window over old data");
            assert!(self.flight.len() < 5, "F: the window");
        }
        assert!(!self.draining, "sent after a drain");
        self.flight.push((outbound.ticket, old));
        self.requests.push_back((outbound.ticket, Sent { head: outbound.head, batch: outbound.batch, old }));
    }

    fn broker(&mut self, fault: Fault) {
        let Some((ticket, sent)) = self.requests.pop_front() else { return };
        let failed = |code| ProduceOutcome::Failed { code, message: None };
        let outcome = if self.moved {
            failed(ErrorCode::NOT_LEADER_OR_FOLLOWER)
        } else if let Fault::BeforeAppend(code) = fault {
            failed(ErrorCode(code))
        } else {
            match (self.target.append(&sent), fault) {
                (Ok((base_offset, already)), Fault::None) => ProduceOutcome::Stored { base_offset, already },
                (Ok(_), Fault::AfterAppend(code) | Fault::BeforeAppend(code)) => failed(ErrorCode(code)),
                (Err(code), _) => failed(code),
            }
        };
        let waits_for = if matches!(outcome, ProduceOutcome::Stored { .. }) { self.target.end } else { 0 };
        self.answers.push_back((ticket, outcome, waits_for));
    }

    fn answer(&mut self) {
        if self.answers.front().is_some_and(|(_, _, waits_for)| *waits_for <= self.target.high_watermark) {
            let (ticket, outcome, _) = self.answers.pop_front().unwrap();
            self.produced(ticket, outcome);
        }
    }

    fn produced(&mut self, ticket: Ticket, outcome: ProduceOutcome) {
        let old = self.flight.iter().find(|(at, _)| *at == ticket).is_some_and(|(_, old)| *old);
        self.flight.retain(|(at, _)| *at != ticket);
        let stored = matches!(outcome, ProduceOutcome::Stored { .. });
        let before = self.machine.acked();
        self.machine.handle_produced(self.now, ticket, outcome);
        if !stored {
            self.fail();
        } else if self.machine.acked() != before && self.failed.is_none() {
            self.confirmed = Some(old);
        }
    }

    fn lose_lane(&mut self, answer_each: bool) {
        if !self.flight.is_empty() {
            self.fail();
        }
        self.confirmed = None;
        let requests: Vec<_> = self.requests.drain(..).collect();
        let lost: Vec<Ticket> = self
            .answers
            .drain(..)
            .map(|(ticket, ..)| ticket)
            .chain(requests.iter().map(|(ticket, _)| *ticket))
            .collect();
        if !self.moved {
            self.zombies.extend(requests.into_iter().map(|(_, sent)| (self.now, sent)));
        }
        if answer_each {
            for ticket in lost {
                self.produced(ticket, ProduceOutcome::Unknown);
            }
        }
        self.flight.clear();
        self.machine.handle_lane_lost(self.now);
    }

    fn elect(&mut self, lost: usize) {
        self.target.elect(lost);
        self.moved = true;
        self.noticed = false;
        self.zombies.clear();
        for (_, outcome, waits_for) in &mut self.answers {
            if *waits_for > self.target.high_watermark {
                *outcome = ProduceOutcome::Failed { code: ErrorCode::NOT_LEADER_OR_FOLLOWER, message: None };
                *waits_for = 0;
            }
        }
    }

    fn begin_fetch(&mut self) {
        if let Some((offset, epoch, _)) = self.machine.fetch_want(self.now, 500) {
            let before = self.source.epoch_before(offset);
            assert!(
                self.compacted || epoch == LeaderEpoch::NONE || Some(epoch.0) == before,
                "the epoch before {offset} is {before:?}, not {epoch:?}"
            );
            assert!(!self.draining, "a fetch is wanted after a drain");
            self.fetch = Some(offset);
            self.fetches.push(offset);
        }
    }

    fn fetched(&mut self, fetch_offset: i64, batches: usize, cut: bool) {
        let (records, aborted) = self.source.fetch(fetch_offset, batches, cut);
        let end = self.source.end;
        self.machine.handle_fetched(
            self.now,
            Fetched { fetch_offset, records, aborted, high_watermark: end, last_stable_offset: end, hold: None },
        );
    }

    fn begin_lookup(&mut self) {
        if let Some(ask) = self.machine.locate_want(self.now) {
            self.machine.locate_begun(self.now);
            self.lookup = Some(Lookup { ask, begun: self.step, producer: None, end: None, rest: None });
        }
    }

    fn read_lookup(&mut self) {
        let Some(lookup) = &mut self.lookup else { return };
        if lookup.producer.is_none() {
            let known = |(producer_epoch, last_sequence)| ProducerAnswer::Known { producer_epoch, last_sequence };
            lookup.producer = Some(self.target.described().map_or(ProducerAnswer::Absent, known));
        } else if lookup.end.is_none() {
            lookup.end = Some(self.target.end);
        } else if lookup.rest.is_none() {
            let tail = match lookup.ask {
                LocateAsk::Tail { from, to, .. } => self.target.tail(from..to),
                _ => Vec::new(),
            };
            lookup.rest = Some((self.target.high_watermark, tail));
        }
    }

    fn answer_lookup(&mut self) {
        let Some(Lookup { ask, begun, producer: Some(producer), end: Some(end), rest: Some((high_watermark, tail)) }) =
            self.lookup.take_if(|lookup| lookup.rest.is_some())
        else {
            return;
        };
        let source = source(self.source.start, self.source.end);
        match ask {
            LocateAsk::Ends { source: wanted, .. } => {
                let target = TargetEnds { start: 0, high_watermark, end };
                if high_watermark == end && self.failed.is_some_and(|failed| failed <= begun) {
                    self.failed = None;
                }
                self.confirmed = None;
                self.machine.handle_located(self.now, Located { source: wanted.then_some(source), target, producer });
            }
            LocateAsk::Tail { records: true, .. } => self.machine.handle_tail_records(self.now, tail),
            LocateAsk::Tail { .. } => {
                let headers = tail.into_iter().map(|batch| batch.header).collect();
                self.machine.handle_tail(self.now, headers);
            }
            LocateAsk::Source => self.machine.handle_source_ends(self.now, source),
            LocateAsk::History { .. } => panic!("nothing is wrong with the source's past"),
        }
    }

    fn take_anchor(&mut self) {
        if self.offer.is_none() && self.machine.wants_anchor() {
            // One that stands before it was located has no position to offer.
            let Some((anchor, breaks)) = self.machine.anchor() else { return };
            let (breaks, bytes) = (breaks.to_vec(), self.machine.tail_bytes());
            let taken = self.machine.anchor_taken();
            self.offer = Some(Offer { anchor, breaks, taken, bytes });
        }
    }

    fn commit(&mut self, commit: Commit) {
        let Some(offer) = self.offer.take() else { return };
        if !matches!(commit, Commit::Refused) {
            self.runs.extend(offer.breaks.iter().map(|run| (run.source_start, run.target_start)));
        }
        if matches!(commit, Commit::Good | Commit::Unanswered) {
            self.check_durable(&offer.anchor);
            self.durable = Some(offer.anchor);
        }
        if matches!(commit, Commit::Good) {
            self.machine.handle_anchored(offer.taken, offer.bytes);
        } else {
            self.machine.handle_anchor_failed();
        }
    }

    fn kill(&mut self, commit_lands: bool) {
        if commit_lands {
            self.commit(Commit::Unanswered);
        }
        if !self.moved {
            self.zombies.extend(self.requests.drain(..).map(|(_, sent)| (self.now, sent)));
        }
        self.requests.clear();
        self.answers.clear();
        self.flight.clear();
        (self.lookup, self.fetch, self.offer) = (None, None, None);
        self.fetches.clear();
        (self.moved, self.noticed, self.draining) = (false, false, false);
        self.fail();
        let spec = PartitionSpec { target_batch_bytes_max: self.limit, ..spec(self.durable.clone()) };
        self.machine = PartitionMachine::new(self.settings.clone(), spec, 1 << 20, 5, self.now);
    }

    /// As the shard does after each event, then the invariants.
    fn after(&mut self) {
        self.step += 1;
        self.machine.handle_quiet(self.now);
        if self.noticed && !self.machine.has_in_flight() {
            (self.moved, self.noticed) = (false, false);
            self.leader_changed();
            self.machine.handle_target_leader_changed(self.now);
        }
        // More than the broker recognises would be another fault than a late request.
        while self.zombies.len() > 5 {
            self.zombies.pop_front();
        }
        if self.is_over() {
            return;
        }
        let position = self.machine.acked();
        if self.checked != Some(position) && self.machine.anchor().is_some() {
            self.check_position(position);
            self.checked = Some(position);
        }
        if let PartitionState::Stopped(reason) = self.machine.state() {
            panic!("stopped: {reason}");
        }
    }

    /// What follows proves nothing: a record was appended twice, which is found; or what compaction took has to be
    /// compared where others wrote, which is a state.
    fn is_over(&self) -> bool {
        let unknown = matches!(self.machine.state(), PartitionState::Stopped(StopReason::PositionUnknown { why })
            if why.starts_with("records of another writer lie among ours"));
        self.target.doubled || unknown
    }

    /// (C) Everything before it is on the target, in order, and nothing else of ours.
    fn check_position(&self, position: Position) {
        let numbers: Vec<u64> =
            self.target.ours_before(position.target_next).into_iter().map(|(_, number)| number).collect();
        let copied = numbers.len();
        assert!(position.target_next <= self.target.high_watermark, "C: {position:?} is not replicated");
        let sequence = sequence::advance(sequence::of_offset(self.source.start), i32::try_from(copied).unwrap());
        assert_eq!(position.next_sequence, sequence, "A: {position:?}");
        let survivors = self.source.committed.iter().take_while(|(offset, _)| *offset < position.source_next);
        self.check_copy(&numbers, survivors.map(|(_, number)| *number));
        assert!(
            numbers.last().is_none_or(|last| (*last as i64) < position.source_next),
            "C: the target holds {numbers:?} at {position:?}"
        );
    }

    /// In order, nothing twice, all of what the source still has, and nothing it never had.
    fn check_copy(&self, numbers: &[u64], survivors: impl Iterator<Item = u64>) {
        assert!(numbers.is_sorted_by(|one, next| one < next), "C: {numbers:?}");
        let held = |number: &u64| numbers.binary_search(number).is_ok();
        let survivors: Vec<u64> = survivors.collect();
        assert!(survivors.iter().all(held), "C: of {survivors:?} the target holds {numbers:?}");
        if self.compacted {
            assert!(numbers.iter().all(|number| self.original.binary_search(number).is_ok()), "C: {numbers:?}");
        } else {
            assert_eq!(numbers, survivors, "C");
        }
    }

    /// An anchor is never ahead, and the runs written before it translate every record exactly.
    fn check_durable(&self, anchor: &Anchor) {
        if self.target.doubled {
            return;
        }
        self.check_position(anchor.position);
        for (expected, number) in self.target.ours_before(anchor.position.target_next) {
            let offset = number as i64;
            if self.source.committed.binary_search(&(offset, number)).is_err() {
                // Gone from the source: nobody stands there any more.
                continue;
            }
            let (source_start, target_start) = self.runs.range(..=offset).next_back().expect("a run for each record");
            assert_eq!(target_start + (offset - source_start), expected, "the run of {offset}");
        }
    }

    /// Everything works for a moment.
    fn round(&mut self) {
        self.now += Duration::from_millis(40);
        self.machine.handle_timeout(self.now);
        for op in [
            Op::Notice,
            Op::BeginLookup,
            Op::ReadLookup,
            Op::ReadLookup,
            Op::Replicate,
            Op::ReadLookup,
            Op::AnswerLookup,
            Op::TakeAnchor,
            Op::Commit(Commit::Good),
            Op::Fetch { batches: 3, cut: false },
        ] {
            self.apply(op);
        }
        while self.machine.can_send(WALL_MS) {
            self.apply(Op::Send);
        }
        for op in [Op::Broker(Fault::None), Op::Replicate, Op::Answer].repeat(5) {
            self.apply(op);
        }
    }

    /// The faults are over: the copy must become complete.
    pub(super) fn settle(&mut self) {
        self.zombies.clear();
        for round in 1..=500 {
            self.round();
            if round % 100 == 0 {
                // What the source does not have any more is concluded after a while only.
                self.apply(Op::Wait(35_000));
            }
            if self.is_over() {
                return;
            }
            if self.draining && self.machine.is_drained() && !self.machine.wants_anchor() {
                self.kill(false);
            }
            let settled = self.machine.state() == PartitionState::CaughtUp
                && self.machine.is_empty()
                && !self.machine.wants_anchor()
                && self.machine.acked().source_next == self.source.end;
            if settled {
                // Each record once and in order.
                self.check_copy(&self.target.numbers(), self.source.committed.iter().map(|(_, number)| *number));
                let durable = self.durable.clone().unwrap();
                assert_eq!(durable.position, self.machine.acked());
                self.check_durable(&durable);
                return;
            }
        }
        panic!("does not settle: {}", self.machine.state());
    }
}
