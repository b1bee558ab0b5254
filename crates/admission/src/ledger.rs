//! The ledger: what each request in flight is charged, and their sum, the load.
//!
//! A request is charged max(w, used): the work expected of it when it arrived, or what it has really used
//! once that is more. Used time is the time that the service was busy with it; it stands still while the
//! client thinks (*idle*) and the charge is gone while the request is *suspended*.
//!
//! The sum is kept exactly and in constant time. What doesn't grow is one number (`fixed`). A request that
//! is *overdue* (used more than w) grows with the clock, so for all of them together
//!
//! ```text
//! load(now) = fixed + Σ (now − (busy since − used before)) = fixed + n·now − Σ origin
//! ```
//!
//! and only n and Σ origin are kept. The gate moves a request to overdue at the instant `since + (w − used
//! before)`, lazily, before it looks at the load.

use crate::time::Instant;
use crate::work::Work;

/// What one request has used and is charged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Meter {
    /// The work expected of it, fixed at arrival; at least 1 ns.
    pub(crate) work: Work,
    /// Busy time before `since`, in nanoseconds.
    used: u64,
    /// Since when the service is busy with it.
    since: Instant,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not charged: it waits, or is suspended.
    Off,
    /// The service is busy with it, for less than was expected.
    Busy,
    /// The service is busy with it, for longer than was expected.
    Overdue,
    /// The client thinks; charged, but standing still.
    Idle,
}

impl Meter {
    /// A request that is not in flight.
    pub(crate) fn new(work: Work) -> Self {
        Self { work, used: 0, since: Instant::ZERO, state: State::Off }
    }

    /// What it has used doesn't count. It isn't charged now.
    pub(crate) fn forgive(&mut self) {
        debug_assert!(self.state == State::Off);
        self.used = 0;
    }

    /// How long the service has been busy with it.
    pub(crate) fn used(&self, now: Instant) -> Work {
        match self.state {
            State::Off | State::Idle => Work::from_nanos(self.used),
            State::Busy | State::Overdue => Work::from_nanos(
                self.used.saturating_add(now.as_nanos().saturating_sub(self.since.as_nanos())),
            ),
        }
    }

    /// When the service will have been busy with it for so long, if it is now and stays so.
    pub(crate) fn reaches(&self, used: Work) -> Instant {
        Instant::from_nanos(self.since.as_nanos().saturating_add(used.as_nanos().saturating_sub(self.used)))
    }

    /// Whether the service is busy with it.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self.state, State::Busy | State::Overdue)
    }

    /// Whether it has used more than was expected.
    pub(crate) fn is_overdue(&self) -> bool {
        self.state == State::Overdue
    }

    /// The instant from which its use counts as one stretch: now − origin = used.
    fn origin(&self) -> i128 {
        i128::from(self.since.as_nanos()) - i128::from(self.used)
    }
}

/// The sum of what several requests have used while it grows: n·now − Σ origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Growing {
    count: u64,
    origins: i128,
}

impl Growing {
    /// Counts this request, which is busy.
    pub(crate) fn add(&mut self, meter: &Meter) {
        self.count += 1;
        self.origins += meter.origin();
    }

    /// Doesn't count it any more.
    pub(crate) fn remove(&mut self, meter: &Meter) {
        self.count -= 1;
        self.origins -= meter.origin();
    }

    /// How many are counted.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// What they have used together, in nanoseconds.
    pub(crate) fn sum(&self, now: Instant) -> i128 {
        i128::from(self.count) * i128::from(now.as_nanos()) - self.origins
    }
}

/// The work in flight.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    fixed: u128,
    overdue: Growing,
    charged: u64,
    /// Of those, how many the service is busy with.
    busy: u64,
}

impl Ledger {
    /// The work in flight; call after every overdue request was moved.
    pub(crate) fn load(&self, now: Instant) -> Work {
        let growing = u128::try_from(self.overdue.sum(now)).unwrap_or(0);
        Work::from_nanos(u64::try_from(self.fixed.saturating_add(growing)).unwrap_or(u64::MAX))
    }

    /// How many requests are charged.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.charged).unwrap_or(u32::MAX)
    }

    /// How many requests the service is busy with.
    pub(crate) fn busy_count(&self) -> u32 {
        u32::try_from(self.busy).unwrap_or(u32::MAX)
    }

    /// The service starts, or goes on, with a request.
    pub(crate) fn busy(&mut self, now: Instant, meter: &mut Meter) {
        self.take(meter);
        meter.since = now;
        meter.state = if meter.used >= meter.work.as_nanos() { State::Overdue } else { State::Busy };
        self.put(meter);
    }

    /// A request has used what was expected of it.
    pub(crate) fn overdue(&mut self, meter: &mut Meter) {
        self.take(meter);
        meter.state = State::Overdue;
        self.put(meter);
    }

    /// The service has answered and waits for the client.
    pub(crate) fn idle(&mut self, now: Instant, meter: &mut Meter) {
        self.take(meter);
        meter.used = meter.used(now).as_nanos();
        meter.state = State::Idle;
        self.put(meter);
    }

    /// A request gives its work back: suspended, or ended.
    pub(crate) fn off(&mut self, now: Instant, meter: &mut Meter) {
        self.take(meter);
        meter.used = meter.used(now).as_nanos();
        meter.state = State::Off;
    }

    fn put(&mut self, meter: &Meter) {
        match meter.state {
            State::Off => return,
            State::Overdue => self.overdue.add(meter),
            State::Busy | State::Idle => self.fixed += u128::from(meter.fixed()),
        }
        self.charged += 1;
        self.busy += u64::from(meter.is_busy());
    }

    fn take(&mut self, meter: &Meter) {
        match meter.state {
            State::Off => return,
            State::Overdue => self.overdue.remove(meter),
            State::Busy | State::Idle => self.fixed -= u128::from(meter.fixed()),
        }
        self.charged -= 1;
        self.busy -= u64::from(meter.is_busy());
    }
}

impl Meter {
    /// The charge of a request that isn't overdue. (Busy: used before ≤ w, so that the maximum is w.)
    fn fixed(&self) -> u64 {
        self.work.as_nanos().max(self.used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn a_request_that_outlives_its_estimate_is_charged_for_what_it_has_used() {
        let (mut ledger, mut meter) = (Ledger::default(), Meter::new(Work::from_nanos(10)));
        ledger.busy(at(100), &mut meter);
        assert_eq!(ledger.load(at(105)).as_nanos(), 10);
        assert_eq!(meter.reaches(meter.work), at(110));
        ledger.overdue(&mut meter);
        assert_eq!(ledger.load(at(110)).as_nanos(), 10);
        assert_eq!(ledger.load(at(125)).as_nanos(), 25);
        ledger.off(at(130), &mut meter);
        assert_eq!(ledger.load(at(500)), Work::ZERO);
        assert_eq!(ledger.count(), 0);
    }

    #[test]
    fn pauses_of_the_client_are_not_charged_and_suspension_gives_all_back() {
        let (mut ledger, mut meter) = (Ledger::default(), Meter::new(Work::from_nanos(10)));
        ledger.busy(at(0), &mut meter);
        ledger.idle(at(4), &mut meter);
        assert_eq!(ledger.load(at(1_000)).as_nanos(), 10);
        ledger.busy(at(1_000), &mut meter);
        assert_eq!(meter.reaches(meter.work), at(1_006));
        ledger.overdue(&mut meter);
        ledger.idle(at(1_020), &mut meter);
        assert_eq!(ledger.load(at(5_000)).as_nanos(), 24);
        ledger.off(at(5_000), &mut meter);
        assert_eq!(ledger.load(at(6_000)), Work::ZERO);
        ledger.busy(at(7_000), &mut meter);
        assert_eq!(ledger.load(at(7_001)).as_nanos(), 25);
        assert_eq!(meter.used(at(7_001)).as_nanos(), 25);
    }
}
