//! A collector of traces for tests, which understands what comes by OpenTelemetry's own types.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::net::TcpListener;

/// What has come so far.
#[derive(Clone, Default)]
pub(crate) struct Collector {
    spans: Arc<Mutex<Vec<Span>>>,
}

impl Collector {
    /// Listens at a port of its own.
    pub(crate) async fn start() -> (Self, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let collector = Self::default();
        let taking = collector.clone();
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.expect("a sender");
                let collector = taking.clone();
                let service = service_fn(move |request| {
                    let collector = collector.clone();
                    async move { Ok::<_, Infallible>(collector.take(request).await) }
                });
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), service));
            }
        });
        (collector, address)
    }

    async fn take(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let is_right =
            request.uri().path() == "/v1/traces" && request.headers()["content-type"] == "application/json";
        let body = request.into_body().collect().await.expect("a body").to_bytes();
        let message: Result<ExportTraceServiceRequest, _> = serde_json::from_slice(&body);
        let mut response = Response::new(Full::default());
        match message {
            Ok(message) if is_right => {
                let scopes = message.resource_spans.into_iter().flat_map(|resource| resource.scope_spans);
                self.spans.lock().expect("a lock").extend(scopes.flat_map(|scope| scope.spans));
            }
            _ => *response.status_mut() = StatusCode::BAD_REQUEST,
        }
        response
    }

    /// What has come so far.
    pub(crate) fn spans(&self) -> Vec<Span> {
        self.spans.lock().expect("a lock").clone()
    }
}

/// An attribute of a span.
pub(crate) fn attribute(span: &Span, key: &str) -> Option<Value> {
    let found = span.attributes.iter().find(|attribute| attribute.key == key)?;
    found.value.clone()?.value
}

/// One that is a text.
pub(crate) fn word(span: &Span, key: &str) -> String {
    match attribute(span, key) {
        Some(Value::StringValue(text)) => text,
        other => panic!("{key} is {other:?}"),
    }
}

/// One that is a number.
pub(crate) fn number(span: &Span, key: &str) -> f64 {
    match attribute(span, key) {
        Some(Value::DoubleValue(number)) => number,
        Some(Value::IntValue(number)) => number as f64,
        other => panic!("{key} is {other:?}"),
    }
}
