//! Figs. 4 to 7: two classes whose load or goals change, under the gate's own adaptation and under the
//! published one. `reach`: goals that can't both be kept.
//!
//! The published adaptation runs here, beside the gate. At each tick it reads from `/status` how long
//! requests waited, and gives the gate other weights by a reload.

use std::time::{Duration, Instant};

use sim::goals::{
    CGI_BLOCKS, Change, Experiment, Method, Published, Resource, Seen, TICK, WORKERS, beyond_reach,
    experiments,
};
use sim::plot::{Curve, Panel, Plot, Scale};

use super::Options;
use super::laboratory::{Drawn, Ended, Stream, lines};
use crate::Error;
use crate::alternate::Display;
use crate::gatekeeper::{Gatekeeper, status};
use crate::table::{Figures, ratio, seconds};

/// The mean processor time of requests, in seconds: by the figure's number.
const WORK: [(&str, f64); 3] = [("4", 0.053), ("5", 0.061), ("6", 0.067)];
/// The figures whose goals are about waits. A request that runs isn't interrupted, so the goals of Fig. 5 for
/// responses would leave no room for another order.
const WAITS: [&str; 3] = ["5", "7", "reach"];
/// Whose runs are compared.
const NAMES: [&str; 2] = ["the gate", "published"];
/// Delays in a picture are means over so many ticks.
const SMOOTH: usize = 20;

/// One figure at some speed.
#[derive(Clone)]
struct Case {
    experiment: Experiment,
    resource: Resource,
    /// What goals are about: waits, or whole responses.
    waits: bool,
    speed: f64,
    cpu: Option<usize>,
    seed: u64,
}

pub(super) async fn run(number: &str, options: &Options, display: &Display) -> Result<String, Error> {
    let name = if number == "reach" { beyond_reach().name.to_owned() } else { format!("Fig. {number}") };
    let known = experiments().into_iter().chain([beyond_reach()]).find(|one| one.name == name);
    let known = known.ok_or_else(|| Error::Experiment(format!("there is no {name}")))?;
    let mut experiment = known.paced(options.lead, options.phase);
    if let Some((_, work)) = WORK.iter().find(|(figure, _)| *figure == number) {
        experiment.ssl = *work;
    }
    let mut changes = experiment.changes();
    let resource = changes.first().map_or(Resource::Queue, |change| change.resource);
    let waits = WAITS.contains(&number);
    if waits {
        changes.iter_mut().for_each(|change| change.resource = Resource::Queue);
    }
    let speed = f64::from(options.speed);
    let case = Case { experiment, resource, waits, speed, cpu: options.cpu, seed: options.seed };
    let mut runs = Vec::new();
    let methods = [(Method::Ours, "the gate"), (Method::Published, "the published adaptation")];
    for (method, who) in methods.into_iter().take(if options.gate_alone { 1 } else { 2 }) {
        let lasts = case.tick() * case.experiment.ticks;
        display.now(format!("{name} under {who}: {lasts:.0?}"));
        let run = vec![case.play(method).await?];
        for change in &changes {
            display.say(&format!("  {name}, {who}: {}", in_a_line(change, &run)));
        }
        runs.push(run);
    }
    std::fs::create_dir_all(&options.output).map_err(Error::io("making the directory of pictures"))?;
    let shown = if waits { Resource::Queue } else { Resource::Processor };
    let plot = plot(&case.experiment, options.speed, shown, &NAMES, &runs);
    plot.write(&options.output.join(format!("fig-{number}.svg")))?;
    Ok(report(&case.experiment, &NAMES, &changes, &runs))
}

pub(super) fn in_a_line(change: &Change, run: &[Vec<Seen>]) -> String {
    let found = change.mean(run, late(change));
    let settled = change.settles(run).map_or("doesn't settle".to_owned(), |ticks| format!("{ticks} ticks"));
    let told = change.told(run).map_or("nothing told".to_owned(), |ticks| format!("told after {ticks}"));
    format!(
        "{:?}: {settled}, {told}, needs {:.2}, at last {} and {} (goals {} and {}), back {:.2}",
        change.ticks,
        change.needed(run, late(change)),
        seconds(found[0]),
        seconds(found[1]),
        seconds(change.goals[0]),
        seconds(change.goals[1]),
        change.swings(run),
    )
}

/// The second half of the ticks of a change.
fn late(change: &Change) -> std::ops::Range<usize> {
    change.ticks.start.midpoint(change.ticks.end)..change.ticks.end
}

pub(super) fn report(
    experiment: &Experiment,
    names: &[&str],
    changes: &[Change],
    runs: &[Vec<Vec<Seen>>],
) -> String {
    let columns = changes.iter().map(|change| format!("from tick {}", change.ticks.start));
    let mut figures = Figures::new(&columns.collect::<Vec<_>>());
    figures.row("goals", changes.iter().map(|change| change.goals.map(seconds).join(" / ")));
    for (run, name) in runs.iter().zip(names) {
        figures.heading(name);
        let settled =
            |change: &Change| change.settles(run).map_or("–".to_owned(), |ticks| ticks.to_string());
        figures.row("ticks until settled", changes.iter().map(settled));
        let delays = |change: &Change| change.mean(run, late(change)).map(seconds).join(" / ");
        figures.row("delays in the second half", changes.iter().map(delays));
        let needed = |change: &Change| ratio(change.needed(run, late(change)));
        figures.row("together, over both goals", changes.iter().map(needed));
        let told = |change: &Change| change.told(run).map_or("–".to_owned(), |ticks| ticks.to_string());
        figures.row("ticks until out of reach is told", changes.iter().map(told));
        figures.row("the share goes back by", changes.iter().map(|change| ratio(change.swings(run))));
    }
    format!("\n  {}: {}\n{figures}\n", experiment.name, experiment.what)
}

impl Case {
    fn tick(&self) -> Duration {
        Duration::from_secs_f64(TICK.as_secs_f64() / self.speed)
    }

    /// Seconds of the paper as seconds here.
    fn here(&self, seconds: f64) -> f64 {
        seconds / self.speed
    }

    fn drawn(&self) -> Drawn {
        let experiment = &self.experiment;
        let stream = |class: usize| {
            let (does, mean) = match self.resource {
                Resource::Processor => ("work", experiment.ssl),
                Resource::Queue => ("block", CGI_BLOCKS),
            };
            let rate = |&(tick, ssl, cgi): &(u32, [f64; 2], [f64; 2])| {
                let rate = if self.resource == Resource::Processor { ssl } else { cgi };
                ((self.tick() * tick).as_secs_f64(), rate[class] * self.speed)
            };
            Stream {
                class: class as u16,
                does,
                mean: self.here(mean),
                rates: experiment.load.iter().map(rate).collect(),
                // Two streams in step would have their requests meet each time.
                phase: (experiment.regular && self.resource == Resource::Processor)
                    .then_some([0.5, 1.0][class]),
            }
        };
        let until = (self.tick() * experiment.ticks).as_secs_f64();
        Drawn::new(&[stream(0), stream(1)], until, self.seed)
    }

    fn lines(&self, keys: &[String; 2]) -> String {
        let connections = if self.resource == Resource::Processor { 1 } else { WORKERS };
        lines(connections, self.tick(), keys)
    }

    /// The goals from this tick on, in seconds of the paper.
    fn goals(&self, tick: u32) -> Option<[f64; 2]> {
        let goals = self.experiment.goals.iter().rev();
        goals.copied().find(|(from, _)| *from <= tick).map(|(_, goals)| goals)
    }

    fn keys(&self, goals: Option<[f64; 2]>) -> [String; 2] {
        let measure = if self.waits { "wait " } else { "" };
        let goal = |goal: f64| format!("goal = \"{measure}{:.0}us\"", self.here(goal) * 1e6);
        let importance = |class: usize| match self.experiment.importance[class] {
            0 => String::new(),
            importance => format!("\nimportance = {importance}"),
        };
        let keys = |goals: [f64; 2]| [0, 1].map(|class| goal(goals[class]) + &importance(class));
        goals.map(keys).unwrap_or_default()
    }

    async fn play(&self, method: Method) -> Result<Vec<Seen>, Error> {
        let goals = self.goals(0).filter(|_| method == Method::Ours);
        let lines = self.lines(&self.keys(goals));
        let watcher = self.clone();
        let watch = move |gate: &Gatekeeper, begin| match method {
            Method::Ours | Method::Split => watcher.watch(gate, begin),
            Method::Published => watcher.adapt(gate, begin),
        };
        let (ended, looks) = self.drawn().meet(lines, self.cpu, watch).await?;
        Ok(seen(&ended, &looks, self.tick(), self.speed))
    }

    /// Changes the gate's goals when it is time. How it stands after each tick.
    fn watch(&self, gate: &Gatekeeper, begin: Instant) -> Result<Vec<Look>, Error> {
        let mut goals = self.goals(0);
        let mut looks = Vec::new();
        for tick in 1..=self.experiment.ticks {
            sleep_until(begin + self.tick() * tick);
            looks.push(Figure::of(gate)?.look);
            if self.goals(tick) != goals {
                goals = self.goals(tick);
                gate.reconfigure(&self.lines(&self.keys(goals)))?;
            }
        }
        Ok(looks)
    }

    /// Moves the gate's weights by the published adaptation.
    fn adapt(&self, gate: &Gatekeeper, begin: Instant) -> Result<Vec<Look>, Error> {
        let mut adapter = Published::new(2, self.experiment.interval);
        let mut before = Figure::of(gate)?;
        let mut looks = Vec::new();
        let service = if self.waits { 0.0 } else { self.experiment.ssl };
        let mut goals = None;
        for tick in 0..=self.experiment.ticks {
            sleep_until(begin + self.tick() * tick);
            if tick > 0 {
                let now = Figure::of(gate)?;
                for class in 0..2 {
                    if let Some(waited) = now.mean_wait(&before, class) {
                        adapter.observe(class, waited * self.speed + service);
                    }
                }
                before = now;
                if adapter.end_tick() {
                    let keys = [0, 1].map(|class| format!("weight = {:.3}", adapter.share(class) * 1e3));
                    gate.reconfigure(&self.lines(&keys))?;
                }
                looks.push(Look::of_both(adapter.share(0)));
            }
            if self.goals(tick) != goals {
                goals = self.goals(tick);
                adapter.promise(&goals.unwrap_or_default());
            }
        }
        Ok(looks)
    }
}

/// What clients saw, by the ticks of so long in which their requests ended.
pub(super) fn seen(ended: &[Ended], looks: &[Look], tick: Duration, speed: f64) -> Vec<Seen> {
    let at = |(tick, look): (usize, &Look)| Seen {
        tick: tick as u32 + 1,
        queue_share: look.queue,
        processor_share: look.processor,
        out_of_reach: look.out_of_reach,
        ..Seen::default()
    };
    let mut seen: Vec<Seen> = looks.iter().enumerate().map(at).collect();
    for one in ended {
        let tick = ((one.due + one.response) / tick.as_secs_f64()) as usize;
        let Some(seen) = seen.get_mut(tick) else { continue };
        for (delays, delay) in
            [(&mut seen.processor, one.response), (&mut seen.queue, one.response - one.takes)]
        {
            delays[one.class].0 += 1.0;
            delays[one.class].1 += delay * speed;
        }
    }
    seen
}

/// The delays and shares of runs. `shown` says whether delays are waits or whole responses.
pub(super) fn plot(
    experiment: &Experiment,
    speed: u32,
    shown: Resource,
    names: &[&str],
    runs: &[Vec<Vec<Seen>>],
) -> Plot {
    let change = Change { ticks: 0..0, goals: [0.0; 2], resource: shown };
    let delays = |run: &Vec<Vec<Seen>>, class: usize| {
        let points = (SMOOTH..run[0].len()).step_by(SMOOTH / 4);
        let mean = |at: usize| (at as f64, change.mean(run, at - SMOOTH..at)[class]);
        Curve { points: points.map(mean).collect(), band: Vec::new() }
    };
    let share = |run: &Vec<Vec<Seen>>, class: usize, of: fn(&Seen) -> f64| {
        let points = run[0].iter().enumerate();
        let share = |(at, seen): (usize, &Seen)| (at as f64, (of(seen) - class as f64).abs());
        Curve { points: points.map(share).collect(), band: Vec::new() }
    };
    let each = |of: &dyn Fn(&Vec<Vec<Seen>>, usize) -> Curve| {
        runs.iter().flat_map(|run| [of(run, 0), of(run, 1)]).collect()
    };
    let shares = |of: fn(&Seen) -> f64| each(&|run, class| share(run, class, of));
    let mut panels = vec![
        Panel::new("mean delay", Scale::Logarithmic, seconds, each(&delays)),
        Panel::new("share of the queue", Scale::Linear, ratio, shares(|seen| seen.queue_share)),
    ];
    if runs.iter().flat_map(|run| &run[0]).any(|seen| seen.processor_share != seen.queue_share) {
        let of = shares(|seen| seen.processor_share);
        panels.push(Panel::new("share of the processor", Scale::Linear, ratio, of));
    }
    let variants = names.iter().take(runs.len());
    Plot {
        title: format!("{}: {}", experiment.name, experiment.what),
        subtitle: format!("{speed} times as fast, in the paper's seconds; means over {SMOOTH} ticks"),
        variants: variants.flat_map(|name| [0, 1].map(|class| format!("{name}, class {class}"))).collect(),
        marks: None,
        axis: "ticks",
        seconds: f64::from(experiment.ticks),
        panels,
    }
}

pub(super) fn sleep_until(at: Instant) {
    std::thread::sleep(at.saturating_duration_since(Instant::now()));
}

/// How the shares stand after a tick.
#[derive(Clone, Copy)]
pub(super) struct Look {
    /// The first class's share of the queue.
    pub(super) queue: f64,
    /// The first class's share of the processor.
    pub(super) processor: f64,
    /// Whether the gate tells that a class's goal can't be met.
    pub(super) out_of_reach: [bool; 2],
}

impl Look {
    /// The first class has this share of both, and nothing is told.
    fn of_both(share: f64) -> Self {
        Self { queue: share, processor: share, out_of_reach: [false; 2] }
    }
}

/// What `/status` says of both classes so far.
pub(super) struct Figure {
    pub(super) look: Look,
    dispatched: [f64; 2],
    waited: [f64; 2],
}

impl Figure {
    pub(super) fn of(gate: &Gatekeeper) -> Result<Self, Error> {
        let silent = || Error::Experiment("the gate doesn't say how its classes stand".to_owned());
        let status = status(gate.admin_port()).ok_or_else(silent)?;
        let classes = status["classes"].as_array().ok_or_else(silent)?;
        let one = |class: usize| classes.iter().find(|one| one["class"] == format!("c{class}"));
        let of = |class: usize, key: &str| one(class).and_then(|one| one[key].as_f64()).ok_or_else(silent);
        let both = |key| Ok::<_, Error>([of(0, key)?, of(1, key)?]);
        let weights = both("weight")?;
        let out_of_reach =
            [0, 1].map(|class| one(class).is_some_and(|one| one["standing"] == "out of reach"));
        Ok(Self {
            look: Look { out_of_reach, ..Look::of_both(weights[0] / (weights[0] + weights[1])) },
            dispatched: both("dispatched_total")?,
            waited: both("queue_wait_seconds_total")?,
        })
    }

    /// How long requests of a class waited that were let in since, in seconds; `None`: there was none.
    pub(super) fn mean_wait(&self, before: &Self, class: usize) -> Option<f64> {
        let count = self.dispatched[class] - before.dispatched[class];
        (count > 0.0).then(|| (self.waited[class] - before.waited[class]) / count)
    }
}
