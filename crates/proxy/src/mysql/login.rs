//! A client's login: the gate asks for the proof itself, because a server of MySQL speaks first.

use bytes::BytesMut;
use tokio::time::timeout;
use wire::mysql::answer::{self, OkPacket, write_ok};
use wire::mysql::authentication::{MAX_STEP, write_more, write_switch};
use wire::mysql::capabilities::{Capabilities, Status};
use wire::mysql::codec::Sequence;
use wire::mysql::handshake::{
    First, Handshake, MAX_RESPONSE, Response, attributes, parse_first, write_handshake,
};
use wire::mysql::scramble::{SCRAMBLE_LEN, caching_sha2, native};

use super::Shared;
use super::channel::{Channel, Lost};
use super::reject::Refusal;
use super::server::{self, Failed, IGNORE_SPACE, Known};
use super::sessions::Registration;
use super::users::{Credential, Secret, Users};
use crate::stream::Stream;
use crate::tls::DownstreamMode;

/// Every column flag (`CLIENT_LONG_FLAG`).
const LONG_FLAG: Capabilities = Capabilities(1 << 2);
/// What changes the layout of packets or the meaning of answers: both sides must have the same of these.
const LAYOUT: Capabilities = Capabilities(
    LONG_FLAG.0
        | IGNORE_SPACE.0
        | Capabilities::MYSQL.0
        | Capabilities::FOUND_ROWS.0
        | Capabilities::TRANSACTIONS.0
        | Capabilities::MULTI_STATEMENTS.0
        | Capabilities::MULTI_RESULTS.0
        | Capabilities::PS_MULTI_RESULTS.0
        | Capabilities::DEPRECATE_EOF.0
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

/// The longest name of an application that is kept, in bytes.
const APPLICATION_BYTES_MAX: usize = 256;

/// A client that has proved who it is.
pub(super) struct LoggedIn {
    pub(super) client: Channel,
    pub(super) capabilities: Capabilities,
    pub(super) key: server::Key,
    pub(super) credential: Credential,
    pub(super) database: Vec<u8>,
    pub(super) application: Vec<u8>,
    /// What the client made its proof for.
    pub(super) scramble: Vec<u8>,
    /// The number of the answer that ends the login.
    pub(super) next: Sequence,
}

/// Greets a client and has it prove who it is. `None`: it has been told why not, or has gone.
pub(super) async fn login(shared: &Shared, stream: Stream, place: &Registration) -> Option<LoggedIn> {
    let mut client = Channel::new(stream);
    let known = match shared.known().await {
        Ok(known) => known,
        Err(failed) => {
            failed.write(&mut client.output, Sequence(0));
            let _ = client.flush().await;
            return None;
        }
    };
    let limit = shared.settings().login_timeout;
    match timeout(limit, handshake(shared, client, &known, place)).await {
        Ok(Ok(logged_in)) => Some(logged_in),
        Ok(Err(error)) => {
            tracing::debug!(%error, "a login ended");
            None
        }
        Err(_) => None,
    }
}

/// 20 bytes without NUL.
fn scramble() -> Vec<u8> {
    (0..SCRAMBLE_LEN).map(|_| rand::random_range(1..=127)).collect()
}

async fn handshake(
    shared: &Shared,
    mut client: Channel,
    known: &Known,
    place: &Registration,
) -> Result<LoggedIn, Lost> {
    let settings = shared.settings();
    let tls = settings.tls.as_ref().filter(|_| matches!(client.stream, Stream::Tcp(_)));
    let mut offered = OFFERED & known.capabilities;
    if tls.is_some() {
        offered = offered | Capabilities::SSL;
    }
    let scramble = scramble();
    let greeting = Handshake {
        version: &known.version,
        connection: place.id,
        scramble: scramble.clone(),
        capabilities: offered,
        collation: known.collation,
        status: Status::AUTOCOMMIT,
        plugin: native::NAME.as_bytes(),
    };
    write_handshake(&mut client.output, Sequence(0), &greeting);
    client.flush().await?;
    let mut message = client.first_message(MAX_RESPONSE, Sequence(1)).await?;
    if let (First::Tls { .. }, Some(acceptor)) = (parse_first(&message.payload)?, tls) {
        let Stream::Tcp(socket) = client.stream else { return Err(Lost::Closed) };
        // Nothing behind the request was read: it belongs to TLS.
        client = Channel::new(acceptor.accept(socket).await?);
        message = client.client_message(MAX_RESPONSE, message.next).await?;
    } else if tls.is_some_and(|acceptor| acceptor.mode() != DownstreamMode::Prefer) {
        return Err(refuse(&mut client, message.next, &Refusal::tls_is_required()).await);
    }
    let First::Response(response) = parse_first(&message.payload)? else { return Err(Lost::Closed) };
    let asked = (response.user, response.plugin, response.proof);
    let proved = authenticate(&settings.users, &mut client, asked, (&scramble, message.next)).await?;
    let Some((credential, next)) = proved.credential else {
        return Err(refuse(&mut client, proved.next, &Refusal::denied(response.user)).await);
    };
    let capabilities = response.capabilities & offered;
    *place.entry.user.lock() = response.user.to_vec();
    Ok(LoggedIn {
        key: key(&response, capabilities),
        database: database(&response),
        application: application(response.attributes),
        scramble,
        client,
        capabilities,
        credential,
        next,
    })
}

fn key(response: &Response<'_>, capabilities: Capabilities) -> server::Key {
    let (user, collation) = (response.user.to_vec(), response.collation);
    server::Key { user, layout: capabilities & LAYOUT, collation }
}

fn database(response: &Response<'_>) -> Vec<u8> {
    response.database.unwrap_or_default().to_vec()
}

/// What an application calls itself in the attributes of its connection: at most so much as a rule may name.
pub(super) fn application(told: Option<&[u8]>) -> Vec<u8> {
    let mut all = attributes(told.unwrap_or_default());
    let name = all.find(|(name, _)| name == b"program_name").map_or(&b""[..], |(_, value)| value);
    name[..name.len().min(APPLICATION_BYTES_MAX)].to_vec()
}

async fn refuse(client: &mut Channel, sequence: Sequence, refusal: &Refusal) -> Lost {
    refusal.write(&mut client.output, sequence);
    let _ = client.flush().await;
    Lost::Closed
}

/// How a proof ended.
pub(super) struct Proved {
    /// What the server is shown, and the number of the login's last answer.
    pub(super) credential: Option<(Credential, Sequence)>,
    /// The number of a refusal.
    pub(super) next: Sequence,
}

/// Checks a client's proof; asks for another where that one is of no use.
pub(super) async fn authenticate(
    users: &Users,
    client: &mut Channel,
    (user, plugin, proof): (&[u8], &[u8], &[u8]),
    (scramble, next): (&[u8], Sequence),
) -> Result<Proved, Lost> {
    let secret = users.get(user);
    if plugin == caching_sha2::NAME.as_bytes() {
        let credential = secret
            .and_then(|secret| secret.check_sha2(scramble, proof))
            .map(|credential| (credential, write_more(&mut client.output, next, &[caching_sha2::FAST])));
        if credential.is_some() || !users.asks_again() {
            return Ok(Proved { credential, next });
        }
    }
    let check =
        |secret: Option<&Secret>, scramble: &[u8], proof: &[u8]| secret?.check_native(scramble, proof);
    if plugin.is_empty() || plugin == native::NAME.as_bytes() {
        let credential = check(secret, scramble, proof).map(|credential| (credential, next));
        return Ok(Proved { credential, next });
    }
    let scramble = self::scramble();
    let due = write_switch(&mut client.output, next, native::NAME.as_bytes(), &scramble);
    client.flush().await?;
    let message = client.client_message(MAX_STEP, due).await?;
    let next = message.next;
    let credential = check(secret, &scramble, &message.payload).map(|credential| (credential, next));
    Ok(Proved { credential, next })
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

impl Failed {
    /// Tells a client.
    pub(super) fn write(&self, out: &mut BytesMut, sequence: Sequence) {
        match self {
            Self::Refused(refusal) => refusal.write(out, sequence),
            Self::Lost(lost) => Refusal::unreachable(&lost.to_string()).write(out, sequence),
        };
    }
}
