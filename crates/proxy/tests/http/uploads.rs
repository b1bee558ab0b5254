//! Uploads that pause, and what they leave to others meanwhile.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use admission::Policy;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use proxy::admin::GateView;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

use crate::site::{Client, PATIENCE, Site, full, gate, one_at_a_time, service};

/// What each of these uploads is long, and what comes of it at first: more than what has to be there before
/// its turn.
const LENGTH: usize = 1_000_000;
const BEGUN: usize = 17_000;

/// Answers a body with its length, `/held` once it may, and anything else with its path. `whole` counts
/// bodies that have ended.
async fn reading() -> (SocketAddr, Arc<AtomicUsize>, Arc<Semaphore>) {
    let (whole, go) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let (counted, held) = (Arc::clone(&whole), Arc::clone(&go));
    let answer = move |request: Request<Incoming>| {
        let (whole, go) = (Arc::clone(&counted), Arc::clone(&held));
        async move {
            let path = request.uri().path().to_owned();
            if path == "/held" {
                go.acquire().await.unwrap().forget();
            } else if request.method() == http::Method::POST {
                let Ok(body) = request.into_body().collect().await else {
                    return Response::new(full("broken"));
                };
                whole.fetch_add(1, Ordering::SeqCst);
                return Response::new(full(body.to_bytes().len().to_string()));
            }
            Response::new(full(path))
        }
    };
    (service(answer).await, whole, go)
}

/// A client that has sent the beginning of a body, and pauses.
async fn begun(site: &Site) -> Client {
    let mut client = Client::connect(site).await;
    client.send(&format!("POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: {LENGTH}\r\n\r\n")).await;
    client.send(&"x".repeat(BEGUN)).await;
    client
}

/// A client that sends as much as is taken, without an end: the service never waits for it.
async fn sending(site: &Site) -> tokio::task::JoinHandle<()> {
    let mut client = Client::connect(site).await;
    client.send("POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n").await;
    tokio::spawn(async move { while client.socket.write_all(&[b'x'; 65_536]).await.is_ok() {} })
}

/// A visitor that has the only place, which an upload that pauses has given back.
async fn overtaking(site: &Site) -> Client {
    site.reaches(0, 1).await;
    site.reaches(0, 0).await;
    let mut other = Client::connect(site).await;
    other.send("GET /held HTTP/1.1\r\nHost: a\r\n\r\n").await;
    site.reaches(0, 1).await;
    other
}

async fn ended(client: &mut Client) -> String {
    client.send(&"x".repeat(LENGTH - BEGUN)).await;
    client.response().await.expect("a response").text().to_owned()
}

#[tokio::test]
async fn uploads_that_pause_keep_no_visitor_waiting() {
    let (address, whole, _go) = reading().await;
    let policy = Policy { connections: 2, ..one_at_a_time() };
    let site = gate(policy, &[address], |_| {}).await;
    let mut slow = Vec::new();
    for _ in 0..4 {
        slow.push(begun(&site).await);
    }
    let mut visitor = Client::connect(&site).await;
    assert_eq!(visitor.get("/page").await.text(), "/page");
    site.reaches(0, 0).await;
    for client in &mut slow {
        assert_eq!(ended(client).await, LENGTH.to_string());
    }
    assert_eq!(whole.load(Ordering::SeqCst), 4);
    site.reaches(0, 0).await;
    // Nobody counts as having left, and each is answered once.
    let counts = site.status.totals().counts;
    assert_eq!((counts.succeeded, counts.left, counts.failed), (5, 0, 0));
}

#[tokio::test]
async fn the_end_of_an_upload_that_has_paused_waits_for_a_place() {
    let (address, whole, go) = reading().await;
    let site = gate(one_at_a_time(), &[address], |_| {}).await;
    let mut slow = begun(&site).await;
    let mut other = overtaking(&site).await;
    slow.send(&"x".repeat(LENGTH - BEGUN)).await;
    // A pause is no way past the gate: the service has all but the end.
    site.reaches(1, 1).await;
    assert_eq!(whole.load(Ordering::SeqCst), 0);
    go.add_permits(1);
    assert_eq!(other.response().await.unwrap().text(), "/held");
    assert_eq!(slow.response().await.unwrap().text(), LENGTH.to_string());
    site.reaches(0, 0).await;
}

#[tokio::test]
async fn the_end_of_a_body_in_chunks_waits_for_a_place_as_well() {
    let (address, whole, go) = reading().await;
    let site = gate(one_at_a_time(), &[address], |_| {}).await;
    let mut slow = Client::connect(&site).await;
    slow.send("POST /up HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    slow.send(&format!("4268\r\n{}\r\n", "x".repeat(BEGUN))).await;
    let mut other = overtaking(&site).await;
    slow.send("0\r\n\r\n").await;
    site.reaches(1, 1).await;
    assert_eq!(whole.load(Ordering::SeqCst), 0);
    go.add_permits(1);
    assert_eq!(other.response().await.unwrap().text(), "/held");
    assert_eq!(slow.response().await.unwrap().text(), BEGUN.to_string());
}

#[tokio::test]
async fn who_leaves_while_the_end_of_an_upload_waits_is_out_of_the_queue() {
    let (address, _whole, _go) = reading().await;
    let site = gate(one_at_a_time(), &[address], |_| {}).await;
    let mut slow = begun(&site).await;
    let _other = overtaking(&site).await;
    slow.send(&"x".repeat(LENGTH - BEGUN)).await;
    site.reaches(1, 1).await;
    drop(slow);
    site.reaches(0, 1).await;
}

#[tokio::test]
async fn the_end_of_an_upload_is_refused_as_any_request_is() {
    let (address, whole, _go) = reading().await;
    let policy = Policy { queue_max: 0, ..one_at_a_time() };
    let site = gate(policy, &[address], |_| {}).await;
    let mut slow = begun(&site).await;
    let _other = overtaking(&site).await;
    slow.send(&"x".repeat(LENGTH - BEGUN)).await;
    let told = slow.response().await.unwrap();
    assert_eq!((told.status, told.field("x-gatekeeper")), (503, Some("queue_full")));
    assert_eq!(whole.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_body_in_chunks_has_begun_before_its_request_stands_in_line() {
    let (address, _whole, _go) = reading().await;
    let site = gate(one_at_a_time(), &[address], |_| {}).await;
    let mut slow = Client::connect(&site).await;
    // Both come with one read, so that the second is known once the first is answered.
    let head = "POST /up HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n";
    slow.send(&format!("GET /first HTTP/1.1\r\nHost: a\r\n\r\n{head}")).await;
    assert_eq!(slow.response().await.unwrap().text(), "/first");
    let mut visitor = Client::connect(&site).await;
    assert_eq!(visitor.get("/page").await.text(), "/page");
    slow.send("0\r\n\r\n").await;
    assert_eq!(slow.response().await.unwrap().text(), "1");
    site.reaches(0, 0).await;
}

#[tokio::test]
async fn one_address_gives_places_back_that_others_wait_for() {
    // It takes nothing of a body, so that no client is slow.
    let answer = async |request: Request<Incoming>| {
        if request.method() == http::Method::POST {
            std::future::pending::<()>().await;
        }
        Response::new(full(request.uri().path().to_owned()))
    };
    let policy = Policy { connections: 2, ..one_at_a_time() };
    let site = gate(policy, &[service(answer).await], |_| {}).await;
    let _both = [sending(&site).await, sending(&site).await];
    site.reaches(0, 2).await;
    let mut visitor = Client::connect(&site).await;
    let told = timeout(PATIENCE, visitor.get("/page")).await.expect("a place for others");
    assert_eq!(told.text(), "/page");
}

#[tokio::test]
async fn an_upload_may_take_longer_than_the_service() {
    let (address, _whole, _go) = reading().await;
    let limit = Duration::from_secs(1);
    let site = gate(one_at_a_time(), &[address], |settings| settings.upstream_timeout = limit).await;
    let began = Instant::now();
    let mut client = begun(&site).await;
    let mut sent = BEGUN;
    // Its pauses are short, and all of it takes longer than the service may.
    while began.elapsed() < limit * 2 {
        client.send(&"x".repeat(1_000)).await;
        sent += 1_000;
        sleep(Duration::from_millis(20)).await;
    }
    client.send(&"x".repeat(LENGTH - sent)).await;
    let told = client.response().await.unwrap();
    assert_eq!((told.status, told.text()), (200, LENGTH.to_string().as_str()));
}

#[tokio::test]
async fn a_service_that_takes_nothing_of_an_upload_is_given_up() {
    let answer = async |_| std::future::pending::<Response<crate::site::Body>>().await;
    let limit = Duration::from_millis(300);
    let change = |settings: &mut proxy::http::Settings| settings.upstream_timeout = limit;
    let site = gate(one_at_a_time(), &[service(answer).await], change).await;
    let mut client = Client::connect(&site).await;
    let length = 64_000_000;
    client.send(&format!("POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n")).await;
    let (mut reading, mut writing) = client.socket.into_split();
    tokio::spawn(async move { while writing.write_all(&[b'x'; 65_536]).await.is_ok() {} });
    let mut told = [0; 12];
    timeout(PATIENCE, reading.read_exact(&mut told)).await.expect("an answer").unwrap();
    assert_eq!(&told, b"HTTP/1.1 504");
}
