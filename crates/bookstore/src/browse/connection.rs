//! A browser's connections: opened when needed, kept while the site keeps them, closed when somebody stops
//! waiting.
//!
//! A [`Line`] is one slot for a connection. It is empty, or has an idle connection, or is in an exchange,
//! which owns the connection until the answer's last byte. Code that drops the exchange (a time-out does)
//! drops the connection with it, and that closes it at once.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{self, HeaderMap};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

use super::visitor::Request;

/// A stream of bytes to a site and back.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// An attempt to connect.
pub type Opening<'a> = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send + 'a>>;

/// Where a site is reached.
pub trait Connector: fmt::Debug + Send + Sync {
    /// Connects.
    fn open(&self) -> Opening<'_>;

    /// The name for the `Host` header.
    fn host(&self) -> &str;
}

/// A site at a TCP address.
#[derive(Clone, Debug)]
pub(crate) struct TcpConnector {
    /// The address, resolved once.
    pub(crate) address: SocketAddr,
    /// Its name.
    pub(crate) host: String,
}

impl Connector for TcpConnector {
    fn open(&self) -> Opening<'_> {
        Box::pin(async move {
            let stream = TcpStream::connect(self.address).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    }

    fn host(&self) -> &str {
        &self.host
    }
}

/// The longest `Retry-After` that is believed.
const RETRY_AFTER_BOUND: Duration = Duration::from_secs(600);
/// Room for what comes in: a head has to fit, and bodies come in pieces of this size.
const BUFFER: usize = 64 * 1024;

/// What the head of an answer said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Head {
    /// The status.
    pub(crate) status: u16,
    /// How long to stay away, if it says so.
    pub(crate) retry_after: Option<Duration>,
    /// What kind of content follows.
    pub(crate) content_type: String,
    /// The cookies that it sets.
    pub(crate) cookies: Vec<String>,
}

impl Head {
    fn read(status: u16, headers: &HeaderMap) -> Self {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let wait = text(header::RETRY_AFTER).and_then(|value| retry_after(value, SystemTime::now()));
        let cookies = headers.get_all(header::SET_COOKIE).iter();
        Self {
            status,
            retry_after: wait.map(|wait| wait.min(RETRY_AFTER_BOUND)),
            content_type: text(header::CONTENT_TYPE).unwrap_or_default().to_owned(),
            cookies: cookies.filter_map(|value| value.to_str().ok().map(str::to_owned)).collect(),
        }
    }
}

/// How long from now on, as seconds or as a date (RFC 9110, section 10.2.3). A date in the past is zero.
fn retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

/// One line to the site, with a connection or without.
#[derive(Debug)]
pub(crate) struct Line {
    connector: Arc<dyn Connector>,
    connection: Option<Connection>,
}

impl Line {
    /// A line that connects when it is used.
    pub(crate) fn new(connector: Arc<dyn Connector>) -> Self {
        Self { connector, connection: None }
    }

    /// Sends a request and gives the answer's body to `read` piece by piece.
    ///
    /// If the site has closed an idle connection, the request goes over a new one, as browsers do it. The
    /// exception is a request that was sent and may not be repeated: a POST, or a GET that got some bytes.
    ///
    /// # Errors
    /// If it can't connect, or the connection broke before the answer's last byte.
    pub(crate) async fn exchange(
        &mut self,
        request: &Request,
        cookies: Option<&str>,
        read: &mut (dyn FnMut(&[u8]) + Send),
    ) -> Result<Head, String> {
        let message = self.message(request, cookies)?;
        if let Some(mut connection) = self.connection.take().filter(Connection::is_open) {
            match connection.ask(message.clone(), read).await {
                Ok(head) => {
                    self.connection = Some(connection);
                    return Ok(head);
                }
                Err(Failure { may_repeat, .. }) if may_repeat => {}
                Err(failure) => return Err(failure.reason),
            }
        }
        let mut connection = Connection::open(self.connector.as_ref()).await?;
        let head = connection.ask(message, read).await.map_err(|failure| failure.reason)?;
        self.connection = Some(connection);
        Ok(head)
    }

    fn message(
        &self,
        request: &Request,
        cookies: Option<&str>,
    ) -> Result<http::Request<Full<Bytes>>, String> {
        let mut message = http::Request::builder()
            .uri(&request.path)
            .header(header::HOST, self.connector.host())
            .header(header::USER_AGENT, "bookstore-browse")
            .header(header::ACCEPT, "text/html,image/*;q=0.9,*/*;q=0.8");
        if let Some(cookies) = cookies {
            message = message.header(header::COOKIE, cookies);
        }
        let body = match &request.form {
            Some(form) => {
                message = message
                    .method(http::Method::POST)
                    .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
                Bytes::copy_from_slice(form.as_bytes())
            }
            None => Bytes::new(),
        };
        message.body(Full::new(body)).map_err(|error| format!("a request that can't be sent: {error}"))
    }
}

struct Failure {
    reason: String,
    may_repeat: bool,
}

/// A connection. Dropping it closes it.
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    driver: AbortHandle,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("is_open", &self.is_open()).finish_non_exhaustive()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    async fn open(connector: &dyn Connector) -> Result<Self, String> {
        let stream = connector.open().await.map_err(|error| format!("connecting: {}", error.kind()))?;
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(BUFFER)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| format!("connecting: {error}"))?;
        // The request sees the connection's errors, so the task drops them.
        let driver = tokio::spawn(async move { drop(connection.await) }).abort_handle();
        Ok(Self { sender, driver })
    }

    fn is_open(&self) -> bool {
        !self.sender.is_closed()
    }

    async fn ask(
        &mut self,
        message: http::Request<Full<Bytes>>,
        read: &mut (dyn FnMut(&[u8]) + Send),
    ) -> Result<Head, Failure> {
        let is_get = message.method() == http::Method::GET;
        if self.sender.ready().await.is_err() {
            return Err(Failure { reason: "the connection was closed".to_owned(), may_repeat: true });
        }
        let response = self.sender.try_send_request(message).await.map_err(|mut failure| {
            let may_repeat = is_get || failure.take_message().is_some();
            Failure { reason: failure.into_error().to_string(), may_repeat }
        })?;
        let head = Head::read(response.status().as_u16(), response.headers());
        let mut body = response.into_body();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Failure {
                reason: format!("the body broke off: {error}"),
                may_repeat: false,
            })?;
            if let Some(piece) = frame.data_ref() {
                read(piece);
            }
        }
        Ok(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_asked_to_try_again_in_seconds_or_by_a_date() {
        let now = httpdate::parse_http_date("Mon, 23 Nov 2026 08:00:00 GMT").unwrap();
        let cases = [
            ("120", Some(120)),
            (" 0 ", Some(0)),
            ("Mon, 23 Nov 2026 08:02:00 GMT", Some(120)),
            // The two obsolete forms, which have to be understood as well.
            ("Monday, 23-Nov-26 08:00:30 GMT", Some(30)),
            ("Mon Nov 23 08:00:05 2026", Some(5)),
            ("Sun, 22 Nov 2026 08:00:00 GMT", Some(0)),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
            ("", None),
        ];
        for (value, expected) in cases {
            assert_eq!(retry_after(value, now), expected.map(Duration::from_secs), "{value:?}");
        }
    }

    #[test]
    fn who_names_a_date_in_the_next_century_is_not_believed() {
        let mut headers = HeaderMap::new();
        headers.insert(header::RETRY_AFTER, "Fri, 01 Jan 2100 00:00:00 GMT".parse().unwrap());
        assert_eq!(Head::read(503, &headers).retry_after, Some(RETRY_AFTER_BOUND));
    }
}
