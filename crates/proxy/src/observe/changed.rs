//! The rows of those types that were used since an earlier look, whose number doesn't depend on how many
//! types are known.
//!
//! Every use of a type moves the type to the front of the observer's list and stamps it with the current
//! mark. So a look walks from the front and stops at the first type with an older stamp.

use std::sync::Arc;

use admission::RequestType;

use super::{Counts, Observer, TypeRow};

/// A row that has changed.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangedRow {
    /// The row.
    pub row: TypeRow,
    /// Whether the type was unknown at the earlier look.
    pub is_new: bool,
}

/// What has changed since an earlier look.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChangedRows {
    /// What the next look names, to see what changes from now on.
    pub mark: u64,
    /// How many types are known.
    pub known: usize,
    /// The rows, the latest used first; `other` comes last.
    pub rows: Vec<ChangedRow>,
}

impl Observer {
    /// One row for each type, and one for `other` if it counted anything. It reads all histograms, about
    /// 0.5 µs a type, so ask seldom: the gate's lock is held meanwhile.
    pub fn table(&self) -> Vec<TypeRow> {
        let known = self.types.iter().map(|(key, entry)| entry.row(Some(*key)));
        let other = (self.other.counts != Counts::default()).then(|| self.other.row(None));
        known.chain(other).collect()
    }

    /// The names of all types, those that are seen in another one's row included.
    pub(crate) fn labels(&self) -> Vec<(RequestType, Arc<str>)> {
        let keys = self.types.iter().map(|(key, _)| *key).chain(self.elsewhere.iter().map(|(key, _)| *key));
        keys.filter_map(|key| Some((key, self.label(key)?))).collect()
    }

    /// The rows of the types that were used since the look that gave `since`; of all types, if that is zero.
    pub fn changed(&mut self, since: u64) -> ChangedRows {
        let used = self.types.iter().take_while(|(_, entry)| entry.marks.1 >= since);
        let row = |(key, entry): (&_, &super::Entry)| ChangedRow {
            row: entry.row(Some(*key)),
            is_new: entry.marks.0 >= since,
        };
        let mut rows: Vec<_> = used.map(row).collect();
        if self.other.counts != Counts::default() {
            rows.push(ChangedRow { row: self.other.row(None), is_new: true });
        }
        self.mark += 1;
        ChangedRows { mark: self.mark, known: self.types.len(), rows }
    }
}

/// The share of each row in the work of all, in the order of the rows: of expected work where any was
/// completed.
pub fn shares(rows: &[TypeRow]) -> Vec<f64> {
    let total: f64 = rows.iter().map(|row| row.counts.work.as_millis_f64()).sum();
    let share = |row: &TypeRow| if total > 0.0 { row.counts.work.as_millis_f64() / total } else { 0.0 };
    rows.iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use admission::{ClassId, Event, Reason};

    use super::*;
    use crate::observe::TypeName;
    use crate::observe::tests::ticket;

    fn told(observer: &mut Observer, since: u64) -> (u64, Vec<(u64, bool)>) {
        let ChangedRows { mark, rows, .. } = observer.changed(since);
        let key = |changed: &ChangedRow| (changed.row.key.map_or(0, |key| key.0), changed.is_new);
        (mark, rows.iter().map(key).collect())
    }

    #[test]
    fn a_look_shows_the_types_that_were_used_since_the_last_one_and_tells_which_are_new() {
        let mut observer = Observer::new(3);
        let describe = |observer: &mut Observer, key: u64| {
            observer.describe(&TypeName::new(RequestType(key), format!("t{key}").into()));
        };
        (1..=3).for_each(|key| describe(&mut observer, key));
        let (mark, all) = told(&mut observer, 0);
        assert_eq!(all, [(3, true), (2, true), (1, true)]);
        assert_eq!(told(&mut observer, mark).1, []);

        let mark = observer.changed(mark).mark;
        let (request_type, reason) = (RequestType(2), Reason::QueueFull);
        observer.record(&Event::Rejected {
            ticket: ticket(),
            request_type,
            class: ClassId::DEFAULT,
            reason,
            obstacle: None,
            queue_wait: Duration::ZERO,
        });
        assert!(observer.knows(RequestType(1)));
        describe(&mut observer, 4);
        let (mark, some) = told(&mut observer, mark);
        assert_eq!(some, [(4, true), (1, false), (2, false)]);
        // All are there for a reader that has just come, and the other reader's mark still holds.
        assert_eq!(told(&mut observer, 0).1.len(), 4);
        assert_eq!(told(&mut observer, mark).1, []);
    }
}
