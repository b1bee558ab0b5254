//! What is found by experiment before the cells are measured, once, and written down: keys of a variant's
//! gate that a plan doesn't give a value.
//!
//! * `capacity = "calibrated"`: the capacity that completes the most under the most clients
//!   (`capacity.rs`); with `"calibrated as NAME"` that of another variant, as the Gatekeeper paper has one
//!   for all orders.
//! * `state_file = "idle"`: what a gate learns of costs while next to nothing is asked for (`costs.rs`),
//!   the paper's *offline* estimates.
//!
//! The laboratory never sees those words: it is given a plan with what was found in their place.

mod capacity;
mod costs;

use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;
use toml::Value;

use super::complaint::Judge;
use super::plan::{Form, Load, Plan};
use super::results::{Book, Results};
use super::runner::Laboratory;
use crate::Error;
use crate::alternate::Display;

pub use self::capacity::CapacitySearch;
pub use self::costs::Idle;

/// The key of a capacity.
const CAPACITY: &str = "capacity";
/// The key of what was learned.
const STATE_FILE: &str = "state_file";

/// Finds what variants need, and tells the laboratory.
pub(super) struct Offline<'a> {
    plan: &'a Plan,
    form: &'a Form,
    /// Of files that a gate reads; made when one is needed.
    directory: Option<TempDir>,
}

impl<'a> Offline<'a> {
    pub(super) const fn new(plan: &'a Plan, form: &'a Form) -> Self {
        Self { plan, form, directory: None }
    }

    /// Finds what a variant needs and isn't known yet, and has the laboratory measure with it from now on.
    pub(super) async fn prepare(
        &mut self,
        variant: &str,
        laboratory: &mut impl Laboratory,
        book: &mut Book,
        display: &Display,
    ) -> Result<(), Error> {
        let mut plan = self.plan.clone();
        let whose = capacity::source(self.plan, variant);
        for needs in whose.into_iter().chain([variant]).filter(|name| costs::is_needed(self.plan, name)) {
            let file = self.file(needs)?;
            costs::find(self.plan, self.form, needs, &file, laboratory, book, display).await?;
            set(&mut plan, needs, STATE_FILE, &file.display().to_string());
        }
        if let Some(whose) = whose {
            let found = capacity::find(&plan, self.form, whose, laboratory, book, display).await?;
            set(&mut plan, variant, CAPACITY, &found);
        }
        // Behind a search, whose gates have written into the file what they have learned themselves.
        costs::recall(&plan, variant, book.results())?;
        laboratory.adopt(&plan, self.form);
        Ok(())
    }

    /// The file of what a variant has learned.
    fn file(&mut self, variant: &str) -> Result<PathBuf, Error> {
        let directory = match self.directory.take() {
            Some(directory) => directory,
            None => tempfile::Builder::new()
                .prefix("offline-")
                .tempdir()
                .map_err(Error::io("creating a temporary directory"))?,
        };
        Ok(self.directory.insert(directory).path().join(format!("{variant}.json")))
    }
}

/// Gives a key of a variant's gate a value.
fn set(plan: &mut Plan, variant: &str, key: &str, value: &str) {
    let keys = plan.variant.entry(variant.to_owned()).or_default();
    keys.insert(key.to_owned(), Value::String(value.to_owned()));
}

/// A key of a variant's gate, if it is a text.
fn text<'a>(plan: &'a Plan, variant: &str, key: &str) -> Option<&'a str> {
    plan.variant.get(variant)?.get(key)?.as_str()
}

/// Checks what a plan leaves to experiment.
pub(super) fn check(plan: &Plan, judge: &mut Judge<'_>) {
    capacity::check(plan, judge);
    costs::check(plan, judge);
}

/// How long finding takes at most what these results don't have, as far as is known beforehand.
pub(super) fn takes(plan: &Plan, form: &Form, results: &Results) -> Duration {
    capacity::takes(plan, form, results).saturating_add(costs::takes(plan, form, results))
}

/// The capacity that a variant was given, if one was looked for.
pub(super) fn capacity_of(plan: &Plan, form: &Form, results: &Results, variant: &str) -> Option<String> {
    capacity::settled(form, results, capacity::source(plan, variant)?)
}

/// What was found, a sentence each.
pub(super) fn told(plan: &Plan, form: &Form, results: &Results) -> Vec<String> {
    capacity::told(plan, form, results).into_iter().chain(costs::told(plan, form, results)).collect()
}

/// The most clients of a form's closed loop.
fn most(form: &Form, results: &Results) -> Load {
    Load::Clients(results.most_clients(form))
}

#[cfg(test)]
mod tests;
