//! The question to the server: what it allows, and what others hold of it.
//!
//! Others are all client processes that `pg_stat_activity` shows and that aren't this gate's own. The view
//! shows process, database and user of each to every role; what it shows only to some, the kind of a
//! process, isn't needed: autovacuum has no user, and the server's own processes have no database. Another
//! role's parallel workers count as connections, which is the safe side.
//!
//! Operators and functions are named with their schema, so that no `search_path` puts others in their place.

use std::fmt;
use std::time::Duration;

use super::{part, spares};
use crate::postgres::pool::Limits;
use crate::postgres::processes::Ours;
use crate::postgres::query_error::QueryError;
use crate::postgres::server::Server;

/// What the server told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    /// The connections of those that aren't superusers.
    pub(crate) allowed: u32,
    /// How many clients hold that aren't this gate.
    pub(crate) others: u32,
    /// What the asking connection's role and database are limited to.
    pub(crate) role: Option<Share>,
    pub(crate) database: Option<Share>,
}

/// A limit of a role or of a database, and how many connections of it others hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    pub(crate) limit: u32,
    pub(crate) others: u32,
}

impl Share {
    fn part(self) -> u32 {
        part(self.limit.saturating_sub(self.others))
    }
}

impl Room {
    fn free(&self) -> u32 {
        self.allowed.saturating_sub(self.others)
    }

    /// What the gate takes.
    fn taken(&self) -> u32 {
        part(self.free())
    }

    /// How many of these are to prepare on, beside the budget of the pools.
    pub(crate) fn spares(&self) -> u32 {
        spares(self.taken())
    }

    /// The budget of the pools.
    pub(crate) fn connections(&self) -> u32 {
        self.taken() - self.spares()
    }

    /// What the gate leaves free.
    pub(crate) fn left(&self) -> u32 {
        self.free().saturating_sub(self.taken())
    }

    /// What bounds the pools of this role and of this database.
    pub(crate) fn limits(&self) -> Limits {
        let most = |share: Option<Share>| share.map_or(u32::MAX, Share::part);
        Limits { role: most(self.role), database: most(self.database) }
    }
}

impl fmt::Display for Room {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.left();
        write!(formatter, "{} of {}", self.connections(), self.allowed)?;
        match self.spares() {
            0 => {}
            spares => write!(formatter, ", {spares} more to prepare statements on")?,
        }
        match self.others {
            0 => write!(formatter, "; {left} left for others"),
            others => write!(formatter, "; others hold {others}, {left} more left for them"),
        }
    }
}

/// The statement, with the process ids of the gate.
fn statement(ours: &str) -> String {
    format!(
        "SELECT pg_catalog.concat_ws(' ', pg_catalog.pg_backend_pid(), \
           pg_catalog.current_setting('max_connections'), \
           pg_catalog.current_setting('superuser_reserved_connections'), \
           COALESCE(pg_catalog.current_setting('reserved_connections', true), '0'), \
           COALESCE(CASE WHEN r.rolsuper THEN -1 ELSE r.rolconnlimit END, -1), \
           COALESCE(CASE WHEN r.rolsuper THEN -1 ELSE d.datconnlimit END, -1), \
           o.held, o.by_role, o.by_database) \
         FROM (SELECT pg_catalog.count(*) AS held, \
             pg_catalog.count(*) FILTER (WHERE a.usename OPERATOR(pg_catalog.=) session_user) AS by_role, \
             pg_catalog.count(*) FILTER (WHERE a.datname OPERATOR(pg_catalog.=) \
               pg_catalog.current_database()) AS by_database \
           FROM pg_catalog.pg_stat_activity a \
           WHERE a.datid IS NOT NULL AND a.usesysid IS NOT NULL \
             AND (a.backend_type IS NULL OR a.backend_type OPERATOR(pg_catalog.=) 'client backend') \
             AND a.pid OPERATOR(pg_catalog.<>) ALL ('{{{ours}}}'::pg_catalog.int4[])) o \
         LEFT JOIN pg_catalog.pg_roles r ON r.rolname OPERATOR(pg_catalog.=) session_user \
         LEFT JOIN pg_catalog.pg_database d ON d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()"
    )
}

/// What the server allows; `Ok(Err(why))` where its answer says nothing about this gate.
///
/// # Errors
/// As [`Server::simple_query`].
pub(crate) async fn ask(
    server: &mut Server,
    ours: &Ours,
    limit: Duration,
) -> Result<Result<Room, &'static str>, QueryError> {
    let answer = server.simple_query(&statement(&ours.text()), limit).await?;
    Ok(read(&answer.value.unwrap_or_default(), server.process_id))
}

/// Reads the answer that the connection with this process has heard.
pub(crate) fn read(answer: &[u8], process_id: i32) -> Result<Room, &'static str> {
    const NO_ANSWER: &str = "the server does not tell its limits";
    let text = std::str::from_utf8(answer).map_err(|_| NO_ANSWER)?;
    let figures: Vec<i64> =
        text.split(' ').map(str::parse).collect::<Result<_, _>>().map_err(|_| NO_ANSWER)?;
    let [pid, all, superusers, reserved, role, database, held, by_role, by_database] = figures[..] else {
        return Err(NO_ANSWER);
    };
    if pid != i64::from(process_id) {
        return Err("another pooler stands between the gate and the server");
    }
    let count = |figure: i64| u32::try_from(figure.max(0)).unwrap_or(u32::MAX);
    let share = |limit: i64, others| {
        let limit = u32::try_from(limit).ok()?;
        Some(Share { limit, others: count(others) })
    };
    Ok(Room {
        allowed: count(all.saturating_sub(superusers).saturating_sub(reserved)),
        others: count(held),
        role: share(role, by_role),
        database: share(database, by_database),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read() {
        let room = read(b"42 100 3 0 -1 -1 5 2 4", 42).unwrap();
        assert_eq!(room, Room { allowed: 97, others: 5, role: None, database: None });
        assert_eq!((room.connections(), room.spares(), room.left()), (65, 4, 23));
        assert_eq!(
            room.to_string(),
            "65 of 97, 4 more to prepare statements on; others hold 5, 23 more left for them"
        );
        assert_eq!(
            Room { others: 0, ..room }.to_string(),
            "68 of 97, 4 more to prepare statements on; 25 left for others"
        );
        let room = read(b"42 20 3 2 7 10 5 2 4", 42).unwrap();
        assert_eq!(room.allowed, 15);
        assert_eq!(room.limits(), Limits { role: 2, database: 3 });
    }

    #[test]
    fn what_is_no_answer_of_this_server_is_none() {
        for answer in [&b""[..], b"1 2", b"42 100 3 0 -1 -1 5 2 x", b"42 100 3 0 -1 -1 5 2 4 7", b"\xff"] {
            assert!(read(answer, 42).is_err(), "{answer:?}");
        }
        assert!(read(b"41 100 3 0 -1 -1 5 2 4", 42).unwrap_err().contains("pooler"));
        let extreme =
            read(b"42 -9223372036854775808 9223372036854775807 1 -5 9999999999 -1 0 0", 42).unwrap();
        assert_eq!((extreme.allowed, extreme.connections(), extreme.role), (0, 1, None));
    }
}
