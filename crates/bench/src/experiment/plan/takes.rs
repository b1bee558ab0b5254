//! How long a plan takes, as far as is known beforehand: what `bench list` says, and what bounds its forms.

use std::time::Duration;

use super::{Audit, Connect, Form, Load, OPEN_PROXIED, Plan, has_best};
use crate::experiment::{offline, schedule};

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
        let pools = if form.pools.len() > 1 { form.pools.len() } else { 0 };
        let searched = form.variants.iter().filter(|variant| has_best(variant)).count() * pools;
        let most = form.clients.iter().copied().max().unwrap_or(OPEN_PROXIED);
        let calibrated = form
            .calibrate
            .iter()
            .flat_map(|calibrate| &calibrate.clients)
            .chain(self.workload.site.iter().filter(|_| form.calibrate.is_some()).map(|_| &1))
            .map(|&clients| self.cell_takes(form, Load::Clients(clients)));
        let once = together(form.runs().map(|load| self.cell_takes(form, load)));
        let cells = times(once, form.variants.len()).saturating_mul(form.repetitions);
        let search = times(self.cell_takes(form, Load::Clients(most)), searched);
        let offline = offline::takes(self, form);
        together([SET_UP, self.filling_takes(form), together(calibrated), search, offline, cells])
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
            _ if self.workload.connect == Connect::ForEachRequest => 0,
            Load::Clients(clients) => clients,
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
