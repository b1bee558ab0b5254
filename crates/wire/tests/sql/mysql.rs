//! Texts of MySQL and MariaDB: shapes without any literal, in every mode that changes what quotes mean.

use proptest::prelude::*;
use wire::sql::comment::tags;
use wire::sql::lexer::{Lexer, TokenKind};
use wire::sql::{Backslashes, Dialect, DoubleQuotes, fingerprint};

const ANSI: Dialect =
    Dialect::MySql { double_quotes: DoubleQuotes::Identifiers, backslashes: Backslashes::Escape };
const PLAIN: Dialect =
    Dialect::MySql { double_quotes: DoubleQuotes::Strings, backslashes: Backslashes::Plain };

fn shape_in(sql: &str, dialect: Dialect) -> String {
    let mut label = String::new();
    fingerprint(sql.as_bytes(), dialect, &mut label).unwrap_or_else(|error| panic!("{sql}: {error}"));
    label
}

fn tokens(sql: &str) -> Vec<(TokenKind, &str)> {
    let mut lexer = Lexer::new(sql.as_bytes(), Dialect::MYSQL);
    let mut tokens = Vec::new();
    while let Some(token) = lexer.next_token().unwrap() {
        tokens.push((token.kind, &sql[token.start..token.end]));
    }
    tokens
}

#[test]
fn shapes_are_as_expected() {
    let table = [
        ("SELECT * FROM `Users` WHERE id=?", "select * from users where id = ?"),
        ("SELECT `a b`, `x`.`y` FROM t", "select `a b`, x.y from t"),
        (r#"SELECT "it's", 'a "b"', "say ""x""", 'don''t'"#, "select ?, ?, ?, ?"),
        (r#"SELECT 'a\'b', "a\"b", 'end\\'"#, "select ?, ?, ?"),
        ("SELECT 1 # all of 'this'\n, 2 -- and \"this\"\n, 3 /* and `this` */", "select ?, ?, ?"),
        ("SELECT 5--1, 5 --1", "select ? - ?, ? - ?"),
        ("SELECT 0x1F, x'1f', X'1F', b'01', 0b01, N'a', 1e5, .5, 1.", "select ?, ?, ?, ?, ?, ?, ?, ?, ?"),
        ("SELECT _utf8mb4'x' COLLATE utf8mb4_bin", "select _utf8mb4 ? collate utf8mb4_bin"),
        ("SELECT 1st, t.2nd, 0XFF FROM 3rd", "select 1st, t.2nd, 0xff from 3rd"),
        ("SELECT * FROM t WHERE a IN (1,2, 3) LIMIT 5, 10", "select * from t where a in (...) limit ?, ?"),
        ("INSERT INTO t VALUES (1,'x'),(2,\"y\")", "insert into t values (...)"),
        (
            "INSERT INTO t (a) VALUES (1) ON DUPLICATE KEY UPDATE a = VALUES(a), b = 2",
            "insert into t(a) values (...) on duplicate key update a = values (a), b = ?",
        ),
        ("SELECT @x, @Y.z, @@global.sql_mode", "select @x, @y.z, @@global.sql_mode"),
        ("SET @x = 'secret', @y = 2", "set @x = ?"),
        ("SET @x := 'secret'", "set @x := ?"),
        ("SET SESSION sql_mode = 'ANSI'", "set session sql_mode = ?"),
        ("CREATE USER 'me'@'here' IDENTIFIED BY 'secret'", "create user ? @ ? identified by ?"),
        ("SELECT /*+ MAX_EXECUTION_TIME(100) */ a FROM t", "select a from t"),
        ("SELECT /*!40001 SQL_NO_CACHE */ a FROM t", "select sql_no_cache a from t"),
        // One that begins within another is ended with it.
        ("SELECT /*! a, /*!40000 b */, c", "select a, b, c"),
        ("SELECT /*M!100100 a, */ /*! 'x' */ b", "select a, ? b"),
        ("SELECT a<=>b, a->'$.x', a->>'$.x', a && b", "select a <=> b, a -> ?, a ->> ?, a && b"),
        ("SELECT 1; SELECT 'a;b'", "select ?; select ?"),
        ("SELECT -1, +2, a-1", "select ?, ?, a - ?"),
    ];
    for (sql, expected) in table {
        assert_eq!(shape_in(sql, Dialect::MYSQL), expected, "{sql}");
    }
}

#[test]
fn the_mode_says_what_double_quotes_and_backslashes_are() {
    assert_eq!(shape_in(r#"SELECT "a b", "it""s""#, ANSI), r#"select "a b", "it""s""#);
    assert_eq!(shape_in(r#"SELECT "a\" b""#, Dialect::MYSQL), "select ?");
    assert_eq!(shape_in(r"SELECT 'C:\', 'x'", PLAIN), "select ?, ?");
    assert!(fingerprint(br"SELECT 'C:\', 'x'", Dialect::MYSQL, &mut String::new()).is_err());
}

#[test]
fn what_has_no_end_is_no_token() {
    for sql in ["'a", "\"a", "`a", "/* a", "/*! a", "/*!40000 '*/", "x'1", "x'1g'", "x'123'", "b'2'", "'a\\'"]
    {
        let mut label = String::new();
        assert!(fingerprint(sql.as_bytes(), Dialect::MYSQL, &mut label).is_err(), "{sql}");
        assert_eq!(label, "", "{sql}");
    }
}

#[test]
fn tokens_that_only_mysql_has_are_told_apart() {
    use TokenKind as T;
    assert_eq!(
        tokens("a.1b.2 .5 @v @@x ?"),
        [
            (T::Word, "a"),
            (T::Dot, "."),
            (T::Word, "1b"),
            (T::Dot, "."),
            (T::Word, "2"),
            (T::Number, ".5"),
            (T::Variable, "@v"),
            (T::Variable, "@@x"),
            (T::Parameter, "?"),
        ]
    );
    assert_eq!(
        tokens("/*!40000 a /* b */ c*/*"),
        [
            (T::Comment, "/*!40000"),
            (T::Word, "a"),
            (T::Comment, "/* b */"),
            (T::Word, "c"),
            (T::Comment, "*/"),
            (T::Operator, "*"),
        ]
    );
    // `--` without a space behind it is two signs.
    assert_eq!(tokens("a--b").len(), 4);
    assert_eq!(tokens("a-- b").len(), 2);
}

#[test]
fn tags_are_read_from_every_kind_of_comment() {
    let label = |sql: &str| tags(sql.as_bytes(), Dialect::MYSQL).label();
    for sql in ["SELECT 1 /*route='/a'*/", "# route='/a'\nSELECT 1", "-- route='/a'\nSELECT 1"] {
        assert_eq!(label(sql).as_deref(), Some("/a"), "{sql}");
    }
    assert_eq!(label("SELECT '/*route=1*/', \"#route='/b'\""), None);
}

proptest! {
    #[test]
    fn no_literal_shows_in_any_notation(
        secret in "[a-z]{12}",
        number in 1_000_000_u32..9_999_999,
        notation in prop::sample::select(vec![
            "'SECRET'", "\"SECRET\"", "N'SECRET'", "_latin1'SECRET'", "'\\'SECRET'", "\"\"\"SECRET\"",
            "'a' 'SECRET'",
            "/*!40000 'SECRET' */", "'#SECRET'", "@'SECRET'", "NUMBER", "-NUMBER",
            "NUMBER.NUMBER", "1eNUMBER",
            "0xNUMBER", "x'0NUMBER'", ".NUMBER",
        ]),
        frame in prop::sample::select(vec![
            "SELECT {}", "SELECT a FROM t WHERE b = {}", "INSERT INTO t VALUES ({}, 1), (2, {})",
            "SET @x := {}",
            "SELECT * FROM t WHERE a IN ({}, {})", "CALL p({})", "SELECT a -- c\n, {}",
        ]),
    ) {
        let number = number.to_string();
        let literal = notation.replace("SECRET", &secret).replace("NUMBER", &number);
        let sql = frame.replace("{}", &literal);
        let shape = shape_in(&sql, Dialect::MYSQL);
        prop_assert!(!shape.contains(&secret) && !shape.contains(&number), "{sql} became {shape}");
    }
}
