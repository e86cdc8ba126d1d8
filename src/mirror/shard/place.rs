//! Where a partition belongs: the fetcher of its source's leader and a lane to its target's.

use std::{rc::Rc, sync::Arc};

use tokio::time::Instant;

use super::{Entry, Shard};
use crate::{
    client::ClusterSnapshot,
    mirror::{
        budget::Account,
        report::CopyId,
        sink::{self, Lane, LaneKey},
        source::{self, Fetcher},
    },
    protocol::{BrokerId, LeaderEpoch},
};

impl Shard {
    /// Puts a partition where its leaders are.
    pub(super) fn place(self: &Rc<Self>, copy: CopyId, entry: &mut Entry, now: Instant) {
        let (source, target) = (self.source(), self.target());
        let spec = entry.machine.spec();
        if entry.replica.is_some_and(|(broker, until)| until <= now || source.endpoint(broker).is_none()) {
            entry.replica = None;
        }
        let known = source.leader(&spec.source);
        entry.source_epoch = known.map_or(LeaderEpoch::NONE, |leader| leader.epoch);
        let leader = known.and_then(|leader| leader.leader);
        let reader = entry.replica.map(|(broker, _)| broker).or(leader);
        if reader != entry.fetcher.as_ref().map(|fetcher| fetcher.broker) {
            if let Some(old) = entry.fetcher.take() {
                old.forget(copy, &spec.source, spec.source_topic_id, entry.backlogged);
                entry.backlogged = false;
            }
            entry.fetcher = reader.map(|broker| self.fetcher(broker));
            entry.told = (None, false);
        }
        let known = target.leader(&spec.target);
        let target_leader = known.and_then(|leader| leader.leader);
        let target_epoch = known.map_or(LeaderEpoch::NONE, |leader| leader.epoch);
        // The same broker leads anew: its log may have lost something, which nobody tells where nothing is written.
        let leads_anew = entry.target_epoch != LeaderEpoch::NONE && target_epoch > entry.target_epoch;
        entry.target_epoch = target_epoch.max(entry.target_epoch);
        let no_source = leader.is_none().then(|| format!("{} has no leader", spec.source));
        let no_target = target_leader.is_none().then(|| format!("{} has no leader", spec.target));
        let key = target_leader.map(|broker| LaneKey {
            broker,
            index: u8::try_from(copy.0 % u32::from(self.produce.lanes_per_broker.max(1))).unwrap_or(0),
        });
        entry.misplaced = false;
        let stays = key == entry.lane.as_ref().map(|lane| lane.key);
        if !stays {
            if entry.machine.has_in_flight() {
                // What is in flight settles on the old lane first; then the move is made.
                entry.machine.handle_target_leader_changed(now);
                entry.misplaced = true;
            } else {
                let old = entry.lane.take();
                if let Some(old) = &old {
                    old.remove(copy);
                }
                entry.ready = false;
                entry.next_request = 0;
                entry.lane = key.map(|key| self.lane(key));
                if let Some(lane) = &entry.lane {
                    lane.pin(copy);
                }
                if old.is_some() {
                    entry.machine.handle_target_leader_changed(now);
                }
            }
        }
        if leads_anew && stays {
            entry.machine.handle_target_leader_changed(now);
        }
        entry.machine.handle_reach(no_source, no_target);
    }

    /// What a batch may become when it is decompressed, in bytes.
    pub(crate) fn open_bytes_max(&self) -> usize {
        self.settings.open_bytes_max
    }

    pub(crate) fn source(&self) -> Arc<ClusterSnapshot> {
        self.source.borrow().clone()
    }

    pub(crate) fn target(&self) -> Arc<ClusterSnapshot> {
        self.target.borrow().clone()
    }

    /// Memory came back: fetchers that wait for it, and partitions whose lane had spent its share, go on.
    pub(crate) fn memory_returned(self: &Rc<Self>, lane: &Lane) {
        if self.budget.take_returned() {
            self.memory.notify_waiters();
        }
        for copy in lane.ungated() {
            self.touch(copy);
        }
    }

    /// How many source brokers are read from.
    pub(crate) fn fetchers(&self) -> usize {
        self.fetchers.borrow().len()
    }

    fn fetcher(self: &Rc<Self>, broker: BrokerId) -> Rc<Fetcher> {
        if let Some(fetcher) = self.fetchers.borrow().get(&broker) {
            return fetcher.clone();
        }
        let fetcher = Rc::new(Fetcher::new(broker, self.fetch.response_bytes_max));
        self.fetchers.borrow_mut().insert(broker, fetcher.clone());
        self.spawn(source::run(self.clone(), fetcher.clone()));
        fetcher
    }

    fn lane(self: &Rc<Self>, key: LaneKey) -> Rc<Lane> {
        if let Some(lane) = self.lanes.borrow().get(&key) {
            return lane.clone();
        }
        let lane = Rc::new(Lane::new(key, Account::new(self.lane_share), self.produce.request_bytes_max));
        self.lanes.borrow_mut().insert(key, lane.clone());
        self.spawn(sink::run(self.clone(), lane.clone()));
        lane
    }

    /// Leaders, topics or brokers changed: look at every partition.
    pub(super) fn clusters_changed(self: &Rc<Self>) {
        let (source, target) = (self.source(), self.target());
        let mut copies: Vec<CopyId> = self.entries.borrow().keys().copied().collect();
        copies.sort_unstable();
        for copy in copies {
            self.with(copy, |entry, now| {
                let spec = entry.machine.spec();
                let refused =
                    source.refused.contains_key(&spec.source.topic) || target.refused.contains_key(&spec.target.topic);
                entry.misplaced = true;
                let ids = (source.topic_id(&spec.source.topic), target.topic_id(&spec.target.topic));
                if !refused {
                    entry.machine.handle_topics(now, ids.0, ids.1);
                }
            });
        }
        for fetcher in self.fetchers.borrow().values() {
            fetcher.wake();
        }
        for lane in self.lanes.borrow().values() {
            lane.wake();
        }
    }
}
