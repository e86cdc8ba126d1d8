//! Java regular expressions over topic names, on engines that are not Java's.

/// Steps a pattern with look-around may take on one name.
const BACKTRACK_LIMIT: usize = 100_000;

/// A list of Java patterns joined by `|`, matched against whole names.
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
    /// What is wrong and what to write instead.
    pub reason: String,
}

/// A pattern that works as in Java, though its author may have meant something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternWarning {
    /// The item.
    pub pattern: String,
    /// What it means.
    pub meaning: String,
}

impl JavaPattern {
    /// Compiles a list.
    ///
    /// # Errors
    /// [`PatternError`] for what Java refuses or what cannot be expressed here.
    pub fn any_of<S: AsRef<str>>(items: &[S]) -> Result<Self, PatternError> {
        let items: Vec<String> = items.iter().map(|item| item.as_ref().to_owned()).collect();
        let whole = format!(r"\A(?:{})\z", items.join("|"));
        let engine = if items.is_empty() {
            Engine::Nothing
        } else if let Ok(regex) = regex::Regex::new(&whole) {
            Engine::Linear(regex)
        } else {
            Engine::Backtracking(
                fancy_regex::RegexBuilder::new(&whole)
                    .backtrack_limit(BACKTRACK_LIMIT)
                    .build()
                    .map_err(|error| PatternError {
                        pattern: items.join("|"),
                        reason: error.to_string(),
                    })?,
            )
        };
        Ok(Self {
            items,
            engine,
            warnings: Vec::new(),
        })
    }

    /// Whether the whole name matches; `None` if the pattern took too many steps.
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
