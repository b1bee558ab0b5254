//! Goals of service classes: shares of one resource are moved until each class keeps its promise.
//!
//! **Idea.** An operator knows which response time a class needs, not which weight gives it. An [`Adapter`]
//! observes how long requests of each class take, and moves shares from classes that do better than their
//! goals to the class that misses its goal by the most. It knows nothing of the resource: the gate has one
//! for its queue, and the processor behind it may follow the same shares. Where nobody waits, shares have no
//! effect, so wherever the bottleneck moves, the right shares are in force there.
//!
//! **Rooms.** `goals/window.rs` has what is observed in ticks, `goals/ratios.rs` the method that moves
//! shares, `goals/law.rs` finds goals that can't be met together. The laboratory has the published method, to
//! compare with (`sim/src/goals/published.rs`).
//!
//! **Source.** Chandra, Pradhan, Tewari, Sahu, Shenoy, "An observation-based approach towards self-managing
//! web servers", Computer Communications 29 (2006), sections 3.4 and 4.
//!
//! **Bounds.** At most [`ServiceClass::MOST`](crate::ServiceClass::MOST) classes. A share stays between the
//! class's floor and ceiling. The shares of all classes together are 1.
//!
//! **Idle classes.** A class that nobody asked for over an interval has no observation and no error. Floors
//! and ceilings are then of what the other classes have together. A class that asks again finds its share as
//! it left it.
//!
//! **When it fails.** Shares differ in effect only where requests wait. Where nobody waits and a class
//! still misses its goal, the class reaches its ceiling and is reported as out of reach.

mod law;
mod ratios;
mod window;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::learned::LearnedShare;
use crate::request::ClassId;
use crate::time::{Duration, Instant};
use crate::work::Work;
use law::Law;
use window::Window;

/// The most moves and findings that are kept until they are told; the oldest are lost beyond it.
const NEWS_MAX: usize = 256;
/// The least memory, in ticks: fewer say nothing of how they vary.
const MEMORY_MIN: u32 = 10;
/// The least time of a goal that a logarithm is taken of, in seconds.
const LEAST: f64 = 1e-9;

/// What is promised to a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassGoal {
    /// Requests take at most so long.
    Delay {
        /// Which time is meant.
        measure: Measure,
        /// Of which requests.
        statistic: Statistic,
        /// The longest time.
        most: Duration,
    },
    /// While the class asks for as much, at least so many requests are served: per 1000 seconds.
    Throughput {
        /// In thousandths of a request per second.
        millihertz: u64,
    },
}

impl ClassGoal {
    /// What was observed, in seconds or per second, over what is promised.
    pub fn ratio(self, observed: f64) -> f64 {
        match self {
            Self::Delay { most, .. } => observed / most.as_secs_f64().max(LEAST),
            Self::Throughput { millihertz } => observed / (millihertz.max(1) as f64 / 1e3),
        }
    }

    /// Whether what was observed breaks the promise by more than a tenth.
    pub fn is_missed_by(self, observed: f64) -> bool {
        match self {
            Self::Delay { .. } => self.ratio(observed) > 1.1,
            Self::Throughput { .. } => self.ratio(observed) < 0.9,
        }
    }

    pub(crate) fn is_possible(self) -> bool {
        match self {
            Self::Delay { statistic: Statistic::Percentile(part), most, .. } => {
                (1..=99).contains(&part) && !most.is_zero()
            }
            Self::Delay { statistic: Statistic::Mean, most, .. } => !most.is_zero(),
            Self::Throughput { millihertz } => millihertz > 0,
        }
    }
}

/// Written as in a configuration: `50ms`, `p95 150ms`, `wait 20ms`, `100/s`.
impl core::fmt::Display for ClassGoal {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match *self {
            Self::Throughput { millihertz } => write!(out, "{}/s", millihertz as f64 / 1e3),
            Self::Delay { measure, statistic, most } => {
                if measure == Measure::Wait {
                    out.write_str("wait ")?;
                }
                if let Statistic::Percentile(part) = statistic {
                    write!(out, "p{part} ")?;
                }
                match most.as_micros() {
                    micros if micros % 1_000 == 0 => write!(out, "{}ms", micros / 1_000),
                    micros => write!(out, "{micros}us"),
                }
            }
        }
    }
}

/// Which time of a request a goal is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// From its arrival to its answer.
    Response,
    /// From its arrival to its dispatch.
    Wait,
}

/// What a goal says of the times of many requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistic {
    /// Their mean.
    Mean,
    /// The time within which this percentage of them ends, from 1 to 99.
    Percentile(u8),
}

/// A part of a resource, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u16);

impl Share {
    /// All of it.
    pub const ALL: Self = Self(1_000);
    /// The floor of a class without a stated one, a hundredth.
    pub const FLOOR: Self = Self(10);

    /// To the nearest thousandth; `None` if that isn't from 0.001 to 1.
    pub fn new(share: f64) -> Option<Self> {
        let thousandths = libm::round(share * 1e3);
        (1.0..=1e3).contains(&thousandths).then_some(Self(thousandths as u16))
    }

    /// The share as a number, at most 1.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / 1e3
    }
}

/// How shares are adapted to goals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adaptation {
    /// The time between two looks at what was observed.
    pub tick: Duration,
    /// The number of ticks over which a steady class is judged.
    pub interval: u32,
}

impl Adaptation {
    /// A tick of one second, and an interval of twenty.
    pub const DEFAULT: Self = Self { tick: Duration::from_secs(1), interval: 20 };

    pub(crate) fn is_possible(&self) -> bool {
        !self.tick.is_zero() && self.interval > 0
    }
}

/// The goal, the weight and the bounds of one class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Promised {
    /// Which class.
    pub class: ClassId,
    /// Its weight at the beginning, as the operator has chosen it.
    pub weight: f64,
    /// Its goal, if it has one.
    pub goal: Option<ClassGoal>,
    /// Classes of less importance lose their goals first if not all can be met.
    pub importance: u8,
    /// The least share that it keeps.
    pub floor: Share,
    /// The largest share that it gets.
    pub ceiling: Share,
}

impl Promised {
    /// A class of weight 1 with this goal and no bounds of its own.
    pub const fn new(class: ClassId, goal: Option<ClassGoal>) -> Self {
        Self { class, weight: 1.0, goal, importance: 0, floor: Share::FLOOR, ceiling: Share::ALL }
    }

    /// Whether it is this class and its weight was this, as far as a file keeps a number.
    fn had(&self, class: ClassId, weight: f64) -> bool {
        self.class == class && (self.weight - weight).abs() <= 1e-9 * weight
    }
}

/// A request that has been served by the resource.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Served {
    /// When it came to the resource.
    pub arrived: Instant,
    /// How long it waited.
    pub wait: Duration,
    /// How long it was served.
    pub service: Duration,
    /// What it took of the resource.
    pub work: Work,
}

/// What an adapter has done or found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum GoalNews {
    /// A class gets another share.
    Moved(ShareMove),
    /// The goal of this class can't be met, and how it stands from now on.
    OutOfReach(Reached, Standing),
    /// The goal of this class can be met again, as far as that is known.
    WithinReach(Reached),
}

/// One class's share has moved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShareMove {
    /// Which class got more.
    pub class: ClassId,
    /// Its share before.
    pub from: f64,
    /// Its share from now on.
    pub to: f64,
    /// The class that gave the most of it.
    pub donor: ClassId,
    /// What was observed of it, and its goal; `None` for a class without a goal, which gets back what others
    /// don't need.
    pub why: Option<Reached>,
}

/// A goal, and what was observed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reached {
    /// Which class.
    pub class: ClassId,
    /// Its goal.
    pub goal: ClassGoal,
    /// What was observed: seconds, or requests per second.
    pub observed: f64,
}

/// How the goal of a class stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Standing {
    /// Nothing says that it can't be met.
    #[default]
    InReach,
    /// It can't be met, and is still pursued: no class of more importance needs what that takes.
    OutOfReach,
    /// It can't be met beside those of more important classes, and isn't pursued.
    GivenUp,
    /// Nothing is known of it: its class had no request over the last interval, or never.
    Idle,
}

impl Standing {
    /// Whether shares are moved for the goal.
    pub(crate) fn is_pursued(self) -> bool {
        matches!(self, Self::InReach | Self::OutOfReach)
    }
}

/// One class of an adapter.
#[derive(Clone, Debug)]
struct Member {
    promised: Promised,
    /// Its share of what the classes that aren't idle have together.
    share: f64,
    window: Window,
    standing: Standing,
    /// The standing that was reported last.
    told: Standing,
    /// The number of ticks since its last request.
    quiet: u32,
    /// How much a delay falls, in logarithms, for a change of the share.
    elasticity: f64,
}

impl Member {
    /// What is observed and what is wanted, both as times; `None` without a goal or without observations.
    fn reached(&self) -> Option<(f64, f64)> {
        let goal = self.promised.goal.filter(|_| self.standing.is_pursued())?;
        Some((self.window.observed(goal)?, wanted(goal)))
    }

    /// The logarithm of what is observed over what is wanted: positive if the goal is missed.
    fn error(&self) -> Option<f64> {
        let (observed, wanted) = self.reached()?;
        Some(libm::log(observed.max(LEAST) / wanted.max(LEAST)).clamp(-ERROR_MAX, ERROR_MAX))
    }

    fn told(&self) -> Option<Reached> {
        let goal = self.promised.goal.filter(|_| self.standing != Standing::Idle)?;
        let observed = self.window.observed(goal)?;
        let is_rate = matches!(goal, ClassGoal::Throughput { .. });
        let observed = if is_rate { 1.0 / observed.max(LEAST) } else { observed };
        Some(Reached { class: self.promised.class, goal, observed })
    }

    /// Ticks have ended. Whether the class has become idle, or isn't idle any more.
    fn rest(&mut self, ended: u32, waits: bool, longest: u32) -> bool {
        self.quiet = if waits { 0 } else { self.quiet.saturating_add(ended) };
        let is_idle = self.quiet > longest;
        if is_idle {
            self.window = Window::default();
        }
        if is_idle == (self.standing == Standing::Idle) {
            return false;
        }
        (self.standing, self.told) =
            (if is_idle { Standing::Idle } else { Standing::InReach }, Standing::InReach);
        true
    }

    /// What it can give to a class of this importance: to one of less, only what its own goal leaves.
    fn spare(&self, importance: u8) -> f64 {
        let above = (self.share - self.floor()).max(0.0);
        let is_more = self.promised.importance > importance;
        let error = self.error().filter(|_| is_more);
        error.map_or(above, |error| {
            above.min(self.share * (1.0 - libm::exp(error.min(0.0) / self.elasticity)))
        })
    }

    fn floor(&self) -> f64 {
        self.promised.floor.as_f64()
    }

    fn ceiling(&self) -> f64 {
        self.promised.ceiling.as_f64()
    }
}

/// Errors beyond this, in logarithms, aren't told apart.
const ERROR_MAX: f64 = 2.5;

/// What a goal wants, as a time: a throughput as the time from one request to the next.
fn wanted(goal: ClassGoal) -> f64 {
    match goal {
        ClassGoal::Delay { most, .. } => most.as_secs_f64(),
        ClassGoal::Throughput { millihertz } => 1e3 / (millihertz.max(1) as f64),
    }
}

/// A move of shares: the new share of each member, who gets, and who gives the most.
#[derive(Clone, Debug)]
struct Plan {
    to: usize,
    donor: usize,
    shares: Vec<f64>,
}

/// Adapts the shares of one resource.
#[derive(Clone, Debug)]
pub struct Adapter {
    settings: Adaptation,
    members: Vec<Member>,
    next_tick: Instant,
    /// Requests that came before this don't count: they waited under other shares.
    since: Instant,
    /// Ticks since the last decision.
    ticks: u32,
    ratios: ratios::Ratios,
    law: Law,
    news: VecDeque<GoalNews>,
}

impl Adapter {
    /// Shares by the weights, from this instant on.
    pub fn new(now: Instant, settings: Adaptation, classes: &[Promised]) -> Self {
        let mut adapter = Self {
            settings,
            members: Vec::new(),
            next_tick: now.after(settings.tick),
            since: now,
            ticks: 0,
            ratios: ratios::Ratios::default(),
            law: Law::default(),
            news: VecDeque::new(),
        };
        adapter.set_members(classes, |_| None);
        adapter
    }

    /// Other goals, weights or bounds, or other ticks. A class whose weight is as before keeps its share, and
    /// its observations.
    pub fn change(&mut self, now: Instant, settings: Adaptation, classes: &[Promised]) {
        let before = core::mem::take(&mut self.members);
        let all: f64 = before.iter().map(|member| member.share).sum();
        let known = |class: &Promised| {
            let old = before.iter().find(|old| class.had(old.promised.class, old.promised.weight))?;
            Some(Member { share: old.share / all, ..old.clone() })
        };
        self.set_members(classes, known);
        self.law = Law::default();
        if settings.tick != self.settings.tick {
            self.next_tick = now.after(settings.tick);
        }
        self.settings = settings;
    }

    fn set_members(&mut self, classes: &[Promised], known: impl Fn(&Promised) -> Option<Member>) {
        let sum: f64 = classes.iter().map(|class| class.weight).sum();
        let member = |class: &Promised| match known(class) {
            Some(old) if old.standing == Standing::Idle => Member { promised: *class, ..old },
            Some(old) => {
                let (standing, told) = Default::default();
                Member { promised: *class, standing, told, ..old }
            }
            None => Member {
                promised: *class,
                share: class.weight / sum,
                window: Window::default(),
                standing: Standing::Idle,
                told: Standing::InReach,
                quiet: u32::MAX,
                elasticity: ratios::ELASTICITY,
            },
        };
        self.members = classes.iter().map(member).collect();
        self.rescale();
    }

    /// Makes the shares of the classes that aren't idle 1 together, and none of these less than its floor.
    /// Whether any was less.
    fn rescale(&mut self) -> bool {
        let asking = || self.members.iter().filter(|member| member.standing != Standing::Idle);
        let sum: f64 = asking().map(|member| member.share).sum();
        if sum <= 0.0 {
            return false;
        }
        let above = |member: &Member| member.share / sum - member.floor();
        let lacks: f64 = asking().map(|member| (-above(member)).max(0.0)).sum();
        let spare: f64 = asking().map(|member| above(member).max(0.0)).sum();
        for member in &mut self.members {
            member.share = match member.standing {
                Standing::Idle => member.share / sum,
                _ => member.floor() + above(member).max(0.0) * (1.0 - lacks / spare.max(LEAST)).max(0.0),
            };
        }
        lacks > 0.0
    }

    /// The share of the class in this place, as the classes were given, of what all have together.
    pub fn share(&self, place: usize) -> f64 {
        let all: f64 = self.members.iter().map(|member| member.share).sum();
        self.members.get(place).map_or(0.0, |member| member.share / all)
    }

    /// What it has found, to be kept across restarts.
    pub(crate) fn learned(&self) -> Vec<LearnedShare> {
        let learned = |(place, Member { promised, .. }): (usize, &Member)| LearnedShare {
            class: promised.class,
            weight: promised.weight,
            share: self.share(place),
        };
        self.members.iter().enumerate().map(learned).collect()
    }

    /// A class that had no request yet, and whose weight is as it was, has the share that was learned.
    pub(crate) fn recall(&mut self, learned: &[LearnedShare]) {
        for member in self.members.iter_mut().filter(|member| member.standing == Standing::Idle) {
            let known = learned.iter().find(|it| member.promised.had(it.class, it.weight));
            if let Some(known) = known.filter(|it| it.share > 0.0 && it.share <= 1.0) {
                member.share = known.share.clamp(member.floor(), member.ceiling());
            }
        }
    }

    /// How the goal of the class in this place stands.
    pub fn standing(&self, place: usize) -> Standing {
        self.members.get(place).map_or(Standing::InReach, |member| member.standing)
    }

    /// What the last ticks show of the class in this place, and its goal.
    pub fn reached(&self, place: usize) -> Option<Reached> {
        self.members.get(place)?.told()
    }

    /// The resource has served a request of the class in this place.
    pub fn observe(&mut self, place: usize, served: Served) {
        if let Some(member) = self.members.get_mut(place) {
            member.quiet = 0;
            self.law.observe(place, &served, member.promised.goal);
            let is_new = served.arrived >= self.since;
            member.window.observe(&served, member.promised.goal, is_new);
        }
    }

    /// Whether a tick has ended by this instant.
    pub fn is_due(&self, now: Instant) -> bool {
        self.next_tick <= now
    }

    /// Ends a tick if it is over. `waits` says whether requests of the class in a place wait at its end.
    /// Whether shares have moved.
    pub fn pass(&mut self, now: Instant, waits: impl Fn(usize) -> bool) -> bool {
        if !self.is_due(now) || self.settings.tick.is_zero() {
            return false;
        }
        let tick = self.settings.tick.as_nanos().max(1);
        let late = now.since(self.next_tick).as_nanos() / tick;
        let ended = u32::try_from(late).unwrap_or(u32::MAX).saturating_add(1);
        self.next_tick = self.next_tick.after(self.settings.tick.saturating_mul(ended));
        self.ticks = self.ticks.saturating_add(ended);
        let seconds = self.settings.tick.as_secs_f64() * f64::from(ended);
        let memory = self.settings.interval.max(MEMORY_MIN);
        ratios::note(&mut self.members);
        let mut rests = false;
        for (place, member) in self.members.iter_mut().enumerate() {
            member.window.end_tick(seconds, waits(place), f64::from(memory));
            rests |= member.rest(ended, waits(place), memory);
        }
        let is_other = rests && self.rescale();
        self.look_at_law(ended);
        let judged = ratios::Judged { ticks: self.ticks, interval: self.settings.interval };
        let Some(plan) = self.ratios.plan(&mut self.members, judged) else { return is_other };
        self.commit(now, &plan);
        true
    }

    fn commit(&mut self, now: Instant, plan: &Plan) {
        let (to, donor) = (&self.members[plan.to], &self.members[plan.donor]);
        let all: f64 = self.members.iter().map(|member| member.share).sum();
        self.tell(GoalNews::Moved(ShareMove {
            class: to.promised.class,
            from: to.share / all,
            to: plan.shares[plan.to] / all,
            donor: donor.promised.class,
            why: to.told().filter(|_| to.standing != Standing::GivenUp),
        }));
        for (member, &share) in self.members.iter_mut().zip(&plan.shares) {
            member.share = share;
            member.window = Window::default();
        }
        (self.ticks, self.since) = (0, now);
    }

    fn look_at_law(&mut self, ended: u32) {
        let verdict = self.law.look(ended, self.settings.interval, &self.members).unwrap_or_default();
        for (member, standing) in self.members.iter_mut().zip(verdict) {
            member.standing = standing;
        }
        for place in 0..self.members.len() {
            let member = &mut self.members[place];
            let standing = member.standing;
            // Right after a move nothing is observed: a later tick tells it.
            let Some(told) = member.told().filter(|_| member.told != standing) else { continue };
            member.told = standing;
            self.tell(match standing {
                Standing::InReach | Standing::Idle => GoalNews::WithinReach(told),
                Standing::OutOfReach | Standing::GivenUp => GoalNews::OutOfReach(told, standing),
            });
        }
    }

    fn tell(&mut self, news: GoalNews) {
        if self.news.len() >= NEWS_MAX {
            self.news.pop_front();
        }
        self.news.push_back(news);
    }

    /// The next thing to tell.
    pub fn poll_news(&mut self) -> Option<GoalNews> {
        self.news.pop_front()
    }
}

#[cfg(test)]
mod tests;
