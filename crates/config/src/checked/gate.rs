//! A gate: what it protects, where it listens, how it treats clients and the server.

use std::path::PathBuf;
use std::time::Duration;

use admission::{Cost, Policy, RequestType};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::policy::{self, Connections, LongLimit};
use super::types::{self, Names};
use super::words::{absolute_file, name};
use super::{
    Admin, Class, Http, Mysql, OwnTarget, Postgres, Tls, UpstreamTls, class, http, mysql, number, postgres,
    tls,
};
use crate::address::Address;
use crate::complaint::Complaint;
use crate::error::{Error, Position};
use crate::protocol::Protocol;
use crate::raw::{self, GATE, HTTP, POSTGRES, Section, Yardsticks, is_of_mysql};
use crate::{Examine, Fault};

/// The most gates of one process.
const GATES_MAX: usize = 64;
/// What is protected, and what only a gate for that has.
#[derive(Clone, Debug, PartialEq)]
pub enum Service {
    /// A PostgreSQL server.
    Postgres(Postgres),
    /// A MySQL or MariaDB server.
    Mysql(Mysql),
    /// A service that speaks HTTP.
    Http(Http),
}

/// Whether a gate decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It does.
    Enforce,
    /// It only reports what it would have decided.
    Observe,
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
    /// Where clients connect.
    pub listen: Address,
    /// What is protected.
    pub service: Service,
    /// Everything that the gate decides by. Its `long_limit` doesn't know yet what the server may tell of
    /// its cores, and its targets none of types: see [`Gate::policy_of`].
    pub policy: Policy,
    /// How many connections it may have. The policy holds the number that it begins with.
    pub connections: Connections,
    /// The rules by which requests belong to classes, in order. The policy has the classes.
    pub classes: Vec<Class>,
    /// The types with targets of their own.
    pub own_targets: Vec<OwnTarget>,
    /// Where the long lane's limit comes from.
    pub long_limit: LongLimit,
    /// How long overtaking may delay any request. The policy holds what that is in work.
    pub aging_floor: Duration,
    /// How many executions the estimator remembers (also behind an EWMA's weight).
    pub cost_window: u32,
    /// Whether it decides.
    pub mode: Mode,
    /// The most clients connected at once.
    pub max_clients: u32,
    /// How long connecting to the service may take.
    pub connect_timeout: Duration,
    /// How often the service's name is looked up.
    pub dns_ttl: Duration,
    /// TLS with clients.
    pub tls: Tls,
    /// TLS with the service.
    pub upstream_tls: UpstreamTls,
    /// How long a TCP connection may be silent before the other side is probed.
    pub keepalive: Duration,
    /// How long transactions and requests may take to end at shutdown.
    pub drain_timeout: Duration,
    /// Where what was learned is kept, if anywhere.
    pub state_file: Option<PathBuf>,
    /// Where each request is written down, if anywhere.
    pub trace: Trace,
}

pub(crate) const PROTOCOLS: &[(&str, Protocol)] =
    &[("postgres", Protocol::Postgres), ("mysql", Protocol::Mysql), ("http", Protocol::Http)];
pub(crate) const MODES: &[(&str, Mode)] = &[("enforce", Mode::Enforce), ("observe", Mode::Observe)];
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
        for Fault { key, why, hint } in examine(&gate) {
            if !section.has_complained_of(&[key], errors_before) {
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
    let protocol = read_protocol(section);
    let name = section.read("name", name);
    let listen = section.read("listen", |value| {
        let text = raw::text(value)?;
        match protocol {
            Protocol::Postgres => Address::parse(&text, postgres::GATE_PORT),
            Protocol::Mysql => Address::parse(&text, mysql::GATE_PORT),
            Protocol::Http => Address::parse_listen(&text, http::GATE_PORT),
        }
    });
    let cost_window = section.read("cost_window", |value| number(value, 1, Cost::WINDOW_MAX));
    let aging_floor = section.read("aging_floor", raw::at_most_a_day);
    let own_targets = types::read(section, Names::Of(protocol));
    let (mut policy, long_limit, connections) =
        policy::read(section, (protocol, &own_targets), cost_window, aging_floor);
    let classes = class::read(section, class::Rules::Needed(protocol));
    policy.classes = class::policy(&classes);
    let (service, upstream_tls) = match protocol {
        Protocol::Postgres => {
            let postgres = postgres::read(section, listen.is_local());
            let upstream_tls = tls::read_upstream(section, &postgres.upstream);
            (Service::Postgres(postgres), upstream_tls)
        }
        Protocol::Mysql => {
            let mysql = mysql::read(section);
            let upstream_tls = tls::read_upstream(section, &mysql.upstream);
            (Service::Mysql(mysql), upstream_tls)
        }
        Protocol::Http => {
            let (http, scheme) = http::read(section);
            types::check_named(section, &own_targets, &http);
            let upstream_tls = tls::read_upstream_http(section, &http.upstream, scheme);
            (Service::Http(http), upstream_tls)
        }
    };
    Gate {
        name,
        listen,
        service,
        policy,
        connections,
        classes,
        own_targets,
        long_limit,
        aging_floor,
        cost_window,
        mode: section.read("mode", |value| raw::choice(value, MODES)),
        max_clients: section.read("max_clients", |value| number(value, 1, 1_000_000)),
        connect_timeout: section.read("connect_timeout", raw::some_time),
        dns_ttl: section.read("dns_ttl", raw::at_most_a_day),
        tls: tls::read(section, protocol),
        upstream_tls,
        keepalive: section.read("keepalive", keepalive),
        drain_timeout: section.read("drain_timeout", raw::at_most_a_day),
        state_file: section.read("state_file", absolute_file),
        trace: Trace {
            file: section.read("trace_file", absolute_file),
            megabytes_max: section.read("trace_max", |value| number(value, 1, 1_000_000)),
            full: section.read("trace_full", |value| raw::choice(value, TRACE_FULL)),
        },
    }
}

/// What the gate is for, which says what defaults hold and which keys it may have.
fn read_protocol(section: &mut Section<'_>) -> Protocol {
    let protocol = section.read("protocol", |value| raw::choice(value, PROTOCOLS));
    section.for_protocol(protocol);
    let http = HTTP.iter().filter(|_| protocol != Protocol::Http).map(|field| (field, "HTTP", "\"http\""));
    let postgres = POSTGRES.iter().filter(|field| match protocol {
        Protocol::Postgres => false,
        Protocol::Mysql => !is_of_mysql(field.key),
        Protocol::Http => true,
    });
    let postgres = postgres.map(|field| match is_of_mysql(field.key) {
        true => (field, "PostgreSQL or MySQL", "\"postgres\" or \"mysql\""),
        false => (field, "PostgreSQL", "\"postgres\""),
    });
    for (field, service, name) in http.chain(postgres) {
        if section.has(field.key) {
            let complaint = Complaint::new(format!("belongs to a gate for {service}"));
            let hint = format!("leave it out; only with protocol = {name} it has a meaning");
            section.complain(field.key, complaint.hint(hint));
        }
    }
    protocol
}

impl Gate {
    /// What the service speaks.
    pub fn protocol(&self) -> Protocol {
        match self.service {
            Service::Postgres(_) => Protocol::Postgres,
            Service::Mysql(_) => Protocol::Mysql,
            Service::Http(_) => Protocol::Http,
        }
    }

    /// The policy with the targets of types, whose keys the code knows that names requests by their protocol.
    /// A type without one is left out.
    pub fn policy_of(&self, key: impl Fn(&str) -> Option<RequestType>) -> Policy {
        types::policy(&self.policy, &self.own_targets, key)
    }

    /// Where the service listens.
    pub fn upstream(&self) -> &[Address] {
        match &self.service {
            Service::Postgres(postgres) => std::slice::from_ref(&postgres.upstream),
            Service::Mysql(mysql) => std::slice::from_ref(&mysql.upstream),
            Service::Http(http) => &http.upstream,
        }
    }
}

/// The gate of a scenario: all of a gate's keys may be there, but only the name and the policy's matter.
/// `names` are the types of the scenario, by their numbers there; `key` makes keys of numbers. A gate that
/// stands before a real service may have targets of other types, too.
pub fn read_simulated(
    section: &mut Section<'_>,
    names: &[&str],
    key: impl Fn(usize) -> RequestType,
    yardsticks: Yardsticks,
) -> (String, Policy) {
    let key = |name: &str| names.iter().position(|known| *known == name).map(&key);
    if section.has("upstream") {
        let gate = read(section);
        let policy = gate.policy_of(key);
        return (gate.name, policy);
    }
    section.simulate(yardsticks);
    let protocol = read_protocol(section);
    let cost_window = section.read("cost_window", |value| number(value, 1, Cost::WINDOW_MAX));
    let aging_floor = section.read("aging_floor", raw::at_most_a_day);
    let own_targets = types::read(section, Names::Among(names));
    let (mut policy, ..) = policy::read(section, (protocol, &own_targets), cost_window, aging_floor);
    policy.classes = class::policy(&class::read(section, class::Rules::Optional(protocol)));
    (section.read("name", name), types::policy(&policy, &own_targets, key))
}

/// What two gates, or a gate and the admin listener, can't share.
fn refuse_collisions(section: &mut Section<'_>, gate: &Gate, others: &[Gate], admin: &Admin) {
    if others.iter().any(|other| other.name == gate.name) {
        section.complain("name", Complaint::new("another gate has this name").hint("names must be unique"));
    }
    let overlaps = |taken: &&Address| taken.overlaps(&gate.listen);
    if let Some(taken) = others.iter().map(|other| &other.listen).find(overlaps) {
        section.complain("listen", Complaint::new(format!("another gate listens on {taken}")));
    }
    if let Some(taken) = admin.listen.as_ref().filter(overlaps) {
        let where_ = if *taken == gate.listen { String::new() } else { format!(" ({taken})") };
        section.complain("listen", Complaint::new(format!("the admin listener is there{where_}")));
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
    if gate.upstream().iter().any(|it| *it == gate.listen || it.is_local() && it.overlaps(&gate.listen)) {
        section.complain("upstream", Complaint::new("is the gate itself (`listen`)"));
    }
    let groups = |gate: &Gate| gate.classes.iter().filter_map(|it| it.cgroup.clone()).collect::<Vec<_>>();
    let taken = others.iter().flat_map(groups).collect::<Vec<_>>();
    if let Some(group) = groups(gate).iter().find(|one| taken.iter().any(|it| class::are_nested(one, it))) {
        section.complain("class", Complaint::new(format!("another gate has the cgroup {group}")));
    }
    let log = |gate: &Gate| match &gate.service {
        Service::Http(http) => http.access_log.clone(),
        Service::Postgres(_) | Service::Mysql(_) => None,
    };
    if log(gate).is_some() && others.iter().any(|other| log(other) == log(gate)) {
        section.complain("access_log", Complaint::new("another gate writes its log there"));
    }
}

fn keepalive(value: &DeValue<'_>) -> Result<Duration, Complaint> {
    let time = raw::some_time(value)?;
    if time < Duration::from_secs(1) { Err(Complaint::new("must be at least \"1s\"")) } else { Ok(time) }
}
