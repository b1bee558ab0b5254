//! A row of the catalogue: a scenario at one point, its gates and its seeds.

use std::path::Path;

use admission::{Capacity, Policy};
use scenario::{Experiment, FIXED_GATE, Goal};
use sim::Scenario;

use crate::error::Error;

/// The first of the held-out seeds.
const HELD_OUT: u64 = 1_000;

/// A row.
#[derive(Clone, Debug)]
pub struct Row {
    /// The file's name without its ending.
    pub file: String,
    /// The row's name: the file's, and the point of its sweep if there is one.
    pub name: String,
    /// The comment at the head of the file.
    pub about: String,
    /// The goals of its gates.
    pub goal: Goal,
    experiment: Experiment,
    point: usize,
}

/// A gate of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Variant {
    /// The gate's name.
    pub name: String,
    /// What it does.
    pub policy: Policy,
}

/// A set of seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seeds {
    /// The seeds in the file.
    Tuned,
    /// An equal number of other seeds, on which no change is tuned.
    HeldOut,
}

impl Seeds {
    /// Both sets.
    pub const BOTH: [Self; 2] = [Self::Tuned, Self::HeldOut];
}

impl Row {
    /// All gates, and first of all the service without a gate.
    pub fn variants(&self) -> impl Iterator<Item = Variant> {
        let variants = self.experiment.variants.iter();
        variants.map(|(name, scenario)| Variant { name: name.clone(), policy: scenario.policy.clone() })
    }

    /// The gate of this name.
    pub fn variant(&self, name: &str) -> Option<Variant> {
        self.variants().find(|variant| variant.name == name)
    }

    /// The fixed gate, unless something else than its number of connections is fixed.
    pub fn fixed_number(&self) -> Option<Variant> {
        self.variant(FIXED_GATE).filter(|fixed| fixed.policy.capacity == Capacity::Unlimited)
    }

    /// The scenarios with this policy, one for each seed of a set.
    pub fn scenarios(&self, policy: &Policy, seeds: Seeds) -> Vec<Scenario> {
        let from = if seeds == Seeds::HeldOut { HELD_OUT } else { 0 };
        (from..from + self.experiment.seeds).map(|seed| self.seeded(policy, seed)).collect()
    }

    /// The scenario with this policy and the first seed of the file.
    pub fn first_scenario(&self, policy: &Policy) -> Scenario {
        self.seeded(policy, 0)
    }

    fn seeded(&self, policy: &Policy, seed: u64) -> Scenario {
        Scenario { policy: policy.clone(), ..self.experiment.scenario(0, self.point, seed) }
    }

    /// The name of the file with its trajectories.
    pub fn trajectory_file(&self) -> String {
        self.name.replace(", ", "-").replace(' ', "-") + ".txt"
    }

    /// The names of the types.
    pub fn types(&self) -> Vec<&str> {
        let first = self.experiment.variants.first();
        first.map_or(Vec::new(), |(_, scenario)| scenario.types.iter().map(|kind| &kind.name[..]).collect())
    }
}

/// The rows of a file.
///
/// # Errors
/// What is wrong with it.
pub fn rows_of(file: &Path) -> Result<Vec<Row>, Error> {
    let experiment = scenario::load(file).map_err(Error::Scenario)?;
    let text = std::fs::read_to_string(file).map_err(|source| Error::file("read", file, source))?;
    let comment = text.lines().map_while(|line| line.strip_prefix('#')).map(str::trim);
    let about = comment.collect::<Vec<_>>().join(" ");
    let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let points = experiment.sweep.as_ref().map(|sweep| (sweep.axis(), sweep.points()));
    let row = |point: usize| {
        let at = points.as_ref().map(|(axis, values)| format!(", {} {axis}", values[point]));
        Row {
            name: stem.clone() + &at.unwrap_or_default(),
            file: stem.clone(),
            about: about.clone(),
            goal: experiment.goal.clone().unwrap_or_default(),
            experiment: experiment.clone(),
            point,
        }
    };
    Ok((0..experiment.points()).map(row).collect())
}
