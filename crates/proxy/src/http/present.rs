//! Which fields a head has that concern a gateway.
//!
//! One walk over the head finds them all. To search a map for one takes as long as to walk over several:
//! the hash of a name is a chain of sixteen multiplications and more. There would be a dozen to search for,
//! of which most heads have hardly any.

use http::header::{HeaderMap, HeaderValue};

use super::own_fields::is_misspelled;

/// What somebody wants to know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Connection,
    KeepAlive,
    ProxyConnection,
    TransferEncoding,
    Upgrade,
    Http2Settings,
    Te,
    ContentLength,
    Expect,
    /// One that says for whom a request is.
    Forwarded,
    /// `x-gatekeeper-type`.
    TypeName,
    /// One that a service may take for a field of the gate, though it is spelled otherwise
    /// ([`is_misspelled`]).
    Misspelled,
    /// The page whose script asks.
    Origin,
    /// Perhaps one that says for how long a client waits.
    TimeOut,
    /// `Accept` with HTML in it.
    Html,
    /// `Content-Type` of gRPC.
    Grpc,
    /// `Content-Type` of a stream of events, which goes on for as long as somebody listens.
    Events,
}

impl Field {
    fn of(name: &str, value: &HeaderValue) -> Option<Self> {
        // By the first letter, so that a name is compared with one or two others and not with each.
        let field = match (name.as_bytes().first()?, name) {
            (b'a', "accept") => return is_html(value).then_some(Self::Html),
            (b'c', "content-type") => return Self::of_type(value),
            (b'c', "connection") => Self::Connection,
            (b'c', "content-length") => Self::ContentLength,
            (b'e', "expect") => Self::Expect,
            (b'f', "forwarded") => Self::Forwarded,
            (b'g', "grpc-timeout") => Self::TimeOut,
            (b'h', "http2-settings") => Self::Http2Settings,
            (b'k', "keep-alive") => Self::KeepAlive,
            (b'o', "origin") => Self::Origin,
            (b'p', "proxy-connection") => Self::ProxyConnection,
            (b't', "te") => Self::Te,
            (b't', "transfer-encoding") => Self::TransferEncoding,
            (b'u', "upgrade") => Self::Upgrade,
            (b'x', "x-forwarded-for" | "x-forwarded-proto" | "x-forwarded-host") => Self::Forwarded,
            (b'x', "x-gatekeeper-type") => Self::TypeName,
            (b'x', name) if is_misspelled(name) => Self::Misspelled,
            (b'x', name) if name.ends_with("timeout") || name.ends_with("timeout-ms") => Self::TimeOut,
            _ => return None,
        };
        Some(field)
    }

    fn of_type(value: &HeaderValue) -> Option<Self> {
        let kind = value.as_bytes().trim_ascii_start();
        if kind.starts_with(b"application/grpc") {
            Some(Self::Grpc)
        } else {
            kind.starts_with(b"text/event-stream").then_some(Self::Events)
        }
    }

    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

fn is_html(accepted: &HeaderValue) -> bool {
    accepted.to_str().is_ok_and(|accepted| accepted.contains("text/html"))
}

/// What a head had when it was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Present {
    bits: u32,
    bytes: usize,
}

impl Present {
    /// Looks at a head.
    pub(crate) fn of(fields: &HeaderMap) -> Self {
        fields.iter().fold(Self::default(), |Self { bits, bytes }, (name, value)| {
            let name = name.as_str();
            Self {
                bits: bits | Field::of(name, value).map_or(0, Field::bit),
                bytes: bytes + name.len() + value.len() + 4,
            }
        })
    }

    /// Whether it had this one.
    pub(crate) const fn has(self, field: Field) -> bool {
        self.bits & field.bit() != 0
    }

    /// How long all its fields were together, as HTTP/1.1 writes them.
    pub(crate) const fn bytes(self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use http::header::HeaderName;

    use super::*;

    fn head(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let field = |&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
        fields.iter().map(field).collect()
    }

    #[test]
    fn a_head_has_what_it_says_and_nothing_else() {
        let fields = [
            ("connection", "a", Field::Connection),
            ("keep-alive", "a", Field::KeepAlive),
            ("proxy-connection", "a", Field::ProxyConnection),
            ("transfer-encoding", "a", Field::TransferEncoding),
            ("upgrade", "a", Field::Upgrade),
            ("http2-settings", "a", Field::Http2Settings),
            ("te", "a", Field::Te),
            ("content-length", "a", Field::ContentLength),
            ("expect", "a", Field::Expect),
            ("origin", "a", Field::Origin),
            ("forwarded", "a", Field::Forwarded),
            ("x-forwarded-for", "a", Field::Forwarded),
            ("x-gatekeeper-type", "a", Field::TypeName),
            ("x_forwarded-for", "a", Field::Misspelled),
            ("x.gatekeeper.type", "a", Field::Misspelled),
            ("grpc-timeout", "a", Field::TimeOut),
            ("x-client-timeout-ms", "a", Field::TimeOut),
            ("accept", "image/png, text/html;q=0.5", Field::Html),
            ("content-type", "application/grpc+proto", Field::Grpc),
            ("content-type", " text/event-stream;charset=utf-8", Field::Events),
        ];
        for (name, value, field) in fields {
            let present = Present::of(&head(&[("host", "a"), (name, value), ("accept", "*/*")]));
            assert!(present.has(field), "{name}");
            assert_eq!(present.bits, field.bit(), "{name}");
        }
        assert_eq!(Present::of(&head(&[("content-type", "text/html"), ("x-te", "a")])).bits, 0);
    }

    #[test]
    fn every_line_of_a_head_counts() {
        let mut fields = head(&[("host", "shop.example"), ("accept", "*/*")]);
        fields.append("accept", HeaderValue::from_static("text/html"));
        let lines = "host: shop.example\r\naccept: */*\r\naccept: text/html\r\n";
        let present = Present::of(&fields);
        assert!(present.bytes() == lines.len() && present.has(Field::Html));
    }
}
