//! What each type of request met, where that is told: means beside one another, and what of them is a multiple of direct.

use std::collections::BTreeMap;

use super::Shown;
use crate::experiment::cell::TypeFigures;
use crate::experiment::plan::Load;
use crate::table::{ratio, seconds};

/// Whom the others are compared with.
const YARDSTICK: &str = "direct";
/// Types with fewer completions than this, in all repetitions together, aren't compared.
const FEW: u64 = 30;

/// A table as texts.
pub(super) struct Types {
    pub(super) header: Vec<String>,
    pub(super) rows: Vec<Vec<String>>,
}

/// A row for each type under each load; `None` where types aren't told.
pub(super) fn types(shown: &Shown) -> Option<Types> {
    let variants = &shown.form().variants;
    let rows: Vec<Vec<String>> =
        shown.form().loads().flat_map(|load| of_load(shown, load, variants)).collect();
    if rows.is_empty() {
        return None;
    }
    let titles = ["load", "type", "completed"].map(str::to_owned);
    let header = titles.into_iter().chain(variants.iter().map(|name| format!("{name}, mean"))).collect();
    Some(Types { header, rows })
}

fn of_load(shown: &Shown, load: Load, variants: &[String]) -> Vec<Vec<String>> {
    let met: Vec<_> = variants.iter().map(|variant| means(shown, variant, load)).collect();
    let yardstick = variants.iter().position(|variant| variant == YARDSTICK).map(|at| &met[at]);
    let mut names: Vec<&String> = met.iter().flat_map(BTreeMap::keys).collect();
    names.sort_unstable();
    names.dedup();
    names
        .into_iter()
        .map(|name| {
            let least = met.iter().filter_map(|types| types.get(name)).map(|(count, _)| *count).min();
            let before = yardstick.and_then(|types| types.get(name));
            let cell = |(types, variant): (&BTreeMap<String, (u64, f64)>, &String)| match (
                types.get(name),
                before,
            ) {
                (None, _) => "–".to_owned(),
                (Some((count, mean)), Some((others, direct)))
                    if variant != YARDSTICK && (*count).min(*others) >= FEW =>
                {
                    format!("{} ({})", seconds(*mean), ratio(mean / direct))
                }
                (Some((_, mean)), _) => seconds(*mean),
            };
            let cells = met.iter().zip(variants).map(cell);
            let titles = [super::rows::load_of(load), name.clone(), least.unwrap_or(0).to_string()];
            titles.into_iter().chain(cells).collect()
        })
        .collect()
}

/// By name: how many were completed in all repetitions together, and their mean response time in seconds.
fn means(shown: &Shown, variant: &str, load: Load) -> BTreeMap<String, (u64, f64)> {
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
