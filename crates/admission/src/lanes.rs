//! The long lane: long requests share an in-flight limit of their own, and short ones never wait behind them.
//!
//! Any limit that short requests must queue behind is worse than the uncontrolled service below saturation;
//! a limit on the long ones alone comes within a few percent of the best that knowing only types allows
//! (`docs/decisions/queue.md`, findings 1 and 2). The rules:
//!
//! * **Long** is a type whose expected work is more than [`CUTOFF`] × the mean over requests (anything from
//!   1 to 10 works, finding 10; at 4 a type that a third of all requests are of can't pass it by chance,
//!   since it makes the mean). It stays long until it falls below [`HYSTERESIS`] of that, so that it
//!   doesn't flap. While fewer than [`KNOWN`] requests have completed the cutoff is at least [`FLOOR`]. It
//!   is measured in what requests take of the service, without what sharing it adds (`lanes/width.rs`):
//!   what they take beside others rises and falls with the load, for some types sooner than for others.
//! * **How many** longs may be in flight the operator states, or [`width`] finds. Until it has, there is no
//!   limit but three quarters of the connections, even if the service has told its cores: that harms
//!   nobody below saturation.
//! * A type whose own coefficient of variation is too high isn't limited (finding 3; `cost/variation.rs`
//!   has the bound and its reasons), unless its clients leave in service (`leavers.rs`) or more of it are
//!   in service than were ever seen (`types.rs`). It waits among the shorts, but leaves the last quarter of
//!   the connections to others. Nobody stops behind it; when it has been overtaken by more than its
//!   allowance it goes by itself, as a long does.
//! * **Among the longs** the order is shortest first with aging; the floor of aging is for short requests
//!   and doesn't hold here (finding 5). With X = 3 the rarest and largest type is no slower than without a
//!   gate, with 5 it is by 8 % (`docs/results/no-harm.md`).
//! * **A single request** in flight, busy for longer than the cutoff (at least [`FLOOR`]: below that, age
//!   is scheduling noise), counts as long from then on, whatever its type: it occupies the lane, so that no
//!   more longs are started.
//! * **Bypass.** A long that has been overtaken, since it came to its line, by more short work of its class
//!   than its allowance goes first for the next connection and may exceed the capacity, within the lane's
//!   limit. It never blocks the shorts behind it: that destroys everything (finding 6).
//! * **Shorts keep the service.** Where the lane's limit is found, a long goes before shorts that wait only
//!   while fewer longs than cores are in flight, and after one has the shorts have the service for as many
//!   times its work as `aging` says. In overload all longs that wait have lost their patience: one after
//!   the other they would take what is short down with them, most of all where it holds locks over several
//!   round trips (`docs/decisions/long-lane.md`). Not where longs hoard the connections that shorts come
//!   over (`clients.rs`).

mod width;

use alloc::collections::BTreeSet;

use crate::connections::heavy_max;
use crate::cost::Overall;
use crate::policy::LongLimit;
use crate::time::{Duration, Instant};
use crate::work::Work;
use width::Width;

pub(crate) use width::{Readings, Usual};

/// A type is long if its expected work exceeds the mean by this factor.
const CUTOFF: u64 = 4;
/// A long type is long until it falls below this share of the cutoff, in percent.
const HYSTERESIS: u64 = 75;
/// The least cutoff while few requests have completed, and always for the age of a single request: 10 ms.
const FLOOR: Work = Work::from_nanos(10_000_000);
/// An early sample of a type counts for at most this many means in the overall mean.
const FIRST: u64 = 10;
/// With fewer completions than this the cutoff is at least [`FLOOR`].
const KNOWN: f64 = 32.0;

/// The lane was full for long if it served this multiple of its limit while others always waited.
const STRAINED: u32 = 32;
/// The multiple in place of [`STRAINED`] where the limit was proved. Near saturation a lane is full for a few
/// hundred requests by chance.
const STRAINED_PROVED: u32 = 1024;

/// The state of the long lane.
#[derive(Debug)]
pub(crate) struct Lanes {
    /// What the operator states; `None`: there is no long lane.
    stated: Option<LongLimit>,
    /// What is in force.
    limit: Option<u32>,
    connections: u32,
    /// What is found of the service.
    pub(crate) width: Width,
    /// Longs served since the last one for which none waited.
    strained: u32,
    /// Long requests in flight, without the suspended ones.
    in_flight: u32,
    overall: Overall,
    /// The mean of what requests take of the service, without what sharing the service adds.
    demand: Overall,
    /// Until then no long goes before shorts because it has been overtaken by its allowance.
    rests_until: Instant,
}

impl Lanes {
    /// A lane, or none, in which nothing has happened.
    pub(crate) fn new(limit: Option<LongLimit>, connections: u32) -> Self {
        let mut lanes = Self {
            stated: None,
            limit: None,
            connections,
            width: Width::new(),
            strained: 0,
            in_flight: 0,
            overall: Overall::default(),
            demand: Overall::default(),
            rests_until: Instant::ZERO,
        };
        lanes.set_limit(limit, connections);
        lanes
    }

    /// The limit that the operator states, within what so many connections allow.
    pub(crate) fn set_limit(&mut self, limit: Option<LongLimit>, connections: u32) {
        (self.stated, self.connections) = (limit, connections);
        if let Some(LongLimit::Found { cores }) = limit {
            self.width.set_cores(cores);
        }
        self.limit = limit.map(|limit| {
            let most = match limit {
                LongLimit::Fixed(limit) => limit,
                LongLimit::Found { .. } => self.width.enough().unwrap_or(u32::MAX),
            };
            most.max(1).min(heavy_max(connections))
        });
    }

    /// A long request has been served, while others waited for the lane or not.
    pub(crate) fn served(&mut self, others_wait: bool) {
        self.strained = if others_wait { self.strained + 1 } else { 0 };
        let times = if self.width.is_proved() { STRAINED_PROVED } else { STRAINED };
        if self.limit.is_some_and(|limit| self.strained >= times.saturating_mul(limit)) {
            self.strained = 0;
            self.width.widen();
        }
    }

    /// Knows how many requests the service works on at once, as another gate has found.
    pub(crate) fn recall_width(&mut self, found: u32) {
        self.width.recall(found);
        self.set_limit(self.stated, self.connections);
    }

    /// Puts in force what was found of the service. The limit before and after, if it has moved.
    pub(crate) fn follow(&mut self) -> Option<(u32, u32)> {
        let before = self.limit?;
        self.set_limit(self.stated, self.connections);
        self.limit.filter(|&after| after != before).map(|after| (before, after))
    }

    pub(crate) fn limit(&self) -> Option<u32> {
        self.limit
    }

    /// Whether there is a long lane.
    pub(crate) fn is_on(&self) -> bool {
        self.limit.is_some()
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Whether one more long may start.
    pub(crate) fn has_room(&self) -> bool {
        self.limit.is_none_or(|limit| self.in_flight < limit)
    }

    /// Whether a long that was overtaken by its allowance may go before waiting shorts. Where shorts keep the
    /// service busy, more longs than cores only slow it down.
    pub(crate) fn may_hurry(&self, now: Instant) -> bool {
        match self.stated {
            Some(LongLimit::Found { .. }) => {
                self.cores().is_none_or(|cores| self.in_flight < cores) && self.may_hurry_among_shorts(now)
            }
            Some(LongLimit::Fixed(_)) | None => true,
        }
    }

    /// The cores of the service, as far as they are known.
    pub(crate) fn cores(&self) -> Option<u32> {
        let Some(LongLimit::Found { cores }) = self.stated else { return None };
        self.width.found().or(cores)
    }

    /// Whether a request that waits among the shorts may go before the others after it was overtaken by its
    /// allowance.
    pub(crate) fn may_hurry_among_shorts(&self, now: Instant) -> bool {
        now >= self.rests_until
    }

    /// A request has gone before shorts, and will take `work` of one core. Then shorts have `times` as much
    /// of the service.
    pub(crate) fn hurry(&mut self, now: Instant, work: Work, times: f64) {
        let cores = self.cores().unwrap_or(1);
        let rest = work.as_nanos() as f64 * (1.0 + times) / f64::from(cores);
        self.rests_until = now.after(Duration::from_nanos(rest as u64));
    }

    pub(crate) fn enter(&mut self) {
        self.in_flight += 1;
    }

    pub(crate) fn leave(&mut self) {
        self.in_flight -= 1;
    }

    /// The mean as it was after so many requests, if nothing was learned yet.
    pub(crate) fn recall(&mut self, mean: Work, requests: u64) {
        if self.overall.samples() == 0.0 {
            self.overall = Overall::recalled(mean, requests);
            // Next to the types, which are recalled as what they took beside others.
            self.demand = Overall::recalled(mean, requests);
        }
    }

    /// How many requests the mean is of.
    pub(crate) fn requests(&self) -> u64 {
        self.overall.samples() as u64
    }

    /// The mean work of a request.
    pub(crate) fn mean(&self) -> Work {
        self.overall.mean()
    }

    /// Learns the work of a completed request.
    pub(crate) fn learn(&mut self, sample: Work) {
        self.overall.learn(sample);
    }

    /// Learns the work of a completed request whose type has too few samples to tell an outlier. It counts
    /// for at most [`FIRST`] means. Otherwise a single pause would raise the cutoff for thousands of
    /// requests.
    pub(crate) fn learn_first(&mut self, sample: Work) {
        let most = self.overall.mean().as_nanos().saturating_mul(FIRST).max(FLOOR.as_nanos());
        self.overall.learn(sample.min(Work::from_nanos(most)));
    }

    /// Converts all work to another unit: one old unit is `change` new ones.
    pub(crate) fn rescale(&mut self, change: f64) {
        self.overall.rescale(change);
    }

    /// What a request has taken of the service, in nanoseconds.
    pub(crate) fn learn_demand(&mut self, demand: f64) {
        self.demand.learn(Work::from_nanos(demand as u64));
    }

    /// Whether it makes a type long that its requests take so much of the service.
    pub(crate) fn is_long_by_demand(&self, demand: Work, already: bool) -> bool {
        demand.as_nanos() > bound(cutoff(&self.demand), already)
    }

    /// Whether so much expected work makes a type long, which is long already or not.
    pub(crate) fn is_long(&self, work: Work, already: bool) -> bool {
        work.as_nanos() > bound(cutoff(&self.overall), already)
    }

    /// A single request busy for this long counts as long.
    pub(crate) fn age_cutoff(&self) -> Work {
        Work::from_nanos(cutoff(&self.overall).max(FLOOR.as_nanos()))
    }
}

/// For how much short work the longs of one class wait (Bypass, above).
#[derive(Debug, Default)]
pub(crate) struct Patience {
    /// All short work of the class dispatched so far, in nanoseconds.
    short_work: u64,
    /// Waiting longs by the short work at which they go first.
    waiting: BTreeSet<(u64, u32)>,
    /// Variable requests that wait among the shorts, by the short work at which they go first.
    among_shorts: BTreeSet<(u64, u32)>,
}

impl Patience {
    /// A short request was dispatched.
    pub(crate) fn pass(&mut self, work: Work) {
        self.short_work = self.short_work.saturating_add(work.as_nanos());
    }

    /// Adds a waiting long that may be overtaken by `allowance` of short work. Returns the short work at
    /// which it goes first.
    pub(crate) fn wait(&mut self, slot: u32, allowance: u64) -> u64 {
        let patience = self.short_work.saturating_add(allowance);
        self.waiting.insert((patience, slot));
        patience
    }

    /// Adds a variable request that waits among the shorts, and may be overtaken by `allowance` of short
    /// work. Returns the short work at which it goes first.
    pub(crate) fn wait_among_shorts(&mut self, slot: u32, allowance: u64) -> u64 {
        let patience = self.short_work.saturating_add(allowance);
        self.among_shorts.insert((patience, slot));
        patience
    }

    /// Requests that wait now go when it is their turn, and never first.
    pub(crate) fn forget(&mut self) {
        self.waiting.clear();
        self.among_shorts.clear();
    }

    /// A request waits in this line no longer.
    pub(crate) fn stop_waiting(&mut self, slot: u32, patience: u64) {
        self.waiting.remove(&(patience, slot));
        self.among_shorts.remove(&(patience, slot));
    }

    /// Whether a waiting long with this patience goes first now.
    pub(crate) fn is_out(&self, patience: u64) -> bool {
        patience != u64::MAX && self.short_work > patience
    }

    /// Of those that wait among the shorts and vary too much, one that goes first now, if one does.
    pub(crate) fn impatient_among_shorts(&self) -> Option<u32> {
        self.among_shorts.first().filter(|&&(patience, _)| self.is_out(patience)).map(|&(_, slot)| slot)
    }

    /// The waiting long with the least patience.
    pub(crate) fn least(&self) -> Option<(u64, u32)> {
        self.waiting.first().copied()
    }
}

/// Long is more than this, by a mean over requests.
fn cutoff(overall: &Overall) -> u64 {
    let cutoff = overall.mean().as_nanos().saturating_mul(CUTOFF);
    if overall.samples() < KNOWN { cutoff.max(FLOOR.as_nanos()) } else { cutoff }
}

/// For a type that is long already, less is enough.
fn bound(cutoff: u64, already: bool) -> u64 {
    if already { cutoff / 100 * HYSTERESIS } else { cutoff }
}
