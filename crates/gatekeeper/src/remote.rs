//! The admin listener of a running gatekeeper, asked from another process: over TCP or a Unix socket.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, HOST};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use proxy::admin::{GateStatus, Status};
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use crate::Failure;

/// How long the other process may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest answer that is read, in bytes: ten thousand types with long labels.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 << 20;
/// The longest token file that is read, in bytes.
const TOKEN_BYTES_MAX: u64 = 2_048;

/// A running gatekeeper.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    place: Place,
    token: Option<String>,
}

#[derive(Clone, Debug)]
enum Place {
    Tcp(String),
    Unix(PathBuf),
}

/// An answer: its status, and the text.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: String,
}

impl Remote {
    /// The one whose admin listener is at `host:port` or `unix:/path`.
    pub(crate) fn at(admin: &str) -> Self {
        let path = admin.strip_prefix("unix:").or_else(|| admin.starts_with('/').then_some(admin));
        let place =
            path.map_or_else(|| Place::Tcp(admin.to_owned()), |path| Place::Unix(PathBuf::from(path)));
        Self { place, token: None }
    }

    /// Sends the token of this file with what it asks.
    ///
    /// # Errors
    /// A file that can't be read.
    pub(crate) fn with_token(self, file: &Path) -> Result<Self, Failure> {
        use io::Read as _;
        let mut token = String::new();
        let read =
            std::fs::File::open(file).and_then(|file| file.take(TOKEN_BYTES_MAX).read_to_string(&mut token));
        read.map_err(|error| Failure::Usage(format!("{}: cannot be read: {error}", file.display())))?;
        let token = token.trim();
        if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            let why =
                "holds no token, which has neither spaces nor control characters nor letters beyond ASCII";
            return Err(Failure::Usage(format!("{}: {why}", file.display())));
        }
        Ok(Self { token: Some(token.to_owned()), ..self })
    }

    /// Whether it is asked over the network, where changes take a token.
    pub(crate) fn is_network(&self) -> bool {
        matches!(self.place, Place::Tcp(_))
    }

    /// What it answers at a path.
    pub(crate) async fn get(&self, path: &str) -> Result<Answer, Failure> {
        self.ask(Method::GET, path, String::new()).await
    }

    /// Gets the answer at a path as JSON of this form; any status but success is a failure.
    pub(crate) async fn read<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.parsed(self.get(path).await?)
    }

    /// An answer as JSON of this form; any status but success is a failure, with what the answer says.
    pub(crate) fn parsed<T: DeserializeOwned>(&self, answer: Answer) -> Result<T, Failure> {
        if !answer.status.is_success() {
            return Err(Failure::Runtime(format!(
                "{} answers {}: {}",
                self.place,
                answer.status,
                answer.body.trim_end()
            )));
        }
        serde_json::from_str(&answer.body).map_err(|error| {
            Failure::Runtime(format!("{} doesn't answer like a gatekeeper: {error}", self.place))
        })
    }

    /// Asks the gatekeeper to change something.
    pub(crate) async fn patch(&self, path: &str, body: String) -> Result<Answer, Failure> {
        self.ask(Method::PATCH, path, body).await
    }

    /// Asks the gatekeeper to do something.
    pub(crate) async fn post(&self, path: &str, body: String) -> Result<Answer, Failure> {
        self.ask(Method::POST, path, body).await
    }

    /// Asks the gatekeeper to do something that takes as long as the longest transaction.
    pub(crate) async fn post_for_as_long_as_it_takes(
        &self,
        path: &str,
        body: String,
    ) -> Result<Answer, Failure> {
        let asked = async { whole(self.sent(Method::POST, path, body).await?).await };
        asked.await.map_err(|error| self.lost(&error))
    }

    /// The gate of this name, or the only one.
    pub(crate) async fn gate(&self, asked: Option<&str>) -> Result<GateStatus, Failure> {
        let status: Status = self.read("/status").await?;
        let names = || status.gates.iter().map(|gate| gate.name.as_str()).collect::<Vec<_>>().join(", ");
        let found = match asked {
            Some(name) => status.gates.iter().find(|gate| gate.name == name && is_name(name)),
            None if status.gates.len() == 1 => status.gates.first(),
            None => return Err(Failure::Usage(format!("which gate? --gate takes one of: {}", names()))),
        };
        found.cloned().ok_or_else(|| {
            Failure::Usage(format!(
                "there is no gate {:?}; there are: {}",
                asked.unwrap_or_default(),
                names()
            ))
        })
    }

    /// The body at a path, unread. Any status but success is an answer.
    pub(crate) async fn open(&self, path: &str) -> Result<Result<Incoming, Answer>, Failure> {
        let opened = async {
            let response = self.sent(Method::GET, path, String::new()).await?;
            if response.status().is_success() {
                return Ok(Ok(response.into_body()));
            }
            whole(response).await.map(Err)
        };
        self.in_time(opened).await
    }

    /// The bytes at a path; any status but success is an answer.
    pub(crate) async fn bytes(&self, path: &str) -> Result<Result<Vec<u8>, Answer>, Failure> {
        let body = match self.open(path).await? {
            Ok(body) => body,
            Err(answer) => return Ok(Err(answer)),
        };
        let whole = async {
            let whole = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(io::Error::other)?;
            Ok(whole.to_bytes().to_vec())
        };
        self.in_time(whole).await.map(Ok)
    }

    async fn ask(&self, method: Method, path: &str, body: String) -> Result<Answer, Failure> {
        self.in_time(async { whole(self.sent(method, path, body).await?).await }).await
    }

    async fn in_time<T>(&self, asked: impl Future<Output = io::Result<T>>) -> Result<T, Failure> {
        let answer = tokio::time::timeout(ANSWER_TIMEOUT, asked).await;
        let answer = answer.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut)));
        answer.map_err(|error| self.lost(&error))
    }

    fn lost(&self, error: &io::Error) -> Failure {
        Failure::Runtime(format!(
            "no gatekeeper answers at {}: {error}; if its admin listener is elsewhere, name that with --admin ADDR, or \
             its configuration with --config FILE",
            self.place
        ))
    }

    async fn sent(&self, method: Method, path: &str, body: String) -> io::Result<Response<Incoming>> {
        let mut sender = match &self.place {
            Place::Tcp(address) => begun(TcpStream::connect(address).await?).await?,
            Place::Unix(socket) => begun(UnixStream::connect(socket).await?).await?,
        };
        // Every admin listener answers for this name, wherever it is.
        let mut request = Request::builder().method(method).uri(path).header(HOST, "localhost");
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        let request = request.body(body).map_err(io::Error::other)?;
        sender.send_request(request).await.map_err(io::Error::other)
    }
}

/// Begins HTTP on a connection, which a task of its own serves until the answer has come.
async fn begun<S>(stream: S) -> io::Result<http1::SendRequest<String>>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    tokio::spawn(connection);
    Ok(sender)
}

async fn whole(response: Response<Incoming>) -> io::Result<Answer> {
    let status = response.status();
    let bytes = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    let bytes = bytes.map_err(io::Error::other)?.to_bytes();
    Ok(Answer { status, body: String::from_utf8_lossy(&bytes).into_owned() })
}

impl std::fmt::Display for Remote {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.place.fmt(formatter)
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address) => formatter.write_str(address),
            Self::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

/// Runs what asks or waits, on the thread of a command.
pub(crate) fn block_on<T>(asks: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Runtime(format!("cannot start the runtime: {error}")))?;
    runtime.block_on(asks)
}

/// A name as part of a path: names of gates need nothing, and nothing else may be asked by one.
pub(crate) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}
