//! A table of the request types: their means beside one another, as multiples of direct's, and how much a
//! gate found each to vary.

use std::collections::BTreeMap;

use super::{Shown, pages};
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
    let mut header: Vec<String> =
        titles.into_iter().chain(variants.iter().map(|name| format!("{name}, mean"))).collect();
    header.extend(measurer(shown).map(|variant| format!("CV ({variant})")));
    Some(Types { header, rows })
}

/// The gate whose coefficients of variation are told: the default one, or the first that measured any.
fn measurer(shown: &Shown) -> Option<&str> {
    let variants = &shown.form().variants;
    let has = |variant: &&String| {
        let mut cells = shown.results.cells().filter(|(cell, _)| cell.variant == **variant);
        cells.any(|(_, measured)| !measured.learned.is_empty())
    };
    let own = variants.iter().find(|variant| variant.as_str() == "gate").filter(has);
    own.or_else(|| variants.iter().find(has)).map(String::as_str)
}

fn of_load(shown: &Shown, load: Load, variants: &[String]) -> Vec<Vec<String>> {
    let met: Vec<_> = variants.iter().map(|variant| pages::seen(shown, variant, load)).collect();
    let yardstick = variants.iter().position(|variant| variant == YARDSTICK).map(|at| &met[at]);
    let varied = measurer(shown).map(|variant| pages::found(shown, variant, load));
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
            let varied = varied.iter().map(|found| pages::variation(found.get(name).copied()));
            titles.into_iter().chain(cells).chain(varied).collect()
        })
        .collect()
}
