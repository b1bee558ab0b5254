//! The catalogue can be read, and a handful of its rows miss the goals that are listed here and no others.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails like a test")]

use std::path::Path;

use figures::Progress;
use figures::catalogue::{Row, misses, page, play, rows};
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

fn catalogue() -> Vec<Row> {
    rows(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/catalogue")).unwrap()
}

#[test]
fn every_row_of_the_catalogue_has_both_default_gates_and_a_goal() {
    let rows = catalogue();
    assert!(rows.len() >= 21, "{}", rows.len());
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
