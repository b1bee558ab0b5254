//! What only a gate for HTTP has: its endpoints, its bounds, and what requests are called.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use super::number;
use super::words::absolute_file;
use crate::address::{Address, Scheme};
use crate::complaint::Complaint;
use crate::raw::{self, ROUTE, Section};

pub(crate) const GATE_PORT: u16 = 8081;
/// The most endpoints of one service.
const ENDPOINTS_MAX: usize = 64;
/// The most networks in a list.
const NETWORKS_MAX: usize = 1000;
/// The most routes of one gate.
const ROUTES_MAX: usize = 1000;
/// The longest name of a type, in bytes: as long as one in a response may be.
pub(super) const TYPE_BYTES_MAX: usize = 64;
/// The longest path of a route, in bytes.
pub(super) const PATH_BYTES_MAX: usize = 1000;

/// What the service speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpVersion {
    /// HTTP/1.1, or with TLS what both agree on.
    Http1,
    /// HTTP/2.
    Http2,
}

/// What becomes of the name of a type in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TypeField {
    /// It is used, and taken off.
    Use,
    /// It is passed on.
    Ignore,
}

/// The rate of the uplink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uplink {
    /// Bits per second that the operator has set.
    Bits(u64),
    /// What the gate finds.
    Auto,
    /// The kernel orders responses.
    Kernel(KernelBands),
}

/// Which queueing discipline of the kernel orders responses, by bands of remaining bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelBands {
    /// Classes of HTB.
    Htb,
    /// Five bands of `prio`.
    Prio,
    /// The three bands of `pfifo_fast`.
    PfifoFast,
}

/// In which order responses share the uplink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Egress {
    /// Alike, in turn.
    Fair,
    /// The one with the fewest bytes remaining first.
    ShortestRemaining,
    /// The one with the fewest bytes remaining first, however long others wait: for the papers' experiments.
    ShortestRemainingOnly,
    /// By bands of remaining bytes, whose ends are learned.
    Bands,
}

/// How endpoints are asked whether they are well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// What is asked for; `None`: nothing.
    pub path: Option<String>,
    /// How often.
    pub interval: Duration,
    /// How long an answer may take.
    pub timeout: Duration,
}

/// A network of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// One of its addresses.
    pub address: IpAddr,
    /// The number of leading bits that all its addresses share.
    pub bits: u8,
}

impl std::fmt::Display for Network {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}/{}", self.address, self.bits)
    }
}

/// A route: the requests of one type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The name of the type.
    pub name: String,
    /// The method that a request must have; `None` for any.
    pub method: Option<String>,
    /// The path as it is written: `*` stands for one segment, `**` at the end for any number.
    pub path: String,
    /// The directory whose files answer the requests; `None`: the service does.
    pub files: Option<PathBuf>,
}

/// A gate for HTTP, beside what every gate has.
#[derive(Clone, Debug, PartialEq)]
pub struct Http {
    /// The addresses of the service, at least one.
    pub upstream: Vec<Address>,
    /// The routes that name requests.
    pub routes: Vec<Route>,
    /// Whether responses name types.
    pub type_field: TypeField,
    /// Whether the service hears of types.
    pub pass_type: bool,
    /// What the service speaks.
    pub version: HttpVersion,
    /// How long the service may take to the head of its response.
    pub upstream_timeout: Duration,
    /// Connections kept idle for each endpoint.
    pub idle_connections: u32,
    /// How endpoints are asked whether they are well.
    pub health_check: HealthCheck,
    /// How long a client may take for a head.
    pub header_timeout: Duration,
    /// How long a client may pause within a body.
    pub body_timeout: Duration,
    /// The largest head, in bytes.
    pub header_max: u32,
    /// The most fields of a head.
    pub header_fields_max: u32,
    /// The largest body of a request, in bytes.
    pub body_max: Option<u64>,
    /// The networks of proxies whose word on the client's address is trusted.
    pub trusted_proxies: Vec<Network>,
    /// Whether connections begin with the PROXY protocol.
    pub proxy_protocol: bool,
    /// Whether responses say how long they were held up.
    pub server_timing: bool,
    /// The page that clients see when a request is refused.
    pub error_page: Option<PathBuf>,
    /// The file in which requests are logged.
    pub access_log: Option<PathBuf>,
    /// The collector to which requests are reported.
    pub otlp: Option<Address>,
    /// The share of requests that begin a trace here.
    pub otlp_share: f64,
    /// The uplink; `None`: responses don't wait for one another.
    pub uplink: Option<Uplink>,
    /// In which order they share it.
    pub egress: Egress,
}

pub(crate) const VERSIONS: &[(&str, HttpVersion)] = &[("1.1", HttpVersion::Http1), ("2", HttpVersion::Http2)];
pub(crate) const TYPE_FIELDS: &[(&str, TypeField)] =
    &[("use", TypeField::Use), ("ignore", TypeField::Ignore)];
pub(crate) const KERNEL_BANDS: &[(&str, KernelBands)] =
    &[("htb", KernelBands::Htb), ("prio", KernelBands::Prio), ("pfifo_fast", KernelBands::PfifoFast)];
pub(crate) const EGRESSES: &[(&str, Egress)] = &[
    ("srpt", Egress::ShortestRemaining),
    ("fair", Egress::Fair),
    ("bands", Egress::Bands),
    ("srpt-without-aging", Egress::ShortestRemainingOnly),
];
/// The slowest and the fastest uplink, in bits per second.
pub const UPLINKS: std::ops::RangeInclusive<u64> = 64_000..=400_000_000_000;

/// Reads the keys of a gate for HTTP, and what the upstream's addresses say of TLS.
pub(super) fn read(section: &mut Section<'_>) -> (Http, Option<Scheme>) {
    let (upstream, scheme) = read_upstream(section);
    let http = Http {
        upstream,
        routes: read_routes(section),
        type_field: section.read("type_field", |value| raw::choice(value, TYPE_FIELDS)),
        pass_type: section.read("pass_type", raw::boolean),
        version: section.read("upstream_http", |value| raw::choice(value, VERSIONS)),
        upstream_timeout: section.read("upstream_timeout", raw::some_time),
        idle_connections: section.read("idle_connections", |value| number(value, 0, 10_000)),
        health_check: HealthCheck {
            path: section.read("health_check", checked_path),
            interval: section.read("health_interval", interval),
            timeout: section.read("health_timeout", raw::some_time),
        },
        header_timeout: section.read("header_timeout", raw::some_time),
        body_timeout: section.read("body_timeout", raw::some_time),
        header_max: section.read("header_max", |value| number(value, 4096, 1 << 20)),
        header_fields_max: section.read("header_fields_max", |value| number(value, 10, 1000)),
        body_max: section.read("body_max", |value| raw::bound(value, 1 << 40)),
        trusted_proxies: section.read("trusted_proxies", networks),
        proxy_protocol: section.read("proxy_protocol", raw::boolean),
        server_timing: section.read("server_timing", raw::boolean),
        error_page: section.read("error_page", file),
        access_log: section.read("access_log", absolute_file),
        otlp: section.read("otlp", collector),
        otlp_share: section.read("otlp_share", share),
        uplink: section.read("uplink", uplink),
        egress: section.read("egress", |value| raw::choice(value, EGRESSES)),
    };
    (http, scheme)
}

/// The units of a rate, and their bits.
const RATE_UNITS: [(&str, u64); 3] = [("kbit", 1_000), ("Mbit", 1_000_000), ("Gbit", 1_000_000_000)];

/// A rate as people write it: in the largest unit of which it is a whole number.
pub(crate) fn rate_text(bits: u64) -> String {
    let [kbit, ..] = RATE_UNITS;
    let whole = RATE_UNITS.iter().rev().find(|(_, unit)| bits % *unit == 0);
    let (unit, each) = whole.unwrap_or(&kbit);
    format!("{}{unit}", bits / each)
}

/// The bits per second of a rate such as `10Mbit`; `None`: the text is none.
pub fn bits_per_second(text: &str) -> Option<u64> {
    RATE_UNITS.iter().find_map(|(unit, bits)| {
        let number: u64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
        number.checked_mul(*bits)
    })
}

/// A rate as `"10Mbit"`, or a word.
fn uplink(value: &DeValue<'_>) -> Result<Option<Uplink>, Complaint> {
    let text = raw::some_text(value)?;
    match text.as_str() {
        "none" => return Ok(None),
        "auto" => return Ok(Some(Uplink::Auto)),
        word => {
            if let Some((_, bands)) = KERNEL_BANDS.iter().find(|(name, _)| *name == word) {
                return Ok(Some(Uplink::Kernel(*bands)));
            }
        }
    }
    let hint = "write such as \"10Mbit\", \"800kbit\" or \"1Gbit\" (each second), \"auto\", \"htb\", \"prio\", \"pfifo_fast\" or \"none\"";
    let bits = bits_per_second(&text);
    let bits = bits.ok_or_else(|| Complaint::new("isn't a rate").hint(hint))?;
    match UPLINKS.contains(&bits) {
        true => Ok(Some(Uplink::Bits(bits))),
        false => Err(Complaint::new("must be from \"64kbit\" to \"400Gbit\"").hint(hint)),
    }
}

fn read_upstream(section: &mut Section<'_>) -> (Vec<Address>, Option<Scheme>) {
    let given = section.read_given("upstream", |value| {
        let texts = raw::texts(value)?;
        if texts.len() > ENDPOINTS_MAX {
            return Err(Complaint::new(format!("names more than {ENDPOINTS_MAX} endpoints")));
        }
        texts.iter().map(|text| Address::parse_http(text)).collect::<Result<Vec<_>, _>>()
    });
    let hint = "write where the application listens, such as \"127.0.0.1:8000\"";
    match &given {
        None if !section.has("upstream") => {
            section.complain("upstream", Complaint::new("is missing").hint(hint));
        }
        Some(all) if all.is_empty() => {
            section.complain("upstream", Complaint::new("names no endpoint").hint(hint));
        }
        _ => {}
    }
    let all = given.unwrap_or_default();
    let schemes: Vec<Scheme> = all.iter().filter_map(|(scheme, _)| *scheme).collect();
    let is_mixed = schemes.windows(2).any(|pair| pair[0] != pair[1]);
    if is_mixed || (schemes.contains(&Scheme::Https) && schemes.len() < all.len()) {
        let complaint = Complaint::new("mixes https:// with what isn't");
        section.complain("upstream", complaint.hint("the endpoints of one service are reached in one way"));
    }
    (all.into_iter().map(|(_, address)| address).collect(), schemes.first().copied())
}

fn read_routes(section: &mut Section<'_>) -> Vec<Route> {
    let Some(tables) = section.tables("route", "[[gate.route]]") else { return Vec::new() };
    if tables.len() > ROUTES_MAX {
        section.complain("route", Complaint::new(format!("there are more than {ROUTES_MAX}")));
        return Vec::new();
    }
    tables.iter().filter_map(|table| read_route(section, table)).collect()
}

fn read_route(section: &mut Section<'_>, table: &Spanned<DeValue<'_>>) -> Option<Route> {
    let mut below = section.below("route", table, ROUTE, "write [[gate.route]] with a `path` below")?;
    let method = below.read_given("method", method);
    let path = below.read_given("path", |value| route_path(raw::some_text(value)?));
    let name = below.read_given("name", type_name);
    if path.is_none() && !below.has("path") {
        below.complain("path", Complaint::new("is missing").hint("write such as path = \"/cart/*\""));
    }
    let path = path?;
    let described = || match &method {
        Some(method) => format!("{method} {path}"),
        None => path.clone(),
    };
    let name = match name {
        Some(name) => name,
        None if !below.has("name") && described().len() > TYPE_BYTES_MAX => {
            let complaint =
                Complaint::new(format!("is missing: the path has more than {TYPE_BYTES_MAX} bytes"));
            below.complain("name", complaint.hint("say what such requests are called"));
            return None;
        }
        None => described(),
    };
    let files = files(&mut below, &path, method.is_some());
    Some(Route { name, method, path, files })
}

/// The directory of a route with files.
fn files(route: &mut Section<'_>, path: &str, has_method: bool) -> Option<PathBuf> {
    let files = route.read_given("static", |value| raw::some_text(value).map(PathBuf::from))?;
    let fixed = path.strip_suffix("/**");
    if fixed.is_none_or(|fixed| fixed.split('/').any(|segment| segment == "*")) {
        let complaint = Complaint::new("needs a `path` that ends with /** and has no other *");
        route.complain("static", complaint.hint("** stands for the name of the file"));
    }
    if has_method {
        let complaint = Complaint::new("can't stand beside `method`");
        route.complain("static", complaint.hint("files are for GET and HEAD; leave `method` out"));
    }
    Some(files)
}

fn method(value: &DeValue<'_>) -> Result<String, Complaint> {
    let text = raw::some_text(value)?;
    if text.len() <= 32 && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-') {
        Ok(text)
    } else {
        Err(Complaint::new("isn't a method").hint("methods are written in capitals: \"POST\""))
    }
}

/// A path with `*` and `**`.
pub(super) fn route_path(text: String) -> Result<String, Complaint> {
    if !text.starts_with('/') {
        return Err(Complaint::new("doesn't begin with /").hint(format!("write \"/{text}\"")));
    }
    if text.len() > PATH_BYTES_MAX || !text.bytes().all(|byte| byte.is_ascii_graphic()) || text.contains('?')
    {
        return Err(
            Complaint::new("isn't a path").hint("write it as it stands in a request, without a query")
        );
    }
    let segments: Vec<&str> = text.split('/').collect();
    if segments.iter().rev().skip(1).any(|segment| *segment == "**") {
        return Err(Complaint::new("has ** before its end").hint("** stands for all that follows"));
    }
    let is_part = |segment: &&&str| segment.contains('*') && !matches!(**segment, "*" | "**");
    if let Some(part) = segments.iter().find(is_part) {
        let complaint = Complaint::new(format!("{part:?} is neither a segment nor all of one"));
        return Err(complaint.hint("* stands for a whole segment"));
    }
    Ok(text)
}

fn type_name(value: &DeValue<'_>) -> Result<String, Complaint> {
    let text = raw::some_text(value)?;
    if text.len() <= TYPE_BYTES_MAX && text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
        Ok(text)
    } else {
        let hint = format!("write at most {TYPE_BYTES_MAX} printable ASCII characters");
        Err(Complaint::new("can't be a name").hint(hint))
    }
}

fn checked_path(value: &DeValue<'_>) -> Result<Option<String>, Complaint> {
    let text = raw::some_text(value)?;
    match text.as_str() {
        "none" => Ok(None),
        path if path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Some(text)),
        _ => Err(Complaint::new("isn't a path").hint("write such as \"/healthz\", or \"none\"")),
    }
}

fn interval(value: &DeValue<'_>) -> Result<Duration, Complaint> {
    let time = raw::some_time(value)?;
    if time < Duration::from_millis(100) {
        Err(Complaint::new("must be at least \"100ms\""))
    } else {
        Ok(time)
    }
}

fn file(value: &DeValue<'_>) -> Result<Option<PathBuf>, Complaint> {
    Ok(Some(raw::some_text(value)?).filter(|text| text != "none").map(PathBuf::from))
}

fn collector(value: &DeValue<'_>) -> Result<Option<Address>, Complaint> {
    let text = raw::some_text(value)?;
    let hint = "write such as \"http://127.0.0.1:4318\", or \"none\"";
    match Address::parse_http(&text) {
        _ if text == "none" => Ok(None),
        Ok((Some(Scheme::Https), _)) => Err(Complaint::new("is https://, which isn't spoken here")
            .hint("name a collector on this machine or network, which can send it on")),
        Ok((_, Address::Unix(_))) => Err(Complaint::new("is a Unix socket").hint(hint)),
        Ok((_, address)) => Ok(Some(address)),
        Err(complaint) if complaint.hint.is_none() => Err(complaint.hint(hint)),
        Err(complaint) => Err(complaint),
    }
}

fn share(value: &DeValue<'_>) -> Result<f64, Complaint> {
    let share = raw::amount(value)?;
    if share <= 1.0 { Ok(share) } else { Err(Complaint::new("must be at most 1")) }
}

pub(super) fn networks(value: &DeValue<'_>) -> Result<Vec<Network>, Complaint> {
    let texts = raw::texts(value)?;
    if texts.len() > NETWORKS_MAX {
        return Err(Complaint::new(format!("names more than {NETWORKS_MAX} networks")));
    }
    texts.iter().map(|text| network(text)).collect()
}

fn network(text: &str) -> Result<Network, Complaint> {
    let wrong = || {
        Complaint::new(format!("{text:?} isn't a network"))
            .hint("write an address with a number of bits, such as \"10.0.0.0/8\", or an address alone")
    };
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits: u8 = bits.map_or(Ok(most), str::parse).map_err(|_| wrong())?;
    if bits > most {
        return Err(wrong());
    }
    let ours = match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    };
    // An operator who writes bits behind the mask has meant something else.
    if bits < 128 && ours << bits != 0 {
        return Err(Complaint::new(format!("{text:?} has bits of its own beyond the first {bits}"))
            .hint("write the network's first address, or the address alone"));
    }
    Ok(Network { address, bits })
}
