//! HTTP/2 on either side, and gRPC's way of using it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderValue;
use http::{HeaderMap, Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, BodyStream, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use proxy::admin::GateView;
use proxy::http::Speaks;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::site::{Body, PATIENCE, Site, full, gate, one_at_a_time, service};

pub(crate) async fn client(site: &Site) -> http2::SendRequest<Full<Bytes>> {
    client_with_window(site, None).await
}

/// A client whose streams have windows of so many bytes.
async fn client_with_window(site: &Site, window: impl Into<Option<u32>>) -> http2::SendRequest<Full<Bytes>> {
    let socket = TcpStream::connect(site.address).await.unwrap();
    // Else a reset may wait for the acknowledgment of what went before.
    socket.set_nodelay(true).unwrap();
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(window);
    let (sender, connection) = builder.handshake(TokioIo::new(socket)).await.unwrap();
    tokio::spawn(connection);
    sender
}

#[tokio::test]
async fn a_small_response_whose_client_takes_nothing_gives_its_place_back() {
    let site =
        gate(one_at_a_time(), &[service(async |_| Response::new(full(vec![7; 30_000]))).await], |_| {}).await;
    let mut stalled = client_with_window(&site, 100).await;
    let body = stalled.send_request(get("/")).await.unwrap().into_body();
    let mut other = client(&site).await;
    let answer = timeout(PATIENCE, other.send_request(get("/"))).await.expect("there is a place").unwrap();
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes().len(), 30_000);
    drop(body);
}

#[tokio::test]
async fn streams_of_one_client_that_takes_nothing_hold_places_for_a_second_together() {
    let site =
        gate(one_at_a_time(), &[service(async |_| Response::new(full(vec![7; 30_000]))).await], |_| {}).await;
    let mut stalled = client_with_window(&site, 0).await;
    let first = stalled.send_request(get("/")).await.unwrap();
    site.reaches(0, 0).await;
    // The second is used up: the places of others are free before their clients hear of them.
    let second = stalled.send_request(get("/")).await.unwrap();
    assert_eq!(site.status.snapshot().in_flight, 0);
    drop((first, second));
}

pub(crate) fn get(path: &str) -> Request<Full<Bytes>> {
    Request::get(format!("http://shop.example{path}")).body(Full::default()).unwrap()
}

/// A service that speaks HTTP/2 in the clear.
pub(crate) async fn service_of_http2<F>(
    answer: impl Fn(Request<Incoming>) -> F + Clone + Send + Sync + 'static,
) -> std::net::SocketAddr
where
    F: Future<Output = Response<Body>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let answer = answer.clone();
            let service = service_fn(move |request| {
                let answer = answer(request);
                async move { Ok::<_, Infallible>(answer.await) }
            });
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(builder.serve_connection(TokioIo::new(socket), service));
        }
    });
    address
}

#[tokio::test]
async fn streams_of_one_connection_become_requests_of_their_own() {
    let answer = async |request: Request<Incoming>| {
        assert_eq!(request.version(), Version::HTTP_11);
        assert_eq!(request.headers()["host"], "shop.example");
        Response::new(full(request.uri().path().to_owned()))
    };
    let site = gate(one_at_a_time(), &[service(answer).await], |_| {}).await;
    let sender = client(&site).await;
    let asked = (0..10).map(|number| {
        let mut sender = sender.clone();
        tokio::spawn(async move {
            let response = sender.send_request(get(&format!("/{number}"))).await.unwrap();
            assert_eq!((response.status(), response.version()), (StatusCode::OK, Version::HTTP_2));
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, format!("/{number}"));
        })
    });
    for task in asked.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    site.reaches(0, 0).await;
}

#[tokio::test]
async fn a_stream_that_is_reset_leaves_the_queue() {
    let go = Arc::new(Semaphore::new(0));
    let shared = Arc::clone(&go);
    let answer = move |_| {
        let go = Arc::clone(&shared);
        async move {
            go.acquire().await.unwrap().forget();
            Response::new(full(""))
        }
    };
    let site = gate(one_at_a_time(), &[service(answer).await], |_| {}).await;
    let mut sender = client(&site).await;
    let first = tokio::spawn(sender.send_request(get("/1")));
    site.reaches(0, 1).await;
    let second = tokio::spawn(sender.send_request(get("/2")));
    site.reaches(1, 1).await;
    second.abort();
    site.reaches(0, 1).await;
    go.add_permits(1);
    assert_eq!(first.await.unwrap().unwrap().status(), 200);
    // The connection is lost with all its streams.
    let third = tokio::spawn(sender.send_request(get("/3")));
    site.reaches(0, 1).await;
    third.abort();
    site.reaches(0, 0).await;
}

/// Answers a call as a gRPC service does.
async fn grpc(request: Request<Incoming>) -> Response<Body> {
    assert_eq!(request.version(), Version::HTTP_2);
    assert_eq!(request.uri().authority().map(http::uri::Authority::as_str), Some("shop.example"));
    assert_eq!(request.headers()["te"], "trailers");
    let asked = request.into_body().collect().await.unwrap().to_bytes();
    let trailers =
        HeaderMap::from_iter([(http::HeaderName::from_static("grpc-status"), HeaderValue::from_static("0"))]);
    let frames = [Frame::data(asked), Frame::trailers(trailers)];
    let body = StreamBody::new(futures_util::stream::iter(frames.map(Ok::<_, Infallible>)));
    Response::builder().header("content-type", "application/grpc").body(BodyExt::boxed(body)).unwrap()
}

fn call() -> Request<Full<Bytes>> {
    Request::post("http://shop.example/shop.Cart/Add")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::from("message"))
        .unwrap()
}

#[tokio::test]
async fn a_grpc_call_passes_with_its_trailers() {
    let upstream = service_of_http2(grpc).await;
    let site = gate(one_at_a_time(), &[upstream], |settings| settings.speaks = Speaks::Http2).await;
    let mut sender = client(&site).await;
    for _ in 0..3 {
        let response = sender.send_request(call()).await.unwrap();
        let body = response.into_body().collect().await.unwrap();
        assert_eq!(body.trailers().unwrap()["grpc-status"], "0");
        assert_eq!(body.to_bytes(), "message");
    }
    site.reaches(0, 0).await;
    // All went over one connection.
    assert_eq!(site.status.pools()[0].connections, 1);
}

#[tokio::test]
async fn a_refused_grpc_call_hears_of_it_in_its_own_way() {
    let never = service_of_http2(async |_| {
        std::future::pending::<()>().await;
        Response::new(full(""))
    })
    .await;
    let policy = admission::Policy { queue_max: 0, ..one_at_a_time() };
    let site = gate(policy, &[never], |settings| settings.speaks = Speaks::Http2).await;
    let mut sender = client(&site).await;
    let first = tokio::spawn(sender.send_request(call()));
    site.reaches(0, 1).await;
    let refused = sender.send_request(call()).await.unwrap();
    assert_eq!(
        (refused.status(), &refused.headers()["grpc-status"]),
        (StatusCode::OK, &HeaderValue::from_static("14"))
    );
    assert!(refused.headers()["grpc-retry-pushback-ms"].to_str().unwrap().parse::<u64>().unwrap() > 0);
    let mut late = call();
    late.headers_mut().insert("grpc-timeout", HeaderValue::from_static("0m"));
    let late = sender.send_request(late).await.unwrap();
    assert_eq!(late.headers()["grpc-status"], "4");
    first.abort();
    site.reaches(0, 0).await;
    tokio::time::sleep(Duration::ZERO).await;
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused_and_the_connection_goes_on() {
    let answer = async |_| Response::new(full("served"));
    let site = gate(one_at_a_time(), &[service(answer).await], |_| {}).await;
    let mut sender = client(&site).await;
    let large = |count: usize, length: usize| {
        let mut request = get("/");
        for number in 0..count {
            let name = http::HeaderName::try_from(format!("x-{number}")).unwrap();
            request.headers_mut().append(name, HeaderValue::try_from("x".repeat(length)).unwrap());
        }
        request
    };
    for (count, length) in [(1, 70_000), (200, 1)] {
        let told = sender.send_request(large(count, length)).await.unwrap();
        assert_eq!(told.status(), StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "{count} of {length} bytes");
    }
    let told = sender.send_request(large(50, 100)).await.unwrap();
    assert_eq!(told.status(), StatusCode::OK);
    assert_eq!(site.status.totals().counts.dispatched, 1);
}

#[tokio::test]
async fn cookies_in_many_fields_reach_the_service_as_one() {
    let answer = async |request: Request<Incoming>| {
        let cookies: Vec<_> = request.headers().get_all("cookie").iter().collect();
        assert_eq!(cookies.len(), 1);
        Response::new(full(cookies[0].as_bytes().to_vec()))
    };
    let site = gate(one_at_a_time(), &[service(answer).await], |_| {}).await;
    let mut sender = client(&site).await;
    // As many as a browser keeps for a site: more than fields may be.
    for count in [1, 2, 180] {
        let cookies: Vec<String> = (0..count).map(|number| format!("c{number}={number}")).collect();
        let mut request = get("/");
        for cookie in &cookies {
            request.headers_mut().append("cookie", HeaderValue::try_from(cookie).unwrap());
        }
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), cookies.join("; "));
    }
}

#[tokio::test]
async fn a_stream_that_is_reset_within_its_upload_leaves_nothing() {
    let (heard, mut hears) = tokio::sync::mpsc::unbounded_channel();
    let answer = move |request: Request<Incoming>| {
        let heard = heard.clone();
        async move {
            heard.send(request.into_body().collect().await.is_err()).unwrap();
            Response::new(full(""))
        }
    };
    let site = gate(one_at_a_time(), &[service(answer).await], |_| {}).await;
    let socket = TcpStream::connect(site.address).await.unwrap();
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
    tokio::spawn(connection);
    for round in 0..3 {
        let first = futures_util::stream::once(async {
            Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[b'x'; 20_000])))
        });
        let never = futures_util::stream::pending();
        let body = BodyExt::boxed_unsync(StreamBody::new(futures_util::StreamExt::chain(first, never)));
        let request =
            Request::post("http://shop.example/").header("content-length", 30_000).body(body).unwrap();
        let asked = tokio::spawn(sender.send_request(request));
        site.reaches(0, 1).await;
        asked.abort();
        site.reaches(0, 0).await;
        assert_eq!(site.status.totals().counts.dispatched, round + 1);
        assert_eq!(timeout(PATIENCE, hears.recv()).await.unwrap(), Some(true), "it ends before its time");
    }
}

/// A body of frames of one byte each.
fn small_frames(count: usize) -> Body {
    let frames = (0..count).map(|_| Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"x"))));
    BodyExt::boxed(StreamBody::new(futures_util::stream::iter(frames)))
}

#[tokio::test]
async fn a_short_body_of_many_small_frames_is_there_before_its_request_stands_in_line() {
    const COUNT: usize = 2_000;
    let answer = async |request: Request<Incoming>| {
        Response::new(full(request.into_body().collect().await.unwrap().to_bytes().len().to_string()))
    };
    let site = gate(one_at_a_time(), &[service(answer).await], |_| {}).await;
    let socket = TcpStream::connect(site.address).await.unwrap();
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
    tokio::spawn(connection);
    let (end, ending) = tokio::sync::oneshot::channel::<()>();
    let last = futures_util::stream::once(async move {
        ending.await.unwrap();
        Ok(Frame::data(Bytes::from_static(b"x")))
    });
    let frames = futures_util::StreamExt::chain(BodyStream::new(small_frames(COUNT - 1)), last);
    let body = BodyExt::boxed_unsync(StreamBody::new(frames));
    let request = Request::post("http://shop.example/").header("content-length", COUNT).body(body).unwrap();
    let slow = tokio::spawn(sender.send_request(request));
    // Over the same connection, so that it is read behind all of them.
    let other = Request::get("http://shop.example/").body(BodyExt::boxed_unsync(small_frames(0))).unwrap();
    let told =
        timeout(PATIENCE, sender.send_request(other)).await.expect("nobody has taken its place").unwrap();
    assert_eq!(told.into_body().collect().await.unwrap().to_bytes(), "0");
    assert_eq!(site.status.totals().counts.dispatched, 1);
    end.send(()).unwrap();
    let told = slow.await.unwrap().unwrap().into_body().collect().await.unwrap().to_bytes();
    assert_eq!(told, COUNT.to_string());
    site.reaches(0, 0).await;
}

#[tokio::test]
async fn bodies_of_many_small_frames_pass_both_ways() {
    const COUNT: usize = 2_000;
    let answer = async |request: Request<Incoming>| {
        let heard = request.into_body().collect().await.unwrap().to_bytes().len();
        assert_eq!(heard, COUNT);
        Response::new(small_frames(COUNT))
    };
    let upstream = service_of_http2(answer).await;
    let site = gate(one_at_a_time(), &[upstream], |settings| settings.speaks = Speaks::Http2).await;
    let socket = TcpStream::connect(site.address).await.unwrap();
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::post("http://shop.example/").body(small_frames(COUNT)).unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes().len(), COUNT);
}

#[tokio::test]
async fn a_client_that_takes_nothing_holds_up_no_other_of_the_shared_connection() {
    let upstream = service_of_http2(async |request: Request<Incoming>| {
        let size = if request.uri().path() == "/large" { 50_000_000 } else { 100_000 };
        Response::new(full(vec![b'x'; size]))
    })
    .await;
    let policy = admission::Policy { connections: 100, ..one_at_a_time() };
    let site = gate(policy, &[upstream], |settings| settings.speaks = Speaks::Http2).await;
    let mut slow = Vec::new();
    for _ in 0..20 {
        let mut client = crate::site::Client::connect(&site).await;
        client.send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n").await;
        assert_eq!(client.head().await.unwrap().status, 200);
        slow.push(client);
    }
    let mut other = crate::site::Client::connect(&site).await;
    for _ in 0..10 {
        assert_eq!(other.get("/small").await.body.len(), 100_000);
    }
    assert_eq!(site.status.pools()[0].connections, 1);
}

#[tokio::test]
async fn a_response_waits_for_the_end_of_a_request_whose_length_is_known() {
    // Shorter ones have to be there before their request stands in line.
    const LENGTH: usize = 20_000;
    let answer = async |request: Request<Incoming>| {
        Response::new(full(request.into_body().collect().await.unwrap().to_bytes()))
    };
    let site = gate(one_at_a_time(), &[service(answer).await], |_| {}).await;
    let socket = TcpStream::connect(site.address).await.unwrap();
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
    tokio::spawn(connection);
    let (end, ending) = tokio::sync::oneshot::channel::<()>();
    let data = futures_util::stream::once(async {
        Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[b'x'; LENGTH])))
    });
    let end_of_stream = futures_util::stream::once(async move {
        ending.await.unwrap();
        Ok(Frame::data(Bytes::new()))
    });
    let body = BodyExt::boxed_unsync(StreamBody::new(futures_util::StreamExt::chain(data, end_of_stream)));
    let request = Request::post("http://shop.example/").header("content-length", LENGTH).body(body).unwrap();
    let answered = tokio::spawn(sender.send_request(request));
    site.reaches(0, 1).await;
    assert!(!answered.is_finished());
    end.send(()).unwrap();
    let body = answered.await.unwrap().unwrap().into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body.len(), LENGTH);
}
