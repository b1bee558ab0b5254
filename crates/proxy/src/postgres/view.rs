//! What a PostgreSQL gate shows of itself on the admin listener.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use admission::ClassId;

use super::{PoolSnapshot, Status};
use crate::console::Subject as _;
use crate::gate::Driver;
use crate::lateness::LatenessView;
use crate::upstream::health::UpstreamView;
use crate::view::{CeilingView, ClientsView, GateView, PoolView};

impl GateView for Status {
    fn driver(&self) -> Option<&Driver> {
        Some(&self.0.driver)
    }

    fn mode(&self) -> &'static str {
        if self.0.settings().observe { "observe" } else { "enforce" }
    }

    fn listen(&self) -> String {
        self.0.settings().listen.to_string()
    }

    fn upstream(&self) -> String {
        self.0.settings().upstream.to_string()
    }

    fn class_name(&self, class: ClassId) -> Option<Arc<str>> {
        self.0.classes.name(class)
    }

    fn upstreams(&self) -> Vec<UpstreamView> {
        let settings = self.0.settings();
        vec![settings.health.view(&settings.upstream)]
    }

    fn pools(&self) -> Vec<PoolView> {
        let view = |pool: PoolSnapshot| PoolView {
            user: pool.user,
            database: pool.database,
            connections: pool.connections,
            idle: pool.idle,
            spare: u32::from(pool.has_spare),
            session_changes: Some(pool.session_changes),
        };
        Self::pools(self).into_iter().map(view).collect()
    }

    fn paused(&self) -> Vec<String> {
        self.0.pools.paused().names()
    }

    fn pause(&self, database: Option<&str>) -> Result<(), String> {
        self.hold_up(database).map_err(|failure| failure.message)
    }

    fn resume(&self, database: Option<&str>) -> Result<(), String> {
        self.let_go(database).map_err(|failure| failure.message)
    }

    fn in_flight_of(&self, database: Option<&str>) -> usize {
        self.0.driver.in_flight_of(self.0.pools.pools_of(database))
    }

    fn ceiling(&self) -> Option<CeilingView> {
        self.0.ceiling_view()
    }

    fn lateness(&self) -> Option<LatenessView> {
        Some(self.0.lateness.view())
    }

    fn pins(&self) -> Vec<(&'static str, u32)> {
        self.0.pins.snapshot()
    }

    fn clients(&self) -> ClientsView {
        ClientsView {
            connected: usize::try_from(Self::clients(self)).unwrap_or(usize::MAX),
            logging_in: self.0.logins.taken() as usize,
            auth_queries_found: self.0.auth_query.found.load(Ordering::Relaxed),
            auth_queries_unknown: self.0.auth_query.unknown.load(Ordering::Relaxed),
            auth_queries_failed: self.0.auth_query.failed.load(Ordering::Relaxed),
            openings_succeeded: self.0.openings.succeeded.load(Ordering::Relaxed),
            openings_failed: self.0.openings.failed.load(Ordering::Relaxed),
            ..ClientsView::of(&self.0.login_counts)
        }
    }
}
