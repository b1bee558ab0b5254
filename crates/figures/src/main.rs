//! `figures`: runs the scenarios of the papers' figures, draws them and writes the page.

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
    /// The page to write; the figures go into `figures/` beside it
    #[arg(long, default_value = "docs/guide/figures.md")]
    page: PathBuf,
    /// One seed and every other point, to see whether everything works
    #[arg(long)]
    short: bool,
}

fn main() -> ExitCode {
    let Arguments { scenarios, page, short } = Arguments::parse();
    let progress = if std::io::stderr().is_terminal() { Progress::shown() } else { Progress::hidden() };
    let length = if short { Length::Short } else { Length::Whole };
    let done = generate(&Places { scenarios, page: page.clone() }, length, &progress);
    progress.finish();
    match done {
        Ok(()) => {
            println!("{}", page.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
