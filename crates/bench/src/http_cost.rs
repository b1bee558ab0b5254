//! What standing in between costs over HTTP: small and large responses directly, through HAProxy, nginx and
//! the gatekeeper, in turns.
//!
//! Each proxy has one worker, and a processor that it shares with the other proxies, which are idle while
//! one has its turn; the origin (an nginx with files) and the clients share the other. Two loads: as much
//! as goes, for the throughput and the processor time that the proxy spends on a request; and half of what
//! the slowest proxy could do, as a Poisson process, for how much longer a response takes than it takes
//! directly.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::Error;
use crate::alternate::{Display, Turn, alternate};
use crate::blocking::blocking;
use crate::files::write_figures;
use crate::gatekeeper::Gatekeeper;
use crate::http::{
    Beyond, ClosedRun, HaProxy, HaProxyRole, Habits, Nginx, NginxRole, OpenRun, Request, closed, write_files,
};
use crate::load::Outcome;
use crate::stats::{Rounds, percentile};
use crate::table::{self, Figures, count, ratio, spread};
use sim::plot::{Curve, Panel, Plot, Scale};

/// Responses of these sizes, in bytes.
const SIZES: [usize; 2] = [1_024, 102_400];
/// Clients, each with a connection that it keeps.
const CONNECTIONS: usize = 64;
/// How long clients ask before anything is counted.
const WARM_UP: Duration = Duration::from_millis(500);
/// How long a client waits: nobody should have to.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most that a request may cost, as a multiple of HAProxy's, to be called as cheap.
pub const COST_GOAL: f64 = 1.0;
/// The most that it may cost at all.
pub const COST_MAX: f64 = 1.2;

/// How the experiment is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Rounds; everything has one turn in each.
    pub rounds: usize,
    /// How long each turn is.
    pub window: Duration,
    /// The proxies' processor.
    pub proxy_cpu: Option<usize>,
    /// Directory for the plot and the figures.
    pub output: PathBuf,
}

const VARIANTS: [&str; 4] = ["direct", "HAProxy", "nginx", "Gatekeeper"];
const HAPROXY: usize = 1;
const GATEKEEPER: usize = 3;

/// One turn at full load.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Full {
    /// Requests per second.
    pub rate: f64,
    /// Processor time of the proxy for each, in seconds.
    pub cost: f64,
}

/// One turn at half load.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Half {
    /// Median response time in seconds.
    pub p50: f64,
    /// 99th percentile in seconds.
    pub p99: f64,
    /// Processor time of the proxy for each, in seconds.
    pub cost: f64,
    /// How late the client sent its requests: the 99th percentile, in seconds.
    pub late: f64,
}

/// What one size of response came to; by variant, then by round.
#[derive(Clone, Debug, Serialize)]
pub struct Section {
    /// Bytes of a body.
    pub size: usize,
    /// At full load.
    pub full: Vec<Vec<Full>>,
    /// Requests per second at half load.
    pub half_rate: f64,
    /// At half load.
    pub half: Vec<Vec<Half>>,
}

/// The whole experiment.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The variants' names, with versions.
    pub variants: Vec<String>,
    /// Length of a turn in seconds.
    pub window_seconds: f64,
    /// One for each size.
    pub sections: Vec<Section>,
}

struct Laboratory {
    // In the order in which they are ended: proxies before the origin.
    haproxy: HaProxy,
    nginx: Nginx,
    gatekeeper: Gatekeeper,
    origin: Nginx,
    _files: tempfile::TempDir,
}

impl Laboratory {
    fn start(cpu: Option<usize>) -> Result<Self, Error> {
        let files = tempfile::tempdir().map_err(Error::io("creating a temporary directory"))?;
        write_files(files.path(), &SIZES)?;
        let origin = Nginx::start(&NginxRole::Files(files.path().to_owned()), None)?;
        Ok(Self {
            haproxy: HaProxy::start(HaProxyRole::Proxy(origin.port()), cpu)?,
            nginx: Nginx::start(&NginxRole::Proxy(origin.port()), cpu)?,
            gatekeeper: Gatekeeper::start_http(origin.port(), &[], cpu)?,
            origin,
            _files: files,
        })
    }

    /// The port to connect to, and the proxy's processes.
    fn way(&self, variant: usize) -> (u16, Vec<u32>) {
        match variant {
            0 => (self.origin.port(), Vec::new()),
            HAPROXY => (self.haproxy.port(), self.haproxy.pids()),
            GATEKEEPER => (self.gatekeeper.port(), vec![self.gatekeeper.pid()]),
            _ => (self.nginx.port(), self.nginx.pids()),
        }
    }

    fn names(&self) -> Vec<String> {
        let versions = ["", self.haproxy.version(), self.nginx.version(), ""];
        VARIANTS
            .iter()
            .zip(versions)
            .map(|(name, version)| format!("{name} {version}").trim().to_owned())
            .collect()
    }
}

/// Runs the experiment.
///
/// # Errors
/// If something doesn't start, or a request fails.
pub async fn run(options: &Options, display: &Display) -> Result<Report, Error> {
    let cpu = options.proxy_cpu;
    display.now("starting an origin, HAProxy, nginx and a gatekeeper");
    let laboratory = blocking(move || Laboratory::start(cpu)).await?;
    let mut sections = Vec::new();
    for size in SIZES {
        sections.push(section(&laboratory, size, options, display).await?);
    }
    let report =
        Report { variants: laboratory.names(), window_seconds: options.window.as_secs_f64(), sections };
    report.write(&options.output)?;
    Ok(report)
}

async fn section(
    laboratory: &Laboratory,
    size: usize,
    options: &Options,
    display: &Display,
) -> Result<Section, Error> {
    let request = format!("GET /{size} HTTP/1.1\r\nHost: site.example\r\nAccept: */*\r\n\r\n").into_bytes();
    let expected = [options.window + WARM_UP; VARIANTS.len()];
    let name = size_name(size);
    let full = alternate(options.rounds, &expected, async |at: Turn, left| {
        display.now(format!("{name}, all that goes, {}: {left:.0?} to go", VARIANTS[at.variant]));
        let (port, measured) = laboratory.way(at.variant);
        let run = ClosedRun {
            port,
            requests: vec![request.clone()],
            status: 200,
            connections: CONNECTIONS,
            warm_up: WARM_UP,
            window: options.window,
            measured,
        };
        closed(run).await.map(|counted| Full { rate: counted.rate, cost: counted.cost })
    })
    .await?;
    let rates = full.iter().skip(1).map(|rounds| median(rounds, |round| round.rate));
    let half_rate = rates.fold(f64::INFINITY, f64::min) / 2.0;
    display.say(&format!("  {name}: as much as goes is measured; half of it is {}/s", count(half_rate)));
    let bytes = Arc::new(vec![request]);
    let half = alternate(options.rounds, &expected, async |at: Turn, left| {
        display.now(format!("{name}, half of it, {}: {left:.0?} to go", VARIANTS[at.variant]));
        let (port, measured) = laboratory.way(at.variant);
        let requests = Arc::new(Request::poisson(half_rate, options.window, at.round as u64));
        let bytes = Arc::clone(&bytes);
        half(OpenRun {
            address: (Ipv4Addr::LOCALHOST, port).into(),
            inside: None,
            habits: Habits::default(),
            requests,
            bytes,
            patience: PATIENCE,
            connections_max: CONNECTIONS,
            beyond: Beyond::Waits,
            measured,
        })
        .await
    })
    .await?;
    Ok(Section { size, full, half_rate, half })
}

async fn half(run: OpenRun) -> Result<Half, Error> {
    let outcome = run.run().await?;
    if let Some((bad, _)) = outcome.records.iter().find(|(record, _)| record.outcome != Outcome::Completed) {
        let reason = outcome.first_failure.unwrap_or_default();
        return Err(Error::Experiment(format!("a request at half load ended as {:?} {reason}", bad.outcome)));
    }
    let responses: Vec<f64> =
        outcome.records.iter().map(|(record, _)| record.response.as_secs_f64()).collect();
    let cost = outcome.used / responses.len() as f64;
    let late = outcome.lag_p99.as_secs_f64();
    Ok(Half { p50: percentile(&responses, 0.5), p99: percentile(&responses, 0.99), cost, late })
}

fn median<T>(rounds: &[T], figure: impl Fn(&T) -> f64) -> f64 {
    percentile(&rounds.iter().map(figure).collect::<Vec<_>>(), 0.5)
}

fn size_name(size: usize) -> String {
    format!("{} KB", size / 1_024)
}

fn micros(seconds: f64) -> String {
    format!("{:.1} µs", seconds * 1e6)
}

impl Section {
    /// A variant's cost as a multiple of HAProxy's, of each round.
    pub fn cost_ratios(&self, variant: usize) -> Rounds {
        let pairs = self.full[variant].iter().zip(&self.full[HAPROXY]);
        Rounds::of(&pairs.map(|(ours, theirs)| ours.cost / theirs.cost).collect::<Vec<_>>())
    }

    /// How much more a variant's 99th percentile at half load is than the direct one's, in seconds, of each
    /// round.
    pub fn added_p99(&self, variant: usize) -> Rounds {
        let pairs = self.half[variant].iter().zip(&self.half[0]);
        Rounds::of(&pairs.map(|(ours, direct)| ours.p99 - direct.p99).collect::<Vec<_>>())
    }

    fn verdict(&self) -> String {
        let found = self.cost_ratios(GATEKEEPER);
        let judged = match found.median {
            median if median <= COST_GOAL => "reached",
            median if median <= COST_MAX => "missed, within what is allowed",
            _ => "missed, and above what is allowed",
        };
        format!(
            "{}: {} times HAProxy's processor time for a request (goal: at most {COST_GOAL:.1}, allowed {COST_MAX:.1}: \
             {judged}); at half load {} more than directly at the 99th percentile.",
            size_name(self.size),
            spread(found, ratio),
            spread(self.added_p99(GATEKEEPER), micros),
        )
    }
}

impl Report {
    fn write(&self, output: &Path) -> Result<(), Error> {
        write_figures(self, output, "http-cost")?;
        Ok(self.plot().write(&output.join("http-cost.svg"))?)
    }

    fn plot(&self) -> Plot {
        let panel = |section: &Section| {
            Panel::new(
                format!("{}: processor time of the proxy for one request", size_name(section.size)),
                Scale::Linear,
                micros,
                section.full.iter().skip(1).map(|rounds| curve(rounds)).collect(),
            )
        };
        Plot {
            title: "What standing in between costs over HTTP".to_owned(),
            subtitle: format!("{CONNECTIONS} connections, as much as goes, one worker on one processor each"),
            variants: self.variants.iter().skip(1).cloned().collect(),
            marks: None,
            axis: "round",
            seconds: self.sections.iter().map(|section| section.full[0].len()).max().unwrap_or(1) as f64,
            panels: self.sections.iter().map(panel).collect(),
        }
    }

    /// The figures as tables, with verdicts computed from them.
    pub fn text(&self) -> String {
        let mut figures = Figures::new(&self.variants);
        let mut verdicts = String::new();
        for section in &self.sections {
            let name = size_name(section.size);
            figures.heading(&format!("{name}, as much as goes"));
            row(&mut figures, "requests per second", &section.full, |round| round.rate, count);
            row(&mut figures, "proxy's processor time for each", &section.full, |round| round.cost, micros);
            let ratios = (0..VARIANTS.len()).map(|variant| section.cost_ratios(variant));
            figures.row("  as a multiple of HAProxy's", ratios.map(|found| spread(found, ratio)));
            figures.heading(&format!("{name}, {} per second", count(section.half_rate)));
            row(&mut figures, "median response time", &section.half, |round| round.p50, micros);
            row(&mut figures, "99th percentile", &section.half, |round| round.p99, micros);
            let added = (0..VARIANTS.len()).map(|variant| section.added_p99(variant));
            figures.row("  more than directly", added.map(|found| spread(found, micros)));
            row(&mut figures, "  of which the client was late", &section.half, |round| round.late, micros);
            row(&mut figures, "proxy's processor time for each", &section.half, |round| round.cost, micros);
            verdicts.push_str(&table::paragraph(&section.verdict()));
        }
        let table: String = figures.to_string().lines().map(|line| format!("  {line}\n")).collect();
        table + "\n" + &verdicts
    }
}

fn row<T>(
    figures: &mut Figures,
    label: &str,
    variants: &[Vec<T>],
    figure: impl Fn(&T) -> f64,
    show: fn(f64) -> String,
) {
    let cell = |rounds: &Vec<T>| spread(Rounds::of(&rounds.iter().map(&figure).collect::<Vec<_>>()), show);
    figures.row(label, variants.iter().map(cell));
}

fn curve(rounds: &[Full]) -> Curve {
    let points = rounds.iter().enumerate().map(|(round, at)| ((round + 1) as f64, at.cost)).collect();
    Curve { points, band: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(haproxy: &[f64], gatekeeper: &[f64]) -> Section {
        let full = |costs: &[f64]| costs.iter().map(|&cost| Full { rate: 1.0, cost }).collect();
        let half = vec![Half { p50: 0.0, p99: 0.001, cost: 0.0, late: 0.0 }];
        Section {
            size: 1_024,
            full: vec![full(&[0.0]), full(haproxy), full(haproxy), full(gatekeeper)],
            half_rate: 1.0,
            half: vec![half.clone(), half.clone(), half.clone(), half],
        }
    }

    #[test]
    fn verdicts_come_from_the_rounds() {
        let good = section(&[2.0, 4.0, 1.0], &[1.0, 2.0, 3.0]);
        assert!(good.cost_ratios(GATEKEEPER).median == 0.5 && good.verdict().contains("reached"));
        assert!(section(&[2.0], &[2.2]).verdict().contains("within what is allowed"));
        assert!(section(&[2.0], &[3.0]).verdict().contains("above what is allowed"));
    }

    #[test]
    fn the_text_has_a_row_for_each_figure() {
        let variants = VARIANTS.map(str::to_owned).to_vec();
        let sections = vec![section(&[0.000_02], &[0.000_01])];
        let text = Report { variants, window_seconds: 1.0, sections }.text();
        assert!(text.contains("10.0 µs") && text.contains("1 KB"), "{text}");
    }
}
