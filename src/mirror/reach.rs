//! Whether a broker answers, as all who ask it have seen: what the partitions that wait for it are shown with.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use tokio::time::Instant;

use crate::net::DialError;

/// A broker that owes an answer for longer is said to be silent.
const SILENCE: Duration = Duration::from_secs(5);
/// Nothing that is asked goes on for longer without being asked again: an older question was given up.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// Why a broker cannot be used, if it cannot.
type Trouble = Option<Rc<str>>;

/// Which of a flow's clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Side {
    Source,
    Target,
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Source => "source",
            Self::Target => "target",
        })
    }
}

/// One broker, shared by everybody on this thread who asks it. Any answer proves it well.
#[derive(Debug)]
pub(crate) struct Reach {
    /// How long it may take to answer before that is worth a word.
    allowance: Duration,
    /// The oldest question since the last answer.
    since: Cell<Option<Instant>>,
    asked_at: Cell<Option<Instant>>,
    /// A quota of ours is used up there: since when, until when.
    throttled: Cell<Option<(Instant, Instant)>>,
    /// Why the last connection could not be opened.
    failed: RefCell<Option<Rc<str>>>,
    /// What was said of it last.
    shown: RefCell<Option<Rc<str>>>,
}

impl Reach {
    /// `wait` is how long the broker is allowed to wait with an answer.
    pub(crate) fn new(wait: Duration) -> Self {
        Self {
            allowance: SILENCE + wait,
            since: Cell::new(None),
            asked_at: Cell::new(None),
            throttled: Cell::new(None),
            failed: RefCell::default(),
            shown: RefCell::default(),
        }
    }

    /// Something is asked of it.
    pub(crate) fn asked(&self, now: Instant) {
        let forgotten = self.asked_at.get().is_none_or(|at| now.saturating_duration_since(at) > FORGOTTEN);
        if forgotten || self.since.get().is_none() {
            self.since.set(Some(now));
        }
        self.asked_at.set(Some(now));
    }

    /// It answered something.
    pub(crate) fn answered(&self) {
        self.since.set(None);
        if self.failed.borrow().is_some() {
            *self.failed.borrow_mut() = None;
        }
    }

    /// It answered that a quota is used up, and reads nothing of us until then.
    pub(crate) fn throttled(&self, now: Instant, until: Instant) {
        self.throttled.set(Some((now, until)));
    }

    /// A connection broke. Whether the broker is well is seen with the next one.
    pub(crate) fn hung_up(&self) {
        self.since.set(None);
    }

    /// No connection could be opened.
    pub(crate) fn refused(&self, error: &DialError) {
        // How long it has been silent says more than that the handshake had a deadline.
        if !error.is_silence() {
            self.unknown(&error.to_string());
        }
    }

    /// There is nothing to connect to.
    pub(crate) fn unknown(&self, why: &str) {
        self.since.set(None);
        if self.failed.borrow().as_deref() != Some(why) {
            *self.failed.borrow_mut() = Some(why.into());
        }
    }

    /// What keeps those waiting who need it, if anything does.
    pub(crate) fn trouble(&self, now: Instant) -> Trouble {
        if let Some(why) = &*self.failed.borrow() {
            return Some(why.clone());
        }
        if let Some((since, until)) = self.throttled.get()
            && now < until
            && until.duration_since(since) >= SILENCE
        {
            return Some(
                format!("a quota there is used up: it reads nothing of us for {} s", rounded_up(until, now)).into(),
            );
        }
        let silent = now.saturating_duration_since(self.since.get()?);
        (silent >= self.allowance).then(|| format!("no answer for {} s", rounded(silent.as_secs())).into())
    }

    /// The trouble before and now, where it changed since the last call.
    pub(crate) fn turned(&self, now: Instant) -> Option<(Trouble, Trouble)> {
        let trouble = self.trouble(now);
        let mut shown = self.shown.borrow_mut();
        if *shown == trouble {
            return None;
        }
        Some((std::mem::replace(&mut *shown, trouble.clone()), trouble))
    }
}

/// Every new word is told for each partition that waits, so the seconds do not tick singly.
fn rounded(seconds: u64) -> u64 {
    let step = if seconds < 60 { 5 } else { 30 };
    seconds - seconds % step
}

fn rounded_up(until: Instant, now: Instant) -> u64 {
    rounded(until.duration_since(now).as_secs()) + 5
}

#[cfg(test)]
mod tests {
    use std::{io, sync::Arc};

    use super::*;

    fn at(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    fn said(reach: &Reach, now: Instant) -> Option<String> {
        reach.trouble(now).map(|why| why.to_string())
    }

    #[test]
    fn a_silent_broker_is_named_after_five_seconds_and_until_it_answers() {
        let start = Instant::now();
        let reach = Reach::new(Duration::ZERO);
        assert_eq!(said(&reach, start), None);
        reach.asked(start);
        reach.asked(at(start, 4));
        assert_eq!(said(&reach, at(start, 4)), None);
        assert_eq!(said(&reach, at(start, 6)).as_deref(), Some("no answer for 5 s"));
        assert_eq!(reach.turned(at(start, 6)), Some((None, Some("no answer for 5 s".into()))));
        assert_eq!(reach.turned(at(start, 9)), None);
        reach.asked(at(start, 50));
        assert_eq!(said(&reach, at(start, 100)).as_deref(), Some("no answer for 90 s"));
        reach.answered();
        assert_eq!(said(&reach, at(start, 100)), None);
        assert_eq!(reach.turned(at(start, 100)), Some((Some("no answer for 5 s".into()), None)));
    }

    #[test]
    fn a_question_that_was_given_up_does_not_age_the_next_one() {
        let start = Instant::now();
        let reach = Reach::new(Duration::from_secs(1));
        reach.asked(start);
        reach.asked(at(start, 100));
        assert_eq!(said(&reach, at(start, 105)), None);
        assert_eq!(said(&reach, at(start, 106)).as_deref(), Some("no answer for 5 s"));
    }

    #[test]
    fn a_quota_that_is_used_up_for_long_is_named() {
        let start = Instant::now();
        let reach = Reach::new(Duration::ZERO);
        reach.throttled(start, at(start, 4));
        assert_eq!(said(&reach, start), None, "a short one is not worth a word");
        reach.throttled(start, at(start, 20));
        let word = "a quota there is used up: it reads nothing of us for 15 s";
        assert_eq!(said(&reach, at(start, 6)).as_deref(), Some(word));
        assert_eq!(said(&reach, at(start, 20)), None);
    }

    #[test]
    fn a_refused_connection_is_named_at_once() {
        let start = Instant::now();
        let reach = Reach::new(Duration::ZERO);
        reach.asked(start);
        let error = io::Error::from_raw_os_error(111);
        reach.refused(&DialError::Connect { peer: "b1:9092".into(), error: Arc::new(error) });
        assert_eq!(said(&reach, start).as_deref(), Some("cannot connect to b1:9092: Connection refused"));
        reach.asked(at(start, 1));
        assert_eq!(said(&reach, at(start, 1)).as_deref(), Some("cannot connect to b1:9092: Connection refused"));
        reach.answered();
        assert_eq!(said(&reach, at(start, 1)), None);
    }
}
