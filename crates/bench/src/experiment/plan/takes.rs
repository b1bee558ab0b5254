//! How long a plan takes, as far as is known beforehand: what `bench list` and `bench run` say, and what
//! bounds its forms.

use std::time::Duration;

use super::{Audit, Connect, Form, Load, OPEN_PROXIED, Plan, has_best};
use crate::experiment::cell::Cell;
use crate::experiment::results::Results;
use crate::experiment::{busy, offline, schedule};

/// How long starting the server and filling its tables takes, as far as is known beforehand.
const SET_UP: Duration = Duration::from_secs(5);
/// How long filling a site takes for each browser that it is filled for, and how long looking at its books
/// does.
const FILLING: Duration = Duration::from_millis(50);
/// How long everything around one cell takes beside its connections.
const AROUND: Duration = Duration::from_millis(600);
/// How long one connection takes to be opened.
const CONNECTION: Duration = Duration::from_millis(2);

impl Plan {
    /// How long a form takes, as far as is known beforehand.
    pub fn takes(&self, form: &Form) -> Duration {
        let meet = |load: Load| form.variants.iter().filter(|variant| form.offers(variant, load)).count();
        let once = together(form.runs().map(|load| times(self.cell_takes(form, load), meet(load))));
        together([self.begins_after(form, &Results::default()), once.saturating_mul(form.repetitions)])
    }

    /// How long it takes to measure these cells of a form where these results are there already.
    pub fn left(&self, form: &Form, missing: &[Cell], results: &Results) -> Duration {
        let is_missing = |variant: &String| missing.iter().any(|cell| cell.variant == *variant);
        let mut part = form.clone();
        part.variants.retain(is_missing);
        if !missing.iter().any(|cell| matches!(cell.load, Load::Overload(_))) {
            part.overload.clear();
        }
        part.busy.retain(|&part| missing.iter().any(|cell| cell.load == Load::Busy(part)));
        let cells = missing.iter().map(|cell| self.cell_takes(form, cell.load));
        together([self.begins_after(&part, results), together(cells)])
    }

    /// How long everything before the cells takes, and looking at a site's books after them: what is to be
    /// found, and isn't in the results yet.
    fn begins_after(&self, form: &Form, results: &Results) -> Duration {
        let is_sought =
            |variant: &&String| form.pools.len() > 1 && has_best(variant) && results.pool(variant).is_none();
        let searches = form.variants.iter().filter(is_sought).count() * form.pools.len();
        let most = form.clients.iter().copied().max().unwrap_or(OPEN_PROXIED);
        let search = times(self.cell_takes(form, Load::Clients(most)), searches);
        let settings = |variant: &String| match (self.peer.get(variant), results.setting(variant)) {
            (Some(settings), None) => settings.len(),
            _ => 0,
        };
        let tried = self.workload.origin.as_ref().map_or(Duration::ZERO, |origin| {
            let count = form.variants.iter().map(settings).sum();
            times(self.cell_takes(form, Load::Overload(origin.tried_at)), count)
        });
        let of_a_site = self.workload.site.is_some();
        let needs_calibration = (of_a_site || !form.overload.is_empty()) && results.calibrated().is_none();
        let calibrated = form
            .calibrate
            .iter()
            .filter(|_| needs_calibration)
            .flat_map(|calibrate| calibrate.clients.iter().copied().chain(of_a_site.then_some(1)))
            .map(|clients| self.cell_takes(form, Load::Clients(clients)));
        let unknown = form.busy.iter().filter(|&&part| results.clients_for(part).is_none());
        let mut sought: Vec<f64> = unknown.map(|&part| busy::sought(part)).collect();
        sought.sort_by(f64::total_cmp);
        sought.dedup();
        let looked_for =
            sought.into_iter().map(|part| times(self.cell_takes(form, Load::Busy(part)), busy::TRIED_MAX));
        let offline = offline::takes(self, form, results);
        let found = [together(calibrated), together(looked_for), search, tried, offline];
        together([SET_UP, self.filling_takes(form), together(found)])
    }

    fn filling_takes(&self, form: &Form) -> Duration {
        let Some(site) = &self.workload.site else { return Duration::ZERO };
        let filling = FILLING.saturating_mul(form.filled_for.unwrap_or(site.browsers));
        match site.audit {
            Audit::AfterEachCell => filling,
            Audit::AtTheEnd => filling.saturating_mul(2),
        }
    }

    /// How long one cell takes, as far as is known beforehand.
    pub fn cell_takes(&self, form: &Form, load: Load) -> Duration {
        let connections = match load {
            _ if self.workload.connect == Connect::ForEachRequest || self.workload.origin.is_some() => 0,
            Load::Clients(clients) => clients,
            Load::Busy(_) => self.workload.site.as_ref().map_or(OPEN_PROXIED, |site| site.browsers as usize),
            Load::Overload(_) => OPEN_PROXIED,
            Load::Schedule | Load::Phase(_) => schedule::browsers(&form.schedule),
        };
        let calm = self.workload.origin.as_ref().map_or(Duration::ZERO, |origin| origin.calm.0);
        let after = match load {
            // Nobody waits for long below saturation.
            Load::Overload(factor) if factor < 1.0 && !calm.is_zero() => form.drain.0,
            Load::Overload(_) => self.workload.timeout.0,
            _ => form.drain.0,
        };
        let lasts = match load {
            Load::Schedule | Load::Phase(_) => schedule::lasts(&form.schedule),
            _ => calm.saturating_add(form.warm_up.0).saturating_add(form.window.0),
        };
        let opening = times(CONNECTION, connections);
        AROUND.saturating_add(opening).saturating_add(lasts).saturating_add(after)
    }
}

/// One after the other; however long a plan says that something takes, it is no more than a duration holds.
pub(in crate::experiment) fn together(parts: impl IntoIterator<Item = Duration>) -> Duration {
    parts.into_iter().fold(Duration::ZERO, Duration::saturating_add)
}

/// So often, likewise.
pub(in crate::experiment) fn times(once: Duration, often: usize) -> Duration {
    once.saturating_mul(u32::try_from(often).unwrap_or(u32::MAX))
}
