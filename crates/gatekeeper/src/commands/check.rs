//! `gatekeeper check`: what a file (or the one that `run` would find) means, or everything that is wrong
//! with it and with what it names.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::run::find;
use crate::{Failure, assemble, files, state};

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
    for gate in &world.gates {
        for told in files::open_keys(gate) {
            eprintln!("{told}");
        }
        // A warning: the user that checks may be another one than the user that runs the gate.
        if let Some(Err(why)) = gate.state_file.as_deref().map(state::can_be_kept) {
            eprintln!("gate {:?}: state_file: what is learned won't be kept: {why}", gate.name);
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
