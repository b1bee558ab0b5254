//! A demonstration as a story of three screens: what happens, what is seen, why. Nothing is judged here.

use crate::table::paragraph;

/// Columns of the longest bar.
const BAR: usize = 40;
/// Columns of a curve.
const CURVE: usize = 44;
/// Columns of a name and of the space behind it.
const NAME: usize = 16;
/// What a curve is drawn with, from nothing to the most.
const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A heading with a rule.
pub(crate) fn heading(text: &str) -> String {
    let rule = "─".repeat(96_usize.saturating_sub(text.chars().count()));
    format!("\n  {text} {rule}\n\n")
}

/// A bar for each name, with its number. The longest fills the space.
pub(crate) fn bars(title: &str, show: impl Fn(f64) -> String, rows: &[(&str, f64)]) -> String {
    let most = rows.iter().map(|&(_, value)| value).fold(f64::MIN_POSITIVE, f64::max);
    let mut text = format!("  {title}\n");
    for &(name, value) in rows {
        let columns = (value / most * BAR as f64).round().max(1.0) as usize;
        text += &format!("    {name:<NAME$}{} {}\n", "█".repeat(columns), show(value));
    }
    text
}

/// A curve over time for each name, all with one scale.
pub(crate) fn curves(title: &str, show: impl Fn(f64) -> String, rows: &[(&str, Vec<f64>)]) -> String {
    let finite = |value: &f64| value.is_finite();
    let most =
        rows.iter().flat_map(|(_, values)| values).copied().filter(finite).fold(f64::MIN_POSITIVE, f64::max);
    let mut text = format!("  {title}\n");
    for (name, values) in rows {
        let columns = CURVE.min(values.len().max(1));
        let line: String = (0..columns)
            .map(|column| {
                let from = column * values.len() / columns;
                let to = ((column + 1) * values.len() / columns).max(from + 1).min(values.len());
                let here: Vec<f64> = values[from..to].iter().copied().filter(finite).collect();
                let mean = here.iter().sum::<f64>() / here.len() as f64;
                if !mean.is_finite() {
                    return ' ';
                }
                let level = (mean / most * (LEVELS.len() - 1) as f64).round() as usize;
                LEVELS[level.min(LEVELS.len() - 1)]
            })
            .collect();
        let peak = values.iter().copied().filter(finite).fold(0.0, f64::max);
        text += &format!("    {name:<NAME$}{line}  at most {}\n", show(peak));
    }
    text
}

/// Sentences, each a paragraph.
pub(crate) fn sentences(sentences: &[String]) -> String {
    sentences.iter().map(|sentence| paragraph(sentence)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_fills_the_space_and_the_others_are_in_proportion() {
        let text =
            bars("Orders", |value| format!("{value:.0}/s"), &[("direct", 100.0), ("Gatekeeper", 400.0)]);
        let lengths: Vec<usize> = text.lines().skip(1).map(|line| line.matches('█').count()).collect();
        assert_eq!(lengths, [BAR / 4, BAR]);
        assert!(text.ends_with("█ 400/s\n"), "{text}");
    }

    #[test]
    fn a_curve_has_one_scale_for_all_and_gaps_where_nothing_was_measured() {
        let rows = [("direct", vec![0.0, f64::NAN, 7.0]), ("Gatekeeper", vec![14.0, 14.0, 14.0])];
        let text = curves("Over time", |value| format!("{value:.0}"), &rows);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].contains("▁ ▅"), "{text}");
        assert!(lines[2].contains("███  at most 14"), "{text}");
    }
}
