//! Shapes: what is the same type, what isn't, and that no literal ever shows.

use proptest::prelude::*;
use wire::sql::fingerprint::{MAX_LABEL, MAX_TEXT};
use wire::sql::{Dialect, describe, fingerprint};

fn shape(sql: &str) -> String {
    let mut label = String::new();
    fingerprint(sql.as_bytes(), Dialect::POSTGRES, &mut label)
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
    label
}

fn hash(sql: &str) -> u64 {
    fingerprint(sql.as_bytes(), Dialect::POSTGRES, &mut String::new())
        .unwrap_or_else(|error| panic!("{sql}: {error}"))
}

#[test]
fn shapes_are_as_expected() {
    let table = [
        ("SELECT * FROM Users WHERE id=$1", "select * from users where id = ?"),
        ("select 1;", "select ?"),
        ("SELECT a,b  FROM\n\tt -- c\n WHERE /* x */ c='it''s'", "select a, b from t where c = ?"),
        (r#"SELECT "auth_user"."id" FROM "Foo" "f""#, r#"select auth_user.id from "Foo" f"#),
        ("SELECT count ( * ), now()", "select count(*), now()"),
        ("SELECT * FROM t WHERE a IN (1,2, 3)", "select * from t where a in (...)"),
        ("SELECT * FROM t WHERE a IN ($1)", "select * from t where a in (...)"),
        ("SELECT * FROM t WHERE a NOT IN (f(1), b, 'x')", "select * from t where a not in (...)"),
        ("SELECT * FROM t WHERE (a,b) IN ((1,2),(3,4))", "select * from t where (a, b) in (...)"),
        (
            "SELECT * FROM t WHERE a IN (SELECT b FROM u WHERE c = 1)",
            "select * from t where a in (select b from u where c = ?)",
        ),
        ("INSERT INTO t (a, b) VALUES (1, 'x')", "insert into t(a, b) values (...)"),
        ("INSERT INTO t VALUES (1,NULL),(2,true),(3,DEFAULT)", "insert into t values (...)"),
        (
            "INSERT INTO t VALUES (1, now()), (2, now()) ON CONFLICT (a) DO UPDATE SET b = 1",
            "insert into t values (?, now()) on conflict(a) do update set b = ?",
        ),
        ("SELECT * FROM (VALUES (1), (2)) AS v(a)", "select * from (values (...)) as v(a)"),
        ("SELECT -1, +2, a-1, a - -1", "select ?, ?, a - ?, a - ?"),
        ("SELECT -a, - (1)", "select - a, - (...)"),
        ("SELECT a WHERE b=-1 AND c BETWEEN -1 AND -2", "select a where b = ? and c between ? and ?"),
        ("SELECT 1.5e3, .5, 0xFF, 1_000, 1.", "select ?, ?, ?, ?, ?"),
        ("SELECT B'01', X'ff', N'a', U&'b', E'c\\'d', $$e$$, $f$g$f$", "select ?, ?, ?, ?, ?, ?, ?"),
        ("SELECT DATE '2020-01-01', INTERVAL '1 day'", "select date ?, interval ?"),
        ("SELECT '1'::int, $1::text[], a::numeric(10, 2)", "select ?::int, ?::text[], a::numeric(...)"),
        ("SELECT * FROM t WHERE a = ANY(ARRAY[1, 2])", "select * from t where a = any (array[...])"),
        ("SELECT a[1], a[1:2]", "select a[...], a[? : ?]"),
        ("SET search_path TO tenant_7, public", "set search_path to ?"),
        ("SET LOCAL app.user = alice", "set local app.user = ?"),
        ("SET TIME ZONE utc", "set time zone ?"),
        ("SET ROLE alice", "set role ?"),
        ("ALTER ROLE bob SET app.token TO alice", "alter role bob set app.token to ?"),
        ("ALTER TABLE t RENAME a TO b", "alter table t rename a to b"),
        ("UPDATE t SET a = b, c = 1 WHERE d = e", "update t set a = b, c = ? where d = e"),
        (r#"FETCH FORWARD 100 FROM "_django_curs_1_2""#, "fetch ? ? from ?"),
        (r#"DECLARE "c_1f_2" CURSOR FOR SELECT a"#, "declare ? cursor for select a"),
        ("SELECT 1; SELECT a;", "select ?; select a"),
        ("SELECT (((1)))", "select (...)"),
        ("SELECT f((1), (SELECT 2))", "select f((...), (select ?))"),
        ("SELECT a) FROM (1))) b", "select a) from (...))) b"),
        ("DO $$ begin perform 'x'; end $$", "do ?"),
        ("EXECUTE p(1, 'a')", "execute p(...)"),
        ("", ""),
    ];
    for (sql, expected) in table {
        assert_eq!(shape(sql), expected, "{sql}");
        let described = describe(sql.as_bytes(), true);
        if described.statements.len() == 1 {
            let described = described.fingerprint.unwrap();
            assert_eq!((described.label, described.hash), (shape(sql), hash(sql)), "{sql}");
        }
    }
}

#[test]
fn values_space_and_comments_do_not_change_the_hash_but_structure_does() {
    let same = [
        "SELECT * FROM t WHERE a = 1 AND b IN (1, 2)",
        "select *\nfrom T -- x\nwhere a=-7 and b in ($2,$3,$4)",
        "/*route='/x'*/ SELECT * FROM \"t\" WHERE a = 'x' AND b IN (9);",
    ];
    for sql in same {
        assert_eq!(hash(sql), hash(same[0]), "{sql}");
    }
    assert_ne!(hash("SELECT * FROM t WHERE a = 1 OR b IN (1, 2)"), hash(same[0]));
    assert_ne!(hash("SELECT * FROM \"T\" WHERE a = 1 AND b IN (1, 2)"), hash(same[0]));
}

#[test]
fn the_decade_of_the_longest_list_is_part_of_the_shape() {
    let list = |n: usize| format!("SELECT a FROM t WHERE a IN ({}1)", "1,".repeat(n - 1));
    let rows = |n: usize| format!("INSERT INTO t VALUES {}(1, now())", "(1, now()),".repeat(n - 1));
    for (n, suffix) in [(1, ""), (9, ""), (10, " ~10^1"), (99, " ~10^1"), (100, " ~10^2"), (1000, " ~10^3")] {
        assert_eq!(shape(&list(n)), format!("select a from t where a in (...){suffix}"), "{n}");
        assert_eq!(shape(&rows(n)), format!("insert into t values (?, now()){suffix}"), "{n}");
    }
    assert_ne!(hash(&rows(3)), hash(&rows(1000)));
    let array = format!("SELECT a FROM t WHERE a = ANY (ARRAY[{}1]::int[])", "1,".repeat(99));
    assert_eq!(shape(&array), "select a from t where a = any (array[...]::int[]) ~10^2");
    // One row of many columns is one row.
    assert_eq!(shape(&format!("INSERT INTO t VALUES ({}1)", "1,".repeat(30))), "insert into t values (...)");
}

#[test]
fn texts_beyond_the_bound_keep_their_shape_and_the_size_of_their_lists() {
    let rows = |n: usize| format!("INSERT INTO t VALUES {}(1, 'x')", "(1, 'x'),".repeat(n - 1));
    let long = rows(MAX_TEXT);
    assert!(long.len() > 8 * MAX_TEXT);
    assert_eq!(shape(&long), "insert into t values (...) ... ~10^4");
    let wide = format!("SELECT {} 1", "a, ".repeat(MAX_TEXT));
    let label = shape(&wide);
    assert!(label.starts_with("select a, a, a") && label.len() <= MAX_LABEL, "{label}");
}

#[test]
fn a_long_label_is_cut_and_still_tells_shapes_apart() {
    let sql =
        |last: &str| format!("SELECT {} {last} FROM t WHERE a IN ({}1)", "é, ".repeat(300), "1,".repeat(50));
    let (one, other) = (shape(&sql("x")), shape(&sql("y")));
    assert!(one.len() <= MAX_LABEL && one.len() > MAX_LABEL - 4, "{}", one.len());
    assert_ne!(one, other);
    assert!(one.contains("… #") && one.ends_with(" ~10^1"), "{one}");
    assert_ne!(hash(&sql("x")), hash(&sql("y")));
}

#[test]
fn what_cannot_be_lexed_has_no_shape() {
    let broken = [
        "SELECT 'secret",
        "SELECT E'secret\\'",
        "SELECT \"secret",
        "SELECT $$secret$",
        "SELECT $a$secret$b$",
        "SELECT /* secret /* */",
        "SELECT 123secret",
        "SELECT 0xsecret",
        "SELECT 0x",
        "SELECT $1secret",
        "SELECT U&'secret",
    ];
    for sql in broken {
        let mut label = "before".to_owned();
        assert!(fingerprint(sql.as_bytes(), Dialect::POSTGRES, &mut label).is_err(), "{sql}");
        assert_eq!(label, "");
    }
}

#[test]
fn identifiers_that_are_not_utf8_or_printable_are_replaced() {
    let mut label = String::new();
    fingerprint(b"SELECT caf\xe9, \"a\nb\", \x01", Dialect::POSTGRES, &mut label).unwrap();
    assert_eq!(label, "select caf\u{fffd}, \"a\u{fffd}b\", \u{fffd}");
}

/// A literal that carries a secret, in each notation there is.
fn literal() -> impl Strategy<Value = String> {
    let form = prop::sample::select(vec![
        "'SECRET'",
        "'it''s SECRET'",
        "''",
        "'SECRET -- '",
        "'/* SECRET'",
        "E'SECRET'",
        r"e'\'SECRET\\'",
        "B'7700770077'",
        "x'7700770077'",
        "N'SECRET'",
        "U&'SECRET\\0061'",
        "$$SECRET$$",
        "$a$ $b$ SECRET ' $b$ $a$",
        "$_1é$;SECRET$_1é$",
        "7700770077",
        "-7700770077",
        "- 7700770077",
        "+7700770077.7700770077",
        ".7700770077",
        "7700770077e+7700770077",
        "7_7_0_0_7_7_0_0_7_7",
        "0x7700770077",
        "0o7700770077",
        "1e7700770077",
        "DATE 'SECRET'",
        "INTERVAL 'SECRET' DAY",
        "'SECRET'::text",
        "CAST('SECRET' AS text)",
        "'SECRET'\n  'SECRET'",
        "E'SECRET' -- SECRET\n '\\'SECRET'",
        "\"t\"('SECRET')",
        "ARRAY['SECRET', 7700770077]",
        "(7700770077, 'SECRET')",
        "IN (7700770077, 'SECRET')",
        "IN (SELECT 'SECRET')",
        "VALUES ('SECRET', f(7700770077)), ('SECRET', -7700770077)",
    ]);
    form.prop_map(str::to_owned)
}

fn piece() -> impl Strategy<Value = String> {
    let word = prop::sample::select(vec![
        "SELECT", "insert", "INTO", "VALUES", "IN", "ARRAY", "SET", "TO", "=", "-", "+", "<>", "(", ")", "[",
        "]", ",", ";", "::", ".", "a", "\"B\"", "NULL", "true", "LIMIT", "and", "*", "@>", "$1", "U&\"x\"",
        "fetch", "DECLARE", "e", "x", "b", "E", "$", ":", "||", "é",
    ]);
    prop_oneof![3 => word.prop_map(str::to_owned), 2 => literal()]
}

#[test]
fn lists_are_collapsed_up_to_a_depth() {
    let nested = |depth: usize| format!("SELECT {}1{}", "(".repeat(depth), ")".repeat(depth));
    assert_eq!(shape(&nested(32)), "select (...)");
    let deeper = shape(&nested(40));
    assert_eq!(deeper, format!("select {}?{}", "(".repeat(40), ")".repeat(40)));
}

#[test]
fn the_search_for_secrets_would_find_what_is_copied() {
    assert!(shape("SELECT SECRET").to_uppercase().contains("SECRET"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn no_literal_ever_shows(
        pieces in prop::collection::vec((piece(), prop::sample::select(vec![
            " ", "  ", "\t", "\n", " /* SECRET 7700770077 */ ", " -- SECRET\n", "/*'SECRET*/ ",
        ])), 0..25),
        standard in any::<bool>(),
    ) {
        let sql: String = pieces.iter().flat_map(|(piece, space)| [piece.as_str(), space]).collect();
        let mut label = String::new();
        // An error is an answer: a lone `$` may open a quote, and a continued string keeps its first line's
        // rules.
        let _ = fingerprint(sql.as_bytes(), Dialect::Postgres { standard_strings: standard }, &mut label);
        let upper = label.to_uppercase();
        prop_assert!(!upper.contains("SECRET"), "{sql}\n{label}");
        prop_assert!(!label.contains("7700"), "{sql}\n{label}");
        prop_assert!(!label.contains("7_7"), "{sql}\n{label}");
        let described = describe(sql.as_bytes(), standard);
        let shown = described.fingerprint.map(|shape| shape.label).unwrap_or_default().to_uppercase();
        prop_assert!(!shown.contains("SECRET") && !shown.contains("7700"), "{sql}\n{shown}");
    }
}
