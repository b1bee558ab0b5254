//! What goes wrong with a page, and by whose fault it is.

use tokio_postgres::error::SqlState;

use crate::database::DatabaseError;

/// Why a page could not be made.
#[derive(Debug)]
pub(super) enum Failure {
    /// What was asked for doesn't exist; says what.
    NotFound(&'static str),
    /// There is no customer of this name, or the password is another.
    WrongPassword,
    /// A field of the form can't be; says why, to the visitor.
    Nonsense(String),
    /// There is nothing in the cart to be bought.
    EmptyCart,
    /// No connection to the database could be had; says why, to the log.
    Busy(String),
    /// The database has undone the transaction since it collided with another one: it may be tried again.
    Collision(String),
    /// The database said something else.
    Database(DatabaseError),
    /// The shop itself has erred.
    Internal(&'static str),
}

impl From<DatabaseError> for Failure {
    fn from(error: DatabaseError) -> Self {
        match &error {
            DatabaseError::Postgres(said) => Self::of_postgres(said).unwrap_or(Self::Database(error)),
            DatabaseError::Mariadb(said) => Self::of_mariadb(said).unwrap_or(Self::Database(error)),
            DatabaseError::Address(_) | DatabaseError::Column(_) => Self::Database(error),
        }
    }
}

/// MariaDB's errors of a transaction that collided: a key that is there, a deadlock, and a row that another
/// transaction has changed since.
const COLLISIONS: [u16; 3] = [1062, 1213, 1020];
/// MariaDB's errors of one that could do no more: too many connections, of one user, too many open files or
/// too little memory; a server that ends; a lock or statement that took too long, which is a refusal of the
/// gate, too; a connection that is lost.
const BUSY: [u16; 13] = [1040, 1041, 1023, 1053, 1077, 1079, 1158, 1205, 1226, 1317, 1927, 1969, 2013];

impl Failure {
    /// A collision or a lack; none if it is anything else.
    fn of_postgres(error: &tokio_postgres::Error) -> Option<Self> {
        let text = || match error.as_db_error() {
            Some(said) => format!("{} {}", said.code().code(), said.message()),
            None => error.to_string(),
        };
        let Some(code) = error.code() else {
            // Without a code it's the connection: it couldn't be made, or broke.
            let cause = std::error::Error::source(error);
            let is_lost =
                error.is_closed() || cause.is_some_and(<dyn std::error::Error>::is::<std::io::Error>);
            return is_lost.then(|| Self::Busy(text()));
        };
        let collisions = [
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::UNIQUE_VIOLATION,
        ];
        if collisions.contains(code) {
            return Some(Self::Collision(text()));
        }
        // Connection exceptions, insufficient resources, operator intervention (which includes a
        // statement's timeout), and a lock that could not be had in time.
        let is_busy = ["08", "53", "57"].iter().any(|class| code.code().starts_with(class))
            || *code == SqlState::LOCK_NOT_AVAILABLE;
        is_busy.then(|| Self::Busy(text()))
    }

    /// A collision or a lack that MariaDB tells; none if it is anything else.
    fn of_mariadb(error: &mysql_async::Error) -> Option<Self> {
        match error {
            mysql_async::Error::Server(said) if COLLISIONS.contains(&said.code) => {
                Some(Self::Collision(error.to_string()))
            }
            mysql_async::Error::Server(said) => (BUSY.contains(&said.code) || said.state.starts_with("08"))
                .then(|| Self::Busy(error.to_string())),
            mysql_async::Error::Io(_)
            | mysql_async::Error::Driver(mysql_async::DriverError::ConnectionClosed) => {
                Some(Self::Busy(error.to_string()))
            }
            _ => None,
        }
    }
}
