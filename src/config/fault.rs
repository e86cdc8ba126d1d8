//! What is wrong with a file, and what is worth knowing about it.

use std::fmt;

/// Every fault of a file; its `Display` has a line for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors {
    file: String,
    faults: Vec<Fault>,
    notes: Vec<Note>,
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// The line, from 1; `None` where something is missing.
    pub line: Option<usize>,
    /// The key as written in the file, if the fault has one.
    pub key: Option<String>,
    /// The value as written, if there is one; of secrets only that there is one.
    pub value: Option<String>,
    /// What is wrong, what is accepted.
    pub reason: String,
}

/// A remark that stops nothing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    /// The line, from 1.
    pub line: Option<usize>,
    /// The key as written, if it is about one.
    pub key: Option<String>,
    /// The remark.
    pub text: String,
    /// The file, for `Display`.
    pub file: String,
}

impl ConfigErrors {
    /// Sorts the faults by line and drops repetitions.
    pub(super) fn new(file: String, mut faults: Vec<Fault>, mut notes: Vec<Note>) -> Self {
        faults.sort();
        faults.dedup();
        notes.sort();
        notes.dedup();
        Self { file, faults, notes }
    }

    /// At least one, in the order of lines.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// What else was noticed; a fault's cause may be among it, such as a key with a slip in it.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }
}

impl Fault {
    /// A fault of the file as a whole.
    pub(super) fn of_file(reason: impl Into<String>) -> Self {
        Self { line: None, key: None, value: None, reason: reason.into() }
    }

    /// A fault of one entry. Secrets are not repeated.
    pub(super) fn of_entry(entry: &super::Entry, reason: impl Into<String>) -> Self {
        let value = if is_secret(&entry.key) { "[hidden]".to_owned() } else { entry.value.clone() };
        Self { line: Some(entry.line), key: Some(entry.key.clone()), value: Some(value), reason: reason.into() }
    }
}

/// Whether a key's value must not be shown.
pub(super) fn is_secret(key: &str) -> bool {
    ["password", "jaas", "secret", "keystore.key", "ssl.key", "credential", "token"]
        .iter()
        .any(|word| key.to_ascii_lowercase().contains(word))
}

impl std::error::Error for ConfigErrors {}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, fault) in self.faults.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            place(f, &self.file, fault.line)?;
            write!(f, "{fault}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Fault {
    /// Without file and line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(key) = &self.key {
            f.write_str(key)?;
            if let Some(value) = &self.value {
                write!(f, " = {}", value.escape_debug())?;
            }
            f.write_str(": ")?;
        }
        f.write_str(&self.reason)
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        place(f, &self.file, self.line)?;
        if let Some(key) = &self.key {
            write!(f, "{key}: ")?;
        }
        f.write_str(&self.text)
    }
}

fn place(f: &mut fmt::Formatter<'_>, file: &str, line: Option<usize>) -> fmt::Result {
    match line {
        Some(line) => write!(f, "{file}:{line}: "),
        None => write!(f, "{file}: "),
    }
}
