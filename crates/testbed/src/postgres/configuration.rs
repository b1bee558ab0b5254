//! What a private server is configured with: options, and the files written from them.

use std::fs;
use std::path::Path;

use super::Binaries;
use crate::Error;

/// How clients prove who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Authentication {
    /// SCRAM-SHA-256, what a modern installation asks for.
    #[default]
    Scram,
    /// MD5, what old installations still ask for.
    Md5,
    /// No challenge at all.
    Trust,
}

impl Authentication {
    /// The word in `pg_hba.conf`.
    pub(super) const fn method(self) -> &'static str {
        match self {
            Self::Scram => "scram-sha-256",
            Self::Md5 => "md5",
            Self::Trust => "trust",
        }
    }

    /// How passwords are stored.
    const fn password_encryption(self) -> &'static str {
        match self {
            Self::Md5 => "md5",
            Self::Scram | Self::Trust => "scram-sha-256",
        }
    }
}

/// What survives a crash of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// Nothing: no flush to disk. For tests, which never look at the data again.
    #[default]
    Disposable,
    /// Every committed transaction, as in production. For measurements.
    Durable,
}

/// How to start a [`PrivateServer`](super::PrivateServer). The default suits tests.
#[derive(Clone, Debug)]
pub struct PrivateServerOptions {
    /// The installation to run (default: the machine's, as [`Binaries::find`] finds it).
    pub binaries: Option<Binaries>,
    /// How clients prove who they are (default: SCRAM).
    pub authentication: Authentication,
    /// Whether commits are flushed to disk (default: not).
    pub durability: Durability,
    /// The database that addresses name and [`psql`](super::PrivateServer::psql) asks, made if it isn't
    /// there (default: `postgres`).
    pub database: &'static str,
    /// `max_connections` (default: 100).
    pub max_connections: u32,
    /// The only processor that the server and its children may use (default: all).
    pub cpu: Option<usize>,
    /// More lines for `postgresql.conf`, as name and value; they win over what is set here.
    pub settings: Vec<(String, String)>,
    /// More lines for `pg_hba.conf`, before the general ones.
    pub access_rules: Vec<String>,
    /// More files in the data directory, as name and content, which only the server can read.
    pub files: Vec<(String, String)>,
    /// More variables of the server's environment.
    pub environment: Vec<(String, String)>,
}

impl Default for PrivateServerOptions {
    fn default() -> Self {
        Self {
            binaries: None,
            authentication: Authentication::default(),
            durability: Durability::default(),
            database: super::DATABASE,
            max_connections: 100,
            cpu: None,
            settings: Vec::new(),
            access_rules: Vec::new(),
            files: Vec::new(),
            environment: Vec::new(),
        }
    }
}

/// Writes `postgresql.conf` and `pg_hba.conf` into the data directory, replacing what `initdb` wrote.
pub(super) fn write(root: &Path, port: u16, options: &PrivateServerOptions) -> Result<(), Error> {
    let data = super::data_path(root);
    // Overwriting keeps the owner that initdb gave the files.
    fs::write(data.join("postgresql.conf"), server_settings(root, port, options)?)
        .and_then(|()| fs::write(data.join("pg_hba.conf"), access_rules(options)))
        .map_err(Error::io("writing the server's configuration"))
}

fn server_settings(root: &Path, port: u16, options: &PrivateServerOptions) -> Result<String, Error> {
    let durable = if options.durability == Durability::Durable { "on" } else { "off" };
    let own = [
        ("listen_addresses", "127.0.0.1".to_owned()),
        ("port", port.to_string()),
        ("unix_socket_directories", root.display().to_string()),
        ("max_connections", options.max_connections.to_string()),
        ("password_encryption", options.authentication.password_encryption().to_owned()),
        ("fsync", durable.to_owned()),
        ("synchronous_commit", durable.to_owned()),
        ("full_page_writes", durable.to_owned()),
        ("shared_buffers", "64MB".to_owned()),
        ("log_destination", "stderr".to_owned()),
        ("logging_collector", "off".to_owned()),
        ("timezone", "UTC".to_owned()),
        ("log_timezone", "UTC".to_owned()),
    ];
    let extra = options.settings.iter().map(|(name, value)| (name.as_str(), value.clone()));
    let mut text = String::new();
    for (name, value) in own.into_iter().chain(extra) {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
        if name.is_empty() || !name.chars().all(plain) || value.contains('\n') {
            return Err(Error::Unusable(format!("`{name} = {value}` is no PostgreSQL setting")));
        }
        text.push_str(&format!("{name} = '{}'\n", value.replace('\'', "''")));
    }
    Ok(text)
}

fn access_rules(options: &PrivateServerOptions) -> String {
    let method = options.authentication.method();
    let mut text: String = options.access_rules.iter().map(|rule| format!("{rule}\n")).collect();
    text.push_str(&format!("local all all {method}\n"));
    text.push_str(&format!("host all all 127.0.0.1/32 {method}\n"));
    text.push_str(&format!("host replication all 127.0.0.1/32 {method}\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_and_later_settings_win_by_order() {
        let options = PrivateServerOptions {
            settings: vec![("search_path".to_owned(), "it's".to_owned())],
            ..PrivateServerOptions::default()
        };
        let text = server_settings(Path::new("/tmp/x"), 5000, &options).unwrap();
        assert!(text.ends_with("search_path = 'it''s'\n"));
    }

    #[test]
    fn a_setting_that_would_add_a_line_is_refused() {
        let options = PrivateServerOptions {
            settings: vec![("work_mem".to_owned(), "1MB\nfsync = on".to_owned())],
            ..PrivateServerOptions::default()
        };
        assert!(server_settings(Path::new("/tmp/x"), 5000, &options).is_err());
    }
}
