//! A session: it takes the client's commands one after the other, and answers each.
//!
//! Outside of a transaction the session holds no connection, unless it is pinned. `admit` has how it gets
//! one.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use wire::mysql::capabilities::{Capabilities, Status};
use wire::mysql::codec::Sequence;
use wire::mysql::command::{self, ChangeUser, Command};
use wire::mysql::execute::{BulkExecute, Execute};
use wire::mysql::response::Expect;
use wire::mysql::scramble::native;

use super::Shared;
use super::auth_query;
use super::carried::Carried;
use super::channel::{Channel, Incoming, Lost, Message};
use super::classify::{Analysis, Explains, Kill, Killing, Leaves, Pin, dialect};
use super::kill::kill_thread;
use super::login::{LoggedIn, application, write_own_ok};
use super::opening::{Access, Opening, TEXT_MAX};
use super::pins::Kept;
use super::proof::authenticate;
use super::readings::{self, Wide};
use super::reject::Refusal;
use super::results::Results;
use super::roster::{Activity, Registration, Who};
use super::server::{Key, Point, Proof, Server};
use super::statements::Statements;
use super::users::Credential;
use crate::gate::Client;
use crate::permit::Permit;
use crate::principal;
use crate::shutdown::{Ending, Phase};
use crate::sql::logins::{Caller, Cause};
use crate::sql::stats::{Counters, Stats};
use crate::stream::Peer;

/// Room for what a command has before its data.
const DROPPED: usize = 16;

/// What follows a command.
pub(super) enum Flow {
    Continue,
    /// The session ends.
    Close,
}

/// What is to be run on a connection.
#[derive(Clone, Copy)]
pub(super) enum What<'a> {
    /// A whole message, and what answers it.
    Message(&'a [u8], Expect),
    /// A statement is prepared.
    Prepare(&'a [u8], &'a Arc<Analysis>),
    /// A statement that is prepared: its id, and the command.
    Statement(u32, Command<'a>),
    /// Only the session's state is brought to a connection.
    Nothing,
}

/// The counters of a database.
#[derive(Default)]
pub(super) struct Counted {
    database: Vec<u8>,
    counters: Option<Arc<Counters>>,
}

impl Counted {
    /// The counters of this database.
    pub(super) fn of(&mut self, database: &[u8], stats: &Stats) -> &Counters {
        if self.database != database {
            self.database = database.to_vec();
            self.counters = None;
        }
        self.counters.get_or_insert_with(|| stats.of(&String::from_utf8_lossy(database)))
    }
}

/// One session.
pub(super) struct Session {
    pub(super) shared: Arc<Shared>,
    pub(super) client: Channel,
    pub(super) capabilities: Capabilities,
    /// What the client made its proof of the login for.
    scramble: Vec<u8>,
    pub(super) key: Key,
    /// Where the client is; `None`: on this machine.
    pub(super) address: Option<IpAddr>,
    /// What the application calls itself.
    pub(super) application: Vec<u8>,
    pub(super) principal: principal::Current,
    pub(super) credential: Credential,
    pub(super) carried: Carried,
    pub(super) at: Point,
    /// What the server told last.
    pub(super) status: Status,
    /// What the server told at login: a reset goes back there.
    status_at_login: Status,
    pub(super) proof: Proof,
    pub(super) statements: Statements,
    pub(super) server: Option<Server>,
    pub(super) permit: Option<Permit>,
    pub(super) kept: Option<Kept>,
    /// The next request pins the session for this reason.
    pub(super) keeps: Option<Pin>,
    pub(super) opening: Opening,
    /// How long the server was busy with the present request.
    pub(super) busy: Duration,
    /// When the present request got its turn; `None` for a login.
    pub(super) begun: Option<admission::Instant>,
    /// What the session's database is asked for.
    pub(super) counters: Counted,
    /// Results of earlier statements that aren't on the connection any more.
    pub(super) lost: Results,
    /// Without autocommit a savepoint may be set on the connection, though no transaction is open there.
    pub(super) has_savepoint: bool,
    /// The connection has generated an id that the session doesn't know yet.
    pub(super) asks_insert_id: bool,
    pub(super) at_gate: Client,
    peer: Peer,
    /// The gate only observes: the session has a connection of its own, and its statements go there as they
    /// are.
    pub(super) observes: bool,
    pub(super) place: Registration,
    pub(super) ending: Ending,
}

impl Session {
    pub(super) fn new(shared: Arc<Shared>, logged_in: LoggedIn) -> Self {
        let place = logged_in.place;
        let carried = Carried { database: logged_in.database, ..Carried::default() };
        Self {
            address: logged_in.client.stream.peer_address().map(|address| address.ip()),
            client: logged_in.client,
            capabilities: logged_in.capabilities,
            scramble: logged_in.scramble,
            key: logged_in.key,
            application: logged_in.application,
            principal: principal::Current::default(),
            credential: logged_in.credential,
            carried,
            at: Point { session: u64::from(place.id) | shared.next_epoch(), version: 1, commands: 0 },
            status: Status::AUTOCOMMIT,
            status_at_login: Status::AUTOCOMMIT,
            proof: Proof::Due,
            statements: Statements::default(),
            server: None,
            permit: None,
            kept: None,
            keeps: None,
            opening: Opening::default(),
            busy: Duration::ZERO,
            begun: None,
            counters: Counted::default(),
            lost: Results::default(),
            has_savepoint: false,
            asks_insert_id: false,
            at_gate: shared.driver.connect(),
            peer: logged_in.peer,
            observes: shared.settings().observe,
            ending: Ending::new(&shared.shutdown),
            place,
            shared,
        }
    }

    /// Serves the client until one of both has had enough. `next` is the number of the answer that ends the
    /// login.
    pub(super) async fn run(mut self, next: Sequence) {
        // The server says at login whether it takes the user and the database.
        if let Ok(Flow::Continue) = self.enter(next).await {
            self.shared.login_counts.succeed();
            if let Err(error) = self.serve().await {
                tracing::debug!(%error, "a session ended");
            }
        }
        let _ = self.client.flush().await;
        self.drop_server();
        self.shared.pool.release(self.at.session);
    }

    /// Shows who the session is.
    pub(super) fn show(&self) {
        *self.place.entry.who.lock() = Who {
            user: self.key.user.clone(),
            database: self.carried.database.clone(),
            application: self.application.clone(),
        };
    }

    /// Ends a login, which the server may refuse.
    async fn enter(&mut self, next: Sequence) -> Result<Flow, Lost> {
        let shared = Arc::clone(&self.shared);
        let _logging_in = shared.login_counts.log_in();
        let before = self.at.commands;
        self.proof = Proof::Due;
        let flow = self.execute(&Analysis::named("login"), What::Nothing, next).await?;
        if self.at.commands == before {
            return Ok(Flow::Close);
        }
        self.status_at_login = Status(self.status.0 & Status::OF_SESSION.0);
        self.own_ok(next);
        Ok(flow)
    }

    /// The server, or the gate, has refused the user of a login whose proof was right.
    pub(super) fn note_login(&self, refusal: &Refusal) {
        if self.proof == Proof::Given {
            return;
        }
        self.shared.login_counts.fail();
        if refusal.blames_user() {
            self.shared.note_failure(self.peer);
        }
        let text = |bytes: &[u8]| Some(String::from_utf8_lossy(bytes).into_owned());
        let caller = Caller {
            user: text(&self.key.user),
            database: text(&self.carried.database).filter(|name| !name.is_empty()),
        };
        let why = format!("{}{}", refusal.message(), refusal.advice());
        self.shared.tell_failed((&caller, self.peer), refusal, &why);
    }

    async fn serve(&mut self) -> Result<(), Lost> {
        loop {
            let limit = self.shared.settings().message_timeout;
            self.client.flush_within(limit).await?;
            let is_idle = self.permit.is_none() && !self.opening.has_begun();
            let phase = if is_idle { Phase::Draining } else { Phase::Aborting };
            let incoming = tokio::select! {
                biased;
                () = self.ending.reached(phase) => {
                    Refusal::draining().write(&mut self.client.output, Sequence(0));
                    return self.client.flush().await;
                }
                () = self.place.entry.ended.notified() => return Ok(()),
                incoming = self.client.command(limit) => incoming?,
            };
            let flow = match &incoming {
                Incoming::Message(message) => self.handle(message).await?,
                Incoming::Dropped { head, next } => self.refuse_dropped(head, *next),
            };
            drop(incoming);
            self.client.release_taken();
            if let Flow::Close = flow {
                return Ok(());
            }
        }
    }

    /// A message had no room. Long data have no answer, so that their execution fails.
    fn refuse_dropped(&mut self, head: &[u8], due: Sequence) -> Flow {
        let mut whole = [0; DROPPED];
        let known = head.len().min(DROPPED);
        whole[..known].copy_from_slice(&head[..known]);
        match command::parse(&whole, self.capabilities) {
            Ok(Command::SendLongData { statement, .. }) => {
                let statement = self.statements.meant(statement);
                self.statements.refuse_long(statement);
                return Flow::Continue;
            }
            Ok(
                Command::Execute(Execute { statement, .. })
                | Command::BulkExecute(BulkExecute { statement, .. }),
            ) => {
                let statement = self.statements.meant(statement);
                self.statements.forget_long(statement);
            }
            _ => {}
        }
        self.refuse(&Refusal::no_room(), due)
    }

    async fn handle(&mut self, message: &Message) -> Result<Flow, Lost> {
        let due = message.next;
        let command = match command::parse(&message.payload, self.capabilities) {
            Ok(command) => command,
            Err(error) => {
                Refusal::malformed(&error.to_string()).write(&mut self.client.output, due);
                return Ok(Flow::Close);
            }
        };
        let whole = What::Message(&message.payload, command.expects().unwrap_or(Expect::Outcome));
        match command {
            Command::Quit => Ok(Flow::Close),
            Command::Ping if self.server.is_none() => Ok(self.own_ok(due)),
            Command::Query(query) => {
                let analysis = self.read(query.sql);
                self.query(&analysis, whole, (query.sql, due)).await
            }
            Command::Prepare { sql } => {
                self.statements.forget_latest();
                let analysis = Arc::new(self.read(sql));
                if analysis.kills == Killing::Unreadable {
                    return Ok(self.refuse(&Refusal::kill_is_unreadable(), due));
                }
                self.execute(&Analysis::named("prepare"), What::Prepare(sql, &analysis), due).await
            }
            Command::Execute(mut execute) => {
                execute.statement = self.statements.meant(execute.statement);
                let checked = self.statements.check(&execute);
                self.execute_statement((execute.statement, checked), Command::Execute(execute), due).await
            }
            Command::BulkExecute(mut bulk) if self.capabilities.contains(Capabilities::BULK_OPERATIONS) => {
                bulk.statement = self.statements.meant(bulk.statement);
                let checked = self.statements.check_bulk(&bulk);
                self.execute_statement((bulk.statement, checked), Command::BulkExecute(bulk), due).await
            }
            Command::SendLongData { statement, parameter, data } => {
                let statement = self.statements.meant(statement);
                self.statements.push_long(statement, parameter, data);
                Ok(Flow::Continue)
            }
            Command::CloseStatement { statement } => {
                let statement = self.statements.meant(statement);
                self.statements.close(statement);
                Ok(Flow::Continue)
            }
            Command::ResetStatement { statement } => {
                self.reset_statement(self.statements.meant(statement), command, due).await
            }
            Command::Fetch { statement, .. } => {
                let what = What::Statement(self.statements.meant(statement), command);
                self.execute(&Analysis::named("fetch"), what, due).await
            }
            Command::InitDb { .. } => {
                let analysis = Analysis { explains: Explains::Settings, ..Analysis::named("use") };
                self.execute(&analysis, whole, due).await
            }
            Command::Ping
            | Command::Statistics
            | Command::FieldList { .. }
            | Command::ProcessInfo
            | Command::Debug => self.execute(&Analysis::named("command"), whole, due).await,
            Command::SetOption { option } => {
                let (analysis, before) = (Analysis::named("command"), self.at.commands);
                let analysis = Analysis { pin: Some(Pin::Other), ..analysis };
                let flow = self.execute(&analysis, whole, due).await?;
                if self.at.commands != before {
                    self.key.allow_several(option);
                }
                Ok(flow)
            }
            Command::ProcessKill { connection } => {
                self.kill(Kill { id: u64::from(connection), connection: true, soft: false }, due).await
            }
            Command::ResetConnection => Ok(self.reset(due)),
            Command::ChangeUser(change) => self.change_user(&change, due).await,
            Command::Refresh | Command::Shutdown | Command::BulkExecute(_) | Command::Other { .. } => {
                let code = message.payload.first().copied().unwrap_or_default();
                Ok(self.refuse(&Refusal::unknown_command(code), due))
            }
        }
    }

    /// Reads a text as the server will.
    fn read(&self, sql: &[u8]) -> Analysis {
        let set = self.carried.variables.get(&b"character_set_client"[..]);
        let wide = set.map_or_else(|| Wide::of_collation(self.key.collation), |name| Wide::named(name));
        let mut analysis = readings::analyze(sql, dialect(self.status), wide);
        analysis.begins &= !self.carried.is_of_oracle();
        analysis
    }

    /// What of queries the gate answers by itself, and the others.
    async fn query(
        &mut self,
        analysis: &Analysis,
        what: What<'_>,
        (sql, due): (&[u8], Sequence),
    ) -> Result<Flow, Lost> {
        match analysis.kills {
            Killing::One(kill) => return self.kill(kill, due).await,
            Killing::Unreadable => return Ok(self.refuse(&Refusal::kill_is_unreadable(), due)),
            Killing::Nothing => {}
        }
        let is_free = self.permit.is_none() && self.server.is_none();
        if is_free && sql.len() <= TEXT_MAX && self.status.contains(Status::AUTOCOMMIT) {
            let is_set = analysis.next.is_some_and(|next| self.opening.set(next, sql));
            if analysis.begins {
                self.opening.begin(sql);
            }
            if is_set || analysis.begins || analysis.ends && self.opening.end() {
                return Ok(self.own_ok(due));
            }
        }
        self.execute(analysis, what, due).await
    }

    /// Executes a prepared statement that can be sent, or tells why not.
    async fn execute_statement(
        &mut self,
        (id, checked): (u32, Result<(), Refusal>),
        command: Command<'_>,
        due: Sequence,
    ) -> Result<Flow, Lost> {
        let analysis = match checked {
            Ok(()) => self.statements.get(id).map(|statement| Arc::clone(&statement.analysis)),
            Err(refusal) => {
                self.statements.forget_long(id);
                return Ok(self.refuse(&refusal, due));
            }
        };
        let Some(mut analysis) = analysis else {
            return Ok(self.refuse(&Refusal::unknown_statement(id), due));
        };
        let flow = match (analysis.kills, command) {
            (Killing::One(kill), _) => self.kill(kill, due).await,
            (_, command) => {
                if matches!(command, Command::Execute(execute) if execute.asks_for_cursor()) {
                    Arc::make_mut(&mut analysis).pin = Some(Pin::Cursor);
                }
                let leaves_nothing = analysis.leaves != Leaves::Something;
                if leaves_nothing && !self.statements.is_as_anywhere(id, &self.carried.surroundings()) {
                    Arc::make_mut(&mut analysis).leaves = Leaves::Something;
                }
                self.execute(&analysis, What::Statement(id, command), due).await
            }
        };
        // An execution takes the long data, even if it is refused.
        self.statements.forget_long(id);
        flow
    }

    pub(super) fn own_ok(&mut self, due: Sequence) -> Flow {
        let mut status = self.status.0 & Status::OF_SESSION.0;
        if self.opening.has_begun() {
            status |= Status::IN_TRANSACTION.0;
            let access = self.opening.access();
            if access.map_or_else(|| self.carried.reads_only(), |access| access == Access::Reads) {
                status |= Status::IN_READ_ONLY_TRANSACTION.0;
            }
        }
        write_own_ok(&mut self.client.output, due, Status(status));
        Flow::Continue
    }

    pub(super) fn refuse(&mut self, refusal: &Refusal, due: Sequence) -> Flow {
        refusal.write(&mut self.client.output, due);
        Flow::Continue
    }

    async fn reset_statement(
        &mut self,
        statement: u32,
        command: Command<'_>,
        due: Sequence,
    ) -> Result<Flow, Lost> {
        if self.statements.get(statement).is_none() {
            return Ok(self.refuse(&Refusal::unknown_statement(statement), due));
        }
        self.statements.forget_long(statement);
        let is_there = self.server.as_ref().is_some_and(|server| server.statements.contains_key(&statement));
        if is_there {
            let what = What::Statement(statement, command);
            return self.execute(&Analysis::named("command"), what, due).await;
        }
        // The session may find the connection again on which the statement is in error.
        self.statements.put_off_reset(statement);
        Ok(self.own_ok(due))
    }

    /// COM_RESET_CONNECTION: all but user and database is as at login.
    fn reset(&mut self, due: Sequence) -> Flow {
        self.start_over();
        // No login follows: the next command is a statement, whose results may be asked for.
        self.at.commands = 1;
        let database = std::mem::take(&mut self.carried.database);
        self.carried = Carried { database, ..Carried::default() };
        self.own_ok(due)
    }

    /// Leaves everything behind that the session has made.
    fn start_over(&mut self) {
        // An open transaction ends with its connection.
        self.drop_server();
        self.shared.pool.release(self.at.session);
        self.opening = Opening::default();
        self.keeps = None;
        self.asks_insert_id = false;
        self.statements.clear();
        self.lost = Results::default();
        self.status = self.status_at_login;
        self.at.version += 1;
        self.at.commands = 0;
    }

    async fn change_user(&mut self, change: &ChangeUser<'_>, due: Sequence) -> Result<Flow, Lost> {
        self.start_over();
        let settings = self.shared.settings();
        let users = &settings.users;
        // As a server takes it, a proof is for the scramble of the login. Without one the client is asked.
        let plugin = change.plugin.unwrap_or(native::NAME.as_bytes());
        let is_proved = plugin == native::NAME.as_bytes();
        let asked = (plugin, if is_proved { change.proof } else { &[] });
        let secret = match auth_query::secret(&self.shared, &settings, change.user).await {
            Ok(secret) => secret,
            Err((refusal, why)) => {
                let user = Some(String::from_utf8_lossy(change.user).into_owned());
                self.shared.tell_failed((&Caller { user, database: None }, self.peer), &refusal, &why);
                self.refuse(&refusal, due);
                return Ok(Flow::Close);
            }
        };
        if !self.shared.may_try(self.peer) {
            self.shared.login_counts.refuse(Cause::Limited);
            self.refuse(&Refusal::too_many_failures(), due);
            return Ok(Flow::Close);
        }
        let shown = users.or_made_up(secret.as_ref(), (change.user, self.shared.plugin()));
        let (of, known) = ((&*self.shared, self.peer), (change.user, &shown));
        let (limit, scramble) = (settings.login_timeout, (&self.scramble[..], due));
        let proved = tokio::select! {
            proved = timeout(limit, authenticate(of, known, &mut self.client, asked, scramble)) => {
                proved.unwrap_or(Err(Lost::Late))?
            }
            () = self.place.entry.ended.notified() => return Ok(Flow::Close),
            () = self.ending.reached(Phase::Draining) => return Ok(Flow::Close),
        };
        let Some((credential, next)) = proved.credential else {
            let refusal = Refusal::denied(change.user);
            self.shared.login_counts.refuse(Cause::Denied);
            self.shared.note_failure(self.peer);
            let caller =
                Caller { user: Some(String::from_utf8_lossy(change.user).into_owned()), database: None };
            self.shared.tell_failed((&caller, self.peer), &refusal, &users.why(secret.as_deref()));
            self.refuse(&refusal, proved.next);
            return Ok(Flow::Close);
        };
        self.credential = credential;
        self.key.user = change.user.to_vec();
        self.application = application(change.attributes);
        self.key.collation = change.collation.unwrap_or(self.key.collation);
        self.carried = Carried { database: change.database.to_vec(), ..Carried::default() };
        self.show();
        self.enter(next).await
    }

    /// Kills another session's statement, or the self.
    async fn kill(&mut self, kill: Kill, due: Sequence) -> Result<Flow, Lost> {
        let Some(entry) = self.shared.sessions.of_user(kill.id, &self.key.user) else {
            return Ok(self.refuse(&Refusal::no_such_session(kill.id), due));
        };
        if Arc::ptr_eq(&entry, &self.place.entry) {
            if kill.connection {
                return Ok(Flow::Close);
            }
            return Ok(self.own_ok(due));
        }
        let mut activity = entry.activity.lock().await;
        match activity.clone() {
            Activity::Queued => {
                *activity = Activity::Canceled;
                entry.canceled.notify_one();
            }
            Activity::Running(thread) | Activity::Killed(thread) => {
                *activity = Activity::Killed(thread.clone());
                if let Err(failed) =
                    kill_thread(&self.shared, (&self.key, &self.credential), &thread, kill).await
                {
                    return Ok(self.refuse(&failed.into_refusal(), due));
                }
            }
            Activity::Idle | Activity::Resting | Activity::Canceled => {}
        }
        if kill.connection {
            entry.ended.notify_one();
        }
        drop(activity);
        Ok(self.own_ok(due))
    }
}

/// What a server answers to a command.
pub(super) fn expected(what: What<'_>) -> Expect {
    match what {
        What::Prepare(..) => Expect::Prepared,
        What::Nothing => Expect::Nothing,
        What::Statement(_, command) => command.expects().unwrap_or(Expect::Outcome),
        What::Message(_, expect) => expect,
    }
}
