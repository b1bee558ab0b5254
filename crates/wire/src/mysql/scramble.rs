//! Proofs of passwords: how a client makes them, how a server checks them, and what a proxy gains from one.
//!
//! For `mysql_native_password` and `caching_sha2_password` a server keeps the hash of a key, and the key is a
//! hash of the password. A proof is the key, hidden by a hash of the scramble and of what the server keeps.
//! One who knows what the server keeps therefore gets the *key* from a valid proof, and can log in elsewhere
//! with it. `ed25519` signs the scramble, so that nothing can be gained from its proofs.
//!
//! An empty password is proved by an empty proof everywhere but in `ed25519`.

use sha1::{Digest, Sha1};
use sha2::{Sha256, Sha512};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// Bytes of a scramble that `mysql_native_password` and `caching_sha2_password` use.
pub const SCRAMBLE_LEN: usize = 20;

/// `mysql_native_password`: SHA-1, twice.
pub mod native {
    use super::{ConstantTimeEq, Digest, Sha1, Zeroizing, key_of};

    /// The plug-in's name.
    pub const NAME: &str = "mysql_native_password";

    /// What proves a password: its hash.
    pub type Key = Zeroizing<[u8; 20]>;

    /// The key of a password.
    #[must_use]
    pub fn key(password: &[u8]) -> Key {
        Zeroizing::new(Sha1::digest(password).into())
    }

    /// What a server keeps: the key's hash.
    #[must_use]
    pub fn kept(key: &Key) -> [u8; 20] {
        Sha1::digest(key.as_slice()).into()
    }

    /// Reads what a server keeps as its tables show it: an asterisk and 40 hexadecimal digits.
    #[must_use]
    pub fn parse_kept(text: &str) -> Option<[u8; 20]> {
        let digits = text.strip_prefix('*').filter(|digits| digits.len() == 40 && digits.is_ascii())?;
        let mut kept = [0; 20];
        for (at, byte) in kept.iter_mut().enumerate() {
            // No sign is a digit, though the conversion would take one.
            let pair = digits.get(2 * at..2 * at + 2).filter(|pair| !pair.starts_with('+'))?;
            *byte = u8::from_str_radix(pair, 16).ok()?;
        }
        Some(kept)
    }

    fn mask(kept: &[u8; 20], scramble: &[u8]) -> [u8; 20] {
        Sha1::new().chain_update(scramble).chain_update(kept).finalize().into()
    }

    /// The proof for a scramble.
    #[must_use]
    pub fn prove(key: &Key, scramble: &[u8]) -> [u8; 20] {
        let mask = mask(&kept(key), scramble);
        std::array::from_fn(|at| key[at] ^ mask[at])
    }

    /// Checks a proof: the key, if the proof is one for this scramble.
    #[must_use]
    pub fn check(kept: &[u8; 20], scramble: &[u8], proof: &[u8]) -> Option<Key> {
        key_of(proof, mask(kept, scramble), |key| self::kept(key).ct_eq(kept).into())
    }
}

/// `caching_sha2_password`: SHA-256, twice, for a server that has seen the password before.
///
/// A server that hasn't asks for the password itself ([`FULL`](caching_sha2::FULL)): in clear within TLS or
/// over a Unix socket, else encrypted with the server's RSA key.
pub mod caching_sha2 {
    use super::{ConstantTimeEq, Digest, Sha256, Zeroizing, key_of};

    /// The plug-in's name.
    pub const NAME: &str = "caching_sha2_password";
    /// The server's message: the proof was enough, and OK follows.
    pub const FAST: u8 = 3;
    /// The server's message: the password itself is asked for.
    pub const FULL: u8 = 4;
    /// The client's message: it asks for the server's public key.
    pub const ASK_FOR_KEY: u8 = 2;

    /// What proves a password: its hash.
    pub type Key = Zeroizing<[u8; 32]>;

    /// The key of a password.
    #[must_use]
    pub fn key(password: &[u8]) -> Key {
        Zeroizing::new(Sha256::digest(password).into())
    }

    /// What a server keeps in memory once it has seen the password: the key's hash.
    #[must_use]
    pub fn kept(key: &Key) -> [u8; 32] {
        Sha256::digest(key.as_slice()).into()
    }

    fn mask(kept: &[u8; 32], scramble: &[u8]) -> [u8; 32] {
        Sha256::new().chain_update(kept).chain_update(scramble).finalize().into()
    }

    /// The proof for a scramble.
    #[must_use]
    pub fn prove(key: &Key, scramble: &[u8]) -> [u8; 32] {
        let mask = mask(&kept(key), scramble);
        std::array::from_fn(|at| key[at] ^ mask[at])
    }

    /// Checks a proof: the key, if the proof is one for this scramble.
    #[must_use]
    pub fn check(kept: &[u8; 32], scramble: &[u8], proof: &[u8]) -> Option<Key> {
        key_of(proof, mask(kept, scramble), |key| self::kept(key).ct_eq(kept).into())
    }

    /// The password as it is sent in clear: with a NUL behind it.
    #[must_use]
    pub fn in_clear(password: &[u8]) -> Zeroizing<Vec<u8>> {
        Zeroizing::new([password, &[0]].concat())
    }

    /// The password from what came in clear, or what RSA and [`mask_password`] had hidden.
    #[must_use]
    pub fn from_clear(sent: &[u8]) -> Option<&[u8]> {
        sent.strip_suffix(&[0])
    }

    /// Hides a password (with its NUL) before it is encrypted by RSA, or uncovers it behind: both are the
    /// same.
    #[must_use]
    pub fn mask_password(sent: &[u8], scramble: &[u8]) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(sent.iter().zip(scramble.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect())
    }
}

/// The key that a proof hides under `mask`, if it is one whose hash the server keeps.
fn key_of<const N: usize>(
    proof: &[u8],
    mask: [u8; N],
    is_known: impl FnOnce(&Zeroizing<[u8; N]>) -> bool,
) -> Option<Zeroizing<[u8; N]>> {
    let proof: &[u8; N] = proof.try_into().ok()?;
    let key = Zeroizing::new(std::array::from_fn(|at| proof[at] ^ mask[at]));
    is_known(&key).then_some(key)
}

/// MariaDB's `ed25519`: the client signs the server's scramble of 32 bytes.
pub mod ed25519 {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD_NO_PAD;
    use ed25519_dalek::hazmat::{ExpandedSecretKey, raw_sign};
    use ed25519_dalek::{Signature, VerifyingKey};

    use super::{Digest, Sha512};

    /// The plug-in's name.
    pub const NAME: &str = "client_ed25519";
    /// Bytes of a scramble.
    pub const SCRAMBLE_LEN: usize = 32;

    /// Where RFC 8032 hashes a seed of 32 bytes, the plug-in hashes the password.
    fn secret(password: &[u8]) -> ExpandedSecretKey {
        ExpandedSecretKey::from_bytes(&Sha512::digest(password).into())
    }

    /// What a server keeps: the public key.
    #[must_use]
    pub fn kept(password: &[u8]) -> [u8; 32] {
        VerifyingKey::from(&secret(password)).to_bytes()
    }

    /// Reads what a server keeps as its tables show it: 43 digits of Base64.
    #[must_use]
    pub fn parse_kept(text: &str) -> Option<[u8; 32]> {
        STANDARD_NO_PAD.decode(text).ok()?.try_into().ok()
    }

    /// The proof for a scramble.
    #[must_use]
    pub fn prove(password: &[u8], scramble: &[u8]) -> [u8; 64] {
        let secret = secret(password);
        let public = VerifyingKey::from(&secret);
        raw_sign::<Sha512>(&secret, scramble, &public).to_bytes()
    }

    /// Whether a proof is one for this scramble.
    #[must_use]
    pub fn check(kept: &[u8; 32], scramble: &[u8], proof: &[u8]) -> bool {
        let (Ok(public), Ok(proof)) = (VerifyingKey::from_bytes(kept), Signature::from_slice(proof)) else {
            return false;
        };
        public.verify_strict(scramble, &proof).is_ok()
    }
}
