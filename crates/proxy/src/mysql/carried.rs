//! The state that follows a session from one connection to another.

use std::collections::BTreeMap;

/// A session's database, variables and `LAST_INSERT_ID()`.
#[derive(Clone, Debug, Default)]
pub(super) struct Carried {
    pub(super) database: Vec<u8>,
    /// The variables that differ from the login's, with their values as the server told them.
    pub(super) variables: BTreeMap<Vec<u8>, Vec<u8>>,
    pub(super) insert_id: u64,
}

/// What a text means something in: the database, and the modes of its SQL if they aren't the login's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Surroundings {
    pub(super) database: Vec<u8>,
    pub(super) mode: Option<Vec<u8>>,
}

impl Carried {
    /// Whether the session's transactions are read-only if they don't say otherwise.
    pub(super) fn reads_only(&self) -> bool {
        let of =
            |name: &[u8]| self.variables.get(name).is_some_and(|value| matches!(&value[..], b"ON" | b"1"));
        of(b"tx_read_only") || of(b"transaction_read_only")
    }

    /// Whether a BEGIN is the beginning of a block, and of no transaction.
    pub(super) fn is_of_oracle(&self) -> bool {
        let modes = self.variables.get(&b"sql_mode"[..]).map_or(&[][..], Vec::as_slice);
        modes.split(|byte| *byte == b',').any(|mode| mode == b"ORACLE")
    }

    /// This state without a database.
    pub(super) fn without_database(&self) -> Self {
        Self { database: Vec::new(), ..self.clone() }
    }

    pub(super) fn surroundings(&self) -> Surroundings {
        let mode = self.variables.get(&b"sql_mode"[..]).cloned();
        Surroundings { database: self.database.clone(), mode }
    }
}
