//! From a text of MySQL's SQL to what the session must know of it: its request type, and what it leaves
//! behind.
//!
//! The request type is the database, whether the transaction is explicit, and the shape of the text. No
//! literal of the text gets into it. A text whose shape can't be told is of the type `unparsed`.

use std::num::NonZeroU128;

use wire::mysql::capabilities::Status;
use wire::sql::fingerprint::fingerprint;
use wire::sql::lexer::{Lexer, TokenKind};
use wire::sql::{Backslashes, Dialect, DoubleQuotes, Tags};

use super::opening::Next;
use super::results::Results;
use crate::sql::request_type::{EMPTY, UNPARSED, label_hash};
use plain::{DEFINE_NOTHING, Plain};
pub(super) use plain::{Defines, Leaves};

mod plain;

/// Why a session keeps its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Pin {
    UserVariable,
    TemporaryTable,
    TableLock,
    NamedLock,
    Handler,
    SqlPrepare,
    /// `FOUND_ROWS()`, `ROW_COUNT()`, `SHOW WARNINGS`, and what prepares them.
    Results,
    Cursor,
    /// A system variable that can't be set again on another connection.
    Variable,
    /// Transactions over several servers.
    Xa,
    /// What a routine, a trigger or a compound statement may have left.
    Routine,
    /// State that the server tells of, and the text doesn't.
    Other,
}

impl Pin {
    pub(super) const ALL: [Self; 12] = [
        Self::UserVariable,
        Self::TemporaryTable,
        Self::TableLock,
        Self::NamedLock,
        Self::Handler,
        Self::SqlPrepare,
        Self::Results,
        Self::Cursor,
        Self::Variable,
        Self::Xa,
        Self::Routine,
        Self::Other,
    ];

    /// Whether the session may hold a lock between two requests, for which others in flight may wait.
    pub(super) const fn holds_locks(self) -> bool {
        matches!(self, Self::TableLock | Self::NamedLock | Self::Handler | Self::Xa)
    }

    /// What operators read.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::UserVariable => "user variable",
            Self::TemporaryTable => "temporary table",
            Self::TableLock => "LOCK TABLES",
            Self::NamedLock => "GET_LOCK",
            Self::Handler => "HANDLER",
            Self::SqlPrepare => "SQL PREPARE",
            Self::Results => "results of the last statement",
            Self::Cursor => "cursor",
            Self::Variable => "system variable",
            Self::Xa => "XA",
            Self::Routine => "state of a routine",
            Self::Other => "other state",
        }
    }
}

/// A KILL that names one session or thread by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kill {
    pub(super) id: u64,
    pub(super) connection: bool,
    /// Only where that is safe (MariaDB).
    pub(super) soft: bool,
}

/// Whether a text kills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Killing {
    #[default]
    Nothing,
    One(Kill),
    /// A KILL is in the text, in a form that the gate can't translate.
    Unreadable,
}

/// What a text does to a transaction and its connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Close {
    #[default]
    Nothing,
    /// It commits the transaction.
    Commits,
    /// The server closes the connection behind the answer.
    Releases,
}

/// Whether a statement of a text sets a savepoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Savepoints {
    #[default]
    Unchanged,
    Set,
}

/// What a change of state that the server tells comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Explains {
    /// The text sets nothing by itself. A function or a trigger may.
    #[default]
    Nothing,
    /// The text sets variables or the database, and runs no routine.
    Settings,
    /// The text calls a procedure, or is a compound statement.
    Routine,
}

/// What a text says.
#[derive(Clone, Debug, Default)]
pub(super) struct Analysis {
    pub(super) type_hash: u64,
    /// The type's name within its database.
    pub(super) label: String,
    /// The text leaves state behind that can't be followed.
    pub(super) pin: Option<Pin>,
    /// What of earlier texts' results the text asks for.
    pub(super) asks: Results,
    /// The results that the text replaces by its own.
    pub(super) renews: Results,
    pub(super) explains: Explains,
    /// The text may change LAST_INSERT_ID() without the answer telling it.
    pub(super) names_insert_id: bool,
    pub(super) leaves: Leaves,
    pub(super) defines: Defines,
    /// The text sets only what the server tells of the session.
    pub(super) tracking: bool,
    /// The text only begins a transaction, in the plainest form.
    pub(super) begins: bool,
    /// The text only ends a transaction, in the plainest form.
    pub(super) ends: bool,
    /// The text only sets this for the next transaction.
    pub(super) next: Option<Next>,
    pub(super) savepoints: Savepoints,
    pub(super) close: Close,
    pub(super) kills: Killing,
    /// The variables that the text sets for one statement.
    pub(super) once: Vec<Vec<u8>>,
    /// The hashes of the application's tags.
    pub(super) tags: Vec<u64>,
    /// The trace that the application says the text belongs to.
    pub(super) trace: Option<NonZeroU128>,
}

impl Analysis {
    /// A request of this name.
    pub(super) fn named(label: &str) -> Self {
        Self { type_hash: label_hash(label), label: label.to_owned(), ..Self::default() }
    }

    /// A text whose statements can't be told. A server runs those before the place where it fails itself.
    pub(super) fn unparsed(sql: &[u8]) -> Self {
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let mut words = sql.split(|byte| !is_word(byte));
        let kills = words.any(|word| word.eq_ignore_ascii_case(b"kill"));
        let kills = if kills { Killing::Unreadable } else { Killing::Nothing };
        let explains = Explains::Routine;
        Self { pin: Some(Pin::Other), kills, explains, defines: Defines::Tables, ..Self::named(UNPARSED) }
    }
}

/// How the session's texts are read, by the status that the server told last.
pub(super) fn dialect(status: Status) -> Dialect {
    let quotes = status.contains(Status::ANSI_QUOTES);
    let plain = status.contains(Status::NO_BACKSLASH_ESCAPES);
    Dialect::MySql {
        double_quotes: if quotes { DoubleQuotes::Identifiers } else { DoubleQuotes::Strings },
        backslashes: if plain { Backslashes::Plain } else { Backslashes::Escape },
    }
}

/// Reads a text.
pub(super) fn analyze(sql: &[u8], dialect: Dialect) -> Analysis {
    let mut label = String::new();
    let Ok(type_hash) = fingerprint(sql, dialect, &mut label) else {
        return Analysis::unparsed(sql);
    };
    if label.is_empty() {
        return Analysis::named(EMPTY);
    }
    let mut analysis = Analysis { type_hash, label, ..Analysis::default() };
    let mut lexer = Lexer::new(sql, dialect);
    // The first words of the text, and how many tokens there are.
    let (mut first, mut count): ([&[u8]; 6], usize) = Default::default();
    let mut statement = Statement::default();
    let (mut is_list, mut kills) = (false, false);
    let (mut tags, mut plain) = (Tags::default(), Plain::default());
    for token in std::iter::from_fn(|| lexer.next_token().transpose()) {
        let Ok(token) = token else {
            plain.spoil();
            break;
        };
        let text = token.text(sql);
        if token.kind != TokenKind::Comment {
            plain.note(token, text);
        }
        match token.kind {
            TokenKind::Comment => {
                tags.read(text);
                continue;
            }
            TokenKind::Semicolon => {
                analysis.end(&statement);
                statement = Statement::default();
                continue;
            }
            kind => {
                is_list |= kind == TokenKind::Comma || count > 0 && statement.count == 0;
                kills |= statement.is_kill(kind, text);
                analysis.note(kind, text, &mut statement);
            }
        }
        if let Some(place) = first.get_mut(count) {
            *place = text;
        }
        count += 1;
    }
    analysis.end(&statement);
    // A SELECT of a table replaces the results of the statement before.
    if analysis.pin.is_none() && !analysis.names_insert_id && statement.has_from {
        analysis.leaves = plain.leaves();
    }
    analysis.tags = tags.pairs;
    analysis.trace = tags.trace;
    if analysis.explains == Explains::Routine {
        analysis.defines = Defines::Tables;
    }
    if analysis.tracking && is_list {
        analysis.tracking = false;
        analysis.pin = Some(Pin::Other);
    }
    let is = |at: usize, word: &str| first[at].eq_ignore_ascii_case(word.as_bytes());
    analysis.next = Next::read(first.get(..count).unwrap_or_default()).filter(|_| !is_list);
    analysis.begins = match count {
        1 => is(0, "begin"),
        2 if is_list => false,
        2 => is(0, "begin") && is(1, "work") || is(0, "start") && is(1, "transaction"),
        _ => false,
    };
    if analysis.begins {
        (analysis.names_insert_id, analysis.defines) = (false, Defines::Nothing);
        analysis.explains = Explains::Nothing;
    }
    analysis.ends = match count {
        1 => is(0, "commit") || is(0, "rollback"),
        2 => (is(0, "commit") || is(0, "rollback")) && is(1, "work"),
        _ => false,
    };
    // Statements that are only defined kill by the ids that the server tells them.
    if kills && !is(0, "create") && !is(0, "alter") {
        let words = first.get(..count).unwrap_or_default();
        analysis.kills = kill(words).map_or(Killing::Unreadable, Killing::One);
    }
    analysis
}

/// `KILL [HARD | SOFT] [CONNECTION | QUERY] id`.
fn kill(words: &[&[u8]]) -> Option<Kill> {
    let is = |word: &[u8], known: &str| word.eq_ignore_ascii_case(known.as_bytes());
    let (first, mut rest) = words.split_first()?;
    let (mut soft, mut connection) = (false, true);
    if let [word, others @ ..] = rest {
        if is(word, "soft") || is(word, "hard") {
            (soft, rest) = (is(word, "soft"), others);
        }
    }
    if let [word, others @ ..] = rest {
        if is(word, "query") || is(word, "connection") {
            (connection, rest) = (is(word, "connection"), others);
        }
    }
    let [id] = rest else { return None };
    let id = std::str::from_utf8(id).ok()?.parse().ok()?;
    is(first, "kill").then_some(Kill { id, connection, soft })
}

/// What has been read of one statement of a text.
#[derive(Default)]
struct Statement<'a> {
    /// Its first words.
    words: [&'a [u8]; 2],
    /// How many tokens there are.
    count: usize,
    /// The two last tokens, the last one first.
    before: [Option<(TokenKind, &'a [u8])>; 2],
    /// How many parentheses are open.
    depth: usize,
    /// A table is read. DUAL is none.
    has_from: bool,
}

impl<'a> Statement<'a> {
    fn begins_with(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.words[0].eq_ignore_ascii_case(word.as_bytes()))
    }

    /// Whether it may define tables, or run a statement that does.
    fn defines(&self) -> bool {
        let is_temporary = self.words[1].eq_ignore_ascii_case(b"temporary");
        self.count > 0 && !self.begins_with(&DEFINE_NOTHING) && !is_temporary
    }

    /// Whether a word or sign ends the head of a statement, so that another statement follows: the FOR of a
    /// SET STATEMENT, a label, and what blocks of compound statements begin with.
    fn is_head(&self, (kind, text): (TokenKind, &[u8]), explains: Explains) -> bool {
        let is = |words: &[&str]| words.iter().any(|word| text.eq_ignore_ascii_case(word.as_bytes()));
        match kind {
            TokenKind::Word if is(&["for"]) => self.sets_once(),
            TokenKind::Word if explains == Explains::Routine => is(&HEADS),
            TokenKind::Operator => self.count == 1 && text == b":",
            _ => false,
        }
    }

    /// Whether it is a `SET STATEMENT … FOR`.
    fn sets_once(&self) -> bool {
        self.begins_with(&["set"]) && self.words[1].eq_ignore_ascii_case(b"statement")
    }

    /// Whether an `@` stands between a user's name and a host.
    fn names_users(&self) -> bool {
        const OF_USERS: [&str; 2] = ["user", "role"];
        self.begins_with(&["grant", "revoke", "rename", "show"])
            || self.begins_with(&["create", "drop", "alter"])
                && OF_USERS.iter().any(|word| self.words[1].eq_ignore_ascii_case(word.as_bytes()))
    }

    /// Whether the word that comes is a system variable's, as in `@@session.name`.
    fn is_in_a_scope(&self) -> bool {
        matches!(self.before, [Some((TokenKind::Dot, _)), Some((TokenKind::Variable, scope))]
            if scope.starts_with(b"@@"))
    }

    /// Whether a token is the reserved word KILL. Behind a dot it is a name.
    fn is_kill(&self, kind: TokenKind, text: &[u8]) -> bool {
        let is_name = matches!(self.before[0], Some((TokenKind::Dot, _)));
        kind == TokenKind::Word && text.eq_ignore_ascii_case(b"kill") && !is_name
    }

    /// Whether an operator assigns a `@@name` without a scope: MariaDB doesn't tell of that.
    fn sets_unseen(&self, operator: &[u8]) -> bool {
        let is_variable =
            matches!(self.before[0], Some((TokenKind::Variable, name)) if name.starts_with(b"@@"));
        is_variable && matches!(operator, b"=" | b":=") && self.begins_with(&["set"])
    }

    /// The variable that a `SET STATEMENT` sets, if an operator assigns it.
    fn set_once(&self, operator: &[u8]) -> Option<Vec<u8>> {
        let [Some((_, name)), Some((kind, before))] = self.before else { return None };
        let is_first = kind == TokenKind::Comma || before.eq_ignore_ascii_case(b"statement");
        let sets = matches!(operator, b"=" | b":=") && self.sets_once() && is_first;
        sets.then(|| name.strip_prefix(b"`").and_then(|it| it.strip_suffix(b"`")).unwrap_or(name))
            .map(<[u8]>::to_ascii_lowercase)
    }

    fn push(&mut self, kind: TokenKind, text: &'a [u8]) {
        let is = |text: &[u8], word: &str| text.eq_ignore_ascii_case(word.as_bytes());
        let is_behind_from = matches!(self.before[0], Some((_, word)) if is(word, "from"));
        self.has_from |= self.depth == 0 && is_behind_from && !is(text, "dual");
        match kind {
            TokenKind::Open => self.depth += 1,
            TokenKind::Close => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
        if let Some(word) = self.words.get_mut(self.count) {
            *word = text;
        }
        self.count += 1;
        self.before = [Some((kind, text)), self.before[0]];
    }
}

/// Statements that leave something behind, by their first word.
const STATEMENTS: [(&str, Pin); 7] = [
    ("backup", Pin::TableLock),
    ("lock", Pin::TableLock),
    ("flush", Pin::TableLock),
    ("handler", Pin::Handler),
    ("prepare", Pin::SqlPrepare),
    ("execute", Pin::SqlPrepare),
    ("xa", Pin::Xa),
];
/// Functions that tell what another statement has left.
const FUNCTIONS: [(&str, Results); 4] = [
    ("found_rows", Results::ROWS),
    ("row_count", Results::COUNT),
    ("lastval", Results::SEQUENCE),
    ("last_value", Results::SEQUENCE),
];
/// The first words of statements that run others.
const COMPOUND: [&str; 8] = ["call", "begin", "if", "case", "loop", "while", "for", "repeat"];
/// The words of compound statements that others follow.
const HEADS: [&str; 8] = ["atomic", "begin", "then", "else", "do", "loop", "repeat", "declare"];
/// The first words of other statements that may generate an id, though their answer doesn't tell it.
const GENERATE: [&str; 2] = ["analyze", "load"];
/// The first words of statements that replace the warnings.
const CHANGE: [&str; 9] =
    ["insert", "replace", "update", "delete", "load", "create", "alter", "drop", "truncate"];
/// The variables that hold for one transaction if no scope is named.
const ONE_TRANSACTION: [&str; 4] =
    ["@@tx_isolation", "@@transaction_isolation", "@@tx_read_only", "@@transaction_read_only"];

/// How the variables begin that say what the server tells of a session.
const TRACKING: &[u8] = b"session_track_";

fn pin_of(words: &[(&str, Pin)], word: &[u8]) -> Option<Pin> {
    words.iter().find(|(known, _)| word.eq_ignore_ascii_case(known.as_bytes())).map(|(_, pin)| *pin)
}

impl Analysis {
    /// A statement of the text has ended: later ones of the text find its results.
    fn end(&mut self, statement: &Statement<'_>) {
        let reads = statement.begins_with(&["select", "with", "("]);
        let changes = statement.begins_with(&CHANGE);
        if statement.defines() {
            self.defines = Defines::Tables;
        }
        let mut renewed = if statement.count > 0 { Results::COUNT } else { Results::default() };
        if reads {
            renewed = renewed.with(Results::ROWS);
        }
        if changes || reads && statement.has_from {
            renewed = renewed.with(Results::WARNINGS);
        }
        self.renews = self.renews.with(renewed);
    }

    /// The text asks for results, which keeps the connection.
    fn ask(&mut self, results: Results) {
        self.pin = Some(Pin::Results);
        self.asks = self.asks.with(results.without(self.renews));
    }

    /// A statement begins with this word.
    fn begin(&mut self, word: &[u8]) {
        let is = |words: &[&str]| words.iter().any(|known| word.eq_ignore_ascii_case(known.as_bytes()));
        if is(&["commit", "xa"]) {
            self.close = Close::Commits;
        }
        if is(&["savepoint"]) {
            self.savepoints = Savepoints::Set;
        }
        self.pin = pin_of(&STATEMENTS, word).or(self.pin);
        if is(&COMPOUND) {
            self.explains = Explains::Routine;
        } else if is(&["set", "use"]) && self.explains == Explains::Nothing {
            self.explains = Explains::Settings;
        }
        self.names_insert_id |= is(&COMPOUND) || is(&GENERATE);
    }

    fn note<'a>(&mut self, kind: TokenKind, text: &'a [u8], statement: &mut Statement<'a>) {
        if statement.is_head((kind, text), self.explains) {
            *statement = Statement::default();
            return;
        }
        match kind {
            TokenKind::Variable => self.note_variable(text, statement),
            TokenKind::Operator if text == b"@" && !statement.names_users() => {
                self.pin = Some(Pin::UserVariable);
            }
            TokenKind::Operator => {
                self.once.extend(statement.set_once(text));
                if statement.sets_unseen(text) {
                    self.pin = self.pin.or(Some(Pin::Variable));
                }
            }
            TokenKind::Word if statement.count == 0 => self.begin(text),
            TokenKind::Word => self.note_word(text, statement),
            TokenKind::Open => {
                if let Some((TokenKind::Word | TokenKind::QuotedIdentifier, name)) = statement.before[0] {
                    self.note_call(name);
                }
            }
            _ => {}
        }
        statement.push(kind, text);
    }

    fn note_variable(&mut self, text: &[u8], statement: &Statement<'_>) {
        if let Some(system) = text.strip_prefix(b"@@") {
            self.note_system(system);
            let is_whole = ONE_TRANSACTION.iter().any(|name| text.eq_ignore_ascii_case(name.as_bytes()));
            if is_whole && statement.begins_with(&["set"]) {
                self.pin = Some(Pin::Other);
            }
        } else if !statement.names_users() {
            self.pin = Some(Pin::UserVariable);
        }
    }

    /// A system variable is named.
    fn note_system(&mut self, name: &[u8]) {
        let is = |word: &str| name.eq_ignore_ascii_case(word.as_bytes());
        if name.get(..TRACKING.len()).is_some_and(|name| name.eq_ignore_ascii_case(TRACKING)) {
            self.tracking = true;
        } else if is("last_insert_id") || is("identity") || is("insert_id") {
            self.names_insert_id = true;
        } else if is("warning_count") || is("error_count") {
            self.ask(Results::WARNINGS);
        } else if is("last_gtid") {
            self.ask(Results::GTID);
        }
    }

    fn note_word(&mut self, word: &[u8], statement: &Statement<'_>) {
        let is = |known: &str| word.eq_ignore_ascii_case(known.as_bytes());
        let is_second = statement.count == 1;
        let is_behind = |known: &str| matches!(statement.before[0], Some((_, word)) if word.eq_ignore_ascii_case(known.as_bytes()));
        let is_behind_count = matches!(statement.before[0], Some((TokenKind::Close, _)));
        if statement.is_in_a_scope() || statement.begins_with(&["set"]) {
            self.note_system(word);
        }
        if statement.begins_with(&["create"]) && is("temporary") {
            self.pin = Some(Pin::TemporaryTable);
        } else if is("sql_calc_found_rows") {
            self.pin = Some(Pin::Results);
        } else if statement.begins_with(&["show"])
            && (is("warnings") || is("errors"))
            && (is_second || is_behind_count)
            || statement.begins_with(&["get"]) && is("diagnostics")
        {
            self.ask(Results::WARNINGS);
        } else if is("row_count") && statement.begins_with(&["get"]) {
            self.ask(Results::COUNT);
        } else if is("value") && is_behind("previous") {
            self.ask(Results::SEQUENCE);
        } else if is("value") && is_behind("next") {
            self.renews = self.renews.with(Results::SEQUENCE);
        } else if is("database") || is("schema") {
            let explains = is_second && statement.begins_with(&["create", "drop", "alter"]);
            if explains && self.explains == Explains::Nothing {
                self.explains = Explains::Settings;
            }
        } else if statement.begins_with(&["set"]) && is_second && (is("transaction") || is("role")) {
            self.pin = Some(Pin::Other);
        }
        if is("release") && statement.begins_with(&["commit", "rollback"]) && !is_behind("no") {
            self.close = Close::Releases;
        }
        self.names_insert_id |=
            is("last_insert_id") || is("returning") && statement.begins_with(&["insert", "replace"]);
    }

    /// A function of this name is called.
    fn note_call(&mut self, name: &[u8]) {
        let name = name.strip_prefix(b"`").and_then(|name| name.strip_suffix(b"`")).unwrap_or(name);
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        if is("get_lock") {
            self.pin = Some(Pin::NamedLock);
        } else if is("nextval") {
            self.renews = self.renews.with(Results::SEQUENCE);
        } else if let Some((_, results)) = FUNCTIONS.iter().find(|(known, _)| is(known)) {
            self.ask(*results);
        }
        self.names_insert_id |= name.eq_ignore_ascii_case(b"last_insert_id");
    }
}

#[cfg(test)]
mod tests;
