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
//! Nothing secret is stored or logged: the gate forwards what it can't read. The price is a server connection per login,
//! so logins have a bound of their own, `logins_max`, beside `connections`. AuthenticationOk is held back until the
//! connection has joined, so that "all connections are held by others" can still be the answer to a login.
//!
//! Where it can't work: methods bound to the server's connection (GSS, SSPI, channel binding), and servers that trust
//! the gate's address: those would trust everybody who reaches the gate ([`probe_trust`]).

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, SemaphorePermit};
use tokio::time::{Instant, timeout, timeout_at};
use wire::postgres::backend::{
    Authentication, Status, parse_authentication, parse_backend_key, write_authentication_ok,
    write_backend_key, write_parameter_status, write_ready,
};
use wire::postgres::startup::{
    OPTION_PREFIX, PROTOCOL_3_0, Startup, parameter, parse, protocol_options,
    write_negotiate_protocol_version, write_startup,
};

use super::cancel::Registration;
use super::message::{MESSAGE_MAX, Message, Sender};
use super::parameters::Parameters;
use super::refusal::Refusal;
use super::server::{Greeting, Server};
use super::{LoggedIn, Places, Settings, Shared, StartError, cores};
use crate::stream::{Peer, Stream};
use crate::upstream::pool::{Lease, key};

/// The longest that the last words to a client may take: it may not be reading.
const FAREWELL_LIMIT: Duration = Duration::from_secs(5);
/// The most bytes of notices that are kept for the end of a login; more are lost.
const NOTICES_MAX: usize = 64 * 1024;
/// The user of the trust probe. It needn't exist: servers authenticate before they look a role up.
const PROBE_USER: &str = "gatekeeper_probe";

/// How a connection ended before it became a session.
enum End {
    /// Nothing to say: the client is gone, or never was one.
    Silent,
    /// The client only came to cancel another one's statement.
    Cancel {
        process_id: i32,
        secret: Bytes,
    },
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

/// A login that the server has accepted, but the client hasn't heard of.
struct Accepted {
    server: Server,
    /// To be told to the client behind AuthenticationOk.
    notices: BytesMut,
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
        Err(End::Answered) => {
            shared.login_counts.fail();
            farewell(client, &[]).await;
        }
        Err(End::Refused(refusal)) => {
            shared.login_counts.refuse(&refusal);
            let gate = &shared.settings.name;
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
        let shared: &'a Shared = self.shared;
        let settings = &shared.settings;
        let deadline = Instant::now() + settings.login_timeout;
        // A client that says nothing hears nothing: it may be a port scanner.
        let Wish { parameters, client_place } =
            timeout_at(deadline, self.open()).await.unwrap_or(Err(End::Silent))?;
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
            timeout_at(deadline, self.authenticate(&parameters)).await.map_err(late)??;
        if !self.shared.asked_cores.swap(true, Ordering::Relaxed) {
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
        let settings = &self.shared.settings;
        let max_clients = settings.max_clients;
        let place = Arc::clone(&self.shared.clients).try_acquire_owned();
        let client_place = place.map_err(|_| Refusal::TooManyClients(max_clients))?;
        let options = protocol_options(&parameters);
        if minor > 0 || !options.is_empty() {
            let mut out = BytesMut::new();
            write_negotiate_protocol_version(&mut out, PROTOCOL_3_0, &options);
            self.send(&out).await?;
        }
        parameters.retain(|(name, _)| !name.starts_with(OPTION_PREFIX));
        if settings.shares_connections() && parameter(&parameters, "replication").is_some_and(is_replication)
        {
            return Err(Refusal::Replication.into());
        }
        Ok(Wish { parameters, client_place })
    }

    /// Session mode: waits for a server connection of the budget, as long as the client does.
    async fn wait_for_connection(&mut self) -> Result<OwnedSemaphorePermit, End> {
        let Settings { connections, queue_timeout, .. } = self.shared.settings;
        let permit = timeout(queue_timeout, Arc::clone(&self.shared.budget).acquire_owned());
        tokio::select! {
            biased;
            permit = permit => match permit {
                Ok(Ok(permit)) => Ok(permit),
                _ => Err(Refusal::NoConnection { connections, waited: queue_timeout }.into()),
            },
            () = gone(&mut self.client, &mut self.input) => Err(End::Silent),
        }
    }

    /// Waits for a place among the logins, as long as the client does: a server process isn't to be started for one
    /// that has given up, least of all in a storm of retries.
    async fn wait_for_turn(&mut self) -> Result<SemaphorePermit<'a>, End> {
        let shared: &'a Shared = self.shared;
        tokio::select! {
            biased;
            // Nobody closes the semaphore.
            place = shared.logins.acquire() => place.map_err(|_| Refusal::ShuttingDown.into()),
            () = gone(&mut self.client, &mut self.input) => Err(End::Silent),
        }
    }

    /// Opens a fresh server connection and passes the authentication through, both ways.
    async fn authenticate(&mut self, parameters: &[(String, String)]) -> Result<Accepted, End> {
        let mut relay = Relay::open(&self.shared.settings, parameters).await?;
        let mut was_challenged = false;
        loop {
            let message = relay.next().await?;
            match message.tag() {
                b'R' => {}
                b'E' => return self.pass_on_error(&message).await,
                _ => continue,
            }
            match parse_authentication(message.body()).map_err(|_| Refusal::ServerErred)? {
                Authentication::Ok => break,
                // No answer is expected; AuthenticationOk follows.
                Authentication::SaslFinal(_) => self.send(message.bytes()).await?,
                challenge => {
                    if let Some(method) = unrelayable(&challenge) {
                        return Err(Refusal::Method(method).into());
                    }
                    was_challenged = true;
                    self.send(message.bytes()).await?;
                    let answer = self.password_message().await?;
                    relay.stream.write_all(answer.bytes()).await.map_err(|_| Refusal::ServerLost)?;
                }
            }
        }
        if !was_challenged && !may_relay_trust(&self.shared.settings, self.client.peer()) {
            return Err(Refusal::TrustRelay.into());
        }
        loop {
            let message = relay.next().await?;
            match message.tag() {
                b'E' => return self.pass_on_error(&message).await,
                b'Z' => return Ok(relay.accepted()),
                _ => {}
            }
        }
    }

    async fn password_message(&mut self) -> Result<Message, End> {
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

    async fn pass_on_error<T>(&mut self, message: &Message) -> Result<T, End> {
        self.send(message.bytes()).await?;
        Err(End::Answered)
    }

    /// Asks the server for its cores over a fresh connection. Only the loss of that connection ends the login.
    async fn ask_cores(&self, server: &mut Server, deadline: Instant) -> Result<(), End> {
        let limit = deadline.saturating_duration_since(Instant::now());
        match cores::ask(server, limit).await {
            // As many long requests as cores keep every core busy; more only slow one another.
            Ok(Some(cores)) => self.shared.driver.update_policy(|policy| policy.long_limit = Some(cores)),
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
        self.client.write_all(bytes).await.map_err(|_| End::Silent)
    }
}

/// Waits until a client that isn't expected to speak is gone, or floods us. What it says is kept.
async fn gone(client: &mut Stream, input: &mut BytesMut) {
    while input.len() <= MESSAGE_MAX && client.read_buf(input).await.is_ok_and(|count| count > 0) {}
}

/// The server's side of a login.
struct Relay {
    stream: Stream,
    input: BytesMut,
    greeting: Greeting,
    notices: BytesMut,
}

impl Relay {
    async fn open(settings: &Settings, parameters: &[(String, String)]) -> Result<Self, End> {
        let connected = settings.upstream.connect(settings.connect_timeout, &settings.keepalive).await;
        let mut stream = connected.map_err(Refusal::Unreachable)?;
        let mut out = BytesMut::new();
        write_startup(&mut out, parameters);
        stream.write_all(&out).await.map_err(|_| Refusal::ServerLost)?;
        let (input, notices) = (BytesMut::with_capacity(1024), BytesMut::new());
        Ok(Self { stream, input, greeting: Greeting::default(), notices })
    }

    /// The server's next message that isn't just to be noted: what it reports about itself is, and notices are kept
    /// until the client can understand them (some take none before AuthenticationOk).
    async fn next(&mut self) -> Result<Message, End> {
        loop {
            let message = Message::read(&mut self.stream, &mut self.input, Sender::Server).await;
            let message = message.map_err(|error| match error.kind() {
                io::ErrorKind::InvalidData => Refusal::ServerErred,
                _ => Refusal::ServerLost,
            })?;
            match message.tag() {
                b'S' => self.greeting.note_parameter(message.body()),
                b'K' => {
                    let (process_id, secret) =
                        parse_backend_key(message.body()).map_err(|_| Refusal::ServerErred)?;
                    self.greeting.process_id = process_id;
                    self.greeting.secret = Bytes::copy_from_slice(secret);
                }
                b'N' if self.notices.len() + message.bytes().len() <= NOTICES_MAX => {
                    self.notices.extend_from_slice(message.bytes());
                }
                // A version was never asked for; it says which one it speaks.
                b'N' | b'v' => {}
                b'R' | b'E' | b'Z' => return Ok(message),
                _ => return Err(Refusal::ServerErred.into()),
            }
        }
    }

    fn accepted(self) -> Accepted {
        let Self { stream, input, greeting, notices } = self;
        Accepted { server: Server::new(stream, input, greeting), notices }
    }
}

/// The name of a method that can't be relayed.
fn unrelayable(challenge: &Authentication<'_>) -> Option<&'static str> {
    match challenge {
        Authentication::Gss | Authentication::GssContinue(_) => Some("GSSAPI"),
        Authentication::Sspi => Some("SSPI"),
        Authentication::Sasl { mechanisms } if mechanisms.iter().all(|name| name.ends_with("-PLUS")) => {
            Some("SCRAM-SHA-256-PLUS")
        }
        Authentication::Other(_) => Some("an unknown method of"),
        _ => None,
    }
}

/// Whether a client may come in that the server asked for nothing.
fn may_relay_trust(settings: &Settings, peer: Peer) -> bool {
    settings.allow_trust_relay || peer.is_loopback()
}

/// Whether the start-up parameter `replication` asks for a replication connection: the server takes the spellings of
/// a boolean, and `database`.
fn is_replication(value: &str) -> bool {
    !matches!(value.to_ascii_lowercase().as_str(), "false" | "off" | "no" | "0" | "f" | "n")
}

/// Finds out, before the first client is served, whether the server would let everybody in who reaches the gate.
///
/// A made-up user logs in. PostgreSQL authenticates before it looks a role up, so that the first answer tells whether
/// it asks for anything. A server that can't be asked is no reason not to start: each login is checked again.
///
/// # Errors
/// [`StartError::TrustRelay`].
pub(crate) async fn probe_trust(settings: &Settings) -> Result<(), StartError> {
    if settings.allow_trust_relay || settings.listen.is_loopback() {
        return Ok(());
    }
    let gate = &settings.name;
    match timeout(settings.login_timeout, is_trusting(settings)).await {
        Ok(Ok(true)) => Err(StartError::TrustRelay {
            upstream: settings.upstream.clone(),
            listen: settings.listen.clone(),
        }),
        Ok(Ok(false)) => Ok(()),
        Ok(Err(End::Refused(reason))) => {
            tracing::warn!(gate, %reason, "could not probe how the server authenticates; each login is checked");
            Ok(())
        }
        Ok(Err(_)) | Err(_) => {
            tracing::warn!(
                gate,
                "the server did not tell in time how it authenticates; each login is checked"
            );
            Ok(())
        }
    }
}

async fn is_trusting(settings: &Settings) -> Result<bool, End> {
    let parameters = ["user", "database"].map(|name| (name.to_owned(), PROBE_USER.to_owned()));
    let message = Relay::open(settings, &parameters).await?.next().await?;
    let is_ok = matches!(parse_authentication(message.body()), Ok(Authentication::Ok));
    Ok(message.tag() == b'R' && is_ok)
}

#[cfg(test)]
mod tests;
