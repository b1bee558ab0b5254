//! Logins to a real PostgreSQL, and what the pool does with the connections that they leave.

use std::sync::{Mutex, Weak};

use testbed::postgres::{Authentication as Method, PrivateServer, PrivateServerOptions};
use tokio_postgres::NoTls;
use tokio_postgres::error::SqlState;
use wire::postgres::startup::{PROTOCOL_3_0, PROTOCOL_3_2, write_negotiate_protocol_version};

use super::super::super::query_error::QueryError;
use super::*;

/// Long enough for any machine: only a failure takes it.
const PATIENCE: Duration = Duration::from_secs(60);

/// One server for all tests that run at the same time; it goes with the last of them.
static SERVER: Mutex<Weak<Database>> = Mutex::new(Weak::new());

struct Database {
    server: PrivateServer,
}

impl Database {
    /// The shared server, with two ordinary users.
    fn shared() -> Arc<Self> {
        let mut shared = SERVER.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(database) = shared.upgrade() {
            return database;
        }
        let options = PrivateServerOptions {
            access_rules: vec![
                "host all md5_user 127.0.0.1/32 md5".to_owned(),
                "host all clear_user 127.0.0.1/32 password".to_owned(),
                "host all trusted_user 127.0.0.1/32 trust".to_owned(),
            ],
            ..PrivateServerOptions::default()
        };
        let database = Arc::new(Self { server: PrivateServer::start(&options).unwrap() });
        database
            .server
            .psql(
                "CREATE ROLE ann LOGIN PASSWORD 'secret'; CREATE ROLE bob LOGIN PASSWORD 'secret';
                 CREATE ROLE clear_user LOGIN PASSWORD 'secret'; CREATE ROLE trusted_user LOGIN;
                 SET password_encryption = 'md5'; CREATE ROLE md5_user LOGIN PASSWORD 'secret';",
            )
            .unwrap();
        *shared = Arc::downgrade(&database);
        database
    }

    fn address(&self) -> Address {
        Address::Inet { host: "127.0.0.1".to_owned(), port: self.server.port() }
    }

    fn gate(&self, change: impl FnOnce(&mut Settings)) -> Arc<Shared> {
        let mut settings = Settings::new(self.address());
        settings.login_timeout = PATIENCE;
        change(&mut settings);
        shared(settings).0
    }

    /// How many server processes serve a user.
    fn processes(&self, user: &str) -> usize {
        let sql = format!("SELECT count(*) FROM pg_stat_activity WHERE usename = '{user}'");
        self.server.psql(&sql).unwrap().trim().parse().unwrap()
    }
}

/// A driver's view of a login, and the session's.
async fn log_in(
    gate: &Arc<Shared>,
    user: &str,
    password: &str,
) -> (Result<tokio_postgres::Client, tokio_postgres::Error>, Option<LoggedIn>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut config = tokio_postgres::Config::new();
    config.user(user).password(password).dbname("postgres");
    let client = async { Ok(config.connect_raw(theirs, NoTls).await?.0) };
    tokio::join!(client, login(gate, Stream::unix(ours)))
}

async fn session(gate: &Arc<Shared>, user: &str) -> LoggedIn {
    let (client, session) = log_in(gate, user, "secret").await;
    client.unwrap();
    session.unwrap()
}

#[tokio::test]
async fn the_server_judges_passwords_whatever_its_method() {
    let database = Database::shared();
    let gate = database.gate(|_| {});
    for user in ["ann", "md5_user", "clear_user"] {
        let (client, session) = log_in(&gate, user, "secret").await;
        client.unwrap();
        let session = session.unwrap();
        assert!(session.reported.get("server_version").is_some());
        assert_eq!(session.reported.get("session_authorization"), Some(user));

        let (client, session) = log_in(&gate, user, "wrong").await;
        let error = client.err().unwrap();
        assert_eq!(error.code(), Some(&SqlState::INVALID_PASSWORD), "{error}");
        assert!(session.is_none());
    }
    let (client, session) = log_in(&gate, "nobody", "secret").await;
    assert_eq!(client.err().unwrap().code(), Some(&SqlState::INVALID_PASSWORD));
    assert!(session.is_none());
}

#[tokio::test]
async fn what_the_server_finds_wrong_behind_the_password_reaches_the_client() {
    let database = Database::shared();
    let gate = database.gate(|_| {});
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut config = tokio_postgres::Config::new();
    config.user("ann").password("secret").dbname("missing");
    let (client, session) = tokio::join!(config.connect_raw(theirs, NoTls), login(&gate, Stream::unix(ours)));
    assert_eq!(client.err().unwrap().code(), Some(&SqlState::INVALID_CATALOG_NAME));
    assert!(session.is_none());
}

#[tokio::test]
async fn a_password_that_the_server_does_not_ask_for_is_no_reason_to_refuse_on_this_machine() {
    let database = Database::shared();
    let gate = database.gate(|_| {});
    let (client, session) = log_in(&gate, "trusted_user", "").await;
    client.unwrap();
    assert!(session.is_some());
}

#[tokio::test]
async fn a_newer_protocol_is_negotiated_down_to_what_the_server_speaks() {
    let database = Database::shared();
    let gate = database.gate(|_| {});
    // As long as no server has told, it is what they all speak.
    for (said, newest) in [(None, PROTOCOL_3_0), (Some("18.1"), PROTOCOL_3_2), (Some("15.9"), PROTOCOL_3_0)] {
        if let Some(version) = said {
            let mut reported = Parameters::default();
            reported.set("server_version", version);
            gate.spoken.learn(&reported);
        }
        let (ours, mut client) = UnixStream::pair().unwrap();
        let parameters = [("user", "trusted_user"), ("database", "postgres"), ("_pq_.test", "1")];
        client.write_all(&startup(3 << 16 | 3, &parameters)).await.unwrap();
        let session = login(&gate, Stream::unix(ours)).await.unwrap();
        let mut expected = BytesMut::new();
        write_negotiate_protocol_version(&mut expected, newest, &["_pq_.test"]);
        expected.extend_from_slice(ACCEPT);
        assert_eq!(read(&mut client, expected.len()).await, expected);
        drop(session);
        assert!(rest(&mut client).await.ends_with(b"Z\0\0\0\x05I"));
    }
}

#[tokio::test]
async fn twenty_connections_serve_any_number_of_logins() {
    let database = Database::shared();
    let gate = database.gate(|settings| settings.connections = 20);
    let mut sessions = Vec::new();
    for _ in 0..25 {
        sessions.push(session(&gate, "ann").await);
    }
    let pool = pool(&sessions[0]);
    let connections: Vec<_> = std::iter::from_fn(|| gate.pools.take(pool)).collect();
    assert_eq!(connections.len(), 20);
    assert_eq!(gate.pools.snapshot()[0].sessions, 25);
}

#[tokio::test]
async fn a_second_user_gets_a_connection_of_the_first_and_the_server_loses_one() {
    let database = Database::shared();
    let gate = database.gate(|settings| settings.connections = 2);
    let (ann, _other) = (session(&gate, "ann").await, session(&gate, "ann").await);
    let bob = session(&gate, "bob").await;
    let mut server = gate.pools.take(pool(&bob)).unwrap();
    let who = server.simple_query("SELECT current_user", PATIENCE).await.unwrap().value;
    assert_eq!(who.as_deref(), Some(&b"bob"[..]));
    let left: Vec<_> = std::iter::from_fn(|| gate.pools.take(pool(&ann))).collect();
    assert_eq!(left.len(), 1);
}

#[tokio::test]
async fn a_connection_whose_process_was_ended_is_not_handed_out() {
    let database = Database::shared();
    let gate = database.gate(|_| {});
    let session = session(&gate, "ann").await;
    let mut server = gate.pools.take(pool(&session)).unwrap();
    database.server.psql(&format!("SELECT pg_terminate_backend({}, 60000)", server.process_id)).unwrap();
    server.stream.readable().await.unwrap();
    gate.pools.put(server);
    assert!(gate.pools.take(pool(&session)).is_none());
    assert!(gate.pools.is_lost(pool(&session)));
}

#[tokio::test]
async fn an_idle_connection_hears_of_changed_settings() {
    let database = Database::shared();
    let gate = database.gate(|_| {});
    let session = session(&gate, "bob").await;
    let mut server = gate.pools.take(pool(&session)).unwrap();
    let answer = server.simple_query("SET TimeZone = 'Europe/Stockholm'; BEGIN", PATIENCE).await.unwrap();
    assert_eq!(answer.status, Status::Transaction);
    assert_eq!(server.parameters.get("TimeZone"), Some("Europe/Stockholm"));
    server.simple_query("ROLLBACK", PATIENCE).await.unwrap();
    let error = server.simple_query("SELECT 1/0", PATIENCE).await.unwrap_err();
    assert!(matches!(&error, QueryError::Refused { sqlstate, .. } if sqlstate == "22012"), "{error}");
    assert!(server.check_idle());
}

#[tokio::test]
async fn a_cancel_request_reaches_the_running_statement_and_settles() {
    let database = Database::shared();
    let gate = database.gate(|_| {});
    let session = session(&gate, "ann").await;
    let mut server = gate.pools.take(pool(&session)).unwrap();
    session.cancel.running(&server);
    let (process_id, secret) = session.cancel.key();
    let mut request = BytesMut::new();
    wire::postgres::startup::write_cancel(&mut request, process_id, secret);
    let statement = server.simple_query("SELECT pg_sleep(60)", PATIENCE);
    tokio::pin!(statement);
    // A cancel may come before the statement does, as it may in PostgreSQL; then there is another one.
    let error = loop {
        let (ours, mut client) = UnixStream::pair().unwrap();
        client.write_all(&request).await.unwrap();
        let cancel = async {
            assert!(login(&gate, Stream::unix(ours)).await.is_none());
            assert_eq!(rest(&mut client).await, b"");
        };
        tokio::select! {
            answer = &mut statement => break answer.unwrap_err(),
            () = cancel => {}
        }
    };
    assert!(matches!(&error, QueryError::Refused { sqlstate, .. } if sqlstate == "57014"), "{error}");
    session.cancel.idle();
    let _ = session.cancel.settled().await;
}

#[tokio::test]
async fn a_superuser_learns_the_cores_and_others_learn_nothing() {
    let database = Database::shared();
    let gate = database.gate(|settings| settings.ask_cores = false);
    let ordinary = session(&gate, "ann").await;
    let mut server = gate.pools.take(pool(&ordinary)).unwrap();
    assert_eq!(cores::ask(&mut server, PATIENCE).await.unwrap(), None);

    let (client, superuser) = log_in(&gate, database.server.user(), database.server.password()).await;
    client.unwrap();
    let mut server = gate.pools.take(pool(&superuser.unwrap())).unwrap();
    let cores = cores::ask(&mut server, PATIENCE).await.unwrap();
    let ours = std::thread::available_parallelism().unwrap().get();
    // The file doesn't know of CPU quotas, and exists on Linux only.
    assert!(!cfg!(target_os = "linux") || cores.is_some_and(|cores| cores as usize >= ours), "{cores:?}");
    assert!(server.check_idle());
}

#[tokio::test]
async fn the_probe_tells_a_trusting_server_from_one_that_asks() {
    let database = Database::shared();
    let mut settings = Settings::new(database.address());
    settings.listen = Address::Inet { host: "0.0.0.0".to_owned(), port: 6432 };
    assert!(probe_trust(&settings).await.is_ok());

    let options = PrivateServerOptions { authentication: Method::Trust, ..PrivateServerOptions::default() };
    let trusting = PrivateServer::start(&options).unwrap();
    settings.upstream = Address::Inet { host: "127.0.0.1".to_owned(), port: trusting.port() };
    let error = probe_trust(&settings).await.unwrap_err();
    assert!(error.to_string().contains("allow_trust_relay"), "{error}");
    settings.allow_trust_relay = true;
    assert!(probe_trust(&settings).await.is_ok());
    let socket = trusting.socket_dir().join(format!(".s.PGSQL.{}", trusting.port()));
    settings.upstream = Address::Unix(socket);
    settings.allow_trust_relay = false;
    assert!(probe_trust(&settings).await.is_err());
}

#[tokio::test]
async fn in_session_mode_a_server_process_ends_with_its_client() {
    let database = Database::shared();
    let gate = database.gate(|settings| {
        settings.pooling = Pooling::Session;
        settings.connections = 1;
    });
    let first = session(&gate, "clear_user").await;
    assert!(database.processes("clear_user") >= 1);
    first.server.unwrap().close();
    drop(first.places);
    assert!(session(&gate, "clear_user").await.server.is_some());
}
