//! `gatekeeper check`: what a file (or the one that `run` would find) means, or everything that is wrong
//! with it and with what it names.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use admission::ClassGoal;
use proxy::admin::ClassStatus;

use super::run::find;
use super::running;
use crate::cli::AdminArgs;
use crate::remote::block_on;
use crate::{Failure, assemble, files, state, tls};

/// The standing of a goal that can't be kept.
const OUT: &str = "out of reach";

/// What a gate that can't start is said to do.
const WONT_START: &str = "the gate won't start";

/// The effective configuration. Where `run` would end at once as this user, that is a failure.
pub(crate) fn check(file: Option<PathBuf>) -> Result<String, Failure> {
    let file = file.map_or_else(find, Ok)?;
    let world = files::load(&file).map_err(|errors| Failure::Usage(errors.to_string()))?;
    assemble::token(&world.admin).map_err(Failure::Usage)?;
    if let Some(listen) = world.admin.listen.as_ref().filter(|listen| !listen.is_local()) {
        eprintln!(
            "admin: listen = \"{listen}\": other machines can reach it, and it asks for no password to look; 127.0.0.1 \
             is only for this one"
        );
    }
    let mut obstacles = Vec::new();
    if let Some(path) = &world.admin.socket {
        match state::can_be_made_in(path) {
            Ok(()) => (),
            Err(why) if awaits_its_unit(path) => eprintln!("admin: socket: it can't be made yet: {why}"),
            Err(why) => obstacles.push(format!("admin: socket: gatekeeper won't start: {why}")),
        }
    }
    for gate in &world.gates {
        for told in tls::open_keys(gate) {
            eprintln!("{told}");
        }
        for (told, weight) in unwritable(gate) {
            match weight {
                Weight::Warning => eprintln!("{told}"),
                Weight::Obstacle => obstacles.push(told),
            }
        }
        let groups: Vec<_> = gate.classes.iter().filter_map(assemble::group).collect();
        let parents: BTreeSet<_> =
            groups.iter().filter_map(|group| Path::new(&group.path).parent()).collect();
        if parents.len() > 1 {
            eprintln!(
                "gate {:?}: cgroup: the groups of its classes are in several groups ({}): a weight counts among the \
                 groups beside it only, so have them all in one",
                gate.name,
                parents.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
            );
        }
        for told in out_of_reach(&file, gate) {
            eprintln!("{told}");
        }
        for group in groups {
            if let Err(why) = group.examine() {
                let (gate, class, path) = (&gate.name, &group.class, &group.path);
                eprintln!(
                    "gate {gate:?}: class {class:?}: cgroup = {path:?}: only its queue is adapted: {why}"
                );
            }
        }
    }
    if obstacles.is_empty() {
        return Ok(config::effective(&world));
    }
    crate::print(&config::effective(&world))?;
    Err(Failure::Runtime(obstacles.join("\n")))
}

/// Whether a path's directory is one that a unit of systemd makes when it starts (RuntimeDirectory=).
fn awaits_its_unit(path: &Path) -> bool {
    let is_there = path.parent().is_some_and(Path::exists);
    !is_there && ["/run", "/var/run"].iter().any(|root| path.starts_with(root))
}

/// What is to be said of goals that the gate of this name, where one runs with this file, finds out of reach.
fn out_of_reach(file: &Path, gate: &config::Gate) -> Vec<String> {
    let goals: Vec<_> = gate.classes.iter().filter_map(|it| Some((&it.name, it.goal?))).collect();
    let args = AdminArgs { admin: None, config: Some(file.to_owned()), token_file: None };
    let ask = async { running::asked(&args)?.gate(Some(&gate.name)).await };
    // Where none runs there is nothing to tell, and another may have the port.
    let Some(Ok(running)) = (!goals.is_empty()).then(|| block_on(ask)) else { return Vec::new() };
    let told = |(name, goal): (&String, ClassGoal)| {
        let is_it = |it: &&ClassStatus| {
            it.class == *name
                && it.goal.as_ref() == Some(&goal.to_string())
                && it.standing.as_deref() == Some(OUT)
        };
        let observed = running.classes.iter().find(is_it)?.observed;
        let observed = observed.map_or_else(String::new, |observed| match goal {
            ClassGoal::Delay { .. } => format!(" (it was {:.0} ms lately)", observed * 1e3),
            ClassGoal::Throughput { .. } => format!(" (it was {observed:.1}/s lately)"),
        });
        Some(format!(
            "gate {:?}: class {name:?}: goal = \"{goal}\": out of reach on the running gate{observed}: no shares \
             keep it under this load",
            gate.name
        ))
    };
    goals.into_iter().filter_map(told).collect()
}

/// How much a fault matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weight {
    /// The gate runs all the same.
    Warning,
    /// It doesn't.
    Obstacle,
}

/// What is to be said of the files that a gate writes, where it can't.
fn unwritable(gate: &config::Gate) -> Vec<(String, Weight)> {
    let access_log = match &gate.service {
        config::Service::Http(http) => http.access_log.as_deref(),
        config::Service::Postgres(_) | config::Service::Mysql(_) => None,
    };
    let socket = match &gate.listen {
        config::Address::Unix(path) => Some(path.as_path()),
        config::Address::Inet { .. } => None,
    };
    let made = |file: Option<&Path>| state::can_be_made_in(file?).err();
    let appended_to = |file: Option<&Path>| state::can_be_appended_to(file?).err();
    let files = [
        ("state_file", made(gate.state_file.as_deref()), "what is learned won't be kept", Weight::Warning),
        // systemd may hand the socket over.
        ("listen", made(socket), "the gate can't make its socket itself", Weight::Warning),
        ("trace_file", made(gate.trace.file.as_deref()), WONT_START, Weight::Obstacle),
        ("access_log", appended_to(access_log), WONT_START, Weight::Obstacle),
    ];
    let told = |(key, why, then, weight): (_, Option<String>, _, _)| {
        Some((format!("gate {:?}: {key}: {then}: {}", gate.name, why?), weight))
    };
    files.into_iter().filter_map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_a_gate_writes_needs_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        let text = |inside: &str| {
            let file = |name: &str| directory.path().join(inside).join(name);
            format!(
                "[[gate]]\nprotocol = \"http\"\nupstream = \"127.0.0.1:1\"\nlisten = \"unix:{}\"\nstate_file = {:?}\n\
                 trace_file = {:?}\naccess_log = {:?}\n",
                file("shop.sock").display(),
                file("shop.json"),
                file("shop.trace"),
                file("access.json")
            )
        };
        let told = |inside: &str| {
            let world = config::parse(config::Origin::CommandLine, &text(inside)).unwrap();
            unwritable(&world.gates[0])
        };
        assert_eq!(told(""), []);
        let told = told("nowhere");
        let keys = [
            ("state_file", Weight::Warning),
            ("listen", Weight::Warning),
            ("trace_file", Weight::Obstacle),
            ("access_log", Weight::Obstacle),
        ];
        assert_eq!(told.len(), keys.len(), "{told:?}");
        for ((told, weight), (key, expected)) in told.iter().zip(keys) {
            let begin = format!("gate \"http\": {key}: ");
            assert!(told.starts_with(&begin) && told.contains("there is no directory /"), "{told}");
            assert_eq!((*weight == Weight::Obstacle, *weight), (told.contains(WONT_START), expected));
        }
    }

    #[test]
    fn an_access_log_that_is_there_needs_no_directory_that_may_be_written() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("access.json");
        std::fs::write(&log, "").unwrap();
        assert_eq!(state::can_be_appended_to(&log), Ok(()));
        assert_eq!(state::can_be_appended_to(&directory.path().join("another.json")), Ok(()));
        assert!(state::can_be_appended_to(&log.join("below.json")).is_err(), "a file is no directory");
    }

    #[test]
    fn only_a_missing_directory_of_run_is_left_to_a_unit() {
        assert!(awaits_its_unit(Path::new("/run/gatekeeper-that-is-not-there/admin.sock")));
        assert!(!awaits_its_unit(Path::new("/run/admin.sock")));
        assert!(!awaits_its_unit(Path::new("/nowhere/admin.sock")));
    }
}
