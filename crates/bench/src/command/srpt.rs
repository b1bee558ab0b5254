//! `bench run srpt`.

use std::path::PathBuf;
use std::time::Duration;

use bench::Error;
use bench::alternate::Display;
use bench::srpt::{self, Load, Options, Setup, variants_called};
use clap::Args;

/// Seconds for which requests come, and rounds of the comparison of processor time: of the short form and the
/// full one.
const SHORT: (u64, usize) = (50, 3);
const FULL: (u64, usize) = (300, 9);

/// Rounds in which the link's rate changes.
const FOLLOW: usize = 3;

/// Flags of `bench run srpt`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The short form, at most ten minutes: W1 and a load of 1.2, each once
    #[arg(long)]
    short: bool,
    /// The loads: W1 to W10, or a constant part of the link such as 1.2
    #[arg(long, value_name = "LOAD,…", value_delimiter = ',')]
    loads: Vec<Load>,
    /// What is between server and clients: A nothing, B100 a round trip of 100 ms, C5 loss of 5 %, D both,
    /// E5 five requests a connection, H10 users that abort after ten seconds (three retries), I536 small
    /// packets, J7 all of D, E5 and H7
    #[arg(long, value_name = "SETUP,…", value_delimiter = ',', default_value = "A")]
    setups: Vec<Setup>,
    /// Only these of FAIR (no gate), fair, bands, SRPT, auto (SRPT that finds the rate), htb and pfifo_fast
    /// (the kernel's bands, which nobody plays who isn't named)
    #[arg(long, value_name = "VARIANT,…", value_delimiter = ',')]
    only: Vec<String>,
    /// Rounds; every variant has one turn in each
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Seconds for which requests come at least; workloads are played in whole periods. The paper's are 1800
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,
    /// Rounds of the comparison of processor time with and without an uplink
    #[arg(long)]
    cost_rounds: Option<usize>,
    /// Rounds in which the link's rate is halved and doubled under a gate that finds it
    #[arg(long)]
    follow_rounds: Option<usize>,
    /// A trace instead of the World Cup's sizes: lines of seconds, bytes and perhaps status, behind a heading
    #[arg(long)]
    trace: Option<PathBuf>,
    /// What a generated trace is drawn from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Directory for plots and figures
    #[arg(long, default_value = "results/srpt")]
    output: PathBuf,
}

pub(crate) async fn run(
    arguments: Arguments,
    server_cpu: Option<usize>,
    display: &Display,
) -> Result<String, Error> {
    let (seconds, cost_rounds) = if arguments.short { SHORT } else { FULL };
    let mut loads = arguments.loads;
    if loads.is_empty() {
        let workloads = if arguments.short { 1 } else { 10 };
        loads.extend((1..=workloads).map(Load::Workload));
        loads.push(Load::Persistent(1.2));
        loads.extend((!arguments.short).then_some(Load::Persistent(1.4)));
    }
    let options = Options {
        loads,
        setups: arguments.setups,
        variants: variants_called(&arguments.only).map_err(Error::Experiment)?,
        rounds: arguments.rounds.into(),
        length: Duration::from_secs(arguments.seconds.unwrap_or(seconds)),
        trace: arguments.trace,
        seed: arguments.seed,
        cost_rounds: arguments.cost_rounds.unwrap_or(cost_rounds),
        follow_rounds: arguments.follow_rounds.unwrap_or(FOLLOW),
        server_cpu,
        output: arguments.output,
    };
    Ok(srpt::run(&options, display).await?.text())
}
