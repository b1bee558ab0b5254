//! What all connections of one gate share.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use admission::Policy;
use bytes::Bytes;
use http::Request;
use parking_lot::RwLock;
use tokio::sync::Semaphore;

use super::access::AccessLog;
use super::class::{ClassRule, HttpClasses};
use super::classify::{Classifier, TypeField, TypeRule};
use super::endpoint::{Reach, Speaks};
use super::fields::FIELDS_MAX;
use super::files::Asked;
use super::flight::Flights;
use super::origins::Origins;
use super::reject::OWN;
use super::service::{Endpoints, HealthCheck};
use super::span::Traces;
use super::uplink::{Uplink, UplinkSettings};
use super::upload::Shares;
use crate::gate::Driver;
use crate::groups::{ClassGroup, Groups};
use crate::lateness::Lateness;
use crate::network::Network;
use crate::shutdown::Shutdown;
use crate::stream::Keepalive;
use crate::tls::{Acceptor, Connector};
use crate::upstream::address::Address;
use crate::upstream::health::LOOK_EVERY;
use crate::upstream::resolver::Lookup;

/// What a gate for HTTP is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where clients connect.
    pub listen: Address,
    /// Where the service listens: at least one.
    pub upstream: Vec<Address>,
    /// What the service speaks.
    pub speaks: Speaks,
    /// TLS towards clients.
    pub tls: Option<Arc<Acceptor>>,
    /// TLS towards the service.
    pub upstream_tls: Option<Arc<Connector>>,
    /// The most clients connected at once.
    pub max_clients: usize,
    /// Connections to the service that are kept idle, for each endpoint.
    pub idle_max: usize,
    /// How long a connection to the service may take.
    pub connect_timeout: Duration,
    /// How long an answer of the resolver is used; zero: once.
    pub dns_ttl: Duration,
    /// What looks up the addresses of the service's names.
    pub lookup: Lookup,
    /// How long the service may take to its first byte, without the time in which an upload goes on.
    pub upstream_timeout: Duration,
    /// How long a client may take for the head of a request, or be idle before its next one.
    pub header_timeout: Duration,
    /// How long a client may pause within a body, its own or the one that it is sent.
    pub body_timeout: Duration,
    /// The largest head of a request, in bytes.
    pub header_max: usize,
    /// The most fields of a head, of a request as of a response.
    pub header_fields_max: usize,
    /// The largest body of a request, in bytes.
    pub body_max: Option<u64>,
    /// How long what runs may take once the gate drains.
    pub drain_timeout: Duration,
    /// The networks from which a client may say for whom it asks.
    pub trusted_proxies: Vec<Network>,
    /// Whether each connection begins by saying for whom it is.
    pub proxy_protocol: bool,
    /// What requests are called.
    pub types: Vec<TypeRule>,
    /// Whose requests are whose: rules for service classes.
    pub classes: Vec<ClassRule>,
    /// The control groups of classes.
    pub groups: Vec<ClassGroup>,
    /// Whether responses name types.
    pub type_field: TypeField,
    /// Whether the service hears of each request's type.
    pub pass_type: bool,
    /// How endpoints are asked whether they are well.
    pub health_check: Option<HealthCheck>,
    /// How often an endpoint is looked at from which nothing was heard, where there is no health check.
    /// Default 2 s.
    pub look_every: Option<Duration>,
    /// Whether responses tell how long they were held up.
    pub server_timing: bool,
    /// What browsers see of a refusal.
    pub error_page: Option<Bytes>,
    /// Where a line is written for each request.
    pub access_log: Option<AccessLog>,
    /// What is told of requests to a collector.
    pub traces: Option<Traces>,
    /// The uplink's rate, and the order in which responses share it; `None`: they don't wait for one
    /// another.
    pub uplink: Option<UplinkSettings>,
    /// When the kernel asks a silent peer whether it is there.
    pub keepalive: Keepalive,
    /// Whether the gate only watches.
    pub observe: bool,
}

impl Settings {
    /// The defaults, in front of a service.
    pub fn new(upstream: Vec<Address>) -> Self {
        Self {
            listen: Address::inet("127.0.0.1", 8081),
            upstream,
            speaks: Speaks::Http1,
            tls: None,
            upstream_tls: None,
            max_clients: 10_000,
            idle_max: 64,
            connect_timeout: Duration::from_secs(5),
            dns_ttl: Duration::from_secs(15),
            lookup: Lookup::default(),
            upstream_timeout: super::forward::UPSTREAM_TIMEOUT,
            header_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(30),
            header_max: 64 * 1024,
            header_fields_max: FIELDS_MAX,
            body_max: None,
            drain_timeout: Duration::from_secs(30),
            trusted_proxies: Vec::new(),
            proxy_protocol: false,
            types: Vec::new(),
            classes: Vec::new(),
            groups: Vec::new(),
            type_field: TypeField::default(),
            pass_type: false,
            health_check: None,
            look_every: Some(LOOK_EVERY),
            server_timing: false,
            error_page: None,
            access_log: None,
            traces: None,
            uplink: None,
            keepalive: Keepalive::default(),
            observe: false,
        }
    }

    /// The file that a request asks for whose path has this normal form, if a route serves it.
    pub(crate) fn file<B>(&self, request: &Request<B>, path: &str) -> Option<Asked> {
        if !self.serves_files() {
            return None;
        }
        let rule = self.types.iter().find(|rule| rule.fits(request.method(), path))?;
        rule.files.as_ref().map(|files| files.asked(request.uri(), path))
    }

    fn serves_files(&self) -> bool {
        self.types.iter().any(|rule| rule.files.is_some())
    }
}

/// Counts beside the judge's.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Clients connected now.
    pub(crate) connected: AtomicUsize,
    /// What the gate has answered by itself, by the names in [`OWN`].
    own: [AtomicU64; OWN.len()],
}

/// What the gate is told, and the service as that has it: a reload swaps both together.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) settings: Settings,
    pub(crate) endpoints: Endpoints,
    pub(crate) uplink: Option<Arc<Uplink>>,
}

impl Told {
    /// Endpoints that stay as they are stay the same.
    fn new(driver: &Driver, settings: Settings, before: Option<&Self>) -> Arc<Self> {
        let reach = Reach {
            gate: driver.name().into(),
            speaks: settings.speaks,
            tls: settings.upstream_tls.clone(),
            connect_timeout: settings.connect_timeout,
            lookup: settings.lookup.clone(),
            dns_ttl: settings.dns_ttl,
            keepalive: settings.keepalive,
            idle_max: settings.idle_max,
            fields_max: settings.header_fields_max,
        };
        let endpoints = Endpoints::new(&settings.upstream, &reach, before.map(|before| &before.endpoints));
        // One that stays as it is goes on; what began on another ends there.
        let same = |uplink: &&Arc<Uplink>| Some(uplink.settings()) == settings.uplink.as_ref();
        let running = before.and_then(|before| before.uplink.as_ref()).filter(same).cloned();
        let start = || settings.uplink.clone().map(|told| Uplink::start(told, driver.clock()));
        let uplink = running.or_else(start);
        Arc::new(Self { settings, endpoints, uplink })
    }

    /// Whether a client may say for whom it asks.
    pub(crate) fn trusts(&self, address: Option<IpAddr>) -> bool {
        // Through a Unix socket come only programs that may write to it.
        address.is_none_or(|address| {
            self.settings.trusted_proxies.iter().any(|network| network.contains(address))
        })
    }
}

/// One gate.
#[derive(Debug)]
pub(crate) struct Gate {
    /// Swapped as a whole; a caller that does several things by it takes it once.
    told: RwLock<Arc<Told>>,
    pub(crate) driver: Arc<Driver>,
    pub(crate) classifier: Classifier,
    pub(crate) classes: HttpClasses,
    pub(crate) groups: Arc<Groups>,
    /// The pages whose scripts may read refusals.
    pub(crate) origins: Origins,
    flights: Flights,
    pub(crate) shares: Shares,
    pub(crate) shutdown: Shutdown,
    pub(crate) counts: Counts,
    pub(crate) lateness: Arc<Lateness>,
    /// Room for short bodies that haven't come.
    pub(crate) gathering: Semaphore,
}

/// The groups whose weights the gate moves: one that only watches moves none.
fn groups_of(settings: &Settings) -> &[ClassGroup] {
    if settings.observe { &[] } else { &settings.groups }
}

/// The most short bodies that are awaited at once before their requests stand in line, 64 MiB at most.
/// Further short bodies come while their requests wait, just like larger bodies.
const GATHERING_MAX: usize = 4_096;

impl Gate {
    pub(crate) fn new(settings: Settings, driver: Arc<Driver>, shutdown: Shutdown) -> Arc<Self> {
        let classes = HttpClasses::by(&settings.classes);
        driver.name_classes(classes.names());
        Arc::new(Self {
            lateness: Arc::new(Lateness::new(driver.clock())),
            classifier: Classifier::new(settings.types.clone(), settings.type_field),
            classes,
            groups: Arc::new(Groups::new(groups_of(&settings))),
            told: RwLock::new(Told::new(&driver, settings, None)),
            driver,
            origins: Origins::new(),
            flights: Flights::default(),
            shares: Shares::default(),
            shutdown,
            counts: Counts::default(),
            gathering: Semaphore::new(GATHERING_MAX),
        })
    }

    /// What it is told now.
    pub(crate) fn told(&self) -> Arc<Told> {
        Arc::clone(&self.told.read())
    }

    /// Changes what can change in a running gate: where it listens, its mode and its keepalive stay as they
    /// are. Requests under way go on with what they began with, clients' connections with their
    /// certificate.
    pub(crate) fn reload(&self, settings: Settings, policy: Policy) {
        let mut place = self.told.write();
        let old = &place.settings;
        let settings = Settings {
            listen: old.listen.clone(),
            observe: old.observe,
            keepalive: old.keepalive,
            lookup: old.lookup.clone(),
            ..settings
        };
        self.classifier.change(settings.types.clone(), settings.type_field);
        self.classes.follow(&settings.classes);
        self.driver.name_classes(self.classes.names());
        self.groups.follow(groups_of(&settings));
        *place = Told::new(&self.driver, settings, Some(&place));
        drop(place);
        self.driver.update_policy(|running| *running = policy);
    }

    pub(crate) fn flights(&self) -> &Flights {
        &self.flights
    }

    /// Resolves when everything has to close.
    pub(crate) async fn aborting(&self) {
        self.shutdown.aborting().await;
    }

    /// The gate has answered by itself. What the judge has refused is counted there.
    pub(crate) fn has_refused(&self, name: &str) {
        if let Some(at) = OWN.iter().position(|own| *own == name) {
            self.counts.own[at].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What the gate has answered by itself: each reason, and how often.
    pub(crate) fn own_answers(&self) -> Vec<(&'static str, u64)> {
        let counts = self.counts.own.iter().map(|count| count.load(Ordering::Relaxed));
        OWN.into_iter().zip(counts).collect()
    }
}
