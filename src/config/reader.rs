//! Looks keys up by MirrorMaker's precedence, and keeps account of faults and of the keys that had a reader.

use std::collections::{BTreeMap, BTreeSet};

use super::properties::Properties;
use super::{Entry, Fault, Note, keys, values};

/// A file being read.
pub(super) struct Reader {
    file: String,
    entries: BTreeMap<String, Entry>,
    asked: BTreeSet<String>,
    commented: BTreeSet<usize>,
    pub(super) faults: Vec<Fault>,
    pub(super) notes: Vec<Note>,
}

/// A side of a flow, as admin keys name it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Side {
    Source,
    Target,
}

/// Builds the full keys under which a setting of one flow may stand, the strongest first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names<'a> {
    pub(super) source: &'a str,
    pub(super) target: &'a str,
}

impl Names<'_> {
    pub(super) fn flow(self, name: &str) -> Vec<String> {
        check(name);
        vec![format!("{}->{}.{name}", self.source, self.target), name.to_owned()]
    }

    /// The cluster's own setting, from the connector's point of view first.
    pub(super) fn cluster(self, side: Side, name: &str) -> Vec<String> {
        check(name);
        let (alias, side) = self.side(side);
        vec![
            format!("{}->{}.{side}.cluster.{name}", self.source, self.target),
            format!("{alias}.{name}"),
            name.to_owned(),
        ]
    }

    /// The replication consumer. A cluster's `consumer.` beats the flow's: MirrorMaker turns the former into
    /// `source.consumer.`.
    pub(super) fn consumer(self, name: &str) -> Vec<String> {
        check(name);
        let Self { source, target } = self;
        vec![
            format!("{source}->{target}.source.consumer.{name}"),
            format!("{source}.consumer.{name}"),
            format!("{source}->{target}.consumer.{name}"),
        ]
    }

    /// The producer of the data. The flow's plain `producer.` reaches only MirrorMaker's offset-sync producer.
    pub(super) fn producer(self, name: &str) -> Vec<String> {
        check(name);
        let Self { source, target } = self;
        vec![format!("{source}->{target}.producer.override.{name}"), format!("{target}.producer.{name}")]
    }

    pub(super) fn admin(self, side: Side, name: &str) -> Vec<String> {
        check(name);
        let (alias, side) = self.side(side);
        let flow = format!("{}->{}", self.source, self.target);
        vec![format!("{flow}.{side}.admin.{name}"), format!("{alias}.admin.{name}"), format!("{flow}.admin.{name}")]
    }

    fn side(&self, side: Side) -> (&str, &'static str) {
        match side {
            Side::Source => (self.source, "source"),
            Side::Target => (self.target, "target"),
        }
    }
}

/// The table of keys is what is documented, so nothing else may be read.
fn check(name: &str) {
    debug_assert!(keys::is_used(name), "{name} is missing in the table of keys");
}

impl Reader {
    /// Takes the entries over; of several with one key the last counts, as in Java.
    pub(super) fn new(properties: Properties, file: &str) -> Self {
        let mut reader = Self {
            file: file.to_owned(),
            entries: BTreeMap::new(),
            asked: BTreeSet::new(),
            commented: BTreeSet::new(),
            faults: Vec::new(),
            notes: Vec::new(),
        };
        for (line, reason) in properties.faults {
            let mut fault = Fault::of_file(reason);
            fault.line = Some(line);
            reader.faults.push(fault);
        }
        for (line, text) in properties.oddities {
            reader.note(Some(line), None, text);
        }
        for entry in properties.entries {
            let line = entry.line;
            if let Some(former) = reader.entries.insert(entry.key.clone(), entry) {
                let text = format!("set again on line {line}, which is the value that counts");
                reader.note(Some(former.line), Some(former.key), text);
            }
        }
        reader
    }

    pub(super) fn note(&mut self, line: Option<usize>, key: Option<String>, text: impl Into<String>) {
        self.notes.push(Note { line, key, text: text.into(), file: self.file.clone() });
    }

    pub(super) fn note_entry(&mut self, entry: &Entry, text: impl Into<String>) {
        self.note(Some(entry.line), Some(entry.key.clone()), text);
    }

    pub(super) fn fault(&mut self, entry: &Entry, reason: impl Into<String>) {
        let mut reason = reason.into();
        if has_comment(&entry.value) {
            reason
                .push_str("; there are no inline comments in this format, so the text from # on is part of the value");
        }
        self.faults.push(Fault::of_entry(entry, reason));
    }

    /// The strongest entry among these names, which all count as read.
    pub(super) fn find(&mut self, names: &[String]) -> Option<Entry> {
        self.asked.extend(names.iter().cloned());
        names.iter().find_map(|name| self.entries.get(name)).cloned()
    }

    /// The strongest entry's value; a fault if it is not accepted.
    pub(super) fn read<T>(&mut self, names: &[String], parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        let entry = self.find(names)?;
        if let Some(reference) = values::provider_reference(&entry.value) {
            let reason =
                format!("{reference} is not resolved: config providers are not yet supported; write the value itself");
            self.fault(&entry, reason);
            return None;
        }
        match parse(&entry.value) {
            Ok(value) => {
                if has_comment(&entry.value) && self.commented.insert(entry.line) {
                    let text = "the text from # on is part of the value; there are no inline comments in this format";
                    self.note_entry(&entry, text);
                }
                Some(value)
            }
            Err(reason) => {
                self.fault(&entry, reason);
                None
            }
        }
    }

    /// A value that has to be there if `names` has none, its absence is a fault.
    pub(super) fn missing(&mut self, key: &str, reason: impl Into<String>) {
        self.faults.push(Fault { line: None, key: Some(key.to_owned()), value: None, reason: reason.into() });
    }

    /// Every entry, in the order of keys.
    pub(super) fn entries(&self) -> Vec<Entry> {
        self.entries.values().cloned().collect()
    }

    /// The entries nothing has asked for.
    pub(super) fn leftover(&self) -> Vec<Entry> {
        let asked = |entry: &&Entry| !self.asked.contains(&entry.key);
        self.entries.values().filter(asked).cloned().collect()
    }

    /// Counts an entry as dealt with.
    pub(super) fn settle(&mut self, key: &str) {
        self.asked.insert(key.to_owned());
    }
}

/// Whether a value looks as if it had a comment behind it.
fn has_comment(value: &str) -> bool {
    value.contains(" #") || value.contains("\t#")
}
