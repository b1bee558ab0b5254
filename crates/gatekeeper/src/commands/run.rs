//! `gatekeeper run`: finds the configuration, prepares the process, and protects until a signal ends it.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::{env, io, thread};

use config::{LogFormat, LogLevel, World};
use tokio::runtime::{Builder, Runtime};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, fmt, reload};

use crate::cli::RunArgs;
use crate::descriptors::{Allowance, Needed, raise_limit};
use crate::{Failure, assemble, files};

/// Runs until a signal ends it.
pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let (world, source) = configuration(args)?;
    let level = start_log(world.log);
    let origin = source.as_ref().map_or("the command line".to_owned(), |path| path.display().to_string());
    tracing::info!(version = env!("CARGO_PKG_VERSION"), configuration = %origin, "gatekeeper starts");
    check_descriptors(Needed::of(&world)).map_err(Failure::Runtime)?;
    let runtime =
        runtime().map_err(|error| Failure::Runtime(format!("cannot start the runtime: {error}")))?;
    runtime.block_on(assemble::protect(world, source, level))
}

/// A thread for each processor that we may use. A single one needs none of what several agree by.
fn runtime() -> io::Result<Runtime> {
    let several = thread::available_parallelism().is_ok_and(|processors| processors.get() > 1);
    let mut builder = if several { Builder::new_multi_thread() } else { Builder::new_current_thread() };
    builder.enable_all().build()
}

/// The world, and the file that it came from, if it was one.
fn configuration(args: &RunArgs) -> Result<(World, Option<PathBuf>), Failure> {
    let usage = |errors: config::Errors| Failure::Usage(errors.to_string());
    if !args.gate.given.is_empty() {
        let world = config::from_flags_with(&args.gate.given, args.admin.as_deref(), &files::examine)
            .map_err(usage)?;
        return Ok((world, None));
    }
    let path = match &args.config {
        Some(path) => path.clone(),
        None => {
            let candidates = usual_places(|name| env::var_os(name).map(PathBuf::from));
            candidates.iter().find(|path| path.exists()).cloned().ok_or_else(|| nothing_found(&candidates))?
        }
    };
    let world = files::load(&path).map_err(usage)?;
    Ok((world, Some(path)))
}

/// Where a configuration is looked for, in this order. (`variable` reads the environment.)
fn usual_places(variable: impl Fn(&str) -> Option<PathBuf>) -> Vec<PathBuf> {
    // A relative path in these variables is to be ignored, says the XDG base directory specification.
    let absolute = |name| variable(name).filter(|path| path.is_absolute());
    let of_user = absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")));
    let mut places = vec![PathBuf::from("./gatekeeper.toml")];
    places.extend(of_user.map(|directory| directory.join("gatekeeper/gatekeeper.toml")));
    places.push(Path::new("/etc/gatekeeper/gatekeeper.toml").to_owned());
    places
}

fn nothing_found(places: &[PathBuf]) -> Failure {
    let places: Vec<_> = places.iter().map(|path| format!("  {}", path.display())).collect();
    Failure::Usage(format!(
        "there is no configuration; looked for\n{}\nName one with --config FILE, or do without: gatekeeper run --upstream 127.0.0.1:5432, or gatekeeper run --protocol http --upstream 127.0.0.1:8000",
        places.join("\n")
    ))
}

/// Changes what is written from now on.
pub(crate) type SetLevel = Box<dyn Fn(LogLevel) + Send + Sync>;

/// Starts the log. What is returned changes its level, unless the environment has the say.
fn start_log(config::Log { format, level }: config::Log) -> SetLevel {
    let of_environment = EnvFilter::try_from_default_env();
    let is_fixed = of_environment.is_ok();
    let filter = of_environment.unwrap_or_else(|_| EnvFilter::new(level_name(level)));
    let (filter, handle) = reload::Layer::new(filter);
    let log = tracing_subscriber::registry().with(filter);
    let lines = fmt::layer().with_writer(io::stderr);
    match format {
        // Colors are for terminals; in a file they are noise.
        LogFormat::Text => {
            log.with(lines.with_target(false).with_ansi(io::stderr().is_terminal())).init();
        }
        LogFormat::Json => log.with(lines.json().flatten_event(true)).init(),
    }
    Box::new(move |level| {
        if is_fixed {
            tracing::warn!("the level of the log stays as RUST_LOG says");
        } else if let Err(error) = handle.reload(EnvFilter::new(level_name(level))) {
            tracing::warn!(%error, "the level of the log could not be changed");
        }
    })
}

fn level_name(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    }
}

/// Raises the limit of file descriptors as far as needed, and says what is missing.
pub(crate) fn check_descriptors(needed: Needed) -> Result<(), String> {
    const CURE: &str = "raise it (ulimit -n, or LimitNOFILE= of a systemd unit) or lower max_clients";
    let limit = match raise_limit(needed.all) {
        Ok(limit) => limit,
        Err(error) => {
            tracing::warn!(%error, "the limit of file descriptors could not be read or raised");
            return Ok(());
        }
    };
    match needed.within(limit) {
        Allowance::Enough => Ok(()),
        Allowance::Scarce => {
            tracing::warn!(
                limit,
                needed = needed.all,
                "max_clients will not be reached: the process may open too few files; {CURE}"
            );
            Ok(())
        }
        Allowance::TooFew => Err(format!(
            "the process may open only {limit} files, and needs {} to work at all, {} for all clients; {CURE}",
            needed.least, needed.all
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(variables: &[(&str, &str)]) -> Vec<String> {
        let variable = |name: &str| {
            variables.iter().find(|(key, _)| *key == name).map(|(_, value)| PathBuf::from(value))
        };
        usual_places(variable).iter().map(|path| path.display().to_string()).collect()
    }

    #[test]
    fn a_configuration_is_looked_for_here_then_at_the_user_then_in_etc() {
        let etc = "/etc/gatekeeper/gatekeeper.toml";
        assert_eq!(
            places(&[("HOME", "/srv/u")]),
            ["./gatekeeper.toml", "/srv/u/.config/gatekeeper/gatekeeper.toml", etc]
        );
        assert_eq!(
            places(&[("HOME", "/srv/u"), ("XDG_CONFIG_HOME", "/x")])[1],
            "/x/gatekeeper/gatekeeper.toml"
        );
        assert_eq!(places(&[("HOME", "u"), ("XDG_CONFIG_HOME", "x")]), ["./gatekeeper.toml", etc]);
    }
}
