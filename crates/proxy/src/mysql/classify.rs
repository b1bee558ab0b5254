//! From a text of MySQL's SQL to what the session must know of it: its request type, and what it leaves
//! behind.
//!
//! The request type is the database, whether the transaction is explicit, and the shape of the text. No
//! literal of the text gets into it. A text whose shape can't be told is of the type `unparsed`.

use wire::mysql::capabilities::Status;
use wire::sql::fingerprint::fingerprint;
use wire::sql::lexer::{Lexer, TokenKind};
use wire::sql::{Backslashes, Dialect, DoubleQuotes};

use crate::sql_type::{EMPTY, UNPARSED, label_hash};

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
    /// State that the server tells of, and the text doesn't.
    Other,
}

impl Pin {
    pub(super) const ALL: [Self; 10] = [
        Self::UserVariable,
        Self::TemporaryTable,
        Self::TableLock,
        Self::NamedLock,
        Self::Handler,
        Self::SqlPrepare,
        Self::Results,
        Self::Cursor,
        Self::Variable,
        Self::Other,
    ];

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

/// What a text says.
#[derive(Clone, Debug, Default)]
pub(super) struct Analysis {
    pub(super) type_hash: u64,
    /// The type's name within its database.
    pub(super) label: String,
    /// The text leaves state behind that can't be followed.
    pub(super) pin: Option<Pin>,
    /// The text asks for results of the statement before.
    pub(super) asks_for_results: bool,
    /// The text may change LAST_INSERT_ID() without the answer telling it.
    pub(super) names_insert_id: bool,
    /// The text sets only what the server tells of the session.
    pub(super) tracking: bool,
    /// The text only begins a transaction, in the plainest form.
    pub(super) begins: bool,
    /// The text only ends a transaction, in the plainest form.
    pub(super) ends: bool,
    pub(super) close: Close,
    pub(super) kills: Killing,
    /// The variables that the text sets for one statement.
    pub(super) once: Vec<Vec<u8>>,
}

impl Analysis {
    /// A request of this name.
    pub(super) fn named(label: &str) -> Self {
        Self { type_hash: label_hash(label), label: label.to_owned(), ..Self::default() }
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
        return Analysis { pin: Some(Pin::Other), ..Analysis::named(UNPARSED) };
    };
    if label.is_empty() {
        return Analysis::named(EMPTY);
    }
    let mut analysis = Analysis { type_hash, label, ..Analysis::default() };
    let mut lexer = Lexer::new(sql, dialect);
    // The first words of the text, and how many tokens there are.
    let (mut first, mut count): ([&[u8]; 5], usize) = Default::default();
    let mut statement = Statement::default();
    let (mut is_list, mut kills) = (false, false);
    while let Ok(Some(token)) = lexer.next_token() {
        let text = token.text(sql);
        match token.kind {
            TokenKind::Comment => continue,
            TokenKind::Semicolon => {
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
    if analysis.tracking && is_list {
        analysis.tracking = false;
        analysis.pin = Some(Pin::Other);
    }
    let is = |at: usize, word: &str| first[at].eq_ignore_ascii_case(word.as_bytes());
    analysis.begins = match count {
        1 => is(0, "begin"),
        2 => is(0, "begin") && is(1, "work") || is(0, "start") && is(1, "transaction"),
        _ => false,
    };
    analysis.names_insert_id &= !analysis.begins;
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
    /// The head of a `SET STATEMENT … FOR` has ended.
    is_behind_for: bool,
}

impl<'a> Statement<'a> {
    fn begins_with(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.words[0].eq_ignore_ascii_case(word.as_bytes()))
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
        let is_head = self.begins_with(&["set"]) && self.words[1].eq_ignore_ascii_case(b"statement");
        let [Some((_, name)), Some((kind, before))] = self.before else { return None };
        let is_first = kind == TokenKind::Comma || before.eq_ignore_ascii_case(b"statement");
        let sets = matches!(operator, b"=" | b":=") && is_head && is_first && !self.is_behind_for;
        sets.then(|| name.strip_prefix(b"`").and_then(|it| it.strip_suffix(b"`")).unwrap_or(name))
            .map(<[u8]>::to_ascii_lowercase)
    }

    fn push(&mut self, kind: TokenKind, text: &'a [u8]) {
        self.is_behind_for |= kind == TokenKind::Word && text.eq_ignore_ascii_case(b"for");
        if let Some(word) = self.words.get_mut(self.count) {
            *word = text;
        }
        self.count += 1;
        self.before = [Some((kind, text)), self.before[0]];
    }
}

/// Statements that leave something behind, by their first word.
const STATEMENTS: [(&str, Pin); 6] = [
    ("lock", Pin::TableLock),
    ("flush", Pin::TableLock),
    ("handler", Pin::Handler),
    ("prepare", Pin::SqlPrepare),
    ("execute", Pin::SqlPrepare),
    ("xa", Pin::Other),
];
/// Functions that leave something behind, or tell what another statement has left.
const FUNCTIONS: [(&str, Pin); 5] = [
    ("get_lock", Pin::NamedLock),
    ("found_rows", Pin::Results),
    ("row_count", Pin::Results),
    ("lastval", Pin::Results),
    ("last_value", Pin::Results),
];
/// The first words of statements that may generate an id, though their answer doesn't tell it.
const COMPOUND: [&str; 7] = ["call", "begin", "if", "case", "loop", "while", "for"];
/// The variables that hold for one transaction if no scope is named.
const ONE_TRANSACTION: [&str; 4] =
    ["@@tx_isolation", "@@transaction_isolation", "@@tx_read_only", "@@transaction_read_only"];

/// How the variables begin that say what the server tells of a session.
const TRACKING: &[u8] = b"session_track_";

fn pin_of(words: &[(&str, Pin)], word: &[u8]) -> Option<Pin> {
    words.iter().find(|(known, _)| word.eq_ignore_ascii_case(known.as_bytes())).map(|(_, pin)| *pin)
}

impl Analysis {
    fn note<'a>(&mut self, kind: TokenKind, text: &'a [u8], statement: &mut Statement<'a>) {
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
            TokenKind::Word if statement.count == 0 => {
                let is = |word: &str| text.eq_ignore_ascii_case(word.as_bytes());
                if is("commit") || is("xa") {
                    self.close = Close::Commits;
                }
                self.pin = pin_of(&STATEMENTS, text).or(self.pin);
                self.names_insert_id |=
                    COMPOUND.iter().any(|word| text.eq_ignore_ascii_case(word.as_bytes()));
            }
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
            self.pin = Some(Pin::Results);
            self.asks_for_results = true;
        }
    }

    fn note_word(&mut self, word: &[u8], statement: &Statement<'_>) {
        let is = |known: &str| word.eq_ignore_ascii_case(known.as_bytes());
        let is_second = statement.count == 1;
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
            || is("value")
                && matches!(statement.before[0], Some((_, word)) if word.eq_ignore_ascii_case(b"previous"))
        {
            self.pin = Some(Pin::Results);
            self.asks_for_results = true;
        } else if statement.begins_with(&["set"]) && is_second && (is("transaction") || is("role")) {
            self.pin = Some(Pin::Other);
        }
        let is_not = matches!(statement.before[0], Some((_, word)) if word.eq_ignore_ascii_case(b"no"));
        if is("release") && statement.begins_with(&["commit", "rollback"]) && !is_not {
            self.close = Close::Releases;
        }
        self.names_insert_id |=
            is("last_insert_id") || is("returning") && statement.begins_with(&["insert", "replace"]);
    }

    /// A function of this name is called.
    fn note_call(&mut self, name: &[u8]) {
        let name = name.strip_prefix(b"`").and_then(|name| name.strip_suffix(b"`")).unwrap_or(name);
        if let Some(pin) = pin_of(&FUNCTIONS, name) {
            self.pin = Some(pin);
            self.asks_for_results |= pin == Pin::Results;
        }
        self.names_insert_id |= name.eq_ignore_ascii_case(b"last_insert_id");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(sql: &str) -> Analysis {
        analyze(sql.as_bytes(), Dialect::MYSQL)
    }

    #[test]
    fn what_binds_a_session_is_told_by_tokens_and_not_by_characters() {
        for (sql, pin) in [
            ("SELECT 'a@b.c', @@version", None),
            ("SELECT @a := 1", Some(Pin::UserVariable)),
            ("/* @a */ SELECT 1", None),
            ("create temporary table t (a int)", Some(Pin::TemporaryTable)),
            ("SELECT 1; LOCK TABLES t READ", Some(Pin::TableLock)),
            ("SELECT * FROM t LOCK IN SHARE MODE", None),
            ("SELECT GET_LOCK('x', 1)", Some(Pin::NamedLock)),
            ("HANDLER t OPEN", Some(Pin::Handler)),
            ("SHOW WARNINGS", Some(Pin::Results)),
            ("SELECT SQL_CALC_FOUND_ROWS * FROM t", Some(Pin::Results)),
            ("SELECT errors, warnings, temporary, found_rows FROM log", None),
            ("SHOW COUNT(*) ERRORS", Some(Pin::Results)),
            ("SHOW COLUMNS FROM errors", None),
            ("SELECT `get_lock` ('x', 1)", Some(Pin::NamedLock)),
            ("SELECT @'a' := 1", Some(Pin::UserVariable)),
            ("GRANT ALL ON a.* TO 'ann'@'%', bob@localhost", None),
            ("CREATE OR REPLACE TEMPORARY TABLE t (a INT)", Some(Pin::TemporaryTable)),
            ("SELECT @@session.warning_count", Some(Pin::Results)),
            ("SET TRANSACTION READ ONLY", Some(Pin::Other)),
            ("SET @@tx_isolation = 'SERIALIZABLE'", Some(Pin::Other)),
            ("SET @@time_zone = 'SYSTEM'", Some(Pin::Variable)),
            ("SET time_zone = @@time_zone, @@session.sql_mode = ''", None),
            ("SET SESSION TRANSACTION READ ONLY", None),
            ("SELECT @@tx_isolation, @@session.tx_read_only", None),
            ("SET ROLE admin", Some(Pin::Other)),
            ("SELECT PREVIOUS VALUE FOR s", Some(Pin::Results)),
        ] {
            assert_eq!(read(sql).pin, pin, "{sql}");
        }
        assert!(!read("SELECT SQL_CALC_FOUND_ROWS * FROM t").asks_for_results);
        assert!(read("SELECT FOUND_ROWS()").asks_for_results);
        assert!(read("SET session_track_system_variables = 'a,b'").tracking);
        assert_eq!(read("SET session_track_schema = 1, time_zone = 'SYSTEM'").pin, Some(Pin::Other));
        for sql in [
            "SELECT LAST_INSERT_ID(5)",
            "SET @@session.identity = 5",
            "INSERT INTO t VALUES (1) RETURNING id",
            "CALL p()",
            "BEGIN NOT ATOMIC INSERT INTO t VALUES (1); END",
        ] {
            assert!(read(sql).names_insert_id, "{sql}");
        }
    }

    #[test]
    fn only_the_plainest_begin_is_put_off() {
        for sql in ["BEGIN", "begin work;", "/* a */ START TRANSACTION"] {
            assert!(read(sql).begins, "{sql}");
        }
        for sql in ["START TRANSACTION READ ONLY", "BEGIN; SELECT 1", "BEGIN NOT ATOMIC"] {
            assert!(!read(sql).begins, "{sql}");
        }
        assert!(read("COMMIT").ends && read("rollback work").ends && !read("ROLLBACK TO a").ends);
    }

    #[test]
    fn a_kill_names_its_session() {
        for (sql, connection, soft) in [
            ("KILL QUERY 7", false, false),
            ("kill 7;", true, false),
            ("/*!50000 KILL */ HARD CONNECTION 7", true, false),
            ("KILL SOFT QUERY 7", false, true),
        ] {
            assert_eq!(read(sql).kills, Killing::One(Kill { id: 7, connection, soft }), "{sql}");
        }
        for sql in [
            "KILL 3+4",
            "KILL (7)",
            "KILL ?",
            "KILL",
            "KILL QUERY ID 7",
            "KILL USER ann",
            "KILL 7; SELECT 1",
            "SELECT 1; KILL 7",
            "BEGIN NOT ATOMIC KILL 7; END",
            "KILL HARD QUERY ID 7 + 1",
        ] {
            assert_eq!(read(sql).kills, Killing::Unreadable, "{sql}");
        }
        for sql in ["SELECT t.kill, 'kill', `kill` FROM t", "CREATE PROCEDURE p() KILL 7"] {
            assert_eq!(read(sql).kills, Killing::Nothing, "{sql}");
        }
    }

    #[test]
    fn a_text_tells_what_it_sets_once_and_how_its_transaction_ends() {
        let once =
            read("SET STATEMENT Max_Statement_Time=1, `sql_mode` = CONCAT('a', 1) FOR UPDATE t SET a=1, b=2");
        assert_eq!(once.once, [b"max_statement_time".to_vec(), b"sql_mode".to_vec()]);
        assert!(read("SET time_zone = 'SYSTEM', sql_mode = ''").once.is_empty());
        for (sql, close) in [
            ("COMMIT RELEASE", Close::Releases),
            ("ROLLBACK WORK AND NO CHAIN RELEASE", Close::Releases),
            ("COMMIT NO RELEASE", Close::Commits),
            ("RELEASE SAVEPOINT a", Close::Nothing),
            ("SELECT 1; COMMIT", Close::Commits),
        ] {
            assert_eq!(read(sql).close, close, "{sql}");
        }
    }
}
