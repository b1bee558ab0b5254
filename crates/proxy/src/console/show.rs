//! What SHOW shows, read from the gate, its pools and its roster when it is asked. The columns are in
//! `lists`.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use admission::Instant;

use super::lists::{HELP, columns};
use super::table::{Cell, Table};
use super::words::List;
use super::{Activity, Facts, IdleServer, Mode, SessionRow, Subject};
use crate::observe::{lane_name, shares};
use crate::sql::stats::{Figures, Row};
use crate::upstream::address::Address;
use crate::view::PoolView;

/// The most rows of one answer: a console must not be able to fill the memory.
const ROWS_MAX: usize = 100_000;
/// The most of those that wait that SHOW QUEUE shows.
const QUEUE_MAX: usize = 1000;
/// What numbers that we don't have are in PgBouncer's columns.
const NOT_COUNTED: Cell = Cell::Int(0);

/// A list as it is now.
pub(crate) fn show(subject: &dyn Subject, list: List) -> Table {
    let look = Look::new(subject);
    let mut rows = match list {
        List::Help => HELP.iter().map(|(command, does)| vec![(*command).into(), (*does).into()]).collect(),
        List::Version => vec![vec![format!("gatekeeper {}", env!("CARGO_PKG_VERSION")).into()]],
        List::Config => config(subject),
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
        List::Types => types(subject),
        List::Queue => look.queue(),
        List::Pinned => look.pinned(),
    };
    rows.truncate(ROWS_MAX);
    Table { columns: columns(list), rows }
}

/// What is looked at once for an answer.
struct Look<'a> {
    subject: &'a dyn Subject,
    facts: Facts,
    now: Instant,
    /// The wall clock's time of `now`, for times of day.
    wall: SystemTime,
    mode: &'static str,
}

/// A request that waits, and the name of its type.
type Waits = (admission::Queued, Option<Arc<str>>);

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
    fn new(subject: &'a dyn Subject) -> Self {
        let facts = subject.facts();
        let mode = match facts.mode {
            Mode::Session => "session",
            Mode::Transaction => "transaction",
        };
        Self { subject, facts, now: subject.now(), wall: SystemTime::now(), mode }
    }

    /// Pools that differ only in start-up settings are one row, as they are one pool in PgBouncer.
    fn by_pool(&self) -> BTreeMap<(String, String), PoolRow> {
        let mut rows: BTreeMap<(String, String), PoolRow> = BTreeMap::new();
        for session in self.subject.sessions() {
            let row = rows.entry((session.database, session.user)).or_default();
            row.sessions += 1;
            match session.activity {
                Activity::Waiting => row.waiting += 1,
                Activity::Active | Activity::InTransaction => row.active += 1,
                Activity::Idle => {}
            }
            if session.activity == Activity::Waiting {
                let since = row.waiting_since.unwrap_or(session.since).min(session.since);
                row.waiting_since = Some(since);
            }
            if self.facts.mode == Mode::Session {
                row.connections += 1;
                row.idle += u64::from(session.activity == Activity::Idle);
            }
        }
        for PoolView { user, database, connections, idle, .. } in self.subject.pools_of_console() {
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
        self.subject.sessions().iter().map(|session| self.client(session)).collect()
    }

    fn client(&self, session: &SessionRow) -> Vec<Cell> {
        let wait = match session.activity {
            Activity::Waiting => self.now.since(session.since),
            _ => Duration::ZERO,
        };
        let server = session.server;
        let (local, local_port) = address_of(&self.facts.listen);
        vec![
            "C".into(),
            session.user.as_str().into(),
            session.database.as_str().into(),
            state_name(session.activity).into(),
            peer(session.address).into(),
            session.address.map_or(0, |address| u32::from(address.port())).into(),
            local.into(),
            local_port.into(),
            time_of_day(session.connected).into(),
            time_of_day(self.wall_of(session.since)).into(),
            wait.as_secs().into(),
            wait.subsec_micros().into(),
            NOT_COUNTED,
            format!("c{}", session.id).into(),
            server.map_or(String::new(), |server| format!("s{}", server.id)).into(),
            server.map_or(0, |server| server.process_id).into(),
            if session.is_encrypted { "TLS" } else { "" }.into(),
            session.application.as_str().into(),
            NOT_COUNTED,
            session.id.into(),
        ]
    }

    fn wall_of(&self, instant: Instant) -> SystemTime {
        self.wall - self.now.since(instant)
    }

    /// Idle connections from the pools, the others from their sessions. A connection that changes hands
    /// meanwhile may be missed.
    fn servers(&self) -> Vec<Vec<Cell>> {
        let (address, port) = address_of(&self.facts.upstream);
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
        let idle = self.subject.idle_servers();
        let idle = idle.iter().map(|server: &IdleServer| {
            let of = (server.user.as_str(), server.database.as_str());
            row(of, "idle", server.id, [server.connected; 2], String::new(), server.process_id)
        });
        let sessions = self.subject.sessions();
        let in_hand = sessions.iter().filter_map(|session| Some((session, session.server?)));
        let in_hand = in_hand.map(|(session, server)| {
            let of = (session.user.as_str(), session.database.as_str());
            let times = [server.connected, self.wall_of(session.since)];
            row(of, "active", server.id, times, format!("c{}", session.id), server.process_id)
        });
        idle.chain(in_hand).collect()
    }

    fn databases(&self) -> Vec<Vec<Cell>> {
        let (host, port) = address_of(&self.facts.upstream);
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
                self.facts.connections.into(),
                NOT_COUNTED,
                NOT_COUNTED,
                self.mode.into(),
                self.facts.connections.into(),
                connections.into(),
                u32::from(self.subject.holds_up(Some(&database))).into(),
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
        let rows = self.by_pool();
        let sum = |figure: fn(&PoolRow) -> u64| rows.values().map(figure).sum::<u64>();
        let (connections, idle) = (sum(|row| row.connections), sum(|row| row.idle));
        let clients = self.subject.clients();
        let (used, logging_in) = (clients.connected as u64, clients.logging_in as u64);
        let lists = [
            ("databases", self.databases().len() as u64),
            ("users", self.users().len() as u64),
            ("pools", rows.len() as u64),
            ("free_clients", u64::from(self.facts.max_clients).saturating_sub(used)),
            ("used_clients", sum(|row| row.sessions)),
            ("login_clients", logging_in),
            ("free_servers", u64::from(self.facts.connections).saturating_sub(connections)),
            ("used_servers", connections),
            ("idle_servers", idle),
            ("types", self.subject.types().len() as u64),
            ("queued", self.subject.snapshot().queued as u64),
            ("dns_names", 0),
            ("dns_zones", 0),
            ("dns_queries", 0),
            ("dns_pending", 0),
        ];
        lists.into_iter().map(|(list, items)| vec![list.into(), items.into()]).collect()
    }

    fn state(&self) -> Vec<Vec<Cell>> {
        let is_paused = self.subject.holds_up(None);
        let yes = |holds: bool| if holds { "yes" } else { "no" };
        vec![
            vec!["active".into(), yes(!is_paused).into()],
            vec!["paused".into(), yes(is_paused).into()],
            vec!["suspended".into(), "no".into()],
        ]
    }

    fn stats(&self, parts: &[fn(&Row) -> Vec<Cell>]) -> Vec<Vec<Cell>> {
        let row = |row: &Row| {
            let cells = parts.iter().flat_map(|part| part(row));
            std::iter::once(Cell::from(row.database.as_str())).chain(cells).collect()
        };
        self.subject.stats().iter().map(row).collect()
    }

    fn queue(&self) -> Vec<Vec<Cell>> {
        let owners = self.subject.owners();
        let owner = |pool| owners.get(&pool).cloned().unwrap_or_default();
        let Some(driver) = self.subject.driver() else { return Vec::new() };
        let queue = driver.queue(QUEUE_MAX);
        let sessions = driver.sessions_of(queue.iter().map(|(queued, _)| queued.ticket));
        // Over MySQL a pool has no owner, but a request has a session.
        let rows = if owners.is_empty() { self.subject.sessions() } else { Vec::new() };
        let users: HashMap<u64, SessionRow> = rows.into_iter().map(|row| (row.id, row)).collect();
        let of_session = |id: Option<u64>| {
            let row = users.get(&id?)?;
            Some((row.user.clone(), row.database.clone()))
        };
        let row = |(index, ((queued, label), session)): (usize, (Waits, Option<u64>))| {
            let (user, database) = of_session(session).unwrap_or_else(|| owner(queued.pool));
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
        queue.into_iter().zip(sessions).enumerate().map(row).collect()
    }

    fn pinned(&self) -> Vec<Vec<Cell>> {
        let mut sessions = self.subject.sessions();
        sessions.retain(|session| !session.pins.is_empty());
        let row = |session: &SessionRow| {
            vec![
                session.id.into(),
                session.user.as_str().into(),
                session.database.as_str().into(),
                peer(session.address).into(),
                session.address.map_or(0, |address| u32::from(address.port())).into(),
                state_name(session.activity).into(),
                session.pins.join(", ").into(),
                session.server.map_or(0, |server| server.process_id).into(),
                session.application.as_str().into(),
            ]
        };
        sessions.iter().map(row).collect()
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

fn total(row: &Row) -> Vec<Cell> {
    figures(&row.total)
}

fn average(row: &Row) -> Vec<Cell> {
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

fn config(subject: &dyn Subject) -> Vec<Vec<Cell>> {
    let row = |row: &super::ConfigRow| {
        let changeable = if row.changeable { "yes" } else { "no" };
        vec![row.key.into(), row.value.as_str().into(), row.default.as_str().into(), changeable.into()]
    };
    subject.console().config.iter().map(row).collect()
}

fn types(subject: &dyn Subject) -> Vec<Vec<Cell>> {
    let (snapshot, mut rows) = (subject.snapshot(), subject.types());
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
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
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
