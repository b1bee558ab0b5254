//! The command line. The flags of a gate are made from the keys of the configuration, so that both always
//! agree.

use std::ffi::OsString;
use std::num::NonZero;
use std::path::PathBuf;
use std::time::Duration;

use clap::{
    Arg, ArgMatches, Args, Command as ClapCommand, Error, FromArgMatches, Parser, Subcommand, ValueEnum,
};

mod users;

pub(crate) use users::{UsersCommand, UsersImportArgs};

/// An overload-control proxy: stands in front of a database or a web site, learns what each request costs,
/// decides which requests wait, and refuses what cannot be served in time.
#[derive(Debug, Parser)]
#[command(name = "gatekeeper", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Protect a service, as a file or flags say.
    Run(RunArgs),
    /// Print the configuration that a file means, or everything that is wrong with it.
    #[command(
        after_help = "Exit status: 0 told, perhaps with warnings; 1 it is right, and `run` would not start here as this user; 2 it is wrong."
    )]
    Check {
        /// The file. Without it, the one that `gatekeeper run` would find.
        file: Option<PathBuf>,
        /// The file, named as other commands name it.
        #[arg(long, value_name = "FILE", conflicts_with = "file")]
        config: Option<PathBuf>,
    },
    /// Try gates out on a scenario, in virtual time: what runs is what was simulated.
    Simulate(SimulateArgs),
    /// Put the requests of a recorded trace before the same gate in virtual time, and before others.
    Replay(ReplayArgs),
    /// Say which other settings would have done better with the requests of a recorded trace, if any.
    #[command(
        after_help = "Exit status: 0 told; 1 the trace can't be read or replayed; 2 wrong flags, or too few requests; 3 the replay does not fit what was recorded, so nothing is advised."
    )]
    Advise(AdviseArgs),
    /// Say what a running gate with mode = "observe" would have delayed, refused and saved in the last hour.
    #[command(
        after_help = "Kept in memory are the last hour of a gate, at most 8 MB: some 250,000 requests. Exit status: 0 told; 1 no gatekeeper answers; 2 wrong flags or configuration, or no gate observes."
    )]
    Observe(ObserveArgs),
    /// Find the best fixed capacity of a running gate by experiment, with a load of your own.
    Calibrate(CalibrateArgs),
    /// Show what a running gatekeeper has learned of each request type.
    Types(TypesArgs),
    /// Watch a running gatekeeper live in the terminal; keys as in htop, F1 for help.
    Top(TopArgs),
    /// Tell the story of a request: what it waited for, who went first, how long it was served, how it ended.
    #[command(after_help = WHY_HELP)]
    Why(WhyArgs),
    /// Say in a few lines how a running gatekeeper is.
    #[command(
        after_help = "Exit status: 0 all is well; 1 no gatekeeper answers; 2 wrong flags or configuration; 3 a gate is paused or lets everything pass, its service is down or silent, or the process starts or ends."
    )]
    Status(StatusArgs),
    /// Prepare the link to the clients for `uplink = "htb"`, `"prio"` or `"pfifo_fast"`.
    Uplink {
        #[command(subcommand)]
        command: UplinkCommand,
    },
    /// Have a running gatekeeper read its configuration again, as SIGHUP does.
    #[command(after_help = COMMAND_STATUS)]
    Reload(AdminArgs),
    /// Have a running gatekeeper end as the first SIGTERM does: no new clients, transactions may end.
    #[command(after_help = COMMAND_STATUS)]
    Drain(DrainArgs),
    /// Have a running gatekeeper start the program that is installed now, which takes its sockets over. The
    /// same rolls back.
    #[command(after_help = COMMAND_STATUS)]
    Upgrade(AdminArgs),
    /// Start the successor of the process that calls this, and end.
    #[command(hide = true)]
    StartSuccessor {
        program: PathBuf,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Hold requests up, and wait until none is in flight.
    #[command(after_help = COMMAND_STATUS)]
    Pause(PauseArgs),
    /// Let requests pass again.
    #[command(after_help = COMMAND_STATUS)]
    Resume(PauseArgs),
    /// In an emergency, let every request pass: no order, bound, target or class holds, until `enforce`.
    #[command(after_help = COMMAND_STATUS)]
    Pass(EmergencyArgs),
    /// Have a gate decide again after `pass`, as its configuration says.
    #[command(after_help = COMMAND_STATUS)]
    Enforce(EmergencyArgs),
    /// Print the configuration that a pgbouncer.ini comes to, and what has no counterpart.
    #[command(after_help = "Exit status: 0 a configuration was printed; 2 the file can't be read.")]
    Import {
        /// PgBouncer's file.
        #[arg(value_name = "pgbouncer.ini")]
        file: PathBuf,
    },
    /// Make the users file of a gate for MySQL or MariaDB.
    Users {
        #[command(subcommand)]
        command: UsersCommand,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum UplinkCommand {
    /// Print the commands of `tc` that give a device its bands, or run them.
    #[command(after_help = UPLINK_STATUS)]
    Setup(UplinkSetupArgs),
}

const UPLINK_STATUS: &str = "A device that has a discipline of its own keeps it: the commands fail. Exit status: 0 \
     printed or done; 1 the kernel refuses; 2 wrong flags.";

#[derive(Debug, Args)]
pub(crate) struct UplinkSetupArgs {
    /// The device that leads to the clients, such as eth0.
    #[arg(long, value_name = "DEV")]
    pub(crate) dev: String,
    /// The rate of the link, such as 10Mbit.
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: String,
    /// What keeps the bands apart, as the gate's key `uplink` names it.
    #[arg(long, value_name = "WHICH", value_enum, default_value = "htb")]
    pub(crate) bands: Bands,
    /// Run the commands. They take CAP_NET_ADMIN.
    #[arg(long)]
    pub(crate) apply: bool,
}

/// What keeps bands apart in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Bands {
    /// Five classes of HTB, which share the rate.
    Htb,
    /// Five bands behind a token bucket. The gate needs no privilege while it runs.
    Prio,
    /// Three bands behind a token bucket. The gate needs no privilege while it runs.
    #[value(name = "pfifo_fast")]
    PfifoFast,
}

const COMMAND_STATUS: &str = "Takes the Unix socket of the admin listener ([admin] socket), or a token. \
     Exit status: 0 done; 1 no gatekeeper answers, or it refuses and says why; 2 wrong flags or configuration.";

const WHY_HELP: &str = "Kept are the requests that wait or run, the last 2,048 that ended, the last 1,024 that were \
     refused, and the 16 slowest of each ten seconds for five minutes, of each gate. Exit status: 0 told; 1 no \
     gatekeeper answers, or nothing is known of the request; 2 wrong flags or configuration.";

#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// A trace (its id or a traceparent), or a request as GATE/NUMBER. Without it, the slowest of the last
    /// five minutes.
    pub(crate) id: Option<String>,
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Only this gate.
    #[arg(long, value_name = "NAME")]
    pub(crate) gate: Option<String>,
    /// The last requests of this session, as SHOW CLIENTS numbers it.
    #[arg(long, value_name = "N", conflicts_with = "id", value_parser = session)]
    pub(crate) session: Option<u64>,
    /// How many of the slowest [default: 10].
    #[arg(long, value_name = "N", conflicts_with_all = ["id", "session"])]
    pub(crate) slowest: Option<usize>,
    /// Print JSON, with all that is known.
    #[arg(long)]
    pub(crate) json: bool,
}

fn session(text: &str) -> Result<u64, &'static str> {
    text.parse()
        .map_err(|_| "sessions are numbered, as 17: SHOW CLIENTS has the number as `id`, and so has the log")
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Print JSON, with all that is known.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Return once the process has ended.
    #[arg(long)]
    pub(crate) wait: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// The gate, if there are several.
    #[arg(long, value_name = "NAME")]
    pub(crate) gate: Option<String>,
    /// Only requests for this database.
    #[arg(long, value_name = "NAME")]
    pub(crate) database: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct EmergencyArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// The gate, if there are several.
    #[arg(long, value_name = "NAME")]
    pub(crate) gate: Option<String>,
}

/// The running gatekeeper that a command asks.
#[derive(Debug, Args)]
pub(crate) struct AdminArgs {
    /// The admin listener: host:port, or unix:/path of its socket [default: what the configuration says,
    /// else 127.0.0.1:6433].
    #[arg(long, value_name = "ADDR", env = "GATEKEEPER_ADMIN")]
    pub(crate) admin: Option<String>,
    /// The configuration that says where the admin listener is [default: the one that `gatekeeper run` would
    /// find].
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The file with the token, as the gatekeeper's `token_file`.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Begin with this gate.
    #[arg(long, value_name = "NAME")]
    pub(crate) gate: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The configuration. Without it and without flags: ./gatekeeper.toml, gatekeeper/gatekeeper.toml in
    /// $XDG_CONFIG_HOME (or ~/.config), or /etc/gatekeeper/gatekeeper.toml.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Where metrics, health and commands are served, or none [default: 127.0.0.1:6433].
    #[arg(long, value_name = "ADDR", conflicts_with = "config", help_heading = GATE_HEADING)]
    pub(crate) admin: Option<String>,
    /// Take the sockets over from the gatekeeper that serves the admin socket. Without one, start as usual.
    #[arg(long, hide_short_help = true)]
    pub(crate) takeover: bool,
    #[command(flatten)]
    pub(crate) gate: GateFlags,
}

#[derive(Debug, Args)]
pub(crate) struct TypesArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Only this gate.
    #[arg(long, value_name = "NAME")]
    pub(crate) gate: Option<String>,
    /// Print JSON, with all that is known.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// The scenario.
    pub(crate) file: PathBuf,
    /// Where a plot goes (and rows): a directory, which is made.
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// Write a CSV file with a row for each request of each run.
    #[arg(long, requires = "output")]
    pub(crate) rows: bool,
    /// How many runs go at the same time [default: one for each core]. The results are the same.
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZero<usize>>,
}

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// The trace: what a gate with a `trace_file` has written.
    pub(crate) trace: PathBuf,
    /// Another configuration, whose gate (the one of the same name, or its only one) is tried beside the
    /// recorded one.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// How many cores the service has [default: what the server told the gate, else 4].
    #[arg(long, value_name = "N")]
    pub(crate) cores: Option<NonZero<u32>>,
    /// What requests take: worked out of upstream times by how many shared the cores, or as measured.
    #[arg(long, value_name = "WHICH", value_enum, default_value = "shared")]
    pub(crate) service_times: ServiceTimes,
    /// Replay a trace that is cut off up to there.
    #[arg(long)]
    pub(crate) partial: bool,
    /// Where a plot and the rows of all requests go: a directory, which is made.
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// How many runs go at the same time [default: one for each core]. The results are the same.
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZero<usize>>,
    /// Keys of the recorded configuration to change, tried beside it.
    #[command(flatten)]
    pub(crate) gate: GateFlags,
}

#[derive(Debug, Args)]
pub(crate) struct AdviseArgs {
    /// The trace: what a gate with a `trace_file` has written, or is writing.
    pub(crate) trace: PathBuf,
    #[command(flatten)]
    pub(crate) advice: AdviceArgs,
    /// Taken as `replay` takes it; an advice always goes by what there is of a trace.
    #[arg(long, hide = true)]
    pub(crate) partial: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ObserveArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// Only this gate [default: all that observe].
    #[arg(long, value_name = "NAME")]
    pub(crate) gate: Option<String>,
    #[command(flatten)]
    pub(crate) advice: AdviceArgs,
}

/// What an advice is made of.
#[derive(Debug, Args)]
pub(crate) struct AdviceArgs {
    /// How much is replayed, up to the end; at most the last 300,000 requests.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = humantime::parse_duration)]
    pub(crate) last: Duration,
    /// How many cores the service has [default: what the server told the gate, else 4].
    #[arg(long, value_name = "N")]
    pub(crate) cores: Option<NonZero<u32>>,
    /// What requests take: worked out of upstream times by how many shared the cores, or as measured.
    #[arg(long, value_name = "WHICH", value_enum, default_value = "shared")]
    pub(crate) service_times: ServiceTimes,
    /// How many runs go at the same time [default: one for each core]. The results are the same.
    #[arg(long, value_name = "N")]
    pub(crate) threads: Option<NonZero<usize>>,
}

/// What replayed requests take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ServiceTimes {
    /// Upstream times, less what company on the cores has made of them.
    Shared,
    /// Upstream times.
    Measured,
}

#[derive(Debug, Args)]
pub(crate) struct CalibrateArgs {
    #[command(flatten)]
    pub(crate) admin: AdminArgs,
    /// The gate, if there are several.
    #[arg(long, value_name = "NAME")]
    pub(crate) gate: Option<String>,
    /// How long the gate is measured each time.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    pub(crate) window: Duration,
    /// How long the load runs before it is measured: estimates and caches follow the new capacity.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = humantime::parse_duration)]
    pub(crate) warm_up: Duration,
    /// The smallest capacity that is tried.
    #[arg(long, value_name = "WORK", default_value = "1ms", value_parser = humantime::parse_duration)]
    pub(crate) from: Duration,
    /// The largest one.
    #[arg(long, value_name = "WORK", default_value = "1h", value_parser = humantime::parse_duration)]
    pub(crate) to: Duration,
    /// How often one capacity is measured at most; at least twice.
    #[arg(long, value_name = "N", default_value = "5")]
    pub(crate) repeats: NonZero<usize>,
    /// How many measurements there are at most.
    #[arg(long, value_name = "N", default_value = "60")]
    pub(crate) measurements: NonZero<usize>,
    /// A command for the shell to run before each measurement, such as one that restarts the service or
    /// fills its tables.
    #[arg(long, value_name = "COMMAND")]
    pub(crate) before: Option<String>,
    /// Where a plot goes: a directory, which is made.
    #[arg(long, value_name = "DIR")]
    pub(crate) output: Option<PathBuf>,
    /// The load: a command that sends requests through the gate for as long as it runs. It is started for
    /// each measurement and ended after it.
    #[arg(last = true, required = true, value_name = "LOAD")]
    pub(crate) command: Vec<OsString>,
}

/// The flags that `-h` shows, beside `--config` and `--admin`. `--help` shows all.
const SHORT: [&str; 8] =
    ["protocol", "listen", "upstream", "mode", "connections", "capacity", "target", "queue_timeout"];

const LABORATORY_HEADING: &str = "Published methods, to compare with";
const GATE_HEADING: &str = "One gate, without a file";
const POSTGRES_HEADING: &str =
    "… for PostgreSQL (MySQL: login-*, message-timeout, pinned-max, *-users, users-file)";
const HTTP_HEADING: &str = "… for HTTP (--protocol http)";

/// The keys of a gate that are flags.
fn flags() -> impl Iterator<Item = &'static config::Field> {
    config::GATE.iter().filter(|field| field.form != config::Form::Tables)
}

fn heading(field: &config::Field) -> &'static str {
    let is_of = |fields: &[config::Field]| fields.iter().any(|known| known.key == field.key);
    match field {
        _ if config::is_of_laboratory(field.key) => LABORATORY_HEADING,
        _ if is_of(config::POSTGRES) => POSTGRES_HEADING,
        _ if is_of(config::HTTP) => HTTP_HEADING,
        _ => GATE_HEADING,
    }
}

/// The keys of a gate that were given as flags, with their values as typed.
#[derive(Debug, Default)]
pub(crate) struct GateFlags {
    pub(crate) given: Vec<(&'static str, String)>,
}

impl Args for GateFlags {
    fn augment_args(command: ClapCommand) -> ClapCommand {
        flags().fold(command, |command, field| command.arg(flag(field)))
    }

    fn augment_args_for_update(command: ClapCommand) -> ClapCommand {
        Self::augment_args(command)
    }
}

impl FromArgMatches for GateFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = |field: &config::Field| {
            matches.get_one::<String>(field.key).map(|value| (field.key, value.clone()))
        };
        Ok(Self { given: flags().filter_map(given).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The flag for a key: `--queue-timeout` for `queue_timeout`.
fn flag(field: &'static config::Field) -> Arg {
    let default = match field.default {
        config::FieldDefault::Value(value) => format!(" [default: {}]", value.trim_matches('"')),
        config::FieldDefault::Each(postgres, mysql, http) => {
            let [postgres, mysql, http] = [postgres, mysql, http].map(|value| value.trim_matches('"'));
            let mysql = if mysql == postgres { String::new() } else { format!(", for MySQL {mysql}") };
            format!(" [default: {postgres}{mysql}, for HTTP {http}]")
        }
        config::FieldDefault::Derived(words) => format!(" [default: {words}]"),
        config::FieldDefault::Required => String::new(),
    };
    let first_sentence = field.doc.split_inclusive(". ").next().unwrap_or(field.doc).trim_end();
    let arg = Arg::new(field.key)
        .long(field.key.replace('_', "-"))
        .value_name(value_name(field.key))
        .help(format!("{first_sentence} Takes {}.{default}", field.takes).replace('`', ""))
        .hide_short_help(!SHORT.contains(&field.key))
        .help_heading(heading(field))
        .allow_hyphen_values(true)
        .conflicts_with("config");
    // A switch need not be told what it is switched to.
    if field.takes == "`true` or `false`" {
        arg.num_args(0..=1).require_equals(true).default_missing_value("true")
    } else {
        arg
    }
}

fn value_name(key: &str) -> &'static str {
    match key {
        "listen" | "upstream" => "ADDR",
        "name" | "admin_database" => "NAME",
        "state_file" | "trace_file" => "FILE",
        "admin_users" | "stats_users" => "NAMES",
        "error_page" | "access_log" => "FILE",
        "health_check" => "PATH",
        "trusted_proxies" => "NETWORKS",
        "health_interval" => "TIME",
        "uplink" => "RATE",
        "type_field" | "upstream_http" | "egress" => "WHICH",
        "header_max" | "body_max" => "BYTES",
        "header_fields_max" => "COUNT",
        "otlp" => "ADDR",
        "proxy_protocol" | "server_timing" | "pass_type" => "BOOL",
        key if key.ends_with("timeout") || key.ends_with("_ttl") => "TIME",
        "aging_floor" | "keepalive" | "suspend_after" | "target" | "target_p95" => "TIME",
        "yaksha_interval" | "yaksha_smoothing" | "yaksha_averaging" => "TIME",
        key if ["_cert", "_key", "_ca"].iter().any(|end| key.ends_with(end)) => "FILE",
        "capacity" => "WORK",
        "protocol"
        | "trace_full"
        | "order"
        | "cost"
        | "rejection"
        | "yaksha_tuning"
        | "mode"
        | "pooling"
        | "on_disconnect"
        | "auth"
        | "tls_mode"
        | "upstream_tls_mode"
        | "upstream_channel_binding" => "WHICH",
        "allow_trust_relay" | "allow_cleartext" => "BOOL",
        "users_file" => "FILE",
        "auth_user" | "auth_database" => "NAME",
        "auth_query" => "SQL",
        _ => "N",
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_names_the_values_of_every_key_and_short_help_shows_ten_flags() {
        let mut command = Cli::command();
        let run = command.find_subcommand_mut("run").unwrap();
        let long = run.render_long_help().to_string();
        for field in super::flags() {
            assert!(long.contains(&format!("--{}", field.key.replace('_', "-"))), "{}", field.key);
        }
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let told = words(&long);
        for field in super::flags() {
            let takes = words(&format!("Takes {}.", field.takes.replace('`', "")));
            assert!(told.contains(&takes), "{takes} in {told}");
        }
        assert!(told.contains(LABORATORY_HEADING));
        let short = run.render_help().to_string();
        let flags = short.lines().filter(|line| line.trim_start().starts_with("--"));
        assert_eq!(flags.count(), 10, "{short}");
    }

    fn flags(args: &[&str]) -> Result<Vec<(&'static str, String)>, Error> {
        let words = ["gatekeeper", "run"].iter().chain(args);
        match Cli::try_parse_from(words)?.command {
            Command::Run(args) => Ok(args.gate.given),
            _ => Ok(Vec::new()),
        }
    }

    #[test]
    fn every_key_of_a_gate_is_a_flag() {
        for field in super::flags() {
            let given = flags(&[&format!("--{}=x", field.key.replace('_', "-"))]).unwrap();
            assert_eq!(given, [(field.key, "x".to_owned())]);
        }
    }

    #[test]
    fn a_switch_needs_no_value() {
        let given = flags(&["--allow-trust-relay", "--upstream", "db:5432"]).unwrap();
        assert_eq!(given, [("upstream", "db:5432".to_owned()), ("allow_trust_relay", "true".to_owned())]);
    }

    #[test]
    fn a_file_and_flags_exclude_each_other() {
        assert!(flags(&["--config", "g.toml", "--connections", "5"]).is_err());
        assert!(flags(&["--config", "g.toml", "--admin", "none"]).is_err());
        assert!(flags(&["--config", "g.toml"]).unwrap().is_empty());
    }
}
