//! What a statement changes in its session once it has succeeded: an [`Effect`] for the session's book.

use bytes::Bytes;
use wire::sql::lexer::{Lexer, Token, TokenKind};
use wire::sql::statement::{Kind, Statement};
use wire::sql::{Dialect, Effects, Pins};

use super::book::{Act, Change, Effect};

/// The name under which the parser reports `SET SESSION CHARACTERISTICS AS TRANSACTION …`, which sets up to
/// three settings.
const CHARACTERISTICS: &[u8] = b"session characteristics";
/// Settings that SET changes for the current transaction only, so nothing is carried.
const OF_TRANSACTION: [&str; 3] =
    ["transaction_deferrable", "transaction_isolation", "transaction_read_only"];
/// Settings that pin the session instead of being carried.
const PINNING: [&str; 3] = ["role", "seed", "session_authorization"];
/// Older names that servers still accept, each with today's name.
const ALIASES: [(&str, &str); 3] = [
    ("debug_parallel_query", "force_parallel_mode"),
    ("sort_mem", "work_mem"),
    ("vacuum_mem", "maintenance_work_mem"),
];
/// The schema of temporary objects. Named in the search path, it makes every CREATE a temporary one.
const TEMPORARY: &[u8] = b"pg_temp";

/// What a statement changes in its session once it has succeeded.
pub(crate) fn effect(statement: &Statement<'_>) -> Effect {
    let bytes = |name: &[u8]| Bytes::copy_from_slice(name);
    let mut leaves = statement.effects;
    let act = match &statement.kind {
        Kind::Set { name } if **name == *CHARACTERISTICS => Act::Changes(characteristics(statement.text)),
        Kind::Set { name } => set(&folded(name), statement.text, &mut leaves),
        Kind::SetLocal { name } => {
            let name = folded(name);
            if name == "search_path" && mentions_temporary(statement.text) {
                leaves = leaves.then(Effects { pins: Pins::TEMPORARY, releases: Pins::NONE });
            }
            Act::Changes(vec![Change::Local { name, text: bytes(statement.text) }])
        }
        Kind::Reset { name } => changes_of(&folded(name), |name| Change::Reset { name }),
        Kind::ResetAll => Act::Changes(vec![Change::ResetAll]),
        Kind::Savepoint { name } => Act::Savepoint(bytes(name)),
        Kind::Release { name } => Act::Release(bytes(name)),
        Kind::RollbackTo { savepoint } => Act::RollbackTo(bytes(savepoint)),
        Kind::Commit { .. } | Kind::Rollback { .. } | Kind::PrepareTransaction => Act::End,
        Kind::Deallocate { name: Some(name) } => Act::Deallocate(bytes(name)),
        Kind::Deallocate { name: None } => Act::DeallocateAll,
        Kind::DiscardAll => Act::DiscardAll,
        _ => Act::Nothing,
    };
    Effect { act, leaves }
}

fn set(name: &str, text: &[u8], leaves: &mut Effects) -> Act {
    if ends_with_default(text) {
        return changes_of(name, |name| Change::Reset { name });
    }
    let pins = match name {
        "seed" => Pins::SEED,
        // The server ends a session that is idle for longer. On a shared connection that would be another
        // session.
        "idle_session_timeout" => Pins::OTHER,
        "search_path" if mentions_temporary(text) => Pins::TEMPORARY,
        _ => Pins::NONE,
    };
    *leaves = leaves.then(Effects { pins, releases: Pins::NONE });
    changes_of(name, |name| Change::Set { name, text: Bytes::copy_from_slice(text) })
}

fn changes_of(name: &str, change: impl FnOnce(String) -> Change) -> Act {
    if OF_TRANSACTION.contains(&name) || PINNING.contains(&name) {
        return Act::Nothing;
    }
    Act::Changes(vec![change(name.to_owned())])
}

/// Names of settings don't depend on case, quoted or not.
fn folded(name: &[u8]) -> String {
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
    alias.map_or(name, |(_, name)| (*name).to_owned())
}

fn mentions_temporary(text: &[u8]) -> bool {
    text.windows(TEMPORARY.len()).any(|window| window.eq_ignore_ascii_case(TEMPORARY))
}

/// The words of a statement, comments and punctuation left out.
fn words(text: &[u8]) -> impl Iterator<Item = Token> {
    // Either reading of backslashes will do: no caller looks at what follows a literal.
    let mut lexer = Lexer::new(text, Dialect::Postgres { standard_strings: true });
    let tokens = std::iter::from_fn(move || lexer.next_token().ok().flatten());
    tokens.filter(|token| !matches!(token.kind, TokenKind::Comment | TokenKind::Semicolon))
}

/// Whether a SET ends with the keyword DEFAULT, comments aside: then it is a RESET. (In quotes it would be
/// a value.)
fn ends_with_default(text: &[u8]) -> bool {
    words(text).last().is_some_and(|token| {
        token.kind == TokenKind::Word && token.text(text).eq_ignore_ascii_case(b"DEFAULT")
    })
}

/// The settings behind `SET SESSION CHARACTERISTICS AS TRANSACTION`, each with a statement of its own.
fn characteristics(text: &[u8]) -> Vec<Change> {
    let set = |name: &str, value: &str| Change::Set {
        name: name.to_owned(),
        text: format!("SET {name} = '{value}'").into(),
    };
    let mut changes = Vec::new();
    let mut before = Vec::new();
    for token in words(text) {
        let word = token.text(text).to_ascii_lowercase();
        let last = before.last().map(Vec::as_slice);
        changes.extend(match (last, &word[..]) {
            (Some(b"level"), b"serializable") => Some(set("default_transaction_isolation", "serializable")),
            (Some(b"repeatable"), b"read") => Some(set("default_transaction_isolation", "repeatable read")),
            (Some(b"read"), b"committed") => Some(set("default_transaction_isolation", "read committed")),
            (Some(b"read"), b"uncommitted") => Some(set("default_transaction_isolation", "read uncommitted")),
            (Some(b"read"), b"only") => Some(set("default_transaction_read_only", "on")),
            (Some(b"read"), b"write") => Some(set("default_transaction_read_only", "off")),
            (Some(b"not"), b"deferrable") => Some(set("default_transaction_deferrable", "off")),
            (_, b"deferrable") => Some(set("default_transaction_deferrable", "on")),
            _ => None,
        });
        before.push(word);
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(sql: &str) -> Effect {
        effect(&wire::sql::statements(sql.as_bytes(), true).next().unwrap())
    }

    #[test]
    fn set_to_default_is_a_reset() {
        for sql in [
            "SET application_name TO DEFAULT",
            "set application_name=default ;",
            "SET application_name TO DEFAULT /*app='shop'*/ -- really",
        ] {
            let reset = Change::Reset { name: "application_name".to_owned() };
            assert_eq!(read(sql).act, Act::Changes(vec![reset]), "{sql}");
        }
        for sql in ["SET application_name TO 'default'", "SET application_name TO my_default"] {
            assert!(
                matches!(read(sql).act, Act::Changes(it) if matches!(it[0], Change::Set { .. })),
                "{sql}"
            );
        }
    }

    #[test]
    fn one_setting_has_one_name() {
        for sql in ["RESET \"App.Tenant\"", "RESET app.TENANT", "SET APP.tenant TO DEFAULT"] {
            assert_eq!(read(sql).act, Act::Changes(vec![Change::Reset { name: "app.tenant".to_owned() }]));
        }
        assert_eq!(read("RESET sort_mem"), read("RESET work_mem"));
    }

    #[test]
    fn characteristics_are_the_settings_that_they_stand_for() {
        let text = "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY, \
                    NOT DEFERRABLE";
        let texts: Vec<_> = read(text).carried_texts().cloned().collect();
        assert_eq!(
            texts,
            [
                "SET default_transaction_isolation = 'repeatable read'",
                "SET default_transaction_read_only = 'on'",
                "SET default_transaction_deferrable = 'off'",
            ]
        );
    }

    #[test]
    fn what_belongs_to_a_transaction_or_is_a_pin_is_no_setting() {
        for sql in ["SET transaction_isolation = 'serializable'", "SET transaction_read_only = on"] {
            assert!(read(sql).is_empty(), "{sql}");
        }
        let pins = [
            ("SET ROLE bob", Pins::ROLE),
            ("SET seed = 0.5", Pins::SEED),
            ("SET idle_session_timeout = '1s'", Pins::OTHER),
            ("SET search_path = public, pg_temp", Pins::TEMPORARY),
            ("SET LOCAL search_path = \"PG_TEMP\"", Pins::TEMPORARY),
        ];
        for (sql, pin) in pins {
            assert_eq!(read(sql).leaves.pins, pin, "{sql}");
        }
        for (sql, pin) in [
            ("RESET ROLE", Pins::ROLE),
            ("SET ROLE NONE", Pins::ROLE),
            ("SET SESSION AUTHORIZATION DEFAULT", Pins::SESSION_AUTHORIZATION),
            ("RESET SESSION AUTHORIZATION", Pins::SESSION_AUTHORIZATION),
        ] {
            assert_eq!(read(sql).leaves.releases, pin, "{sql}");
        }
    }
}
