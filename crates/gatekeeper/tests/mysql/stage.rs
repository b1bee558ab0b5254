//! What the tests of the gate for MySQL share: one private MariaDB, and a gatekeeper for each test.

use std::io::Read as _;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tempfile::TempDir;
use testbed::mariadb::PrivateMariadb;
use testbed::postgres::free_port;
use wire::mysql::capabilities::Capabilities;
use wire::mysql::command::{self, Command, Query};

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
        let options = [
            "--max-allowed-packet=64M",
            "--plugin-load-add=auth_ed25519",
            "--log-bin=log",
            "--log-bin-trust-function-creators=1",
        ];
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
        let directory = tempfile::tempdir().unwrap();
        let listen = format!("unix:{}", directory.path().join("gate.sock").display());
        Self::listening(&listen, directory, settings, users)
    }

    /// A gate whose clients come over TCP.
    pub(crate) fn over_tcp(settings: &[&str], users: &str) -> Self {
        let listen = format!("127.0.0.1:{}", free_port().unwrap());
        Self::listening(&listen, tempfile::tempdir().unwrap(), settings, users)
    }

    /// A gate in front of a server of its own.
    pub(crate) fn in_front_of(server: PrivateMariadb, settings: &[&str]) -> Self {
        let upstream = format!("unix:{}", server.socket().display());
        Self::reaching((Arc::new(server), &upstream), settings, "")
    }

    /// A gate that reaches a server by this address.
    pub(crate) fn reaching(server: (Arc<PrivateMariadb>, &str), settings: &[&str], users: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let listen = format!("unix:{}", directory.path().join("gate.sock").display());
        Self::between(&listen, server, directory, (settings, users))
    }

    fn listening(listen: &str, directory: TempDir, settings: &[&str], users: &str) -> Self {
        let server = server();
        let upstream = format!("unix:{}", server.socket().display());
        Self::between(listen, (server, &upstream), directory, (settings, users))
    }

    fn between(
        listen: &str,
        (server, upstream): (Arc<PrivateMariadb>, &str),
        directory: TempDir,
        (settings, users): (&[&str], &str),
    ) -> Self {
        let settings = configure(&directory, &server, settings, users);
        let gate = Gate::start_between(listen, upstream, &settings);
        Self { gate, directory, server }
    }

    /// Writes other lines and users, and has the gate read them.
    pub(crate) fn reload(&self, settings: &[&str], users: &str) {
        self.gate.reconfigure(&configure(&self.directory, &self.server, settings, users));
        self.gate.signal("HUP");
    }

    /// Puts a new gate with these lines in the place of one that has ended.
    pub(crate) fn succeed(&mut self, settings: &[&str]) {
        let settings = configure(&self.directory, &self.server, settings, "");
        let listen = format!("unix:{}", self.socket().display());
        let upstream = format!("unix:{}", self.server.socket().display());
        self.gate = Gate::start_between(&listen, &upstream, &settings);
    }

    /// How clients come in that outlive a loan of the stage.
    pub(crate) fn door(&self) -> Door {
        let (user, password) = (self.server.user().to_owned(), self.server.password().to_owned());
        Door { socket: self.socket(), user, password }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("gate.sock")
    }

    pub(crate) fn users_file(&self) -> PathBuf {
        self.directory.path().join("users.txt")
    }

    pub(crate) fn login(&self, user: &str, password: &str) -> Result<Session, Told> {
        let socket = match UnixStream::connect(self.socket()) {
            Ok(socket) => socket,
            Err(_) => OwnedFd::from(TcpStream::connect(("127.0.0.1", self.gate.port())).unwrap()).into(),
        };
        Session::login_over(socket, (user, Secret::Password(password)), capabilities())
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

    /// The number of the error that a client gets in the place of a greeting.
    pub(crate) fn turned_away(&self) -> u16 {
        let mut told = Vec::new();
        UnixStream::connect(self.socket()).unwrap().read_to_end(&mut told).unwrap();
        let Some(&[0xff, low, high]) = told.get(4..7) else { panic!("{}", told.escape_ascii()) };
        u16::from_le_bytes([low, high])
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

/// The lines of a gate's configuration. Writes its users file.
fn configure(directory: &TempDir, server: &PrivateMariadb, settings: &[&str], users: &str) -> Vec<String> {
    let file = directory.path().join("users.txt");
    std::fs::write(&file, format!("\"{}\" \"{}\"\n{users}", server.user(), server.password())).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let own = ["protocol = \"mysql\"".to_owned(), format!("users_file = {:?}", file.display().to_string())];
    own.into_iter().chain(settings.iter().map(|line| (*line).to_owned())).collect()
}

/// The gate's socket, and its clients.
pub(crate) struct Door {
    socket: PathBuf,
    user: String,
    password: String,
}

impl Door {
    /// A connection, on which nothing was said.
    pub(crate) fn connect(&self) -> UnixStream {
        UnixStream::connect(&self.socket).expect("the gate listens")
    }

    /// A session, if the gate is there, and both it and the server let it in.
    pub(crate) fn try_login(&self) -> Option<Session> {
        let secret = Secret::Password(&self.password);
        let stream = UnixStream::connect(&self.socket).ok()?;
        Session::try_login_over(stream, (&self.user, secret), capabilities()).ok()?.ok()
    }

    /// A session, if the gate and the server let it in.
    pub(crate) fn login(&self) -> Option<Session> {
        let secret = Secret::Password(&self.password);
        Session::login(&self.socket, (&self.user, secret), capabilities()).ok()
    }
}

/// What the gate offers to every client.
pub(crate) fn capabilities() -> Capabilities {
    BASE | Capabilities::BULK_OPERATIONS
}

/// The bytes of a command.
pub(crate) fn message(command: &Command<'_>) -> Vec<u8> {
    let mut out = BytesMut::new();
    command::write(&mut out, command, capabilities());
    out.to_vec()
}

/// The bytes of a statement.
pub(crate) fn query(sql: &str) -> Vec<u8> {
    message(&Command::Query(Query { attributes: &[], sql: sql.as_bytes() }))
}
