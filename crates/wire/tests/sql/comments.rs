//! Tags in comments: what frameworks write, and what must not become a label.

use std::time::Duration;

use wire::sql::Dialect;
use wire::sql::comment::{MAX_COMMENT, MAX_TAG, tags};

fn label(sql: &str) -> Option<String> {
    tags(sql.as_bytes(), Dialect::POSTGRES).label()
}

#[test]
fn tags_are_read_as_frameworks_write_them() {
    let table = [
        // Rails 7.1
        ("SELECT 1 /*action='show',application='App',controller='users'*/", Some("users#show")),
        // marginalia
        ("SELECT 1 /*application:App,controller:users,action:show*/", Some("users#show")),
        // Django
        ("SELECT 1 /*controller='index',framework='django%3A2.2.1',route='%5Epolls/%24'*/", Some("^polls/$")),
        // Leading, with a trace that never becomes a label
        ("/*dddbs='a',route='%2Fcart',traceparent='00-1-2-01'*/ SELECT 1", Some("/cart")),
        ("-- route='/line'\nSELECT 1", Some("/line")),
        ("/* route='/spaced' , x='y' */ SELECT 1", Some("/spaced")),
        ("SELECT /* middle */ 1 /*route='/second'*/", Some("/second")),
        ("/*route='/first'*/ SELECT 1 /*route='/second'*/", Some("/first")),
        (r"SELECT 1 /*route='it\'s%20here'*/", Some("it's here")),
        ("SELECT 1 /*route=/bare,action='x'*/;", Some("/bare")),
        ("SELECT 1 /*traceparent='00-1-2-01',tracestate='x'*/", None),
        ("SELECT 1 /*controller='users'*/", None),
        ("SELECT 1 /*+ route='/hint' */", None),
        ("SELECT '/*route=''/string''*/'", None),
        ("SELECT $$/*route='/dollar'*/$$", None),
        ("SELECT \"/*route='/quoted'*/\"", None),
        ("SELECT 1 /*route='%zz'*/", None),
        ("SELECT 1 /*route='%4'*/", None),
        ("SELECT 1 /*route='%ff%fe'*/", None),
        ("SELECT 1 /*route='*/", None),
        ("SELECT 1 /*route=''*/", None),
        ("SELECT 1 /*route*/", None),
        ("/* select u from User u where u.route = 'x' */ SELECT 1", None),
        ("SELECT 1 /*route='a%0Ab%00c'*/", Some("abc")),
        ("SELECT 1 /*ROUTE='/case'*/", None),
        ("SELECT 1 /*,,=,'',route='/odd'*/", Some("/odd")),
    ];
    for (sql, expected) in table {
        assert_eq!(label(sql).as_deref(), expected, "{sql}");
    }
}

#[test]
fn the_trace_is_read_and_nothing_that_is_none() {
    let id = "4bf92f3577b34da6a3ce929d0e0e4736";
    let trace = |sql: &str| tags(sql.as_bytes(), Dialect::POSTGRES).trace.map(std::num::NonZeroU128::get);
    let read = Some(0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
    assert_eq!(trace(&format!("SELECT 1 /*route='/a',traceparent='00-{id}-00f067aa0ba902b7-01'*/")), read);
    assert_eq!(trace(&format!("/*traceparent='00-{id}-1-01'*/ SELECT 1 /*traceparent='00-1-2-01'*/")), read);
    for wrong in
        ["00-1-2-01", "", "00", &format!("00-{}-1-01", id.to_uppercase()), &format!("00-{}", "0".repeat(32))]
    {
        assert_eq!(trace(&format!("SELECT 1 /*traceparent='{wrong}'*/")), None, "{wrong}");
    }
    let pairs = tags(format!("SELECT 1 /*traceparent='00-{id}-1-01'*/").as_bytes(), Dialect::POSTGRES).pairs;
    assert!(pairs.is_empty(), "no rule can name what every request has differently");
}

#[test]
fn a_label_is_bounded_at_a_characters_boundary() {
    let long = label(&format!("/*route='{}'*/", "é".repeat(MAX_TAG))).unwrap();
    assert_eq!(long, "é".repeat(MAX_TAG / 2));
    let half = "x".repeat(MAX_TAG - 1);
    let both = label(&format!("/*controller='{half}',action='{half}'*/")).unwrap();
    assert_eq!(both, format!("{half}#"));
}

#[test]
fn tags_before_a_place_that_cannot_be_lexed_still_count() {
    assert_eq!(label("/*route='/a'*/ SELECT 'x").as_deref(), Some("/a"));
}

#[test]
fn only_the_beginning_of_a_long_comment_is_read() {
    let padded = |len: usize| label(&format!("/*{},route='/a'*/", "x".repeat(len)));
    assert_eq!(padded(MAX_COMMENT - 20).as_deref(), Some("/a"));
    assert_eq!(padded(MAX_COMMENT), None);
    assert_eq!(padded(MAX_COMMENT - 8), None);
}

#[test]
fn a_timeout_is_read_and_is_no_label() {
    let timeout =
        |comment: &str| tags(format!("SELECT 1 /*{comment}*/").as_bytes(), Dialect::POSTGRES).timeout;
    assert_eq!(timeout("gatekeeper_timeout='250ms'"), Some(Duration::from_millis(250)));
    assert_eq!(timeout("route='/a',gatekeeper_timeout='2s'"), Some(Duration::from_secs(2)));
    for wrong in ["-1s", "1", "s", "1h", "99999999999999999999s", "100000s", ""] {
        assert_eq!(timeout(&format!("gatekeeper_timeout='{wrong}'")), None, "{wrong}");
    }
    assert_eq!(tags(b"SELECT 1 /*gatekeeper_timeout='1s'*/", Dialect::POSTGRES).label(), None);
}
