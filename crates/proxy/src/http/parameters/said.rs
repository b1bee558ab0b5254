//! What a request says of itself beside its path: the parameters of its query, and the operation in its body.
//!
//! | where | name | value |
//! |---|---|---|
//! | query | as it is called | its own |
//! | query, or a JSON object | [`OPERATION`] | GraphQL's; without one the document in `query` says it |
//! | JSON object | [`METHOD`] | that of JSON-RPC |
//!
//! A value is one only if it may be a name: short, of letters and few signs, and nothing that looks like an
//! identifier (`segment.rs`). A parameter that is said twice has none, for services disagree on which of
//! both counts. Neither has one that is a list (`name[]`).

use std::fmt;

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use serde::Deserializer as _;
use serde::de::{MapAccess, Visitor};
use serde_json::{Deserializer, Value};

use super::graphql;
use crate::http::routes::is_plain_name;

/// How much of a body is looked at, in bytes.
pub(crate) const PREFIX_MAX: usize = 16 * 1024;
/// A query of more parameters says nothing.
const PAIRS_MAX: usize = 32;
/// A parameter with a longer name is none.
const NAME_MAX: usize = 32;
/// A longer value is data.
const VALUE_MAX: usize = 64;
/// What the operation of GraphQL is called, in a query as in a body.
const OPERATION: &str = "operationName";
/// The document of GraphQL.
const DOCUMENT: &str = "query";
/// What JSON-RPC calls its operation.
const METHOD: &str = "method";

/// Names, each once, and their values as far as they have one.
#[derive(Debug, Default)]
pub(crate) struct Said(Vec<(Box<str>, Option<Box<str>>)>);

impl Said {
    /// What a query, and the beginning of a body in JSON, say.
    pub(crate) fn of(query: Option<&str>, body: Option<&[u8]>) -> Self {
        let mut said = Self::default();
        if let Some(query) = query {
            said.read_query(query.as_bytes());
        }
        if let Some(body) = body {
            said.read_json(body);
        }
        said
    }

    /// The value of this parameter.
    pub(crate) fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| **known == *name).and_then(|(_, value)| value.as_deref())
    }

    /// All that have a value.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|(name, value)| Some((&**name, value.as_deref()?)))
    }

    /// Only this one.
    pub(crate) fn only(mut self, name: &str) -> Self {
        self.0.retain(|(known, _)| **known == *name);
        self
    }

    fn add(&mut self, name: &str, value: Option<&str>) {
        let value = value.filter(|value| is_value(value));
        match self.0.iter_mut().find(|(known, _)| **known == *name) {
            Some((_, first)) => *first = None,
            None => self.0.push((name.into(), value.map(Box::from))),
        }
    }

    fn read_query(&mut self, query: &[u8]) {
        let mut document = Once::default();
        for (count, (name, value)) in form_urlencoded::parse(query).enumerate() {
            if count == PAIRS_MAX {
                self.0.clear();
                return;
            }
            // PHP takes ` name[]` for `name`.
            let name = name.trim_start();
            let (name, list) = name.split_once('[').map_or((name, false), |(name, _)| (name, true));
            if is_parameter(name) {
                self.add(name, Some(&*value).filter(|_| !list));
            }
            if name == DOCUMENT {
                document.set(Value::String(value.into_owned()));
            }
        }
        if !self.has(OPERATION)
            && let Some(operation) = document.text().and_then(graphql::operation)
        {
            self.add(OPERATION, Some(operation));
        }
    }

    /// What the query says already, it has said: a service reads either.
    fn read_json(&mut self, body: &[u8]) {
        let mut read = Read::default();
        // What comes behind the prefix can't be read; what came before it is.
        let _ = Deserializer::from_slice(body).deserialize_map(&mut read);
        let document = read.document.text();
        let operation = match &read.operation {
            Once::Text(name) if !name.is_empty() => Some(name.as_str()),
            Once::Twice => None,
            _ => document.and_then(graphql::operation),
        };
        for (name, value) in [(OPERATION, operation), (METHOD, read.method.text())] {
            if value.is_some() && !self.has(name) {
                self.add(name, value);
            }
        }
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, _)| **known == *name)
    }
}

/// Whether bodies may say this parameter.
pub(super) fn is_in_bodies(name: &str) -> bool {
    name == OPERATION || name == METHOD
}

/// Whether a parameter may be called so.
pub(super) fn is_parameter(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(allowed)
}

/// Whether a value may be the name of something.
pub(super) fn is_value(value: &str) -> bool {
    (1..=VALUE_MAX).contains(&value.len()) && is_plain_name(value)
}

/// Whether the body behind these fields is JSON and not encoded.
pub(crate) fn is_json(fields: &HeaderMap) -> bool {
    let kind = fields.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let is_it =
        ["application/json", "application/graphql+json"].iter().any(|it| kind.eq_ignore_ascii_case(it));
    is_it && !fields.contains_key(CONTENT_ENCODING)
}

/// What a key of an object has.
#[derive(Debug, Default, PartialEq, Eq)]
enum Once {
    #[default]
    Nothing,
    Text(String),
    Twice,
}

impl Once {
    fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    fn set(&mut self, value: Value) {
        *self = match (&self, value) {
            (Self::Nothing, Value::String(text)) => Self::Text(text),
            // Only to be no operation: `null` is how many say that they have none.
            (Self::Nothing, _) => Self::Text(String::new()),
            _ => Self::Twice,
        };
    }
}

/// The keys of an object that are looked for.
#[derive(Debug, Default)]
struct Read {
    operation: Once,
    document: Once,
    method: Once,
}

impl<'de> Visitor<'de> for &mut Read {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            let known = match key.as_str() {
                OPERATION => &mut self.operation,
                DOCUMENT => &mut self.document,
                METHOD => &mut self.method,
                _ => {
                    map.next_value::<serde::de::IgnoredAny>()?;
                    continue;
                }
            };
            known.set(map.next_value()?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn all(query: &str, body: &str) -> Vec<(String, String)> {
        let said = Said::of(Some(query), Some(body.as_bytes()));
        said.all().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn said(query: &str, body: &str) -> String {
        let said: Vec<String> =
            all(query, body).into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        said.join(" ")
    }

    #[test]
    fn a_query_says_what_may_be_a_name_and_nothing_that_is_data() {
        let cases = [
            ("action=heartbeat&_=1700000000", "action=heartbeat"),
            ("%61ction=heart%62eat", "action=heartbeat"),
            ("route=product/category&path=20_27", "route=product/category"),
            ("action=getUserById", "action=getUserById"),
            ("token=dQw4w9WgXcQ&mail=ann@example.org&q=red+shoes&id=7", ""),
            ("action=a&action=b", ""),
            ("action=a&%20action=b&x=y", "x=y"),
            ("action=a&action[]=b", ""),
            ("action[]=b", ""),
            ("action=&b&=c", ""),
            ("a b=c", ""),
            ("query={cart{total}}", "operationName=cart"),
            ("query={cart}&operationName=Cart", "operationName=Cart"),
        ];
        for (query, expected) in cases {
            assert_eq!(said(query, ""), expected, "{query}");
        }
        let many: Vec<String> = (0..=PAIRS_MAX).map(|_| "a=b".to_owned()).collect();
        assert_eq!(said(&many.join("&"), ""), "");
        assert_eq!(said(&format!("a={}", "b-".repeat(33)), ""), "");
        assert_eq!(said(&format!("{}=b", "a".repeat(33)), ""), "");
    }

    #[test]
    fn a_body_says_its_operation_wherever_it_stands_and_as_far_as_it_is_there() {
        let cases = [
            (r#"{"operationName":"Cart","query":"query Cart {a}"}"#, "operationName=Cart"),
            (r#"{"query":"query Cart {a}","operationName":null}"#, "operationName=Cart"),
            (r#"{"query":"{\n  cart { total }\n}"}"#, "operationName=cart"),
            (r#"{"operationName":"Cart","variables":{"a":[1,{"#, "operationName=Cart"),
            (
                r#"{"variables":{"operationName":"x","deep":[[{}]]},"operationName":"Cart"}"#,
                "operationName=Cart",
            ),
            (r#"{"operationName":"A","operationName":"B","query":"{a}"}"#, ""),
            (r#"{"query":"{a}","query":"{b}"}"#, ""),
            (r#"{"operationName":{"a":1},"query":"{a}"}"#, "operationName=a"),
            (r#"{"jsonrpc":"2.0","id":1,"method":"eth_call","params":[]}"#, "method=eth_call"),
            (r#"{"method":"a","method":"b"}"#, ""),
            (r#"{"method":7}"#, ""),
            (r#"{"method":"ann@example.org"}"#, ""),
            (r#"[{"method":"eth_call"}]"#, ""),
            ("\"method\"", ""),
            ("{\"method\":\"eth_c", ""),
            ("", ""),
            ("\u{0}{", ""),
        ];
        for (body, expected) in cases {
            assert_eq!(said("", body), expected, "{body}");
        }
        assert_eq!(said("method=a", r#"{"method":"b"}"#), "method=a");
        assert_eq!(said("", &format!("{{\"method\":\"a\",\"b\":{}", "[".repeat(PREFIX_MAX))), "method=a");
    }

    #[test]
    fn only_plain_json_is_read() {
        let is = |kind: &'static str| {
            is_json(&HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]))
        };
        assert!(
            is("application/json")
                && is("Application/JSON ; charset=utf-8")
                && is("application/graphql+json")
        );
        assert!(!is("text/json") && !is("application/x-www-form-urlencoded") && !is(""));
        let mut packed = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        packed.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        assert!(!is_json(&packed));
    }
}
