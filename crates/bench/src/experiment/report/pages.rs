//! What was found of each page in all repetitions together.

use std::collections::BTreeMap;

use super::Shown;
use crate::experiment::cell::TypeFigures;
use crate::experiment::learned::LearnedPage;
use crate::experiment::plan::Load;

/// What browsers saw, by page: how many were completed, and their mean response time in seconds.
pub(super) fn seen(shown: &Shown, variant: &str, load: Load) -> BTreeMap<String, (u64, f64)> {
    let mut sums: BTreeMap<String, (u64, f64)> = BTreeMap::new();
    for measured in shown.results.repetitions(variant, load) {
        for TypeFigures { name, completed, in_time_seconds } in &measured.types {
            let (count, sum) = sums.entry(name.clone()).or_default();
            *count += completed;
            *sum += in_time_seconds * *completed as f64;
        }
    }
    sums.into_iter().map(|(name, (count, sum))| (name, (count, sum / count.max(1) as f64))).collect()
}

/// Fewer executions say nothing of how much a page varies.
const VARIED: u64 = 8;

/// What a gate found of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Found {
    /// Executions that ended in the windows.
    pub(super) completed: u64,
    /// Their mean upstream time, in seconds.
    pub(super) upstream: f64,
    /// Requests whose wait ended in the windows.
    pub(super) waited: u64,
    /// Their mean wait, in seconds.
    pub(super) wait: f64,
    /// The mean of the coefficients of variation, where they are known.
    pub(super) variation: Option<f64>,
}

/// What a gate found, by page; empty where there was no gate.
pub(super) fn found(shown: &Shown, variant: &str, load: Load) -> BTreeMap<String, Found> {
    let mut pages: BTreeMap<String, Vec<&LearnedPage>> = BTreeMap::new();
    for measured in shown.results.repetitions(variant, load) {
        for page in &measured.learned {
            pages.entry(page.name.clone()).or_default().push(page);
        }
    }
    pages.into_iter().map(|(name, pages)| (name, Found::of(&pages))).collect()
}

impl Found {
    fn of(pages: &[&LearnedPage]) -> Self {
        let upstream = pages.iter().map(|page| (page.completed, page.upstream_seconds));
        let waits = pages.iter().map(|page| (page.waited, page.wait_seconds));
        let variations: Vec<f64> =
            pages.iter().filter(|page| page.samples >= VARIED).filter_map(|page| page.variation).collect();
        let ((completed, upstream), (waited, wait)) = (weighed(upstream), weighed(waits));
        let variation = (!variations.is_empty()).then(|| crate::stats::mean(&variations));
        Self { completed, upstream, waited, wait, variation }
    }
}

/// All together, and the mean of means.
pub(super) fn weighed(parts: impl Iterator<Item = (u64, f64)>) -> (u64, f64) {
    let (count, sum) = parts.fold((0, 0.0), |(count, sum), (n, mean)| (count + n, sum + n as f64 * mean));
    (count, sum / count.max(1) as f64)
}

/// A coefficient of variation, as tables have it.
pub(super) fn variation(found: Option<Found>) -> String {
    found.and_then(|found| found.variation).map_or("–".to_owned(), |variation| format!("{variation:.2}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_count_by_their_executions() {
        let page = |completed, upstream_seconds, variation| LearnedPage {
            completed,
            upstream_seconds,
            variation,
            samples: completed + 10,
            waited: completed * 2,
            wait_seconds: upstream_seconds / 10.0,
            ..LearnedPage::default()
        };
        let found = Found::of(&[&page(30, 0.1, Some(0.5)), &page(10, 0.5, None), &page(0, 9.0, Some(0.7))]);
        assert_eq!((found.completed, found.waited), (40, 80));
        assert!((found.upstream - 0.2).abs() < 1e-9 && (found.wait - 0.02).abs() < 1e-9);
        assert!((found.variation.unwrap() - 0.6).abs() < 1e-9);
        assert_eq!(variation(Some(found)), "0.60");
        let once = LearnedPage { samples: 7, ..page(1, 0.1, Some(0.0)) };
        assert_eq!(Found::of(&[&once]).variation, None);
        assert_eq!((Found::of(&[]).upstream, variation(None)), (0.0, "–".to_owned()));
    }
}
