//! Where PostgreSQL's programs are, and as whom they may run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;

/// Users that a server may run as when we are root, in order of preference.
const UNPRIVILEGED_USERS: [&str; 2] = ["postgres", "nobody"];

/// The directory that holds `postgres`, `initdb` and `psql`.
#[derive(Clone, Debug)]
pub struct Binaries {
    directory: PathBuf,
}

impl Binaries {
    /// Looks at what `pg_config` says, then at Debian's versioned directories (newest first), then at `PATH`.
    ///
    /// # Errors
    /// If no directory holds the server's programs; the message names the packages.
    pub fn find() -> Result<Self, Error> {
        candidates()
            .into_iter()
            .find(|directory| {
                ["postgres", "initdb", "psql"].iter().all(|name| directory.join(name).is_file())
            })
            .map(|directory| Self { directory })
            .ok_or_else(|| {
                Error::Missing(
                    "the PostgreSQL server's programs (postgres, initdb, psql) were not found; install the \
                     package `postgresql` (Debian, Ubuntu), `postgresql-server` (Fedora) or `postgresql` \
                     (Homebrew), or put their directory on PATH"
                        .to_owned(),
                )
            })
    }

    /// The path of one of PostgreSQL's programs, such as `pgbench`.
    pub fn program(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

fn candidates() -> Vec<PathBuf> {
    let mut found = Vec::new();
    if let Ok(output) = Command::new("pg_config").arg("--bindir").output() {
        found.push(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()));
    }
    found.extend(versioned(Path::new("/usr/lib/postgresql")));
    if let Some(path) = std::env::var_os("PATH") {
        found.extend(std::env::split_paths(&path));
    }
    found
}

/// `<root>/<version>/bin`, newest version first.
fn versioned(root: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(root) else { return Vec::new() };
    let mut versions: Vec<(u32, PathBuf)> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    versions.sort_by_key(|&(version, _)| std::cmp::Reverse(version));
    versions.into_iter().map(|(_, directory)| directory).collect()
}

/// The user and group to run the server as: `None` for ourselves, somebody unprivileged if we are root.
pub(super) fn unprivileged_user() -> Result<Option<(u32, u32)>, Error> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let passwd = fs::read_to_string("/etc/passwd").map_err(Error::io("reading /etc/passwd"))?;
    UNPRIVILEGED_USERS.iter().find_map(|name| user_in(&passwd, name)).map(Some).ok_or_else(|| {
        Error::Missing("PostgreSQL can't run as root and there is no user `postgres`".to_owned())
    })
}

/// The user and group ids of `name` in the text of a password file.
fn user_in(passwd: &str, name: &str) -> Option<(u32, u32)> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next()? == name).then_some(())?;
        let user = fields.nth(1)?.parse().ok()?;
        Some((user, fields.next()?.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_is_preferred_and_other_directories_are_ignored() {
        let root = tempfile::tempdir().unwrap();
        for name in ["9", "15", "17", "common"] {
            fs::create_dir_all(root.path().join(name).join("bin")).unwrap();
        }
        let found = versioned(root.path());
        let expected: Vec<PathBuf> =
            ["17", "15", "9"].iter().map(|v| root.path().join(v).join("bin")).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_user_is_read_from_the_password_file() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\npostgres:x:101:104:,,,:/var/lib:/bin/sh\n";
        assert_eq!(user_in(passwd, "postgres"), Some((101, 104)));
        assert_eq!(user_in(passwd, "post"), None);
    }
}
