//! How many cores the server may use, asked from the server itself.
//!
//! PostgreSQL has no function for it. But a superuser (or a member of `pg_read_server_files`) may read
//! files of the server's machine, and on Linux `/proc/self/status` tells which processors the server
//! process may run on, which also knows of pinning (not of a CPU quota). Everywhere else the answer is
//! "unknown".

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use super::query_error::QueryError;
use super::server::Server;

/// Asked first, because a refused statement would stand as an error in the server's log.
const MAY_ASK: &str = "SELECT pg_catalog.has_function_privilege('pg_catalog.pg_read_file(text)', 'EXECUTE')";
const ASK: &str = "SELECT pg_catalog.pg_read_file('/proc/self/status')";
/// The most cores that are believed.
const CORES_MAX: u32 = 65_536;

/// What a gate knows of its server's cores.
#[derive(Debug, Default)]
pub(crate) struct Known {
    asked: AtomicBool,
    /// 0: not known.
    cores: AtomicU32,
}

impl Known {
    /// Whether nobody has asked yet; the login that hears so is the one to do it.
    pub(crate) fn is_first_to_ask(&self) -> bool {
        !self.asked.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn learn(&self, cores: u32) {
        self.cores.store(cores.max(1), Ordering::Relaxed);
    }

    /// What the server told.
    pub(crate) fn cores(&self) -> Option<u32> {
        Some(self.cores.load(Ordering::Relaxed)).filter(|cores| *cores > 0)
    }
}

/// The number of cores; `None` where the server can't tell.
///
/// # Errors
/// As [`Server::simple_query`]; `limit` counts for each of two statements.
pub(crate) async fn ask(server: &mut Server, limit: Duration) -> Result<Option<u32>, QueryError> {
    if server.simple_query(MAY_ASK, limit).await?.value.as_deref() != Some(b"t") {
        return Ok(None);
    }
    let status = server.simple_query(ASK, limit).await?.value.unwrap_or_default();
    Ok(cores(&String::from_utf8_lossy(&status)))
}

/// The number of processors in `Cpus_allowed_list`, such as `0-3,8`.
pub(super) fn cores(status: &str) -> Option<u32> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let mut count: u32 = 0;
    for range in list.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    (1..=CORES_MAX).contains(&count).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted() {
        let status =
            |list| format!("Name:\tpostgres\nCpus_allowed:\tff\nCpus_allowed_list:\t{list}\nMems:\t1\n");
        assert_eq!(cores(&status("0")), Some(1));
        assert_eq!(cores(&status("0-3")), Some(4));
        assert_eq!(cores(&status("0-3,8,10-11")), Some(7));
    }

    #[test]
    fn what_is_no_list_is_unknown() {
        for list in ["", "x", "3-0", "0-", "0-4294967295", "0-999999"] {
            assert_eq!(cores(&format!("Cpus_allowed_list:\t{list}\n")), None, "{list}");
        }
        assert_eq!(cores("Name: postgres"), None);
    }
}
