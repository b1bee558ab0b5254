//! What the tests of the gate for MySQL share: one private MariaDB, and a gatekeeper for each test.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use bench::mariadb::PrivateMariadb;
use tempfile::TempDir;
use wire::mysql::capabilities::Capabilities;

use crate::session::{BASE, Secret, Session, Told};
use crate::support::Gate;

/// How long a condition may take to hold. Only a hang takes so long.
const POLL_BOUND: Duration = Duration::from_secs(30);
/// The pause between two looks at a condition.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

static SERVER: Mutex<Weak<PrivateMariadb>> = Mutex::new(Weak::new());

fn server() -> Arc<PrivateMariadb> {
    let mut shared = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let options = ["--max-allowed-packet=64M", "--plugin-load-add=auth_ed25519"];
        let server = Arc::new(PrivateMariadb::start(&options).unwrap());
        *shared = Arc::downgrade(&server);
        server
    })
}

/// A gatekeeper in front of the server. Dropped in this order.
pub(crate) struct Stage {
    pub(crate) gate: Gate,
    directory: TempDir,
    pub(crate) server: Arc<PrivateMariadb>,
}

impl Stage {
    /// Starts a gate with these lines of configuration, and these users beside the server's own.
    pub(crate) fn start(settings: &[&str], users: &str) -> Self {
        let server = server();
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("users.txt");
        let witness = format!("\"{}\" \"{}\"\n{users}", server.user(), server.password());
        std::fs::write(&file, witness).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        let own =
            ["protocol = \"mysql\"".to_owned(), format!("users_file = {:?}", file.display().to_string())];
        let settings: Vec<_> =
            own.into_iter().chain(settings.iter().map(|line| (*line).to_owned())).collect();
        let listen = format!("unix:{}", directory.path().join("gate.sock").display());
        let upstream = format!("unix:{}", server.socket().display());
        let gate = Gate::start_between(&listen, &upstream, &settings);
        Self { gate, directory, server }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("gate.sock")
    }

    pub(crate) fn users_file(&self) -> PathBuf {
        self.directory.path().join("users.txt")
    }

    pub(crate) fn login(&self, user: &str, password: &str) -> Result<Session, Told> {
        Session::login(&self.socket(), (user, Secret::Password(password)), capabilities())
    }

    /// A session through the gate.
    pub(crate) fn client(&self) -> Session {
        self.login(self.server.user(), self.server.password()).unwrap()
    }

    /// A session beside the gate.
    pub(crate) fn direct(&self) -> Session {
        let secret = Secret::Password(self.server.password());
        Session::login(&self.server.socket(), (self.server.user(), secret), capabilities()).unwrap()
    }

    /// Waits until a figure of the gate's status has this value.
    pub(crate) fn until(&self, name: &str, value: u64) {
        let wanted = format!("{name} is {value}");
        self.until_holds(&wanted, || self.gate.status()[name].as_u64() == Some(value));
    }

    /// Waits until something holds.
    pub(crate) fn until_holds(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + POLL_BOUND;
        while !holds() {
            assert!(Instant::now() < deadline, "never true: {what}: {}", self.gate.status());
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// What the gate offers to every client.
pub(crate) fn capabilities() -> Capabilities {
    BASE.without(Capabilities::LOCAL_FILES)
}
