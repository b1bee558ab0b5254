//! Login by relay: the server itself authenticates the client, through the gate, over a fresh connection.
//!
//! ```text
//! client                gate                                   server
//!   │                    │ fresh connection, StartupMessage ────►│
//!   │◄───────── SASL, md5, password: unchanged, both ways ──────►│
//!   │                    │◄─ AuthenticationOk … ReadyForQuery ───│
//! ```
//!
//! Nothing secret is stored or logged: the gate forwards what it can't read. The price is a server
//! connection per login.
//!
//! Where it can't work: methods bound to the server's connection (GSS, SSPI, channel binding), and servers
//! that trust the gate's address: those would trust all who reach the gate ([`probe_trust`]).

use bytes::{BufMut, BytesMut};
use tokio::time::timeout;
use wire::postgres::backend::{Authentication, parse_authentication};

use super::super::auth::Method;
use super::super::message::Message;
use super::super::refusal::Refusal;
use super::super::{Settings, StartError};
use super::handshake::{Accepted, Handshake};
use super::{End, Login};
use crate::stream::{Encrypted, Peer, Stream};
use crate::tls::DownstreamMode;

/// The user of the trust probe. It needn't exist: servers authenticate before they look a role up.
const PROBE_USER: &str = "gatekeeper_probe";
/// How the names of SASL mechanisms end that bind to a channel.
const BOUND: &str = "-PLUS";
/// The method number of SASL.
const SASL: u32 = 10;

impl Login<'_> {
    /// Opens a fresh server connection and passes the authentication through, both ways.
    pub(super) async fn relay(
        &mut self,
        settings: &Settings,
        parameters: &[(String, String)],
    ) -> Result<Accepted, End> {
        let mut server = Handshake::open(settings, parameters).await?;
        let mut was_challenged = false;
        loop {
            let message = server.next().await?;
            match message.tag() {
                b'R' => {}
                b'E' => {
                    self.note_refused(&message, parameters);
                    return self.pass_on_error(&message).await;
                }
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
                    let answer = match without_binding(&challenge, &self.client, &server.stream) {
                        None => {
                            self.send(message.bytes()).await?;
                            self.password_message().await?
                        }
                        Some(challenge) => {
                            self.send(&challenge).await?;
                            let answer = self.password_message().await?;
                            if expects_binding(answer.body()) {
                                return Err(Refusal::ChannelBinding.into());
                            }
                            answer
                        }
                    };
                    server.stream.send(answer.bytes()).await.map_err(|_| Refusal::ServerLost)?;
                }
            }
        }
        if !was_challenged && !self.is_trusted(settings) {
            return Err(Refusal::TrustRelay.into());
        }
        loop {
            let message = server.next().await?;
            match message.tag() {
                b'E' => {
                    self.note_refused(&message, parameters);
                    return self.pass_on_error(&message).await;
                }
                b'Z' => return Ok(server.accepted()),
                _ => {}
            }
        }
    }
}

impl Login<'_> {
    fn is_trusted(&self, settings: &Settings) -> bool {
        let is_certified = verifies_users(settings) && self.client.encryption().is_some();
        is_certified || may_relay_trust(settings, self.client.peer())
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
pub(super) fn may_relay_trust(settings: &Settings, peer: Peer) -> bool {
    settings.allow_trust_relay || peer.is_loopback()
}

/// Whether clients' certificates have told the gate who they are, those on Unix sockets aside.
fn verifies_users(settings: &Settings) -> bool {
    settings.tls.as_ref().is_some_and(|tls| tls.mode() == DownstreamMode::VerifyFull)
}

/// The server's challenge as the client may hear it, if it differs: SCRAM bound to the server's certificate
/// (`tls-server-end-point`) can't be relayed to a client that sees another one, or none.
///
/// A gate that shows the server's own certificate passes on everything. The client binds to that certificate
/// then, and its issuer takes gate and server for one name.
fn without_binding(challenge: &Authentication<'_>, client: &Stream, server: &Stream) -> Option<BytesMut> {
    let Authentication::Sasl { mechanisms } = challenge else { return None };
    if !mechanisms.iter().any(|name| name.ends_with(BOUND)) {
        return None;
    }
    let seen = client.encryption().and_then(Encrypted::own_certificate);
    if seen.is_some() && seen == server.encryption().and_then(Encrypted::peer_certificate) {
        return None;
    }
    let rest = mechanisms.iter().filter(|name| !name.ends_with(BOUND));
    let names: String = rest.map(|name| format!("{name}\0")).collect();
    let mut message = BytesMut::new();
    message.put_u8(b'R');
    // Shorter than what came.
    message.put_u32(u32::try_from(4 + 4 + names.len() + 1).unwrap_or(u32::MAX));
    message.put_u32(SASL);
    message.put_slice(names.as_bytes());
    message.put_u8(0);
    Some(message)
}

/// Whether the client's first SASL message binds to a channel, or says that it could have: then a server
/// that offers to bind takes the login for one under attack (RFC 5802, section 6).
pub(crate) fn expects_binding(initial: &[u8]) -> bool {
    let Some(end) = initial.iter().position(|byte| *byte == 0) else { return false };
    // Behind the mechanism's name and a length: the GS2 header's flag.
    matches!(initial.get(end + 5), Some(b'y' | b'p'))
}

/// Finds out, before the first client is served, whether the server would let everybody in who reaches the
/// gate.
///
/// A made-up user logs in. PostgreSQL authenticates before it looks a role up, so that the first answer
/// tells whether it asks for anything. A server that can't be asked is no reason not to start: each login
/// is checked again.
///
/// # Errors
/// [`StartError::TrustRelay`].
pub(crate) async fn probe_trust(settings: &Settings) -> Result<(), StartError> {
    let asks_itself = settings.auth.settings.method != Method::Relay || verifies_users(settings);
    if asks_itself || settings.allow_trust_relay || settings.listen.is_loopback() {
        return Ok(());
    }
    let gate = &settings.name;
    match timeout(settings.login_timeout, is_trusting(settings)).await {
        Ok(Ok(true)) => Err(StartError::TrustRelay {
            upstream: settings.upstream.clone(),
            listen: settings.listen.clone(),
        }),
        Ok(Ok(false)) => Ok(()),
        Ok(Err(reason)) => {
            tracing::warn!(gate, %reason, "could not probe how the server authenticates; each login is checked");
            Ok(())
        }
        Err(_) => {
            tracing::warn!(
                gate,
                "the server did not tell in time how it authenticates; each login is checked"
            );
            Ok(())
        }
    }
}

/// The server's first answer to the login of a made-up user.
pub(crate) async fn first_word(settings: &Settings) -> Result<Message, Refusal> {
    let parameters = ["user", "database"].map(|name| (name, PROBE_USER));
    Handshake::open(settings, &parameters).await?.next().await
}

async fn is_trusting(settings: &Settings) -> Result<bool, Refusal> {
    let message = first_word(settings).await?;
    let is_ok = matches!(parse_authentication(message.body()), Ok(Authentication::Ok));
    Ok(message.tag() == b'R' && is_ok)
}
