//! What a proxy does to the fields of a message (RFC 9110, section 7.6; RFC 9112).
//!
//! * **Hop by hop**: fields for one connection end here: those that `Connection` names, and the usual ones.
//! * **Host**: exactly one, the target's if the target has one. It passes unchanged.
//! * **The client**: `X-Forwarded-For`, `-Proto`, `-Host`, and `Forwarded` (RFC 7239) if the request has one.
//!   What an untrusted client says of itself is dropped.
//! * **Misspelled**: many services read `X_Forwarded_For` as `X-Forwarded-For` (CGI, WSGI, PHP). Such names
//!   are always dropped, since trusted proxies pass them on unseen; so are all of these fields in trailers.
//!
//! No `Via`: a gateway may leave it out of responses, and common servers compress no request that has it.

use std::net::{IpAddr, SocketAddr};

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery, Uri};
use http::{Method, Request, Version};

use super::own_fields::{FORWARDED_FOR, FORWARDED_HOST, FORWARDED_PROTO, OWN, TYPE, is_misspelled};
use super::present::{Field, Present};
use crate::network::Network;

/// For one connection only, nominated or not.
static HOP_BY_HOP: [(Field, HeaderName); 6] = [
    (Field::Connection, header::CONNECTION),
    (Field::KeepAlive, HeaderName::from_static("keep-alive")),
    (Field::ProxyConnection, HeaderName::from_static("proxy-connection")),
    (Field::TransferEncoding, header::TRANSFER_ENCODING),
    (Field::Upgrade, header::UPGRADE),
    (Field::Http2Settings, HeaderName::from_static("http2-settings")),
];

/// What nobody may have taken out by nominating it: the origin would see another request than the client's.
const NOT_NOMINATED: [HeaderName; 7] = [
    header::HOST,
    header::CONTENT_LENGTH,
    header::CONTENT_TYPE,
    header::CONTENT_ENCODING,
    header::AUTHORIZATION,
    header::COOKIE,
    header::SET_COOKIE,
];
/// What says for whom a request is.
static FORWARDED: [HeaderName; 4] = [FORWARDED_FOR, FORWARDED_PROTO, FORWARDED_HOST, header::FORWARDED];

/// Takes out of trailers what only the gate says, and what could be read as that.
pub(crate) fn strip_trailers(trailers: &mut HeaderMap) {
    strip_misspelled(trailers);
    OWN.iter().chain([&header::FORWARDED]).for_each(|name| _ = trailers.remove(name));
}

fn strip_misspelled(fields: &mut HeaderMap) {
    let names: Vec<_> = fields.keys().filter(|name| is_misspelled(name.as_str())).cloned().collect();
    names.iter().for_each(|name| _ = fields.remove(name));
}

/// Why a request isn't one that may be passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    /// HTTP/1.1 without Host, or with several.
    #[error("a request needs exactly one Host field")]
    Host,
    /// Its Host is none.
    #[error("the Host field isn't a host")]
    BadHost,
    /// See [`NOT_NOMINATED`].
    #[error("Connection may not nominate this field")]
    Nomination,
    /// See `sniffer.rs`.
    #[error("both Content-Length and Transfer-Encoding")]
    Length,
    /// Transfer-Encoding other than chunked.
    #[error("a transfer coding that isn't chunked")]
    Coding,
    /// The target isn't a path.
    #[error("the target isn't one for a gateway")]
    Target,
    /// Its body isn't what its head says.
    #[error("the body isn't what the head says")]
    Body,
    /// It is larger than allowed.
    #[error("the body is too large")]
    LargeBody,
    /// Its head is larger than allowed, or has more fields.
    #[error("the head is larger than `header_max`, or has more fields than `header_fields_max`")]
    LargeHead,
    /// Its target is longer than hyper reads.
    #[error("the target is too long")]
    LongTarget,
    /// hyper can't read its head.
    #[error(
        "the head can't be read: its method, target, version or a field has a byte that HTTP/1.1 doesn't allow there \
         (a target has `<`, `>`, `` ` ``, `\"`, spaces and what isn't UTF-8 percent-encoded)"
    )]
    Head,
    /// HTTP/2 with several lengths.
    #[error("Content-Length fields that differ")]
    Lengths,
    /// CONNECT or TRACE.
    #[error("a gateway doesn't serve this method")]
    Method,
}

/// The client of a request, as far as the connection tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct From {
    /// `None`: a Unix socket.
    address: Option<IpAddr>,
    /// The address as a field has it.
    written: Option<HeaderValue>,
    /// Whether it came over TLS.
    encrypted: bool,
    /// Whether it may say for whom it asks.
    trusted: bool,
}

impl From {
    /// An address (`None`: a Unix socket), whether it came over TLS, and whether it may say for whom it asks.
    pub(crate) fn new(address: Option<IpAddr>, encrypted: bool, trusted: bool) -> Self {
        let address = address.map(|address| address.to_canonical());
        let written = address.and_then(|address| HeaderValue::try_from(address.to_string()).ok());
        Self { address, written, encrypted, trusted }
    }
}

/// The client's address: the peer's, or the last one that a trusted peer names and the gate doesn't trust.
/// `None`: a Unix socket, and no address is named.
pub(crate) fn client_of(fields: &HeaderMap, from: &From, trusted: &[Network]) -> Option<IpAddr> {
    let mut client = from.address;
    if !from.trusted {
        return client;
    }
    let lists = fields.get_all(FORWARDED_FOR).iter().rev();
    for element in lists.flat_map(|list| list.to_str().unwrap_or("?").rsplit(',')) {
        let Some(said) = node(element.trim()) else { break };
        client = Some(said);
        if !trusted.iter().any(|network| network.contains(said)) {
            break;
        }
    }
    client
}

/// An address, perhaps with a port.
fn node(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|address| address.ip()))
}

/// What a request wants its connection to become, if both it and the service want to (RFC 9110, section 7.8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Upgrade(pub(crate) HeaderValue);

/// Looks whether a request may be passed on, of whose head this is known.
///
/// # Errors
/// Why not.
pub(crate) fn check<B>(request: &Request<B>, present: Present) -> Result<(), Fault> {
    if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
        return Err(Fault::Method);
    }
    let fields = request.headers();
    let is_http2 = request.version() > Version::HTTP_11;
    // In HTTP/2 the authority is the host, and any Host is dropped; but there may be none.
    if !is_http2 || request.uri().authority().is_none() {
        let mut hosts = fields.get_all(header::HOST).iter();
        let host = hosts.next();
        if hosts.next().is_some() || (host.is_none() && request.version() >= Version::HTTP_11) {
            return Err(Fault::Host);
        }
        if host.is_some_and(|host| !is_host(host.as_bytes())) {
            return Err(Fault::BadHost);
        }
    }
    let has_coding = present.has(Field::TransferEncoding);
    if !is_http2 && has_coding {
        let mut codings = fields.get_all(header::TRANSFER_ENCODING).iter();
        let is_chunked =
            |coding: &HeaderValue| coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked");
        if codings.next().is_some_and(|coding| !is_chunked(coding)) || codings.next().is_some() {
            return Err(Fault::Coding);
        }
    } else if is_http2 && (has_coding || present.has(Field::Connection)) {
        // RFC 9113, section 8.2.2: such a message is malformed.
        return Err(Fault::Nomination);
    }
    if has_coding && present.has(Field::ContentLength) {
        return Err(Fault::Length);
    }
    let is_kept = |name: &str| NOT_NOMINATED.iter().any(|kept| name.eq_ignore_ascii_case(kept.as_str()));
    if present.has(Field::Connection) && nominated(fields).any(is_kept) {
        return Err(Fault::Nomination);
    }
    // It becomes the Host, in which nobody can be named.
    if request.uri().authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err(Fault::BadHost);
    }
    // A host alone is the target of CONNECT only.
    if request.uri().authority().is_some() && request.uri().scheme().is_none() {
        return Err(Fault::Target);
    }
    let path = request.uri().path();
    let is_asterisk = path == "*" && *request.method() == Method::OPTIONS;
    if !(path.starts_with('/') || is_asterisk || path.is_empty() && request.uri().authority().is_some()) {
        return Err(Fault::Target);
    }
    Ok(())
}

/// Whether it names a host, or nothing.
fn is_host(host: &[u8]) -> bool {
    // Most are a name or an address and perhaps a port, for which nothing has to be taken apart.
    let is_plain =
        |bytes: &[u8]| bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'));
    let (name, port) = match host.iter().position(|&byte| byte == b':') {
        Some(colon) => (&host[..colon], &host[colon + 1..]),
        None => (host, &b"80"[..]),
    };
    let is_number = (1..6).contains(&port.len()) && port.iter().all(u8::is_ascii_digit);
    if host.is_empty() || (!name.is_empty() && is_plain(name) && is_number) {
        return true;
    }
    Authority::try_from(host).is_ok() && !host.contains(&b'@')
}

fn nominated(fields: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = fields.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

/// Joins what a client of HTTP/2 may say of its cookies in many fields, and browsers do: in HTTP/1.1 there is
/// one (RFC 9113, section 8.2.3), and many a service reads no second one.
pub(crate) fn join_cookies(fields: &mut HeaderMap) {
    let crumbs = fields.get_all(header::COOKIE);
    if crumbs.iter().nth(1).is_none() {
        return;
    }
    let joined = crumbs.iter().map(HeaderValue::as_bytes).collect::<Vec<_>>().join(&b"; "[..]);
    // Whatever was allowed in the crumbs is allowed in the whole.
    if let Ok(mut joined) = HeaderValue::from_bytes(&joined) {
        joined.set_sensitive(true);
        fields.insert(header::COOKIE, joined);
    }
}

/// Makes one length of equal lengths (RFC 9110, section 8.6). HTTP/2 allows them, many services refuse them.
///
/// # Errors
/// They differ.
pub(crate) fn join_lengths(fields: &mut HeaderMap) -> Result<(), Fault> {
    let mut lengths = fields.get_all(header::CONTENT_LENGTH).iter();
    let Some(first) = lengths.next().cloned() else { return Ok(()) };
    let mut others = lengths.peekable();
    if others.peek().is_none() {
        return Ok(());
    }
    if others.any(|other| *other != first) {
        return Err(Fault::Lengths);
    }
    fields.insert(header::CONTENT_LENGTH, first);
    Ok(())
}

/// How many fields a head may have by default: hyper reads as many over HTTP/1.1 without taking memory.
pub(crate) const FIELDS_MAX: usize = 100;

/// Whether target and fields fit these bounds, written as HTTP/1.1 writes them.
pub(crate) fn is_within<B>(
    request: &Request<B>,
    present: Present,
    (bytes_max, fields_max): (usize, usize),
) -> bool {
    let target = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    present.bytes() + target <= bytes_max && request.headers().len() <= fields_max
}

/// The protocol to which a request over HTTP/1.1 wants to upgrade its connection. An upgrade to HTTP/2 or to
/// TLS isn't passed on: the gate could not see the requests in such a tunnel.
pub(crate) fn upgrade<B>(request: &Request<B>, present: Present) -> Option<Upgrade> {
    if !present.has(Field::Upgrade) {
        return None;
    }
    let wants = request.version() == Version::HTTP_11
        && nominated(request.headers()).any(|name| name.eq_ignore_ascii_case("upgrade"));
    let mut fields = request.headers().get_all(header::UPGRADE).iter().filter(|_| wants);
    let (to, others) = (fields.next()?, fields.next());
    let is_other_http = |name: &str| {
        let name = name.trim().to_ascii_lowercase();
        name == "h2c" || name == "h2" || name.starts_with("http/") || name.starts_with("tls/")
    };
    let passes = others.is_none() && !to.to_str().ok()?.split(',').any(is_other_http);
    passes.then(|| Upgrade(to.clone()))
}

/// Takes out what is for one connection only, of a head that had this.
pub(crate) fn strip(fields: &mut HeaderMap, present: Present) {
    if present.has(Field::Connection) {
        // These name no field, or one that goes in any case; TE is looked at below.
        let is_other = |name: &str| {
            !["keep-alive", "close", "upgrade", "te"].iter().any(|known| name.eq_ignore_ascii_case(known))
        };
        let names: Vec<HeaderName> = nominated(fields)
            .filter(|name| is_other(name))
            .filter_map(|name| HeaderName::from_bytes(name.as_bytes()).ok())
            .collect();
        for name in names {
            fields.remove(name);
        }
    }
    for (_, name) in HOP_BY_HOP.iter().filter(|(field, _)| present.has(*field)) {
        fields.remove(name);
    }
    // Whether the next hop may send trailers is passed on (RFC 9110, section 10.1.4): gRPC asks for it.
    if present.has(Field::Te)
        && let Some(codings) = fields.remove(header::TE)
        && codings.to_str().is_ok_and(|codings| codings.split(',').any(|coding| coding.trim() == "trailers"))
    {
        fields.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

/// Makes of a client's request (that [`check`] has passed) the head of the gate's own.
pub(crate) fn readdress<B>(request: &mut Request<B>, from: &From, present: Present) {
    strip(request.headers_mut(), present);
    // Most targets are a path, and stay as they are.
    if request.uri().authority().is_some() || request.uri().path().is_empty() {
        let target = request.uri().clone().into_parts();
        if let Some(authority) = target.authority
            && let Ok(host) = HeaderValue::from_str(authority.as_str())
        {
            request.headers_mut().insert(header::HOST, host);
        }
        let path = target.path_and_query.filter(|path| !path.as_str().is_empty());
        *request.uri_mut() = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    }
    if present.has(Field::Misspelled) {
        strip_misspelled(request.headers_mut());
    }
    if present.has(Field::TypeName) {
        request.headers_mut().remove(TYPE);
    }
    forward_for(request.headers_mut(), from, present.has(Field::Forwarded));
    *request.version_mut() = Version::HTTP_11;
}

/// `says_some`: of what is said here the client may say some itself. Most don't.
fn forward_for(fields: &mut HeaderMap, from: &From, says_some: bool) {
    let scheme = HeaderValue::from_static(if from.encrypted { "https" } else { "http" });
    if says_some && !from.trusted {
        FORWARDED.iter().for_each(|name| _ = fields.remove(name));
    }
    fields.entry(FORWARDED_PROTO).or_insert(scheme);
    if let Some(host) = fields.get(header::HOST).cloned() {
        fields.entry(FORWARDED_HOST).or_insert(host);
    }
    let (Some(address), Some(written)) = (from.address, &from.written) else { return };
    if says_some && fields.contains_key(FORWARDED_FOR) {
        append(fields, &FORWARDED_FOR, &address.to_string());
    } else {
        fields.insert(FORWARDED_FOR, written.clone());
    }
    if says_some && fields.contains_key(header::FORWARDED) {
        let node = if address.is_ipv6() { format!("for=\"[{address}]\"") } else { format!("for={address}") };
        append(fields, &header::FORWARDED, &node);
    }
}

/// Adds an element to a list, in one field.
fn append(fields: &mut HeaderMap, name: &HeaderName, element: &str) {
    let mut list: Vec<u8> = Vec::with_capacity(64);
    for value in fields.get_all(name) {
        list.extend_from_slice(value.as_bytes());
        list.extend_from_slice(b", ");
    }
    list.extend_from_slice(element.as_bytes());
    if let Ok(value) = HeaderValue::from_bytes(&list) {
        fields.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(fields: &[(&str, &str)]) -> Request<()> {
        let builder = Request::builder().uri("/a?b").header("host", "shop.example");
        fields.iter().fold(builder, |builder, (name, value)| builder.header(*name, *value)).body(()).unwrap()
    }

    fn from(trusted: bool) -> From {
        From::new(Some([192, 0, 2, 7].into()), true, trusted)
    }

    fn check<B>(request: &Request<B>) -> Result<(), Fault> {
        super::check(request, Present::of(request.headers()))
    }

    fn readdress<B>(request: &mut Request<B>, from: &From) {
        let present = Present::of(request.headers());
        super::readdress(request, from, present);
    }

    fn upgrade<B>(request: &Request<B>) -> Option<Upgrade> {
        super::upgrade(request, Present::of(request.headers()))
    }

    fn passed(fields: &[(&str, &str)], trusted: bool) -> HeaderMap {
        let mut request = request(fields);
        check(&request).unwrap();
        readdress(&mut request, &from(trusted));
        request.headers().clone()
    }

    #[test]
    fn hosts_are_names_addresses_and_ports() {
        for host in
            ["", "shop.example", "a-b.example:8080", "127.0.0.1:80", "[::1]:80", "a_b", "xn--n3h.example."]
        {
            assert!(is_host(host.as_bytes()), "{host}");
        }
        for host in ["user@shop.example", "a b", "a/b", "a:b:c", "a?b", "a#b", "[::1", "\u{e4}"] {
            assert!(!is_host(host.as_bytes()), "{host}");
        }
    }

    #[test]
    fn what_is_for_one_connection_ends_here() {
        let fields = passed(
            &[
                ("connection", "keep-alive, X-Secret , upgrade"),
                ("keep-alive", "timeout=5"),
                ("proxy-connection", "keep-alive"),
                ("upgrade", "websocket"),
                ("x-secret", "1"),
                ("te", "gzip, trailers"),
                ("trailer", "x-sum"),
                ("accept", "*/*"),
            ],
            false,
        );
        let mut names: Vec<&str> = fields.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(
            names,
            ["accept", "host", "te", "trailer", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"]
        );
        assert_eq!(fields["te"], "trailers");
    }

    #[test]
    fn what_an_untrusted_client_says_of_itself_is_dropped() {
        let said =
            [("x-forwarded-for", "10.0.0.1"), ("x-forwarded-proto", "http"), ("forwarded", "for=10.0.0.1")];
        let fields = passed(&said, false);
        assert_eq!(fields["x-forwarded-for"], "192.0.2.7");
        assert_eq!(fields["x-forwarded-proto"], "https");
        assert!(!fields.contains_key("forwarded"));
        let fields = passed(&said, true);
        assert_eq!(fields["x-forwarded-for"], "10.0.0.1, 192.0.2.7");
        assert_eq!(fields["x-forwarded-proto"], "http");
        assert_eq!(fields["forwarded"], "for=10.0.0.1, for=192.0.2.7");
    }

    #[test]
    fn equal_lengths_become_one_and_others_are_refused() {
        let joined = |lengths: [&'static str; 2]| {
            let field = |length| (header::CONTENT_LENGTH, HeaderValue::from_static(length));
            let mut fields = HeaderMap::from_iter(lengths.map(field));
            join_lengths(&mut fields).map(|()| fields.len())
        };
        assert_eq!((joined(["5", "5"]), joined(["5", "6"])), (Ok(1), Err(Fault::Lengths)));
    }

    #[test]
    fn what_a_service_may_read_as_a_field_of_the_gate_is_dropped_from_any_client() {
        let said = [
            ("x_forwarded_for", "10.0.0.1"),
            ("x-forwarded_proto", "http"),
            ("x.forwarded.host", "other.example"),
            ("x-gatekeeper-type", "checkout"),
            ("x~gatekeeper!type", "checkout"),
            ("x-real-ip", "10.0.0.1"),
            ("x_forwarded_fort", "kept"),
        ];
        for trusted in [false, true] {
            let fields = passed(&said, trusted);
            let mut names: Vec<&str> = fields.keys().map(HeaderName::as_str).collect();
            names.sort_unstable();
            let own = ["host", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto"];
            assert_eq!(names, [&own[..], &["x-real-ip", "x_forwarded_fort"]].concat());
        }
        let mut trailers: HeaderMap = said
            .into_iter()
            .chain([("x-forwarded-for", "10.0.0.1"), ("forwarded", "for=10.0.0.1"), ("x-sum", "1")])
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect();
        strip_trailers(&mut trailers);
        assert!(trailers.len() == 3 && trailers.contains_key("x-sum"), "{trailers:?}");
    }

    #[test]
    fn requests_that_two_readers_would_read_differently_are_refused() {
        let cases: [(&[(&str, &str)], Fault); 7] = [
            (&[("host", "other.example")], Fault::Host),
            (&[("content-length", "3"), ("transfer-encoding", "chunked")], Fault::Length),
            (&[("transfer-encoding", "gzip, chunked")], Fault::Coding),
            (&[("transfer-encoding", "chunked"), ("transfer-encoding", "identity")], Fault::Coding),
            (&[("transfer-encoding", "\u{b}chunked")], Fault::Coding),
            (&[("connection", "close, Content-Length")], Fault::Nomination),
            (&[("connection", "host")], Fault::Nomination),
        ];
        for (fields, fault) in cases {
            let built = Request::builder().uri("/").header("host", "shop.example");
            let built = fields.iter().try_fold(built, |built, (name, value)| {
                HeaderValue::from_bytes(value.as_bytes()).ok().map(|value| built.header(*name, value))
            });
            let Some(built) = built else { continue };
            assert_eq!(check(&built.body(()).unwrap()), Err(fault), "{fields:?}");
        }
        let mut none = request(&[]);
        none.headers_mut().remove(header::HOST);
        assert_eq!(check(&none), Err(Fault::Host));
        *none.version_mut() = Version::HTTP_10;
        assert_eq!(check(&none), Ok(()));
        *none.version_mut() = Version::HTTP_2;
        assert_eq!(check(&none), Err(Fault::Host), "nor is there an authority");
        let mut two = request(&[("host", "other.example")]);
        *two.version_mut() = Version::HTTP_2;
        assert_eq!(check(&two), Err(Fault::Host));
        *two.uri_mut() = Uri::from_static("http://shop.example/");
        check(&two).unwrap();
        readdress(&mut two, &from(false));
        assert_eq!(two.headers().get_all(header::HOST).iter().collect::<Vec<_>>(), ["shop.example"]);
        for host in ["a b", "user@shop.example", "a/b", "a:b:c"] {
            let mut bad = request(&[]);
            bad.headers_mut().insert(header::HOST, HeaderValue::from_str(host).unwrap());
            assert_eq!(check(&bad), Err(Fault::BadHost), "{host}");
        }
    }

    #[test]
    fn cookies_in_many_fields_become_one_that_stays_secret() {
        let mut fields =
            request(&[("cookie", "a=1"), ("accept", "*/*"), ("cookie", "b=2"), ("cookie", "c=\"3\"")]);
        join_cookies(fields.headers_mut());
        let joined: Vec<_> = fields.headers().get_all(header::COOKIE).iter().collect();
        assert_eq!(joined, ["a=1; b=2; c=\"3\""]);
        assert!(joined[0].is_sensitive());
        assert_eq!(fields.headers().len(), 3);
    }

    #[test]
    fn a_target_with_a_host_says_which() {
        let mut absolute = request(&[]);
        *absolute.uri_mut() = Uri::from_static("http://other.example:81/x?y");
        check(&absolute).unwrap();
        readdress(&mut absolute, &from(false));
        assert_eq!(
            (absolute.uri().to_string().as_str(), &absolute.headers()["host"]),
            ("/x?y", &HeaderValue::from_static("other.example:81"))
        );
        let mut star = request(&[]);
        (*star.uri_mut(), *star.method_mut()) = (Uri::from_static("*"), Method::OPTIONS);
        check(&star).unwrap();
        readdress(&mut star, &from(false));
        assert_eq!(star.uri().path(), "*");
        for method in [Method::CONNECT, Method::TRACE] {
            let mut refused = request(&[]);
            *refused.method_mut() = method;
            assert_eq!(check(&refused), Err(Fault::Method));
        }
    }

    #[test]
    fn an_upgrade_is_asked_for_by_both_fields() {
        assert!(upgrade(&request(&[("connection", "Upgrade"), ("upgrade", "websocket")])).is_some());
        assert!(upgrade(&request(&[("upgrade", "websocket")])).is_none());
        assert!(upgrade(&request(&[("connection", "upgrade")])).is_none());
        for other in ["h2c", "H2C, websocket", "websocket, HTTP/2.0", "TLS/1.0"] {
            assert!(upgrade(&request(&[("connection", "Upgrade"), ("upgrade", other)])).is_none(), "{other}");
        }
    }
}
