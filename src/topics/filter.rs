//! `topics` and `topics.exclude`: MirrorMaker's `DefaultTopicFilter`.

use super::pattern::{JavaPattern, PatternError, PatternWarning};

/// MirrorMaker's default of `topics`.
pub const DEFAULT_TOPICS: &[&str] = &[".*"];

/// MirrorMaker's default of `topics.exclude`; a value set by the user replaces it as a whole.
pub const DEFAULT_TOPICS_EXCLUDE: &[&str] = &[r".*[\-\.]internal", r".*\.replica", "__.*"];

/// Two lists of Java patterns; a topic passes if it matches the first as a whole and not the second.
#[derive(Clone, Debug)]
pub struct TopicFilter {
    include: JavaPattern,
    exclude: JavaPattern,
}

/// What a [`TopicFilter`] says about one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterVerdict {
    /// In `topics`, not in `topics.exclude`.
    Included,
    /// Not in `topics`.
    NotIncluded,
    /// In `topics.exclude`, which wins.
    Excluded,
    /// A pattern with look-around or back references gave up on this name (backtrack limit); to be reported, not
    /// passed over.
    TooCostly,
}

impl TopicFilter {
    /// Compiles both lists. Items are joined by `|`, as Java does, so flags set in one item reach the following ones.
    /// An empty list matches nothing.
    ///
    /// # Errors
    /// [`PatternError`] for what Java would refuse, and for what neither engine here can express.
    pub fn new<S: AsRef<str>>(include: &[S], exclude: &[S]) -> Result<Self, PatternError> {
        Ok(Self { include: JavaPattern::any_of(include)?, exclude: JavaPattern::any_of(exclude)? })
    }

    /// Puts two lists together that were compiled one by one (so that both can be found faulty in one pass).
    pub fn from_patterns(include: JavaPattern, exclude: JavaPattern) -> Self {
        Self { include, exclude }
    }

    /// Whether the filter lets this topic through.
    pub fn matches(&self, topic: &str) -> bool {
        self.judge(topic) == FilterVerdict::Included
    }

    /// Whether the filter lets this topic through, and if not, which list said so.
    pub fn judge(&self, topic: &str) -> FilterVerdict {
        match (self.exclude.matches(topic), self.include.matches(topic)) {
            (Some(true), _) => FilterVerdict::Excluded,
            (_, Some(false)) => FilterVerdict::NotIncluded,
            (Some(false), Some(true)) => FilterVerdict::Included,
            (None, _) | (_, None) => FilterVerdict::TooCostly,
        }
    }

    /// The patterns of `topics`, as written.
    pub fn include(&self) -> &JavaPattern {
        &self.include
    }

    /// The patterns of `topics.exclude`, as written.
    pub fn exclude(&self) -> &JavaPattern {
        &self.exclude
    }

    /// What the patterns mean to Java that their author may not have meant.
    pub fn warnings(&self) -> impl Iterator<Item = &PatternWarning> {
        self.include.warnings().iter().chain(self.exclude.warnings())
    }
}

impl Default for TopicFilter {
    /// MirrorMaker's defaults: everything but internal topics and names ending in `.replica`.
    fn default() -> Self {
        Self::new(DEFAULT_TOPICS, DEFAULT_TOPICS_EXCLUDE)
            .expect("the default patterns are constants that the tests of this file compile")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_leave_internal_topics_out() {
        let filter = TopicFilter::default();
        for topic in ["orders", "a.b", "_schemas", "heartbeats"] {
            assert!(filter.matches(topic), "{topic}");
        }
        for topic in ["x.internal", "x-internal", "orders.replica", "__consumer_offsets"] {
            assert_eq!(filter.judge(topic), FilterVerdict::Excluded, "{topic}");
        }
    }

    #[test]
    fn exclude_wins_and_names_match_as_a_whole() {
        let filter = TopicFilter::new(&["orders", "pay.*"], &["payments-test"]).unwrap();
        assert!(filter.matches("orders"));
        assert!(filter.matches("payments"));
        assert_eq!(filter.judge("orders2"), FilterVerdict::NotIncluded);
        assert_eq!(filter.judge("my-orders"), FilterVerdict::NotIncluded);
        assert_eq!(filter.judge("payments-test"), FilterVerdict::Excluded);
    }

    #[test]
    fn an_empty_list_matches_nothing() {
        assert!(!TopicFilter::new::<&str>(&[], &[]).unwrap().matches("x"));
        assert!(TopicFilter::new(&[".*"], &[]).unwrap().matches("x"));
    }

    #[test]
    fn a_pattern_that_gives_up_is_its_own_verdict() {
        let filter = TopicFilter::new(&["(?=x)(?:x+x+)+y(?<=y)"], &[]).unwrap();
        assert_eq!(filter.judge(&"x".repeat(240)), FilterVerdict::TooCostly);
    }
}
