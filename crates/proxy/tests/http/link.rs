//! The uplink over a real link between two network namespaces. `bench run srpt` has the figures.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use admission::{EgressOrder, Policy};
use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use proxy::Address;
use proxy::admin::GateView;
use proxy::http::{Status, UplinkRate, UplinkSettings};
use testbed::link::{Link, Namespace, Properties, SERVER};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::site::{PATIENCE, full, gate, service};

/// The rate of the link, in bits per second.
const BITS: u64 = 10_000_000;
const LARGE: usize = 1_000_000;
const SMALL: usize = 5_000;

/// A link of this rate; `None`: only root can have one.
fn link(bits: u64) -> Option<Link> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can make network namespaces");
        return None;
    }
    Some(Link::new(Properties { bits, queue: 100, segment: 1_460, wan: None }).unwrap())
}

/// Runs this in a thread of its own within a namespace.
fn within<F: Future<Output = T>, T: Send + 'static>(
    namespace: &Namespace,
    work: impl FnOnce() -> F + Send + 'static,
) -> thread::JoinHandle<T> {
    let namespace = namespace.clone();
    thread::spawn(move || {
        namespace.enter().unwrap();
        Builder::new_current_thread().enable_all().build().unwrap().block_on(work())
    })
}

/// A gate on the sending side, until it is dropped.
struct Sending {
    address: SocketAddr,
    status: Status,
    end: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Sending {
    fn start(link: &Link, rate: Option<UplinkRate>) -> Self {
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = oneshot::channel();
        let thread = within(link.server(), move || async move {
            let origin = service(async |request: Request<Incoming>| {
                let bytes = request.uri().path()[1..].parse().unwrap();
                Response::new(full(Bytes::from(vec![7; bytes])))
            })
            .await;
            let site = gate(Policy::default(), &[origin], |settings| {
                settings.listen = Address::inet(SERVER.to_string(), 0);
                let order = EgressOrder::ShortestRemaining;
                settings.uplink = rate.map(|rate| UplinkSettings::new(rate, order));
            })
            .await;
            tell.send((site.address, site.status.clone())).unwrap();
            let _ = ended.await;
        });
        let (address, status) = told.recv().unwrap();
        Self { address, status, end: Some(end), thread: Some(thread) }
    }

    fn megabits(&self) -> Option<f64> {
        self.status.uplink()?.bits_per_second.map(|bits| bits as f64 / 1e6)
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.end.take();
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

/// What was downloaded.
#[derive(Default)]
struct Load {
    ended: AtomicBool,
    large: AtomicUsize,
}

/// Sends a request over a connection of its own, and counts the bytes of the body.
async fn fetch(address: SocketAddr, bytes: usize) -> usize {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let head = format!("GET /{bytes} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    socket.write_all(head.as_bytes()).await.unwrap();
    let (mut all, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        match timeout(PATIENCE, socket.read(&mut buffer)).await.expect("it goes on").unwrap() {
            0 => break,
            read => all.extend_from_slice(&buffer[..read]),
        }
    }
    let head = all.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    assert!(all[head..].iter().all(|&byte| byte == 7));
    all.len() - head
}

impl Load {
    /// Three downloads at any time, and a small response every 20 ms, until it is told to end.
    fn start(link: &Link, address: SocketAddr) -> (Arc<Self>, thread::JoinHandle<()>) {
        let load = Arc::new(Self::default());
        let of_thread = Arc::clone(&load);
        let thread = within(link.clients(), move || async move {
            let load = of_thread;
            let mut tasks = JoinSet::new();
            for _ in 0..3 {
                let load = Arc::clone(&load);
                tasks.spawn(async move {
                    while !load.ended.load(Ordering::SeqCst) {
                        assert_eq!(fetch(address, LARGE).await, LARGE);
                        load.large.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            while !load.ended.load(Ordering::SeqCst) {
                tasks.spawn(async move {
                    assert_eq!(fetch(address, SMALL).await, SMALL);
                });
                sleep(Duration::from_millis(20)).await;
            }
            tasks.join_all().await;
        });
        (load, thread)
    }
}

/// Waits until the rate that was found is within these megabits.
fn awaits(sending: &Sending, range: std::ops::Range<f64>) {
    let began = Instant::now();
    loop {
        let found = sending.megabits();
        if found.is_some_and(|found| range.contains(&found)) {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{found:?} isn't within {range:?}");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn the_rate_of_a_link_is_found_and_followed_when_it_is_halved() {
    let Some(link) = link(BITS) else { return };
    // A rate that is set too high is found, too.
    for rate in [UplinkRate::Found, UplinkRate::Set(3 * BITS)] {
        link.set_rate(BITS).unwrap();
        let sending = Sending::start(&link, Some(rate));
        let (load, thread) = Load::start(&link, sending.address);
        awaits(&sending, 7.5..11.0);
        link.set_rate(BITS / 2).unwrap();
        awaits(&sending, 3.5..5.7);
        load.ended.store(true, Ordering::SeqCst);
        thread.join().unwrap();
    }
}

#[test]
fn a_link_that_is_no_bottleneck_is_not_paced() {
    let Some(link) = link(1_000 * BITS) else { return };
    let sending = Sending::start(&link, Some(UplinkRate::Found));
    let (load, thread) = Load::start(&link, sending.address);
    let (began, mut looks) = (Instant::now(), [0, 0]);
    while load.large.load(Ordering::SeqCst) < 200 {
        assert!(began.elapsed() < PATIENCE);
        looks[usize::from(sending.megabits().is_some())] += 1;
        thread::sleep(Duration::from_millis(2));
    }
    let [free, paced] = looks;
    assert!(paced * 10 <= free, "paced in {paced} looks, not in {free}");
    load.ended.store(true, Ordering::SeqCst);
    thread.join().unwrap();
}
