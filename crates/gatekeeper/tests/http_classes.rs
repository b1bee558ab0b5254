//! Service classes of a gate for HTTP as a user runs it: which requests belong to which class, and which are
//! refused for others.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod support;

use serde_json::Value;
use tokio::task::{JoinHandle, spawn_blocking};

use support::collector::{Collector, word};
use support::origin::{Origin, Told, ask};
use support::{Gate, until};

const TWO: &str = r#"
[[gate.class]]
name = "gold"
weight = 3
path = "/held/gold"

[[gate.class]]
name = "lead"
path = ["/held/lead", "/lead/**"]
"#;

fn gate(origin: &Origin, keys: &[&str]) -> Gate {
    Gate::start(origin.address.port(), &lines(keys))
}

fn lines(keys: &[&str]) -> Vec<String> {
    [&["protocol = \"http\"", "long_limit = 0"], keys]
        .concat()
        .iter()
        .map(|line| (*line).to_owned())
        .collect()
}

fn start(gate: &Gate, path: &'static str, field: Option<&'static str>) -> JoinHandle<Told> {
    let port = gate.port();
    spawn_blocking(move || ask(port, path, field.as_slice()).expect("a response"))
}

async fn until_there_are(gate: &Gate, queued: u64, in_flight: u64) {
    let there = async || {
        let status = gate.status();
        (status["queued"].as_u64(), status["in_flight"].as_u64()) == (Some(queued), Some(in_flight))
    };
    until("so many wait and are in flight", there).await;
}

/// One number of one class in `/status`.
fn of(gate: &Gate, class: &str, key: &str) -> Option<f64> {
    let status = gate.status();
    let classes = status["classes"].as_array().expect("a list");
    classes.iter().find(|known| known["class"] == class).and_then(|known| known[key].as_f64())
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_for_more_than_its_share_is_told_so_while_others_are_served() {
    let origin = Origin::start("site").await;
    let gate = gate(&origin, &["connections = 1", "queue_max = 2", TWO]);
    let first = start(&gate, "/held/lead", None);
    until_there_are(&gate, 0, 1).await;
    let second = start(&gate, "/held/lead", None);
    until_there_are(&gate, 1, 1).await;
    let third = start(&gate, "/held/lead", None);
    until_there_are(&gate, 2, 1).await;

    let alone = ask(gate.port(), "/held/lead", &[]).unwrap();
    assert_eq!(
        (alone.status, alone.field("x-gatekeeper")),
        (503, Some("queue_full")),
        "nobody else is there"
    );

    let gold = start(&gate, "/held/gold", None);
    let told = third.await.unwrap();
    assert_eq!((told.status, told.field("x-gatekeeper")), (429, Some("over_share")), "it makes room");
    assert!(told.field("retry-after").is_some_and(|after| after.parse::<u64>().is_ok_and(|after| after > 0)));
    let problem: Value = serde_json::from_str(&told.body).unwrap();
    assert_eq!((&problem["status"], &problem["reason"]), (&Value::from(429), &Value::from("over_share")));

    let told = ask(gate.port(), "/lead/x", &["Content-Type: application/grpc"]).unwrap();
    assert_eq!((told.status, told.field("grpc-status")), (200, Some("8")));
    assert!(told.field("grpc-retry-pushback-ms").is_some_and(|after| after.parse::<u64>().is_ok()));
    assert_eq!(told.field("x-gatekeeper"), Some("over_share"));

    assert_eq!(
        (of(&gate, "lead", "over_share_total"), of(&gate, "gold", "rejected_total")),
        (Some(2.0), Some(0.0))
    );
    assert_eq!((of(&gate, "lead", "rejected_total"), of(&gate, "lead", "queued")), (Some(3.0), Some(1.0)));
    let metrics = gate.metrics();
    for line in [
        "gatekeeper_class_over_share_total{gate=\"http\",class=\"lead\"} 2",
        "gatekeeper_class_weight{gate=\"http\",class=\"gold\"} 3",
        "reason=\"over_share\"",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    origin.let_go(3);
    for served in [first, second, gold] {
        assert_eq!(served.await.unwrap().status, 200);
    }
    assert_eq!(origin.asked(), 3, "a refused request costs the site nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_belong_to_classes_by_path_host_field_and_network() {
    let origin = Origin::start("site").await;
    let folder = tempfile::tempdir().unwrap();
    let (_collector, collector) = Collector::start().await;
    let log = folder.path().join("log.json");
    let keys = [
        format!("access_log = {log:?}"),
        format!("otlp = \"http://{collector}\""),
        "trusted_proxies = [\"127.0.0.1\", \"10.0.0.0/8\"]".to_owned(),
        r#"
            [[gate.class]]
            name = "api"
            path = "/api/**"
            [[gate.class]]
            name = "tenant"
            header = ["X-Tenant: gold", "x-vip"]
            [[gate.class]]
            name = "sites"
            host = "*.shop.example"
            [[gate.class]]
            name = "partner"
            network = "192.0.2.0/24"
            [[gate.class]]
            name = "default"
            weight = 0.5
        "#
        .to_owned(),
    ];
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let mut gate = gate(&origin, &keys);
    let asked: [(&str, &[&str], &str); 8] = [
        ("/api/7", &["X-Tenant: gold"], "api"),
        ("/x", &["X-Tenant: gold"], "tenant"),
        ("/x", &["X-Tenant: lead"], "default"),
        ("/x", &["X-Vip: "], "tenant"),
        ("http://A.Shop.Example:81/x", &[], "sites"),
        ("/x", &["X-Forwarded-For: 192.0.2.7, 10.1.1.1"], "partner"),
        ("/x", &["X-Forwarded-For: 192.0.2.7, 198.51.100.1"], "default"),
        ("/x", &[], "default"),
    ];
    for (path, fields, class) in asked {
        let before = of(&gate, class, "dispatched_total").unwrap_or(0.0);
        assert_eq!(ask(gate.port(), path, fields).unwrap().status, 200);
        let after = of(&gate, class, "dispatched_total");
        assert_eq!(after, Some(before + 1.0), "{path} {fields:?} should be of {class}");
    }
    assert_eq!(of(&gate, "default", "weight"), Some(0.5));
    gate.signal("TERM");
    assert!(gate.wait().success());
    let log = std::fs::read_to_string(&log).unwrap();
    let logged = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["class"].clone());
    assert!(logged.eq(asked.map(|(_, _, class)| Value::from(class))), "{log}");
}

/// Table 1 of *Self-managing web servers* (2005): rules by the server's address and port, and by the client's
/// network. A gate has the former in `listen`, its classes have the latter. Where two rules fit, the paper
/// doesn't say which one holds; here the narrower one stands first.
#[tokio::test(flavor = "multi_thread")]
async fn the_rules_of_table_1_are_a_gate_for_each_port_and_a_class_for_each_network() {
    let origin = Origin::start("site").await;
    let start = |delay: &str| {
        let classes = format!(
            r#"
                [[gate.class]]
                name = "partners"
                network = "112.3.4.0/24"
                goal = "100/s"
                [[gate.class]]
                name = "default"
                goal = "{delay}"
            "#
        );
        gate(&origin, &["trusted_proxies = \"127.0.0.1\"", &classes])
    };
    let goal = |gate: &Gate, class: &str| {
        let status = gate.status();
        let classes = status["classes"].as_array().expect("a list");
        let known = classes.iter().find(|known| known["class"] == class).expect("the class");
        known["goal"].as_str().map(str::to_owned)
    };
    // Ports 80 and 21.
    for delay in ["200ms", "1000ms"] {
        let gate = start(delay);
        for (client, class, promised) in [
            ("112.3.4.9", "partners", "100/s"),
            ("112.3.5.9", "default", delay),
            ("10.0.0.1", "default", delay),
        ] {
            assert_eq!(goal(&gate, class).as_deref(), Some(promised));
            let before = of(&gate, class, "dispatched_total").unwrap_or(0.0);
            let field = format!("X-Forwarded-For: {client}");
            assert_eq!(ask(gate.port(), "/x", &[&field]).unwrap().status, 200);
            let after = of(&gate, class, "dispatched_total");
            assert_eq!(after, Some(before + 1.0), "{client} should be of {class}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_span_names_the_class() {
    let origin = Origin::start("site").await;
    let (collector, address) = Collector::start().await;
    let gate = gate(&origin, &[&format!("otlp = \"http://{address}\""), "otlp_share = 1", TWO]);
    assert_eq!(ask(gate.port(), "/lead/x", &[]).unwrap().status, 200);
    until("the span has come", async || !collector.spans().is_empty()).await;
    assert_eq!(word(&collector.spans()[0], "gatekeeper.class"), "lead");
}

#[tokio::test(flavor = "multi_thread")]
async fn weights_and_rules_change_in_a_running_gate() {
    let origin = Origin::start("site").await;
    let gate = gate(&origin, &["connections = 1", TWO]);
    let first = start(&gate, "/held/lead", None);
    until_there_are(&gate, 0, 1).await;
    let second = start(&gate, "/held/gold", None);
    until_there_are(&gate, 1, 1).await;
    assert_eq!((of(&gate, "gold", "weight"), of(&gate, "gold", "queued")), (Some(3.0), Some(1.0)));

    let other = TWO.replace("weight = 3", "weight = 7").replace("\"lead\"", "\"tin\"");
    gate.reconfigure(&lines(&["connections = 1", &other]));
    gate.signal("HUP");
    until("the weight is another", async || of(&gate, "gold", "weight") == Some(7.0)).await;
    assert_eq!(of(&gate, "gold", "queued"), Some(1.0), "what waits goes on waiting");
    assert_eq!((of(&gate, "lead", "weight"), of(&gate, "default", "in_flight")), (None, Some(1.0)));
    let third = start(&gate, "/held/lead", None);
    until("it is of the new class", async || of(&gate, "tin", "queued") == Some(1.0)).await;

    gate.reconfigure(&lines(&["connections = 1", &TWO.replace("weight = 3", "weight = 0")]));
    gate.signal("HUP");
    until("the mistake is told", async || gate.log().contains("nothing has changed")).await;
    assert_eq!(of(&gate, "gold", "weight"), Some(7.0));

    gate.reconfigure(&lines(&["connections = 1"]));
    gate.signal("HUP");
    until("there are no classes", async || gate.status()["classes"].as_array().is_some_and(Vec::is_empty))
        .await;
    origin.let_go(3);
    for served in [first, second, third] {
        assert_eq!(served.await.unwrap().status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gate_that_observes_says_who_would_have_been_over_its_share() {
    let origin = Origin::start("site").await;
    let gate = gate(&origin, &["mode = \"observe\"", "connections = 1", "queue_max = 1", TWO]);
    let mut lead = Vec::new();
    for asked in 1..=2 {
        lead.push(start(&gate, "/held/lead", None));
        until("it is at the site", async || origin.asked() == asked).await;
    }
    let gold = start(&gate, "/held/gold", None);
    until("it is at the site, too", async || origin.asked() == 3).await;
    assert_eq!(of(&gate, "lead", "over_share_total"), Some(1.0));
    origin.let_go(3);
    let mut observed = Vec::new();
    for told in lead {
        let told = told.await.unwrap();
        observed.extend(told.field("x-gatekeeper-observed").map(str::to_owned));
        assert_eq!(told.status, 200);
    }
    assert_eq!(gold.await.unwrap().status, 200);
    assert!(observed.iter().any(|said| said == "rejected;reason=over_share"), "{observed:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_has_its_class_and_its_type_however_its_path_is_spelled() {
    let origin = Origin::start("site").await;
    let gate = gate(
        &origin,
        &[r#"
            [[gate.route]]
            path = "/api/bulk/*"
            name = "bulk"
            [[gate.class]]
            name = "bulk"
            path = "/api/%62ulk/**"
            weight = 0.1
        "#],
    );
    let asked = [
        ("/api/bulk/1", "bulk"),
        ("/api/%62ulk/1", "bulk"),
        ("/%61pi/./bulk//1/", "bulk"),
        ("/x/%2e%2e/api;v=1/bulk/1;jsessionid=7", "bulk"),
        ("/api%2Fbulk/1", "default"),
        ("/api/bulk/../1", "default"),
    ];
    for (path, class) in asked {
        let before = of(&gate, class, "dispatched_total").unwrap_or(0.0);
        let told = ask(gate.port(), path, &[]).unwrap();
        assert_eq!(told.body, format!("site {path} 0"), "the service gets it as it came");
        assert_eq!(of(&gate, class, "dispatched_total"), Some(before + 1.0), "{path} should be of {class}");
    }
    let types = gate.types();
    let rows = types.as_array().expect("a list").iter();
    let bulk: Vec<&Value> = rows.filter(|row| row["type"] == "bulk").collect();
    assert_eq!((bulk.len(), &bulk[0]["requests"]["dispatched_total"]), (1, &Value::from(4)), "{types}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_read_is_counted_in_the_metrics() {
    let origin = Origin::start("site").await;
    let gate = gate(&origin, &["header_fields_max = 20"]);
    let many: Vec<String> = (0..30).map(|number| format!("X-{number}: 1")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (path, fields, status) in [("/?a=\"b\"", &[][..], 400), ("/", &many[..], 431)] {
        let told = ask(gate.port(), path, fields).unwrap();
        assert_eq!((told.status, told.field("x-gatekeeper")), (status, Some("bad_request")), "{}", told.body);
    }
    let counted = "gatekeeper_own_answers_total{gate=\"http\",reason=\"bad_request\"} 2";
    until("both are counted", async || gate.metrics().contains(counted)).await;
    assert_eq!(origin.asked(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_class_in_the_background_goes_when_nobody_else_waits() {
    let origin = Origin::start("site").await;
    let crawl = "[[gate.class]]\nname = \"crawl\"\npath = \"/held/crawl\"\nbackground = true";
    let gate = gate(&origin, &["connections = 1", crawl]);
    let first = start(&gate, "/held/a", None);
    until_there_are(&gate, 0, 1).await;
    let crawler = start(&gate, "/held/crawl", None);
    until_there_are(&gate, 1, 1).await;
    let second = start(&gate, "/held/b", None);
    until_there_are(&gate, 2, 1).await;
    origin.let_go(1);
    assert_eq!(first.await.unwrap().status, 200);
    until_there_are(&gate, 1, 1).await;
    assert_eq!(of(&gate, "crawl", "queued"), Some(1.0), "who came later goes first");
    origin.let_go(2);
    for served in [second, crawler] {
        assert_eq!(served.await.unwrap().status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_class_in_the_background_is_told_that_it_waited_for_others() {
    let origin = Origin::start("site").await;
    let crawl = "[[gate.class]]\nname = \"crawl\"\npath = \"/held/crawl\"\nbackground = true";
    let gate = gate(&origin, &["connections = 1", "queue_max = 0", crawl]);
    let first = start(&gate, "/held/crawl", None);
    until_there_are(&gate, 0, 1).await;
    let told = ask(gate.port(), "/held/crawl", &[]).unwrap();
    let problem: Value = serde_json::from_str(&told.body).unwrap();
    let detail = problem["detail"].as_str().expect("words");
    assert_eq!((told.status, told.field("x-gatekeeper")), (503, Some("queue_full")));
    assert_eq!(detail, "The request was not begun. Requests of other classes go first.");
    origin.let_go(1);
    assert_eq!(first.await.unwrap().status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_floods_goes_before_another_one_with_one_request_of_each_of_its_queues() {
    let origin = Origin::start("site").await;
    let tenants = "[[gate.class]]\nname = \"default\"\ntenant = \"header X-Tenant\"";
    let gate = gate(&origin, &["connections = 1", "queue_max = 12", tenants]);
    let mut flood = Vec::new();
    for number in 0..13 {
        flood.push(start(&gate, "/held/flood", Some("X-Tenant: loud")));
        until_there_are(&gate, number, 1).await;
    }
    let quiet = start(&gate, "/held/quiet", Some("X-Tenant: quiet"));
    let makes_room = "reason=\"over_share\"} 1";
    until("one of the flood makes room", async || gate.metrics().contains(makes_room)).await;
    // One is in service already, and its four queues have a turn each.
    origin.let_go(1 + 4 + 1);
    assert_eq!(quiet.await.expect("no panic").status, 200);
    origin.let_go(12);
    let mut refused = 0;
    for one in flood {
        let told = one.await.expect("no panic");
        assert!(told.status == 200 || told.field("x-gatekeeper") == Some("over_share"), "{told:?}");
        refused += u32::from(told.status == 429);
    }
    assert_eq!(refused, 1);
}
