//! Server processes of long reads get less of the processor while these run.
//!
//! **Who is moved.** Only the process of a connection to this machine: over a Unix socket a child of the
//! process that listens there, over loopback a process that says the gate's own port in its title. A tunnel's
//! other end, or a container with numbers of its own, has no such process.
//!
//! **States.** A statement is lowered, or isn't. To lower takes milliseconds, on a thread of its own, while
//! the statement runs already. It is raised behind its answer and before its connection serves anybody else;
//! if the session ends before, by drop.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::task::{JoinHandle, spawn_blocking};

use super::server::Server;
use crate::processor::{Means, parent};

/// How much of the processor long reads get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LongReads {
    /// Long reads get as much as others.
    #[default]
    Ordinary,
    /// Long reads get less while they run.
    Lowered,
}

/// How much of the processor a statement needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    Ordinary,
    /// Others go before it.
    Low,
}

/// What a gate has said of lowering.
#[derive(Debug, Default)]
pub(crate) struct Lowering {
    /// Each only once.
    has_told: Arc<Told>,
}

#[derive(Debug, Default)]
struct Told {
    success: AtomicBool,
    failure: AtomicBool,
}

/// What shows that a process serves the gate's own connection.
#[derive(Clone, Copy, Debug)]
enum Witness {
    /// It is a child of the process that listens.
    Parent(i32),
    /// Its title has the gate's own port.
    Port(u16),
}

/// A statement whose process is being lowered, or is.
#[derive(Debug)]
pub(super) struct Lowered {
    process: i32,
    moving: Option<JoinHandle<Option<Means>>>,
}

impl Lowering {
    /// Lowers the process of a connection whose statement runs, if that can be done.
    pub(super) fn lower(&self, server: &Server) -> Option<Lowered> {
        let process = server.process_id;
        let stream = &server.stream;
        let parent = stream.listener().map(Witness::Parent);
        let port = || stream.local_address().map(|address| Witness::Port(address.port()));
        let witness = parent.or_else(port).filter(|_| stream.peer().is_loopback());
        let told = Arc::clone(&self.has_told);
        let Some(witness) = witness else {
            told.failed("the server isn't on this machine");
            return None;
        };
        let moving = spawn_blocking(move || match lower(Path::new("/"), process, witness) {
            Ok(means) => {
                if !told.success.swap(true, Ordering::Relaxed) {
                    tracing::info!(%means, "long reads get less of the processor (lower_long_reads)");
                }
                Some(means)
            }
            Err(why) => {
                told.failed(&why);
                None
            }
        });
        Some(Lowered { process, moving: Some(moving) })
    }
}

impl Told {
    fn failed(&self, why: &str) {
        if !self.failure.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                why,
                "lower_long_reads has no effect: long reads keep their weight. Let the gate move the server's \
                 processes (as root, or with the server's control group delegated to it), or drop the key"
            );
        }
    }
}

fn lower(root: &Path, process: i32, witness: Witness) -> Result<Means, String> {
    if !serves(root, process, witness) {
        return Err(format!("process {process} of this machine doesn't serve the gate's connection"));
    }
    let means = Means::find(root, process).map_err(|unable| unable.to_string())?;
    means.lower(process).map_err(|error| format!("process {process}: {error}"))?;
    Ok(means)
}

/// Whether a process of this machine is the one that serves the gate's connection.
fn serves(root: &Path, process: i32, witness: Witness) -> bool {
    let read = |name: &str| std::fs::read(root.join(format!("proc/{process}/{name}"))).unwrap_or_default();
    match witness {
        Witness::Parent(parent) => {
            let status = read("status");
            self::parent(&String::from_utf8_lossy(&status)) == Some(parent)
        }
        Witness::Port(port) => {
            let title = read("cmdline");
            let title = String::from_utf8_lossy(&title);
            title.starts_with("postgres:") && title.contains(&format!("({port})"))
        }
    }
}

impl Lowered {
    /// Waits until the process has its weight again.
    pub(super) async fn raise(mut self) {
        if let Some(moving) = self.moving.take() {
            raise(self.process, moving).await;
        }
    }
}

impl Drop for Lowered {
    fn drop(&mut self) {
        if let (Some(moving), Ok(runtime)) = (self.moving.take(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(raise(self.process, moving));
        }
    }
}

async fn raise(process: i32, moving: JoinHandle<Option<Means>>) {
    let Ok(Some(means)) = moving.await else { return };
    let raised = spawn_blocking(move || means.raise(process)).await;
    match raised {
        Ok(Err(error)) if error.raw_os_error() != Some(rustix::io::Errno::SRCH.raw_os_error()) => {
            tracing::error!(process, %error, "a server process keeps the low weight of its last statement");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_process_that_serves_the_connection_is_moved() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("proc/7");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("status"), "Name:\tpostgres\nPPid:\t3\n").unwrap();
        std::fs::write(folder.join("cmdline"), "postgres: shop shop 127.0.0.1(40001) SELECT\0\0").unwrap();
        let serves = |process, witness| serves(root.path(), process, witness);
        assert!(serves(7, Witness::Parent(3)) && serves(7, Witness::Port(40_001)));
        assert!(!serves(7, Witness::Parent(4)) && !serves(7, Witness::Port(4001)));
        assert!(!serves(8, Witness::Parent(3)) && !serves(8, Witness::Port(40_001)));
    }
}
