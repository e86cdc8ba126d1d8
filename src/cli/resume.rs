//! `towpath resume`: answers partitions that stand, while a mirror runs or not.

use std::{io::Write, path::PathBuf};

use tokio::{runtime, task::LocalSet};

use super::Exit;
use crate::{
    config,
    mirror::{
        resume::{Answered, Resume, resume},
        settings::FlowSettings,
    },
};

/// Decides about partitions that stand; a mirror that runs takes it up within seconds, another one at its next start.
#[derive(Debug, clap::Args)]
pub(super) struct ResumeArguments {
    /// MirrorMaker 2's configuration, such as mm2.properties.
    file: PathBuf,
    /// The flow, such as `A->B`; not needed where there is only one.
    #[arg(long)]
    flow: Option<String>,
    /// The topic's name at the source.
    #[arg(long)]
    topic: String,
    /// Only these partitions.
    #[arg(long, num_args = 1.., conflicts_with = "recreate_target")]
    partition: Vec<i32>,
    /// Only partitions that stand for this, such as `source-truncated`.
    #[arg(long, value_name = "STATE-CODE")]
    accept: Option<String>,
    /// Delete the remote topic, with all of its partitions, and copy it from the beginning.
    #[arg(long)]
    recreate_target: bool,
    /// Print what would be decided, and decide nothing.
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn run(arguments: ResumeArguments) -> Exit {
    let loaded = match config::load(&arguments.file) {
        Ok(loaded) => loaded,
        Err(errors) => {
            eprintln!("{errors}");
            return Exit::Usage;
        }
    };
    let flow = match choose(loaded.settings.flows, arguments.flow.as_deref()) {
        Ok(flow) => flow,
        Err(why) => {
            eprintln!("{why}");
            return Exit::Usage;
        }
    };
    let runtime = match runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("no runtime: {error}");
            return Exit::Internal;
        }
    };
    let asked = Resume {
        flow,
        topic: arguments.topic,
        partitions: arguments.partition,
        accept: arguments.accept,
        recreate_target: arguments.recreate_target,
        dry_run: arguments.dry_run,
    };
    let result = LocalSet::new().block_on(&runtime, resume(&asked));
    runtime.shutdown_background();
    match result {
        Ok(answered) => show(&asked, &answered),
        Err(error) => {
            eprintln!("{error}");
            Exit::CannotStart
        }
    }
}

fn choose(flows: Vec<FlowSettings>, name: Option<&str>) -> Result<FlowSettings, String> {
    let names: Vec<String> = flows.iter().map(FlowSettings::name).collect();
    let wanted = |flow: &FlowSettings| name.is_none_or(|name| flow.name() == name);
    let mut found = flows.into_iter().filter(wanted);
    match (found.next(), found.next()) {
        (Some(flow), None) => Ok(flow),
        (Some(_), Some(_)) => Err(format!("--flow: which one? The file enables {}", names.join(", "))),
        (None, _) => Err(format!("--flow {}: the file enables {} only", name.unwrap_or_default(), names.join(", "))),
    }
}

fn show(asked: &Resume, answered: &[Answered]) -> Exit {
    let mut decided = false;
    for one in answered {
        say(&format!("{} {}: {}", one.partition, one.state, one.reason));
        match &one.decided {
            Some(what) => {
                decided = true;
                let made = if asked.dry_run { "would be decided" } else { "decided" };
                say(&format!("  {made}: {what}"));
            }
            None => say("  not answered"),
        }
    }
    if decided {
        return Exit::Done;
    }
    let what = if answered.is_empty() { "no partition of it stands" } else { "none of these can be answered so" };
    eprintln!("nothing to resume for topic {} of {}: {what}", asked.topic, asked.flow.name());
    Exit::NotCopied
}

/// A line of the result. Whoever reads it may have gone; the exit code still tells.
fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
