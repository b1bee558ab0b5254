//! A shop of a few lines: right pages of all fourteen kinds over connections in memory, with every request
//! written down, and whatever mishap a test wants. In memory, so that time can be virtual.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a helper of tests fails like a test")]

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bookstore::browse::{Connector, Opening, Stream};
use bookstore::interaction::Interaction;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

/// A request that the shop got.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// When.
    pub(crate) at: Instant,
    /// Over which connection, counted from 0.
    pub(crate) connection: usize,
    /// Which page; `None`: an image.
    pub(crate) page: Option<Interaction>,
    /// The path with its query.
    pub(crate) target: String,
    /// The `Cookie` header.
    pub(crate) cookies: String,
    /// The form's fields.
    pub(crate) form: Vec<(String, String)>,
}

/// What the shop does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Answers with the page.
    Serve,
    /// Answers with it after so long.
    Wait(Duration),
    /// Answers, and closes the connection then.
    ServeLast,
    /// Says that it is busy, and for how many seconds.
    Reject(u16, u64),
    /// Never answers.
    Hang,
    /// Answers with another page.
    Mistake,
    /// Answers with an error.
    Fail(u16),
    /// Closes the connection instead of an answer.
    Break,
    /// Sends the page without its last half, and nothing more.
    Stall,
    /// Sends the page without its last half, and closes the connection.
    BreakOff,
}

/// A page, or its first half and what comes then.
struct Content {
    bytes: Option<Bytes>,
    then: Act,
    has_paused: bool,
}

impl Content {
    fn whole(bytes: impl Into<Bytes>) -> Self {
        Self { bytes: Some(bytes.into()), then: Act::Serve, has_paused: false }
    }
}

impl Body for Content {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match (self.bytes.take(), self.then) {
            (Some(bytes), _) => Poll::Ready(Some(Ok(Frame::data(bytes)))),
            (None, Act::Stall) => Poll::Pending,
            (None, Act::BreakOff) if !self.has_paused => {
                // What was written is sent when there is no more to write.
                self.has_paused = true;
                context.waker().wake_by_ref();
                Poll::Pending
            }
            (None, Act::BreakOff) => Poll::Ready(Some(Err(io::Error::other("as the test wants")))),
            (None, _) => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none() && !matches!(self.then, Act::Stall | Act::BreakOff)
    }
}

type Rule = Box<dyn Fn(&Seen) -> Act + Send + Sync>;

/// The shop.
pub(crate) struct Shop {
    rule: Rule,
    seen: Mutex<Vec<Seen>>,
    opened: AtomicUsize,
    /// When each connection was closed.
    closed: Mutex<Vec<(usize, Instant)>>,
    numbers: AtomicUsize,
}

impl std::fmt::Debug for Shop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shop").finish_non_exhaustive()
    }
}

/// Its connector.
#[derive(Clone, Debug)]
pub(crate) struct ShopConnector(pub(crate) Arc<Shop>);

impl Connector for ShopConnector {
    fn open(&self) -> Opening<'_> {
        Box::pin(async {
            let (ours, theirs) = tokio::io::duplex(16 * 1024);
            let (shop, number) = (Arc::clone(&self.0), self.0.opened.fetch_add(1, Ordering::Relaxed));
            tokio::spawn(async move {
                let serve = {
                    let shop = Arc::clone(&shop);
                    service_fn(move |request| {
                        let shop = Arc::clone(&shop);
                        async move { shop.answer(number, request).await }
                    })
                };
                let _ = http1::Builder::new().serve_connection(TokioIo::new(ours), serve).await;
                shop.closed.lock().unwrap().push((number, Instant::now()));
            });
            Ok(Box::new(theirs) as Box<dyn Stream>)
        })
    }

    fn host(&self) -> &str {
        "shop.test"
    }
}

impl Shop {
    /// A shop that does what the rule says.
    pub(crate) fn new(rule: impl Fn(&Seen) -> Act + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            rule: Box::new(rule),
            seen: Mutex::default(),
            opened: AtomicUsize::new(0),
            closed: Mutex::default(),
            numbers: AtomicUsize::new(10_000),
        })
    }

    /// All requests so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Those for pages.
    pub(crate) fn pages(&self) -> Vec<Seen> {
        self.seen().into_iter().filter(|seen| seen.page.is_some()).collect()
    }

    /// When connections were closed.
    pub(crate) fn closed(&self) -> Vec<(usize, Instant)> {
        self.closed.lock().unwrap().clone()
    }

    /// How many connections there were.
    pub(crate) fn opened(&self) -> usize {
        self.opened.load(Ordering::Relaxed)
    }

    async fn answer(&self, connection: usize, request: Request<Incoming>) -> io::Result<Response<Content>> {
        let page = page_of(request.method(), request.uri().path());
        let target = request.uri().to_string();
        let cookies = request.headers().get(header::COOKIE).and_then(|value| value.to_str().ok());
        let cookies = cookies.unwrap_or_default().to_owned();
        assert_eq!(request.headers()[header::HOST], "shop.test");
        let at = Instant::now();
        let body = request.into_body().collect().await.map_err(io::Error::other)?.to_bytes();
        let form = serde_urlencoded::from_bytes(&body).map_err(io::Error::other)?;
        let seen = Seen { at, connection, page, target, cookies, form };
        let act = (self.rule)(&seen);
        self.seen.lock().unwrap().push(seen.clone());
        let status = |status: u16| Response::builder().status(status);
        let empty = Content::whole("");
        let response = match act {
            Act::Serve | Act::ServeLast | Act::Wait(_) => {
                if let Act::Wait(time) = act {
                    tokio::time::sleep(time).await;
                }
                let mut response = self.page(&seen);
                if act == Act::ServeLast {
                    response
                        .headers_mut()
                        .insert(header::CONNECTION, header::HeaderValue::from_static("close"));
                }
                Ok(response)
            }
            Act::Reject(code, seconds) => status(code).header(header::RETRY_AFTER, seconds).body(empty),
            Act::Fail(code) => status(code).body(Content::whole("<body data-error=\"no luck\">")),
            Act::Mistake => Ok(html("<html><body data-interaction=\"NONE\"></body></html>".to_owned())),
            Act::Stall | Act::BreakOff => {
                let (head, mut content) = self.page(&seen).into_parts();
                let half = content.bytes.take().map(|bytes| bytes.slice(..bytes.len() / 2));
                Ok(Response::from_parts(head, Content { bytes: half, then: act, has_paused: false }))
            }
            Act::Hang => std::future::pending().await,
            Act::Break => return Err(io::Error::other("as the test wants")),
        };
        response.map_err(io::Error::other)
    }

    fn page(&self, seen: &Seen) -> Response<Content> {
        let Some(page) = seen.page else {
            let image = Response::builder().header(header::CONTENT_TYPE, "image/jpeg");
            return image.body(Content::whole(vec![7; 1_000])).unwrap();
        };
        let mut text = format!("<!DOCTYPE html><html><body data-interaction=\"{}\">", page.code());
        for book in [11, 12, 13, 14, 15] {
            text += &format!("<a href=\"/books/{book}\"><img src=\"/images/thumbnail/{book}.jpg\"></a>");
        }
        match page {
            Interaction::ShoppingCart => text += "<p data-line=\"11:1\"></p><p data-line=\"12:2\"></p>",
            Interaction::BuyConfirm => text += "<p data-order=\"77\" data-total=\"12.50\"></p>",
            Interaction::AdminRequest => {
                text += "<input name=\"image\" value=\"i.jpg\"><input name=\"thumbnail\" value=\"t.jpg\">";
            }
            _ => {}
        }
        let mut response = html(text + "</body></html>");
        let mut remember = |name: &str, value: String| {
            let cookie = format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax");
            response.headers_mut().append(header::SET_COOKIE, cookie.parse().unwrap());
        };
        if let Some((_, customer)) = seen.target.split_once("/?customer=") {
            remember("customer", customer.to_owned());
        }
        if page == Interaction::ShoppingCart && !seen.cookies.contains("cart=") {
            remember("cart", self.numbers.fetch_add(1, Ordering::Relaxed).to_string());
        }
        if page == Interaction::BuyRequest && seen.form[0].1 == "no" {
            remember("customer", self.numbers.fetch_add(1, Ordering::Relaxed).to_string());
        }
        response
    }
}

fn html(text: String) -> Response<Content> {
    let response = Response::builder().status(StatusCode::OK);
    response.header(header::CONTENT_TYPE, "text/html; charset=utf-8").body(Content::whole(text)).unwrap()
}

/// The page of a method and path as they are agreed on; an image is none. Anything else is a mistake of the
/// browser's.
fn page_of(method: &Method, path: &str) -> Option<Interaction> {
    let posted = [
        Interaction::ShoppingCart,
        Interaction::BuyRequest,
        Interaction::BuyConfirm,
        Interaction::OrderDisplay,
    ];
    let fixed = Interaction::ALL.into_iter().find(|page| page.route() == path);
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let page = match (fixed, &parts[..]) {
        (Some(page), _) => page,
        (None, ["books", _]) => Interaction::ProductDetail,
        (None, ["admin", "books", _]) => Interaction::AdminRequest,
        (None, ["admin", "books", _, "change"]) => Interaction::AdminConfirm,
        (None, ["images", ..]) => return None,
        _ => panic!("{method} {path} is no page"),
    };
    let is_posted = posted.contains(&page) || page == Interaction::AdminConfirm;
    assert_eq!(method == Method::POST, is_posted, "{method} {path}");
    Some(page)
}
