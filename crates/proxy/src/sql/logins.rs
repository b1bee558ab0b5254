//! How logins end: what is counted of them, what the log hears of those that fail, and how many an address
//! may fail.

use std::sync::atomic::{AtomicU64, Ordering};

mod failed;
mod failures;

pub(crate) use failed::{Caller, FailedLogins};
pub(crate) use failures::Failures;

/// Why the gate itself refused a login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// There are as many clients as may be.
    Full,
    /// A wrong password or an unknown user.
    Denied,
    /// Too many logins of its address have failed.
    Limited,
    /// It took too long.
    Late,
    Other,
}

/// How the logins of a gate ended, since its start.
#[derive(Debug, Default)]
pub(crate) struct LoginCounts {
    pub(crate) succeeded: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) refused: AtomicU64,
    /// Of the failed ones: those with a wrong password or an unknown user, by the gate's own judgment.
    pub(crate) denied: AtomicU64,
    /// Of the failed ones: those that weren't even tried, after too many of their address.
    pub(crate) limited: AtomicU64,
    /// Of the failed ones: those that took too long.
    pub(crate) late: AtomicU64,
    /// Connections that are no session yet.
    pub(crate) unfinished: AtomicU64,
    /// Clients that prove who they are, or wait for the server to take them (MySQL).
    pub(crate) logging_in: AtomicU64,
}

/// Counts a connection in a figure while it is held.
pub(crate) struct Counting<'a>(&'a AtomicU64);

impl<'a> Counting<'a> {
    fn new(figure: &'a AtomicU64) -> Self {
        figure.fetch_add(1, Ordering::Relaxed);
        Self(figure)
    }
}

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl LoginCounts {
    /// A connection has come; it is no session yet.
    pub(crate) fn begin(&self) -> Counting<'_> {
        Counting::new(&self.unfinished)
    }

    /// A client logs in.
    pub(crate) fn log_in(&self) -> Counting<'_> {
        Counting::new(&self.logging_in)
    }

    /// The client is logged in.
    pub(crate) fn succeed(&self) {
        self.succeeded.fetch_add(1, Ordering::Relaxed);
    }

    /// The server refused the client.
    pub(crate) fn fail(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// The gate refused the client: there was no place for it, or its login went wrong.
    pub(crate) fn refuse(&self, cause: Cause) {
        let counter = if cause == Cause::Full { &self.refused } else { &self.failed };
        counter.fetch_add(1, Ordering::Relaxed);
        let cause = match cause {
            Cause::Denied => &self.denied,
            Cause::Limited => &self.limited,
            Cause::Late => &self.late,
            Cause::Full | Cause::Other => return,
        };
        cause.fetch_add(1, Ordering::Relaxed);
    }
}
