//! What one scrape reads: the state of everything, once, so that no metric contradicts another.

use std::fmt;
use std::sync::Arc;

use admission::{ClassSnapshot, Snapshot};

use super::shown::{Series, Shown};
use crate::gate::Driver;
use crate::groups::ProcessorStatus;
use crate::lateness::LatenessView;
use crate::memory::MemoryView;
use crate::observe::Totals;
use crate::upstream::health::UpstreamView;
use crate::view::{CeilingView, ClientsView, GateView, PoolView, UplinkReport, named_classes};

/// One scrape: the state of everything, read once.
pub(crate) struct Scrape {
    pub(super) process: ProcessScrape,
    pub(super) gates: Vec<GateScrape>,
}

impl fmt::Debug for Scrape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Scrape").field("gates", &self.gates.len()).finish_non_exhaustive()
    }
}

impl Scrape {
    /// Reads the gates. At most `types_max` types of each have series of their own, and `shown` knows which.
    pub(crate) fn of(
        process: ProcessScrape,
        gates: &[Arc<dyn GateView>],
        shown: &Shown,
        types_max: usize,
    ) -> Self {
        let scrape = |gate: &dyn GateView, snapshot: Snapshot| GateScrape {
            name: gate.name().to_owned(),
            mode: gate.mode(),
            classes: named_classes(gate, &snapshot),
            processors: processors(gate, &snapshot),
            snapshot,
            totals: gate.totals(),
            trace_lost: gate.trace_lost(),
            types: shown.of(gate.name(), &gate.types(), types_max),
            upstreams: by_address(gate.upstreams()),
            pools: by_user_and_database(gate.pools()),
            pins: gate.pins(),
            paused: !gate.paused().is_empty(),
            passes_everything: gate.driver().is_some_and(Driver::passes_everything),
            own_answers: gate.own_answers(),
            clients: gate.clients(),
            ceiling: gate.ceiling(),
            lateness: gate.lateness(),
            uplink: gate.uplink(),
        };
        let gates = gates.iter().map(|gate| scrape(gate.as_ref(), gate.snapshot()));
        Self { process, gates: gates.collect() }
    }
}

/// The process as one scrape sees it.
pub(crate) struct ProcessScrape {
    pub(crate) version: &'static str,
    pub(crate) ready: bool,
    pub(crate) uptime_seconds: f64,
    pub(crate) memory: MemoryView,
    pub(crate) reloads: ReloadsView,
}

/// How often the configuration was read again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReloadsView {
    pub(crate) succeeded: u64,
    /// It was wrong, and nothing has changed.
    pub(crate) failed: u64,
    /// The last time it was.
    pub(crate) failed_last: bool,
}

/// The control groups of classes, by the class's name.
fn processors(gate: &dyn GateView, snapshot: &Snapshot) -> Vec<(Arc<str>, ProcessorStatus)> {
    let classes = named_classes(gate, snapshot).into_iter();
    classes.filter_map(|(name, class)| Some((name, gate.processor(class.class)?))).collect()
}

/// The pools of one user and database together. They differ by start-up parameters, which are no labels,
/// while two series must differ in their labels.
fn by_user_and_database(mut pools: Vec<PoolView>) -> Vec<PoolView> {
    pools.sort_by(|a, b| (&a.user, &a.database).cmp(&(&b.user, &b.database)));
    pools.dedup_by(|pool, kept| {
        let is_same = (&pool.user, &pool.database) == (&kept.user, &kept.database);
        if is_same {
            kept.connections = kept.connections.saturating_add(pool.connections);
            kept.idle = kept.idle.saturating_add(pool.idle);
            kept.session_changes
                .iter_mut()
                .zip(pool.session_changes)
                .for_each(|(all, session_changes)| *all += session_changes);
        }
        is_same
    });
    pools
}

/// An address may be named twice, which must not give two series with the same labels.
fn by_address(mut upstreams: Vec<UpstreamView>) -> Vec<UpstreamView> {
    upstreams.sort_by(|a, b| a.address.cmp(&b.address));
    upstreams.dedup_by(|a, b| a.address == b.address);
    upstreams
}

/// A gate as one scrape sees it.
pub(super) struct GateScrape {
    pub(super) name: String,
    pub(super) mode: &'static str,
    pub(super) snapshot: Snapshot,
    /// The service classes by name, where there are several.
    pub(super) classes: Vec<(Arc<str>, ClassSnapshot)>,
    /// The control groups of classes, by the class's name.
    pub(super) processors: Vec<(Arc<str>, ProcessorStatus)>,
    pub(super) totals: Totals,
    pub(super) trace_lost: Option<u64>,
    /// The types with series of their own, and `other`.
    pub(super) types: Vec<Series>,
    /// One for each address.
    pub(super) upstreams: Vec<UpstreamView>,
    /// One for each user and database.
    pub(super) pools: Vec<PoolView>,
    pub(super) pins: Vec<(&'static str, u32)>,
    /// Whether an operator holds anything up.
    pub(super) paused: bool,
    /// Whether an operator lets everything pass.
    pub(super) passes_everything: bool,
    pub(super) own_answers: Vec<(&'static str, u64)>,
    pub(super) clients: ClientsView,
    pub(super) ceiling: Option<CeilingView>,
    pub(super) lateness: Option<LatenessView>,
    pub(super) uplink: Option<UplinkReport>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::SessionChangesView;

    #[test]
    fn pools_of_one_user_and_database_are_one_series() {
        let pool = |user: &str, connections, idle| PoolView {
            user: user.to_owned(),
            database: "shop".to_owned(),
            connections,
            idle,
            spare: 0,
            session_changes: Some(SessionChangesView { reset_total: 1, unreset_total: u64::from(idle) }),
        };
        let merged = by_user_and_database(vec![pool("app", 3, 1), pool("admin", 1, 1), pool("app", 4, 2)]);
        let session_changes = Some(SessionChangesView { reset_total: 2, unreset_total: 3 });
        assert_eq!(merged, [pool("admin", 1, 1), PoolView { session_changes, ..pool("app", 7, 3) }]);
    }
}
