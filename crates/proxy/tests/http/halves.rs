//! Clients that close their side of the connection behind a whole request, and wait for the answer.

use std::sync::Arc;
use std::time::Duration;

use admission::Policy;
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use proxy::admin::GateView;
use tokio::io::AsyncWriteExt;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::site::{Client, PATIENCE, Site, full, gate, one_at_a_time, service};

/// A service that answers a request with its body's length once it may.
async fn held() -> (std::net::SocketAddr, Arc<Semaphore>) {
    let go = Arc::new(Semaphore::new(0));
    let shared = Arc::clone(&go);
    let answer = move |request: Request<Incoming>| {
        let go = Arc::clone(&shared);
        async move {
            go.acquire().await.unwrap().forget();
            let Ok(body) = request.into_body().collect().await else { return Response::new(full("broken")) };
            Response::new(full(format!("{} bytes", body.to_bytes().len())))
        }
    };
    (service(answer).await, go)
}

/// A client that has said this, and says no more.
async fn half_closed(site: &Site, text: &str) -> Client {
    let mut client = Client::connect(site).await;
    client.send(text).await;
    client.socket.shutdown().await.unwrap();
    client
}

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

#[tokio::test]
async fn a_client_that_closes_its_side_behind_a_whole_request_gets_its_answer() {
    let (address, go) = held().await;
    let site = gate(one_at_a_time(), &[address], |_| {}).await;
    let large =
        format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n{}", "x".repeat(200_000));
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    for (text, told) in [
        (GET, "0 bytes"),
        ("GET / HTTP/1.0\r\nHost: a\r\n\r\n", "0 bytes"),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", "3 bytes"),
        (chunked, "3 bytes"),
        (&large, "200000 bytes"),
    ] {
        // One is in flight, and one waits in the queue.
        let mut clients = [half_closed(&site, text).await, half_closed(&site, text).await];
        site.reaches(1, 1).await;
        go.add_permits(2);
        for client in &mut clients {
            let response = client.response().await.expect("a response");
            assert_eq!((response.status, response.text()), (200, told), "{text:.60}");
            assert!(client.is_over().await);
        }
        site.reaches(0, 0).await;
    }
    assert_eq!(site.status.totals().counts.left, 0);
}

#[tokio::test]
async fn of_pipelined_requests_before_the_end_each_gets_its_answer() {
    let (address, go) = held().await;
    let site = gate(one_at_a_time(), &[address], |_| {}).await;
    let mut client = half_closed(&site, &GET.repeat(3)).await;
    site.reaches(0, 1).await;
    go.add_permits(3);
    for number in 0..3 {
        assert_eq!(client.response().await.expect("a response").text(), "0 bytes", "{number}");
    }
    assert!(client.is_over().await);
}

#[tokio::test]
async fn a_refusal_reaches_a_client_that_has_closed_its_side() {
    let (address, _go) = held().await;
    let policy = Policy { queue_timeout: Duration::from_millis(200), ..one_at_a_time() };
    let site = gate(policy, &[address], |_| {}).await;
    let _first = half_closed(&site, GET).await;
    site.reaches(0, 1).await;
    let mut second = half_closed(&site, GET).await;
    let told = second.response().await.expect("a refusal");
    assert_eq!((told.status, told.field("x-gatekeeper")), (503, Some("queue_timeout")));
}

#[tokio::test]
async fn a_client_that_closes_its_side_and_then_leaves_has_left() {
    let (address, _go) = held().await;
    let site = gate(one_at_a_time(), &[address], |_| {}).await;
    let first = half_closed(&site, GET).await;
    site.reaches(0, 1).await;
    let second = half_closed(&site, GET).await;
    site.reaches(1, 1).await;
    drop(second);
    site.reaches(0, 1).await;
    drop(first);
    site.reaches(0, 0).await;
    let counts = site.status.totals().counts;
    assert_eq!((counts.left, counts.canceled), (1, 1));
}

#[tokio::test]
async fn an_interim_response_passes_whole_to_a_client_that_has_closed_its_side() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let site = gate(one_at_a_time(), &[listener.local_addr().unwrap()], |_| {}).await;
    let mut client = half_closed(&site, GET).await;
    let (mut service, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    service.write_all(b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n").await.unwrap();
    let hint = client.head().await.expect("an interim response");
    assert_eq!((hint.status, hint.field("link")), (103, Some("<a>")));
    service.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
    assert_eq!(client.response().await.unwrap().text(), "ok");
}

#[tokio::test]
async fn a_large_response_is_whole_though_its_client_closes_its_side_meanwhile() {
    let answer = async |_| Response::new(full(vec![b'x'; 20_000_000]));
    let site = gate(one_at_a_time(), &[service(answer).await], |_| {}).await;
    let mut client = Client::connect(&site).await;
    client.send(GET).await;
    let head = client.head().await.unwrap();
    assert_eq!(head.field("content-length"), Some("20000000"));
    client.socket.shutdown().await.unwrap();
    assert_eq!(client.exactly(20_000_000).await.len(), 20_000_000);
}

#[tokio::test]
async fn who_closes_its_side_leaves_a_stream_of_events() {
    let answer = async |_| {
        let first = futures_util::stream::iter([Ok(Frame::data(Bytes::from("data: 1\n\n")))]);
        let events = StreamBody::new(futures_util::StreamExt::chain(first, futures_util::stream::pending()));
        Response::builder().header("content-type", "text/event-stream").body(BodyExt::boxed(events)).unwrap()
    };
    let site = gate(one_at_a_time(), &[service(answer).await], |_| {}).await;
    let mut client = Client::connect(&site).await;
    client.send(GET).await;
    assert_eq!(client.head().await.unwrap().status, 200);
    client.socket.shutdown().await.unwrap();
    let gone = async {
        while site.status.clients().connected > 0 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, gone).await.expect("nobody listens any more");
}
