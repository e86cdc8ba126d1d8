//! The proof clock: until when this worker may send produce requests.
//!
//! Two things could take slots away behind our back, and each has its own oldest-possible start:
//!
//! - *Expiry*: the coordinator drops us one session timeout after it last heard from us. `session` is when the last request
//!   was sent that is known to have reached it as a member's: a commit or JoinGroup, or a trusted Heartbeat that said 0.
//! - *A rebalance without us*: it completes one rebalance timeout after it began (static members that did not rejoin stay
//!   listed, with metadata as of their last join, and get 22 afterwards; S13). Commits are answered 0 all through it, so
//!   they prove nothing here. `stable` is when the last request was sent that shows that no rebalance had begun: Heartbeat 0,
//!   SyncGroup 0, JoinGroup answered.
//!
//! The proof runs until the earlier of the two ends, less the margin. All times are of *sending*: the broker acted later.
//!
//! A coordinator that loads answers Heartbeat 0 to anybody (S13), so heartbeats count only while trusted: the trust ends with
//! a lapse, a lost connection or 14/15/16, and begins with a commit, JoinGroup or SyncGroup sent after that and answered 0.

use std::time::Duration;

use tokio::time::Instant;

#[derive(Debug)]
pub(super) struct Proof {
    session_timeout: Duration,
    rebalance_timeout: Duration,
    margin: Duration,
    session: Option<Instant>,
    stable: Option<Instant>,
    /// Whether the leader of the current generation knew what we hold. Not so from a JoinGroup answered after a lapse until
    /// its assignment is there and what it lacks is given up: a generation we missed may have given that away.
    covered: bool,
    /// Heartbeats sent from then on count.
    trusted_from: Option<Instant>,
    distrusted_at: Instant,
    lapsed_since: Option<Instant>,
}

impl Proof {
    pub(super) fn new(session_timeout: Duration, rebalance_timeout: Duration, margin: Duration, now: Instant) -> Self {
        Self {
            session_timeout,
            rebalance_timeout,
            margin,
            session: None,
            stable: None,
            covered: false,
            trusted_from: None,
            distrusted_at: now,
            lapsed_since: Some(now),
        }
    }

    pub(super) fn until(&self) -> Option<Instant> {
        let (session, stable) = (self.session?, self.stable?);
        let end = (session + self.session_timeout).min(stable + self.rebalance_timeout) - self.margin;
        self.covered.then_some(end)
    }

    pub(super) fn runs(&self, now: Instant) -> bool {
        self.until().is_some_and(|until| now < until)
    }

    /// When the last request was sent that proves us alive to the coordinator.
    pub(super) fn session(&self) -> Option<Instant> {
        self.session
    }

    pub(super) fn trusted(&self) -> bool {
        self.trusted_from.is_some()
    }

    pub(super) fn lapsed_since(&self) -> Option<Instant> {
        self.lapsed_since
    }

    /// Notices that the proof ran out, or runs again.
    pub(super) fn note_time(&mut self, now: Instant) {
        if self.runs(now) {
            self.lapsed_since = None;
        } else if self.lapsed_since.is_none() {
            self.lapsed_since = Some(self.until().unwrap_or(now).min(now));
            self.distrust(now);
        }
    }

    /// The coordinator may be another, or a new process, from here on.
    pub(super) fn distrust(&mut self, now: Instant) {
        self.trusted_from = None;
        self.distrusted_at = now;
    }

    /// The group went on without us (22) or dropped us (25).
    pub(super) fn clear(&mut self) {
        self.session = None;
        self.stable = None;
        self.covered = false;
    }

    /// Heartbeat answered 0. Says whether it counted.
    pub(super) fn heartbeat(&mut self, sent_at: Instant) -> bool {
        let counts = self.trusted_from.is_some_and(|from| sent_at >= from);
        if counts {
            self.session = self.session.max(Some(sent_at));
            self.stable = self.stable.max(Some(sent_at));
        }
        counts
    }

    /// A commit with our generation answered 0.
    pub(super) fn commit(&mut self, now: Instant, sent_at: Instant) {
        self.session = self.session.max(Some(sent_at));
        self.trust(now, sent_at);
    }

    /// JoinGroup answered. `same_generation`: it is the one whose assignment we hold.
    pub(super) fn joined(&mut self, now: Instant, sent_at: Instant, same_generation: bool) {
        // While a proof runs, no generation can have been completed without us (that is what it proves), so the leader has
        // our metadata. In the same generation nobody was given anything.
        self.covered &= same_generation || self.runs(now);
        if !same_generation {
            // What the former generation's commits prove lies before the new generation, and so before the next rebalance.
            self.stable = self.stable.max(self.session);
        }
        self.session = self.session.max(Some(sent_at));
        self.stable = self.stable.max(Some(sent_at));
        self.trust(now, sent_at);
    }

    /// SyncGroup answered 0. (It is answered 27 by a coordinator that loads: Kafka's source, not measured.)
    pub(super) fn synced(&mut self, now: Instant, sent_at: Instant) {
        self.stable = self.stable.max(Some(sent_at));
        self.trust(now, sent_at);
    }

    /// All that we hold is in the assignment of the current generation, or was known to its leader.
    pub(super) fn cover(&mut self, now: Instant) {
        self.covered = true;
        self.note_time(now);
    }

    pub(super) fn covered(&self) -> bool {
        self.covered
    }

    fn trust(&mut self, now: Instant, sent_at: Instant) {
        // Sent before the distrust, it may have been answered by the coordinator's former self.
        if self.trusted_from.is_none() && sent_at >= self.distrusted_at {
            self.trusted_from = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    /// Session timeout 10 s, rebalance timeout 30 s, margin 1 s; joined and synced at 0.
    fn settled(start: Instant) -> Proof {
        let mut proof = Proof::new(Duration::from_secs(10), Duration::from_secs(30), Duration::from_secs(1), start);
        assert_eq!(proof.until(), None);
        proof.joined(at(start, 5), start, false);
        assert_eq!(proof.until(), None, "nothing is proven for slots before the assignment");
        proof.synced(at(start, 9), at(start, 6));
        assert_eq!(proof.until(), None, "nor before what it lacks is given up");
        proof.cover(at(start, 9));
        assert_eq!(proof.until(), Some(at(start, 9000)));
        proof
    }

    #[test]
    fn it_counts_from_the_sending() {
        let start = Instant::now();
        let mut proof = settled(start);
        assert!(proof.heartbeat(at(start, 1000)));
        assert_eq!(proof.until(), Some(at(start, 10_000)));
        proof.commit(at(start, 3000), at(start, 2000));
        assert_eq!(proof.until(), Some(at(start, 11_000)));
        assert!(proof.heartbeat(at(start, 1500)), "a late answer counts but takes nothing back");
        assert_eq!(proof.until(), Some(at(start, 11_000)));
    }

    #[test]
    fn commits_alone_end_with_the_rebalance_timeout() {
        let start = Instant::now();
        let mut proof = settled(start);
        for ms in (1000..60_000).step_by(1000) {
            proof.commit(at(start, ms), at(start, ms));
        }
        assert_eq!(proof.until(), Some(at(start, 6 + 29_000)));
    }

    #[test]
    fn a_heartbeat_proves_nothing_after_distrust_until_a_later_commit() {
        let start = Instant::now();
        let mut proof = settled(start);
        proof.distrust(at(start, 100));
        assert!(!proof.heartbeat(at(start, 200)));
        proof.commit(at(start, 300), at(start, 50));
        assert!(!proof.trusted(), "sent before the distrust");
        proof.commit(at(start, 300), at(start, 250));
        assert!(!proof.heartbeat(at(start, 299)));
        assert!(proof.heartbeat(at(start, 300)));
    }

    #[test]
    fn after_a_lapse_a_join_into_a_new_generation_waits_for_the_assignment() {
        let start = Instant::now();
        let mut proof = settled(start);
        proof.note_time(at(start, 9500));
        assert_eq!(proof.lapsed_since(), Some(at(start, 9000)));
        assert!(!proof.trusted());
        proof.joined(at(start, 9600), at(start, 9550), false);
        assert_eq!(proof.until(), None);
        proof.synced(at(start, 9700), at(start, 9650));
        proof.cover(at(start, 9700));
        assert_eq!(proof.until(), Some(at(start, 18_550)));

        let mut proof = settled(start);
        proof.note_time(at(start, 9500));
        proof.joined(at(start, 9600), at(start, 9550), true);
        assert_eq!(proof.until(), Some(at(start, 18_550)), "in the same generation nobody was given anything");
    }
}
