//! Where PostgreSQL's programs are, and as whom they may run.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;

/// Users that a server may run as when we are root, in order of preference.
const UNPRIVILEGED_USERS: [&str; 2] = ["postgres", "nobody"];

/// The programs of one installation that a private server needs.
const PROGRAMS: [&str; 3] = ["postgres", "initdb", "psql"];
/// What lets anybody pass through a directory, in its permissions.
const ANYBODY_MAY_ENTER: u32 = 0o001;

/// The directory that holds `postgres`, `initdb` and `psql`.
#[derive(Clone, Debug)]
pub struct Binaries {
    directory: PathBuf,
    /// What holds all of a relocatable installation: its programs find the rest by where they are themselves.
    tree: Option<PathBuf>,
}

impl Binaries {
    /// A relocatable installation: all of it is in `tree`, the programs in the directory `beneath`.
    ///
    /// # Errors
    /// If the programs are not there.
    pub fn within(tree: &Path, beneath: &str) -> Result<Self, Error> {
        let directory = tree.join(beneath);
        if !holds_programs(&directory) {
            return Err(Error::Missing(format!(
                "{} doesn't hold PostgreSQL's programs ({})",
                directory.display(),
                PROGRAMS.join(", ")
            )));
        }
        let found = |path: &Path| fs::canonicalize(path).map_err(Error::io("finding PostgreSQL's programs"));
        Ok(Self { directory: found(&directory)?, tree: Some(found(tree)?) })
    }

    /// Looks at what `pg_config` says, then at Debian's versioned directories (newest first), then at `PATH`.
    ///
    /// # Errors
    /// If no directory holds the server's programs; the message names the packages.
    pub fn find() -> Result<Self, Error> {
        candidates()
            .into_iter()
            .find(|directory| holds_programs(directory))
            .map(|directory| Self { directory, tree: None })
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

    /// Whether any user of the machine can run these programs: an installation in somebody's own directory
    /// may be closed to the user that a server runs as.
    pub(super) fn open_to_all(&self) -> bool {
        self.directory
            .ancestors()
            .all(|directory| fs::metadata(directory).is_ok_and(|found| found.mode() & ANYBODY_MAY_ENTER != 0))
    }

    /// A copy of the whole installation within `root`; itself if it can't be moved.
    pub(super) fn copied_into(self, root: &Path) -> Result<Self, Error> {
        let Some(tree) = &self.tree else { return Ok(self) };
        let beneath = self.directory.strip_prefix(tree).unwrap_or(Path::new(""));
        let copy = root.join("postgresql");
        let output =
            Command::new("cp").arg("-R").arg(tree).arg(&copy).output().map_err(Error::io("starting cp"))?;
        if !output.status.success() {
            return Err(Error::Program {
                program: "cp".to_owned(),
                output: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            });
        }
        Ok(Self { directory: copy.join(beneath), tree: Some(copy) })
    }
}

fn holds_programs(directory: &Path) -> bool {
    PROGRAMS.iter().all(|name| directory.join(name).is_file())
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
pub fn unprivileged_user() -> Result<Option<(u32, u32)>, Error> {
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
    use std::os::unix::fs::PermissionsExt;

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
    fn an_installation_that_others_cannot_reach_is_told_and_copied_whole() {
        let root = tempfile::tempdir().unwrap();
        let tree = root.path().join("closed/tree");
        fs::create_dir_all(tree.join("bin")).unwrap();
        assert!(Binaries::within(&tree, "bin").is_err());
        for name in PROGRAMS {
            fs::write(tree.join("bin").join(name), name).unwrap();
        }
        fs::write(tree.join("library"), "beside the programs").unwrap();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let binaries = Binaries::within(&tree, "bin").unwrap();
        assert!(binaries.open_to_all());
        fs::set_permissions(root.path().join("closed"), fs::Permissions::from_mode(0o700)).unwrap();
        assert!(!binaries.open_to_all());
        let target = tempfile::tempdir().unwrap();
        let copy = binaries.copied_into(target.path()).unwrap();
        assert!(copy.program("psql").starts_with(target.path()));
        let library = copy.program("psql").ancestors().nth(2).unwrap().join("library");
        assert_eq!(fs::read_to_string(library).unwrap(), "beside the programs");
    }

    #[test]
    fn a_user_is_read_from_the_password_file() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\npostgres:x:101:104:,,,:/var/lib:/bin/sh\n";
        assert_eq!(user_in(passwd, "postgres"), Some((101, 104)));
        assert_eq!(user_in(passwd, "post"), None);
    }
}
