//! The users file: who may log in, and what is known of their passwords.
//!
//! ```text
//! "ann" "SCRAM-SHA-256$4096:…"
//! "bob" "md5…"
//! "eve" "a password"
//! "tom" ""
//! ```

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::secret::Secret;
#[cfg(any(test, feature = "garbage"))]
use crate::sql::users_file::LineError;
use crate::sql::users_file::{self, UsersError};

/// One user. With no secret nobody can prove to be it.
#[derive(Debug)]
pub(crate) struct User {
    pub(crate) secret: Option<Secret>,
}

/// All of a file.
#[derive(Debug, Default)]
pub(crate) struct Users {
    by_name: HashMap<String, Arc<User>>,
}

impl Users {
    /// Reads a file.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub(crate) fn load(path: &Path) -> Result<Self, UsersError> {
        users_file::load(path, secret).map(Self::of)
    }

    /// Reads a text. What is wrong comes with its line, and what to do.
    #[cfg(any(test, feature = "garbage"))]
    pub(crate) fn parse(text: &str) -> Result<Self, LineError> {
        users_file::parse(text, secret).map(Self::of)
    }

    fn of(users: HashMap<String, Option<Secret>>) -> Self {
        let users = users.into_iter().map(|(name, secret)| (name, Arc::new(User { secret })));
        Self { by_name: users.collect() }
    }

    /// A user by its name.
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<User>> {
        self.by_name.get(name)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// The key that belongs to all secrets.
    pub(crate) fn key_of_nobody(&self) -> [u8; 32] {
        let secrets = self.by_name.iter();
        users_file::key_of_nobody(
            secrets.filter_map(|(name, user)| Some((name, user.secret.as_ref()?.bytes()))),
        )
    }

    /// All secrets.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &Secret> {
        self.by_name.values().filter_map(|user| user.secret.as_ref())
    }
}

fn secret(text: &str) -> Result<Secret, (String, String)> {
    let hint = "copy it whole: SELECT rolpassword FROM pg_authid".to_owned();
    Secret::parse(text).map_err(|error| (error.to_string(), hint))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::PathBuf;

    use super::*;

    fn parsed(text: &str) -> Users {
        Users::parse(text).unwrap()
    }

    fn wrong(text: &str) -> (usize, String) {
        let (line, why, hint) = Users::parse(text).unwrap_err();
        assert!(hint.is_some_and(|hint| !hint.is_empty()));
        (line, why)
    }

    #[test]
    fn users_are_read_as_pgbouncer_writes_them() {
        let users = parsed(
            "; a comment\n# another\n\n\"ann\" \"secret\"\n  \"bob\"\t\"\" \"\" whatever\r\n\"a\"\"b\" \"x\"\"y\"\n",
        );
        assert_eq!(users.len(), 3);
        let plain = |name: &str| match users.get(name).unwrap().secret.as_ref().unwrap() {
            Secret::Plain(password) => password.as_str().to_owned(),
            other => format!("{other:?}"),
        };
        assert_eq!((plain("ann"), plain("a\"b")), ("secret".to_owned(), "x\"y".to_owned()));
        assert!(users.get("bob").unwrap().secret.is_none());
        assert!(users.get("Ann").is_none());
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line_and_without_the_secret() {
        for (text, line) in [
            ("\"ann\" \"s\"\nann hush\n", 2),
            ("\"ann\"\n", 1),
            ("\"ann\" hush\n", 1),
            ("\"ann\" \"hush\n", 1),
            ("\"\" \"s\"", 1),
            ("\n\n\"ann\" \"SCRAM-SHA-256$4096:hush$hush:x\"", 3),
            ("\"ann\" \"s\"\n\"ann\" \"s\"", 2),
        ] {
            let (at, why) = wrong(text);
            assert_eq!(at, line, "{text}");
            assert!(!why.contains("hush"), "{why}");
        }
    }

    fn file(mode: u32, bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("users.txt");
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        (directory, path)
    }

    #[test]
    fn a_file_that_everybody_may_read_is_refused() {
        for mode in [0o644, 0o604, 0o602, 0o601, 0o666] {
            let (_directory, path) = file(mode, b"\"ann\" \"secret\"\n");
            let error = Users::load(&path).unwrap_err().to_string();
            assert!(error.contains("open to everybody") && error.contains("chmod 600"), "{error}");
        }
        for mode in [0o600, 0o640, 0o400] {
            let (_directory, path) = file(mode, b"\"ann\" \"secret\"\n");
            assert_eq!(Users::load(&path).unwrap().len(), 1);
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let (_directory, path) = file(0o600, b"\"ann\" \"s\"\n\"bob\" \"\xff\"\n");
        let error = Users::load(&path).unwrap_err();
        assert_eq!(error.to_string(), format!("{}:2: is not UTF-8", path.display()));
        let missing = Users::load(&path.with_extension("missing")).unwrap_err().to_string();
        assert!(missing.contains("users.missing: cannot be read"), "{missing}");
        assert!(Users::load(path.parent().unwrap()).is_err());
    }
}
