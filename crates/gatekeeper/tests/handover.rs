//! The handover of sockets from a running gatekeeper to its successor, in front of a real PostgreSQL and a
//! site. `GATEKEEPER_HANDOVER=CONNECTIONS,TIMES` says how many connections are open and how often they are
//! handed over; 2000,10 is the full form.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod support;

use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use support::origin::Origin;
use support::{Gate, server, session, until};
use testbed::postgres::{PrivateServer, free_port};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_postgres::NoTls;

/// Only a hang takes longer.
const BOUND: Duration = Duration::from_secs(300);
/// How long a client rests between two requests, for each connection of the load. A shorter rest would be an
/// overload of the gate itself, which ends connections.
const THINK: Duration = Duration::from_millis(1);

/// What the clients of the load share.
struct Load {
    dsn: String,
    think: Duration,
    site: String,
    /// Clients that see another number connect anew: applications renew their connections.
    generation: AtomicU32,
    connected: AtomicU32,
    ended: AtomicBool,
    committed: AtomicU64,
    answered: AtomicU64,
    /// Clients that came only for one request.
    passers_by: AtomicU64,
}

impl Load {
    fn is_of(&self, generation: u32) -> bool {
        self.generation.load(Ordering::Relaxed) == generation && !self.ended.load(Ordering::Relaxed)
    }

    /// Writes transactions over connections that stay. Whatever fails, fails the test.
    async fn writes(self: Arc<Self>, number: u32) {
        while !self.ended.load(Ordering::Relaxed) {
            let generation = self.generation.load(Ordering::Relaxed);
            let mut client = self.log_in().await;
            self.connected.fetch_add(1, Ordering::Relaxed);
            while self.is_of(generation) {
                let transaction = client.transaction().await.expect("a transaction begins");
                for _ in 0..2 {
                    let insert = format!("INSERT INTO ledger VALUES ({number})");
                    transaction.batch_execute(&insert).await.expect("a row is written");
                }
                transaction.commit().await.expect("a transaction commits");
                self.committed.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(self.think).await;
            }
            self.connected.fetch_sub(1, Ordering::Relaxed);
        }
    }

    async fn log_in(&self) -> tokio_postgres::Client {
        let (client, connection) =
            tokio_postgres::connect(&self.dsn, NoTls).await.expect("the login succeeds");
        tokio::spawn(async move { connection.await.expect("the connection ends well") });
        client
    }

    /// Asks for pages over a connection that stays until the gate says that it ends.
    async fn browses(self: Arc<Self>) {
        while !self.ended.load(Ordering::Relaxed) {
            let generation = self.generation.load(Ordering::Relaxed);
            let mut socket = TcpStream::connect(&self.site).await.expect("the site accepts");
            self.connected.fetch_add(1, Ordering::Relaxed);
            while self.is_of(generation) {
                let head = page(&mut socket).await;
                self.answered.fetch_add(1, Ordering::Relaxed);
                if head.contains("connection: close") {
                    break;
                }
                tokio::time::sleep(self.think).await;
            }
            self.connected.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Comes, asks one thing and goes, again and again.
    async fn passes_by(self: Arc<Self>) {
        while !self.ended.load(Ordering::Relaxed) {
            let client = self.log_in().await;
            client.batch_execute("SELECT 1").await.expect("it runs");
            drop(client);
            let mut socket = TcpStream::connect(&self.site).await.expect("the site accepts");
            page(&mut socket).await;
            self.passers_by.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// One page; the head of the answer in lower case.
async fn page(socket: &mut TcpStream) -> String {
    socket.write_all(b"GET /page HTTP/1.1\r\nHost: site\r\n\r\n").await.expect("a request is sent");
    let mut answer = Vec::new();
    loop {
        let read = socket.read_buf(&mut answer).await.expect("an answer comes");
        assert!(read > 0, "the connection ended before an answer: {answer:?}");
        let text = String::from_utf8_lossy(&answer).to_ascii_lowercase();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        assert!(head.starts_with("http/1.1 200"), "{head}");
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
        if body.len() == length.and_then(|length| length.parse().ok()).unwrap_or(0) {
            return head.to_owned();
        }
    }
}

/// Lines for a gate with few connections, and a second gate before a site.
fn lines(origin: &Origin, site: u16) -> Vec<String> {
    [
        "name = \"db\"",
        "connections = 8",
        "long_limit = 0",
        "max_clients = 4000",
        "queue_timeout = \"5m\"",
        "login_timeout = \"2m\"",
        "[[gate]]",
        "name = \"site\"",
        "protocol = \"http\"",
        "queue_timeout = \"5m\"",
        "max_clients = 4000",
        &format!("listen = \"127.0.0.1:{site}\""),
        &format!("upstream = \"{}\"", origin.address),
    ]
    .map(str::to_owned)
    .to_vec()
}

fn size() -> (u32, u32) {
    let text = std::env::var("GATEKEEPER_HANDOVER").unwrap_or_else(|_| "60,3".to_owned());
    let (connections, times) = text.split_once(',').expect("CONNECTIONS,TIMES");
    (connections.parse().expect("a number"), times.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_nobody_is_refused_or_reset_and_no_transaction_is_lost_there_and_back() {
    let (connections, times) = size();
    rlimit::increase_nofile_limit(16_384).expect("files may be opened");
    let (server, origin, site) = (server(), Origin::start("site").await, free_port().expect("a port"));
    let mut gate = Gate::start(server.port(), &lines(&origin, site));
    session(&server, &gate).await.batch_execute("CREATE TABLE ledger (number int)").await.expect("it runs");
    let load = Arc::new(Load {
        dsn: server.dsn_through(gate.port()),
        think: THINK * connections,
        site: format!("127.0.0.1:{site}"),
        generation: AtomicU32::new(0),
        connected: AtomicU32::new(0),
        ended: AtomicBool::new(false),
        committed: AtomicU64::new(0),
        answered: AtomicU64::new(0),
        passers_by: AtomicU64::new(0),
    });
    let mut clients = JoinSet::new();
    for number in 0..connections / 2 {
        clients.spawn(Arc::clone(&load).writes(number));
        clients.spawn(Arc::clone(&load).browses());
    }
    for _ in 0..4 {
        clients.spawn(Arc::clone(&load).passes_by());
    }
    let deadline = Instant::now() + BOUND * times;
    // A client that failed has panicked; all others go on.
    let mut look = async |what: &str, is_so: &mut dyn FnMut() -> bool| {
        while !is_so() {
            assert!(Instant::now() < deadline, "never happened: {what}");
            tokio::select! {
                ended = clients.join_next() => panic!("a client has ended: {ended:?}"),
                () = tokio::time::sleep(Duration::from_millis(10)) => {}
            }
        }
    };
    for time in 1..=times {
        look("all are connected", &mut || load.connected.load(Ordering::Relaxed) >= connections).await;
        let before = load.passers_by.load(Ordering::Relaxed);
        let successor = tokio::task::spawn_blocking({
            let gate = Arc::new(gate);
            let shared = Arc::clone(&gate);
            move || (shared.succeed(), gate)
        });
        let (successor, predecessor) = successor.await.expect("it was tried");
        let successor = successor.unwrap_or_else(|(status, log)| panic!("{status}\n{log}"));
        // Newcomers are served meanwhile, and sessions of before too.
        let sent = load.committed.load(Ordering::Relaxed);
        look("newcomers are served", &mut || load.passers_by.load(Ordering::Relaxed) >= before + 8).await;
        look("sessions go on", &mut || {
            load.committed.load(Ordering::Relaxed) >= sent + u64::from(connections)
        })
        .await;
        // Applications renew their connections, and the predecessor ends by itself.
        load.generation.store(time, Ordering::Relaxed);
        let mut predecessor = Arc::into_inner(predecessor).expect("nobody else has it");
        look("the predecessor ends", &mut || predecessor.has_ended()).await;
        assert!(predecessor.wait().success(), "{}", predecessor.log_tail());
        gate = successor;
    }
    load.ended.store(true, Ordering::Relaxed);
    while let Some(ended) = clients.join_next().await {
        ended.expect("no client has failed");
    }
    let client = session(&server, &gate).await;
    let rows = client.query_one("SELECT count(*) FROM ledger", &[]).await.expect("it runs");
    let committed = load.committed.load(Ordering::Relaxed);
    assert_eq!(u64::try_from(rows.get::<_, i64>(0)).expect("a count"), 2 * committed);
    println!(
        "{times} handovers, {connections} connections: {committed} transactions, {} pages, {} passers-by",
        load.answered.load(Ordering::Relaxed),
        load.passers_by.load(Ordering::Relaxed)
    );
}

/// A successor, which serves.
fn succeeded(gate: &Gate) -> Gate {
    gate.succeed().unwrap_or_else(|(status, log)| panic!("{status}\n{log}\nbefore:\n{}", gate.log()))
}

/// Whether it serves sessions, and its admin socket is there.
async fn assert_serves(server: &PrivateServer, gate: &Gate) {
    session(server, gate).await.batch_execute("SELECT 1").await.expect("it runs");
    assert!(socket(gate).is_ok(), "the admin socket answers");
    gate.assert_alive();
}

fn socket(gate: &Gate) -> std::io::Result<StdUnixStream> {
    StdUnixStream::connect(gate.admin_socket().trim_start_matches("unix:"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_that_cannot_serve_takes_nothing_and_a_right_one_does_afterwards() {
    let server = server();
    let settings = |more: &str| vec!["connections = 3".to_owned(), more.to_owned()];
    let mut gate = Gate::start(server.port(), &settings(""));
    let held = session(&server, &gate).await;

    gate.reconfigure(&settings("conections = 3"));
    let (status, log) = gate.succeed().err().expect("its configuration is wrong");
    assert!(status.code() == Some(2) && log.contains("did you mean `connections`?"), "{log}");
    assert_serves(&server, &gate).await;

    let blocker = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = blocker.local_addr().expect("an address");
    let other = format!("[[gate]]\nname = \"other\"\nlisten = \"{taken}\"\nupstream = \"127.0.0.1:1\"");
    gate.reconfigure(&settings(&other));
    let (status, log) = gate.succeed().err().expect("an address is taken");
    assert!(status.code() == Some(1) && log.contains(&format!("cannot listen on {taken}")), "{log}");
    drop(blocker);
    assert_serves(&server, &gate).await;

    // Another version of the protocol, and one that takes everything and leaves.
    let answer = asked(&gate, "gatekeeper-handover/2");
    assert!(answer.contains("426") && answer.contains("was asked for gatekeeper-handover/2"), "{answer}");
    assert!(asked(&gate, "gatekeeper-handover/1").starts_with("HTTP/1.1 101"));
    assert_serves(&server, &gate).await;
    until("the log tells of it", async || gate.log().contains("no successor has taken over")).await;

    gate.reconfigure(&settings(""));
    let successor = succeeded(&gate);
    assert_serves(&server, &successor).await;
    held.batch_execute("SELECT 1").await.expect("a session of before goes on");
    assert!(!gate.has_ended(), "it serves its session");
    drop(held);
    assert!(gate.wait().success(), "{}", gate.log_tail());
    assert_serves(&server, &successor).await;
}

/// Asks for a handover by this protocol, and leaves once the head of an answer has come.
fn asked(gate: &Gate, protocol: &str) -> String {
    use std::io::{Read as _, Write as _};
    let mut socket = socket(gate).expect("it connects");
    let request = format!(
        "POST /takeover HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: {protocol}\r\nContent-Length: 0\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).expect("it is sent");
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    while !answer.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        let read = socket.read(&mut part).expect("an answer comes");
        assert!(read > 0, "no answer");
        answer.extend_from_slice(&part[..read]);
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_killed_halfway_leaves_the_old_one_serving() {
    let server = server();
    let gate = Gate::start(server.port(), &["connections = 3".to_owned()]);
    // Halfway: it has all sockets, and waits for a server that says nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    // The kernel gives ports from 32768 on to other tests.
    let mut ports = (20_000..32_000_u16).cycle().skip(std::process::id() as usize % 12_000).take(12_000);
    let is_free = |port: &u16| std::net::TcpListener::bind(("0.0.0.0", *port)).is_ok();
    let port = ports.find(is_free).expect("a port is free");
    let other = format!(
        "[[gate]]\nname = \"other\"\nlisten = \"0.0.0.0:{port}\"\nupstream = \"{}\"",
        silent.local_addr().expect("an address")
    );
    gate.reconfigure(&["connections = 3".to_owned(), other]);
    let mut successor = gate.begin_to_succeed();
    silent.set_nonblocking(true).expect("a mode");
    let mut held = None;
    until("it asks the server", async || {
        assert!(!successor.has_ended(), "{}", successor.log());
        held = silent.accept().ok();
        held.is_some()
    })
    .await;
    assert!(successor.log().contains("takes the sockets over"), "{}", successor.log());
    successor.signal("KILL");
    successor.wait();
    assert_serves(&server, &gate).await;
    gate.reconfigure(&["connections = 3".to_owned()]);
    let successor = succeeded(&gate);
    assert_serves(&server, &successor).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_learned_goes_along_and_cancels_reach_sessions_of_before() {
    let server = server();
    let mut gate = Gate::start(server.port(), &["connections = 3".to_owned()]);
    let client = session(&server, &gate).await;
    for _ in 0..20 {
        client.batch_execute("SELECT count(*) FROM pg_class").await.expect("it runs");
    }
    let knows = async |gate: &Gate| gate.types().to_string().contains("pg_class");
    until("it is learned", async || knows(&gate).await).await;
    let token = client.cancel_token();
    let sleeps = tokio::spawn(async move { client.batch_execute("SELECT pg_sleep(600)").await });
    until("it runs", async || gate.status()["in_flight"] == 1).await;

    let successor = succeeded(&gate);
    assert!(knows(&successor).await, "{}", successor.types());
    token.cancel_query(NoTls).await.expect("it is sent");
    let error = sleeps.await.expect("it ends").expect_err("it was canceled");
    assert_eq!(error.code().map(tokio_postgres::error::SqlState::code), Some("57014"), "{error}");
    assert!(gate.wait().success(), "{}", gate.log_tail());
    assert_serves(&server, &successor).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_found_goes_along_and_is_not_searched_anew() {
    let (server, directory) = (server(), tempfile::tempdir().expect("a temporary directory"));
    let file = directory.path().join("state.json");
    // What a gate of before has found: a search under load would take minutes.
    let found = "{\"format\":\"gatekeeper-state\",\"version\":1,\"gatekeeper\":\"0\",\"gate\":\"postgres\",\
                 \"written_unix_seconds\":1,\"mean_nanos\":1000000,\"requests\":9,\"types\":[],\
                 \"capacity_found\":23}";
    std::fs::write(&file, found).expect("it is written");
    let settings = [
        "connections = 60".to_owned(),
        "capacity = \"auto\"".to_owned(),
        format!("state_file = {:?}", file.display().to_string()),
    ];
    let mut gate = Gate::start(server.port(), &settings);
    assert_eq!(gate.status()["capacity_requests"], 23, "{}", gate.status());
    // Only the process knows it now.
    std::fs::remove_file(&file).expect("it is removed");
    let successor = succeeded(&gate);
    assert_eq!(successor.status()["capacity_requests"], 23, "{}", successor.status());
    assert!(gate.wait().success(), "{}", gate.log_tail());
    assert_serves(&server, &successor).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_handover_timeout_what_is_left_is_drained() {
    let server = server();
    let settings = ["connections = 3", "[process]", "handover_timeout = \"0s\""].map(str::to_owned);
    let mut gate = Gate::start(server.port(), &settings);
    let idle = session(&server, &gate).await;
    let successor = succeeded(&gate);
    assert!(gate.wait().success(), "{}", gate.log_tail());
    assert!(idle.batch_execute("SELECT 1").await.is_err());
    assert_serves(&server, &successor).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_nobody_runs_it_starts_as_usual() {
    let server = server();
    let mut gate = Gate::start(server.port(), &["connections = 3".to_owned()]);
    // Its socket's file is left behind.
    gate.signal("KILL");
    gate.wait();
    let successor = succeeded(&gate);
    assert!(successor.log().contains("no gatekeeper runs there"), "{}", successor.log());
    assert_serves(&server, &successor).await;
}
