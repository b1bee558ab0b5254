//! What a build for release is guided by: every part of it runs through a real gate, and none is left out.

// Helpers of tests may panic too.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use bench::alternate::Display;
use bench::rehearsal::{self, Options};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rehearsal_has_both_protocols_with_tls_and_without_on_one_processor_and_on_all() {
    let report = rehearsal::run(&Options::new(Duration::from_millis(200)), &Display::new()).await.unwrap();
    for where_ in ["one processor", "all processors"] {
        for part in [
            "HTTP/1.1, 1 KB",
            "HTTP/1.1, 100 KB",
            "HTTP/1.1, some wait",
            "HTTP/1.1, refused",
            "HTTP/1.1 with TLS, 1 KB",
            "HTTP/1.1 with TLS, 100 KB",
            "HTTP/2 with TLS, 1 KB",
            "HTTP/2 with TLS, 100 KB",
            "PostgreSQL, simple",
            "PostgreSQL, extended",
            "PostgreSQL, prepared",
            "PostgreSQL with TLS, simple",
            "PostgreSQL with TLS, extended",
            "PostgreSQL with TLS, prepared",
        ] {
            let name = format!("{part}, {where_}");
            let (_, rate) = report.parts.iter().find(|(said, _)| *said == name).expect(&name);
            assert!(*rate > 0.0, "{name}: {rate}");
        }
    }
    assert!(report.text().contains("HTTP/2 with TLS, 1 KB, one processor"), "{}", report.text());
}
