//! One authenticated connection to the server.
//!
//! A server connection is owned by exactly one place at a time: the login that made it, its pool (idle), or
//! the session that took it. Nothing reads from it behind its owner's back.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use admission::PoolId;
use bytes::{BufMut, Bytes, BytesMut};
use tokio::time::timeout;
use wire::postgres::backend::{Status, parse_error, parse_ready};
use wire::postgres::frontend::{self, NO_VALUES, Target};
use xxhash_rust::xxh3::xxh3_64;

use super::endpoint::Route;
use super::message::{Message, Sender};
use super::parameters::Parameters;
use super::pool::{Limits, Tenure};
use super::processes::Enrolled;
use super::query_error::QueryError;
use super::settings::ServerState;
use crate::stream::Stream;

/// How much is read at once while the connection is idle: there is next to nothing to read.
const IDLE_READ: usize = 1024;
/// The most that an idle connection may say between two looks. More than this is no ParameterStatus or
/// notice.
const IDLE_READS_MAX: usize = 64;

/// The most bytes of notifications that are kept for a session while the gate asks something.
const NOTIFIED_MAX: usize = 1024 * 1024;

/// The portal of the gate's own statements within a transaction.
const OWN_PORTAL: &[u8] = b"gatekeeper's own";

/// How long a server connection may take for a round trip of ours (settings, ROLLBACK, DISCARD ALL).
pub(super) const ROUND_TRIP_LIMIT: Duration = Duration::from_secs(5);

/// Numbers the connections, for the log.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// One authenticated server connection.
#[derive(Debug)]
pub(crate) struct Server {
    /// The socket.
    pub(crate) stream: Stream,
    /// What was read from it and not yet looked at.
    pub(crate) input: BytesMut,
    /// The settings as the server last reported them.
    pub(crate) parameters: Parameters,
    /// The server process, for cancel requests.
    pub(crate) process_id: i32,
    /// Its cancel key: 4 bytes in protocol 3.0. Never logged.
    pub(crate) secret: Bytes,
    /// How it reaches the server.
    pub(crate) route: Route,
    /// The pool that it belongs to.
    pub(crate) pool: PoolId,
    /// Unique in this process, for the log.
    pub(crate) id: u64,
    /// What sessions have left on it.
    pub(crate) session_state: ServerState,
    /// Since when it exists.
    pub(crate) connected: std::time::SystemTime,
    /// Which generation of server connections it is of: one of an older generation is replaced when it can
    /// be.
    pub(crate) generation: u64,
    /// The defaults that its login was given, where the server told.
    pub(crate) defaults: Option<Fingerprint>,
    /// Notifications that came between answers of the gate's own, whole messages.
    pub(crate) notified: BytesMut,
    /// What the server limits its role and its database to, where it was asked.
    pub(crate) limits: Option<Limits>,
    /// Its place among the gate's own server processes.
    pub(crate) enrolled: Option<Enrolled>,
    /// While a session has it from a pool: tells the pool when it is dropped.
    pub(crate) tenure: Option<Tenure>,
}

/// A number for the defaults that a login was given (`defaults.rs`): two connections with the same number
/// were given the same ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint(u64);

impl Fingerprint {
    /// The fingerprint of the catalog's rows, as text.
    pub(crate) fn of(rows: &[u8]) -> Self {
        Self(xxh3_64(rows))
    }
}

/// The answer to a swallowed statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The first column of the first row, if there is one and it isn't null.
    pub(crate) value: Option<Vec<u8>>,
    /// The transaction status of the closing ReadyForQuery.
    pub(crate) status: Status,
}

impl Server {
    /// Wraps a connection that has just authenticated.
    pub(crate) fn new(stream: Stream, input: BytesMut, greeting: Greeting) -> Self {
        let Greeting { parameters, process_id, secret } = greeting;
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let (pool, session_state) = (PoolId::default(), ServerState::of(process_id, parameters.clone()));
        let route = Route::of(&stream);
        Self {
            stream,
            input,
            parameters,
            process_id,
            secret,
            route,
            pool,
            id,
            session_state,
            connected: std::time::SystemTime::now(),
            generation: 0,
            defaults: None,
            notified: BytesMut::new(),
            limits: None,
            enrolled: None,
            tenure: None,
        }
    }

    /// Looks at what the server said while the connection was idle, without waiting. `false`: it is dead or
    /// about to close (end of stream, a FATAL error, anything that an idle server doesn't say), and must
    /// not be used.
    pub(crate) fn check_idle(&mut self) -> bool {
        for _ in 0..IDLE_READS_MAX {
            match self.take_idle_messages() {
                Ok(true) => {}
                Ok(false) | Err(_) => return false,
            }
            let mut buffer = [0; IDLE_READ];
            match self.stream.try_read(&mut buffer) {
                Ok(0) => return false,
                Ok(count) => self.input.extend_from_slice(&buffer[..count]),
                // Part of a message is no place to start a conversation from: look again later.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return self.input.is_empty(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        false
    }

    fn take_idle_messages(&mut self) -> io::Result<bool> {
        while let Some(message) = Message::take(&mut self.input, Sender::Server)? {
            match message.tag() {
                b'S' => self.note_parameter(message.body()),
                b'N' | b'A' => {}
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Takes a ParameterStatus to heart; a malformed one is ignored.
    pub(crate) fn note_parameter(&mut self, body: &[u8]) {
        self.parameters.note(body);
    }

    /// Runs a statement whose answer no client sees, to its ReadyForQuery.
    ///
    /// # Errors
    /// See [`QueryError`]. Not cancel-safe: a caller that gives up on it must close the connection.
    pub(crate) async fn simple_query(&mut self, sql: &str, limit: Duration) -> Result<Answer, QueryError> {
        // It ends the unnamed statement.
        self.session_state.statements.unnamed = None;
        self.ask(&query(sql)?, limit).await
    }

    /// Runs statements as a simple query does, but for the unnamed portal of the open transaction, which
    /// stays.
    ///
    /// # Errors
    /// As [`Server::simple_query`].
    pub(crate) async fn run_beside<'a>(
        &mut self,
        statements: impl Iterator<Item = &'a str>,
        limit: Duration,
    ) -> Result<Answer, QueryError> {
        self.session_state.statements.unnamed = None;
        let mut messages = BytesMut::new();
        for sql in statements {
            frontend::write_parse(&mut messages, b"", sql.as_bytes(), &[]);
            frontend::write_bind(&mut messages, OWN_PORTAL, b"", NO_VALUES);
            frontend::write_execute(&mut messages, OWN_PORTAL, 0);
            frontend::write_close(&mut messages, Target::Portal, OWN_PORTAL);
        }
        frontend::write_sync(&mut messages);
        self.ask(&messages, limit).await
    }

    async fn ask(&mut self, messages: &[u8], limit: Duration) -> Result<Answer, QueryError> {
        let round_trip = timeout(limit, self.round_trip(messages)).await;
        round_trip.unwrap_or(Err(QueryError::Timeout(limit)))
    }

    async fn round_trip(&mut self, messages: &[u8]) -> Result<Answer, QueryError> {
        self.stream.send(messages).await?;
        let mut value = None;
        let mut refused = None;
        let mut answered = 0;
        loop {
            let message = Message::read(&mut self.stream, &mut self.input, Sender::Server).await?;
            match message.tag() {
                b'S' => self.note_parameter(message.body()),
                b'D' => value = value.or_else(|| first_column(message.body())),
                b'E' => refused = Some(message),
                b'Z' => {
                    let status = parse_ready(message.body()).map_err(invalid)?;
                    let Some(error) = refused else { return Ok(Answer { value, status }) };
                    let fields = parse_error(error.body());
                    let message = String::from_utf8_lossy(fields.message()).into_owned();
                    let sqlstate = fields.code().to_owned();
                    return Err(QueryError::Refused { sqlstate, message, status, answered });
                }
                b'C' => answered += 1,
                // They are the session's, whatever the gate asks meanwhile.
                b'A' if self.notified.len() < NOTIFIED_MAX => {
                    self.notified.extend_from_slice(message.bytes());
                }
                b'A' => return Err(invalid("too many notifications").into()),
                // Notices, row descriptions, what is prepared, bound or closed: nobody asked.
                b'N' | b'T' | b'I' | b'1' | b'2' | b'3' => {}
                tag => return Err(invalid(format!("unexpected message '{}'", tag.escape_ascii())).into()),
            }
        }
    }

    /// Says good-bye and closes. Only between messages: behind half a message the good-bye could complete it.
    pub(crate) fn close(mut self) {
        // A full send buffer means that nobody listens; then the bare close has to do.
        let _ = self.stream.try_write(b"X\0\0\0\x04");
    }
}

/// What a server tells at the end of a login.
#[derive(Debug, Default)]
pub(crate) struct Greeting {
    pub(crate) parameters: Parameters,
    pub(crate) process_id: i32,
    pub(crate) secret: Bytes,
}

impl Greeting {
    /// Takes a ParameterStatus to heart; a malformed one is ignored.
    pub(crate) fn note_parameter(&mut self, body: &[u8]) {
        self.parameters.note(body);
    }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn query(sql: &str) -> io::Result<BytesMut> {
    let too_long = |_| io::Error::new(io::ErrorKind::InvalidInput, "statement too long");
    let length = u32::try_from(sql.len() + 5).map_err(too_long)?;
    let mut message = BytesMut::with_capacity(sql.len() + 6);
    message.put_u8(b'Q');
    message.put_u32(length);
    message.put_slice(sql.as_bytes());
    message.put_u8(0);
    Ok(message)
}

/// The first value of a DataRow.
pub(crate) fn first_column(body: &[u8]) -> Option<Vec<u8>> {
    let length = body.get(2..6)?;
    let length = i32::from_be_bytes(length.try_into().ok()?);
    let length = usize::try_from(length).ok()?;
    body.get(6..6 + length).map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;
    use tokio::net::UnixStream;

    fn pair() -> (Server, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Server::new(Stream::unix(ours), BytesMut::new(), Greeting::default()), theirs)
    }

    fn parameter(name: &str, value: &str) -> Vec<u8> {
        let mut bytes = vec![b'S'];
        bytes.extend_from_slice(&u32::try_from(name.len() + value.len() + 6).unwrap().to_be_bytes());
        bytes.extend_from_slice(format!("{name}\0{value}\0").as_bytes());
        bytes
    }

    /// Makes what was written visible to `try_read`.
    async fn arrived(server: &mut Server) {
        server.stream.readable().await.unwrap();
    }

    #[tokio::test]
    async fn a_quiet_idle_connection_is_alive() {
        let (mut server, _theirs) = pair();
        assert!(server.check_idle());
    }

    #[tokio::test]
    async fn an_idle_connection_learns_parameters_and_ignores_notices() {
        let (mut server, mut theirs) = pair();
        theirs.write_all(&parameter("TimeZone", "UTC")).await.unwrap();
        theirs.write_all(b"N\0\0\0\x05\0").await.unwrap();
        arrived(&mut server).await;
        assert!(server.check_idle());
        assert_eq!(server.parameters.get("TimeZone"), Some("UTC"));
    }

    #[tokio::test]
    async fn an_idle_connection_that_ends_or_errs_is_dead() {
        let (mut server, theirs) = pair();
        drop(theirs);
        arrived(&mut server).await;
        assert!(!server.check_idle());

        for said in [&b"E\0\0\0\x05\0"[..], b"Z\0\0\0\x05I", b"N\0\0\0\x05", b"N\0\0\0\0\0"] {
            let (mut server, mut theirs) = pair();
            theirs.write_all(said).await.unwrap();
            arrived(&mut server).await;
            assert!(!server.check_idle(), "{said:?}");
        }
    }

    #[tokio::test]
    async fn a_swallowed_statement_gives_its_first_value() {
        let (mut server, mut theirs) = pair();
        theirs
            .write_all(b"T\0\0\0\x06\0\0D\0\0\0\x0c\0\x01\0\0\0\x02okC\0\0\0\x05\0Z\0\0\0\x05T")
            .await
            .unwrap();
        let answer = server.simple_query("SELECT 1", Duration::from_secs(60)).await.unwrap();
        assert_eq!(answer, Answer { value: Some(b"ok".to_vec()), status: Status::Transaction });
    }

    #[tokio::test]
    async fn a_refused_statement_leaves_the_connection_usable() {
        let (mut server, mut theirs) = pair();
        theirs.write_all(b"E\0\0\0\x14C42501\0Mdenied\0\0Z\0\0\0\x05I").await.unwrap();
        let error = server.simple_query("SELECT 1", Duration::from_secs(60)).await.unwrap_err();
        assert!(error.leaves_connection_usable(), "{error}");
        assert_eq!(error.to_string(), "42501: denied");
        assert!(server.check_idle());
    }

    #[tokio::test]
    async fn a_connection_lost_in_a_statement_is_unusable() {
        let (mut server, theirs) = pair();
        drop(theirs);
        let error = server.simple_query("SELECT 1", Duration::from_secs(60)).await.unwrap_err();
        assert!(!error.leaves_connection_usable());
    }
}
