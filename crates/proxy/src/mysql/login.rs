//! A client's login: the gate asks for the proof itself, because a server of MySQL speaks first.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::BytesMut;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use wire::mysql::ProtocolError;
use wire::mysql::answer::{self, OkPacket, write_ok};
use wire::mysql::capabilities::{Capabilities, Status};
use wire::mysql::codec::Sequence;
use wire::mysql::handshake::{
    First, Handshake, MAX_RESPONSE, Response, attributes, parse_first, write_handshake,
};

use super::auth_query;
use super::channel::{Channel, Lost};
use super::greeting::Known;
use super::proof::{authenticate, scramble};
use super::reject::Refusal;
use super::roster::{Registration, Who};
use super::server::{self, IGNORE_SPACE};
use super::users::Credential;
use super::{Settings, Shared};
use crate::console::Role;
use crate::sql::logins::{Caller, Cause};
use crate::stream::{Peer, Stream};
use crate::tls::DownstreamMode;

/// Every column flag (`CLIENT_LONG_FLAG`).
const LONG_FLAG: Capabilities = Capabilities(1 << 2);
/// What changes the layout of packets or the meaning of answers: both sides must have the same of these.
const LAYOUT: Capabilities = Capabilities(
    LONG_FLAG.0
        | IGNORE_SPACE.0
        | Capabilities::MYSQL.0
        | Capabilities::FOUND_ROWS.0
        | Capabilities::LOCAL_FILES.0
        | Capabilities::TRANSACTIONS.0
        | Capabilities::MULTI_STATEMENTS.0
        | Capabilities::MULTI_RESULTS.0
        | Capabilities::PS_MULTI_RESULTS.0
        | Capabilities::DEPRECATE_EOF.0
        | Capabilities::BULK_OPERATIONS.0
        | Capabilities::EXTENDED_METADATA.0,
);
/// What clients may have, if the server has it.
const OFFERED: Capabilities = Capabilities(
    LAYOUT.0
        | Capabilities::CONNECT_WITH_DB.0
        | Capabilities::PROTOCOL_41.0
        | Capabilities::SECURE_CONNECTION.0
        | Capabilities::PLUGIN_AUTH.0
        | Capabilities::CONNECT_ATTRS.0
        | Capabilities::PLUGIN_AUTH_LENENC.0,
);
const _: () = assert!(OFFERED.0 & Capabilities::NOT_FOLLOWED.0 == 0);

/// The longest name of an application that is kept, in bytes.
const APPLICATION_BYTES_MAX: usize = 256;

/// A client that has proved who it is.
pub(super) struct LoggedIn {
    pub(super) client: Channel,
    pub(super) peer: Peer,
    pub(super) capabilities: Capabilities,
    pub(super) key: server::Key,
    pub(super) credential: Credential,
    pub(super) database: Vec<u8>,
    pub(super) application: Vec<u8>,
    /// What the client made its proof for.
    pub(super) scramble: Vec<u8>,
    /// The number of the answer that ends the login.
    pub(super) next: Sequence,
    pub(super) place: Registration,
}

/// What a login became: a client of the gate, or a visitor of the console.
pub(super) enum Entered {
    Client(Box<LoggedIn>),
    Visitor(Box<Visitor>),
}

/// What a greeting has told.
pub(super) struct Greeted {
    /// The session's id.
    pub(super) id: u32,
    pub(super) version: String,
}

/// A user at the console.
pub(super) struct Visitor {
    pub(super) client: Channel,
    pub(super) capabilities: Capabilities,
    pub(super) greeted: Greeted,
    pub(super) user: String,
    pub(super) role: Role,
    /// The number of the answer that ends the login.
    pub(super) next: Sequence,
    /// The place among the visitors.
    pub(super) _place: OwnedSemaphorePermit,
}

/// A client's answer to the greeting.
struct Login<'a> {
    greeted: Greeted,
    /// What the proof is for.
    scramble: Vec<u8>,
    capabilities: Capabilities,
    response: Response<'a>,
    /// The number of the gate's next message.
    next: Sequence,
}

/// How a connection ended before it became a session.
enum End {
    /// Nothing to say: the client is gone, has no room, or breaks the protocol.
    Silent(Lost),
    /// The client is to be told why.
    Refused(Box<Refused>),
}

/// A client that is let in no further.
struct Refused {
    client: Channel,
    /// The number of the refusal.
    sequence: Sequence,
    refusal: Refusal,
    cause: Cause,
    /// For the log.
    why: Cow<'static, str>,
}

impl From<Lost> for End {
    fn from(lost: Lost) -> Self {
        Self::Silent(lost)
    }
}

impl From<ProtocolError> for End {
    fn from(error: ProtocolError) -> Self {
        Self::Silent(error.into())
    }
}

/// A client that logs in.
struct Newcomer<'a> {
    shared: &'a Shared,
    peer: Peer,
    /// For the log.
    caller: Caller,
}

/// Greets a client and has it prove who it is. A client that says nothing holds a socket, but no place among
/// the clients. `None`: it has been told why not, or has gone.
pub(super) async fn login(shared: &Shared, stream: Stream) -> Option<Entered> {
    let unfinished = shared.login_counts.begin();
    let mut login = Newcomer { shared, peer: stream.peer(), caller: Caller::default() };
    let limit = shared.settings().login_timeout;
    let outcome = tokio::select! {
        outcome = timeout(limit, login.run(stream)) => outcome,
        // Nothing was asked for yet.
        () = shared.shutdown.draining() => return None,
    };
    drop(unfinished);
    let Newcomer { peer, caller, .. } = login;
    match outcome {
        Ok(Ok(entered)) => return Some(entered),
        Ok(Err(End::Silent(error))) => tracing::debug!(%error, "a login ended"),
        Ok(Err(End::Refused(refused))) => {
            let Refused { mut client, sequence, refusal, cause, why } = *refused;
            // Counted and logged before the client hears: it may look at once.
            shared.login_counts.refuse(cause);
            shared.tell_failed((&caller, peer), &refusal, &why);
            refusal.write(&mut client.output, sequence);
            // A client that takes nothing is told nothing.
            let _ = timeout(limit, client.flush()).await;
        }
        Err(_) => shared.login_counts.refuse(Cause::Late),
    }
    None
}

impl Newcomer<'_> {
    async fn run(&mut self, stream: Stream) -> Result<Entered, End> {
        let Self { shared, peer, .. } = *self;
        let settings = shared.settings();
        let client = Channel::of_client(stream);
        // In the place of a greeting.
        let first = Sequence(0);
        if !shared.may_try(peer) {
            let refusal = Refusal::too_many_failures();
            return Err(refuse((client, first), refusal, Cause::Limited, None));
        }
        // Visitors of the console aren't clients: a full gate lets its operator in, also while the server is
        // down.
        let has_console = settings.console.is_there();
        if shared.sessions.is_full(settings.max_clients) && !has_console {
            return Err(refuse((client, first), Refusal::too_many_clients(), Cause::Full, None));
        }
        let (known, lack) = match shared.known().await {
            Ok(known) => (known, None),
            Err(failed) if has_console => (Arc::new(Known::nothing()), Some(failed.into_refusal())),
            Err(failed) => {
                return Err(refuse((client, first), failed.into_refusal(), Cause::Other, None));
            }
        };
        self.handshake(&settings, client, (&known, lack)).await
    }

    async fn handshake(
        &mut self,
        settings: &Settings,
        mut client: Channel,
        (known, lack): (&Known, Option<Refusal>),
    ) -> Result<Entered, End> {
        let tls = settings.tls.as_ref().filter(|_| matches!(client.stream, Stream::Tcp(_)));
        let mut offered = OFFERED & known.capabilities;
        if tls.is_some() {
            offered = offered | Capabilities::SSL;
        }
        let (id, scramble) = (self.shared.sessions.next_id(), scramble());
        let greeting = Handshake {
            version: &known.version,
            connection: id,
            scramble: scramble.clone(),
            capabilities: offered,
            collation: known.collation,
            status: Status::AUTOCOMMIT,
            plugin: known.plugin.as_bytes(),
        };
        write_handshake(&mut client.output, Sequence(0), &greeting);
        client.flush().await?;
        let mut message = client.first_message(MAX_RESPONSE, Sequence(1)).await?;
        if let (First::Tls { .. }, Some(acceptor)) = (parse_first(&message.payload)?, tls) {
            let Stream::Tcp(socket) = client.stream else { return Err(Lost::Closed.into()) };
            // Nothing behind the request was read: it belongs to TLS.
            client = Channel::of_client(acceptor.accept(socket).await.map_err(Lost::from)?);
            message = client.client_message(MAX_RESPONSE, message.next).await?;
        } else if tls.is_some_and(|acceptor| acceptor.mode() != DownstreamMode::Prefer) {
            let refusal = Refusal::tls_is_required();
            return Err(refuse((client, message.next), refusal, Cause::Other, None));
        }
        let First::Response(response) = parse_first(&message.payload)? else {
            return Err(Lost::Closed.into());
        };
        if let Some(refusal) = lack.filter(|_| !self.knocks(&response)) {
            return Err(refuse((client, message.next), refusal, Cause::Other, None));
        }
        let capabilities = response.capabilities & offered;
        let greeted = Greeted { id, version: String::from_utf8_lossy(&known.version).into_owned() };
        let login = Login { greeted, scramble, capabilities, response, next: message.next };
        self.enter(settings, client, login).await
    }

    /// Whether a client asks for the console.
    fn knocks(&self, response: &Response<'_>) -> bool {
        let database = response.database.and_then(|name| std::str::from_utf8(name).ok());
        self.shared.settings().console.is_asked_for(database)
    }

    /// Has a client prove who it is, and gives it a place.
    async fn enter(
        &mut self,
        settings: &Settings,
        mut client: Channel,
        Login { greeted, scramble, capabilities, response, next }: Login<'_>,
    ) -> Result<Entered, End> {
        let _logging_in = self.shared.login_counts.log_in();
        let database = response.database.unwrap_or_default().to_vec();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let user = text(response.user);
        self.caller.user = Some(user.clone());
        self.caller.database = Some(text(&database)).filter(|name| !name.is_empty());
        let knocks = self.knocks(&response);
        if knocks && client.stream.is_of_our_user() {
            return self.visit(settings, (client, capabilities), (user, greeted), next).await;
        }
        let asked = (response.plugin, response.proof);
        let secret = match auth_query::secret(self.shared, settings, response.user).await {
            // The server's rules of hosts don't hold at the console. So a visitor proves a password there,
            // unless the file says that there is none.
            Ok(secret) => {
                secret.filter(|it| !knocks || it.proves() || settings.users.get(response.user).is_some())
            }
            Err((refusal, why)) => {
                return Err(refuse((client, next), refusal, Cause::Other, Some(why)));
            }
        };
        // Others that were greeted before may have failed meanwhile.
        if !self.shared.may_try(self.peer) {
            return Err(refuse((client, next), Refusal::too_many_failures(), Cause::Limited, None));
        }
        let shown = settings.users.or_made_up(secret.as_ref(), (response.user, self.shared.plugin()));
        let proved = {
            let known = (response.user, &shown);
            authenticate((self.shared, self.peer), known, &mut client, asked, (&scramble, next)).await?
        };
        let Some((credential, next)) = proved.credential else {
            let why = settings.users.why(secret.as_deref());
            let refusal = Refusal::denied(response.user);
            // Noted before it is told: the client may come again at once.
            self.shared.note_failure(self.peer);
            return Err(refuse((client, proved.next), refusal, Cause::Denied, Some(why.into())));
        };
        if knocks {
            return self.visit(settings, (client, capabilities), (user, greeted), next).await;
        }
        let application = application(response.attributes);
        let who = Who {
            user: response.user.to_vec(),
            database: database.clone(),
            application: application.clone(),
        };
        let place = self.shared.sessions.register((greeted.id, who), &client.stream, settings.max_clients);
        let Some(place) = place else {
            return Err(refuse((client, next), Refusal::too_many_clients(), Cause::Full, None));
        };
        Ok(Entered::Client(Box::new(LoggedIn {
            key: key(&response, capabilities),
            database,
            application,
            scramble,
            client,
            peer: self.peer,
            capabilities,
            credential,
            next,
            place,
        })))
    }

    /// An authenticated user asks for the console.
    async fn visit(
        &self,
        settings: &Settings,
        (client, capabilities): (Channel, Capabilities),
        (user, greeted): (String, Greeted),
        next: Sequence,
    ) -> Result<Entered, End> {
        let refusal = match (settings.console.role(&user), self.shared.visitors.try_take()) {
            (Some(role), Some(place)) => {
                let visitor = Visitor { client, capabilities, greeted, user, role, next, _place: place };
                return Ok(Entered::Visitor(Box::new(visitor)));
            }
            (None, _) => Refusal::no_visitor(&user),
            (Some(_), None) => Refusal::too_many_visitors(),
        };
        Err(refuse((client, next), refusal, Cause::Other, None))
    }
}

fn key(response: &Response<'_>, capabilities: Capabilities) -> server::Key {
    let (user, collation) = (response.user.to_vec(), u16::from(response.collation));
    server::Key { user, layout: capabilities & LAYOUT, collation }
}

/// What an application calls itself in the attributes of its connection: at most so much as a rule may name.
pub(super) fn application(told: Option<&[u8]>) -> Vec<u8> {
    let mut all = attributes(told.unwrap_or_default());
    let name = all.find(|(name, _)| name == b"program_name").map_or(&b""[..], |(_, value)| value);
    name[..name.len().min(APPLICATION_BYTES_MAX)].to_vec()
}

/// Ends a login with a refusal. `why` is for the log, where that says more.
fn refuse(
    (client, sequence): (Channel, Sequence),
    refusal: Refusal,
    cause: Cause,
    why: Option<Cow<'static, str>>,
) -> End {
    let why = why.unwrap_or_else(|| refusal.message().into_owned().into());
    End::Refused(Box::new(Refused { client, sequence, refusal, cause, why }))
}

/// An OK of the gate's own.
pub(super) fn write_own_ok(out: &mut BytesMut, sequence: Sequence, status: Status) {
    let ok = OkPacket {
        affected: 0,
        last_insert_id: 0,
        status,
        warnings: 0,
        info: &[],
        changes: wire::mysql::track::Changes::default(),
    };
    write_ok(out, sequence, (answer::OK, Capabilities::default()), &ok);
}
