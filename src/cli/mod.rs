//! Arguments, logging, signals, exit codes. Decides nothing about copying.

mod demo;
mod panel;
mod resume;
mod run;
mod screen;
mod status;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand, ValueEnum};
use tracing_subscriber::EnvFilter;

/// What the process tells its caller (`design.md` 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done,
    /// A fault of Towpath's.
    Internal,
    /// The command line or the configuration is wrong.
    Usage,
    /// It could not start.
    CannotStart,
    /// Finished, but some partitions were not copied; each was named.
    NotCopied,
    /// Something in flight did not settle in time.
    DeadlineMissed,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::Internal => 1,
            Exit::Usage => 2,
            Exit::CannotStart => 3,
            Exit::NotCopied => 4,
            Exit::DeadlineMissed => 5,
        })
    }
}

/// Copies Kafka topics between clusters without opening the record batches.
#[derive(Debug, Parser)]
#[command(
    name = "towpath",
    version,
    about,
    max_term_width = 100,
    arg_required_else_help = true,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    override_usage = "towpath run [OPTIONS] <FILE>\n       towpath [OPTIONS] <FILE>\n       \
                      towpath status [OPTIONS] <FILE>\n       \
                      towpath resume [OPTIONS] --topic <TOPIC> <FILE>\n       towpath demo [OPTIONS]"
)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// `towpath mm2.properties` runs it.
    #[command(flatten)]
    run: Option<RunArguments>,
    /// How log lines on stderr look; TOWPATH_LOG filters them (such as `info` or `towpath::net=debug`).
    #[arg(long, global = true, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the flows of a MirrorMaker 2 file.
    #[command(visible_alias = "mm2")]
    Run(RunArguments),
    /// Show how far the copies are and what stands, from any machine.
    Status(status::StatusArguments),
    /// Decide about partitions that stand.
    Resume(resume::ResumeArguments),
    /// See a mirror work: two Kafka clusters in this process, traffic, a kill -9, and a comparison of every record.
    Demo(demo::DemoArguments),
}

#[derive(Debug, clap::Args)]
struct RunArguments {
    /// MirrorMaker 2's configuration, such as mm2.properties.
    file: PathBuf,
    /// End once every partition has reached the source's last stable offset as seen at the start.
    #[arg(long)]
    until_caught_up: bool,
    /// On a terminal too, print a line of progress from time to time instead of showing the live screen.
    #[arg(long)]
    no_screen: bool,
    /// Stop when stdin ends: for a program that starts this one and must not leave it behind.
    #[arg(long, hide = true)]
    while_stdin_open: bool,
    /// Print what would be created and copied, and do nothing.
    #[arg(long)]
    dry_run: bool,
    /// Print the configuration as understood, secrets hidden, and do nothing.
    #[arg(long)]
    show_config: bool,
}

impl RunArguments {
    /// Whether it will run long enough for somebody to watch.
    fn wants_screen(&self) -> bool {
        !(self.no_screen || self.dry_run || self.show_config)
    }
}

/// The whole program.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // clap prints help and version to stdout, faults to stderr; only the latter are faults.
            let _ = error.print();
            return if error.use_stderr() { Exit::Usage.into() } else { Exit::Done.into() };
        }
    };
    match (arguments.command, arguments.run) {
        (Some(Command::Run(run)), _) | (None, Some(run)) => {
            let screen = run.wants_screen() && arguments.log_format == LogFormat::Text && screen::possible();
            log_to_stderr(arguments.log_format, screen);
            run::run(&run, screen).into()
        }
        (Some(Command::Status(status)), _) => {
            // What cannot be reached is part of the result.
            quietly_to_stderr(arguments.log_format);
            status::run(status).into()
        }
        (Some(Command::Resume(resume)), _) => {
            log_to_stderr(arguments.log_format, false);
            resume::run(resume).into()
        }
        (Some(Command::Demo(demo)), _) => {
            log_to_stderr(arguments.log_format, false);
            demo::run(&demo).into()
        }
        // clap asks for one of them.
        (None, None) => Exit::Usage.into(),
    }
}

/// Only errors, unless asked for more.
fn quietly_to_stderr(format: LogFormat) {
    log_filtered(format, false, "error");
}

/// With a `screen`, lines go above it, and it gives them their colour.
fn log_to_stderr(format: LogFormat, screen: bool) {
    log_filtered(format, screen, "info");
}

fn log_filtered(format: LogFormat, screen: bool, default: &str) {
    let filter = EnvFilter::try_from_env("TOWPATH_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| screen::LogWriter);
    match format {
        LogFormat::Text => {
            let colour = !screen && std::io::IsTerminal::is_terminal(&std::io::stderr());
            builder.with_ansi(colour).with_target(false).init();
        }
        LogFormat::Json => builder.json().flatten_event(true).init(),
    }
}
