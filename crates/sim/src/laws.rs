//! What holds in every run, whatever the scenario: checked after each.
//!
//! A broken law is a defect of the laboratory or of the gate, never a property of the scenario.

use std::fmt;

use admission::{Snapshot, Work};

use crate::record::{Outcome, Row};

/// A law that a run broke, with what was seen.
#[derive(Clone, Debug, PartialEq)]
pub enum Law {
    /// Each ticket ends exactly once, and none before it began.
    Tickets(String),
    /// At the end nothing waits, nothing is in flight, and the gate's load is 0.
    Empty(String),
    /// The work that was done is the service time of what was completed, and what was done of the rest.
    Work {
        /// What the service did, in seconds.
        done: f64,
        /// What was asked of it and given, in seconds.
        given: f64,
    },
    /// The time that requests spent, counted by requests, is the time that they were there, counted by the
    /// clock (Little).
    Little {
        /// By requests, in nanoseconds.
        requests: u128,
        /// By the clock, in nanoseconds.
        clock: u128,
    },
    /// No event of the gate is lost.
    Events(u64),
}

impl fmt::Display for Law {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tickets(what) | Self::Empty(what) => f.write_str(what),
            Self::Work { done, given } => write!(f, "{done} s of work were done for {given} s of it"),
            Self::Little { requests, clock } => {
                write!(f, "requests spent {requests} ns where they were seen for {clock} ns")
            }
            Self::Events(lost) => write!(f, "{lost} events of the gate were lost"),
        }
    }
}

/// What the engine counted beside the rows.
#[derive(Debug, Default)]
pub(crate) struct Books {
    /// Requests in the gate × nanoseconds, over the whole run.
    pub(crate) present: u128,
    /// For how long those were there whose clients had left, and who were never let in, in nanoseconds.
    pub(crate) abandoned: u128,
    /// Work that the service did, in nanoseconds.
    pub(crate) done: f64,
    /// The service time of what it finished, and what it did of what was stopped, in nanoseconds.
    pub(crate) given: f64,
    pub(crate) queued: u64,
    pub(crate) in_flight: u64,
    pub(crate) events_lost: u64,
}

/// Floats keep the account of work: of so large a part of it they may lose track.
const ROUNDING: f64 = 1e-6;

/// Checks all laws.
pub(crate) fn check(rows: &[Row], books: &Books, end: &Snapshot) -> Result<(), Law> {
    if let Some((number, row)) = rows.iter().enumerate().find(|(_, row)| !is_whole(row)) {
        return Err(Law::Tickets(format!("request {number} didn't end as it began: {row:?}")));
    }
    let left = (end.queued, end.in_flight, end.connections_in_use, end.load);
    if left != (0, 0, 0, Work::ZERO) || (books.queued, books.in_flight) != (0, 0) {
        return Err(Law::Empty(format!(
            "at the end (queued, in flight, connections, load) are {left:?}; counted ({}, {})",
            books.queued, books.in_flight
        )));
    }
    let spent = rows.iter().map(|row| u128::from(row.left_gate().as_nanos() - row.arrived.as_nanos()));
    let requests = spent.sum::<u128>() + books.abandoned;
    if requests != books.present {
        return Err(Law::Little { requests, clock: books.present });
    }
    if (books.done - books.given).abs() > ROUNDING * books.done.max(1e3) {
        return Err(Law::Work { done: books.done / 1e9, given: books.given / 1e9 });
    }
    if books.events_lost > 0 { Err(Law::Events(books.events_lost)) } else { Ok(()) }
}

fn is_whole(row: &Row) -> bool {
    // Who waits, for the first time or again, isn't in flight; and when it was, and was given up, was before.
    let is_in_one_place = row.dispatched.is_some() || row.upstream_time().is_zero();
    let dispatched_between = row.dispatched.unwrap_or(row.ended) >= row.arrived.after(row.given_up());
    let of_outcome = match row.outcome {
        Outcome::Pending => false,
        Outcome::Completed => row.dispatched.is_some() && row.left_gate() == row.ended,
        Outcome::Rejected(_) => row.dispatched.is_none(),
        Outcome::TimedOut | Outcome::CutOff => row.left_gate() >= row.ended,
    };
    is_in_one_place && dispatched_between && row.ended >= row.arrived && of_outcome
}
