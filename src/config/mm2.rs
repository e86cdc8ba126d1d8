//! The file as a whole: clusters, which flows run, and what belongs to the process.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::properties::Properties;
use super::reader::Reader;
use super::{ConfigErrors, Entry, Environment, Fault, Loaded, flow, leftover, security, values};
use crate::mirror::settings::{
    ClusterAlias, FlowSettings, HTTP_LISTEN, MEMORY_BYTES, MEMORY_BYTES_MIN, PROGRESS_INTERVAL, ProcessSettings,
    WORKER_THREADS,
};

/// A pair of clusters whose flow runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pair {
    pub(super) source: ClusterAlias,
    pub(super) target: ClusterAlias,
}

/// Reads everything, then answers with settings or with all faults.
pub(super) fn parse(properties: Properties, file: &str, environment: &Environment) -> Result<Loaded, ConfigErrors> {
    let mut reader = Reader::new(properties, file);
    let clusters = clusters(&mut reader);
    let pairs = clusters.as_deref().map(|clusters| pairs(&mut reader, clusters));
    let memory_bytes = memory_bytes(&mut reader);
    let worker_threads = reader.read(&top("towpath.worker.threads"), values::number(1u16, 256));
    let progress_interval = reader.read(&top("towpath.progress.interval.seconds"), values::seconds);
    let http_listen = reader.read(&top("towpath.http.listen"), values::loopback);
    let state_dir = state_dir(&mut reader, environment);
    let pairs = pairs.unwrap_or_default();
    let flows: Vec<FlowSettings> =
        pairs.iter().filter_map(|pair| flow::build(&mut reader, pair, memory_bytes)).collect();
    shared_groups(&mut reader, &flows);
    let clusters = clusters.unwrap_or_default();
    security::check(&mut reader, &clusters, &pairs);
    leftover::note(&mut reader, &clusters, &pairs);

    let Reader { faults, mut notes, .. } = reader;
    match state_dir {
        Some(state_dir) if faults.is_empty() => {
            notes.sort();
            notes.dedup();
            Ok(Loaded {
                settings: ProcessSettings {
                    flows,
                    memory_bytes,
                    worker_threads: worker_threads.map_or(WORKER_THREADS, usize::from),
                    state_dir,
                    progress_interval: progress_interval.unwrap_or(PROGRESS_INTERVAL),
                    http_listen: http_listen.unwrap_or(Some(HTTP_LISTEN)),
                },
                notes,
            })
        }
        _ => Err(ConfigErrors::new(file.to_owned(), faults, notes)),
    }
}

fn top(name: &str) -> [String; 1] {
    debug_assert!(super::keys::is_used(name), "{name} is missing in the table of keys");
    [name.to_owned()]
}

/// The aliases, each once; `None` if there is no usable list.
fn clusters(reader: &mut Reader) -> Option<Vec<ClusterAlias>> {
    let remedy = "name the clusters, for example: clusters = A, B";
    let parse = |text: &str| {
        let mut aliases = Vec::new();
        let items = values::list(text);
        for alias in values::every(items.into_iter().map(|item| {
            let spaced = item.contains(char::is_whitespace);
            let remedy = if spaced { "; separate aliases with commas" } else { "" };
            ClusterAlias::new(item).map_err(|error| format!("{error}{remedy}"))
        }))? {
            if !aliases.contains(&alias) {
                aliases.push(alias);
            }
        }
        if aliases.is_empty() {
            return Err(format!("no cluster; {remedy}"));
        }
        Ok(aliases)
    };
    if reader.find(&top("clusters")).is_none() {
        reader.missing("clusters", format!("missing; {remedy}"));
        return None;
    }
    let aliases = reader.read(&top("clusters"), parse)?;
    for alias in &aliases {
        for longer in &aliases {
            if longer.as_str().starts_with(&format!("{alias}.")) {
                let text = format!(
                    "MirrorMaker takes the keys of {longer} for keys of {alias} too; here the longer alias wins"
                );
                reader.note(None, Some("clusters".to_owned()), text);
            }
        }
    }
    Some(aliases)
}

/// The flows that run. Without one there is nothing to do, which is a fault.
fn pairs(reader: &mut Reader, clusters: &[ClusterAlias]) -> Vec<Pair> {
    let before = reader.faults.len();
    let mut pairs = Vec::new();
    for source in clusters {
        for target in clusters.iter().filter(|target| *target != source) {
            if enabled(reader, &format!("{source}->{target}.enabled")) {
                pairs.push(Pair { source: source.clone(), target: target.clone() });
            }
        }
    }
    strange_flows(reader, clusters);
    pairs.sort();
    if pairs.is_empty() && reader.faults.len() == before {
        let (source, target) = match clusters {
            [source, target, ..] => (source.as_str(), target.as_str()),
            _ => ("A", "B"),
        };
        let reason = if clusters.len() < 2 {
            "only one cluster is named, a flow needs two; name both in clusters, and enable the flow between them"
        } else {
            "no flow is enabled, so there is nothing to copy; enable at least one"
        };
        let reason = format!("{reason}, for example: {source}->{target}.enabled = true");
        reader.faults.push(Fault::of_file(reason));
    }
    pairs
}

/// MirrorMaker reads this switch untrimmed when it selects flows, and trimmed later on.
fn enabled(reader: &mut Reader, key: &str) -> bool {
    let names = [key.to_owned()];
    // With a value that is neither, the rest of the flow is read all the same, for the sake of its faults.
    let meant = reader.find(&names).is_some();
    let enabled = reader.read(&names, values::boolean).unwrap_or(meant);
    if let Some(entry) = reader.find(&names)
        && enabled
        && entry.value.trim() != entry.value
    {
        let text =
            "blanks around the value are dropped here; MirrorMaker's flow selection takes such a value for false";
        reader.note_entry(&entry, text);
    }
    enabled
}

/// Keys that look like flows, but name no pair of clusters.
fn strange_flows(reader: &mut Reader, clusters: &[ClusterAlias]) {
    let known = |alias: &str| clusters.iter().any(|cluster| cluster.as_str() == alias);
    let names: Vec<&str> = clusters.iter().map(ClusterAlias::as_str).collect();
    for entry in reader.entries() {
        if known(&entry.key) && entry.value.starts_with("->") {
            let reason =
                "a key ends at the first blank; write the flow without blanks, for example A->B.enabled = true";
            reader.settle(&entry.key);
            reader.fault(&entry, reason);
            continue;
        }
        let Some((source, rest)) = entry.key.split_once("->") else {
            continue;
        };
        let Some(target) = rest.strip_suffix(".enabled") else {
            continue;
        };
        // `A->B.refresh.topics.enabled` is another switch than the flow's.
        let other_switch = super::catalogue::switches().any(|name| rest.ends_with(name));
        if other_switch || (known(source) && known(target) && source != target) {
            continue;
        }
        reader.settle(&entry.key);
        let reason = if source == target {
            "a flow needs two different clusters".to_owned()
        } else {
            let unknown: Vec<&str> = [source, target].into_iter().filter(|a| !known(a)).collect();
            format!("unknown cluster in a flow: {}; clusters names {}", unknown.join(" and "), names.join(", "))
        };
        // MirrorMaker passes over such keys, so a flow that is switched off is left alone.
        if values::boolean(&entry.value) == Ok(false) {
            reader.note_entry(&entry, reason);
        } else {
            reader.fault(&entry, reason);
        }
    }
}

fn memory_bytes(reader: &mut Reader) -> u64 {
    // More than a terabyte is a slip of the keyboard.
    let low = i64::try_from(MEMORY_BYTES_MIN).unwrap_or(i64::MAX);
    let bytes = reader.read(&top("towpath.memory.bytes"), values::integer(low..=1 << 40));
    bytes.map_or(MEMORY_BYTES, i64::unsigned_abs)
}

fn state_dir(reader: &mut Reader, environment: &Environment) -> Option<PathBuf> {
    let key = top("towpath.state.dir");
    if reader.find(&key).is_some() {
        return reader.read(&key, values::text).map(PathBuf::from);
    }
    if environment.state_dir.is_none() {
        reader.missing(
            "towpath.state.dir",
            "missing, and there is no XDG_STATE_HOME or HOME to take it from; name a directory that outlives a restart",
        );
    }
    environment.state_dir.clone()
}

/// Two flows that read the same cluster would overwrite each other's commits.
fn shared_groups(reader: &mut Reader, flows: &[FlowSettings]) {
    let mut groups: BTreeMap<(&ClusterAlias, String), String> = BTreeMap::new();
    for flow in flows.iter().filter(|flow| flow.commit_source_offsets) {
        let group = flow.source_group_id();
        if let Some(other) = groups.insert((&flow.source.alias, group.clone()), flow.name()) {
            let key = format!("{}.towpath.group.id", flow.name());
            let entry: Option<Entry> = reader.find(&[key.clone(), "towpath.group.id".to_owned()]);
            let reason = format!(
                "{} and {other} would commit to the same group {group} on {}; give each its own, or leave the key out",
                flow.name(),
                flow.source.alias
            );
            match entry {
                Some(entry) => reader.fault(&entry, reason),
                None => reader.missing(&key, reason),
            }
        }
    }
}
