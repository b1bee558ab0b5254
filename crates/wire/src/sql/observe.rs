//! What is gathered of one statement while its tokens pass: its head, its nesting, its traces.
//!
//! The head (the first [`HEAD`] tokens) is kept for the commands that are recognized exactly. Of the rest
//! only the last few tokens are remembered, which is enough to notice a function's call, `INTO TEMP` or
//! `WITH HOLD`.

use super::command;
use super::effects::{Effects, Pins};
use super::harmless::is_harmless;
use super::keyword::Keyword;
use super::lexer::{Token, TokenKind};
use super::statement::{CopyDirection, Kind, Statement, Touches};
use super::words::Words;

/// The tokens of a statement that are kept: `START TRANSACTION` with all of its modes once has 13.
const HEAD: usize = 24;

/// The tokens before the present one that are remembered: a power of two, so that the ring's places follow
/// the count of tokens even when that wraps.
const RING: usize = 4;

const NOTHING: Token = Token { kind: TokenKind::Comment, start: 0, end: 0, keyword: Keyword::None };

/// What a call of a function says about its statement.
enum Call {
    Nothing,
    Pins(Pins),
    ReleasesLocks,
    SetConfig,
    Writes,
}

/// Settings whose every change every supported server reports, lowercase: the session's are known, by
/// whatever they are changed.
const REPORTED: [&[u8]; 6] = [
    b"application_name",
    b"client_encoding",
    b"datestyle",
    b"intervalstyle",
    b"standard_conforming_strings",
    b"timezone",
];

/// How the schemas of temporary objects begin.
const TEMPORARY: &[u8] = b"pg_temp";

/// A call of `set_config` whose third argument is awaited.
#[derive(Debug, Clone)]
struct SetConfig {
    /// The nesting of its arguments.
    depth: u32,
    /// Which argument, from 0.
    argument: u32,
    /// Tokens of this argument so far.
    tokens: u32,
    /// This argument's first token is `TRUE`.
    is_true: bool,
    /// The first argument is the name of a reported setting, as a literal.
    is_reported: bool,
}

/// The tokens of one statement as they pass.
#[derive(Debug, Clone)]
pub(super) struct Observer {
    head: [Token; HEAD],
    /// Tokens so far, comments left out.
    count: usize,
    start: usize,
    end: usize,
    /// The tokens before the present one, in a ring.
    ring: [Token; RING],
    parentheses: u32,
    /// Open `BEGIN ATOMIC` and `CASE` within one.
    atomic: u32,
    effects: Effects,
    /// What was found so far of what it may do to rows and locks.
    touches: Touches,
    analyzes: bool,
    creates: bool,
    drops_on_commit: bool,
    copy: CopyDirection,
    set_config: Option<SetConfig>,
}

impl Observer {
    /// A statement that starts at or behind the byte `from` of its text.
    pub(super) fn new(from: usize) -> Self {
        Self {
            head: [NOTHING; HEAD],
            count: 0,
            start: usize::MAX,
            end: from,
            ring: [NOTHING; RING],
            parentheses: 0,
            atomic: 0,
            effects: Effects::default(),
            touches: Touches::Nothing,
            analyzes: false,
            creates: false,
            drops_on_commit: false,
            copy: CopyDirection::Server,
            set_config: None,
        }
    }

    /// Starts over with the statement behind the byte `from`. The head stays; what counts of it is counted
    /// anew.
    pub(super) fn restart(&mut self, from: usize) {
        self.head[0] = NOTHING;
        self.ring = [NOTHING; RING];
        self.count = 0;
        self.start = usize::MAX;
        self.end = from;
        self.parentheses = 0;
        self.atomic = 0;
        self.effects = Effects::default();
        self.touches = Touches::Nothing;
        self.analyzes = false;
        self.creates = false;
        self.drops_on_commit = false;
        self.copy = CopyDirection::Server;
        self.set_config = None;
    }

    /// No token but comments so far.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether a semicolon here ends the statement.
    pub(super) fn ends_at_semicolon(&self) -> bool {
        self.parentheses == 0 && self.atomic == 0
    }

    pub(super) fn push(&mut self, sql: &[u8], token: Token) {
        self.start = self.start.min(token.start);
        self.end = token.end;
        if token.kind == TokenKind::Comment {
            return;
        }
        if let Some(place) = self.head.get_mut(self.count) {
            *place = token;
        }
        match token.kind {
            TokenKind::Open => {
                self.parentheses = self.parentheses.saturating_add(1);
                self.open(sql);
            }
            TokenKind::OpenBracket => self.parentheses = self.parentheses.saturating_add(1),
            TokenKind::Close | TokenKind::CloseBracket => self.close(),
            TokenKind::Dot => self.dot(sql),
            _ if token.keyword != Keyword::None => self.keyword(token.keyword),
            _ => self.word(sql, token),
        }
        if token.kind == TokenKind::QuotedIdentifier && matches!(sql.get(token.start), Some(b'u' | b'U')) {
            // `U&"…"`: a name that isn't read here may be any.
            self.effects.pin(Pins::OTHER);
        }
        self.argument(sql, token);
        self.ring[self.count % RING] = token;
        self.count += 1;
    }

    /// The token before the present one (0), the one before that (1), and so on.
    fn last(&self, behind: usize) -> Token {
        self.ring[self.count.wrapping_sub(1 + behind) % RING]
    }

    fn first(&self) -> Keyword {
        self.head[0].keyword
    }

    fn keyword(&mut self, keyword: Keyword) {
        let before = self.last(0).keyword;
        match keyword {
            Keyword::Temp | Keyword::Temporary => {
                let creates =
                    matches!(before, Keyword::Create | Keyword::Replace | Keyword::Local | Keyword::Global)
                        || (before == Keyword::Into && !self.inserts_into(1));
                if creates {
                    self.effects.pin(Pins::TEMPORARY);
                }
            }
            Keyword::Drop if before == Keyword::Commit && self.last(1).keyword == Keyword::On => {
                self.drops_on_commit = true;
            }
            Keyword::Hold if before == Keyword::With && self.first() == Keyword::Declare => {
                self.effects.pin(Pins::HOLD_CURSOR);
            }
            Keyword::Insert | Keyword::Update | Keyword::Delete | Keyword::Merge => {
                self.touches = Touches::Anything;
            }
            Keyword::Into => {
                self.touches = Touches::Anything;
                self.creates |= !self.inserts_into(0);
            }
            Keyword::Create => self.creates = true,
            Keyword::Share if matches!(before, Keyword::For | Keyword::None) => {
                self.touches = Touches::Anything;
            }
            Keyword::Analyze => self.analyzes = true,
            Keyword::Stdin | Keyword::Stdout if self.first() == Keyword::Copy && self.parentheses == 0 => {
                match before {
                    Keyword::From => self.copy = CopyDirection::FromClient,
                    Keyword::To => self.copy = CopyDirection::ToClient,
                    _ => {}
                }
            }
            Keyword::Atomic if before == Keyword::Begin && self.first() == Keyword::Create => {
                self.atomic = self.atomic.max(1);
            }
            Keyword::Case if self.atomic > 0 => self.atomic = self.atomic.saturating_add(1),
            Keyword::End => self.atomic = self.atomic.saturating_sub(1),
            _ => {}
        }
    }

    /// Whether the `INTO` at this place among the last tokens belongs to an INSERT or MERGE.
    fn inserts_into(&self, behind: usize) -> bool {
        let before = self.last(behind).keyword;
        matches!(before, Keyword::Insert | Keyword::Merge)
    }

    /// `UPDATE pg_settings` sets settings.
    fn word(&mut self, sql: &[u8], token: Token) {
        let [before, schema] = [self.last(0), self.last(1)];
        let is_qualified = before.kind == TokenKind::Dot && named(sql, schema, b"pg_catalog");
        let target = if is_qualified { self.last(2) } else { before };
        if matches!(target.keyword, Keyword::Update | Keyword::Only) && named(sql, token, b"pg_settings") {
            self.effects.pin(Pins::SET_CONFIG);
        }
    }

    /// `pg_temp.` as the schema of something that is made.
    fn dot(&mut self, sql: &[u8]) {
        let schema = self.last(0);
        // A session may name its own by number, too.
        let text = schema.text(sql).trim_ascii_start();
        let text = text.strip_prefix(b"\"").unwrap_or(text);
        let temporary =
            text.get(..TEMPORARY.len()).is_some_and(|start| start.eq_ignore_ascii_case(TEMPORARY));
        let into = self.last(1).keyword == Keyword::Into && !self.inserts_into(2);
        if temporary && (self.first() == Keyword::Create || into) {
            self.effects.pin(Pins::TEMPORARY);
        }
    }

    /// An opening parenthesis: what is before it may be a function's name.
    fn open(&mut self, sql: &[u8]) {
        let [name, dot, schema] = [self.last(0), self.last(1), self.last(2)];
        let qualified = dot.kind == TokenKind::Dot;
        let is_word = name.kind == TokenKind::Word && !qualified;
        let may_call = is_word || matches!(name.kind, TokenKind::QuotedIdentifier) || qualified;
        if may_call && !(is_word && is_harmless(name.text(sql))) {
            self.touches = self.touches.min(Touches::NothingKnown);
        }
        if qualified && !named(sql, schema, b"pg_catalog") {
            return;
        }
        match call(sql, name) {
            Call::Nothing => {}
            Call::Pins(pins) => self.effects.pin(pins),
            Call::ReleasesLocks => self.effects.release(Pins::ADVISORY_LOCK),
            Call::Writes => self.touches = Touches::Anything,
            Call::SetConfig if self.set_config.is_some() => self.effects.pin(Pins::SET_CONFIG),
            Call::SetConfig => {
                self.touches = Touches::Anything;
                let depth = self.parentheses;
                self.set_config =
                    Some(SetConfig { depth, argument: 0, tokens: 0, is_true: false, is_reported: false });
            }
        }
    }

    fn close(&mut self) {
        if let Some(call) = self.set_config.take_if(|call| call.depth == self.parentheses) {
            // Only the literal says that the setting ends with the transaction.
            let is_local = call.argument == 2 && call.tokens == 1 && call.is_true;
            if !is_local && !call.is_reported {
                self.effects.pin(Pins::SET_CONFIG);
            }
        }
        self.parentheses = self.parentheses.saturating_sub(1);
    }

    /// Follows the arguments of `set_config`.
    fn argument(&mut self, sql: &[u8], token: Token) {
        let depth = self.parentheses;
        let Some(call) = &mut self.set_config else { return };
        match token.kind {
            TokenKind::Comma if call.depth == depth => {
                call.argument += 1;
                call.tokens = 0;
            }
            TokenKind::Open if call.depth == depth && call.argument == 0 && call.tokens == 0 => {}
            _ => {
                let is_first = call.tokens == 0;
                call.is_true = is_first && token.keyword == Keyword::True;
                if call.argument == 0 {
                    call.is_reported = is_first && is_reported(sql, token);
                }
                call.tokens = call.tokens.saturating_add(1);
            }
        }
    }

    /// The statement, all of whose tokens have passed.
    pub(super) fn finish<'a>(&mut self, sql: &'a [u8]) -> Statement<'a> {
        if self.set_config.is_some() {
            self.effects.pin(Pins::SET_CONFIG);
        }
        if self.drops_on_commit && self.first() == Keyword::Create {
            self.effects.pins = self.effects.pins.without(Pins::TEMPORARY);
        }
        let head = &self.head[..self.count.min(HEAD)];
        let words = Words::new(sql, head, self.count > HEAD);
        let kind = match self.first() {
            Keyword::Copy => Kind::Copy { direction: self.copy },
            Keyword::Explain => Kind::Explain,
            _ => command::kind(words.clone()).unwrap_or(Kind::Other),
        };
        command::effects(words, &kind, &mut self.effects);
        let touches = match self.reads_only(&kind) {
            true if self.first() == Keyword::Select => self.touches,
            true => Touches::NothingKnown,
            false => Touches::Anything,
        };
        let text = sql.get(self.start..self.end).unwrap_or_default();
        Statement { text, kind, effects: self.effects, touches, creates: self.creates }
    }

    /// The rest of a text that can't be read on.
    pub(super) fn unlexable<'a>(&self, sql: &'a [u8]) -> Statement<'a> {
        let start = if self.start == usize::MAX { self.end } else { self.start };
        let text = sql.get(start..).unwrap_or_default().trim_ascii();
        Statement {
            text,
            kind: Kind::Unlexable,
            effects: Effects::default(),
            touches: Touches::Anything,
            creates: false,
        }
    }

    fn reads_only(&self, kind: &Kind<'_>) -> bool {
        let head = &self.head[..self.count.min(HEAD)];
        let first = head.iter().find(|token| token.kind != TokenKind::Open);
        let writes_nothing = self.touches != Touches::Anything;
        let reads = match first.map_or(Keyword::None, |token| token.keyword) {
            Keyword::Select | Keyword::With | Keyword::Values | Keyword::Table => writes_nothing,
            Keyword::Show | Keyword::Fetch => true,
            Keyword::Explain => !self.analyzes,
            Keyword::Copy => *kind == Kind::Copy { direction: CopyDirection::ToClient } && writes_nothing,
            _ => false,
        };
        reads && self.effects.is_empty()
    }
}

/// Whether the token is a plain literal that names a reported setting.
fn is_reported(sql: &[u8], token: Token) -> bool {
    let text = token.text(sql);
    let name = text.strip_prefix(b"'").and_then(|text| text.strip_suffix(b"'"));
    name.is_some_and(|name| REPORTED.iter().any(|reported| reported.eq_ignore_ascii_case(name)))
}

/// Whether the token is this (lowercase) name.
fn named(sql: &[u8], token: Token, name: &[u8]) -> bool {
    match token.kind {
        TokenKind::Word => token.text(sql).eq_ignore_ascii_case(name),
        TokenKind::QuotedIdentifier => {
            token.text(sql).strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\"")) == Some(name)
        }
        _ => false,
    }
}

/// Bytes of the longest name of a function that matters.
const LONGEST_FUNCTION: usize = 27;

/// What the call of this function says.
fn call(sql: &[u8], name: Token) -> Call {
    let text = match name.kind {
        TokenKind::Word if name.keyword == Keyword::None => name.text(sql),
        TokenKind::QuotedIdentifier => name.text(sql).trim_ascii(),
        _ => return Call::Nothing,
    };
    let quoted = text.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\""));
    let mut lowercase = [0_u8; LONGEST_FUNCTION];
    let name = quoted.unwrap_or(text);
    let Some(lowercase) = lowercase.get_mut(..name.len()) else { return Call::Nothing };
    lowercase.copy_from_slice(name);
    if quoted.is_none() {
        lowercase.make_ascii_lowercase();
    }
    match &*lowercase {
        b"pg_advisory_lock"
        | b"pg_advisory_lock_shared"
        | b"pg_try_advisory_lock"
        | b"pg_try_advisory_lock_shared" => Call::Pins(Pins::ADVISORY_LOCK),
        b"pg_advisory_unlock_all" => Call::ReleasesLocks,
        b"setseed" => Call::Pins(Pins::SEED),
        b"set_config" => Call::SetConfig,
        b"nextval"
        | b"setval"
        | b"pg_notify"
        | b"lo_create"
        | b"lo_creat"
        | b"lo_unlink"
        | b"lo_put"
        | b"lo_from_bytea"
        | b"lo_import"
        | b"lowrite"
        | b"dblink_exec"
        | b"pg_logical_emit_message" => Call::Writes,
        _ => Call::Nothing,
    }
}
