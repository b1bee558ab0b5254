//! Targets of single types: what the file says of a type reaches the rule for its requests, over HTTP
//! and in front of a real PostgreSQL, and changes while the gate runs.

// Helpers of tests panic as tests do; clippy only knows functions marked as tests.
#![allow(clippy::panic)]

mod support;

use serde_json::{Value, json};

use support::origin::{Origin, ask};
use support::{Gate, server, session, until};

fn lines(lines: &[&str]) -> Vec<String> {
    lines.iter().map(|line| (*line).to_owned()).collect()
}

/// The target of a type in `/types`, if the type is known: its mean and its 95th percentile.
fn target(gate: &Gate, name: &str) -> Option<(Value, Value)> {
    let types = gate.types();
    let row = types.as_array().expect("a list").iter().find(|row| row["type"] == name)?;
    Some((row["target"]["mean_seconds"].clone(), row["target"]["p95_seconds"].clone()))
}

fn none() -> Option<(Value, Value)> {
    Some((Value::Null, Value::Null))
}

const ROUTES: &str = r#"
    [[gate.route]]
    path = "/lead/report"
    name = "report"
"#;
const OWN: &str = r#"
    [[gate.type]]
    name = "report"
    target = "5s"
    [[gate.type]]
    name = "checkout"
    target = "100ms"
    target_p95 = "400ms"
    [[gate.type]]
    name = "GET /*"
    target_p95 = "2s"
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_route_a_name_of_the_applications_and_a_template_have_their_targets() {
    let origin = Origin::start("site").await;
    let http = "protocol = \"http\"";
    let gate = Gate::start(origin.address.port(), &lines(&[http, "target = \"150ms\"", ROUTES, OWN]));
    // What the application calls a path holds from its second request on.
    for path in ["/lead/report", "/called/checkout", "/called/checkout", "/lead", "/lead/other"] {
        assert_eq!(ask(gate.port(), path, &[]).expect("a response").status, 200);
    }
    assert_eq!(target(&gate, "report"), Some((json!(5.0), Value::Null)));
    assert_eq!(target(&gate, "checkout"), Some((json!(0.1), json!(0.4))));
    assert_eq!(target(&gate, "GET /*"), Some((Value::Null, json!(2.0))));
    assert_eq!(target(&gate, "GET /*/*"), none(), "the gate's own is no type's");
    let types = gate.types();
    let checkout =
        types.as_array().and_then(|all| all.iter().find(|it| it["type"] == "checkout")).expect("it is known");
    let id = checkout["id"].as_str().expect("an id");
    assert!(gate.metrics().contains(&format!("gatekeeper_type_present{{gate=\"http\",type=\"{id}\"}} 0")));
    let info = format!("gatekeeper_type_info{{gate=\"http\",type=\"{id}\",text=\"checkout\"}} 1.0");
    assert!(gate.metrics().contains(&info), "{}", gate.metrics());

    gate.reconfigure(&lines(&[
        http,
        ROUTES,
        &OWN.replace("100ms", "200ms").replace("\"report\"", "\"reports\""),
    ]));
    gate.signal("HUP");
    let other = Some((json!(0.2), json!(0.4)));
    until("the target is another", async || target(&gate, "checkout") == other).await;
    assert_eq!(target(&gate, "report"), none(), "its table is gone");

    gate.reconfigure(&lines(&[http, ROUTES, &OWN.replace("100ms", "0ms")]));
    gate.signal("HUP");
    until("the mistake is told", async || gate.log().contains("nothing has changed")).await;
    assert_eq!(target(&gate, "checkout"), other);
}

/// With a target of a microsecond, a request that is present for longer without an answer leaves no place for
/// another of its type.
#[tokio::test(flavor = "multi_thread")]
async fn who_is_one_too_many_of_its_type_is_refused_for_its_target() {
    let origin = Origin::start("site").await;
    let own = "[[gate.type]]\nname = \"held\"\ntarget = \"1us\"\n[[gate.route]]\npath = \"/held/**\"\nname = \"held\"";
    let gate = Gate::start(origin.address.port(), &lines(&["protocol = \"http\"", own]));
    let port = gate.port();
    let held = tokio::task::spawn_blocking(move || ask(port, "/held/1", &[]).expect("a response"));
    until("it is at the site", async || origin.asked() == 1).await;
    let told = ask(port, "/held/2", &[]).expect("a response");
    assert_eq!((told.status, told.field("x-gatekeeper")), (503, Some("target")));
    let types = gate.types();
    let row = &types.as_array().expect("a list")[0];
    let shown = (&row["type"], &row["target"]["present"], &row["target"]["present_bound"]);
    assert_eq!(shown, (&json!("held"), &json!(1), &json!(1.0)));
    origin.let_go(1);
    assert_eq!(held.await.expect("it ends").status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_and_a_shape_of_a_statement_have_their_targets() {
    let server = server();
    let own = r#"
        [[gate.type]]
        name = "postgres: /cart"
        target = "90ms"
        [[gate.type]]
        name = "postgres: BEGIN; select relname from pg_class where oid = ?"
        target_p95 = "3s"
    "#;
    let gate = Gate::start(server.port(), &lines(&[own]));
    let client = session(&server, &gate).await;
    for text in [
        "SELECT 1 /*route='%2Fcart'*/",
        "BEGIN; SELECT relname FROM pg_class WHERE oid = 7; COMMIT",
        "BEGIN",
        "SELECT relname FROM pg_class WHERE oid = 8",
        "COMMIT",
    ] {
        client.batch_execute(text).await.expect("it is served");
    }
    assert_eq!(target(&gate, "postgres: /cart"), Some((json!(0.09), Value::Null)));
    let explicit = "postgres: BEGIN; select relname from pg_class where oid = ?";
    assert_eq!(target(&gate, explicit), Some((Value::Null, json!(3.0))), "{:#}", gate.types());
}
