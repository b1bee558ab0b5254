//! A server that stands between clients and an origin: a process with a directory and a log of its own.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;
use testbed::process::{self, family, spawn_pinned};

use crate::Error;

/// How long it may take until its port accepts connections.
const START_BOUND: Duration = Duration::from_secs(20);
/// How long it may take to end.
const STOP_BOUND: Duration = Duration::from_secs(5);

/// A server that runs. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Server {
    child: Child,
    port: u16,
    version: String,
    _directory: TempDir,
}

impl Server {
    /// Starts one that will listen on this port. `prepare` writes what it needs into its directory, and
    /// adds what it is told.
    pub(super) fn start(
        name: &str,
        version: String,
        port: u16,
        command: &mut Command,
        cpu: Option<usize>,
        prepare: impl FnOnce(&mut Command, &Path) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let directory = tempfile::Builder::new()
            .prefix(&format!("{name}-"))
            .tempdir()
            .map_err(Error::io("creating a temporary directory"))?;
        prepare(command, directory.path())?;
        let log = directory.path().join("log");
        let writing = || Error::io(format!("writing {name}'s log"));
        let output = File::create(&log).map_err(writing())?;
        let errors = output.try_clone().map_err(writing())?;
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let child = spawn_pinned(command, cpu)?;
        let mut server = Self { child, port, version, _directory: directory };
        process::wait_until_ready(&mut server.child, START_BOUND, || process::accepts(port)).map_err(
            |problem| testbed::Error::NotReady {
                server: name.to_owned(),
                problem,
                log: process::log_tail(&log),
            },
        )?;
        Ok(server)
    }

    /// Its port on 127.0.0.1.
    pub(super) const fn port(&self) -> u16 {
        self.port
    }

    /// What it says of itself.
    pub(super) fn version(&self) -> &str {
        &self.version
    }

    /// Its processes.
    pub(super) fn pids(&self) -> Vec<u32> {
        family(self.child.id())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // To all of them TERM is the order to end at once.
        process::end(&mut self.child, &[(Signal::TERM, STOP_BOUND)]);
    }
}
