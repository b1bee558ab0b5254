//! A service, a gate in front of it, and a client that says exactly what it is told to.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use admission::{Order, Policy};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use proxy::Address;
use proxy::admin::GateView;
use proxy::gate::Driver;
use proxy::http::{Bound, Settings, Status};
use proxy::shutdown::{Trigger, shutdown};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// Anything that takes longer has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) type Body = BoxBody<Bytes, Infallible>;
type Answer = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

/// A body of this text.
pub(crate) fn full(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).boxed()
}

/// Serves HTTP/1.1 on a port of its own.
pub(crate) async fn service<F>(answer: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static) -> SocketAddr
where
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answer: Arc<dyn Fn(Request<Incoming>) -> Answer + Send + Sync> =
        Arc::new(move |request| Box::pin(answer(request)));
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let answer = Arc::clone(&answer);
            let service = service_fn(move |request| {
                let answer = answer(request);
                async move { Ok::<_, Infallible>(answer.await) }
            });
            let connection = http1::Builder::new().serve_connection(TokioIo::new(socket), service);
            tokio::spawn(connection.with_upgrades());
        }
    });
    address
}

/// A way to an address that counts the connections that go there.
pub(crate) async fn counted(to: SocketAddr) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&accepted);
    tokio::spawn(async move {
        while let Ok((mut from, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                let mut to = TcpStream::connect(to).await?;
                tokio::io::copy_bidirectional(&mut from, &mut to).await
            });
        }
    });
    (address, accepted)
}

/// A gate, and what ends it.
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    pub(crate) status: Status,
    pub(crate) trigger: Trigger,
    pub(crate) driver: Arc<Driver>,
    task: JoinHandle<()>,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One request at a time, first come, first served.
pub(crate) fn one_at_a_time() -> Policy {
    Policy { connections: 1, order: Order::Fifo, queue_max: 10, ..Policy::default() }
}

/// A gate in front of these addresses.
pub(crate) async fn gate(
    policy: Policy,
    upstream: &[SocketAddr],
    change: impl FnOnce(&mut Settings),
) -> Site {
    let upstream = upstream.iter().map(|address| Address::inet(address.ip().to_string(), address.port()));
    let listen = Address::inet("127.0.0.1", 0);
    // These services count their connections.
    let mut settings = Settings { listen, look_every: None, ..Settings::new(upstream.collect()) };
    change(&mut settings);
    let driver = Driver::new("site", policy, 1);
    let (trigger, phase) = shutdown();
    let bound = Bound::new(settings, Arc::clone(&driver), phase).await.unwrap();
    let address = bound.address().to_string().parse().unwrap();
    let status = bound.status();
    let task = tokio::spawn(bound.run());
    Site { address, status, trigger, driver, task }
}

impl Site {
    /// Waits until so many requests wait and are in flight.
    pub(crate) async fn reaches(&self, queued: usize, in_flight: usize) {
        let reached = async {
            loop {
                let snapshot = self.status.snapshot();
                if (snapshot.queued, snapshot.in_flight) == (queued, in_flight) {
                    return;
                }
                sleep(Duration::from_millis(1)).await;
            }
        };
        if timeout(PATIENCE, reached).await.is_err() {
            let snapshot = self.status.snapshot();
            panic!(
                "{} wait and {} are in flight, not {queued} and {in_flight}",
                snapshot.queued, snapshot.in_flight
            );
        }
    }
}

/// A client's connection.
pub(crate) struct Client {
    pub(crate) socket: TcpStream,
    buffer: Vec<u8>,
}

/// A response as it came: status, fields (names in lower case), body.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Told {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

impl Client {
    pub(crate) async fn connect(site: &Site) -> Self {
        Self { socket: TcpStream::connect(site.address).await.unwrap(), buffer: Vec::new() }
    }

    /// Over a connection that is there already.
    pub(crate) fn of(socket: std::net::TcpStream) -> Self {
        socket.set_nonblocking(true).unwrap();
        Self { socket: TcpStream::from_std(socket).unwrap(), buffer: Vec::new() }
    }

    pub(crate) async fn send(&mut self, text: &str) {
        self.socket.write_all(text.as_bytes()).await.unwrap();
    }

    async fn more(&mut self) -> bool {
        let mut chunk = [0; 65_536];
        let read = timeout(PATIENCE, self.socket.read(&mut chunk)).await.expect("something comes");
        let count = read.inspect_err(|error| eprintln!("the connection broke: {error}")).unwrap_or(0);
        self.buffer.extend_from_slice(&chunk[..count]);
        count > 0
    }

    /// Whether the other side has ended the connection, and said nothing more.
    pub(crate) async fn is_over(&mut self) -> bool {
        self.buffer.is_empty() && !self.more().await
    }

    /// Reads until the other side ends the connection.
    pub(crate) async fn ends(&mut self) {
        while self.more().await {}
    }

    /// How much has come that nobody has taken.
    pub(crate) fn held(&self) -> usize {
        self.buffer.len()
    }

    async fn up_to(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.buffer.windows(end.len()).position(|window| window == end) {
                return Some(self.buffer.drain(..at + end.len()).collect());
            }
            if !self.more().await {
                return None;
            }
        }
    }

    pub(crate) async fn exactly(&mut self, count: usize) -> Vec<u8> {
        while self.buffer.len() < count {
            assert!(self.more().await, "the connection ended after {} of {count} bytes", self.buffer.len());
        }
        self.buffer.drain(..count).collect()
    }

    /// The next response, its body read by its length or chunks (`None`: the connection ended without one).
    pub(crate) async fn response(&mut self) -> Option<Told> {
        let mut told = self.head().await?;
        let length = told.field("content-length").map(|length| length.parse::<usize>().unwrap());
        let is_chunked = told.field("transfer-encoding") == Some("chunked");
        told.body = match (length, is_chunked, told.status) {
            (_, _, 100..200 | 204 | 304) => Vec::new(),
            (Some(length), ..) => self.exactly(length).await,
            (None, true, _) => self.chunks().await,
            (None, false, _) => {
                while self.more().await {}
                std::mem::take(&mut self.buffer)
            }
        };
        Some(told)
    }

    /// The head alone.
    pub(crate) async fn head(&mut self) -> Option<Told> {
        let head = String::from_utf8(self.up_to(b"\r\n\r\n").await?).unwrap();
        let mut lines = head.trim_end().split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let field = |line: &str| {
            let (name, value) = line.split_once(':').unwrap();
            (name.to_ascii_lowercase(), value.trim().to_owned())
        };
        Some(Told { status, fields: lines.map(field).collect(), body: Vec::new() })
    }

    async fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let line = String::from_utf8(self.up_to(b"\r\n").await.expect("a chunk")).unwrap();
            let size = usize::from_str_radix(line.trim(), 16).unwrap();
            if size == 0 {
                // Trailers, up to a blank line.
                while self.up_to(b"\r\n").await.expect("the end of the trailers") != b"\r\n" {}
                return body;
            }
            body.extend(self.exactly(size).await);
            self.exactly(2).await;
        }
    }

    /// Asks for a path, and waits for the response.
    pub(crate) async fn get(&mut self, path: &str) -> Told {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: site\r\n\r\n")).await;
        self.response().await.expect("a response")
    }
}
