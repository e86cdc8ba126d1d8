//! A source and a target cluster, and Towpath between them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use super::kafka::Cluster;
use super::program::{Outcome, Running, run, towpath, towpath_binary};

/// A copy of a few hundred megabytes on a busy machine.
const RUN_DEADLINE: Duration = Duration::from_secs(180);
/// SIGTERM has ten seconds by contract.
const STOP_DEADLINE: Duration = Duration::from_secs(12);

/// `A` and `B` of the configuration.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) source: Cluster,
    pub(crate) target: Cluster,
    dir: TempDir,
}

impl Pair {
    pub(crate) fn start(source: &str, target: &str) -> Self {
        Self::start_with(source, target, &[])
    }

    /// `config` are settings of the source's broker.
    pub(crate) fn start_with(source: &str, target: &str, config: &[&str]) -> Self {
        let (source, target) = std::thread::scope(|scope| {
            let source = scope.spawn(|| Cluster::start_with(source, 1, config));
            let target = Cluster::start(target, 1);
            (source.join().expect("the source starts"), target)
        });
        Self::of(source, target)
    }

    /// Between clusters that are started already.
    pub(crate) fn of(source: Cluster, target: Cluster) -> Self {
        Self { source, target, dir: tempfile::tempdir().expect("the system has room for a directory") }
    }

    /// The least of a configuration, then `lines`; the last of several equal keys counts.
    pub(crate) fn file(&self, lines: &[&str]) -> PathBuf {
        let mut text = format!(
            "clusters = A, B\nA.bootstrap.servers = {}\nB.bootstrap.servers = {}\nA->B.enabled = true\n\
             replication.factor = 1\nrefresh.topics.interval.seconds = 1\n\
             towpath.progress.interval.seconds = 1\ntowpath.state.dir = {}\n",
            self.source.bootstrap,
            self.target.bootstrap,
            self.state().display()
        );
        for line in lines {
            writeln!(text, "{line}").expect("text grows");
        }
        let path = self.dir.path().join("mm2.properties");
        std::fs::write(&path, text).expect("the directory is ours");
        path
    }

    /// Copies until caught up.
    pub(crate) fn copy(&self, lines: &[&str]) -> Outcome {
        let file = self.file(lines);
        towpath(["run".as_ref(), file.as_os_str(), "--until-caught-up".as_ref()]).wait(RUN_DEADLINE)
    }

    /// The same in a root directory that holds the binary, its file and nothing else. Needs a static binary.
    pub(crate) fn copy_from_an_empty_root(&self, lines: &[&str]) -> Outcome {
        let root = tempfile::tempdir().expect("the system has room for a directory");
        std::fs::copy(towpath_binary(), root.path().join("towpath")).expect("the binary can be copied");
        let lines = [lines, &["towpath.state.dir = /state"]].concat();
        std::fs::copy(self.file(&lines), root.path().join("mm2.properties")).expect("the directory is ours");
        let mut command = if rustix::process::geteuid().is_root() {
            Command::new("chroot")
        } else {
            let mut command = Command::new("unshare");
            command.args(["--user", "--map-root-user", "chroot"]);
            command
        };
        command.arg(root.path()).args(["/towpath", "run", "/mm2.properties", "--until-caught-up"]).env_clear();
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        run(command, RUN_DEADLINE)
    }

    /// Copies until stopped.
    pub(crate) fn follow(&self, lines: &[&str]) -> Running {
        towpath(["run".as_ref(), self.file(lines).as_os_str()])
    }

    /// `towpath resume` with these arguments behind the file.
    pub(crate) fn resume(&self, arguments: &[&str]) -> Outcome {
        let file = self.dir.path().join("mm2.properties");
        let arguments = arguments.iter().map(std::ffi::OsStr::new);
        towpath(["resume".as_ref(), file.as_os_str()].into_iter().chain(arguments)).wait(RUN_DEADLINE)
    }

    fn state(&self) -> PathBuf {
        Path::new(self.dir.path()).join("state")
    }
}

/// Ends a run in order, within the time promised for it.
pub(crate) fn stop(running: Running) -> Outcome {
    running.terminate();
    running.wait(STOP_DEADLINE)
}
