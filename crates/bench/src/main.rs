//! The witness's command line: experiments that anybody can repeat.

mod command;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use bench::Error;
use bench::alternate::Display;
use bench::experiment::origin::crowd;
use bench::flash_sale::{self, Compare, FlashSaleOptions};
use bench::{cost, hold_up, http, idle_clients, own_overload, rehearsal, stall};
use clap::{Args, Parser, Subcommand};
use command::ByPlan;
use testbed::database::Database;
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
    /// The demo's flash sale, for as long as you like
    FlashSale(FlashSaleArguments),
    /// Forty reports of 10 s at once before a gate that knows nothing: how long does a SELECT 1 wait?
    Reports,
    /// What standing in between costs: requests directly, through what others would take, through a gate
    ProxyCost(ProxyCostArguments),
    /// Ten thousand clients that say nothing: the memory of each, and whether they slow down those that work
    IdleClients(IdleClientsArguments),
    #[command(flatten)]
    OverHttp(OverHttp),
    #[command(flatten)]
    ByPlan(ByPlan),
    /// Whatever a gate does much of, for a few seconds each: what a build for release is guided by
    Rehearse {
        /// How long each of its parts is, in seconds
        #[arg(long, default_value_t = 2.0)]
        window: f64,
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

#[derive(Debug, Subcommand)]
enum OverHttp {
    /// A site that stands still for a minute: when is it as fast as before for requests that come afterwards?
    Stall(StallArguments),
    /// A gate with a tenth of a processor, offered up to ten times what it can pass on
    OwnOverload(OwnOverloadArguments),
}

#[derive(Debug, Args)]
struct StallArguments {
    /// Rounds; every variant has one turn in each
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Only variants whose names contain this text, such as default, and the site that never stands still
    #[arg(long, default_value = "")]
    only: String,
    /// For how long the site stands still, in seconds
    #[arg(long, default_value_t = 60.0)]
    stall: f64,
    /// The load, in what the site can do
    #[arg(long, default_value_t = 0.7)]
    load: f64,
    /// What the arrivals are drawn from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Directory for the plot and the figures
    #[arg(long, default_value = "results/stall")]
    output: PathBuf,
}

#[derive(Debug, Args)]
struct OwnOverloadArguments {
    /// How long each load is offered, in seconds
    #[arg(long, default_value_t = 10.0)]
    window: f64,
    /// The loads, as multiples of what the gate can do, in this order
    #[arg(long, value_delimiter = ',', default_values_t = own_overload::LOADS)]
    loads: Vec<f64>,
    /// Rounds of the comparison between refusing and passing on
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Directory for the figures
    #[arg(long, default_value = "results/own-overload")]
    output: PathBuf,
}

#[derive(Debug, Args)]
struct ProxyCostArguments {
    /// Rounds; everything has one turn in each
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// How long each turn is, in seconds
    #[arg(long, default_value_t = 3.0)]
    window: f64,
    /// Clients before a database
    #[arg(long, default_value_t = 32)]
    clients: u32,
    /// Before what the proxies stand
    #[arg(long, value_enum, default_value_t)]
    before: cost::Before,
    /// Directory for the plot and the figures
    #[arg(long, default_value = "results/proxy-cost")]
    output: PathBuf,
}

#[derive(Debug, Args)]
struct IdleClientsArguments {
    /// Clients that are connected and say nothing
    #[arg(long, default_value_t = 10_000)]
    clients: u32,
    /// Clients that work beside them
    #[arg(long, default_value_t = 500)]
    active: u32,
    /// Rounds of the comparison
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Transactions of each active client in a turn
    #[arg(long, default_value_t = 400)]
    transactions: u32,
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
    /// Connections of the application straight to the database
    #[arg(long, default_value_t = CONNECTIONS)]
    connections: usize,
    /// Connections of the application to a gate
    #[arg(long, default_value_t = GATE_CONNECTIONS)]
    gate_connections: usize,
    /// A key of the gate that differs from its default, as TOML, such as 'aging = 0'; several times for
    /// several
    #[arg(long = "gate-key", value_parser = key_and_value)]
    gate_keys: Vec<(String, String)>,
    /// What the arrivals are drawn from
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Directory for the plot and the figures
    #[arg(long, default_value = "results/flash-sale")]
    output: PathBuf,
    /// The database that sells
    #[arg(long, value_enum, default_value_t)]
    database: Database,
    /// Compare with a pool of this many connections inside the client instead of with gates
    #[arg(long)]
    client_pool: Option<usize>,
}

/// Connections of an application of twenty processes with thirty each.
const CONNECTIONS: usize = 600;
/// Connections of an application to a gate. They are so many that requests wait in the gate's queue, not in
/// the application's. Connections to PostgreSQL itself would need as many processes.
const GATE_CONNECTIONS: usize = 1_000;
/// How long requests arrive in each turn of the demonstration; short, so that both placements fit into 150
/// seconds.
const DEMO_WINDOW: Duration = Duration::from_secs(4);
/// The clients' patience in the demonstration: as long as the window, so that no time-out disturbs the
/// throughput that is measured in it.
const DEMO_TIMEOUT: Duration = DEMO_WINDOW;
/// Rounds of the demonstration.
const DEMO_ROUNDS: usize = 3;

impl FlashSaleArguments {
    fn options(self, server_cpu: Option<usize>) -> Result<FlashSaleOptions, Error> {
        Ok(FlashSaleOptions {
            rounds: self.rounds.max(1),
            window: seconds(self.window)?,
            timeout: seconds(self.timeout)?,
            connections: self.connections.max(32),
            gate_connections: self.gate_connections.max(1),
            gate_keys: self.gate_keys,
            seed: self.seed,
            database: self.database,
            server_cpu,
            output: self.output,
            compare: self.client_pool.map_or(Compare::Gates, Compare::ClientPool),
        })
    }
}

fn demo_options(output: PathBuf, server_cpu: Option<usize>) -> FlashSaleOptions {
    FlashSaleOptions {
        rounds: DEMO_ROUNDS,
        window: DEMO_WINDOW,
        timeout: DEMO_TIMEOUT,
        connections: CONNECTIONS,
        gate_connections: GATE_CONNECTIONS,
        gate_keys: Vec::new(),
        seed: 1,
        database: Database::Postgres,
        server_cpu,
        output,
        compare: Compare::Gate,
    }
}

fn key_and_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY = VALUE")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
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
        Experiment::Demo { output } => demo(&output, server_cpu, &display).await,
        Experiment::FlashSale(arguments) => {
            Ok(flash_sale::text(&flash_sale::run(&arguments.options(server_cpu)?, &display).await?))
        }
        Experiment::ProxyCost(arguments) => {
            let options = cost::Options {
                before: arguments.before,
                rounds: arguments.rounds.max(1),
                window: seconds(arguments.window)?,
                clients: arguments.clients.max(1),
                cpu: server_cpu,
                output: arguments.output,
            };
            cost::run(&options, &display).await
        }
        Experiment::IdleClients(arguments) => {
            let options = idle_clients::Options {
                clients: arguments.clients.max(1),
                active: arguments.active.max(1),
                rounds: arguments.rounds.max(1),
                transactions: arguments.transactions.max(1),
                server_cpu,
            };
            Ok(idle_clients::run(&options, &display).await?.text())
        }
        Experiment::OverHttp(experiment) => over_http(experiment, server_cpu, &display).await,
        Experiment::ByPlan(command) => command::by_plan(command, server_cpu, &display).await,
        Experiment::Rehearse { window } => {
            let options = rehearsal::Options::new(seconds(window)?);
            Ok(rehearsal::run(&options, &display).await?.text())
        }
        // It has no experiment to show, and was served before the runtime began.
        Experiment::Origin { .. } => Ok(String::new()),
        Experiment::Reports => Ok(hold_up::text(&hold_up::run(server_cpu, &display).await?)),
    }
}

/// One placement after the other: what happens, what is seen, why. The story of the first is told while the
/// second runs.
async fn demo(output: &Path, server_cpu: Option<usize>, display: &Display) -> Result<String, Error> {
    display.say("1 of 2. In front of the database: a flash sale (a minute and a half)");
    let sale = flash_sale::run(&demo_options(output.join("flash-sale"), server_cpu), display).await?;
    display.say(&flash_sale::story(&sale));
    display.say("2 of 2. In front of the application servers: a crowd (a minute)");
    let story = crowd::run(server_cpu, &output.join("crowd"), display).await?;
    Ok(format!(
        "{story}\n  Again    make demo, or longer, with all figures: bench flash-sale, bench run bounded-response\n"
    ))
}

async fn over_http(
    experiment: OverHttp,
    server_cpu: Option<usize>,
    display: &Display,
) -> Result<String, Error> {
    match experiment {
        OverHttp::Stall(arguments) => {
            let options = stall::Options {
                variants: stall::called(&arguments.only),
                rounds: arguments.rounds.max(1),
                stall: seconds(arguments.stall)?,
                load: arguments.load,
                seed: arguments.seed,
                origin_cpu: server_cpu,
                output: arguments.output,
            };
            Ok(stall::run(&options, display).await?.text())
        }
        OverHttp::OwnOverload(arguments) => {
            let options = own_overload::Options {
                window: seconds(arguments.window)?,
                loads: arguments.loads,
                rounds: arguments.rounds.max(1),
                gate_cpu: server_cpu,
                output: arguments.output,
            };
            Ok(own_overload::run(&options, display).await?.text())
        }
    }
}
