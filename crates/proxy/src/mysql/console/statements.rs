//! The statements that a visitor of the console has prepared: their texts, which take no parameters.

use std::collections::HashMap;

use crate::console::Failure;

/// The most statements of a visitor, and the longest text of one in bytes.
const STATEMENTS_MAX: usize = 256;
const TEXT_BYTES_MAX: usize = 4096;

/// A visitor's statements by their ids.
#[derive(Debug, Default)]
pub(super) struct Statements {
    texts: HashMap<u32, String>,
    last: u32,
    /// The statement of the last PREPARE; `None`: it failed, or the statement is closed.
    latest: Option<u32>,
}

impl Statements {
    /// Keeps a text, and returns its id.
    pub(super) fn keep(&mut self, text: &str) -> Result<u32, Failure> {
        if self.texts.len() >= STATEMENTS_MAX {
            return Err(Failure::new("54000", format!("at most {STATEMENTS_MAX} statements are prepared")));
        }
        if text.len() > TEXT_BYTES_MAX {
            return Err(Failure::new("54000", format!("a command has at most {TEXT_BYTES_MAX} bytes")));
        }
        // Ids of statements that were closed come again after 2^32 others.
        while self.last == 0 || self.texts.contains_key(&self.last) {
            self.last = self.last.wrapping_add(1);
        }
        self.texts.insert(self.last, text.to_owned());
        self.latest = Some(self.last);
        Ok(self.last)
    }

    /// A PREPARE begins: until it has succeeded no statement is the latest.
    pub(super) fn forget_latest(&mut self) {
        self.latest = None;
    }

    /// The id that a client means. A client of MariaDB that hasn't read the id yet sends [`u32::MAX`].
    fn meant(&self, id: u32) -> u32 {
        if id == u32::MAX { self.latest.unwrap_or(id) } else { id }
    }

    /// The text with this id.
    pub(super) fn text(&self, id: u32) -> Option<&String> {
        self.texts.get(&self.meant(id))
    }

    /// Forgets the text with this id.
    pub(super) fn close(&mut self, id: u32) {
        let id = self.meant(id);
        self.texts.remove(&id);
        self.latest = self.latest.filter(|latest| *latest != id);
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.texts.clear();
        self.latest = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_visitor_keeps_so_many_statements_and_no_more() {
        let mut statements = Statements::default();
        let ids: Vec<_> = (0..STATEMENTS_MAX).map(|_| statements.keep("SHOW POOLS").unwrap()).collect();
        assert!(statements.keep("SHOW POOLS").is_err());
        statements.close(ids[5]);
        let next = statements.keep("SHOW LISTS").unwrap();
        assert_eq!(statements.text(u32::MAX), statements.text(next));
        assert!(!ids.contains(&next) && statements.text(next).is_some_and(|text| text == "SHOW LISTS"));
        statements.forget_latest();
        assert_eq!(statements.text(u32::MAX), None);
        statements.clear();
        assert_eq!(statements.text(next), None);
        assert!(statements.keep(&"x".repeat(TEXT_BYTES_MAX + 1)).is_err());
    }
}
