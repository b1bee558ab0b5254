//! Whether a client's socket takes more.

use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::net::TcpStream;

/// Tells one task when a socket takes more, as far as the poller has told. Others may wait for the same.
pub(super) struct Room {
    socket: Arc<TcpStream>,
    waiting: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
}

impl Room {
    pub(super) fn of(socket: Arc<TcpStream>) -> Self {
        Self { socket, waiting: None }
    }

    /// Resolves as well when the connection is lost: writing tells that.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.waiting.is_none() {
            if pin!(self.socket.writable()).poll(context).is_ready() {
                return Poll::Ready(());
            }
            let socket = Arc::clone(&self.socket);
            self.waiting = Some(Box::pin(async move { drop(socket.writable().await) }));
        }
        if let Some(waiting) = &mut self.waiting {
            ready!(waiting.as_mut().poll(context));
        }
        self.waiting = None;
        Poll::Ready(())
    }
}

impl fmt::Debug for Room {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Room").field("waits", &self.waiting.is_some()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_socket_that_is_full_has_room_when_its_client_has_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let socket = Arc::new(listener.accept().await.unwrap().0);
        let mut room = Room::of(Arc::clone(&socket));
        poll_fn(|context| room.poll(context)).await;
        let mut written = 0;
        while let Ok(count) = socket.try_write(&[7; 50_000]) {
            written += count;
        }
        assert!(poll_fn(|context| Poll::Ready(room.poll(context))).await.is_pending());
        let reads = async {
            let mut read = 0;
            while read < written {
                read += client.read(&mut [0; 50_000]).await.unwrap();
            }
        };
        tokio::join!(reads, poll_fn(|context| room.poll(context)));
        assert!(socket.try_write(&[7]).is_ok());
    }
}
