//! What is done to a world, and how it ends.

use std::time::Duration;

use kafka_protocol::messages::ApiKey;
use tokio::time::Instant;
use towpath::{
    batch::{BatchBuilder, records},
    mirror::lease::lease_group,
    protocol::ErrorCode,
    simulation,
    testkit::engine::{Intercept, InterceptAction},
};

use super::{
    oracle,
    schedule::{Fault, Order, Side},
    world::{Undo, WALL_MS, World},
};

/// A node that hangs for longer leads nothing any more, if there are others (`broker.session.timeout.ms`).
const DEPOSED_AFTER: Duration = Duration::from_secs(9);

impl World {
    pub(super) async fn act(&mut self, fault: Fault) -> Result<(), String> {
        let now = Instant::now();
        match fault {
            Fault::Cut(side, node) => self.network.cut(&self.site(side).host(node)),
            Fault::CutWithin(side, node, way, bytes) => self.network.cut_after(&self.site(side).host(node), way, bytes),
            Fault::Stall(side, node, duration) => self.network.stall(&self.site(side).host(node), duration),
            Fault::Silence(side, node, duration) => self.network.silence(&self.site(side).host(node), duration),
            Fault::Slow(side, node, by, duration) => self.network.slow(&self.site(side).host(node), by, duration),
            Fault::StopNode(side, node, duration) => self.stop_node(side, node, duration),
            Fault::StopAll(side, duration) => {
                for node in 1..=self.site(side).nodes {
                    self.stop_node(side, node, duration);
                }
            }
            Fault::RestartTwice(side, node) => {
                let step = Duration::from_millis(700);
                self.stop_node(side, node, step);
                self.pending.push((now + step * 2, Undo::StopNode(side, node, step)));
            }
            Fault::MoveLeaders(side, topic) => self.move_leaders(side, topic),
            Fault::Hang { side, node, hang, duration, order, within } => {
                self.site(side).cluster.with(|cluster, _| cluster.hang_node(node, hang));
                if duration > DEPOSED_AFTER {
                    self.pending.push((now + DEPOSED_AFTER, Undo::Depose(side, node)));
                }
                self.pending.push((now + duration, Undo::Thaw(side, node, order, within)));
            }
            Fault::Throttle { side, api, by, times } => {
                self.intercept(side, Intercept::next(api, InterceptAction::Throttle(by)).times(times));
            }
            Fault::Drop { side, api, after, skip, times } => {
                let action = if after { InterceptAction::DropAfter } else { InterceptAction::DropBefore };
                self.intercept(side, Intercept::next(api, action).after(skip).times(times));
            }
            Fault::Delay { side, api, by, times } => {
                self.intercept(side, Intercept::next(api, InterceptAction::Delay(by)).times(times));
            }
            Fault::Answer { side, api, code, after, skip, times } => {
                let action = if after { InterceptAction::AnswerAfter(code) } else { InterceptAction::Answer(code) };
                self.intercept(side, Intercept::next(api, action).after(skip).times(times));
            }
            Fault::DiskFull(side, duration) => {
                let action = InterceptAction::Answer(ErrorCode::KAFKA_STORAGE_ERROR);
                self.intercept(side, Intercept::next(ApiKey::Produce, action).times(usize::MAX));
                self.pending.push((now + duration, Undo::ClearDisk(side)));
            }
            Fault::EvictSessions(side, node) => self.site(side).cluster.with(|cluster, _| cluster.evict_sessions(node)),
            Fault::LieAboutLeaders(side, node, duration) => {
                self.site(side).cluster.with(|cluster, _| cluster.lie_about_leaders(Some(node)));
                self.pending.push((now + duration, Undo::Truth(side)));
            }
            Fault::MoveCoordinators => self.sites[1].cluster.with(|cluster, now| cluster.move_coordinators(now)),
            Fault::HoldHighWatermark(side, topic, duration) => {
                let name = self.name(side, topic);
                let partitions = self.schedule.topics[topic].partitions;
                self.site(side).cluster.with(|cluster, _| {
                    (0..partitions).for_each(|partition| cluster.hold_high_watermark(&name, partition as i32));
                });
                self.pending.push((now + duration, Undo::Release(side, name)));
            }
            Fault::JumpHours(hours) => {
                self.sites[1].cluster.with(|cluster, now| cluster.jump(now, hours as i64 * 3_600_000));
            }
            Fault::JumpMirror(forward_ms) => simulation::jump(forward_ms),
            Fault::ExpireAnchors(duration) => {
                self.kill(0).await;
                // Commits live for a week; by then there is a copy of each.
                if self.has_copies() {
                    self.sites[1].cluster.with(|cluster, _| cluster.expire_commits(&lease_group("A", "B")));
                }
                self.pending.push((now + duration, Undo::Start(0)));
            }
            Fault::Kill(duration) => {
                self.kill(0).await;
                self.pending.push((now + duration, Undo::Start(0)));
            }
            Fault::Pause(duration) => self.pause(duration),
            Fault::Terminate(duration) => {
                self.terminate(0).await?;
                self.pending.push((now + duration, Undo::Start(0)));
            }
            Fault::SecondWorker(duration) => self.second(duration),
            Fault::PauseBesideSecond(duration) => {
                self.second(duration + Duration::from_secs(5));
                self.pause(duration);
            }
            Fault::PauseWithinBesideSecond(node, bytes, duration) => {
                self.second(duration + Duration::from_secs(5));
                if let Some(process) = self.processes.get(&0) {
                    self.network.pause_after(&self.site(Side::Target).host(node), process.number, bytes);
                    self.pending.push((now + duration, Undo::Open(0)));
                }
            }
            Fault::Compact(topic) => self.compact(topic)?,
            Fault::ForeignWrite(topic) => self.write_foreign(topic),
            Fault::DeleteRecords(topic, partition, thousandths) => {
                self.delete_records(topic, partition, thousandths)?
            }
            Fault::TruncateSource(topic, partition, records) => self.truncate_source(topic, partition, records)?,
            Fault::TruncateTarget(topic, partition, records) => self.truncate_target(topic, partition, records)?,
            Fault::RecreateSource(topic) => self.recreate_source(topic)?,
            Fault::DeleteTarget(topic) => self.delete_target(topic, false)?,
            Fault::RecreateTarget(topic) => self.delete_target(topic, true)?,
            Fault::Operate => {
                self.operate().await?;
            }
            Fault::KillAndCompact(topic, duration) => {
                self.kill(0).await;
                self.compact(topic)?;
                self.pending.push((now + duration, Undo::Start(0)));
            }
        }
        Ok(())
    }

    /// A node goes on. What gathered in its sockets comes in some order, not all at once.
    fn thaw(&mut self, side: Side, node: i32, order: Order, within: Duration) {
        let mut gathered = self.site(side).cluster.with(|cluster, now| cluster.thaw_node(now, node));
        if order == Order::NewestFirst {
            gathered.reverse();
        }
        let now = Instant::now();
        let step = within / gathered.len().max(1) as u32;
        for (turn, (connection, requests)) in gathered.into_iter().enumerate() {
            let turn = if order == Order::Any { self.random.below(8) } else { turn as u64 };
            // Of what a client left a part may be lost with its connection.
            let requests =
                if self.random.one_in(3) { self.random.within(0, requests as u64) as usize } else { requests };
            self.pending.push((now + step * turn as u32, Undo::Serve(side, connection, requests)));
        }
    }

    fn thaw_all(&mut self) {
        for side in [Side::Source, Side::Target] {
            for node in 1..=self.site(side).nodes {
                self.thaw(side, node, Order::Any, Duration::ZERO);
            }
        }
        for (_, undo) in std::mem::take(&mut self.pending) {
            if let Undo::Serve(side, connection, requests) = undo {
                self.site(side).cluster.with(|cluster, now| cluster.serve(now, connection, requests));
            }
        }
    }

    pub(super) fn name(&self, side: Side, topic: usize) -> String {
        let name = &self.schedule.topics[topic].name;
        if side == Side::Source { name.clone() } else { format!("A.{name}") }
    }

    fn intercept(&self, side: Side, intercept: Intercept) {
        self.site(side).cluster.with(|cluster, _| cluster.intercept(intercept));
    }

    fn stop_node(&mut self, side: Side, node: i32, duration: Duration) {
        self.site(side).stop(node, duration);
        self.pending.push((Instant::now() + duration, Undo::StartNode(side, node)));
    }

    fn move_leaders(&self, side: Side, topic: usize) {
        let (name, nodes) = (self.name(side, topic), self.site(side).nodes);
        let down = self.site(side).down.borrow().clone();
        self.site(side).cluster.with(|cluster, _| {
            for partition in 0..self.schedule.topics[topic].partitions as i32 {
                let Some(leader) = cluster.leader(&name, partition) else { continue };
                let next =
                    (1..=nodes).map(|step| (leader + step - 1) % nodes + 1).find(|node| !down.contains_key(node));
                if let Some(next) = next {
                    cluster.move_leader(&name, partition, next);
                }
            }
        });
    }

    fn pause(&mut self, duration: Duration) {
        if let Some(process) = self.processes.get(&0) {
            process.gate.close();
            self.pending.push((Instant::now() + duration, Undo::Open(0)));
        }
    }

    fn second(&mut self, duration: Duration) {
        if !self.processes.contains_key(&1) {
            self.start(1);
            self.pending.push((Instant::now() + duration, Undo::Retire(1)));
        }
    }

    /// Whether the runs topic has an anchor of every partition that holds something.
    fn has_copies(&self) -> bool {
        let runs = self.sites[1].cluster.with(|cluster, _| cluster.topic("towpath-runs.A.internal"));
        let entries = runs.into_iter().flat_map(|topic| topic.partitions).flat_map(|partition| partition.entries);
        let keys: Vec<String> = entries
            .filter_map(|entry| records(&entry.batch()?).ok())
            .flat_map(|records| records.flatten())
            .filter_map(|record| Some(String::from_utf8_lossy(&record.key?).into_owned()))
            .collect();
        let named = |name: &str, partition: usize| {
            let (topic, partition) = (format!("\"topic\":\"{name}\""), format!("\"partition\":{partition}"));
            let is_ours = |key: &String| key.contains("\"anchor\"") && key.contains(&topic) && key.contains(&partition);
            keys.iter().any(is_ours)
        };
        self.schedule.topics.iter().enumerate().all(|(number, plan)| {
            (0..plan.partitions).all(|partition| {
                let holds = self.copy(number, partition).is_some_and(|copy| copy.end_offset > 0);
                !holds || named(&format!("A.{}", plan.name), partition)
            })
        })
    }

    fn write_foreign(&mut self, topic: usize) {
        let Some(end) = self.copy(topic, 0).map(|copy| copy.end_offset) else { return };
        let mut builder = BatchBuilder::new();
        builder.push(WALL_MS, Some(b"k"), Some(oracle::FOREIGN), &[]).expect("it is small");
        let mut bytes = builder.build().expect("there is a record").to_vec();
        bytes[..8].copy_from_slice(&end.to_be_bytes());
        let name = self.name(Side::Target, topic);
        self.sites[1].cluster.with(|cluster, _| cluster.append_raw(&name, 0, bytes.into()));
        self.hurt.insert(topic);
    }

    fn compact(&mut self, topic: usize) -> Result<(), String> {
        // What is there now was there, whatever is taken away.
        self.look()?;
        let plan = self.schedule.topics[topic].clone();
        for partition in 0..plan.partitions {
            let view = self.sites[0].cluster.with(|cluster, now| {
                cluster.compact(now, &plan.name, partition as i32);
                cluster.topic(&plan.name)
            });
            let view =
                view.and_then(|topic| topic.partitions.into_iter().nth(partition)).ok_or("the source topic is gone")?;
            if let Some(ledger) = self.ledgers.get_mut(&(topic, partition)) {
                ledger.note_cleaned(&view)?;
            }
        }
        Ok(())
    }

    pub(super) async fn undo(&mut self, undo: Undo) -> Result<(), String> {
        match undo {
            Undo::StartNode(side, node) => {
                // Another fault may have stopped it again for longer.
                let until = self.site(side).down.borrow().get(&node).copied();
                if until.is_some_and(|until| until <= Instant::now()) {
                    self.site(side).clone().start_node(node).await;
                }
            }
            Undo::StopNode(side, node, duration) => self.stop_node(side, node, duration),
            Undo::Release(side, name) => self.site(side).cluster.with(|cluster, now| {
                let partitions = cluster.topic(&name).map_or(0, |topic| topic.partitions.len());
                (0..partitions).for_each(|partition| cluster.release_high_watermark(now, &name, partition as i32));
            }),
            Undo::Truth(side) => self.site(side).cluster.with(|cluster, _| cluster.lie_about_leaders(None)),
            Undo::ClearDisk(side) => self.site(side).cluster.with(|cluster, _| cluster.clear_intercepts()),
            Undo::Start(host) => {
                if !self.processes.contains_key(&host) {
                    self.start(host);
                }
            }
            Undo::Depose(side, node) => self.site(side).cluster.with(|cluster, _| cluster.depose_node(node)),
            Undo::Thaw(side, node, order, within) => self.thaw(side, node, order, within),
            Undo::Serve(side, connection, requests) => {
                self.site(side).cluster.with(|cluster, now| cluster.serve(now, connection, requests));
            }
            Undo::Open(host) => {
                self.network.clear_pauses();
                if let Some(process) = self.processes.get(&host) {
                    process.gate.open();
                }
            }
            Undo::Retire(host) => self.terminate(host).await?,
        }
        Ok(())
    }

    /// Ends all faults; one process of the mirror runs.
    pub(super) async fn heal(&mut self) -> Result<(), String> {
        self.network.heal();
        for side in [Side::Source, Side::Target] {
            self.site(side).cluster.with(|cluster, _| {
                cluster.clear_intercepts();
                cluster.lie_about_leaders(None);
            });
            let down: Vec<i32> = self.site(side).down.borrow().keys().copied().collect();
            for node in down {
                self.site(side).clone().start_node(node).await;
            }
            for topic in 0..self.schedule.topics.len() {
                let name = self.name(side, topic);
                self.undo(Undo::Release(side, name)).await?;
            }
        }
        self.thaw_all();
        self.pending.clear();
        for process in self.processes.values() {
            process.gate.open();
        }
        self.terminate(1).await?;
        if self.processes.get(&0).is_some_and(|process| process.ended.borrow().is_some()) {
            // It lost its lease to the other one, and says so; somebody starts it again.
            self.processes.remove(&0);
        }
        if !self.processes.contains_key(&0) {
            self.start(0);
        }
        Ok(())
    }
}
