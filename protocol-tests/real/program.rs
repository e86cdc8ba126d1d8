//! Other processes under a deadline: tools that run to their end, and the `towpath` binary under test.

use std::ffi::OsStr;
use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(10);

/// How a process ended and what it said.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    /// `None` when a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Outcome {
    pub(crate) fn expect_success(self) -> Self {
        assert_eq!(self.code, Some(0), "{self}");
        self
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit code {:?}\n--- stdout\n{}\n--- stderr\n{}", self.code, self.stdout, self.stderr)
    }
}

/// Runs a command to its end; panics when that takes longer than `deadline`.
pub(crate) fn run(command: Command, deadline: Duration) -> Outcome {
    Running::spawn(command).wait(deadline)
}

/// The binary under test.
pub(crate) fn towpath<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Running {
    let mut command = Command::new(towpath_binary());
    command.args(arguments);
    Running::spawn(command)
}

/// `TOWPATH_BIN`, which `dev/test` sets to the release build, else the one cargo built along with this test.
pub(crate) fn towpath_binary() -> std::ffi::OsString {
    std::env::var_os("TOWPATH_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_towpath").into())
}

/// A process whose output is collected while it runs. Killed when dropped.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    what: String,
    stdout: Collected,
    stderr: Collected,
}

impl Running {
    pub(crate) fn spawn(mut command: Command) -> Self {
        let what = format!("{command:?}");
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{what} does not start: {error}"));
        let stdout = Collected::from(child.stdout.take().expect("stdout is piped"));
        let stderr = Collected::from(child.stderr.take().expect("stderr is piped"));
        Self { child, what, stdout, stderr }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has written so far.
    pub(crate) fn stderr(&self) -> String {
        self.stderr.text()
    }

    pub(crate) fn stdout(&self) -> String {
        self.stdout.text()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.status().is_none()
    }

    /// The first line on stderr or stdout that contains `wanted`; panics when it does not come in time.
    pub(crate) fn wait_for_line(&mut self, wanted: &str, deadline: Duration) -> String {
        let what = format!("the line {wanted:?}");
        self.wait_until(&what, deadline, |process| {
            let said = process.stderr() + &process.stdout();
            said.lines().find(|line| line.contains(wanted)).map(str::to_owned)
        })
    }

    /// Polls `condition` until it gives a value; panics after `deadline`, or when the process ended without it.
    pub(crate) fn wait_until<T>(
        &mut self,
        what: &str,
        deadline: Duration,
        mut condition: impl FnMut(&Self) -> Option<T>,
    ) -> T {
        let end = Instant::now() + deadline;
        loop {
            // Asked before looking, so that the last words of a process count.
            let running = self.is_running();
            if !running {
                self.join_output();
            }
            if let Some(found) = condition(self) {
                return found;
            }
            if !running || Instant::now() >= end {
                let why = if running { format!("not within {deadline:?}") } else { "it ended".to_owned() };
                let said = self.so_far();
                panic!("{}: no {what}, {why}: {said}", self.what);
            }
            std::thread::sleep(POLL);
        }
    }

    pub(crate) fn wait(mut self, deadline: Duration) -> Outcome {
        let end = Instant::now() + deadline;
        while self.is_running() {
            if Instant::now() >= end {
                let said = self.so_far();
                self.end();
                panic!("{} did not end within {deadline:?}: {said}", self.what);
            }
            std::thread::sleep(POLL);
        }
        self.join_output();
        self.so_far()
    }

    /// SIGTERM.
    pub(crate) fn terminate(&self) {
        self.signal(rustix::process::Signal::TERM);
    }

    /// SIGHUP, as a terminal that closes sends it.
    pub(crate) fn hang_up(&self) {
        self.signal(rustix::process::Signal::HUP);
    }

    /// SIGSTOP and SIGCONT, as a suspended machine would do.
    pub(crate) fn pause(&self) {
        self.signal(rustix::process::Signal::STOP);
    }

    pub(crate) fn resume(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    /// SIGKILL, and waits until the process is gone.
    pub(crate) fn kill(mut self) -> Outcome {
        self.end();
        self.join_output();
        self.so_far()
    }

    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal)
            .unwrap_or_else(|error| panic!("{}: {error}", self.what));
    }

    fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap_or_else(|error| panic!("{}: {error}", self.what))
    }

    fn end(&mut self) {
        // Fails only when it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn join_output(&mut self) {
        self.stdout.join();
        self.stderr.join();
    }

    fn so_far(&mut self) -> Outcome {
        let code = self.status().and_then(|status| status.code());
        Outcome { code, stdout: self.stdout(), stderr: self.stderr() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Why a test failed is often said here.
            let said = self.stderr();
            let lines: Vec<&str> = said.lines().collect();
            println!("{}, last lines:\n{}", self.what, lines[lines.len().saturating_sub(60)..].join("\n"));
        }
        self.end();
    }
}

/// Output gathered by a thread of its own, so that a full pipe never holds the process up.
#[derive(Debug)]
struct Collected {
    text: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Collected {
    fn from(pipe: impl Read + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&text);
        let reader = std::thread::spawn(move || {
            let mut pipe = BufReader::new(pipe);
            while let Ok(part) = pipe.fill_buf() {
                if part.is_empty() {
                    break;
                }
                shared.lock().expect("no holder panics").extend_from_slice(part);
                let taken = part.len();
                pipe.consume(taken);
            }
        });
        Self { text, reader: Some(reader) }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.text.lock().expect("no holder panics")).into_owned()
    }

    /// Waits for the end of the output. A grandchild may hold the pipe open, so not for ever.
    fn join(&mut self) {
        let Some(reader) = self.reader.take() else {
            return;
        };
        let end = Instant::now() + Duration::from_secs(2);
        while !reader.is_finished() && Instant::now() < end {
            std::thread::sleep(POLL);
        }
    }
}
