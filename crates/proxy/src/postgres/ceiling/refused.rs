//! Which limit a refused login has met: the server names it only by the routine that refused.
//!
//! SQLSTATE 53300 stands for all of them, and the message is in the server's language. The field `R` of the
//! error is the name of a C function, which has been the same since PostgreSQL 9.

use std::fmt;

use wire::postgres::backend::parse_error;

/// SQLSTATE "too many connections".
pub(super) const TOO_MANY: &str = "53300";

/// What has no connection left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exhausted {
    /// The server (`max_connections`, with or without what is reserved).
    Server,
    /// The role (`ALTER ROLE … CONNECTION LIMIT`).
    Role,
    /// The database (`ALTER DATABASE … CONNECTION LIMIT`).
    Database,
}

impl Exhausted {
    /// Reads an ErrorResponse; `None`: the login was refused for another reason.
    pub(crate) fn of(body: &[u8]) -> Option<Self> {
        let fields = parse_error(body);
        (fields.code() == TOO_MANY).then(|| match fields.get(b'R') {
            Some(b"InitializeSessionUserId") => Self::Role,
            Some(b"CheckMyDatabase") => Self::Database,
            _ => Self::Server,
        })
    }
}

impl fmt::Display for Exhausted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Server => "server",
            Self::Role => "role",
            Self::Database => "database",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_routine_tells_the_limit() {
        let of = |code: &str, routine: &str| Exhausted::of(format!("C{code}\0R{routine}\0\0").as_bytes());
        assert_eq!(of("53300", "InitProcess"), Some(Exhausted::Server));
        assert_eq!(of("53300", "InitPostgres"), Some(Exhausted::Server));
        assert_eq!(of("53300", "InitializeSessionUserId"), Some(Exhausted::Role));
        assert_eq!(of("53300", "CheckMyDatabase"), Some(Exhausted::Database));
        assert_eq!(Exhausted::of(b"C53300\0\0"), Some(Exhausted::Server));
        assert_eq!(of("28P01", "auth_failed"), None);
    }
}
