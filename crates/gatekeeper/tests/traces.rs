//! The gate's part in traces, as a collector hears of it.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod support;

use support::collector::{Collector, attribute, number, word};
use support::origin::{Origin, ask};
use support::{Gate, until};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

fn gate(origin: &Origin, lines: &[String]) -> Gate {
    let lines: Vec<String> = ["protocol = \"http\"".to_owned()].iter().chain(lines).cloned().collect();
    Gate::start(origin.address.port(), &lines)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gates_span_stands_between_who_asks_and_the_site() {
    let (collector, address) = Collector::start().await;
    let origin = Origin::start("site").await;
    let lines = [
        format!("otlp = \"http://{address}\"\notlp_share = 0\nconnections = 1\nqueue_max = 1"),
        "[[gate.route]]\npath = \"/held/*\"".to_owned(),
    ];
    let mut gate = gate(&origin, &lines);
    let port = gate.port();
    let parent = format!("traceparent: 00-{TRACE}-{PARENT}-01");
    let asking = |path: &'static str| {
        let parent = parent.clone();
        tokio::task::spawn_blocking(move || {
            ask(port, path, &[&parent, "tracestate: a=b"]).expect("a response")
        })
    };
    let first = asking("/held/1");
    until("the first is at the site", async || origin.asked() == 1).await;
    let second = asking("/held/2");
    until("the second waits", async || gate.status()["queued"] == 1).await;
    assert_eq!(asking("/held/3").await.unwrap().status, 503);
    assert_eq!(ask(port, "/none", &[]).unwrap().status, 503, "of those that bring no trace none is recorded");
    origin.let_go(2);
    let told = [first.await.unwrap(), second.await.unwrap()];

    gate.signal("TERM");
    assert!(gate.wait().success());
    let spans = collector.spans();
    assert_eq!(spans.len(), 3, "what was to be sent is sent before the end: {spans:?}");
    for span in &spans {
        assert_eq!((hex(&span.trace_id), hex(&span.parent_span_id)), (TRACE.to_owned(), PARENT.to_owned()));
        assert_eq!((span.name.as_str(), span.kind), ("/held/*", 2));
        assert!(span.end_time_unix_nano >= span.start_time_unix_nano);
    }
    for told in &told {
        assert_eq!((told.status, told.field("tracestate")), (200, Some("a=b")));
        let heard = told.field("traceparent").expect("the site hears of a span");
        assert!(spans.iter().any(|span| heard == format!("00-{TRACE}-{}-01", hex(&span.span_id))), "{heard}");
    }
    let of = |decision: &str| {
        let found: Vec<_> =
            spans.iter().filter(|span| word(span, "gatekeeper.decision") == decision).collect();
        found
    };
    let [rejected] = of("rejected")[..] else { panic!("one was refused: {spans:?}") };
    assert_eq!(word(rejected, "gatekeeper.reason"), "queue_full");
    assert_eq!(
        (number(rejected, "http.response.status_code"), rejected.status.as_ref().unwrap().code),
        (503.0, 2)
    );
    assert_eq!(attribute(rejected, "gatekeeper.queue_wait_seconds"), None);
    let mut waits = Vec::new();
    for dispatched in of("dispatched") {
        assert_eq!(word(dispatched, "http.request.method"), "GET");
        assert_eq!(number(dispatched, "http.response.status_code"), 200.0);
        let events: Vec<&str> = dispatched.events.iter().map(|event| event.name.as_str()).collect();
        assert_eq!(events, ["dispatch", "first byte"]);
        let lasted = (dispatched.end_time_unix_nano - dispatched.start_time_unix_nano) as f64 / 1e9;
        let (wait, upstream) = (
            number(dispatched, "gatekeeper.queue_wait_seconds"),
            number(dispatched, "gatekeeper.upstream_seconds"),
        );
        assert!(wait + upstream <= lasted, "{wait} + {upstream} > {lasted}");
        waits.push(wait);
    }
    waits.sort_by(f64::total_cmp);
    assert!(waits.len() == 2 && waits[1] > waits[0], "the second waited: {waits:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_collector_a_trace_passes_as_it_came() {
    let origin = Origin::start("site").await;
    let gate = gate(&origin, &[]);
    let parent = format!("00-{TRACE}-{PARENT}-01");
    let told = ask(gate.port(), "/", &[&format!("traceparent: {parent}"), "tracestate: a=b"]).unwrap();
    assert_eq!((told.field("traceparent"), told.field("tracestate")), (Some(parent.as_str()), Some("a=b")));
    assert_eq!(ask(gate.port(), "/", &[]).unwrap().field("traceparent"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_without_a_trace_begin_one_and_a_collector_that_is_down_holds_nobody_up() {
    let (collector, address) = Collector::start().await;
    let origin = Origin::start("site").await;
    let gate = gate(&origin, &[format!("otlp = \"http://{address}\"")]);
    let told = ask(gate.port(), "/page", &[]).unwrap();
    let heard = told.field("traceparent").expect("the site hears of a span").to_owned();
    until("its span comes", async || collector.spans().len() == 1).await;
    let span = &collector.spans()[0];
    assert_eq!(heard, format!("00-{}-{}-01", hex(&span.trace_id), hex(&span.span_id)));
    assert!(span.parent_span_id.is_empty());
    let parent = format!("traceparent: 00-{TRACE}-{PARENT}-00");
    let told = ask(gate.port(), "/page", &[&parent]).unwrap();
    let passed = told.field("traceparent").map(|passed| format!("traceparent: {passed}"));
    assert_eq!(passed, Some(parent), "one that isn't recorded passes as it came");

    let nobody = testbed::postgres::free_port().unwrap();
    gate.reconfigure(&["protocol = \"http\"".to_owned(), format!("otlp = \"http://127.0.0.1:{nobody}\"")]);
    gate.signal("HUP");
    until("it is told once", async || {
        assert_eq!(ask(gate.port(), "/page", &[]).unwrap().status, 200);
        gate.log().matches("the collector doesn't take spans").count() == 1
    })
    .await;
}
