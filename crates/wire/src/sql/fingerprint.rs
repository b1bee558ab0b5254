//! The shape of a statement without any of its values: a readable label and a hash.
//!
//! Comments are left out, literals and parameters become `?`, whitespace is single, keywords and unquoted
//! identifiers are lowercase, and lists are collapsed, so that the same statement with other values, or
//! with more of them, has the same shape:
//!
//! - `(?, ?, ?)`, the arguments of `IN` and the elements of `ARRAY` become `(...)`, `[...]`;
//! - the second and later rows of `VALUES` are left out;
//! - a sign before a number belongs to the number;
//! - what `SET` assigns, and the names of cursors and savepoints (drivers number them), become `?`.
//!
//! How much is asked for does matter for the work: a batch of 1000 rows isn't one of 3. The decade of the
//! longest `IN` or `ARRAY` list or number of rows is appended from 10 on: `insert into t values (...)
//! ~10^2`.
//!
//! **No literal ever leaves**: what the lexer calls a number or a string is never copied, and a text it
//! can't read is an error, not a guess. Identifiers are copied, as the types' names need them.
//!
//! Parameters: [`MAX_TEXT`] bounds the work (a shape shows well before that; the sizes of lists that go on
//! beyond are extrapolated), [`MAX_LABEL`] the label (the hash covers what it leaves out). When it fails:
//! texts that are generated with values as identifiers (a table per tenant) have as many shapes as values.

use xxhash_rust::xxh3::xxh3_64;

use super::Dialect;
use super::keyword::Keyword;
use super::lexer::{Lexer, Token, TokenKind, Unlexable};
use super::words::plain_identifier;

/// The bytes of a text whose tokens make its fingerprint.
pub const MAX_TEXT: usize = 64 * 1_024;
/// The longest label in bytes, the mark of a cut and the size included.
pub const MAX_LABEL: usize = 512;
/// The nesting up to which lists are collapsed.
const MAX_DEPTH: usize = 32;

/// A statement's shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fingerprint {
    /// A hash of the whole shape, sizes included. Stable as long as this module's rules are.
    pub hash: u64,
    /// The shape as text, at most [`MAX_LABEL`] bytes; if it is cut it ends in `…` and a part of the hash.
    pub label: String,
}

/// Writes the label of a text into `out`, replacing what was there, and returns its hash.
///
/// # Errors
/// If the text can't be lexed; `out` is empty then. Such a text is of the type `unparsed`.
pub fn fingerprint(sql: &[u8], dialect: Dialect, out: &mut String) -> Result<u64, Unlexable> {
    let mut lexer = Lexer::new(sql, dialect);
    let mut shape = Shape::new(std::mem::take(out));
    while let Some(token) = lexer.next_token()? {
        if !shape.push(sql, token) {
            break;
        }
    }
    let fingerprint = shape.finish(sql.len());
    *out = fingerprint.label;
    Ok(fingerprint.hash)
}

/// Appends the decade of a size: nothing up to 9, then ` ~10^1` up to 99, and so on.
pub fn push_size(label: &mut String, size: u64) {
    if let Some(decade @ 1..) = size.checked_ilog10() {
        // Decades have at most two digits.
        label.push_str(" ~10^");
        label.push_str(&decade.to_string());
    }
}

/// A parenthesis or bracket that is open.
#[derive(Debug, Clone, Copy)]
struct Frame {
    /// Where it begins in the output.
    start: usize,
    /// Nothing but literals, commas and casts so far.
    pure: bool,
    /// Literals so far.
    items: u32,
    /// A literal has to come next.
    expects: bool,
    /// Behind `::`, where words are allowed.
    casts: bool,
    /// The first row of a VALUES.
    row: bool,
}

const FRAME: Frame = Frame { start: 0, pure: true, items: 0, expects: true, casts: false, row: false };

/// What is left out of the output at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Skip {
    /// Nothing.
    Nothing,
    /// A list has been opened whose first token decides whether it is one.
    Undecided,
    /// A list, with the elements so far, to the end of its nesting.
    List { depth: usize, count: u64 },
    /// Between the rows of VALUES: a comma may follow, then another row.
    Rows { depth: usize, count: u64, comma: bool },
    /// A row, to the end of its nesting.
    Row { depth: usize, count: u64 },
    /// What SET assigns.
    Value,
}

/// The shape as it grows, token by token.
#[derive(Debug)]
pub(super) struct Shape {
    out: Vec<u8>,
    /// Where the first token begins.
    origin: Option<usize>,
    frames: [Frame; MAX_DEPTH],
    depth: usize,
    skip: Skip,
    /// The token that was put out last.
    last: Option<(TokenKind, Keyword)>,
    /// The statement's first keyword, and its tokens so far.
    first: Keyword,
    tokens: usize,
    /// A sign that may belong to a number.
    sign: Option<u8>,
    semicolon: bool,
    largest: u64,
    truncated: bool,
}

impl Shape {
    /// Reuses the allocation of `out`.
    pub(super) fn new(out: String) -> Self {
        let mut out = out.into_bytes();
        out.clear();
        Self {
            out,
            origin: None,
            frames: [FRAME; MAX_DEPTH],
            depth: 0,
            skip: Skip::Nothing,
            last: None,
            first: Keyword::None,
            tokens: 0,
            sign: None,
            semicolon: false,
            largest: 0,
            truncated: false,
        }
    }

    /// Takes the next token; `false` once no more are wanted.
    pub(super) fn push(&mut self, sql: &[u8], token: Token) -> bool {
        let origin = *self.origin.get_or_insert(token.start);
        if token.start - origin >= MAX_TEXT {
            self.truncated = true;
            return false;
        }
        match token.kind {
            TokenKind::Comment => return true,
            TokenKind::Semicolon if self.depth == 0 => {
                self.end_statement();
                return true;
            }
            _ => {}
        }
        if self.tokens == 0 {
            self.first = token.keyword;
        }
        self.tokens += 1;
        if !self.skips(token) {
            self.put_sign_unless(token.kind == TokenKind::Number);
            self.take(sql, token);
        }
        true
    }

    fn end_statement(&mut self) {
        self.end_rows();
        self.put_sign_unless(false);
        self.skip = Skip::Nothing;
        self.semicolon = self.tokens > 0 || self.semicolon;
        self.tokens = 0;
    }

    /// Whether the token is left out; follows the nesting of what is.
    fn skips(&mut self, token: Token) -> bool {
        match (self.skip, token.kind) {
            (Skip::Nothing, _) => false,
            (Skip::Value, _) => true,
            (Skip::Undecided, _) => {
                let query = matches!(
                    token.keyword,
                    Keyword::Select | Keyword::With | Keyword::Values | Keyword::Table
                );
                self.skip = if query { Skip::Nothing } else { Skip::List { depth: self.depth, count: 1 } };
                !query && self.skips(token)
            }
            (Skip::List { depth, count }, kind) => {
                self.follow(kind);
                if self.depth < depth {
                    self.skip = Skip::Nothing;
                    self.largest = self.largest.max(count);
                    self.put_list(kind);
                } else if kind == TokenKind::Comma && self.depth == depth {
                    self.skip = Skip::List { depth, count: count + 1 };
                }
                true
            }
            (Skip::Rows { depth, count, comma: false }, TokenKind::Comma) if self.depth == depth => {
                self.skip = Skip::Rows { depth, count, comma: true };
                true
            }
            (Skip::Rows { depth, count, comma: true }, TokenKind::Open) => {
                self.depth += 1;
                self.skip = Skip::Row { depth, count: count + 1 };
                true
            }
            (Skip::Rows { comma, .. }, _) => {
                self.end_rows();
                if comma {
                    self.put(TokenKind::Comma, Keyword::None, ",");
                }
                false
            }
            (Skip::Row { depth, count }, kind) => {
                self.follow(kind);
                if self.depth <= depth {
                    self.skip = Skip::Rows { depth, count, comma: false };
                }
                true
            }
        }
    }

    fn follow(&mut self, kind: TokenKind) {
        match kind {
            TokenKind::Open | TokenKind::OpenBracket => self.depth += 1,
            TokenKind::Close | TokenKind::CloseBracket => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }

    fn end_rows(&mut self) {
        if let Skip::Rows { count, .. } = self.skip {
            self.largest = self.largest.max(count);
            self.skip = Skip::Nothing;
        }
    }

    /// A token that isn't left out.
    fn take(&mut self, sql: &[u8], token: Token) {
        match token.kind {
            TokenKind::Number | TokenKind::String | TokenKind::Parameter => self.literal(),
            TokenKind::Word | TokenKind::QuotedIdentifier | TokenKind::Variable => self.word(sql, token),
            TokenKind::Open | TokenKind::OpenBracket => self.open(token.kind),
            TokenKind::Close | TokenKind::CloseBracket => self.close(token.kind),
            TokenKind::Operator => self.operator(token.text(sql)),
            TokenKind::Comma => {
                self.in_frame(|frame| {
                    frame.pure &= !frame.expects;
                    frame.expects = true;
                    frame.casts = false;
                });
                self.put(TokenKind::Comma, Keyword::None, ",");
            }
            TokenKind::Cast => {
                self.in_frame(|frame| {
                    frame.pure &= !frame.expects;
                    frame.casts = true;
                });
                self.put(TokenKind::Cast, Keyword::None, "::");
            }
            TokenKind::Dot => {
                self.in_frame(|frame| frame.pure &= frame.casts);
                self.put(TokenKind::Dot, Keyword::None, ".");
            }
            // A semicolon within parentheses.
            TokenKind::Semicolon | TokenKind::Comment => {
                self.in_frame(|frame| frame.pure = false);
                self.put(TokenKind::Semicolon, Keyword::None, ";");
            }
        }
    }

    fn in_frame(&mut self, change: impl FnOnce(&mut Frame)) {
        if let Some(frame) = self.depth.checked_sub(1).and_then(|at| self.frames.get_mut(at)) {
            change(frame);
        }
    }

    fn literal(&mut self) {
        self.in_frame(Frame::item);
        // A string behind a word is one value with it (`date '…'`), two values in a row are one.
        self.put(TokenKind::Parameter, Keyword::None, "?");
    }

    fn word(&mut self, sql: &[u8], token: Token) {
        let keyword = token.keyword;
        if self.is_numbered_name(token) {
            return self.literal();
        }
        self.in_frame(|frame| match keyword {
            Keyword::Null | Keyword::True | Keyword::False | Keyword::Default => frame.item(),
            _ => frame.pure &= frame.casts,
        });
        self.put(token.kind, keyword, "");
        push_identifier(&mut self.out, token.text(sql), token.kind);
        if self.first == Keyword::Alter && keyword == Keyword::Set && self.depth == 0 {
            // `ALTER ROLE … SET x TO y` assigns as SET does.
            self.first = Keyword::Set;
        } else if self.first == Keyword::Set && self.depth == 0 {
            let named = matches!(keyword, Keyword::Role | Keyword::Authorization | Keyword::Zone);
            if keyword == Keyword::To || (named && self.tokens > 1) {
                self.assign();
            }
        }
    }

    /// Whether a name is one that drivers make up anew each time.
    fn is_numbered_name(&self, token: Token) -> bool {
        match self.first {
            Keyword::Fetch
            | Keyword::Move
            | Keyword::Close
            | Keyword::Deallocate
            | Keyword::Savepoint
            | Keyword::Release
            | Keyword::Rollback => token.keyword == Keyword::None,
            Keyword::Declare => self.tokens == 2,
            _ => false,
        }
    }

    /// Leaves out the rest of a SET.
    fn assign(&mut self) {
        self.put(TokenKind::Parameter, Keyword::None, "?");
        self.skip = Skip::Value;
    }

    fn operator(&mut self, text: &[u8]) {
        if let [sign @ (b'-' | b'+')] = text {
            if self.lacks_operand() {
                self.sign = Some(*sign);
                return;
            }
        }
        self.in_frame(|frame| frame.pure = false);
        self.put(TokenKind::Operator, Keyword::None, "");
        push_clean(&mut self.out, text);
        if matches!(text, b"=" | b":=") && self.first == Keyword::Set && self.depth == 0 {
            self.assign();
        }
    }

    /// Whether a sign here can't be between two values.
    fn lacks_operand(&self) -> bool {
        match self.last {
            None => true,
            Some((TokenKind::Word, keyword)) => precedes_value(keyword),
            Some((kind, _)) => matches!(
                kind,
                TokenKind::Operator | TokenKind::Open | TokenKind::OpenBracket | TokenKind::Comma
            ),
        }
    }

    /// A sign that waited: before a number it is part of it.
    fn put_sign_unless(&mut self, number: bool) {
        if let Some(sign) = self.sign.take() {
            if !number {
                self.in_frame(|frame| frame.pure = false);
                self.put(TokenKind::Operator, Keyword::None, if sign == b'-' { "-" } else { "+" });
            }
        }
    }

    fn open(&mut self, kind: TokenKind) {
        let before = self.last.map_or(Keyword::None, |(_, keyword)| keyword);
        let (text, list) = match kind {
            TokenKind::Open => ("(", before == Keyword::In),
            _ => ("[", before == Keyword::Array),
        };
        if list {
            self.in_frame(|frame| frame.pure = false);
            self.skip = Skip::Undecided;
        }
        self.put(kind, Keyword::None, text);
        let start = self.out.len() - 1;
        if let Some(frame) = self.frames.get_mut(self.depth) {
            *frame = Frame { start, row: before == Keyword::Values && kind == TokenKind::Open, ..FRAME };
        }
        self.depth += 1;
    }

    fn close(&mut self, kind: TokenKind) {
        // What closes without having been opened, or lies too deep, has no frame of its own.
        let opened = self.depth.checked_sub(1);
        self.depth = opened.unwrap_or(0);
        let frame = opened.and_then(|at| self.frames.get(at)).copied();
        let frame = frame.unwrap_or(Frame { pure: false, ..FRAME });
        if frame.pure && !frame.expects {
            self.out.truncate(frame.start + 1);
            self.put_list(kind);
            if kind == TokenKind::Close {
                self.in_frame(Frame::item);
            } else {
                self.in_frame(|frame| frame.pure &= frame.casts);
            }
        } else {
            self.in_frame(|frame| frame.pure &= frame.casts);
            self.put(kind, Keyword::None, if kind == TokenKind::Close { ")" } else { "]" });
        }
        if frame.row {
            self.skip = Skip::Rows { depth: self.depth, count: 1, comma: false };
        }
    }

    /// Ends a list that has been opened in the output.
    fn put_list(&mut self, kind: TokenKind) {
        self.out.extend_from_slice(if kind == TokenKind::Close { b"...)" } else { b"...]" });
        self.last = Some((kind, Keyword::None));
    }

    /// Puts out `text`, with a space before it where one belongs.
    fn put(&mut self, kind: TokenKind, keyword: Keyword, text: &str) {
        if self.semicolon {
            self.semicolon = false;
            self.out.extend_from_slice(b"; ");
            self.last = None;
        }
        if self.last.is_some_and(|last| is_spaced(last, kind)) {
            self.out.push(b' ');
        }
        self.out.extend_from_slice(text.as_bytes());
        self.last = Some((kind, keyword));
    }

    /// Ends the shape of a text of `len` bytes and starts over.
    pub(super) fn finish(&mut self, len: usize) -> Fingerprint {
        self.put_sign_unless(false);
        let open = match self.skip {
            Skip::List { count, .. } | Skip::Row { count, .. } | Skip::Rows { count, .. } => count,
            _ => 0,
        };
        let whole = if self.truncated { len.max(MAX_TEXT) } else { MAX_TEXT };
        let extrapolated = u128::from(open) * whole as u128 / MAX_TEXT as u128;
        self.largest = self.largest.max(u64::try_from(extrapolated).unwrap_or(u64::MAX));
        let mut size = String::new();
        push_size(&mut size, self.largest);
        if self.truncated {
            self.out.extend_from_slice(b" ...");
        }
        self.out.extend_from_slice(size.as_bytes());
        let hash = xxh3_64(&self.out);
        let label = label(std::mem::take(&mut self.out), hash, &size);
        self.restart();
        Fingerprint { hash, label }
    }

    fn restart(&mut self) {
        self.origin = None;
        self.depth = 0;
        self.skip = Skip::Nothing;
        self.last = None;
        self.first = Keyword::None;
        self.tokens = 0;
        self.semicolon = false;
        self.largest = 0;
        self.truncated = false;
    }
}

/// The shape as a label: cut where it is too long.
fn label(shape: Vec<u8>, hash: u64, size: &str) -> String {
    // Only whole characters have been put out; were it otherwise, the label would say so.
    let mut label = String::from_utf8(shape)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    if label.len() > MAX_LABEL {
        let mark = format!("… #{:08x}{size}", hash >> 32);
        let room = MAX_LABEL - mark.len();
        let end = (0..=room).rev().find(|&at| label.is_char_boundary(at)).unwrap_or(0);
        label.truncate(end);
        label.push_str(&mark);
    }
    label
}

impl Frame {
    /// A literal, or a list of literals, comes.
    fn item(&mut self) {
        if self.expects {
            self.expects = false;
            self.items += 1;
        } else {
            self.pure &= self.casts;
        }
    }
}

/// Whether a sign behind this keyword begins a value.
fn precedes_value(keyword: Keyword) -> bool {
    use Keyword as K;
    matches!(
        keyword,
        K::Select
            | K::Values
            | K::And
            | K::Or
            | K::Not
            | K::Limit
            | K::Offset
            | K::Then
            | K::Else
            | K::When
            | K::Case
            | K::Between
            | K::In
            | K::By
            | K::Like
            | K::Ilike
            | K::Returning
            | K::Using
            | K::Where
            | K::Having
            | K::On
            | K::Distinct
            | K::To
    )
}

/// Whether a space belongs between two tokens.
fn is_spaced((last, keyword): (TokenKind, Keyword), next: TokenKind) -> bool {
    use TokenKind as T;
    match (last, next) {
        (T::Open | T::OpenBracket | T::Dot | T::Cast, _) => false,
        (_, T::Close | T::CloseBracket | T::Comma | T::Dot | T::Cast | T::Semicolon | T::OpenBracket) => {
            false
        }
        (T::QuotedIdentifier, T::Open) => false,
        // A function's or type's name; keywords such as IN and VALUES stand apart.
        (T::Word, T::Open) => keyword != Keyword::None,
        _ => true,
    }
}

/// Puts out an identifier: as the server folds it, in quotes only if it needs them.
fn push_identifier(out: &mut Vec<u8>, text: &[u8], kind: TokenKind) {
    let backquoted = text.strip_prefix(b"`").and_then(|text| text.strip_suffix(b"`"));
    // MySQL's backquotes leave the case of a name as insignificant as it is without them.
    let text = backquoted.filter(|inner| is_plain_word(inner)).unwrap_or(text);
    if kind == TokenKind::QuotedIdentifier && !is_plain_word(text) {
        return push_clean(out, plain_identifier(text).unwrap_or(text));
    }
    let start = out.len();
    push_clean(out, text);
    if let Some(word) = out.get_mut(start..) {
        word.make_ascii_lowercase();
    }
}

/// Whether a name needs no quotes but for its case.
fn is_plain_word(text: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    text.first().is_some_and(|byte| !byte.is_ascii_digit()) && text.iter().all(is_plain)
}

/// Appends text with what isn't UTF-8 or printable replaced.
fn push_clean(out: &mut Vec<u8>, text: &[u8]) {
    if text.iter().all(|byte| matches!(byte, b' '..=b'~')) {
        return out.extend_from_slice(text);
    }
    let mut put = |c: char| out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    for chunk in text.utf8_chunks() {
        chunk.valid().chars().for_each(|c| put(if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }));
        if !chunk.invalid().is_empty() {
            put(char::REPLACEMENT_CHARACTER);
        }
    }
}
