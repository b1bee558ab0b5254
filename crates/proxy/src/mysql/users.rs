//! Who may log in to a gate for MySQL, and what proves it. [`auth_query`](super::auth_query) has the users
//! that aren't in the file.
//!
//! ```text
//! "ann" "*6BB4837EB74329105EE4568DDA7DC67ED2CA2AD9"
//! "cid" "$A$005$…"
//! "bob" "a password"
//! "guest" ""
//! ```
//!
//! The first form is what a server keeps for `mysql_native_password`. The key for the server then comes out
//! of the client's own proof. The second form is what a server keeps for `caching_sha2_password`: the client
//! sends its password itself, once. With a password the gate can log in by every plug-in that it knows. The
//! last form is a user without a password, on the server as here.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use sha2::{Digest as _, Sha256};
use wire::mysql::salted::Salted;
use wire::mysql::scramble::{caching_sha2, native};
use zeroize::Zeroizing;

use crate::sql::users_file::{self, UsersError};

/// The users that may log in: those of a file, and those whom the server knows if it is asked.
#[derive(Debug, Default)]
pub struct Users {
    by_name: HashMap<String, Arc<Secret>>,
    pub(super) query: Option<Query>,
    /// What each user of the file has, sorted.
    kinds: Vec<Kind>,
    /// The thousands of rounds of the hash that the server told last; 0: none.
    rounds: AtomicU16,
}

/// The thousands of rounds that a server has by default.
const ROUNDS: u16 = 5;

/// A kind of secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Native,
    /// With so many thousands of rounds, which take their time.
    Salted(u16),
    /// A password, or none.
    Password,
}

/// A star and at least this many hexadecimal digits are a damaged secret, not a password.
const NEARLY_KEPT: usize = 32;

/// Chooses what users are asked for who don't exist, by their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice([u8; 32]);

/// Where secrets come from that aren't in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The user that asks. Its own password, if it has one, is in the file.
    pub user: String,
    /// The statement: takes the user's name as `?`, returns name and secret. `None`: the built-in one.
    pub sql: Option<String>,
}

/// Why the users can't be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file is wrong.
    #[error("users_file: {0}")]
    File(#[from] UsersError),
    /// The gate can't log in with what is stored.
    #[error(
        "users_file: {file}: the secret of auth_user {user:?} is a hash, which verifies others but can't log in to \
         the server; write its password, or an empty secret if it has none"
    )]
    AuthUser {
        /// The file.
        file: PathBuf,
        /// The user.
        user: String,
    },
}

/// What is known of a user's password.
pub(super) enum Secret {
    /// What `mysql_native_password` keeps.
    Native([u8; 20]),
    /// What `caching_sha2_password` keeps.
    Salted(Salted),
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

/// A file that isn't there can be made.
fn with_maker(path: &Path, error: UsersError) -> UsersError {
    if error.hint.is_some() || path.exists() {
        return error;
    }
    let hint = "`gatekeeper users import` makes one from the accounts of the server (docs/guide/mysql.md)";
    UsersError { hint: Some(hint.to_owned()), ..error }
}

impl Users {
    /// Reads a file.
    ///
    /// # Errors
    /// The first thing that is wrong with the file. A secret is never quoted.
    pub fn load(path: &Path, query: Option<Query>) -> Result<Self, LoadError> {
        let by_name = users_file::load(path, secret).map_err(|error| with_maker(path, error))?.into_iter();
        let by_name: HashMap<_, _> =
            by_name.map(|(name, secret)| (name, Arc::new(secret.unwrap_or(Secret::Nothing)))).collect();
        let is_hash = |secret: &Arc<Secret>| secret.kind() != Kind::Password;
        let user = query.as_ref().map(|query| &query.user);
        if let Some(user) = user.filter(|user| by_name.get(*user).is_some_and(is_hash)) {
            return Err(LoadError::AuthUser { file: path.to_owned(), user: user.clone() });
        }
        let mut kinds: Vec<_> = by_name.values().map(|secret| secret.kind()).collect();
        kinds.sort_unstable();
        Ok(Self { by_name, query, kinds, rounds: AtomicU16::new(0) })
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<&Arc<Secret>> {
        self.by_name.get(std::str::from_utf8(name).ok()?)
    }

    /// Why a user of whom this is known was denied, for the log. The client isn't told.
    pub(super) fn why(&self, secret: Option<&Secret>) -> &'static str {
        match (secret, &self.query) {
            (None, None) => "the users file doesn't have this user",
            (None, Some(_)) => {
                "neither the users file nor auth_query has this user with a secret of mysql_native_password or \
                 caching_sha2_password"
            }
            (Some(Secret::Nothing), _) => "a password was given, and this user has none",
            (Some(Secret::Native(_) | Secret::Salted(_) | Secret::Password(_)), _) => {
                "the password isn't that of the users file or auth_query"
            }
        }
    }

    /// What is known of a user's password, or something made up of the same kind as other users have: nobody
    /// learns by logging in which users there are. `greeted` has the plug-in that clients are
    /// greeted with.
    pub(super) fn or_made_up(
        &self,
        secret: Option<&Arc<Secret>>,
        (name, greeted): (&[u8], (&str, Choice)),
    ) -> Arc<Secret> {
        secret.map_or_else(|| Arc::new(self.kind_of_nobody(name, greeted).made_up()), Arc::clone)
    }

    /// The choice that belongs to these secrets.
    pub(super) fn choice(&self) -> Choice {
        let secrets = self.by_name.iter().map(|(name, secret)| (name, secret.bytes()));
        Choice(users_file::key_of_nobody(secrets))
    }

    fn kind_of_nobody(&self, name: &[u8], (plugin, choice): (&str, Choice)) -> Kind {
        let rounds = match self.rounds.load(Ordering::Relaxed) {
            0 => ROUNDS,
            known => known,
        };
        let kinds = match (&self.query, plugin) {
            (None, _) => &self.kinds[..],
            (Some(_), caching_sha2::NAME) => &[Kind::Salted(rounds)],
            (Some(_), _) => &[Kind::Native],
        };
        // Each is as likely as among the users. Another user moves few names to another kind.
        let at = (u128::from(choice.of(name)) * kinds.len() as u128) >> u64::BITS;
        kinds.get(at as usize).copied().unwrap_or(Kind::Password)
    }

    /// The server has told a user's secret. Others that it may have are likely alike.
    pub(super) fn note(&self, secret: &Secret) {
        if let Secret::Salted(salted) = secret {
            self.rounds.store(salted.thousands(), Ordering::Relaxed);
        }
    }
}

impl Choice {
    fn of(self, name: &[u8]) -> u64 {
        let digest = Sha256::new().chain_update(self.0).chain_update(name).finalize();
        digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

impl Kind {
    /// A secret that nobody knows.
    fn made_up(self) -> Secret {
        match self {
            Self::Native => Secret::Native(rand::random()),
            Self::Salted(thousands) => {
                Secret::Salted(Salted::of_nobody(thousands, std::array::from_fn(|_| rand::random())))
            }
            Self::Password => Secret::Password(Zeroizing::new(rand::random::<[u8; 32]>().to_vec())),
        }
    }
}

impl Secret {
    /// What a server keeps of a user; `None` if it proves nothing.
    pub(super) fn kept_by_server(text: &str) -> Option<Self> {
        match text {
            "" => Some(Self::Nothing),
            _ => native::parse_kept(text).map(Self::Native).or_else(|| Salted::parse(text).map(Self::Salted)),
        }
    }

    fn bytes(&self) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(match self {
            Self::Native(kept) => kept.to_vec(),
            Self::Salted(salted) => salted.to_hexadecimal().into_bytes(),
            Self::Password(password) => return password.clone(),
            Self::Nothing => Vec::new(),
        })
    }

    fn kind(&self) -> Kind {
        match self {
            Self::Native(_) => Kind::Native,
            Self::Salted(salted) => Kind::Salted(salted.thousands()),
            Self::Password(_) | Self::Nothing => Kind::Password,
        }
    }

    /// Whether there is anything to prove.
    pub(super) fn proves(&self) -> bool {
        !matches!(self, Self::Nothing)
    }

    /// The credential for a login of the gate's own as this user, without any proof of a client's.
    pub(super) fn of_own(&self) -> Option<Credential> {
        match self {
            Self::Password(password) => Some(Credential::Password(password.clone())),
            Self::Nothing => Some(Credential::Nothing),
            Self::Native(_) | Self::Salted(_) => None,
        }
    }

    /// What the server is to be shown, if `proof` proves the password by `mysql_native_password`.
    pub(super) fn check_native(&self, scramble: &[u8], proof: &[u8]) -> Option<Credential> {
        match self {
            Self::Native(kept) => native::check(kept, scramble, proof).map(Credential::Key),
            Self::Password(password) => {
                let kept = native::kept(&native::key(password));
                native::check(&kept, scramble, proof).map(|_| Credential::Password(password.clone()))
            }
            Self::Nothing => is_nothing(proof).then_some(Credential::Nothing),
            Self::Salted(_) => None,
        }
    }

    /// What the server is to be shown, if `proof` proves the password by `caching_sha2_password`.
    pub(super) fn check_sha2(&self, scramble: &[u8], proof: &[u8]) -> Option<Credential> {
        let password = match self {
            Self::Password(password) => password,
            Self::Nothing => return is_nothing(proof).then_some(Credential::Nothing),
            Self::Native(_) | Self::Salted(_) => return None,
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
    if let Some(salted) = Salted::parse(text) {
        return Ok(Secret::Salted(salted));
    }
    if let Some(digits) = text.strip_prefix('*')
        && digits.len() >= NEARLY_KEPT
        && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    {
        let why =
            "has a part of a secret of mysql_native_password, or more: one is * and 40 hexadecimal digits";
        return Err((why.to_owned(), "copy it whole".to_owned()));
    }
    // A secret of caching_sha2_password begins so, as a text or in hexadecimal digits.
    if ["$A$", "0x2441", "0X2441"].iter().any(|start| text.starts_with(start)) {
        let why = "has a part of a secret of caching_sha2_password, whose salt may have lost a character";
        let hint = "write it in hexadecimal digits, as SHOW CREATE USER tells it with \
                    print_identified_with_as_hex = ON";
        return Err((why.to_owned(), hint.to_owned()));
    }
    Ok(Secret::Password(Zeroizing::new(text.as_bytes().to_vec())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_that_has_lost_a_character_is_no_password() {
        let kept = native::kept(&native::key(b"secret"));
        let text: String = kept.iter().map(|byte| format!("{byte:02X}")).collect();
        assert!(matches!(secret(&format!("*{text}")), Ok(Secret::Native(_))));
        for damaged in [&format!("*{}", &text[1..]), &format!("*{text}0"), "$A$005$abc", "0x2441243030352"] {
            assert!(secret(damaged).is_err(), "{damaged}");
        }
        for password in ["*", "*secret", "0x24", "*0123456789"] {
            assert!(matches!(secret(password), Ok(Secret::Password(_))), "{password}");
        }
    }

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
    fn what_a_server_keeps_that_is_no_password_proves_nothing() {
        for kept in ["invalid", "$A$005$hush", "*14E6"] {
            assert!(Secret::kept_by_server(kept).is_none(), "{kept}");
        }
        assert!(matches!(Secret::kept_by_server(""), Some(Secret::Nothing)));
        let kept = Secret::kept_by_server("*14E65567ABDB5135D0CFD9A70B3032C179A49EE7");
        assert!(matches!(kept, Some(Secret::Native(_))));
    }

    #[test]
    fn a_secret_that_has_lost_a_part_is_refused_and_not_quoted() {
        let (why, hint) = secret("$A$005$hush").unwrap_err();
        assert!(why.contains("caching_sha2_password") && hint.contains("hexadecimal"));
        assert!(!why.contains("hush"));
        let salted = Salted::new(b"secret", 5, [7; 20]).to_hexadecimal();
        assert!(matches!(secret(&salted), Ok(Secret::Salted(_))));
    }

    #[test]
    fn an_unknown_user_is_asked_like_some_user_of_the_file_and_always_the_same() {
        let of = |kinds: &[Kind]| Users { kinds: kinds.to_vec(), ..Users::default() };
        let users = of(&[Kind::Native, Kind::Salted(5), Kind::Salted(9), Kind::Password]);
        let choice = Choice([7; 32]);
        let kind = |users: &Users, at: u32| users.kind_of_nobody(&at.to_le_bytes(), (native::NAME, choice));
        let kinds = (0..100).map(|at| kind(&users, at));
        assert!(users.kinds.iter().all(|it| kinds.clone().any(|k| k == *it)));
        assert!((0..100).all(|at| kind(&users, at) == kind(&users, at)));
        assert!((0..100).all(|at| kind(&of(&[Kind::Salted(7)]), at) == Kind::Salted(7)));
        let Secret::Salted(made_up) = Kind::Salted(7).made_up() else { panic!("it is salted") };
        assert_eq!(made_up.thousands(), 7);
        assert_eq!(kind(&of(&[]), 1), Kind::Password);
        let asks = Users { query: Some(Query { user: String::new(), sql: None }), ..of(&[Kind::Password]) };
        assert_eq!(asks.kind_of_nobody(b"x", (caching_sha2::NAME, choice)), Kind::Salted(ROUNDS));
        asks.note(&Kind::Salted(9).made_up());
        assert_eq!(asks.kind_of_nobody(b"x", (caching_sha2::NAME, choice)), Kind::Salted(9));
        assert_eq!(kind(&asks, 1), Kind::Native);
    }

    #[test]
    fn unknown_users_are_asked_alike_with_the_same_secrets_only() {
        let directory = tempfile::tempdir().unwrap();
        let asked = |text: &str| -> Vec<Kind> {
            use std::os::unix::fs::PermissionsExt as _;

            let file = directory.path().join("users.txt");
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
            let users = Users::load(&file, None).unwrap();
            let greeted = (native::NAME, users.choice());
            let kind = |at: u32| users.kind_of_nobody(&at.to_le_bytes(), greeted);
            (0..100).map(kind).collect()
        };
        let (ann, bob) = ("\"ann\" \"*14E65567ABDB5135D0CFD9A70B3032C179A49EE7\"\n", "\"bob\" \"secret\"\n");
        let first = asked(&format!("{ann}{bob}"));
        assert_eq!(first, asked(&format!("; in another order\n{bob}{ann}")));
        assert_ne!(first, asked(&format!("{ann}\"bob\" \"other\"\n")));
    }
}
