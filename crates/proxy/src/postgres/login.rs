//! From an accepted socket to a session.
//!
//! Two ways lead in. By default the server itself authenticates every login ([`relay`]); where
//! authentication is configured the gate does ([`prove`]), and then logs in to the server itself
//! ([`open`]), if it has to at all:
//!
//! ```text
//! client                gate                                   server
//!   │ StartupMessage ───►│                                       │
//!   │◄──── SCRAM, md5 ──►│ who is it?                            │
//!   │                    │ the pool has connections and knows the server's reports: done
//!   │                    │ otherwise: a place among the logins   │
//!   │                    │ fresh connection, login ─────────────►│
//!   │                    │ the connection joins its pool         │
//!   │◄─ AuthenticationOk, settings, a key of our own, ReadyForQuery
//! ```
//!
//! Logins that take a server connection have a bound of their own, `logins_max`, beside `connections`.
//! AuthenticationOk is held back until the connection has joined, so that "all connections are held by
//! others" can still be the answer to a login.

use std::fmt::Display;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout, timeout_at};
use wire::postgres::backend::{
    Status, parse_error, write_authentication_ok, write_backend_key, write_parameter_status, write_ready,
};
use wire::postgres::startup::{parameter, user};

use super::auth::{Credentials, Method};
use super::cancel::Registration;
use super::console::{self, Visitor};
use super::message::{MESSAGE_MAX, Message, Sender};
use super::parameters::Parameters;
use super::pool::{Lease, growth, key};
use super::refusal::Refusal;
use super::server::Server;
use super::{LoggedIn, Places, Settings, Shared, cores, defaults};
use crate::sql::logins::{Caller, Cause};
use crate::stream::{Peer, Stream};
use crate::turns::Turn;
use first_packets::{Opening, Wish};
use handshake::Accepted;
use open::OpenError;
#[cfg(feature = "garbage")]
pub(crate) use relay::expects_binding;
pub(crate) use relay::{first_word, probe_trust};

mod first_packets;
mod handshake;
pub(crate) mod open;
mod prove;
mod relay;
mod visit;

/// The longest that the last words to a client may take: it may not be reading.
const FAREWELL_LIMIT: Duration = Duration::from_secs(5);

/// How a connection ended before it became a session.
enum End {
    /// Nothing to say: the client is gone, or never was one.
    Silent,
    /// The client only came to cancel another one's statement.
    Cancel {
        process_id: i32,
        secret: Bytes,
    },
    /// He asks for the console.
    Knocks(Vec<(String, String)>),
    /// He has been let in there.
    Visits(Visitor),
    /// The server's own error was passed on.
    Answered(Said),
    Refused(Refusal),
}

/// What the server has said of a login that it refused.
struct Said {
    blame: Blame,
    sqlstate: String,
    message: String,
}

/// Whether the server refused a login because of the user that asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blame {
    /// A wrong password, an unknown user, one that may not log in.
    Credentials,
    /// Anything else.
    Other,
}

impl<R: Into<Refusal>> From<R> for End {
    fn from(refusal: R) -> Self {
        Self::Refused(refusal.into())
    }
}

/// A client during its login.
struct Login<'a> {
    shared: &'a Arc<Shared>,
    client: Stream,
    /// Read from the client and not yet looked at.
    input: BytesMut,
    /// For the log.
    caller: Caller,
    /// Why the client was denied, which it isn't told.
    why: Option<String>,
    /// Whose limit of connections the server's refusal is about.
    limit: Option<String>,
    awaits: Party,
}

/// Whose turn it is to say something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Party {
    Client,
    Server,
    /// Another login, which is to give back its place.
    Others,
}

/// Everything of a [`LoggedIn`] but the client's own side.
struct Session {
    parameters: Vec<(String, String)>,
    reported: Parameters,
    lease: Option<Lease>,
    server: Option<Box<Server>>,
    cancel: Registration,
    places: Places,
}

/// What a session works on, once the client has been authenticated.
struct Footing {
    reported: Parameters,
    lease: Option<Lease>,
    server: Option<Box<Server>>,
    /// To be told to the client behind AuthenticationOk.
    notices: BytesMut,
}

/// Logs a client in. `None`: it is no session, has heard why if there was something to say, and is closed.
pub(crate) async fn login(shared: &Arc<Shared>, client: Stream) -> Option<LoggedIn> {
    let unfinished = shared.login_counts.begin();
    let peer = client.peer();
    let deadline = Instant::now() + shared.settings().login_timeout;
    let mut opening = Opening::new(shared, client);
    let wish = tokio::select! {
        // A client that says nothing hears nothing: it may be a port scanner.
        wish = timeout_at(deadline, opening.run()) => wish.unwrap_or(Err(End::Silent)),
        () = shared.shutdown.draining() => Err(Refusal::ShuttingDown.into()),
    };
    // Without a client, TLS has failed.
    let Opening { client: Some(client), input, .. } = opening else { return None };
    let mut login = Login {
        shared,
        client,
        input,
        caller: Caller::default(),
        why: None,
        limit: None,
        awaits: Party::Server,
    };
    let outcome = match wish {
        Err(end @ (End::Silent | End::Cancel { .. } | End::Refused(_))) => Err(end),
        wish => tokio::select! {
            outcome = login.run(wish, deadline) => outcome,
            () = shared.shutdown.draining() => Err(Refusal::ShuttingDown.into()),
        },
    };
    drop(unfinished);
    let Login { client, input: client_input, caller, why, .. } = login;
    let gate = shared.driver.name();
    match outcome {
        Ok(Session { parameters, reported, lease, server, cancel, places }) => {
            shared.login_counts.succeed();
            return Some(LoggedIn {
                client,
                client_input,
                parameters,
                reported,
                lease,
                server,
                cancel,
                places,
            });
        }
        Err(End::Silent) => {}
        // Has bounds of its own, and is as welcome as ever while the gate drains. Never answered: the
        // client waits for the end of the connection, and learns by it that the cancel has been passed on.
        Err(End::Cancel { process_id, secret }) => shared.cancel.cancel(process_id, &secret).await,
        Err(End::Visits(visitor)) => {
            Box::pin(console::serve(shared, client, client_input, visitor)).await;
        }
        // `run` has seen to it.
        Err(End::Knocks(_)) => {}
        Err(End::Answered(Said { blame, sqlstate, message })) => {
            shared.login_counts.fail();
            if blame == Blame::Credentials {
                note_failure(shared, peer);
            }
            shared.failed.note((gate, &caller, peer), (&sqlstate, &message));
            farewell(client, &[]).await;
        }
        Err(End::Refused(refusal)) => {
            shared.login_counts.refuse(refusal.cause());
            if refusal.cause() == Cause::Denied {
                note_failure(shared, peer);
            }
            let reason: &dyn Display = match (&refusal, &why) {
                (Refusal::Unreachable(error), _) => error,
                (Refusal::AuthQuery(why), _) => why,
                (Refusal::Password(_), Some(why)) => why,
                _ => &refusal,
            };
            shared.failed.note((gate, &caller, peer), (refusal.sqlstate(), reason));
            let mut out = BytesMut::new();
            refusal.write(&mut out);
            farewell(client, &out).await;
        }
    }
    None
}

/// An error of the server's, with a detail unless it has one.
fn with_detail(message: &Message, detail: &str) -> Vec<u8> {
    let mut error = message.bytes().to_vec();
    if parse_error(message.body()).get(b'D').is_none() && error.ends_with(&[0]) {
        error.pop();
        error.extend([b"D", detail.as_bytes(), &[0, 0]].concat());
        let length = u32::try_from(error.len() - 1).unwrap_or(u32::MAX);
        error[1..5].copy_from_slice(&length.to_be_bytes());
    }
    error
}

fn note_failure(shared: &Shared, peer: Peer) {
    shared.failures.note(Instant::now(), peer, shared.settings().auth.settings.failures_max);
}

/// Says the last words and closes, within a bound; a client that doesn't listen doesn't hear them.
async fn farewell(mut client: Stream, words: &[u8]) {
    let _ = timeout(FAREWELL_LIMIT, async {
        client.write_all(words).await?;
        client.shutdown().await
    })
    .await;
}

impl<'a> Login<'a> {
    async fn run(&mut self, wish: Result<Wish, End>, deadline: Instant) -> Result<Session, End> {
        let shared = self.shared;
        let settings = shared.settings();
        let auth = &settings.auth;
        match &wish {
            Ok(Wish { parameters, .. }) | Err(End::Knocks(parameters)) => {
                self.caller = Caller::by(parameters);
            }
            Err(_) => {}
        }
        let may_try = shared.failures.may_try(Instant::now(), self.client.peer(), auth.settings.failures_max);
        if !may_try {
            return Err(Refusal::TooManyFailures.into());
        }
        if let Err(End::Knocks(parameters)) = wish {
            let visit = Box::pin(self.visit(&parameters, deadline));
            return Err(visit.await.map_or_else(|end| end, End::Visits));
        }
        let Wish { parameters, key_length, client_place } = wish?;
        let credentials = match auth.settings.method {
            Method::Relay => None,
            _ => {
                let proof = Box::pin(self.prove(auth, user(&parameters)));
                let proved = timeout_at(deadline, proof).await;
                Some(Arc::new(proved.map_err(|_| self.late(&settings))??))
            }
        };
        let (budget, deadline) = if settings.shares_connections() || settings.observe {
            (None, deadline)
        } else {
            (Some(self.wait_for_connection().await?), Instant::now() + settings.login_timeout)
        };
        // Boxed, as is the proof: what a login needs later it doesn't hold while it waits for a client's
        // first words.
        let standing = Box::pin(self.stand(&settings, &parameters, credentials, deadline));
        let Footing { reported, lease, server, notices } = standing.await?;
        let user = user(&parameters);
        let database = parameter(&parameters, "database").unwrap_or(user);
        let member = shared.crowds.enter(user, database, settings.shares)?;
        let places = Places { _client: client_place, _budget: budget, _member: member };
        let cancels = &self.shared.cancel;
        let registered = match &server {
            Some(server) => cancels.register_with(server, key_length),
            None => cancels.register(key_length),
        };
        let Some(cancel) = registered else {
            server.into_iter().for_each(|server| server.close());
            return Err(Refusal::TooManyClients(settings.max_clients).into());
        };
        let greeted = timeout_at(deadline, self.greet(&reported, &cancel, &notices)).await;
        greeted.map_err(|_| End::from(Refusal::Timeout))??;
        Ok(Session { parameters, reported, lease, server, cancel, places })
    }

    /// Gives the session what it works on: a place in its pool, or a server connection of its own.
    /// `credentials` are what the gate logs in with; without them the client has to be authenticated, too,
    /// by relay.
    async fn stand(
        &mut self,
        settings: &Settings,
        parameters: &[(String, String)],
        credentials: Option<Arc<Credentials>>,
        deadline: Instant,
    ) -> Result<Footing, End> {
        let shared = self.shared;
        let shares = settings.shares_connections();
        let (pool, asked) = (key(parameters), growth::asked(parameters));
        let known = |credentials: &Option<Arc<Credentials>>| {
            let credentials = credentials.as_ref().filter(|_| shares)?;
            let (lease, reported) = shared.pools.join_known(&pool, &asked, credentials)?;
            Some(Footing { reported, lease: Some(lease), server: None, notices: BytesMut::new() })
        };
        if let Some(footing) = known(&credentials) {
            return Ok(footing);
        }
        // Held until the session stands: fresh connections that wait to join are bounded by it, too.
        let turn = timeout_at(deadline, self.wait_for_turn()).await;
        let _login_place = turn.map_err(|_| self.late(settings))??;
        // Logins that were before us in the line may have opened what we need.
        if let Some(footing) = known(&credentials) {
            return Ok(footing);
        }
        let accepted = match &credentials {
            None => timeout_at(deadline, self.relay(settings, parameters)).await,
            Some(credentials) => timeout_at(deadline, self.enter(settings, parameters, credentials)).await,
        };
        let Accepted { mut server, notices } = accepted.map_err(|_| self.late(settings))??;
        server.generation = settings.generation;
        server.enrolled = Some(shared.ceiling.ours.enroll(server.process_id));
        shared.spoken.learn(&server.parameters);
        if settings.ask_cores && shared.cores.is_first_to_ask() {
            self.ask_cores(&mut server, deadline).await?;
        }
        let is_known = !shares || shared.pools.knows_limits(&pool);
        let limit = deadline.saturating_duration_since(Instant::now());
        let asking = shared.ask_room(settings, &mut server, is_known, limit);
        asking.await.map_err(|_| Refusal::ServerLost)?;
        let reported = server.parameters.clone();
        if !shares {
            return Ok(Footing { reported, lease: None, server: Some(Box::new(server)), notices });
        }
        if settings.ask_defaults {
            let given = defaults::ask(&mut server, limit).await.map_err(|_| Refusal::ServerLost)?;
            server.defaults = given.defaults;
            settings.health.started(settings.named(), given.started);
        }
        let has_asked = server.limits.is_some();
        let lease = shared.pools.join(pool, server, deadline).await?;
        if has_asked {
            // The limits of its role and database count now that the pool is there.
            shared.apply_bounds();
        }
        if let Some(credentials) = credentials {
            lease.remember(credentials, asked.0, reported.clone());
        }
        Ok(Footing { reported, lease: Some(lease), server: None, notices })
    }

    /// Opens a server connection in the client's name. What the server has against it the client hears.
    async fn enter(
        &mut self,
        settings: &Settings,
        parameters: &[(String, String)],
        credentials: &Credentials,
    ) -> Result<Accepted, End> {
        let user = user(parameters);
        let error = match open::open(settings, parameters, user, credentials).await {
            Ok(accepted) => return Ok(accepted),
            Err(error) => error,
        };
        if let OpenError::Said(message) = &error {
            self.note_refused(message, parameters);
        }
        if error.is_about_credentials() {
            self.why =
                Some(format!("the server refused the gate's login for a user that the gate knows: {error}"));
        }
        match error {
            OpenError::Refused(refusal) => Err(refusal.into()),
            OpenError::Said(message) => self.pass_on_error(&message).await,
            // What the server would say at the end of the exchange.
            OpenError::OtherSecret => Err(Refusal::Password(user.to_owned()).into()),
        }
    }

    /// The server has refused the login: perhaps it has no connection left.
    fn note_refused(&mut self, message: &Message, parameters: &[(String, String)]) {
        let key = key(parameters);
        self.limit = self.shared.words_for(message);
        self.shared.note_refused(message, key.user(), key.database());
    }

    /// Session mode: waits for a server connection of the budget, as long as the client does.
    async fn wait_for_connection(&mut self) -> Result<OwnedSemaphorePermit, End> {
        let settings = self.shared.settings();
        let (connections, queue_timeout) = (self.shared.connections(&settings), settings.queue_timeout);
        let permit = timeout(queue_timeout, self.shared.budget.take());
        tokio::select! {
            biased;
            permit = permit => match permit {
                Ok(permit) => Ok(permit),
                Err(_) => Err(Refusal::NoConnection { connections, waited: queue_timeout }.into()),
            },
            () = gone(&mut self.client, &mut self.input) => Err(End::Silent),
        }
    }

    /// Waits for a place among the logins, as long as the client does: a server process isn't to be started
    /// for one that has given up, least of all in a storm of retries.
    async fn wait_for_turn(&mut self) -> Result<Turn, End> {
        let source = self.client.peer().into();
        self.awaits = Party::Others;
        let turn = tokio::select! {
            biased;
            turn = self.shared.logins.take(source) => turn,
            () = gone(&mut self.client, &mut self.input) => return Err(End::Silent),
        };
        self.awaits = Party::Server;
        Ok(turn)
    }

    /// The login has taken too long.
    fn late(&self, settings: &Settings) -> End {
        let limit = settings.login_timeout;
        End::from(match self.awaits {
            Party::Client => Refusal::Timeout,
            Party::Server => Refusal::ServerSilent(limit),
            Party::Others => Refusal::NoTurn(limit),
        })
    }

    pub(super) async fn password_message(&mut self) -> Result<Message, End> {
        self.awaits = Party::Client;
        let message = Message::read(&mut self.client, &mut self.input, Sender::Client).await;
        self.awaits = Party::Server;
        match message {
            Ok(message) if message.tag() == b'p' => Ok(message),
            Ok(message) if message.tag() == b'X' => Err(End::Silent),
            Ok(message) => Err(Refusal::NoAnswer(message.tag()).into()),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Err(Refusal::NoAnswer(self.input.first().copied().unwrap_or_default()).into())
            }
            Err(_) => Err(End::Silent),
        }
    }

    pub(super) async fn pass_on_error<T>(&mut self, message: &Message) -> Result<T, End> {
        let words = self.limit.take();
        match &words {
            Some(words) => self.send(&with_detail(message, words)).await?,
            None => self.send(message.bytes()).await?,
        }
        let is_about_credentials = open::is_about_credentials(message);
        let fields = parse_error(message.body());
        let words = words.map_or(String::new(), |words| format!(". {words}"));
        Err(End::Answered(Said {
            blame: if is_about_credentials { Blame::Credentials } else { Blame::Other },
            sqlstate: fields.code().to_owned(),
            message: String::from_utf8_lossy(fields.message()).into_owned() + &words,
        }))
    }

    /// Asks the server for its cores over a fresh connection. Only the loss of that connection ends the
    /// login.
    async fn ask_cores(&self, server: &mut Server, deadline: Instant) -> Result<(), End> {
        let limit = deadline.saturating_duration_since(Instant::now());
        match cores::ask(server, limit).await {
            // As many long requests as cores keep every core busy; more only slow one another.
            Ok(Some(cores)) => self.shared.learn_cores(cores),
            Ok(None) => {}
            Err(error) if error.leaves_connection_usable() => {}
            Err(_) => return Err(Refusal::ServerLost.into()),
        }
        Ok(())
    }

    /// Tells the client that it is in.
    async fn greet(
        &mut self,
        reported: &Parameters,
        cancel: &Registration,
        notices: &[u8],
    ) -> Result<(), End> {
        let mut out = BytesMut::with_capacity(1024);
        write_authentication_ok(&mut out);
        for (name, value) in reported.iter() {
            write_parameter_status(&mut out, name, value);
        }
        let (process_id, secret) = cancel.key();
        write_backend_key(&mut out, process_id, secret);
        out.extend_from_slice(notices);
        write_ready(&mut out, Status::Idle);
        self.send(&out).await
    }

    /// Writes to the client; one that is gone needs no more words.
    async fn send(&mut self, bytes: &[u8]) -> Result<(), End> {
        self.client.send(bytes).await.map_err(|_| End::Silent)
    }
}

/// Waits until a client that isn't expected to speak is gone, or floods us. What it says is kept.
async fn gone(client: &mut Stream, input: &mut BytesMut) {
    while input.len() <= MESSAGE_MAX && client.read_buf(input).await.is_ok_and(|count| count > 0) {}
}

#[cfg(test)]
mod tests;
