//! From an accepted socket to a session: the server itself authenticates every login.
//!
//! ```text
//! client                gate                                   server
//!   │ StartupMessage ───►│ wait for a place among the logins     │
//!   │                    │ fresh connection, StartupMessage ────►│
//!   │◄───────── SASL, md5, password: unchanged, both ways ──────►│
//!   │                    │◄─ AuthenticationOk … ReadyForQuery ───│
//!   │                    │ the connection joins its pool         │
//!   │◄─ AuthenticationOk, settings, a key of our own, ReadyForQuery
//! ```
//!
//! Logins that take a server connection have a bound of their own, `logins_max`, beside `connections`. AuthenticationOk
//! is held back until the connection has joined, so that "all connections are held by others" can still be the answer to
//! a login.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout, timeout_at};
use wire::postgres::backend::{
    Status, write_authentication_ok, write_backend_key, write_parameter_status, write_ready,
};
use wire::postgres::startup::{
    OPTION_PREFIX, PROTOCOL_3_0, Startup, parameter, parse, protocol_options,
    write_negotiate_protocol_version,
};

use super::cancel::Registration;
use super::console::{self, Visitor};
use super::message::{MESSAGE_MAX, Message, Sender};
use super::parameters::Parameters;
use super::refusal::Refusal;
use super::server::Server;
use super::{LoggedIn, Places, Settings, Shared, cores};
use crate::stream::Stream;
use crate::upstream::pool::{Lease, key};
use handshake::Accepted;
pub(crate) use relay::probe_trust;

mod handshake;
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
    Answered,
    Refused(Refusal),
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
}

/// What a client asks for when it wants a session.
struct Wish {
    /// Without `_pq_.` options.
    parameters: Vec<(String, String)>,
    client_place: OwnedSemaphorePermit,
}

/// Everything of a [`LoggedIn`] but the client's own side.
struct Session {
    parameters: Vec<(String, String)>,
    reported: Parameters,
    lease: Option<Lease>,
    server: Option<Server>,
    cancel: Registration,
    places: Places,
}

/// Logs a client in. `None`: it is no session, has heard why if there was something to say, and is closed.
pub(crate) async fn login(shared: &Arc<Shared>, client: Stream) -> Option<LoggedIn> {
    let mut login = Login { shared, client, input: BytesMut::with_capacity(1024) };
    let outcome = tokio::select! {
        outcome = login.run() => outcome,
        () = shared.shutdown.draining() => Err(Refusal::ShuttingDown.into()),
    };
    let Login { client, input: client_input, .. } = login;
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
        // Has bounds of its own, and is as welcome as ever while the gate drains. Never answered: the client waits for
        // the end of the connection, and learns by it that the cancel has been passed on.
        Err(End::Cancel { process_id, secret }) => shared.cancel.cancel(process_id, &secret).await,
        Err(End::Visits(visitor)) => console::serve(shared, client, client_input, visitor).await,
        // `run` has seen to it.
        Err(End::Knocks(_)) => {}
        Err(End::Answered) => {
            shared.login_counts.fail();
            farewell(client, &[]).await;
        }
        Err(End::Refused(refusal)) => {
            shared.login_counts.refuse(&refusal);
            let gate = shared.driver.name();
            match &refusal {
                Refusal::Unreachable(error) => tracing::warn!(gate, %error, "login refused"),
                refusal => tracing::info!(gate, reason = %refusal, "login refused"),
            }
            let mut out = BytesMut::new();
            refusal.write(&mut out);
            farewell(client, &out).await;
        }
    }
    None
}

/// Says the last words and closes, within a bound; who doesn't listen doesn't hear them.
async fn farewell(mut client: Stream, words: &[u8]) {
    let _ = timeout(FAREWELL_LIMIT, async {
        client.write_all(words).await?;
        client.shutdown().await
    })
    .await;
}

impl<'a> Login<'a> {
    async fn run(&mut self) -> Result<Session, End> {
        let shared = self.shared;
        let settings = shared.settings();
        let deadline = Instant::now() + settings.login_timeout;
        // A client that says nothing hears nothing: it may be a port scanner.
        let opened = timeout_at(deadline, self.open()).await.unwrap_or(Err(End::Silent));
        if let Err(End::Knocks(parameters)) = opened {
            return Err(self
                .visit(&settings, &parameters, deadline)
                .await
                .map_or_else(|end| end, End::Visits));
        }
        let Wish { parameters, client_place } = opened?;
        let (budget, deadline) = if settings.shares_connections() || settings.observe {
            (None, deadline)
        } else {
            (Some(self.wait_for_connection().await?), Instant::now() + settings.login_timeout)
        };
        let places = Places { _client: client_place, _budget: budget };
        let late = |_| End::from(Refusal::Timeout);
        // Held until the session stands: fresh connections that wait to join are bounded by it, too.
        let _login_place = timeout_at(deadline, self.wait_for_turn()).await.map_err(late)??;
        let Accepted { mut server, notices } =
            timeout_at(deadline, self.relay(&settings, &parameters)).await.map_err(late)??;
        server.generation = settings.generation;
        if settings.ask_cores && shared.cores.is_first_to_ask() {
            self.ask_cores(&mut server, deadline).await?;
        }
        let reported = server.parameters.clone();
        let Some(cancel) = self.shared.cancel.register() else {
            server.close();
            return Err(Refusal::TooManyClients(settings.max_clients).into());
        };
        let (lease, server) = if settings.shares_connections() {
            (Some(self.shared.pools.join(key(&parameters), server, deadline).await?), None)
        } else {
            (None, Some(server))
        };
        timeout_at(deadline, self.greet(&reported, &cancel, &notices)).await.map_err(late)??;
        Ok(Session { parameters, reported, lease, server, cancel, places })
    }

    /// Reads first packets until one asks for a session.
    async fn open(&mut self) -> Result<Wish, End> {
        let (mut ssl_asked, mut gss_asked) = (false, false);
        loop {
            match self.first_packet().await? {
                Startup::Ssl if !ssl_asked => ssl_asked = true,
                Startup::GssEncryption if !gss_asked => gss_asked = true,
                // Asking twice is no client's way.
                Startup::Ssl | Startup::GssEncryption => return Err(End::Silent),
                Startup::Cancel { process_id, secret } => {
                    return Err(End::Cancel { process_id, secret });
                }
                Startup::Session { minor, parameters } => return self.wish(minor, parameters).await,
            }
            // What came behind the request, before our answer, was not meant for a connection in the clear: somebody
            // in the middle may have put it there (CVE-2021-23214).
            if !self.input.is_empty() {
                return Err(End::Silent);
            }
            self.send(b"N").await?;
        }
    }

    async fn first_packet(&mut self) -> Result<Startup, End> {
        loop {
            match parse(&self.input) {
                Ok(Some((startup, length))) => {
                    let _ = self.input.split_to(length);
                    return Ok(startup);
                }
                Ok(None) => {}
                Err(error) if error.is_silent() => return Err(End::Silent),
                Err(error) => return Err(Refusal::Startup(error).into()),
            }
            match self.client.read_buf(&mut self.input).await {
                Ok(0) | Err(_) => return Err(End::Silent),
                Ok(_) => {}
            }
        }
    }

    async fn wish(&mut self, minor: u16, mut parameters: Vec<(String, String)>) -> Result<Wish, End> {
        let settings = self.shared.settings();
        // Visitors of the console aren't clients: a full gate lets its operator in.
        let knocks = settings.console.is_asked_for(parameter(&parameters, "database"));
        let place = if knocks { None } else { self.shared.clients.try_take() };
        if place.is_none() && !knocks {
            return Err(Refusal::TooManyClients(settings.max_clients).into());
        }
        let options = protocol_options(&parameters);
        if minor > 0 || !options.is_empty() {
            let mut out = BytesMut::new();
            write_negotiate_protocol_version(&mut out, PROTOCOL_3_0, &options);
            self.send(&out).await?;
        }
        parameters.retain(|(name, _)| !name.starts_with(OPTION_PREFIX));
        let Some(client_place) = place else { return Err(End::Knocks(parameters)) };
        if settings.shares_connections() && parameter(&parameters, "replication").is_some_and(is_replication)
        {
            return Err(Refusal::Replication.into());
        }
        Ok(Wish { parameters, client_place })
    }

    /// Session mode: waits for a server connection of the budget, as long as the client does.
    async fn wait_for_connection(&mut self) -> Result<OwnedSemaphorePermit, End> {
        let settings = self.shared.settings();
        let Settings { connections, queue_timeout, .. } = *settings;
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

    /// Waits for a place among the logins, as long as the client does: a server process isn't to be started for one
    /// that has given up, least of all in a storm of retries.
    async fn wait_for_turn(&mut self) -> Result<OwnedSemaphorePermit, End> {
        tokio::select! {
            biased;
            place = self.shared.logins.take() => Ok(place),
            () = gone(&mut self.client, &mut self.input) => Err(End::Silent),
        }
    }

    pub(super) async fn password_message(&mut self) -> Result<Message, End> {
        match Message::read(&mut self.client, &mut self.input, Sender::Client).await {
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
        self.send(message.bytes()).await?;
        Err(End::Answered)
    }

    /// Asks the server for its cores over a fresh connection. Only the loss of that connection ends the login.
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
        write_backend_key(&mut out, process_id, &secret);
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

/// Whether the start-up parameter `replication` asks for a replication connection: the server takes the spellings of
/// a boolean, and `database`.
fn is_replication(value: &str) -> bool {
    !matches!(value.to_ascii_lowercase().as_str(), "false" | "off" | "no" | "0" | "f" | "n")
}

#[cfg(test)]
mod tests;
