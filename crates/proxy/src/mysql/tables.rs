//! What is known of the tables that texts name: whether any is a view, whose functions may leave something on
//! a connection.
//!
//! The server is asked for the names of a text that comes often, and its answer holds for [`LASTS`]. One
//! question runs at a time, and all together take a twentieth of the time. A statement through this gate that
//! defines tables ends what is known, at its beginning and its end. What is defined from elsewhere is noticed
//! after [`LASTS`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How long an answer of the server's is believed.
const LASTS: Duration = Duration::from_secs(1);
/// How often a text has to come in that time. A question costs as much as about so many resets.
const OFTEN: u32 = 16;
/// How long a question may take. The server may wait for one who defines a table of such a name.
pub(super) const ASK_LIMIT: Duration = Duration::from_millis(100);
/// How many times the time of a question passes before the next one.
const PAUSE: u32 = 20;
/// The pause behind a question that took too long: it may go on at the server.
const LONG_PAUSE: Duration = Duration::from_secs(60);
/// The most texts of which something is known.
const TEXTS_MAX: usize = 1_024;

/// How often definitions have begun or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Epoch(u64);

/// What the names of a text are to one user in one database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named {
    /// Base tables, or nothing that the user may read.
    Tables(Epoch),
    /// The text comes often: the server should be asked.
    Unknown(Epoch),
    /// A view is among them, or that isn't known.
    Unsure,
}

/// What is known of one text.
#[derive(Debug)]
struct Seen {
    since: Instant,
    /// How often it has come since then, and whether it came often before.
    uses: u32,
    was_often: bool,
    /// Whether it names views.
    has_views: Option<bool>,
}

impl Seen {
    fn new(was_often: bool) -> Self {
        Self { since: Instant::now(), uses: 0, was_often, has_views: None }
    }
}

/// What is known of the texts of all sessions.
#[derive(Debug, Default)]
pub(super) struct Tables(Mutex<Texts>);

#[derive(Debug, Default)]
struct Texts {
    epoch: u64,
    /// Statements that run now and may define tables.
    defining: usize,
    /// Until when nothing is asked.
    quiet_until: Option<Instant>,
    known: HashMap<Box<[u8]>, Seen>,
}

/// A statement that may define tables runs until this is dropped.
pub(super) struct Defining(Arc<Tables>);

/// The names of a text, as one user reads them in one database.
pub(super) fn key(user: &[u8], database: &[u8], names: &[u8]) -> Box<[u8]> {
    [user, &[0], database, &[0], names].concat().into()
}

impl Tables {
    /// What is known of the names of a text, which is to run.
    pub(super) fn named(&self, key: &[u8]) -> Named {
        let mut texts = self.0.lock();
        let epoch = Epoch(texts.epoch);
        if texts.defining > 0 {
            return Named::Unsure;
        }
        let is_quiet = texts.is_quiet();
        if !texts.known.contains_key(key) {
            if texts.known.len() >= TEXTS_MAX {
                texts.known.clear();
            }
            texts.known.insert(key.into(), Seen::new(false));
        }
        let Some(seen) = texts.known.get_mut(key) else { return Named::Unsure };
        if seen.since.elapsed() >= LASTS {
            *seen = Seen::new(seen.uses >= OFTEN);
        }
        seen.uses += 1;
        match seen.has_views {
            Some(false) => Named::Tables(epoch),
            None if (seen.was_often || seen.uses >= OFTEN) && !is_quiet => Named::Unknown(epoch),
            _ => Named::Unsure,
        }
    }

    /// Whether the server may be asked now: nobody else asks.
    pub(super) fn may_ask(&self) -> bool {
        let mut texts = self.0.lock();
        let may = !texts.is_quiet();
        if may {
            texts.quiet_until = Some(Instant::now() + ASK_LIMIT);
        }
        may
    }

    /// The server has been asked since then, in this epoch. `None`: it hasn't answered in time.
    pub(super) fn learn(&self, key: &[u8], has_views: Option<bool>, (Epoch(epoch), since): (Epoch, Instant)) {
        let mut texts = self.0.lock();
        let pause = if has_views.is_some() { since.elapsed() * PAUSE } else { LONG_PAUSE };
        texts.quiet_until = Some(Instant::now() + pause);
        if texts.epoch == epoch {
            if let Some(seen) = texts.known.get_mut(key) {
                (seen.since, seen.has_views) = (since, has_views);
            }
        }
    }

    /// Another server is used from now on.
    pub(super) fn forget(&self) {
        self.0.lock().forget();
    }

    /// Whether no table has been defined through this gate since then.
    pub(super) fn is_current(&self, Epoch(epoch): Epoch) -> bool {
        self.0.lock().epoch == epoch
    }

    /// A statement begins that may define tables.
    pub(super) fn define(self: &Arc<Self>) -> Defining {
        let mut texts = self.0.lock();
        texts.defining += 1;
        texts.forget();
        Defining(Arc::clone(self))
    }
}

impl Texts {
    /// Nothing is known any more. There may be many definitions, so nothing is asked for a while.
    fn forget(&mut self) {
        self.epoch += 1;
        let calm = Instant::now() + LASTS;
        self.quiet_until = Some(self.quiet_until.map_or(calm, |until| until.max(calm)));
        self.known.clear();
    }

    fn is_quiet(&self) -> bool {
        self.quiet_until.is_some_and(|until| until > Instant::now())
    }
}

impl Drop for Defining {
    fn drop(&mut self) {
        let mut texts = self.0.0.lock();
        texts.defining -= 1;
        texts.forget();
    }
}

/// What asks the server how many of a text's names are views, or have columns that are generated, which may
/// read and set user variables. A mode in which sequences need no parentheses counts, too, and so does a
/// variable that finds the last id without a function. `None`: the names can't be asked for.
pub(super) fn question(database: &[u8], names: &[u8]) -> Option<String> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'-');
    let mut sql = "(@@sql_mode LIKE '%ORACLE%')+@@sql_auto_is_null".to_owned();
    for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut parts = name.split(|byte| *byte == b'.');
        let first = parts.next()?;
        let (schema, table) = parts.next().map_or((database, first), |table| (first, table));
        if schema.is_empty() {
            continue;
        }
        if !schema.iter().chain(table).all(is_plain) {
            return None;
        }
        let (schema, table) = (std::str::from_utf8(schema).ok()?, std::str::from_utf8(table).ok()?);
        let of_table = format!("WHERE TABLE_SCHEMA='{schema}' AND TABLE_NAME='{table}' AND");
        sql.push_str(&format!(
            "+(SELECT COUNT(*) FROM information_schema.TABLES {of_table} \
             (TABLE_TYPE<>'BASE TABLE' OR TABLE_SCHEMA='performance_schema'))\
             +(SELECT COUNT(*) FROM information_schema.COLUMNS {of_table} COALESCE(GENERATION_EXPRESSION,'')<>'')"
        ));
    }
    Some(sql)
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    /// Lets a text come as often as the server is asked for it.
    fn asked(tables: &Tables) -> Option<Epoch> {
        (0..OFTEN).find_map(|_| match tables.named(b"text") {
            Named::Unknown(epoch) => Some(epoch),
            _ => None,
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_text_that_comes_often_is_asked_for_once_a_second() {
        let tables = Tables::default();
        let epoch = asked(&tables).unwrap();
        assert!(tables.may_ask() && !tables.may_ask(), "one at a time");
        tables.learn(b"text", Some(false), (epoch, Instant::now()));
        assert_eq!(tables.named(b"text"), Named::Tables(epoch));
        advance(LASTS).await;
        assert_eq!(tables.named(b"text"), Named::Unknown(epoch), "it came often");
        advance(LASTS * 2).await;
        assert_eq!(tables.named(b"text"), Named::Unsure, "it came once");
    }

    #[tokio::test(start_paused = true)]
    async fn what_defines_tables_ends_all_answers() {
        let tables = Arc::new(Tables::default());
        let epoch = asked(&tables).unwrap();
        let defining = tables.define();
        tables.learn(b"text", Some(false), (epoch, Instant::now()));
        assert!(!tables.is_current(epoch));
        assert_eq!(tables.named(b"text"), Named::Unsure);
        drop(defining);
        assert_eq!(asked(&tables), None, "more may follow");
        advance(LASTS).await;
        assert!(asked(&tables).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_that_takes_long_is_the_last_for_a_minute() {
        let tables = Tables::default();
        let epoch = asked(&tables).unwrap();
        tables.learn(b"text", None, (epoch, Instant::now()));
        advance(LONG_PAUSE - LASTS).await;
        assert_eq!(asked(&tables), None);
        advance(LASTS).await;
        assert!(asked(&tables).is_some());
    }

    #[test]
    fn only_plain_names_are_asked_for() {
        let of_two = question(b"shop-1", b"t\0other.v\0").unwrap();
        assert!(of_two.contains("TABLE_SCHEMA='shop-1' AND TABLE_NAME='t' AND"));
        assert!(of_two.contains("TABLE_SCHEMA='other' AND TABLE_NAME='v' AND"));
        assert!(!question(b"", b"t\0").unwrap().contains("TABLE_NAME"), "no database, no table");
        assert_eq!(question(b"a'b", b"t\0"), None);
    }
}
