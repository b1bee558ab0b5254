//! Refusals: which requests are not worth serving.
//!
//! Always: the length of the queue, the time in it, and the request's own deadline. Beside these one rule
//! ([`Rule`]), which the operator chooses; the paper refuses nobody at all. A refusal always has a reason.
//! An immediate request, which holds others up while it waits, is refused only for the time in the queue
//! (and at [`Line::Immediate`](crate::tickets::Line)'s own bound).

pub(crate) mod deadline;
mod drain;
mod target;
mod yaksha;

use alloc::boxed::Box;

use crate::action::Reason;
use crate::chance::Chance;
use crate::outside::Refuse;
use crate::outside::Refusing;
use crate::policy::Rejection;
use crate::request::RequestType;
use crate::snapshot::HeldTarget;
use crate::time::{Duration, Instant};
use crate::work::Work;
use drain::Drain;

/// What a rule is told of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) request_type: RequestType,
    /// What was expected of it when it arrived.
    pub(crate) work: Work,
    pub(crate) place: Place,
    /// By how much it adds to the response times of all at most, in seconds, with the shortest first: it
    /// takes its own time, and delays each one that is present by that much, shared between those on which
    /// the service works at once. Infinite in order of arrival.
    pub(crate) adds: f64,
    /// Whether it was late is told already ([`Rule::be_late`]), or doesn't matter any more.
    pub(crate) judged: bool,
}

/// What room the service has for a request that arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Fewer requests are present than the service works on at once: the request slows nobody down.
    Own,
    /// Fewer than twice as many are present.
    Shared,
    Taken,
}

/// What a request is one too many of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TooMany {
    /// All that are present: any of them might go in its stead.
    OfAll,
    /// Those that are held to the same target ([`Rule::are_held_together`]): only one of these might.
    OfItsOwn,
}

/// Another standing of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    /// `None`: the gate's target.
    pub(crate) of: Option<RequestType>,
    pub(crate) is_out: bool,
}

/// A rule that refuses some requests. Nothing that it does needs a timer: what its state would have become
/// by the clock alone it works out when it is asked next.
pub(crate) trait Rule: core::fmt::Debug + Send {
    /// Until now so many were present (waiting, or the service busy with them) since the last time that
    /// this was told.
    fn pass(&mut self, now: Instant, present: u32) {
        let _ = (now, present);
    }

    /// A request of this type is present from now on.
    fn enter(&mut self, now: Instant, request_type: RequestType) {
        let _ = (now, request_type);
    }

    /// A request of this type is no longer present.
    fn leave(&mut self, now: Instant, request_type: RequestType) {
        let _ = (now, request_type);
    }

    /// A request arrives while `present` requests are present. Returns whether it is one too many.
    fn arrive(&mut self, now: Instant, it: Asked, present: u32, chance: &mut Chance) -> Option<TooMany> {
        let _ = (now, it, present, chance);
        None
    }

    /// Whether requests of these two types are held to one and the same target.
    fn are_held_together(&self, one: RequestType, other: RequestType) -> bool {
        let _ = (one, other);
        true
    }

    /// A request would be dispatched that has waited for so long, and others wait behind it (or not). Why
    /// it is refused instead, if it is.
    fn dispatch(&mut self, now: Instant, waited: Duration, others_wait: bool) -> Option<Reason> {
        let _ = (now, waited, others_wait);
        None
    }

    /// A request was served in the response time `response`.
    fn complete(&mut self, now: Instant, it: Asked, response: Duration) {
        let _ = (now, it, response);
    }

    /// The age at which a request of this type that is present is told to be late, if the rule wants to know.
    fn late_after(&self, request_type: RequestType) -> Option<Duration> {
        let _ = request_type;
        None
    }

    /// One of this type that is present has come to that age.
    fn be_late(&mut self, now: Instant, request_type: RequestType) {
        let _ = (now, request_type);
    }

    /// Whether requests take longer than the mean target on average, or did lately.
    fn is_missed(&self) -> bool {
        false
    }

    /// What it knows and does.
    fn state(&self) -> Refusing {
        Refusing::default()
    }

    /// Whether the target to which requests of this type are held has come out of reach, or into it, since
    /// that was asked last; and whether it is the type's own.
    fn reach(&mut self, request_type: RequestType) -> Option<Reach> {
        let _ = request_type;
        None
    }

    /// The target that this type has of its own.
    fn target_of(&self, request_type: RequestType) -> Option<HeldTarget> {
        let _ = request_type;
        None
    }

    /// The operator chooses this from now on. Whether the rule can be that and go on with what it has
    /// learned; nobody is present for it then until that is told anew ([`Rule::enter`]).
    fn change(&mut self, policy: &Rejection, now: Instant) -> bool {
        let _ = (policy, now);
        false
    }
}

/// Nobody is refused beside those that are always.
#[derive(Debug)]
struct Nobody;

impl Rule for Nobody {}

/// A rule from outside of this crate.
#[derive(Debug)]
struct Other(Box<dyn Refuse>);

impl Rule for Other {
    fn dispatch(&mut self, now: Instant, waited: Duration, others_wait: bool) -> Option<Reason> {
        self.0.refuses(now, waited, others_wait).then_some(Reason::QueueDelay)
    }

    fn state(&self) -> Refusing {
        self.0.state()
    }
}

/// The rule in force, and what every rule may need to know.
#[derive(Debug)]
pub(crate) struct Refusal {
    policy: Rejection,
    rule: Box<dyn Rule>,
    drain: Drain,
    chance: Chance,
}

impl Refusal {
    /// What the operator chose.
    pub(crate) fn new(policy: Rejection, now: Instant, seed: u64) -> Self {
        let rule = rule(&policy, now);
        Self { policy, rule, drain: Drain::new(now), chance: Chance::new(seed) }
    }

    /// What the operator chooses from now on. A rule that stays the same keeps what it has learned, and a
    /// rule with other targets what it can. Returns whether the rule must hear again which requests are
    /// present.
    #[must_use]
    pub(crate) fn change(&mut self, policy: Rejection, now: Instant) -> bool {
        if self.policy == policy {
            return false;
        }
        if !self.rule.change(&policy, now) {
            self.rule = rule(&policy, now);
        }
        self.policy = policy;
        true
    }

    /// Whether requests take longer than the mean target on average, or did lately.
    pub(crate) fn is_missed(&self) -> bool {
        self.rule.is_missed()
    }

    /// Until now, `present` requests were present.
    pub(crate) fn pass(&mut self, now: Instant, present: u32) {
        self.drain.pass(now, present);
        self.rule.pass(now, present);
    }

    /// One of this type waits, or the service is busy with it, from now on.
    pub(crate) fn enter(&mut self, now: Instant, request_type: RequestType) {
        self.rule.enter(now, request_type);
    }

    /// Not any more.
    pub(crate) fn leave(&mut self, now: Instant, request_type: RequestType) {
        self.rule.leave(now, request_type);
    }

    /// A request arrives while `present` requests are present. Returns whether it is one too many.
    pub(crate) fn arrive(&mut self, now: Instant, it: Asked, present: u32) -> Option<TooMany> {
        self.rule.arrive(now, it, present, &mut self.chance)
    }

    /// Whether the target of this type's requests has another standing since that was asked last.
    pub(crate) fn reach(&mut self, request_type: RequestType) -> Option<Reach> {
        self.rule.reach(request_type)
    }

    /// Whether requests of these two types are held to one and the same target.
    pub(crate) fn are_held_together(&self, one: RequestType, other: RequestType) -> bool {
        self.rule.are_held_together(one, other)
    }

    /// A request that would be made to wait behind so many others, and is expected to take so long itself,
    /// must have ended in time. Whether it is refused, as it can't.
    pub(crate) fn is_hopeless(&self, now: Instant, deadline: Instant, ahead: usize, own: Duration) -> bool {
        self.policy == Rejection::Deadline && deadline::is_hopeless(&self.drain, now, deadline, ahead, own)
    }

    /// A request would be dispatched.
    pub(crate) fn dispatch(&mut self, now: Instant, waited: Duration, others_wait: bool) -> Option<Reason> {
        self.rule.dispatch(now, waited, others_wait)
    }

    /// A request has ended at the service.
    pub(crate) fn complete(&mut self, now: Instant, it: Asked, response: Duration) {
        self.drain.complete(now);
        self.rule.complete(now, it, response);
    }

    /// The age at which a request of this type that is present is to be told as late.
    pub(crate) fn late_after(&self, request_type: RequestType) -> Option<Duration> {
        self.rule.late_after(request_type)
    }

    /// One of this type that is present has come to that age.
    pub(crate) fn be_late(&mut self, now: Instant, request_type: RequestType) {
        self.rule.be_late(now, request_type);
    }

    /// The target that this type has of its own.
    pub(crate) fn target_of(&self, request_type: RequestType) -> Option<HeldTarget> {
        self.rule.target_of(request_type)
    }

    /// When a client that is refused now may try again, with so many in the queue.
    pub(crate) fn retry_after(&self, now: Instant, queued: usize) -> Duration {
        self.drain.retry_after(now, queued)
    }

    /// What the rule knows and does.
    pub(crate) fn state(&self) -> Refusing {
        self.rule.state()
    }
}

fn rule(policy: &Rejection, now: Instant) -> Box<dyn Rule> {
    match policy {
        Rejection::Nobody | Rejection::Deadline => Box::new(Nobody),
        Rejection::Target(targets) => Box::new(target::Target::new(targets, now)),
        Rejection::Yaksha(settings) => Box::new(yaksha::Yaksha::new(*settings, now)),
        Rejection::Other(maker) => Box::new(Other((maker.make)())),
    }
}
