//! Figures as text: numbers that people can read at a glance, and tables of them.

use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, Table, presets};

use crate::stats::Rounds;

/// Columns of a paragraph.
const PARAGRAPH_WIDTH: usize = 100;

/// A whole number with thousands separated: `12,345`.
pub fn count(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 && digits != "0" { format!("-{text}") } else { text }
}

/// A time in the unit that fits, with about three digits: `0.42 ms`, `12.3 ms`, `1.25 s`.
pub fn seconds(value: f64) -> String {
    let (scaled, unit) = if value < 1.0 { (value * 1e3, "ms") } else { (value, "s") };
    let decimals = match scaled {
        scaled if scaled < 10.0 => 2,
        scaled if scaled < 100.0 => 1,
        _ => 0,
    };
    format!("{scaled:.decimals$} {unit}")
}

/// A ratio: `2.31`, `14.2`, `1,204`.
pub fn ratio(value: f64) -> String {
    match value {
        value if !value.is_finite() => "–".to_owned(),
        value if value < 10.0 => format!("{value:.2}"),
        value if value < 100.0 => format!("{value:.1}"),
        value => count(value),
    }
}

/// A median with its spread in small: `1,483  (1,401 … 1,502)`; only the figure if there is no spread.
pub fn spread(rounds: Rounds, show: impl Fn(f64) -> String) -> String {
    let (low, high) = (show(rounds.low), show(rounds.high));
    if low == high { show(rounds.median) } else { format!("{}  ({low} … {high})", show(rounds.median)) }
}

/// Words in lines of at most 100 columns, indented by two.
pub fn paragraph(sentence: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in sentence.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= PARAGRAPH_WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("  {word}")),
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// A table under construction: a column of labels and one column per variant.
#[derive(Debug)]
pub struct Figures {
    table: Table,
    columns: usize,
}

impl Figures {
    /// Starts a table with these variants as columns.
    pub fn new(variants: &[String]) -> Self {
        let mut table = Table::new();
        table
            .load_style(presets::UTF8_HORIZONTAL_ONLY.row_separator(LineStyle::none()))
            .set_content_arrangement(ContentArrangement::Disabled);
        let mut header = vec![Cell::new("")];
        header.extend(variants.iter().map(|name| Cell::new(name).set_alignment(CellAlignment::Right)));
        table.set_header(header);
        Self { table, columns: variants.len() }
    }

    /// A heading over the rows that follow.
    pub fn heading(&mut self, text: &str) {
        let mut row = vec![Cell::new(text)];
        row.extend((0..self.columns).map(|_| Cell::new("")));
        self.table.add_row(row);
    }

    /// The table as text, two columns from the edge.
    pub fn indented(&self) -> String {
        self.to_string().lines().map(|line| format!("  {line}\n")).collect()
    }

    /// A row of one figure per variant.
    pub fn row(&mut self, label: &str, figures: impl IntoIterator<Item = String>) {
        let mut row = vec![Cell::new(label)];
        row.extend(figures.into_iter().map(|figure| Cell::new(figure).set_alignment(CellAlignment::Right)));
        self.table.add_row(row);
    }
}

impl std::fmt::Display for Figures {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.table.fmt(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable_at_a_glance() {
        assert_eq!(count(1_234_567.4), "1,234,567");
        assert_eq!(count(-0.2), "0");
        assert_eq!(count(999.0), "999");
        assert_eq!(seconds(0.000_42), "0.42 ms");
        assert_eq!(seconds(0.012_34), "12.3 ms");
        assert_eq!(seconds(1.254), "1.25 s");
        assert_eq!(ratio(2.314), "2.31");
        assert_eq!(ratio(f64::INFINITY), "–");
    }

    #[test]
    fn a_paragraph_keeps_its_words_and_its_width() {
        let words = "word ".repeat(60);
        let text = paragraph(&words);
        assert_eq!(text.split_whitespace().count(), 60);
        assert!(text.lines().all(|line| line.len() <= 100 && line.starts_with("  ")), "{text}");
    }

    #[test]
    fn a_spread_is_shown_only_if_there_is_one() {
        assert_eq!(spread(Rounds { median: 2.0, low: 1.0, high: 3.0 }, count), "2  (1 … 3)");
        assert_eq!(spread(Rounds { median: 2.0, low: 2.0, high: 2.0 }, count), "2");
    }
}
