//! The figures of an experiment as rows of a table, for the page and for the repository.

use std::time::Duration;

use sim::Interval;

use super::Shown;
use crate::experiment::cell::{Figures, Measured};
use crate::experiment::offline;
use crate::experiment::plan::{Load, Metric, Pages, Place, Who};
use crate::experiment::results::Line;
use crate::experiment::schedule;
use crate::experiment::yardstick::Yardstick;
use crate::stats::mean;
use crate::table::{count, ratio, seconds};

/// A table as texts, beside that of the figures.
pub(super) struct Table {
    /// What it shows.
    pub(super) title: String,
    pub(super) header: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
    /// Sentences below it.
    pub(super) notes: Vec<String>,
}

/// The table of the figures as texts.
pub(super) struct Rows {
    pub(super) header: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
    /// Sentences about marks in it.
    pub(super) notes: Vec<String>,
}

/// What stands behind a variant whose client may have been the bottleneck.
const CLIENT_BOUND: &str = " †";
/// What stands behind a variant where others used the server's processor.
const DISTURBED: &str = " *";
/// What stands behind a variant where requests waited in the client.
const QUEUED: &str = " §";
/// What stands behind a variant where the server lost processes.
const KILLED: &str = " ‡";

/// A row for each variant under each load.
pub(super) fn rows(shown: &Shown) -> Rows {
    let with_bystanders = shown.results.cells().any(|(_, measured)| measured.bystanders.is_some());
    let mut header = vec![
        "load",
        "variant",
        "per second",
        "per CPU second",
        "mean, all",
        "mean, in time",
        "95 %, all",
        "not answered",
        "retries each",
        "N−X(R+Z)",
        "server busy",
    ];
    if with_bystanders {
        header.extend(["bystanders per second", "bystanders, all"]);
    }
    let visited = Visited::of(shown);
    header.extend(visited.header());
    let usual_speed = visited.yardstick.usual_speed;
    if usual_speed.is_some() {
        header.push("machine");
    }
    let mut rows = Vec::new();
    let (mut client_bound, mut disturbed, mut queued, mut killed) = (false, 0.0f64, 0.0f64, false);
    for load in shown.form().loads() {
        for variant in &shown.form().variants {
            let repetitions = shown.results.repetitions(variant, load);
            if repetitions.is_empty() {
                continue;
            }
            let mut name = variant.clone();
            let found: Vec<f64> = repetitions.iter().filter_map(|measured| measured.capacity).collect();
            if let Some(setting) = repetitions[0].pool.and_then(|pool| shown.plan.setting(variant, pool)) {
                name += &format!(" ({setting})");
            } else if let Some(pool) = repetitions[0].pool {
                name += &format!(" ({pool})");
            } else if !found.is_empty() {
                name += &format!(" (found {:.0})", mean(&found));
            } else if let Some(capacity) =
                offline::capacity_of(&shown.plan, shown.form(), &shown.results, variant)
            {
                name += &format!(" ({capacity})");
            }
            if repetitions.iter().any(|measured| measured.is_client_bound()) {
                name += CLIENT_BOUND;
                client_bound = true;
            }
            if repetitions.iter().any(|measured| measured.is_disturbed()) {
                name += DISTURBED;
                let shares = repetitions.iter().filter_map(|measured| measured.others_cpu);
                disturbed = shares.fold(disturbed, f64::max);
            }
            if repetitions.iter().any(|measured| measured.is_queued_in_client()) {
                name += QUEUED;
                let waits = repetitions.iter().filter_map(|measured| measured.client_queue_seconds);
                queued = waits.fold(queued, f64::max);
            }
            if repetitions.iter().any(|measured| !measured.alive) {
                name += KILLED;
                killed = true;
            }
            let mut called = load_of(load);
            if let Load::Busy(part) = load {
                let clients = shown.results.clients_for(part).unwrap_or_default();
                called += &format!(", {} clients", count(clients as f64));
            }
            let mut row = vec![called, name];
            row.extend(figures(&repetitions, load));
            if with_bystanders {
                let others = || repetitions.iter().filter_map(|measured| measured.bystanders);
                row.push(interval(others().map(|figures| figures.throughput), count));
                row.push(interval(others().map(|figures| figures.all_seconds), seconds));
            }
            row.extend(visited.cells(&repetitions));
            if let Some(usual) = usual_speed {
                let of = |measured: &&Measured| measured.speed.map(|speed| speed / usual);
                row.push(interval(repetitions.iter().filter_map(of), ratio));
            }
            rows.push(row);
        }
    }
    let mut notes = offline::told(&shown.plan, shown.form(), &shown.results);
    if client_bound {
        notes.push(
            "†: client and proxy used more than 0.9 of the processors that the server doesn't have, or the client's timers \
             were more than 50 ms late: the figure may be theirs rather than the server's."
                .to_owned(),
        );
    }
    if disturbed > 0.0 {
        notes.push(format!(
            "*: other programs used more than 15 % of the server's processor (at most {:.0} %): the variants took turns, so that \
             comparisons hold better than the figures themselves; a quiet machine gives steadier ones.",
            disturbed * 100.0
        ));
    }
    if usual_speed.is_some() {
        notes.push(
            "machine: what the server's processor did of a fixed computation in a second of processor time while the cell was measured, of the \
             median of all cells."
                .to_owned(),
        );
        if shown.is_judged(Metric::GoodputAtUsualSpeed) {
            notes.push("at usual speed: the goodput of each cell divided by that.".to_owned());
        }
    }
    if queued > 0.0 {
        notes.push(format!(
            "§: all of the client's own connections were taken, and one request in twenty waited there for one for more than 100 ms \
             (for {} at most): a queue in order of arrival that nothing sees that stands before the server.",
            seconds(queued)
        ));
    }
    if killed {
        let kills: u64 = shown.results.cells().map(|(_, measured)| measured.kills).sum();
        notes.push(format!(
            "‡: the server lost processes for want of memory ({kills} in all), and every session with them."
        ));
    }
    Rows { header, rows, notes }
}

/// A column: its title, its figure, of whom, and how a value is written.
type Column = (&'static str, Metric, Who, fn(f64) -> String);

/// What tables have more of a site, and where somebody refuses.
struct Visited<'a> {
    yardstick: Yardstick,
    columns: Vec<Column>,
    /// The origin, where it is told when a load had settled, and the target.
    settles: Option<(&'a Pages, Duration)>,
}

impl<'a> Visited<'a> {
    fn of(shown: &'a Shown) -> Self {
        let yardstick = Yardstick::of(&shown.results);
        let site = shown.plan.workload.site.as_ref();
        let mut columns: Vec<Column> = Vec::new();
        let origin = shown.plan.workload.origin.as_ref();
        let is_before_site = origin.is_some() || site.is_some_and(|site| site.place == Place::Site);
        let all = Who::Clients;
        let refuses = || shown.results.cells().any(|(_, measured)| measured.clients.refused > 0);
        if is_before_site || (site.is_none() && refuses()) {
            columns.push(("refused", Metric::Refused, all, percent));
        }
        if is_before_site {
            columns.push(("mean, let in", Metric::ResponseLetIn, all, seconds));
        }
        if origin.is_some() {
            columns.push(("95 %, let in", Metric::P95LetIn, all, seconds));
            columns.push(("short, let in", Metric::ResponseLetIn, Who::Short, seconds));
            columns.push(("short, 95 %", Metric::P95LetIn, Who::Short, seconds));
            columns.push(("short, answered", Metric::Answered, Who::Short, percent));
        } else if shown.results.cells().any(|(_, measured)| measured.short.is_some()) {
            columns.push(("short, mean", Metric::Response, Who::Short, seconds));
            columns.push(("short, 95 %", Metric::P95, Who::Short, seconds));
        }
        if yardstick.most.is_some() {
            columns.push(("goodput", Metric::Goodput, all, ratio));
        }
        if shown.is_judged(Metric::GoodputAtUsualSpeed) {
            columns.push(("at usual speed", Metric::GoodputAtUsualSpeed, all, ratio));
        }
        if shown.is_judged(Metric::Stretch) {
            columns.push(("errand, times alone", Metric::Stretch, all, ratio));
        }
        if shown.is_judged(Metric::EstimatedCapacity) {
            columns.push(("λ/(1−E[X]/T)", Metric::EstimatedCapacity, all, per_second));
        }
        let settles = origin.and_then(|origin| Some((origin, origin.target?.0)));
        Self { yardstick, columns, settles }
    }

    fn header(&self) -> impl Iterator<Item = &'static str> + '_ {
        let settles = self.settles.map(|_| "below twice the target after");
        self.columns.iter().map(|column| column.0).chain(settles)
    }

    fn cells(&self, repetitions: &[&Measured]) -> impl Iterator<Item = String> {
        let figures = self.columns.iter().map(|&(_, metric, who, show)| {
            let figure = |measured: &&Measured| self.yardstick.figure(measured, metric, who);
            interval(repetitions.iter().filter_map(figure), show)
        });
        let settles = self.settles.map(|(origin, target)| {
            let after = |measured: &&Measured| schedule::settles(&measured.moments, origin.calm.0, target);
            let each: Option<Vec<f64>> = repetitions.iter().map(after).collect();
            each.map_or("never".to_owned(), |each| interval(each, seconds))
        });
        figures.chain(settles)
    }
}

/// A load, as tables call it.
pub(super) fn load_of(load: Load) -> String {
    match load {
        Load::Clients(0) => "bystanders alone".to_owned(),
        Load::Clients(clients) => format!("{} clients", count(clients as f64)),
        Load::Busy(part) if part < 1.0 => format!("{:.0} % busy", part * 100.0),
        Load::Busy(part) => format!("{part}× saturation"),
        Load::Overload(factor) => format!("{factor}× offered"),
        Load::Schedule | Load::Phase(_) => load.label(),
    }
}

fn figures(repetitions: &[&Measured], load: Load) -> Vec<String> {
    let idle = load == Load::Clients(0);
    let of = |figure: fn(&Figures) -> f64| {
        repetitions.iter().map(move |measured| figure(&measured.clients)).collect::<Vec<f64>>()
    };
    let show = |figure: fn(&Figures) -> f64, show: fn(f64) -> String| {
        if idle { "–".to_owned() } else { interval(of(figure), show) }
    };
    let lost = |figures: &Figures| {
        (figures.timed_out + figures.refused + figures.failed) as f64 / figures.under_way.max(1) as f64
    };
    let retries = |figures: &Figures| {
        let completed = figures.under_way - figures.timed_out - figures.refused - figures.failed;
        figures.retries as f64 / completed.max(1) as f64
    };
    let completed_any = repetitions.iter().any(|measured| measured.clients.throughput > 0.0);
    let in_time =
        if completed_any { show(|figures| figures.in_time_seconds, seconds) } else { "–".to_owned() };
    let residual = Interval::of(
        &repetitions.iter().filter_map(|measured| measured.clients.residual).collect::<Vec<_>>(),
    );
    let busy =
        Interval::of(&repetitions.iter().filter_map(|measured| measured.server_cpu).collect::<Vec<_>>());
    let efficiency = repetitions
        .iter()
        .filter_map(|measured| measured.figure(Metric::ThroughputPerProcessor, Who::Clients));
    vec![
        show(|figures| figures.throughput, per_second),
        if idle { "–".to_owned() } else { interval(efficiency, per_second) },
        show(|figures| figures.all_seconds, seconds),
        in_time,
        show(|figures| figures.p95_seconds, seconds),
        if idle { "–".to_owned() } else { percent(Interval::of(&of(lost)).mean) },
        if idle { "–".to_owned() } else { format!("{:.2}", Interval::of(&of(retries)).mean) },
        percent(residual.mean),
        percent(busy.mean),
    ]
}

fn interval(values: impl IntoIterator<Item = f64>, show: fn(f64) -> String) -> String {
    let found = Interval::of(&values.into_iter().collect::<Vec<_>>());
    match found.half_width {
        _ if !found.mean.is_finite() => "–".to_owned(),
        // In the unit of the mean where it has one: "9.80 ± 0.20 s".
        Some(half) => match show(found.mean).rsplit_once(' ') {
            Some((value, unit)) => {
                let decimals = value.split_once('.').map_or(0, |(_, digits)| digits.len());
                let half = match unit {
                    "ms" => half * 1e3,
                    "%" => half * 1e2,
                    _ => half,
                };
                format!("{value} ± {half:.decimals$} {unit}")
            }
            None => format!("{} ± {}", show(found.mean), show(half)),
        },
        None => show(found.mean),
    }
}

/// A rate; small ones with a digit behind the point.
fn per_second(value: f64) -> String {
    if value < 20.0 { format!("{value:.1}") } else { count(value) }
}

fn percent(part: f64) -> String {
    // Not "-0".
    if part.is_finite() { format!("{:.0} %", (part * 100.0).round() + 0.0) } else { "–".to_owned() }
}

/// A site's schedule and yardstick, each with a name; nothing for an experiment without a site.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_width_has_the_unit_of_its_mean() {
        assert_eq!(interval([9.8, 9.8], seconds), "9.80 ± 0.00 s");
        assert_eq!(interval([0.040, 0.042], seconds), "41.0 ± 6.3 ms");
        assert_eq!(interval([0.90, 0.94], percent), "92 ± 13 %");
        assert_eq!(interval([1790.0, 1810.0], per_second), "1,800 ± 63");
        assert_eq!(interval([3.0], per_second), "3.0");
        assert_eq!(interval([], seconds), "–");
    }
}
