//! Tokens of MySQL's and MariaDB's SQL, after the servers' `sql_lex.cc`.
//!
//! What differs from PostgreSQL: backquotes, `#` comments, `--` comments that need a space, strings in double
//! quotes unless `sql_mode` has ANSI_QUOTES, backslashes unless it has NO_BACKSLASH_ESCAPES, words that begin
//! with a digit, variables, and comments that are executed (`/*! … */`, `/*M! … */`). What an executed
//! comment holds is read as tokens, and its two ends as comments: the server's version decides whether it
//! counts, and a reader that skipped it could miss what the server does.

use memchr::{memchr, memchr2, memmem};

use super::super::keyword::{Keyword, keyword};
use super::super::{Backslashes, DoubleQuotes};
use super::{Lexer, Token, TokenKind, Unlexable, decimal_len, is_space, run};

/// What the session decides about a text, and where in the text the lexer is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    double_quotes: DoubleQuotes,
    backslashes: Backslashes,
    /// Within a comment that is executed.
    executed: bool,
    /// Behind the last word that wasn't quoted: a dot there is followed by a name.
    word_end: Option<usize>,
}

impl Rules {
    pub(super) fn new(double_quotes: DoubleQuotes, backslashes: Backslashes) -> Self {
        Self { double_quotes, backslashes, executed: false, word_end: None }
    }

    /// Whether only a dot is between the last word and this place.
    fn is_behind_a_dot(&self, sql: &[u8], at: usize) -> bool {
        self.word_end.is_some_and(|end| end + 1 == at && sql.get(end) == Some(&b'.'))
    }

    /// Whether the last comment that is executed hasn't ended.
    pub(super) fn is_executed(self) -> bool {
        self.executed
    }
}

/// Operators of several characters, longer ones first.
const OPERATORS: [&[u8]; 12] =
    [b"<=>", b"->>", b"<=", b">=", b"<>", b"!=", b"<<", b">>", b":=", b"&&", b"||", b"->"];

/// A byte of a word that isn't quoted; `$` is one, and a digit, also at the beginning.
fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | 0x80..)
}

impl Lexer<'_> {
    pub(super) fn mysql_token(&mut self, byte: u8, mut rules: Rules) -> Result<Token, Unlexable> {
        let token = self.mysql_token_by(byte, &mut rules)?;
        if token.kind == TokenKind::Word || token.text(self.sql).starts_with(b"@@") {
            rules.word_end = Some(token.end);
        }
        self.mysql = Some(rules);
        Ok(token)
    }

    fn mysql_token_by(&mut self, byte: u8, rules: &mut Rules) -> Result<Token, Unlexable> {
        let start = self.at;
        let rest = self.rest_from(start);
        let kind = match byte {
            b'\'' => self.mysql_string(1, b'\'', rules)?,
            b'"' if rules.double_quotes == DoubleQuotes::Identifiers => self.mysql_identifier(b'"')?,
            b'"' => self.mysql_string(1, b'"', rules)?,
            b'`' => self.mysql_identifier(b'`')?,
            b'#' => self.mysql_line_comment(),
            b'-' if starts_line_comment(rest) => self.mysql_line_comment(),
            b'/' if self.peek(1) == Some(b'*') => self.mysql_block_comment(rules)?,
            b'*' if rules.executed && self.peek(1) == Some(b'/') => {
                rules.executed = false;
                self.take(2, TokenKind::Comment)
            }
            b'?' => self.take(1, TokenKind::Parameter),
            b'@' => self.mysql_variable(),
            // Behind a word and a dot a name comes, though it be of digits.
            b'.' if rules.word_end != Some(start) && rest.get(1).is_some_and(u8::is_ascii_digit) => {
                self.mysql_number()
            }
            b'.' => self.take(1, TokenKind::Dot),
            b';' => self.take(1, TokenKind::Semicolon),
            b'(' => self.take(1, TokenKind::Open),
            b')' => self.take(1, TokenKind::Close),
            b',' => self.take(1, TokenKind::Comma),
            b'x' | b'X' | b'b' | b'B' if self.peek(1) == Some(b'\'') => self.mysql_bits(byte)?,
            b'n' | b'N' if self.peek(1) == Some(b'\'') => self.mysql_string(2, b'\'', rules)?,
            b'0'..=b'9' if !rules.is_behind_a_dot(self.sql, start) && !is_name_of_digits(rest) => {
                self.mysql_number()
            }
            _ if is_word(byte) => return Ok(self.mysql_word(rules)),
            _ => {
                let len = OPERATORS.iter().find(|text| rest.starts_with(text)).map_or(1, |text| text.len());
                self.take(len, TokenKind::Operator)
            }
        };
        Ok(Token { kind, start, end: self.at, keyword: Keyword::None })
    }

    fn mysql_word(&mut self, rules: &Rules) -> Token {
        let start = self.at;
        let rest = self.rest_from(start);
        let len = run(rest, is_word);
        // What begins with a digit, or stands behind a dot, is a name and no keyword.
        let is_name = rest.first().is_some_and(u8::is_ascii_digit) || rules.is_behind_a_dot(self.sql, start);
        self.at += len;
        let keyword = if is_name { Keyword::None } else { keyword(rest, len) };
        Token { kind: TokenKind::Word, start, end: self.at, keyword }
    }

    /// A string whose opening quote ends `prefix` bytes from here.
    fn mysql_string(&mut self, prefix: usize, quote: u8, rules: &Rules) -> Result<TokenKind, Unlexable> {
        let mut at = self.at + prefix;
        loop {
            let rest = self.rest_from(at);
            let found = match rules.backslashes {
                Backslashes::Escape => memchr2(quote, b'\\', rest),
                Backslashes::Plain => memchr(quote, rest),
            };
            let Some(found) = found else { return self.unlexable("unterminated string") };
            at += found + 1;
            if rest[found] != b'\\' && self.sql.get(at) != Some(&quote) {
                self.at = at;
                return Ok(TokenKind::String);
            }
            // The escaped byte, or the second of two quotes, belongs to the string.
            at += 1;
        }
    }

    fn mysql_identifier(&mut self, quote: u8) -> Result<TokenKind, Unlexable> {
        let mut at = self.at + 1;
        loop {
            let Some(found) = memchr(quote, self.rest_from(at)) else {
                return self.unlexable("unterminated quoted identifier");
            };
            at += found + 1;
            if self.sql.get(at) != Some(&quote) {
                self.at = at;
                return Ok(TokenKind::QuotedIdentifier);
            }
            at += 1;
        }
    }

    /// `x'…'` or `b'…'`, which the server refuses with anything but digits in it.
    fn mysql_bits(&mut self, prefix: u8) -> Result<TokenKind, Unlexable> {
        let rest = self.rest_from(self.at + 2);
        let hexadecimal = prefix.eq_ignore_ascii_case(&b'x');
        let is_digit =
            |byte: u8| if hexadecimal { byte.is_ascii_hexdigit() } else { matches!(byte, b'0' | b'1') };
        let digits = run(rest, is_digit);
        if rest.get(digits) != Some(&b'\'') || (hexadecimal && digits % 2 == 1) {
            return self.unlexable("malformed bit string");
        }
        Ok(self.take(2 + digits + 1, TokenKind::String))
    }

    /// `@name`, `@@name`, or the sign alone before a quote.
    fn mysql_variable(&mut self) -> TokenKind {
        let rest = self.rest_from(self.at);
        let (signs, len) = match rest {
            [b'@', b'@', behind @ ..] => (2, run(behind, is_word)),
            _ => (1, run(rest.get(1..).unwrap_or_default(), |byte| is_word(byte) || byte == b'.')),
        };
        if len == 0 {
            return self.take(1, TokenKind::Operator);
        }
        self.take(signs + len, TokenKind::Variable)
    }

    /// A number: `0x1f`, `0b01`, an integer, a decimal, or one with an exponent. It isn't a name.
    fn mysql_number(&mut self) -> TokenKind {
        let rest = self.rest_from(self.at);
        self.take(number_len(rest), TokenKind::Number)
    }

    fn mysql_line_comment(&mut self) -> TokenKind {
        let rest = self.rest_from(self.at);
        self.take(memchr(b'\n', rest).unwrap_or(rest.len()), TokenKind::Comment)
    }

    /// A comment, or the beginning of one that is executed. Such comments don't nest: the first end ends all.
    fn mysql_block_comment(&mut self, rules: &mut Rules) -> Result<TokenKind, Unlexable> {
        let rest = self.rest_from(self.at);
        let mark = match rest {
            [_, _, b'!', ..] => 3,
            [_, _, b'M', b'!', ..] => 4,
            _ => 0,
        };
        if mark > 0 {
            rules.executed = true;
            // Five or six digits are a version.
            let digits = run(rest.get(mark..).unwrap_or_default(), |byte| byte.is_ascii_digit());
            let version = if digits >= 5 { digits.min(6) } else { 0 };
            return Ok(self.take(mark + version, TokenKind::Comment));
        }
        match memmem::find(rest.get(2..).unwrap_or_default(), b"*/") {
            Some(found) => Ok(self.take(2 + found + 2, TokenKind::Comment)),
            None => self.unlexable("unterminated comment"),
        }
    }
}

/// Whether `--` begins a comment: a space, a control character or the end must follow.
fn starts_line_comment(rest: &[u8]) -> bool {
    rest.starts_with(b"--") && rest.get(2).is_none_or(|&byte| is_space(byte) || byte.is_ascii_control())
}

/// Whether a word that begins with a digit is a name, such as `1st`: no number ends where its letters end.
fn is_name_of_digits(rest: &[u8]) -> bool {
    let len = number_len(rest);
    let has_fraction = rest[..len].contains(&b'.');
    let has_exponent = !rest.starts_with(b"0x") && rest[..len].contains(&b'e') || rest[..len].contains(&b'E');
    // Behind a fraction or an exponent whatever comes begins another token.
    !has_fraction && !has_exponent && rest.get(len).is_some_and(|&byte| is_word(byte))
}

/// Bytes of the number that `rest` starts with.
fn number_len(rest: &[u8]) -> usize {
    let radix = match rest {
        [b'0', b'x', behind @ ..] => run(behind, |byte| byte.is_ascii_hexdigit()),
        [b'0', b'b', behind @ ..] => run(behind, |byte| matches!(byte, b'0' | b'1')),
        _ => 0,
    };
    if radix > 0 && !rest.get(2 + radix).is_some_and(|&byte| is_word(byte)) {
        return 2 + radix;
    }
    decimal_len(rest, |byte| byte.is_ascii_digit())
}
