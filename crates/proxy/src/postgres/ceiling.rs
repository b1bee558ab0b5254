//! `connections = "auto"`: how many server connections a gate may have, found by asking the server.
//!
//! The server tells how many connections it allows, and which of them others hold ([`ask`]). The gate takes
//! a part of what others leave ([`part`]): of `free` connections at least three and at least a quarter stay
//! free. They are for logins in progress, for another gate, and for an administrator's `psql`. Two gates
//! before one server so settle near three sevenths each: with 97 connections at 42 and 41, with 7 at 3 and 1.
//!
//! ```text
//! Nothing ──answer──► Told ◄──answer── Refused
//!    │                 └──── 53300 ──────►┘
//!    └──no answer──► Silent: the number that the gate began with
//! ```
//!
//! The server is asked when a connection is opened anyway, at most once a second unless many were opened,
//! and every minute over an idle connection. A refused connection (SQLSTATE 53300) lowers the ceiling by a
//! quarter at once, one time until the next answer. Limits of roles and of databases bound their own pools
//! ([`super::pool`]).
//!
//! Fails where a pooler stands between the gate and the server: its connections aren't the gate's. The gate
//! sees that by the process id, and keeps the number that it began with.

use std::sync::Arc;
use std::time::Duration;

use admission::Policy;
use parking_lot::Mutex;

use tokio::time::{Instant, MissedTickBehavior, interval};
use wire::postgres::backend::parse_error;

use super::pool::{Keep, Limits, SPARES_MAX};
use super::processes::Ours;
use super::server::Server;
use super::{MAINTENANCE_PERIOD, Settings, Shared};
use crate::view::CeilingView;
use ask::{Room, ask};
pub(crate) use refused::Exhausted;
use refused::TOO_MANY;

pub(crate) mod ask;
mod refused;

/// At least so many connections stay free.
const LEFT_MIN: u32 = 3;
/// One in so many free connections stays free.
const LEFT_PART: u32 = 4;
/// One in so many of the gate's connections is to prepare on.
const SPARES_PART: u32 = 8;
/// No gate takes more, whatever the server allows: file descriptors are counted at the start. A number may
/// be larger.
pub const FOUND_CONNECTIONS_MAX: u32 = 1_000;
/// A ceiling that differs by at most one in so many from the last one isn't logged.
const NEWS_PART: u32 = 16;
/// An answer of this age isn't asked for again by logins.
const FRESH: Duration = Duration::from_secs(1);
/// How often the server is asked though no connection is opened.
const PERIOD: Duration = Duration::from_secs(60);
/// The longest that the server may take to tell over an idle connection: longer than any stall that clients
/// bear.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// What else follows the number of connections where that is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The most pinned connections, where the operator has said so; half of all otherwise.
    pub pinned_max: Option<u32>,
}

impl Finding {
    /// Changes a policy to so many connections.
    fn resize(&self, policy: &mut Policy, connections: u32) {
        policy.connections = connections;
        policy.pinned_max = self.pinned_max.unwrap_or(connections / 2).min(connections).max(1);
    }
}

/// What of `free` connections a gate takes.
pub(crate) fn part(free: u32) -> u32 {
    let left = LEFT_MIN.max(free.div_ceil(LEFT_PART));
    free.saturating_sub(left).clamp(1, FOUND_CONNECTIONS_MAX)
}

/// How many of them are spare ones of pools.
pub(crate) fn spares(taken: u32) -> u32 {
    (taken / SPARES_PART).min(SPARES_MAX as u32)
}

#[derive(Debug, Default)]
enum Knowledge {
    /// Nobody was asked yet.
    #[default]
    Nothing,
    /// The server can't tell; asked then.
    Silent { at: Instant, why: &'static str },
    /// The server told this then, when the gate had so many connections.
    Told { room: Room, at: Instant, total: u32 },
    /// The server has refused a connection since the last answer.
    Refused { connections: u32 },
}

/// What a gate knows of its ceiling.
#[derive(Debug, Default)]
pub(crate) struct Ceiling {
    knowledge: Mutex<Knowledge>,
    pub(crate) ours: Arc<Ours>,
    /// Held while bounds are told to all pools that keep them, and has what the log was told last.
    applying: Mutex<Option<u32>>,
    refused: tokio::sync::Notify,
}

impl Ceiling {
    /// Whether a fresh connection is to ask: nothing is known, or what is known is no longer true. The gate
    /// has `total` connections now; `is_known`: the limits of the connection's pool are known.
    fn is_due(&self, total: u32, is_known: bool) -> bool {
        match &*self.knowledge.lock() {
            Knowledge::Nothing | Knowledge::Refused { .. } => true,
            Knowledge::Silent { at, .. } => at.elapsed() >= PERIOD,
            Knowledge::Told { room, at, total: then } => {
                let many = (room.left() / LEFT_PART).max(1);
                !is_known || at.elapsed() >= FRESH || total >= then.saturating_add(many)
            }
        }
    }

    /// Whether an idle connection is to ask.
    fn is_overdue(&self) -> bool {
        match &*self.knowledge.lock() {
            // The first login asks.
            Knowledge::Nothing => false,
            Knowledge::Refused { .. } => true,
            Knowledge::Silent { at, .. } | Knowledge::Told { at, .. } => at.elapsed() >= PERIOD,
        }
    }

    /// The ceiling; `None` while the server hasn't told.
    fn found(&self) -> Option<u32> {
        match &*self.knowledge.lock() {
            Knowledge::Nothing | Knowledge::Silent { .. } => None,
            Knowledge::Told { room, .. } => Some(room.connections()),
            Knowledge::Refused { connections } => Some(*connections),
        }
    }

    /// The most spare connections.
    fn spares(&self) -> usize {
        match &*self.knowledge.lock() {
            Knowledge::Nothing | Knowledge::Silent { .. } => SPARES_MAX,
            Knowledge::Told { room, .. } => room.spares() as usize,
            Knowledge::Refused { .. } => 0,
        }
    }

    /// The most logins at once, so that two gates that log in leave one connection for somebody else.
    fn logins(&self, most: u32) -> u32 {
        match &*self.knowledge.lock() {
            Knowledge::Nothing | Knowledge::Silent { .. } => most,
            Knowledge::Told { room, .. } => (room.left().saturating_sub(1) / 2).clamp(1, most.max(1)),
            Knowledge::Refused { .. } => 1,
        }
    }

    fn told(&self, room: Room, total: u32) {
        *self.knowledge.lock() = Knowledge::Told { room, at: Instant::now(), total };
    }

    /// Nothing was learned; what is known stays, and isn't asked for again at once.
    fn silent(&self, why: &'static str) {
        let mut knowledge = self.knowledge.lock();
        let now = Instant::now();
        match &mut *knowledge {
            Knowledge::Told { at, .. } => *at = now,
            Knowledge::Refused { .. } => {}
            Knowledge::Nothing | Knowledge::Silent { .. } => *knowledge = Knowledge::Silent { at: now, why },
        }
    }

    /// The server has refused a connection, with so many in the pools and this ceiling. `false`: that was
    /// known.
    fn lower(&self, ceiling: u32, total: u32, exhausted: Exhausted) -> bool {
        let mut knowledge = self.knowledge.lock();
        if matches!(*knowledge, Knowledge::Refused { .. }) {
            return false;
        }
        let connections = match exhausted {
            Exhausted::Server => {
                let had = ceiling.min(total);
                (had - had.div_ceil(LEFT_PART)).max(1)
            }
            // The server as a whole has room.
            Exhausted::Role | Exhausted::Database => ceiling,
        };
        *knowledge = Knowledge::Refused { connections };
        self.refused.notify_one();
        true
    }

    fn view(&self, began_with: u32, reachable: u32) -> CeilingView {
        let view =
            |connections, why| CeilingView { connections, allowed: None, others: None, left: None, why };
        let mut view = match &*self.knowledge.lock() {
            Knowledge::Nothing => view(began_with, "the server has not been asked yet".to_owned()),
            Knowledge::Silent { why, .. } => view(began_with, (*why).to_owned()),
            Knowledge::Refused { connections } => view(
                *connections,
                "the server has refused a connection, and has not been asked since".to_owned(),
            ),
            Knowledge::Told { room, .. } => CeilingView {
                connections: room.connections(),
                allowed: Some(room.allowed),
                others: Some(room.others),
                left: Some(room.left()),
                why: room.to_string(),
            },
        };
        if reachable < view.connections {
            view.connections = reachable;
            view.why = format!("limits of roles or databases allow {reachable}; the server: {}", view.why);
        }
        view
    }
}

impl Shared {
    /// The budget of connections that holds now.
    pub(crate) fn connections(&self, settings: &Settings) -> u32 {
        let found = settings.finding.and_then(|_| self.ceiling.found());
        found.unwrap_or(settings.connections)
    }

    /// The connections that the gate has, logins in progress aside.
    fn held(&self, settings: &Settings) -> u32 {
        if settings.shares_connections() {
            return self.pools.total();
        }
        u32::try_from(self.budget.taken()).unwrap_or(u32::MAX)
    }

    /// The most logins at once.
    fn logins_max(&self, settings: &Settings) -> u32 {
        let most = settings.logins_max;
        if settings.finding.is_some() { self.ceiling.logins(most) } else { most }
    }

    /// Has everybody keep the bounds that hold now.
    pub(super) fn apply_bounds(&self) {
        let mut logged = self.ceiling.applying.lock();
        let settings = self.settings();
        let (connections, logins) = (self.connections(&settings), self.logins_max(&settings));
        self.logins.set(logins);
        self.budget.set(connections);
        let spares = settings.finding.map_or(SPARES_MAX, |_| self.ceiling.spares());
        self.pools.change(connections, spares, super::reload::waiting_max(logins), settings.generation);
        self.pools.keep(if settings.finding.is_some() { Keep::Needed } else { Keep::Everything });
        let Some(finding) = settings.finding else {
            *logged = None;
            return;
        };
        let reachable = connections.min(self.pools.reachable()).max(1);
        if self.driver.policy().connections != reachable {
            self.driver.update_policy(|policy| finding.resize(policy, reachable));
        }
        // While connections open, each answer of the server differs by a few.
        let is_news = logged.is_none_or(|before| before.abs_diff(reachable) > before / NEWS_PART);
        if self.ceiling.found().is_some() && is_news {
            *logged = Some(reachable);
            let (gate, why) = (self.driver.name(), self.ceiling.view(connections, reachable).why);
            tracing::info!(gate, connections = reachable, logins_max = logins, "connections found: {why}");
        }
    }

    /// Asks over a fresh connection, if that is due; what its login is limited to stays with the connection.
    pub(super) async fn ask_room(
        &self,
        settings: &Settings,
        server: &mut Server,
        is_known: bool,
        limit: Duration,
    ) -> Result<(), super::query_error::QueryError> {
        if settings.finding.is_none() || !self.ceiling.is_due(self.held(settings), is_known) {
            return Ok(());
        }
        server.limits = self.learn_room(server, limit).await?;
        Ok(())
    }

    async fn learn_room(
        &self,
        server: &mut Server,
        limit: Duration,
    ) -> Result<Option<Limits>, super::query_error::QueryError> {
        let told = match ask(server, &self.ceiling.ours, limit).await {
            Ok(told) => told,
            Err(error) if error.leaves_connection_usable() => Err("the server does not tell its limits"),
            Err(error) => return Err(error),
        };
        let limits = match told {
            Ok(room) => {
                let limits = room.limits();
                self.ceiling.told(room, self.held(&self.settings()));
                Some(limits)
            }
            Err(why) => {
                self.ceiling.silent(why);
                None
            }
        };
        self.apply_bounds();
        Ok(limits)
    }

    /// Takes note of an error that the server has answered a login of this user with.
    pub(super) fn note_refused(&self, error: &super::message::Message, user: &str, database: &str) {
        let settings = self.settings();
        let Some(exhausted) = Exhausted::of(error.body()) else { return };
        let why = String::from_utf8_lossy(parse_error(error.body()).message()).into_owned();
        let why = format!("{why}. {}", self.words_of(exhausted));
        settings.health.crowded(settings.named(), (TOO_MANY, &why));
        if settings.finding.is_none() || settings.observe {
            return;
        }
        let (ceiling, total) = (self.connections(&settings), self.held(&settings));
        if self.ceiling.lower(ceiling, total, exhausted) {
            let gate = self.driver.name();
            tracing::warn!(gate, user, database, limit = %exhausted, "the server has no connection left");
            match exhausted {
                Exhausted::Server => {}
                Exhausted::Role => self.pools.lower_role(user),
                Exhausted::Database => self.pools.lower_database(database),
            }
            self.apply_bounds();
        }
    }

    /// What a client is told beside the server's own words, where a limit of connections was met.
    pub(super) fn words_for(&self, error: &super::message::Message) -> Option<String> {
        Exhausted::of(error.body()).map(|exhausted| self.words_of(exhausted))
    }

    fn words_of(&self, exhausted: Exhausted) -> String {
        let settings = self.settings();
        let (held, most) = (self.held(&settings), self.connections(&settings));
        let allowed = self.ceiling_view().and_then(|view| view.allowed);
        let allowed = allowed
            .map_or(String::new(), |allowed| format!("; the server has said that it allows {allowed}"));
        if settings.observe {
            return format!(
                "That is the limit of the {exhausted}, not the gate's: while the gate observes, each client has a \
                 connection of its own{allowed}."
            );
        }
        format!(
            "That is the limit of the {exhausted}, not the gate's: the gate has {held} connections and asks for up to \
             {most} (connections){allowed}."
        )
    }

    /// What was found, where it is to be found.
    pub(super) fn ceiling_view(&self) -> Option<CeilingView> {
        let settings = self.settings();
        settings.finding?;
        let reachable = self.connections(&settings).min(self.pools.reachable()).max(1);
        Some(self.ceiling.view(settings.connections, reachable))
    }
}

/// Asks the server over an idle connection when nobody else has for long, or when it has refused a
/// connection. Never returns.
pub(super) async fn watch(shared: &Arc<Shared>) {
    let mut tick = interval(MAINTENANCE_PERIOD);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            () = shared.ceiling.refused.notified() => {}
        }
        let settings = shared.settings();
        if settings.finding.is_none() || !shared.ceiling.is_overdue() {
            continue;
        }
        let Some(mut lent) = shared.pools.lend_idle() else { continue };
        let Some(server) = lent.server() else { continue };
        if let Ok(limits) = shared.learn_room(server, ANSWER_MAX).await {
            server.limits = limits;
            lent.give_back();
            // The pool's own limits count from here on.
            shared.apply_bounds();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_what_is_free_and_at_least_three_stay_free() {
        let pairs = [(97, 72), (100, 75), (12, 9), (7, 4), (5, 2), (4, 1), (2, 1), (0, 1), (40_000, 1_000)];
        for (free, taken) in pairs {
            assert_eq!(part(free), taken, "{free} free");
        }
    }

    #[test]
    fn two_gates_settle_with_room_for_a_third_login() {
        for (allowed, each, left) in [(97, 41, 14), (7, 2, 3), (17, 7, 3), (497, 213, 70)] {
            let (mut one, mut other) = (part(allowed), 0);
            for _ in 0..100 {
                other = part(allowed - one);
                one = part(allowed - other);
            }
            assert!(one.abs_diff(each) <= 2 && other.abs_diff(each) <= 2, "{allowed}: {one} and {other}");
            assert!(allowed - one - other >= left, "{allowed}: {one} and {other}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_server_is_asked_again_after_a_second_and_after_many_connections() {
        let ceiling = Ceiling::default();
        assert!(ceiling.is_due(0, true) && !ceiling.is_overdue());
        ceiling.told(Room { allowed: 97, ..Room::default() }, 10);
        assert!(!ceiling.is_due(15, true) && ceiling.is_due(16, true), "a quarter of the 25 that are left");
        assert!(ceiling.is_due(10, false), "the limits of another pool aren't known");
        tokio::time::advance(FRESH).await;
        assert!(ceiling.is_due(10, true) && !ceiling.is_overdue());
        tokio::time::advance(PERIOD).await;
        assert!(ceiling.is_overdue());
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_connection_lowers_the_ceiling_once_until_the_server_is_asked() {
        let ceiling = Ceiling::default();
        ceiling.told(Room { allowed: 97, ..Room::default() }, 10);
        assert!(ceiling.lower(72, 40, Exhausted::Server));
        assert_eq!(ceiling.found(), Some(30));
        assert!(!ceiling.lower(30, 30, Exhausted::Server));
        assert!(ceiling.is_due(0, true) && ceiling.is_overdue());
        ceiling.told(Room { allowed: 97, others: 67, ..Room::default() }, 30);
        assert_eq!(ceiling.found(), Some(20), "22, and two to prepare on");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_cannot_tell_leaves_the_number_that_the_gate_began_with() {
        let ceiling = Ceiling::default();
        ceiling.silent("because");
        assert_eq!((ceiling.found(), ceiling.logins(16)), (None, 16));
        assert_eq!(ceiling.view(20, 20).why, "because");
        assert!(!ceiling.is_due(0, false));
        ceiling.told(Room { allowed: 7, ..Room::default() }, 0);
        ceiling.silent("later");
        assert_eq!((ceiling.found(), ceiling.logins(16)), (Some(4), 1));
        assert_eq!(ceiling.view(20, 4).why, "4 of 7; 3 left for others");
    }

    #[test]
    fn what_follows_the_number_of_connections_follows_it() {
        let mut policy = Policy::default();
        Finding { pinned_max: None }.resize(&mut policy, 72);
        assert_eq!((policy.connections, policy.pinned_max), (72, 36));
        Finding { pinned_max: Some(30) }.resize(&mut policy, 4);
        assert_eq!((policy.connections, policy.pinned_max), (4, 4));
    }
}
