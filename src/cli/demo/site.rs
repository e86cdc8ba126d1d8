//! An embedded cluster with a thread of its own, so that it answers whatever the rest of the demo is doing.

use std::{io, thread};

use tokio::{
    runtime,
    sync::{mpsc, oneshot},
    task::LocalSet,
};

use crate::{
    testkit::{
        engine::{ClusterSettings, PartitionView},
        server::EmbeddedCluster,
    },
    wall_clock,
};

/// A running cluster of one broker; it ends when this is dropped.
pub(super) struct Site {
    address: String,
    orders: mpsc::UnboundedSender<Order>,
}

/// What is asked of the thread. Unbounded in form only: each is awaited before the next.
enum Order {
    CreateTopic { name: &'static str, partitions: usize, done: oneshot::Sender<()> },
    Ends { topic: &'static str, answer: oneshot::Sender<u64> },
    Contents { topic: &'static str, answer: oneshot::Sender<Vec<PartitionView>> },
}

impl Site {
    /// Starts a cluster of this name.
    ///
    /// # Errors
    /// If there is no thread or no port for it.
    pub(super) async fn start(name: &'static str) -> io::Result<Self> {
        let (orders, incoming) = mpsc::unbounded_channel();
        let (started, address) = oneshot::channel();
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            LocalSet::new().block_on(&runtime, serve(name, started, incoming));
        })?;
        let address = address.await.map_err(|_| io::Error::other("the cluster's thread broke off"))??;
        Ok(Self { address, orders })
    }

    /// `host:port`.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    pub(super) async fn create_topic(&self, name: &'static str, partitions: usize) {
        self.ask(|done| Order::CreateTopic { name, partitions, done }).await;
    }

    /// Records that consumers can read; 0 if there is no such topic.
    pub(super) async fn records(&self, topic: &'static str) -> u64 {
        self.ask(|answer| Order::Ends { topic, answer }).await
    }

    /// Everything stored; nothing if there is no such topic.
    pub(super) async fn contents(&self, topic: &'static str) -> Vec<PartitionView> {
        self.ask(|answer| Order::Contents { topic, answer }).await
    }

    async fn ask<T: Default>(&self, order: impl FnOnce(oneshot::Sender<T>) -> Order) -> T {
        let (sender, answer) = oneshot::channel();
        // The thread ends only after this is dropped.
        let _ = self.orders.send(order(sender));
        answer.await.unwrap_or_default()
    }
}

async fn serve(
    name: &'static str,
    started: oneshot::Sender<io::Result<String>>,
    mut orders: mpsc::UnboundedReceiver<Order>,
) {
    let settings = ClusterSettings::new(name, wall_clock::now_ms())
        // A real cluster waits three seconds for further members of a new group; here there are none.
        .with_config("group.initial.rebalance.delay.ms", "0");
    let cluster = match EmbeddedCluster::start(settings).await {
        Ok(cluster) => cluster,
        Err(error) => {
            let _ = started.send(Err(error));
            return;
        }
    };
    let _ = started.send(Ok(cluster.bootstrap_servers()));
    while let Some(order) = orders.recv().await {
        match order {
            Order::CreateTopic { name, partitions, done } => {
                // Its name is valid, and it is the first.
                let _ = cluster.with(|cluster, _| cluster.create_topic(name, partitions, 1, &[]));
                let _ = done.send(());
            }
            Order::Ends { topic, answer } => {
                let view = cluster.with(|cluster, _| cluster.topic(topic));
                let ends = view.iter().flat_map(|view| &view.partitions).map(|one| one.high_watermark);
                let _ = answer.send(ends.map(|end| u64::try_from(end).unwrap_or(0)).sum());
            }
            Order::Contents { topic, answer } => {
                let view = cluster.with(|cluster, _| cluster.topic(topic));
                let _ = answer.send(view.map(|view| view.partitions).unwrap_or_default());
            }
        }
    }
}
