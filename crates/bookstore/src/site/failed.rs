//! The page that says what has gone wrong with another.
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

use super::failure::Failure;
use super::layout;

/// After how many seconds a refused visitor may try again.
const RETRY_SECONDS: HeaderValue = HeaderValue::from_static("2");

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

impl Failure {
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
