//! Fig. 8: the bottleneck moves from the processor to the queue and back.
//!
//! A site has a worker process for each class, both on one processor and each in a control group of its own.
//! In the first and last phase requests compute, in the middle one they block. The gate lets as many in as
//! keep the processor busy, so that computing requests meet there, and blocking requests before the gate. It
//! is compared with the published adaptation, which runs here beside a gate without goals: each goal is split
//! over queue and processor by utilization, and each of them has shares of its own. A third gate has no
//! control groups, and adapts its queue alone.
//!
//! **Where it differs from the paper.** There a delay has no time in which a worker is blocked. Here goals
//! are for whole responses, as users see them. So requests block for less, before fewer workers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sim::goals::{Experiment, Published, Resource, Seen, TICK, experiments, split};
use testbed::confinement::Confinement;

use super::Options;
use super::figure::{Figure, Look, in_a_line, plot, report, seen, sleep_until};
use super::laboratory::{Drawn, Stream, lines};
use crate::Error;
use crate::alternate::Display;
use crate::gatekeeper::{Gatekeeper, admin_json};
use crate::http::Origin;

/// How many requests the gate lets in.
const IN_FLIGHT: u32 = 16;
/// The mean processor time of a request that computes, in seconds of the paper.
const WORK: f64 = 0.072;
/// How long a request blocks that does, on average.
const BLOCKS: f64 = 0.4;
/// How many of these each class sends per second.
const BLOCKING: f64 = 18.5;
/// The goals of both classes.
const GOALS: [f64; 2] = [0.5, 1.0];
/// Whose runs are compared.
const NAMES: [&str; 3] = ["the gate", "published", "the gate's queue alone"];

/// What moves shares.
#[derive(Clone, Copy, PartialEq)]
enum Mover {
    /// The gate, of queue and processor.
    Both,
    /// The published adaptation, of each.
    Published,
    /// The gate, of its queue.
    Queue,
}

/// A front, a worker process for each class behind it, and their control groups.
struct Site {
    // Processes end before their groups are removed.
    _front: Origin,
    _workers: [Origin; 2],
    _groups: Arc<[Confinement; 2]>,
}

#[derive(Clone)]
struct Case {
    experiment: Experiment,
    speed: f64,
    cpu: Option<usize>,
    seed: u64,
    mover: Mover,
}

pub(super) async fn run(options: &Options, display: &Display) -> Result<String, Error> {
    if let Err(error) = Confinement::weighed(&group(0)) {
        return Ok(format!("  Fig. 8 isn't measured: {error}\n"));
    }
    let known = experiments().into_iter().find(|one| one.name == "Fig. 8");
    let known = known.ok_or_else(|| Error::Experiment("there is no Fig. 8".to_owned()))?;
    let mut experiment = known.paced(options.lead, options.phase);
    experiment.goals.iter_mut().for_each(|(_, goals)| *goals = GOALS);
    for (_, _, cgi) in &mut experiment.load {
        *cgi = cgi.map(|rate| if rate > 0.0 { BLOCKING } else { 0.0 });
    }
    let mut changes = experiment.changes();
    changes.iter_mut().for_each(|change| change.resource = Resource::Processor);
    let speed = f64::from(options.speed);
    let of =
        |mover| Case { experiment: experiment.clone(), speed, cpu: options.cpu, seed: options.seed, mover };
    let mut runs = Vec::new();
    let movers = [Mover::Both, Mover::Published, Mover::Queue].map(of);
    for (name, case) in NAMES.into_iter().zip(movers).take(if options.gate_alone { 1 } else { 3 }) {
        display.now(format!("Fig. 8, {name}: {:.0?}", case.tick() * experiment.ticks));
        let run = vec![case.play().await?];
        for change in &changes {
            display.say(&format!("  Fig. 8, {name}: {}", in_a_line(change, &run)));
        }
        runs.push(run);
    }
    std::fs::create_dir_all(&options.output).map_err(Error::io("making the directory of pictures"))?;
    plot(&experiment, options.speed, Resource::Processor, &NAMES, &runs)
        .write(&options.output.join("fig-8.svg"))?;
    Ok(report(&experiment, &NAMES, &changes, &runs))
}

/// The name of a class's control group.
fn group(class: usize) -> String {
    format!("gatekeeper-bench-{}-c{class}", std::process::id())
}

impl Site {
    fn start(cpu: Option<usize>, groups: Arc<[Confinement; 2]>) -> Result<(u16, Self), Error> {
        let workers = [Origin::start(cpu)?, Origin::start(cpu)?];
        for (held, worker) in groups.iter().zip(&workers) {
            held.take(worker.pid())?;
        }
        let front = Origin::start_before(&workers.each_ref().map(Origin::port))?;
        Ok((front.port(), Self { _front: front, _workers: workers, _groups: groups }))
    }
}

impl Case {
    fn tick(&self) -> Duration {
        Duration::from_secs_f64(TICK.as_secs_f64() / self.speed)
    }

    fn drawn(&self) -> Drawn {
        let stream = |number: usize| {
            let (class, does, mean) =
                (number % 2, ["work", "block"][number / 2], [WORK, BLOCKS][number / 2] / self.speed);
            let rate = |&(tick, ssl, cgi): &(u32, [f64; 2], [f64; 2])| {
                ((self.tick() * tick).as_secs_f64(), [ssl, cgi][number / 2][class] * self.speed)
            };
            let rates = self.experiment.load.iter().map(rate).collect();
            Stream { class: class as u16, does, mean, rates, phase: None }
        };
        let until = (self.tick() * self.experiment.ticks).as_secs_f64();
        Drawn::new(&[0, 1, 2, 3].map(stream), until, self.seed)
    }

    fn goals(&self, tick: u32) -> Option<[f64; 2]> {
        let goals = self.experiment.goals.iter().rev();
        goals.copied().find(|(from, _)| *from <= tick).map(|(_, goals)| goals)
    }

    fn lines(&self, tick: u32) -> String {
        let keys = |class: usize| {
            let goal =
                self.goals(tick).map(|goals| format!("goal = \"{:.0}us\"", goals[class] / self.speed * 1e6));
            let cgroup = format!("\ncgroup = \"/{}\"", group(class));
            match (goal, self.mover) {
                (Some(goal), Mover::Both) => goal + &cgroup,
                (Some(goal), Mover::Queue) => goal,
                (None, _) | (_, Mover::Published) => String::new(),
            }
        };
        lines(IN_FLIGHT, self.tick(), &[keys(0), keys(1)])
    }

    async fn play(&self) -> Result<Vec<Seen>, Error> {
        let (watcher, cpu) = (self.clone(), self.cpu);
        let groups = Arc::new([Confinement::weighed(&group(0))?, Confinement::weighed(&group(1))?]);
        let held = Arc::clone(&groups);
        let watch = move |gate: &Gatekeeper, begin| match watcher.mover {
            Mover::Published => watcher.adapt(gate, begin, &held),
            Mover::Both | Mover::Queue => watcher.watch(gate, begin),
        };
        let start = move || Site::start(cpu, groups);
        let (ended, looks) = self.drawn().meet_at(start, self.lines(0), watch).await?;
        Ok(seen(&ended, &looks, self.tick(), self.speed))
    }

    /// Gives the gate its goals when it is time. How it stands after each tick.
    fn watch(&self, gate: &Gatekeeper, begin: Instant) -> Result<Vec<Look>, Error> {
        let mut looks = Vec::new();
        for tick in 1..=self.experiment.ticks {
            sleep_until(begin + self.tick() * tick);
            let look = Figure::of(gate)?.look;
            // Without groups both workers have half of it.
            let processor = if self.mover == Mover::Both { look.queue } else { 0.5 };
            looks.push(Look { processor, ..look });
            if self.lines(tick) != self.lines(tick - 1) {
                gate.reconfigure(&self.lines(tick))?;
            }
        }
        Ok(looks)
    }

    /// Moves the shares of queue and processor by the published adaptation.
    fn adapt(
        &self,
        gate: &Gatekeeper,
        begin: Instant,
        groups: &[Confinement; 2],
    ) -> Result<Vec<Look>, Error> {
        let interval = self.experiment.interval;
        let [mut queue, mut processor] = [(); 2].map(|()| Published::new(2, interval));
        let mut before = (Figure::of(gate)?, InService::of(gate, groups)?);
        let mut since = before.1;
        let mut looks = Vec::new();
        for tick in 1..=self.experiment.ticks {
            sleep_until(begin + self.tick() * tick);
            let now = (Figure::of(gate)?, InService::of(gate, groups)?);
            for class in 0..2 {
                if let Some(waited) = now.0.mean_wait(&before.0, class) {
                    queue.observe(class, waited * self.speed);
                }
                if let Some(took) = now.1.mean_time(&before.1, class) {
                    // A blocked request doesn't wait for the processor.
                    processor.observe(class, (took * self.speed - self.blocks(tick)).max(1e-6));
                }
            }
            before = now;
            if queue.end_tick() {
                let keys = [0, 1].map(|class| format!("weight = {:.3}", queue.share(class) * 1e3));
                gate.reconfigure(&lines(IN_FLIGHT, self.tick(), &keys))?;
            }
            if processor.end_tick() {
                (0..2).try_for_each(|class| groups[class].weigh(2.0 * processor.share(class)))?;
            }
            if tick % interval == 0
                && let Some(goals) = self.goals(tick)
            {
                let elapsed = self.tick().as_secs_f64() * f64::from(interval);
                let local =
                    [0, 1].map(|class| split(goals[class], before.1.utilizations(&since, class, elapsed)));
                processor.promise(&local.map(|of| of[0]));
                queue.promise(&local.map(|of| of[1]));
                since = before.1;
            }
            looks.push(Look {
                queue: queue.share(0),
                processor: processor.share(0),
                out_of_reach: [false; 2],
            });
        }
        Ok(looks)
    }

    /// For how long requests block on average at a tick, in seconds of the paper.
    fn blocks(&self, tick: u32) -> f64 {
        let load = self.experiment.load.iter().rev().find(|(from, ..)| *from <= tick);
        if load.is_some_and(|(_, _, cgi)| cgi[0] > 0.0) { BLOCKS } else { 0.0 }
    }
}

/// What classes have had of the service so far.
#[derive(Clone, Copy)]
struct InService {
    /// How many requests have ended, and their times there together, in seconds.
    ended: [(f64, f64); 2],
    /// Seconds of the processor.
    used: [f64; 2],
}

impl InService {
    fn of(gate: &Gatekeeper, groups: &[Confinement; 2]) -> Result<Self, Error> {
        let silent = || Error::Experiment("the gate doesn't say how long its types take".to_owned());
        let told = admin_json(gate.admin_port(), "/types").ok_or_else(silent)?;
        let types = told["gates"][0]["types"].as_array().ok_or_else(silent)?;
        let ended = [0, 1].map(|class| {
            let path = format!("/c{class}");
            let found =
                types.iter().find(|one| one["type"].as_str().is_some_and(|name| name.contains(&path)));
            let time = |key: &str| found.and_then(|one| one["upstream_time"][key].as_f64()).unwrap_or(0.0);
            (time("count"), time("count") * time("mean_seconds"))
        });
        Ok(Self { ended, used: [0, 1].map(|class| groups[class].used().unwrap_or(0.0)) })
    }

    /// How long a request of a class was in the service, of those that ended since.
    fn mean_time(&self, before: &Self, class: usize) -> Option<f64> {
        let count = self.ended[class].0 - before.ended[class].0;
        (count > 0.0).then(|| (self.ended[class].1 - before.ended[class].1) / count)
    }

    /// The part of the processor that a class used since, and of the gate's places.
    fn utilizations(&self, before: &Self, class: usize, elapsed: f64) -> [f64; 2] {
        let used = self.used[class] - before.used[class];
        let held = self.ended[class].1 - before.ended[class].1;
        [used / elapsed, held / elapsed / f64::from(IN_FLIGHT)]
    }
}
