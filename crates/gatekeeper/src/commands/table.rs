//! What the tables of several commands have in common: no lines, numbers to the right, labels cut, times
//! short.

use comfy_table::{CellAlignment, Table, presets};

/// A table without lines.
pub(super) fn plain() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table
}

/// A table as text: so many columns to the left, the others to the right.
pub(super) fn lines(table: &mut Table, left: usize) -> String {
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding(if index < left { (0, 1) } else { (1, 0) });
        if index >= left {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// A label in one line of so many characters: the end is what a fingerprint can best do without.
pub(super) fn cut(label: &str, chars_max: usize) -> String {
    let one_line: String =
        label.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    if one_line.chars().count() <= chars_max {
        return one_line;
    }
    one_line.chars().take(chars_max - 1).chain(['…']).collect()
}

/// A time with two or three digits and its unit.
pub(super) fn time(seconds: f64) -> String {
    let millis = seconds * 1e3;
    match millis {
        _ if !seconds.is_finite() => "–".to_owned(),
        0.0 => "0".to_owned(),
        _ if millis < 0.1 => format!("{:.0}µs", millis * 1e3),
        _ if millis < 10.0 => format!("{millis:.2}ms"),
        _ if millis < 1000.0 => format!("{millis:.0}ms"),
        _ if seconds < 100.0 => format!("{seconds:.1}s"),
        _ => format!("{seconds:.0}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short_at_every_scale() {
        let shown: Vec<_> =
            [0.0, 0.000_042, 0.000_4, 0.0125, 0.25, 2.44, 250.0].into_iter().map(time).collect();
        assert_eq!(shown, ["0", "42µs", "0.40ms", "12ms", "250ms", "2.4s", "250s"]);
    }
}
