//! A gate: what it protects, where it listens, how it treats clients and the server.

use std::path::PathBuf;
use std::time::Duration;

use admission::{Cost, Policy};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::policy::{self, LongLimit};
use super::{Admin, Auth, Tls, UpstreamTls, auth, number, tls};
use crate::address::Address;
use crate::error::{Error, Position};
use crate::raw::{self, Complaint, GATE, Section};
use crate::{Examine, Fault};

/// The most gates of one process.
const GATES_MAX: usize = 64;
/// The longest name of a gate, in bytes.
const NAME_BYTES_MAX: usize = 64;
const SERVER_PORT: u16 = 5432;
const GATE_PORT: u16 = 6432;

/// What a protected service speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// PostgreSQL, protocol 3.
    Postgres,
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
pub(crate) const MODES: &[(&str, Mode)] = &[("enforce", Mode::Enforce), ("observe", Mode::Observe)];
pub(crate) const POOLINGS: &[(&str, Pooling)] =
    &[("transaction", Pooling::Transaction), ("session", Pooling::Session)];
pub(crate) const ON_DISCONNECT: &[(&str, OnDisconnect)] =
    &[("default", OnDisconnect::Default), ("cancel", OnDisconnect::Cancel), ("finish", OnDisconnect::Finish)];
pub(crate) const TRACE_FULL: &[(&str, TraceFull)] =
    &[("stop", TraceFull::Stop), ("rotate", TraceFull::Rotate)];

/// Reads every gate of a file.
pub(super) fn read_all(
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
        let gate = read(&mut section);
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

fn read(section: &mut Section<'_>) -> Gate {
    let name = section.read("name", name);
    let protocol = section.read("protocol", protocol);
    let listen =
        section.read("listen", |value| raw::text(value).and_then(|text| Address::parse(&text, GATE_PORT)));
    let upstream = read_upstream(section);
    let cost_window = section.read("cost_window", |value| number(value, 1, Cost::WINDOW_MAX));
    let aging_floor = section.read("aging_floor", raw::at_most_a_day);
    let (policy, long_limit) = policy::read(section, cost_window, aging_floor);
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
        let gate = read(section);
        return (gate.name, gate.policy);
    }
    let cost_window = section.read("cost_window", |value| number(value, 1, Cost::WINDOW_MAX));
    let aging_floor = section.read("aging_floor", raw::at_most_a_day);
    let (policy, _) = policy::read(section, cost_window, aging_floor);
    (section.read("name", name), policy)
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
