//! SCRAM's messages as text: reading and writing them, without any cryptography.
//!
//! ```text
//! client-first   n,,n=,r=CLIENT-NONCE
//! server-first   r=CLIENT-NONCE SERVER-NONCE,s=SALT,i=ITERATIONS
//! client-final   c=biws,r=BOTH-NONCES,p=PROOF
//! server-final   v=SIGNATURE
//! ```
//!
//! Readers borrow from the message and bound every field. The parts that both sides sign
//! (`client-first-bare`, `server-first`, `client-final-without-proof`) are handed out exactly as they were
//! sent.
//!
//! Source: RFC 5802 section 7, RFC 7677; leniency as in PostgreSQL's `auth-scram.c`: the user name within
//! SCRAM is ignored (the start-up message has it), extensions behind the known attributes are ignored, `m=`
//! and an authorization identity are refused.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use thiserror::Error;

/// The mechanism.
pub const SCRAM_SHA_256: &str = "SCRAM-SHA-256";
/// The mechanism, bound to the TLS channel.
pub const SCRAM_SHA_256_PLUS: &str = "SCRAM-SHA-256-PLUS";
/// The channel binding that PostgreSQL knows.
pub const TLS_SERVER_END_POINT: &str = "tls-server-end-point";
/// The longest nonce (both parts together) that is read, in bytes. PostgreSQL's parts are 24 each.
pub const NONCE_MAX: usize = 1_024;
/// The longest salt that is read, in bytes. PostgreSQL's are 16.
pub const SALT_MAX: usize = 1_024;
/// Bytes of a proof, a signature or a key: SHA-256's.
pub const KEY_BYTES: usize = 32;

/// Why a text is no message of SCRAM, or one that isn't spoken here. Says nothing about passwords.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ScramError {
    /// The message isn't UTF-8.
    #[error("malformed SCRAM message: it is not UTF-8")]
    NotUtf8,
    /// An attribute is missing, or what stands there is something else.
    #[error("malformed SCRAM message: expected attribute \"{0}\"")]
    Expected(char),
    /// An attribute holds what it must not.
    #[error("malformed SCRAM message: invalid value of attribute \"{0}\"")]
    Value(char),
    /// The message doesn't begin with a channel-binding flag.
    #[error("malformed SCRAM message: unexpected channel-binding flag")]
    Flag,
    /// The client wants to act as somebody else than the user.
    #[error("client uses authorization identity, but it is not supported")]
    AuthorizationIdentity,
    /// The client demands an extension.
    #[error("client requires an unsupported SCRAM extension")]
    Extension,
    /// The server ends the exchange with an error of its own.
    #[error("the server reports a SCRAM error")]
    ServerError,
}

/// What a client says about binding the exchange to its TLS channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelBinding<'a> {
    /// `n`: it can't.
    Unsupported,
    /// `y`: it could, but believes that the server can't.
    Unused,
    /// `p=…`: it does, in this way.
    Bound(&'a str),
}

/// A client's first message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientFirst<'a> {
    /// What it says about channel binding.
    pub binding: ChannelBinding<'a>,
    /// The GS2 header, such as `n,,`: comes back encoded in the final message.
    pub header: &'a str,
    /// The rest, which both sides sign.
    pub bare: &'a str,
    /// The client's nonce.
    pub nonce: &'a str,
}

/// Reads client-first.
///
/// # Errors
/// See [`ScramError`].
pub fn parse_client_first(data: &[u8]) -> Result<ClientFirst<'_>, ScramError> {
    let text = std::str::from_utf8(data).map_err(|_| ScramError::NotUtf8)?;
    let (flag, rest) = text.split_once(',').ok_or(ScramError::Flag)?;
    let binding = match flag {
        "n" => ChannelBinding::Unsupported,
        "y" => ChannelBinding::Unused,
        flag => ChannelBinding::Bound(flag.strip_prefix("p=").ok_or(ScramError::Flag)?),
    };
    let (identity, bare) = rest.split_once(',').ok_or(ScramError::Expected('n'))?;
    match identity {
        "" => {}
        identity if identity.starts_with("a=") => return Err(ScramError::AuthorizationIdentity),
        _ => return Err(ScramError::Expected('a')),
    }
    let header = &text[..text.len() - bare.len()];
    if bare.starts_with("m=") {
        return Err(ScramError::Extension);
    }
    let mut attributes = Attributes(bare);
    attributes.next('n')?;
    let nonce = nonce(attributes.next('r')?)?;
    Ok(ClientFirst { binding, header, bare, nonce })
}

/// Writes the part of client-first that is signed.
#[must_use]
pub fn client_first_bare(nonce: &str) -> String {
    // The user's name is in the start-up message; libpq leaves it empty here, too.
    format!("n=,r={nonce}")
}

/// A server's first message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFirst<'a> {
    /// The client's nonce and the server's.
    pub nonce: &'a str,
    /// The salt, decoded.
    pub salt: Vec<u8>,
    /// How often the password was hashed; at least once.
    pub iterations: u32,
}

/// Reads server-first.
///
/// # Errors
/// See [`ScramError`].
pub fn parse_server_first(data: &[u8]) -> Result<ServerFirst<'_>, ScramError> {
    let text = std::str::from_utf8(data).map_err(|_| ScramError::NotUtf8)?;
    if text.starts_with("m=") {
        return Err(ScramError::Extension);
    }
    let mut attributes = Attributes(text);
    let nonce = nonce(attributes.next('r')?)?;
    let salt = decode('s', attributes.next('s')?, SALT_MAX)?;
    let iterations = number(attributes.next('i')?)?;
    Ok(ServerFirst { nonce, salt, iterations })
}

/// Writes server-first.
#[must_use]
pub fn server_first(nonce: &str, salt: &[u8], iterations: u32) -> String {
    format!("r={nonce},s={},i={iterations}", STANDARD.encode(salt))
}

/// A client's final message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientFinal<'a> {
    /// The GS2 header of its first message and, if bound, the channel's data; decoded.
    pub channel: Vec<u8>,
    /// Both nonces.
    pub nonce: &'a str,
    /// The proof, decoded.
    pub proof: [u8; KEY_BYTES],
    /// Everything before the proof, which both sides sign.
    pub without_proof: &'a str,
}

/// The longest channel-binding field that is read: a header and a digest.
const CHANNEL_MAX: usize = 1_024;

/// Reads client-final.
///
/// # Errors
/// See [`ScramError`].
pub fn parse_client_final(data: &[u8]) -> Result<ClientFinal<'_>, ScramError> {
    let text = std::str::from_utf8(data).map_err(|_| ScramError::NotUtf8)?;
    // The proof is the last attribute, and base64 has no comma.
    let (without_proof, proof) = text.rsplit_once(",p=").ok_or(ScramError::Expected('p'))?;
    let mut attributes = Attributes(without_proof);
    let channel = decode('c', attributes.next('c')?, CHANNEL_MAX)?;
    let nonce = nonce(attributes.next('r')?)?;
    Ok(ClientFinal { channel, nonce, proof: key('p', proof)?, without_proof })
}

/// Writes the part of client-final that is signed.
#[must_use]
pub fn client_final_without_proof(channel: &[u8], nonce: &str) -> String {
    format!("c={},r={nonce}", STANDARD.encode(channel))
}

/// Writes client-final.
#[must_use]
pub fn client_final(without_proof: &str, proof: &[u8; KEY_BYTES]) -> String {
    format!("{without_proof},p={}", STANDARD.encode(proof))
}

/// Reads server-final: the server's signature.
///
/// # Errors
/// [`ScramError::ServerError`] for the server's own error; else what is wrong with the message.
pub fn parse_server_final(data: &[u8]) -> Result<[u8; KEY_BYTES], ScramError> {
    let text = std::str::from_utf8(data).map_err(|_| ScramError::NotUtf8)?;
    if text.starts_with("e=") {
        return Err(ScramError::ServerError);
    }
    key('v', Attributes(text).next('v')?)
}

/// Writes server-final.
#[must_use]
pub fn server_final(signature: &[u8; KEY_BYTES]) -> String {
    format!("v={}", STANDARD.encode(signature))
}

/// Decodes the base64 of a key of 32 bytes, as SCRAM's messages and stored secrets hold them.
///
/// # Errors
/// [`ScramError::Value`] of this attribute.
pub fn key(attribute: char, text: &str) -> Result<[u8; KEY_BYTES], ScramError> {
    decode(attribute, text, KEY_BYTES)?.try_into().map_err(|_| ScramError::Value(attribute))
}

/// Decodes the base64 of a salt.
///
/// # Errors
/// [`ScramError::Value`] of the attribute `s`.
pub fn salt(text: &str) -> Result<Vec<u8>, ScramError> {
    decode('s', text, SALT_MAX)
}

/// What is left of a message: attributes parted by commas.
struct Attributes<'a>(&'a str);

impl<'a> Attributes<'a> {
    /// The value of the next attribute, which must be this one.
    fn next(&mut self, name: char) -> Result<&'a str, ScramError> {
        let (attribute, rest) = self.0.split_once(',').unwrap_or((self.0, ""));
        self.0 = rest;
        let value = attribute.strip_prefix(name).and_then(|rest| rest.strip_prefix('='));
        value.ok_or(ScramError::Expected(name))
    }
}

/// Printable ASCII without a comma, not empty.
fn nonce(text: &str) -> Result<&str, ScramError> {
    let is_nonce =
        (1..=NONCE_MAX).contains(&text.len()) && text.bytes().all(|byte| matches!(byte, 0x21..=0x7e));
    if is_nonce { Ok(text) } else { Err(ScramError::Value('r')) }
}

fn number(text: &str) -> Result<u32, ScramError> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| is_number && *number > 0).ok_or(ScramError::Value('i'))
}

fn decode(attribute: char, text: &str, max: usize) -> Result<Vec<u8>, ScramError> {
    // Checked before the work: four characters hold three bytes.
    if text.len() > max.div_ceil(3) * 4 {
        return Err(ScramError::Value(attribute));
    }
    let bytes = STANDARD.decode(text).map_err(|_| ScramError::Value(attribute))?;
    if bytes.len() <= max { Ok(bytes) } else { Err(ScramError::Value(attribute)) }
}
