//! A script: what several sessions say, one group of messages a line, in the order in which they take turns.
//!
//! The text form is for people and for the corpus. A line is a session's letter, a colon, and messages:
//!
//! ```text
//! # A comment.
//! connections 2
//! A: query "SET app.tenant = '8'"
//! B: parse "s" "SELECT $1::text" bind "" "s" ["x"] execute "" 0 sync
//! ```

use std::fmt::{self, Write};

use crate::support::raw::message;

/// The most sessions of a script.
pub(crate) const SESSIONS_MAX: usize = 5;

/// Parts of texts that leave something behind which only the connection has.
const PINNING: [&str; 18] = [
    "temp",
    "_lock",
    "listen",
    "prepare",
    "hold",
    "role",
    "authorization",
    "load",
    "set_config",
    "setseed",
    "pg_settings",
    "sjis",
    "\\",
    "é",
    "execute",
    "'words'",
    "from current",
    "do $",
];

/// One message of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Query(String),
    Parse {
        name: String,
        sql: String,
    },
    Bind {
        portal: String,
        statement: String,
        values: Vec<String>,
    },
    DescribeStatement(String),
    DescribePortal(String),
    CloseStatement(String),
    ClosePortal(String),
    Execute {
        portal: String,
        rows: u32,
    },
    Function {
        oid: u32,
        values: Vec<String>,
    },
    CopyData(String),
    CopyDone,
    CopyFail(String),
    Flush,
    Sync,
    /// The session leaves, and another one takes its letter.
    Again,
    /// Any bytes as the body of a message with this tag; each character is one byte.
    Raw {
        tag: char,
        body: String,
    },
}

impl Message {
    /// Its bytes on the wire.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let text = |text: &str| [text.as_bytes(), b"\0"].concat();
        match self {
            Self::Query(sql) => message(b'Q', &text(sql)),
            Self::Parse { name, sql } => message(b'P', &[text(name), text(sql), vec![0, 0]].concat()),
            Self::Bind { portal, statement, values: given } => message(
                b'B',
                &[text(portal), text(statement), vec![0, 0], values(given), vec![0, 0]].concat(),
            ),
            Self::DescribeStatement(name) => message(b'D', &[b"S".to_vec(), text(name)].concat()),
            Self::DescribePortal(name) => message(b'D', &[b"P".to_vec(), text(name)].concat()),
            Self::CloseStatement(name) => message(b'C', &[b"S".to_vec(), text(name)].concat()),
            Self::ClosePortal(name) => message(b'C', &[b"P".to_vec(), text(name)].concat()),
            Self::Execute { portal, rows } => {
                message(b'E', &[text(portal), rows.to_be_bytes().to_vec()].concat())
            }
            Self::Function { oid, values: given } => {
                message(b'F', &[oid.to_be_bytes().to_vec(), vec![0, 0], values(given), vec![0, 0]].concat())
            }
            Self::CopyData(data) => message(b'd', data.as_bytes()),
            Self::CopyDone => message(b'c', b""),
            Self::CopyFail(reason) => message(b'f', &text(reason)),
            Self::Flush => message(b'H', b""),
            Self::Sync => message(b'S', b""),
            Self::Again => message(b'X', b""),
            Self::Raw { tag, body } => {
                message(*tag as u8, &body.chars().map(|byte| byte as u8).collect::<Vec<_>>())
            }
        }
    }

    /// The text of a statement that it has the server run or prepare.
    pub(crate) fn sql(&self) -> Option<&str> {
        match self {
            Self::Query(sql) | Self::Parse { sql, .. } => Some(sql),
            _ => None,
        }
    }
}

impl Message {
    /// Whether it may leave something behind that the gate keeps a connection for.
    pub(crate) fn may_pin(&self) -> bool {
        match self {
            Self::Function { .. } => true,
            Self::Raw { tag, .. } => *tag == 'F',
            _ => self.sql().is_some_and(|sql| {
                let sql = sql.to_ascii_lowercase();
                PINNING.iter().any(|word| sql.contains(word))
            }),
        }
    }
}

/// A count and values with their lengths before them; `null` stands for NULL.
fn values(given: &[String]) -> Vec<u8> {
    let count = u16::try_from(given.len()).expect("a script has few values");
    let mut bytes = count.to_be_bytes().to_vec();
    for value in given {
        if value == "null" {
            bytes.extend_from_slice(&(-1_i32).to_be_bytes());
        } else {
            let length = u32::try_from(value.len()).expect("a script's values are short");
            bytes.extend_from_slice(&length.to_be_bytes());
            bytes.extend_from_slice(value.as_bytes());
        }
    }
    bytes
}

/// One session's turn: what it says before it listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) session: usize,
    pub(crate) messages: Vec<Message>,
}

/// What several sessions say in turn, and over how many server connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Script {
    pub(crate) connections: usize,
    pub(crate) turns: Vec<Turn>,
}

impl Script {
    /// How many sessions it needs.
    pub(crate) fn sessions(&self) -> usize {
        self.turns.iter().map(|turn| turn.session + 1).max().unwrap_or(0)
    }

    /// Reads the text form.
    pub(crate) fn read(text: &str) -> Self {
        let mut script = Self { connections: 2, turns: Vec::new() };
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(count) = line.strip_prefix("connections ") {
                script.connections = count.parse().expect("a number of connections");
                continue;
            }
            let (letter, rest) = line.split_once(':').unwrap_or_else(|| panic!("no session: {line}"));
            let session = usize::from(letter.as_bytes()[0] - b'A');
            assert!(letter.len() == 1 && session < SESSIONS_MAX, "no session: {line}");
            let mut words = Words { rest };
            let messages = std::iter::from_fn(|| words.message()).collect();
            script.turns.push(Turn { session, messages });
        }
        script
    }
}

impl fmt::Display for Script {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "connections {}", self.connections)?;
        for Turn { session, messages } in &self.turns {
            write!(out, "{}:", char::from(b'A' + u8::try_from(*session).unwrap_or(u8::MAX)))?;
            for message in messages {
                write!(out, " {message}")?;
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

impl fmt::Display for Message {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Query(sql) => write!(out, "query {}", quoted(sql)),
            Self::Parse { name, sql } => write!(out, "parse {} {}", quoted(name), quoted(sql)),
            Self::Bind { portal, statement, values } => {
                write!(out, "bind {} {} {}", quoted(portal), quoted(statement), list(values))
            }
            Self::DescribeStatement(name) => write!(out, "describe-statement {}", quoted(name)),
            Self::DescribePortal(name) => write!(out, "describe-portal {}", quoted(name)),
            Self::CloseStatement(name) => write!(out, "close-statement {}", quoted(name)),
            Self::ClosePortal(name) => write!(out, "close-portal {}", quoted(name)),
            Self::Execute { portal, rows } => write!(out, "execute {} {rows}", quoted(portal)),
            Self::Function { oid, values } => write!(out, "function {oid} {}", list(values)),
            Self::CopyData(data) => write!(out, "copy-data {}", quoted(data)),
            Self::CopyDone => out.write_str("copy-done"),
            Self::CopyFail(reason) => write!(out, "copy-fail {}", quoted(reason)),
            Self::Flush => out.write_str("flush"),
            Self::Sync => out.write_str("sync"),
            Self::Again => out.write_str("again"),
            Self::Raw { tag, body } => write!(out, "raw {tag} {}", quoted(body)),
        }
    }
}

fn list(values: &[String]) -> String {
    let values: Vec<_> = values.iter().map(|value| quoted(value)).collect();
    format!("[{}]", values.join(" "))
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => out.extend(['\\', character]),
            '\n' => out.push_str("\\n"),
            '\0' => out.push_str("\\0"),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

/// What is still unread of a line.
struct Words<'a> {
    rest: &'a str,
}

impl Words<'_> {
    fn message(&mut self) -> Option<Message> {
        let word = self.word()?;
        Some(match word.as_str() {
            "query" => Message::Query(self.text()),
            "parse" => Message::Parse { name: self.text(), sql: self.text() },
            "bind" => Message::Bind { portal: self.text(), statement: self.text(), values: self.list() },
            "describe-statement" => Message::DescribeStatement(self.text()),
            "describe-portal" => Message::DescribePortal(self.text()),
            "close-statement" => Message::CloseStatement(self.text()),
            "close-portal" => Message::ClosePortal(self.text()),
            "execute" => Message::Execute { portal: self.text(), rows: self.number() },
            "function" => Message::Function { oid: self.number(), values: self.list() },
            "copy-data" => Message::CopyData(self.text()),
            "copy-done" => Message::CopyDone,
            "copy-fail" => Message::CopyFail(self.text()),
            "flush" => Message::Flush,
            "sync" => Message::Sync,
            "again" => Message::Again,
            "raw" => {
                let tag = self.word().and_then(|word| word.chars().next()).expect("a tag");
                Message::Raw { tag, body: self.text() }
            }
            other => panic!("no message: {other}"),
        })
    }

    fn word(&mut self) -> Option<String> {
        self.rest = self.rest.trim_start();
        let end = self.rest.find(' ').unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        (!word.is_empty()).then(|| word.to_owned())
    }

    fn number(&mut self) -> u32 {
        self.word().and_then(|word| word.parse().ok()).expect("a number")
    }

    fn text(&mut self) -> String {
        self.rest = self.rest.trim_start().strip_prefix('"').expect("a text");
        let (mut text, mut escaped) = (String::new(), false);
        for (index, character) in self.rest.char_indices() {
            match (escaped, character) {
                (false, '"') => {
                    self.rest = &self.rest[index + 1..];
                    return text;
                }
                (false, '\\') => {
                    escaped = true;
                    continue;
                }
                (true, 'n') => text.push('\n'),
                (true, '0') => text.push('\0'),
                _ => text.push(character),
            }
            escaped = false;
        }
        panic!("a text without its end: {text}");
    }

    fn list(&mut self) -> Vec<String> {
        self.rest = self.rest.trim_start().strip_prefix('[').expect("a list");
        let mut values = Vec::new();
        loop {
            self.rest = self.rest.trim_start();
            if let Some(rest) = self.rest.strip_prefix(']') {
                self.rest = rest;
                return values;
            }
            values.push(self.text());
        }
    }
}

#[test]
fn a_script_is_read_as_it_is_written() {
    let mut text = String::from("connections 3\n");
    writeln!(text, r#"A: query "SELECT 'a\\b\"\n'""#).expect("a string takes all");
    writeln!(text, r#"C: parse "s" "SELECT 1" bind "p" "s" ["é" "null"] execute "p" 2 sync flush"#)
        .expect("a string takes all");
    writeln!(text, r#"B: function 2078 ["a" "b" "f"] copy-data "1\n" copy-done copy-fail "no" raw D "X\0""#)
        .expect("a string takes all");
    let script = Script::read(&text);
    assert_eq!((script.sessions(), script.connections), (3, 3));
    assert_eq!(script.to_string(), text);
}
