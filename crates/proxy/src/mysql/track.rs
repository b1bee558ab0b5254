//! Changes of a session that the server tells: which can be made again on another connection, and how.

use std::borrow::Cow;
use std::collections::BTreeMap;

use wire::mysql::track::{Change, Changes};

use super::carried::Carried;
use super::classify::{Analysis, Explains, Pin};
use super::readings::padded;
use super::results::Results;

/// The longest value that is set again, in bytes.
const VALUE_MAX: usize = 4_096;

/// How a variable's value is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Number,
    /// `ON` or `OFF`.
    Switch,
}

/// The variables that can be set on another connection with the value that the server tells.
const VARIABLES: [(&str, Form); 31] = [
    ("auto_increment_increment", Form::Number),
    ("auto_increment_offset", Form::Number),
    ("autocommit", Form::Switch),
    ("character_set_client", Form::Text),
    ("character_set_connection", Form::Text),
    ("character_set_results", Form::Text),
    ("check_constraint_checks", Form::Switch),
    ("collation_connection", Form::Text),
    ("default_week_format", Form::Number),
    ("div_precision_increment", Form::Number),
    ("foreign_key_checks", Form::Switch),
    ("group_concat_max_len", Form::Number),
    ("innodb_lock_wait_timeout", Form::Number),
    ("interactive_timeout", Form::Number),
    ("join_buffer_size", Form::Number),
    ("lc_time_names", Form::Text),
    ("lock_wait_timeout", Form::Number),
    ("max_execution_time", Form::Number),
    ("max_statement_time", Form::Number),
    ("net_read_timeout", Form::Number),
    ("net_write_timeout", Form::Number),
    ("sort_buffer_size", Form::Number),
    ("sql_big_selects", Form::Switch),
    ("sql_mode", Form::Text),
    ("sql_notes", Form::Switch),
    ("sql_quote_show_create", Form::Switch),
    ("sql_safe_updates", Form::Switch),
    ("sql_select_limit", Form::Number),
    ("time_zone", Form::Text),
    ("unique_checks", Form::Switch),
    ("wait_timeout", Form::Number),
];

/// Variables that only follow from others, or that the gate carries in another way.
const FOLLOWING: [&str; 8] = [
    "character_set_database",
    "collation_database",
    "identity",
    "last_insert_id",
    "session_track_schema",
    "session_track_state_change",
    "session_track_system_variables",
    "warning_count",
];

/// The isolation of transactions, under the names of both servers.
const ISOLATION: [&str; 4] =
    ["tx_isolation", "transaction_isolation", "tx_read_only", "transaction_read_only"];

/// `name=value` for a SET; `None` for a variable that isn't set again.
pub(super) fn assignment(name: &[u8], value: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(name).ok()?;
    let value = std::str::from_utf8(value).ok()?;
    let form = if ISOLATION.contains(&name) {
        if name.ends_with("read_only") { Form::Switch } else { Form::Text }
    } else {
        VARIABLES.iter().find(|(known, _)| *known == name)?.1
    };
    let is_plain =
        value.len() <= VALUE_MAX && value.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'\\');
    let value: Cow<'_, str> = match form {
        Form::Number
            if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') =>
        {
            value.into()
        }
        Form::Switch => match value {
            "ON" | "1" => "1".into(),
            "OFF" | "0" => "0".into(),
            _ => return None,
        },
        // Without a value it is NULL: no conversion.
        Form::Text if value.is_empty() && name == "character_set_results" => "NULL".into(),
        Form::Text if is_plain => format!("'{}'", value.replace('\'', "''")).into(),
        Form::Text | Form::Number => return None,
    };
    Some(format!("{name}={value}"))
}

/// The variables that SET NAMES sets.
const OF_NAMES: [&str; 4] =
    ["character_set_client", "character_set_connection", "character_set_results", "collation_connection"];

/// Whether SET NAMES sets this variable.
pub(super) fn is_of_names(name: &[u8]) -> bool {
    OF_NAMES.iter().any(|known| known.as_bytes() == name)
}

/// Whether a session with these variables may share its state with others: only its character sets differ
/// from the login's, and in none is a backquote a letter.
pub(super) fn is_shared(variables: &BTreeMap<Vec<u8>, Vec<u8>>, login: u16) -> bool {
    /// The collations of swe7.
    const SWE7: [u16; 2] = [10, 82];
    let set = variables.get(&b"character_set_client"[..]);
    let is_swe7 = set.map_or(SWE7.contains(&padded(login)), |set| set == b"swe7");
    variables.keys().all(|name| is_of_names(name)) && !is_swe7
}

/// `, NAMES …` for a SET, if a session's variables are such as SET NAMES leaves them. Results then have the
/// collation that they had, which no variable shows.
pub(super) fn names(variables: &BTreeMap<Vec<u8>, Vec<u8>>) -> Option<String> {
    let [client, connection, results, collation] = OF_NAMES.map(|name| variables.get(name.as_bytes()));
    let (set, collation) = (client?, collation?);
    let is_word = |text: &[u8]| text.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let is_of_set = collation.strip_prefix(&set[..]).is_some_and(|rest| matches!(rest, [] | [b'_', ..]));
    let is_of_names = connection == client && results == client && is_word(set) && is_word(collation);
    let is_of_names = is_of_names && is_of_set;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    is_of_names.then(|| format!(", NAMES '{}' COLLATE '{}'", text(set), text(collation)))
}

/// Whether the session's state has changed, and whether it can still be followed.
#[derive(Default)]
pub(super) struct Told {
    pub(super) changed: bool,
    pub(super) pin: Option<Pin>,
    /// The session has changed what the server tells of it.
    pub(super) tracking: bool,
    /// The connection's character set has changed, and the server doesn't tell with which collation.
    pub(super) collation: bool,
    /// A variable is among the changes.
    pub(super) variable: bool,
    /// The results that have been replaced beyond those of which the text tells.
    pub(super) results: Results,
}

impl Told {
    /// Adds what a later packet of the same answer told.
    pub(super) fn add(&mut self, later: &Self) {
        self.changed |= later.changed;
        self.tracking |= later.tracking;
        self.collation |= later.collation;
        self.variable |= later.variable;
        self.results = self.results.with(later.results);
        self.pin = later.pin.or(self.pin);
    }
}

/// Takes the changes that a packet tells of a text. Those of variables that were set for one statement have
/// ended. A variable or a database explains a change of state only in a text that sets one by itself: a
/// routine may have left more.
pub(super) fn apply(changes: Changes<'_>, carried: &mut Carried, analysis: &Analysis) -> Told {
    let mut told = Told::default();
    let (mut explained, mut happened) = (false, false);
    for change in changes.iter() {
        match change {
            Change::Schema(schema) => {
                carried.database = schema.to_vec();
                (told.changed, explained) = (true, true);
            }
            // It comes with each transaction in the binary log, and nothing can set it.
            Change::Variable { name: b"last_gtid", .. } => told.results = Results::GTID,
            Change::Variable { name, value } => {
                explained = true;
                told.tracking |= name.starts_with(b"session_track_");
                let is_over = analysis.once.iter().any(|known| known == name);
                if is_over || FOLLOWING.iter().any(|known| known.as_bytes() == name) {
                    continue;
                }
                (told.changed, told.variable) = (true, true);
                // The order of both varies, and the collation may be that of an earlier set.
                told.collation |= matches!(name, b"character_set_connection" | b"collation_connection");
                if assignment(name, value).is_none() {
                    told.pin = Some(Pin::Variable);
                }
                carried.variables.insert(name.to_vec(), value.to_vec());
            }
            Change::State(changed) => happened |= changed,
            Change::Gtids(_) | Change::Characteristics(_) | Change::Transaction(_) | Change::Other(_) => {}
        }
    }
    if happened && !(explained && analysis.explains == Explains::Settings) {
        told.changed = true;
        let pin = if analysis.explains == Explains::Nothing { Pin::Other } else { Pin::Routine };
        told.pin = Some(told.pin.unwrap_or(if explained { pin } else { Pin::Other }));
    }
    told
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use wire::mysql::track::{parse, push};

    use super::*;

    fn told(changes: &[Change<'_>]) -> (Option<Pin>, Carried) {
        let mut all = BytesMut::new();
        changes.iter().for_each(|change| push(&mut all, *change));
        let mut carried = Carried::default();
        let set = Analysis { explains: Explains::Settings, ..Analysis::default() };
        let told = apply(parse(&all).unwrap(), &mut carried, &set);
        assert!(told.changed);
        (told.pin, carried)
    }

    #[test]
    fn a_variable_that_can_be_set_again_binds_nobody() {
        let zone = Change::Variable { name: b"time_zone", value: b"+02:00" };
        let (pin, carried) = told(&[zone, Change::State(true)]);
        assert_eq!(pin, None);
        assert_eq!(carried.variables.len(), 1);
        assert_eq!(assignment(b"time_zone", b"+02:00").unwrap(), "time_zone='+02:00'");
        let set = OF_NAMES.map(|name| (name.as_bytes().to_vec(), b"utf8mb4".to_vec()));
        assert_eq!(names(&set.into()).unwrap(), ", NAMES 'utf8mb4' COLLATE 'utf8mb4'");
        let mixed = [&b"latin1"[..], b"latin1", b"latin1", b"utf8mb4_bin"].map(<[u8]>::to_vec);
        let mixed = OF_NAMES.map(|name| name.as_bytes().to_vec()).into_iter().zip(mixed);
        assert_eq!(names(&mixed.collect()), None, "the collation is of another character set");
        assert_eq!(assignment(b"autocommit", b"OFF").unwrap(), "autocommit=0");
        assert_eq!(assignment(b"character_set_results", b"").unwrap(), "character_set_results=NULL");
    }

    #[test]
    fn what_cannot_be_followed_keeps_the_connection() {
        let seed = Change::Variable { name: b"rand_seed1", value: b"5" };
        assert_eq!(told(&[seed]).0, Some(Pin::Variable));
        assert_eq!(told(&[Change::State(true)]).0, Some(Pin::Other));
        assert_eq!(assignment(b"time_zone", b"a\\b"), None);
        assert_eq!(assignment(b"wait_timeout", b"1; DROP"), None);
    }
}
