//! Whether the service behind a gate is there: `/readyz?upstream`, `/status`, the metric and the log.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod support;

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;

use testbed::mariadb::PrivateMariadb;
use testbed::postgres::{PrivateServer, PrivateServerOptions, Stop, free_port};

use support::{Gate, until};

/// The status of `/readyz` with this query.
fn ready(gate: &Gate, query: &str) -> u16 {
    let url = format!("http://{}/readyz{query}", gate.admin_address());
    let answer = ureq::get(&url).config().http_status_as_error(false).build().call();
    answer.expect("the admin listener answers").status().as_u16()
}

fn metric(gate: &Gate, line: &str) -> bool {
    gate.metrics().lines().any(|told| told == line)
}

/// How many lines of the log are warnings that say so.
fn warnings(gate: &Gate, what: &str) -> usize {
    gate.log().lines().filter(|line| line.contains("level=warn") && line.contains(what)).count()
}

/// What is told of the only upstream of a gate.
struct Told<'a> {
    gate: &'a Gate,
    name: &'a str,
    address: String,
}

impl Told<'_> {
    async fn is_up(&self) {
        until("the upstream is known to be there", async || ready(self.gate, "?upstream") == 200).await;
        assert_eq!(self.gate.status()["upstreams"][0]["state"], "up");
        let Self { name, address, .. } = self;
        let up = format!("gatekeeper_upstream_up{{gate=\"{name}\",upstream=\"{address}\"}} 1.0");
        assert!(metric(self.gate, &up), "{}", self.gate.metrics());
    }

    async fn is_down(&self) {
        until("the upstream is known to be gone", async || ready(self.gate, "?upstream") == 503).await;
        assert_eq!(ready(self.gate, ""), 200, "the gate itself is well");
        assert_eq!(ready(self.gate, "?upstream=nobody"), 404);
        let told = self.gate.status()["upstreams"][0].clone();
        assert_eq!((told["state"].as_str(), told["address"].as_str()), (Some("down"), Some(&*self.address)));
        assert!(told["last_error"].as_str().is_some_and(|error| error.contains("refused")), "{told}");
        assert!(told["since_seconds"].as_f64().is_some_and(|since| (0.0..600.0).contains(&since)), "{told}");
        let Self { name, address, .. } = self;
        let up = format!("gatekeeper_upstream_up{{gate=\"{name}\",upstream=\"{address}\"}} 0.0");
        assert!(metric(self.gate, &up), "{}", self.gate.metrics());
    }

    fn has_warned_once_of_each(&self) {
        let warned = (warnings(self.gate, "is down"), warnings(self.gate, "is up again"));
        assert_eq!(warned, (1, 1), "{}", self.gate.log_tail());
        let of = format!(" gate={} upstream={} reason=", self.name, self.address);
        assert_eq!(warnings(self.gate, &of), 1, "{}", self.gate.log_tail());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_over_http_that_goes_is_told_of_though_nobody_asks_for_it() {
    // Connections are there once the kernel has them; nobody need accept them.
    let site = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let port = site.local_addr().expect("its address").port();
    let listens = format!("127.0.0.1:{}", free_port().expect("a free port"));
    let address = format!("127.0.0.1:{port}");
    let gate = Gate::start_between(&listens, &address, &["protocol = \"http\"".to_owned()]);
    let told = Told { gate: &gate, name: "http", address };
    told.is_up().await;
    drop(site);
    told.is_down().await;
    let _site = TcpListener::bind(("127.0.0.1", port)).expect("the port is still free");
    told.is_up().await;
    told.has_warned_once_of_each();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_goes_is_told_of_though_nobody_logs_in() {
    let mut server = PrivateServer::start(&PrivateServerOptions::default()).expect("PostgreSQL starts");
    let gate = Gate::start(server.port(), &[]);
    let told = Told { gate: &gate, name: "postgres", address: format!("127.0.0.1:{}", server.port()) };
    told.is_up().await;
    server.stop(Stop::Fast);
    told.is_down().await;
    server.start_again().expect("PostgreSQL starts again");
    told.is_up().await;
    told.has_warned_once_of_each();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_mysql_that_goes_is_told_of_though_nobody_logs_in() {
    let mut server = PrivateMariadb::start(&[]).expect("MariaDB starts");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("users.txt");
    std::fs::write(&file, format!("{:?} {:?}\n", server.user(), server.password())).expect("it is written");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("it can be closed");
    let settings =
        ["protocol = \"mysql\"".to_owned(), format!("users_file = {:?}", file.display().to_string())];
    let address = format!("127.0.0.1:{}", server.port());
    let listens = format!("127.0.0.1:{}", free_port().expect("a free port"));
    let gate = Gate::start_between(&listens, &address, &settings);
    let told = Told { gate: &gate, name: "mysql", address };
    told.is_up().await;
    // A session leaves an idle connection, whose end is noticed.
    let output = std::process::Command::new("mariadb")
        .args(["--no-defaults", "--user", server.user(), "--host=127.0.0.1", "--execute=SELECT 1"])
        .arg(format!("--port={}", gate.port()))
        .env("MYSQL_PWD", server.password())
        .output()
        .expect("the client runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    server.kill().expect("it is killed");
    told.is_down().await;
    server.start_again().expect("MariaDB starts again");
    told.is_up().await;
    told.has_warned_once_of_each();
    assert_eq!(warnings(&gate, "the server has ended connections"), 1, "{}", gate.log_tail());
}
