//! What the tests of authentication share: one private PostgreSQL, and for each test a gate with its own
//! users.

// Each test binary uses a part of this.
#![allow(dead_code)]
// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tempfile::TempDir;
use testbed::postgres::{PrivateServer, PrivateServerOptions};
use tokio_postgres::{Client, Config, Error, NoTls};

use crate::support::{Gate, until};

/// What a client hears that can't prove to be the user, for whatever reason.
pub(crate) const DENIED: &str = "28P01";

/// One server for the tests that run at the same time, gone with the last of them.
static SERVER: Mutex<Weak<PrivateServer>> = Mutex::new(Weak::new());

fn server() -> Arc<PrivateServer> {
    let mut shared = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let server = own_server();
        *shared = Arc::downgrade(&server);
        server
    })
}

/// A server that nobody else uses.
fn own_server() -> Arc<PrivateServer> {
    let options = PrivateServerOptions {
        max_connections: 200,
        access_rules: vec![
            "host all md5_user,md5_hash 127.0.0.1/32 md5".to_owned(),
            "host all clear_user 127.0.0.1/32 password".to_owned(),
        ],
        ..PrivateServerOptions::default()
    };
    Arc::new(PrivateServer::start(&options).expect("PostgreSQL starts"))
}

/// Writes a users file with these permissions.
pub(crate) fn users_file(directory: &Path, lines: &str, mode: u32) -> PathBuf {
    let path = directory.join("users.txt");
    std::fs::write(&path, lines).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    path
}

/// A gate in front of the server.
pub(crate) struct Stage {
    // Dropped in this order: the gate lets go of the server first.
    gate: Gate,
    settings: Vec<String>,
    directory: Arc<TempDir>,
    pub(crate) server: Arc<PrivateServer>,
}

impl Stage {
    /// A gate with these lines of configuration and, unless it relays, a users file.
    pub(crate) fn start(lines: &[&str], users: &str) -> Self {
        Self::on(&server(), lines, users)
    }

    fn on(server: &Arc<PrivateServer>, lines: &[&str], users: &str) -> Self {
        let directory = Arc::new(tempfile::tempdir().unwrap());
        let mut settings: Vec<_> = lines.iter().map(|line| (*line).to_owned()).collect();
        if lines.iter().any(|line| line.starts_with("auth =")) {
            let path = users_file(directory.path(), users, 0o600);
            settings.push(format!("users_file = \"{}\"", path.display()));
        }
        let gate = Gate::start(server.port(), &settings);
        Self { gate, settings, directory, server: Arc::clone(server) }
    }

    /// A gate whose users file has the SCRAM secrets that the server stores, of users with a prefix: `ann`
    /// is as she should be, `old` has expired, and `bob` is called `rob` by now. The password of all is
    /// "right".
    pub(crate) fn with_secrets(prefix: &str, lines: &[&str]) -> Self {
        let server = server();
        let sql = format!(
            "CREATE ROLE {prefix}_ann LOGIN PASSWORD 'right'; CREATE ROLE {prefix}_bob LOGIN PASSWORD 'right';
             CREATE ROLE {prefix}_old LOGIN PASSWORD 'right' VALID UNTIL '2001-01-01';
             SELECT format('\"%s\" \"%s\"', rolname, rolpassword) FROM pg_authid WHERE rolname ~ '^{prefix}_';
             ALTER ROLE {prefix}_bob RENAME TO {prefix}_rob"
        );
        let users = server.psql(&sql).unwrap();
        assert_eq!(users.lines().count(), 3, "{users}");
        Self::on(&server, lines, &users)
    }

    /// A gate that asks the server for its users, as a role that may read just what it must. Its password
    /// is "lookup".
    pub(crate) fn with_query(prefix: &str, lines: &[&str]) -> Self {
        Self::query_on(&server(), prefix, lines)
    }

    /// A gate that asks a server of its own for its users. It is for tests that change what the whole
    /// database has.
    pub(crate) fn alone_with_query(prefix: &str, lines: &[&str]) -> Self {
        Self::query_on(&own_server(), prefix, lines)
    }

    fn query_on(server: &Arc<PrivateServer>, prefix: &str, lines: &[&str]) -> Self {
        let sql = format!(
            "CREATE ROLE {prefix}_lookup LOGIN PASSWORD 'lookup';
             GRANT SELECT (rolname, rolpassword, rolvaliduntil, rolcanlogin) ON pg_authid TO {prefix}_lookup"
        );
        server.psql(&sql).unwrap();
        let user = format!("auth_user = \"{prefix}_lookup\"");
        let lines: Vec<_> = lines.iter().copied().chain([user.as_str()]).collect();
        Self::on(server, &lines, &format!("\"{prefix}_lookup\" \"lookup\"\n"))
    }

    /// Writes the users file anew; a gate that is started now reads it.
    pub(crate) fn write_users(&self, users: &str) {
        users_file(self.directory.path(), users, 0o600);
    }

    /// Another gate with the same configuration and these lines more.
    pub(crate) fn gate(&self, lines: &[&str]) -> Self {
        let more = lines.iter().map(|line| (*line).to_owned());
        let settings: Vec<_> = self.settings.iter().cloned().chain(more).collect();
        let gate = Gate::start(self.server.port(), &settings);
        Self { gate, settings, directory: Arc::clone(&self.directory), server: Arc::clone(&self.server) }
    }

    pub(crate) fn port(&self) -> u16 {
        self.gate.port()
    }

    /// Has the gate read its files again.
    pub(crate) fn hang_up(&self) {
        self.gate.signal("HUP");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.gate.pid()
    }

    pub(crate) fn log(&self) -> String {
        self.gate.log_tail()
    }

    /// Runs a script beside the gate.
    pub(crate) fn sql(&self, sql: &str) -> String {
        self.server.psql(sql).unwrap()
    }

    /// The server processes of a user.
    pub(crate) fn processes(&self, user: &str) -> usize {
        let sql = format!("SELECT count(*) FROM pg_stat_activity WHERE usename = '{user}'");
        self.sql(&sql).trim().parse().unwrap()
    }

    /// A metric by its name without `gatekeeper_`, with its labels.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = self.gate.metrics();
        let name = format!("gatekeeper_{name} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&name));
        value.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().unwrap()
    }

    /// Waits until a condition holds.
    pub(crate) async fn until(&self, what: &str, mut condition: impl FnMut() -> bool) {
        until(what, async || condition()).await;
    }

    /// Logs in.
    pub(crate) async fn client(&self, user: &str, password: &str) -> Result<Client, Error> {
        self.client_with(user, password, |config| config).await
    }

    /// Logs in with more settings.
    pub(crate) async fn client_with(
        &self,
        user: &str,
        password: &str,
        change: impl FnOnce(&mut Config) -> &mut Config,
    ) -> Result<Client, Error> {
        let mut config = Config::new();
        config.host("127.0.0.1").port(self.port()).user(user).password(password).dbname("postgres");
        let (client, connection) = change(&mut config).connect(NoTls).await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// Logs in, and returns the session's `current_user`.
    pub(crate) async fn who(&self, user: &str, password: &str) -> String {
        match self.client(user, password).await {
            Ok(client) => who_is(&client).await,
            Err(error) => panic!("{user} was refused: {error:?}\n{}", self.log()),
        }
    }

    /// Logs in from another address of this machine, and returns the session's `current_user`.
    pub(crate) async fn who_from(&self, address: &str, user: &str, password: &str) -> String {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(format!("{address}:0").parse().unwrap()).unwrap();
        let stream = socket.connect(([127, 0, 0, 1], self.port()).into()).await.unwrap();
        let mut config = Config::new();
        config.user(user).password(password).dbname("postgres");
        let (client, connection) = config.connect_raw(stream, NoTls).await.unwrap();
        tokio::spawn(connection);
        who_is(&client).await
    }

    /// The SQLSTATE that a client hears that doesn't get in.
    pub(crate) async fn refused(&self, user: &str, password: &str) -> String {
        self.refused_with(user, password, "").await
    }

    /// The SQLSTATE with which a login with `options` is refused.
    pub(crate) async fn refused_with(&self, user: &str, password: &str, options: &str) -> String {
        let outcome = self.client_with(user, password, |config| config.options(options)).await;
        let error = outcome.err().unwrap_or_else(|| panic!("{user} got in"));
        let code = error.code().unwrap_or_else(|| panic!("{user}: {error:?}\n{}", self.log()));
        code.code().to_owned()
    }

    /// Asserts that no secret of these tests is in the log.
    pub(crate) fn assert_nothing_leaked(&self) {
        let log = self.log();
        for secret in ["right", "SCRAM-SHA-256$", "md5", "lookup\" \"", "wrong"] {
            let told = log.lines().find(|line| {
                // The reasons of refusals are words of ours.
                line.contains(secret) && !line.contains("wrong password") && !line.contains("md5_")
            });
            assert_eq!(told, None, "{secret}");
        }
    }
}

/// The session's `current_user`.
pub(crate) async fn who_is(client: &Client) -> String {
    client.query_one("SELECT current_user::text", &[]).await.unwrap().get(0)
}

/// Asks a session until it is served: a statement that finds its connection dead isn't retried for it, but
/// the session lives.
pub(crate) async fn ask_until_served(client: &Client) {
    until("the session is served", async || {
        let outcome = client.simple_query("SELECT 1").await;
        assert!(!client.is_closed(), "the session has ended: {outcome:?}");
        outcome.is_ok()
    })
    .await;
}
