//! Who asks for a type: users, and what their applications call themselves.
//!
//! Of each type the most frequent askers are counted, by the algorithm of Misra and Gries (1982). Up to
//! [`COUNTED_MAX`] askers are counted exactly; where there are more, a count is a lower bound.
//!
//! **Bounds.** [`NAMES_MAX`] askers of a gate are told apart, for its whole life; later ones are not named.

use std::collections::HashMap;
use std::sync::Arc;

use crate::user::{Asker, AskerId};

/// The most askers of a gate that are told apart.
const NAMES_MAX: usize = 1_000;
/// The most askers that are counted of a type.
const COUNTED_MAX: usize = 5;

/// The askers of a gate, by number.
#[derive(Debug, Default)]
pub(super) struct Names {
    known: HashMap<Arc<Asker>, AskerId>,
    by_number: Vec<Arc<Asker>>,
}

impl Names {
    pub(super) fn number(&mut self, asker: &Arc<Asker>) -> AskerId {
        if let Some(known) = self.known.get(asker) {
            return *known;
        }
        if self.by_number.len() >= NAMES_MAX {
            return AskerId::default();
        }
        self.by_number.push(Arc::clone(asker));
        let number = AskerId(u16::try_from(self.by_number.len()).unwrap_or_default());
        self.known.insert(Arc::clone(asker), number);
        number
    }

    fn name(&self, number: AskerId) -> Option<&Arc<Asker>> {
        self.by_number.get(usize::from(number.0).checked_sub(1)?)
    }

    /// The askers of these counts, the most frequent first.
    pub(super) fn told(&self, counts: &Counted) -> Vec<(Arc<Asker>, u64)> {
        let named = |&(number, count): &(AskerId, u64)| Some((Arc::clone(self.name(number)?), count));
        let mut told: Vec<_> = counts.0.iter().filter(|(_, count)| *count > 0).filter_map(named).collect();
        told.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        told
    }
}

/// How often askers asked for one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted([(AskerId, u64); COUNTED_MAX]);

impl Counted {
    pub(super) fn note(&mut self, asker: AskerId) {
        let counts = &mut self.0;
        let at = counts.iter().position(|&(known, count)| known == asker && count > 0);
        match at.or_else(|| counts.iter().position(|(_, count)| *count == 0)) {
            Some(at) => counts[at] = (asker, counts[at].1 + 1),
            None => counts.iter_mut().for_each(|(_, count)| *count -= 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asker(user: &str) -> Arc<Asker> {
        Arc::new(Asker { user: user.as_bytes().into(), application: Box::default() })
    }

    #[test]
    fn as_many_as_are_counted_are_counted_exactly_and_of_more_the_frequent_ones_stay() {
        let mut names = Names::default();
        let users: Vec<_> = (0..20).map(|number| names.number(&asker(&format!("user{number}")))).collect();
        let mut counted = Counted::default();
        for (at, user) in users.iter().take(COUNTED_MAX).enumerate() {
            (0..=at).for_each(|_| counted.note(*user));
        }
        let told = |counted: &Counted| -> Vec<_> {
            let told = names.told(counted).into_iter();
            told.map(|(asker, count)| (String::from_utf8_lossy(&asker.user).into_owned(), count)).collect()
        };
        assert_eq!(told(&counted)[0], ("user4".to_owned(), 5));
        assert_eq!(told(&counted).len(), COUNTED_MAX);
        for round in 0..1_000 {
            counted.note(users[7]);
            counted.note(users[8 + round % 12]);
        }
        let (first, count) = told(&counted).remove(0);
        // At most one in COUNTED_MAX + 1 of all that asked is missing.
        assert!(first == "user7" && (600..=1_000).contains(&count), "{first} {count}");
    }

    #[test]
    fn names_beyond_the_bound_are_one() {
        let mut names = Names::default();
        for number in 0..NAMES_MAX {
            assert_ne!(names.number(&asker(&number.to_string())), AskerId::default());
        }
        assert_eq!(names.number(&asker("one more")), AskerId::default());
        assert_ne!(names.number(&asker("17")), AskerId::default());
        let mut counted = Counted::default();
        counted.note(AskerId::default());
        assert!(names.told(&counted).is_empty());
    }
}
