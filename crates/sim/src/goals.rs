//! The experiments of Chandra et al. (Computer Communications 29, 2006): goals of two classes, over the
//! queue before a site's workers and over its processor.
//!
//! The queue is the real gate with 150 connections, as many as the paper's Apache has workers. A CGI request
//! blocks a worker and hardly needs the processor, an SSL request needs the processor, which the classes
//! share by weights. An [`Adapter`] moves the shares of both alike, by what queue and processor take
//! together. Beside it, goals are split over the resources by utilization, with an adapter for each, or with
//! the published method for each ([`Published`]). A tick has five seconds.
//!
//! **Where the paper says too little.** It gives no service times. Those here are calibrated by what it says
//! without adaptation: 150 workers that serve 850 requests a second meet all of its Table 2 (b); blocking for
//! 2.86 s makes the mean wait of Fig. 7 that of its two goals. No single processor time meets all goals of
//! Figs. 4 to 6: each figure has its own. Its regular arrivals have exponential processor times here,
//! because two clients in step with fixed times would show the phase between them and nothing else.

mod delays;
mod published;
mod settling;

use admission::{
    Adaptation, Adapter, ClassGoal, ClassId, Duration, Event, Instant, Measure, Order, Policy, Promised,
    Served, ServiceClass, Standing, Statistic, Turns, Weight,
};

use crate::arrivals::{Arrivals, Rate};
use crate::clients::Mix;
use crate::distribution::Distribution;
use crate::engine::{Observer, Steering, run, run_with};
use crate::error::Error;
use crate::record::{Row, Sample};
use crate::scenario::{End, Kind, Scenario, Source};
use crate::upstream::{Service, Upstream};
pub use delays::{Delays, SHARED_WORK, Workload, by_share, by_share_theory};
pub use published::Published;
pub use settling::{Change, KEPT, Resource, SPAN};

/// The paper's tick.
pub const TICK: Duration = Duration::from_secs(5);
/// The paper's `MaxClients` (section 5.1).
pub const WORKERS: u32 = 150;
/// The processor time of a CGI request, in seconds.
const CGI_WORK: f64 = 2e-4;
/// The weight that a control group begins with.
const FORMER: f64 = 100.0;
/// How long a CGI request blocks its worker, in seconds.
pub const CGI_BLOCKS: f64 = 2.86;
/// What 150 workers serve in Table 2, per second.
pub const TABLE_RATE: f64 = 850.0;
/// The length of the runs of Table 2 (b), in seconds: the mean delay of those that were let in is then the
/// paper's.
pub const TABLE_SECONDS: f64 = 11.0;

/// Classes that take turns at the queue of Table 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// By weights.
    Weights([u32; 3]),
    /// The first class before the second, the second before the third.
    Priority,
}

/// How shares are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// By the published adaptation.
    Published,
    /// By the gate's own: both resources have the same shares.
    Ours,
    /// By the gate's own, but each resource has shares of its own, for its part of each goal.
    Split,
}

/// The mean waits of three classes with these rates, in seconds: one cell of Table 2. Arrivals are random.
/// Only requests that were let in count, as in the paper.
///
/// # Errors
/// The errors of [`run`].
pub fn table2(rates: [f64; 3], sharing: Sharing, seed: u64) -> Result<[f64; 3], Error> {
    table2_of(Arrivals::Poisson, rates, sharing, seed)
}

/// The mean waits of [`table2`], with arrivals of another kind.
///
/// # Errors
/// The errors of [`run`].
pub fn table2_of(
    arrivals: fn(Rate) -> Arrivals,
    rates: [f64; 3],
    sharing: Sharing,
    seed: u64,
) -> Result<[f64; 3], Error> {
    let class = |place: usize| match sharing {
        Sharing::Weights(weights) => ServiceClass::new(id(place), weight(f64::from(weights[place]))),
        Sharing::Priority => {
            let turns = Turns::Priority(place as u8);
            ServiceClass { turns, ..ServiceClass::new(id(place), Weight::ONE) }
        }
    };
    let mean = f64::from(WORKERS) / TABLE_RATE;
    let kinds = vec![Kind::new("cgi", Distribution::Exponential { mean: Duration::from_secs_f64(mean) })];
    let source = |place: usize| Source {
        class: id(place),
        ..Source::new(arrivals(Rate::constant(rates[place])), Mix::Shares(vec![1.0]))
    };
    let upstream = Upstream::new(Service::Fifo { servers: WORKERS });
    let base = Scenario::new(policy((0..3).map(class).collect(), None), kinds, source(0), upstream);
    let scenario = Scenario {
        seed,
        sources: (0..3).map(source).collect(),
        duration: Duration::from_secs_f64(TABLE_SECONDS),
        warm_up: Duration::ZERO,
        end: End::Cut,
        ..base
    };
    let (mut waits, mut counts) = ([0.0; 3], [0.0_f64; 3]);
    for row in run(&scenario)?.rows {
        if row.dispatched.is_some() {
            waits[usize::from(row.source)] += row.queue_wait().as_secs_f64();
            counts[usize::from(row.source)] += 1.0;
        }
    }
    Ok([0, 1, 2].map(|place| waits[place] / counts[place].max(1.0)))
}

fn weight(weight: f64) -> Weight {
    Weight::new(weight).unwrap_or(Weight::ONE)
}

fn id(place: usize) -> ClassId {
    ClassId(place as u64 + 1)
}

fn policy(classes: Vec<ServiceClass>, adaptation: Option<Adaptation>) -> Policy {
    Policy {
        connections: WORKERS,
        long_limit: None,
        order: Order::Fifo,
        queue_max: 1_000_000,
        queue_timeout: Duration::from_secs(100_000),
        classes,
        adaptation: adaptation.unwrap_or(Adaptation::DEFAULT),
        ..Policy::default()
    }
}

/// One of the paper's figures: two classes whose load or goals change.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// Such as "Fig. 4".
    pub name: &'static str,
    /// What changes.
    pub what: &'static str,
    /// From a tick on, how many requests of SSL and of CGI each class sends per second.
    pub load: Vec<(u32, [f64; 2], [f64; 2])>,
    /// From a tick on, the goals of both classes, in seconds.
    pub goals: Vec<(u32, [f64; 2])>,
    /// Whether SSL requests arrive at regular intervals.
    pub regular: bool,
    /// The mean processor time of an SSL request, in seconds.
    pub ssl: f64,
    /// Ticks until the end.
    pub ticks: u32,
    /// Ticks of a stable interval, as in the paper.
    pub interval: u32,
    /// Which goal is kept if not both can be: the one of more importance.
    pub importance: [u8; 2],
}

/// The state at a tick: of both classes the delays of those that ended in it, and the shares.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// The number of the tick.
    pub tick: u32,
    /// At the queue: how many requests ended, and their waits together in seconds.
    pub queue: [(f64, f64); 2],
    /// At the processor.
    pub processor: [(f64, f64); 2],
    /// The first class's share of the queue.
    pub queue_share: f64,
    /// The first class's share of the processor.
    pub processor_share: f64,
    /// How many times shares of either have moved so far.
    pub moves: u32,
    /// Whether the gate's own method tells that a class's goal can't be met.
    pub out_of_reach: [bool; 2],
}

/// Figs. 4 to 8.
pub fn experiments() -> Vec<Experiment> {
    let ssl = |tick, rates| (tick, rates, [0.0; 2]);
    let cgi = |tick, rate| (tick, [0.0; 2], [rate; 2]);
    let base = Experiment {
        name: "Fig. 4",
        what: "processor, regular arrivals, another load",
        load: vec![ssl(0, [6.0, 6.0]), ssl(100, [4.0, 8.0]), ssl(500, [6.0, 6.0]), ssl(900, [8.0, 4.0])],
        goals: vec![(0, [0.1, 0.1])],
        regular: true,
        ssl: 0.052,
        ticks: 1_200,
        interval: 10,
        importance: [0; 2],
    };
    let goals = |name, what, from, to, [near, far]: [f64; 2]| Experiment {
        name,
        what,
        load: vec![ssl(0, [6.0, 6.0])],
        goals: vec![(from, [near, far]), (to, [far, near])],
        ..base.clone()
    };
    vec![
        base.clone(),
        Experiment {
            ssl: 0.040,
            ..goals("Fig. 5", "processor, regular arrivals, other goals", 100, 500, [0.05, 0.15])
        },
        Experiment {
            regular: false,
            ssl: 0.070,
            interval: 40,
            ..goals("Fig. 6", "processor, Poisson arrivals, other goals", 200, 600, [0.25, 1.0])
        },
        Experiment {
            load: vec![cgi(0, 24.6)],
            ticks: 1_400,
            interval: 40,
            ..goals("Fig. 7", "queue, Poisson arrivals, other goals", 400, 900, [0.05, 0.15])
        },
        Experiment {
            name: "Fig. 8",
            what: "the bottleneck moves from the processor to the queue and back",
            load: vec![ssl(0, [6.0, 6.0]), cgi(400, 24.6), ssl(800, [4.0, 8.0])],
            goals: vec![(100, [0.05, 0.15])],
            ssl: 0.040,
            interval: 20,
            ..base
        },
    ]
}

/// Beyond the paper: both resources are short at once. The first class needs the processor most, the second
/// the workers.
pub fn opposite_needs() -> Experiment {
    Experiment {
        name: "opposite needs",
        what: "both resources, Poisson arrivals",
        load: vec![(0, [8.0, 4.0], [5.0, 42.0])],
        goals: vec![(50, [0.3, 0.15]), (300, [0.32, 0.13])],
        regular: false,
        ssl: 0.070,
        ticks: 600,
        interval: 40,
        importance: [0; 2],
    }
}

/// Beyond the paper: a hundredth more comes than the workers serve, and both classes have goals of 50 ms.
/// That of the first is more important, and can be kept alone.
pub fn beyond_reach() -> Experiment {
    Experiment {
        name: "beyond reach",
        what: "queue, Poisson arrivals, goals that can't both be kept",
        load: vec![(0, [0.0; 2], [26.5; 2])],
        goals: vec![(40, [0.05; 2])],
        regular: false,
        ssl: 0.0,
        ticks: 240,
        interval: 20,
        importance: [2, 1],
    }
}

impl Experiment {
    /// Plays the experiment once.
    ///
    /// # Errors
    /// The errors of [`run`].
    pub fn play(&self, method: Method, seed: u64) -> Result<Vec<Seen>, Error> {
        let adaptation = Adaptation { tick: TICK, interval: self.interval };
        let exponential = |mean| Distribution::Exponential { mean: Duration::from_secs_f64(mean) };
        let cgi =
            Kind { input_output: Some(CGI_BLOCKS / CGI_WORK), ..Kind::new("cgi", exponential(CGI_WORK)) };
        let ssl = Kind::new("ssl", exponential(self.ssl));
        let kinds = vec![ssl.clone(), ssl, cgi.clone(), cgi];
        let rate = |kind: usize| {
            let step = |&(tick, ssl, cgi): &(u32, [f64; 2], [f64; 2])| {
                (TICK * tick, if kind < 2 { ssl[kind] } else { cgi[kind - 2] })
            };
            Rate::steps(self.load.iter().map(step).collect::<Vec<_>>())
        };
        let source = |kind: usize| {
            let mut mix = vec![0.0; 4];
            mix[kind] = 1.0;
            let is_regular = self.regular && kind < 2;
            let arrivals =
                if is_regular { Arrivals::Regular(rate(kind)) } else { Arrivals::Poisson(rate(kind)) };
            Source { class: id(kind % 2), ..Source::new(arrivals, Mix::Shares(mix)) }
        };
        let classes = [0, 1].map(|place| ServiceClass::new(id(place), Weight::ONE));
        let policy = policy(classes.to_vec(), Some(adaptation));
        let base = Scenario::new(policy, kinds, source(0), Upstream::new(Service::Weighted { cores: 1 }));
        let scenario = Scenario {
            seed,
            sources: (0..4).map(source).collect(),
            duration: TICK * self.ticks,
            warm_up: Duration::ZERO,
            end: End::Cut,
            tick: TICK,
            ..base
        };
        let mut watch = Watch::new(self, method, &scenario.policy);
        run_with(&scenario, &mut watch)?;
        Ok(watch.seen)
    }
}

/// What moves shares.
enum Movers {
    /// Those of both.
    Ours(Adapter),
    /// The processor's. The gate adapts the shares of its queue itself.
    Split(Adapter),
    /// The queue's and the processor's.
    Published { queue: Published, processor: Published },
}

/// Watches both resources, and has the shares adapted.
struct Watch<'a> {
    experiment: &'a Experiment,
    policy: Policy,
    movers: Movers,
    seen: Vec<Seen>,
    now: Seen,
    tick: u32,
    goals: Option<[f64; 2]>,
    local: [[f64; 2]; 2],
    /// Since the goals were split: how long each class has occupied the processor and workers.
    used: [[f64; 2]; 2],
    since: u32,
    moves: u32,
}

fn goal(seconds: f64, measure: Measure) -> ClassGoal {
    ClassGoal::Delay { measure, statistic: Statistic::Mean, most: Duration::from_secs_f64(seconds.max(1e-6)) }
}

impl<'a> Watch<'a> {
    fn new(experiment: &'a Experiment, method: Method, policy: &Policy) -> Self {
        let promised = [0, 1].map(|place| Promised::new(id(place), None));
        let published = Published::new(2, experiment.interval);
        let movers = match method {
            Method::Ours => Movers::Ours(Adapter::new(Instant::ZERO, policy.adaptation, &promised)),
            Method::Split => Movers::Split(Adapter::new(Instant::ZERO, policy.adaptation, &promised)),
            Method::Published => Movers::Published { queue: published.clone(), processor: published },
        };
        Self {
            experiment,
            policy: policy.clone(),
            movers,
            seen: Vec::new(),
            now: Seen::default(),
            tick: 0,
            goals: None,
            local: [[0.0; 2]; 2],
            used: [[0.0; 2]; 2],
            since: 0,
            moves: 0,
        }
    }

    /// Tells the goals, or each resource its part of them, if they differ from those of before.
    fn set_goals(&mut self, steering: &mut Steering<'_>) {
        let step = self.experiment.goals.iter().rev().find(|(from, _)| *from <= self.tick);
        let goals = step.map(|(_, goals)| *goals);
        let is_new = goals != self.goals;
        let Some(wanted) = goals else { return };
        if let Movers::Ours(adapter) = &mut self.movers {
            if is_new {
                let promised = [0, 1].map(|place| Promised {
                    importance: self.experiment.importance[place],
                    ..Promised::new(id(place), Some(goal(wanted[place], Measure::Response)))
                });
                adapter.change(steering.now(), self.policy.adaptation, &promised);
                self.goals = goals;
            }
            return;
        }
        if !is_new && self.tick - self.since < self.experiment.interval {
            return;
        }
        self.goals = goals;
        self.since = self.tick;
        let used = std::mem::take(&mut self.used);
        let local =
            [0, 1].map(|place| split(wanted[place], [used[place][0], used[place][1] / f64::from(WORKERS)]));
        let moved = |a: f64, b: f64| (a - b).abs() > 0.05 * b.max(a);
        let has_moved = (0..2).any(|place| (0..2).any(|at| moved(local[place][at], self.local[place][at])));
        if !(is_new || has_moved) {
            return;
        }
        self.local = local;
        match &mut self.movers {
            Movers::Ours(_) => {}
            Movers::Split(adapter) => {
                let promised = [0, 1]
                    .map(|place| Promised::new(id(place), Some(goal(local[place][0], Measure::Response))));
                adapter.change(steering.now(), self.policy.adaptation, &promised);
                for (place, class) in self.policy.classes.iter_mut().enumerate() {
                    class.goal = Some(goal(local[place][1], Measure::Wait));
                }
                steering.set_policy(self.policy.clone());
            }
            Movers::Published { queue, processor } => {
                processor.promise(&local.map(|of| of[0]));
                queue.promise(&local.map(|of| of[1]));
            }
        }
    }

    /// Ends a tick of both resources. The first class's share of the processor.
    fn end_tick(&mut self, at: Instant, steering: &mut Steering<'_>) -> f64 {
        let (has_moved, shares) = match &mut self.movers {
            Movers::Ours(adapter) | Movers::Split(adapter) => {
                let has_moved = adapter.pass(at, |_| true);
                while adapter.poll_news().is_some() {}
                (has_moved, [0, 1].map(|place| adapter.share(place)))
            }
            Movers::Published { queue, processor } => {
                if queue.end_tick() {
                    self.moves += 1;
                    let shares = [0, 1].map(|place| queue.share(place));
                    weigh_queue(&mut self.policy, steering, shares);
                }
                (processor.end_tick(), [0, 1].map(|place| processor.share(place)))
            }
        };
        if has_moved {
            self.moves += 1;
            if matches!(self.movers, Movers::Ours(_)) {
                weigh_queue(&mut self.policy, steering, shares);
            }
            for source in 0..4 {
                // Both have half at first.
                steering.weigh(source, FORMER * 2.0 * shares[source % 2]);
            }
        }
        shares[0]
    }
}

fn is_out_of_reach(standing: Standing) -> bool {
    matches!(standing, Standing::OutOfReach | Standing::GivenUp)
}

/// Has the gate's classes take turns by these shares.
fn weigh_queue(policy: &mut Policy, steering: &mut Steering<'_>, shares: [f64; 2]) {
    for (class, share) in policy.classes.iter_mut().zip(shares) {
        class.weight = weight(share * 1e3);
    }
    steering.set_policy(policy.clone());
}

/// Divides a goal, in seconds, over resources by how much a class uses each: D_j = D·u_j / Σ u. A resource
/// that the class hardly uses gets hardly any time; a class that uses none gets the goal for each.
///
/// A utilization is what the class takes of a resource over what the resource can give. For a queue of
/// requests before workers that is the part of the workers that the class occupies.
pub fn split(goal: f64, utilizations: [f64; 2]) -> [f64; 2] {
    let sum: f64 = utilizations.iter().sum();
    utilizations.map(|used| if sum > 0.0 { goal * used / sum } else { goal })
}

impl Observer for Watch<'_> {
    fn event(&mut self, _: Instant, event: &Event, _: &mut Steering<'_>) {
        match event {
            Event::Completed { request_type, queue_wait, upstream_time, .. } => {
                let place = request_type.0 as usize % 2;
                self.now.queue[place].0 += 1.0;
                self.now.queue[place].1 += queue_wait.as_secs_f64();
                if let Movers::Published { queue, .. } = &mut self.movers {
                    queue.observe(place, queue_wait.as_secs_f64());
                }
                self.used[place][1] += upstream_time.as_secs_f64();
            }
            Event::ClassGoal(admission::GoalNews::Moved(_)) => self.moves += 1,
            _ => {}
        }
    }

    fn served(&mut self, at: Instant, row: &Row, _: &mut Steering<'_>) {
        let Some(began) = row.dispatched else { return };
        let (place, service) = (row.kind as usize % 2, at.since(began));
        let alone = Duration::from_nanos(row.service_time.as_nanos()).min(service);
        let wait = service.saturating_sub(alone);
        self.used[place][0] += row.service_time.as_millis_f64() / 1e3;
        self.now.processor[place].0 += 1.0;
        self.now.processor[place].1 += service.as_secs_f64();
        match &mut self.movers {
            Movers::Ours(adapter) => {
                let wait = wait.saturating_add(row.queue_wait());
                let served = Served { arrived: row.arrived, wait, service: alone, work: row.service_time };
                adapter.observe(place, served);
            }
            Movers::Split(adapter) => {
                let served = Served { arrived: began, wait, service: alone, work: row.service_time };
                adapter.observe(place, served);
            }
            Movers::Published { processor, .. } => processor.observe(place, service.as_secs_f64()),
        }
    }

    fn tick(&mut self, sample: &Sample, steering: &mut Steering<'_>) {
        self.tick += 1;
        let processor_share = self.end_tick(sample.at, steering);
        self.set_goals(steering);
        let classes = steering.snapshot().classes;
        let weights: Vec<f64> = classes.iter().skip(1).map(|class| class.weight.as_f64()).collect();
        let sum: f64 = weights.iter().sum();
        let seen = std::mem::take(&mut self.now);
        let out_of_reach = match &self.movers {
            Movers::Ours(adapter) => [0, 1].map(|place| is_out_of_reach(adapter.standing(place))),
            _ => [false; 2],
        };
        self.seen.push(Seen {
            tick: self.tick,
            queue_share: weights.first().copied().unwrap_or(0.0) / sum.max(1e-9),
            processor_share,
            moves: self.moves,
            out_of_reach,
            ..seen
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_split_by_how_much_of_each_resource_a_class_uses() {
        let close = |found: [f64; 2], wanted: [f64; 2]| {
            let is_close = found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-9);
            assert!(is_close, "{found:?} instead of {wanted:?}");
        };
        close(split(0.2, [0.3, 0.1]), [0.15, 0.05]);
        close(split(0.2, [0.0, 0.0]), [0.2, 0.2]);
    }
}
