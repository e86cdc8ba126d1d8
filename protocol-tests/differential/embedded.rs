//! The embedded broker on a thread of its own, because scenarios block.

use std::sync::mpsc as blocking;
use std::thread::JoinHandle;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc;
use towpath::testkit::BrokerVersion;
use towpath::testkit::engine::ClusterSettings;
use towpath::testkit::server::EmbeddedCluster;

use super::run::{Broker, Version};

/// What to do, and where to say that it is done; the thread ends with the channel.
type Command = (Act, blocking::Sender<()>);

enum Act {
    Restart,
    Clean(String),
}

pub(super) struct EmbeddedBroker {
    address: String,
    commands: Option<mpsc::UnboundedSender<Command>>,
    thread: Option<JoinHandle<()>>,
}

impl EmbeddedBroker {
    pub(super) fn start(version: Version, settings: &[&str]) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is right");
        let wall_ms = i64::try_from(since.as_millis()).expect("64 bits");
        let mut cluster = ClusterSettings::new("differential", wall_ms).with_version(match version {
            Version::V4_3_1 => BrokerVersion::V4_3_1,
            Version::V3_9_2 => BrokerVersion::V3_9_2,
            Version::V2_8_2 => BrokerVersion::V2_8_2,
        });
        for setting in settings {
            let (name, value) = setting.split_once('=').expect("settings are name=value");
            cluster = cluster.with_config(name, value);
        }
        let (commands, mut asked) = mpsc::unbounded_channel::<Command>();
        let (started, address) = blocking::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            tokio::task::LocalSet::new().block_on(&runtime, async move {
                let cluster = EmbeddedCluster::start(cluster).await.expect("loopback has free ports");
                started.send(cluster.bootstrap_servers()).expect("the test waits for it");
                while let Some((act, done)) = asked.recv().await {
                    match act {
                        Act::Restart => {
                            cluster.stop_node(1);
                            cluster.start_node(1).await.expect("the port is free again");
                        }
                        Act::Clean(topic) => {
                            cluster.with(|cluster, now| cluster.compact(now, &topic, 0));
                        }
                    }
                    done.send(()).expect("the test waits for it");
                }
            });
        });
        let address = address.recv().expect("the cluster starts");
        Self { address, commands: Some(commands), thread: Some(thread) }
    }

    fn act(&self, act: Act) {
        let (done, wait) = blocking::channel();
        self.commands.as_ref().expect("still running").send((act, done)).expect("still running");
        wait.recv().expect("it is done");
    }
}

impl Broker for EmbeddedBroker {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn restart(&mut self) {
        self.act(Act::Restart);
    }

    fn clean(&mut self, topic: &str) {
        self.act(Act::Clean(topic.to_owned()));
    }
}

impl Drop for EmbeddedBroker {
    fn drop(&mut self) {
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            // A panic of its own has been printed already.
            let _ended = thread.join();
        }
    }
}
