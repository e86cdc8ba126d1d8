//! Real clusters and the tools that fill and compare topics: a thin layer over the scripts in `dev/`.
//!
//! Each call has a deadline and panics with the tool's output when it fails. A [`Cluster`] stops when it is dropped;
//! when the test process itself is killed, the next `dev/kafka start` removes what it left.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::program::{Outcome, Running, run};

const START_DEADLINE: Duration = Duration::from_secs(400);
const TOOL_DEADLINE: Duration = Duration::from_secs(300);

/// A real cluster of one Kafka version.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) name: String,
    /// All brokers' addresses, separated by commas.
    pub(crate) bootstrap: String,
    pub(crate) brokers: Vec<Broker>,
}

#[derive(Debug)]
pub(crate) struct Broker {
    pub(crate) id: i32,
    pub(crate) port: u16,
    /// As started; another one after [`Cluster::start_broker`].
    pub(crate) pid: i32,
    pub(crate) log: PathBuf,
    pub(crate) data: PathBuf,
}

/// What a consumer that is not ours read: equal digests mean equal records in equal order, offsets apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Digest {
    pub(crate) records: u64,
    pub(crate) partitions: Vec<PartitionDigest>,
    /// The first record whose running number is not the expected one.
    pub(crate) violation: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartitionDigest {
    pub(crate) partition: i32,
    pub(crate) records: u64,
    pub(crate) sha256: String,
}

/// What `dev/segments` found equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EqualBatches {
    pub(crate) batches: u64,
    pub(crate) bytes: u64,
}

impl Cluster {
    pub(crate) fn start(version: &str, brokers: usize) -> Self {
        Self::start_with(version, brokers, &[])
    }

    /// `config` are broker settings as `key=value`; `{id}` and `{port}` stand for the broker's.
    pub(crate) fn start_with(version: &str, brokers: usize, config: &[&str]) -> Self {
        let (brokers, owner) = (brokers.to_string(), std::process::id().to_string());
        let mut command = dev("kafka");
        command.args(["start", "--version", version, "--brokers", &brokers, "--owner", &owner]);
        if !config.is_empty() {
            command.arg("--config").args(config);
        }
        let started = json(&run(command, START_DEADLINE).expect_success().stdout);
        Self {
            name: text(&started["name"]),
            bootstrap: text(&started["bootstrap"]),
            brokers: list(&started["brokers"], |broker| Broker {
                id: i32::try_from(number(&broker["id"])).expect("broker ids are small"),
                port: u16::try_from(number(&broker["port"])).expect("a port has 16 bits"),
                pid: i32::try_from(number(&broker["pid"])).expect("process ids are small"),
                log: text(&broker["log"]).into(),
                data: text(&broker["data"]).into(),
            }),
        }
    }

    /// SIGTERM: the broker hands its leaderships over first.
    pub(crate) fn stop_broker(&self, id: i32) {
        self.kafka(&["stop-broker", &self.name, &id.to_string()]);
    }

    pub(crate) fn kill_broker(&self, id: i32) {
        self.kafka(&["stop-broker", &self.name, &id.to_string(), "--kill"]);
    }

    /// Same ports and data again; returns once the broker answers.
    pub(crate) fn start_broker(&self, id: i32) {
        self.kafka(&["start-broker", &self.name, &id.to_string()]);
    }

    /// The process of a broker that runs, also after restarts.
    pub(crate) fn pid(&self, id: i32) -> i32 {
        let described = json(&self.kafka(&["describe", &self.name]));
        let mut brokers = described["brokers"].as_array().expect("a list").iter();
        let broker = brokers.find(|broker| broker["id"] == id);
        i32::try_from(number(&broker.expect("a broker of the cluster")["pid"])).expect("process ids are small")
    }

    /// `config` are topic settings as `key=value`.
    pub(crate) fn create_topic(&self, topic: &str, partitions: i32, config: &[&str]) {
        let partitions = partitions.to_string();
        let mut arguments = vec!["topic", &self.name, "create", topic, "--partitions", &partitions];
        if !config.is_empty() {
            arguments.push("--config");
            arguments.extend_from_slice(config);
        }
        self.kafka(&arguments);
    }

    /// As [`Self::create_topic`], with as many replicas as asked for instead of the cluster's default.
    pub(crate) fn create_replicated(&self, topic: &str, partitions: i32, replicas: i32) {
        let (partitions, replicas) = (partitions.to_string(), replicas.to_string());
        self.kafka(&[
            "topic",
            &self.name,
            "create",
            topic,
            "--partitions",
            &partitions,
            "--replication-factor",
            &replicas,
        ]);
    }

    /// Leader and replicas of a topic's only partition.
    pub(crate) fn placed(&self, topic: &str) -> (i32, Vec<i32>) {
        let described = json(&self.kafka(&["topic", &self.name, "describe", topic]));
        let partition = &described[topic]["partitions"]["0"];
        let id = |value: &Value| value.as_i64().and_then(|id| i32::try_from(id).ok()).expect("broker ids are small");
        (id(&partition["leader"]), list(&partition["replicas"], id))
    }

    pub(crate) fn grow_topic(&self, topic: &str, partitions: i32) {
        self.kafka(&["topic", &self.name, "grow", topic, "--partitions", &partitions.to_string()]);
    }

    pub(crate) fn delete_topic(&self, topic: &str) {
        self.kafka(&["topic", &self.name, "delete", topic]);
    }

    /// First offset and end of a topic's only partition; zeros while there is none.
    pub(crate) fn ends(&self, topic: &str) -> (u64, u64) {
        let or_zero = |offset: &Value| offset.as_u64().unwrap_or(0);
        match json(&self.kafka(&["records", &self.name, topic, "0"])).as_array().map(Vec::as_slice) {
            Some([start, end]) => (or_zero(start), or_zero(end)),
            other => panic!("two offsets expected, not {other:?}"),
        }
    }

    /// DeleteRecords on a topic's only partition.
    pub(crate) fn delete_records(&self, topic: &str, before: u64) {
        self.kafka(&["records", &self.name, topic, "0", "--delete-before", &before.to_string()]);
    }

    /// Stops the only broker, does something to its files, and starts it again.
    pub(crate) fn with_files(&self, change: impl FnOnce(&Path)) {
        let broker = self.brokers.first().expect("there is one");
        self.stop_broker(broker.id);
        change(&broker.data);
        self.start_broker(broker.id);
    }

    pub(crate) fn topics(&self) -> Vec<String> {
        self.kafka(&["topic", &self.name, "list"]).lines().map(str::to_owned).collect()
    }

    /// By partition of a topic, what a group has committed and where the log ends.
    pub(crate) fn committed(&self, group: &str, topic: &str) -> Vec<(u64, u64)> {
        let printed = json(&self.java("Committed", &[group, topic]));
        list(&printed["partitions"], |one| (number(&one["committed"]), number(&one["end"])))
    }

    /// Starts a load that goes on until it is dropped, at `rate` records a second; `options` as in
    /// `dev/java/Load.java`. What it wrote is gapless, also when it is killed.
    pub(crate) fn keep_loading(&self, topic: &str, partitions: i32, rate: u32, options: &[&str]) -> Running {
        let mut command = dev("kafka");
        command.args(["java", "Load", &self.bootstrap, topic, "1000000000", "--rate", &rate.to_string()]);
        command.args(["--partitions", &partitions.to_string()]).args(options);
        Running::spawn(command)
    }

    /// Records with running numbers; `options` as in `dev/java/Load.java`.
    pub(crate) fn load(&self, topic: &str, records: u64, options: &[&str]) {
        self.java("Load", &[&[topic, &records.to_string()], options].concat());
    }

    /// A tool of `dev/java` against this cluster; the bootstrap address is put in front of `arguments`.
    pub(crate) fn java(&self, tool: &str, arguments: &[&str]) -> String {
        java(tool, &[&[self.bootstrap.as_str()], arguments].concat()).expect_success().stdout
    }

    /// What a read-committed consumer sees now.
    pub(crate) fn digest(&self, topic: &str) -> Digest {
        self.digest_with(topic, &[])
    }

    /// Also checks the numbering that [`Self::load`] wrote.
    pub(crate) fn digest_numbered(&self, topic: &str) -> Digest {
        self.digest_with(topic, &["--numbered"])
    }

    /// `options` as in `dev/java/Digest.java`; a violation is part of the result, everything else panics.
    pub(crate) fn digest_with(&self, topic: &str, options: &[&str]) -> Digest {
        let outcome = java("Digest", &[&[self.bootstrap.as_str(), topic], options].concat());
        assert!(matches!(outcome.code, Some(0 | 3)), "the digest of {topic} failed: {outcome}");
        Digest::parse(&outcome.stdout)
    }

    /// The same by kcat, which keeps header keys that are not UTF-8. Not comparable with [`Self::digest`].
    pub(crate) fn digest_kcat(&self, topic: &str) -> Digest {
        let mut command = dev("digest-kcat");
        command.args([&self.name, topic]);
        Digest::parse(&run(command, TOOL_DEADLINE).expect_success().stdout)
    }

    /// Compares the segment files of two topics; `options` as in `dev/segments`. The error is the first difference.
    pub(crate) fn segments(
        &self,
        topic: &str,
        target: &Self,
        target_topic: &str,
        options: &[&str],
    ) -> Result<EqualBatches, String> {
        let mut command = dev("segments");
        command.args([&self.name, topic, &target.name, target_topic]).args(options);
        let outcome = run(command, TOOL_DEADLINE);
        if outcome.code != Some(0) {
            return Err(outcome.stderr);
        }
        let found = json(&outcome.stdout);
        Ok(EqualBatches { batches: number(&found["batches"]), bytes: number(&found["bytes"]) })
    }

    /// Records that no client library would write, three partitions of them; 120 in all.
    pub(crate) fn odd_records(&self, topic: &str) {
        let mut command = dev("odd-records");
        command.args([&self.name, topic]);
        run(command, TOOL_DEADLINE).expect_success();
    }

    /// Changes a setting of a topic, `key=value`, by Kafka's own tool.
    pub(crate) fn alter_topic(&self, topic: &str, setting: &str) {
        let at = ["run", &self.name, "kafka.admin.ConfigCommand", "--bootstrap-server", &self.bootstrap];
        let what = ["--entity-type", "topics", "--entity-name", topic, "--alter", "--add-config", setting];
        self.kafka(&[at.as_slice(), &what].concat());
    }

    /// Whether compaction has taken records out of a batch.
    pub(crate) fn is_thinned(&self, topic: &str) -> bool {
        let mut command = dev("segments");
        command.args(["list", &self.name, topic]);
        let listed = run(command, TOOL_DEADLINE).expect_success().stdout;
        listed.lines().any(|line| {
            let columns: Vec<i64> = line.split('\t').take(4).map(|word| word.parse().unwrap_or(-1)).collect();
            matches!(columns[..], [_, base, last, count] if count < last - base + 1)
        })
    }

    fn kafka(&self, arguments: &[&str]) -> String {
        let mut command = dev("kafka");
        command.args(arguments);
        run(command, TOOL_DEADLINE).expect_success().stdout
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let mut command = dev("kafka");
        command.args(["stop", &self.name]);
        // A panic during a panic would hide the first one.
        let outcome = run(command, TOOL_DEADLINE);
        if outcome.code != Some(0) && !std::thread::panicking() {
            panic!("cluster {} could not be stopped: {outcome}", self.name);
        }
    }
}

impl Digest {
    fn parse(printed: &str) -> Self {
        let value = json(printed);
        Self {
            records: number(&value["records"]),
            violation: value["violation"].as_str().map(str::to_owned),
            partitions: list(&value["partitions"], |one| PartitionDigest {
                partition: i32::try_from(number(&one["partition"])).expect("partition numbers are small"),
                records: number(&one["records"]),
                sha256: text(&one["sha256"]),
            }),
        }
    }

    /// What `dev/java/Txn.java` printed: the records that a read-committed consumer must see.
    pub(crate) fn expected(printed: &str) -> Self {
        Self::parse(printed)
    }
}

/// One of the programs in `dev/java`, which are compiled on first use.
pub(crate) fn java(tool: &str, arguments: &[&str]) -> Outcome {
    let mut command = dev("kafka");
    command.args(["java", tool]).args(arguments);
    run(command, TOOL_DEADLINE)
}

fn dev(script: &str) -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("dev").join(script))
}

fn json(printed: &str) -> Value {
    serde_json::from_str(printed).unwrap_or_else(|error| panic!("no JSON ({error}): {printed}"))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("text expected, not {value}")).to_owned()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("number expected, not {value}"))
}

fn list<T>(value: &Value, item: impl Fn(&Value) -> T) -> Vec<T> {
    value.as_array().unwrap_or_else(|| panic!("array expected, not {value}")).iter().map(item).collect()
}
