//! What an application says about itself in comments: sqlcommenter and marginalia tags.
//!
//! sqlcommenter (OpenTelemetry) writes `/*key='value',key='value'*/`, keys and values URL-encoded, a quote
//! within a value as `\'`; marginalia (Rails up to 7.0) writes `/*key:value,key:value*/`. Libraries put
//! them before or behind the statement. Only three keys become labels, since others (trace ids above all)
//! differ with every request: `route`, else `controller` with `action`. Of all pairs a hash is kept, by which
//! rules know them. A fourth, `gatekeeper_timeout`, is
//! ours: how long the answer is of use, so that a request that has waited longer is refused and never
//! reaches the server. Of several comments the first that has a key counts. Optimizer hints (`/*+ … */`)
//! and prose are passed over.

use std::num::NonZeroU128;
use std::time::Duration;

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::Dialect;
use super::lexer::{Lexer, TokenKind};

/// The longest label, and the longest value of a tag, in bytes.
pub const MAX_TAG: usize = 128;
/// The bytes of one comment that are read.
pub const MAX_COMMENT: usize = 4_096;
/// The most pairs of one text whose hash is kept.
pub const MAX_PAIRS: usize = 16;
/// The trace that a request belongs to (W3C Trace Context). Every request has another one.
const TRACEPARENT: &[u8] = b"traceparent";
const TRACESTATE: &[u8] = b"tracestate";

/// The tags of a text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tags {
    /// The route pattern, such as `/users/:id`.
    pub route: Option<String>,
    /// The controller.
    pub controller: Option<String>,
    /// The controller's action.
    pub action: Option<String>,
    /// How long after its arrival the request's answer is of use: `gatekeeper_timeout='250ms'`. No label.
    pub timeout: Option<Duration>,
    /// The [`pair_hash`] of each pair, of [`MAX_PAIRS`] at most.
    pub pairs: Vec<u64>,
    /// The trace that `traceparent` names: a number for people who look for this request. No label.
    pub trace: Option<NonZeroU128>,
}

/// What a pair is known by.
#[must_use]
pub fn pair_hash(key: &str, value: &str) -> u64 {
    xxh3_64_with_seed(value.as_bytes(), xxh3_64(key.as_bytes()))
}

impl Tags {
    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.route.is_none() && self.controller.is_none() && self.action.is_none()
    }

    /// The label for a request's type: the route, else `controller#action` if both are there. At most
    /// [`MAX_TAG`] bytes.
    #[must_use]
    pub fn label(&self) -> Option<String> {
        if let Some(route) = &self.route {
            return Some(route.clone());
        }
        let (Some(controller), Some(action)) = (&self.controller, &self.action) else { return None };
        let mut label = format!("{controller}#{action}");
        cut(&mut label);
        Some(label)
    }

    /// Adds the tags of one comment, delimiters included, where there isn't one yet.
    pub fn read(&mut self, comment: &[u8]) {
        let line = comment.strip_prefix(b"--").or_else(|| comment.strip_prefix(b"#"));
        let body = line.or_else(|| {
            let body = comment.strip_prefix(b"/*")?;
            Some(body.strip_suffix(b"*/").unwrap_or(body))
        });
        let Some(body) = body.filter(|body| !body.starts_with(b"+")) else { return };
        let mut rest = body.get(..MAX_COMMENT).unwrap_or(body);
        while !rest.is_empty() {
            let (pair, behind) = pair(rest);
            rest = behind;
            let Some((key, value)) = pair.filter(|(key, _)| *key != TRACESTATE) else { continue };
            if key == TRACEPARENT {
                self.trace = self.trace.or_else(|| trace(&value.text()?));
                continue;
            }
            let (Ok(name), Some(text)) = (std::str::from_utf8(key), value.text()) else { continue };
            if self.pairs.len() < MAX_PAIRS {
                self.pairs.push(pair_hash(name, &text));
            }
            let place = match name {
                "route" => &mut self.route,
                "controller" => &mut self.controller,
                "action" => &mut self.action,
                "gatekeeper_timeout" => {
                    self.timeout = self.timeout.or_else(|| duration(&text));
                    continue;
                }
                _ => continue,
            };
            place.get_or_insert(text);
        }
    }
}

/// The trace of a `traceparent`: a version, the trace, the span that asks, and flags.
fn trace(text: &str) -> Option<NonZeroU128> {
    let digits = text.split('-').nth(1).filter(|digits| digits.len() == 32)?;
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    NonZeroU128::new(digits.bytes().all(is_digit).then(|| u128::from_str_radix(digits, 16).ok())??)
}

/// A whole number of milliseconds or seconds, such as `250ms` or `2s`; at most a day.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let count: u64 = digits.parse().ok()?;
    let duration = match &text[digits.len()..] {
        "ms" => Duration::from_millis(count),
        "s" => Duration::from_secs(count),
        _ => return None,
    };
    (duration <= Duration::from_secs(86_400)).then_some(duration)
}

/// Reads the tags of a text. What stands behind a place that can't be lexed isn't read.
#[must_use]
pub fn tags(sql: &[u8], dialect: Dialect) -> Tags {
    let mut tags = Tags::default();
    let mut lexer = Lexer::new(sql, dialect);
    while let Ok(Some(token)) = lexer.next_token() {
        if token.kind == TokenKind::Comment {
            tags.read(token.text(sql));
        }
    }
    tags
}

/// A tag's value as it stands in the comment.
#[derive(Debug, Clone, Copy)]
enum Value<'a> {
    /// A value of sqlcommenter: URL-encoded, with escaped quotes.
    Encoded(&'a [u8]),
    /// A value of marginalia.
    Plain(&'a [u8]),
}

impl Value<'_> {
    /// The value decoded and bounded; `None` if it can't be decoded or nothing is left of it.
    fn text(self) -> Option<String> {
        let bytes = match self {
            Self::Encoded(bytes) => decode(bytes)?,
            Self::Plain(bytes) => bytes.to_vec(),
        };
        let text = String::from_utf8(bytes).ok()?;
        let mut text: String = text.chars().filter(|c| !c.is_control()).collect();
        text.truncate(text.trim_end().len());
        text.drain(..text.len() - text.trim_start().len());
        cut(&mut text);
        (!text.is_empty()).then_some(text)
    }
}

/// The pair that `text` starts with, if it is one, and what follows its comma.
fn pair(text: &[u8]) -> (Option<(&[u8], Value<'_>)>, &[u8]) {
    let text = text.trim_ascii_start();
    let is_key = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.%".contains(byte);
    let key_len = text.iter().take_while(|byte| is_key(byte)).count();
    let (key, rest) = text.split_at(key_len);
    let until_comma = |rest: &'_ [u8]| memchr::memchr(b',', rest).unwrap_or(rest.len());
    let (value, behind) = match rest {
        _ if key.is_empty() => (None, rest),
        [b'=', b'\'', quoted @ ..] => match closing_quote(quoted) {
            Some(end) => (Some(Value::Encoded(&quoted[..end])), &quoted[end + 1..]),
            None => (None, &rest[rest.len()..]),
        },
        [b'=', bare @ ..] => {
            let end = until_comma(bare);
            (Some(Value::Encoded(bare[..end].trim_ascii())), &bare[end..])
        }
        [b':', plain @ ..] => {
            let end = until_comma(plain);
            (Some(Value::Plain(&plain[..end])), &plain[end..])
        }
        _ => (None, rest),
    };
    let comma = until_comma(behind);
    (value.map(|value| (key, value)), behind.get(comma + 1..).unwrap_or_default())
}

/// Where the first quote lies that no backslash escapes.
fn closing_quote(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += memchr::memchr2(b'\'', b'\\', text.get(at..)?)?;
        if text[at] == b'\'' {
            return Some(at);
        }
        at += 2;
    }
}

/// Undoes `%41` and `\'`; `None` if a percent sign isn't followed by two hexadecimal digits.
fn decode(mut text: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    loop {
        text = match text {
            [] => return Some(decoded),
            [b'%', high, low, rest @ ..] => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let byte = digit(*high)? * 16 + digit(*low)?;
                decoded.push(u8::try_from(byte).ok()?);
                rest
            }
            [b'%', ..] => return None,
            [b'\\', byte, rest @ ..] | [byte, rest @ ..] => {
                decoded.push(*byte);
                rest
            }
        };
    }
}

fn cut(text: &mut String) {
    if text.len() > MAX_TAG {
        let end = (0..=MAX_TAG).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        text.truncate(end);
    }
}
