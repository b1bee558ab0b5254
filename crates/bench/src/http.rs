//! What the experiments over HTTP share: a load generator, an origin that works, and the peers that others
//! use.
//!
//! The client is our own and speaks no more of HTTP/1.1 than it needs, so that it takes less processor time
//! than what it measures and an open loop can be told from a closed one. It runs on one thread.

mod closed;
mod connection;
mod limiter;
mod open;
pub mod origin;
pub(crate) mod pages;
mod web;

pub(crate) use closed::{ClosedRun, Counted, closed, knock};
pub(crate) use limiter::{Library, Limiter};
pub(crate) use open::{Beyond, Connections, Habits, OpenRun, OpenRuns, Request};
pub(crate) use origin::Origin;
pub use pages::Mix;
pub(crate) use web::{HaProxy, HaProxyRole, Nginx, NginxRole, write_files};

use std::net::Ipv4Addr;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::Error;
use testbed::link::Namespace;

/// Takes all that a gate has which lets one request in and one more wait: two requests for this path, of
/// which the first never ends in time. As long as they are held everybody else is refused.
pub(crate) async fn hold_up(port: u16, path: &str) -> Result<[TcpStream; 2], Error> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: site.example\r\n\r\n");
    let hold = async || {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await;
        let mut stream = stream.map_err(Error::io("connecting to the gate"))?;
        stream.write_all(request.as_bytes()).await.map_err(Error::io("asking the gate"))?;
        Ok::<_, Error>(stream)
    };
    Ok([hold().await?, hold().await?])
}

/// Runs a load on a thread and a runtime of its own, inside a network namespace if one is named.
pub(crate) async fn on_one_thread<T: Send + 'static>(
    inside: Option<Namespace>,
    load: impl AsyncFnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let (send, receive) = tokio::sync::oneshot::channel();
    let work = move || {
        inside.map_or(Ok(()), |namespace| namespace.enter())?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::io("starting the client's runtime"))?;
        tokio::task::LocalSet::new().block_on(&runtime, load())
    };
    let thread = std::thread::Builder::new().name("client".to_owned());
    // The task that waited may be gone.
    let started = thread.spawn(move || drop(send.send(work())));
    started.map_err(Error::io("starting the client's thread"))?;
    receive.await.map_err(|_| Error::Experiment("the client's thread ended".to_owned()))?
}

/// The statuses of the same request so many times over one connection. For tests of what stands in between.
#[cfg(test)]
pub(crate) async fn ask(port: u16, request: &[u8], times: usize) -> std::io::Result<Vec<u16>> {
    let mut connection = connection::Connection::open((Ipv4Addr::LOCALHOST, port)).await?;
    let mut statuses = Vec::new();
    for _ in 0..times {
        statuses.push(connection.exchange(request).await?.status);
    }
    Ok(statuses)
}
