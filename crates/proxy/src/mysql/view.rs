//! What a gate for MySQL shows of itself on the admin listener, and how it takes another configuration.

use std::sync::Arc;

use admission::{ClassId, Policy};

use super::{Settings, Status, dial};
use crate::admin::{ClientsView, GateView, LatenessView, PoolView, UpstreamView};
use crate::gate::Driver;

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
        }]
    }

    fn clients(&self) -> ClientsView {
        ClientsView { connected: self.0.sessions.len(), ..ClientsView::of(&self.0.login_counts) }
    }

    fn lateness(&self) -> Option<LatenessView> {
        Some(self.0.lateness.view())
    }

    fn pins(&self) -> Vec<(&'static str, u32)> {
        self.0.pins.snapshot()
    }
}
