//! What goes away in front of the gate for HTTP and behind it: servers that are killed, stand still or
//! break off, and clients that leave in every state of a request. Afterwards nothing may be left of them:
//! no load, nobody in the queue or in flight, no connection that nobody uses, and the gate serves. Each
//! with a service that is spoken to in HTTP/1.1, and in HTTP/2.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod support;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use support::certificates::Authority;
use support::server_of_go::Server;
use support::{Gate, until};

/// Anything that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(120);
/// For how many seconds a server stands still, unless `GATEKEEPER_TEST_STALL` says so: long enough for
/// newcomers to go first.
const STALL: u64 = 6;
/// For how long a request may wait at most.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(30);
/// For how long the service may take.
const UPSTREAM_TIMEOUT: Duration = Duration::from_secs(60);
/// What the service is spoken to in.
const VERSIONS: [&str; 2] = ["1.1", "2"];
/// Over which a percentile is taken.
const WINDOW: Duration = Duration::from_secs(1);
/// The pause between two requests of a steady load.
const PAUSE: Duration = Duration::from_millis(15);

/// A server that can be started again, and a gate in front of it.
struct Site {
    server: Option<Server>,
    gate: Gate,
    version: &'static str,
    port: u16,
    certificate: (PathBuf, PathBuf),
    _authority: Authority,
}

impl Site {
    fn start(connections: u32, version: &'static str) -> Self {
        println!("HTTP/{version} to the service");
        let authority = Authority::new("the tests' authority");
        let certificate = authority.files("site", &authority.issue("site", &["localhost"]));
        let server = Server::start(&certificate, None);
        let port = server.plain();
        let lines = [
            "protocol = \"http\"".to_owned(),
            format!("upstream_http = {version:?}"),
            format!("connections = {connections}"),
            "long_limit = 0".to_owned(),
        ];
        let gate = Gate::start(port, &lines);
        Self { server: Some(server), gate, version, port, certificate, _authority: authority }
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs")
    }

    fn kill_server(&mut self) {
        self.server = None;
    }

    fn start_server(&mut self) {
        self.server = Some(Server::start(&self.certificate, Some(self.port)));
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.gate.port())).await.expect("the gate is there")
    }

    /// A connection on which that was said.
    async fn say(&self, text: &[u8]) -> TcpStream {
        let mut socket = self.connect().await;
        socket.write_all(text).await.expect("the gate reads");
        socket
    }

    async fn get(&self, path: &str) -> TcpStream {
        self.say(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).await
    }

    async fn until(&self, queued: u64, in_flight: u64) {
        until(&format!("{queued} wait and {in_flight} are in flight"), async || {
            let status = self.gate.status();
            (status["queued"].as_u64(), status["in_flight"].as_u64()) == (Some(queued), Some(in_flight))
        })
        .await;
    }

    /// Waits until nothing is left, and then asks for something.
    async fn until_nothing_is_left(&self, of: &str) {
        until(&format!("nothing is left of {of}"), async || {
            let status = self.gate.status();
            let keys = ["queued", "in_flight", "suspended", "connections_in_use", "clients_connected"];
            let pool = &status["pools"][0];
            // In HTTP/2 one is kept for all, and never counts as idle.
            let shared = u64::from(self.version == "2");
            let is_unused =
                |connections: u64| pool["idle"].as_u64().is_some_and(|idle| connections <= idle + shared);
            keys.iter().all(|key| status[key].as_u64() == Some(0))
                && status["load_seconds"].as_f64() == Some(0.0)
                && pool["connections"].as_u64().is_some_and(is_unused)
        })
        .await;
        assert_eq!(status_of(self.gate.port(), "/hello").await, Some(200), "after {of}");
    }
}

/// The status of a response that is whole; `None`: there was none, or half of one.
async fn status_of(port: u16, path: &str) -> Option<u16> {
    match answer(port, path).await {
        Some((status, true)) => Some(status),
        Some((_, false)) | None => None,
    }
}

/// The status of a response, and whether it is whole; `None`: there was none.
async fn answer(port: u16, path: &str) -> Option<(u16, bool)> {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.ok()?;
    let mut bytes = Vec::new();
    // Even if it is cut, what came before that counts.
    let _ = timeout(PATIENCE, socket.read_to_end(&mut bytes)).await.ok()?;
    let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
    let (head, body) = text.split_once("\r\n\r\n")?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.len() == length.parse::<usize>().ok()?))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_and_started_again_is_served_from_again() {
    for version in VERSIONS {
        let mut site = Site::start(4, version);
        let port = site.gate.port();
        for round in 0..3 {
            let asking: JoinSet<_> = (0..40).map(|_| answer(port, "/work")).collect();
            let waiting: JoinSet<_> = (0..8).map(|_| answer(port, "/wait")).collect();
            until("requests wait behind those that hang", async || site.gate.status()["queued"] != 0).await;
            site.kill_server();
            for answer in asking.join_all().await.into_iter().chain(waiting.join_all().await) {
                // What the server had begun to say may be cut: nobody can say the rest.
                assert!(
                    matches!(answer, Some((200, _) | (502, true))),
                    "round {round}: {answer:?}\n{}",
                    site.gate.log_tail()
                );
            }
            assert_eq!(status_of(port, "/hello").await, Some(502));
            site.start_server();
            until("it serves again", async || status_of(port, "/hello").await == Some(200)).await;
            site.until_nothing_is_left("the server that was killed").await;
        }
    }
}

/// A request of a steady load: when it came, since the beginning, and how long its response took.
struct Asked {
    at: Duration,
    took: Duration,
    status: Option<u16>,
}

/// Asks at a steady pace, whatever the answers do, until it is told to stop.
async fn load(port: u16, begin: Instant, stop: Arc<AtomicBool>) -> Vec<Asked> {
    let mut asking = JoinSet::new();
    while !stop.load(Ordering::Relaxed) {
        asking.spawn(async move {
            let at = begin.elapsed();
            let status = status_of(port, "/work").await;
            Asked { at, took: begin.elapsed().saturating_sub(at), status }
        });
        sleep(PAUSE).await;
    }
    asking.join_all().await
}

/// The 95th percentile of the responses to what came within the window from there.
fn p95(asked: &[Asked], from: Duration) -> Duration {
    let within = asked.iter().filter(|one| one.at >= from && one.at < from + WINDOW);
    let mut took: Vec<Duration> = within.map(|one| one.took).collect();
    took.sort_unstable();
    took.get(took.len() * 95 / 100).copied().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_server_that_stands_still_clients_wait_and_then_all_are_served() {
    stand_still("1.1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn so_it_is_over_http_2() {
    stand_still("2").await;
}

async fn stand_still(version: &'static str) {
    let site = Site::start(4, version);
    let (begin, stop) = (Instant::now(), Arc::new(AtomicBool::new(false)));
    let loading = tokio::spawn(load(site.gate.port(), begin, Arc::clone(&stop)));
    sleep(WINDOW * 2).await;
    site.server().signal("STOP");
    let stall = std::env::var("GATEKEEPER_TEST_STALL").ok().and_then(|seconds| seconds.parse().ok());
    sleep(Duration::from_secs(stall.unwrap_or(STALL))).await;
    until("clients wait", async || site.gate.status()["queued"].as_u64() > Some(20)).await;
    let waiting = site.gate.status()["queued"].clone();
    let resumed = begin.elapsed();
    site.server().signal("CONT");
    sleep(WINDOW * 5).await;
    stop.store(true, Ordering::Relaxed);
    let asked = loading.await.expect("it runs");
    let is_served = |one: &Asked| match one.status {
        Some(200) => true,
        Some(503) => one.took >= QUEUE_TIMEOUT,
        Some(504) => one.took >= UPSTREAM_TIMEOUT,
        _ => false,
    };
    assert!(asked.iter().all(is_served), "{}", site.gate.log_tail());
    site.until_nothing_is_left("the server that stood still").await;

    // The figure, which no assertion depends on.
    let usual = p95(&asked, WINDOW);
    let steps = (0..50).map(|step| Duration::from_millis(100) * step);
    let back = steps.into_iter().find(|after| p95(&asked, resumed + *after) <= usual * 2);
    println!("{waiting} waited; p95 {usual:?} before; within twice that from {back:?} after it went on");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_that_is_cut_off_ends_its_connection_and_nothing_else() {
    for version in VERSIONS {
        let mut site = Site::start(4, version);
        let port = site.gate.port();
        for _ in 0..5 {
            let asking: JoinSet<Option<u16>> = (0..20).map(|_| status_of(port, "/cut")).collect();
            assert!(asking.join_all().await.iter().all(|status| matches!(status, None | Some(502))));
        }
        site.until_nothing_is_left("responses that were cut off").await;
        // The whole server goes, in the middle of responses that are being read.
        let mut halves = Vec::new();
        for _ in 0..4 {
            let mut socket = site.get("/bytes/50000000").await;
            socket.read_exact(&mut [0; 1_000]).await.expect("the beginning");
            halves.push(socket);
        }
        site.kill_server();
        for mut socket in halves {
            let mut rest = Vec::new();
            let ended = timeout(PATIENCE, socket.read_to_end(&mut rest)).await.expect("it ends");
            assert!(ended.is_err() || rest.len() < 49_000_000, "half a response was made a whole one");
        }
        site.start_server();
        until("it serves again", async || status_of(port, "/hello").await == Some(200)).await;
        site.until_nothing_is_left("the server that was killed").await;
    }
}

/// How a client leaves.
#[derive(Clone, Copy, Debug)]
enum Leaving {
    Closes,
    Resets,
}

fn leave(socket: TcpStream, how: Leaving) {
    if let Leaving::Resets = how {
        socket.set_zero_linger().expect("it can");
    }
    drop(socket);
}

const UPLOAD: &str = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nthe beginning";
const SOCKET: &str = "GET /socket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                      Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

#[tokio::test(flavor = "multi_thread")]
async fn of_a_client_that_leaves_in_any_state_nothing_is_left() {
    for version in VERSIONS {
        let site = Site::start(1, version);
        for how in [Leaving::Closes, Leaving::Resets] {
            println!("{how:?}");
            leave(site.connect().await, how);
            site.until_nothing_is_left("a client that said nothing").await;
            leave(site.say(b"GET /hello HTTP/1.1\r\nHost: ").await, how);
            site.until_nothing_is_left("a client within its head").await;

            let socket = site.say(UPLOAD.as_bytes()).await;
            site.until(0, 1).await;
            leave(socket, how);
            site.until_nothing_is_left("a client within its body").await;

            let socket = site.get("/wait").await;
            site.until(0, 1).await;
            for text in ["GET /wait HTTP/1.1\r\nHost: a\r\n\r\n", UPLOAD] {
                let waiting = site.say(text.as_bytes()).await;
                site.until(1, 1).await;
                leave(waiting, how);
                site.until(0, 1).await;
            }
            leave(socket, how);
            site.until_nothing_is_left("clients in the queue, and in flight").await;

            let mut socket = site.get("/bytes/50000000").await;
            socket.read_exact(&mut [0; 1_000]).await.expect("the beginning");
            leave(socket, how);
            site.until_nothing_is_left("a client within its response").await;

            let mut socket = site.say(SOCKET.as_bytes()).await;
            socket.read_exact(&mut [0; 12]).await.expect("it is switched");
            until("the tunnel is there", async || site.server().count("sockets") == 1).await;
            leave(socket, how);
            until("the tunnel has ended", async || site.server().count("sockets") == 0).await;
            site.until_nothing_is_left("a client with a tunnel").await;
        }
    }
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("it is short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// `GET` of a path on a stream, as headers that need no table: method, scheme, path, authority.
fn headers(stream: u32, path: &str) -> Vec<u8> {
    let length = u8::try_from(path.len()).expect("it is short");
    let block = [&[0x82, 0x86, 0x04, length], path.as_bytes(), &[0x01, 1, b'a']].concat();
    frame(1, 0x5, stream, &block)
}

fn reset(stream: u32) -> Vec<u8> {
    frame(3, 0, stream, &8_u32.to_be_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_stream_that_is_reset_in_any_state_nothing_is_left() {
    for version in VERSIONS {
        let site = Site::start(1, version);
        let preface = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice(), &frame(4, 0, 0, &[])].concat();
        let mut client = site.say(&preface).await;
        let mut say = async |bytes: Vec<u8>| client.write_all(&bytes).await.expect("the gate reads");
        for round in 0..10 {
            let stream = 1 + round * 6;
            say(headers(stream, "/wait")).await;
            site.until(0, 1).await;
            say(headers(stream + 2, "/wait")).await;
            site.until(1, 1).await;
            say(reset(stream + 2)).await;
            site.until(0, 1).await;
            say(reset(stream)).await;
            site.until(0, 0).await;
            // Its window is used up, so that it is within its response for as long as it likes.
            say(headers(stream + 4, "/bytes/50000000")).await;
            until("the response has begun", async || site.server().count("asked") > 0).await;
            say(reset(stream + 4)).await;
            site.until(0, 0).await;
        }
        // The connection is lost with streams in flight and in the queue.
        say([headers(101, "/wait"), headers(103, "/wait")].concat()).await;
        site.until(1, 1).await;
        drop(client);
        site.until_nothing_is_left("a connection with two streams").await;
    }
}
