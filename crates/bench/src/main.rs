//! The witness's command line: experiments that anybody can repeat.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bench::Error;
use bench::alternate::Display;
use bench::flash_sale::{self, Compare, FlashSaleOptions};
use clap::{Args, Parser, Subcommand};

/// Exit status after Ctrl-C, as shells have it (128 + SIGINT).
const INTERRUPTED: u8 = 130;

#[derive(Debug, Parser)]
#[command(name = "bench", about = "Experiments with Gatekeeper in front of a private PostgreSQL")]
struct Arguments {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Debug, Subcommand)]
enum Experiment {
    /// A flash sale in under 90 seconds: direct, through a plain pool, through a gate
    Demo {
        /// Directory for the plot and the figures
        #[arg(long, default_value = "target/demo")]
        output: PathBuf,
    },
    /// The same flash sale, as long as you like
    FlashSale(FlashSaleArguments),
}

#[derive(Debug, Args)]
struct FlashSaleArguments {
    /// Rounds; every variant has one turn in each
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How long requests arrive in each turn, in seconds
    #[arg(long, default_value_t = 10.0)]
    window: f64,
    /// How long a client waits for an answer, in seconds
    #[arg(long, default_value_t = 10.0)]
    timeout: f64,
    /// Connections of the application
    #[arg(long, default_value_t = CONNECTIONS)]
    connections: usize,
    /// What the arrivals are drawn from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Directory for the plot and the figures
    #[arg(long, default_value = "results/flash-sale")]
    output: PathBuf,
    /// Compare with a pool of this many connections inside the client instead of with gates
    #[arg(long)]
    client_pool: Option<usize>,
}

/// Connections of an application of ten processes with thirty each.
const CONNECTIONS: usize = 300;
/// How long requests arrive in each turn of the demonstration; short, so that it ends within 90 seconds.
const DEMO_WINDOW: Duration = Duration::from_secs(4);
/// The clients' patience in the demonstration: as long as the window, so that no time-out disturbs the
/// throughput that is measured in it.
const DEMO_TIMEOUT: Duration = DEMO_WINDOW;
/// Rounds of the demonstration.
const DEMO_ROUNDS: usize = 3;

impl Experiment {
    fn options(self, server_cpu: Option<usize>) -> Result<FlashSaleOptions, Error> {
        match self {
            Self::Demo { output } => Ok(FlashSaleOptions {
                rounds: DEMO_ROUNDS,
                window: DEMO_WINDOW,
                timeout: DEMO_TIMEOUT,
                connections: CONNECTIONS,
                seed: 1,
                server_cpu,
                output,
                compare: Compare::Gates,
            }),
            Self::FlashSale(arguments) => Ok(FlashSaleOptions {
                rounds: arguments.rounds.max(1),
                window: seconds(arguments.window)?,
                timeout: seconds(arguments.timeout)?,
                connections: arguments.connections.max(32),
                seed: arguments.seed,
                server_cpu,
                output: arguments.output,
                compare: arguments.client_pool.map_or(Compare::Gates, Compare::ClientPool),
            }),
        }
    }
}

fn seconds(value: f64) -> Result<Duration, Error> {
    Duration::try_from_secs_f64(value)
        .ok()
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| Error::Experiment(format!("{value} seconds: not a length of time")))
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Error::Interrupted) => {
            eprintln!("\ninterrupted; the private server is stopped and its files are removed");
            ExitCode::from(INTERRUPTED)
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<(), Error> {
    // Before the runtime starts its threads, so that they all keep off the server's processor.
    let options = arguments.experiment.options(bench::separate_processors()?)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|source| Error::Io { action: "starting the runtime".to_owned(), source })?;
    let report = runtime.block_on(async {
        let display = Display::new();
        // Whatever is dropped here stops its server and removes its files.
        tokio::select! {
            report = flash_sale::run(&options, &display) => report,
            _ = tokio::signal::ctrl_c() => Err(Error::Interrupted),
        }
    })?;
    print!("{}", report.text());
    Ok(())
}
