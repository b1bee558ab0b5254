//! What a service that doesn't look at its connections still does for clients that have left.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use admission::{Learned, LearnedType, LearnedVariation, Policy, Work};
use proxy::admin::GateView;
use proxy::http::request_type;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep, timeout};

use crate::site::{Client, PATIENCE, Site, gate, one_at_a_time};

/// A service that computes until it may answer, whether the client is still there or not.
#[derive(Default)]
struct Deaf {
    computing: AtomicUsize,
    /// The most that it computed at once.
    most: AtomicUsize,
    /// Whose connection was at its end when they were answered.
    told: AtomicUsize,
}

async fn deaf() -> (SocketAddr, Arc<Deaf>, Arc<Semaphore>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (service, go) = (Arc::<Deaf>::default(), Arc::new(Semaphore::new(0)));
    let (shared, may_go) = (Arc::clone(&service), Arc::clone(&go));
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(compute(socket, Arc::clone(&shared), Arc::clone(&may_go)));
        }
    });
    (address, service, go)
}

async fn compute(mut socket: TcpStream, service: Arc<Deaf>, go: Arc<Semaphore>) {
    let mut head = vec![0; 4_096];
    while socket.read(&mut head).await.is_ok_and(|count| count > 0) {
        let now = service.computing.fetch_add(1, Ordering::SeqCst) + 1;
        service.most.fetch_max(now, Ordering::SeqCst);
        go.acquire().await.unwrap().forget();
        service.computing.fetch_sub(1, Ordering::SeqCst);
        let written = socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone").await;
        let mut byte = [0];
        // What is there at once: nothing of a client that waits for its answer.
        if written.is_ok() && matches!(socket.try_read(&mut byte), Ok(0)) {
            service.told.fetch_add(1, Ordering::SeqCst);
        }
    }
}

async fn ask(site: &Site, path: &str) -> Client {
    let mut client = Client::connect(site).await;
    client.send(&format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")).await;
    client
}

/// The gate knows that such requests take for minutes.
fn teach(site: &Site, path: &str) {
    let known = LearnedType {
        request_type: request_type(path),
        mean: Work::from(Duration::from_secs(300)),
        rank: Work::from(Duration::from_secs(300)),
        samples: 50,
        variation: LearnedVariation { samples: 50, mean: 3e11, variance: 0.0 },
    };
    let learned = Learned { types: vec![known], ..Learned::default() };
    site.driver.recall(&learned, &[path.into()]);
}

#[tokio::test]
async fn who_has_left_keeps_its_place_until_the_service_is_done_with_it() {
    let (address, service, go) = deaf().await;
    let change =
        |settings: &mut proxy::http::Settings| settings.upstream_timeout = Duration::from_secs(3_600);
    let policy = Policy { queue_timeout: Duration::from_secs(3_600), ..one_at_a_time() };
    let site = gate(policy, &[address], change).await;
    teach(&site, "GET /*");
    let first = ask(&site, "/1").await;
    site.reaches(0, 1).await;
    let mut second = ask(&site, "/2").await;
    site.reaches(1, 1).await;
    drop(first);
    let left = async {
        while site.status.snapshot().left == 0 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, left).await.expect("it has left in flight");
    site.reaches(1, 1).await;
    go.add_permits(1);
    // The service begins with the second only now.
    let next = async {
        while service.told.load(Ordering::SeqCst) == 0 || service.computing.load(Ordering::SeqCst) == 0 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, next).await.expect("it was told, and the next has its place");
    assert_eq!(site.status.snapshot().left, 0);
    go.add_permits(1);
    assert_eq!(second.response().await.unwrap().text(), "done");
    assert_eq!(service.most.load(Ordering::SeqCst), 1);
    site.reaches(0, 0).await;
    let rows = site.driver.types();
    let counts = rows.iter().find(|row| &*row.label == "GET /*").unwrap().counts;
    assert_eq!((counts.canceled, counts.succeeded), (1, 1));
}

#[tokio::test]
async fn a_service_from_which_nothing_comes_back_does_not_keep_the_place() {
    let (address, _service, _go) = deaf().await;
    let site = gate(one_at_a_time(), &[address], |_| {}).await;
    let client = ask(&site, "/1").await;
    site.reaches(0, 1).await;
    drop(client);
    site.reaches(0, 0).await;
    assert_eq!(site.status.snapshot().left, 0);
}

/// How often requests of the only type were canceled, and the sum of their upstream times.
fn canceled(site: &Site) -> (u64, Duration) {
    let rows = site.driver.types();
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    (row.counts.canceled, row.upstream_time.sum)
}

#[tokio::test]
async fn a_request_whose_client_has_left_counts_for_what_the_service_took() {
    let (address, _service, go) = deaf().await;
    let site = gate(one_at_a_time(), &[address], |_| {}).await;
    teach(&site, "GET /*");
    let client = ask(&site, "/1").await;
    site.reaches(0, 1).await;
    let began = Instant::now();
    drop(client);
    let left = async {
        while site.status.snapshot().left == 0 {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, left).await.expect("it has left in flight");
    let least = began.elapsed();
    go.add_permits(1);
    site.reaches(0, 0).await;
    let (canceled, took) = canceled(&site);
    assert_eq!(canceled, 1);
    assert!(took >= least, "{took:?} of at least {least:?}");
    assert_eq!(site.driver.totals().upstream_time.sum, took);
}

#[tokio::test]
async fn a_response_whose_client_leaves_before_its_end_counts_for_what_came_before() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let wanted = Arc::new(Notify::new());
    let asked = Arc::clone(&wanted);
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let _ = socket.read(&mut [0; 4_096]).await.unwrap();
        socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nhalf").await.unwrap();
        loop {
            asked.notified().await;
            if socket.write_all(b"more").await.is_err() {
                return;
            }
        }
    });
    let site = gate(one_at_a_time(), &[address], |_| {}).await;
    let mut client = ask(&site, "/1").await;
    site.reaches(0, 1).await;
    let began = Instant::now();
    client.head().await.expect("the head of a response");
    assert_eq!(client.exactly(4).await, b"half");
    let least = began.elapsed();
    drop(client);
    // The gate hears that its client is gone when it has something for it.
    let ended = async {
        while site.status.snapshot().in_flight > 0 {
            wanted.notify_one();
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, ended).await.expect("it ends");
    let (canceled, took) = canceled(&site);
    assert_eq!(canceled, 1);
    assert!(took >= least, "{took:?} of at least {least:?}");
}
