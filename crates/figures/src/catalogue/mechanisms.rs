//! What each mechanism of the default gate is worth: every row with the mechanism off, alone.

use admission::{Capacity, Mechanism, Policy};

use super::cell::{self, Cell};
use super::row::{Row, Seeds, Variant};
use crate::error::Error;
use crate::results::Progress;

/// The gates that are run without each mechanism.
const GATES: [&str; 3] = ["postgres", "http", "target"];
/// The smallest part of the row's best answers with which a gate is run again. The few answers of a gate
/// that has collapsed are chance, and say nothing of a mechanism.
const SERVED_MIN: f64 = 0.1;

/// How a policy loses a mechanism.
type Off = fn(&mut Policy);

/// The mechanisms of the default policy: what each is called, and how a policy loses it.
pub(super) const MECHANISMS: [(&str, Off); 7] = [
    ("long lane", |policy| policy.long_limit = None),
    ("bypass", |policy| policy.without = Mechanism::Bypass.into()),
    ("leavers", |policy| policy.without = Mechanism::Leavers.into()),
    ("hoarding", |policy| policy.without = Mechanism::Hoarding.into()),
    ("newcomers first", |policy| policy.without = Mechanism::NewcomersFirst.into()),
    ("capacity search", |policy| {
        if matches!(policy.capacity, Capacity::Found(_)) {
            policy.capacity = Capacity::Unlimited;
        }
    }),
    ("scouts", |policy| policy.without = Mechanism::Scouts.into()),
];

/// What a gate loses in a row without a mechanism.
#[derive(Clone, Debug)]
pub struct Loss {
    /// The mechanism that is off, by its name.
    pub mechanism: &'static str,
    /// The row's name.
    pub row: String,
    /// The gate's name.
    pub gate: String,
    /// The gate with its defaults.
    pub with: Cell,
    /// The gate without the mechanism.
    pub without: Cell,
}

impl Loss {
    /// How many times as many answers the gate gives with the mechanism.
    pub fn in_answers(&self) -> f64 {
        self.with.shown(|of| of.served) / self.without.shown(|of| of.served)
    }

    /// How many times as long the mean over all requests is without the mechanism.
    pub fn in_mean(&self) -> f64 {
        self.without.shown(|of| of.mean) / self.with.shown(|of| of.mean)
    }
}

/// Runs the default gates of every row without each mechanism, with the held-out seeds. `cells` has the
/// results with all mechanisms.
///
/// # Errors
/// A run that failed.
pub fn without(rows: &[Row], cells: &[Vec<Cell>], progress: &Progress) -> Result<Vec<Loss>, Error> {
    let (mut plan, mut places) = (Vec::new(), Vec::new());
    for (row, cells) in rows.iter().zip(cells) {
        let served = |cell: &Cell| cell.shown(|of| of.served);
        let best = cells.iter().map(served).fold(0.0, f64::max);
        let stands = |cell: &Cell| served(cell) >= SERVED_MIN * best;
        let gates = row.variants().zip(cells);
        for (variant, with) in
            gates.filter(|(variant, cell)| GATES.contains(&&variant.name[..]) && stands(cell))
        {
            for (mechanism, off) in MECHANISMS {
                let mut policy = variant.policy.clone();
                off(&mut policy);
                places.push((mechanism, row.name.clone(), variant.name.clone(), with.clone()));
                plan.push((row, Variant { policy, ..variant.clone() }));
            }
        }
    }
    let found = cell::play(&plan, &[Seeds::HeldOut], progress)?;
    let each = places.into_iter().zip(found);
    Ok(each
        .map(|((mechanism, row, gate, with), without)| Loss { mechanism, row, gate, with, without })
        .collect())
}
