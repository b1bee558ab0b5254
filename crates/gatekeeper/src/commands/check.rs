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

/// The effective configuration.
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
    if let Some(Err(why)) = world.admin.socket.as_deref().map(state::can_be_made_in) {
        eprintln!("admin: socket: it can't be made: {why}");
    }
    for gate in &world.gates {
        for told in tls::open_keys(gate) {
            eprintln!("{told}");
        }
        // Warnings: the user that checks may be another one than the user that runs the gate.
        for told in unwritable(gate) {
            eprintln!("{told}");
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
    Ok(config::effective(&world))
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

/// What is to be said of the files that a gate writes, where it can't.
fn unwritable(gate: &config::Gate) -> Vec<String> {
    let access_log = match &gate.service {
        config::Service::Http(http) => http.access_log.as_deref(),
        config::Service::Postgres(_) | config::Service::Mysql(_) => None,
    };
    let files = [
        ("state_file", gate.state_file.as_deref(), "what is learned won't be kept"),
        ("trace_file", gate.trace.file.as_deref(), "the gate won't start"),
        ("access_log", access_log, "the gate won't start"),
    ];
    let told = |(key, file, then): (&str, Option<&Path>, &str)| {
        let why = state::can_be_made_in(file?).err()?;
        Some(format!("gate {:?}: {key}: {then}: {why}", gate.name))
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
                "[[gate]]\nprotocol = \"http\"\nupstream = \"127.0.0.1:1\"\nstate_file = {:?}\ntrace_file = {:?}\n\
                 access_log = {:?}\n",
                file("shop.json"),
                file("shop.trace"),
                file("access.json")
            )
        };
        let told = |inside: &str| {
            let world = config::parse(config::Origin::CommandLine, &text(inside)).unwrap();
            unwritable(&world.gates[0])
        };
        assert_eq!(told(""), Vec::<String>::new());
        let told = told("nowhere");
        let keys = ["state_file", "trace_file", "access_log"];
        assert_eq!(told.len(), keys.len(), "{told:?}");
        for (told, key) in told.iter().zip(keys) {
            let begin = format!("gate \"http\": {key}: ");
            assert!(told.starts_with(&begin) && told.contains("there is no directory /"), "{told}");
        }
    }
}
