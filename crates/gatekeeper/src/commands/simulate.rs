//! `gatekeeper simulate`: a scenario's gates under virtual time, side by side, as a table, a plot and rows.

mod picture;
mod rows;
mod table;

use std::fs;
use std::io::{self, IsTerminal as _};
use std::path::Path;

use config::Experiment;
use indicatif::{ProgressBar, ProgressStyle};
use sim::{Observer, Run, Sample, Scenario, Steering, Summary};

use crate::Failure;
use crate::cli::SimulateArgs;

/// What is kept of a run.
struct Outcome {
    /// Which of the experiment's variants it was of.
    variant: usize,
    summary: Summary,
    samples: Vec<Sample>,
    trace: u64,
}

/// The tables, and where the files are.
pub(crate) fn simulate(args: &SimulateArgs) -> Result<String, Failure> {
    let experiment =
        config::load_scenario(&args.file).map_err(|errors| Failure::Usage(errors.to_string()))?;
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

/// Runs everything; in the order of variants, and of seeds within each.
fn play(experiment: &Experiment, args: &SimulateArgs) -> Result<Vec<Outcome>, Failure> {
    let seeded = |variant: usize, seed: u64| {
        let scenario = &experiment.variants[variant].1;
        Scenario { seed: scenario.seed + seed, ..scenario.clone() }
    };
    let of_variant = |variant| (0..experiment.seeds).map(move |seed| (variant, seed));
    let plan: Vec<(usize, u64)> = (0..experiment.variants.len()).flat_map(of_variant).collect();
    let scenarios: Vec<_> = plan.iter().map(|&(variant, seed)| seeded(variant, seed)).collect();
    let progress = Progress::over(&scenarios);
    let outcomes = sim::sweep_with(
        &scenarios,
        args.threads,
        |_| progress.clone(),
        |at, run, _| {
            let run = run.map_err(|error| Failure::Runtime(error.to_string()))?;
            let (variant, _) = plan[at];
            if let Some(directory) = args.output.as_ref().filter(|_| args.rows) {
                write_rows(directory, &experiment.variants[variant].0, &scenarios[at], &run)?;
            }
            let Run { summary, samples, trace, .. } = run;
            Ok(Outcome { variant, summary, samples, trace })
        },
    );
    progress.bar.finish_and_clear();
    outcomes.into_iter().collect()
}

fn write_rows(directory: &Path, variant: &str, scenario: &Scenario, run: &Run) -> Result<(), Failure> {
    let path = directory.join(format!("rows-{}-{}.csv", variant.replace(' ', "-"), scenario.seed));
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
