//! Another configuration while clients are connected: nobody loses a request, a connection in use or a place.
//!
//! Bounds that are lowered are reached as places become free. Server connections to a former address serve
//! on until a login has brought one to the new address; then they go as they are given back. Where a key of
//! a session's own is concerned (`on_disconnect`), sessions keep what they have taken, new ones take the
//! new value.

use std::sync::Arc;

use admission::{LongLimit, Policy};

use super::endpoint::Endpoint;
use super::{Settings, Shared, Status};

impl Status {
    /// The settings that hold now.
    pub fn settings(&self) -> Arc<Settings> {
        self.0.settings()
    }

    /// Changes what can change in a running gate: name, addresses of its own, mode and pooling stay as they
    /// are. To be called within the runtime.
    pub fn reload(&self, settings: Settings, policy: Policy) {
        self.0.reload(settings, policy);
    }
}

impl Shared {
    fn reload(&self, settings: Settings, policy: Policy) {
        // Held from the look to the change: an operator's RECONNECT may come at the same time.
        let mut place = self.settings.write();
        let old = Arc::clone(&place);
        let is_moved = settings.upstream != old.upstream;
        let health = if is_moved { settings.health } else { Arc::clone(&old.health) };
        let settings = Settings {
            name: old.name.clone(),
            listen: old.listen.clone(),
            pooling: old.pooling,
            observe: old.observe,
            keepalive: old.keepalive,
            lookup: old.lookup.clone(),
            health,
            generation: old.generation + u64::from(is_moved),
            ..settings
        };
        let Settings { max_clients, ask_cores, .. } = settings;
        self.classes.follow(&settings.classes);
        self.driver.name_classes(self.classes.names());
        let endpoint = Arc::new(Endpoint::new(&settings));
        *place = Arc::new(settings);
        drop(place);
        *self.endpoint.write() = Arc::clone(&endpoint);
        self.cancel.change(max_clients as usize, endpoint);
        self.clients.set(max_clients);
        let cores = self.cores.cores().filter(|_| ask_cores);
        self.driver.update_policy(|running| {
            *running = Policy { long_limit: cores.map(told).or(policy.long_limit), ..policy };
        });
        self.apply_bounds();
    }

    /// Has server connections replaced as logins bring others.
    pub(super) fn reconnect(&self) {
        let mut settings = self.settings.write();
        let renewed = Settings { generation: settings.generation + 1, ..Settings::clone(&settings) };
        *settings = Arc::new(renewed);
        drop(settings);
        self.apply_bounds();
    }

    /// The server has told its cores: hardly more long requests keep every one busy.
    pub(super) fn learn_cores(&self, cores: u32) {
        self.cores.learn(cores);
        self.driver.update_policy(|policy| {
            // Asked here, with the policy held: a reload may have set a limit meanwhile.
            if self.settings().ask_cores {
                policy.long_limit = Some(told(cores));
            }
        });
    }
}

/// The long lane's limit where the server has told its cores.
const fn told(cores: u32) -> LongLimit {
    LongLimit::Found { cores: Some(cores) }
}

/// How many logins may wait for room in the pools: half of them, so that those of other users get on
/// meanwhile.
pub(super) fn waiting_max(logins_max: u32) -> u32 {
    logins_max.div_ceil(2)
}
