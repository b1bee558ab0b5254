//! Spans on their way to a collector: OTLP over HTTP, in its JSON form (opentelemetry.io, OTLP
//! specification 1.x).
//!
//! A task that serves a request never waits for the collector: a span without room for it is lost, and
//! counted in the log. What has gathered for `EVERY`, or `BATCH_MAX` spans, goes out as one message over a
//! connection of its own; a message that isn't taken within `SEND_MAX` is lost as a whole. Nothing is sent
//! again: a collector that is down shall not find a backlog.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};

use crate::upstream::address::Address;

/// Spans that may wait to be sent.
const SPANS_MAX: usize = 4_096;
/// The most spans of one message.
const BATCH_MAX: usize = 512;
/// How long a span may wait for others.
const EVERY: Duration = Duration::from_secs(1);
/// How long a message may take.
const SEND_MAX: Duration = Duration::from_secs(5);
/// Where collectors take spans.
const PATH: &str = "/v1/traces";

/// A value that a span tells.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Attribute {
    Text(Arc<str>),
    Word(&'static str),
    Count(u64),
    Number(f64),
}

/// What happened, from when to when, as part of what.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) trace: u128,
    pub(crate) id: u64,
    /// The span that it is part of.
    pub(crate) parent: Option<u64>,
    pub(crate) name: Arc<str>,
    pub(crate) begin: SystemTime,
    pub(crate) end: SystemTime,
    pub(crate) attributes: Vec<(&'static str, Attribute)>,
    /// What happened within it, and when.
    pub(crate) events: Vec<(&'static str, SystemTime)>,
    /// Whether what was asked for failed by the service's or the gate's fault.
    pub(crate) failed: bool,
}

enum Item {
    Span(Box<Span>),
    /// The task that sends this waits until all before it are sent, or lost.
    Flush(oneshot::Sender<()>),
}

/// The way to a collector.
#[derive(Clone, Debug)]
pub struct Exporter {
    items: mpsc::Sender<Item>,
    lost: Arc<AtomicU64>,
}

impl std::fmt::Debug for Item {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Item")
    }
}

impl Exporter {
    /// Sends to a collector, from a task of its own, until the last clone is gone. `gate`: whose spans
    /// these are.
    pub fn start(collector: Address, gate: &str) -> Self {
        let (items, waiting) = mpsc::channel(SPANS_MAX);
        let lost = Arc::new(AtomicU64::new(0));
        let sender = Sender { collector, gate: gate.to_owned(), lost: Arc::clone(&lost), is_failing: false };
        tokio::spawn(sender.run(waiting));
        Self { items, lost }
    }

    /// Sends a span some time soon, if there is room.
    pub(crate) fn send(&self, span: Span) {
        if self.items.try_send(Item::Span(Box::new(span))).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Resolves when all that was to be sent is sent, or lost.
    pub(crate) async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        if self.items.send(Item::Flush(done)).await.is_ok() {
            // Without an answer there is no task that could send any more.
            let _ = flushed.await;
        }
    }
}

/// The task's side.
struct Sender {
    collector: Address,
    gate: String,
    lost: Arc<AtomicU64>,
    is_failing: bool,
}

impl Sender {
    async fn run(mut self, mut items: mpsc::Receiver<Item>) {
        let mut batch: Vec<Span> = Vec::new();
        let mut due: Option<Instant> = None;
        loop {
            let item = match due {
                None => items.recv().await,
                Some(at) => tokio::select! {
                    item = items.recv() => item,
                    () = sleep_until(at) => {
                        self.send(&mut batch).await;
                        due = None;
                        continue;
                    }
                },
            };
            match item {
                Some(Item::Span(span)) => {
                    batch.push(*span);
                    due.get_or_insert_with(|| Instant::now() + EVERY);
                    if batch.len() >= BATCH_MAX {
                        self.send(&mut batch).await;
                        due = None;
                    }
                }
                Some(Item::Flush(done)) => {
                    self.send(&mut batch).await;
                    due = None;
                    // The task that asked may have gone.
                    let _ = done.send(());
                }
                None => return self.send(&mut batch).await,
            }
        }
    }

    /// Sends what there is. Failures are told when they begin and when they end.
    async fn send(&mut self, batch: &mut Vec<Span>) {
        let count = batch.len();
        let message = if count > 0 { message(&self.gate, batch) } else { return };
        batch.clear();
        let sent = timeout(SEND_MAX, post(&self.collector, message)).await;
        let sent = sent.unwrap_or_else(|_| Err(std::io::Error::other("it takes too long")));
        let (gate, collector) = (&self.gate, &self.collector);
        match sent {
            Ok(()) if self.is_failing => {
                self.is_failing = false;
                let lost = self.lost.swap(0, Ordering::Relaxed);
                tracing::info!(gate, %collector, lost, "the collector takes spans again");
            }
            Ok(()) => match self.lost.swap(0, Ordering::Relaxed) {
                0 => {}
                lost => tracing::warn!(gate, %collector, lost, "more spans came than could be sent"),
            },
            Err(error) => {
                self.lost.fetch_add(count as u64, Ordering::Relaxed);
                if !std::mem::replace(&mut self.is_failing, true) {
                    tracing::warn!(gate, %collector, %error, "the collector doesn't take spans; they are lost");
                }
            }
        }
    }
}

async fn post(collector: &Address, message: Bytes) -> std::io::Result<()> {
    let other = std::io::Error::other::<hyper::Error>;
    let addresses = collector.resolve().await?;
    let socket = TcpStream::connect(addresses.as_slice()).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(socket)).await.map_err(other)?;
    let request = Request::post(PATH)
        .header(header::HOST, collector.to_string())
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::CONNECTION, "close")
        .body(Full::new(message))
        .map_err(std::io::Error::other)?;
    let asking = async {
        let status = sender.send_request(request).await.map_err(other)?.status();
        if status == StatusCode::OK {
            Ok(())
        } else {
            Err(std::io::Error::other(format!("it answers {status}")))
        }
    };
    tokio::pin!(asking);
    tokio::select! {
        answer = &mut asking => answer,
        // The connection's end may be seen before the answer that came over it.
        _ = connection => asking.await,
    }
}

/// An `ExportTraceServiceRequest`.
fn message(gate: &str, spans: &[Span]) -> Bytes {
    let spans: Vec<Value> = spans.iter().map(span).collect();
    let resource = [
        attribute("service.name", &Attribute::Word("gatekeeper")),
        attribute("service.instance.id", &Attribute::Text(Arc::from(gate))),
    ];
    let message = json!({"resourceSpans": [{
        "resource": {"attributes": resource},
        "scopeSpans": [{
            "scope": {"name": "gatekeeper", "version": env!("CARGO_PKG_VERSION")},
            "spans": spans,
        }],
    }]});
    Bytes::from(message.to_string())
}

fn span(span: &Span) -> Value {
    let events: Vec<Value> = span
        .events
        .iter()
        .map(|(name, at)| json!({"timeUnixNano": nanoseconds(*at), "name": name}))
        .collect();
    let attributes: Vec<Value> = span.attributes.iter().map(|(key, value)| attribute(key, value)).collect();
    json!({
        "traceId": format!("{:032x}", span.trace),
        "spanId": format!("{:016x}", span.id),
        "parentSpanId": span.parent.map_or_else(String::new, |parent| format!("{parent:016x}")),
        "name": span.name.as_ref(),
        // SERVER: it answers somebody else's request.
        "kind": 2,
        "startTimeUnixNano": nanoseconds(span.begin),
        "endTimeUnixNano": nanoseconds(span.end),
        "attributes": attributes,
        "events": events,
        "status": {"code": if span.failed { 2 } else { 0 }},
    })
}

fn attribute(key: &str, value: &Attribute) -> Value {
    let value = match value {
        Attribute::Text(text) => json!({"stringValue": text.as_ref()}),
        Attribute::Word(word) => json!({"stringValue": word}),
        // The JSON of protocol buffers writes long integers as strings.
        Attribute::Count(count) => json!({"intValue": count.to_string()}),
        Attribute::Number(number) => json!({"doubleValue": number}),
    };
    json!({"key": key, "value": value})
}

fn nanoseconds(at: SystemTime) -> String {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos().to_string()
}
