//! An experiment as a value: who asks for what, when, of which service, behind which gate.

use admission::{
    ClassId, Duration, Instant, Learned, LearnedType, LearnedVariation, Policy, RequestType, Work,
};

use crate::application::{self, Application, TableLock};
use crate::arrivals::Arrivals;
use crate::clients::{Mix, Patience};
use crate::distribution::Distribution;
use crate::error::Error;
use crate::upstream::Upstream;

/// A whole experiment. Plain data: copy it, change a field, run both.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// The seed of all random numbers.
    pub seed: u64,
    /// The gate's policy at the beginning.
    pub policy: Policy,
    /// The request types; everywhere else they are named by their index here.
    pub types: Vec<Kind>,
    /// The sources of requests.
    pub sources: Vec<Source>,
    /// The application between the sources and the gate, if there is one.
    pub application: Option<Application>,
    /// The protected service.
    pub upstream: Upstream,
    /// How long requests arrive.
    pub duration: Duration,
    /// The time at the beginning that isn't measured.
    pub warm_up: Duration,
    /// What becomes of the requests that are left at the end.
    pub end: End,
    /// A completed request is in time if its response took at most this; `None`: always.
    pub in_time: Option<Duration>,
    /// How often the state is recorded, and an observer asked.
    pub tick: Duration,
    /// Which of the gate's events are kept.
    pub keep: Keep,
    /// Whether the gate learns what types cost; else it goes on with what is known of them ([`Kind::known`]).
    pub learning: bool,
    /// The most requests, tries again included.
    pub requests_max: usize,
}

/// A request type.
#[derive(Clone, Debug, PartialEq)]
pub struct Kind {
    /// Its name.
    pub name: String,
    /// What its requests take alone.
    pub service_time: Distribution,
    /// How much one counts in what makes the service collapse; 1 is ordinary.
    pub weight: u32,
    /// The lock that it needs ([`crate::Collapse::Locks`]).
    pub lock: Option<u32>,
    /// The locks that it needs of an [`Application`], in the order of their tables.
    pub tables: Vec<TableLock>,
    /// For each unit of work, how long its requests wait for what isn't a core; `None`: as long as the
    /// service's others ([`Upstream::input_output`]).
    pub input_output: Option<f64>,
    /// How many statements a request has: a transaction, if there are several. They take equal parts.
    pub statements: u32,
    /// How long its client thinks between two of them.
    pub pause: Duration,
    /// What the gate expects one to take when the run begins, as if it had learned that before.
    pub known: Option<Duration>,
}

/// Some clients.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// When they send.
    pub arrivals: Arrivals,
    /// What they send.
    pub mix: Mix,
    /// What a client asks for at once when its request of the mix is answered: types, and the number of
    /// requests of each. The mix has none of these types, and the loop is open. Empty: nothing.
    pub then: Vec<(u32, u32)>,
    /// The service class of what they send.
    pub class: ClassId,
    /// When they give up.
    pub patience: Patience,
    /// How long after its arrival a request is of no use any more, if the gate is told.
    pub deadline: Option<Duration>,
    /// When the source begins.
    pub from: Duration,
    /// The time within which the clients of a closed loop join, each at a random instant. If zero, each joins
    /// after a think time.
    pub joining: Duration,
    /// When the source ends, if not with the scenario.
    pub until: Option<Duration>,
}

/// What becomes of the requests that are left when no more arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// They are served to the end, so that no long one is missing from the means.
    Drained,
    /// They are cut off, for runs in which that would take too long: overload without patience.
    Cut,
}

/// Which of the gate's events are kept for the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// All but those that each request has.
    Rare,
    /// All.
    All,
}

impl Kind {
    /// An ordinary type.
    pub fn new(name: impl Into<String>, service_time: Distribution) -> Self {
        Self {
            name: name.into(),
            service_time,
            weight: 1,
            lock: None,
            tables: Vec::new(),
            input_output: None,
            statements: 1,
            pause: Duration::ZERO,
            known: None,
        }
    }
}

impl Source {
    /// Clients that wait for ever, from the beginning to the end.
    pub fn new(arrivals: Arrivals, mix: Mix) -> Self {
        Self {
            arrivals,
            mix,
            then: Vec::new(),
            class: ClassId::DEFAULT,
            patience: Patience::ENDLESS,
            deadline: None,
            from: Duration::ZERO,
            joining: Duration::ZERO,
            until: None,
        }
    }

    /// Says what is wrong with `then`.
    fn fault_of_then(&self) -> Option<&'static str> {
        if self.then.is_empty() {
            return None;
        }
        let Mix::Shares(shares) = &self.mix else {
            return Some("a source with sessions can't have requests that follow");
        };
        if matches!(self.arrivals, Arrivals::Closed { .. } | Arrivals::Replayed(_)) {
            return Some("only clients of an open loop have requests that follow");
        }
        if self.then.iter().map(|&(_, count)| u64::from(count)).sum::<u64>() > THEN_MAX {
            return Some("at most 1000 requests can follow another");
        }
        let is_apart = |&(kind, _): &(u32, u32)| shares.get(kind as usize).is_some_and(|&share| share == 0.0);
        (!self.then.iter().all(is_apart))
            .then_some("a request that follows must be of a type that the mix doesn't have")
    }

    /// Whether requests of this type follow another.
    pub(crate) fn follows(&self, kind: u32) -> bool {
        self.then.iter().any(|&(follower, _)| follower == kind)
    }
}

impl Scenario {
    /// An hour measured after five minutes, drained, with what most experiments want for the rest.
    pub fn new(policy: Policy, types: Vec<Kind>, source: Source, upstream: Upstream) -> Self {
        Self {
            seed: 1,
            policy,
            types,
            sources: vec![source],
            application: None,
            upstream,
            duration: Duration::from_secs(3_900),
            warm_up: Duration::from_secs(300),
            end: End::Drained,
            in_time: None,
            tick: Duration::from_secs(1),
            keep: Keep::Rare,
            learning: true,
            requests_max: 20_000_000,
        }
    }

    /// What the gate calls the type with this index.
    pub const fn request_type(kind: usize) -> RequestType {
        RequestType(kind as u64)
    }

    /// What the gate knows when the run begins.
    pub(crate) fn known(&self) -> Learned {
        // As many executions as the longest window holds, all alike.
        let samples = u64::from(admission::Cost::WINDOW_MAX);
        let known = self.types.iter().enumerate().filter_map(|(at, kind)| {
            let mean = Work::from(kind.known?);
            let variation = LearnedVariation { samples, mean: mean.as_nanos() as f64, variance: 0.0 };
            Some(LearnedType { request_type: Self::request_type(at), mean, rank: mean, samples, variation })
        });
        let types: Vec<LearnedType> = known.collect();
        let mean = self.known_mean().map_or(Work::ZERO, Work::from);
        let requests = if mean == Work::ZERO { 0 } else { samples };
        Learned { mean, requests, types, ..Learned::default() }
    }

    /// What a request of the only source takes, by what is known of its types, if that is all of them.
    fn known_mean(&self) -> Option<Duration> {
        let [Source { mix: Mix::Shares(shares), .. }] = &self.sources[..] else { return None };
        let total: f64 = shares.iter().sum();
        let known: Option<Vec<f64>> = self.types.iter().map(|kind| Some(kind.known?.as_secs_f64())).collect();
        let sum: f64 = known?.iter().zip(shares).map(|(mean, share)| mean * share).sum();
        Some(Duration::from_secs_f64(sum / total))
    }

    /// The instant so long after the beginning.
    pub fn at(after: Duration) -> Instant {
        Instant::ZERO.after(after)
    }

    /// The mean service time of a mix of these types by shares, in seconds.
    pub fn mean_service_time(types: &[Kind], shares: &[f64]) -> f64 {
        let total: f64 = shares.iter().sum();
        types.iter().zip(shares).map(|(kind, share)| kind.service_time.mean() * share).sum::<f64>() / total
    }

    /// Whether it can be run.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |place: String, why: &str| Err(Error::Scenario { place, why: why.to_owned() });
        if let Err(error) = self.policy.check() {
            return wrong("the policy".to_owned(), &error.to_string());
        }
        if self.types.is_empty() || self.types.len() > TYPES_MAX {
            return wrong("the types".to_owned(), "there must be from 1 to 65536");
        }
        if self.sources.is_empty() || self.sources.len() > SOURCES_MAX {
            return wrong("the sources".to_owned(), "there must be from 1 to 1024");
        }
        for kind in &self.types {
            if kind.statements == 0 {
                return wrong(format!("type {:?}", kind.name), "needs at least one statement");
            }
            if let Some(why) = kind.service_time.fault().or_else(|| application::fault(&kind.tables)) {
                return wrong(format!("type {:?}", kind.name), why);
            }
        }
        for (number, source) in self.sources.iter().enumerate() {
            let closed = matches!(source.arrivals, Arrivals::Closed { .. });
            let lost = matches!(source.mix, Mix::Sessions(_)) && !closed;
            let fault = source
                .arrivals
                .fault(self.types.len())
                .or_else(|| source.mix.fault(self.types.len()))
                .or_else(|| source.fault_of_then())
                .or(lost.then_some("only the clients of a closed loop have sessions"));
            if let Some(why) = fault {
                return wrong(format!("source {}", number + 1), why);
            }
        }
        if self.application.as_ref().is_some_and(|application| application.connections == 0) {
            return wrong("the application".to_owned(), "without a connection it never asks the service");
        }
        if let Some(why) = self.upstream.fault() {
            return wrong("the upstream".to_owned(), why);
        }
        if self.warm_up >= self.duration {
            return wrong("the warm-up".to_owned(), "nothing would be measured after it");
        }
        if self.tick.is_zero() {
            return wrong("the tick".to_owned(), "must be above 0");
        }
        if u32::try_from(self.requests_max).is_err() {
            return wrong("requests_max".to_owned(), "must be below 2^32");
        }
        Ok(())
    }
}

/// The most types of a scenario.
const TYPES_MAX: usize = 65_536;
/// The most sources of a scenario.
const SOURCES_MAX: usize = 1_024;
/// The most requests that follow another.
const THEN_MAX: u64 = 1_000;
