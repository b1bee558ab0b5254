//! The statements of a text, one after the other.
//!
//! A text is split at semicolons outside of parentheses and of `BEGIN ATOMIC` bodies. Transaction control
//! and settings are recognized by their whole grammar, since a proxy answers some of them itself: what
//! isn't exactly such a command is [`Kind::Other`] and the server's to judge. Everything else about a
//! statement is gathered from its tokens in passing, in constant memory.

use super::Dialect;
use super::lexer::{Lexer, TokenKind};
use super::observe::Observer;
use super::statement::{Statement, empty};

/// The statements of a text: at least one. A text without any yields one that is `Kind::Empty`; empty ones
/// between others aren't mentioned.
#[derive(Debug, Clone)]
pub struct Statements<'a> {
    sql: &'a [u8],
    lexer: Lexer<'a>,
    yielded: bool,
    finished: bool,
}

/// Reads the statements of a PostgreSQL text; `standard_strings` is the session's
/// `standard_conforming_strings`.
#[must_use]
pub fn statements(sql: &[u8], standard_strings: bool) -> Statements<'_> {
    let lexer = Lexer::new(sql, Dialect::Postgres { standard_strings });
    Statements { sql, lexer, yielded: false, finished: false }
}

impl<'a> Iterator for Statements<'a> {
    type Item = Statement<'a>;

    fn next(&mut self) -> Option<Statement<'a>> {
        if self.finished {
            return None;
        }
        let mut observer = Observer::new(self.lexer.position());
        loop {
            match self.lexer.next_token() {
                Ok(Some(token)) if token.kind == TokenKind::Semicolon && observer.ends_at_semicolon() => {
                    if !observer.is_empty() {
                        break;
                    }
                    observer.restart(token.end);
                }
                Ok(Some(token)) => observer.push(self.sql, token),
                Ok(None) => {
                    self.finished = true;
                    if observer.is_empty() {
                        return (!self.yielded).then(|| empty(self.sql));
                    }
                    break;
                }
                Err(_) => {
                    self.finished = true;
                    return Some(observer.unlexable(self.sql));
                }
            }
        }
        self.yielded = true;
        Some(observer.finish(self.sql))
    }
}
