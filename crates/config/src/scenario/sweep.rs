//! What is varied from point to point: the number of clients, or how much is offered.

use sim::{Arrivals, Mix, Rate, Scenario, Source};
use toml::de::DeTable;

use super::{Experiment, Reader};
use crate::checked;
use crate::raw::{self, Complaint, SWEEP};

/// The points of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub enum Sweep {
    /// Clients of closed loops in all; the sources share them in the proportion of what they say.
    Clients(Vec<u32>),
    /// What the one open source offers.
    Utilization {
        /// As a part of what the service can do at full speed.
        points: Vec<f64>,
        /// How many a second that is at 1.
        full: f64,
    },
}

impl Sweep {
    /// What runs from point to point, for an axis.
    pub const fn axis(&self) -> &'static str {
        match self {
            Self::Clients(_) => "clients",
            Self::Utilization { .. } => "utilization",
        }
    }

    /// The value of each point.
    pub fn points(&self) -> Vec<f64> {
        match self {
            Self::Clients(points) => points.iter().copied().map(f64::from).collect(),
            Self::Utilization { points, .. } => points.clone(),
        }
    }

    fn apply(&self, scenario: &mut Scenario, point: usize) {
        match self {
            Self::Clients(points) => share(scenario, points[point]),
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
        let (table, at) = checked::single_table(top, "sweep", &empty, self.text, self.errors);
        let mut section = self.section("sweep".to_owned(), (table, at), SWEEP);
        let clients = section.read_given("clients", |value| {
            raw::list(value, |clients| checked::number(clients, 1, 1_000_000))
        });
        let utilization = section.read_given("utilization", |value| raw::list(value, raw::amount));
        let is_closed = |source: &Source| matches!(source.arrivals, Arrivals::Closed { .. });
        match (clients, utilization) {
            (Some(_), Some(_)) => {
                section.complain("utilization", Complaint::new("and `clients` can't both be varied"));
                None
            }
            (Some(clients), None) => {
                if !base.sources.is_empty() && !base.sources.iter().any(is_closed) {
                    let hint = "write arrivals = \"closed\" in the source";
                    section.complain("clients", Complaint::new("needs a closed source").hint(hint));
                }
                Some(Sweep::Clients(clients))
            }
            (None, Some(points)) => {
                let full = full(base);
                if full.is_none() && !base.sources.is_empty() {
                    let why = "needs exactly one source, with \"poisson\" or \"regular\" arrivals and a mix";
                    section.complain("utilization", Complaint::new(why));
                }
                Some(Sweep::Utilization { points, full: full? })
            }
            (None, None) => {
                if !section.has("clients") && !section.has("utilization") {
                    section.complain("clients", Complaint::new("is missing").hint("or write `utilization`"));
                }
                None
            }
        }
    }
}

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
