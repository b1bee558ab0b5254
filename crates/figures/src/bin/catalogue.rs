//! `catalogue`: runs the scenarios of the catalogue and writes its page and the trajectories of the gates.

use std::fs;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use figures::catalogue::{self, Row};
use figures::{Error, Progress};

/// Runs every scenario of the catalogue with each of its gates, and writes one page.
#[derive(Debug, Parser)]
#[command(name = "catalogue")]
struct Arguments {
    /// Directory of the scenario files
    #[arg(long, default_value = "scenarios/catalogue")]
    scenarios: PathBuf,
    /// The page to write; the trajectories are written into `catalogue/` beside it
    #[arg(long, default_value = "docs/results/catalogue.md")]
    page: PathBuf,
    /// Run only the rows whose names contain this text, print the page, and write nothing
    #[arg(long)]
    only: Option<String>,
    /// Leave out what each mechanism is worth
    #[arg(long)]
    without_mechanisms: bool,
    /// Try other fixed numbers of connections, and print the best beside those of the files
    #[arg(long)]
    search: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let progress = if std::io::stderr().is_terminal() { Progress::shown() } else { Progress::hidden() };
    let done = perform(&arguments, &progress);
    progress.finish();
    match done {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn perform(arguments: &Arguments, progress: &Progress) -> Result<String, Error> {
    let mut rows = catalogue::rows(&arguments.scenarios)?;
    if let Some(only) = &arguments.only {
        rows.retain(|row| row.name.contains(only));
    }
    if arguments.search {
        return searched(&rows, progress);
    }
    let cells = catalogue::play(&rows, progress)?;
    let without =
        if arguments.without_mechanisms { Vec::new() } else { catalogue::without(&rows, &cells, progress)? };
    let page = catalogue::page(&rows, &cells, &without);
    if arguments.only.is_none() {
        write(&arguments.page, &page)?;
        let directory = arguments.page.with_extension("");
        for (row, text) in rows.iter().zip(catalogue::trajectories(&rows)?) {
            write(&directory.join(row.trajectory_file()), &text)?;
        }
    }
    Ok(page)
}

fn searched(rows: &[Row], progress: &Progress) -> Result<String, Error> {
    let found = catalogue::search(rows, progress)?;
    let lines = found.iter().map(|found| {
        let ((known, served), (best, most)) = (found.known, found.best);
        format!("{}: {known} serves {served:.1}/s; the best that was tried is {best}, {most:.1}/s", found.row)
    });
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(|source| Error::file("make", directory, source))?;
    }
    fs::write(path, text).map_err(|source| Error::file("write", path, source))
}
