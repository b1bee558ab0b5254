//! Between HTTP/2 and HTTP/1.1 a body passes with its trailers if they are announced, and whole if it has
//! no length.

use std::convert::Infallible;

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use proxy::http::Speaks;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::conformance::echo;
use crate::http2::{client as client_of_http2, get, service_of_http2};
use crate::site::{Body, Client, full, gate, one_at_a_time, service};

fn trailers() -> HeaderMap {
    HeaderMap::from_iter([(HeaderName::from_static("x-sum"), HeaderValue::from_static("7"))])
}

/// Seven bytes and a trailer.
fn body_with_trailers() -> StreamBody<impl futures_util::Stream<Item = Result<Frame<Bytes>, Infallible>>> {
    let frames = [Frame::data(Bytes::from_static(b"abcdefg")), Frame::trailers(trailers())];
    StreamBody::new(futures_util::stream::iter(frames.map(Ok)))
}

#[tokio::test]
async fn trailers_that_a_response_of_http_2_announces_reach_a_client_of_http_1_1() {
    let answer = async |request: Request<Incoming>| {
        let response = Response::builder().header("content-length", 7);
        let response =
            if request.uri().path() == "/announced" { response.header("trailer", "x-sum") } else { response };
        response.body(BodyExt::boxed(body_with_trailers())).unwrap()
    };
    let upstream = service_of_http2(answer).await;
    let site = gate(one_at_a_time(), &[upstream], |settings| settings.speaks = Speaks::Http2).await;
    let asked = async |path: &str, version: &str| {
        let mut client = Client::connect(&site).await;
        let request =
            format!("GET {path} HTTP/{version}\r\nHost: a\r\nTE: trailers\r\nConnection: close, TE\r\n\r\n");
        client.send(&request).await;
        let mut all = String::new();
        client.socket.read_to_string(&mut all).await.unwrap();
        all
    };
    let text = asked("/announced", "1.1").await;
    assert!(
        text.contains("\r\ntransfer-encoding: chunked\r\n") && !text.contains("content-length"),
        "{text}"
    );
    assert!(text.ends_with("\r\n\r\n7\r\nabcdefg\r\n0\r\nx-sum: 7\r\n\r\n"), "{text}");
    // Nobody could know of these before the length was said; and HTTP/1.0 has no chunks.
    for (path, version) in [("/", "1.1"), ("/announced", "1.0")] {
        let text = asked(path, version).await;
        assert!(text.contains("\r\ncontent-length: 7\r\n") && text.ends_with("\r\n\r\nabcdefg"), "{text}");
    }
    // HTTP/2 has a place for both.
    let mut sender = client_of_http2(&site).await;
    for path in ["/", "/announced"] {
        let response = sender.send_request(get(path)).await.unwrap();
        assert_eq!(response.headers()["content-length"], "7");
        let body = response.into_body().collect().await.unwrap();
        assert_eq!(body.trailers(), Some(&trailers()));
        assert_eq!(body.to_bytes(), "abcdefg");
    }
}

/// Says which fields frame a request, and what its trailers are.
async fn framed(request: Request<Incoming>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let names = ["content-length", "transfer-encoding"];
    let framing: Vec<&str> = names.into_iter().filter(|name| head.headers.contains_key(*name)).collect();
    let body = body.collect().await.unwrap();
    let sum = body.trailers().and_then(|trailers| trailers.get("x-sum").cloned());
    Response::new(full(format!("{framing:?} {sum:?} {:?}", body.to_bytes())))
}

#[tokio::test]
async fn trailers_that_a_request_of_http_2_announces_reach_a_service_of_http_1_1() {
    let site = gate(one_at_a_time(), &[service(framed).await], |_| {}).await;
    let socket = TcpStream::connect(site.address).await.unwrap();
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
    tokio::spawn(connection);
    for (announced, wanted) in [
        (true, "[\"transfer-encoding\"] Some(\"7\") b\"abcdefg\""),
        (false, "[\"content-length\"] None b\"abcdefg\""),
    ] {
        let request = Request::post("http://shop.example/").header("content-length", 7);
        let request = if announced { request.header("trailer", "x-sum") } else { request };
        let response = sender.send_request(request.body(body_with_trailers()).unwrap()).await.unwrap();
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), wanted);
    }
}

#[tokio::test]
async fn a_body_without_a_length_arrives_whatever_the_method() {
    let site = gate(one_at_a_time(), &[service(echo).await], |_| {}).await;
    let mut client = Client::connect(&site).await;
    for method in ["GET", "DELETE", "OPTIONS", "POST", "PATCH"] {
        let chunked = "Host: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
        client.send(&format!("{method} /x HTTP/1.1\r\n{chunked}")).await;
        let told = client.response().await.unwrap();
        assert!(told.text().ends_with("\n\nabc"), "{method}: {}", told.text());
    }
}
