//! The page of the admin listener in a real browser, on gates under load.
//!
//! With `PAGE_PICTURES=DIRECTORY` it leaves pictures there.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

#[path = "support/browser.rs"]
mod browser;
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bench::postgres::free_port;
use browser::Page;
use support::{Gate, server, session, target_directory};

/// The most that the page may be, without what its stream tells, in bytes.
const PAGE_BYTES_MAX: f64 = 200.0 * 1024.0;
const STATEMENTS: [&str; 4] = [
    "SELECT 1 AS quick",
    "SELECT pg_sleep(0.03)",
    "SELECT 2 AS other",
    "SELECT 1 AS \"<img src=x onerror=alert(1)>\"",
];

/// Fails where the browser has complained, or has asked another host; returns the bytes of the page's files.
fn assert_clean(page: &Page, address: &str) -> f64 {
    let mut bytes = 0.0;
    let mut streams = Vec::new();
    for event in page.events() {
        let (method, told) = (event["method"].as_str().unwrap_or_default(), &event["params"]);
        match method {
            "Runtime.exceptionThrown" => panic!("an exception: {event}"),
            "Log.entryAdded" if told["entry"]["level"] == "error" => panic!("an error: {event}"),
            "Runtime.consoleAPICalled" if told["type"] == "error" || told["type"] == "warning" => {
                panic!("the console: {event}")
            }
            "Network.requestWillBeSent" => {
                let url = told["request"]["url"].as_str().expect("an address");
                let is_ours = url.starts_with(&format!("http://{address}/")) || url.starts_with("data:");
                assert!(is_ours || url == "about:blank", "it asks another host: {url}");
                if url.ends_with("/page/events") || url.starts_with("data:") {
                    streams.push(told["requestId"].clone());
                }
            }
            "Network.dataReceived" if !streams.contains(&told["requestId"]) => {
                bytes += told["dataLength"].as_f64().unwrap_or(0.0);
            }
            _ => {}
        }
    }
    bytes
}

/// Fails where axe-core finds something serious.
fn assert_accessible(page: &mut Page) {
    let path = target_directory().join("node/node_modules/axe-core/axe.min.js");
    let axe = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}: `make setup` installs axe-core", path.display()));
    page.value(&format!("{axe}; 0"));
    page.value("axe.run().then((found) => { document.found = found; }); 0");
    page.until("document.found !== undefined");
    let serious =
        "JSON.stringify(document.found.violations.filter((it) => ['serious', 'critical'].includes(it.impact))
        .map((it) => [it.id, it.nodes.map((node) => node.html)]))";
    assert_eq!(page.value(serious), "[]");
    assert!(page.value("document.found.passes.length").as_u64() > Some(20), "it has looked");
}

fn keep(name: &str, picture: &[u8]) {
    assert!(picture.starts_with(b"\x89PNG"));
    if let Some(directory) = std::env::var_os("PAGE_PICTURES") {
        std::fs::write(std::path::Path::new(&directory).join(name), picture).expect("the picture is kept");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_sorts_searches_opens_a_type_and_says_why() {
    let server = server();
    let settings = ["name = \"shop\"", "connections = 2", "queue_max = 4"].map(str::to_owned);
    let gate = Gate::start(server.port(), &settings);
    let ends = Arc::new(AtomicBool::new(false));
    let mut load = tokio::task::JoinSet::new();
    for number in 0..12 {
        let client = session(&server, &gate).await;
        let ends = Arc::clone(&ends);
        load.spawn(async move {
            while !ends.load(Ordering::Relaxed) {
                // A full gate refuses some.
                if client.batch_execute(STATEMENTS[number % STATEMENTS.len()]).await.is_err() {
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                }
            }
        });
    }
    let address = gate.admin_address();
    for width in [1440, 390] {
        let mut page = Page::open(&format!("http://{address}/"), (width, 900));
        page.until("document.body.dataset.ready === 'yes'");
        page.until("document.querySelectorAll('#types-table tbody tr').length >= 4");
        page.until("document.querySelector('#verdict-title').textContent === 'It refuses requests'");
        page.until("document.querySelector('#refused').textContent.includes('the queue was full')");
        page.until("document.querySelector('#waiting').textContent.includes('waits for')");
        // Nothing stands beyond the right edge.
        let overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth";
        assert_eq!(page.value(overflow), 0, "at {width} pixels");
        // A text of strangers is a text.
        assert_eq!(page.value("document.querySelectorAll('#types-table img').length"), 0);
        page.until("document.querySelector('#types-table').textContent.includes('<img src=x')");
        // The slowest requests are there; a click tells the story of one.
        page.until("document.querySelectorAll('#why-list summary').length > 0");
        page.value("document.querySelector('#why-list summary').click()");
        page.until("document.querySelector('#why-list details[open]').textContent.includes('that had arrived later')");
        keep(&format!("page-{width}.png"), &page.picture());
        assert_accessible(&mut page);

        let click = |name: &str| {
            format!(
                "[...document.querySelectorAll('#types-table th button')].find((it) => it.textContent === '{name}').click()"
            )
        };
        page.value(&click("Mean"));
        page.until("document.querySelector('th[aria-sort=descending]').textContent === 'Mean'");
        let first = page.value("document.querySelector('#types-table tbody tr').textContent");
        assert!(first.as_str().is_some_and(|text| text.contains("pg_sleep")), "{first}");
        page.value(&click("Mean"));
        page.until("document.querySelector('th[aria-sort=ascending]').textContent === 'Mean'");
        page.value("{ const it = document.querySelector('#search'); it.value = 'PG_sleep'; it.dispatchEvent(new Event('input')); 0 }");
        page.until("document.querySelectorAll('#types-table tbody tr').length === 1");
        page.until("document.querySelector('#types-count').textContent.startsWith('1 of')");
        page.value("document.querySelector('#types-table tbody tr button.open').click()");
        page.until("document.querySelector('#type').open");
        page.until("document.querySelector('#type .why').textContent.includes('Expected to take')");
        keep(&format!("type-{width}.png"), &page.picture());
        assert_accessible(&mut page);
        let bytes = assert_clean(&page, &address);
        assert!(bytes > 10_000.0 && bytes <= PAGE_BYTES_MAX, "the page is {bytes} bytes");
    }
    ends.store(true, Ordering::Relaxed);
    while load.join_next().await.is_some() {}
}

#[test]
fn classes_with_goals_are_on_the_page() {
    let lines = [
        "protocol = \"http\"",
        "[[gate.class]]\nname = \"buyers\"\npath = \"/buy/*\"\ngoal = \"p95 150ms\"",
        "[[gate.class]]\nname = \"default\"\ngoal = \"wait 1s\"",
    ];
    let at = || format!("127.0.0.1:{}", free_port().expect("a port"));
    let gate = Gate::start_between(&at(), &at(), &lines.map(str::to_owned));
    let mut page = Page::open(&format!("http://{}/", gate.admin_address()), (1440, 900));
    page.until("document.querySelector('#upstream').textContent.includes('p95 150ms')");
    page.until("document.querySelector('#upstream').textContent.includes('wait 1000ms, idle')");
    assert_clean(&page, &gate.admin_address());
}
