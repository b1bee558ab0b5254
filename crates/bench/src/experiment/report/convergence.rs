//! How soon a gate's estimates are where they stay: a table by page, and the estimates over time as
//! multiples of their steady values.

use sim::plot::{Curve, Mark, Panel, Plot, Scale};

use super::picture::Picture;
use super::rows::Table;
use super::{Shown, rows};
use crate::experiment::convergence::{Converged, LAST, SOON, WITHIN, When, converged};
use crate::experiment::learned::Point;
use crate::experiment::pages::PAGES;
use crate::experiment::plan::Load;
use crate::stats::percentile;
use crate::table::{count, ratio, seconds};

/// Curves of one picture: more can't be told apart.
const CURVES: usize = 7;
/// A page that was executed less often in a repetition says nothing of estimates.
const FEW: u64 = 10;

/// Seconds that stand for never: percentiles between times need numbers.
const NEVER: f64 = 1e12;

/// What the repetitions of one page say.
struct Told {
    /// Executions of the shortest.
    samples: u64,
    /// Each of them.
    converged: Vec<Converged>,
}

fn told(shown: &Shown, variant: &str, load: Load, page: &str) -> Option<Told> {
    let mut told = Told { samples: u64::MAX, converged: Vec::new() };
    for measured in shown.results.repetitions(variant, load) {
        let curve =
            measured.learned.iter().find(|learned| learned.name == page).map(|learned| &learned.curve);
        let last = curve.and_then(|curve| curve.last()).map_or(0, |point| point.2);
        let Some(found) = curve.and_then(|curve| converged(curve)).filter(|_| last >= FEW) else { continue };
        told.samples = told.samples.min(last);
        told.converged.push(found);
    }
    (!told.converged.is_empty()).then_some(told)
}

/// A row for each page of each gate under each load.
pub(super) fn table(shown: &Shown) -> Table {
    let header = [
        "load",
        "variant",
        "page",
        "executions",
        "steady",
        "first within 10 %",
        "at worst",
        "after executions",
        "stays there from",
    ];
    let (mut rows, mut notes) = (Vec::new(), vec![how()]);
    for load in shown.form().loads() {
        for variant in &shown.form().variants {
            let found: Vec<(&str, Told)> = PAGES
                .iter()
                .filter_map(|page| Some((page.name, told(shown, variant, load, page.code)?)))
                .collect();
            if found.is_empty() {
                continue;
            }
            notes.push(in_a_sentence(variant, load, &found));
            rows.extend(found.iter().map(|(name, told)| row(variant, load, name, told)));
        }
    }
    let header = header.map(str::to_owned).to_vec();
    Table { title: "How soon estimates are where they stay".to_owned(), header, rows, notes }
}

fn row(variant: &str, load: Load, name: &str, told: &Told) -> Vec<String> {
    let steady: Vec<f64> = told.converged.iter().map(|found| found.steady).collect();
    let first = times(told, |found| found.first);
    let after: Vec<f64> =
        told.converged.iter().filter_map(|found| found.first).map(|when| when.samples as f64).collect();
    let stays = times(told, |found| found.stays);
    vec![
        rows::load_of(load),
        variant.to_owned(),
        name.to_owned(),
        count(told.samples as f64),
        seconds(crate::stats::mean(&steady)),
        time(percentile(&first, 0.5)),
        time(percentile(&first, 1.0)),
        if after.is_empty() { "–".to_owned() } else { count(percentile(&after, 0.5)) },
        time(percentile(&stays, 0.5)),
    ]
}

/// In each repetition, in seconds; [`NEVER`] where it never was.
fn times(told: &Told, when: fn(&Converged) -> Option<When>) -> Vec<f64> {
    told.converged.iter().map(|found| when(found).map_or(NEVER, |when| when.seconds)).collect()
}

fn time(value: f64) -> String {
    // What lies between a time and never was never there in half of the repetitions.
    if value < NEVER / 1e3 { format!("{value:.1} s") } else { "never".to_owned() }
}

fn how() -> String {
    format!(
        "Steady: the mean of the gate's estimate over the last {:.0} % of a run that began with a gate that knew nothing. First within: \
         after how long the estimate first was within {:.0} % of that (the median of the repetitions), and after how many executions of the page. \
         Stays: from when on it didn't leave it again; a moving average of few executions never stays. Pages with fewer than {FEW} executions are \
         left out. Gatekeeper (WWW 2004), section 3.1: 11 of 13 within 90 % in under {SOON:.0} s.",
        LAST * 100.0,
        WITHIN * 100.0,
    )
}

fn in_a_sentence(variant: &str, load: Load, found: &[(&str, Told)]) -> String {
    let firsts: Vec<f64> =
        found.iter().map(|(_, told)| percentile(&times(told, |found| found.first), 0.5)).collect();
    let soon = firsts.iter().filter(|&&first| first < SOON).count();
    let slowest = firsts.iter().copied().fold(0.0, f64::max);
    format!(
        "{variant} {}: {soon} of {} pages within 10 % in under {SOON:.0} s, the slowest after {}.",
        load.phrase(),
        firsts.len(),
        time(slowest)
    )
}

/// The first repetition of the first gate under the largest load, a few pages in each picture.
pub(super) fn pictures(shown: &Shown) -> Vec<(String, Picture)> {
    let Some(load) = shown.form().loads().last() else { return Vec::new() };
    let of =
        |variant: &String| shown.results.repetitions(variant, load).first().map(|cell| cell.learned.clone());
    let gates = shown.form().variants.iter().filter_map(|variant| Some((variant, of(variant)?)));
    let Some((variant, learned)) = gates.into_iter().find(|(_, learned)| !learned.is_empty()) else {
        return Vec::new();
    };
    let curves: Vec<(&str, Curve)> = PAGES
        .iter()
        .filter_map(|page| {
            let learned = learned.iter().find(|learned| learned.name == page.code)?;
            Some((page.name, relative(&learned.curve)?))
        })
        .collect();
    let length = learned.iter().filter_map(|page| page.curve.last()).map(|point| point.0).fold(0.0, f64::max);
    let pictures = curves.chunks(CURVES).enumerate().map(|(number, curves)| {
        let plot = Plot {
            title: format!("Estimates of {variant}, from a cold start"),
            subtitle: format!("{}; dotted: 10 % around the steady value, and 50 s", load.phrase()),
            variants: curves.iter().map(|(name, _)| short(name)).collect(),
            marks: None,
            axis: "seconds",
            seconds: length.max(1.0),
            panels: vec![Panel {
                title: "Estimate, as a multiple of its steady value".to_owned(),
                scale: Scale::Logarithmic,
                show: ratio,
                curves: curves.iter().map(|(_, curve)| curve.clone()).collect(),
                marks: marks(length),
            }],
        };
        (format!("{}-estimates-{}", shown.plan.name, number + 1), Picture::new(plot, Vec::new()))
    });
    pictures.collect()
}

/// A legend has room for one word of each name: `Exec Search` is `Exec S.`
fn short(name: &str) -> String {
    match name.split_once(' ') {
        Some((first, second)) => format!("{first} {}.", second.chars().next().unwrap_or_default()),
        None => name.to_owned(),
    }
}

fn marks(length: f64) -> Vec<Mark> {
    let mut marks = vec![Mark::Level(1.0 - WITHIN), Mark::Level(1.0 + WITHIN)];
    if length > SOON {
        marks.push(Mark::At(SOON));
    }
    marks
}

/// A curve over its steady value; `None` where it says nothing.
fn relative(curve: &[Point]) -> Option<Curve> {
    let steady = converged(curve).filter(|found| found.steady > 0.0)?.steady;
    curve.last().filter(|point| point.2 >= FEW)?;
    let known = curve.iter().filter(|point| point.2 > 0);
    Some(Curve { points: known.map(|point| (point.0, point.1 / steady)).collect(), band: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn when(seconds: f64) -> When {
        When { seconds, samples: 7 }
    }

    #[test]
    fn a_page_that_never_was_there_is_said_to_be_never() {
        let once = Converged { steady: 0.01, first: Some(when(2.0)), stays: None };
        let never = Converged { steady: 0.02, first: None, stays: None };
        let told = Told { samples: 40, converged: vec![once, never, once] };
        let row = row("gate", Load::Clients(3), "Home", &told);
        assert_eq!(row[3..], ["40", "13.3 ms", "2.0 s", "never", "7", "never"]);
        let sentence = in_a_sentence("gate", Load::Clients(3), &[("Home", told)]);
        assert!(
            sentence.contains("1 of 1 pages within 10 % in under 50 s, the slowest after 2.0 s"),
            "{sentence}"
        );
    }

    #[test]
    fn names_fit_a_legend() {
        assert_eq!(["Exec Search", "Home"].map(short), ["Exec S.", "Home"]);
    }
}
