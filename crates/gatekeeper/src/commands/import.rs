//! `gatekeeper import pgbouncer.ini`: the configuration that PgBouncer's file comes to.
//!
//! Databases on one server become one gate. What has no counterpart stands in comments, each with why and
//! what to do. Passwords are never printed.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;

use crate::Failure;

mod ini;
mod settings;

use ini::{Database, Ini};
use settings::{Gate, Lines};

/// The longest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// PgBouncer's pool for a user and a database, unless the file says otherwise.
const POOL_SIZE: u32 = 20;
/// How far the ports of gates lie apart: the next port is the admin listener's.
const PORT_STEP: u16 = 100;
/// The most connections that a gate takes.
const CONNECTIONS_MAX: u32 = 10_000;

/// The configuration as a text.
pub(crate) fn import(file: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = std::fs::File::open(file)
        .and_then(|opened| opened.take(FILE_BYTES_MAX + 1).read_to_string(&mut text));
    let told = |why: String| Failure::Usage(format!("{}: {why}", file.display()));
    read.map_err(|error| told(format!("cannot be read: {error}")))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(told(format!("is longer than {FILE_BYTES_MAX} bytes")));
    }
    let ini = Ini::parse(&text).map_err(told)?;
    Ok(written(&ini))
}

fn written(ini: &Ini) -> String {
    let settings = Lines::of(&ini.settings);
    let mut text = String::from(
        "# What a pgbouncer.ini comes to, by `gatekeeper import`. Read the comments, then run `gatekeeper check FILE`.\n",
    );
    for remark in ini.remarks.iter().chain(&settings.remarks) {
        text += &format!("# {remark}\n");
    }
    for (number, (server, databases)) in servers(ini).into_iter().enumerate() {
        text += "\n[[gate]]\n";
        let gate = Gate { number, server, databases: &databases };
        for line in gate.lines(ini).iter().chain(&settings.lines) {
            text += &format!("{line}\n");
        }
    }
    text
}

/// The databases by server, in the order of the file; PgBouncer's own socket directory without any.
fn servers(ini: &Ini) -> Vec<(String, Vec<&Database>)> {
    let mut servers: Vec<(String, Vec<&Database>)> = Vec::new();
    for database in &ini.databases {
        let server = database.server();
        match servers.iter_mut().find(|(known, _)| *known == server) {
            Some((_, databases)) => databases.push(database),
            None => servers.push((server, vec![database])),
        }
    }
    if servers.is_empty() {
        servers.push((Database::default().server(), Vec::new()));
    }
    servers
}

/// A text in the quotes of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            _ if letter.is_control() => quoted += &format!("\\u{:04X}", u32::from(letter)),
            _ => quoted.push(letter),
        }
    }
    quoted + "\""
}

impl Gate<'_> {
    /// The lines that differ from gate to gate.
    fn lines(&self, ini: &Ini) -> Vec<String> {
        let mut lines = Vec::new();
        if ini.databases.iter().any(|it| it.server() != self.server) {
            lines.push(format!("name = \"server-{}\"", self.number + 1));
        }
        let names: Vec<_> = self.databases.iter().map(|it| it.name.as_str()).collect();
        if !names.is_empty() {
            lines.push(format!(
                "# For the databases {}. Clients name the server's own databases.",
                names.join(", ")
            ));
        }
        self.listen(ini, &mut lines);
        lines.push(format!("upstream = {}", quoted(&self.server)));
        self.connections(ini, &mut lines);
        for database in self.databases {
            lines.extend(database.remarks().into_iter().map(|remark| format!("# {remark}")));
        }
        lines
    }

    fn listen(&self, ini: &Ini, lines: &mut Vec<String>) {
        let get = |key: &str| ini.settings.get(key).map(String::as_str).unwrap_or_default();
        let port: u16 = get("listen_port").parse().unwrap_or(6432);
        let more = u16::try_from(self.number).unwrap_or(u16::MAX).saturating_mul(PORT_STEP);
        let port = port.saturating_add(more);
        if self.number > 0 {
            lines.push(
                "# Each server has a gate with a port of its own: clients of these databases connect here."
                    .into(),
            );
        }
        let mut addresses = get("listen_addr").split(',').map(str::trim).filter(|it| !it.is_empty());
        let Some(first) = addresses.next() else {
            let directory = get("unix_socket_dir");
            let directory = if directory.is_empty() { "/tmp" } else { directory };
            lines.push(format!("listen = {}", quoted(&format!("unix:{directory}/.s.PGSQL.{port}"))));
            return;
        };
        let host = match first {
            "*" => "0.0.0.0".to_owned(),
            "localhost" => "127.0.0.1".to_owned(),
            v6 if v6.contains(':') => format!("[{v6}]"),
            host => host.to_owned(),
        };
        lines.push(format!("listen = {}", quoted(&format!("{host}:{port}"))));
        let others: Vec<_> = addresses.collect();
        if !others.is_empty() {
            let others = others.join(", ");
            lines.push(format!("# listen_addr also has {others}: a gate listens at one address; \"0.0.0.0:{port}\" is all of IPv4."));
        }
        let directory = get("unix_socket_dir");
        if !directory.is_empty() {
            lines.push(format!(
                "# unix_socket_dir = {directory}: a gate listens at one address; choose TCP or the socket."
            ));
        }
    }

    /// PgBouncer's pools are for each user and database, the gate's budget is for all together.
    fn connections(&self, ini: &Ini, lines: &mut Vec<String>) {
        let whole = |text: Option<&String>| text.and_then(|text| text.trim().parse::<u32>().ok());
        let default = whole(ini.settings.get("default_pool_size")).unwrap_or(POOL_SIZE);
        let most = whole(ini.settings.get("max_db_connections")).filter(|most| *most > 0);
        let sizes = self.databases.iter().map(|database| {
            let size = whole(database.parameters.get("pool_size")).unwrap_or(default);
            let own = whole(database.parameters.get("max_db_connections")).filter(|most| *most > 0);
            own.or(most).map_or(size, |most| most.min(size))
        });
        let sum = sizes.fold(0_u32, u32::saturating_add);
        let sum = if self.databases.is_empty() { default } else { sum }.clamp(1, CONNECTIONS_MAX);
        lines.push("# The sum of the pool sizes, for one user each. It is for all users together, and moves to the pools".into());
        lines.push("# that need it. \"auto\" asks the server instead.".into());
        lines.push(format!("connections = {sum}"));
    }
}

impl Database {
    /// Where its server is, as `upstream` takes it.
    fn server(&self) -> String {
        let port = self.parameters.get("port").map_or("5432", |port| port.trim());
        match self.parameters.get("host").map(|host| host.split(',').next().unwrap_or(host).trim()) {
            None | Some("") => format!("unix:/var/run/postgresql/.s.PGSQL.{port}"),
            Some(directory) if directory.starts_with('/') => format!("unix:{directory}/.s.PGSQL.{port}"),
            Some(host) if host.contains(':') => format!("[{host}]:{port}"),
            Some(host) => format!("{host}:{port}"),
        }
    }

    /// What of it has no counterpart.
    fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        for (key, value) in &self.parameters {
            let name = &self.name;
            let why = match key.as_str() {
                "host" if value.contains(',') => {
                    "one server a gate; write a gate for each other host".to_owned()
                }
                "host" | "port" | "pool_size" => continue,
                "dbname" if value == name => continue,
                "dbname" => format!("no aliases; have its clients ask for {value}"),
                "user" => "no user is put in: clients log in as themselves; give them this user".to_owned(),
                "password" => {
                    "no password belongs here: clients log in as themselves, see users_file".to_owned()
                }
                "auth_user" => "a gate has one auth_user".to_owned(),
                "pool_mode" => "pooling is the gate's; write a gate of its own for this database".to_owned(),
                "max_db_connections" => {
                    "counted into connections; the server bounds it by ALTER DATABASE … CONNECTION LIMIT"
                        .to_owned()
                }
                "max_db_client_connections" => "database_clients_max holds for every database".to_owned(),
                "connect_query" => {
                    "nothing is run on new connections; ALTER DATABASE or ALTER ROLE … SET instead".to_owned()
                }
                "client_encoding" | "datestyle" | "timezone" | "application_name" => {
                    format!("clients set it, or ALTER DATABASE {name} SET {key}")
                }
                "min_pool_size" | "reserve_pool" | "reserve_pool_size" => {
                    "pools fill as clients need them".to_owned()
                }
                _ => settings::why(key).unwrap_or("a database has no such setting here").to_owned(),
            };
            let shown = if key == "password" { "…" } else { value };
            remarks.push(format!("{name}: {key} = {}: {why}.", one_line(shown)));
        }
        remarks
    }
}

fn one_line(text: &str) -> String {
    text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

/// Keys and values, in an order that doesn't change.
type Pairs = BTreeMap<String, String>;

#[cfg(test)]
mod tests {
    use super::*;

    fn imported(text: &str) -> String {
        written(&Ini::parse(text).unwrap())
    }

    /// The text is a configuration, whose gates are returned.
    fn gates(text: &str) -> Vec<config::Gate> {
        let written = imported(text);
        let world = config::parse(config::Origin::CommandLine, &written);
        world.unwrap_or_else(|errors| panic!("{errors}\n{written}")).gates
    }

    #[test]
    fn what_has_a_counterpart_is_carried_over() {
        let text = "[databases]\nshop = host=10.0.0.5 pool_size=7\nstock = host=10.0.0.5\n\
            [pgbouncer]\nlisten_addr = *\nlisten_port = 6543\npool_mode = transaction\ndefault_pool_size = 5\n\
            max_client_conn = 400\nquery_wait_timeout = 30\nquery_wait_notify = 4\nidle_transaction_timeout = 12.5\n\
            client_login_timeout = 9\nserver_connect_timeout = 3\nadmin_users = ann, bob\ntcp_keepidle = 45\n";
        let written = imported(text);
        let lines = [
            "listen = \"0.0.0.0:6543\"",
            "upstream = \"10.0.0.5:5432\"",
            "connections = 12",
            "pooling = \"transaction\"",
            "max_clients = 400",
            "queue_timeout = \"30s\"",
            "wait_notice = \"4s\"",
            "idle_transaction_timeout = \"12500ms\"",
            "login_timeout = \"9s\"",
            "connect_timeout = \"3s\"",
            "keepalive = \"45s\"",
            "admin_users = [\"ann\", \"bob\"]",
        ];
        for line in lines {
            assert!(written.lines().any(|found| found == line), "{line}\n{written}");
        }
        assert_eq!(gates(text).len(), 1);
    }

    #[test]
    fn each_server_has_a_gate_and_a_password_is_never_printed() {
        let text = "[databases]\na = host=one password=geheim user='a b' dbname=x\nb = host=two port=5433\n* = host=one\n\
            [pgbouncer]\nlisten_addr=127.0.0.1\n";
        let written = imported(text);
        assert!(!written.contains("geheim"), "{written}");
        assert!(written.contains("# a: user = a b: no user is put in"), "{written}");
        let gates = gates(text);
        let shown: Vec<_> = gates.iter().map(|gate| gate.upstream()[0].to_string()).collect();
        assert_eq!(shown, ["one:5432", "two:5433"]);
        assert!(written.contains("listen = \"127.0.0.1:6532\""), "{written}");
    }

    #[test]
    fn every_setting_without_a_counterpart_is_named_with_a_reason() {
        let text = "[pgbouncer]\nserver_reset_query = DISCARD ALL\nno_such_thing = 1\nauth_type = pam\nquery_timeout = 5\n\
            pool_mode = statement\ndns_max_ttl = -1\n[users]\nann = max_user_connections=5\n";
        let written = imported(text);
        for told in [
            "# server_reset_query = DISCARD ALL: ",
            "# no_such_thing = 1: PgBouncer's manual doesn't have it",
            "# auth_type = pam: ",
            "# query_timeout = 5: ",
            "# pool_mode = statement: ",
            "# dns_max_ttl = -1: ",
            "# [users] ann = max_user_connections=5: ",
        ] {
            assert!(written.contains(told), "{told}\n{written}");
        }
        gates(text);
    }

    #[test]
    fn encryption_that_cannot_be_had_as_asked_for_is_refused_by_check_and_never_left_out() {
        for (theirs, ours) in [
            ("server_tls_sslmode = verify-ca", "upstream_tls_mode"),
            ("server_tls_sslmode = verify-full", "upstream_tls_mode"),
            ("client_tls_sslmode = require", "tls_"),
            ("client_tls_sslmode = verify-full", "tls_"),
        ] {
            let written = imported(&format!("[databases]\nshop = host=10.0.0.5\n[pgbouncer]\n{theirs}\n"));
            assert!(written.contains(&format!("# {theirs}: needs")), "{written}");
            let refused = config::parse(config::Origin::CommandLine, &written).unwrap_err().list;
            let keys: Vec<_> = refused.iter().filter_map(|error| error.key.as_deref()).collect();
            assert!(!keys.is_empty() && keys.iter().all(|key| key.starts_with(ours)), "{theirs}: {keys:?}");
        }
    }

    #[test]
    fn nothing_in_a_file_leaves_its_line_or_its_quotes() {
        let text =
            "[databases]\n\"a\" = host='x\"]\\y'\n[pgbouncer]\nauth_user = x\"\\y\nservice_name = a\u{7}b\n";
        let written = imported(text);
        // The host is none: nothing else may be wrong.
        let errors = config::parse(config::Origin::CommandLine, &written).err();
        let told = errors.map_or(String::new(), |errors| errors.to_string());
        assert!(told.lines().all(|line| line.contains("upstream")), "{told}\n{written}");
    }
}
