//! The gate for HTTP as a user runs it: a process with a configuration, in front of a site.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod support;

use std::convert::Infallible;
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use testbed::postgres::free_port;
use tokio::net::TcpListener;
use tokio::task::{JoinSet, spawn_blocking};

use support::certificates::Authority;
use support::origin::{Origin, Told, ask, say, send};
use support::{Gate, until};

fn lines(lines: &[&str]) -> Vec<String> {
    [&["protocol = \"http\""], lines].concat().iter().map(|line| (*line).to_owned()).collect()
}

/// A gate in front of a site, with these lines of its own.
fn gate(origin: &Origin, more: &[&str]) -> Gate {
    Gate::start(origin.address.port(), &lines(more))
}

/// Requests that are sent at the same time, each over a connection of its own.
struct Asking(JoinSet<Option<Told>>);

impl Asking {
    fn start(gate: &Gate, count: usize, path: &'static str) -> Self {
        let port = gate.port();
        Self(
            (0..count)
                .map(|_| async move { spawn_blocking(move || ask(port, path, &[])).await.expect("it runs") })
                .collect(),
        )
    }

    /// Waits for all of them: none may be lost.
    async fn all(self) -> Vec<Told> {
        let told = self.0.join_all().await;
        told.into_iter().map(|told| told.expect("a response")).collect()
    }
}

/// What runs in the background of a test.
struct Background(Child);

impl Drop for Background {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn until_there_are(gate: &Gate, queued: u64, in_flight: u64) {
    let there = async || {
        let status = gate.status();
        (status["queued"].as_u64(), status["in_flight"].as_u64()) == (Some(queued), Some(in_flight))
    };
    until("so many wait and are in flight", there).await;
}

fn types(gate: &Gate) -> Vec<String> {
    let types = gate.types();
    let types = types.as_array().expect("a list").iter();
    types.map(|row| row["type"].as_str().expect("a name").to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn one_line_puts_it_in_front_of_a_site_that_knows_nothing_of_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("page.html"), "<p>hello").unwrap();
    let (site, listen, admin) = (free_port().unwrap(), free_port().unwrap(), free_port().unwrap());
    let origin = Command::new("python3")
        .args(["-m", "http.server", "--bind", "127.0.0.1", &site.to_string()])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("python3 serves a directory");
    let _origin = Background(origin);
    let own = Command::new(env!("CARGO_BIN_EXE_gatekeeper"))
        .args(["run", "--protocol", "http", "--upstream", &format!("127.0.0.1:{site}")])
        .args(["--listen", &format!("127.0.0.1:{listen}"), "--admin", &format!("127.0.0.1:{admin}")])
        .stderr(Stdio::null())
        .spawn()
        .expect("the gatekeeper starts");
    let _own = Background(own);
    until("the site answers through the gate", async || {
        ask(listen, "/page.html", &[])
            .is_some_and(|told| (told.status, told.body.as_str()) == (200, "<p>hello"))
    })
    .await;
    assert_eq!(ask(listen, "/absent", &[]).unwrap().status, 404);
    let shown = Command::new(env!("CARGO_BIN_EXE_gatekeeper"))
        .args(["types", "--admin", &format!("127.0.0.1:{admin}")])
        .output()
        .expect("it runs");
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("GET /*"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_much_is_refused_and_the_admin_listener_answers_meanwhile() {
    let origin = Origin::start("site").await;
    let page = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(page.path(), "<h1>Busy</h1>").unwrap();
    let page = format!("error_page = {:?}", page.path());
    let gate = gate(&origin, &["connections = 1", "queue_max = 1", &page]);
    let first = Asking::start(&gate, 1, "/held");
    until_there_are(&gate, 0, 1).await;
    let second = Asking::start(&gate, 1, "/held");
    until_there_are(&gate, 1, 1).await;

    let refused = ask(gate.port(), "/", &[]).unwrap();
    assert_eq!((refused.status, refused.field("x-gatekeeper")), (503, Some("queue_full")));
    assert!(refused.field("retry-after").is_some());
    let problem: Value = serde_json::from_str(&refused.body).unwrap();
    assert_eq!(problem["reason"], "queue_full");
    let waited_for = "The request was not begun. The only server connection is busy.";
    assert_eq!(problem["detail"], waited_for);
    let refused = ask(gate.port(), "/", &["Content-Type: application/grpc"]).unwrap();
    assert_eq!((refused.status, refused.field("grpc-status")), (200, Some("14")));
    assert_eq!(refused.field("grpc-message"), Some(waited_for.to_lowercase().as_str()), "fields are read so");
    assert!(refused.field("grpc-retry-pushback-ms").is_some());
    let refused = ask(gate.port(), "/", &["Accept: text/html"]).unwrap();
    assert_eq!((refused.status, refused.body.as_str()), (503, "<h1>Busy</h1>"));
    gate.assert_alive();
    assert!(gate.metrics().contains("gatekeeper_rejections_total"), "{}", gate.metrics());
    assert_eq!(gate.status()["upstream"], origin.address.to_string());

    origin.let_go(2);
    let told: Vec<Told> = first.all().await.into_iter().chain(second.all().await).collect();
    assert!(told.iter().all(|told| told.status == 200), "{told:?}");
    assert_eq!(origin.asked(), 2, "a refused request costs the site nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_lets_requests_wait_until_somebody_resumes() {
    let origin = Origin::start("site").await;
    let gate = gate(&origin, &["queue_timeout = \"1h\"", "queue_max = 2"]);
    let command = |name: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gatekeeper"));
        command.args([name, "--admin", &gate.admin_socket()]).status().unwrap().code()
    };
    assert_eq!(command("pause"), Some(0));
    assert_eq!(gate.status()["paused"], serde_json::json!(["*"]));
    assert_eq!(command("pause"), Some(1));
    let held = Asking::start(&gate, 2, "/");
    until_there_are(&gate, 2, 0).await;
    let refused: Value = serde_json::from_str(&ask(gate.port(), "/", &[]).unwrap().body).unwrap();
    let told = "The request was not begun. An operator has paused requests.";
    assert_eq!((&refused["reason"], &refused["detail"]), (&"queue_full".into(), &told.into()));
    assert_eq!(command("resume"), Some(0));
    assert!(held.all().await.iter().all(|told| told.status == 200));
    assert_eq!(gate.status()["paused"], serde_json::json!([]));
    assert_eq!(command("resume"), Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_takes_no_descriptor_beside_that_of_the_connection() {
    let origin = Origin::start("site").await;
    let gate = gate(&origin, &["connections = 1", "long_limit = 0"]);
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", gate.pid())).unwrap().count();
    let first = Asking::start(&gate, 1, "/held");
    until_there_are(&gate, 0, 1).await;
    let before = descriptors();
    let waiting = Asking::start(&gate, 40, "/held");
    until_there_are(&gate, 40, 1).await;
    // Some more or fewer are the admin listener's.
    let taken = descriptors() - before;
    assert!((30..60).contains(&taken), "{taken} descriptors for 40 that wait");
    origin.let_go(41);
    let told: Vec<Told> = first.all().await.into_iter().chain(waiting.all().await).collect();
    assert!(told.iter().all(|told| told.status == 200), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_loses_no_request() {
    let origin = Origin::start("site").await;
    let mut gate = gate(&origin, &["connections = 2", "long_limit = 0"]);
    let asking = Asking::start(&gate, 20, "/held");
    until_there_are(&gate, 18, 2).await;
    gate.signal("TERM");
    let port = gate.port();
    until("nobody is let in any more", async || TcpStream::connect(("127.0.0.1", port)).is_err()).await;
    origin.let_go(20);
    let told = asking.all().await;
    assert!(told.iter().all(|told| told.status == 200), "{told:?}\n{}", gate.log_tail());
    assert!(gate.wait().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_moves_to_other_endpoints_and_loses_no_request() {
    let (old, new) = (Origin::start("old").await, Origin::start("new").await);
    let gate = gate(&old, &["connections = 3", "long_limit = 0"]);
    let held = Asking::start(&gate, 1, "/held");
    until_there_are(&gate, 0, 1).await;
    let before = Asking::start(&gate, 50, "/page").all().await;
    assert!(before.iter().all(|told| told.body.starts_with("old ")), "{before:?}");
    gate.reconfigure_upstream(new.address.port(), &lines(&["connections = 4", "queue_max = 70"]));
    gate.signal("HUP");
    let during = Asking::start(&gate, 50, "/page").all().await;
    assert!(during.iter().all(|told| told.status == 200), "{during:?}\n{}", gate.log_tail());
    until("requests go to the new one", async || {
        ask(gate.port(), "/page", &[]).is_some_and(|told| told.body.starts_with("new "))
    })
    .await;
    old.let_go(1);
    assert_eq!(held.all().await[0].body, "old /held 0", "what is under way stays where it is");
    assert_eq!(gate.status()["connections"], 4);
    assert_eq!(gate.status()["upstream"], new.address.to_string());

    gate.reconfigure_upstream(old.address.port(), &lines(&["health_check = 5"]));
    gate.signal("HUP");
    until("the mistake is told", async || gate.log().contains("nothing has changed")).await;
    assert!(ask(gate.port(), "/", &[]).unwrap().body.starts_with("new "));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_has_files_served_from_another_directory_and_refuses_one_that_is_missing() {
    let origin = Origin::start("site").await;
    let files = tempfile::TempDir::new().unwrap();
    for name in ["old", "new"] {
        std::fs::create_dir(files.path().join(name)).unwrap();
        std::fs::write(files.path().join(name).join("page.html"), name).unwrap();
    }
    let route = |name: &str| {
        let directory = format!("static = {:?}", files.path().join(name));
        lines(&["[[gate.route]]", "path = \"/files/**\"", &directory])
    };
    let port = origin.address.port();
    let gate = Gate::start(port, &route("old"));
    let page = || ask(gate.port(), "/files/page.html", &[]).unwrap();
    assert_eq!((page().status, page().body.as_str()), (200, "old"));
    assert!(ask(gate.port(), "/page", &[]).unwrap().body.starts_with("site "));
    gate.reconfigure_upstream(port, &route("new"));
    gate.signal("HUP");
    until("the new file is served", async || page().body == "new").await;
    gate.reconfigure_upstream(port, &route("none"));
    gate.signal("HUP");
    until("the mistake is told", async || gate.log().contains("nothing has changed")).await;
    let log = gate.log();
    assert!(log.contains("can't be served: ") && log.contains("No such file"), "{log}");
    assert_eq!(page().body, "new");
    gate.reconfigure_upstream(port, &lines(&[]));
    gate.signal("HUP");
    until("the site answers", async || page().body.starts_with("site ")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_brings_another_certificate() {
    let origin = Origin::start("site").await;
    let (first, second) = (Authority::new("the first"), Authority::new("the second"));
    let issued = first.issue("site", &["localhost"]);
    let (certificate, key) = first.files("site", &issued);
    let tls = [format!("tls_cert = {certificate:?}"), format!("tls_key = {key:?}")];
    let gate = gate(&origin, &[&tls[0], &tls[1]]);
    let through = |authority: &Authority| {
        let socket = TcpStream::connect(("127.0.0.1", gate.port())).unwrap();
        say(&mut authority.connect(socket, Some("http/1.1"), None), "/", &[])
    };
    assert_eq!(through(&first).expect("a response").body, "site / 0");
    assert!(through(&second).is_none(), "a client that trusts another isn't served");
    assert_eq!(ask(gate.port(), "/", &[]).map(|told| told.status), None, "nor one without TLS");

    let issued = second.issue("site", &["localhost"]);
    std::fs::write(&certificate, &issued.certificate).unwrap();
    std::fs::write(&key, &issued.key).unwrap();
    gate.signal("HUP");
    until("the new certificate is shown", async || through(&second).is_some()).await;
    assert!(through(&first).is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn types_are_named_by_routes_and_by_the_application() {
    let origin = Origin::start("site").await;
    let routes = [
        "[[gate.route]]",
        "path = \"/cart/*\"",
        "[[gate.route]]",
        "path = \"/static/**\"",
        "name = \"files\"",
    ];
    let gate = gate(&origin, &routes);
    for path in ["/cart/7", "/static/a/b.css", "/called/checkout", "/other/secret"] {
        let told = ask(gate.port(), path, &[]).unwrap();
        assert_eq!((told.status, told.field("x-gatekeeper-type")), (200, None));
    }
    // What a response says holds from the next request on.
    ask(gate.port(), "/called/checkout", &[]).unwrap();
    let known = types(&gate);
    for name in ["/cart/*", "files", "checkout", "GET /*/*"] {
        assert!(known.iter().any(|known| known == name), "{name} in {known:?}");
    }
    assert!(!known.iter().any(|known| known.contains("secret")), "{known:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_that_observes_lets_everything_pass_and_counts() {
    let origin = Origin::start("site").await;
    let gate = gate(&origin, &["mode = \"observe\"", "connections = 1", "queue_max = 1"]);
    let asking = Asking::start(&gate, 10, "/held");
    until("all are at the site", async || origin.asked() == 10).await;
    origin.let_go(10);
    let told = asking.all().await;
    assert!(told.iter().all(|told| told.status == 200));
    let observed = |what: &str| {
        let is_so =
            |told: &&Told| told.field("x-gatekeeper-observed").is_some_and(|said| said.starts_with(what));
        told.iter().filter(is_so).count()
    };
    assert_eq!(observed("rejected;reason=queue_full"), 8, "{told:?}");
    assert_eq!(observed("dispatched;dur=") + observed("waiting;dur="), 2, "{told:?}");
    assert_eq!(gate.status()["mode"], "observe");
    let would = |line: &&str| line.starts_with("gatekeeper_rejections_total") && !line.ends_with(" 0");
    assert!(gate.metrics().lines().any(|line| would(&line)), "{}", gate.metrics());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_deadline_passes_while_it_waits_never_reaches_the_site() {
    let origin = Origin::start("site").await;
    let gate = gate(&origin, &["connections = 1"]);
    let first = Asking::start(&gate, 1, "/held");
    until_there_are(&gate, 0, 1).await;
    for deadline in ["X-Request-Timeout: 50ms", "grpc-timeout: 50m", "X-Client-Timeout-Ms: 50"] {
        let told = ask(gate.port(), "/", &[deadline]).unwrap();
        assert_eq!((told.status, told.field("x-gatekeeper")), (504, Some("deadline")), "{deadline}");
    }
    origin.let_go(1);
    assert_eq!(first.all().await[0].status, 200);
    assert_eq!(origin.asked(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_a_gate_decides_by_it_serves_a_site() {
    let origin = Origin::start("site").await;
    for policy in [
        "target = \"10s\"",
        "target_p95 = \"10s\"",
        "rejection = \"deadline\"",
        "rejection = \"yaksha\"\ntarget = \"10s\"",
        "capacity = \"auto\"\ncontention = \"auto\"",
        "capacity = \"20s\"\norder = \"fifo\"",
        "cost = \"steady\"\naging = \"none\"\nlong_limit = 2",
    ] {
        let gate = gate(&origin, &["connections = 4", policy]);
        let told = Asking::start(&gate, 20, "/page").all().await;
        assert!(told.iter().all(|told| told.status == 200), "{policy}\n{told:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_too_large_are_refused() {
    let origin = Origin::start("site").await;
    let gate = gate(&origin, &["header_max = 4096", "body_max = 10"]);
    let field = format!("X-Long: {}", "x".repeat(5_000));
    assert_eq!(ask(gate.port(), "/", &[&field]).unwrap().status, 431);
    let post = |body: &str| {
        let text = format!("POST / HTTP/1.1\r\nHost: site\r\nConnection: close\r\n{body}");
        send(gate.port(), &text).unwrap().status
    };
    assert_eq!(post("Content-Length: 10\r\n\r\n0123456789"), 200);
    assert_eq!(post("Content-Length: 11\r\n\r\n0123456789a"), 413);
    assert_eq!(post("Transfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n1\r\na\r\n0\r\n\r\n"), 413);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_learned_is_kept_and_what_was_asked_is_written_down() {
    let origin = Origin::start("site").await;
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let keys = [
        format!("state_file = {:?}", file("state.json")),
        format!("trace_file = {:?}", file("trace")),
        format!("access_log = {:?}", file("log.json")),
        "server_timing = true".to_owned(),
        "[[gate.route]]\npath = \"/page\"".to_owned(),
    ];
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let mut first = gate(&origin, &keys);
    for told in Asking::start(&first, 20, "/page").all().await {
        assert!(told.field("server-timing").is_some_and(|timing| timing.starts_with("gate;dur=")));
    }
    first.signal("TERM");
    assert!(first.wait().success());
    let log = std::fs::read_to_string(file("log.json")).unwrap();
    assert_eq!(log.lines().count(), 20, "{log}");
    for line in log.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!((&line["type"], &line["status"]), (&Value::from("/page"), &Value::from(200)));
    }
    let second = gate(&origin, &keys);
    assert_eq!(types(&second), ["/page"], "{}", second.log_tail());
    let replayed =
        Command::new(env!("CARGO_BIN_EXE_gatekeeper")).arg("replay").arg(file("trace.1")).output().unwrap();
    let said = String::from_utf8_lossy(&replayed.stdout).into_owned();
    assert!(replayed.status.success(), "{said}{}", String::from_utf8_lossy(&replayed.stderr));
}

/// An application that puts what the gate calls its requests into the comments of its statements.
async fn application(database: tokio_postgres::Client) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    let database = Arc::new(database);
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.expect("a client");
            let database = Arc::clone(&database);
            let service = service_fn(move |request: Request<Incoming>| {
                let database = Arc::clone(&database);
                async move {
                    let route = request.headers()["x-gatekeeper-type"].to_str().expect("text");
                    let encoded: String = route.bytes().map(|byte| format!("%{byte:02X}")).collect();
                    let sql = format!("SELECT 'page' /*route='{encoded}'*/");
                    let rows = database.simple_query(&sql).await.map(|rows| rows.len()).unwrap_or_default();
                    Ok::<_, Infallible>(Response::new(Full::<Bytes>::from(format!("{rows}"))))
                }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), service));
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn the_statements_of_a_page_show_under_the_pages_type() {
    let server = support::server();
    let database = Gate::start(server.port(), &[]);
    let port = application(support::session(&server, &database).await).await;
    let keys = ["pass_type = true", "[[gate.route]]", "path = \"/product/*\"", "name = \"Product Detail\""];
    let site = Gate::start(port, &lines(&keys));
    for path in ["/product/7", "/product/8"] {
        let told = ask(site.port(), path, &["X-Gatekeeper-Type: forged"]).unwrap();
        assert!(told.status == 200 && told.body != "0", "{told:?}");
    }
    assert_eq!(types(&site), ["Product Detail"]);
    let known = types(&database);
    assert!(known.contains(&"postgres: Product Detail".to_owned()), "{known:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn gates_of_both_protocols_stand_in_one_process() {
    let origin = Origin::start("site").await;
    let server = support::server();
    let listen = free_port().unwrap();
    let listen_line = format!("listen = \"127.0.0.1:{listen}\"");
    let upstream = format!("upstream = \"{}\"", origin.address);
    let gate = Gate::start(
        server.port(),
        &[
            "name = \"database\"",
            "[[gate]]",
            "protocol = \"http\"",
            "name = \"site\"",
            &listen_line,
            &upstream,
        ]
        .map(str::to_owned),
    );
    let session = support::session(&server, &gate).await;
    let row = session.query_one("SELECT 41 + 1", &[]).await.unwrap();
    assert_eq!(row.get::<_, i32>(0), 42);
    assert_eq!(ask(listen, "/page", &[]).unwrap().body, "site /page 0");
    let metrics = gate.metrics();
    for name in ["database", "site"] {
        assert!(metrics.contains(&format!("gate=\"{name}\"")), "{metrics}");
    }
}
