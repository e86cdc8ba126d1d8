//! The simulated driver and network: carries out actions, carries requests and answers.

use std::time::Duration;

use super::super::model::{Handle, Request, Response};
use super::super::{Action, CommitAnswer, Credentials, Lease, Link, RevokeReason, Ticket};
use super::{CALM, Event, STORM, Sent, Simulation};

impl Simulation {
    pub(super) fn answered(&mut self, handle: Handle, response: Response) {
        let now = self.instant();
        let Sent { worker, life, link, epoch, ticket, ref commit, at, .. } = self.sent[handle];
        let commit = commit.clone();
        let this = &mut self.workers[worker];
        if this.life != life || this.pipe(link).epoch != epoch {
            return;
        }
        let code = match &response {
            Response::Join(answer) => answer.error_code,
            Response::Sync(code, _) | Response::Code(code) => *code,
        };
        if code == 82 && this.unwritten_since.is_some_and(|since| since <= self.died_at) {
            this.may_be_empty = true;
        }
        if code == 0 && matches!(response, Response::Sync(..)) {
            this.unwritten_since = None;
        }
        let Some(lease) = this.lease.as_mut() else {
            return;
        };
        let line = format!("{worker} got {response:?}");
        match (response, ticket) {
            (Response::Join(answer), Some(ticket)) => {
                if answer.error_code == 0 {
                    if this.may_be_empty {
                        this.unwritten_since = Some(at.duration_since(self.start));
                    }
                    this.may_be_empty = false;
                } else if answer.error_code == 25 && this.joins_known {
                    this.may_be_empty = true;
                }
                lease.handle_join(now, ticket, at, answer);
            }
            (Response::Sync(code, bytes), Some(ticket)) => lease.handle_sync(now, ticket, at, code, &bytes),
            (Response::Code(error_code), None) => {
                if let Some(credentials) = commit {
                    lease.handle_commit(now, at, CommitAnswer { credentials, error_code });
                }
            }
            (Response::Code(code), Some(ticket)) => lease.handle_heartbeat(now, ticket, at, code),
            other => panic!("no such answer: {other:?}"),
        }
        self.note(|| line);
        self.drain(worker);
    }

    pub(super) fn send_answers(&mut self) {
        for (handle, response) in std::mem::take(&mut self.broker.out) {
            let Sent { worker, life, link, epoch, .. } = self.sent[handle];
            if self.now < STORM && self.draw(60) == 0 {
                let at = self.now + self.ms(0, 4000);
                self.schedule(at, Event::Lost { worker, life, link, epoch });
                if self.workers[worker].pipe(link).epoch == epoch {
                    self.workers[worker].pipe(link).dead = true;
                }
                continue;
            }
            let at = (self.now + self.network()).max(self.workers[worker].pipe(link).last_out);
            self.workers[worker].pipe(link).last_out = at;
            self.schedule(at, Event::Answer { handle, response });
        }
    }

    pub(super) fn send(
        &mut self,
        worker: usize,
        link: Link,
        ticket: Option<Ticket>,
        commit: Option<Credentials>,
        request: Request,
    ) {
        let (life, at) = (self.workers[worker].life, self.instant());
        let pipe = self.workers[worker].pipe(link);
        let (epoch, dead, last_in) = (pipe.epoch, pipe.dead, pipe.last_in);
        let empty_id = matches!(&request, Request::Join { member_id, .. } if member_id.is_empty());
        self.sent.push(Sent { worker, life, link, epoch, ticket, commit, at, empty_id });
        if dead || self.workers[worker].pipe(link).swallowed_until > self.now {
            self.workers[worker].pipe(link).dead = true;
            return;
        }
        if self.now < STORM && self.draw(60) == 0 {
            self.workers[worker].pipe(link).dead = true;
            let at = self.now + self.ms(0, 4000);
            return self.schedule(at, Event::Lost { worker, life, link, epoch });
        }
        let at = (self.now + self.network()).max(last_in);
        self.workers[worker].pipe(link).last_in = at;
        let (handle, node) = (self.sent.len() - 1, self.workers[worker].node);
        self.schedule(at, Event::Arrive { handle, node, request });
    }

    pub(super) fn send_commit(&mut self, worker: usize, credentials: Credentials) {
        let Credentials { generation, member_id } = credentials.clone();
        let request = Request::Commit { generation, member_id, instance_id: format!("w{worker}") };
        self.send(worker, Link::Work, None, Some(credentials), request);
    }

    /// The driver: does what the machine says.
    pub(super) fn drain(&mut self, worker: usize) {
        let instance_id = format!("w{worker}");
        while let Some(action) = self.workers[worker].lease.as_mut().and_then(Lease::poll_action) {
            self.note(|| format!("{worker} does {action:?}"));
            let life = self.workers[worker].life;
            assert!(
                self.now < CALM || matches!(action, Action::Heartbeat { .. }),
                "E: {worker} is not at rest: {action:?}\n{}",
                self.tail()
            );
            match action {
                Action::FindCoordinator { ticket } => {
                    let lost = self.now < STORM && self.draw(20) == 0;
                    let result =
                        if lost { Err([None, Some(15)][usize::from(self.draw(2) == 0)]) } else { Ok(self.node) };
                    let at = self.now + self.network();
                    self.schedule(at, Event::Found { worker, life, ticket, result });
                }
                Action::Join { ticket, member_id, metadata, .. } => {
                    let this = &mut self.workers[worker];
                    assert!(!member_id.is_empty() || this.may_be_empty, "C: {worker} joins anew\n{}", self.tail());
                    this.joins_known = !member_id.is_empty();
                    let request = Request::Join { member_id, instance_id: instance_id.clone(), metadata };
                    self.send(worker, Link::Join, Some(ticket), None, request);
                }
                Action::Sync { ticket, generation, member_id, assignments } => {
                    let request =
                        Request::Sync { generation, member_id, instance_id: instance_id.clone(), assignments };
                    self.send(worker, Link::Join, Some(ticket), None, request);
                }
                Action::Heartbeat { ticket, generation, member_id } => {
                    let request = Request::Heartbeat { generation, member_id, instance_id: instance_id.clone() };
                    self.send(worker, Link::Work, Some(ticket), None, request);
                }
                Action::ProveByCommit { credentials } => {
                    if self.workers[worker].anchors {
                        self.send_commit(worker, credentials);
                    } else {
                        let now = self.instant();
                        if let Some(lease) = self.workers[worker].lease.as_mut() {
                            lease.handle_nothing_to_commit(now);
                        }
                    }
                }
                Action::Disconnect(link) => self.workers[worker].pipe(link).cut(),
                Action::Own(slots) => {
                    let this = &mut self.workers[worker];
                    assert!(this.owned.intersect(&slots).is_empty());
                    this.owned = this.owned.union(&slots);
                    self.handovers += slots.len();
                }
                Action::Revoke { slots, why } => {
                    let this = &mut self.workers[worker];
                    assert!(slots.is_subset(&this.owned));
                    this.finishing = this.finishing.union(&slots);
                    let slow = if self.draw(5) == 0 { 9000 } else { 300 };
                    let at = self.now + if why == RevokeReason::Lost { Duration::ZERO } else { self.ms(0, slow) };
                    self.schedule(at, Event::Revoked { worker, life, slots });
                }
                Action::Leave { .. } | Action::Stop(_) => {
                    panic!("{worker}: {action:?}\n{}", self.tail())
                }
            }
        }
        let this = &self.workers[worker];
        let Some(lease) = &this.lease else { return };
        assert_eq!(lease.slots(), this.owned, "the driver and the machine agree");
        let (life, start) = (this.life, self.start);
        if let Some(at) = lease.poll_timeout() {
            self.schedule(at.duration_since(start), Event::Timeout { worker, life });
        }
    }
}
