//! `auth_query`: asking the server for a user's secret.
//!
//! One connection of the gate's own, of `auth_user`, beside `connections`; opened at need, closed when
//! unused. The user's name stands in the statement as hexadecimal digits, so that nothing in it is read as
//! SQL. Nothing is remembered: a dropped or changed user is dropped or changed at once.
//!
//! Only what `mysql_native_password` and `caching_sha2_password` keep counts as a secret, or nothing for a
//! user without a password. A server keeps other texts, too, which aren't passwords (`invalid`).

use std::borrow::Cow;
use std::sync::Arc;

use tokio::time::{Instant, sleep, timeout};
use wire::mysql::capabilities::Capabilities;
use wire::mysql::table::parse_row;
use wire::sql::Dialect;
use wire::sql::lexer::{Lexer, TokenKind, Unlexable};

use super::greeting::{Failed, UTF8MB4};
use super::place::Place;
use super::reject::Refusal;
use super::server::{Key, Server};
use super::users::{Credential, Query, Secret};
use super::{Settings, Shared};
use crate::sql::asking::{ANSWER_MAX, Asking, IDLE_MAX};
use crate::upstream::dial::Dial;
use crate::upstream::health::LOOK_EVERY;

/// The query that finds a user's secret unless another is configured. Accounts of other plug-ins have none.
const QUERY: &str = "SELECT DISTINCT user, CASE WHEN plugin IN ('', 'mysql_native_password', \
                     'caching_sha2_password') THEN authentication_string END FROM mysql.user WHERE user = ?";

/// The connection, and how its questions ended.
pub(super) type AuthQuery = Asking<Connection>;

/// The connection of `auth_user`.
pub(super) struct Connection {
    server: Server,
    /// Whose it is, and the way that it took: a reload may change both.
    of: Query,
    dial: Arc<Dial>,
    used: Instant,
}

/// Why there is no answer.
enum AskError {
    /// The connection is lost.
    Lost,
    /// The server refused the statement, or answered what is no answer.
    Refused(String),
}

impl From<Failed> for AskError {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Refused(refusal) => Self::Refused(refusal.message().into_owned()),
            Failed::Lost(_) => Self::Lost,
        }
    }
}

/// What is known of a user's password: from the file, or from the server if the settings have it asked.
///
/// # Errors
/// If the server can't be asked: what the client is told, and what the log is.
pub(super) async fn secret(
    shared: &Shared,
    settings: &Settings,
    user: &[u8],
) -> Result<Option<Arc<Secret>>, (Refusal, Cow<'static, str>)> {
    if let Some(secret) = settings.users.get(user) {
        return Ok(Some(Arc::clone(secret)));
    }
    let (Some(query), Ok(user)) = (&settings.users.query, std::str::from_utf8(user)) else {
        return Ok(None);
    };
    let answer = ask(shared, settings, query, user).await;
    shared.auth_query.count(&answer);
    answer
}

async fn ask(
    shared: &Shared,
    settings: &Settings,
    query: &Query,
    user: &str,
) -> Result<Option<Arc<Secret>>, (Refusal, Cow<'static, str>)> {
    let failed = |why: String| (Refusal::auth_query(), Cow::Owned(why));
    let Some(mut turn) = shared.auth_query.turn().await else {
        return Err((Refusal::too_many_questions(), Cow::Borrowed("too many logins wait for auth_query")));
    };
    let dial = shared.way().dial;
    // Taken out meanwhile: if this is given up half-way, so is the connection.
    let is_ours = |known: &Connection| known.of == *query && Arc::ptr_eq(&known.dial, &dial);
    let mut known = turn.connection.take().filter(is_ours);
    for _ in 0..2 {
        let is_fresh = known.is_none();
        let mut server = match known.take() {
            Some(mut known) => {
                if known.server.has_ended() {
                    continue;
                }
                known.server
            }
            None => connect(shared, settings, query).await.map_err(|error| {
                let (user, refusal) = (&query.user, error.into_refusal());
                failed(format!(
                    "auth_query: the gate cannot log in to the server as '{user}': {}",
                    refusal.message()
                ))
            })?,
        };
        let Ok(asked) = timeout(ANSWER_MAX, question(&mut server, query, user)).await else {
            return Err(failed(format!("auth_query failed: no answer within {ANSWER_MAX:?}")));
        };
        match asked {
            Ok(found) => {
                let (of, dial) = (query.clone(), Arc::clone(&dial));
                *turn.connection = Some(Connection { server, of, dial, used: Instant::now() });
                if let Some(secret) = &found {
                    settings.users.note(secret);
                }
                return Ok(found.map(Arc::new));
            }
            // The error may say that the connection was killed while nobody asked.
            Err(_) if !is_fresh => {}
            Err(AskError::Lost) => break,
            Err(AskError::Refused(error)) => return Err(failed(format!("auth_query failed: {error}"))),
        }
    }
    Err(failed("auth_query failed: the server closed the connection".to_owned()))
}

async fn connect(shared: &Shared, settings: &Settings, query: &Query) -> Result<Server, Failed> {
    let secret = settings.users.get(query.user.as_bytes());
    let credential = secret.and_then(|secret| secret.of_own()).unwrap_or(Credential::Nothing);
    let layout = Capabilities(0);
    let key = Key { user: query.user.clone().into_bytes(), layout, collation: u16::from(UTF8MB4) };
    Server::login((shared, &shared.way()), &key, &credential, Place::beside()).await
}

/// Closes the connection of `auth_user` when nobody needs it. Never returns.
pub(super) async fn tend(shared: &Shared) {
    loop {
        sleep(LOOK_EVERY).await;
        let is_over = |known: &mut Connection| known.used.elapsed() > IDLE_MAX || known.server.has_ended();
        drop(shared.auth_query.take_if(is_over));
    }
}

async fn question(server: &mut Server, query: &Query, user: &str) -> Result<Option<Secret>, AskError> {
    let refused = |why: &str| AskError::Refused(why.to_owned());
    let sql = statement(query.sql.as_deref().unwrap_or(QUERY), user)
        .map_err(|error| AskError::Refused(format!("its statement can't be read: {error}")))?;
    let mut rows = Vec::new();
    let mut columns = 0;
    server
        .rows(&sql, |count, row| {
            columns = count;
            // A second row is one too many.
            if rows.len() < 2 {
                rows.push(row.to_vec());
            }
        })
        .await?;
    let row = match rows.as_slice() {
        [] => return Ok(None),
        [row] => row,
        _ => {
            return Err(refused(
                "it returns more than one row: accounts of one name have different passwords. Write the user \
                 into users_file",
            ));
        }
    };
    let values = parse_row(row, columns).map_err(|error| AskError::Refused(error.to_string()))?;
    let [Some(name), secret] = values.as_slice() else {
        return Err(refused("it must return two columns: the user's name and its secret"));
    };
    // A query that compares names by rules of its own must not let one user in as another.
    if *name != user.as_bytes() {
        return Ok(None);
    }
    Ok(secret.and_then(|secret| Secret::kept_by_server(std::str::from_utf8(secret).ok()?)))
}

/// The statement with the name in the place of its parameters.
fn statement(sql: &str, user: &str) -> Result<String, Unlexable> {
    use std::fmt::Write as _;
    let mut name = "_utf8mb4 X'".to_owned();
    for byte in user.bytes() {
        let _ = write!(name, "{byte:02X}");
    }
    name.push('\'');
    let (mut lexer, mut out, mut copied) = (Lexer::new(sql.as_bytes(), Dialect::MYSQL), String::new(), 0);
    while let Some(token) = lexer.next_token()? {
        if token.kind == TokenKind::Parameter {
            out.push_str(sql.get(copied..token.start).unwrap_or_default());
            out.push_str(&name);
            copied = token.end;
        }
    }
    out.push_str(sql.get(copied..).unwrap_or_default());
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_in_the_statement_as_digits_whatever_it_is() {
        let made = |sql, user| statement(sql, user).unwrap();
        assert_eq!(made("SELECT ?", "a'b"), "SELECT _utf8mb4 X'612762'");
        assert_eq!(
            made("SELECT '?', `?` -- ?\n, ?, ?", "é"),
            "SELECT '?', `?` -- ?\n, _utf8mb4 X'C3A9', _utf8mb4 X'C3A9'"
        );
        assert_eq!(made("SELECT 1", "a"), "SELECT 1");
        assert!(statement("SELECT '", "a").is_err());
    }
}
