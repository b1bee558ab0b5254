//! Connections that become something else.

use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::site::{Client, full, gate, one_at_a_time, service};

/// Agrees to speak "echo", and then echoes.
async fn echoing(mut request: Request<Incoming>) -> Response<crate::site::Body> {
    if request.headers().get("upgrade").is_none_or(|to| to != "echo") {
        return Response::builder().status(426).body(full("")).unwrap();
    }
    let client = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut socket = TokioIo::new(client.await.unwrap());
        let mut buffer = [0; 1_024];
        while let Ok(count @ 1..) = socket.read(&mut buffer).await {
            socket.write_all(&buffer[..count]).await.unwrap();
        }
    });
    Response::builder()
        .status(101)
        .header("connection", "upgrade")
        .header("upgrade", "echo")
        .body(full(""))
        .unwrap()
}

#[tokio::test]
async fn an_upgrade_becomes_a_tunnel_that_holds_no_place() {
    let site = gate(one_at_a_time(), &[service(echoing).await], |_| {}).await;
    let mut client = Client::connect(&site).await;
    client.send("GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n").await;
    let told = client.head().await.unwrap();
    assert_eq!(
        (told.status, told.field("upgrade"), told.field("connection")),
        (101, Some("echo"), Some("upgrade"))
    );
    let mut hasty = Client::connect(&site).await;
    hasty.send("GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\nearly").await;
    assert_eq!(hasty.head().await.unwrap().status, 101);
    assert_eq!(hasty.exactly(5).await, b"early", "what came with the request is the tunnel's");
    for text in ["hello", "again"] {
        client.send(text).await;
        assert_eq!(client.exactly(5).await, text.as_bytes());
    }
    // The only place is free for others meanwhile.
    site.reaches(0, 0).await;
    let mut other = Client::connect(&site).await;
    assert_eq!(other.get("/").await.status, 426);
    client.socket.shutdown().await.unwrap();
    assert!(client.is_over().await);
}

#[tokio::test]
async fn an_upgrade_that_is_refused_is_an_ordinary_request() {
    let site = gate(one_at_a_time(), &[service(echoing).await], |_| {}).await;
    let mut client = Client::connect(&site).await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n").await;
    assert_eq!(client.response().await.unwrap().status, 426);
    assert_eq!(client.get("/").await.status, 426);
}

#[tokio::test]
async fn tunnels_end_with_the_gate() {
    let change = |settings: &mut proxy::http::Settings| settings.drain_timeout = Duration::from_millis(50);
    let site = gate(one_at_a_time(), &[service(echoing).await], change).await;
    let mut client = Client::connect(&site).await;
    client.send("GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n").await;
    assert_eq!(client.head().await.unwrap().status, 101);
    site.trigger.abort();
    assert!(client.is_over().await);
}

#[tokio::test]
async fn an_upgrade_to_another_version_of_http_is_nobodys_wish() {
    let asked = async |request: Request<Incoming>| {
        let fields = request.headers();
        assert!(!fields.contains_key("upgrade") && !fields.contains_key("http2-settings"), "{fields:?}");
        Response::new(full("plain"))
    };
    let site = gate(one_at_a_time(), &[service(asked).await], |_| {}).await;
    let mut client = Client::connect(&site).await;
    for to in ["h2c", "H2C", "websocket, h2c", "HTTP/2.0", "TLS/1.2"] {
        client
            .send(&format!(
                "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: {to}\r\n\
                 HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n"
            ))
            .await;
        assert_eq!(client.response().await.unwrap().text(), "plain", "{to}");
    }
}
