//! Texts that leave nothing on their connection: a plain SELECT, which calls nothing but what is known here,
//! and whose tables are no views.
//!
//! Any name of the text may be a table's. So all are collected, but for reserved words, and none is told
//! apart from a column's. A text with a name that isn't plain ASCII may leave something.

use wire::sql::lexer::{Token, TokenKind};

/// Words before a parenthesis that call nothing. All are reserved, so that no function has their names.
const BEFORE: [&str; 21] = [
    "and", "as", "between", "by", "distinct", "else", "exists", "from", "having", "in", "join", "like",
    "not", "on", "or", "select", "then", "union", "using", "when", "where",
];
/// Other reserved words.
const RESERVED: [&str; 11] =
    ["asc", "case", "desc", "group", "inner", "is", "left", "limit", "null", "order", "right"];
/// Functions that nobody can replace, where their parenthesis follows at once.
const AGGREGATES: [&str; 5] = ["avg", "count", "max", "min", "sum"];
/// Words of a SELECT that locks, writes, or reads a sequence's values.
const MORE: [&str; 6] = ["currval", "for", "into", "lock", "nextval", "procedure"];
/// The most names that the server is asked for, and the longest name.
const NAMES_MAX: usize = 16;
const NAME_MAX: usize = 64;
/// What may belong to a name in some mode or character set of a server.
const ODD: &[u8] = b"@[\\]^{|}~";

/// The first words of statements that define no table, and run no others.
pub(super) const DEFINE_NOTHING: [&str; 24] = [
    "(",
    "analyze",
    "checksum",
    "commit",
    "delete",
    "desc",
    "describe",
    "do",
    "explain",
    "insert",
    "load",
    "lock",
    "release",
    "replace",
    "rollback",
    "savepoint",
    "select",
    "set",
    "show",
    "start",
    "unlock",
    "update",
    "use",
    "with",
];

/// What a text may leave on its connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::mysql) enum Leaves {
    #[default]
    Something,
    /// It leaves nothing if none of these is a view: names as the text has them, `schema.name` among them,
    /// each with a zero byte behind it.
    NothingOfTables(Box<[u8]>),
}

/// Whether a text may define tables and views.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::mysql) enum Defines {
    #[default]
    Nothing,
    Tables,
}

/// What has been read of a text.
#[derive(Debug, Default)]
pub(super) struct Plain<'a> {
    count: usize,
    has_more: bool,
    names: Vec<Vec<u8>>,
    /// The two last tokens, the last one first.
    before: [Option<(Token, &'a [u8])>; 2],
}

fn is(words: &[&str], word: &[u8]) -> bool {
    words.iter().any(|known| word.eq_ignore_ascii_case(known.as_bytes()))
}

/// The name that a token is, without its quotes.
fn name<'a>((token, text): &(Token, &'a [u8])) -> Option<&'a [u8]> {
    match (token.kind, *text) {
        (TokenKind::Word, text) => Some(text),
        (TokenKind::QuotedIdentifier, [_, inside @ .., _]) => Some(inside),
        _ => None,
    }
}

impl<'a> Plain<'a> {
    /// The next token, comments left out.
    pub(super) fn note(&mut self, token: Token, text: &'a [u8]) {
        let [last, last_but_one] = &self.before;
        let kind = last.as_ref().map(|(last, _)| last.kind);
        let touches = last.as_ref().is_some_and(|(last, _)| last.end == token.start);
        // A name may begin with a digit. Behind a dot it may have nothing else.
        let is_name = matches!(token.kind, TokenKind::Word | TokenKind::QuotedIdentifier);
        self.has_more |= kind == Some(TokenKind::Number) && touches && is_name;
        self.has_more |= match token.kind {
            TokenKind::Word if self.count == 0 => !is(&["select"], text),
            _ if self.count == 0 => true,
            TokenKind::Word => is(&MORE, text),
            TokenKind::Number => text.starts_with(b".") || touches && last.as_ref().and_then(name).is_some(),
            TokenKind::Open => match (kind, last) {
                (Some(TokenKind::Word), Some((_, word))) => {
                    let of_schema = matches!(last_but_one, Some((Token { kind: TokenKind::Dot, .. }, _)));
                    of_schema || !(is(&BEFORE, word) || touches && is(&AGGREGATES, word))
                }
                (Some(TokenKind::Operator | TokenKind::Comma | TokenKind::Open), _) => false,
                _ => true,
            },
            TokenKind::Operator => text.iter().any(|byte| !byte.is_ascii() || ODD.contains(byte)),
            TokenKind::Variable | TokenKind::Semicolon => true,
            TokenKind::OpenBracket | TokenKind::CloseBracket => true,
            _ => false,
        };
        self.has_more |= kind == Some(TokenKind::Dot) && token.kind == TokenKind::Number;
        if !self.has_more {
            self.push_name(token, text);
        }
        self.count += 1;
        self.before = [Some((token, text)), self.before[0].take()];
    }

    fn push_name(&mut self, token: Token, text: &'a [u8]) {
        let Some(own) = name(&(token, text)) else { return };
        let [last, last_but_one] = &self.before;
        let is_behind_dot = last.as_ref().is_some_and(|(last, _)| last.kind == TokenKind::Dot);
        let is_reserved = token.kind == TokenKind::Word && (is(&BEFORE, own) || is(&RESERVED, own));
        if is_reserved && !is_behind_dot {
            return;
        }
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$');
        self.has_more |= !(1..=NAME_MAX).contains(&own.len()) || !own.iter().all(is_plain);
        let schema = last_but_one.as_ref().filter(|_| is_behind_dot).and_then(name);
        // In `FROM .name` the word before the dot is no schema.
        let of_schema = schema.map(|schema| [schema, own].join(&b'.'));
        for known in of_schema.into_iter().chain([own.to_vec()]) {
            if !self.names.contains(&known) {
                self.names.push(known);
            }
        }
        self.has_more |= self.names.len() > NAMES_MAX;
    }

    /// The text can't be read to its end.
    pub(super) fn spoil(&mut self) {
        self.has_more = true;
    }

    pub(super) fn leaves(self) -> Leaves {
        if self.count == 0 || self.has_more {
            return Leaves::Something;
        }
        let names = self.names.into_iter().flat_map(|name| name.into_iter().chain([0]));
        Leaves::NothingOfTables(names.collect())
    }
}
