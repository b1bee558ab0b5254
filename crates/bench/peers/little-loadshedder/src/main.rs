//! A reverse proxy that lets in what little-loadshedder says: the peer in Rust that the gate is measured
//! beside.
//!
//! `little-loadshedder-proxy --listen PORT --upstream PORT --target MILLISECONDS --ewma PART`, all on
//! 127.0.0.1. The limiter has a queue of its own, and holds the mean time that requests spend in queue and
//! service at the target; `ewma` is the weight of each new response time in its moving average. A
//! refused request gets 503.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use bytes::Bytes;
use http::uri::{Authority, Scheme};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use little_loadshedder::{LoadShed, LoadShedResponse};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt;

type Limited = LoadShed<Client<HttpConnector, Incoming>>;
type Answer = Response<Either<Incoming, Full<Bytes>>>;

/// What it was started with.
struct Options {
    listen: u16,
    upstream: u16,
    target: Duration,
    ewma: f64,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options =
            Self { listen: 0, upstream: 0, target: Duration::from_millis(150), ewma: 0.01 };
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
            let wrong = || format!("{name}: `{value}` is no number that fits");
            match name.as_str() {
                "--listen" => options.listen = value.parse().map_err(|_| wrong())?,
                "--upstream" => options.upstream = value.parse().map_err(|_| wrong())?,
                "--target" => options.target = Duration::from_millis(value.parse().map_err(|_| wrong())?),
                "--ewma" => {
                    let part = value.parse().map_err(|_| wrong())?;
                    options.ewma = Some(part).filter(|part| *part > 0.0 && *part < 1.0).ok_or_else(wrong)?;
                }
                _ => return Err(format!("there is no {name}")),
            }
        }
        Ok(options)
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let served = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => serve(options).await,
        Err(error) => Err(error),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("little-loadshedder-proxy: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(options: Options) -> Result<(), String> {
    let upstream = Authority::try_from(format!("127.0.0.1:{}", options.upstream)).map_err(|error| error.to_string())?;
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector);
    let limited = LoadShed::new(client, options.ewma, options.target);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, options.listen));
    let listener = TcpListener::bind(address).await.map_err(|error| format!("listening on {address}: {error}"))?;
    loop {
        // A client that is gone before it is accepted is nobody's loss; nor is one for whom there is no
        // descriptor.
        let Ok((stream, _)) = listener.accept().await else { continue };
        tokio::spawn(connection(stream, limited.clone(), upstream.clone()));
    }
}

/// A client that leaves takes its request with it: the future that waits or is served is dropped.
async fn connection(stream: TcpStream, limited: Limited, upstream: Authority) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let service = service_fn(|request| answer(limited.clone(), upstream.clone(), request));
    // Its error says that the client broke off.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(limited: Limited, upstream: Authority, mut request: Request<Incoming>) -> Result<Answer, Infallible> {
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    (parts.scheme, parts.authority) = (Some(Scheme::HTTP), Some(upstream));
    let Ok(uri) = Uri::from_parts(parts) else {
        return Ok(status(StatusCode::BAD_REQUEST));
    };
    *request.uri_mut() = uri;
    Ok(match limited.oneshot(request).await {
        Ok(LoadShedResponse::Inner(response)) => response.map(Either::Left),
        Ok(LoadShedResponse::Overload) => status(StatusCode::SERVICE_UNAVAILABLE),
        Err(_) => status(StatusCode::BAD_GATEWAY),
    })
}

fn status(status: StatusCode) -> Answer {
    let mut response = Response::new(Either::Right(Full::new(Bytes::new())));
    *response.status_mut() = status;
    response
}
