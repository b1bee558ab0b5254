//! Response times held on a real site: an origin that computes, and a load that steps to several times what
//! it can do.
//!
//! The pages of a shop with the paper's costs (of the shopping mix a twentieth of the requests takes four
//! fifths of the time), 50 requests a second on one processor; Poisson arrivals in an open loop, half of
//! the capacity and then a step. Each step meets a fresh origin and a fresh gate, and every variant the
//! same requests. *Settled* is the time after [`SETTLED`] of the step.
//!
//! What the origin can do is measured beforehand with 32 clients that are never idle ([`Report::peak`]),
//! and loads are multiples of that: on a machine that others use as well it is less than a processor.
//! Goodput is the work of those that were answered, as a part of that. Counting requests would say less:
//! one of them takes up to ten thousand times as long as another. Because what others leave of the
//! processor changes, it is also told for how much of the time any request was there that had been let in
//! ([`Step::occupied`]): so long the origin had work.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use crate::Error;
use crate::alternate::Display;
use crate::blocking::blocking;
use crate::files::write_figures;
use crate::http::pages::{Arrivals, MEAN_WORK, Visits};
use crate::http::{ClosedRun, Mix, Origin, closed};
use crate::load::{Outcome, Record};
use crate::stats::{mean, percentile};
use crate::story;
use crate::table::{Figures, paragraph, ratio, seconds};
use sim::plot::{Curve, Mark, Panel, Plot, Scale};

/// The mean response time to be held, in seconds.
pub const TARGET: f64 = 0.150;
/// How near the mean has to be.
pub const WITHIN: f64 = 0.10;
/// The least goodput, as a part of the peak.
pub const GOODPUT_GOAL: f64 = 0.95;
/// A step has settled after this time.
pub const SETTLED: Duration = Duration::from_secs(10);
/// The loads of the steps, in capacities.
pub const LOADS: [f64; 3] = [1.5, 3.0, 10.0];
/// The load before each of them.
const CALM: f64 = 0.5;
/// How long a client waits. A client that isn't answered is charged this.
const PATIENCE: Duration = Duration::from_secs(10);
/// Clients that are never idle, while the peak is measured.
const BUSY_CLIENTS: usize = 32;
/// How long a step without a gate is at most: it does nothing but get worse.
const WITHOUT_GATE_MAX: Duration = Duration::from_secs(25);
/// From one point of the plot to the next, where nothing else is asked for.
pub const POINT: Duration = Duration::from_secs(5);
/// What random refusal at the target can reach at most, by the paper's model: 1 − E\[X\] / Tref.
const PAPER: f64 = 1.0 - MEAN_WORK / TARGET;

/// How the experiment is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The variants that stand before the origin, one after another.
    pub variants: Vec<Variant>,
    /// The loads of the steps, in capacities.
    pub loads: &'static [f64],
    /// What is asked for.
    pub mix: Mix,
    /// How long half of the capacity is offered before each step.
    pub calm: Duration,
    /// How long each step is.
    pub step: Duration,
    /// From one point of the plot to the next.
    pub point: Duration,
    /// What the arrivals are drawn from.
    pub seed: u64,
    /// The origin's processor.
    pub origin_cpu: Option<usize>,
    /// Directory for the plot and the figures.
    pub output: PathBuf,
}

impl Options {
    fn step_of(&self, has_gate: bool) -> Duration {
        if has_gate { self.step } else { self.step.min(WITHOUT_GATE_MAX) }
    }
}

/// What a variant has promised.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub enum Promise {
    /// Nothing.
    None,
    /// The mean response time is the target.
    Mean,
    /// The 95th percentile of the response times is this value, in seconds.
    P95(f64),
}

/// What stands before the origin.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Variant {
    name: &'static str,
    /// The keys of the gate, if it is one.
    keys: Option<&'static [(&'static str, &'static str)]>,
    promise: Promise,
}

/// Nobody.
pub const NO_GATE: Variant = Variant { name: "no gate", keys: None, promise: Promise::None };
/// A gate that holds the mean.
pub const TARGETED: Variant =
    Variant { name: "target = 150 ms", keys: Some(&[("target", "\"150ms\"")]), promise: Promise::Mean };
/// Everybody.
const ALL: [Variant; 5] = [
    NO_GATE,
    TARGETED,
    Variant { name: "Yaksha's", keys: Some(YAKSHA), promise: Promise::None },
    Variant {
        name: "target_p95 = 500 ms",
        keys: Some(&[("target_p95", "\"500ms\"")]),
        promise: Promise::P95(0.5),
    },
    Variant {
        name: "target_p95 = 800 ms",
        keys: Some(&[("target_p95", "\"800ms\"")]),
        promise: Promise::P95(0.8),
    },
];

/// Those whose name has this in it.
pub fn called(part: &str) -> Vec<Variant> {
    ALL.into_iter().filter(|variant| variant.name.contains(part)).collect()
}

/// The paper's: everything that is let in is in the service at once; designed for the capacity.
const YAKSHA: &[(&str, &str)] = &[
    ("target", "\"150ms\""),
    ("rejection", "\"yaksha\""),
    ("yaksha_arrivals", "50"),
    ("connections", "1000"),
    ("order", "\"fifo\""),
    ("long_limit", "\"none\""),
];

/// All steps of one variant.
#[derive(Clone, Debug, Serialize)]
pub struct Steps {
    /// What it is called.
    pub variant: &'static str,
    /// What it has promised.
    pub promise: Promise,
    /// By load.
    pub steps: Vec<Step>,
}

/// One variant at one load.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// In capacities.
    pub load: f64,
    /// Requests that arrived once settled.
    pub arrived: usize,
    /// The part of the arrived that was refused.
    pub refused: f64,
    /// The part of the arrived that wasn't answered in time, or failed.
    pub lost: f64,
    /// Mean response time of those that were answered, or weren't within their patience; in seconds.
    pub mean: f64,
    /// Mean response time in the first seconds of the step, before it has settled; in seconds.
    pub mean_before: f64,
    /// 95th percentile of the response times in `mean`, in seconds.
    pub p95: f64,
    /// Work that was answered in time once settled, in processors.
    pub work: f64,
    /// The part of the time in which any request was there that hadn't been refused, once settled.
    pub occupied: f64,
    /// Seconds until the mean of five seconds was within twice the target for the first time, for good.
    pub settle: Option<f64>,
    /// Seconds since the beginning of the calm, mean response time from there on.
    pub curve: Vec<(f64, f64)>,
    /// Seconds since the beginning of the calm, and the work that was answered from there on, in processors.
    pub worked: Vec<(f64, f64)>,
}

/// The whole experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was asked for.
    pub mix: Mix,
    /// The loads of the steps, in capacities.
    pub loads: &'static [f64],
    /// The most work that the origin did with clients that were never idle, in processors.
    pub peak: f64,
    /// By variant.
    pub variants: Vec<Steps>,
    calm: f64,
    step: f64,
    point: f64,
}

/// Runs the experiment.
///
/// # Errors
/// If something doesn't start.
pub async fn run(options: &Options, display: &Display) -> Result<Report, Error> {
    if options.variants.is_empty() {
        let names = ALL.map(|variant| variant.name).join(", ");
        return Err(Error::Experiment(format!("nobody is called so; there are {names}")));
    }
    display.now("how much can the origin do?");
    let visits = Visits::of(options.mix);
    let peak = peak(visits, options.origin_cpu, options.calm, options.seed).await?;
    display.say(&format!("  the origin does {peak:.3} s of work a second with {BUSY_CLIENTS} clients"));
    let (calm, step) = (options.calm.as_secs_f64(), options.step.as_secs_f64());
    let mut report = Report {
        mix: options.mix,
        loads: options.loads,
        peak,
        variants: Vec::new(),
        calm,
        step,
        point: options.point.as_secs_f64(),
    };
    for &Variant { name, keys, promise } in &options.variants {
        let mut steps = Vec::new();
        for (number, &load) in options.loads.iter().enumerate() {
            display.now(format!("{name}, {load} times the capacity"));
            let lasts = options.step_of(keys.is_some());
            let arrivals = Arrivals::poisson(
                visits,
                &[(CALM * peak, options.calm), (load * peak, lasts)],
                options.seed + number as u64,
            )?;
            let step = one(options, keys, load, arrivals).await?;
            display.say(&format!(
                "  {name}, {load} times the capacity: mean {}, 95 % below {}, {:.0} % refused, goodput {:.2} of the peak, occupied {:.3}",
                seconds(step.mean),
                seconds(step.p95),
                100.0 * step.refused,
                step.work / peak,
                step.occupied
            ));
            steps.push(step);
        }
        report.variants.push(Steps { variant: name, promise, steps });
        report.write(&options.output)?;
    }
    Ok(report)
}

/// Work that the origin does in a second if it always has some.
pub(crate) async fn peak(
    visits: Visits,
    cpu: Option<usize>,
    lasts: Duration,
    seed: u64,
) -> Result<f64, Error> {
    let origin = blocking(move || Origin::start(cpu)).await?;
    // By the processor time that it used: the requests that were answered in so short a time are too few to
    // tell.
    let run = ClosedRun {
        port: origin.port(),
        requests: Arrivals::at_once(visits, 20_000, seed).bytes,
        status: 200,
        connections: BUSY_CLIENTS,
        warm_up: Duration::from_secs(1),
        window: lasts,
        measured: vec![origin.pid()],
    };
    let counted = closed(run).await?;
    Ok(counted.cost * counted.rate)
}

async fn one(
    options: &Options,
    keys: Option<&'static [(&'static str, &'static str)]>,
    load: f64,
    arrivals: Arrivals,
) -> Result<Step, Error> {
    let (cpu, step) = (options.origin_cpu, options.step_of(keys.is_some()));
    let outcome = arrivals.meet(keys, cpu, PATIENCE).await?;
    Ok(Step::of(load, &outcome.records, &arrivals.work, (options.calm, step), options.point))
}

/// The part of a time in which at least one request was there that wasn't refused.
fn occupied(records: &[(Record, usize)], from: f64, to: f64) -> f64 {
    let present =
        records.iter().map(|(record, _)| record).filter(|record| record.outcome != Outcome::Rejected);
    let mut stays: Vec<(f64, f64)> = present
        .map(|record| (record.due.as_secs_f64().max(from), record.end().as_secs_f64().min(to)))
        .collect();
    stays.retain(|(begin, end)| begin < end);
    stays.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
    let (mut covered, mut until) = (0.0, from);
    for (begin, end) in stays {
        covered += (end - begin.max(until)).max(0.0);
        until = until.max(end);
    }
    covered / (to - from)
}

impl Step {
    fn of(
        load: f64,
        records: &[(Record, usize)],
        work: &[f64],
        (calm, step): (Duration, Duration),
        point: Duration,
    ) -> Self {
        let point = point.as_secs_f64();
        let charged = |record: &Record| match record.outcome {
            Outcome::TimedOut | Outcome::Failed => PATIENCE.as_secs_f64(),
            _ => record.response.as_secs_f64(),
        };
        let (begin, end) = (calm.as_secs_f64(), (calm + step).as_secs_f64());
        let responses = |from: f64, to: f64| -> Vec<f64> {
            let inside = records.iter().filter(|(record, _)| {
                let due = record.due.as_secs_f64();
                record.outcome != Outcome::Rejected && from <= due && due < to
            });
            inside.map(|(record, _)| charged(record)).collect()
        };
        let worked = |from: f64, to: f64| -> f64 {
            let inside = records.iter().filter(|(record, _)| {
                let ended = record.end().as_secs_f64();
                record.outcome == Outcome::Completed && from <= ended && ended < to
            });
            inside.map(|(_, number)| work[*number]).sum::<f64>() / (to - from)
        };
        let settled = begin + SETTLED.as_secs_f64().min(step.as_secs_f64() / 2.0);
        let arrived: Vec<&Record> = records
            .iter()
            .map(|(record, _)| record)
            .filter(|record| record.due.as_secs_f64() >= settled)
            .collect();
        let part = |ended: &[Outcome]| {
            arrived.iter().filter(|record| ended.contains(&record.outcome)).count() as f64
                / arrived.len().max(1) as f64
        };
        let once_settled = responses(settled, end);
        let points =
            || (0..(end / point) as usize).map(|number| (number as f64 * point, (number + 1) as f64 * point));
        let curve: Vec<(f64, f64)> =
            points().map(|(from, to)| ((from + to) / 2.0, mean(&responses(from, to)))).collect();
        let late = curve.iter().rposition(|&(at, mean)| at > begin && mean > 2.0 * TARGET);
        let settle = match late {
            None => Some(0.0),
            Some(last) if last + 1 == curve.len() => None,
            Some(last) => Some(curve[last].0 + point / 2.0 - begin),
        };
        Self {
            load,
            arrived: arrived.len(),
            refused: part(&[Outcome::Rejected]),
            lost: part(&[Outcome::TimedOut, Outcome::Failed]),
            mean: mean(&once_settled),
            mean_before: mean(&responses(begin, settled)),
            p95: percentile(&once_settled, 0.95),
            work: worked(settled, end),
            occupied: occupied(records, settled, end),
            settle,
            curve,
            worked: points().map(|(from, to)| ((from + to) / 2.0, worked(from, to))).collect(),
        }
    }

    /// Whether the mean, and the goodput, are what they have to be.
    fn holds_mean(&self, peak: f64) -> bool {
        (self.mean / TARGET - 1.0).abs() <= WITHIN && self.work >= GOODPUT_GOAL * peak
    }

    /// Whether the 95th percentile, and the goodput, are what they have to be.
    fn holds_p95(&self, target: f64, mix: Mix, peak: f64) -> bool {
        let share = self.p95 / target;
        share <= 1.0 + WITHIN && (share >= 1.0 - WITHIN || jumps(mix)) && self.work >= GOODPUT_GOAL * peak
    }
}

impl Report {
    fn write(&self, output: &Path) -> Result<(), Error> {
        write_figures(self, output, "bounded-response")?;
        Ok(self.plot().write(&output.join("bounded-response.svg"))?)
    }

    fn plot(&self) -> Plot {
        // The curves are means: the target of a percentile has no place beside them.
        let holds_mean = self.promised().any(|(promise, _)| promise == Promise::Mean);
        let panel = |number: usize, load: f64| Panel {
            title: format!("{load} times the capacity from {} s on: mean response time", self.calm),
            scale: Scale::Logarithmic,
            show: seconds,
            curves: self.variants.iter().map(|variant| curve(&variant.steps[number].curve)).collect(),
            marks: if holds_mean { vec![Mark::Level(TARGET)] } else { Vec::new() },
        };
        Plot {
            title: "Response times held on a real site".to_owned(),
            subtitle: format!(
                "means of {} s by arrival, of all that weren't refused; one that isn't answered counts {} s",
                self.point,
                PATIENCE.as_secs()
            ),
            variants: self.names(),
            marks: None,
            axis: "seconds",
            seconds: self.calm + self.step,
            panels: self.loads.iter().enumerate().map(|(number, &load)| panel(number, load)).collect(),
        }
    }

    /// The figures as a table, with verdicts computed from them.
    pub fn text(&self) -> String {
        let mut figures = Figures::new(&self.names());
        for (number, load) in self.loads.iter().enumerate() {
            figures.heading(&format!("{load} times the capacity"));
            let mut row = |label: &str, figure: &dyn Fn(&Step) -> String| {
                figures.row(label, self.variants.iter().map(|variant| figure(&variant.steps[number])));
            };
            row("mean response time", &|step| seconds(step.mean));
            row("  of the first seconds", &|step| seconds(step.mean_before));
            row("  below twice the target after", &|step| {
                step.settle.map_or("never".to_owned(), |settle| format!("{settle:.0} s"))
            });
            row("95th percentile", &|step| seconds(step.p95));
            row("goodput, of the peak", &|step| ratio(step.work / self.peak));
            row("somebody was there", &|step| format!("{:.1} %", 100.0 * step.occupied));
            row("refused", &|step| format!("{:.1} %", 100.0 * step.refused));
            row("not answered in time", &|step| format!("{:.1} %", 100.0 * step.lost));
        }
        let table: String = figures.to_string().lines().map(|line| format!("  {line}\n")).collect();
        table + "\n" + &paragraph(&self.verdict())
    }

    /// What is seen and why, for a demonstration of one load: no tables, and no goals.
    pub fn story(&self) -> String {
        let first = |steps: &Steps| steps.steps.first().cloned();
        let all: Vec<(&str, Step)> =
            self.variants.iter().filter_map(|steps| Some((steps.variant, first(steps)?))).collect();
        let row = |of: &dyn Fn(&Step) -> f64| -> Vec<(&str, f64)> {
            all.iter().map(|(name, step)| (*name, of(step))).collect()
        };
        let points = |step: &Step| step.curve.iter().map(|&(_, mean)| mean).collect();
        let curves: Vec<(&str, Vec<f64>)> = all.iter().map(|(name, step)| (*name, points(step))).collect();
        let mut text = story::heading("What is seen");
        let title = format!("Mean response time over time; the crowd comes after {} s", self.calm);
        text += &story::curves(&title, seconds, &curves);
        text += &story::bars("Mean response time of what is served", seconds, &row(&|step| step.mean));
        let percent = |value: f64| format!("{value:.0} %");
        let goodput = row(&|step| 100.0 * step.work / self.peak);
        text += &story::bars("Work answered in time, of the most that the site can do", percent, &goodput);
        text += &story::heading("Why");
        text += &story::sentences(&self.why(&all));
        text
    }

    fn why(&self, all: &[(&str, Step)]) -> Vec<String> {
        let [(_, without), .., (_, with)] = all else { return Vec::new() };
        vec![
            format!(
                "Without the gate all requests share the processor. None is quick, and {:.0} % aren't answered \
                 within {} s.",
                100.0 * without.lost,
                PATIENCE.as_secs()
            ),
            format!(
                "With the gate {:.0} % are refused at once, for the site can't serve three times its capacity. \
                 The others take {} on average. The target is {}.",
                100.0 * with.refused,
                seconds(with.mean),
                seconds(TARGET),
            ),
        ]
    }

    fn names(&self) -> Vec<String> {
        self.variants.iter().map(|variant| variant.variant.to_owned()).collect()
    }

    /// The steps of variants that have promised something, and what.
    fn promised(&self) -> impl Iterator<Item = (Promise, &Step)> {
        self.variants.iter().flat_map(|variant| variant.steps.iter().map(|step| (variant.promise, step)))
    }

    fn verdict(&self) -> String {
        let judged = |is: bool| if is { "reached" } else { "missed" };
        let means = self.promised().filter(|(promise, _)| *promise == Promise::Mean).map(|(_, step)| {
            let (mean, goodput) = (seconds(step.mean), ratio(step.work / self.peak));
            format!(
                "{} times: {mean} at {goodput} of the peak, {}",
                step.load,
                judged(step.holds_mean(self.peak))
            )
        });
        let means: Vec<String> = means.collect();
        let late = self.promised().filter_map(|(promise, step)| {
            let Promise::P95(target) = promise else { return None };
            let (p95, goodput) = (seconds(step.p95), ratio(step.work / self.peak));
            let is_held = judged(step.holds_p95(target, self.mix, self.peak));
            let (load, target) = (step.load, seconds(target));
            Some(format!("{load} times: {p95} of {target} at {goodput} of the peak, {is_held}"))
        });
        let late: Vec<String> = late.collect();
        let mut verdict = String::new();
        if !means.is_empty() {
            verdict = format!(
                "Mean of {} (goal: ±{:.0} %, goodput of at least {GOODPUT_GOAL} of the peak of {:.2} processors): {}. ",
                seconds(TARGET),
                100.0 * WITHIN,
                self.peak,
                means.join("; "),
            );
        }
        if !late.is_empty() {
            let percent = 100.0 * WITHIN;
            let goal = if jumps(self.mix) {
                format!("at most {percent:.0} % above")
            } else {
                format!("±{percent:.0} %")
            };
            verdict += &format!(
                "95th percentile (goal: {goal}, goodput of at least {GOODPUT_GOAL} of the peak): {}. ",
                late.join("; "),
            );
        }
        verdict
            + &format!(
                "Random refusal at the target can keep the service busy for {PAPER:.3} of the time, by the paper's model."
            )
    }
}

/// Whether the 95th percentile of this mix lies between what most requests take and what the few long ones
/// do, so that it is anywhere between them and can only be held from above.
fn jumps(mix: Mix) -> bool {
    mix == Mix::Shopping
}

fn curve(points: &[(f64, f64)]) -> Curve {
    // Where everybody was refused there is no response time.
    Curve { points: points.iter().copied().filter(|&(_, value)| value > 0.0).collect(), band: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(due: u64, response: u64, outcome: Outcome) -> Record {
        let milliseconds = Duration::from_millis;
        Record {
            due: milliseconds(due),
            request_type: 0,
            outcome,
            response: milliseconds(response),
            retries: 0,
        }
    }

    #[test]
    fn a_step_is_judged_by_those_who_came_after_it_had_settled() {
        let seconds = Duration::from_secs;
        let records = [
            (record(11_000, 9_000, Outcome::Completed), 0),
            (record(25_000, 100, Outcome::Completed), 1),
            (record(26_000, 200, Outcome::Completed), 2),
            (record(27_000, 1, Outcome::Rejected), 3),
        ];
        let step = Step::of(3.0, &records, &[1.0, 2.0, 3.0, 4.0], (seconds(10), seconds(20)), POINT);
        assert!((step.mean - 0.15).abs() < 1e-9 && (step.mean_before - 9.0).abs() < 1e-9);
        assert_eq!((step.arrived, step.refused, step.lost), (3, 1.0 / 3.0, 0.0));
        // Two and three seconds of work in the ten that count, and one second that ended in them.
        assert!((step.work - 0.6).abs() < 1e-9, "{}", step.work);
        assert_eq!(step.settle, Some(5.0));
        assert!((step.occupied - 0.03).abs() < 1e-9, "{}", step.occupied);
        // Three tenths of it are below: too far for a percentile that doesn't jump.
        let below = Step { p95: 0.7, ..step };
        assert_eq!([Mix::Shopping, Mix::Browsing].map(|mix| below.holds_p95(1.0, mix, 0.6)), [true, false]);
        assert!(!below.holds_p95(1.0, Mix::Shopping, 0.7), "too little is answered");
    }
}
