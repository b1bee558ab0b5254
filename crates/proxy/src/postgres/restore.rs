//! Brings a server connection to the settings of the session that gets it.
//!
//! Only the settings that differ are sent, in as few messages as possible. The server executes each message
//! whole or not at all:
//!
//! 1. time-outs that another session left are reset, so that they cut no later message short;
//! 2. the encoding is set in a message of its own where texts beyond ASCII follow: the server reads a message
//!    in the encoding that held when the message came;
//! 3. all else, in the order in which the client set it, because one setting may be read by another (a text
//!    search configuration by the search path). Time-outs come last.
//!
//! The session drops a setting that the server refuses ([`Refused`]). The client gets the server's error
//! once. The connection goes back to its pool, because its settings are known: they are as before.

use std::sync::Arc;
use std::time::Duration;

use super::book::{CARRIED, DEPENDENT, Mask, Setting, Settings, masks};
use super::parameters::Parameters;
use super::query_error::QueryError;
use super::server::Server;
use super::settings::{CARRIED_ENCODING, ServerState, SessionSettings};

/// Ends a client's statement within a longer text. The newline ends a comment at the end of the statement.
const END: &str = "\n;";
/// Settings that may cut a statement or a transaction short.
const TIMEOUTS: [&str; 3] = ["lock_timeout", "statement_timeout", "transaction_timeout"];
/// How often the gate tries to reset time-outs: a time-out of a millisecond may cancel the reset itself.
const LIFTS_MAX: usize = 16;
/// The SQLSTATE of a statement that was canceled or timed out.
const CANCELED: &str = "57014";

/// The statements that are sent to a connection, in the order of the fields.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    lift: String,
    encoding: Option<String>,
    /// The name of each setting, and the statement that sets it.
    statements: Vec<(String, String)>,
    last_encoding: Option<String>,
}

/// Why a connection could not be brought to the session's settings.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) error: QueryError,
    /// The setting that the server refused.
    pub(super) setting: Option<String>,
}

/// The plan that brings a connection to the session's settings; `None` if it has them. With `reported_only`
/// only settings that the server reports are changed.
pub(super) fn plan(
    session: &SessionSettings,
    server: (&Parameters, &ServerState),
    reported_only: bool,
) -> Option<Plan> {
    let (parameters, state) = server;
    let ours = session.book.settings();
    let differs = !reported_only && !is_same(ours, &state.settings);
    if session.reported == *parameters && !differs {
        return None;
    }
    let mut plan = Plan::default();
    let value =
        |name| session.reported.get(name).filter(|ours| parameters.get(name).is_some_and(|it| it != *ours));
    for name in CARRIED {
        if let Some(value) = value(name) {
            plan.statements.push((name.to_owned(), set(name, value)));
        }
    }
    if differs {
        plan.carry(ours, &state.settings, parameters);
    }
    plan.order_encoding(session, parameters);
    (!plan.statements.is_empty() || !plan.lift.is_empty()).then_some(plan)
}

fn is_same(ours: &Settings, theirs: &Settings) -> bool {
    Arc::ptr_eq(ours, theirs) || ours == theirs
}

impl Plan {
    /// Unreported settings: what the connection has and the session has not, then what the session has.
    fn carry(&mut self, ours: &[Setting], theirs: &[Setting], parameters: &Parameters) {
        let find = |list: &[Setting], name: &str| list.iter().position(|setting| setting.name == name);
        let is_timeout = |setting: &&Setting| TIMEOUTS.contains(&setting.name.as_str());
        theirs.iter().filter(is_timeout).for_each(|setting| self.lift.push_str(&reset(&setting.name)));
        for setting in theirs.iter().filter(|it| !is_timeout(it) && find(ours, &it.name).is_none()) {
            // The server reports this setting by now: the list of reported settings covers it.
            if parameters.get(&setting.name).is_none() {
                self.statements.push((setting.name.clone(), reset(&setting.name)));
            }
        }
        let (last, first): (Vec<_>, Vec<_>) = ours.iter().partition(is_timeout);
        for setting in first.into_iter().chain(last) {
            let is_there =
                find(theirs, &setting.name).is_some_and(|index| theirs[index].text == setting.text);
            // The server finds this value by the search path, which may have changed.
            if !is_there || is_timeout(&setting) || setting.name == DEPENDENT {
                let text = String::from_utf8_lossy(&setting.text);
                self.statements.push((setting.name.clone(), format!("{text}{END}")));
            }
        }
    }

    /// Texts beyond ASCII are sent in the encoding that they are written in.
    fn order_encoding(&mut self, session: &SessionSettings, parameters: &Parameters) {
        const NAME: &str = "client_encoding";
        if self.statements.iter().all(|(_, sql)| sql.is_ascii()) {
            return;
        }
        self.statements.retain(|(name, _)| name != NAME);
        let set = |encoding| Some(set(NAME, encoding));
        if parameters.get(NAME) != Some(CARRIED_ENCODING) {
            self.encoding = set(CARRIED_ENCODING);
        }
        if let Some(ours) = session.reported.get(NAME).filter(|ours| *ours != CARRIED_ENCODING) {
            self.last_encoding = set(ours);
        }
    }

    /// The carried settings that the plan sets.
    pub(super) fn carried(&self) -> Mask {
        masks(self.statements.iter().map(|(name, _)| &**name))
    }

    /// Every text that is sent.
    #[cfg(feature = "garbage")]
    pub(super) fn texts(&self) -> impl Iterator<Item = &String> {
        let statements = self.statements.iter().map(|(_, sql)| sql);
        std::iter::once(&self.lift).chain(&self.encoding).chain(statements).chain(&self.last_encoding)
    }

    /// Sends the plan. Not cancel-safe: if the future is dropped midway, the connection must be closed.
    pub(super) async fn carry_out(
        self,
        server: &mut Server,
        settings: &Settings,
        limit: Duration,
    ) -> Result<(), Refused> {
        let unnamed = |error| Refused { error, setting: None };
        if !self.lift.is_empty() {
            lift(server, &self.lift, limit).await.map_err(unnamed)?;
        }
        if let Some(sql) = &self.encoding {
            server.simple_query(sql, limit).await.map_err(unnamed)?;
        }
        let sql: String = self.statements.iter().map(|(_, sql)| &**sql).collect();
        if sql.is_empty() {
            server.session_state.settings.clone_from(settings);
        } else if let Err(error) = server.simple_query(&sql, limit).await {
            let setting = match &error {
                QueryError::Refused { sqlstate, answered, .. } if sqlstate != CANCELED => {
                    self.statements.get(*answered).map(|(name, _)| name.clone())
                }
                _ => None,
            };
            return Err(Refused { error, setting });
        }
        server.session_state.settings.clone_from(settings);
        if let Some(sql) = &self.last_encoding {
            server.simple_query(sql, limit).await.map_err(unnamed)?;
        }
        Ok(())
    }

    /// Sends the statements for reported settings within the open transaction, without touching its unnamed
    /// portal. Not cancel-safe: if the future is dropped midway, the connection must be closed.
    pub(super) async fn carry_out_within(self, server: &mut Server, limit: Duration) -> Result<(), Refused> {
        let settings = self.statements.iter().map(|(name, sql)| (Some(name), sql));
        let first = self.encoding.iter().map(|sql| (None, sql));
        let said: Vec<_> =
            first.chain(settings).chain(self.last_encoding.iter().map(|sql| (None, sql))).collect();
        let done = server.run_beside(said.iter().map(|(_, sql)| &***sql), limit).await;
        done.map(|_| ()).map_err(|error| {
            let refused = match &error {
                QueryError::Refused { answered, .. } => said.get(*answered).and_then(|(name, _)| *name),
                _ => None,
            };
            Refused { setting: refused.cloned(), error }
        })
    }
}

async fn lift(server: &mut Server, sql: &str, limit: Duration) -> Result<(), QueryError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match server.simple_query(sql, limit).await {
            Ok(_) => break,
            Err(QueryError::Refused { sqlstate, .. }) if sqlstate == CANCELED && tries < LIFTS_MAX => {}
            Err(error) => return Err(error),
        }
    }
    let settings = Arc::make_mut(&mut server.session_state.settings);
    settings.retain(|setting| !TIMEOUTS.contains(&setting.name.as_str()));
    Ok(())
}

/// The statement that sets a setting to its reported value. SET takes no snapshot, so SET TRANSACTION may
/// still follow. `search_path` needs `set_config`: SET would read the list in one literal as one name. A
/// value with a backslash is written as `E'…'`, whose meaning doesn't depend on
/// `standard_conforming_strings`.
fn set(name: &str, value: &str) -> String {
    let value = value.replace('\'', "''");
    let literal = if value.contains('\\') {
        format!("E'{}'", value.replace('\\', "\\\\"))
    } else {
        format!("'{value}'")
    };
    match name {
        "search_path" => format!("SELECT pg_catalog.set_config('{name}', {literal}, false);"),
        _ => format!("SET {name} = {literal};"),
    }
}

/// Names of settings are identifiers joined by dots (`myapp.tenant`).
fn reset(name: &str) -> String {
    let quoted: Vec<String> =
        name.split('.').map(|part| format!("\"{}\"", part.replace('"', "\"\""))).collect();
    format!("RESET {};", quoted.join("."))
}

#[cfg(test)]
mod tests;
