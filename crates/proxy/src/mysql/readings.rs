//! The ways in which a server may read a text.
//!
//! A comment such as `/*!80000 … */` is skipped by some servers and run by others, and what stands in it may
//! change how the rest is read. Such a text is read both ways. In some character sets the second byte of a
//! character may be a backslash or a backquote, which is none there. A statement may change both for those
//! behind it in the same text, which is then read in each way that it may change to.

use std::borrow::Cow;

use memchr::memmem;
use wire::sql::lexer::{Lexer, TokenKind};
use wire::sql::{Backslashes, Dialect, DoubleQuotes};

use super::classify::{Analysis, Close, Defines, Killing, Leaves, Pin, Savepoints, analyze as read};

/// The ways in which modes of SQL have texts read.
const DIALECTS: [Dialect; 4] = {
    const fn of(double_quotes: DoubleQuotes, backslashes: Backslashes) -> Dialect {
        Dialect::MySql { double_quotes, backslashes }
    }
    [
        of(DoubleQuotes::Strings, Backslashes::Escape),
        of(DoubleQuotes::Strings, Backslashes::Plain),
        of(DoubleQuotes::Identifiers, Backslashes::Escape),
        of(DoubleQuotes::Identifiers, Backslashes::Plain),
    ]
};
/// The character sets whose second bytes may be ASCII.
const WIDE_SETS: [&str; 5] = ["sjis", "cp932", "gbk", "gb18030", "big5"];
/// The first version that not every server with session tracking has.
const VERSION_MIN: u32 = 50_700;
/// The most comments of a text that are left out in turn.
const COMMENTS_MAX: usize = 8;

/// The collation of the same character set that pads texts with spaces. Those of MariaDB that don't have
/// numbers of their own.
pub(super) const fn padded(collation: u16) -> u16 {
    match collation {
        1025..2048 => collation - 1024,
        _ => collation,
    }
}

/// A character set whose second bytes may be ASCII.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wide {
    /// sjis and cp932: bytes from 0xa0 to 0xdf are characters of their own.
    Japanese,
    /// gbk, gb18030 and big5.
    Chinese,
}

impl Wide {
    pub(super) fn named(set: &[u8]) -> Option<Self> {
        match set {
            b"sjis" | b"cp932" => Some(Self::Japanese),
            b"gbk" | b"gb18030" | b"big5" => Some(Self::Chinese),
            _ => None,
        }
    }

    /// By the number of a collation.
    pub(super) fn of_collation(collation: u16) -> Option<Self> {
        match padded(collation) {
            13 | 88 | 95 | 96 => Some(Self::Japanese),
            1 | 28 | 84 | 87 | 248..=250 => Some(Self::Chinese),
            _ => None,
        }
    }

    fn leads(self, byte: u8) -> bool {
        match self {
            Self::Japanese => matches!(byte, 0x81..=0x9f | 0xe0..=0xfc),
            Self::Chinese => matches!(byte, 0x81..=0xfe),
        }
    }

    /// The text with bytes for characters of two bytes that only a word can have.
    fn flatten(self, sql: &[u8]) -> Vec<u8> {
        let mut flat = Vec::with_capacity(sql.len());
        let mut rest = sql;
        loop {
            rest = match rest {
                [] => return flat,
                [lead, 0x40..=0x7e | 0x80..=0xfe, behind @ ..] if self.leads(*lead) => {
                    flat.extend_from_slice(&[0xff, 0xff]);
                    behind
                }
                [byte, behind @ ..] => {
                    flat.push(*byte);
                    behind
                }
            }
        }
    }
}

/// Reads a text in all its ways.
pub(super) fn analyze(sql: &[u8], dialect: Dialect, wide: Option<Wide>) -> Analysis {
    let analysis = analyze_in(sql, dialect, wide);
    if memchr::memchr(b';', sql).is_none() {
        return analysis;
    }
    let has = |name: &str| {
        let name = name.as_bytes();
        sql.windows(name.len()).any(|word| word.eq_ignore_ascii_case(name))
    };
    let modes = if has("sql_mode") { &DIALECTS[..] } else { &[] };
    let is_set = |set: &&&str| (has("names") || has("char")) && has(set);
    let sets = WIDE_SETS.iter().filter(is_set).map(|set| Wide::named(set.as_bytes()));
    let dialects: Vec<_> = modes.iter().copied().chain([dialect]).collect();
    let others = sets.chain([wide]).flat_map(|wide| dialects.iter().map(move |dialect| (*dialect, wide)));
    others
        .filter(|other| *other != (dialect, wide))
        .fold(analysis, |all, (dialect, wide)| both(all, &analyze_in(sql, dialect, wide)))
}

/// Reads a text in the ways of one mode and character set.
fn analyze_in(sql: &[u8], dialect: Dialect, wide: Option<Wide>) -> Analysis {
    let sql = wide.map_or(Cow::Borrowed(sql), |wide| wide.flatten(sql).into());
    let analysis = read(&sql, dialect);
    if memmem::find(&sql, b"/*!").is_none() && memmem::find(&sql, b"/*M!").is_none() {
        return analysis;
    }
    match left_out(&sql, dialect) {
        Some(Cow::Borrowed(_)) => analysis,
        Some(Cow::Owned(without)) => both(analysis, &read(&without, dialect)),
        None => Analysis::unparsed(&sql),
    }
}

/// What holds whichever way the server reads. Every field is named, so that a new one has to be thought of.
fn both(one: Analysis, other: &Analysis) -> Analysis {
    let kills = if one.kills == other.kills { one.kills } else { Killing::Unreadable };
    let is_alike = (one.pin, one.tracking, one.explains, one.close, &one.once)
        == (other.pin, other.tracking, other.explains, other.close, &other.once);
    Analysis {
        type_hash: one.type_hash,
        label: one.label,
        pin: if is_alike { one.pin } else { Some(one.pin.or(other.pin).unwrap_or(Pin::Other)) },
        asks: one.asks.with(other.asks),
        renews: one.renews.common(other.renews),
        explains: one.explains,
        names_insert_id: one.names_insert_id || other.names_insert_id,
        leaves: if one.leaves == other.leaves { one.leaves } else { Leaves::Something },
        defines: if one.defines == other.defines { one.defines } else { Defines::Tables },
        tracking: is_alike && one.tracking,
        begins: one.begins && other.begins,
        ends: one.ends && other.ends,
        next: one.next.filter(|_| one.next == other.next),
        savepoints: if one.savepoints == other.savepoints { one.savepoints } else { Savepoints::Set },
        close: if one.close == other.close { one.close } else { Close::Commits },
        kills,
        once: one.once,
        tags: one.tags,
        trace: one.trace,
    }
}

/// The text without the comments that servers may skip; borrowed if there are none. `None`: there are more
/// than two ways to read it.
fn left_out(sql: &[u8], dialect: Dialect) -> Option<Cow<'_, [u8]>> {
    let mut text = Cow::Borrowed(sql);
    let mut mark: Option<Vec<u8>> = None;
    for _ in 0..COMMENTS_MAX {
        let Some((start, end)) = optional(&text, dialect) else { return Some(text) };
        let found = text.get(start..end)?;
        let len = memmem::find(&text[end..], b"*/")?;
        let inside = &text[end..end + len];
        // The ways of a comment within one differ from server to server.
        if memmem::find(inside, b"/*").is_some() || mark.as_ref().is_some_and(|mark| mark != found) {
            return None;
        }
        mark = Some(found.to_vec());
        text.to_mut()[start..end + len + 2].fill(b' ');
    }
    None
}

/// Where the first comment begins that a server may skip, and where its mark ends.
fn optional(text: &[u8], dialect: Dialect) -> Option<(usize, usize)> {
    let mut lexer = Lexer::new(text, dialect);
    while let Ok(Some(token)) = lexer.next_token() {
        let mark = token.text(text);
        if token.kind != TokenKind::Comment {
            continue;
        }
        let version = mark.strip_prefix(b"/*!").filter(|rest| rest.iter().all(u8::is_ascii_digit));
        let version = version.and_then(|digits| std::str::from_utf8(digits).ok());
        let is_optional = version.and_then(|digits| digits.parse().ok()) >= Some(VERSION_MIN);
        if is_optional || mark.starts_with(b"/*M!") {
            return Some((token.start, token.end));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mysql::opening::{Access, Next};

    fn pin(sql: &[u8], wide: Option<Wide>) -> Option<Pin> {
        analyze(sql, Dialect::MYSQL, wide).pin
    }

    #[test]
    fn a_comment_that_a_server_may_skip_hides_nothing() {
        for sql in [
            "SELECT 1 /*!999999 ' */ , GET_LOCK('K',0) /* ' */",
            "SELECT 1 /*!50701 ' */ , GET_LOCK('K',0) -- '",
            "SELECT 1 /*M! ' */ , GET_LOCK('K',0) -- '",
            "SELECT 1 /*!80000 ' /* */ */ , GET_LOCK('K',0) -- '",
            "/*!80000 SET x = 1, */ /*!80001 a = */ /*!90000 2 */ SELECT 1",
        ] {
            assert!(pin(sql.as_bytes(), None).is_some(), "{sql}");
        }
        for sql in ["/*!40101 SET NAMES utf8 */", "SELECT /*!99999 STRAIGHT_JOIN */ 1", "SELECT '/*!99999 x'"]
        {
            assert_eq!(pin(sql.as_bytes(), None), None, "{sql}");
        }
        for sql in [
            "SELECT 1 /*!999999 ' */; KILL 3321; -- '",
            "/*!50701 ' */ KILL CONNECTION 3329 -- '",
            "/*!80000 CREATE TABLE a */ KILL 5",
            "KILL 5; SELECT '",
        ] {
            assert_eq!(analyze(sql.as_bytes(), Dialect::MYSQL, None).kills, Killing::Unreadable, "{sql}");
        }
    }

    #[test]
    fn a_mode_or_a_character_set_that_a_text_sets_hides_nothing_behind_it() {
        for sql in [
            &b"SET sql_mode = 'NO_BACKSLASH_ESCAPES'; SELECT '\\'; DO GET_LOCK('k', 0) -- '"[..],
            b"SET SQL_MODE = ''; SELECT '\\', GET_LOCK('k', 0) -- '",
            b"SET sql_mode = 'ANSI_QUOTES'; SELECT 1 AS \"\\\", GET_LOCK('k', 0) -- \"",
            b"SET NAMES gbk; SELECT '\xbf\\', GET_LOCK('k', 0) -- '",
        ] {
            assert!(pin(sql, None).is_some(), "{}", sql.escape_ascii());
        }
        for sql in ["SET sql_mode = 'ANSI_QUOTES'; SELECT \"a\" FROM b", "SET NAMES gbk; SELECT 'a';"] {
            assert_eq!(pin(sql.as_bytes(), None), None, "{sql}");
        }
        let kill = b"SET sql_mode = 'NO_BACKSLASH_ESCAPES'; SELECT '\\'; KILL 5 -- '";
        assert_eq!(analyze(kill, Dialect::MYSQL, None).kills, Killing::Unreadable);
    }

    #[test]
    fn what_only_one_reading_sets_for_the_next_transaction_is_left_to_the_server() {
        let next = |sql: &str| analyze(sql.as_bytes(), Dialect::MYSQL, None).next;
        assert_eq!(next("SET TRANSACTION READ ONLY"), Some(Next::Access(Access::Reads)));
        assert_eq!(next("/*!80000 SET TRANSACTION READ ONLY */"), None);
        assert_eq!(next("SET TRANSACTION READ /*!50701 ONLY */"), None);
        assert_eq!(next("SET TRANSACTION READ ONLY /*M!100000 , READ WRITE */"), None);
    }

    #[test]
    fn a_savepoint_that_only_one_reading_sets_may_be_there() {
        let savepoints = |sql: &str| analyze(sql.as_bytes(), Dialect::MYSQL, None).savepoints;
        assert_eq!(savepoints("SELECT 1 /*!50701 + 1 */"), Savepoints::Unchanged);
        assert_eq!(savepoints("/*!50701 SAVEPOINT a */"), Savepoints::Set);
    }

    #[test]
    fn the_second_byte_of_a_character_is_no_backslash() {
        let sql = b"SELECT '\x95\x5c' , GET_LOCK('K',0) -- '";
        assert_eq!(pin(sql, None), None);
        assert_eq!(pin(sql, Wide::named(b"sjis")), Some(Pin::NamedLock));
        assert_eq!(pin(sql, Wide::of_collation(28)), Some(Pin::NamedLock));
        assert_eq!(pin(sql, Wide::of_collation(1_024 + 28)), Some(Pin::NamedLock));
        // In sjis the first byte is a character by itself.
        assert_eq!(pin(b"SELECT '\xb1\x5c' , GET_LOCK('K',0) -- '", Wide::named(b"sjis")), None);
    }
}
