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
use std::time::Duration;

use bench::load::{Connecting, Crowd, Group, Outcome, Target};
use bench::shop;
use browser::Page;
use support::{Gate, server, session, target_directory, until};
use testbed::database::Database;
use testbed::postgres::{PrivateServer, free_port};
use tokio_postgres::Client;

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
    assert!(page.value("document.found.passes.length").as_u64() > Some(10), "it has looked");
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
                    tokio::time::sleep(Duration::from_millis(5)).await;
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
        // Where one connection of several is free, only long requests leave it to others.
        page.value("import('/page/words.js').then((words) => { document.words = words; }); 0");
        page.until("document.words !== undefined");
        let waits = |lane: &str| {
            let pools = "{ paused: [], upstreams: [], connections: 4, connections_in_use: 3, pools: [1, 2],
                long_limit: null, capacity_requests: null, capacity_seconds: null }";
            format!("document.words.waitsFor({pools}, '{lane}')")
        };
        assert_eq!(page.value(&waits("long")), "a server connection that short requests leave free");
        let gained = "document.words.event({ text: 'another capacity: more is completed', lines: 1,
            facts: [['from', '4'], ['to', '8'], ['gain', 'many times as much']] })[0]";
        assert_eq!(page.value(gained), "Requests at once: 4 → 8. Many times as much is completed so.");
        assert_eq!(page.value(&waits("short")), "its turn, or a server connection of its user and database");
        let full = "{ paused: [], upstreams: [], long_limit: 2, long_in_flight: 4 }";
        let full = page.value(&format!("document.words.waitsFor({full}, 'long')"));
        assert!(full.as_str().is_some_and(|it| it.contains("4 run, 2 may start: others turned")), "{full}");
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
        page.until(
            "document.querySelector('#type .modes').textContent.includes('Asked for by: postgres 100 %')",
        );
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_part_of_the_page_tells_what_it_is_for() {
    let server = server();
    let (site, origin) = (free_port().expect("a port"), free_port().expect("a port"));
    let settings = [
        "name = \"shop\"".to_owned(),
        "connections = 4".to_owned(),
        "long_limit = 2".to_owned(),
        "[[gate]]\nname = \"site\"\nprotocol = \"http\"".to_owned(),
        format!("listen = \"127.0.0.1:{site}\"\nupstream = \"127.0.0.1:{origin}\""),
    ];
    let gate = Gate::start(server.port(), &settings);
    let (pinned, client) = (session(&server, &gate).await, session(&server, &gate).await);
    pinned.batch_execute("CREATE TEMP TABLE basket (item INT)").await.expect("it runs");
    // One type with two times that differ tenfold.
    let modes = async || {
        for seconds in ["0.002", "0.05"] {
            client.batch_execute(&format!("SELECT pg_sleep({seconds})")).await.expect("it runs");
        }
        let types = ureq::get(format!("http://{}/types", gate.admin_address())).call();
        let types = types.expect("types").body_mut().read_to_string().expect("a text");
        let types: serde_json::Value = serde_json::from_str(&types).expect("JSON");
        let all = types["gates"][0]["types"].as_array().cloned().unwrap_or_default();
        all.iter().any(|it| it["modes"].as_array().is_some_and(|modes| modes.len() == 2))
    };
    until("the type has two modes", modes).await;

    let mut page = Page::open(&format!("http://{}/", gate.admin_address()), (1440, 1700));
    page.until("document.body.dataset.ready === 'yes'");
    let curve = "[...document.querySelectorAll('#curves svg path.line')].some((it) => it.getAttribute('d').includes('L'))";
    page.until(curve);
    tells(&mut page, "#found", "Long lane");
    tells(&mut page, "#found", "The number is configured.");
    tells(&mut page, "#timeline", "Ready");
    tells(&mut page, "#upstream", "Addresses of the service");
    tells(&mut page, "#upstream", "kept by sessions: 1 by temporary table");
    let choose = |lane: &str| {
        format!(
            "{{ const it = document.querySelector('#lane'); it.value = '{lane}'; it.dispatchEvent(new Event('change')); 0 }}"
        )
    };
    let chips = "[...document.querySelectorAll('#types-table tbody .chip')].map((it) => it.textContent)";
    page.until(&format!("{chips}.includes('short')"));
    page.value(&choose("long"));
    page.until(&format!("!{chips}.includes('short')"));
    tells(&mut page, "#types-count", " of ");
    page.value(&choose(""));
    let opened = "[...document.querySelectorAll('#types-table tbody tr button.open')].find((it) => it.textContent.includes('pg_sleep'))";
    page.until(&format!("{opened} !== undefined"));
    page.value(&format!("{opened}.click()"));
    page.until("document.querySelector('#type').open");
    page.until("document.querySelectorAll('#type ul.modes li').length >= 2");
    tells(&mut page, "#type pre", "pg_sleep");
    tells(&mut page, "#type .facts", "fingerprint");
    tells(&mut page, "#type .quiet", "first saw the type");
    page.value("document.querySelector('#type').close()");
    click(&mut page, "#gates", "site");
    tells(&mut page, "#upstream", &format!("Clients connect at 127.0.0.1:{site}"));
    assert_clean(&page, &gate.admin_address());
}

/// Customers of the flash sale, until this is dropped.
struct Sale(tokio::task::JoinHandle<()>);

impl Sale {
    async fn start(server: &PrivateServer, gate: &Gate, customers: usize) -> Self {
        let admin = Target::parse(&server.dsn()).expect("an address").connect().await.expect("a session");
        shop::create(&admin).await.expect("the shop is there");
        let rows = shop::report_rows(&admin).await.expect("a report runs");
        let mix = Arc::new(shop::mix(Database::Postgres, rows).expect("it is described"));
        let target = Target::parse(&server.dsn_through(gate.port())).expect("an address").of("checkout");
        let mut crowd = Crowd {
            groups: vec![Group { target, mix, clients: customers, think: Duration::ZERO }],
            connecting: Connecting::Once,
            timeout: Duration::from_secs(60),
            warm_up: Duration::ZERO,
            window: Duration::from_secs(20),
            drain: Duration::from_secs(60),
            seed: 0,
        };
        Self(tokio::spawn(async move {
            loop {
                let sold = crowd.run(|_| ()).await.expect("they buy");
                let is_served = |outcome| outcome == Outcome::Completed;
                assert!(sold.groups[0].records.iter().all(|record| is_served(record.outcome)), "a failure");
                crowd.seed += 1;
            }
        }))
    }
}

impl Drop for Sale {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_the_flash_sale_a_viewer_finds_the_reports_and_why_they_wait() {
    let server = server();
    let gate = Gate::start(server.port(), &["name = \"shop\"", "connections = 20"].map(str::to_owned));
    let sale = Sale::start(&server, &gate, 60).await;
    for (width, looks) in [(1440, "light"), (1440, "dark"), (390, "light")] {
        let mut page = Page::open(&format!("http://{}/", gate.admin_address()), (width, 900));
        if looks == "dark" {
            page.darken();
        }
        page.until("document.body.dataset.ready === 'yes'");
        page.until("document.querySelectorAll('#types-table tbody tr').length >= 3");
        page.until("document.querySelector('#waiting').textContent.includes('waits for')");
        // A minute shows more of the curves than the first seconds do.
        if std::env::var_os("PAGE_PICTURES").is_some() {
            tokio::time::sleep(Duration::from_secs(45)).await;
        }
        keep(&format!("sale-{looks}-{width}.png"), &page.picture());
        assert_accessible(&mut page);
        click(&mut page, "#types-table th", "Mean");
        page.until("document.querySelector('#types-table tbody tr').textContent.includes('sales_history')");
        page.value("{ const it = document.querySelector('#search'); it.value = 'History'; it.dispatchEvent(new Event('input')); 0 }");
        page.until("document.querySelectorAll('#types-table tbody tr').length === 1");
        page.value("document.querySelector('#types-table tbody tr button.open').click()");
        tells(&mut page, "#type .why", "more than four times the mean of all requests");
        tells(&mut page, "#type .modes", "Asked for by: postgres (checkout) 100 %");
        keep(&format!("sale-type-{looks}-{width}.png"), &page.picture());
        assert_accessible(&mut page);
        assert_clean(&page, &gate.admin_address());
    }
    assert!(!sale.0.is_finished(), "the sale has failed");
}

/// Clicks the button with this text, once it is there.
fn click(page: &mut Page, within: &str, text: &str) {
    let found = format!(
        "[...document.querySelectorAll('{within} button')].find((it) => it.textContent === '{text}' && !it.disabled)"
    );
    page.until(&format!("{found} !== undefined"));
    page.value(&format!("{found}.click()"));
}

/// Waits for a text on the page.
fn tells(page: &mut Page, at: &str, text: &str) {
    page.until(&format!("document.querySelector('{at}').textContent.includes('{text}')"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_token_an_operator_acts_and_hears_before_what_will_happen() {
    let server = server();
    let settings = ["name = \"shop\"", "connections = 2"].map(str::to_owned);
    let gate = Gate::start(server.port(), &settings);
    let client = session(&server, &gate).await;
    client.batch_execute("SELECT 1").await.expect("it runs");
    let token = gate.take_token(&settings);
    for width in [1440, 390] {
        let mut page = Page::open(&format!("http://{}/", gate.admin_address()), (width, 900));
        page.until("document.body.dataset.ready === 'yes'");
        let unlock = |token: &str| {
            format!(
                "document.querySelector('#token').value = '{token}'; document.querySelector('#token-form').requestSubmit(); 0"
            )
        };
        // Nobody acts without the token.
        assert_eq!(page.value("document.querySelectorAll('#actions button').length"), 0);
        page.value(&unlock(&token.replace('0', "1")));
        tells(&mut page, "#token-said", "Not unlocked: this isn");
        assert_eq!(page.value("document.querySelectorAll('#actions button').length"), 0);
        page.value(&unlock(token));
        emergency(&mut page, &gate, width);
        another_bound(&mut page, &gate);
        pause(&mut page, &gate, &client).await;
        keep(&format!("act-{width}.png"), &page.picture());
        gate.signal("HUP");
        until("the reload took the bound back", async || gate.capacity("shop") == "auto").await;
    }
}

fn emergency(page: &mut Page, gate: &Gate, width: u32) {
    // It says first what will happen, and does nothing until that is confirmed.
    click(page, "#actions", "Emergency: pass everything through …");
    tells(page, "#act-dialog", "up to 2 at once");
    tells(page, "#act-dialog", "prevents overload no longer");
    keep(&format!("emergency-{width}.png"), &page.picture());
    assert_accessible(page);
    click(page, "#act-dialog", "Cancel");
    assert_eq!(gate.status()["passes_everything"], false);
    click(page, "#actions", "Emergency: pass everything through …");
    click(page, "#act-dialog", "Let everything pass");
    tells(page, "#act-dialog .said", "Done: everything passes");
    assert_eq!(gate.status()["passes_everything"], true);
    click(page, "#act-dialog", "Close");
    tells(page, "#verdict-title", "Emergency: everything passes");
    click(page, "#actions", "Let the gate decide again …");
    tells(page, "#act-dialog", "The configuration decides again");
    click(page, "#act-dialog", "Let it decide");
    tells(page, "#act-dialog .said", "Done: ");
    assert_eq!(gate.status()["passes_everything"], false);
    click(page, "#act-dialog", "Close");
}

fn another_bound(page: &mut Page, gate: &Gate) {
    let field = "document.querySelector('#act-dialog input')";
    let write =
        |text: &str| format!("{field}.value = '{text}'; {field}.dispatchEvent(new Event('input')); 0");
    click(page, "#actions", "Another bound …");
    page.until(&format!("{field}.value === 'auto'"));
    page.value(&write("lots"));
    tells(page, "#act-dialog", "Write an amount of work");
    click(page, "#act-dialog", "Set the bound");
    tells(page, "#act-dialog .said", "Not done: capacity = ");
    page.value(&write("200ms"));
    tells(page, "#act-dialog", "At most 200 ms of expected work is in flight");
    click(page, "#act-dialog", "Set the bound");
    tells(page, "#act-dialog .said", "Done.");
    assert_eq!(gate.capacity("shop"), "200ms");
    click(page, "#act-dialog", "Close");
}

/// A pause waits for what is in flight, and goes with its dialog until then.
async fn pause(page: &mut Page, gate: &Gate, client: &Client) {
    client.batch_execute("BEGIN; SELECT 1").await.expect("it runs");
    click(page, "#actions", "Pause …");
    tells(page, "#act-dialog", "New requests wait. The 1 in flight may end.");
    click(page, "#act-dialog", "Pause the gate");
    tells(page, "#act-dialog .said", "Waiting for the last request");
    until("it is held up", async || gate.status()["paused"][0] == "*").await;
    click(page, "#act-dialog", "Cancel");
    let is_taken_back = async || gate.status()["paused"].as_array().is_some_and(Vec::is_empty);
    until("the pause was taken back", is_taken_back).await;
    client.batch_execute("COMMIT").await.expect("it ends");
    click(page, "#actions", "Pause …");
    click(page, "#act-dialog", "Pause the gate");
    tells(page, "#act-dialog .said", "Done: paused");
    click(page, "#act-dialog", "Close");
    tells(page, "#verdict-title", "Paused");
    click(page, "#actions", "Resume …");
    click(page, "#act-dialog", "Resume");
    tells(page, "#act-dialog .said", "Done: resumed");
    click(page, "#act-dialog", "Close");
}
