//! Requests that wait, that leave, and that are refused.

use std::sync::Arc;
use std::time::Duration;

use admission::Policy;
use futures_util::{StreamExt, stream};
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use proxy::admin::GateView;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout};

use crate::site::{Client, PATIENCE, Site, full, gate, one_at_a_time, service};

/// A service that answers a request for each permit that is added.
async fn held() -> (std::net::SocketAddr, Arc<Semaphore>) {
    let go = Arc::new(Semaphore::new(0));
    let shared = Arc::clone(&go);
    let answer = move |request: Request<Incoming>| {
        let go = Arc::clone(&shared);
        async move {
            go.acquire().await.unwrap().forget();
            Response::new(full(request.uri().path().to_owned()))
        }
    };
    (service(answer).await, go)
}

async fn ask(site: &Site, text: &str) -> Client {
    let mut client = Client::connect(site).await;
    client.send(text).await;
    client
}

#[tokio::test]
async fn a_client_that_leaves_the_queue_is_gone_at_once_however_it_leaves() {
    let (address, go) = held().await;
    let site = gate(one_at_a_time(), &[address], |_| {}).await;
    let mut first = ask(&site, "GET /first HTTP/1.1\r\nHost: a\r\n\r\n").await;
    site.reaches(0, 1).await;
    let waiting = [
        "GET /x HTTP/1.1\r\nHost: a\r\n\r\n",
        // Behind the next request, or a body, or a part of one, the end of the stream can't be read.
        "GET /x HTTP/1.1\r\nHost: a\r\n\r\nGET /y HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
        "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\nabc",
        "POST /x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n",
    ];
    for text in waiting {
        for reset in [false, true] {
            let client = ask(&site, text).await;
            site.reaches(1, 1).await;
            if reset {
                socket2::SockRef::from(&client.socket).set_linger(Some(Duration::ZERO)).unwrap();
            }
            drop(client);
            timeout(PATIENCE, site.reaches(0, 1)).await.unwrap_or_else(|_| panic!("{text:?} {reset}"));
        }
    }
    go.add_permits(1);
    assert_eq!(first.response().await.unwrap().text(), "/first");
    site.reaches(0, 0).await;
    assert_eq!(site.status.totals().counts.left, 10);
}

#[tokio::test]
async fn a_refusal_says_why_and_costs_the_service_nothing() {
    let (address, go) = held().await;
    let policy = Policy { queue_max: 1, ..one_at_a_time() };
    let site = gate(policy, &[address], |settings| settings.server_timing = true).await;
    let mut first = ask(&site, "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n").await;
    site.reaches(0, 1).await;
    let mut second = ask(&site, "GET /2 HTTP/1.1\r\nHost: a\r\n\r\n").await;
    site.reaches(1, 1).await;
    let mut refused = Client::connect(&site).await;
    let told = refused.get("/3").await;
    assert_eq!((told.status, told.field("x-gatekeeper")), (503, Some("queue_full")));
    assert!(told.field("retry-after").unwrap().parse::<u64>().unwrap() >= 1);
    let problem: serde_json::Value = serde_json::from_slice(&told.body).unwrap();
    assert_eq!((&problem["status"], &problem["reason"]), (&503.into(), &"queue_full".into()));
    // Its connection is still good.
    assert_eq!(refused.get("/4").await.status, 503);
    go.add_permits(2);
    assert_eq!(first.response().await.unwrap().text(), "/1");
    let told = second.response().await.unwrap();
    assert_eq!(told.text(), "/2");
    let timing = told.field("server-timing").unwrap();
    assert!(timing.strip_prefix("gate;dur=").unwrap().parse::<f64>().unwrap() > 0.0, "{timing}");
    site.reaches(0, 0).await;
}

#[tokio::test]
async fn a_request_is_not_sent_after_its_deadline() {
    let (address, go) = held().await;
    let site = gate(one_at_a_time(), &[address], |_| {}).await;
    let mut first = ask(&site, "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n").await;
    site.reaches(0, 1).await;
    let mut late = ask(&site, "GET /2 HTTP/1.1\r\nHost: a\r\nX-Request-Timeout: 50ms\r\n\r\n").await;
    let told = late.response().await.unwrap();
    assert_eq!((told.status, told.field("x-gatekeeper")), (504, Some("deadline")));
    go.add_permits(1);
    assert_eq!(first.response().await.unwrap().status, 200);
    site.reaches(0, 0).await;
}

#[tokio::test]
async fn a_client_that_leaves_in_flight_gives_its_place_to_the_next() {
    let (address, go) = held().await;
    let site = gate(one_at_a_time(), &[address], |_| {}).await;
    for _ in 0..3 {
        let client = ask(&site, "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n").await;
        site.reaches(0, 1).await;
        drop(client);
        site.reaches(0, 0).await;
    }
    go.add_permits(10);
    let mut client = Client::connect(&site).await;
    assert_eq!(client.get("/2").await.text(), "/2");
}

#[tokio::test]
async fn a_service_that_does_not_answer_is_given_up() {
    let (address, _go) = held().await;
    let change = |settings: &mut proxy::http::Settings| settings.upstream_timeout = Duration::from_millis(50);
    let site = gate(one_at_a_time(), &[address], change).await;
    let mut client = Client::connect(&site).await;
    let told = client.get("/1").await;
    assert_eq!((told.status, told.field("x-gatekeeper")), (504, Some("upstream_timeout")));
    site.reaches(0, 0).await;
}

#[tokio::test]
async fn a_slow_client_is_not_the_services_work() {
    let large = 20_000_000;
    let answer = async move |_| Response::new(full(vec![b'x'; 20_000_000]));
    let policy = Policy { suspend_after: Duration::from_millis(50), ..one_at_a_time() };
    let site = gate(policy, &[service(answer).await], |_| {}).await;
    let mut slow = ask(&site, "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let head = slow.head().await.unwrap();
    // It takes nothing more: its work is given back.
    let suspended = async {
        while site.status.snapshot().suspended == 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, suspended).await.expect("its work is given back");
    let length: usize = head.field("content-length").unwrap().parse().unwrap();
    assert_eq!(length, large);
    assert_eq!(slow.exactly(length).await.len(), length);
    site.reaches(0, 0).await;
}

#[tokio::test]
async fn draining_lets_what_runs_finish_and_takes_no_more() {
    let (address, go) = held().await;
    let site = gate(one_at_a_time(), &[address], |_| {}).await;
    let mut idle = Client::connect(&site).await;
    let mut first = ask(&site, "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n").await;
    site.reaches(0, 1).await;
    site.trigger.drain();
    assert!(idle.is_over().await);
    go.add_permits(1);
    let told = first.response().await.unwrap();
    assert_eq!((told.text(), told.field("connection")), ("/1", Some("close")));
    assert!(first.is_over().await);
    first.socket.shutdown().await.ok();
}

#[tokio::test]
async fn who_still_waits_when_the_time_to_drain_is_over_is_answered() {
    let (address, _go) = held().await;
    let time = Duration::from_millis(50);
    let site = gate(one_at_a_time(), &[address], |settings| settings.drain_timeout = time).await;
    let _first = ask(&site, "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n").await;
    site.reaches(0, 1).await;
    let mut waits = ask(&site, "GET /2 HTTP/1.1\r\nHost: a\r\n\r\n").await;
    site.reaches(1, 1).await;
    site.trigger.drain();
    let told = waits.response().await.expect("an answer");
    let fields = (told.field("x-gatekeeper"), told.field("connection"));
    assert_eq!((told.status, fields), (503, (Some("shutdown"), Some("close"))));
    assert!(waits.is_over().await);
}

#[tokio::test]
async fn who_has_just_connected_is_served_by_a_draining_gate() {
    let (address, go) = held().await;
    let site = gate(Policy { connections: 2, ..one_at_a_time() }, &[address], |_| {}).await;
    let mut accepted = Client::connect(&site).await;
    while site.status.clients().connected < 1 {
        sleep(Duration::from_millis(1)).await;
    }
    // Connected by the kernel alone: the gate's task doesn't run before the next await.
    let waiting = std::net::TcpStream::connect(site.address).unwrap();
    site.trigger.drain();
    let mut waiting = Client::of(waiting);
    for client in [&mut accepted, &mut waiting] {
        client.send("GET /late HTTP/1.1\r\nHost: a\r\n\r\n").await;
    }
    go.add_permits(2);
    for mut client in [accepted, waiting] {
        let told = client.response().await.expect("a response");
        assert_eq!((told.text(), told.field("connection")), ("/late", Some("close")));
        assert!(client.is_over().await);
    }
}

/// How often a client leaves the queue, to see how long that takes.
const LEAVING: usize = 200;

/// Looks every 50 µs until nobody waits any more, and tells how long that took. This thread is none of the
/// gate's.
fn emptied(site: &Site, left: Instant) -> Duration {
    while site.status.snapshot().queued > 0 {
        assert!(left.elapsed() < PATIENCE, "a request whose client has left still waits");
        std::thread::sleep(Duration::from_micros(50));
    }
    left.elapsed()
}

fn print(how: &str, mut took: Vec<Duration>) {
    took.sort_unstable();
    let (middle, most) = (took[took.len() / 2], took[took.len() - 1]);
    println!(
        "out of the queue after {how}: median {middle:?}, p99 {:?}, at most {most:?}",
        took[took.len() * 99 / 100]
    );
}

/// The figures depend on the machine and nothing here on them: the service stands still all the while, so
/// that nobody could leave the queue in any other way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_leaves_the_queue_is_out_of_it_while_the_service_stands_still() {
    let (address, _go) = held().await;
    let site = gate(one_at_a_time(), &[address], |_| {}).await;
    let _first = ask(&site, "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n").await;
    site.reaches(0, 1).await;
    for reset in [false, true] {
        let mut took = Vec::new();
        for _ in 0..LEAVING {
            let client = ask(&site, "GET /2 HTTP/1.1\r\nHost: a\r\n\r\n").await;
            site.reaches(1, 1).await;
            if reset {
                socket2::SockRef::from(&client.socket).set_linger(Some(Duration::ZERO)).unwrap();
            }
            let left = Instant::now();
            drop(client);
            took.push(emptied(&site, left));
        }
        print(if reset { "a reset" } else { "a close" }, took);
    }
    let mut sender = crate::http2::client(&site).await;
    let mut took = Vec::new();
    for _ in 0..LEAVING {
        let waiting = tokio::spawn(sender.send_request(crate::http2::get("/2")));
        site.reaches(1, 1).await;
        let left = Instant::now();
        waiting.abort();
        took.push(emptied(&site, left));
    }
    print("RST_STREAM", took);
    assert_eq!(site.status.totals().counts.left, 3 * LEAVING as u64);
}

#[tokio::test]
async fn who_is_refused_costs_the_service_no_connection() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&accepted);
    tokio::spawn(async move {
        let mut kept = Vec::new();
        loop {
            kept.push(listener.accept().await.unwrap());
            counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
    });
    let policy = Policy { queue_max: 0, ..one_at_a_time() };
    let site = gate(policy, &[address], |_| {}).await;
    let _first = ask(&site, "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n").await;
    site.reaches(0, 1).await;
    for number in 0..50 {
        let mut refused = Client::connect(&site).await;
        let told = refused.get("/2").await;
        assert_eq!((told.status, told.field("x-gatekeeper")), (503, Some("queue_full")), "{number}");
    }
    let mut sender = crate::http2::client(&site).await;
    for _ in 0..50 {
        assert_eq!(sender.send_request(crate::http2::get("/2")).await.unwrap().status(), 503);
    }
    assert_eq!(accepted.load(std::sync::atomic::Ordering::SeqCst), 1);
}

#[tokio::test]
async fn who_is_refused_hears_of_it_in_the_middle_of_an_upload() {
    let (address, _go) = held().await;
    let policy = Policy { queue_max: 0, ..one_at_a_time() };
    let site = gate(policy, &[address], |_| {}).await;
    let _first = ask(&site, "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n").await;
    site.reaches(0, 1).await;
    // More than the kernel holds.
    let upload = vec![b'x'; 40_000_000];
    for number in 0..3 {
        let mut socket = tokio::net::TcpStream::connect(site.address).await.unwrap();
        let head = format!("POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", upload.len());
        // As simple clients do: all is sent before anything is read.
        socket.write_all(head.as_bytes()).await.unwrap();
        let sent = socket.write_all(&upload).await;
        let mut heard = Vec::new();
        let read = socket.read_to_end(&mut heard).await;
        let text = String::from_utf8(heard).unwrap();
        assert!(
            sent.is_ok() && text.starts_with("HTTP/1.1 503") && text.ends_with('}'),
            "{number}: {sent:?} {read:?} {text}"
        );
    }
}

#[tokio::test]
async fn who_is_refused_between_two_pieces_of_an_upload_hears_of_it() {
    let (address, _go) = held().await;
    let policy = Policy { queue_max: 0, ..one_at_a_time() };
    let site = gate(policy, &[address], |settings| settings.body_max = Some(1_000_000)).await;
    let _first = ask(&site, "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n").await;
    site.reaches(0, 1).await;
    for (length, status) in [(1_000_000, "503"), (2_000_000, "413")] {
        let mut socket = tokio::net::TcpStream::connect(site.address).await.unwrap();
        let head = format!("POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        socket.write_all(head.as_bytes()).await.unwrap();
        // The answer is there, and nothing more comes from a client that thinks it has to send first.
        socket.readable().await.unwrap();
        for _ in 0..5 {
            sleep(Duration::from_millis(50)).await;
            socket.write_all(&[b'x'; 1_000]).await.unwrap();
        }
        let mut heard = Vec::new();
        socket.read_to_end(&mut heard).await.unwrap();
        let text = String::from_utf8(heard).unwrap();
        assert!(text.starts_with(&format!("HTTP/1.1 {status}")) && text.ends_with('}'), "{text}");
    }
}

/// Answers `/large` with 20 MB, and anything else with its path.
async fn large_or_small() -> std::net::SocketAddr {
    service(async |request: Request<Incoming>| {
        let path = request.uri().path().to_owned();
        Response::new(full(if path == "/large" { vec![b'x'; 20_000_000] } else { path.into_bytes() }))
    })
    .await
}

#[tokio::test]
async fn who_takes_a_response_slowly_keeps_nobody_else_waiting() {
    let site = gate(one_at_a_time(), &[large_or_small().await], |_| {}).await;
    let mut slow = ask(&site, "GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let head = slow.head().await.unwrap();
    assert_eq!(head.field("content-length"), Some("20000000"));
    // It takes nothing more, and there is one place.
    let mut other = Client::connect(&site).await;
    assert_eq!(other.get("/small").await.text(), "/small");
    site.reaches(0, 0).await;
    assert_eq!(slow.exactly(20_000_000).await.len(), 20_000_000);
    // Served, and nobody counts as having left.
    let counts = site.status.totals().counts;
    assert_eq!((counts.succeeded, counts.left, counts.canceled), (2, 0, 0));
}

#[tokio::test]
async fn what_a_slow_client_has_not_taken_is_no_part_of_what_a_type_is_known_for() {
    let site = gate(one_at_a_time(), &[large_or_small().await], |_| {}).await;
    let samples = || site.status.snapshot().types.iter().map(|known| known.samples).sum::<u64>();
    let mut client = Client::connect(&site).await;
    assert_eq!(client.get("/large").await.body.len(), 20_000_000);
    site.reaches(0, 0).await;
    let learned = samples();
    assert!(learned > 0);
    let mut slow = ask(&site, "GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(slow.head().await.unwrap().status, 200);
    site.reaches(0, 0).await;
    assert_eq!((samples(), site.status.totals().counts.succeeded), (learned, 2));
}

#[tokio::test]
async fn who_takes_nothing_more_of_a_response_is_cut_off() {
    let site = gate(one_at_a_time(), &[large_or_small().await], |settings| {
        settings.body_timeout = Duration::from_millis(300);
    })
    .await;
    let mut slow = ask(&site, "GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(slow.head().await.unwrap().status, 200);
    let gone = async {
        while site.status.clients().connected > 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, gone).await.expect("the gate waits for it no longer");
    site.reaches(0, 0).await;
}

#[tokio::test]
async fn who_sends_a_short_body_slowly_keeps_nobody_else_waiting() {
    let site = gate(one_at_a_time(), &[large_or_small().await], |_| {}).await;
    // Both come with one read, so that the second is known once the first is answered.
    let both = "GET /first HTTP/1.1\r\nHost: a\r\n\r\nPOST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabc";
    let mut slow = ask(&site, both).await;
    assert_eq!(slow.response().await.unwrap().text(), "/first");
    let mut other = Client::connect(&site).await;
    assert_eq!(other.get("/small").await.text(), "/small");
    assert_eq!(site.status.totals().counts.dispatched, 2, "a request that isn't sent whole isn't in line");
    slow.send("de").await;
    assert_eq!(slow.response().await.unwrap().text(), "/slow");
    site.reaches(0, 0).await;
}

#[tokio::test]
async fn who_sends_a_short_body_little_by_little_for_too_long_stands_in_line_without_it() {
    let change = |settings: &mut proxy::http::Settings| settings.body_timeout = Duration::from_secs(1);
    let site = gate(one_at_a_time(), &[large_or_small().await], change).await;
    let mut slow = ask(&site, "POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 10000\r\n\r\n").await;
    let mut sent = 0;
    while site.status.totals().counts.dispatched == 0 {
        assert!(sent < 1_000, "its client could keep a place among those that are waited for for ever");
        slow.send("x").await;
        sent += 1;
        sleep(Duration::from_millis(5)).await;
    }
    assert!(sent > 1);
    slow.send(&"x".repeat(10_000 - sent)).await;
    assert_eq!(slow.response().await.unwrap().text(), "/slow");
    site.reaches(0, 0).await;
}

#[tokio::test]
async fn a_deadline_counts_from_the_head_however_slowly_the_body_comes() {
    let site = gate(one_at_a_time(), &[large_or_small().await], |_| {}).await;
    let head = "POST /slow HTTP/1.1\r\nHost: a\r\nX-Request-Timeout: 20ms\r\nContent-Length: 5\r\n\r\nabc";
    let mut slow = ask(&site, &format!("GET /first HTTP/1.1\r\nHost: a\r\n\r\n{head}")).await;
    assert_eq!(slow.response().await.unwrap().text(), "/first");
    sleep(Duration::from_millis(40)).await;
    slow.send("de").await;
    let told = slow.response().await.unwrap();
    assert_eq!((told.status, told.field("x-gatekeeper")), (504, Some("deadline")));
    assert_eq!(site.status.totals().counts.dispatched, 1);
}

#[tokio::test]
async fn a_short_body_that_never_comes_is_not_waited_for_forever() {
    let change = |settings: &mut proxy::http::Settings| settings.body_timeout = Duration::from_millis(50);
    let site = gate(one_at_a_time(), &[large_or_small().await], change).await;
    let mut never = ask(&site, "POST /never HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nabc").await;
    let told = never.response().await.unwrap();
    assert_eq!((told.status, told.field("x-gatekeeper")), (408, Some("body_timeout")));
    assert_eq!(site.status.totals().counts.dispatched, 0);
}

#[tokio::test]
async fn the_time_for_which_a_service_waits_for_a_body_is_not_its_cost() {
    let read = async |request: Request<Incoming>| {
        let body = request.into_body().collect().await.unwrap().to_bytes();
        Response::new(full(body.len().to_string()))
    };
    let site = gate(one_at_a_time(), &[service(read).await], |_| {}).await;
    let pause = Duration::from_secs(2);
    let began = Instant::now();
    let mut slow = ask(&site, "POST /up HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n").await;
    slow.send(&"x".repeat(50_000)).await;
    site.reaches(0, 1).await;
    sleep(pause).await;
    slow.send(&"x".repeat(50_000)).await;
    assert_eq!(slow.response().await.unwrap().text(), "100000");
    let lasted = began.elapsed();
    site.reaches(0, 0).await;
    let types = site.status.types();
    let learned = types.iter().find(|row| row.label.contains("POST")).expect("its type").work;
    let learned = Duration::from_nanos(learned.as_nanos());
    assert!(learned < lasted - pause / 2, "{learned:?} of {lasted:?}");
}

/// Sends a body that never ends until nobody takes any more of it, and says how much that was. It takes two
/// looks in a row that see no progress: within one, all of a loaded machine may have stood still.
async fn until_stuck(client: &mut Client) -> usize {
    let (piece, mut sent, mut stuck) = (vec![b'x'; 65_536], 0, 0);
    while sent < ENDLESS && stuck < 2 {
        match timeout(Duration::from_millis(500), client.socket.write(&piece)).await {
            Ok(count) => (sent, stuck) = (sent + count.unwrap(), 0),
            Err(_) => stuck += 1,
        }
    }
    sent
}

/// More than the kernel's buffers of two connections hold.
const ENDLESS: usize = 64_000_000;

#[tokio::test]
async fn of_a_body_little_is_read_before_its_turn_and_nothing_is_sent() {
    let (address, go) = held().await;
    let site = gate(one_at_a_time(), &[address], |_| {}).await;
    let mut first = ask(&site, "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n").await;
    site.reaches(0, 1).await;
    let head = format!("POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: {ENDLESS}\r\n\r\n");
    let mut uploading = ask(&site, &head).await;
    let sent = until_stuck(&mut uploading).await;
    assert!(sent < ENDLESS / 2, "{sent} bytes were taken");
    site.reaches(1, 1).await;
    go.add_permits(1);
    assert_eq!(first.response().await.unwrap().text(), "/1");
    // Its turn has come, and it goes on.
    site.reaches(0, 1).await;
}

#[tokio::test]
async fn a_client_sends_no_faster_than_the_service_takes() {
    // It answers once it may, and reads nothing before.
    let (address, _go) = held().await;
    let site = gate(one_at_a_time(), &[address], |_| {}).await;
    let head = format!("POST /2 HTTP/1.1\r\nHost: a\r\nContent-Length: {ENDLESS}\r\n\r\n");
    let mut uploading = ask(&site, &head).await;
    let sent = until_stuck(&mut uploading).await;
    assert!((16_384..ENDLESS / 2).contains(&sent), "{sent} bytes were taken");
    site.reaches(0, 1).await;
}

#[tokio::test]
async fn a_stream_of_events_is_admitted_once_and_holds_no_place() {
    let answer = async |request: Request<Incoming>| {
        if request.uri().path() != "/events" {
            return Response::new(full("a page"));
        }
        let first = stream::iter([Ok(Frame::data(bytes::Bytes::from("data: 1\n\n")))]);
        // None follows for as long as somebody listens.
        let events = StreamBody::new(first.chain(stream::pending()));
        Response::builder().header("content-type", "text/event-stream").body(BodyExt::boxed(events)).unwrap()
    };
    let site = gate(one_at_a_time(), &[service(answer).await], |_| {}).await;
    let mut listening = ask(&site, "GET /events HTTP/1.1\r\nHost: a\r\n\r\n").await;
    assert_eq!(listening.head().await.unwrap().status, 200);
    assert_eq!(listening.exactly(14).await, b"9\r\ndata: 1\n\n\r\n");
    site.reaches(0, 0).await;
    let mut other = Client::connect(&site).await;
    assert_eq!(other.get("/page").await.text(), "a page");
    assert_eq!(site.status.totals().counts.succeeded, 2);
    drop(listening);
    assert_eq!(other.get("/page").await.text(), "a page");
}

#[tokio::test]
async fn who_is_refused_is_not_told_to_come_back_when_all_others_are() {
    let (address, _go) = held().await;
    let policy = Policy { queue_max: 0, ..one_at_a_time() };
    let site = gate(policy, &[address], |_| {}).await;
    let _first = ask(&site, "GET /1 HTTP/1.1\r\nHost: a\r\n\r\n").await;
    site.reaches(0, 1).await;
    let mut refused = Client::connect(&site).await;
    let mut told = Vec::new();
    for _ in 0..20 {
        refused.send("GET /2 HTTP/1.1\r\nHost: a\r\nContent-Type: application/grpc\r\n\r\n").await;
        let after = refused.response().await.unwrap();
        told.push(after.field("grpc-retry-pushback-ms").unwrap().parse::<u64>().unwrap());
    }
    told.sort_unstable();
    let (least, most) = (told[0], told[19]);
    told.dedup();
    assert!(told.len() > 5 && most <= least * 3 / 2 + 1, "{told:?}");
}

#[tokio::test]
async fn what_the_service_refuses_itself_is_told_apart() {
    let answer = async |request: Request<Incoming>| {
        let status = request.uri().path()[1..].parse::<u16>().unwrap();
        Response::builder().status(status).header("retry-after", "7").body(full("mine")).unwrap()
    };
    let site = gate(one_at_a_time(), &[service(answer).await], |_| {}).await;
    let mut client = Client::connect(&site).await;
    for status in [429, 500, 502, 503, 504] {
        let told = client.get(&format!("/{status}")).await;
        assert_eq!((told.status, told.text(), told.field("retry-after")), (status, "mine", Some("7")));
        assert_eq!(told.field("x-gatekeeper"), None);
    }
}
