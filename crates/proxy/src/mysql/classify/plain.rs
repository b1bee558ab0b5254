//! Texts that leave nothing on their connection: a plain SELECT, which calls nothing but what is known here.
//!
//! A table of the text may be a view that calls a function. What such a function leaves, the server tells,
//! but for a lock. So `mysql/left.rs` has the connection reset within a second all the same.

use wire::sql::lexer::TokenKind;

/// Words before a parenthesis that call nothing. All are reserved, so that no function has their names.
const BEFORE: [&str; 21] = [
    "and", "as", "between", "by", "distinct", "else", "exists", "from", "having", "in", "join", "like",
    "not", "on", "or", "select", "then", "union", "using", "when", "where",
];
/// Functions that nobody can replace, where their parenthesis follows at once.
const AGGREGATES: [&str; 5] = ["avg", "count", "max", "min", "sum"];
/// Words of a SELECT that locks, writes, or takes a sequence's next value.
const MORE: [&str; 5] = ["for", "into", "lock", "procedure", "value"];

/// What has been read of a text.
#[derive(Debug, Default)]
pub(super) struct Plain<'a> {
    count: usize,
    has_more: bool,
    /// The two last tokens, the last one first.
    before: [Option<(TokenKind, &'a [u8])>; 2],
}

impl<'a> Plain<'a> {
    /// The next token, comments left out.
    pub(super) fn note(&mut self, kind: TokenKind, text: &'a [u8]) {
        let is = |words: &[&str], word: &[u8]| {
            words.iter().any(|known| word.eq_ignore_ascii_case(known.as_bytes()))
        };
        self.has_more |= match kind {
            TokenKind::Word if self.count == 0 => !is(&["select"], text),
            TokenKind::Word => is(&MORE, text),
            TokenKind::Open => match self.before {
                [Some((TokenKind::Word, _)), Some((TokenKind::Dot, _))] => true,
                [Some((TokenKind::Word, word)), _] => {
                    let follows = word.as_ptr_range().end == text.as_ptr();
                    !(is(&BEFORE, word) || follows && is(&AGGREGATES, word))
                }
                [Some((TokenKind::Operator | TokenKind::Comma | TokenKind::Open, _)), _] => false,
                _ => true,
            },
            TokenKind::Variable | TokenKind::Semicolon => true,
            _ => self.count == 0,
        };
        self.count += 1;
        self.before = [Some((kind, text)), self.before[0]];
    }

    /// Whether the text was a plain SELECT.
    pub(super) const fn leaves_nothing(&self) -> bool {
        self.count > 0 && !self.has_more
    }
}
