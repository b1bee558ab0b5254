//! The beginning of a connection to the server, which speaks first: its greeting, TLS, and what the gate
//! learns of the server by it.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::BytesMut;
use tokio::time::{sleep, timeout};
use wire::mysql::ProtocolError;
use wire::mysql::answer;
use wire::mysql::capabilities::Capabilities;
use wire::mysql::codec::Sequence;
use wire::mysql::handshake::{Greeting, Handshake, MAX_HANDSHAKE, parse_greeting, write_tls_request};
use wire::mysql::scramble::{caching_sha2, native};

use super::channel::{Channel, Lost, MESSAGE_MAX};
use super::reject::Refusal;
use super::{Settings, Shared};
use crate::stream::Stream;
use crate::tls::{Connector, UpstreamMode};
use crate::upstream::address::ConnectError;
use crate::upstream::dial::Dial;
use crate::upstream::health::{Condition, LOOK_EVERY, Lack};
use crate::upstream::resolver::Resolver;

/// What a server says that has as many connections as it takes.
const TOO_MANY_CONNECTIONS: u16 = 1040;

/// The number of `utf8mb4_general_ci`.
pub(super) const UTF8MB4: u8 = 45;

/// How a server is reached.
#[derive(Clone, Debug)]
pub(super) struct Way {
    pub(super) dial: Arc<Dial>,
    /// The only address to try. A name may stand for several servers, of which one knows a thread.
    pub(super) peer: Option<SocketAddr>,
}

/// Why there is no connection, or no more.
#[derive(Debug)]
pub(super) enum Failed {
    /// To be told as it is.
    Refused(Refusal),
    Lost(Lost),
}

impl From<Lost> for Failed {
    fn from(lost: Lost) -> Self {
        Self::Lost(lost)
    }
}

impl From<ProtocolError> for Failed {
    fn from(error: ProtocolError) -> Self {
        Self::Lost(error.into())
    }
}

pub(super) fn unreachable(why: &impl ToString) -> Failed {
    Failed::Refused(Refusal::unreachable(&why.to_string()))
}

impl Failed {
    /// What a client is told.
    pub(super) fn into_refusal(self) -> Refusal {
        match self {
            Self::Refused(refusal) => refusal,
            Self::Lost(lost) => Refusal::unreachable(&lost.to_string()),
        }
    }
}

pub(super) fn refused(payload: &[u8]) -> Failed {
    match answer::parse_error(payload) {
        Ok(error) => Failed::Refused(Refusal::of_server(&error)),
        Err(error) => error.into(),
    }
}

/// What the gate knows of the server before a client comes.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) version: Vec<u8>,
    pub(super) capabilities: Capabilities,
    pub(super) collation: u8,
    /// What clients are asked to prove themselves by at first: the server's own plug-in, if the gate has it.
    pub(super) plugin: &'static str,
}

impl Known {
    /// What a visitor of the console is greeted with while the server doesn't answer.
    pub(super) fn nothing() -> Self {
        let version = concat!("5.5.5-gatekeeper-", env!("CARGO_PKG_VERSION")).as_bytes().to_vec();
        let capabilities = Capabilities::PROTOCOL_41
            | Capabilities::SECURE_CONNECTION
            | Capabilities::PLUGIN_AUTH
            | Capabilities::CONNECT_WITH_DB
            | Capabilities::TRANSACTIONS;
        Self { version, capabilities, collation: UTF8MB4, plugin: native::NAME }
    }
}

/// Asks the server what it is. The connection isn't used for a login.
pub(super) async fn look(shared: &Shared) -> Result<Known, Failed> {
    let (_, greeting) = greeted(shared, &shared.way()).await?;
    let Greeting::Handshake(handshake) = parse_greeting(&greeting)? else {
        return Err(refused(&greeting));
    };
    Ok(known(&handshake))
}

pub(super) fn known(handshake: &Handshake<'_>) -> Known {
    let has_sha2 = handshake.plugin == caching_sha2::NAME.as_bytes();
    Known {
        version: handshake.version.to_vec(),
        capabilities: handshake.capabilities,
        collation: handshake.collation,
        plugin: if has_sha2 { caching_sha2::NAME } else { native::NAME },
    }
}

/// Connects, and reads the server's first word. The health of the server hears how that went.
pub(super) async fn greeted(
    shared: &Shared,
    Way { dial, peer }: &Way,
) -> Result<(Channel, BytesMut), Failed> {
    let settings = shared.settings();
    let stream = match peer {
        Some(peer) => dial.connect_to(&[*peer], dial.deadline()).await,
        None => dial.connect(dial.deadline()).await,
    };
    let stream = stream.map_err(|error| {
        settings.health.failed(settings.named(), Lack::Connection, &error);
        unreachable(&error)
    })?;
    let mut channel = Channel::new(stream);
    let read = timeout(settings.connect_timeout, channel.server_message(MAX_HANDSHAKE));
    let message = read.await.unwrap_or(Err(Lost::NoGreeting)).map_err(|lost| match lost {
        Lost::Protocol(_) => Lost::NoGreeting,
        other => other,
    });
    let message = message.inspect_err(|lost| {
        settings.health.failed(settings.named(), Lack::Answer, lost);
    })?;
    note(&settings, &message.payload);
    Ok((channel, message.payload))
}

/// Takes the server's first word for a sign that it is there, or that it can't serve.
fn note(settings: &Settings, first: &[u8]) {
    if let Ok(Greeting::Refused(error)) = parse_greeting(first) {
        let why = String::from_utf8_lossy(error.message);
        if error.code != TOO_MANY_CONNECTIONS {
            return settings.health.failed(settings.named(), Lack::Answer, &why);
        }
        settings.health.crowded(settings.named(), ("08004", &why));
    }
    settings.health.answered(settings.named());
}

/// Whether the server is there while nobody logs in: whether it has ended idle connections, and if so, or if
/// it was down, what it says. A server that seems well isn't asked, since MySQL shuts out an address from
/// which many connections come without a login (`max_connect_errors`). Never returns.
pub(super) async fn watch(shared: &Shared) {
    loop {
        let ended = shared.pool.drop_ended();
        shared.failed.look(shared.driver.name());
        shared.stats.tick(shared.driver.clock().now());
        let settings = shared.settings();
        settings.health.tell_lost(settings.named(), shared.pool.idle_lost());
        let has_idle = shared.pool.counts().1 > 0;
        if settings.health.condition() != Condition::Up || ended > 0 && !has_idle {
            // The health of the server hears of a failure by itself.
            if let Ok(known) = look(shared).await {
                shared.learn(known);
            }
        }
        drop(settings);
        sleep(LOOK_EVERY).await;
    }
}

/// Turns to TLS, if the settings and the server have it so.
pub(super) async fn encrypt(
    (tls, way): (Option<&Connector>, &Way),
    mut channel: Channel,
    handshake: &Handshake<'_>,
    (capabilities, collation): (Capabilities, u8),
    sequence: &mut Sequence,
) -> Result<Channel, Failed> {
    let Some(connector) = tls else { return Ok(channel) };
    if !matches!(channel.stream, Stream::Tcp(_)) || connector.mode() == UpstreamMode::Allow {
        return Ok(channel);
    }
    let no_tls = |source| ConnectError::Tls { address: way.dial.address().clone(), source };
    if !handshake.capabilities.contains(Capabilities::SSL) {
        if connector.mode() == UpstreamMode::Prefer {
            return Ok(channel);
        }
        return Err(unreachable(&no_tls(io::Error::other("the server doesn't have TLS"))));
    }
    *sequence =
        write_tls_request(&mut channel.output, *sequence, (capabilities, MESSAGE_MAX as u32, collation));
    channel.flush().await?;
    let Stream::Tcp(socket) = channel.stream else { return Err(unreachable(&"no TCP")) };
    let host = way.dial.resolver().map_or("", Resolver::host);
    let stream = connector.connect(socket, host).await.map_err(|source| unreachable(&no_tls(source)))?;
    // What came in the clear behind the greeting is left behind.
    Ok(Channel::new(stream))
}
