//! One request: it waits for its turn, gets a connection in its session's state, runs there, and gives the
//! connection back.

use std::sync::Arc;
use std::time::Duration;

use admission::{Connection, Entry, Instant, Outcome, PoolId, Reason, Request, RequestType};
use wire::mysql::capabilities::Status;
use wire::mysql::codec::Sequence;
use wire::mysql::command::{self, Command};

use super::channel::{Lost, OUTPUT_MAX};
use super::classify::{Analysis, Close, Defines, Pin, Savepoints};
use super::greeting::Failed;
use super::kill::{Taker, Watch};
use super::pins::Kept;
use super::reject::{NO_LOGIN, NOT_RUN, Refusal};
use super::relay::{Answer, Broken, relay};
use super::renew::names;
use super::results::Results;
use super::roster::Activity;
use super::server::{Proof, Server};
use super::session::{Flow, Session, What, expected};
use super::tables::{self, Named};
use super::track::is_shared;
use crate::gate::Arrival;
use crate::shutdown::Phase;
use crate::sql::class::Unit;
use crate::sql::request_type::{request_type, type_name};
use crate::sql::stats::Counters;
use crate::why::Origin;

/// How often another connection is taken after one was found dead.
const ATTACH_TRIES: usize = 3;

/// The flags of a status that tell how texts are read.
const MODES: u16 = Status::ANSI_QUOTES.0 | Status::NO_BACKSLASH_ESCAPES.0;

/// Why a session stopped waiting for its turn.
enum Interrupted {
    Canceled,
    Left,
    /// The gate ends now.
    Ending,
    /// The request had to give up its room.
    NoRoom,
}

impl Session {
    /// Runs something on a connection, and answers it. `due` is the number of the answer.
    pub(super) async fn execute(
        &mut self,
        analysis: &Analysis,
        what: What<'_>,
        due: Sequence,
    ) -> Result<Flow, Lost> {
        // A gate that only observes passes on what it would answer, and asks with the statement behind it.
        let is_asked = !(self.observes && analysis.begins && self.permit.is_none());
        if let Err(refusal) = if is_asked { self.admit(analysis).await? } else { Ok(()) } {
            self.note_login(&refusal);
            let flow = self.refuse(&refusal, due);
            return Ok(if refusal.ends_session() { Flow::Close } else { flow });
        }
        let _defining = (analysis.defines == Defines::Tables).then(|| self.shared.tables.define());
        // What is set for the next transaction would be left on the connection.
        let sets = self.opening.is_only_set().then_some(Pin::Other);
        if let Err(reason) = self.keep(sets) {
            return Ok(self.decline(&self.unkept(reason), due).await);
        }
        let begun = self.now();
        let named = match self.attach(what, analysis).await {
            Ok(named) => named,
            Err(failed) => {
                self.kept = None;
                // The server has denied it, or can't be asked: nobody has left.
                if let Some(permit) = self.permit.take() {
                    permit.complete(Outcome::Failure, self.now().since(begun));
                }
                let refusal = failed.into_refusal();
                self.note_login(&refusal);
                return Ok(self.refuse(&refusal, due));
            }
        };
        if analysis.asks.meets(self.lost) {
            self.keeps = Some(Pin::Results);
            return Ok(self.decline(&Refusal::results_are_gone(), due).await);
        }
        if let Err(reason) = self.keep(analysis.pin) {
            return Ok(self.decline(&self.unkept(reason), due).await);
        }
        // A statement that doesn't need to keep the connection runs, though none may be kept.
        let _ = self.keep(self.keeps);
        let begun = self.now();
        let answer = self.send((analysis, named), what).await;
        let of_client = answer.as_ref().ok().and_then(|sent| sent.as_ref().ok()).map(|it| it.client_time);
        let busy = self.now().since(begun).saturating_sub(of_client.unwrap_or_default());
        self.busy += busy;
        if self.begun.is_some() {
            self.counted().queried(busy);
        }
        match answer {
            Ok(Ok(answer)) => {
                if analysis.close == Close::Releases && answer.error.is_none() {
                    if let Some(permit) = self.permit.take() {
                        permit.complete(Outcome::Success, self.busy);
                    }
                    return Ok(self.abandon());
                }
                let flow = self.conclude(analysis, &answer).await?;
                Ok(if answer.client == Taker::Left { Flow::Close } else { flow })
            }
            Ok(Err(refusal)) => Ok(self.decline(&refusal, due).await),
            Err(broken) => {
                if !matches!(broken, Broken::Client) {
                    self.shared.settings().health.lost(None);
                }
                if let Some((lost, due)) = broken.owed(due) {
                    Refusal::lost(&lost.to_string()).write(&mut self.client.output, due);
                }
                Ok(self.abandon())
            }
        }
    }

    /// Gets the right to be in flight.
    async fn admit(&mut self, analysis: &Analysis) -> Result<Result<(), Refusal>, Lost> {
        if let Some(permit) = &self.permit {
            permit.resume();
            return Ok(Ok(()));
        }
        self.busy = Duration::ZERO;
        // Logins are one type: anybody may name databases that aren't there.
        let of_type = if self.proof == Proof::Given { &self.carried.database[..] } else { &[] };
        let database = String::from_utf8_lossy(of_type);
        let explicit = self.opening.has_begun() || self.status.contains(Status::IN_TRANSACTION);
        let driver = Arc::clone(&self.shared.driver);
        let request_type = request_type(&database, analysis.type_hash, explicit);
        let class = self.shared.classes.class_of(|| self.unit(request_type, &analysis.tags));
        let request = Request {
            request_type,
            class,
            client: Some(self.at_gate.id()),
            tenant: self.shared.classes.tenant_of(class, || self.unit(request_type, &analysis.tags)),
            pool: PoolId::default(),
            connection: if self.kept.is_some() { Connection::Held } else { Connection::Needed },
            entry: self.kept.as_ref().map_or(Entry::Queued, |kept| kept.entry),
            deadline: None,
        };
        let outcome = if self.proof == Proof::Given { NOT_RUN } else { NO_LOGIN };
        let rejected =
            |refused, number| Refusal::rejected(&driver, refused, outcome).named(driver.name(), number);
        let session = Some(self.place.id.into());
        let principal = Arc::clone(self.principal.named(&self.key.user, &self.application));
        let origin = Origin { trace: analysis.trace, session, turn: session };
        let of_type = (analysis.type_hash, &*analysis.label);
        match driver.arrive(request, origin, Some(&principal), || type_name(&database, of_type, explicit)) {
            Arrival::Dispatched(permit) => self.permit = Some(permit),
            Arrival::Rejected(refused, number) => return Ok(Err(rejected(refused, number))),
            Arrival::Waiting(waiting) => {
                let number = waiting.number();
                let since = self.note(Activity::Queued).await.1;
                let verdict = self.wait(waiting).await;
                let (activity, now) = self.note(Activity::Idle).await;
                if self.proof == Proof::Given {
                    self.counted().waited(now.since(since));
                }
                match verdict {
                    // The killer has been told so, though the turn came just then.
                    Ok(turn) if matches!(activity, Activity::Canceled) => {
                        turn.into_iter().for_each(|permit| permit.give_up(Duration::ZERO));
                        return Ok(Err(Refusal::canceled_in_queue()));
                    }
                    Ok(Ok(permit)) => self.permit = Some(permit),
                    Ok(Err(refused)) => return Ok(Err(rejected(refused, number))),
                    Err(Interrupted::Canceled) => return Ok(Err(Refusal::canceled_in_queue())),
                    Err(Interrupted::Left) => return Err(Lost::Closed),
                    Err(Interrupted::Ending) => return Ok(Err(Refusal::draining())),
                    Err(Interrupted::NoRoom) => return Ok(Err(Refusal::no_room())),
                }
            }
        }
        // A login isn't counted.
        self.begun = (self.proof == Proof::Given).then(|| driver.clock().now());
        Ok(Ok(()))
    }

    /// What the rules of classes ask for.
    fn unit<'a>(&'a self, request_type: RequestType, tags: &'a [u64]) -> Unit<'a> {
        Unit {
            user: &self.key.user,
            database: &self.carried.database,
            application: &self.application,
            client: self.address,
            request_type,
            tags,
        }
    }

    /// Waits for the session's turn, and watches the client, which may leave.
    async fn wait<T>(&mut self, turn: impl Future<Output = T>) -> Result<T, Interrupted> {
        let limit = self.shared.settings().message_timeout;
        if self.client.flush_within(limit).await.is_err() {
            return Err(Interrupted::Left);
        }
        let told = self.client.told();
        tokio::pin!(turn, told);
        loop {
            let readable = self.client.input.len() < OUTPUT_MAX;
            tokio::select! {
                biased;
                turn = &mut turn => return Ok(turn),
                () = self.place.entry.canceled.notified() => {
                    // A notice may be left of a request that was canceled as its turn came.
                    if matches!(*self.place.entry.activity.lock().await, Activity::Canceled) {
                        return Err(Interrupted::Canceled);
                    }
                }
                () = self.place.entry.ended.notified() => return Err(Interrupted::Left),
                () = self.ending.reached(Phase::Aborting) => return Err(Interrupted::Ending),
                () = &mut told => return Err(Interrupted::NoRoom),
                filled = self.client.fill_or_end(readable) => match filled {
                    Err(_) => return Err(Interrupted::Left),
                    Ok(()) if self.client.is_over() => return Err(Interrupted::NoRoom),
                    Ok(()) => told.set(self.client.told()),
                },
            }
        }
    }

    /// Sees to it that the session has a connection in its state. A session that holds one left its state
    /// there; if that one is lost, the session ends. Returns what is known of the command's tables.
    async fn attach(&mut self, what: What<'_>, analysis: &Analysis) -> Result<Named, Failed> {
        let (server, named) = match self.server.take() {
            Some(server) => (server, Named::Unsure),
            None => self.restored(what, analysis).await?,
        };
        let server = self.server.insert(server);
        self.statements.close_closed(server);
        let running = Activity::Running(server.thread.clone());
        self.note(running).await;
        Ok(named)
    }

    /// Notes what the session does from now on. Returns what it did before, and the time now.
    async fn note(&mut self, activity: Activity) -> (Activity, Instant) {
        let now = self.now();
        (self.place.entry.note(activity, now, self.server.as_ref()).await, now)
    }

    fn now(&self) -> Instant {
        self.shared.driver.clock().now()
    }

    /// The counters of the session's database.
    fn counted(&mut self) -> &Counters {
        self.counters.of(&self.carried.database, &self.shared.stats)
    }

    /// Takes a connection, and brings it to the session's state. Tells what is known of the command's tables.
    async fn restored(&mut self, what: What<'_>, analysis: &Analysis) -> Result<(Server, Named), Failed> {
        let mut last = Failed::Lost(Lost::Closed);
        let names = names(what, analysis);
        let key = names.map(|names| tables::key(&self.key.user, &self.carried.database, names));
        let is_shared = self.opening.is_empty() && is_shared(&self.carried.variables, self.key.collation);
        let mut named = match &key {
            Some(key) if is_shared => self.shared.tables.named(key),
            _ => Named::Unsure,
        };
        for _ in 0..ATTACH_TRIES {
            let mut server = self.take().await?;
            let is_harmless = matches!(named, Named::Tables(_));
            server.expire(is_harmless, analysis.asks);
            // The first command of a session is its login, which leaves nothing. No reset ends FOUND_ROWS().
            if server.at != self.at {
                self.lost =
                    if self.at.commands <= 1 { self.lost.with(Results::OF_QUERIES) } else { Results::ALL };
            }
            let is_known = self.proof == Proof::Given;
            let may_pass = is_known && is_harmless && !matches!(what, What::Prepare(..));
            if may_pass && server.pass((&self.carried, self.at)) {
                self.lost = self.lost.with(Results::OF_QUERIES);
                return Ok((server, named));
            }
            let asked = match named {
                Named::Unknown(epoch) if is_known && server.at.session != self.at.session => {
                    names.zip(key.as_deref()).map(|(names, key)| (names, key, epoch))
                }
                _ => None,
            };
            let is_plain = matches!(what, What::Message(..)) && self.opening.is_empty() && asked.is_none();
            if is_known && is_plain && server.restores_surely(&self.carried) {
                // The statement follows at once.
                server.put_restore(&self.carried, None, self.at);
                return Ok((server, named));
            }
            match self.restore(&mut server).await {
                Ok(()) => {
                    if self.proof == Proof::Due && !self.carried.database.is_ascii() {
                        self.carried.database = server.value("DATABASE()").await?;
                    }
                    self.proof = Proof::Given;
                    if std::mem::take(&mut self.opening).has_begun() {
                        self.status.0 |= Status::IN_TRANSACTION.0;
                    }
                    let Some(asked) = asked else { return Ok((server, named)) };
                    match server.ask_names(&self.shared.tables, asked).await {
                        Ok(named) => return Ok((server, named)),
                        Err(failed) => (last, named) = (failed, Named::Unsure),
                    }
                }
                Err(Failed::Lost(lost)) => last = Failed::Lost(lost),
                // The connection is closed: in whose state it is, nobody knows.
                Err(refused) => return Err(refused),
            }
        }
        Err(last)
    }

    /// Brings a connection to the session's state. Where the session's database is gone, or closed to its
    /// user, the session goes on without one.
    async fn restore(&mut self, server: &mut Server) -> Result<(), Failed> {
        let limit = self.shared.settings().login_timeout;
        if self.proof == Proof::Due {
            server.prove(&self.credential, limit).await?;
        }
        let (at, opening) = (self.at, &self.opening);
        match server.restore((&self.carried, self.proof), at, opening).await {
            Err(Failed::Refused(refusal)) if self.proof == Proof::Given && refusal.is_of_database() => {
                server.change_user(&self.credential, limit).await?;
                let without = self.carried.without_database();
                server.restore((&without, self.proof), at, opening).await
            }
            restored => restored,
        }
    }

    /// An idle connection, or another. Where nobody shares one, there may be as many as clients.
    async fn take(&mut self) -> Result<Server, Failed> {
        let wanted = (self.at.session, !self.carried.database.is_empty());
        let of_user = (&self.key, &self.credential);
        let most = if self.observes { usize::MAX } else { self.shared.settings().connections as usize };
        self.shared.connection(of_user, wanted, most).await
    }

    /// Keeps the connection from now on, if there is a reason.
    fn keep(&mut self, pin: Option<Pin>) -> Result<(), Reason> {
        let Some(pin) = pin.filter(|_| !self.observes) else { return Ok(()) };
        if let Some(kept) = &mut self.kept {
            kept.note(pin);
            return Ok(());
        }
        let Some(permit) = &self.permit else { return Ok(()) };
        let pinned = permit.pin()?;
        self.kept = Some(Kept::new(&self.shared.pins, &self.place.entry.pins, pin, pinned));
        tracing::debug!(session = self.place.id, reason = pin.name(), "a session keeps its connection");
        Ok(())
    }

    /// The request would have to keep its connection, and is refused.
    fn unkept(&self, reason: Reason) -> Refusal {
        let driver = &self.shared.driver;
        let refusal = Refusal::rejected(driver, reason.into(), NOT_RUN);
        let number = self.permit.as_ref().map(|permit| permit.refuse(reason));
        number.into_iter().fold(refusal, |refusal, number| refusal.named(driver.name(), number))
    }

    /// Sends the command and passes its answer on.
    async fn send(
        &mut self,
        (analysis, named): (&Analysis, Named),
        what: What<'_>,
    ) -> Result<Result<Answer, Refusal>, Broken> {
        let Some(server) = &mut self.server else { return Err(Broken::Before(Lost::Closed)) };
        let mut statement = 0;
        let next = match what {
            What::Nothing => {
                return match server.status().await {
                    Ok(status) => Ok(Ok(Answer { status: Some(status), ..Answer::default() })),
                    Err(Failed::Refused(refusal)) => Ok(Err(refusal)),
                    Err(Failed::Lost(lost)) => Err(Broken::Before(lost)),
                };
            }
            What::Message(payload, _) => {
                server.channel.put_command(&[payload]).await.map_err(Broken::Before)?
            }
            What::Prepare(sql, _) => {
                statement = match self.statements.reserve(sql) {
                    Ok(next) => next,
                    Err(refusal) => return Ok(Err(refusal)),
                };
                server.put_prepare(sql).await.map_err(Broken::Before)?
            }
            What::Statement(id, command) => {
                let known = match server.know(id, &mut self.statements, &self.carried).await {
                    Ok(known) => known,
                    Err(Failed::Refused(refusal)) => return Ok(Err(refusal)),
                    Err(Failed::Lost(lost)) => return Err(Broken::Before(lost)),
                };
                match command {
                    Command::Execute(execute) => {
                        let put = self.statements.put_execute(&execute, known, server).await;
                        match put.map_err(Broken::Before)? {
                            Ok(next) => next,
                            Err(refusal) => return Ok(Err(refusal)),
                        }
                    }
                    Command::BulkExecute(bulk) => {
                        let put = self.statements.put_bulk(&bulk, known, server).await;
                        match put.map_err(Broken::Before)? {
                            Ok(next) => next,
                            Err(refusal) => return Ok(Err(refusal)),
                        }
                    }
                    Command::Fetch { rows, .. } => {
                        let fetch = Command::Fetch { statement: known, rows };
                        command::write(&mut server.channel.output, &fetch, server.capabilities)
                    }
                    _ => {
                        let reset = Command::ResetStatement { statement: known };
                        command::write(&mut server.channel.output, &reset, server.capabilities)
                    }
                }
            }
        };
        server.channel.flush().await.map_err(Broken::Before)?;
        server.settle().await.map_err(|failed| match failed {
            Failed::Lost(lost) => Broken::Before(lost),
            // The statement has run in nobody's state.
            Failed::Refused(_) => Broken::Before(Lost::Displaced),
        })?;
        let form = (expected(what), next);
        let own = (self.capabilities, statement);
        let watch = Watch {
            shared: &self.shared,
            of_user: (&self.key, &self.credential),
            entry: &self.place.entry,
            ending: &mut self.ending,
            limit: self.shared.settings().message_timeout,
            close: analysis.close,
        };
        let parties = (server, &mut self.client);
        let answer = relay(parties, form, own, (&mut self.carried, analysis), watch).await?;
        if let Some(server) = &mut self.server {
            let leaves_nothing =
                matches!(named, Named::Tables(epoch) if self.shared.tables.is_current(epoch));
            server.note_left(leaves_nothing, (what, statement), &answer);
        }
        if let (What::Prepare(sql, analysis), Some(prepared)) = (what, &answer.prepared) {
            let text = (sql, Arc::clone(analysis), self.carried.surroundings());
            self.statements.add(statement, text, prepared);
        }
        self.statements.settle();
        self.asks_insert_id |= answer.has_insert_id || analysis.names_insert_id;
        Ok(Ok(answer))
    }

    /// What follows an answer: the transaction goes on, or the connection is given back.
    async fn conclude(&mut self, analysis: &Analysis, answer: &Answer) -> Result<Flow, Lost> {
        self.at.commands += 1;
        self.at.version += u64::from(answer.told.changed);
        // A login has named a database, or the session uses another.
        let shows = answer.told.changed || self.at.commands == 1;
        let Some(server) = &mut self.server else { return Ok(Flow::Close) };
        self.lost = self.lost.without(answer.renewed(analysis));
        if answer.told.collation && !self.observes {
            let Ok(collation) = server.value("@@collation_connection").await else {
                return Ok(self.abandon());
            };
            self.carried.variables.insert(b"collation_connection".to_vec(), collation);
            self.lost = self.lost.with(Results::OF_QUERIES);
        }
        // A routine of another database, or with modes of its own, told where it was as the error came.
        if answer.error.is_some() && answer.told.changed && !self.observes {
            let Ok(database) = server.value("DATABASE()").await else { return Ok(self.abandon()) };
            self.carried.database = database;
            self.lost = self.lost.with(Results::OF_QUERIES);
        }
        server.at = self.at;
        server.database.clone_from(&self.carried.database);
        let was = self.status;
        match answer.status {
            // The modes of one statement have ended with it.
            Some(status) if analysis.once.iter().any(|name| name == b"sql_mode") => {
                self.status = Status(status.0 & !MODES | self.status.0 & MODES);
            }
            Some(status) => self.status = status,
            // An error tells nothing of the transaction.
            None => match server.status().await {
                Ok(status) => self.status = status,
                Err(_) => return Ok(self.abandon()),
            },
        }
        if (answer.told.tracking || analysis.tracking) && server.track().await.is_err() {
            return Ok(self.abandon());
        }
        // In MariaDB the next transaction is read-only, too, if `SET autocommit = 1` has ended this one.
        let was_read_only = was.contains(Status::IN_READ_ONLY_TRANSACTION);
        let lasts = was_read_only && !analysis.ends && !self.status.contains(Status::IN_TRANSACTION);
        let pin = answer.pin(analysis).or(lasts.then_some(Pin::Other));
        if let Err(reason) = self.keep(pin) {
            self.unkept(reason);
            let limit = self.shared.settings().message_timeout;
            self.client.flush_within(limit).await?;
            return Ok(self.abandon());
        }
        if shows {
            self.show();
        }
        self.follow_savepoints(analysis, (answer.error, was));
        if self.is_open() {
            self.rest().await;
            return Ok(Flow::Continue);
        }
        self.finish(answer.outcome()).await;
        Ok(Flow::Continue)
    }

    /// A statement is refused that hasn't run, though there is a connection. An open transaction goes on.
    async fn decline(&mut self, refusal: &Refusal, due: Sequence) -> Flow {
        if self.is_open() {
            self.rest().await;
        } else {
            self.finish(Outcome::Failure).await;
        }
        self.refuse(refusal, due)
    }

    /// Whether what comes next has to find what the session has left on the connection.
    fn is_open(&self) -> bool {
        self.status.contains(Status::IN_TRANSACTION) || self.has_savepoint
    }

    /// Without autocommit a server takes savepoints before it says that a transaction is open. They end with
    /// the transaction, or with an end of none.
    fn follow_savepoints(&mut self, analysis: &Analysis, (error, was): (Option<u16>, Status)) {
        let (is_automatic, is_open) =
            (self.status.contains(Status::AUTOCOMMIT), self.status.contains(Status::IN_TRANSACTION));
        let has_ended = was.contains(Status::IN_TRANSACTION) || analysis.ends && error.is_none();
        if is_automatic || is_open || has_ended {
            self.has_savepoint = false;
        }
        self.has_savepoint |= analysis.savepoints == Savepoints::Set && !is_automatic && !is_open;
    }

    /// The transaction is open, and its client thinks.
    async fn rest(&mut self) {
        self.note(Activity::Resting).await;
        if let Some(permit) = &self.permit {
            permit.idle();
        }
    }

    /// The session can't go on.
    fn abandon(&mut self) -> Flow {
        self.drop_server();
        Flow::Close
    }

    /// The request has ended: its connection is given back unless the session keeps it.
    async fn finish(&mut self, outcome: Outcome) {
        let (was, now) = self.note(Activity::Idle).await;
        if let Some(begun) = self.begun.take() {
            self.counted().transacted(now.since(begun));
        }
        if self.kept.is_none() && !self.observes {
            if let Some(mut server) = self.server.take() {
                let mut is_usable = !matches!(was, Activity::Killed(_)) && server.settle().await.is_ok();
                if is_usable && std::mem::take(&mut self.asks_insert_id) {
                    match server.insert_id().await {
                        Ok(id) => {
                            self.carried.insert_id = id;
                            self.at.version += 1;
                            server.at = self.at;
                            self.lost = self.lost.with(Results::OF_QUERIES);
                        }
                        Err(_) => is_usable = false,
                    }
                }
                self.place.entry.note_server(None);
                if is_usable {
                    self.shared.give_back(server);
                }
            }
        }
        if let Some(permit) = self.permit.take() {
            permit.complete(outcome, self.busy);
        }
    }

    /// Closes the session's connection.
    pub(super) fn drop_server(&mut self) {
        self.server = None;
        self.has_savepoint = false;
        self.place.entry.note_server(None);
        self.kept = None;
        if let Some(permit) = self.permit.take() {
            permit.complete(Outcome::Failure, self.busy);
        }
    }
}
