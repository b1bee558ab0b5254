//! `gatekeeper run`: finds the configuration, prepares the process, and protects until a signal ends it.

use std::path::{Path, PathBuf};
use std::{env, io, thread};

use config::{LogFormat, World};
use proxy::admin::Timeline;
use tokio::runtime::{Builder, Runtime};

use crate::activation::Activated;
use crate::cli::RunArgs;
use crate::descriptors::{Needed, check_descriptors};
use crate::process::{Sockets, protect};
use crate::{Failure, files, log};

/// Runs until a signal ends it.
pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    let (world, source) = configuration(args)?;
    let format = world.log.format;
    let timeline = Timeline::default();
    let sockets = if args.takeover { Sockets::TakenOver } else { Sockets::Opened };
    // Before there are other threads: the environment forgets the sockets with that.
    let activated = Activated::from_environment().map_err(Failure::Runtime)?;
    let level = log::start(world.log, &timeline);
    run_world((world, source), (sockets, activated), (level, timeline)).map_err(|failure| match format {
        LogFormat::Text => failure,
        // A collector reads JSON to the end.
        LogFormat::Json => {
            tracing::error!("{}", failure.message());
            failure.told()
        }
    })
}

fn run_world(
    (world, source): (World, Option<PathBuf>),
    sockets: (Sockets, Activated),
    log: (log::SetLevel, Timeline),
) -> Result<(), Failure> {
    let origin = source.as_ref().map_or("the command line".to_owned(), |path| path.display().to_string());
    tracing::info!(version = env!("CARGO_PKG_VERSION"), configuration = %origin, "gatekeeper starts");
    check_descriptors(Needed::of(&world)).map_err(Failure::Runtime)?;
    let runtime =
        runtime().map_err(|error| Failure::Runtime(format!("cannot start the runtime: {error}")))?;
    runtime.block_on(protect((world, source), sockets, log))
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
        None => find()?,
    };
    let world = files::load(&path).map_err(usage)?;
    Ok((world, Some(path)))
}

/// The configuration where it is looked for.
pub(super) fn find() -> Result<PathBuf, Failure> {
    let candidates = usual_places(|name| env::var_os(name).map(PathBuf::from));
    candidates.iter().find(|path| path.exists()).cloned().ok_or_else(|| nothing_found(&candidates))
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
