//! The world as it is run: every value in a type that cannot be wrong, everything that must fit together checked.

use std::path::PathBuf;
use std::time::Duration;

use admission::{Contention, Cost, Order, Policy, Work};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::address::Address;
use crate::error::{Error, Position};
use crate::raw::{self, ADMIN, Complaint, GATE, LOG, Section, hint_for_unknown, unknown_key};
use crate::{Examine, Fault};

mod tls;

pub use tls::{Identity, Tls, TlsMode, UpstreamTls, UpstreamTlsMode};
pub(crate) use tls::{MODES as TLS_MODES, UPSTREAM_MODES};

mod rejection;

pub(crate) use rejection::{RULES, TUNINGS, rule_of};

mod auth;

pub use auth::{Auth, AuthMethod, AuthQuery, ChannelBinding};
pub(crate) use auth::{CHANNEL_BINDINGS, METHODS};

/// The most gates of one process.
const GATES_MAX: usize = 64;
/// The longest name of a gate, in bytes.
const NAME_BYTES_MAX: usize = 64;
const SERVER_PORT: u16 = 5432;
const GATE_PORT: u16 = 6432;
const ADMIN_PORT: u16 = 6433;

/// A whole configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct World {
    /// The admin listener.
    pub admin: Admin,
    /// The log.
    pub log: Log,
    /// The gates, at least one, in the order of the file.
    pub gates: Vec<Gate>,
}

/// The admin listener; by its own default there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admin {
    /// Where it listens (TCP only), if anywhere.
    pub listen: Option<Address>,
    /// The Unix socket where it also listens, and takes changes.
    pub socket: Option<PathBuf>,
    /// The mode of that socket's file.
    pub socket_mode: SocketMode,
    /// Where the token is with which it takes changes over TCP.
    pub token_file: Option<PathBuf>,
}

/// Who may open a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SocketMode {
    /// Its owner: 0600.
    #[default]
    Owner,
    /// Its group as well: 0660.
    Group,
}

/// The log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    /// How a line is written.
    pub format: LogFormat,
    /// What is written.
    pub level: LogLevel,
}

/// How a line of the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The least important level that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the levels of every log")]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// What a protected service speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// PostgreSQL, protocol 3.
    Postgres,
}

/// The limit of the long lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LongLimit {
    /// As many as keep the service busy, found from what is observed; the server's cores until then, if it tells.
    Auto,
    /// So many.
    Fixed(u32),
    /// There is no long lane.
    NoLane,
}

/// Whether a gate decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It does.
    Enforce,
    /// It only reports what it would have decided.
    Observe,
}

/// How long a client holds a server connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// For a transaction.
    Transaction,
    /// For its session.
    Session,
}

/// What becomes of a running statement whose client is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDisconnect {
    /// Writes are finished, the rest is canceled.
    Default,
    /// It is canceled.
    Cancel,
    /// It is finished.
    Finish,
}

/// The trace of a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Its file, if there is one.
    pub file: Option<PathBuf>,
    /// The longest file, in megabytes.
    pub megabytes_max: u32,
    /// Whether another file begins when one is full.
    pub full: TraceFull,
}

/// What happens when a trace is as long as it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceFull {
    /// Nothing more is written.
    Stop,
    /// Another file begins, the full one is kept, the one before it isn't.
    Rotate,
}

/// One gate.
#[derive(Clone, Debug, PartialEq)]
pub struct Gate {
    /// Its name, unique.
    pub name: String,
    /// What the service speaks.
    pub protocol: Protocol,
    /// Where clients connect.
    pub listen: Address,
    /// Where the service listens.
    pub upstream: Address,
    /// Everything that the gate decides by. Its `long_limit` doesn't know yet what the server may tell of its cores.
    pub policy: Policy,
    /// Where the long lane's limit comes from.
    pub long_limit: LongLimit,
    /// How long overtaking may delay any request. The policy holds what that is in work.
    pub aging_floor: Duration,
    /// How many executions the estimator remembers (also behind an EWMA's weight).
    pub cost_window: u32,
    /// Whether it decides.
    pub mode: Mode,
    /// How long a client holds a server connection, when the gate decides.
    pub pooling: Pooling,
    /// The most clients connected at once.
    pub max_clients: u32,
    /// How long a login may take.
    pub login_timeout: Duration,
    /// How long connecting to the service may take.
    pub connect_timeout: Duration,
    /// The most logins at once.
    pub logins_max: u32,
    /// TLS with clients.
    pub tls: Tls,
    /// TLS with the service.
    pub upstream_tls: UpstreamTls,
    /// How long an answer of the resolver is used; zero for not at all.
    pub dns_ttl: Duration,
    /// How long a TCP connection may be silent before the other side is probed.
    pub keepalive: Duration,
    /// Whether a server that asks no password may be reached from other machines.
    pub allow_trust_relay: bool,
    /// Who may log in.
    pub auth: Auth,
    /// What becomes of a running statement whose client is gone.
    pub on_disconnect: OnDisconnect,
    /// How long transactions may take to end at shutdown.
    pub drain_timeout: Duration,
    /// Where what was learned is kept, if anywhere.
    pub state_file: Option<PathBuf>,
    /// Where each request is written down, if anywhere.
    pub trace: Trace,
    /// Who may use the console.
    pub admin_users: Vec<String>,
    /// Who may use the console to look.
    pub stats_users: Vec<String>,
    /// Where the login of a console user is relayed to.
    pub admin_database: String,
}

pub(crate) const PROTOCOLS: &[(&str, Protocol)] = &[("postgres", Protocol::Postgres)];
pub(crate) const FORMATS: &[(&str, LogFormat)] = &[("text", LogFormat::Text), ("json", LogFormat::Json)];
pub(crate) const LEVELS: &[(&str, LogLevel)] = &[
    ("error", LogLevel::Error),
    ("warn", LogLevel::Warn),
    ("info", LogLevel::Info),
    ("debug", LogLevel::Debug),
    ("trace", LogLevel::Trace),
];
pub(crate) const MODES: &[(&str, Mode)] = &[("enforce", Mode::Enforce), ("observe", Mode::Observe)];
pub(crate) const POOLINGS: &[(&str, Pooling)] =
    &[("transaction", Pooling::Transaction), ("session", Pooling::Session)];
pub(crate) const ON_DISCONNECT: &[(&str, OnDisconnect)] =
    &[("default", OnDisconnect::Default), ("cancel", OnDisconnect::Cancel), ("finish", OnDisconnect::Finish)];
pub(crate) const TRACE_FULL: &[(&str, TraceFull)] =
    &[("stop", TraceFull::Stop), ("rotate", TraceFull::Rotate)];
pub(crate) const SOCKET_MODES: &[(&str, SocketMode)] =
    &[("0600", SocketMode::Owner), ("0660", SocketMode::Group)];

/// How the work of a type is estimated; the window is a key of its own.
#[derive(Clone, Copy, Debug)]
enum Estimator {
    MovingAverage,
    Ewma,
    Steady,
}

const COSTS: &[(&str, Estimator)] =
    &[("moving-average", Estimator::MovingAverage), ("ewma", Estimator::Ewma), ("steady", Estimator::Steady)];
const CONTENTIONS: &[(&str, bool)] = &[("auto", true), ("none", false)];
const ORDERS: &[(&str, bool)] = &[("fifo", true), ("shortest-first", false)];

impl World {
    /// Reads a world out of TOML. What is wrong goes to `errors`; if there is any, the world isn't to be used.
    pub(crate) fn read(text: &str, errors: &mut Vec<Error>, examine: Examine<'_>) -> Self {
        let (document, syntax) = DeTable::parse_recoverable(text);
        // After an error of syntax the rest is a guess of the parser's, and errors in a guess only confuse.
        if !syntax.is_empty() {
            errors.extend(syntax.iter().map(|error| Error {
                position: Some(Position::of(text, error.span().map_or(0, |span| span.start))),
                ..Error::new(format!("isn't TOML: {}", error.message()))
            }));
        }
        let checking = if syntax.is_empty() { errors } else { &mut Vec::new() };
        Self::read_document(&document, (text, examine), checking)
    }

    fn read_document(
        document: &Spanned<DeTable<'_>>,
        (text, examine): (&str, Examine<'_>),
        errors: &mut Vec<Error>,
    ) -> Self {
        let top = document.get_ref();
        const SECTIONS: [&str; 3] = ["admin", "log", "gate"];
        for key in top.keys().filter(|key| !SECTIONS.contains(&&**key.get_ref())) {
            let belongs_to_gate = GATE.iter().any(|field| field.key == key.get_ref());
            let hint = if belongs_to_gate {
                Some(format!("`{}` belongs below a [[gate]]", key.get_ref()))
            } else {
                hint_for_unknown(key.get_ref(), &SECTIONS)
            };
            errors.push(unknown_key(key.get_ref(), Position::of(text, key.span().start), hint));
        }
        let empty = DeTable::new();
        let (admin, admin_at) = single_table(top, "admin", &empty, text, errors);
        let admin =
            read_admin(&mut Section::open("admin".to_owned(), admin, ADMIN, (text, admin_at), errors));
        let (log, log_at) = single_table(top, "log", &empty, text, errors);
        let log = read_log(&mut Section::open("log".to_owned(), log, LOG, (text, log_at), errors));
        let gates = read_gates(top, &admin, (text, examine), errors);
        Self { admin, log, gates }
    }
}

/// The table `[key]`, or an empty one where it is absent or isn't a table; and where it stands.
pub(crate) fn single_table<'a>(
    top: &'a DeTable<'a>,
    key: &str,
    empty: &'a DeTable<'a>,
    text: &str,
    errors: &mut Vec<Error>,
) -> (&'a DeTable<'a>, usize) {
    let Some(value) = top.get(key) else { return (empty, 0) };
    let start = value.span().start;
    if let DeValue::Table(table) = value.get_ref() {
        return (table, start);
    }
    errors.push(Error {
        position: Some(Position::of(text, start)),
        key: Some(key.to_owned()),
        hint: Some(format!("write it once, as [{key}] with its keys below")),
        ..Error::new("isn't a table")
    });
    (empty, start)
}

fn read_admin(section: &mut Section<'_>) -> Admin {
    let listen = section.read("listen", |value| match raw::text(value)?.as_str() {
        "none" => Ok(None),
        text => Address::parse(text, ADMIN_PORT).map(Some),
    });
    if matches!(listen, Some(Address::Unix(_))) {
        let hint = "write \"host:port\" or \"none\" here, and the path as `socket`";
        section.complain("listen", Complaint::new("is a Unix socket").hint(hint));
    }
    let path = |value: &DeValue<'_>| match raw::some_text(value)?.as_str() {
        "none" => Ok(None),
        text => Ok(Some(PathBuf::from(text))),
    };
    Admin {
        listen,
        socket: section.read("socket", admin_socket),
        socket_mode: section.read("socket_mode", |value| raw::choice(value, SOCKET_MODES)),
        token_file: section.read("token_file", path),
    }
}

fn admin_socket(value: &DeValue<'_>) -> Result<Option<PathBuf>, Complaint> {
    let text = raw::some_text(value)?;
    let path = text.strip_prefix("unix:").unwrap_or(&text);
    if path == "none" {
        return Ok(None);
    }
    let Address::Unix(path) = Address::parse(&format!("unix:{path}"), ADMIN_PORT)? else { return Ok(None) };
    Ok(Some(path))
}

fn read_log(section: &mut Section<'_>) -> Log {
    Log {
        format: section.read("format", |value| raw::choice(value, FORMATS)),
        level: section.read("level", |value| raw::choice(value, LEVELS)),
    }
}

fn read_gates(
    top: &DeTable<'_>,
    admin: &Admin,
    (text, examine): (&str, Examine<'_>),
    errors: &mut Vec<Error>,
) -> Vec<Gate> {
    const FORM: &str = "write [[gate]] with an `upstream` below";
    let tables = match top.get("gate").map(|value| (value.get_ref(), value.span().start)) {
        Some((DeValue::Array(tables), _)) => tables,
        Some((_, start)) => {
            errors.push(Error {
                position: Some(Position::of(text, start)),
                key: Some("gate".to_owned()),
                hint: Some(format!("{FORM} (two brackets: there may be several)")),
                ..Error::new("isn't a list of gates")
            });
            return Vec::new();
        }
        None => {
            errors.push(Error { hint: Some(FORM.to_owned()), ..Error::new("there is no gate") });
            return Vec::new();
        }
    };
    if tables.len() > GATES_MAX {
        errors.push(Error::new(format!("there are more than {GATES_MAX} gates")));
    }
    let mut gates: Vec<Gate> = Vec::new();
    for (index, value) in tables.iter().take(GATES_MAX).enumerate() {
        let start = value.span().start;
        let DeValue::Table(table) = value.get_ref() else {
            errors.push(Error {
                position: Some(Position::of(text, start)),
                hint: Some(FORM.to_owned()),
                ..Error::new("a gate isn't a table")
            });
            continue;
        };
        let errors_before = errors.len();
        let mut section =
            Section::open(gate_title(table, index, tables.len()), table, GATE, (text, start), errors);
        let gate = read_gate(&mut section);
        refuse_collisions(&mut section, &gate, &gates, admin);
        if section.error_count() == errors_before {
            for Fault { key, why, hint } in examine(&gate) {
                section.complain(key, Complaint { why, hint });
            }
        }
        gates.push(gate);
    }
    gates
}

/// How errors call a gate: by its name; if it has none and isn't alone, by its number.
fn gate_title(table: &DeTable<'_>, index: usize, count: usize) -> String {
    match table.get("name").map(Spanned::get_ref) {
        Some(DeValue::String(name)) => format!("gate {name:?}"),
        _ if count > 1 => format!("gate {}", index + 1),
        _ => "gate".to_owned(),
    }
}

fn read_gate(section: &mut Section<'_>) -> Gate {
    let name = section.read("name", name);
    let protocol = section.read("protocol", protocol);
    let listen =
        section.read("listen", |value| raw::text(value).and_then(|text| Address::parse(&text, GATE_PORT)));
    let upstream = read_upstream(section);
    let cost_window = section.read("cost_window", |value| number(value, 1, Cost::WINDOW_MAX));
    let aging_floor = section.read("aging_floor", raw::at_most_a_day);
    let (policy, long_limit) = read_policy(section, cost_window, aging_floor);
    let allow_trust_relay = section.read("allow_trust_relay", raw::boolean);
    let listen_is_local = listen.is_local();
    let upstream_tls = tls::read_upstream(section, &upstream);
    Gate {
        name,
        protocol,
        listen,
        upstream,
        policy,
        long_limit,
        aging_floor,
        cost_window,
        mode: section.read("mode", |value| raw::choice(value, MODES)),
        pooling: section.read("pooling", |value| raw::choice(value, POOLINGS)),
        max_clients: section.read("max_clients", |value| number(value, 1, 1_000_000)),
        login_timeout: section.read("login_timeout", raw::some_time),
        connect_timeout: section.read("connect_timeout", raw::some_time),
        logins_max: section.read("logins_max", |value| number(value, 1, 10_000)),
        tls: tls::read(section),
        upstream_tls,
        dns_ttl: section.read("dns_ttl", raw::at_most_a_day),
        keepalive: section.read("keepalive", keepalive),
        allow_trust_relay,
        auth: auth::read(section, listen_is_local, allow_trust_relay),
        on_disconnect: section.read("on_disconnect", |value| raw::choice(value, ON_DISCONNECT)),
        drain_timeout: section.read("drain_timeout", raw::at_most_a_day),
        state_file: section.read("state_file", absolute_file),
        trace: Trace {
            file: section.read("trace_file", absolute_file),
            megabytes_max: section.read("trace_max", |value| number(value, 1, 1_000_000)),
            full: section.read("trace_full", |value| raw::choice(value, TRACE_FULL)),
        },
        admin_users: section.read("admin_users", raw::users),
        stats_users: section.read("stats_users", raw::users),
        admin_database: section.read("admin_database", database),
    }
}

/// The gate of a scenario: all of a gate's keys may be there, but only the name and the policy's matter.
pub(crate) fn read_simulated(section: &mut Section<'_>) -> (String, Policy) {
    if section.has("upstream") {
        let gate = read_gate(section);
        return (gate.name, gate.policy);
    }
    let cost_window = section.read("cost_window", |value| number(value, 1, Cost::WINDOW_MAX));
    let aging_floor = section.read("aging_floor", raw::at_most_a_day);
    let (policy, _) = read_policy(section, cost_window, aging_floor);
    (section.read("name", name), policy)
}

fn read_policy(section: &mut Section<'_>, cost_window: u32, aging_floor: Duration) -> (Policy, LongLimit) {
    let errors_before = section.error_count();
    let connections = section.read("connections", |value| number(value, 1, 10_000));
    let pinned_max = section
        .read_given("pinned_max", |value| number(value, 1, 10_000))
        .unwrap_or_else(|| (connections / 2).max(1));
    if pinned_max > connections && section.error_count() == errors_before {
        let why = format!("is more than `connections` ({connections})");
        section.complain("pinned_max", Complaint::new(why).hint("leave it out for half of them"));
    }
    let long_limit = section.read("long_limit", raw::long_limit);
    let policy = Policy {
        capacity: section.read("capacity", raw::capacity),
        contention: read_contention(section),
        connections,
        long_limit: match long_limit {
            LongLimit::Auto => Some(admission::LongLimit::FOUND),
            LongLimit::Fixed(limit) => Some(admission::LongLimit::Fixed(limit)),
            LongLimit::NoLane => None,
        },
        cost: read_cost(section, cost_window),
        order: read_order(section, aging_floor, connections),
        queue_max: section.read("queue_max", |value| number(value, 0, 10_000_000)) as usize,
        queue_timeout: section.read("queue_timeout", raw::some_time),
        pinned_max,
        types_max: section.read("types_max", |value| number(value, 1, 10_000)) as usize,
        suspend_after: section.read("suspend_after", raw::at_most_a_day),
        rejection: rejection::read(section),
    };
    (policy, long_limit)
}

fn read_contention(section: &mut Section<'_>) -> Contention {
    if section.read("contention", |value| raw::choice(value, CONTENTIONS)) {
        Contention::Auto
    } else {
        Contention::None
    }
}

fn read_cost(section: &mut Section<'_>, window: u32) -> Cost {
    match section.read("cost", |value| raw::choice(value, COSTS)) {
        // The mean age of what an EWMA remembers is (1 - w) / w, of a window (n - 1) / 2: equal at w = 2 / (n + 1).
        Estimator::Ewma => Cost::Ewma { weight: 2.0 / (f64::from(window) + 1.0) },
        Estimator::MovingAverage => Cost::MovingAverage { window },
        Estimator::Steady => Cost::Steady,
    }
}

fn read_order(section: &mut Section<'_>, aging_floor: Duration, connections: u32) -> Order {
    let aging = section.read("aging", raw::aging);
    // As many requests as there are connections are served side by side, and the work of each is measured among the
    // others: so much work in front of a request delays it by a second for every second of `connections`.
    let floor = Work::from(aging_floor.saturating_mul(connections));
    if section.read("order", |value| raw::choice(value, ORDERS)) {
        Order::Fifo
    } else {
        Order::ShortestFirst { aging, floor }
    }
}

fn read_upstream(section: &mut Section<'_>) -> Address {
    let upstream = section.read_given("upstream", |value| {
        let address = Address::parse(&raw::text(value)?, SERVER_PORT)?;
        if address.port() == Some(0) { Err(Complaint::new("has port 0")) } else { Ok(address) }
    });
    if upstream.is_none() && !section.has("upstream") {
        let hint = format!("write where the server listens, such as \"127.0.0.1:{SERVER_PORT}\"");
        section.complain("upstream", Complaint::new("is missing").hint(hint));
    }
    // Not used: there is an error then.
    upstream.unwrap_or(Address::Inet { host: String::new(), port: 0 })
}

/// What two gates, or a gate and the admin listener, can't share.
fn refuse_collisions(section: &mut Section<'_>, gate: &Gate, others: &[Gate], admin: &Admin) {
    if others.iter().any(|other| other.name == gate.name) {
        section.complain("name", Complaint::new("another gate has this name").hint("names must be unique"));
    }
    let is_fixed = gate.listen.port() != Some(0);
    if is_fixed && others.iter().any(|other| other.listen == gate.listen) {
        section.complain("listen", Complaint::new(format!("another gate listens on {}", gate.listen)));
    }
    if is_fixed && admin.listen.as_ref() == Some(&gate.listen) {
        section.complain("listen", Complaint::new("the admin listener is there"));
    }
    if matches!((&gate.listen, &admin.socket), (Address::Unix(path), Some(socket)) if path == socket) {
        section.complain("listen", Complaint::new("the admin listener's socket is there"));
    }
    if gate.state_file.is_some() && others.iter().any(|other| other.state_file == gate.state_file) {
        section.complain("state_file", Complaint::new("another gate keeps its state there"));
    }
    if gate.trace.file.is_some() && others.iter().any(|other| other.trace.file == gate.trace.file) {
        section.complain("trace_file", Complaint::new("another gate writes its trace there"));
    }
    if gate.listen == gate.upstream {
        section.complain("upstream", Complaint::new("is the gate itself (`listen`)"));
    }
}

pub(crate) fn number(value: &DeValue<'_>, least: u32, most: u32) -> Result<u32, Complaint> {
    let number = raw::integer(value, u64::from(least)..=u64::from(most))?;
    Ok(u32::try_from(number).unwrap_or(most))
}

fn name(value: &DeValue<'_>) -> Result<String, Complaint> {
    let name = raw::text(value)?;
    let fits = (1..=NAME_BYTES_MAX).contains(&name.len());
    if fits && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')) {
        Ok(name)
    } else {
        Err(Complaint::new("can't be a name")
            .hint(format!("write letters, digits, - and _, at most {NAME_BYTES_MAX}")))
    }
}

fn absolute_file(value: &DeValue<'_>) -> Result<Option<PathBuf>, Complaint> {
    let path = match raw::text(value)?.as_str() {
        "none" => return Ok(None),
        text => PathBuf::from(text),
    };
    if !path.is_absolute() {
        return Err(Complaint::new("is a relative path").hint("write an absolute one, or \"none\""));
    }
    if path.file_name().is_none() {
        return Err(Complaint::new("is a directory").hint("name a file in it"));
    }
    Ok(Some(path))
}

fn database(value: &DeValue<'_>) -> Result<String, Complaint> {
    let name = raw::text(value)?;
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('\0') {
        return Err(Complaint::new("can't be a database's name"));
    }
    Ok(name)
}

fn protocol(value: &DeValue<'_>) -> Result<Protocol, Complaint> {
    match value {
        DeValue::String(text) if matches!(&**text, "mysql" | "http") => {
            Err(Complaint::new("is not there yet").hint("only \"postgres\" is"))
        }
        other => raw::choice(other, PROTOCOLS),
    }
}

fn keepalive(value: &DeValue<'_>) -> Result<Duration, Complaint> {
    let time = raw::some_time(value)?;
    if time < Duration::from_secs(1) { Err(Complaint::new("must be at least \"1s\"")) } else { Ok(time) }
}
