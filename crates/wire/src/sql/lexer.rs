//! Tokens of SQL, on bytes, in linear time: PostgreSQL's here, MySQL's in `lexer/mysql.rs`.
//!
//! The rules are those of the server's `scan.l`: quoted identifiers, strings whose backslashes depend on
//! `standard_conforming_strings`, `E''`, `B''`, `X''`, `N''` and `U&''`, strings continued on another line,
//! dollar quotes, nested comments, operators that end before a comment. Keywords are compared without case;
//! text is never copied. What has no end, or a number that runs into a word, is [`Unlexable`]: the server
//! refuses it too, and guessing could take the inside of a literal for its outside.
//!
//! Every byte is looked at a bounded number of times: the ends of quotes and comments are found by
//! `memchr`, and nothing is read twice but the whitespace after a string, in search of its continuation on
//! the next line.

mod mysql;

use memchr::{memchr, memchr2, memmem};
use thiserror::Error;

use super::Dialect;
use super::keyword::{Keyword, keyword};

/// Bytes of the longest operator that is read as one: the server refuses longer ones, and without a bound a
/// run of signs, of which each is an operator, would be looked at once per sign.
const MAX_OPERATOR: usize = 63;

/// A text whose tokens can't be told: something in it has no end, or a number runs into a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{what} at byte {at}")]
pub struct Unlexable {
    /// What is wrong.
    pub what: &'static str,
    /// Where it begins, in bytes from the start of the text.
    pub at: usize,
}

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// A keyword or an unquoted identifier.
    Word,
    /// `"identifier"`, also as `U&"…"`, or in MySQL's backquotes.
    QuotedIdentifier,
    /// A number; signs are operators.
    Number,
    /// A string in any notation: plain, `E`, `B`, `X`, `N`, `U&` or dollar-quoted.
    String,
    /// `$1`, or MySQL's `?`.
    Parameter,
    /// MySQL's `@name` or `@@name`.
    Variable,
    /// A run of operator characters, or any byte that is nothing else.
    Operator,
    /// `::`.
    Cast,
    /// `;`.
    Semicolon,
    /// `(`.
    Open,
    /// `)`.
    Close,
    /// `[`.
    OpenBracket,
    /// `]`.
    CloseBracket,
    /// `,`.
    Comma,
    /// `.`.
    Dot,
    /// `-- …` to the end of the line, `/* … */`, MySQL's `# …`, or one end of a comment that MySQL executes.
    Comment,
}

/// A token: its kind and where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// What it is.
    pub kind: TokenKind,
    /// The first byte.
    pub start: usize,
    /// Behind the last byte.
    pub end: usize,
    /// Which keyword a [`TokenKind::Word`] is.
    pub(crate) keyword: Keyword,
}

impl Token {
    /// The token's text within the text it was lexed from.
    #[must_use]
    pub fn text<'a>(&self, sql: &'a [u8]) -> &'a [u8] {
        sql.get(self.start..self.end).unwrap_or_default()
    }
}

/// The tokens of a text, whitespace left out, comments not.
#[derive(Debug, Clone)]
pub struct Lexer<'a> {
    sql: &'a [u8],
    at: usize,
    standard_strings: bool,
    /// MySQL's rules, if it is MySQL's text.
    mysql: Option<mysql::Rules>,
}

impl<'a> Lexer<'a> {
    /// Starts at the beginning of `sql`.
    #[must_use]
    pub fn new(sql: &'a [u8], dialect: Dialect) -> Self {
        let (standard_strings, mysql) = match dialect {
            Dialect::Postgres { standard_strings } => (standard_strings, None),
            Dialect::MySql { double_quotes, backslashes } => {
                (false, Some(mysql::Rules::new(double_quotes, backslashes)))
            }
        };
        Self { sql, at: 0, standard_strings, mysql }
    }

    /// The bytes read so far.
    #[must_use]
    pub fn position(&self) -> usize {
        self.at
    }

    /// The next token; `None` at the end of the text.
    ///
    /// # Errors
    /// If the token has no end. The lexer must not be asked again after that.
    pub fn next_token(&mut self) -> Result<Option<Token>, Unlexable> {
        while let Some(&byte) = self.sql.get(self.at) {
            if !is_space(byte) {
                return match self.mysql {
                    None => self.token(byte),
                    Some(rules) => self.mysql_token(byte, rules),
                }
                .map(Some);
            }
            self.at += 1;
        }
        if self.mysql.is_some_and(mysql::Rules::is_executed) {
            return self.unlexable("unterminated comment");
        }
        Ok(None)
    }

    fn token(&mut self, byte: u8) -> Result<Token, Unlexable> {
        let start = self.at;
        let kind = match byte {
            b'\'' => {
                self.string(1, if self.standard_strings { Escape::Doubled } else { Escape::Backslash })?
            }
            b'"' => self.quoted_identifier(1)?,
            b'$' => self.dollar()?,
            b'0'..=b'9' => self.number()?,
            b'.' if self.peek(1).is_some_and(|next| next.is_ascii_digit()) => self.number()?,
            b'-' if self.peek(1) == Some(b'-') => self.line_comment(),
            b'/' if self.peek(1) == Some(b'*') => self.block_comment()?,
            b':' if self.peek(1) == Some(b':') => self.take(2, TokenKind::Cast),
            b':' if self.peek(1) == Some(b'=') => self.take(2, TokenKind::Operator),
            b';' => self.take(1, TokenKind::Semicolon),
            b'(' => self.take(1, TokenKind::Open),
            b')' => self.take(1, TokenKind::Close),
            b'[' => self.take(1, TokenKind::OpenBracket),
            b']' => self.take(1, TokenKind::CloseBracket),
            b',' => self.take(1, TokenKind::Comma),
            b'.' => self.take(1, TokenKind::Dot),
            _ if is_word_start(byte) => return self.word(byte),
            _ if is_operator(byte) => self.operator(),
            _ => self.take(1, TokenKind::Operator),
        };
        Ok(Token { kind, start, end: self.at, keyword: Keyword::None })
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.sql.get(self.at + ahead).copied()
    }

    fn take(&mut self, count: usize, kind: TokenKind) -> TokenKind {
        self.at += count;
        kind
    }

    fn rest_from(&self, at: usize) -> &'a [u8] {
        self.sql.get(at..).unwrap_or_default()
    }

    fn unlexable<T>(&self, what: &'static str) -> Result<T, Unlexable> {
        Err(Unlexable { what, at: self.at })
    }

    /// A word, or a string or identifier with a letter before its quote.
    fn word(&mut self, byte: u8) -> Result<Token, Unlexable> {
        let start = self.at;
        let plain = if self.standard_strings { Escape::Doubled } else { Escape::Backslash };
        let quoted = match (byte, self.peek(1), self.peek(2)) {
            (b'e' | b'E', Some(b'\''), _) => Some(self.string(2, Escape::Backslash)?),
            (b'n' | b'N', Some(b'\''), _) => Some(self.string(2, plain)?),
            (b'b' | b'B' | b'x' | b'X', Some(b'\''), _) => Some(self.string(2, Escape::Never)?),
            (b'u' | b'U', Some(b'&'), Some(b'\'')) => Some(self.string(3, Escape::Doubled)?),
            (b'u' | b'U', Some(b'&'), Some(b'"')) => Some(self.quoted_identifier(3)?),
            _ => None,
        };
        if let Some(kind) = quoted {
            return Ok(Token { kind, start, end: self.at, keyword: Keyword::None });
        }
        let rest = self.rest_from(start);
        let len = rest.iter().position(|&byte| !is_word(byte)).unwrap_or(rest.len());
        self.at += len;
        Ok(Token { kind: TokenKind::Word, start, end: self.at, keyword: keyword(rest, len) })
    }

    /// A string whose opening quote ends `prefix` bytes from here, with all its continuations.
    fn string(&mut self, prefix: usize, escape: Escape) -> Result<TokenKind, Unlexable> {
        let mut at = self.at + prefix;
        loop {
            let rest = self.rest_from(at);
            let found = match escape {
                Escape::Never | Escape::Doubled => memchr(b'\'', rest),
                Escape::Backslash => memchr2(b'\'', b'\\', rest),
            };
            let Some(found) = found else { return self.unlexable("unterminated string") };
            at += found + 1;
            let doubled = escape != Escape::Never && self.sql.get(at) == Some(&b'\'');
            if rest[found] == b'\\' || doubled {
                // An escaped byte, or the second of two quotes, belongs to the string.
                at += 1;
            } else if let Some(continued) = self.continuation(at) {
                at = continued;
            } else {
                self.at = at;
                return Ok(TokenKind::String);
            }
        }
    }

    /// Behind the quote that goes on with a string which was closed before `at`: quotes with only
    /// whitespace and `--` comments between them, at least one line break among it, are one string, under
    /// the first one's rules.
    fn continuation(&self, mut at: usize) -> Option<usize> {
        let mut line_break = false;
        loop {
            match *self.sql.get(at)? {
                b'\n' | b'\r' => line_break = true,
                byte if is_space(byte) => {}
                b'\'' if line_break => return Some(at + 1),
                b'-' if self.sql.get(at + 1) == Some(&b'-') => {
                    at += memchr2(b'\n', b'\r', self.rest_from(at))?;
                    continue;
                }
                _ => return None,
            }
            at += 1;
        }
    }

    fn quoted_identifier(&mut self, prefix: usize) -> Result<TokenKind, Unlexable> {
        let mut at = self.at + prefix;
        loop {
            let Some(found) = memchr(b'"', self.rest_from(at)) else {
                return self.unlexable("unterminated quoted identifier");
            };
            at += found + 1;
            if self.sql.get(at) != Some(&b'"') {
                self.at = at;
                return Ok(TokenKind::QuotedIdentifier);
            }
            at += 1;
        }
    }

    /// A parameter, a dollar-quoted string, or a lone dollar.
    fn dollar(&mut self) -> Result<TokenKind, Unlexable> {
        let rest = self.rest_from(self.at + 1);
        if rest.first().is_some_and(u8::is_ascii_digit) {
            let digits = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
            if rest.get(digits).is_some_and(|&byte| is_word_start(byte)) {
                return self.unlexable("trailing junk after parameter");
            }
            return Ok(self.take(1 + digits, TokenKind::Parameter));
        }
        let tag = rest.iter().position(|&byte| !is_word(byte) || byte == b'$').unwrap_or(rest.len());
        if rest.get(tag) != Some(&b'$') {
            return Ok(self.take(1, TokenKind::Operator));
        }
        let delimiter = &self.sql[self.at..self.at + tag + 2];
        let body = self.at + delimiter.len();
        match memmem::find(self.rest_from(body), delimiter) {
            Some(found) => {
                self.at = body + found + delimiter.len();
                Ok(TokenKind::String)
            }
            None => self.unlexable("unterminated dollar-quoted string"),
        }
    }

    /// Integers in four bases, decimals and exponents. A word directly behind is an error, as in the server
    /// since version 15.
    fn number(&mut self) -> Result<TokenKind, Unlexable> {
        let rest = self.rest_from(self.at);
        let radix = matches!(rest, [b'0', b'x' | b'X' | b'o' | b'O' | b'b' | b'B', ..]);
        let is_digit = |byte: u8| byte.is_ascii_digit() || byte == b'_';
        let len = if radix {
            let digits = run(&rest[2..], |byte| byte.is_ascii_hexdigit() || byte == b'_');
            if digits == 0 {
                return self.unlexable("number without digits");
            }
            2 + digits
        } else {
            // `1..10` is a range in PL/pgSQL: the number ends before both dots.
            let whole = run(rest, is_digit);
            let is_range = rest[whole..].starts_with(b"..");
            if is_range { whole } else { decimal_len(rest, is_digit) }
        };
        if rest.get(len).is_some_and(|&byte| is_word(byte)) {
            return self.unlexable("trailing junk after number");
        }
        Ok(self.take(len, TokenKind::Number))
    }

    fn line_comment(&mut self) -> TokenKind {
        let rest = self.rest_from(self.at);
        self.take(memchr2(b'\n', b'\r', rest).unwrap_or(rest.len()), TokenKind::Comment)
    }

    fn block_comment(&mut self) -> Result<TokenKind, Unlexable> {
        let mut at = self.at + 2;
        let mut depth = 1_usize;
        while depth > 0 {
            let Some(found) = memchr2(b'*', b'/', self.rest_from(at)) else {
                return self.unlexable("unterminated comment");
            };
            at += found;
            match (self.sql.get(at), self.sql.get(at + 1)) {
                (Some(b'*'), Some(b'/')) => {
                    depth -= 1;
                    at += 2;
                }
                (Some(b'/'), Some(b'*')) => {
                    depth += 1;
                    at += 2;
                }
                _ => at += 1,
            }
        }
        self.at = at;
        Ok(TokenKind::Comment)
    }

    /// The longest run of operator characters that no comment starts in. A run that ends in signs leaves
    /// them out, so that `=-1` is an equals sign and a negative number, unless a character in it says that
    /// it is one of the operators which may end so.
    fn operator(&mut self) -> TokenKind {
        let rest = self.rest_from(self.at);
        let mut len = 1;
        while let Some(&byte) = rest.get(len).filter(|_| len < MAX_OPERATOR) {
            let comment = matches!((byte, rest.get(len + 1)), (b'-', Some(b'-')) | (b'/', Some(b'*')));
            if !is_operator(byte) || comment {
                break;
            }
            len += 1;
        }
        if !rest[..len].iter().any(|byte| b"~!@#%^&|`?".contains(byte)) {
            while len > 1 && matches!(rest[len - 1], b'+' | b'-') {
                len -= 1;
            }
        }
        self.take(len, TokenKind::Operator)
    }
}

/// How a quote gets into a string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Escape {
    /// Not at all: a quote behind a bit string's begins another string.
    Never,
    /// Only doubled.
    Doubled,
    /// Doubled, or after a backslash.
    Backslash,
}

const SPACE: u8 = 1;
const WORD_START: u8 = 2;
const WORD: u8 = 4;
const OPERATOR: u8 = 8;

/// What each byte can be.
const CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut at = 0;
    while at < 256 {
        let byte = at as u8;
        classes[at] = match byte {
            b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => SPACE,
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80.. => WORD_START | WORD,
            b'0'..=b'9' | b'$' => WORD,
            b'~' | b'!' | b'@' | b'#' | b'^' | b'&' | b'|' | b'`' | b'?' | b'+' | b'-' | b'*' | b'/'
            | b'%' | b'<' | b'>' | b'=' => OPERATOR,
            _ => 0,
        };
        at += 1;
    }
    classes
};

fn is_space(byte: u8) -> bool {
    CLASSES[usize::from(byte)] & SPACE != 0
}

fn is_word_start(byte: u8) -> bool {
    CLASSES[usize::from(byte)] & WORD_START != 0
}

fn is_word(byte: u8) -> bool {
    CLASSES[usize::from(byte)] & WORD != 0
}

fn is_operator(byte: u8) -> bool {
    CLASSES[usize::from(byte)] & OPERATOR != 0
}

/// Bytes at the beginning of `rest` that are so.
fn run(rest: &[u8], is: impl Fn(u8) -> bool) -> usize {
    rest.iter().position(|&byte| !is(byte)).unwrap_or(rest.len())
}

/// Bytes of the decimal number at the beginning of `rest`, with its fraction and exponent.
fn decimal_len(rest: &[u8], is_digit: impl Fn(u8) -> bool) -> usize {
    let digits = |from: usize| run(rest.get(from..).unwrap_or_default(), &is_digit);
    let mut len = digits(0);
    if rest.get(len) == Some(&b'.') {
        len += 1;
        len += digits(len);
    }
    if matches!(rest.get(len), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(rest.get(len + 1), Some(b'+' | b'-')));
        let exponent = digits(len + 1 + sign);
        len += if exponent == 0 { 0 } else { 1 + sign + exponent };
    }
    len
}
