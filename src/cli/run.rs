//! `towpath run`: a configuration file, signals, an exit code.

use std::io::Write;

use tokio::{
    runtime,
    signal::unix::{Signal, SignalKind, signal},
    task::LocalSet,
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{Exit, RunArguments, screen};
use crate::{
    api::Server,
    config,
    mirror::{Outcome, Supervisor},
    os_error::Reason,
};

/// With `screen` the progress is shown live, if the terminal lets us.
pub(super) fn run(arguments: &RunArguments, screen: bool) -> Exit {
    let loaded = match config::load(&arguments.file) {
        Ok(loaded) => loaded,
        Err(errors) => {
            eprintln!("{errors}");
            for note in errors.notes() {
                eprintln!("note: {note}");
            }
            return Exit::Usage;
        }
    };
    for note in &loaded.notes {
        warn!("{note}");
    }
    if arguments.show_config {
        say(config::effective(&loaded.settings).trim_end());
        return Exit::Done;
    }
    let runtime = match runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            error!(%error, "no runtime");
            return Exit::Internal;
        }
    };
    let http_listen = loaded.settings.http_listen;
    let shown = if screen { screen::show(loaded.settings.flows.len()) } else { None };
    let (shown, watcher) = shown.unzip();
    let exit = LocalSet::new().block_on(&runtime, async {
        let stop = CancellationToken::new();
        let mut supervisor = Supervisor::new(loaded.settings, arguments.until_caught_up, stop.clone());
        if let Some(watcher) = watcher {
            supervisor = supervisor.watched_by(watcher);
        }
        if arguments.dry_run {
            return dry_run(supervisor).await;
        }
        if let Some(at) = http_listen
            && let Err(error) = Server::start(at, supervisor.observer())
        {
            // Several mirrors may run on one host; none of them fails for that.
            warn!(%error, "metrics and readiness are not shown over http (towpath.http.listen); the mirror goes on");
        }
        if arguments.while_stdin_open {
            stop_with_stdin(stop.clone());
        }
        // Before anything is locked or opened: a stop in the first moment is orderly too.
        match signals() {
            Ok(signals) => {
                tokio::task::spawn_local(listen(stop, signals));
            }
            Err(error) => {
                warn!(error = %Reason(&error), "signals cannot be watched; only kill -9 ends this process before it is done");
            }
        }
        follow(supervisor, shown).await
    });
    // A name look-up that hangs in the system's resolver must not keep the process.
    runtime.shutdown_background();
    exit
}

async fn dry_run(supervisor: Supervisor) -> Exit {
    match supervisor.dry_run().await {
        Ok(plans) => {
            for (flow, lines) in plans {
                say(&format!("flow {flow}:"));
                for line in lines {
                    say(&format!("  {line}"));
                }
            }
            Exit::Done
        }
        Err(error) => {
            error!(%error, "the plan cannot be made");
            Exit::CannotStart
        }
    }
}

async fn follow(supervisor: Supervisor, shown: Option<screen::Shown>) -> Exit {
    let ended = supervisor.run().await;
    // Before results are printed.
    drop(shown);
    match ended {
        Ok(Outcome::Done) => Exit::Done,
        Ok(Outcome::NotCopied(partitions)) => {
            for (partition, why) in partitions {
                say(&format!("not copied: {partition}: {why}"));
            }
            Exit::NotCopied
        }
        Ok(Outcome::CannotRun(_)) => {
            // Each was logged with its reason when it failed.
            error!("no flow runs");
            Exit::CannotStart
        }
        Ok(Outcome::DeadlineMissed) => {
            warn!("some requests in flight did not settle in time; the next start asks the target what it holds");
            Exit::DeadlineMissed
        }
        Err(error) => {
            error!(%error, "cannot start");
            Exit::CannotStart
        }
    }
}

/// A line of the result. Whoever reads it may have gone; the exit code still tells.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// A thread, since reading from stdin blocks; it ends with the process.
fn stop_with_stdin(stop: CancellationToken) {
    std::thread::spawn(move || {
        // To its end or to an error: either way nobody is there any more.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        stop.cancel();
    });
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Option<Signal>,
}

fn signals() -> std::io::Result<Signals> {
    // Whoever starts us with SIGHUP ignored, as `nohup` does, wants us to outlive the terminal.
    let hangup = if ignores_hangup() { None } else { Some(signal(SignalKind::hangup())?) };
    Ok(Signals { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())?, hangup })
}

fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// The first SIGTERM, SIGINT or SIGHUP drains, the second ends at once.
async fn listen(stop: CancellationToken, mut signals: Signals) {
    let mut hangup = signals.hangup;
    for round in 0.. {
        let hung_up = async {
            match &mut hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = signals.terminate.recv() => {}
            _ = signals.interrupt.recv() => {}
            _ = hung_up => {}
        }
        if round == 0 {
            info!("stopping: what is in flight settles, then the last anchors; a second signal ends at once");
            stop.cancel();
        } else {
            warn!("ended at once by a second signal; the next start asks the target what it holds");
            #[expect(clippy::disallowed_methods, reason = "the operator asked for an end without draining")]
            std::process::exit(130);
        }
    }
}
