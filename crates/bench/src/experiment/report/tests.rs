//! The report holds what it must, and asks for nothing else.

use super::*;
use crate::experiment::anatomy::{Anatomy, Processor};
use crate::experiment::cell::{Cell, Figures, Measured, TypeFigures};
use crate::experiment::learned::{LearnedPage, Point};
use crate::experiment::machine::{Machine, Moment};
use crate::experiment::plan::{Load, Show};
use crate::experiment::results::Line;
use crate::experiment::tests::plan;

/// What a gate learned of a page: executed twice a second, and an estimate that is right from the third
/// look on.
fn learned() -> LearnedPage {
    let estimate = |index: u64| if index < 3 { 0.08 } else { 0.02 };
    LearnedPage {
        name: "HOME".to_owned(),
        work_seconds: 0.02,
        variation: Some(0.35),
        samples: 40,
        completed: 20,
        upstream_seconds: 0.0123,
        waited: 20,
        wait_seconds: 0.0041,
        curve: (0..=20).map(|index| Point(index as f64, estimate(index), 2 * index)).collect(),
    }
}

/// What a server was made of.
fn anatomy() -> Anatomy {
    let processor = Processor { user: 0.7, system: 0.25, idle: 0.04, waiting: 0.01, stolen: 0.0 };
    Anatomy {
        processes: 106.0,
        memory: Some(310 << 20),
        private: Some(150 << 20),
        available: None,
        voluntary_switches: 1_234.0,
        involuntary_switches: 56.0,
        read: None,
        written: Some(2_048.0),
        processor: Some(processor),
    }
}

pub(super) fn shown() -> Shown {
    let mut results = Results::default();
    let machine = Machine { processor: "A <fast> one".to_owned(), ..Machine::default() };
    results.lines.push(Line::Began { machine, moment: Moment::default() });
    for (variant, throughput) in [("direct", 10.0), ("gate", 50.0)] {
        for repetition in 0..2 {
            let cell = Cell { variant: variant.to_owned(), load: Load::Clients(300), repetition };
            let clients = Figures {
                throughput: throughput + f64::from(repetition),
                all_seconds: 1.0 / throughput,
                residual: Some(0.25),
                under_way: 10,
                ..Figures::default()
            };
            let page =
                TypeFigures { name: "HOME".to_owned(), completed: 20, in_time_seconds: 1.0 / throughput };
            let types = vec![page];
            let learned = if variant == "gate" { vec![learned()] } else { Vec::new() };
            let measured = Measured {
                clients,
                bystanders: Some(clients),
                types,
                learned,
                anatomy: Some(anatomy()),
                alive: true,
                ..Measured::default()
            };
            results.lines.push(Line::Cell { cell, measured: Box::new(measured) });
        }
    }
    let mut plan = plan();
    plan.show = vec![Show::ServiceTimes, Show::Convergence, Show::Anatomy];
    plan.short.repetitions = 3;
    Shown { plan, form: "short", results }
}

fn written() -> (tempfile::TempDir, Vec<PathBuf>, String) {
    let directory = tempfile::tempdir().unwrap();
    let tables = directory.path().join("tables");
    fs::create_dir(&tables).unwrap();
    let places = Places { page: directory.path().join("page"), tables: Some(tables) };
    let files = write(&[shown()], &places).unwrap();
    let page = fs::read_to_string(&files[0]).unwrap();
    (directory, files, page)
}

#[test]
fn the_page_has_question_verdicts_pictures_table_and_machine() {
    let (_directory, _, page) = written();
    for expected in [
        "Does it?",
        "three times as much",
        "reached",
        "<svg",
        "300 clients",
        "10.5 ± 3.2",
        "25 %",
        "A &lt;fast&gt; one",
        "a study",
        "bystanders",
        "HOME",
        "20.0 ms (0.20)",
        "prefers-color-scheme: dark",
        "Little",
    ] {
        assert!(page.contains(expected), "{expected}");
    }
}

#[test]
fn the_page_asks_for_nothing_else() {
    let (_directory, _, page) = written();
    let namespaces = ["http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"];
    let rest = namespaces.iter().fold(page, |page, namespace| page.replace(namespace, ""));
    for forbidden in ["http:", "https:", "src=", "url(", "@import", "<script", "<link"] {
        assert!(!rest.contains(forbidden), "{forbidden}");
    }
    let elsewhere = rest.split("href=\"").skip(1).filter(|link| !link.starts_with('#')).count();
    assert_eq!(elsewhere, 0);
}

#[test]
fn pictures_are_png_and_tables_are_renewed_in_their_place() {
    let (directory, files, _) = written();
    let picture = files.iter().find(|path| path.ends_with("tried.png")).expect("there is a font");
    assert!(fs::read(picture).unwrap().starts_with(b"\x89PNG"));
    assert!(files.iter().any(|path| path.ends_with("tried-estimates-1.png")), "{files:?}");
    let table = directory.path().join("tables/tried.md");
    let before = fs::read_to_string(&table).unwrap();
    assert!(before.contains("| 300 clients | gate | 50 ±"), "{before}");
    // As often as cells were measured, whatever the plan has.
    assert!(before.contains("for each cell, 2×)"), "{before}");
    fs::write(&table, format!("{before}\nmine\n")).unwrap();
    let places =
        Places { page: directory.path().join("page"), tables: Some(directory.path().join("tables")) };
    write(&[shown()], &places).unwrap();
    assert_eq!(fs::read_to_string(&table).unwrap(), format!("{before}\nmine\n"));
}

#[test]
fn what_a_gate_learned_of_pages_stands_beside_the_papers_figures() {
    let (_directory, _, page) = written();
    let rows: Vec<&str> = page.split("<tr").collect();
    let row = |parts: &[&str]| rows.iter().any(|row| parts.iter().all(|part| row.contains(part)));
    // The page's own table: twice 20 executions, all of the work, beside the paper's time without load.
    assert!(row(&[
        "<td>Home</td><td>40</td><td>100.0 %</td><td>100.0 %</td>",
        "<td>12.3 ms</td><td>0.35</td><td>1.83 ms</td>"
    ]));
    // When the estimate was there, and after how many executions.
    assert!(row(&[
        "<td>gate</td><td>Home</td><td>40</td><td>20.0 ms</td><td>3.0 s</td><td>3.0 s</td><td>6</td><td>3.0 s</td>"
    ]));
    assert!(page.contains("1 of 1 pages within 10 % in under 50 s"));
    // Among all types: how much it varies.
    assert!(
        page.contains("<th>CV (gate)</th>") && row(&["<td>HOME</td>", "20.0 ms (0.20)</td><td>0.35</td>"])
    );
}

#[test]
fn what_the_server_was_made_of_stands_beside_the_papers_table() {
    let (directory, _, page) = written();
    assert!(
        page.contains("<th>direct, 300 clients</th><th>gate, 300 clients</th><th>paper: original, 200</th>")
    );
    let table = fs::read_to_string(directory.path().join("tables/tried.md")).unwrap();
    for row in [
        "| completed per minute | 630 | 3,030 | 852 | 589 | 941 |",
        "| processor: idle | 5 % | 5 % | 0 % | 0 % | 0 % |",
        "| memory, MB | 310 | 310 | 450 | 509 | 375 |",
        "| memory available, MB | – | – | 318 | 259 | 393 |",
        "| processes | 106 | 106 | 233 | 345 | 49 |",
        "| written to the disk, KB/s | 2 | 2 | – | – | – |",
        "| context switches/s, waiting | 1,234 | 1,234 | 330 | 373 | 319 |",
    ] {
        assert!(table.contains(row), "{row}: {table}");
    }
}

#[test]
fn waits_and_service_stand_beside_what_browsers_see() {
    let directory = tempfile::tempdir().unwrap();
    let mut shown = shown();
    shown.plan.show = vec![Show::Breakdown];
    // The page is Exec Search in this one, once first come first served and once not, under two loads.
    shown.plan.short.variants = ["direct", "gate-fifo", "gate-sjf"].map(str::to_owned).to_vec();
    shown.plan.short.clients = vec![300, 400];
    let cells: Vec<(Cell, Measured)> =
        shown.results.cells().map(|(cell, measured)| (cell.clone(), measured.clone())).collect();
    shown.results.lines.truncate(1);
    for load in [300, 400].map(Load::Clients) {
        for (variant, factor) in [("direct", 0.0), ("gate-fifo", 2.0), ("gate-sjf", 1.0)] {
            let (cell, mut measured) = cells.last().cloned().expect("there are cells");
            measured.types[0].name = "SRES".to_owned();
            measured.learned[0].name = "SRES".to_owned();
            measured.learned[0].wait_seconds *= factor;
            if variant == "direct" {
                measured.learned.clear();
            }
            let cell = Cell { variant: variant.to_owned(), load, ..cell };
            shown.results.lines.push(Line::Cell { cell, measured: Box::new(measured) });
        }
    }
    let places = Places { page: directory.path().to_owned(), tables: Some(directory.path().to_owned()) };
    let files = write(&[shown], &places).unwrap();
    assert!(files.iter().any(|path| path.ends_with("tried-waits.png")), "{files:?}");
    let table = fs::read_to_string(directory.path().join("tried.md")).unwrap();
    for row in [
        "| 300 clients | Exec Search | direct | 20 | 20.0 ms | – | – | – | – |",
        "| 300 clients | Exec Search | gate-fifo | 20 | 20.0 ms | 8.20 ms | 12.3 ms | 0.00 ms | over 8 s |",
        "| 400 clients | all pages | gate-sjf | 20 | 20.0 ms | 4.10 ms | 12.3 ms | 3.60 ms | 225 ms |",
        "Exec Search with 300 clients: waits 8.20 ms first come first served and 4.10 ms shortest first, 0.50 times as long.",
    ] {
        assert!(table.contains(row), "{row}: {table}");
    }
}

#[test]
fn who_refused_and_whom_the_client_kept_waiting_is_told() {
    let mut shown = shown();
    let marks = |shown: &Shown| {
        let rows = rows::rows(shown);
        (rows.header.contains(&"refused"), rows.rows.concat().join("|").contains('§'), rows.notes.join("\n"))
    };
    let (refused, queued, notes) = marks(&shown);
    assert!(!refused && !queued && !notes.contains('§'));
    let Some(Line::Cell { measured, .. }) = shown.results.lines.last_mut() else { panic!("no cell") };
    measured.clients.refused = 4;
    measured.client_queue_seconds = Some(8.5);
    let (refused, queued, notes) = marks(&shown);
    assert!(refused && queued && notes.contains("(for 8.50 s at most)"), "{notes}");
    // Half of two repetitions in which four and none of ten were refused.
    assert!(rows::rows(&shown).rows.concat().iter().any(|cell| cell.starts_with("20 ±")));
}
