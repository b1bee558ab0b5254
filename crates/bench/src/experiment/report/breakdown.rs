//! Where the time of a page goes: waiting in the gate's queue, being served by the database, and elsewhere,
//! as in figures 11 to 13 of *Gatekeeper* (WWW 2004), with a page that takes little, one that takes much,
//! and the average.

use std::collections::BTreeMap;

use sim::plot::{Curve, Panel, Plot, Scale};

use super::pages::{self, Found};
use super::picture::Picture;
use super::rows::Table;
use super::{Shown, rows};
use crate::experiment::pages::PAGES;
use crate::experiment::plan::Load;
use crate::table::{count, ratio, seconds};

/// The pages that are shown, as the paper's figures, and Best Sellers: here it is the one that takes much.
const SHOWN: [&str; 3] = ["SRES", "BESS", "ADMC"];
/// What the average is called.
const ALL: &str = "all pages";
/// The variants in whose rows the paper's waits stand.
const FIFO: &str = "gate-fifo";
const SJF: &str = "gate-sjf";

/// Shorter waits are drawn as this, in seconds: a logarithmic axis has no zero.
const LEAST_DRAWN: f64 = 1e-4;

/// A page's time, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Parts {
    completed: u64,
    answered: f64,
    /// What a gate tells of it.
    gate: Option<(f64, f64)>,
}

/// A row for each variant under each load, page by page.
pub(super) fn table(shown: &Shown) -> Table {
    let header = [
        "load",
        "page",
        "variant",
        "answered",
        "mean",
        "waits in the gate",
        "served",
        "elsewhere",
        "paper, waits",
    ];
    let loads: Vec<Load> = shown.form().loads().collect();
    let mut rows = Vec::new();
    let mut notes = vec![how()];
    for &load in &loads {
        let names = PAGES.iter().filter(|page| SHOWN.contains(&page.code)).map(|page| (page.code, page.name));
        for (code, name) in names.chain([(ALL, ALL)]) {
            for variant in &shown.form().variants {
                if let Some(parts) = parts(shown, variant, load, code) {
                    rows.push(row(load, (code, name), variant, &parts));
                }
            }
            let wait = |variant| wait(shown, variant, load, code);
            if let (Some(first), Some(shortest)) = (wait(FIFO), wait(SJF)) {
                notes.push(format!(
                    "{name} {}: waits {} first come first served and {} shortest first, {} times as long.",
                    load.phrase(),
                    seconds(first),
                    seconds(shortest),
                    ratio(shortest / first)
                ));
            }
        }
    }
    let header = header.map(str::to_owned).to_vec();
    Table { title: "Where the time of a page goes".to_owned(), header, rows, notes }
}

fn parts(shown: &Shown, variant: &str, load: Load, code: &str) -> Option<Parts> {
    let seen = pages::seen(shown, variant, load);
    let found = pages::found(shown, variant, load);
    let (completed, answered) = match code {
        ALL => pages::weighed(seen.values().copied()),
        _ => *seen.get(code)?,
    };
    let gate = match code {
        ALL => together(&found, completed),
        _ => found.get(code).filter(|page| page.completed > 0).map(|page| (page.wait, page.upstream)),
    };
    (completed > 0).then_some(Parts { completed, answered, gate })
}

/// The waits over the loads, a panel for each page; none where there is no wait to draw, or one load only.
pub(super) fn pictures(shown: &Shown) -> Vec<(String, Picture)> {
    let loads: Vec<Load> = shown.form().loads().collect();
    let waits = |variant: &&String| loads.iter().any(|&load| wait(shown, variant, load, ALL).is_some());
    let variants: Vec<String> = shown.form().variants.iter().filter(waits).cloned().collect();
    if variants.is_empty() || loads.len() < 2 {
        return Vec::new();
    }
    let panel = |(code, name): (&str, &str)| {
        let curve = |variant: &String| {
            let point = |(at, &load): (usize, &Load)| {
                Some((at as f64, wait(shown, variant, load, code)?.max(LEAST_DRAWN)))
            };
            Curve { points: loads.iter().enumerate().filter_map(point).collect(), band: Vec::new() }
        };
        let curves = variants.iter().map(curve).collect();
        let title = format!("Mean wait in the gate: {name}");
        Panel::new(title, Scale::Logarithmic, seconds, curves)
    };
    let names = PAGES.iter().filter(|page| SHOWN.contains(&page.code)).map(|page| (page.code, page.name));
    let plot = Plot {
        title: "Waits by order of service".to_owned(),
        subtitle: "means of the repetitions; what waits less than 0.1 ms is drawn there".to_owned(),
        variants: variants.clone(),
        marks: None,
        axis: "clients",
        seconds: (loads.len() - 1) as f64,
        panels: names.chain([(ALL, ALL)]).map(panel).collect(),
    };
    let labels = loads.iter().enumerate().map(|(at, load)| (at as f64, load.label())).collect();
    vec![(format!("{}-waits", shown.plan.name), Picture::new(plot, labels))]
}

/// The mean wait in a gate, in seconds.
fn wait(shown: &Shown, variant: &str, load: Load, code: &str) -> Option<f64> {
    Some(parts(shown, variant, load, code)?.gate?.0)
}

/// The means over all pages: those that ask nothing of the database count as well, with nothing.
fn together(found: &BTreeMap<String, Found>, pages: u64) -> Option<(f64, f64)> {
    if found.is_empty() {
        return None;
    }
    let waits: f64 = found.values().map(|page| page.waited as f64 * page.wait).sum();
    let served: f64 = found.values().map(|page| page.completed as f64 * page.upstream).sum();
    let asked: u64 = found.values().map(|page| page.waited).sum();
    let all = asked.max(pages).max(1) as f64;
    Some((waits / all, served / all))
}

fn row(load: Load, (code, name): (&str, &str), variant: &str, parts: &Parts) -> Vec<String> {
    let mut row = vec![rows::load_of(load), name.to_owned(), variant.to_owned()];
    row.push(count(parts.completed as f64));
    row.push(seconds(parts.answered));
    match parts.gate {
        Some((wait, served)) => {
            row.extend([wait, served, (parts.answered - wait - served).max(0.0)].map(seconds));
        }
        None => row.extend(["–"; 3].map(str::to_owned)),
    }
    row.push(paper(code, variant).to_owned());
    row
}

/// What the paper says of waits (section 5.2).
fn paper(code: &str, variant: &str) -> &'static str {
    match (code, variant) {
        ("SRES", FIFO) => "over 8 s",
        ("SRES", SJF) => "99 ms",
        ("ADMC", FIFO) => "12.9 s",
        ("ADMC", SJF) => "15.6 s",
        (ALL, FIFO) => "8.86 s",
        (ALL, SJF) => "225 ms",
        _ => "–",
    }
}

fn how() -> String {
    "Answered, mean: what browsers saw of the pages that came in time. Waits and served are the gate's own figures of all that ended a wait or an execution within the \
     window; elsewhere is the rest: the shop and its pool of connections, and the difference between those requests. Direct, what waits is in the database and can't be told apart. \
     Paper: Gatekeeper (WWW 2004), section 5.2."
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_counts_pages_that_ask_nothing_of_the_database() {
        let page = |completed, upstream, wait| Found {
            completed,
            upstream,
            waited: completed,
            wait,
            variation: None,
        };
        let found = BTreeMap::from([
            ("BESS".to_owned(), page(10, 0.5, 1.0)),
            ("HOME".to_owned(), page(30, 0.1, 0.2)),
        ]);
        // 16 s of waiting and 8 s of service over 80 pages.
        let (wait, served) = together(&found, 80).unwrap();
        assert!((wait - 0.2).abs() < 1e-9 && (served - 0.1).abs() < 1e-9);
        assert_eq!(together(&BTreeMap::new(), 80), None);
    }

    #[test]
    fn what_is_neither_wait_nor_service_is_elsewhere() {
        let parts = Parts { completed: 1_200, answered: 0.5, gate: Some((0.3, 0.15)) };
        let row = row(Load::Clients(400), ("SRES", "Exec Search"), "gate-sjf", &parts);
        assert_eq!(row[3..], ["1,200", "500 ms", "300 ms", "150 ms", "50.0 ms", "99 ms"]);
        let direct =
            super::row(Load::Clients(400), ("SRES", "Exec Search"), "direct", &Parts { gate: None, ..parts });
        assert_eq!(direct[4..], ["500 ms", "–", "–", "–", "–"]);
    }

    #[test]
    fn every_page_that_is_shown_is_one() {
        let known: Vec<&str> = PAGES.iter().map(|page| page.code).collect();
        assert!(SHOWN.iter().all(|code| known.contains(code)));
    }
}
