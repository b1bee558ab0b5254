//! A waker that wakes whoever is there now.
//!
//! What is woken by a connection may change from request to request. Where a waker is kept, it is better one that stays: it isn't
//! cloned and given back each time, and who had the connection before isn't called for what concerns him no longer.

use std::mem;
use std::sync::Arc;
use std::task::{Wake, Waker};

use parking_lot::Mutex;

/// Passes calls on.
#[derive(Debug)]
pub(crate) struct Relay(Mutex<Waker>);

impl Relay {
    /// To nobody yet.
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Waker::noop().clone()))
    }

    /// To this one from now on. What was called for before it may have missed: it has to look for itself.
    pub(crate) fn to(&self, waker: &Waker) {
        let mut known = self.0.lock();
        if !known.will_wake(waker) {
            let before = mem::replace(&mut *known, waker.clone());
            // Who held it last may end with it: not under the lock.
            drop(known);
            drop(before);
        }
    }

    /// To nobody from now on.
    pub(crate) fn to_nobody(&self) {
        self.to(Waker::noop());
    }

    /// Wakes it.
    pub(crate) fn call(&self) {
        // Not under the lock: what is woken may be the last to hold the task, and end it.
        let waker = self.0.lock().clone();
        waker.wake();
    }
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
    use std::sync::atomic::{AtomicU32, Ordering};

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
}
