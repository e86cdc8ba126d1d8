//! Carries the requests of the lease machine to the group's coordinator, and anchors with them.
//!
//! Two connections as `lease::Link` says: one that JoinGroup may block, one for heartbeats and commits. Each is served by
//! a task of its own, one request after the other; a machine's `Disconnect` ends that task and what waited for it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{
    sync::{mpsc, oneshot},
    task::AbortHandle,
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    lease::{
        Action, CommitAnswer, CoordinatorAnswer, Credentials, JoinAnswer, JoinedMember, LEASE_PROTOCOL_NAME,
        LEASE_PROTOCOL_TYPE, Lease, LeaseLost, Link, RevokeReason, SlotSet, Ticket, slot_of,
    },
    lease_words::{JOIN_PATIENCE, Pending, Words, next_change, words},
    report::LeaseClock,
};
use crate::{
    client::{Cluster, GroupConnection, JoinRequest, OffsetToCommit},
    protocol::{BrokerId, ErrorCode, TopicPartition},
};

/// Requests that may wait for one connection.
const LINK_QUEUE: usize = 64;
/// How long leaving may take; the session timeout does the same, later.
pub(crate) const LEAVE_PATIENCE: Duration = Duration::from_millis(1500);

/// Told what keeps the flow from copying, as far as the lease does.
pub(crate) type Show = Box<dyn Fn(Option<String>)>;

/// What the flow must do.
#[derive(Debug)]
pub(crate) enum LeaseEvent {
    /// Copy these from now on.
    Own(SlotSet),
    /// Stop copying these, then say so with [`LeaseCommand::Revoked`].
    Revoke(SlotSet, RevokeReason),
    /// Over.
    Lost(LeaseLost),
}

/// Codes of a commit, by partition, or why there are none.
pub(crate) type Committed = Result<BTreeMap<TopicPartition, ErrorCode>, String>;

/// What the flow asks of the lease.
pub(crate) enum LeaseCommand {
    /// Commit anchors in the member's name.
    Commit { offsets: Vec<OffsetToCommit>, reply: oneshot::Sender<Committed> },
    /// These are no longer copied.
    Revoked(SlotSet),
    /// Nothing is copied any more, nothing is in flight: let others take over at once, if there are any.
    Leave(oneshot::Sender<()>),
}

enum LinkRequest {
    Join { ticket: Ticket, join: JoinRequest },
    Sync { ticket: Ticket, generation: i32, member_id: String, assignments: Vec<(String, bytes::Bytes)> },
    Heartbeat { ticket: Ticket, generation: i32, member_id: String },
    Leave { member_id: String },
    Commit { credentials: Credentials, offsets: Vec<OffsetToCommit>, reply: Option<oneshot::Sender<Committed>> },
}

enum Event {
    Coordinator(CoordinatorAnswer),
    Join {
        ticket: Ticket,
        sent_at: Instant,
        answer: JoinAnswer,
    },
    Sync {
        ticket: Ticket,
        sent_at: Instant,
        error_code: i16,
        assignment: bytes::Bytes,
    },
    Heartbeat {
        ticket: Ticket,
        sent_at: Instant,
        error_code: i16,
    },
    Commit {
        sent_at: Instant,
        answer: CommitAnswer,
        committed: Vec<OffsetToCommit>,
    },
    /// Instance ids of all members.
    Members(Vec<String>),
    Lost(Link, String),
}

struct LinkTask {
    requests: mpsc::Sender<LinkRequest>,
    task: AbortHandle,
    /// Results of an earlier incarnation of this link are stale.
    incarnation: u64,
}

struct Driver {
    lease: Lease,
    cluster: Cluster,
    group: Arc<str>,
    instance_id: Arc<str>,
    coordinator: Option<BrokerId>,
    links: BTreeMap<u8, LinkTask>,
    incarnations: u64,
    events: mpsc::Sender<(Option<(Link, u64)>, Event)>,
    flow: mpsc::Sender<LeaseEvent>,
    clock: LeaseClock,
    /// Some anchor that was committed last, to be committed again as a proof of membership.
    provable: Option<OffsetToCommit>,
    pending: Option<Pending>,
    shown: Words,
    show: Show,
}

/// Drives a lease until `stop` or until it is lost.
pub(crate) async fn run(
    lease: Lease,
    cluster: Cluster,
    clock: LeaseClock,
    mut commands: mpsc::Receiver<LeaseCommand>,
    flow: mpsc::Sender<LeaseEvent>,
    show: Show,
    stop: CancellationToken,
) {
    let (events, mut incoming) = mpsc::channel(LINK_QUEUE);
    let mut driver = Driver {
        group: lease.config().group().into(),
        instance_id: lease.config().instance_id().into(),
        lease,
        cluster,
        coordinator: None,
        links: BTreeMap::new(),
        incarnations: 0,
        events,
        flow,
        clock,
        provable: None,
        pending: None,
        shown: Words::default(),
        show,
    };
    loop {
        if driver.act().await {
            break;
        }
        let words_change = next_change(&driver.lease.state(Instant::now()), driver.pending.as_ref());
        let words_change = words_change.filter(|at| *at > Instant::now());
        let deadline = [driver.lease.poll_timeout(), words_change].into_iter().flatten().min();
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            event = incoming.recv() => match event {
                Some((from, event)) => driver.handle(from, event),
                None => break,
            },
            command = commands.recv() => match command {
                Some(command) => driver.command(command).await,
                None => break,
            },
            () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                driver.lease.handle_timeout(Instant::now());
                driver.ask_members();
            }
        }
    }
    driver.clock.set(None);
    for link in driver.links.values() {
        link.task.abort();
    }
}

impl Driver {
    /// Does what the machine wants; true once it is over.
    async fn act(&mut self) -> bool {
        let mut over = false;
        while let Some(action) = self.lease.poll_action() {
            match action {
                Action::FindCoordinator { ticket } => self.find_coordinator(ticket),
                Action::Join { ticket, member_id, instance_id, metadata, session_timeout, rebalance_timeout } => {
                    self.pending = Some(Pending { since: Instant::now(), asked: false, others: Vec::new() });
                    let join = JoinRequest {
                        member_id,
                        instance_id,
                        protocol_type: LEASE_PROTOCOL_TYPE,
                        protocol_name: LEASE_PROTOCOL_NAME,
                        metadata,
                        session_timeout,
                        rebalance_timeout,
                    };
                    self.request(Link::Join, LinkRequest::Join { ticket, join });
                }
                Action::Sync { ticket, generation, member_id, assignments } => {
                    self.request(Link::Join, LinkRequest::Sync { ticket, generation, member_id, assignments });
                }
                Action::Heartbeat { ticket, generation, member_id } => {
                    self.request(Link::Work, LinkRequest::Heartbeat { ticket, generation, member_id });
                }
                Action::ProveByCommit { credentials } => match self.provable.clone() {
                    Some(offset) => {
                        let commit = LinkRequest::Commit { credentials, offsets: vec![offset], reply: None };
                        self.request(Link::Work, commit);
                    }
                    None => self.lease.handle_nothing_to_commit(Instant::now()),
                },
                Action::Disconnect(link) => self.disconnect(link),
                Action::Own(slots) => over |= self.flow.send(LeaseEvent::Own(slots)).await.is_err(),
                Action::Revoke { slots, why } => {
                    if let Some(provable) = &self.provable {
                        let slot = slot_of(provable.partition.topic.as_str(), provable.partition.partition.0);
                        if slots.contains(slot) {
                            // Another worker may commit it next; ours must not go on top of that.
                            self.provable = None;
                        }
                    }
                    // Nothing may be sent for slots that may be somebody else's already.
                    self.clock.set(self.lease.proof_until());
                    over |= self.flow.send(LeaseEvent::Revoke(slots, why)).await.is_err();
                }
                Action::Leave { member_id, .. } => self.request(Link::Join, LinkRequest::Leave { member_id }),
                Action::Stop(why) => {
                    self.clock.set(None);
                    let _ = self.flow.send(LeaseEvent::Lost(why)).await;
                    over = true;
                }
            }
        }
        self.clock.set(self.lease.proof_until());
        self.log_state();
        over
    }

    fn log_state(&mut self) {
        let now = Instant::now();
        let holds = !self.lease.slots().is_empty();
        let said = words(&self.lease.state(now), holds, self.pending.as_ref(), self.lease.config(), now);
        if said != self.shown {
            let Words { text, alarming, stands } = &said;
            if *alarming {
                warn!(group = %self.group, state = text, "lease");
            } else {
                info!(group = %self.group, state = text, "lease");
            }
            (self.show)(stands.then(|| format!("lease {text}")));
            self.shown = said;
        }
    }

    /// Learns whom a join waits for, once it waits.
    fn ask_members(&mut self) {
        let (Some(pending), Some(coordinator)) = (&mut self.pending, self.coordinator) else {
            return;
        };
        if pending.asked || pending.since.elapsed() < JOIN_PATIENCE {
            return;
        }
        pending.asked = true;
        let (cluster, group, events) = (self.cluster.clone(), self.group.clone(), self.events.clone());
        tokio::task::spawn_local(async move {
            let Ok(connection) = cluster.dial(coordinator).await else { return };
            let connection = GroupConnection::new(connection, group, cluster.request_timeout());
            // Who may not be told is told less.
            if let Ok(members) = connection.members().await {
                let _ = events.send((None, Event::Members(members))).await;
            }
        });
    }

    /// Leaves the group if others are in it: they go on at once. Whoever is alone keeps its place for a restart.
    async fn leave(&mut self) {
        if !self.lease.has_company() {
            return;
        }
        self.lease.leave(Instant::now());
        self.clock.set(None);
        while let Some(action) = self.lease.poll_action() {
            match action {
                Action::Revoke { slots, .. } => self.lease.handle_revoked(Instant::now(), slots),
                Action::Leave { member_id, .. } => {
                    // On a connection of its own: a JoinGroup may hold up the other one.
                    let left = async {
                        let coordinator = self.coordinator.ok_or("the coordinator is not known")?;
                        let connection = self.cluster.dial(coordinator).await.map_err(|error| error.to_string())?;
                        let connection =
                            GroupConnection::new(connection, self.group.clone(), self.cluster.request_timeout());
                        connection.leave(&member_id, &self.instance_id).await.map_err(|error| error.to_string())
                    };
                    let left: Result<ErrorCode, String> =
                        timeout(LEAVE_PATIENCE, left).await.unwrap_or_else(|_| Err("no answer in time".into()));
                    match left {
                        Ok(code) if code.is_none() => {
                            info!(group = %self.group, "left the group: the other members take over at once");
                        }
                        Ok(code) => {
                            info!(group = %self.group, %code, "the others take over once this member's session ends");
                        }
                        Err(error) => {
                            info!(group = %self.group, error, "the others take over once this member's session ends");
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn find_coordinator(&mut self, ticket: Ticket) {
        let (cluster, group, events) = (self.cluster.clone(), self.group.clone(), self.events.clone());
        tokio::task::spawn_local(async move {
            let result = match cluster.coordinator(&group).await {
                Ok(id) => Ok(id.0),
                Err(error) => {
                    debug!(%error, "coordinator look-up failed");
                    Err(error.code().map(|code| code.0))
                }
            };
            let _ = events.send((None, Event::Coordinator(CoordinatorAnswer { ticket, result }))).await;
        });
    }

    fn request(&mut self, link: Link, request: LinkRequest) {
        if !self.links.contains_key(&index(link)) {
            let Some(coordinator) = self.coordinator else {
                self.lease.handle_connection_lost(Instant::now(), link);
                return;
            };
            self.incarnations += 1;
            let (requests, queue) = mpsc::channel(LINK_QUEUE);
            let served = serve(
                self.cluster.clone(),
                coordinator,
                self.group.clone(),
                self.instance_id.clone(),
                (link, self.incarnations),
                queue,
                self.events.clone(),
            );
            let task = tokio::task::spawn_local(served).abort_handle();
            self.links.insert(index(link), LinkTask { requests, task, incarnation: self.incarnations });
        }
        let full = self.links.get(&index(link)).is_some_and(|task| task.requests.try_send(request).is_err());
        if full {
            // The link's task is gone or stuck; both end it.
            self.disconnect(link);
            self.lease.handle_connection_lost(Instant::now(), link);
        }
    }

    fn disconnect(&mut self, link: Link) {
        if link == Link::Join {
            self.pending = None;
        }
        if let Some(task) = self.links.remove(&index(link)) {
            task.task.abort();
        }
    }

    fn handle(&mut self, from: Option<(Link, u64)>, event: Event) {
        let now = Instant::now();
        if let Some((link, incarnation)) = from
            && self.links.get(&index(link)).map(|task| task.incarnation) != Some(incarnation)
        {
            return;
        }
        match event {
            Event::Coordinator(answer) => {
                if let Ok(id) = answer.result {
                    self.coordinator = Some(BrokerId(id));
                }
                self.lease.handle_coordinator(now, answer);
            }
            Event::Join { ticket, sent_at, answer } => {
                self.pending = None;
                self.lease.handle_join(now, ticket, sent_at, answer);
            }
            Event::Members(members) => {
                if let Some(pending) = &mut self.pending {
                    pending.others = members.into_iter().filter(|member| **member != *self.instance_id).collect();
                }
            }
            Event::Sync { ticket, sent_at, error_code, assignment } => {
                self.lease.handle_sync(now, ticket, sent_at, error_code, &assignment);
            }
            Event::Heartbeat { ticket, sent_at, error_code } => {
                self.lease.handle_heartbeat(now, ticket, sent_at, error_code);
            }
            Event::Commit { sent_at, answer, committed } => {
                if answer.error_code == 0
                    && let Some(last) = committed.into_iter().last()
                {
                    self.provable = Some(last);
                }
                self.lease.handle_commit(now, sent_at, answer);
            }
            Event::Lost(link, why) => {
                debug!(?link, why, "lease connection lost");
                self.disconnect(link);
                self.lease.handle_connection_lost(now, link);
            }
        }
    }

    async fn command(&mut self, command: LeaseCommand) {
        match command {
            LeaseCommand::Commit { offsets, reply } => match self.lease.commit_credentials() {
                Some(credentials) => {
                    self.request(Link::Work, LinkRequest::Commit { credentials, offsets, reply: Some(reply) });
                }
                None => {
                    let _ = reply.send(Err("this worker is no member of the lease group just now".into()));
                }
            },
            LeaseCommand::Revoked(slots) => self.lease.handle_revoked(Instant::now(), slots),
            LeaseCommand::Leave(done) => {
                self.leave().await;
                // The flow may have given up waiting.
                let _ = done.send(());
            }
        }
    }
}

fn index(link: Link) -> u8 {
    match link {
        Link::Join => 0,
        Link::Work => 1,
    }
}

/// Serves one connection: one request after the other, until the first failure.
async fn serve(
    cluster: Cluster,
    coordinator: BrokerId,
    group: Arc<str>,
    instance_id: Arc<str>,
    from: (Link, u64),
    mut queue: mpsc::Receiver<LinkRequest>,
    events: mpsc::Sender<(Option<(Link, u64)>, Event)>,
) {
    let failed = async |why: String| {
        let _ = events.send((Some(from), Event::Lost(from.0, why))).await;
    };
    let connection = match cluster.dial(coordinator).await {
        Ok(connection) => GroupConnection::new(connection, group, cluster.request_timeout()),
        Err(error) => return failed(error.to_string()).await,
    };
    while let Some(request) = queue.recv().await {
        let sent_at = Instant::now();
        let event = match request {
            LinkRequest::Join { ticket, join } => connection.join(join).await.map(|answer| Event::Join {
                ticket,
                sent_at,
                answer: JoinAnswer {
                    error_code: answer.error_code.0,
                    generation: answer.generation,
                    protocol_name: answer.protocol_name.unwrap_or_default(),
                    leader: answer.leader,
                    member_id: answer.member_id,
                    members: answer
                        .members
                        .into_iter()
                        .map(|(member_id, instance_id, metadata)| JoinedMember {
                            member_id,
                            instance_id: instance_id.unwrap_or_default(),
                            metadata,
                        })
                        .collect(),
                    skip_assignment: answer.skip_assignment,
                },
            }),
            LinkRequest::Sync { ticket, generation, member_id, assignments } => connection
                .sync((LEASE_PROTOCOL_TYPE, LEASE_PROTOCOL_NAME), generation, &member_id, &instance_id, assignments)
                .await
                .map(|answer| Event::Sync {
                    ticket,
                    sent_at,
                    error_code: answer.error_code.0,
                    assignment: answer.assignment,
                }),
            LinkRequest::Heartbeat { ticket, generation, member_id } => connection
                .heartbeat(generation, &member_id, &instance_id)
                .await
                .map(|code| Event::Heartbeat { ticket, sent_at, error_code: code.0 }),
            LinkRequest::Leave { member_id } => {
                // Best effort: the session timeout does the same, later.
                let _ = connection.leave(&member_id, &instance_id).await;
                continue;
            }
            LinkRequest::Commit { credentials, offsets, reply } => {
                let result = connection
                    .commit(credentials.generation, &credentials.member_id, Some(&instance_id), &offsets)
                    .await;
                let (answer, reported) = match result {
                    Ok(codes) => {
                        let good = codes.is_empty() || codes.values().any(|code| code.is_none());
                        let first_bad = codes.values().find(|code| !code.is_none()).map_or(0, |code| code.0);
                        let error_code = if good { 0 } else { first_bad };
                        let durable = offsets
                            .into_iter()
                            .filter(|offset| codes.get(&offset.partition).is_some_and(|code| code.is_none()))
                            .collect();
                        let answer = CommitAnswer { credentials, error_code };
                        (Ok(Event::Commit { sent_at, answer, committed: durable }), Ok(codes))
                    }
                    Err(error) => (Err(error.clone()), Err(error.to_string())),
                };
                if let Some(reply) = reply {
                    // The asker may have stopped waiting.
                    let _ = reply.send(reported);
                }
                answer
            }
        };
        match event {
            Ok(event) => {
                if events.send((Some(from), event)).await.is_err() {
                    return;
                }
            }
            Err(error) => return failed(error.to_string()).await,
        }
    }
}
