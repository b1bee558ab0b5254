//! The uplink over a real link: two network namespaces, joined by a veth pair whose sending side is a token
//! bucket of 10 Mbit/s. Where this can't be set up, the tests say why and end.

use std::fs::File;
use std::net::SocketAddr;
use std::process::Command;
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
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::site::{PATIENCE, full, gate, service};

/// What joins them, on both sides.
const DEVICE: &str = "gkup";
const SERVER: &str = "10.91.0.1";
const CLIENT: &str = "10.91.0.2";
const LARGE: usize = 1_000_000;
const SMALL: usize = 5_000;

/// Two namespaces and what joins them.
struct Link {
    server: String,
    client: String,
}

fn run(line: &str) -> Result<(), String> {
    let mut words = line.split(' ');
    let told = Command::new(words.next().unwrap())
        .args(words)
        .output()
        .map_err(|error| format!("{line}: {error}"))?;
    if told.status.success() {
        Ok(())
    } else {
        Err(format!("{line}: {}", String::from_utf8_lossy(&told.stderr).trim()))
    }
}

impl Link {
    /// `None`: the system can't have one, and has said why.
    fn new(name: &str) -> Option<Self> {
        let of = |side: &str| format!("gk{}{name}{side}", std::process::id());
        let link = Self { server: of("s"), client: of("c") };
        match link.set_up() {
            Ok(()) => Some(link),
            Err(why) => {
                println!("skipped: {why}");
                None
            }
        }
    }

    fn set_up(&self) -> Result<(), String> {
        let Self { server, client } = self;
        for side in [server, client] {
            run(&format!("ip netns add {side}"))?;
            run(&format!("ip -n {side} link set lo up"))?;
        }
        run(&format!("ip link add {DEVICE} netns {server} type veth peer name {DEVICE} netns {client}"))?;
        for (side, address) in [(server, SERVER), (client, CLIENT)] {
            run(&format!("ip -n {side} address add {address}/24 dev {DEVICE}"))?;
            run(&format!("ip -n {side} link set {DEVICE} up"))?;
        }
        self.rate("add", 10)
    }

    fn rate(&self, verb: &str, megabits: u32) -> Result<(), String> {
        let device = format!("tc -n {} qdisc {verb} dev {DEVICE} root", self.server);
        run(&format!("{device} tbf rate {megabits}mbit burst 5kb limit 150kb"))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for side in [&self.server, &self.client] {
            let _ = run(&format!("ip netns delete {side}"));
        }
    }
}

/// Runs this in a thread of its own within a namespace.
fn within<F: Future<Output = T>, T: Send + 'static>(
    namespace: &str,
    work: impl FnOnce() -> F + Send + 'static,
) -> thread::JoinHandle<T> {
    let file = File::open(format!("/var/run/netns/{namespace}")).unwrap();
    thread::spawn(move || {
        move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), Some(LinkNameSpaceType::Network)).unwrap();
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
        let thread = within(&link.server, move || async move {
            let origin = service(async |request: Request<Incoming>| {
                let bytes = request.uri().path()[1..].parse().unwrap();
                Response::new(full(Bytes::from(vec![7; bytes])))
            })
            .await;
            let site = gate(Policy::default(), &[origin], |settings| {
                settings.listen = Address::inet(SERVER, 0);
                let order = EgressOrder::ShortestRemaining;
                settings.uplink = rate.map(|rate| UplinkSettings { rate, order });
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
    small: parking_lot::Mutex<Vec<(Instant, Duration)>>,
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
        let thread = within(&link.client, move || async move {
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
                let load = Arc::clone(&load);
                tasks.spawn(async move {
                    let began = Instant::now();
                    assert_eq!(fetch(address, SMALL).await, SMALL);
                    load.small.lock().push((began, began.elapsed()));
                });
                sleep(Duration::from_millis(20)).await;
            }
            tasks.join_all().await;
        });
        (load, thread)
    }

    /// The mean time of small responses since then, in milliseconds.
    fn mean(&self, since: Instant) -> f64 {
        let small = self.small.lock();
        let times = small.iter().filter(|(began, _)| *began >= since).map(|(_, time)| time.as_secs_f64());
        let (count, sum) = times.fold((0, 0.0), |(count, sum), time| (count + 1, sum + time));
        sum / f64::from(count.max(1)) * 1e3
    }
}

/// Waits until the rate that was found is within these megabits.
fn awaits(sending: &Sending, range: std::ops::Range<f64>) -> Duration {
    let began = Instant::now();
    loop {
        let found = sending.megabits();
        if found.is_some_and(|found| range.contains(&found)) {
            return began.elapsed();
        }
        assert!(began.elapsed() < PATIENCE, "{found:?} isn't within {range:?}");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn the_rate_of_a_link_is_found_and_followed_when_it_is_halved() {
    let Some(link) = Link::new("a") else { return };
    let sending = Sending::start(&link, Some(UplinkRate::Found));
    let (load, thread) = Load::start(&link, sending.address);
    awaits(&sending, 7.5..11.0);
    link.rate("change", 5).unwrap();
    awaits(&sending, 3.5..5.7);
    load.ended.store(true, Ordering::SeqCst);
    thread.join().unwrap();
}

#[test]
fn a_link_that_is_no_bottleneck_is_not_paced() {
    let Some(link) = Link::new("b") else { return };
    run(&format!("tc -n {} qdisc delete dev {DEVICE} root", link.server)).unwrap();
    let sending = Sending::start(&link, Some(UplinkRate::Found));
    let (load, thread) = Load::start(&link, sending.address);
    let began = Instant::now();
    while load.large.load(Ordering::SeqCst) < 200 {
        assert!(began.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(2));
    }
    load.ended.store(true, Ordering::SeqCst);
    thread.join().unwrap();
}

/// Figures, which depend on the machine: `cargo test -p proxy --test http link -- --ignored --nocapture`.
#[test]
#[ignore = "figures that depend on the machine"]
fn figures_of_the_rate_that_is_found_beside_the_one_that_is_set() {
    let Some(link) = Link::new("f") else { return };
    for (name, rate) in [
        ("no uplink", None),
        ("set", Some(UplinkRate::Set(10_000_000))),
        ("found", Some(UplinkRate::Found)),
        ("set", Some(UplinkRate::Set(10_000_000))),
        ("found", Some(UplinkRate::Found)),
    ] {
        let sending = Sending::start(&link, rate);
        let (load, thread) = Load::start(&link, sending.address);
        thread::sleep(Duration::from_secs(3));
        let (since, before) = (Instant::now(), load.large.load(Ordering::SeqCst));
        thread::sleep(Duration::from_secs(10));
        let (mean, large) = (load.mean(since), load.large.load(Ordering::SeqCst) - before);
        println!("{name}: mean of small {mean:.1} ms, {large} large, rate {:?} Mbit/s", sending.megabits());
        if rate == Some(UplinkRate::Found) {
            link.rate("change", 5).unwrap();
            let time = awaits(&sending, 4.0..5.5);
            println!("  halved: followed within {time:?}");
            thread::sleep(Duration::from_secs(1).saturating_sub(time));
            let since = Instant::now();
            thread::sleep(Duration::from_secs(5));
            println!(
                "  at half the rate: mean of small {:.1} ms, rate {:?}",
                load.mean(since),
                sending.megabits()
            );
            link.rate("change", 10).unwrap();
            println!("  doubled: followed within {:?}", awaits(&sending, 8.5..11.0));
        }
        load.ended.store(true, Ordering::SeqCst);
        thread.join().unwrap();
    }
}
