//! What a database, or the driver for it, says instead of an answer.

use tokio_postgres::error::SqlState;

/// SQLSTATEs of this class say that there is no room: a full server's, and those of a gate that refuses.
pub const REFUSED: &str = "53";
/// MariaDB's errors for no room: too many connections, out of memory, too many of one user.
const NO_ROOM: [u16; 3] = [1040, 1041, 1203];
/// MariaDB's error for a lock that wasn't had in time,
const LOCK_WAIT: u16 = 1205;
/// which is a gate's refusal if its text begins with this.
const GATE: &str = "gatekeeper ";

/// What a database, or its driver, said.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// PostgreSQL.
    #[error(transparent)]
    Postgres(#[from] tokio_postgres::Error),
    /// MariaDB.
    #[error(transparent)]
    Mariadb(#[from] mysql_async::Error),
    /// The connection had ended before.
    #[error("the connection has ended")]
    Ended,
}

impl DatabaseError {
    /// Its SQLSTATE, if the server itself said it.
    pub fn state(&self) -> Option<&str> {
        match self {
            Self::Postgres(error) => error.code().map(SqlState::code),
            Self::Mariadb(mysql_async::Error::Server(error)) => Some(&error.state),
            Self::Mariadb(_) | Self::Ended => None,
        }
    }

    /// Whether it says that there is no room.
    pub fn is_refusal(&self) -> bool {
        match self {
            Self::Mariadb(mysql_async::Error::Server(error)) => {
                NO_ROOM.contains(&error.code) || error.code == LOCK_WAIT && error.message.starts_with(GATE)
            }
            _ => self.state().is_some_and(|state| state.starts_with(REFUSED)),
        }
    }

    /// What the server said, without the driver's words if there are others.
    pub fn said(&self) -> String {
        match self {
            Self::Postgres(error) => {
                error.as_db_error().map_or_else(|| error.to_string(), ToString::to_string)
            }
            _ => self.to_string(),
        }
    }
}
