//! The agenda: what is due when, beside the next arrivals, the service's next end and the gate's own alarm.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

/// Saturates: nothing lasts for longer than there are nanoseconds.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// One thing that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    /// The service's speed changes to this step of its schedule.
    Speed(u32),
    /// Measuring begins.
    WarmedUp,
    /// No more requests come.
    Over,
    /// The state is recorded.
    Tick,
    /// An answer arrives.
    Land(u32),
    /// A statement is answered, others of its transaction follow.
    Think(u32),
    /// The client of a transaction sends its next statement.
    Resume(u32),
    /// The news arrives that a request was given up for others.
    GivenUp(u32),
    /// A client's patience ends.
    TimeOut(u32),
    /// A request has waited in the application for as long as it may, perhaps.
    Busy(u32),
    /// A client tries again.
    Retry(u32),
    /// A client of a closed loop has thought: its source, and which of them it is.
    Send(u16, u32),
}

/// The agenda: by time, then in the order of coming.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    heap: BinaryHeap<Reverse<(u64, u64, Due)>>,
    come: u64,
}

impl Agenda {
    pub(crate) fn add(&mut self, at: u64, due: Due) {
        self.come += 1;
        self.heap.push(Reverse((at, self.come, due)));
    }

    pub(crate) fn next(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at, _, _))| *at)
    }

    pub(crate) fn pop(&mut self) -> Option<Due> {
        self.heap.pop().map(|Reverse((_, _, due))| due)
    }
}
