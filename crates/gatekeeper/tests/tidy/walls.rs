//! Walls between the rooms of protocols, and between crates. The room of one protocol names no other, and
//! what stands outside names none. The files that put gates together are the doors.

use std::collections::BTreeSet;
use std::path::Path;

use super::circles::{beginning_with, paths};

/// One room a protocol, as a folder or a file of this name.
const ROOMS: [&str; 3] = ["http", "mysql", "postgres"];
/// The crates that have such rooms, and the one that puts gates together.
const HOUSES: [&str; 4] =
    ["crates/config/src/", "crates/gatekeeper/src/", "crates/proxy/src/", "crates/wire/src/"];
/// Files outside of a room that name it, and why they must.
const DOORS: [(&str, &str); 10] = [
    ("crates/config/src/checked/class.rs", "reads the rules of a class, some of which only HTTP has"),
    ("crates/config/src/checked/gate.rs", "reads the settings that each protocol has"),
    ("crates/config/src/checked/types.rs", "tells which names a type of HTTP may have"),
    ("crates/config/src/raw/gate.rs", "lists the keys of every protocol"),
    ("crates/gatekeeper/src/assemble.rs", "makes the gates of every protocol"),
    ("crates/gatekeeper/src/commands/users.rs", "imports accounts of MySQL"),
    ("crates/gatekeeper/src/descriptors.rs", "counts the connections that `auto` may find in PostgreSQL"),
    ("crates/gatekeeper/src/files.rs", "opens the files of gates for HTTP"),
    ("crates/gatekeeper/src/handover/give.rs", "passes PostgreSQL's cancel requests to the successor"),
    ("crates/gatekeeper/src/handover/take.rs", "passes PostgreSQL's cancel requests to the process before"),
];

/// Crates that mustn't depend on others, not even in tests, and why.
const STRANGERS: [(&str, &str, &str); 4] = [
    ("config", "sim", "an operator's configuration knows nothing of the simulator"),
    ("proxy", "sim", "gates in real time know nothing of the simulator"),
    ("proxy", "bench", "tests have private servers from `testbed`"),
    ("wire", "bench", "tests have private servers from `testbed`"),
];

#[test]
fn crates_do_not_depend_on_strangers() {
    super::check(|path, text| {
        let is_of = |name: &str| path == Path::new("crates").join(name).join("Cargo.toml");
        let depends_on = |other: &str| text.lines().any(|line| line.starts_with(&format!("{other} = ")));
        let found = STRANGERS.iter().filter(|(name, other, _)| is_of(name) && depends_on(other));
        found.map(|(_, other, why)| format!("depends on `{other}`: {why}")).collect()
    });
}

#[test]
fn no_protocol_is_named_outside_its_room() {
    super::check(|path, text| {
        let named = foreign_rooms(path, text);
        let is_door = DOORS.iter().any(|(door, _)| path == Path::new(door));
        match (is_door, named.is_empty()) {
            (true, true) => vec!["is a door that leads nowhere: strike it".to_owned()],
            (true, false) => Vec::new(),
            _ => named.into_iter().map(|room| format!("names `{room}`, whose room this isn't")).collect(),
        }
    });
}

/// The rooms that a file names and doesn't stand in.
fn foreign_rooms(path: &Path, text: &str) -> BTreeSet<String> {
    if !super::is_rust(path) || !HOUSES.iter().any(|house| path.starts_with(house)) {
        return BTreeSet::new();
    }
    let own = |room: &str| path.with_extension("").iter().any(|part| part == room);
    let named = paths(&beginning_with("crate|super|proxy|wire"), text).into_iter().flatten();
    named.filter(|part| ROOMS.contains(&part.as_str()) && !own(part)).collect()
}

#[test]
fn a_foreign_room_is_found_and_the_own_one_is_not() {
    let text = "use crate::{http::Head, view};\nfn f() { wire::postgres::codec() }\n// crate::mysql\n";
    let found = |path| foreign_rooms(Path::new(path), text).into_iter().collect::<Vec<_>>();
    assert_eq!(found("crates/proxy/src/http/head.rs"), ["postgres"]);
    assert_eq!(found("crates/proxy/src/postgres.rs"), ["http"]);
    assert_eq!(found("crates/proxy/src/sql/stats.rs"), ["http", "postgres"]);
    assert_eq!(found("crates/proxy/tests/http/main.rs"), [""; 0]);
}
