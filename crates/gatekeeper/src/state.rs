//! What a gate has learned, in a file: so that a restarted gate isn't cold.
//!
//! The document ([`proxy::learned`]) is written every [`PERIOD`] if anything was learned, and at the end:
//! into a temporary file beside it, synced, then renamed over it, so that a crash leaves the old file or
//! the new one and never half of one.
//!
//! A file that can't be read as one of ours (damaged, of another program, of a version that we don't know)
//! is put aside under the name with `.unusable` behind it, with a warning: the gate starts cold, and
//! nothing is lost that somebody may want to look at. Nothing about this file ever keeps a gate from
//! running.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use admission::Learned;
use proxy::gate::Driver;
use proxy::learned::{self, NoDocument};
use proxy::ordinary;
use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;
use rustix::process::geteuid;

/// How often what was learned is written. A crash costs at most so much learning.
const PERIOD: Duration = Duration::from_secs(60);

/// The file of one gate.
pub(crate) struct StateFile {
    path: PathBuf,
    driver: Arc<Driver>,
    /// How many requests had been learned from when it was last written.
    written: Option<u64>,
    /// The last failure, so that it is told once and not every minute.
    failure: Option<String>,
}

/// Why a file wasn't used.
#[derive(Debug)]
enum Unusable {
    /// It isn't there: the first start.
    Absent,
    /// It can't be read, and so it is left alone.
    Unreadable(io::Error),
    /// It isn't one of ours.
    Foreign(NoDocument),
}

impl StateFile {
    /// The file of this gate, which recalls what is in it.
    pub(crate) fn open(path: PathBuf, driver: Arc<Driver>) -> Self {
        let gate = driver.name();
        let shown = path.display();
        if let Err(why) = can_be_made_in(&path) {
            tracing::warn!(gate, file = %shown, "what is learned won't be kept: {why}");
        }
        match read(&path) {
            Ok((learned, labels)) => {
                driver.recall(&learned, &labels);
                tracing::info!(gate, file = %shown, types = learned.types.len(), "recalled what was learned");
            }
            Err(Unusable::Absent) => tracing::info!(gate, file = %shown, "no state file yet: starting cold"),
            Err(Unusable::Unreadable(error)) => {
                tracing::warn!(gate, file = %shown, %error, "the state file cannot be read: starting cold");
            }
            Err(Unusable::Foreign(why)) => {
                let aside = beside(&path, ".unusable");
                match fs::rename(&path, &aside) {
                    Ok(()) => tracing::warn!(
                        gate, file = %shown, %why, aside = %aside.display(),
                        "the state file is not usable and was put aside: starting cold"
                    ),
                    Err(error) => tracing::warn!(
                        gate, file = %shown, %why, %error,
                        "the state file is not usable and could not be put aside: starting cold"
                    ),
                }
            }
        }
        Self { path, driver, written: None, failure: None }
    }

    /// The file of a gate that knows more than what is in it.
    pub(crate) fn unread(path: PathBuf, driver: Arc<Driver>) -> Self {
        Self { path, driver, written: None, failure: None }
    }

    /// Writes the file if anything was learned since. A failure is told once.
    pub(crate) fn write(&mut self) {
        let (learned, labels) = self.driver.learned();
        let executions: u64 = learned.types.iter().map(|known| known.samples).fold(0, u64::wrapping_add);
        if learned.types.is_empty() || self.written == Some(executions) {
            return;
        }
        let document = learned::write(self.driver.name(), SystemTime::now(), &learned, &labels);
        match replace(&self.path, &document) {
            Ok(()) => {
                self.written = Some(executions);
                self.failure = None;
            }
            Err(error) => {
                let failure = error.to_string();
                if self.failure.as_ref() != Some(&failure) {
                    let (gate, file) = (self.driver.name(), self.path.display());
                    tracing::warn!(gate, %file, %error, "what was learned could not be written");
                    self.failure = Some(failure);
                }
            }
        }
    }
}

/// Writes the files every [`PERIOD`], for as long as it is polled.
pub(crate) async fn keep(files: &Arc<parking_lot::Mutex<Vec<StateFile>>>) {
    let mut tick = tokio::time::interval(PERIOD);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The first tick comes at once.
    tick.tick().await;
    loop {
        tick.tick().await;
        write_all(files).await;
    }
}

/// Writes all files, where waiting for a disk holds nobody up.
pub(crate) async fn write_all(files: &Arc<parking_lot::Mutex<Vec<StateFile>>>) {
    let files = Arc::clone(files);
    let write = move || files.lock().iter_mut().for_each(StateFile::write);
    if let Err(error) = tokio::task::spawn_blocking(write).await {
        tracing::error!(%error, "writing what was learned ended by a fault of gatekeeper's own");
    }
}

/// Whether this process can make a file there, as far as its directory tells. If not: why, and what to do.
pub(crate) fn can_be_made_in(path: &Path) -> Result<(), String> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let shown = directory.display();
    let access = Access::WRITE_OK | Access::EXEC_OK;
    accessat(CWD, directory, access, AtFlags::EACCESS).map_err(|error| match error {
        Errno::NOENT | Errno::NOTDIR => format!(
            "there is no directory {shown}; make it, owned by the user that runs gatekeeper (a systemd unit \
             makes one with StateDirectory= or RuntimeDirectory=)"
        ),
        error => format!(
            "user {} can't write into the directory {shown} ({}); give it to the user that runs gatekeeper \
             (in a systemd unit: StateDirectory=)",
            geteuid(),
            io::Error::from(error)
        ),
    })
}

/// Whether this process can write at the end of a file there, which it makes if need be. If not: why, and
/// what to do.
pub(crate) fn can_be_appended_to(path: &Path) -> Result<(), String> {
    if !path.exists() {
        return can_be_made_in(path);
    }
    accessat(CWD, path, Access::WRITE_OK, AtFlags::EACCESS).map_err(|error| {
        let (user, error) = (geteuid(), io::Error::from(error));
        format!(
            "user {user} can't write {} ({error}); give it to the user that runs gatekeeper",
            path.display()
        )
    })
}

/// Why an address can't be listened on: what its directory tells, if it is a socket file, or else the error.
pub(crate) fn why_not_listening(address: &config::Address, error: impl ToString) -> String {
    let why = match address {
        config::Address::Unix(path) => can_be_made_in(path).err(),
        config::Address::Inet { .. } => None,
    };
    why.map_or_else(|| error.to_string(), |why| format!("cannot listen on {address}: {why}"))
}

fn read(path: &Path) -> Result<(Learned, Vec<Arc<str>>), Unusable> {
    let file = ordinary::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Unusable::Absent,
        _ => Unusable::Unreadable(error),
    })?;
    let mut bytes = Vec::new();
    file.take(learned::BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(Unusable::Unreadable)?;
    learned::read(&bytes).map_err(Unusable::Foreign)
}

/// Puts a whole new file in the place of the old one, or leaves the old one.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if bytes.is_empty() || bytes.len() > learned::BYTES_MAX {
        return Err(io::Error::other(format!("{} bytes are no state file", bytes.len())));
    }
    if fs::metadata(path).is_ok_and(|data| !data.is_file()) {
        return Err(io::Error::other("it is not an ordinary file"));
    }
    let temporary = beside(path, ".new");
    let written = write_synced(&temporary, bytes).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // It may not even have been made.
        let _ = fs::remove_file(&temporary);
        return written;
    }
    // The rename itself is on the disk once the directory is.
    let directory = path.parent().unwrap_or(Path::new("/"));
    File::open(directory)?.sync_all()
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// The path with something behind its name.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use admission::{Cost, LearnedType, LearnedVariation, Order, Policy, RequestType, Work};

    use rustix::fs::{FileType, Mode};

    use super::*;

    fn driver() -> Arc<Driver> {
        let policy = Policy {
            capacity: admission::Capacity::Unlimited,
            connections: 4,
            long_limit: Some(admission::LongLimit::Fixed(2)),
            cost: Cost::DEFAULT,
            order: Order::Fifo,
            queue_max: 10,
            queue_timeout: Duration::from_secs(1),
            pinned_max: 1,
            types_max: 100,
            ..Policy::default()
        };
        Driver::new("shop", policy, 1)
    }

    fn known(key: u64) -> LearnedType {
        LearnedType {
            request_type: RequestType(key),
            mean: Work::from_nanos(1_234_567),
            rank: Work::from_nanos(1_300_000),
            samples: 41,
            variation: LearnedVariation { samples: 41, mean: 1_250_000.5, variance: 0.1 + 0.2 },
        }
    }

    fn learned() -> (Learned, Vec<Arc<str>>) {
        let types = vec![known(u64::MAX), known(7)];
        let labels = vec![Arc::from("shop: SELECT \"ü\" = $?\n"), Arc::from("shop: INSERT")];
        (Learned { mean: Work::from_nanos(999), requests: 12, types, ..Learned::default() }, labels)
    }

    #[test]
    fn what_is_written_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.json");
        let (before, names) = learned();
        let old = driver();
        old.recall(&before, &names);
        let mut file = StateFile::open(path.clone(), old);
        file.write();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no temporary file is left");
        let new = driver();
        StateFile::open(path, Arc::clone(&new));
        let (mut after, labels) = new.learned();
        assert!((after.types[0].variation.variance - 0.3).abs() < 1e-12);
        after.types.iter_mut().for_each(|known| known.variation.variance = 0.1 + 0.2);
        assert_eq!((after, labels), (before, names));
    }

    #[test]
    fn nothing_is_written_when_nothing_was_learned() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.json");
        StateFile::open(path.clone(), driver()).write();
        assert!(!path.exists());
        let (learned, labels) = learned();
        let driver = driver();
        driver.recall(&learned, &labels);
        let mut file = StateFile::open(path.clone(), driver);
        file.write();
        fs::remove_file(&path).unwrap();
        file.write();
        assert!(!path.exists());
    }

    #[test]
    fn what_is_not_ours_is_put_aside_and_the_gate_starts_cold() {
        let (learned, labels) = learned();
        let whole = learned::write("shop", SystemTime::now(), &learned, &labels);
        let cut = whole[..whole.len() / 2].to_vec();
        for bytes in [cut, b"[1, 2]".to_vec(), b"\xff\0".to_vec(), vec![]] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("state.json");
            fs::write(&path, &bytes).unwrap();
            let driver = driver();
            StateFile::open(path.clone(), Arc::clone(&driver));
            assert!(driver.learned().0.types.is_empty());
            assert!(!path.exists());
            assert_eq!(fs::read(directory.path().join("state.json.unusable")).unwrap(), bytes);
        }
    }

    #[test]
    fn a_place_where_nothing_can_be_written_is_only_a_warning() {
        let (learned, labels) = learned();
        let directory = tempfile::tempdir().unwrap();
        let pipe = directory.path().join("pipe");
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let paths = ["/nonexistent/directory/state.json", "/dev/null", "/proc/self"].map(PathBuf::from);
        for path in paths.into_iter().chain([pipe]) {
            let driver = driver();
            driver.recall(&learned, &labels);
            let mut file = StateFile::open(path.clone(), driver);
            file.write();
            assert!(file.failure.is_some(), "{path:?}");
        }
    }
}
