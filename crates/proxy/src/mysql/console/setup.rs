//! What drivers ask a server of MySQL of their own accord when they connect: variables, the database, the
//! user, the version. The console answers in the place of a server.

use wire::sql::Dialect;
use wire::sql::lexer::{Lexer, Token, TokenKind};

use crate::console::Failure;
use crate::console::table::{Cell, Kind};

/// The most tokens of such a text. Connector/J's have 120.
const TOKENS_MAX: usize = 512;

/// The variables that have an integer.
const INTEGERS: [(&str, i64); 16] = [
    ("auto_increment_increment", 1),
    ("auto_increment_offset", 1),
    ("autocommit", 1),
    ("foreign_key_checks", 1),
    ("interactive_timeout", 28_800),
    ("lower_case_table_names", 0),
    ("max_allowed_packet", 16 * 1024 * 1024),
    ("net_buffer_length", 16_384),
    ("net_write_timeout", 60),
    ("performance_schema", 0),
    ("query_cache_size", 0),
    ("sql_auto_is_null", 0),
    ("transaction_read_only", 0),
    ("tx_read_only", 0),
    ("unique_checks", 1),
    ("wait_timeout", 28_800),
];
/// The variables that have a text.
const TEXTS: [(&str, &str); 18] = [
    ("character_set_client", "utf8mb4"),
    ("character_set_connection", "utf8mb4"),
    ("character_set_database", "utf8mb4"),
    ("character_set_results", "utf8mb4"),
    ("character_set_server", "utf8mb4"),
    ("character_set_system", "utf8mb3"),
    ("collation_connection", "utf8mb4_general_ci"),
    ("collation_database", "utf8mb4_general_ci"),
    ("collation_server", "utf8mb4_general_ci"),
    ("init_connect", ""),
    ("license", env!("CARGO_PKG_LICENSE")),
    ("query_cache_type", "OFF"),
    ("sql_mode", ""),
    ("system_time_zone", "UTC"),
    ("time_zone", "SYSTEM"),
    ("transaction_isolation", "REPEATABLE-READ"),
    ("tx_isolation", "REPEATABLE-READ"),
    ("version_comment", "the console of gatekeeper"),
];
const SCOPES: [&str; 4] = ["@@session", "@@local", "@@global", "@@"];

/// What the values are about.
pub(super) struct Facts<'a> {
    pub(super) user: &'a str,
    /// The version of the greeting.
    pub(super) version: &'a str,
    /// The id of the greeting.
    pub(super) connection: u32,
}

/// The one row of an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) columns: Vec<(String, Kind)>,
    pub(super) values: Vec<Cell>,
}

/// Answers a SELECT of such values and of nothing else. `None`: the text is something else.
pub(super) fn select(sql: &str, facts: &Facts<'_>) -> Option<Result<Row, Failure>> {
    let tokens = tokens(sql)?;
    let (select, mut rest) = tokens.split_first()?;
    if !is_word(sql, select, "SELECT") {
        return None;
    }
    let mut row = Row { columns: Vec::new(), values: Vec::new() };
    loop {
        let start = rest.first()?.start;
        let (value, length) = value(sql, rest, facts)?;
        let value = match value {
            Ok(value) => value,
            Err(unknown) => return Some(Err(unknown)),
        };
        let (end, behind) = (rest.get(length - 1)?.end, &rest[length..]);
        let (alias, behind) = alias(sql, behind);
        let kind = if matches!(value, Cell::Int(_)) { Kind::Int } else { Kind::Text };
        row.columns.push((alias.unwrap_or_else(|| sql[start..end].to_owned()), kind));
        row.values.push(value);
        rest = match behind {
            [comma, behind @ ..] if comma.kind == TokenKind::Comma => behind,
            _ if ends(sql, behind) => return Some(Ok(row)),
            _ => return None,
        };
    }
}

fn tokens(sql: &str) -> Option<Vec<Token>> {
    let mut lexer = Lexer::new(sql.as_bytes(), Dialect::MYSQL);
    let mut tokens = Vec::new();
    while let Some(token) = lexer.next_token().ok()? {
        if tokens.len() == TOKENS_MAX {
            return None;
        }
        if !matches!(token.kind, TokenKind::Comment | TokenKind::Semicolon) {
            tokens.push(token);
        }
    }
    Some(tokens)
}

fn text<'a>(sql: &'a str, token: &Token) -> &'a str {
    sql.get(token.start..token.end).unwrap_or_default()
}

fn is_word(sql: &str, token: &Token, word: &str) -> bool {
    token.kind == TokenKind::Word && text(sql, token).eq_ignore_ascii_case(word)
}

/// The value at the start, and how many tokens it takes.
fn value(sql: &str, tokens: &[Token], facts: &Facts<'_>) -> Option<(Result<Cell, Failure>, usize)> {
    let kinds: Vec<_> = tokens.iter().take(3).map(|token| token.kind).collect();
    let first = text(sql, tokens.first()?).to_ascii_lowercase();
    match kinds.as_slice() {
        [TokenKind::Variable, TokenKind::Dot, TokenKind::Word] if SCOPES.contains(&first.as_str()) => {
            Some((variable(text(sql, tokens.get(2)?), facts), 3))
        }
        [TokenKind::Variable, ..] => Some((variable(first.strip_prefix("@@")?, facts), 1)),
        [TokenKind::Word, TokenKind::Open, TokenKind::Close] => Some((Ok(function(&first, facts)?), 3)),
        [TokenKind::Word, ..] if first == "current_user" => Some((Ok(function(&first, facts)?), 1)),
        _ => None,
    }
}

fn variable(name: &str, facts: &Facts<'_>) -> Result<Cell, Failure> {
    let name = name.to_ascii_lowercase();
    if name == "version" {
        return Ok(facts.version.into());
    }
    let integer = INTEGERS.iter().find(|(known, _)| *known == name).map(|(_, value)| Cell::Int(*value));
    let text = || TEXTS.iter().find(|(known, _)| *known == name).map(|(_, value)| Cell::from(*value));
    integer.or_else(text).ok_or_else(|| {
        let hint = Some("The console knows those that drivers ask for when they connect.");
        Failure { hint, ..Failure::new("42704", format!("Unknown system variable '{name}'")) }
    })
}

fn function(name: &str, facts: &Facts<'_>) -> Option<Cell> {
    Some(match name {
        "database" | "schema" => "gatekeeper".into(),
        "version" => facts.version.into(),
        "connection_id" => facts.connection.into(),
        "user" | "current_user" | "session_user" | "system_user" => format!("{}@%", facts.user).into(),
        _ => return None,
    })
}

/// The name behind a value, if it has one, and what follows.
fn alias<'t>(sql: &str, tokens: &'t [Token]) -> (Option<String>, &'t [Token]) {
    let name = |token: &Token| {
        let text = text(sql, token);
        match token.kind {
            TokenKind::Word => Some(text.to_owned()),
            TokenKind::QuotedIdentifier | TokenKind::String => {
                Some(text.get(1..text.len() - 1).unwrap_or_default().to_owned())
            }
            _ => None,
        }
    };
    match tokens {
        [word, alias, behind @ ..] if is_word(sql, word, "AS") => (name(alias), behind),
        [word, ..] if ["AS", "FROM", "LIMIT"].iter().any(|it| is_word(sql, word, it)) => (None, tokens),
        [alias, behind @ ..] if name(alias).is_some() => (name(alias), behind),
        _ => (None, tokens),
    }
}

/// Whether what is left changes nothing about one row.
fn ends(sql: &str, tokens: &[Token]) -> bool {
    match tokens {
        [] => true,
        [limit, number] if is_word(sql, limit, "LIMIT") => {
            number.kind == TokenKind::Number && text(sql, number) != "0"
        }
        [from, dual, behind @ ..] if is_word(sql, from, "FROM") => {
            is_word(sql, dual, "DUAL") && (behind.is_empty() || behind.len() == 2 && ends(sql, behind))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: Facts<'_> = Facts { user: "boss", version: "10.11", connection: 7 };

    fn selected(sql: &str) -> Vec<(String, Cell)> {
        let row = select(sql, &FACTS).expect("it is such a text").expect("it is known");
        row.columns.into_iter().map(|(name, _)| name).zip(row.values).collect()
    }

    #[test]
    fn what_drivers_ask_for_is_answered_under_the_names_that_they_expect() {
        let named = |name: &str, value: Cell| (name.to_owned(), value);
        assert_eq!(
            selected("/* connector */SELECT  @@session.auto_increment_increment AS a, @@Time_Zone as `b`;"),
            [named("a", Cell::Int(1)), named("b", "SYSTEM".into())]
        );
        assert_eq!(
            selected("select DATABASE(), current_user, USER() 'u' from dual limit 1"),
            [
                named("DATABASE()", "gatekeeper".into()),
                named("current_user", "boss@%".into()),
                named("u", "boss@%".into())
            ]
        );
        assert_eq!(
            selected("SELECT @@version, VERSION(), CONNECTION_ID()"),
            [
                named("@@version", "10.11".into()),
                named("VERSION()", "10.11".into()),
                named("CONNECTION_ID()", Cell::Int(7))
            ]
        );
    }

    #[test]
    fn a_variable_that_no_driver_asks_for_is_unknown_and_other_texts_are_no_such_select() {
        let unknown = select("SELECT @@autocommit, @@secret", &FACTS).unwrap().unwrap_err();
        assert!(unknown.message.contains("'secret'"), "{}", unknown.message);
        let many = format!("SELECT @@autocommit{}", ", @@autocommit".repeat(TOKENS_MAX));
        for other in [
            "",
            "SELECT",
            "SELECT 1",
            "SELECT @mine",
            "SELECT @@autocommit,",
            "SELECT @@autocommit FROM t",
            "SELECT @@autocommit LIMIT 0",
            "SELECT SLEEP(1)",
            "SELECT DATABASE() + 1",
            "SELECT 'x",
            "SHOW POOLS",
            "SELECT DATABASE() AS",
            &many,
        ] {
            assert_eq!(select(other, &FACTS).map(|row| row.is_ok()), None, "{other}");
        }
    }
}
