//! A scenario file, run: every gate at every point with every seed.

use std::path::Path;
use std::time::Duration;

use indicatif::ProgressBar;
use scenario::Experiment;
use sim::{Observer, Sample, Scenario, Steering, sweep_with};

use crate::digest::{Digest, Moment};
use crate::error::Error;
use sim::Interval;

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Everything, as the file says.
    Whole,
    /// One seed, every other point of a sweep, a sixth of the time at each: whether everything works.
    Short,
}

/// Shows how far it is.
#[derive(Clone, Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// On a terminal: in simulated hours, with the time left.
    pub fn shown() -> Self {
        let bar = ProgressBar::new(0);
        let form = "{wide_bar} {percent} % of {msg}, {eta} left";
        if let Ok(style) = indicatif::ProgressStyle::with_template(form) {
            bar.set_style(style);
        }
        Self(bar)
    }

    /// Not at all.
    pub fn hidden() -> Self {
        Self(ProgressBar::hidden())
    }

    /// Begins a task of this number of simulated seconds.
    pub(crate) fn begin(&self, what: impl Into<String>, seconds: u64) {
        self.0.reset();
        self.0.set_message(what.into());
        self.0.set_length(seconds);
    }

    /// Moves on by this number of simulated seconds.
    pub(crate) fn advance(&self, seconds: u64) {
        self.0.inc(seconds);
    }

    /// Takes the progress bar away.
    pub fn finish(&self) {
        self.0.finish_and_clear();
    }
}

/// What came out, by variant, point and seed.
#[derive(Clone, Debug)]
pub struct Results {
    /// The gates, by name; the service without one is called "original".
    pub variants: Vec<String>,
    /// The names of the types.
    pub types: Vec<String>,
    /// The swept values.
    pub points: Vec<f64>,
    digests: Vec<Vec<Digest>>,
}

impl Results {
    /// Runs a file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn of(file: &Path, length: Length, progress: &Progress) -> Result<Self, Error> {
        let experiment = scenario::load(file).map_err(Error::Scenario)?;
        let step = if length == Length::Short { 2 } else { 1 };
        let seeds = if length == Length::Short { 1 } else { experiment.seeds };
        let kept: Vec<usize> = (0..experiment.points()).step_by(step).collect();
        let plan: Vec<(usize, usize)> =
            experiment.places().filter(|(_, point)| kept.contains(point)).collect();
        let scenarios: Vec<Scenario> = plan
            .iter()
            .flat_map(|&(variant, point)| {
                let experiment = &experiment;
                (0..seeds).map(move |seed| cut(experiment.scenario(variant, point, seed), length, experiment))
            })
            .collect();
        let watch = Watch { progress: progress.clone(), moments: experiment.sweep.is_none().then(Vec::new) };
        let digests = run(file, &scenarios, &watch)?;
        let digests = digests.chunks(seeds as usize).map(<[_]>::to_vec).collect();
        Ok(Self { digests, ..Self::named(&experiment, &kept) })
    }

    fn named(experiment: &Experiment, kept: &[usize]) -> Self {
        let called = |name: &String| {
            if name == scenario::WITHOUT_GATE { "original".to_owned() } else { name.clone() }
        };
        let values = experiment.sweep.as_ref().map_or(vec![0.0], scenario::Sweep::points);
        let types = experiment.variants.first().map_or(&[][..], |(_, scenario)| &scenario.types);
        Self {
            variants: experiment.variants.iter().map(|(name, _)| called(name)).collect(),
            types: types.iter().map(|kind| kind.name.clone()).collect(),
            points: kept.iter().map(|&point| values[point]).collect(),
            digests: Vec::new(),
        }
    }

    /// The variant of this name.
    pub fn variant(&self, name: &str) -> Option<usize> {
        self.variants.iter().position(|known| known == name)
    }

    /// The point where the swept value is this.
    pub fn point(&self, value: f64) -> Option<usize> {
        self.points.iter().position(|&known| (known - value).abs() < 1e-9)
    }

    /// What the ticks of a variant's runs showed, one list for each seed.
    pub fn moments(&self, variant: usize) -> impl Iterator<Item = &[Moment]> {
        self.digests[variant * self.points.len()].iter().map(|digest| &digest.moments[..])
    }

    /// What was found there, over the seeds.
    pub fn at(&self, variant: usize, point: usize, of: impl Fn(&Digest) -> f64) -> Interval {
        let digests = &self.digests[variant * self.points.len() + point];
        Interval::of(&digests.iter().map(of).collect::<Vec<_>>())
    }
}

fn run(file: &Path, scenarios: &[Scenario], watch: &Watch) -> Result<Vec<Digest>, Error> {
    let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let progress = &watch.progress;
    progress.begin(name.clone(), scenarios.iter().map(|scenario| scenario.duration.as_secs()).sum());
    let found = sweep_with(
        scenarios,
        None,
        |_| watch.clone(),
        |at, run, watch| run.map(|run| Digest::of(&scenarios[at], &run, watch.moments.unwrap_or_default())),
    );
    found.into_iter().collect::<Result<_, _>>().map_err(|source| Error::Run { file: name, source })
}

fn cut(mut scenario: Scenario, length: Length, experiment: &Experiment) -> Scenario {
    // What isn't swept happens over time, and can't be shortened.
    if length == Length::Short && experiment.sweep.is_some() {
        scenario.duration /= 6;
        scenario.warm_up /= 6;
    }
    scenario
}

/// Looks on at a run.
#[derive(Clone)]
struct Watch {
    progress: Progress,
    /// What the ticks showed, if that is wanted.
    moments: Option<Vec<Moment>>,
}

impl Observer for Watch {
    fn tick(&mut self, sample: &Sample, steering: &mut Steering<'_>) {
        if let Some(moments) = &mut self.moments {
            moments.push(Moment::of(sample, &steering.snapshot()));
        }
        let now = Duration::from_nanos(sample.at.as_nanos());
        self.progress.0.inc(now.as_secs() - now.saturating_sub(sample.since).as_secs());
    }
}
