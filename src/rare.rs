//! Log lines that may come by the thousand: so many of a kind in half a minute, and then the number of those left out.
//!
//! Ten thousand partitions can fail at once, and a broker can take and drop connections all day long. Whoever is about to
//! log such a line asks [`Rare::allows`]; somebody who wakes up now and then says what [`Rare::left_out`] returns.

use std::{cell::RefCell, collections::BTreeMap, time::Duration};

use tokio::time::Instant;

/// Lines of one kind are counted for this long.
pub const WINDOW: Duration = Duration::from_secs(30);
/// Kinds that are remembered; beyond that nothing new is said before one of them is over.
const KINDS_MAX: usize = 1000;

/// A kind of line: what happened, and to which broker (or whatever is counted), if that matters.
type Kind = (&'static str, i32);

/// Counts lines by their kind. Lives on one thread.
#[derive(Debug, Default)]
pub struct Rare(RefCell<BTreeMap<Kind, Counted>>);

#[derive(Debug)]
struct Counted {
    since: Instant,
    said: u32,
    left_out: u64,
}

impl Rare {
    /// Whether the line is to be written: the first of its kind in a window.
    pub fn allows(&self, now: Instant, what: &'static str, about: i32) -> bool {
        self.allows_some(now, what, about, 1)
    }

    /// Whether the line is to be written: one of the first `some` of its kind in a window.
    pub fn allows_some(&self, now: Instant, what: &'static str, about: i32, some: u32) -> bool {
        let mut kinds = self.0.borrow_mut();
        if kinds.len() >= KINDS_MAX {
            kinds.retain(|_, counted| counted.left_out > 0 || !counted.is_over(now));
            if kinds.len() >= KINDS_MAX && !kinds.contains_key(&(what, about)) {
                return false;
            }
        }
        let counted = kinds.entry((what, about)).or_insert(Counted { since: now, said: 0, left_out: 0 });
        if counted.is_over(now) && counted.left_out == 0 {
            (counted.since, counted.said) = (now, 0);
        }
        if counted.said < some {
            counted.said += 1;
            return true;
        }
        counted.left_out += 1;
        false
    }

    /// The kinds of which lines were left out in a window that is over, and how many. A new one begins.
    pub fn left_out(&self, now: Instant) -> Vec<(&'static str, i32, u64)> {
        let mut told = Vec::new();
        self.0.borrow_mut().retain(|(what, about), counted| {
            if !counted.is_over(now) {
                return true;
            }
            if counted.left_out > 0 {
                told.push((*what, *about, counted.left_out));
            }
            // What goes on and on is summed up once a window, without a line of its own in between.
            (counted.since, counted.left_out) = (now, 0);
            told.last().is_some_and(|(last, at, _)| (last, at) == (what, about))
        });
        told
    }
}

impl Counted {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= WINDOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_one_line_and_a_sum_each_window() {
        let start = Instant::now();
        let rare = Rare::default();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let lines = (0..10_000).filter(|_| rare.allows(start, "refused", 1)).count();
        assert_eq!(lines, 1);
        assert!(rare.allows(start, "refused", 2), "another broker");
        assert!(rare.left_out(at(29)).is_empty());
        assert_eq!(rare.left_out(at(30)), [("refused", 1, 9_999)]);
        assert!(!rare.allows(at(31), "refused", 1), "it goes on: summed up only");
        assert_eq!(rare.left_out(at(60)), [("refused", 1, 1)]);
        assert!(rare.left_out(at(90)).is_empty());
        assert!(rare.allows(at(91), "refused", 1), "it was over");
    }

    #[test]
    fn without_a_listener_a_line_comes_once_a_window() {
        let start = Instant::now();
        let rare = Rare::default();
        let said = (0..100).filter(|second| rare.allows(start + Duration::from_secs(*second), "x", 0)).count();
        assert_eq!(said, 1, "what was left out is still to be told");
        let rare = Rare::default();
        let said = (0..10).filter(|round| rare.allows(start + WINDOW * *round, "x", 0)).count();
        assert_eq!(said, 10);
        let said = (0..50).filter(|_| rare.allows_some(start + WINDOW * 20, "y", 0, 20)).count();
        assert_eq!(said, 20);
    }

    #[test]
    fn kinds_are_bounded() {
        let start = Instant::now();
        let rare = Rare::default();
        let said = (0..5000).filter(|about| rare.allows(start, "x", *about)).count();
        assert_eq!(said, KINDS_MAX);
        assert!(rare.allows(start + WINDOW, "x", 4999));
    }
}
