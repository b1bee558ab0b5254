//! The settings of `[pgbouncer]`, and what each comes to.

use super::ini::Database;
use super::{Pairs, one_line, quoted};

/// A gate to be written: its place in the file, its server, its databases.
pub(super) struct Gate<'a> {
    pub(super) number: usize,
    pub(super) server: String,
    pub(super) databases: &'a [&'a Database],
}

/// What holds for every gate.
#[derive(Debug, Default)]
pub(super) struct Lines {
    pub(super) lines: Vec<String>,
    /// What has no counterpart.
    pub(super) remarks: Vec<String>,
}

/// Settings in seconds; zero means never.
const TIMES: [(&str, &str); 7] = [
    ("query_wait_notify", "wait_notice"),
    ("query_wait_timeout", "queue_timeout"),
    ("client_login_timeout", "login_timeout"),
    ("server_connect_timeout", "connect_timeout"),
    ("idle_transaction_timeout", "idle_transaction_timeout"),
    ("dns_max_ttl", "dns_ttl"),
    ("tcp_keepidle", "keepalive"),
];
/// The longest time that a key takes, in seconds.
const SECONDS_MAX: f64 = 86_400.0;
/// Settings that are whole numbers; zero means no bound.
const NUMBERS: [(&str, &str); 3] = [
    ("max_client_conn", "max_clients"),
    ("max_user_client_connections", "user_clients_max"),
    ("max_db_client_connections", "database_clients_max"),
];
/// Settings that are texts or lists of names.
const LISTS: [(&str, &str); 2] = [("admin_users", "admin_users"), ("stats_users", "stats_users")];
/// Settings that other parts of the text tell.
const ELSEWHERE: [&str; 16] = [
    "listen_addr",
    "listen_port",
    "unix_socket_dir",
    "default_pool_size",
    "max_db_connections",
    "pool_mode",
    "auth_type",
    "auth_file",
    "auth_user",
    "auth_query",
    "auth_dbname",
    "client_tls_sslmode",
    "client_tls_cert_file",
    "client_tls_key_file",
    "client_tls_ca_file",
    "server_tls_sslmode",
];
/// The files of `server_tls_sslmode`.
const SERVER_FILES: [&str; 3] = ["server_tls_ca_file", "server_tls_cert_file", "server_tls_key_file"];

/// Why a setting has no counterpart, and what to do.
pub(super) fn why(key: &str) -> Option<&'static str> {
    Some(match key {
        "logfile" | "syslog" | "syslog_facility" | "syslog_ident" => {
            "the log goes to standard error: systemd keeps it, or redirect it"
        }
        "log_connections" | "log_disconnections" | "log_pooler_errors" | "verbose" => {
            "[log] level = \"debug\" tells more"
        }
        "log_stats" | "stats_period" => "see /metrics of the admin listener, and SHOW STATS",
        "pidfile" => "systemd knows the process; gatekeeper doesn't become a daemon",
        "user" => "systemd's User= chooses the user",
        "job_name" | "service_name" | "conffile" => {
            "processes and gates have names of their own: name = \"…\""
        }
        "unix_socket_mode" | "unix_socket_group" => "the directory of the socket says who may connect",
        "min_pool_size" | "reserve_pool_size" | "reserve_pool_timeout" => {
            "pools fill as clients need them; connections is the bound"
        }
        "max_user_connections" => {
            "ALTER ROLE … CONNECTION LIMIT on the server bounds it, and the gate keeps to that"
        }
        "server_reset_query" | "server_reset_query_always" => {
            "each session's settings are restored; nothing is reset"
        }
        "server_check_query" | "server_check_delay" => "a dead connection is noticed without a query",
        "server_fast_close" | "server_round_robin" => {
            "connections are used last in, first out, and closed between transactions"
        }
        "server_lifetime" | "server_idle_timeout" => {
            "with auth and connections = \"auto\" a connection unused for a minute is closed"
        }
        "server_login_retry" => "a server that is away is asked again by itself",
        "client_idle_timeout" => {
            "idle clients cost a few kilobytes; idle_session_timeout of the server ends sessions"
        }
        "query_timeout" => "statement_timeout of the server ends statements",
        "cancel_wait_timeout" => "cancel requests don't wait",
        "suspend_timeout" | "so_reuseport" => "there is no SUSPEND and no online restart",
        "ignore_startup_parameters" => {
            "not needed: start-up parameters are passed on to the server, and each set of them has its pool"
        }
        "track_extra_parameters" => "not needed: every setting of a session follows it",
        "max_prepared_statements" => "not needed: prepared statements always follow their session",
        "disable_pqexec" => {
            "a simple query may hold several statements; the server's roles say what they may do"
        }
        "application_name_add_host" => "application_name is passed on as it is",
        "auth_hba_file" | "auth_ident_file" => {
            "no hba: one auth for the gate; a firewall or a gate of its own for other addresses"
        }
        "client_tls_protocols"
        | "client_tls_ciphers"
        | "client_tls_ecdhcurve"
        | "client_tls_dheparams"
        | "client_tls13_ciphers" => "TLS 1.2 and 1.3 with safe ciphers; nothing to choose",
        "server_tls_protocols" | "server_tls_ciphers" | "server_tls13_ciphers" => {
            "TLS 1.2 and 1.3 with safe ciphers; nothing to choose"
        }
        "pkt_buf" | "max_packet_size" | "sbuf_loopcnt" | "listen_backlog" | "tcp_socket_buffer"
        | "tcp_defer_accept" => "buffers are bounded by memory_max; nothing to choose",
        "tcp_keepalive" | "tcp_keepcnt" | "tcp_keepintvl" | "tcp_user_timeout" => {
            "keepalive says how long a connection may be silent"
        }
        "dns_nxdomain_ttl" | "dns_zone_check_period" | "resolv_conf" => {
            "the system's resolver is asked every dns_ttl"
        }
        "peer_id" => "not needed: a gate knows its own cancel keys",
        _ => return None,
    })
}

impl Lines {
    pub(super) fn of(settings: &Pairs) -> Self {
        let mut all = Self::default();
        all.pooling(settings);
        all.logins(settings);
        all.tls(settings);
        for (theirs, ours) in TIMES {
            if let Some(value) = settings.get(theirs) {
                all.time(theirs, ours, value);
            }
        }
        for (theirs, ours) in NUMBERS {
            match settings.get(theirs).map(|value| (value, value.parse::<u32>())) {
                None | Some((_, Ok(0))) => {}
                Some((_, Ok(number))) => all.lines.push(format!("{ours} = {number}")),
                Some((value, Err(_))) => all.remark(theirs, value, "is no whole number"),
            }
        }
        for (theirs, ours) in LISTS {
            let names =
                settings.get(theirs).map(|value| value.split(',').map(str::trim).filter(|it| !it.is_empty()));
            let names: Vec<_> = names.into_iter().flatten().map(quoted).collect();
            if !names.is_empty() {
                all.lines.push(format!("{ours} = [{}]", names.join(", ")));
            }
        }
        for (key, value) in settings {
            let is_told = TIMES.iter().chain(&NUMBERS).chain(&LISTS).any(|(theirs, _)| theirs == key)
                || ELSEWHERE.contains(&key.as_str())
                || SERVER_FILES.contains(&key.as_str());
            if !is_told {
                all.remark(
                    key,
                    value,
                    why(key).unwrap_or("PgBouncer's manual doesn't have it, and Gatekeeper doesn't"),
                );
            }
        }
        all
    }

    fn remark(&mut self, key: &str, value: &str, why: &str) {
        self.remarks.push(format!("{} = {}: {why}.", one_line(key), one_line(value)));
    }

    fn time(&mut self, theirs: &str, ours: &str, value: &str) {
        match value.parse::<f64>() {
            Ok(0.0) if ours == "dns_ttl" => self.lines.push("dns_ttl = \"0s\"".to_owned()),
            Ok(0.0) if ours == "queue_timeout" => {
                self.remark(theirs, value, "a wait has a bound, 24 h at most");
                self.lines.push("queue_timeout = \"24h\"".to_owned());
            }
            // The system's own time, or no bound.
            Ok(0.0) => self.remark(theirs, value, &format!("{ours} keeps its default")),
            Ok(seconds) if seconds > 0.0 && seconds <= SECONDS_MAX => {
                let text = match seconds.fract() {
                    0.0 => format!("{seconds:.0}s"),
                    _ => format!("{:.0}ms", seconds * 1e3),
                };
                self.lines.push(format!("{ours} = \"{text}\""));
            }
            _ => self.remark(theirs, value, &format!("{ours} takes up to 24 h")),
        }
    }

    fn pooling(&mut self, settings: &Pairs) {
        let pooling = match settings.get("pool_mode").map(String::as_str) {
            Some("transaction") => "transaction",
            Some("statement") => {
                let why = "there is no statement mode; transaction pooling allows transactions, too";
                self.remark("pool_mode", "statement", why);
                "transaction"
            }
            _ => {
                self.lines.push(
                    "# PgBouncer's default. With \"transaction\" far fewer connections do: try that, sessions keep their state.".into(),
                );
                "session"
            }
        };
        self.lines.push(format!("pooling = \"{pooling}\""));
    }

    fn logins(&mut self, settings: &Pairs) {
        let kind = settings.get("auth_type").map_or("md5", String::as_str);
        let file = settings.get("auth_file").filter(|file| !file.is_empty());
        let auth = match kind {
            "md5" | "scram-sha-256" | "trust" => kind,
            "plain" => {
                self.remark(
                    "auth_type",
                    kind,
                    "passwords aren't sent in the clear; clients prove them by SCRAM",
                );
                "scram-sha-256"
            }
            "cert" => {
                let why = "client certificates are checked by tls_mode = \"verify-full\"; then the server authenticates, or auth = \"trust\" with a users_file lets them in";
                self.remark("auth_type", kind, why);
                "relay"
            }
            _ => {
                self.remark(
                    "auth_type",
                    kind,
                    "there is no such method; the server authenticates each login (auth = \"relay\")",
                );
                "relay"
            }
        };
        match file {
            Some(file) if auth != "relay" => {
                self.lines.push(format!("auth = \"{auth}\""));
                self.lines.push("# Its mode has to be 0600 or 0640.".to_owned());
                self.lines.push(format!("users_file = {}", quoted(file)));
                self.lookup(settings);
            }
            _ => {
                for key in ["auth_file", "auth_user", "auth_query", "auth_dbname"] {
                    if let Some(value) = settings.get(key) {
                        self.remark(key, value, "needs an auth that the gate does itself, and a users_file with auth_user's password");
                    }
                }
                self.lines.push(
                    "# The server authenticates each login; with a users_file the gate does it faster."
                        .into(),
                );
                self.lines.push("auth = \"relay\"".to_owned());
            }
        }
    }

    /// Users that the server is asked for.
    fn lookup(&mut self, settings: &Pairs) {
        let get = |key: &str| settings.get(key).filter(|value| !value.is_empty());
        let user = get("auth_user");
        for (theirs, ours) in
            [("auth_user", "auth_user"), ("auth_query", "auth_query"), ("auth_dbname", "auth_database")]
        {
            match get(theirs) {
                Some(value) if user.is_some() => self.lines.push(format!("{ours} = {}", quoted(value))),
                Some(value) => self.remark(theirs, value, "needs an auth_user"),
                None => {}
            }
        }
        if user.is_some() && get("auth_dbname").is_none() {
            self.lines
                .push("# PgBouncer asks in the client's database, and the gate in this one.".to_owned());
            self.lines.push("auth_database = \"postgres\"".to_owned());
        }
    }

    fn tls(&mut self, settings: &Pairs) {
        let get = |key: &str| settings.get(key).filter(|value| !value.is_empty() && !value.starts_with('<'));
        let mode = settings.get("client_tls_sslmode").map_or("disable", String::as_str);
        match (mode, get("client_tls_cert_file"), get("client_tls_key_file")) {
            ("disable", ..) => {}
            (mode, Some(cert), Some(key)) => {
                self.lines.push(format!("tls_mode = {}", quoted(mode)));
                self.lines.push(format!("tls_cert = {}", quoted(cert)));
                self.lines.push(format!("tls_key = {}", quoted(key)));
                if let Some(ca) = get("client_tls_ca_file") {
                    self.lines.push(format!("tls_client_ca = {}", quoted(ca)));
                }
            }
            (mode, ..) => {
                self.remark("client_tls_sslmode", mode, "needs client_tls_cert_file and client_tls_key_file");
                if !matches!(mode, "allow" | "prefer") {
                    // Without it clients would be let in without TLS: `check` is to refuse the file.
                    self.lines.push(format!("tls_mode = {}", quoted(mode)));
                }
            }
        }
        let Some(mode) = settings.get("server_tls_sslmode") else { return };
        let ca = get("server_tls_ca_file");
        if mode.starts_with("verify") && ca.is_none() {
            let why =
                "needs upstream_tls_ca; for the system's authorities: \"/etc/ssl/certs/ca-certificates.crt\"";
            self.remark("server_tls_sslmode", mode, why);
        }
        self.lines.push(format!("upstream_tls_mode = {}", quoted(mode)));
        if mode == "disable" {
            return;
        }
        let files = ["upstream_tls_ca", "upstream_tls_cert", "upstream_tls_key"];
        for (theirs, ours) in SERVER_FILES.iter().zip(files) {
            if let Some(file) = get(theirs) {
                self.lines.push(format!("{ours} = {}", quoted(file)));
            }
        }
    }
}
