//! Real clients, unmodified, through the gate for HTTP, in front of a real server (Go's): in the clear,
//! where the gate speaks HTTP/1.1 to it, and with TLS on both sides, where they agree on HTTP/2.
//!
//! Each client's checks are a program of its own under `tests/clients`, which prints one line per check and
//! stops at the first that fails. With `GATEKEEPER_TEST_DIRECT=1` the clients talk to the server itself:
//! every test must pass so. A client that is not installed fails its test: `make setup` installs it.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod support;

use std::path::PathBuf;
use std::process::Command;

use support::certificates::Authority;
use support::server_of_go::Server;
use support::{Gate, direct, run_to_its_end, target_directory, tests_directory, until};
use testbed::postgres::free_port;

/// Few, so that clients wait for one another.
const CONNECTIONS: u32 = 4;

fn sources(client: &str) -> PathBuf {
    tests_directory().join("clients").join(client)
}

/// A server, and two gates in front of it in one process unless the tests run against the server itself.
struct Site {
    origin: Server,
    authority: Authority,
    /// With the port of the one with TLS.
    gate: Option<(Gate, u16)>,
}

impl Site {
    fn start() -> Self {
        let authority = Authority::new("the tests' authority");
        let certificate = authority.files("site", &authority.issue("site", &["localhost", "127.0.0.1"]));
        let origin = Server::start(&certificate, None);
        let gate = (!direct()).then(|| {
            let port = free_port().expect("a free port");
            let own = |lines: &[String]| {
                let shared = [
                    "protocol = \"http\"".to_owned(),
                    format!("connections = {CONNECTIONS}"),
                    "long_limit = 0".to_owned(),
                ];
                [&shared, lines].concat()
            };
            let encrypted = own(&[
                "name = \"encrypted\"".to_owned(),
                format!("listen = \"127.0.0.1:{port}\""),
                format!("upstream = \"https://localhost:{}\"", origin.encrypted()),
                format!("upstream_tls_ca = {:?}", authority.path()),
                format!("tls_cert = {:?}", certificate.0),
                format!("tls_key = {:?}", certificate.1),
            ]);
            let plain = own(&["name = \"plain\"".to_owned()]);
            let lines = [plain, vec!["[[gate]]".to_owned()], encrypted].concat();
            (Gate::start(origin.plain(), &lines), port)
        });
        Self { origin, authority, gate }
    }

    /// Runs a client's checks; afterwards nothing may be left of them.
    async fn check(&self, mut program: Command) {
        let (plain, encrypted) = match &self.gate {
            Some((gate, encrypted)) => (gate.port(), *encrypted),
            None => (self.origin.plain(), self.origin.encrypted()),
        };
        program
            .env("SITE_URL", format!("http://127.0.0.1:{plain}"))
            .env("SITE_TLS_URL", format!("https://localhost:{encrypted}"))
            .env("SITE_CA", self.authority.path())
            .env("ORIGIN_URL", format!("http://127.0.0.1:{}", self.origin.plain()));
        let Some((gate, _)) = &self.gate else {
            println!("{}", run_to_its_end(program, String::new));
            return;
        };
        program.env("GATEKEEPER_PID", gate.pid().to_string());
        println!("{}", run_to_its_end(program, || gate.log_tail()));
        until("nothing waits or is in flight", async || {
            let all = gate.statuses();
            let is_nothing = |key: &str| all.iter().all(|status| status[key].as_u64() == Some(0));
            all.len() == 2 && is_nothing("queued") && is_nothing("in_flight")
        })
        .await;
    }
}

async fn python(client: &str) {
    let mut program = Command::new(target_directory().join("python/bin/python"));
    // Bytecode would be written beside the sources.
    program.arg("-B").arg(sources(client));
    Site::start().check(program).await;
}

#[tokio::test]
async fn curl_works_through_the_gate() {
    python("curl").await;
}

#[tokio::test]
async fn httpx_works_through_the_gate() {
    python("httpx").await;
}

#[tokio::test]
async fn wrk_and_h2load_count_no_error_through_the_gate() {
    python("load").await;
}

#[tokio::test]
async fn a_browser_loads_a_page_and_opens_a_websocket_through_the_gate() {
    python("browser").await;
}

#[tokio::test]
async fn net_http_works_through_the_gate() {
    let executable = support::go(&sources("go"), "http-client-checks");
    Site::start().check(Command::new(executable)).await;
}

#[tokio::test]
async fn java_net_http_works_through_the_gate() {
    let program = support::java(&sources("java"), &["Harness.java"], "http-client-classes");
    Site::start().check(program()).await;
}
