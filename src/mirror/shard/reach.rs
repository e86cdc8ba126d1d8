//! Brokers that do not answer, the partitions that wait for them, and how these learn how far they are behind.

use std::{collections::BTreeMap, rc::Rc, time::Duration};

use tokio::time::Instant;
use tracing::{info, warn};

use super::{Entry, Shard};
use crate::{
    mirror::{
        partition::PartitionState,
        reach::{Reach, Side},
        report::{CopyId, Report},
    },
    net::Connection,
    protocol::{BrokerId, TopicPartition},
};

impl Shard {
    /// What is known of a broker.
    pub(crate) fn reach(&self, side: Side, broker: BrokerId) -> Rc<Reach> {
        let wait = match side {
            Side::Source => self.fetch.max_wait,
            Side::Target => Duration::ZERO,
        };
        self.reaches.borrow_mut().entry((side, broker)).or_insert_with(|| Rc::new(Reach::new(wait))).clone()
    }

    /// Opens a connection to a broker, and remembers whether it could be. The second value is the link's round trip.
    pub(crate) async fn dial(&self, side: Side, broker: BrokerId) -> Result<(Connection, Duration), String> {
        let reach = self.reach(side, broker);
        let (snapshot, dialer) = match side {
            Side::Source => (self.source(), &self.source_dialer),
            Side::Target => (self.target(), &self.target_dialer),
        };
        let Some(endpoint) = snapshot.endpoint(broker).cloned() else {
            let why = format!("{side} broker {} is not part of the cluster just now", broker.0);
            reach.unknown(&why);
            return Err(why);
        };
        reach.asked(Instant::now());
        match dialer.dial(&endpoint.host, endpoint.port).await {
            Ok(open) => {
                reach.answered();
                self.gauges.connections.of(side).count();
                Ok(open)
            }
            Err(error) => {
                self.gauges.connections_failed.of(side).count();
                reach.refused(&error);
                Err(error.to_string())
            }
        }
    }

    /// Asks the control thread to learn the source's leaders anew.
    pub(crate) fn refresh_source(&self) {
        // Full means that such a request is on its way already.
        let _ = self.reports.try_send(Report::RefreshSource);
    }

    /// Asks the control thread to learn the target's leaders anew.
    pub(crate) fn refresh_target(&self) {
        let _ = self.reports.try_send(Report::RefreshTarget);
    }

    /// What to show of a partition, and whether that is the trouble of a broker that it waits for.
    pub(super) fn shown_state(&self, entry: &Entry, now: Instant) -> (PartitionState, bool) {
        let state = entry.machine.state();
        let told = matches!(
            state,
            PartitionState::Stopped(_) | PartitionState::Draining | PartitionState::AwaitingTarget { .. }
        );
        if told {
            return (state, false);
        }
        if let Some(why) =
            self.waits_for(entry, Side::Target).and_then(|broker| self.trouble(Side::Target, broker, now))
        {
            return (PartitionState::AwaitingTarget { why }, true);
        }
        match self.waits_for(entry, Side::Source).and_then(|broker| self.trouble(Side::Source, broker, now)) {
            Some(why) => (PartitionState::AwaitingSource { why }, true),
            None => (self.stuck_state(entry, state, now), false),
        }
    }

    fn trouble(&self, side: Side, broker: BrokerId, now: Instant) -> Option<String> {
        Some(self.reaches.borrow().get(&(side, broker))?.trouble(now)?.to_string())
    }

    /// The broker of one side that has to do something before this partition gets on.
    fn waits_for(&self, entry: &Entry, side: Side) -> Option<BrokerId> {
        match side {
            Side::Target => entry.lane.as_ref().filter(|_| entry.machine.needs_target()).map(|lane| lane.key.broker),
            Side::Source => {
                let fetches = entry.told.0.is_some() || entry.machine.needs_source();
                entry.fetcher.as_ref().filter(|_| fetches).map(|fetcher| fetcher.broker)
            }
        }
    }

    /// Says once for each broker that it does not answer, or does again, and has its partitions told anew.
    pub(super) fn note_reaches(&self, now: Instant) {
        let turned: Vec<_> = self
            .reaches
            .borrow()
            .iter()
            .filter_map(|(key, reach)| reach.turned(now).map(|(before, after)| (*key, before, after)))
            .collect();
        for ((side, broker), before, after) in turned {
            let mut waiting = 0_usize;
            let mut entries = self.entries.borrow_mut();
            for (copy, entry) in entries.iter_mut() {
                let here = match side {
                    Side::Source => entry.fetcher.as_ref().is_some_and(|fetcher| fetcher.broker == broker),
                    Side::Target => entry.lane.as_ref().is_some_and(|lane| lane.key.broker == broker),
                };
                if !here {
                    continue;
                }
                waiting += usize::from(self.waits_for(entry, side).is_some());
                entry.change_listed = true;
                self.changed.borrow_mut().insert(*copy);
            }
            let broker_id = broker.0;
            // Brokers of both clusters may have the same number.
            let (waits, answers) = match side {
                Side::Source => ("partitions wait for a source broker", "a source broker answers again"),
                Side::Target => ("partitions wait for a target broker", "a target broker answers again"),
            };
            match (before, after) {
                (None, Some(why)) if self.may_say(waits, broker_id) => {
                    warn!(cluster = %side, broker_id, waiting, %why, "partitions wait for a broker")
                }
                (Some(_), None) if self.may_say(answers, broker_id) => {
                    info!(cluster = %side, broker_id, "the broker answers again")
                }
                _ => {}
            }
        }
    }

    /// Partitions that do not fetch, so that nothing tells them where their source ends, by its leader.
    pub(crate) fn blind(&self) -> BTreeMap<BrokerId, Vec<(CopyId, TopicPartition)>> {
        let mut blind: BTreeMap<BrokerId, Vec<_>> = BTreeMap::new();
        for (copy, entry) in self.entries.borrow().iter() {
            if let Some(fetcher) = &entry.fetcher
                && entry.told.0.is_none()
                && entry.machine.is_behind_unseen()
            {
                blind.entry(fetcher.broker).or_default().push((*copy, entry.machine.spec().source.clone()));
            }
        }
        blind
    }
}
