//! The exit status of `bookstore browse`, and the file that it writes.

#![expect(clippy::unwrap_used, reason = "a helper of tests fails like a test")]

use std::net::TcpListener;
use std::process::{Command, Output};

use bookstore::browse::Summary;

fn browse(site: &str, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bookstore"))
        .args(["browse", "--site", site])
        .args(more)
        .output()
        .unwrap()
}

/// A site that closes every connection, for as long as the test's process lives.
fn closing() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let site = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || listener.incoming().for_each(drop));
    site
}

const SHORT: [&str; 12] = [
    "--items",
    "100",
    "--customers",
    "100",
    "--browsers",
    "5",
    "--think-scale",
    "0.01",
    "--warm-up",
    "0s",
    "--duration",
    "1s",
];

#[test]
fn failed_requests_end_with_3_unless_they_are_allowed() {
    let site = closing();
    let directory = tempfile::tempdir().unwrap();
    let json = directory.path().join("summary.json");
    let failed = browse(&site, &[&SHORT[..], &["--json", json.to_str().unwrap()]].concat());
    assert_eq!(failed.status.code(), Some(3), "{failed:?}");
    let summary: Summary = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert!(summary.total.counts.failed > 0);
    assert_eq!(summary.total.counts.done, 0);
    assert!(String::from_utf8_lossy(&failed.stdout).contains("times HOME: "));
    let allowed = browse(&site, &[&SHORT[..], &["--allow-errors"]].concat());
    // 2 on a machine that is too busy.
    assert!(matches!(allowed.status.code(), Some(0 | 2)), "{allowed:?}");
}

#[test]
fn what_cannot_run_ends_with_1_and_says_why() {
    let site = closing();
    let cases: [(&[&str], &str); 5] = [
        (&["--browsers", "many"], "invalid value"),
        (&[], "who comes?"),
        (&["--browsers", "1"], "/scale"),
        (&["--schedule", "/nowhere.toml"], "reading /nowhere.toml"),
        (&["--phase", "1s:1", "--phase", "1s:1/s"], "don't mix"),
    ];
    for (flags, why) in cases {
        let ended = browse(&site, flags);
        assert!(ended.status.code() == Some(1), "{ended:?}");
        assert!(String::from_utf8_lossy(&ended.stderr).contains(why), "{ended:?}");
    }
    let tls = browse("https://shop.test", &["--browsers", "1"]);
    assert_eq!(tls.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&tls.stderr).contains("only http://"));
}
