//! The gate logs in to the server itself, in the name of a client that it has authenticated (or of
//! `auth_user`).
//!
//! A known password answers every challenge, an md5 hash an md5 challenge. Keys taken over from a client's
//! proof answer a SCRAM challenge with the same salt. The server has to prove itself, too: without the SCRAM
//! secret it can't sign. A password in clear text goes only over TLS or loopback, unless `allow_cleartext`
//! says otherwise.

use std::sync::Arc;

use bytes::BytesMut;
use wire::postgres::authentication::{SaslInitial, write_password, write_sasl_initial, write_sasl_response};
use wire::postgres::backend::{Authentication, parse_authentication, parse_error};
use wire::postgres::scram::SCRAM_SHA_256_PLUS;
use zeroize::Zeroize;

use super::super::Settings;
use super::super::auth::scram::{Channel, ExchangeError, Keys, Prover, nonce};
use super::super::auth::secret::{Md5Hash, Secret};
use super::super::auth::users::User;
use super::super::auth::{ChannelBinding, Credentials};
use super::super::message::Message;
use super::super::refusal::Refusal;
use super::handshake::{Accepted, Handshake};
use crate::stream::Encrypted;
use crate::tls;

/// Why a server connection could not be had.
#[derive(Debug)]
pub(crate) enum OpenError {
    /// The gate's own reason.
    Refused(Refusal),
    /// The server's error, to be passed on.
    Said(Message),
    /// The salt isn't that of the keys: the server stores another secret, or makes a salt up, because there
    /// is no such user or its password has expired.
    OtherSecret,
}

impl<R: Into<Refusal>> From<R> for OpenError {
    fn from(refusal: R) -> Self {
        Self::Refused(refusal.into())
    }
}

impl From<ExchangeError> for OpenError {
    fn from(error: ExchangeError) -> Self {
        match error {
            ExchangeError::OtherSecret => Self::OtherSecret,
            error => Self::Refused(Refusal::ServerLogin(error.to_string())),
        }
    }
}

impl OpenError {
    /// Whether the server refuses these credentials or wants others, so that a new try can't succeed.
    pub(crate) fn is_about_credentials(&self) -> bool {
        match self {
            Self::Refused(refusal) => matches!(refusal, Refusal::ServerLogin(_)),
            Self::Said(message) => is_about_credentials(message),
            Self::OtherSecret => true,
        }
    }
}

/// Whether an ErrorResponse is of the class "invalid authorization specification".
pub(crate) fn is_about_credentials(error: &Message) -> bool {
    parse_error(error.body()).code().starts_with("28")
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(Refusal::Unreachable(error)) => error.fmt(formatter),
            Self::Refused(refusal) => refusal.fmt(formatter),
            Self::Said(message) => {
                let fields = parse_error(message.body());
                write!(formatter, "{}: {}", fields.code(), String::from_utf8_lossy(fields.message()))
            }
            Self::OtherSecret => formatter.write_str(
                "it has another SCRAM secret for the user than users_file or auth_query, or the password has expired \
                 there, or there is no such user",
            ),
        }
    }
}

/// Opens a connection for these start-up parameters.
///
/// # Errors
/// See [`OpenError`].
pub(crate) async fn open<N: AsRef<str>, V: AsRef<str>>(
    settings: &Settings,
    parameters: &[(N, V)],
    user: &str,
    credentials: &Credentials,
) -> Result<Accepted, OpenError> {
    let mut server = Handshake::open(settings, parameters).await?;
    let nobody_listens = server.stream.encryption().is_some() || server.stream.peer().is_loopback();
    let allow_cleartext = nobody_listens || settings.auth.settings.allow_cleartext;
    let binding = settings.auth.settings.channel_binding;
    let (must_bind, mut is_bound) = (binding == ChannelBinding::Require, false);
    loop {
        let message = server.next().await?;
        match message.tag() {
            b'R' => {}
            b'E' => return Err(OpenError::Said(message)),
            _ => return Err(Refusal::ServerErred.into()),
        }
        let challenge = parse_authentication(message.body()).map_err(|_| Refusal::ServerErred)?;
        if must_bind && !is_bound && !matches!(challenge, Authentication::Sasl { .. }) {
            return Err(unbound());
        }
        match challenge {
            Authentication::Ok => break,
            Authentication::CleartextPassword => {
                let password = plain(credentials).ok_or_else(|| wants("a password"))?;
                if !allow_cleartext {
                    return Err(wants(
                        "a password in clear text over an unencrypted network (allow_cleartext)",
                    ));
                }
                answer(&mut server, |out| write_password(out, password.as_bytes())).await?;
            }
            Authentication::Md5 { salt } => {
                let response = match secret(credentials) {
                    Some(Secret::Md5(hash)) => hash.response(salt),
                    Some(Secret::Plain(password)) => Md5Hash::new(user, password.as_str()).response(salt),
                    _ => return Err(wants("an md5 password")),
                };
                answer(&mut server, |out| write_password(out, response.as_bytes())).await?;
            }
            Authentication::Sasl { mechanisms } => {
                is_bound = prove(&mut server, &mechanisms, credentials, binding).await?;
            }
            Authentication::Gss | Authentication::Sspi | Authentication::GssContinue(_) => {
                return Err(wants("GSSAPI or SSPI"));
            }
            Authentication::SaslContinue(_) | Authentication::SaslFinal(_) => {
                return Err(Refusal::ServerErred.into());
            }
            Authentication::Other(_) => return Err(wants("a method that is not known here")),
        }
    }
    loop {
        let message = server.next().await?;
        match message.tag() {
            b'E' => return Err(OpenError::Said(message)),
            b'Z' => return Ok(server.accepted()),
            _ => {}
        }
    }
}

fn wants(what: &str) -> OpenError {
    Refusal::ServerLogin(format!("it asks for {what}, which the gate does not have for this user")).into()
}

fn secret(credentials: &Credentials) -> Option<&Secret> {
    match credentials {
        Credentials::Known(user) => user.secret.as_ref(),
        Credentials::Nothing | Credentials::Keys(_) => None,
    }
}

fn plain(credentials: &Credentials) -> Option<&str> {
    match secret(credentials) {
        Some(Secret::Plain(password)) => Some(password.as_str()),
        _ => None,
    }
}

fn unbound() -> OpenError {
    let why = "it does not bind logins to a TLS channel, as upstream_channel_binding demands";
    Refusal::ServerLogin(why.to_owned()).into()
}

/// Does the whole SCRAM exchange, up to the server's signature. Returns whether it was bound to the TLS
/// channel, as it is where both sides can. Otherwise the server hears that no binding was offered, so that
/// an attacker in the middle can't take its offer away.
async fn prove(
    server: &mut Handshake,
    offered: &[&str],
    credentials: &Credentials,
    binding: ChannelBinding,
) -> Result<bool, OpenError> {
    let shown = server.stream.encryption().and_then(Encrypted::peer_certificate);
    let data = shown.filter(|_| binding != ChannelBinding::Disable).and_then(tls::end_point);
    let channel = match &data {
        None => Channel::None,
        Some(data) if offered.contains(&SCRAM_SHA_256_PLUS) => Channel::Bound(data),
        Some(_) => Channel::Unoffered,
    };
    let is_bound = matches!(channel, Channel::Bound(_));
    if binding == ChannelBinding::Require && !is_bound {
        return Err(unbound());
    }
    let prover = Prover::new(nonce(), channel);
    if !offered.contains(&prover.mechanism()) {
        return Err(wants("another mechanism than SCRAM-SHA-256"));
    }
    let first = prover.client_first();
    let initial = SaslInitial { mechanism: prover.mechanism().as_bytes(), data: Some(first.as_bytes()) };
    answer(server, |out| write_sasl_initial(out, &initial)).await?;
    let message = server.next().await?;
    let challenge = match sasl(&message)? {
        Authentication::SaslContinue(data) => data,
        _ => return Err(Refusal::ServerErred.into()),
    };
    let (salt, iterations) = prover.read(challenge)?;
    let keys = match credentials {
        Credentials::Keys(keys) => Arc::clone(keys),
        Credentials::Known(user) if matches!(user.secret, Some(Secret::Plain(_))) => {
            derive(user, &salt, iterations).await.ok_or_else(|| wants("a password"))?
        }
        Credentials::Known(_) | Credentials::Nothing => {
            return Err(wants("SCRAM-SHA-256"));
        }
    };
    let (last, signature) = prover.answer(challenge, &keys)?;
    answer(server, |out| write_sasl_response(out, last.as_bytes())).await?;
    let message = server.next().await?;
    match sasl(&message)? {
        Authentication::SaslFinal(data) => Ok(signature.check(data).map(|()| is_bound)?),
        _ => Err(ExchangeError::Signature.into()),
    }
}

fn sasl(message: &Message) -> Result<Authentication<'_>, OpenError> {
    match message.tag() {
        b'R' => Ok(parse_authentication(message.body()).map_err(|_| Refusal::ServerErred)?),
        b'E' => Err(OpenError::Said(message.clone())),
        _ => Err(Refusal::ServerErred.into()),
    }
}

/// The keys of a user's password for a salt, computed on a thread for blocking work. `None`: there is no
/// password.
pub(crate) async fn derive(user: &Arc<User>, salt: &[u8], iterations: u32) -> Option<Arc<Keys>> {
    if let Some(Secret::Plain(password)) = &user.secret {
        if let Some(keys) = password.known_keys().filter(|keys| keys.fit(salt, iterations)) {
            return Some(keys);
        }
    }
    let (user, salt) = (Arc::clone(user), salt.to_vec());
    let derived = tokio::task::spawn_blocking(move || match &user.secret {
        Some(Secret::Plain(password)) => Some(password.keys(&salt, iterations)),
        _ => None,
    });
    derived.await.ok().flatten()
}

/// Writes an answer, and erases it from memory.
async fn answer(server: &mut Handshake, write: impl FnOnce(&mut BytesMut)) -> Result<(), OpenError> {
    let mut out = BytesMut::with_capacity(512);
    write(&mut out);
    let sent = server.stream.send(&out).await;
    out.as_mut().zeroize();
    Ok(sent.map_err(|_| Refusal::ServerLost)?)
}
