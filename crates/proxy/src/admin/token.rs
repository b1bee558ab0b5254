//! The token with which changes are taken over TCP.
//!
//! Only its hash is kept. What is sent is hashed too and compared in constant time, so that neither its
//! length nor how much of it is right can be told from the time that a refusal takes.

use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

use crate::ordinary;

/// The shortest token, in bytes: shorter ones can be guessed.
const TOKEN_BYTES_MIN: usize = 16;
/// The longest token, in bytes.
const TOKEN_BYTES_MAX: usize = 1_024;

/// A token, as its hash.
#[derive(Clone)]
pub struct Token([u8; 32]);

/// A token file that can't be used. Never quotes it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {why}", file.display())]
pub struct TokenError {
    /// The file.
    pub file: PathBuf,
    /// What is wrong, and what to do.
    pub why: String,
}

impl Token {
    /// Reads a file with nothing but a token in it (and a newline).
    ///
    /// # Errors
    /// What is wrong with it; one that others may read is no secret.
    pub fn load(path: &Path) -> Result<Self, TokenError> {
        let wrong = |why: String| TokenError { file: path.to_owned(), why };
        let unreadable = |error: std::io::Error| wrong(format!("cannot be read: {error}"));
        let file = ordinary::open(path).map_err(unreadable)?;
        let metadata = file.metadata().map_err(unreadable)?;
        // The rule for private keys: the file belongs to the user that runs the gate, or to root, who may let
        // a group read it.
        let allowed = if metadata.uid() == 0 { 0o640 } else { 0o600 };
        let mode = metadata.permissions().mode() & 0o777;
        if mode & !allowed != 0 {
            let path = path.display();
            return Err(wrong(format!(
                "can be read or written by others (its mode is {mode:04o}); chmod 0600 {path}"
            )));
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(TOKEN_BYTES_MAX + 2));
        file.take(TOKEN_BYTES_MAX as u64 + 2).read_to_end(&mut bytes).map_err(unreadable)?;
        Self::of(bytes.trim_ascii()).map_err(wrong)
    }

    /// A token as it is written.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn of(token: &[u8]) -> Result<Self, String> {
        const CURE: &str = "write one with: openssl rand -hex 32";
        if !(TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&token.len()) {
            let range = format!("{TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX}");
            return Err(format!("must hold {range} characters; {CURE}"));
        }
        if !token.iter().all(u8::is_ascii_graphic) {
            return Err(format!("must hold one token of ASCII characters without spaces; {CURE}"));
        }
        Ok(Self(hash(token)))
    }

    /// Whether this is it.
    pub fn is(&self, sent: &[u8]) -> bool {
        bool::from(self.0.ct_eq(&hash(sent)))
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Token")
    }
}

fn hash(token: &[u8]) -> [u8; 32] {
    Sha256::digest(token).into()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::OpenOptionsExt as _;

    use super::*;

    fn written(mode: u32, text: &str) -> Result<Token, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(mode).open(&path).unwrap();
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        Token::load(&path).map_err(|error| error.why)
    }

    #[test]
    fn a_token_is_known_and_nothing_else_is() {
        let token = written(0o600, "0123456789abcdef\n").unwrap();
        assert!(token.is(b"0123456789abcdef"));
        for other in [&b""[..], b"0123456789abcde", b"0123456789abcdef\n", b"0123456789abcdeF"] {
            assert!(!token.is(other), "{other:?}");
        }
        assert_eq!(format!("{token:?}"), "Token");
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let error = written(0o644, "0123456789abcdef").unwrap_err();
        assert!(error.contains("its mode is 0644") && error.contains("chmod 0600"), "{error}");
    }

    #[test]
    fn short_long_and_several_tokens_are_refused() {
        for text in ["", "0123456789abcde", "0123456789abcdef 0123456789abcdef", &"x".repeat(1_025)] {
            let error = written(0o600, text).unwrap_err();
            assert!(error.starts_with("must hold") && !error.contains("0123"), "{error}");
        }
        assert!(written(0o600, &"x".repeat(1_024)).is_ok());
    }
}
