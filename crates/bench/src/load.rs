//! The load generator: request types as data, a schedule drawn beforehand, and clients that behave as
//! application servers do.
//!
//! **Open loop.** Arrivals are a Poisson process drawn from a seed before the run, so that every variant of
//! an experiment meets the same arrivals with the same parameters. Each request takes one of N connections
//! of a client-side pool, or waits in FIFO order for one. Its response time runs from its *scheduled*
//! arrival (not from when the client got around to it), so a slow client or a full pool can't hide waiting:
//! the mistake known as coordinated omission. A request that isn't answered within its time-out is given up
//! and charged at the full time-out.
//!
//! **Closed loop.** A crowd: N clients, each sending its next request as soon as the last one was answered,
//! with all that clients do besides: they think, wait only so long, try again, connect anew, and come in
//! groups.

mod client;
mod connections;
mod crowd;
mod execution;
mod mariadb;
mod mix;
mod open;
mod said;
mod schedule;
mod speed;
mod usage;

use std::time::Duration;

pub use client::{Client, Target};
pub use connections::ConnectionPool;
pub use crowd::{Connecting, Crowd, CrowdOutcome, Group, Served, run_errand};
pub use mix::{Draw, Mix, RequestType, Statement, Unit, VALUES_MAX};
pub use open::{OpenOutcome, OpenRun};
pub use said::{DatabaseError, REFUSED};
pub use schedule::{ARRIVALS_MAX, Arrival, Schedule};
pub use speed::SpeedMeter;
pub use usage::{CpuMeter, FamilyMeter, ProcessorMeter};

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Every statement was answered without an error.
    Completed,
    /// The client gave up, in its own pool's queue or while the server worked.
    TimedOut,
    /// The server (or a gate before it) refused for want of room ([`DatabaseError::is_refusal`]). It isn't
    /// sent again.
    Rejected,
    /// Any other error.
    Failed,
}

/// What became of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it was scheduled to arrive, since the start of the run.
    pub due: Duration,
    /// Index of its type in the mix.
    pub request_type: u16,
    /// How it ended.
    pub outcome: Outcome,
    /// From its scheduled arrival to its end.
    pub response: Duration,
    /// How often it was sent again after an error that its type retries.
    pub retries: u32,
}

impl Record {
    /// The response time that the request is charged with: the full time-out unless it completed, because a
    /// fast refusal isn't a fast answer.
    pub fn charged(&self, timeout: Duration) -> Duration {
        if self.outcome == Outcome::Completed { self.response } else { self.response.max(timeout) }
    }

    /// When it ended, since the start of the run.
    pub fn end(&self) -> Duration {
        self.due + self.response
    }
}
