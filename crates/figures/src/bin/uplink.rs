//! `uplink`: runs the experiments of the simulated uplink and writes their figures.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use figures::Progress;
use figures::uplink::{Plan, generate, read_trace};

/// The experiments of *Web servers under overload* on a simulated uplink.
#[derive(Debug, Parser)]
#[command(name = "uplink")]
struct Arguments {
    /// Directory that the figures are written into
    #[arg(long, default_value = "docs/results/figures")]
    figures: PathBuf,
    /// Simulated seconds of each run, at least 300; the paper's are 1800
    #[arg(long, default_value_t = 300)]
    seconds: u64,
    /// A trace (lines of seconds, bytes and status) instead of the generated NASA trace
    #[arg(long)]
    trace: Option<PathBuf>,
}

fn main() -> ExitCode {
    let Arguments { figures, seconds, trace } = Arguments::parse();
    let progress = if std::io::stderr().is_terminal() { Progress::shown() } else { Progress::hidden() };
    let done = trace
        .as_deref()
        .map(read_trace)
        .transpose()
        .and_then(|trace| generate(&Plan { seconds: seconds.max(300), trace, progress }, &figures));
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
