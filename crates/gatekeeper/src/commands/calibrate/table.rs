//! What was measured, as text: the curve while it grows, the table at the end, and what to make of it.

use std::time::Duration;

use comfy_table::{CellAlignment, Table, presets};
use sim::search::{Found, Point, Search};

/// The longest bar, in characters.
const BAR_CHARS: usize = 48;

/// A capacity as it is written in a configuration.
pub(super) fn capacity(seconds: f64) -> String {
    // To the microsecond: the grid has two digits, and its smallest is a microsecond or more.
    let micros = (seconds * 1e6).round().max(1.0) as u64;
    humantime::format_duration(Duration::from_micros(micros)).to_string()
}

/// A line with a bar for each capacity that was tried.
pub(super) fn chart(search: &Search) -> String {
    let points = search.points();
    let highest = points.iter().map(Point::mean).fold(0.0, f64::max);
    let names: Vec<_> = points.iter().map(|point| capacity(point.setting)).collect();
    let width = names.iter().map(String::len).max().unwrap_or(0);
    let line = |(point, name): (&Point, &String)| {
        let (low, high) = point.range();
        format!(
            "{name:>width$} {:<BAR_CHARS$} {:.1}/s  {low:.1} … {high:.1} ({})",
            bar(point.mean() / highest),
            point.mean(),
            point.measurements.len()
        )
    };
    let lines: Vec<_> = points.iter().zip(&names).map(line).collect();
    lines.join("\n")
}

/// A bar of this share of the whole, to an eighth of a character.
fn bar(share: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    let eighths = (share * BAR_CHARS as f64 * 8.0).round() as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// Every capacity that was tried.
pub(super) fn of(search: &Search, in_flight: &[(usize, f64)]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["capacity", "completed/s", "lowest", "highest", "measured", "in flight"]);
    for point in search.points() {
        let (low, high) = point.range();
        table.add_row([
            capacity(point.setting),
            format!("{:.1}", point.mean()),
            format!("{low:.1}"),
            format!("{high:.1}"),
            format!("{}×", point.measurements.len()),
            format!("{:.1}", mean_of(in_flight, point.at)),
        ]);
    }
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((u16::from(index > 0) * 2, 0));
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// The mean of what was in flight with this capacity.
pub(super) fn mean_of(in_flight: &[(usize, f64)], at: usize) -> f64 {
    let of_it = || in_flight.iter().filter(|(of, _)| *of == at);
    of_it().map(|(_, count)| count).sum::<f64>() / of_it().count().max(1) as f64
}

/// What follows from it.
pub(super) fn advice(found: &Found, gate: &str, before: &str) -> String {
    let (from, to) = (capacity(found.plateau.0), capacity(found.plateau.1));
    let chosen = capacity(found.chosen);
    let mut text = if found.fell {
        let alike = if from == to {
            format!("Most is completed with {chosen}")
        } else {
            format!("From {from} to {to} the throughput is as good as the best; in the middle is {chosen}")
        };
        format!("{alike}. Write below the [[gate]] {gate:?}:\n\n    capacity = {chosen:?}\n")
    } else {
        format!(
            "No larger capacity completed clearly less, up to one that bound nothing or the largest that was tried:\n\
             this service needs none under this load. Write below the [[gate]] {gate:?}:\n\n    capacity = \"none\"\n\n\
             (From {from} on it is as good as the best.)\n"
        )
    };
    text += &format!(
        "\nMeasurements of one capacity differ by {:.1} % (standard deviation). ",
        found.spread * 100.0
    );
    if found.exhausted {
        text += "It isn't settled: there were as many\nmeasurements as were allowed (--measurements). ";
    }
    text += &format!("The capacity is {before:?} again, as before.\n");
    text
}

#[cfg(test)]
mod tests {
    use sim::search::{Measurement, Plan, Rounding};

    use super::*;

    fn measured() -> Search {
        let mut search =
            Search::new(Plan::between(0.001, 1.0, 3, Rounding::TwoDigits)).expect("a sound plan");
        for (at, throughput) in [(0, 10.0), (0, 14.0), (6, 48.0), (12, 0.0)] {
            search.record(at, Measurement { throughput, reached: true });
        }
        search
    }

    #[test]
    fn capacities_are_written_as_the_configuration_reads_them() {
        for (seconds, text) in [(0.001, "1ms"), (0.000_13, "130us"), (1.3, "1s 300ms"), (20.0, "20s")] {
            assert_eq!(capacity(seconds), text);
            let read = config::capacity(text).expect("it is read");
            let nanos = (seconds * 1e9_f64).round() as u64;
            assert_eq!(read, admission::Capacity::Fixed(admission::Work::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn the_chart_has_a_bar_for_each_capacity() {
        let chart = chart(&measured());
        let lines: Vec<_> = chart.lines().collect();
        let bars: Vec<_> = lines.iter().map(|line| line.matches('█').count()).collect();
        assert_eq!(bars, [12, BAR_CHARS, 0], "\n{chart}");
        assert!(lines[0].ends_with("12.0/s  10.0 … 14.0 (2)"), "\n{chart}");
    }

    #[test]
    fn the_table_has_a_row_for_each_capacity() {
        let table = of(&measured(), &[(0, 1.0), (0, 2.0), (6, 8.0), (12, 9.0)]);
        let rows: Vec<Vec<_>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[1], ["1ms", "12.0", "10.0", "14.0", "2×", "1.5"]);
        assert_eq!(rows.len(), 4);
    }

    #[test]
    fn the_advice_is_a_line_for_the_configuration() {
        let found = Found {
            chosen: 0.02,
            plateau: (0.01, 0.04),
            throughput: 10.0,
            fell: true,
            spread: 0.0123,
            exhausted: false,
        };
        let text = advice(&found, "shop", "auto");
        for part in ["From 10ms to 40ms", "    capacity = \"20ms\"\n", "1.2 %", "is \"auto\" again"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = advice(&Found { fell: false, exhausted: true, ..found }, "shop", "none");
        assert!(text.contains("    capacity = \"none\"\n") && text.contains("isn't settled"), "{text}");
    }
}
