//! A waker that wakes the task that is there now.
//!
//! What is woken by a connection may change from request to request. Where a waker is kept, it is better
//! one that stays: it isn't cloned and given back each time, and the task that had the connection before is
//! not called for what concerns it no longer.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Wake, Waker};

use parking_lot::Mutex;

/// Passes calls on.
#[derive(Debug)]
pub(crate) struct Relay {
    to: Mutex<Waker>,
    /// One of the following.
    mood: AtomicU8,
}

/// Calls are passed on.
const LISTENS: u8 = 0;
/// They aren't.
const HUSHED: u8 = 1;
/// Nor was one that came.
const CALLED: u8 = 2;

impl Relay {
    /// To nobody yet.
    pub(crate) fn new() -> Self {
        Self { to: Mutex::new(Waker::noop().clone()), mood: AtomicU8::new(LISTENS) }
    }

    /// To this one from now on. What was called for before it may have missed: it has to look for itself.
    pub(crate) fn to(&self, waker: &Waker) {
        let mut known = self.to.lock();
        if !known.will_wake(waker) {
            let before = mem::replace(&mut *known, waker.clone());
            // The task that held it last may end with it: not under the lock.
            drop(known);
            drop(before);
        }
    }

    /// To nobody from now on.
    pub(crate) fn to_nobody(&self) {
        self.to(Waker::noop());
    }

    /// Passes nothing on until it listens again.
    pub(crate) fn hush(&self) {
        self.mood.store(HUSHED, Ordering::Relaxed);
    }

    /// Passes everything on again. Whether somebody has called meanwhile.
    pub(crate) fn listen(&self) -> bool {
        self.mood.swap(LISTENS, Ordering::AcqRel) == CALLED
    }

    /// Wakes the present user.
    pub(crate) fn call(&self) {
        // The task that hushes it is told of the call, and if it listens by now, the call is passed on.
        if self.mood.load(Ordering::Relaxed) != LISTENS
            && self.mood.fetch_update(Ordering::AcqRel, Ordering::Relaxed, called).is_ok()
        {
            return;
        }
        // Not under the lock: what is woken may be the last to hold the task, and end it.
        let waker = self.to.lock().clone();
        waker.wake();
    }
}

/// The mood behind a call that isn't passed on.
fn called(mood: u8) -> Option<u8> {
    (mood != LISTENS).then_some(CALLED)
}

impl Wake for Relay {
    fn wake(self: Arc<Self>) {
        self.call();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.call();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[derive(Default)]
    struct Called(AtomicU32);

    impl Wake for Called {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn who_is_there_is_called_and_nobody_else() {
        let (relay, called) = (Arc::new(Relay::new()), [(); 2].map(|()| Arc::new(Called::default())));
        let waker = Waker::from(Arc::clone(&relay));
        waker.wake_by_ref();
        for called in &called {
            relay.to(&Waker::from(Arc::clone(called)));
            waker.wake_by_ref();
        }
        relay.to_nobody();
        waker.wake();
        assert_eq!(called.map(|called| called.0.load(Ordering::Relaxed)), [1, 1]);
    }
    #[test]
    fn a_call_that_is_hushed_is_told_of_and_not_passed_on() {
        let (relay, called) = (Arc::new(Relay::new()), Arc::new(Called::default()));
        let count = || called.0.load(Ordering::Relaxed);
        relay.to(&Waker::from(Arc::clone(&called)));
        relay.hush();
        assert!(!relay.listen());
        relay.hush();
        relay.call();
        relay.call();
        assert!(relay.listen() && count() == 0);
        relay.call();
        assert!(!relay.listen() && count() == 1);
    }
}
