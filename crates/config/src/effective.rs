//! A world back into TOML: every key with the value that holds, and what was derived as comments.
//!
//! What is printed is itself a configuration, and means the same world.

use std::fmt::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use admission::{AfterStall, Capacity, Contention, Controller, Cost, Order, Policy, Rejection};

use crate::address::Address;
use crate::checked::{
    Auth, CHANNEL_BINDINGS, Connections, FORMATS, Gate, Identity, LEVELS, LongLimit, METHODS, MODES, Mode,
    Mysql, ON_DISCONNECT, OwnTarget, POOLINGS, PROTOCOLS, Pooling, Postgres, SOCKET_MODES, Service,
    TLS_MODES, TRACE_FULL, TUNINGS, UPSTREAM_MODES, World, rejection_name,
};
use crate::raw::CONTROLLERS;

mod class;
mod http;

/// The effective configuration as TOML.
pub fn effective(world: &World) -> String {
    lines(world).text
}

/// One key with the value that holds, as it is written in TOML.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its section in words: `admin`, `log`, or such as `gate "shop"`.
    pub section: String,
    /// The gate that it is of.
    pub gate: Option<String>,
    /// The key.
    pub key: &'static str,
    /// The value.
    pub value: String,
}

/// Every key that has a value, in the order of [`effective()`].
pub fn rows(world: &World) -> Vec<Row> {
    lines(world).rows
}

fn lines(world: &World) -> Lines {
    let mut out = Lines::default();
    out.section("admin", None);
    out.header("[admin]");
    match &world.admin.listen {
        Some(address) => out.text("listen", address),
        None => out.text("listen", "none"),
    }
    let path = |path: &Option<PathBuf>| {
        path.as_ref().map_or_else(|| "none".to_owned(), |path| path.display().to_string())
    };
    out.value("names", toml::Value::from(world.admin.names.clone()));
    out.value("metrics_types_max", world.admin.metrics_types_max);
    out.text("socket", path(&world.admin.socket));
    out.text("socket_mode", name_of(SOCKET_MODES, &world.admin.socket_mode));
    out.text("token_file", path(&world.admin.token_file));
    out.section("log", None);
    out.header("\n[log]");
    out.text("format", name_of(FORMATS, &world.log.format));
    out.text("level", name_of(LEVELS, &world.log.level));
    out.section("process", None);
    out.header("\n[process]");
    out.time("handover_timeout", world.handover_timeout);
    match world.memory_max {
        Some(megabytes) => out.value("memory_max", megabytes),
        None => out.text("memory_max", "auto"),
    }
    for gate in &world.gates {
        out.section(&format!("gate {:?}", gate.name), Some(&gate.name));
        out.header("\n[[gate]]");
        service(&mut out, gate);
        admission(&mut out, gate);
        match &gate.service {
            Service::Postgres(postgres) => sessions(&mut out, gate, postgres),
            Service::Mysql(mysql) => mysql_sessions(&mut out, gate, mysql),
            Service::Http(of_http) => http::requests(&mut out, gate, of_http),
        }
        operation(&mut out, gate);
    }
    out
}

/// What stands beside a value that only serves to compare with.
const LABORATORY: &str = "the laboratory: a published method, to compare with";

fn service(out: &mut Lines, gate: &Gate) {
    out.text("name", &gate.name);
    out.text("protocol", name_of(PROTOCOLS, &gate.protocol()));
    out.text("listen", &gate.listen);
    match gate.upstream() {
        [one] => out.text("upstream", one),
        all => out.texts("upstream", all),
    }
    out.text("mode", name_of(MODES, &gate.mode));
    if let Service::Postgres(postgres) = &gate.service {
        out.text("pooling", name_of(POOLINGS, &postgres.pooling));
    }
    match (gate.mode, &gate.service) {
        (Mode::Observe, Service::Postgres(Postgres { pooling: Pooling::Transaction, .. })) => {
            out.note("observing: each session has a connection of its own, and nothing is limited");
        }
        (Mode::Observe, _) => out.note("observing: nothing is limited"),
        (Mode::Enforce, _) => {}
    }
}

fn admission(out: &mut Lines, gate: &Gate) {
    let Policy { capacity, connections, cost, order, pinned_max, .. } = &gate.policy;
    match gate.connections {
        Connections::Fixed(connections) => {
            out.value("connections", connections);
            if !matches!(gate.service, Service::Http(_)) {
                out.value("pinned_max", pinned_max);
            }
        }
        Connections::Found { pinned_max } => {
            out.text("connections", "auto");
            out.note("connections: what the server allows, less what others hold; of that a quarter and at least 3");
            out.note(&format!("stay free. {connections} where the server doesn't tell"));
            match pinned_max {
                Some(pinned_max) => out.value("pinned_max", pinned_max),
                None => out.note("pinned_max: half of the connections"),
            }
        }
    }
    let unit = match cost {
        Cost::MovingAverage { window } => {
            format!("the mean upstream time of a type's last {window} executions")
        }
        Cost::Ewma { weight } => {
            format!("the moving mean of a type's upstream times, the newest weighing {weight:.4}")
        }
        Cost::Fixed { window } => {
            format!("the mean upstream time of a type's first {window} executions, never corrected")
        }
        Cost::Steady => "the mean time that a type's executions would have taken alone".to_owned(),
    };
    out.text("capacity", capacity_text(*capacity));
    if *capacity == Capacity::Unlimited {
        out.note("no capacity: only connections and the long lane limit what is in flight");
    }
    if matches!(capacity, Capacity::Found(Controller::IncrementalSteps | Controller::Parabola)) {
        out.note(LABORATORY);
    }
    out.text("contention", if gate.policy.contention == Contention::None { "none" } else { "auto" });
    out.note(&format!("the unit of work and of capacity: {unit}"));
    let name = match cost {
        Cost::MovingAverage { .. } => "moving-average",
        Cost::Ewma { .. } => "ewma",
        Cost::Fixed { .. } => "fixed",
        Cost::Steady => "steady",
    };
    out.text("cost", name);
    out.value("cost_window", gate.cost_window);
    match gate.long_limit {
        LongLimit::Auto => {
            out.text("long_limit", "auto");
            let before = match gate.service {
                Service::Postgres(_) => {
                    "the server's cores if it tells them, else three quarters of the connections"
                }
                Service::Mysql(_) | Service::Http(_) => "three quarters of the connections",
            };
            out.note(&format!("long_limit: found while requests are served; until then {before}"));
        }
        LongLimit::Fixed(limit) => out.value("long_limit", limit),
        LongLimit::NoLane => out.text("long_limit", "none"),
    }
    match order {
        Order::Fifo => {
            out.text("order", "fifo");
            out.note("aging and aging_floor have no meaning with fifo");
        }
        Order::ShortestFirst { aging, .. } => {
            out.text("order", "shortest-first");
            match aging {
                Some(aging) => out.value("aging", aging),
                None => out.text("aging", "none"),
            }
            out.time("aging_floor", gate.aging_floor);
        }
    }
    out.value("queue_max", gate.policy.queue_max);
    out.time("queue_timeout", gate.policy.queue_timeout);
    let after_stall = match gate.policy.after_stall {
        AfterStall::NewcomersFirst => "newcomers-first",
        AfterStall::InOrder => "in-order",
    };
    out.text("after_stall", after_stall);
    rejection(out, &gate.policy.rejection);
    out.value("type", own_targets(&gate.own_targets));
    out.value("class", class::classes(&gate.classes));
    out.time("goal_tick", gate.policy.adaptation.tick);
    out.value("types_max", gate.policy.types_max);
    out.time("suspend_after", gate.policy.suspend_after);
}

fn rejection(out: &mut Lines, rejection: &Rejection) {
    out.text("rejection", rejection_name(rejection));
    match rejection {
        Rejection::Nobody | Rejection::Deadline | Rejection::Other(_) => {}
        Rejection::Target(targets) => {
            for (key, time) in [("target", targets.all.mean), ("target_p95", targets.all.p95)] {
                if let Some(time) = time {
                    out.time(key, time);
                }
            }
        }
        Rejection::Yaksha(settings) => {
            out.time("target", settings.target);
            out.note(LABORATORY);
            out.value("yaksha_arrivals", settings.arrivals);
            out.text("yaksha_tuning", name_of(TUNINGS, &settings.tuning));
            out.time("yaksha_interval", settings.interval);
            out.time("yaksha_smoothing", settings.smoothing);
            out.time("yaksha_averaging", settings.averaging);
        }
    }
}

/// In one line, which means the same as tables below the gate.
fn own_targets(targets: &[OwnTarget]) -> toml::Value {
    let table = |OwnTarget { name, goal }: &OwnTarget| {
        let time = |key: &str, time: Option<Duration>| -> Option<(String, toml::Value)> {
            time.map(|time| (key.to_owned(), humantime::format_duration(time).to_string().into()))
        };
        let keys = [
            Some(("name".to_owned(), name.clone().into())),
            time("target", goal.mean),
            time("target_p95", goal.p95),
        ];
        toml::Value::Table(keys.into_iter().flatten().collect())
    };
    toml::Value::Array(targets.iter().map(table).collect())
}

fn sessions(out: &mut Lines, gate: &Gate, postgres: &Postgres) {
    out.value("max_clients", gate.max_clients);
    out.bound("user_clients_max", postgres.user_clients_max);
    out.bound("database_clients_max", postgres.database_clients_max);
    out.value("logins_max", postgres.logins_max);
    let (own, of_own) = match postgres.auth.query {
        Some(_) => (1, " + 1 of auth_user"),
        None => (0, ""),
    };
    match gate.connections {
        Connections::Fixed(connections) => out.note(&format!(
            "at most {} server connections: connections + logins_max{of_own}",
            connections.saturating_add(postgres.logins_max).saturating_add(own)
        )),
        Connections::Found { .. } => {
            out.note(
                "at once as many logins as leave half of the free connections to others, if that is less",
            );
        }
    }
    match postgres.idle_transaction_timeout {
        Some(time) => out.time("idle_transaction_timeout", time),
        None => out.text("idle_transaction_timeout", "none"),
    }
    match postgres.wait_notice {
        Some(time) => out.time("wait_notice", time),
        None => out.text("wait_notice", "none"),
    }
    out.time("login_timeout", postgres.login_timeout);
    out.time("message_timeout", postgres.message_timeout);
    out.time("connect_timeout", gate.connect_timeout);
    tls(out, gate);
    out.time("dns_ttl", gate.dns_ttl);
    out.time("keepalive", gate.keepalive);
    out.value("allow_trust_relay", postgres.allow_trust_relay);
    authentication(out, &postgres.auth);
    out.value("lower_long_reads", postgres.lower_long_reads);
    out.text("on_disconnect", name_of(ON_DISCONNECT, &postgres.on_disconnect));
    out.time("drain_timeout", gate.drain_timeout);
}

fn mysql_sessions(out: &mut Lines, gate: &Gate, mysql: &Mysql) {
    out.value("max_clients", gate.max_clients);
    out.time("login_timeout", mysql.login_timeout);
    out.time("message_timeout", mysql.message_timeout);
    out.time("connect_timeout", gate.connect_timeout);
    tls(out, gate);
    out.time("dns_ttl", gate.dns_ttl);
    out.time("keepalive", gate.keepalive);
    out.text("users_file", mysql.users_file.display());
    if let Some(query) = &mysql.query {
        out.text("auth_user", &query.user);
        match &query.sql {
            Some(sql) => out.text("auth_query", sql),
            None => out.note("auth_query: authentication_string out of mysql.user"),
        }
    }
    failures_max(out, mysql.failures_max);
    out.time("drain_timeout", gate.drain_timeout);
}

fn operation(out: &mut Lines, gate: &Gate) {
    out.file("state_file", gate.state_file.as_ref());
    out.file("trace_file", gate.trace.file.as_ref());
    out.value("trace_max", gate.trace.megabytes_max);
    out.text("trace_full", name_of(TRACE_FULL, &gate.trace.full));
    let mut users = |admins: &[String], stats: &[String]| {
        out.value("admin_users", toml::Value::from(admins.to_vec()));
        out.value("stats_users", toml::Value::from(stats.to_vec()));
    };
    match &gate.service {
        Service::Postgres(postgres) => {
            users(&postgres.admin_users, &postgres.stats_users);
            out.text("admin_database", &postgres.admin_database);
        }
        Service::Mysql(mysql) => users(&mysql.admin_users, &mysql.stats_users),
        Service::Http(_) => {}
    }
}

fn authentication(out: &mut Lines, auth: &Auth) {
    out.text("auth", name_of(METHODS, &auth.method));
    if let Some(path) = &auth.users_file {
        out.text("users_file", path.display());
    }
    if let Some(query) = &auth.query {
        out.text("auth_user", &query.user);
        out.text("auth_database", &query.database);
        match &query.sql {
            Some(sql) => out.text("auth_query", sql),
            None => out.note("auth_query: rolpassword out of pg_authid, for roles that may log in"),
        }
    }
    failures_max(out, auth.failures_max);
    out.value("allow_cleartext", auth.allow_cleartext);
    out.text("upstream_channel_binding", name_of(CHANNEL_BINDINGS, &auth.channel_binding));
}

fn failures_max(out: &mut Lines, bound: Option<u32>) {
    match bound {
        Some(bound) => out.value("login_failures_max", bound),
        None => out.text("login_failures_max", "none"),
    }
}

fn tls(out: &mut Lines, gate: &Gate) {
    let Gate { tls, upstream_tls, .. } = gate;
    out.text("tls_mode", name_of(TLS_MODES, &tls.mode));
    match tls.identities.as_slice() {
        [] => {}
        [one] => identity(out, "tls_cert", "tls_key", Some(one)),
        several => {
            let of = |path: fn(&Identity) -> &PathBuf| -> Vec<String> {
                several.iter().map(|identity| path(identity).display().to_string()).collect()
            };
            out.texts("tls_cert", &of(|identity| &identity.certificate));
            out.texts("tls_key", &of(|identity| &identity.key));
        }
    }
    out.path("tls_client_ca", tls.client_ca.as_ref());
    // Over a Unix socket there is none.
    if matches!(gate.upstream(), [Address::Inet { .. }, ..]) {
        out.text("upstream_tls_mode", name_of(UPSTREAM_MODES, &upstream_tls.mode));
    }
    out.path("upstream_tls_ca", upstream_tls.ca.as_ref());
    identity(out, "upstream_tls_cert", "upstream_tls_key", upstream_tls.identity.as_ref());
}

fn identity(out: &mut Lines, certificate: &'static str, key: &'static str, identity: Option<&Identity>) {
    out.path(certificate, identity.map(|identity| &identity.certificate));
    out.path(key, identity.map(|identity| &identity.key));
}

/// A capacity as it is written in a configuration.
pub fn capacity_text(capacity: Capacity) -> String {
    match capacity {
        Capacity::Fixed(work) => {
            humantime::format_duration(Duration::from_nanos(work.as_nanos())).to_string()
        }
        Capacity::Found(Controller::Other(maker)) => maker.name.to_owned(),
        Capacity::Found(controller) => name_of(CONTROLLERS, &controller).to_owned(),
        Capacity::Unlimited => "none".to_owned(),
    }
}

fn name_of<T: PartialEq>(names: &[(&'static str, T)], value: &T) -> &'static str {
    let named = names.iter().find(|(_, named)| named == value);
    named.map_or("?", |(name, _)| *name)
}

/// Lines of TOML. (Writing to a string cannot fail.)
#[derive(Default)]
struct Lines {
    text: String,
    rows: Vec<Row>,
    section: String,
    gate: Option<String>,
}

impl Lines {
    fn header(&mut self, header: &str) {
        let _ = writeln!(self.text, "{header}");
    }

    fn note(&mut self, note: &str) {
        let _ = writeln!(self.text, "# {note}");
    }

    fn section(&mut self, section: &str, gate: Option<&str>) {
        self.section = section.to_owned();
        self.gate = gate.map(str::to_owned);
    }

    fn value(&mut self, key: &'static str, value: impl fmt::Display) {
        // It is in force: no variable is to be looked for in it.
        let value = value.to_string().replace("${", "$${");
        let _ = writeln!(self.text, "{key} = {value}");
        let (section, gate) = (self.section.clone(), self.gate.clone());
        self.rows.push(Row { section, gate, key, value });
    }

    fn text(&mut self, key: &'static str, text: impl fmt::Display) {
        self.value(key, toml::Value::from(text.to_string()));
    }

    fn texts<T: fmt::Display>(&mut self, key: &'static str, texts: &[T]) {
        let texts: Vec<String> = texts.iter().map(T::to_string).collect();
        self.value(key, toml::Value::from(texts));
    }

    /// A file, or that there is none.
    fn file(&mut self, key: &'static str, path: Option<&PathBuf>) {
        match path {
            Some(path) => self.text(key, path.display()),
            None => self.text(key, "none"),
        }
    }

    fn path(&mut self, key: &'static str, path: Option<&PathBuf>) {
        if let Some(path) = path {
            self.text(key, path.display());
        }
    }

    fn bound(&mut self, key: &'static str, bound: Option<u32>) {
        match bound {
            Some(bound) => self.value(key, bound),
            None => self.text(key, "none"),
        }
    }

    fn time(&mut self, key: &'static str, time: Duration) {
        self.text(key, humantime::format_duration(time));
    }
}
