//! `uplink`: runs the experiments of the simulated uplink and writes their page.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use figures::Progress;
use figures::uplink::{Plan, read_trace, write_page};

/// The experiments of *Web servers under overload* on a simulated uplink.
#[derive(Debug, Parser)]
#[command(name = "uplink")]
struct Arguments {
    /// The page to write; the figures go into `figures/` beside it
    #[arg(long, default_value = "docs/guide/uplink.md")]
    page: PathBuf,
    /// Simulated seconds of each run, at least 300; the paper's are 1800
    #[arg(long, default_value_t = 300)]
    seconds: u64,
    /// A trace (lines of seconds, bytes and status) instead of the generated NASA trace
    #[arg(long)]
    trace: Option<PathBuf>,
}

fn main() -> ExitCode {
    let Arguments { page, seconds, trace } = Arguments::parse();
    let progress = if std::io::stderr().is_terminal() { Progress::shown() } else { Progress::hidden() };
    let done = trace
        .as_deref()
        .map(read_trace)
        .transpose()
        .and_then(|trace| write_page(&Plan { seconds: seconds.max(300), trace, progress }, &page));
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
