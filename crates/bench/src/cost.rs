//! What standing in between costs, in turns: directly, through what others would take, through the gate.
//!
//! Two loads. A closed loop at full speed shows the throughput, and the processor time that the proxy spends
//! on a request. A Poisson process at half the speed of the slowest proxy shows how much longer a response
//! takes than directly. Proxies have as many server connections or workers and run on one processor. The
//! modules `postgres`, `mariadb` and `http` hold the questions and the proxies.

mod http;
mod mariadb;
mod postgres;

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;
use sim::plot::{Curve, Panel, Plot, Scale};

use crate::Error;
use crate::alternate::{Display, Turn, alternate};
use crate::files::write_figures;
use crate::stats::{Rounds, percentile};
use crate::table::{self, Figures, count, ratio, spread};

/// Server connections of each proxy before a database.
const POOL: u32 = 20;
/// The most that a proxy may add to the 99th percentile at half load.
const ADDED_GOAL: Duration = Duration::from_micros(100);

/// Before what the proxies stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Before {
    /// PostgreSQL: `pgbench -S`, beside PgBouncer.
    #[default]
    Postgresql,
    /// MariaDB: sysbench's lookups, beside ProxySQL and the gate for PostgreSQL.
    Mariadb,
    /// An nginx with files of 1 and 100 KB, beside HAProxy and nginx.
    Http,
}

/// How the experiment is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Before what the proxies stand.
    pub before: Before,
    /// Rounds; everything has one turn in each.
    pub rounds: usize,
    /// How long each turn is.
    pub window: Duration,
    /// Clients before a database.
    pub clients: u32,
    /// The server's processor; over HTTP the proxies'.
    pub cpu: Option<usize>,
    /// Directory for the plot and the figures.
    pub output: PathBuf,
}

/// One turn at full load.
#[derive(Clone, Copy, Debug, Serialize)]
struct Full {
    /// Requests per second.
    rate: f64,
    /// Processor time of the proxy for each, in seconds.
    cost: f64,
}

/// One turn at half load.
#[derive(Clone, Copy, Debug, Serialize)]
struct Half {
    /// Median response time in seconds.
    p50: f64,
    /// 99th percentile in seconds.
    p99: f64,
    /// Processor time of the proxy for each, in seconds.
    cost: f64,
    /// How late the client sent its requests, where it tells: the 99th percentile, in seconds.
    late: Option<f64>,
}

/// A proxy whose processor time the gate's is divided by.
#[derive(Clone, Copy, Debug)]
struct Beside {
    /// Its number.
    variant: usize,
    /// The most that the ratio should be, and the most that it may be.
    goal: Option<(f64, f64)>,
}

/// Servers, proxies, and what is asked.
trait Laboratory {
    /// What the report is called, and how the load is described.
    const NAMES: (&'static str, &'static str);
    /// The gate's number. Directly is 0, and what stands behind the gate is for comparison only.
    const GATE: usize;
    /// With which variants the gate is compared.
    const BESIDE: &'static [Beside];
    /// What is asked, in sections.
    const SECTIONS: &'static [&'static str];

    /// The variants' names.
    fn variants(&self) -> Vec<String>;

    /// One turn of all that goes; none where the variant can't.
    async fn full(&self, variant: usize, section: usize) -> Result<Option<Full>, Error>;

    /// One turn at a rate; none where the variant can't, or the client has no such mode.
    async fn half(
        &self,
        variant: usize,
        section: usize,
        rate: f64,
        round: usize,
    ) -> Result<Option<Half>, Error>;
}

/// What one section came to; by variant, then by round. Empty where the variant can't.
#[derive(Clone, Debug, Serialize)]
struct Section {
    name: &'static str,
    full: Vec<Vec<Full>>,
    /// Requests per second at half load.
    half_rate: f64,
    half: Vec<Vec<Half>>,
}

/// The whole experiment.
#[derive(Clone, Debug, Serialize)]
struct Report {
    name: &'static str,
    load: &'static str,
    variants: Vec<String>,
    window_seconds: f64,
    sections: Vec<Section>,
    #[serde(skip)]
    gate: usize,
    #[serde(skip)]
    beside: &'static [Beside],
}

/// Runs the experiment, and returns its tables with verdicts.
///
/// # Errors
/// If something doesn't start, or a request fails.
pub async fn run(options: &Options, display: &Display) -> Result<String, Error> {
    display.now("starting servers and proxies");
    let report = match options.before {
        Before::Postgresql => measure(&postgres::start(options).await?, options, display).await?,
        Before::Mariadb => measure(&mariadb::start(options).await?, options, display).await?,
        Before::Http => measure(&http::start(options).await?, options, display).await?,
    };
    write_figures(&report, &options.output, report.name)?;
    report.plot().write(&options.output.join(format!("{}.svg", report.name)))?;
    Ok(report.text())
}

async fn measure<L: Laboratory>(
    laboratory: &L,
    options: &Options,
    display: &Display,
) -> Result<Report, Error> {
    let variants = laboratory.variants();
    let expected = vec![options.window; variants.len()];
    let known =
        |rounds: Vec<Vec<Option<_>>>| rounds.into_iter().map(|all| all.into_iter().flatten().collect());
    let mut sections = Vec::new();
    for (number, &name) in L::SECTIONS.iter().enumerate() {
        let full = alternate(options.rounds, &expected, async |at: Turn, left| {
            display.now(format!("{name}, all that goes: {left:.0?} to go"));
            laboratory.full(at.variant, number).await
        })
        .await?;
        let full: Vec<Vec<Full>> = known(full).collect();
        let proxies = full.iter().skip(1).filter(|rounds| !rounds.is_empty());
        let slowest = proxies.map(|rounds| median(rounds, |round| round.rate)).fold(f64::INFINITY, f64::min);
        let half_rate = slowest / 2.0;
        display.say(&format!("  {name}: all that goes is measured; half of it is {}/s", count(half_rate)));
        let half = alternate(options.rounds, &expected, async |at: Turn, left| {
            display.now(format!("{name}, half of it: {left:.0?} to go"));
            laboratory.half(at.variant, number, half_rate, at.round).await
        })
        .await?;
        let half = half.into_iter().map(|rounds| rounds.into_iter().flatten().collect()).collect();
        sections.push(Section { name, full, half_rate, half });
    }
    let ((name, load), window_seconds) = (L::NAMES, options.window.as_secs_f64());
    Ok(Report { name, load, variants, window_seconds, sections, gate: L::GATE, beside: L::BESIDE })
}

fn median<T>(rounds: &[T], figure: impl Fn(&T) -> f64) -> f64 {
    percentile(&rounds.iter().map(figure).collect::<Vec<_>>(), 0.5)
}

fn micros(seconds: f64) -> String {
    format!("{:.1} µs", seconds * 1e6)
}

impl Section {
    /// A variant's processor time as a multiple of another's, of each round; none where one of the two can't.
    fn ratios(&self, variant: usize, other: usize) -> Option<Rounds> {
        let pairs = self.full[variant].iter().zip(&self.full[other]);
        let ratios: Vec<f64> = pairs.map(|(ours, theirs)| ours.cost / theirs.cost).collect();
        (!ratios.is_empty()).then(|| Rounds::of(&ratios))
    }

    /// How much more a variant's 99th percentile at half load is than the direct one's in each round, in
    /// seconds.
    fn added_p99s(&self, variant: usize) -> Vec<f64> {
        self.half[variant].iter().zip(&self.half[0]).map(|(ours, direct)| ours.p99 - direct.p99).collect()
    }

    fn verdict(&self, variants: &[String], gate: usize, beside: &[Beside]) -> String {
        let mut said: Vec<String> = beside.iter().map(|one| self.compared(variants, gate, *one)).collect();
        let added = self.added_p99s(gate);
        if !added.is_empty() {
            // What is sought is smaller than what the machine does by itself from round to round, so that
            // only what each round says is said.
            let within = added.iter().filter(|&&added| added < ADDED_GOAL.as_secs_f64()).count();
            let latency = match (within, added.len()) {
                (all, rounds) if all == rounds => "reached in each round".to_owned(),
                (0, _) => "missed in each round".to_owned(),
                (some, rounds) => format!("can't be told: within it in {some} of {rounds} rounds"),
            };
            said.push(format!(
                "at half load {} more than directly at the 99th percentile (goal: less than {ADDED_GOAL:?}, {latency})",
                spread(Rounds::of(&added), micros)
            ));
        }
        format!("{}: {}.", self.name, said.join("; "))
    }

    fn compared(&self, variants: &[String], gate: usize, beside: Beside) -> String {
        let name = &variants[beside.variant];
        let Some(found) = self.ratios(gate, beside.variant) else { return format!("{name} can't do this") };
        let goal = beside.goal.map_or(String::new(), |(goal, allowed)| {
            let judged = match found.median {
                median if median <= goal => "reached",
                median if median <= allowed => "missed, within what is allowed",
                _ => "missed",
            };
            format!(" (goal: at most {goal:.1}, {judged})")
        });
        format!("{} times the processor time of {name}{goal}", spread(found, ratio))
    }
}

impl Report {
    fn plot(&self) -> Plot {
        let panel = |section: &Section| {
            let curve = |rounds: &Vec<Full>| {
                let points =
                    rounds.iter().enumerate().map(|(round, at)| ((round + 1) as f64, at.cost)).collect();
                Curve { points, band: Vec::new() }
            };
            let title = format!("{}: processor time of the proxy for each", section.name);
            Panel::new(title, Scale::Linear, micros, section.full.iter().skip(1).map(curve).collect())
        };
        Plot {
            title: "What standing in between costs".to_owned(),
            subtitle: format!("{}, as much as goes", self.load),
            variants: self.variants.iter().skip(1).cloned().collect(),
            marks: None,
            axis: "round",
            seconds: self.sections.iter().map(|section| section.full[0].len()).max().unwrap_or(1) as f64,
            panels: self.sections.iter().map(panel).collect(),
        }
    }

    /// The figures as tables, with verdicts computed from them.
    fn text(&self) -> String {
        let mut figures = Figures::new(&self.variants);
        let mut verdicts = String::new();
        for section in &self.sections {
            figures.heading(&format!("{}, as much as goes", section.name));
            row(&mut figures, "per second", &section.full, |round| round.rate, count);
            row(&mut figures, "proxy's processor time for each", &section.full, |round| round.cost, micros);
            if section.half.iter().any(|rounds| !rounds.is_empty()) {
                figures.heading(&format!("{}, {} per second", section.name, count(section.half_rate)));
                row(&mut figures, "median response time", &section.half, |round| round.p50, micros);
                row(&mut figures, "99th percentile", &section.half, |round| round.p99, micros);
                let added =
                    (0..self.variants.len()).map(|variant| cell(&section.added_p99s(variant), micros));
                figures.row("  more than directly", added);
                let late = section.half.iter().map(|rounds| rounds.iter().filter_map(|round| round.late));
                let late: Vec<Vec<f64>> = late.map(Iterator::collect).collect();
                if late.iter().any(|rounds| !rounds.is_empty()) {
                    let late = late.iter().map(|rounds| cell(rounds, micros));
                    figures.row("  of which the client was late", late);
                }
                row(
                    &mut figures,
                    "proxy's processor time for each",
                    &section.half,
                    |round| round.cost,
                    micros,
                );
            }
            verdicts += &table::paragraph(&section.verdict(&self.variants, self.gate, self.beside));
        }
        let table: String = figures.to_string().lines().map(|line| format!("  {line}\n")).collect();
        table + "\n" + &verdicts
    }
}

fn row<T>(
    figures: &mut Figures,
    label: &str,
    all: &[Vec<T>],
    figure: impl Fn(&T) -> f64,
    show: fn(f64) -> String,
) {
    let values = |rounds: &Vec<T>| rounds.iter().map(&figure).collect::<Vec<_>>();
    figures.row(label, all.iter().map(|rounds| cell(&values(rounds), show)));
}

fn cell(values: &[f64], show: fn(f64) -> String) -> String {
    if values.is_empty() { "–".to_owned() } else { spread(Rounds::of(values), show) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(other: &[f64], gate: &[f64], added: f64) -> Section {
        let full = |costs: &[f64]| costs.iter().map(|&cost| Full { rate: 1.0, cost }).collect();
        let half = |p99: f64| vec![Half { p50: 0.0, p99, cost: 0.0, late: None }];
        Section {
            name: "simple",
            full: vec![full(&[0.0]), full(other), full(gate)],
            half_rate: 1.0,
            half: vec![half(0.001), half(0.001), half(0.001 + added)],
        }
    }

    fn verdict(section: &Section) -> String {
        let variants = ["direct", "PgBouncer", "gate"].map(str::to_owned);
        section.verdict(&variants, 2, &[Beside { variant: 1, goal: Some((1.0, 1.2)) }])
    }

    #[test]
    fn verdicts_come_from_the_rounds() {
        let good = section(&[2.0, 4.0, 1.0], &[1.0, 2.0, 3.0], 0.000_099);
        assert_eq!(good.ratios(2, 1).map(|found| found.median), Some(0.5));
        assert_eq!(verdict(&good).matches("reached").count(), 2, "{}", verdict(&good));
        assert!(verdict(&section(&[2.0], &[2.2], 0.0)).contains("within what is allowed"));
        let bad = verdict(&section(&[2.0], &[2.5], 0.000_101));
        assert_eq!(bad.matches("missed").count(), 2, "{bad}");
        let mut drifting = section(&[2.0], &[2.0], 0.0);
        drifting.half[0].push(Half { p50: 0.0, p99: 0.002, cost: 0.0, late: None });
        drifting.half[2].push(Half { p50: 0.0, p99: 0.003, cost: 0.0, late: None });
        assert!(verdict(&drifting).contains("can't be told"), "{}", verdict(&drifting));
        let alone = section(&[], &[2.1], 0.0);
        assert!(alone.ratios(2, 1).is_none() && verdict(&alone).contains("PgBouncer can't do this"));
    }

    #[test]
    fn the_text_has_a_row_for_each_figure_and_none_of_what_was_not_measured() {
        let report = |sections| Report {
            name: "proxy-cost",
            load: "pgbench",
            variants: ["direct", "PgBouncer", "gate"].map(str::to_owned).to_vec(),
            window_seconds: 1.0,
            sections,
            gate: 2,
            beside: &[],
        };
        let full = report(vec![section(&[], &[0.000_01], 0.0)]).text();
        assert!(
            full.contains("10.0 µs") && full.contains('–') && full.contains("more than directly"),
            "{full}"
        );
        let mut only_full = section(&[0.000_02], &[0.000_01], 0.0);
        only_full.half = vec![Vec::new(); 3];
        let text = report(vec![only_full]).text();
        assert!(!text.contains("more than directly") && !text.contains("half load"), "{text}");
    }
}
