//! A site's schedule and yardstick, beside the figures of its cells.

use super::Shown;
use crate::experiment::results::Line;
use crate::experiment::schedule;
use crate::experiment::yardstick::Yardstick;
use crate::table::seconds;

/// Each with a name; nothing for an experiment without a site.
pub(super) fn facts(shown: &Shown) -> Vec<(&'static str, String)> {
    let Some(site) = &shown.plan.workload.site else { return Vec::new() };
    let mut facts = Vec::new();
    let steps = &shown.form().schedule;
    if !steps.is_empty() {
        facts.push(("schedule", schedule::described(steps, &site.mix)));
    }
    let alone = shown.results.lines.iter().rev().find_map(|line| match line {
        Line::Alone { types } => Some(types),
        _ => None,
    });
    if let Some(types) = alone {
        let pages = types
            .iter()
            .map(|page| format!("{} {} ({})", page.name, seconds(page.in_time_seconds), page.completed));
        let pages: Vec<String> = pages.collect();
        facts.push(("pages alone", format!("{} (in brackets: how many were seen)", pages.join(", "))));
    }
    let busy = shown.results.lines.iter().filter_map(|line| match line {
        Line::Busy { clients, throughput, .. } => Some(format!("{clients} browsers {throughput:.1} pages/s")),
        _ => None,
    });
    let busy: Vec<String> = busy.collect();
    if let Some(most) = Yardstick::of(&shown.results).most {
        facts.push((
            "the most",
            format!(
                "{}: at most {most:.2} s of such work per second, which is a goodput of 1",
                busy.join(", ")
            ),
        ));
    }
    facts
}
