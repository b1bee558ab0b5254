//! The users file: who may log in, and what is known of their passwords.
//!
//! ```text
//! ; PgBouncer's format: a user and a secret a line, both in double quotes; "" within them is a quote
//! "ann" "SCRAM-SHA-256$4096:…"
//! "bob" "md5…"
//! "eve" "a password"
//! "tom" ""
//! ```
//!
//! An empty secret is no password: nobody logs in with it. Whoever may read the file may log in as others, so that one
//! that everybody may read is refused.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use zeroize::Zeroizing;

use super::secret::Secret;

/// The longest users file that is read, in bytes: some hundred thousand users.
pub(crate) const FILE_BYTES_MAX: u64 = 32 << 20;
/// The permissions that nobody but owner and group may have.
const OTHERS: u32 = 0o007;

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

/// What is wrong with a users file. Never quotes a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsersError {
    /// The file.
    pub file: PathBuf,
    /// The line, counted from 1; `None` if it is about the whole.
    pub line: Option<usize>,
    /// What is wrong.
    pub why: String,
    /// What to do.
    pub hint: Option<String>,
}

impl std::fmt::Display for UsersError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}:", self.file.display())?;
        if let Some(line) = self.line {
            write!(formatter, "{line}:")?;
        }
        write!(formatter, " {}", self.why)?;
        match &self.hint {
            Some(hint) => write!(formatter, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for UsersError {}

impl Users {
    /// Reads a file.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub(crate) fn load(path: &Path) -> Result<Self, UsersError> {
        let wrong =
            |why: String, hint: Option<String>| UsersError { file: path.to_owned(), line: None, why, hint };
        let unreadable = |error: std::io::Error| wrong(format!("cannot be read: {error}"), None);
        let file = File::open(path).map_err(unreadable)?;
        // Asked of the open file, so that it is the one that is read.
        let metadata = file.metadata().map_err(unreadable)?;
        if !metadata.is_file() {
            return Err(wrong("is not a file".to_owned(), None));
        }
        let mode = metadata.permissions().mode() & 0o777;
        if mode & OTHERS != 0 {
            let hint = format!("chmod 600 {}", path.display());
            return Err(wrong(
                format!("holds secrets and is open to everybody (mode {mode:03o})"),
                Some(hint),
            ));
        }
        if metadata.len() > FILE_BYTES_MAX {
            return Err(wrong(format!("is longer than {FILE_BYTES_MAX} bytes"), None));
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(usize::try_from(metadata.len() + 1).unwrap_or(0)));
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        let text = std::str::from_utf8(&bytes).map_err(|error| {
            let before = &bytes[..error.valid_up_to()];
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            UsersError { line: Some(line), ..wrong("is not UTF-8".to_owned(), None) }
        })?;
        Self::parse(text).map_err(|(line, why, hint)| UsersError { line: Some(line), ..wrong(why, hint) })
    }

    /// Reads a text. What is wrong comes with its line, and what to do.
    pub(crate) fn parse(text: &str) -> Result<Self, (usize, String, Option<String>)> {
        const FORM: &str = "write \"user\" \"secret\", with both in double quotes";
        let mut users = Self::default();
        for (index, line) in text.lines().enumerate() {
            let wrong = |why: &str, hint: &str| (index + 1, why.to_owned(), Some(hint.to_owned()));
            let line = line.trim();
            if line.is_empty() || line.starts_with([';', '#']) {
                continue;
            }
            let (name, rest) =
                quoted(line).ok_or_else(|| wrong("does not begin with a user in quotes", FORM))?;
            if name.is_empty() || name.contains('\0') {
                return Err(wrong("names no user", FORM));
            }
            // What PgBouncer's format has behind the secret is of no use to anybody.
            let (secret, _) = quoted(rest.trim_start())
                .ok_or_else(|| wrong("has no secret in quotes behind the user", FORM))?;
            let secret = match &**secret {
                "" => None,
                secret => Some(Secret::parse(secret).map_err(|error| {
                    wrong(&error.to_string(), "copy it whole: SELECT rolpassword FROM pg_authid")
                })?),
            };
            if users.by_name.insert(name.to_string(), Arc::new(User { secret })).is_some() {
                let why = format!("names {:?} a second time", &**name);
                return Err((index + 1, why, Some("keep one of the lines".to_owned())));
            }
        }
        Ok(users)
    }

    /// A user by its name.
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<User>> {
        self.by_name.get(name)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    /// All secrets.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &Secret> {
        self.by_name.values().filter_map(|user| user.secret.as_ref())
    }
}

/// A text in double quotes, `""` within it being a quote, and what follows.
fn quoted(text: &str) -> Option<(Zeroizing<String>, &str)> {
    let mut rest = text.strip_prefix('"')?;
    // As much as it can ever hold: growing would leave copies behind.
    let mut value = Zeroizing::new(String::with_capacity(rest.len()));
    loop {
        let end = rest.find('"')?;
        value.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('"') {
            Some(more) => {
                value.push('"');
                rest = more;
            }
            None => return Some((value, rest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};

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
