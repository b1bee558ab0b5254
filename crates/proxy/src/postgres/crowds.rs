//! How many sessions each user and each database has: some may have less than all places of a gate.
//!
//! The maps hold names of sessions that exist, so that `max_clients` bounds them.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::refusal::Refusal;

/// The sessions of a gate.
#[derive(Debug, Default)]
pub(crate) struct Crowds {
    users: Arc<Crowd>,
    databases: Arc<Crowd>,
}

/// The most sessions of one user, and of one database; `None`: no bound but `max_clients`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// Of one user.
    pub user: Option<u32>,
    /// Of one database.
    pub database: Option<u32>,
}

#[derive(Debug, Default)]
struct Crowd(Mutex<HashMap<String, u32>>);

/// A session among those of its user and of its database, until it is dropped.
#[derive(Debug)]
pub(crate) struct Member {
    _user: Counted,
    _database: Counted,
}

#[derive(Debug)]
struct Counted {
    crowd: Arc<Crowd>,
    name: String,
}

impl Crowds {
    /// Counts a session that has been authenticated.
    ///
    /// # Errors
    /// Its user, or its database, has as many as it may.
    pub(crate) fn enter(&self, user: &str, database: &str, shares: Shares) -> Result<Member, Refusal> {
        let user = self.users.count("user", user, shares.user)?;
        let database = self.databases.count("database", database, shares.database)?;
        Ok(Member { _user: user, _database: database })
    }
}

impl Crowd {
    fn count(
        self: &Arc<Self>,
        what: &'static str,
        name: &str,
        most: Option<u32>,
    ) -> Result<Counted, Refusal> {
        let mut all = self.0.lock();
        let count = all.get(name).copied().unwrap_or(0);
        if let Some(most) = most.filter(|most| count >= *most) {
            return Err(Refusal::TooManyOf { what, name: name.to_owned(), most });
        }
        all.insert(name.to_owned(), count + 1);
        Ok(Counted { crowd: Arc::clone(self), name: name.to_owned() })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut all = self.crowd.0.lock();
        if let Some(count) = all.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_and_a_database_have_bounds_of_their_own_and_places_are_given_back() {
        let (crowds, shares) = (Crowds::default(), Shares { user: Some(1), database: Some(2) });
        let first = crowds.enter("ann", "shop", shares).unwrap();
        let refused = crowds.enter("ann", "other", shares).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "sorry, too many clients of user \"ann\" already: user_clients_max is 1"
        );
        let _second = crowds.enter("bob", "shop", shares).unwrap();
        assert!(crowds.enter("eve", "shop", shares).is_err());
        drop(first);
        assert!(crowds.enter("ann", "shop", shares).is_ok());
        assert_eq!(crowds.users.0.lock().len(), 1, "a user that has gone is not kept");
        assert!(crowds.enter("bob", "shop", Shares::default()).is_ok());
    }
}
