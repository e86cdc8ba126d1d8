//! How much memory fetched frames may hold.
//!
//! A slice keeps its whole frame alive, so frames are what is counted. A frame is charged once to the budget of the
//! worker, and once to each lane that holds a slice of it: a dead target broker can then pin at most its lane's share,
//! whatever the sizes of its slices. Counters of one thread; nothing is shared.

use std::{cell::Cell, rc::Rc};

use crate::simulation;

/// A counter with a limit.
#[derive(Debug)]
pub struct Account {
    limit: usize,
    used: Cell<usize>,
    /// It is a worker's own, not that of a lane.
    whole: bool,
    /// Set when something was returned since [`Account::take_returned`].
    returned: Cell<bool>,
}

impl Account {
    /// An account of `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Rc<Self> {
        Rc::new(Self { limit, used: Cell::new(0), whole: false, returned: Cell::new(false) })
    }

    /// The account of a worker, for all its frames.
    #[must_use]
    pub fn of_worker(limit: usize) -> Rc<Self> {
        Rc::new(Self { limit, used: Cell::new(0), whole: true, returned: Cell::new(false) })
    }

    /// As given.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes held.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.get()
    }

    /// Whether `bytes` more fit. An empty account lets anything pass, so that one oversized batch still moves.
    #[must_use]
    pub fn fits(&self, bytes: usize) -> bool {
        self.used.get() == 0 || self.used.get() + bytes <= self.limit
    }

    /// Whether the share is spent.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.used.get() >= self.limit
    }

    /// Whether bytes came back since the last call.
    pub fn take_returned(&self) -> bool {
        self.returned.replace(false)
    }

    fn charge(&self, bytes: usize) {
        self.used.set(self.used.get() + bytes);
        if self.whole {
            simulation::note_memory(self.used.get(), self.limit);
        }
    }

    fn refund(&self, bytes: usize) {
        debug_assert!(self.used.get() >= bytes, "an account was refunded more than it was charged");
        self.used.set(self.used.get().saturating_sub(bytes));
        self.returned.set(true);
    }
}

/// Bytes charged to an account, refunded when dropped.
#[derive(Debug)]
pub struct Charge {
    account: Rc<Account>,
    bytes: usize,
}

impl Charge {
    /// Charges `bytes`, whether they fit or not: asking first is the caller's part.
    #[must_use]
    pub fn new(account: &Rc<Account>, bytes: usize) -> Self {
        account.charge(bytes);
        Self { account: account.clone(), bytes }
    }

    /// Makes the charge what was really used.
    pub fn resize(&mut self, bytes: usize) {
        if bytes > self.bytes {
            self.account.charge(bytes - self.bytes);
        } else {
            self.account.refund(self.bytes - bytes);
        }
        self.bytes = bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.account.refund(self.bytes);
    }
}

/// What each batch of a frame holds: its lane's charge for the frame, and with it the worker's.
#[derive(Debug, Clone)]
pub struct FrameHold(Rc<(Charge, Rc<Charge>)>);

impl FrameHold {
    /// A hold of one lane on a frame whose own charge is shared by all lanes that hold it.
    #[must_use]
    pub fn new(lane: &Rc<Account>, frame: &Rc<Charge>) -> Self {
        Self(Rc::new((Charge::new(lane, frame.bytes), frame.clone())))
    }

    /// A hold on bytes that were made from this frame and are no part of it, charged to the same accounts.
    #[must_use]
    pub fn of_copy(&self, bytes: usize) -> Self {
        let (lane, frame) = &*self.0;
        let frame = Rc::new(Charge::new(&frame.account, bytes));
        Self(Rc::new((Charge::new(&lane.account, bytes), frame)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_charged_once_per_lane_and_freed_with_its_last_slice() {
        let worker = Account::new(100);
        let lane = Account::new(50);
        let other = Account::new(50);
        let frame = Rc::new(Charge::new(&worker, 40));
        let hold = FrameHold::new(&lane, &frame);
        let second_slice = hold.clone();
        let elsewhere = FrameHold::new(&other, &frame);
        drop(frame);
        assert_eq!((worker.used(), lane.used(), other.used()), (40, 40, 40));
        drop(hold);
        assert_eq!((worker.used(), lane.used()), (40, 40));
        drop(second_slice);
        assert_eq!((worker.used(), lane.used(), other.used()), (40, 0, 40));
        drop(elsewhere);
        assert_eq!(worker.used(), 0);
        assert!(worker.take_returned());
    }

    #[test]
    fn an_oversized_frame_passes_an_empty_account_only() {
        let worker = Account::new(10);
        assert!(worker.fits(50));
        let _charge = Charge::new(&worker, 1);
        assert!(!worker.fits(50));
        assert!(worker.fits(9));
    }
}
