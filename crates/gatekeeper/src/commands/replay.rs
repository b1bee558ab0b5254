//! `gatekeeper replay`: what a running gate was asked, as its trace has it, before the same gate in the
//! laboratory, and before others.
//!
//! The requests arrive when they did, of the types that they were, and take what they took: that is worked
//! out of their upstream times (`replay/demand.rs` says how, and what it assumes). The table has what was
//! recorded beside what the simulator makes of it with the recorded policy, which shows how well it
//! explains the real gate; and beside that, what another policy would have done.

mod advise;
mod demand;
mod recorded;
mod table;

use std::fs;
use std::num::NonZero;

use admission::ClassId;
use config::{LongLimit, World};
use scenario::Experiment;
use sim::{Arrival, Arrivals, Collapse, Distribution, Kind, Mix, Scenario, Source, Upstream};

use crate::Failure;
use crate::cli::{ReplayArgs, ServiceTimes, SimulateArgs};

use super::simulate::{picture, play};
pub(super) use advise::advice;
pub(crate) use advise::advise;
use recorded::{Recorded, Request};

/// What a request is taken to need where nothing tells.
const DEMAND_FALLBACK: f64 = 0.001;
/// The cores of a service that nobody knows.
const CORES_FALLBACK: u32 = 4;

/// How many cores the service has, and the source of this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cores {
    /// `--cores`.
    Named(u32),
    /// The gate, which the server had told, or which had seen it.
    Learned(u32),
    /// Nobody.
    Guessed(u32),
}

impl Cores {
    fn count(self) -> u32 {
        match self {
            Self::Named(count) | Self::Learned(count) | Self::Guessed(count) => count,
        }
    }
}

/// The tables, and where the files are.
pub(crate) fn replay(args: &ReplayArgs) -> Result<String, Failure> {
    let recorded = Recorded::read(&args.trace, args.partial)?;
    let world = world_of(&recorded)?;
    let known = known_cores(args.cores, &recorded, &world);
    let cores = known.count();
    let demands = demands(&recorded.requests, cores, args.service_times);
    let base = scenario(&recorded, &demands, cores);
    let mut variants = vec![("replayed".to_owned(), with_gate(&base, &recorded, &world)?)];
    if let Some(file) = &args.config {
        let other = config::load(file).map_err(|errors| Failure::Usage(errors.to_string()))?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        variants.push((name, with_gate(&base, &recorded, &other)?));
    } else if !args.gate.given.is_empty() {
        let other =
            config::amended(&world, &args.gate.given).map_err(|errors| Failure::Usage(errors.to_string()))?;
        variants.push(("with the flags".to_owned(), with_gate(&base, &recorded, &other)?));
    }
    variants.push((scenario::WITHOUT_GATE.to_owned(), base));
    let experiment = Experiment { variants, seeds: 1, sweep: None, goal: None, cores_are_told: true };
    if let Some(directory) = &args.output {
        fs::create_dir_all(directory)
            .map_err(|error| Failure::Runtime(format!("cannot make {}: {error}", directory.display())))?;
    }
    let playing = SimulateArgs {
        file: args.trace.clone(),
        output: args.output.clone(),
        rows: args.output.is_some(),
        threads: args.threads,
    };
    let outcomes = play(&experiment, &playing)?;
    let mut text = table::of(&recorded, &demands, known, &experiment, &outcomes);
    if let Some(directory) = &args.output {
        let path = directory.join("plot.svg");
        let title = format!("{}, replayed", recorded.header.gate);
        let plot = picture::with_recorded(&experiment, &outcomes, &title, |at| recorded.samples(at));
        let drawn = plot.write(&path);
        drawn.map_err(|error| Failure::Runtime(error.to_string()))?;
        text += &format!("\nplot: {}\nrows: {}\n", path.display(), directory.join("rows-*.csv").display());
    }
    Ok(text)
}

/// The configuration that was recorded.
fn world_of(recorded: &Recorded) -> Result<World, Failure> {
    config::parse(config::Origin::File(recorded.name.clone().into()), &recorded.header.configuration)
        .map_err(|errors| Failure::Usage(format!("the recorded configuration can't be used: {errors}")))
}

fn known_cores(named: Option<NonZero<u32>>, recorded: &Recorded, world: &World) -> Cores {
    match named {
        Some(cores) => Cores::Named(cores.get()),
        None => recorded.cores(world).map_or(Cores::Guessed(CORES_FALLBACK), Cores::Learned),
    }
}

/// What each request takes alone, in seconds.
fn demands(requests: &[Request], cores: u32, times: ServiceTimes) -> Vec<Option<f64>> {
    match times {
        ServiceTimes::Shared => demand::shared(requests, cores),
        ServiceTimes::Measured => demand::measured(requests),
    }
}

/// What was recorded, before a service without any gate.
fn scenario(recorded: &Recorded, demands: &[Option<f64>], cores: u32) -> Scenario {
    let means = demand::means(&recorded.requests, demands, recorded.labels.len());
    let overall = demand::mean(demands.iter().flatten().copied()).unwrap_or(DEMAND_FALLBACK);
    let fixed = |mean: Option<f64>| Distribution::Fixed(duration(mean.unwrap_or(overall)));
    let types = recorded.labels.iter().zip(means).map(|(label, mean)| Kind::new(label, fixed(mean)));
    // A source for each class: what arrives in all is the same.
    let mut sources: Vec<Vec<Arrival>> = vec![Vec::new(); recorded.classes.len()];
    for (request, demand) in recorded.requests.iter().zip(demands) {
        sources[usize::from(request.class)].push(Arrival {
            at: std::time::Duration::from_nanos(request.arrived - recorded.from),
            kind: request.kind,
            service_time: demand.map(duration),
        });
    }
    let last = recorded.requests.last().map_or(recorded.from, |request| request.arrived) - recorded.from;
    let mix = Mix::Shares(vec![1.0; recorded.labels.len()]);
    let source = |(arrivals, class): (Vec<Arrival>, &ClassId)| {
        let arrivals = Arrivals::Replayed(arrivals.into());
        Source { class: *class, ..Source::new(arrivals, mix.clone()) }
    };
    let sources = sources.into_iter().zip(&recorded.classes).map(source).collect();
    let requests_max = recorded.requests.len();
    let duration = std::time::Duration::from_nanos(last) + std::time::Duration::from_secs(1);
    let ungated =
        admission::Policy { connections: u32::MAX, long_limit: None, ..admission::Policy::default() };
    let one = Source::new(Arrivals::Replayed([].into()), mix);
    let scenario = Scenario::new(ungated, types.collect(), one, Upstream::sharing(cores, Collapse::None));
    Scenario { sources, warm_up: std::time::Duration::ZERO, duration, requests_max, ..scenario }
}

/// The gate of a configuration that has the recorded name, or is the only one.
fn chosen<'a>(recorded: &Recorded, world: &'a World) -> Result<&'a config::Gate, Failure> {
    let named = world.gates.iter().find(|gate| gate.name == recorded.header.gate);
    named.or(world.gates.first().filter(|_| world.gates.len() == 1)).ok_or_else(|| {
        Failure::Usage(format!(
            "that configuration has several gates, and none is {:?}",
            recorded.header.gate
        ))
    })
}

/// The scenario `base` behind a gate of a configuration.
fn with_gate(base: &Scenario, recorded: &Recorded, world: &World) -> Result<Scenario, Failure> {
    let gate = chosen(recorded, world)?;
    let kind = |name: &str| recorded.labels.iter().position(|label| label == name);
    let mut policy = gate.policy_of(|name| kind(name).map(Scenario::request_type));
    if gate.long_limit == LongLimit::Auto {
        policy.long_limit = Some(admission::LongLimit::Found { cores: recorded.long_limit });
    }
    Ok(Scenario { policy, ..base.clone() })
}

fn duration(seconds: f64) -> std::time::Duration {
    std::time::Duration::from_secs_f64(seconds.clamp(0.0, 1e9))
}
