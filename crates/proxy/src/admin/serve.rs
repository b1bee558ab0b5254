//! The connections of the admin listener.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::{Admin, CONNECTIONS_MAX, Door, IDLE_MAX, LAST_ANSWER_MAX, router};
use crate::listener::{SocketFile, bind_socket, listening};

/// How long a program may leave bytes of its answer unacknowledged, or its receive window closed.
const UNREAD_MAX: Duration = Duration::from_secs(30);
/// After an accept that failed (no file descriptor left), the pause before the next.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The Unix socket of the admin listener. Its file is removed when this is dropped.
#[derive(Debug)]
pub struct AdminSocket {
    listener: UnixListener,
    _file: SocketFile,
}

impl AdminSocket {
    /// Listens on a Unix socket whose file has this mode.
    ///
    /// # Errors
    /// The system's, such as "address in use".
    pub async fn bind(path: &Path, mode: u32) -> io::Result<Self> {
        let (listener, file) = bind_socket(path, mode).await?;
        Ok(Self { listener, _file: file })
    }

    /// Listens on a socket that another process has opened for this path.
    ///
    /// # Errors
    /// It doesn't listen.
    pub fn adopt(socket: OwnedFd, path: &Path) -> io::Result<Self> {
        let listener = UnixListener::from_std(OwnedFd::from(listening(socket)?).into())?;
        Ok(Self { listener, _file: SocketFile::of(path) })
    }

    /// The socket, once more, for a successor.
    ///
    /// # Errors
    /// There can be no more files.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.listener.as_fd().try_clone_to_owned()
    }

    /// Serves the admin listener there until the future is dropped, or a successor has it.
    pub async fn serve(self, admin: Arc<Admin>) {
        serve_all(&self.listener, &admin, Door::Socket).await;
    }
}

/// Where connections come in.
trait Entrance {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    fn next(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Entrance for TcpListener {
    type Stream = TcpStream;

    async fn next(&self) -> io::Result<TcpStream> {
        let (stream, _) = self.accept().await?;
        // A viewer that reads nothing, or whose machine sleeps, gives its place back.
        let bounded = SockRef::from(&stream).set_tcp_user_timeout(Some(UNREAD_MAX));
        bounded.unwrap_or_else(|error| tracing::warn!(%error, "an admin connection has no bound"));
        Ok(stream)
    }
}

impl Entrance for UnixListener {
    type Stream = UnixStream;

    async fn next(&self) -> io::Result<UnixStream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

/// Serves the admin listener until the future is dropped, or a successor has it.
pub async fn serve(listener: TcpListener, admin: Arc<Admin>) {
    serve_all(&listener, &admin, Door::Network).await;
}

async fn serve_all(entrance: &impl Entrance, admin: &Arc<Admin>, door: Door) {
    let router = router(Arc::clone(admin), door);
    let mut connections: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let next = tokio::select! {
            next = entrance.next() => next,
            () = admin.handed_over() => return,
        };
        match next {
            Ok(stream) => {
                connections.retain(|connection| !connection.is_finished());
                // Connections that say nothing keep nobody out: the oldest makes room.
                if connections.len() >= CONNECTIONS_MAX {
                    connections.pop_front().into_iter().for_each(|oldest| oldest.abort());
                }
                let served = tokio::spawn(serve_connection(stream, router.clone(), Arc::clone(admin)));
                connections.push_back(served.abort_handle());
            }
            Err(error) => {
                tracing::warn!(%error, "the admin listener could not accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve_connection<S>(stream: S, router: Router, admin: Arc<Admin>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let _connected = Arc::clone(&admin.connected);
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(IDLE_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router))
        .with_upgrades();
    let mut served = pin!(served);
    let served = tokio::select! {
        served = served.as_mut() => served,
        () = admin.handed_over() => {
            served.as_mut().graceful_shutdown();
            timeout(LAST_ANSWER_MAX, served).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "an admin connection ended");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_viewer_that_reads_nothing_is_dropped_within_a_bound() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (viewer, stream) = tokio::join!(TcpStream::connect(address), Entrance::next(&listener));
        assert!(viewer.is_ok());
        assert_eq!(SockRef::from(&stream.unwrap()).tcp_user_timeout().unwrap(), Some(UNREAD_MAX));
    }
}
