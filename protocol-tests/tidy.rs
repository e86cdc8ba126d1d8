//! Rules about the source text itself: import directions, heads of modules, file sizes, forbidden strings.
//!
//! The layer table is data. When the design moves, the table and the code move in the same commit.

use std::path::{Path, PathBuf};
use std::process::Command;

use regex::Regex;

const EVERYTHING: &[&str] = &["*"];
const NOTHING: &[&str] = &[];

/// Module of the crate → what it may use. Leaf modules are listed where they are allowed; see [`LEAVES`].
const LAYERS: &[(&str, &[&str])] = &[
    ("protocol", NOTHING),
    ("batch", &["protocol"]),
    ("topics", &["protocol"]),
    ("offsets", &["protocol", "topics"]),
    ("net", &["protocol", "leaves"]),
    ("client", &["protocol", "batch", "net", "topics", "leaves"]),
    ("mirror", &["client", "net", "batch", "topics", "offsets", "protocol", "leaves"]),
    // Fills the settings types of all the others, and nothing else may use it.
    ("config", &["protocol", "batch", "topics", "offsets", "net", "client", "mirror", "leaves"]),
    // Translates what the mirror says into HTTP; decides nothing.
    ("api", &["mirror", "metrics", "leaves"]),
    ("cli", EVERYTHING),
    ("testkit", EVERYTHING),
    ("backoff", &["simulation"]),
    ("os_error", NOTHING),
    ("rare", NOTHING),
    ("secret", NOTHING),
    ("task", NOTHING),
    ("wall_clock", &["simulation"]),
    ("simulation", NOTHING),
    ("metrics", NOTHING),
];

/// Small modules that use nothing of ours; `leaves` in the table means all of them.
const LEAVES: &[&str] = &["backoff", "os_error", "rare", "secret", "task", "wall_clock", "metrics", "simulation"];

/// Modules without sockets, tasks, clocks, randomness, logs: same input, same output.
const PURE: &[&str] = &["protocol", "batch", "topics", "offsets"];
const IMPURE: &[&str] = &["async fn", "tokio::", "tracing::", "std::net::", "socket2::", "getrandom::"];

/// Files that may be longer than [`LINES_MAX`], with the reason.
const LONG_FILES: &[(&str, &str)] = &[];
const LINES_MAX: usize = 600;

/// Files of `src/` that may name `std::time::Instant`, with the reason.
const STD_INSTANT: &[(&str, &str)] = &[];

/// Written in halves, so that this file does not break its own rule.
const FORBIDDEN: &[(&str, &str)] = &[
    (concat!("/wo", "rk/"), "a path of somebody's machine"),
    (concat!("/ro", "ot/"), "a path of somebody's machine"),
    (concat!("/ho", "me/"), "a path of somebody's machine"),
    (concat!("repo1.", "maven"), "a registry's host name"),
    (concat!("repo.", "maven"), "a registry's host name"),
    (concat!("pypi", ".org"), "a registry's host name"),
    (concat!("index.", "crates"), "a registry's host name"),
    (concat!("static.", "crates"), "a registry's host name"),
    (concat!("npmjs", ".org"), "a registry's host name"),
    (concat!("proxy.", "golang"), "a registry's host name"),
    (concat!("deb.", "debian"), "a registry's host name"),
];

#[test]
fn imports_point_down_the_layers() {
    let mut faults = Vec::new();
    for file in sources("src") {
        faults.extend(wrong_imports(&file.name, &file.text));
    }
    no_faults(&faults);
}

#[test]
fn an_import_that_points_up_is_found() {
    let cases: &[(&str, &str, &[usize])] = &[
        ("src/batch/mod.rs", "use crate::protocol::Offset;\n", &[]),
        ("src/batch/mod.rs", "use crate::batch::crc;\n", &[]),
        ("src/batch/mod.rs", "use std::fmt;\n\nuse crate::client::Cluster;\n", &[3]),
        ("src/batch/walk.rs", "use crate::{\n    protocol::Offset,\n    mirror::{Flow, Sink},\n};\n", &[3]),
        ("src/client/a.rs", "use crate::{net::{a, b::c}, config};\n", &[1]),
        ("src/client/a.rs", "fn f() { crate::cli::main() }\n", &[1]),
        ("src/client/a.rs", "// crate::cli is above\npub(crate) fn f() {}\n", &[]),
        ("src/client/a.rs", "use super::super::mirror::Flow;\nuse super::router::Router;\n", &[1]),
        ("src/client/a.rs", "use crate::metrics::Counter;\n", &[]),
        ("src/batch/mod.rs", "use crate::metrics::Counter;\n", &[1]),
        ("src/client/a.rs", "use crate::testkit::Broker;\n", &[1]),
        ("src/client/a.rs", "#[cfg(test)]\nmod tests {\n    use crate::testkit::Broker;\n}\n", &[]),
        ("src/client/tests.rs", "use crate::testkit::Broker;\n", &[]),
        ("src/backoff.rs", "use crate::protocol::Offset;\n", &[1]),
        ("src/extra.rs", "use std::fmt;\n", &[1]),
    ];
    for (name, text, lines) in cases {
        let found: Vec<usize> = wrong_imports(name, text)
            .iter()
            .map(|fault| fault.split(':').nth(1).and_then(|line| line.parse().ok()).expect("file:line: text"))
            .collect();
        assert_eq!(&found, lines, "{name}: {text}");
    }
}

#[test]
fn pure_modules_have_no_effects() {
    let mut faults = Vec::new();
    for file in sources("src").iter().filter(|file| PURE.contains(&module_of(&file.name).0)) {
        if file.name.ends_with("tests.rs") {
            continue;
        }
        for (number, line) in without_comments(before_tests(&file.text)).lines().enumerate() {
            for effect in IMPURE.iter().filter(|effect| line.contains(**effect)) {
                faults.push(format!("{}:{}: {effect} in a module that must be pure", file.name, number + 1));
            }
        }
    }
    no_faults(&faults);
}

#[test]
fn every_module_says_what_it_is_for() {
    let missing = |file: &Source| {
        let head = file.text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        (!head.starts_with("//!")).then(|| format!("{}:1: no //! at the head", file.name))
    };
    no_faults(&rust_sources().iter().filter_map(missing).collect::<Vec<_>>());
}

#[test]
fn files_stay_readable_in_length() {
    let mut faults = Vec::new();
    for file in rust_sources() {
        let (lines, listed) = (file.text.lines().count(), LONG_FILES.iter().any(|(name, _)| *name == file.name));
        if lines > LINES_MAX && !listed {
            faults.push(format!("{}:{lines}: more than {LINES_MAX} lines: find the seam, or list it", file.name));
        } else if lines <= LINES_MAX && listed {
            faults.push(format!("{}:{lines}: no longer long, take it off the list", file.name));
        }
    }
    no_faults(&faults);
}

#[test]
fn std_instant_stays_at_the_edge() {
    let pattern = Regex::new(r"std::time::(Instant|\{[^}]*\bInstant\b)").expect("constant pattern");
    let mut faults = Vec::new();
    for file in sources("src") {
        let text = without_comments(&file.text);
        for found in pattern.find_iter(&text) {
            if !STD_INSTANT.iter().any(|(name, _)| *name == file.name) {
                faults.push(format!("{}:{}: use tokio::time::Instant", file.name, line_of(&text, found.start())));
            }
        }
    }
    no_faults(&faults);
}

#[test]
fn the_repository_names_no_machine_and_no_registry() {
    let mut faults = Vec::new();
    for name in tracked_files() {
        // Cargo writes the lock file; binary files have no text to check.
        let Ok(text) = std::fs::read_to_string(root().join(&name)) else {
            continue;
        };
        if name == "Cargo.lock" {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            for (word, reason) in FORBIDDEN.iter().filter(|(word, _)| line.contains(word)) {
                faults.push(format!("{name}:{}: {word}: {reason}", number + 1));
            }
        }
    }
    no_faults(&faults);
}

struct Source {
    /// Relative to the repository, with `/`.
    name: String,
    text: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn rust_sources() -> Vec<Source> {
    ["src", "protocol-tests", "benches", "fuzz"].iter().flat_map(|folder| sources(folder)).collect()
}

fn sources(folder: &str) -> Vec<Source> {
    let (mut found, mut folders) = (Vec::new(), vec![root().join(folder)]);
    while let Some(folder) = folders.pop().filter(|folder| folder.is_dir()) {
        for entry in std::fs::read_dir(&folder).expect("readable folder") {
            let path: PathBuf = entry.expect("readable entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root()).expect("below the root").to_string_lossy().into_owned();
                found.push(Source { name, text: std::fs::read_to_string(&path).expect("source is UTF-8") });
            }
        }
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

fn tracked_files() -> Vec<String> {
    let listed = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output().expect("git is installed");
    assert!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
    let names = String::from_utf8(listed.stdout).expect("file names are UTF-8");
    names.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

fn wrong_imports(name: &str, text: &str) -> Vec<String> {
    let (module, depth) = module_of(name);
    if matches!(module, "lib" | "main") || name.ends_with("tests.rs") {
        return Vec::new();
    }
    let Some((_, allowed)) = LAYERS.iter().find(|(layer, _)| *layer == module) else {
        return vec![format!("{name}:1: module {module} is not in the layer table of protocol-tests/tidy.rs")];
    };
    let text = without_comments(before_tests(text));
    let mut faults = Vec::new();
    for (at, used) in used_modules(&text, depth) {
        let leaf = LEAVES.contains(&used.as_str()) && allowed.contains(&"leaves");
        let known = LAYERS.iter().any(|(layer, _)| *layer == used);
        if used == module || !known || leaf || allowed.contains(&used.as_str()) || *allowed == EVERYTHING {
            continue;
        }
        let rule = if allowed.is_empty() { "nothing of ours".to_owned() } else { allowed.join(", ") };
        faults.push(format!("{name}:{}: {module} uses {used}, but may use only: {rule}", line_of(&text, at)));
    }
    faults
}

/// The crate's module that a file belongs to, and how many `super::` lead from it to the root of the crate.
fn module_of(name: &str) -> (&str, usize) {
    let path = name.trim_start_matches("src/").trim_end_matches(".rs").trim_end_matches("/mod");
    (path.split('/').next().unwrap_or(path), path.split('/').count())
}

/// Places where one of the crate's modules is named through `crate::` or a chain of `super::`.
fn used_modules(text: &str, depth: usize) -> Vec<(usize, String)> {
    let start = Regex::new(r"\b(?:crate::|(?:super::)+)").expect("constant pattern");
    let name = Regex::new(r"^\s*([a-z_][a-z0-9_]*)").expect("constant pattern");
    let mut found = Vec::new();
    for path in start.find_iter(text) {
        let ours = path.as_str() == "crate::" || path.as_str().matches("super::").count() == depth;
        if !ours || text[..path.start()].ends_with(['$', ':']) {
            continue;
        }
        for at in heads(text, path.end()) {
            if let Some(module) = name.captures(&text[at..]).and_then(|found| found.get(1)) {
                found.push((at + module.start(), module.as_str().to_owned()));
            }
        }
    }
    found
}

/// Where the next names begin: right there, or at each entry of a `{…}` group.
fn heads(text: &str, from: usize) -> Vec<usize> {
    if !text[from..].starts_with('{') {
        return vec![from];
    }
    let (mut level, mut heads) = (0_usize, Vec::new());
    for (at, letter) in text[from..].char_indices() {
        match letter {
            '{' => level += 1,
            '}' => level -= 1,
            _ => {}
        }
        match (level, letter) {
            (0, _) => break,
            (1, '{' | ',') => heads.push(from + at + 1),
            _ => {}
        }
    }
    heads
}

/// Tests beside the code may use the test kit.
fn before_tests(text: &str) -> &str {
    let tests = Regex::new(r"(?m)^#\[cfg\(test\)\]\s*\n(?:#\[[^\n]*\]\s*\n)*mod \w+ \{").expect("constant pattern");
    tests.find(text).map_or(text, |found| &text[..found.start()])
}

/// Line comments become empty; lines keep their numbers.
fn without_comments(text: &str) -> String {
    let strip = |line: &str| line.split_once("//").map_or(line, |(code, _)| code).to_owned() + "\n";
    text.lines().map(strip).collect()
}

fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

fn no_faults(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}
