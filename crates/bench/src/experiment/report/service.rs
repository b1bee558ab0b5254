//! What each page takes of the database, beside Table 1 of *Gatekeeper* (WWW 2004): the least load is its
//! "no load", the largest its "high load".

use std::collections::BTreeMap;

use super::pages::{self, Found};
use super::rows::Table;
use super::{Shown, rows};
use crate::experiment::pages::{PAGES, Page};
use crate::experiment::plan::Load;
use crate::table::{count, ratio, seconds};

/// A row for each page under each load.
pub(super) fn table(shown: &Shown) -> Table {
    let form = shown.form();
    let loads: Vec<Load> = form.loads().collect();
    let rows = loads.iter().enumerate().flat_map(|(index, &load)| {
        let place = match index {
            0 => Place::Idle,
            _ if index + 1 == loads.len() => Place::Peak,
            _ => Place::Between,
        };
        of_load(shown, load, place)
    });
    let mut header = ["load", "page", "requests", "of all", "of the work"].map(str::to_owned).to_vec();
    for variant in &form.variants {
        if is_gate(shown, variant) {
            header.extend([format!("{variant}, served in"), format!("{variant}, CV")]);
        } else {
            header.push(format!("{variant}, answered in"));
        }
    }
    header.extend(["paper, served in", "paper, of all"].map(str::to_owned));
    Table {
        title: "What each page takes of the database".to_owned(),
        header,
        rows: rows.collect(),
        notes: notes(shown, &loads),
    }
}

/// Which column of the paper's table a load is compared with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Idle,
    Between,
    Peak,
}

/// Whether a variant is a gate that measured pages.
fn is_gate(shown: &Shown, variant: &str) -> bool {
    shown.results.cells().any(|(cell, measured)| cell.variant == variant && !measured.learned.is_empty())
}

fn of_load(shown: &Shown, load: Load, place: Place) -> Vec<Vec<String>> {
    let variants = &shown.form().variants;
    let found: Vec<BTreeMap<String, Found>> =
        variants.iter().map(|variant| pages::found(shown, variant, load)).collect();
    let seen: Vec<BTreeMap<String, (u64, f64)>> =
        variants.iter().map(|variant| pages::seen(shown, variant, load)).collect();
    // Counts and shares are of the last gate's.
    let Some(last) = found.iter().rev().find(|found| !found.is_empty()) else { return Vec::new() };
    let requests: u64 = last.values().map(|page| page.completed).sum();
    let work: f64 = last.values().map(work_of).sum();
    let row = |page: &Page| {
        let own = last.get(page.code).copied().unwrap_or_default();
        if own.completed == 0 {
            return None;
        }
        let mut row = vec![rows::load_of(load), page.name.to_owned(), count(own.completed as f64)];
        row.push(share(own.completed as f64 / requests.max(1) as f64));
        row.push(share(work_of(&own) / work.max(f64::MIN_POSITIVE)));
        for (variant, (found, seen)) in variants.iter().zip(found.iter().zip(&seen)) {
            if is_gate(shown, variant) {
                let found = found.get(page.code).copied().filter(|found| found.completed > 0);
                row.push(found.map_or("–".to_owned(), |found| seconds(found.upstream)));
                row.push(pages::variation(found));
            } else {
                row.push(seen.get(page.code).map_or("–".to_owned(), |(_, mean)| seconds(*mean)));
            }
        }
        let paper = page.paper.map(|paper| match place {
            Place::Idle => (Some(paper.idle), paper.share),
            Place::Between => (None, paper.share),
            Place::Peak => (Some(paper.peak), paper.share),
        });
        row.push(paper.and_then(|(time, _)| time).map_or("–".to_owned(), seconds));
        row.push(paper.map_or("–".to_owned(), |(_, part)| share(part)));
        Some(row)
    };
    PAGES.iter().filter_map(row).collect()
}

fn work_of(found: &Found) -> f64 {
    found.completed as f64 * found.upstream
}

/// A part as a percentage with the digits that rare pages need.
fn share(part: f64) -> String {
    let percent = part * 100.0;
    if percent < 1.0 { format!("{percent:.2} %") } else { format!("{percent:.1} %") }
}

/// What the paper observes, as figures: how far pages are from one another and how far executions of one
/// page, and what load does.
fn notes(shown: &Shown, loads: &[Load]) -> Vec<String> {
    let mut notes = vec![
        "Served in: the mean upstream time, from a page's first statement sent to its last answer received, as the gate \
         measures it within the window; answered in: the mean response time that browsers see, with the shop's own work. CV: \
         standard deviation over mean of what executions take without what sharing the server adds. Requests and shares are of \
         the last variant. Paper: Table 1 of Gatekeeper (WWW 2004), without load and at peak."
            .to_owned(),
    ];
    let (Some(&idle), Some(&peak)) = (loads.first(), loads.last()) else { return notes };
    for variant in shown.form().variants.iter().filter(|variant| is_gate(shown, variant)) {
        let [idle, peak] = [idle, peak].map(|load| {
            let mut found = pages::found(shown, variant, load);
            found.retain(|_, page| page.completed > 0 && page.upstream > 0.0);
            found
        });
        let means: Vec<f64> = peak.values().map(|page| page.upstream).collect();
        let least = means.iter().copied().fold(f64::INFINITY, f64::min);
        let most = means.iter().copied().fold(0.0, f64::max);
        let varied = peak.values().filter_map(|page| page.variation).fold(f64::NAN, f64::max);
        let grown: Vec<f64> =
            peak.iter().filter_map(|(name, page)| Some(page.upstream / idle.get(name)?.upstream)).collect();
        if means.is_empty() || grown.is_empty() {
            continue;
        }
        let growth = crate::stats::percentile(&grown, 0.5);
        notes.push(format!(
            "{variant}: at the largest load the slowest page takes {} times as long as the fastest, and the largest CV within a page is \
             {}; the median page takes {} times as long as at the least load.",
            ratio(most / least),
            ratio(varied),
            ratio(growth)
        ));
    }
    notes
}
