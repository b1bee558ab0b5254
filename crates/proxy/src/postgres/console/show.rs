//! What SHOW shows, read from the gate, its pools and its roster when it is asked. The columns are in
//! `lists`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use admission::{Instant, PoolId};

use super::lists::{HELP, columns};
use super::table::{Cell, Table};
use super::words::List;
use crate::observe::{lane_name, shares};
use crate::postgres::roster::{Activity, Card, unix_seconds};
use crate::postgres::stats::Figures;
use crate::postgres::{Pooling, Shared};
use crate::upstream::address::Address;
use crate::upstream::pool::{IdleServer, PoolSnapshot};

/// The most rows of one answer: a console must not be able to fill the memory.
const ROWS_MAX: usize = 100_000;
/// The most of those that wait that SHOW QUEUE shows.
const QUEUE_MAX: usize = 1000;
/// What numbers that we don't have are in PgBouncer's columns.
const NOT_COUNTED: Cell = Cell::Int(0);

/// A list as it is now.
pub(super) fn show(shared: &Shared, list: List) -> Table {
    let look = Look::new(shared);
    let mut rows = match list {
        List::Help => HELP.iter().map(|(command, does)| vec![(*command).into(), (*does).into()]).collect(),
        List::Version => vec![vec![format!("gatekeeper {}", env!("CARGO_PKG_VERSION")).into()]],
        List::Config => config(shared),
        List::Pools => look.pools(),
        List::Clients => look.clients(),
        List::Servers => look.servers(),
        List::Databases => look.databases(),
        List::Users => look.users(),
        List::Lists => look.lists(),
        List::State => look.state(),
        List::Stats => look.stats(&[total, average]),
        List::StatsTotals => look.stats(&[total]),
        List::StatsAverages => look.stats(&[average]),
        List::Types => types(shared),
        List::Queue => look.queue(),
        List::Pinned => look.pinned(),
    };
    rows.truncate(ROWS_MAX);
    Table { columns: columns(list), rows }
}

/// What is looked at once for an answer.
struct Look<'a> {
    shared: &'a Shared,
    now: Instant,
    /// The wall clock's time of `now`, for times of day.
    wall: SystemTime,
    mode: &'static str,
}

/// The clients and connections of one user and database.
#[derive(Default)]
struct PoolRow {
    /// Since when the client waits that waits longest.
    waiting_since: Option<Instant>,
    sessions: u64,
    active: u64,
    waiting: u64,
    connections: u64,
    idle: u64,
}

impl<'a> Look<'a> {
    fn new(shared: &'a Shared) -> Self {
        let settings = shared.settings();
        let is_session = settings.pooling == Pooling::Session || settings.observe;
        Self {
            shared,
            now: shared.driver.clock().now(),
            wall: SystemTime::now(),
            mode: if is_session { "session" } else { "transaction" },
        }
    }

    /// Pools that differ only in start-up settings are one row, as they are one pool in PgBouncer.
    fn by_pool(&self) -> BTreeMap<(String, String), PoolRow> {
        let mut rows: BTreeMap<(String, String), PoolRow> = BTreeMap::new();
        for card in self.shared.roster.cards() {
            let key = (card.identity.database.clone(), card.identity.user.clone());
            let row = rows.entry(key).or_default();
            row.sessions += 1;
            match card.activity() {
                Activity::Waiting => row.waiting += 1,
                Activity::Active | Activity::InTransaction => row.active += 1,
                Activity::Idle => {}
            }
            if card.activity() == Activity::Waiting {
                let since = row.waiting_since.unwrap_or(card.since()).min(card.since());
                row.waiting_since = Some(since);
            }
            if self.mode == "session" {
                row.connections += 1;
                row.idle += u64::from(card.activity() == Activity::Idle);
            }
        }
        for PoolSnapshot { user, database, connections, idle, .. } in self.shared.pools.snapshot() {
            let row = rows.entry((database, user)).or_default();
            row.connections += u64::from(connections);
            row.idle += u64::from(idle);
        }
        rows
    }

    fn pools(&self) -> Vec<Vec<Cell>> {
        let row = |((database, user), row): ((String, String), PoolRow)| {
            let wait = row.waiting_since.map(|since| self.now.since(since)).unwrap_or_default();
            vec![
                database.into(),
                user.into(),
                (row.sessions - row.waiting).into(),
                row.waiting.into(),
                NOT_COUNTED,
                NOT_COUNTED,
                row.connections.saturating_sub(row.idle).into(),
                NOT_COUNTED,
                NOT_COUNTED,
                row.idle.into(),
                NOT_COUNTED,
                NOT_COUNTED,
                NOT_COUNTED,
                wait.as_secs().into(),
                wait.subsec_micros().into(),
                self.mode.into(),
            ]
        };
        self.by_pool().into_iter().map(row).collect()
    }

    fn clients(&self) -> Vec<Vec<Cell>> {
        self.shared.roster.cards().iter().map(|card| self.client(card)).collect()
    }

    fn client(&self, card: &Card) -> Vec<Cell> {
        let identity = &card.identity;
        let wait = match card.activity() {
            Activity::Waiting => self.now.since(card.since()),
            _ => Duration::ZERO,
        };
        let server = card.server();
        let (local, local_port) = address_of(&self.shared.settings().listen);
        vec![
            "C".into(),
            identity.user.as_str().into(),
            identity.database.as_str().into(),
            state_name(card.activity()).into(),
            peer(identity.address).into(),
            identity.address.map_or(0, |address| u32::from(address.port())).into(),
            local.into(),
            local_port.into(),
            time_of_day(card.connected).into(),
            time_of_day(self.wall_of(card.since())).into(),
            wait.as_secs().into(),
            wait.subsec_micros().into(),
            NOT_COUNTED,
            format!("c{}", card.id).into(),
            server.map_or(String::new(), |server| format!("s{}", server.id)).into(),
            server.map_or(0, |server| server.process_id).into(),
            if identity.is_encrypted { "TLS" } else { "" }.into(),
            identity.application.as_str().into(),
            NOT_COUNTED,
            card.id.into(),
        ]
    }

    fn wall_of(&self, instant: Instant) -> SystemTime {
        self.wall - self.now.since(instant)
    }

    /// Idle connections from the pools, the others from their sessions. A connection that changes hands
    /// meanwhile may be missed.
    fn servers(&self) -> Vec<Vec<Cell>> {
        let (address, port) = address_of(&self.shared.settings().upstream);
        let row = |of: (&str, &str), state: &str, id: u64, times: [SystemTime; 2], link: String, pid: u32| {
            vec![
                "S".into(),
                of.0.into(),
                of.1.into(),
                state.into(),
                address.as_str().into(),
                port.into(),
                "".into(),
                NOT_COUNTED,
                time_of_day(times[0]).into(),
                time_of_day(times[1]).into(),
                NOT_COUNTED,
                NOT_COUNTED,
                NOT_COUNTED,
                format!("s{id}").into(),
                link.into(),
                pid.into(),
                "".into(),
                "".into(),
                NOT_COUNTED,
                id.into(),
            ]
        };
        let idle = self.shared.pools.idle_servers();
        let idle = idle.iter().map(|server: &IdleServer| {
            let of = (server.user.as_str(), server.database.as_str());
            row(of, "idle", server.id, [server.connected; 2], String::new(), server.process_id)
        });
        let cards = self.shared.roster.cards();
        let in_hand = cards.iter().filter_map(|card| Some((card, card.server()?)));
        let in_hand = in_hand.map(|(card, server)| {
            let of = (card.identity.user.as_str(), card.identity.database.as_str());
            let times = [server.connected, self.wall_of(card.since())];
            row(of, "active", server.id, times, format!("c{}", card.id), server.process_id)
        });
        idle.chain(in_hand).collect()
    }

    fn databases(&self) -> Vec<Vec<Cell>> {
        let settings = self.shared.settings();
        let (host, port) = address_of(&settings.upstream);
        let paused = self.shared.pools.paused();
        let mut connections: BTreeMap<String, u64> = BTreeMap::new();
        for ((database, _), row) in self.by_pool() {
            *connections.entry(database).or_default() += row.connections;
        }
        let row = |(database, connections): (String, u64)| {
            vec![
                database.as_str().into(),
                host.as_str().into(),
                port.into(),
                database.as_str().into(),
                Cell::Null,
                settings.connections.into(),
                NOT_COUNTED,
                NOT_COUNTED,
                self.mode.into(),
                settings.connections.into(),
                connections.into(),
                u32::from(paused.holds(&database)).into(),
                NOT_COUNTED,
            ]
        };
        connections.into_iter().map(row).collect()
    }

    fn users(&self) -> Vec<Vec<Cell>> {
        let mut users: Vec<String> = self.by_pool().into_keys().map(|(_, user)| user).collect();
        users.sort();
        users.dedup();
        users.into_iter().map(|user| vec![user.into(), self.mode.into()]).collect()
    }

    fn lists(&self) -> Vec<Vec<Cell>> {
        let settings = self.shared.settings();
        let rows = self.by_pool();
        let sum = |figure: fn(&PoolRow) -> u64| rows.values().map(figure).sum::<u64>();
        let (connections, idle) = (sum(|row| row.connections), sum(|row| row.idle));
        let clients = self.shared.clients.taken() as u64;
        let lists = [
            ("databases", self.databases().len() as u64),
            ("users", self.users().len() as u64),
            ("pools", rows.len() as u64),
            ("free_clients", u64::from(settings.max_clients).saturating_sub(clients)),
            ("used_clients", sum(|row| row.sessions)),
            ("login_clients", u64::from(self.shared.logins.taken())),
            ("free_servers", u64::from(settings.connections).saturating_sub(connections)),
            ("used_servers", connections),
            ("idle_servers", idle),
            ("types", self.shared.driver.types().len() as u64),
            ("queued", self.shared.driver.snapshot().queued as u64),
            ("dns_names", 0),
            ("dns_zones", 0),
            ("dns_queries", 0),
            ("dns_pending", 0),
        ];
        lists.into_iter().map(|(list, items)| vec![list.into(), items.into()]).collect()
    }

    fn state(&self) -> Vec<Vec<Cell>> {
        let paused = self.shared.pools.paused();
        let yes = |holds: bool| if holds { "yes" } else { "no" };
        vec![
            vec!["active".into(), yes(!paused.is_everything()).into()],
            vec!["paused".into(), yes(paused.is_everything()).into()],
            vec!["suspended".into(), "no".into()],
        ]
    }

    fn stats(&self, parts: &[fn(&crate::postgres::stats::Row) -> Vec<Cell>]) -> Vec<Vec<Cell>> {
        let row = |row: &crate::postgres::stats::Row| {
            let cells = parts.iter().flat_map(|part| part(row));
            std::iter::once(Cell::from(row.database.as_str())).chain(cells).collect()
        };
        self.shared.stats.rows().iter().map(row).collect()
    }

    fn queue(&self) -> Vec<Vec<Cell>> {
        let owners = self.shared.pools.owners();
        let owner = |pool: PoolId| owners.get(&pool).cloned().unwrap_or_default();
        let queue = self.shared.driver.queue(QUEUE_MAX);
        let row = |(index, (queued, label)): (usize, (admission::Queued, Option<std::sync::Arc<str>>))| {
            let (user, database) = owner(queued.pool);
            let wait = self.now.since(queued.since);
            vec![
                (index + 1).into(),
                label.map(|label| label.to_string()).into(),
                lane_name(queued.lane).into(),
                user.into(),
                database.into(),
                (queued.work.as_nanos() / 1000).into(),
                wait.as_secs().into(),
                wait.subsec_micros().into(),
            ]
        };
        queue.into_iter().enumerate().map(row).collect()
    }

    fn pinned(&self) -> Vec<Vec<Cell>> {
        let cards = self.shared.roster.cards();
        let pinned = cards.iter().filter_map(|card| {
            let reasons = crate::postgres::pins::names(&card.pins);
            (!reasons.is_empty()).then(|| {
                vec![
                    card.id.into(),
                    card.identity.user.as_str().into(),
                    card.identity.database.as_str().into(),
                    peer(card.identity.address).into(),
                    card.identity.address.map_or(0, |address| u32::from(address.port())).into(),
                    state_name(card.activity()).into(),
                    reasons.join(", ").into(),
                    card.server().map_or(0, |server| server.process_id).into(),
                    card.identity.application.as_str().into(),
                ]
            })
        });
        pinned.collect()
    }
}

/// PgBouncer's name for an activity. A client whose transaction is open but silent is active there, too.
fn state_name(activity: Activity) -> &'static str {
    match activity {
        Activity::Idle => "idle",
        Activity::Waiting => "waiting",
        Activity::Active | Activity::InTransaction => "active",
    }
}

fn peer(address: Option<SocketAddr>) -> String {
    address.map_or("unix".to_owned(), |address| address.ip().to_string())
}

fn address_of(address: &Address) -> (String, u32) {
    match address {
        Address::Inet { host, port } => (host.clone(), u32::from(*port)),
        Address::Unix(path) => (path.display().to_string(), 0),
    }
}

fn total(row: &crate::postgres::stats::Row) -> Vec<Cell> {
    figures(&row.total)
}

fn average(row: &crate::postgres::stats::Row) -> Vec<Cell> {
    figures(&row.average)
}

fn figures(figures: &Figures) -> Vec<Cell> {
    vec![
        figures.transactions.into(),
        figures.queries.into(),
        NOT_COUNTED,
        NOT_COUNTED,
        figures.transaction_micros.into(),
        figures.query_micros.into(),
        figures.wait_micros.into(),
    ]
}

fn config(shared: &Shared) -> Vec<Vec<Cell>> {
    let settings = shared.settings();
    let row = |row: &super::ConfigRow| {
        let changeable = if row.changeable { "yes" } else { "no" };
        vec![row.key.into(), row.value.as_str().into(), row.default.as_str().into(), changeable.into()]
    };
    settings.console.config.iter().map(row).collect()
}

fn types(shared: &Shared) -> Vec<Vec<Cell>> {
    let (snapshot, mut rows) = (shared.driver.snapshot(), shared.driver.types());
    rows.sort_by(|a, b| b.counts.work.cmp(&a.counts.work).then_with(|| a.label.cmp(&b.label)));
    let known: BTreeMap<_, _> = snapshot.types.iter().map(|known| (known.request_type, known)).collect();
    let micros = |seconds: f64| Cell::from((seconds * 1e6) as u64);
    let row = |(row, share): (&crate::observe::TypeRow, f64)| {
        let known = known.get(&row.key);
        let work = known.map_or(row.work, |known| known.work);
        vec![
            row.label.to_string().into(),
            lane_name(known.map_or(row.lane, |known| known.lane)).into(),
            (work.as_nanos() / 1000).into(),
            Cell::Int((share * 100.0).round() as i64),
            known.map_or(0, |known| known.samples).into(),
            known.map_or(0, |known| known.in_flight).into(),
            known.map_or(0, |known| known.queued).into(),
            row.counts.succeeded.into(),
            row.counts.failed.into(),
            row.counts.canceled.into(),
            row.counts.refused().into(),
            micros(row.upstream_time.p50.as_secs_f64()),
            micros(row.upstream_time.p95.as_secs_f64()),
            micros(row.queue_wait.p50.as_secs_f64()),
            micros(row.queue_wait.p95.as_secs_f64()),
        ]
    };
    let shares = shares(&rows);
    rows.iter().zip(shares).map(row).collect()
}

/// `2026-11-22 01:02:03 UTC`, as PgBouncer writes times.
fn time_of_day(time: SystemTime) -> String {
    let seconds = unix_seconds(time);
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", rest / 3600, rest / 60 % 60, rest % 60)
}

/// Year, month and day of a day since 1970 (Howard Hinnant, *chrono-compatible low-level date algorithms*).
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn times_are_written_as_a_calendar_has_them() {
        let written = |seconds| time_of_day(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(written(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(written(951_782_399), "2000-02-28 23:59:59 UTC");
        assert_eq!(written(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(written(1_795_309_323), "2026-11-22 01:02:03 UTC");
    }
}
