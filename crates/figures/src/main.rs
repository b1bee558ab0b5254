//! `figures`: runs the scenarios of the papers' figures, and writes pictures and tables.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use figures::{Length, Places, Progress, generate};

/// The figures of the papers, from scenario files.
#[derive(Debug, Parser)]
#[command(name = "figures")]
struct Arguments {
    /// Directory of the scenario files
    #[arg(long, default_value = "scenarios/figures")]
    scenarios: PathBuf,
    /// Directory that the figures are written into
    #[arg(long, default_value = "docs/results/figures")]
    figures: PathBuf,
    /// One seed and every other point, to see whether everything works
    #[arg(long)]
    short: bool,
}

fn main() -> ExitCode {
    let Arguments { scenarios, figures, short } = Arguments::parse();
    let progress = if std::io::stderr().is_terminal() { Progress::shown() } else { Progress::hidden() };
    let length = if short { Length::Short } else { Length::Whole };
    let done = generate(&Places { scenarios, figures: figures.clone() }, length, &progress);
    progress.finish();
    match done {
        Ok(()) => {
            println!("{}", figures.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
