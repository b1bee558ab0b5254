//! What the tables of several commands have in common: no lines, numbers to the right, labels cut, times
//! short.

use comfy_table::{CellAlignment, Table, presets};
use proxy::admin::{ClassStatus, GoalReport};

use crate::log::is_unseen;

/// The turns of a class of a gate: its weight, and which part that is of the weights of all. The log tells a
/// move in such parts.
pub(crate) fn turns(class: &ClassStatus, all: &[ClassStatus]) -> String {
    if class.background {
        return "in the background".to_owned();
    }
    let processor = match class.processor.as_ref().map(|group| group.weight) {
        Some(Some(weight)) => format!(" (on the processor {weight})"),
        Some(None) => " (on the processor not adapted)".to_owned(),
        None => String::new(),
    };
    let sum: f64 = all.iter().filter_map(|class| class.weight).sum();
    let weight = class.weight.unwrap_or_default();
    let share = if sum > 0.0 { format!(", {:.0} % of all", weight / sum * 100.0) } else { String::new() };
    format!("weight {weight:.2}{share}{processor}")
}

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

/// A text of strangers, fit for a terminal: without what moves the cursor, names the window, or hides and
/// turns letters.
pub(super) fn clean(text: &str) -> String {
    let shown = |letter: char| match letter {
        _ if letter.is_control() => ' ',
        _ if is_unseen(letter) => '\u{fffd}',
        _ => letter,
    };
    text.chars().map(shown).collect()
}

/// A label in one line of so many characters: the end is what a fingerprint can best do without. A path with
/// a parameter can't, for that is what tells it from the others of the path.
pub(super) fn cut(label: &str, chars_max: usize) -> String {
    let one_line = clean(label);
    if one_line.chars().count() <= chars_max {
        return one_line;
    }
    let is_parameter = |end: &str| end.contains('=') && !end.contains(' ') && end.len() < chars_max - 1;
    let end = one_line.rfind('?').map_or("", |at| &one_line[at..]);
    let end = if is_parameter(end) { end } else { "" };
    one_line.chars().take(chars_max - 1 - end.chars().count()).chain(['…']).chain(end.chars()).collect()
}

/// A number of things, with the word for one or for several.
pub(crate) fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// The response time that is to be held.
pub(super) fn goal(target: &GoalReport) -> String {
    let mean = target.mean_seconds.map(|mean| format!("mean {}", time(mean)));
    let p95 = target.p95_seconds.map(|p95| format!("95 % below {}", time(p95)));
    mean.into_iter().chain(p95).collect::<Vec<_>>().join(", ")
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

/// A time beside an axis: without digits that say nothing.
pub(super) fn tick(seconds: f64) -> String {
    let (number, unit) = match seconds {
        0.0 => return "0".to_owned(),
        _ if seconds < 1e-3 => (seconds * 1e6, "µs"),
        _ if seconds < 1.0 => (seconds * 1e3, "ms"),
        _ => (seconds, "s"),
    };
    // More digits than these are the rounding of a machine.
    format!("{} {unit}", (number * 1e3).round() / 1e3)
}

/// A long time, as people say it.
pub(super) fn long_time(seconds: f64) -> String {
    match seconds {
        _ if seconds < 120.0 => format!("{seconds:.0} s"),
        _ if seconds < 7_200.0 => format!("{:.0} min", seconds / 60.0),
        _ if seconds < 172_800.0 => format!("{:.0} h", seconds / 3_600.0),
        _ => format!("{:.0} days", seconds / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_left_of_a_text() {
        let evil = "a\u{1b}]0;owned\u{7}b\u{9b}2Jc\u{202e}d\r\ne\u{7f}";
        assert_eq!(clean(evil), "a ]0;owned b 2Jc\u{fffd}d  e ");
        assert_eq!(clean("Größe → 日本"), "Größe → 日本");
    }

    #[test]
    fn a_long_label_loses_what_tells_least() {
        assert_eq!(cut("select * from item where id = ? and shop = ?", 20), "select * from item …");
        assert_eq!(
            cut("GET /wp-admin/admin-ajax.php?action=heartbeat", 30),
            "GET /wp-admi…?action=heartbeat"
        );
        assert_eq!(cut("GET /ajax?action=a-name-that-is-too-long", 20), "GET /ajax?action=a-…");
        assert_eq!(cut("GET /ajax?a=b", 20), "GET /ajax?a=b");
    }

    #[test]
    fn what_stands_beside_an_axis_has_no_padding() {
        let shown: Vec<_> =
            [0.0, 10f64.powf(-5.0), 10f64.powf(-3.0), 10f64.powf(-1.0), 1.5, 10.0, 100.0].map(tick).into();
        assert_eq!(shown, ["0", "10 µs", "1 ms", "100 ms", "1.5 s", "10 s", "100 s"]);
    }

    #[test]
    fn times_are_short_at_every_scale() {
        let shown: Vec<_> =
            [0.0, 0.000_042, 0.000_4, 0.0125, 0.25, 2.44, 250.0].into_iter().map(time).collect();
        assert_eq!(shown, ["0", "42µs", "0.40ms", "12ms", "250ms", "2.4s", "250s"]);
    }
}
