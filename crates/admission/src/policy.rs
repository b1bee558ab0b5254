//! The policy of one gate: what the operator chooses.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::goals::{Adaptation, ClassGoal, Share};
use crate::outside::{ControlMaker, RefuseMaker};
use crate::request::{ClassId, RequestType};
use crate::time::Duration;
use crate::without::Without;
use crate::work::Work;

/// How the expected work of a type is estimated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cost {
    /// The mean of the last `window` executions (Gatekeeper, section 3).
    MovingAverage {
        /// How many, from 1 to [`Cost::WINDOW_MAX`].
        window: u32,
    },
    /// An exponentially weighted mean; `weight` of the newest execution, in (0, 1].
    Ewma {
        /// In (0, 1].
        weight: f64,
    },
    /// The mean of a type's first `window` executions, never corrected: an offline estimate, to compare with.
    Fixed {
        /// How many, from 1 to [`Cost::WINDOW_MAX`].
        window: u32,
    },
    /// The mean of what executions would have taken alone, which the load doesn't change (`pace.rs` says
    /// how).
    Steady,
}

impl Cost {
    /// The paper's estimator over 32 executions; `cost/moving_average.rs` says why 32.
    pub const DEFAULT: Self = Self::MovingAverage { window: 32 };
    /// The longest window: what bounds the memory of a type.
    pub const WINDOW_MAX: u32 = 1024;
}

/// The order in which waiting requests start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// In order of arrival.
    Fifo,
    /// By expected work; a waiting request may be overtaken by at most max(`aging` × its own work, `floor` ×
    /// the requests that may be in flight) of work (`None`: without bound; `aging` = 0 ignores the floor and
    /// is FIFO).
    ShortestFirst {
        /// The multiple of its own work by which a request may be overtaken.
        aging: Option<f64>,
        /// The least work by which any request may be overtaken, for each that may be in flight. So much work
        /// in front of a request delays it by about as long: the work of each is measured among the others.
        floor: Work,
    },
}

/// What bounds what is in flight, beside the connections and the long lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// Nothing.
    Unlimited,
    /// An amount of work, in the estimator's unit (Gatekeeper, section 3.1).
    Fixed(Work),
    /// A number of requests that a controller finds while requests are served.
    Found(Controller),
}

/// The controller that finds how many requests may be in flight. The files under `capacity/` say how each
/// does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// Ours: a free rise in bursts, and comparisons where saturation lasts, by the work that is answered.
    Auto,
    /// The method of incremental steps (Heiss and Wagner, VLDB 1991), for the papers' experiments.
    IncrementalSteps,
    /// Parabola approximation (Heiss and Wagner, VLDB 1991), for the papers' experiments.
    Parabola,
    /// A controller from outside of this crate, such as one of the laboratory's.
    Other(ControlMaker),
}

/// The rule that refuses requests, beside a full queue and `queue_timeout`. The files under `rejection/` say
/// how each rule works, and when it fails.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Rejection {
    /// No request is refused.
    #[default]
    Nobody,
    /// Refuses a request on arrival if the queue ahead makes it miss its own deadline.
    Deadline,
    /// Ours: refuses requests that would make responses slower than a target.
    Target(Targets),
    /// Refuses at random, with a probability that a PI controller finds (Yaksha, IWQoS 2004).
    Yaksha(YakshaSettings),
    /// A rule from outside of this crate refuses, such as one of the laboratory's.
    Other(RefuseMaker),
}

/// The order of requests when a service goes on that has answered nothing for seconds (`stalls.rs`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AfterStall {
    /// The usual order. The gate doesn't check whether the service stands still.
    #[default]
    InOrder,
    /// Newcomers go first, and requests that waited through the stall get what is left of the service. During
    /// the stall no more than usual is sent to the service.
    NewcomersFirst,
}

/// The response times to hold.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Targets {
    /// Of all requests together.
    pub all: Goal,
    /// Of single types besides, at most [`Targets::TYPES_MAX`].
    pub types: BTreeMap<RequestType, Goal>,
}

impl Targets {
    /// The most types with targets of their own.
    pub const TYPES_MAX: usize = 1_000;

    /// A mean response time of all requests.
    pub fn mean(mean: Duration) -> Self {
        Self { all: Goal { mean: Some(mean), p95: None }, types: BTreeMap::new() }
    }

    /// A time within which 95 % of all requests are answered.
    pub fn p95(p95: Duration) -> Self {
        Self { all: Goal { mean: None, p95: Some(p95) }, types: BTreeMap::new() }
    }
}

/// A response time to hold: queue wait and upstream time together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Goal {
    /// Its mean.
    pub mean: Option<Duration>,
    /// What 95 % stay below.
    pub p95: Option<Duration>,
}

impl Goal {
    /// Whether there is nothing to hold.
    pub const fn is_none(&self) -> bool {
        self.mean.is_none() && self.p95.is_none()
    }

    fn is_possible(&self) -> bool {
        [self.mean, self.p95].iter().flatten().all(|time| !time.is_zero())
    }
}

/// The parameters of Yaksha's controller.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct YakshaSettings {
    /// The mean response time to hold, T_ref.
    pub target: Duration,
    /// λ₀: so many requests a second the design assumes.
    pub arrivals: f64,
    /// Whether it goes on from there.
    pub tuning: Tuning,
    /// 1/f_T: from one step of the controller to the next.
    pub interval: Duration,
    /// Over how long response times are smoothed.
    pub smoothing: Duration,
    /// Over how long the probability of admission is averaged, to tune.
    pub averaging: Duration,
}

impl YakshaSettings {
    /// Self-tuned, with what `rejection/yaksha.rs` gives reasons for.
    pub const fn new(target: Duration) -> Self {
        Self {
            target,
            arrivals: 50.0,
            tuning: Tuning::SelfTuned,
            interval: Duration::from_secs(1),
            smoothing: Duration::from_secs(10),
            averaging: Duration::from_secs(10),
        }
    }
}

/// How Yaksha's gains are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tuning {
    /// Anew at each step, from how many are let in.
    SelfTuned,
    /// Once, for the arrivals of the design.
    Static,
}

/// Which types that contend with one another are held back together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Contention {
    /// None.
    #[default]
    None,
    /// Those that are found by observation (`contention.rs`).
    Auto,
    /// These: a yardstick for experiments. At most eight groups.
    Given(Vec<Given>),
}

/// A group of types whose bound is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// Its types.
    pub types: Vec<RequestType>,
    /// The most of their requests that may be in flight, at least 1.
    pub most: u32,
}

/// The most long requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LongLimit {
    /// The operator's number.
    Fixed(u32),
    /// A number that keeps the service busy, found from observations (`lanes/width.rs`).
    Found {
        /// How many cores the service has told; the limit is at most a little more. `None`: nothing.
        cores: Option<u32>,
    },
}

impl LongLimit {
    /// A limit that is found where the service tells nothing.
    pub const FOUND: Self = Self::Found { cores: None };
}

/// How much a service class gets, next to others that want the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(u32);

impl Weight {
    /// The weight of a class without a stated one.
    pub const ONE: Self = Self(1_000);
    /// The least, 0.001.
    pub const MIN: Self = Self(1);
    /// The most, 1000.
    pub const MAX: Self = Self(1_000_000);

    /// To the nearest thousandth; `None` if that isn't from [`Weight::MIN`] to [`Weight::MAX`].
    pub fn new(weight: f64) -> Option<Self> {
        let thousandths = libm::round(weight * 1e3);
        let is_possible = thousandths >= f64::from(Self::MIN.0) && thousandths <= f64::from(Self::MAX.0);
        is_possible.then_some(Self(thousandths as u32))
    }

    /// The weight as a number.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / 1e3
    }

    /// In thousandths.
    pub(crate) const fn thousandths(self) -> u32 {
        self.0
    }
}

/// One service class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceClass {
    /// Which.
    pub id: ClassId,
    /// What it gets, next to others; with goals, what it gets at the beginning.
    pub weight: Weight,
    /// What it is promised, if anything. Where any class has a goal, weights are adapted.
    pub goal: Option<ClassGoal>,
    /// If not all goals can be met, classes of the least importance lose theirs first.
    pub importance: u8,
    /// The least share of the service that adaptation leaves it.
    pub floor: Share,
    /// The largest share of the service that adaptation gives it.
    pub ceiling: Share,
    /// How it takes turns with other classes.
    pub turns: Turns,
}

/// How a class takes turns with others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Turns {
    /// By weights, with all other classes of this kind.
    #[default]
    Shared,
    /// Before all classes of a higher number and all shared ones: to compare with.
    Priority(u8),
    /// Behind all other classes. A request starts only while no other class waits for the places that it
    /// takes, and while the service has places free for newcomers.
    Background,
}

impl Turns {
    /// Classes of a lower rank go first.
    pub(crate) const fn rank(self) -> u16 {
        match self {
            Self::Priority(number) => number as u16,
            Self::Shared => 256,
            Self::Background => 257,
        }
    }
}

impl ServiceClass {
    /// The most classes of a gate, the default one among them.
    pub const MOST: usize = 64;

    /// A class with a weight and no goal.
    pub const fn new(id: ClassId, weight: Weight) -> Self {
        Self {
            id,
            weight,
            goal: None,
            importance: 0,
            floor: Share::FLOOR,
            ceiling: Share::ALL,
            turns: Turns::Shared,
        }
    }

    fn is_possible(&self) -> bool {
        let is_promised = self.goal.is_some() && self.turns == Turns::Background;
        !is_promised && self.floor <= self.ceiling && self.goal.is_none_or(ClassGoal::is_possible)
    }
}

/// Everything that the operator chooses for one gate. Units are in the types.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// What bounds what is in flight.
    pub capacity: Capacity,
    /// Which types are held back together.
    pub contention: Contention,
    /// The budget of upstream connections of the whole gate, at least 1.
    pub connections: u32,
    /// The most long requests in flight; `None`: no long lane.
    pub long_limit: Option<LongLimit>,
    /// The estimator.
    pub cost: Cost,
    /// The order of service.
    pub order: Order,
    /// The most requests that may wait.
    pub queue_max: usize,
    /// The longest that a request may wait.
    pub queue_timeout: Duration,
    /// The most connections that pinned sessions may keep.
    pub pinned_max: u32,
    /// The most types known at once; the least recently used goes to `other`.
    pub types_max: usize,
    /// A transaction idle for longer gives its work back.
    pub suspend_after: Duration,
    /// What is done when the service stands still, and which requests go first afterwards.
    pub after_stall: AfterStall,
    /// The rule that refuses requests.
    pub rejection: Rejection,
    /// The service classes that take turns. If empty, there is only the default one. That one has
    /// [`Weight::ONE`] unless it is named here.
    pub classes: Vec<ServiceClass>,
    /// How weights are adapted to the goals of classes.
    pub adaptation: Adaptation,
    /// What an experiment leaves out: [`Without::NOTHING`] in every gate that serves clients.
    pub without: Without,
}

/// A budget of 20 connections, first come, first served, and nothing else; what a gate does unless it is
/// told otherwise is the configuration's to say.
impl Default for Policy {
    fn default() -> Self {
        Self {
            capacity: Capacity::Unlimited,
            contention: Contention::None,
            connections: 20,
            long_limit: None,
            cost: Cost::DEFAULT,
            order: Order::Fifo,
            queue_max: 100_000,
            queue_timeout: Duration::from_secs(120),
            pinned_max: 10,
            types_max: 1_000,
            suspend_after: Duration::from_secs(1),
            after_stall: AfterStall::InOrder,
            rejection: Rejection::Nobody,
            classes: Vec::new(),
            adaptation: Adaptation::DEFAULT,
            without: Without::NOTHING,
        }
    }
}

impl Policy {
    /// Whether this policy can be. The gate takes any policy, and reads an impossible value as the nearest
    /// possible one; a configuration should refuse it instead.
    ///
    /// # Errors
    /// The first value that can't be.
    pub fn check(&self) -> Result<(), PolicyError> {
        if self.connections == 0 {
            return Err(PolicyError::NoConnections);
        }
        if self.long_limit == Some(LongLimit::Fixed(0)) {
            return Err(PolicyError::NoLongs);
        }
        match self.cost {
            Cost::MovingAverage { window } | Cost::Fixed { window }
                if window == 0 || window > Cost::WINDOW_MAX =>
            {
                return Err(PolicyError::Window);
            }
            Cost::Ewma { weight } if !(weight > 0.0 && weight <= 1.0) => return Err(PolicyError::Weight),
            Cost::MovingAverage { .. } | Cost::Ewma { .. } | Cost::Fixed { .. } | Cost::Steady => {}
        }
        match self.order {
            Order::ShortestFirst { aging: Some(aging), .. } if aging.is_nan() || aging < 0.0 => {
                return Err(PolicyError::Aging);
            }
            Order::ShortestFirst { .. } | Order::Fifo => {}
        }
        let ids: BTreeSet<_> = self.classes.iter().map(|class| class.id).collect();
        let others = ids.len() - usize::from(ids.contains(&ClassId::DEFAULT));
        if ids.len() < self.classes.len() || others >= ServiceClass::MOST {
            return Err(PolicyError::Classes);
        }
        let floors: f64 = self.classes.iter().map(|class| class.floor.as_f64()).sum();
        let is_possible = self.classes.iter().all(ServiceClass::is_possible) && floors <= 1.0;
        if !is_possible || !self.adaptation.is_possible() {
            return Err(PolicyError::Goals);
        }
        self.rejection.check()
    }
}

impl Rejection {
    fn check(&self) -> Result<(), PolicyError> {
        let is_bad = match self {
            Self::Nobody | Self::Deadline | Self::Other(_) => false,
            Self::Target(targets) => {
                let mut goals = targets.types.values().chain([&targets.all]);
                !goals.all(Goal::is_possible) || targets.types.len() > Targets::TYPES_MAX
            }
            Self::Yaksha(YakshaSettings { target, arrivals, interval, smoothing, averaging, tuning: _ }) => {
                let times = [target, interval, smoothing, averaging];
                times.iter().any(|time| time.is_zero()) || !(arrivals.is_finite() && *arrivals > 0.0)
            }
        };
        if is_bad { Err(PolicyError::Rejection) } else { Ok(()) }
    }
}

/// A policy that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyError {
    /// `connections` is zero.
    NoConnections,
    /// `long_limit` is zero: long requests would wait for ever.
    NoLongs,
    /// The window of an average is zero or more than [`Cost::WINDOW_MAX`].
    Window,
    /// The weight isn't in (0, 1].
    Weight,
    /// `aging` is negative or not a number.
    Aging,
    /// A target or another parameter of the rejection isn't above zero.
    Rejection,
    /// A class is named twice, or there are more than [`ServiceClass::MOST`].
    Classes,
    /// A goal or a tick is zero, a floor is above its ceiling, or the floors exceed the whole.
    Goals,
}

impl core::fmt::Display for PolicyError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::NoConnections => "the budget of connections is zero",
            Self::NoLongs => "the long limit is zero, so long requests would wait for ever",
            Self::Window => "an average's window must be from 1 to 1024 executions",
            Self::Weight => "the weight must be above 0 and at most 1",
            Self::Aging => "aging must be a number that isn't negative",
            Self::Rejection => "the targets and times of the rejection must be above zero",
            Self::Classes => "a class is named twice, or there are more than 64",
            Self::Goals => "a class's goal, floor or ceiling can't be, or the tick is zero",
        })
    }
}

impl core::error::Error for PolicyError {}
