//! What the experiments over HTTP share: a load generator, an origin that works, and the peers that others use.
//!
//! The client is our own and speaks no more of HTTP/1.1 than it needs, so that it takes less processor time than what it
//! measures and an open loop can be told from a closed one. It runs on one thread.

mod closed;
mod connection;
mod knock;
mod limiter;
mod open;
pub mod origin;
mod pacer;
pub(crate) mod pages;
mod quota;
mod server;
mod web;

pub(crate) use closed::{ClosedRun, Counted, closed};
pub(crate) use knock::knock;
pub(crate) use limiter::{Library, Limiter};
pub(crate) use open::{Beyond, Connections, OpenRun, OpenRuns, Request};
pub(crate) use origin::Origin;
pub use pages::Mix;
pub(crate) use quota::Quota;
pub(crate) use web::{HaProxy, HaProxyRole, Nginx, NginxRole, write_files};

use crate::Error;

/// Runs a load on a thread and a runtime of its own.
pub(crate) async fn on_one_thread<T: Send + 'static>(
    load: impl AsyncFnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    crate::process::blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::io("starting the client's runtime"))?;
        tokio::task::LocalSet::new().block_on(&runtime, load())
    })
    .await
}

/// The statuses of the same request so many times over one connection. For tests of who stands in between.
#[cfg(test)]
pub(crate) async fn ask(port: u16, request: &[u8], times: usize) -> std::io::Result<Vec<u16>> {
    let mut connection = connection::Connection::open(port).await?;
    let mut statuses = Vec::new();
    for _ in 0..times {
        statuses.push(connection.exchange(request).await?.status);
    }
    Ok(statuses)
}
