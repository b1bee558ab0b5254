//! A site for tests of the gate for HTTP: answers that a test holds back and lets go, and a client that
//! sends given header fields.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Collected, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Anything that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a page below `/slow` takes.
const SLOW: Duration = Duration::from_millis(25);

/// A site. What is asked for below `/held` is answered once it is let go, what is below `/slow` after
/// [`SLOW`], and so is what says in its query or body that it is `costly`; everything else at once.
/// `/called/NAME` sets the field `x-gatekeeper-type: NAME`.
#[derive(Clone)]
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    let_go: Arc<Semaphore>,
    asked: Arc<AtomicUsize>,
    is_ill: Arc<AtomicBool>,
}

impl Origin {
    /// Serves HTTP/1.1; each answer is this name and the path that was asked for.
    pub(crate) async fn start(name: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let origin = Self {
            address,
            let_go: Arc::new(Semaphore::new(0)),
            asked: Arc::default(),
            is_ill: Arc::default(),
        };
        let serving = origin.clone();
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.expect("a client");
                let origin = serving.clone();
                let service = service_fn(move |request| {
                    let origin = origin.clone();
                    async move { Ok::<_, Infallible>(origin.answer(name, request).await) }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), service));
            }
        });
        origin
    }

    async fn answer(&self, name: &str, request: Request<Incoming>) -> Response<Full<Bytes>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        let (head, body) = request.into_parts();
        let path = head.uri.path().to_owned();
        if path.starts_with("/held") {
            self.let_go.acquire().await.expect("nobody closes it").forget();
        }
        let body = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
        let is_costly = |text: &[u8]| text.windows(6).any(|word| word == b"costly");
        let query = head.uri.query().unwrap_or_default();
        if path.starts_with("/slow") || is_costly(query.as_bytes()) || is_costly(&body) {
            tokio::time::sleep(SLOW).await;
        }
        let length = body.len();
        let mut response = Response::new(Full::from(format!("{name} {path} {length}")));
        // What the site was told, for the client to see.
        for field in ["traceparent", "tracestate", "x-forwarded-for", "x-forwarded-proto"] {
            if let Some(value) = head.headers.get(field) {
                response.headers_mut().insert(field, value.clone());
            }
        }
        if let Some(kind) = head.headers.get("x-gatekeeper-type") {
            response.headers_mut().insert("x-told-type", kind.clone());
        }
        if self.is_ill.load(Ordering::Relaxed) {
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        }
        if let Some(kind) = path.strip_prefix("/called/") {
            let kind = kind.parse().expect("a value for a field");
            response.headers_mut().insert("x-gatekeeper-type", kind);
        }
        response
    }

    /// Answers every request with 500 from now on, or normally again.
    pub(crate) fn set_ill(&self, is_ill: bool) {
        self.is_ill.store(is_ill, Ordering::Relaxed);
    }

    /// How many requests have come.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    /// Lets so many answers go.
    pub(crate) fn let_go(&self, count: usize) {
        self.let_go.add_permits(count);
    }
}

/// A response as it came.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Told {
    fn read(stream: &mut impl Read) -> Option<Self> {
        let mut bytes = Vec::new();
        // A reset behind the response takes nothing away from it.
        let _ = stream.read_to_end(&mut bytes);
        let text = String::from_utf8(bytes).expect("text");
        let (head, body) = text.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some(Self { status, head: head.to_ascii_lowercase(), body: body.to_owned() })
    }

    /// A field of its head, by its name in lower case.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| *known == name).map(|(_, value)| value)
    }
}

/// Asks for a path over a connection of its own, with these lines in the head. `None`: there was no response.
pub(crate) fn ask(port: u16, path: &str, fields: &[&str]) -> Option<Told> {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).ok()?;
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    say(&mut socket, path, fields)
}

/// Asks for a path over a byte stream, with these lines in the head. `None`: there was no response.
pub(crate) fn say(stream: &mut (impl Read + Write), path: &str, fields: &[&str]) -> Option<Told> {
    let fields: String = fields.iter().map(|line| format!("{line}\r\n")).collect();
    let request = format!("GET {path} HTTP/1.1\r\nHost: site\r\nConnection: close\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    Told::read(stream)
}

/// Sends what isn't GET, or has a body.
pub(crate) fn send(port: u16, text: &str) -> Option<Told> {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).ok()?;
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket.write_all(text.as_bytes()).ok()?;
    Told::read(&mut socket)
}
