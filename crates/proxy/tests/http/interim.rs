//! What a service says before its response (1xx) comes before it at a client of HTTP/1.1, and at no other.

use std::net::SocketAddr;
use std::sync::Arc;

use http_body_util::BodyExt;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::framing::saying;
use crate::http2::{client as client_of_http2, get};
use crate::site::{Client, Site, gate, one_at_a_time};

const RESPONSE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// What comes before the next response (status, fields), and its status and text.
async fn heard(client: &mut Client) -> (Vec<(u16, String)>, u16, String) {
    let mut before = Vec::new();
    loop {
        let told = client.response().await.expect("a response");
        if told.status >= 200 {
            return (before, told.status, told.text().to_owned());
        }
        let fields: Vec<String> =
            told.fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
        before.push((told.status, fields.join("\n")));
    }
}

/// A site whose service says this before each response.
async fn site_saying(before: &str) -> Site {
    let answer = format!("{before}{RESPONSE}").leak();
    let (address, _) = saying(answer).await;
    gate(one_at_a_time(), &[address], |_| {}).await
}

#[tokio::test]
async fn what_a_service_says_before_its_response_comes_before_it() {
    let hop = "Connection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nContent-Length: 9\r\nX-Gatekeeper-Type: t\r\n";
    for (before, wanted) in [
        ("HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n".to_owned(), vec![(103, "link: </a.css>; rel=preload")]),
        // The gate has answered a client that expected it, and asked the service for none.
        ("HTTP/1.1 100 Continue\r\n\r\n".to_owned(), vec![]),
        ("HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 a\r\nLink: <a>\r\n\r\nHTTP/1.1 103 b\r\nLink: <b>\r\nLink: <c>\r\n\r\n".to_owned(),
            vec![(102, ""), (103, "link: <a>"), (103, "link: <b>\nlink: <c>")]),
        (format!("HTTP/1.1 103 Early Hints\r\n{hop}Link: <a>\r\n\r\n"), vec![(103, "link: <a>")]),
        ("HTTP/1.1 199 Own\r\nX: 1\r\n\r\n".to_owned(), vec![(199, "x: 1")]),
        ("HTTP/1.1 103 x\r\nLink: <a>\r\n\r\n".repeat(40), vec![(103, "link: <a>"); 16]),
    ] {
        let site = site_saying(&before).await;
        let mut client = Client::connect(&site).await;
        let wanted: Vec<(u16, String)> = wanted.into_iter().map(|(status, text)| (status, text.to_owned())).collect();
        for _ in 0..3 {
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
            assert_eq!(heard(&mut client).await, (wanted.clone(), 200, "ok".to_owned()), "{before:?}");
        }
    }
}

#[tokio::test]
async fn who_knows_of_no_interim_response_gets_none() {
    let site = site_saying("HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n").await;
    let mut client = Client::connect(&site).await;
    client.send("GET / HTTP/1.0\r\n\r\n").await;
    let told = client.response().await.unwrap();
    assert_eq!((told.status, told.text()), (200, "ok"));
    assert!(client.is_over().await);
    // To a client of HTTP/2 it can't be sent.
    let mut sender = client_of_http2(&site).await;
    for _ in 0..3 {
        let response = sender.send_request(get("/")).await.unwrap();
        assert_eq!((response.status().as_u16(), response.headers().contains_key("link")), (200, false));
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "ok");
    }
    // The next request over the same connection to the service gets its own.
    let mut client = Client::connect(&site).await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(heard(&mut client).await.0.len(), 1);
}

#[tokio::test]
async fn a_service_that_says_only_what_comes_before_has_not_answered() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let _ = socket.read(&mut [0; 4_096]).await;
            let _ = socket.write_all(b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\nHTTP/1.1 103 Ea").await;
        }
    });
    let site = gate(one_at_a_time(), &[address], |_| {}).await;
    let mut client = Client::connect(&site).await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let (before, status, _) = heard(&mut client).await;
    assert_eq!((before, status), (vec![(103, "link: <a>".to_owned())], 502));
    site.reaches(0, 0).await;
}

/// A service that says before each response, in a hint, which path was asked for. Then it waits for a
/// permit, and answers with that path and so many bytes.
async fn hinting(go: Arc<Semaphore>, size: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let go = Arc::clone(&go);
            tokio::spawn(async move {
                let mut socket = BufReader::new(socket);
                let (mut line, mut path, mut length) = (String::new(), String::new(), 0);
                while let Ok(1..) = socket.read_line(&mut line).await {
                    let said = std::mem::take(&mut line);
                    if let Some(said) = said.strip_prefix("content-length: ") {
                        length = said.trim().parse().unwrap();
                    } else if let Some(asked) = said.strip_suffix(" HTTP/1.1\r\n") {
                        path = asked.split_once(' ').unwrap().1.to_owned();
                    } else if said == "\r\n" {
                        let hint = format!("HTTP/1.1 103 Early Hints\r\nLink: <{path}>\r\n\r\n");
                        socket.write_all(hint.as_bytes()).await.unwrap();
                        socket.read_exact(&mut vec![0; std::mem::take(&mut length)]).await.unwrap();
                        go.acquire().await.unwrap().forget();
                        let answer = if path.starts_with("/none") {
                            "HTTP/1.1 204 No Content\r\n\r\n".to_owned()
                        } else {
                            let body = format!("{path}{}", "x".repeat(size));
                            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
                        };
                        if socket.write_all(answer.as_bytes()).await.is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn it_comes_while_the_response_is_still_awaited() {
    let go = Arc::new(Semaphore::new(0));
    let site = gate(one_at_a_time(), &[hinting(Arc::clone(&go), 0).await], |_| {}).await;
    let mut client = Client::connect(&site).await;
    for path in ["/a", "/b"] {
        client.send(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
        let hint = client.head().await.unwrap();
        assert_eq!((hint.status, hint.field("link")), (103, Some(format!("<{path}>").as_str())));
        go.add_permits(1);
        assert_eq!(client.response().await.unwrap().text(), path);
    }
    // A client that expects 100 hears it from the gate, beside the hint.
    client.send("POST /c HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n").await;
    let mut both = [client.head().await.unwrap().status, client.head().await.unwrap().status];
    both.sort_unstable();
    assert_eq!(both, [100, 103]);
    client.send("abc").await;
    go.add_permits(1);
    assert_eq!(client.response().await.unwrap().text(), "/c");
}

#[tokio::test]
async fn of_pipelined_requests_each_has_its_own_before_its_response_however_slowly_they_are_read() {
    let go = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
    let site = gate(one_at_a_time(), &[hinting(go, 100_000).await], |_| {}).await;
    let mut client = Client::connect(&site).await;
    let request = |number: usize| match number % 3 {
        // Without a body in the response, and with one in the request.
        0 => format!("GET /none/{number} HTTP/1.1\r\nHost: a\r\n\r\n"),
        1 => format!("POST /some/{number} HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody"),
        _ => format!("GET /some/{number} HTTP/1.1\r\nHost: a\r\n\r\n"),
    };
    client.send(&(0..200).map(request).collect::<String>()).await;
    // Meanwhile the socket fills up.
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    for number in 0..200 {
        let (before, status, text) = heard(&mut client).await;
        let path = format!("/{}/{number}", if number % 3 == 0 { "none" } else { "some" });
        assert_eq!(before, [(103, format!("link: <{path}>"))], "{number}");
        if number % 3 == 0 {
            assert_eq!((status, text.as_str()), (204, ""));
        } else {
            assert!(
                status == 200 && text.starts_with(&format!("{path}x")) && text.len() == path.len() + 100_000
            );
        }
    }
    site.reaches(0, 0).await;
}
