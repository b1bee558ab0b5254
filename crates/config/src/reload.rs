//! Another world for a running process: what of it can hold at once, what has to stay, and what that changes.
//!
//! The new world has been read and checked as a whole. Keys that can't change at run time keep the running
//! values, and each of them is named, as are gates that came or went.

use std::fmt;

use crate::checked::{AuthMethod, Gate, Postgres, Service, World};
use crate::effective::{Row, rows};
use crate::raw::{ADMIN, GATE, LOG, PROCESS};

/// A key whose value in the new world is another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its section in words, such as `gate "shop"`.
    pub section: String,
    /// The key; empty where a whole gate came or went.
    pub key: &'static str,
    /// What holds in the running world; `None` where the key has no value.
    pub from: Option<String>,
    /// What the new world says.
    pub to: Option<String>,
}

impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { section, key, from, to } = self;
        match (key.is_empty(), from) {
            (true, None) => write!(formatter, "{section} is new"),
            (true, Some(_)) => write!(formatter, "{section} is gone"),
            (false, _) => {
                let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "(none)".to_owned());
                write!(formatter, "{section}: {key} = {} instead of {}", shown(to), shown(from))
            }
        }
    }
}

/// A world that can take the place of the running one.
#[derive(Clone, Debug, PartialEq)]
pub struct Reload {
    /// The world, with the running values where they have to stay.
    pub world: World,
    /// What changes.
    pub applied: Vec<Change>,
    /// What the new file asks for and only a restart can bring.
    pub kept: Vec<Change>,
}

/// What of `asked` can hold while the process runs with `running`.
///
/// # Errors
/// What only a new `listen` would make right, since `listen` can't change: a gate that would be its own
/// service, or that would trust everybody.
pub fn reload(running: &World, asked: &World) -> Result<Reload, String> {
    let gates: Vec<Gate> = running.gates.iter().map(|gate| merged(gate, asked)).collect();
    if let Some(gate) = gates.iter().find(|gate| gate.upstream().contains(&gate.listen)) {
        return Err(format!(
            "gate {:?}: upstream = {:?} is where the gate listens, which only a restart can change",
            gate.name,
            gate.listen.to_string()
        ));
    }
    let is_open = |gate: &&Gate| match &gate.service {
        Service::Postgres(Postgres { auth, allow_trust_relay, .. }) => {
            auth.method == AuthMethod::Trust && !gate.listen.is_local() && !allow_trust_relay
        }
        Service::Mysql(_) | Service::Http(_) => false,
    };
    if let Some(gate) = gates.iter().find(is_open) {
        return Err(format!(
            "gate {:?}: auth = \"trust\" would let everybody in who reaches {}, where the gate listens until it is \
             restarted",
            gate.name, gate.listen
        ));
    }
    let mut world = World { gates, ..asked.clone() };
    world.admin.listen.clone_from(&running.admin.listen);
    world.admin.names.clone_from(&running.admin.names);
    world.admin.socket.clone_from(&running.admin.socket);
    world.admin.socket_mode = running.admin.socket_mode;
    world.log.format = running.log.format;
    let mut kept: Vec<_> = changes(&rows(&world), &rows(asked));
    let is_among = |name: &str, world: &World| world.gates.iter().any(|gate| gate.name == name);
    let whole = |gate: &Gate, from: Option<&str>, to: Option<&str>| Change {
        section: format!("gate {:?}", gate.name),
        key: "",
        from: from.map(str::to_owned),
        to: to.map(str::to_owned),
    };
    // A gate that came or went is one change, not one for each of its keys.
    kept.retain(|change| !change.key.is_empty());
    let new = asked.gates.iter().filter(|gate| !is_among(&gate.name, running));
    kept.extend(new.map(|gate| whole(gate, None, Some("new"))));
    let gone = running.gates.iter().filter(|gate| !is_among(&gate.name, asked));
    kept.extend(gone.map(|gate| whole(gate, Some("running"), None)));
    let applied = changes(&rows(running), &rows(&world));
    Ok(Reload { world, applied, kept })
}

/// The new gate of the same name with the running values where they have to stay; the running one where
/// there is none.
fn merged(running: &Gate, asked: &World) -> Gate {
    let Some(asked) = asked.gates.iter().find(|gate| gate.name == running.name) else {
        return running.clone();
    };
    let service = match (&running.service, &asked.service) {
        (Service::Postgres(running), Service::Postgres(asked)) => {
            Service::Postgres(Postgres { pooling: running.pooling, ..asked.clone() })
        }
        (Service::Mysql(_), Service::Mysql(asked)) => Service::Mysql(asked.clone()),
        (Service::Http(_), Service::Http(asked)) => Service::Http(asked.clone()),
        // All of it depends on the protocol, which can't change.
        _ => return running.clone(),
    };
    let mut gate = Gate {
        name: running.name.clone(),
        listen: running.listen.clone(),
        service,
        mode: running.mode,
        keepalive: running.keepalive,
        state_file: running.state_file.clone(),
        trace: running.trace.clone(),
        ..asked.clone()
    };
    gate.policy.types_max = running.policy.types_max;
    gate
}

/// The keys with other values, in sections that both have.
fn changes(before: &[Row], after: &[Row]) -> Vec<Change> {
    let value = |rows: &[Row], section: &str, key: &str| {
        rows.iter().find(|row| row.section == section && row.key == key).map(|row| row.value.clone())
    };
    let mut changes = Vec::new();
    let mut sections: Vec<&str> = after.iter().map(|row| row.section.as_str()).collect();
    sections.dedup();
    for section in sections.into_iter().filter(|section| before.iter().any(|row| row.section == *section)) {
        let fields = match section {
            "admin" => ADMIN,
            "log" => LOG,
            "process" => PROCESS,
            _ => GATE,
        };
        for field in fields {
            let (from, to) = (value(before, section, field.key), value(after, section, field.key));
            if from != to {
                changes.push(Change { section: section.to_owned(), key: field.key, from, to });
            }
        }
    }
    changes
}
