//! RSA for passwords: a client that isn't within TLS encrypts its password for the other side's public key.
//!
//! The encryption is OAEP with SHA-1, of the password with its NUL, which the scramble hides besides. A key
//! isn't vouched for by anybody. So whoever can change what passes between both sides gets the password, and
//! whoever only listens doesn't. Therefore the gate encrypts for a server of this machine only.

use aws_lc_rs::encoding::{AsDer as _, PublicKeyX509Der};
use aws_lc_rs::rsa::{
    KeySize, OAEP_SHA1_MGF1SHA1, OaepPrivateDecryptingKey, OaepPublicEncryptingKey, PrivateDecryptingKey,
    PublicEncryptingKey,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use wire::mysql::scramble::{SCRAMBLE_LEN, caching_sha2};
use zeroize::Zeroizing;

use crate::stream::Peer;

const BEGIN: &str = "-----BEGIN PUBLIC KEY-----";
const END: &str = "-----END PUBLIC KEY-----";
/// Characters of a line of PEM.
const LINE: usize = 64;

/// Why a password can't be sent encrypted.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum Unencrypted {
    #[error("nobody vouches for the RSA key that it shows")]
    Unvouched,
    #[error("the server's answer is no RSA key of 2,048 to 8,192 bits")]
    NoKey,
    #[error("the password is too long for the server's RSA key")]
    TooLong,
}

/// A pair of keys.
pub(super) struct Pair {
    private: OaepPrivateDecryptingKey,
    pem: String,
}

impl Pair {
    /// A new pair, of as many bits as a server's own has. Takes a tenth of a second of a processor; `None`:
    /// the system gives no chance.
    pub(super) fn generate() -> Option<Self> {
        let private = PrivateDecryptingKey::generate(KeySize::Rsa2048).ok()?;
        let der: PublicKeyX509Der<'_> = private.public_key().as_der().ok()?;
        let pem = pem(der.as_ref());
        Some(Self { private: OaepPrivateDecryptingKey::new(private).ok()?, pem })
    }

    /// The public key, as a client is told it.
    pub(super) fn public(&self) -> &str {
        &self.pem
    }

    /// The password that was encrypted for this pair and this scramble.
    pub(super) fn decrypt(&self, sent: &[u8], scramble: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let mut room = Zeroizing::new(vec![0; self.private.min_output_size()]);
        let hidden = self.private.decrypt(&OAEP_SHA1_MGF1SHA1, sent, &mut room, None).ok()?;
        let clear = caching_sha2::mask_password(hidden, short(scramble));
        caching_sha2::from_clear(&clear).map(|password| Zeroizing::new(password.to_vec()))
    }
}

/// Encrypts a password for the public key that a server shows.
pub(super) fn encrypt(
    (server, pem): (Peer, &[u8]),
    password: &[u8],
    scramble: &[u8],
) -> Result<Vec<u8>, Unencrypted> {
    if !server.is_loopback() {
        return Err(Unencrypted::Unvouched);
    }
    let der = der(pem).ok_or(Unencrypted::NoKey)?;
    let key = PublicEncryptingKey::from_der(&der).map_err(|_| Unencrypted::NoKey)?;
    let key = OaepPublicEncryptingKey::new(key).map_err(|_| Unencrypted::NoKey)?;
    let hidden = caching_sha2::mask_password(&caching_sha2::in_clear(password), short(scramble));
    let mut out = vec![0; key.ciphertext_size()];
    let sent = key.encrypt(&OAEP_SHA1_MGF1SHA1, &hidden, &mut out, None);
    let length = sent.map_err(|_| Unencrypted::TooLong)?.len();
    out.truncate(length);
    Ok(out)
}

/// What of a scramble hides a password.
fn short(scramble: &[u8]) -> &[u8] {
    scramble.get(..SCRAMBLE_LEN).unwrap_or(scramble)
}

fn pem(der: &[u8]) -> String {
    let digits = STANDARD.encode(der);
    let mut out = format!("{BEGIN}\n");
    let mut rest = digits.as_str();
    while !rest.is_empty() {
        let (line, behind) = rest.split_at(rest.len().min(LINE));
        out.push_str(line);
        out.push('\n');
        rest = behind;
    }
    out.push_str(END);
    out.push('\n');
    out
}

fn der(pem: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(pem).ok()?;
    let (_, text) = text.split_once(BEGIN)?;
    let (digits, _) = text.split_once(END)?;
    let digits: String = digits.split_ascii_whitespace().collect();
    STANDARD.decode(digits).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_read_with_its_key_and_scramble_only() {
        let pair = Pair::generate().unwrap();
        assert!(pair.public().lines().all(|line| line.len() <= LINE));
        let sent = encrypt((Peer::Unix, pair.public().as_bytes()), b"secret", &[7; 20]).unwrap();
        assert_eq!(pair.decrypt(&sent, &[7; 20]).unwrap().as_slice(), b"secret");
        assert_eq!(pair.decrypt(&sent, &[8; 20]), None);
        assert_eq!(pair.decrypt(&sent[1..], &[7; 20]), None);
        assert_eq!(pair.decrypt(b"secret\0", &[7; 20]), None);
        assert_eq!(Pair::generate().unwrap().decrypt(&sent, &[7; 20]), None);
    }

    #[test]
    fn a_password_that_cannot_be_encrypted_is_told() {
        let pair = Pair::generate().unwrap();
        let public = (Peer::Unix, pair.public().as_bytes());
        // OAEP with SHA-1 takes 42 bytes of 256, and the NUL takes another.
        assert!(encrypt(public, &[b'a'; 213], &[7; 20]).is_ok());
        assert_eq!(encrypt(public, &[b'a'; 214], &[7; 20]), Err(Unencrypted::TooLong));
        for wrong in [&b""[..], b"\xff", b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"] {
            assert_eq!(encrypt((Peer::Unix, wrong), b"secret", &[7; 20]), Err(Unencrypted::NoKey));
        }
    }
}
