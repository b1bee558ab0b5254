//! Where a message ends (RFC 9112), on either side: what two readers could take differently is refused, or
//! passes in one form only; and no response is ever taken for that of another request.

use std::convert::Infallible;
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::conformance::echo;
use crate::site::{Client, full, gate, one_at_a_time, service};

/// A service that answers each head that it reads with these bytes, whatever they are.
pub(crate) async fn saying(answer: &'static str) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let heard = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&heard);
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let counted = Arc::clone(&counted);
            tokio::spawn(async move {
                let mut buffer = [0; 4_096];
                while let Ok(1..) = socket.read(&mut buffer).await {
                    counted.fetch_add(1, Ordering::SeqCst);
                    if socket.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, heard)
}

#[tokio::test]
async fn what_follows_a_response_is_nobodys() {
    // A second response, and bodies where there can be none.
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngoodHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
        "HTTP/1.1 204 No Content\r\nContent-Length: 43\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 43\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
    ] {
        let (address, _) = saying(answer).await;
        let site = gate(one_at_a_time(), &[address], |_| {}).await;
        let mut client = Client::connect(&site).await;
        for number in 0..50 {
            let told = client.get("/").await;
            assert!(told.status == 502 || told.text() != "evil", "{number} {answer:?}: {told:?}");
        }
        site.reaches(0, 0).await;
    }
}

#[tokio::test]
async fn a_response_passes_with_one_length_or_not_at_all() {
    let chunked = "2\r\nok\r\n0\r\n\r\n";
    for fields in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5, 6",
        "Content-Length: -5",
        "Content-Length: 5x",
        "Transfer-Encoding: chunked\r\n Content-Length: 5",
        "Transfer-Encoding : chunked",
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n{chunked}").leak();
        let (address, _) = saying(answer).await;
        let site = gate(one_at_a_time(), &[address], |_| {}).await;
        let mut client = Client::connect(&site).await;
        client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
        let mut all = Vec::new();
        client.socket.read_to_end(&mut all).await.unwrap();
        let text = String::from_utf8(all).unwrap().to_ascii_lowercase();
        if text.starts_with("http/1.1 502") {
            continue;
        }
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(
            head.contains("transfer-encoding: chunked") && !head.contains("content-length"),
            "{fields}: {text}"
        );
        assert_eq!(body, chunked, "{fields}");
    }
}

#[tokio::test]
async fn what_is_for_the_gates_own_connection_does_not_reach_the_client() {
    let answer = "HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Hop\r\nKeep-Alive: timeout=5\r\nX-Hop: 1\r\n\
                  Proxy-Connection: keep-alive\r\nX-Kept: 1\r\nContent-Length: 2\r\n\r\nok";
    let (address, heard) = saying(answer).await;
    let site = gate(one_at_a_time(), &[address], |_| {}).await;
    let mut client = Client::connect(&site).await;
    let told = client.get("/").await;
    let names: Vec<&str> = told.fields.iter().map(|(name, _)| name.as_str()).collect();
    assert!(names.contains(&"x-kept"), "{names:?}");
    for name in ["x-hop", "keep-alive", "proxy-connection", "connection"] {
        assert!(!names.contains(&name), "{name} in {names:?}");
    }
    assert_eq!(heard.load(Ordering::SeqCst), 1);
}

/// What the service heard of a request, line by line, or with which status the gate refused it.
async fn heard(text: &str) -> Result<String, u16> {
    let site = gate(one_at_a_time(), &[service(echo).await], |_| {}).await;
    let mut client = Client::connect(&site).await;
    client.send(text).await;
    let told = client.response().await.expect("an answer");
    if told.field("x-gatekeeper").is_none() && told.status == 200 {
        Ok(told.text().to_owned())
    } else {
        Err(told.status)
    }
}

#[tokio::test]
async fn heads_in_forms_that_are_allowed_arrive_in_one_form() {
    for (text, line) in [
        ("\r\nGET /a HTTP/1.1\r\nHost: a\r\n\r\n", "GET /a\n"),
        ("GET /a HTTP/1.1\nHost: a\n\n", "GET /a\n"),
        ("GET http://other.example/x?y HTTP/1.1\r\nHost: a\r\n\r\n", "host: other.example\n"),
        ("GET http://other.example HTTP/1.1\r\nHost: a\r\n\r\n", "GET /\n"),
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "OPTIONS *\n"),
        ("FROB /a HTTP/1.1\r\nHost: a\r\n\r\n", "FROB /a\n"),
        ("GET /a HTTP/1.1\r\nhOsT:a\t \r\n\r\n", "host: a\n"),
        ("GET /a HTTP/1.1\r\nHost:\r\n\r\n", "host: \n"),
        ("GET /%2e%2e/%00?a=%0d%0a HTTP/1.1\r\nHost: a\r\n\r\n", "GET /%2e%2e/%00?a=%0d%0a\n"),
        ("GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", "\n\nabc"),
        ("POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: CHUNKED\r\n\r\n3\r\nabc\r\n0\r\n\r\n", "\n\nabc"),
        (
            "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n03;a=\"b\"\r\nabc\r\n000\r\n\r\n",
            "\n\nabc",
        ),
        ("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", "content-length: 0\n"),
    ] {
        let told = heard(text).await;
        assert!(told.as_ref().is_ok_and(|told| told.contains(line)), "{text:?}: {told:?}");
    }
}

#[tokio::test]
async fn heads_that_can_be_read_in_two_ways_are_refused() {
    for text in [
        // A line that ends for one reader and not for the other.
        "GET / HTTP/1.1\r\nHost: a\r\nX: b\rTransfer-Encoding: chunked\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nX: b\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding\n: chunked\r\n\r\n0\r\n\r\n",
        // Codings that one reader takes for chunked.
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: \u{b}chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        // Lengths that aren't numbers.
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x4\r\n\r\nabcd",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4 4\r\n\r\nabcd",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: \r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n",
        // Targets and hosts.
        "GET http://user@other.example/ HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET a HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        "GET /\u{7f} HTTP/1.1\r\nHost: a\r\n\r\n",
        // What isn't a name or a value.
        "G(T / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX(: 1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n: 1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nnothing\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
    ] {
        assert!(matches!(heard(text).await, Err(400..500)), "{text:?}: {:?}", heard(text).await);
    }
}

#[tokio::test]
async fn pipelined_bodies_of_both_framings_are_told_apart() {
    let site = gate(one_at_a_time(), &[service(echo).await], |_| {}).await;
    let mut client = Client::connect(&site).await;
    client
        .send(
            "POST /1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\none\
             POST /2 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\ntwo\r\n0\r\n\r\n\
             HEAD /3 HTTP/1.1\r\nHost: a\r\n\r\n",
        )
        .await;
    assert!(client.response().await.unwrap().text().ends_with("\n\none"));
    assert!(client.response().await.unwrap().text().ends_with("\n\ntwo"));
    assert_eq!(client.head().await.unwrap().status, 200);
    client.send("GET /4 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    assert!(client.response().await.unwrap().text().starts_with("GET /4\n"));
    assert!(client.is_over().await);
}

#[tokio::test]
async fn what_is_said_as_a_trailer_is_no_field() {
    let site = gate(one_at_a_time(), &[service(echo).await], |_| {}).await;
    let mut client = Client::connect(&site).await;
    client
        .send(
            "POST / HTTP/1.1\r\nHost: a\r\nTrailer: Host, Cookie\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\
             Host: evil\r\nCookie: evil\r\nContent-Length: 9\r\n\r\n",
        )
        .await;
    let told = client.response().await.unwrap();
    assert!(told.text().ends_with("\n\nabc") && !told.text().contains("evil"), "{}", told.text());
    assert_eq!(client.get("/next").await.status, 200);
}

#[tokio::test]
async fn a_client_of_http_1_0_gets_a_body_without_chunks() {
    let (address, _) =
        saying("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n2\r\nay\r\n0\r\n\r\n").await;
    let site = gate(one_at_a_time(), &[address], |_| {}).await;
    let mut client = Client::connect(&site).await;
    client.send("GET / HTTP/1.0\r\n\r\n").await;
    let told = client.response().await.unwrap();
    assert_eq!((told.text(), told.field("transfer-encoding")), ("okay", None));
    let site =
        gate(one_at_a_time(), &[service(async |_| http::Response::new(full("abc"))).await], |_| {}).await;
    let mut client = Client::connect(&site).await;
    for _ in 0..2 {
        client.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").await;
        assert_eq!(client.response().await.unwrap().text(), "abc");
    }
}

/// A service that answers its first request in HTTP/1.0 with a connection that lasts, and all others with
/// the body that it has read.
async fn old_once() -> SocketAddr {
    let echo = service(echo).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut is_first = true;
        while let Ok((mut socket, _)) = listener.accept().await {
            if mem::take(&mut is_first) {
                let mut head = [0; 4_096];
                assert!(socket.read(&mut head).await.unwrap() > 0);
                let old = "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\nold";
                socket.write_all(old.as_bytes()).await.unwrap();
            }
            tokio::spawn(async move {
                let mut to = TcpStream::connect(echo).await?;
                tokio::io::copy_bidirectional(&mut socket, &mut to).await
            });
        }
    });
    address
}

#[tokio::test]
async fn a_body_without_a_length_is_whole_behind_an_answer_in_http_1_0() {
    let chunked = "POST /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    let site = gate(one_at_a_time(), &[old_once().await], |_| {}).await;
    let mut client = Client::connect(&site).await;
    assert_eq!(client.get("/").await.text(), "old");
    client.send(chunked).await;
    let told = client.response().await.unwrap();
    assert!(told.text().starts_with("POST /b\n") && told.text().ends_with("\n\nabc"), "{}", told.text());
    // The same from HTTP/2.
    let site = gate(one_at_a_time(), &[old_once().await], |_| {}).await;
    assert_eq!(Client::connect(&site).await.get("/").await.text(), "old");
    let frames = [Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"abc")))];
    let body = StreamBody::new(futures_util::stream::iter(frames));
    let socket = TcpStream::connect(site.address).await.unwrap();
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::post("http://a/b").body(body).unwrap();
    let told = sender.send_request(request).await.unwrap().into_body().collect().await.unwrap().to_bytes();
    assert!(told.ends_with(b"\n\nabc"), "{told:?}");
}

#[tokio::test]
async fn a_response_in_a_transfer_coding_that_ends_at_the_gate_is_none() {
    for coding in ["gzip, chunked", "gzip", "chunked, chunked", "chunked\r\nTransfer-Encoding: chunked"] {
        let answer =
            format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: {coding}\r\n\r\n2\r\nok\r\n0\r\n\r\n").leak();
        let (address, _) = saying(answer).await;
        let site = gate(one_at_a_time(), &[address], |_| {}).await;
        assert_eq!(Client::connect(&site).await.get("/").await.status, 502, "{coding}");
        site.reaches(0, 0).await;
    }
}

#[tokio::test]
async fn a_chunk_that_cannot_be_read_is_answered() {
    let site = gate(one_at_a_time(), &[service(echo).await], |_| {}).await;
    for body in ["5\nabcde\r\n0\r\n\r\n", "-1\r\n", "FFFFFFFFFFFFFFFF1\r\n", "2\r\nabcde\r\n0\r\n\r\n"] {
        let mut client = Client::connect(&site).await;
        client.send(&format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}")).await;
        let told = client.response().await.unwrap_or_else(|| panic!("{body:?} has no answer"));
        assert_eq!((told.status, told.field("x-gatekeeper")), (400, Some("bad_request")), "{body:?}");
        client.ends().await;
    }
    site.reaches(0, 0).await;
}
