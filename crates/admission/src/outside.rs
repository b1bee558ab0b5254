//! What a gate takes from outside of this crate: a controller of the number in flight, and a rule of refusal.
//!
//! A policy names a [`Maker`], and the gate makes its own controller or rule with it. The laboratory keeps
//! published methods in this way, to compare with, and methods that are not yet the default.

use alloc::boxed::Box;
use core::fmt::{Debug, Formatter, Result};

use crate::time::{Duration, Instant};

/// A name, and the function that makes what the name stands for. Makers of the same name are equal.
#[derive(Clone, Copy)]
pub struct Maker<F> {
    /// The name, as a policy is shown.
    pub name: &'static str,
    /// The function.
    pub make: F,
}

/// Makes a controller that may let in as many requests as its argument says.
pub type ControlMaker = Maker<fn(u32) -> Box<dyn Control>>;

/// Makes a rule of refusal.
pub type RefuseMaker = Maker<fn() -> Box<dyn Refuse>>;

impl<F> PartialEq for Maker<F> {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl<F> Eq for Maker<F> {}

impl<F> Debug for Maker<F> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(self.name)
    }
}

/// A controller: it hears what happens at a gate, and is asked how many requests may be in flight.
pub trait Control: Debug + Send {
    /// The most requests that may be in flight now, at least 1.
    fn most(&self) -> u32;

    /// From `now` on `in_flight` requests are in flight, and others wait for them or not.
    fn observe(&mut self, now: Instant, in_flight: u32, waited_for: bool);

    /// A request has ended.
    fn complete(&mut self, now: Instant, sample: &Sample);

    /// The number of connections has become `top`: [`Control::most`] must not be larger.
    fn set_top(&mut self, top: u32);

    /// Another controller of this kind has found this number, and this one goes on from there. Called before
    /// anything happens.
    fn begin_with(&mut self, found: u32) {
        let _ = found;
    }

    /// A request was refused for the time that it would have taken.
    fn refuse(&mut self, now: Instant) {
        let _ = now;
    }

    /// The number that the controller has found. [`Control::most`] differs while another number is tried.
    fn found(&self) -> u32 {
        self.most()
    }

    /// The share by which more was completed with the number found than before, if that was the reason for
    /// it.
    fn gain(&self) -> Option<f64> {
        None
    }

    /// A controller that is held begins no comparison: two comparisons at a time would disturb each other.
    fn hold(&mut self, held: bool) {
        let _ = held;
    }

    /// Whether the controller compares two numbers now.
    fn is_comparing(&self) -> bool {
        false
    }

    /// The number of the comparison. What a type counts for changes only between two comparisons.
    fn trial(&self) -> u64 {
        0
    }
}

/// What a controller hears of a request that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// The work of its type, which stays the same as long as [`Control::trial`] does.
    pub work: f64,
    /// How long the service was busy with it.
    pub upstream_time: Duration,
    /// Whether it was served.
    pub success: bool,
    /// Whether it was served to a client that is still there.
    pub answered: bool,
    /// How many requests were in flight, this one included.
    pub in_flight: u32,
    /// Whether it is one of those whose number in flight the controller finds.
    pub own: bool,
}

/// A rule of refusal that looks at the head of the queue.
pub trait Refuse: Debug + Send {
    /// Whether a request that is next is refused instead ([`Reason::QueueDelay`](crate::Reason::QueueDelay)).
    /// It has waited for `waited`, and others wait behind it or not.
    fn refuses(&mut self, now: Instant, waited: Duration, others_wait: bool) -> bool;

    /// What [`Snapshot::refusing`](crate::Snapshot::refusing) shows of the rule.
    fn state(&self) -> Refusing {
        Refusing::default()
    }
}

/// What a rule for refusing knows and does; each tells what it has.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Refusing {
    /// Refused with this probability (Yaksha's p_d).
    pub probability: Option<f64>,
    /// Yaksha's A and B, per second.
    pub gains: Option<(f64, f64)>,
    /// The measured time on which the rule decides: a mean response time, or a queue wait.
    pub measured: Option<Duration>,
    /// How many requests may be present (wait or be in flight) before the next is refused. Where types have
    /// targets of their own, this counts the other requests only.
    pub bound: Option<f64>,
    /// Requests take longer than the target although fewer are present than the service works on at once.
    pub is_out_of_reach: bool,
}
