//! What a gate believes of clients, and what it tells them where a message can't be passed on.

use std::net::SocketAddr;
use std::time::Duration;

use http::header::HeaderValue;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use proxy::admin::GateView;
use proxy::http::Settings;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

use crate::conformance::echo;
use crate::framing::saying;
use crate::http2::{client as client_of_http2, get};
use crate::site::{Body, Client, PATIENCE, Site, full, gate, one_at_a_time, service};

/// How many requests the gate has answered so by itself.
fn own_answers(site: &Site, reason: &str) -> u64 {
    site.status.own_answers().iter().find(|(known, _)| *known == reason).unwrap().1
}

/// Waits until so many bad requests are counted: once the gate has seen that their clients have closed.
async fn until_counted(site: &Site, count: u64) {
    let counted = async {
        while own_answers(site, "bad_request") < count {
            sleep(Duration::from_millis(1)).await;
        }
    };
    assert!(timeout(PATIENCE, counted).await.is_ok(), "number {count} is not counted");
}

/// A service that says all that it has read of a request, once that ends with `end`.
async fn raw_echo(end: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut heard = Vec::new();
            let ended = |heard: &[u8]| {
                // Behind the last chunk there may be trailers.
                let last = heard.windows(5).position(|window| window == b"\r\n0\r\n");
                let is_chunked = heard.windows(7).any(|window| window.eq_ignore_ascii_case(b"chunked"));
                heard.ends_with(end) && (!is_chunked || last.is_some())
            };
            while !ended(&heard) && socket.read_buf(&mut heard).await.unwrap() > 0 {}
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", heard.len());
            socket.write_all(&[head.as_bytes(), &heard].concat()).await.unwrap();
        }
    });
    address
}

#[tokio::test]
async fn what_a_service_could_take_for_a_field_of_the_gate_does_not_pass_in_head_or_trailers() {
    let said = "X_Forwarded_For: 6.6.6.6\r\nX.Forwarded-Proto: evil\r\nX-Gatekeeper-Type: evil\r\n\
                X_Gatekeeper_Type: evil\r\nX-Forwarded-Host: evil\r\nForwarded: for=evil\r\nX-Fine: fine\r\n";
    let announced = "X_Forwarded_For, X.Forwarded-Proto, X-Gatekeeper-Type, X_Gatekeeper_Type, X-Forwarded-Host, Forwarded, X-Fine";
    let site = gate(one_at_a_time(), &[raw_echo(b"\r\n\r\n").await], |_| {}).await;
    let mut client = Client::connect(&site).await;
    let head = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nTrailer: {announced}\r\nTransfer-Encoding: chunked\r\n{said}\r\n"
    );
    client.send(&format!("{head}3\r\nabc\r\n0\r\n{said}\r\n")).await;
    let told = client.response().await.unwrap();
    let text = told.text();
    assert!(!text.contains("evil") && !text.contains("6.6.6.6"), "{text}");
    assert_eq!(text.matches("x-fine: fine").count(), 2, "{text}");
    // A proxy that is trusted has said the one in the hyphens' spelling, and knows nothing of the other.
    let trusts = |settings: &mut Settings| {
        settings.trusted_proxies = vec![proxy::Network { address: "127.0.0.1".parse().unwrap(), bits: 32 }];
    };
    let site = gate(one_at_a_time(), &[service(echo).await], trusts).await;
    let mut client = Client::connect(&site).await;
    client
        .send("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.7\r\nX_Forwarded_For: 6.6.6.6\r\n\r\n")
        .await;
    let told = client.response().await.unwrap();
    let text = told.text();
    assert!(text.contains("x-forwarded-for: 192.0.2.7, 127.0.0.1\n") && !text.contains("6.6.6.6"), "{text}");
}

#[tokio::test]
async fn a_head_that_hyper_cannot_read_is_answered_with_a_reason_and_counted() {
    let site = gate(one_at_a_time(), &[service(echo).await], |_| {}).await;
    let cases = [
        ("GET /?a=\"b\" HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 400, "percent-encoded"),
        ("GET /?a=<b> HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 400, "percent-encoded"),
        ("GET /<b> HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 400, "percent-encoded"),
        ("GET /`b HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 400, "percent-encoded"),
        ("G(T / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned(), 400, "method"),
        (format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "X: 1\r\n".repeat(100)), 431, "header_fields_max"),
        (format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(70_000)), 431, "header_max"),
        (format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(66_000)), 414, "too long"),
    ];
    for (number, (text, status, word)) in cases.iter().enumerate() {
        let mut client = Client::connect(&site).await;
        // The first of its connection, and one behind others.
        if number % 2 == 1 {
            assert_eq!(client.get("/before").await.status, 200);
            assert_eq!(client.get("/before").await.status, 200);
        }
        client.send(text).await;
        let told = client.response().await.expect("an answer");
        let line = text.lines().next().unwrap_or("").chars().take(40).collect::<String>();
        assert_eq!((told.status, told.field("x-gatekeeper")), (*status, Some("bad_request")), "{line}");
        assert_eq!(told.field("connection"), Some("close"), "{line}");
        let problem: serde_json::Value = serde_json::from_slice(&told.body).unwrap();
        assert_eq!((&problem["status"], &problem["reason"]), (&(*status).into(), &"bad_request".into()));
        assert!(problem["detail"].as_str().unwrap().contains(word), "{line}: {problem}");
        assert!(client.is_over().await, "{line}");
        drop(client);
        until_counted(&site, number as u64 + 1).await;
    }
}

#[tokio::test]
async fn a_target_beyond_ascii_passes_as_it_came_and_what_is_no_text_is_refused_with_a_reason() {
    let site = gate(one_at_a_time(), &[raw_echo(b"\r\n\r\n").await], |_| {}).await;
    for target in ["/caf\u{e9}/\u{1f418}", "/?q=\u{e9}`", "/\"b\""] {
        let mut client = Client::connect(&site).await;
        client.send(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        let told = client.response().await.unwrap();
        assert_eq!(told.status, 200, "{target}");
        assert!(told.text().starts_with(&format!("GET {target} HTTP/1.1\r\n")), "{}", told.text());
    }
    for (number, target) in [b"/caf\xe9".as_slice(), b"/?q=\xff"].into_iter().enumerate() {
        let mut client = Client::connect(&site).await;
        let head = [b"GET ", target, b" HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
        client.socket.write_all(&head).await.unwrap();
        let told = client.response().await.unwrap();
        assert_eq!((told.status, told.field("x-gatekeeper")), (400, Some("bad_request")));
        assert!(told.text().contains("isn't UTF-8"), "{}", told.text());
        assert!(client.is_over().await);
        drop(client);
        until_counted(&site, number as u64 + 1).await;
    }
}

#[tokio::test]
async fn no_answer_of_the_service_is_taken_for_one_of_hyper() {
    // As hyper would write it, as the body of an answer and as an answer.
    let empty = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
    let body =
        "HTTP/1.1 200 OK\r\nContent-Length: 47\r\n\r\nHTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
    for (answer, status, length) in [(empty, 400, 0), (body, 200, 47)] {
        let (address, _) = saying(answer).await;
        let site = gate(one_at_a_time(), &[address], |_| {}).await;
        let mut client = Client::connect(&site).await;
        for _ in 0..20 {
            let told = client.get("/").await;
            assert_eq!((told.status, told.body.len(), told.field("x-gatekeeper")), (status, length, None));
        }
    }
}

#[tokio::test]
async fn a_refusal_before_the_end_of_an_upload_says_that_its_connection_closes() {
    let (address, _) = saying("").await;
    let policy = admission::Policy { queue_max: 0, ..one_at_a_time() };
    let site = gate(policy, &[address], |_| {}).await;
    let mut first = Client::connect(&site).await;
    first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    site.reaches(0, 1).await;
    let mut client = Client::connect(&site).await;
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc").await;
    let told = client.response().await.unwrap();
    assert_eq!((told.status, told.field("connection")), (503, None), "it goes on");
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nabc").await;
    let told = client.response().await.unwrap();
    assert_eq!((told.status, told.field("connection")), (503, Some("close")));
    assert!(client.is_over().await);
}

#[tokio::test]
async fn the_head_of_a_response_that_breaks_off_at_once_reaches_the_client() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let _ = socket.read(&mut [0; 4_096]).await;
            socket.write_all(b"HTTP/1.1 200 OK\r\nX-Said: yes\r\nContent-Length: 10\r\n\r\n").await.unwrap();
        }
    });
    let site = gate(one_at_a_time(), &[address], |_| {}).await;
    for _ in 0..20 {
        let mut client = Client::connect(&site).await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
        let told = client.head().await.expect("a head");
        assert_eq!((told.status, told.field("x-said")), (200, Some("yes")));
        assert!(client.is_over().await, "it is cut short as the service's was");
        let told = client_of_http2(&site).await.send_request(get("/")).await.expect("a head over HTTP/2");
        assert_eq!(
            (told.status(), &told.headers()["x-said"]),
            (StatusCode::OK, &HeaderValue::from_static("yes"))
        );
        assert!(told.into_body().collect().await.is_err(), "cut short over HTTP/2");
    }
    site.reaches(0, 0).await;
}

/// An answer with so many fields beside its length.
async fn with_fields(count: usize) -> SocketAddr {
    service(move |_: Request<Incoming>| {
        let mut response = Response::new(full("ok"));
        for number in 0..count {
            let name = http::HeaderName::try_from(format!("x-{number}")).unwrap();
            response.headers_mut().insert(name, HeaderValue::from_static("1"));
        }
        std::future::ready(response)
    })
    .await
}

#[tokio::test]
async fn how_many_fields_a_head_may_have_is_told_and_can_be_set() {
    let many = |count: usize| (0..count).map(|number| format!("X-{number}: 1\r\n")).collect::<String>();
    for (most, within, beyond) in [(None, 90, 120), (Some(300), 290, 320), (Some(20), 15, 25)] {
        let bound = |settings: &mut Settings| {
            settings.header_fields_max = most.unwrap_or(settings.header_fields_max);
        };
        // A service that takes any number.
        let (address, _) = saying("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
        let site = gate(one_at_a_time(), &[address], bound).await;
        for (count, status) in [(within, 200), (beyond, 431)] {
            let mut client = Client::connect(&site).await;
            client.send(&format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", many(count))).await;
            assert_eq!(client.response().await.unwrap().status, status, "{count} of {most:?}");
            let mut request = get("/");
            for number in 0..count {
                let name = http::HeaderName::try_from(format!("x-{number}")).unwrap();
                request.headers_mut().insert(name, HeaderValue::from_static("1"));
            }
            let told = client_of_http2(&site).await.send_request(request).await.unwrap();
            assert_eq!(told.status(), status, "{count} of {most:?}, over HTTP/2");
        }
        for (count, status) in [(within, 200), (beyond, 502)] {
            let site = gate(one_at_a_time(), &[with_fields(count).await], bound).await;
            let told = Client::connect(&site).await.get("/").await;
            assert_eq!(told.status, status, "a response with {count} of {most:?}");
            assert_eq!(status == 502, told.text().contains("header_fields_max"), "{}", told.text());
        }
    }
}

#[tokio::test]
async fn equal_lengths_of_http_2_reach_the_service_as_one() {
    let site = gate(one_at_a_time(), &[raw_echo(b"\r\n\r\nabc").await], |_| {}).await;
    let mut sender = client_of_http2(&site).await;
    let post = |lengths: &[&'static str]| {
        let mut request = Request::post("http://shop.example/").body(Full::from("abc")).unwrap();
        for length in lengths {
            request.headers_mut().append("content-length", HeaderValue::from_static(length));
        }
        request
    };
    let told = sender.send_request(post(&["3", "3"])).await.unwrap();
    assert_eq!(told.status(), StatusCode::OK);
    let text = told.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8_lossy(&text);
    assert_eq!(text.matches("content-length: 3\r\n").count(), 1, "{text}");
    assert!(sender.send_request(post(&["3", "4"])).await.is_err(), "h2 resets a stream whose lengths differ");
}

#[tokio::test]
async fn a_script_may_read_a_refusal_where_the_service_allowed_it_to_read_the_answer_before() {
    let go = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let let_go = std::sync::Arc::clone(&go);
    let answer = move |request: Request<Incoming>| {
        let go = std::sync::Arc::clone(&go);
        async move {
            if request.uri().path() == "/held" {
                go.acquire().await.unwrap().forget();
            }
            let mut response: Response<Body> = Response::new(full("ok"));
            if request.headers().get("origin").is_some_and(|origin| origin == "https://shop.example") {
                let fields = response.headers_mut();
                fields
                    .insert("access-control-allow-origin", HeaderValue::from_static("https://shop.example"));
            }
            response
        }
    };
    let policy = admission::Policy { queue_max: 0, ..one_at_a_time() };
    let site = gate(policy, &[service(answer).await], |_| {}).await;
    let ask = async |path: &str, origin: &str| {
        let mut client = Client::connect(&site).await;
        client.send(&format!("GET {path} HTTP/1.1\r\nHost: a\r\nOrigin: {origin}\r\n\r\n")).await;
        client.response().await.unwrap()
    };
    for origin in ["https://shop.example", "https://evil.example"] {
        assert_eq!(ask("/", origin).await.status, 200);
    }
    let mut held = Client::connect(&site).await;
    held.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n").await;
    site.reaches(0, 1).await;
    let told = ask("/", "https://shop.example").await;
    assert_eq!((told.status, told.field("access-control-allow-origin")), (503, Some("https://shop.example")));
    assert_eq!(told.field("access-control-expose-headers"), Some("retry-after, x-gatekeeper"));
    let told = ask("/", "https://evil.example").await;
    assert_eq!((told.status, told.field("access-control-allow-origin")), (503, None));
    let_go.add_permits(1);
    assert_eq!(held.response().await.unwrap().status, 200);
}
