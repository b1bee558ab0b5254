//! The console's commands that change a gate or the process.

use std::time::Duration;

use tokio::sync::oneshot;

use super::words::{Command, Victims};
use super::{Failure, Subject};
use crate::command::Command as ProcessCommand;

/// How often a PAUSE looks whether the last transaction has ended. A notice would cost every request.
const PAUSE_LOOK: Duration = Duration::from_millis(10);

/// What a command came to.
pub(crate) struct Acted {
    pub(crate) tag: &'static str,
    /// A notice beside the answer.
    pub(crate) notice: Option<String>,
}

impl Acted {
    fn plainly(tag: &'static str) -> Self {
        Self { tag, notice: None }
    }
}

/// A command's name.
pub(crate) fn name(command: &Command) -> &'static str {
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

/// Carries a command out. A command that waits is taken back by what interrupts it.
pub(crate) async fn act(
    subject: &dyn Subject,
    command: Command,
    interrupted: impl Future<Output = Failure>,
) -> Result<Acted, Failure> {
    let tag = name(&command);
    match command {
        Command::Pause(database) => pause(subject, database.as_deref(), interrupted).await?,
        Command::Resume(database) => subject.let_go(database.as_deref())?,
        Command::Kill(victims) => {
            let count = kill(subject, &victims)?;
            return Ok(Acted { tag, notice: Some(format!("{count} sessions are told to end")) });
        }
        Command::Reload => {
            let (sender, answer) = oneshot::channel();
            ask(subject, ProcessCommand::Reload(sender)).await?;
            return match answer.await {
                Ok(Ok(notice)) => Ok(Acted { tag, notice: Some(notice) }),
                Ok(Err(errors)) => Err(Failure::new("F0000", format!("nothing has changed:\n{errors}"))),
                Err(_) => Err(ends()),
            };
        }
        Command::Reconnect => subject.reconnect(),
        Command::Shutdown => ask(subject, ProcessCommand::Shutdown).await?,
        Command::ShutdownNow => ask(subject, ProcessCommand::ShutdownNow).await?,
        Command::Empty | Command::Show(_) | Command::Setting(_) | Command::Set(_) | Command::Nothing(_) => {}
    }
    Ok(Acted::plainly(tag))
}

async fn ask(subject: &dyn Subject, command: ProcessCommand) -> Result<(), Failure> {
    let commands = subject.console().commands;
    let commands = commands.ok_or_else(|| Failure::new("0A000", "this gate has nobody to tell"))?;
    commands.send(command).await.map_err(|_| ends())
}

/// The process ends.
pub(crate) fn ends() -> Failure {
    Failure::new("57P01", "gatekeeper is shutting down")
}

/// Holds requests up, and waits until none is in flight. If the client cancels or leaves before that, it is
/// taken back.
async fn pause(
    subject: &dyn Subject,
    database: Option<&str>,
    interrupted: impl Future<Output = Failure>,
) -> Result<(), Failure> {
    subject.hold_up(database)?;
    let mut taken_back = TakenBack { subject, database, is_done: false };
    let quiet = async {
        let mut look = tokio::time::interval(PAUSE_LOOK);
        loop {
            look.tick().await;
            if !subject.holds_up(database) {
                return Err(Failure::new("55000", "somebody has resumed it before the last request ended"));
            }
            if subject.in_flight_of(database) == 0 {
                return Ok(());
            }
        }
    };
    let (outcome, is_done) = tokio::select! {
        biased;
        outcome = quiet => (outcome, true),
        failure = interrupted => (Err(failure), false),
    };
    taken_back.is_done = is_done;
    outcome
}

/// Takes an incomplete pause back.
struct TakenBack<'a> {
    subject: &'a dyn Subject,
    database: Option<&'a str>,
    is_done: bool,
}

impl Drop for TakenBack<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            // The gate may have been resumed meanwhile.
            let _ = self.subject.let_go(self.database);
        }
    }
}

fn kill(subject: &dyn Subject, victims: &Victims) -> Result<usize, Failure> {
    let mut sessions = subject.sessions();
    match victims {
        Victims::Client(id) => {
            sessions.retain(|session| session.id == *id);
            if sessions.is_empty() {
                return Err(Failure::new("42704", format!("there is no client {id}")));
            }
        }
        Victims::Everybody => {}
        Victims::Database(database) => {
            sessions.retain(|session| session.database == *database);
            if sessions.is_empty() {
                return Err(Failure::new("3D000", format!("nobody is connected to a database {database:?}")));
            }
        }
    }
    sessions.iter().for_each(|session| subject.end(session.id));
    Ok(sessions.len())
}

/// Refuses to change a key of the configuration, and says how it is changed. What drivers set of their own
/// accord is no key.
pub(crate) fn refuse_key(subject: &dyn Subject, key: &str) -> Result<(), Failure> {
    let console = subject.console();
    let Some(row) = console.config.iter().find(|row| row.key == key) else { return Ok(()) };
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
