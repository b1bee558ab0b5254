//! What others say HTTP/2 has to be: h2spec's cases (RFC 9113, RFC 7541) against the gate as a user runs
//! it, in the clear and with TLS. What fails must be listed here with its reason, and what is listed must
//! fail.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod support;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use support::certificates::Authority;
use support::origin::Origin;
use support::{Gate, build, target_directory, tests_directory};

/// The cases that fail, by their sentence.
const FAILING: [&str; 1] = [
    // Where HTTP/1.1 is served as well, what isn't HTTP/2's preface may be a request of HTTP/1.1. It is
    // answered as a bad one, with 400, and its connection is closed; h2spec takes the answer for a frame.
    // With TLS, where h2 was agreed on, too.
    "Sends invalid connection preface",
];
/// How many cases this version of h2spec has, strict ones included.
const CASES: usize = 146;

fn h2spec() -> &'static PathBuf {
    static EXECUTABLE: OnceLock<PathBuf> = OnceLock::new();
    EXECUTABLE.get_or_init(|| {
        let executable = target_directory().join("tmp/h2spec");
        let mut compiler = support::go_command();
        compiler.args(["build", "-mod=readonly", "-o"]).arg(&executable);
        compiler.arg("github.com/summerwind/h2spec/cmd/h2spec");
        build(compiler.current_dir(tests_directory().join("clients/h2spec")));
        executable
    })
}

/// Runs all cases against a gate with these lines.
async fn run(lines: &[String], arguments: &[&str]) {
    let origin = Origin::start("site").await;
    let gate = Gate::start(origin.address.port(), &[&["protocol = \"http\"".to_owned()], lines].concat());
    let ran = Command::new(h2spec())
        .args(["--host", "localhost", "--port", &gate.port().to_string(), "--strict", "--timeout", "30"])
        // Where the service hears a request to its end before it answers: an answer in the middle of what a
        // case sends would end the stream in its own way.
        .args(["--path", "/sum"])
        .args(arguments)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&ran.stdout);
    let (_, failures) = said.split_once("\nFailures:").unwrap_or(("", ""));
    let sentence =
        |line: &str| line.trim().strip_prefix("× ")?.split_once(": ").map(|(_, text)| text.to_owned());
    let failed: BTreeSet<String> = failures.lines().filter_map(sentence).collect();
    let expected: BTreeSet<String> = FAILING.map(str::to_owned).into();
    assert_eq!(failed, expected, "{said}");
    let counts = said.lines().last().unwrap_or_default();
    println!("{counts}");
    let passed = CASES - FAILING.len();
    assert_eq!(
        counts,
        format!("{CASES} tests, {passed} passed, 0 skipped, {} failed", FAILING.len()),
        "{said}"
    );
    gate.assert_alive();
}

#[tokio::test(flavor = "multi_thread")]
async fn h2spec_passes_in_the_clear() {
    run(&[], &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn h2spec_passes_with_tls() {
    let authority = Authority::new("the tests' authority");
    let (certificate, key) = authority.files("site", &authority.issue("site", &["localhost"]));
    let lines = [format!("tls_cert = {certificate:?}"), format!("tls_key = {key:?}")];
    run(&lines, &["--tls", "--insecure"]).await;
}
