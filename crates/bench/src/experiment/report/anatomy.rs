//! What the server is made of, as Table 2 of *Gatekeeper* (WWW 2004): a column for each variant under each
//! load, the paper's beside.

use sim::Interval;

use super::rows::Table;
use super::{Shown, rows};
use crate::experiment::anatomy::Anatomy;
use crate::experiment::cell::Measured;
use crate::table::count;

/// The paper's three columns: the original at its peak (200 clients) and overloaded (300), Gatekeeper at
/// its peak (230).
const PAPER: [&str; 3] = ["paper: original, 200", "paper: original, 300", "paper: Gatekeeper, 230"];

/// A figure of a column.
type Figure = fn(&Measured, &Anatomy) -> Option<f64>;

/// A row: what it is, how it comes of a cell, how it is written, and the paper's three.
struct Line(&'static str, Figure, fn(f64) -> String, [&'static str; 3]);

const LINES: [Line; 12] = [
    Line(
        "completed per minute",
        |cell, _| Some(cell.clients.throughput * 60.0),
        count,
        ["852", "589", "941"],
    ),
    Line("processor: user", |_, anatomy| Some(anatomy.processor?.user), percent, ["76 %", "74 %", "75 %"]),
    Line(
        "processor: system",
        |_, anatomy| Some(anatomy.processor?.system),
        percent,
        ["24 %", "26 %", "25 %"],
    ),
    Line(
        "processor: idle",
        |_, anatomy| Some(anatomy.processor?.idle + anatomy.processor?.waiting),
        percent,
        ["0 %"; 3],
    ),
    Line("memory, MB", |_, anatomy| anatomy.memory.map(megabytes), count, ["450", "509", "375"]),
    Line("memory of single processes, MB", |_, anatomy| anatomy.private.map(megabytes), count, ["–"; 3]),
    Line("memory available, MB", |_, anatomy| anatomy.available.map(megabytes), count, ["318", "259", "393"]),
    Line("processes", |_, anatomy| Some(anatomy.processes), count, ["233", "345", "49"]),
    Line("read from the disk, KB/s", |_, anatomy| anatomy.read.map(kilobytes), count, ["–"; 3]),
    Line("written to the disk, KB/s", |_, anatomy| anatomy.written.map(kilobytes), count, ["–"; 3]),
    Line(
        "context switches/s, waiting",
        |_, anatomy| Some(anatomy.voluntary_switches),
        count,
        ["330", "373", "319"],
    ),
    Line("context switches/s, preempted", |_, anatomy| Some(anatomy.involuntary_switches), count, ["–"; 3]),
];

/// A row for each figure.
pub(super) fn table(shown: &Shown) -> Table {
    let mut header = vec!["of the server".to_owned()];
    let mut columns: Vec<Vec<&Measured>> = Vec::new();
    for load in shown.form().loads() {
        for variant in &shown.form().variants {
            let cells = shown.results.repetitions(variant, load);
            if cells.iter().any(|cell| cell.anatomy.is_some()) {
                header.push(format!("{variant}, {}", rows::load_of(load)));
                columns.push(cells);
            }
        }
    }
    header.extend(PAPER.map(str::to_owned));
    let row = |Line(name, figure, show, paper): &Line| {
        let of = |cells: &Vec<&Measured>| {
            let values: Vec<f64> =
                cells.iter().filter_map(|cell| figure(cell, cell.anatomy.as_ref()?)).collect();
            let found = Interval::of(&values);
            if found.mean.is_finite() { show(found.mean) } else { "–".to_owned() }
        };
        let mut row = vec![(*name).to_owned()];
        row.extend(columns.iter().map(of));
        row.extend(paper.map(str::to_owned));
        row
    };
    let rows = if columns.is_empty() { Vec::new() } else { LINES.iter().map(row).collect() };
    Table { title: "What the server is made of".to_owned(), header, rows, notes: vec![how()] }
}

fn how() -> String {
    "Of the server's processes alone (the paper counts its own and the system's), from /proc: memory is at the window's end, what processes share \
     counted once (PSS); single processes' is what belongs to one of them alone; context switches are its processes' own (the paper's are the machine's). \
     The disk's figures are bytes, not the paper's transfers (36, 43 and 33 a second). Network and interrupts aren't told: clients, shop and server are \
     on one machine. Means of the repetitions."
        .to_owned()
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn kilobytes(bytes: f64) -> f64 {
    bytes / 1024.0
}

fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}
