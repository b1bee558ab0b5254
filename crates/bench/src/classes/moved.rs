//! Fig. 8: the bottleneck moves from the processor to the queue and back.
//!
//! A site has a worker process for each class, both on one processor and each in a control group of its own.
//! In the first and last phase requests compute, in the middle one they block. The gate lets as many in as
//! keep the processor busy, so that computing requests meet there, and blocking requests before the gate. It
//! is compared with a gate that has no control groups, and adapts its queue alone.
//!
//! **Where it differs from the paper.** There a delay has no time in which a worker is blocked. Here goals
//! are for whole responses, as users see them. So requests block for less, before fewer workers.

use std::time::{Duration, Instant};

use sim::goals::{Experiment, Resource, Seen, TICK, experiments};

use super::Options;
use super::figure::{Figure, in_a_line, plot, report, seen, sleep_until};
use super::laboratory::{Drawn, Stream, lines};
use crate::Error;
use crate::alternate::Display;
use crate::confinement::Confinement;
use crate::gatekeeper::Gatekeeper;
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
const NAMES: [&str; 2] = ["queue and processor", "the queue alone"];

/// A front, a worker process for each class behind it, and their control groups.
struct Site {
    // Processes end before their groups are removed.
    _front: Origin,
    _workers: [Origin; 2],
    _groups: [Confinement; 2],
}

#[derive(Clone)]
struct Case {
    experiment: Experiment,
    speed: f64,
    cpu: Option<usize>,
    seed: u64,
    with_groups: bool,
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
    let of = |with_groups| Case {
        experiment: experiment.clone(),
        speed,
        cpu: options.origin_cpu,
        seed: options.seed,
        with_groups,
    };
    let mut runs = Vec::new();
    for (name, case) in NAMES.into_iter().zip([of(true), of(false)]).take(1 + usize::from(options.published))
    {
        display.now(format!("Fig. 8, {name}: {:.0?}", case.tick() * experiment.ticks));
        let run = vec![case.play().await?];
        for change in &changes {
            display.say(&format!("  Fig. 8, {name}: {}", in_a_line(change, &run)));
        }
        runs.push(run);
    }
    std::fs::create_dir_all(&options.output).map_err(Error::io("making the directory of pictures"))?;
    plot(&experiment, options.speed, Resource::Processor, NAMES, &runs)
        .write(&options.output.join("fig-8.svg"))?;
    Ok(report(&experiment, NAMES, &changes, &runs))
}

/// The name of a class's control group.
fn group(class: usize) -> String {
    format!("gatekeeper-bench-{}-c{class}", std::process::id())
}

impl Site {
    fn start(cpu: Option<usize>) -> Result<(u16, Self), Error> {
        let workers = [Origin::start(cpu)?, Origin::start(cpu)?];
        let groups = [Confinement::weighed(&group(0))?, Confinement::weighed(&group(1))?];
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

    fn lines(&self, tick: u32) -> String {
        let goals = self.experiment.goals.iter().rev().find(|(from, _)| *from <= tick);
        let keys = |class: usize| {
            let goal = goals.map(|(_, goals)| format!("goal = \"{:.0}us\"", goals[class] / self.speed * 1e6));
            let cgroup = format!("\ncgroup = \"/{}\"", group(class));
            goal.map(|goal| if self.with_groups { goal + &cgroup } else { goal }).unwrap_or_default()
        };
        lines(IN_FLIGHT, self.tick(), &[keys(0), keys(1)])
    }

    async fn play(&self) -> Result<Vec<Seen>, Error> {
        let (watcher, cpu) = (self.clone(), self.cpu);
        let watch = move |gate: &Gatekeeper, begin| watcher.watch(gate, begin);
        let (ended, shares) = self.drawn().meet_at(move || Site::start(cpu), self.lines(0), watch).await?;
        Ok(seen(&ended, &shares, self.tick(), self.speed))
    }

    /// Gives the gate its goals when it is time. The first class's share after each tick.
    fn watch(&self, gate: &Gatekeeper, begin: Instant) -> Result<Vec<f64>, Error> {
        let mut shares = Vec::new();
        for tick in 1..=self.experiment.ticks {
            sleep_until(begin + self.tick() * tick);
            shares.push(Figure::of(gate)?.share());
            if self.lines(tick) != self.lines(tick - 1) {
                gate.reconfigure(&self.lines(tick))?;
            }
        }
        Ok(shares)
    }
}
