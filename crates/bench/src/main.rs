//! The witness's command line: experiments that anybody can repeat.

mod command;

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bench::alternate::Display;
use bench::experiment::demo;
use bench::{Error, http, rehearsal, turns};
use clap::{Parser, Subcommand};
use command::ByPlan;
use tokio::signal::unix::{SignalKind, signal};

/// Exit status after Ctrl-C, as shells have it (128 + SIGINT).
const INTERRUPTED: u8 = 130;

#[derive(Debug, Parser)]
#[command(name = "bench", about = "Experiments with Gatekeeper in front of private servers")]
struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Debug, Subcommand)]
enum Experiment {
    /// Both placements in 150 seconds: a flash sale before a database, and a site whose response time is held
    Demo {
        /// Directory for the plot and the figures
        #[arg(long, default_value = "target/demo")]
        output: PathBuf,
    },
    #[command(flatten)]
    ByPlan(ByPlan),
    /// Whatever a gate does much of, for a few seconds each: what a build for release is guided by
    Rehearse {
        /// How long each of its parts is, in seconds
        #[arg(long, default_value = "2", value_parser = turns::time)]
        window: Duration,
    },
    /// A server whose requests take the processor time that they name, as the other experiments start it
    Origin {
        /// Where it listens
        #[arg(long)]
        port: u16,
        /// On which address it listens
        #[arg(long, default_value = "127.0.0.1")]
        address: Ipv4Addr,
        /// Ports of origins that serve `/c0`, `/c1` and so on
        #[arg(long)]
        worker: Vec<u16>,
    },
}

/// Commands of before that are experiments of `bench run` now, by their names there.
const MOVED: [(&str, &str); 6] = [
    ("flash-sale", "flash-sale-arrivals"),
    ("reports", "reports"),
    ("proxy-cost", "proxy-cost"),
    ("idle-clients", "idle-clients"),
    ("stall", "stall"),
    ("own-overload", "own-overload"),
];

/// The words of the command line; the name of a command of before stands for the new one.
fn words() -> Vec<OsString> {
    let mut words: Vec<OsString> = std::env::args_os().collect();
    let is_old = |(old, _): &&(&str, &str)| words.get(1).is_some_and(|word| word == old);
    if let Some((old, new)) = MOVED.iter().find(is_old) {
        eprintln!("`bench {old}` is `bench run {new}` now");
        words.splice(1..2, ["run", new].map(OsString::from));
    }
    words
}

fn main() -> ExitCode {
    match run(Arguments::parse_from(words())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Error::Interrupted) => {
            eprintln!(
                "\ninterrupted; the private server is stopped and its files are removed (what `bench run` has measured is kept)"
            );
            ExitCode::from(INTERRUPTED)
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<(), Error> {
    testbed::raise_descriptor_limit();
    if let Experiment::Origin { port, address, worker } = arguments.experiment {
        http::origin::serve(address, port, &worker)?;
        return Ok(());
    }
    // Before the runtime starts its threads, so that they all keep off the server's processor. A rehearsal
    // measures nothing, and its gates are to have all processors.
    let rehearses = matches!(arguments.experiment, Experiment::Rehearse { .. });
    let server_cpu = if rehearses { None } else { testbed::separate_processors()? };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|source| testbed::Error::Io { action: "starting the runtime".to_owned(), source })?;
    let text = runtime.block_on(async {
        // Whatever is dropped here stops its server and removes its files.
        tokio::select! {
            text = experiment(arguments.experiment, server_cpu) => text,
            () = interruption() => Err(Error::Interrupted),
        }
    })?;
    print!("{text}");
    Ok(())
}

/// Ends when somebody presses Ctrl-C or asks this process to end.
async fn interruption() {
    let asked = async {
        match signal(SignalKind::terminate()) {
            Ok(mut terminate) => terminate.recv().await,
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => (),
        _ = asked => (),
    }
}

async fn experiment(experiment: Experiment, server_cpu: Option<usize>) -> Result<String, Error> {
    let display = Display::new();
    match experiment {
        Experiment::Demo { output } => demo::run(&output, server_cpu, &display).await,
        Experiment::ByPlan(command) => command::by_plan(command, server_cpu, &display).await,
        Experiment::Rehearse { window } => {
            let options = rehearsal::Options::new(window);
            Ok(rehearsal::run(&options, &display).await?.text())
        }
        // It has no experiment to show, and was served before the runtime began.
        Experiment::Origin { .. } => Ok(String::new()),
    }
}
