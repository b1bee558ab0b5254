//! `gatekeeper users`: the command line.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum UsersCommand {
    /// Print the users file that a gate for MySQL or MariaDB needs, from the accounts of the server.
    #[command(after_help = STATUS)]
    Import(UsersImportArgs),
}

const STATUS: &str = "A user that the gate can't let in gets a comment, with the reason and what to do. No flag takes a \
     password: every user of the machine sees those. Exit status: 0 printed or written; 1 the server can't be \
     asked, or the file not written; 2 wrong flags.";

#[derive(Debug, Args)]
pub(crate) struct UsersImportArgs {
    /// The server: host:port, or unix:/path of its socket.
    #[arg(long, value_name = "ADDR")]
    pub(crate) upstream: String,
    /// The account that asks. It must be allowed to read mysql.user.
    #[arg(long, value_name = "NAME")]
    pub(crate) user: String,
    /// The file with the account's password, or - for standard input [default: the environment's
    /// MYSQL_PWD, else no password].
    #[arg(long, value_name = "FILE")]
    pub(crate) password_file: Option<PathBuf>,
    /// TLS with the server, as the gate's `upstream_tls_mode`.
    #[arg(long, value_name = "WHICH")]
    pub(crate) upstream_tls_mode: Option<String>,
    /// The authorities that sign the server's certificate, as the gate's `upstream_tls_ca`.
    #[arg(long, value_name = "FILE")]
    pub(crate) upstream_tls_ca: Option<String>,
    /// Where the lines go: a new file, which only its owner may read [default: standard output].
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}
