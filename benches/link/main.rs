//! Null peers and a bare relay: what carries bytes to the product under measurement and takes them from it.
//!
//! `dev/bench` starts these as processes of their own. They speak as much of the protocol as the unmodified product
//! needs, keep no data, and are cheap, so that the product is what limits the run. They prove nothing about correctness
//! beyond order, lengths and (with `--verify true`) checksums; a strict broker is the test kit's business.
//!
//! Each prints its address as a line of JSON when it listens, and its counters as another one when its standard input
//! ends.

mod buffer;
mod cold;
mod fields;
mod relay;
mod server;
mod source;
mod target;

use std::{collections::BTreeMap, io::Read, process::ExitCode};

/// What a peer can be told, all as `--key value`.
pub(crate) struct Options(BTreeMap<String, String>);

impl Options {
    fn parse(words: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut words = words;
        let mut options = BTreeMap::new();
        while let Some(word) = words.next() {
            let Some(key) = word.strip_prefix("--") else {
                return Err(format!("expected an option, found {word:?}"));
            };
            let value = words.next().ok_or_else(|| format!("--{key} needs a value"))?;
            options.insert(key.to_owned(), value);
        }
        Ok(Self(options))
    }

    pub(crate) fn number(&self, key: &str, default: u64) -> Result<u64, String> {
        match self.0.get(key) {
            Some(text) => text.parse().map_err(|_| format!("--{key} {text:?} is not a number")),
            None => Ok(default),
        }
    }

    pub(crate) fn text(&self, key: &str) -> Result<&str, String> {
        self.0.get(key).map(String::as_str).ok_or_else(|| format!("--{key} is needed"))
    }

    pub(crate) fn flag(&self, key: &str) -> bool {
        self.0.get(key).is_some_and(|value| value == "true")
    }
}

const USAGE: &str = "\
usage: towpath-link source --batch BYTES --partitions N --bytes TOTAL
       towpath-link target [--verify true]
       towpath-link raw-source --bytes TOTAL
       towpath-link raw-sink
       towpath-link relay --from HOST:PORT --to HOST:PORT
started by dev/bench";

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let role = words.next();
    let done = Options::parse(words).and_then(|options| match role.as_deref() {
        Some("source") => source::start(&options).map(wait),
        Some("target") => target::start(&options).map(wait),
        Some("raw-source") => relay::start_source(&options).map(wait),
        Some("raw-sink") => relay::start_sink().map(wait),
        Some("relay") => relay::run(&options),
        _ => Err(USAGE.to_owned()),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("towpath-link: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the counters once standard input has ended.
fn wait(counters: Box<dyn Fn() -> serde_json::Value>) {
    // Whatever ends it, the counters are due.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    println!("{}", counters());
}
