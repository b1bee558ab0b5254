//! Bodies of fuzz targets for what is private here: the preamble of a load balancer, the look at lengths in
//! passing, what a service says before its response, what is passed on of a head and believed of it, and
//! what is learned of paths, parameters, deadlines and traces.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Uri, Version};
use tokio::time::Instant;

use super::classify::{Classifier, TypeField, TypeRule, time_out};
use super::fields::{self, From};
use super::interim::Ear;
use super::key::named;
use super::parameters::{Parameters, Said};
use super::path::normal;
use super::preamble;
use super::present::Present;
use super::routes::SEEN;
use super::sniffer::Sniffer;
use super::span::{Parent, TRACEPARENT};

/// The longest preamble that is read: a binary one's fixed part and all that may follow.
const PREAMBLE_MAX: usize = 16 + 2_048;
/// How often each path is asked for, or it would never be shown.
const TIMES_MAX: u32 = SEEN + 8;
/// Paths of one input: each is asked for many times.
const PATHS_MAX: usize = 32;
/// The fields that say until when an answer is wanted.
const DEADLINES: [&str; 4] =
    ["grpc-timeout", "x-request-timeout", "x-client-timeout-ms", "x-envoy-expected-rq-timeout-ms"];

/// A preamble: no more of it is read than belongs to it, and nothing that stands behind it changes what it
/// says.
///
/// # Panics
/// If that isn't so.
pub fn preamble(data: &[u8]) {
    let Some((said, length)) = heard(data) else { return };
    assert!(length <= PREAMBLE_MAX);
    assert_eq!(heard(&data[..length]), Some((said, length)), "what stands behind it changes it");
    assert_eq!(heard(&data[..length - 1]), None, "it isn't whole");
}

/// The client's address in a preamble, if there is one, and the preamble's length. `None`: the data begins
/// with no whole preamble.
fn heard(data: &[u8]) -> Option<(Option<std::net::IpAddr>, usize)> {
    let mut rest = data;
    let said = {
        let mut reading = pin!(preamble::read(&mut rest));
        match reading.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(said) => said.ok()?,
            Poll::Pending => unreachable!("bytes at hand don't wait"),
        }
    };
    Some((said, data.len() - rest.len()))
}

/// Whether bytes that come in these pieces show a request with two lengths.
pub fn is_ambiguous<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> bool {
    let mut sniffer = Sniffer::default();
    pieces.into_iter().for_each(|piece| sniffer.see(piece));
    sniffer.take_ambiguous()
}

/// What a client is told before a response, of a service that says this in these pieces.
pub fn said_before<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let ear = Ear::default();
    ear.begin(true);
    pieces.into_iter().for_each(|piece| ear.hear(piece));
    ear.take().unwrap_or_default()
}

/// Requests, one a line (`METHOD PATH`): whatever is asked for, a label is short and shows no segment that
/// fewer have asked for than make it the site's; the same request is of the same type as long as nothing is
/// learned.
///
/// # Panics
/// If that isn't so.
pub fn request_types(data: &[u8]) {
    let path = vec!["static".into(), "**".into()];
    let rule = TypeRule { method: None, path, name: "static".into(), files: None };
    let classifier = Classifier::new(vec![rule], TypeField::Use);
    let mut asked: HashMap<String, u32> = HashMap::new();
    for line in data.split(|&byte| byte == b'\n').take(PATHS_MAX) {
        deadlines(line);
        parents(line);
        let mut words = line.splitn(2, |&byte| byte == b' ');
        let method = words.next().and_then(|method| Method::from_bytes(method).ok());
        let path = words.next().and_then(|path| Uri::try_from(path).ok());
        let (Some(method), Some(path)) = (method, path) else { continue };
        let Ok(request) = Request::builder().method(method).uri(path).body(()) else { continue };
        let times = 1 + line.len() as u32 % TIMES_MAX;
        let path = normal(request.uri().path());
        for segment in path.split('/') {
            *asked.entry(segment.to_owned()).or_default() += times;
        }
        for _ in 0..times {
            check_label(&classifier.classify(request.method(), &path).name.label, &asked);
        }
    }
}

/// A query, a line break and the beginning of a body: what they say is short and plain, and each value that
/// was shown before a restart is shown after it.
///
/// # Panics
/// If that isn't so.
pub fn parameters(data: &[u8]) {
    let mut parts = data.splitn(2, |&byte| byte == b'\n');
    let query = parts.next().and_then(|query| std::str::from_utf8(query).ok());
    let body = parts.next();
    let said = || Said::of(query, body);
    for (name, value) in said().all() {
        let sign = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:".contains(&byte);
        assert!(name.len() <= 32 && name.bytes().all(sign), "{name:?}");
        assert!((1..=64).contains(&value.len()) && value.bytes().all(sign), "{value:?}");
        let (parameters, label) = (Parameters::default(), format!("GET /path?{name}={value}"));
        assert_eq!(parameters.recall(&label, Instant::now()), Some("GET /path"));
        let path = parameters.of(&named("GET /path")).expect("it is known");
        let (found, _) = path.tell_apart(said());
        assert_eq!(found.map(|found| found.label.to_string()), Some(label));
    }
}

fn check_label(label: &str, asked: &HashMap<String, u32>) {
    assert!(label.len() <= 1_024, "{label}");
    if label == "static" {
        return;
    }
    let (_, path) = label.split_once(' ').expect("a method comes first");
    for segment in path.split('/').filter(|segment| !segment.is_empty() && !segment.starts_with('*')) {
        let times = asked.get(segment).copied().unwrap_or(0);
        assert!(times >= SEEN, "{segment:?} of {label} was asked for {times} times");
    }
}

/// A head: its first byte says how it came, the first line is `METHOD TARGET`, each other one `NAME:
/// VALUE`. Of what passes, nothing is sent on that is for one connection only, its target is a path, it has
/// one host, and a peer that isn't trusted says of itself only what the gate knows.
///
/// # Panics
/// If that isn't so.
pub fn head(data: &[u8]) {
    let Some((&how, text)) = data.split_first() else { return };
    let Some(mut request) = head_of(text) else { return };
    if how & 1 > 0 {
        *request.version_mut() = Version::HTTP_2;
    }
    let (encrypted, trusted) = (how & 2 > 0, how & 4 > 0);
    let address = std::net::IpAddr::from([192, 0, 2, 7]);
    let from = From::new(Some(address), encrypted, trusted);
    let client = fields::client_of(request.headers(), &from, &[]);
    assert!(client.is_some() && (trusted || client == Some(address)), "{client:?}");
    let present = Present::of(request.headers());
    let _ = fields::upgrade(&request, present);
    if fields::check(&request, present).is_err() {
        return;
    }
    let nominated: Vec<String> = values(request.headers(), "connection")
        .flat_map(|value| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    fields::readdress(&mut request, &from, present);
    let (target, sent) = (request.uri(), request.headers());
    assert!(
        target.authority().is_none() && (target.path().starts_with('/') || target.path() == "*"),
        "{target}"
    );
    for name in sent.keys().map(HeaderName::as_str) {
        let added = name.starts_with("x-forwarded-") || matches!(name, "forwarded" | "host" | "te");
        assert!(added || !nominated.iter().any(|other| other == name), "{name} is for one connection");
        assert!(!["connection", "keep-alive", "proxy-connection", "upgrade"].contains(&name), "{name}");
    }
    assert!(values(sent, "te").all(|coding| coding == "trailers"));
    let hosts: Vec<&HeaderValue> = sent.get_all("host").iter().collect();
    assert!(hosts.len() <= 1 && hosts.iter().all(|host| !host.as_bytes().contains(&b'@')), "{hosts:?}");
    let said = |name: &str| values(sent, name).collect::<Vec<_>>();
    if trusted {
        let asks = sent.get_all("x-forwarded-for").iter().next_back().map(HeaderValue::as_bytes);
        assert!(asks.is_some_and(|asks| asks.ends_with(b"192.0.2.7")), "{asks:?}");
    } else {
        assert_eq!(said("x-forwarded-for"), ["192.0.2.7"]);
        assert_eq!(said("x-forwarded-proto"), [if encrypted { "https" } else { "http" }]);
        assert!(said("forwarded").is_empty() && sent.get("x-forwarded-host") == sent.get("host"));
    }
}

fn head_of(text: &[u8]) -> Option<Request<()>> {
    let mut lines = text.split(|&byte| byte == b'\n');
    let mut words = lines.next()?.splitn(2, |&byte| byte == b' ');
    let mut request = Request::builder()
        .method(Method::from_bytes(words.next()?).ok()?)
        .uri(Uri::try_from(words.next()?).ok()?)
        .body(())
        .ok()?;
    for line in lines {
        let at = line.iter().position(|&byte| byte == b':')?;
        let name = HeaderName::from_bytes(&line[..at]).ok()?;
        request.headers_mut().append(name, HeaderValue::from_bytes(line[at + 1..].trim_ascii()).ok()?);
    }
    Some(request)
}

fn values<'a>(fields: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a str> {
    fields.get_all(name).iter().filter_map(|value| value.to_str().ok())
}

/// What is taken for a trace stood there.
fn parents(value: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(value) else { return };
    let Some(parent) = Parent::of(&HeaderMap::from_iter([(TRACEPARENT, value.clone())])) else { return };
    let ids = format!("-{:032x}-{:016x}-", parent.trace, parent.span);
    assert!(value.to_str().is_ok_and(|text| text[2..].starts_with(&ids)), "{ids} isn't in {value:?}");
}

/// Whatever a client says of its patience, it is a time or nothing.
fn deadlines(value: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(value) else { return };
    for name in DEADLINES {
        let fields = HeaderMap::from_iter([(HeaderName::from_static(name), value.clone())]);
        if let Some(time) = time_out(&fields) {
            let _ = admission::Instant::ZERO.after(time);
        }
    }
}
