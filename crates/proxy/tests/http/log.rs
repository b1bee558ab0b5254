//! The access log.

use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use proxy::http::AccessLog;
use serde_json::Value;

use crate::site::{Client, PATIENCE, full, gate, one_at_a_time, service};

#[tokio::test]
async fn each_request_has_a_line_that_tells_nothing_of_who_asked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.json");
    let answer = async |request: Request<Incoming>| {
        let status = if request.uri().path().starts_with("/ill") { 500 } else { 200 };
        Response::builder().status(status).body(full("12345")).unwrap()
    };
    let log = AccessLog::open(&path).unwrap();
    let site =
        gate(one_at_a_time(), &[service(answer).await], |settings| settings.access_log = Some(log)).await;
    let mut client = Client::connect(&site).await;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    client
        .send(&format!(
            "GET /reset/s3cr3t?token=abc HTTP/1.1\r\nHost: a\r\nCookie: secret\r\ntraceparent: 00-{trace}-00f067aa0ba902b7-01\r\n\r\n"
        ))
        .await;
    assert_eq!(client.response().await.unwrap().status, 200);
    client.get("/ill").await;
    client.send("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n").await;
    assert_eq!(client.response().await.unwrap().status, 400);
    let written = async {
        loop {
            let text = std::fs::read_to_string(&path).unwrap();
            if text.lines().count() == 3 && text.ends_with('\n') {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let text = tokio::time::timeout(PATIENCE, written).await.expect("three lines");
    for secret in ["s3cr3t", "token", "abc", "secret", "127.0.0.1"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        (&lines[0]["type"], &lines[0]["status"], &lines[0]["bytes"]),
        (&"GET /*/*".into(), &200.into(), &5.into())
    );
    assert_eq!((&lines[0]["trace_id"], &lines[0]["end"]), (&trace.into(), &"complete".into()));
    let millis = |field: &str| lines[0][field].as_f64().expect("a number");
    assert!(
        millis("upstream_ms") > 0.0 && millis("total_ms") >= millis("upstream_ms") + millis("queue_wait_ms")
    );
    assert_eq!((&lines[1]["status"], lines[1].get("reason")), (&500.into(), None));
    assert_eq!((&lines[2]["status"], &lines[2]["reason"]), (&400.into(), &"bad_request".into()));
}
