//! A private ProxySQL, for standing beside the gatekeeper: its own configuration, ports and directory, gone
//! when it is dropped. No package of Debian has it: it is looked for on `PATH`.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::Error;
use crate::mariadb::PrivateMariadb;
use crate::process::{self, free_port};

/// How long it may take until its port accepts connections.
const START_BOUND: Duration = Duration::from_secs(20);
/// How long it may take to end.
const STOP_BOUND: Duration = Duration::from_secs(5);

/// A running ProxySQL with one thread for its clients. Dropping it ends it.
#[derive(Debug)]
pub struct ProxySql {
    child: Child,
    port: u16,
    version: String,
    _directory: TempDir,
}

impl ProxySql {
    /// Starts a ProxySQL before `server`, with so many server connections, where one is installed.
    ///
    /// # Errors
    /// If it doesn't start (the message quotes its log).
    pub fn start(server: &PrivateMariadb, pool_size: u32) -> Result<Option<Self>, Error> {
        let Ok(binary) = process::find_installed("proxysql", "ProxySQL") else { return Ok(None) };
        let directory = tempfile::Builder::new()
            .prefix("proxysql-")
            .tempdir()
            .map_err(Error::io("creating a temporary directory"))?;
        let (port, admin) = (free_port()?, free_port()?);
        let (file, log) = (directory.path().join("proxysql.cnf"), directory.path().join("log"));
        fs::write(&file, configuration(directory.path(), server, [port, admin], pool_size))
            .map_err(Error::io("writing ProxySQL's configuration"))?;
        let said = fs::File::create(&log).map_err(Error::io("creating ProxySQL's log"))?;
        let mut command = Command::new(&binary);
        command.args(["--foreground", "--initial", "--no-monitor", "--no-version-check", "-c"]);
        command.arg(&file).arg("-D").arg(directory.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
        let child = command.spawn().map_err(Error::io(format!("starting {}", binary.display())))?;
        let mut proxysql = Self { child, port, version: version(&binary), _directory: directory };
        process::wait_until_ready(&mut proxysql.child, START_BOUND, || process::accepts(port)).map_err(
            |problem| {
                let log = process::log_tail(&log);
                Error::NotReady { server: "ProxySQL".to_owned(), problem, log }
            },
        )?;
        Ok(Some(proxysql))
    }

    /// Its port on 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its version, such as `2.7.2`.
    pub fn version(&self) -> &str {
        &self.version
    }
}

impl Drop for ProxySql {
    fn drop(&mut self) {
        process::end(&mut self.child, &[(Signal::TERM, STOP_BOUND)]);
    }
}

fn configuration(directory: &Path, server: &PrivateMariadb, ports: [u16; 2], pool_size: u32) -> String {
    let ([port, admin], upstream) = (ports, server.port());
    let (user, password) = (server.user(), server.password());
    format!(
        "datadir=\"{}\"\n\
         admin_variables={{ admin_credentials=\"admin:{password}\" mysql_ifaces=\"127.0.0.1:{admin}\" }}\n\
         mysql_variables={{ threads=1 interfaces=\"127.0.0.1:{port}\" monitor_enabled=false multiplexing=true }}\n\
         mysql_servers=( {{ address=\"127.0.0.1\", port={upstream}, hostgroup=0, max_connections={pool_size} }} )\n\
         mysql_users=( {{ username=\"{user}\", password=\"{password}\", default_hostgroup=0, active=1 }} )\n",
        directory.display()
    )
}

fn version(binary: &Path) -> String {
    let text = process::said(binary, "--version");
    let number = text.split_once("version ").map_or("", |rest| rest.1);
    number.split([',', '-', ' ']).next().unwrap_or_default().to_owned()
}
