//! Responses that share an uplink: which goes first, at what pace, and that nothing is lost.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use admission::{Capacity, EgressOrder, Policy, Work};
use bytes::Bytes;
use http::header::HeaderValue;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use proxy::admin::GateView;
use proxy::http::{TypeRule, UplinkRate, UplinkSettings, rule_segments};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::http2;
use crate::site::{Body, Client, PATIENCE, Site, full, gate, one_at_a_time, service};

/// 1,000 bytes of bodies a millisecond.
const BITS: u64 = 8_000_000;

/// A body of so many bytes, none of which could stand in another's place.
fn pattern(bytes: usize) -> Bytes {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

/// Answers `/N` with N bytes, and `/chunks/N` in chunks, without telling how many.
async fn sized() -> SocketAddr {
    service(async |request: Request<Incoming>| {
        let path = request.uri().path();
        let bytes = pattern(path.rsplit('/').next().and_then(|last| last.parse().ok()).unwrap_or(0));
        let body: Body = if path.starts_with("/chunks") {
            let chunks: Vec<_> = bytes.chunks(10_000).map(Bytes::copy_from_slice).collect();
            StreamBody::new(futures_util::stream::iter(
                chunks.into_iter().map(|chunk| Ok(Frame::data(chunk))),
            ))
            .boxed()
        } else {
            full(bytes)
        };
        Response::new(body)
    })
    .await
}

async fn site(order: EgressOrder) -> Site {
    gate(Policy::default(), &[sized().await], |settings| {
        settings.uplink = Some(UplinkSettings::new(UplinkRate::Set(BITS), order));
    })
    .await
}

/// An uplink of this rate, on which the response with the fewest bytes remaining goes first.
fn uplink(rate: UplinkRate) -> Option<UplinkSettings> {
    Some(UplinkSettings::new(rate, EgressOrder::ShortestRemaining))
}

/// Asks over HTTP/2 for so many bytes with this priority, up to the response's head.
fn ask(
    sender: &SendRequest<Full<Bytes>>,
    bytes: usize,
    priority: &'static str,
) -> impl Future<Output = Incoming> + use<> {
    let (mut sender, mut request) = (sender.clone(), http2::get(&format!("/{bytes}")));
    request.headers_mut().insert("priority", HeaderValue::from_static(priority));
    async move { sender.send_request(request).await.unwrap().into_body() }
}

/// A client that counts what it gets.
struct Download {
    got: Arc<AtomicUsize>,
    task: JoinHandle<usize>,
}

impl Download {
    async fn begin(site: &Site, bytes: usize) -> Self {
        Self::ask(site, bytes, "u=3").await
    }

    async fn ask(site: &Site, bytes: usize, priority: &str) -> Self {
        Self::of(site, &bytes.to_string(), priority).await
    }

    async fn of(site: &Site, path: &str, priority: &str) -> Self {
        let mut socket = TcpStream::connect(site.address).await.unwrap();
        let head =
            format!("GET /{path} HTTP/1.1\r\nHost: a\r\nPriority: {priority}\r\nConnection: close\r\n\r\n");
        socket.write_all(head.as_bytes()).await.unwrap();
        let got = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&got);
        let task = tokio::spawn(async move {
            let mut buffer = vec![0; 64 * 1024];
            loop {
                match socket.read(&mut buffer).await.unwrap() {
                    0 => return count.load(Ordering::SeqCst),
                    read => count.fetch_add(read, Ordering::SeqCst),
                };
            }
        });
        Self { got, task }
    }

    fn got(&self) -> usize {
        self.got.load(Ordering::SeqCst)
    }

    async fn reaches(&self, bytes: usize) {
        let reached = async {
            while self.got() < bytes {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, reached).await.expect("it goes on");
    }

    async fn ends(self) -> usize {
        timeout(PATIENCE, self.task).await.expect("it ends").unwrap()
    }
}

/// How much had come of a response of 2 MB, of which 50 kB were there when one of 700 kB began, when that had
/// come whole.
async fn overtaken(order: EgressOrder) -> usize {
    let site = site(order).await;
    let large = Download::begin(&site, 2_000_000).await;
    large.reaches(50_000).await;
    let small = Download::begin(&site, 700_000).await;
    assert!(small.ends().await > 700_000);
    let got = large.got();
    assert!(large.ends().await > 2_000_000);
    got
}

#[tokio::test]
async fn the_response_with_the_fewest_bytes_remaining_goes_first() {
    let got = overtaken(EgressOrder::ShortestRemaining).await;
    assert!(got < 500_000, "{got}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_order_holds_across_several_workers() {
    let got = overtaken(EgressOrder::ShortestRemaining).await;
    assert!(got < 500_000, "{got}");
}

#[tokio::test]
async fn fair_responses_get_on_alike() {
    let got = overtaken(EgressOrder::Fair).await;
    assert!(got > 600_000, "{got}");
}

#[tokio::test]
async fn responses_leave_no_faster_than_the_uplink() {
    let site = site(EgressOrder::ShortestRemaining).await;
    let began = Instant::now();
    let both = [Download::begin(&site, 200_000).await, Download::begin(&site, 200_000).await];
    for one in both {
        one.ends().await;
    }
    // 400 kB at 1,000 bytes a millisecond are 400 ms, less the first turn.
    assert!(began.elapsed() > Duration::from_millis(390), "{:?}", began.elapsed());
}

#[tokio::test]
async fn every_byte_arrives_of_a_length_that_is_told_and_of_one_that_is_not() {
    let site = site(EgressOrder::ShortestRemaining).await;
    let mut client = Client::connect(&site).await;
    for path in ["/150000", "/chunks/150000", "/0", "/chunks/1", "/1"] {
        let response = client.get(path).await;
        let bytes = path.rsplit('/').next().unwrap().parse().unwrap();
        assert!(response.body[..] == pattern(bytes)[..], "{path}");
    }
}

#[tokio::test]
async fn a_client_that_reads_nothing_and_one_that_leaves_hold_up_nobody() {
    let site = site(EgressOrder::ShortestRemaining).await;
    let mut silent = TcpStream::connect(site.address).await.unwrap();
    silent.write_all(b"GET /100000 HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let leaving = Download::begin(&site, 5_000_000).await;
    leaving.reaches(10_000).await;
    leaving.task.abort();
    for _ in 0..3 {
        assert!(Download::begin(&site, 20_000).await.ends().await > 20_000);
    }
}

/// How much had come of the first response, which takes eight seconds on this uplink, when another one had
/// come whole, before a service that serves one at a time.
async fn before_another(bits: u64, bytes: usize) -> usize {
    let site = gate(one_at_a_time(), &[sized().await], |settings| {
        settings.uplink = uplink(UplinkRate::Set(bits));
    })
    .await;
    let first = Download::begin(&site, bytes).await;
    first.reaches(bytes / 100).await;
    assert!(Download::begin(&site, 1_000).await.ends().await > 1_000);
    first.got()
}

#[tokio::test]
async fn a_response_that_waits_for_the_uplink_gives_its_place_back_large_or_small() {
    let [large, small] = [before_another(1_000_000, 1_000_000), before_another(64_000, 60_000)];
    let (large, small) = tokio::join!(large, small);
    assert!(large < 800_000 && small < 40_000, "{large} {small}");
}

#[tokio::test]
async fn a_response_that_a_more_urgent_one_of_its_connection_holds_up_gives_its_place_back() {
    let policy =
        Policy { capacity: Capacity::Fixed(Work::from_nanos(1)), queue_max: 10, ..Policy::default() };
    let site = gate(policy, &[sized().await], |settings| {
        settings.uplink = uplink(UplinkRate::Set(BITS));
    })
    .await;
    let sender = http2::client(&site).await;
    let urgent = ask(&sender, 3_000_000, "u=0").await;
    let urgent = tokio::spawn(async move { urgent.collect().await.unwrap().to_bytes().len() });
    // Each is in flight when its head is there.
    let usual = [ask(&sender, 2_000_000, "u=5").await, ask(&sender, 2_000_000, "u=5").await];
    assert!(Download::begin(&site, 1_000).await.ends().await > 1_000);
    assert!(!urgent.is_finished(), "the other connection's request waited for the places of this one's");
    assert_eq!(timeout(PATIENCE, urgent).await.expect("it ends").unwrap(), 3_000_000);
    for usual in usual {
        let usual = timeout(PATIENCE, usual.collect()).await.expect("it ends").unwrap();
        assert_eq!(usual.to_bytes().len(), 2_000_000);
    }
}

#[tokio::test]
async fn a_response_that_comes_slowly_and_whose_client_reads_nothing_gives_its_place_back() {
    let paced = service(async |request: Request<Incoming>| {
        let chunks = if request.uri().path() == "/endless" { 100_000 } else { 1 };
        let chunk = move |at: usize| async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            (at < chunks).then(|| (Ok(Frame::data(Bytes::from_static(&[7; 20_000]))), at + 1))
        };
        let body: Body = StreamBody::new(futures_util::stream::unfold(0, chunk)).boxed();
        Response::builder().header("content-length", chunks * 20_000).body(body).unwrap()
    });
    let site = gate(one_at_a_time(), &[paced.await], |settings| {
        settings.uplink = uplink(UplinkRate::Found);
    })
    .await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(65_536).unwrap();
    let mut silent = socket.connect(site.address).await.unwrap();
    silent.write_all(b"GET /endless HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    silent.readable().await.unwrap();
    // The gate closes the silent one in the end, and has its place back then, too.
    let other = timeout(PATIENCE / 2, Download::of(&site, "one", "u=3").await.ends()).await;
    assert!(other.expect("there is a place") > 20_000);
}

#[tokio::test]
async fn a_service_is_asked_for_little_more_than_has_left_however_much_waits() {
    const RESPONSES: usize = 20;
    // Of 10 kB each.
    const CHUNKS: usize = 5_000;
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let endless = service(move |_| {
        let count = Arc::clone(&count);
        async move {
            let chunk = move |_| {
                count.fetch_add(1, Ordering::SeqCst);
                Ok(Frame::data(Bytes::from_static(&[7; 10_000])))
            };
            Response::new(StreamBody::new(futures_util::stream::iter((0..CHUNKS).map(chunk))).boxed())
        }
    });
    let site = gate(Policy::default(), &[endless.await], |settings| {
        settings.uplink = uplink(UplinkRate::Set(BITS));
    })
    .await;
    let mut downloads = Vec::new();
    for _ in 0..RESPONSES {
        downloads.push(Download::begin(&site, 0).await);
    }
    let a_second = async {
        while downloads.iter().map(Download::got).sum::<usize>() < 1_000_000 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, a_second).await.expect("they go on");
    // What the kernel keeps between the service and the gate is the most of it.
    let asked = asked.load(Ordering::SeqCst);
    assert!(asked < RESPONSES * CHUNKS / 4, "{asked}");
    // A turn of each response waits, which is a two-hundredth of a second.
    let waits = site.status.uplink().unwrap();
    let turn = BITS / 8 / 200;
    assert!(waits.bytes_waiting <= waits.responses_waiting as u64 * turn, "{waits:?}");
}

/// How much had come of a response in chunks, of 700 kB, when one of 300 kB that began later had come whole.
/// So many of the first one's type had ended before.
async fn overtaken_in_chunks(before: usize) -> usize {
    let site = gate(Policy::default(), &[sized().await], |settings| {
        settings.uplink = uplink(UplinkRate::Set(BITS));
        let path = rule_segments("/chunks/**");
        settings.types = vec![TypeRule { method: None, path, name: "chunks".into(), files: None }];
    })
    .await;
    for _ in 0..before {
        let mut client = Client::connect(&site).await;
        assert_eq!(client.get("/chunks/700000").await.body.len(), 700_000);
    }
    let chunks = Download::of(&site, "chunks/700000", "u=3").await;
    chunks.reaches(50_000).await;
    assert!(Download::begin(&site, 300_000).await.ends().await > 300_000);
    let got = chunks.got();
    assert!(chunks.ends().await > 700_000);
    got
}

#[tokio::test]
async fn a_response_in_chunks_has_the_size_of_its_type_as_soon_as_that_is_known() {
    let (unknown, known) = tokio::join!(Box::pin(overtaken_in_chunks(0)), Box::pin(overtaken_in_chunks(3)));
    // One of unknown size goes by what it has had.
    assert!(known + 100_000 < unknown, "{unknown} {known}");
}

#[tokio::test]
async fn streams_of_one_connection_share_the_uplink_too() {
    let site = site(EgressOrder::ShortestRemaining).await;
    let sender = http2::client(&site).await;
    let ask = |path: &str| {
        let (mut sender, request) = (sender.clone(), http2::get(path));
        async move { sender.send_request(request).await.unwrap().into_body() }
    };
    let mut large = ask("/2000000").await;
    let begun = timeout(PATIENCE, large.frame()).await.expect("it begins").unwrap().unwrap();
    let small = timeout(PATIENCE, ask("/chunks/200000").await.collect()).await.expect("it ends").unwrap();
    assert!(small.to_bytes() == pattern(200_000));
    let rest = timeout(PATIENCE, large.collect()).await.expect("it ends").unwrap().to_bytes();
    assert!([begun.into_data().unwrap(), rest].concat() == pattern(2_000_000)[..]);
}

/// Two sizes that tie. The smaller one stays in the tie until half of it is sent.
const SMALLER: usize = 1_000_000;
const LARGER: usize = 1_040_000;

#[tokio::test]
async fn an_urgent_response_to_curl_overtakes_one_of_about_its_size_on_another_connection() {
    let site = site(EgressOrder::ShortestRemaining).await;
    let usual = Download::begin(&site, SMALLER).await;
    usual.reaches(10_000).await;
    let curl = tokio::process::Command::new("curl")
        .args(["--http2-prior-knowledge", "-sSo", "/dev/null", "-w", "%{http_version} %{size_download}"])
        .args(["-H", "Priority: u=0, i", &format!("http://{}/{LARGER}", site.address)])
        .output();
    let told = timeout(PATIENCE, curl).await.expect("it ends").expect("curl runs");
    let got = usual.got();
    assert_eq!(String::from_utf8_lossy(&told.stdout), format!("2 {LARGER}"), "{told:?}");
    assert!(got < SMALLER / 2, "{got}");
    usual.ends().await;
}

/// How much had come of one of two responses of the same size and priority on one connection when the other
/// had come whole.
async fn beside_its_like(priority: &'static str) -> usize {
    let site = site(EgressOrder::ShortestRemaining).await;
    let sender = http2::client(&site).await;
    let read = async |mut body: Incoming, got: &AtomicUsize| {
        while let Some(frame) = body.frame().await {
            got.fetch_add(frame.unwrap().into_data().unwrap().len(), Ordering::SeqCst);
        }
    };
    let bodies = tokio::join!(ask(&sender, SMALLER, priority), ask(&sender, SMALLER, priority));
    let got = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let ended = async {
        tokio::select! {
            () = read(bodies.0, &got[0]) => {}
            () = read(bodies.1, &got[1]) => {}
        }
    };
    timeout(PATIENCE, ended).await.expect("one ends");
    let mut got = got.map(AtomicUsize::into_inner);
    got.sort_unstable();
    assert_eq!(got[1], SMALLER);
    got[0]
}

#[tokio::test]
async fn incremental_responses_of_one_connection_take_turns() {
    let (turns, in_order) =
        tokio::join!(Box::pin(beside_its_like("u=3, i")), Box::pin(beside_its_like("u=3")));
    // The first with few enough bytes left to leave the tie goes on alone.
    assert!(turns > SMALLER * 4 / 10, "{turns}");
    assert!(in_order < SMALLER / 10, "{in_order}");
}

#[tokio::test]
async fn an_urgent_response_overtakes_one_of_about_its_size_on_its_own_connection() {
    let site = site(EgressOrder::ShortestRemaining).await;
    let sender = http2::client(&site).await;
    let mut usual = ask(&sender, SMALLER, "u=4").await;
    let begun = timeout(PATIENCE, usual.frame()).await.expect("it begins").unwrap().unwrap();
    let got = Arc::new(AtomicUsize::new(begun.into_data().unwrap().len()));
    let count = Arc::clone(&got);
    let rest = tokio::spawn(async move {
        while let Some(frame) = usual.frame().await {
            count.fetch_add(frame.unwrap().into_data().unwrap().len(), Ordering::SeqCst);
        }
    });
    let urgent =
        timeout(PATIENCE, ask(&sender, LARGER, "u=3").await.collect()).await.expect("it ends").unwrap();
    assert!(urgent.to_bytes().len() == LARGER);
    assert!(got.load(Ordering::SeqCst) < SMALLER / 2, "{got:?}");
    timeout(PATIENCE, rest).await.expect("it ends").unwrap();
    assert_eq!(got.load(Ordering::SeqCst), SMALLER);
}

#[tokio::test]
async fn on_one_connection_an_urgent_response_goes_before_a_smaller_one() {
    let site = site(EgressOrder::ShortestRemaining).await;
    let sender = http2::client(&site).await;
    let ends = |bytes: usize, priority: &'static str| {
        let body = ask(&sender, bytes, priority);
        async move {
            assert_eq!(body.await.collect().await.unwrap().to_bytes().len(), bytes);
            Instant::now()
        }
    };
    let both = async { tokio::join!(ends(400_000, "u=0"), ends(100_000, "u=5")) };
    let (urgent, smaller) = timeout(PATIENCE, both).await.expect("they end");
    assert!(urgent < smaller);
}
