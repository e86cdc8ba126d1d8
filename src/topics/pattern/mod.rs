//! Java regular expressions over topic names, on engines that are not Java's.
//!
//! MirrorMaker joins a list with `|`, compiles it with `java.util.regex` and asks for a match of the whole name. The
//! joined text is rewritten here ([`translate()`]) so that it means the same to the `regex` crate, or, where it needs
//! look-around, back references, atomic groups or possessive quantifiers, to `fancy-regex` with a step limit. What
//! cannot be rewritten is refused. The test tables are Java's own answers (`dev/oracle/`).

mod translate;

use translate::{Translation, translate};

/// Steps a backtracking pattern may take on one name (at most 249 characters); a sane one needs a few hundred.
const BACKTRACK_LIMIT: usize = 100_000;

/// A list of Java patterns, matched against whole names.
#[derive(Clone, Debug)]
pub struct JavaPattern {
    items: Vec<String>,
    engine: Engine,
    warnings: Vec<PatternWarning>,
}

#[derive(Clone, Debug)]
enum Engine {
    Nothing,
    Linear(regex::Regex),
    Backtracking(fancy_regex::Regex),
}

/// A pattern that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("pattern {pattern:?}: {reason}")]
pub struct PatternError {
    /// The item of the list at fault, or the joined list where no single item is.
    pub pattern: String,
    /// What is wrong and, where there is one, what to write instead.
    pub reason: String,
}

/// A pattern that works as in Java, though its author may have meant something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternWarning {
    /// The joined list.
    pub pattern: String,
    /// What it means.
    pub meaning: String,
}

impl JavaPattern {
    /// Compiles a list; an empty one matches nothing.
    ///
    /// # Errors
    /// [`PatternError`] for what Java refuses, and for what cannot be expressed here (`\X`, `\p{javaLowerCase}`,
    /// `\N{…}`, the flag `x`, `--` inside a class).
    pub fn any_of<S: AsRef<str>>(items: &[S]) -> Result<Self, PatternError> {
        let items: Vec<String> = items.iter().map(|item| item.as_ref().to_owned()).collect();
        if items.is_empty() {
            return Ok(Self { items, engine: Engine::Nothing, warnings: Vec::new() });
        }
        let joined = items.join("|");
        let (engine, warnings) = compile(&joined).map_err(|reason| blame(&items, &joined, reason))?;
        let warnings =
            warnings.into_iter().map(|meaning| PatternWarning { pattern: joined.clone(), meaning }).collect();
        Ok(Self { items, engine, warnings })
    }

    /// Whether the whole name matches; `None` if the pattern took too many steps on it.
    pub fn matches(&self, name: &str) -> Option<bool> {
        match &self.engine {
            Engine::Nothing => Some(false),
            Engine::Linear(regex) => Some(regex.is_match(name)),
            Engine::Backtracking(regex) => regex.is_match(name).ok(),
        }
    }

    /// The list as written.
    pub fn items(&self) -> &[String] {
        &self.items
    }

    /// What may not be meant as Java reads it.
    pub fn warnings(&self) -> &[PatternWarning] {
        &self.warnings
    }
}

fn compile(joined: &str) -> Result<(Engine, Vec<String>), String> {
    let Translation { pattern, backtracking, warnings } = translate(joined)?;
    let whole = format!(r"\A(?:{pattern})\z");
    let engine = if backtracking {
        fancy_regex::RegexBuilder::new(&whole)
            .backtrack_limit(BACKTRACK_LIMIT)
            .build()
            .map(Engine::Backtracking)
            .map_err(|error| last_line(&error.to_string()))
    } else {
        regex::Regex::new(&whole).map(Engine::Linear).map_err(|error| last_line(&error.to_string()))
    };
    Ok((engine?, warnings))
}

/// The engines draw the pattern over several lines, or count positions, both in its rewritten form; what is left says
/// what is wrong.
fn last_line(text: &str) -> String {
    let line = text.lines().last().unwrap_or(text).trim();
    let line = match line.strip_prefix("Parsing error at position ") {
        Some(rest) => rest.split_once(": ").map_or(rest, |(_, reason)| reason),
        None => line,
    };
    ["error: ", "Error compiling regex: "]
        .into_iter()
        .find_map(|prefix| line.strip_prefix(prefix))
        .unwrap_or(line)
        .to_owned()
}

/// Names the item that is faulty by itself, if there is one.
fn blame(items: &[String], joined: &str, reason: String) -> PatternError {
    for item in items {
        if let Err(reason) = compile(item) {
            // `a{1,3}` arrives here as the items `a{1` and `3}`.
            let split = items.len() > 1 && item.contains('{') != item.contains('}');
            let hint = if split { "; lists are split at commas, so a pattern cannot contain one" } else { "" };
            return PatternError { pattern: item.clone(), reason: format!("{reason}{hint}") };
        }
    }
    PatternError { pattern: joined.to_owned(), reason }
}

#[cfg(test)]
mod tests;
