//! What a request brings and a page takes back: the customer, by cookies; the fields of a form or of the
//! address; and the page with the cookies that it sets.
//!
//! Customers and carts are known by plain numbers, as TPC-W's sessions are: a visitor who changes a
//! cookie is another customer. It's a shop for measurements.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::header::{CACHE_CONTROL, COOKIE, SET_COOKIE};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method};
use axum::response::{IntoResponse, Response};
use cookie::Cookie;
use maud::Markup;
use std::convert::Infallible;

use super::failure::Failure;
use crate::calendar::Day;

/// The most fields of a form: every line of a cart twice over.
const MAX_FIELDS: usize = 256;

/// The visitor that sent a request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Visitor {
    /// The customer, once the visitor is known as one.
    pub(super) customer: Option<i32>,
    /// The visitor's cart.
    pub(super) cart: Option<i32>,
    /// How many copies the cart held when it was last shown.
    pub(super) copies: i32,
}

impl<S: Sync> FromRequestParts<S> for Visitor {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        let mut visitor = Self::default();
        for header in parts.headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok()) {
            for cookie in Cookie::split_parse(header).flatten() {
                let number = cookie.value().parse().ok().filter(|number| *number > 0);
                match cookie.name() {
                    "customer" => visitor.customer = number,
                    "cart" => visitor.cart = number,
                    "copies" => visitor.copies = number.unwrap_or_default(),
                    _ => {}
                }
            }
        }
        Ok(visitor)
    }
}

/// The fields of a form that was sent, or of the address.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields(Vec<(String, String)>);

impl<S: Send + Sync> FromRequest<S> for Fields {
    type Rejection = Failure;

    async fn from_request(request: Request, state: &S) -> Result<Self, Failure> {
        let pairs = if request.method() == Method::POST {
            let body = Bytes::from_request(request, state).await;
            let body = body.map_err(|_| Failure::Nonsense("The form is too long.".to_owned()))?;
            serde_urlencoded::from_bytes(&body)
        } else {
            serde_urlencoded::from_str(request.uri().query().unwrap_or_default())
        };
        let pairs: Vec<(String, String)> =
            pairs.map_err(|_| Failure::Nonsense("The form can't be read.".to_owned()))?;
        if pairs.len() > MAX_FIELDS {
            return Err(Failure::Nonsense("The form has too many fields.".to_owned()));
        }
        Ok(Self(pairs))
    }
}

impl Fields {
    /// A field that has something in it.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(key, _)| key == name)?;
        Some(found.1.trim()).filter(|value| !value.is_empty())
    }

    /// All fields.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.trim()))
    }

    /// A required text of at most `max` characters.
    pub(super) fn text(&self, name: &str, label: &str, max: usize) -> Result<String, Failure> {
        let value =
            self.get(name).ok_or_else(|| Failure::Nonsense(format!("{label}: please fill it in.")))?;
        if value.chars().count() > max {
            return Err(Failure::Nonsense(format!("{label}: at most {max} characters.")));
        }
        if value.chars().any(char::is_control) {
            return Err(Failure::Nonsense(format!("{label}: letters and digits, please.")));
        }
        Ok(value.to_owned())
    }

    /// An optional text of at most `max` characters.
    pub(super) fn optional(&self, name: &str, label: &str, max: usize) -> Result<String, Failure> {
        if self.get(name).is_none() { Ok(String::new()) } else { self.text(name, label, max) }
    }

    /// One of several words, whatever their case.
    pub(super) fn one_of(
        &self,
        name: &str,
        label: &str,
        words: &[&'static str],
    ) -> Result<&'static str, Failure> {
        let value = self.text(name, label, 60)?;
        let found = words.iter().find(|word| word.eq_ignore_ascii_case(&value));
        found.copied().ok_or_else(|| Failure::Nonsense(format!("{label}: please choose one of the list.")))
    }

    /// A day.
    pub(super) fn day(&self, name: &str, label: &str) -> Result<String, Failure> {
        let value = self.text(name, label, 10)?;
        let day = Day::parse(&value);
        let day =
            day.ok_or_else(|| Failure::Nonsense(format!("{label}: a day such as 2026-12-31, please.")))?;
        Ok(day.to_string())
    }
}

/// A page and the cookies that it sets.
pub(super) struct Page {
    markup: Markup,
    cookies: Vec<(&'static str, i32)>,
}

impl From<Markup> for Page {
    fn from(markup: Markup) -> Self {
        Self { markup, cookies: Vec::new() }
    }
}

impl Page {
    /// Sets a cookie with it.
    pub(super) fn with(mut self, name: &'static str, value: i32) -> Self {
        self.cookies.push((name, value));
        self
    }
}

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        let mut response = self.markup.into_response();
        let headers = response.headers_mut();
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
        for (name, value) in self.cookies {
            let cookie = format!("{name}={value}; Path=/; SameSite=Lax; HttpOnly");
            if let Ok(value) = HeaderValue::try_from(cookie) {
                headers.append(SET_COOKIE, value);
            }
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> Fields {
        Fields(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn a_field_is_trimmed_and_bounded() {
        let fields = fields(&[("name", "  Ada "), ("empty", " "), ("long", "abcdef"), ("bell", "a\u{7}b")]);
        assert_eq!(fields.text("name", "Name", 3).ok().as_deref(), Some("Ada"));
        for (name, max) in [("empty", 9), ("missing", 9), ("long", 5), ("bell", 9)] {
            assert!(matches!(fields.text(name, "Name", max), Err(Failure::Nonsense(_))), "{name}");
        }
        assert_eq!(fields.optional("empty", "Name", 3).ok().as_deref(), Some(""));
    }

    #[test]
    fn a_word_is_one_of_the_list_whatever_its_case() {
        let fields = fields(&[("card", "visa"), ("other", "cash")]);
        assert_eq!(fields.one_of("card", "Card", &["AMEX", "VISA"]).ok(), Some("VISA"));
        assert!(fields.one_of("other", "Card", &["AMEX", "VISA"]).is_err());
    }

    #[tokio::test]
    async fn a_visitor_is_known_by_its_cookies_and_nonsense_is_nobody() {
        let of = async |cookies: &str| {
            let request = Request::builder().header(COOKIE, cookies).body(()).expect("a request");
            let (mut parts, ()) = request.into_parts();
            let Ok(visitor) = Visitor::from_request_parts(&mut parts, &()).await;
            (visitor.customer, visitor.cart, visitor.copies)
        };
        assert_eq!(of("customer=7; cart=12; copies=3; other=1").await, (Some(7), Some(12), 3));
        assert_eq!(of("customer=x; cart=-1; copies=99999999999").await, (None, None, 0));
    }
}
