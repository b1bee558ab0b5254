//! The page of results leaves no figure of the papers out.

use std::fs;
use std::path::Path;

/// The rows of a section's table, by their first cell.
fn rows<'a>(page: &'a str, section: &str) -> Vec<&'a str> {
    let (_, below) = page.split_once(section).expect("the section is there");
    let end = below.find("\n### ").unwrap_or(below.len());
    below[..end].lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next()).collect()
}

/// Whether a row is of this figure: `Fig. 7`, or one of `Figs. 12, 13`.
fn is_of(row: &str, kind: &str, number: u32) -> bool {
    let named = row.strip_prefix(kind).map(|rest| rest.trim_start_matches('s').trim_start_matches(". "));
    named.is_some_and(|rest| rest.trim().split(", ").any(|one| one.parse() == Ok(number)))
}

#[test]
fn no_figure_or_table_of_the_papers_is_missing() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results/README.md");
    let page = fs::read_to_string(path).unwrap();
    let papers = [
        ("### A. Gatekeeper", "Fig", 1..=15),
        ("### A. Gatekeeper", "Table", 1..=2),
        ("### B. Yaksha", "Fig", 1..=16),
    ];
    for (section, kind, numbers) in papers {
        let rows = rows(&page, section);
        for number in numbers {
            let count = rows.iter().filter(|row| is_of(row, kind, number)).count();
            assert_eq!(count, 1, "{section}: {kind} {number} in {rows:?}");
        }
    }
}
