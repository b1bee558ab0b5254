//! HAProxy and nginx as others run them, each with a configuration of its own in a temporary directory.

use std::fs::{self, File};
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;
use testbed::process::{self, family, find_installed, free_port, said, spawn_pinned};

use crate::Error;
use crate::encryption::Identity;

/// Clients that an HAProxy with a bound on its server has room for: its queue holds them, not the kernel's.
const CLIENTS_MAX: u32 = 8_000;

/// Which files are more than text.
const TYPES: &str = "text/html html; text/css css; text/javascript js; image/bmp bmp;";

/// What an HAProxy does with what it is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HaProxyRole {
    /// Passes it on to an origin at this port.
    Proxy(u16),
    /// Passes at most `maxconn` requests at once on to an origin. Others wait for up to `queue`, and then get
    /// 503.
    Limited {
        /// The origin's port.
        origin: u16,
        /// `maxconn` of the server.
        maxconn: String,
        /// `timeout queue`.
        queue: String,
    },
    /// Answers 503.
    Refuses,
    /// Closes each connection as soon as it is there.
    Rejects,
}

/// HAProxy with one thread.
#[derive(Debug)]
pub(crate) struct HaProxy(Server);

impl HaProxy {
    /// Starts HAProxy.
    pub(crate) fn start(role: HaProxyRole, cpu: Option<usize>) -> Result<Self, Error> {
        let port = free_port()?;
        let configuration = haproxy_configuration(role, port);
        let arguments = |path: String| vec!["-db".to_owned(), "-f".to_owned(), path];
        start("haproxy", port, |_| configuration, arguments, cpu).map(Self)
    }
}

impl Deref for HaProxy {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.0
    }
}

/// What an nginx is there for.
#[derive(Clone, Debug)]
pub(crate) enum NginxRole {
    /// Serves the files of a directory.
    Files(PathBuf),
    /// Stands before an origin at this port.
    Proxy(u16),
    /// Passes at most `connections` requests at once on to an origin (`limit_conn`). Others get 503.
    Limited {
        /// The origin's port.
        origin: u16,
        /// How many.
        connections: String,
    },
}

/// nginx with one worker.
#[derive(Debug)]
pub(crate) struct Nginx(Server);

impl Nginx {
    /// Starts nginx.
    pub(crate) fn start(role: &NginxRole, cpu: Option<usize>) -> Result<Self, Error> {
        Self::listening(role, |port| format!("127.0.0.1:{port}"), cpu)
    }

    /// Starts an nginx that speaks TLS, and HTTP/2 with clients that want it, on all addresses.
    pub(crate) fn start_secured(
        role: &NginxRole,
        identity: &Identity,
        cpu: Option<usize>,
    ) -> Result<Self, Error> {
        let (certificate, key) = (identity.certificate(), identity.key());
        let listen = |port| {
            format!(
                "0.0.0.0:{port} ssl http2; ssl_certificate {}; ssl_certificate_key {}",
                certificate.display(),
                key.display()
            )
        };
        Self::listening(role, listen, cpu)
    }

    fn listening(
        role: &NginxRole,
        listen: impl FnOnce(u16) -> String,
        cpu: Option<usize>,
    ) -> Result<Self, Error> {
        let port = free_port()?;
        let listen = listen(port);
        let configuration = |directory: &Path| nginx_configuration(role, &listen, directory);
        let arguments = |path: String| vec!["-c".to_owned(), path];
        start("nginx", port, configuration, arguments, cpu).map(Self)
    }
}

impl Deref for Nginx {
    type Target = Server;

    fn deref(&self) -> &Server {
        &self.0
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

/// Starts an nginx with a configuration file, which is told by its path.
fn start(
    name: &str,
    port: u16,
    configuration: impl FnOnce(&Path) -> String,
    arguments: impl FnOnce(String) -> Vec<String>,
    cpu: Option<usize>,
) -> Result<Server, Error> {
    let hint = format!("Debian's package {name}, or run `scripts/setup web-proxies`");
    let binary = find_installed(name, &hint)?;
    let mut command = Command::new(&binary);
    let version = version(&binary);
    Server::start(name, version, port, &mut command, cpu, |command, directory| {
        let path = directory.join(format!("{name}.conf"));
        fs::write(&path, configuration(directory)).map_err(Error::io(format!("writing {name}'s files")))?;
        command.args(arguments(path.display().to_string()));
        Ok(())
    })
}

fn haproxy_configuration(role: HaProxyRole, port: u16) -> String {
    let (clients, does) = match role {
        HaProxyRole::Proxy(origin) => {
            (2_000, format!("default_backend origin\n\nbackend origin\n  server only 127.0.0.1:{origin}\n"))
        }
        // Without `abortonclose` clients that gave up keep their places in the queue.
        HaProxyRole::Limited { origin, maxconn, queue } => (
            CLIENTS_MAX,
            format!(
                "default_backend origin\n\nbackend origin\n  timeout queue {queue}\n  option abortonclose\n  \
                 server only 127.0.0.1:{origin} maxconn {maxconn}\n"
            ),
        ),
        HaProxyRole::Refuses => {
            (2_000, "http-request return status 503 content-type text/plain string busy\n".to_owned())
        }
        HaProxyRole::Rejects => (2_000, "tcp-request connection reject\n".to_owned()),
    };
    format!(
        "global\n  nbthread 1\n  maxconn {clients}\n\ndefaults\n  mode http\n  timeout connect 5s\n  \
         timeout client 60s\n  timeout server 60s\n  option forwardfor\n  http-reuse always\n\n\
         frontend all\n  bind 127.0.0.1:{port}\n  {does}"
    )
}

fn nginx_configuration(role: &NginxRole, listen: &str, directory: &Path) -> String {
    let upstream = |origin: &u16| {
        format!(
            "upstream origin {{ server 127.0.0.1:{origin}; keepalive 128; keepalive_requests 1000000000; }}"
        )
    };
    // Its default buffers are too small for 100 KB: with these it takes half of the time.
    let pass = "proxy_pass http://origin; proxy_http_version 1.1; proxy_set_header Connection \"\"; \
                proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_buffer_size 16k; \
                proxy_buffers 16 16k; proxy_busy_buffers_size 64k; proxy_max_temp_file_size 0;";
    let (upstream, place) = match role {
        NginxRole::Files(files) => (String::new(), format!("root {};", files.display())),
        NginxRole::Proxy(origin) => (upstream(origin), pass.to_owned()),
        NginxRole::Limited { origin, connections } => (
            format!("{} limit_conn_zone $server_port zone=all:1m; limit_conn_status 503;", upstream(origin)),
            format!("limit_conn all {connections}; {pass}"),
        ),
    };
    let directory = directory.display();
    format!(
        "daemon off; worker_processes 1; pid {directory}/pid; error_log {directory}/log; {user}\n\
         events {{ worker_connections {connections}; }}\n\
         http {{ access_log off; types {{ {TYPES} }} sendfile on; tcp_nopush on; open_file_cache max=100;\n\
         keepalive_requests 1000000000; client_body_temp_path {directory}/body;\n\
         proxy_temp_path {directory}/proxy; fastcgi_temp_path {directory}/fastcgi;\n\
         uwsgi_temp_path {directory}/uwsgi; scgi_temp_path {directory}/scgi; {upstream}\n\
         server {{ listen {listen}; location / {{ {place} }} }} }}\n",
        user = if rustix::process::geteuid().is_root() { "user root;" } else { "" },
        connections = if matches!(role, NginxRole::Limited { .. }) { CLIENTS_MAX } else { 4_000 },
    )
}

/// The first number with dots in what it answers to `-v`.
fn version(binary: &Path) -> String {
    let text = said(binary, "-v");
    text.split(|letter: char| !(letter.is_ascii_digit() || letter == '.'))
        .find(|word| word.contains('.') && word.starts_with(|letter: char| letter.is_ascii_digit()))
        .unwrap_or("?")
        .to_owned()
}

/// How long it may take until its port accepts connections.
const START_BOUND: Duration = Duration::from_secs(20);
/// How long it may take to end.
const STOP_BOUND: Duration = Duration::from_secs(5);

/// A server that runs. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Server {
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
    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// What it says of itself.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Its processes.
    pub(crate) fn pids(&self) -> Vec<u32> {
        family(self.child.id())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // To all of them TERM is the order to end at once.
        process::end(&mut self.child, &[(Signal::TERM, STOP_BOUND)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_haproxy_with_a_bound_has_its_queue_and_others_have_none() {
        let limited = HaProxyRole::Limited { origin: 81, maxconn: "8".to_owned(), queue: "100ms".to_owned() };
        let text = haproxy_configuration(limited, 80);
        assert!(text.contains("  server only 127.0.0.1:81 maxconn 8\n"), "{text}");
        assert!(text.contains("  timeout queue 100ms\n  option abortonclose\n"), "{text}");
        assert!(text.contains("global\n  nbthread 1\n  maxconn 8000\n"), "{text}");
        let plain = haproxy_configuration(HaProxyRole::Proxy(81), 80);
        assert!(plain.contains("  server only 127.0.0.1:81\n") && !plain.contains("queue"), "{plain}");
    }

    #[test]
    fn an_nginx_with_a_bound_refuses_with_503() {
        let directory = Path::new("/d");
        let limited = NginxRole::Limited { origin: 81, connections: "16".to_owned() };
        let text = nginx_configuration(&limited, "127.0.0.1:80", directory);
        assert!(text.contains("limit_conn_zone $server_port zone=all:1m; limit_conn_status 503;"), "{text}");
        assert!(text.contains("location / { limit_conn all 16; proxy_pass http://origin;"), "{text}");
        assert!(
            !nginx_configuration(&NginxRole::Proxy(81), "127.0.0.1:80", directory).contains("limit_conn")
        );
    }
}
