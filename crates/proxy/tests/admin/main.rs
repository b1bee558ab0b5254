//! The admin listener over a real socket, in front of a gate made up for the test.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails like a test")]

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use admission::{Capacity, Event, Goal, HeldTarget, Lane, RequestType, Snapshot, TypeSnapshot, Work};
use proxy::Condition;
use proxy::admin::{
    Admin, AdminSocket, BODY_BYTES_MAX, CONNECTIONS_MAX, CapacityWords, ClientsView, GateView, PoolView,
    SessionChangesView, Status, TargetReport, Token, TypesReport, UpstreamView, serve,
};
use proxy::observe::{Observer, Totals, TypeName, TypeRow};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};

mod page;

const READ: RequestType = RequestType(1);

/// A gate in a state chosen for the test.
#[derive(Default)]
struct Fake {
    capacity: Mutex<Option<Capacity>>,
    is_there: AtomicBool,
    /// Called whenever the types are asked for.
    asked: Option<Box<dyn Fn() + Send + Sync>>,
}

impl Fake {
    fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }
}

fn row(key: Option<RequestType>, label: &str, succeeded: u64, work_ms: u64) -> TypeRow {
    let mut observer = Observer::new(1);
    observer.describe(&TypeName::new(READ, "any".into()));
    let work = Work::from(Duration::from_millis(work_ms));
    observer.record(&Event::LaneChanged { request_type: READ, lane: Lane::Short, work });
    let mut row = observer.table().remove(0);
    row.key = key;
    row.label = label.into();
    row.counts.succeeded = succeeded;
    row.counts.rejected = [1, 2, 0, 0, 0, 0, 0, 0];
    row.counts.work = Work::from(Duration::from_millis(work_ms * succeeded));
    row
}

impl GateView for Fake {
    fn name(&self) -> &str {
        "shop"
    }

    fn mode(&self) -> &'static str {
        "enforce"
    }

    fn listen(&self) -> String {
        "127.0.0.1:6432".to_owned()
    }

    fn upstream(&self) -> String {
        "unix:/run/postgresql/.s.PGSQL.5432".to_owned()
    }

    fn snapshot(&self) -> Snapshot {
        let learned = TypeSnapshot {
            request_type: Some(READ),
            lane: Lane::Long,
            work: Work::from(Duration::from_millis(60)),
            rank: Work::from(Duration::from_millis(60)),
            variation: f64::NAN,
            modes: Vec::new(),
            samples: 9,
            in_flight: 2,
            queued: 3,
            target: Some(HeldTarget {
                goal: Goal { mean: Some(Duration::from_millis(100)), p95: None },
                present: 5,
                bound: Some(7.5),
                is_out_of_reach: false,
            }),
        };
        Snapshot {
            load: Work::from(Duration::from_millis(1500)),
            connections: 20,
            connections_in_use: 5,
            pinned: 1,
            queued: 3,
            in_flight: 4,
            long_limit: Some(4),
            types: vec![learned],
            ..Snapshot::default()
        }
    }

    fn capacity(&self) -> Capacity {
        self.capacity.lock().unwrap().unwrap_or(Capacity::Unlimited)
    }

    fn set_capacity(&self, capacity: Capacity) {
        *self.capacity.lock().unwrap() = Some(capacity);
    }

    fn types(&self) -> Vec<TypeRow> {
        self.asked.iter().for_each(|asked| asked());
        let strange = "select \"x\\y\"\nfrom t";
        vec![row(None, "other", 1, 10), row(Some(READ), strange, 3, 10)]
    }

    fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        totals.counts.succeeded = 4;
        totals.counts.rejected = [1, 2, 0, 0, 0, 0, 0, 0];
        totals.queue_wait_dispatched.record(Duration::from_millis(2));
        totals.queue_wait_dispatched.record(Duration::from_secs(300));
        totals
    }

    fn upstreams(&self) -> Vec<UpstreamView> {
        let is_there = self.is_there.load(Ordering::Relaxed);
        let condition = if is_there { Condition::Up } else { Condition::Down };
        let error = ("no route".to_owned(), Duration::from_secs(1));
        let (since, failures) = (Duration::from_secs(2), 3);
        vec![UpstreamView { address: "db".into(), condition, since, failures, last_error: Some(error) }]
    }

    fn pools(&self) -> Vec<PoolView> {
        vec![PoolView {
            user: "app".into(),
            database: "shop".into(),
            connections: 5,
            idle: 2,
            spare: 0,
            session_changes: Some(SessionChangesView { reset_total: 6, unreset_total: 7 }),
        }]
    }

    fn clients(&self) -> ClientsView {
        ClientsView { connected: 7, logins_failed: 2, ..ClientsView::default() }
    }
}

/// An admin listener with one gate.
async fn listening() -> (SocketAddr, Arc<Admin>) {
    let admin = Admin::new("1.2.3");
    admin.add_gate(Fake::new());
    admin.answer_for(["gate".to_owned()]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, Arc::clone(&admin)));
    (address, admin)
}

/// The status line, the head and the body of the answer.
async fn get(address: SocketAddr, path: &str) -> (String, String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: gate\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let (status, head) = head.split_once("\r\n").unwrap();
    (status.to_owned(), head.to_owned(), body.to_owned())
}

#[tokio::test]
async fn health_is_ok_from_the_start_and_readiness_follows_the_gates() {
    let (address, admin) = listening().await;
    assert_eq!(get(address, "/healthz").await.0, "HTTP/1.1 200 OK");

    let (status, _, body) = get(address, "/readyz").await;
    assert_eq!((status.as_str(), body.as_str()), ("HTTP/1.1 503 Service Unavailable", "starting\n"));
    admin.set_ready();
    let (status, _, body) = get(address, "/readyz").await;
    assert_eq!((status.as_str(), body.as_str()), ("HTTP/1.1 200 OK", "ready\n"));
    admin.set_draining();
    let (status, _, body) = get(address, "/readyz").await;
    assert_eq!((status.as_str(), body.as_str()), ("HTTP/1.1 503 Service Unavailable", "draining\n"));
    admin.set_ready();
    assert_eq!(get(address, "/readyz").await.2, "draining\n", "draining is never taken back");
    assert_eq!(get(address, "/healthz").await.0, "HTTP/1.1 200 OK");
    let (status, _, body) = get(address, "/nothing").await;
    assert_eq!(status, "HTTP/1.1 404 Not Found");
    assert!(body.starts_with("there is nothing at /nothing; there are: / (the page), /status, "), "{body}");
    let (status, _, body) = get(address, "/reload").await;
    assert_eq!(
        (status.as_str(), body.as_str()),
        ("HTTP/1.1 405 Method Not Allowed", "/reload is not for GET; use POST\n")
    );
}

#[tokio::test]
async fn readiness_asks_for_upstreams_only_where_it_is_told_to() {
    let admin = Admin::new("1.2.3");
    let gate = Fake::new();
    admin.add_gate(Arc::clone(&gate) as Arc<dyn GateView>);
    admin.answer_for(["gate".to_owned()]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, Arc::clone(&admin)));
    assert_eq!(get(address, "/readyz?upstream").await.2, "starting\n");
    admin.set_ready();
    assert_eq!(get(address, "/readyz").await.0, "HTTP/1.1 200 OK");
    let (status, _, body) = get(address, "/readyz?upstream").await;
    assert_eq!((&*status, &*body), ("HTTP/1.1 503 Service Unavailable", "gate shop: no upstream is up\n"));
    assert_eq!(get(address, "/readyz?upstream=shop").await.0, "HTTP/1.1 503 Service Unavailable");
    assert_eq!(get(address, "/readyz?upstream=other").await.0, "HTTP/1.1 404 Not Found");
    gate.is_there.store(true, Ordering::Relaxed);
    assert_eq!(get(address, "/readyz?upstream").await.2, "ready\n");
}

#[tokio::test]
async fn status_tells_the_state_of_every_gate() {
    let (address, _admin) = listening().await;
    let (_, head, body) = get(address, "/status").await;
    assert!(head.to_ascii_lowercase().contains("content-type: application/json"), "{head}");
    let status: Status = serde_json::from_str(&body).unwrap();
    let gate = &status.gates[0];
    assert_eq!((status.version.as_str(), gate.name.as_str()), ("1.2.3", "shop"));
    assert_eq!((gate.load_seconds, gate.capacity_seconds), (1.5, None));
    assert_eq!((gate.queued, gate.in_flight, gate.connections, gate.connections_pinned), (3, 4, 20, 1));
    assert_eq!((gate.clients_connected, gate.logins_failed_total), (7, 2));
    assert_eq!(gate.requests.rejected_total, 3);
    assert_eq!(gate.requests.rejected_by_reason["queue_timeout"], 2);
    assert_eq!((gate.pools[0].user.as_str(), gate.pools[0].idle), ("app", 2));
    let upstream = &gate.upstreams[0];
    assert_eq!((&*upstream.address, &*upstream.state, upstream.failures_total), ("db", "down", 3));
    assert_eq!((upstream.last_error.as_deref(), upstream.last_error_seconds), (Some("no route"), Some(1.0)));
}

#[tokio::test]
async fn only_the_listeners_own_names_are_answered_over_tcp() {
    let (address, _admin) = listening().await;
    let ask = async |host: &str, target: &str| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {target} HTTP/1.1\r\n{host}Connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    for host in ["", "127.0.0.1", "127.0.0.1:6433", "[::1]:6433", "10.1.2.3", "localhost", "GATE:80", "gate."]
    {
        let field = if host.is_empty() { String::new() } else { format!("Host: {host}\r\n") };
        assert_eq!(ask(&field, "/status").await, "200", "{host}");
    }
    for host in
        ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:6433", "gate.evil", "@", "a b"]
    {
        assert_ne!(ask(&format!("Host: {host}\r\n"), "/status").await, "200", "{host}");
    }
    assert_eq!(ask("Host: evil.example\r\n", "/types").await, "421");
    assert_eq!(ask("Host: gate\r\n", "http://evil.example/status").await, "421");
}

#[tokio::test]
async fn the_table_joins_what_was_learned_with_what_was_counted() {
    let (address, _admin) = listening().await;
    let report: TypesReport = serde_json::from_str(&get(address, "/types?gate=shop").await.2).unwrap();
    let types = &report.gates[0].types;
    assert_eq!((types.len(), types[1].label.as_str()), (2, "other"), "most work first");
    assert_eq!((types[0].work_share, types[0].requests.succeeded_total), (0.75, 3));
    assert_eq!((types[0].lane.as_str(), types[0].work_seconds, types[0].variation), ("long", 0.06, None));
    assert_eq!((types[0].samples, types[0].in_flight, types[0].queued), (9, 2, 3));
    let target = TargetReport {
        mean_seconds: Some(0.1),
        p95_seconds: None,
        present: 5,
        present_bound: Some(7.5),
        out_of_reach: false,
    };
    assert_eq!((types[0].target, types[1].target), (Some(target), None));

    assert_eq!(get(address, "/types?gate=nobody").await.0, "HTTP/1.1 404 Not Found");
    assert_eq!(get(address, "/types").await.0, "HTTP/1.1 200 OK");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_of_all_types_are_built_one_at_a_time_and_hold_nobody_up() {
    /// Only a hang takes longer.
    const BOUND: Duration = Duration::from_secs(30);
    let (inside, most, is_open) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let counts = Arc::new((inside, most, is_open));
    let seen = Arc::clone(&counts);
    let asked = move || {
        let (inside, most, is_open) = &*seen;
        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        let began = std::time::Instant::now();
        while !is_open.load(Ordering::SeqCst) && began.elapsed() < BOUND {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        inside.fetch_sub(1, Ordering::SeqCst);
    };
    let admin = Admin::new("1.2.3");
    admin.add_gate(Arc::new(Fake { asked: Some(Box::new(asked)), ..Fake::default() }));
    admin.answer_for(["gate".to_owned()]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, admin));
    let mut asking = Vec::new();
    for path in ["/types", "/metrics", "/types", "/metrics", "/types?gate=shop"] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: gate\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        asking.push(stream);
    }
    let (inside, most, is_open) = &*counts;
    while inside.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(get(address, "/healthz").await.0, "HTTP/1.1 200 OK");
    assert_eq!(inside.load(Ordering::SeqCst), 1);
    is_open.store(true, Ordering::SeqCst);
    for mut stream in asking {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    }
    assert_eq!(most.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn metrics_are_in_the_text_format_with_base_units() {
    let (address, _admin) = listening().await;
    let (_, head, text) = get(address, "/metrics").await;
    assert!(head.to_ascii_lowercase().contains("content-type: application/openmetrics-text"), "{head}");
    for line in [
        "gatekeeper_build_info{version=\"1.2.3\"} 1.0",
        "gatekeeper_ready 0.0",
        "gatekeeper_requests_total{gate=\"shop\",outcome=\"success\"} 4",
        "gatekeeper_rejections_total{gate=\"shop\",reason=\"queue_full\"} 1",
        "gatekeeper_queue_wait_seconds_bucket{le=\"0.0025\",gate=\"shop\",end=\"dispatched\"} 1",
        "gatekeeper_queue_wait_seconds_bucket{le=\"+Inf\",gate=\"shop\",end=\"dispatched\"} 2",
        "gatekeeper_queue_wait_seconds_sum{gate=\"shop\",end=\"dispatched\"} 300.002",
        "gatekeeper_load_seconds{gate=\"shop\"} 1.5",
        "gatekeeper_connections{gate=\"shop\"} 20.0",
        "gatekeeper_connections_in_use{gate=\"shop\"} 5.0",
        "gatekeeper_connections_pinned{gate=\"shop\"} 1.0",
        "gatekeeper_queue_length{gate=\"shop\"} 3.0",
        "gatekeeper_pool_connections{gate=\"shop\",user=\"app\",database=\"shop\",state=\"busy\"} 3.0",
        "gatekeeper_pool_session_changes_total{gate=\"shop\",user=\"app\",database=\"shop\",how=\"unreset\"} 7",
        "gatekeeper_clients{gate=\"shop\"} 7.0",
        "gatekeeper_logins_total{gate=\"shop\",outcome=\"failure\"} 2",
        "gatekeeper_type_work_seconds_total{gate=\"shop\",type=\"other\"} 0.01",
        "gatekeeper_type_info{gate=\"shop\",type=\"000000000001\",text=\"select \\\"x\\\\y\\\"\\nfrom t\"} 1.0",
        "gatekeeper_type_requests_total{gate=\"shop\",type=\"000000000001\",outcome=\"success\"} 3",
        "gatekeeper_type_present{gate=\"shop\",type=\"000000000001\"} 5.0",
        "gatekeeper_type_present_bound{gate=\"shop\",type=\"000000000001\"} 7.5",
        "gatekeeper_last_reload_successful 1.0",
        "gatekeeper_reloads_total{outcome=\"failure\"} 0",
        "# TYPE gatekeeper_type_upstream_time_seconds histogram",
        "# TYPE process_cpu_seconds counter",
        "# TYPE gatekeeper_queue_wait_seconds histogram",
    ] {
        assert!(text.lines().any(|found| found == line), "{line:?} in\n{text}");
    }
    assert!(!text.contains("gatekeeper_capacity_seconds{"), "there is no capacity");
    assert!(text.ends_with("# EOF\n"));
}

#[tokio::test]
async fn the_oldest_connection_makes_room_for_one_beyond_the_maximum() {
    let (address, _admin) = listening().await;
    let mut held = Vec::new();
    for number in 0..CONNECTIONS_MAX {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // Most say half a head, and no more.
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: gate\r\n").await.unwrap();
        if number == 1 {
            stream.write_all(b"\r\n").await.unwrap();
            let mut first = [0; 15];
            stream.read_exact(&mut first).await.unwrap();
            assert_eq!(&first, b"HTTP/1.1 200 OK");
        }
        held.push(stream);
    }
    assert_eq!(get(address, "/healthz").await.0, "HTTP/1.1 200 OK");
    let mut rest = Vec::new();
    // Closed, or reset with its half head unread.
    let ended = held[0].read_to_end(&mut rest).await;
    assert!(ended.is_err() || rest.is_empty(), "{rest:?}");
    held[1].write_all(b"GET /healthz HTTP/1.1\r\nHost: gate\r\nConnection: close\r\n\r\n").await.unwrap();
    held[1].read_to_end(&mut rest).await.unwrap();
    assert!(String::from_utf8_lossy(&rest).contains("HTTP/1.1 200 OK"));
}

#[tokio::test]
async fn garbage_is_answered_or_closed_and_the_listener_lives_on() {
    let (address, _admin) = listening().await;
    for garbage in [&b"\0\0\0\x08\x04\xd2\x16\x2f"[..], b"GET / HTTP/9.9\r\n\r\n", &[b'a'; 100_000]] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // The listener may close while we still write.
        let _ = stream.write_all(garbage).await;
        let _ = stream.shutdown().await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 4"), "{answer:?}");
    }
    assert_eq!(get(address, "/healthz").await.0, "HTTP/1.1 200 OK");
}

const TOKEN: &str = "correct-horse-battery-staple";

/// Words of a little language: seconds, or `none`.
const WORDS: CapacityWords = CapacityWords {
    read: |text| match text {
        "none" => Ok(Capacity::Unlimited),
        text => {
            let seconds = text.strip_suffix('s').and_then(|number| number.parse().ok());
            let work = seconds.map(|seconds| Capacity::Fixed(Work::from(Duration::from_secs(seconds))));
            work.ok_or_else(|| "isn't known".to_owned())
        }
    },
    write: |capacity| match capacity {
        Capacity::Fixed(work) => format!("{}s", work.as_millis_f64() / 1e3),
        _ => "none".to_owned(),
    },
};

/// A request as it is written, and the whole answer.
async fn sent(mut stream: impl AsyncReadExt + AsyncWriteExt + Unpin, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// A change with these further lines of a head.
fn change(gate: &str, head: &str, body: &str) -> String {
    format!(
        "PATCH /gates/{gate} HTTP/1.1\r\nHost: gate\r\nConnection: close\r\nContent-Length: {}\r\n{head}\r\n{body}",
        body.len()
    )
}

/// The status code and the body.
fn code(answer: &str) -> (&str, &str) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (&head["HTTP/1.1 ".len()..][..3], body)
}

#[tokio::test]
async fn changes_over_the_socket_are_made_and_bad_ones_are_explained() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("admin.sock");
    let admin = Admin::new("1.2.3");
    let gate = Fake::new();
    admin.add_gate(gate.clone());
    admin.allow_changes(WORDS);
    let socket = AdminSocket::bind(&path, 0o600).await.unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(AdminSocket::bind(&path, 0o600).await.is_err(), "somebody listens there");
    let serving = tokio::spawn(socket.serve(Arc::clone(&admin)));
    let ask = async |request: String| sent(UnixStream::connect(&path).await.unwrap(), &request).await;

    let answer = ask(change("shop", "", "{\"capacity\":\"20s\"}")).await;
    assert_eq!(code(&answer), ("200", "{\"gate\":\"shop\",\"capacity\":\"20s\"}"));
    assert_eq!(gate.capacity(), Capacity::Fixed(Work::from(Duration::from_secs(20))));
    let show = "GET /gates/shop HTTP/1.1\r\nHost: gate\r\nConnection: close\r\n\r\n".to_owned();
    assert_eq!(code(&ask(show).await).1, "{\"gate\":\"shop\",\"capacity\":\"20s\"}");

    for (body, why) in [
        ("{\"capacity\":\"much\"}", "capacity = \"much\": isn't known\n"),
        ("{\"capacity\":20}", "expected a string"),
        ("{\"capacity\":\"1s\",\"queue_max\":1}", "unknown field `queue_max`, expected `capacity`"),
        ("{}", "missing field `capacity`"),
        ("", "send such as {\"capacity\":\"20s\"}"),
    ] {
        let answer = ask(change("shop", "", body)).await;
        assert_eq!(code(&answer).0, "400", "{body}: {answer}");
        assert!(code(&answer).1.contains(why), "{body}: {answer}");
    }
    let answer = ask(change("other", "", "{\"capacity\":\"1s\"}")).await;
    assert_eq!(code(&answer), ("404", "there is no gate \"other\"\n"));
    let long = format!("{{\"capacity\":\"{}\"}}", "x".repeat(BODY_BYTES_MAX));
    assert_eq!(code(&ask(change("shop", "", &long)).await).0, "413");
    let method = change("shop", "", "{}").replacen("PATCH", "DELETE", 1);
    assert_eq!(code(&ask(method).await).0, "405");
    assert_eq!(gate.capacity(), Capacity::Fixed(Work::from(Duration::from_secs(20))), "nothing has changed");

    serving.abort();
    assert!(serving.await.unwrap_err().is_cancelled() && !path.exists(), "the file goes with the listener");
}

#[tokio::test]
async fn changes_over_tcp_take_the_token() {
    let admin = Admin::new("1.2.3");
    let gate = Fake::new();
    admin.add_gate(gate.clone());
    admin.allow_changes(WORDS);
    admin.answer_for(["gate".to_owned()]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, Arc::clone(&admin)));
    let body = "{\"capacity\":\"20s\"}";
    let ask = async |head: &str| {
        let stream = TcpStream::connect(address).await.unwrap();
        sent(stream, &change("shop", head, body)).await
    };
    let right = format!("Authorization: Bearer {TOKEN}\r\n");

    // None is configured: it says what to do.
    for head in ["", right.as_str()] {
        let answer = ask(head).await;
        assert_eq!(code(&answer).0, "403", "{answer}");
        assert!(
            code(&answer).1.contains("socket = ") && code(&answer).1.contains("token_file = "),
            "{answer}"
        );
        assert!(
            code(&answer).1.contains("a gate that was started with flags alone needs a file")
                && code(&answer).1.contains("`kill -TERM PID` drains"),
            "{answer}"
        );
    }
    admin.set_token(Some(Token::of(TOKEN.as_bytes()).unwrap()));
    for head in [
        "",
        "Authorization: Bearer wrong\r\n",
        &right.replace("Bearer", "Basic"),
        &right.replace(" Bearer", ""),
    ] {
        assert_eq!(code(&ask(head).await).0, "403", "{head}");
    }
    assert_eq!(gate.capacity(), Capacity::Unlimited);
    for head in [&right.replace("Bearer", "bearer"), &right] {
        assert_eq!(code(&ask(head).await).0, "200", "{head}");
    }
    assert_eq!(gate.capacity(), Capacity::Fixed(Work::from(Duration::from_secs(20))));
    // A client that only looks needs none.
    assert_eq!(get(address, "/gates/shop").await.0, "HTTP/1.1 200 OK");
}
