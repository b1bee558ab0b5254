//! The trace that a request belongs to (W3C Trace Context), and the gate's own part in it.
//!
//! `traceparent` is a version, the trace, the span that asks, and flags; a request that has one belongs to
//! that trace, and is recorded if it says so. Of the others a share begins a trace here. Only where a span
//! of the gate's is recorded the service hears of that span as its parent; else the fields pass as they
//! came. `tracestate` always does.

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

use crate::otlp::Exporter;

pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// The last flag: the caller records the trace.
const SAMPLED: u8 = 1;

/// What is told of requests to a collector.
#[derive(Clone, Debug)]
pub struct Traces {
    /// The way there.
    pub exporter: Exporter,
    /// The share of those requests that begin a trace here, from 0 to 1.
    pub share: f64,
}

/// The trace of a request, and whose part of it asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parent {
    pub(crate) trace: u128,
    pub(crate) span: u64,
    pub(crate) is_sampled: bool,
}

impl Parent {
    /// By a request; `None` if it has none, or several, or what isn't one.
    pub(crate) fn of(fields: &HeaderMap) -> Option<Self> {
        let mut all = fields.get_all(TRACEPARENT).iter();
        let (Some(one), None) = (all.next(), all.next()) else { return None };
        let mut parts = one.to_str().ok()?.split('-');
        let version = hexadecimal(parts.next()?, 2)?;
        let trace = hexadecimal(parts.next()?, 32)?;
        let span = u64::try_from(hexadecimal(parts.next()?, 16)?).ok()?;
        let flags = u8::try_from(hexadecimal(parts.next()?, 2)?).ok()?;
        // Later versions may have more behind it; 255 is none.
        let is_known = version != 0xff && (version != 0 || parts.next().is_none());
        (is_known && trace != 0 && span != 0).then_some(Self {
            trace,
            span,
            is_sampled: flags & SAMPLED == SAMPLED,
        })
    }
}

/// In lower case, as it has to be.
fn hexadecimal(text: &str, digits: usize) -> Option<u128> {
    let is_hexadecimal = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let fits = text.len() == digits && text.bytes().all(is_hexadecimal);
    if fits { u128::from_str_radix(text, 16).ok() } else { None }
}

/// The gate's own part in a trace, which is recorded.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) exporter: Exporter,
    pub(crate) trace: u128,
    pub(crate) id: u64,
    pub(crate) parent: Option<u64>,
}

impl Recorded {
    /// For a request that asks so, if it is to be recorded.
    pub(crate) fn begin(traces: &Traces, parent: Option<Parent>) -> Option<Self> {
        let is_recorded = match parent {
            Some(parent) => parent.is_sampled,
            None => rand::random_bool(traces.share.clamp(0.0, 1.0)),
        };
        is_recorded.then(|| Self {
            exporter: traces.exporter.clone(),
            trace: parent.map_or_else(|| rand::random::<u128>().max(1), |parent| parent.trace),
            id: rand::random::<u64>().max(1),
            parent: parent.map(|parent| parent.span),
        })
    }

    /// What the service is told.
    pub(crate) fn to_service(&self) -> Option<HeaderValue> {
        HeaderValue::from_str(&format!("00-{:032x}-{:016x}-{SAMPLED:02x}", self.trace, self.id)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parent(text: &str) -> Option<Parent> {
        Parent::of(&HeaderMap::from_iter([(TRACEPARENT, HeaderValue::from_str(text).unwrap())]))
    }

    #[test]
    fn a_parent_is_read_as_the_standard_says_and_nothing_else_is() {
        let id = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";
        let sampled = Parent {
            trace: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736,
            span: 0x00f0_67aa_0ba9_02b7,
            is_sampled: true,
        };
        assert_eq!(parent(&format!("00-{id}-01")), Some(sampled));
        assert_eq!(parent(&format!("00-{id}-00")), Some(Parent { is_sampled: false, ..sampled }));
        assert_eq!(parent(&format!("cc-{id}-03-later")), Some(sampled));
        for wrong in [
            format!("00-{id}-01-more"),
            format!("ff-{id}-01"),
            format!("00-{id}"),
            format!("00-{}-01", id.to_uppercase()),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{}-01", "0".repeat(16)),
            format!("0-{id}-01"),
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned(),
            String::new(),
        ] {
            assert_eq!(parent(&wrong), None, "{wrong}");
        }
        let value = HeaderValue::from_str(&format!("00-{id}-01")).unwrap();
        let mut twice = HeaderMap::from_iter([(TRACEPARENT, value.clone())]);
        twice.append(TRACEPARENT, value);
        assert_eq!(Parent::of(&twice), None);
    }
}
