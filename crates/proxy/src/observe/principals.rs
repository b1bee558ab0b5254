//! The principals of a type: which users and applications send its requests.
//!
//! Of each type the most frequent ones are counted, by the algorithm of Misra and Gries (1982). Up to
//! [`COUNTED_MAX`] are counted exactly; where there are more, a count is a lower bound.

use std::sync::Arc;

use crate::principal::Principal;

/// The most principals that are counted of a type.
const COUNTED_MAX: usize = 5;

/// How many requests of one type principals sent.
#[derive(Clone, Debug, Default)]
pub(super) struct Counted(Vec<(Arc<Principal>, u64)>);

impl Counted {
    pub(super) fn note(&mut self, principal: &Arc<Principal>) {
        let is_same = |known: &Arc<Principal>| Arc::ptr_eq(known, principal) || known == principal;
        if let Some((_, count)) = self.0.iter_mut().find(|(known, _)| is_same(known)) {
            *count += 1;
        } else if self.0.len() < COUNTED_MAX {
            self.0.push((Arc::clone(principal), 1));
        } else {
            self.0.iter_mut().for_each(|(_, count)| *count -= 1);
            self.0.retain(|(_, count)| *count > 0);
        }
    }

    /// The principals with their counts, the most frequent first.
    pub(super) fn told(&self) -> Vec<(Arc<Principal>, u64)> {
        let mut told = self.0.clone();
        told.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn principal(user: &str) -> Arc<Principal> {
        Arc::new(Principal { user: user.as_bytes().into(), application: Box::default() })
    }

    #[test]
    fn a_few_are_counted_exactly_and_of_more_the_frequent_ones_stay() {
        let users: Vec<_> = (0..20).map(|number| principal(&format!("user{number}"))).collect();
        let mut counted = Counted::default();
        for (at, user) in users.iter().take(COUNTED_MAX).enumerate() {
            (0..=at).for_each(|_| counted.note(user));
        }
        let told = |counted: &Counted| -> Vec<_> {
            let told = counted.told().into_iter();
            told.map(|(known, count)| (String::from_utf8_lossy(&known.user).into_owned(), count)).collect()
        };
        assert_eq!(told(&counted)[0], ("user4".to_owned(), 5));
        assert_eq!(told(&counted).len(), COUNTED_MAX);
        for round in 0..1_000 {
            // Another session of the same user counts as the same principal.
            counted.note(&principal("user7"));
            counted.note(&users[8 + round % 12]);
        }
        let (first, count) = told(&counted).remove(0);
        // At most one in COUNTED_MAX + 1 of all requests is missing.
        assert!(first == "user7" && (600..=1_000).contains(&count), "{first} {count}");
        assert!(counted.0.len() <= COUNTED_MAX);
    }
}
