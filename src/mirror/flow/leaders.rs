//! Keeps the leaders of a cluster's topics known: asked when partitions ask, when they are old, and for as long as some
//! partition has none.
//!
//! A task of its own per cluster, so that a broker that does not answer holds up neither the flow nor the other cluster.
//! What it learns reaches the shards through the cluster's snapshots.

use std::{cell::RefCell, collections::BTreeSet, rc::Rc, time::Duration};

use tokio::{sync::Notify, time::sleep};
use tracing::debug;

use crate::{
    backoff::{self, Backoff},
    client::{Cluster, ClusterSnapshot},
    protocol::TopicName,
};

/// Leaders are not learnt anew more often than this, however many partitions ask.
const PAUSE: Duration = Duration::from_millis(100);
/// Nobody asks about a partition without a leader, for it can be asked of nobody; it is looked for this often at least.
const LEADERLESS_PAUSE_MAX: Duration = Duration::from_secs(2);

/// What is asked for. Cheap to clone.
#[derive(Clone, Default)]
pub(super) struct Leaders(Rc<Asked>);

#[derive(Default)]
struct Asked {
    topics: RefCell<BTreeSet<TopicName>>,
    notify: Notify,
}

impl Leaders {
    /// The topics that matter from now on.
    pub(super) fn set_topics(&self, topics: BTreeSet<TopicName>) {
        self.0.topics.replace(topics);
    }

    /// Learns the leaders soon; asking again before they are learnt changes nothing.
    pub(super) fn ask(&self) {
        self.0.notify.notify_one();
    }

    /// Learns leaders until it is dropped.
    pub(super) async fn learn(self, cluster: Cluster, max_age: Duration) {
        let mut backoff = Backoff::new(PAUSE, LEADERLESS_PAUSE_MAX, backoff::entropy());
        let mut wait = max_age;
        loop {
            tokio::select! {
                biased;
                () = self.0.notify.notified() => sleep(PAUSE).await,
                () = sleep(wait) => {}
            }
            let topics = self.0.topics.borrow().clone();
            if topics.is_empty() {
                continue;
            }
            wait = match cluster.refresh(&topics).await {
                Ok(snapshot) if all_led(&snapshot, &topics) => {
                    backoff.reset();
                    max_age
                }
                Ok(_) => backoff.next_delay(),
                Err(error) => {
                    debug!(cluster = %cluster.alias(), %error, "leaders could not be learnt");
                    backoff.next_delay()
                }
            };
        }
    }
}

/// Whether every partition has a leader whose address is known. Topics that are gone have no partitions.
fn all_led(snapshot: &ClusterSnapshot, topics: &BTreeSet<TopicName>) -> bool {
    topics.iter().filter_map(|topic| snapshot.topics.get(topic)).all(|info| {
        let led = |leader| snapshot.endpoint(leader).is_some();
        info.partitions.iter().all(|partition| partition.leader.is_some_and(led))
    }) && !topics.iter().any(|topic| snapshot.refused.contains_key(topic))
}
