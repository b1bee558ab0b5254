//! The lexer against MariaDB itself: random texts, whose statements and columns the server counts as we do.
//!
//! The number of texts and the seed are `WIRE_TEST_TEXTS` and `WIRE_TEST_SEED`; a failure names the text.

use std::env;

use wire::mysql::response::Part;
use wire::sql::lexer::{Lexer, TokenKind};
use wire::sql::{Backslashes, Dialect, DoubleQuotes};

use crate::{Capabilities, login, start};

/// Pieces that make quotes, comments and numbers meet in every way; some are whole columns, so that many
/// texts are valid.
const PIECES: [&str; 62] = [
    "'",
    "'",
    "'",
    "\"",
    "\"",
    "`",
    "\\",
    "\\'",
    "\\\"",
    "''",
    "\"\"",
    "--",
    "-- ",
    "--\n",
    "#",
    "#",
    "\n",
    "\n",
    " ",
    " ",
    ",",
    ",",
    ",",
    ";",
    "1",
    "2.5",
    ".5",
    "1e5",
    "1.",
    "0x1f",
    "0xg",
    "x'1f'",
    "X'1'",
    "b'01'",
    "N'x'",
    "'b'",
    "\"q\"",
    " as `c`",
    " as 1d",
    "+",
    "-",
    "(",
    ")",
    "/*",
    "*/",
    "*/",
    "/*!",
    "/*!40000 ",
    "/*M!100100 ",
    "/*+",
    "@x",
    "@@sql_mode",
    "@'y'",
    ":=",
    "||",
    "<=>",
    "..",
    "\r",
    "\t",
    ", 'y'",
    ";select ",
    "select 1",
];

/// The columns of each statement as our tokens have it; `None` if the text can't be lexed.
fn our_columns(sql: &[u8], dialect: Dialect) -> Option<Vec<usize>> {
    let mut lexer = Lexer::new(sql, dialect);
    let (mut columns, mut depth, mut commas, mut tokens) = (Vec::new(), 0_i32, 0, 0);
    loop {
        let token = lexer.next_token().ok()?;
        match token.map(|token| token.kind) {
            None | Some(TokenKind::Semicolon) => {
                if tokens > 0 {
                    columns.push(commas + 1);
                }
                (depth, commas, tokens) = (0, 0, 0);
                if token.is_none() {
                    return Some(columns);
                }
                continue;
            }
            Some(TokenKind::Comment) => continue,
            Some(TokenKind::Open) => depth += 1,
            Some(TokenKind::Close) => depth -= 1,
            Some(TokenKind::Comma) if depth == 0 => commas += 1,
            Some(_) => {}
        }
        tokens += 1;
    }
}

fn number(name: &str, default: u64) -> u64 {
    env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

#[test]
fn the_server_sees_the_same_statements_and_columns() {
    let server = start();
    let mut session = login(&server, Capabilities::default());
    let seed = number("WIRE_TEST_SEED", 1);
    println!("WIRE_TEST_SEED={seed}");
    let mut state = seed.max(1);
    let mut below = |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % bound as u64).unwrap()
    };
    let modes = [
        ("", DoubleQuotes::Strings, Backslashes::Escape),
        ("ANSI_QUOTES", DoubleQuotes::Identifiers, Backslashes::Escape),
        ("NO_BACKSLASH_ESCAPES", DoubleQuotes::Strings, Backslashes::Plain),
        ("ANSI_QUOTES,NO_BACKSLASH_ESCAPES", DoubleQuotes::Identifiers, Backslashes::Plain),
    ];
    let mut answered = 0;
    for (mode, double_quotes, backslashes) in modes {
        session.query(&format!("SET sql_mode = '{mode}'"));
        for _ in 0..number("WIRE_TEST_TEXTS", 20_000) / 4 {
            let mut sql = "select ".to_owned();
            for _ in 0..1 + below(9) {
                sql += PIECES[below(PIECES.len())];
            }
            let answer = session.query(&sql);
            // The server says of everything that it can't lex, and of much else, that its syntax is wrong.
            if answer.count(|part| matches!(part, Part::Error { .. })) > 0 {
                continue;
            }
            let columns = answer.messages.iter().filter_map(|(part, _)| match part {
                Part::Header { columns } => Some(usize::from(*columns)),
                _ => None,
            });
            let ours = our_columns(sql.as_bytes(), Dialect::MySql { double_quotes, backslashes });
            assert_eq!(ours, Some(columns.collect()), "{sql:?} with {mode:?}");
            answered += 1;
        }
    }
    println!("{answered} texts were answered");
    assert!(answered > 0);
}
