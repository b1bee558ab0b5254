//! Accepting clients: TCP or a Unix socket, a task for each, and the orderly end of all of them.

use std::future::{Future, poll_fn};
use std::io;
use std::net;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use rustix::net::sockopt::socket_error;
use rustix::net::{SocketFlags, accept_with};
use socket2::{Domain, SockRef};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::{TcpSocket, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, sleep, timeout};

use crate::clock::Clock;
use crate::lateness::Lateness;
use crate::shutdown::{Phase, Shutdown};
use crate::stream::{Keepalive, Stream};
use crate::upstream::address::Address;

/// Connections that the kernel keeps for us while we are busy (it has its own maximum, `somaxconn`).
const BACKLOG: u32 = 4096;
/// The pause after an error such as "too many open files": it passes only when somebody closes something.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// At most one log line about such errors per this time.
const LOG_PERIOD: Duration = Duration::from_secs(10);
/// The time that sessions have to say good-bye once they were told to abort.
const ABORT_GRACE: Duration = Duration::from_secs(2);

/// What to do about an address that can't be listened on, where that can be told; goes behind the error.
pub fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another process listens there, perhaps another gatekeeper: stop that, or choose another address (`listen`, \
             --listen; of the admin listener [admin] `listen`, --admin)"
        }
        io::ErrorKind::AddrNotAvailable => "; no interface of this machine has that address: choose another",
        io::ErrorKind::PermissionDenied => {
            "; a port below 1024 takes CAP_NET_BIND_SERVICE, a socket file a directory that this user may write"
        }
        _ => "",
    }
}

/// What bounds a listener, as it holds at the moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// The most sockets at once.
    pub(crate) sockets_max: usize,
    /// How long clients may take to finish once the gate drains.
    pub(crate) drain_timeout: Duration,
    /// What becomes of clients that have connected then, and were not accepted yet.
    pub(crate) backlog: Backlog,
}

/// Connections that the kernel has made and nobody has accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backlog {
    /// They are closed with the listener: their clients have asked for nothing yet, and hear that at once.
    Closed,
    /// They are served: their clients may have asked for something with their first bytes.
    Served,
}

/// A listening socket.
#[derive(Debug)]
pub struct Listener {
    socket: Arc<Socket>,
    /// Of the gate; of a gate that doesn't look at it, it never says anything.
    lateness: Arc<Lateness>,
}

#[derive(Debug)]
enum Socket {
    /// Not the runtime's own listener, which registers each accepted socket with the poller: half of the cost
    /// of a newcomer that has left.
    Tcp(AsyncFd<net::TcpListener>),
    Unix(UnixListener, SocketFile),
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(listener) => listener.get_ref().as_fd(),
            Self::Unix(listener, _) => listener.as_fd(),
        }
    }
}

/// A look at a listening socket, for a successor. The socket closes with its listener all the same.
#[derive(Clone, Debug)]
pub struct Door(Weak<Socket>);

impl Door {
    /// The socket, once more; `None` once its listener is closed, or where there can be no more files.
    pub fn descriptor(&self) -> Option<OwnedFd> {
        self.0.upgrade().and_then(|socket| socket.as_fd().try_clone_to_owned().ok())
    }
}

/// Whether the files of Unix sockets belong to another process, which serves them.
static FILES_ARE_ANOTHERS: AtomicBool = AtomicBool::new(false);

/// Leaves the files of Unix sockets alone from now on: another process serves them.
pub fn leave_socket_files() {
    FILES_ARE_ANOTHERS.store(true, Ordering::Release);
}

/// Removes the files of Unix sockets with their listeners from now on, as at the start.
pub fn own_socket_files() {
    FILES_ARE_ANOTHERS.store(false, Ordering::Release);
}

/// A Unix socket's name in the file system; removed when dropped.
#[derive(Debug)]
pub(crate) struct SocketFile(PathBuf);

impl SocketFile {
    /// The file of a socket that another process has opened.
    pub(crate) fn of(path: &Path) -> Self {
        Self(path.to_owned())
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if FILES_ARE_ANOTHERS.load(Ordering::Acquire) {
            return;
        }
        // Somebody may have removed it already.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Listener {
    /// Listens. Of a name with several addresses the first that can be had is taken. A Unix socket is open
    /// to every user of the machine, as PostgreSQL's is: the server asks for the password. A socket file
    /// that nobody listens on any more is replaced.
    ///
    /// # Errors
    /// The system's, such as "address in use".
    pub async fn bind(address: &Address, keepalive: Keepalive) -> io::Result<Self> {
        let socket = match address {
            Address::Unix(path) => bind_unix(path).await?,
            Address::Inet { .. } => Socket::Tcp(registered(bind_tcp(address, &keepalive).await?)?),
        };
        Ok(Self::on(socket))
    }

    /// Listens on a socket that another process has opened for this address.
    ///
    /// # Errors
    /// It doesn't listen, or is of another kind than the address.
    pub fn adopt(socket: OwnedFd, address: &Address, keepalive: Keepalive) -> io::Result<Self> {
        let socket = listening(socket)?;
        let socket = match (address, socket.domain()?) {
            (Address::Unix(path), Domain::UNIX) => {
                let listener = UnixListener::from_std(OwnedFd::from(socket).into())?;
                Socket::Unix(listener, SocketFile::of(path))
            }
            (Address::Inet { .. }, Domain::IPV4 | Domain::IPV6) => {
                keepalive.set(&SockRef::from(&socket))?;
                Socket::Tcp(registered(OwnedFd::from(socket).into())?)
            }
            _ => return Err(io::Error::other("the socket is of another kind than the address")),
        };
        Ok(Self::on(socket))
    }

    fn on(socket: Socket) -> Self {
        Self { socket: Arc::new(socket), lateness: Arc::new(Lateness::new(Clock::start())) }
    }

    /// Its socket, for a successor.
    pub fn door(&self) -> Door {
        Door(Arc::downgrade(&self.socket))
    }

    /// Lets in the clients that this allows, and tells it of them.
    pub(crate) fn minding(self, lateness: Arc<Lateness>) -> Self {
        Self { lateness, ..self }
    }

    /// Where it listens, with the real port.
    pub fn address(&self) -> Address {
        match &*self.socket {
            Socket::Unix(_, file) => Address::Unix(file.0.clone()),
            Socket::Tcp(listener) => match listener.get_ref().local_addr() {
                Ok(local) => Address::Inet { host: local.ip().to_string(), port: local.port() },
                Err(_) => Address::Inet { host: "0.0.0.0".to_owned(), port: 0 },
            },
        }
    }

    /// Runs `serve` for every client in a task of its own, within `bounds` as they are then (more are
    /// closed at once), until `shutdown` drains, or hands over. Then no more clients come in.
    /// Connected clients have their time to finish once it drains. After it those that wait are told so, and
    /// all are cut off.
    pub(crate) async fn serve<F>(
        self,
        bounds: impl Fn() -> Bounds,
        shutdown: &Shutdown,
        serve: impl Fn(Stream) -> F,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut clients = JoinSet::new();
        let mut log = Throttle::default();
        let (mut at_once, mut kept) = (0, BACKLOG);
        loop {
            // Nothing of this is counted by the runtime where a socket is ready at once: as long as
            // newcomers are there that aren't let in, nobody else would have a turn on this thread. (Not
            // within `next`, which would tell that there are none.)
            consume_budget().await;
            if at_once >= self.lateness.at_once() {
                at_once = 0;
                behind_all_others().await;
            }
            tokio::select! {
                () = shutdown.handed_over() => break,
                Some(ended) = clients.join_next() => note_end(ended),
                () = self.lateness.looked() => self.keep(&mut kept),
                accepted = self.next(), if self.lateness.is_open() => match accepted {
                    Ok(Some(stream)) if clients.len() < bounds().sockets_max => {
                        at_once += 1;
                        self.lateness.came();
                        clients.spawn(serve(stream));
                    }
                    Ok(None) => self.lateness.left(),
                    Ok(Some(_)) => log.warn("closed a connection: too many are open", None),
                    Err(error) if is_about_one_client(&error) => {}
                    Err(error) => {
                        log.warn("cannot accept connections at the moment", Some(&error));
                        sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        }
        // The kernel's queue belongs to a successor, if there is one.
        if shutdown.phase() != Phase::HandedOver && bounds().backlog == Backlog::Served {
            for stream in self.backlog() {
                if clients.len() < bounds().sockets_max {
                    clients.spawn(serve(stream));
                }
            }
        } else {
            drop(self);
        }
        let end = async {
            while let Some(ended) = clients.join_next().await {
                note_end(ended);
            }
        };
        let cut_off = async {
            shutdown.draining().await;
            tokio::select! {
                () = sleep(bounds().drain_timeout) => shutdown.abort_part(),
                () = shutdown.aborting() => {}
            }
            sleep(ABORT_GRACE).await;
        };
        tokio::select! {
            () = end => {}
            () = cut_off => {}
        }
        clients.shutdown().await;
    }

    /// Clients that have connected until now. The listener is closed then. (The kernel is asked, and not the
    /// runtime, which may not have heard of the last ones yet.)
    fn backlog(self) -> Vec<Stream> {
        let mut streams = Vec::new();
        // An error is that there are no more, or that none can be had: the end of it in any case.
        match &*self.socket {
            Socket::Tcp(listener) => {
                while let Ok(newcomer) = accept(listener.get_ref()) {
                    streams.extend(newcomer);
                }
            }
            Socket::Unix(listener, _) => {
                while let Ok(socket) = accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                    streams.extend(UnixStream::from_std(socket.into()).map(Stream::unix));
                }
            }
        }
        streams
    }

    /// The next client; `None` if it has left in the meantime. Notes if there is none yet.
    async fn next(&self) -> io::Result<Option<Stream>> {
        let mut accepted = pin!(self.accept());
        poll_fn(|context| {
            let accepted = accepted.as_mut().poll(context);
            if accepted.is_pending() {
                self.lateness.has_no_newcomers();
            }
            accepted
        })
        .await
    }

    async fn accept(&self) -> io::Result<Option<Stream>> {
        match &*self.socket {
            Socket::Tcp(listener) => loop {
                let mut ready = listener.readable().await?;
                if let Ok(accepted) = ready.try_io(|listener| accept(listener.get_ref())) {
                    return accepted;
                }
            },
            Socket::Unix(listener, _) => Ok(Some(Stream::unix(listener.accept().await?.0))),
        }
    }

    /// Has the kernel keep as many for us from now on as the gate wants. Those that it keeps already stay.
    fn keep(&self, kept: &mut u32) {
        let wanted = self.lateness.backlog().unwrap_or(BACKLOG).min(BACKLOG);
        if wanted == std::mem::replace(kept, wanted) {
            return;
        }
        let backlog = i32::try_from(wanted).unwrap_or(i32::MAX);
        if let Err(error) = SockRef::from(&*self.socket).listen(backlog) {
            tracing::debug!(%error, "the length of the kernel's queue stays as it was");
        }
    }
}

/// Waits until all tasks that are ready now have run, as far as this thread's are concerned. (The runtime's
/// own `yield_now` comes back as soon as the poller was asked.)
async fn behind_all_others() {
    let mut has_waited = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[expect(
    deprecated,
    reason = "its successor is unsafe, which is forbidden here; this listener keeps its descriptor to the end"
)]
fn registered(listener: net::TcpListener) -> io::Result<AsyncFd<net::TcpListener>> {
    AsyncFd::with_interest(listener, Interest::READABLE)
}

/// The next client that is there; `None` if it has left in the meantime.
fn accept(listener: &net::TcpListener) -> io::Result<Option<Stream>> {
    let socket = accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    if socket_error(&socket)?.is_err() {
        return Ok(None);
    }
    TcpStream::from_std(socket.into()).map(Stream::accepted).map(Some)
}

async fn bind_tcp(address: &Address, keepalive: &Keepalive) -> io::Result<net::TcpListener> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for local in address.resolve().await? {
        let socket = if local.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        // Lets a restarted gatekeeper listen although old connections linger; it doesn't let two listen at
        // once.
        socket.set_reuseaddr(true)?;
        // Before it listens: a client that connects in between would take nothing over.
        keepalive.set(&SockRef::from(&socket))?;
        match socket.bind(local).and_then(|()| socket.listen(BACKLOG)) {
            Ok(listener) => return listener.into_std(),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A socket that listens, set up as one of our own.
pub(crate) fn listening(socket: OwnedFd) -> io::Result<socket2::Socket> {
    let socket = socket2::Socket::from(socket);
    if !socket.is_listener()? {
        return Err(io::Error::other("the socket doesn't listen"));
    }
    socket.set_nonblocking(true)?;
    // The process before may have asked the kernel for a short queue.
    socket.listen(i32::try_from(BACKLOG).unwrap_or(i32::MAX))?;
    Ok(socket)
}

async fn bind_unix(path: &Path) -> io::Result<Socket> {
    let (listener, file) = bind_socket(path, 0o777).await?;
    Ok(Socket::Unix(listener, file))
}

/// Listens on a Unix socket that users may open whom `mode` allows. One that nobody listens on any more is
/// replaced.
pub(crate) async fn bind_socket(path: &Path, mode: u32) -> io::Result<(UnixListener, SocketFile)> {
    let socket = socket2::Socket::new(Domain::UNIX, socket2::Type::STREAM, None)?;
    let address = socket2::SockAddr::unix(path)?;
    match socket.bind(&address) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_stale(path).await => {
            std::fs::remove_file(path)?;
            socket.bind(&address)?;
        }
        other => other?,
    }
    let file = SocketFile(path.to_owned());
    // Before it listens, so that nobody connects whom the mode keeps out.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    socket.listen(i32::try_from(BACKLOG).unwrap_or(i32::MAX))?;
    socket.set_nonblocking(true)?;
    let listener = UnixListener::from_std(OwnedFd::from(socket).into())?;
    Ok((listener, file))
}

/// Whether a path is a socket on which nobody listens.
async fn is_stale(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|data| data.file_type().is_socket());
    // A full backlog makes a connect wait, which shows that somebody listens.
    let connected = timeout(Duration::from_secs(1), UnixStream::connect(path)).await;
    is_socket && matches!(connected, Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Whether an error of `accept` tells of the client that went away in the meantime, and nothing of us.
fn is_about_one_client(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionAborted, ConnectionReset, HostUnreachable, Interrupted, InvalidInput, NetworkUnreachable,
        NotConnected, TimedOut,
    };
    matches!(
        error.kind(),
        ConnectionAborted
            | ConnectionReset
            | HostUnreachable
            | Interrupted
            | InvalidInput
            | NetworkUnreachable
            | NotConnected
            | TimedOut
    )
}

fn note_end(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a session ended by a fault of gatekeeper's own");
    }
}

/// Keeps a repeated warning from filling the log.
#[derive(Default)]
struct Throttle {
    last: Option<Instant>,
    withheld: u64,
}

impl Throttle {
    fn warn(&mut self, what: &str, error: Option<&io::Error>) {
        let now = Instant::now();
        if self.last.is_some_and(|last| now.duration_since(last) < LOG_PERIOD) {
            self.withheld += 1;
            return;
        }
        let error = error.map(tracing::field::display);
        tracing::warn!(error, withheld = self.withheld, "{what}");
        *self = Self { last: Some(now), withheld: 0 };
    }
}

#[cfg(test)]
mod tests;
