//! A client's identity, where the gate itself has to know it: the configured alternative to login by relay.
//!
//! ```text
//!                      users file ─┐
//! client ── challenge ── secret ◄──┴── auth_query (a connection of its own)
//!    └── proof ──► keys ──► the gate's own logins to the server ──► pools that refill themselves
//! ```
//!
//! [`Authentication`] is an immutable value among the gate's settings: a reload builds another and swaps it
//! in with them; logins in progress end with the one they began with. What lives longer (counted failures,
//! the connection of `auth_query`) is beside it, in the gate.

use std::path::PathBuf;
use std::sync::Arc;

use scram::{ITERATIONS, Keys, Verifier, hmac};
use secret::Secret;
use users::{User, Users};

pub(crate) mod scram;
pub(crate) mod secret;
pub(crate) mod users;

pub use crate::sql::users_file::UsersError;

/// The query that finds a user's secret unless another is configured. A user that can't log in, or can't any
/// more, has none.
pub const AUTH_QUERY: &str = "SELECT rolname, CASE WHEN rolvaliduntil OPERATOR(pg_catalog.<=) pg_catalog.now() \
                              THEN NULL ELSE rolpassword END FROM pg_catalog.pg_authid \
                              WHERE rolname OPERATOR(pg_catalog.=) $1 AND rolcanlogin";

/// How clients prove who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Method {
    /// The server asks them, through the gate.
    #[default]
    Relay,
    /// SCRAM-SHA-256.
    Scram,
    /// md5; SCRAM where that is what is stored of a user.
    Md5,
    /// Not at all; but the user must be known.
    Trust,
}

/// Where secrets come from that aren't in the users file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The role that asks. Its own secret, if the server wants one, is in the users file.
    pub user: String,
    /// The database in which it asks.
    pub database: String,
    /// The statement: takes the user's name as `$1`, returns name and secret.
    pub sql: String,
}

/// What an operator chooses about authentication.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct AuthSettings {
    /// How clients prove who they are.
    pub method: Method,
    /// The file of the users that may log in.
    pub users_file: Option<PathBuf>,
    /// Where to ask for those that aren't in the file.
    pub query: Option<Query>,
    /// The most failed logins of one address in a minute. Default 100; `None` is no bound.
    pub failures_max: Option<u32>,
    /// Whether a password may go to the server in clear text over an unencrypted network.
    pub allow_cleartext: bool,
    /// Whether the gate's own logins to the server are bound to their TLS channel.
    pub channel_binding: ChannelBinding,
}

/// Whether a login by SCRAM is bound to the TLS channel that it takes: `channel_binding` of libpq, word by
/// word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ChannelBinding {
    /// Never.
    Disable,
    /// Where the server offers it.
    #[default]
    Prefer,
    /// Or there is no login.
    Require,
}

/// Everything that decides about a login, as one value.
#[derive(Debug, Default)]
pub struct Authentication {
    pub(crate) settings: AuthSettings,
    users: Users,
    /// How an unknown user is challenged: like those that are known.
    mock: Mock,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Mock {
    method: Challenge,
    iterations: u32,
}

/// What a client is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Challenge {
    #[default]
    Scram,
    Md5,
}

/// Why `auth_user` can't be used.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// The users file is wrong.
    #[error("users_file: {0}")]
    Users(#[from] UsersError),
    /// The gate can't log in with what is stored.
    #[error(
        "users_file: {file}: the secret of auth_user {user:?} is a SCRAM secret, which verifies others but can't log in \
         to the server; write its password, or an empty secret if the server trusts the gate"
    )]
    AuthUser {
        /// The file.
        file: PathBuf,
        /// The user.
        user: String,
    },
}

impl Authentication {
    /// Reads what the settings name.
    ///
    /// # Errors
    /// What is wrong with the users file.
    pub fn load(settings: AuthSettings) -> Result<Self, AuthError> {
        let users = match &settings.users_file {
            Some(path) => Users::load(path)?,
            None => Users::default(),
        };
        if let (Some(query), Some(file)) = (&settings.query, &settings.users_file) {
            let known = users.get(&query.user).and_then(|user| user.secret.as_ref());
            if matches!(known, Some(Secret::Scram(_))) {
                return Err(AuthError::AuthUser { file: file.clone(), user: query.user.clone() });
            }
        }
        let mock = Mock::of(&settings, &users);
        Ok(Self { settings, users, mock })
    }

    /// How many users the file has.
    pub fn users(&self) -> usize {
        self.users.len()
    }

    /// The key that belongs to the file's secrets. A gate keeps that of its start, also after a reload.
    pub(crate) fn key_of_nobody(&self) -> KeyOfNobody {
        self.users.key_of_nobody()
    }

    /// A user of the file.
    pub(crate) fn user(&self, name: &str) -> Option<&Arc<User>> {
        self.users.get(name)
    }

    /// What to ask of a client, and whether a right answer can exist.
    pub(crate) fn challenge(&self, user: Option<&User>) -> (Challenge, Result<(), Doomed>) {
        let secret = match user {
            None => return (self.mock.method, Err(Doomed::Unknown)),
            Some(user) => user.secret.as_ref().ok_or(Doomed::NoSecret),
        };
        match (self.settings.method, secret) {
            (_, Err(doomed)) => (self.mock.method, Err(doomed)),
            (Method::Md5, Ok(Secret::Md5(_) | Secret::Plain(_))) => (Challenge::Md5, Ok(())),
            (_, Ok(Secret::Scram(_) | Secret::Plain(_))) => (Challenge::Scram, Ok(())),
            (_, Ok(Secret::Md5(_))) => (Challenge::Scram, Err(Doomed::OnlyMd5)),
        }
    }

    /// A verifier that no proof satisfies, for a user without one. It is always the same for one name, of the
    /// kind that known users have, so that a stranger doesn't learn which users exist.
    pub(crate) fn mock_verifier(&self, user: &str, nobody: &KeyOfNobody) -> Verifier {
        let key = |purpose: &[u8]| hmac(nobody, &[purpose, user.as_bytes()]);
        Verifier {
            iterations: self.mock.iterations,
            salt: mock_salt(user, nobody),
            stored_key: key(b"stored"),
            server_key: key(b"server"),
        }
    }
}

impl Mock {
    fn of(settings: &AuthSettings, users: &Users) -> Self {
        let has_md5 = users.secrets().any(|secret| !matches!(secret, Secret::Scram(_)));
        let method = if settings.method == Method::Md5 && (has_md5 || users.secrets().next().is_none()) {
            Challenge::Md5
        } else {
            Challenge::Scram
        };
        let mut counts = std::collections::BTreeMap::new();
        for secret in users.secrets() {
            if let Secret::Scram(verifier) = secret {
                *counts.entry(verifier.iterations).or_insert(0_usize) += 1;
            }
        }
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        Self { method, iterations: most.map_or(ITERATIONS, |(iterations, _)| iterations) }
    }
}

/// Why no answer of the client can be right. Told to the log, never to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Doomed {
    #[error("there is no such user")]
    Unknown,
    #[error("the user has no password, or none that is still valid")]
    NoSecret,
    #[error("the user has only an md5 hash, and auth is scram-sha-256")]
    OnlyMd5,
}

/// What the gate logs in to the server with, in a client's name.
#[derive(Debug)]
pub(crate) enum Credentials {
    /// Nothing: the server must trust the gate.
    Nothing,
    /// What is known of the user.
    Known(Arc<User>),
    /// Taken over from the client's proof.
    Keys(Arc<Keys>),
}

/// Makes up what is told of users who don't exist.
pub(crate) type KeyOfNobody = [u8; 32];

/// The salt for a user without one of its own, of PostgreSQL's length.
pub(crate) fn mock_salt(user: &str, nobody: &KeyOfNobody) -> Vec<u8> {
    hmac(nobody, &[b"salt", user.as_bytes()])[..16].to_vec()
}

#[cfg(test)]
mod tests;
