//! SCRAM-SHA-256: keys, and both sides of the exchange.
//!
//! ```text
//! SaltedPassword = PBKDF2(SASLprep(password), salt, iterations)
//! ClientKey = HMAC(SaltedPassword, "Client Key")       StoredKey = SHA-256(ClientKey)
//! ServerKey = HMAC(SaltedPassword, "Server Key")
//! proof     = ClientKey XOR HMAC(StoredKey, everything that was said)
//! signature = HMAC(ServerKey, everything that was said)
//! ```
//!
//! The verifier knows StoredKey, so a right proof *gives it ClientKey*. With ClientKey (and ServerKey, to
//! check the server) the gate logs in wherever the same salt and iterations are stored, without a
//! password. Before the first right proof it can forge nothing.
//!
//! Source: RFC 5802 section 3, RFC 7677; PostgreSQL's `auth-scram.c`. Channel binding (`-PLUS`) is offered,
//! and asked for, exactly where the caller has the data of the TLS channel.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use wire::postgres::scram::{
    self, ChannelBinding, KEY_BYTES, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramError, TLS_SERVER_END_POINT,
};
use zeroize::{Zeroize, Zeroizing};

/// The default number of iterations, as PostgreSQL's.
pub(crate) const ITERATIONS: u32 = 4096;
/// The most iterations that the gate computes for a server: some seconds of one core.
pub(crate) const ITERATIONS_MAX: u32 = 10_000_000;
/// Bytes of a nonce before it is written as text, as in PostgreSQL.
const NONCE_BYTES: usize = 18;

/// A key, a signature or a proof.
pub(crate) type Key = [u8; KEY_BYTES];

/// What a server stores of a user's password: enough to verify a proof, not enough to give one.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Verifier {
    pub(crate) iterations: u32,
    pub(crate) salt: Vec<u8>,
    pub(crate) stored_key: Key,
    pub(crate) server_key: Key,
}

impl Drop for Verifier {
    fn drop(&mut self) {
        self.stored_key.zeroize();
        self.server_key.zeroize();
    }
}

impl std::fmt::Debug for Verifier {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Verifier").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

/// What it takes to log in where this salt and these iterations are stored.
pub(crate) struct Keys {
    pub(crate) iterations: u32,
    pub(crate) salt: Vec<u8>,
    client_key: Key,
    server_key: Key,
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.client_key.zeroize();
        self.server_key.zeroize();
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Keys").field("iterations", &self.iterations).finish_non_exhaustive()
    }
}

impl Keys {
    /// Of a password. Takes milliseconds by design: not for a thread that others wait for.
    pub(crate) fn derive(password: &str, salt: &[u8], iterations: u32) -> Self {
        // What SASLprep prohibits is taken as it is, as PostgreSQL does.
        let prepared = match stringprep::saslprep(password) {
            Ok(prepared) => Zeroizing::new(prepared.into_owned()),
            Err(_) => Zeroizing::new(password.to_owned()),
        };
        let mut salted = Zeroizing::new([0; KEY_BYTES]);
        pbkdf2::pbkdf2_hmac::<Sha256>(prepared.as_bytes(), salt, iterations, &mut *salted);
        let client_key = hmac(&*salted, &[b"Client Key"]);
        let server_key = hmac(&*salted, &[b"Server Key"]);
        Self { iterations, salt: salt.to_vec(), client_key, server_key }
    }

    /// What a server would store of the same password.
    pub(crate) fn verifier(&self) -> Verifier {
        Verifier {
            iterations: self.iterations,
            salt: self.salt.clone(),
            stored_key: Sha256::digest(self.client_key).into(),
            server_key: self.server_key,
        }
    }

    /// Whether a server that tells these could be one that stores the same secret.
    pub(crate) fn fit(&self, salt: &[u8], iterations: u32) -> bool {
        self.salt == salt && self.iterations == iterations
    }
}

/// HMAC-SHA-256 over the parts in a row.
pub(crate) fn hmac(key: &[u8], parts: &[&[u8]]) -> Key {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// A fresh nonce as text.
pub(crate) fn nonce() -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(rand::random::<[u8; NONCE_BYTES]>())
}

/// Why an exchange failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ExchangeError {
    /// The other side broke SCRAM's rules.
    #[error(transparent)]
    Message(#[from] ScramError),
    /// The mechanism isn't one that was offered.
    #[error("client selected an invalid SASL authentication mechanism")]
    Mechanism,
    /// What the client says about its channel contradicts what it was offered: somebody may be in the middle.
    #[error("SCRAM channel binding negotiation error")]
    Negotiation,
    /// The channel that the client sees isn't ours.
    #[error("SCRAM channel binding check failed")]
    ChannelBinding,
    /// A nonce doesn't belong to this exchange.
    #[error("SCRAM nonce does not match")]
    Nonce,
    /// The proof is wrong: so is the password.
    #[error("wrong password")]
    Proof,
    /// The server doesn't know the password either: it isn't the server that it claims to be.
    #[error("the server's SCRAM signature is wrong")]
    Signature,
    /// The server stores another secret than the one that the keys were taken from.
    #[error("the server stores another SCRAM secret for this user")]
    OtherSecret,
    /// The server asks for more than [`ITERATIONS_MAX`].
    #[error("the server asks for too many SCRAM iterations")]
    Iterations,
}

/// The mechanisms to offer, best first; `channel` is the data of the client's TLS channel.
pub(crate) fn mechanisms(channel: Option<&[u8]>) -> &'static [&'static str] {
    if channel.is_some() { &[SCRAM_SHA_256_PLUS, SCRAM_SHA_256] } else { &[SCRAM_SHA_256] }
}

/// The verifying side, between its challenge and the client's answer.
pub(crate) struct Verification<'a> {
    verifier: &'a Verifier,
    /// What client-final must say about the channel.
    channel: Vec<u8>,
    nonce: String,
    client_first_bare: String,
    /// What the client is to be sent.
    pub(crate) server_first: String,
}

impl<'a> Verification<'a> {
    /// Takes the client's first message. `channel` is what [`mechanisms`] was given, `nonce` our part.
    ///
    /// # Errors
    /// Any but those about the proof and the server.
    pub(crate) fn begin(
        verifier: &'a Verifier,
        channel: Option<&[u8]>,
        mechanism: &[u8],
        client_first: &[u8],
        nonce: &str,
    ) -> Result<Self, ExchangeError> {
        if !mechanisms(channel).iter().any(|offered| offered.as_bytes() == mechanism) {
            return Err(ExchangeError::Mechanism);
        }
        let is_bound = mechanism == SCRAM_SHA_256_PLUS.as_bytes();
        let first = scram::parse_client_first(client_first)?;
        let data = match (first.binding, channel) {
            (ChannelBinding::Bound(TLS_SERVER_END_POINT), Some(data)) if is_bound => data,
            (ChannelBinding::Unsupported, _) | (ChannelBinding::Unused, None) if !is_bound => &[],
            _ => return Err(ExchangeError::Negotiation),
        };
        let nonce = format!("{}{nonce}", first.nonce);
        let server_first = scram::server_first(&nonce, &verifier.salt, verifier.iterations);
        Ok(Self {
            verifier,
            channel: [first.header.as_bytes(), data].concat(),
            nonce,
            client_first_bare: first.bare.to_owned(),
            server_first,
        })
    }

    /// Takes the client's final message: the keys that its proof gave away, and server-final for it.
    ///
    /// # Errors
    /// [`ExchangeError::Proof`] for a wrong password; others for broken rules.
    pub(crate) fn finish(&self, client_final: &[u8]) -> Result<(Keys, String), ExchangeError> {
        let last = scram::parse_client_final(client_final)?;
        if last.channel != self.channel {
            return Err(ExchangeError::ChannelBinding);
        }
        if last.nonce != self.nonce {
            return Err(ExchangeError::Nonce);
        }
        let Verifier { iterations, salt, stored_key, server_key } = self.verifier;
        let said = said(&self.client_first_bare, &self.server_first, last.without_proof);
        let mut client_key = hmac(stored_key, &[said.as_bytes()]);
        client_key.iter_mut().zip(last.proof).for_each(|(byte, proof)| *byte ^= proof);
        let keys = Keys { iterations: *iterations, salt: salt.clone(), client_key, server_key: *server_key };
        if !bool::from(Sha256::digest(keys.client_key)[..].ct_eq(stored_key)) {
            return Err(ExchangeError::Proof);
        }
        let signature = hmac(server_key, &[said.as_bytes()]);
        Ok((keys, scram::server_final(&signature)))
    }
}

/// What the side that proves itself says about its TLS channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel<'a> {
    /// It has none, or none that a login could be bound to.
    None,
    /// It could be bound to, but the server doesn't offer it: an attacker who took the offer away is found.
    Unoffered,
    /// The login is bound to it by these data.
    Bound(&'a [u8]),
}

/// The side that proves itself, to a server.
pub(crate) struct Prover {
    /// What is said about the channel: the GS2 header.
    header: String,
    /// The header and the channel's data, as client-final repeats them.
    channel: Vec<u8>,
    client_first_bare: String,
    nonce: String,
}

impl Prover {
    /// Begins an exchange.
    pub(crate) fn new(nonce: String, channel: Channel<'_>) -> Self {
        let (flag, data) = match channel {
            Channel::None => ("n".to_owned(), &[][..]),
            Channel::Unoffered => ("y".to_owned(), &[][..]),
            Channel::Bound(data) => (format!("p={TLS_SERVER_END_POINT}"), data),
        };
        let header = format!("{flag},,");
        let channel = [header.as_bytes(), data].concat();
        Self { header, channel, client_first_bare: scram::client_first_bare(&nonce), nonce }
    }

    /// The mechanism of this exchange.
    pub(crate) fn mechanism(&self) -> &'static str {
        if self.header.starts_with('p') { SCRAM_SHA_256_PLUS } else { SCRAM_SHA_256 }
    }

    /// What the server is to be sent first.
    pub(crate) fn client_first(&self) -> String {
        format!("{}{}", self.header, self.client_first_bare)
    }

    /// What the server's challenge asks for: salt and iterations.
    ///
    /// # Errors
    /// For a challenge that isn't one, or not an answer to us.
    pub(crate) fn read(&self, server_first: &[u8]) -> Result<(Vec<u8>, u32), ExchangeError> {
        let first = scram::parse_server_first(server_first)?;
        // It must go on from ours: otherwise somebody could replay an old exchange.
        if first.nonce.len() <= self.nonce.len() || !first.nonce.starts_with(&self.nonce) {
            return Err(ExchangeError::Nonce);
        }
        if first.iterations > ITERATIONS_MAX {
            Err(ExchangeError::Iterations)
        } else {
            Ok((first.salt, first.iterations))
        }
    }

    /// The answer to a challenge that [`Prover::read`] has read, and the signature that the server must give.
    ///
    /// # Errors
    /// [`ExchangeError::OtherSecret`] if these keys don't fit; those of reading.
    pub(crate) fn answer(
        &self,
        server_first: &[u8],
        keys: &Keys,
    ) -> Result<(String, Signature), ExchangeError> {
        let text = std::str::from_utf8(server_first).map_err(|_| ScramError::NotUtf8)?;
        let first = scram::parse_server_first(server_first)?;
        if !keys.fit(&first.salt, first.iterations) {
            return Err(ExchangeError::OtherSecret);
        }
        let without_proof = scram::client_final_without_proof(&self.channel, first.nonce);
        let said = said(&self.client_first_bare, text, &without_proof);
        let stored_key: Key = Sha256::digest(keys.client_key).into();
        let mut proof = hmac(&stored_key, &[said.as_bytes()]);
        proof.iter_mut().zip(keys.client_key).for_each(|(byte, key)| *byte ^= key);
        let signature = hmac(&keys.server_key, &[said.as_bytes()]);
        Ok((scram::client_final(&without_proof, &proof), Signature(signature)))
    }
}

/// What a server that knows the secret must sign with.
pub(crate) struct Signature(Key);

impl Signature {
    /// Checks the server's final message.
    ///
    /// # Errors
    /// [`ExchangeError::Signature`], or why it is no such message.
    pub(crate) fn check(&self, server_final: &[u8]) -> Result<(), ExchangeError> {
        let given = scram::parse_server_final(server_final)?;
        if bool::from(given.ct_eq(&self.0)) { Ok(()) } else { Err(ExchangeError::Signature) }
    }
}

/// The text that both sides sign.
fn said(client_first_bare: &str, server_first: &str, without_proof: &str) -> String {
    format!("{client_first_bare},{server_first},{without_proof}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677, section 3.
    const NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
    const SERVER_NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    const CLIENT_FIRST: &[u8] = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    const CLIENT_FINAL: &[u8] = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                                  p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
    const SERVER_FINAL: &str = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

    fn pencil() -> Keys {
        Keys::derive("pencil", &scram::salt("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap(), 4096)
    }

    fn begin<'a>(
        verifier: &'a Verifier,
        channel: Option<&[u8]>,
        first: &[u8],
    ) -> Result<Verification<'a>, ExchangeError> {
        let mechanism = if first.starts_with(b"p=") { SCRAM_SHA_256_PLUS } else { SCRAM_SHA_256 };
        Verification::begin(verifier, channel, mechanism.as_bytes(), first, SERVER_NONCE)
    }

    #[test]
    fn the_example_of_the_rfc_is_verified_and_gives_the_keys_away() {
        let (keys, verifier) = (pencil(), pencil().verifier());
        let verification = begin(&verifier, None, CLIENT_FIRST).unwrap();
        let (taken, last) = verification.finish(CLIENT_FINAL).unwrap();
        assert_eq!(last, SERVER_FINAL);
        assert_eq!((taken.client_key, taken.server_key), (keys.client_key, keys.server_key));
    }

    #[test]
    fn keys_that_were_taken_over_log_in_and_check_the_server() {
        let verifier = pencil().verifier();
        let (keys, _) = begin(&verifier, None, CLIENT_FIRST).unwrap().finish(CLIENT_FINAL).unwrap();
        let prover = Prover::new(NONCE.to_owned(), Channel::None);
        let server = begin(&verifier, None, prover.client_first().as_bytes()).unwrap();
        let challenge = server.server_first.as_bytes();
        assert_eq!(prover.read(challenge).unwrap(), (verifier.salt.clone(), 4096));
        let (answer, signature) = prover.answer(challenge, &keys).unwrap();
        let (_, last) = server.finish(answer.as_bytes()).unwrap();
        signature.check(last.as_bytes()).unwrap();
        let forged = scram::server_final(&[7; KEY_BYTES]);
        assert_eq!(signature.check(forged.as_bytes()), Err(ExchangeError::Signature));
    }

    #[test]
    fn both_sides_agree_on_the_channel_that_both_see() {
        let verifier = pencil().verifier();
        let outcome = |offered: Option<&[u8]>, channel: Channel<'_>| {
            let prover = Prover::new(NONCE.to_owned(), channel);
            let first = prover.client_first();
            let mechanism = prover.mechanism().as_bytes();
            let server = Verification::begin(&verifier, offered, mechanism, first.as_bytes(), SERVER_NONCE)?;
            let (answer, _) = prover.answer(server.server_first.as_bytes(), &pencil())?;
            server.finish(answer.as_bytes()).map(|_| ())
        };
        assert_eq!(outcome(Some(b"hash"), Channel::Bound(b"hash")), Ok(()));
        assert_eq!(outcome(Some(b"hash"), Channel::Bound(b"other")), Err(ExchangeError::ChannelBinding));
        assert_eq!(outcome(Some(b"hash"), Channel::Unoffered), Err(ExchangeError::Negotiation));
        assert_eq!(outcome(Some(b"hash"), Channel::None), Ok(()));
        assert_eq!(outcome(None, Channel::Unoffered), Ok(()));
        assert_eq!(outcome(None, Channel::None), Ok(()));
    }

    #[test]
    fn a_wrong_password_gives_nothing() {
        let mut verifier = pencil().verifier();
        verifier.stored_key[0] ^= 1;
        let verification = begin(&verifier, None, CLIENT_FIRST).unwrap();
        assert_eq!(verification.finish(CLIENT_FINAL).unwrap_err(), ExchangeError::Proof);
    }

    #[test]
    fn keys_of_another_secret_are_not_tried() {
        let verifier = Keys::derive("pencil", b"another salt", 4096).verifier();
        let prover = Prover::new(NONCE.to_owned(), Channel::None);
        let server = begin(&verifier, None, prover.client_first().as_bytes()).unwrap();
        let answer = prover.answer(server.server_first.as_bytes(), &pencil());
        assert_eq!(answer.err(), Some(ExchangeError::OtherSecret));
    }

    #[test]
    fn a_server_that_replays_or_exaggerates_is_refused() {
        let prover = Prover::new("abc".to_owned(), Channel::None);
        assert_eq!(prover.read(b"r=abc,s=AA==,i=1").unwrap_err(), ExchangeError::Nonce);
        assert_eq!(prover.read(b"r=xabc,s=AA==,i=1").unwrap_err(), ExchangeError::Nonce);
        assert_eq!(prover.read(b"r=abcd,s=AA==,i=10000001").unwrap_err(), ExchangeError::Iterations);
        assert_eq!(prover.read(b"r=abcd,s=AA==,i=10000000").unwrap(), (vec![0], ITERATIONS_MAX));
    }

    #[test]
    fn channels_are_bound_exactly_where_both_sides_can() {
        let verifier = pencil().verifier();
        let refused = |channel: Option<&[u8]>, first: &[u8]| begin(&verifier, channel, first).err();
        // `y` is true only if no binding was offered; otherwise somebody has taken the offer away.
        assert_eq!(refused(None, b"y,,n=,r=x"), None);
        assert_eq!(refused(Some(b"hash"), b"y,,n=,r=x"), Some(ExchangeError::Negotiation));
        assert_eq!(refused(Some(b"hash"), b"n,,n=,r=x"), None);
        assert_eq!(refused(Some(b"hash"), b"p=tls-server-end-point,,n=,r=x"), None);
        assert_eq!(refused(Some(b"hash"), b"p=tls-unique,,n=,r=x"), Some(ExchangeError::Negotiation));
        assert_eq!(refused(None, b"p=tls-server-end-point,,n=,r=x"), Some(ExchangeError::Mechanism));
        let mixed = Verification::begin(
            &verifier,
            Some(b"h"),
            b"SCRAM-SHA-256",
            b"p=tls-server-end-point,,n=,r=x",
            "y",
        );
        assert_eq!(mixed.err(), Some(ExchangeError::Negotiation));
        let mixed = Verification::begin(&verifier, Some(b"h"), b"SCRAM-SHA-256-PLUS", b"n,,n=,r=x", "y");
        assert_eq!(mixed.err(), Some(ExchangeError::Negotiation));
    }

    #[test]
    fn a_client_that_sees_another_channel_is_refused() {
        let verifier = pencil().verifier();
        let verification = begin(&verifier, Some(b"ours"), b"p=tls-server-end-point,,n=,r=x").unwrap();
        let answer = |channel: &[u8]| {
            let nonce = format!("x{SERVER_NONCE}");
            scram::client_final(&scram::client_final_without_proof(channel, &nonce), &[0; KEY_BYTES])
        };
        let theirs = verification.finish(answer(b"p=tls-server-end-point,,theirs").as_bytes());
        assert_eq!(theirs.unwrap_err(), ExchangeError::ChannelBinding);
        let ours = verification.finish(answer(b"p=tls-server-end-point,,ours").as_bytes());
        assert_eq!(ours.unwrap_err(), ExchangeError::Proof);
    }

    #[test]
    fn passwords_are_prepared_as_postgresql_does() {
        // RFC 4013: a soft hyphen is mapped to nothing, a non-breaking space to a space.
        let plain = Keys::derive("IX y", b"salt", 1).client_key;
        assert_eq!(Keys::derive("I\u{ad}X\u{a0}y", b"salt", 1).client_key, plain);
        // What is prohibited is taken as it is.
        assert_ne!(Keys::derive("\u{7}", b"salt", 1).client_key, Keys::derive("", b"salt", 1).client_key);
    }

    #[test]
    fn secrets_are_not_shown() {
        let shown = format!("{:?} {:?}", pencil(), pencil().verifier());
        assert_eq!(shown, "Keys { iterations: 4096, .. } Verifier { iterations: 4096, .. }");
    }
}
