//! The catalogue can be read, a handful of its rows miss the goals that are listed here and no others, and
//! the gates move as the trajectories that are written say.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails like a test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use figures::Progress;
use figures::catalogue::{Row, misses, page, play, rows, trajectories};
use scenario::{FIXED_GATE, WITHOUT_GATE};

/// The goals that the gates miss in [`SHORT`]: row, gate, goal. Take out what is reached; add nothing.
const KNOWN: &[(&str, &str, &str)] = &[
    ("09-work-that-runs-on", "postgres", "served_of_fixed"),
    ("09-work-that-runs-on", "http", "served_of_fixed"),
    ("09-work-that-runs-on", "target", "served_of_fixed"),
    ("12-two-places", "target", "served_of_ungated"),
    ("12-two-places", "target", "whole_of_ungated"),
    ("13-two-places-overloaded", "postgres", "whole_of_fixed"),
    ("13-two-places-overloaded", "http", "whole_of_fixed"),
    ("13-two-places-overloaded", "target", "whole_of_fixed"),
];

/// Rows that take a second or two.
const SHORT: [&str; 4] =
    ["06-deadlocks-and-a-target", "09-work-that-runs-on", "12-two-places", "13-two-places-overloaded"];

/// Rows whose trajectories take ten seconds. They are written anew with the others, but not compared here.
const LONG: [&str; 3] = ["05-deadlocks", "21-many-busy-cores, 64 cores", "22-128-cores"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn catalogue() -> Vec<Row> {
    rows(&root().join("scenarios/catalogue")).unwrap()
}

#[test]
fn every_row_of_the_catalogue_has_both_default_gates_and_a_goal() {
    let rows = catalogue();
    assert!(rows.len() >= 37, "{}", rows.len());
    for row in rows {
        for gate in [WITHOUT_GATE, "postgres", "http"] {
            assert!(row.variant(gate).is_some(), "{} has no gate {gate:?}", row.name);
        }
        assert!(row.about.starts_with("Row "), "{}", row.name);
        assert_ne!(row.goal, scenario::Goal::default(), "{}", row.name);
        let known = [WITHOUT_GATE, "postgres", "http", "target", FIXED_GATE];
        let mut gates = row.variants();
        assert!(
            gates.all(|gate| known.contains(&&gate.name[..])),
            "{} has a gate without a column",
            row.name
        );
    }
}

#[test]
fn the_known_failures_of_the_catalogue_only_become_fewer() {
    let mut rows = catalogue();
    rows.retain(|row| SHORT.contains(&&row.name[..]));
    assert_eq!(rows.len(), SHORT.len());
    let cells = play(&rows, &Progress::hidden()).unwrap();
    let missed: Vec<_> = rows.iter().zip(&cells).flat_map(|(row, cells)| misses(row, cells)).collect();
    let found: Vec<_> = missed.iter().map(|miss| (&miss.row[..], &miss.gate[..], &miss.goal[..])).collect();
    let new: Vec<_> = found.iter().filter(|miss| !KNOWN.contains(miss)).collect();
    assert!(new.is_empty(), "goals that were reached are missed: {new:?}, of {missed:#?}");
    let reached: Vec<_> = KNOWN.iter().filter(|miss| !found.contains(miss)).collect();
    assert!(reached.is_empty(), "goals are reached now; take them out of KNOWN: {reached:?}");
    let page = page(&rows, &cells, &[]);
    assert!(page.contains(&format!("Goals that are missed: {}", KNOWN.len())), "{page}");
}

#[test]
fn the_gates_move_as_the_written_trajectories_say() {
    let directory = root().join("docs/results/catalogue");
    let update = std::env::var_os("UPDATE_TRAJECTORIES").is_some();
    let mut rows = catalogue();
    let files: BTreeSet<_> = rows.iter().map(Row::trajectory_file).collect();
    rows.retain(|row| update || !LONG.contains(&&row.name[..]));
    let mut moved = String::new();
    for (row, now) in rows.iter().zip(trajectories(&rows).unwrap()) {
        let file = directory.join(row.trajectory_file());
        if update {
            fs::write(&file, &now).unwrap();
        }
        let written = fs::read_to_string(&file).unwrap_or_default();
        if written != now {
            let pair = written.lines().zip(now.lines()).find(|(written, now)| written != now);
            let (written, now) = pair.unwrap_or(("", "another number of lines"));
            moved += &format!("{}\n  written {written}\n  now     {now}\n", row.name);
        }
    }
    assert!(
        moved.is_empty(),
        "gates move otherwise, first here:\n{moved}If that is meant, UPDATE_TRAJECTORIES=1 cargo test -p figures \
         --test catalogue writes all trajectories anew, and `make catalogue` the page as well."
    );
    let entries = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name());
    let written: BTreeSet<_> = entries.map(|name| name.into_string().unwrap()).collect();
    assert_eq!(written, files, "a file for each row, and none for a row that is gone");
}
