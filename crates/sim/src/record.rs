//! What is recorded of a run: a row for each request, the state at every tick, and one number for all of it.

use admission::{Duration, Instant, Reason, Work};

/// One request: what it was, and what became of it. A further try of its client's is another row. What the
/// service gave up for others begins anew in the same one: `dispatched` and the upstream time are of the
/// last time then.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// Its type, an index into the scenario's types.
    pub kind: u32,
    /// Whose it was, an index into the scenario's sources.
    pub source: u16,
    /// Which try of the same request it was, from 0.
    pub attempt: u16,
    /// The client of a closed loop that sent it, or the visit of an open loop that it belongs to, from 1.
    /// 0: neither.
    pub client: u32,
    /// What became of it, as its client saw it.
    pub outcome: Outcome,
    /// What it took alone.
    pub service_time: Work,
    /// When it arrived.
    pub arrived: Instant,
    /// When the gate let it in, if it did.
    pub dispatched: Option<Instant>,
    /// When it ended for its client.
    pub ended: Instant,
    /// How long it was in flight, in nanoseconds; a `Duration` would be too large.
    pub(crate) upstream: u64,
    /// How long it was in flight, in nanoseconds, in the attempts that the service gave up for others.
    pub(crate) given_up: u64,
    pub(crate) handle: u32,
}

/// What became of a request, as its client saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It hasn't ended yet.
    Pending,
    /// It was served.
    Completed,
    /// The gate refused it; or the application did, where it had waited for too long.
    Rejected(Reason),
    /// Its client gave up.
    TimedOut,
    /// The scenario ended before it did.
    CutOff,
}

impl Row {
    /// From its arrival to its end, for its client.
    pub fn response_time(&self) -> Duration {
        self.ended.since(self.arrived)
    }

    /// From its arrival until its dispatch, or its end without one, less the time in flight that was given
    /// up.
    pub fn queue_wait(&self) -> Duration {
        self.dispatched.unwrap_or(self.ended).since(self.arrived).saturating_sub(self.given_up())
    }

    /// For how long it was in flight (beyond its client's patience too), the last time that it was.
    pub fn upstream_time(&self) -> Duration {
        Duration::from_nanos(self.upstream)
    }

    /// For how long it was in flight to be given up for others, all times together. A request that was
    /// served waited, was given up and was in flight for just its response time.
    pub fn given_up(&self) -> Duration {
        Duration::from_nanos(self.given_up)
    }

    /// When the gate was rid of it.
    pub(crate) fn left_gate(&self) -> Instant {
        self.dispatched.map_or(self.ended, |dispatched| dispatched.after(self.upstream_time()))
    }
}

/// The state at one tick, and what happened since the one before.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// When.
    pub at: Instant,
    /// How long ago the one before was taken, or the run began.
    pub since: Duration,
    /// Work in flight.
    pub load: Work,
    /// The most work that may be in flight, if that is what bounds it.
    pub capacity: Option<Work>,
    /// The most requests that may be in flight, if a controller finds that.
    pub capacity_found: Option<u32>,
    /// Requests that wait at the gate, or in the application before it.
    pub queued: usize,
    /// Requests in flight.
    pub in_flight: usize,
    /// Requests that arrived since.
    pub arrived: u64,
    /// Requests that were completed since.
    pub completed: u64,
    /// The mean response time of the requests that were completed since.
    pub response_time: Duration,
    /// Those that the gate refused since.
    pub rejected: u64,
    /// Those whose clients gave up since.
    pub timed_out: u64,
    /// The service time of what was completed since.
    pub useful_work: Work,
}

/// The trace hash: every arrival, dispatch and end, in order, with its instant. Not cryptographic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trace(u64);

impl Trace {
    pub(crate) const fn new() -> Self {
        Self(0x5163_27a1_6e0b_9d4d)
    }

    pub(crate) fn note(&mut self, what: What, now: u64, row: u32) {
        let word = now ^ (u64::from(row) << 32 | what as u64).rotate_left(29);
        let product = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15_u128;
        self.0 = (product as u64 ^ (product >> 64) as u64).wrapping_add(word);
    }

    pub(crate) const fn value(self) -> u64 {
        self.0
    }
}

/// What a trace notes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    Arrived = 1,
    Dispatched = 2,
    Completed = 3,
    Rejected = 4,
    TimedOut = 5,
    Landed = 6,
    CutOff = 7,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_small() {
        assert!(size_of::<Row>() <= 80, "{}", size_of::<Row>());
    }

    #[test]
    fn a_trace_depends_on_what_when_whose_and_in_which_order() {
        let of = |notes: &[(What, u64, u32)]| {
            let mut trace = Trace::new();
            notes.iter().for_each(|&(what, now, row)| trace.note(what, now, row));
            trace.value()
        };
        let (first, second) = ((What::Arrived, 5, 0), (What::Dispatched, 5, 0));
        let all = [
            of(&[]),
            of(&[first, second]),
            of(&[second, first]),
            of(&[first, (What::Dispatched, 6, 0)]),
            of(&[first, (What::Dispatched, 5, 1)]),
            of(&[first, (What::Rejected, 5, 0)]),
        ];
        let mut distinct = all.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), all.len());
    }
}
