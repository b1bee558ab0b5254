//! `gatekeeper simulate`: a scenario's gates under virtual time, side by side, as a table, a plot and rows.

pub(super) mod picture;
mod rows;
pub(super) mod table;

use std::fs;
use std::io::{self, IsTerminal as _};
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use scenario::Experiment;
use sim::{Observer, Run, Sample, Scenario, Steering, Summary};

use crate::Failure;
use crate::cli::SimulateArgs;

/// What is kept of a run.
pub(super) struct Outcome {
    /// Which of the experiment's variants it was of.
    variant: usize,
    /// Which of its points.
    point: usize,
    pub(super) summary: Summary,
    samples: Vec<Sample>,
    trace: u64,
}

/// The tables, and where the files are.
pub(crate) fn simulate(args: &SimulateArgs) -> Result<String, Failure> {
    let experiment = scenario::load(&args.file).map_err(|errors| Failure::Usage(errors.to_string()))?;
    if let Some(directory) = &args.output {
        fs::create_dir_all(directory)
            .map_err(|error| Failure::Runtime(format!("cannot make {}: {error}", directory.display())))?;
    }
    let outcomes = play(&experiment, args)?;
    let mut text = table::of(&experiment, &outcomes);
    if let Some(directory) = &args.output {
        let path = directory.join("plot.svg");
        let title = args.file.file_stem().unwrap_or_default().to_string_lossy();
        picture::of(&experiment, &outcomes, &title)
            .write(&path)
            .map_err(|error| Failure::Runtime(error.to_string()))?;
        text += &format!("\nplot: {}\n", path.display());
        if args.rows {
            text += &format!("rows: {}\n", directory.join("rows-*.csv").display());
        }
    }
    Ok(text)
}

/// Runs everything; in the order of variants, of points within each, and of seeds within those.
pub(super) fn play(experiment: &Experiment, args: &SimulateArgs) -> Result<Vec<Outcome>, Failure> {
    let seeded = |place| (0..experiment.seeds).map(move |seed| (place, seed));
    let plan: Vec<_> = experiment.places().flat_map(seeded).collect();
    let scenarios: Vec<_> =
        plan.iter().map(|&((variant, point), seed)| experiment.scenario(variant, point, seed)).collect();
    let progress = Progress::over(&scenarios);
    let outcomes = sim::sweep_with(
        &scenarios,
        args.threads,
        |_| progress.clone(),
        |at, run, _| {
            let run = run.map_err(|error| Failure::Runtime(error.to_string()))?;
            let ((variant, point), _) = plan[at];
            if let Some(directory) = args.output.as_ref().filter(|_| args.rows) {
                let name = experiment.variants[variant].0.replace(' ', "-");
                let at_point = experiment.sweep.as_ref().map(|sweep| format!("-{}", sweep.points()[point]));
                write_rows(directory, &(name + &at_point.unwrap_or_default()), &scenarios[at], &run)?;
            }
            let Run { summary, samples, trace, .. } = run;
            Ok(Outcome { variant, point, summary, samples, trace })
        },
    );
    progress.bar.finish_and_clear();
    outcomes.into_iter().collect()
}

fn write_rows(directory: &Path, place: &str, scenario: &Scenario, run: &Run) -> Result<(), Failure> {
    let path = directory.join(format!("rows-{place}-{}.csv", scenario.seed));
    rows::write(&path, scenario, run)
        .map_err(|error| Failure::Runtime(format!("cannot write {}: {error}", path.display())))
}

/// Moves a bar along with virtual time.
#[derive(Clone)]
struct Progress {
    bar: ProgressBar,
}

impl Progress {
    fn over(scenarios: &[Scenario]) -> Self {
        let seconds = scenarios.iter().map(|scenario| scenario.duration.as_secs()).sum();
        let bar = if io::stderr().is_terminal() { ProgressBar::new(seconds) } else { ProgressBar::hidden() };
        let style = ProgressStyle::with_template("{wide_bar} {percent} % of the simulated time, {eta} left");
        if let Ok(style) = style {
            bar.set_style(style);
        }
        Self { bar }
    }
}

impl Observer for Progress {
    fn tick(&mut self, sample: &Sample, _: &mut Steering<'_>) {
        // Ticks may be short: whole seconds of them move the bar.
        let seconds = |nanos: u64| nanos / 1_000_000_000;
        let now = sample.at.as_nanos();
        self.bar.inc(seconds(now) - seconds(now.saturating_sub(sample.since.as_nanos() as u64)));
    }
}
