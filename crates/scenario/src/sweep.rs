//! What is varied from point to point: the number of clients, how much is offered, or the number of cores.

use config::reader::{self, Complaint};
use sim::{Arrivals, Mix, Rate, Scenario, Source};
use toml::de::DeTable;

use super::{Experiment, Reader};
use crate::keys::SWEEP;

/// The points of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub enum Sweep {
    /// Clients of closed loops in all; the sources share them in the proportion of what they say.
    Clients(Vec<u32>),
    /// The load that the only open source offers.
    Utilization {
        /// The loads, as parts of what the service can do at full speed.
        points: Vec<f64>,
        /// How many requests a second are a load of 1.
        full: f64,
    },
    /// Numbers of cores of the service; each core has the same load.
    Cores(Vec<u32>),
}

impl Sweep {
    /// What runs from point to point, for an axis.
    pub const fn axis(&self) -> &'static str {
        match self {
            Self::Clients(_) => "clients",
            Self::Utilization { .. } => "utilization",
            Self::Cores(_) => "cores",
        }
    }

    /// The value of each point.
    pub fn points(&self) -> Vec<f64> {
        match self {
            Self::Clients(points) | Self::Cores(points) => points.iter().copied().map(f64::from).collect(),
            Self::Utilization { points, .. } => points.clone(),
        }
    }

    fn apply(&self, scenario: &mut Scenario, point: usize) {
        match self {
            Self::Clients(points) => share(scenario, points[point]),
            Self::Cores(points) => widen(scenario, points[point]),
            Self::Utilization { points, full } => {
                for source in &mut scenario.sources {
                    if let Arrivals::Poisson(rate) | Arrivals::Regular(rate) = &mut source.arrivals {
                        *rate = Rate::constant(points[point] * full);
                    }
                }
            }
        }
    }
}

/// Gives the service this number of cores, and each core the same load.
fn widen(scenario: &mut Scenario, cores: u32) {
    let factor = f64::from(cores) / f64::from(scenario.upstream.cores());
    scenario.upstream.set_cores(cores);
    for source in &mut scenario.sources {
        match &mut source.arrivals {
            Arrivals::Poisson(rate) | Arrivals::Regular(rate) => *rate = rate.times(factor),
            Arrivals::OnOff { on, off } => {
                on.rate *= factor;
                off.rate *= factor;
            }
            Arrivals::Closed { clients, .. } => *clients = (f64::from(*clients) * factor).round() as u32,
            // A recorded load stays the same.
            Arrivals::Replayed(_) => {}
        }
    }
}

/// Gives each closed source its part of so many clients.
fn share(scenario: &mut Scenario, clients: u32) {
    let said: u64 = scenario.sources.iter().map(said_of).sum();
    let (mut so_far, mut given) = (0, 0);
    for source in &mut scenario.sources {
        so_far += said_of(source);
        if let Arrivals::Closed { clients: of_source, .. } = &mut source.arrivals {
            // The parts of a total, rounded so that they add up to it.
            let until = (u64::from(clients) * so_far).checked_div(said).unwrap_or(0);
            *of_source = (until - given) as u32;
            given = until;
        }
    }
}

/// How many clients this source says it has.
fn said_of(source: &Source) -> u64 {
    match source.arrivals {
        Arrivals::Closed { clients, .. } => clients.into(),
        _ => 0,
    }
}

impl Experiment {
    /// How many points it has.
    pub fn points(&self) -> usize {
        self.sweep.as_ref().map_or(1, |sweep| sweep.points().len())
    }

    /// Each variant with each point, by index, in the order of variants.
    pub fn places(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let points = self.points();
        (0..self.variants.len()).flat_map(move |variant| (0..points).map(move |point| (variant, point)))
    }

    /// What is run there, with one of the experiment's seeds (from 0).
    pub fn scenario(&self, variant: usize, point: usize, seed: u64) -> Scenario {
        let mut scenario = self.variants[variant].1.clone();
        scenario.seed += seed;
        if let Some(sweep) = &self.sweep {
            sweep.apply(&mut scenario, point);
        }
        scenario
    }
}

impl Reader<'_> {
    pub(super) fn sweep(&mut self, top: &DeTable<'_>, base: &Scenario) -> Option<Sweep> {
        top.get("sweep")?;
        let empty = DeTable::new();
        let (table, at) = reader::single_table(top, "sweep", &empty, self.text, self.errors);
        let mut section = self.section("sweep".to_owned(), (table, at), SWEEP);
        let clients = section.read_given("clients", |value| {
            reader::list(value, |clients| reader::number(clients, 1, 1_000_000))
        });
        let utilization = section.read_given("utilization", |value| reader::list(value, reader::amount));
        let cores = section
            .read_given("cores", |value| reader::list(value, |cores| reader::number(cores, 1, 10_000)));
        let is_closed = |source: &Source| matches!(source.arrivals, Arrivals::Closed { .. });
        match (clients, utilization, cores) {
            (Some(clients), None, None) => {
                if !base.sources.is_empty() && !base.sources.iter().any(is_closed) {
                    let hint = "write arrivals = \"closed\" in the source";
                    section.complain("clients", Complaint::new("needs a closed source").hint(hint));
                }
                Some(Sweep::Clients(clients))
            }
            (None, Some(points), None) => {
                let full = full(base);
                if full.is_none() && !base.sources.is_empty() {
                    let why = "needs exactly one source, with \"poisson\" or \"regular\" arrivals and a mix";
                    section.complain("utilization", Complaint::new(why));
                }
                Some(Sweep::Utilization { points, full: full? })
            }
            (None, None, Some(cores)) => Some(Sweep::Cores(cores)),
            (None, None, None) => {
                if !AXES.iter().any(|axis| section.has(axis)) {
                    let hint = "or write `utilization` or `cores`";
                    section.complain("clients", Complaint::new("is missing").hint(hint));
                }
                None
            }
            (clients, utilization, _) => {
                let (key, other) = match (clients, utilization) {
                    (Some(_), Some(_)) => ("utilization", "clients"),
                    (Some(_), None) => ("cores", "clients"),
                    _ => ("cores", "utilization"),
                };
                section.complain(key, Complaint::new(format!("and `{other}` can't both be varied")));
                None
            }
        }
    }
}

/// The keys of which one is varied.
const AXES: [&str; 3] = ["clients", "utilization", "cores"];

/// How many a second the service can do of what its one open source asks for.
fn full(base: &Scenario) -> Option<f64> {
    match &base.sources[..] {
        [
            Source {
                arrivals: Arrivals::Poisson(_) | Arrivals::Regular(_), mix: Mix::Shares(shares), ..
            },
        ] => {
            let mean = Scenario::mean_service_time(&base.types, shares);
            Some(f64::from(base.upstream.cores()) / mean)
        }
        _ => None,
    }
}
