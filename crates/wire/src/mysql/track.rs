//! What an OK packet tells of changes in the session, for a client that has asked for it.
//!
//! The session's variables `session_track_…` choose what a server tells.

use bytes::{BufMut, BytesMut};

use super::read::Reader;
use super::{Fault, write};

const CHANGES: &str = "a change of the session";
const SYSTEM_VARIABLES: u8 = 0;
const SCHEMA: u8 = 1;
const STATE_CHANGE: u8 = 2;
const GTIDS: u8 = 3;
const TRANSACTION_CHARACTERISTICS: u8 = 4;
const TRANSACTION_STATE: u8 = 5;

/// One change of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change<'a> {
    /// A system variable has this value now.
    Variable {
        /// Its name.
        name: &'a [u8],
        /// Its value as text.
        value: &'a [u8],
    },
    /// The default database is this one now.
    Schema(&'a [u8]),
    /// Whether something in the session changed, whatever it is.
    State(bool),
    /// The transactions that the session has written, by their global ids.
    Gtids(&'a [u8]),
    /// The statements that would begin a transaction like the present one.
    Characteristics(&'a [u8]),
    /// The state of the transaction in eight letters.
    Transaction(&'a [u8]),
    /// A change of a kind that isn't known.
    Other(u8),
}

/// The changes that one packet tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Changes<'a>(&'a [u8]);

impl<'a> Changes<'a> {
    /// The changes as they stand in the packet.
    #[must_use]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.0
    }

    /// The changes in their order. A kind that isn't known counts as one change.
    pub fn iter(&self) -> impl Iterator<Item = Change<'a>> + use<'a> {
        let mut entries = Reader::new(CHANGES, self.0);
        let mut variables = Reader::new(CHANGES, &[]);
        std::iter::from_fn(move || {
            while variables.is_empty() {
                let (kind, data) = (entries.u8("kind").ok()?, entries.string("data").ok()?);
                let mut data = Reader::new(CHANGES, data);
                match one(kind, &mut data) {
                    Ok(Some(change)) => return Some(change),
                    Ok(None) => variables = data,
                    Err(_) => return None,
                }
            }
            variable(&mut variables).ok()
        })
    }
}

fn variable<'a>(reader: &mut Reader<'a>) -> Result<Change<'a>, Fault> {
    Ok(Change::Variable { name: reader.string("name")?, value: reader.string("value")? })
}

/// One change, or `None` for system variables, of which there may be several.
fn one<'a>(kind: u8, data: &mut Reader<'a>) -> Result<Option<Change<'a>>, Fault> {
    Ok(Some(match kind {
        SYSTEM_VARIABLES => return Ok(None),
        SCHEMA => Change::Schema(data.string("schema")?),
        // MariaDB leaves the inner length out.
        STATE_CHANGE => match data.rest() {
            [state @ (b'0' | b'1')] => {
                let changed = *state == b'1';
                data.take_rest();
                Change::State(changed)
            }
            _ => Change::State(data.string("state")? == b"1"),
        },
        GTIDS => {
            data.u8("encoding")?;
            Change::Gtids(data.string("ids")?)
        }
        TRANSACTION_CHARACTERISTICS => Change::Characteristics(data.string("characteristics")?),
        TRANSACTION_STATE => Change::Transaction(data.string("transaction's state")?),
        other => Change::Other(other),
    }))
}

/// Reads the changes of one packet.
///
/// # Errors
/// A change that is incomplete.
pub fn parse(all: &[u8]) -> Result<Changes<'_>, Fault> {
    let mut entries = Reader::new(CHANGES, all);
    while !entries.is_empty() {
        let (kind, data) = (entries.u8("kind")?, entries.string("data")?);
        let mut data = Reader::new(CHANGES, data);
        if one(kind, &mut data)?.is_none() {
            while !data.is_empty() {
                variable(&mut data)?;
            }
        }
    }
    Ok(Changes(all))
}

/// Appends a change to the changes of a packet; a kind that isn't known is left out.
pub fn push(all: &mut BytesMut, change: Change<'_>) {
    let mut data = BytesMut::new();
    let kind = match change {
        Change::Variable { name, value } => {
            write::string(&mut data, name);
            write::string(&mut data, value);
            SYSTEM_VARIABLES
        }
        Change::Schema(schema) => {
            write::string(&mut data, schema);
            SCHEMA
        }
        Change::State(changed) => {
            write::string(&mut data, if changed { b"1" } else { b"0" });
            STATE_CHANGE
        }
        Change::Gtids(ids) => {
            data.put_u8(0);
            write::string(&mut data, ids);
            GTIDS
        }
        Change::Characteristics(statements) => {
            write::string(&mut data, statements);
            TRANSACTION_CHARACTERISTICS
        }
        Change::Transaction(state) => {
            write::string(&mut data, state);
            TRANSACTION_STATE
        }
        Change::Other(_) => return,
    };
    all.put_u8(kind);
    write::string(all, &data);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_a_session_is_told_with_and_without_an_inner_length() {
        for told in [&[2, 1, b'1'][..], &[2, 2, 1, b'1']] {
            let changes: Vec<_> = parse(told).unwrap().iter().collect();
            assert_eq!(changes, [Change::State(true)], "{told:?}");
        }
    }
}
