//! Where a gate for HTTP stands between others: several endpoints, TLS to the site, a load balancer in front.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod support;

use testbed::postgres::free_port;

use support::certificates::Authority;
use support::origin::{Origin, ask, send};
use support::{Gate, until};

fn gate(upstream: &str, more: &[&str]) -> (Gate, u16) {
    let port = free_port().expect("a free port");
    let lines: Vec<String> =
        [&["protocol = \"http\""], more].concat().iter().map(|line| (*line).to_owned()).collect();
    (Gate::start_between(&format!("127.0.0.1:{port}"), upstream, &lines), port)
}

fn answered_by(port: u16) -> String {
    let told = ask(port, "/page", &[]).expect("a response");
    format!("{} {}", told.status, told.body.split(' ').next().unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_go_to_the_endpoints_that_are_well() {
    let (one, two) = (Origin::start("one").await, Origin::start("two").await);
    let upstream = format!("http://{}, http://{}", one.address, two.address);
    let (gate, port) = gate(&upstream, &["health_check = \"/up\"", "health_interval = \"100ms\""]);
    until("both are asked", async || {
        let answers: Vec<String> = (0..10).map(|_| answered_by(port)).collect();
        answers.iter().any(|by| by == "200 one") && answers.iter().any(|by| by == "200 two")
    })
    .await;
    one.set_ill(true);
    until("only the one that is well is asked", async || (0..50).all(|_| answered_by(port) == "200 two"))
        .await;
    assert_eq!(gate.status()["upstream"], format!("{}, {}", one.address, two.address));
    let told: Vec<_> = gate.status()["upstreams"].as_array().expect("a list").clone();
    let states: Vec<_> = told.iter().map(|it| (it["address"].as_str(), it["state"].as_str())).collect();
    let (ill, well) = (one.address.to_string(), two.address.to_string());
    assert_eq!(states, [(Some(&*ill), Some("down")), (Some(&*well), Some("up"))]);
    let metrics = gate.metrics();
    for (address, up) in [(ill, "0.0"), (well, "1.0")] {
        let line = format!("gatekeeper_upstream_up{{gate=\"http\",upstream=\"{address}\"}} {up}");
        assert!(metrics.lines().any(|told| told == line), "no line {line}\n{metrics}");
    }
    one.set_ill(false);
    until("the other one is asked again", async || answered_by(port) == "200 one").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_site_behind_tls_is_verified_and_spoken_to_in_what_both_know() {
    let origin = Origin::start("site").await;
    let (right, wrong) = (Authority::new("the right one"), Authority::new("another"));
    let (certificate, key) = right.files("site", &right.issue("site", &["localhost"]));
    let tls = [format!("tls_cert = {certificate:?}"), format!("tls_key = {key:?}")];
    // A gate is as good a server with TLS, and HTTP/2, as any.
    let (_inner, inner_port) = gate(&format!("http://{}", origin.address), &[&tls[0], &tls[1]]);
    let upstream = format!("https://localhost:{inner_port}");
    for (authority, version, expected) in
        [(&right, "1.1", "200 site"), (&right, "2", "200 site"), (&wrong, "1.1", "502 {\"detail\":\"The")]
    {
        let keys =
            [format!("upstream_tls_ca = {:?}", authority.path()), format!("upstream_http = {version:?}")];
        let (outer, port) = gate(&upstream, &[&keys[0], &keys[1]]);
        assert_eq!(answered_by(port), expected, "{}", outer.log_tail());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_who_is_trusted_says_for_whom_it_asks() {
    let origin = Origin::start("site").await;
    let upstream = origin.address.to_string();
    let forged = "X-Forwarded-For: 192.0.2.7";
    let heard = |port: u16| {
        let told = ask(port, "/", &[forged]).expect("a response");
        told.field("x-forwarded-for").expect("a field").to_owned()
    };
    let (_gate, port) = gate(&upstream, &[]);
    assert_eq!(heard(port), "127.0.0.1");
    let (_trusting, port) = gate(&upstream, &["trusted_proxies = \"127.0.0.0/8\""]);
    assert_eq!(heard(port), "192.0.2.7, 127.0.0.1");
    let (_behind, port) = gate(&upstream, &["proxy_protocol = true"]);
    let request = "GET / HTTP/1.1\r\nHost: site\r\nConnection: close\r\n\r\n";
    let told =
        send(port, &format!("PROXY TCP4 192.0.2.9 127.0.0.1 5000 80\r\n{request}")).expect("a response");
    assert_eq!(told.field("x-forwarded-for"), Some("192.0.2.9"));
    assert!(send(port, request).is_none(), "without a preamble nobody is served");
}
