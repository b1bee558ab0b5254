//! The statements of random scripts, by what they do to a session.

use crate::support::chance::Chance;

/// Settings with values that are allowed, as they stand in a SET.
const SETTINGS: [(&str, &[&str]); 22] = [
    ("app.tenant", &["'7'", "'8'", "'it''s'", "''"]),
    ("app.tenant", &["'7'", "'8'"]),
    ("app.other", &["'x'", "'é'"]),
    ("TimeZone", &["'Asia/Tokyo'", "'Europe/Stockholm'", "'UTC'", "-3"]),
    ("timezone", &["'Asia/Tokyo'", "'UTC'"]),
    ("DateStyle", &["'ISO, DMY'", "'German'", "ISO"]),
    ("IntervalStyle", &["'iso_8601'", "postgres"]),
    ("application_name", &["'x'", "'it''s'", "''"]),
    ("search_path", &["other", "public, other", "'other, public'", "nowhere"]),
    ("statement_timeout", &["'60s'", "61000", "0"]),
    ("work_mem", &["'8MB'", "9000"]),
    ("default_transaction_isolation", &["'serializable'", "'repeatable read'"]),
    ("default_transaction_read_only", &["on", "off"]),
    ("default_text_search_config", &["'pg_catalog.german'", "'other.words'", "'words'"]),
    ("bytea_output", &["'escape'", "hex"]),
    ("extra_float_digits", &["0", "2"]),
    ("standard_conforming_strings", &["off", "on"]),
    ("client_encoding", &["'LATIN1'", "'UTF8'"]),
    ("enable_seqscan", &["off", "on"]),
    ("xmloption", &["document", "content"]),
    ("client_min_messages", &["warning", "error"]),
    ("nosuch", &["1"]),
];

/// What one script's statements are mostly about: a script that is about everything seldom comes to a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Settings,
    Transactions,
    Contents,
    Cursors,
    Temporary,
    Listening,
    Roles,
    Prepared,
    Locks,
    Changes,
    Discards,
    Unseen,
}

const SUBJECTS: [Subject; 12] = [
    Subject::Settings,
    Subject::Transactions,
    Subject::Contents,
    Subject::Cursors,
    Subject::Temporary,
    Subject::Listening,
    Subject::Roles,
    Subject::Prepared,
    Subject::Locks,
    Subject::Changes,
    Subject::Discards,
    Subject::Unseen,
];

/// Draws statements of some subjects, and of few settings, so that sessions meet.
pub(crate) struct Statements {
    subjects: Vec<Subject>,
    settings: Vec<usize>,
}

impl Statements {
    pub(crate) fn new(chance: &mut Chance) -> Self {
        let more = (0..2).map(|_| *chance.choose(&SUBJECTS));
        let common = [Subject::Settings, Subject::Settings, Subject::Transactions, Subject::Contents];
        let subjects = common.into_iter().chain(more).collect();
        let settings = (0..3).map(|_| chance.below(SETTINGS.len())).collect();
        Self { subjects, settings }
    }

    /// A statement for a session that is likely to be within a transaction, or not.
    pub(crate) fn draw(&self, chance: &mut Chance, session: usize, is_open: bool) -> String {
        if is_open && chance.once_in(4) {
            return (*chance.choose(&["COMMIT", "COMMIT", "ROLLBACK", "END", "COMMIT AND CHAIN"])).to_owned();
        }
        match *chance.choose(&self.subjects) {
            Subject::Settings => self.setting(chance),
            Subject::Transactions => transaction(chance),
            Subject::Contents => contents(chance, session),
            Subject::Cursors => cursor(chance),
            Subject::Temporary => one(chance, &TEMPORARY),
            Subject::Listening => one(chance, &LISTENING),
            Subject::Roles => one(chance, &ROLES),
            Subject::Prepared => one(chance, &PREPARED),
            Subject::Locks => one(chance, &LOCKS),
            Subject::Changes => change(chance, session),
            Subject::Discards => one(chance, &DISCARDS),
            Subject::Unseen => one(chance, &UNSEEN),
        }
    }

    /// A statement that sets something, or tells how something is set.
    pub(crate) fn setting(&self, chance: &mut Chance) -> String {
        let (name, values) = SETTINGS[*chance.choose(&self.settings)];
        let value = *chance.choose(values);
        match chance.below(17) {
            0..4 => format!("SET {name} = {value}"),
            4 => format!("SET SESSION {name} TO {value}"),
            5 | 6 => format!("SET LOCAL {name} = {value}"),
            7 => format!("RESET {name}"),
            8 => format!("SET {name} TO DEFAULT"),
            9 => "RESET ALL".to_owned(),
            10 | 11 => {
                let text = if value.starts_with('\'') { value.to_owned() } else { format!("'{value}'") };
                let local = chance.choose(&["false", "true"]);
                format!("SELECT set_config('{name}', {text}, {local})")
            }
            12 => one(chance, &CHARACTERISTICS),
            // Whether a placeholder is known is told (`docs/decisions/sharing-connections.md`).
            13 if !name.contains('.') => format!("SET {name} FROM CURRENT"),
            _ if name.starts_with("app.") => {
                format!("SELECT coalesce(current_setting('{name}', true), '')")
            }
            _ => format!("SHOW {name}"),
        }
    }
}

fn one(chance: &mut Chance, from: &[&str]) -> String {
    (*chance.choose(from)).to_owned()
}

/// What ends transactions without a text that shows it.
const UNSEEN: [&str; 3] = [
    "DO $$BEGIN COMMIT; END$$",
    "DO $$BEGIN ROLLBACK; END$$",
    "DO $$BEGIN COMMIT; RAISE division_by_zero; END$$",
];

const CHARACTERISTICS: [&str; 6] = [
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
    "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
    "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    "SET TIME ZONE 'America/Lima'",
    "SET TIME ZONE LOCAL",
    "SET NAMES 'LATIN1'",
];

fn transaction(chance: &mut Chance) -> String {
    one(
        chance,
        &[
            "BEGIN",
            "BEGIN",
            "BEGIN",
            "START TRANSACTION READ ONLY",
            "BEGIN ISOLATION LEVEL SERIALIZABLE",
            "BEGIN; SELECT 1",
            "COMMIT",
            "ROLLBACK",
            "ABORT",
            "COMMIT AND CHAIN",
            "SAVEPOINT s1",
            "SAVEPOINT s1",
            "SAVEPOINT s2",
            "RELEASE s1",
            "ROLLBACK TO s1",
            "ROLLBACK TO SAVEPOINT s2",
            "SET TRANSACTION READ ONLY",
            "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
            "SHOW transaction_isolation",
            "SHOW transaction_read_only",
            "SELECT 1/0",
            "",
        ],
    )
}

/// Rows have the numbers of their session: sessions don't wait for one another's.
fn contents(chance: &mut Chance, session: usize) -> String {
    let id = 10 * (session + 1) + chance.below(5);
    match chance.below(12) {
        0 | 1 => format!("INSERT INTO a VALUES ({id}, 'x')"),
        2 => format!("UPDATE a SET note = 'y' WHERE id = {id}"),
        3 => format!("DELETE FROM a WHERE id = {id}"),
        4 => format!("INSERT INTO a VALUES ({id}, 'x') RETURNING *"),
        5 => "SELECT id, note FROM a ORDER BY id".to_owned(),
        6 => "SELECT * FROM b".to_owned(),
        7 => "SELECT '2026-07-01 12:00 UTC'::timestamptz, '1 day 2 hours'::interval".to_owned(),
        8 => "SELECT 'a\\b', 'é', '\\x41'::bytea".to_owned(),
        9 => "SELECT nosuch FROM a".to_owned(),
        10 => "SELECT to_tsvector('the houses')".to_owned(),
        _ => "SELECT current_user, session_user".to_owned(),
    }
}

fn cursor(chance: &mut Chance) -> String {
    one(
        chance,
        &[
            "DECLARE c CURSOR FOR SELECT id FROM a ORDER BY id",
            "DECLARE c CURSOR WITH HOLD FOR SELECT id FROM a ORDER BY id",
            "FETCH 1 FROM c",
            "MOVE 1 FROM c",
            "FETCH ALL FROM c",
            "CLOSE c",
            "CLOSE ALL",
        ],
    )
}

const TEMPORARY: [&str; 10] = [
    "CREATE TEMP TABLE tt (x int)",
    "CREATE TEMPORARY TABLE tt ON COMMIT DROP AS SELECT 1 AS x",
    "SELECT 2 AS x INTO TEMP TABLE tt",
    "INSERT INTO tt VALUES (1)",
    "SELECT * FROM tt",
    "DROP TABLE tt",
    "DISCARD TEMP",
    "SELECT to_regclass('pg_temp.tt') IS NULL",
    "SELECT set_config('search_path', 'pg_temp', true); CREATE TABLE tt (x int)",
    "SELECT to_regclass('pg_temp.tt')",
];

const LISTENING: [&str; 7] = [
    "LISTEN one",
    "LISTEN two",
    "UNLISTEN one",
    "UNLISTEN *",
    "NOTIFY one, 'x'",
    "SELECT pg_notify('two', 'y')",
    "SELECT * FROM pg_listening_channels() ORDER BY 1",
];

const ROLES: [&str; 9] = [
    "SET ROLE tenant",
    "SET LOCAL ROLE tenant",
    "RESET ROLE",
    "SET ROLE NONE",
    "SET SESSION AUTHORIZATION tenant",
    "SET SESSION AUTHORIZATION DEFAULT",
    "RESET SESSION AUTHORIZATION",
    "SELECT current_user, session_user",
    "SHOW role",
];

const PREPARED: [&str; 9] = [
    "PREPARE p AS SELECT id, note FROM a ORDER BY id",
    "PREPARE q (int) AS SELECT $1 + 1",
    "EXECUTE p",
    "EXECUTE q (1)",
    "DEALLOCATE p",
    "DEALLOCATE s",
    "DEALLOCATE t",
    "DEALLOCATE ALL",
    "SELECT name FROM pg_prepared_statements WHERE from_sql ORDER BY 1",
];

/// Sessions ask for locks without waiting for them.
const LOCKS: [&str; 8] = [
    "SELECT pg_try_advisory_lock(1)",
    "SELECT pg_try_advisory_lock(2)",
    "SELECT pg_try_advisory_lock_shared(1)",
    "SELECT pg_advisory_unlock(1)",
    "SELECT pg_advisory_unlock_all()",
    "SELECT pg_try_advisory_xact_lock(1)",
    "SELECT objid FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory' ORDER BY 1",
    "SELECT setseed(0.5)",
];

fn change(chance: &mut Chance, session: usize) -> String {
    match chance.below(9) {
        0 => format!("CREATE TABLE own{session} (x int)"),
        1 => format!("DROP TABLE own{session}"),
        2 => format!("ALTER TABLE own{session} ADD COLUMN y text"),
        3 => format!("INSERT INTO own{session} VALUES (1)"),
        4 => format!("SELECT * FROM own{session}"),
        5 => "ALTER TABLE a ADD COLUMN more int".to_owned(),
        6 => "ALTER TABLE a DROP COLUMN IF EXISTS more".to_owned(),
        7 => "SELECT * FROM a ORDER BY id".to_owned(),
        _ => "TRUNCATE b".to_owned(),
    }
}

const DISCARDS: [&str; 5] =
    ["DISCARD ALL", "DISCARD PLANS", "DISCARD SEQUENCES", "DISCARD TEMP", "RESET ALL"];
