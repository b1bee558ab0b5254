//! Whatever the bytes: no panic, bounded output, and time that grows with the length only.

use proptest::prelude::*;
use wire::sql::comment::{MAX_TAG, tags};
use wire::sql::fingerprint::MAX_LABEL;
use wire::sql::lexer::Lexer;
use wire::sql::{Backslashes, Dialect, DoubleQuotes, describe, fingerprint, statements};

fn read_everything(sql: &[u8]) -> Result<(), TestCaseError> {
    for standard_strings in [true, false] {
        let mut lexer = Lexer::new(sql, Dialect::Postgres { standard_strings });
        let mut end = 0;
        while let Ok(Some(token)) = lexer.next_token() {
            prop_assert!(token.start >= end && token.end > token.start && token.end <= sql.len());
            end = token.end;
        }
        let listed: Vec<_> = statements(sql, standard_strings).collect();
        prop_assert!(!listed.is_empty());
        let mut label = String::new();
        let hash = fingerprint(sql, Dialect::Postgres { standard_strings }, &mut label);
        prop_assert!(label.len() <= MAX_LABEL && !label.contains(char::is_control));
        let described = describe(sql, standard_strings);
        prop_assert_eq!(&described.statements, &listed);
        prop_assert_eq!(described.fingerprint.is_some(), hash.is_ok());
        prop_assert!(described.fingerprint.is_none_or(|shape| shape.label.len() <= MAX_LABEL));
        if hash.is_ok() {
            prop_assert_eq!(described.tags, tags(sql, Dialect::Postgres { standard_strings }));
        }
        let dialect = Dialect::Postgres { standard_strings };
        prop_assert!(tags(sql, dialect).label().is_none_or(|label| label.len() <= MAX_TAG));
    }
    for double_quotes in [DoubleQuotes::Strings, DoubleQuotes::Identifiers] {
        for backslashes in [Backslashes::Escape, Backslashes::Plain] {
            read_mysql(sql, Dialect::MySql { double_quotes, backslashes })?;
        }
    }
    Ok(())
}

fn read_mysql(sql: &[u8], dialect: Dialect) -> Result<(), TestCaseError> {
    let mut lexer = Lexer::new(sql, dialect);
    let mut end = 0;
    while let Ok(Some(token)) = lexer.next_token() {
        prop_assert!(token.start >= end && token.end > token.start && token.end <= sql.len());
        end = token.end;
    }
    let mut label = String::new();
    let hash = fingerprint(sql, dialect, &mut label);
    prop_assert!(label.len() <= MAX_LABEL && !label.contains(char::is_control));
    prop_assert_eq!(hash, fingerprint(sql, dialect, &mut String::new()));
    prop_assert!(tags(sql, dialect).label().is_none_or(|label| label.len() <= MAX_TAG));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn any_bytes_are_read_without_a_panic(sql in prop::collection::vec(any::<u8>(), 0..300)) {
        read_everything(&sql)?;
    }

    #[test]
    fn bytes_that_mean_something_are_read_without_a_panic(
        pieces in prop::collection::vec(prop::sample::select(vec![
            &b"'"[..], b"\"", b"$", b"$a$", b"$$", b"--", b"/*", b"*/", b"\\", b"\n", b" ", b";", b"(", b")", b"[", b"]",
            b",", b".", b":", b"::", b"-", b"+", b"1", b"0x", b"1e", b"e", b"E'", b"U&\"", b"U&'", b"b'", b"BEGIN ", b"ATOMIC ",
            b"CREATE ", b"FUNCTION ", b"END ", b"CASE ", b"VALUES ", b"IN ", b"ARRAY ", b"SELECT ", b"SET ", b"TO ", b"=",
            b"set_config(", b"true", b"TEMP ", b"INTO ", b"COPY ", b"FROM ", b"STDIN ", b"route=", b"%4", b"\xc3", b"\xa9", b"\0",
        ]), 0..60),
    ) {
        read_everything(&pieces.concat())?;
    }
}

/// Texts that would take a careless reader quadratic time. There is no clock here: at these lengths, time
/// that grew with the square would keep the test from ever ending.
#[test]
fn time_grows_with_the_length_only() {
    const LENGTH: usize = 1 << 18;
    let units: [&[u8]; 18] = [
        b"+",
        b"-+",
        b"(",
        b")",
        b"[",
        b"'' ",
        b"''\n",
        b"/*",
        b"*/",
        b"$",
        b"$a",
        b"$a$",
        b",",
        b"a",
        b";",
        b"\"\"",
        b"set_config(",
        b"VALUES ((",
    ];
    for unit in units {
        let sql = unit.repeat(LENGTH / unit.len());
        let statements = statements(&sql, true).count();
        assert!(statements > 0);
        let described = describe(&sql, true);
        assert_eq!(described.statements.len() + described.further, statements);
    }
}
