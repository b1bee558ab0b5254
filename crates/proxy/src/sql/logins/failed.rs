//! What the log says of logins that failed: the user, the address, and why.
//!
//! A flood of them must not become a flood of lines. So there are at most [`LINES_MAX`] in a second, and
//! one line with the number of the others.

use std::fmt::Display;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::stream::Peer;

/// The most lines in a second.
const LINES_MAX: u32 = 5;
const SECOND: Duration = Duration::from_secs(1);

/// The client of a login, as far as it has said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caller {
    pub(crate) user: Option<String>,
    pub(crate) database: Option<String>,
}

impl Caller {
    /// The caller that a client's start-up parameters name. The database is the user's, if they name none.
    pub(crate) fn by(parameters: &[(String, String)]) -> Self {
        let of = |name: &str| {
            let found = parameters.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.clone()).filter(|value| !value.is_empty())
        };
        let user = of("user");
        Self { database: of("database").or_else(|| user.clone()), user }
    }
}

/// Logins that failed lately.
#[derive(Debug, Default)]
pub(crate) struct FailedLogins(Mutex<Lately>);

#[derive(Debug, Default)]
struct Lately {
    since: Option<Instant>,
    lines: u32,
    withheld: u64,
}

impl FailedLogins {
    /// One more has failed.
    pub(crate) fn note(
        &self,
        (gate, caller, peer): (&str, &Caller, Peer),
        (sqlstate, reason): (&str, &dyn Display),
    ) {
        let (now, mut lately) = (Instant::now(), self.0.lock());
        if lately.since.is_none_or(|since| now.duration_since(since) >= SECOND) {
            (lately.since, lately.lines) = (Some(now), 0);
        }
        if lately.lines >= LINES_MAX {
            lately.withheld += 1;
            return;
        }
        lately.lines += 1;
        drop(lately);
        let (user, database) = (caller.user.as_deref(), caller.database.as_deref());
        tracing::warn!(gate, user, database, address = %peer, sqlstate, %reason, "login failed");
    }

    /// Tells how many had no line.
    pub(crate) fn look(&self, gate: &str) {
        let count = std::mem::take(&mut self.0.lock().withheld);
        if count > 0 {
            tracing::warn!(gate, count, "more logins failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_failed_logins_is_a_few_lines_and_a_number() {
        let (failed, caller) = (FailedLogins::default(), Caller::default());
        let fail = |count: u32| {
            for _ in 0..count {
                failed.note(("shop", &caller, Peer::Unix), ("28P01", &"no"));
            }
        };
        fail(LINES_MAX + 7);
        let told = || {
            let lately = failed.0.lock();
            (lately.lines, lately.withheld)
        };
        assert_eq!(told(), (LINES_MAX, 7));
        failed.look("shop");
        tokio::time::advance(SECOND).await;
        fail(1);
        assert_eq!(told(), (1, 0));
    }

    #[test]
    fn the_database_is_the_users_own_if_none_is_named() {
        let caller = Caller::by(&[("user".to_owned(), "ann".to_owned())]);
        assert_eq!((caller.user.as_deref(), caller.database.as_deref()), (Some("ann"), Some("ann")));
    }
}
