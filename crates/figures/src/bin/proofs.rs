//! `proofs`: tries in the laboratory what the papers leave open, and writes a page a question.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use figures::{Length, Progress, proofs};

/// What the papers leave open, simulated: one page a question.
#[derive(Debug, Parser)]
#[command(name = "proofs")]
struct Arguments {
    /// Directory of the scenario files
    #[arg(long, default_value = "scenarios/figures")]
    scenarios: PathBuf,
    /// Where the pages are written
    #[arg(long, default_value = "docs/results")]
    pages: PathBuf,
    /// A sixth of the time, to see whether everything works
    #[arg(long)]
    short: bool,
}

fn main() -> ExitCode {
    let Arguments { scenarios, pages, short } = Arguments::parse();
    let progress = if std::io::stderr().is_terminal() { Progress::shown() } else { Progress::hidden() };
    let length = if short { Length::Short } else { Length::Whole };
    let done = proofs::write(&scenarios, &pages, length, &progress);
    progress.finish();
    match done {
        Ok(()) => {
            println!("{}", pages.display());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
