//! A file of users and secrets, which knows nothing of how a secret proves anything.
//!
//! ```text
//! ; PgBouncer's format: a user and a secret a line, both in double quotes; "" within them is a quote
//! "ann" "a secret"
//! "tom" ""
//! ```
//!
//! An empty secret is no password, which a gate's users decide what to make of. A user who may read the file
//! may log in as others. Therefore a file that everybody may read is refused.

use std::collections::{BTreeMap, HashMap};
use std::io::Read as _;
use std::num::NonZeroU32;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use aws_lc_rs::pbkdf2;
use zeroize::Zeroizing;

use crate::ordinary;

/// The longest users file that is read, in bytes: some hundred thousand users.
pub(crate) const FILE_BYTES_MAX: u64 = 32 << 20;
/// The permissions that nobody but owner and group may have.
const OTHERS: u32 = 0o007;

/// The rounds of the digest that makes a [`key_of_nobody`]: some 50 ms, once a start.
const ROUNDS: NonZeroU32 = NonZeroU32::new(200_000).unwrap();

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

/// What is wrong with a line: its number, why, and what to do.
pub(crate) type LineError = (usize, String, Option<String>);

/// A reader of one secret. Its error says why and what to do, and never quotes the secret.
pub(crate) type ParseSecret<S> = fn(&str) -> Result<S, (String, String)>;

/// A key by which a gate makes up what it tells of users who don't exist, from the secrets of those who do.
/// Whoever could compute it would tell the ones from the others, and so would whoever sees another after a
/// restart. It belongs to all secrets, since one alone may be guessed, and the guess checked by the answers
/// to many names. Whoever knows all but one may do so, too: each guess is slow. Where nothing is secret it is
/// random.
pub(crate) fn key_of_nobody<'a>(secrets: impl Iterator<Item = (&'a String, Zeroizing<Vec<u8>>)>) -> [u8; 32] {
    let secrets: BTreeMap<_, _> = secrets.collect();
    if secrets.values().all(|secret| secret.is_empty()) {
        return rand::random();
    }
    let mut all = Zeroizing::new(Vec::new());
    for (name, secret) in &secrets {
        for part in [name.as_bytes(), secret] {
            all.extend_from_slice(&(part.len() as u64).to_le_bytes());
            all.extend_from_slice(part);
        }
    }
    let mut key = [0; 32];
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, ROUNDS, b"users who don't exist", &all, &mut key);
    key
}

/// Reads a file: each user with its secret, if the user has one.
///
/// # Errors
/// The first thing that is wrong with the file.
pub(crate) fn load<S>(path: &Path, secret: ParseSecret<S>) -> Result<HashMap<String, Option<S>>, UsersError> {
    let wrong =
        |why: String, hint: Option<String>| UsersError { file: path.to_owned(), line: None, why, hint };
    let unreadable = |error: std::io::Error| wrong(format!("cannot be read: {error}"), None);
    let file = ordinary::open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & OTHERS != 0 {
        let hint = format!("chmod 600 {}", path.display());
        return Err(wrong(format!("holds secrets and is open to everybody (mode {mode:03o})"), Some(hint)));
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
    let users = parse(text, secret)
        .map_err(|(line, why, hint)| UsersError { line: Some(line), ..wrong(why, hint) })?;
    if users.is_empty() {
        // A program that writes it may have emptied it just now.
        let hint = "write a line for each user, and move a new file into the old one's place";
        return Err(wrong("names no user".to_owned(), Some(hint.to_owned())));
    }
    Ok(users)
}

/// Reads a text. What is wrong comes with its line, and what to do.
pub(crate) fn parse<S>(
    text: &str,
    parse_secret: ParseSecret<S>,
) -> Result<HashMap<String, Option<S>>, LineError> {
    const FORM: &str = "write \"user\" \"secret\", with both in double quotes";
    let mut users = HashMap::new();
    for (index, line) in text.lines().enumerate() {
        let wrong = |why: &str, hint: &str| (index + 1, why.to_owned(), Some(hint.to_owned()));
        let line = line.trim();
        if line.is_empty() || line.starts_with([';', '#']) {
            continue;
        }
        let (name, rest) = quoted(line).ok_or_else(|| wrong("does not begin with a user in quotes", FORM))?;
        if name.is_empty() || name.contains('\0') {
            return Err(wrong("names no user", FORM));
        }
        // What PgBouncer's format has behind the secret is of no use to anybody.
        let (secret, _) = quoted(rest.trim_start())
            .ok_or_else(|| wrong("has no secret in quotes behind the user", FORM))?;
        let secret = match &**secret {
            "" => None,
            secret => Some(parse_secret(secret).map_err(|(why, hint)| wrong(&why, &hint))?),
        };
        if users.insert(name.to_string(), secret).is_some() {
            let why = format!("names {:?} a second time", &**name);
            return Err((index + 1, why, Some("keep one of the lines".to_owned())));
        }
    }
    Ok(users)
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
