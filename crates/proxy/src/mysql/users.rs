//! Who may log in to a gate for MySQL, and what proves it.
//!
//! ```text
//! "ann" "*6BB4837EB74329105EE4568DDA7DC67ED2CA2AD9"
//! "bob" "a password"
//! "guest" ""
//! ```
//!
//! The first form is what a server keeps for `mysql_native_password`. The key for the server then comes out
//! of the client's own proof. With a password the gate can log in by every plug-in that it knows. The last
//! form is a user without a password, on the server as here.

use std::collections::HashMap;
use std::path::Path;

use wire::mysql::scramble::{caching_sha2, native};
use zeroize::Zeroizing;

use crate::users_file::{self, UsersError};

/// All users of a file.
#[derive(Debug, Default)]
pub struct Users {
    by_name: HashMap<String, Secret>,
    /// Some user's secret is that of `mysql_native_password`.
    has_native: bool,
}

/// What is known of a user's password.
pub(super) enum Secret {
    /// What `mysql_native_password` keeps.
    Native([u8; 20]),
    /// The password.
    Password(Zeroizing<Vec<u8>>),
    /// The user has no password.
    Nothing,
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Secret(…)")
    }
}

/// What the gate logs in to the server with.
#[derive(Clone)]
pub(super) enum Credential {
    /// The user has no password.
    Nothing,
    /// The key of `mysql_native_password`.
    Key(native::Key),
    /// The password.
    Password(Zeroizing<Vec<u8>>),
}

impl Users {
    /// Reads a file.
    ///
    /// # Errors
    /// The first thing that is wrong with the file. A secret is never quoted.
    pub fn load(path: &Path) -> Result<Self, UsersError> {
        let by_name = users_file::load(path, secret)?;
        let by_name: HashMap<_, _> =
            by_name.into_iter().map(|(name, secret)| (name, secret.unwrap_or(Secret::Nothing))).collect();
        let has_native = by_name.values().any(|secret| matches!(secret, Secret::Native(_)));
        Ok(Self { by_name, has_native })
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<&Secret> {
        self.by_name.get(std::str::from_utf8(name).ok()?)
    }

    /// Why a user was denied, for the log. The client isn't told.
    pub(super) fn why(&self, name: &[u8]) -> &'static str {
        match self.get(name) {
            None => "the users file doesn't have this user",
            Some(Secret::Nothing) => "a password was given, and the users file has none for this user",
            Some(Secret::Native(_) | Secret::Password(_)) => "the password isn't that of the users file",
        }
    }

    /// Whether a client whose proof by `caching_sha2_password` fails is asked for another: for any user or
    /// for none, so that nobody learns which users there are.
    pub(super) fn asks_again(&self) -> bool {
        self.has_native
    }
}

impl Secret {
    /// What the server is to be shown, if `proof` proves the password by `mysql_native_password`.
    pub(super) fn check_native(&self, scramble: &[u8], proof: &[u8]) -> Option<Credential> {
        match self {
            Self::Native(kept) => native::check(kept, scramble, proof).map(Credential::Key),
            Self::Password(password) => {
                let kept = native::kept(&native::key(password));
                native::check(&kept, scramble, proof).map(|_| Credential::Password(password.clone()))
            }
            Self::Nothing => is_nothing(proof).then_some(Credential::Nothing),
        }
    }

    /// What the server is to be shown, if `proof` proves the password by `caching_sha2_password`.
    pub(super) fn check_sha2(&self, scramble: &[u8], proof: &[u8]) -> Option<Credential> {
        let password = match self {
            Self::Password(password) => password,
            Self::Nothing => return is_nothing(proof).then_some(Credential::Nothing),
            Self::Native(_) => return None,
        };
        let kept = caching_sha2::kept(&caching_sha2::key(password));
        let key = caching_sha2::check(&kept, scramble, proof);
        key.map(|_| Credential::Password(password.clone()))
    }
}

/// Whether a proof is that of a user without a password: empty, or a NUL alone.
fn is_nothing(proof: &[u8]) -> bool {
    matches!(proof, [] | [0])
}

fn secret(text: &str) -> Result<Secret, (String, String)> {
    if let Some(kept) = native::parse_kept(text) {
        return Ok(Secret::Native(kept));
    }
    if text.starts_with("$A$005$") {
        let why = "has a secret of caching_sha2_password, from which no login can be made".to_owned();
        return Err((why, "write the user's password in its place, or use mysql_native_password".to_owned()));
    }
    Ok(Secret::Password(Zeroizing::new(text.as_bytes().to_vec())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_gives_what_the_server_is_shown() {
        let scramble = [7; 20];
        let key = native::key(b"secret");
        let proof = native::prove(&key, &scramble);
        let kept = secret("*14E65567ABDB5135D0CFD9A70B3032C179A49EE7").unwrap();
        let Some(Credential::Key(found)) = kept.check_native(&scramble, &proof) else {
            panic!("it is the password")
        };
        assert_eq!(found, key);
        assert!(kept.check_native(&[8; 20], &proof).is_none());
        assert!(kept.check_sha2(&scramble, &proof).is_none());
        let plain = secret("secret").unwrap();
        assert!(plain.check_native(&scramble, &proof).is_some());
        let proof = caching_sha2::prove(&caching_sha2::key(b"secret"), &scramble);
        assert!(matches!(plain.check_sha2(&scramble, &proof), Some(Credential::Password(_))));
        assert!(plain.check_sha2(&scramble, b"no").is_none());
    }

    #[test]
    fn a_user_without_a_password_proves_nothing_and_nobody_else_does() {
        for proof in [&b""[..], b"\0"] {
            assert!(matches!(Secret::Nothing.check_native(&[7; 20], proof), Some(Credential::Nothing)));
            assert!(matches!(Secret::Nothing.check_sha2(&[7; 20], proof), Some(Credential::Nothing)));
            assert!(secret("secret").unwrap().check_native(&[7; 20], proof).is_none());
            assert!(secret("secret").unwrap().check_sha2(&[7; 20], proof).is_none());
        }
        assert!(Secret::Nothing.check_native(&[7; 20], &[7; 20]).is_none());
    }

    #[test]
    fn a_secret_that_proves_nothing_is_refused_and_not_quoted() {
        let (why, hint) = secret("$A$005$hush").unwrap_err();
        assert!(why.contains("caching_sha2_password") && hint.contains("password"));
        assert!(!why.contains("hush"));
    }
}
