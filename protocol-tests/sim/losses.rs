//! Logs that lose records, topics that are others, and the operator who decides about what stands.

use std::sync::Arc;

use towpath::{
    config::{self, Environment},
    mirror::resume::{Resume, resume_over},
    simulation,
    testkit::engine::PartitionView,
};

use super::{
    network::{Gate, Owner},
    oracle::Ledger,
    schedule::Side,
    world::World,
};

impl World {
    /// The source partition and its ledger, which knows all of it that anybody could read.
    fn noted(&mut self, topic: usize, partition: usize) -> Result<(PartitionView, &mut Ledger), String> {
        let name = self.name(Side::Source, topic);
        let view = self.sites[0].cluster.with(|cluster, _| cluster.topic(&name));
        let view = view.and_then(|topic| topic.partitions.into_iter().nth(partition));
        let view = view.ok_or("the source topic is gone")?;
        self.hurt.insert(topic);
        let ledger = self.ledgers.get_mut(&(topic, partition)).ok_or("no ledger")?;
        ledger.note(&view)?;
        Ok((view, ledger))
    }

    pub(super) fn delete_records(&mut self, topic: usize, partition: usize, thousandths: u64) -> Result<(), String> {
        let began = self.anchors().contains_key(&(self.name(Side::Target, topic), partition as i32));
        let (view, ledger) = self.noted(topic, partition)?;
        let (start, end) = (view.log_start_offset, view.high_watermark);
        let before = start + (end - start) * thousandths as i64 / 1000;
        ledger.note_deleted(before);
        if !began {
            ledger.begins = before;
        }
        let name = self.name(Side::Source, topic);
        self.sites[0].cluster.with(|cluster, _| cluster.delete_records(&name, partition as i32, before));
        Ok(())
    }

    pub(super) fn truncate_source(&mut self, topic: usize, partition: usize, records: u64) -> Result<(), String> {
        let (view, ledger) = self.noted(topic, partition)?;
        let from = boundary(&view, records);
        ledger.note_cut(from);
        let name = self.name(Side::Source, topic);
        self.sites[0].cluster.with(|cluster, _| cluster.truncate(&name, partition as i32, from));
        Ok(())
    }

    pub(super) fn truncate_target(&mut self, topic: usize, partition: usize, records: u64) -> Result<(), String> {
        let Some(copy) = self.copy(topic, partition) else { return Ok(()) };
        let (_, ledger) = self.noted(topic, partition)?;
        ledger.disturbed = true;
        // With all of our batches the broker lost our sequences, so that it takes the next one, once.
        self.strayed.insert(topic);
        let (name, from) = (self.name(Side::Target, topic), boundary(&copy, records));
        self.sites[1].cluster.with(|cluster, _| cluster.truncate(&name, partition as i32, from));
        Ok(())
    }

    pub(super) fn recreate_source(&mut self, topic: usize) -> Result<(), String> {
        let plan = self.schedule.topics[topic].clone();
        for partition in 0..plan.partitions {
            let (_, ledger) = self.noted(topic, partition)?;
            ledger.note_cut(0);
        }
        let configs: &[_] = if plan.append_time { &[("message.timestamp.type", "LogAppendTime")] } else { &[] };
        let nodes = self.schedule.nodes[0] as usize;
        self.sites[0]
            .cluster
            .with(|cluster, _| {
                cluster.delete_topic(&plan.name);
                cluster.create_topic(&plan.name, plan.partitions, nodes, configs).map(drop)
            })
            .map_err(|code| format!("the source topic cannot be created: {code}"))
    }

    pub(super) fn delete_target(&mut self, topic: usize, again: bool) -> Result<(), String> {
        let name = self.name(Side::Target, topic);
        if !self.sites[1].cluster.with(|cluster, _| cluster.delete_topic(&name)) {
            return Ok(());
        }
        self.begins_anew(topic);
        if again {
            let (partitions, nodes) = (self.schedule.topics[topic].partitions, self.schedule.nodes[1] as usize);
            let made = self.sites[1].cluster.with(|cluster, _| cluster.create_topic(&name, partitions, nodes, &[]));
            made.map_err(|code| format!("the remote topic cannot be created: {code}"))?;
        }
        Ok(())
    }

    fn begins_anew(&mut self, topic: usize) {
        self.hurt.insert(topic);
        // Until the mirror notices, a batch may be on its way to whatever has the name.
        self.strayed.insert(topic);
        for (_, ledger) in self.ledgers.iter_mut().filter(|((of, _), _)| *of == topic) {
            (ledger.disturbed, ledger.restarted) = (true, true);
        }
    }

    /// Takes what the mirror said that it passed over.
    pub(super) fn hear_losses(&mut self) {
        for (topic, partition, from, to) in simulation::take_losses() {
            let number = self.schedule.topics.iter().position(|plan| plan.name == topic);
            let ledger = number.and_then(|number| self.ledgers.get_mut(&(number, partition as usize)));
            if let Some(ledger) = ledger {
                ledger.losses.push((from, to));
            }
        }
    }

    /// Why partitions of a topic stand, as the mirror shows it.
    fn standing(&self) -> Vec<(usize, &'static str, String)> {
        let flows = self.reports.borrow();
        let states = flows.iter().flat_map(|flow| &flow.notable);
        let stopped = states.filter_map(|(name, state)| {
            let towpath::mirror::partition::PartitionState::Stopped(reason) = state else { return None };
            let (topic, _) = name.rsplit_once('-')?;
            let topic = self.schedule.topics.iter().position(|plan| plan.name == topic)?;
            Some((topic, reason.code(), reason.to_string()))
        });
        stopped.collect()
    }

    /// An operator looks at what stands and decides. What stands without a cause is an error.
    pub(super) async fn operate(&mut self) -> Result<(), String> {
        for topic in 0..self.schedule.topics.len() {
            let reasons: Vec<_> = self.standing().into_iter().filter(|(of, ..)| *of == topic).collect();
            if reasons.is_empty() {
                continue;
            }
            if let Some((_, _, reason)) = reasons.iter().find(|_| !self.hurt.contains(&topic)) {
                return Err(format!("{} stands, and nothing happened to it: {reason}", self.name(Side::Source, topic)));
            }
            // Where going on is no answer, or would double what is there.
            let anew = reasons.iter().any(|(_, code, _)| matches!(*code, "position-unknown" | "target-not-empty"));
            let loaded = config::parse(self.file(0).as_bytes(), "simulated.properties", &Environment::default());
            let flow = loaded.expect("a good file").settings.flows.remove(0);
            let topic_name = self.name(Side::Source, topic);
            let asked = Resume {
                flow,
                topic: topic_name,
                partitions: Vec::new(),
                accept: None,
                recreate_target: anew,
                dry_run: false,
            };
            let connector = self.network.connector(Owner::Spared, Arc::new(Gate::default()));
            // A target that is down cannot be asked; somebody tries again later.
            if let Ok(answered) = resume_over(&asked, Some(connector)).await {
                if anew && answered.iter().any(|one| one.decided.is_some()) {
                    self.begins_anew(topic);
                }
                for one in &answered {
                    self.check_reason(topic, one.partition.partition.0 as usize, &one.reason)?;
                }
            }
        }
        Ok(())
    }

    /// What the mirror wrote down about a loss is what happened.
    fn check_reason(&self, topic: usize, partition: usize, reason: &str) -> Result<(), String> {
        let Some(ledger) = self.ledgers.get(&(topic, partition)) else { return Ok(()) };
        let numbers: Vec<i64> =
            reason.split(|letter: char| !letter.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect();
        let wrong = || Err(format!("{}-{partition}: it said: {reason}", self.name(Side::Source, topic)));
        match numbers.as_slice() {
            [end, ..] if reason.starts_with("source truncated") && !ledger.cuts.contains(end) => wrong(),
            [from, last, count] if reason.starts_with("records lost") && last - from + 1 != *count => wrong(),
            _ => Ok(()),
        }
    }
}

/// The beginning of the batch that holds the record so many before the end.
fn boundary(view: &PartitionView, records: u64) -> i64 {
    let wanted = (view.end_offset - records as i64).max(view.log_start_offset);
    let within = view.entries.iter().rev().find(|stored| stored.base_offset <= wanted);
    within.map_or(wanted, |stored| stored.base_offset.max(view.log_start_offset))
}
