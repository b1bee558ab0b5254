//! The page of the catalogue: the table, the goals that are missed, and what each mechanism is worth.

use std::fmt::Write as _;

use scenario::FIXED_GATE;

use super::cell::Cell;
use super::mechanisms::{Loss, MECHANISMS};
use super::row::Row;
use super::verdict::{Miss, misses};

/// The columns: a gate's name in the files, and its heading.
const COLUMNS: [(&str, &str); 5] = [
    (scenario::WITHOUT_GATE, "no gate"),
    (FIXED_GATE, "best fixed"),
    ("postgres", "before PostgreSQL (72)"),
    ("http", "before HTTP (200)"),
    ("target", "with a target"),
];
/// The smallest loss that is named.
const LOSS_MIN: f64 = 1.05;
/// How many rows are named for a mechanism.
const NAMED_MAX: usize = 5;

/// The page.
pub fn page(rows: &[Row], cells: &[Vec<Cell>], losses: &[Loss]) -> String {
    let missed: Vec<Miss> = rows.iter().zip(cells).flat_map(|(row, cells)| misses(row, cells)).collect();
    let mut page = HEAD.to_owned();
    page += &table(rows, cells, &missed);
    page += &scenarios(rows);
    page += &missed_goals(&missed);
    if !losses.is_empty() {
        page += &worth(losses);
    }
    page
}

fn table(rows: &[Row], cells: &[Vec<Cell>], missed: &[Miss]) -> String {
    let headings = COLUMNS.map(|(_, heading)| heading).join(" | ");
    let mut text = format!("| row | {headings} | goals |\n|---|{}---|\n", "---|".repeat(COLUMNS.len()));
    for (row, cells) in rows.iter().zip(cells) {
        let names: Vec<String> = row.variants().map(|variant| variant.name).collect();
        let column = |(gate, _)| match names.iter().position(|name| name == gate) {
            None => "–".to_owned(),
            Some(at) => {
                let misses = missed.iter().any(|miss| miss.row == row.name && miss.gate == gate);
                let bold = if misses { "**" } else { "" };
                format!("{bold}{}{bold}", called(gate, row) + &figures(&cells[at], row))
            }
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {} | {} | {} |", row.name, COLUMNS.map(column).join(" | "), goals(row));
    }
    text
}

/// Which number is fixed.
fn called(gate: &str, row: &Row) -> String {
    let number = row.fixed_number().filter(|_| gate == FIXED_GATE);
    number.map_or(String::new(), |fixed| format!("{}: ", fixed.policy.connections))
}

/// A cell as text: the mean, the answers, and what was lost.
fn figures(cell: &Cell, row: &Row) -> String {
    let mut text = format!("{}, {}/s", time(cell.shown(|of| of.mean)), count(cell.shown(|of| of.served)));
    let part = |part: f64, what: &str| {
        if part >= 0.0005 { format!(", {:.1} % {what}", part * 100.0) } else { String::new() }
    };
    text += &part(cell.shown(|of| of.gave_up), "gave up");
    text += &part(cell.shown(|of| of.refused), "refused");
    if row.goal.whole_of_ungated.or(row.goal.whole_of_fixed).is_some() {
        text += &format!(", {:.1} % whole", cell.shown(|of| of.whole) * 100.0);
    }
    for (kind, _) in &row.goal.means {
        text += &format!(", {} {}", row.types()[*kind], time(cell.shown(|of| of.types[*kind])));
    }
    text
}

/// What the row's file asks for, by the keys of its `[goal]`.
fn goals(row: &Row) -> String {
    let goal = &row.goal;
    let asked = [
        ("mean_of_ungated", goal.mean_of_ungated),
        ("mean_of_fixed", goal.mean_of_fixed),
        ("served_of_ungated", goal.served_of_ungated),
        ("served_of_fixed", goal.served_of_fixed),
        ("whole_of_ungated", goal.whole_of_ungated),
        ("whole_of_fixed", goal.whole_of_fixed),
        ("lost", goal.lost),
    ];
    let asked = asked.into_iter().filter_map(|(key, value)| Some(format!("`{key}` {}", value?)));
    let means = goal.means.iter();
    let means = means.map(|(kind, most)| format!("`means.{}` {} s", row.types()[*kind], most.as_secs_f64()));
    asked.chain(means).collect::<Vec<_>>().join(", ")
}

/// What each file is about: the first sentence of its comment, without the row's number.
fn scenarios(rows: &[Row]) -> String {
    let mut text = "\n## The scenarios\n\n".to_owned();
    let mut file = "";
    for row in rows {
        if row.file != file {
            file = &row.file;
            let about = row.about.split_once(": ").map_or(&*row.about, |(_, about)| about);
            let about = about.split(". ").next().unwrap_or(about).trim_end_matches('.');
            let _ = writeln!(text, "- [{file}](../../scenarios/catalogue/{file}.toml): {about}");
        }
    }
    text
}

/// The goals that are missed, a line for each gate of a row.
fn missed_goals(missed: &[Miss]) -> String {
    let mut text = format!("\n## Goals that are missed: {}\n\n", missed.len());
    text += "| row | gate | goal, found (asked) |\n|---|---|---|\n";
    for of_one in missed.chunk_by(|one, next| one.row == next.row && one.gate == next.gate) {
        let each = of_one.iter().map(|Miss { goal, asked, found, .. }| {
            let found = figure(*found);
            format!("`{goal}` {found} ({asked})")
        });
        let each = each.collect::<Vec<_>>().join(", ");
        let _ = writeln!(text, "| {} | {} | {each} |", of_one[0].row, of_one[0].gate);
    }
    text
}

/// What each mechanism is worth, by the rows in which it is worth most.
fn worth(losses: &[Loss]) -> String {
    let mut text = WORTH.to_owned();
    for (mechanism, _) in MECHANISMS {
        let of_it: Vec<&Loss> = losses.iter().filter(|loss| loss.mechanism == mechanism).collect();
        let (lost, gained) = (named(&of_it, factor), named(&of_it, |loss| 1.0 / factor(loss)));
        let _ = writeln!(text, "| {} | {} | {lost} | {gained} |", mechanism, of_it.len());
    }
    text
}

/// How many times worse the gate is without the mechanism: in answers where their number changes, else in the
/// mean.
fn factor(loss: &Loss) -> f64 {
    let answers = loss.in_answers();
    if (answers - 1.0).abs() > (LOSS_MIN - 1.0) / 2.0 { answers } else { loss.in_mean() }
}

fn named(losses: &[&Loss], by: impl Fn(&Loss) -> f64) -> String {
    let mut found: Vec<(f64, &&Loss)> = losses.iter().map(|loss| (by(loss), loss)).collect();
    found.retain(|(factor, _)| *factor > LOSS_MIN);
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    if found.is_empty() {
        return "nowhere".to_owned();
    }
    let more = found.len().saturating_sub(NAMED_MAX);
    let each = found.iter().take(NAMED_MAX);
    let each = each.map(|(factor, loss)| format!("{}, {}: {}", loss.row, loss.gate, figure(*factor)));
    let mut text = each.collect::<Vec<_>>().join("; ");
    if more > 0 {
        text += &format!("; and {more} more");
    }
    text
}

/// Seconds as text.
fn time(seconds: f64) -> String {
    match seconds {
        seconds if !seconds.is_finite() => "–".to_owned(),
        seconds if seconds < 0.1 => format!("{:.1} ms", seconds * 1e3),
        seconds if seconds < 1.0 => format!("{:.0} ms", seconds * 1e3),
        seconds => format!("{seconds:.1} s"),
    }
}

fn count(number: f64) -> String {
    if number < 100.0 { format!("{number:.1}") } else { format!("{number:.0}") }
}

fn figure(number: f64) -> String {
    match number {
        number if !number.is_finite() => "∞".to_owned(),
        number if number >= 100.0 => format!("{number:.0}"),
        number if number >= 10.0 => format!("{number:.1}"),
        number => format!("{number:.3}"),
    }
}

const HEAD: &str = "# The catalogue

<!-- Written by `make catalogue`. -->

Simulated: scenarios in which a gate does harm or good. All gates of a row meet the same requests. A cell has
the mean over all requests and the answers per second. A request that is refused or given up counts in the
mean with its client's wait. An answer to a client that has left doesn't count. Bold cells miss a goal.

*Best fixed*: the default gate with the best known pool size, which it doesn't change; in row 10 with a fixed
limit on long requests. *Before PostgreSQL*, *before HTTP*: the gate without settings, with the connections
that are in brackets. *With a target*: with the `target` of the row's file.

Nothing is tuned on these seeds. A goal is met when these seeds and the file's seeds meet it
([what each goal means](../reference/scenario.md#goal)). In every row the mean of each type must be at most
ten times its mean without a gate (`slower`). The directory `catalogue` has each gate's trajectory.

";

const WORTH: &str = "
## What each mechanism is worth

Each default gate runs again with one mechanism off. The factor says how many times worse it is then: in
answers per second where they change by more than 2.5 %, otherwise in the mean over all requests. So it omits
what a mechanism does for one type at the cost of others, as the bypass does for long requests. Not shown are
factors up to 1.05 and gates with less than a tenth of the best answers in their row.

| mechanism | cells | worse without it | better without it |
|---|---|---|---|
";
