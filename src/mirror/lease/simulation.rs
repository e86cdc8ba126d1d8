//! Several lease machines against the [`Coordinator`] model on a virtual clock: seeded delays, lost requests and answers,
//! pauses, kills and restarts, slow revocations, coordinators that move. Checks the invariants A-E of [`Lease`] by letter.
//!
//! Left out on purpose: a JoinGroup with an empty id that arrives after its connection was given up. It throws out our own
//! later join (82), the worker stops, its supervisor restarts it. TCP makes that as rare as it is harmless.

mod driver;

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;

use super::model::{Coordinator, Handle, Request, Response};
use super::*;

const SESSION: Duration = Duration::from_secs(6);
/// For [`Event::Lost`]: whatever connection there is.
const ANY_EPOCH: u32 = u32::MAX;
/// Faults end then.
const STORM: Duration = Duration::from_secs(90);
/// By then all must have settled.
const CALM: Duration = Duration::from_secs(180);
const END: Duration = Duration::from_secs(200);

#[derive(Debug)]
enum Event {
    Arrive { handle: Handle, node: i32, request: Request },
    Answer { handle: Handle, response: Response },
    Found { worker: usize, life: u32, ticket: Ticket, result: Result<i32, Option<i16>> },
    Lost { worker: usize, life: u32, link: Link, epoch: u32 },
    Revoked { worker: usize, life: u32, slots: SlotSet },
    Timeout { worker: usize, life: u32 },
    CommitDue { worker: usize },
    Restart { worker: usize },
    BrokerTick,
    Fault,
}

/// A request on its way.
struct Sent {
    worker: usize,
    life: u32,
    link: Link,
    epoch: u32,
    ticket: Option<Ticket>,
    commit: Option<Credentials>,
    at: Instant,
    empty_id: bool,
}

#[derive(Default)]
struct Pipe {
    epoch: u32,
    dead: bool,
    /// Until then the network swallows what is sent, and no error comes back.
    swallowed_until: Duration,
    last_in: Duration,
    last_out: Duration,
}

struct Worker {
    lease: Option<Lease>,
    life: u32,
    join: Pipe,
    work: Pipe,
    node: i32,
    paused_until: Duration,
    owned: SlotSet,
    /// Being given up, not confirmed yet.
    finishing: SlotSet,
    anchors: bool,
    may_be_empty: bool,
    /// When the present id was asked for; none once it was synced with.
    unwritten_since: Option<Duration>,
    joins_known: bool,
}

impl Worker {
    fn pipe(&mut self, link: Link) -> &mut Pipe {
        match link {
            Link::Join => &mut self.join,
            Link::Work => &mut self.work,
        }
    }

    fn sends(&self, now: Instant) -> SlotSet {
        let proven = self.lease.as_ref().and_then(Lease::proof_until).is_some_and(|until| now < until);
        if proven { self.owned } else { SlotSet::EMPTY }
    }
}

struct Simulation {
    seed: u64,
    start: Instant,
    now: Duration,
    events: BTreeMap<(Duration, u64), Event>,
    counter: u64,
    sent: Vec<Sent>,
    node: i32,
    died_at: Duration,
    broker: Coordinator,
    workers: Vec<Worker>,
    trace: Vec<String>,
    /// Slots owned and then sent for, to see that the storm did not just silence everybody.
    handovers: usize,
}

impl Simulation {
    fn new(seed: u64, count: usize) -> Self {
        let mut simulation = Self {
            seed,
            start: Instant::now(),
            now: Duration::ZERO,
            events: BTreeMap::new(),
            counter: 0,
            sent: Vec::new(),
            node: 1,
            died_at: Duration::ZERO,
            broker: Coordinator::new(SESSION, SESSION * 3, seed.is_multiple_of(2)),
            workers: Vec::new(),
            trace: Vec::new(),
            handovers: 0,
        };
        for worker in 0..count {
            let anchors = simulation.draw(3) != 0;
            simulation.workers.push(Worker {
                lease: None,
                life: 0,
                join: Pipe::default(),
                work: Pipe::default(),
                node: 0,
                paused_until: Duration::ZERO,
                owned: SlotSet::EMPTY,
                finishing: SlotSet::EMPTY,
                anchors,
                may_be_empty: true,
                unwritten_since: None,
                joins_known: false,
            });
            let at = simulation.ms(0, 8000);
            simulation.schedule(at, Event::Restart { worker });
            simulation.schedule(at, Event::CommitDue { worker });
        }
        simulation.schedule(Duration::from_millis(5), Event::BrokerTick);
        simulation.schedule(Duration::from_secs(5), Event::Fault);
        simulation
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = (self.seed ^ (self.seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % below
    }

    fn ms(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_micros(from * 1000 + self.draw((to - from) * 1000 + 1))
    }

    fn instant(&self) -> Instant {
        self.start + self.now
    }

    fn schedule(&mut self, at: Duration, event: Event) {
        self.counter += 1;
        self.events.insert((at.max(self.now), self.counter), event);
    }

    fn network(&mut self) -> Duration {
        if self.now < STORM && self.draw(20) == 0 { self.ms(50, 2500) } else { self.ms(1, 20) }
    }

    fn run(&mut self) {
        while let Some(((at, _), event)) = self.events.pop_first() {
            if at > END {
                break;
            }
            self.now = at;
            self.step(event);
            self.check_sole_sender();
        }
    }

    /// Invariant A.
    fn check_sole_sender(&self) {
        let mut all = SlotSet::EMPTY;
        for (index, worker) in self.workers.iter().enumerate() {
            let sends = worker.sends(self.instant());
            let twice = all.intersect(&sends);
            assert!(twice.is_empty(), "A: {twice} sent twice, second by {index}\n{}", self.tail());
            all = all.union(&sends);
        }
    }

    fn tail(&self) -> String {
        self.trace[self.trace.len().saturating_sub(120)..].join("\n")
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        self.trace.push(format!("{:>10.3} {}", self.now.as_secs_f64(), line()));
        if self.trace.len() > 2000 {
            self.trace.drain(..1000);
        }
    }

    fn step(&mut self, event: Event) {
        let asleep = match &event {
            Event::Answer { handle, .. } => Some(self.sent[*handle].worker),
            Event::Found { worker, .. }
            | Event::Lost { worker, .. }
            | Event::Revoked { worker, .. }
            | Event::Timeout { worker, .. }
            | Event::CommitDue { worker } => Some(*worker),
            _ => None,
        }
        .map_or(Duration::ZERO, |worker| self.workers[worker].paused_until);
        if asleep > self.now {
            return self.schedule(asleep, event);
        }
        let now = self.instant();
        match event {
            Event::BrokerTick => {
                self.broker.tick(self.now);
                self.send_answers();
                self.schedule(self.now + Duration::from_millis(20), Event::BrokerTick);
            }
            Event::Arrive { handle, node, request } => {
                let sent = &self.sent[handle];
                if sent.empty_id && self.workers[sent.worker].join.epoch != sent.epoch {
                    return; // see the module's doc
                }
                if node == self.node {
                    self.broker.handle(self.now, handle, request);
                } else {
                    let refusal = match request {
                        Request::Join { .. } => Response::Join(JoinAnswer { error_code: 16, ..JoinAnswer::default() }),
                        Request::Sync { .. } => Response::Sync(16, bytes::Bytes::new()),
                        _ => Response::Code(16),
                    };
                    self.broker.out.push((handle, refusal));
                }
                self.send_answers();
            }
            Event::Answer { handle, response } => self.answered(handle, response),
            Event::Found { worker, life, ticket, result } => {
                if let Some(lease) = self.workers[worker].alive(life) {
                    lease.handle_coordinator(now, CoordinatorAnswer { ticket, result });
                    if let Ok(node) = result {
                        self.workers[worker].node = node;
                    }
                    self.drain(worker);
                }
            }
            Event::Lost { worker, life, link, epoch } => {
                let this = &mut self.workers[worker];
                if this.life == life && (epoch == ANY_EPOCH || this.pipe(link).epoch == epoch) {
                    this.pipe(link).cut();
                    if let Some(lease) = this.alive(life) {
                        lease.handle_connection_lost(now, link);
                        self.note(|| format!("{worker} lost {link:?}"));
                        self.drain(worker);
                    }
                }
            }
            Event::Revoked { worker, life, slots } => {
                let this = &mut self.workers[worker];
                if this.life == life && this.lease.is_some() {
                    // Told twice, confirmed once.
                    let slots = slots.intersect(&this.finishing);
                    this.finishing = this.finishing.minus(&slots);
                    this.owned = this.owned.minus(&slots);
                    if let Some(lease) = this.alive(life) {
                        lease.handle_revoked(now, slots);
                    }
                    self.drain(worker);
                }
            }
            Event::Timeout { worker, life } => {
                if let Some(lease) = self.workers[worker].alive(life)
                    && lease.poll_timeout().is_some_and(|at| at <= now)
                {
                    lease.handle_timeout(now);
                    self.drain(worker);
                }
            }
            Event::CommitDue { worker } => {
                let busy = self.now < CALM && self.draw(3) != 0;
                let credentials = self.workers[worker].lease.as_ref().and_then(Lease::commit_credentials);
                if let Some(credentials) = credentials.filter(|_| busy && self.workers[worker].anchors) {
                    self.send_commit(worker, credentials);
                }
                let next = self.now + self.ms(300, 3000);
                self.schedule(next, Event::CommitDue { worker });
            }
            Event::Restart { worker } => {
                if self.workers[worker].lease.is_none() {
                    let config = LeaseConfig::new("__towpath.a.b", &format!("w{worker}"), SESSION).unwrap();
                    let seed = self.draw(u64::MAX);
                    let this = &mut self.workers[worker];
                    this.lease = Some(Lease::new(config, seed, now));
                    this.may_be_empty = true;
                    self.note(|| format!("{worker} starts"));
                    self.drain(worker);
                }
            }
            Event::Fault => self.fault(),
        }
    }

    fn fault(&mut self) {
        if self.now >= STORM {
            return;
        }
        let worker = usize::try_from(self.draw(self.workers.len() as u64)).unwrap();
        match self.draw(7) {
            0 | 1 => {
                let pause = self.ms(100, 25_000);
                self.workers[worker].paused_until = self.now + pause;
                self.note(|| format!("{worker} sleeps for {pause:?}"));
            }
            2 | 3 => {
                let this = &mut self.workers[worker];
                (this.lease, this.owned, this.paused_until) = (None, SlotSet::EMPTY, Duration::ZERO);
                this.life += 1;
                this.finishing = SlotSet::EMPTY;
                this.join.cut();
                this.work.cut();
                let back = self.now + if self.draw(2) == 0 { self.ms(3000, 3500) } else { self.ms(3000, 20_000) };
                self.note(|| format!("{worker} is killed"));
                self.schedule(back, Event::Restart { worker });
            }
            4 => {
                let loading = self.ms(0, 1500);
                let moves = self.draw(2) == 0;
                self.note(|| format!("coordinator dies, moves: {moves}, loads for {loading:?}"));
                self.died_at = self.now;
                if moves {
                    self.node += 1;
                }
                for handle in self.broker.restart(self.now, loading) {
                    let Sent { worker, life, link, epoch, .. } = self.sent[handle];
                    let at = self.now + self.ms(0, 500);
                    self.schedule(at, Event::Lost { worker, life, link, epoch });
                }
                for worker in 0..self.workers.len() {
                    let life = self.workers[worker].life;
                    for link in [Link::Join, Link::Work] {
                        let epoch = self.workers[worker].pipe(link).epoch;
                        // Moved by an election, the old node still answers (16); dead, its connections break.
                        if !moves {
                            self.workers[worker].pipe(link).dead = true;
                            let at = self.now + self.ms(0, 50);
                            self.schedule(at, Event::Lost { worker, life, link, epoch });
                        }
                    }
                }
            }
            5 => {
                // Heartbeats and commits go on, JoinGroup does not: the group goes on without the worker.
                let until = (self.now + self.ms(5000, 40_000)).min(STORM);
                self.note(|| format!("{worker}: JoinGroup is swallowed until {until:?}"));
                self.workers[worker].join.swallowed_until = until;
                let life = self.workers[worker].life;
                self.schedule(until, Event::Lost { worker, life, link: Link::Join, epoch: ANY_EPOCH });
            }
            _ => {
                let link = if self.draw(2) == 0 { Link::Join } else { Link::Work };
                let (life, epoch) = (self.workers[worker].life, self.workers[worker].pipe(link).epoch);
                self.schedule(self.now, Event::Lost { worker, life, link, epoch });
            }
        }
        let next = self.now + self.ms(500, 12_000);
        self.schedule(next, Event::Fault);
    }

    /// Invariant B.
    fn check_settled(&self) {
        let (mut all, mut sizes) = (SlotSet::EMPTY, Vec::new());
        for worker in &self.workers {
            let sends = worker.sends(self.instant());
            all = all.union(&sends);
            sizes.push(sends.len());
        }
        let even = sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1;
        assert!(all == SlotSet::ALL && even, "B: {sizes:?}\n{}", self.tail());
    }
}

impl Pipe {
    fn cut(&mut self) {
        self.epoch += 1;
        self.dead = false;
    }
}

impl Worker {
    fn alive(&mut self, life: u32) -> Option<&mut Lease> {
        self.lease.as_mut().filter(|_| self.life == life)
    }
}

fn storm(seed: u64, count: usize) -> usize {
    let mut simulation = Simulation::new(seed, count);
    simulation.run();
    simulation.check_settled();
    simulation.handovers
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_slot_is_sent_twice_and_all_settle_after_the_storm(seed: u64, count in 2usize..=4) {
        prop_assert!(storm(seed, count) >= 240);
    }
}

/// A thousand seeds: `cargo test --lib lease -- --ignored many_seeds`.
#[test]
#[ignore = "minutes; the property above runs a few of the same"]
fn many_seeds() {
    for seed in 0..1000 {
        println!("seed {seed}");
        storm(seed * 104_729 + 5, 2 + usize::try_from(seed % 3).unwrap());
    }
}
