//! What the tests of this folder share: a mirror's files, logs watched from outside, random moments, the comparison.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::real::kafka::Cluster;
use crate::real::program::{Running, towpath_binary};

pub(super) const LOOK: Duration = Duration::from_millis(20);

/// The configuration of one flow `A->B` and the state directories of its workers.
pub(super) struct Mirror {
    folder: TempDir,
    flow: String,
}

impl Mirror {
    /// `settings` are further lines of the file.
    pub(super) fn new(source: &str, target: &str, settings: &[&str]) -> Self {
        let flow = format!(
            "clusters = A, B\nA.bootstrap.servers = {source}\nB.bootstrap.servers = {target}\nA->B.enabled = true\n\
             replication.factor = -1\ntowpath.progress.interval.seconds = 2\n{}\n",
            settings.join("\n")
        );
        Self { folder: tempfile::tempdir().expect("a temporary folder"), flow }
    }

    pub(super) fn state(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A worker with the state directory of that name.
    pub(super) fn start(&self, state: &str) -> Running {
        self.start_with(state, &[])
    }

    /// `arguments` follow the file's name.
    pub(super) fn start_with(&self, state: &str, arguments: &[&str]) -> Running {
        let file = self.folder.path().join(format!("{state}.properties"));
        let text = format!("{}towpath.state.dir = {}\n", self.flow, self.state(state).display());
        fs::write(&file, text).expect("the folder is ours");
        let mut command = Command::new(towpath_binary());
        command.arg("run").arg(&file).args(arguments);
        Running::spawn(command)
    }
}

/// The logs of a topic as the brokers' files show them.
pub(super) struct Logs {
    folders: Vec<PathBuf>,
    topic: String,
}

impl Logs {
    pub(super) fn of(cluster: &Cluster, topic: &str) -> Self {
        Self { folders: cluster.brokers.iter().map(|broker| broker.data.clone()).collect(), topic: topic.into() }
    }

    /// Bytes of each partition: those of the replica that has most.
    pub(super) fn sizes(&self) -> BTreeMap<i32, u64> {
        let mut sizes = BTreeMap::new();
        for folder in &self.folders {
            for (partition, bytes) in replicas_in(folder, &self.topic) {
                let most = sizes.entry(partition).or_insert(0);
                *most = bytes.max(*most);
            }
        }
        sizes
    }

    pub(super) fn bytes(&self) -> u64 {
        self.sizes().values().sum()
    }

    /// The partitions that a broker holds. With one replica these are those it leads.
    pub(super) fn on(cluster: &Cluster, broker: i32, topic: &str) -> BTreeSet<i32> {
        let broker = cluster.brokers.iter().find(|one| one.id == broker).expect("a broker of the cluster");
        replicas_in(&broker.data, topic).into_keys().collect()
    }
}

fn replicas_in(folder: &Path, topic: &str) -> BTreeMap<i32, u64> {
    let mut sizes = BTreeMap::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let number = name.strip_prefix(topic).and_then(|rest| rest.strip_prefix('-')).map(str::parse);
        let Some(Ok(partition)) = number else { continue };
        let files = fs::read_dir(entry.path()).into_iter().flatten().flatten();
        let logs = files.filter(|file| file.path().extension().is_some_and(|extension| extension == "log"));
        sizes.insert(partition, logs.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum());
    }
    sizes
}

/// Waits for `condition`; panics when it does not come true in time.
pub(super) fn wait_for(what: &str, deadline: Duration, mut condition: impl FnMut() -> bool) -> Duration {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < deadline, "{what}: not within {deadline:?}");
        std::thread::sleep(LOOK / 4);
    }
    began.elapsed()
}

/// Waits until every partition of these logs has grown.
pub(super) fn wait_for_growth(logs: &Logs, deadline: Duration) -> Duration {
    let before = logs.sizes();
    let began = Instant::now();
    loop {
        let now = logs.sizes();
        let grown = |(partition, bytes): (&i32, &u64)| before.get(partition).unwrap_or(&0) < bytes;
        if !now.is_empty() && now.iter().all(grown) {
            return began.elapsed();
        }
        let topic = &logs.topic;
        assert!(began.elapsed() < deadline, "{topic} does not grow everywhere: from {before:?} to {now:?}");
        std::thread::sleep(LOOK / 4);
    }
}

/// Watches logs from now on: how long each partition stood still at most.
pub(super) struct Pauses<'a> {
    logs: &'a Logs,
    seen: BTreeMap<i32, (u64, Instant, Duration)>,
}

impl<'a> Pauses<'a> {
    pub(super) fn new(logs: &'a Logs) -> Self {
        let now = Instant::now();
        let seen = logs.sizes().into_iter().map(|(partition, bytes)| (partition, (bytes, now, Duration::ZERO)));
        Self { logs, seen: seen.collect() }
    }

    pub(super) fn look(&mut self) {
        let now = Instant::now();
        for (partition, bytes) in self.logs.sizes() {
            let (before, since, longest) = self.seen.entry(partition).or_insert((bytes, now, Duration::ZERO));
            *longest = now.duration_since(*since).max(*longest);
            if bytes != *before {
                (*before, *since) = (bytes, now);
            }
        }
    }

    /// By partition, up to the last look.
    pub(super) fn longest(&self) -> BTreeMap<i32, Duration> {
        self.seen.iter().map(|(partition, (_, _, longest))| (*partition, *longest)).collect()
    }
}

pub(super) fn watch<'a>(logs: &[&'a Logs], time: Duration) -> Vec<Pauses<'a>> {
    let mut pauses: Vec<_> = logs.iter().map(|logs| Pauses::new(logs)).collect();
    let end = Instant::now() + time;
    while Instant::now() < end {
        std::thread::sleep(LOOK);
        pauses.iter_mut().for_each(Pauses::look);
    }
    pauses
}

/// Bytes of memory that the process had resident at most.
pub(super) fn peak(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("Linux says so");
    let kilobytes: u64 = line.split_whitespace().nth(1).and_then(|value| value.parse().ok()).expect("a number of kB");
    kilobytes << 10
}

/// A broker suspended until this is dropped, also by a test that fails: nothing could stop it otherwise.
pub(super) struct Frozen(rustix::process::Pid);

impl Frozen {
    pub(super) fn new(pid: i32) -> Self {
        let pid = rustix::process::Pid::from_raw(pid).expect("a process id");
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).expect("it runs");
        Self(pid)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // Fails only when it is gone already.
        let _ = rustix::process::kill_process(self.0, rustix::process::Signal::CONT);
    }
}

/// The comparison: each source record once, in order, as an independent consumer sees it. The load has ended.
pub(super) fn assert_copied(source: &Cluster, target: &Cluster, topic: &str) {
    let wanted = source.digest_numbered(topic);
    assert_eq!(wanted.violation, None, "the load itself has gaps");
    assert!(wanted.records > 0, "nothing was loaded");
    let expect = wanted.records.to_string();
    let options = ["--numbered", "--expect", &expect, "--timeout", "90"];
    let found = target.digest_with(&format!("A.{topic}"), &options);
    assert_eq!(found, wanted, "{topic} differs");
    println!("{topic}: {} records, once and in order", found.records);
}

/// Random moments that can be had again: set `TOWPATH_SEED` to the number printed.
pub(super) struct Moments(u64);

impl Moments {
    pub(super) fn new() -> Self {
        let random = || std::hash::BuildHasher::hash_one(&std::collections::hash_map::RandomState::new(), 0_u8);
        let seed = std::env::var("TOWPATH_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(random);
        println!("TOWPATH_SEED={seed}");
        Self(seed)
    }

    /// Those of another thread.
    pub(super) fn from(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        // splitmix64 (Steele, Lea, Flood 2014).
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % end
    }

    pub(super) fn between(&mut self, from_ms: u64, to_ms: u64) -> Duration {
        Duration::from_millis(from_ms + self.below(to_ms - from_ms))
    }
}
