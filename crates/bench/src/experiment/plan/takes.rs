//! How long a plan takes, as far as is known beforehand: what `bench list` and `bench run` say, and what bounds its forms.

use std::time::Duration;

use super::{Audit, Connect, Form, Load, OPEN_PROXIED, Plan, has_best};
use crate::experiment::cell::Cell;
use crate::experiment::results::Results;
use crate::experiment::{busy, offline, schedule};

/// How long starting the server and filling its tables takes, as far as is known beforehand.
const SET_UP: Duration = Duration::from_secs(5);
/// How long filling a site takes for each browser that it is filled for, and how long looking at its books does.
const FILLING: Duration = Duration::from_millis(50);
/// How long everything around one cell takes beside its connections.
const AROUND: Duration = Duration::from_millis(600);
/// How long one connection takes to be opened.
const CONNECTION: Duration = Duration::from_millis(2);

impl Plan {
    /// How long a form takes, as far as is known beforehand.
    pub fn takes(&self, form: &Form) -> Duration {
        let meet = |load: Load| {
            let meet = form.variants.iter().filter(|variant| form.offers(variant, load)).count();
            u32::try_from(meet).unwrap_or(u32::MAX)
        };
        let once: Duration = form.runs().map(|load| self.cell_takes(form, load) * meet(load)).sum();
        self.begins_after(form, &Results::default()) + once * form.repetitions
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
        let cells: Duration = missing.iter().map(|cell| self.cell_takes(form, cell.load)).sum();
        self.begins_after(&part, results) + cells
    }

    /// How long everything before the cells takes, and looking at a site's books after them: what is to be found, and isn't
    /// in the results yet.
    fn begins_after(&self, form: &Form, results: &Results) -> Duration {
        let is_sought =
            |variant: &&String| form.pools.len() > 1 && has_best(variant) && results.pool(variant).is_none();
        let searches = form.variants.iter().filter(is_sought).count() * form.pools.len();
        let most = form.clients.iter().copied().max().unwrap_or(OPEN_PROXIED);
        let search = self.cell_takes(form, Load::Clients(most)) * u32::try_from(searches).unwrap_or(u32::MAX);
        let of_a_site = self.workload.site.is_some();
        let needs_calibration = (of_a_site || !form.overload.is_empty()) && results.calibrated().is_none();
        let calibrated: Duration = form
            .calibrate
            .iter()
            .filter(|_| needs_calibration)
            .flat_map(|calibrate| calibrate.clients.iter().copied().chain(of_a_site.then_some(1)))
            .map(|clients| self.cell_takes(form, Load::Clients(clients)))
            .sum();
        let probes = u32::try_from(busy::TRIED_MAX).unwrap_or(u32::MAX);
        let looked_for: Duration = form
            .busy
            .iter()
            .filter(|&&part| results.clients_for(part).is_none())
            .map(|&part| self.cell_takes(form, Load::Busy(part)) * probes)
            .sum();
        let offline = offline::takes(self, form, results);
        SET_UP + self.filling_takes(form) + calibrated + looked_for + search + offline
    }

    fn filling_takes(&self, form: &Form) -> Duration {
        let Some(site) = &self.workload.site else { return Duration::ZERO };
        let filling = FILLING * form.filled_for.unwrap_or(site.browsers);
        match site.audit {
            Audit::AfterEachCell => filling,
            Audit::AtTheEnd => filling * 2,
        }
    }

    /// How long one cell takes, as far as is known beforehand.
    pub fn cell_takes(&self, form: &Form, load: Load) -> Duration {
        let connections = match load {
            _ if self.workload.connect == Connect::ForEachRequest => 0,
            Load::Clients(clients) => clients,
            Load::Busy(_) => self.workload.site.as_ref().map_or(OPEN_PROXIED, |site| site.browsers as usize),
            Load::Overload(_) => OPEN_PROXIED,
            Load::Schedule | Load::Phase(_) => schedule::browsers(&form.schedule),
        };
        let after = match load {
            Load::Overload(_) => self.workload.timeout.0,
            _ => form.drain.0,
        };
        let lasts = match load {
            Load::Schedule | Load::Phase(_) => schedule::lasts(&form.schedule),
            _ => form.warm_up.0.saturating_add(form.window.0),
        };
        let opening = CONNECTION * u32::try_from(connections).unwrap_or(u32::MAX);
        AROUND.saturating_add(opening).saturating_add(lasts).saturating_add(after)
    }
}
