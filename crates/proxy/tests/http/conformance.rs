//! What RFC 9110 and RFC 9112 ask of a gateway.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use admission::Policy;
use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Request, Response};
use http_body_util::{BodyExt, Collected, StreamBody};
use hyper::body::{Frame, Incoming};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::site::{Body, Client, counted, full, gate, one_at_a_time, service};

/// Says what it was asked, field by field, and returns the body.
pub(crate) async fn echo(request: Request<Incoming>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let mut text = format!("{} {}\n", head.method, head.uri);
    for (name, value) in &head.headers {
        text += &format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes()));
    }
    let body = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
    text += &format!("\n{}", String::from_utf8_lossy(&body));
    Response::new(full(text))
}

#[tokio::test]
async fn a_request_arrives_as_it_was_sent_but_for_what_is_of_one_connection() {
    let site = gate(one_at_a_time(), &[service(echo).await], |_| {}).await;
    let mut client = Client::connect(&site).await;
    client
        .send(
            "POST /a/b?c=d HTTP/1.1\r\nHost: shop.example\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nCookie: a=b\r\n\
             X-Forwarded-For: 9.9.9.9\r\nContent-Length: 5\r\n\r\nhello",
        )
        .await;
    let told = client.response().await.unwrap();
    assert_eq!(told.status, 200);
    let mut lines: Vec<&str> = told.text().lines().collect();
    assert_eq!(lines.remove(0), "POST /a/b?c=d");
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "",
            "content-length: 5",
            "cookie: a=b",
            "hello",
            "host: shop.example",
            "x-forwarded-for: 127.0.0.1",
            "x-forwarded-host: shop.example",
            "x-forwarded-proto: http",
        ]
    );
    // The connection goes on.
    assert_eq!(client.get("/again").await.status, 200);
}

#[tokio::test]
async fn bodies_of_every_framing_come_through_whole() {
    let site = gate(one_at_a_time(), &[service(echo).await], |_| {}).await;
    let mut client = Client::connect(&site).await;
    client
        .send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\nX-Sum: 7\r\n\r\n")
        .await;
    assert!(client.response().await.unwrap().text().ends_with("\n\nabcdefg"));
    let large = "x".repeat(3_000_000);
    client
        .send(&format!("PUT /large HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{large}", large.len()))
        .await;
    assert!(client.response().await.unwrap().text().ends_with(&large));
    // Of an HTTP/1.0 client the connection ends with the response.
    client.send("GET / HTTP/1.0\r\n\r\n").await;
    assert_eq!(client.response().await.unwrap().status, 200);
    assert!(client.is_over().await);
}

#[tokio::test]
async fn a_response_without_a_body_has_none() {
    let site = gate(
        one_at_a_time(),
        &[service(async |request: Request<Incoming>| {
            let status = match request.uri().path() {
                "/204" => 204,
                "/304" => 304,
                _ => 200,
            };
            let body = if status == 200 { full("12345") } else { full("") };
            Response::builder().status(status).header("etag", "\"1\"").body(body).unwrap()
        })
        .await],
        |_| {},
    )
    .await;
    let mut client = Client::connect(&site).await;
    client.send("HEAD /x HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let head = client.head().await.unwrap();
    assert_eq!((head.status, head.field("content-length")), (200, Some("5")));
    for (path, status) in [("/204", 204), ("/304", 304), ("/", 200)] {
        let told = client.get(path).await;
        assert_eq!((told.status, told.field("etag")), (status, Some("\"1\"")), "{path}");
    }
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_their_order() {
    let site = gate(one_at_a_time(), &[service(echo).await], |_| {}).await;
    let mut client = Client::connect(&site).await;
    let requests: String =
        (0..20).map(|number| format!("GET /{number}/x HTTP/1.1\r\nHost: a\r\n\r\n")).collect();
    client.send(&requests).await;
    for number in 0..20 {
        let told = client.response().await.unwrap();
        assert!(told.text().starts_with(&format!("GET /{number}/x\n")), "{}", told.text());
    }
}

#[tokio::test]
async fn what_two_readers_would_read_differently_is_refused_and_its_connection_ends() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let count = move |request| {
        counted.fetch_add(1, Ordering::SeqCst);
        echo(request)
    };
    let site = gate(one_at_a_time(), &[service(count).await], |_| {}).await;
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    let vectors = [
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcd",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4, 5\r\n\r\nabcd",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +4\r\n\r\nabcd",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length : 4\r\n\r\nabcd",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: close, host\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n X-Folded: 1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX\0: 1\r\n\r\n",
        "GET / HTTP/2.7\r\nHost: a\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n",
        "TRACE / HTTP/1.1\r\nHost: a\r\n\r\n",
    ];
    for vector in vectors {
        let mut client = Client::connect(&site).await;
        client.send(&format!("{vector}{smuggled}")).await;
        let mut refused = false;
        while let Some(told) = client.response().await {
            assert!(matches!(told.status, 400 | 405 | 501 | 505), "{vector:?}: {told:?}");
            refused = true;
        }
        assert!(refused, "{vector:?} ended without an answer");
        assert_eq!(asked.load(Ordering::SeqCst), 0, "the service has heard of {vector:?}");
    }
    // A chunk that isn't one: its request has begun, so that the service may hear of it, but of nothing
    // behind it.
    for chunk in ["z\r\n", "5\r\nabc\r\n0\r\n\r\n", "ffffffffffffffffff\r\n", "-1\r\n"] {
        let mut client = Client::connect(&site).await;
        client
            .send(&format!(
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}{smuggled}"
            ))
            .await;
        while let Some(told) = client.response().await {
            assert!(!told.text().contains("smuggled\n"), "{chunk:?}: {told:?}");
        }
    }
    let mut client = Client::connect(&site).await;
    assert_eq!(client.get("/after").await.status, 200);
    site.reaches(0, 0).await;
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let site = gate(one_at_a_time(), &[service(echo).await], |_| {}).await;
    let mut client = Client::connect(&site).await;
    let long = "x".repeat(70_000);
    client.send(&format!("GET / HTTP/1.1\r\nHost: a\r\nX-Long: {long}\r\n\r\n")).await;
    assert_eq!(client.response().await.unwrap().status, 431);
    let mut client = Client::connect(&site).await;
    let many: String = (0..200).map(|number| format!("X-{number}: 1\r\n")).collect();
    client.send(&format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n")).await;
    assert_eq!(client.response().await.unwrap().status, 431);
}

#[tokio::test]
async fn a_client_that_never_ends_its_head_is_cut_off() {
    let change = |settings: &mut proxy::http::Settings| settings.header_timeout = Duration::from_millis(100);
    let site = gate(one_at_a_time(), &[service(echo).await], change).await;
    let mut client = Client::connect(&site).await;
    client.send("GET / HTTP/1.1\r\nHost: ").await;
    while let Some(told) = client.response().await {
        assert_eq!(told.status, 408);
    }
}

#[tokio::test]
async fn a_client_that_never_says_which_http_it_speaks_is_cut_off() {
    let change = |settings: &mut proxy::http::Settings| settings.header_timeout = Duration::from_millis(100);
    let site = gate(one_at_a_time(), &[service(echo).await], change).await;
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    for beginning in ["", "P", &preface[..8], &preface[..23], preface] {
        let mut client = Client::connect(&site).await;
        client.send(beginning).await;
        // An HTTP/2 client gets the gate's settings before.
        client.ends().await;
    }
}

#[tokio::test]
async fn a_client_that_never_ends_its_body_holds_nothing() {
    let change = |settings: &mut proxy::http::Settings| settings.body_timeout = Duration::from_millis(100);
    let site = gate(one_at_a_time(), &[service(echo).await], change).await;
    let mut client = Client::connect(&site).await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc").await;
    let told = client.response().await.unwrap();
    assert_eq!((told.status, told.field("x-gatekeeper")), (408, Some("body_timeout")));
    site.reaches(0, 0).await;
}

#[tokio::test]
async fn trailers_and_streams_pass_as_they_come() {
    let site = gate(
        one_at_a_time(),
        &[service(async |_| {
            let trailers = http::HeaderMap::from_iter([(
                header::HeaderName::from_static("x-sum"),
                HeaderValue::from_static("7"),
            )]);
            let frames = [
                Frame::data(Bytes::from_static(b"abc")),
                Frame::data(Bytes::from_static(b"defg")),
                Frame::trailers(trailers),
            ];
            let body =
                StreamBody::new(futures_util::stream::iter(frames.map(Ok::<_, std::convert::Infallible>)));
            Response::builder().header("trailer", "x-sum").body(BodyExt::boxed(body)).unwrap()
        })
        .await],
        |_| {},
    )
    .await;
    let mut client = Client::connect(&site).await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\nConnection: close, TE\r\n\r\n").await;
    let mut all = Vec::new();
    client.socket.read_to_end(&mut all).await.unwrap();
    let text = String::from_utf8(all).unwrap().to_ascii_lowercase();
    assert!(text.contains("transfer-encoding: chunked") && text.contains("trailer: x-sum"), "{text}");
    assert!(text.ends_with("0\r\nx-sum: 7\r\n\r\n"), "{text}");
}

#[tokio::test]
async fn a_body_is_asked_for_only_once_it_is_wanted() {
    let site = gate(one_at_a_time(), &[service(echo).await], |_| {}).await;
    let mut client = Client::connect(&site).await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n").await;
    assert_eq!(client.head().await.unwrap().status, 100);
    client.send("abc").await;
    let told = client.response().await.unwrap();
    assert!(told.text().ends_with("\n\nabc") && !told.text().contains("expect"), "{}", told.text());
}

/// A service that answers the first request of each connection and closes it when the second has come.
async fn closing_service(answers: &'static str) -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            counted.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                let mut buffer = [0; 4_096];
                if socket.read(&mut buffer).await.unwrap_or(0) == 0 {
                    return;
                }
                socket.write_all(answers.as_bytes()).await.unwrap();
                let _ = socket.read(&mut buffer).await;
            });
        }
    });
    (address, connections)
}

#[tokio::test]
async fn a_request_that_may_be_repeated_is_if_the_service_closes_a_kept_connection() {
    let (address, connections) = closing_service("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    let site = gate(one_at_a_time(), &[address], |_| {}).await;
    let mut client = Client::connect(&site).await;
    for number in 0..5 {
        assert_eq!(client.get("/").await.text(), "ok", "{number}");
    }
    assert_eq!(connections.load(Ordering::SeqCst), 5);
    // What may have been done is not done again.
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx").await;
    let told = client.response().await.unwrap();
    assert_eq!((told.status, told.field("x-gatekeeper")), (502, Some("upstream")));
    site.reaches(0, 0).await;
}

#[tokio::test]
async fn responses_that_are_none_become_502_and_those_cut_short_are_cut_short() {
    for answer in [
        "",
        "nonsense\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
    ] {
        let (address, _) = closing_service(answer).await;
        let site = gate(one_at_a_time(), &[address], |_| {}).await;
        let mut client = Client::connect(&site).await;
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx").await;
        // The service with nothing to say waits for another request.
        client.socket.shutdown().await.ok();
        if answer.is_empty() {
            site.reaches(0, 0).await;
            continue;
        }
        if let Some(told) = client.response().await {
            assert_eq!((told.status, told.field("x-gatekeeper")), (502, Some("upstream")), "{answer:?}");
        }
        site.reaches(0, 0).await;
    }
}

#[tokio::test]
async fn of_several_endpoints_the_ones_that_are_there_serve() {
    let gone = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap()
    };
    let site = gate(one_at_a_time(), &[gone, service(echo).await], |_| {}).await;
    let mut client = Client::connect(&site).await;
    for _ in 0..10 {
        assert_eq!(client.get("/").await.status, 200);
    }
    let alone = gate(one_at_a_time(), &[gone], |_| {}).await;
    let mut client = Client::connect(&alone).await;
    let told = client.get("/").await;
    assert_eq!((told.status, told.field("x-gatekeeper")), (502, Some("upstream")));
}

#[tokio::test]
async fn of_several_endpoints_the_one_with_the_fewest_requests_serves() {
    let named = |name: &'static str| {
        service(move |request: Request<Incoming>| async move {
            if request.uri().path() == "/held" {
                std::future::pending::<()>().await;
            }
            Response::new(full(name))
        })
    };
    let both = [named("first").await, named("second").await];
    let policy = Policy { connections: 10, long_limit: None, ..one_at_a_time() };
    let site = gate(policy, &both, |_| {}).await;
    let mut held = Client::connect(&site).await;
    held.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n").await;
    site.reaches(0, 1).await;
    let mut client = Client::connect(&site).await;
    let serves = client.get("/").await.text().to_owned();
    for _ in 0..9 {
        assert_eq!(
            client.get("/").await.text(),
            serves,
            "in turn it would be the other one each second time"
        );
    }
}

#[tokio::test]
async fn one_request_after_another_takes_one_connection_to_the_service() {
    let (way, accepted) = counted(service(async |_| Response::new(full("a page"))).await).await;
    let site = gate(one_at_a_time(), &[way], |_| {}).await;
    for _ in 0..5 {
        let mut client = Client::connect(&site).await;
        for _ in 0..10 {
            assert_eq!(client.get("/").await.text(), "a page");
        }
    }
    assert_eq!(accepted.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_balancer_says_for_whom_it_connects_and_nobody_else_gets_in() {
    let change = |settings: &mut proxy::http::Settings| settings.proxy_protocol = true;
    let site = gate(one_at_a_time(), &[service(echo).await], change).await;
    let mut client = Client::connect(&site).await;
    client.send("PROXY TCP4 192.0.2.7 127.0.0.1 5000 80\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(client.response().await.unwrap().text().contains("x-forwarded-for: 192.0.2.7\n"));
    let mut other = Client::connect(&site).await;
    other.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert!(other.is_over().await);
}

#[tokio::test]
async fn an_endpoint_whose_health_check_fails_is_left_alone_until_it_passes() {
    let is_ill = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let shared = Arc::clone(&is_ill);
    let first = service(move |request: Request<Incoming>| {
        let status = if shared.load(Ordering::SeqCst) { 500 } else { 200 };
        let name = if request.uri().path() == "/health" { "" } else { "first" };
        std::future::ready(Response::builder().status(status).body(full(name)).unwrap())
    })
    .await;
    let second = service(async |_| Response::new(full("second"))).await;
    let change = |settings: &mut proxy::http::Settings| {
        settings.health_check = Some(proxy::http::HealthCheck {
            path: "/health".to_owned(),
            interval: Duration::from_millis(20),
            timeout: Duration::from_secs(5),
        });
    };
    let site = gate(one_at_a_time(), &[first, second], change).await;
    let mut client = Client::connect(&site).await;
    let only_second = async {
        let mut in_a_row = 0;
        while in_a_row < 20 {
            let text = client.get("/").await.text().to_owned();
            in_a_row = if text == "second" { in_a_row + 1 } else { 0 };
        }
        is_ill.store(false, Ordering::SeqCst);
        while client.get("/").await.text() != "first" {}
    };
    tokio::time::timeout(crate::site::PATIENCE, only_second).await.expect("it follows the health of each");
}
