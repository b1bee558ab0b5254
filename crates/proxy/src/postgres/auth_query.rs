//! `auth_query`: asking the server for a user's secret.
//!
//! One connection of the gate's own, opened at need, closed when unused for [`IDLE_MAX`], outside the
//! budget of `connections`. Its start-up parameters are the same whatever clients send: a `search_path` or
//! `options` of a client must not choose which functions and operators the query means (CVE-2025-12819).
//! The user's name goes as a parameter of the extended protocol, never as part of the text. The default
//! query leaves out passwords that are no longer valid (CVE-2025-2291) and roles that may not log in.
//!
//! Nothing is remembered: a dropped or changed user is dropped or changed at once. Each login asks once,
//! one after the other.

use std::sync::Arc;

use bytes::{Buf, BytesMut};
use tokio::time::{Instant, timeout};
use wire::postgres::backend::parse_error;
use wire::postgres::frontend::{write_bind, write_execute, write_parse, write_sync};
use zeroize::Zeroizing;

use super::Shared;
use super::auth::secret::Secret;
use super::auth::users::User;
use super::auth::{Authentication, Credentials, Query};
use super::login::open::{OpenError, open};
use super::message::{Message, Sender};
use super::refusal::Refusal;
use super::server::Server;
use crate::sql::asking::{ANSWER_MAX, Asking, IDLE_MAX};

/// The type identifier of `text`.
const TEXT: u32 = 25;

/// What the server is told at the start: nothing of it comes from a client.
const PARAMETERS: [(&str, &str); 5] = [
    ("application_name", "gatekeeper auth_query"),
    ("client_encoding", "UTF8"),
    ("search_path", "pg_catalog, pg_temp"),
    ("standard_conforming_strings", "on"),
    ("statement_timeout", "10s"),
];

/// The connection, and how its questions ended.
pub(crate) type AuthQuery = Asking<Connection>;

#[derive(Debug)]
pub(crate) struct Connection {
    server: Server,
    /// Whose it is: after a reload another user may ask, or ask elsewhere.
    of: Query,
    used: Instant,
}

/// Why there is no answer.
pub(crate) enum AskError {
    /// The connection is lost; another may do better.
    Lost,
    /// The server refused the statement, or answered what is no answer.
    Refused(String),
}

impl AuthQuery {
    /// Asks for a user; `None` if there is no such user, or nothing to ask.
    ///
    /// # Errors
    /// If the server can't be asked.
    pub(crate) async fn find(
        &self,
        shared: &Shared,
        auth: &Authentication,
        user: &str,
    ) -> Result<Option<Arc<User>>, Refusal> {
        let Some(query) = &auth.settings.query else { return Ok(None) };
        let answer = self.ask(shared, auth, query, user).await;
        self.count(&answer);
        answer
    }

    async fn ask(
        &self,
        shared: &Shared,
        auth: &Authentication,
        query: &Query,
        user: &str,
    ) -> Result<Option<Arc<User>>, Refusal> {
        let Some(mut turn) = self.turn().await else { return Err(Refusal::AuthQueryBusy) };
        // Taken out meanwhile: if this is given up half-way, so is the connection.
        let mut known = turn.connection.take().filter(|known| known.of == *query);
        for _ in 0..2 {
            let is_fresh = known.is_none();
            let mut server = match known.take() {
                Some(mut known) => {
                    if !known.server.check_idle() {
                        known.server.close();
                        continue;
                    }
                    known.server
                }
                None => connect(shared, auth, query).await.map_err(|error| match error {
                    OpenError::Refused(down @ (Refusal::Unreachable(_) | Refusal::ServerSilent(_))) => down,
                    error => Refusal::AuthQuery(format!(
                        "auth_query: the gate cannot log in to the server as \"{}\": {error}",
                        query.user
                    )),
                })?,
            };
            let answer = timeout(ANSWER_MAX, question(&mut server, &query.sql, user)).await;
            match answer
                .unwrap_or_else(|_| Err(AskError::Refused(format!("no answer within {ANSWER_MAX:?}"))))
            {
                Ok(found) => {
                    *turn.connection = Some(Connection { server, of: query.clone(), used: Instant::now() });
                    return Ok(found.map(Arc::new));
                }
                Err(AskError::Lost) if !is_fresh => {}
                Err(AskError::Lost) => return Err(Refusal::ServerLost),
                Err(AskError::Refused(error)) => {
                    let why = format!("auth_query failed in database \"{}\": {error}", query.database);
                    return Err(Refusal::AuthQuery(why));
                }
            }
        }
        Err(Refusal::ServerLost)
    }

    /// Closes the connection if nobody needs it. To be called now and then.
    pub(crate) fn maintain(&self) {
        let is_over = |known: &mut Connection| known.used.elapsed() > IDLE_MAX || !known.server.check_idle();
        if let Some(known) = self.take_if(is_over) {
            known.server.close();
        }
    }
}

async fn connect(shared: &Shared, auth: &Authentication, query: &Query) -> Result<Server, OpenError> {
    let known = auth.user(&query.user).filter(|known| known.secret.is_some());
    let credentials = known.map_or(Credentials::Nothing, |known| Credentials::Known(Arc::clone(known)));
    let who = [("user", query.user.as_str()), ("database", query.database.as_str())];
    let parameters: Vec<_> = who.into_iter().chain(PARAMETERS).collect();
    let settings = shared.settings();
    let connecting = open(&settings, &parameters, &query.user, &credentials);
    let limit = settings.login_timeout;
    let mut server = timeout(limit, connecting).await.map_err(|_| Refusal::ServerSilent(limit))??.server;
    server.enrolled = Some(shared.ceiling.ours.enroll(server.process_id));
    Ok(server)
}

async fn question(server: &mut Server, sql: &str, user: &str) -> Result<Option<User>, AskError> {
    let mut out = BytesMut::with_capacity(sql.len() + user.len() + 128);
    let types = [&[0, 1], &TEXT.to_be_bytes()[..]].concat();
    write_parse(&mut out, b"", sql.as_bytes(), &types);
    // One parameter as text, results as text.
    let length = u32::try_from(user.len()).unwrap_or(u32::MAX).to_be_bytes();
    let values = [&[0, 0, 0, 1], &length[..], user.as_bytes(), &[0, 0]].concat();
    write_bind(&mut out, b"", b"", &values);
    write_execute(&mut out, b"", 2);
    write_sync(&mut out);
    server.stream.send(&out).await.map_err(|_| AskError::Lost)?;
    let (mut found, mut refused) = (Vec::new(), None);
    loop {
        let message = Message::read(&mut server.stream, &mut server.input, Sender::Server).await;
        let message = message.map_err(|_| AskError::Lost)?;
        match message.tag() {
            b'D' => found.push(row(message.body())?),
            b'E' => {
                let fields = parse_error(message.body());
                // The message of a FATAL error is the last one.
                if fields.is_fatal() {
                    return Err(AskError::Lost);
                }
                let text = String::from_utf8_lossy(fields.message());
                refused = Some(format!("{}: {text}", fields.code()));
            }
            b'S' => server.note_parameter(message.body()),
            b'Z' => break,
            _ => {}
        }
    }
    if let Some(error) = refused {
        return Err(AskError::Refused(error));
    }
    match (found.len(), found.pop()) {
        (1, Some((name, known))) if name == user => Ok(Some(known)),
        // A query that compares names by rules of its own must not let one user in as another.
        (0 | 1, _) => Ok(None),
        _ => Err(AskError::Refused("it returns more than one row".to_owned())),
    }
}

/// Name and secret out of a row.
pub(crate) fn row(body: &[u8]) -> Result<(String, User), AskError> {
    let refused = |why: &str| AskError::Refused(why.to_owned());
    let mut rest = body;
    let columns = if rest.remaining() >= 2 { rest.get_u16() } else { 0 };
    if columns < 2 {
        return Err(refused("it must return two columns: the user's name and its secret"));
    }
    let name = column(&mut rest).and_then(|name| Some(std::str::from_utf8(name?).ok()?.to_owned()));
    let name = name.ok_or_else(|| refused("it returns no name in its first column"))?;
    let secret = column(&mut rest).ok_or_else(|| refused("its row ends early"))?;
    let secret = match secret.map(std::str::from_utf8) {
        None | Some(Ok("")) => None,
        Some(Ok(text)) => {
            let text = Zeroizing::new(text.to_owned());
            Some(Secret::parse(&text).map_err(|error| refused(&format!("the secret it returns {error}")))?)
        }
        Some(Err(_)) => return Err(refused("the secret it returns is not UTF-8")),
    };
    Ok((name, User { secret }))
}

/// The next column: `None` if there is none, `Some(None)` for NULL.
fn column<'a>(rest: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    if rest.remaining() < 4 {
        return None;
    }
    let Ok(length) = usize::try_from(rest.get_i32()) else { return Some(None) };
    let (value, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(Some(value))
}
