//! The rows of the table, and a picture of each load.

use sim::plot::{Panel, Plot, Scale};

use super::{Case, Cell};
use crate::table::{count, ratio, seconds};
use crate::turns::{Row, Section};

pub(super) const ROWS: &[Row<Cell>] = &[
    Row::compared("mean response time", |cell| cell.mean, seconds),
    Row::compared("mean of all, the lost at what was waited", |cell| cell.mean_of_all, seconds),
    Row::new("C²", |cell| cell.squared_variation, ratio),
    Row::new("slowdown", |cell| cell.slowdown, ratio),
    Row::new("time to the first byte", |cell| cell.first_byte, seconds),
    Row::new("half within", |cell| cell.quantiles[0], seconds),
    Row::new("99 % within", |cell| cell.quantiles[2], seconds),
    Row::new("up to 1 KB", |cell| cell.by_size[0], seconds),
    Row::new("up to 10 KB", |cell| cell.by_size[1], seconds),
    Row::new("up to 100 KB", |cell| cell.by_size[2], seconds),
    Row::new("above", |cell| cell.by_size[3], seconds),
    Row::new("largest 1 %", |cell| cell.largest, seconds),
    Row::new("the largest", |cell| cell.very_largest, seconds),
    Row::new("slowest of these, in times of a fair link", |cell| cell.slowest_of_largest()[0], ratio),
    Row::new("in times of the slowest run of that link", |cell| cell.slowest_of_largest()[1], ratio),
    Row::new("of these incomplete", |cell| 100.0 * cell.incomplete_of_largest(), percent),
    Row::new("incomplete", |cell| 100.0 * cell.incomplete, percent),
    Row::new("most connections", |cell| cell.connections as f64, count),
    Row::new("connections refused", |cell| cell.refused as f64, count),
    Row::new("packets dropped", |cell| cell.dropped as f64, count),
    Row::new(
        "MB sent while requests came",
        |cell| cell.sent as f64 / 1e6,
        |megabytes| format!("{megabytes:.2}"),
    ),
    Row::new(
        "MB of memory of the gate",
        |cell| cell.memory as f64 / 1e6,
        |megabytes| format!("{megabytes:.0}"),
    ),
    Row::new("processor time for each response", |cell| cell.cost, micros),
    Row::new("mean, simulated", |cell| cell.simulated, seconds),
    Row::new("mean of all, simulated", |cell| cell.simulated_of_all, seconds),
    Row::new("incomplete, simulated", |cell| 100.0 * cell.simulated_incomplete, percent),
    Row::new("mean over that of an order that knows all", |cell| cell.mean / cell.clairvoyant, ratio),
    Row::new("client late (99th percentile)", |cell| cell.late[0], seconds),
];

fn percent(percent: f64) -> String {
    format!("{percent:.2} %")
}

fn micros(seconds: f64) -> String {
    format!("{:.0} µs", seconds * 1e6)
}

/// The first round of a load.
pub(super) fn plot(case: &Case, section: &Section<Cell>, variants: &[&str]) -> Plot {
    let curves = |points: fn(&Cell) -> Vec<(f64, f64)>| {
        section.curves(|cell| {
            let within = |point: &(f64, f64)| point.0 <= case.seconds as f64 && point.1.is_finite();
            points(cell).into_iter().filter(within).collect()
        })
    };
    Plot {
        title: format!("{}, setup {}: a link of 10 Mbit/s", case.load, case.setup),
        subtitle: "one run; the mean of those sent in each second, as far as they had ended".to_owned(),
        variants: variants.iter().map(|&name| name.to_owned()).collect(),
        marks: None,
        axis: "seconds",
        seconds: case.seconds as f64,
        panels: vec![
            Panel::new(
                "Mean response time",
                Scale::Logarithmic,
                seconds,
                curves(|cell| {
                    cell.over_time.iter().enumerate().map(|(at, times)| (at as f64, times[0])).collect()
                }),
            ),
            Panel::new(
                "Connections at the server",
                Scale::Linear,
                count,
                curves(|cell| {
                    let all = cell.connections_over_time.iter().enumerate();
                    all.map(|(at, &connections)| (at as f64, connections as f64)).collect()
                }),
            ),
            Panel::new(
                "Memory of the gate",
                Scale::Linear,
                |bytes| format!("{:.0} MB", bytes / 1e6),
                curves(|cell| {
                    let all = cell.memory_over_time.iter().enumerate();
                    all.map(|(at, &bytes)| (at as f64, bytes as f64)).collect()
                }),
            ),
        ],
    }
}
