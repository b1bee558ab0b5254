//! What goes wrong with a page, by whose fault it is, and the page that says so.
//!
//! | failure | status |
//! |---|---|
//! | there is no such book, page or picture | 404 |
//! | the password is wrong | 403 |
//! | a form's content makes no sense | 400 |
//! | the cart is empty at the checkout | 409 |
//! | no connection in time, too many wait, no database, too many collisions | 503, Retry-After |
//! | anything else that the database says | 500 |
//!
//! A visitor never sees what the database said; the log does.

use axum::http::header::{CACHE_CONTROL, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use maud::html;
use tokio_postgres::error::SqlState;

use super::layout;
use crate::database::DatabaseError;

/// After how many seconds a visitor who was refused may try again.
const RETRY_SECONDS: HeaderValue = HeaderValue::from_static("2");

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

    fn status(&self) -> StatusCode {
        match self {
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::WrongPassword => StatusCode::FORBIDDEN,
            Self::Nonsense(_) => StatusCode::BAD_REQUEST,
            Self::EmptyCart => StatusCode::CONFLICT,
            Self::Busy(_) | Self::Collision(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Database(_) | Self::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// The word in `data-error`, a title and a sentence for the visitor.
    fn words(&self) -> (&'static str, &'static str, String) {
        match self {
            Self::NotFound(what) => {
                ("not-found", "Not on our shelves", format!("There is no such {what} here."))
            }
            Self::WrongPassword => {
                ("wrong-password", "That didn't match", "The user name or the password is wrong.".to_owned())
            }
            Self::Nonsense(why) => ("nonsense", "Something is missing", why.clone()),
            Self::EmptyCart => {
                ("empty-cart", "Your cart is empty", "Put a book into it before you check out.".to_owned())
            }
            Self::Busy(_) | Self::Collision(_) => (
                "busy",
                "The shop is crowded",
                "We can't serve you right now. Please try again in a moment; your cart is kept.".to_owned(),
            ),
            Self::Database(_) | Self::Internal(_) => {
                ("failed", "Something broke", "It's our fault, and it has been noted.".to_owned())
            }
        }
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        match &self {
            Self::Database(error) => tracing::error!(error = format!("{error:?}"), "the database failed"),
            Self::Internal(what) => tracing::error!(what, "the shop failed"),
            Self::Busy(reason) | Self::Collision(reason) => tracing::debug!(reason, "refused"),
            Self::NotFound(_) | Self::WrongPassword | Self::Nonsense(_) | Self::EmptyCart => {}
        }
        let (word, title, sentence) = self.words();
        let content = html! {
            section.notice {
                h1 { (title) }
                p { (sentence) }
                p { a.button href="/" { "To the first page" } " " a.button.plain href="/search" { "Search for a book" } }
            }
        };
        let mut response = (self.status(), layout::error_page(title, word, &content)).into_response();
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self.status() == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, RETRY_SECONDS);
        }
        response
    }
}
