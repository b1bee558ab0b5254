//! What is stored of a user's password, in the forms that PostgreSQL and PgBouncer know: a SCRAM secret, an
//! md5 hash, or the password itself.

use std::sync::Arc;

use md5::{Digest, Md5};
use parking_lot::Mutex;
use subtle::ConstantTimeEq;
use wire::postgres::scram;
use zeroize::Zeroizing;

use super::scram::{ITERATIONS_MAX, Keys, Verifier};

/// Hexadecimal digits of an md5 hash.
const MD5_DIGITS: usize = 32;

/// What is known of a user's password.
pub(crate) enum Secret {
    /// Verifies a client. Logs in to the server only with the keys that the client's proof gives away.
    Scram(Verifier),
    /// Verifies an md5 response, and gives one.
    Md5(Md5Hash),
    /// Can do everything.
    Plain(Password),
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Scram(_) => "Scram(..)",
            Self::Md5(_) => "Md5(..)",
            Self::Plain(_) => "Plain(..)",
        })
    }
}

/// A text begins like a SCRAM secret, but is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("begins like a SCRAM secret, but isn't one")]
pub(crate) struct BrokenScramSecret;

impl Secret {
    /// Reads a stored secret: `SCRAM-SHA-256$…`, `md5` and 32 digits, or a password.
    ///
    /// # Errors
    /// What begins like a SCRAM secret but is none would be a strange password; it is taken for a slip.
    pub(crate) fn parse(text: &str) -> Result<Self, BrokenScramSecret> {
        if let Some(rest) = text.strip_prefix("SCRAM-SHA-256$") {
            return parse_verifier(rest).map(Self::Scram).ok_or(BrokenScramSecret);
        }
        let digits =
            text.strip_prefix("md5").and_then(|hash| <[u8; MD5_DIGITS]>::try_from(hash.as_bytes()).ok());
        match digits.filter(|digits| digits.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))) {
            Some(digits) => Ok(Self::Md5(Md5Hash(Zeroizing::new(digits)))),
            None => Ok(Self::Plain(Password::new(text))),
        }
    }

    /// What is secret of it.
    pub(crate) fn bytes(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(match self {
            Self::Scram(verifier) => [verifier.stored_key, verifier.server_key].concat(),
            Self::Md5(hash) => hash.0.to_vec(),
            Self::Plain(password) => password.text.as_bytes().to_vec(),
        })
    }
}

/// `4096:SALT$STOREDKEY:SERVERKEY`.
fn parse_verifier(text: &str) -> Option<Verifier> {
    let (salting, keys) = text.split_once('$')?;
    let (iterations, salt) = salting.split_once(':')?;
    let (stored_key, server_key) = keys.split_once(':')?;
    let iterations = iterations.parse().ok().filter(|count| (1..=ITERATIONS_MAX).contains(count))?;
    Some(Verifier {
        iterations,
        salt: scram::salt(salt).ok().filter(|salt| !salt.is_empty())?,
        stored_key: scram::key('p', stored_key).ok()?,
        server_key: scram::key('v', server_key).ok()?,
    })
}

/// The md5 hash of a password with the user's name, as digits.
pub(crate) struct Md5Hash(Zeroizing<[u8; MD5_DIGITS]>);

impl Md5Hash {
    /// Of a password.
    pub(crate) fn new(user: &str, password: &str) -> Self {
        Self(md5_digits(&[password.as_bytes(), user.as_bytes()]))
    }

    /// The answer to a challenge with this salt: `md5` and 32 digits.
    pub(crate) fn response(&self, salt: [u8; 4]) -> Zeroizing<String> {
        let digits = md5_digits(&[&self.0[..], &salt]);
        Zeroizing::new(format!("md5{}", String::from_utf8_lossy(&digits[..])))
    }

    /// Whether a client's answer is right.
    pub(crate) fn accepts(&self, salt: [u8; 4], answer: &[u8]) -> bool {
        self.response(salt).as_bytes().ct_eq(answer).into()
    }
}

fn md5_digits(parts: &[&[u8]]) -> Zeroizing<[u8; MD5_DIGITS]> {
    let mut hash = Md5::new();
    parts.iter().for_each(|part| hash.update(part));
    let mut digits = Zeroizing::new([0; MD5_DIGITS]);
    for (pair, byte) in digits.chunks_exact_mut(2).zip(hash.finalize()) {
        pair[0] = b"0123456789abcdef"[usize::from(byte >> 4)];
        pair[1] = b"0123456789abcdef"[usize::from(byte & 15)];
    }
    digits
}

/// A password, and the keys that were last derived from it: hashing takes milliseconds.
pub(crate) struct Password {
    text: Zeroizing<String>,
    keys: Mutex<Option<Arc<Keys>>>,
}

impl Password {
    fn new(text: &str) -> Self {
        Self { text: Zeroizing::new(text.to_owned()), keys: Mutex::new(None) }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// The keys for this salt. May take milliseconds: not for a thread that others wait for.
    pub(crate) fn keys(&self, salt: &[u8], iterations: u32) -> Arc<Keys> {
        let known = self.known_keys().filter(|keys| keys.fit(salt, iterations));
        known.unwrap_or_else(|| {
            let keys = Arc::new(Keys::derive(&self.text, salt, iterations));
            *self.keys.lock() = Some(Arc::clone(&keys));
            keys
        })
    }

    /// Whatever keys were derived last.
    pub(crate) fn known_keys(&self) -> Option<Arc<Keys>> {
        self.keys.lock().clone()
    }
}

/// Writes a SCRAM secret as PostgreSQL stores it; for tests.
#[cfg(test)]
pub(crate) fn scram_secret(verifier: &Verifier) -> String {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let Verifier { iterations, salt, stored_key, server_key } = verifier;
    let [salt, stored, server] = [&salt[..], stored_key, server_key].map(|bytes| STANDARD.encode(bytes));
    format!("SCRAM-SHA-256${iterations}:{salt}${stored}:{server}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_of_secrets_are_told_apart() {
        let verifier = Keys::derive("pencil", b"0123456789abcdef", 4096).verifier();
        let text = scram_secret(&verifier);
        assert!(matches!(Secret::parse(&text), Ok(Secret::Scram(read)) if read == verifier));
        assert!(matches!(Secret::parse("md5a3c8b9f5a9a0cbb0f1d9d2a1e0c4b3a2"), Ok(Secret::Md5(_))));
        for plain in [
            "pencil",
            "md5",
            "md5x3c8b9f5a9a0cbb0f1d9d2a1e0c4b3a2",
            "md5A3C8B9F5A9A0CBB0F1D9D2A1E0C4B3A2",
            "SCRAM",
        ] {
            assert!(
                matches!(Secret::parse(plain), Ok(Secret::Plain(read)) if read.as_str() == plain),
                "{plain}"
            );
        }
    }

    #[test]
    fn a_broken_scram_secret_is_no_password() {
        let whole = scram_secret(&Keys::derive("pencil", b"0123456789abcdef", 4096).verifier());
        for broken in [
            whole[..whole.len() - 1].to_owned(),
            whole.replace(":MDEy", ":MDE"),
            whole.replace("4096", "0"),
            whole.replace("4096", "-1"),
            whole.replace("4096", "99999999"),
            "SCRAM-SHA-256$".to_owned(),
        ] {
            assert!(Secret::parse(&broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn md5_is_postgresqls() {
        // md5('secret' || 'ann'), then md5(digits || salt).
        let hash = Md5Hash::new("ann", "secret");
        let stored = format!("md5{}", String::from_utf8_lossy(&hash.0[..]));
        assert_eq!(stored, "md59d792a3a8853c2411afb9163d088c036");
        let Ok(Secret::Md5(read)) = Secret::parse(&stored) else { panic!("an md5 hash") };
        let salt = [1, 2, 3, 4];
        assert!(read.accepts(salt, hash.response(salt).as_bytes()));
        assert!(!read.accepts([1, 2, 3, 5], hash.response(salt).as_bytes()));
        assert!(!read.accepts(salt, b"md5"));
    }

    #[test]
    fn a_password_is_hashed_once_for_a_salt() {
        let password = Password::new("pencil");
        let keys = password.keys(b"salt", 1);
        assert!(Arc::ptr_eq(&keys, &password.keys(b"salt", 1)));
        assert!(!Arc::ptr_eq(&keys, &password.keys(b"salt", 2)));
    }

    #[test]
    fn secrets_are_not_shown() {
        assert_eq!(format!("{:?}", Secret::parse("pencil").unwrap()), "Plain(..)");
    }
}
