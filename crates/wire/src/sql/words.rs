//! A cursor over the first tokens of a statement, for the few commands whose grammar is recognized exactly.

use std::borrow::Cow;

use super::keyword::Keyword;
use super::lexer::{Token, TokenKind};

/// The bytes of an identifier that count: the server cuts longer ones off (`NAMEDATALEN` − 1).
pub(crate) const MAX_IDENTIFIER: usize = 63;

/// The first tokens of a statement, comments left out.
#[derive(Debug, Clone)]
pub(crate) struct Words<'a, 't> {
    sql: &'a [u8],
    tokens: &'t [Token],
    /// Whether the statement goes on behind `tokens`.
    more: bool,
}

impl<'a, 't> Words<'a, 't> {
    pub(crate) fn new(sql: &'a [u8], tokens: &'t [Token], more: bool) -> Self {
        Self { sql, tokens, more }
    }

    pub(crate) fn next(&mut self) -> Option<Token> {
        let (first, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        Some(*first)
    }

    /// The keyword that comes next; [`Keyword::None`] for anything else.
    pub(crate) fn keyword(&mut self) -> Keyword {
        self.next().map_or(Keyword::None, |token| token.keyword)
    }

    /// Consumes the next token if it is this keyword.
    pub(crate) fn take(&mut self, keyword: Keyword) -> bool {
        self.take_any(&[keyword])
    }

    /// Consumes the next token if it is one of these keywords.
    pub(crate) fn take_any(&mut self, keywords: &[Keyword]) -> bool {
        let taken = self.tokens.first().is_some_and(|token| keywords.contains(&token.keyword));
        if taken {
            self.tokens = &self.tokens[1..];
        }
        taken
    }

    /// Consumes the next tokens if they are these keywords, all of them.
    pub(crate) fn take_all(&mut self, keywords: &[Keyword]) -> bool {
        let taken = self.tokens.len() >= keywords.len()
            && self.tokens.iter().zip(keywords).all(|(token, keyword)| token.keyword == *keyword);
        if taken {
            self.tokens = &self.tokens[keywords.len()..];
        }
        taken
    }

    /// Consumes the next token if it is of this kind.
    pub(crate) fn take_kind(&mut self, kind: TokenKind) -> bool {
        let taken = self.tokens.first().is_some_and(|token| token.kind == kind);
        if taken {
            self.tokens = &self.tokens[1..];
        }
        taken
    }

    /// Consumes the next token if it is this operator.
    pub(crate) fn take_operator(&mut self, operator: &[u8]) -> bool {
        let is = |token: &Token| token.kind == TokenKind::Operator && token.text(self.sql) == operator;
        let taken = self.tokens.first().is_some_and(is);
        if taken {
            self.tokens = &self.tokens[1..];
        }
        taken
    }

    /// Whether no more is known of the statement: it ends here, or goes on behind its head.
    pub(crate) fn at_end_of_head(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Whether the statement ends here.
    pub(crate) fn at_end(&self) -> bool {
        self.tokens.is_empty() && !self.more
    }

    /// An identifier as the server folds it; reserved words are none.
    pub(crate) fn name(&mut self) -> Option<Cow<'a, [u8]>> {
        let token = self.next()?;
        if token.keyword.is_reserved() { None } else { identifier(self.sql, token) }
    }

    /// An identifier that may be qualified, with the dots kept: `my.setting`.
    pub(crate) fn qualified(&mut self) -> Option<Cow<'a, [u8]>> {
        let mut name = self.name()?;
        while self.take_kind(TokenKind::Dot) {
            // Behind a dot any word may stand.
            let part = identifier(self.sql, self.next()?)?;
            let whole = name.to_mut();
            whole.push(b'.');
            whole.extend_from_slice(&part);
        }
        Some(name)
    }
}

/// An identifier as the server folds it: lowercase (ASCII only) unless quoted, doubled quotes undone, cut at
/// [`MAX_IDENTIFIER`]. `None` for anything else, and for `U&"…"`, whose escapes aren't read.
pub(crate) fn identifier(sql: &[u8], token: Token) -> Option<Cow<'_, [u8]>> {
    let text = token.text(sql);
    let name = match token.kind {
        TokenKind::Word if text.iter().any(u8::is_ascii_uppercase) => Cow::Owned(text.to_ascii_lowercase()),
        TokenKind::Word => Cow::Borrowed(text),
        TokenKind::QuotedIdentifier => {
            let inner = text.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
            if memchr::memchr(b'"', inner).is_some() {
                Cow::Owned(undouble(inner))
            } else {
                Cow::Borrowed(inner)
            }
        }
        _ => return None,
    };
    Some(cut(name))
}

fn undouble(inner: &[u8]) -> Vec<u8> {
    let mut quotes = 0_usize;
    let kept = |byte: &u8| {
        quotes += usize::from(*byte == b'"');
        *byte != b'"' || quotes % 2 == 1
    };
    inner.iter().copied().filter(kept).collect()
}

/// Cuts at a character's boundary if the text is UTF-8.
fn cut(name: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    if name.len() <= MAX_IDENTIFIER {
        return name;
    }
    let continues = |at: usize| name.get(at).is_some_and(|byte| byte & 0xc0 == 0x80);
    let end =
        (MAX_IDENTIFIER - 3..=MAX_IDENTIFIER).rev().find(|&at| !continues(at)).unwrap_or(MAX_IDENTIFIER);
    match name {
        Cow::Borrowed(name) => Cow::Borrowed(&name[..end]),
        Cow::Owned(mut name) => {
            name.truncate(end);
            Cow::Owned(name)
        }
    }
}

/// The inside of a quoted identifier that would be the same without its quotes.
pub(crate) fn plain_identifier(text: &[u8]) -> Option<&[u8]> {
    let inner = text.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    let (first, rest) = inner.split_first()?;
    let plain = (first.is_ascii_lowercase() || *first == b'_')
        && rest.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'_');
    plain.then_some(inner)
}
