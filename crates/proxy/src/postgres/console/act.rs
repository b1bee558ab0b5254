//! The commands that change something.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::sync::oneshot;

use super::parameters;
use super::session::{Failure, Session};
use super::table::{Cell, Column, Kind, Table};
use super::words::{Command, Victims};
use crate::command::Command as ProcessCommand;
use crate::postgres::{Pooling, Shared};

/// How often a PAUSE looks whether the last transaction has ended. Nothing tells it: that would cost every
/// request.
const PAUSE_LOOK: Duration = Duration::from_millis(10);
/// The most that a client may say while its command runs.
const INPUT_MAX: usize = 64 * 1024;

/// What a command came to.
pub(super) struct Acted {
    pub(super) tag: &'static str,
    /// To be told beside it.
    pub(super) notice: Option<String>,
}

impl Acted {
    fn plainly(tag: &'static str) -> Self {
        Self { tag, notice: None }
    }
}

/// A command's name.
pub(super) fn name(command: &Command) -> &'static str {
    match command {
        Command::Pause(_) => "PAUSE",
        Command::Resume(_) => "RESUME",
        Command::Kill(_) => "KILL",
        Command::Reload => "RELOAD",
        Command::Reconnect => "RECONNECT",
        Command::Shutdown | Command::ShutdownNow => "SHUTDOWN",
        Command::Set(_) => "SET",
        Command::Empty | Command::Show(_) | Command::Setting(_) | Command::Nothing(_) => "SHOW",
    }
}

/// Does it.
pub(super) async fn act(
    shared: &Arc<Shared>,
    command: Command,
    session: &mut Session<'_>,
) -> Result<Acted, Failure> {
    let tag = name(&command);
    match command {
        Command::Pause(database) => pause(shared, database.as_deref(), session).await?,
        Command::Resume(database) => resume(shared, database.as_deref())?,
        Command::Kill(victims) => {
            let count = kill(shared, &victims)?;
            return Ok(Acted { tag, notice: Some(format!("{count} sessions are told to end")) });
        }
        Command::Reload => {
            let (sender, answer) = oneshot::channel();
            ask(shared, ProcessCommand::Reload(sender)).await?;
            return match answer.await {
                Ok(Ok(notice)) => Ok(Acted { tag, notice: Some(notice) }),
                Ok(Err(errors)) => Err(Failure::new("F0000", format!("nothing has changed:\n{errors}"))),
                Err(_) => Err(ends()),
            };
        }
        Command::Reconnect => shared.reconnect(),
        Command::Shutdown => ask(shared, ProcessCommand::Shutdown).await?,
        Command::ShutdownNow => ask(shared, ProcessCommand::ShutdownNow).await?,
        Command::Empty | Command::Show(_) | Command::Setting(_) | Command::Set(_) | Command::Nothing(_) => {}
    }
    Ok(Acted::plainly(tag))
}

async fn ask(shared: &Shared, command: ProcessCommand) -> Result<(), Failure> {
    let commands = shared.settings().console.commands.clone();
    let commands = commands.ok_or_else(|| Failure::new("0A000", "this gate has nobody to tell"))?;
    commands.send(command).await.map_err(|_| ends())
}

fn ends() -> Failure {
    Failure::new("57P01", "gatekeeper is shutting down")
}

/// Holds requests up, and waits until none is in flight. If the client cancels or leaves before that, it is
/// taken back.
async fn pause(
    shared: &Arc<Shared>,
    database: Option<&str>,
    session: &mut Session<'_>,
) -> Result<(), Failure> {
    hold_up(shared, database)?;
    let mut taken_back = TakenBack { shared, database, is_done: false };
    if let Some(cancel) = &session.cancel {
        cancel.queued();
    }
    let quiet = async {
        let mut look = tokio::time::interval(PAUSE_LOOK);
        loop {
            look.tick().await;
            let pools = shared.pools.pools_of(database);
            if shared.driver.in_flight_of(pools) == 0 {
                return;
            }
        }
    };
    let canceled = async {
        match &session.cancel {
            Some(cancel) => cancel.canceled().await,
            None => std::future::pending().await,
        }
    };
    let (client, input) = (&mut session.client, &mut session.input);
    let gone = async {
        while input.len() < INPUT_MAX && client.read_buf(input).await.is_ok_and(|count| count > 0) {}
    };
    let outcome = tokio::select! {
        biased;
        () = quiet => Ok(()),
        () = canceled => Err(Failure::new("57014", "canceling PAUSE due to user request: it is taken back")),
        () = gone => Err(Failure::new("08006", "the client has left: PAUSE is taken back")),
        () = shared.shutdown.draining() => Err(ends()),
    };
    if let Some(cancel) = &session.cancel {
        cancel.idle();
    }
    taken_back.is_done = outcome.is_ok();
    outcome
}

/// Holds requests up from now on.
pub(super) fn hold_up(shared: &Shared, database: Option<&str>) -> Result<(), Failure> {
    refuse_where_it_means_nothing(shared, database)?;
    if shared.pools.pause(database) { Ok(()) } else { Err(Failure::new("55000", "already paused")) }
}

/// Takes a pause back that didn't come about.
struct TakenBack<'a> {
    shared: &'a Shared,
    database: Option<&'a str>,
    is_done: bool,
}

impl Drop for TakenBack<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.shared.pools.resume(self.database);
        }
    }
}

pub(super) fn resume(shared: &Shared, database: Option<&str>) -> Result<(), Failure> {
    if shared.pools.resume(database) { Ok(()) } else { Err(Failure::new("55000", "not paused")) }
}

fn refuse_where_it_means_nothing(shared: &Shared, database: Option<&str>) -> Result<(), Failure> {
    let settings = shared.settings();
    if settings.observe {
        return Err(Failure::new("0A000", "this gate only observes: it holds nobody up"));
    }
    let Some(database) = database else { return Ok(()) };
    if settings.pooling == Pooling::Session {
        let message = "with pooling = \"session\" the whole gate can be paused, not one database";
        return Err(Failure::new("0A000", message));
    }
    if shared.pools.snapshot().iter().all(|pool| pool.database != database) {
        return Err(Failure::new("3D000", format!("nobody is connected to a database {database:?}")));
    }
    Ok(())
}

fn kill(shared: &Shared, victims: &Victims) -> Result<usize, Failure> {
    let cards = match victims {
        Victims::Client(id) => {
            let found = shared.roster.find(*id);
            vec![found.ok_or_else(|| Failure::new("42704", format!("there is no client {id}")))?]
        }
        Victims::Everybody => shared.roster.cards(),
        Victims::Database(database) => {
            let cards = shared.roster.cards().into_iter();
            let cards: Vec<_> = cards.filter(|card| card.identity.database == *database).collect();
            if cards.is_empty() {
                return Err(Failure::new("3D000", format!("nobody is connected to a database {database:?}")));
            }
            cards
        }
    };
    for card in &cards {
        card.kill();
    }
    Ok(cards.len())
}

/// Refuses to change a key of the configuration, and says how it is changed. What drivers set of their own
/// accord is no key.
pub(super) fn refuse_key(shared: &Shared, key: &str) -> Result<(), Failure> {
    let settings = shared.settings();
    let Some(row) = settings.console.config.iter().find(|row| row.key == key) else { return Ok(()) };
    let hint = match (row.changeable, key) {
        (_, "capacity") => {
            "Change it in the configuration file, then RELOAD; or at the admin listener, until the next reload."
        }
        (true, _) => "Change it in the configuration file, then RELOAD.",
        (false, _) => "Change it in the configuration file, then start gatekeeper again.",
    };
    let message = format!("\"{key}\" cannot be changed by SET");
    Err(Failure { hint: Some(hint), ..Failure::new("55P02", message) })
}

const SETTING: &[Column] = &[("setting", Kind::Text)];

/// A setting as a session was told it at its login; some drivers ask.
pub(super) fn setting(name: &str, user: &str, application: &str) -> Result<Table, Failure> {
    let value = match name {
        "transaction isolation level" | "transaction_isolation" => Some("read committed".to_owned()),
        name => parameters(user, application)
            .into_iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value),
    };
    let unknown = || Failure {
        hint: Some("SHOW HELP lists what can be shown."),
        ..Failure::new("42704", format!("the console shows no {name:?}"))
    };
    let value = value.ok_or_else(unknown)?;
    Ok(Table { columns: SETTING, rows: vec![vec![Cell::from(value)]] })
}
