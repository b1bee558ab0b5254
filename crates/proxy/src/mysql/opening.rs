//! What a session has been answered, and its connection doesn't know yet: the beginning of a transaction, and
//! what was set for it before. Both are sent with the statement that follows.

use crate::memory::FREE;

/// A longer text goes to the server at once. A session holds three of them at most, which take less than what
/// no client is charged for.
pub(super) const TEXT_MAX: usize = FREE / 4;

/// The beginning of a transaction.
#[derive(Default)]
pub(super) struct Opening {
    /// The latest `SET TRANSACTION` of each kind.
    isolation: Option<Vec<u8>>,
    access: Option<(Vec<u8>, Access)>,
    begin: Option<Vec<u8>>,
}

/// What a transaction may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Reads,
    Writes,
}

/// What a text sets for the next transaction, in a form that servers take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Isolation,
    Access(Access),
}

impl Next {
    /// Of the words of a text.
    pub(super) fn read(words: &[&[u8]]) -> Option<Self> {
        let words: Vec<_> = words.iter().map(|word| word.to_ascii_lowercase()).collect();
        let words: Vec<_> = words.iter().map(Vec::as_slice).collect();
        match words.strip_prefix(&[b"set".as_slice(), b"transaction"])? {
            [b"read", b"only"] => Some(Self::Access(Access::Reads)),
            [b"read", b"write"] => Some(Self::Access(Access::Writes)),
            [b"isolation", b"level", level @ ..] => {
                let is_known = matches!(
                    level,
                    [b"read", b"committed" | b"uncommitted"] | [b"repeatable", b"read"] | [b"serializable"]
                );
                is_known.then_some(Self::Isolation)
            }
            _ => None,
        }
    }
}

impl Opening {
    /// Takes what is set for the next transaction. A transaction that has begun has its server's error.
    pub(super) fn set(&mut self, next: Next, sql: &[u8]) -> bool {
        if self.begin.is_some() {
            return false;
        }
        match next {
            Next::Isolation => self.isolation = Some(sql.to_vec()),
            Next::Access(access) => self.access = Some((sql.to_vec(), access)),
        }
        true
    }

    /// Begins a transaction. One that has begun ends so, and with it what was set for it.
    pub(super) fn begin(&mut self, sql: &[u8]) {
        if self.begin.is_some() {
            *self = Self::default();
        }
        self.begin = Some(sql.to_vec());
    }

    /// Whether this ended a transaction that has begun, or took back what was set for one.
    pub(super) fn end(&mut self) -> bool {
        !std::mem::take(self).is_empty()
    }

    pub(super) const fn has_begun(&self) -> bool {
        self.begin.is_some()
    }

    /// Whether something is set, and no transaction has begun. A statement would leave it on the connection.
    pub(super) const fn is_only_set(&self) -> bool {
        self.begin.is_none() && !self.is_empty()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.isolation.is_none() && self.access.is_none() && self.begin.is_none()
    }

    /// What the transaction may do, if that was set.
    pub(super) fn access(&self) -> Option<Access> {
        self.access.as_ref().map(|(_, access)| *access)
    }

    /// The texts, in the order in which a server takes them.
    pub(super) fn texts(&self) -> impl Iterator<Item = &[u8]> {
        let access = self.access.as_ref().map(|(sql, _)| sql);
        self.isolation.iter().chain(access).chain(&self.begin).map(Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_belongs_to_the_next_transaction_alone() {
        let mut opening = Opening::default();
        let texts = |opening: &Opening| opening.texts().map(<[u8]>::to_vec).collect::<Vec<_>>();
        assert!(opening.set(Next::Access(Access::Reads), b"read") && opening.set(Next::Isolation, b"one"));
        assert!(opening.set(Next::Isolation, b"two") && opening.is_only_set());
        opening.begin(b"begin");
        assert_eq!(texts(&opening), [&b"two"[..], b"read", b"begin"]);
        assert!(!opening.set(Next::Isolation, b"three"), "a transaction has begun");
        opening.begin(b"again");
        assert_eq!(texts(&opening), [b"again"]);
        assert!(opening.end() && opening.is_empty() && !opening.end());
        assert!(opening.set(Next::Isolation, b"four") && opening.end() && opening.is_empty());
    }
}
