//! The proofs run, and say what their pages conclude.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails like a test")]

use std::fs;
use std::path::Path;

use figures::{Length, Progress, proofs};

/// The cells of the first row that begins so.
fn row(page: &str, begin: &str) -> Vec<String> {
    let row = page.lines().find(|line| line.starts_with(begin)).unwrap();
    row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
}

fn first_number(cell: &str) -> f64 {
    cell.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn both_pages_are_written_and_show_what_they_conclude() {
    let pages = tempfile::tempdir().unwrap();
    let scenarios = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/figures");
    proofs::write(&scenarios, pages.path(), Length::Short, &Progress::hidden()).unwrap();

    let overruns = fs::read_to_string(pages.path().join("overruns.md")).unwrap();
    let cells = row(&overruns, "| offline | 325 |");
    assert!(first_number(&cells[2]) > first_number(&cells[4]), "charged, then not charged: {cells:?}");
    assert!(first_number(&cells[3]) * 2.0 < first_number(&cells[5]), "in flight: {cells:?}");

    let grid = fs::read_to_string(pages.path().join("yaksha-grid.md")).unwrap();
    assert_eq!(grid.lines().filter(|line| line.contains(" ms, ")).count(), 30, "a row each");
    // The shortest run of all is no time for the controller that learns; a design for too little starves.
    assert!(row(&grid, "| static, 10/s | 30 s |")[5].starts_with('*'), "{grid}");
}
