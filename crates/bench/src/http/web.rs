//! HAProxy and nginx as others run them, each with a configuration of its own in a temporary directory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::Error;
use crate::process::{self, family, free_port, spawn_pinned};

/// How long each may take until its port accepts connections.
const START_BOUND: Duration = Duration::from_secs(20);
/// How long each may take to end.
const STOP_BOUND: Duration = Duration::from_secs(5);
/// Directories where system programs are that a user's path leaves out.
const SYSTEM: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// A server that was started with a configuration file.
#[derive(Debug)]
struct Server {
    child: Child,
    port: u16,
    version: String,
    _directory: TempDir,
}

impl Server {
    fn start(
        name: &str,
        port: u16,
        configuration: impl FnOnce(&Path) -> String,
        arguments: impl FnOnce(&Path) -> Vec<String>,
        cpu: Option<usize>,
    ) -> Result<Self, Error> {
        let binary = find(name)?;
        let directory = tempfile::Builder::new()
            .prefix(&format!("{name}-"))
            .tempdir()
            .map_err(Error::io("creating a temporary directory"))?;
        let path = directory.path().join(format!("{name}.conf"));
        let log = directory.path().join("log");
        let writing = || Error::io(format!("writing {name}'s files"));
        fs::write(&path, configuration(directory.path())).map_err(writing())?;
        let output = File::create(&log).map_err(writing())?;
        let errors = output.try_clone().map_err(writing())?;
        let mut command = Command::new(&binary);
        command.args(arguments(&path)).stdin(Stdio::null()).stdout(output).stderr(errors);
        let child = spawn_pinned(&mut command, cpu)?;
        let version = version(&binary);
        let mut server = Self { child, port, version, _directory: directory };
        process::wait_until_ready(&mut server.child, START_BOUND, || process::accepts(port)).map_err(
            |problem| Error::NotReady { server: name.to_owned(), problem, log: process::log_tail(&log) },
        )?;
        Ok(server)
    }

    fn pids(&self) -> Vec<u32> {
        family(self.child.id())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // To both TERM is the order to end at once.
        process::end(&mut self.child, &[(Signal::TERM, STOP_BOUND)]);
    }
}

/// What an HAProxy does with what it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HaProxyRole {
    /// Passes it on to an origin at this port.
    Proxy(u16),
    /// Answers 503.
    Refuses,
    /// Closes each connection as soon as it is there.
    Rejects,
}

/// HAProxy with one thread.
#[derive(Debug)]
pub(crate) struct HaProxy(Server);

impl HaProxy {
    /// Starts one.
    pub(crate) fn start(role: HaProxyRole, cpu: Option<usize>) -> Result<Self, Error> {
        let port = free_port()?;
        let does = match role {
            HaProxyRole::Proxy(origin) => {
                format!("default_backend origin\n\nbackend origin\n  server only 127.0.0.1:{origin}\n")
            }
            HaProxyRole::Refuses => {
                "http-request return status 503 content-type text/plain string busy\n".to_owned()
            }
            HaProxyRole::Rejects => "tcp-request connection reject\n".to_owned(),
        };
        let configuration = |_: &Path| {
            format!(
                "global\n  nbthread 1\n  maxconn 2000\n\ndefaults\n  mode http\n  timeout connect 5s\n  \
                 timeout client 60s\n  timeout server 60s\n  option forwardfor\n  http-reuse always\n\n\
                 frontend all\n  bind 127.0.0.1:{port}\n  {does}"
            )
        };
        let arguments = |path: &Path| vec!["-db".to_owned(), "-f".to_owned(), path.display().to_string()];
        Server::start("haproxy", port, configuration, arguments, cpu).map(Self)
    }

    /// Its port on 127.0.0.1.
    pub(crate) const fn port(&self) -> u16 {
        self.0.port
    }

    /// Its processes.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.0.pids()
    }

    /// What it says of itself.
    pub(crate) fn version(&self) -> &str {
        &self.0.version
    }
}

/// What an nginx is there for.
#[derive(Clone, Debug)]
pub(crate) enum NginxRole {
    /// Serves the files of a directory.
    Files(PathBuf),
    /// Stands before an origin at this port.
    Proxy(u16),
}

/// nginx with one worker.
#[derive(Debug)]
pub(crate) struct Nginx(Server);

impl Nginx {
    /// Starts one.
    pub(crate) fn start(role: &NginxRole, cpu: Option<usize>) -> Result<Self, Error> {
        let port = free_port()?;
        let configuration = |directory: &Path| {
            let (upstream, place) = match role {
                NginxRole::Files(files) => (String::new(), format!("root {};", files.display())),
                NginxRole::Proxy(origin) => (
                    format!(
                        "upstream origin {{ server 127.0.0.1:{origin}; keepalive 128; keepalive_requests 1000000000; }}"
                    ),
                    // Its default buffers are too small for 100 KB: with these it takes half of the time.
                    "proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection \"\"; \
                     proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_buffer_size 16k; \
                     proxy_buffers 16 16k; proxy_busy_buffers_size 64k; proxy_max_temp_file_size 0;"
                        .to_owned(),
                ),
            };
            let directory = directory.display();
            format!(
                "daemon off; worker_processes 1; pid {directory}/pid; error_log {directory}/log; {user}\n\
                 events {{ worker_connections 4000; }}\n\
                 http {{ access_log off; sendfile on; tcp_nopush on; open_file_cache max=100;\n\
                 keepalive_requests 1000000000; client_body_temp_path {directory}/body;\n\
                 proxy_temp_path {directory}/proxy; fastcgi_temp_path {directory}/fastcgi;\n\
                 uwsgi_temp_path {directory}/uwsgi; scgi_temp_path {directory}/scgi; {upstream}\n\
                 server {{ listen 127.0.0.1:{port}; location / {{ {place} }} }} }}\n",
                user = if rustix::process::geteuid().is_root() { "user root;" } else { "" },
            )
        };
        let arguments = |path: &Path| vec!["-c".to_owned(), path.display().to_string()];
        Server::start("nginx", port, configuration, arguments, cpu).map(Self)
    }

    /// Its port on 127.0.0.1.
    pub(crate) const fn port(&self) -> u16 {
        self.0.port
    }

    /// Its processes.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.0.pids()
    }

    /// What it says of itself.
    pub(crate) fn version(&self) -> &str {
        &self.0.version
    }
}

/// Writes a file of each of these sizes into a directory, named by its size.
pub(crate) fn write_files(directory: &Path, sizes: &[usize]) -> Result<(), Error> {
    for size in sizes {
        fs::write(directory.join(size.to_string()), vec![b'x'; *size])
            .map_err(Error::io("writing a file"))?;
    }
    Ok(())
}

fn find(name: &str) -> Result<PathBuf, Error> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(SYSTEM.iter().map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|path| path.is_file())
        .ok_or_else(|| {
            Error::Missing(format!(
                "{name} is not installed; install Debian's package {name}, or run `scripts/setup web-proxies`"
            ))
        })
}

/// The first number with dots in what it answers to `-v`.
fn version(binary: &Path) -> String {
    let Ok(output) = Command::new(binary).arg("-v").output() else { return String::new() };
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    text.split(|letter: char| !(letter.is_ascii_digit() || letter == '.'))
        .find(|word| word.contains('.') && word.starts_with(|letter: char| letter.is_ascii_digit()))
        .unwrap_or("?")
        .to_owned()
}
