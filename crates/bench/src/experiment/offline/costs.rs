//! Costs that are learned offline: "offline measurements taken in isolation" (Gatekeeper, WWW 2004, section
//! 5.1, Fig. 6).
//!
//! A gate with nothing but `state_file` learns from so few clients that hardly two requests meet. What it
//! has written at its end is a line of the results, and the state file of the variant's gates, anew for
//! each cell. With `cost = "fixed"` they never correct it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use toml::Table;

use super::{STATE_FILE, set, text};
use crate::Error;
use crate::alternate::Display;
use crate::experiment::cell::Cell;
use crate::experiment::complaint::Judge;
use crate::experiment::plan::takes::times;
use crate::experiment::plan::{Form, Load, Plan};
use crate::experiment::results::{Book, Line, Results};
use crate::experiment::runner::Laboratory;
use crate::experiment::words::Time;

/// What stands in the place of a file with what is learned of an idle service.
const IDLE: &str = "idle";

/// The clients of a service that is next to idle.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Idle {
    /// How many: so few that hardly two requests meet.
    pub clients: usize,
    /// For how long they are learned from.
    pub window: Time,
}

/// Whether a variant's costs are learned offline.
pub(super) fn is_needed(plan: &Plan, variant: &str) -> bool {
    text(plan, variant, STATE_FILE) == Some(IDLE)
}

/// Learns what a variant's gates know beforehand, if that isn't known yet.
pub(super) async fn find(
    plan: &Plan,
    form: &Form,
    variant: &str,
    file: &Path,
    laboratory: &mut impl Laboratory,
    book: &mut Book,
    display: &Display,
) -> Result<(), Error> {
    if of(book.results(), variant).is_some() {
        return Ok(());
    }
    let missing =
        || Error::Experiment(format!("{variant}: the plan doesn't say how an idle service is learned from"));
    let idle = form.idle.ok_or_else(missing)?;
    display.now(format!("{variant}: what {} clients cost", idle.clients));
    let mut learning = plan.clone();
    learning.variant.insert(variant.to_owned(), Table::new());
    set(&mut learning, variant, STATE_FILE, &file.display().to_string());
    laboratory.adopt(&learning, &Form { window: idle.window, ..form.clone() });
    let cell = Cell { variant: variant.to_owned(), load: Load::Clients(idle.clients), repetition: 0 };
    laboratory.measure(&cell, None, None).await?;
    let failed = Error::io(format!("reading what the gate has learned, in {}", file.display()));
    let document = fs::read_to_string(file).map_err(failed)?;
    book.write(Line::Costs { variant: variant.to_owned(), document })
}

/// Has a variant's next gate begin with what was learned beforehand, whatever the one before has written
/// into its file.
pub(super) fn recall(plan: &Plan, variant: &str, results: &Results) -> Result<(), Error> {
    let (Some(file), Some(document)) = (text(plan, variant, STATE_FILE), of(results, variant)) else {
        return Ok(());
    };
    fs::write(file, document).map_err(Error::io(format!("writing {file}")))
}

/// What was learned for a variant.
fn of<'a>(results: &'a Results, variant: &str) -> Option<&'a str> {
    results.lines.iter().find_map(|line| match line {
        Line::Costs { variant: whose, document } if whose == variant => Some(document.as_str()),
        _ => None,
    })
}

/// What was learned from, a sentence for each variant.
pub(super) fn told(plan: &Plan, form: &Form, results: &Results) -> Vec<String> {
    let learned = |variant: &&String| is_needed(plan, variant) && of(results, variant).is_some();
    let sentence = |variant: &String| {
        let idle = form.idle?;
        let window = humantime::format_duration(idle.window.0);
        Some(format!(
            "What `{variant}` knows of costs it has from {} clients alone in {window}.",
            idle.clients
        ))
    };
    form.variants.iter().filter(learned).filter_map(sentence).collect()
}

/// How long learning still takes, as far as is known beforehand.
pub(super) fn takes(plan: &Plan, form: &Form, results: &Results) -> Duration {
    let Some(idle) = form.idle else { return Duration::ZERO };
    let is_to_learn = |variant: &&String| is_needed(plan, variant) && of(results, variant).is_none();
    let variants = form.variants.iter().filter(is_to_learn).count();
    let once = plan.cell_takes(&Form { window: idle.window, ..form.clone() }, Load::Clients(idle.clients));
    times(once, variants)
}

/// Checks that a plan says how an idle service is learned from, where that is needed and only there.
pub(super) fn check(plan: &Plan, judge: &mut Judge<'_>) {
    for (name, form) in [("short", &plan.short), ("full", &plan.full)] {
        let path = format!("{name}.idle");
        match (form.idle, form.variants.iter().find(|variant| is_needed(plan, variant))) {
            (None, Some(variant)) => {
                let why = format!("is missing, and `{variant}` has what is learned of an idle service");
                judge.complain(&path, why, Some("write idle = { clients = 10, window = \"60s\" }"));
            }
            (Some(_), None) => {
                judge.complain(&path, "is there, and no variant has state_file = \"idle\"", None);
            }
            (Some(idle), Some(_)) if idle.clients == 0 || idle.window.0.is_zero() => {
                let key = if idle.clients == 0 { "clients" } else { "window" };
                judge.complain(&format!("{path}.{key}"), "must be more than zero", None);
            }
            _ => {}
        }
    }
}
