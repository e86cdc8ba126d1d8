//! `towpath run`: a configuration file, signals, an exit code.

use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
    task::LocalSet,
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{Exit, RunArguments};
use crate::{
    config,
    mirror::{Outcome, Supervisor},
};

pub(super) fn run(arguments: &RunArguments) -> Exit {
    let loaded = match config::load(&arguments.file) {
        Ok(loaded) => loaded,
        Err(errors) => {
            eprintln!("{errors}");
            return Exit::Usage;
        }
    };
    for note in &loaded.notes {
        warn!("{note}");
    }
    if arguments.show_config {
        print!("{}", config::effective(&loaded.settings));
        return Exit::Done;
    }
    let runtime = match runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            error!(%error, "no runtime");
            return Exit::Internal;
        }
    };
    let exit = LocalSet::new().block_on(&runtime, async {
        let stop = CancellationToken::new();
        let supervisor = Supervisor::new(loaded.settings, arguments.until_caught_up, stop.clone());
        if arguments.dry_run {
            return dry_run(supervisor).await;
        }
        tokio::task::spawn_local(listen(stop));
        follow(supervisor).await
    });
    // A name look-up that hangs in the system's resolver must not keep the process.
    runtime.shutdown_background();
    exit
}

async fn dry_run(supervisor: Supervisor) -> Exit {
    match supervisor.dry_run().await {
        Ok(plans) => {
            for (flow, lines) in plans {
                println!("flow {flow}:");
                for line in lines {
                    println!("  {line}");
                }
            }
            Exit::Done
        }
        Err(error) => {
            eprintln!("{error}");
            Exit::CannotStart
        }
    }
}

async fn follow(supervisor: Supervisor) -> Exit {
    match supervisor.run().await {
        Ok(Outcome::Done) => Exit::Done,
        Ok(Outcome::NotCopied(partitions)) => {
            for (partition, why) in partitions {
                eprintln!("not copied: {partition}: {why}");
            }
            Exit::NotCopied
        }
        Ok(Outcome::CannotRun(flows)) => {
            for (flow, why) in flows {
                eprintln!("flow {flow} cannot run: {why}");
            }
            Exit::CannotStart
        }
        Ok(Outcome::DeadlineMissed) => {
            eprintln!("some requests in flight did not settle in time; the next start asks the target what it holds");
            Exit::DeadlineMissed
        }
        Err(error) => {
            eprintln!("{error}");
            Exit::CannotStart
        }
    }
}

/// The first SIGTERM or SIGINT drains, the second ends at once.
async fn listen(stop: CancellationToken) {
    let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        warn!("signals cannot be watched; only kill -9 ends this process before it is done");
        return;
    };
    for round in 0.. {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
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
