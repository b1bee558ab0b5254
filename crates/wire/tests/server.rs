//! The lexer against PostgreSQL itself: random texts, whose statements and columns the server counts as we
//! do.
//!
//! The number of texts and the seed are `WIRE_TEST_TEXTS` and `WIRE_TEST_SEED`; a failure names the text.

#![cfg(unix)]
// Helpers of tests are outside of `#[test]` functions, where clippy.toml's allowances don't reach.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::env;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use bytes::BytesMut;
use testbed::postgres::{Authentication, PrivateServer, PrivateServerOptions};
use wire::postgres::{backend, codec, frontend, startup};
use wire::sql::lexer::{Lexer, TokenKind};
use wire::sql::{Dialect, Kind, statements};

/// Pieces that make quotes, comments and numbers meet in every way; some are whole columns, so that many
/// texts are valid.
const PIECES: [&str; 58] = [
    "'",
    "'",
    "'",
    "\\",
    "\\'",
    "''",
    "$$",
    "$a$",
    "$",
    "--",
    "/*",
    "*/",
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
    "a",
    "E'",
    "e'x'",
    "N'",
    "U&'",
    "B'",
    "X'",
    "'b'",
    "\"",
    "\"q\"",
    "+",
    "-",
    "=-",
    "(",
    ")",
    "1",
    "'x'",
    "$$ $$",
    ", 'y'",
    ", 1",
    " as b",
    "::text",
    "|| 'k'",
    "\r",
    "\t",
    "é",
    "..",
    "/",
    "*",
    "'\n'",
    "' -- c\n'",
    "select 1",
    ";select ",
    "'1'",
];

/// What the server makes of a text.
#[derive(Debug)]
struct Answer {
    /// The columns of each statement.
    columns: Vec<usize>,
    error: Option<String>,
}

struct Server {
    stream: UnixStream,
    received: Vec<u8>,
}

impl Server {
    fn login(socket: &Path) -> Self {
        let mut server = Self { stream: UnixStream::connect(socket).unwrap(), received: Vec::new() };
        let mut out = BytesMut::new();
        startup::write_startup(&mut out, &[("user", "postgres")]);
        server.stream.write_all(&out).unwrap();
        while server.message().0 != b'Z' {}
        server
    }

    fn message(&mut self) -> (u8, Vec<u8>) {
        loop {
            if let Some(frame) = codec::backend_frame(&self.received).unwrap() {
                if let Some(body) = frame.body(&self.received).map(<[u8]>::to_vec) {
                    self.received.drain(..frame.len);
                    return (frame.tag, body);
                }
            }
            let mut chunk = [0; 8_192];
            let len = self.stream.read(&mut chunk).unwrap();
            assert!(len > 0, "the server has closed the connection");
            self.received.extend_from_slice(&chunk[..len]);
        }
    }

    fn query(&mut self, sql: &[u8]) -> Answer {
        let mut out = BytesMut::new();
        frontend::write_query(&mut out, sql);
        self.stream.write_all(&out).unwrap();
        let mut answer = Answer { columns: Vec::new(), error: None };
        let mut columns = 0;
        loop {
            let (tag, body) = self.message();
            match tag {
                b'T' => columns = usize::from(u16::from_be_bytes([body[0], body[1]])),
                b'C' => answer.columns.push(std::mem::take(&mut columns)),
                b'E' => {
                    let message = backend::parse_error(&body).message();
                    answer.error = Some(String::from_utf8_lossy(message).into_owned());
                }
                b'Z' => return answer,
                _ => {}
            }
        }
    }
}

/// The columns of each statement as our tokens have it; `None` if the text can't be lexed.
fn our_columns(sql: &[u8], standard_strings: bool) -> Option<Vec<usize>> {
    let mut columns = Vec::new();
    for statement in statements(sql, standard_strings) {
        match statement.kind {
            Kind::Unlexable => return None,
            Kind::Empty => continue,
            _ => {}
        }
        let mut lexer = Lexer::new(statement.text, Dialect::Postgres { standard_strings });
        let (mut depth, mut commas, mut tokens) = (0_i32, 0, 0);
        while let Some(token) = lexer.next_token().unwrap() {
            match token.kind {
                TokenKind::Comment => continue,
                TokenKind::Open | TokenKind::OpenBracket => depth += 1,
                TokenKind::Close | TokenKind::CloseBracket => depth -= 1,
                TokenKind::Comma if depth == 0 => commas += 1,
                _ => {}
            }
            tokens += 1;
        }
        // `SELECT` alone is a valid statement without columns.
        columns.push(if tokens == 1 { 0 } else { commas + 1 });
    }
    Some(columns)
}

fn number(name: &str, default: u64) -> u64 {
    env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

#[test]
fn the_server_sees_the_same_statements_and_columns() {
    let options =
        PrivateServerOptions { authentication: Authentication::Trust, ..PrivateServerOptions::default() };
    let private = PrivateServer::start(&options).unwrap();
    let socket = private.socket_dir().join(format!(".s.PGSQL.{}", private.port()));
    let seed = number("WIRE_TEST_SEED", 1);
    println!("WIRE_TEST_SEED={seed}");
    let mut state = seed.max(1);
    let mut below = |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % bound as u64).unwrap()
    };
    let mut server = Server::login(&socket);
    server.query(b"set escape_string_warning = off; set backslash_quote = on");
    let (mut answered, mut refused) = (0, 0);
    for round in 0..number("WIRE_TEST_TEXTS", 20_000) {
        let standard_strings = round % 2 == 0;
        let setting = if standard_strings { "on" } else { "off" };
        server.query(format!("set standard_conforming_strings = {setting}").as_bytes());
        let mut sql = "select ".to_owned();
        for _ in 0..1 + below(9) {
            sql += PIECES[below(PIECES.len())];
        }
        let ours = our_columns(sql.as_bytes(), standard_strings);
        let answer = server.query(sql.as_bytes());
        match answer.error {
            None => {
                assert_eq!(ours, Some(answer.columns), "{sql:?} with standard strings {setting}");
                answered += 1;
            }
            Some(error) if error.starts_with("unterminated") || error.starts_with("trailing junk") => {
                assert_eq!(ours, None, "{sql:?} with standard strings {setting}: {error}");
                refused += 1;
            }
            // Refused for another reason, possibly before the lexer came to what we can't read.
            Some(_) => {}
        }
    }
    assert!(answered > 0 && refused > 0, "{answered} answered, {refused} refused");
}
