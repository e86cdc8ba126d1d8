//! The mirror as a process of its own: this same program with `run`, so that a hard stop is one.

use std::{
    fs, io,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};

use crate::os_error::Reason;

/// A stop in order takes far less.
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// Of what it said, the last bytes are shown when something went wrong.
const TAIL_BYTES: u64 = 4096;

/// Why there is no mirror.
#[derive(Debug, thiserror::Error)]
pub(super) enum MirrorError {
    #[error("no directory for the mirror's files under {}: {}; set TMPDIR to one that can be written", place.display(), Reason(error))]
    Directory { place: PathBuf, error: io::Error },
    #[error("the mirror cannot be started: {}", Reason(.0))]
    Start(io::Error),
    #[error("the mirror ended by itself; what it said last:\n{0}")]
    Ended(String),
}

/// What both runs used.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Usage {
    pub(super) cpu: Duration,
    pub(super) peak_bytes: u64,
}

/// The directory with the mirror's files, and the process while there is one.
pub(super) struct MirrorProcess {
    directory: PathBuf,
    file: String,
    child: Option<Child>,
    usage: Option<Usage>,
}

impl MirrorProcess {
    /// Writes the file for a flow from `east` to `west`.
    ///
    /// # Errors
    /// If there is no place for it.
    pub(super) fn prepare(east: &str, west: &str) -> Result<Self, MirrorError> {
        let place = std::env::temp_dir();
        let directory = place.join(format!("towpath-demo-{}", std::process::id()));
        let failed = |error| MirrorError::Directory { place: place.clone(), error };
        // Must be ours alone: a directory of this name that is there already is somebody else's.
        fs::create_dir(&directory).map_err(failed)?;
        let file = format!(
            "clusters = east, west\n\
             east.bootstrap.servers = {east}\n\
             west.bootstrap.servers = {west}\n\
             east->west.enabled = true\n\
             topics = orders\n\
             replication.factor = 1\n"
        );
        let prepared = Self { directory, file, child: None, usage: None };
        let whole = format!(
            "{}towpath.http.listen = off\ntowpath.state.dir = {}\n",
            prepared.file,
            prepared.directory.join("state").display()
        );
        fs::write(prepared.properties(), whole).map_err(failed)?;
        Ok(prepared)
    }

    /// The file as a person would write it.
    pub(super) fn file(&self) -> &str {
        &self.file
    }

    pub(super) fn start(&mut self) -> Result<(), MirrorError> {
        let started = || {
            let log = fs::OpenOptions::new().create(true).append(true).open(self.log())?;
            Command::new(std::env::current_exe()?)
                .arg("run")
                .arg(self.properties())
                .args(["--no-screen", "--while-stdin-open"])
                .env_remove("TOWPATH_LOG")
                // Closed by the system when this process ends, however it ends.
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(log)
                .spawn()
        };
        self.child = Some(started().map_err(MirrorError::Start)?);
        Ok(())
    }

    /// # Errors
    /// If it has ended although nobody stopped it.
    pub(super) fn check(&mut self) -> Result<(), MirrorError> {
        match self.child.as_mut().map(Child::try_wait) {
            Some(Ok(None)) => Ok(()),
            _ => Err(MirrorError::Ended(self.said())),
        }
    }

    /// kill -9.
    ///
    /// # Errors
    /// If it had ended before.
    pub(super) fn kill(&mut self) -> Result<(), MirrorError> {
        self.check()?;
        self.measure();
        if let Some(mut child) = self.child.take() {
            child.kill().and_then(|()| child.wait()).map_err(MirrorError::Start)?;
        }
        Ok(())
    }

    /// SIGTERM, and kill -9 if that does not help in time.
    pub(super) async fn stop(&mut self) {
        let Some(child) = self.child.as_mut() else { return };
        if let Ok(id) = i32::try_from(child.id())
            && let Some(pid) = Pid::from_raw(id)
        {
            // It may have ended meanwhile; it was not waited for, so the id is still its own.
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + STOP_PATIENCE;
        while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Processor time and memory of both runs; `None` where the system does not tell.
    pub(super) fn usage(&mut self) -> Option<Usage> {
        self.measure();
        self.usage
    }

    /// Adds what the running process has used so far. Called once for each run.
    fn measure(&mut self) {
        let Some(child) = &self.child else { return };
        let process = Path::new("/proc").join(child.id().to_string());
        let Some(used) = used(&process) else { return };
        let so_far = self.usage.get_or_insert_default();
        so_far.cpu += used.cpu;
        so_far.peak_bytes = so_far.peak_bytes.max(used.peak_bytes);
    }

    /// The end of its log.
    pub(super) fn said(&self) -> String {
        let mut text = Vec::new();
        if let Ok(mut file) = fs::File::open(self.log()) {
            let length = file.metadata().map_or(0, |metadata| metadata.len());
            let _ = file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)));
            let _ = file.take(TAIL_BYTES).read_to_end(&mut text);
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    fn properties(&self) -> PathBuf {
        self.directory.join("mm2.properties")
    }

    fn log(&self) -> PathBuf {
        self.directory.join("towpath.log")
    }
}

impl Drop for MirrorProcess {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // Fails only when it has ended.
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// From `stat` and `status` of a process (proc(5)).
fn used(process: &Path) -> Option<Usage> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    // Behind the name, which may contain anything: user and system time are the 12th and 13th field from there.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    let status = fs::read_to_string(process.join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    let per_second = rustix::param::clock_ticks_per_second();
    Some(Usage { cpu: Duration::from_millis(ticks * 1000 / per_second.max(1)), peak_bytes: kilobytes * 1024 })
}
