//! The keys of a gate for HTTP: what they mean, how they go wrong, and what of them a reload changes.

#![expect(clippy::panic, reason = "a helper of tests fails like a test")]

use std::time::Duration;

use config::{
    Address, COMMON, Class, Egress, Field, FieldDefault, GATE, HTTP, HealthCheck, Http, HttpVersion, Network,
    Origin, POSTGRES, Protocol, Route, Service, TlsMode, TypeField, Uplink, UpstreamTlsMode, World,
    effective, parse, reload,
};

const MINIMAL: &str = "[[gate]]\nprotocol = \"http\"\nupstream = \"127.0.0.1:8000\"\n";

/// Every key of HTTP's own, none at its default.
const FULL: &str = r#"
[[gate]]
name = "site"
protocol = "http"
listen = "/run/gatekeeper/site.sock"
upstream = ["https://a.example", "https://[::1]:8443/"]
upstream_tls_ca = "/etc/ca.pem"
tls_cert = ["/etc/site.pem", "/etc/shop.pem"]
tls_key = ["/etc/site.key", "/etc/shop.key"]
type_field = "ignore"
pass_type = true
goal_tick = "3s"
upstream_http = "2"
upstream_timeout = "7s"
idle_connections = 0
health_check = "/up?now"
health_interval = "1s"
health_timeout = "500ms"
header_timeout = "8s"
body_timeout = "9s"
header_max = 8192
header_fields_max = 200
body_max = 1000000
trusted_proxies = ["10.0.0.0/8", "::1"]
proxy_protocol = true
server_timing = true
error_page = "/srv/busy.html"
access_log = "/var/log/site.json"
otlp = "http://collector:4318"
otlp_share = 0.5
uplink = "10Mbit"
egress = "bands"

[[gate.route]]
method = "POST"
path = "/cart/*"

[[gate.route]]
name = "static"
path = "/static/**"

[[gate.route]]
path = "/assets/**"
static = "/srv/assets"

[[gate.class]]
name = "export"
path = "/export/**"
"#;

fn world(text: &str) -> World {
    parse(Origin::File("g.toml".into()), text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn http(world: &World) -> &Http {
    match &world.gates[0].service {
        Service::Http(http) => http,
        Service::Mysql(_) | Service::Postgres(_) => panic!("another gate"),
    }
}

/// What is said of a gate for HTTP with these lines.
fn complaints(lines: &str) -> String {
    let text = format!("[[gate]]\nprotocol = \"http\"\n{lines}\n");
    parse(Origin::File("g.toml".into()), &text).expect_err("the text is wrong").to_string()
}

fn assert_each(cases: &[(&str, &str)]) {
    for (lines, expected) in cases {
        let said = complaints(lines);
        assert!(said.contains(expected), "{lines}\n{said}");
        assert_eq!(said.lines().count(), 1, "{lines}\n{said}");
    }
}

#[test]
fn only_the_upstream_is_required_and_what_it_means_is_safe() {
    let world = world(MINIMAL);
    let gate = &world.gates[0];
    assert_eq!((gate.name.as_str(), gate.listen.to_string().as_str()), ("http", "127.0.0.1:8081"));
    assert_eq!(gate.protocol(), Protocol::Http);
    assert_eq!(gate.policy.connections, 200);
    assert_eq!(gate.policy.queue_timeout, Duration::from_secs(30));
    assert_eq!(gate.policy.check(), Ok(()));
    assert_eq!((gate.tls.mode, gate.upstream_tls.mode), (TlsMode::Disable, UpstreamTlsMode::Disable));
    let http = http(&world);
    assert_eq!(http.upstream, [Address::Inet { host: "127.0.0.1".into(), port: 8000 }]);
    assert!(http.trusted_proxies.is_empty() && !http.proxy_protocol && http.access_log.is_none());
    assert_eq!((http.header_max, http.type_field), (65_536, TypeField::Use));
}

#[test]
fn every_key_is_heard() {
    let world = world(FULL);
    let gate = &world.gates[0];
    assert_eq!(gate.listen, Address::Unix("/run/gatekeeper/site.sock".into()));
    assert_eq!((gate.tls.mode, gate.upstream_tls.mode), (TlsMode::Require, UpstreamTlsMode::VerifyFull));
    let inet = |host: &str, port| Address::Inet { host: host.to_owned(), port };
    let network = |address: &str, bits| Network { address: address.parse().unwrap(), bits };
    let expected = Http {
        upstream: vec![inet("a.example", 443), inet("::1", 8443)],
        routes: vec![
            Route {
                name: "POST /cart/*".into(),
                method: Some("POST".into()),
                path: "/cart/*".into(),
                files: None,
            },
            Route { name: "static".into(), method: None, path: "/static/**".into(), files: None },
            Route {
                name: "/assets/**".into(),
                method: None,
                path: "/assets/**".into(),
                files: Some("/srv/assets".into()),
            },
        ],
        type_field: TypeField::Ignore,
        pass_type: true,
        version: HttpVersion::Http2,
        upstream_timeout: Duration::from_secs(7),
        idle_connections: 0,
        health_check: HealthCheck {
            path: Some("/up?now".into()),
            interval: Duration::from_secs(1),
            timeout: Duration::from_millis(500),
        },
        header_timeout: Duration::from_secs(8),
        body_timeout: Duration::from_secs(9),
        header_max: 8192,
        header_fields_max: 200,
        body_max: Some(1_000_000),
        trusted_proxies: vec![network("10.0.0.0", 8), network("::1", 128)],
        proxy_protocol: true,
        server_timing: true,
        error_page: Some("/srv/busy.html".into()),
        access_log: Some("/var/log/site.json".into()),
        otlp: Some(inet("collector", 4318)),
        otlp_share: 0.5,
        uplink: Some(Uplink::Bits(10_000_000)),
        egress: Egress::Bands,
    };
    assert_eq!(*http(&world), expected);
    let export = Class { name: "export".into(), paths: vec!["/export/**".into()], ..Class::default() };
    assert_eq!(gate.classes, [export]);
    assert_eq!(gate.policy.adaptation.tick, Duration::from_secs(3));
    for field in HTTP.iter().filter(|field| field.key != "route") {
        assert!(FULL.contains(&format!("\n{} = ", field.key)), "{}", field.key);
    }
}

#[test]
fn what_is_printed_as_effective_means_the_same_world() {
    for text in [MINIMAL, FULL] {
        let printed = effective(&world(text));
        assert_eq!(world(&printed), world(text), "{printed}");
    }
    for rate in ["10Mbit", "1500kbit", "2Gbit"] {
        let text = format!("{MINIMAL}uplink = \"{rate}\"\n");
        assert!(effective(&world(&text)).contains(&format!("uplink = \"{rate}\"")), "{rate}");
    }
}

#[test]
fn writing_out_every_documented_default_changes_nothing() {
    let line = |field: &Field| match field.default {
        FieldDefault::Value(value) | FieldDefault::Each(_, _, value) if field.key != "protocol" => {
            format!("{} = {value}\n", field.key)
        }
        _ => String::new(),
    };
    let written: String = COMMON.iter().chain(HTTP).map(line).collect();
    assert_eq!(world(&format!("{MINIMAL}{written}")), world(MINIMAL));
}

#[test]
fn a_key_of_the_other_protocol_is_refused_with_whose_it_is() {
    for field in POSTGRES {
        let said = complaints(&format!("upstream = \"a:1\"\n{} = 1", field.key));
        let alone = "PostgreSQL; leave it out; only with protocol = \"postgres\" it has a meaning";
        let shared = "PostgreSQL or MySQL; leave it out; only with protocol = \"postgres\" or \"mysql\" it has a meaning";
        let expected =
            |whose: &str| format!("g.toml:4: gate: {} = 1: belongs to a gate for {whose}", field.key);
        assert!(said == expected(alone) || said == expected(shared), "{said}");
    }
    assert!(complaints("upstream = \"a:1\"\nusers_file = 1").contains("a gate for PostgreSQL or MySQL; "));
    for field in HTTP {
        let text = format!("[[gate]]\nupstream = \"a:1\"\n{} = 1", field.key);
        let said = parse(Origin::File("g.toml".into()), &text).unwrap_err().to_string();
        assert!(said.contains("belongs to a gate for HTTP"), "{said}");
    }
}

#[test]
fn an_upstream_is_one_or_several_addresses_reached_in_one_way() {
    let upstream = |text: &str| {
        let world = world(&format!("[[gate]]\nprotocol = \"http\"\nupstream = {text}\n"));
        let gate = &world.gates[0];
        let all: Vec<String> = gate.upstream().iter().map(Address::to_string).collect();
        (all.join(" "), gate.upstream_tls.mode)
    };
    let plain = |addresses: &str| (addresses.to_owned(), UpstreamTlsMode::Disable);
    assert_eq!(upstream("\"http://a\""), plain("a:80"));
    assert_eq!(upstream("\"http://[::1]/\""), plain("[::1]:80"));
    assert_eq!(upstream("\"a:1, http://b:2\""), plain("a:1 b:2"));
    assert_eq!(upstream("\"unix:/run/app.sock\""), plain("unix:/run/app.sock"));
    assert_eq!(upstream("\"/run/app.sock\""), plain("unix:/run/app.sock"));
    let require = "\"https://a\"\nupstream_tls_mode = \"require\"";
    assert_eq!(upstream(require), ("a:443".to_owned(), UpstreamTlsMode::Require));
    assert_each(&[
        ("listen = \"a:1\"", "upstream: is missing"),
        ("upstream = []", "names no endpoint"),
        ("upstream = \"a\"", "has no port; write \"a:80\""),
        ("upstream = \"http://a/app\"", "has a path"),
        ("upstream = \"ftp://a\"", "is a URL of another kind (ftp://)"),
        ("upstream = \"http://u:p@a\"", "holds a user or a password"),
        ("upstream = [\"http://a\", \"https://b\"]", "mixes https:// with what isn't"),
        ("upstream = \"https://a\"", "is https://, but nothing says who signs its certificate"),
        ("upstream = \"https://a\"\nupstream_tls_mode = \"disable\"", "contradicts https://"),
        ("upstream = \"http://a\"\nupstream_tls_mode = \"require\"", "is http://, which has no TLS"),
        ("upstream = \"127.0.0.1:8081\"", "is the gate itself"),
    ]);
}

#[test]
fn values_that_mean_nothing_are_refused_with_what_to_write() {
    let upstream = "upstream = \"a:1\"\n";
    let cases = [
        ("connections = \"auto\"", "only PostgreSQL tells how many connections it has"),
        ("tls_mode = \"prefer\"", "write \"disable\" or \"require\" or \"verify-ca\""),
        ("upstream_tls_mode = \"prefer\"", "write \"disable\" or \"require\""),
        ("upstream_http = 2", "an integer isn't a string"),
        ("upstream_http = \"3\"", "write \"1.1\" or \"2\""),
        ("trusted_proxies = \"10.0.0.1/8\"", "has bits of its own beyond the first 8"),
        ("trusted_proxies = [\"10.0.0.0/33\"]", "isn't a network"),
        ("trusted_proxies = \"everybody\"", "isn't a network"),
        ("health_check = \"healthz\"", "isn't a path"),
        ("health_interval = \"1ms\"", "must be at least \"100ms\""),
        ("header_max = 100", "must be from 4096 to 1048576"),
        ("body_max = \"much\"", "isn't a bound"),
        ("access_log = \"log.json\"", "is a relative path"),
        ("otlp = \"https://collector:4318\"", "is https://, which isn't spoken here"),
        ("otlp = \"collector\"", "has no port"),
        ("otlp_share = 2", "must be at most 1"),
        ("uplink = \"10MB\"", "isn't a rate; write such as \"10Mbit\""),
        ("uplink = \"1kbit\"", "must be from \"64kbit\" to \"400Gbit\""),
        (
            "egress = \"lifo\"",
            "isn't known; write \"srpt\" or \"fair\" or \"bands\" or \"srpt-without-aging\"",
        ),
        ("route = \"/cart\"", "isn't a list; write [[gate.route]]"),
        ("route = [1]", "a route isn't a table"),
        ("[[gate.route]]\nname = \"x\"", "g.toml:4: gate: route: path: is missing"),
        ("[[gate.route]]\npath = \"cart\"", "doesn't begin with /; write \"/cart\""),
        ("[[gate.route]]\npath = \"/**/x\"", "has ** before its end"),
        ("[[gate.route]]\npath = \"/x*\"", "is neither a segment nor all of one"),
        ("[[gate.route]]\npath = \"/x\"\nmethod = \"get\"", "isn't a method"),
        ("[[gate.route]]\npath = \"/x\"\nstatic = \"/srv\"", "needs a `path` that ends with /**"),
        ("[[gate.route]]\npath = \"/*/x/**\"\nstatic = \"/srv\"", "has no other *"),
        (
            "[[gate.route]]\npath = \"/**\"\nmethod = \"GET\"\nstatic = \"/srv\"",
            "can't stand beside `method`",
        ),
        ("[[gate.route]]\npath = \"/x\"\nname = \"ä\"", "can't be a name"),
    ];
    for (line, expected) in cases {
        assert_each(&[(&format!("{upstream}{line}"), expected)]);
    }
}

#[test]
fn gates_of_both_protocols_stand_in_one_file() {
    let both = world(&format!("[[gate]]\nupstream = \"db:5432\"\n{MINIMAL}"));
    let names: Vec<&str> = both.gates.iter().map(|gate| gate.name.as_str()).collect();
    assert_eq!(names, ["postgres", "http"]);
    let one_log = "access_log = \"/log\"\n";
    let text = format!("{MINIMAL}{one_log}{MINIMAL}name = \"two\"\nlisten = \"127.0.0.1:1\"\n{one_log}");
    let said = parse(Origin::File("g.toml".into()), &text).unwrap_err().to_string();
    assert!(said.contains("another gate writes its log there"), "{said}");
}

#[test]
fn the_reference_says_of_each_key_what_a_reload_does() {
    let running = world(&MINIMAL.replace("[[gate]]", "[[gate]]\nname = \"site\""));
    let asked = world(FULL);
    let reload = reload(&running, &asked).unwrap();
    for (changes, reloadable) in [(&reload.applied, true), (&reload.kept, false)] {
        for change in changes {
            let field = GATE.iter().find(|field| field.key == change.key).unwrap();
            assert_eq!(field.reloadable, reloadable, "{change}");
        }
    }
    assert!(reload.applied.len() > 15, "{:?}", reload.applied);
    assert_eq!(reload.world.gates[0].listen, running.gates[0].listen);
}

#[test]
fn a_gate_whose_protocol_has_changed_stays_as_it_is() {
    let running = world(MINIMAL);
    let asked = world("[[gate]]\nname = \"http\"\nupstream = \"db:5432\"");
    let reload = reload(&running, &asked).unwrap();
    assert_eq!(reload.world.gates, running.gates);
    assert!(reload.kept.iter().any(|change| change.key == "protocol"), "{:?}", reload.kept);
    assert!(reload.applied.is_empty());
}

#[test]
fn each_certificate_needs_its_key_and_postgresql_has_one() {
    let said = |protocol: &str, keys: &str| {
        let text = format!(
            "[[gate]]\nprotocol = {protocol:?}\nupstream = \"127.0.0.1:8000\"\ntls_cert = [\"a\", \"b\"]\ntls_key = {keys}\n"
        );
        parse(Origin::File("g.toml".into()), &text).unwrap_err().to_string()
    };
    let one = said("http", "\"a.key\"");
    assert!(
        one.contains(
            "g.toml:5: gate: tls_key = \"a.key\": names 1 files, and `tls_cert` 2; each certificate"
        ),
        "{one}"
    );
    let none = said("http", "[]");
    assert!(none.contains("tls_key = []: is empty"), "{none}");
    let postgres = said("postgres", "\"a.key\"");
    assert!(postgres.contains("tls_cert") && postgres.contains("isn't a string"), "{postgres}");
}
