//! From MirrorMaker's file to checked settings: the only place that knows how keys are spelled.
//!
//! One pass collects every fault ([`ConfigErrors`]) and says of every key that has no effect why it has none
//! ([`Note`]). Namespaces and precedence are MirrorMaker 2's (`docs/configuration.md`). Start at [`load`]; `flow`
//! builds one flow, `keys` is the table of keys in use, `catalogue` the names that MirrorMaker and its clients know.

mod catalogue;
mod effective;
mod fault;
mod flow;
mod keys;
mod leftover;
mod mm2;
mod properties;
mod reader;
mod security;
mod values;

use std::path::{Path, PathBuf};

use crate::{mirror::settings::ProcessSettings, os_error::Reason};

pub use effective::effective;
pub use fault::{ConfigErrors, Fault, Note};
pub use properties::{Entry, Properties, parse as parse_properties};

/// A file's settings, and what has to be said about the file.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What to do.
    pub settings: ProcessSettings,
    /// In the order of lines; each is worth a line in the log.
    pub notes: Vec<Note>,
}

/// What defaults depend on outside of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// Where state is kept unless the file says so; `None` where there is no home.
    pub state_dir: Option<PathBuf>,
}

impl Environment {
    /// The environment of this process: `/var/lib/towpath` for root, otherwise `$XDG_STATE_HOME/towpath` or
    /// `~/.local/state/towpath`.
    pub fn of_process() -> Self {
        let root = rustix::process::geteuid().is_root();
        Self::new(root, |name| std::env::var_os(name).map(PathBuf::from))
    }

    fn new(root: bool, variable: impl Fn(&str) -> Option<PathBuf>) -> Self {
        // The XDG specification: a relative path is to be ignored.
        let directory = |name: &str| variable(name).filter(|path| path.is_absolute());
        let state_dir = if root {
            Some(PathBuf::from("/var/lib/towpath"))
        } else {
            directory("XDG_STATE_HOME")
                .or_else(|| directory("HOME").map(|home| home.join(".local/state")))
                .map(|base| base.join("towpath"))
        };
        Self { state_dir }
    }
}

/// Reads and checks a file.
///
/// # Errors
/// Every fault of the file at once, or the one that it cannot be read.
pub fn load(path: &Path) -> Result<Loaded, ConfigErrors> {
    let file = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| {
        let remedy = match error.kind() {
            std::io::ErrorKind::NotFound => "give the path of an existing mm2.properties",
            std::io::ErrorKind::PermissionDenied => "allow the user this process runs as to read it",
            _ => "give the path of a readable file",
        };
        ConfigErrors::new(
            file.clone(),
            vec![Fault::of_file(format!("cannot be read: {}; {remedy}", Reason(&error)))],
            Vec::new(),
        )
    })?;
    parse(&bytes, &file, &Environment::of_process())
}

/// Checks a file's bytes; `file` is the name that messages give it.
///
/// # Errors
/// Every fault at once.
pub fn parse(bytes: &[u8], file: &str, environment: &Environment) -> Result<Loaded, ConfigErrors> {
    mm2::parse(properties::parse(bytes), file, environment)
}

/// The keys in use as a Markdown table: the one in `docs/configuration.md`.
pub fn key_table() -> String {
    keys::markdown()
}

#[cfg(test)]
mod tests;
