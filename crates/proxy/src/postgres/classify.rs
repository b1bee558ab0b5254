//! From a statement's text to what the session must know of it: its request type, what it leaves behind,
//! and whether it needs the server at all.
//!
//! The request type is the database, whether the transaction is explicit, and the application's own tag
//! (sqlcommenter `route`, or `controller` and `action`) or else the shape of the first statement that isn't
//! control. No literal of the text gets into it. A text whose shape can't be told is of the type
//! `unparsed`.

use std::num::NonZeroU128;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use memchr::memchr3_iter;
use wire::sql::fingerprint::push_size;
use wire::sql::lexer::{Lexer, TokenKind};
use wire::sql::statement::{CopyDirection, Kind, Statement};
use wire::sql::{Description, Dialect, Pins, Touches, describe};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::book::{CARRIED_TEXT_MAX, Effect};
use super::effect::effect;
use super::parameters::Reading;
use crate::sql::request_type::{EMPTY, UNPARSED, label_hash};

/// The type of groups that prepare and describe without running anything.
const PREPARE: &str = "prepare";
/// The type of fast-path function calls.
const FUNCTION_CALL: &str = "function call";

/// First words of statements that handle rows.
const ROWS: [&str; 14] = [
    "close", "declare", "delete", "execute", "fetch", "insert", "lock", "merge", "select", "show", "table",
    "update", "values", "with",
];
/// First words of statements whose columns depend on the tables and the settings alone. (Those of a FETCH
/// depend on its cursor.)
const DESCRIBED_ALIKE: [&str; 8] =
    ["delete", "insert", "merge", "select", "table", "update", "values", "with"];
/// First words of statements that change rows, and have rows if the next word is in the text.
const WRITES: [&str; 4] = ["delete", "insert", "merge", "update"];
const RETURNING: &[u8] = b"returning";
/// First words of statements that have neither parameters nor rows.
const RETURNS_NOTHING: [&str; 27] = [
    "alter",
    "analyze",
    "checkpoint",
    "close",
    "cluster",
    "comment",
    "copy",
    "create",
    "declare",
    "deallocate",
    "discard",
    "do",
    "drop",
    "grant",
    "listen",
    "load",
    "lock",
    "move",
    "notify",
    "prepare",
    "reindex",
    "reset",
    "revoke",
    "set",
    "truncate",
    "unlisten",
    "vacuum",
];
/// The functions of large objects, which libpq calls by their numbers (`pg_proc.dat`; they never change).
const LARGE_OBJECTS: [u32; 13] = [715, 952, 953, 954, 955, 956, 957, 958, 964, 1004, 3170, 3171, 3172];
/// The functions that take advisory locks for the session.
const ADVISORY_LOCKS: [u32; 8] = [2880, 2881, 2882, 2883, 2888, 2889, 2890, 2891];
/// The functions that tell which value a sequence gave the session last. Each ends with `val`.
const SEQUENCES: [&[u8]; 2] = [b"currval", b"lastval"];
/// The most effects of one text that are kept.
const EFFECTS_MAX: usize = 4096;

/// What a text says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Analysis {
    /// Names the request type within its database.
    pub(crate) type_hash: u64,
    /// The type's name within its database.
    pub(crate) label: String,
    /// How the text was read.
    pub(crate) reading: Reading,
    /// What statements mean for the session once they have succeeded, with their places in the text; those
    /// that mean nothing aren't mentioned.
    pub(crate) effects: Vec<(usize, Effect)>,
    /// State that can't be shared comes about.
    pub(crate) pins: Pins,
    /// It is a single statement of transaction control, or DEALLOCATE, or empty: perhaps ours to answer.
    pub(crate) is_control: bool,
    /// Its first statement is.
    pub(crate) starts_with_control: bool,
    /// It deallocates this statement (`None` inside: all of them).
    pub(crate) deallocates: Option<Option<Bytes>>,
    /// What it may do to rows and locks.
    pub(crate) touches: Touches,
    /// It may change what statements return: all but what only handles rows.
    pub(crate) alters: bool,
    /// Every session of a pool that has set the same hears the same of its parameters and columns.
    pub(crate) is_described_alike: bool,
    /// It may end transactions in a way that no text shows: CALL and DO, outside of a transaction block.
    pub(crate) ends_unseen: bool,
    /// It may make what a search path puts among the temporary objects.
    pub(crate) creates: bool,
    /// It asks the client for copy data.
    pub(crate) is_copy_in: bool,
    /// It ends a transaction by COMMIT.
    pub(crate) commits: bool,
    /// How long after its arrival its answer is of use, if the application says so.
    pub(crate) timeout: Option<Duration>,
    /// The hashes of the application's tags.
    pub(crate) tags: Vec<u64>,
    /// The trace that the application says the text belongs to.
    pub(crate) trace: Option<NonZeroU128>,
    /// It must not wait: it releases the locks of a prepared transaction, or is an empty text.
    pub(crate) is_immediate: bool,
}

impl Analysis {
    /// What the text's only statement, or its first, means for the session.
    pub(crate) fn first_effect(&self) -> Option<&Effect> {
        self.effects.first().filter(|(place, _)| *place == 0).map(|(_, effect)| effect)
    }

    /// Whether this text, which it is of, has neither parameters nor rows, for all that the gate can tell.
    pub(crate) fn returns_nothing(&self, sql: &[u8]) -> bool {
        self.is_control || begins_with(&RETURNS_NOTHING, sql)
    }

    /// Whether this text, which it is of, changes rows and returns none.
    pub(crate) fn writes_without_rows(&self, sql: &[u8]) -> bool {
        let returns = sql.windows(RETURNING.len()).any(|word| word.eq_ignore_ascii_case(RETURNING));
        !returns && begins_with(&WRITES, sql)
    }

    /// A group that runs nothing.
    pub(crate) fn prepare() -> Self {
        Self::named(PREPARE)
    }

    /// Whether it is of a group that runs nothing.
    pub(crate) fn is_preparation(&self) -> bool {
        self.label == PREPARE
    }

    /// A fast-path function call.
    pub(crate) fn function_call() -> Self {
        Self::named(FUNCTION_CALL)
    }

    /// What a function that is called by its number may leave behind.
    pub(crate) fn function(number: u32) -> Self {
        let pins = match number {
            number if LARGE_OBJECTS.contains(&number) => Pins::NONE,
            number if ADVISORY_LOCKS.contains(&number) => Pins::ADVISORY_LOCK.union(Pins::OTHER),
            _ => Pins::OTHER,
        };
        Self { pins, alters: !pins.is_empty(), ..Self::function_call() }
    }

    /// Adds to the type how many statements come together: a batch of a thousand is another type than one of
    /// three.
    pub(crate) fn add_size(&mut self, statements: usize) {
        let length = self.label.len();
        push_size(&mut self.label, statements as u64);
        if self.label.len() > length {
            self.type_hash = xxh3_64_with_seed(&self.label.as_bytes()[length..], self.type_hash);
        }
    }

    /// Keeps the effects that mean something. Of more than can be kept, the session's state can't be
    /// followed.
    fn note_effects(&mut self, effects: impl Iterator<Item = Effect>) {
        for (place, effect) in effects.enumerate().filter(|(_, effect)| !effect.is_empty()) {
            self.pins = self.pins.union(effect.leaves.pins);
            if self.effects.len() < EFFECTS_MAX {
                self.effects.push((place, effect));
            } else {
                self.pins = self.pins.union(Pins::OTHER);
            }
        }
    }

    fn named(label: &str) -> Self {
        Self { type_hash: label_hash(label), label: label.to_owned(), ..Self::default() }
    }
}

/// Reads a text, as the session's settings have it.
pub(crate) fn analyze(sql: &[u8], reading: Reading) -> Analysis {
    if !reading.is_readable {
        // Neither its shape nor what it sets can be told: the session keeps its connection.
        return Analysis { pins: Pins::SET_CONFIG, reading, ..Analysis::named(UNPARSED) };
    }
    let mut description = describe(sql, reading.standard_strings);
    let mut analysis = type_of(&description);
    analysis.reading = reading;
    analysis.timeout = description.tags.timeout;
    analysis.tags = std::mem::take(&mut description.tags.pairs);
    analysis.trace = description.tags.trace;
    analysis.add_size(description.statements.len() + description.further);
    let statements = &description.statements;
    analysis.is_control = statements.len() == 1 && is_control(&statements[0]);
    // What follows a DEALLOCATE is in one transaction with it, and may mind what came before.
    let deallocates = |it: &Statement<'_>| matches!(it.kind, Kind::Deallocate { .. });
    analysis.starts_with_control = analysis.is_control
        || statements.first().is_some_and(|first| is_control(first) && !deallocates(first));
    let is_single = statements.len() == 1 && description.further == 0;
    analysis.is_described_alike =
        is_single && begins_with(&DESCRIBED_ALIKE, statements[0].text) && analysis.label != UNPARSED;
    if description.further == 0 {
        let touches = statements.iter().map(|statement| statement.touches);
        analysis.touches = touches.min().unwrap_or_default();
    }
    analysis.pins = description.effects().pins;
    analysis.creates = description.further > 0;
    for statement in statements {
        analysis.commits |= matches!(statement.kind, Kind::Commit { .. } | Kind::CommitPrepared);
        analysis.is_copy_in |= statement.kind == Kind::Copy { direction: CopyDirection::FromClient };
        analysis.is_immediate |=
            matches!(statement.kind, Kind::CommitPrepared | Kind::RollbackPrepared | Kind::Empty);
        // What a prepared transaction has changed is unknown.
        analysis.alters |= statement.kind == Kind::CommitPrepared
            || statement.kind == Kind::Other && !begins_with(&ROWS, statement.text);
        analysis.creates |= statement.creates;
        analysis.ends_unseen |= statement.kind == Kind::Other && begins_with(&["call", "do"], statement.text);
        if matches!(&statement.kind, Kind::Set { .. }) && statement.text.len() > CARRIED_TEXT_MAX {
            analysis.pins = analysis.pins.union(Pins::SET_CONFIG);
        }
    }
    if let ([statement], true) = (&statements[..], analysis.is_control) {
        if let Kind::Deallocate { name } = &statement.kind {
            analysis.deallocates = Some(name.as_ref().map(|name| Bytes::copy_from_slice(name)));
        }
    }
    if description.further == 0 {
        analysis.note_effects(statements.iter().map(effect));
    } else {
        analysis.note_effects(wire::sql::statements(sql, reading.standard_strings).map(|it| effect(&it)));
    }
    analysis
}

/// Whether a text may ask which value a sequence gave the session last: it has the name of such a function
/// anywhere, within a literal or a comment too, or a name or literal with escapes (`U&`).
pub(crate) fn may_ask_sequences(sql: &[u8]) -> bool {
    let is = |range: Range<usize>, word: &[u8]| {
        sql.get(range).is_some_and(|found| found.eq_ignore_ascii_case(word))
    };
    memchr3_iter(b'v', b'V', b'&', sql).any(|place| match sql[place] {
        b'&' => is(place.saturating_sub(1)..place, b"u") && matches!(sql.get(place + 1), Some(b'"' | b'\'')),
        _ => SEQUENCES.iter().any(|name| is(place.saturating_sub(4)..place + 3, name)),
    })
}

/// Whether one of these is a statement's first word, comments and parentheses aside.
fn begins_with(words: &[&str], text: &[u8]) -> bool {
    // How a backslash is read matters to no first word.
    let mut lexer = Lexer::new(text, Dialect::Postgres { standard_strings: true });
    let mut tokens = std::iter::from_fn(|| lexer.next_token().ok().flatten());
    let first = tokens.find(|token| !matches!(token.kind, TokenKind::Comment | TokenKind::Open));
    let first = first.map_or(&b""[..], |first| first.text(text));
    words.iter().any(|word| word.as_bytes().eq_ignore_ascii_case(first))
}

fn type_of(description: &Description<'_>) -> Analysis {
    if let Some(tag) = description.tags.label() {
        return Analysis::named(&tag);
    }
    match &description.fingerprint {
        Some(shape) if shape.label.is_empty() => Analysis::named(EMPTY),
        Some(shape) => Analysis { type_hash: shape.hash, label: shape.label.clone(), ..Analysis::default() },
        None => Analysis::named(UNPARSED),
    }
}

fn is_control(statement: &Statement<'_>) -> bool {
    matches!(
        statement.kind,
        Kind::Empty
            | Kind::Begin { .. }
            | Kind::Commit { .. }
            | Kind::Rollback { .. }
            | Kind::RollbackTo { .. }
            | Kind::Savepoint { .. }
            | Kind::Release { .. }
            | Kind::SetTransaction
            | Kind::SetLocal { .. }
            | Kind::Deallocate { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::TypeName;
    use crate::postgres::book::Act;
    use crate::postgres::parameters::Parameters;
    use crate::sql::request_type::{request_type, request_type_named, type_name};

    fn read(sql: &str) -> Analysis {
        analyze(sql.as_bytes(), Parameters::default().reading())
    }

    #[test]
    fn statements_that_differ_in_literals_are_one_type() {
        assert_eq!(
            read("SELECT * FROM item WHERE id = 1").type_hash,
            read("select * from item where id = 22").type_hash
        );
        assert_ne!(read("SELECT 1").type_hash, read("SELECT 1, 2").type_hash);
    }

    #[test]
    fn the_applications_tag_names_the_type() {
        let analysis = read("SELECT 1 /*controller='cart',action='show'*/");
        assert!(analysis.label.contains("cart") && analysis.label.contains("show"), "{}", analysis.label);
        assert_eq!(
            read("SELECT 2 /*route='/cart'*/").type_hash,
            read("DELETE FROM x /*route='/cart'*/").type_hash
        );
    }

    fn name(sql: &str, explicit: bool) -> TypeName {
        let Analysis { type_hash, label, .. } = read(sql);
        type_name("shop", (type_hash, &label), explicit)
    }

    #[test]
    fn a_type_belongs_to_its_database_and_kind_of_transaction() {
        let hash = read("SELECT 1").type_hash;
        assert_ne!(request_type("shop", hash, false), request_type("blog", hash, false));
        assert_ne!(request_type("shop", hash, false), request_type("shop", hash, true));
        assert_eq!(&*name("SELECT 1", true).label, "shop: BEGIN; select ?");
    }

    #[test]
    fn a_name_tells_the_type() {
        let texts = [
            "SELECT * FROM item WHERE id = 1 AND \"Title\" LIKE 'x%'",
            "SELECT 1 /*route='/cart: all'*/",
            "SELECT 1 /*controller='cart',action='show'*/",
            "UPDATE t SET a = -1 WHERE b IN (1,2,3,4,5,6,7,8,9,10,11)",
            "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
            "; ;",
            "SELECT 'secret",
        ];
        for (text, explicit) in texts.iter().flat_map(|text| [(text, false), (text, true)]) {
            let name = name(text, explicit);
            assert_eq!(request_type_named(&name.label), Some(name.key), "{}", name.label);
        }
        assert_eq!(request_type_named("select ?"), None);
        let long = format!("SELECT {}", "a, ".repeat(300));
        let name = name(&long, false);
        assert_ne!(request_type_named(&name.label), Some(name.key), "cut, it doesn't");
    }

    #[test]
    fn the_first_statement_that_is_not_control_gives_the_type() {
        assert_eq!(read("BEGIN; SELECT 1; COMMIT").type_hash, read("SELECT 2").type_hash);
    }

    #[test]
    fn a_batch_of_another_size_is_another_type() {
        let many = |count: usize| read(&"UPDATE t SET a = 1; ".repeat(count));
        assert_eq!(many(3).type_hash, many(9).type_hash);
        assert_ne!(many(9).type_hash, many(10).type_hash);
        assert_eq!(many(10).type_hash, many(99).type_hash);
        assert!(many(100).label.ends_with("~10^2"), "{}", many(100).label);
    }

    #[test]
    fn what_cannot_be_lexed_is_unparsed() {
        assert_eq!(read("SELECT 'secret").label, UNPARSED);
        let unreadable = Reading { is_readable: false, ..Parameters::default().reading() };
        assert_eq!(analyze(b"SELECT 1", unreadable).label, UNPARSED);
        assert!(!analyze(b"SELECT 1", unreadable).pins.is_empty());
    }

    #[test]
    fn a_ping_has_a_name_and_is_immediate() {
        for ping in ["", ";", " ; ; ", "-- ping"] {
            assert_eq!(read(ping).label, EMPTY, "{ping:?}");
            assert!(read(ping).is_immediate, "{ping:?}");
        }
    }

    #[test]
    fn only_statements_that_change_the_session_are_noted() {
        assert!(read("SELECT 1; SELECT 2").effects.is_empty());
        let effects = read("SELECT 1; SET x.y = 1; COMMIT").effects;
        let places: Vec<_> = effects.iter().map(|(place, _)| *place).collect();
        assert_eq!(places, [1, 2]);
        assert_eq!(effects[0].1.carried_texts().collect::<Vec<_>>(), ["SET x.y = 1"]);
        assert_eq!(effects[1].1.act, Act::End);
    }

    #[test]
    fn a_text_that_may_ask_sequences_is_seen_wherever_it_does() {
        let asks = |sql: &str| may_ask_sequences(sql.as_bytes());
        for sql in [
            "lastval()",
            "SELECT pg_catalog . \"currval\" ('s')",
            "SELECT LASTVAL/**/()",
            "DO $$ BEGIN PERFORM Lastval(); END $$",
            "SELECT query_to_xml('select lastval()', true, true, '')",
            r#"SELECT U&"last\0076al"()"#,
            r"DO u&'\0062egin end'",
        ] {
            assert!(asks(sql), "{sql}");
        }
        for sql in
            ["", "v", "val", "&", "u&", "SELECT nextval('s')", "SELECT interval '1 d', a&'1'", "laſtval"]
        {
            assert!(!asks(sql), "{sql}");
        }
    }

    #[test]
    fn a_first_word_is_found_behind_comments() {
        for sql in [
            "SELECT 1",
            "/* load Cart */ select 1",
            "-- first\n(SELECT 1) UNION SELECT 2",
            "with a as (select 1) table a",
        ] {
            let analysis = read(sql);
            assert!(analysis.is_described_alike && !analysis.alters, "{sql}");
        }
        for sql in ["/* SELECT */ CREATE TABLE t (a int)", "DO $$ SELECT 1 $$", "COMMIT PREPARED 'a'"] {
            let analysis = read(sql);
            assert!(!analysis.is_described_alike && analysis.alters, "{sql}");
        }
        for sql in ["FETCH c", "EXECUTE p", "SHOW work_mem", "SELECT 1; SELECT 2", "", "SELECT 'open"] {
            assert!(!read(sql).is_described_alike, "{sql}");
        }
    }

    #[test]
    fn a_setting_behind_a_thousand_statements_is_seen() {
        let text = format!("{}SET x.y = 1", "SELECT 1; ".repeat(1_500));
        assert_eq!(read(&text).effects.iter().map(|(place, _)| *place).collect::<Vec<_>>(), [1_500]);
        let text = "SET x.y = 1; ".repeat(EFFECTS_MAX + 1);
        assert!(read(&text).pins.contains(Pins::OTHER));
    }

    #[test]
    fn control_that_may_be_ours_to_answer_is_marked() {
        for sql in ["BEGIN", "commit", "", "SAVEPOINT a", "SET LOCAL work_mem = 1", "DEALLOCATE ALL"] {
            assert!(read(sql).is_control, "{sql}");
        }
        assert!(!read("BEGIN; SELECT 1").is_control);
        assert!(read("BEGIN; SELECT 1").starts_with_control);
        assert!(!read("SET work_mem = 1").is_control);
        assert_eq!(read("DEALLOCATE \"S 1\"").deallocates, Some(Some("S 1".into())));
    }

    #[test]
    fn what_ends_a_prepared_transaction_is_immediate() {
        let immediate = [
            "COMMIT PREPARED 'a'",
            "commit prepared E'a';",
            "ROLLBACK PREPARED 'a'",
            "/* first */ rollback -- then\n prepared 'a'",
            "SELECT 1; COMMIT PREPARED 'a'",
        ];
        for sql in immediate {
            assert!(read(sql).is_immediate, "{sql}");
            assert!(!read(sql).is_control, "{sql}");
            assert_eq!(read(sql).touches, Touches::Anything, "{sql}");
        }
        assert!(read("COMMIT PREPARED 'a'").commits);
    }

    #[test]
    fn nothing_else_is_immediate() {
        let queued = [
            "COMMIT",
            "ROLLBACK",
            "END",
            "PREPARE TRANSACTION 'a'",
            "PREPARE commit AS SELECT 1",
            "SELECT 'COMMIT PREPARED ''a'''",
            "/* COMMIT PREPARED 'a' */ SELECT 1",
            "SELECT pg_advisory_lock(1)",
            "COMMIT PREPARED",
            "COMMIT PREPARED a",
        ];
        for sql in queued {
            assert!(!read(sql).is_immediate, "{sql}");
        }
        assert!(!Analysis::prepare().is_immediate && !Analysis::function_call().is_immediate);
    }
}
