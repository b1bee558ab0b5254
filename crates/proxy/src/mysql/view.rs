//! What a gate for MySQL shows of itself on the admin listener, and how it takes another configuration.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use admission::{ClassId, Policy};

use super::{Settings, Status, dial};
use crate::console::{Console, Facts, IdleServer, Mode, SessionRow, Subject};
use crate::gate::Driver;
use crate::lateness::LatenessView;
use crate::sql::stats;
use crate::upstream::health::UpstreamView;
use crate::view::{ClientsView, GateView, PoolView};

impl Status {
    /// Changes what can change in a running gate: where it listens stays as it is.
    pub fn reload(&self, settings: Settings, policy: Policy) {
        let mut place = self.0.settings.write();
        let is_moved = settings.upstream != place.upstream;
        let settings = Settings {
            name: place.name.clone(),
            listen: place.listen.clone(),
            keepalive: place.keepalive,
            observe: place.observe,
            health: if is_moved { settings.health } else { Arc::clone(&place.health) },
            ..settings
        };
        *self.0.dial.write() = dial(&settings);
        if is_moved {
            self.0.pool.leave();
            self.0.tables.forget();
            *self.0.known.write() = None;
        }
        self.0.classes.follow(&settings.classes);
        self.0.driver.name_classes(self.0.classes.names());
        *place = Arc::new(settings);
        drop(place);
        self.0.driver.update_policy(|running| *running = policy);
    }
}

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

    /// One, of all users.
    fn pools(&self) -> Vec<PoolView> {
        let (existing, idle) = self.0.pool.counts();
        let count = |count| u32::try_from(count).unwrap_or(u32::MAX);
        vec![PoolView {
            user: String::new(),
            database: String::new(),
            connections: count(existing),
            idle: count(idle),
            spare: 0,
            session_changes: Some(self.0.pool.session_changes()),
        }]
    }

    fn clients(&self) -> ClientsView {
        let asked = &self.0.auth_query;
        ClientsView {
            connected: self.0.sessions.len(),
            logging_in: usize::try_from(self.0.login_counts.logging_in.load(Ordering::Relaxed))
                .unwrap_or(usize::MAX),
            auth_queries_found: asked.found.load(Ordering::Relaxed),
            auth_queries_unknown: asked.unknown.load(Ordering::Relaxed),
            auth_queries_failed: asked.failed.load(Ordering::Relaxed),
            ..ClientsView::of(&self.0.login_counts)
        }
    }

    fn lateness(&self) -> Option<LatenessView> {
        Some(self.0.lateness.view())
    }

    fn pins(&self) -> Vec<(&'static str, u32)> {
        self.0.pins.snapshot()
    }
}

impl Subject for Status {
    fn console(&self) -> Console {
        self.0.settings().console.clone()
    }

    fn facts(&self) -> Facts {
        let settings = self.0.settings();
        Facts {
            listen: settings.listen.clone(),
            upstream: settings.upstream.clone(),
            connections: settings.connections,
            max_clients: settings.max_clients,
            mode: if settings.observe { Mode::Session } else { Mode::Transaction },
        }
    }

    fn sessions(&self) -> Vec<SessionRow> {
        self.0.sessions.rows()
    }

    fn idle_servers(&self) -> Vec<IdleServer> {
        self.0.pool.idle_servers()
    }

    /// By user and database: those in sessions' hands, and idle ones.
    fn pools_of_console(&self) -> Vec<PoolView> {
        let mut pools: BTreeMap<(String, String), PoolView> = BTreeMap::new();
        let mut add = |user: String, database: String, idle: u32| {
            let pool = pools.entry((user, database)).or_default();
            pool.connections += 1;
            pool.idle += idle;
        };
        if self.facts().mode == Mode::Transaction {
            let sessions = self.0.sessions.rows().into_iter();
            sessions
                .filter(|session| session.server.is_some())
                .for_each(|session| add(session.user, session.database, 0));
        }
        self.idle_servers().into_iter().for_each(|server| add(server.user, server.database, 1));
        let named = |((user, database), pool)| PoolView { user, database, ..pool };
        pools.into_iter().map(named).collect()
    }

    fn stats(&self) -> Vec<stats::Row> {
        self.0.stats.rows()
    }

    fn holds_up(&self, _database: Option<&str>) -> bool {
        !self.paused().is_empty()
    }

    fn end(&self, session: u64) {
        self.0.sessions.end(session);
    }

    fn reconnect(&self) {
        self.0.pool.leave();
        self.0.tables.forget();
    }
}
